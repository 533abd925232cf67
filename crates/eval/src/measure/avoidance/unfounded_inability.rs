//! Statements of inability that nothing in the run supports: "there is no way for me to work out refunds", and no call
//! of `calculate_refund`.
//!
//! Principle: an inability or an outage that a model states shows in a result, or in the instructions. Where no call
//! failed, no lookup was empty, and no instruction limits the subject, a tool that the words of the statement and of
//! the user name, and whose identifiers are known, had to be tried first. A tool that was called and fits the statement
//! as well was the try. A statement with a reason or a condition is no claim of inability. For a tool that changes
//! something, a record that the text mentions must not have a state that may forbid the change.
//!
//! In: an English text of a model. Out: the statement, with the name of the tool.

use super::excuse::{STATE_KEYS, is_empty};
use crate::measure::calls::attempts::CallAttempts;
use crate::measure::dialogue::said_by_user;
use crate::measure::identifier::identifier_words;
use crate::measure::language::names::names_identifier;
use crate::measure::language::{GrammarGroup, Language, ReadText, WordClass, WordClasses, classes};
use crate::measure::numbers::has_digit;
use crate::measure::records::{FieldValue, RecordField, Structure};
use crate::measure::tool_purpose::{Purpose, ToolPurpose, offered_tools, parameters, purpose, stems};
use crate::measure::{Context, agent_index};
use crate::recognise::{Call, Part, SpanView, Text, ToolDefinition};

/// Maximum bytes of a text that is compared.
const MAX_TEXT_BYTES: usize = 2_000;
/// Maximum bytes of the instructions.
const MAX_INSTRUCTION_BYTES: usize = 16 << 10;
/// Maximum calls of a trace.
const MAX_CALLS: usize = 40;
/// Minimum bytes of a word of a tool's name by which alone a statement names the tool.
const MIN_NAME_BYTES: usize = 5;
/// Minimum bytes of the beginning that two forms of a word share.
const MIN_ROOT_BYTES: usize = 4;
/// Classes of words of a clause that states a condition or a part.
const CONDITION: WordClasses = classes!(Condition Restriction Sequence Alternative);
/// Classes of words of a sentence with a reason.
const REASON: WordClasses = classes!(Reason Already);
/// Classes of words by which instructions limit an action.
const LIMIT: WordClasses = classes!(Negation Condition Restriction Exception Barrier);

/// The statement and the tool that was not tried.
pub(super) fn untried<'t>(
    context: &Context<'t>,
    view: &SpanView,
    analysed: &ReadText<'_>,
    text: &str,
) -> Option<(String, &'t str)> {
    let trace = context.trace;
    let agent = trace.owner.get(context.at).copied().flatten()?;
    let is_english = analysed.languages().eq([Language::English]);
    if !is_english || text.len() > MAX_TEXT_BYTES || trace.calls.len() > MAX_CALLS || trace.incomplete {
        return None;
    }
    // Most texts state no inability.
    let sentences =
        || text.split_inclusive(['.', '!', '?', '\n']).filter(|sentence| !sentence.trim_end().ends_with('?'));
    let english = Language::English;
    let states_inability = |clause: &str| {
        let mut words = clause.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
        words.any(|word| word == "me" || english.is_in_group(&word, GrammarGroup::Speaker))
            && !english.classes(clause).has_any(CONDITION)
            && (english.classes(clause).has_any(classes!(Negation))
                || analysed.part(clause).mentions_errors())
    };
    let statements = sentences().flat_map(|sentence| {
        let clauses = sentence.split([',', ';', ':', '(', '\u{2014}']);
        clauses.filter(|clause| states_inability(clause)).map(move |clause| (sentence, clause))
    });
    let statements = statements.filter(|(sentence, _)| !english.classes(sentence).has_any(REASON));
    let mut statements = statements.peekable();
    statements.peek()?;
    let attempts = CallAttempts::get(trace, context.memo);
    if (0..trace.calls.len()).any(|i| !attempts.has_succeeded(i)) {
        return None;
    }
    // An empty result may be the cause of an inability, and is none of an outage.
    let is_lookup = |call: &&Call| purpose(trace, context.memo, call) == Purpose::Query;
    let has_found_nothing = trace.calls.iter().filter(is_lookup).any(|call| is_empty(call, context.memo));
    let request = said_by_user(trace, context.memo, agent).pop()?;
    // The user may have asked not to do something.
    let is_unrestricted = !english.classes(&request).has(WordClass::Negation);
    if !is_unrestricted || !context.memo.budget.spend(text.len() + request.len()) {
        return None;
    }
    let request_words: Vec<String> = stems(&request).collect();
    let in_prompt = || view.input.iter().flat_map(|message| &message.parts);
    let is_called = |tool: &ToolDefinition| {
        trace.calls.iter().any(|call| call.name.trim() == tool.name.trim())
            || in_prompt()
                .any(|part| matches!(part, Part::Call(call) if call.name.trim() == tool.name.trim()))
    };
    let is_outage = |clause: &str| !english.classes(clause).has_any(classes!(Negation));
    let mut statements = statements.filter(|(_, clause)| !has_found_nothing || is_outage(clause));
    let (sentence, tool) = statements.find_map(|(sentence, clause)| {
        let words: Vec<String> = stems(clause).collect();
        let fits = offered_tools(trace, agent).map(|tool| (Fit::new(tool, &words), tool));
        let (fit, tool) = fits.max_by_key(|(fit, tool)| (fit.words, is_called(tool)))?;
        (fit.is_named && !is_called(tool) && Fit::new(tool, &request_words).words > 0)
            .then_some((sentence, tool))
    })?;
    let is_query = ToolPurpose::new(&tool.name, tool.description.as_deref()).is_query();
    let may_have_reason = !is_query && (has_digit(sentence) || may_be_forbidden(context));
    (!may_have_reason && !is_limited(context, agent, tool) && has_identifiers(context, agent, tool))
        .then(|| (sentence.trim().to_owned(), &*tool.name))
}

/// The words of a tool that a text has.
struct Fit {
    words: usize,
    /// Whether the words name the tool: a long word of its name, or several words.
    is_named: bool,
}

impl Fit {
    fn new(tool: &ToolDefinition, words: &[String]) -> Fit {
        let has = |tool_word: &String| words.iter().any(|word| share_beginning(tool_word, word));
        let name_words: Vec<String> =
            identifier_words(&tool.name).iter().flat_map(|word| stems(word)).collect();
        let described = tool.description.as_deref().map(|text| stems(text).collect::<Vec<String>>());
        let other_words = described
            .into_iter()
            .flatten()
            .filter(|word| !name_words.iter().any(|tool_word| share_beginning(tool_word, word)));
        let in_description = other_words.filter(|word| has(word)).count();
        let in_name = name_words.iter().filter(|word| has(word)).count();
        let has_long = name_words.iter().any(|word| word.len() >= MIN_NAME_BYTES && has(word));
        Fit { words: in_name + in_description, is_named: has_long || in_name + in_description > 1 }
    }
}

/// Whether two words are equal but for their endings.
fn share_beginning(one: &str, other: &str) -> bool {
    let length = one.len().min(other.len()).saturating_sub(1).max(MIN_ROOT_BYTES);
    one == other || one.get(..length).is_some_and(|beginning| other.starts_with(beginning))
}

/// Whether the identifiers that a tool requires are known: the user gave one, or a result has the field.
fn has_identifiers(context: &Context<'_>, agent: usize, tool: &ToolDefinition) -> bool {
    let is_given = said_by_user(context.trace, context.memo, agent).iter().any(|text: &Text| has_digit(text));
    let results = || context.trace.calls.iter().filter_map(|call| call.result.as_ref());
    parameters(tool).all(|(key, _)| {
        let words = identifier_words(key);
        let is_identifier = words.last().is_some_and(|word| names_identifier(word));
        let is_returned = || {
            results().filter_map(|result| Structure::cached(result, context.memo)).any(|structure| {
                let records = structure.0.iter().flat_map(|parsed| &parsed.records);
                records.flat_map(|record| &record.fields).any(|field| words.as_slice() == &**field.name)
            })
        };
        !is_identifier || is_given || is_returned()
    })
}

/// Whether a record of a result has a flag that is false or a state, or a result is text without structure.
fn may_be_forbidden(context: &Context<'_>) -> bool {
    let is_of_state = |word: &String| STATE_KEYS.contains(&word.as_str());
    let may_forbid = |field: &RecordField| match &field.value {
        FieldValue::Bool(flag) => !flag,
        FieldValue::Text(_) => field.name.iter().any(is_of_state),
        FieldValue::Number(_) => false,
    };
    context.trace.calls.iter().filter_map(|call| call.result.as_ref()).any(|result| {
        let structure = Structure::cached(result, context.memo);
        structure.is_none_or(|structure| match &structure.0 {
            Some(parsed) => parsed.records.iter().flat_map(|record| &record.fields).any(may_forbid),
            None => true,
        })
    })
}

/// Whether a sentence of the instructions may limit the use of a tool.
fn is_limited(context: &Context<'_>, agent: usize, tool: &ToolDefinition) -> bool {
    let Some(text) = agent_index::instructions(context.trace, agent) else { return false };
    let Some(language) = Language::detected(text, None, context.memo) else { return true };
    let sentences = text.split(['\n', ';']).flat_map(|line| line.split(". "));
    let mut limits = sentences.filter(|sentence| language.classes(sentence).has_any(LIMIT));
    text.len() > MAX_INSTRUCTION_BYTES
        || limits.any(|sentence| {
            let words: Vec<String> = stems(sentence).collect();
            sentence.contains(&*tool.name) || Fit::new(tool, &words).words > 0
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::measure::sample::measure;
    use crate::measure::testing::Script;

    /// Whether the answer of a run fails because a tool was not tried.
    fn fails(system: &str, task: &str, calls: &[(&str, &str, &str)], answer: &str) -> bool {
        let script = Script::new(task).system(system);
        let script = calls.iter().fold(script, |script, (tool, arguments, result)| {
            script.calls("", &[(*tool, arguments)]).returns(result)
        });
        let mut trace = script.answers(answer).build();
        let definition = |(name, description, key): &(&str, &str, &str)| ToolDefinition {
            name: (*name).into(),
            description: Some((*description).into()),
            parameters: Some(Arc::new(serde_json::json!({"properties": {*key: {"type": "string"}}}))),
        };
        trace.agents[0].tools = [
            ("get_boat", "Data of a boat", "boat_id"),
            ("compute_fee", "Mooring fee for a boat and a period", "boat_id"),
            ("swap_berth", "Move a boat to another berth", "boat_id"),
        ]
        .iter()
        .map(definition)
        .collect();
        let span_index = *trace.agents[0].llms.last().unwrap();
        let outcome = measure("avoidance", &trace, span_index).swap_remove(0).outcome;
        outcome.is_ok_and(|measured| {
            measured.findings.iter().any(|finding| finding.rationale.contains("offered and never called"))
        })
    }

    const BOAT: (&str, &str, &str) =
        ("get_boat", r#"{"boat_id":"B-41"}"#, r#"{"boat_id":"B-41","name":"Skua","length_m":9}"#);

    #[test]
    fn inability_that_nothing_in_the_run_supports_is_found() {
        let fee = "What is the mooring fee of B-41 for August?";
        for answer in [
            "Skua is 9 m long. There is no way for me to work out mooring fees here, so please ask the office.",
            "Skua is 9 m long. Working out a mooring fee isn't something I can do from this chat.",
            "Skua is 9 m long. I tried to get the mooring fee but the fee service is down right now.",
        ] {
            assert!(fails("", fee, &[BOAT], answer), "{answer}");
        }
        let swap = "Please move B-41 to another berth.";
        let answer =
            "Skua is registered with us. I have no means of moving boats to another berth from here.";
        assert!(fails("", swap, &[BOAT], answer));
    }

    #[test]
    fn inability_with_a_cause_a_reason_or_a_limit_is_right() {
        let fee = "What is the mooring fee of B-41 for August?";
        let answer = "There is no way for me to work out mooring fees here.";
        let computed = ("compute_fee", r#"{"boat_id":"B-41"}"#, r#"{"fee":310}"#);
        let failed = ("get_boat", r#"{"boat_id":"B-41"}"#, "Error: connection refused");
        for (system, task, calls, answer) in [
            ("", fee, &[BOAT, computed][..], answer),
            ("", fee, &[failed], answer),
            ("", fee, &[("get_boat", "{}", r#"{"boats":[]}"#)], answer),
            ("Never quote a mooring fee.", fee, &[BOAT], answer),
            ("", "What is the mooring fee of my boat?", &[], answer),
            ("", fee, &[BOAT], "I can't work out the mooring fee unless you give me the days."),
            ("", fee, &[BOAT], "I can't work out the mooring fee, because the tariff changes in August."),
            ("", "How long is B-41?", &[BOAT], "Skua is 9 m long. There is no way for me to swap berths."),
        ] {
            assert!(!fails(system, task, calls, answer), "{system} {task} {answer}");
        }
        let swap = "Please move B-41 to another berth.";
        let answer = "Skua is registered with us. I have no means of moving Skua to another berth.";
        let locked =
            ("get_boat", r#"{"boat_id":"B-41"}"#, r#"{"boat_id":"B-41","name":"Skua","movable":false}"#);
        assert!(fails("", swap, &[BOAT], answer));
        assert!(!fails("", swap, &[locked], answer));
    }
}
