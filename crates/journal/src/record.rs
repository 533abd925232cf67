//! Encoding and decoding of records and of the frames around them.
//!
//! In: records. Out: frames, and frames found in bytes of which any may be damaged.

use std::collections::VecDeque;

use bytes::Bytes;
use verdict_otlp::Signal;
use verdict_otlp::trace::{PriorVerdict, TraceId};

use super::disk::matches_checksum;

/// Identifies a record: never reused in a directory, and unchanged when the record is rewritten.
pub type Seq = u64;

/// A reason for which a record is retained in the log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum RetainReason {
    /// The request is to be exported as it was received.
    Forwarded,
    /// The spans or logs of this trace in the record are not exported yet.
    Trace(TraceId),
    /// Not every required exporter has delivered the verdict.
    Verdict,
}

/// A record and the reason for which it is no longer retained; `None` for all remaining reasons.
pub(crate) type Release = (Seq, Option<RetainReason>);

/// Kinds of records as written. Recovery counts a record of an unknown kind as damaged.
const REQUEST: u8 = 1;
const VERDICT: u8 = 2;
const ACKED: u8 = 3;
const RELEASED: u8 = 4;
const CLOSED: u8 = 5;
/// A verdict that was rewritten. It may not be the last verdict of its trace.
const VERDICT_COPY: u8 = 6;

/// The spans of a request are exported with the verdicts of their traces. Versions without the value `FORWARDED` also
/// wrote this value for requests whose spans were forwarded on arrival: after an upgrade these spans are exported
/// twice, which is better than a loss.
const WITH_VERDICTS: u8 = 0;
/// The spans are exported as received, by this record.
const FORWARDED_WHOLE: u8 = 1;
/// The spans were exported on arrival, by other records or by an earlier copy of this one.
const FORWARDED: u8 = 2;

/// A record as read.
#[derive(Clone, PartialEq, Debug)]
pub enum JournalRecord {
    /// A request that was acknowledged.
    Request {
        signal: Signal,
        /// The reasons for which it is retained, in their order on disk.
        reasons: Vec<RetainReason>,
        /// Whether its spans were exported on arrival, by this record or others; else they are exported
        /// with the verdicts of their traces.
        forwarded: bool,
        body: Bytes,
    },
    /// The verdict of a closed trace, written before it was first exported.
    Verdict(VerdictRecord),
    /// An exporter has delivered a record.
    Acked {
        /// A verdict, or a passed-through request.
        record: Seq,
        exporter: String,
    },
    /// Reasons that no longer apply.
    Released(Vec<Release>),
    /// All closed traces that were remembered when the segment was created, oldest first.
    Closed(Vec<(TraceId, PriorVerdict)>),
}

/// A verdict as stored: with the spans of `requests` it reproduces the exported bytes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct VerdictRecord {
    pub trace: TraceId,
    /// The requests that contained its spans and logs.
    pub requests: Vec<Seq>,
    pub passed: Option<bool>,
    /// The number of the trace's verdict, from 1.
    pub revision: u32,
    /// Whether spans are exported with it; those of forwarded requests were exported before.
    pub with_spans: bool,
    /// For each span, in the order of the tree, its share of `appended` in bytes.
    pub lengths: Vec<u32>,
    /// The encoded attributes of all spans, one span after the other.
    pub appended: Bytes,
    /// Requests with log events, and the number of log records in each.
    pub events: Vec<(u64, Bytes)>,
}

impl VerdictRecord {
    /// The facts about the trace that are remembered after the export.
    pub fn prior_verdict(&self) -> PriorVerdict {
        PriorVerdict { passed: self.passed, revision: self.revision }
    }
}

/// An encoded record without the marker, which depends on the segment. Bodies are not copied.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) seq: Seq,
    /// Everything between the marker and the body.
    head: Vec<u8>,
    pub(crate) body: Vec<Bytes>,
}

/// Size of a frame without its payload: marker, length, kind, seq, checksum of the payload, checksum of the fields
/// from the length to the checksum of the payload.
pub(crate) const FRAME_SIZE: usize = MARKER_SIZE + 4 + 1 + 8 + 4 + CHECKSUM_SIZE;
const MARKER_SIZE: usize = 4;
const CHECKSUM_SIZE: usize = 4;

impl Frame {
    /// A buffer for the payload, which follows the space for the fields of the frame.
    fn payload(size: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(FRAME_SIZE - MARKER_SIZE + size);
        out.resize(FRAME_SIZE - MARKER_SIZE, 0);
        out
    }

    /// Fills in the fields of a frame whose payload is the end of `head`, then `body`.
    fn new(kind: u8, seq: Seq, mut head: Vec<u8>, body: Vec<Bytes>) -> Frame {
        let len: usize = body.iter().map(Bytes::len).sum();
        if let Some((frame, payload)) = head.split_first_chunk_mut::<{ FRAME_SIZE - MARKER_SIZE }>() {
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(payload);
            body.iter().for_each(|part| hasher.update(part));
            let (fields, fields_checksum) = frame.split_at_mut(FRAME_SIZE - MARKER_SIZE - CHECKSUM_SIZE);
            fields[..4].copy_from_slice(&((payload.len() + len) as u32).to_le_bytes());
            fields[4] = kind;
            fields[5..13].copy_from_slice(&seq.to_le_bytes());
            fields[13..].copy_from_slice(&hasher.finalize().to_le_bytes());
            fields_checksum.copy_from_slice(&crc32fast::hash(fields).to_le_bytes());
        }
        Frame { seq, head, body }
    }

    pub(crate) fn request(
        seq: Seq,
        signal: Signal,
        reasons: &[RetainReason],
        forwarded: bool,
        body: Bytes,
    ) -> Frame {
        let mut head = Frame::payload(8 + reasons.len() * 16);
        let trace =
            |reason: &RetainReason| if let RetainReason::Trace(id) = reason { Some(*id) } else { None };
        let traces: Vec<TraceId> = reasons.iter().filter_map(trace).collect();
        head.push(signal as u8);
        head.push(match reasons.contains(&RetainReason::Forwarded) {
            true => FORWARDED_WHOLE,
            false if forwarded => FORWARDED,
            false => WITH_VERDICTS,
        });
        push_len(&mut head, traces.len());
        traces.iter().for_each(|trace| head.extend_from_slice(&trace.0));
        Frame::new(REQUEST, seq, head, vec![body])
    }

    /// `copy`: the verdict was rewritten.
    pub(crate) fn verdict(seq: Seq, verdict: &VerdictRecord, copy: bool) -> Frame {
        let mut head = Frame::payload(64 + 8 * verdict.requests.len() + 4 * verdict.lengths.len());
        head.extend_from_slice(&verdict.trace.0);
        head.push(encode_passed(verdict.passed));
        head.push(u8::from(verdict.with_spans));
        head.extend_from_slice(&verdict.revision.to_le_bytes());
        push_len(&mut head, verdict.requests.len());
        verdict.requests.iter().for_each(|seq| head.extend_from_slice(&seq.to_le_bytes()));
        push_len(&mut head, verdict.lengths.len());
        verdict.lengths.iter().for_each(|n| head.extend_from_slice(&n.to_le_bytes()));
        push_len(&mut head, verdict.appended.len());
        let mut body = vec![
            verdict.appended.clone(),
            Bytes::copy_from_slice(&(verdict.events.len() as u32).to_le_bytes()),
        ];
        for (items, bytes) in &verdict.events {
            let mut event_head = items.to_le_bytes().to_vec();
            push_len(&mut event_head, bytes.len());
            body.extend([event_head.into(), bytes.clone()]);
        }
        Frame::new(if copy { VERDICT_COPY } else { VERDICT }, seq, head, body)
    }

    pub(crate) fn acked(record: Seq, exporter: &str) -> Frame {
        let mut head = Frame::payload(exporter.len());
        head.extend_from_slice(exporter.as_bytes());
        Frame::new(ACKED, record, head, Vec::new())
    }

    pub(crate) fn released(releases: &[Release]) -> Frame {
        let mut head = Frame::payload(releases.len() * 25);
        for (seq, reason) in releases {
            head.extend_from_slice(&seq.to_le_bytes());
            match reason {
                Some(RetainReason::Forwarded) => head.push(0),
                Some(RetainReason::Verdict) => head.push(1),
                Some(RetainReason::Trace(trace)) => {
                    head.push(2);
                    head.extend_from_slice(&trace.0);
                }
                None => head.push(3),
            }
        }
        Frame::new(RELEASED, 0, head, Vec::new())
    }

    pub(crate) fn closed(traces: &VecDeque<(TraceId, PriorVerdict)>) -> Frame {
        let mut head = Frame::payload(traces.len() * CLOSED_TRACE_SIZE);
        for (trace, verdict) in traces {
            head.extend_from_slice(&trace.0);
            head.push(encode_passed(verdict.passed));
            head.extend_from_slice(&verdict.revision.to_le_bytes());
        }
        Frame::new(CLOSED, 0, head, Vec::new())
    }

    /// Bytes in a segment.
    pub(crate) fn size(&self) -> usize {
        MARKER_SIZE + self.head.len() + self.body.iter().map(Bytes::len).sum::<usize>()
    }

    /// Appends everything before the body, for a segment with this marker.
    pub(crate) fn write_head(&self, out: &mut Vec<u8>, marker: [u8; 4]) {
        out.extend_from_slice(&marker);
        out.extend_from_slice(&self.head);
    }

    #[cfg(test)]
    pub(crate) fn write(&self, out: &mut Vec<u8>, marker: [u8; 4]) {
        self.write_head(out, marker);
        self.body.iter().for_each(|part| out.extend_from_slice(part));
    }
}

/// Bytes of one trace in a record of closed traces.
pub(crate) const CLOSED_TRACE_SIZE: usize = 16 + 1 + 4;

fn encode_passed(passed: Option<bool>) -> u8 {
    passed.map_or(2, u8::from)
}

fn decode_passed(byte: u8) -> Option<Option<bool>> {
    [Some(false), Some(true), None].get(usize::from(byte)).copied()
}

fn push_len(out: &mut Vec<u8>, n: usize) {
    out.extend_from_slice(&(n as u32).to_le_bytes());
}

/// The fields of a frame in a segment, after their checksum was verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameHeader {
    pub offset: usize,
    pub len: usize,
    pub seq: Seq,
    kind: u8,
    payload_checksum: u32,
}

impl FrameHeader {
    /// Reads the frame at `offset`; `None` unless the checksum of its fields matches and the segment contains the whole
    /// frame. [`FrameHeader::record`] verifies the payload.
    pub(crate) fn read(segment: &[u8], offset: usize, marker: [u8; 4]) -> Option<FrameHeader> {
        let mut reader = ByteReader(segment.get(offset..)?);
        if reader.array::<4>()? != marker {
            return None;
        }
        let (len, [kind]) = (reader.u32()? as usize, reader.array()?);
        let (seq, payload_checksum, fields_checksum) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let are_fields_intact = matches_checksum(
            segment.get(offset + MARKER_SIZE..offset + FRAME_SIZE - CHECKSUM_SIZE)?,
            fields_checksum,
        );
        (are_fields_intact && reader.0.len() >= len).then_some(FrameHeader {
            offset,
            len: FRAME_SIZE + len,
            seq,
            kind,
            payload_checksum,
        })
    }

    /// Whether the frame is a rewritten verdict.
    pub(crate) fn is_copy(&self) -> bool {
        self.kind == VERDICT_COPY
    }

    /// The record of the frame; `None` if the payload is damaged or of an unknown kind.
    pub(crate) fn record(&self, segment: &Bytes) -> Option<JournalRecord> {
        let payload = segment.get(self.offset + FRAME_SIZE..self.offset + self.len)?;
        if !matches_checksum(payload, self.payload_checksum) {
            return None;
        }
        let payload = segment.slice_ref(payload);
        match self.kind {
            REQUEST => decode_request(payload),
            VERDICT | VERDICT_COPY => decode_verdict(&payload).map(JournalRecord::Verdict),
            ACKED => {
                let exporter = std::str::from_utf8(&payload).ok()?.to_owned();
                Some(JournalRecord::Acked { record: self.seq, exporter })
            }
            RELEASED => ByteReader(&payload).until_end(decode_release).map(JournalRecord::Released),
            CLOSED => ByteReader(&payload).until_end(decode_closed_trace).map(JournalRecord::Closed),
            _ => None,
        }
    }
}

fn decode_request(payload: Bytes) -> Option<JournalRecord> {
    let mut reader = ByteReader(&payload);
    let [signal, export] = reader.array()?;
    let signal = *Signal::ALL.get(usize::from(signal))?;
    let traces = reader.counted_list(16, |reader| reader.trace().map(RetainReason::Trace))?;
    let forwarded_whole = (export == FORWARDED_WHOLE).then_some(RetainReason::Forwarded);
    let reasons = forwarded_whole.into_iter().chain(traces).collect();
    let body = payload.slice_ref(reader.0);
    Some(JournalRecord::Request { signal, reasons, forwarded: export != WITH_VERDICTS, body })
}

fn decode_verdict(payload: &[u8]) -> Option<VerdictRecord> {
    let mut reader = ByteReader(payload);
    let trace = reader.trace()?;
    let [passed, with_spans] = reader.array()?;
    // The fields are read in this order.
    Some(VerdictRecord {
        trace,
        passed: decode_passed(passed)?,
        with_spans: with_spans == 1,
        revision: reader.u32()?,
        requests: reader.counted_list(8, ByteReader::u64)?,
        lengths: reader.counted_list(4, ByteReader::u32)?,
        appended: reader.blob()?,
        events: reader.counted_list(12, |reader| reader.u64().zip(reader.blob()))?,
    })
}

fn decode_release(reader: &mut ByteReader<'_>) -> Option<Release> {
    let seq = reader.u64()?;
    let reason = match reader.array()? {
        [0] => Some(RetainReason::Forwarded),
        [1] => Some(RetainReason::Verdict),
        [2] => Some(RetainReason::Trace(reader.trace()?)),
        [3] => None,
        _ => return None,
    };
    Some((seq, reason))
}

fn decode_closed_trace(reader: &mut ByteReader<'_>) -> Option<(TraceId, PriorVerdict)> {
    let trace = reader.trace()?;
    let [passed] = reader.array()?;
    Some((trace, PriorVerdict { passed: decode_passed(passed)?, revision: reader.u32()? }))
}

/// Reads little-endian values from the start of a slice, which is then shortened.
struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn trace(&mut self) -> Option<TraceId> {
        self.array().map(TraceId)
    }

    /// Reads a count, and this number of items with at least `size` bytes each; `None` if fewer bytes are left.
    fn counted_list<T>(&mut self, size: usize, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let n = self.count(size)?;
        (0..n).map(|_| read(self)).collect()
    }

    /// Reads items until the end.
    fn until_end<T>(mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        std::iter::from_fn(|| (!self.0.is_empty()).then(|| read(&mut self))).collect()
    }

    fn count(&mut self, size: usize) -> Option<usize> {
        let n = self.u32()? as usize;
        (n <= self.0.len() / size).then_some(n)
    }

    fn blob(&mut self) -> Option<Bytes> {
        let n = self.count(1)?;
        let (first, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(Bytes::copy_from_slice(first))
    }
}
