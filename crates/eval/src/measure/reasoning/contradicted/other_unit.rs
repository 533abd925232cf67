//! Values with another unit than that of the result: 850 g, where the result has 850 mg; 120 €, where it has 120 USD.
//!
//! Principle: a number keeps its unit. If the unit of a field is known (by its key, or by another field of its
//! record), an answer with the number and another unit of the same quantity is a contradiction, unless another text
//! that the model read has the number.
//!
//! In: the numbers of an answer with their units, and the fields of results with theirs. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use super::misattributed_values::unstructured;
use super::sources::ResultSource;
use crate::measure::excerpt::lowercase;
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::rates::is_for_each;
use crate::measure::records::{Record, RecordField};
use crate::measure::units::{self, Unit};
use crate::measure::vocabulary::{self, WordMeaning};

/// Maximum numbers of an answer that are compared.
const MAX_NUMBERS: usize = 64;
/// Maximum fields that are compared.
const MAX_FIELDS: usize = 2_000;
/// Whole numbers up to this one are not compared, since they are common.
const MAX_SMALL_NUMBER: f64 = 9.0;
/// Keys of several words for a field with the unit of the other fields of its record.
const UNIT_KEYS: [&str; 2] = ["unit of measure", "currency code"];
const HOURS_OF_DAY: f64 = 24.0;
/// Maximum levels of records that contain a field.
const MAX_LEVELS: usize = 4;
/// Maximum characters of a unit next to a number.
const MAX_UNIT: usize = 16;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    if exchange.sources.structured.is_empty() {
        return;
    }
    let is_compared = |n: &Number| !n.in_identifier && (n.value > MAX_SMALL_NUMBER || n.fractional);
    let stated: Vec<(Number, Unit)> = numbers::all(&exchange.prose)
        .into_iter()
        .filter(is_compared)
        .filter_map(|n| Some((n, unit_of_number(&exchange.prose, &n)?)))
        .take(MAX_NUMBERS)
        .collect();
    if stated.is_empty()
        || !exchange.spends(exchange.sources.field_count().min(MAX_FIELDS) * (1 + stated.len() / 4))
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
            matching_fields.iter().map(|(source, record, field)| unit_of(source, record, field)).collect();
        let (Some((source, _, field)), Some(Some(field_unit))) = (matching_fields.first(), units.first())
        else {
            continue;
        };
        let is_other = |candidate: &Option<Unit>| {
            candidate.is_some_and(|other| other.quantity == unit.quantity && other != unit)
        };
        // Another reading of the number may be the converted value: "3.200 Liter" are 3.2 m³.
        let is_converted = |(_, _, field): &(_, _, &RecordField)| {
            let factor = field_unit.in_units(&unit);
            let value = field.number().zip(factor).map(|(value, factor)| value.abs() * factor);
            value.is_some_and(|value| n.possible_values().any(|v| (v - value).abs() <= value * 1e-9))
        };
        // A multiple may have the same number with a larger unit: 60 laps of 12 minutes are 12 hours.
        let is_multiple = || {
            let ratio = unit.in_units(field_unit).filter(|ratio| *ratio > 1.0);
            let Some(ratio) = ratio else { return false };
            let is_count =
                |number: &Number| !number.in_identifier && number.possible_values().any(|v| v == ratio);
            let is_in_fields = fields().any(|(_, _, field)| field.number() == Some(ratio));
            let texts = exchange.sources.seen.iter().map(|text| &***text).chain([&**exchange.prose]);
            is_in_fields
                || exchange.spends_numbers()
                    && texts.into_iter().any(|text| numbers::all(text).iter().any(is_count))
        };
        findings.examined = true;
        if is_hours_of_day(exchange, &n, &unit) || matching_fields.iter().any(is_converted) || is_multiple() {
            continue;
        }
        // No other text has the number.
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

/// Whether a number is the 24 of "24 hours a day", which is not a duration.
fn is_hours_of_day(exchange: &Exchange<'_>, n: &Number, unit: &Unit) -> bool {
    n.value == HOURS_OF_DAY && unit.symbol == "hours" && is_for_each(&exchange.prose, n, exchange.language)
}

/// Whether a text has a number with the same value.
fn has_number(text: &str, n: &Number) -> bool {
    numbers::all(text).iter().any(|number| number.possible_values().any(|v| v == n.value))
}

/// The unit directly after a number, or the currency sign before it.
pub(super) fn unit_of_number(text: &str, n: &Number) -> Option<Unit> {
    let after = text.get(n.end..)?.trim_start_matches([' ', '\u{a0}', '*']);
    let word: String =
        after.chars().take_while(|c| c.is_alphanumeric() || "€$£¥/µμ".contains(*c)).take(MAX_UNIT).collect();
    let before = text.get(..n.start)?.trim_end_matches([' ', '\u{a0}', '*']);
    let sign = before.chars().next_back().filter(|c| "€$£¥".contains(*c)).map(|c| c.to_string());
    // The whole word is looked up, since "5 mg/kg" is not in milligrams.
    units::unit_for_word(&lowercase(&word)).or_else(|| units::unit_for_word(&sign?))
}

/// The unit of a field, by its key, or by a field for the unit in its record or in a record that contains it.
pub(super) fn unit_of(source: &ResultSource<'_>, record: &Record, field: &RecordField) -> Option<Unit> {
    // The key "kWh" has the words "k" and "wh".
    let name_unit = || {
        let joined = units::unit_for_word(&field.name.get(field.name.len().checked_sub(2)?..)?.concat());
        joined.or_else(|| units::unit_for_word(field.name.last()?))
    };
    let is_unit = |name: &str| vocabulary::has_meaning(name, WordMeaning::Unit) || UNIT_KEYS.contains(&name);
    // "weight_unit" is the unit of "weight".
    let is_unit_of_field = |name: &[String]| {
        name.split_last().is_some_and(|(last, words)| {
            !words.is_empty()
                && vocabulary::has_meaning(last, WordMeaning::Unit)
                && words.iter().all(|word| field.name.contains(word))
        })
    };
    let stated = |other: &&RecordField| is_unit(&other.name.join(" ")) || is_unit_of_field(&other.name);
    let records = source.parsed.0.as_ref().map_or(&[][..], |parsed| parsed.records.as_slice());
    let parent = |record: &&Record| records.get(record.parent?);
    let mut units = std::iter::successors(Some(record), parent)
        .take(MAX_LEVELS)
        .filter_map(|record| units::unit_for_word(record.fields.iter().find(stated)?.text()?.trim()));
    name_unit().or_else(|| units.next())
}
