//! Ids of traces and spans, and maps by them.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};

/// 16 bytes, never all zero once a span has been accepted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TraceId(pub [u8; 16]);

/// 8 bytes; all zero for "none" (the parent of a root).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SpanId(pub [u8; 8]);

/// A map by trace or span id. Its hash is fast, since every span is looked up several times, and
/// randomly seeded, since senders choose the ids.
pub type ById<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

// As one number: the derived implementation hashes the length and every byte.
impl Hash for TraceId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(u128::from_ne_bytes(self.0));
    }
}

impl Hash for SpanId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from_ne_bytes(self.0));
    }
}

impl TraceId {
    /// True for the all-zero id, which OTLP calls invalid.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl SpanId {
    /// True for the all-zero id: invalid for a span, "no parent" for a parent.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 8]
    }
}

/// Writes all digits at once; formatting byte by byte costs ten times as much, and every finding
/// names ids.
fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digits = bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]);
    let mut text = [0u8; 32];
    text.iter_mut().zip(digits).for_each(|(at, digit)| *at = digit as u8);
    f.write_str(std::str::from_utf8(&text[..bytes.len() * 2]).unwrap_or_default())
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}
