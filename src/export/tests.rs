//! Tests exporters with servers on the loopback interface: requests, retries, and exactly one outcome per item.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tonic::{Code, Status};

use super::*;
use crate::outcome::Outcome;
use crate::telemetry::RequestObserver;

mod unreachable;
mod file;
mod parts;
mod queues;
mod dead_letters;
mod retries;
mod scores;
mod sink;
mod tls;
mod webhook;
use sink::{Sink, TestResponse, client_certificate, self_signed};

const PROTOCOLS: [&str; 2] = ["otlp_grpc", "otlp_http"];

/// A parcel of one trace with spans of these names, each padded by `padding` bytes.
fn padded_parcel(names: &[&str], padding: usize) -> Parcel {
    let span = |(i, name): (usize, &&str)| Span {
        trace_id: vec![7; 16],
        span_id: vec![1, 0, 0, 0, 0, 0, 0, u8::try_from(i % 256).unwrap()],
        name: (*name).into(),
        trace_state: "p".repeat(padding),
        ..Span::default()
    };
    let spans = names.iter().enumerate().map(span).collect();
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
    Parcel::request(Signal::Traces, ExportTraceServiceRequest { resource_spans }.encode_to_vec().into())
}

fn parcel(names: &[&str]) -> Parcel {
    padded_parcel(names, 0)
}

fn logs_parcel(record_count: usize) -> Parcel {
    let scope_logs =
        vec![ScopeLogs { log_records: vec![LogRecord::default(); record_count], ..Default::default() }];
    let resource_logs = vec![ResourceLogs { scope_logs, ..Default::default() }];
    Parcel::request(Signal::Logs, ExportLogsServiceRequest { resource_logs }.encode_to_vec().into())
}

fn context() -> ExportContext {
    ExportContext::for_test()
}

fn parse_configs(yaml: &str) -> ExporterConfigs {
    let configs: ExporterConfigs = serde_saphyr::from_str(yaml).unwrap();
    assert_eq!(configs.problems(), []);
    configs
}

/// Starts every exporter in `yaml`.
fn start(yaml: &str) -> Exporters {
    let configs = parse_configs(yaml);
    let ids: Vec<String> = configs.0.keys().cloned().collect();
    Exporters::start(&configs, &ids, &context()).unwrap_or_else(|(id, e)| panic!("{id}: {e}"))
}

/// One exporter to `sink` with quick retries, one consumer, and the settings in `more`.
fn start_one(protocol: &str, sink: &Sink, more_settings: &str) -> Exporters {
    start(&yaml(protocol, "http", &sink.addr.to_string(), more_settings))
}

fn yaml(protocol: &str, scheme: &str, host: &str, more_settings: &str) -> String {
    let retry = if more_settings.contains("retry_on_failure") {
        ""
    } else {
        "retry_on_failure: { initial_interval: 1ms, max_interval: 5ms, max_elapsed_time: 0 },"
    };
    let queue =
        if more_settings.contains("sending_queue") { "" } else { "sending_queue: { num_consumers: 1 }," };
    format!("{protocol}: {{ endpoint: '{scheme}://{host}', {retry} {queue} {more_settings} }}\n")
}

async fn drain(exporters: &Exporters) {
    exporters.drain(Instant::now() + Duration::from_secs(180)).await;
}

/// Pauses the clock of Tokio, until the result is dropped also for idle tasks: as long as a blocking task runs, a
/// paused clock does not advance by itself while all tasks wait for the network.
fn stop_clock() -> std::sync::mpsc::Sender<()> {
    let (sender, receiver) = std::sync::mpsc::channel();
    tokio::task::spawn_blocking(move || receiver.recv());
    tokio::time::pause();
    sender
}

/// Sleeps for a millisecond of real time, so also while the clock is paused.
async fn short_sleep() {
    tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(1))).await.unwrap();
}

/// Counts the completed requests.
#[derive(Default)]
struct RequestCounter(AtomicUsize);

impl RequestObserver for RequestCounter {
    fn request_ended(&self, _: &'static str, _: Duration) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Sends a parcel that is refused, and waits until it is dropped. The clock advances only between the attempts, by
/// `pause`, which must be longer than the delays of the exporter. An attempt itself takes none of `max_elapsed_time`,
/// however slow the machine is.
async fn retry_until_dropped(exporters: &Exporters, parcel: Parcel, pause: Duration) {
    let counter = Arc::new(RequestCounter::default());
    only(exporters).observe(Arc::clone(&counter) as Arc<dyn RequestObserver>);
    let _clock_guard = stop_clock();
    exporters.send_record(parcel, None).await;
    let mut completed_before = 0;
    while only(exporters).ledger().count(Outcome::Dropped) == 0 {
        let completed = counter.0.load(Ordering::SeqCst);
        if completed > completed_before {
            // The consumer runs on this thread, so it now waits for its delay.
            tokio::time::advance(pause).await;
            completed_before = completed;
        }
        short_sleep().await;
    }
    tokio::time::resume();
}

/// The numbers of exported and dropped items. Asserts that no item has another outcome.
fn exported_and_dropped(exporter: &Exporter) -> (u64, u64) {
    let ledger = exporter.ledger();
    assert_eq!((ledger.count(Outcome::Lost), ledger.count(Outcome::DeadLettered)), (0, 0));
    assert_eq!(exporter.queued_bytes(), 0, "all space is released");
    let reasons: u64 = DropReason::ALL.iter().map(|reason| exporter.dropped(*reason)).sum();
    assert_eq!(reasons, ledger.count(Outcome::Dropped), "every drop has its reason");
    (ledger.count(Outcome::Exported), ledger.count(Outcome::Dropped))
}

/// The exporter, if there is one.
fn only(exporters: &Exporters) -> &Exporter {
    let all: Vec<_> = exporters.iter().collect();
    assert_eq!(all.len(), 1);
    all[0]
}

#[tokio::test]
async fn parcels_queued_during_a_request_are_batched_in_the_next() {
    for protocol in PROTOCOLS {
        let sink = Sink::start(|_, _| TestResponse::Ok(vec![])).await;
        sink.gate.forget_permits(1_000_000);
        let exporters = start_one(protocol, &sink, "");
        exporters.send_record(parcel(&["first"]), None).await;
        while sink.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for i in 0..30 {
            exporters.send_record(parcel(&[&format!("s{i}")]), None).await;
        }
        sink.gate.add_permits(1_000_000);
        drain(&exporters).await;
        assert_eq!(exported_and_dropped(only(&exporters)), (31, 0));
        assert_eq!(
            sink.requests().iter().map(|s| s.names().len()).collect::<Vec<_>>(),
            [1, 30],
            "{protocol}"
        );
    }
}

#[tokio::test]
async fn request_above_max_request_size_is_split_completely() {
    let names: Vec<String> = (0..400).map(|i| format!("s{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let large_parcel = padded_parcel(&names, 40_000);
    assert!(large_parcel.size() > 15 << 20);
    for protocol in PROTOCOLS {
        let sink = Sink::start(|_, _| TestResponse::Ok(vec![])).await;
        let exporters = start_one(protocol, &sink, "");
        exporters.send_record(large_parcel.clone(), None).await;
        drain(&exporters).await;
        assert_eq!(exported_and_dropped(only(&exporters)), (400, 0));
        assert!(sink.requests().iter().all(|s| s.message.len() <= 4 << 20), "{protocol}");
        assert!(sink.requests().len() < 6, "{protocol}: {} requests", sink.requests().len());
        assert_eq!(sink.names(), names, "{protocol}");
    }
}

#[tokio::test]
async fn request_that_the_destination_finds_too_large_is_halved() {
    for protocol in PROTOCOLS {
        let grpc = protocol == "otlp_grpc";
        let sink = Sink::start(move |_, seen| match seen.message.len() {
            0..3000 => TestResponse::Ok(vec![]),
            _ if grpc => TestResponse::too_large(),
            _ => TestResponse::Http(413, None),
        })
        .await;
        let exporters = start_one(protocol, &sink, "");
        let mut parcel = padded_parcel(&["a", "b", "c", "d", "e", "f", "g"], 1000);
        let too_large_span = padded_parcel(&["x"], 4000);
        parcel.pieces.extend(too_large_span.pieces);
        exporters.send_record(parcel, None).await;
        drain(&exporters).await;
        assert_eq!(exported_and_dropped(only(&exporters)), (7, 1), "{protocol}");
        let accepted = sink.requests().into_iter().filter(|s| s.message.len() < 3000);
        assert_eq!(accepted.flat_map(|s| s.names()).collect::<String>(), "abcdefg", "{protocol}");
    }
}

#[tokio::test]
async fn invalid_parcel_is_isolated_and_others_are_exported() {
    for protocol in PROTOCOLS {
        let grpc = protocol == "otlp_grpc";
        let sink = Sink::start(move |_, seen| match seen.names().iter().any(|n| n == "bad") {
            false => TestResponse::Ok(vec![]),
            true if grpc => TestResponse::code(Code::InvalidArgument),
            true => TestResponse::Http(400, None),
        })
        .await;
        sink.gate.forget_permits(1_000_000);
        let exporters = start_one(protocol, &sink, "");
        exporters.send_record(parcel(&["first"]), None).await;
        while sink.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for names in [["a", "b"], ["bad", "c"], ["d", "e"]] {
            exporters.send_record(parcel(&names), None).await;
        }
        sink.gate.add_permits(1_000_000);
        drain(&exporters).await;
        assert_eq!(exported_and_dropped(only(&exporters)), (5, 2), "{protocol}");
        let received: Vec<String> = sink.requests().iter().map(|s| s.names().concat()).collect();
        assert_eq!(received, ["first", "abbadcde", "ab", "badc", "de"], "{protocol}");
    }
}

#[tokio::test]
async fn partial_success_counts_rejected_items_and_exports_the_rest() {
    // partial_success { rejected: 2, error_message: "no" }
    let partial = vec![0x0a, 6, 0x08, 2, 0x12, 2, b'n', b'o'];
    for protocol in PROTOCOLS {
        let message = partial.clone();
        let sink = Sink::start(move |_, _| TestResponse::Ok(message.clone())).await;
        let exporters = start_one(protocol, &sink, "");
        exporters.send_record(parcel(&["a", "b", "c", "d", "e"]), None).await;
        drain(&exporters).await;
        assert_eq!(exported_and_dropped(only(&exporters)), (3, 2), "{protocol}");
        assert_eq!(only(&exporters).dropped(DropReason::Rejected), 2);
    }
}

#[tokio::test]
async fn gzip_and_zstd_compression_work_with_both_protocols() {
    for protocol in PROTOCOLS {
        for compression in ["gzip", "zstd"] {
            let sink = Sink::start(|_, _| TestResponse::Ok(vec![])).await;
            let exporters = start_one(protocol, &sink, &format!("compression: {compression}"));
            exporters.send_record(padded_parcel(&["a", "b"], 5000), None).await;
            exporters.send_record(padded_parcel(&["c"], 300_000), None).await;
            drain(&exporters).await;
            assert_eq!(exported_and_dropped(only(&exporters)), (3, 0));
            assert_eq!(sink.names().concat(), "abc", "{protocol} {compression}");
            assert!(
                sink.requests().iter().all(|s| s.wire_bytes * 10 < s.message.len()),
                "{protocol} {compression}"
            );
        }
    }
}

#[tokio::test]
async fn requests_have_user_agent_headers_and_the_signals_path() {
    let paths = [
        ["/opentelemetry.proto.collector.trace.v1.TraceService/Export", "/v1/traces"],
        ["/opentelemetry.proto.collector.logs.v1.LogsService/Export", "/v1/logs"],
    ];
    for (p, protocol) in PROTOCOLS.into_iter().enumerate() {
        let sink = Sink::start(|_, _| TestResponse::Ok(vec![])).await;
        let exporters = start_one(protocol, &sink, "headers: { authorization: Bearer x }");
        for (s, parcel) in [parcel(&["a"]), logs_parcel(3)].into_iter().enumerate() {
            exporters.send_record(parcel, None).await;
            while sink.requests().len() <= s {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let seen = &sink.requests()[s];
            assert_eq!(seen.path, paths[s][p]);
            assert_eq!(seen.headers["authorization"], "Bearer x");
            assert!(seen.headers["user-agent"].to_str().unwrap().starts_with("otel-verdict/"));
        }
        drain(&exporters).await;
        assert_eq!(exported_and_dropped(only(&exporters)), (4, 0));
    }
}

#[tokio::test]
async fn destination_without_logs_service_still_receives_spans() {
    // The clock is paused since the exporter sends logs again after a while.
    let _clock_guard = stop_clock();
    for protocol in PROTOCOLS {
        let sink = Sink::start(|_, seen| match seen.path.as_str() {
            "/v1/logs" => TestResponse::Http(404, None),
            path if path.contains("Logs") => TestResponse::code(Code::Unimplemented),
            _ => TestResponse::Ok(vec![]),
        })
        .await;
        let exporters = start_one(protocol, &sink, "");
        for n in 1..=4 {
            exporters.send_record(logs_parcel(2), None).await;
            exporters.send_record(parcel(&["a"]), None).await;
            let ledger = only(&exporters).ledger();
            while (ledger.count(Outcome::Exported), ledger.count(Outcome::Dropped)) != (n, 2 * n) {
                short_sleep().await;
            }
        }
        drain(&exporters).await;
        assert_eq!(exported_and_dropped(only(&exporters)), (4, 8), "{protocol}");
        assert_eq!(only(&exporters).dropped(DropReason::Unsupported), 8);
        assert_eq!(sink.requests().iter().filter(|s| s.path.to_lowercase().contains("logs")).count(), 1);
    }
}

#[tokio::test]
async fn tonic_server_accepts_requests() {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
    use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
        TraceService, TraceServiceServer,
    };
    struct SpanCounter(Arc<std::sync::atomic::AtomicUsize>);
    #[tonic::async_trait]
    impl TraceService for SpanCounter {
        async fn export(
            &self,
            request: tonic::Request<ExportTraceServiceRequest>,
        ) -> Result<tonic::Response<ExportTraceServiceResponse>, Status> {
            let scopes = request.into_inner().resource_spans.into_iter().flat_map(|r| r.scope_spans);
            let spans = scopes.map(|s| s.spans.len()).sum();
            self.0.fetch_add(spans, std::sync::atomic::Ordering::SeqCst);
            Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
        }
    }
    let count: Arc<std::sync::atomic::AtomicUsize> = Arc::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = tonic::transport::Server::builder()
        .add_service(TraceServiceServer::new(SpanCounter(Arc::clone(&count))));
    tokio::spawn(server.serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener)));
    let exporters = start(&yaml("otlp_grpc", "http", &addr.to_string(), ""));
    for _ in 0..10 {
        exporters.send_record(padded_parcel(&["a", "b", "c"], 10_000), None).await;
    }
    drain(&exporters).await;
    assert_eq!(exported_and_dropped(only(&exporters)), (30, 0));
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 30);
}

#[tokio::test]
async fn observer_is_notified_of_every_request() {
    #[derive(Default)]
    struct Recorder(std::sync::Mutex<Vec<&'static str>>);
    impl RequestObserver for Recorder {
        fn request_ended(&self, status: &'static str, _: Duration) {
            self.0.lock().unwrap().push(status);
        }
    }
    let sink = Sink::start(|nth, _| {
        [TestResponse::code(Code::Unavailable), TestResponse::Cut, TestResponse::Ok(vec![])][nth].clone()
    })
    .await;
    let exporters = start_one("otlp_grpc", &sink, "");
    let recorder = Arc::new(Recorder::default());
    only(&exporters).observe(Arc::clone(&recorder) as Arc<dyn RequestObserver>);
    exporters.send_record(parcel(&["a"]), None).await;
    drain(&exporters).await;
    assert_eq!(exported_and_dropped(only(&exporters)), (1, 0));
    assert_eq!(*recorder.0.lock().unwrap(), ["unavailable", "connection", "ok"]);
    assert_eq!(only(&exporters).retries(), 2);
}

#[tokio::test]
async fn start_errors_name_the_exporter_and_the_reason() {
    let configs = parse_configs(
        "file: { path: /no/such/folder/out }\notlp_grpc: { endpoint: 'h:1', tls: { ca_file: /no/such } }",
    );
    for (id, reason) in
        [("file", "/no/such/folder/out"), ("otlp_grpc", "/no/such"), ("gone", "no exporter 'gone'")]
    {
        let (failed_id, error) = Exporters::start(&configs, &[id.to_owned()], &context()).unwrap_err();
        assert_eq!(failed_id, id);
        assert!(error.to_string().contains(reason), "{error}");
    }
}
