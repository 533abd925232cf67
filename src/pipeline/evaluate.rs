//! Evaluates and encodes one closed trace.
//!
//! In: a closed trace, with judges' answers if any were asked. Out: an encoded trace. Its content is
//! untrusted: if evaluating it panics, its spans are delivered without verdicts, or as they arrived.
//!
//! A trace that is small may take as much work as any other. So the work on the shard's task is an attempt of
//! [`INLINE_STEPS`]; the result of a trace that needs more is discarded, and the caller evaluates it on a blocking
//! thread, with the same result as if there had been no attempt.

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
use super::forwarding::on_close;
use super::harmful_calls::{OpenAlarms, log_limits, log_retractions};
use super::runtime_config::RuntimeConfig;
use super::shared::Shared;
use super::store::EncodedTrace;
use crate::clock::unix_nanos;
use crate::telemetry::ResultLabel;

/// A trace with more spans, or more bytes, is evaluated on a blocking thread, so that it delays no other
/// trace of its shard: at some tens of microseconds per span, 256 spans take about 10 ms.
const LARGE_SPANS: usize = 256;
/// As [`LARGE_SPANS`], in bytes.
const LARGE_BYTES: usize = 2 << 20;

/// Steps of the work budget on a thread of the runtime, about a millisecond. A recorded run takes less than a thousand.
pub(super) const INLINE_STEPS: u64 = 1 << 16;

/// A closed trace and the stored records that contain its spans and logs.
pub(super) struct StoredTrace {
    pub closed: ClosedTrace,
    pub records: Vec<Seq>,
    /// Alarms that were raised while it was open.
    pub alarms: OpenAlarms,
}

impl StoredTrace {
    pub(super) fn is_large(&self) -> bool {
        self.closed.spans.len() > LARGE_SPANS || self.closed.bytes > LARGE_BYTES
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

/// Evaluates a trace and encodes the result. It is encoded without verdicts if evaluation panics, if
/// shutdown leaves no time, or if the trace is quarantined. `None` if an attempt needs more steps.
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
    // Of an attempt that needs more steps the span has no result.
    let evaluate_span = tracing::info_span!(
        target: SELF_TARGET, "evaluate", trace = %id, spans = trace.closed.spans.len(), judged = is_judged, result = Empty
    );
    let _entered = evaluate_span.enter();
    let quarantined = shared.markers.is_quarantined(id);
    let mut encoded = None;
    if !quarantined && (is_judged || !shared.skip_evaluation.load(Ordering::Relaxed)) {
        let by_rules = || evaluate_and_encode(shared, config, trace, input, now, started);
        let evaluated = catch_unwind(AssertUnwindSafe(by_rules));
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
        let unevaluated = || encode_unmeasured(shared, config, &trace.closed, quarantined, now, started);
        catch_unwind(AssertUnwindSafe(unevaluated)).unwrap_or_else(|_| {
            tracing::error!(trace = %id, "encoding a trace panicked; its spans are exported as they arrived. This is a bug");
            unchanged(shared, &trace.closed, started)
        })
    });
    encoded.verdict.requests = std::mem::take(&mut trace.records);
    evaluate_span.record("result", ResultLabel::from(encoded.verdict.passed).as_str());
    Some(encoded)
}

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
        EvaluationInput::Assessed(found) => {
            let (assessment, asked) = *found;
            evaluator.decide(assessment, asked.into_results(), now)
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
        let all: Vec<_> = retracted.into_iter().map(|a| (a, AlarmState::Retracted)).collect();
        let events = evaluator.alarm_events(closed.trace, &all, now);
        encoded.verdict.events.extend(events.into_iter().map(|piece| (piece.items, piece.bytes)));
    }
    let limits = evaluator.unreported_limits(&evaluated, &alarms.causes);
    if !limits.is_empty() {
        log_limits(closed.trace, &limits, &shared.meter);
        let events = evaluator.limit_events(closed.trace, &limits, now);
        encoded.verdict.events.extend(events.into_iter().map(|piece| (piece.items, piece.bytes)));
    }
    if let Some(page) = &shared.page {
        let charged = shared.budget.reserve_trace(closed, JUDGED_FACTOR);
        page.offer(evaluated, &config.disclosure, charged);
    }
    Some(encoded)
}

/// A trace with the annotation that it was not evaluated.
fn encode_unmeasured(
    shared: &Shared,
    config: &RuntimeConfig,
    closed: &ClosedTrace,
    quarantined: bool,
    now: u64,
    started: Instant,
) -> EncodedTrace {
    let mut unmeasured = config.evaluator.unmeasured(closed.clone(), now);
    if quarantined {
        tracing::error!(trace = %closed.trace, "the process died twice while this trace was evaluated; its spans are exported without verdicts");
        shared.meter.telemetry.traces.quarantined.inc();
        unmeasured.summary.unmeasured_reason = Some(Unmeasured::Quarantined);
    }
    encode(shared, config, &unmeasured, started)
}

/// A trace without any annotation, not even that it was not evaluated.
fn unchanged(shared: &Shared, closed: &ClosedTrace, started: Instant) -> EncodedTrace {
    shared.meter.telemetry.traces.closed(closed.close_reason);
    let spans = on_close(&closed.spans);
    let verdict = VerdictRecord {
        trace: closed.trace,
        requests: Vec::new(),
        passed: None,
        revision: closed.prior_verdict.map_or(1, |before| before.revision.saturating_add(1)),
        with_spans: !spans.is_empty(),
        lengths: vec![0; if spans.is_empty() { 0 } else { closed.spans.len() }],
        appended: Bytes::new(),
        events: Vec::new(),
    };
    EncodedTrace { verdict, spans, started }
}

fn encode(
    shared: &Shared,
    config: &RuntimeConfig,
    evaluated: &EvaluatedTrace,
    started: Instant,
) -> EncodedTrace {
    let tree = &evaluated.trace.tree;
    #[cfg(test)]
    assert_ne!(shared.unencodable, Some(tree.id), "as the test requires");
    let marks = EncodedAnnotations::new(&config.evaluator, evaluated);
    let (spans, replaced) = marks.apply(&config.evaluator, tree);
    let exported = spans.iter().map(|piece| piece.items as usize).sum::<usize>();
    debug_assert_eq!(exported, tree.spans.iter().filter(|span| !span.forwarded).count());
    shared.meter.evaluated(evaluated, replaced);
    let verdict = VerdictRecord {
        trace: tree.id,
        requests: Vec::new(),
        passed: evaluated.summary.passed,
        revision: evaluated.summary.revision,
        with_spans: !spans.is_empty(),
        lengths: marks.lengths.into_iter().map(|n| u32::try_from(n).unwrap_or(u32::MAX)).collect(),
        appended: marks.appended,
        events: marks.events.into_iter().map(|piece| (piece.items, piece.bytes)).collect(),
    };
    EncodedTrace { verdict, spans, started }
}
