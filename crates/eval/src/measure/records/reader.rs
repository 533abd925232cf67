//! Reads one result into records: JSON while it is parsed, tables and lines of `key: value` row by row.
//!
//! In: a text. Out: its records. Of JSON a tree is made only where the form of a part depends on what follows: of a
//! list of lists, and of a text with an object of which a key recurs.

use std::borrow::Cow;
use std::collections::hash_map::Entry;

use foldhash::{HashMap, HashSet};

use super::{CellText, KeyNames, MAX_COLUMNS, Name, Records, Scalar, aggregate, scalar_of_text, stream};
use crate::measure::tables::{self, Row};
use crate::recognise::Node;

/// Levels of JSON inside strings.
const MAX_NESTED: usize = 4;
/// Longer texts are prose, which states nothing that could be compared.
const MAX_VALUE: usize = 120;
/// So many members of an object are compared with each other; keys of more are looked up.
const FEW_MEMBERS: usize = 16;

/// A member of an object.
type Member<'a> = (Cow<'a, str>, Node<'a>);

/// Reads one result.
pub(super) struct RecordReader<'n> {
    pub(super) records: Records,
    pub(super) names: &'n KeyNames,
    /// The keys of the objects that are being read, by the addresses of their names.
    pub(super) keys: Vec<usize>,
    /// A key recurs, or may do so.
    pub(super) recurs: bool,
    /// JSON is read from a tree without such keys.
    from_tree: bool,
}

/// Where a value is in a structure: under a name, in a record, in a list, with so many levels of JSON in strings left.
#[derive(Clone, Copy)]
pub(super) struct Place<'v> {
    pub(super) name: &'v Name,
    pub(super) parent: Option<usize>,
    pub(super) list: Option<usize>,
    pub(super) nested: usize,
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
        self.read_text(text.trim(), Place { name, parent: None, list: None, nested: MAX_NESTED })
    }

    /// Reads a text without white space at its ends.
    fn read_text(&mut self, text: &str, place: Place<'_>) -> bool {
        if text.starts_with(['{', '[']) {
            return place.nested > 0 && self.read_json(text, Place { nested: place.nested - 1, ..place });
        }
        let Some(rows) = tables::read(text) else { return false };
        let Place { name, parent, .. } = place;
        let list = tables::is_list(&rows).then(|| self.records.add_list(name, rows.len(), false)).flatten();
        rows.into_iter().for_each(|row| self.add_row(row, parent, list));
        true
    }

    /// Nothing is added if the text is no JSON.
    fn read_json(&mut self, text: &str, place: Place<'_>) -> bool {
        if self.from_tree {
            let tree = Node::json(text);
            tree.iter().for_each(|tree| self.read_tree(tree, place));
            return tree.is_some();
        }
        let (before, keys) = (self.records.len(place.parent), self.keys.len());
        let is_read = stream::read(text, self, place);
        if !is_read {
            self.records.truncate(before, place.parent);
            self.keys.truncate(keys);
        }
        is_read
    }

    /// Reads a value of a tree, whose depth is bounded by the JSON parser.
    fn read_tree(&mut self, value: &Node<'_>, place: Place<'_>) {
        match value {
            Node::Map(members) => {
                let Some(at) = self.add_object(place, members.len()) else { return };
                for (key, value) in &*without_repeated_keys(members) {
                    let name = &self.names.of(key);
                    self.read_tree(value, Place { name, parent: Some(at), list: None, ..place });
                }
            }
            Node::List(items) => {
                let list = self.records.add_list(place.name, 0, false);
                self.read_items(items, Place { list, ..place });
            }
            Node::Str(text) => self.add_text(text, matches!(text, Cow::Owned(_)), place),
            Node::Bool(is) => self.add_flag(*is, place),
            Node::Int(n) => self.add_number(*n as f64, || n.to_string(), place),
            Node::Uint(n) => self.add_number(*n as f64, || n.to_string(), place),
            Node::Float(n) => self.add_number(*n, || value.to_json(), place),
            Node::Null => {}
        }
    }

    /// Reads the items of the list of a place.
    pub(super) fn read_items(&mut self, items: &[Node<'_>], place: Place<'_>) {
        if self.add_rows(items, place) {
            return;
        }
        let numbers: Vec<f64> = items.iter().filter_map(as_f64).collect();
        let of_numbers = numbers.len() == items.len();
        if of_numbers {
            aggregate(&mut self.records.of_lists, &numbers);
        }
        self.add_columns(items);
        self.records.complete_list(place.list, items.len(), of_numbers);
        items.iter().for_each(|item| self.read_tree(item, place));
    }

    /// The record of an object that has about so many fields.
    pub(super) fn add_object(&mut self, place: Place<'_>, fields: usize) -> Option<usize> {
        let key = if place.list.is_none() { place.name } else { self.names.none() };
        self.records.add_record(key, place.parent, place.list, fields)
    }

    /// Adds a text or what it contains: rows, if it `may_have_lines`, or JSON.
    pub(super) fn add_text(&mut self, text: &str, may_have_lines: bool, place: Place<'_>) {
        let trimmed = text.trim();
        let may_be_read = may_have_lines || trimmed.starts_with(['{', '[']);
        let is_read = may_be_read && self.read_text(trimmed, Place { list: None, ..place });
        if !is_read && text.len() <= MAX_VALUE {
            let value = || (Scalar::Text(CellText::of_trimmed(trimmed)), None);
            self.records.add_field(place.parent, place.name, value);
        }
    }

    pub(super) fn add_flag(&mut self, is: bool, place: Place<'_>) {
        self.records.add_field(place.parent, place.name, || (Scalar::Bool(is), None));
    }

    pub(super) fn add_number(&mut self, number: f64, written: impl FnOnce() -> String, place: Place<'_>) {
        let value = || (Scalar::Number(number), Some(written()));
        self.records.add_field(place.parent, place.name, value);
    }

    fn add_row(&mut self, row: Row<'_>, parent: Option<usize>, list: Option<usize>) {
        let Some(at) = self.records.add_record(self.names.none(), parent, list, row.len()) else {
            return;
        };
        for (key, text) in row {
            self.records.add_field(Some(at), &self.names.of(key), || {
                let value = scalar_of_text(text);
                let written = (!matches!(value, Scalar::Text(_))).then(|| text.trim().to_owned());
                (value, written)
            });
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
    fn add_rows(&mut self, items: &[Node<'_>], Place { parent, list, .. }: Place<'_>) -> bool {
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
        self.records.complete_list(list, rows.len(), false);
        for row in rows {
            let at = self.records.add_record(self.names.none(), parent, list, names.len());
            let (Node::List(cells), Some(at)) = (row, at) else {
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
            let shown = |of: &Option<Records>| {
                let of = of.as_ref();
                of.map(|of| format!("{:?} {:?} {:?} {}", of.records, of.lists, of.of_lists, of.fields))
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
