//! A running process that has tasks: alarms about open traces, a reload, and the paths API.

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use serde_json::{Value, json};

use super::{TASK, shipped};
use crate::binary::write_file;
use crate::support::{MAX_TIME_WITHOUT_PROGRESS, Process, until};

#[tokio::test(flavor = "multi_thread")]
async fn harmful_calls_are_reported_while_their_trace_is_open() {
    let text = format!(
        "verdict: {{ close: {{ quiet: 1h, idle: 1h }}, metrics: {{ path: {{ tasks: ['{}'] }} }} }}",
        shipped("rover.yaml")
    );
    let process = Process::start(&text).await;
    let mut client = process.client();
    let mut request: ExportTraceServiceRequest =
        serde_json::from_slice(&std::fs::read(shipped("rover-run.json")).unwrap()).unwrap();
    let spans = &mut request.resource_spans[0].scope_spans[0].spans;
    let last_spans = spans.split_off(5);
    client.spans(request.clone()).await;
    let harmful_calls = |process: &Process| process.service.telemetry().traces.harmful_calls.get();
    until("the first call", || harmful_calls(&process) >= 1).await;
    assert_eq!(harmful_calls(&process), 1, "the valve was opened where the rover stood");
    request.resource_spans[0].scope_spans[0].spans = last_spans;
    client.spans(request).await;
    until("the second call", || harmful_calls(&process) >= 2).await;
    assert_eq!(harmful_calls(&process), 2, "too much water; the first call is not reported again");
    assert!(process.destination.spans().is_empty(), "the trace is still open");
    process.service.flush().await;
    process.until("the trace", |d| d.spans().len() == 10).await;
    let label = |key: &str| {
        let spans = process.destination.spans();
        spans.iter().flat_map(|s| &s.attributes).filter(|a| a.key == key).count()
    };
    assert_eq!(label("verdict.path.harmful_call.label"), 2);
    assert_eq!(label("verdict.path.harmful_call.state"), 2);
    Box::pin(process.stop()).await;
}

/// A span of the shop's agent, as its SDK sends it. The agent's span has the id 1.
fn shop_span(trace: u8, id: u8, start: u64, operation: &str, attributes: &[(&str, &str)]) -> Value {
    let named = [("gen_ai.operation.name", operation)];
    let attributes = named.iter().chain(attributes);
    let attribute = |(key, value): &(&str, &str)| json!({"key": key, "value": {"stringValue": value}});
    let time = |seconds: u64| (1_700_000_000_000_000_000 + seconds * 1_000_000_000).to_string();
    json!({
        "traceId": format!("{trace:032x}"),
        "spanId": format!("{id:016x}"),
        "parentSpanId": if id == 1 { "" } else { "0000000000000001" },
        "name": operation,
        "kind": 1,
        "startTimeUnixNano": time(start),
        "endTimeUnixNano": time(start + 1),
        "attributes": attributes.map(attribute).collect::<Vec<_>>(),
    })
}

fn tool_span(trace: u8, id: u8, start: u64, tool: &str, arguments: &str) -> Value {
    let attributes = [
        ("gen_ai.tool.name", tool),
        ("gen_ai.tool.call.arguments", arguments),
        ("gen_ai.tool.call.result", "{\"ok\": true}"),
    ];
    shop_span(trace, id, start, "execute_tool", &attributes)
}

fn shop_request(spans: &[Value]) -> ExportTraceServiceRequest {
    let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]});
    let scopes = json!([{"scope": {"name": "example"}, "spans": spans}]);
    serde_json::from_value(json!({"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]})).unwrap()
}

const USER_MESSAGE: &str = r#"[{"role": "user", "parts": [{"type": "text", "content": "Refund order 7."}]}]"#;

/// A model span that names the agent, before the agent's span has arrived.
fn shop_model(trace: u8) -> Value {
    let attributes = [
        ("gen_ai.agent.name", "shop-agent"),
        ("gen_ai.request.model", "m"),
        ("gen_ai.input.messages", USER_MESSAGE),
    ];
    shop_span(trace, 2, 1, "chat", &attributes)
}

fn attribute_of(attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue], key: &str) -> String {
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
    let value = attributes.iter().find(|attribute| attribute.key == key).and_then(|a| a.value.clone()?.value);
    match value {
        Some(Any::StringValue(text)) => text,
        other => format!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn alarms_come_before_the_agents_span_and_are_retracted() {
    let text = format!(
        "verdict: {{ close: {{ quiet: 1h, idle: 1h }}, metrics: {{ path: {{ tasks: ['{}'] }} }} }}",
        shipped("refund.yaml")
    );
    let process = Process::start(&text).await;
    let mut client = process.client();
    let refund = |trace| tool_span(trace, 4, 6, "issue_refund", r#"{"amount": 20, "order": 7}"#);
    // SDKs send a span when it ends, so that of the agent comes last.
    client.spans(shop_request(&[shop_model(7), refund(7)])).await;
    let alarms = |destination: &crate::support::Destination| {
        let records = destination.records();
        let alarms = records.into_iter().filter(|record| record.event_name == "otel_verdict.path.alarm");
        alarms.collect::<Vec<_>>()
    };
    process.until("an alarm", |destination| alarms(destination).len() == 1).await;
    let alarm = alarms(&process.destination).remove(0);
    assert_eq!(alarm.span_id, [0, 0, 0, 0, 0, 0, 0, 4]);
    for (key, value) in [
        ("verdict.path.alarm", "raised"),
        ("verdict.path.task", "refund-policy"),
        ("verdict.path.harmful_call.label", "not_allowed_here"),
        ("verdict.path.harmful_call.state", "start"),
        ("gen_ai.agent.name", "shop-agent"),
    ] {
        assert_eq!(attribute_of(&alarm.attributes, key), value, "{key}");
    }
    assert!(
        attribute_of(&alarm.attributes, "verdict.path.harmful_call.explanation").contains("issue_refund"),
        "{alarm:?}"
    );
    let traces = &process.service.telemetry().traces;
    assert_eq!((traces.harmful_calls.get(), traces.harmful_calls_retracted.get()), (1, 0));
    // The call that verified the customer came before the refund, and only its span arrives after it.
    client.spans(shop_request(&[tool_span(7, 3, 3, "verify_customer", "{}")])).await;
    process.until("the retraction", |destination| alarms(destination).len() == 2).await;
    let retraction = alarms(&process.destination).remove(1);
    assert_eq!(attribute_of(&retraction.attributes, "verdict.path.alarm"), "retracted");
    assert_eq!((traces.harmful_calls.get(), traces.harmful_calls_retracted.get()), (1, 1));
    // In a second trace the alarm is right, and in a third one only the closed trace shows that it was wrong.
    client.spans(shop_request(&[shop_model(8), refund(8)])).await;
    client.spans(shop_request(&[shop_model(9), refund(9)])).await;
    process.until("two more alarms", |destination| alarms(destination).len() == 4).await;
    let agent = |trace, name| shop_span(trace, 1, 0, "invoke_agent", &[("gen_ai.agent.name", name)]);
    let ends = [agent(7, "shop-agent"), agent(8, "shop-agent"), agent(9, "other")];
    client.spans(shop_request(&ends)).await;
    process.service.flush().await;
    process.until("the traces", |destination| destination.spans().len() == 10).await;
    let spans = process.destination.spans();
    let refund_of = |trace: u8| spans.iter().find(|s| s.trace_id[15] == trace && s.span_id[7] == 4).unwrap();
    let state = |trace| attribute_of(&refund_of(trace).attributes, "verdict.path.alarm");
    assert_eq!(state(8), "raised");
    assert_eq!(attribute_of(&refund_of(8).attributes, "verdict.path.harmful_call.label"), "not_allowed_here");
    // The task does not apply to the agent of the third trace, whose model span names another agent.
    assert_eq!(state(9), "retracted");
    assert_eq!(state(7), "retracted");
    assert_eq!(traces.harmful_calls_retracted.get(), 2);
    process.until("the last retraction", |destination| alarms(destination).len() == 5).await;
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulty_task_file_is_refused_at_reload() {
    let folder = tempfile::tempdir().unwrap();
    let task = write_file(&folder, "task.yaml", TASK);
    let process =
        Process::start(&format!("verdict: {{ metrics: {{ path: {{ tasks: ['{task}'] }} }} }}")).await;
    let config = process.service.config();
    process.service.reload(&config).unwrap();
    write_file(&folder, "task.yaml", &TASK.replace("S: sent", "S: snet"));
    let error = process.service.reload(&config).unwrap_err().to_string();
    assert!(error.starts_with("verdict.metrics.path.tasks:") && error.contains("task.yaml:6:18"), "{error}");
    Box::pin(process.stop()).await;
}

/// Asks the paths API; the status, and the body as JSON.
async fn ask(address: std::net::SocketAddr, headers: &str, body: &Value) -> (u16, Value) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let body = body.to_string();
    let request = format!(
        "POST /v1/paths/next HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{headers}\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_decided_before_they_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let task = write_file(
        &folder,
        "task.yaml",
        "task: refunds\nmatch: { agent: shop-agent }\nalphabet:\n  verify: verify_customer\n  \
         refund: { function: issue_refund, other_arguments: true, arguments: { amount: { any: true } } }\n\
         policy:\n  - { never: refund, before: verify }\n  - sum of refund.amount <= 100 per run\n",
    );
    let tokens = write_file(&folder, "tokens", "gateway-token\n");
    let process = Process::start(&format!(
        "verdict: {{ close: {{ quiet: 1h, idle: 1h }}, metrics: {{ path: {{ tasks: ['{task}'] }} }},\n  \
         paths_api: {{ endpoint: '127.0.0.1:0', auth: {{ bearer_token_file: '{tokens}' }} }} }}"
    ))
    .await;
    let address = process.service.paths.unwrap();
    let auth = "authorization: Bearer gateway-token\r\n";
    let trace = format!("{:032x}", 5);
    let question = |name: &str, arguments: Value| json!({"trace_id": trace, "agent": "shop-agent", "call": {"name": name, "arguments": arguments}});
    let refund = |amount: u32| question("issue_refund", json!({"amount": amount, "order": 7}));
    let (status, _) = ask(address, "", &refund(1)).await;
    assert_eq!(status, 401);
    let (status, answer) = ask(address, auth, &json!({"trace_id": trace, "call": {}})).await;
    assert_eq!(status, 400);
    assert!(answer["error"].as_str().unwrap().contains("missing field `name`"), "{answer}");
    // No span has come: the agent's name decides which task applies.
    let (_, answer) = ask(address, auth, &refund(60)).await;
    assert_eq!(
        (&answer["decision"], &answer["tasks"][0]["reason"]),
        (&json!("denied"), &json!("not_allowed_here"))
    );
    assert_eq!(answer["tasks"][0]["next"], json!([{"symbol": "verify", "function": "verify_customer"}]));
    let (_, answer) = ask(address, auth, &question("verify_customer", json!({}))).await;
    assert_eq!((&answer["decision"], &answer["pending"]), (&json!("allowed"), &json!(1)));
    let (_, answer) = ask(address, auth, &refund(60)).await;
    assert_eq!((&answer["decision"], &answer["pending"]), (&json!("allowed"), &json!(2)));
    let (_, answer) = ask(address, auth, &refund(41)).await;
    assert_eq!(answer["tasks"][0]["rule"], "sum of refund.amount <= 100 per run");
    // The spans of both calls come; the first refund is counted once.
    let mut client = process.client();
    let verify = tool_span(5, 3, 3, "verify_customer", "{}");
    let paid = tool_span(5, 4, 5, "issue_refund", r#"{"order": 7, "amount": 60}"#);
    client.spans(shop_request(&[shop_model(5), verify, paid])).await;
    let started_at = Instant::now();
    let answer = loop {
        let (_, answer) = ask(address, auth, &refund(41)).await;
        if answer["pending"] == 0 || started_at.elapsed() > MAX_TIME_WITHOUT_PROGRESS {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!((&answer["decision"], &answer["pending"]), (&json!("denied"), &json!(0)), "{answer}");
    assert_eq!(answer["tasks"][0]["next"][1]["left"], json!({"amount": 40.0}));
    assert_eq!(answer["trace_id"], json!(trace));
    let (_, answer) = ask(address, auth, &refund(40)).await;
    assert_eq!(answer["decision"], "allowed");
    // Another run of the same agent has a budget of its own, and a closed trace has no next call.
    let other = json!({"session_id": "s", "task": "refunds", "call": {"name": "verify_customer"}});
    assert_eq!(ask(address, auth, &other).await.1["decision"], "allowed");
    process.service.flush().await;
    let (_, answer) = ask(address, auth, &refund(1)).await;
    assert_eq!((&answer["decision"], &answer["reason"]), (&json!("unknown"), &json!("trace_closed")));
    let decisions = &process.service.telemetry().traces;
    use verdict_eval::path::PathDecision;
    assert_eq!(decisions.path_decision(PathDecision::Unknown).get(), 1);
    assert!(decisions.path_decision(PathDecision::Allowed).get() >= 4);
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_leads_to_the_run_of_its_open_trace() {
    let folder = tempfile::tempdir().unwrap();
    let task = write_file(
        &folder,
        "task.yaml",
        "task: refunds\nmatch: { agent: shop-agent }\nalphabet: { verify: verify_customer, refund: issue_refund }\n\
         policy: [{ never: refund, before: verify }]\n",
    );
    let process = Process::start(&format!(
        "verdict: {{ close: {{ quiet: 1h, idle: 1h }}, metrics: {{ path: {{ tasks: ['{task}'] }} }},\n  \
         paths_api: {{ endpoint: '127.0.0.1:0' }} }}"
    ))
    .await;
    let address = process.service.paths.unwrap();
    let attributes = [
        ("gen_ai.agent.name", "shop-agent"),
        ("gen_ai.request.model", "m"),
        ("gen_ai.input.messages", USER_MESSAGE),
        ("gen_ai.conversation.id", "chat-1"),
    ];
    let model = shop_span(6, 2, 1, "chat", &attributes);
    let mut client = process.client();
    client.spans(shop_request(&[model, tool_span(6, 3, 3, "verify_customer", "{}")])).await;
    let question = json!({"session_id": "chat-1", "call": {"name": "issue_refund", "arguments": {}}});
    let started_at = Instant::now();
    let answer = loop {
        let (_, answer) = ask(address, "", &question).await;
        if answer["trace_id"].is_string() || started_at.elapsed() > MAX_TIME_WITHOUT_PROGRESS {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(
        (&answer["decision"], &answer["tasks"][0]["state"]),
        (&json!("allowed"), &json!("verify done"))
    );
    Box::pin(process.stop()).await;
}
