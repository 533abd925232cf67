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

use crate::destination::{Destination, TraceNumbers};
use crate::hostile;

/// Concurrent senders.
const SENDERS: u64 = 8;
/// Spans of each trace.
pub(crate) const SPANS_PER_TRACE: u8 = 3;
/// Every hundredth trace is hostile.
const HOSTILE_INTERVAL: u64 = 100;
/// The first bytes of every trace id; an id of zeros would be invalid.
const ID_PREFIX: [u8; 8] = [0x50; 8];
/// Delay before a refused request is sent again, the delay that the processor's response requests.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Bytes of the text of each model call.
const CONTENT_BYTES: usize = 4 << 10;

/// The state that the senders share: counters, the pace, and the traces that the processor acknowledged.
#[derive(Default)]
pub(crate) struct Load {
    pub(crate) stop: AtomicBool,
    next_trace: AtomicU64,
    refused_requests: AtomicU64,
    hostile_traces: AtomicU64,
    /// Microseconds between two requests of a sender.
    pause_micros: AtomicU64,
    acknowledged: Mutex<TraceNumbers>,
    acknowledged_count: AtomicU64,
}

impl Load {
    pub(crate) fn start_senders(self: &Arc<Load>, endpoint: String) -> Vec<JoinHandle<()>> {
        (0..SENDERS).map(|_| tokio::spawn(Arc::clone(self).send(endpoint.clone()))).collect()
    }

    async fn send(self: Arc<Load>, endpoint: String) {
        let endpoint = Endpoint::from_shared(endpoint).unwrap().timeout(Duration::from_secs(10));
        let mut client: TraceServiceClient<Channel> = TraceServiceClient::new(endpoint.connect_lazy());
        while !self.stop.load(Ordering::Relaxed) {
            let trace = self.next_trace.fetch_add(1, Ordering::Relaxed);
            let request = request(trace);
            self.hostile_traces
                .fetch_add(u64::from(trace.is_multiple_of(HOSTILE_INTERVAL)), Ordering::Relaxed);
            let mut accepted = client.export(request.clone()).await.is_ok();
            while !accepted && !self.stop.load(Ordering::Relaxed) {
                self.refused_requests.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(RETRY_DELAY).await;
                accepted = client.export(request.clone()).await.is_ok();
            }
            if accepted {
                self.acknowledged.lock().unwrap().insert(trace);
                self.acknowledged_count.fetch_add(1, Ordering::Relaxed);
            }
            tokio::time::sleep(Duration::from_micros(self.pause_micros.load(Ordering::Relaxed))).await;
        }
    }

    /// Sets the pause so that the senders send half as many traces a second as were acknowledged within `time`; returns
    /// the new rate.
    pub(crate) fn halve_rate(&self, time: Duration) -> f64 {
        let rate = self.acknowledged_count.load(Ordering::Relaxed) as f64 / time.as_secs_f64() / 2.0;
        self.pause_micros.store((SENDERS as f64 / rate.max(1.0) * 1e6 / 2.0) as u64, Ordering::Relaxed);
        rate
    }

    /// The number of acknowledged traces that have not arrived at the destination.
    pub(crate) fn count_missing(&self, destination: &Destination) -> u32 {
        destination.count_missing(&self.acknowledged.lock().unwrap())
    }

    pub(crate) fn figures(&self) -> String {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (traces, hostile, refused) =
            (value(&self.acknowledged_count), value(&self.hostile_traces), value(&self.refused_requests));
        format!("{traces} traces acknowledged, {hostile} hostile, {refused} requests refused")
    }
}

/// The number of the trace of a span, and the index of the span in the trace; `None` for spans of other senders.
pub(crate) fn trace_number_and_span_index(span: &Span) -> Option<(u64, u8)> {
    let number = span.trace_id.strip_prefix(&ID_PREFIX)?.try_into().ok()?;
    let span_index =
        span.span_id.last()?.checked_sub(1).filter(|&span_index| span_index < SPANS_PER_TRACE)?;
    Some((u64::from_be_bytes(number), span_index))
}

pub(crate) fn text_attribute(key: &str, value: String) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value)) });
    KeyValue { key: key.into(), value, ..KeyValue::default() }
}

/// A run of an agent with a failing tool call.
fn request(trace: u64) -> ExportTraceServiceRequest {
    let id = |span_index: u8| [&trace.to_be_bytes()[1..], &[span_index + 1]].concat();
    let now = std::time::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_nanos() as u64);
    let span = |span_index: u8, name: &str, attributes: Vec<KeyValue>| Span {
        trace_id: [ID_PREFIX, trace.to_be_bytes()].concat(),
        span_id: id(span_index),
        parent_span_id: if span_index == 0 { Vec::new() } else { id(0) },
        name: name.into(),
        start_time_unix_nano: now - 3_000_000 + u64::from(span_index) * 1_000_000,
        end_time_unix_nano: now + u64::from(span_index),
        attributes,
        ..Span::default()
    };
    let content = serde_json::json!([{ "role": "assistant", "parts": [
        { "type": "text", "content": format!("{trace} {}", "word ".repeat(CONTENT_BYTES / 5)) }
    ] }]);
    let mut model = vec![
        text_attribute("gen_ai.operation.name", "chat".into()),
        text_attribute("gen_ai.request.model", "m".into()),
        text_attribute("gen_ai.output.messages", content.to_string()),
    ];
    if trace.is_multiple_of(HOSTILE_INTERVAL) {
        model.truncate(2);
        model.extend(hostile::attributes(trace / HOSTILE_INTERVAL));
    }
    let tool = vec![
        text_attribute("gen_ai.operation.name", "execute_tool".into()),
        text_attribute("gen_ai.tool.name", "search".into()),
    ];
    let agent = vec![
        text_attribute("gen_ai.operation.name", "invoke_agent".into()),
        text_attribute("gen_ai.agent.name", "a".into()),
    ];
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
