//! What a span or its resource states under a key, as text: for patterns that people configure.

use super::value::{RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES};
use super::{Attributes, Fields, Payload, Value};
use crate::trace::{Envelope, Span};

/// The values of the attribute `key` on the span and on its resource. Lists and maps are none.
pub fn stated<'a>(span: &'a Span, key: &'a str) -> impl Iterator<Item = String> + 'a {
    Attributes::new(&span.bytes, SPAN_ATTRIBUTES)
        .chain(resource_attributes(&span.envelope))
        .filter(move |(k, _)| *k == key)
        .filter_map(|(_, value)| text(&value))
}

/// Attributes of the resource that a span came under.
pub fn resource_attributes(envelope: &Envelope) -> impl Iterator<Item = (&str, Value<'_>)> {
    inner(&envelope.resource).flat_map(|resource| Attributes::new(resource, RESOURCE_ATTRIBUTES))
}

/// The message in field 1 of the bytes around a span: `Resource`, or `InstrumentationScope`.
pub fn inner(around: &[u8]) -> impl Iterator<Item = &[u8]> {
    Fields::new(around).map_while(Result::ok).filter_map(|f| match (f.number, f.payload) {
        (1, Payload::Bytes(b)) => Some(b),
        _ => None,
    })
}

fn text(value: &Value<'_>) -> Option<String> {
    match value {
        Value::Str(s) => Some((*s).to_owned()),
        Value::Bool(b) => Some(b.to_string()),
        Value::Int(i) => Some(i.to_string()),
        Value::Double(d) => Some(d.to_string()),
        _ => None,
    }
}
