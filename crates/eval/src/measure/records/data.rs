//! The records of one result: its objects and rows with their fields, its lists, and values that are derived from
//! several rows.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use foldhash::HashMap;

use super::key_names::KeyName;
use crate::measure::excerpt::lowercase;
use crate::recognise::ContentNode;

/// Maximum records of one result.
pub(super) const MAX_RECORDS: usize = 1000;
/// Maximum fields of one result.
const MAX_FIELDS: usize = 10_000;
/// Maximum rows of a list whose columns are multiplied.
const MAX_MULTIPLIED_ROWS: usize = 50;
/// Maximum numbers of each of these rows that are multiplied.
const MAX_FACTORS: usize = 4;
/// Bytes of the year and month at the beginning of a date: "2025-11-09T08:00".
const MONTH_BYTES: usize = 7;
/// Bytes of the year, month and day at the beginning of a date.
const DAY_BYTES: usize = 10;
/// Maximum distinct keys of a result that are stored. A result with as many may have further keys.
const MAX_KEYS: usize = 32;
/// Records for which memory is reserved.
const USUAL_RECORDS: usize = 8;
/// Distinct keys for which memory is reserved.
const USUAL_KEYS: usize = 8;
/// Minimum members of an object that are added up.
const MIN_SERIES: usize = 3;
/// Maximum columns of a table that are added up.
pub(super) const MAX_COLUMNS: usize = 16;

/// A value of a field.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum FieldValue {
    Bool(bool),
    Number(f64),
    Text(CellText),
}

/// A trimmed text, which is compared in lower case. It is converted at its first comparison: most are never compared.
#[derive(Clone, Debug)]
pub(crate) struct CellText {
    shown: Box<str>,
    lower: OnceCell<Box<str>>,
}

impl CellText {
    pub(super) fn from_trimmed(text: &str) -> CellText {
        CellText { shown: text.into(), lower: OnceCell::new() }
    }
}

impl Deref for CellText {
    type Target = str;
    fn deref(&self) -> &str {
        self.lower.get_or_init(|| lowercase(&self.shown).into())
    }
}

impl PartialEq for CellText {
    fn eq(&self, other: &CellText) -> bool {
        **self == **other
    }
}

/// A field of a record.
#[derive(Clone, Debug)]
pub(crate) struct RecordField {
    /// The words of the key.
    pub name: KeyName,
    pub value: FieldValue,
    /// See [`RecordField::original`]. The one of a number may be computed at its first use: most are never shown.
    original: OnceCell<String>,
}

impl PartialEq for RecordField {
    fn eq(&self, other: &RecordField) -> bool {
        self.name == other.name && self.value == other.value && self.original() == other.original()
    }
}

impl RecordField {
    /// The value as it is in the result.
    pub(crate) fn shown(&self) -> &str {
        match &self.value {
            FieldValue::Text(text) => &text.shown,
            FieldValue::Bool(_) | FieldValue::Number(_) => self.original(),
        }
    }

    /// Whether a text that is this number, if it is one, may be the value as it is in the result. Most numbers are
    /// compared with texts that are not equal, and need no text of their own.
    pub(crate) fn may_be_shown_as(&self, text_as_number: Option<f64>) -> bool {
        self.number().is_none_or(|number| text_as_number == Some(number))
    }

    /// A number or a flag as it is in the result, and a text of a row below a header; empty for other texts.
    fn original(&self) -> &str {
        match self.value {
            FieldValue::Number(number) => self.original.get_or_init(|| text_of_number(number)),
            FieldValue::Bool(flag) => {
                self.original.get().map_or(if flag { "true" } else { "false" }, |original| original)
            }
            FieldValue::Text(_) => self.original.get().map_or("", |original| original),
        }
    }

    /// The value, if it is a number.
    pub(crate) fn number(&self) -> Option<f64> {
        match self.value {
            FieldValue::Number(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn is_text(&self) -> bool {
        matches!(self.value, FieldValue::Text(_))
    }

    /// The value in lower case, if it is a text. The first use converts it; [`Self::is_text`] does not.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            FieldValue::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// The largest integer up to which all integers are exact as `f64`.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Whether [`text_of_number`] returns the JSON of a number that JSON has as an integer, or else with a decimal point or
/// an exponent.
pub(super) fn follows_from_value(number: f64, is_integer: bool) -> bool {
    match is_integer {
        true => number.abs() < MAX_EXACT_INTEGER,
        false => number.fract() != 0.0,
    }
}

/// The text of a number in JSON: without a decimal point if it is an integer.
fn text_of_number(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < MAX_EXACT_INTEGER {
        return (number as i64).to_string();
    }
    ContentNode::Float(number).to_json()
}

/// An object or a row.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub fields: Vec<RecordField>,
    /// The words of the key whose value the record is; none for a row of a list.
    pub key: KeyName,
    /// The index of the record that contains this one.
    pub parent: Option<usize>,
    /// The index of the list that contains this record as an item.
    pub list: Option<usize>,
}

impl Record {
    /// The numbers of an object whose members are all numbers, such as amounts by day; `None` for other records and for
    /// rows of a list.
    fn series(&self) -> Option<Vec<f64>> {
        let is_series = self.list.is_none() && self.fields.len() >= MIN_SERIES;
        is_series.then(|| self.fields.iter().map(RecordField::number).collect()).flatten()
    }
}

/// A list of a result.
#[derive(Debug)]
pub(crate) struct RecordList {
    /// The words of its key; empty for a list without one.
    pub name: KeyName,
    pub len: usize,
    /// Whether all items are numbers, as in a series of measurements.
    pub is_numeric: bool,
}

/// The records and lists of one result.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub records: Vec<Record>,
    pub lists: Vec<RecordList>,
    /// Whether a field is a flag.
    pub has_flags: bool,
    /// The distinct keys of fields, at most [`MAX_KEYS`].
    keys: Vec<KeyName>,
    /// Sums and means of lists of numbers.
    pub(super) list_aggregates: Vec<f64>,
    /// The sums and means of lists and columns, see [`Records::aggregates`].
    summary: OnceCell<ColumnSummary>,
    /// The number of fields, including those above [`MAX_FIELDS`].
    pub(super) field_count: usize,
}

/// Values that follow from several rows of lists.
#[derive(Debug, Default)]
struct ColumnSummary {
    /// Sums and means.
    values: Vec<f64>,
    /// The lengths of groups of rows.
    lengths: Vec<usize>,
}

impl Records {
    /// Whether a field may have a key for which `matches_key` is true. Most results have none, and need not be
    /// searched.
    pub(crate) fn may_have_key(&self, matches_key: impl FnMut(&KeyName) -> bool) -> bool {
        self.keys.len() >= MAX_KEYS || self.keys.iter().any(matches_key)
    }

    /// The sums and means of columns and of lists of numbers.
    pub(crate) fn aggregates(&self) -> &[f64] {
        &self.summary().values
    }

    /// The derived values, computed at their first use.
    fn summary(&self) -> &ColumnSummary {
        self.summary.get_or_init(|| {
            let mut summary = ColumnSummary { values: self.list_aggregates.clone(), lengths: Vec::new() };
            self.columns(&mut summary.lengths)
                .iter()
                .for_each(|numbers| add_sum_and_mean(&mut summary.values, numbers));
            for series in self.records.iter().filter_map(Record::series) {
                add_sum_and_mean(&mut summary.values, &series);
            }
            summary
        })
    }

    /// The lengths of lists, and of the groups of their rows that share a text, a flag, a month or a day.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.lists.iter().map(|list| list.len).chain(self.summary().lengths.iter().copied())
    }

    /// Adds a record and returns its index; `None` if there are too many. `fields` is the expected number of its
    /// fields.
    pub(super) fn add_record(
        &mut self,
        key: &KeyName,
        parent: Option<usize>,
        list: Option<usize>,
        fields: usize,
    ) -> Option<usize> {
        (self.records.len() < MAX_RECORDS).then(|| {
            if self.records.is_empty() {
                self.records.reserve(USUAL_RECORDS);
            }
            let fields = Vec::with_capacity(fields.min(MAX_FIELDS));
            self.records.push(Record { fields, key: Rc::clone(key), parent, list });
            self.records.len() - 1
        })
    }

    /// Adds a list and returns its index; `None` if there are too many.
    pub(super) fn add_list(&mut self, name: &KeyName, len: usize, is_numeric: bool) -> Option<usize> {
        (self.lists.len() < MAX_RECORDS).then(|| {
            self.lists.push(RecordList { name: Rc::clone(name), len, is_numeric });
            self.lists.len() - 1
        })
    }

    /// Sets the length and the kind of a list when its end has been read.
    pub(super) fn complete_list(&mut self, list: Option<usize>, len: usize, is_numeric: bool) {
        if let Some(list) = list.and_then(|list| self.lists.get_mut(list)) {
            (list.len, list.is_numeric) = (len, is_numeric);
        }
    }

    /// The lengths of all collections, and the number of fields of a record, for [`truncate`](Self::truncate).
    pub(super) fn lengths_of_collections(&self, record: Option<usize>) -> [usize; 5] {
        let fields = record.and_then(|index| self.records.get(index)).map_or(0, |record| record.fields.len());
        [self.records.len(), self.lists.len(), self.list_aggregates.len(), self.field_count, fields]
    }

    /// Removes the additions since [`lengths_of_collections`](Self::lengths_of_collections) returned these lengths.
    pub(super) fn truncate(
        &mut self,
        [records, lists, list_aggregates, all_fields, fields]: [usize; 5],
        record: Option<usize>,
    ) {
        self.records.truncate(records);
        self.lists.truncate(lists);
        self.list_aggregates.truncate(list_aggregates);
        self.field_count = all_fields;
        record
            .and_then(|index| self.records.get_mut(index))
            .into_iter()
            .for_each(|record| record.fields.truncate(fields));
    }

    /// Adds a field to a record, if there is one. `value` returns the value and its original text, see
    /// [`RecordField::shown`]; the text may be `None` if it follows from the value ([`follows_from_value`]).
    pub(super) fn add_field(
        &mut self,
        record: Option<usize>,
        name: &KeyName,
        value: impl FnOnce() -> (FieldValue, Option<String>),
    ) {
        let Some(record) = record else { return };
        self.field_count += 1;
        if self.field_count <= MAX_FIELDS
            && let Some(record) = self.records.get_mut(record)
        {
            let (value, original) = value();
            self.has_flags |= matches!(value, FieldValue::Bool(_));
            if self.keys.len() < MAX_KEYS && !self.keys.iter().any(|key| Rc::ptr_eq(key, name)) {
                if self.keys.is_empty() {
                    self.keys.reserve(USUAL_KEYS);
                }
                self.keys.push(Rc::clone(name));
            }
            let original = original.map(OnceCell::from).unwrap_or_default();
            record.fields.push(RecordField { name: Rc::clone(name), value, original });
        }
    }

    /// The rows of each list.
    pub(crate) fn rows_by_list(&self) -> Vec<Vec<&Record>> {
        let mut lists: Vec<Vec<&Record>> = vec![Vec::new(); self.lists.len()];
        for record in &self.records {
            let rows = record.list.and_then(|list| lists.get_mut(list));
            rows.into_iter().for_each(|rows| rows.push(record));
        }
        lists
    }

    /// The numbers of the columns of each list, for all rows and for the groups of rows, and the products of columns.
    /// Adds the lengths of groups to `lengths`.
    fn columns(&self, lengths: &mut Vec<usize>) -> Vec<Vec<f64>> {
        let rows = self.rows_by_list();
        let long_lists = rows.iter().filter(|rows| rows.len() > 1);
        long_lists.flat_map(|rows| columns(rows, lengths).into_iter().chain(products_of(rows))).collect()
    }
}

/// Adds the sum and the mean of several numbers.
pub(super) fn add_sum_and_mean(aggregates: &mut Vec<f64>, numbers: &[f64]) {
    if numbers.len() > 1 && aggregates.len() < MAX_RECORDS {
        let sum: f64 = numbers.iter().sum();
        aggregates.extend([sum, sum / numbers.len() as f64]);
    }
}

/// The numbers of each column of a list, for all rows and for each group of rows that share a text, a flag, a month or
/// a day.
fn columns(rows: &[&Record], lengths: &mut Vec<usize>) -> Vec<Vec<f64>> {
    // Only a value that occurs several times forms a group.
    let mut counts: HashMap<&str, usize> = HashMap::default();
    rows.iter().flat_map(|row| group_values(row)).for_each(|value| *counts.entry(value).or_default() += 1);
    counts.retain(|_, rows| *rows > 1);
    let max_added = MAX_RECORDS.saturating_sub(lengths.len());
    lengths.extend(counts.values().copied().take(max_added));
    let fields = || rows.iter().flat_map(|row| row.fields.iter().enumerate().take(MAX_COLUMNS));
    let mut columns: BTreeMap<(usize, &str), Vec<f64>> = BTreeMap::new();
    for (column, number) in fields().filter_map(|(column, field)| Some((column, field.number()?))) {
        columns.entry((column, "")).or_default().push(number);
    }
    for row in rows.iter().filter(|_| !counts.is_empty()) {
        for group in group_values(row).filter(|value| counts.contains_key(value)) {
            for (column, field) in row.fields.iter().enumerate().take(MAX_COLUMNS) {
                columns.entry((column, group)).or_default().extend(field.number());
            }
        }
    }
    columns.into_values().collect()
}

/// For each pair of columns, the products of their numbers in each row, as of a quantity and its price.
fn products_of(rows: &[&Record]) -> Vec<Vec<f64>> {
    if !(2..=MAX_MULTIPLIED_ROWS).contains(&rows.len()) {
        return Vec::new();
    }
    let numbers: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| row.fields.iter().filter_map(RecordField::number).take(MAX_FACTORS).collect())
        .collect();
    let pairs = (0..MAX_FACTORS).flat_map(|a| (a + 1..MAX_FACTORS).map(move |b| (a, b)));
    let product = |(a, b): (usize, usize)| -> Option<Vec<f64>> {
        numbers.iter().map(|row| Some(row.get(a)? * row.get(b)?)).collect()
    };
    pairs.filter_map(product).collect()
}

/// The values of a row by which rows are grouped: texts and flags, and the day and the month of dates.
fn group_values(row: &Record) -> impl Iterator<Item = &str> {
    let texts = row.fields.iter().filter(|f| f.number().is_none()).map(RecordField::shown).take(MAX_COLUMNS);
    texts.flat_map(|text| {
        let is_date = text.len() >= DAY_BYTES
            && text
                .bytes()
                .take(DAY_BYTES)
                .zip(*b"0000-00-00")
                .all(|(b, form)| b == form || form == b'0' && b.is_ascii_digit());
        let parts = [MONTH_BYTES, DAY_BYTES]
            .map(|len| text.get(..len).filter(|part| is_date && part.len() < text.len()));
        parts.into_iter().flatten().chain([text])
    })
}

/// The value of a cell of a table: a flag, a number or a text.
pub(super) fn scalar_of_text(text: &str) -> FieldValue {
    let text = CellText::from_trimmed(text.trim());
    match &*text {
        "true" | "yes" => FieldValue::Bool(true),
        "false" | "no" => FieldValue::Bool(false),
        lower => lower
            .parse()
            .ok()
            .filter(|n: &f64| n.is_finite())
            .map_or(FieldValue::Text(text), FieldValue::Number),
    }
}
