//! The subject of a clause about a state: a thing of the results, or something else.
//!
//! Principle: a result refutes only statements about the things of the result: about "it", or about a thing that the
//! request, the call or the result names. "Its description is available on the page" is not about the product. "Orders
//! are shipped within two days" and "a booking that is cancelled is charged" are about orders and bookings in general.

use super::exchange::Exchange;
use super::predicates::{Predicate, is_verb};
use crate::measure::identifier::identifier_words;
use crate::measure::language::Language;
use crate::measure::reasoning::statements::Clause;

/// Subjects that refer to a thing named before.
const PRONOUNS: [&str; 14] = [
    "it",
    "it's",
    "they",
    "they're",
    "this",
    "that",
    "that's",
    "these",
    "those",
    "he",
    "she",
    "one",
    "everything",
    "both",
];
/// Words that may precede a subject.
const BEFORE_SUBJECT: [&str; 9] =
    ["and", "but", "so", "yes", "no", "also", "currently", "unfortunately", "then"];
/// Words by which a phrase means a certain thing. "This" and similar words are in [`PRONOUNS`].
const DEFINITE_DETERMINERS: [&str; 8] = ["the", "your", "my", "our", "his", "her", "its", "their"];
/// Subjects for the writer of the answer; the thing is then the object after the verb.
const FIRST_PERSON: [&str; 6] = ["i", "we", "i've", "we've", "i'm", "we're"];
/// Minimum bytes of a noun that is compared by its beginning.
const MIN_NOUN: usize = 4;

/// Whether a clause with the predicate is about a thing of the results. False beyond the work budget.
pub(super) fn is_of_results(exchange: &Exchange<'_>, clause: &Clause<'_>, predicate: &Predicate) -> bool {
    let words: Vec<&str> = clause.words.split_whitespace().collect();
    let verb = words
        .iter()
        .position(|word| is_verb(word, Language::English) || FIRST_PERSON.contains(word))
        .unwrap_or_default();
    let (before, after) = words.split_at_checked(verb).unwrap_or_default();
    let (subject, is_before_verb) = match before.is_empty() {
        // The thing is after the verb: "We have confirmed your order", "Confirmed: your order".
        true => (after, false),
        false => (before, true),
    };
    let first = subject.iter().find(|word| !BEFORE_SUBJECT.contains(word));
    let has_digit = |word: &&str| word.contains(|c: char| c.is_ascii_digit());
    if first.is_some_and(|word| PRONOUNS.contains(word)) || subject.iter().any(has_digit) {
        return true;
    }
    let has_content = |word: &&&str| {
        word.len() >= MIN_NOUN && !is_verb(word, Language::English) && !predicate.has_word(word)
    };
    let nouns: Vec<&str> = subject.iter().filter(has_content).copied().collect();
    if nouns.is_empty() {
        return true;
    }
    let is_definite = subject.iter().any(|word| DEFINITE_DETERMINERS.contains(word));
    // Plurals without a determiner and "a booking" mean a kind of thing.
    let is_generic = is_before_verb
        && !is_definite
        && (matches!(subject.first(), Some(&("a" | "an" | "any")))
            || matches!(after.first(), Some(&("are" | "were"))) && !clause.sentence.contains(':'));
    !is_generic
        && exchange.spends(exchange.sources.field_count())
        && nouns.iter().any(|noun| is_named(exchange, noun))
}

/// Whether the request, the name of a tool or a result has this noun or another form of it.
fn is_named(exchange: &Exchange<'_>, noun: &str) -> bool {
    let stem = noun.strip_suffix('s').unwrap_or(noun);
    let is_same = |word: &str| word.starts_with(stem) || word.len() >= MIN_NOUN && stem.starts_with(word);
    let is_in_results = || {
        exchange.sources.records().flat_map(|(.., record)| &record.fields).any(|field| {
            field.name.iter().any(|word| is_same(word))
                || field.text().is_some_and(|text| text.split(|c: char| !c.is_alphanumeric()).any(is_same))
        })
    };
    exchange.task_words().split(' ').any(is_same)
        || exchange
            .sources
            .calls
            .iter()
            .any(|call| identifier_words(&call.name).iter().any(|word| is_same(word)))
        || is_in_results()
}
