//! What the calls of a trace that is still open show: harmful calls, and where each run is.
//!
//! In: a snapshot of an open trace. Out: alarms and the positions of runs; when the trace closes, which alarms
//! its spans confirm.

use std::sync::Arc;

use foldhash::HashMap;
use verdict_otlp::Piece;
use verdict_otlp::trace::{ClosedTrace, Idx, SpanId, TraceId, Tree};

use crate::annotate::alarm::{Alarm, AlarmMark, AlarmState};
use crate::annotate::alarm_events;
use crate::evaluate::{EvaluatedTrace, Evaluator, MAX_REQUEST, in_order};
use crate::measure::path::metric::{HARMFUL_CALL, harmful_calls};
use crate::measure::path::next::{PathAnswer, PathPositions, PendingCall, ProposedCall, RunHints};
use crate::measure::{DetailValue, Measurement, Value};
use crate::recognise::{AgentTrace, Call};

/// What the calls of an open trace show.
#[derive(Debug, Default)]
pub struct OpenCalls {
    pub alarms: Vec<Alarm>,
    /// The session that the trace belongs to.
    pub session: Option<String>,
}

impl Evaluator {
    /// The harmful calls of a trace that is still open, and its session.
    pub fn harmful(&self, snapshot: ClosedTrace) -> OpenCalls {
        let tree = Tree::new(snapshot.trace, snapshot.spans);
        let trace = self.recogniser.open_trace(tree, &in_order(snapshot.logs));
        let calls = harmful_calls(&trace, &self.settings.path);
        let alarms = calls.into_iter().filter_map(|m| alarm_of(&trace, m)).collect();
        let session = trace.views.iter().find_map(|view| view.session.as_deref()).map(str::to_owned);
        OpenCalls { alarms, session }
    }

    /// A trace that is still open, recognised, without measurements. `now` is in nanoseconds since 1970.
    pub fn view_open(&self, snapshot: ClosedTrace, now: u64) -> EvaluatedTrace {
        let logs = in_order(snapshot.logs);
        let mut view = self.unmeasured(ClosedTrace { logs: Vec::new(), ..snapshot }, now);
        view.trace = self.recogniser.open_trace(std::mem::take(&mut view.trace.tree), &logs);
        view
    }

    /// The position of every agent's run in a trace that is still open.
    pub fn path_positions(&self, snapshot: ClosedTrace) -> PathPositions {
        let tree = Tree::new(snapshot.trace, snapshot.spans);
        let trace = self.recogniser.open_trace(tree, &in_order(snapshot.logs));
        PathPositions::of(&trace, &self.settings.path.loaded)
    }

    /// Whether every task that applies allows `call` where the run is, after the pending calls.
    pub fn path_decision(
        &self,
        positions: &PathPositions,
        hints: &RunHints,
        pending: &[PendingCall],
        call: &ProposedCall,
    ) -> PathAnswer {
        positions.decide(&self.settings.path.loaded, hints, pending, call)
    }

    /// A call that was allowed, as one whose span is awaited.
    pub fn pending_call(
        &self,
        positions: &PathPositions,
        hints: &RunHints,
        pending: &[PendingCall],
        call: ProposedCall,
    ) -> PendingCall {
        positions.pending(&self.settings.path.loaded, hints, pending, call)
    }

    /// Notes on an evaluated trace the alarms that were raised while it was open, and returns those that its
    /// spans do not confirm. `retracted` are the spans of those that were retracted before.
    pub fn settle_alarms<'a>(
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
        let harmful: HashMap<SpanId, Vec<(SpanId, usize)>> = evaluated
            .measurements
            .iter()
            .filter(is_harmful)
            .filter_map(|m| Some((trace.tree.spans.get(m.at)?.id, requested_calls(trace, m.at))))
            .collect();
        let confirmed = |alarm: &Alarm| {
            let by_call = || {
                let same = |calls: &Vec<_>| alarm.calls.iter().any(|call| calls.contains(call));
                harmful.iter().find(|(_, calls)| same(calls)).map(|(span, _)| *span)
            };
            harmful.contains_key(&alarm.span).then_some(alarm.span).or_else(by_call)
        };
        let mut marks: Vec<AlarmMark> = Vec::new();
        let mut mark = |span, state| {
            if !marks.iter().any(|mark| mark.span == span) {
                marks.push(AlarmMark { span, state });
            }
        };
        let mut wrong = Vec::new();
        for alarm in raised {
            match confirmed(alarm) {
                Some(span) => mark(span, AlarmState::Raised),
                None => {
                    mark(alarm.span, AlarmState::Retracted);
                    wrong.push(alarm);
                }
            }
        }
        for span in retracted {
            // A call that was reported by mistake can be harmful in the end.
            let is_harmful = harmful.contains_key(span);
            mark(*span, if is_harmful { AlarmState::Raised } else { AlarmState::Retracted });
        }
        evaluated.alarms = marks;
        wrong
    }

    /// Requests of the log records of alarms of one trace. `now` is in nanoseconds since 1970.
    pub fn alarm_events(&self, trace: TraceId, alarms: &[(&Alarm, AlarmState)], now: u64) -> Vec<Piece> {
        alarm_events::records(&self.emission, trace, alarms, now, MAX_REQUEST)
    }
}

fn alarm_of(trace: &AgentTrace, m: Measurement) -> Option<Alarm> {
    let span = trace.tree.spans.get(m.at)?;
    let task = m.judge.strip_prefix("task/").unwrap_or(&m.judge).to_owned();
    let state = m.details.into_iter().find_map(|detail| match detail.value {
        DetailValue::Text(text) if detail.key == "path.harmful_call.state" => Some(text),
        _ => None,
    });
    let measured = m.outcome.ok()?;
    let Value::Label(reason) = measured.value else { return None };
    Some(Alarm {
        span: span.id,
        reason,
        task,
        state: state.unwrap_or_default(),
        explanation: measured.findings.into_iter().next()?.rationale,
        calls: requested_calls(trace, m.at),
        time: span.start,
        envelope: Arc::clone(&span.envelope),
    })
}

/// The calls on a span: the span of the model that requested each, and its place there.
fn requested_calls(trace: &AgentTrace, at: Idx) -> Vec<(SpanId, usize)> {
    let of = |call: &Call| Some((trace.tree.spans.get(call.llm?)?.id, call.place?));
    trace.calls.iter().filter(|call| call.at == at).filter_map(of).collect()
}
