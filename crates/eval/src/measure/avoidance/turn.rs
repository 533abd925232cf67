//! Conditions of a turn that take precedence over the classes of its sentences: whether the user replied to it,
//! whether an offered tool was not tried, and whether the instructions demand the refusal.
//!
//! In: the text of a model call. Out: whether the text claims an inability without trying a tool, or is no final
//! answer; and whether a refusal follows from the instructions or a lookup.

use super::excuse::{has_made_lookup, is_looked_up};
use super::policy::{self, Declined};
use super::unfounded_inability::untried;
use super::untried_tool::untried_tool;
use crate::measure::defects::Defect;
use crate::measure::dialogue::{Replies, is_in_dialogue};
use crate::measure::language::ReadText;
use crate::measure::tool_purpose::offered_tools;
use crate::measure::{Context, Finding, agent_index};
use crate::recognise::{SpanView, Text};

/// Maximum sentences of a text that are compared with the tools.
const MAX_SENTENCES: usize = 8;

/// The result for a turn whose sentences are not classified.
pub(super) enum TurnResult {
    /// The turn claims an inability, and an offered tool was not tried.
    Untried(Finding),
    /// The user replied to the turn, or the turn asks the user a question.
    NotFinal,
}

/// The result of the conditions; `None` if the sentences of the turn decide.
pub(super) fn turn_result(
    context: &Context<'_>,
    view: &SpanView,
    analysed: &ReadText<'_>,
    text: &str,
) -> Option<TurnResult> {
    let sentences = analysed.languages().flat_map(|language| analysed.classified(language, []));
    let sentences = sentences.filter(|(sentence, _)| !sentence.is_question).map(|(s, _)| s.text);
    let mut declined = sentences.filter_map(|s| Some((s, Declined::by_speaker(s)?))).take(MAX_SENTENCES);
    let by_verb = declined.find_map(|(s, d)| Some((s.to_owned(), untried_tool(context, view, s, &d)?)));
    if let Some((sentence, tool)) = by_verb.or_else(|| untried(context, view, analysed, text)) {
        let rationale = format!(
            "a call of {} was expected before this was called impossible; it was offered and never called, and no \
             instruction forbids it",
            tool.trim()
        );
        return Some(TurnResult::Untried(Defect::GiveUp.finding(rationale, &sentence)));
    }
    let has_reply = Replies::cached(context.trace, context.memo).to(context.at).is_some();
    let asks_back = || analysed.ends_with_question() && is_in_dialogue(view);
    (has_reply || asks_back()).then_some(TurnResult::NotFinal)
}

/// Whether the inability is not the model's choice: the instructions contain the limit that the sentence names or
/// define the reply to missing information, or the object of the declined action was looked up.
pub(super) fn is_grounded(context: &Context<'_>, analysed: &ReadText<'_>, sentence: &str) -> bool {
    let agent = context.trace.owner.get(context.at).copied().flatten();
    let instructions = agent.and_then(|agent| agent_index::instructions(context.trace, agent));
    let declined = analysed.languages().find_map(|language| Declined::from_sentence(sentence, language));
    let is_limited = || {
        declined
            .as_ref()
            .zip(instructions)
            .is_some_and(|(d, text)| policy::is_grounded(d, text, context.memo))
    };
    let is_refused_after_lookup =
        || declined.as_ref().is_some_and(|d| !d.is_information() && is_looked_up(context, sentence, d));
    let is_reply_defined = || instructions.is_some_and(|text| defines_reply_to_lack(context, text));
    is_limited() || is_refused_after_lookup() || is_reply_defined()
}

/// Whether the instructions define the reply to missing information, and the agent looked it up or has no tools.
fn defines_reply_to_lack(context: &Context<'_>, instructions: &Text) -> bool {
    let agent = context.trace.owner.get(context.at).copied().flatten();
    let has_tools = agent.is_some_and(|agent| offered_tools(context.trace, agent).next().is_some());
    (!has_tools || has_made_lookup(context))
        && !ReadText::new_counted(instructions, None, context.memo).inability().is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::{KNOWLEDGE, POLICY};
    use crate::measure::sample::measure as run;
    use crate::measure::testing::Script;
    use crate::measure::{Measured, Unmeasured, Value};

    /// The measurement of the last model call.
    fn last(script: Script) -> Result<Measured, Unmeasured> {
        let trace = script.build();
        let span_index = *trace.agents[0].llms.last().unwrap();
        run("avoidance", &trace, span_index).swap_remove(0).outcome
    }

    /// The measurement of the first model call.
    fn first(script: Script) -> Result<Measured, Unmeasured> {
        let trace = script.build();
        let span_index = trace.agents[0].llms[0];
        run("avoidance", &trace, span_index).swap_remove(0).outcome
    }

    fn has_failed(outcome: &Result<Measured, Unmeasured>) -> bool {
        outcome.as_ref().is_ok_and(|measured| !measured.passed)
    }

    #[test]
    fn turn_that_the_user_answers_is_no_final_answer() {
        let clinic = Script::new("When was my last check-up?")
            .says("I could not find a record under that name. What is your date of birth?")
            .user("3 May 1990.")
            .answers("It was on 4 June.");
        assert_eq!(first(clinic), Err(Unmeasured::NotApplicable));
        let hotel = Script::new("I would like to extend my stay.")
            .says("Which room are you in?")
            .user("212")
            .answers("I was unable to find room 212. Could you tell me the name of the booking?");
        assert_eq!(last(hotel), Err(Unmeasured::NotApplicable));
    }

    #[test]
    fn single_answer_that_only_gives_up_still_fails() {
        assert!(has_failed(&last(
            Script::new("How tall is it?").answers("I was unable to find the height.")
        )));
        let ended = Script::new("I need the bill of March.")
            .says("Which address?")
            .user("12 Mill Lane.")
            .answers("I was unable to find the bill.");
        assert!(has_failed(&last(ended)));
    }

    #[test]
    fn inability_without_trying_the_offered_tool_fails() {
        for (system, tool, text) in [
            (
                "Help customers of the bank.",
                "get_account_balance",
                "I'm unable to access the balance of your account.",
            ),
            (
                "Help patients. Patients have prescriptions.",
                "get_patient_record",
                "I cannot look up your prescriptions.",
            ),
            ("Help guests.", "cancel_booking", "Unfortunately, I can't cancel your booking."),
            ("Help with the code.", "read_file", "I cannot read the file config.toml."),
        ] {
            let script = || Script::new("Please do it.").system(system).tools(&[tool]);
            let turn = script().says(text).user("Oh, I see.").answers("Sorry again.");
            assert!(has_failed(&first(turn)), "{text}");
            let after_failed_call =
                script().calls("", &[(tool, "{}")]).returns("Error: the system is down").says(text);
            assert!(!has_failed(&last(after_failed_call.user("I see.").answers("Bye."))), "{text}");
            let with_other_tool = Script::new("Please do it.").system(system).tools(&["play_music"]);
            assert!(!has_failed(&first(with_other_tool.says(text).user("I see.").answers("Bye."))), "{text}");
        }
    }

    #[test]
    fn conditional_or_required_refusal_passes() {
        let conditional = Script::new("What do I owe?")
            .tools(&["get_account_balance"])
            .says("I'm unable to access your account without your number.")
            .user("It is 88.")
            .answers("Thanks.");
        assert!(!has_failed(&first(conditional)));
        let telecom = Script::new("Cancel it.")
            .system("Contracts can only be cancelled after 24 months.")
            .tools(&["cancel_contract"])
            .says("I'm unable to cancel the contract, since it has run for 3 months.")
            .user("I see.")
            .answers("Bye.");
        assert!(!has_failed(&first(telecom)));
    }

    #[test]
    fn refusal_by_a_rule_of_the_instructions_passes() {
        let script = |system: &str| {
            Script::new("Refund my room.")
                .system(system)
                .answers("I'm unable to refund the booking of a saver room.")
        };
        let by_rule = last(script("Saver rooms: a booking cannot be refunded.")).unwrap();
        assert_eq!((by_rule.value, by_rule.passed), (Value::Label(POLICY), true));
        let stated = Script::new("Fill the tank completely.")
            .system("Never fill a tank above 90 percent.")
            .answers("I may not fill a tank above 90 percent, so I can't fill it completely.");
        assert!(last(stated).unwrap().passed);
        let unstated = last(script("Be friendly to guests.")).unwrap();
        assert_eq!((unstated.value, unstated.passed), (Value::Label(KNOWLEDGE), false));
    }
}
