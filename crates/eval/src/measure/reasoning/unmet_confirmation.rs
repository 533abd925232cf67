//! Actions that the user confirmed and that were never carried out.
//!
//! Principle: an action that a model offers to carry out, and that the user agrees to, is carried out or declined. The
//! defect is that the user, who expects the action, is not told that it is missing; the reason for the omission is not
//! examined.
//!
//! A user who agrees may ask for something else in the same reply. If only the other thing is done, and the agent does
//! not mention the confirmed action, a question at the end of the output is about the other thing as well.
//!
//! In: a turn in which a model asks whether to carry out an action of an offered tool, and a reply
//! of the user that agrees. Out: a finding on the model call after the reply if no later call does such a thing,
//! the user does not withdraw, and the model neither refuses, hands over, nor asks for more.

use verdict_otlp::trace::Idx;

use super::claimed_actions::is_form_of;
use super::history::end_of;
use crate::measure::conversation::Turns;
use crate::measure::defects::Defect;
use crate::measure::dialogue::Replies;
use crate::measure::excerpt::clip;
use crate::measure::language::{Action, ReadText, Tense};
use crate::measure::tool_purpose::{ToolPurpose, action_of, offered_tools};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, Memo, agent_index};
use crate::recognise::{Agent, AgentTrace, Text};

/// Maximum turns of a trace that are read.
const MAX_TURNS: usize = 1_000;
/// Maximum bytes of a reply that only agrees.
const MAX_REPLY_BYTES: usize = 150;

/// Findings by model span.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo) -> Vec<(Idx, Finding)> {
    let mut out = Vec::new();
    if trace.incomplete {
        return out;
    }
    let replies = Replies::cached(trace, memo);
    for (i, agent) in trace.agents.iter().enumerate() {
        if !replies.has_to(agent) {
            continue;
        }
        let dialogue = Dialogue { trace, memo, agent, task: agent_index::task(trace, i) };
        let tools =
            offered_tools(trace, i).map(|tool| ToolPurpose::new(&tool.name, tool.description.as_deref()));
        let tools: Vec<ToolPurpose> = tools.filter(|t| !t.is_query() && !t.actions.is_empty()).collect();
        if !tools.is_empty() {
            out.extend(dialogue.unmet(&tools, &replies));
        }
    }
    out
}

struct Dialogue<'t> {
    trace: &'t AgentTrace,
    memo: &'t Memo,
    agent: &'t Agent,
    task: Option<&'t Text>,
}

impl Dialogue<'_> {
    /// The finding on the last confirmation, if no call follows it. The turns are read backwards, so that a later
    /// explanation of the omission is known before its confirmation is reached.
    fn unmet(&self, tools: &[ToolPurpose], replies: &Replies) -> Option<(Idx, Finding)> {
        let mut asks = None;
        for &at in self.agent.llms.iter().rev().take(MAX_TURNS) {
            let text = self.trace.views.get(at)?.output_text();
            if !self.memo.budget.spend(1 + text.len() / 4) {
                return None;
            }
            let analysed_turn = ReadText::new(&text, self.task.map(|task| &**task), self.memo);
            let Some(reply) = replies.to(at) else {
                // The run ends with a question, or with the reason why the agent does not act.
                if self.explains_omission(&analysed_turn) {
                    return None;
                }
                if self.agent.llms.last() == Some(&at) && analysed_turn.ends_with_question() {
                    asks = Some(at);
                }
                continue;
            };
            let read_reply = analysed_turn.answered_by(clip(reply, 2 * MAX_REPLY_BYTES), self.memo);
            if read_reply.withdraws() {
                return None;
            }
            let agrees = reply.len() <= MAX_REPLY_BYTES && read_reply.agrees();
            let action =
                analysed_turn.ends_with_question().then(|| offered_action(&analysed_turn, tools)).flatten();
            let only_agrees = asks.is_none() && agrees;
            let is_confirmed = |action: &Action| {
                only_agrees
                    || !agrees
                        && self.repeats(reply, &read_reply, *action)
                        && !self.mentions_after(at, *action)
            };
            if let Some(action) = action.filter(is_confirmed) {
                let next = Turns::cached(self.trace, self.memo).after(at)?;
                return (!self.acted_after(at, action)).then(|| (next, self.finding(at, action, reply)));
            }
            if asks.is_some() || self.explains_omission(&analysed_turn) {
                return None;
            }
        }
        None
    }

    /// Whether a reply agrees and asks for the action by its verb, next to something else.
    fn repeats(&self, reply: &str, read_reply: &ReadText<'_>, action: Action) -> bool {
        reply.len() <= 2 * MAX_REPLY_BYTES && names(reply, action) && read_reply.begins_to_agree()
    }

    /// Whether a text of the agent after the model span mentions the action, or no call was made after the model span.
    /// True beyond the work budget.
    fn mentions_after(&self, at: Idx, action: Action) -> bool {
        let end = end_of(self.trace, at);
        let texts =
            self.agent.llms.iter().filter(|llm| **llm > at).filter_map(|llm| self.trace.views.get(*llm));
        let texts: Vec<_> = texts.map(|view| view.output_text()).collect();
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        !self.memo.budget.spend(1 + bytes / BYTES_PER_STEP)
            || texts.iter().any(|text| names(text, action))
            || !self.trace.calls.iter().any(|call| call.start > end)
    }

    /// Whether a turn refuses, or states that something is impossible. True for a text in an unknown language.
    fn explains_omission(&self, analysed_turn: &ReadText<'_>) -> bool {
        !analysed_turn.is_known()
            || !analysed_turn.refusals().is_empty()
            || !analysed_turn.inability().is_empty()
    }

    /// Whether a call after the model span may be the action, or transfers the user to a person. True beyond the work
    /// budget.
    fn acted_after(&self, at: Idx, action: Action) -> bool {
        let end = end_of(self.trace, at);
        let from = self.trace.calls.partition_point(|call| call.start < end);
        let calls = self.trace.calls.get(from..).unwrap_or_default();
        if !self.memo.budget.spend(calls.len()) {
            return true;
        }
        calls.iter().filter(|call| !self.trace.control_tools.is_control(&call.name)).any(|call| {
            let purpose = ToolPurpose::for_call(self.trace, self.memo, call);
            purpose.may_do(action) || purpose.actions.contains(&Action::Transfer)
        })
    }

    fn finding(&self, at: Idx, action: Action, reply: &str) -> Finding {
        let rationale = format!(
            "a call to {} was expected, as offered and confirmed by the user; none followed, and nothing explains it",
            action.as_str()
        );
        Defect::ConfirmedActionMissing.finding(rationale, reply).citing_at(self.trace, at)
    }
}

/// Whether a text has a word for the action.
fn names(text: &str, action: Action) -> bool {
    text.split(|c: char| !c.is_alphanumeric()).any(|word| {
        let word = word.to_lowercase();
        action_of(&word) == Some(action) || is_form_of(&word, action) || word.starts_with(action.as_str())
    })
}

/// The action that the last sentence of a turn offers, if a tool is for that action.
fn offered_action(analysed_turn: &ReadText<'_>, tools: &[ToolPurpose]) -> Option<Action> {
    let does = |action: &Action| tools.iter().any(|tool| tool.actions.first() == Some(action));
    let question =
        analysed_turn.languages().find_map(|language| analysed_turn.classified(language, []).last())?.0;
    let part = analysed_turn.part(question.text);
    let claims = part.claims_of_action();
    let mut offered =
        claims.iter().filter(|c| matches!(c.tense, Tense::Offered | Tense::Promised)).map(|c| c.action);
    offered.rfind(does).or_else(|| {
        let words = question.text.split(|c: char| !c.is_alphanumeric());
        words.filter_map(|word| action_of(&word.to_lowercase())).rfind(does)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    fn rationales(script: Script) -> Vec<String> {
        let trace = script.build();
        find(&trace, &Memo::new()).into_iter().map(|(_, finding)| finding.rationale).collect()
    }

    fn confirmed(tool: &str, question: &str, reply: &str) -> Script {
        Script::new("Please help me.").tools(&["get_record", tool]).says(question).user(reply)
    }

    #[test]
    fn confirmed_action_that_never_follows_is_found() {
        for (tool, question, reply) in [
            ("transfer_money", "Shall I transfer 200 EUR to your savings account?", "Yes, please."),
            (
                "cancel_appointment",
                "Would you like me to cancel the appointment on Monday?",
                "Sure, go ahead.",
            ),
            ("book_room", "Should I book the double room for two nights?", "Yes."),
            ("delete_branch", "Do you want me to delete the old branch?", "Yes, do it."),
        ] {
            let run = confirmed(tool, question, reply).answers("Thank you for contacting us today.");
            assert_eq!(rationales(run).len(), 1, "{question}");
        }
    }

    #[test]
    fn call_refusal_withdrawal_question_and_handover_explain_it() {
        let question = "Would you like me to cancel the appointment on Monday?";
        let run = || confirmed("cancel_appointment", question, "Yes, please.");
        let called = run().calls("", &[("cancel_appointment", "{}")]).returns("Error: locked");
        assert!(rationales(called.answers("Thank you for your patience.")).is_empty());
        assert!(rationales(run().answers("I'm sorry, I am unable to cancel it on the same day.")).is_empty());
        assert!(rationales(run().answers("What is the reason for the cancellation?")).is_empty());
        let back = run().says("One moment.").user("Never mind, I will keep it.");
        assert!(rationales(back.answers("Thank you for letting me know.")).is_empty());
        let over = run().calls("", &[("transfer_to_nurse", "{}")]).returns("ok");
        assert!(rationales(over.answers("A nurse will take over.")).is_empty());
    }

    #[test]
    fn replies_are_read_in_the_language_of_the_question() {
        let run = |question: &str, reply: &str, last: &str| {
            rationales(confirmed("cancel_appointment", question, reply).answers(last)).len()
        };
        let german = "Soll ich den Termin am Montag für Sie stornieren?";
        assert_eq!(run(german, "Ja, bitte.", "Vielen Dank, dass Sie sich heute an uns gewandt haben."), 1);
        assert_eq!(run(german, "Nein, danke.", "Vielen Dank, dass Sie sich heute an uns gewandt haben."), 0);
        let spanish = "¿Quiere que cancele la cita del lunes por usted?";
        assert_eq!(run(spanish, "Déjelo, mejor otro día.", "Muchas gracias por llamarnos hoy."), 0);
    }

    #[test]
    fn confirmation_with_another_request_is_found_if_only_the_other_one_was_served() {
        let question = "Would you like me to cancel the appointment on Monday?";
        let run = |reply: &str, last: &str| {
            let run = confirmed("cancel_appointment", question, reply);
            let run =
                run.calls("", &[("get_record", r#"{"doctor":"Osei"}"#)]).returns(r#"{"free":["23 April"]}"#);
            rationales(run.answers(last)).len()
        };
        let reply = "Yes, please cancel it. Is Dr Osei free in April?";
        assert_eq!(run(reply, "Dr Osei is free on 23 April. Would that suit you?"), 1);
        assert_eq!(run(reply, "Dr Osei is free on 23 April."), 1);
        assert_eq!(run("Sure, cancel that one! And who else is there?", "There is Dr Blum on 23 April."), 1);
        for (reply, last) in [
            (reply, "Dr Osei is free on 23 April. I will cancel Monday once you have chosen, all right?"),
            (reply, "The cancellation costs 20 euros. Is that all right?"),
            ("Yes. Is Dr Osei free in April?", "Dr Osei is free on 23 April. Would that suit you?"),
            (
                "Is Dr Osei free in April? If so, cancel it.",
                "Dr Osei is free on 23 April. Would that suit you?",
            ),
            (
                "Yes, cancel it unless Dr Osei is free in April.",
                "Dr Osei is free on 23 April. Would that suit you?",
            ),
            ("Yes, please cancel it.", "Dr Osei is free on 23 April. Would that suit you?"),
        ] {
            assert_eq!(run(reply, last), 0, "{reply} {last}");
        }
    }

    #[test]
    fn no_agreement_or_no_tool_is_no_confirmation() {
        let question = "Would you like me to cancel the appointment on Monday?";
        let more = confirmed("cancel_appointment", question, "Yes. Also, I need a new one in May.");
        assert!(rationales(more.answers("Which day in May suits you best? I look for a slot.")).is_empty());
        let no = confirmed("cancel_appointment", question, "No, thanks.").answers("Thank you.");
        assert!(rationales(no).is_empty());
        let without = confirmed("get_price", question, "Yes.").answers("Thank you.");
        assert!(rationales(without).is_empty());
    }
}
