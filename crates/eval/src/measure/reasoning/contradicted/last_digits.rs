//! The last digits of an identifier: "the card ending in 4471" where the results have one that ends in 4417.
//!
//! Principle: a thing that is named by its last digits is named by those that a result gives; others name another
//! thing. Where no result has a number that can be named in this way, nothing is compared.
//!
//! The digits are a contradiction if no content that the model had seen has them, and a result has a number that is
//! masked or long enough to be named by its last digits.

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::language::WordClass;
use crate::measure::records::RecordField;

/// Fewest digits of a number that is named by its last ones.
const MIN_LONG: usize = 8;
const MAX_ENDINGS: usize = 16;

/// Value of phrases that may be separated from the digits by other words: "the last four digits of the card are".
const DIGITS: u8 = 2;

// Two asterisks are emphasis, and no mask.
regex!(MASKED, r"(?:\*{3,}|•{2,})[ -]?[*•#.…]*(\d{3,6})(?-u:\b)");
regex!(BEHIND, r"^ ?[*•#.…]*(\d{3,6})(?-u:\b)");
regex!(NEAR, r"^[^\d.,;\n]{0,32}?[*•#…]*(\d{3,6})(?-u:\b)");

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let prose = &**exchange.prose;
    let words = exchange.language.map(|language| language.places(prose, exchange.memo));
    let endings =
        words.iter().flat_map(|words| words.iter()).filter(|place| place.classes.has(WordClass::Ending));
    let named = endings.filter_map(|place| {
        let pattern = if place.value == DIGITS { &*NEAR } else { &*BEHIND };
        Some(pattern.captures(prose.get(place.at.end..)?)?.get(1)?.as_str())
    });
    let masked = MASKED.captures_iter(prose).filter_map(|found| Some(found.get(1)?.as_str()));
    for digits in named.chain(masked).take(MAX_ENDINGS) {
        if !exchange.spends_search() || !exchange.spends(exchange.sources.fields()) {
            return;
        }
        let records = || exchange.sources.records();
        let named = records().find_map(|(source, _, record)| {
            let field = record.fields.iter().find(|field| is_named_by_its_end(field))?;
            Some((source, field))
        });
        let Some((source, field)) = named else { return };
        findings.examined = true;
        let ends = |field: &RecordField| letters_and_digits(field.shown()).ends_with(digits);
        let is_known = records().any(|(.., record)| record.fields.iter().any(ends));
        if is_known || exchange.sources.have_seen(digits) {
            continue;
        }
        let returned =
            format!("{}: {}, and nothing that ends in {}", field.name.join(" "), field.shown(), digits);
        let sentence = exchange.sentence_at(digits.as_ptr().addr() - prose.as_ptr().addr());
        findings.contradicts(&returned, source.call, sentence);
        return;
    }
}

fn letters_and_digits(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}

/// Whether a field is a masked number, a long one, or one whose key names its last digits.
fn is_named_by_its_end(field: &RecordField) -> bool {
    let digits = field.shown().bytes().filter(u8::is_ascii_digit).count();
    let is_masked =
        field.shown().contains("**") || field.shown().contains("••") || field.shown().contains("XX");
    let is_last = field.name.iter().any(|word| word.starts_with("last"));
    let letters = field.shown().bytes().filter(u8::is_ascii_lowercase).count();
    digits >= 3 && (is_masked || is_last) || digits >= MIN_LONG && letters <= 2
}
