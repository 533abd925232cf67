//! Actions that the last message of the user asks for, that an offered tool is for, and that no call may have done:
//! "e-mail the list to the dock", and no call of `send_email`.
//!
//! Principle: an offered tool that was never called did not do what the user asked for. A part of the message asks for
//! the tool if it begins with a verb for the external action of the tool, or if it names this action and all things of
//! the tool's name. No call may have done it if no changing call has this action, and neither the arguments and results
//! of the changing calls nor their descriptions mention the things of the tool. It is a defect unless the answer may
//! explain it: by a negation, a condition or a question anywhere, or by a possibility or a duty in a sentence about the
//! action.
//!
//! In: the last message of the user, the offered tools, the calls and the answer of an agent. Out: the part of the
//! message, with the name of the tool.

use super::parts::{
    CONDITION, MAX_TASK_BYTES, MIN_THING_BYTES, are_distinct, has_word_of, is_called, is_for_later,
    is_unconditional, mentions_action, mentions_amount, parts_of, requested_action,
};
use crate::measure::agent_index;
use crate::measure::calls::attempts::CallOutcome;
use crate::measure::calls::call_index::CallIndex;
use crate::measure::dialogue::Replies;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{Action, ActionClaim, Language, ReadText, WordClasses, classes};
use crate::measure::numbers::has_digit;
use crate::measure::reasoning::answer::sentences;
use crate::measure::reasoning::claimed_actions::states_action_done;
use crate::measure::reasoning::claimed_actions::things;
use crate::measure::reasoning::conduct::Conduct;
use crate::measure::reasoning::skipped_step::actions_of_verbs;
use crate::measure::reasoning::skipped_step::have_same_root;
use crate::measure::tool_purpose::{
    Purpose, ToolPurpose, action_of, are_alike, description, is_of_kind, offered_tools, purpose, stems,
};
use crate::recognise::{Call, Content, Part, Text, ToolDefinition};

/// Classes of words by which an answer may explain an omission.
const EXPLANATION: WordClasses = classes!(Negation Condition Already Contrast);
/// Classes of words by which a sentence about an action may explain its omission.
const LATER: WordClasses = classes!(Modal Obligation Confirmation Offer Sequence Automatic Exception);
/// Maximum bytes of an answer.
const MAX_ANSWER_BYTES: usize = 3_000;
/// Maximum bytes of the instructions.
const MAX_INSTRUCTION_BYTES: usize = 16 << 10;

/// An offered tool that was never called, and its action.
struct Uncalled<'t> {
    name: &'t str,
    action: Action,
    /// The stems of the words of the name other than its verb.
    things: Vec<String>,
}

impl<'t> Uncalled<'t> {
    fn new(tool: &'t ToolDefinition) -> Option<Uncalled<'t>> {
        let purpose = ToolPurpose::new(&tool.name, tool.description.as_deref());
        let words = identifier_words(&tool.name);
        let action = *purpose.actions.first()?;
        let is_examined = !purpose.is_query()
            && !action.is_work()
            && !matches!(action, Action::Execute | Action::Transfer)
            && !is_of_kind("prepares", &words);
        is_examined.then(|| Uncalled { name: tool.name.trim(), action, things: things(&tool.name) })
    }

    /// Whether a text has a word of the tool's name, or a word for its action.
    fn is_mentioned(&self, text: &str, language: Language) -> bool {
        self.names_thing(text) || has_word_of(text, self.action, language)
    }

    fn names_thing(&self, text: &str) -> bool {
        stems(text).any(|stem| self.things.iter().any(|thing| have_same_root(thing, &stem)))
    }

    /// Whether a part of a message asks for the tool. Where nothing was changed, a part with a name or an address may
    /// also ask for it by a similar action: "save it as notes/tuesday.md", `write_note`.
    fn is_requested_by(&self, part: &str, is_unchanged: bool, language: Language) -> bool {
        if is_for_later(part, language) {
            return false;
        }
        let begins_alike = || {
            let action = first_action(part, language);
            let is_alike = action.is_some_and(|action| !action.is_work() && are_alike(action, self.action));
            is_unchanged && is_alike && part.split_whitespace().any(is_target)
        };
        let names_action = || actions_of_verbs(part, language).contains(&self.action);
        let names_all = || {
            let words: Vec<String> = stems(part).collect();
            let has = |thing: &String| words.iter().any(|word| have_same_root(thing, word));
            self.things.iter().any(|thing| thing.len() >= MIN_THING_BYTES) && self.things.iter().all(has)
        };
        requested_action(part, language) == Some(self.action)
            || names_all() && names_action()
            || begins_alike()
    }
}

/// Whether a word is a path or an address.
fn is_target(word: &str) -> bool {
    let word = word.trim_end_matches(['.', ',', '!']);
    word.contains(['/', '@'])
        || word.rsplit_once('.').is_some_and(|(name, end)| !name.is_empty() && end.len() > 1)
}

/// The action of the first content word of a part.
fn first_action(part: &str, language: Language) -> Option<Action> {
    let words =
        part.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase);
    let verb = words.into_iter().find(|word| !language.is_function_word(word))?;
    actions_of_verbs(&verb, language).first().copied()
}

/// The parts of a message that ask for something without a condition. A condition at the end of a part does not apply
/// to the parts after it: "move A forward if they agree, and cancel B".
fn requested_parts(message: &str, language: Language) -> Vec<String> {
    let sentences = sentences(message).into_iter().filter_map(|(start, end)| message.get(start..end));
    let parts = sentences.filter(|sentence| !sentence.contains(['?', '\u{bf}'])).flat_map(|sentence| {
        let parts = parts_of(sentence, language);
        let is_conditional = |part: &String| !is_unconditional(part, language);
        let after = parts.iter().rposition(is_conditional).map_or(0, |last| last + 1);
        let begins = parts.first().is_some_and(|first| {
            let word = first.split_whitespace().next().unwrap_or_default();
            after > 0 && language.classes(word).has_any(CONDITION)
        });
        // After a condition, only a part about another thing is independent of it.
        let names_other = |part: &String| {
            let mut words = part.split_whitespace();
            after == 0 || words.any(|word| is_target(word) || has_digit(word) && word.contains('-'))
        };
        let parts = parts.into_iter().skip(if begins { usize::MAX } else { after });
        parts.filter(names_other).collect::<Vec<String>>()
    });
    parts.collect()
}

/// An action without a call.
pub(in super::super) struct Omitted<'t> {
    /// The part of the last message of the user that asks for it.
    part: String,
    tool: &'t str,
    /// The sentence of the answer that claims an action of this kind as done.
    pub claimed: Option<&'t str>,
}

impl Omitted<'_> {
    pub(in super::super) fn rationale(&self) -> String {
        format!(
            "a call of {}, or the reason why there is none, was expected, since the user asks for it: \"{}\"; no other \
             call may have done it",
            self.tool, self.part
        )
    }
}

/// A part of the last message of the user that asks for a tool without a call, with the tool.
pub(in super::super) fn omitted<'t>(conduct: &Conduct<'t>) -> Option<Omitted<'t>> {
    let Conduct { trace, memo, attempts, agent_index, agent } = *conduct;
    let answer = agent.answer.as_deref().filter(|_| agent.answer_content == Content::Present)?;
    if agent.parent.is_some() || trace.incomplete || answer.len() > MAX_ANSWER_BYTES {
        return None;
    }
    let calls = CallIndex::cached(trace, memo);
    let is_uncalled =
        |tool: &&ToolDefinition| !calls.first_start.contains_key(&tool.name) && !is_called(trace, &tool.name);
    let mut tools =
        offered_tools(trace, agent_index).filter(is_uncalled).filter_map(Uncalled::new).peekable();
    tools.peek()?;
    let replies = Replies::cached(trace, memo);
    let reply = agent.llms.iter().rev().find_map(|at| replies.to(*at));
    let message = reply.or(conduct.task(MAX_TASK_BYTES)).filter(|text| text.len() <= MAX_TASK_BYTES)?;
    let has_failed =
        |i: usize| attempts.at(i).is_some_and(|a| a.outcome != CallOutcome::Succeeded && !a.is_control);
    let first = trace.views.get(*agent.llms.first()?)?;
    // Calls of an earlier part of the conversation are not recorded.
    let has_earlier =
        first.input.iter().flat_map(|message| &message.parts).any(|part| matches!(part, Part::Call(_)));
    let is_recorded = !has_earlier
        && !(0..trace.calls.len()).any(has_failed)
        && trace.calls.iter().all(|call| call.arguments.is_some() && call.result.is_some());
    if !is_recorded || !memo.budget.spend(message.len() + answer.len() / 4) {
        return None;
    }
    let language = Language::detected(message, Some(answer), memo).filter(|language| language.is_spaced())?;
    let parts = requested_parts(message, language);
    let is_unchanged = trace.calls.iter().all(|call| purpose(trace, memo, call) == Purpose::Query);
    let mut requested = tools.filter_map(|tool| {
        let part = parts.iter().find(|part| tool.is_requested_by(part, is_unchanged, language))?;
        Some((part, tool))
    });
    let (part, tool) = requested.find(|(_, tool)| !conduct.may_have_included(tool, language))?;
    let analysed = ReadText::new(answer, Some(message), memo);
    let claimed: Vec<ActionClaim<'_>> = analysed.claims_of_done_action();
    let claimed: Vec<&ActionClaim<'_>> = claimed
        .iter()
        .filter(|claim| claim.action == tool.action || is_unchanged && are_alike(claim.action, tool.action))
        .collect();
    // A sentence about the thing of the part, such as its state, may explain the omission.
    let nouns = |part: &str| -> Vec<String> {
        stems(part).filter(|stem| stem.len() >= MIN_THING_BYTES && action_of(stem).is_none()).collect()
    };
    let others: Vec<String> =
        parts.iter().filter(|other| *other != part).flat_map(|other| nouns(other)).collect();
    let part_nouns = nouns(part);
    let distinct: Vec<&String> = part_nouns.iter().filter(|noun| !others.contains(noun)).collect();
    let names_distinct_noun = |sentence: &str| stems(sentence).any(|stem| distinct.contains(&&stem));
    let changes = trace.calls.iter().filter(|call| purpose(trace, memo, call) != Purpose::Query);
    let mut texts = changes.flat_map(|call| [call.arguments.as_deref(), call.result.as_deref()]).flatten();
    if texts.any(names_distinct_noun) {
        return None;
    }
    let may_explain = answer.contains(['?', '\u{ff1f}'])
        || analysed.classes(answer).has_any(EXPLANATION)
        || language.classes(answer).has_any(EXPLANATION)
        || !analysed.refusals().is_empty()
        || !analysed.inability().is_empty()
        || sentences(answer).into_iter().filter_map(|(start, end)| answer.get(start..end)).any(|sentence| {
            let is_about = || {
                tool.is_mentioned(sentence, language)
                    || stems(sentence).any(|stem| part_nouns.contains(&stem))
            };
            let claims = || claimed.iter().any(|claim| claim.sentence.contains(sentence.trim()));
            language.classes(sentence).has_any(LATER) && is_about()
                || !has_word_of(sentence, tool.action, language) && !claims() && names_distinct_noun(sentence)
        });
    // A cancellation may include the refund if the answer gives an amount.
    let may_include_refund = tool.action == Action::Refund && mentions_amount(answer, language);
    if may_explain || may_include_refund {
        return None;
    }
    let claimed = claimed.first().map(|claim| claim.sentence);
    Some(Omitted { part: part.trim().to_owned(), tool: tool.name, claimed })
}

impl Conduct<'_> {
    /// Whether a changing call may have done the action of a tool, or the instructions limit or include it. True beyond
    /// the work budget.
    fn may_have_included(&self, tool: &Uncalled<'_>, language: Language) -> bool {
        let Conduct { trace, memo, .. } = *self;
        let changes = trace.calls.iter().filter(|call| purpose(trace, memo, call) != Purpose::Query);
        let mut changes = changes.inspect(|call| {
            let texts = [&call.arguments, &call.result].into_iter().flatten();
            memo.budget.spend(texts.map(|text| text.len()).sum::<usize>() / 4);
        });
        let does = |call: &Call| {
            let purpose = ToolPurpose::for_call(trace, memo, call);
            let texts = [call.arguments.as_deref(), call.result.as_deref(), description(trace, memo, call)];
            let performed = purpose.actions.first().copied();
            let is_distinct = || performed.is_some_and(|performed| are_distinct(performed, tool.action));
            performed.is_none() && identifier_words(&call.name).len() < 2
                || purpose.actions.contains(&tool.action)
                || performed.is_some() && purpose.may_do(tool.action) && !is_distinct()
                || purpose.actions.contains(&Action::Execute)
                || texts.into_iter().flatten().any(|text| {
                    tool.names_thing(text) && !tool.things.is_empty() || mentions_action(text, tool.action)
                })
        };
        let instructions = || agent_index::instructions(trace, self.agent_index).map(|text: &Text| &**text);
        let is_limited = || {
            instructions().is_some_and(|text| {
                let sentences = sentences(text).into_iter().filter_map(|(start, end)| text.get(start..end));
                let mut about = sentences.filter(|sentence| {
                    text.len() > MAX_INSTRUCTION_BYTES
                        || sentence.contains(tool.name)
                        || tool.is_mentioned(sentence, language)
                });
                about.any(|sentence| language.classes(sentence).has_any(LIMIT))
            })
        };
        // A lookup may show that the action was done.
        let is_shown = |call: &Call| states_action_done(call, tool.action, memo) != Some(false);
        changes.any(does) || trace.calls.iter().any(is_shown) || is_limited() || memo.budget.is_exceeded()
    }
}

/// Classes of words by which instructions limit an action, or include it in another one.
const LIMIT: WordClasses = classes!(Negation Condition Restriction Sequence Automatic Barrier);

#[cfg(test)]
mod tests {
    use super::super::super::conduct::findings_of;
    use super::super::super::{omitted_action, uncalled_tool};
    use crate::measure::testing::Script;

    const TOOLS: [&str; 4] = ["find_items", "change_item", "send_mail", "write_file"];

    /// The numbers of findings of the two rules: omitted actions, and claims of actions.
    fn finding_counts(task: &str, calls: &[(&str, &str, &str)], answer: &str) -> (usize, usize) {
        let script = Script::new(task).tools(&TOOLS);
        let script = calls.iter().fold(script, |script, (tool, arguments, result)| {
            script.calls("", &[(*tool, arguments)]).returns(result)
        });
        let trace = script.answers(answer).build();
        (findings_of(omitted_action::check, &trace).len(), findings_of(uncalled_tool::check, &trace).len())
    }

    const FOUND: (&str, &str, &str) =
        ("find_items", "{}", r#"[{"id":"i-4","name":"kiln"},{"id":"i-5","name":"wheel"}]"#);
    const CHANGED: (&str, &str, &str) =
        ("change_item", r#"{"id":"i-4","state":"idle"}"#, r#"{"updated":true}"#);

    #[test]
    fn action_of_an_offered_tool_without_a_call_is_found() {
        for task in [
            "Which items do we have? Send the list to desk@pots.example.",
            "Show me all items and mail the list to desk@pots.example.",
        ] {
            assert_eq!(finding_counts(task, &[FOUND], "You have a kiln and a wheel."), (1, 0), "{task}");
        }
        let both =
            "Set the kiln to idle if it is free, and send a note about the wheel to desk@pots.example.";
        assert_eq!(finding_counts(both, &[FOUND, CHANGED], "The kiln is idle."), (1, 0));
        let saved = "List the items and save them as stock/items.md";
        assert_eq!(
            finding_counts(saved, &[FOUND], "I've saved the kiln and the wheel to stock/items.md."),
            (0, 1)
        );
    }

    #[test]
    fn explained_done_and_unasked_actions_are_right() {
        let task = "Which items do we have? Send the list to desk@pots.example.";
        for answer in [
            "You have a kiln and a wheel. I did not send the list, since the desk is closed.",
            "You have a kiln and a wheel. Shall I send the list now?",
            "You have a kiln and a wheel. The list will be sent to the desk after your approval.",
            "You have a kiln and a wheel. The list goes to the desk with the daily report.",
            "The desk already has the list of the kiln and the wheel.",
        ] {
            assert_eq!(finding_counts(task, &[FOUND], answer), (0, 0), "{answer}");
        }
        let done = "You have a kiln and a wheel.";
        for (task, calls) in [
            ("Which items do we have? I have to send the list to the desk.", &[FOUND][..]),
            ("Which items would you send to the desk?", &[FOUND]),
            ("If the kiln is broken, send a note to desk@pots.example.", &[FOUND]),
            ("Show all items, and send me the list tomorrow.", &[FOUND]),
            (task, &[FOUND, ("post_message", r#"{"to":"desk"}"#, "sent")]),
            (task, &[FOUND, ("change_item", r#"{"id":"i-4","mail":"desk@pots.example"}"#, "ok")]),
        ] {
            assert_eq!(finding_counts(task, calls, done), (0, 0), "{task} {calls:?}");
        }
        let saved = "List the items and save them in a table.";
        assert_eq!(finding_counts(saved, &[FOUND], "| kiln |\n| wheel |"), (0, 0), "the answer is the table");
    }
}
