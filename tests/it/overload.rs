//! Overload for seconds: requests are refused with a retry delay, the charged bytes stay within the budget, and every
//! acknowledged span is exported, with slow destinations and with silent judges. Also one endless trace.
//!
//! Resident memory is printed and not compared: it depends on the allocator and on other processes of the machine
//! (`tests/bench/README.md`).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use tonic::transport::Channel;

use crate::durable::{Processor, expected_attributes, requests, send_until_acknowledged, verdict_attributes};
use crate::scrape::http;
use crate::support::{
    Destination, MAX_TIME_WITHOUT_PROGRESS, Process, text_attribute, until, until_none_is_missing,
};

const MIB: u64 = 1 << 20;
/// `memory.budget` of two processes.
const BUDGETS: [u64; 2] = [8 * MIB, 16 * MIB];
/// Bytes of the model's output on each span.
const CONTENT_BYTES: usize = 16 << 10;
const SENDERS: u64 = 12;
/// Spans of a request, each in its own trace.
const SPANS_PER_REQUEST: u64 = 8;

/// The requests of a test, and the maximum of the charged bytes.
#[derive(Clone, Copy, Default)]
struct Flood {
    /// Whether content is in log records instead of span attributes.
    in_logs: bool,
    /// The destination takes half of the bytes that are sent, whether they are accepted or refused. Then the flood
    /// lasts until requests are refused.
    is_throttled: bool,
    /// An attribute that every exported span must have.
    attribute: &'static str,
    /// Bytes that may be charged at once, as a multiple of the budget. Requests that are being read when the budget is
    /// reached may be charged in addition.
    budget_factor: u64,
}

fn output(n: u64) -> KeyValue {
    let content = format!("{n} {}", "x".repeat(CONTENT_BYTES));
    let message =
        serde_json::json!([{ "role": "assistant", "parts": [{ "type": "text", "content": content }] }]);
    text_attribute("gen_ai.output.messages", &message.to_string())
}

/// Trace id and span id of each span of a request.
fn ids(n: u64) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    (1..=SPANS_PER_REQUEST)
        .map(move |i| n * SPANS_PER_REQUEST + i)
        .map(|n| ([[9; 8], n.to_be_bytes()].concat(), n.to_be_bytes().to_vec()))
}

impl Flood {
    /// A request of traces of one model call each.
    fn spans(self, n: u64) -> ExportTraceServiceRequest {
        let span = |(trace_id, span_id): (Vec<u8>, Vec<u8>)| {
            let input_messages = r#"[{"role":"user","parts":[{"type":"text","content":"Write a lot."}]}]"#;
            let mut attributes = vec![
                text_attribute("gen_ai.operation.name", "chat"),
                text_attribute("gen_ai.input.messages", input_messages),
            ];
            attributes.extend((!self.in_logs).then(|| output(n)));
            Span {
                trace_id,
                span_id,
                name: "chat".into(),
                start_time_unix_nano: 1,
                end_time_unix_nano: 2,
                attributes,
                ..Span::default()
            }
        };
        let scope_spans = vec![ScopeSpans { spans: ids(n).map(span).collect(), ..ScopeSpans::default() }];
        let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
        ExportTraceServiceRequest { resource_spans }
    }

    /// The log records of these traces.
    fn logs(self, n: u64) -> Option<ExportLogsServiceRequest> {
        let record = |(trace_id, span_id): (Vec<u8>, Vec<u8>)| LogRecord {
            trace_id,
            span_id,
            event_name: "gen_ai.client.inference.operation.details".into(),
            attributes: vec![output(n)],
            ..LogRecord::default()
        };
        let log_records = ids(n).map(record).collect();
        let scope_logs = vec![ScopeLogs { log_records, ..ScopeLogs::default() }];
        let resource_logs = vec![ResourceLogs { scope_logs, ..ResourceLogs::default() }];
        self.in_logs.then_some(ExportLogsServiceRequest { resource_logs })
    }

    async fn send(
        self,
        traces: &mut TraceServiceClient<Channel>,
        logs: &mut LogsServiceClient<Channel>,
        n: u64,
    ) -> Result<(), tonic::Status> {
        if let Some(records) = self.logs(n) {
            logs.export(records).await?;
        }
        traces.export(self.spans(n)).await.map(drop)
    }
}

/// A line of `/proc/<pid>/status`, in bytes.
fn memory(pid: u32, key: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// The sum of the charged bytes: of open traces, of spans and log records that wait for a shard, of closed traces, and
/// of the exporter's queue.
async fn charged(admin: SocketAddr) -> u64 {
    let page = http(admin, "GET /metrics", b"").await;
    let gauges = [
        "buffered_bytes ",
        "in_transit_bytes ",
        "closed_traces_bytes ",
        "exporter_queue_bytes{exporter=\"otlp_grpc\"} ",
    ];
    let value = |gauge: &str| {
        let start = format!("otel_verdict_{gauge}");
        let line = page.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("no {gauge}: {page}")).parse::<u64>().unwrap()
    };
    gauges.into_iter().map(value).sum()
}

/// Overloads a process with this budget; returns the maximum of the charged bytes.
async fn max_charged_bytes(flood: Flood, budget: u64, more_settings: &str) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let destination = Destination::default();
    if flood.is_throttled {
        destination.stop_answering();
    }
    let port = destination.serve().await;
    let exporters = "exporters: { otlp_grpc: { max_request_size: 256KiB, signals: [traces], \
         sending_queue: { num_consumers: 2 } } }";
    let admin = std::net::SocketAddr::from(([127, 0, 0, 1], crate::support::unused_port()));
    let config_text = format!(
        "{exporters}\nmemory: {{ budget: {budget} }}\nadmin: {{ endpoint: '{admin}' }}\n{more_settings}"
    )
    .replace("FOLDER", &folder.path().display().to_string());
    std::fs::write(folder.path().join("override.yaml"), config_text).unwrap();
    let mut processor = Processor::start(folder.path(), port, "verdict: { close: { quiet: 1s } }");
    send_until_acknowledged(&mut processor.client(), &requests(0)[0]).await;
    // Anonymous memory excludes the pages of the executable, which are loaded on use.
    let anonymous = || memory(processor.id(), "RssAnon");
    let before = anonymous();

    let stop = Arc::new(AtomicBool::new(false));
    let (next, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let accepted: Arc<Mutex<Vec<u64>>> = Arc::default();
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            let (stop, next, refused, accepted) =
                (Arc::clone(&stop), Arc::clone(&next), Arc::clone(&refused), Arc::clone(&accepted));
            let (mut traces, mut logs) = (processor.client(), processor.logs_client());
            let destination = destination.clone();
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    destination.answer_more_bytes(SPANS_PER_REQUEST * CONTENT_BYTES as u64 / 2);
                    match flood.send(&mut traces, &mut logs, n).await {
                        Ok(()) => accepted.lock().unwrap().push(n),
                        // The client's timeout; the request may have been accepted.
                        Err(status) if status.code() == tonic::Code::Cancelled => {}
                        Err(status) => {
                            assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
                            let details = String::from_utf8_lossy(status.details()).into_owned();
                            assert!(details.contains("google.rpc.RetryInfo"), "{status}");
                            refused.fetch_add(1, Ordering::Relaxed);
                            // The senders retry sooner than the requested delay.
                            tokio::time::sleep(Duration::from_millis(30)).await;
                        }
                    }
                }
            })
        })
        .collect();
    // Until far more than the budget was accepted, and each sender was refused some times on average: without a slow
    // destination, memory may be freed before that happens.
    let min_refusals = if flood.is_throttled { 5 * SENDERS } else { 0 };
    let (started_at, mut peak, mut max_charged) = (Instant::now(), 0, 0);
    let bytes = || accepted.lock().unwrap().len() as u64 * SPANS_PER_REQUEST * CONTENT_BYTES as u64;
    let refusals = || refused.load(Ordering::Relaxed);
    let remaining =
        || [(budget + budget / 2).saturating_sub(bytes()), min_refusals.saturating_sub(refusals())];
    let (mut previous, mut last_progress) = (remaining(), Instant::now());
    while remaining() != [0, 0] {
        // On any machine, one of the two numbers must decrease within the time limit.
        let now = remaining();
        if now.iter().zip(previous).any(|(&now, before)| now < before) {
            (previous, last_progress) = (now, Instant::now());
        }
        let (accepted_mib, refused) = (bytes() / MIB, refusals());
        assert!(
            last_progress.elapsed() < MAX_TIME_WITHOUT_PROGRESS,
            "{accepted_mib} MiB taken, {refused} refused"
        );
        peak = peak.max(anonymous());
        max_charged = max_charged.max(charged(admin).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let duration = started_at.elapsed();
    stop.store(true, Ordering::Relaxed);
    for sender in senders {
        sender.await.unwrap();
    }
    let grown = peak.saturating_sub(before);
    let accepted = accepted.lock().unwrap().clone();
    let refused = refusals();
    let (requests, mib) = (accepted.len(), bytes() / MIB);
    println!(
        "budget {} MiB: {requests} requests taken, {mib} MiB, {refused} refused in {duration:?}; at most {} MiB charged, \
         resident memory grew by {} MiB",
        budget / MIB,
        max_charged / MIB,
        grown / MIB
    );

    // Traces that wait for a judge are exported at shutdown, or with a journal after the next start.
    destination.release();
    assert_eq!(processor.terminate(), Some(0));
    processor.restart();
    let missing = || {
        accepted.iter().flat_map(|&n| ids(n)).filter(|(trace, _)| !destination.has_received(trace)).count()
    };
    until_none_is_missing("acknowledged spans", missing).await;
    let mut spans = destination.spans();
    spans.retain(|span| span.trace_id.starts_with(&[9; 8]));
    let has_attribute = |span: &&Span| span.attributes.iter().any(|kv| kv.key.contains(flood.attribute));
    assert_eq!(spans.iter().find(|span| !has_attribute(span)), None);
    max_charged
}

/// A long timeout, because traces that are not evaluated in time are exported unmeasured.
const LONG_SHUTDOWN: &str = "service: { shutdown_timeout: 5m }";

async fn stays_within_its_budget(flood: Flood, more_settings: &str) {
    for budget in BUDGETS {
        let charged = max_charged_bytes(flood, budget, more_settings).await;
        // Requests that are being read when the budget is reached take at most a quarter of it, and each sender has one
        // that was read.
        let limit = budget * flood.budget_factor
            + budget / 4
            + 2 * SENDERS * SPANS_PER_REQUEST * CONTENT_BYTES as u64;
        assert!(charged < limit, "{charged} bytes were charged, with a budget of {budget}");
        assert!(charged > budget / 2, "{charged} bytes were charged: the budget of {budget} was not reached");
    }
}

/// The endpoint of a model that accepts connections and does not answer.
fn silent_endpoint() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().flatten().collect::<Vec<_>>());
    format!("http://{address}/v1")
}

const SLOW_DESTINATION: Flood =
    Flood { in_logs: false, is_throttled: true, attribute: "verdict.result", budget_factor: 1 };

#[tokio::test(flavor = "multi_thread")]
async fn under_twice_the_load_memory_stays_within_budget_and_nothing_acknowledged_is_lost() {
    stays_within_its_budget(SLOW_DESTINATION, LONG_SHUTDOWN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_twice_the_load_with_a_journal_memory_stays_within_budget_and_nothing_acknowledged_is_lost() {
    let more = format!("storage: {{ directory: 'FOLDER/journal' }}\n{LONG_SHUTDOWN}");
    stays_within_its_budget(SLOW_DESTINATION, &more).await;
}

/// `max_wait` is longer than the test. Traces that wait for judges are charged twice their bytes when they close, which
/// may happen at the same time for all.
async fn silent_judge(in_logs: bool) {
    let attribute = "instruction_following.reason";
    let flood = Flood { in_logs, is_throttled: false, attribute, budget_factor: 2 };
    let more = format!(
        "judges: {{ main: {{ endpoint: '{}', model: m, timeout: 10s, retries: 0 }} }}\n\
         verdict: {{ max_wait: 1h, metrics: {{ judges: [rules], instruction_following: {{ judges: [main] }} }} }}\n\
         {LONG_SHUTDOWN}",
        silent_endpoint()
    );
    stays_within_its_budget(flood, &more).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_silent_judge_spans_are_exported_and_memory_stays_within_budget() {
    silent_judge(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_silent_judge_log_records_count_towards_the_budget() {
    silent_judge(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_smaller_than_the_queue_refuses_until_the_queue_has_drained() {
    let process = Process::start(
        "memory: { budget: 1MiB }\nverdict: { close: { quiet: 0s } }\n\
         exporters: { otlp_grpc: { max_request_size: 64KiB, signals: [traces] } }",
    )
    .await;
    process.destination.stop_answering();
    let mut accepted = 0;
    while process.client().try_spans(Flood::default().spans(accepted)).await.is_ok() {
        accepted += 1;
        assert!(accepted < 16, "twice the budget was accepted");
        // Its traces have closed, so that the queue fills the budget.
        let traces = &process.service.telemetry().traces;
        until("closed traces", || traces.in_transit_bytes.get() == 0 && traces.open.get() == 0).await;
    }
    process.destination.release();
    let started_at = Instant::now();
    while process.client().try_spans(Flood::default().spans(accepted)).await.is_err() {
        assert!(started_at.elapsed() < MAX_TIME_WITHOUT_PROGRESS, "requests are refused");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(process.stop().await.spans().len() as u64, (accepted + 1) * SPANS_PER_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_optional_exporter_uses_an_eighth_of_the_budget_and_blocks_nothing() {
    let process = Process::start(
        "memory: { budget: 1MiB }\nverdict: { close: { quiet: 0s } }\n\
         exporters: { otlp_grpc/dead: { endpoint: '127.0.0.1:1', required: false, signals: [traces] } }\n\
         service: { exporters: [otlp_grpc, otlp_grpc/dead] }",
    )
    .await;
    for n in 0..40 {
        // Five times the budget, as fast as it is evaluated.
        let started_at = Instant::now();
        while process.client().try_spans(Flood::default().spans(n)).await.is_err() {
            assert!(
                started_at.elapsed() < MAX_TIME_WITHOUT_PROGRESS,
                "the optional exporter blocks requests"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    process.until("every span", |d| d.spans().len() as u64 == 40 * SPANS_PER_REQUEST).await;
    let page = process.service.telemetry().render(otel_verdict::telemetry::TextFormat::OpenMetrics);
    let dead_exporter_value = |name: &str| -> u64 {
        let start = format!("otel_verdict_exporter_{name}{{exporter=\"otlp_grpc/dead\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&start)).unwrap().parse().unwrap()
    };
    assert_eq!(dead_exporter_value("queue_capacity_bytes"), MIB / 8);
    assert!((1..=MIB / 8).contains(&dead_exporter_value("queue_bytes")), "{page}");
    Box::pin(process.service.stop(Duration::from_secs(1))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_far_beyond_its_limit_affects_no_other() {
    const CHUNK: u64 = 500;
    const CHUNKS: u64 = 40;
    let close = "verdict: { close: { quiet: 300ms, max_spans: 500 } }";
    let expected = expected_attributes(close).await;
    let process = Process::start(close).await;
    let endless = |chunk: u64| {
        let span = |n: u64| Span {
            trace_id: vec![3; 16],
            span_id: n.to_be_bytes().to_vec(),
            parent_span_id: vec![3; 8],
            name: "step".into(),
            start_time_unix_nano: n,
            end_time_unix_nano: n + 1,
            ..Span::default()
        };
        let spans = (chunk * CHUNK + 1..=(chunk + 1) * CHUNK).map(span).collect();
        let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
        let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
        ExportTraceServiceRequest { resource_spans }
    };
    for chunk in 0..CHUNKS {
        process.client().spans(endless(chunk)).await;
        for request in requests(chunk) {
            process.client().spans(request).await;
        }
    }
    let all = (CHUNKS * CHUNK + CHUNKS * 3) as usize;
    process.until("every span", |d| d.spans().len() >= all).await;
    let spans = process.stop().await.spans();
    assert_eq!(spans.len(), all);
    let others = spans.iter().filter(|span| span.trace_id != [3; 16]);
    for span in others {
        assert_eq!(verdict_attributes(span), expected[&span.name], "{}", span.name);
    }
}
