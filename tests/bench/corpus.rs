//! The two corpora of all benchmarks: 1,000 traces of 20 spans, in requests of 64 spans. 16 traces are interleaved and
//! begin one after another. Children precede their parents and the root is last, as SDKs send them.
//!
//! `agent`: runs of 8 model calls and 7 tool calls; LLM spans grow from 4 to 16 KB with their
//! history, tool spans have about 1 KB, chain spans 0.3 KB. Every second trace is written by
//! OpenInference's convention (messages flattened into attributes), the others by OTel GenAI's
//! (messages as JSON). `small`: plain HTTP spans of 171 bytes. Both are the same on every run.

mod agent_run;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;

use self::agent_run::agent_trace;

/// Number of traces of a corpus.
pub const TRACES: u32 = 1_000;
/// Number of spans of every trace.
pub const SPANS: usize = 20;
/// Number of spans of a request.
const SPANS_PER_REQUEST: usize = 64;
/// Number of traces that are open at the same time.
const INTERLEAVED_TRACES: usize = 16;
/// The first bytes of every trace id, by which ids are found in encoded requests. The round and the trace's number
/// follow.
pub const TRACE_ID_PREFIX: [u8; 8] = *b"\xfe\xedcorpus";
/// 2026-01-01, in nanoseconds since 1970.
const START_UNIX_NANOS: u64 = 1_767_225_600_000_000_000;

/// Requests, encoded.
#[derive(Clone)]
pub struct Corpus {
    /// `agent` or `small`.
    pub name: &'static str,
    /// Encoded `ExportTraceServiceRequest`s, in order.
    pub requests: Vec<Bytes>,
    /// The number of spans in the requests.
    pub spans: usize,
    /// Bytes of the encoded spans, without the enclosing messages.
    pub payload: usize,
    /// The number of spans in traces whose root is missing, so that they do not close.
    pub open_spans: usize,
    traces: u32,
    /// Makes the spans of a trace, each with the index of its scope.
    make_trace: fn(u32) -> Vec<(usize, Span)>,
}

impl Corpus {
    /// `traces` agent runs.
    pub fn agent(traces: u32) -> Corpus {
        Corpus::new("agent", traces, agent_trace)
    }

    /// `traces` traces of small spans.
    pub fn small(traces: u32) -> Corpus {
        Corpus::new("small", traces, small_trace)
    }

    /// The first two spans of `traces` traces of small spans, without their roots.
    pub fn trace_beginnings(traces: u32) -> Corpus {
        Corpus::new("small", traces, |trace| small_trace(trace).into_iter().take(2).collect())
    }

    /// The corpus without the root of one trace in [`INTERLEAVED_TRACES`].
    pub fn with_open_traces(&self) -> Corpus {
        let mut corpus = Corpus { requests: Vec::new(), spans: 0, payload: 0, ..self.clone() };
        let traces = (0..self.traces).map(|n| {
            let mut trace = (self.make_trace)(n);
            if n as usize % INTERLEAVED_TRACES == 7 {
                trace.pop();
                corpus.open_spans += trace.len();
            }
            trace
        });
        let all: Vec<_> = traces.collect();
        corpus.fill(all.into_iter());
        corpus
    }

    fn new(name: &'static str, traces: u32, make_trace: fn(u32) -> Vec<(usize, Span)>) -> Corpus {
        let mut corpus =
            Corpus { name, requests: Vec::new(), spans: 0, payload: 0, open_spans: 0, traces, make_trace };
        corpus.fill((0..traces).map(make_trace));
        corpus
    }

    /// Appends requests with the traces' spans in turns. Traces begin and end one after another, as runs of independent
    /// agents do.
    fn fill(&mut self, mut traces: impl Iterator<Item = Vec<(usize, Span)>>) {
        let mut open: Vec<std::vec::IntoIter<(usize, Span)>> = Vec::new();
        let mut batch = Vec::with_capacity(SPANS_PER_REQUEST);
        let mut begun = 0;
        for turn in 0.. {
            while begun * SPANS <= turn * INTERLEAVED_TRACES
                && let Some(trace) = traces.next()
            {
                open.push(trace.into_iter());
                begun += 1;
            }
            if open.is_empty() {
                break;
            }
            open.retain_mut(|trace| match trace.next() {
                Some((scope, span)) => {
                    self.spans += 1;
                    self.payload += span.encoded_len();
                    batch.push((scope, span));
                    if batch.len() == SPANS_PER_REQUEST {
                        self.requests.push(request(std::mem::take(&mut batch)));
                    }
                    true
                }
                None => false,
            });
        }
        if !batch.is_empty() {
            self.requests.push(request(batch));
        }
    }

    /// The same requests with other trace ids, for the next round.
    pub fn with_new_trace_ids(&self, round: u32) -> Corpus {
        let requests = self.requests.iter().map(|request| with_new_trace_ids(request, round)).collect();
        Corpus { requests, ..self.clone() }
    }
}

/// The same request with other trace ids.
pub fn with_new_trace_ids(request: &Bytes, round: u32) -> Bytes {
    let mut bytes = request.to_vec();
    for offset in memchr::memmem::find_iter(request, &TRACE_ID_PREFIX) {
        bytes[offset + TRACE_ID_PREFIX.len()..offset + TRACE_ID_PREFIX.len() + 4]
            .copy_from_slice(&round.to_be_bytes());
    }
    Bytes::from(bytes)
}

/// A request as one process sends it through two instrumentations.
fn request(spans: Vec<(usize, Span)>) -> Bytes {
    let mut scopes = [Vec::new(), Vec::new()];
    spans.into_iter().for_each(|(scope, span)| scopes[scope].push(span));
    let names = ["openinference.instrumentation.langchain", "opentelemetry.instrumentation.openai_v2"];
    let scope_spans = scopes.into_iter().zip(names).filter(|(spans, _)| !spans.is_empty());
    let scope_spans = scope_spans.map(|(spans, name)| ScopeSpans {
        scope: Some(InstrumentationScope {
            name: name.into(),
            version: "1.4.2".into(),
            ..Default::default()
        }),
        spans,
        schema_url: String::new(),
    });
    let resource = Resource {
        attributes: vec![
            text("service.name", "checkout-agent"),
            text("service.version", "3.11.0"),
            text("service.instance.id", "7c1de5b2-18ab-4c67-9d5e-27b12ae3a3f1"),
            text("deployment.environment.name", "production"),
            text("telemetry.sdk.language", "python"),
            text("telemetry.sdk.name", "opentelemetry"),
            text("telemetry.sdk.version", "1.39.0"),
            text("k8s.pod.name", "checkout-agent-5d9c6b7f4-x2k8q"),
        ],
        ..Default::default()
    };
    let scope_spans = scope_spans.collect();
    let resource_spans =
        vec![ResourceSpans { resource: Some(resource), scope_spans, schema_url: String::new() }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec().into()
}

fn attribute(key: impl Into<String>, value: Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }), ..Default::default() }
}

fn text(key: impl Into<String>, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

fn int(key: impl Into<String>, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

/// A deterministic source of numbers (splitmix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn next_below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Random sentences of about `len` bytes.
    fn prose(&mut self, len: usize) -> String {
        let mut out = String::with_capacity(len + 16);
        let mut words = 0;
        while out.len() < len {
            let word = WORDS[self.next_below(WORDS.len() as u64) as usize];
            match words % 11 {
                0 => {
                    out.push_str(if out.is_empty() { "" } else { ". " });
                    let mut letters = word.chars();
                    out.extend(letters.next().iter().flat_map(|first| first.to_uppercase()));
                    out.push_str(letters.as_str());
                }
                _ => {
                    out.push(' ');
                    out.push_str(word);
                }
            }
            words += 1;
        }
        out.push('.');
        out
    }
}

const WORDS: [&str; 64] = [
    "order",
    "parcel",
    "customer",
    "delivery",
    "warehouse",
    "refund",
    "invoice",
    "address",
    "carrier",
    "status",
    "delayed",
    "shipped",
    "payment",
    "account",
    "agent",
    "policy",
    "within",
    "before",
    "after",
    "should",
    "must",
    "never",
    "always",
    "answer",
    "question",
    "look",
    "check",
    "confirm",
    "write",
    "list",
    "item",
    "price",
    "total",
    "currency",
    "country",
    "region",
    "label",
    "return",
    "window",
    "days",
    "hours",
    "support",
    "message",
    "email",
    "phone",
    "record",
    "system",
    "reply",
    "short",
    "clear",
    "polite",
    "exact",
    "number",
    "date",
    "stock",
    "store",
    "product",
    "colour",
    "size",
    "weight",
    "naïve",
    "café",
    "über",
    "the",
];

/// Ids and times of a span.
struct SpanFrame {
    trace: u32,
    id: u64,
    parent: u64,
    start: u64,
    end: u64,
}

fn span(frame: &SpanFrame, name: impl Into<String>, kind: i32, attributes: Vec<KeyValue>) -> Span {
    let id = |n: u64| ((u64::from(frame.trace) << 32 | n) ^ 0x5bd1_e995_9c34_72f1).to_be_bytes().to_vec();
    let mut trace_id = TRACE_ID_PREFIX.to_vec();
    trace_id.extend_from_slice(&0u32.to_be_bytes());
    trace_id.extend_from_slice(&frame.trace.to_be_bytes());
    Span {
        trace_id,
        span_id: id(frame.id),
        parent_span_id: if frame.parent == 0 { Vec::new() } else { id(frame.parent) },
        flags: 0x101,
        name: name.into(),
        kind,
        start_time_unix_nano: START_UNIX_NANOS
            + u64::from(frame.trace) * 60_000_000_000
            + frame.start * 1_000_000,
        end_time_unix_nano: START_UNIX_NANOS
            + u64::from(frame.trace) * 60_000_000_000
            + frame.end * 1_000_000,
        attributes,
        status: Some(Status::default()),
        ..Default::default()
    }
}

fn small_trace(trace: u32) -> Vec<(usize, Span)> {
    let mut rng = Rng(u64::from(trace));
    let last = SPANS as u64;
    let mut spans: Vec<(usize, Span)> = (2..=last)
        .map(|id| {
            let parent = 1 + rng.next_below(id - 1);
            let frame = SpanFrame { trace, id, parent, start: id, end: 2 * last - id };
            let attributes = vec![
                text("http.request.method", "GET"),
                text("http.route", format!("/{}", WORDS[rng.next_below(30) as usize])),
                int("http.response.status_code", 200),
            ];
            (0, span(&frame, "GET /items/{id}", 3, attributes))
        })
        .collect();
    // Children have the higher ids.
    spans.reverse();
    let frame = SpanFrame { trace, id: 1, parent: 0, start: 0, end: 2 * last };
    let attributes = vec![text("http.request.method", "GET"), int("http.response.status_code", 200)];
    spans.push((0, span(&frame, "GET /items", 2, attributes)));
    spans
}
