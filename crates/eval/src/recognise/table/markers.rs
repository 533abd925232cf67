//! Markers that replace removed content, and markers at the end of a text that was cut off.

use super::{ByteSet, ConventionTable};
use crate::recognise::tool::JsonString;
use crate::recognise::truncated_text::is_broken_json;

impl ConventionTable {
    /// Whether the value replaces content: a marker, asterisks, or a hash, as processors of a Collector write it.
    #[inline]
    pub(crate) fn is_hidden(&self, value: &str) -> bool {
        let bytes = value.as_bytes();
        self.is_redacted(value)
            || match bytes.first() {
                Some(b'*') => bytes.len() >= 3 && bytes.iter().all(|b| *b == b'*'),
                Some(b) if b.is_ascii_hexdigit() => {
                    matches!(bytes.len(), 40 | 64 | 128) && bytes.iter().all(u8::is_ascii_hexdigit)
                }
                _ => false,
            }
    }

    /// Whether the JSON `text` has a hidden value.
    pub(crate) fn has_hidden_value(&self, text: &str) -> bool {
        if !text.starts_with(['{', '[']) {
            return false;
        }
        if let Some(searcher) = &self.redacted_strings {
            return searcher.find(text).is_some();
        }
        memchr::memchr_iter(b'"', text.as_bytes()).any(|quote| {
            let string = text.as_bytes().get(quote + 1..).unwrap_or_default();
            self.may_begin_redacted(string.first())
                && self.redacted.iter().any(|word| string.starts_with(word.as_bytes()))
        })
    }

    /// Whether [`ConventionTable::has_hidden_value`] may be true for JSON with this string.
    #[inline]
    pub(crate) fn may_hide(&self, string: JsonString<'_>) -> bool {
        // A marker may also follow the quotation mark at the end of the string, or an escaped one.
        string.has_escapes
            || self.may_begin_redacted(string.content.first().or(Some(&b'"')))
            || self.may_begin_redacted(string.after.as_ref())
    }

    /// Whether the text ends with the marker of an instrumentation that cut it off.
    #[inline]
    pub(crate) fn is_marked_as_cut(&self, text: &str) -> bool {
        matches!(text.as_bytes().last(), Some(b']' | b'>' | b')' | b'.' | b'"'))
            && self.ends_with_marker(text)
    }

    fn ends_with_marker(&self, text: &str) -> bool {
        let text = text.strip_suffix('"').map_or(text, |inner| inner.strip_prefix('"').unwrap_or(text));
        let last = text.as_bytes().last().map(u8::to_ascii_lowercase);
        let may_end = |[last_bytes, bytes_before]: &[ByteSet; 2]| {
            let mut bytes = text.bytes().rev().map(|byte| byte.to_ascii_lowercase());
            bytes.next().is_none_or(|byte| last_bytes.contains(byte))
                && bytes.next().is_none_or(|byte| bytes_before.contains(byte))
        };
        if !may_end(&self.truncated_ends) {
            return false;
        }
        let has_same_last_byte =
            |marker: &&String| marker.is_empty() || marker.as_bytes().last().copied() == last;
        self.truncated.iter().filter(has_same_last_byte).any(|marker| {
            let Some(start) = text.len().checked_sub(marker.len()) else { return false };
            let is_marker = text.get(start..).is_some_and(|end| end.eq_ignore_ascii_case(marker));
            is_marker && text.get(..start).is_some_and(|before| before.is_empty() || is_broken_json(before))
        })
    }

    /// Whether a marker of `redacted` begins with this byte.
    #[inline]
    fn may_begin_redacted(&self, first: Option<&u8>) -> bool {
        first.is_some_and(|first| self.redacted_begins[0].contains(*first))
    }

    /// Whether the value is a marker that replaces removed content.
    #[inline]
    pub(crate) fn is_redacted(&self, value: &str) -> bool {
        // Called for every text. Few begin with the first byte of a marker, or are quoted.
        let bytes = value.as_bytes();
        let is_plain =
            bytes.first().is_some_and(|first| *first != b'"' && !self.may_begin_redacted(Some(first)))
                && bytes.last() != Some(&b'"');
        !is_plain && self.is_redaction_marker(value)
    }

    fn is_redaction_marker(&self, value: &str) -> bool {
        let is_quote = |byte: Option<&u8>| byte == Some(&b'"');
        let quoted = is_quote(value.as_bytes().first()) || is_quote(value.as_bytes().last());
        let value = if quoted { value.trim_matches('"') } else { value };
        let first = value.as_bytes().first();
        let has_same_first_byte = |word: &&String| word.as_bytes().first() == first;
        let may_follow = |second: &u8| self.redacted_begins[1].contains(*second);
        (first.is_none() || self.may_begin_redacted(first))
            && value.as_bytes().get(1).is_none_or(may_follow)
            && self.redacted.iter().filter(has_same_first_byte).any(|word| {
                match word.ends_with([']', '>', '_']) {
                    true => value == word,
                    false => value.starts_with(word.as_str()),
                }
            })
    }
}
