//! Lines of a list or table, one of which has another value than the row that it names: "Bao, 231 citations; Quintero,
//! 148 citations", where the result has 231 and 184.
//!
//! Principle: the lines of a list or table give the same columns of different rows. If other lines give their own
//! values of a column, a line that has another row's value in the same place, or a number of the same kind that no text
//! has, contradicts its row. Two lines with each other's values contradict both rows. The line must not have the value
//! of its row, and the value must not follow from other numbers of the row, the line or the request.
//!
//! In: the lines of an answer, and the tables of results. Out: one contradiction, in any language.

use super::exchange::{Exchange, ExchangeFindings};
use super::named_rows::{NamedRow, tables};
use super::row_calculations::is_explained;
use super::row_values::{RowStatement, has_value};
use crate::measure::language::WordClass;
use crate::measure::numbers::{self, Number};
use crate::measure::reasoning::dates;
use crate::measure::reasoning::statements::{contains_words, is_list_item, words_of};
use crate::measure::records::RecordField;

/// Maximum lines of an answer that are compared.
const MAX_LINES: usize = 60;
/// Maximum columns of a table that are compared.
const MAX_COLUMNS: usize = 12;
/// Minimum lines with the value of their row, after which a number of no text is wrong in another line.
const MIN_CORRECT: usize = 2;
/// The largest power of ten to which a number may be rounded.
const MAX_POWER: i32 = 6;
/// Minimum bytes and maximum words of a text that is compared.
const MIN_TEXT: usize = 3;
const MAX_WORDS: usize = 4;

pub(super) fn check(exchange: &Exchange<'_>, findings: &mut ExchangeFindings) {
    let lines: Vec<&str> = exchange.answer.lines().map(str::trim).filter(|line| is_item(line)).collect();
    if !(2..=MAX_LINES).contains(&lines.len()) || exchange.sources.structured.is_empty() {
        return;
    }
    let lines: Vec<ItemLine<'_>> = lines.into_iter().map(ItemLine::read).collect();
    let words: String = lines.iter().map(|line| line.words.as_str()).collect();
    let Some(tables) = tables(exchange, &words) else { return };
    for table in &tables {
        if !exchange.spends(lines.len() * table.len()) {
            return;
        }
        let named: Vec<LineOfRow<'_, '_>> =
            lines.iter().filter_map(|line| Some(LineOfRow { line, row: only_row(line, table)? })).collect();
        // Two lines about one row may divide its values.
        let is_only_line =
            |at: &LineOfRow<'_, '_>| named.iter().filter(|other| other.is_about(at.row)).count() == 1;
        let named: Vec<LineOfRow<'_, '_>> = named.iter().copied().filter(is_only_line).collect();
        if named.len() < 2 {
            continue;
        }
        let Some(first) = named.first() else { continue };
        for column in first.row.cells.iter().take(MAX_COLUMNS) {
            if !exchange.spends(named.len() * named.len()) {
                return;
            }
            if let Some((field, line)) = wrong_line(exchange, &named, column, findings) {
                let returned = format!("{}: {} for it", field.name.join(" "), field.shown());
                findings.contradicts(&returned, line.row.source.call, line.line.text);
                return;
            }
        }
    }
}

/// Whether a line is an item of a list or a row of a table with content.
fn is_item(line: &str) -> bool {
    (is_list_item(line) || line.starts_with('|')) && line.contains(char::is_alphanumeric)
}

/// A line of the answer with its words and numbers.
struct ItemLine<'a> {
    text: &'a str,
    words: String,
    /// Each number with its place.
    numbers: Vec<(Number, Place)>,
}

/// The place of a value in a line: the word after it, or the cell of a table.
#[derive(PartialEq, Eq, Debug)]
enum Place {
    Before(String),
    Cell(usize),
}

impl<'a> ItemLine<'a> {
    fn read(text: &'a str) -> ItemLine<'a> {
        let is_quantity = |n: &Number| !n.in_identifier && !dates::begins_with_month(text.get(n.end..));
        let numbers = numbers::all(text).into_iter().filter(is_quantity);
        let numbers = numbers.filter_map(|n| Some((n, place_of(text, n.start, n.end)?)));
        ItemLine { text, words: words_of(&text.replace('|', " ")), numbers: numbers.collect() }
    }
}

/// The place of the bytes of a value in a line; `None` without a word after the value.
fn place_of(line: &str, start: usize, end: usize) -> Option<Place> {
    if line.starts_with('|') {
        return Some(Place::Cell(line.get(..start)?.matches('|').count()));
    }
    let after = line.get(end..)?.trim_start_matches([' ', '\u{a0}', '\u{202f}', '*']);
    let sign =
        after.chars().next().filter(|c| !c.is_alphanumeric() && !c.is_ascii_punctuation() || *c == '%');
    let word = after.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    match sign {
        Some(sign) => Some(Place::Before(sign.to_string())),
        None => (!word.is_empty()).then(|| Place::Before(word.to_lowercase())),
    }
}

/// A line with the only row that it names.
#[derive(Clone, Copy)]
struct LineOfRow<'l, 'e> {
    line: &'l ItemLine<'l>,
    row: &'l NamedRow<'e>,
}

impl<'l, 'e> LineOfRow<'l, 'e> {
    fn is_about(&self, row: &NamedRow<'e>) -> bool {
        std::ptr::eq(self.row, row)
    }

    /// The value of the row in a column.
    fn row_value(&self, column: &RecordField) -> Option<&'l RecordField> {
        self.row.cells.iter().copied().find(|cell| cell.name == column.name)
    }

    /// Whether the line gives a value.
    fn gives(&self, field: &RecordField) -> bool {
        self.gives_word(field) || RowStatement::new(&self.line.words).gives(field)
    }

    /// Whether the line has a text, which is no number and no date.
    fn gives_word(&self, field: &RecordField) -> bool {
        let text = words_of(&field.shown().replace('_', " "));
        let text = text.trim();
        field.is_text()
            && text.len() >= MIN_TEXT
            && text.split(' ').count() <= MAX_WORDS
            && contains_words(&self.line.words, text)
    }

    /// The words directly before and after a text of the line.
    fn neighbours(&self, field: &RecordField) -> [Option<&'l str>; 2] {
        let text = words_of(&field.shown().replace('_', " "));
        let Some((before, after)) = self.line.words.split_once(text.as_str()) else { return [None, None] };
        [before.split_whitespace().next_back(), after.split_whitespace().next()]
    }

    /// Whether the row has a value in another column.
    fn has_elsewhere(&self, field: &RecordField) -> bool {
        self.row.cells.iter().any(|cell| cell.name != field.name && has_value(cell, field))
    }
}

/// The only row of a table that a line names.
fn only_row<'l, 'e>(line: &ItemLine<'_>, table: &'l [NamedRow<'e>]) -> Option<&'l NamedRow<'e>> {
    let mut rows = table.iter().filter(|row| row.has_name_in(line.text, &line.words));
    rows.next().filter(|_| rows.next().is_none())
}

/// The field that a line contradicts, in one column.
fn wrong_line<'l, 'e>(
    exchange: &Exchange<'_>,
    lines: &[LineOfRow<'l, 'e>],
    column: &RecordField,
    findings: &mut ExchangeFindings,
) -> Option<(&'l RecordField, LineOfRow<'l, 'e>)> {
    let is_name = |field: &RecordField| {
        lines
            .iter()
            .all(|line| line.row.names.iter().any(|name| name.words == words_of(field.shown()).trim()))
    };
    if is_name(column) {
        return None;
    }
    let with_values: Vec<(LineOfRow<'l, 'e>, &RecordField)> =
        lines.iter().filter_map(|line| Some((*line, line.row_value(column)?))).collect();
    let (correct, others): (Vec<_>, Vec<_>) =
        with_values.iter().copied().partition(|(line, row_value)| line.gives(row_value));
    findings.examined |= !correct.is_empty();
    others.iter().copied().find_map(|(line, row_value)| {
        let is_exchanged = |(other, value): &(LineOfRow<'_, '_>, &RecordField)| {
            value.value != row_value.value
                && line.gives(value)
                && other.gives(row_value)
                && !line.has_elsewhere(value)
        };
        let is_wrong = others.iter().any(is_exchanged)
            || correct.iter().any(|(other, value)| has_text_of(line, row_value, *other, value))
            || has_unknown_number(exchange, line, row_value, &correct);
        let is_negated = || {
            exchange.language.is_none_or(|language| language.classes(line.line.text).has(WordClass::Negation))
        };
        (is_wrong && line.row.source.is_current(line.row.at) && !is_negated()).then_some((row_value, line))
    })
}

/// Whether a line has the text of another row next to the same word as the line of that row.
fn has_text_of(
    line: LineOfRow<'_, '_>,
    row_value: &RecordField,
    other: LineOfRow<'_, '_>,
    value: &RecordField,
) -> bool {
    row_value.is_text()
        && row_value.value != value.value
        && line.gives_word(value)
        && other.gives_word(value)
        && !line.has_elsewhere(value)
        && line.neighbours(value).iter().zip(other.neighbours(value)).any(|(a, b)| a.is_some() && *a == b)
}

/// Whether a line has a number that no text has, in the place in which the correct lines have the numbers of their
/// rows.
fn has_unknown_number(
    exchange: &Exchange<'_>,
    line: LineOfRow<'_, '_>,
    row_value: &RecordField,
    correct: &[(LineOfRow<'_, '_>, &RecordField)],
) -> bool {
    let Some(expected) = row_value.number() else { return false };
    let mut places = correct.iter().filter_map(|(line, field)| place_of_value(line.line, field));
    let Some(place) = places.next() else { return false };
    if places.filter(|other| *other == place).count() + 1 < MIN_CORRECT {
        return false;
    }
    let mut stated = line.line.numbers.iter().filter(|(_, other)| other == place);
    let (Some((n, _)), None) = (stated.next(), stated.next()) else { return false };
    let is_near = |value: f64| n.possible_values().any(|v| (v - value.abs()).abs() <= n.tolerance * 1.01);
    let is_of_row = line.row.cells.iter().filter_map(|cell| cell.number()).any(is_near);
    // "2,400" for 2,418.
    let is_rounded = |value: f64| {
        let mut powers = (1..=MAX_POWER).map(|power| 10f64.powi(power));
        powers.any(|unit| value % unit == 0.0 && (value - expected.abs()).abs() < unit)
    };
    !is_near(expected)
        && !n.possible_values().any(is_rounded)
        && !is_of_row
        && !is_explained(exchange, line.line.text, line.row.record, n, expected)
}

/// The place of the only number of a line that is the value of a field.
fn place_of_value<'l>(line: &'l ItemLine<'_>, field: &RecordField) -> Option<&'l Place> {
    let value = field.number()?;
    let is_value = |(n, _): &&(Number, Place)| n.possible_values().any(|v| v == value.abs());
    let mut equal = line.numbers.iter().filter(is_value);
    let (_, place) = equal.next()?;
    equal.next().is_none().then_some(place)
}
