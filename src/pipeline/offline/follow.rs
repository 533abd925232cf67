//! Evaluates the traces of a recording while it is read.
//!
//! In: parsed requests. Out: evaluated traces in the order in which they closed, late spans as revisions. The open
//! traces and a bounded number of closed ones are in memory: while the maximum number of batches is evaluated, no
//! further request is read. Each batch is evaluated in a task of its own, so that reading and evaluating use several
//! cores.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;

use futures_util::stream::{FuturesOrdered, StreamExt as _};
use tokio::sync::mpsc;
use verdict_config::Period;
use verdict_otlp::trace::{CloseReason, ClosedTrace, PriorVerdict};

use super::{Closing, EvaluatedRecording, ParsedRequest, RecordingEvaluation, Stages, unlimited};
use crate::assemble::{Assembler, Close, SPAN_OVERHEAD};

/// Maximum number of batches in evaluation for each core: one while the results of another are written.
const BATCHES_PER_CORE: usize = 2;
/// Maximum bytes of a batch.
const MAX_BATCH_BYTES: usize = 256 << 10;
/// Maximum number of traces of a batch: enough that starting its task takes little time compared with its evaluation.
const MAX_BATCH_TRACES: usize = 64;

/// A hundred years in seconds: the time for traces that do not close by time.
const NEVER_SECS: u64 = 100 * 365 * 86_400;

/// Closed traces that are evaluated together, and their bytes.
#[derive(Default)]
struct TraceBatch {
    closed: Vec<ClosedTrace>,
    bytes: usize,
}

/// An evaluated batch.
struct EvaluatedBatch {
    evaluated: Vec<EvaluatedRecording>,
    /// Late spans, which are evaluated after their traces.
    late: Vec<ClosedTrace>,
    /// The bytes of the batch.
    bytes: usize,
}

impl RecordingEvaluation {
    /// Evaluates the traces of requests that [`RecordingEvaluation::parser`] has read, as they close. `each` is
    /// called in the order in which they close. Must run on a Tokio runtime with threads. Returns the largest number
    /// of bytes that were in memory: of open traces, and of those whose evaluation had not ended.
    pub async fn follow(
        &mut self,
        mut closing: Closing,
        mut requests: mpsc::Receiver<ParsedRequest>,
        mut each: impl FnMut(EvaluatedRecording),
    ) -> usize {
        self.assembler = Assembler::new(self.close_for(&closing));
        let (mut waiting, mut running) = (VecDeque::new(), FuturesOrdered::new());
        let (mut closed_bytes, mut peak_bytes, mut has_input) = (0, 0, true);
        let is_judged = self.stages.asks_judges();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let max_running = if is_judged { super::CONCURRENT_TRACES } else { cores * BATCHES_PER_CORE };
        loop {
            // The last batch may still grow.
            let growing = usize::from(has_input && !is_judged);
            while running.len() < max_running && waiting.len() > growing {
                let batch = waiting.pop_front().unwrap_or_default();
                running.push_back(evaluate_batch(Arc::clone(&self.stages), batch));
            }
            tokio::select! {
                biased;
                Some(batch) = running.next(), if !running.is_empty() => {
                    closed_bytes -= batch.bytes;
                    self.deliver(batch, &mut each);
                }
                parsed = requests.recv(), if has_input && running.len() < max_running => {
                    has_input = parsed.is_some();
                    let closed = match parsed {
                        Some(parsed) => self.close_with(&mut closing, parsed),
                        None => self.assembler.close_all(CloseReason::EndOfInput),
                    };
                    closed_bytes += closed.iter().map(size_of_trace).sum::<usize>();
                    let open_bytes = self.assembler.bytes() + self.assembler.spans() * SPAN_OVERHEAD;
                    peak_bytes = peak_bytes.max(closed_bytes + open_bytes);
                    closed.into_iter().for_each(|closed| add_to_batch(closed, is_judged, &mut waiting));
                }
                else => return peak_bytes,
            }
        }
    }

    /// The times at which traces close. No trace is closed because of its size, since it is recorded completely.
    fn close_for(&self, closing: &Closing) -> Close {
        let (mut close, never) = (unlimited(self.close.clone()), Period::secs(NEVER_SECS));
        if matches!(closing, Closing::AfterLastSpans(_)) {
            close.by_service.clear();
            (close.quiet, close.idle, close.remote_idle, close.max_age) = (never, never, never, never);
        }
        close
    }

    /// Adds a request, and returns the traces that close with it.
    fn close_with(&mut self, closing: &mut Closing, parsed: ParsedRequest) -> Vec<ClosedTrace> {
        let (end, spans) = (parsed.end, parsed.groups.iter().flat_map(|group| &group.spans));
        let now = self.clock.advance(end.file, spans.map(|span| span.end).max().unwrap_or(0));
        if let Closing::AfterLastSpans(ends) = closing {
            parsed.groups.iter().for_each(|group| ends.note_opened(group.trace));
            parsed.logs.iter().for_each(|record| ends.note_opened(record.trace));
            self.assemble(parsed);
            self.assembler.close_ended(ends.take_ended(end));
        } else {
            self.assemble(parsed);
        }
        self.assembler.poll(now)
    }

    /// Passes the traces of a batch to `each`, then evaluates its late spans and passes them on, too.
    fn deliver(&mut self, batch: EvaluatedBatch, each: &mut impl FnMut(EvaluatedRecording)) {
        batch.evaluated.into_iter().for_each(|evaluated| self.deliver_one(evaluated, each));
        for mut late in batch.late {
            late.prior_verdict = self.assembler.remembered(late.trace).or(late.prior_verdict);
            let evaluated = self.stages.evaluate_by_rules(late);
            self.deliver_one(evaluated, each);
        }
    }

    fn deliver_one(&mut self, evaluated: EvaluatedRecording, each: &mut impl FnMut(EvaluatedRecording)) {
        let (trace, summary) = (evaluated.trace.trace.tree.id, &evaluated.trace.summary);
        // A trace that was forgotten meanwhile is not remembered again.
        if self.assembler.remembered(trace).is_some() {
            let verdict = PriorVerdict { passed: summary.passed, revision: summary.revision };
            self.assembler.remember(trace, verdict);
        }
        each(evaluated);
    }
}

/// The bytes of a trace in memory.
fn size_of_trace(closed: &ClosedTrace) -> usize {
    closed.bytes + closed.spans.len() * SPAN_OVERHEAD
}

/// Adds a trace to the last waiting batch, or to a new one; always to a new one if judges are asked.
fn add_to_batch(closed: ClosedTrace, is_judged: bool, waiting: &mut VecDeque<TraceBatch>) {
    let bytes = size_of_trace(&closed);
    let fits =
        |batch: &TraceBatch| batch.bytes + bytes <= MAX_BATCH_BYTES && batch.closed.len() < MAX_BATCH_TRACES;
    if is_judged || !waiting.back().is_some_and(fits) {
        waiting.push_back(TraceBatch::default());
    }
    if let Some(last) = waiting.back_mut() {
        last.bytes += bytes;
        last.closed.push(closed);
    }
}

/// Starts a task that evaluates a batch.
fn evaluate_batch(stages: Arc<Stages>, batch: TraceBatch) -> impl Future<Output = EvaluatedBatch> {
    let is_late = |closed: &ClosedTrace| closed.close_reason == CloseReason::Late;
    let (late, closed): (Vec<_>, Vec<_>) = batch.closed.into_iter().partition(is_late);
    let evaluated = tokio::spawn(async move {
        let mut evaluated = Vec::with_capacity(closed.len());
        for closed in closed {
            evaluated.push(stages.evaluate(closed).await);
        }
        evaluated
    });
    async move {
        // The task is never cancelled, so that an error is a panic, which is resumed.
        let evaluated = evaluated.await.unwrap_or_else(|error| resume_unwind(error.into_panic()));
        EvaluatedBatch { evaluated, late, bytes: batch.bytes }
    }
}
