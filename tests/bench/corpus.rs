//! The two corpora of all benchmarks: 1,000 traces of 20 spans, in requests of 64 spans. 16 traces are interleaved and
//! begin one after another. Children precede their parents and the root is last, as SDKs send them.
//!
//! `agent`: runs of 8 model calls and 7 tool calls; LLM spans grow from 4 to 16 KB with their
//! history, tool spans have about 1 KB, chain spans 0.3 KB. Every second trace is written by
//! OpenInference's convention (messages flattened into attributes), the others by OTel GenAI's
//! (messages as JSON). `small`: plain HTTP spans of 171 bytes. Both are the same on every run.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;
use serde_json::{Value as Json, json};

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

/// One turn of an agent: the model's text, its call, and the result of the call.
struct Turn {
    text: String,
    call: String,
    arguments: String,
    result: String,
}

/// The content of an agent run.
struct Run {
    trace: u32,
    /// Whether messages are flattened into attributes, as OpenInference records them.
    is_flat: bool,
    system: String,
    task: String,
    answer: String,
    turns: Vec<Turn>,
}

const MODEL_CALLS: usize = 8;
const TOOLS: [&str; 3] = ["find_order", "track_parcel", "quote_refund"];

/// A root, 4 steps of 2 model calls each, and a tool call after every model call but the last.
fn agent_trace(trace: u32) -> Vec<(usize, Span)> {
    let mut rng = Rng(0xa6e7 + u64::from(trace));
    let turns = (0..MODEL_CALLS - 1).map(|n| turn(&mut rng, n)).collect();
    let mut run = Run {
        trace,
        is_flat: trace.is_multiple_of(2),
        // A service has the same system prompt in every run.
        system: format!("You are a support agent of a shop. {}", Rng(0x5e11).prose(1_500)),
        task: format!("Where is order {}? {}", 10_000 + trace, rng.prose(220)),
        answer: String::new(),
        turns,
    };
    let parcel = run.turns.last().map_or("", |t| &t.arguments);
    run.answer = format!("I looked up {parcel}. {}", rng.prose(300));
    let scope = usize::from(!run.is_flat);
    let mut spans = Vec::with_capacity(SPANS);
    let mut clock = 10;
    for step in 0..4u64 {
        let chain = 2 + step * 5;
        let begin = clock;
        for call in 0..2u64 {
            let n = (step * 2 + call) as usize;
            let frame =
                SpanFrame { trace, id: chain + 1 + call * 2, parent: chain, start: clock, end: clock + 900 };
            spans.push((scope, run.llm(&frame, n)));
            clock += 910;
            if n < run.turns.len() {
                let frame = SpanFrame {
                    trace,
                    id: chain + 2 + call * 2,
                    parent: chain,
                    start: clock,
                    end: clock + 120,
                };
                spans.push((scope, run.tool(&frame, n)));
                clock += 130;
            }
        }
        let frame = SpanFrame { trace, id: chain, parent: 1, start: begin, end: clock };
        spans.push((scope, run.chain(&frame, step)));
    }
    let frame = SpanFrame { trace, id: 1, parent: 0, start: 0, end: clock + 10 };
    spans.push((scope, run.root(&frame)));
    spans
}

fn turn(rng: &mut Rng, n: usize) -> Turn {
    let order = 10_000 + rng.next_below(90_000);
    let call = TOOLS[n % TOOLS.len()];
    let result = json!({
        "order": order,
        "step": n,
        "items": (0..4).map(|_| json!({"sku": rng.next_below(1 << 40), "price": rng.next_below(10_000), "note": rng.prose(90)})).collect::<Vec<_>>(),
        "updated": format!("2026-01-{:02}T10:{:02}:00Z", 1 + rng.next_below(28), rng.next_below(60)),
        "note": rng.prose(300),
    });
    Turn {
        text: format!("I will call {call} to find out more. {}", rng.prose(190)),
        call: call.to_owned(),
        arguments: json!({"order": order, "detail": rng.prose(40)}).to_string(),
        result: result.to_string(),
    }
}

impl Run {
    fn llm(&self, frame: &SpanFrame, n: usize) -> Span {
        let attributes = if self.is_flat { self.llm_flat(n) } else { self.llm_json(n) };
        span(frame, if self.is_flat { "ChatOpenAI" } else { "chat gpt-5-mini" }, 3, attributes)
    }

    fn llm_flat(&self, n: usize) -> Vec<KeyValue> {
        let mut out = vec![
            text("openinference.span.kind", "LLM"),
            text("llm.model_name", "gpt-5-mini"),
            text("llm.provider", "openai"),
            text("llm.invocation_parameters", r#"{"temperature": 0.2, "max_tokens": 1024}"#),
            int("llm.token_count.prompt", 900 + 400 * n as i64),
            int("llm.token_count.completion", 120),
            int("llm.token_count.total", 1_020 + 400 * n as i64),
            text("session.id", format!("session-{}", self.trace)),
        ];
        let mut messages = vec![("system", &self.system, None), ("user", &self.task, None)];
        for turn in &self.turns[..n] {
            messages.push(("assistant", &turn.text, Some(turn)));
            messages.push(("tool", &turn.result, None));
        }
        for (i, (role, content, call)) in messages.into_iter().enumerate() {
            flat_message(&mut out, &format!("llm.input_messages.{i}.message"), role, content, call);
        }
        match self.turns.get(n) {
            Some(turn) => {
                flat_message(&mut out, "llm.output_messages.0.message", "assistant", &turn.text, Some(turn));
            }
            None => flat_message(&mut out, "llm.output_messages.0.message", "assistant", &self.answer, None),
        }
        for (i, tool) in TOOLS.iter().enumerate() {
            out.push(text(format!("llm.tools.{i}.tool.json_schema"), definition(tool, true).to_string()));
        }
        out
    }

    fn llm_json(&self, n: usize) -> Vec<KeyValue> {
        let mut messages = vec![json!({"role": "user", "parts": [{"type": "text", "content": self.task}]})];
        for (i, turn) in self.turns[..n].iter().enumerate() {
            messages.push(assistant_message(i, turn));
            messages.push(json!({"role": "tool", "parts": [
                {"type": "tool_call_response", "id": format!("call_{i}"), "response": turn.result}]}));
        }
        let output = match self.turns.get(n) {
            Some(turn) => assistant_message(n, turn),
            None => json!({"role": "assistant", "finish_reason": "stop",
                "parts": [{"type": "text", "content": self.answer}]}),
        };
        let definitions: Vec<Json> = TOOLS.iter().map(|tool| definition(tool, false)).collect();
        let finish = if n < self.turns.len() { "tool_calls" } else { "stop" };
        let finish = AnyValue { value: Some(Value::StringValue(finish.into())) };
        vec![
            text("gen_ai.operation.name", "chat"),
            text("gen_ai.provider.name", "openai"),
            text("gen_ai.request.model", "gpt-5-mini"),
            text("gen_ai.response.model", "gpt-5-mini-2026-01-09"),
            text("gen_ai.response.id", format!("chatcmpl-{}-{n}", self.trace)),
            attribute(
                "gen_ai.response.finish_reasons",
                Value::ArrayValue(ArrayValue { values: vec![finish] }),
            ),
            text("gen_ai.conversation.id", format!("session-{}", self.trace)),
            attribute("gen_ai.request.temperature", Value::DoubleValue(0.2)),
            int("gen_ai.request.max_tokens", 1_024),
            int("gen_ai.usage.input_tokens", 900 + 400 * n as i64),
            int("gen_ai.usage.output_tokens", 120),
            text("server.address", "api.openai.com"),
            text("gen_ai.system_instructions", json!([{"type": "text", "content": self.system}]).to_string()),
            text("gen_ai.input.messages", Json::Array(messages).to_string()),
            text("gen_ai.output.messages", Json::Array(vec![output]).to_string()),
            text("gen_ai.tool.definitions", Json::Array(definitions).to_string()),
        ]
    }

    fn tool(&self, frame: &SpanFrame, n: usize) -> Span {
        let turn = &self.turns[n];
        let attributes = if self.is_flat {
            vec![
                text("openinference.span.kind", "TOOL"),
                text("tool.name", &turn.call),
                text("tool.description", "Looks it up in the shop's records."),
                text("input.value", &turn.arguments),
                text("input.mime_type", "application/json"),
                text("output.value", &turn.result),
                text("output.mime_type", "application/json"),
            ]
        } else {
            vec![
                text("gen_ai.operation.name", "execute_tool"),
                text("gen_ai.tool.name", &turn.call),
                text("gen_ai.tool.type", "function"),
                text("gen_ai.tool.call.id", format!("call_{n}")),
                text("gen_ai.tool.call.arguments", &turn.arguments),
                text("gen_ai.tool.call.result", &turn.result),
            ]
        };
        let name = if self.is_flat { turn.call.clone() } else { format!("execute_tool {}", turn.call) };
        span(frame, name, 1, attributes)
    }

    fn chain(&self, frame: &SpanFrame, step: u64) -> Span {
        let attributes = if self.is_flat {
            vec![
                text("openinference.span.kind", "CHAIN"),
                text("input.value", json!({"step": step, "messages": 2 + 4 * step}).to_string()),
                text("input.mime_type", "application/json"),
                text(
                    "metadata",
                    json!({"thread": self.trace, "langgraph_step": step, "langgraph_node": "agent"})
                        .to_string(),
                ),
            ]
        } else {
            vec![
                text("gen_ai.operation.name", "invoke_workflow"),
                text("gen_ai.workflow.name", "support-loop"),
                text("gen_ai.conversation.id", format!("session-{}", self.trace)),
                text("app.loop.state", json!({"step": step, "messages": 2 + 4 * step}).to_string()),
                int("app.loop.step", step as i64),
            ]
        };
        span(frame, "agent_step", 1, attributes)
    }

    fn root(&self, frame: &SpanFrame) -> Span {
        let attributes = if self.is_flat {
            vec![
                text("openinference.span.kind", "AGENT"),
                text("agent.name", "support"),
                text("input.value", &self.task),
                text("output.value", &self.answer),
                text("session.id", format!("session-{}", self.trace)),
            ]
        } else {
            let message = |role: &str, content: &str| {
                json!([{"role": role, "parts": [{"type": "text", "content": content}]}]).to_string()
            };
            vec![
                text("gen_ai.operation.name", "invoke_agent"),
                text("gen_ai.agent.name", "support"),
                text("gen_ai.conversation.id", format!("session-{}", self.trace)),
                text("gen_ai.input.messages", message("user", &self.task)),
                text("gen_ai.output.messages", message("assistant", &self.answer)),
            ]
        };
        span(frame, "invoke_agent support", 1, attributes)
    }
}

fn assistant_message(n: usize, turn: &Turn) -> Json {
    let arguments: Json = serde_json::from_str(&turn.arguments).unwrap_or_default();
    json!({"role": "assistant", "finish_reason": "tool_call", "parts": [
        {"type": "text", "content": turn.text},
        {"type": "tool_call", "id": format!("call_{n}"), "name": turn.call, "arguments": arguments}]})
}

fn flat_message(out: &mut Vec<KeyValue>, prefix: &str, role: &str, content: &str, call: Option<&Turn>) {
    out.push(text(format!("{prefix}.role"), role));
    out.push(text(format!("{prefix}.content"), content));
    if let Some(turn) = call {
        let function = format!("{prefix}.tool_calls.0.tool_call.function");
        out.push(text(format!("{function}.name"), &turn.call));
        out.push(text(format!("{function}.arguments"), &turn.arguments));
    }
}

fn definition(name: &str, nested: bool) -> Json {
    let parameters = json!({
        "type": "object",
        "properties": {
            "order": {"type": "integer", "description": "The order's number as the customer knows it."},
            "detail": {"type": "string", "description": "What exactly to look up."},
        },
        "required": ["order"],
    });
    let description = "Looks it up in the shop's records and returns what is known about it.";
    let body = json!({"name": name, "description": description, "parameters": parameters});
    match (nested, body) {
        (true, body) => json!({"type": "function", "function": body}),
        (false, mut body) => {
            body["type"] = "function".into();
            body
        }
    }
}
