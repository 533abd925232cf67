//! Resource and scope of a span, encoded, and compared in constant time.

use std::cmp::Ordering;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::LazyLock;

use bytes::Bytes;

use crate::work;

/// Resource and scope of a span, encoded, so that unknown fields are preserved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Envelope {
    /// Every field of `ResourceSpans` except `scope_spans`.
    pub resource: EnvelopeFields,
    /// Every field of `ScopeSpans` except `spans`.
    pub scope: EnvelopeFields,
}

impl Envelope {
    /// Encoded size in bytes.
    pub fn size(&self) -> usize {
        self.resource.len() + self.scope.len()
    }
}

/// Encoded fields of a resource or scope, with a hash that is computed once. A resource may have megabytes, and is
/// compared with the resources of all spans of its trace: fields are equal if their keyed hashes of 128 bits are.
#[derive(Clone)]
pub struct EnvelopeFields {
    bytes: Bytes,
    hash: [u64; 2],
}

/// Number of leading bytes that are compared for the order of two resources. If they are equal, lengths and hashes
/// determine the order.
const ORDERED_BYTES: usize = 4 << 10;

/// Random keys of the hash, so that senders cannot construct different fields with the same hash.
static HASH_KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);
static EMPTY: LazyLock<EnvelopeFields> = LazyLock::new(|| EnvelopeFields::from(Bytes::new()));

impl From<Bytes> for EnvelopeFields {
    fn from(bytes: Bytes) -> EnvelopeFields {
        work::count(bytes.len());
        let hash = HASH_KEYS.each_ref().map(|key| {
            let mut hasher = key.build_hasher();
            hasher.write(&bytes);
            hasher.finish()
        });
        EnvelopeFields { bytes, hash }
    }
}

impl From<Vec<u8>> for EnvelopeFields {
    fn from(bytes: Vec<u8>) -> EnvelopeFields {
        Bytes::from(bytes).into()
    }
}

impl Default for EnvelopeFields {
    fn default() -> EnvelopeFields {
        EMPTY.clone()
    }
}

impl Deref for EnvelopeFields {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

impl std::fmt::Debug for EnvelopeFields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.bytes.fmt(f)
    }
}

impl PartialEq for EnvelopeFields {
    #[inline]
    fn eq(&self, other: &EnvelopeFields) -> bool {
        self.hash == other.hash
    }
}

impl Eq for EnvelopeFields {}

impl Hash for EnvelopeFields {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash[0]);
    }
}

impl PartialOrd for EnvelopeFields {
    fn partial_cmp(&self, other: &EnvelopeFields) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for EnvelopeFields {
    fn cmp(&self, other: &EnvelopeFields) -> Ordering {
        if self == other {
            return Ordering::Equal;
        }
        let [a, b] = [self, other].map(|fields| &fields.bytes[..fields.len().min(ORDERED_BYTES)]);
        work::count(a.len().min(b.len()));
        a.cmp(b).then_with(|| (self.len(), self.hash).cmp(&(other.len(), other.hash)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_fields_are_hashed_once_and_compared_in_few_bytes() {
        let fields = |last: u8| {
            let mut bytes = vec![1; 1 << 20];
            bytes.push(last);
            EnvelopeFields::from(bytes)
        };
        let before = work::counted();
        let [a, a_copy, b] = [1, 1, 2].map(fields);
        assert_eq!(work::counted() - before, 3 * a.len() as u64);
        let before = work::counted();
        for _ in 0..1_000 {
            assert!(a == a_copy && a != b && a.cmp(&a_copy).is_eq());
            assert_eq!((a.cmp(&b), b.cmp(&a)), (b.cmp(&a).reverse(), a.cmp(&b).reverse()));
        }
        assert!(work::counted() - before <= 1_000 * 4 * ORDERED_BYTES as u64);
        let [short, long] = ["a", "ab"].map(|text| EnvelopeFields::from(text.as_bytes().to_vec()));
        assert!(short < long && EnvelopeFields::default() < short);
    }
}
