//! The last digits of an identifier: "the card ending in 4471" where the results have one that ends in 4417.
//!
//! It is a contradiction if nothing that the model had seen has these digits, and a result has a number that is masked
//! or long enough to be named by its last digits.

use super::exchange::{Exchange, Outcome};
use crate::measure::reasoning::records::Field;

/// Fewest digits of a number that is named by its last ones.
const MIN_LONG: usize = 8;
const MAX_ENDINGS: usize = 16;

// Two asterisks are a mark of bold text, more of them hide digits.
regex!(
    ENDING,
    r"(?i)(?:\b(?:ending|ends?) (?:in|with)|\blast (?:two|three|four|five|six|[2-6]) digits(?: of [\w ]{1,20})?(?: are| is)?:?|\bendet auf|\bendend auf|\bmit den endziffern|\b(?:se )?termin(?:ant|e) par|\bfinissant par|\bterminad[ao] e[nm]|\b(?:que )?termina e[nm]|\bche termina con|末尾(?:が|は)?|尾号(?:为|是)?|(?:\*{3,}|•{2,})[ -]?) ?[*•#.…]*(?P<digits>\d{3,6})\b"
);

pub(super) fn check(exchange: &Exchange<'_>, outcome: &mut Outcome) {
    if !exchange.has_digits {
        return;
    }
    let prose = &**exchange.prose;
    for found in ENDING.captures_iter(prose).take(MAX_ENDINGS) {
        let Some(digits) = found.name("digits") else { continue };
        if !exchange.spends_search() || !exchange.spends(exchange.sources.fields()) {
            return;
        }
        let records = || exchange.sources.records();
        let named = records().find_map(|(source, _, record)| {
            let field = record.fields.iter().find(|field| is_named_by_its_end(field))?;
            Some((source, field))
        });
        let Some((source, field)) = named else { return };
        outcome.examined = true;
        let ends = |field: &Field| plain(field.shown()).ends_with(digits.as_str());
        let is_known = records().any(|(.., record)| record.fields.iter().any(ends));
        if is_known || exchange.sources.have_seen(digits.as_str()) {
            continue;
        }
        let returned = format!(
            "{}: {}, and nothing that ends in {}",
            field.name.join(" "),
            field.shown(),
            digits.as_str()
        );
        let sentence = exchange.sentence_at(digits.start());
        outcome.contradicts(&returned, source.call.name.trim(), Some(source.call.at), sentence);
        return;
    }
}

fn plain(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}

/// A masked number, a long one, or one whose key says so.
fn is_named_by_its_end(field: &Field) -> bool {
    let digits = field.shown().bytes().filter(u8::is_ascii_digit).count();
    let is_masked =
        field.shown().contains("**") || field.shown().contains("••") || field.shown().contains("XX");
    let is_last = field.name.iter().any(|word| word.starts_with("last"));
    let letters = field.shown().bytes().filter(u8::is_ascii_lowercase).count();
    digits >= 3 && (is_masked || is_last) || digits >= MIN_LONG && letters <= 2
}
