//! Messages in one format, independent of the convention.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// An interned text of a trace. The same message in ten prompts is one allocation, which
/// [`Text::ptr_eq`] recognises without comparing bytes.
#[derive(Clone, Eq, Hash, PartialOrd, Ord, Debug)]
#[cfg_attr(not(test), derive(PartialEq))]
#[cfg_attr(test, allow(clippy::derived_hash_with_manual_eq))]
pub struct Text(pub Arc<str>);

#[cfg(test)]
thread_local! {
    /// The number of comparisons of texts on this thread: a measure of work that does not depend on the machine.
    pub(crate) static COMPARED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
impl PartialEq for Text {
    fn eq(&self, other: &Text) -> bool {
        COMPARED.set(COMPARED.get() + 1);
        self.0 == other.0
    }
}

impl Text {
    /// Whether both are the same allocation.
    pub fn ptr_eq(&self, other: &Text) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Text {
    fn from(s: &str) -> Text {
        Text(Arc::from(s))
    }
}

/// The author of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// System or developer instructions.
    System,
    /// The user, or another caller of the agent.
    User,
    Assistant,
    /// A tool, with its result.
    Tool,
}

/// A tool call as a model requested it.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolRequest {
    /// Links the request to its result.
    pub id: Option<Text>,
    pub name: Text,
    /// The arguments as recorded: usually JSON, possibly malformed.
    pub arguments: Option<Text>,
}

/// One piece of a message.
#[derive(Clone, PartialEq, Debug)]
pub enum Part {
    Text(Text),
    /// The model's visible reasoning.
    Reasoning(Text),
    /// A tool call that the model requests.
    Call(ToolRequest),
    /// The result of a tool, in a later prompt.
    Result {
        /// The id of the call.
        id: Option<Text>,
        /// The tool's name, if the convention repeats it.
        name: Option<Text>,
        /// The result's text.
        content: Text,
        /// The convention's flag for an error (`is_error`, `status: error`).
        failed: bool,
    },
    /// An image, file or blob, whose content is not read.
    Media,
}

/// One message of a conversation.
#[derive(Clone, PartialEq, Debug)]
pub struct Message {
    pub role: Role,
    /// The content in order.
    pub parts: MessageParts,
}

/// The parts of a message. They are shared, since every prompt of a run repeats the messages of earlier prompts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MessageParts(Arc<Vec<Part>>);

impl MessageParts {
    /// Whether both are the same allocation.
    pub(crate) fn ptr_eq(&self, other: &MessageParts) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for MessageParts {
    type Target = Vec<Part>;
    fn deref(&self) -> &Vec<Part> {
        &self.0
    }
}

impl DerefMut for MessageParts {
    fn deref_mut(&mut self) -> &mut Vec<Part> {
        Arc::make_mut(&mut self.0)
    }
}

impl From<Vec<Part>> for MessageParts {
    fn from(parts: Vec<Part>) -> MessageParts {
        MessageParts(Arc::new(parts))
    }
}

impl FromIterator<Part> for MessageParts {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> MessageParts {
        Vec::from_iter(parts).into()
    }
}

impl<'a> IntoIterator for &'a MessageParts {
    type Item = &'a Part;
    type IntoIter = std::slice::Iter<'a, Part>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// A tool offered to a model.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolDefinition {
    pub name: Text,
    pub description: Option<Text>,
    /// JSON schema of the parameters, if the trace has it.
    pub parameters: Option<Arc<serde_json::Value>>,
}

/// The text parts of messages, joined by newlines.
pub(crate) fn plain(messages: &[Message]) -> Cow<'_, str> {
    let parts = messages.iter().flat_map(|m| &m.parts);
    let mut texts = parts.filter_map(|part| match part {
        Part::Text(text) => Some(&**text),
        _ => None,
    });
    let Some(first) = texts.next() else { return Cow::Borrowed("") };
    let mut out = Cow::Borrowed(first);
    for text in texts {
        if !out.is_empty() {
            out.to_mut().push('\n');
        }
        out += text;
    }
    out
}
