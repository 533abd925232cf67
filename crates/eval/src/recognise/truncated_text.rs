//! Detects texts that are broken off: in the middle of JSON, of a word or of a sentence; and the marks with which tools
//! say so. These marks are written by programs, in English whatever the language of the text.

use aho_corasick::AhoCorasick;

use crate::pattern::WordSearcher;

/// Marks by which tools indicate that they cut a result off.
const MARKS: [&str; 16] = [
    "[truncated",
    "(truncated",
    "<truncated",
    "...truncated",
    "... truncated",
    "\u{2026}truncated",
    "\u{2026} truncated",
    "output truncated",
    "result truncated",
    "results truncated",
    "response truncated",
    "content truncated",
    "has been truncated",
    "was truncated",
    "[content cut",
    "[output cut",
];
checked_static!(MARK: AhoCorasick = AhoCorasick::builder().ascii_case_insensitive(true).build(MARKS));

/// Every mark contains one of these words.
const MARK_WORDS: [&str; 2] = ["truncated", "cut"];
checked_static!(MARK_WORD: WordSearcher = WordSearcher::new(&MARK_WORDS));

/// Whether the end of a text contains a mark with which the tool (not the instrumentation) cut it off.
pub(crate) fn says_truncated(end: &str) -> bool {
    // Every result is searched, and few texts contain one of the words that all marks contain.
    MARK_WORD.find(&end.to_ascii_lowercase()).is_some() && MARK.is_match(end)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_has_a_word_that_is_searched_first() {
        for mark in MARKS {
            assert!(MARK_WORDS.iter().any(|word| mark.contains(word)), "{mark}");
            assert!(says_truncated(&format!("1, 2, 3 {}", mark.to_uppercase())), "{mark}");
        }
    }
}
