//! A destination that refuses on demand, and remembers one bit of every trace that arrived whole.

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

use crate::load::{SPANS, number_and_span};

/// Largest message.
const LARGE: usize = 256 << 20;

/// Numbers of traces, one bit each.
#[derive(Default)]
pub(crate) struct Numbers(Vec<u64>);

impl Numbers {
    pub(crate) fn insert(&mut self, n: u64) {
        let word = (n / 64) as usize;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (n % 64);
    }

    /// How many of them are not in `other`.
    pub(crate) fn without(&self, other: &Numbers) -> u32 {
        let word = |n: usize| other.0.get(n).copied().unwrap_or(0);
        self.0.iter().enumerate().map(|(n, ours)| (ours & !word(n)).count_ones()).sum()
    }
}

#[derive(Default)]
struct Arrived {
    whole: Numbers,
    /// The spans of traces of which some have arrived, as bits.
    partly: HashMap<u64, u8>,
}

#[derive(Clone, Default)]
pub(crate) struct Destination {
    arrived: Arc<Mutex<Arrived>>,
    refusing: Arc<AtomicBool>,
}

impl Destination {
    pub(crate) fn refuse(&self, refuse: bool) {
        self.refusing.store(refuse, Ordering::Relaxed);
    }

    /// How many of `numbers` have not arrived whole.
    pub(crate) fn missing(&self, numbers: &Numbers) -> u32 {
        numbers.without(&self.arrived.lock().unwrap().whole)
    }

    fn answer<T: Default>(&self) -> Result<Response<T>, Status> {
        match self.refusing.load(Ordering::Relaxed) {
            true => Err(Status::unavailable("refusing")),
            false => Ok(Response::new(T::default())),
        }
    }

    /// Accepts requests on a port, which is returned.
    pub(crate) async fn serve(&self) -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let traces = TraceServiceServer::new(self.clone()).max_decoding_message_size(LARGE);
        let logs = LogsServiceServer::new(self.clone()).max_decoding_message_size(LARGE);
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
        let answer = self.answer()?;
        let mut arrived = self.arrived.lock().unwrap();
        let scopes = request.get_ref().resource_spans.iter().flat_map(|resource| &resource.scope_spans);
        for span in scopes.flat_map(|scope| &scope.spans) {
            let Some((trace, bit)) = number_and_span(span) else { continue };
            let bits = arrived.partly.entry(trace).or_default();
            *bits |= 1 << bit;
            if *bits == (1 << SPANS) - 1 {
                arrived.partly.remove(&trace);
                arrived.whole.insert(trace);
            }
        }
        Ok(answer)
    }
}

#[tonic::async_trait]
impl LogsService for Destination {
    async fn export(
        &self,
        _: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.answer()
    }
}
