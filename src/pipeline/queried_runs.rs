//! The runs that the paths API was asked about: where each run was, and the calls that were allowed.

use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use moka::sync::Cache;
use tokio::sync::{Mutex, Semaphore};
use verdict_eval::path::{PathPositions, PendingCall};
use verdict_otlp::trace::{ClosedTrace, TraceId};

use super::runtime_config::RuntimeConfig;
use crate::receive::paths::{PathQuestion, RunId};

/// Runs whose allowed calls are remembered, ...
const MAX_RUNS: u64 = 4096;
/// ... for this time after the last question.
const RUN_IDLE: Duration = Duration::from_secs(15 * 60);
/// Sessions whose trace is known.
const MAX_SESSIONS: u64 = 16_384;
/// Snapshots that are read at once.
const MAX_READING: usize = 2;

/// A trace as its shard has it.
#[derive(Debug)]
pub(super) enum TraceState {
    /// No span has arrived, or the trace was forgotten.
    Absent,
    Closed,
    /// It is open, with the sizes that the question names.
    Same,
    Open(ClosedTrace, TraceSizes),
}

/// Spans and log records of an open trace.
pub(super) type TraceSizes = (usize, usize);

/// A run, and the agent that the caller names.
type RunKey = (RunId, Option<String>);

/// The runs that were asked about.
#[derive(Debug)]
pub(super) struct PathRuns {
    /// By run and agent.
    runs: StdMutex<Cache<RunKey, Arc<Mutex<Run>>>>,
    pub sessions: Cache<String, TraceId>,
    pub reading: Arc<Semaphore>,
}

#[derive(Debug, Default)]
pub(super) struct Run {
    pub pending: Vec<PendingCall>,
    pub known: Option<KnownPosition>,
}

/// Where a run was at the last question.
#[derive(Debug)]
pub(super) struct KnownPosition {
    pub trace: TraceId,
    pub sizes: TraceSizes,
    /// By whose tasks it was computed.
    pub config: Arc<RuntimeConfig>,
    pub positions: Arc<PathPositions>,
}

impl PathRuns {
    pub(super) fn new() -> PathRuns {
        let runs = Cache::builder().max_capacity(MAX_RUNS).time_to_idle(RUN_IDLE).build();
        PathRuns {
            runs: StdMutex::new(runs),
            sessions: Cache::builder().max_capacity(MAX_SESSIONS).time_to_idle(RUN_IDLE).build(),
            reading: Arc::new(Semaphore::new(MAX_READING)),
        }
    }

    /// Notes the session of an open trace that has grown.
    pub(super) fn note_session(&self, session: &str, trace: TraceId) {
        self.sessions.insert(session.to_owned(), trace);
    }

    pub(super) fn run(&self, question: &PathQuestion) -> Arc<Mutex<Run>> {
        let key = (question.run.clone(), question.hints.agent.clone());
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = runs.get(&key) {
            return run;
        }
        let run = Arc::<Mutex<Run>>::default();
        runs.insert(key, Arc::clone(&run));
        run
    }
}
