//! Group commit: the waiting commands are received, written with one write, and then answered or,
//! with `durability: sync`, passed to the sync thread together with their callers.
//!
//! In: [`WriterCommand`]s. Out: replies. A command that could not be written is refused as a whole. Releases
//! are written with the next write, or separately after a short delay. After a failed write they are part of
//! the next one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use verdict_otlp::trace::{PriorVerdict, TraceId};
use verdict_telemetry::{JournalMetrics, LogThrottle};

use super::config::{Durability, Storage};
use super::disk::Disk;
use super::log::Log;
use super::record::{Frame, JournalRecord, Release, RetainReason, Seq};
use super::retain::RetainReasons;
use super::syncer::{SyncRequest, Syncer, Waiter, reply};
use super::writer_handle::{HandoverState, RELEASE_DELAY, WriterStep};

/// Limits on the commands and bytes of one write: high enough to amortise the cost of the system call, and low enough
/// that callers with a reply send further commands while the next write runs. If one write contained all waiting
/// commands, the writer and the callers would alternate.
const MAX_BATCH_COMMANDS: usize = 1024;
const MAX_BATCH_BYTES: usize = 512 << 10;
/// Interval at which a failing disk is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// Interval at which space is reclaimed while nothing is written.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) enum WriterCommand {
    /// Appends a request before it is acknowledged. If the waiter's `reply` is closed, the caller was cancelled.
    AppendRequest(Frame, RetainReasons, Waiter),
    /// Appends verdicts before they are exported, and remembers them for late spans.
    AppendVerdicts(Vec<Frame>, Vec<(TraceId, PriorVerdict)>, Waiter),
    /// An exporter has delivered a record.
    ExporterAcked(Seq, String),
    /// The sender of a request received no acknowledgement.
    Discard(Seq),
    Read(Seq, oneshot::Sender<Option<JournalRecord>>),
    /// Writes and fsyncs everything, and ends the writer.
    Close(oneshot::Sender<()>),
}

pub(crate) struct JournalWriter<D> {
    pub log: Log<D>,
    pub storage: Storage,
    /// Size of the log in bytes at which requests are refused. The remaining space is for verdicts on stored requests.
    pub max_request_log_bytes: u64,
    pub state: Arc<HandoverState>,
    pub metrics: JournalMetrics,
    pub commands: Receiver<WriterCommand>,
    pub close_reply: Option<oneshot::Sender<()>>,
    /// Releases that the log has applied and that have not been written.
    pub unwritten: Vec<Release>,
    pub last_sync: Instant,
    /// Whether the last fsync failed. Writes may still succeed.
    pub sync_failing: bool,
    /// The time of the last attempt to free space, if it failed.
    pub reclaim_failed: Option<Instant>,
    pub throttle: LogThrottle,
    pub syncer: Syncer,
}

/// The commands of one step.
#[derive(Default)]
struct WriteBatch {
    /// Size of the log before the batch.
    log_bytes: u64,
    commands: usize,
    bytes: usize,
    frames: Vec<(Frame, RetainReasons)>,
    waiters: Vec<Waiter>,
    closed: Vec<(TraceId, PriorVerdict)>,
    acked: Vec<(Seq, String)>,
    discarded: Vec<Seq>,
    reads: Vec<(Seq, oneshot::Sender<Option<JournalRecord>>)>,
}

impl<D: Disk> WriterStep for JournalWriter<D> {
    fn step(&mut self) {
        let mut batch = WriteBatch { log_bytes: self.log.bytes(), ..WriteBatch::default() };
        while batch.commands < MAX_BATCH_COMMANDS && batch.bytes < MAX_BATCH_BYTES {
            let Ok(command) = self.commands.try_recv() else { break };
            self.receive(command, &mut batch);
        }
        let (reads, discarded) = (std::mem::take(&mut batch.reads), std::mem::take(&mut batch.discarded));
        self.collect_sync_results();
        self.write(batch);
        // After the write: a discarded record may be in the same batch.
        if !discarded.is_empty() {
            let reasons = |seq| self.log.reasons(seq).map(move |reason| (seq, reason)).collect();
            self.state.release(discarded.into_iter().map(reasons));
        }
        for (seq, reply) in reads {
            let read = self.log.read(seq);
            let log_error = |error: &io::Error| tracing::error!(seq, %error, "cannot read a journal record");
            let _ = reply.send(read.inspect_err(log_error).unwrap_or_default());
        }
    }

    fn maintain(&mut self) -> bool {
        self.step();
        let is_sync_due = match self.storage.durability {
            // With a long interval, space may be needed before it has passed.
            Durability::Interval => {
                let is_space_short =
                    self.log.bytes() > self.storage.max_bytes.0 / 2 && self.log.deletion_waits_for_sync();
                is_space_short || self.last_sync.elapsed() >= *self.storage.interval
            }
            Durability::Sync => self.log.deletion_waits_for_sync(),
            Durability::None => false,
        };
        // Only another fsync shows that fsync works again.
        if is_sync_due || self.sync_failing {
            self.last_sync = Instant::now();
            self.begin_sync(Vec::new());
        }
        self.reclaim();
        self.close_reply.is_some()
    }

    fn written(&self) -> u64 {
        self.log.written
    }

    fn park_timeout(&self) -> Duration {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        if is_set(&self.state.failing) {
            return RETRY_INTERVAL;
        }
        match self.log.is_dirty() && self.storage.durability == Durability::Interval {
            _ if is_set(&self.state.full) => RELEASE_DELAY,
            true => self.storage.interval.saturating_sub(self.last_sync.elapsed()).min(IDLE_INTERVAL),
            false => IDLE_INTERVAL,
        }
    }

    fn finish(&mut self) {
        self.step();
        self.syncer.join();
        self.collect_sync_results();
        if let Err(error) = self.log.close() {
            self.note_failure("sync", &error);
        }
        if let Some(reply) = self.close_reply.take() {
            let _ = reply.send(());
        }
    }
}

impl<D: Disk> JournalWriter<D> {
    /// Adds a command to the batch, or refuses it if the log has no space for it.
    fn receive(&mut self, command: WriterCommand, batch: &mut WriteBatch) {
        batch.commands += 1;
        // Only submitted commands are counted as urgent; these two are enqueued.
        if !matches!(command, WriterCommand::ExporterAcked(..) | WriterCommand::Discard(_)) {
            self.state.received();
        }
        let fits = |size: usize, cap: u64| batch.log_bytes + (batch.bytes + size) as u64 <= cap;
        match command {
            WriterCommand::AppendRequest(_, _, waiter) if waiter.reply.is_closed() => {}
            WriterCommand::AppendRequest(frame, _, waiter)
                if !fits(frame.size(), self.max_request_log_bytes) =>
            {
                self.state.full.store(true, Ordering::Relaxed);
                self.metrics.refused.inc();
                let _ = waiter.reply.send(false);
            }
            WriterCommand::AppendRequest(frame, reasons, waiter) => {
                batch.bytes += frame.size();
                batch.waiters.push(waiter);
                batch.frames.push((frame, reasons));
            }
            WriterCommand::AppendVerdicts(frames, closed, waiter) => {
                let size = frames.iter().map(Frame::size).sum();
                if !fits(size, self.storage.max_bytes.0) {
                    let _ = waiter.reply.send(false);
                    return;
                }
                batch.bytes += size;
                batch.waiters.push(waiter);
                let reasons = || RetainReasons::new(vec![RetainReason::Verdict]);
                batch.frames.extend(frames.into_iter().map(|frame| (frame, reasons())));
                batch.closed.extend(closed);
            }
            WriterCommand::ExporterAcked(seq, exporter) => batch.acked.push((seq, exporter)),
            WriterCommand::Discard(seq) => batch.discarded.push(seq),
            WriterCommand::Read(seq, reply) => batch.reads.push((seq, reply)),
            WriterCommand::Close(reply) => self.close_reply = Some(reply),
        }
    }

    fn write(&mut self, batch: WriteBatch) {
        let WriteBatch { frames, mut waiters, closed, mut acked, .. } = batch;
        // Releases free space whether or not they can be written.
        for releases in self.state.take_released() {
            for record_releases in releases.chunk_by(|(a, _), (b, _)| a == b) {
                self.log.release(record_releases, &mut self.unwritten);
            }
        }
        // A record that has been released needs no acknowledgement.
        acked.retain(|(seq, _)| self.log.contains(*seq));
        let failing = self.state.failing.load(Ordering::Relaxed);
        let mut other_frames: Vec<Frame> =
            acked.iter().map(|(seq, exporter)| Frame::acked(*seq, exporter)).collect();
        if !self.unwritten.is_empty() || (failing && frames.is_empty()) {
            // While the disk fails and there is nothing to write, an empty record probes it.
            other_frames.push(Frame::released(&self.unwritten));
        }
        if frames.is_empty() && other_frames.is_empty() {
            return;
        }
        let all_frames = || frames.iter().map(|(frame, _)| frame).chain(&other_frames);
        let size: usize = all_frames().map(Frame::size).sum();
        let started_at = Instant::now();
        let appended = self.log.append(all_frames());
        self.state.wrote_in(started_at.elapsed());
        let positions = match appended {
            Ok(positions) => positions,
            Err(error) => {
                self.note_failure("write", &error);
                reply(waiters, false);
                return;
            }
        };
        // Callers need not wait for the updates below.
        if self.storage.durability != Durability::Sync {
            reply(std::mem::take(&mut waiters), true);
        }
        self.metrics.written.inc_by(size as u64);
        self.unwritten.clear();
        acked.iter().for_each(|(seq, exporter)| self.log.note_acked(*seq, exporter));
        closed.into_iter().for_each(|(trace, verdict)| self.log.remember(trace, verdict));
        for ((frame, reasons), position) in frames.into_iter().zip(positions) {
            self.log.insert(frame.seq, position, frame.size() as u64, reasons);
        }
        if failing && !self.sync_failing {
            tracing::info!("the journal can be written again");
            self.state.failing.store(false, Ordering::Relaxed);
        }
        if !waiters.is_empty() {
            self.begin_sync(waiters);
        }
    }

    /// Sends the unsynced files to the sync thread, which answers `waiters` after the fsync.
    fn begin_sync(&mut self, waiters: Vec<Waiter>) {
        let sent = match self.log.begin_sync() {
            Ok((files, _)) if files.is_empty() => return reply(waiters, true),
            Ok((files, up_to)) => {
                let sent = self.syncer.request(SyncRequest { files, waiters, up_to });
                sent.inspect_err(|_| self.state.panicked.store(true, Ordering::Relaxed))
            }
            // Dropping `waiters` notifies their callers that nothing was stored.
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            self.sync_failed(&error);
        }
    }

    fn collect_sync_results(&mut self) {
        while let Ok(result) = self.syncer.results.try_recv() {
            match result {
                Ok(up_to) => {
                    self.sync_failing = false;
                    self.log.sync_completed(up_to);
                }
                Err(error) => self.sync_failed(&error),
            }
        }
    }

    fn sync_failed(&mut self, error: &io::Error) {
        self.log.abandon_segment();
        self.sync_failing = true;
        self.note_failure("sync", error);
    }

    fn note_failure(&mut self, operation: &'static str, error: &io::Error) {
        self.metrics.errors.inc();
        if !self.state.failing.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, operation, "cannot write the journal; requests are refused until it can be written");
        }
    }

    /// Frees space. After a failure, requests are accepted as long as they can be written.
    fn reclaim(&mut self) {
        let failing = self.state.failing.load(Ordering::Relaxed);
        if self.reclaim_failed.is_none_or(|at| at.elapsed() >= RETRY_INTERVAL) {
            let reclaimed = self.log.reclaim(failing);
            self.reclaim_failed = reclaimed.is_err().then(Instant::now);
            if let Err(error) = reclaimed {
                self.metrics.errors.inc();
                if let Some(suppressed) = self.throttle.allow("reclaim") {
                    tracing::error!(%error, suppressed, "cannot free space of the journal");
                }
            }
        }
        let bytes = self.log.bytes();
        // The flag is cleared below the size at which it is set, so that it does not change with every request.
        if bytes < self.max_request_log_bytes / 8 * 7 {
            self.state.full.store(false, Ordering::Relaxed);
        }
        let gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.metrics.bytes.set(gauge(bytes));
        self.metrics.live_bytes.set(gauge(self.log.live()));
        self.metrics.segments.set(gauge(self.log.segments() as u64));
    }
}
