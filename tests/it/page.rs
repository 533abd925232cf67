//! The live page: the traces that it shows, and the text that it does not.

mod access;
mod history;
pub mod hostile;
mod streams;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{MAX_TIME_WITHOUT_PROGRESS, Process, text_attribute};

struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }
}

async fn request(address: SocketAddr, head: &str) -> Reply {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut response = Vec::new();
    socket.read_to_end(&mut response).await.unwrap();
    let response = String::from_utf8(response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    Reply { status: head[9..12].parse().unwrap(), head: head.to_lowercase(), body: body.to_owned() }
}

async fn get(address: SocketAddr, path: &str) -> Reply {
    request(address, &format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n")).await
}

/// A run of the agent `planner` whose tool fails, with `text` wherever a sender can write one.
pub fn failing_run(trace: u8, service: &str, text: &str) -> ExportTraceServiceRequest {
    let input_messages = serde_json::json!([{ "role": "user", "parts": [{ "type": "text", "content": format!("Visit {text}") }] }]);
    let span = |id: u8, parent: u8, operation: &str, failed: bool| Span {
        trace_id: vec![trace; 16],
        span_id: vec![id; 8],
        parent_span_id: if parent == 0 { Vec::new() } else { vec![parent; 8] },
        name: format!("{operation} {text}"),
        start_time_unix_nano: 1_700_000_000_000_000_000 + u64::from(id) * 1_000_000,
        end_time_unix_nano: 1_700_000_000_100_000_000 - u64::from(id) * 1_000_000,
        attributes: vec![
            text_attribute("gen_ai.operation.name", operation),
            text_attribute("gen_ai.agent.name", &format!("planner {text}")),
            text_attribute("gen_ai.request.model", &format!("model {text}")),
            text_attribute("gen_ai.conversation.id", &format!("chat-{trace} {text}")),
            text_attribute("user.id", &format!("user-{trace}")),
            text_attribute("gen_ai.tool.name", &format!("visit {text}")),
            text_attribute("gen_ai.tool.call.arguments", &serde_json::json!({ "url": text }).to_string()),
            text_attribute("gen_ai.tool.call.result", &format!("Error: {text}")),
            text_attribute("gen_ai.input.messages", &input_messages.to_string()),
        ],
        status: Some(Status { code: if failed { 2 } else { 0 }, message: format!("timed out: {text}") }),
        ..Span::default()
    };
    let spans = vec![span(1, 0, "invoke_agent", false), span(2, 1, "execute_tool", true)];
    let resource = Resource {
        attributes: vec![text_attribute("service.name", &format!("{service} {text}"))],
        ..Resource::default()
    };
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { resource: Some(resource), scope_spans, ..Default::default() }],
    }
}

async fn page(more_settings: &str, verdict: &str) -> (Process, SocketAddr) {
    let text = format!(
        "verdict: {{ close: {{ quiet: 50ms, idle: 50ms }} {verdict} }}\npage: {{ endpoint: '127.0.0.1:0' {more_settings} }}"
    );
    let process = Process::start(&text).await;
    let address = process.service.page.unwrap();
    (process, address)
}

/// The list of traces, as soon as it has `traces` rows.
pub async fn listed(address: SocketAddr, traces: usize) -> Value {
    let enough = |list: &Value| list["traces"].as_array().unwrap().len() >= traces;
    get_when(address, "/api/traces", enough).await
}

/// The response of `path`, as soon as it is complete.
async fn get_when(address: SocketAddr, path: &str, is_complete: impl Fn(&Value) -> bool) -> Value {
    let started_at = Instant::now();
    loop {
        let page = get(address, path).await.json();
        if is_complete(&page) {
            return page;
        }
        assert!(started_at.elapsed() < MAX_TIME_WITHOUT_PROGRESS, "{path}: {page}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn judged_traces_are_listed_found_and_shown_with_their_evidence() {
    let (process, address) = page("", "").await;
    let mut client = process.client();
    client.spans(failing_run(1, "shop", "one")).await;
    listed(address, 1).await;
    client.spans(failing_run(2, "bank", "two")).await;
    let list = listed(address, 2).await;
    let row = &list["traces"][0];
    assert_eq!(row["trace_id"], "02".repeat(16), "the latest first: {list}");
    assert_eq!(row["result"], "fail");
    assert_eq!(row["service"], "bank two");
    assert_eq!(row["agent"], "planner two");
    assert_eq!(row["session"], "chat-2 two");
    assert_eq!(row["user"], "user-2");
    assert_eq!(row["task"], "Visit two");
    assert_eq!(row["spans"], 2);
    assert_eq!(row["tools"][0]["failed"], 1, "{row}");
    for (query, expected) in [
        ("result=fail", 2),
        ("result=pass", 0),
        ("service=bank", 1),
        ("agent=planner%20one", 1),
        ("session=chat-1", 1),
        ("user=user-1", 1),
        ("q=visit+TWO", 1),
        ("metric=error_detection", 2),
        ("metric=latency", 0),
        ("limit=1", 1),
        (&format!("before={}", row["seq"]), 1),
    ] {
        let rows_json = get(address, &format!("/api/traces?{query}")).await.json();
        assert_eq!(rows_json["traces"].as_array().unwrap().len(), expected, "{query}: {rows_json}");
    }
    let category = row["categories"][0].as_str().unwrap().replace(' ', "+");
    let rows_json = get(address, &format!("/api/traces?category={category}")).await.json();
    assert_eq!(rows_json["matching"], 2, "{rows_json}");

    let trace_json = get(address, &format!("/api/traces/{}", "01".repeat(16))).await.json();
    let detail = &trace_json["detail"];
    assert_eq!(trace_json["trace"]["trace_id"], "01".repeat(16));
    assert_eq!(detail["failure_chain"], serde_json::json!(["01".repeat(8), "02".repeat(8)]));
    assert_eq!(detail["root_cause"], "02".repeat(8));
    let spans = detail["spans"].as_array().unwrap();
    assert_eq!((&spans[0]["kind"], &spans[1]["kind"]), (&"agent".into(), &"tool".into()));
    assert_eq!((&spans[0]["up"], &spans[1]["up"]), (&Value::Null, &0.into()));
    assert_eq!((&spans[0]["cause"], &spans[1]["cause"]), (&"children".into(), &"self".into()));
    assert_eq!(spans[1]["input"], r#"{"url":"one"}"#);
    let metric = spans[1]["metrics"].as_array().unwrap().iter().find(|m| m["result"] == "fail").unwrap();
    assert!(!metric["findings"][0]["rationale"].as_str().unwrap().is_empty(), "{metric}");
    assert!(metric["findings"][0]["quote"].as_str().unwrap().contains("one"), "{metric}");

    let overview = get(address, "/api/overview").await.json();
    let sums = &overview["overview"];
    assert_eq!(sums["traces"]["fail"], 2, "{overview}");
    let counted: u64 =
        sums["timeline"].as_array().unwrap().iter().map(|bar| bar["fail"].as_u64().unwrap()).sum();
    assert_eq!(counted, 2);
    assert_eq!(sums["tools"][0]["failed"], 1, "{overview}");
    assert_eq!(overview["health"]["exporters"][0]["exporter"], "otlp_grpc");
    assert_eq!(overview["health"]["spans"]["accepted"], 4);
    assert_eq!(overview["health"]["journal"], Value::Null);
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_traces_are_listed_and_shown_until_they_close() {
    let (process, address) = page("", ", mode: annotate").await;
    let text = "verdict: { close: { quiet: 1h, idle: 1h } }\npage: { endpoint: '127.0.0.1:0' }";
    let waiting = Process::start(text).await;
    let waiting_addr = waiting.service.page.unwrap();
    waiting.client().spans(failing_run(3, "shop", "x")).await;
    let open = get_when(waiting_addr, "/api/open", |page| page["open"][0].is_object()).await;
    let first = &open["open"][0];
    assert_eq!((&first["trace_id"], &first["spans"]), (&"03".repeat(16).into(), &2.into()), "{open}");
    assert_eq!(first["service"], "shop x");
    assert_eq!(first["name"], "invoke_agent x");
    let trace_json = get(waiting_addr, &format!("/api/traces/{}", "03".repeat(16))).await.json();
    assert_eq!(trace_json["trace"]["result"], "open");
    assert_eq!(trace_json["detail"]["spans"].as_array().unwrap().len(), 2);
    assert_eq!(trace_json["detail"]["spans"][1]["metrics"], Value::Null, "not measured yet");
    waiting.service.flush().await;
    assert_eq!(listed(waiting_addr, 1).await["traces"][0]["result"], "fail");
    assert_eq!(get(address, "/api/open").await.json()["open"], serde_json::json!([]), "of another process");
    Box::pin(waiting.stop()).await;
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_shown_only_as_the_settings_of_explanations_allow() {
    let secret = "sk-abcdefghijklmnopqrstuvwxyz123456";
    let trace_of = async |verdict: &str, text: &str| {
        let (process, address) = page("", verdict).await;
        process.client().spans(failing_run(1, "payroll", text)).await;
        listed(address, 1).await;
        let reply = get(address, &format!("/api/traces/{}", "01".repeat(16))).await;
        Box::pin(process.stop()).await;
        reply
    };
    let redacted = trace_of("", secret).await;
    assert!(!redacted.body.contains(secret) && redacted.body.contains("[redacted"), "{}", redacted.body);
    for verdict in [", explanations: off", ", ask: { withhold: ['payroll*'] }"] {
        let reply = trace_of(verdict, "word").await;
        let json = reply.json();
        assert_eq!(json["detail"]["closed"], true, "{verdict}");
        for key in ["rationale", "quote", "input", "output", "answer", "task"] {
            assert!(!reply.body.contains(&format!("\"{key}\":")), "{verdict}: {key} in {}", reply.body);
        }
        assert_eq!(json["trace"]["result"], "fail", "{verdict}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn judges_and_their_failures_are_shown() {
    let server = wiremock::MockServer::start().await;
    let refuse = wiremock::ResponseTemplate::new(400).set_body_string("no such model");
    wiremock::Mock::given(wiremock::matchers::any()).respond_with(refuse).mount(&server).await;
    let text = format!(
        "verdict: {{ close: {{ quiet: 50ms }}, metrics: {{ judges: [rules], instruction_following: {{ judges: [main] }} }} }}\n\
         judges: {{ main: {{ endpoint: '{}/v1', model: some-model }} }}\npage: {{ endpoint: '127.0.0.1:0' }}",
        server.uri()
    );
    let process = Process::start(&text).await;
    let address = process.service.page.unwrap();
    let judges = get(address, "/api/overview").await.json()["health"]["judges"].clone();
    assert_eq!((&judges[0]["judge"], &judges[0]["breaker"]), (&"main".into(), &"closed".into()), "{judges}");
    let mut run = failing_run(1, "shop", "x");
    let answer = r#"[{"role":"assistant","parts":[{"type":"text","content":"It is 8."}]}]"#;
    for span in &mut run.resource_spans[0].scope_spans[0].spans {
        span.attributes[0] = text_attribute("gen_ai.operation.name", "chat");
        span.attributes.push(text_attribute("gen_ai.output.messages", answer));
        span.status = None;
    }
    process.client().spans(run).await;
    // Sums are computed once in a second.
    let failed = |page: &Value| {
        let report = &page["health"]["judges"][0]["report"];
        report["failed"].as_object().is_some_and(|failed| !failed.is_empty())
    };
    let judges = get_when(address, "/api/overview", failed).await["health"]["judges"].clone();
    let report = &judges[0]["report"];
    assert_eq!((&report["answered"], &report["model"]), (&0.into(), &"some-model".into()), "{judges}");
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_serves_the_page_until_it_is_interrupted() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
        .args(["demo", "--page"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("live page is at")).unwrap();
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
    let list = listed(address, 8).await;
    assert!(list["traces"].as_array().unwrap().iter().any(|row| row["agent"] == "research_agent"), "{list}");
    let signal = Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap();
    assert!(signal.success());
    assert!(demo.wait().unwrap().success());
}
