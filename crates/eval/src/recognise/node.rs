//! [`Node`]: content as a tree, whether it came as an `AnyValue`, as JSON in a string, as JSON in
//! JSON, or as a Python repr in JSON (conventions, section 5.1). Strings are borrowed where the
//! wire allows. Every parse is bounded: depth and number of nodes are hostile.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserializer, Serialize, Serializer};
use verdict_otlp::Value;

/// Nodes accepted in one value: a 16 KB prompt has a few hundred.
pub(crate) const MAX_NODES: usize = 200_000;
/// Depth accepted of an `AnyValue`; `serde_json` has its own bound of 128.
const MAX_DEPTH: usize = 64;

/// One value of content.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) enum Node<'a> {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Str(Cow<'a, str>),
    List(Vec<Node<'a>>),
    Map(Vec<(Cow<'a, str>, Node<'a>)>),
}

impl<'a> Node<'a> {
    /// Parses JSON; `None` when it is not JSON, or too large.
    pub(crate) fn json(text: &'a str) -> Option<Node<'a>> {
        let budget = Cell::new(MAX_NODES);
        let mut de = serde_json::Deserializer::from_str(text);
        let node = Seed(&budget).deserialize(&mut de).ok()?;
        de.end().ok()?;
        Some(node)
    }

    /// Reads an `AnyValue` as it is.
    pub(crate) fn of(value: Value<'a>) -> Node<'a> {
        from_value(value, MAX_DEPTH, &Cell::new(MAX_NODES))
    }

    /// Reads an `AnyValue`, and a string that holds a JSON object, array or string as what it holds.
    pub(crate) fn decoded(value: Value<'a>) -> Node<'a> {
        Node::of(value).unfold()
    }

    /// A string that holds JSON becomes what it holds, twice if need be; anything else stays.
    pub(crate) fn unfold(self) -> Node<'a> {
        let mut node = self;
        for _ in 0..2 {
            let inner = match &node {
                Node::Str(Cow::Borrowed(s)) if holds_json(s) => Node::json(s),
                Node::Str(Cow::Owned(s)) if holds_json(s) => Node::json(s).map(Node::into_owned),
                _ => None,
            };
            match inner {
                Some(inner) => node = inner,
                None => break,
            }
        }
        node
    }

    pub(crate) fn into_owned<'b>(self) -> Node<'b> {
        match self {
            Node::Null => Node::Null,
            Node::Bool(b) => Node::Bool(b),
            Node::Int(n) => Node::Int(n),
            Node::Uint(n) => Node::Uint(n),
            Node::Float(n) => Node::Float(n),
            Node::Str(s) => Node::Str(Cow::Owned(s.into_owned())),
            Node::List(l) => Node::List(l.into_iter().map(Node::into_owned).collect()),
            Node::Map(m) => {
                Node::Map(m.into_iter().map(|(k, v)| (Cow::Owned(k.into_owned()), v.into_owned())).collect())
            }
        }
    }

    /// The member `key` of a map, where it says anything.
    pub(crate) fn get(&self, key: &str) -> Option<&Node<'a>> {
        match self {
            Node::Map(m) => {
                m.iter().find(|(k, _)| k == key).map(|(_, v)| v).filter(|v| !matches!(v, Node::Null))
            }
            _ => None,
        }
    }

    /// The first of `keys` that says anything.
    pub(crate) fn any(&self, keys: &[&str]) -> Option<&Node<'a>> {
        keys.iter().find_map(|k| self.get(k))
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        matches!(self, Node::Map(m) if m.iter().any(|(k, _)| k == key))
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Node::Str(s) => Some(s),
            _ => None,
        }
    }

    pub(crate) fn str_at(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Node::as_str)
    }

    pub(crate) fn items(&self) -> &[Node<'a>] {
        match self {
            Node::List(l) => l,
            _ => &[],
        }
    }

    pub(crate) fn entries(&self) -> &[(Cow<'a, str>, Node<'a>)] {
        match self {
            Node::Map(m) => m,
            _ => &[],
        }
    }

    /// Null, an empty text, list or map.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Node::Null => true,
            Node::Str(s) => s.is_empty(),
            Node::List(l) => l.is_empty(),
            Node::Map(m) => m.is_empty(),
            _ => false,
        }
    }

    /// A number, also when written as a string.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Node::Int(n) => Some(*n as f64),
            Node::Uint(n) => Some(*n as f64),
            Node::Float(n) => Some(*n),
            Node::Str(s) => s.trim().parse().ok(),
            _ => None,
        }
        .filter(|n: &f64| n.is_finite())
    }

    /// A count, also when written as a string.
    pub(crate) fn count(&self) -> Option<u64> {
        self.number().filter(|n| *n >= 0.0).map(|n| n as u64)
    }

    /// As text: strings as they are, anything else as compact JSON.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Node::Str(s) => Cow::Borrowed(s),
            other => Cow::Owned(other.to_json()),
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn holds_json(s: &str) -> bool {
    matches!(s.trim_ascii_start().as_bytes().first(), Some(b'{' | b'[' | b'"'))
}

fn from_value<'a>(value: Value<'a>, depth: usize, budget: &Cell<usize>) -> Node<'a> {
    if depth == 0 || budget.get() == 0 {
        return Node::Null;
    }
    budget.set(budget.get() - 1);
    match value {
        Value::Empty | Value::Bytes(_) => Node::Null,
        Value::Str(s) => Node::Str(Cow::Borrowed(s)),
        Value::Bool(b) => Node::Bool(b),
        Value::Int(n) => Node::Int(n),
        Value::Double(n) => Node::Float(n),
        Value::Array(_) => Node::List(value.items().map(|v| from_value(v, depth - 1, budget)).collect()),
        Value::Map(_) => Node::Map(
            value.entries().map(|(k, v)| (Cow::Borrowed(k), from_value(v, depth - 1, budget))).collect(),
        ),
    }
}

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Node::Null => s.serialize_unit(),
            Node::Bool(b) => s.serialize_bool(*b),
            Node::Int(n) => s.serialize_i64(*n),
            Node::Uint(n) => s.serialize_u64(*n),
            Node::Float(n) => s.serialize_f64(*n),
            Node::Str(t) => s.serialize_str(t),
            Node::List(l) => {
                let mut seq = s.serialize_seq(Some(l.len()))?;
                l.iter().try_for_each(|v| seq.serialize_element(v))?;
                seq.end()
            }
            Node::Map(m) => {
                let mut map = s.serialize_map(Some(m.len()))?;
                m.iter().try_for_each(|(k, v)| map.serialize_entry(k, v))?;
                map.end()
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Seed<'b>(&'b Cell<usize>);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Node<'de>;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Node<'de>, D::Error> {
        match self.0.get().checked_sub(1) {
            Some(left) => self.0.set(left),
            None => return Err(serde::de::Error::custom("too many values")),
        }
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Node<'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Node<'de>, E> {
        Ok(Node::Null)
    }
    fn visit_bool<E>(self, v: bool) -> Result<Node<'de>, E> {
        Ok(Node::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Node<'de>, E> {
        Ok(Node::Int(v))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Node<'de>, E> {
        Ok(i64::try_from(v).map_or(Node::Uint(v), Node::Int))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Node<'de>, E> {
        Ok(Node::Float(v))
    }
    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Node<'de>, E> {
        Ok(Node::Str(Cow::Borrowed(v)))
    }
    fn visit_str<E>(self, v: &str) -> Result<Node<'de>, E> {
        Ok(Node::Str(Cow::Owned(v.to_owned())))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(v) = seq.next_element_seed(self)? {
            list.push(v);
        }
        Ok(Node::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node<'de>, A::Error> {
        let mut entries = Vec::new();
        while let Some(k) = map.next_key_seed(KeySeed)? {
            entries.push((k, map.next_value_seed(self)?));
        }
        Ok(Node::Map(entries))
    }
}

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Cow<'de, str>;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Cow<'de, str>, D::Error> {
        d.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed {
    type Value = Cow<'de, str>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(v))
    }
    fn visit_str<E>(self, v: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(v.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubly_encoded_json_unfolds_and_plain_text_stays() {
        let node = Node::Str(Cow::Borrowed(r#""{\"a\": 1}""#)).unfold();
        assert_eq!(node.get("a"), Some(&Node::Int(1)));
        let node = Node::Str(Cow::Borrowed("{not json")).unfold();
        assert_eq!(node.as_str(), Some("{not json"));
        assert_eq!(Node::Str(Cow::Borrowed("42")).unfold().as_str(), Some("42"));
    }

    #[test]
    fn nesting_and_size_are_bounded() {
        let deep = "[".repeat(100_000);
        assert_eq!(Node::json(&deep), None);
        let wide = format!("[{}1]", "1,".repeat(MAX_NODES));
        assert_eq!(Node::json(&wide), None);
    }

    #[test]
    fn strings_without_escapes_are_borrowed() {
        let node = Node::json(r#"{"a": "plain", "b": "esc\n"}"#);
        let node = node.as_ref();
        assert!(matches!(node.and_then(|n| n.get("a")), Some(Node::Str(Cow::Borrowed("plain")))));
        assert!(matches!(node.and_then(|n| n.get("b")), Some(Node::Str(Cow::Owned(_)))));
    }
}
