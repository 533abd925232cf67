//! The text that is committed as the metadata of an offset, for the next owner of the partition.
//!
//! In: a [`Handover`], relative to the committed offsets. Out: text of a bounded length, and back. The text is a
//! version, `2`, then base64 of a CRC-32 and of varints:
//!
//! - whether spans were exported on arrival (1) or with the verdict of their trace (0);
//! - for each stream with an offset: the distance from it to `next` and to `forwarded`, the number of ranges of
//!   retained records, and for each range the distance from the end of the previous one, times two, plus one if the
//!   range is longer than one record, in which case its length less two follows;
//! - the number of traces in `exported`, and for each the hash of its id (8 bytes, little endian), the verdict, and for
//!   each stream the distance from the offset to the record after the last exported one, 0 if that record is below it;
//! - the traces in `late` up to the end of the text: hash and verdict.
//!
//! Version `1` contains the list `exported` alone. A text that cannot be read counts as an empty one: traces are then
//! evaluated twice, and none is skipped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use verdict_otlp::trace::{PriorVerdict, TraceId};

use super::stream::{Offsets, STREAMS};

const VERSION: &str = "2";
/// The version of releases that did not commit retained records.
const PREVIOUS_VERSION: &str = "1";

/// Maximum bytes of an exported trace whose distances are below 2^21 and whose revision is below 4096.
const EXPORTED_BYTES: usize = 8 + 2 + STREAMS * 3;
/// Maximum bytes of a trace in `late` whose revision is below 4096.
const LATE_BYTES: usize = 8 + 2;

/// Records from the first offset to the one before the second.
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
    pub forwarded: Offsets,
    /// Records before `next` that a trace needs, or whose forwarded part is not acknowledged.
    pub retained_ranges: [Vec<OffsetRange>; STREAMS],
    /// Exported traces with records that are read again.
    pub exported: Vec<ExportedTrace>,
    /// Other exported traces: further spans of them are late.
    pub late: Vec<ExportedTrace>,
}

/// The hash of a trace id by FNV-1a, which is the same in every process. A handover contains at most some hundred
/// traces: the probability that another trace has the hash of one of them is about 2^-55.
pub(super) fn hash(trace: TraceId) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    trace.0.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Handover {
    /// The text relative to `offsets`; `None` if it would be longer than `budget`.
    pub(super) fn encode(&self, offsets: Offsets, budget: usize) -> Option<String> {
        let mut bytes = vec![0; 4];
        push_varint(&mut bytes, u64::from(self.forwards));
        let distance = |to: Option<i64>, from: i64| {
            u64::try_from(to.unwrap_or(from).saturating_sub(from)).unwrap_or_default()
        };
        for (s, offset) in offsets.into_iter().enumerate() {
            let Some(offset) = offset else { continue };
            push_varint(&mut bytes, distance(self.next[s], offset));
            push_varint(&mut bytes, distance(self.forwarded[s], offset));
            push_varint(&mut bytes, self.retained_ranges[s].len() as u64);
            let mut previous_end = offset;
            for &(start, end) in &self.retained_ranges[s] {
                let further_records = distance(Some(end), start).saturating_sub(1);
                push_varint(
                    &mut bytes,
                    distance(Some(start), previous_end) << 1 | u64::from(further_records > 0),
                );
                if further_records > 0 {
                    push_varint(&mut bytes, further_records - 1);
                }
                previous_end = end;
            }
        }
        push_varint(&mut bytes, self.exported.len() as u64);
        for entry in &self.exported {
            entry.encode_into(&mut bytes);
            for (last, offset) in entry.last.iter().zip(offsets) {
                let after = last.map(|last| last.saturating_add(1));
                push_varint(&mut bytes, offset.map_or(0, |offset| distance(after, offset)));
            }
        }
        self.late.iter().for_each(|entry| entry.encode_into(&mut bytes));
        let checksum = crc32fast::hash(&bytes[4..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        let length = VERSION.len() + (bytes.len() * 4).div_ceil(3);
        (length <= budget).then(|| VERSION.to_owned() + &STANDARD_NO_PAD.encode(bytes))
    }

    /// Adds as many of the exported traces `newest` as fit into `budget` together with `text`. The flag of a trace is
    /// whether it has records from `next` on: with them it is added to `exported`, otherwise to `late`. Returns how
    /// many of the former do not fit.
    pub(super) fn add_traces(
        &mut self,
        text: &str,
        budget: usize,
        newest: impl Iterator<Item = (ExportedTrace, bool)>,
    ) -> u64 {
        let mut remaining = budget.saturating_sub(text.len()) / 4 * 3;
        let mut omitted = 0;
        for (entry, is_read_again) in newest {
            let (list, size) = if is_read_again {
                (&mut self.exported, EXPORTED_BYTES)
            } else {
                (&mut self.late, LATE_BYTES)
            };
            match remaining.checked_sub(size) {
                Some(bytes) => {
                    remaining = bytes;
                    list.push(entry);
                }
                None => omitted += u64::from(is_read_again),
            }
        }
        omitted
    }

    /// Reads a text relative to `offsets`; `None` if it is invalid.
    pub(super) fn decode(text: &str, offsets: Offsets) -> Option<Handover> {
        let is_previous_version = text.starts_with(PREVIOUS_VERSION);
        let version = if is_previous_version { PREVIOUS_VERSION } else { VERSION };
        let bytes = STANDARD_NO_PAD.decode(text.strip_prefix(version)?).ok()?;
        let (checksum, mut remaining) = bytes.split_first_chunk::<4>()?;
        if crc32fast::hash(remaining) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut out = Handover { next: offsets, forwarded: offsets, ..Handover::default() };
        if is_previous_version {
            while !remaining.is_empty() {
                out.exported.push(ExportedTrace::read(&mut remaining, Some(offsets))?);
            }
            return Some(out);
        }
        out.forwards = read_varint(&mut remaining)? != 0;
        for (s, offset) in offsets.into_iter().enumerate() {
            let Some(offset) = offset else { continue };
            out.next[s] = Some(offset.checked_add(read_distance(&mut remaining)?)?);
            out.forwarded[s] = Some(offset.checked_add(read_distance(&mut remaining)?)?);
            let mut previous_end = offset;
            for _ in 0..read_varint(&mut remaining)? {
                let code = read_distance(&mut remaining)?;
                let start = previous_end.checked_add(code >> 1)?;
                let further_records =
                    if code & 1 == 1 { read_distance(&mut remaining)?.checked_add(1)? } else { 0 };
                previous_end = start.checked_add(further_records)?.checked_add(1)?;
                out.retained_ranges[s].push((start, previous_end));
            }
        }
        for _ in 0..read_varint(&mut remaining)? {
            out.exported.push(ExportedTrace::read(&mut remaining, Some(offsets))?);
        }
        while !remaining.is_empty() {
            out.late.push(ExportedTrace::read(&mut remaining, None)?);
        }
        Some(out)
    }
}

impl ExportedTrace {
    fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend(self.trace.to_le_bytes());
        let passed = self.verdict.passed.map_or(0, |passed| 1 + u64::from(passed));
        push_varint(out, u64::from(self.verdict.revision) << 2 | passed);
    }

    /// Reads an entry of `exported`, whose last records are relative to `offsets`, or without offsets one of `late`.
    fn read(bytes: &mut &[u8], offsets: Option<Offsets>) -> Option<ExportedTrace> {
        let (trace, remaining) = bytes.split_first_chunk::<8>()?;
        *bytes = remaining;
        let verdict = read_varint(bytes)?;
        let passed = match verdict & 3 {
            0 => None,
            passed => Some(passed == 2),
        };
        let verdict = PriorVerdict { passed, revision: u32::try_from(verdict >> 2).ok()? };
        let mut last = [None; STREAMS];
        for (last, offset) in last.iter_mut().zip(offsets.into_iter().flatten()) {
            let distance = read_distance(bytes)?;
            *last = offset.filter(|_| distance > 0).map(|offset| offset.saturating_add(distance - 1));
        }
        Some(ExportedTrace { trace: u64::from_le_bytes(*trace), verdict, last })
    }
}

fn read_distance(bytes: &mut &[u8]) -> Option<i64> {
    i64::try_from(read_varint(bytes)?).ok()
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
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
            forwarded: [Some(1010), None],
            retained_ranges: [vec![(1000, 1001), (1003, 1005), (700_000, 800_000)], vec![]],
            exported: vec![
                entry(1, [Some(1000), None], Some(true)),
                entry(2, [Some(700_000), None], Some(false)),
            ],
            late: vec![entry(200, [None, None], None)],
        };
        let text = handover.encode(offsets, 4096).unwrap();
        assert_eq!(Handover::decode(&text, offsets).unwrap(), handover);
        // Checksum, mode, next, forwarded, number of ranges; ranges of 1, 2 and 5 bytes; traces of 11, 13 and 10 bytes.
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
        for (entry, distance) in entries.iter().zip([1, 0]) {
            entry.encode_into(&mut bytes);
            bytes.extend([distance, 0]);
        }
        let checked_bytes = [&crc32fast::hash(&bytes).to_le_bytes()[..], &bytes].concat();
        let text = format!("1{}", STANDARD_NO_PAD.encode(checked_bytes));
        let read = Handover::decode(&text, offsets).unwrap();
        let expected =
            Handover { next: offsets, forwarded: offsets, exported: entries.into(), ..Handover::default() };
        assert_eq!(read, expected);
    }

    #[test]
    fn a_damaged_or_foreign_text_is_none() {
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
