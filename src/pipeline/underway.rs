//! Closed traces whose verdict is still being made: large ones, judged on threads of their own, and
//! those that wait for judges. Spans that come late for such a trace stay behind until it is there,
//! since their verdict adds to the first.

use std::collections::{HashMap, VecDeque};
use std::future::Future;

use tokio::task::{Id, JoinError, JoinSet};

use super::memory::Held;
use verdict_journal::Seq;
use verdict_otlp::trace::TraceId;
use verdict_otlp::trace::{ClosedTrace, PriorVerdict};

/// Such traces of one shard.
#[derive(Debug, Default)]
pub(super) struct Underway {
    large: JoinSet<Option<PriorVerdict>>,
    waiting: JoinSet<Option<PriorVerdict>>,
    traces: HashMap<Id, TraceId>,
    behind: HashMap<TraceId, Vec<Behind>>,
    done: VecDeque<Done>,
}

/// Late spans that stay behind.
#[derive(Debug)]
pub(super) struct Behind {
    pub closing: ClosedTrace,
    /// The journal's records that hold them, and no others.
    pub of: Vec<Seq>,
    /// What they are charged.
    pub held: Held,
}

/// A trace that is through; `None` if it is not judged, because the process stops or went wrong.
pub(super) type Done = (TraceId, Option<PriorVerdict>);

impl Underway {
    /// Judges a large trace elsewhere.
    pub fn large(&mut self, trace: TraceId, work: impl FnOnce() -> Option<PriorVerdict> + Send + 'static) {
        let id = self.large.spawn_blocking(work).id();
        self.begun(id, trace);
    }

    /// Lets a trace wait for its judges.
    pub fn waiting(
        &mut self,
        trace: TraceId,
        work: impl Future<Output = Option<PriorVerdict>> + Send + 'static,
    ) {
        let id = self.waiting.spawn(work).id();
        self.begun(id, trace);
    }

    fn begun(&mut self, id: Id, trace: TraceId) {
        self.traces.insert(id, trace);
        self.behind.entry(trace).or_default();
    }

    /// Whether the verdict of a trace is still being made.
    pub fn is_of(&self, trace: TraceId) -> bool {
        self.behind.contains_key(&trace)
    }

    /// Keeps late spans of such a trace until it is through.
    pub fn keep_behind(&mut self, late: Behind) {
        self.behind.entry(late.closing.trace).or_default().push(late);
    }

    /// What came late for a trace that is through.
    pub fn release(&mut self, trace: TraceId) -> Vec<Behind> {
        self.behind.remove(&trace).unwrap_or_default()
    }

    /// The next that is through; `None` when none is underway.
    pub async fn next(&mut self) -> Option<Done> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        loop {
            let joined = tokio::select! {
                Some(joined) = self.large.join_next_with_id() => joined,
                Some(joined) = self.waiting.join_next_with_id() => joined,
                else => return None,
            };
            if let Some(done) = self.joined(joined) {
                return Some(done);
            }
        }
    }

    /// Waits until fewer than `most` large traces are being judged. Whoever is through meanwhile
    /// comes out of [`Underway::next`].
    pub async fn room(&mut self, most: usize) {
        while self.large.len() >= most {
            let Some(joined) = self.large.join_next_with_id().await else { return };
            let done = self.joined(joined);
            self.done.extend(done);
        }
    }

    fn joined(&mut self, joined: Result<(Id, Option<PriorVerdict>), JoinError>) -> Option<Done> {
        let (id, verdict) = match joined {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "judging a trace ended abnormally; this is a bug");
                (error.id(), None)
            }
        };
        self.traces.remove(&id).map(|trace| (trace, verdict))
    }
}
