//! The last digits of an identifier: "the card ending in 4471" where the results have one that ends in 4417.
//!
//! Principle: the last digits by which an answer names a thing are those of a number in a result; other digits name
//! another thing. They are a contradiction if no text that the model read has them, and a result has a number that is
//! masked or long enough to be named by its last digits.
//!
//! In: digits after a phrase such as "ending in", or after a mask. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::language::WordClass;
use crate::measure::records::RecordField;

/// Minimum digits of an unmasked number that may be named by its last digits.
const MIN_UNMASKED_DIGITS: usize = 8;
/// Maximum groups of last digits that are compared.
const MAX_ENDINGS: usize = 16;

/// Value of the phrases of class `Ending` that other words may separate from the digits: "the last four digits of the
/// card are".
const SEPARABLE: u8 = 2;

// Digits after a mask. Two asterisks are emphasis and not a mask.
regex!(MASKED, r"(?:\*{3,}|•{2,})[ -]?[*•#.…]*(\d{3,6})(?-u:\b)");
// Digits directly after a phrase.
regex!(DIGITS_AFTER, r"^ ?[*•#.…]*(\d{3,6})(?-u:\b)");
// Digits after a phrase with a few words between.
regex!(DIGITS_NEAR, r"^[^\d.,;\n]{0,32}?[*•#…]*(\d{3,6})(?-u:\b)");

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let prose = &**exchange.prose;
    let words = exchange.language.map(|language| language.places(prose, exchange.memo));
    let endings =
        words.iter().flat_map(|words| words.iter()).filter(|place| place.classes.has(WordClass::Ending));
    let digits_after_phrases = endings.filter_map(|place| {
        let pattern = if place.value == SEPARABLE { &*DIGITS_NEAR } else { &*DIGITS_AFTER };
        Some(pattern.captures(prose.get(place.at.end..)?)?.get(1)?.as_str())
    });
    let masked = MASKED.captures_iter(prose).filter_map(|captures| Some(captures.get(1)?.as_str()));
    for digits in digits_after_phrases.chain(masked).take(MAX_ENDINGS) {
        if !exchange.spends_search() || !exchange.spends(exchange.sources.field_count()) {
            return;
        }
        let records = || exchange.sources.records();
        let named_field = records().find_map(|(source, _, record)| {
            let field = record.fields.iter().find(|field| may_be_named_by_end(field))?;
            Some((source, field))
        });
        let Some((source, field)) = named_field else { return };
        findings.examined = true;
        let has_digits_at_end = |field: &RecordField| letters_and_digits(field.shown()).ends_with(digits);
        let is_known = records().any(|(.., record)| record.fields.iter().any(has_digits_at_end));
        if is_known || exchange.sources.any_contains(digits) {
            continue;
        }
        let returned =
            format!("{}: {}, and nothing that ends in {}", field.name.join(" "), field.shown(), digits);
        let sentence = exchange.sentence_at(digits.as_ptr().addr() - prose.as_ptr().addr());
        findings.contradicts(&returned, source.call, sentence);
        return;
    }
}

/// The letters and digits of a text.
fn letters_and_digits(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}

/// Whether a field is a masked number, a long number, or a number whose key is named for its last digits.
fn may_be_named_by_end(field: &RecordField) -> bool {
    let digits = field.shown().bytes().filter(u8::is_ascii_digit).count();
    let is_masked =
        field.shown().contains("**") || field.shown().contains("••") || field.shown().contains("XX");
    let is_last = field.name.iter().any(|word| word.starts_with("last"));
    let letters = field.shown().bytes().filter(u8::is_ascii_lowercase).count();
    digits >= 3 && (is_masked || is_last) || digits >= MIN_UNMASKED_DIGITS && letters <= 2
}
