//! The metadata that is committed with an offset for the next owner of the partition, as text.
//!
//! In: a [`Handover`], relative to the committed offsets. Out: text of a bounded length, and back. The text is a
//! version, `2`, then base64 of a CRC-32 and of varints:
//!
//! - whether spans were exported on arrival (1) or with the verdict of their trace (0);
//! - for each stream with an offset: the distance from it to `next` and to `passed`, the number of runs of retained
//!   records, and for each the distance from the end of the one before, times two, plus one if the run is longer than
//!   one record; then its length less two follows;
//! - the number of traces in `exported`, and for each the hash of its id (8 bytes, little endian), the verdict, and for
//!   each stream the distance from the offset to the record after the last exported one, 0 if that is below it;
//! - the traces in `late` up to the end: hash and verdict.
//!
//! Version `1` had the list `exported` alone. A text that cannot be read is an empty one: traces are then evaluated
//! twice, and none is skipped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use verdict_otlp::trace::{PriorVerdict, TraceId};

use super::stream::{Offsets, STREAMS};

const VERSION: &str = "2";
/// The version before releases of retained records were committed.
const BEFORE: &str = "1";

/// Most bytes of an exported trace whose distances are below 2^21 and whose revision is below 4096.
const ENTRY: usize = 8 + 2 + STREAMS * 3;
/// Bytes of a trace that only its late spans need.
const LATE: usize = 8 + 2;

/// Records from the first to the one before the second.
pub(super) type OffsetRange = (i64, i64);

/// An exported trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ExportedTrace {
    /// [`hash`] of the id of the trace.
    pub trace: u64,
    pub verdict: PriorVerdict,
    /// The last exported record of the trace.
    pub last: Offsets,
}

/// The state for the next owner, relative to the committed offsets.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Handover {
    /// Whether spans were exported on arrival.
    pub forwards: bool,
    /// Records from the committed offset to this one were read; those that are not in `retained_ranges` are skipped.
    pub next: Offsets,
    /// The forwarded parts of records before this offset were acknowledged.
    pub passed: Offsets,
    /// Records before `next` that a trace needs, or that are not passed through.
    pub retained_ranges: [Vec<OffsetRange>; STREAMS],
    /// Exported traces with records that are read again.
    pub exported: Vec<ExportedTrace>,
    /// Other traces. Spans of them are late.
    pub late: Vec<ExportedTrace>,
}

/// FNV-1a, which is the same in every process. Among the at most some hundred traces of a set, an equal hash of
/// another trace has a probability of 2^-55.
pub(super) fn hash(trace: TraceId) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    trace.0.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Handover {
    /// `None` if the text would be longer than `budget`.
    pub(super) fn encode(&self, offsets: Offsets, budget: usize) -> Option<String> {
        let mut bytes = vec![0; 4];
        varint(&mut bytes, u64::from(self.forwards));
        let distance = |to: Option<i64>, from: i64| {
            u64::try_from(to.unwrap_or(from).saturating_sub(from)).unwrap_or_default()
        };
        for (s, offset) in offsets.into_iter().enumerate() {
            let Some(offset) = offset else { continue };
            varint(&mut bytes, distance(self.next[s], offset));
            varint(&mut bytes, distance(self.passed[s], offset));
            varint(&mut bytes, self.retained_ranges[s].len() as u64);
            let mut before = offset;
            for &(start, end) in &self.retained_ranges[s] {
                let more = distance(Some(end), start).saturating_sub(1);
                varint(&mut bytes, distance(Some(start), before) << 1 | u64::from(more > 0));
                if more > 0 {
                    varint(&mut bytes, more - 1);
                }
                before = end;
            }
        }
        varint(&mut bytes, self.exported.len() as u64);
        for entry in &self.exported {
            entry.encode_into(&mut bytes);
            for (last, offset) in entry.last.iter().zip(offsets) {
                let after = last.map(|last| last.saturating_add(1));
                varint(&mut bytes, offset.map_or(0, |offset| distance(after, offset)));
            }
        }
        self.late.iter().for_each(|entry| entry.encode_into(&mut bytes));
        let checksum = crc32fast::hash(&bytes[4..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        let length = VERSION.len() + (bytes.len() * 4).div_ceil(3);
        (length <= budget).then(|| VERSION.to_owned() + &STANDARD_NO_PAD.encode(bytes))
    }

    /// Adds as many of these traces as fit with `text`. Those with records from `next` on are added with their last
    /// record; the others are late. Returns how many of the former are left out.
    pub(super) fn fill(
        &mut self,
        text: &str,
        budget: usize,
        newest: impl Iterator<Item = (ExportedTrace, bool)>,
    ) -> u64 {
        let mut remaining = budget.saturating_sub(text.len()) / 4 * 3;
        let mut left_out = 0;
        for (entry, is_read_again) in newest {
            let (list, size) =
                if is_read_again { (&mut self.exported, ENTRY) } else { (&mut self.late, LATE) };
            match remaining.checked_sub(size) {
                Some(rest) => {
                    remaining = rest;
                    list.push(entry);
                }
                None => left_out += u64::from(is_read_again),
            }
        }
        left_out
    }

    /// `None` if it is not the text of one.
    pub(super) fn decode(text: &str, offsets: Offsets) -> Option<Handover> {
        let is_before = text.starts_with(BEFORE);
        let bytes =
            STANDARD_NO_PAD.decode(text.strip_prefix(if is_before { BEFORE } else { VERSION })?).ok()?;
        let (checksum, mut rest) = bytes.split_first_chunk::<4>()?;
        if crc32fast::hash(rest) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut out = Handover { next: offsets, passed: offsets, ..Handover::default() };
        if is_before {
            while !rest.is_empty() {
                out.exported.push(ExportedTrace::read(&mut rest, Some(offsets))?);
            }
            return Some(out);
        }
        out.forwards = read_varint(&mut rest)? != 0;
        for (s, offset) in offsets.into_iter().enumerate() {
            let Some(offset) = offset else { continue };
            out.next[s] = Some(offset.checked_add(read_distance(&mut rest)?)?);
            out.passed[s] = Some(offset.checked_add(read_distance(&mut rest)?)?);
            let mut before = offset;
            for _ in 0..read_varint(&mut rest)? {
                let code = read_distance(&mut rest)?;
                let start = before.checked_add(code >> 1)?;
                let more = if code & 1 == 1 { read_distance(&mut rest)?.checked_add(1)? } else { 0 };
                before = start.checked_add(more)?.checked_add(1)?;
                out.retained_ranges[s].push((start, before));
            }
        }
        for _ in 0..read_varint(&mut rest)? {
            out.exported.push(ExportedTrace::read(&mut rest, Some(offsets))?);
        }
        while !rest.is_empty() {
            out.late.push(ExportedTrace::read(&mut rest, None)?);
        }
        Some(out)
    }
}

impl ExportedTrace {
    fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend(self.trace.to_le_bytes());
        let passed = self.verdict.passed.map_or(0, |passed| 1 + u64::from(passed));
        varint(out, u64::from(self.verdict.revision) << 2 | passed);
    }

    /// With its last records if they are written relative to `offsets`.
    fn read(rest: &mut &[u8], offsets: Option<Offsets>) -> Option<ExportedTrace> {
        let (trace, behind) = rest.split_first_chunk::<8>()?;
        *rest = behind;
        let verdict = read_varint(rest)?;
        let passed = match verdict & 3 {
            0 => None,
            passed => Some(passed == 2),
        };
        let verdict = PriorVerdict { passed, revision: u32::try_from(verdict >> 2).ok()? };
        let mut last = [None; STREAMS];
        for (last, offset) in last.iter_mut().zip(offsets.into_iter().flatten()) {
            let behind = read_distance(rest)?;
            *last = offset.filter(|_| behind > 0).map(|offset| offset.saturating_add(behind - 1));
        }
        Some(ExportedTrace { trace: u64::from_le_bytes(*trace), verdict, last })
    }
}

fn read_distance(bytes: &mut &[u8]) -> Option<i64> {
    i64::try_from(read_varint(bytes)?).ok()
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

    fn entry(n: u8, last: Offsets, passed: Option<bool>) -> ExportedTrace {
        ExportedTrace {
            trace: hash(TraceId([n; 16])),
            verdict: PriorVerdict { passed, revision: u32::from(n) },
            last,
        }
    }

    #[test]
    fn a_text_is_read_as_it_was_written() {
        let offsets = [Some(1000), None];
        let handover = Handover {
            forwards: true,
            next: [Some(800_000), None],
            passed: [Some(1010), None],
            retained_ranges: [vec![(1000, 1001), (1003, 1005), (700_000, 800_000)], vec![]],
            exported: vec![
                entry(1, [Some(1000), None], Some(true)),
                entry(2, [Some(700_000), None], Some(false)),
            ],
            late: vec![entry(200, [None, None], None)],
        };
        let text = handover.encode(offsets, 4096).unwrap();
        assert_eq!(Handover::decode(&text, offsets).unwrap(), handover);
        // Checksum, mode, next, passed, number of runs; runs of 1, 2 and 5 bytes; traces of 11, 13 and 10 bytes.
        assert_eq!(
            text.len(),
            1 + usize::div_ceil(4 * (4 + 1 + 3 + 1 + 1 + 1 + 2 + 6 + 1 + 11 + 13 + 10), 3),
            "{text}"
        );
        assert_eq!(handover.encode(offsets, text.len() - 1), None);
    }

    #[test]
    fn the_text_of_an_earlier_release_is_read() {
        let offsets = [Some(1000), None];
        let entries = [entry(1, [Some(1000), None], Some(true)), entry(200, [None, None], None)];
        let mut bytes = Vec::new();
        for (entry, behind) in entries.iter().zip([1, 0]) {
            entry.encode_into(&mut bytes);
            bytes.extend([behind, 0]);
        }
        let framed = [&crc32fast::hash(&bytes).to_le_bytes()[..], &bytes].concat();
        let text = format!("1{}", STANDARD_NO_PAD.encode(framed));
        let read = Handover::decode(&text, offsets).unwrap();
        let wanted =
            Handover { next: offsets, passed: offsets, exported: entries.into(), ..Handover::default() };
        assert_eq!(read, wanted);
    }

    #[test]
    fn text_of_something_else_or_damaged_is_none() {
        let offsets = [Some(3), None];
        let handover = Handover {
            next: offsets,
            retained_ranges: [vec![(3, 9)], vec![]],
            exported: vec![ExportedTrace {
                trace: 7,
                verdict: PriorVerdict::default(),
                last: [Some(5), None],
            }],
            ..Handover::default()
        };
        let text = handover.encode(offsets, 100).unwrap();
        for end in 0..text.len() {
            assert_eq!(Handover::decode(&text[..end], offsets), None, "{end}");
        }
        assert_eq!(Handover::decode("", [None; 2]), None);
        assert_eq!(Handover::decode("metadata of another program", [None; 2]), None);
        let empty = Handover::default().encode([None; 2], 100).unwrap();
        assert_eq!(Handover::decode(&empty, [None; 2]), Some(Handover::default()));
    }
}
