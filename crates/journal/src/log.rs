//! The log itself: segments, which records in them are held by what, and when space is given back.
//!
//! In: frames, and claims that hold no more. Out: frames written all or not at all, and segments
//! deleted. One at a time has it; nothing here waits for anything but the disk.
//!
//! Segments are deleted oldest first, and only when nothing in them is held. So whatever says that
//! a claim is done, which always stands behind what it speaks of, outlives it. When more than half
//! of the log is no longer held, what is held in the oldest segment is written again at the head:
//! a trace that stays open for hours costs its own bytes and not those of all that came after.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::batch::Batch;
use super::claims::Claims;
use super::disk::{Disk, Force, header};
use super::record::{CLOSED_TRACE, Claim, FRAME, Found, Frame, Over, Record, Seq};
use super::recover::{Kept, Recovered, scan};
use verdict_otlp::trace::PriorVerdict;
use verdict_otlp::trace::{ById, TraceId};

mod rewrite;

/// Closed traces are written anew at the head of every segment, and may take this share of one.
const CLOSED_SHARE: u64 = 8;

/// Sizes that the log keeps to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub segment: u64,
    pub total: u64,
    /// Whether anything is ever forced to the disk.
    pub sync: bool,
    /// How many closed traces are remembered.
    pub remember: usize,
}

impl Limits {
    /// How many closed traces are remembered, none of which costs much space.
    fn closed(&self) -> usize {
        let fit = self.segment / CLOSED_SHARE / CLOSED_TRACE as u64;
        self.remember.min(usize::try_from(fit).unwrap_or(usize::MAX))
    }
}

#[derive(Debug, Default)]
struct Segment {
    bytes: u64,
    /// Bytes at its head, which no other segment spares it.
    head: u64,
    /// The write, counted as in [`Log::written`], that says that the last record held in it is done.
    freed: u64,
    /// Bytes of records that are held.
    live: u64,
    marker: [u8; 4],
}

pub(super) struct Log<D> {
    disk: D,
    limits: Limits,
    segments: BTreeMap<u64, Segment>,
    /// The one that is appended to.
    active: Option<u64>,
    kept: ById<Seq, Kept>,
    /// Traces that closed, oldest first; one that closed again stands there again.
    closed: VecDeque<(TraceId, PriorVerdict)>,
    next_segment: u64,
    /// Bytes of the records that say which exporters have what is held.
    acks: u64,
    /// Writes so far, ...
    written: u64,
    /// ... how many of them the disk is known to have, but for what could not be forced, ...
    forced: u64,
    /// ... how many were given out to be forced, and how many forced here.
    given_out: u64,
    synced: u64,
    /// Something was appended to the active segment and not given out to be forced to the disk.
    dirty: bool,
    /// Segments before it of which the same holds.
    behind: Vec<Arc<dyn Force>>,
    batch: Batch,
}

impl<D: Disk> Log<D> {
    /// Reads what is there. Appends go to a new segment.
    pub fn open(mut disk: D, limits: Limits) -> io::Result<(Log<D>, Recovered, Seq)> {
        let mut scan = scan(&mut disk, limits.closed())?;
        let recovered = scan.recovered();
        let next_segment = scan.last.saturating_add(1);
        let sizes = scan.sizes.iter();
        let mut segments: BTreeMap<u64, Segment> =
            sizes.map(|(&id, &bytes)| (id, Segment { bytes, ..Segment::default() })).collect();
        for kept in scan.kept.values() {
            if let Some(segment) = segments.get_mut(&kept.segment) {
                segment.live += kept.len;
            }
        }
        let acks = scan.kept.values().map(acks).sum();
        let log = Log {
            disk,
            limits,
            segments,
            active: None,
            kept: scan.kept,
            closed: recovered.closed.iter().copied().collect(),
            next_segment,
            acks,
            written: 0,
            forced: 0,
            given_out: 0,
            synced: 0,
            dirty: false,
            behind: Vec::new(),
            batch: Batch::default(),
        };
        Ok((log, recovered, scan.next))
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.values().map(|s| s.bytes).sum()
    }

    /// Bytes of what is held.
    pub fn live(&self) -> u64 {
        self.segments.values().map(|s| s.live).sum()
    }

    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Something was written and not forced to the disk.
    pub fn is_dirty(&self) -> bool {
        self.dirty || !self.behind.is_empty()
    }

    /// Writes all frames with one write, or none. Returns where each begins.
    pub fn append<'f>(&mut self, frames: impl Iterator<Item = &'f Frame>) -> io::Result<Vec<(u64, u64)>> {
        let id = self.head()?;
        let Some(segment) = self.segments.get_mut(&id) else { return Err(io::ErrorKind::NotFound.into()) };
        let mut places = Vec::new();
        self.batch.clear();
        for frame in frames {
            places.push((id, segment.bytes + self.batch.len()));
            self.batch.frame(frame, segment.marker);
        }
        let written = self.disk.append(id, &mut self.batch.slices());
        let len = self.batch.len();
        // Bodies are let go of.
        self.batch.clear();
        if let Err(error) = written {
            // Whatever stands there now is passed over at the next start.
            if self.disk.cut(id, segment.bytes).is_err() && self.leave().is_err() {
                self.abandon();
            }
            return Err(error);
        }
        segment.bytes += len;
        self.written += 1;
        self.dirty = true;
        Ok(places)
    }

    /// The segment to append to; a new one where the last is full.
    fn head(&mut self) -> io::Result<u64> {
        if let Some(id) = self.active
            && self.segments.get(&id).is_some_and(|s| s.bytes < self.limits.segment)
        {
            return Ok(id);
        }
        self.leave()?;
        let id = self.next_segment;
        let marker = fastrand::u32(..).to_le_bytes();
        self.batch.clear();
        self.batch.raw(&header(marker));
        if !self.closed.is_empty() {
            self.batch.frame(&Frame::closed(&self.closed), marker);
        }
        self.next_segment += 1;
        self.disk.create(id, self.limits.segment)?;
        if let Err(error) = self.disk.append(id, &mut self.batch.slices()) {
            // An empty file is read as one without records.
            let _ = self.disk.remove(id);
            return Err(error);
        }
        let head = self.batch.len();
        self.segments.insert(id, Segment { bytes: head, head, marker, ..Segment::default() });
        self.active = Some(id);
        Ok(id)
    }

    /// Nothing more is appended to the active segment. It is forced to the disk with what comes next:
    /// whoever writes does not wait for that.
    fn leave(&mut self) -> io::Result<()> {
        if let Some(id) = self.active.filter(|_| self.dirty && self.limits.sync) {
            self.behind.extend(self.disk.forcible(id)?);
        }
        (self.active, self.dirty) = (None, false);
        Ok(())
    }

    /// Writes so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Forces what was written to the disk.
    pub fn sync(&mut self) -> io::Result<()> {
        let files = self.unforced();
        let forced =
            files.and_then(|(files, upto)| files.iter().try_for_each(|file| file.force()).map(|()| upto));
        self.synced = forced.inspect_err(|_| self.abandon())?;
        self.forced(0);
        Ok(())
    }

    /// Forces what was written to the disk, and gives back the room that nothing was written to.
    pub fn close(&mut self) -> io::Result<()> {
        self.sync()?;
        let last = self.active.and_then(|id| Some((id, self.segments.get(&id)?.bytes)));
        last.map_or(Ok(()), |(id, bytes)| self.disk.cut(id, bytes))
    }

    /// As [`Log::unforced`], for somebody else to force: he tells by [`Log::forced`].
    pub fn give_out(&mut self) -> io::Result<(Vec<Arc<dyn Force>>, u64)> {
        let unforced = self.unforced()?;
        if !unforced.0.is_empty() {
            self.given_out = self.written;
        }
        Ok(unforced)
    }

    /// What there is to force to the disk, and up to which write; from here on it is taken to be forced.
    fn unforced(&mut self) -> io::Result<(Vec<Arc<dyn Force>>, u64)> {
        let dirty = std::mem::take(&mut self.dirty) && self.limits.sync;
        let last = self.active.filter(|_| dirty).map(|id| self.disk.forcible(id)).transpose()?;
        let mut files = std::mem::take(&mut self.behind);
        files.extend(last.unwrap_or_default());
        Ok((files, self.written))
    }

    /// The disk has all writes up to this one; and what was forced here, once it has all before that.
    pub fn forced(&mut self, upto: u64) {
        self.forced = self.forced.max(upto);
        if self.forced >= self.given_out {
            self.forced = self.forced.max(self.synced);
        }
    }

    /// Whether the oldest segment could be deleted, were what says so on the disk.
    pub fn waits_to_be_forced(&self) -> bool {
        let oldest = self.segments.first_key_value();
        self.is_dirty()
            && oldest.is_some_and(|(&id, s)| Some(id) != self.active && s.live == 0 && s.freed > self.forced)
    }

    /// Forcing failed: what the disk has of it is not known, and asking again would not tell. What
    /// comes next goes to another segment.
    pub fn abandon(&mut self) {
        if let Some(id) = self.active.take()
            && let Some(segment) = self.segments.get(&id)
        {
            // The room that it will not use; one that keeps it costs only that.
            let _ = self.disk.cut(id, segment.bytes);
        }
    }

    /// Remembers what came of a trace, for spans of it that come late.
    pub fn remember(&mut self, trace: TraceId, verdict: PriorVerdict) {
        remember(&mut self.closed, self.limits.closed(), trace, verdict);
    }

    /// Holds a record that was written.
    pub fn keep(&mut self, seq: Seq, (segment, at): (u64, u64), len: u64, claims: Claims) {
        if let Some(to) = self.segments.get_mut(&segment) {
            to.live += len;
        }
        let acked = self.kept.get(&seq).map(|k| k.acked.clone()).unwrap_or_default();
        if let Some(before) = self.kept.insert(seq, Kept { segment, at, len, claims, acked })
            && let Some(from) = self.segments.get_mut(&before.segment)
        {
            from.live = from.live.saturating_sub(before.len);
            from.freed = from.freed.max(self.written);
        }
    }

    /// All claims on a record.
    pub fn claims(&self, seq: Seq) -> impl Iterator<Item = (Seq, Claim)> {
        self.kept.get(&seq).into_iter().flat_map(|kept| kept.claims.iter()).map(move |claim| (seq, claim))
    }

    /// Whether a record is held.
    pub fn holds(&self, seq: Seq) -> bool {
        self.kept.contains_key(&seq)
    }

    /// An exporter has what a record gave it.
    pub fn acked(&mut self, seq: Seq, exporter: &str) {
        if let Some(kept) = self.kept.get_mut(&seq) {
            kept.acked.push(exporter.to_owned());
            self.acks += ack(exporter);
        }
    }

    /// Claims on one record hold no more. What is to be written of that comes behind `over`: nothing
    /// of a record that is not held.
    pub fn done(&mut self, claims: &[(Seq, Claim)], over: &mut Vec<Over>) {
        let Some(&(seq, _)) = claims.first() else { return };
        let Some(kept) = self.kept.get_mut(&seq) else { return };
        claims.iter().for_each(|(_, claim)| kept.claims.remove(claim));
        if kept.claims.is_empty() {
            self.forget(seq);
            over.push((seq, None));
        } else {
            over.extend(claims.iter().map(|(seq, claim)| (*seq, Some(*claim))));
        }
    }

    fn forget(&mut self, seq: Seq) {
        let Some(kept) = self.kept.remove(&seq) else { return };
        self.acks = self.acks.saturating_sub(acks(&kept));
        if let Some(segment) = self.segments.get_mut(&kept.segment) {
            segment.live = segment.live.saturating_sub(kept.len);
            segment.freed = self.written + 1;
        }
    }

    /// Reads a record that is held; `None` where it is not there any more, or damaged.
    ///
    /// # Errors
    /// The disk does not answer. It may do so later.
    pub fn read(&mut self, seq: Seq) -> io::Result<Option<Record>> {
        let Some(kept) = self.kept.get(&seq) else { return Ok(None) };
        let Ok(len) = usize::try_from(kept.len) else { return Ok(None) };
        let bytes = match self.disk.read(kept.segment, kept.at, len) {
            Ok(bytes) => Bytes::from(bytes),
            // Deleted or cut off behind our back.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let found = bytes.first_chunk::<4>().and_then(|&marker| Found::read(&bytes, 0, marker));
        Ok(found.and_then(|found| found.record(&bytes)))
    }

    /// Deletes what nothing holds; rewrites at most one segment, so that nobody waits for long.
    /// `desperate`: nothing can be written, and so nothing forced either.
    ///
    /// # Errors
    /// The disk does not do it; nothing is lost, and it can be tried again.
    pub fn reclaim(&mut self, desperate: bool) -> io::Result<()> {
        self.delete_oldest(desperate)?;
        let (bytes, live) = (self.bytes(), self.live());
        // A head goes with its segment, once nothing else holds that.
        let stays = |&(id, s): &(&u64, &Segment)| s.live > 0 || Some(*id) == self.active;
        let heads: u64 = self.segments.iter().filter(stays).map(|(_, s)| s.head).sum();
        let wasted = bytes.saturating_sub(live + heads + self.acks);
        let mostly_dead = wasted > live.saturating_add(self.limits.segment);
        // What is gained is worth what is written for it, and leads below where requests are taken again.
        let short_of_room =
            bytes > self.limits.total / 2 && wasted > self.limits.segment.max(self.limits.total / 32);
        if let Some((&oldest, segment)) = self.segments.first_key_value()
            && Some(oldest) != self.active
            && segment.live > 0
            && (mostly_dead || short_of_room)
        {
            self.rewrite(oldest)?;
            self.delete_oldest(desperate)?;
        }
        Ok(())
    }

    /// Deletes segments of which nothing is held, once the disk has what says so: after a power cut a
    /// trace would be there in part otherwise.
    fn delete_oldest(&mut self, desperate: bool) -> io::Result<()> {
        while let Some((&oldest, segment)) = self.segments.first_key_value()
            && Some(oldest) != self.active
            && segment.live == 0
            && (segment.freed <= self.forced || desperate || !self.limits.sync)
        {
            if self.active.is_none() && !self.closed.is_empty() {
                // What is remembered of closed traces stands at the head, and nowhere else then; but
                // on a full disk there is no other way to make room for a head.
                if let Err(error) = self.head() {
                    tracing::warn!(%error, "closed traces may be forgotten by the next start");
                }
            }
            self.disk.remove(oldest)?;
            self.segments.remove(&oldest);
        }
        Ok(())
    }
}

/// Bytes of what is written about who has a record.
fn acks(kept: &Kept) -> u64 {
    kept.acked.iter().map(|exporter| ack(exporter)).sum()
}

/// Bytes of one such record.
fn ack(exporter: &str) -> u64 {
    (FRAME + exporter.len()) as u64
}

/// Adds a closed trace behind the others, of which it keeps the newest `most`.
pub(super) fn remember(
    closed: &mut VecDeque<(TraceId, PriorVerdict)>,
    most: usize,
    trace: TraceId,
    verdict: PriorVerdict,
) {
    closed.push_back((trace, verdict));
    while closed.len() > most {
        closed.pop_front();
    }
}
