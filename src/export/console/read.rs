//! Reads the annotations of encoded traces.

use std::collections::HashMap;

use bytes::Bytes;
use verdict_eval::annotation::{RenderedTrace, TraceHeader};
use verdict_otlp::trace::{Kind, Span, Status, TraceId, Tree};
use verdict_otlp::value::{SPAN_ATTRIBUTES, text};
use verdict_otlp::{Attributes, Fields, Interner, Value};

/// The number of the field `name` in `Span`.
const NAME_FIELD: u32 = 5;

/// One trace with its annotations.
pub(super) struct AnnotatedTrace {
    pub tree: Tree,
    pub header: TraceHeader,
    /// One per span, in the order of `tree.spans`.
    pub annotations: Vec<SpanAnnotations>,
    pub summary: Option<AnnotationSummary>,
    /// Whether spans of the trace were missing when it closed.
    pub is_incomplete: bool,
}

/// The annotations of a span, and the properties of the span that are rendered.
#[derive(Default)]
pub(super) struct SpanAnnotations {
    pub kind: Kind,
    pub name: String,
    /// `verdict.result`
    pub passed: Option<bool>,
    /// Whether descendants caused the failure.
    pub is_caused_by_children: bool,
    pub severity: Option<String>,
    pub categories: Vec<String>,
    pub failed_metrics: Vec<MetricAnnotation>,
    pub is_late: bool,
    pub is_incomplete: bool,
    pub has_error_status: bool,
    pub duration_nanos: Option<u64>,
    /// The annotations of the trace, if the span is its root.
    summary: Option<AnnotationSummary>,
}

/// The annotations of one metric.
#[derive(Default)]
pub(super) struct MetricAnnotation {
    pub name: String,
    failed: bool,
    /// Score, label or value, as text.
    pub value: String,
    pub explanation: String,
}

/// The annotations of a trace, which its root span has.
#[derive(Default)]
pub(super) struct AnnotationSummary {
    pub passed: Option<bool>,
    pub close_reason: String,
    pub failed_metrics: Vec<String>,
    /// Names of the spans from the root to the worst failure.
    pub failure_chain: Vec<String>,
}

/// The traces in `pieces`, in the order of their first spans.
pub(super) fn traces(
    pieces: &[Bytes],
    recognise: &dyn Fn(Tree) -> RenderedTrace,
    prefix: &str,
) -> Vec<AnnotatedTrace> {
    let envelopes = Interner::default();
    let mut order: Vec<TraceId> = Vec::new();
    let mut spans: HashMap<TraceId, Vec<Span>> = HashMap::new();
    for piece in pieces {
        // The receiver has rejected invalid requests and spans.
        let Ok(split) = verdict_otlp::split(piece, prefix, &envelopes) else { continue };
        for group in split.groups {
            let trace_spans = spans.entry(group.trace).or_insert_with(|| {
                order.push(group.trace);
                Vec::new()
            });
            trace_spans.extend(group.spans);
        }
    }
    let traces = order.into_iter().filter_map(|id| Some((id, spans.remove(&id)?)));
    traces.map(|(id, spans)| trace(recognise(Tree::new(id, spans)), prefix)).collect()
}

fn trace(RenderedTrace { tree, kinds, header }: RenderedTrace, prefix: &str) -> AnnotatedTrace {
    let kinds = kinds.into_iter().chain(std::iter::repeat(Kind::Unknown));
    let mut annotations: Vec<SpanAnnotations> =
        tree.spans.iter().zip(kinds).map(|(span, kind)| span_annotations(span, kind, prefix)).collect();
    let mut candidates = tree.root().into_iter().chain(tree.top().iter().copied());
    let mut summary = candidates.find_map(|i| annotations[i].summary.take());
    let names: HashMap<String, &str> =
        tree.spans.iter().zip(&annotations).map(|(span, a)| (span.id.to_string(), &*a.name)).collect();
    for id in summary.iter_mut().flat_map(|summary| &mut summary.failure_chain) {
        if let Some(name) = names.get(id) {
            (*name).clone_into(id);
        }
    }
    let is_incomplete = annotations.iter().any(|span| span.is_incomplete);
    AnnotatedTrace { tree, header, annotations, summary, is_incomplete }
}

/// The attributes of a span whose keys begin with `prefix`, with the keys after it.
fn prefixed_attributes<'a>(span: &'a Span, prefix: &'a str) -> impl Iterator<Item = (&'a str, Value<'a>)> {
    Attributes::new(&span.bytes, SPAN_ATTRIBUTES)
        .filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?, value)))
}

fn span_annotations(span: &Span, kind: Kind, prefix: &str) -> SpanAnnotations {
    let mut annotations = SpanAnnotations {
        kind,
        name: name(span),
        has_error_status: span.status == Status::Error,
        duration_nanos: span.end.checked_sub(span.start).filter(|_| span.end > 0),
        ..SpanAnnotations::default()
    };
    let (mut summary, mut has_summary) = (AnnotationSummary::default(), false);
    let mut metrics: Vec<MetricAnnotation> = Vec::new();
    for (key, value) in prefixed_attributes(span, prefix) {
        match (key, value) {
            ("result", Value::Str(s)) => annotations.passed = result_to_bool(s),
            ("cause", Value::Str(s)) => annotations.is_caused_by_children = s == "children",
            ("severity", Value::Str(s)) => annotations.severity = Some(s.to_owned()),
            ("category", list) => annotations.categories = strings(list),
            ("late", Value::Bool(is_late)) => annotations.is_late = is_late,
            ("incomplete", Value::Bool(is_incomplete)) => annotations.is_incomplete = is_incomplete,
            ("trace.result", Value::Str(s)) => (summary.passed, has_summary) = (result_to_bool(s), true),
            ("trace.close_reason", Value::Str(s)) => s.clone_into(&mut summary.close_reason),
            ("trace.failed_metrics", list) => summary.failed_metrics = strings(list),
            ("trace.failure_chain", list) => summary.failure_chain = strings(list),
            (key, value) => {
                let Some((metric, suffix)) = key.rsplit_once('.') else { continue };
                let position = metrics.iter().position(|entry| entry.name == metric).unwrap_or_else(|| {
                    metrics.push(MetricAnnotation { name: metric.to_owned(), ..MetricAnnotation::default() });
                    metrics.len() - 1
                });
                let metric = &mut metrics[position];
                match (suffix, value) {
                    ("result", Value::Str(s)) => metric.failed = s == "fail",
                    ("score" | "value", Value::Double(n)) => metric.value = number(n),
                    ("score" | "value", Value::Int(n)) => metric.value = n.to_string(),
                    ("label", Value::Str(s)) => metric.value = s.to_owned(),
                    ("explanation", Value::Str(s)) => metric.explanation = s.to_owned(),
                    _ => {}
                }
            }
        }
    }
    annotations.summary = has_summary.then_some(summary);
    metrics.retain(|metric| metric.failed && metric.name != "trace");
    annotations.failed_metrics = metrics;
    annotations
}

/// The name of a span, or text with its id if the name is empty.
fn name(span: &Span) -> String {
    let name = Fields::new(&span.bytes).contents(NAME_FIELD).last().map_or("", text);
    if name.is_empty() { format!("span {}", span.id) } else { name.to_owned() }
}

/// `None` for `unmeasured` and unknown results.
fn result_to_bool(result: &str) -> Option<bool> {
    match result {
        "pass" => Some(true),
        "fail" => Some(false),
        _ => None,
    }
}

fn strings(list: Value<'_>) -> Vec<String> {
    list.items().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

/// A number with at most two decimal places.
fn number(n: f64) -> String {
    let text = format!("{n:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl AnnotatedTrace {
    /// The number of failed spans whose failure descendants did not cause.
    pub(super) fn failures(&self) -> usize {
        self.annotations.iter().filter(|s| s.passed == Some(false) && !s.is_caused_by_children).count()
    }

    /// Whether all spans arrived after the verdict on their trace.
    pub(super) fn is_late(&self) -> bool {
        !self.annotations.is_empty() && self.annotations.iter().all(|span| span.is_late)
    }

    pub(super) fn id(&self) -> String {
        self.tree.id.to_string()
    }
}
