//! Names that differ from a result's by one word: "Team Osprey" where the result has "Team Falcon".
//!
//! Principle: a name of several words is copied whole: with one word exchanged the name is that of something else, or
//! of nothing. A short form, another spelling, and a name that any text has are none.
//!
//! A text value of two to four words and a sequence of the answer's words share all but one word. The other word of
//! the answer is capitalised and is in nothing that the model had seen, and the answer has the value's word
//! nowhere. A word that begins like the other may be another spelling of it.

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::language::{WordClass, names};
use crate::measure::reasoning::statements::words_of;
use crate::measure::records::FieldValue;
use crate::measure::tool_purpose::stems;
use crate::pattern::contains_ignoring_case;

const WORDS: std::ops::RangeInclusive<usize> = 2..=4;
/// Letters that two spellings of one word share at their beginning.
const SPELLING: usize = 3;
/// Most values that are compared.
const MAX_VALUES: usize = 400;
/// Longer answers have too many capitalised terms.
const MAX_ANSWER: usize = 3_000;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let prose = &**exchange.prose;
    if prose.len() > MAX_ANSWER || exchange.clauses.is_empty() {
        return;
    }
    let is_sign = |c: char| !c.is_alphanumeric();
    let mut before = false;
    let mut ends_name =
        |is_capitalised: bool| std::mem::replace(&mut before, is_capitalised) && is_capitalised;
    let mut has_name = |word: &str| match word.is_ascii() {
        true => {
            let first = word.bytes().find(u8::is_ascii_alphanumeric);
            ends_name(first.is_some_and(|first| first.is_ascii_uppercase()))
        }
        // The word may contain white space that is not ASCII.
        false => word
            .split_whitespace()
            .any(|word| ends_name(word.trim_start_matches(is_sign).starts_with(char::is_uppercase))),
    };
    if !prose.split_ascii_whitespace().any(&mut has_name) {
        return;
    }
    let written: Vec<&str> = prose.split_whitespace().collect();
    let trimmed: Vec<&str> = written.iter().map(|word| word.trim_matches(is_sign)).collect();
    // "Thanks, Ayla! You've": the end of a sentence ends a name.
    let ends = |word: &&str| word.ends_with(['.', '!', '?', ',', ':', ';', ')']);
    let is_one = |at: usize, len: usize| {
        let before = written.get(at..(at + len).saturating_sub(1)).unwrap_or_default();
        !before.iter().any(|word| ends(word) && word.len() > 2)
    };
    let fields = exchange.sources.fields().min(MAX_VALUES);
    if !exchange.spends(prose.len() / 16 * fields / 4) {
        return;
    }
    let lower: Vec<String> = trimmed.iter().map(|word| word.to_lowercase()).collect();
    let records = exchange.sources.records();
    let values = records.flat_map(|(source, _, record)| {
        record
            .fields
            .iter()
            .filter(|f| matches!(f.value, FieldValue::Text(_)))
            .map(move |field| (source, field))
    });
    for (source, field) in values.take(MAX_VALUES) {
        let shown: Vec<&str> = field.shown().split_whitespace().take(WORDS.end() + 1).collect();
        if !WORDS.contains(&shown.len()) || !is_name(&shown) {
            continue;
        }
        let words = words_of(field.text().unwrap_or_default());
        let words: Vec<&str> = words.split_whitespace().collect();
        for (at, window) in lower.windows(words.len()).enumerate() {
            let mut differing = window
                .iter()
                .zip(&words)
                .enumerate()
                .filter(|(_, (answer_word, field_word))| answer_word != field_word);
            let (Some((nth, (other, field_word))), None) = (differing.next(), differing.next()) else {
                continue;
            };
            if !trimmed.get(at..at + window.len()).is_some_and(is_name) || !is_one(at, window.len()) {
                continue;
            }
            findings.examined = true;
            let begins_alike = other.chars().take(SPELLING).eq(field_word.chars().take(SPELLING));
            // "Mrs. Lopez" for Maria Lopez.
            let is_title = nth == 0 && names::is_of_class(other, WordClass::Title);
            // "The US" for "Ashburn, US".
            let is_function_word = stems(other).next().is_none();
            if is_title
                || is_function_word
                || begins_alike
                || other.len() < SPELLING
                || field_word.len() < SPELLING
            {
                continue;
            }
            if contains_ignoring_case(exchange.answer, field_word) || !exchange.spends_search() {
                continue;
            }
            if exchange.sources.have_seen(other) {
                continue;
            }
            let shown = trimmed.get(at + nth).copied().unwrap_or_default();
            let place = prose.find(shown).unwrap_or_default();
            let returned = format!("{}: {}", field.name.join(" "), field.shown());
            findings.contradicts(&returned, source.call, exchange.sentence_at(place));
            return;
        }
    }
}

/// Whether all words are capitalised.
fn is_name(words: &[&str]) -> bool {
    words.iter().all(|word| word.starts_with(char::is_uppercase))
}
