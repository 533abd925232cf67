//! The set of exported traces that is committed with an offset, as the text of its metadata.
//!
//! In: entries, relative to the committed offsets. Out: text of a bounded length, and back. The text is a
//! version, `1`, then base64 of a CRC-32 and the entries: the hash of the trace id (8 bytes, little endian), and
//! as varints the verdict and for each stream the distance from the committed offset to the record after the
//! last exported one, 0 if that is below it. A text that cannot be read is an empty set: traces are then evaluated
//! twice, and none is skipped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use verdict_otlp::trace::{PriorVerdict, TraceId};

use super::stream::{Offsets, STREAMS};

const VERSION: &str = "1";

/// Most bytes of an entry whose distances are below 2^21 and whose revision is below 32.
const ENTRY: usize = 8 + 1 + STREAMS * 3;

/// An exported trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// [`hash`] of its id.
    pub trace: u64,
    pub verdict: PriorVerdict,
    /// Its last exported record.
    pub last: Offsets,
}

/// FNV-1a, which is the same in every process. Among the at most some hundred traces of a set, an equal hash of
/// another trace has a probability of 2^-55.
pub(super) fn hash(trace: TraceId) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    trace.0.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// `None` if the text would be longer than `budget`.
pub(super) fn encode(entries: &[Entry], offsets: Offsets, budget: usize) -> Option<String> {
    let mut bytes = vec![0; 4];
    for entry in entries {
        bytes.extend(entry.trace.to_le_bytes());
        let passed = entry.verdict.passed.map_or(0, |passed| 1 + u64::from(passed));
        varint(&mut bytes, u64::from(entry.verdict.revision) << 2 | passed);
        for (last, offset) in entry.last.iter().zip(offsets) {
            let behind =
                last.zip(offset).map_or(0, |(last, offset)| last.saturating_sub(offset).saturating_add(1));
            varint(&mut bytes, u64::try_from(behind).unwrap_or(0));
        }
    }
    let checksum = crc32fast::hash(&bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    let length = VERSION.len() + (bytes.len() * 4).div_ceil(3);
    (length <= budget).then(|| VERSION.to_owned() + &STANDARD_NO_PAD.encode(bytes))
}

/// Entries that fit in addition to those of an encoded set.
pub(super) fn room(encoded: &str, budget: usize) -> usize {
    budget.saturating_sub(encoded.len()) * 3 / 4 / ENTRY
}

/// `None` if it is not the text of a set.
pub(super) fn decode(text: &str, offsets: Offsets) -> Option<Vec<Entry>> {
    let bytes = STANDARD_NO_PAD.decode(text.strip_prefix(VERSION)?).ok()?;
    let (checksum, mut rest) = bytes.split_first_chunk::<4>()?;
    if crc32fast::hash(rest) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let mut entries = Vec::with_capacity(rest.len() / ENTRY);
    while !rest.is_empty() {
        let (trace, behind) = rest.split_first_chunk::<8>()?;
        rest = behind;
        let verdict = read_varint(&mut rest)?;
        let passed = match verdict & 3 {
            0 => None,
            passed => Some(passed == 2),
        };
        let verdict = PriorVerdict { passed, revision: u32::try_from(verdict >> 2).ok()? };
        let mut last = [None; STREAMS];
        for (last, offset) in last.iter_mut().zip(offsets) {
            let behind = i64::try_from(read_varint(&mut rest)?).ok()?;
            *last = offset.filter(|_| behind > 0).map(|offset| offset.saturating_add(behind - 1));
        }
        entries.push(Entry { trace: u64::from_le_bytes(*trace), verdict, last });
    }
    Some(entries)
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_read_as_it_was_written() {
        let offsets = [Some(1000), None];
        let entry = |n: u8, last, passed| Entry {
            trace: hash(TraceId([n; 16])),
            verdict: PriorVerdict { passed, revision: u32::from(n) },
            last,
        };
        let entries = [
            entry(1, [Some(1000), None], Some(true)),
            entry(2, [Some(700_000), None], Some(false)),
            entry(200, [None, None], None),
        ];
        let text = encode(&entries, offsets, 4096).unwrap();
        assert_eq!(decode(&text, offsets).unwrap(), entries);
        // 8 + 1..2 + 1..3 + 1 bytes each, and the checksum.
        assert_eq!(text.len(), 1 + 40 * 4 / 3 + 1, "{text}");
        assert_eq!(encode(&entries, offsets, text.len() - 1), None);
    }

    #[test]
    fn text_of_something_else_or_damaged_is_no_set() {
        let entry = Entry { trace: 7, verdict: PriorVerdict::default(), last: [Some(5), None] };
        let text = encode(&[entry], [Some(3), None], 100).unwrap();
        for end in 0..text.len() {
            assert_eq!(decode(&text[..end], [Some(3), None]), None, "{end}");
        }
        assert_eq!(decode("", [None; 2]), None);
        assert_eq!(decode("metadata of another program", [None; 2]), None);
        assert_eq!(decode(&encode(&[], [None; 2], 100).unwrap(), [None; 2]), Some(Vec::new()));
    }
}
