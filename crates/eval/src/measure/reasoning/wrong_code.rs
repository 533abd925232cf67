//! Calls with another number or language than the one that the request names: "IMO 9412347", and `imo: "9143207"`.
//!
//! Principle: where the request gives one number under a name, and a call passes another number of the same length
//! under that name, the call is about another thing, also if a result has that number. The same applies to the only
//! language tag in the request: "es-MX", and `locale: "es-ES"`. There is no finding if the user named the passed value
//! as well, another call passes the expected one, an earlier call shows that both mean one thing, or the answer states
//! the passed value.
//!
//! In: the messages of the user, and the successful calls of an agent. Out: one finding for each agent, on the model
//! span that requested the call.

use std::borrow::Cow;

use serde_json::Value;
use verdict_otlp::trace::Idx;

use super::conduct::Conduct;
use crate::measure::Finding;
use crate::measure::defects::Defect;
use crate::measure::identifier::identifier_words;
use crate::measure::language::names::names_identifier;
use crate::measure::records::{Record, Structure};
use crate::measure::tool_purpose::action_of;
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::pattern::contains_ignoring_case;
use crate::recognise::Call;

/// Maximum bytes of the user's messages.
const MAX_USER_BYTES: usize = 4_000;
/// Maximum calls that are compared.
const MAX_CALLS: usize = 64;
/// Maximum arguments of a call that are compared.
const MAX_ARGUMENTS: usize = 16;
/// Minimum digits of a number that is compared: shorter numbers are counts.
const MIN_DIGITS: usize = 4;
/// Minimum bytes of a word of a key that is searched for in the request.
const MIN_NAME: usize = 3;
/// Maximum bytes between a name and its number: "order no. 55218".
const MAX_GAP: usize = 12;
/// Words after which a name that may be a verb is a noun: "my order 55218".
const WORDS_BEFORE_NOUN: [&str; 12] =
    ["my", "our", "the", "of", "for", "from", "this", "that", "with", "on", "in", "refund"];

// A language tag with a region.
regex!(TAG, r"\b[a-z]{2,3}-[A-Z]{2}\b");
/// Maximum bytes of a match of [`TAG`].
const MAX_TAG: usize = 6;

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let memo = conduct.memo;
    let user_texts: Vec<_> = conduct.user_messages();
    let bytes: usize = user_texts.iter().map(|text| text.len()).sum();
    let may_name = |text: &str| text.bytes().any(|b| b.is_ascii_digit()) || TAG.is_match(text);
    let calls: Vec<&Call> = conduct.succeeded(MAX_CALLS).map(|(_, call)| call).collect();
    let passed = calls.iter().flat_map(|call| passed(call).map(move |(key, value)| (*call, key, value)));
    let passed: Vec<(&Call, &str, String)> = passed.collect();
    let is_short = bytes <= MAX_USER_BYTES && user_texts.iter().any(|text| may_name(text));
    if passed.is_empty() || !is_short || !memo.budget.spend(passed.len() * (1 + bytes / BYTES_PER_STEP)) {
        return None;
    }
    let request = user_texts.iter().map(|text| &**text).collect::<Vec<&str>>().join("\n");
    let lowercase_text = request.to_ascii_lowercase();
    // The last key and length, with the number that the request has for them, since calls of one tool pass the same
    // keys.
    let mut last: Option<(&str, usize, Option<&str>)> = None;
    passed.iter().find_map(|(call, key, value)| {
        let expected = match is_number(value) {
            true => {
                let previous = last.filter(|(last_key, len, _)| last_key == key && *len == value.len());
                let named = || number_of(&request, &lowercase_text, key, value.len());
                let (.., named) = *last.insert(previous.unwrap_or_else(|| (*key, value.len(), named())));
                named.filter(|number| !(is_year(number) && is_year(value)))?
            }
            // A tag of another language is not compared, since the request may name that language by a word.
            false => only_value(TAG.find_iter(&request).map(|tag| tag.as_str()))
                .filter(|tag| language_of(tag) == language_of(value))?,
        };
        let is_other = expected != value && !contains_ignoring_case(&request, value);
        let is_in_answer = || conduct.agent.answer.as_deref().is_none_or(|text| text.contains(&**value));
        let is_corrected = || passed.iter().any(|(.., other)| other == expected);
        if !is_other || is_in_answer() || is_corrected() || is_same_thing(conduct, call, value, expected)? {
            return None;
        }
        let rationale = format!(
            "{expected} was expected, since the request says so; {} has {key} = {value}",
            call.name.trim()
        );
        conduct.finding(Defect::ContradictsRequest, rationale, call)
    })
}

/// The arguments of a call that are numbers of things or language tags, with their keys.
fn passed(call: &Call) -> impl Iterator<Item = (&str, String)> {
    let arguments = call.parsed.as_deref().and_then(Value::as_object).into_iter().flatten();
    arguments.take(MAX_ARGUMENTS).filter_map(|(key, value)| {
        let value = match value {
            Value::String(text) => Cow::Borrowed(text.trim()),
            Value::Number(number) => Cow::Owned(number.to_string()),
            _ => return None,
        };
        let is_tag =
            || value.len() <= MAX_TAG && TAG.find(&value).is_some_and(|tag| tag.len() == value.len());
        (is_number(&value) || is_tag()).then(|| (key.as_str(), value.into_owned()))
    })
}

/// Whether a value is a number of a thing: only digits, and not a short count.
fn is_number(value: &str) -> bool {
    value.len() >= MIN_DIGITS && value.bytes().all(|b| b.is_ascii_digit())
}

/// The only number of `len` digits in `text` after the noun of `key`; `lowercase_text` is the same text in lower case.
fn number_of<'s>(text: &'s str, lowercase_text: &str, key: &str, len: usize) -> Option<&'s str> {
    let words = identifier_words(key);
    // Words for an identifier in general do not name a thing.
    let name = words.iter().rev().find(|word| !names_identifier(word))?;
    let is_word_end = |text: &str| text.chars().next().is_none_or(|c| !c.is_alphanumeric());
    (name.len() >= MIN_NAME).then_some(())?;
    let numbers_after_name = lowercase_text.match_indices(name.as_str()).filter_map(|(at, _)| {
        let (before, after) = (lowercase_text.get(..at)?, text.get(at + name.len()..)?);
        // In "order 2000 envelopes", the name is a verb.
        let last = before.split_whitespace().next_back().unwrap_or_default();
        if action_of(name).is_some() && !WORDS_BEFORE_NOUN.contains(&last) {
            return None;
        }
        // The name may be in the plural: "orders 55218 and 55219".
        let is_plural = after.starts_with(['s', 'S']);
        let after = after.get(usize::from(is_plural)..)?;
        let is_whole = before.chars().next_back().is_none_or(|c| !c.is_alphanumeric()) && is_word_end(after);
        let start = after.find(|c: char| c.is_ascii_digit()).filter(|start| is_whole && *start <= MAX_GAP)?;
        // At most one word is between them: "order number 55218".
        let between = after.get(..start)?;
        let is_near =
            between.split_whitespace().filter(|word| word.contains(char::is_alphabetic)).count() < 2;
        let number = after.get(start..)?;
        let number = number.split(|c: char| !c.is_alphanumeric()).next()?;
        (is_near && number.len() == len && is_number(number)).then_some(number)
    });
    only_value(numbers_after_name)
}

/// The only value, if all are equal.
fn only_value<'s>(mut values: impl Iterator<Item = &'s str>) -> Option<&'s str> {
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

/// The language of a tag without its region.
fn language_of(tag: &str) -> &str {
    tag.split('-').next().unwrap_or(tag)
}

/// Whether a number may be a year.
fn is_year(number: &str) -> bool {
    number.len() == 4 && matches!(number.get(..2), Some("19" | "20"))
}

/// Whether an earlier call shows that both values mean one thing: a record of its result has both, it passed the
/// expected value and returned the other one, or it is an action that returned the other one. `None` beyond the work
/// budget.
fn is_same_thing(conduct: &Conduct<'_>, later_call: &Call, value: &str, expected: &str) -> Option<bool> {
    let earlier =
        conduct.calls(MAX_CALLS).map(|(_, call)| call).filter(|call| call.start <= later_call.start);
    let mut results = earlier.filter_map(|call| Some((call, call.result.as_ref()?)));
    results.try_fold(false, |is_confirmed, (call, result)| {
        conduct.memo.budget.spend(1 + result.len() / BYTES_PER_STEP).then_some(())?;
        if is_confirmed || !result.contains(value) {
            return Some(is_confirmed);
        }
        let was_looked_up = call.arguments.as_deref().is_some_and(|text| text.contains(expected));
        if call.start < later_call.start && (was_looked_up || conduct.is_action(call)) {
            return Some(true);
        }
        if !result.contains(expected) {
            return Some(false);
        }
        let structure = Structure::cached(result, conduct.memo)?;
        // A result without structure may state in prose that they are one thing.
        let Structure(Some(parsed)) = &*structure else { return Some(true) };
        let has = |record: &Record, text: &str| record.fields.iter().any(|field| field.shown() == text);
        Some(parsed.records.iter().any(|record| has(record, value) && has(record, expected)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::reasoning::conduct::findings_of;
    use crate::measure::testing::Script;

    fn finding_count(task: &str, calls: &[(&str, &str)], answer: &str) -> usize {
        let script = Script::new(task).tools(&["find_ship", "call_ship"]);
        let call = |script: Script, (arguments, result): &(&str, &str)| {
            script.calls("", &[("call_ship", *arguments)]).returns(result)
        };
        findings_of(check, &calls.iter().fold(script, call).answers(answer).build()).len()
    }

    #[test]
    fn number_or_language_that_differs_from_the_request_is_found() {
        let ship = "Call the tanker Stella Maris, IMO 9412347, to berth 3.";
        assert_eq!(finding_count(ship, &[(r#"{"imo":"9143207","berth":3}"#, "ok")], "Done."), 1);
        let both = r#"{"ships":[{"imo":"9143207"},{"imo":"9412347"}]}"#;
        assert_eq!(finding_count(ship, &[(r#"{"imo":9143207}"#, both)], "Done."), 1);
        assert_eq!(
            finding_count("Refund order no. 55218.", &[(r#"{"order_id":"55281"}"#, "ok")], "Done."),
            1
        );
        assert_eq!(
            finding_count("Das Merkblatt in es-MX bitte.", &[(r#"{"locale":"es-ES"}"#, "ok")], "In es-MX."),
            1
        );
    }

    #[test]
    fn expected_corrected_and_stated_values_are_not_reported() {
        let ship = "Call the tanker Stella Maris, IMO 9412347, to berth 3.";
        let mapped = r#"{"ship":{"old_imo":"9412347","imo":"9143207"}}"#;
        for (task, calls, answer) in [
            (ship, &[(r#"{"imo":"9412347"}"#, "ok")][..], "Done."),
            (ship, &[(r#"{"imo":"9143207"}"#, "ok"), (r#"{"imo":"9412347"}"#, "ok")], "Done."),
            (ship, &[(r#"{"imo":"9143207"}"#, mapped)], "Done."),
            (ship, &[(r#"{"imo":"9143207"}"#, "ok")], "I called 9143207 instead."),
            (ship, &[(r#"{"berth":"1234567"}"#, "ok")], "Done."),
            ("Orders 55218 and order 55219.", &[(r#"{"order":"55281"}"#, "ok")], "Done."),
            ("Order 55218, not order 77218.", &[(r#"{"order":"55281"}"#, "ok")], "Done."),
            ("Order 55218 envelopes.", &[(r#"{"order":"55281"}"#, "ok")], "Done."),
            ("Plan fiscal year 2026.", &[(r#"{"year":2025}"#, "ok")], "Done."),
            (
                "The page is there in en-US, translate it into German.",
                &[(r#"{"to":"de-DE"}"#, "ok")],
                "Done.",
            ),
            ("In order to pay, send 55218.", &[(r#"{"order":"55281"}"#, "ok")], "Done."),
            ("Translate it from de-DE to es-MX.", &[(r#"{"to":"fr-FR"}"#, "ok")], "Done."),
        ] {
            assert_eq!(finding_count(task, calls, answer), 0, "{task} {answer}");
        }
    }
}
