//! Totals: the answer lists parts and a total, and the parts do not add up to it.
//!
//! The parts are the last numbers of the lines before the total, or in a table the numbers of its column. A total that
//! a result gives is right, and so is one that differs by an amount or a percentage that the answer or a result
//! mentions.

use std::ops::Range;

use super::exchange::{Exchange, Outcome};
use crate::measure::Finding;
use crate::measure::defects::Defect;
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::answer::sentences;

regex!(
    TOTAL,
    r"(?i)^[\s|*_#-]*(?:(?:the|your|grand|overall|in|which|that|this|a|final|estimated)\s+){0,3}(?:total|sum|makes|altogether)\b"
);
// Words before a total within a sentence.
regex!(
    TOGETHER,
    r"(?i)\b(?:together|altogether|in total|in all|totall?ing|total(?: of| is| comes to)?|adds? up to|sum of)\b"
);
/// Most bytes between these words and the total.
const MAX_BETWEEN: usize = 20;
/// Most numbers that may explain a difference.
const MAX_ADJUSTMENTS: usize = 200;
/// Most parts of a total.
const MAX_PARTS: usize = 50;
/// Most columns of a table with a total below it.
const MAX_COLUMNS: usize = 12;

pub(super) fn check(exchange: &Exchange<'_>, outcome: &mut Outcome) {
    let mut lines: Vec<&str> = Vec::new();
    for line in exchange.prose.lines().filter(|line| !line.trim().is_empty()) {
        if TOTAL.is_match(line) {
            if let Some(total) = numbers::all(line).first() {
                let columns = columns_of(line, total, &lines);
                outcome.examined |= !columns.is_empty();
                let is_right = columns.iter().any(|parts| adds_up(exchange, parts, total));
                if let Some(parts) = columns.last().filter(|_| !is_right) {
                    outcome.findings.push((wrong_total(parts, total, line), None));
                }
                if !columns.is_empty() {
                    return;
                }
            }
            lines.clear();
        } else if is_part(line) {
            lines.push(line);
        } else if !is_table_head(line) {
            lines.clear();
        }
    }
}

/// A total within a sentence: "flights are 412.50 and the hotel 380.00, together 792.50". All are amounts with
/// decimals: other numbers may count the parts.
pub(super) fn check_sentences(exchange: &Exchange<'_>, outcome: &mut Outcome) {
    let prose = &*exchange.prose;
    if !TOGETHER.is_match(prose) {
        return;
    }
    for (start, end) in sentences(prose) {
        let sentence = prose.get(start..end).unwrap_or_default();
        let mut words = TOGETHER.find_iter(sentence).peekable();
        if words.peek().is_none() {
            continue;
        }
        let numbers = numbers::all(sentence);
        for word in words {
            if !exchange.spends(1 + numbers.len()) {
                return;
            }
            let Some((parts, total)) = parts_of(sentence, &numbers, word.range()) else { continue };
            outcome.examined = true;
            if !adds_up(exchange, parts, total) {
                outcome.findings.push((wrong_total(parts, total, sentence), None));
                return;
            }
        }
    }
}

/// The amounts before the words for a total, and the one after them, if it can be their sum.
fn parts_of<'n>(
    sentence: &str,
    numbers: &'n [Number],
    word: Range<usize>,
) -> Option<(&'n [Number], &'n Number)> {
    let is_amount = |n: &Number| n.fractional && !n.in_identifier && !is_in_date(sentence, n);
    let at = numbers.iter().position(|n| n.start >= word.end)?;
    let (parts, rest) = numbers.split_at(at);
    let total = rest.first().filter(|total| is_amount(total) && parts.len() > 1)?;
    let is_near = sentence.get(word.end..total.start).is_some_and(|text| text.len() <= MAX_BETWEEN);
    // A share, a part that is a sum of others, and a total of another unit are no parts and no total.
    let unit = |n: &Number| unit_behind(sentence, n);
    let is_other =
        |part: &Number| !unit(part).is_empty() && !unit(total).is_empty() && unit(part) != unit(total);
    let is_mixed = parts.iter().chain([total]).any(|n| unit(n) == "%") || parts.iter().any(is_other);
    let mut sum = 0.0;
    let is_subtotal = parts.iter().enumerate().any(|(nth, part)| {
        let before = sum;
        sum += part.value;
        nth > 1 && (part.value - before).abs() < 0.011
    });
    let is_sum =
        is_near && !is_mixed && !is_subtotal && parts.iter().all(is_amount) && !is_multiple(parts, total);
    is_sum.then_some((parts, total))
}

/// The unit directly after a number.
fn unit_behind<'s>(sentence: &'s str, n: &Number) -> &'s str {
    let behind = sentence.get(n.end..).unwrap_or_default().trim_start();
    let end = behind
        .find(|c: char| c.is_whitespace() || matches!(c, ',' | '.' | ';' | ')' | ':'))
        .unwrap_or(behind.len());
    let unit = behind.get(..end).unwrap_or_default();
    let is_word = unit.len() > 3 || matches!(unit, "and" | "the" | "for" | "in" | "on" | "is" | "to");
    if is_word { "" } else { unit }
}

/// Whether a total is that of several times: of nights, months or people.
fn is_multiple(parts: &[Number], total: &Number) -> bool {
    let sum: f64 = parts.iter().map(|part| part.value).sum();
    let times = if sum.abs() < 0.01 { 1.0 } else { total.value / sum };
    times > 1.5 && (times - times.round()).abs() * sum.abs() < 0.02 && times < 366.0
}

fn wrong_total(parts: &[Number], total: &Number, passage: &str) -> Finding {
    let sum: f64 = parts.iter().map(|part| part.value).sum();
    let rationale = format!(
        "a total that its parts add up to was expected; they add up to {}, and the answer gives {}",
        (sum * 100.0).round() / 100.0,
        total.value
    );
    Defect::ContradictsResult.finding(rationale, passage.trim())
}

/// The parts of a total: the last numbers of the lines, or in a table the numbers of its column. Below a table it may
/// be the total of any column; one of percentages has no total but a percentage.
fn columns_of(line: &str, total: &Number, lines: &[&str]) -> Vec<Vec<Number>> {
    let lines = || lines.iter().take(MAX_PARTS + 1);
    let part = |text: &str| amount(text).map(|part| Number { value: signed(text, &part), ..part });
    let column = |at: usize| lines().filter_map(|line| part(line.split('|').nth(at)?)).collect::<Vec<_>>();
    let columns = if !lines().all(|line| is_table_head(line)) {
        vec![lines().filter_map(|line| part(line)).collect()]
    } else if is_table_head(line) {
        vec![column(line.get(..total.start).unwrap_or_default().matches('|').count())]
    } else {
        let is_share = |text: Option<&str>| text.is_some_and(|text| text.contains('%'));
        let of_total = is_share(line.get(total.end..));
        let width = lines().map(|line| line.split('|').count()).max().unwrap_or_default().min(MAX_COLUMNS);
        let shares = |at: usize| lines().any(|line| is_share(line.split('|').nth(at)));
        (0..width).filter(|at| shares(*at) == of_total).map(column).collect()
    };
    columns.into_iter().filter(|parts| (2..=MAX_PARTS).contains(&parts.len())).collect()
}

fn is_part(line: &str) -> bool {
    line.trim_start().starts_with(['-', '*', '•', '|'])
        || line.trim_start().starts_with(|c: char| c.is_ascii_digit())
}

fn is_table_head(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// The last number of a line that is no identifier. None if it is followed by more than a unit, since it is
/// then no amount of this part.
fn amount(line: &str) -> Option<Number> {
    let last = numbers::all(line).into_iter().rfind(|n| !n.in_identifier)?;
    let after = line.get(last.end..)?;
    (after.chars().filter(|c| c.is_alphabetic()).count() <= 4).then_some(last)
}

/// The amount with its sign: a discount is taken off. A sign before a space is a dash.
fn signed(line: &str, amount: &Number) -> f64 {
    let before = line.get(..amount.start).unwrap_or_default().trim_end_matches(['€', '$', '£', '¥']);
    let is_minus =
        before.strip_suffix(['-', '−']).is_some_and(|b| b.ends_with([' ', '|', '(']) && !b.trim().is_empty());
    if is_minus { -amount.value } else { amount.value }
}

/// A total beyond the work budget counts as right.
fn adds_up(exchange: &Exchange<'_>, parts: &[Number], total: &Number) -> bool {
    let sum: f64 = parts.iter().map(|part| part.value).sum();
    let tolerance =
        0.011 + parts.iter().map(|p| p.tolerance.min(0.5)).sum::<f64>().min(1.0) + total.tolerance;
    let near = |value: f64| {
        (value - total.value).abs() <= if parts.iter().any(|p| p.fractional) { 0.011 } else { tolerance }
    };
    if near(sum) {
        return true;
    }
    if !exchange.spends_numbers() {
        return true;
    }
    // Amounts of several units or counts of other things are no parts of it.
    // The digits of dates and codes explain nothing.
    let is_amount = |text: &str, n: &Number| !n.in_identifier && !is_in_date(text, n);
    let amounts =
        |text: &str| numbers::all(text).into_iter().filter(|n| is_amount(text, n)).collect::<Vec<_>>();
    let returned = exchange.sources.seen.iter().flat_map(|text| amounts(text)).map(|n| n.value);
    let aggregates = exchange.sources.structured.iter().filter_map(|s| s.parsed.0.as_ref());
    let aggregates = aggregates.flat_map(|parsed| parsed.aggregates().iter().copied());
    let known: Vec<f64> = returned.take(20_000).chain(aggregates).collect();
    if known.iter().any(|value| near(*value)) {
        return true;
    }
    let own = amounts(exchange.answer).into_iter().map(|n| n.value);
    let others: Vec<f64> = own.chain(known).take(MAX_ADJUSTMENTS).filter(|v| *v != total.value).collect();
    // An amount that was left out explains the difference to the cent.
    let exact =
        |value: f64| near(value) && (value - total.value).abs() < 0.006_f64.max(total.tolerance * 1.01);
    let explained = |by: f64| {
        exact(sum + by)
            || exact(sum - by)
            || near(sum * (1.0 + by / 100.0))
            || near(sum * (1.0 - by / 100.0))
            || near(sum * by)
    };
    others.into_iter().any(explained)
}

/// Whether a number is a part of a date or of a time in figures: "2025-09-03", "9:30".
fn is_in_date(text: &str, number: &Number) -> bool {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let joins =
        |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(|b| matches!(b, b'-' | b':' | b'/'));
    let before = number.start.checked_sub(1);
    joins(before) && is_digit(before.and_then(|at| at.checked_sub(1)))
        || joins(Some(number.end)) && is_digit(Some(number.end + 1))
}
