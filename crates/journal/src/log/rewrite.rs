//! Rewrites the retained records of the oldest segment at the head of the log.
//!
//! In: a segment. Out: copies of its retained records with the reasons that are left, fsynced before
//! they replace the originals.

use std::collections::HashSet;
use std::io;

use bytes::Bytes;
use verdict_otlp::Signal;
use verdict_otlp::request::{self, Interner};
use verdict_otlp::write::{self, Item};

use super::Log;
use crate::disk::Disk;
use crate::record::{Frame, Record, RetainReason, Seq};
use crate::retain::RetainReasons;

/// Copies are collected up to this size for one write.
const WRITE_BYTES: usize = 4 << 20;

/// A record, where its copy begins, the length of the copy, and why it is retained.
type Copied = (Seq, (u64, u64), u64, RetainReasons);

impl<D: Disk> Log<D> {
    pub(super) fn rewrite(&mut self, segment: u64) -> io::Result<()> {
        let stored = self.records.iter().filter(|(_, stored)| stored.segment == segment);
        let mut stored: Vec<(u64, Seq)> = stored.map(|(&seq, stored)| (stored.at, seq)).collect();
        stored.sort_unstable();
        let mut batch: Vec<(Frame, Vec<RetainReason>)> = Vec::new();
        let mut copied = Vec::new();
        let mut size = 0;
        for (_, seq) in stored {
            match self.copy(seq)? {
                Some((frame, reasons)) => {
                    size += frame.size();
                    batch.push((frame, reasons));
                }
                None => {
                    tracing::error!(seq, segment, "a journal record cannot be read any more; it is lost");
                    self.remove(seq);
                }
            }
            if size > WRITE_BYTES {
                self.append_copies(std::mem::take(&mut batch), &mut copied)?;
                size = 0;
            }
        }
        self.append_copies(batch, &mut copied)?;
        self.sync()?;
        // Up to here the originals count, which stay where they are if this fails.
        for (seq, place, len, reasons) in copied {
            self.insert(seq, place, len, reasons);
        }
        Ok(())
    }

    fn append_copies(
        &mut self,
        batch: Vec<(Frame, Vec<RetainReason>)>,
        copied: &mut Vec<Copied>,
    ) -> io::Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut acks = Vec::new();
        for (frame, _) in &batch {
            let acked =
                self.records.get(&frame.seq).map(|stored| stored.acked.as_slice()).unwrap_or_default();
            acks.extend(acked.iter().map(|exporter| Frame::acked(frame.seq, exporter)));
        }
        let places = self.append(batch.iter().map(|(frame, _)| frame).chain(&acks))?;
        for ((frame, reasons), place) in batch.into_iter().zip(places) {
            copied.push((frame.seq, place, frame.size() as u64, RetainReasons::new(reasons)));
        }
        Ok(())
    }

    /// A retained record, reduced to what is still needed of it.
    fn copy(&mut self, seq: Seq) -> io::Result<Option<(Frame, Vec<RetainReason>)>> {
        let Some((record, stored)) = self.read(seq)?.zip(self.records.get(&seq)) else { return Ok(None) };
        let reasons: Vec<RetainReason> = stored.reasons.iter().collect();
        let frame = match record {
            Record::Request { signal, body, reasons: before } => {
                let fewer = reasons.len() < before.len() && !reasons.contains(&RetainReason::PassThrough);
                let body = match fewer && signal == Signal::Traces {
                    true => needed_spans(&reasons, &body).unwrap_or(body),
                    false => body,
                };
                Frame::request(seq, signal, &reasons, body)
            }
            Record::Verdict(verdict) => Frame::verdict_copy(seq, &verdict),
            Record::Acked { .. } | Record::Released(_) | Record::Closed(_) => return Ok(None),
        };
        Ok(Some((frame, reasons)))
    }
}

/// A request with only the spans of traces that still retain it.
fn needed_spans(reasons: &[RetainReason], body: &[u8]) -> Option<Bytes> {
    let mut split = request::split(body, "", &Interner::default()).ok()?;
    let needed: HashSet<&RetainReason> = reasons.iter().collect();
    split.groups.retain(|group| needed.contains(&RetainReason::Trace(group.trace)));
    let spans = split.groups.iter().flat_map(|group| &group.spans);
    let items: Vec<Item<'_>> =
        spans.map(|span| Item { envelope: &span.envelope, bytes: &span.bytes, appended: &[] }).collect();
    Some(write::requests(&items, usize::MAX).pop().map(|piece| piece.bytes).unwrap_or_default())
}
