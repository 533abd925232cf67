//! The regular expressions of schemas.

use std::borrow::Cow;
use std::sync::OnceLock;

use regex::{Captures, Regex};

/// Maximum bytes of one compiled pattern.
const MAX_PATTERN_BYTES: usize = 1 << 18;

/// A pattern, compiled at its first match: a schema may have thousands of unused patterns.
#[derive(Debug)]
pub(super) struct SchemaPattern {
    pub(super) text: String,
    compiled: OnceLock<Option<Regex>>,
}

impl SchemaPattern {
    pub(super) fn new(text: &str) -> SchemaPattern {
        SchemaPattern { text: text.to_owned(), compiled: OnceLock::new() }
    }

    pub(super) fn is_compiled(&self) -> bool {
        self.compiled.get().is_some()
    }

    /// The compiled pattern; `None` if it is invalid, or cannot be matched in linear time.
    #[allow(clippy::disallowed_methods, reason = "a pattern of a user's schema, of bounded size")]
    pub(super) fn regex(&self) -> Option<&Regex> {
        let compile = || {
            let mut builder = regex::RegexBuilder::new(&ascii_classes(&self.text));
            builder.size_limit(MAX_PATTERN_BYTES).build().ok()
        };
        self.compiled.get_or_init(compile).as_ref()
    }
}

regex!(ESCAPE, r"(?s)\\(.)");

/// Replaces `\d` and `\w` by classes of ASCII characters, which they match in JavaScript, whose patterns JSON schemas
/// use.
fn ascii_classes(pattern: &str) -> Cow<'_, str> {
    ESCAPE.replace_all(pattern, |escape: &Captures<'_>| {
        let ascii = match &escape[1] {
            "d" => "[0-9]",
            "D" => "[^0-9]",
            "w" => "[0-9A-Za-z_]",
            "W" => "[^0-9A-Za-z_]",
            _ => &escape[0],
        };
        ascii.to_owned()
    })
}
