//! The runs that the paths API was asked about: the position of each run at the last question, and its allowed calls.
//!
//! Positions are cached by trace, so that questions about several of its agents read the trace once. Allowed calls are
//! remembered by the run and the agent that the caller names. All state that a caller or a trace can enlarge is limited
//! in bytes.

use std::sync::Arc;
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use verdict_eval::path::{PathPositions, PendingCall};
use verdict_otlp::trace::{ClosedTrace, TraceId};

use super::runtime_config::RuntimeConfig;
use crate::receive::paths::{MAX_NAME_BYTES, PathQuestion, RunId};
use crate::reservation::{ByteLimit, Reservation};

/// Maximum number of runs whose allowed calls are remembered.
const MAX_RUNS: u64 = 4096;
/// Time after the last question about a run for which its allowed calls are remembered.
const MAX_RUN_IDLE: Duration = Duration::from_secs(15 * 60);
/// Maximum number of sessions whose trace is remembered.
const MAX_SESSIONS: u64 = 16_384;
/// Maximum number of snapshots that are made and read at once.
const MAX_CONCURRENT_READS: usize = 2;
/// Maximum number of allowed calls of one run whose spans have not arrived.
pub(super) const MAX_PENDING_CALLS: usize = 256;
/// Maximum bytes of the allowed calls of one run whose spans have not arrived: 2 KiB per call on average.
const MAX_PENDING_BYTES: usize = 512 << 10;
/// Maximum bytes of the allowed calls of all runs whose spans have not arrived.
const MAX_TOTAL_PENDING_BYTES: u64 = 32 << 20;
/// Maximum bytes of cached positions. Evicted positions are computed again.
const MAX_POSITION_BYTES: u64 = 32 << 20;

/// The state of a trace in its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TraceState {
    /// No span has arrived, or the trace was forgotten.
    Absent,
    Closed,
    Open(TraceSizes),
}

/// The numbers of spans and log records of an open trace.
pub(super) type TraceSizes = (usize, usize);

/// An open trace that is read. It contains a permit, so that the number of snapshots is bounded.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub trace: ClosedTrace,
    pub sizes: TraceSizes,
    pub permit: OwnedSemaphorePermit,
}

/// A run, and the agent that the caller names.
type QueriedRunKey = (RunId, Option<String>);

/// The state of the runs that were asked about.
#[derive(Debug)]
pub(super) struct QueriedRuns {
    /// The allowed calls of each run and agent.
    runs: Cache<QueriedRunKey, Arc<Mutex<QueriedRun>>>,
    /// The trace of each session that received spans last.
    sessions: Cache<String, TraceId>,
    /// The positions of the runs of each trace at the last question.
    pub positions: Cache<TraceId, Arc<KnownPositions>>,
    /// Locked while the positions of a trace are computed, so that concurrent questions wait for the result.
    read_locks: Cache<TraceId, Arc<Mutex<()>>>,
    read_permits: Arc<Semaphore>,
    /// Limits the bytes of pending calls of all runs.
    pending_limit: ByteLimit,
}

/// The calls of a run that were allowed and whose spans have not arrived.
#[derive(Debug)]
pub(super) struct QueriedRun {
    pub pending: Vec<PendingCall>,
    reservation: Reservation,
}

/// The positions of the runs of a trace at the last question.
#[derive(Debug)]
pub(super) struct KnownPositions {
    pub sizes: TraceSizes,
    /// The configuration with the tasks by which they were computed.
    pub config: Arc<RuntimeConfig>,
    pub positions: PathPositions,
}

impl QueriedRuns {
    pub(super) fn new() -> QueriedRuns {
        let bytes = |_: &TraceId, entry: &Arc<KnownPositions>| {
            u32::try_from(size_of::<KnownPositions>() + entry.positions.bytes()).unwrap_or(u32::MAX)
        };
        QueriedRuns {
            // The default policy of the cache may reject a new entry, so that the allowed calls of the run would be
            // lost.
            runs: lru_cache(MAX_RUNS),
            sessions: lru_cache(MAX_SESSIONS),
            positions: Cache::builder()
                .weigher(bytes)
                .max_capacity(MAX_POSITION_BYTES)
                .time_to_idle(MAX_RUN_IDLE)
                .build(),
            read_locks: lru_cache(MAX_RUNS),
            read_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)),
            pending_limit: ByteLimit::new(MAX_TOTAL_PENDING_BYTES),
        }
    }

    /// Records the session of an open trace that has grown. Names above [`MAX_NAME_BYTES`] are ignored, since questions
    /// cannot contain them.
    pub(super) fn note_session(&self, session: &str, trace: TraceId) {
        if session.len() <= MAX_NAME_BYTES {
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

    /// The state of the run that a question is about.
    pub(super) fn run(&self, question: &PathQuestion) -> Arc<Mutex<QueriedRun>> {
        let key = (question.run.clone(), question.hints.agent.clone());
        let new = || QueriedRun { pending: Vec::new(), reservation: self.pending_limit.reserve(0) };
        self.runs.get_with(key, || Arc::new(Mutex::new(new())))
    }

    /// Bytes of the pending calls of all runs.
    #[cfg(test)]
    pub(super) fn pending_bytes(&self) -> u64 {
        self.pending_limit.reserved()
    }

    /// The lock for computing the positions of a trace.
    pub(super) fn read_lock(&self, trace: TraceId) -> Arc<Mutex<()>> {
        self.read_locks.get_with(trace, Arc::default)
    }

    /// A permit for a snapshot. Waits while [`MAX_CONCURRENT_READS`] are read.
    pub(super) async fn read_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.read_permits).acquire_owned().await.ok()
    }
}

impl QueriedRun {
    /// Reserves the bytes of the pending calls, and returns whether a further call can be remembered.
    pub(super) fn has_room(&mut self) -> bool {
        let bytes = self.pending.iter().map(PendingCall::bytes).sum();
        let is_within_limit = self.reservation.resize(bytes);
        is_within_limit && bytes < MAX_PENDING_BYTES && self.pending.len() < MAX_PENDING_CALLS
    }

    /// Remembers a call that was allowed. It may exceed the limits by its own size.
    pub(super) fn push(&mut self, call: PendingCall) {
        self.pending.push(call);
        self.has_room();
    }
}

/// A cache that evicts the least recently used entry.
fn lru_cache<K, V>(entries: u64) -> Cache<K, V>
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let builder = Cache::builder().max_capacity(entries).time_to_idle(MAX_RUN_IDLE);
    builder.eviction_policy(EvictionPolicy::lru()).build()
}
