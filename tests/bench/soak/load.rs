//! Senders of agent runs: each trace is one request, sent again until it is acknowledged.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

use crate::destination::{Destination, Numbers};
use crate::hostile;

/// Concurrent senders.
const SENDERS: u64 = 8;
/// Spans of a trace; hostile traces have no more of them.
pub(crate) const SPANS: u8 = 3;
/// One trace of so many is hostile.
const HOSTILE: u64 = 100;
/// The first bytes of every trace id, and the last of every span id, so that none is zero.
const PREFIX: [u8; 8] = [0x50; 8];
/// A refused sender waits so long, as a request to retry asks.
const REFUSED: Duration = Duration::from_secs(1);
/// Bytes of what the model reads and writes.
const CONTENT: usize = 4 << 10;

/// The state that the senders share.
#[derive(Default)]
pub(crate) struct Load {
    pub(crate) stop: AtomicBool,
    next: AtomicU64,
    refused: AtomicU64,
    hostile: AtomicU64,
    /// Microseconds between two requests of a sender.
    pause: AtomicU64,
    acknowledged: Mutex<Numbers>,
    traces: AtomicU64,
}

impl Load {
    pub(crate) fn start(self: &Arc<Load>, endpoint: String) -> Vec<JoinHandle<()>> {
        (0..SENDERS).map(|_| tokio::spawn(Arc::clone(self).send(endpoint.clone()))).collect()
    }

    async fn send(self: Arc<Load>, endpoint: String) {
        let endpoint = Endpoint::from_shared(endpoint).unwrap().timeout(Duration::from_secs(10));
        let mut client: TraceServiceClient<Channel> = TraceServiceClient::new(endpoint.connect_lazy());
        while !self.stop.load(Ordering::Relaxed) {
            let trace = self.next.fetch_add(1, Ordering::Relaxed);
            let request = request(trace);
            self.hostile.fetch_add(u64::from(trace.is_multiple_of(HOSTILE)), Ordering::Relaxed);
            let mut accepted = client.export(request.clone()).await.is_ok();
            while !accepted && !self.stop.load(Ordering::Relaxed) {
                self.refused.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(REFUSED).await;
                accepted = client.export(request.clone()).await.is_ok();
            }
            if accepted {
                self.acknowledged.lock().unwrap().insert(trace);
                self.traces.fetch_add(1, Ordering::Relaxed);
            }
            tokio::time::sleep(Duration::from_micros(self.pause.load(Ordering::Relaxed))).await;
        }
    }

    /// Sets the pause so that half of the traces acknowledged within `time` are sent; returns them per second.
    pub(crate) fn halve_the_rate(&self, time: Duration) -> f64 {
        let rate = self.traces.load(Ordering::Relaxed) as f64 / time.as_secs_f64() / 2.0;
        self.pause.store((SENDERS as f64 / rate.max(1.0) * 1e6 / 2.0) as u64, Ordering::Relaxed);
        rate
    }

    /// Acknowledged traces that have not arrived.
    pub(crate) fn missing(&self, destination: &Destination) -> u32 {
        destination.missing(&self.acknowledged.lock().unwrap())
    }

    pub(crate) fn figures(&self) -> String {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (traces, hostile, refused) = (value(&self.traces), value(&self.hostile), value(&self.refused));
        format!("{traces} traces acknowledged, {hostile} hostile, {refused} requests refused")
    }
}

/// The number of the trace of a span, and which of its spans it is.
pub(crate) fn number_and_span(span: &Span) -> Option<(u64, u8)> {
    let number = span.trace_id.strip_prefix(&PREFIX)?.try_into().ok()?;
    let bit = span.span_id.last()?.checked_sub(1).filter(|&bit| bit < SPANS)?;
    Some((u64::from_be_bytes(number), bit))
}

pub(crate) fn text(key: &str, value: String) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value)) });
    KeyValue { key: key.into(), value, ..KeyValue::default() }
}

/// A run of an agent with a failing tool call.
fn request(trace: u64) -> ExportTraceServiceRequest {
    let id = |bit: u8| [&trace.to_be_bytes()[1..], &[bit + 1]].concat();
    let now = std::time::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_nanos() as u64);
    let span = |bit: u8, name: &str, attributes: Vec<KeyValue>| Span {
        trace_id: [PREFIX, trace.to_be_bytes()].concat(),
        span_id: id(bit),
        parent_span_id: if bit == 0 { Vec::new() } else { id(0) },
        name: name.into(),
        start_time_unix_nano: now - 3_000_000 + u64::from(bit) * 1_000_000,
        end_time_unix_nano: now + u64::from(bit),
        attributes,
        ..Span::default()
    };
    let content = serde_json::json!([{ "role": "assistant", "parts": [
        { "type": "text", "content": format!("{trace} {}", "word ".repeat(CONTENT / 5)) }
    ] }]);
    let mut model = vec![
        text("gen_ai.operation.name", "chat".into()),
        text("gen_ai.request.model", "m".into()),
        text("gen_ai.output.messages", content.to_string()),
    ];
    if trace.is_multiple_of(HOSTILE) {
        model.truncate(2);
        model.extend(hostile::attributes(trace / HOSTILE));
    }
    let tool =
        vec![text("gen_ai.operation.name", "execute_tool".into()), text("gen_ai.tool.name", "search".into())];
    let agent =
        vec![text("gen_ai.operation.name", "invoke_agent".into()), text("gen_ai.agent.name", "a".into())];
    let failed = Status { code: 2, message: "connection refused".into() };
    let spans = vec![
        span(1, "chat m", model),
        Span { status: Some(failed), ..span(2, "execute_tool search", tool) },
        span(0, "invoke_agent a", agent),
    ];
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }],
    }
}
