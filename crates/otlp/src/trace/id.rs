//! Ids of traces and spans, and maps by them.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $len:literal, $int:ident, $write:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
        pub struct $name(pub [u8; $len]);

        impl $name {
            /// True for the all-zero id, which is invalid for a trace or a span.
            pub fn is_zero(self) -> bool {
                self.0 == [0; $len]
            }
        }

        // The id is hashed as one number: the derived implementation hashes the length and every byte.
        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                state.$write($int::from_ne_bytes(self.0));
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0, f)
            }
        }
    };
}

impl std::str::FromStr for TraceId {
    type Err = InvalidId;

    /// Reads 32 hexadecimal digits, not all of them zero.
    fn from_str(text: &str) -> Result<TraceId, InvalidId> {
        let is_hex = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|number| is_hex && *number != 0);
        number.map(|number| TraceId(number.to_be_bytes())).ok_or(InvalidId)
    }
}

/// The text is not an id in hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not 32 hexadecimal digits, or all of them zero")]
pub struct InvalidId;

id! {
    /// Id of a trace: 16 bytes, not all zero once a span has been accepted.
    TraceId, 16, u128, write_u128
}

id! {
    /// Id of a span: 8 bytes. All zero as the parent of a root.
    SpanId, 8, u64, write_u64
}

/// A map by trace or span id. Its hash is fast, since every span is looked up several times, and
/// randomly seeded, since senders choose the ids.
pub type ById<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The bytes as lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> impl Iterator<Item = u8> + '_ {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]])
}

/// Writes all digits at once; formatting byte by byte costs ten times as much, and every finding
/// names ids.
fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [0u8; 32];
    text.iter_mut().zip(hex(bytes)).for_each(|(slot, digit)| *slot = digit);
    f.write_str(std::str::from_utf8(&text[..bytes.len() * 2]).unwrap_or_default())
}
