//! Log records of alarms: `otel_verdict.path.alarm`.
//!
//! The evaluation event of the same call follows when the trace closes, so an alarm has a name of its own:
//! nothing is counted twice.

use std::sync::Arc;

use verdict_otlp::Piece;
use verdict_otlp::numbers::log_record;
use verdict_otlp::trace::{Envelope, TraceId};
use verdict_otlp::value::LOG_ATTRIBUTES;
use verdict_otlp::write::{self, Item, Scalar};

use super::alarm::{Alarm, AlarmState};
use super::summary::MAX_EXPLANATION;
use super::{Emission, Emit, Explanations, RecordEnvelopes};

const NAME: &str = "otel_verdict.path.alarm";
/// `SeverityNumber` INFO and WARN.
const INFO: u64 = 9;
const WARN: u64 = 13;

/// Requests of the log records of alarms of one trace; none if log events are off. `now` is in nanoseconds
/// since 1970.
pub(crate) fn records(
    emission: &Emission,
    trace: TraceId,
    alarms: &[(&Alarm, AlarmState)],
    now: u64,
    max_size: usize,
) -> Vec<Piece> {
    if !emission.has(Emit::LogEvents) {
        return Vec::new();
    }
    let mut envelopes = RecordEnvelopes::default();
    let encoded: Vec<(Arc<Envelope>, Vec<u8>)> = alarms
        .iter()
        .map(|(alarm, state)| (envelopes.of(&alarm.envelope), record(emission, trace, alarm, *state, now)))
        .collect();
    let items = encoded.iter().map(|(envelope, bytes)| Item { envelope, bytes, appended: &[] });
    write::requests(&items.collect::<Vec<_>>(), max_size)
}

fn record(emission: &Emission, trace: TraceId, alarm: &Alarm, state: AlarmState, now: u64) -> Vec<u8> {
    let mut out = Vec::new();
    write::fixed64(&mut out, log_record::TIME_UNIX_NANO, alarm.time);
    let severity = if state == AlarmState::Raised { WARN } else { INFO };
    write::integer(&mut out, log_record::SEVERITY_NUMBER, severity);
    write::bytes(&mut out, log_record::TRACE_ID, &trace.0);
    write::bytes(&mut out, log_record::SPAN_ID, &alarm.span.0);
    write::fixed64(&mut out, log_record::OBSERVED_TIME_UNIX_NANO, now);
    write::bytes(&mut out, log_record::EVENT_NAME, NAME.as_bytes());
    let mut put = |key: &str, value: &str| {
        let key = format!("{}{key}", emission.prefix);
        write::attribute(&mut out, LOG_ATTRIBUTES, &key, Scalar::Str(value));
    };
    put("path.alarm", state.as_str());
    put("path.task", &alarm.task);
    put("path.harmful_call.label", alarm.reason);
    put("path.harmful_call.state", &alarm.state);
    if emission.explanations != Explanations::Off {
        let redacted = emission.redactor.redact(&alarm.explanation);
        let end = redacted.floor_char_boundary(MAX_EXPLANATION);
        put("path.harmful_call.explanation", redacted.get(..end).unwrap_or_default());
    }
    out
}
