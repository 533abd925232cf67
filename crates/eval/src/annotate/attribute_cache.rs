//! A cache of encoded attributes.
//!
//! In: a metric, a field of it, and a value. Out: the encoded attributes. The spans and events of a trace repeat few
//! distinct attributes (a metric's result and score), so writing most of them is a copy of some forty bytes.

use verdict_otlp::write::Scalar;

/// Number of slots, selected by a hash. The measurements of a trace repeat some thirty attributes.
const SLOTS: usize = 64;
/// Number of slots that are tried for an attribute. If all are taken, the first one is overwritten.
const PROBES: usize = 8;
/// Maximum size of the encoded attributes; above it the cache is cleared.
const MAX_BYTES: usize = 64 << 10;

/// A static text or a number.
#[derive(Clone, Copy, Debug)]
pub(super) enum FixedValue {
    /// A label, result or reason.
    Text(&'static str),
    /// A score.
    Number(f64),
}

impl FixedValue {
    pub(super) fn scalar(self) -> Scalar<'static> {
        match self {
            FixedValue::Text(text) => Scalar::Str(text),
            FixedValue::Number(number) => Scalar::Double(number),
        }
    }

    /// The bits that are hashed. The high bits of a number suffice: common scores have short fractions.
    fn hash_bits(self) -> u64 {
        match self {
            FixedValue::Text(text) => text.as_ptr() as u64,
            FixedValue::Number(number) => number.to_bits() >> 47,
        }
    }

    fn is_identical(self, other: FixedValue) -> bool {
        match (self, other) {
            (FixedValue::Text(a), FixedValue::Text(b)) => std::ptr::eq(a, b),
            (FixedValue::Number(a), FixedValue::Number(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        }
    }
}

#[derive(Clone, Copy)]
struct CachedAttribute {
    metric: &'static str,
    field: &'static str,
    value: FixedValue,
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

    /// Appends attributes. `write` is called if they are not in the cache; its output must depend only on the metric,
    /// the field and the value.
    pub(super) fn append(
        &mut self,
        out: &mut Vec<u8>,
        (metric, field, value): (&'static str, &'static str, FixedValue),
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        // Texts are hashed and compared by address: equal texts at two addresses only occupy two slots.
        let hash = metric.as_ptr() as u64
            ^ (field.as_ptr() as u64).rotate_left(17)
            ^ value.hash_bits().rotate_left(31);
        let first_slot = (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize;
        let mut target_slot = first_slot;
        for probe in 0..PROBES {
            let slot = (first_slot + probe) % SLOTS;
            match &self.slots[slot] {
                Some(s)
                    if std::ptr::eq(s.field, field)
                        && std::ptr::eq(s.metric, metric)
                        && s.value.is_identical(value) =>
                {
                    return out.extend_from_slice(self.bytes.get(s.start..s.end).unwrap_or_default());
                }
                Some(_) => {}
                None => {
                    target_slot = slot;
                    break;
                }
            }
        }
        if self.bytes.len() > MAX_BYTES {
            // Scores that do not repeat would otherwise accumulate.
            self.slots = [None; SLOTS];
            self.bytes.clear();
        }
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.slots[target_slot] =
            Some(CachedAttribute { metric, field, value, start, end: self.bytes.len() });
        out.extend_from_slice(self.bytes.get(start..).unwrap_or_default());
    }
}
