//! Values with another unit than the result's: 850 g, where the result has 850 mg; 120 €, where it has 120 USD.
//!
//! Principle: a number keeps its unit. Where a field states its unit (in its name, or in a field for the unit of its
//! record), an answer that gives this number with another unit of the same quantity has misread it, unless anything
//! that the model had seen gives the number with that unit, or without one.

use super::exchange::{Exchange, ExchangeFindings};
use super::misattributed_values::unstructured;
use crate::measure::excerpt::lowercase;
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::rates::is_for_each;
use crate::measure::records::{Record, RecordField};
use crate::measure::units::{self, Unit};
use crate::measure::vocabulary::{self, WordMeaning};

/// Most numbers of an answer, and fields, that are compared.
const MAX_NUMBERS: usize = 64;
const MAX_FIELDS: usize = 2_000;
/// Whole numbers up to this one are too common.
const SMALL: f64 = 9.0;
/// Names of several words of fields that have the unit of the others.
const UNIT_FIELDS: [&str; 2] = ["unit of measure", "currency code"];
const HOURS_OF_DAY: f64 = 24.0;
/// The seconds of units of time, which are no powers of ten of each other.
const SECONDS: [(&str, f64); 6] =
    [("ms", 1e-3), ("sec", 1.0), ("min", 60.0), ("hours", 3600.0), ("days", 86_400.0), ("weeks", 604_800.0)];
/// Most bytes of a unit next to a number.
const MAX_UNIT: usize = 16;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    if exchange.sources.structured.is_empty() {
        return;
    }
    let is_telling = |n: &Number| !n.in_identifier && (n.value > SMALL || n.fractional);
    let stated: Vec<(Number, Unit)> = numbers::all(&exchange.prose)
        .into_iter()
        .filter(is_telling)
        .filter_map(|n| Some((n, unit_of_number(&exchange.prose, &n)?)))
        .take(MAX_NUMBERS)
        .collect();
    if stated.is_empty()
        || !exchange.spends(exchange.sources.fields().min(MAX_FIELDS) * (1 + stated.len() / 4))
    {
        return;
    }
    let fields = || {
        let records = exchange.sources.records();
        records
            .flat_map(|(source, _, record)| record.fields.iter().map(move |f| (source, record, f)))
            .take(MAX_FIELDS)
    };
    for (n, unit) in stated {
        let has_stated_number = |field: &RecordField| {
            field.number().is_some_and(|value| n.possible_values().any(|v| v == value.abs()))
        };
        let matching_fields: Vec<_> = fields().filter(|(_, _, field)| has_stated_number(field)).collect();
        let units: Vec<Option<Unit>> =
            matching_fields.iter().map(|(_, record, field)| unit_of(record, field)).collect();
        let (Some((source, _, field)), Some(Some(field_unit))) = (matching_fields.first(), units.first())
        else {
            continue;
        };
        let is_other = |candidate: &Option<Unit>| {
            candidate.is_some_and(|other| other.quantity == unit.quantity && other != unit)
        };
        // "3.200 Liter" are 3.2 m³ in the other reading of the dot.
        let converts = |(_, _, field): &(_, _, &RecordField)| {
            let factor = field_unit
                .power
                .zip(unit.power)
                .map(|(field_power, stated_power)| 10f64.powi(field_power - stated_power));
            let value = field.number().zip(factor).map(|(value, factor)| value.abs() * factor);
            value.is_some_and(|value| n.possible_values().any(|v| (v - value).abs() <= value * 1e-9))
        };
        // 60 laps of 12 minutes are 12 hours: the number comes back with the larger unit.
        let is_multiple = || {
            let Some(ratio) = ratio(field_unit, &unit) else { return false };
            let is_count =
                |number: &Number| !number.in_identifier && number.possible_values().any(|v| v == ratio);
            let fields_have = fields().any(|(_, _, field)| field.number() == Some(ratio));
            let texts = exchange.sources.seen.iter().map(|text| &***text).chain([&**exchange.prose]);
            fields_have
                || exchange.spends_numbers()
                    && texts.into_iter().any(|text| numbers::all(text).iter().any(is_count))
        };
        findings.examined = true;
        if is_hours_of_day(exchange, &n, &unit) || matching_fields.iter().any(converts) || is_multiple() {
            continue;
        }
        // Nothing else that was seen has the number.
        if units.iter().all(is_other)
            && exchange.spends_numbers()
            && !unstructured(&exchange.sources).any(|text| has_number(text, &n))
        {
            let returned = format!("{}: {} {}", field.name.join(" "), field.shown(), field_unit.symbol);
            let sentence = exchange.sentence_at(n.start);
            findings.contradicts(&returned, source.call, sentence);
            return;
        }
    }
}

/// How many of the unit `small` are one of `large`, if that is more than one.
fn ratio(small: &Unit, large: &Unit) -> Option<f64> {
    let seconds = |unit: &Unit| SECONDS.iter().find(|(symbol, _)| *symbol == unit.symbol).map(|(_, s)| *s);
    let ratio = match (small.power, large.power) {
        (Some(small), Some(large)) => 10f64.powi(large.checked_sub(small)?),
        _ => seconds(large)? / seconds(small)?,
    };
    Some(ratio).filter(|ratio| *ratio > 1.0)
}

/// "24 hours a day" is the whole day, and no duration of anything.
fn is_hours_of_day(exchange: &Exchange<'_>, n: &Number, unit: &Unit) -> bool {
    n.value == HOURS_OF_DAY && unit.symbol == "hours" && is_for_each(&exchange.prose, n, exchange.language)
}

fn has_number(text: &str, n: &Number) -> bool {
    numbers::all(text).iter().any(|number| number.possible_values().any(|v| v == n.value))
}

/// The unit directly after a number, or of money before it.
pub(super) fn unit_of_number(text: &str, n: &Number) -> Option<Unit> {
    let after = text.get(n.end..)?.trim_start_matches([' ', '\u{a0}', '*']);
    let word: String =
        after.chars().take_while(|c| c.is_alphanumeric() || "€$£¥/µμ".contains(*c)).take(MAX_UNIT).collect();
    let before = text.get(..n.start)?.trim_end_matches([' ', '\u{a0}', '*']);
    let sign = before.chars().next_back().filter(|c| "€$£¥".contains(*c)).map(|c| c.to_string());
    // "5 mg/kg" is no amount in milligrams.
    units::unit_for_word(&lowercase(&word)).or_else(|| units::unit_for_word(&sign?))
}

/// The unit of a field: that of its name, or that of a field for the unit of its record.
pub(super) fn unit_of(record: &Record, field: &RecordField) -> Option<Unit> {
    // The key "kWh" has the words "k" and "wh".
    let name_unit = || {
        let joined = units::unit_for_word(&field.name.get(field.name.len().checked_sub(2)?..)?.concat());
        joined.or_else(|| units::unit_for_word(field.name.last()?))
    };
    let is_unit =
        |name: &str| vocabulary::has_meaning(name, WordMeaning::Unit) || UNIT_FIELDS.contains(&name);
    let stated = |other: &&RecordField| is_unit(&other.name.join(" "));
    let record_unit = || units::unit_for_word(record.fields.iter().find(stated)?.text()?.trim());
    name_unit().or_else(record_unit)
}
