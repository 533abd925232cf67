//! Messages in one shape, whatever shape they had on the wire (conventions, section 5.3).

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A text of the trace, interned: the same message in ten prompts is one allocation, and
/// [`Text::same`] tells so without comparing bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Text(pub Arc<str>);

impl Text {
    /// True when both are the very same interned text.
    pub fn same(&self, other: &Text) -> bool {
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

/// Who says a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// System or developer instructions.
    System,
    /// The user, or whoever calls the agent.
    User,
    /// The model.
    Assistant,
    /// A tool's answer.
    Tool,
}

/// A tool call as a model wrote it.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolRequest {
    /// Links the request to its result; often absent.
    pub id: Option<Text>,
    /// The tool's name.
    pub name: Text,
    /// The arguments as written: usually JSON, possibly malformed.
    pub arguments: Option<Text>,
}

/// One piece of a message.
#[derive(Clone, PartialEq, Debug)]
pub enum Part {
    /// Plain text.
    Text(Text),
    /// The model's visible thinking.
    Reasoning(Text),
    /// The model asks for a tool.
    Call(ToolRequest),
    /// A tool's answer, in a later prompt.
    Result {
        /// The id of the call it answers.
        id: Option<Text>,
        /// The tool's name, where the convention repeats it.
        name: Option<Text>,
        /// What the tool said.
        content: Text,
        /// The convention's own error flag (`is_error`, `status: error`).
        failed: bool,
    },
    /// An image, file or blob: there, but not read.
    Media,
}

/// One message of a conversation, whatever shape it had on the wire.
#[derive(Clone, PartialEq, Debug)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
}

/// A tool offered to a model.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolDefinition {
    pub name: Text,
    /// What it says of itself.
    pub description: Option<Text>,
    /// JSON schema of its parameters; `None` when the trace shows only a name.
    pub parameters: Option<Arc<serde_json::Value>>,
}

/// The plain text parts of messages, joined by newlines.
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
