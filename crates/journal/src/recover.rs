//! Reads a directory at start: partial writes at the end of a segment are truncated, damaged records are
//! skipped and counted, and every record that was written completely is recovered.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;

use bytes::Bytes;
use verdict_otlp::trace::{ById, PriorVerdict, TraceId};

use super::disk::{Disk, HEADER_SIZE, SegmentHeader, read_header};
use super::record::{FrameHeader, JournalRecord, RetainReason, Seq};
use super::retain::RetainReasons;

/// Records that have not been exported yet.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recovered {
    /// Requests with spans or logs of traces that have no verdict, each with these traces.
    pub open: BTreeMap<Seq, Vec<TraceId>>,
    /// Verdicts that some required exporter has not delivered, each with the exporters that have delivered it.
    pub verdicts: BTreeMap<Seq, Vec<String>>,
    /// Passed-through requests that some required exporter has not delivered, each with the exporters that have
    /// delivered it.
    pub forwarded: BTreeMap<Seq, Vec<String>>,
    /// The remembered closed traces, oldest first.
    pub closed: Vec<(TraceId, PriorVerdict)>,
    /// Damaged records, and segments that could not be read.
    pub corrupt: u64,
    /// Bytes truncated after the last complete record of a segment.
    pub truncated_bytes: u64,
}

/// A retained record, with its position in the log.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct StoredRecord {
    pub segment: u64,
    pub offset: u64,
    pub len: u64,
    pub reasons: RetainReasons,
    /// Exporters that have delivered the record.
    pub acked: Vec<String>,
}

/// The state of the directory after all segments were read.
#[derive(Debug, Default)]
pub(crate) struct RecoveryScan {
    pub records: ById<Seq, StoredRecord>,
    /// Bytes of each segment that was read.
    pub segment_sizes: BTreeMap<u64, u64>,
    /// Bytes of the segments that could not be read, which are not changed.
    pub unread_bytes: u64,
    /// The highest number of a segment of any version.
    pub last_segment: u64,
    /// The first unused number of a record.
    pub next_seq: Seq,
    verdicts: BTreeMap<Seq, (TraceId, PriorVerdict, Vec<Seq>)>,
    closed: VecDeque<(TraceId, PriorVerdict)>,
    /// Maximum number of closed traces that are remembered.
    max_closed: usize,
    recovered: Recovered,
}

/// Every record in segment `n` has a number below `(n + 1) << SEGMENT_BITS`: no segment has space for 2^36 records.
/// Numbers suffice for 2^28 segments.
const SEGMENT_BITS: u32 = 36;

/// Reads every segment in order. A segment that cannot be read may be readable at a later start, so the
/// numbers that its records can have are not used again. It does not prevent the start, since otherwise one bad sector
/// would stop the receiving of spans.
///
/// # Errors
/// The directory cannot be listed, or no numbers are left. A segment that cannot be read is counted as
/// corrupt.
pub(crate) fn scan<D: Disk>(disk: &mut D, max_closed: usize) -> io::Result<RecoveryScan> {
    let mut scan = RecoveryScan { next_seq: 1, max_closed, ..RecoveryScan::default() };
    let segments = disk.list()?;
    scan.last_segment = segments.last().copied().unwrap_or_default();
    let mut unread_segment = None;
    for &segment in &segments {
        let is_last = segments.last() == Some(&segment);
        let read = disk.read_all(segment).map(Bytes::from);
        let read = read.and_then(|bytes| Ok((scan.scan_segment(segment, &bytes, is_last)?, bytes)));
        let (complete, bytes) = match read {
            Ok(read) => read,
            Err(error) => {
                let bytes = disk.size_of(segment);
                tracing::error!(
                    segment = format_args!("{segment:016x}.log"), bytes, %error,
                    "cannot read a segment of the journal; it is not changed, counts against storage.max_bytes, and is recovered at the next start that can read it"
                );
                scan.recovered.corrupt += 1;
                scan.unread_bytes = scan.unread_bytes.saturating_add(bytes);
                unread_segment = Some(segment);
                continue;
            }
        };
        let partial_bytes = (bytes.len() as u64).saturating_sub(complete);
        scan.recovered.truncated_bytes += partial_bytes;
        // A process that was killed has not returned the preallocated space of the last segment.
        if (partial_bytes > 0 || is_last)
            && let Err(error) = disk.truncate(segment, complete)
        {
            tracing::warn!(segment, %error, "cannot truncate a segment after its last complete record; the rest is skipped");
        }
        scan.segment_sizes.insert(segment, complete);
    }
    if let Some(segment) = unread_segment {
        let first_number = segment.checked_add(1).and_then(|next| next.checked_mul(1 << SEGMENT_BITS));
        let none_left = || {
            io::Error::other(format!(
                "segment {segment:016x} cannot be read, and no record numbers are left beyond it; move it out of the directory"
            ))
        };
        scan.next_seq = scan.next_seq.max(first_number.ok_or_else(none_left)?);
    }
    Ok(scan)
}

impl RecoveryScan {
    /// Reads one segment; returns the number of bytes up to the end of its last complete record.
    ///
    /// # Errors
    /// The segment has the layout of a later version.
    fn scan_segment(&mut self, segment: u64, bytes: &Bytes, is_last: bool) -> io::Result<u64> {
        let marker = match read_header(bytes) {
            SegmentHeader::Intact(marker) => marker,
            SegmentHeader::OtherVersion(version) => {
                let reason = format!("it has layout {version}, of another version of this program");
                return Err(io::Error::other(reason));
            }
            SegmentHeader::Damaged(_) if bytes.is_empty() || (bytes.len() <= HEADER_SIZE && is_last) => {
                return Ok(0);
            }
            SegmentHeader::Damaged(marker) => {
                self.note_damage(segment, 0);
                let Some(marker) = marker else { return Ok(bytes.len() as u64) };
                marker
            }
        };
        let mut offset = HEADER_SIZE;
        while offset < bytes.len() {
            if let Some(frame) = FrameHeader::read(bytes, offset, marker) {
                match frame.record(bytes) {
                    Some(record) => self.add_record(segment, frame, record),
                    None => self.note_damage(segment, offset),
                }
                offset += frame.len;
                continue;
            }
            let marker_positions =
                memchr::memmem::find_iter(bytes.get(offset + 1..).unwrap_or_default(), &marker);
            let next = marker_positions
                .map(|position| offset + 1 + position)
                .find(|&position| FrameHeader::read(bytes, position, marker).is_some());
            match next {
                Some(next) => {
                    self.note_damage(segment, offset);
                    offset = next;
                }
                // No complete frame follows: a partial write of the process that ended.
                None if is_last => return Ok(offset as u64),
                None => {
                    self.note_damage(segment, offset);
                    break;
                }
            }
        }
        Ok(bytes.len() as u64)
    }

    fn note_damage(&mut self, segment: u64, offset: usize) {
        self.recovered.corrupt += 1;
        tracing::error!(segment, at = offset, "skipped a damaged record of the journal");
    }

    fn add_record(&mut self, segment: u64, frame: FrameHeader, record: JournalRecord) {
        let seq = frame.seq;
        self.next_seq = self.next_seq.max(seq.saturating_add(1));
        let mut insert = |reasons: Vec<RetainReason>| {
            // A later copy replaces earlier ones; its reasons are a subset of theirs.
            let (offset, len, reasons) = (frame.offset as u64, frame.len as u64, RetainReasons::new(reasons));
            self.records.insert(seq, StoredRecord { segment, offset, len, reasons, acked: Vec::new() });
        };
        match record {
            JournalRecord::Request { reasons, .. } => insert(reasons),
            JournalRecord::Verdict(verdict) => {
                insert(vec![RetainReason::Verdict]);
                let prior = verdict.prior_verdict();
                if !frame.is_copy() {
                    remember(&mut self.closed, self.max_closed, verdict.trace, prior);
                }
                self.verdicts.insert(seq, (verdict.trace, prior, verdict.requests));
            }
            JournalRecord::Acked { record, exporter } => {
                if let Some(stored) = self.records.get_mut(&record)
                    && !stored.acked.contains(&exporter)
                {
                    stored.acked.push(exporter);
                }
            }
            JournalRecord::Released(releases) => {
                releases.into_iter().for_each(|(seq, reason)| self.release(seq, reason))
            }
            // A record of closed traces includes those of all earlier segments.
            JournalRecord::Closed(closed) => {
                let excess = closed.len().saturating_sub(self.max_closed);
                self.closed = closed.into_iter().skip(excess).collect();
            }
        }
    }

    fn release(&mut self, seq: Seq, reason: Option<RetainReason>) {
        let Some(stored) = self.records.get_mut(&seq) else { return };
        reason.iter().for_each(|reason| stored.reasons.remove(reason));
        if reason.is_none() || stored.reasons.is_empty() {
            self.records.remove(&seq);
        }
    }

    /// Removes and returns the records that have to be exported. A verdict is dropped if one of its requests is
    /// missing: the remaining spans of the trace are evaluated again.
    pub(crate) fn take_recovered(&mut self) -> Recovered {
        let mut out = std::mem::take(&mut self.recovered);
        let mut evaluated: HashSet<(Seq, TraceId)> = HashSet::new();
        let mut dropped = HashSet::new();
        for (seq, (trace, prior, requests)) in std::mem::take(&mut self.verdicts) {
            let Some(stored) = self.records.get(&seq) else { continue };
            let reason = RetainReason::Trace(trace);
            let is_stored = |seq: &Seq| self.records.get(seq).is_some_and(|r| r.reasons.contains(&reason));
            if requests.iter().all(is_stored) {
                evaluated.extend(requests.into_iter().map(|request| (request, trace)));
                out.verdicts.insert(seq, stored.acked.clone());
            } else {
                tracing::error!(%trace, "some requests of an evaluated trace are missing; the rest of the trace is evaluated again");
                self.records.remove(&seq);
                dropped.insert((trace, prior));
            }
        }
        self.closed.retain(|closed| !dropped.contains(closed));
        out.closed = std::mem::take(&mut self.closed).into();
        for (&seq, stored) in &self.records {
            let mut open = Vec::new();
            for reason in stored.reasons.iter() {
                match reason {
                    RetainReason::Forwarded => drop(out.forwarded.insert(seq, stored.acked.clone())),
                    RetainReason::Trace(trace) if !evaluated.contains(&(seq, trace)) => open.push(trace),
                    RetainReason::Trace(_) | RetainReason::Verdict => {}
                }
            }
            if !open.is_empty() {
                out.open.insert(seq, open);
            }
        }
        out
    }
}

/// Adds a closed trace, and removes the oldest beyond `limit`.
pub(crate) fn remember(
    closed: &mut VecDeque<(TraceId, PriorVerdict)>,
    limit: usize,
    trace: TraceId,
    verdict: PriorVerdict,
) {
    closed.push_back((trace, verdict));
    while closed.len() > limit {
        closed.pop_front();
    }
}
