//! Reads structured results once into records of named values.
//!
//! In: the text of a result: JSON, also inside strings and envelopes, a table, or lines of `key: value`.
//! Out: [`Records`]: each object or row with its fields, each list with its length. Prose has none.

mod key_names;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::ops::Deref;
use std::rc::Rc;

use foldhash::{HashMap, HashSet};

pub(crate) use key_names::{KeyNames, Name};

use crate::measure::Memo;
use crate::measure::excerpt::lowercase;
use crate::measure::tables::{self, Row};
use crate::recognise::{Node, Text};

/// Most bytes of a text that is read.
const MAX_BYTES: usize = 256 * 1024;
/// Most records of one result.
const MAX_RECORDS: usize = 1000;
/// Most fields of one result.
const MAX_FIELDS: usize = 10_000;
/// Levels of JSON inside strings.
const MAX_NESTED: usize = 4;
/// Longer texts are prose, which states nothing that could be compared.
const MAX_VALUE: usize = 120;
/// So many members of an object are compared with each other; keys of more are looked up.
const FEW_MEMBERS: usize = 16;
/// Most rows, and numbers of each, that are multiplied.
const MAX_MULTIPLIED: usize = 50;
const FACTORS: usize = 4;
/// Bytes of the month and of the day at the beginning of a date: "2025-11-09T08:00".
const MONTH: usize = 7;
const DAY: usize = 10;
/// Columns of a table that are added up.
const MAX_COLUMNS: usize = 16;

/// A value of a field.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Scalar {
    Bool(bool),
    Number(f64),
    Text(CellText),
}

/// A trimmed text, which is read in lower case. It is converted when it is first read: most are never compared.
#[derive(Clone, Debug)]
pub(crate) struct CellText {
    shown: String,
    lower: OnceCell<String>,
}

impl CellText {
    fn of_trimmed(text: &str) -> CellText {
        CellText { shown: text.to_owned(), lower: OnceCell::new() }
    }
}

impl Deref for CellText {
    type Target = str;
    fn deref(&self) -> &str {
        self.lower.get_or_init(|| lowercase(&self.shown))
    }
}

impl PartialEq for CellText {
    fn eq(&self, other: &CellText) -> bool {
        **self == **other
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Field {
    /// The words of the key.
    pub name: Name,
    pub value: Scalar,
    /// As written, if it is no text.
    number: Cow<'static, str>,
}

impl Field {
    /// The value as written.
    pub(crate) fn shown(&self) -> &str {
        match &self.value {
            Scalar::Text(text) => &text.shown,
            Scalar::Bool(_) | Scalar::Number(_) => &self.number,
        }
    }

    pub(crate) fn number(&self) -> Option<f64> {
        match self.value {
            Scalar::Number(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// An object or a row.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub fields: Vec<Field>,
    /// The words of the key that it is the value of; none for a row of a list.
    pub key: Name,
    /// The record that contains this one.
    pub parent: Option<usize>,
    /// The list that contains it.
    pub list: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct List {
    /// The words of its key; empty for a list without one.
    pub name: Name,
    pub len: usize,
    /// The items are numbers: a series of measurements.
    pub of_numbers: bool,
}

/// The statements of one result.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub records: Vec<Record>,
    pub lists: Vec<List>,
    /// Sums and means of lists of numbers.
    of_lists: Vec<f64>,
    /// The sums and means of lists and columns, see [`Records::aggregates`].
    summary: OnceCell<Summary>,
    fields: usize,
}

/// What follows from the rows of lists together.
#[derive(Debug, Default)]
struct Summary {
    /// Sums and means.
    values: Vec<f64>,
    /// The lengths of groups of rows.
    lengths: Vec<usize>,
}

/// The structure of a text, if it has one.
pub(crate) struct Structure(pub(crate) Option<Records>);

impl Structure {
    /// The structure of a result, read once per trace; `None` if the work budget is exceeded.
    pub(crate) fn of(text: &Text, memo: &Memo) -> Option<Rc<Structure>> {
        let read = |text: &str| Structure(Records::read(text, &memo.shared::<KeyNames>()));
        memo.budget.spend(text.len() / 16).then(|| memo.of(text, read))
    }
}

impl Records {
    /// `None` if the text has no structure.
    pub(crate) fn read(text: &str, names: &KeyNames) -> Option<Records> {
        let mut reader = Reader { records: Records::default(), names };
        let is_read =
            text.len() <= MAX_BYTES && reader.read_text(text.trim(), names.none(), None, MAX_NESTED);
        is_read.then_some(reader.records)
    }

    /// Sums and means of columns and of lists of numbers.
    pub(crate) fn aggregates(&self) -> &[f64] {
        &self.summary().values
    }

    fn summary(&self) -> &Summary {
        self.summary.get_or_init(|| {
            let mut summary = Summary { values: self.of_lists.clone(), lengths: Vec::new() };
            self.columns(&mut summary.lengths)
                .iter()
                .for_each(|numbers| aggregate(&mut summary.values, numbers));
            summary
        })
    }

    /// The lengths of lists, and of the groups of their rows that share a text, a flag, a month or a day.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.lists.iter().map(|list| list.len).chain(self.summary().lengths.iter().copied())
    }

    fn add_record(&mut self, key: &Name, parent: Option<usize>, list: Option<usize>) -> Option<usize> {
        (self.records.len() < MAX_RECORDS).then(|| {
            self.records.push(Record { fields: Vec::new(), key: Rc::clone(key), parent, list });
            self.records.len() - 1
        })
    }

    fn add_list(&mut self, name: &Name, len: usize, of_numbers: bool) -> Option<usize> {
        (self.lists.len() < MAX_RECORDS).then(|| {
            self.lists.push(List { name: Rc::clone(name), len, of_numbers });
            self.lists.len() - 1
        })
    }

    /// `number` is how a value that is no text is written.
    fn add_field(&mut self, record: usize, name: Name, value: Scalar, number: impl Into<Cow<'static, str>>) {
        self.fields += 1;
        if self.fields <= MAX_FIELDS
            && let Some(record) = self.records.get_mut(record)
        {
            record.fields.push(Field { name, value, number: number.into() });
        }
    }

    /// The columns of each list, of all rows and of the groups of rows, and products of columns; adds the lengths of
    /// groups.
    fn columns(&self, lengths: &mut Vec<usize>) -> Vec<Vec<f64>> {
        let mut rows: Vec<Vec<&Record>> = vec![Vec::new(); self.lists.len()];
        for record in &self.records {
            let own = record.list.and_then(|list| rows.get_mut(list));
            own.into_iter().for_each(|own| own.push(record));
        }
        let several = rows.iter().filter(|rows| rows.len() > 1);
        several.flat_map(|rows| columns(rows, lengths).into_iter().chain(products_of(rows))).collect()
    }
}

/// Adds the sum and the mean of some numbers.
fn aggregate(aggregates: &mut Vec<f64>, numbers: &[f64]) {
    if numbers.len() > 1 && aggregates.len() < MAX_RECORDS {
        let sum: f64 = numbers.iter().sum();
        aggregates.extend([sum, sum / numbers.len() as f64]);
    }
}

/// The numbers of each column of a list, of all rows and of those that share a text, a flag, a month or a day.
fn columns(rows: &[&Record], lengths: &mut Vec<usize>) -> Vec<Vec<f64>> {
    // What occurs once is shared by no rows.
    let mut occurring: HashMap<&str, usize> = HashMap::default();
    rows.iter().flat_map(|row| shared_values(row)).for_each(|of| *occurring.entry(of).or_default() += 1);
    occurring.retain(|_, rows| *rows > 1);
    let free = MAX_RECORDS.saturating_sub(lengths.len());
    lengths.extend(occurring.values().copied().take(free));
    let fields = || rows.iter().flat_map(|row| row.fields.iter().enumerate().take(MAX_COLUMNS));
    let mut columns: BTreeMap<(usize, &str), Vec<f64>> = BTreeMap::new();
    for (column, number) in fields().filter_map(|(column, field)| Some((column, field.number()?))) {
        columns.entry((column, "")).or_default().push(number);
    }
    for row in rows.iter().filter(|_| !occurring.is_empty()) {
        for group in shared_values(row).filter(|value| occurring.contains_key(value)) {
            for (column, field) in row.fields.iter().enumerate().take(MAX_COLUMNS) {
                columns.entry((column, group)).or_default().extend(field.number());
            }
        }
    }
    columns.into_values().collect()
}

/// A member of an object.
type Member<'a> = (Cow<'a, str>, Node<'a>);

/// Reads one result.
struct Reader<'n> {
    records: Records,
    names: &'n KeyNames,
}

impl Reader<'_> {
    /// Reads a text without white space at its ends.
    fn read_text(&mut self, text: &str, name: &Name, parent: Option<usize>, nested: usize) -> bool {
        if text.starts_with(['{', '[']) {
            let parsed = Node::json(text).filter(|_| nested > 0);
            return parsed.is_some_and(|value| {
                self.read_value(&value, name, parent, None, nested - 1);
                true
            });
        }
        let Some(rows) = tables::read(text) else { return false };
        let list = tables::is_list(&rows).then(|| self.records.add_list(name, rows.len(), false)).flatten();
        rows.into_iter().for_each(|row| self.add_row(row, parent, list));
        true
    }

    fn add_row(&mut self, row: Row<'_>, parent: Option<usize>, list: Option<usize>) {
        let Some(at) = self.records.add_record(self.names.none(), parent, list) else { return };
        for (key, text) in row {
            let value = scalar_of_text(text);
            let number = if let Scalar::Text(_) = value { String::new() } else { text.trim().to_owned() };
            self.records.add_field(at, self.names.of(key), value, number);
        }
    }

    /// Depth is bounded by the JSON parser.
    fn read_value(
        &mut self,
        value: &Node<'_>,
        name: &Name,
        parent: Option<usize>,
        list: Option<usize>,
        nested: usize,
    ) {
        match value {
            Node::Map(members) => self.read_object(members, name, parent, list, nested),
            Node::List(items) if self.add_rows(items, name, parent) => {}
            Node::List(items) => {
                let numbers: Vec<f64> = items.iter().filter_map(as_f64).collect();
                if numbers.len() == items.len() {
                    aggregate(&mut self.records.of_lists, &numbers);
                }
                self.add_columns(items);
                let list = self.records.add_list(name, items.len(), numbers.len() == items.len());
                if let Some(Node::Map(_)) = items.first() {
                    self.records.records.reserve(items.len().min(MAX_RECORDS));
                }
                for item in items {
                    self.read_value(item, name, parent, list, nested);
                }
            }
            Node::Str(text) => {
                let trimmed = text.trim();
                if !self.read_text(trimmed, name, parent, nested) {
                    let is_short = text.len() <= MAX_VALUE;
                    if let Some(at) = parent.filter(|_| is_short) {
                        let value = Scalar::Text(CellText::of_trimmed(trimmed));
                        self.records.add_field(at, Rc::clone(name), value, "");
                    }
                }
            }
            Node::Int(_) | Node::Uint(_) | Node::Float(_) => {
                if let (Some(number), Some(at)) = (as_f64(value), parent) {
                    let shown = match value {
                        Node::Int(n) => n.to_string(),
                        value => value.to_json(),
                    };
                    self.records.add_field(at, Rc::clone(name), Scalar::Number(number), shown);
                }
            }
            Node::Bool(is) => {
                if let Some(at) = parent {
                    self.records.add_field(
                        at,
                        Rc::clone(name),
                        Scalar::Bool(*is),
                        if *is { "true" } else { "false" },
                    );
                }
            }
            Node::Null => {}
        }
    }

    /// Adds up the columns of rows without names: `[["Kitchen", 644000], ["Garden", 478400]]`.
    fn add_columns(&mut self, items: &[Node<'_>]) {
        let cell = |row: &Node<'_>, at: usize| match row {
            Node::List(cells) => cells.get(at).and_then(as_f64),
            _ => None,
        };
        let Some(Node::List(first)) = items.first() else { return };
        for at in 0..first.len().min(MAX_COLUMNS) {
            let numbers: Option<Vec<f64>> = items.iter().map(|row| cell(row, at)).collect();
            numbers.into_iter().for_each(|numbers| aggregate(&mut self.records.of_lists, &numbers));
        }
    }

    /// Adds a list of rows whose first one has the names of the columns, as spreadsheets return ranges; false if it
    /// is none.
    fn add_rows(&mut self, items: &[Node<'_>], name: &Name, parent: Option<usize>) -> bool {
        let [Node::List(first), rows @ ..] = items else { return false };
        let names: Vec<Name> = first.iter().filter_map(Node::as_str).map(|key| self.names.of(key)).collect();
        let fits = |row: &Node<'_>| matches!(row, Node::List(cells) if cells.len() == names.len());
        // Without numbers below it, the first row may be one like the others.
        let is_number = |cell: &Node<'_>| {
            as_f64(cell).is_some() || matches!(cell.as_str().map(scalar_of_text), Some(Scalar::Number(_)))
        };
        let has_number = |row: &Node<'_>| matches!(row, Node::List(cells) if cells.iter().any(is_number));
        let are_below = !rows.is_empty() && rows.iter().all(has_number) && !first.iter().any(is_number);
        if names.len() < 2 || !are_below || !items.iter().all(fits) {
            return false;
        }
        let list = self.records.add_list(name, rows.len(), false);
        for row in rows {
            let at = self.records.add_record(self.names.none(), parent, list);
            let (Node::List(cells), Some(at)) = (row, at) else {
                continue;
            };
            for (name, cell) in names.iter().zip(cells) {
                let shown = cell.as_str().map_or_else(|| cell.to_json(), |text| text.trim().to_owned());
                self.records.add_field(at, Rc::clone(name), scalar_of_text(&shown), shown);
            }
        }
        true
    }

    fn read_object(
        &mut self,
        members: &[Member<'_>],
        name: &Name,
        parent: Option<usize>,
        list: Option<usize>,
        nested: usize,
    ) {
        let key = if list.is_none() { name } else { self.names.none() };
        let Some(at) = self.records.add_record(key, parent, list) else { return };
        if let Some(record) = self.records.records.get_mut(at) {
            record.fields.reserve(members.len().min(MAX_FIELDS));
        }
        for (key, value) in &*without_repeated_keys(members) {
            let name = self.names.of(key);
            self.read_value(value, &name, Some(at), None, nested);
        }
    }
}

/// By two columns, the products of their numbers in each row: a quantity and its price.
fn products_of(rows: &[&Record]) -> Vec<Vec<f64>> {
    if !(2..=MAX_MULTIPLIED).contains(&rows.len()) {
        return Vec::new();
    }
    let numbers: Vec<Vec<f64>> =
        rows.iter().map(|row| row.fields.iter().filter_map(Field::number).take(FACTORS).collect()).collect();
    let pairs = (0..FACTORS).flat_map(|a| (a + 1..FACTORS).map(move |b| (a, b)));
    let product = |(a, b): (usize, usize)| -> Option<Vec<f64>> {
        numbers.iter().map(|row| Some(row.get(a)? * row.get(b)?)).collect()
    };
    pairs.filter_map(product).collect()
}

/// The values of a row by which rows are grouped: texts and flags, and of dates the day and the month.
fn shared_values(row: &Record) -> impl Iterator<Item = &str> {
    let texts = row.fields.iter().filter(|f| f.number().is_none()).map(Field::shown).take(MAX_COLUMNS);
    texts.flat_map(|text| {
        let is_date = text.len() >= DAY
            && text
                .bytes()
                .take(DAY)
                .zip(*b"0000-00-00")
                .all(|(b, form)| b == form || form == b'0' && b.is_ascii_digit());
        let parts = [MONTH, DAY].map(|len| text.get(..len).filter(|part| is_date && part.len() < text.len()));
        parts.into_iter().flatten().chain([text])
    })
}

fn as_f64(value: &Node<'_>) -> Option<f64> {
    match value {
        Node::Int(n) => Some(*n as f64),
        Node::Uint(n) => Some(*n as f64),
        Node::Float(n) => Some(*n),
        _ => None,
    }
}

/// The members of an object, each key at its first place with its last value.
fn without_repeated_keys<'n, 'a>(members: &'n [Member<'a>]) -> Cow<'n, [Member<'a>]> {
    let keys = || members.iter().map(|(key, _)| key);
    let are_distinct = match members.len() <= FEW_MEMBERS {
        true => keys().enumerate().all(|(nth, key)| keys().take(nth).all(|known| known != key)),
        false => keys().collect::<HashSet<_>>().len() == members.len(),
    };
    if are_distinct {
        return Cow::Borrowed(members);
    }
    let mut out: Vec<Member<'a>> = Vec::with_capacity(members.len());
    let mut places: HashMap<&str, usize> = HashMap::default();
    for (key, value) in members {
        match places.entry(key) {
            Entry::Occupied(place) => {
                out.get_mut(*place.get()).into_iter().for_each(|(_, known)| *known = value.clone())
            }
            Entry::Vacant(place) => {
                place.insert(out.len());
                out.push((key.clone(), value.clone()));
            }
        }
    }
    Cow::Owned(out)
}

/// The value of a cell.
fn scalar_of_text(text: &str) -> Scalar {
    let text = CellText::of_trimmed(text.trim());
    match &*text {
        "true" | "yes" => Scalar::Bool(true),
        "false" | "no" => Scalar::Bool(false),
        lower => {
            lower.parse().ok().filter(|n: &f64| n.is_finite()).map_or(Scalar::Text(text), Scalar::Number)
        }
    }
}

#[cfg(test)]
mod tests;
