//! Wrong totals: the answer lists parts and a total, and the parts do not add up to the total.
//!
//! Principle: the parts that an answer lists add up to the total that it gives for them, unless a known number
//! explains the difference. Whether parts are missing or wrong is not examined.
//!
//! The parts are the last numbers of the lines before the total, or of the lines after one that announces the total
//! ("came to a total of 89.40:"), or the numbers of the total's column in a table. A total that a result has is
//! correct, and so is a total that differs from the sum by an amount or a percentage in the answer or in a result. If
//! the parts are a whole column of a result, neither a part nor a result that only repeats an argument explains a
//! difference.
//!
//! In: the lines and sentences of an answer, and all texts. Out: one contradiction.

use super::exchange::{Exchange, ExchangeFindings};
use crate::measure::defects::Defect;
use crate::measure::excerpt::clip;
use crate::measure::language::{Language, WordClasses, classes};
use crate::measure::numbers::{self, Number};
use crate::measure::records::Record;
use crate::measure::vocabulary::{self, WordMeaning};
use crate::measure::{Finding, currency};
use crate::recognise::Text;

/// Maximum words before the word for a total at the beginning of a line: "in total", "which makes a total".
const MAX_WORDS_BEFORE: usize = 3;
/// Maximum bytes between a word for a total and the total.
pub(super) const MAX_TO_TOTAL: usize = 20;
/// Maximum numbers that may explain a difference.
const MAX_ADJUSTMENTS: usize = 200;
/// Maximum parts of a total.
pub(super) const MAX_PARTS: usize = 50;
/// The smallest whole number that is an amount, if the total is only named in the label of a line.
const MIN_WHOLE_AMOUNT: f64 = 20.0;
/// Maximum bytes of the label of a total.
const MAX_LABEL: usize = 32;
/// Maximum bytes after a total in a line that announces its parts.
const MAX_AFTER: usize = 32;
/// A cent, with the rounding errors of floating-point numbers.
pub(super) const CENT: f64 = 0.011;
/// Tolerance for rounding errors of floating-point numbers.
const ROUNDING_ERROR: f64 = 1e-6;
/// Classes of words by which a total may leave out a part.
const OMISSION: WordClasses = classes!(Negation Exception Restriction Condition);
/// Classes of words by which a line does not announce the parts of its total.
const NOT_PARTS: WordClasses = classes!(Comparison Exception Alternative Neighbour Condition);
/// Maximum columns of a table, and of a list, that are compared.
pub(super) const MAX_COLUMNS: usize = 12;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let mut lines: Vec<&str> = Vec::new();
    let prose = exchange.grouped();
    for line in prose.lines().filter(|line| !line.trim().is_empty()) {
        // The line above the rule of a table has the names of the columns.
        if is_rule(line) {
            lines.pop();
            continue;
        }
        if numbers::has_digit(line) && (begins_with_total(exchange, line) || is_labelled_total(line)) {
            if let Some(total) = numbers::all(line).first() {
                let mut columns = possible_parts(line, total, &lines);
                // Small whole numbers may be counts: "Rooms: 2, nights: 3, guests in total: 4".
                let is_amount = |n: &Number| n.fractional || n.value.abs() >= MIN_WHOLE_AMOUNT;
                let are_amounts = |parts: &Vec<Number>| parts.iter().chain([total]).all(is_amount);
                // In a line with several numbers, the last number may not be the amount: "Mug, 12.00 × 2".
                let have_one_number = lines.iter().all(|part| part.contains('=') || has_one_number(part));
                columns.retain(|parts| {
                    begins_with_total(exchange, line) || have_one_number && are_amounts(parts)
                });
                findings.examined |= !columns.is_empty();
                let is_correct = columns.iter().any(|parts| adds_up(exchange, parts, total));
                if let Some(parts) = columns.last().filter(|_| !is_correct) {
                    findings.entries.push((wrong_total(parts, total, line), None));
                }
                if !columns.is_empty() {
                    return;
                }
            }
            lines.clear();
        } else if is_part(line) {
            // A bold heading or a list above a table has no parts of the total below the table.
            if lines.last().is_some_and(|part| is_table_row(part) != is_table_row(line)) {
                lines.clear();
            }
            lines.push(line);
        } else if !is_table_row(line) {
            lines.clear();
        }
    }
    if findings.entries.is_empty() {
        check_announced(exchange, findings);
    }
}

/// Whether a line is the rule below the header of a table.
fn is_rule(line: &str) -> bool {
    is_table_row(line) && line.contains('-') && line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '))
}

/// Whether a line begins with a word for a total, possibly after function words, and gives no share of another total:
/// "together they are 88 % of the total".
fn begins_with_total(exchange: &Exchange<'_>, line: &str) -> bool {
    let text = line.trim_start_matches(|c: char| !c.is_alphanumeric());
    let words = vocabulary::find(text, &[WordMeaning::Total]);
    let Some(start) = words.iter().map(|(_, at)| at.start).min() else { return false };
    let number = text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len());
    let is_share = words.iter().any(|(_, at)| {
        let between = text.get(number..at.start).unwrap_or_default().to_lowercase();
        between.split_whitespace().rev().take(2).any(|word| vocabulary::has_meaning(word, WordMeaning::Of))
    });
    let before = text.get(..start).unwrap_or_default();
    let language = exchange.language.unwrap_or(Language::English);
    let is_plain = |word: &str| language.is_function_word(&word.to_lowercase());
    !is_share
        && before.split_whitespace().count() <= MAX_WORDS_BEFORE
        && before.split_whitespace().all(is_plain)
}

/// Whether the last word of a line's label is a word for a total, or a compound with one: "Weighted total: 6,777
/// words", "Gesamtpreis: 40 €".
fn is_labelled_total(line: &str) -> bool {
    let line_start = clip(line, MAX_LABEL + '：'.len_utf8());
    let label = line_start.split_once([':', '：']).map(|(label, _)| label);
    let Some(label) = label.filter(|label| label.len() <= MAX_LABEL) else { return false };
    let label = label.trim_matches(|c: char| !c.is_alphanumeric());
    let start = label.rfind(' ').map_or(0, |at| at + 1);
    vocabulary::find(label, &[WordMeaning::Total])
        .iter()
        .any(|(_, at)| at.start == start || at.end == label.len())
}

/// Adds a finding for a wrong total that announces its parts: "Your trip came to a total of 449.05:", above lines with
/// one amount each.
fn check_announced(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let prose = exchange.grouped();
    let mut lines = prose.lines().filter(|line| !line.trim().is_empty()).peekable();
    while let Some(line) = lines.next() {
        if !exchange.spends(1 + line.len() / 16) {
            return;
        }
        let Some((total, lists_all_parts)) = announced_total(exchange, line) else { continue };
        let mut parts: Vec<Number> = Vec::new();
        let mut is_plain = true;
        while let Some(part) = lines.next_if(|line| is_part(line)) {
            let part_amount = amount(part).filter(|n| has_one_number(part) && is_money(part, n));
            is_plain &=
                part_amount.is_some() && parts.len() < MAX_PARTS && !begins_with_total(exchange, part);
            parts.extend(part_amount.map(|n| Number { value: signed_value(part, &n), ..n }));
        }
        if !is_plain || parts.len() < 2 || is_multiple(&parts, &total) {
            continue;
        }
        findings.examined = true;
        if !adds_up(exchange, &parts, &total) && (lists_all_parts || is_column(exchange, &parts)) {
            findings.entries.push((wrong_total(&parts, &total, line), None));
            return;
        }
    }
}

/// Whether a line has only one number that may be an amount. With a number of things, the amount may be for one of
/// them.
pub(super) fn has_one_number(line: &str) -> bool {
    numbers::all(line).iter().filter(|n| !n.in_identifier && !is_in_date(line, n)).count() == 1
}

/// The total of a line that announces its parts, and whether no words follow the total. Words such as "mainly for:" may
/// mean that only some of the parts are listed.
fn announced_total(exchange: &Exchange<'_>, line: &str) -> Option<(Number, bool)> {
    let text = line.trim_end().trim_end_matches('*').strip_suffix([':', '：'])?;
    if is_part(line) || exchange.language?.classes(text).has_any(NOT_PARTS) {
        return None;
    }
    let word = vocabulary::find(text, &[WordMeaning::Total]).last().map(|(_, at)| at.end)?;
    let total = numbers::all(text).into_iter().find(|n| n.start >= word && !n.in_identifier)?;
    let (between, after) = (text.get(word..total.start)?, text.get(total.end..)?);
    let is_end = after.len() <= MAX_AFTER && !after.contains(['.', '?', '!', '。']);
    let lists_all_parts = vocabulary::has_only(after, &[]);
    (between.len() <= MAX_TO_TOTAL && is_end && is_money(text, &total)).then_some((total, lists_all_parts))
}

/// Whether a number has decimals, or a currency next to it.
pub(super) fn is_money(text: &str, n: &Number) -> bool {
    n.fractional || currency::is_beside(text, n.start..n.end)
}

/// The numbers in ascending order.
pub(super) fn sorted(mut numbers: Vec<f64>) -> Vec<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// Whether a total is a multiple of the sum, such as for several nights, months or people.
pub(super) fn is_multiple(parts: &[Number], total: &Number) -> bool {
    let sum: f64 = parts.iter().map(|part| part.value).sum();
    let ratio = if sum.abs() < 0.01 { 1.0 } else { total.value / sum };
    ratio > 1.5 && (ratio - ratio.round()).abs() * sum.abs() < 0.02 && ratio < 366.0
}

/// The finding on a total that differs from the sum of its parts.
pub(super) fn wrong_total(parts: &[Number], total: &Number, passage: &str) -> Finding {
    let sum: f64 = parts.iter().map(|part| part.value).sum();
    let rationale = format!(
        "a total that its parts add up to was expected; they add up to {}, and the answer gives {}",
        (sum * 100.0).round() / 100.0,
        total.value
    );
    Defect::ContradictsResult.finding(rationale, passage.trim())
}

/// The possible parts of a total: the last numbers of the lines, or the numbers of its column in a table. A total
/// below a table may be that of any column; a total in percent only that of a column of percentages.
fn possible_parts(line: &str, total: &Number, lines: &[&str]) -> Vec<Vec<Number>> {
    let lines = || lines.iter().take(MAX_PARTS + 1);
    let part = |text: &str| amount(text).map(|part| Number { value: signed_value(text, &part), ..part });
    let column = |at: usize| lines().filter_map(|line| part(line.split('|').nth(at)?)).collect::<Vec<_>>();
    let columns = if !lines().all(|line| is_table_row(line)) {
        let is_percent = |line: &str, n: &Number| {
            line.get(n.end..).is_some_and(|after| after.trim_start().starts_with('%'))
        };
        let parts = lines().filter_map(|line| Some((line, part(line)?)));
        // The last numbers may be the shares of the amounts before them: "Rent: 800 € (40 %)".
        let parts = parts.filter(|(part_line, part)| is_percent(part_line, part) == is_percent(line, total));
        vec![parts.map(|(_, part)| part).collect()]
    } else if is_table_row(line) {
        vec![column(line.get(..total.start).unwrap_or_default().matches('|').count())]
    } else {
        let is_share = |text: Option<&str>| text.is_some_and(|text| text.contains('%'));
        let is_share_total = is_share(line.get(total.end..));
        let width = lines().map(|line| line.split('|').count()).max().unwrap_or_default().min(MAX_COLUMNS);
        let shares = |at: usize| lines().any(|line| is_share(line.split('|').nth(at)));
        (0..width).filter(|at| shares(*at) == is_share_total).map(column).collect()
    };
    columns.into_iter().filter(|parts| (2..=MAX_PARTS).contains(&parts.len())).collect()
}

/// Whether a line may have a part: it is an item of a list or a row of a table.
fn is_part(line: &str) -> bool {
    line.trim_start().starts_with(['-', '*', '•', '|'])
        || line.trim_start().starts_with(|c: char| c.is_ascii_digit())
}

/// Whether a line is a row of a table.
fn is_table_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// The last number of a line outside identifiers. `None` if more than a unit is after it, since it is then not the
/// amount of the line.
fn amount(line: &str) -> Option<Number> {
    let last = numbers::all(line).into_iter().rfind(|n| !n.in_identifier)?;
    let after = line.get(last.end..)?;
    (after.chars().filter(|c| c.is_alphabetic()).count() <= 4).then_some(last)
}

/// The amount with its sign, since a discount is subtracted. A minus sign before a space is a dash.
fn signed_value(line: &str, amount: &Number) -> f64 {
    let before = line.get(..amount.start).unwrap_or_default().trim_end_matches(['€', '$', '£', '¥']);
    let is_minus =
        before.strip_suffix(['-', '−']).is_some_and(|b| b.ends_with([' ', '|', '(']) && !b.trim().is_empty());
    if is_minus { -amount.value } else { amount.value }
}

/// Whether parts add up to a total, or known numbers explain the difference. True beyond the work budget.
pub(super) fn adds_up(exchange: &Exchange<'_>, parts: &[Number], total: &Number) -> bool {
    let sum: f64 = parts.iter().map(|part| part.value).sum();
    let tolerance = CENT + parts.iter().map(|p| p.tolerance.min(0.5)).sum::<f64>().min(1.0) + total.tolerance;
    let is_near = |value: f64| {
        (value - total.value).abs() <= if parts.iter().any(|p| p.fractional) { CENT } else { tolerance }
    };
    if is_near(sum) || has_product(parts, &is_near) {
        return true;
    }
    if !exchange.spends_numbers() || !exchange.spends(exchange.sources.field_count()) {
        return true;
    }
    // The total may leave out a part: "without the taxi".
    let has_omission = |text: &str| {
        exchange.language.is_none_or(|language| language.places(text, exchange.memo).all().has_any(OMISSION))
    };
    let may_omit = || has_omission(exchange.task) || has_omission(&exchange.prose);
    let is_whole_column = is_column(exchange, parts) && !may_omit();
    // The digits of dates and identifiers explain no difference.
    let is_amount = |text: &str, n: &Number| !n.in_identifier && !is_in_date(text, n);
    let amounts =
        |text: &str| numbers::all(text).into_iter().filter(|n| is_amount(text, n)).collect::<Vec<_>>();
    let texts = if is_whole_column { stated_texts(exchange, total) } else { exchange.sources.seen.clone() };
    let text_values = texts.iter().flat_map(|text| amounts(text)).map(|n| n.value);
    let aggregates = exchange.sources.structured.iter().filter_map(|s| s.parsed.0.as_ref());
    let aggregates = aggregates.flat_map(|parsed| parsed.aggregates().iter().copied());
    let mut known_values: Vec<f64> = text_values.take(20_000).collect();
    let aggregates: Vec<f64> = aggregates.collect();
    if known_values.iter().chain(&aggregates).any(|value| is_near(*value)) {
        return true;
    }
    // A sum or mean of another column does not explain a difference to a whole column.
    known_values.extend(aggregates.into_iter().filter(|_| !is_whole_column));
    let answer_values = amounts(exchange.answer).into_iter().map(|n| n.value);
    let is_part =
        |value: f64| is_whole_column && parts.iter().any(|part| (part.value - value).abs() < ROUNDING_ERROR);
    let adjustments =
        answer_values.chain(known_values).take(MAX_ADJUSTMENTS).filter(|v| *v != total.value && !is_part(*v));
    let adjustments: Vec<f64> = adjustments.collect();
    // An omitted amount has to explain the difference exactly.
    let is_exact =
        |value: f64| is_near(value) && (value - total.value).abs() < 0.006_f64.max(total.tolerance * 1.01);
    let is_explained = |adjustment: f64| {
        is_exact(sum + adjustment)
            || is_exact(sum - adjustment)
            || is_near(sum * (1.0 + adjustment / 100.0))
            || is_near(sum * (1.0 - adjustment / 100.0))
            || is_near(sum * adjustment)
    };
    adjustments.into_iter().any(is_explained)
}

/// Whether the total contains the product of two parts instead of their sum, since the two are a price and a count,
/// such as a number of nights.
fn has_product(parts: &[Number], is_near: &impl Fn(f64) -> bool) -> bool {
    let sum: f64 = parts.iter().map(|part| part.value).sum();
    parts.iter().enumerate().any(|(nth, a)| {
        let mut others = parts.iter().skip(nth + 1);
        others.any(|b| is_near(a.value * b.value) || is_near(sum - a.value - b.value + a.value * b.value))
    })
}

/// Whether the parts are the numbers of a whole column of a result.
fn is_column(exchange: &Exchange<'_>, parts: &[Number]) -> bool {
    let part_values: Vec<f64> = sorted(parts.iter().map(|part| part.value).collect());
    exchange.sources.structured.iter().filter_map(|source| source.parsed.0.as_ref()).any(|parsed| {
        let lists = parsed.lists.iter().enumerate().filter(|(_, list)| list.len == parts.len());
        lists.take(MAX_COLUMNS).any(|(list, _)| {
            let rows: Vec<&Record> =
                parsed.records.iter().filter(|record| record.list == Some(list)).take(MAX_PARTS).collect();
            let names = rows.first().into_iter().flat_map(|row| &row.fields).take(MAX_COLUMNS);
            names.filter(|field| field.number().is_some()).any(|header| {
                let cell = |row: &&Record| row.fields.iter().find(|f| f.name == header.name)?.number();
                let column = sorted(rows.iter().filter_map(cell).collect());
                column.len() == part_values.len()
                    && column.iter().zip(&part_values).all(|(a, b)| (a - b).abs() < ROUNDING_ERROR)
            })
        })
    })
}

/// The texts of the user and of results, without results of calls whose arguments have the total, since they may
/// repeat it.
fn stated_texts<'a>(exchange: &Exchange<'a>, total: &Number) -> Vec<&'a Text> {
    let sources = &exchange.sources;
    let is_passed = |text: &Text| sources.passed.iter().any(|passed| ***passed == **text);
    let has = |text: &Text| numbers::all(text).iter().any(|n| n.value == total.value);
    let calls = sources.structured.iter().map(|source| source.call);
    let results = calls.filter(|call| !call.arguments.as_ref().is_some_and(has));
    let others = sources.unstructured().iter().copied().filter(|text| !is_passed(text));
    others.chain(results.filter_map(|call| call.result.as_ref())).collect()
}

/// Whether a number is part of a numeric date or time: "2025-09-03", "9:30".
pub(super) fn is_in_date(text: &str, number: &Number) -> bool {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let is_separator =
        |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(|b| matches!(b, b'-' | b':' | b'/'));
    let before = number.start.checked_sub(1);
    is_separator(before) && is_digit(before.and_then(|at| at.checked_sub(1)))
        || is_separator(Some(number.end)) && is_digit(Some(number.end + 1))
}
