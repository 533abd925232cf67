//! What is held in the oldest segment, written again at the head of the log.
//!
//! In: a segment. Out: copies of what is held in it, with the claims that are left, forced to the disk
//! before they stand for the originals.

use std::collections::HashSet;
use std::io;

use bytes::Bytes;

use super::Log;
use crate::claims::Claims;
use crate::disk::Disk;
use crate::record::{Claim, Frame, Record, Seq};
use verdict_otlp::Signal;
use verdict_otlp::request;
use verdict_otlp::request::Interner;
use verdict_otlp::write;
use verdict_otlp::write::Item;

/// Survivors are gathered up to this size for one write.
const WRITE: usize = 4 << 20;

/// A record, and where a copy of it begins; how long that is, and what holds it.
type Moved = (Seq, (u64, u64), u64, Claims);

impl<D: Disk> Log<D> {
    /// Writes what is held in a segment at the head, and forces it to the disk before it can be
    /// deleted where it was.
    pub(super) fn rewrite(&mut self, segment: u64) -> io::Result<()> {
        let held = self.kept.iter().filter(|(_, kept)| kept.segment == segment);
        let mut held: Vec<(u64, Seq)> = held.map(|(&seq, kept)| (kept.at, seq)).collect();
        held.sort_unstable();
        let mut batch: Vec<(Frame, Vec<Claim>)> = Vec::new();
        let mut moved = Vec::new();
        let mut size = 0;
        for (_, seq) in held {
            match self.survivor(seq)? {
                Some((frame, claims)) => {
                    size += frame.size();
                    batch.push((frame, claims));
                }
                None => {
                    tracing::error!(seq, segment, "a record of the journal cannot be read any more");
                    self.forget(seq);
                }
            }
            if size > WRITE {
                self.copy_to_head(std::mem::take(&mut batch), &mut moved)?;
                size = 0;
            }
        }
        self.copy_to_head(batch, &mut moved)?;
        self.sync()?;
        // Until here the originals stood for them.
        for (seq, place, len, claims) in moved {
            self.keep(seq, place, len, claims);
        }
        Ok(())
    }

    fn copy_to_head(&mut self, batch: Vec<(Frame, Vec<Claim>)>, moved: &mut Vec<Moved>) -> io::Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut acks = Vec::new();
        for (frame, _) in &batch {
            let acked = self.kept.get(&frame.seq).map(|kept| kept.acked.as_slice()).unwrap_or_default();
            acks.extend(acked.iter().map(|exporter| Frame::acked(frame.seq, exporter)));
        }
        let places = self.append(batch.iter().map(|(frame, _)| frame).chain(&acks))?;
        for ((frame, claims), place) in batch.into_iter().zip(places) {
            moved.push((frame.seq, place, frame.size() as u64, Claims::new(claims)));
        }
        Ok(())
    }

    /// A held record with what of it is still needed.
    fn survivor(&mut self, seq: Seq) -> io::Result<Option<(Frame, Vec<Claim>)>> {
        let Some((record, kept)) = self.read(seq)?.zip(self.kept.get(&seq)) else { return Ok(None) };
        let claims: Vec<Claim> = kept.claims.iter().collect();
        let frame = match record {
            Record::Request { signal, body, claims: before } => {
                let fewer = claims.len() < before.len() && !claims.contains(&Claim::Pass);
                let body = match fewer && signal == Signal::Traces {
                    true => only(&claims, &body).unwrap_or(body),
                    false => body,
                };
                Frame::request(seq, signal, &claims, body)
            }
            Record::Verdict(sealed) => Frame::verdict_again(seq, &sealed),
            Record::Acked { .. } | Record::Done(_) | Record::Closed(_) => return Ok(None),
        };
        Ok(Some((frame, claims)))
    }
}

/// A request of those spans only whose trace still needs them.
fn only(claims: &[Claim], body: &[u8]) -> Option<Bytes> {
    let mut split = request::split(body, "", &Interner::default()).ok()?;
    let needed: HashSet<&Claim> = claims.iter().collect();
    split.groups.retain(|group| needed.contains(&Claim::Trace(group.trace)));
    let spans = split.groups.iter().flat_map(|group| &group.spans);
    let items: Vec<Item<'_>> =
        spans.map(|span| Item { envelope: &span.envelope, bytes: &span.bytes, appended: &[] }).collect();
    Some(write::requests(&items, usize::MAX).pop().map(|piece| piece.bytes).unwrap_or_default())
}
