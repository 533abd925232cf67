//! [`Node`]: content as a tree, whether it was recorded as an `AnyValue`, as JSON in a string, as
//! JSON in JSON, or as a Python `repr` in JSON. Content is untrusted: every conversion bounds depth and number of
//! nodes.

use std::borrow::Cow;
use std::cell::Cell;

use serde::{Serialize, Serializer};
use verdict_otlp::Value;

/// Maximum number of nodes in one value. A 16 KB prompt has a few hundred.
pub(crate) const MAX_NODES: usize = 200_000;
/// Maximum depth of an `AnyValue`.
const MAX_DEPTH: usize = 64;

/// One value of content.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
#[serde(untagged)]
pub(crate) enum Node<'a> {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Str(Cow<'a, str>),
    List(Vec<Node<'a>>),
    #[serde(serialize_with = "serialize_map")]
    Map(Vec<(Cow<'a, str>, Node<'a>)>),
}

impl<'a> Node<'a> {
    /// Converts an `AnyValue`; strings are not parsed.
    pub(crate) fn of(value: Value<'a>) -> Node<'a> {
        from_value(value, MAX_DEPTH, &Cell::new(MAX_NODES))
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

    /// The member `key` of a map, unless it is null.
    pub(crate) fn get(&self, key: &str) -> Option<&Node<'a>> {
        match self {
            Node::Map(m) => {
                m.iter().find(|(k, _)| k == key).map(|(_, v)| v).filter(|v| !matches!(v, Node::Null))
            }
            _ => None,
        }
    }

    /// The first member among `keys` that is not null.
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

    /// A finite number, or a string that contains one.
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

    /// A number that is not negative, without its fraction.
    pub(crate) fn count(&self) -> Option<u64> {
        self.number().filter(|n| *n >= 0.0).map(|n| n as u64)
    }

    /// The text of a string; compact JSON of any other node.
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

fn serialize_map<S: Serializer>(
    entries: &[(Cow<'_, str>, Node<'_>)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(entries.iter().map(|(key, value)| (key, value)))
}
