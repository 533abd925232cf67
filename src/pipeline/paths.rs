//! Answers questions before a call: finds the run, computes the position of the run in its automaton, and remembers the
//! allowed calls until their spans arrive.
//!
//! In: a question of the paths API. Out: a decision. The shard that owns the trace first sends the sizes of the
//! trace; it sends a snapshot only if the trace has grown since the last question, and a permit is free. The questions
//! of one run are answered one after another, so that the allowed calls of each are known to the next.

use std::hash::BuildHasher as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use verdict_eval::path::{PathDecision, PathPositions};
use verdict_otlp::trace::TraceId;

use super::Pipeline;
use super::budget::EVALUATED_FACTOR;
use super::queried_runs::{KnownPositions, QueriedRuns, Snapshot, TraceState};
use super::runtime_config::RuntimeConfig;
use super::shard::ShardMessage;
use crate::receive::Refused;
use crate::receive::paths::{PathDecider, PathQuestion, PathReply, PathReplyFuture};

/// Timeout of a reply, for which a gateway waits.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay after which the caller should retry.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl Pipeline {
    /// Answers a question, without a timeout.
    async fn path_reply(&self, question: PathQuestion) -> Result<PathReply, Refused> {
        let Some(runs) = &self.shared.queried_runs else { return Err(Refused::ShuttingDown) };
        let trace = runs.trace_of(&question.run);
        let run = runs.run(&question);
        let mut run = run.lock().await;
        let config = self.shared.config.load_full();
        let no_positions = PathPositions::default();
        let trace_positions = match trace {
            Some(trace) => self.known_positions(runs, trace, &config).await?,
            None => TracePositions::Absent,
        };
        let (trace, positions) = match &trace_positions {
            TracePositions::Absent => (None, &no_positions),
            TracePositions::Open(cached) => (trace, &cached.positions),
            TracePositions::Closed => return Ok(PathReply::unknown("trace_closed", trace)),
            TracePositions::Unreadable => return Ok(PathReply::unknown("trace_unreadable", trace)),
        };
        let PathQuestion { hints, call, .. } = question;
        positions.remove_arrived(&hints, &mut run.pending);
        let is_repeated = run.pending.iter().any(|other| other.repeats_call(&call));
        if !is_repeated && !run.has_room() {
            return Ok(PathReply::unknown("too_many_pending", trace));
        }
        let answer = config.evaluator.path_decision(positions, &hints, &run.pending, &call);
        if answer.decision == PathDecision::Allowed && !is_repeated {
            let allowed = config.evaluator.pending_call(positions, &hints, &run.pending, call);
            run.push(allowed);
        }
        Ok(PathReply::new(answer, trace, run.pending.len()))
    }

    /// The positions of the runs of a trace; computed again if spans have arrived or the configuration has changed.
    async fn known_positions(
        &self,
        runs: &QueriedRuns,
        trace: TraceId,
        config: &Arc<RuntimeConfig>,
    ) -> Result<TracePositions, Refused> {
        let read_lock = runs.read_lock(trace).lock_owned().await;
        let state = self.ask_shard(trace, |reply| ShardMessage::State(trace, reply)).await?;
        let sizes = match state {
            TraceState::Absent => return Ok(TracePositions::Absent),
            TraceState::Closed => return Ok(TracePositions::Closed),
            TraceState::Open(sizes) => sizes,
        };
        let cached = runs.positions.get(&trace).filter(|cached| Arc::ptr_eq(&cached.config, config));
        if let Some(cached) = cached.filter(|cached| cached.sizes == sizes) {
            return Ok(TracePositions::Open(cached));
        }
        if self.shared.markers.is_suspect_or_quarantined(trace) {
            return Ok(TracePositions::Unreadable);
        }
        let permit = runs.read_permit().await.ok_or(Refused::ShuttingDown)?;
        let snapshot = self.ask_shard(trace, |reply| ShardMessage::Snapshot(trace, permit, reply)).await?;
        let Some(Snapshot { trace: snapshot, sizes, permit }) = snapshot else {
            return Ok(TracePositions::Closed);
        };
        let reservation = self.shared.budget.reserve_trace(&snapshot, EVALUATED_FACTOR);
        let (config, markers) = (Arc::clone(config), Arc::clone(&self.shared.markers));
        let positions = runs.positions.clone();
        // The blocking task outlives the caller's timeout, and its result is cached for the next question.
        let read_task = tokio::task::spawn_blocking(move || {
            let _held_until_read = (read_lock, permit, reservation);
            // The content is untrusted: a panic leaves the question without an answer.
            let compute = AssertUnwindSafe(|| config.evaluator.path_positions(snapshot));
            let trace_positions = markers.run(trace, || catch_unwind(compute).ok())?;
            let known = Arc::new(KnownPositions { sizes, config, positions: trace_positions });
            positions.insert(trace, Arc::clone(&known));
            Some(known)
        });
        Ok(read_task.await.ok().flatten().map_or(TracePositions::Unreadable, TracePositions::Open))
    }

    /// Sends a message to the shard that owns the trace, and waits for the reply.
    pub(super) async fn ask_shard<T>(
        &self,
        trace: TraceId,
        message: impl FnOnce(oneshot::Sender<T>) -> ShardMessage,
    ) -> Result<T, Refused> {
        let inboxes = self.inboxes();
        let shard = self.hasher.hash_one(trace) as usize % inboxes.len().max(1);
        let inbox = inboxes.get(shard).ok_or(Refused::ShuttingDown)?;
        let (sender, reply) = oneshot::channel();
        inbox.send(message(sender)).await.map_err(|_| Refused::ShuttingDown)?;
        reply.await.map_err(|_| Refused::ShuttingDown)
    }
}

/// The positions of the runs of a trace.
enum TracePositions {
    /// No span of the trace has arrived.
    Absent,
    Open(Arc<KnownPositions>),
    Closed,
    /// Reading the trace panicked, or the process died earlier while the trace was read.
    Unreadable,
}

impl PathDecider for Pipeline {
    fn decide(&self, question: PathQuestion) -> PathReplyFuture<'_> {
        Box::pin(async move {
            let reply = timeout(REPLY_TIMEOUT, self.path_reply(question)).await;
            let reply = reply.unwrap_or(Err(Refused::Overloaded { retry: RETRY_DELAY }))?;
            self.shared.meter.telemetry.traces.path_decision(reply.decision).inc();
            Ok(reply)
        })
    }
}

#[cfg(test)]
mod tests;
