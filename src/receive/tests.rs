//! Servers on free ports, with an intake that records the offered requests and returns a configured answer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::telemetry::TextFormat;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use verdict_otlp::Signal;

use super::config::{Endpoint, GrpcConfig, HttpConfig, Protocols};
use super::*;

mod grpc;
mod http;
mod listener_security;
mod serving;

/// Returns `answer` to every request, which is success by default; waits while the gate has no permits.
struct FakeIntake {
    offers: Mutex<Vec<Offer>>,
    answer: Mutex<Result<Accepted, Refused>>,
    pressure: Mutex<Option<Duration>>,
    gate: Semaphore,
    /// Requests that have reached the gate.
    arrived: AtomicUsize,
    /// The number of requests that wait at the gate now.
    waiting: AtomicUsize,
    /// The highest number of requests that waited at once.
    max_waiting: AtomicUsize,
}

impl Intake for FakeIntake {
    fn pressure(&self) -> Option<Duration> {
        *self.pressure.lock().unwrap()
    }
    fn offer(&self, offer: Offer) -> OfferFuture<'_> {
        self.offers.lock().unwrap().push(offer);
        Box::pin(async {
            self.arrived.fetch_add(1, Ordering::SeqCst);
            self.max_waiting.fetch_max(self.waiting.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let _passed = self.gate.acquire().await.unwrap();
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            self.answer.lock().unwrap().clone()
        })
    }
}

struct Server {
    intake: Arc<FakeIntake>,
    telemetry: Arc<Telemetry>,
    grpc: SocketAddr,
    http: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

/// The longest time that a response or a closed connection takes on a machine with other load.
const PATIENCE: Duration = Duration::from_secs(180);

/// The size limit of tests: 1 MiB.
const LIMIT: usize = 1 << 20;

fn config() -> OtlpConfig {
    let grpc =
        GrpcConfig { endpoint: Endpoint::loopback(0), max_recv_msg_size_mib: 1, ..GrpcConfig::default() };
    let http = HttpConfig {
        endpoint: Endpoint::loopback(0),
        max_request_body_size: verdict_config::Size(LIMIT as u64),
        ..HttpConfig::default()
    };
    OtlpConfig { protocols: Protocols { grpc: Some(grpc), http: Some(http) }, ..OtlpConfig::default() }
}

impl Server {
    async fn start() -> Server {
        Server::start_with(config(), PATIENCE).await
    }

    async fn start_with(config: OtlpConfig, grace: Duration) -> Server {
        Server::over(bind(&config).await.unwrap(), grace)
    }

    fn over(bound: BoundReceiver, grace: Duration) -> Server {
        let (grpc, http) = (bound.grpc_addr().unwrap(), bound.http_addr().unwrap());
        let intake = Arc::new(FakeIntake {
            offers: Mutex::default(),
            answer: Mutex::new(Ok(Accepted::default())),
            pressure: Mutex::default(),
            gate: Semaphore::new(1000),
            arrived: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            max_waiting: AtomicUsize::new(0),
        });
        let (telemetry, stop) = (Telemetry::new(), CancellationToken::new());
        let serving = tokio::spawn(bound.serve(intake.clone(), telemetry.clone(), stop.clone(), grace));
        Server { intake, telemetry, grpc, http, stop, serving }
    }

    fn set_answer(&self, answer: Result<Accepted, Refused>) {
        *self.intake.answer.lock().unwrap() = answer;
    }

    fn offers(&self) -> Vec<Offer> {
        self.intake.offers.lock().unwrap().clone()
    }

    fn request_count(&self, transport: &str, signal: &str, outcome: &str) -> u64 {
        let sample = format!(
            "otel_verdict_receive_requests_total{{transport=\"{transport}\",signal=\"{signal}\",outcome=\"{outcome}\"}} "
        );
        let page = self.telemetry.render(TextFormat::OpenMetrics);
        page.lines().find_map(|l| l.strip_prefix(&sample)).map_or(0, |n| n.parse().unwrap())
    }

    /// Fails if bytes are still reserved some time after every request was answered.
    async fn wait_until_no_bytes_are_held(&self) {
        for _ in 0..18_000 {
            if self.telemetry.receive.held_bytes.get() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} bytes are still held", self.telemetry.receive.held_bytes.get());
    }
}

/// A request with one span of about `size` bytes.
fn request(size: usize) -> ExportTraceServiceRequest {
    let content = AnyValue { value: Some(any_value::Value::StringValue("words ".repeat(size / 6))) };
    let attribute = KeyValue { key: "input.value".to_owned(), value: Some(content), ..KeyValue::default() };
    let span = Span {
        trace_id: vec![7; 16],
        span_id: vec![3; 8],
        name: "chat".to_owned(),
        attributes: vec![attribute],
        ..Span::default()
    };
    let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
    ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { scope_spans, ..Default::default() }] }
}

fn gzip(data: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}
