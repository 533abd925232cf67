//! The same work in several implementations: requests in, spans grouped by trace, about 5 attributes per span
//! appended, requests out. Every path returns the number of bytes that it would send, so that a test can
//! verify that it did the work.

use std::collections::HashMap;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use otel_verdict::assemble::{Assembler, Close};
use prost::Message;
use verdict_config::Period;
use verdict_eval::annotation;
use verdict_eval::config::Emit;
use verdict_eval::metrics::{Measured, Measurement, Value as Measure};
use verdict_eval::propagation::{self, TraceVerdict, Verdicts};
use verdict_eval::trace::AgentTrace;
use verdict_eval::{Annotated, Config, Emission, Evaluator, TraceSummary};
use verdict_otlp::request::{self, Interner};
use verdict_otlp::trace::{ClosedTrace, Tree};

/// The output of an implementation.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct PathOutput {
    /// Bytes of the requests that it would send.
    pub bytes: usize,
    /// Spans in them.
    pub spans: usize,
    /// Traces that closed.
    pub traces: usize,
}

/// An implementation.
pub type Path = fn(&[Bytes]) -> PathOutput;

/// All implementations, by name.
pub const PATHS: [(&str, Path); 5] = [
    ("memcpy", memcpy),
    ("prost codec", prost_codec),
    ("prost", prost),
    ("ours", ours),
    ("ours, all rules", rules),
];

/// Copies the bytes once: the lower bound.
pub fn memcpy(requests: &[Bytes]) -> PathOutput {
    let mut output = PathOutput::default();
    for request in requests {
        output.bytes += black_box(request.to_vec()).len();
    }
    output
}

/// Decodes every request with opentelemetry-proto and encodes it again, without other work.
pub fn prost_codec(requests: &[Bytes]) -> PathOutput {
    let mut output = PathOutput::default();
    for request in requests {
        let decoded = ExportTraceServiceRequest::decode(request.clone()).expect("the corpus decodes");
        output.bytes += black_box(decoded.encode_to_vec()).len();
    }
    output
}

/// The messages that enclose a span.
type EnclosingMessages = (Rc<Option<Resource>>, Rc<Option<InstrumentationScope>>);

/// A trace being assembled from decoded spans; a span stores the index of its resource and scope.
#[derive(Default)]
struct DecodedTrace {
    spans: Vec<(usize, Span)>,
    enclosing: Vec<EnclosingMessages>,
}

/// Decodes fully, groups by trace, closes on the root, appends 5 attributes a span, encodes.
pub fn prost(requests: &[Bytes]) -> PathOutput {
    let mut output = PathOutput::default();
    let mut open: HashMap<[u8; 16], DecodedTrace> = HashMap::new();
    for request in requests {
        let decoded = ExportTraceServiceRequest::decode(request.clone()).expect("the corpus decodes");
        let mut closed = Vec::new();
        for resource_spans in decoded.resource_spans {
            let resource = Rc::new(resource_spans.resource);
            for scope_spans in resource_spans.scope_spans {
                let scope = Rc::new(scope_spans.scope);
                for span in scope_spans.spans {
                    let id: [u8; 16] = span.trace_id.as_slice().try_into().expect("16 bytes");
                    if span.parent_span_id.is_empty() {
                        closed.push(id);
                    }
                    let trace = open.entry(id).or_default();
                    if !trace.enclosing.last().is_some_and(|last| Rc::ptr_eq(&last.1, &scope)) {
                        trace.enclosing.push((Rc::clone(&resource), Rc::clone(&scope)));
                    }
                    trace.spans.push((trace.enclosing.len() - 1, span));
                }
            }
        }
        for trace in closed.into_iter().filter_map(|id| open.remove(&id)) {
            output.traces += 1;
            output.spans += trace.spans.len();
            output.bytes += black_box(encode(trace)).len();
        }
    }
    output
}

fn encode(trace: DecodedTrace) -> Vec<u8> {
    let mut resource_spans: Vec<ResourceSpans> = trace
        .enclosing
        .iter()
        .map(|(resource, scope)| ResourceSpans {
            resource: Option::clone(resource),
            scope_spans: vec![ScopeSpans { scope: Option::clone(scope), ..Default::default() }],
            ..Default::default()
        })
        .collect();
    for (index, mut span) in trace.spans {
        span.attributes.extend([
            string("verdict.result", "pass"),
            double("verdict.instruction_following.score", 5.0),
            string("verdict.instruction_following.result", "pass"),
            string("verdict.error_detection.label", "valid"),
            string("verdict.error_detection.result", "pass"),
        ]);
        resource_spans[index].scope_spans[0].spans.push(span);
    }
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..Default::default() }
}

fn string(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn double(key: &str, value: f64) -> KeyValue {
    attribute(key, Value::DoubleValue(value))
}

/// The receive-to-export path of otel-verdict without metrics: the same 5 attributes on every span, computed
/// before the measurement.
pub fn ours(requests: &[Bytes]) -> PathOutput {
    static FIXED_RESULTS: LazyLock<(Vec<Measurement>, Verdicts)> = LazyLock::new(|| {
        let by_span = vec![Some(propagation::Verdict::Pass); SPANS_PER_TRACE];
        let verdicts = Verdicts { by_span, trace: TraceVerdict::default() };
        ((0..SPANS_PER_TRACE).flat_map(fixed_measurements).collect(), verdicts)
    });
    let (measurements, verdicts) = &*FIXED_RESULTS;
    let emission = Emission { emit: vec![Emit::Attributes], ..Emission::default() };
    assemble(requests, |closed| {
        let summary = summary(&closed);
        let tree = Tree::new(closed.trace, closed.spans);
        assert_eq!(tree.len(), SPANS_PER_TRACE);
        let trace = AgentTrace::from(tree);
        let encoded =
            annotation::encode(&trace, measurements, verdicts, &summary, &emission, MAX_REQUEST_BYTES);
        let (spans, removed_verdicts) =
            annotation::apply(&trace.tree, &encoded, &emission, MAX_REQUEST_BYTES);
        Annotated { spans, events: encoded.events, removed_verdicts }
    })
}

/// The same with every rule: recognised, measured, propagated, annotated, with log events.
pub fn rules(requests: &[Bytes]) -> PathOutput {
    static EVALUATOR: LazyLock<Evaluator> =
        LazyLock::new(|| Evaluator::builder(&Config::default()).build().expect("the defaults are valid"));
    assemble(requests, |closed| {
        let evaluated = EVALUATOR.evaluate(closed, NOW, &mut |_| ());
        EVALUATOR.annotate(&evaluated)
    })
}

/// Spans of every trace of the corpora.
const SPANS_PER_TRACE: usize = 20;

fn fixed_measurements(at: usize) -> [Measurement; 2] {
    let value = |metric, value| Measurement {
        at,
        metric,
        task: None,
        outcome: Ok(Measured { value, passed: true, findings: Vec::new() }),
        examined: 1,
        judge: "rules/1".into(),
        details: Vec::new(),
        rationale: None,
    };
    [value("instruction_following", Measure::Score(5.0)), value("error_detection", Measure::Label("valid"))]
}

/// The default of the pipeline.
const MAX_REQUEST_BYTES: usize = 4 << 20;
/// An arbitrary time.
const NOW: u64 = 1_800_000_000_000_000_000;

fn summary(closed: &ClosedTrace) -> TraceSummary {
    TraceSummary {
        close_reason: closed.close_reason,
        revision: 1,
        passed: Some(true),
        changed: true,
        incomplete: closed.incomplete,
        now: NOW,
        unmeasured_reason: None,
        usage: None,
    }
}

/// Splits requests, assembles traces, and has each closed one annotated.
fn assemble(requests: &[Bytes], mut annotate: impl FnMut(ClosedTrace) -> Annotated) -> PathOutput {
    let envelopes = Interner::default();
    // Remembering 1,000 traces is part of the work; `quiet` is 0 so that a root closes its trace.
    let mut assembler = Assembler::new(Close { quiet: Period(Duration::ZERO), ..Close::default() });
    let now = Instant::now();
    let mut output = PathOutput::default();
    for request in requests {
        let split = request::split(request, "verdict.", &envelopes).expect("the corpus is well formed");
        for group in split.groups {
            assembler.add(group.trace, group.spans, group.size, |_| None, now);
        }
        for closed in assembler.poll(now) {
            let annotated = black_box(annotate(closed));
            output.traces += 1;
            output.spans += annotated.spans.iter().map(|piece| piece.items as usize).sum::<usize>();
            output.bytes += annotated.spans.iter().map(|piece| piece.bytes.len()).sum::<usize>();
        }
    }
    output
}
