//! The journal: a write-ahead log of data that was acknowledged and has not been exported, read again at
//! the next start.
//!
//! | file | purpose |
//! |---|---|
//! | `config` | the section `storage` |
//! | `evaluation_markers` | the traces that are being evaluated, so that a trace that ends the process is quarantined |
//! | `record` | encoding and decoding of records and their frames |
//! | `write_buffer` | many frames as the slices of one vectored write |
//! | `retain` | the reasons for which one record is retained |
//! | `disk` | segments as files of a directory that one process owns |
//! | `log` | appending, which records are retained, reclaiming space; `log/rewrite` copies old records |
//! | `recover` | reading a directory at start, however the last process ended |
//! | `writer` | group commit: many commands, one write, then the replies |
//! | `writer_handle` | which thread executes the writer; its hand-over, threads and memory orderings |
//! | `sync` | the synchronisation primitives of `writer_handle`; a model test replaces them by those of loom |
//! | `syncer` | the thread that fsyncs, one fsync for all callers that wait |
//! | `delivery` | exporters' acknowledgements of a record |
//! | `dead_letters` | requests that a destination refused for good |
//!
//! # Layout
//!
//! ```text
//! <directory>/lock                       locked while a process uses the directory
//! <directory>/<number, 16 hex>.log       segments; numbers only grow
//! <directory>/judging-<n>, suspects      see `evaluation_markers`
//! <directory>/dead-letter-*.pb           length and request, repeated
//! <directory>/judge-spending             of the crate `verdict-judge`: the spending of judges
//!
//! segment = magic "otvjrnl\n", version u32 = 2, marker u32, CRC-32 of these; frames
//! frame   = marker u32, length u32, kind u8, seq u64, CRC-32 of the payload,
//!           CRC-32 of length to here; payload
//! ```
//!
//! All numbers are little endian. The marker is random for each segment, so that bytes which a sender
//! chose cannot pass for a frame when recovery searches for the next frame after a damaged one. The space
//! of a new segment is preallocated; the unused part is returned by `close` or, after a crash, at the
//! next start. Segments of version 1, whose checksums are CRC-32C, are read as well. Records:
//!
//! | record | retained by | states |
//! |---|---|---|
//! | request | each trace in it, and once more if it is passed through | a request was acknowledged |
//! | verdict | the verdict itself | a trace closed: its attributes and events, and the requests that it came in |
//! | acked | - | an exporter has delivered a verdict or a passed-through request |
//! | released | - | reasons for which records are no longer retained, singly or all that were left |
//! | closed | - | at the head of a segment: traces that closed before it, and their verdicts |
//!
//! # Invariants
//!
//! - A sender is acknowledged after its record was written and, with `durability: sync`, fsynced. A
//!   request that could not be written is refused, and is not recovered.
//! - A verdict is written before it is first exported, so that a repeated export has the same verdict.
//! - A released reason never retains a record again: a copy has the reasons that were left when it was
//!   written, and recovery uses the last copy.
//! - A release is deleted after the record that it names: segments are deleted oldest first. With `sync`
//!   and `interval` a segment is deleted once the releases of its records are on the disk, except while
//!   the disk cannot be written.
//! - The log takes at most about twice the retained bytes, plus two segments and the record of closed
//!   traces in each. Requests and verdicts are refused before it exceeds `max_bytes`; acknowledgements and
//!   releases, which free space, are written.
//! - A damaged record is lost alone. Damage never prevents the process from starting.
//! - The number of a record in a segment that could not be read is not used for another record, so that
//!   both are recovered once the segment can be read. Until then the segment counts against `max_bytes`.
//!
//! Delivery is at least once. An export whose acknowledgement was not written before a crash is repeated
//! with the same ids and the same verdict. A request whose sender did not receive the acknowledgement
//! because the connection broke is delivered as well.

#![deny(unreachable_pub)]

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::{Semaphore, oneshot};
use verdict_otlp::Signal;
use verdict_telemetry::{JournalMetrics, LogThrottle};

mod evaluation_markers;
mod config;
mod dead_letters;
mod delivery;
mod disk;
mod log;
mod record;
mod recover;
mod retain;
mod sync;
mod syncer;
#[cfg(test)]
mod tests;
mod write_buffer;
mod writer;
mod writer_handle;

pub use config::{Durability, Storage};
pub use dead_letters::DeadLetters;
pub use delivery::{AckLog, Delivery, ExporterAck};
pub use evaluation_markers::EvaluationMarkers;
pub use record::{JournalRecord, RetainReason, Seq, VerdictRecord};
pub use recover::Recovered;

use disk::{Directory, Disk};
use log::{Log, LogLimits};
use record::Frame;
use retain::RetainReasons;
use syncer::{Syncer, Waiter};
use writer::{JournalWriter, WriterCommand};
use writer_handle::{HandoverState, WriterHandle};

/// Maximum total size, in KiB, of the bodies of requests that wait for the writer. More requests would only wait
/// longer for the disk.
const MAX_WAITING_KIB: u32 = 64 << 10;

/// The journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("storage.directory: cannot use {directory}: {reason}")]
pub struct OpenError {
    directory: String,
    reason: io::Error,
}

impl OpenError {
    /// The error for a directory that cannot be used.
    pub fn new(directory: &Path, reason: io::Error) -> OpenError {
        OpenError { directory: directory.display().to_string(), reason }
    }
}

pub struct Journal {
    writer: WriterHandle<WriterCommand>,
    waiting_kib: Arc<Semaphore>,
    next_seq: AtomicU64,
    state: Arc<HandoverState>,
    throttle: LogThrottle,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("state", &self.state).finish_non_exhaustive()
    }
}

/// A request that was appended. Dropped without [`AppendedRequest::accept`], its record is discarded: the
/// sender received no acknowledgement and will send it again.
#[derive(Debug)]
pub struct AppendedRequest {
    journal: Arc<Journal>,
    seq: Seq,
    accepted: bool,
}

impl AppendedRequest {
    /// Accepts the request. Returns the number of its record, which the caller has to release.
    pub fn accept(mut self) -> Seq {
        self.accepted = true;
        self.seq
    }
}

impl Drop for AppendedRequest {
    fn drop(&mut self) {
        if !self.accepted {
            self.journal.writer.enqueue(WriterCommand::Discard(self.seq));
        }
    }
}

impl Journal {
    /// Opens the directory, reads it, and starts to append. Remembers the newest `remember` closed
    /// traces, or as many as fit into an eighth of a segment.
    ///
    /// # Errors
    /// The directory cannot be created, listed or locked. Contents that are damaged or cannot be read are no
    /// error.
    pub fn open(
        directory: &Path,
        storage: &Storage,
        remember: usize,
        metrics: &JournalMetrics,
    ) -> Result<(Arc<Journal>, Recovered), OpenError> {
        let disk = Directory::open(directory);
        let opened = disk.and_then(|disk| Journal::with_disk(disk, storage, remember, metrics));
        opened.map_err(|reason| OpenError::new(directory, reason))
    }

    fn with_disk<D: Disk>(
        disk: D,
        storage: &Storage,
        remember: usize,
        metrics: &JournalMetrics,
    ) -> io::Result<(Arc<Journal>, Recovered)> {
        let (segment_bytes, max_bytes) = (storage.segment_bytes.0, storage.max_bytes.0);
        let sync = storage.durability != Durability::None;
        let (log, recovered, next_seq) =
            Log::open(disk, LogLimits { segment_bytes, max_bytes, sync, max_closed: remember })?;
        metrics.max_bytes.set(i64::try_from(max_bytes).unwrap_or(i64::MAX));
        metrics.corrupt.inc_by(recovered.corrupt);
        let records = recovered.open.len() + recovered.verdicts.len() + recovered.forwarded.len();
        metrics.recovered.inc_by(records as u64);
        let state = Arc::new(HandoverState::default());
        let syncer = Syncer::start(metrics)?;
        let writer = |commands| JournalWriter {
            log,
            storage: storage.clone(),
            max_request_log_bytes: max_bytes / 4 * 3,
            state: Arc::clone(&state),
            metrics: metrics.clone(),
            commands,
            close_reply: None,
            unwritten: Vec::new(),
            last_sync: Instant::now(),
            sync_failing: false,
            reclaim_failed: None,
            throttle: LogThrottle::default(),
            syncer,
        };
        let (writer, thread) = WriterHandle::open(writer, &state)?;
        let journal = Journal {
            writer,
            waiting_kib: Arc::new(Semaphore::new(MAX_WAITING_KIB as usize)),
            next_seq: AtomicU64::new(next_seq),
            state,
            throttle: LogThrottle::default(),
            thread: Mutex::new(Some(thread)),
        };
        Ok((Arc::new(journal), recovered))
    }

    /// Whether the journal stores nothing at present: a thread panicked, the disk fails, or the size cap is reached.
    pub fn pressure(&self) -> bool {
        let state = &self.state;
        self.has_failed() || state.failing.load(Ordering::Relaxed) || state.full.load(Ordering::Relaxed)
    }

    /// Whether the writer or the sync thread panicked: nothing more is stored until the next start.
    pub fn has_failed(&self) -> bool {
        self.state.panicked.load(Ordering::Relaxed)
    }

    /// Reserves numbers for new records.
    fn allocate(&self, records: usize) -> Range<Seq> {
        let first = self.next_seq.fetch_add(records as u64, Ordering::Relaxed);
        first..first + records as u64
    }

    /// Appends a request, retained for `reasons`; returns once it may be acknowledged, or `None` if it was not
    /// stored. `forwarded` states that the spans of the request are exported on arrival.
    pub async fn append_request(
        self: &Arc<Self>,
        signal: Signal,
        reasons: Vec<RetainReason>,
        forwarded: bool,
        body: Bytes,
    ) -> Option<AppendedRequest> {
        let kib =
            u32::try_from(body.len() / 1024 + 1).map_or(MAX_WAITING_KIB, |kib| kib.min(MAX_WAITING_KIB));
        let permit = Arc::clone(&self.waiting_kib).acquire_many_owned(kib).await.ok()?;
        let seq = self.allocate(1).start;
        let frame = Frame::request(seq, signal, &reasons, forwarded, body);
        let (reply, stored) = oneshot::channel();
        let reasons = RetainReasons::new(reasons);
        let waiter = Waiter { reply, _permit: Some(permit) };
        // Created before the command is sent, so that the record is discarded if this future is dropped at an await.
        let appended = AppendedRequest { journal: Arc::clone(self), seq, accepted: false };
        if !self.writer.submit(WriterCommand::AppendRequest(frame, reasons, waiter)) {
            return None;
        }
        stored.await.ok()?.then_some(appended)
    }

    /// Appends verdicts; returns the numbers of their records in order once they may be exported, and whether they
    /// were stored. If not, the traces are evaluated again after a crash.
    pub async fn append_verdicts(
        &self,
        verdicts: impl ExactSizeIterator<Item = &VerdictRecord>,
    ) -> (Range<Seq>, bool) {
        let seqs = self.allocate(verdicts.len());
        let (reply, stored) = oneshot::channel();
        let (frames, closed): (Vec<Frame>, Vec<_>) = verdicts
            .zip(seqs.clone())
            .map(|(verdict, seq)| {
                (Frame::verdict(seq, verdict, false), (verdict.trace, verdict.prior_verdict()))
            })
            .unzip();
        let first = closed.first().map(|(trace, _)| *trace);
        let waiter = Waiter { reply, _permit: None };
        let sent = self.writer.submit(WriterCommand::AppendVerdicts(frames, closed, waiter));
        let stored = sent && stored.await.unwrap_or(false);
        if !stored && let Some(suppressed) = self.throttle.allow("verdict") {
            let (trace, traces) = (first.map(tracing::field::display), seqs.end - seqs.start);
            tracing::warn!(
                trace,
                traces,
                suppressed,
                "cannot store verdicts; after a crash these traces are evaluated again"
            );
        }
        (seqs, stored)
    }

    /// Releases records. The releases are written with the next write, or separately after about 10 ms.
    pub fn release(&self, releases: Vec<(Seq, RetainReason)>) {
        self.state.release([releases]);
        self.writer.wake();
    }

    /// Reads a retained record; `None` if the record is not retained or cannot be read.
    pub async fn read(&self, seq: Seq) -> Option<JournalRecord> {
        let (reply, record) = oneshot::channel();
        if !self.writer.submit(WriterCommand::Read(seq, reply)) {
            return None;
        }
        record.await.ok()?
    }

    /// Writes and fsyncs everything, and ends the journal thread.
    pub async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.writer.close(WriterCommand::Close(reply)) {
            let _ = closed.await;
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the journal thread panicked; this is a bug");
        }
    }
}
