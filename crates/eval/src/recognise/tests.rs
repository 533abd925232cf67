//! Whole traces: recorded runs of real frameworks, and spans written for one rule each.

mod content;
mod evaluations;
mod framing;
mod hostile;
mod recorded;
mod written;

use bytes::Bytes;
use serde_json::{Value, json};
use verdict_otlp::Signal;
use verdict_otlp::json::decode;
use verdict_otlp::request::{Interner, split};
use verdict_otlp::trace::{SpanId, TraceId};

use super::recorded_cases::{recogniser, records};
use super::*;

/// A trace of spans `{id, parent, name, scope, attributes, events, links, status, start}`. Ids are small numbers;
/// spans without `start` start in their order.
fn trace_of(spans: Value) -> AgentTrace {
    trace_with(&Overrides::default(), spans, json!([]))
}

/// As [`trace_of`], with log records `{span, event, attributes, body}`.
fn trace_with(overrides: &Overrides, spans: Value, logs: Value) -> AgentTrace {
    let resource =
        json!({ "attributes": attributes(&json!({ "service.name": "shop", "service.version": "0.9" })) });
    let mut scopes = Vec::new();
    for (i, span) in spans.as_array().unwrap().iter().enumerate() {
        let start = span["start"].as_u64().unwrap_or((i as u64 + 1) * 1_000_000);
        let events: Vec<Value> = span["events"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|e| json!({ "name": e["name"], "attributes": attributes(&e["attributes"]) }))
            .collect();
        let links: Vec<Value> = span["links"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|l| json!({ "traceId": format!("{:032x}", 7), "spanId": id(&l["to"]), "attributes": attributes(&l["attributes"]) }))
            .collect();
        let status = match &span["status"] {
            Value::String(message) => json!({ "code": 2, "message": message }),
            _ => json!({}),
        };
        scopes.push(json!({ "scope": { "name": span["scope"] }, "spans": [{
            "traceId": format!("{:032x}", 7), "spanId": id(&span["id"]), "parentSpanId": if span["parent"].is_null() { String::new() } else { id(&span["parent"]) },
            "name": span["name"], "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 500_000).to_string(),
            "attributes": attributes(&span["attributes"]), "events": events, "links": links, "status": status,
        }] }));
    }
    let request = json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": scopes }] });
    let body = decode(Signal::Traces, request.to_string().as_bytes()).unwrap();
    let group = split(&body, "verdict.", &Interner::default()).unwrap().groups.pop().unwrap();
    let encoded: Vec<Value> = logs
        .as_array()
        .unwrap()
        .iter()
        .map(|log| {
            json!({
                "traceId": format!("{:032x}", 7), "spanId": id(&log["span"]), "eventName": log["event"],
                "attributes": attributes(&log["attributes"]), "body": any_value(&log["body"]),
            })
        })
        .collect();
    let request = json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": encoded }] }] });
    let logs = records(&decode(Signal::Logs, request.to_string().as_bytes()).unwrap());
    let tree = Tree::new(group.trace, group.spans);
    if *overrides == Overrides::default() {
        return recogniser().trace(tree, &logs, false);
    }
    Recogniser::new(overrides).unwrap().trace(tree, &logs, false)
}

fn id(id: &Value) -> String {
    format!("{:016x}", id.as_u64().unwrap())
}

fn attributes(map: &Value) -> Vec<Value> {
    let entries = map.as_object().into_iter().flatten();
    entries.map(|(k, v)| json!({ "key": k, "value": any_value(v) })).collect()
}

fn any_value(value: &Value) -> Value {
    match value {
        Value::Null => json!({}),
        Value::Bool(b) => json!({ "boolValue": b }),
        Value::Number(n) if n.is_i64() => json!({ "intValue": n.to_string() }),
        Value::Number(n) => json!({ "doubleValue": n }),
        Value::String(s) => json!({ "stringValue": s }),
        Value::Array(items) => {
            json!({ "arrayValue": { "values": items.iter().map(any_value).collect::<Vec<_>>() } })
        }
        Value::Object(_) => json!({ "kvlistValue": { "values": attributes(value) } }),
    }
}

fn kinds(trace: &AgentTrace) -> Vec<Kind> {
    trace.views.iter().map(|r| r.kind).collect()
}

fn kind_of_named(name: &str, scope: &str, attributes: Value) -> Kind {
    kinds(&trace_of(json!([{ "id": 1, "name": name, "scope": scope, "attributes": attributes }])))[0]
}

/// The view of one span.
fn view_of(attributes: Value) -> SpanView {
    trace_of(json!([{ "id": 1, "name": "span", "attributes": attributes }])).views.remove(0)
}
