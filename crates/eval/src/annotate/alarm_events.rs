//! Log records of alarms: `otel_verdict.path.alarm` of harmful calls, `otel_verdict.alarm` of loops and limits.
//!
//! The evaluation event of the same call follows when the trace closes. An alarm has an event name of its own, so that
//! queries by name do not count a call twice.

use std::sync::Arc;

use verdict_otlp::Piece;
use verdict_otlp::trace::{Envelope, TraceId};
use verdict_otlp::value::LOG_ATTRIBUTES;
use verdict_otlp::write::{self, Scalar, TelemetryItem};

use super::alarm::{Alarm, AlarmState, LimitAlarm};
use super::record_head::{INFO, WARN, put_head};
use super::summary::MAX_EXPLANATION;
use super::{Emission, Emit, RecordEnvelopes};
use crate::measure::table::{HARMFUL_CALL, HARMFUL_CALL_STATE};

/// The event name of a harmful call.
pub const PATH_ALARM_EVENT: &str = "otel_verdict.path.alarm";
/// The event name of a loop, or of an exceeded limit of `verdict.alarms`.
pub const ALARM_EVENT: &str = "otel_verdict.alarm";

/// Requests with the log records of the harmful calls of one trace; none if log events are off. `now` is in
/// nanoseconds since 1970.
pub(crate) fn harmful_call_records(
    emission: &Emission,
    trace: TraceId,
    alarms: &[(&Alarm, AlarmState)],
    now: u64,
    max_size: usize,
) -> Vec<Piece> {
    let records = alarms.iter().map(|(alarm, state)| {
        let bytes = harmful_call_record(emission, trace, alarm, *state, now);
        (&alarm.envelope, bytes)
    });
    requests(emission, records, max_size)
}

/// As [`harmful_call_records`], for loops and limits.
pub(crate) fn limit_records(
    emission: &Emission,
    trace: TraceId,
    alarms: &[LimitAlarm],
    now: u64,
    max_size: usize,
) -> Vec<Piece> {
    let records = alarms.iter().map(|alarm| (&alarm.envelope, limit_record(emission, trace, alarm, now)));
    requests(emission, records, max_size)
}

/// Requests of encoded records and the envelopes of their spans; none if log events are off.
fn requests<'a>(
    emission: &Emission,
    records: impl Iterator<Item = (&'a Arc<Envelope>, Vec<u8>)>,
    max_size: usize,
) -> Vec<Piece> {
    if !emission.writes_to(Emit::LogEvents) {
        return Vec::new();
    }
    let mut envelopes = RecordEnvelopes::default();
    let encoded: Vec<(Arc<Envelope>, Vec<u8>)> =
        records.map(|(envelope, bytes)| (envelopes.for_span(envelope), bytes)).collect();
    let items = encoded.iter().map(|(envelope, bytes)| TelemetryItem { envelope, bytes, appended: &[] });
    write::requests(&items.collect::<Vec<_>>(), max_size)
}

fn limit_record(emission: &Emission, trace: TraceId, alarm: &LimitAlarm, now: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_head(&mut out, (trace, alarm.span), (alarm.time, now), WARN, ALARM_EVENT);
    let mut put_attribute =
        |key: &str, value: &str| write::attribute(&mut out, LOG_ATTRIBUTES, key, Scalar::Str(value));
    let prefix = &emission.prefix;
    put_attribute(&format!("{prefix}alarm.cause"), alarm.cause.as_str());
    if let Some(text) = disclosed_explanation(emission, &alarm.explanation) {
        put_attribute(&format!("{prefix}alarm.explanation"), &text);
    }
    put_agent_and_session(&mut out, &alarm.agent, &alarm.session);
    out
}

/// Appends the agent and the session of the run that an alarm is about.
fn put_agent_and_session(out: &mut Vec<u8>, agent: &Option<String>, session: &Option<String>) {
    for (key, value) in [("gen_ai.agent.name", agent), ("gen_ai.conversation.id", session)] {
        if let Some(value) = value {
            write::attribute(out, LOG_ATTRIBUTES, key, Scalar::Str(value));
        }
    }
}

/// The explanation of an alarm, redacted and truncated; `None` if explanations are off.
fn disclosed_explanation(emission: &Emission, text: &str) -> Option<String> {
    let redacted = emission.disclose(text)?;
    let end = redacted.floor_char_boundary(MAX_EXPLANATION);
    redacted.get(..end).map(str::to_owned)
}

fn harmful_call_record(
    emission: &Emission,
    trace: TraceId,
    alarm: &Alarm,
    state: AlarmState,
    now: u64,
) -> Vec<u8> {
    let mut out = Vec::new();
    let severity = if state == AlarmState::Raised { WARN } else { INFO };
    put_head(&mut out, (trace, alarm.span), (alarm.time, now), severity, PATH_ALARM_EVENT);
    let mut put_attribute = |key: &str, value: &str| {
        let key = format!("{}{key}", emission.prefix);
        write::attribute(&mut out, LOG_ATTRIBUTES, &key, Scalar::Str(value));
    };
    put_attribute("path.alarm", state.as_str());
    put_attribute("path.task", &alarm.task);
    put_attribute(&format!("{HARMFUL_CALL}.label"), alarm.reason);
    put_attribute(HARMFUL_CALL_STATE, &alarm.state);
    if let Some(text) = disclosed_explanation(emission, &alarm.explanation) {
        put_attribute(&format!("{HARMFUL_CALL}.explanation"), &text);
    }
    put_agent_and_session(&mut out, &alarm.agent, &alarm.session);
    out
}
