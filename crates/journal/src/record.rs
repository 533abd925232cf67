//! Records and their frames: what stands in a segment, byte by byte.
//!
//! In: payloads. Out: frames, and frames found again in bytes of which any may be wrong.

use std::collections::VecDeque;

use bytes::Bytes;

use verdict_otlp::Signal;
use verdict_otlp::trace::PriorVerdict;
use verdict_otlp::trace::TraceId;

/// A record's name: unique in the folder for all time, kept when the record is rewritten.
pub type Seq = u64;

/// What holds a record in the log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Claim {
    /// The request is to be exported as it came.
    Pass,
    /// Spans or logs of this trace in it are not exported yet.
    Trace(TraceId),
    /// The verdict in it has not reached every required exporter.
    Verdict,
}

/// A claim on a record that holds no more; `None` stands for all that were left.
pub type Over = (Seq, Option<Claim>);

/// Kinds of records, as written. A kind that is not known is passed over.
const REQUEST: u8 = 1;
const VERDICT: u8 = 2;
const ACKED: u8 = 3;
const DONE: u8 = 4;
const CLOSED: u8 = 5;
/// A verdict that was rewritten: what it says of its trace may not be the last word any more.
const VERDICT_AGAIN: u8 = 6;

/// A record as read.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    /// A request that was acknowledged.
    Request {
        /// Which service it was sent to.
        signal: Signal,
        /// What it is kept for.
        claims: Vec<Claim>,
        /// The encoded message.
        body: Bytes,
    },
    /// A closed trace's verdict, made before it was first exported.
    Verdict(Sealed),
    /// One exporter has what a record gave it.
    Acked {
        /// The record: a verdict, or a request that passes.
        of: Seq,
        /// The exporter's id.
        exporter: String,
    },
    /// Claims that hold no more.
    Done(Vec<Over>),
    /// Traces that have closed, oldest first, and what came of them: all that was remembered when
    /// the segment was begun.
    Closed(Vec<(TraceId, PriorVerdict)>),
}

/// A trace's verdict as it is kept: enough to make the same bytes from the same spans again.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sealed {
    /// The trace.
    pub trace: TraceId,
    /// The requests that its spans and logs came in.
    pub of: Vec<Seq>,
    /// Its verdict.
    pub passed: Option<bool>,
    /// Which one it is, from 1.
    pub revision: u32,
    /// Whether the spans go out with it; in shadow mode they went before.
    pub with_spans: bool,
    /// For each span, in the tree's order, how many bytes of `appended` are its own.
    pub lengths: Vec<u32>,
    /// The attributes, span after span.
    pub appended: Bytes,
    /// Requests of log events, with the number of records in each.
    pub events: Vec<(u64, Bytes)>,
}

impl Sealed {
    /// What is remembered of the trace when this has gone.
    pub fn remembered(&self) -> PriorVerdict {
        PriorVerdict { passed: self.passed, revision: self.revision }
    }
}

/// A record encoded, but for the marker, which only the segment knows. The body is not copied into it.
#[derive(Clone, Debug)]
pub struct Frame {
    pub(super) seq: Seq,
    /// What stands between marker and body.
    head: Vec<u8>,
    /// What follows, where it lies.
    pub(super) body: Vec<Bytes>,
}

/// Marker, length, kind, seq, checksum of the payload, checksum of these.
pub(super) const FRAME: usize = MARKER + 4 + 1 + 8 + 4 + CHECK;
const MARKER: usize = 4;
/// The last of it: the checksum of what stands between.
const CHECK: usize = 4;

impl Frame {
    /// Where a payload is put together: behind room for what the frame says of it.
    fn payload(size: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(FRAME - MARKER + size);
        out.resize(FRAME - MARKER, 0);
        out
    }

    /// Of what was put together there, and the body behind it.
    fn new(kind: u8, seq: Seq, mut head: Vec<u8>, body: Vec<Bytes>) -> Frame {
        let len: usize = body.iter().map(Bytes::len).sum();
        if let Some((frame, payload)) = head.split_first_chunk_mut::<{ FRAME - MARKER }>() {
            let mut crc = crc32fast::Hasher::new();
            crc.update(payload);
            body.iter().for_each(|part| crc.update(part));
            let (said, check) = frame.split_at_mut(FRAME - MARKER - CHECK);
            said[..4].copy_from_slice(&((payload.len() + len) as u32).to_le_bytes());
            said[4] = kind;
            said[5..13].copy_from_slice(&seq.to_le_bytes());
            said[13..].copy_from_slice(&crc.finalize().to_le_bytes());
            check.copy_from_slice(&crc32fast::hash(said).to_le_bytes());
        }
        Frame { seq, head, body }
    }

    /// Of a request.
    pub fn request(seq: Seq, signal: Signal, claims: &[Claim], body: Bytes) -> Frame {
        let mut head = Frame::payload(8 + claims.len() * 16);
        let traces = claims.iter().filter_map(|c| if let Claim::Trace(t) = c { Some(t) } else { None });
        head.push(signal as u8);
        head.push(u8::from(claims.contains(&Claim::Pass)));
        number(&mut head, traces.clone().count());
        traces.for_each(|trace| head.extend_from_slice(&trace.0));
        Frame::new(REQUEST, seq, head, vec![body])
    }

    /// Of a verdict.
    pub fn verdict(seq: Seq, sealed: &Sealed) -> Frame {
        Frame::sealed(VERDICT, seq, sealed)
    }

    /// Of a verdict that stood elsewhere before.
    pub fn verdict_again(seq: Seq, sealed: &Sealed) -> Frame {
        Frame::sealed(VERDICT_AGAIN, seq, sealed)
    }

    fn sealed(kind: u8, seq: Seq, sealed: &Sealed) -> Frame {
        let mut head = Frame::payload(64 + 8 * sealed.of.len() + 4 * sealed.lengths.len());
        head.extend_from_slice(&sealed.trace.0);
        head.push(passed_byte(sealed.passed));
        head.push(u8::from(sealed.with_spans));
        head.extend_from_slice(&sealed.revision.to_le_bytes());
        seqs(&mut head, &sealed.of);
        number(&mut head, sealed.lengths.len());
        sealed.lengths.iter().for_each(|n| head.extend_from_slice(&n.to_le_bytes()));
        number(&mut head, sealed.appended.len());
        let mut body = vec![
            sealed.appended.clone(),
            Bytes::copy_from_slice(&(sealed.events.len() as u32).to_le_bytes()),
        ];
        for (items, bytes) in &sealed.events {
            let mut of_event = items.to_le_bytes().to_vec();
            number(&mut of_event, bytes.len());
            body.extend([of_event.into(), bytes.clone()]);
        }
        Frame::new(kind, seq, head, body)
    }

    /// That an exporter has what record `of` gave it.
    pub fn acked(of: Seq, exporter: &str) -> Frame {
        let mut head = Frame::payload(exporter.len());
        head.extend_from_slice(exporter.as_bytes());
        Frame::new(ACKED, of, head, Vec::new())
    }

    /// That these claims hold no more.
    pub fn done(claims: &[Over]) -> Frame {
        let mut head = Frame::payload(claims.len() * 25);
        for (seq, claim) in claims {
            head.extend_from_slice(&seq.to_le_bytes());
            match claim {
                Some(Claim::Pass) => head.push(0),
                Some(Claim::Verdict) => head.push(1),
                Some(Claim::Trace(trace)) => {
                    head.push(2);
                    head.extend_from_slice(&trace.0);
                }
                None => head.push(3),
            }
        }
        Frame::new(DONE, 0, head, Vec::new())
    }

    /// Of closed traces, and what came of them.
    pub fn closed(traces: &VecDeque<(TraceId, PriorVerdict)>) -> Frame {
        let mut head = Frame::payload(traces.len() * CLOSED_TRACE);
        for (trace, remembered) in traces {
            head.extend_from_slice(&trace.0);
            head.push(passed_byte(remembered.passed));
            head.extend_from_slice(&remembered.revision.to_le_bytes());
        }
        Frame::new(CLOSED, 0, head, Vec::new())
    }

    /// Bytes that it takes in a segment.
    pub fn size(&self) -> usize {
        MARKER + self.head.len() + self.body.iter().map(Bytes::len).sum::<usize>()
    }

    /// Appends it, but for the body, as it stands in a segment with this marker.
    pub(super) fn begin(&self, out: &mut Vec<u8>, marker: [u8; 4]) {
        out.extend_from_slice(&marker);
        out.extend_from_slice(&self.head);
    }

    /// Appends it as it stands in a segment with this marker.
    #[cfg(test)]
    pub(super) fn write(&self, out: &mut Vec<u8>, marker: [u8; 4]) {
        self.begin(out, marker);
        self.body.iter().for_each(|part| out.extend_from_slice(part));
    }
}

/// Bytes of one trace in a record of closed ones.
pub(super) const CLOSED_TRACE: usize = 16 + 1 + 4;

/// A verdict as one byte; [`passed`] reads it.
fn passed_byte(passed: Option<bool>) -> u8 {
    passed.map_or(2, u8::from)
}

fn passed(byte: u8) -> Option<Option<bool>> {
    [Some(false), Some(true), None].get(usize::from(byte)).copied()
}

fn number(out: &mut Vec<u8>, n: usize) {
    out.extend_from_slice(&(n as u32).to_le_bytes());
}

fn seqs(out: &mut Vec<u8>, all: &[Seq]) {
    number(out, all.len());
    all.iter().for_each(|seq| out.extend_from_slice(&seq.to_le_bytes()));
}

/// A frame found in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    /// Where the frame begins.
    pub at: usize,
    /// Bytes of the whole frame.
    pub len: usize,
    pub seq: Seq,
    kind: u8,
    crc: u32,
}

impl Found {
    /// Reads the frame that begins `at`; `None` unless its own checksum holds and all of it is
    /// there. The payload's checksum is for [`Found::record`].
    pub fn read(segment: &[u8], at: usize, marker: [u8; 4]) -> Option<Found> {
        let mut rest = Reader(segment.get(at..)?);
        if rest.array::<4>()? != marker {
            return None;
        }
        let len = u32::from_le_bytes(rest.array()?) as usize;
        let [kind] = rest.array()?;
        let seq = u64::from_le_bytes(rest.array()?);
        let crc = u32::from_le_bytes(rest.array()?);
        let check = u32::from_le_bytes(rest.array()?);
        let whole = crc32fast::hash(segment.get(at + MARKER..at + FRAME - CHECK)?) == check;
        (whole && rest.0.len() >= len).then_some(Found { at, len: FRAME + len, seq, kind, crc })
    }

    /// Whether it is a copy of a record that stood elsewhere.
    pub fn is_again(&self) -> bool {
        self.kind == VERDICT_AGAIN
    }

    /// Its record; `None` if the payload is not as it was written, or of a kind unknown here.
    pub fn record(&self, segment: &Bytes) -> Option<Record> {
        let payload = segment.get(self.at + FRAME..self.at + self.len)?;
        if crc32fast::hash(payload) != self.crc {
            return None;
        }
        let payload = segment.slice_ref(payload);
        match self.kind {
            REQUEST => request(payload),
            VERDICT | VERDICT_AGAIN => sealed(&payload).map(Record::Verdict),
            ACKED => {
                let exporter = std::str::from_utf8(&payload).ok()?.to_owned();
                Some(Record::Acked { of: self.seq, exporter })
            }
            DONE => done(&payload).map(Record::Done),
            CLOSED => closed(&payload).map(Record::Closed),
            _ => None,
        }
    }
}

fn request(payload: Bytes) -> Option<Record> {
    let mut head = Reader(&payload);
    let [signal, pass] = head.array()?;
    let signal = *Signal::ALL.get(usize::from(signal))?;
    let mut claims = Vec::new();
    if pass == 1 {
        claims.push(Claim::Pass);
    }
    for _ in 0..head.count(16)? {
        claims.push(Claim::Trace(TraceId(head.array()?)));
    }
    let body = payload.slice_ref(head.0);
    Some(Record::Request { signal, claims, body })
}

fn sealed(payload: &[u8]) -> Option<Sealed> {
    let mut head = Reader(payload);
    let trace = TraceId(head.array()?);
    let [verdict, with_spans] = head.array()?;
    let revision = u32::from_le_bytes(head.array()?);
    let of = (0..head.count(8)?).map(|_| head.array().map(u64::from_le_bytes)).collect::<Option<_>>()?;
    let lengths = (0..head.count(4)?).map(|_| head.array().map(u32::from_le_bytes)).collect::<Option<_>>()?;
    let appended = Bytes::copy_from_slice(head.blob()?);
    let mut events = Vec::new();
    for _ in 0..head.count(12)? {
        let items = u64::from_le_bytes(head.array()?);
        events.push((items, Bytes::copy_from_slice(head.blob()?)));
    }
    let passed = passed(verdict)?;
    Some(Sealed { trace, of, passed, revision, with_spans: with_spans == 1, lengths, appended, events })
}

fn done(payload: &[u8]) -> Option<Vec<Over>> {
    let mut rest = Reader(payload);
    let mut all = Vec::new();
    while !rest.0.is_empty() {
        let seq = u64::from_le_bytes(rest.array()?);
        let claim = match rest.array()? {
            [0] => Some(Claim::Pass),
            [1] => Some(Claim::Verdict),
            [2] => Some(Claim::Trace(TraceId(rest.array()?))),
            [3] => None,
            _ => return None,
        };
        all.push((seq, claim));
    }
    Some(all)
}

fn closed(payload: &[u8]) -> Option<Vec<(TraceId, PriorVerdict)>> {
    let mut rest = Reader(payload);
    let mut all = Vec::with_capacity(payload.len() / CLOSED_TRACE);
    while !rest.0.is_empty() {
        let trace = TraceId(rest.array()?);
        let [verdict] = rest.array()?;
        let revision = u32::from_le_bytes(rest.array()?);
        all.push((trace, PriorVerdict { passed: passed(verdict)?, revision }));
    }
    Some(all)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number of things of at least `each` bytes: no more than there can be.
    fn count(&mut self, each: usize) -> Option<usize> {
        let n = u32::from_le_bytes(self.array()?) as usize;
        (n <= self.0.len() / each).then_some(n)
    }

    fn blob(&mut self) -> Option<&'a [u8]> {
        let n = self.count(1)?;
        let (first, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(first)
    }
}
