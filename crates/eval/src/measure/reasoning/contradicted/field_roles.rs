//! Names in the role of another field: "it was directed by Tomas Lindell", who is the `producer` of the record.
//!
//! Principle: a statement that links a name to the role of a field gives the name that the field has. It contradicts
//! the record if the name is that of another field of the record, the statement does not name the role of that field,
//! no record has the name in the stated role, and the answer nowhere has the name that the field has. A role is named
//! by the words of the field's key, in any form: "directed by", "the director is".
//!
//! In: the statements of an answer, and the records of results. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use super::predicates::stem;
use crate::measure::reasoning::statements::{Clause, contains_words, words_of};
use crate::measure::records::{KeyName, Record, RecordField};

/// Minimum bytes of a name.
const MIN_NAME: usize = 4;
/// Minimum bytes of a word of a role.
const MIN_ROLE: usize = 4;
/// Maximum words of a name.
const MAX_NAME_WORDS: usize = 4;
/// Maximum bytes of a name.
const MAX_NAME: usize = 64;
/// Maximum fields of a record that are compared.
const MAX_FIELDS: usize = 16;
/// Maximum records that are compared.
const MAX_RECORDS: usize = 400;
/// Texts between a role and the name after it.
const BEFORE_NAME: [&str; 9] = [":", "by", "is", "was", "are", "were", "is by", "was by", "|"];
/// Texts between a name and the role after it.
const BEFORE_ROLE: [&str; 8] = ["(", ",", ", the", "is the", "was the", "is its", "was its", "as"];

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let stating: Vec<&Clause<'_>> = exchange.clauses.iter().filter(|c| !c.negated && !c.modal).collect();
    if stating.is_empty() || !exchange.spends(1 + exchange.sources.field_count()) {
        return;
    }
    for (source, at, record) in exchange.sources.records().take(MAX_RECORDS) {
        let mut names = record.fields.iter().filter(|field| is_name(field)).take(MAX_FIELDS);
        let (Some(first), Some(second)) = (names.next(), names.next()) else { continue };
        let names: Vec<&RecordField> = [first, second].into_iter().chain(names).collect();
        if !exchange.spends(names.len() * (1 + exchange.answer.len() / 16)) {
            return;
        }
        let is_in_answer = |field: &&&RecordField| exchange.answer.contains(field.shown());
        for other in names.iter().filter(is_in_answer) {
            for field in names.iter().filter(|field| field.value != other.value) {
                let Some(sentence) = linking_sentence(&stating, field, other) else { continue };
                findings.examined = true;
                if source.is_current(at) && !may_be_correct(exchange, field, other) {
                    let shown = |f: &RecordField| format!("{}: {}", f.name.join(" "), f.shown());
                    let returned = format!("{}, and {}", shown(field), shown(other));
                    findings.contradicts(&returned, source.call, sentence);
                    return;
                }
            }
        }
    }
}

/// Whether a value may be the name of a person or a thing.
fn is_name(field: &RecordField) -> bool {
    if !field.is_text() {
        return false;
    }
    let shown = field.shown();
    (MIN_NAME..=MAX_NAME).contains(&shown.len())
        && shown.starts_with(char::is_uppercase)
        && shown.contains(char::is_lowercase)
        && shown.split(' ').count() <= MAX_NAME_WORDS
        && shown.chars().all(|c| c.is_alphabetic() || matches!(c, ' ' | '-' | '\'' | '’' | '.'))
}

/// The words of a key that another key does not have.
fn distinct_words<'f>(name: &'f KeyName, other: &KeyName) -> Vec<&'f str> {
    name.iter().filter(|word| !other.contains(word)).map(String::as_str).collect()
}

/// The sentence that links the value of `other` to the role of `field`.
fn linking_sentence<'a>(
    stating: &[&Clause<'a>],
    field: &RecordField,
    other: &RecordField,
) -> Option<&'a str> {
    let (stated, actual) =
        (distinct_words(&field.name, &other.name), distinct_words(&other.name, &field.name));
    let [stated] = stated.as_slice() else { return None };
    if stated.len() < MIN_ROLE || actual.is_empty() {
        return None;
    }
    let links = |clause: &&&Clause<'a>| {
        let sentence = clause.sentence.to_lowercase();
        let has_role =
            |word: &str| sentence.split(|c: char| !c.is_alphanumeric()).any(|w| w.starts_with(stem(word)));
        let name = other.shown().to_lowercase();
        !actual.iter().any(|word| has_role(word))
            && sentence.match_indices(stem(stated)).any(|(at, _)| is_linked(&sentence, at, &name))
    };
    stating.iter().find(links).map(|clause| clause.sentence)
}

/// Whether the word of a role that begins at `at` is next to the name, with a word or a sign that links them.
fn is_linked(sentence: &str, at: usize, name: &str) -> bool {
    let (before, after) = sentence.split_at_checked(at).unwrap_or_default();
    if before.ends_with(char::is_alphanumeric) {
        return false;
    }
    let after = after.trim_start_matches(char::is_alphanumeric);
    let is_sign = |c: char| c.is_whitespace() || matches!(c, '*' | '_');
    let gap = |text: &str| text.replace(['*', '_'], "").trim_matches(is_sign).to_owned();
    let is_name_after_role = |name_start: usize| {
        let ends =
            after.get(name_start + name.len()..).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
        ends && after.get(..name_start).is_some_and(|text| BEFORE_NAME.contains(&gap(text).as_str()))
    };
    let is_name_before_role = |name_start: usize| {
        before.get(name_start + name.len()..).is_some_and(|text| BEFORE_ROLE.contains(&gap(text).as_str()))
    };
    after.find(name).is_some_and(is_name_after_role) || before.rfind(name).is_some_and(is_name_before_role)
}

/// Whether the statement may be correct: the answer also has the name of the stated role, or a record or a text has the
/// other name in that role.
fn may_be_correct(exchange: &Exchange<'_>, field: &RecordField, other: &RecordField) -> bool {
    let answer = words_of(exchange.answer);
    let other_words = words_of(other.shown());
    let words = words_of(field.shown());
    let has_expected_name = words.split_whitespace().any(|word| {
        word.len() >= MIN_NAME && !contains_words(&other_words, word) && contains_words(&answer, word)
    });
    let has_role = |record: &Record| {
        record
            .fields
            .iter()
            .any(|f| f.name == field.name && f.text().is_some_and(|t| Some(t) == other.text()))
    };
    let records = exchange.sources.records().map(|(.., record)| record);
    has_expected_name
        || records.into_iter().any(has_role)
        || exchange.sources.unstructured().iter().any(|text| text.contains(other.shown()))
}
