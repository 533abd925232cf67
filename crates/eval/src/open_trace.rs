//! The calls of a trace that is still open: harmful ones, and the position of each run.
//!
//! In: a snapshot of an open trace. Out: alarms and the positions of runs; when the trace closes, which alarms
//! its spans confirm.

use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use verdict_otlp::trace::{CloseReason, ClosedTrace, Idx, SpanId, TraceId, Tree};
use verdict_otlp::{Piece, work};

use crate::annotate::alarm::{Alarm, AlarmCause, AlarmMark, AlarmState, LimitAlarm};
use crate::annotate::alarm_events;
use crate::evaluate::{Assessment, EvaluatedTrace, Evaluator, MAX_REQUEST, sorted_logs};
use crate::measure::path::metric::harmful_calls;
use crate::measure::path::next::{PathAnswer, PathPositions, PendingCall, ProposedCall, RunHints};
use crate::measure::table::{HARMFUL_CALL, HARMFUL_CALL_STATE};
use crate::measure::work_budget::{DEFAULT_STEPS, WorkBudget};
use crate::measure::{DetailValue, Measurement, Memo, Value};
use crate::open_limits;
use crate::recognise::AgentTrace;

/// The alarms of an open trace, by the spans that have arrived.
#[derive(Debug, Default)]
pub struct OpenTraceAlarms {
    /// Harmful calls.
    pub alarms: Vec<Alarm>,
    /// Loops and exceeded limits, one per cause.
    pub limits: Vec<LimitAlarm>,
    /// The session that the trace belongs to.
    pub session: Option<String>,
}

impl Evaluator {
    /// The alarms of a trace that is still open, and its session.
    pub fn harmful(&self, snapshot: ClosedTrace) -> OpenTraceAlarms {
        let tree = Tree::new(snapshot.trace, snapshot.spans);
        let trace = self.recogniser.open_trace(tree, &sorted_logs(snapshot.logs));
        let memo = self.memo();
        let calls = harmful_calls(&trace, (&self.settings.path, &self.settings.path_tasks), &memo);
        let limits = open_limits::alarms(&trace, &self.alarms, &self.settings, &memo);
        let mut requested = requested_calls(&trace);
        let session = trace.views.iter().find_map(|view| view.session.as_deref()).map(str::to_owned);
        let alarms = calls.into_iter().filter_map(|m| {
            let alarm = alarm_of(&trace, m, &mut requested)?;
            Some(Alarm { session: session.clone(), ..alarm })
        });
        let alarms = alarms.collect();
        OpenTraceAlarms { alarms, limits, session }
    }

    /// As [`Evaluator::assess`] for a trace that is still open, without the rules: questions about it do not depend on
    /// findings of rules, which further spans may change.
    pub fn assess_open(&self, snapshot: ClosedTrace) -> Assessment {
        #[cfg(any(test, feature = "testing"))]
        if let Some(hook) = self.before_assessment {
            hook(snapshot.trace);
        }
        let tree = Tree::new(snapshot.trace, snapshot.spans);
        let trace = self.recogniser.open_trace(tree, &sorted_logs(snapshot.logs));
        Assessment::without_rules(trace, snapshot.close_reason)
    }

    /// A trace that is still open, recognised, without measurements. `now` is in nanoseconds since 1970.
    pub fn view_open(&self, snapshot: ClosedTrace, now: u64) -> EvaluatedTrace {
        let logs = sorted_logs(snapshot.logs);
        let mut view = self.unmeasured(ClosedTrace { logs: Vec::new(), ..snapshot }, now);
        view.trace = self.recogniser.open_trace(std::mem::take(&mut view.trace.tree), &logs);
        view
    }

    /// The position of every agent's run in a trace that is still open.
    pub fn path_positions(&self, snapshot: ClosedTrace) -> PathPositions {
        let tree = Tree::new(snapshot.trace, snapshot.spans);
        let trace = self.recogniser.open_trace(tree, &sorted_logs(snapshot.logs));
        PathPositions::new(&trace, &self.settings.path_tasks, &self.memo())
    }

    /// A memo with its own work budget, for one trace that is still open.
    fn memo(&self) -> Memo {
        Memo::within(WorkBudget::new(DEFAULT_STEPS, self.stop.map(|stop| stop())))
    }

    /// Whether every applicable task allows `call` at the position that the run has after the pending calls.
    pub fn path_decision(
        &self,
        positions: &PathPositions,
        hints: &RunHints,
        pending: &[PendingCall],
        call: &ProposedCall,
    ) -> PathAnswer {
        positions.decide(&self.settings.path_tasks, hints, pending, call)
    }

    /// Converts an allowed call to a pending one: its span has not arrived yet.
    pub fn pending_call(
        &self,
        positions: &PathPositions,
        hints: &RunHints,
        pending: &[PendingCall],
        call: ProposedCall,
    ) -> PendingCall {
        positions.pending(&self.settings.path_tasks, hints, pending, call)
    }

    /// Records in an evaluated trace the state of each alarm that was raised while it was open, and returns the alarms
    /// that its spans do not confirm. `retracted` contains the spans of alarms that were retracted before.
    pub fn confirm_alarms<'a>(
        &self,
        evaluated: &mut EvaluatedTrace,
        raised: &'a [Alarm],
        retracted: &[SpanId],
    ) -> Vec<&'a Alarm> {
        if raised.is_empty() && retracted.is_empty() {
            return Vec::new();
        }
        let trace = &evaluated.trace;
        let is_harmful = |m: &&Measurement| m.metric == HARMFUL_CALL && m.outcome.is_ok();
        let mut requested = requested_calls(trace);
        let mut harmful_spans: HashSet<SpanId> = HashSet::default();
        let mut harmful_by_call: HashMap<RequestedCall, SpanId> = HashMap::default();
        for m in evaluated.measurements.iter().filter(is_harmful) {
            let Some(span) = trace.tree.spans.get(m.at) else { continue };
            harmful_spans.insert(span.id);
            for call in requested.remove(&m.at).unwrap_or_default() {
                harmful_by_call.entry(call).or_insert(span.id);
            }
        }
        let confirming_span = |alarm: &Alarm| {
            let by_call = || alarm.calls.iter().find_map(|call| harmful_by_call.get(call).copied());
            harmful_spans.contains(&alarm.span).then_some(alarm.span).or_else(by_call)
        };
        let mut marks: Vec<AlarmMark> = Vec::new();
        let mut marked: HashSet<SpanId> = HashSet::default();
        let mut add_mark = |span, state| {
            if marked.insert(span) {
                marks.push(AlarmMark { span, state });
            }
        };
        let mut unconfirmed = Vec::new();
        for alarm in raised {
            match confirming_span(alarm) {
                Some(span) => add_mark(span, AlarmState::Raised),
                None => {
                    add_mark(alarm.span, AlarmState::Retracted);
                    unconfirmed.push(alarm);
                }
            }
        }
        for span in retracted {
            // A call that was reported by mistake can be harmful in the end.
            let is_harmful = harmful_spans.contains(span);
            add_mark(*span, if is_harmful { AlarmState::Raised } else { AlarmState::Retracted });
        }
        evaluated.alarms = marks;
        unconfirmed
    }

    /// The loops and exceeded limits of an evaluated trace whose causes were not reported while it was open.
    pub fn unreported_limits(&self, evaluated: &EvaluatedTrace, reported: &[AlarmCause]) -> Vec<LimitAlarm> {
        // The limits of a trace with late spans were reported when it closed.
        if !self.alarms.is_on() || evaluated.summary.close_reason == CloseReason::Late {
            return Vec::new();
        }
        let mut limits = open_limits::alarms(&evaluated.trace, &self.alarms, &self.settings, &self.memo());
        limits.retain(|alarm| !reported.contains(&alarm.cause));
        limits
    }

    /// Requests with the log records of the harmful calls of one trace. `now` is in nanoseconds since 1970.
    pub fn alarm_events(&self, trace: TraceId, alarms: &[(&Alarm, AlarmState)], now: u64) -> Vec<Piece> {
        alarm_events::harmful_call_records(&self.emission, trace, alarms, now, MAX_REQUEST)
    }

    /// As [`Evaluator::alarm_events`], for loops and limits.
    pub fn limit_events(&self, trace: TraceId, alarms: &[LimitAlarm], now: u64) -> Vec<Piece> {
        alarm_events::limit_records(&self.emission, trace, alarms, now, MAX_REQUEST)
    }
}

/// Identifies a call: the model's span that requested it, and its index among the requests there.
type RequestedCall = (SpanId, usize);

fn alarm_of(
    trace: &AgentTrace,
    m: Measurement,
    requested: &mut HashMap<Idx, Vec<RequestedCall>>,
) -> Option<Alarm> {
    let span = trace.tree.spans.get(m.at)?;
    let task = m.judge.strip_prefix("task/").unwrap_or(&m.judge).to_owned();
    let state = m.details.into_iter().find_map(|detail| match detail.value {
        DetailValue::Text(text) if detail.key == HARMFUL_CALL_STATE => Some(text),
        _ => None,
    });
    let measured = m.outcome.ok()?;
    let Value::Label(reason) = measured.value else { return None };
    Some(Alarm {
        span: span.id,
        reason,
        task,
        state: state.unwrap_or_default(),
        agent: open_limits::agent_of(trace, m.at),
        session: None,
        explanation: measured.findings.into_iter().next()?.rationale,
        calls: requested.remove(&m.at).unwrap_or_default(),
        time: span.start,
        envelope: Arc::clone(&span.envelope),
    })
}

/// By span, the calls on it that models requested.
fn requested_calls(trace: &AgentTrace) -> HashMap<Idx, Vec<RequestedCall>> {
    let mut by_span: HashMap<Idx, Vec<RequestedCall>> = HashMap::default();
    for call in &trace.calls {
        work::count(1);
        let llm = call.llm.and_then(|llm| trace.tree.spans.get(llm));
        if let (Some(llm), Some(request_index)) = (llm, call.request_index) {
            by_span.entry(call.at).or_default().push((llm.id, request_index));
        }
    }
    by_span
}
