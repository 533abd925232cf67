//! The runs that the paths API was asked about: where each run was, and the calls that were allowed.
//!
//! Positions belong to a trace, so that questions about several of its agents read it once. Allowed calls belong
//! to the run and the agent that the caller names. Everything that a caller or a trace can enlarge is counted in
//! bytes.

use std::sync::Arc;
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use verdict_eval::path::{PathPositions, PendingCall};
use verdict_otlp::trace::{ClosedTrace, TraceId};

use super::runtime_config::RuntimeConfig;
use crate::receive::paths::{MAX_NAME, PathQuestion, RunId};
use crate::reservation::{ByteLimit, Reservation};

/// Runs whose allowed calls are remembered, ...
const MAX_RUNS: u64 = 4096;
/// ... for this time after the last question.
const RUN_IDLE: Duration = Duration::from_secs(15 * 60);
/// Sessions whose trace is known.
const MAX_SESSIONS: u64 = 16_384;
/// Snapshots that are made and read at once.
const MAX_READING: usize = 2;
/// Calls of one run whose spans are awaited, ...
pub(super) const MAX_PENDING: usize = 256;
/// ... and their bytes: an average of 2 KiB.
const MAX_PENDING_BYTES: usize = 512 << 10;
/// Bytes of the awaited calls of all runs.
const MAX_ALL_PENDING: u64 = 32 << 20;
/// Bytes of the positions that are kept. Those of a trace that was pushed out are computed again.
const MAX_POSITIONS: u64 = 32 << 20;

/// A trace as its shard has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TraceState {
    /// No span has arrived, or the trace was forgotten.
    Absent,
    Closed,
    Open(TraceSizes),
}

/// Spans and log records of an open trace.
pub(super) type TraceSizes = (usize, usize);

/// An open trace to be read. Only the holder of a permit has one, so that their number is bounded.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub trace: ClosedTrace,
    pub sizes: TraceSizes,
    pub permit: OwnedSemaphorePermit,
}

/// A run, and the agent that the caller names.
type QueriedRunKey = (RunId, Option<String>);

/// The runs that were asked about.
#[derive(Debug)]
pub(super) struct QueriedRuns {
    /// By run and agent.
    runs: Cache<QueriedRunKey, Arc<Mutex<QueriedRun>>>,
    sessions: Cache<String, TraceId>,
    /// Where the runs of a trace were at the last question.
    pub positions: Cache<TraceId, Arc<KnownPositions>>,
    /// Held while a position is computed, so that questions that come meanwhile wait for it.
    read_locks: Cache<TraceId, Arc<Mutex<()>>>,
    permits: Arc<Semaphore>,
    pending: ByteLimit,
}

/// The calls of a run that were allowed and whose spans have not arrived.
#[derive(Debug)]
pub(super) struct QueriedRun {
    pub pending: Vec<PendingCall>,
    reservation: Reservation,
}

/// Where the runs of a trace were at the last question.
#[derive(Debug)]
pub(super) struct KnownPositions {
    pub sizes: TraceSizes,
    /// By whose tasks they were computed.
    pub config: Arc<RuntimeConfig>,
    pub positions: PathPositions,
}

impl QueriedRuns {
    pub(super) fn new() -> QueriedRuns {
        let bytes = |_: &TraceId, entry: &Arc<KnownPositions>| {
            u32::try_from(size_of::<KnownPositions>() + entry.positions.bytes()).unwrap_or(u32::MAX)
        };
        QueriedRuns {
            // The default policy may not admit a new run, whose allowed calls would be forgotten at once.
            runs: bounded(MAX_RUNS),
            sessions: bounded(MAX_SESSIONS),
            positions: Cache::builder()
                .weigher(bytes)
                .max_capacity(MAX_POSITIONS)
                .time_to_idle(RUN_IDLE)
                .build(),
            read_locks: bounded(MAX_RUNS),
            permits: Arc::new(Semaphore::new(MAX_READING)),
            pending: ByteLimit::new(MAX_ALL_PENDING),
        }
    }

    /// Notes the session of an open trace that has grown. A longer name cannot be asked about.
    pub(super) fn note_session(&self, session: &str, trace: TraceId) {
        if session.len() <= MAX_NAME {
            self.sessions.insert(session.to_owned(), trace);
        }
    }

    /// The trace of a run, if it is known.
    pub(super) fn trace_of(&self, run: &RunId) -> Option<TraceId> {
        match run {
            RunId::Trace(trace) => Some(*trace),
            RunId::Session(session) => self.sessions.get(session),
        }
    }

    pub(super) fn run(&self, question: &PathQuestion) -> Arc<Mutex<QueriedRun>> {
        let key = (question.run.clone(), question.hints.agent.clone());
        let new = || QueriedRun { pending: Vec::new(), reservation: self.pending.reserve(0) };
        self.runs.get_with(key, || Arc::new(Mutex::new(new())))
    }

    /// Bytes of the awaited calls of all runs.
    #[cfg(test)]
    pub(super) fn pending_bytes(&self) -> u64 {
        self.pending.reserved()
    }

    /// Held while the positions of a trace are computed.
    pub(super) fn read_lock(&self, trace: TraceId) -> Arc<Mutex<()>> {
        self.read_locks.get_with(trace, Arc::default)
    }

    /// Permission to make a snapshot; waits while too many are read.
    pub(super) async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }
}

impl QueriedRun {
    /// Whether a further call can be remembered.
    pub(super) fn has_room(&mut self) -> bool {
        let bytes = self.pending.iter().map(PendingCall::bytes).sum();
        let within = self.reservation.resize(bytes);
        within && bytes < MAX_PENDING_BYTES && self.pending.len() < MAX_PENDING
    }

    /// Remembers a call that was allowed. It may exceed the limits by its own size.
    pub(super) fn push(&mut self, call: PendingCall) {
        self.pending.push(call);
        self.has_room();
    }
}

/// A cache that evicts the entry that was used least recently.
fn bounded<K, V>(entries: u64) -> Cache<K, V>
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let builder = Cache::builder().max_capacity(entries).time_to_idle(RUN_IDLE);
    builder.eviction_policy(EvictionPolicy::lru()).build()
}
