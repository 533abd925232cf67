//! Wrong arithmetic in an answer: "36 × 371.65 = 14,139.40", "from 412,300 to 455,900, which is +24.7 %".
//!
//! Principle: arithmetic that an answer writes out is correct within the rounding of the shown numbers. Whether the
//! numbers are the right ones is not examined.
//!
//! In: an answer. Out: a contradiction if an equation is wrong, or if a percentage next to two amounts is not their
//! change, ratio or share. Rounding of every shown number and a change of units are allowed.

use super::changes::is_share;
use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::defects::Defect;
use crate::measure::excerpt::lowercase;
use crate::measure::language::{Language, names};
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::answer::sentences;
use crate::measure::reasoning::arithmetic::{converts, named_factors};
use crate::measure::reasoning::dates::begins_with_month;
use crate::measure::reasoning::rates::is_for_each;

/// Maximum numbers of one equation.
const MAX_TERMS: usize = 8;
/// Maximum combinations of readings of the numbers of one equation: "1.234" has two readings.
const MAX_READINGS: usize = 64;
/// Maximum characters of units between two numbers of an equation.
const MAX_UNIT_LENGTH: usize = 24;
const PERCENT: f64 = 100.0;

// Two amounts of a change: "from 412,300 to 455,900".
regex!(
    FROM_TO,
    r"(?i)\b(?:from|von|de|da|del|dal|du)\s+\W{0,3}(?:[a-z]{3}\s)?(?P<a>\d[\d.,' ]*\d|\d)[^\d.;!?]{0,16}?\s(?:to|auf|à|a|para)\s+\W{0,3}(?:[a-z]{3}\s)?(?P<b>\d[\d.,' ]*\d|\d)"
);
// A share with its amounts: "41 % (371,850 of 1,326,000)".
regex!(
    SHARE,
    r"(?i)(?P<p>\d+(?:[.,]\d+)?) ?%\s*\(\W{0,3}(?P<a>\d[\d.,' ]*\d|\d)[^\d.;!?()]{0,24}?\s(?:of|out of|von|de|di|sur)\s+\W{0,3}(?P<b>\d[\d.,' ]*\d|\d)"
);

// Words between two amounts and their change.
regex!(
    STATES_CHANGE,
    r"(?i)\b(?:which is|that is|that's|i\.e\.|an? (?:rise|increase|growth|drop|decrease|decline|fall|change|gain|reduction)|equals|also|soit|ossia|es decir|ou seja)\b|[=(+−]\s*$"
);
// The text around a number that is part of a time of day: an hour before it, and minutes or an hour sign after it.
regex!(CLOCK_BEFORE, r"(?i)\d ?h ?$");
regex!(CLOCK_AFTER, r"(?i)^ ?(?:h ?\d|[ap]\.?m\b|uhr\b|o'clock\b)");
/// Maximum bytes between the amounts and the percentage, which are searched for [`STATES_CHANGE`].
const MAX_GAP: usize = 40;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let prose = &**exchange.prose;
    for (start, end) in sentences(prose) {
        let Some(sentence) = prose.get(start..end) else { continue };
        let is_equation = sentence.contains(['=', '≈']);
        if !is_equation && !sentence.contains('%')
            || sentence.contains('?')
            || !exchange.spends(sentence.len() / 4)
        {
            continue;
        }
        let numbers = numbers::all(sentence);
        let wrong_arithmetic =
            if is_equation { wrong_equation(sentence, &numbers, exchange.language, findings) } else { None };
        let wrong_arithmetic = wrong_arithmetic.or_else(|| wrong_percentage(sentence, &numbers, findings));
        if let Some((stated, computed)) = wrong_arithmetic {
            let computed = (computed * 1e4).round() / 1e4;
            let rationale = format!(
                "a result that follows from its terms was expected; they give {computed}, and the answer says {stated}"
            );
            let quote = exchange.answer.get(start..end).unwrap_or(sentence).trim();
            findings.entries.push((Defect::ContradictsResult.finding(rationale, quote), None));
            return;
        }
    }
}

/// A sign between two numbers of an equation.
#[derive(Clone, Copy, PartialEq)]
enum Operator {
    Plus,
    Minus,
    Times,
    Divide,
    Equals { is_approximate: bool },
}

/// The sign between two numbers, if only units are next to it.
fn operator(between: &str) -> Option<Operator> {
    let is_unit = |c: char| c.is_alphabetic() || c.is_whitespace() || "$€£¥%°²³'()*_/".contains(c);
    let mut only_operator = None;
    let mut unit_chars = 0;
    for (at, c) in between.char_indices() {
        let has_spaces_around = || {
            between.get(..at).is_some_and(|s| s.ends_with(' '))
                && between.get(at + 1..).is_some_and(|s| s.starts_with(' '))
        };
        let operator = match c {
            '+' => Some(Operator::Plus),
            '−' => Some(Operator::Minus),
            '-' | '–' if between.get(..at).is_some_and(|s| s.ends_with(' ')) => Some(Operator::Minus),
            '×' | '·' | '⋅' => Some(Operator::Times),
            'x' | '*' if has_spaces_around() => Some(Operator::Times),
            '÷' => Some(Operator::Divide),
            '/' if has_spaces_around() => Some(Operator::Divide),
            '=' => Some(Operator::Equals { is_approximate: false }),
            '≈' => Some(Operator::Equals { is_approximate: true }),
            _ if is_unit(c) => None,
            _ => return None,
        };
        match (operator, only_operator) {
            (Some(_), Some(_)) => return None,
            (Some(operator), None) => only_operator = Some(operator),
            (None, _) => unit_chars += 1,
        }
    }
    only_operator.filter(|_| unit_chars <= MAX_UNIT_LENGTH)
}

/// The first equation whose result does not follow from its operands: the stated result and the computed value.
fn wrong_equation(
    sentence: &str,
    numbers: &[Number],
    language: Option<Language>,
    findings: &mut ExchangeFindings,
) -> Option<(String, f64)> {
    let between = |i: usize| -> Option<Operator> {
        let text = sentence.get(numbers.get(i)?.end..numbers.get(i + 1)?.start)?;
        // The number in brackets repeats the first in another unit: "3.5 h (210 min) = ...".
        (!text.contains('(') || text.contains(')')).then(|| operator(text)).flatten()
    };
    let mut at = 0;
    while at + 1 < numbers.len() {
        let mut operators = Vec::new();
        let mut last = at;
        while let Some(operator) = between(last).filter(|_| operators.len() < MAX_TERMS) {
            operators.push(operator);
            last += 1;
            if matches!(operator, Operator::Equals { .. }) {
                break;
            }
        }
        let terms = numbers.get(at..=last).unwrap_or_default();
        let is_inner_term = numbers
            .get(at)
            .and_then(|n| sentence.get(..n.start))
            .is_some_and(|s| s.trim_end().ends_with(['(', '+', '-', '×', '*', '/', '−', '^', '[']));
        let is_power = sentence.get(terms.first()?.start..terms.last()?.end).is_some_and(|s| s.contains('^'))
            || terms.iter().any(|n| has_exponent(sentence, n));
        if let (Some(Operator::Equals { is_approximate }), [operands @ .., result]) = (operators.last(), terms)
            && operands.len() > 1
            && !is_inner_term
            && !is_power
            // In "2 + 3 = 1 + 4", the number after "=" is not the result.
            && between(last).is_none_or(|next| matches!(next, Operator::Equals { .. }))
            && terms.iter().all(|n| !n.in_identifier && !is_date_or_time(sentence, n))
        {
            findings.examined = true;
            let operators = operators.get(..operands.len() - 1).unwrap_or_default();
            let wrong_arithmetic =
                wrong_result(sentence, operands, operators, result, *is_approximate, language);
            if let Some(computed) = wrong_arithmetic {
                let stated = sentence.get(result.start..result.end).unwrap_or_default();
                return Some((stated.to_owned(), computed));
            }
        }
        at = last.max(at + 1);
    }
    None
}

/// Whether a superscript is directly after a number, which is then raised to a power. After a letter, it belongs to a
/// unit.
fn has_exponent(sentence: &str, n: &Number) -> bool {
    let after = sentence.get(n.end..).unwrap_or_default();
    after.trim_start_matches(')').starts_with(['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹', '⁻', 'ⁿ'])
}

/// Whether a number is a part of a date or of a time of day, whose units are not decimal: "22:15", "22 h 15", "10 pm",
/// "Feb 20", "20/02".
fn is_date_or_time(sentence: &str, n: &Number) -> bool {
    let (before, after) =
        (sentence.get(..n.start).unwrap_or_default(), sentence.get(n.end..).unwrap_or_default());
    let is_joined = |mark: char| {
        before.strip_suffix(mark).is_some_and(|s| s.ends_with(|c: char| c.is_ascii_digit()))
            || after.strip_prefix(mark).is_some_and(|s| s.starts_with(|c: char| c.is_ascii_digit()))
    };
    let month = before.trim_end_matches(['.', ' ']).rsplit(|c: char| !c.is_alphabetic()).next();
    let is_month = |word: &str| word.len() > 2 && names::month_of(&lowercase(word)).is_some();
    [':', '/'].into_iter().any(is_joined)
        || month.is_some_and(is_month)
        || begins_with_month(Some(after))
        || CLOCK_BEFORE.is_match(before)
        || CLOCK_AFTER.is_match(after)
}

/// The computed value, if no reading of the operands gives the stated result.
fn wrong_result(
    sentence: &str,
    operands: &[Number],
    operators: &[Operator],
    result: &Number,
    is_approximate: bool,
    language: Option<Language>,
) -> Option<f64> {
    let is_percent =
        |n: &Number| sentence.get(n.end..).is_some_and(|after| after.trim_start().starts_with('%'));
    // Sums with different units or with percentages are not compared.
    let mut added_terms = operators
        .iter()
        .zip(operands.get(1..)?)
        .filter(|(operator, _)| matches!(operator, Operator::Plus | Operator::Minus));
    if added_terms.clone().next().is_some() {
        // In "98 €/night + 10 € for the dog", the number of nights is not known.
        if operands.iter().any(|n| is_for_each(sentence, n, language)) {
            return None;
        }
        let mut units: Vec<String> =
            operands.iter().map(|n| unit(sentence, n)).filter(|unit| !unit.is_empty()).collect();
        units.dedup();
        if units.len() > 1 || added_terms.any(|(_, n)| is_percent(n)) {
            return None;
        }
    }
    let mut readings: Vec<Vec<f64>> = vec![Vec::new()];
    for n in operands {
        let values: Vec<f64> = n
            .possible_values()
            .flat_map(|v| if is_percent(n) { vec![v, v / PERCENT] } else { vec![v] })
            .collect();
        readings = readings
            .iter()
            .flat_map(|reading| values.iter().map(move |v| reading.iter().copied().chain([*v]).collect()))
            .take(MAX_READINGS)
            .collect();
    }
    let relative_rounding: f64 =
        operands.iter().filter(|n| n.fractional).map(|n| n.tolerance / n.value.max(f64::MIN_POSITIVE)).sum();
    let mut first_computed = None;
    for values in &readings {
        let computed = evaluate(values, operators)?.abs();
        first_computed.get_or_insert(computed);
        let rounding =
            values.iter().zip(operands).filter(|(_, n)| n.fractional).map(|(_, n)| n.tolerance).sum::<f64>();
        for stated in result.possible_values() {
            let scales = [1.0, PERCENT];
            let result_scales = scales.get(..if is_percent(result) { 2 } else { 1 }).unwrap_or_default();
            let relative_tolerance = if is_approximate { 0.02 } else { 0.001 };
            let units = named_factors(sentence);
            let is_near = |computed: f64| {
                let tolerance =
                    result.tolerance + rounding + computed * (relative_rounding + relative_tolerance);
                (computed - stated).abs() <= tolerance
                    || converts(&[computed], stated, tolerance, Some(&units))
            };
            if result_scales.iter().any(|scale| is_near(computed * scale)) {
                return None;
            }
        }
    }
    first_computed
}

/// The unit after a number; empty if no word follows.
fn unit(sentence: &str, n: &Number) -> String {
    let after = sentence.get(n.end..).unwrap_or_default().trim_start();
    after.chars().take_while(|c| c.is_alphabetic()).filter(|c| !matches!(c, 'x')).collect()
}

/// The value of the terms, with products and quotients before sums; `None` if it is not finite.
fn evaluate(values: &[f64], operators: &[Operator]) -> Option<f64> {
    let (mut sum, mut product) = (0.0, *values.first()?);
    for (operator, value) in operators.iter().zip(values.get(1..)?) {
        match operator {
            Operator::Times => product *= value,
            Operator::Divide => product /= value,
            Operator::Plus | Operator::Minus => {
                sum += product;
                product = if *operator == Operator::Plus { *value } else { -value };
            }
            Operator::Equals { .. } => return None,
        }
    }
    Some(sum + product).filter(|v| v.is_finite())
}

/// The stated percentage and the computed one, if the only percentage of a sentence with "from A to B", or that of "P
/// % (A of B)", is wrong.
fn wrong_percentage(
    sentence: &str,
    numbers: &[Number],
    findings: &mut ExchangeFindings,
) -> Option<(String, f64)> {
    let is_percent =
        |n: &&Number| sentence.get(n.end..).is_some_and(|after| after.trim_start().starts_with('%'));
    let (expression, stated, is_change) = match SHARE.captures(sentence) {
        Some(share) => {
            let at = share.name("p")?.start();
            (share, numbers.iter().find(|n| n.start == at)?, false)
        }
        None => {
            let mut percents = numbers.iter().filter(is_percent);
            let only = percents.next().filter(|_| percents.next().is_none())?;
            let change = FROM_TO.captures_iter(sentence).next()?;
            (change, only, true)
        }
    };
    let number = |name: &str| {
        let at = expression.name(name)?.start();
        numbers.iter().find(|n| n.start == at && !n.in_identifier && !is_percent(n))
    };
    let (a, b) = (number("a")?, number("b")?);
    let is_after_amounts = stated.start > b.end || !is_change;
    let between = sentence.get(b.end..stated.start).unwrap_or_default();
    // Years, times and ranks have no percentage, and a share may be one of a third amount.
    let is_stated_change = || between.len() <= MAX_GAP && STATES_CHANGE.is_match(between);
    if is_change && (is_share(sentence, stated) || !is_stated_change())
        || !is_after_amounts
        || a.possible_values().chain(b.possible_values()).all(|v| v < 10.0)
        || a.value == 0.0
        || b.value == 0.0
        || is_year(a) && is_year(b)
    {
        return None;
    }
    findings.examined = true;
    let readings = |n: &Number| n.possible_values().collect::<Vec<f64>>();
    let mut expected = None;
    for a in readings(a) {
        for b in readings(b) {
            let share = a / b * PERCENT;
            let change_ratios =
                [(b - a).abs() / a, (b - a).abs() / b, b / a, a / b].map(|ratio| ratio * PERCENT);
            expected.get_or_insert(if is_change { (b - a).abs() / a * PERCENT } else { share });
            let candidates = if is_change { change_ratios.to_vec() } else { vec![share] };
            let is_near =
                |p: &f64| (p - stated.value).abs() <= stated.tolerance * 1.01 + 0.02 * stated.value + 0.1;
            if candidates.iter().any(is_near) {
                return None;
            }
        }
    }
    let shown = sentence.get(stated.start..stated.end).unwrap_or_default();
    Some((format!("{shown} %"), expected?))
}

/// Whether a number may be a year.
fn is_year(n: &Number) -> bool {
    !n.fractional && (1800.0..2200.0).contains(&n.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong_arithmetic(text: &str) -> Option<(String, f64)> {
        let (numbers, mut findings) = (numbers::all(text), ExchangeFindings::default());
        let actual = wrong_equation(text, &numbers, Some(Language::English), &mut findings);
        let actual = actual.or_else(|| wrong_percentage(text, &numbers, &mut findings));
        assert!(findings.examined || actual.is_none());
        actual
    }

    #[test]
    fn arithmetic_that_does_not_hold_is_found() {
        for text in [
            "You pay 36 × 371.65 = 14,139.40 in total.",
            "4 nights x 84.50 EUR = 383 EUR",
            "3 + 4 + 5 = 13",
            "1,840.00 * 0.9372 = CHF 1,963.30",
            "Revenue rose from 412,300 to 455,900, which is +24.7 %.",
            "Der Umsatz stieg von 1.200 auf 1.500, also um 30 %.",
            "Its share was 41 % (371,850 of 1,326,000).",
            "200 EUR × 19 % = 83 EUR",
            "3 m × 4 m = 14 m²",
        ] {
            assert!(wrong_arithmetic(text).is_some(), "{text}");
        }
    }

    #[test]
    fn arithmetic_that_holds_is_not_found() {
        for text in [
            "You pay 36 × 371.65 = 13,379.40 in total.",
            "4 nights x 84.50 EUR = 338 EUR",
            "412.5 kg × 34 = 14.025 kg",
            "1.36 × 2.2 ≈ 3.0",
            "2 lb + 2 lb = 1.814 kg",
            "3/4 = 75 %",
            "12 / 48 = 25 %",
            "(2 + 3) × 4 = 20",
            "Revenue rose from 412,300 to 455,900, which is +10.6 %.",
            "Prices fell from 80 to 60, that is to 75 %.",
            "From 2019 to 2023 it grew by 14 %.",
            "from 9:00 to 17:00 it is 20 % cheaper",
            "Its share was 28 % (371,850 of 1,326,000).",
            "200 EUR × 19 % = 38 EUR",
            "E = mc2, 5 = 5",
            "x = 4, y = 7",
            "2 h + 30 min = 2.5 h",
            "200 EUR + 19 % = 238 EUR",
            "From 10 to 40 people get 15 % off.",
            "version 1.2 = build 77",
            "98 €/noche + 10 € por el perro = 324 €",
            "12 USD per seat + 30 USD = 90 USD",
            "The BMI is 82 / 1.78² = 25.9.",
            "By Pythagoras 3² + 4² = 25.",
            "22:15 + 90 min = 23:45",
            "22 h 15 + 90 min = 23 h 45",
            "10 pm + 4 = 2 am",
            "Feb 20 + 14 days = Mar 6",
            "20 février + 14 jours = 6 mars",
            "Feb 3 − Jan 28 = 6 days",
        ] {
            assert_eq!(wrong_arithmetic(text), None, "{text}");
        }
    }
}
