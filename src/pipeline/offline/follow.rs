//! Evaluates the traces of a recording while it is read.
//!
//! In: parsed requests. Out: evaluated traces in the order in which they closed, late spans as revisions. In memory are
//! the open traces, and a bounded number of closed ones: while enough groups of them are evaluated, nothing more is
//! read. Evaluation is a task for each group, so that reading and evaluating use several cores.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;

use futures_util::stream::{FuturesOrdered, StreamExt as _};
use tokio::sync::mpsc;
use verdict_config::Period;
use verdict_otlp::trace::{CloseReason, ClosedTrace, PriorVerdict};

use super::{Closing, EvaluatedRecording, Parsed, RecordingEvaluation, Stages, unlimited};
use crate::assemble::{Assembler, Close, SPAN_OVERHEAD};

/// Groups that are evaluated or have been, for each core: one while the results of another are written.
const GROUPS_PER_CORE: usize = 2;
/// A group ends at this number of bytes, ...
const GROUP_BYTES: usize = 256 << 10;
/// ... so that starting its task costs little compared with evaluating it.
const GROUP_TRACES: usize = 64;

/// A hundred years in seconds, for traces that close otherwise.
const NEVER: u64 = 100 * 365 * 86_400;

/// Closed traces that are evaluated together, and their bytes.
#[derive(Default)]
struct TraceBatch {
    closed: Vec<ClosedTrace>,
    bytes: usize,
}

/// Evaluated traces; late spans are evaluated after their trace.
struct Done {
    evaluated: Vec<EvaluatedRecording>,
    late: Vec<ClosedTrace>,
    bytes: usize,
}

impl RecordingEvaluation {
    /// Evaluates the traces of requests that [`RecordingEvaluation::parser`] has read, as they close. `each` is
    /// called in the order in which they close. Must run on a Tokio runtime with threads. Returns the largest number
    /// of bytes that were in memory: of open traces, and of those whose evaluation had not ended.
    pub async fn follow(
        &mut self,
        mut closing: Closing,
        mut requests: mpsc::Receiver<Parsed>,
        mut each: impl FnMut(EvaluatedRecording),
    ) -> usize {
        self.assembler = Assembler::new(self.close_for(&closing));
        let (mut waiting, mut running) = (VecDeque::new(), FuturesOrdered::new());
        let (mut closed_bytes, mut most_bytes, mut is_open) = (0, 0, true);
        let alone = self.stages.asks_judges();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let most_running = if alone { super::CONCURRENT_TRACES } else { cores * GROUPS_PER_CORE };
        loop {
            // The last group may grow.
            let growing = usize::from(is_open && !alone);
            while running.len() < most_running && waiting.len() > growing {
                let work = waiting.pop_front().unwrap_or_default();
                running.push_back(start(Arc::clone(&self.stages), work));
            }
            tokio::select! {
                biased;
                Some(done) = running.next(), if !running.is_empty() => {
                    closed_bytes -= done.bytes;
                    self.deliver(done, &mut each);
                }
                parsed = requests.recv(), if is_open && running.len() < most_running => {
                    is_open = parsed.is_some();
                    let closed = match parsed {
                        Some(parsed) => self.close_with(&mut closing, parsed),
                        None => self.assembler.close_all(CloseReason::EndOfInput),
                    };
                    closed_bytes += closed.iter().map(weight).sum::<usize>();
                    let open = self.assembler.bytes() + self.assembler.spans() * SPAN_OVERHEAD;
                    most_bytes = most_bytes.max(closed_bytes + open);
                    closed.into_iter().for_each(|closed| add(closed, alone, &mut waiting));
                }
                else => return most_bytes,
            }
        }
    }

    /// The times of traces. None is cut because of its size: it is recorded already.
    fn close_for(&self, closing: &Closing) -> Close {
        let (mut close, never) = (unlimited(self.close.clone()), Period::secs(NEVER));
        if matches!(closing, Closing::AfterLastSpans(_)) {
            close.by_service.clear();
            (close.quiet, close.idle, close.remote_idle, close.max_age) = (never, never, never, never);
        }
        close
    }

    /// Adds a request, and returns what is complete with it.
    fn close_with(&mut self, closing: &mut Closing, parsed: Parsed) -> Vec<ClosedTrace> {
        let (end, spans) = (parsed.end, parsed.groups.iter().flat_map(|group| &group.spans));
        let now = self.clock.advance(end.file, spans.map(|span| span.end).max().unwrap_or(0));
        if let Closing::AfterLastSpans(ends) = closing {
            parsed.groups.iter().for_each(|group| ends.opened(group.trace));
            parsed.logs.iter().for_each(|record| ends.opened(record.trace));
            self.assemble(parsed);
            self.assembler.close_ended(ends.ended(end));
        } else {
            self.assemble(parsed);
        }
        self.assembler.poll(now)
    }

    fn deliver(&mut self, done: Done, each: &mut impl FnMut(EvaluatedRecording)) {
        done.evaluated.into_iter().for_each(|evaluated| self.deliver_one(evaluated, each));
        for mut late in done.late {
            late.prior_verdict = self.assembler.remembered(late.trace).or(late.prior_verdict);
            let evaluated = self.stages.by_rules(late);
            self.deliver_one(evaluated, each);
        }
    }

    fn deliver_one(&mut self, evaluated: EvaluatedRecording, each: &mut impl FnMut(EvaluatedRecording)) {
        let (trace, summary) = (evaluated.trace.trace.tree.id, &evaluated.trace.summary);
        // Not again if it was forgotten meanwhile, since its next spans would be late.
        if self.assembler.remembered(trace).is_some() {
            let verdict = PriorVerdict { passed: summary.passed, revision: summary.revision };
            self.assembler.remember(trace, verdict);
        }
        each(evaluated);
    }
}

/// The bytes of a trace, as they were counted while it was open.
fn weight(closed: &ClosedTrace) -> usize {
    closed.bytes + closed.spans.len() * SPAN_OVERHEAD
}

/// Adds a trace to the last group that waits, or to a new one: alone if judges are asked.
fn add(closed: ClosedTrace, alone: bool, waiting: &mut VecDeque<TraceBatch>) {
    let bytes = weight(&closed);
    let fits = |work: &TraceBatch| work.bytes + bytes <= GROUP_BYTES && work.closed.len() < GROUP_TRACES;
    if alone || !waiting.back().is_some_and(fits) {
        waiting.push_back(TraceBatch::default());
    }
    if let Some(last) = waiting.back_mut() {
        last.bytes += bytes;
        last.closed.push(closed);
    }
}

fn start(stages: Arc<Stages>, work: TraceBatch) -> impl Future<Output = Done> {
    let is_late = |closed: &ClosedTrace| closed.close_reason == CloseReason::Late;
    let (late, closed): (Vec<_>, Vec<_>) = work.closed.into_iter().partition(is_late);
    let evaluated = tokio::spawn(async move {
        let mut evaluated = Vec::with_capacity(closed.len());
        for closed in closed {
            evaluated.push(stages.evaluate(closed).await);
        }
        evaluated
    });
    async move {
        // Nothing cancels it: it panicked, as it does without a task of its own.
        let evaluated = evaluated.await.unwrap_or_else(|error| resume_unwind(error.into_panic()));
        Done { evaluated, late, bytes: work.bytes }
    }
}
