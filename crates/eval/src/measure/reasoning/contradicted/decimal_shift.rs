//! Numbers with a shifted decimal point: a cost of 16,438.00, where the result has 164380 cents.
//!
//! Principle: a number with the digits of a field, and ten times its value or a tenth of it, is the misread value of
//! the field. Only units of lengths and volumes (mm and cm, cl and dl) differ by ten, and four equal digits are not a
//! coincidence.
//!
//! In: the numbers of an answer and of the results. Out: one contradiction, if no text has the number.

use super::exchange::{Exchange, ExchangeFindings};
use super::misattributed_values::unstructured;
use crate::measure::language::names::names_identifier;
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::statements::words_of;
use crate::measure::records::RecordField;
use crate::measure::units::{self, Unit, possible_unit};
use crate::measure::vocabulary::{self, WordMeaning};

/// Minimum digits of a number that is compared, without zeros at its ends.
const MIN_DIGITS: usize = 4;
/// Maximum numbers of an answer that are compared.
const MAX_NUMBERS: usize = 64;
/// Maximum fields that are compared.
const MAX_FIELDS: usize = 2_000;
/// Words in keys of times and codes, which are not quantities, besides those of identifiers.
const NOT_QUANTITY: [&str; 4] = ["timestamp", "time", "phone", "zip"];
/// Relative tolerance for rounding errors of floating-point numbers.
const ROUNDING_ERROR: f64 = 1e-9;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    if exchange.sources.structured.is_empty() {
        return;
    }
    let has_digits = |n: &Number| !n.in_identifier && digit_count(n.value) >= MIN_DIGITS && n.bare.is_none();
    let stated: Vec<Number> =
        numbers::all(&exchange.prose).into_iter().filter(has_digits).take(MAX_NUMBERS).collect();
    if stated.is_empty()
        || !exchange.spends(exchange.sources.field_count().min(MAX_FIELDS) * (1 + stated.len() / 4))
    {
        return;
    }
    let is_no_quantity = |word: &String| NOT_QUANTITY.contains(&word.as_str()) || names_identifier(word);
    let is_quantity = |field: &RecordField| !field.name.iter().any(is_no_quantity);
    let fields: Vec<(&RecordField, f64, _)> = exchange
        .sources
        .records()
        .flat_map(|(source, _, record)| record.fields.iter().map(move |field| (field, source)))
        .filter_map(|(field, source)| Some((field, field.number()?.abs(), source)))
        .take(MAX_FIELDS)
        .collect();
    for n in stated {
        let has_scaled_value = |value: f64, factor: f64| {
            n.possible_values().any(|v| (v * factor - value).abs() <= value.abs() * ROUNDING_ERROR)
        };
        // Whether the stated number is the value, possibly by another power of ten than one.
        let is_value =
            |value: f64| (-6..=6).any(|k: i32| k.abs() != 1 && has_scaled_value(value, 10f64.powi(k)));
        let is_shifted = |field: &RecordField, value: f64| {
            is_quantity(field) && (has_scaled_value(value, 10.0) || has_scaled_value(value, 0.1))
        };
        let Some((field, _, source)) = fields.iter().find(|(field, value, _)| is_shifted(field, *value))
        else {
            continue;
        };
        findings.examined = true;
        if fields.iter().any(|(_, value, _)| is_value(*value))
            || !exchange.spends_numbers()
            || may_differ_by_ten(exchange, field)
        {
            continue;
        }
        let is_told =
            |text: &str| numbers::all(text).iter().any(|number| number.possible_values().any(is_value));
        let parsed = || exchange.sources.structured.iter().filter_map(|source| source.parsed.0.as_ref());
        let is_sum = parsed().any(|parsed| parsed.aggregates().iter().any(|sum| is_value(sum.abs())));
        if !is_sum && !unstructured(&exchange.sources).any(is_told) {
            let returned = format!("{}: {}", field.name.join(" "), field.shown());
            let sentence = exchange.sentence_at(n.start);
            findings.contradicts(&returned, source.call, sentence);
            return;
        }
    }
}

/// The number of digits without zeros at the ends.
fn digit_count(value: f64) -> usize {
    let shown = format!("{value}").replace('.', "");
    shown.trim_matches('0').len()
}

/// Whether a factor of ten may have another reason: a rate of 10 %, ten things, or units that differ by ten.
fn may_differ_by_ten(exchange: &Exchange<'_>, field: &RecordField) -> bool {
    let is_ten = |n: &Number| n.possible_values().any(|v| v == 10.0 || v == 0.1 || v == 90.0 || v == 0.9);
    let words = words_of(&exchange.prose);
    let mut words = words.split(' ').chain(field.name.iter().map(String::as_str));
    let may_differ_tenfold =
        |unit: Unit| units::all().any(|other| other.power_of(&unit).is_some_and(|k| k.abs() == 1));
    let parsed = || exchange.sources.structured.iter().filter_map(|source| source.parsed.0.as_ref());
    let texts = || exchange.sources.seen.iter().map(|text| &***text).chain([exchange.answer]);
    words.any(|word| possible_unit(word).is_some_and(may_differ_tenfold))
        || vocabulary::has(&exchange.prose, WordMeaning::Tens)
        || parsed().any(|parsed| parsed.lengths().any(|len| len == 10 || len == 9))
        || texts().any(|text| numbers::all(text).iter().any(is_ten))
}
