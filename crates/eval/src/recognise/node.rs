//! [`ContentNode`]: content as a tree, whether it was recorded as an `AnyValue`, as JSON in a string, as
//! JSON in JSON, or as a Python `repr` in JSON. Strings are borrowed where they have no escapes. Content is
//! untrusted: every parse bounds depth and number of nodes.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use verdict_otlp::Value;

/// Maximum number of nodes in one value. A 16 KB prompt has a few hundred.
pub(crate) const MAX_NODES: usize = 200_000;
/// Maximum depth of an `AnyValue`.
const MAX_DEPTH: usize = 64;
/// Maximum depth of an element of a list: less than the JSON parser accepts for a whole list, so that both
/// ways of reading agree.
pub(super) const MAX_ELEMENT_DEPTH: usize = 100;
/// Maximum depth of JSON, as `serde_json` limits it.
const MAX_JSON_DEPTH: usize = 128;

/// One value of content.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
#[serde(untagged)]
pub(crate) enum ContentNode<'a> {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Str(Cow<'a, str>),
    List(Vec<ContentNode<'a>>),
    #[serde(serialize_with = "serialize_map")]
    Map(Vec<(Cow<'a, str>, ContentNode<'a>)>),
}

impl<'a> ContentNode<'a> {
    /// Parses JSON. `None` if it is invalid or has more than [`MAX_NODES`] nodes.
    pub(crate) fn json(text: &'a str) -> Option<ContentNode<'a>> {
        let mut de = serde_json::Deserializer::from_str(text);
        let node = ContentNode::deserialize(&mut de, MAX_JSON_DEPTH).ok()?;
        de.end().ok()?;
        Some(node)
    }

    /// Parses the JSON value at the beginning of `text`, of at most `depth` levels, and returns its length.
    pub(crate) fn first_json(text: &'a str, depth: usize) -> Option<(ContentNode<'a>, usize)> {
        let mut de = serde_json::Deserializer::from_str(text);
        let node = ContentNode::deserialize(&mut de, depth).ok()?;
        Some((node, de.into_iter::<IgnoredAny>().byte_offset()))
    }

    /// Reads a value of at most `depth` levels.
    pub(crate) fn deserialize<D: Deserializer<'a>>(
        from: D,
        depth: usize,
    ) -> Result<ContentNode<'a>, D::Error> {
        let (mut node, budget) = (ContentNode::Null, Cell::new(MAX_NODES));
        NodeSeed { out: &mut node, budget: &budget, depth }.deserialize(from)?;
        Ok(node)
    }

    /// Converts an `AnyValue`; strings are not parsed.
    pub(crate) fn from_value(value: Value<'a>) -> ContentNode<'a> {
        from_value(value, MAX_DEPTH, &Cell::new(MAX_NODES))
    }

    /// Converts an `AnyValue`; a string that contains a JSON object, array or string is parsed.
    pub(crate) fn decoded(value: Value<'a>) -> ContentNode<'a> {
        ContentNode::from_value(value).unfold()
    }

    /// Parses a string that contains JSON, and once more if the result is such a string. Any other
    /// node is returned unchanged.
    pub(crate) fn unfold(self) -> ContentNode<'a> {
        let mut node = self;
        for _ in 0..2 {
            let inner = match &node {
                ContentNode::Str(Cow::Borrowed(s)) if contains_json(s) => ContentNode::json(s),
                ContentNode::Str(Cow::Owned(s)) if contains_json(s) => {
                    ContentNode::json(s).map(ContentNode::into_owned)
                }
                _ => None,
            };
            match inner {
                Some(inner) => node = inner,
                None => break,
            }
        }
        node
    }

    pub(crate) fn into_owned<'b>(self) -> ContentNode<'b> {
        match self {
            ContentNode::Null => ContentNode::Null,
            ContentNode::Bool(b) => ContentNode::Bool(b),
            ContentNode::Int(n) => ContentNode::Int(n),
            ContentNode::Uint(n) => ContentNode::Uint(n),
            ContentNode::Float(n) => ContentNode::Float(n),
            ContentNode::Str(s) => ContentNode::Str(Cow::Owned(s.into_owned())),
            ContentNode::List(l) => ContentNode::List(l.into_iter().map(ContentNode::into_owned).collect()),
            ContentNode::Map(m) => ContentNode::Map(
                m.into_iter().map(|(k, v)| (Cow::Owned(k.into_owned()), v.into_owned())).collect(),
            ),
        }
    }

    /// The member `key` of a map, unless it is null.
    pub(crate) fn get(&self, key: &str) -> Option<&ContentNode<'a>> {
        match self {
            ContentNode::Map(m) => {
                m.iter().find(|(k, _)| k == key).map(|(_, v)| v).filter(|v| !matches!(v, ContentNode::Null))
            }
            _ => None,
        }
    }

    /// The first member among `keys` that is not null.
    pub(crate) fn first_of(&self, keys: &[&str]) -> Option<&ContentNode<'a>> {
        keys.iter().find_map(|k| self.get(k))
    }

    /// Whether the node is a map with this key; its value may be null.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        matches!(self, ContentNode::Map(m) if m.iter().any(|(k, _)| k == key))
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            ContentNode::Str(s) => Some(s),
            _ => None,
        }
    }

    /// The member `key` of a map, if it is a string.
    pub(crate) fn str_at(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(ContentNode::as_str)
    }

    pub(crate) fn items(&self) -> &[ContentNode<'a>] {
        match self {
            ContentNode::List(l) => l,
            _ => &[],
        }
    }

    pub(crate) fn entries(&self) -> &[(Cow<'a, str>, ContentNode<'a>)] {
        match self {
            ContentNode::Map(m) => m,
            _ => &[],
        }
    }

    /// Whether the node is null, or an empty text, list or map.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            ContentNode::Null => true,
            ContentNode::Str(s) => s.is_empty(),
            ContentNode::List(l) => l.is_empty(),
            ContentNode::Map(m) => m.is_empty(),
            _ => false,
        }
    }

    /// A finite number, or a string that contains one.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            ContentNode::Int(n) => Some(*n as f64),
            ContentNode::Uint(n) => Some(*n as f64),
            ContentNode::Float(n) => Some(*n),
            ContentNode::Str(s) => s.trim().parse().ok(),
            _ => None,
        }
        .filter(|n: &f64| n.is_finite())
    }

    /// A number that is not negative, without its fraction.
    pub(crate) fn count(&self) -> Option<u64> {
        self.number().filter(|n| *n >= 0.0).map(|n| n as u64)
    }

    /// The text of a string; compact JSON of any other node.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            ContentNode::Str(s) => Cow::Borrowed(s),
            other => Cow::Owned(other.to_json()),
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn contains_json(s: &str) -> bool {
    matches!(s.trim_ascii_start().as_bytes().first(), Some(b'{' | b'[' | b'"'))
}

fn from_value<'a>(value: Value<'a>, depth: usize, budget: &Cell<usize>) -> ContentNode<'a> {
    if depth == 0 || budget.get() == 0 {
        return ContentNode::Null;
    }
    budget.set(budget.get() - 1);
    match value {
        Value::Empty | Value::Bytes(_) => ContentNode::Null,
        Value::Str(s) => ContentNode::Str(Cow::Borrowed(s)),
        Value::Bool(b) => ContentNode::Bool(b),
        Value::Int(n) => ContentNode::Int(n),
        Value::Double(n) => ContentNode::Float(n),
        Value::Array(_) => {
            ContentNode::List(value.items().map(|v| from_value(v, depth - 1, budget)).collect())
        }
        Value::Map(_) => ContentNode::Map(
            value.entries().map(|(k, v)| (Cow::Borrowed(k), from_value(v, depth - 1, budget))).collect(),
        ),
    }
}

fn serialize_map<S: Serializer>(
    entries: &[(Cow<'_, str>, ContentNode<'_>)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(entries.iter().map(|(key, value)| (key, value)))
}

/// Deserializes one value within a budget of nodes. The value is written to `out`: a returned value would be copied at
/// each level of the parser.
struct NodeSeed<'p, 'a> {
    out: &'p mut ContentNode<'a>,
    budget: &'p Cell<usize>,
    /// Levels of lists and maps that are left.
    depth: usize,
}

/// The initial capacity of a list or map.
const INITIAL_CAPACITY: usize = 4;

fn too_deep<E: serde::de::Error>() -> E {
    E::custom("too deep")
}

/// Of at most [`MAX_NODES`] nodes and [`MAX_JSON_DEPTH`] levels.
impl<'de> Deserialize<'de> for ContentNode<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<ContentNode<'de>, D::Error> {
        let (mut node, budget) = (ContentNode::Null, Cell::new(MAX_NODES));
        NodeSeed { out: &mut node, budget: &budget, depth: MAX_JSON_DEPTH }.deserialize(d)?;
        Ok(node)
    }
}

impl<'de> DeserializeSeed<'de> for NodeSeed<'_, 'de> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        match self.budget.get().checked_sub(1) {
            Some(left) => self.budget.set(left),
            None => return Err(serde::de::Error::custom("too many values")),
        }
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_, 'de> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        *self.out = ContentNode::Null;
        Ok(())
    }
    fn visit_bool<E>(self, v: bool) -> Result<(), E> {
        *self.out = ContentNode::Bool(v);
        Ok(())
    }
    fn visit_i64<E>(self, v: i64) -> Result<(), E> {
        *self.out = ContentNode::Int(v);
        Ok(())
    }
    fn visit_u64<E>(self, v: u64) -> Result<(), E> {
        *self.out = i64::try_from(v).map_or(ContentNode::Uint(v), ContentNode::Int);
        Ok(())
    }
    fn visit_f64<E>(self, v: f64) -> Result<(), E> {
        *self.out = ContentNode::Float(v);
        Ok(())
    }
    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<(), E> {
        *self.out = ContentNode::Str(Cow::Borrowed(v));
        Ok(())
    }
    fn visit_str<E>(self, v: &str) -> Result<(), E> {
        *self.out = ContentNode::Str(Cow::Owned(v.to_owned()));
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let depth = self.depth.checked_sub(1).ok_or_else(too_deep)?;
        let mut list = Vec::new();
        let mut item = ContentNode::Null;
        while seq.next_element_seed(NodeSeed { out: &mut item, budget: self.budget, depth })?.is_some() {
            if list.is_empty() {
                list = Vec::with_capacity(INITIAL_CAPACITY);
            }
            list.push(std::mem::take(&mut item));
        }
        *self.out = ContentNode::List(list);
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let depth = self.depth.checked_sub(1).ok_or_else(too_deep)?;
        let mut entries = Vec::new();
        let mut value = ContentNode::Null;
        while let Some(JsonStr(key)) = map.next_key()? {
            map.next_value_seed(NodeSeed { out: &mut value, budget: self.budget, depth })?;
            if entries.is_empty() {
                entries = Vec::with_capacity(INITIAL_CAPACITY);
            }
            entries.push((key, std::mem::take(&mut value)));
        }
        *self.out = ContentNode::Map(entries);
        Ok(())
    }
}

/// A string, borrowed where it has no escapes.
pub(crate) struct JsonStr<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for JsonStr<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<JsonStr<'a>, D::Error> {
        from.deserialize_str(StrVisitor).map(JsonStr)
    }
}

struct StrVisitor;

impl<'de> Visitor<'de> for StrVisitor {
    type Value = Cow<'de, str>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
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
        let node = ContentNode::Str(Cow::Borrowed(r#""{\"a\": 1}""#)).unfold();
        assert_eq!(node.get("a"), Some(&ContentNode::Int(1)));
        let node = ContentNode::Str(Cow::Borrowed("{not json")).unfold();
        assert_eq!(node.as_str(), Some("{not json"));
        assert_eq!(ContentNode::Str(Cow::Borrowed("42")).unfold().as_str(), Some("42"));
    }

    #[test]
    fn nesting_and_size_are_bounded() {
        let deep = "[".repeat(100_000);
        assert_eq!(ContentNode::json(&deep), None);
        let wide = format!("[{}1]", "1,".repeat(MAX_NODES));
        assert_eq!(ContentNode::json(&wide), None);
    }

    #[test]
    fn strings_without_escapes_are_borrowed() {
        let node = ContentNode::json(r#"{"a": "plain", "b": "esc\n"}"#);
        let node = node.as_ref();
        assert!(matches!(node.and_then(|n| n.get("a")), Some(ContentNode::Str(Cow::Borrowed("plain")))));
        assert!(matches!(node.and_then(|n| n.get("b")), Some(ContentNode::Str(Cow::Owned(_)))));
    }
}
