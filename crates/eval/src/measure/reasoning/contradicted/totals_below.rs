//! Totals in a sentence below the listed parts: "- A: 2 left", "- B: 29 left", and "So 67 seats remain in total".
//!
//! Principle: a short sentence directly below a list whose lines have one number each, all of one unit, gives their
//! total if it has a word for a total and no other number. The parts add up to the total, unless a number explains the
//! difference, as in `totals`.
//!
//! In: the lines of an answer. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use super::totals::{adds_up, has_one_number, is_multiple, wrong_total};
use crate::measure::language::{WordClasses, classes};
use crate::measure::numbers::{self, Number};
use crate::measure::vocabulary::{self, WordMeaning};

/// Minimum parts of a total.
const MIN_PARTS: usize = 2;
/// Maximum parts of a total.
const MAX_PARTS: usize = 50;
/// Maximum words of the sentence.
const MAX_WORDS: usize = 10;
/// Maximum bytes of the text after the number of a part.
const MAX_UNIT: usize = 32;
/// Words by which the sentence gives another number than the total of the parts.
const OTHER_NUMBER: WordClasses = classes!(Comparison Exception Alternative Neighbour Condition Modal Number);

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let prose = exchange.grouped();
    if !exchange.spends(1 + prose.len() / 32) {
        return;
    }
    let mut parts: Vec<(Number, &str)> = Vec::new();
    for line in prose.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match part(line).filter(|(_, unit)| parts.first().is_none_or(|(_, first)| first == unit)) {
            Some(part) if parts.len() < MAX_PARTS => parts.push(part),
            _ => {
                let parts_above: Vec<Number> = parts.drain(..).map(|(n, _)| n).collect();
                let Some(total) = total(exchange, line, &parts_above) else { continue };
                findings.examined = true;
                if !adds_up(exchange, &parts_above, &total) {
                    findings.entries.push((wrong_total(&parts_above, &total, line), None));
                    return;
                }
            }
        }
    }
}

/// The number of a list item that has only one number, and the text after it.
fn part(line: &str) -> Option<(Number, &str)> {
    if !line.starts_with(['-', '*', '•']) || !has_one_number(line) {
        return None;
    }
    let n = numbers::all(line).into_iter().rfind(|n| !n.in_identifier)?;
    let unit = line.get(n.end..)?.trim_matches(|c: char| !c.is_alphanumeric());
    (!unit.is_empty() && unit.len() <= MAX_UNIT).then_some((n, unit))
}

/// The total that a line gives for the parts above it.
fn total(exchange: &Exchange<'_>, line: &str, parts: &[Number]) -> Option<Number> {
    let is_short = parts.len() >= MIN_PARTS && line.split_whitespace().count() <= MAX_WORDS;
    if !is_short || vocabulary::find(line, &[WordMeaning::Total]).is_empty() {
        return None;
    }
    let [total] = numbers::all(line).try_into().ok()?;
    let is_other = || exchange.language.is_none_or(|language| language.classes(line).has_any(OTHER_NUMBER));
    let is_smaller_than_part = || parts.iter().any(|part| part.value > total.value);
    (!total.in_identifier && !is_smaller_than_part() && !is_multiple(parts, &total) && !is_other())
        .then_some(total)
}
