//! A destination that refuses requests while it is told to, and records which traces have arrived with all spans.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tonic::{Request, Response, Status};

use crate::load::{SPANS_PER_TRACE, trace_number_and_span_index};

/// Size limit of a gRPC message, above the largest batch of hostile traces.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// A set of numbers of traces, one bit for each.
#[derive(Default)]
pub(crate) struct TraceNumbers(Vec<u64>);

impl TraceNumbers {
    pub(crate) fn insert(&mut self, n: u64) {
        let word = (n / 64) as usize;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (n % 64);
    }

    /// The number of elements that are not in `other`.
    pub(crate) fn count_not_in(&self, other: &TraceNumbers) -> u32 {
        let word = |n: usize| other.0.get(n).copied().unwrap_or(0);
        self.0.iter().enumerate().map(|(n, ours)| (ours & !word(n)).count_ones()).sum()
    }
}

#[derive(Default)]
struct ArrivedTraces {
    /// Traces of which all spans have arrived.
    complete: TraceNumbers,
    /// For each incomplete trace, one bit for each span that has arrived.
    arrived_spans: HashMap<u64, u8>,
}

#[derive(Clone, Default)]
pub(crate) struct Destination {
    arrived: Arc<Mutex<ArrivedTraces>>,
    is_refusing: Arc<AtomicBool>,
}

impl Destination {
    pub(crate) fn set_refusing(&self, refusing: bool) {
        self.is_refusing.store(refusing, Ordering::Relaxed);
    }

    /// The number of traces in `numbers` of which not all spans have arrived.
    pub(crate) fn count_missing(&self, numbers: &TraceNumbers) -> u32 {
        numbers.count_not_in(&self.arrived.lock().unwrap().complete)
    }

    fn response<T: Default>(&self) -> Result<Response<T>, Status> {
        match self.is_refusing.load(Ordering::Relaxed) {
            true => Err(Status::unavailable("refusing")),
            false => Ok(Response::new(T::default())),
        }
    }

    /// Starts the server on a free port; returns the port.
    pub(crate) async fn serve(&self) -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let traces = TraceServiceServer::new(self.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let logs = LogsServiceServer::new(self.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let server = tonic::transport::Server::builder().add_service(traces).add_service(logs);
        tokio::spawn(server.serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener)));
        port
    }
}

#[tonic::async_trait]
impl TraceService for Destination {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let response = self.response()?;
        let mut arrived = self.arrived.lock().unwrap();
        let scopes = request.get_ref().resource_spans.iter().flat_map(|resource| &resource.scope_spans);
        for span in scopes.flat_map(|scope| &scope.spans) {
            let Some((trace, span_index)) = trace_number_and_span_index(span) else { continue };
            let bits = arrived.arrived_spans.entry(trace).or_default();
            *bits |= 1 << span_index;
            if *bits == (1 << SPANS_PER_TRACE) - 1 {
                arrived.arrived_spans.remove(&trace);
                arrived.complete.insert(trace);
            }
        }
        Ok(response)
    }
}

#[tonic::async_trait]
impl LogsService for Destination {
    async fn export(
        &self,
        _: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.response()
    }
}
