//! Contact details without a source: a table reserved for "John Smith" with a telephone number that no text has.
//!
//! Principle: names and telephone numbers are copied, never composed. An action that passes a telephone number, and
//! possibly the name of a person with it, needs both from the user, the instructions or a result. Numbers are compared
//! by their last digits, without signs and spaces. There is no finding if the request asks for examples or tests,
//! which need invented data. Addresses are compared by `wrong_identifier`.
//!
//! In: the calls of a trace with the origins of their arguments. Out: one finding for each agent, on the model span
//! that requested the call.

use serde_json::Value;
use verdict_otlp::trace::Idx;

use super::conduct::Conduct;
use crate::measure::defects::Defect;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{WordClass, WordClasses, classes_in, names};
use crate::measure::provenance::{ArgumentValue, KnownTexts, Origin, Provenance, have_value};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, Memo};
use crate::recognise::{AgentTrace, Call};

/// Maximum calls of an agent that are read.
const MAX_CALLS: usize = 200;
/// Number of digits of a telephone number.
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 7..=15;
/// Number of last digits of a telephone number that are compared.
const COMPARED_DIGITS: usize = 7;
/// Words before "name" in keys for the name of a person. Keys are identifiers in code.
const PERSON_WORDS: [&str; 13] = [
    "first",
    "last",
    "full",
    "guest",
    "customer",
    "contact",
    "holder",
    "passenger",
    "patient",
    "attendee",
    "recipient",
    "visitor",
    "person",
];

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, .. } = *conduct;
    conduct.task(usize::MAX)?;
    let calls = conduct.succeeded(MAX_CALLS).map(|(_, call)| call).filter(|call| call.llm.is_some());
    let is_action_with_phone = |call: &&Call| has_phone(call) && conduct.is_action(call);
    let mut actions = calls.filter(is_action_with_phone).peekable();
    actions.peek()?;
    let user_texts = conduct.user_messages();
    let is_example = |classes: WordClasses| classes.has(WordClass::MadeUp) || classes.has(WordClass::Example);
    if user_texts.iter().any(|text| classes_in(text, None, memo).is_none_or(is_example)) {
        return None;
    }
    let provenance = Provenance::cached(trace, memo);
    let is_made_up = |value: &&ArgumentValue| value.origin == Origin::Model;
    actions.find_map(|call| {
        let values = provenance.arguments(trace, call);
        let mut phones = values.iter().filter(is_made_up).filter(|value| is_phone(value));
        let phone = phones.find(|value| !is_known(trace, memo, call, value));
        let name = || values.iter().filter(is_made_up).find(|value| is_person(value) && provenance.is_unknown(&value.value));
        let value = phone.or_else(name)?;
        let rationale = format!(
            "{} of the request or of a result, or a question for it, was expected; {} has {}, which no message or \
             result contains",
            value.name,
            call.name.trim(),
            value.value
        );
        conduct.finding(Defect::ContradictsRequest, rationale, call)
    })
}

/// Whether an argument may be a telephone number. This test is fast and precedes the others, since most calls have
/// none.
fn has_phone(call: &Call) -> bool {
    let arguments = call.parsed.as_deref().and_then(Value::as_object).into_iter().flatten();
    let mut nested = arguments.flat_map(|(key, value)| {
        std::iter::once((key, value)).chain(value.as_object().into_iter().flatten())
    });
    let has_digit =
        |value: &Value| value.as_str().is_some_and(|text| text.contains(|c: char| c.is_ascii_digit()));
    nested.any(|(key, value)| {
        has_digit(value) && names::has_word_of_class(&identifier_words(key), WordClass::Phone)
    })
}

/// Whether a value is a telephone number: its key has a word for one, and it has enough digits and only signs.
fn is_phone(value: &ArgumentValue) -> bool {
    let is_sign = |c: char| c.is_ascii_digit() || " +-().\u{2011}/".contains(c);
    names::has_word_of_class(&identifier_words(&value.name), WordClass::Phone)
        && value.value.chars().all(is_sign)
        && PHONE_DIGITS.contains(&value.value.bytes().filter(u8::is_ascii_digit).count())
}

/// Whether a value is the name of a person with two or more words.
fn is_person(value: &ArgumentValue) -> bool {
    let words = identifier_words(&value.name);
    let is_person_name = words.last().is_some_and(|word| word == "name")
        && (words.len() == 1 || words.iter().any(|word| PERSON_WORDS.contains(&word.as_str())));
    let is_capital =
        |word: &str| word.starts_with(char::is_uppercase) && word.chars().all(char::is_alphabetic);
    is_person_name && value.value.split(' ').all(is_capital) && value.value.contains(' ')
}

/// The cached result of [`joined_digits`] for a text.
struct TextDigits(String);

/// Whether a text before the call has the last digits of a number; true beyond the work budget.
fn is_known(trace: &AgentTrace, memo: &Memo, call: &Call, number: &ArgumentValue) -> bool {
    let digits = joined_digits(&number.value);
    let Some(last) = digits.get(digits.len().saturating_sub(COMPARED_DIGITS)..) else { return true };
    let has =
        |text: &TextDigits| !memo.budget.spend(1 + text.0.len() / BYTES_PER_STEP) || text.0.contains(last);
    let known = KnownTexts::cached(trace, memo);
    known.before(trace, call).is_none_or(|texts| {
        let given = texts.iter().filter(|known| known.origin != Origin::Model);
        have_value(given, memo, |text| TextDigits(joined_digits(text)), has)
    })
}

/// The digits of a text. Digits with at most two separators between them are joined, and other runs are separated by a
/// space.
pub(super) fn joined_digits(text: &str) -> String {
    let mut joined = String::new();
    let mut separators = 0;
    for c in text.chars() {
        match c {
            '0'..='9' => {
                if separators > 2 {
                    joined.push(' ');
                }
                joined.push(c);
                separators = 0;
            }
            ' ' | '-' | '.' | '(' | ')' | '/' | '\u{a0}' | '\u{2011}' => separators += 1,
            _ => separators = 3,
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::reasoning::conduct::findings_of;
    use crate::measure::testing::Script;

    fn finding_count(task: &str, lookup: &str, tool: &str, arguments: &str) -> usize {
        let script = Script::new(task).system("You help guests.");
        let script = script.calls("", &[("get_profile", "{}")]).returns(lookup);
        let script = script.calls("", &[(tool, arguments)]).returns(r#"{"ok":true}"#);
        let trace = script.answers("Done.").build();
        findings_of(check, &trace).len()
    }

    #[test]
    fn contact_that_nobody_gave_is_found() {
        let task = "Book a cab to the airport at 7.";
        assert_eq!(finding_count(task, "{}", "book_cab", r#"{"time":"07:00","phone":"+44 7700 900123"}"#), 1);
        assert_eq!(finding_count(task, "{}", "book_cab", r#"{"contact":{"mobile":"07700900123"}}"#), 1);
        let named = r#"{"name":"Mary Brown","phone":"+44 7700 900555"}"#;
        assert_eq!(finding_count("Book a cab, call +44 7700 900555.", "{}", "book_cab", named), 1);
    }

    #[test]
    fn contact_that_is_given_or_asked_for_is_none() {
        let arguments = r#"{"name":"Ana Ruiz","phone":"+34 600 123 456"}"#;
        for (task, lookup) in [
            ("Book a cab for Ana Ruiz, 600-123-456.", "{}"),
            ("Book me a cab.", r#"{"customer":"Ana Ruiz","tel":"0034600123456"}"#),
            ("Book a cab for ana ruiz, (600) 123456.", "{}"),
            ("Book a test cab.", "{}"),
        ] {
            assert_eq!(finding_count(task, lookup, "book_cab", arguments), 0, "{task}");
        }
        let look = r#"{"phone":"+34 600 123 456"}"#;
        assert_eq!(finding_count("Who is it?", "{}", "find_customer", look), 0, "a lookup");
        assert_eq!(finding_count("Book a cab.", "{}", "book_cab", r#"{"phone":"112"}"#), 0, "short");
        assert_eq!(finding_count("Book a cab.", "{}", "book_cab", r#"{"phone":"","name":"Airport Cab"}"#), 0);
    }
}
