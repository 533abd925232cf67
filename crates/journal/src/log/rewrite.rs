//! Rewrites the retained records of the oldest segment at the head of the log.
//!
//! In: a segment. Out: copies of its retained records with the reasons that are left, fsynced before
//! they replace the originals.

use std::collections::HashSet;
use std::io;

use bytes::Bytes;
use verdict_otlp::Signal;
use verdict_otlp::request::{self, Interner};
use verdict_otlp::write::{self, TelemetryItem};

use super::{Log, RecordPosition};
use crate::disk::Disk;
use crate::record::{Frame, JournalRecord, RetainReason, Seq};
use crate::retain::RetainReasons;

/// Copies are collected up to this size for one write.
const WRITE_BYTES: usize = 4 << 20;

impl<D: Disk> Log<D> {
    pub(super) fn rewrite(&mut self, segment: u64) -> io::Result<()> {
        let stored = self.records.iter().filter(|(_, stored)| stored.segment == segment);
        let mut stored: Vec<(u64, Seq)> = stored.map(|(&seq, stored)| (stored.offset, seq)).collect();
        stored.sort_unstable();
        let (mut batch, mut copied, mut size) = (Vec::new(), Vec::new(), 0);
        for (_, seq) in stored {
            let Some(frame) = self.copy(seq)? else {
                tracing::error!(seq, segment, "a journal record cannot be read any more; it is lost");
                self.remove(seq);
                continue;
            };
            size += frame.size();
            batch.push(frame);
            if size > WRITE_BYTES {
                copied.extend(self.append_copies(std::mem::take(&mut batch))?);
                size = 0;
            }
        }
        copied.extend(self.append_copies(batch)?);
        self.sync()?;
        // If an earlier step fails, the originals remain in use. From here on the copies replace them.
        for (seq, position, len) in copied {
            let reasons = self.reasons(seq).collect();
            self.insert(seq, position, len, RetainReasons::new(reasons));
        }
        Ok(())
    }

    /// Appends copies and the acknowledgements of their records. Returns the record, the position and the length
    /// of each copy.
    fn append_copies(&mut self, batch: Vec<Frame>) -> io::Result<Vec<(Seq, RecordPosition, u64)>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let stored = batch.iter().filter_map(|frame| self.records.get_key_value(&frame.seq));
        let acks = stored.flat_map(|(&seq, stored)| stored.acked.iter().map(move |id| Frame::acked(seq, id)));
        let acks: Vec<Frame> = acks.collect();
        let positions = self.append(batch.iter().chain(&acks))?;
        Ok(batch
            .iter()
            .zip(positions)
            .map(|(frame, position)| (frame.seq, position, frame.size() as u64))
            .collect())
    }

    /// A copy of a retained record without the spans and reasons that are no longer needed.
    fn copy(&mut self, seq: Seq) -> io::Result<Option<Frame>> {
        Ok(match self.read(seq)? {
            Some(JournalRecord::Request { signal, body, forwarded, reasons: before }) => {
                let reasons: Vec<RetainReason> = self.reasons(seq).collect();
                let fewer = reasons.len() < before.len() && !reasons.contains(&RetainReason::Forwarded);
                let body = match fewer && signal == Signal::Traces {
                    true => needed_spans(&reasons, &body).unwrap_or(body),
                    false => body,
                };
                Some(Frame::request(seq, signal, &reasons, forwarded, body))
            }
            Some(JournalRecord::Verdict(verdict)) => Some(Frame::verdict(seq, &verdict, true)),
            _ => None,
        })
    }
}

/// A request with only the spans of traces that still retain it.
fn needed_spans(reasons: &[RetainReason], body: &[u8]) -> Option<Bytes> {
    let mut split = request::split(body, "", &Interner::default()).ok()?;
    let needed: HashSet<&RetainReason> = reasons.iter().collect();
    split.groups.retain(|group| needed.contains(&RetainReason::Trace(group.trace)));
    let spans = split.groups.iter().flat_map(|group| &group.spans);
    let items: Vec<TelemetryItem<'_>> = spans
        .map(|span| TelemetryItem { envelope: &span.envelope, bytes: &span.bytes, appended: &[] })
        .collect();
    Some(write::requests(&items, usize::MAX).pop().map(|piece| piece.bytes).unwrap_or_default())
}
