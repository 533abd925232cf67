//! Rows of a list that an action uses although the request excludes them: "leave out the make-up tests", and the scores
//! of these tests are among the numbers of the call.
//!
//! Principle: a request that excludes things with a property excludes the rows of a result that have the property: a
//! flag with this name, or a value or an item of a list that is this word. If calls use several rows of the list, and
//! some of the used rows have the property and others do not, the exclusion was not applied. A property that all used
//! rows have is not excluded but demanded ("don't forget the express delivery").
//!
//! In: the messages of the user, the results of an agent's calls, and its later calls. Out: one finding for each agent,
//! on the model span that requested the call.

use std::cell::LazyCell;

use verdict_otlp::trace::Idx;

use super::conduct::Conduct;
use super::less_fitting_choice::{CLAUSE_ENDS, argument_values, is_unspaced};
use super::statements::{contains_words, words_of};
use crate::measure::defects::Defect;
use crate::measure::language::{Language, WordClass, WordClasses, classes, classes_of};
use crate::measure::records::{FieldValue, Record, RecordField, Structure};
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, Memo};
use crate::recognise::{Call, Text};

/// Maximum bytes of a message of the user.
const MAX_MESSAGE: usize = 1_000;
/// Maximum calls of an agent that are compared, and maximum rows of a list.
const MAX_CALLS: usize = 40;
const MAX_ROWS: usize = 100;
/// Maximum words after an exclusion that may be the property.
const MAX_WORDS: usize = 6;
/// Minimum common bytes of two forms of one word.
const MIN_STEM: usize = 5;
/// Minimum characters of a word in a language without spaces.
const MIN_UNSPACED: usize = 2;
/// Classes of words by which a request excludes something.
const EXCLUSION: WordClasses = classes!(Exception Negation);
/// Classes of words with which an exclusion is no demand.
const NO_DEMAND: WordClasses = classes!(Condition Contrast Comparison Alternative);

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, .. } = *conduct;
    let calls: Vec<&Call> = conduct.succeeded(MAX_CALLS).map(|(_, call)| call).collect();
    // A calculation over a list of values is no lookup.
    let uses = |call: &&&Call| {
        purpose(trace, memo, call) != Purpose::Query
            || call.arguments.as_deref().is_some_and(|text| text.contains('['))
    };
    let last = calls.iter().filter(uses).map(|call| call.start).max()?;
    let mut lists = calls.iter().filter(|call| call.start < last && call.result.is_some()).peekable();
    lists.peek()?;
    // Few calls use several rows of a list, so the messages are read late.
    let excluded = LazyCell::new(|| excluded_by_user(conduct));
    lists.find_map(|list| {
        let structure = Structure::cached(list.result.as_ref()?, memo)?;
        let Structure(Some(parsed)) = &*structure else { return None };
        let later = calls.iter().filter(|call| call.start > list.start).filter(uses);
        let values: Vec<(&Call, Vec<String>)> = later.map(|call| (*call, argument_values(call))).collect();
        (0..parsed.lists.len()).find_map(|index| {
            let rows: Vec<&Record> = parsed.records.iter().filter(|row| row.list == Some(index)).collect();
            let steps = rows.iter().map(|row| row.fields.len()).sum::<usize>() * (values.len() + MAX_WORDS);
            if !(2..=MAX_ROWS).contains(&rows.len()) || !memo.budget.spend(1 + steps) {
                return None;
            }
            let used: Vec<(&Call, &Record)> = values
                .iter()
                .flat_map(|(call, values)| values.iter().map(move |value| (*call, value)))
                .filter_map(|(call, value)| Some((call, only_row(&rows, value)?)))
                .collect();
            if used.len() < 2 || excluded.is_empty() {
                return None;
            }
            let property = |row: &Record| excluded.iter().find(|word| has_property(row, word, &rows));
            let (call, word) = used.iter().find_map(|(call, row)| Some((*call, property(row)?)))?;
            let is_mixed = used.iter().any(|(_, row)| !has_property(row, word, &rows));
            let rationale = format!(
                "the user excludes {word}, which an item of {} has; {} was called with it",
                list.name.trim(),
                call.name.trim()
            );
            is_mixed.then(|| conduct.finding(Defect::ContradictsRequest, rationale, call)).flatten()
        })
    })
}

/// The words that the messages of the user exclude, in lower case.
fn excluded_by_user(conduct: &Conduct<'_>) -> Vec<String> {
    let memo = conduct.memo;
    let messages = conduct.user_messages();
    let bytes: usize = messages.iter().map(|text| text.len()).sum();
    if !memo.budget.spend(1 + bytes / BYTES_PER_STEP) {
        return Vec::new();
    }
    let words = messages
        .iter()
        .filter(|text| text.len() <= MAX_MESSAGE)
        .flat_map(|text| Some(excluded_words(text, Language::detected(text, None, memo)?)))
        .flatten();
    // A later message may withdraw an exclusion, and an earlier clause may name a thing besides others.
    let is_demanded =
        |word: &String| clauses_without_exclusion(&messages, memo).any(|words| contains_words(&words, word));
    words.filter(|word| !is_demanded(word)).collect()
}

/// The words of each clause of the messages that excludes nothing.
fn clauses_without_exclusion<'m>(messages: &'m [Text], memo: &'m Memo) -> impl Iterator<Item = String> + 'm {
    messages.iter().filter(|text| text.len() <= MAX_MESSAGE).flat_map(move |text| {
        let language = Language::detected(text, None, memo);
        let excludes =
            move |clause: &str| language.is_none_or(|language| language.classes(clause).has_any(EXCLUSION));
        text.split(CLAUSE_ENDS).filter(move |clause| !excludes(clause)).map(words_of)
    })
}

/// The words of a message that may be properties of excluded things, in lower case; in a language without spaces the
/// text after an exclusion.
fn excluded_words(text: &str, language: Language) -> Vec<String> {
    let mut out = Vec::new();
    for clause in text.split_inclusive(CLAUSE_ENDS) {
        if clause.ends_with(['?', '？']) {
            continue;
        }
        let places = language.table().places(clause);
        let exclusions: Vec<_> = places.iter().cloned().collect();
        if classes_of(&exclusions).has_any(NO_DEMAND) {
            continue;
        }
        let mut after =
            exclusions.iter().filter(|place| place.classes.has_any(EXCLUSION)).map(|place| place.at.end);
        let Some(end) = after.next() else { continue };
        let rest = clause.get(end..).unwrap_or_default();
        if !language.is_spaced() {
            out.push(rest.trim_end_matches(CLAUSE_ENDS).to_lowercase());
            continue;
        }
        // A word with a hyphen is compared as one word: "make-up" and `makeup`.
        let words = words_of(&rest.replace('-', ""));
        let words = words.split_whitespace().filter(|word| {
            !language.is_function_word(word) && !language.table().name(word).0.has(WordClass::Identifier)
        });
        out.extend(words.take(MAX_WORDS).map(str::to_owned));
    }
    out
}

/// The only row that has a value.
fn only_row<'r>(rows: &[&'r Record], value: &str) -> Option<&'r Record> {
    let value_as_number: Option<f64> = value.parse().ok();
    let is_value = |field: &RecordField| field.may_be_shown_as(value_as_number) && field.shown() == value;
    let mut matching = rows.iter().filter(|row| row.fields.iter().any(is_value));
    matching.next().filter(|_| matching.next().is_none()).copied()
}

/// Whether a row has a property that another row lacks: a flag, or a value that is no name of the row.
fn has_property(row: &Record, word: &str, rows: &[&Record]) -> bool {
    let is_property = |field: &RecordField| match &field.value {
        FieldValue::Bool(flag) => *flag && is_same_word(&field.name.concat(), word),
        FieldValue::Number(_) => false,
        FieldValue::Text(text) => is_same_word(text, word) && !is_name(field, rows),
    };
    row.fields.iter().any(is_property)
}

/// Whether a column has another value in each row, once, so that it names the rows.
fn is_name(field: &RecordField, rows: &[&Record]) -> bool {
    let column = |row: &Record| -> Vec<String> {
        row.fields
            .iter()
            .filter(|other| other.name == field.name)
            .map(|other| other.shown().to_lowercase())
            .collect()
    };
    let mut values: Vec<Vec<String>> = rows.iter().map(|row| column(row)).collect();
    let are_single = values.iter().all(|values| values.len() == 1);
    values.sort_unstable();
    values.dedup();
    are_single && values.len() == rows.len()
}

/// Whether a value is a word, possibly in another form, or in a language without spaces a part of the text.
fn is_same_word(value: &str, word: &str) -> bool {
    if word.chars().any(is_unspaced) {
        return value.chars().count() >= MIN_UNSPACED && word.contains(value);
    }
    let value = value.to_lowercase().replace(['-', '_', ' '], "");
    let common = value.bytes().zip(word.bytes()).take_while(|(a, b)| a == b).count();
    let longest = value.len().max(word.len());
    value == word || common >= MIN_STEM && common * 3 >= longest * 2
}
