//! Wrong counts of a subset: "6 open tickets, 3 of them breached", where 2 of the open tickets are breached.
//!
//! Principle: "of them" refers to the rows that the clause before counts. The second count is wrong if it is the
//! number of all rows with its value, and the rows of the first clause include another number of rows with that value.
//! A statement with a number of things and their total is wrong if the answer's table of these things adds up to
//! another total.
//!
//! In: the clauses and tables of an answer, and the lists of results. Out: one contradiction.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::exchange::{Exchange, ExchangeFindings};
use super::partial_totals::mentions_part;
use crate::measure::defects::Defect;
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::statements::{Clause, contains_any, contains_words, words_of};
use crate::measure::records::{Record, RecordField};

/// Maximum rows of a list, and of a table of the answer.
const MAX_ROWS: usize = 400;
/// Maximum columns of a list that are compared.
const MAX_COLUMNS: usize = 12;
/// Phrases that refer to the rows counted before.
const PARTITIVES: [&str; 5] = ["of them", "of these", "of those", "of which", "of whom"];
// A fast search for the beginning of each of these phrases.
static OF_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(" of "));
/// Number of bytes at the beginning that forms of one word share: "breached" and "breaching".
const MIN_VALUE_STEM: usize = 5;
/// Number of bytes at the beginning that the name of a column and a word share: "failures" and "failed".
const LEN_COLUMN_STEM: usize = 4;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    check_clause_pairs(exchange, findings);
    if exchange.has_digits && !exchange.clauses.is_empty() && findings.entries.is_empty() {
        check_table_total(exchange, findings);
    }
}

/// The only count of a clause; `None` if there are several.
fn count(clause: &Clause<'_>) -> Option<usize> {
    let is_count = |word: &str| match word.parse::<usize>() {
        Ok(n) => Some(n),
        Err(_) => numbers::from_word(word),
    };
    let mut counts = clause.words.split_whitespace().filter_map(is_count);
    counts.next().filter(|_| counts.next().is_none())
}

/// Adds a finding for a clause with "of them" after a clause with a count.
fn check_clause_pairs(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let is_of_them = |clause: &Clause<'_>| {
        OF_FINDER.find(clause.words.as_bytes()).is_some() && contains_any(&clause.words, &PARTITIVES)
    };
    for pair in exchange.clauses.windows(2) {
        let [whole, part] = pair else { continue };
        if !is_of_them(part) || is_of_them(whole) || part.negated || whole.negated {
            continue;
        }
        let (Some(all), Some(part_count)) = (count(whole), count(part)) else { continue };
        for source in &exchange.sources.structured {
            let Some(parsed) = &source.parsed.0 else { continue };
            for (list, table) in
                parsed.lists.iter().enumerate().filter(|(_, table)| (2..=MAX_ROWS).contains(&table.len))
            {
                if !exchange.spends(parsed.records.len() / 8 + table.len * MAX_COLUMNS) {
                    return;
                }
                let rows: Vec<&Record> = parsed.records.iter().filter(|r| r.list == Some(list)).collect();
                let Some((kind, subset_size)) = subset_count(whole, part, all, part_count, &rows) else {
                    continue;
                };
                findings.examined = true;
                if subset_size != part_count {
                    let returned =
                        format!("{subset_size} of {all} with {kind}, and {part_count} of all {}", rows.len());
                    findings.contradicts(&returned, source.call, part.sentence);
                    return;
                }
            }
        }
    }
}

/// The value that the second clause counts, which `part_count` of all rows have, and the number of rows with this value
/// among the `whole_count` rows of the first clause.
fn subset_count(
    whole: &Clause<'_>,
    part: &Clause<'_>,
    whole_count: usize,
    part_count: usize,
    rows: &[&Record],
) -> Option<(String, usize)> {
    let value = |row: &Record, column: &RecordField| -> Option<String> {
        let field = row.fields.iter().find(|field| field.name == column.name)?;
        Some(words_of(&field.text()?.replace('_', " ")).trim().to_owned())
    };
    let columns = || rows.first().into_iter().flat_map(|row| &row.fields).take(MAX_COLUMNS);
    let texts = || columns().filter(|field| field.is_text());
    // The value of a column that a clause names and that `count` rows have, and for each row whether it has the value.
    let named_value_of = |is_named: &dyn Fn(&str) -> bool, count: usize| {
        texts().find_map(|column| {
            let named_value =
                rows.iter().filter_map(|row| value(row, column)).find(|value| is_named(value))?;
            let has = |row: &&Record| value(row, column).as_deref() == Some(named_value.as_str());
            let row_matches: Vec<bool> = rows.iter().map(has).collect();
            (row_matches.iter().filter(|is_match| **is_match).count() == count)
                .then_some((named_value, row_matches))
        })
    };
    let is_whole = |value: &str| value.len() > 2 && contains_words(&whole.words, value);
    let is_part = |value: &str| {
        let is_form = |word: &str| {
            word == value || value.get(..MIN_VALUE_STEM).is_some_and(|stem| word.starts_with(stem))
        };
        value.len() > 2 && !value.contains(' ') && part.words.split(' ').any(is_form)
    };
    let (_, wholes) = named_value_of(&is_whole, whole_count)?;
    let (kind, parts) = named_value_of(&is_part, part_count)?;
    Some((kind, wholes.iter().zip(&parts).filter(|(whole, part)| **whole && **part).count()))
}

/// Adds a finding for a statement such as "14 failed attempts for 6 names" with a table of 6 names whose numbers add
/// up to another total.
fn check_table_total(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let lines: Vec<&str> = exchange
        .prose
        .lines()
        .map(str::trim)
        .filter(|line| line.len() > 1 && line.starts_with('|'))
        .collect();
    let cells =
        |line: &'_ str| line.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
    let [head, rule, rows @ ..] = lines.as_slice() else { return };
    let is_rule = rule.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '));
    if !is_rule
        || !(2..=MAX_ROWS).contains(&rows.len())
        || !exchange.spends(rows.len() * 4)
        || mentions_part(exchange)
    {
        return;
    }
    let whole = |cell: &String| match numbers::all(cell).as_slice() {
        [n] if !n.fractional && cell.chars().all(|c| c.is_ascii_digit() || "*,. ".contains(c)) => {
            Some(n.value)
        }
        _ => None,
    };
    let rows: Vec<Vec<String>> = rows.iter().map(|row| cells(row)).collect();
    let names = cells(head);
    let stem_of = |name: &str| {
        let words = words_of(name);
        words.split_whitespace().next_back().and_then(|word| word.get(..LEN_COLUMN_STEM)).map(str::to_owned)
    };
    for (at, name) in names.iter().enumerate().skip(1) {
        let column: Option<Vec<f64>> = rows.iter().map(|row| whole(row.get(at)?)).collect();
        let Some(column) = column else { continue };
        let sum: f64 = column.iter().sum();
        let Some(stem) = stem_of(name) else { continue };
        // Several columns with the same stem may add up together.
        if names.iter().filter(|other| stem_of(other).as_ref() == Some(&stem)).count() > 1 {
            continue;
        }
        let total = |clause: &Clause<'_>| -> Option<Number> {
            let (stated, is_count) =
                (numbers::all(&clause.words), |n: &&Number| !n.in_identifier && !n.fractional);
            let mut counts = stated.iter().filter(is_count).filter(|n| n.value == rows.len() as f64);
            let mut totals = stated.iter().filter(is_count).filter(|n| {
                let after = clause.words.get(n.end..).unwrap_or_default();
                n.value > rows.len() as f64
                    && after.split_whitespace().take(2).any(|word| word.starts_with(&*stem))
            });
            counts.next()?;
            totals.next().filter(|_| totals.next().is_none()).copied()
        };
        let stating = exchange.clauses.iter().filter(|clause| !clause.negated && !clause.modal);
        let Some((clause, total)) = stating.filter_map(|clause| Some((clause, total(clause)?))).next() else {
            continue;
        };
        findings.examined = true;
        if total.value != sum {
            let rationale = format!(
                "numbers of its table that add up to the stated {} were expected; those of its {} rows add up to {sum}",
                total.value,
                rows.len()
            );
            findings.entries.push((Defect::ContradictsResult.finding(rationale, clause.sentence), None));
            return;
        }
    }
}
