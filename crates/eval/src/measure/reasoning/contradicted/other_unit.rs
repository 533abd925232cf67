//! Values with another unit than the result's: 850 g, where the result has 850 mg; 120 €, where it has 120 USD.
//!
//! Principle: a number keeps its unit. Where a field states its unit (in its name, or in a field for the unit of its
//! record), an answer that gives this number with another unit of the same quantity has misread it, unless anything
//! that the model had seen gives the number with that unit, or without one.

use super::exchange::{Exchange, Outcome};
use super::misattributed_values::unstructured;
use crate::measure::excerpt::lowercase;
use crate::measure::numbers::{self, Number};
use crate::measure::records::{Field, Record};
use crate::measure::units::{self, Unit};

/// Most numbers of an answer, and fields, that are compared.
const MAX_NUMBERS: usize = 64;
const MAX_FIELDS: usize = 2_000;
/// Whole numbers up to this one are too common.
const SMALL: f64 = 9.0;
/// Names of fields whose value is the unit of the other fields.
const UNIT_FIELDS: [&str; 6] = ["unit", "units", "uom", "currency", "unit of measure", "currency code"];
/// Most bytes of a unit next to a number.
const MAX_UNIT: usize = 16;

pub(super) fn check(exchange: &Exchange<'_>, outcome: &mut Outcome) {
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
        let is =
            |field: &Field| field.number().is_some_and(|value| n.possible_values().any(|v| v == value.abs()));
        let same: Vec<_> = fields().filter(|(_, _, field)| is(field)).collect();
        let units: Vec<Option<Unit>> = same.iter().map(|(_, record, field)| unit_of(record, field)).collect();
        let (Some((source, _, field)), Some(Some(own))) = (same.first(), units.first()) else { continue };
        let is_other = |of: &Option<Unit>| of.is_some_and(|of| of.quantity == unit.quantity && of != unit);
        outcome.examined = true;
        // Nothing else that was seen has the number.
        if units.iter().all(is_other)
            && exchange.spends_numbers()
            && !unstructured(&exchange.sources).any(|text| has_number(text, &n))
        {
            let returned = format!("{}: {} {}", field.name.join(" "), field.shown(), own.symbol);
            let sentence = exchange.sentence_at(n.start);
            outcome.contradicts(&returned, source.call, sentence);
            return;
        }
    }
}

fn has_number(text: &str, n: &Number) -> bool {
    numbers::all(text).iter().any(|of| of.possible_values().any(|v| v == n.value))
}

/// The unit directly after a number, or of money before it.
fn unit_of_number(text: &str, n: &Number) -> Option<Unit> {
    let after = text.get(n.end..)?.trim_start_matches([' ', '\u{a0}', '*']);
    let word: String =
        after.chars().take_while(|c| c.is_alphanumeric() || "€$£¥/µμ".contains(*c)).take(MAX_UNIT).collect();
    let before = text.get(..n.start)?.trim_end_matches([' ', '\u{a0}', '*']);
    let sign = before.chars().next_back().filter(|c| "€$£¥".contains(*c)).map(|c| c.to_string());
    // "5 mg/kg" is no amount in milligrams.
    units::of(&lowercase(&word)).or_else(|| units::of(&sign?))
}

/// The unit of a field: that of its name, or that of a field for the unit of its record.
fn unit_of(record: &Record, field: &Field) -> Option<Unit> {
    // The key "kWh" has the words "k" and "wh".
    let of_name = || {
        let joined = units::of(&field.name.get(field.name.len().checked_sub(2)?..)?.concat());
        joined.or_else(|| units::of(field.name.last()?))
    };
    let stated = |of: &&Field| UNIT_FIELDS.contains(&of.name.join(" ").as_str());
    let of_record = || units::of(record.fields.iter().find(stated)?.text()?.trim());
    of_name().or_else(of_record)
}
