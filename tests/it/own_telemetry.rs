//! `service.telemetry`: spans and metrics of the process as OTLP, and that they are never evaluated.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::processes::Running;
use crate::support::MAX_TIME_WITHOUT_PROGRESS;

const RECORDING: &str = "demo/vercelai-e";

fn replay(running: &Running) {
    let sent = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
        .args(["replay", RECORDING, "--endpoint", &running.grpc])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
}

/// Listeners, a file as the only destination, and telemetry that is sent to `endpoint`.
fn configuration(out: &Path, http: &str, endpoint: &str) -> String {
    format!(
        "receivers: {{ otlp: {{ protocols: {{ grpc: {{ endpoint: '127.0.0.1:0' }}, http: {{ endpoint: '{http}' }} }} }} }}\n\
         exporters: {{ file: {{ path: '{}', signals: [traces] }} }}\n\
         admin: {{ endpoint: '127.0.0.1:0' }}\n\
         verdict: {{ close: {{ quiet: 100ms }} }}\n\
         service: {{ log_format: json, shutdown_timeout: 5m, telemetry: {{ endpoint: '{endpoint}', interval: 200ms }} }}\n",
        out.display()
    )
}

fn names(spans: &[Span]) -> BTreeSet<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_and_metrics_are_sent_as_otlp_without_content() {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(200)).mount(&server).await;
    let folder = tempfile::tempdir().unwrap();
    let text = configuration(&folder.path().join("out.jsonl"), "127.0.0.1:0", &server.uri());
    let mut running = Running::configured(folder.path(), &text);
    replay(&running);
    // The rest is sent at the end.
    assert_eq!(running.terminate(), Some(0), "{}", running.log());
    let (mut spans, mut points, mut bytes) = (Vec::new(), BTreeSet::new(), Vec::new());
    for request in server.received_requests().await.unwrap() {
        bytes.extend_from_slice(&request.body);
        if request.url.path() == "/v1/traces" {
            let decoded = ExportTraceServiceRequest::decode(&request.body[..]).unwrap();
            for scope_spans in decoded.resource_spans.into_iter().flat_map(|r| r.scope_spans) {
                assert_eq!(scope_spans.scope.unwrap().name, "otel-verdict.self");
                spans.extend(scope_spans.spans);
            }
        } else {
            assert_eq!(request.url.path(), "/v1/metrics");
            let decoded = ExportMetricsServiceRequest::decode(&request.body[..]).unwrap();
            let scopes = decoded.resource_metrics.into_iter().flat_map(|r| r.scope_metrics);
            points.extend(scopes.flat_map(|s| s.metrics).map(|metric| metric.name));
        }
    }
    assert_eq!(names(&spans), ["evaluate", "receive"].into());
    let evaluated = spans.iter().find(|span| span.name == "evaluate").unwrap();
    let keys: BTreeSet<&str> = evaluated.attributes.iter().map(|kv| kv.key.as_str()).collect();
    assert!(["trace", "spans", "judged", "result"].iter().all(|key| keys.contains(key)), "{keys:?}");
    for name in ["otel_verdict_spans_accepted", "otel_verdict_agent_traces", "otel_verdict_agent_scores"] {
        assert!(points.contains(name), "{name} is not in {points:?}");
    }
    // "Alpine" is in the prompts of the recording.
    assert!(!String::from_utf8_lossy(&bytes).contains("Alpine"), "content in telemetry");
}

#[test]
fn own_spans_are_not_evaluated_and_have_no_spans_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.jsonl");
    // The process is its own destination.
    let port = std::net::SocketAddr::from(([127, 0, 0, 1], crate::support::unused_port()));
    let text = configuration(&out, &port.to_string(), &format!("http://{port}"));
    let mut running = Running::configured(folder.path(), &text);
    replay(&running);
    let self_spans = |out: &Path| -> Vec<Span> {
        let text = std::fs::read_to_string(out).unwrap_or_default();
        // The last line may be incomplete.
        let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
        let requests =
            whole.lines().map(|line| serde_json::from_str::<ExportTraceServiceRequest>(line).unwrap());
        let scopes = requests.flat_map(|r| r.resource_spans).flat_map(|r| r.scope_spans);
        let self_scopes =
            scopes.filter(|s| s.scope.as_ref().is_some_and(|scope| scope.name == "otel-verdict.self"));
        self_scopes.flat_map(|scope| scope.spans).collect()
    };
    let started = Instant::now();
    while !names(&self_spans(&out)).contains("evaluate") {
        assert!(started.elapsed() < MAX_TIME_WITHOUT_PROGRESS, "{}", running.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    // Many batches later there are no further spans: neither the requests of spans nor their traces have any.
    std::thread::sleep(Duration::from_secs(1));
    let spans = self_spans(&out);
    let count = |name: &str| spans.iter().filter(|span| span.name == name).count();
    assert_eq!(count("evaluate"), 1, "{:?}", names(&spans));
    let requests = count("receive");
    assert!((1..=2).contains(&requests), "{requests} requests of the recording");
    assert!(spans.iter().all(|span| span.attributes.iter().all(|kv| !kv.key.starts_with("verdict."))));
    let metrics = running.get("/metrics");
    assert!(metrics.contains("otel_verdict_traces_open 0"), "{metrics}");
    assert_eq!(running.terminate(), Some(0));
}
