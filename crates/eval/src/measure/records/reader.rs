//! Reads one result into records: JSON while it is parsed, tables and lines of `key: value` row by row.
//!
//! In: a text. Out: its records. JSON is parsed into a tree only where the form of a part depends on later parts: in a
//! list of lists, and in a text with an object in which a key recurs.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::fmt;
use std::rc::Rc;

use foldhash::{HashMap, HashSet};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use super::data::{
    CellText, FieldValue, MAX_COLUMNS, Records, add_sum_and_mean, follows_from_value, scalar_of_text,
};
use super::key_names::{KeyName, KeyNames};
use crate::measure::tables::{self, CellRow};
use crate::recognise::ContentNode;

/// Maximum levels of JSON inside strings.
const MAX_NESTED: usize = 4;
/// Maximum bytes of a text that is stored as a value: longer texts are prose, which rules do not compare.
const MAX_VALUE_BYTES: usize = 120;
/// Up to this number of members of an object in a tree, keys are compared with each other; those of larger objects are
/// compared by a set.
const FEW_MEMBERS: usize = 16;

/// Maximum members of an object whose keys are compared while it is parsed; a larger one is read from a tree.
const MAX_MEMBERS: usize = 64;
/// Minimum fields for which a record reserves memory. It reserves as many as the record before it has, within these
/// bounds.
const MIN_RESERVED_FIELDS: usize = 4;
/// Keys of the objects that are being read, for which memory is reserved.
const USUAL_OPEN_KEYS: usize = 16;
/// Maximum fields for which a record reserves memory.
const MAX_RESERVED_FIELDS: usize = 16;

/// A member of an object.
type Member<'a> = (Cow<'a, str>, ContentNode<'a>);

/// Reads one result.
pub(super) struct RecordReader<'n> {
    records: Records,
    names: &'n KeyNames,
    /// The keys of the objects that are being read, by the addresses of their names.
    keys: Vec<usize>,
    /// Whether a key recurs or may recur in an object, so that the text must be read from a tree.
    has_recurring_key: bool,
    /// Whether JSON is read from a tree, in which recurring keys are merged.
    from_tree: bool,
}

/// The position of a value in a result: its key, its record and its list, and the remaining levels of JSON in strings.
#[derive(Clone, Copy)]
struct ValuePosition<'v> {
    name: &'v KeyName,
    parent: Option<usize>,
    list: Option<usize>,
    levels_left: usize,
}

impl<'n> RecordReader<'n> {
    /// The records of a text; `None` if it has no structure.
    pub(super) fn read(text: &str, names: &'n KeyNames) -> Option<Records> {
        let mut reader = RecordReader {
            records: Records::default(),
            names,
            keys: Vec::new(),
            has_recurring_key: false,
            from_tree: false,
        };
        let mut is_read = reader.read_whole(text);
        if reader.has_recurring_key {
            reader = RecordReader { records: Records::default(), from_tree: true, ..reader };
            is_read = reader.read_whole(text);
        }
        is_read.then_some(reader.records)
    }

    fn read_whole(&mut self, text: &str) -> bool {
        let name = self.names.none();
        self.read_text(text.trim(), ValuePosition { name, parent: None, list: None, levels_left: MAX_NESTED })
    }

    /// Reads a text without white space at its ends; returns false if it has no structure.
    fn read_text(&mut self, text: &str, position: ValuePosition<'_>) -> bool {
        if text.starts_with(['{', '[']) {
            return position.levels_left > 0
                && self.read_json(text, ValuePosition { levels_left: position.levels_left - 1, ..position });
        }
        let Some(rows) = tables::read(text) else { return false };
        let ValuePosition { name, parent, .. } = position;
        let list = tables::is_list(&rows).then(|| self.records.add_list(name, rows.len(), false)).flatten();
        rows.into_iter().for_each(|row| self.add_row(row, parent, list));
        true
    }

    /// Reads JSON; returns false and adds nothing if the text is no JSON.
    fn read_json(&mut self, text: &str, position: ValuePosition<'_>) -> bool {
        if self.from_tree {
            let tree = ContentNode::json(text);
            tree.iter().for_each(|tree| self.read_tree(tree, position));
            return tree.is_some();
        }
        let (before, keys) = (self.records.lengths_of_collections(position.parent), self.keys.len());
        let is_read = read_while_parsing(text, self, position);
        if !is_read {
            self.records.truncate(before, position.parent);
            self.keys.truncate(keys);
        }
        is_read
    }

    /// Reads a value of a tree, whose depth is bounded by the JSON parser.
    fn read_tree(&mut self, value: &ContentNode<'_>, position: ValuePosition<'_>) {
        match value {
            ContentNode::Map(members) => {
                let Some(record) = self.add_object(position, members.len()) else { return };
                for (key, value) in &*without_repeated_keys(members) {
                    let name = &self.names.name_for(key);
                    self.read_tree(
                        value,
                        ValuePosition { name, parent: Some(record), list: None, ..position },
                    );
                }
            }
            ContentNode::List(items) => {
                let list = self.records.add_list(position.name, 0, false);
                self.read_items(items, ValuePosition { list, ..position });
            }
            ContentNode::Str(text) => self.add_text(text, matches!(text, Cow::Owned(_)), position),
            ContentNode::Bool(flag) => self.add_flag(*flag, position),
            ContentNode::Int(n) => self.add_number(*n as f64, true, || n.to_string(), position),
            ContentNode::Uint(n) => self.add_number(*n as f64, true, || n.to_string(), position),
            ContentNode::Float(n) => self.add_number(*n, false, || value.to_json(), position),
            ContentNode::Null => {}
        }
    }

    /// Reads the items of the list of a position.
    fn read_items(&mut self, items: &[ContentNode<'_>], position: ValuePosition<'_>) {
        if self.add_rows(items, position) {
            return;
        }
        let numbers: Vec<f64> = items.iter().filter_map(as_f64).collect();
        let is_numeric = numbers.len() == items.len();
        if is_numeric {
            add_sum_and_mean(&mut self.records.list_aggregates, &numbers);
        }
        self.add_columns(items);
        self.records.complete_list(position.list, items.len(), is_numeric);
        items.iter().for_each(|item| self.read_tree(item, position));
    }

    /// Adds the record of an object with an expected number of `fields`.
    fn add_object(&mut self, position: ValuePosition<'_>, fields: usize) -> Option<usize> {
        let key = if position.list.is_none() { position.name } else { self.names.none() };
        self.records.add_record(key, position.parent, position.list, fields)
    }

    /// Adds a text as a value, or its content if it is JSON or, if it `may_have_lines`, a table.
    fn add_text(&mut self, text: &str, may_have_lines: bool, position: ValuePosition<'_>) {
        let trimmed = text.trim();
        let may_be_read = may_have_lines || trimmed.starts_with(['{', '[']);
        let is_read = may_be_read && self.read_text(trimmed, ValuePosition { list: None, ..position });
        if !is_read && text.len() <= MAX_VALUE_BYTES {
            let value = || (FieldValue::Text(CellText::from_trimmed(trimmed)), None);
            self.records.add_field(position.parent, position.name, value);
        }
    }

    fn add_flag(&mut self, flag: bool, position: ValuePosition<'_>) {
        self.records.add_field(position.parent, position.name, || (FieldValue::Bool(flag), None));
    }

    fn add_number(
        &mut self,
        number: f64,
        is_integer: bool,
        original: impl FnOnce() -> String,
        position: ValuePosition<'_>,
    ) {
        let value = || (FieldValue::Number(number), (!follows_from_value(number, is_integer)).then(original));
        self.records.add_field(position.parent, position.name, value);
    }

    /// Adds a row of a table as a record.
    fn add_row(&mut self, row: CellRow<'_>, parent: Option<usize>, list: Option<usize>) {
        let Some(record) = self.records.add_record(self.names.none(), parent, list, row.len()) else {
            return;
        };
        for (key, text) in row {
            self.records.add_field(Some(record), &self.names.name_for(key), || {
                let value = scalar_of_text(text);
                let original = (!matches!(value, FieldValue::Text(_))).then(|| text.trim().to_owned());
                (value, original)
            });
        }
    }

    /// Adds up the columns of rows without names: `[["Kitchen", 644000], ["Garden", 478400]]`.
    fn add_columns(&mut self, items: &[ContentNode<'_>]) {
        let cell = |row: &ContentNode<'_>, column: usize| match row {
            ContentNode::List(cells) => cells.get(column).and_then(as_f64),
            _ => None,
        };
        let Some(ContentNode::List(first)) = items.first() else { return };
        for column in 0..first.len().min(MAX_COLUMNS) {
            let numbers: Option<Vec<f64>> = items.iter().map(|row| cell(row, column)).collect();
            numbers
                .into_iter()
                .for_each(|numbers| add_sum_and_mean(&mut self.records.list_aggregates, &numbers));
        }
    }

    /// Adds a list of rows whose first row is a header, as spreadsheets return ranges, or of rows after a list with the
    /// names of their columns, as databases return them; returns false for other lists.
    fn add_rows(
        &mut self,
        items: &[ContentNode<'_>],
        ValuePosition { parent, list, .. }: ValuePosition<'_>,
    ) -> bool {
        let [ContentNode::List(first), others @ ..] = items else { return false };
        let has_width =
            |row: &ContentNode<'_>| matches!(row, ContentNode::List(cells) if cells.len() == first.len());
        if first.len() < 2 || !items.iter().all(has_width) {
            return false;
        }
        let (names, rows) = match self.names_before(parent, first.len()) {
            Some(names) => (names, items),
            None => {
                let names: Vec<KeyName> = first
                    .iter()
                    .filter_map(ContentNode::as_str)
                    .map(|key| self.names.name_for(key))
                    .collect();
                // Only if all other rows have numbers, and the first one has none, is the first row a header.
                let is_number = |cell: &ContentNode<'_>| {
                    as_f64(cell).is_some()
                        || matches!(cell.as_str().map(scalar_of_text), Some(FieldValue::Number(_)))
                };
                let has_number = |row: &ContentNode<'_>| matches!(row, ContentNode::List(cells) if cells.iter().any(is_number));
                let has_header =
                    !others.is_empty() && others.iter().all(has_number) && !first.iter().any(is_number);
                if names.len() < first.len() || !has_header {
                    return false;
                }
                (names, others)
            }
        };
        self.records.complete_list(list, rows.len(), false);
        for row in rows {
            let record = self.records.add_record(self.names.none(), parent, list, names.len());
            let (ContentNode::List(cells), Some(record)) = (row, record) else {
                continue;
            };
            for (name, cell) in names.iter().zip(cells) {
                let cell_text = cell.as_str().map_or_else(|| Cow::Owned(cell.to_json()), Cow::Borrowed);
                let cell_text = cell_text.trim();
                self.records.add_field(Some(record), name, || {
                    (scalar_of_text(cell_text), Some(cell_text.to_owned()))
                });
            }
        }
        true
    }

    /// The names in the list of texts that directly precedes a list in its object, if it has this length.
    fn names_before(&self, parent: Option<usize>, len: usize) -> Option<Vec<KeyName>> {
        let fields = &self.records.records.get(parent?)?.fields;
        let key = &fields.last()?.name;
        let texts = fields.iter().rev().take_while(|field| field.name == *key && field.is_text()).count();
        let names = fields.get(fields.len() - texts..).filter(|_| texts == len)?;
        Some(names.iter().map(|field| self.names.name_for(field.shown())).collect())
    }
}

/// The value, if it is a number.
fn as_f64(value: &ContentNode<'_>) -> Option<f64> {
    match value {
        ContentNode::Int(n) => Some(*n as f64),
        ContentNode::Uint(n) => Some(*n as f64),
        ContentNode::Float(n) => Some(*n),
        _ => None,
    }
}

/// The members of an object, each distinct key at its first position with its last value.
fn without_repeated_keys<'n, 'a>(members: &'n [Member<'a>]) -> Cow<'n, [Member<'a>]> {
    let keys = || members.iter().map(|(key, _)| key);
    let are_distinct = match members.len() <= FEW_MEMBERS {
        true => keys().enumerate().all(|(nth, key)| keys().take(nth).all(|earlier| earlier != key)),
        false => keys().collect::<HashSet<_>>().len() == members.len(),
    };
    if are_distinct {
        return Cow::Borrowed(members);
    }
    let mut out: Vec<Member<'a>> = Vec::with_capacity(members.len());
    let mut positions: HashMap<&str, usize> = HashMap::default();
    for (key, value) in members {
        match positions.entry(key) {
            Entry::Occupied(entry) => {
                out.get_mut(*entry.get()).into_iter().for_each(|(_, previous)| *previous = value.clone())
            }
            Entry::Vacant(entry) => {
                entry.insert(out.len());
                out.push((key.clone(), value.clone()));
            }
        }
    }
    Cow::Owned(out)
}

/// Reads JSON while it is parsed; returns false if the text is no JSON, or if a key may recur.
fn read_while_parsing(text: &str, reader: &mut RecordReader<'_>, position: ValuePosition<'_>) -> bool {
    let mut json = serde_json::Deserializer::from_str(text);
    RecordValueSeed { reader, position, first_list: None }.deserialize(&mut json).is_ok()
        && json.end().is_ok()
}

/// A value as an item of a list.
enum ListItem {
    Number(f64),
    Other,
}

/// Adds one value of JSON to the records. The parser bounds the depth.
struct RecordValueSeed<'r, 'n, 'v, 'de> {
    reader: &'r mut RecordReader<'n>,
    position: ValuePosition<'v>,
    /// For the first item of a list: receives the item if it is a list, which is not added yet, since its meaning
    /// depends on the other items.
    first_list: Option<&'r mut Option<ContentNode<'de>>>,
}

impl RecordValueSeed<'_, '_, '_, '_> {
    fn add_number(self, number: f64, is_integer: bool, original: impl FnOnce() -> String) -> ListItem {
        self.reader.add_number(number, is_integer, original, self.position);
        ListItem::Number(number)
    }

    fn add_text<E: Error>(self, text: &str, may_have_lines: bool) -> Result<ListItem, E> {
        self.reader.add_text(text, may_have_lines, self.position);
        other_unless_recurring(self.reader)
    }
}

/// [`ListItem::Other`], or an error, which ends the parsing, if a key recurs.
fn other_unless_recurring<E: Error>(reader: &RecordReader<'_>) -> Result<ListItem, E> {
    if reader.has_recurring_key { Err(E::custom("a key recurs")) } else { Ok(ListItem::Other) }
}

impl<'de> DeserializeSeed<'de> for RecordValueSeed<'_, '_, '_, 'de> {
    type Value = ListItem;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<ListItem, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for RecordValueSeed<'_, '_, '_, 'de> {
    type Value = ListItem;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<ListItem, E> {
        Ok(ListItem::Other)
    }
    fn visit_bool<E>(self, flag: bool) -> Result<ListItem, E> {
        self.reader.add_flag(flag, self.position);
        Ok(ListItem::Other)
    }
    fn visit_i64<E>(self, n: i64) -> Result<ListItem, E> {
        Ok(self.add_number(n as f64, true, || n.to_string()))
    }
    fn visit_u64<E>(self, n: u64) -> Result<ListItem, E> {
        Ok(self.add_number(n as f64, true, || n.to_string()))
    }
    fn visit_f64<E>(self, n: f64) -> Result<ListItem, E> {
        Ok(self.add_number(n, false, || ContentNode::Float(n).to_json()))
    }
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<ListItem, E> {
        // A borrowed text has no escapes, and thus no line ends.
        self.add_text(text, false)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<ListItem, E> {
        self.add_text(text, true)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ListItem, A::Error> {
        let RecordValueSeed { reader, position, first_list } = self;
        if let Some(first_list) = first_list {
            *first_list = Some(ContentNode::List(remaining_items(&mut seq)?));
            return Ok(ListItem::Other);
        }
        let position = ValuePosition { list: reader.records.add_list(position.name, 0, false), ..position };
        let (mut numbers, mut len, mut row) = (Vec::new(), 0, None);
        loop {
            let first_list = (len == 0).then_some(&mut row);
            let Some(item) = seq.next_element_seed(RecordValueSeed { reader, position, first_list })? else {
                break;
            };
            len += 1;
            if let ListItem::Number(number) = item {
                numbers.push(number);
            }
            if let Some(row) = row.take() {
                let items: Vec<ContentNode<'de>> =
                    std::iter::once(row).chain(remaining_items(&mut seq)?).collect();
                reader.read_items(&items, position);
                return other_unless_recurring(reader);
            }
        }
        if numbers.len() == len {
            add_sum_and_mean(&mut reader.records.list_aggregates, &numbers);
        }
        reader.records.complete_list(position.list, len, numbers.len() == len);
        Ok(ListItem::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ListItem, A::Error> {
        let RecordValueSeed { reader, position, .. } = self;
        let fields = reader.records.records.last().map_or(0, |record| record.fields.len());
        let record = reader.add_object(position, fields.clamp(MIN_RESERVED_FIELDS, MAX_RESERVED_FIELDS));
        let outer_keys = reader.keys.len();
        if outer_keys == 0 {
            reader.keys.reserve(USUAL_OPEN_KEYS);
        }
        while let Some(name) = map.next_key_seed(KeyNameSeed(reader.names))? {
            if record.is_none() {
                // The value of an object that is not added is still parsed, since the JSON must be valid.
                map.next_value::<ContentNode<'de>>()?;
                continue;
            }
            let key = Rc::as_ptr(&name).addr();
            let earlier_keys = reader.keys.get(outer_keys..).unwrap_or_default();
            reader.has_recurring_key |=
                earlier_keys.contains(&key) || earlier_keys.len() >= MAX_MEMBERS || reader.names.is_full();
            other_unless_recurring(reader)?;
            reader.keys.push(key);
            let position = ValuePosition { name: &name, parent: record, list: None, ..position };
            map.next_value_seed(RecordValueSeed { reader, position, first_list: None })?;
        }
        reader.keys.truncate(outer_keys);
        Ok(ListItem::Other)
    }
}

/// The remaining items of a list.
fn remaining_items<'de, A: SeqAccess<'de>>(seq: &mut A) -> Result<Vec<ContentNode<'de>>, A::Error> {
    let mut items = Vec::new();
    while let Some(item) = seq.next_element()? {
        items.push(item);
    }
    Ok(items)
}

/// Reads a key as its [`KeyName`].
struct KeyNameSeed<'n>(&'n KeyNames);

impl<'de> DeserializeSeed<'de> for KeyNameSeed<'_> {
    type Value = KeyName;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<KeyName, D::Error> {
        d.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyNameSeed<'_> {
    type Value = KeyName;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E>(self, key: &str) -> Result<KeyName, E> {
        Ok(self.0.name_for(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A deterministic pseudo-random generator.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % n
        }
    }

    /// A random value, with many unusual forms.
    fn value(random: &mut Random, depth: usize) -> String {
        const SCALARS: [&str; 16] = [
            "null",
            "true",
            "1",
            "-0",
            "2.50",
            "1e3",
            "18446744073709551615",
            r#""""#,
            r#""open""#,
            r#""\u0041 b""#,
            r#"" yes ""#,
            r#""a: 1\nb: 2""#,
            r#""{broken""#,
            r#""[1, 2""#,
            r#""[[\"a\",\"b\"],[1,2]]""#,
            // The text of the string is no valid JSON.
            r#""[1e999]""#,
        ];
        const KEYS: [&str; 6] = ["id", "name", "orderId", "Order", "order", r"\u0069d"];
        let length = |random: &mut Random| random.below(4);
        match random.below(if depth == 0 { 6 } else { 10 }) {
            0..6 => SCALARS[random.below(SCALARS.len())].to_owned(),
            6 | 7 => {
                let items: Vec<String> = (0..length(random)).map(|_| value(random, depth - 1)).collect();
                format!("[{}]", items.join(", "))
            }
            8 => {
                let member = |random: &mut Random| {
                    format!("\"{}\": {}", KEYS[random.below(KEYS.len())], value(random, depth - 1))
                };
                let members: Vec<String> = (0..length(random)).map(|_| member(random)).collect();
                format!("{{{}}}", members.join(","))
            }
            _ => serde_json::Value::String(value(random, depth - 1)).to_string(),
        }
    }

    #[test]
    fn parsed_json_and_its_tree_have_equal_records() {
        let (mut random, mut read_count) = (Random(7), 0);
        for _ in 0..20_000 {
            let text = value(&mut random, 5);
            let names = KeyNames::default();
            let expected = {
                let (records, keys) = (Records::default(), Vec::new());
                let mut reader =
                    RecordReader { records, names: &names, keys, has_recurring_key: false, from_tree: true };
                reader.read_whole(&text).then_some(reader.records)
            };
            let found = RecordReader::read(&text, &names);
            let debug_text = |records: &Option<Records>| {
                let parsed = records.as_ref();
                parsed.map(|parsed| {
                    format!(
                        "{:?} {:?} {:?} {}",
                        parsed.records, parsed.lists, parsed.list_aggregates, parsed.field_count
                    )
                })
            };
            read_count += usize::from(found.is_some());
            assert_eq!(debug_text(&found), debug_text(&expected), "{text}");
        }
        assert!(read_count > 2_000, "{read_count}");
    }

    #[test]
    fn nesting_in_strings_needs_little_stack() {
        let mut text = "1".to_owned();
        for _ in 0..MAX_NESTED + 1 {
            text = format!("{}{}{}", "[".repeat(120), serde_json::Value::String(text), "]".repeat(120));
        }
        assert!(RecordReader::read(&text, &KeyNames::default()).is_some());
    }
}
