//! Reports harmful calls, loops and exceeded limits of open traces at once, as a log line, a counter and a log
//! event. Attributes of harmful calls are written when the trace closes.
//!
//! In: the traces that have grown. Out: each harmful call once, and its retraction. The result of a check depends on
//! the spans that have arrived: the span of a longer call that began earlier may arrive later and change the state of
//! the run. If a later check, or the evaluation of the closed trace, does not confirm a call, its
//! alarm is retracted. A trace that has grown little since its last check is not checked again, so that all
//! checks of a growing trace together cost a constant multiple of evaluating it once. Traces that have waited longest
//! are checked first. A loop or limit is reported once per trace and cause, at the latest when the trace closes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use verdict_eval::OpenTraceAlarms;
use verdict_eval::alarms::{Alarm, AlarmCause, AlarmState, LimitAlarm};
use verdict_otlp::Piece;
use verdict_otlp::trace::{ClosedTrace, SpanId, TraceId};

use super::meter::Meter;
use super::runtime_config::RuntimeConfig;
use super::shared::Shared;
use crate::assemble::Assembler;
use crate::clock::unix_nanos;

/// The interval of checks: short enough to stop an agent, long enough that a batch of spans is checked
/// once.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of traces of one shard that are checked at once, each on a blocking thread.
const MAX_CHECKS: usize = 2;
/// Up to this number of spans a trace is checked whenever it has grown.
const SMALL_TRACE_SPANS: usize = 64;
/// A larger trace is checked when it has grown by its number of spans divided by this.
const GROWTH_DIVISOR: usize = 8;
/// Maximum number of harmful calls reported per open trace. Further calls are reported when the trace closes.
const MAX_REPORTED: usize = 100;

/// An open trace that was checked.
#[derive(Debug, Default)]
struct CheckedTrace {
    /// Number of spans at the last check.
    spans: usize,
    alarms: OpenAlarms,
    /// The number of harmful calls reported so far.
    reported_count: usize,
}

/// The alarms of an open trace.
#[derive(Debug, Default)]
pub(super) struct OpenAlarms {
    /// Alarms of harmful calls that are not retracted, in the order in which they were raised.
    pub raised: Vec<Alarm>,
    /// The spans of retracted alarms.
    pub retracted: Vec<SpanId>,
    /// Causes of the loops and limits that were reported.
    pub causes: Vec<AlarmCause>,
}

/// Checks the open traces of one shard.
#[derive(Debug, Default)]
pub(super) struct HarmfulCalls {
    last_check: Option<Instant>,
    /// Open traces with spans that arrived since their last check, each with its number in the order of arrival.
    unchecked: HashMap<TraceId, u64>,
    /// The number of the next trace in `unchecked`.
    next_number: u64,
    checked: HashMap<TraceId, CheckedTrace>,
    checks: JoinSet<(TraceId, OpenTraceAlarms)>,
}

impl HarmfulCalls {
    /// Records that spans or log records of a trace have arrived.
    pub(super) fn note_spans(&mut self, trace: TraceId, config: &RuntimeConfig) {
        if config.evaluator.raises_alarms() {
            self.unchecked.entry(trace).or_insert(self.next_number);
            self.next_number += 1;
        }
    }

    /// The time of the next check; `None` while no trace has grown.
    pub(super) fn next_check(&self) -> Option<Instant> {
        let is_needed = !self.unchecked.is_empty() || !self.checks.is_empty();
        is_needed.then(|| self.last_check.map_or_else(Instant::now, |last| last + CHECK_INTERVAL))
    }

    /// Removes and returns the alarms of a trace that closes.
    pub(super) fn take_alarms(&mut self, trace: TraceId, meter: &Meter) -> OpenAlarms {
        if self.unchecked.remove(&trace).is_some() {
            meter.telemetry.traces.alarm_checks_skipped.inc();
        }
        self.checked.remove(&trace).map(|checked| checked.alarms).unwrap_or_default()
    }

    /// Reports the results of finished checks, and checks the traces that have grown. Returns the log events
    /// to export.
    #[must_use]
    pub(super) fn check(
        &mut self,
        assembler: &Assembler,
        config: &Arc<RuntimeConfig>,
        shared: &Shared,
        now: Instant,
    ) -> Vec<Piece> {
        let mut events = Vec::new();
        while let Some(done) = self.checks.try_join_next() {
            // A closed trace is not reported: its verdict contains the same and more, also for limits.
            let Ok((trace, OpenTraceAlarms { alarms, limits, session })) = done else { continue };
            if !assembler.is_open(trace) {
                shared.meter.telemetry.traces.alarm_checks_skipped.inc();
            } else {
                if let (Some(runs), Some(session)) = (&shared.queried_runs, session) {
                    runs.note_session(&session, trace);
                }
                events.extend(self.report_calls(trace, alarms, config, &shared.meter));
                events.extend(self.report_limits(trace, limits, config, &shared.meter));
            }
        }
        if self.last_check.is_some_and(|last| now < last + CHECK_INTERVAL) || self.unchecked.is_empty() {
            return events;
        }
        self.last_check = Some(now);
        let markers = &shared.markers;
        self.unchecked
            .retain(|trace, _| assembler.is_open(*trace) && !markers.is_suspect_or_quarantined(*trace));
        self.checked.retain(|trace, _| assembler.is_open(*trace));
        let capacity = MAX_CHECKS.saturating_sub(self.checks.len());
        for trace in self.due_traces(assembler, capacity) {
            let Ok(thread) = Arc::clone(&shared.blocking_threads).try_acquire_owned() else { break };
            self.unchecked.remove(&trace);
            let Some(snapshot) = assembler.snapshot(trace) else { continue };
            self.checked.entry(trace).or_default().spans = snapshot.spans.len();
            let (config, markers) = (Arc::clone(config), Arc::clone(markers));
            self.checks.spawn_blocking(move || {
                let _thread = thread;
                (trace, markers.run(trace, || check_snapshot(&config, snapshot)))
            });
        }
        events
    }

    /// At most `max_traces` of the traces that are due for a check, in the order in which they have grown.
    fn due_traces(&self, assembler: &Assembler, max_traces: usize) -> Vec<TraceId> {
        let due = self.unchecked.iter().filter(|(trace, _)| self.is_due(assembler, **trace));
        let mut due: Vec<_> = due.map(|(trace, number)| (*number, *trace)).collect();
        due.sort_unstable_by_key(|(number, _)| *number);
        due.into_iter().take(max_traces).map(|(_, trace)| trace).collect()
    }

    /// Whether a trace has grown enough since its last check.
    fn is_due(&self, assembler: &Assembler, trace: TraceId) -> bool {
        let spans_before = self.checked.get(&trace).map_or(0, |checked| checked.spans);
        spans_before <= SMALL_TRACE_SPANS
            || assembler.span_count_of(trace) > spans_before + spans_before / GROWTH_DIVISOR
    }

    /// Reports the loops and exceeded limits that were not reported before, and returns their events.
    fn report_limits(
        &mut self,
        trace: TraceId,
        mut alarms: Vec<LimitAlarm>,
        config: &RuntimeConfig,
        meter: &Meter,
    ) -> Vec<Piece> {
        let reported_causes = &mut self.checked.entry(trace).or_default().alarms.causes;
        alarms.retain(|alarm| !reported_causes.contains(&alarm.cause));
        reported_causes.extend(alarms.iter().map(|alarm| alarm.cause));
        log_limits(trace, &alarms, meter);
        if alarms.is_empty() {
            Vec::new()
        } else {
            config.evaluator.limit_events(trace, &alarms, unix_nanos())
        }
    }

    /// Reports new harmful calls, and retracts alarms that the latest check `current` does not confirm. Returns the
    /// events of both.
    fn report_calls(
        &mut self,
        trace: TraceId,
        current: Vec<Alarm>,
        config: &RuntimeConfig,
        meter: &Meter,
    ) -> Vec<Piece> {
        let checked = self.checked.entry(trace).or_default();
        let alarms = &mut checked.alarms;
        let previous = std::mem::take(&mut alarms.raised);
        let previous_keys: HashSet<_> = previous.iter().flat_map(Alarm::keys).collect();
        let is_known = |alarm: &Alarm| alarm.keys().any(|key| previous_keys.contains(&key));
        let (continued, new): (Vec<Alarm>, Vec<Alarm>) = current.into_iter().partition(is_known);
        let continued_keys: HashSet<_> = continued.iter().flat_map(Alarm::keys).collect();
        let is_retracted = |alarm: &&Alarm| !alarm.keys().any(|key| continued_keys.contains(&key));
        let retracted: Vec<&Alarm> = previous.iter().filter(is_retracted).collect();
        alarms.retracted.extend(retracted.iter().map(|alarm| alarm.span));
        let continued_count = continued.len();
        let remaining = MAX_REPORTED.saturating_sub(checked.reported_count);
        alarms.raised = continued.into_iter().chain(new.into_iter().take(remaining)).collect();
        let raised_spans: HashSet<SpanId> = alarms.raised.iter().map(|alarm| alarm.span).collect();
        alarms.retracted.retain(|span| !raised_spans.contains(span));
        let raised = alarms.raised.get(continued_count..).unwrap_or_default();
        checked.reported_count += raised.len();
        // The explanation quotes the trace, and is therefore not logged.
        for Alarm { span, reason, task, state, .. } in raised {
            meter.telemetry.traces.harmful_calls.inc();
            tracing::warn!(%trace, %span, reason, task, state, "harmful call in an open trace");
        }
        log_retractions(trace, retracted.iter().copied(), meter);
        let raised = raised.iter().map(|alarm| (alarm, AlarmState::Raised));
        let retracted = retracted.into_iter().map(|alarm| (alarm, AlarmState::Retracted));
        let changes: Vec<(&Alarm, AlarmState)> = raised.chain(retracted).collect();
        if changes.is_empty() {
            return Vec::new();
        }
        config.evaluator.alarm_events(trace, &changes, unix_nanos())
    }
}

/// Logs and counts loops and exceeded limits.
pub(super) fn log_limits(trace: TraceId, alarms: &[LimitAlarm], meter: &Meter) {
    // The explanation quotes the trace, and is therefore not logged.
    for LimitAlarm { span, cause, .. } in alarms {
        meter.telemetry.traces.alarm(*cause).inc();
        let description = match cause {
            AlarmCause::Loop => "repeats calls without progress",
            AlarmCause::Tokens => "exceeds the limit of tokens",
            AlarmCause::Cost => "exceeds the limit of cost",
        };
        tracing::warn!(%trace, %span, cause = cause.as_str(), "alarm: a trace {description}");
    }
}

/// Logs and counts alarms that later spans have disproved.
pub(super) fn log_retractions<'a>(trace: TraceId, alarms: impl Iterator<Item = &'a Alarm>, meter: &Meter) {
    for Alarm { span, reason, .. } in alarms {
        meter.telemetry.traces.harmful_calls_retracted.inc();
        tracing::info!(%trace, %span, reason, "a call that was reported as harmful was allowed, as later spans show");
    }
}

/// The content is untrusted: a check that panics reports nothing, and closing the trace logs the panic.
fn check_snapshot(config: &RuntimeConfig, snapshot: ClosedTrace) -> OpenTraceAlarms {
    let check = std::panic::AssertUnwindSafe(|| config.evaluator.harmful(snapshot));
    std::panic::catch_unwind(check).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use prost::Message as _;
    use serde_json::{Value, json};
    use verdict_otlp::request::{Interner, split};
    use verdict_otlp::trace::CloseReason;

    use super::*;
    use crate::config::from_sources;
    use crate::extensions::Extensions;
    use crate::logging::testing::logged;
    use crate::telemetry::Telemetry;

    fn span(id: u8, operation: &str, attributes: &[(&str, &str)]) -> Value {
        let operation_name = [("gen_ai.operation.name", operation)];
        let attribute = |(key, value): &(&str, &str)| json!({"key": key, "value": {"stringValue": value}});
        json!({
            "traceId": "00000000000000000000000000000001", "spanId": format!("{id:016x}"),
            "parentSpanId": if id == 1 { "" } else { "0000000000000001" }, "name": operation, "kind": 1,
            "startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": "1700000001000000000",
            "attributes": operation_name.iter().chain(attributes).map(attribute).collect::<Vec<_>>(),
        })
    }

    #[test]
    fn log_of_a_harmful_call_contains_no_content_of_its_trace() {
        let folder = tempfile::tempdir().unwrap();
        let task = folder.path().join("task.yaml");
        let states = "states: { a: { final: true, reads: [x] } }";
        std::fs::write(&task, format!("task: t\nmatch: {{}}\nalphabet: {{ x: x }}\n{states}\n")).unwrap();
        let text = format!("verdict: {{ metrics: {{ path: {{ tasks: [{task:?}] }} }} }}");
        let sources = [verdict_config::Source { name: "test".to_owned(), text }];
        let config = from_sources(&sources, &|_| None).unwrap();
        let config = RuntimeConfig::new(&config.verdict, &Extensions::default(), None).unwrap();
        let tool = [("gen_ai.tool.name", "SECRET"), ("gen_ai.tool.call.arguments", "{\"to\": \"SECRET\"}")];
        let agent = span(1, "invoke_agent", &[("gen_ai.agent.name", "SECRET")]);
        let spans = json!([agent, span(2, "execute_tool", &tool)]);
        let request: ExportTraceServiceRequest =
            serde_json::from_value(json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})).unwrap();
        let body: bytes::Bytes = request.encode_to_vec().into();
        let mut groups = split(&body, "verdict.", &Interner::default()).unwrap().groups;
        let (trace, spans) = (groups[0].trace, std::mem::take(&mut groups[0].spans));
        let snapshot = ClosedTrace {
            trace,
            spans,
            logs: Vec::new(),
            bytes: 0,
            close_reason: CloseReason::Idle,
            incomplete: true,
            prior_verdict: None,
        };
        let alarms = config.evaluator.harmful(snapshot).alarms;
        assert!(alarms.len() == 1 && alarms[0].explanation.contains("SECRET"), "{alarms:?}");
        let meter = Meter::new(Telemetry::new(), std::iter::empty());
        let log = logged(|| drop(HarmfulCalls::default().report_calls(trace, alarms, &config, &meter)));
        assert!(log.contains("other_function") && log.contains("task=\"t\""), "{log}");
        assert!(!log.contains("SECRET"), "{log}");
    }

    #[test]
    fn a_limit_is_reported_once_per_trace_and_cause() {
        let text = "verdict: { alarms: { max_tokens: 10, max_cost_usd: 1 } }".to_owned();
        let sources = [verdict_config::Source { name: "test".to_owned(), text }];
        let config = from_sources(&sources, &|_| None).unwrap();
        let config = RuntimeConfig::new(&config.verdict, &Extensions::default(), None).unwrap();
        let snapshot = |used: &[&str]| {
            let calls = used.iter().enumerate().map(|(n, used)| {
                let id = 2 + u8::try_from(n).unwrap();
                span(id, "chat", &[("gen_ai.agent.name", "SECRET"), ("gen_ai.usage.input_tokens", used)])
            });
            let spans: Vec<Value> = calls.collect();
            let request: ExportTraceServiceRequest =
                serde_json::from_value(json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
                    .unwrap();
            let body: bytes::Bytes = request.encode_to_vec().into();
            let mut groups = split(&body, "verdict.", &Interner::default()).unwrap().groups;
            let (trace, spans) = (groups[0].trace, std::mem::take(&mut groups[0].spans));
            let (logs, reason) = (Vec::new(), CloseReason::Idle);
            ClosedTrace {
                trace,
                spans,
                logs,
                bytes: 0,
                close_reason: reason,
                incomplete: true,
                prior_verdict: None,
            }
        };
        let meter = Meter::new(Telemetry::new(), std::iter::empty());
        let mut calls = HarmfulCalls::default();
        let mut report = |used: &[&str]| {
            let snapshot = snapshot(used);
            let trace = snapshot.trace;
            let limits = config.evaluator.harmful(snapshot).limits;
            calls.report_limits(trace, limits, &config, &meter).len()
        };
        assert_eq!(report(&["10"]), 0);
        let log = logged(|| assert_eq!(report(&["10", "1"]), 1));
        assert!(log.contains("cause=\"tokens\"") && !log.contains("SECRET"), "{log}");
        assert_eq!(report(&["10", "1", "100"]), 0);
        assert_eq!(meter.telemetry.traces.alarm(AlarmCause::Tokens).get(), 1);
    }

    #[test]
    fn a_trace_that_closes_unchecked_is_counted() {
        let text = "verdict: { alarms: { max_tokens: 10 } }".to_owned();
        let config = from_sources(&[verdict_config::Source { name: "test".to_owned(), text }], &|_| None);
        let config = RuntimeConfig::new(&config.unwrap().verdict, &Extensions::default(), None).unwrap();
        let meter = Meter::new(Telemetry::new(), std::iter::empty());
        let mut calls = HarmfulCalls::default();
        let [first, second] = [TraceId([1; 16]), TraceId([2; 16])];
        for trace in [second, first, second] {
            calls.note_spans(trace, &config);
        }
        assert!(calls.unchecked[&second] < calls.unchecked[&first], "the one that waits longer comes first");
        drop((calls.take_alarms(second, &meter), calls.take_alarms(second, &meter)));
        assert_eq!(meter.telemetry.traces.alarm_checks_skipped.get(), 1);
    }
}
