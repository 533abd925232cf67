//! Evaluates and encodes one closed trace.
//!
//! In: a closed trace, with judges' answers if any were asked. Out: an encoded trace. The content is untrusted: if its
//! evaluation panics, its spans are delivered without verdicts, or unchanged.
//!
//! A small trace may need as much work as any other one. Therefore the evaluation on the shard's task is an attempt of
//! [`INLINE_STEPS`]. If the trace needs more steps, the attempt is discarded and the caller evaluates the trace on a
//! blocking thread; the result does not depend on the attempt.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use tracing::field::Empty;
use verdict_eval::alarms::AlarmState;
use verdict_eval::metrics::Unmeasured;
use verdict_eval::{Assessment, EncodedAnnotations, EvaluatedTrace};
use verdict_journal::{Seq, VerdictRecord};
use verdict_otlp::trace::ClosedTrace;
use verdict_telemetry::SELF_TARGET;

use super::ask_judges::AskResult;
use super::budget::JUDGED_FACTOR;
use super::forwarding::unforwarded_spans;
use super::harmful_calls::{OpenAlarms, log_limits, log_retractions};
use super::runtime_config::RuntimeConfig;
use super::shared::Shared;
use super::store::EncodedTrace;
use crate::clock::unix_nanos;
use crate::telemetry::ResultLabel;

/// A trace with more spans, or more bytes, is evaluated on a blocking thread, so that it delays no other
/// trace of its shard: at some tens of microseconds per span, 256 spans take about 10 ms.
const MAX_INLINE_SPANS: usize = 256;
/// Like [`MAX_INLINE_SPANS`], in bytes.
const MAX_INLINE_BYTES: usize = 2 << 20;

/// Steps of the work budget on a thread of the runtime, about a millisecond. A recorded run takes less than a thousand.
pub(super) const INLINE_STEPS: u64 = 1 << 16;

/// A closed trace and the stored records that contain its spans and logs.
pub(super) struct StoredTrace {
    pub closed: ClosedTrace,
    pub records: Vec<Seq>,
    /// Alarms that were raised while the trace was open.
    pub alarms: OpenAlarms,
}

impl StoredTrace {
    pub(super) fn is_large(&self) -> bool {
        self.closed.spans.len() > MAX_INLINE_SPANS || self.closed.bytes > MAX_INLINE_BYTES
    }
}

/// The input of the evaluation of a trace, with its limit of work.
pub(super) enum EvaluationInput {
    /// The spans; the rules may take all steps of the work budget.
    Full,
    /// The spans; the rules may take [`INLINE_STEPS`].
    WithinInlineSteps,
    /// The results of the rules and of the judges.
    Assessed(Box<(Assessment, AskResult)>),
}

/// Evaluates a trace and encodes the result. The trace is encoded without verdicts if the evaluation panics, if
/// shutdown leaves no time, or if the trace is quarantined. `None` if an attempt needs more than [`INLINE_STEPS`].
pub(super) fn evaluate(
    shared: &Shared,
    config: &RuntimeConfig,
    trace: &mut StoredTrace,
    input: EvaluationInput,
) -> Option<EncodedTrace> {
    let started = Instant::now();
    let now = unix_nanos();
    let id = trace.closed.trace;
    let is_judged = matches!(input, EvaluationInput::Assessed(_));
    // The field `result` stays empty for an attempt that needs more steps.
    let evaluate_span = tracing::info_span!(
        target: SELF_TARGET, "evaluate", trace = %id, spans = trace.closed.spans.len(), judged = is_judged, result = Empty
    );
    let _entered = evaluate_span.enter();
    let is_quarantined = shared.markers.is_quarantined(id);
    let mut encoded = None;
    if !is_quarantined && (is_judged || !shared.skip_evaluation.load(Ordering::Relaxed)) {
        let evaluation = || evaluate_and_encode(shared, config, trace, input, now, started);
        let evaluated = catch_unwind(AssertUnwindSafe(evaluation));
        if let Ok(None) = evaluated {
            return None;
        }
        shared.markers.evaluated(id);
        encoded = evaluated.ok().flatten();
        if encoded.is_none() {
            tracing::error!(trace = %id, "evaluating a trace panicked; its spans are exported without verdicts. This is a bug");
        }
    }
    let mut encoded = encoded.unwrap_or_else(|| {
        shared.meter.telemetry.traces.unjudged.inc();
        let unmeasured = || encode_unmeasured(shared, config, &trace.closed, is_quarantined, now, started);
        catch_unwind(AssertUnwindSafe(unmeasured)).unwrap_or_else(|_| {
            tracing::error!(trace = %id, "encoding a trace panicked; its spans are exported as they arrived. This is a bug");
            encode_unchanged(shared, &trace.closed, started)
        })
    });
    encoded.verdict.requests = std::mem::take(&mut trace.records);
    evaluate_span.record("result", ResultLabel::from(encoded.verdict.passed).as_str());
    Some(encoded)
}

/// Evaluates a trace, confirms its alarms, and encodes the result. `None` if an attempt needs more steps.
fn evaluate_and_encode(
    shared: &Shared,
    config: &RuntimeConfig,
    StoredTrace { closed, alarms, .. }: &StoredTrace,
    input: EvaluationInput,
    now: u64,
    started: Instant,
) -> Option<EncodedTrace> {
    let evaluator = &config.evaluator;
    let timer = &mut shared.meter.stopwatch();
    let mut evaluated = match input {
        EvaluationInput::Assessed(assessed) => {
            let (assessment, ask_result) = *assessed;
            evaluator.decide(assessment, ask_result.into_results(), now)
        }
        EvaluationInput::Full => evaluator.evaluate(closed.clone(), now, timer),
        EvaluationInput::WithinInlineSteps => {
            evaluator.evaluate_within(INLINE_STEPS, closed.clone(), now, timer)?
        }
    };
    let retracted = evaluator.confirm_alarms(&mut evaluated, &alarms.raised, &alarms.retracted);
    let mut encoded = encode(shared, config, &evaluated, started);
    if !retracted.is_empty() {
        log_retractions(closed.trace, retracted.iter().copied(), &shared.meter);
        let retractions: Vec<_> = retracted.into_iter().map(|alarm| (alarm, AlarmState::Retracted)).collect();
        let events = evaluator.alarm_events(closed.trace, &retractions, now);
        encoded.verdict.events.extend(events.into_iter().map(|piece| (piece.items, piece.bytes)));
    }
    let limits = evaluator.unreported_limits(&evaluated, &alarms.causes);
    if !limits.is_empty() {
        log_limits(closed.trace, &limits, &shared.meter);
        let events = evaluator.limit_events(closed.trace, &limits, now);
        encoded.verdict.events.extend(events.into_iter().map(|piece| (piece.items, piece.bytes)));
    }
    if let Some(page) = &shared.page {
        let reservation = shared.budget.reserve_trace(closed, JUDGED_FACTOR);
        page.offer(evaluated, &config.disclosure, reservation);
    }
    Some(encoded)
}

/// Encodes a trace that is not evaluated, with the annotation that it is unmeasured.
fn encode_unmeasured(
    shared: &Shared,
    config: &RuntimeConfig,
    closed: &ClosedTrace,
    is_quarantined: bool,
    now: u64,
    started: Instant,
) -> EncodedTrace {
    let mut unmeasured = config.evaluator.unmeasured(closed.clone(), now);
    if is_quarantined {
        tracing::error!(trace = %closed.trace, "the process died twice while this trace was evaluated; its spans are exported without verdicts");
        shared.meter.telemetry.traces.quarantined.inc();
        unmeasured.summary.unmeasured_reason = Some(Unmeasured::Quarantined);
    }
    encode(shared, config, &unmeasured, started)
}

/// Encodes a trace without any annotation: its encoding has panicked.
fn encode_unchanged(shared: &Shared, closed: &ClosedTrace, started: Instant) -> EncodedTrace {
    shared.meter.telemetry.traces.count_closed(closed.close_reason);
    let spans = unforwarded_spans(&closed.spans);
    let verdict = VerdictRecord {
        trace: closed.trace,
        requests: Vec::new(),
        passed: None,
        revision: closed.prior_verdict.map_or(1, |prior| prior.revision.saturating_add(1)),
        with_spans: !spans.is_empty(),
        lengths: vec![0; if spans.is_empty() { 0 } else { closed.spans.len() }],
        appended: Bytes::new(),
        events: Vec::new(),
    };
    EncodedTrace { verdict, spans, started }
}

/// Encodes an evaluated trace, and counts it in the self-metrics.
fn encode(
    shared: &Shared,
    config: &RuntimeConfig,
    evaluated: &EvaluatedTrace,
    started: Instant,
) -> EncodedTrace {
    let tree = &evaluated.trace.tree;
    #[cfg(test)]
    assert_ne!(shared.unencodable, Some(tree.id), "as the test requires");
    let annotations = EncodedAnnotations::new(&config.evaluator, evaluated);
    let (spans, replaced) = annotations.apply(&config.evaluator, tree);
    let exported = spans.iter().map(|piece| piece.items as usize).sum::<usize>();
    debug_assert_eq!(exported, tree.spans.iter().filter(|span| !span.forwarded).count());
    shared.meter.count_evaluated(evaluated, replaced);
    let verdict = VerdictRecord {
        trace: tree.id,
        requests: Vec::new(),
        passed: evaluated.summary.passed,
        revision: evaluated.summary.revision,
        with_spans: !spans.is_empty(),
        lengths: annotations.lengths.into_iter().map(|n| u32::try_from(n).unwrap_or(u32::MAX)).collect(),
        appended: annotations.appended,
        events: annotations.events.into_iter().map(|piece| (piece.items, piece.bytes)).collect(),
    };
    EncodedTrace { verdict, spans, started }
}
