//! The log: its segments, which records are retained in them, and when space is reclaimed.
//!
//! In: frames, and releases of records. Out: writes that append all frames or none, and deleted
//! segments. Only the holder of the writer's lock uses it. It blocks only on the disk.
//!
//! Segments are deleted oldest first, and only when no record in them is retained. A release is written
//! after the record that it names, so it is deleted after that record. When more than half of the log is
//! not retained, the retained records of the oldest segment are rewritten at the head: a trace that stays
//! open for hours costs its own bytes, not the bytes of everything written after it.
//!
//! # Counters
//!
//! Writes are numbered from 1. `released_by` of a segment is the number of the write that released its last
//! record; with fsync the segment is deleted once `released_by <= synced`.
//!
//! | counter | the last write that | changed by |
//! |---|---|---|
//! | `written` | was appended | `append`: + 1 |
//! | `sync_begun` | a sync on the sync thread was begun for | `begin_sync`: = `written`, if there is a file to fsync |
//! | `synced_inline` | this thread has fsynced | `sync`: = `written`, after its fsyncs succeeded |
//! | `synced` | is on the disk with all before it, but for files whose fsync failed | `sync_completed` |
//!
//! Invariant, checked in debug builds: `synced <= max(sync_begun, synced_inline) <= written`.
//!
//! An inline sync covers only the files that no begun sync has taken. It therefore raises `synced` only when
//! `synced >= sync_begun`, that is when every sync begun before has completed. After a failed sync that is
//! the case once a later one completes; the segment of the failed one is not appended to any more.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use verdict_otlp::trace::{ById, PriorVerdict, TraceId};

use super::disk::{Disk, Fsync, SegmentFile, fsync_all, header};
use super::record::{
    CLOSED_TRACE_SIZE, FRAME_SIZE, Frame, FrameHeader, JournalRecord, Release, RetainReason, Seq,
};
use super::recover::{Recovered, StoredRecord, remember, scan};
use super::retain::RetainReasons;
use super::write_buffer::WriteBuffer;

mod rewrite;

/// The record of closed traces at the head of a segment may take an eighth of the segment.
const MAX_CLOSED_DIVISOR: u64 = 8;

/// The segment of a record, and the position in it.
pub(crate) type RecordPosition = (u64, u64);

#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLimits {
    /// Size in bytes at which a new segment is begun.
    pub segment_bytes: u64,
    /// Maximum size of the log in bytes.
    pub max_bytes: u64,
    /// Whether writes are fsynced at all.
    pub sync: bool,
    /// Configured maximum number of closed traces that are remembered.
    pub max_closed: usize,
}

impl LogLimits {
    /// Maximum number of closed traces that are remembered, bounded by their share of a segment.
    fn effective_max_closed(&self) -> usize {
        let fit = self.segment_bytes / MAX_CLOSED_DIVISOR / CLOSED_TRACE_SIZE as u64;
        self.max_closed.min(usize::try_from(fit).unwrap_or(usize::MAX))
    }
}

#[derive(Debug, Default)]
struct Segment {
    bytes: u64,
    /// Bytes of header and closed traces, which every segment has.
    head_bytes: u64,
    /// The number of the write that released the last record in it, counted as [`Log::written`].
    released_by: u64,
    /// Bytes of retained records.
    live_bytes: u64,
    marker: [u8; 4],
}

pub(crate) struct Log<D> {
    disk: D,
    limits: LogLimits,
    segments: BTreeMap<u64, Segment>,
    /// Bytes of segments that could not be read.
    unread_bytes: u64,
    /// The segment that is appended to.
    active: Option<u64>,
    active_file: Option<Arc<SegmentFile>>,
    records: ById<Seq, StoredRecord>,
    /// Remembered closed traces, oldest first. A trace that closed again is listed again.
    closed: VecDeque<(TraceId, PriorVerdict)>,
    next_segment: u64,
    /// Bytes of the exporters' acknowledgements of retained records.
    ack_bytes: u64,
    /// The module's documentation describes this counter and the next three.
    pub written: u64,
    sync_begun: u64,
    synced_inline: u64,
    synced: u64,
    /// Whether the active segment has writes that no begun or completed fsync covers.
    is_dirty: bool,
    /// Files of earlier segments with writes that no begun or completed fsync covers.
    retired_files: Vec<Arc<dyn Fsync>>,
    buffer: WriteBuffer,
}

impl<D: Disk> Log<D> {
    /// Reads the directory. Appends go to a new segment.
    pub(crate) fn open(mut disk: D, limits: LogLimits) -> io::Result<(Log<D>, Recovered, Seq)> {
        let mut scan = scan(&mut disk, limits.effective_max_closed())?;
        let recovered = scan.take_recovered();
        let next_segment = scan.last_segment.saturating_add(1);
        let sizes = scan.segment_sizes.iter();
        let mut segments: BTreeMap<u64, Segment> =
            sizes.map(|(&id, &bytes)| (id, Segment { bytes, ..Segment::default() })).collect();
        for stored in scan.records.values() {
            if let Some(segment) = segments.get_mut(&stored.segment) {
                segment.live_bytes += stored.len;
            }
        }
        let ack_bytes = scan.records.values().map(ack_bytes).sum();
        let log = Log {
            disk,
            limits,
            segments,
            unread_bytes: scan.unread_bytes,
            active: None,
            active_file: None,
            records: scan.records,
            closed: recovered.closed.iter().copied().collect(),
            next_segment,
            ack_bytes,
            written: 0,
            sync_begun: 0,
            synced_inline: 0,
            synced: 0,
            is_dirty: false,
            retired_files: Vec::new(),
            buffer: WriteBuffer::default(),
        };
        Ok((log, recovered, scan.next_seq))
    }

    /// Bytes of all segments, also of those that could not be read.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.values().map(|s| s.bytes).sum::<u64>().saturating_add(self.unread_bytes)
    }

    /// Bytes of retained records.
    pub(crate) fn live(&self) -> u64 {
        self.segments.values().map(|s| s.live_bytes).sum()
    }

    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Whether there is a write that no begun or completed fsync covers.
    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty || !self.retired_files.is_empty()
    }

    /// Appends all frames with one write, or none. Returns the position of each.
    pub(crate) fn append<'f>(
        &mut self,
        frames: impl Iterator<Item = &'f Frame>,
    ) -> io::Result<Vec<RecordPosition>> {
        let id = self.active_segment()?;
        let Some(segment) = self.segments.get_mut(&id) else { return Err(io::ErrorKind::NotFound.into()) };
        let mut positions = Vec::new();
        self.buffer.clear();
        for frame in frames {
            positions.push((id, segment.bytes + self.buffer.len()));
            self.buffer.push_frame(frame, segment.marker);
        }
        let written = self.disk.append(id, &mut self.buffer.slices());
        let len = self.buffer.len();
        // Releases the bodies of the frames.
        self.buffer.clear();
        if let Err(error) = written {
            // Recovery passes over a partial write that cannot be truncated.
            if self.disk.truncate(id, segment.bytes).is_err() && self.retire_segment().is_err() {
                self.abandon_segment();
            }
            return Err(error);
        }
        segment.bytes += len;
        self.written += 1;
        self.is_dirty = true;
        Ok(positions)
    }

    /// The segment to append to; a new one if the last is full.
    fn active_segment(&mut self) -> io::Result<u64> {
        if let Some(id) = self.active
            && self.segments.get(&id).is_some_and(|s| s.bytes < self.limits.segment_bytes)
        {
            return Ok(id);
        }
        self.retire_segment()?;
        let id = self.next_segment;
        let marker = fastrand::u32(..).to_le_bytes();
        self.buffer.clear();
        self.buffer.push_bytes(&header(marker));
        if !self.closed.is_empty() {
            self.buffer.push_frame(&Frame::closed(&self.closed), marker);
        }
        self.next_segment += 1;
        let file = Arc::new(SegmentFile::new(self.disk.create(id, self.limits.segment_bytes)?));
        if let Err(error) = self.disk.append(id, &mut self.buffer.slices()) {
            // If it cannot be removed, recovery reads it as a segment without records.
            let _ = self.disk.remove(id);
            return Err(error);
        }
        let head_bytes = self.buffer.len();
        self.segments.insert(id, Segment { bytes: head_bytes, head_bytes, marker, ..Segment::default() });
        (self.active, self.active_file) = (Some(id), Some(file));
        Ok(id)
    }

    /// Ends appending to the active segment. Its file is fsynced with the next sync request, for which the
    /// writer does not wait.
    fn retire_segment(&mut self) -> io::Result<()> {
        self.retired_files = self.take_unsynced()?.0;
        (self.active, self.active_file) = (None, None);
        Ok(())
    }

    /// Fsyncs every write and waits for it.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        let unsynced = self.take_unsynced();
        let synced = unsynced.and_then(|(files, up_to)| fsync_all(&files).map(|()| up_to));
        self.synced_inline = synced.inspect_err(|_| self.abandon_segment())?;
        self.sync_completed(0);
        Ok(())
    }

    /// Fsyncs every write, and returns the unused preallocated space.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.sync()?;
        self.return_space()
    }

    /// Truncates the active segment after its last write, which frees the preallocated space.
    fn return_space(&mut self) -> io::Result<()> {
        let active = self.active.and_then(|id| Some((id, self.segments.get(&id)?.bytes)));
        active.map_or(Ok(()), |(id, bytes)| self.disk.truncate(id, bytes))
    }

    /// The files to fsync, and the number of the last write that their fsync covers. The caller reports the result with
    /// [`Log::sync_completed`] or [`Log::abandon_segment`].
    pub(crate) fn begin_sync(&mut self) -> io::Result<(Vec<Arc<dyn Fsync>>, u64)> {
        let unsynced = self.take_unsynced()?;
        if !unsynced.0.is_empty() {
            self.sync_begun = self.written;
        }
        Ok(unsynced)
    }

    /// Removes and returns the files with unsynced writes, and returns the number of the last write.
    fn take_unsynced(&mut self) -> io::Result<(Vec<Arc<dyn Fsync>>, u64)> {
        let file = self.active_file.clone().filter(|_| self.is_dirty && self.limits.sync);
        // This may fail, so it precedes the changes of the state.
        let directory = if file.is_some() { self.disk.directory_to_sync()? } else { None };
        self.is_dirty = false;
        let mut files = std::mem::take(&mut self.retired_files);
        files.extend(file.map(|file| file as Arc<dyn Fsync>).into_iter().chain(directory));
        Ok((files, self.written))
    }

    /// Notes that the disk has every write up to this one. An inline sync counts once all syncs begun before it
    /// have completed.
    pub(crate) fn sync_completed(&mut self, up_to: u64) {
        self.synced = self.synced.max(up_to);
        if self.synced >= self.sync_begun {
            self.synced = self.synced.max(self.synced_inline);
        }
        debug_assert!(self.synced <= self.sync_begun.max(self.synced_inline));
        debug_assert!(self.sync_begun.max(self.synced_inline) <= self.written);
    }

    /// Whether the oldest segment could be deleted if the releases of its records were on the disk.
    pub(crate) fn deletion_waits_for_sync(&self) -> bool {
        let oldest = self.segments.first_key_value();
        self.is_dirty()
            && oldest.is_some_and(|(&id, s)| {
                Some(id) != self.active && s.live_bytes == 0 && s.released_by > self.synced
            })
    }

    /// Ends appending to the active segment after a failed fsync: it is unknown which of its writes are on the
    /// disk, and no later fsync of its file succeeds.
    pub(crate) fn abandon_segment(&mut self) {
        // If this fails the file keeps its unused preallocated space.
        let _ = self.return_space();
        (self.active, self.active_file) = (None, None);
    }

    /// Remembers a closed trace for late spans.
    pub(crate) fn remember(&mut self, trace: TraceId, verdict: PriorVerdict) {
        remember(&mut self.closed, self.limits.effective_max_closed(), trace, verdict);
    }

    /// Retains a record that was written, instead of an earlier copy of it.
    pub(crate) fn insert(
        &mut self,
        seq: Seq,
        (segment, offset): RecordPosition,
        len: u64,
        reasons: RetainReasons,
    ) {
        if let Some(target) = self.segments.get_mut(&segment) {
            target.live_bytes += len;
        }
        let acked = self.records.get(&seq).map(|stored| stored.acked.clone()).unwrap_or_default();
        if let Some(before) = self.records.insert(seq, StoredRecord { segment, offset, len, reasons, acked })
            && let Some(source) = self.segments.get_mut(&before.segment)
        {
            source.live_bytes = source.live_bytes.saturating_sub(before.len);
            source.released_by = source.released_by.max(self.written);
        }
    }

    /// All reasons for which a record is retained.
    pub(crate) fn reasons(&self, seq: Seq) -> impl Iterator<Item = RetainReason> {
        self.records.get(&seq).into_iter().flat_map(|stored| stored.reasons.iter())
    }

    pub(crate) fn contains(&self, seq: Seq) -> bool {
        self.records.contains_key(&seq)
    }

    /// Notes that an exporter has acknowledged a record.
    pub(crate) fn note_acked(&mut self, seq: Seq, exporter: &str) {
        if let Some(stored) = self.records.get_mut(&seq) {
            stored.acked.push(exporter.to_owned());
            self.ack_bytes += ack_size(exporter);
        }
    }

    /// Releases one record for some reasons. Appends the releases to write to `unwritten`: none if the record is
    /// not retained.
    pub(crate) fn release(&mut self, reasons: &[(Seq, RetainReason)], unwritten: &mut Vec<Release>) {
        let Some(&(seq, _)) = reasons.first() else { return };
        let Some(stored) = self.records.get_mut(&seq) else { return };
        reasons.iter().for_each(|(_, reason)| stored.reasons.remove(reason));
        if stored.reasons.is_empty() {
            self.remove(seq);
            unwritten.push((seq, None));
        } else {
            unwritten.extend(reasons.iter().map(|(seq, reason)| (*seq, Some(*reason))));
        }
    }

    fn remove(&mut self, seq: Seq) {
        let Some(stored) = self.records.remove(&seq) else { return };
        self.ack_bytes = self.ack_bytes.saturating_sub(ack_bytes(&stored));
        if let Some(segment) = self.segments.get_mut(&stored.segment) {
            segment.live_bytes = segment.live_bytes.saturating_sub(stored.len);
            // The release is part of the next write.
            segment.released_by = self.written + 1;
        }
    }

    /// Reads a retained record; `None` if it is not retained, its file was deleted, or it is damaged.
    ///
    /// # Errors
    /// The disk cannot be read; a later call may succeed.
    pub(crate) fn read(&mut self, seq: Seq) -> io::Result<Option<JournalRecord>> {
        let Some(stored) = self.records.get(&seq) else { return Ok(None) };
        let Ok(len) = usize::try_from(stored.len) else { return Ok(None) };
        let bytes = match self.disk.read(stored.segment, stored.offset, len) {
            Ok(bytes) => Bytes::from(bytes),
            // Another process deleted or truncated the file.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let header = bytes.first_chunk::<4>().and_then(|&marker| FrameHeader::read(&bytes, 0, marker));
        Ok(header.and_then(|header| header.record(&bytes)))
    }

    /// Deletes segments without retained records, and rewrites at most one, which bounds the time that
    /// the writer is busy. `failing` states that nothing can be written, and therefore nothing fsynced.
    ///
    /// # Errors
    /// The disk fails; nothing is lost, and the call can be repeated.
    pub(crate) fn reclaim(&mut self, failing: bool) -> io::Result<()> {
        self.delete_oldest(failing)?;
        let (bytes, live) = (self.bytes(), self.live());
        // The head of a segment is deleted with the segment; rewriting does not free it.
        let is_kept = |&(id, s): &(&u64, &Segment)| s.live_bytes > 0 || Some(*id) == self.active;
        let head_bytes: u64 = self.segments.iter().filter(is_kept).map(|(_, s)| s.head_bytes).sum();
        let unused_bytes = bytes.saturating_sub(live + head_bytes + self.ack_bytes + self.unread_bytes);
        let is_mostly_unused = unused_bytes > live.saturating_add(self.limits.segment_bytes);
        // Above half of the cap a smaller gain justifies a rewrite, so that the log shrinks below the
        // size at which requests are refused.
        let is_space_short = bytes > self.limits.max_bytes / 2
            && unused_bytes > self.limits.segment_bytes.max(self.limits.max_bytes / 32);
        if let Some((&oldest, segment)) = self.segments.first_key_value()
            && Some(oldest) != self.active
            && segment.live_bytes > 0
            && (is_mostly_unused || is_space_short)
        {
            self.rewrite(oldest)?;
            self.delete_oldest(failing)?;
        }
        Ok(())
    }

    /// Deletes the oldest segments without retained records whose releases are on the disk. If a release
    /// were lost in a power cut after the deletion, a trace would be recovered in part.
    fn delete_oldest(&mut self, failing: bool) -> io::Result<()> {
        while let Some((&oldest, segment)) = self.segments.first_key_value()
            && Some(oldest) != self.active
            && segment.live_bytes == 0
            && (segment.released_by <= self.synced || failing || !self.limits.sync)
        {
            if self.active.is_none() && !self.closed.is_empty() {
                // Only the heads of segments list the closed traces, so a new segment has to exist
                // before the last is deleted. A full disk may have no space for it until then.
                if let Err(error) = self.active_segment() {
                    tracing::warn!(%error, "the next start may not know which traces have closed");
                }
            }
            self.disk.remove(oldest)?;
            self.segments.remove(&oldest);
        }
        Ok(())
    }
}

/// Bytes of all acknowledgements of a record.
fn ack_bytes(stored: &StoredRecord) -> u64 {
    stored.acked.iter().map(|exporter| ack_size(exporter)).sum()
}

/// Bytes of the acknowledgement of one exporter.
fn ack_size(exporter: &str) -> u64 {
    (FRAME_SIZE + exporter.len()) as u64
}
