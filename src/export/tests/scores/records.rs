//! Evaluation events for tests of score exporters, as parcels and requests.

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::super::*;

/// The value of an attribute.
pub(in super::super) struct AttributeValue(Value);

impl From<&str> for AttributeValue {
    fn from(text: &str) -> AttributeValue {
        AttributeValue(Value::StringValue(text.to_owned()))
    }
}

impl From<f64> for AttributeValue {
    fn from(number: f64) -> AttributeValue {
        AttributeValue(Value::DoubleValue(number))
    }
}

impl From<i64> for AttributeValue {
    fn from(number: i64) -> AttributeValue {
        AttributeValue(Value::IntValue(number))
    }
}

impl From<[&str; 2]> for AttributeValue {
    fn from(texts: [&str; 2]) -> AttributeValue {
        let value = |text| AnyValue { value: Some(AttributeValue::from(text).0) };
        AttributeValue(Value::ArrayValue(ArrayValue { values: texts.map(value).to_vec() }))
    }
}

pub(in super::super) fn attribute(key: &str, value: impl Into<AttributeValue>) -> KeyValue {
    let value = Some(AnyValue { value: Some(value.into().0) });
    KeyValue { key: key.to_owned(), value, ..Default::default() }
}

/// An evaluation event about a span of the trace whose id consists of bytes 7.
pub(in super::super) fn event(name: &str, failed: bool, mut attributes: Vec<KeyValue>) -> LogRecord {
    attributes.insert(0, attribute("gen_ai.evaluation.name", name));
    LogRecord {
        trace_id: vec![7; 16],
        span_id: vec![0, 0, 0, 0, 0, 0, 1, 0xff],
        event_name: "gen_ai.evaluation.result".into(),
        severity_number: if failed { 13 } else { 9 },
        observed_time_unix_nano: 1_790_000_000_123_456_789,
        attributes,
        ..LogRecord::default()
    }
}

/// The attributes of an evaluation by `evaluator`, given as `id/version`.
fn evaluator_attributes(evaluator: &str) -> Vec<KeyValue> {
    let evaluator_type = if evaluator.starts_with("rules") { "code" } else { "llm" };
    vec![
        attribute("gen_ai.evaluation.target", "planner"),
        attribute("gen_ai.conversation.id", "session-1"),
        attribute("gen_ai.evaluation.evaluator.id", evaluator.rsplit_once('/').unwrap().0),
        attribute("gen_ai.evaluation.evaluator.version", evaluator),
        attribute("gen_ai.evaluation.evaluator.type", evaluator_type),
    ]
}

pub(in super::super) fn score_event(name: &str, score: f64, failed: bool, evaluator: &str) -> LogRecord {
    let mut attributes = vec![
        attribute("gen_ai.evaluation.score.value", score),
        attribute("gen_ai.evaluation.score.label", if failed { "fail" } else { "pass" }),
    ];
    if failed {
        attributes.push(attribute("gen_ai.evaluation.explanation", "search was called 4 times."));
        attributes.push(attribute("verdict.signature", "00aa00bb00cc00dd"));
    }
    attributes.extend(evaluator_attributes(evaluator));
    event(name, failed, attributes)
}

fn label_event(name: &str, label: &str) -> LogRecord {
    let mut attributes = vec![attribute("gen_ai.evaluation.score.label", label)];
    attributes.extend(evaluator_attributes("gpt-x/1f2e"));
    event(name, false, attributes)
}

pub(in super::super) fn trace_verdict(passed: bool, revision: i64) -> LogRecord {
    let result = if passed { "pass" } else { "fail" };
    let mut attributes = vec![
        attribute("gen_ai.evaluation.score.label", result),
        attribute("verdict.trace.result", result),
        attribute("verdict.trace.revision", revision),
    ];
    if !passed {
        attributes.push(attribute("verdict.trace.failed_metrics", ["tool_abuse", "path.correctness"]));
        attributes.push(attribute("verdict.trace.root_cause", "00000000000001ff"));
    }
    attributes.push(attribute("gen_ai.conversation.id", "session-1"));
    event("trace", !passed, attributes)
}

/// The verdicts of a failed trace: scores, a label and an unmeasured metric. An alarm is not a verdict.
pub(in super::super) fn verdicts() -> Vec<LogRecord> {
    let unmeasured = event("latency", false, vec![attribute("gen_ai.evaluation.score.label", "unmeasured")]);
    let mut alarm = event("alarm", true, vec![]);
    alarm.event_name = "verdict.alarm".into();
    vec![
        score_event("tool_abuse", 2.0, true, "rules/1"),
        score_event("path.correctness", 0.5, true, "rules/1"),
        score_event("tokens", 12_000.0, false, "rules/1"),
        label_event("avoidance", "valid"),
        unmeasured,
        trace_verdict(false, 1),
        alarm,
    ]
}

pub(in super::super) fn logs_request(records: Vec<LogRecord>, scope: &str) -> Bytes {
    let scope = InstrumentationScope { name: scope.to_owned(), ..Default::default() };
    let scope_logs = vec![ScopeLogs { scope: Some(scope), log_records: records, ..Default::default() }];
    let resource =
        Resource { attributes: vec![attribute("service.name", "checkout")], ..Resource::default() };
    let resource_logs = vec![ResourceLogs { resource: Some(resource), scope_logs, ..Default::default() }];
    ExportLogsServiceRequest { resource_logs }.encode_to_vec().into()
}

/// A parcel of evaluation events that this process wrote.
pub(in super::super) fn events_parcel(records: Vec<LogRecord>) -> Parcel {
    Parcel {
        source: ParcelSource::Trace,
        ..Parcel::request(Signal::Logs, logs_request(records, "otel-verdict"))
    }
}

pub(in super::super) fn spans_parcel() -> Parcel {
    Parcel { source: ParcelSource::Trace, ..parcel(&["agent", "tool"]) }
}
