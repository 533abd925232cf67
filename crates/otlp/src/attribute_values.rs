//! Values of attributes of a span or its resource as text, which configured patterns are compared with.

use super::fields::Fields;
use super::trace::{Envelope, Span};
use super::value::{Attributes, RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES, Value};

/// The scalar values of the attribute `key` on the span and on its resource.
pub fn values<'a>(span: &'a Span, key: &'a str) -> impl Iterator<Item = String> + 'a {
    Attributes::new(&span.bytes, SPAN_ATTRIBUTES)
        .chain(resource_attributes(&span.envelope))
        .filter(move |(k, _)| *k == key)
        .filter_map(|(_, value)| text(&value))
}

/// Maximum number of attributes of a resource that are read: patterns are compared with the resource's attributes for
/// each span. Resource detectors set about thirty.
pub const MAX_RESOURCE_ATTRIBUTES: usize = 1024;

/// The first [`MAX_RESOURCE_ATTRIBUTES`] attributes of a span's resource.
pub fn resource_attributes(envelope: &Envelope) -> impl Iterator<Item = (&str, Value<'_>)> {
    inner(&envelope.resource)
        .flat_map(|resource| Attributes::new(resource, RESOURCE_ATTRIBUTES))
        .take(MAX_RESOURCE_ATTRIBUTES)
}

/// The message in field 1 of [`Envelope::resource`] or [`Envelope::scope`]: `Resource`, or
/// `InstrumentationScope`.
pub fn inner(envelope: &[u8]) -> impl Iterator<Item = &[u8]> {
    Fields::new(envelope).contents(1)
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
