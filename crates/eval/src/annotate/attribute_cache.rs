//! Attributes that have been written before, kept encoded.
//!
//! In: a metric, a field of it, and a fixed value. Out: the encoded attribute. A trace says few
//! different things (which metric passed, with which score) on many spans; saying one again is a
//! copy of some forty bytes.

use verdict_otlp::value::SPAN_ATTRIBUTES;
use verdict_otlp::write::{self, Scalar};

/// Attributes remembered at once, by a hash of what they say. Eleven metrics have three common
/// results each.
const SLOTS: usize = 64;
/// Places looked at for one; where all are taken, the first gives way.
const PROBES: usize = 8;

/// A value that stands in the program, or a number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fixed {
    /// A label, result or reason.
    Word(&'static str),
    /// A score.
    Number(f64),
}

impl Fixed {
    fn plain(self) -> Scalar<'static> {
        match self {
            Fixed::Word(word) => Scalar::Str(word),
            Fixed::Number(number) => Scalar::Double(number),
        }
    }

    fn bits(self) -> u64 {
        match self {
            Fixed::Word(word) => word.as_ptr() as u64,
            Fixed::Number(number) => number.to_bits() >> 47,
        }
    }

    fn is(self, other: Fixed) -> bool {
        match (self, other) {
            (Fixed::Word(a), Fixed::Word(b)) => std::ptr::eq(a, b),
            (Fixed::Number(a), Fixed::Number(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        }
    }
}

#[derive(Clone, Copy)]
struct CachedAttribute {
    metric: &'static str,
    field: &'static str,
    value: Fixed,
    start: usize,
    end: usize,
}

/// The attributes of one trace.
pub(super) struct AttributeCache {
    slots: [Option<CachedAttribute>; SLOTS],
    bytes: Vec<u8>,
}

impl AttributeCache {
    pub(super) fn new() -> AttributeCache {
        AttributeCache { slots: [None; SLOTS], bytes: Vec::with_capacity(SLOTS * 16) }
    }

    /// Appends the attribute; `key` makes its key when it is said for the first time.
    pub(super) fn put<'k>(
        &mut self,
        out: &mut Vec<u8>,
        metric: &'static str,
        field: &'static str,
        value: Fixed,
        key: impl FnOnce() -> &'k str,
    ) {
        let mixed =
            metric.as_ptr() as u64 ^ (field.as_ptr() as u64).rotate_left(17) ^ value.bits().rotate_left(31);
        let first = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize;
        let mut free = first;
        for probe in 0..PROBES {
            let at = (first + probe) % SLOTS;
            match &self.slots[at] {
                // By address: equal words at two addresses only take a slot more.
                Some(s)
                    if std::ptr::eq(s.field, field)
                        && std::ptr::eq(s.metric, metric)
                        && s.value.is(value) =>
                {
                    return out.extend_from_slice(self.bytes.get(s.start..s.end).unwrap_or_default());
                }
                Some(_) => {}
                None => {
                    free = at;
                    break;
                }
            }
        }
        if self.bytes.len() > MOST {
            // Scores that never repeat must not pile up.
            self.slots = [None; SLOTS];
            self.bytes.clear();
        }
        let start = self.bytes.len();
        write::attribute(&mut self.bytes, SPAN_ATTRIBUTES, key(), value.plain());
        self.slots[free] = Some(CachedAttribute { metric, field, value, start, end: self.bytes.len() });
        out.extend_from_slice(self.bytes.get(start..).unwrap_or_default());
    }
}

/// Bytes of encoded attributes kept.
const MOST: usize = 64 << 10;
