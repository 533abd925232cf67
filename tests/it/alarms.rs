//! Alarms about loops, tokens and cost from the spans to the log event, the counter and the webhook.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use serde_json::{Value, json};
use verdict_eval::alarms::AlarmCause;
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::{Destination, Process};

const CAUSES: [AlarmCause; 3] = [AlarmCause::Loop, AlarmCause::Tokens, AlarmCause::Cost];

/// A run that calls a tool five times with the same arguments and the same error, with 40 tokens and half a dollar a
/// call.
fn run(trace: u8, service: &str, with_agent: bool) -> ExportTraceServiceRequest {
    let span = |id: u8, operation: &str, attributes: Value| {
        let mut merged = json!({ "gen_ai.operation.name": operation, "gen_ai.agent.name": "planner",
            "gen_ai.conversation.id": "chat-1" });
        merged.as_object_mut().unwrap().extend(attributes.as_object().unwrap().clone());
        let attribute =
            |(key, value): (&String, &Value)| json!({ "key": key, "value": { "stringValue": value } });
        let time = |n: u64| (1_700_000_000_000_000_000 + (u64::from(id) * 2 + n) * 1_000_000).to_string();
        json!({
            "traceId": format!("{trace:032x}"), "spanId": format!("{id:016x}"), "kind": 1, "name": operation,
            "parentSpanId": if id == 1 { "" } else { "0000000000000001" },
            "startTimeUnixNano": time(0), "endTimeUnixNano": time(if id == 1 { 100 } else { 1 }),
            "attributes": merged.as_object().unwrap().iter().map(attribute).collect::<Vec<_>>(),
        })
    };
    let mut spans = vec![];
    if with_agent {
        spans.push(span(1, "invoke_agent", json!({})));
    }
    for n in 0..5 {
        let usage = json!({ "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": "30",
            "gen_ai.usage.output_tokens": "10", "gen_ai.usage.cost": "0.5" });
        spans.push(span(2 + 2 * n, "chat", usage));
        let call = json!({ "gen_ai.tool.name": "visit", "gen_ai.tool.call.arguments": "{\"url\": \"a.example\"}",
            "gen_ai.tool.call.result": "Error: invalid url 'a.example': the scheme https:// is required" });
        spans.push(span(3 + 2 * n, "execute_tool", call));
    }
    let resource = json!({ "attributes": [{ "key": "service.name", "value": { "stringValue": service } }] });
    serde_json::from_value(
        json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [{ "spans": spans }] }] }),
    )
    .unwrap()
}

/// The alarms that the destination has, by trace and cause.
fn events(destination: &Destination) -> BTreeMap<(Vec<u8>, String), usize> {
    let mut counts = BTreeMap::new();
    for record in destination.records().into_iter().filter(|record| record.event_name == "otel_verdict.alarm")
    {
        let text = |key: &str| {
            let attribute = record.attributes.iter().find(|attribute| attribute.key == key);
            format!("{:?}", attribute.and_then(|attribute| attribute.value.as_ref()))
        };
        assert!(text("gen_ai.agent.name").contains("planner"), "{record:?}");
        assert!(text("gen_ai.conversation.id").contains("chat-1"), "{record:?}");
        *counts.entry((record.trace_id.clone(), text("verdict.alarm.cause"))).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn every_trace_raises_each_alarm_once_at_the_latest_when_it_closes() {
    let server = MockServer::start().await;
    Mock::given(method("POST")).respond_with(ResponseTemplate::new(200)).mount(&server).await;
    let text = format!(
        "verdict: {{ close: {{ quiet: 1h, idle: 1h, by_service: {{ quick: {{ quiet: 0s }} }} }},\n\
         \x20 alarms: {{ loops: true, max_tokens: 100, max_cost_usd: 1 }} }}\n\
         exporters: {{ webhook: {{ endpoint: '{}', rules: [{{ on: [alarm], agents: [planner] }}] }} }}\n",
        server.uri()
    );
    let process = Process::start(&text).await;
    let mut client = process.client();
    let traces = &process.service.telemetry().traces;
    // The alarms of an open trace.
    client.spans(run(1, "shop", false)).await;
    process.until("the alarms of an open trace", |destination| events(destination).len() == 3).await;
    assert_eq!(CAUSES.map(|cause| traces.alarm(cause).get()), [1, 1, 1]);
    // Traces that close as they arrive, before any check.
    for trace in 2..22 {
        client.spans(run(trace, "quick", true)).await;
    }
    process.service.flush().await;
    process.until("the alarms of all traces", |destination| events(destination).len() == 3 * 21).await;
    assert_eq!(CAUSES.map(|cause| traces.alarm(cause).get()), [21, 21, 21]);
    assert_eq!(traces.alarm_checks_skipped.get(), 20);
    let found = events(&process.destination);
    assert!(found.values().all(|count| *count == 1), "{found:?}");
    // At most 30 alerts a minute are sent.
    let received = async || server.received_requests().await.unwrap_or_default();
    while received().await.len() < 30 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    for request in received().await {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!((&body["type"], &body["data"]["agent"]), (&json!("alarm.raised"), &json!("planner")));
    }
    Box::pin(process.stop()).await;
}
