//! The live page: access to it, its content, and its bounds.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message as _;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{MAX_TIME_WITHOUT_PROGRESS, Process, config};

/// Text that would be markup without escapes.
pub const MARKUP: &str = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u{202e}\u{0}";

/// Texts with a meaning in HTML, scripts, style sheets, addresses, templates or terminals.
const HOSTILE: [&str; 8] = [
    MARKUP,
    "--></style><style>*{background:url(//evil.example)}</style><svg onload=alert(1)>",
    "javascript:alert(1)//\"'`onmouseover=alert(1) ",
    "${alert(1)}{{constructor.constructor('alert(1)')()}}#{alert(1)}",
    "<![CDATA[<iframe srcdoc='<script>alert(1)</script>'>]]>&lt;script&gt;&#x3c;",
    "\u{2028}\u{2029}\u{feff}\u{200f}\u{2066}\u{1b}[2J\u{7}\\u003cscript>",
    "__proto__ constructor toString hasOwnProperty",
    "../../api/events?#/trace/%2e%2e%2f%00",
];

/// Runs with hostile texts and shapes: a deep chain, a cycle of parents, one id twice, and a name of a
/// megabyte.
pub fn hostile_captures() -> Vec<ExportTraceServiceRequest> {
    let mut all: Vec<_> = (1..).zip(HOSTILE).map(|(trace, text)| failing_run(trace, "shop", text)).collect();
    // Ids that are no text: `eval` detects the signal of a request by its bytes, and these would be names of metrics.
    let mut shaped = |trace: u8, change: &dyn Fn(&mut Vec<Span>)| {
        let mut run = failing_run(trace, "shop", "plain");
        change(&mut run.resource_spans[0].scope_spans[0].spans);
        all.push(run);
    };
    shaped(201, &|spans| {
        let id = |n: u16| [&[7; 6][..], &n.to_be_bytes()[..]].concat();
        let tool = spans[1].clone();
        spans.extend((1..5_000).map(|n| {
            let parent_span_id = if n == 1 { vec![1; 8] } else { id(n - 1) };
            Span { span_id: id(n), parent_span_id, ..tool.clone() }
        }));
    });
    shaped(202, &|spans| spans[0].parent_span_id = vec![2; 8]);
    shaped(203, &|spans| {
        let duplicate = Span { name: "again".to_owned(), ..spans[1].clone() };
        spans.push(duplicate);
    });
    shaped(204, &|spans| spans[0].name = "é".repeat(1 << 19));
    all
}

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

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
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
            attribute("gen_ai.operation.name", operation),
            attribute("gen_ai.agent.name", &format!("planner {text}")),
            attribute("gen_ai.request.model", &format!("model {text}")),
            attribute("gen_ai.conversation.id", &format!("chat-{trace} {text}")),
            attribute("user.id", &format!("user-{trace}")),
            attribute("gen_ai.tool.name", &format!("visit {text}")),
            attribute("gen_ai.tool.call.arguments", &serde_json::json!({ "url": text }).to_string()),
            attribute("gen_ai.tool.call.result", &format!("Error: {text}")),
            attribute("gen_ai.input.messages", &input_messages.to_string()),
        ],
        status: Some(Status { code: if failed { 2 } else { 0 }, message: format!("timed out: {text}") }),
        ..Span::default()
    };
    let spans = vec![span(1, 0, "invoke_agent", false), span(2, 1, "execute_tool", true)];
    let resource = Resource {
        attributes: vec![attribute("service.name", &format!("{service} {text}"))],
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
    shown(address, "/api/traces", enough).await
}

/// The response of `path`, as soon as it is complete.
async fn shown(address: SocketAddr, path: &str, is_complete: impl Fn(&Value) -> bool) -> Value {
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
async fn only_own_hosts_and_get_requests_are_answered_and_every_answer_has_the_headers() {
    let (process, address) = page(", hosts: [traces.example.com]", "").await;
    let paths = ["/", "/page.css", "/page.js", "/api/overview", "/api/traces", "/api/open"];
    for path in paths {
        let reply = get(address, path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    }
    for host in [
        "localhost",
        "localhost:1",
        "127.0.0.1",
        "[::1]:9",
        "traces.example.com",
        "TRACES.example.com:4321",
        "a.localhost",
    ] {
        let reply = request(address, &format!("GET /api/traces HTTP/1.1\r\nhost: {host}\r\n")).await;
        assert_eq!(reply.status, 200, "{host}");
    }
    for host in ["attacker.example", "localhost.attacker.example", "127.0.0.1.attacker.example:4321", ""] {
        for path in paths {
            let reply = request(address, &format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n")).await;
            assert_eq!(reply.status, 421, "{host} {path}");
            assert!(!reply.body.contains("traces\""), "{}", reply.body);
        }
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"] {
        let reply = request(address, &format!("{method} /api/traces HTTP/1.1\r\nhost: {address}\r\n")).await;
        assert_eq!(reply.status, 405, "{method}");
        assert!(reply.head.contains("allow: get"), "{}", reply.head);
    }
    let unknown =
        ["/nowhere", "/../Cargo.toml", "/page.js.map", "/api/traces/", "/api/traces/zz", "/api/traces?x=1"];
    for path in unknown {
        assert!([400, 404].contains(&get(address, path).await.status), "{path}");
    }
    let absent = format!("/api/traces/{}", "ab".repeat(16));
    assert_eq!(get(address, &absent).await.status, 404);
    for reply in [
        get(address, "/").await,
        get(address, "/nowhere").await,
        request(address, "GET / HTTP/1.1\r\nhost: x\r\n").await,
    ] {
        let policy = reply.head.lines().find(|line| line.starts_with("content-security-policy:")).unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        for header in [
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(reply.head.contains(header), "{header}: {}", reply.head);
        }
        assert!(!reply.head.contains("access-control"), "{}", reply.head);
    }
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_auth_nothing_is_answered_without_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "page-token\n").unwrap();
    let (process, address) = page(&format!(", auth: {{ bearer_token_file: {tokens:?} }}"), "").await;
    for path in ["/", "/page.js", "/api/traces", "/api/events", "/nowhere"] {
        let reply = get(address, path).await;
        assert_eq!(reply.status, 401, "{path}");
        assert!(reply.head.contains("www-authenticate: bearer"), "{}", reply.head);
    }
    let head = format!("GET /api/traces HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer page-token\r\n");
    assert_eq!(request(address, &head).await.status, 200);
    // Credentials do not replace the check of the host.
    let rebound = head.replace(&address.to_string(), "attacker.example");
    assert_eq!(request(address, &rebound).await.status, 421);
    let wrong = head.replace("page-token", "guess");
    assert_eq!(request(address, &wrong).await.status, 401);
    let refused = process.service.telemetry().page.refused.clone().map(|count| count.get());
    assert_eq!(refused, [6, 1, 0], "credentials, host, clients");
    Box::pin(process.stop()).await;
}

#[test]
fn an_address_on_the_network_is_refused_without_auth() {
    let refused = std::panic::catch_unwind(|| config(1, "page: { endpoint: '0.0.0.0:0' }"));
    let message = *refused.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("page.endpoint") && message.contains("set auth"), "{message}");
    config(1, "page: { endpoint: '0.0.0.0:0', auth: { bearer_token_file: /tokens } }");
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

    let shown = get(address, &format!("/api/traces/{}", "01".repeat(16))).await.json();
    let detail = &shown["detail"];
    assert_eq!(shown["trace"]["trace_id"], "01".repeat(16));
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
    let open = shown(waiting_addr, "/api/open", |page| page["open"][0].is_object()).await;
    let first = &open["open"][0];
    assert_eq!((&first["trace_id"], &first["spans"]), (&"03".repeat(16).into(), &2.into()), "{open}");
    assert_eq!(first["service"], "shop x");
    assert_eq!(first["name"], "invoke_agent x");
    let shown = get(waiting_addr, &format!("/api/traces/{}", "03".repeat(16))).await.json();
    assert_eq!(shown["trace"]["result"], "open");
    assert_eq!(shown["detail"]["spans"].as_array().unwrap().len(), 2);
    assert_eq!(shown["detail"]["spans"][1]["metrics"], Value::Null, "not measured yet");
    waiting.service.flush().await;
    assert_eq!(listed(waiting_addr, 1).await["traces"][0]["result"], "fail");
    assert_eq!(get(address, "/api/open").await.json()["open"], serde_json::json!([]), "of another process");
    Box::pin(waiting.stop()).await;
    Box::pin(process.stop()).await;
}

/// Every string in a value.
fn strings(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, into)),
        Value::Object(fields) => fields.values().for_each(|field| strings(field, into)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_stay_texts() {
    let (process, address) = page("", "").await;
    process.client().spans(failing_run(1, "shop", MARKUP)).await;
    listed(address, 1).await;
    for path in ["/api/traces", "/api/overview", &format!("/api/traces/{}", "01".repeat(16))] {
        let reply = get(address, path).await;
        // JSON that no browser takes for a document, with any content.
        assert!(reply.head.contains("content-type: application/json"), "{}", reply.head);
        assert!(reply.head.contains("nosniff"), "{}", reply.head);
        let mut texts = Vec::new();
        strings(&reply.json(), &mut texts);
        assert!(texts.iter().any(|text| text.contains("<script>alert(1)")), "{path}: {texts:?}");
        for text in texts {
            assert!(
                !text.contains(['\u{202e}', '\0']),
                "a mark that turns text around, or a control: {text}"
            );
        }
    }
    // The document itself is the same for all traces.
    assert!(!get(address, "/").await.body.contains("alert(1)"), "no text is in the document");
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_captures_are_data_on_the_page_and_in_the_file() {
    let (process, address) = page("", "").await;
    let captures = hostile_captures();
    let mut client = process.client();
    for capture in &captures {
        client.spans(capture.clone()).await;
    }
    for row in listed(address, captures.len()).await["traces"].as_array().unwrap() {
        let reply = get(address, &format!("/api/traces/{}", row["trace_id"].as_str().unwrap())).await;
        assert!(reply.status == 200 && reply.body.len() < 4 << 20, "{row}: {} bytes", reply.body.len());
        let mut texts = Vec::new();
        strings(&reply.json(), &mut texts);
        for text in texts {
            let marks = ['\u{202e}', '\u{2066}', '\u{200f}', '\u{1b}', '\u{7}', '\0'];
            assert!(!text.contains(marks), "a mark that turns text around, or a control: {text:?}");
        }
    }
    Box::pin(process.stop()).await;
    let folder = tempfile::tempdir().unwrap();
    for (n, capture) in captures.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{n}.pb")), capture.encode_to_vec()).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    let output =
        command.args(["eval", folder.path().to_str().unwrap(), "--output", "html"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = String::from_utf8(output.stdout).unwrap();
    let ids = captures.iter().map(|capture| capture.resource_spans[0].scope_spans[0].spans[0].trace_id[0]);
    let missing: Vec<u8> =
        ids.filter(|id| !page.contains(&format!("id=\"trace-{}", format!("{id:02x}").repeat(16)))).collect();
    assert_eq!(missing, [0; 0], "{}", String::from_utf8_lossy(&output.stderr));
    // There is one element for each trace, one for the list, one for the program and one for the style.
    let count = |text: &str| page.matches(text).count();
    assert_eq!((count("<script"), count("</script"), count("<style"), count("</style")), {
        let scripts = captures.len() + 2;
        (scripts, scripts, 1, 1)
    });
    assert_eq!(count("<svg onload") + count("<img") + count("<iframe") + count("<!--"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_shown_only_as_the_settings_of_explanations_allow() {
    let secret = "sk-abcdefghijklmnopqrstuvwxyz123456";
    let shown = async |verdict: &str, text: &str| {
        let (process, address) = page("", verdict).await;
        process.client().spans(failing_run(1, "payroll", text)).await;
        listed(address, 1).await;
        let all = get(address, &format!("/api/traces/{}", "01".repeat(16))).await;
        Box::pin(process.stop()).await;
        all
    };
    let redacted = shown("", secret).await;
    assert!(!redacted.body.contains(secret) && redacted.body.contains("[redacted"), "{}", redacted.body);
    for verdict in [", explanations: off", ", ask: { withhold: ['payroll*'] }"] {
        let reply = shown(verdict, "word").await;
        let json = reply.json();
        assert_eq!(json["detail"]["closed"], true, "{verdict}");
        for key in ["rationale", "quote", "input", "output", "answer", "task"] {
            assert!(!reply.body.contains(&format!("\"{key}\":")), "{verdict}: {key} in {}", reply.body);
        }
        assert_eq!(json["trace"]["result"], "fail", "{verdict}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn history_forgets_the_oldest_by_number_and_by_bytes() {
    let (process, address) = page(", max_traces: 3", "").await;
    let mut client = process.client();
    for trace in 1..=5 {
        client.spans(failing_run(trace, "shop", "x")).await;
        let latest = format!("{trace:02x}").repeat(16);
        shown(address, "/api/traces", |page| page["traces"][0]["trace_id"] == latest.as_str()).await;
    }
    let list = listed(address, 3).await;
    let ids: Vec<&str> = list["traces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["trace_id"].as_str().unwrap()[..2])
        .collect();
    assert_eq!(ids, ["05", "04", "03"]);
    assert_eq!(get(address, &format!("/api/traces/{}", "01".repeat(16))).await.status, 404);
    let metrics = &process.service.telemetry().page;
    assert_eq!(metrics.traces.get(), 3);
    // Judged traces are still counted.
    let sums = get(address, "/api/overview").await.json();
    let counted: u64 = sums["overview"]["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bar| bar["fail"].as_u64().unwrap())
        .sum();
    assert_eq!(counted, 5);
    Box::pin(process.stop()).await;

    let (process, _) = page(", max_memory: 1MiB", "").await;
    let mut client = process.client();
    for trace in 1..=100 {
        client.spans(failing_run(trace, "shop", &format!("{trace} {}", "text ".repeat(2_000)))).await;
    }
    process.until("every trace", |d| d.spans().len() == 200).await;
    let metrics = &process.service.telemetry().page;
    let (traces, bytes) = (metrics.traces.get(), metrics.bytes.get());
    assert!((1..100).contains(&traces) && bytes <= 1 << 20, "{traces} traces, {bytes} bytes");
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_large_trace_does_not_end_the_history() {
    let (process, address) = page(", max_memory: 1MiB", "").await;
    let mut client = process.client();
    for trace in 1..=3 {
        client.spans(failing_run(trace, "shop", "small")).await;
    }
    listed(address, 3).await;
    let mut large = failing_run(4, "shop", "large");
    let spans = &mut large.resource_spans[0].scope_spans[0].spans;
    let call = spans.pop().unwrap();
    let numbered = |n: u64| {
        let failed = attribute("gen_ai.tool.call.result", &format!("Error: {}", "text ".repeat(500)));
        let mut span = Span { span_id: (n + 0x1_0000).to_be_bytes().to_vec(), ..call.clone() };
        span.attributes.retain(|attribute| attribute.key != "gen_ai.tool.call.result");
        span.attributes.push(failed);
        span
    };
    spans.extend((0..1_900).map(numbered));
    client.spans(large.clone()).await;
    let list = listed(address, 4).await;
    assert_eq!(list["traces"][0]["spans"], 1_901, "{list}");
    let path = format!("/api/traces/{}", "04".repeat(16));
    let omitted = |page: &Value| page["detail"]["omitted"].as_u64().unwrap();
    let shown_spans = |page: &Value| page["detail"]["spans"].as_array().unwrap().len() as u64;
    let first = get(address, &path).await.json();
    assert!(omitted(&first) > 0 && shown_spans(&first) > 0, "{} spans", shown_spans(&first));
    assert_eq!(omitted(&first) + shown_spans(&first), 1_901);
    assert_eq!(first["detail"]["spans"][0]["up"], Value::Null);
    let is_failing = |span: &Value| span["result"] == "fail";
    assert!(first["detail"]["spans"].as_array().unwrap().iter().any(is_failing), "failures come first");
    // Late spans do not make it larger either.
    large.resource_spans[0].scope_spans[0].spans = (2_000..2_900).map(numbered).collect();
    client.spans(large).await;
    let second = shown(address, &path, |page| page["trace"]["spans"] == 2_801).await;
    assert_eq!(omitted(&second) + shown_spans(&second), 2_801);
    let metrics = &process.service.telemetry().page;
    assert!(metrics.bytes.get() <= 1 << 19, "{} bytes", metrics.bytes.get());
    assert_eq!((metrics.traces.get(), metrics.skipped.get()), (4, 0));
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_spans_join_their_trace() {
    let (process, address) = page("", "").await;
    let mut client = process.client();
    let mut run = failing_run(1, "shop", "x");
    let spans = &mut run.resource_spans[0].scope_spans[0].spans;
    let late = spans.pop().unwrap();
    client.spans(run.clone()).await;
    assert_ne!(listed(address, 1).await["traces"][0]["result"], "fail");
    run.resource_spans[0].scope_spans[0].spans = vec![late];
    client.spans(run).await;
    let path = format!("/api/traces/{}", "01".repeat(16));
    let shown = shown(address, &path, |page| page["trace"]["result"] == "fail").await;
    assert_eq!((&shown["trace"]["spans"], &shown["trace"]["revision"]), (&2.into(), &2.into()), "{shown}");
    let spans = shown["detail"]["spans"].as_array().unwrap();
    assert_eq!((spans.len(), &spans[1]["up"], &spans[1]["late"]), (2, &0.into(), &true.into()), "{shown}");
    assert_eq!(get(address, "/api/traces").await.json()["all"], 1);
    Box::pin(process.stop()).await;
}

/// Reads a stream until it contains `wanted`, or ends.
async fn until(socket: &mut TcpStream, wanted: &str) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(Ok(read)) = tokio::time::timeout(MAX_TIME_WITHOUT_PROGRESS, socket.read(&mut buffer)).await {
        all.extend_from_slice(&buffer[..read]);
        if read == 0 || String::from_utf8_lossy(&all).contains(wanted) {
            break;
        }
    }
    String::from_utf8_lossy(&all).into_owned()
}

async fn events(address: SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = format!("GET /api/events HTTP/1.1\r\nhost: {address}\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_are_sent_until_the_process_stops() {
    let (process, address) = page("", "").await;
    let mut client = process.client();
    let metrics = process.service.telemetry().page.clone();
    let mut reading = events(address).await;
    let head = until(&mut reading, ": still here").await;
    assert!(head.contains("text/event-stream"), "{head}");
    assert_eq!(metrics.clients.get(), 1);
    client.spans(failing_run(1, "shop", MARKUP)).await;
    let event = until(&mut reading, "\n\n").await;
    let data = event.split("data: ").nth(1).unwrap_or_else(|| panic!("{event}"));
    let row: Value = serde_json::from_str(data.lines().next().unwrap()).unwrap();
    assert_eq!(row["trace_id"], "01".repeat(16));
    // An open stream does not delay the end of the process, which would wait for it for this time.
    let end = process.stop_within(20 * MAX_TIME_WITHOUT_PROGRESS);
    tokio::time::timeout(MAX_TIME_WITHOUT_PROGRESS, Box::pin(end))
        .await
        .expect("the process waits for the stream");
    let remaining_text = until(&mut reading, "never sent").await;
    assert!(!remaining_text.contains("event:"), "{remaining_text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_make_room_and_streams_stay_open() {
    let (process, address) = page("", "").await;
    let mut reading = events(address).await;
    until(&mut reading, ": still here").await;
    let mut idle = Vec::new();
    for _ in 0..80 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    assert_eq!(get(address, "/api/traces").await.status, 200, "after more connections than the page has");
    process.client().spans(failing_run(1, "shop", "plain")).await;
    let event = until(&mut reading, "event: trace").await;
    assert!(event.contains("event: trace"), "the stream was closed: {event}");
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_updates_are_limited() {
    let (process, address) = page("", "").await;
    let mut open = Vec::new();
    for _ in 0..32 {
        let mut socket = events(address).await;
        until(&mut socket, ": still here").await;
        open.push(socket);
    }
    assert_eq!(get(address, "/api/events").await.status, 503);
    assert_eq!(get(address, "/api/traces").await.status, 200);
    drop(open);
    Box::pin(process.stop()).await;
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
        span.attributes[0] = attribute("gen_ai.operation.name", "chat");
        span.attributes.push(attribute("gen_ai.output.messages", answer));
        span.status = None;
    }
    process.client().spans(run).await;
    // Sums are computed once in a second.
    let failed = |page: &Value| {
        let report = &page["health"]["judges"][0]["report"];
        report["failed"].as_object().is_some_and(|failed| !failed.is_empty())
    };
    let judges = shown(address, "/api/overview", failed).await["health"]["judges"].clone();
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

#[test]
fn no_text_of_a_recording_is_markup_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.pb");
    std::fs::write(&file, failing_run(1, "shop", MARKUP).encode_to_vec()).unwrap();
    let eval = |more_arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
        command
            .args(["eval", file.to_str().unwrap(), "--output", "html"])
            .args(more_arguments)
            .output()
            .unwrap()
    };
    let output = eval(&[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = String::from_utf8(output.stdout).unwrap();
    // The trace, the list, and the program.
    assert_eq!(page.matches("<script").count(), 3);
    assert_eq!(page.matches("</script").count(), 3);
    assert!(!page.contains("<img") && page.contains(r"\u003cimg src=x"), "the text is data");
    let policy = page.lines().find(|line| line.contains("content-security-policy")).unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'sha256-"), "{policy}");
    assert!(!page.contains("src=\"") && !page.contains("href=\"page"), "nothing is loaded");
    assert_eq!(eval(&["--fail-on", "fail"]).status.code(), Some(1));
    // Without a selected trace it is still a page.
    let empty = String::from_utf8(eval(&["--only", "pass"]).stdout).unwrap();
    assert_eq!(empty.matches("<script").count(), 2);
    assert!(empty.ends_with("</html>\n"), "{empty}");
}
