//! Actions of a request that the run omits without an explanation: "Cancel W-4411 and email me a confirmation", and no
//! e-mail.
//!
//! Principle: an action that a request asks for, and that an offered tool can do, is carried out, or the answer
//! explains why not. It is omitted if the run carried out another action, all calls succeeded, no call may be the
//! missing action, and neither the answer nor the result of an action mentions it, nor shows a lookup that it was
//! done. If a part of the request names the action and the thing of an offered tool ("update my emergency contact",
//! `update_emergency_contact`), calls of the same action on other things are not the missing call, unless their
//! arguments name the thing. In a dialogue, the user must only have agreed, and the outputs of the agent may mention
//! the action as well. Where the last reply of the user asks for more, its parts that begin with the verb of such a
//! tool are compared with the calls after the reply. [`requested_tool`] compares the last message with the tools that
//! were never called.
//!
//! In: the request of an outermost agent, its tools, all calls and the answer. Out: one finding, on the model span that
//! wrote the answer.

mod parts;
pub(super) mod requested_tool;

use verdict_otlp::trace::Idx;

use parts::{
    MAX_TASK_BYTES, MIN_THING_BYTES, are_distinct, has_word_of, is_called, is_for_later, is_unconditional,
    mentions_action, mentions_amount, parts_of, requested_action,
};

use super::answer::sentences;
use super::claimed_actions::states_action_done;
use super::conduct::Conduct;
use super::history::end_of;
use crate::measure::calls::attempts::CallOutcome;
use crate::measure::defects::Defect;
use crate::measure::dialogue::Replies;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Action, Language, ReadText, WordClass, WordClasses, classes};
use crate::measure::tool_purpose::{Purpose, ToolPurpose, action_of, offered_tools, purpose, stems};
use crate::measure::{Finding, Memo};
use crate::pattern::contains_ignoring_case;
use crate::recognise::{AgentTrace, Call, Content};

/// Maximum calls of a trace that are read.
const MAX_CALLS: usize = 64;
/// Maximum bytes of the results of the calls together with the answer.
const MAX_BYTES: usize = 8_000;
/// Minimum bytes of a word of a part of the request by which a text mentions the part.
const MIN_WORD_BYTES: usize = 5;
/// Classes of words of a question that only offers further help: "anything else", "something more".
const OFFER: WordClasses = classes!(Exception Increment);
/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    omitted_without_mention(conduct).or_else(|| {
        let agent = conduct.agent;
        let (answer, omitted) = (agent.answer.as_deref()?, requested_tool::omitted(conduct)?);
        // `uncalled_tool` reports an action that the answer claims as done.
        let finding = Defect::PartUnanswered.finding(omitted.rationale(), answer);
        omitted.claimed.is_none().then_some((agent.answer_at?, finding))
    })
}

/// The finding on an action that neither a call, a result nor the answer mentions.
fn omitted_without_mention(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, attempts, agent_index, agent } = *conduct;
    let is_examined = agent.parent.is_none() && !agent.tools.is_empty() && !trace.incomplete;
    let task = conduct.task(MAX_TASK_BYTES).filter(|_| is_examined)?;
    let answer = agent.answer.as_deref().filter(|_| agent.answer_content == Content::Present)?;
    let replies = Replies::cached(trace, memo);
    let has_failed =
        |i: usize| attempts.at(i).is_some_and(|a| a.outcome != CallOutcome::Succeeded && !a.is_control);
    if trace.calls.is_empty()
        || trace.calls.len() > MAX_CALLS
        || (0..trace.calls.len()).any(has_failed)
        || !trace.calls.iter().any(|call| conduct.is_action(call))
    {
        return None;
    }
    // Without an uncalled tool, nothing is omitted.
    if offered_tools(trace, agent_index).all(|tool| is_called(trace, &tool.name)) {
        return None;
    }
    let outputs: Vec<String> = conduct.answered_outputs().collect();
    let only_agrees = |at: &Idx| {
        let (output, reply) = (trace.views.get(*at)?.output_text(), replies.to(*at)?);
        Some(ReadText::new(&output, Some(task), memo).answered_by(reply, memo).agrees())
    };
    if !agent.llms.iter().filter_map(only_agrees).all(|agrees| agrees) {
        return omitted_of_reply(conduct, &replies);
    }
    // Results of lookups are read separately: a noun in them shows only that a thing exists, but a verb form may show
    // that the action was done.
    let (action_calls, lookups): (Vec<&Call>, Vec<&Call>) =
        trace.calls.iter().partition(|call| purpose(trace, memo, call) != Purpose::Query);
    let lookup_results = || lookups.iter().filter_map(|call| call.result.as_deref());
    let results = action_calls.iter().filter_map(|call| call.result.as_deref());
    let texts: Vec<&str> = results.chain([answer]).chain(outputs.iter().map(String::as_str)).collect();
    let bytes: usize = lookup_results().chain(texts.iter().copied()).map(str::len).sum();
    if bytes > MAX_BYTES || !memo.budget.spend(bytes / 2 + task.len()) {
        return None;
    }
    let language = Language::detected(task, None, memo).filter(|language| language.is_spaced())?;
    let parts = unconditional_parts(task, language);
    if parts.len() < 2 {
        return None;
    }
    let analysed_answer = ReadText::new(answer, Some(task), memo);
    let mentions = Mentions {
        action_calls: &action_calls,
        texts: &texts,
        answer,
        lookup_results: lookup_results().collect(),
        memo,
        language,
    };
    let missing =
        uncalled_tool_part(trace, agent_index, &parts, &mentions).filter(|_| language == Language::English);
    let missing = missing.map(|(part, tool)| (part, format!("of {tool}")));
    let missing = missing.or_else(|| {
        let (part, action) = omitted_part(trace, agent_index, &parts, &mentions)?;
        Some((part, format!("to {}", action.as_str())))
    });
    let (part, call) = missing.filter(|_| !explains(answer, &analysed_answer))?;
    let rationale = format!(
        "a call {call}, or the reason why there is none, was expected, since the request asks for it: \"{}\"; nothing \
         mentions it",
        part.trim()
    );
    Some((agent.answer_at?, Defect::PartUnanswered.finding(rationale, answer)))
}

/// The finding on the last reply of the user, if a part of it names an offered tool that was not called, and an action
/// followed that reply.
fn omitted_of_reply(conduct: &Conduct<'_>, replies: &Replies) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, agent_index, agent, .. } = *conduct;
    let answer = agent.answer.as_deref()?;
    let last = *agent.llms.iter().rev().find(|at| replies.to(**at).is_some())?;
    let reply = replies.to(last).filter(|reply| reply.len() <= MAX_TASK_BYTES)?;
    let end = end_of(trace, last);
    let has_later_action = trace.calls.iter().any(|call| call.start > end && conduct.is_action(call));
    let language =
        Language::detected(reply, Some(answer), memo).filter(|language| *language == Language::English)?;
    let (action_calls, lookups): (Vec<&Call>, Vec<&Call>) =
        trace.calls.iter().partition(|call| purpose(trace, memo, call) != Purpose::Query);
    let results = action_calls.iter().filter_map(|call| call.result.as_deref());
    let texts: Vec<&str> = results.chain([answer]).collect();
    let lookups: Vec<&str> = lookups.iter().filter_map(|call| call.result.as_deref()).collect();
    let bytes: usize = lookups.iter().chain(&texts).map(|text| text.len()).sum();
    if !has_later_action || bytes > MAX_BYTES || !memo.budget.spend(bytes / 2 + reply.len()) {
        return None;
    }
    let begins_with_verb = |part: &String| {
        let words = part.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let mut words = words.map(str::to_lowercase).skip_while(|word| {
            language.is_function_word(word) || language.classes(word).has(WordClass::AtOnce)
        });
        words.next().is_some_and(|word| action_of(&word).is_some())
    };
    let parts: Vec<String> =
        unconditional_parts(reply, language).into_iter().filter(begins_with_verb).collect();
    let mentions = Mentions {
        action_calls: &action_calls,
        texts: &texts,
        answer,
        lookup_results: lookups,
        memo,
        language,
    };
    let (part, tool) = uncalled_tool_part(trace, agent_index, &parts, &mentions)?;
    if explains(answer, &ReadText::new(answer, Some(reply), memo)) {
        return None;
    }
    let rationale = format!(
        "a call of {tool}, or the reason why there is none, was expected, since the user asks for it: \"{}\"; nothing \
         mentions it",
        part.trim()
    );
    Some((agent.answer_at?, Defect::PartUnanswered.finding(rationale, answer)))
}

/// A part that asks for an action of an offered tool, with the action, if no call may be the action, and neither a
/// call, a result nor the answer mentions the action or a word that only this part has.
fn omitted_part<'p>(
    trace: &AgentTrace,
    agent: usize,
    parts: &'p [String],
    mentions: &Mentions<'_>,
) -> Option<(&'p str, Action)> {
    let requested = parts.iter().filter_map(|part| Some((part, requested_action(part, mentions.language)?)));
    let is_offered = |action: Action| {
        let mut tools =
            offered_tools(trace, agent).map(|tool| ToolPurpose::new(&tool.name, tool.description.as_deref()));
        tools.any(|tool| !tool.is_query() && tool.actions.first() == Some(&action))
    };
    let mut missing = requested.filter(|(part, action)| {
        let others: Vec<&String> = parts.iter().filter(|other| other != part).collect();
        is_offered(*action)
            && !mentions.may_include(trace, *action)
            && !mentions.mentions(trace, part, &others, *action)
    });
    missing.next().map(|(part, action)| (part.as_str(), action))
}

impl Mentions<'_> {
    /// Whether a call may have been the action or have included it.
    fn may_include(&self, trace: &AgentTrace, action: Action) -> bool {
        let purposes = || trace.calls.iter().map(|call| ToolPurpose::for_call(trace, self.memo, call));
        let may_be = |tool: &ToolPurpose| {
            tool.actions.is_empty() || tool.actions.contains(&action) || {
                let first = tool.actions.first().copied();
                tool.may_do(action) && !first.is_some_and(|performed| are_distinct(performed, action))
            }
        };
        // A cancellation may include the refund if the answer gives an amount.
        let is_included = || {
            action == Action::Refund
                && purposes().any(|tool| tool.may_do(action))
                && mentions_amount(self.answer, self.language)
        };
        purposes().any(|tool| may_be(&tool)) || is_included()
    }

    /// Whether a call, a result or a text mentions the action, or a word that only this part has.
    fn mentions(&self, trace: &AgentTrace, part: &str, others: &[&String], action: Action) -> bool {
        let nouns: Vec<String> =
            stems(part).filter(|stem| stem.len() >= MIN_WORD_BYTES && action_of(stem).is_none()).collect();
        let is_only_in_part = |stem: &String| {
            nouns.contains(stem)
                && !others.iter().any(|other| stems(other).any(|other_stem| other_stem == *stem))
        };
        let names = |text: &str| stems(text).any(|stem| is_only_in_part(&stem));
        let arguments = self.action_calls.iter().filter_map(|call| call.arguments.as_deref());
        // Calls that are not read, beyond the work budget, count as a mention.
        let is_done = |call: &Call| states_action_done(call, action, self.memo) != Some(false);
        trace.calls.iter().any(is_done)
            || has_word_of(self.answer, action, self.language)
            || self.texts.iter().copied().chain(arguments).any(names)
    }
}

/// Whether an answer refuses, states an inability, or ends with a question other than an offer of further help.
fn explains(answer: &str, analysed_answer: &ReadText<'_>) -> bool {
    let last = answer.trim_end().rsplit(['.', '!', '\n']).find(|part| !part.trim().is_empty());
    let is_offer = |classes: WordClasses| classes.has_any(OFFER) && !classes.has(WordClass::Inquiry);
    let asks = analysed_answer.ends_with_question()
        && !last.is_some_and(|last| is_offer(analysed_answer.classes(last)));
    !analysed_answer.refusals().is_empty() || !analysed_answer.inability().is_empty() || asks
}

/// The texts that may mention a part of the request.
struct Mentions<'t> {
    action_calls: &'t [&'t Call],
    /// The results of actions, the outputs of the agent, and the answer.
    texts: &'t [&'t str],
    answer: &'t str,
    lookup_results: Vec<&'t str>,
    memo: &'t Memo,
    /// The language of the request.
    language: Language,
}

/// A part that names the action and the thing of an offered tool that was never called, with the tool. `None` if a
/// call, a result or the answer has a word of the thing that no other part has.
fn uncalled_tool_part<'p, 't>(
    trace: &'t AgentTrace,
    agent: usize,
    parts: &'p [String],
    mentions: &Mentions<'_>,
) -> Option<(&'p str, &'t str)> {
    offered_tools(trace, agent).filter(|tool| !is_called(trace, &tool.name)).find_map(|tool| {
        let purpose = ToolPurpose::new(&tool.name, tool.description.as_deref());
        let words = identifier_words(&tool.name);
        // The name begins with a verb: `update_emergency_contact`.
        let (verb, things) = words.split_first()?;
        let action = action_of(verb).filter(|action| !purpose.is_query() && !action.is_work())?;
        let things: Vec<String> =
            things.iter().filter(|word| action_of(word).is_none()).flat_map(|word| stems(word)).collect();
        let is_named = |part: &&String| {
            let part_stems: Vec<String> = stems(part).collect();
            let mut actions = part_stems.iter().filter_map(|word| action_of(word));
            things.iter().all(|thing| part_stems.contains(thing))
                && !is_for_later(part, mentions.language)
                && actions.any(|part_action| part_action == action)
        };
        let part = parts
            .iter()
            .filter(|_| things.iter().any(|thing| thing.len() >= MIN_THING_BYTES))
            .find(is_named)?;
        let others = || parts.iter().filter(|other| !std::ptr::eq(*other, part));
        let is_only_in_part = |thing: &&String| {
            thing.len() >= MIN_THING_BYTES
                && !others().any(|other| stems(other).any(|other_stem| other_stem == **thing))
        };
        let distinct_things: Vec<&String> = things.iter().filter(is_only_in_part).collect();
        // A name in an e-mail address does not mention a thing.
        let words = part.split_whitespace().filter(|word| !word.contains('@'));
        let noun_stems: Vec<String> =
            words.flat_map(stems).filter(|stem| action_of(stem).is_none()).collect();
        let arguments = mentions.action_calls.iter().filter_map(|call| call.arguments.as_deref());
        let tools = mentions.action_calls.iter().map(|call| &*call.name);
        let mut passed = arguments.chain(tools);
        let mut is_passed =
            || passed.any(|text| distinct_things.iter().any(|thing| contains_ignoring_case(text, thing)));
        let names = |text: &&str| distinct_things.iter().any(|thing| has_word_as_value(text, thing));
        let answers = || {
            noun_stems
                .iter()
                .filter(is_only_in_part)
                .any(|word| contains_ignoring_case(mentions.answer, word))
        };
        let is_done = || mentions.lookup_results.iter().any(|text| mentions_action(text, action));
        (!distinct_things.is_empty()
            && !mentions.texts.iter().any(names)
            && !answers()
            && !is_done()
            && !is_passed())
        .then_some((part.as_str(), &*tool.name))
    })
}

/// Whether a text has a word other than as a key of JSON: a result with the key `tickets` does not mention an added
/// ticket.
fn has_word_as_value(text: &str, word: &str) -> bool {
    let lower = text.to_lowercase();
    lower.match_indices(word).any(|(at, _)| {
        let after = lower.get(at + word.len()..).unwrap_or_default();
        let after = after.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        let is_key = after.strip_prefix('"').is_some_and(|after| after.trim_start().starts_with(':'));
        !is_key
    })
}

/// The parts of the unconditional sentences of a request, split at commas and conjunctions.
fn unconditional_parts(task: &str, language: Language) -> Vec<String> {
    let sentences = sentences(task).into_iter().filter_map(|(start, end)| task.get(start..end));
    let sentences = sentences.filter(|sentence| is_unconditional(sentence, language));
    sentences.flat_map(|sentence| parts_of(sentence, language)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::reasoning::conduct::findings_of;
    use crate::measure::testing::Script;

    fn finding_count(task: &str, tools: &[&str], calls: &[(&str, &str)], answer: &str) -> usize {
        let script = calls.iter().fold(Script::new(task).tools(tools), |script, (tool, result)| {
            script.calls("", &[(*tool, "{}")]).returns(result)
        });
        let trace = script.answers(answer).build();
        findings_of(check, &trace).len()
    }

    #[test]
    fn part_that_no_call_and_no_text_mentions_is_found() {
        let tools = &["cancel_order", "send_email"][..];
        let task = "Cancel W-4411 and email me a confirmation.";
        let cancelled = ("cancel_order", r#"{"state":"cancelled"}"#);
        assert_eq!(finding_count(task, tools, &[cancelled], "Order W-4411 is cancelled."), 1);
        let desk = &["book_room", "notify_manager"][..];
        let booked = ("book_room", r#"{"room":"R-12","day":"Monday"}"#);
        assert_eq!(
            finding_count("Book a room on Monday and notify my manager.", desk, &[booked], "R-12 is yours."),
            1
        );
    }

    #[test]
    fn part_of_the_last_reply_that_no_call_does_is_found() {
        let run = |reply: &str, calls: &[(&str, &str)], answer: &str| {
            let script = Script::new("I need a slot for a fitting.").tools(&[
                "find_slots",
                "book_slot",
                "mail_brochure",
            ]);
            let script =
                script.calls("", &[("find_slots", "{}")]).returns(r#"["Monday at nine","Tuesday at ten"]"#);
            let script = script
                .says("Monday at nine or Tuesday at ten? I can also mail you our brochure.")
                .user(reply);
            let script = calls.iter().fold(script, |script, (tool, result)| {
                script.calls("", &[(*tool, r#"{"slot":"Tuesday"}"#)]).returns(result)
            });
            findings_of(check, &script.answers(answer).build()).len()
        };
        let booked = ("book_slot", r#"{"ref":"F-20"}"#);
        let mailed = ("mail_brochure", "ok");
        let answer = "You are booked for Tuesday at ten, F-20. See you then, Ana.";
        assert_eq!(
            run("Tuesday please. And yes, mail me the brochure: ana@mill.example", &[booked], answer),
            1
        );
        assert_eq!(run("Tuesday, and please send the brochure to ana@mill.example.", &[booked], answer), 1);
        assert_eq!(run("Mail me the brochure and book Tuesday.", &[booked], answer), 1);
        for (reply, calls, answer) in [
            ("Tuesday please. Mail me the brochure.", &[booked, mailed][..], answer),
            (
                "Tuesday please. Mail me the brochure.",
                &[booked],
                "You are booked. Which address is the brochure for?",
            ),
            (
                "Tuesday please. Mail me the brochure.",
                &[booked],
                "You are booked. I will mail the brochure on Friday.",
            ),
            ("Tuesday please. Do not mail me the brochure.", &[booked], answer),
            ("Tuesday please. Is the brochure in colour?", &[booked], answer),
            ("Tuesday please. I have the brochure, a friend mailed it.", &[booked], answer),
            ("Mail me the brochure if Tuesday is full.", &[booked], answer),
        ] {
            assert_eq!(run(reply, calls, answer), 0, "{reply} {answer}");
        }
    }

    #[test]
    fn lookup_that_shows_the_thing_does_not_mention_the_part() {
        let tools = &["get_account", "change_plan", "cancel_addon"][..];
        let task = "Change my plan to Max and cancel the insurance addon.";
        let changed = ("change_plan", r#"{"plan":"Max"}"#);
        let run = |account: &str, answer: &str| {
            finding_count(task, tools, &[("get_account", account), changed], answer)
        };
        let account = r#"{"plan":"Mini","addons":["insurance"]}"#;
        assert_eq!(run(account, "Your plan is now Max."), 1);
        assert_eq!(run(account, "Your plan is now Max, and the insurance remains until June."), 0);
        assert_eq!(run(r#"{"addons":[],"insurance":"cancelled"}"#, "Your plan is now Max."), 0);
    }

    #[test]
    fn alike_action_is_not_the_one_that_was_asked_for() {
        let tools = &["cancel_booking", "issue_refund"][..];
        let task = "Cancel booking QX71, refund it to my card and tell me how much I get back.";
        let none = ("cancel_booking", r#"{"status":"cancelled","refund_status":"not_requested"}"#);
        assert_eq!(finding_count(task, tools, &[none], "Your booking QX71 has been cancelled."), 1);
        let refunded = ("cancel_booking", r#"{"status":"cancelled","refund":"in 5 days"}"#);
        assert_eq!(finding_count(task, tools, &[refunded], "Your booking QX71 has been cancelled."), 0);
        assert_eq!(finding_count(task, tools, &[none], "It is cancelled, and you get 184 EUR back."), 0);
        let incident = &["rollback", "slack_post"][..];
        let back = ("rollback", r#"{"status":"complete"}"#);
        let both = "Roll back payments to the previous version and post a note in #incidents.";
        assert_eq!(finding_count(both, incident, &[back], "payments is back on 4.12.0."), 1);
        // A booking may be paid with the card that it is given.
        let paid = "Book flight TP 442 and pay it with my company card.";
        let booked = ("book_flight", r#"{"booking":"BX-8"}"#);
        assert_eq!(
            finding_count(paid, &["book_flight", "pay_invoice"], &[booked], "TP 442 is booked (BX-8)."),
            0
        );
    }

    #[test]
    fn parts_are_read_in_languages_that_separate_words() {
        let tools = &["reserver_salle", "commander_restauration"][..];
        let booked = ("reserver_salle", r#"{"statut":"ok"}"#);
        let french = "Réservez la salle Rhône jeudi et commandez du café pour 10 personnes.";
        assert_eq!(finding_count(french, tools, &[booked], "La salle Rhône est réservée jeudi."), 1);
        assert_eq!(
            finding_count(french, tools, &[booked], "La salle est réservée, le café est en rupture."),
            0
        );
        let german = "Buche den Raum am Montag und storniere meinen Termin beim Arzt.";
        let desk = &["book_room", "cancel_appointment"][..];
        let booking = ("book_room", r#"{"room":"R-1"}"#);
        assert_eq!(finding_count(german, desk, &[booking], "Der Raum ist für Montag gebucht."), 1);
        assert_eq!(
            finding_count(
                "Buche den Raum, falls er frei ist, und storniere ihn.",
                desk,
                &[booking],
                "Gebucht."
            ),
            0
        );
    }

    #[test]
    fn key_of_a_result_is_no_mention_of_a_part() {
        let tools = &["exchange_order", "add_tickets"][..];
        let task = "Move my order to Sunday. And please add one student ticket for my sister.";
        let moved = ("exchange_order", r#"{"slot":"Sunday","tickets":2}"#);
        assert_eq!(finding_count(task, tools, &[moved], "Your order has been moved to Sunday."), 1);
        assert_eq!(
            finding_count(task, tools, &[moved], "Moved to Sunday; a student pays 11 EUR. Shall I add it?"),
            0
        );
    }

    #[test]
    fn part_that_is_done_mentioned_or_depends_is_none() {
        let tools = &["cancel_order", "send_email"][..];
        let task = "Cancel W-4411 and email me a confirmation.";
        let cancelled = ("cancel_order", r#"{"state":"cancelled"}"#);
        let mailed = ("send_email", "ok");
        let done = "Order W-4411 is cancelled.";
        assert_eq!(finding_count(task, tools, &[cancelled, mailed], done), 0);
        assert_eq!(finding_count(task, &["cancel_order"], &[cancelled], done), 0, "no tool for it");
        assert_eq!(
            finding_count(task, tools, &[("cancel_order", "cancelled, confirmation on its way")], done),
            0
        );
        for answer in [
            "Order W-4411 is cancelled. The shop will send the confirmation itself.",
            "Order W-4411 is cancelled. I'm unable to reach your mailbox.",
            "Order W-4411 is cancelled. What is your address?",
        ] {
            assert_eq!(finding_count(task, tools, &[cancelled], answer), 0, "{answer}");
        }
        for task in [
            "Cancel W-4411 and email me if it fails.",
            "Cancel W-4411. Email and phone are in my profile.",
            "Cancel W-4411 or email me the reason.",
            "Cancel W-4411. Did you email me a confirmation?",
        ] {
            assert_eq!(finding_count(task, tools, &[cancelled], done), 0, "{task}");
        }
        let failed = ("cancel_order", "Error: it has been shipped");
        assert_eq!(finding_count(task, tools, &[failed], "W-4411 has already left."), 0);
    }
}
