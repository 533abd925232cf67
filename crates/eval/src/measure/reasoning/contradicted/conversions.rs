//! Units converted by a wrong power of ten: 3.2 m³, and an answer of 320 litres.
//!
//! Principle: between units that differ by a power of ten, a value has one conversion. A number of the answer with the
//! digits of a field in another unit of the same quantity is a wrong conversion if it differs from the conversion by a
//! power of ten, unless a text, a field or a sum has the number, or a text mentions a factor of ten.
//!
//! In: the numbers of an answer with their units, and the fields with theirs. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use super::misattributed_values::unstructured;
use super::other_unit::{unit_of, unit_of_number};
use crate::measure::numbers::{self, Number};
use crate::measure::units::Unit;
use crate::measure::vocabulary::{self, WordMeaning};

/// Minimum digits of a number that is compared, without zeros at its ends.
const MIN_DIGITS: usize = 2;
/// Maximum numbers of an answer that are compared.
const MAX_NUMBERS: usize = 64;
/// Maximum fields that are compared.
const MAX_FIELDS: usize = 2_000;
/// The largest power of ten by which a conversion may be wrong.
const MAX_POWER: i32 = 9;
/// Relative tolerance for rounding errors of floating-point numbers.
const ROUNDING_ERROR: f64 = 1e-9;
/// Numbers in texts that may explain a factor of ten, a hundred and so on.
const POWERS_OF_TEN: [f64; 12] = [10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 0.1, 0.01, 0.001, 1e-4, 90.0, 0.9];

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    if exchange.sources.structured.is_empty() {
        return;
    }
    let is_compared = |n: &Number| !n.in_identifier && n.bare.is_none() && digit_count(n.value) >= MIN_DIGITS;
    let stated: Vec<(Number, Unit)> = numbers::all(&exchange.prose)
        .into_iter()
        .filter(is_compared)
        .filter_map(|n| Some((n, unit_of_number(&exchange.prose, &n).filter(|unit| unit.size.is_some())?)))
        .take(MAX_NUMBERS)
        .collect();
    if stated.is_empty()
        || !exchange.spends(exchange.sources.field_count().min(MAX_FIELDS) * (1 + stated.len() / 4))
    {
        return;
    }
    let fields: Vec<_> = exchange
        .sources
        .records()
        .flat_map(|(source, _, record)| record.fields.iter().map(move |field| (source, record, field)))
        .filter_map(|(source, record, field)| Some((source, record, field, field.number()?.abs())))
        .take(MAX_FIELDS)
        .collect();
    for (n, unit) in stated {
        let is_stated_value = |value: f64| {
            value > 0.0 && n.possible_values().any(|v| (v - value).abs() <= value * ROUNDING_ERROR)
        };
        // The power of ten by which the stated number differs from the conversion of a value.
        let shift_of = |value: f64, power: i32| {
            let expected = value * 10f64.powi(power);
            (-MAX_POWER..=MAX_POWER).find(|k| is_stated_value(expected * 10f64.powi(*k)))
        };
        // Units are looked up only for values with the same digits.
        let same_digits = fields.iter().filter(|(.., value)| shift_of(*value, 0).is_some());
        let conversions: Vec<_> = same_digits
            .filter_map(|(source, record, field, value)| {
                let field_unit = unit_of(source, record, field)?;
                let is_other = field_unit.quantity == unit.quantity && field_unit != unit;
                Some((source, field, field_unit, shift_of(*value, field_unit.power_of(&unit)?)?))
                    .filter(|_| is_other)
            })
            .collect();
        let Some((source, field, field_unit, _)) = conversions.first() else { continue };
        findings.examined = true;
        let is_correct = conversions.iter().any(|(.., shift)| *shift == 0)
            || fields.iter().any(|(.., value)| is_stated_value(*value));
        if is_correct || !exchange.spends_numbers() {
            continue;
        }
        let has = |text: &str| {
            numbers::all(text).iter().any(|number| number.possible_values().any(is_stated_value))
        };
        let is_power_of_ten =
            |n: &Number| !n.in_identifier && n.possible_values().any(|v| POWERS_OF_TEN.contains(&v));
        let texts = || exchange.sources.seen.iter().map(|text| &***text).chain([exchange.answer]);
        let may_be_factor = || {
            texts().any(|text| {
                numbers::all(text).iter().any(is_power_of_ten) || vocabulary::has(text, WordMeaning::Tens)
            })
        };
        let parsed = || exchange.sources.structured.iter().filter_map(|source| source.parsed.0.as_ref());
        // The answer may convert a sum of several values.
        let is_sum = || {
            let mut sums = parsed().flat_map(|parsed| parsed.aggregates());
            sums.any(|sum| (-MAX_POWER..=MAX_POWER).any(|k| is_stated_value(sum.abs() * 10f64.powi(k))))
        };
        if !unstructured(&exchange.sources).any(has) && !is_sum() && !may_be_factor() {
            let returned = format!("{}: {} {}", field.name.join(" "), field.shown(), field_unit.symbol);
            findings.contradicts(&returned, source.call, exchange.sentence_at(n.start));
            return;
        }
    }
}

/// The number of digits without zeros at the ends.
fn digit_count(value: f64) -> usize {
    format!("{value}").replace('.', "").trim_matches('0').len()
}
