//! Names that differ by one word from a name in a result: "Team Osprey" where the result has "Team Falcon".
//!
//! Principle: a name of several words is copied completely; with one word exchanged, it is the name of something else.
//! A sequence of capitalised words in the answer is a contradiction if it differs by one word from a text value of two
//! to four words, no text that the model read has the other word, and the answer nowhere has the word of the value. A
//! word with the same beginning may be another spelling.
//!
//! In: the prose of an answer, and the text values of results. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::language::{WordClass, names};
use crate::measure::reasoning::statements::words_of;
use crate::measure::tool_purpose::stems;
use crate::pattern::contains_ignoring_case;

/// The numbers of words of compared names.
const NAME_LENGTHS: std::ops::RangeInclusive<usize> = 2..=4;
/// Number of letters that two spellings of one word share at their beginning.
const SHARED_LETTERS: usize = 3;
/// Maximum values that are compared.
const MAX_VALUES: usize = 400;
/// Maximum bytes of an answer: longer answers have many capitalised terms.
const MAX_ANSWER: usize = 3_000;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let prose = &**exchange.prose;
    if prose.len() > MAX_ANSWER || exchange.clauses.is_empty() {
        return;
    }
    let is_punctuation = |c: char| !c.is_alphanumeric();
    let mut was_capitalised = false;
    let mut continues_name =
        |is_capitalised: bool| std::mem::replace(&mut was_capitalised, is_capitalised) && is_capitalised;
    let mut has_name = |word: &str| match word.is_ascii() {
        true => {
            let first = word.bytes().find(u8::is_ascii_alphanumeric);
            continues_name(first.is_some_and(|first| first.is_ascii_uppercase()))
        }
        // The word may contain white space that is not ASCII.
        false => word.split_whitespace().any(|word| {
            continues_name(word.trim_start_matches(is_punctuation).starts_with(char::is_uppercase))
        }),
    };
    if !prose.split_ascii_whitespace().any(&mut has_name) {
        return;
    }
    let answer_words: Vec<&str> = prose.split_whitespace().collect();
    let trimmed_words: Vec<&str> =
        answer_words.iter().map(|word| word.trim_matches(is_punctuation)).collect();
    // A punctuation mark ends a name: "Thanks, Ayla! You've".
    let ends_with_mark = |word: &&str| word.ends_with(['.', '!', '?', ',', ':', ';', ')']);
    let is_unbroken = |at: usize, len: usize| {
        let before = answer_words.get(at..(at + len).saturating_sub(1)).unwrap_or_default();
        !before.iter().any(|word| ends_with_mark(word) && word.len() > 2)
    };
    let fields = exchange.sources.field_count().min(MAX_VALUES);
    if !exchange.spends(prose.len() / 16 * fields / 4) {
        return;
    }
    let lowercase_words: Vec<String> = trimmed_words.iter().map(|word| word.to_lowercase()).collect();
    let records = exchange.sources.records();
    let values = records.flat_map(|(source, _, record)| {
        record.fields.iter().filter(|f| f.is_text()).map(move |field| (source, field))
    });
    for (source, field) in values.take(MAX_VALUES) {
        let shown: Vec<&str> = field.shown().split_whitespace().take(NAME_LENGTHS.end() + 1).collect();
        if !NAME_LENGTHS.contains(&shown.len()) || !is_name(&shown) {
            continue;
        }
        let words = words_of(field.text().unwrap_or_default());
        let words: Vec<&str> = words.split_whitespace().collect();
        for (at, window) in lowercase_words.windows(words.len()).enumerate() {
            let mut differing = window
                .iter()
                .zip(&words)
                .enumerate()
                .filter(|(_, (answer_word, field_word))| answer_word != field_word);
            let (Some((nth, (other, field_word))), None) = (differing.next(), differing.next()) else {
                continue;
            };
            if !trimmed_words.get(at..at + window.len()).is_some_and(is_name)
                || !is_unbroken(at, window.len())
            {
                continue;
            }
            findings.examined = true;
            let may_be_other_spelling =
                other.chars().take(SHARED_LETTERS).eq(field_word.chars().take(SHARED_LETTERS));
            // A title may replace the first name: "Mrs. Lopez" for Maria Lopez.
            let is_title = nth == 0 && names::is_of_class(other, WordClass::Title);
            // A function word is not part of a name: "The US" for "Ashburn, US".
            let is_function_word = stems(other).next().is_none();
            if is_title
                || is_function_word
                || may_be_other_spelling
                || other.len() < SHARED_LETTERS
                || field_word.len() < SHARED_LETTERS
            {
                continue;
            }
            if contains_ignoring_case(exchange.answer, field_word) || !exchange.spends_search() {
                continue;
            }
            if exchange.sources.any_contains(other) {
                continue;
            }
            let shown = trimmed_words.get(at + nth).copied().unwrap_or_default();
            let position = prose.find(shown).unwrap_or_default();
            let returned = format!("{}: {}", field.name.join(" "), field.shown());
            findings.contradicts(&returned, source.call, exchange.sentence_at(position));
            return;
        }
    }
}

/// Whether all words are capitalised.
fn is_name(words: &[&str]) -> bool {
    words.iter().all(|word| word.starts_with(char::is_uppercase))
}
