//! Reads JSON into records while it is parsed.
//!
//! In: a text. Out: its records, in the order of the text. It ends where a key of an object may recur: only its last
//! value counts, in the place of the first.

use std::fmt;
use std::rc::Rc;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use super::reader::{Place, RecordReader};
use super::{KeyNames, Name, aggregate};
use crate::recognise::Node;

/// Most members of an object whose keys are compared with each other.
const MAX_MEMBERS: usize = 64;
/// Fields for which a record has room at first: as many as the one before has, within these bounds.
const FEW_FIELDS: usize = 4;
const MANY_FIELDS: usize = 16;

/// False if the text is no JSON, or if a key may recur.
pub(super) fn read(text: &str, reader: &mut RecordReader<'_>, place: Place<'_>) -> bool {
    let mut json = serde_json::Deserializer::from_str(text);
    Value { reader, place, first: None }.deserialize(&mut json).is_ok() && json.end().is_ok()
}

/// What a value is for the list that contains it.
enum ListItem {
    Number(f64),
    Other,
}

/// Adds one value of JSON to the records. Depth is bounded by the parser.
struct Value<'r, 'n, 'v, 'de> {
    reader: &'r mut RecordReader<'n>,
    place: Place<'v>,
    /// Where a list is put that is not to be added yet: the first one of a list, whose form depends on the others.
    first: Option<&'r mut Option<Node<'de>>>,
}

impl Value<'_, '_, '_, '_> {
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

impl<'de> DeserializeSeed<'de> for Value<'_, '_, '_, 'de> {
    type Value = ListItem;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<ListItem, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_, '_, '_, 'de> {
    type Value = ListItem;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<ListItem, E> {
        Ok(ListItem::Other)
    }
    fn visit_bool<E>(self, is: bool) -> Result<ListItem, E> {
        self.reader.add_flag(is, self.place);
        Ok(ListItem::Other)
    }
    fn visit_i64<E>(self, n: i64) -> Result<ListItem, E> {
        Ok(self.add_number(n as f64, || n.to_string()))
    }
    fn visit_u64<E>(self, n: u64) -> Result<ListItem, E> {
        Ok(self.add_number(n as f64, || n.to_string()))
    }
    fn visit_f64<E>(self, n: f64) -> Result<ListItem, E> {
        Ok(self.add_number(n, || Node::Float(n).to_json()))
    }
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<ListItem, E> {
        // It has no escapes, and so no ends of lines.
        self.add_text(text, false)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<ListItem, E> {
        self.add_text(text, true)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ListItem, A::Error> {
        let Value { reader, place, first } = self;
        if let Some(first) = first {
            *first = Some(Node::List(rest(&mut seq)?));
            return Ok(ListItem::Other);
        }
        let place = Place { list: reader.records.add_list(place.name, 0, false), ..place };
        let (mut numbers, mut len, mut row) = (Vec::new(), 0, None);
        loop {
            let first = (len == 0).then_some(&mut row);
            let Some(item) = seq.next_element_seed(Value { reader, place, first })? else { break };
            len += 1;
            if let ListItem::Number(number) = item {
                numbers.push(number);
            }
            if let Some(row) = row.take() {
                let items: Vec<Node<'de>> = std::iter::once(row).chain(rest(&mut seq)?).collect();
                reader.read_items(&items, place);
                return unless_recurring(reader);
            }
        }
        if numbers.len() == len {
            aggregate(&mut reader.records.of_lists, &numbers);
        }
        reader.records.complete_list(place.list, len, numbers.len() == len);
        Ok(ListItem::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ListItem, A::Error> {
        let Value { reader, place, .. } = self;
        let fields = reader.records.records.last().map_or(0, |record| record.fields.len());
        let at = reader.add_object(place, fields.clamp(FEW_FIELDS, MANY_FIELDS));
        let from = reader.keys.len();
        while let Some(name) = map.next_key_seed(Key(reader.names))? {
            if at.is_none() {
                // Its syntax counts all the same.
                map.next_value::<Node<'de>>()?;
                continue;
            }
            let key = Rc::as_ptr(&name).addr();
            let known = reader.keys.get(from..).unwrap_or_default();
            reader.recurs |= known.contains(&key) || known.len() >= MAX_MEMBERS || reader.names.is_full();
            unless_recurring(reader)?;
            reader.keys.push(key);
            let place = Place { name: &name, parent: at, list: None, ..place };
            map.next_value_seed(Value { reader, place, first: None })?;
        }
        reader.keys.truncate(from);
        Ok(ListItem::Other)
    }
}

/// The other items of a list.
fn rest<'de, A: SeqAccess<'de>>(seq: &mut A) -> Result<Vec<Node<'de>>, A::Error> {
    let mut items = Vec::new();
    while let Some(item) = seq.next_element()? {
        items.push(item);
    }
    Ok(items)
}

/// The name of a key.
struct Key<'n>(&'n KeyNames);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Name;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Name, D::Error> {
        d.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Name;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E>(self, key: &str) -> Result<Name, E> {
        Ok(self.0.of(key))
    }
}
