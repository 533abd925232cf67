//! From a located tree to a section's struct, with every problem and not only the first.
//!
//! In: a [`Node`]. Out: a value of any `Deserialize` type, and [`Issue`]s. An unknown key is noted
//! and passed over. A value that its key cannot take is noted, taken out of the tree, and the
//! section is read again without it: so each round finds the next problem, and there are only as
//! many rounds as problems.

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};

use super::issue::{Issue, dotted, nearest};
use super::node::{Key, Mark, Node, Step, Style, Value};

/// More problems than anybody reads; the rest show once these are mended.
const MAX_ROUNDS: usize = 100;

/// Reads `node` as a `T`; `prefix` is where the node stands in the whole configuration.
///
/// `None` only where the section as a whole is not readable; the issues then say why.
pub fn read<T: de::DeserializeOwned>(node: &Node, prefix: &[Step], issues: &mut Vec<Issue>) -> Option<T> {
    read_or_skip(node, prefix, false, issues)
}

/// As [`read`]; keys that `T` does not know are no fault where `skip` says so.
pub fn read_or_skip<T: de::DeserializeOwned>(
    node: &Node,
    prefix: &[Step],
    skip: bool,
    issues: &mut Vec<Issue>,
) -> Option<T> {
    let (value, unknown) = read_noting(node, prefix, issues);
    if !skip {
        note_unknown(unknown, prefix, issues);
    }
    value
}

/// Reads a section whose keys belong to two structs: a key is unknown where neither knows it.
pub fn read_joined<A: de::DeserializeOwned, B: de::DeserializeOwned>(
    node: &Node,
    prefix: &[Step],
    issues: &mut Vec<Issue>,
) -> Option<(A, B)> {
    let (a, of_a) = read_noting(node, prefix, issues);
    let (b, of_b) = read_noting(node, prefix, issues);
    let neither = |found: &Unknown, other: &[Unknown]| {
        found.path.len() > 1 || other.iter().any(|unknown| unknown.path == found.path)
    };
    let (left, right): (Vec<bool>, Vec<bool>) =
        (of_a.iter().map(|u| neither(u, &of_b)).collect(), of_b.iter().map(|u| neither(u, &of_a)).collect());
    let keep = |all: Vec<Unknown>, kept: Vec<bool>| {
        all.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(u, _)| u)
    };
    let mut unknown: Vec<Unknown> = Vec::new();
    for found in keep(of_a, left).chain(keep(of_b, right)) {
        match unknown.iter_mut().find(|before| before.path == found.path && before.at == found.at) {
            Some(before) => before.hint = before.hint.take().or(found.hint),
            None => unknown.push(found),
        }
    }
    note_unknown(unknown, prefix, issues);
    a.zip(b)
}

/// Reads a `T`, with the keys that it does not know.
fn read_noting<T: de::DeserializeOwned>(
    node: &Node,
    prefix: &[Step],
    issues: &mut Vec<Issue>,
) -> (Option<T>, Vec<Unknown>) {
    let mut unknown = Vec::new();
    let mut node = node.clone();
    let mut pruned: Vec<Vec<Step>> = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let mut notes = Notes { path: Vec::new(), unknown: Vec::new() };
        let error = match T::deserialize(Reader { node: &node, notes: &mut notes }) {
            Ok(value) => {
                unknown.extend(notes.unknown);
                return (Some(value), unknown);
            }
            Err(error) => error.placed(&node, &[]),
        };
        unknown.extend(notes.unknown);
        let (at, path) = error.place.unwrap_or((node.at, Vec::new()));
        // What is missing because it was taken out for its own fault is not a second fault.
        let consequence = matches!(&error.kind, Kind::Missing(key) if {
            let mut full = path.clone();
            full.push(Step::Key((*key).to_owned()));
            pruned.contains(&full)
        });
        if !consequence {
            let full: Vec<Step> = prefix.iter().chain(&path).cloned().collect();
            let issue = Issue::new(at, dotted(&full), error.message).with_hint(error.hint);
            if !issues.contains(&issue) {
                issues.push(issue);
            }
        }
        if !node.remove(&path) {
            return (None, unknown);
        }
        pruned.push(path);
    }
    (None, unknown)
}

fn note_unknown(unknown: Vec<Unknown>, prefix: &[Step], issues: &mut Vec<Issue>) {
    for found in unknown {
        let full: Vec<Step> = prefix.iter().chain(&found.path).cloned().collect();
        let issue = Issue::new(found.at, dotted(&full), "no such key".to_owned()).with_hint(found.hint);
        if !issues.contains(&issue) {
            issues.push(issue);
        }
    }
}

struct Unknown {
    at: Mark,
    path: Vec<Step>,
    hint: Option<String>,
}

/// What is learnt on the way through one section.
struct Notes {
    path: Vec<Step>,
    unknown: Vec<Unknown>,
}

#[derive(Debug)]
enum Kind {
    Other,
    Missing(&'static str),
    Unknown(String),
}

/// Serde's error, with the place once it is known.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    hint: Option<String>,
    place: Option<(Mark, Vec<Step>)>,
}

impl Error {
    fn new(message: String) -> Error {
        Error { kind: Kind::Other, message, hint: None, place: None }
    }

    /// The innermost value that saw the error is its place.
    fn placed(mut self, node: &Node, path: &[Step]) -> Error {
        if self.place.is_some() {
            return self;
        }
        // What a variable holds may be a secret: the message must not show it.
        if let Value::Scalar(text, Style::Substituted | Style::Mixed) = &node.value
            && !text.is_empty()
        {
            self.message = self.message.replace(text.as_str(), "(from outside the file)");
        }
        let mut path = path.to_vec();
        let mut at = node.at;
        // An exporter's type is the part of its id before the slash.
        let names = |k: &Key, word: &str| k.text == word || k.text.split('/').next() == Some(word);
        if let Kind::Unknown(word) = &self.kind
            && let Some((k, _)) = node.entries().iter().find(|(k, _)| names(k, word))
        {
            at = k.at;
            path.push(Step::Key(k.text.clone()));
        }
        self.place = Some((at, path));
        self
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: std::fmt::Display>(message: T) -> Error {
        Error::new(message.to_string())
    }

    fn missing_field(field: &'static str) -> Error {
        Error { kind: Kind::Missing(field), ..Error::new(format!("the key '{field}' is missing")) }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Error {
        Error {
            kind: Kind::Unknown(field.to_owned()),
            hint: nearest(field, expected.iter().copied()),
            ..Error::new("no such key".to_owned())
        }
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Error {
        Error {
            kind: Kind::Unknown(variant.to_owned()),
            hint: nearest(variant, expected.iter().copied()),
            ..Error::new(format!("'{variant}' is not one of {}", expected.join(", ")))
        }
    }

    fn invalid_type(unexpected: de::Unexpected<'_>, expected: &dyn de::Expected) -> Error {
        let found = match unexpected {
            de::Unexpected::Unit => "nothing".to_owned(),
            de::Unexpected::Str(text) => format!("'{text}'"),
            de::Unexpected::Map => "a map".to_owned(),
            de::Unexpected::Seq => "a list".to_owned(),
            other => other.to_string(),
        };
        Error::new(format!("expected {expected}, found {found}"))
    }
}

struct Reader<'n, 's> {
    node: &'n Node,
    notes: &'s mut Notes,
}

/// What a bare scalar means where the key does not say (YAML 1.2 core schema).
fn plain<'de, V: Visitor<'de>>(text: &str, visitor: V) -> Result<V::Value, Error> {
    match text {
        "true" | "True" | "TRUE" => return visitor.visit_bool(true),
        "false" | "False" | "FALSE" => return visitor.visit_bool(false),
        _ => {}
    }
    if let Ok(n) = text.parse::<u64>() {
        return visitor.visit_u64(n);
    }
    if let Ok(n) = text.parse::<i64>() {
        return visitor.visit_i64(n);
    }
    match text.parse::<f64>() {
        // Rust also reads "inf" and "nan", which YAML takes for words.
        Ok(n) if n.is_finite() => visitor.visit_f64(n),
        _ => visitor.visit_str(text),
    }
}

impl<'n, 's> Reader<'n, 's> {
    fn typed<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Reader { node, notes } = self;
        // An error is not placed here: the caller knows the path.
        match &node.value {
            _ if node.is_null() => visitor.visit_unit(),
            Value::Scalar(text, Style::Quoted | Style::Mixed) => visitor.visit_str(text),
            Value::Scalar(text, _) => plain(text, visitor),
            Value::List(items) => visitor.visit_seq(Items { items, next: 0, notes }),
            Value::Map(entries) => visitor.visit_map(Entries { entries, next: 0, fields: None, notes }),
        }
    }

    fn map<'de, V: Visitor<'de>>(
        self,
        fields: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Map(entries) => visitor.visit_map(Entries { entries, next: 0, fields, notes: self.notes }),
            // A key with nothing behind it is a section of defaults, as in the Collector.
            _ if self.node.is_null() => {
                visitor.visit_map(Entries { entries: &[], next: 0, fields, notes: self.notes })
            }
            _ => self.typed(visitor),
        }
    }
}

impl<'de> Deserializer<'de> for Reader<'_, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.typed(visitor)
    }

    /// A key that wants text gets it as written: `1.10` stays `1.10`.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Scalar(text, _) if !self.node.is_null() => visitor.visit_str(text),
            _ => self.typed(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.map(Some(fields), visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.map(None, visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.node.is_null() {
            return visitor.visit_seq(Items { items: &[], next: 0, notes: self.notes });
        }
        self.typed(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let expected = || format!("expected one of {}", variants.join(", "));
        match &self.node.value {
            Value::Scalar(text, _) if !self.node.is_null() => {
                visitor.visit_enum(IntoDeserializer::<Error>::into_deserializer(text.as_str()))
            }
            Value::Map(entries) => match entries.as_slice() {
                [(key, node)] => visitor.visit_enum(Variant { key, node, notes: self.notes }),
                _ => Err(Error::new(format!("{}, with one key", expected()))),
            },
            _ => Err(Error::new(expected())),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf
        unit unit_struct tuple tuple_struct identifier
    }
}

/// Reads one value inside a collection; an error without a place gets this one.
fn inside<'de, T: DeserializeSeed<'de>>(
    seed: T,
    node: &Node,
    step: Step,
    notes: &mut Notes,
) -> Result<T::Value, Error> {
    notes.path.push(step);
    let result =
        seed.deserialize(Reader { node, notes: &mut *notes }).map_err(|e| e.placed(node, &notes.path));
    notes.path.pop();
    result
}

struct Items<'n, 's> {
    items: &'n [Node],
    next: usize,
    notes: &'s mut Notes,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Error;
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(node) = self.items.get(self.next) else { return Ok(None) };
        let step = Step::Item(self.next);
        self.next += 1;
        inside(seed, node, step, self.notes).map(Some)
    }
}

struct Entries<'n, 's> {
    entries: &'n [(Key, Node)],
    next: usize,
    /// The keys that there are, where the type says so.
    fields: Option<&'static [&'static str]>,
    notes: &'s mut Notes,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        while let Some((key, _)) = self.entries.get(self.next) {
            let Some(fields) = self.fields.filter(|fields| !fields.contains(&key.text.as_str())) else {
                let text: StrDeserializer<'_, Error> = key.text.as_str().into_deserializer();
                self.notes.path.push(Step::Key(key.text.clone()));
                let read = seed.deserialize(text).map_err(|e| e.placed_at(key.at, &self.notes.path));
                self.notes.path.pop();
                return read.map(Some);
            };
            let mut path = self.notes.path.clone();
            path.push(Step::Key(key.text.clone()));
            let hint = nearest(&key.text, fields.iter().copied());
            self.notes.unknown.push(Unknown { at: key.at, path, hint });
            self.next += 1;
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let Some((key, node)) = self.entries.get(self.next) else {
            return Err(Error::new("a key without a value".to_owned()));
        };
        self.next += 1;
        inside(seed, node, Step::Key(key.text.clone()), self.notes)
    }
}

impl Error {
    /// A fault in the key itself.
    fn placed_at(mut self, at: Mark, path: &[Step]) -> Error {
        self.place.get_or_insert_with(|| (at, path.to_vec()));
        self
    }
}

/// An enum written as a map with one key: `threshold: { alpha: 0.5 }`.
struct Variant<'n, 's> {
    key: &'n Key,
    node: &'n Node,
    notes: &'s mut Notes,
}

impl<'de, 'n, 's> EnumAccess<'de> for Variant<'n, 's> {
    type Error = Error;
    type Variant = Variant<'n, 's>;
    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self::Variant), Error> {
        let text: StrDeserializer<'_, Error> = self.key.text.as_str().into_deserializer();
        Ok((seed.deserialize(text)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, '_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        if self.node.is_null() || self.node.entries().is_empty() && matches!(self.node.value, Value::Map(_)) {
            return Ok(());
        }
        Err(Error::new(format!("'{}' takes no settings", self.key.text)))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        inside(seed, self.node, Step::Key(self.key.text.clone()), self.notes)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        let Variant { key, node, notes } = self;
        notes.path.push(Step::Key(key.text.clone()));
        let result =
            Reader { node, notes: &mut *notes }.typed(visitor).map_err(|e| e.placed(node, &notes.path));
        notes.path.pop();
        result
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Variant { key, node, notes } = self;
        notes.path.push(Step::Key(key.text.clone()));
        let result = Reader { node, notes: &mut *notes }
            .map(Some(fields), visitor)
            .map_err(|e| e.placed(node, &notes.path));
        notes.path.pop();
        result
    }
}
