//! A whole process in a test: the service on ports of its own, a destination behind it, a client
//! in front.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::Span;
use otel_verdict::config::{Config, from_sources};
use otel_verdict::extensions::Extensions;
use otel_verdict::pipeline::offline::{EvaluatedRecording, RecordingEvaluation};
use otel_verdict::pipeline::service::Service;
use otel_verdict::receive::Offer;
use prost::Message;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use verdict_config::Source;
use verdict_otlp::Signal;

/// Largest message of the test's own client and destination.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// A port for a process that binds it later, and again after a restart. It is below those from which the kernel chooses
/// for other sockets, so that none of them can take it meanwhile.
pub fn unused_port() -> u16 {
    const FIRST: u16 = 12_000;
    const PORTS: u16 = 16_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process_offset = (std::process::id() % 100) as u16 * (PORTS / 100);
    loop {
        let nth = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(process_offset);
        let port = FIRST + nth % PORTS;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A wait without progress for this time is a failure. The time is long, because processes share their cores with other
/// tests and builds.
pub const MAX_TIME_WITHOUT_PROGRESS: Duration = Duration::from_secs(180);

/// Waits until `missing` returns 0. Fails if the number does not decrease for [`MAX_TIME_WITHOUT_PROGRESS`]; the whole
/// time is not limited, because it depends on the machine.
pub async fn until_none_is_missing(description: &str, missing: impl Fn() -> usize) {
    let (mut fewest, mut last_progress) = (usize::MAX, Instant::now());
    loop {
        let begun = Instant::now();
        let now = missing();
        if now == 0 {
            return;
        }
        if now < fewest {
            (fewest, last_progress) = (now, Instant::now());
        }
        assert!(
            last_progress.elapsed() < MAX_TIME_WITHOUT_PROGRESS,
            "{now} missing without progress: {description}"
        );
        // Counting may examine all exported spans: it must not take the processor time of the tested process.
        tokio::time::sleep((4 * begun.elapsed()).max(Duration::from_millis(10))).await;
    }
}

/// Waits until `reached`.
pub async fn until(description: &str, reached: impl Fn() -> bool) {
    until_none_is_missing(description, || usize::from(!reached())).await;
}

/// An attribute whose value is text.
pub fn text_attribute(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

/// Evaluates the traces that were added, without judges.
pub fn finish(evaluation: &mut RecordingEvaluation, on_trace: impl FnMut(EvaluatedRecording)) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(evaluation.finish(on_trace));
}

/// A destination that stores the requests that it receives.
#[derive(Clone)]
pub struct Destination {
    traces: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    logs: Arc<Mutex<Vec<ExportLogsServiceRequest>>>,
    /// The trace ids of the received spans.
    trace_ids: Arc<Mutex<HashSet<Vec<u8>>>>,
    /// Bytes of requests that the destination may still answer; a negative number means without limit.
    allowance: Arc<AtomicI64>,
}

impl Default for Destination {
    fn default() -> Self {
        let (traces, logs, trace_ids) = Default::default();
        Destination { traces, logs, trace_ids, allowance: Arc::new(AtomicI64::new(-1)) }
    }
}

#[tonic::async_trait]
impl TraceService for Destination {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let request = request.into_inner();
        let bytes = i64::try_from(request.encoded_len()).unwrap();
        while !self.take_allowance(bytes) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let scopes = request.resource_spans.iter().flat_map(|r| &r.scope_spans);
        self.trace_ids
            .lock()
            .unwrap()
            .extend(scopes.flat_map(|s| &s.spans).map(|span| span.trace_id.clone()));
        self.traces.lock().unwrap().push(request);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl LogsService for Destination {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.logs.lock().unwrap().push(request.into_inner());
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

impl Destination {
    /// Stops answering requests of spans, except those whose bytes [`Destination::answer_more_bytes`] allows.
    pub fn stop_answering(&self) {
        self.allowance.store(0, Ordering::SeqCst);
    }

    /// Allows answers to requests of `bytes` more bytes.
    pub fn answer_more_bytes(&self, bytes: u64) {
        let more = |now: i64| (now >= 0).then(|| now.saturating_add_unsigned(bytes));
        let _ = self.allowance.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
    }

    /// Answers all requests again.
    pub fn release(&self) {
        self.allowance.store(-1, Ordering::SeqCst);
    }

    fn take_allowance(&self, bytes: i64) -> bool {
        let take = |now: i64| if now < 0 { Some(now) } else { (now >= bytes).then(|| now - bytes) };
        self.allowance.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
    }

    /// Whether spans of this trace were received.
    pub fn has_received(&self, trace: &[u8]) -> bool {
        self.trace_ids.lock().unwrap().contains(trace)
    }

    /// Every request of spans so far, encoded again.
    pub fn requests(&self) -> Vec<Bytes> {
        self.traces.lock().unwrap().iter().map(|r| Bytes::from(r.encode_to_vec())).collect()
    }

    /// Every span so far.
    pub fn spans(&self) -> Vec<Span> {
        let mut all = Vec::new();
        self.for_each_span(|span| all.push(span.clone()));
        all
    }

    /// Every log record so far.
    pub fn records(&self) -> Vec<LogRecord> {
        let mut all = Vec::new();
        self.for_each_record(|record| all.push(record.clone()));
        all
    }

    /// Like [`Destination::spans`], without copying them. No request is answered meanwhile.
    pub fn for_each_span(&self, each: impl FnMut(&Span)) {
        let all = self.traces.lock().unwrap();
        let scopes = all.iter().flat_map(|r| &r.resource_spans).flat_map(|r| &r.scope_spans);
        scopes.flat_map(|s| &s.spans).for_each(each);
    }

    /// Like [`Destination::records`], without copying them. No request is answered meanwhile.
    pub fn for_each_record(&self, each: impl FnMut(&LogRecord)) {
        let all = self.logs.lock().unwrap();
        let scopes = all.iter().flat_map(|r| &r.resource_logs).flat_map(|r| &r.scope_logs);
        scopes.flat_map(|s| &s.log_records).for_each(each);
    }

    /// Numbers of requests of spans and of log records so far.
    #[cfg(feature = "kafka")]
    pub fn counts(&self) -> [usize; 2] {
        [self.traces.lock().unwrap().len(), self.logs.lock().unwrap().len()]
    }

    /// Accepts requests on a free port, which it returns.
    pub async fn serve(&self) -> u16 {
        self.serve_on(0).await
    }

    /// Like [`Destination::serve`], on a given port.
    pub async fn serve_on(&self, port: u16) -> u16 {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let traces = TraceServiceServer::new(self.clone())
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(MAX_MESSAGE_BYTES);
        let logs = LogsServiceServer::new(self.clone())
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(MAX_MESSAGE_BYTES);
        let server = tonic::transport::Server::builder().add_service(traces).add_service(logs);
        tokio::spawn(server.serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener)));
        port
    }
}

/// A service with its destination and client.
pub struct Process {
    pub service: Service,
    pub destination: Destination,
    client: Client,
}

#[derive(Clone)]
pub struct Client {
    traces: TraceServiceClient<Channel>,
    logs: LogsServiceClient<Channel>,
    metrics: MetricsServiceClient<Channel>,
}

/// A configuration with ephemeral ports and the destination at `port`, into which `text` is merged.
pub fn config(port: u16, text: &str) -> Config {
    // The long timeout: on a busy machine a slow answer must not make the exporter send again.
    let base = format!(
        "receivers: {{ otlp: {{ protocols: {{ grpc: {{ endpoint: '127.0.0.1:0' }}, http: {{ endpoint: '127.0.0.1:0' }} }} }} }}\n\
         exporters: {{ otlp_grpc: {{ endpoint: '127.0.0.1:{port}', tls: {{ insecure: true }}, timeout: 5m }} }}\n\
         admin: {{ endpoint: '127.0.0.1:0' }}\n"
    );
    let sources = [("base", base), ("test", text.to_owned())]
        .map(|(name, text)| Source { name: name.to_owned(), text });
    from_sources(&sources, &|_| None).unwrap_or_else(|e| panic!("{e}"))
}

impl Process {
    pub async fn start(text: &str) -> Process {
        Process::start_with(text, Extensions::default()).await
    }

    pub async fn start_with(text: &str, extensions: Extensions) -> Process {
        let destination = Destination::default();
        let config = config(destination.serve().await, text);
        let service = Box::pin(Service::start_with(&config, extensions)).await.unwrap();
        let client = Client::connect(service.grpc.unwrap().port()).await;
        Process { service, destination, client }
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Waits until `done` is true for the destination.
    pub async fn until(&self, description: &str, done: impl Fn(&Destination) -> bool) {
        until(description, || done(&self.destination)).await;
    }

    /// Ends the service; asserts that every span is exported.
    pub async fn stop(self) -> Destination {
        Box::pin(self.stop_within(MAX_TIME_WITHOUT_PROGRESS)).await
    }

    /// Like [`Process::stop`], in less time.
    pub async fn stop_within(self, within: Duration) -> Destination {
        let unsent = Box::pin(self.service.stop(within)).await;
        assert_eq!(unsent, 0, "everything was sent");
        self.destination
    }
}

impl Client {
    /// A client of the service on this port of loopback.
    pub async fn connect(port: u16) -> Client {
        let url = format!("http://127.0.0.1:{port}");
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        Client {
            traces: TraceServiceClient::new(channel.clone()).max_encoding_message_size(MAX_MESSAGE_BYTES),
            logs: LogsServiceClient::new(channel.clone()),
            metrics: MetricsServiceClient::new(channel),
        }
    }

    /// Sends a recorded request and asserts that it is fully accepted.
    pub async fn send(&mut self, offer: &Offer) {
        match offer.signal {
            Signal::Traces => {
                let request = ExportTraceServiceRequest::decode(offer.body.clone()).unwrap();
                let answer = self.traces.export(request).await.unwrap().into_inner();
                // A Collector answers with an empty one.
                assert_eq!(answer.partial_success.unwrap_or_default(), ExportTracePartialSuccess::default());
            }
            Signal::Logs => {
                let request = ExportLogsServiceRequest::decode(offer.body.clone()).unwrap();
                self.logs.export(request).await.unwrap();
            }
            Signal::Metrics => panic!("no test sends metrics"),
        }
    }

    /// Sends a request that may be refused.
    pub async fn try_spans(&mut self, request: ExportTraceServiceRequest) -> Result<(), Status> {
        self.traces.export(request).await.map(|_| ())
    }

    /// Sends log records; returns the response or the error status.
    pub async fn logs(
        &mut self,
        request: ExportLogsServiceRequest,
    ) -> Result<ExportLogsServiceResponse, Status> {
        self.logs.export(request).await.map(Response::into_inner)
    }

    /// Sends an empty request of metrics.
    pub async fn metrics(&mut self) -> Result<(), Status> {
        self.metrics.export(ExportMetricsServiceRequest::default()).await.map(drop)
    }

    pub async fn spans(&mut self, request: ExportTraceServiceRequest) {
        self.send(&Offer { signal: Signal::Traces, body: request.encode_to_vec().into() }).await;
    }
}
