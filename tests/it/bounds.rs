//! Traces of hostile shapes, up to the cap of 100,000 spans: judged in seconds, however deep or
//! wide, and no span lost.

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use otel_verdict::config::Config;
use otel_verdict::pipeline::offline::Evaluation;
use otel_verdict::receive::Offer;
use prost::Message as _;
use verdict_otlp::Signal;

const SPANS: u64 = 100_000;

/// Far above what a debug build takes on a busy machine; anything quadratic takes longer.
const LIMIT: Duration = Duration::from_secs(300);

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

/// Span `n` of a trace whose spans hang from `parent(n)`; of `operation`, with status `code`.
fn span(n: u64, parent: u64, operation: &str, code: i32) -> Span {
    let id = |n: u64| if n == 0 { Vec::new() } else { n.to_be_bytes().to_vec() };
    Span {
        trace_id: vec![1; 16],
        span_id: id(n),
        parent_span_id: id(parent),
        name: operation.to_owned(),
        start_time_unix_nano: n,
        end_time_unix_nano: 2 * SPANS - n,
        attributes: vec![
            attribute("gen_ai.operation.name", operation),
            attribute("gen_ai.agent.name", "planner"),
            attribute("gen_ai.tool.name", "search"),
            attribute("gen_ai.tool.call.arguments", r#"{"q":"x"}"#),
            attribute("gen_ai.tool.call.result", "Error: not found"),
        ],
        status: Some(Status { code, ..Status::default() }),
        ..Span::default()
    }
}

/// Judges the spans, each under a resource of its own where `apart`.
fn judge(what: &str, spans: Vec<Span>, apart: bool) {
    let total = spans.len() as u64;
    let group = |(n, spans): (usize, Vec<Span>)| ResourceSpans {
        resource: Some(Resource {
            attributes: vec![attribute("host", &n.to_string())],
            ..Resource::default()
        }),
        scope_spans: vec![ScopeSpans { spans, ..ScopeSpans::default() }],
        ..ResourceSpans::default()
    };
    let groups: Vec<Vec<Span>> =
        if apart { spans.into_iter().map(|span| vec![span]).collect() } else { vec![spans] };
    let request =
        ExportTraceServiceRequest { resource_spans: groups.into_iter().enumerate().map(group).collect() };
    let began = Instant::now();
    let mut evaluation = Evaluation::new(&Config::default(), 1).unwrap();
    evaluation.add(&Offer { signal: Signal::Traces, body: request.encode_to_vec().into() }).unwrap();
    let mut out = 0;
    evaluation.finish(|trace| out += trace.annotated.spans.iter().map(|p| p.items).sum::<u64>());
    println!("{what}: {:?}", began.elapsed());
    assert_eq!(out, total, "{what}: every span comes out");
    assert!(began.elapsed() < LIMIT, "{what}: {:?}", began.elapsed());
}

fn all(spans: u64, parent: impl Fn(u64) -> u64, operation: impl Fn(u64) -> &'static str) -> Vec<Span> {
    (1..=spans).map(|n| span(n, parent(n), operation(n), 2)).collect()
}

#[test]
fn thousands_of_failing_tools_under_one_agent_each_under_its_own_resource() {
    let operation = |n| if n == 1 { "invoke_agent" } else { "execute_tool" };
    judge("flat", all(SPANS, |n| u64::from(n > 1), operation), true);
}

#[test]
fn thousands_of_agents_under_one() {
    judge("flat agents", all(SPANS, |n| u64::from(n > 1), |_| "invoke_agent"), false);
}

#[test]
fn agents_that_call_agents_a_hundred_thousand_deep() {
    judge("deep agents", all(SPANS, |n| n - 1, |_| "invoke_agent"), false);
}

#[test]
fn tools_beneath_tools_a_hundred_thousand_deep() {
    judge("deep tools", all(SPANS, |n| n - 1, |_| "execute_tool"), false);
}

#[test]
fn model_calls_beneath_model_calls_a_hundred_thousand_deep() {
    judge("deep models", all(SPANS, |n| n - 1, |_| "chat"), false);
}

#[test]
fn steps_of_unknown_kind_a_hundred_thousand_deep_with_a_tool_at_the_end() {
    let operation = |n| if n == SPANS { "execute_tool" } else { "step" };
    judge("deep unknown", all(SPANS, |n| n - 1, operation), false);
}
