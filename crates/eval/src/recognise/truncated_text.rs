//! Detects texts that are broken off: in the middle of JSON, of a word or of a sentence.

/// How a text ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// In the middle of JSON.
    InJson,
    /// With the bracket or quotation mark that closes the JSON with which the text begins; it may still be invalid.
    ClosedJson,
    /// In the middle of a word or sentence, or with an ellipsis.
    InText,
    /// As a complete text ends.
    Closed,
}

impl Ending {
    pub(super) fn detect(text: &str) -> Ending {
        let bytes = text.trim_ascii_start().as_bytes();
        let inner = bytes.get(1..).and_then(|rest| rest.iter().find(|b| !b.is_ascii_whitespace()));
        let close = match (bytes.first(), inner) {
            (Some(b'{'), Some(b'"' | b'}')) => Some(b'}'),
            (Some(b'['), Some(b'{' | b'[' | b'"' | b']' | b'-' | b'0'..=b'9')) => Some(b']'),
            (Some(b'"'), _) => Some(b'"'),
            _ => None,
        };
        let last = text.trim_ascii_end().as_bytes().last().copied();
        match close {
            Some(close) if last == Some(close) => Ending::ClosedJson,
            Some(_) => Ending::InJson,
            None if ellipsis(text).is_some() => Ending::InText,
            // Complete texts end with a stop, a bracket, a quotation mark, mark-up or a line break.
            None => match text.chars().next_back() {
                Some(c)
                    if c.is_alphanumeric() || matches!(c, ' ' | ',' | '-' | '(' | '[' | '{' | '/' | '\\') =>
                {
                    Ending::InText
                }
                _ => Ending::Closed,
            },
        }
    }
}

/// The length of the ellipsis at the end of a text, which may have been added beyond the limit.
pub(super) fn ellipsis(text: &str) -> Option<usize> {
    match text.as_bytes() {
        [.., b'.', b'.', b'.'] => Some(3),
        // U+2026 in UTF-8.
        [.., 0xe2, 0x80, 0xa6] => Some(1),
        _ => None,
    }
}

/// Whether a text begins like JSON, but is not valid JSON.
pub(crate) fn is_broken_json(text: &str) -> bool {
    match Ending::detect(text) {
        Ending::InJson => true,
        Ending::ClosedJson => !is_json(text),
        Ending::InText | Ending::Closed => false,
    }
}

pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}
