//! The tables of an answer and of results with their columns of numbers and days, in which extremes are searched.
//!
//! In: an answer in Markdown, or the rows of a result. Out: the tables, with the names, the values and the other
//! properties of each row.

use super::exchange::Exchange;
use super::named_rows::NamedRow;
use crate::measure::numbers;
use crate::measure::reasoning::dates;
use crate::measure::reasoning::statements::words_of;
use crate::measure::records::{FieldValue, RecordField};
use crate::recognise::Call;

/// Minimum and maximum rows of a table, and maximum columns.
const MIN_ROWS: usize = 3;
const MAX_ROWS: usize = 60;
const MAX_COLUMNS: usize = 10;
/// Maximum bytes of a text of a row: longer texts may contain a reason that excludes the row.
const MAX_TEXT: usize = 40;

/// A column of numbers or days, with the value of each row.
#[derive(Clone)]
pub(super) struct Column {
    pub(super) words: Vec<String>,
    pub(super) values: Vec<f64>,
    pub(super) is_date: bool,
}

/// A table whose rows are compared.
pub(super) struct RankedTable<'e> {
    pub(super) call: &'e Call,
    /// The names of each row that the answer has, in lower case.
    pub(super) names: Vec<Vec<String>>,
    /// All names of each row.
    pub(super) all_names: Vec<Vec<String>>,
    pub(super) columns: Vec<Column>,
    /// For each row, its flags and its texts that are no names.
    pub(super) properties: Vec<Vec<String>>,
    pub(super) is_of_answer: bool,
}

/// The tables of the answer, in Markdown.
pub(super) fn tables_of_answer<'e>(exchange: &Exchange<'e>, call: &'e Call) -> Vec<RankedTable<'e>> {
    let mut tables = Vec::new();
    let mut lines = exchange.answer.lines().map(str::trim).peekable();
    while lines.peek().is_some() {
        let rows: Vec<Vec<&str>> = std::iter::from_fn(|| lines.next_if(|line| line.starts_with('|')))
            .take(MAX_ROWS)
            .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('*')).collect())
            .filter(|cells: &Vec<&str>| cells.iter().any(|cell| cell.contains(char::is_alphanumeric)))
            .collect();
        if rows.is_empty() {
            lines.next();
        }
        tables.extend(table_of_cells(&rows, call));
    }
    tables
}

/// A table of texts, whose first row has the names of the columns, and whose first column those of the rows.
fn table_of_cells<'e>(rows: &[Vec<&str>], call: &'e Call) -> Option<RankedTable<'e>> {
    let (header, rows) = rows.split_first().filter(|(_, rows)| rows.len() >= MIN_ROWS)?;
    let cell = |row: &Vec<&'_ str>, at: usize| row.get(at).map(|cell| (*cell).to_owned());
    let mut columns = Vec::new();
    let mut properties = vec![Vec::new(); rows.len()];
    for (at, title) in header.iter().enumerate().skip(1).take(MAX_COLUMNS) {
        let values: Option<Vec<f64>> = rows.iter().map(|row| signed_number(row.get(at)?)).collect();
        match values {
            Some(values) => {
                let words = words_of(title).split_whitespace().map(str::to_owned).collect();
                columns.push(Column { words, values, is_date: false });
            }
            None => {
                for (row, texts) in rows.iter().zip(&mut properties) {
                    texts.push(cell(row, at)?);
                }
            }
        }
    }
    let names: Vec<Vec<String>> =
        rows.iter().map(|row| Some(vec![words_of(row.first()?).trim().to_owned()])).collect::<Option<_>>()?;
    Some(RankedTable {
        call,
        all_names: Clone::clone(&names),
        names,
        columns,
        properties,
        is_of_answer: true,
    })
}

/// The only number of a cell, with its sign.
fn signed_number(cell: &str) -> Option<f64> {
    let numbers = numbers::all(cell);
    let [n] = numbers.as_slice() else { return None };
    let before = cell
        .get(..n.start)?
        .trim_end_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '−' | '–'));
    let is_negative = before.ends_with(['-', '−', '–']);
    (!n.in_identifier).then_some(if is_negative { -n.value } else { n.value })
}

/// The rows of a result as a table; `None` if a text is long, since it may exclude its row.
pub(super) fn table_of_rows<'e>(rows: &'e [NamedRow<'e>]) -> Option<RankedTable<'e>> {
    let first = rows.first().filter(|_| (MIN_ROWS..=MAX_ROWS).contains(&rows.len()))?;
    let mut table = RankedTable {
        call: first.source.call,
        names: rows.iter().map(|row| row.names.iter().map(|name| name.words.clone()).collect()).collect(),
        all_names: vec![Vec::new(); rows.len()],
        columns: Vec::new(),
        properties: vec![Vec::new(); rows.len()],
        is_of_answer: false,
    };
    for column in first.cells.iter().take(MAX_COLUMNS) {
        let cells: Vec<_> = rows.iter().map(|row| row.column(column).next()).collect();
        let words = column.name.to_vec();
        let number = |cell: &Option<&RecordField>| (*cell)?.number();
        let day = |cell: &Option<&RecordField>| {
            dates::all((*cell)?.shown()).next().filter(|date| date.at.start == 0).map(|date| date.day as f64)
        };
        if let Some(values) = cells.iter().map(number).collect::<Option<Vec<f64>>>() {
            table.columns.push(Column { words, values, is_date: false });
        } else if let Some(values) = cells.iter().map(day).collect::<Option<Vec<f64>>>() {
            table.columns.push(Column { words, values, is_date: true });
        } else {
            let shown = |cell: &Option<&RecordField>| {
                cell.map(|cell| cell.shown().to_lowercase()).unwrap_or_default()
            };
            let texts: Vec<String> = cells.iter().map(shown).collect();
            if texts.iter().any(|text| text.len() > MAX_TEXT) {
                return None;
            }
            // Different texts in all rows are names.
            let is_flag = cells.iter().flatten().any(|cell| matches!(cell.value, FieldValue::Bool(_)));
            let is_shared = |text: &String| texts.iter().filter(|other| *other == text).count() > 1;
            if is_flag || texts.iter().any(is_shared) {
                table.properties.iter_mut().zip(&texts).for_each(|(all, text)| all.push(text.clone()));
            } else {
                table.all_names.iter_mut().zip(&texts).for_each(|(all, text)| all.push(words_of(text)));
            }
        }
    }
    Some(table)
}

/// The sums, differences, products and ratios of two columns, in both directions.
pub(super) fn combinations<'c>(a: &'c Column, b: &'c Column) -> impl Iterator<Item = Column> + use<'c> {
    let calculations: [fn(f64, f64) -> f64; 6] =
        [|a, b| a + b, |a, b| a - b, |a, b| b - a, |a, b| a * b, |a, b| a / b, |a, b| b / a];
    calculations.into_iter().map(move |calculate| Column {
        words: a.words.clone(),
        values: a.values.iter().zip(&b.values).map(|(a, b)| calculate(*a, *b)).collect(),
        is_date: false,
    })
}
