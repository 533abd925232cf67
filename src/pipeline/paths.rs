//! Answers questions before a call: finds the run, computes where it is, and remembers the calls that were
//! allowed until their spans arrive.
//!
//! In: a question of the paths API. Out: a decision. The shard that owns the trace sends a snapshot only if the
//! trace has grown since the last question; otherwise the position that was computed then applies. The
//! questions of one run are answered one after another, so that two calls that are asked about at once
//! count for each other.

use std::hash::BuildHasher as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use verdict_eval::path::{PathDecision, PathPositions};
use verdict_otlp::trace::TraceId;

use super::Pipeline;
use super::path_runs::{KnownPosition, PathRuns, Run, TraceSizes, TraceState};
use super::runtime_config::RuntimeConfig;
use super::shard::Work;
use crate::receive::Refused;
use crate::receive::paths::{PathDecider, PathQuestion, PathReply, ReplyFuture, RunId};

/// Calls of one run whose spans are awaited. Further calls cannot be decided.
const MAX_PENDING: usize = 256;
/// A gateway waits for the answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(1);

impl Pipeline {
    async fn path_reply(&self, question: PathQuestion) -> Result<PathReply, Refused> {
        let Some(paths) = &self.shared.paths else { return Err(Refused::ShuttingDown) };
        let trace = match &question.run {
            RunId::Trace(trace) => Some(*trace),
            RunId::Session(session) => paths.sessions.get(session),
        };
        let run = paths.run(&question);
        let mut run = run.lock().await;
        let config = self.shared.config.load_full();
        let (trace, positions) = match self.position(paths, &mut run, trace, &config).await? {
            Position::Of(trace, positions) => (trace, positions),
            Position::Closed(trace) => return Ok(PathReply::unknown("trace_closed", Some(trace))),
            Position::Unreadable(trace) => return Ok(PathReply::unknown("trace_unreadable", Some(trace))),
        };
        let PathQuestion { hints, call, .. } = question;
        let Run { pending, .. } = &mut *run;
        positions.settle(&hints, pending);
        let again = pending.iter().any(|other| other.is(&call));
        if pending.len() >= MAX_PENDING && !again {
            return Ok(PathReply::unknown("too_many_pending", trace));
        }
        let answer = config.evaluator.path_decision(&positions, &hints, pending, &call);
        if answer.decision == PathDecision::Allowed && !again {
            let allowed = positions.pending(&hints, pending, call);
            pending.push(allowed);
        }
        Ok(PathReply::new(answer, trace, pending.len()))
    }

    /// Where the run is, computed again if spans have arrived or the configuration has changed.
    async fn position(
        &self,
        paths: &PathRuns,
        run: &mut Run,
        trace: Option<TraceId>,
        config: &Arc<RuntimeConfig>,
    ) -> Result<Position, Refused> {
        let Some(trace) = trace else { return Ok(Position::Of(None, Arc::default())) };
        let known = run.known.as_ref();
        let known = known.filter(|known| known.trace == trace && Arc::ptr_eq(&known.config, config));
        match self.state_of(trace, known.map(|known| known.sizes)).await? {
            TraceState::Absent => Ok(Position::Of(None, Arc::default())),
            TraceState::Closed => Ok(Position::Closed(trace)),
            TraceState::Same => {
                let positions = known.map(|known| Arc::clone(&known.positions)).unwrap_or_default();
                Ok(Position::Of(Some(trace), positions))
            }
            TraceState::Open(snapshot, sizes) => {
                if self.shared.attempts.is_noted(trace) {
                    return Ok(Position::Unreadable(trace));
                }
                let permit = Arc::clone(&paths.reading).acquire_owned().await;
                let (reader, attempts) = (Arc::clone(config), Arc::clone(&self.shared.attempts));
                let read = tokio::task::spawn_blocking(move || {
                    let _permit = permit;
                    // The content is untrusted: a panic leaves the question without an answer.
                    let read = AssertUnwindSafe(|| reader.evaluator.path_positions(snapshot));
                    attempts.run(trace, || catch_unwind(read).ok())
                });
                let Ok(Some(positions)) = read.await else { return Ok(Position::Unreadable(trace)) };
                let positions = Arc::new(positions);
                let config = Arc::clone(config);
                run.known = Some(KnownPosition { trace, sizes, config, positions: Arc::clone(&positions) });
                Ok(Position::Of(Some(trace), positions))
            }
        }
    }

    /// Asks the shard that owns the trace.
    async fn state_of(&self, trace: TraceId, known: Option<TraceSizes>) -> Result<TraceState, Refused> {
        let inboxes = self.inboxes();
        let shard = self.hasher.hash_one(trace) as usize % inboxes.len().max(1);
        let inbox = inboxes.get(shard).ok_or(Refused::ShuttingDown)?;
        let (reply, answer) = oneshot::channel();
        inbox.send(Work::Look(trace, known, reply)).await.map_err(|_| Refused::ShuttingDown)?;
        answer.await.map_err(|_| Refused::ShuttingDown)
    }
}

/// The position of a run.
enum Position {
    /// Its trace, if spans have arrived.
    Of(Option<TraceId>, Arc<PathPositions>),
    Closed(TraceId),
    /// Reading the trace failed, or did before.
    Unreadable(TraceId),
}

impl PathDecider for Pipeline {
    fn decide(&self, question: PathQuestion) -> ReplyFuture<'_> {
        Box::pin(async move {
            let reply = timeout(ANSWER_TIME, self.path_reply(question)).await;
            let reply = reply.unwrap_or(Err(Refused::Overloaded { retry: RETRY }))?;
            self.shared.meter.telemetry.traces.path_decision(reply.decision).inc();
            Ok(reply)
        })
    }
}
