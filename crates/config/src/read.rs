//! Deserialises a section from a YAML tree, and reports every problem instead of only the first.
//!
//! In: a [`Node`]. Out: a value of any `Deserialize` type, and [`Issue`]s. Serde stops at the first error.
//! Therefore the invalid value or key is removed from the tree and the section is read again, until it can
//! be read or nothing can be removed. A validator of the generated JSON schema would need one pass, but
//! reports neither the messages of the types nor the nearest known key.

use std::iter::Enumerate;
use std::slice;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};

use crate::issue::{Issue, nearest};
use crate::node::{Key, Node, Style, Value};
use crate::place::{Mark, Step, dotted};

/// Maximum passes over a section. Each pass reports one problem; further problems are reported once these are fixed.
const MAX_PASSES: usize = 100;

const NO_SUCH_KEY: &str = "no such key";

/// Reads `node` as a `T`; `prefix` is the path of the node in the configuration. `None` if the section as a
/// whole cannot be read; `issues` then contains the reason.
pub fn read<T: de::DeserializeOwned>(node: &Node, prefix: &[Step], issues: &mut Vec<Issue>) -> Option<T> {
    let mut node = node.clone();
    let mut removed: Vec<Vec<Step>> = Vec::new();
    for _ in 0..MAX_PASSES {
        let error = match T::deserialize(Reader(&node)) {
            Ok(value) => return Some(value),
            Err(error) => error.with_position(&node),
        };
        let path: Vec<Step> = error.steps.into_iter().rev().collect();
        // A key that is missing because it was removed is not a second problem.
        let follows_from_removal = matches!(&error.kind, ReadErrorKind::Missing(key) if {
            removed.contains(&[&path[..], &[Step::Key((*key).to_owned())]].concat())
        });
        if !follows_from_removal {
            let key = dotted(&[prefix, &path].concat());
            issues.push(
                Issue::new(error.at.unwrap_or(node.at), key, error.message.into()).with_hint(error.hint),
            );
        }
        if !node.remove(&path) {
            break;
        }
        removed.push(path);
    }
    None
}

/// Reads a section whose keys belong to two structs: a key is unknown if neither has a field for it.
pub fn read_joined<A: de::DeserializeOwned, B: de::DeserializeOwned>(
    node: &Node,
    prefix: &[Step],
    issues: &mut Vec<Issue>,
) -> Option<(A, B)> {
    let (mut issues_a, mut issues_b) = (Vec::new(), Vec::new());
    let (a, b) = (read(node, prefix, &mut issues_a), read(node, prefix, &mut issues_b));
    let own_keys: Vec<Mark> = node.entries().iter().map(|(key, _)| key.at).collect();
    let is_unknown_key = |issue: &Issue| issue.message == NO_SUCH_KEY && own_keys.contains(&issue.at);
    for mut issue in issues_a {
        if is_unknown_key(&issue) {
            let Some(other) = issues_b.iter().find(|other| other.at == issue.at) else { continue };
            issue.hint = issue.hint.or_else(|| other.hint.clone());
        }
        issues.push(issue);
    }
    issues.extend(issues_b.into_iter().filter(|issue| !is_unknown_key(issue)));
    a.zip(b)
}

#[derive(Debug)]
enum ReadErrorKind {
    Other,
    Missing(&'static str),
    Unknown(String),
}

/// Serde's error, with the position of the invalid value once it is known.
#[derive(Debug)]
struct Error {
    kind: ReadErrorKind,
    message: Box<str>,
    hint: Option<String>,
    at: Option<Mark>,
    /// The path to the invalid value, innermost step first.
    steps: Vec<Step>,
}

impl Error {
    fn new(message: String) -> Error {
        Error { kind: ReadErrorKind::Other, message: message.into(), hint: None, at: None, steps: Vec::new() }
    }

    /// Adds the position of `node`, unless the error has one: that of the innermost node is kept.
    fn with_position(mut self, node: &Node) -> Error {
        if self.at.is_some() {
            return self;
        }
        self.at = Some(node.at);
        self.message = node.masked(self.message.into()).into();
        // An exporter's type is the part of its id before the slash.
        let key_matches =
            |key: &Key, name: &str| key.text == name || key.text.split('/').next() == Some(name);
        if let ReadErrorKind::Unknown(name) = &self.kind
            && let Some((key, _)) = node.entries().iter().find(|(key, _)| key_matches(key, name))
        {
            self.at = Some(key.at);
            self.steps.push(Step::Key(key.text.clone()));
        }
        self
    }

    fn with_step(mut self, step: Step) -> Error {
        self.steps.push(step);
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
        Error { kind: ReadErrorKind::Missing(field), ..Error::new(format!("the key '{field}' is missing")) }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Error {
        let hint = nearest(field, expected.iter().copied());
        Error { kind: ReadErrorKind::Unknown(field.to_owned()), hint, ..Error::new(NO_SUCH_KEY.to_owned()) }
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Error {
        let message = format!("'{variant}' is not one of {}", expected.join(", "));
        Error { message: message.into(), ..de::Error::unknown_field(variant, expected) }
    }

    fn invalid_type(unexpected: de::Unexpected<'_>, expected: &dyn de::Expected) -> Error {
        let found = match unexpected {
            de::Unexpected::Unit => "nothing".to_owned(),
            de::Unexpected::Str(text) => format!("'{text}'"),
            de::Unexpected::Map => "a map".to_owned(),
            de::Unexpected::Seq => "a list".to_owned(),
            other => other.to_string(),
        };
        let expected = expected.to_string();
        // The name of a Rust type does not help the author of a YAML file.
        let expected = if expected.starts_with("struct ") { "a map of keys and values" } else { &expected };
        Error::new(format!("expected {expected}, found {found}"))
    }
}

/// Reads a plain scalar whose type the key does not determine (YAML 1.2 core schema).
fn visit_plain_scalar<'de, V: Visitor<'de>>(text: &str, visitor: V) -> Result<V::Value, Error> {
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
        // Rust also reads "inf" and "nan", which are words in YAML.
        Ok(n) if n.is_finite() => visitor.visit_f64(n),
        _ => visitor.visit_str(text),
    }
}

/// Deserialises a node. The caller adds the position to errors, since only the caller knows the step to the node.
#[derive(Clone, Copy)]
struct Reader<'n>(&'n Node);

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.0.value {
            _ if self.0.is_null() => visitor.visit_unit(),
            Value::Scalar(text, Style::Quoted | Style::Mixed) => visitor.visit_str(text),
            Value::Scalar(text, _) => visit_plain_scalar(text, visitor),
            Value::List(items) => visitor.visit_seq(Items(items.iter().enumerate())),
            Value::Map(entries) => visitor.visit_map(MapEntries(entries, 0)),
        }
    }

    /// Text is read as written: `1.10` is not a number for a key of type string.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.0.value {
            Value::Scalar(text, _) if !self.0.is_null() => visitor.visit_str(text),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
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
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    /// A key without a value is a section with defaults, as in the Collector.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_map(MapEntries(&[], 0)) } else { self.deserialize_any(visitor) }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let empty = Items([].iter().enumerate());
        if self.0.is_null() { visitor.visit_seq(empty) } else { self.deserialize_any(visitor) }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let expected = || format!("expected one of {}", variants.join(", "));
        match &self.0.value {
            Value::Scalar(text, _) if !self.0.is_null() => {
                visitor.visit_enum(IntoDeserializer::<Error>::into_deserializer(text.as_str()))
            }
            Value::Map(entries) => match entries.as_slice() {
                [(key, node)] => visitor.visit_enum(Variant { key, node }),
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

struct Items<'n>(Enumerate<slice::Iter<'n, Node>>);

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some((index, node)) = self.0.next() else { return Ok(None) };
        seed.deserialize(Reader(node))
            .map(Some)
            .map_err(|e| e.with_position(node).with_step(Step::Item(index)))
    }
}

/// The entries of a map, and the index of the current one.
struct MapEntries<'n>(&'n [(Key, Node)], usize);

impl<'de> MapAccess<'de> for MapEntries<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, _)) = self.0.get(self.1) else { return Ok(None) };
        seed.deserialize(key.read())
            .map(Some)
            .map_err(|e| Error { at: Some(key.at), ..e }.with_step(key.step()))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let Some((key, node)) = self.0.get(self.1) else {
            return Err(Error::new("a key without a value".to_owned()));
        };
        self.1 += 1;
        seed.deserialize(Reader(node)).map_err(|e| e.with_position(node).with_step(key.step()))
    }
}

impl Key {
    fn step(&self) -> Step {
        Step::Key(self.text.clone())
    }

    fn read(&self) -> StrDeserializer<'_, Error> {
        self.text.as_str().into_deserializer()
    }
}

/// An enum written as a map with one key: `threshold: { alpha: 0.5 }`.
struct Variant<'n> {
    key: &'n Key,
    node: &'n Node,
}

impl Variant<'_> {
    fn map_error<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|e| e.with_position(self.node).with_step(self.key.step()))
    }
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        Ok((seed.deserialize(self.key.read())?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        if self.node.is_null() || self.node.entries().is_empty() && matches!(self.node.value, Value::Map(_)) {
            return Ok(());
        }
        Err(Error::new(format!("'{}' takes no settings", self.key.text)))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        self.map_error(seed.deserialize(Reader(self.node)))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.map_error(Reader(self.node).deserialize_any(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.map_error(Reader(self.node).deserialize_map(visitor))
    }
}
