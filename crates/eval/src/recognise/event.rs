//! Fields of span events and log records.

use std::borrow::Cow;

use verdict_otlp::{Attributes, Value};

use super::node::ContentNode;
use super::scan::EventMessage;

/// An event as one map: the body of a log record first, then the attributes.
pub(crate) fn node<'a>(event: &EventMessage<'a>) -> ContentNode<'a> {
    let mut entries: Vec<_> = Attributes::new(event.message, event.attributes)
        .map(|(key, value)| (Cow::Borrowed(key), ContentNode::decoded(value)))
        .collect();
    match ContentNode::decoded(event.body) {
        ContentNode::Map(body) => entries.splice(0..0, body).for_each(drop),
        ContentNode::Null => {}
        body => entries.insert(0, (Cow::Borrowed("content"), body)),
    }
    ContentNode::Map(entries)
}

/// The texts in the attributes of an event.
pub(crate) fn texts<'a>(event: &EventMessage<'a>) -> impl Iterator<Item = &'a str> + use<'a> {
    Attributes::new(event.message, event.attributes).filter_map(|(_, value)| value.as_str())
}

/// The first of `keys` that has a value, in an attribute or in the body.
pub(crate) fn field<'a>(event: &EventMessage<'a>, keys: &[&str]) -> Option<Value<'a>> {
    keys.iter().find_map(|key| {
        let attributes = Attributes::new(event.message, event.attributes);
        attributes.chain(event.body.entries()).find(|(k, v)| k == key && *v != Value::Empty).map(|(_, v)| v)
    })
}

/// The id of the tool call that an event belongs to.
pub(crate) fn call_id<'a>(event: &EventMessage<'a>) -> Option<&'a str> {
    field(event, &["id", "tool_call_id"]).and_then(|v| v.as_str())
}
