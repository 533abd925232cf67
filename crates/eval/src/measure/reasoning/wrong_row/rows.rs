//! Properties of the rows of a lookup: their words, states and references.
//!
//! In: rows, or a row and a value. Out: whether a value is a code, a date or an identifier of a row; whether a row may
//! be unavailable or refers to another one.

use foldhash::{HashMap, HashSet};

use crate::measure::reasoning::statements::words_of;
use crate::measure::reasoning::{dates, local_dates};
use crate::measure::records::{FieldValue, Record, RecordField, Records};

/// Maximum rows of a list that are compared.
pub(super) const MAX_ROWS: usize = 200;
/// Minimum bytes of a value that is compared.
pub(super) const MIN_NAME: usize = 4;

/// Whether a value is a code, which cannot be an ordinary word: `shop-stg`.
pub(super) fn is_code(shown: &str) -> bool {
    shown.len() > MIN_NAME
        && shown.contains(|c: char| c.is_ascii_digit() || matches!(c, '-' | '_'))
        && shown.contains(char::is_alphabetic)
        && !shown.contains(char::is_whitespace)
}

/// The rows of a list, merged with the fields of the objects in them, such as the next appointment of a patient; empty
/// if no row contains an object.
pub(super) fn with_children(parsed: &Records, list: usize) -> Vec<Record> {
    let rows =
        || parsed.records.iter().enumerate().filter(|(_, record)| record.list == Some(list)).take(MAX_ROWS);
    let children = parsed.records.iter().filter(|record| record.list.is_none() && record.parent.is_some());
    let is_row = |at: &usize| parsed.records.get(*at).is_some_and(|record| record.list == Some(list));
    let mut fields_by_row: HashMap<usize, Vec<RecordField>> = HashMap::default();
    for child in children.take(MAX_ROWS) {
        let row = child.parent.filter(is_row);
        row.into_iter()
            .for_each(|row| fields_by_row.entry(row).or_default().extend(child.fields.iter().cloned()));
    }
    if !rows().any(|(at, _)| fields_by_row.contains_key(&at)) {
        return Vec::new();
    }
    let merge = |(at, row): (usize, &Record)| {
        let fields = row.fields.iter().cloned().chain(fields_by_row.remove(&at).unwrap_or_default());
        Record { fields: fields.collect(), key: row.key.clone(), parent: row.parent, list: row.list }
    };
    rows().map(merge).collect()
}

/// Whether a value is a date that the text also contains, possibly in another format.
pub(super) fn is_date_of(value: &str, text: &str) -> bool {
    let date = dates::all(value).next().filter(|date| date.at == (0..value.len()));
    date.is_some_and(|date| {
        let is_same = |year: i64, month: usize, day: usize| {
            (year, month, day) == (date.year, date.month, date.day_of_month)
        };
        dates::all(text).any(|other| other.day == date.day)
            || local_dates::all(text).any(|(year, month, day)| is_same(year, month, day))
    })
}

/// The words of a row's values, without the shortest ones.
pub(super) fn words(row: &Record) -> HashSet<String> {
    let texts = row.fields.iter().map(|field| words_of(&field.shown().replace(['@', '.', '_', '-'], " ")));
    let words = texts.flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    words.filter(|word| word.len() >= MIN_NAME - 1).collect()
}

/// Whether the key of a field means a state.
pub(super) fn is_state(field: &RecordField) -> bool {
    field.name.last().is_some_and(|word| matches!(word.as_str(), "status" | "state" | "availability"))
}

/// Whether a row may be unavailable where the other row is available: a flag or a state differs, or a count is 0.
pub(super) fn may_be_unavailable(row: &Record, other: &Record) -> bool {
    row.fields.iter().any(|row_field| {
        let mut fields_of_name = other.fields.iter().filter(|field| field.name == row_field.name);
        fields_of_name.any(|field| match (&row_field.value, &field.value) {
            (FieldValue::Bool(flag), FieldValue::Bool(other)) => flag != other,
            (FieldValue::Number(number), FieldValue::Number(other)) => *number == 0.0 && *other > 0.0,
            _ => is_state(row_field) && row_field.value != field.value,
        })
    })
}

/// Whether a value identifies a row: it has a digit or a sign, or its key ends in "id" or "key".
pub(super) fn identifies(row: &Record, value: &str) -> bool {
    let is_key = |field: &&RecordField| field.name.last().is_some_and(|word| word == "id" || word == "key");
    value.contains(|c: char| c.is_ascii_digit() || matches!(c, '@' | '-' | '_'))
        || row.fields.iter().filter(is_key).any(|field| field.shown().eq_ignore_ascii_case(value))
}

/// Whether a row refers to another one, as to a manager or a parent: it has a value of the other row in another column.
pub(super) fn refers(row: &Record, other: &Record) -> bool {
    let is_name =
        |field: &&RecordField| field.shown().len() >= MIN_NAME && field.shown().contains(char::is_alphabetic);
    let same_column = |a: &RecordField, b: &RecordField| a.name == b.name && a.value == b.value;
    other.fields.iter().filter(is_name).any(|named| {
        row.fields
            .iter()
            .any(|row_field| row_field.shown().contains(named.shown()) && !same_column(row_field, named))
    })
}
