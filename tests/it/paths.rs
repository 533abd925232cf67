//! `path`: the tasks and vectors of the authors of paper 002 as input of the commands, and the input that they refuse.
//!
//! The authors' cases may not be redistributed. `OTEL_VERDICT_CASES` names their folder; without it, the tests that
//! need them print that they are skipped.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use serde_json::{Value, json};

use crate::support::{MAX_TIME_WITHOUT_PROGRESS, Process, until};

fn path(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    command.arg("path").args(args).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn core_cases() -> Option<PathBuf> {
    let folder = std::env::var_os("OTEL_VERDICT_CASES").map(|folder| Path::new(&folder).join("core"));
    if folder.is_none() {
        println!("skipped: OTEL_VERDICT_CASES is not set");
    }
    folder
}

/// The names of the vectors' expected values and ours.
const KEYS: [(&str, &str); 10] = [
    ("condensed", "condensed"),
    ("harm_mask", "harm_mask"),
    ("final_state", "final_state"),
    ("accepting", "accepting"),
    ("path_correctness", "path_correctness"),
    ("pc_ktc_lambda0.5", "pc_ktc"),
    ("prefix_criticality_beta0.5", "prefix_criticality"),
    ("harmful_call_rate", "harmful_call_rate"),
    ("harmful_call_count", "harmful_call_count"),
    ("efficiency", "efficiency"),
];

#[test]
fn the_scores_of_the_authors_vectors_agree_to_1e_9() {
    let Some(core) = core_cases() else { return };
    let (tasks, vectors) = (core.join("tasks.json"), core.join("vectors.json"));
    let checked = path(&["check", tasks.to_str().unwrap()]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    let output = path(&["score", tasks.to_str().unwrap(), vectors.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let scored: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected: Value = serde_json::from_slice(&std::fs::read(vectors).unwrap()).unwrap();
    let (scored, expected) = (scored["vectors"].as_array().unwrap(), expected["vectors"].as_array().unwrap());
    assert_eq!(scored.len(), expected.len());
    assert!(!scored.is_empty());
    for (scored, expected) in scored.iter().zip(expected) {
        assert_eq!(scored["prompt_id"], expected["prompt_id"]);
        for (theirs, ours) in KEYS {
            let (found, wanted) = (&scored["metrics"][ours], &expected["expected"][theirs]);
            let is_equal = match (found.as_f64(), wanted.as_f64()) {
                (Some(found), Some(wanted)) => (found - wanted).abs() < 1e-9,
                _ => found == wanted,
            };
            assert!(is_equal, "{} {}: {ours} is {found}, not {wanted}", scored["prompt_id"], scored["name"]);
        }
        assert_eq!(scored["metrics"].as_object().unwrap().len(), 11, "these keys, pc_hlr, and no other");
    }
}

#[test]
fn every_malformed_record_is_refused_with_a_reason() {
    let Some(core) = core_cases() else { return };
    let records: Value =
        serde_json::from_slice(&std::fs::read(core.join("malformed.json")).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for record in records.as_array().unwrap() {
        let file = folder.path().join("task.json");
        std::fs::write(&file, serde_json::to_string_pretty(record).unwrap()).unwrap();
        let output = path(&["check", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{} was accepted", record["prompt_id"]);
        let reasons = ["is not in the alphabet", "must be deterministic", "this edge is listed under state"];
        let text = stderr(&output);
        assert!(reasons.iter().any(|reason| text.contains(reason)), "{text}");
        assert!(text.contains("task.json:"), "{text}");
    }
}

fn write_file(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let file = folder.path().join(name);
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

const TASK: &str = "
task: send
match: { agent: mailer }
alphabet: { S: send_message, R: read_inbox }
states:
  begin: { on: { S: sent }, reads: [R] }
  sent: { final: true, reads: [R] }
weights: { correctness: 1, harm_free: 1 }
";

#[test]
fn sequences_are_scored_and_what_is_unmeasured_is_null() {
    let folder = tempfile::tempdir().unwrap();
    let tasks = write_file(&folder, "task.yaml", TASK);
    let sequences = json!({"note": 1, "vectors": [
        {"prompt_id": "send", "name": "good", "sequence": ["R", "S"], "expected": {}},
        {"prompt_id": "send", "name": "idle", "sequence": []},
        {"prompt_id": "send", "name": "strange", "sequence": ["X", "S", "S"]},
    ]});
    let sequences = write_file(&folder, "sequences.json", &sequences.to_string());
    let output = path(&["score", "--more", &tasks, &sequences]);
    assert!(output.status.success(), "{}", stderr(&output));
    let scored: Value = serde_json::from_slice(&output.stdout).unwrap();
    let metrics_at = |i: usize| &scored["vectors"][i]["metrics"];
    assert_eq!(
        (
            metrics_at(0)["efficiency"].as_f64(),
            metrics_at(0)["condensed"].clone(),
            metrics_at(0)["pareto"].clone()
        ),
        (Some(0.5), json!(["S"]), json!(true))
    );
    assert_eq!(
        (metrics_at(1)["efficiency"].clone(), metrics_at(1)["weighted"].clone()),
        (json!(null), json!(0.5))
    );
    assert_eq!(metrics_at(2)["condensed"], json!(["X", "S", "S"]));
    assert_eq!(metrics_at(2)["harm_mask"], json!([1, 0, 1]));
    assert_eq!(metrics_at(2)["pareto"], json!(false));
    assert!((metrics_at(2)["harm_free"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-12);
}

#[test]
fn unusable_input_exits_2_and_names_the_location() {
    let folder = tempfile::tempdir().unwrap();
    let good = write_file(&folder, "good.yaml", TASK);
    let bad = write_file(&folder, "bad.yaml", &TASK.replace("S: sent", "S: snet"));
    let refused = |args: &[&str], reason: &str| {
        let output = path(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty());
        assert!(stderr(&output).contains(reason), "{} does not say {reason}", stderr(&output));
    };
    refused(
        &["check", &good, &bad],
        "bad.yaml:6:18: states.begin.on.S: no state is named 'snet'; did you mean 'sent'?",
    );
    refused(&["check", "/nowhere.yaml"], "/nowhere.yaml:");
    let unknown =
        write_file(&folder, "u.json", r#"{"vectors": [{"prompt_id": "x", "name": "n", "sequence": []}]}"#);
    refused(&["score", &good, &unknown], "vectors[0]: no task is named 'x'");
    let broken = write_file(&folder, "b.json", r#"{"vectors": [{"prompt_id": "send", "name": "n"}]}"#);
    refused(&["score", &good, &broken], "missing field `sequence` at line 1");
    refused(&["score", &bad, &unknown], "snet");
}

#[test]
fn sequences_may_come_on_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let tasks = write_file(&folder, "task.yaml", TASK);
    let mut child = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
        .args(["path", "score", &tasks, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(br#"{"vectors": []}"#).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"{\"vectors\":[]}\n");
}

fn shipped(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config/tasks").join(name).to_str().unwrap().to_owned()
}

#[test]
fn shipped_tasks_are_valid_and_accept_the_intended_paths() {
    let output = path(&["check", &shipped("rover.yaml"), &shipped("refund.yaml")]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.contains("2 tasks can be used"), "{text}");
    // 'move' before 'move_elsewhere' is intended: the first match is used.
    assert!(text.contains("both 'move' and 'move_elsewhere'; the first one is used"), "{text}");
    assert_eq!(text.matches("warning:").count(), 1, "{text}");
}

#[test]
fn a_drawing_of_a_run_marks_harmful_calls() {
    let (task, run) = (shipped("rover.yaml"), shipped("rover-run.json"));
    let output = path(&["show", "--format", "dot", &task, "--trace", &run]);
    assert!(output.status.success(), "{}", stderr(&output));
    let dot = String::from_utf8(output.stdout).unwrap();
    for part in [
        "digraph \"water-plant\" {",
        "[label=\"locked\", shape=circle, style=filled",
        "[label=\"done\", shape=doublecircle, style=filled, fillcolor=\"#b7e1c0\"]",
        "[label=\"3: open\", color=\"#cf222e\", fontcolor=\"#cf222e\", style=dashed]",
        "[label=\"2: unlock\", color=\"#1a7f37\"",
        "6: water",
    ] {
        assert!(dot.contains(part), "no {part} in\n{dot}");
    }
    let output = path(&["show", &task, "--trace", &run]);
    let svg = String::from_utf8(output.stdout).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("\u{2717} ").count(), 2, "{svg}");
    assert_eq!(svg.matches("r=\"34\"").count(), 7, "a circle a state");
    let output = path(&["show", &task, "--walk", "unlock,water,<script>"]);
    let svg = String::from_utf8(output.stdout).unwrap();
    assert!(svg.contains("\u{2717} 3: &lt;script&gt;"), "{svg}");
    let output = path(&["show", &task, "--trace", &shipped("refund-run.json")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("the task 'water-plant' matches no agent in the traces"),
        "{}",
        stderr(&output)
    );
}

/// The shipped runs evaluated with the shipped tasks, from the root of the repository.
fn evaluate(run: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["eval", "-c", "config/paths.yaml", "--output", "json", &shipped(run)])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn measured(trace: &Value, span: usize) -> std::collections::BTreeMap<String, Value> {
    let all = trace["spans"][span]["measurements"].as_array().unwrap().iter();
    all.filter(|m| m["metric"].as_str().unwrap().starts_with("path."))
        .map(|m| (m["metric"].as_str().unwrap().to_owned(), m.clone()))
        .collect()
}

#[test]
fn shipped_runs_are_judged_by_shipped_tasks() {
    let trace = evaluate("rover-run.json");
    assert_eq!(trace["result"], "fail");
    let agent = measured(&trace, 0);
    let score = |metric: &str| agent[metric]["score"].as_f64().unwrap();
    // unlock open! move scan water! open water log: eight kept of nine, two of them harmful.
    assert!((score("path.correctness") - (1.0 - 4.0 / 16.0)).abs() < 1e-12);
    assert!((score("path.pc_ktc") - (0.5 * 0.75 + 0.5 * (1.0 - 2.0 * 2.0 / 30.0))).abs() < 0.05);
    assert_eq!(score("path.harm_rate"), 0.25);
    assert_eq!(score("path.efficiency"), 6.0 / 9.0);
    assert_eq!(agent["path.accepting"]["label"], "accepting");
    let first = &measured(&trace, 3)["path.harmful_call"];
    assert_eq!((first["label"].as_str(), first["result"].as_str()), (Some("not_allowed_here"), Some("fail")));
    let rationale = first["findings"][0]["rationale"].as_str().unwrap();
    assert!(
        rationale.contains(" was expected in state 'unlocked' of the task 'water-plant'; "),
        "{rationale}"
    );
    let second = &measured(&trace, 6)["path.harmful_call"];
    assert_eq!(second["label"], "other_arguments");
    assert!((0..10).filter(|i| measured(&trace, *i).contains_key("path.harmful_call")).count() == 2);

    let trace = evaluate("refund-run.json");
    assert_eq!(measured(&trace, 3)["path.harmful_call"]["label"], "not_allowed_here");
    assert!(measured(&trace, 1).is_empty(), "a call that the policy does not mention");
    // The refund does not count as made for the policy, so no notification is required.
    assert_eq!(measured(&trace, 0)["path.accepting"]["label"], "accepting");
}

#[test]
fn a_learnt_task_accepts_its_runs() {
    let folder = tempfile::tempdir().unwrap();
    let refused = path(&["learn", &shipped("rover-run.json"), "--agent", "nobody"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("no run with calls"), "{}", stderr(&refused));
    let output = path(&["learn", "--all", "--task", "rover", &shipped("rover-run.json")]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("to review: only 1 runs"), "{}", stderr(&output));
    let draft = write_file(&folder, "draft.yaml", &String::from_utf8(output.stdout).unwrap());
    let checked = path(&["check", &draft]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    let shown = path(&["show", "--format", "dot", &draft, "--trace", &shipped("rover-run.json")]);
    let dot = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success() && !dot.contains("#cf222e"), "{dot}");
}

#[test]
fn a_faulty_task_file_is_a_faulty_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let bad = write_file(&folder, "bad.yaml", &TASK.replace("S: sent", "S: snet"));
    let config =
        write_file(&folder, "c.yaml", &format!("verdict: {{ metrics: {{ path: {{ tasks: ['{bad}'] }} }} }}"));
    let binary = || Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    // Text alone is checked: no file is opened.
    assert!(binary().args(["validate", "-c", &config]).output().unwrap().status.success());
    let output = binary().args(["eval", "-c", &config, &shipped("rover-run.json")]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("verdict.metrics.path.tasks:"), "{}", stderr(&output));
    assert!(stderr(&output).contains("bad.yaml:6:18"), "{}", stderr(&output));
}

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
    let rest = spans.split_off(5);
    client.spans(request.clone()).await;
    let harmful_calls = |process: &Process| process.service.telemetry().traces.harmful_calls.get();
    until("the first call", || harmful_calls(&process) >= 1).await;
    assert_eq!(harmful_calls(&process), 1, "the valve was opened where the rover stood");
    request.resource_spans[0].scope_spans[0].spans = rest;
    client.spans(request).await;
    until("the second call", || harmful_calls(&process) >= 2).await;
    assert_eq!(harmful_calls(&process), 2, "too much water; the first call is not told again");
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
    let shown = [
        ("gen_ai.agent.name", "shop-agent"),
        ("gen_ai.request.model", "m"),
        ("gen_ai.input.messages", USER_MESSAGE),
    ];
    shop_span(trace, 2, 1, "chat", &shown)
}

fn attribute_of(record: &[opentelemetry_proto::tonic::common::v1::KeyValue], key: &str) -> String {
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
    let found = record.iter().find(|attribute| attribute.key == key).and_then(|a| a.value.clone()?.value);
    match found {
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
    // The customer had been verified: that span was late.
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
    let shown = [
        ("gen_ai.agent.name", "shop-agent"),
        ("gen_ai.request.model", "m"),
        ("gen_ai.input.messages", USER_MESSAGE),
        ("gen_ai.conversation.id", "chat-1"),
    ];
    let model = shop_span(6, 2, 1, "chat", &shown);
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

#[test]
fn a_report_has_distributions_and_is_a_gate() {
    let folder = tempfile::tempdir().unwrap();
    let report = |more_arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
        command.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
        let runs = [shipped("rover-run.json"), shipped("refund-run.json")];
        command
            .args(["path", "report", "-c", "config/paths.yaml"])
            .args(more_arguments)
            .args(&runs)
            .output()
            .unwrap()
    };
    let output = report(&["--format", "json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let group = |task: &str| found["groups"].as_array().unwrap().iter().find(|g| g["task"] == task).unwrap();
    let rover = group("water-plant");
    assert_eq!((rover["agent"].as_str(), rover["runs"].as_u64()), (Some("rover"), Some(1)));
    assert_eq!(rover["scores"]["correctness"]["mean"], 0.75);
    assert_eq!(rover["scores"]["accepting"]["mean"], 1.0);
    assert_eq!(group("refund-policy")["scores"]["efficiency"]["unmeasured"], 1);
    // Judges of other metrics are not asked: none listens there.
    let judged = "{ judges: { main: { endpoint: 'http://127.0.0.1:9/v1', model: m, retries: 0 } },\
                   verdict: { metrics: { judges: [main] } } }";
    let with_judges = report(&["-c", &write_file(&folder, "judges.yaml", judged), "--format", "json"]);
    assert!(
        with_judges.status.success() && !stderr(&with_judges).contains("judge"),
        "{}",
        stderr(&with_judges)
    );
    assert_eq!(with_judges.stdout, output.stdout);
    let table = String::from_utf8(report(&[]).stdout).unwrap();
    assert!(table.contains("water-plant \u{b7} rover: 1 run, on the Pareto front"), "{table}");
    let page = String::from_utf8(report(&["--format", "html"]).stdout).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("water-plant"), "{page}");
    // The same runs do not regress against themselves; against a better past they do.
    let baseline = write_file(&folder, "baseline.json", &String::from_utf8(output.stdout).unwrap());
    let unchanged = report(&["--against", &baseline]);
    assert!(unchanged.status.success(), "{}", stderr(&unchanged));
    assert!(String::from_utf8(unchanged.stdout).unwrap().ends_with("no score regressed\n"));
    let mut better = found.clone();
    for group in better["groups"].as_array_mut().unwrap() {
        group["scores"]["correctness"]["mean"] = json!(1.0);
    }
    let better = write_file(&folder, "better.json", &better.to_string());
    let worse = report(&["--against", &better]);
    assert_eq!(worse.status.code(), Some(1), "{}", stderr(&worse));
    let text = String::from_utf8(worse.stdout).unwrap();
    assert!(text.contains("regressed") && text.contains("1.000  0.750"), "{text}");
    assert!(report(&["--against", &better, "--tolerance", "0.9"]).status.success());
    assert_eq!(report(&["--against", "/nowhere.json"]).status.code(), Some(2));
    let none = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
        .args(["path", "report", &shipped("rover-run.json")])
        .output()
        .unwrap();
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("no task of the configuration"), "{}", stderr(&none));
}
