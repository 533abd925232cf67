//! What was acknowledged and has not left yet, on disk: a log that is appended to, and taken up
//! again at the next start.
//!
//! | file | what it does |
//! |---|---|
//! | `config` | the section `storage` |
//! | `record` | records and their frames, byte by byte |
//! | `attempts` | which traces are being judged, and which ended the process before |
//! | `batch` | frames made into one write |
//! | `claims` | what holds a record |
//! | `disk` | segments as files of a folder that is ours alone |
//! | `log` | which records are held by what; appending, giving space back, and in `rewrite` what that takes |
//! | `recover` | what a folder holds at start, whatever became of it |
//! | `door` | who writes, and when |
//! | `writer` | many requests, one write, and then the answers |
//! | `force` | the thread that forces to the disk what was written, once for all that wait |
//! | `ticket` | how the log learns that an exporter has what it was given |
//! | `letters` | dead letters |
//!
//! # Layout
//!
//! ```text
//! <directory>/lock                       held while a process uses the folder
//! <directory>/<number, 16 hex>.log       segments; numbers only grow
//! <directory>/judging-<n>, suspects       see `attempts`
//! <directory>/dead-letter-*.pb           length and request, again and again
//!
//! segment = magic "otvjrnl\n", version u32, marker u32, CRC-32 of these; frames
//! frame   = marker u32, length u32, kind u8, seq u64, CRC-32 of the payload,
//!           CRC-32 of length to here; payload
//! ```
//!
//! All numbers are little endian. The marker is random for each segment, so that what a sender wrote
//! cannot pass for a frame when a damaged place is passed over. Room for the last segment is set aside
//! on the disk before it is written to, and given back at the end or, after a crash, at the next start.
//! Records:
//!
//! | record | holds | says |
//! |---|---|---|
//! | request | itself, once for every trace in it and once if it passes through | a request was acknowledged |
//! | verdict | itself | a trace closed: attributes and events, and which requests it came in |
//! | acked | nothing | an exporter has what a verdict, or a passing request, gave it |
//! | done | nothing | claims on records that hold no more, one by one or all that a record had left |
//! | closed | nothing | at the head of a segment: traces that have closed before it, and how |
//!
//! # Invariants
//!
//! - A sender is acknowledged after its record has been written, and with `durability: sync`
//!   forced to the disk. A request that could not be written is refused and leaves nothing behind.
//! - A verdict is written before it is first exported, so that a repeat does not disagree.
//! - A claim that is done is never held again: a rewritten copy has the claims that were left when
//!   it was written, and later copies stand for earlier ones.
//! - Whatever says "done" outlives what it speaks of: segments go oldest first. And with `sync` and
//!   `interval` a segment goes only once the disk has what says so, unless the disk is full.
//! - The log is at most about twice what is held, plus two segments and what is remembered of closed
//!   traces at the head of each, and never above `max_bytes` but for acknowledgements.
//! - Damage costs the damaged record. It never keeps the process from starting.
//!
//! Delivery is at least once: what an exporter took in the moment before a crash, and the log had
//! not heard of, is sent again after it, with the same ids and the same verdict. A request whose
//! acknowledgement was lost with the connection is delivered too.

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

mod attempts;
mod batch;
mod claims;
mod config;
mod disk;
mod door;
mod force;
mod letters;
mod log;
mod record;
mod recover;
#[cfg(test)]
mod tests;
mod ticket;
mod writer;

pub use attempts::Attempts;
pub use config::{Durability, Storage};
pub use letters::Letters;
pub use record::{Claim, Record, Sealed, Seq};
pub use recover::Recovered;
pub use ticket::{Stake, Ticket};

use claims::Claims;
use disk::{Disk, Folder};
use door::{Door, State};
use log::{Limits, Log};
use record::Frame;
use writer::{Command, Forcing, Writer};

/// Requests that may wait to be written, in KiB: more only wait longer for the same disk.
const WAITING_KIB: usize = 64 << 10;

/// The journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("storage.directory: cannot use {folder}: {why}")]
pub struct OpenError {
    folder: String,
    why: io::Error,
}

impl OpenError {
    /// Of a folder that cannot be used for this reason.
    pub fn new(folder: &Path, why: io::Error) -> OpenError {
        OpenError { folder: folder.display().to_string(), why }
    }
}

/// The running journal.
pub struct Journal {
    door: Door,
    waiting: Arc<Semaphore>,
    next: AtomicU64,
    state: Arc<State>,
    quiet: LogThrottle,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("state", &self.state).finish_non_exhaustive()
    }
}

/// A request that was to be kept. Dropped before it is [`Admitted::take`]n, it is given up again:
/// whoever sent it has not been told that it is ours, and will send it once more.
#[derive(Debug)]
pub struct Admitted {
    journal: Arc<Journal>,
    seq: Seq,
    taken: bool,
}

impl Admitted {
    /// Its record; what it is kept for is now somebody else's to see to.
    pub fn take(mut self) -> Seq {
        self.taken = true;
        self.seq
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if !self.taken {
            self.journal.door.leave(Command::GivenUp(self.seq));
        }
    }
}

impl Journal {
    /// Opens the folder, reads what it holds, and starts to write behind it. Of closed traces it
    /// remembers the newest `remember`, as far as they take no more than an eighth of a segment.
    ///
    /// # Errors
    /// The folder cannot be made, read or locked; never for what its files hold.
    pub fn open(
        folder: &Path,
        storage: &Storage,
        remember: usize,
        cells: &JournalMetrics,
    ) -> Result<(Arc<Journal>, Recovered), OpenError> {
        let failed = |why| OpenError::new(folder, why);
        let disk = Folder::open(folder).map_err(failed)?;
        Journal::on(disk, storage, remember, cells).map_err(failed)
    }

    fn on<D: Disk>(
        disk: D,
        storage: &Storage,
        remember: usize,
        cells: &JournalMetrics,
    ) -> io::Result<(Arc<Journal>, Recovered)> {
        let total = storage.max_bytes.0;
        let sync = storage.durability != Durability::None;
        let (log, recovered, next) =
            Log::open(disk, Limits { segment: storage.segment_bytes.0, total, sync, remember })?;
        cells.corrupt.inc_by(recovered.corrupt);
        cells
            .recovered
            .inc_by((recovered.open.len() + recovered.verdicts.len() + recovered.passes.len()) as u64);
        let state = Arc::new(State::default());
        let forcing = Forcing::start(cells)?;
        let writer = |commands| Writer {
            log,
            durability: storage.durability,
            interval: *storage.interval,
            admit_below: total / 4 * 3,
            total,
            state: Arc::clone(&state),
            cells: cells.clone(),
            commands,
            closed: None,
            unwritten: Vec::new(),
            synced: Instant::now(),
            unforceable: false,
            unclaimed: None,
            quiet: LogThrottle::default(),
            forcing,
        };
        let (door, thread) = Door::open(writer, &state)?;
        let journal = Journal {
            door,
            waiting: Arc::new(Semaphore::new(WAITING_KIB)),
            next: AtomicU64::new(next),
            state,
            quiet: LogThrottle::default(),
            thread: Mutex::new(Some(thread)),
        };
        Ok((Arc::new(journal), recovered))
    }

    /// True while nothing can be written, or the size cap is reached.
    pub fn pressure(&self) -> bool {
        self.state.failing.load(Ordering::Relaxed) || self.state.full.load(Ordering::Relaxed)
    }

    /// Names for so many records.
    fn name(&self, records: usize) -> Range<Seq> {
        let from = self.next.fetch_add(records as u64, Ordering::Relaxed);
        from..from + records as u64
    }

    /// Keeps a request for `claims`; returns once it may be acknowledged. `None`: it was not kept.
    pub async fn admit(
        self: &Arc<Self>,
        signal: Signal,
        claims: Vec<Claim>,
        body: Bytes,
    ) -> Option<Admitted> {
        let kib = (body.len() / 1024 + 1).min(WAITING_KIB);
        let room = Arc::clone(&self.waiting).acquire_many_owned(u32::try_from(kib).ok()?).await.ok()?;
        let seq = self.name(1).start;
        let frame = Frame::request(seq, signal, &claims, body);
        let (answer, kept) = oneshot::channel();
        let claims = Claims::new(claims);
        // There before the answer is: whoever asks may stop waiting at any moment.
        let admitted = Admitted { journal: Arc::clone(self), seq, taken: false };
        if !self.door.bring(Command::Admit { frame, claims, room, answer }) {
            return None;
        }
        kept.await.ok()?.then_some(admitted)
    }

    /// Keeps verdicts; returns once they may be exported, and their records in order. False: they were
    /// not kept, and after a crash the traces would be judged again.
    pub async fn seal(&self, verdicts: impl ExactSizeIterator<Item = &Sealed>) -> (Range<Seq>, bool) {
        let seqs = self.name(verdicts.len());
        let (answer, kept) = oneshot::channel();
        let (frames, closed): (Vec<Frame>, Vec<_>) = verdicts
            .zip(seqs.clone())
            .map(|(sealed, seq)| (Frame::verdict(seq, sealed), (sealed.trace, sealed.remembered())))
            .unzip();
        let first = closed.first().map(|(trace, _)| *trace);
        let sent = self.door.bring(Command::Seal { frames, closed, answer });
        let kept = sent && kept.await.unwrap_or(false);
        if let Some(trace) = first.filter(|_| !kept)
            && let Some(held_back) = self.quiet.allow("verdict")
        {
            let traces = seqs.end - seqs.start;
            tracing::warn!(%trace, traces, held_back, "verdicts could not be kept; after a crash these traces are judged anew");
        }
        (seqs, kept)
    }

    /// These claims hold no more. The writer learns of it with what it is given next, or a moment later.
    pub fn release(&self, claims: Vec<(Seq, Claim)>) {
        self.state.release([claims]);
        self.door.nudge();
    }

    fn acked(&self, seq: Seq, exporter: &str) {
        self.door.leave(Command::Acked(seq, exporter.to_owned()));
    }

    /// Reads a record that is held.
    pub async fn read(&self, seq: Seq) -> Option<Record> {
        let (answer, record) = oneshot::channel();
        if !self.door.bring(Command::Read(seq, answer)) {
            return None;
        }
        record.await.ok()?
    }

    /// Writes what waits, forces it to the disk, and ends the writer.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.door.close(Command::Close(done)) {
            let _ = closed.await;
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the journal's writer ended abnormally; this is a bug");
        }
    }
}
