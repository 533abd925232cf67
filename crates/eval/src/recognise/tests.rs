//! Whole traces: recorded runs of real frameworks, and spans written for one rule each.

mod content;
mod hostile;
mod recorded;
mod written;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::{Value, json};
use verdict_otlp::Payload;
use verdict_otlp::request::{Interner, split};
use verdict_otlp::trace::{SpanId, TraceId};

use super::*;

/// One recorded run: its traces as traces, and what is known of it.
struct Case {
    name: String,
    truth: Value,
    traces: Vec<AgentTrace>,
}

impl Case {
    fn truth(&self, key: &str) -> &Value {
        &self.truth[key]
    }

    fn views(&self) -> impl Iterator<Item = &SpanView> {
        self.traces.iter().flat_map(|s| &s.views)
    }

    fn count(&self, kind: Kind) -> usize {
        self.views().filter(|r| r.kind == kind && !r.wrapper).count()
    }

    fn agents(&self) -> impl Iterator<Item = (&AgentTrace, &Agent)> {
        self.traces.iter().flat_map(|s| s.agents.iter().map(move |a| (s, a)))
    }

    fn calls(&self) -> impl Iterator<Item = &Call> {
        self.traces.iter().flat_map(|s| &s.calls)
    }

    fn outline(&self) -> String {
        self.traces.iter().map(AgentTrace::outline).collect()
    }
}

/// The built-in conventions, compiled once.
fn recogniser() -> &'static Recogniser {
    static BUILT_IN: LazyLock<Recogniser> =
        LazyLock::new(|| Recogniser::new(&Overrides::default()).expect("the built-in conventions compile"));
    &BUILT_IN
}

fn read_case(folder: &Path) -> Case {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let envelopes = Interner::default();
    let mut traces: BTreeMap<TraceId, Vec<verdict_otlp::trace::Span>> = BTreeMap::new();
    let mut logs = Vec::new();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "pb")) {
        let body = fs::read(file).unwrap();
        if file.file_name().is_some_and(|n| n.to_string_lossy().starts_with("logs-")) {
            logs.extend(records(&body));
        } else {
            for group in split(&body, "verdict.", &envelopes).unwrap().groups {
                traces.entry(group.trace).or_default().extend(group.spans);
            }
        }
    }
    let recogniser = recogniser();
    let traces =
        traces.into_iter().map(|(id, spans)| recogniser.trace(Tree::new(id, spans), &logs, false)).collect();
    Case {
        name: folder.file_name().unwrap().to_string_lossy().into_owned(),
        truth: serde_json::from_slice(&fs::read(folder.join("truth.json")).unwrap()).unwrap(),
        traces,
    }
}

/// The log records of an encoded logs request.
fn records(body: &[u8]) -> Vec<Attached> {
    fn inner(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
        verdict_otlp::Fields::new(message).map_while(Result::ok).filter_map(move |f| match f.payload {
            Payload::Bytes(b) if f.number == number => Some(b),
            _ => None,
        })
    }
    let scopes = inner(body, 1).flat_map(|r| inner(r, 2));
    scopes
        .flat_map(|s| inner(s, 2))
        .filter_map(|record| {
            let span = SpanId(inner(record, 10).next()?.try_into().ok()?);
            Some(Attached { span, record: Bytes::copy_from_slice(record) })
        })
        .collect()
}

/// A trace of spans written by hand: `{id, parent, name, scope, attributes, events, status}`, ids
/// small numbers, times in order of writing unless given.
fn scene_of(spans: Value) -> AgentTrace {
    scene_with(&Overrides::default(), spans, serde_json::json!([]))
}

/// As [`scene_of`], with log records `{span, event, attributes, body}`.
fn scene_with(overrides: &Overrides, spans: Value, logs: Value) -> AgentTrace {
    use verdict_otlp::Signal;
    use verdict_otlp::json::decode;
    let resource =
        serde_json::json!({ "attributes": attributes(&serde_json::json!({ "service.name": "shop" })) });
    let mut scopes = Vec::new();
    for (i, span) in spans.as_array().unwrap().iter().enumerate() {
        let start = span["start"].as_u64().unwrap_or((i as u64 + 1) * 1_000_000);
        let events: Vec<Value> = span["events"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|e| serde_json::json!({ "name": e["name"], "attributes": attributes(&e["attributes"]) }))
            .collect();
        let status = match &span["status"] {
            Value::String(message) => serde_json::json!({ "code": 2, "message": message }),
            _ => serde_json::json!({}),
        };
        scopes.push(serde_json::json!({ "scope": { "name": span["scope"] }, "spans": [{
            "traceId": format!("{:032x}", 7), "spanId": id(&span["id"]), "parentSpanId": if span["parent"].is_null() { String::new() } else { id(&span["parent"]) },
            "name": span["name"], "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 500_000).to_string(),
            "attributes": attributes(&span["attributes"]), "events": events, "status": status,
        }] }));
    }
    let request = serde_json::json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": scopes }] });
    let body = decode(Signal::Traces, request.to_string().as_bytes()).unwrap();
    let group = split(&body, "verdict.", &Interner::default()).unwrap().groups.pop().unwrap();
    let records_: Vec<Value> = logs
        .as_array()
        .unwrap()
        .iter()
        .map(|log| {
            serde_json::json!({
                "traceId": format!("{:032x}", 7), "spanId": id(&log["span"]), "eventName": log["event"],
                "attributes": attributes(&log["attributes"]), "body": any_value(&log["body"]),
            })
        })
        .collect();
    let logs = match records_.is_empty() {
        true => Vec::new(),
        false => {
            let request =
                serde_json::json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": records_ }] }] });
            records(&decode(Signal::Logs, request.to_string().as_bytes()).unwrap())
        }
    };
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
    entries.map(|(k, v)| serde_json::json!({ "key": k, "value": any_value(v) })).collect()
}

fn any_value(value: &Value) -> Value {
    match value {
        Value::Null => serde_json::json!({}),
        Value::Bool(b) => serde_json::json!({ "boolValue": b }),
        Value::Number(n) if n.is_i64() => serde_json::json!({ "intValue": n.to_string() }),
        Value::Number(n) => serde_json::json!({ "doubleValue": n }),
        Value::String(s) => serde_json::json!({ "stringValue": s }),
        Value::Array(items) => {
            serde_json::json!({ "arrayValue": { "values": items.iter().map(any_value).collect::<Vec<_>>() } })
        }
        Value::Object(_) => serde_json::json!({ "kvlistValue": { "values": attributes(value) } }),
    }
}

fn kinds(trace: &AgentTrace) -> Vec<Kind> {
    trace.views.iter().map(|r| r.kind).collect()
}

fn named(name: &str, scope: &str, attributes: Value) -> Kind {
    kinds(&scene_of(json!([{ "id": 1, "name": name, "scope": scope, "attributes": attributes }])))[0]
}

/// One span as read.
fn one(attributes: Value) -> SpanView {
    scene_of(json!([{ "id": 1, "name": "span", "attributes": attributes }])).views.remove(0)
}
