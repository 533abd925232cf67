//! Schedules the evaluation of closed traces of one shard, and tracks the traces in flight.
//!
//! In: closed traces. Out: deliveries, and the verdict to remember of each trace. Small traces are
//! evaluated on the shard's task and delivered in batches; large ones, and those that need many steps, are evaluated
//! on blocking threads; those that ask judges have tasks of their own. Only evaluation runs on blocking threads:
//! waiting for exporters there could use up the threads that exporters need themselves. Late spans of a trace in
//! flight are deferred, since their verdict is a revision of the first.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::Semaphore;
use tokio::task::{Id, JoinError, JoinSet};
use tracing::Instrument as _;
use tracing::field::Empty;
use verdict_eval::Assessment;
use verdict_eval::questions::{Ask, Usage};
use verdict_otlp::trace::{CloseReason, PriorVerdict, TraceId};
use verdict_telemetry::SELF_TARGET;

use super::ask_judges::{QuestionAnswerer, ask_all, catch_panic};
use super::budget::{EVALUATED_FACTOR, JUDGED_FACTOR};
use super::deliver::deliver;
use super::evaluate::{EvaluationInput, INLINE_STEPS, StoredTrace, evaluate};
use super::runtime_config::RuntimeConfig;
use super::shared::Shared;
use super::store::EncodedTrace;
use crate::logging::join_error_reason;
use crate::reservation::Reservation;

/// Maximum number of traces of one shard that are evaluated on blocking threads at once. Further traces wait in tasks
/// of their own, charged to the memory budget, so that the shard's task continues with other traces.
const MAX_BLOCKING: usize = 2;
/// Bytes at which a batch is delivered.
const MAX_BATCH_BYTES: usize = 256 << 10;

/// Late spans of a trace in flight.
pub(super) struct LateSpans {
    pub trace: StoredTrace,
    _reservation: Reservation,
}

/// The traces of one shard that are being evaluated or delivered.
pub(super) struct Schedule {
    shared: Arc<Shared>,
    /// Evaluations in tasks of their own.
    in_flight: JoinSet<Option<PriorVerdict>>,
    /// The traces of these tasks.
    traces: HashMap<Id, TraceId>,
    /// The deferred late spans of each trace in flight.
    late: HashMap<TraceId, Vec<LateSpans>>,
    /// Small traces that are delivered next, and their bytes.
    batch: (Vec<EncodedTrace>, usize),
    deliveries: JoinSet<()>,
    /// Permits for evaluations on blocking threads.
    blocking_permits: Arc<Semaphore>,
}

impl Schedule {
    pub(super) fn new(shared: Arc<Shared>) -> Schedule {
        Schedule {
            shared,
            in_flight: JoinSet::new(),
            traces: HashMap::new(),
            late: HashMap::new(),
            batch: (Vec::new(), 0),
            deliveries: JoinSet::new(),
            blocking_permits: Arc::new(Semaphore::new(MAX_BLOCKING)),
        }
    }

    pub(super) fn is_in_flight(&self, trace: TraceId) -> bool {
        self.late.contains_key(&trace)
    }

    /// Defers late spans until their trace, which is in flight, is evaluated.
    pub(super) fn defer(&mut self, trace: StoredTrace) {
        let reservation = self.shared.budget.reserve_trace(&trace.closed, 1);
        let id = trace.closed.trace;
        self.late.entry(id).or_default().push(LateSpans { trace, _reservation: reservation });
    }

    /// The late spans of a trace that is no longer in flight.
    pub(super) fn take_late(&mut self, trace: TraceId) -> Vec<LateSpans> {
        self.late.remove(&trace).unwrap_or_default()
    }

    /// Evaluates a small trace at once, and adds it to the next batch. The error is the trace, if it needs more than
    /// [`INLINE_STEPS`].
    pub(super) async fn evaluate_inline(
        &mut self,
        config: &RuntimeConfig,
        mut trace: StoredTrace,
    ) -> Result<PriorVerdict, StoredTrace> {
        let section = self.shared.markers.enter(trace.closed.trace).await;
        let encoded = evaluate(&self.shared, config, &mut trace, EvaluationInput::WithinInlineSteps);
        drop(section);
        let Some(encoded) = encoded else { return Err(trace) };
        let verdict = encoded.verdict.prior_verdict();
        self.batch.1 += encoded.bytes();
        self.batch.0.push(encoded);
        if self.batch.0.len() >= self.shared.store.max_batch() || self.batch.1 >= MAX_BATCH_BYTES {
            self.flush_batch().await;
        }
        Ok(verdict)
    }

    /// Evaluates a trace that is large or expensive, or a suspect, on a blocking thread, as soon as fewer than
    /// [`MAX_BLOCKING`] other traces of the shard are evaluated on blocking threads.
    pub(super) fn evaluate_blocking(&mut self, config: Arc<RuntimeConfig>, trace: StoredTrace) {
        let (shared, permits) = (Arc::clone(&self.shared), Arc::clone(&self.blocking_permits));
        let reservation = shared.budget.reserve_trace(&trace.closed, 1);
        self.spawn(trace.closed.trace, async move {
            let _reservation = reservation;
            let _permit = permits.acquire().await;
            let _evaluation_reservation = shared.budget.reserve_trace(&trace.closed, EVALUATED_FACTOR - 1);
            evaluate_and_deliver(&shared, config, trace, EvaluationInput::Full, true).await
        });
    }

    /// Asks judges, then evaluates. `spent` is the usage of questions asked while the trace was open.
    pub(super) fn evaluate_judged(
        &mut self,
        config: Arc<RuntimeConfig>,
        answerer: Arc<dyn QuestionAnswerer>,
        spent: Usage,
        trace: StoredTrace,
    ) {
        let shared = Arc::clone(&self.shared);
        let reservation = shared.budget.reserve_trace(&trace.closed, JUDGED_FACTOR);
        let permits = Arc::clone(&self.blocking_permits);
        self.spawn(trace.closed.trace, async move {
            let _reservation = reservation;
            judge_and_deliver(&shared, config, answerer, spent, &permits, trace).await
        });
    }

    fn spawn(&mut self, trace: TraceId, work: impl Future<Output = Option<PriorVerdict>> + Send + 'static) {
        self.traces.insert(self.in_flight.spawn(work).id(), trace);
        self.late.entry(trace).or_default();
    }

    /// The next trace that is no longer in flight, with its verdict. The verdict is `None` if the trace was not
    /// delivered, because the process stops or because of a bug. `None` without a trace in flight or being delivered.
    pub(super) async fn next_finished(&mut self) -> Option<(TraceId, Option<PriorVerdict>)> {
        loop {
            let joined = tokio::select! {
                Some(joined) = self.in_flight.join_next_with_id() => joined,
                Some(delivered) = self.deliveries.join_next() => {
                    delivered.unwrap_or_else(|error| report_task_error(&self.shared, &error));
                    continue;
                }
                else => return None,
            };
            let (id, verdict) = joined.unwrap_or_else(|error| {
                report_task_error(&self.shared, &error);
                (error.id(), None)
            });
            if let Some(trace) = self.traces.remove(&id) {
                return Some((trace, verdict));
            }
        }
    }

    /// Delivers the batch, in a task of its own unless the store's `max_batches` is 0.
    pub(super) async fn flush_batch(&mut self) {
        if self.batch.0.is_empty() {
            return;
        }
        let max_batches = self.shared.store.max_batches();
        let (traces, bytes) = std::mem::take(&mut self.batch);
        if max_batches == 0 {
            return deliver(&self.shared, traces).await;
        }
        let reservation = self.shared.budget.reserve_closed(bytes);
        while self.deliveries.len() >= max_batches
            && let Some(delivered) = self.deliveries.join_next().await
        {
            delivered.unwrap_or_else(|error| report_task_error(&self.shared, &error));
        }
        let shared = Arc::clone(&self.shared);
        self.deliveries.spawn(async move {
            let _reservation = reservation;
            deliver(&shared, traces).await;
        });
    }
}

/// Evaluates a trace, on a blocking thread if `on_blocking_thread`, and delivers it. `None` if the evaluation panicked
/// there.
async fn evaluate_and_deliver(
    shared: &Arc<Shared>,
    config: Arc<RuntimeConfig>,
    mut trace: StoredTrace,
    input: EvaluationInput,
    on_blocking_thread: bool,
) -> Option<PriorVerdict> {
    let (id, task_shared) = (trace.closed.trace, Arc::clone(shared));
    let work = move || evaluate(&task_shared, &config, &mut trace, input);
    let encoded = match on_blocking_thread {
        true => run_blocking(shared, id, work).await?,
        false => run_inline(shared, id, work).await,
    }?;
    let verdict = encoded.verdict.prior_verdict();
    deliver(shared, vec![encoded]).await;
    Some(verdict)
}

/// Evaluates by rules, asks judges until all have answered or `max_wait` ends, and delivers. `None` if the
/// process stops, or the trace's partition is revoked, before that: the trace stays in the store.
async fn judge_and_deliver(
    shared: &Arc<Shared>,
    config: Arc<RuntimeConfig>,
    answerer: Arc<dyn QuestionAnswerer>,
    spent: Usage,
    blocking_permits: &Semaphore,
    trace: StoredTrace,
) -> Option<PriorVerdict> {
    let (id, reason) = (trace.closed.trace, trace.closed.close_reason);
    let (assessment, on_blocking_thread) = assess(shared, &config, blocking_permits, &trace).await;
    let mut input = EvaluationInput::Full;
    if let Some(assessment) = assessment {
        let ask = |ask: Ask| {
            let reservation = shared.budget.reserve_closed(question_bytes(&ask));
            let answer = Arc::clone(&answerer).ask(id, ask);
            let markers = Arc::clone(&shared.markers);
            async move {
                let _reservation = reservation;
                markers.watch(id, answer).await
            }
        };
        // While memory is scarce, waiting would keep the trace in memory.
        let may_wait = reason != CloseReason::Pressure && !shared.budget.is_full(0);
        let revocation = shared.store.revocation_token(&trace.records);
        let time_limit = async {
            if may_wait {
                let wait = shared.wait_for_judges(config.max_wait);
                match &revocation {
                    Some(revocation) => drop(revocation.run_until_cancelled(wait).await),
                    None => wait.await,
                }
            }
        };
        let asking = ask_all(&config.evaluator, &assessment, ask, time_limit);
        let ask_span = tracing::info_span!(target: SELF_TARGET, "ask_judges", trace = %id, tokens = Empty);
        let mut result = shared.markers.watch(id, asking).instrument(ask_span.clone()).await;
        ask_span.record("tokens", result.usage.tokens);
        result.usage += spent;
        let is_left_unfinished = shared.leave_unfinished.load(Ordering::Relaxed);
        if result.timed_out
            && (is_left_unfinished || revocation.is_some_and(|revocation| revocation.is_cancelled()))
        {
            return None;
        }
        input = EvaluationInput::Assessed(Box::new((assessment, result)));
    }
    let _permit = if on_blocking_thread { blocking_permits.acquire().await.ok() } else { None };
    evaluate_and_deliver(shared, config, trace, input, on_blocking_thread).await
}

/// Evaluates by rules, on a blocking thread if the trace is large, a suspect, or needs more than [`INLINE_STEPS`].
/// Returns the assessment, unless the rules panicked, and whether further work on the trace must be done on a blocking
/// thread, too.
async fn assess(
    shared: &Arc<Shared>,
    config: &Arc<RuntimeConfig>,
    blocking_permits: &Semaphore,
    trace: &StoredTrace,
) -> (Option<Assessment>, bool) {
    let id = trace.closed.trace;
    // A suspect is evaluated alone, and may take long.
    if !trace.is_large() && !shared.markers.is_suspect(id) {
        let attempt = || {
            let timer = &mut shared.meter.stopwatch();
            config.evaluator.assess_within(INLINE_STEPS, trace.closed.clone(), timer)
        };
        match run_inline(shared, id, || catch_panic(attempt)).await {
            // The trace needs more steps.
            Some(None) => {}
            result => return (result.flatten(), false),
        }
    }
    let _permit = blocking_permits.acquire().await;
    let _assessment_reservation =
        shared.budget.reserve_trace(&trace.closed, EVALUATED_FACTOR - JUDGED_FACTOR);
    let (task_shared, config, closed) = (Arc::clone(shared), Arc::clone(config), trace.closed.clone());
    let work = move || catch_panic(|| config.evaluator.assess(closed, &mut task_shared.meter.stopwatch()));
    (run_blocking(shared, id, work).await.flatten(), true)
}

/// Runs short work on a trace's content on the current task.
async fn run_inline<T>(shared: &Shared, trace: TraceId, work: impl FnOnce() -> T) -> T {
    let section = shared.markers.enter(trace).await;
    let result = work();
    drop(section);
    result
}

/// Runs work on a trace's content on a blocking thread. `None` if it panicked there.
async fn run_blocking<T: Send + 'static>(
    shared: &Shared,
    trace: TraceId,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let _thread = shared.blocking_threads.acquire().await;
    let markers = Arc::clone(&shared.markers);
    let result = tokio::task::spawn_blocking(move || markers.run(trace, work)).await;
    result.inspect_err(|error| report_task_error(shared, error)).ok()
}

/// The bytes that a question takes until it is answered: the content in its prompt, and for each judge the body of a
/// request with the whole prompt.
pub(super) fn question_bytes(ask: &Ask) -> usize {
    let prompt = &ask.question.prompt;
    prompt.user.len() + ask.judges.len() * (prompt.system.len() + prompt.user.len())
}

/// Reports a panic outside the evaluation of a trace's content, which ends the process. The spans of the trace are in
/// the journal, if there is one, and the next process delivers them.
fn report_task_error(shared: &Shared, error: &JoinError) {
    tracing::error!(
        error = join_error_reason(error),
        "the evaluation or delivery of a trace panicked, and the process ends; without a journal its spans are lost. This is a bug"
    );
    shared.shard_failed.fetch_or(error.is_panic(), Ordering::Relaxed);
}
