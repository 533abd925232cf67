//! Reads one result into records: JSON while it is parsed, tables and lines of `key: value` row by row.
//!
//! In: a text. Out: its records. Of JSON a tree is made only where the form of a part depends on what follows: of a
//! list of lists, and of a text with an object of which a key recurs.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::fmt;
use std::rc::Rc;

use foldhash::{HashMap, HashSet};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use super::data::{CellText, FieldValue, MAX_COLUMNS, Records, aggregate, scalar_of_text};
use super::key_names::{KeyName, KeyNames};
use crate::measure::tables::{self, CellRow};
use crate::recognise::ContentNode;

/// Levels of JSON inside strings.
const MAX_NESTED: usize = 4;
/// Longer texts are prose, which states nothing that could be compared.
const MAX_VALUE: usize = 120;
/// Up to this number of members of an object, keys are compared with each other; keys of larger objects are looked up.
const FEW_MEMBERS: usize = 16;

/// Most members of an object whose keys are compared with each other.
const MAX_MEMBERS: usize = 64;
/// Fields for which a record has room at first: as many as the one before has, within these bounds.
const FEW_FIELDS: usize = 4;
const MANY_FIELDS: usize = 16;

/// A member of an object.
type Member<'a> = (Cow<'a, str>, ContentNode<'a>);

/// Reads one result.
pub(super) struct RecordReader<'n> {
    records: Records,
    names: &'n KeyNames,
    /// The keys of the objects that are being read, by the addresses of their names.
    keys: Vec<usize>,
    /// A key recurs, or may do so.
    recurs: bool,
    /// JSON is read from a tree without such keys.
    from_tree: bool,
}

/// The position of a value in a structure: under a name, in a record, in a list, with the remaining levels of JSON in
/// strings.
#[derive(Clone, Copy)]
struct ValuePlace<'v> {
    name: &'v KeyName,
    parent: Option<usize>,
    list: Option<usize>,
    nested: usize,
}

impl<'n> RecordReader<'n> {
    /// `None` if the text has no structure.
    pub(super) fn read(text: &str, names: &'n KeyNames) -> Option<Records> {
        let mut reader = RecordReader {
            records: Records::default(),
            names,
            keys: Vec::new(),
            recurs: false,
            from_tree: false,
        };
        let mut is_read = reader.read_whole(text);
        if reader.recurs {
            reader = RecordReader { records: Records::default(), from_tree: true, ..reader };
            is_read = reader.read_whole(text);
        }
        is_read.then_some(reader.records)
    }

    fn read_whole(&mut self, text: &str) -> bool {
        let name = self.names.none();
        self.read_text(text.trim(), ValuePlace { name, parent: None, list: None, nested: MAX_NESTED })
    }

    /// Reads a text without white space at its ends.
    fn read_text(&mut self, text: &str, place: ValuePlace<'_>) -> bool {
        if text.starts_with(['{', '[']) {
            return place.nested > 0
                && self.read_json(text, ValuePlace { nested: place.nested - 1, ..place });
        }
        let Some(rows) = tables::read(text) else { return false };
        let ValuePlace { name, parent, .. } = place;
        let list = tables::is_list(&rows).then(|| self.records.add_list(name, rows.len(), false)).flatten();
        rows.into_iter().for_each(|row| self.add_row(row, parent, list));
        true
    }

    /// Nothing is added if the text is no JSON.
    fn read_json(&mut self, text: &str, place: ValuePlace<'_>) -> bool {
        if self.from_tree {
            let tree = ContentNode::json(text);
            tree.iter().for_each(|tree| self.read_tree(tree, place));
            return tree.is_some();
        }
        let (before, keys) = (self.records.len(place.parent), self.keys.len());
        let is_read = read_parsing(text, self, place);
        if !is_read {
            self.records.truncate(before, place.parent);
            self.keys.truncate(keys);
        }
        is_read
    }

    /// Reads a value of a tree, whose depth is bounded by the JSON parser.
    fn read_tree(&mut self, value: &ContentNode<'_>, place: ValuePlace<'_>) {
        match value {
            ContentNode::Map(members) => {
                let Some(at) = self.add_object(place, members.len()) else { return };
                for (key, value) in &*without_repeated_keys(members) {
                    let name = &self.names.name_for(key);
                    self.read_tree(value, ValuePlace { name, parent: Some(at), list: None, ..place });
                }
            }
            ContentNode::List(items) => {
                let list = self.records.add_list(place.name, 0, false);
                self.read_items(items, ValuePlace { list, ..place });
            }
            ContentNode::Str(text) => self.add_text(text, matches!(text, Cow::Owned(_)), place),
            ContentNode::Bool(flag) => self.add_flag(*flag, place),
            ContentNode::Int(n) => self.add_number(*n as f64, || n.to_string(), place),
            ContentNode::Uint(n) => self.add_number(*n as f64, || n.to_string(), place),
            ContentNode::Float(n) => self.add_number(*n, || value.to_json(), place),
            ContentNode::Null => {}
        }
    }

    /// Reads the items of the list of a place.
    fn read_items(&mut self, items: &[ContentNode<'_>], place: ValuePlace<'_>) {
        if self.add_rows(items, place) {
            return;
        }
        let numbers: Vec<f64> = items.iter().filter_map(as_f64).collect();
        let is_numeric = numbers.len() == items.len();
        if is_numeric {
            aggregate(&mut self.records.list_aggregates, &numbers);
        }
        self.add_columns(items);
        self.records.complete_list(place.list, items.len(), is_numeric);
        items.iter().for_each(|item| self.read_tree(item, place));
    }

    /// The record of an object with about `fields` fields.
    fn add_object(&mut self, place: ValuePlace<'_>, fields: usize) -> Option<usize> {
        let key = if place.list.is_none() { place.name } else { self.names.none() };
        self.records.add_record(key, place.parent, place.list, fields)
    }

    /// Adds a text or what it contains: rows, if it `may_have_lines`, or JSON.
    fn add_text(&mut self, text: &str, may_have_lines: bool, place: ValuePlace<'_>) {
        let trimmed = text.trim();
        let may_be_read = may_have_lines || trimmed.starts_with(['{', '[']);
        let is_read = may_be_read && self.read_text(trimmed, ValuePlace { list: None, ..place });
        if !is_read && text.len() <= MAX_VALUE {
            let value = || (FieldValue::Text(CellText::from_trimmed(trimmed)), None);
            self.records.add_field(place.parent, place.name, value);
        }
    }

    fn add_flag(&mut self, flag: bool, place: ValuePlace<'_>) {
        self.records.add_field(place.parent, place.name, || (FieldValue::Bool(flag), None));
    }

    fn add_number(&mut self, number: f64, written: impl FnOnce() -> String, place: ValuePlace<'_>) {
        let value = || (FieldValue::Number(number), Some(written()));
        self.records.add_field(place.parent, place.name, value);
    }

    fn add_row(&mut self, row: CellRow<'_>, parent: Option<usize>, list: Option<usize>) {
        let Some(at) = self.records.add_record(self.names.none(), parent, list, row.len()) else {
            return;
        };
        for (key, text) in row {
            self.records.add_field(Some(at), &self.names.name_for(key), || {
                let value = scalar_of_text(text);
                let written = (!matches!(value, FieldValue::Text(_))).then(|| text.trim().to_owned());
                (value, written)
            });
        }
    }

    /// Adds up the columns of rows without names: `[["Kitchen", 644000], ["Garden", 478400]]`.
    fn add_columns(&mut self, items: &[ContentNode<'_>]) {
        let cell = |row: &ContentNode<'_>, at: usize| match row {
            ContentNode::List(cells) => cells.get(at).and_then(as_f64),
            _ => None,
        };
        let Some(ContentNode::List(first)) = items.first() else { return };
        for at in 0..first.len().min(MAX_COLUMNS) {
            let numbers: Option<Vec<f64>> = items.iter().map(|row| cell(row, at)).collect();
            numbers.into_iter().for_each(|numbers| aggregate(&mut self.records.list_aggregates, &numbers));
        }
    }

    /// Adds a list of rows whose first one has the names of the columns, as spreadsheets return ranges; false if it
    /// is none.
    fn add_rows(
        &mut self,
        items: &[ContentNode<'_>],
        ValuePlace { parent, list, .. }: ValuePlace<'_>,
    ) -> bool {
        let [ContentNode::List(first), rows @ ..] = items else { return false };
        let names: Vec<KeyName> =
            first.iter().filter_map(ContentNode::as_str).map(|key| self.names.name_for(key)).collect();
        let fits =
            |row: &ContentNode<'_>| matches!(row, ContentNode::List(cells) if cells.len() == names.len());
        // Without numbers below it, the first row may be one like the others.
        let is_number = |cell: &ContentNode<'_>| {
            as_f64(cell).is_some() || matches!(cell.as_str().map(scalar_of_text), Some(FieldValue::Number(_)))
        };
        let has_number =
            |row: &ContentNode<'_>| matches!(row, ContentNode::List(cells) if cells.iter().any(is_number));
        let are_below = !rows.is_empty() && rows.iter().all(has_number) && !first.iter().any(is_number);
        if names.len() < 2 || !are_below || !items.iter().all(fits) {
            return false;
        }
        self.records.complete_list(list, rows.len(), false);
        for row in rows {
            let at = self.records.add_record(self.names.none(), parent, list, names.len());
            let (ContentNode::List(cells), Some(at)) = (row, at) else {
                continue;
            };
            for (name, cell) in names.iter().zip(cells) {
                let shown = cell.as_str().map_or_else(|| Cow::Owned(cell.to_json()), Cow::Borrowed);
                let shown = shown.trim();
                self.records.add_field(Some(at), name, || (scalar_of_text(shown), Some(shown.to_owned())));
            }
        }
        true
    }
}

fn as_f64(value: &ContentNode<'_>) -> Option<f64> {
    match value {
        ContentNode::Int(n) => Some(*n as f64),
        ContentNode::Uint(n) => Some(*n as f64),
        ContentNode::Float(n) => Some(*n),
        _ => None,
    }
}

/// The members of an object, each key at its first place with its last value.
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
    let mut places: HashMap<&str, usize> = HashMap::default();
    for (key, value) in members {
        match places.entry(key) {
            Entry::Occupied(place) => {
                out.get_mut(*place.get()).into_iter().for_each(|(_, previous)| *previous = value.clone())
            }
            Entry::Vacant(place) => {
                place.insert(out.len());
                out.push((key.clone(), value.clone()));
            }
        }
    }
    Cow::Owned(out)
}

/// False if the text is no JSON, or if a key may recur.
fn read_parsing(text: &str, reader: &mut RecordReader<'_>, place: ValuePlace<'_>) -> bool {
    let mut json = serde_json::Deserializer::from_str(text);
    RecordValueSeed { reader, place, first: None }.deserialize(&mut json).is_ok() && json.end().is_ok()
}

/// The kind of a value in the list that contains it.
enum ListItem {
    Number(f64),
    Other,
}

/// Adds one value of JSON to the records. Depth is bounded by the parser.
struct RecordValueSeed<'r, 'n, 'v, 'de> {
    reader: &'r mut RecordReader<'n>,
    place: ValuePlace<'v>,
    /// Where a list is put that is not to be added yet: the first one of a list, whose form depends on the others.
    first: Option<&'r mut Option<ContentNode<'de>>>,
}

impl RecordValueSeed<'_, '_, '_, '_> {
    fn add_number(self, number: f64, written: impl FnOnce() -> String) -> ListItem {
        self.reader.add_number(number, written, self.place);
        ListItem::Number(number)
    }

    fn add_text<E: Error>(self, text: &str, may_have_lines: bool) -> Result<ListItem, E> {
        self.reader.add_text(text, may_have_lines, self.place);
        unless_recurring(self.reader)
    }
}

fn unless_recurring<E: Error>(reader: &RecordReader<'_>) -> Result<ListItem, E> {
    if reader.recurs { Err(E::custom("a key recurs")) } else { Ok(ListItem::Other) }
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
        self.reader.add_flag(flag, self.place);
        Ok(ListItem::Other)
    }
    fn visit_i64<E>(self, n: i64) -> Result<ListItem, E> {
        Ok(self.add_number(n as f64, || n.to_string()))
    }
    fn visit_u64<E>(self, n: u64) -> Result<ListItem, E> {
        Ok(self.add_number(n as f64, || n.to_string()))
    }
    fn visit_f64<E>(self, n: f64) -> Result<ListItem, E> {
        Ok(self.add_number(n, || ContentNode::Float(n).to_json()))
    }
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<ListItem, E> {
        // A borrowed text has no escapes, and so no line ends.
        self.add_text(text, false)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<ListItem, E> {
        self.add_text(text, true)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ListItem, A::Error> {
        let RecordValueSeed { reader, place, first } = self;
        if let Some(first) = first {
            *first = Some(ContentNode::List(rest(&mut seq)?));
            return Ok(ListItem::Other);
        }
        let place = ValuePlace { list: reader.records.add_list(place.name, 0, false), ..place };
        let (mut numbers, mut len, mut row) = (Vec::new(), 0, None);
        loop {
            let first = (len == 0).then_some(&mut row);
            let Some(item) = seq.next_element_seed(RecordValueSeed { reader, place, first })? else { break };
            len += 1;
            if let ListItem::Number(number) = item {
                numbers.push(number);
            }
            if let Some(row) = row.take() {
                let items: Vec<ContentNode<'de>> = std::iter::once(row).chain(rest(&mut seq)?).collect();
                reader.read_items(&items, place);
                return unless_recurring(reader);
            }
        }
        if numbers.len() == len {
            aggregate(&mut reader.records.list_aggregates, &numbers);
        }
        reader.records.complete_list(place.list, len, numbers.len() == len);
        Ok(ListItem::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ListItem, A::Error> {
        let RecordValueSeed { reader, place, .. } = self;
        let fields = reader.records.records.last().map_or(0, |record| record.fields.len());
        let at = reader.add_object(place, fields.clamp(FEW_FIELDS, MANY_FIELDS));
        let from = reader.keys.len();
        while let Some(name) = map.next_key_seed(KeyNameSeed(reader.names))? {
            if at.is_none() {
                // Its syntax counts all the same.
                map.next_value::<ContentNode<'de>>()?;
                continue;
            }
            let key = Rc::as_ptr(&name).addr();
            let earlier_keys = reader.keys.get(from..).unwrap_or_default();
            reader.recurs |=
                earlier_keys.contains(&key) || earlier_keys.len() >= MAX_MEMBERS || reader.names.is_full();
            unless_recurring(reader)?;
            reader.keys.push(key);
            let place = ValuePlace { name: &name, parent: at, list: None, ..place };
            map.next_value_seed(RecordValueSeed { reader, place, first: None })?;
        }
        reader.keys.truncate(from);
        Ok(ListItem::Other)
    }
}

/// The other items of a list.
fn rest<'de, A: SeqAccess<'de>>(seq: &mut A) -> Result<Vec<ContentNode<'de>>, A::Error> {
    let mut items = Vec::new();
    while let Some(item) = seq.next_element()? {
        items.push(item);
    }
    Ok(items)
}

/// The name of a key.
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

    /// A deterministic source of numbers.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % n
        }
    }

    /// Any value, of which few are as one expects.
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
            // Is no JSON, as a whole text.
            r#""[1e999]""#,
        ];
        const KEYS: [&str; 6] = ["id", "name", "orderId", "Order", "order", r"\u0069d"];
        let many = |random: &mut Random| random.below(4);
        match random.below(if depth == 0 { 6 } else { 10 }) {
            0..6 => SCALARS[random.below(SCALARS.len())].to_owned(),
            6 | 7 => {
                let items: Vec<String> = (0..many(random)).map(|_| value(random, depth - 1)).collect();
                format!("[{}]", items.join(", "))
            }
            8 => {
                let member = |random: &mut Random| {
                    format!("\"{}\": {}", KEYS[random.below(KEYS.len())], value(random, depth - 1))
                };
                let members: Vec<String> = (0..many(random)).map(|_| member(random)).collect();
                format!("{{{}}}", members.join(","))
            }
            _ => serde_json::Value::String(value(random, depth - 1)).to_string(),
        }
    }

    #[test]
    fn json_is_read_as_from_its_tree() {
        let (mut random, mut read) = (Random(7), 0);
        for _ in 0..20_000 {
            let text = value(&mut random, 5);
            let names = KeyNames::default();
            let expected = {
                let (records, keys) = (Records::default(), Vec::new());
                let mut reader =
                    RecordReader { records, names: &names, keys, recurs: false, from_tree: true };
                reader.read_whole(&text).then_some(reader.records)
            };
            let found = RecordReader::read(&text, &names);
            let shown = |records: &Option<Records>| {
                let parsed = records.as_ref();
                parsed.map(|parsed| {
                    format!(
                        "{:?} {:?} {:?} {}",
                        parsed.records, parsed.lists, parsed.list_aggregates, parsed.fields
                    )
                })
            };
            read += usize::from(found.is_some());
            assert_eq!(shown(&found), shown(&expected), "{text}");
        }
        assert!(read > 2_000, "{read}");
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
