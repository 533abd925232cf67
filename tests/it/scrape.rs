//! Self-metrics and probes after real requests.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::Process;

pub async fn http(addr: std::net::SocketAddr, head: &str, body: &[u8]) -> String {
    let mut socket = tokio::net::TcpStream::connect(addr).await.unwrap();
    let length = body.len();
    let head = format!("{head} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(b"content-type: application/x-protobuf\r\n\r\n").await.unwrap();
    socket.write_all(body).await.unwrap();
    let mut response = Vec::new();
    socket.read_to_end(&mut response).await.unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

pub fn span(trace: u8, id: u8) -> Span {
    Span {
        trace_id: vec![trace; 16],
        span_id: vec![id; 8],
        name: "step".to_owned(),
        start_time_unix_nano: 1,
        end_time_unix_nano: 2,
        ..Span::default()
    }
}

pub fn request(spans: Vec<Span>) -> Vec<u8> {
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { scope_spans, ..Default::default() }] }
        .encode_to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn scrape_accounts_for_every_received_span() {
    let process = Process::start("verdict: { close: { quiet: 50ms } }").await;
    let (otlp, admin) = (process.service.http.unwrap(), process.service.admin.unwrap());
    // Two valid spans of one trace, one of them sent twice, and one without ids.
    let root = span(1, 1);
    let child = Span { parent_span_id: vec![1; 8], ..span(1, 2) };
    let nameless = Span { trace_id: Vec::new(), ..span(1, 3) };
    let body = request(vec![child.clone(), child, nameless]);
    let answer = http(otlp, "POST /v1/traces", &body).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    http(otlp, "POST /v1/traces", &request(vec![root])).await;
    let broken = http(otlp, "POST /v1/traces", b"\x0a\xff").await;
    assert!(broken.starts_with("HTTP/1.1 400"), "{broken}");
    process.until("the trace", |d| d.spans().len() == 2).await;

    let ready = http(admin, "GET /readyz", b"").await;
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    let page = http(admin, "GET /metrics", b"").await;
    for line in [
        "spans_received_total 4",
        "spans_accepted_total 3",
        "spans_refused_total{reason=\"malformed\"} 1",
        "spans_duplicate_total 1",
        "receive_requests_total{transport=\"http\",signal=\"traces\",outcome=\"accepted\"} 1",
        "receive_requests_total{transport=\"http\",signal=\"traces\",outcome=\"partial\"} 1",
        "receive_requests_total{transport=\"http\",signal=\"traces\",outcome=\"malformed\"} 1",
        "receive_rejected_items_total{transport=\"http\",signal=\"traces\"} 1",
        "traces_closed_total{reason=\"complete\"} 1",
        "traces_open 0",
        "buffered_spans 0",
        "buffered_bytes 0",
        "receive_held_bytes 0",
        "close_to_export_seconds_count 1",
        "exporter_items_total{exporter=\"otlp_grpc\",outcome=\"lost\"} 0",
    ] {
        assert!(page.contains(&format!("\notel_verdict_{line}\n")), "no {line} in\n{page}");
    }
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scrape_counts_verdicts_by_agent_and_health_asks_the_probes() {
    let process = Process::start("verdict: { close: { quiet: 50ms } }").await;
    let (otlp, admin) = (process.service.http.unwrap(), process.service.admin.unwrap());
    let recorded = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/demo/vercelai-e/001.pb")).unwrap();
    let answer = http(otlp, "POST /v1/traces", &recorded).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    process.until("the trace", |d| d.spans().len() == 6).await;
    let page = http(admin, "GET /metrics", b"").await;
    let labels = "service=\"vercel-ai\",agent=\"research_agent\"";
    for line in [
        format!("agent_traces_total{{{labels},model=\"scripted-1\",result=\"fail\"}} 1"),
        format!("agent_tool_calls_total{{{labels},tool=\"visit_page\",result=\"pass\"}} 1"),
        "# TYPE otel_verdict_agent_tokens_total counter".to_owned(),
        format!("agent_failures_total{{{labels},signature=\""),
        "\nprocess_resident_memory_bytes ".to_owned(),
    ] {
        assert!(page.contains(&line), "no {line} in\n{page}");
    }
    assert!(!page.contains("agent_versions_total{"), "neither the agent nor the service has a version");
    assert!(!page.contains("# EOF"), "a client that accepts no OpenMetrics gets Prometheus' format");

    let health = |addr: std::net::SocketAddr, args: &'static [&'static str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
        command.args(["health", "--endpoint", &addr.to_string()]).args(args);
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let ready = health(admin, &[]).await.unwrap();
    assert_eq!((ready.status.code(), &*ready.stdout), (Some(0), &b"ready\n"[..]));
    assert_eq!(health(admin, &["--live"]).await.unwrap().stdout, b"live\n");
    let stopped = process.stop().await;
    let refused = health(admin, &[]).await.unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    drop(stopped);
}
