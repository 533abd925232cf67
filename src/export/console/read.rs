//! Reads the annotations of encoded traces.

use std::collections::HashMap;

use bytes::Bytes;
use verdict_eval::annotation::{RenderedTrace, TraceHeader};
use verdict_otlp::trace::{Kind, Span, Status, TraceId, Tree};
use verdict_otlp::value::{SPAN_ATTRIBUTES, text};
use verdict_otlp::{Attributes, Fields, Interner, Value};

/// Field of `Span` that holds its name.
const NAME: u32 = 5;

/// One trace with its annotations.
pub(super) struct AnnotatedTrace {
    pub tree: Tree,
    pub header: TraceHeader,
    /// One per span, in the tree's order.
    pub shown: Vec<SpanAnnotations>,
    pub summary: Option<AnnotationSummary>,
    /// The trace closed incomplete.
    pub incomplete: bool,
}

/// The annotations of a span.
#[derive(Default)]
pub(super) struct SpanAnnotations {
    pub kind: Kind,
    pub name: String,
    /// `verdict.result`
    pub passed: Option<bool>,
    /// The failure was caused by spans below.
    pub by_children: bool,
    pub severity: Option<String>,
    pub categories: Vec<String>,
    pub failed: Vec<ShownMetric>,
    pub late: bool,
    pub incomplete: bool,
    pub error: bool,
    pub nanos: Option<u64>,
    /// The summary of the trace, on its root.
    summary: Option<AnnotationSummary>,
}

/// A failing metric.
#[derive(Default)]
pub(super) struct ShownMetric {
    pub name: String,
    failed: bool,
    /// Score, label or value, as text.
    pub value: String,
    pub explanation: String,
}

/// The trace's annotations, from its root.
#[derive(Default)]
pub(super) struct AnnotationSummary {
    pub passed: Option<bool>,
    pub close_reason: String,
    pub failed_metrics: Vec<String>,
    /// Names of the spans from the root to the worst failure.
    pub chain: Vec<String>,
}

/// The traces in `pieces`, in order of appearance.
pub(super) fn traces(
    pieces: &[Bytes],
    recognise: &dyn Fn(Tree) -> RenderedTrace,
    prefix: &str,
) -> Vec<AnnotatedTrace> {
    let envelopes = Interner::default();
    let mut order: Vec<TraceId> = Vec::new();
    let mut spans: HashMap<TraceId, Vec<Span>> = HashMap::new();
    for piece in pieces {
        // Invalid requests and spans were rejected on receipt and are not shown.
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
    let mut shown: Vec<SpanAnnotations> =
        tree.spans.iter().zip(kinds).map(|(span, kind)| shown(span, kind, prefix)).collect();
    let mut root = tree.root().into_iter().chain(tree.top().iter().copied());
    let mut summary = root.find_map(|i| shown[i].summary.take());
    let names: HashMap<String, &str> =
        tree.spans.iter().zip(&shown).map(|(span, shown)| (span.id.to_string(), &*shown.name)).collect();
    for link in summary.iter_mut().flat_map(|summary| &mut summary.chain) {
        if let Some(name) = names.get(link) {
            (*name).clone_into(link);
        }
    }
    let incomplete = shown.iter().any(|s| s.incomplete);
    AnnotatedTrace { tree, header, shown, summary, incomplete }
}

/// The annotations of a span: keys without the prefix.
fn annotations<'a>(span: &'a Span, prefix: &'a str) -> impl Iterator<Item = (&'a str, Value<'a>)> {
    Attributes::new(&span.bytes, SPAN_ATTRIBUTES)
        .filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?, value)))
}

fn shown(span: &Span, kind: Kind, prefix: &str) -> SpanAnnotations {
    let mut shown = SpanAnnotations {
        kind,
        name: name(span),
        error: span.status == Status::Error,
        nanos: span.end.checked_sub(span.start).filter(|_| span.end > 0),
        ..SpanAnnotations::default()
    };
    let (mut summary, mut has_summary) = (AnnotationSummary::default(), false);
    let mut metrics: Vec<ShownMetric> = Vec::new();
    for (key, value) in annotations(span, prefix) {
        match (key, value) {
            ("result", Value::Str(s)) => shown.passed = result(s),
            ("cause", Value::Str(s)) => shown.by_children = s == "children",
            ("severity", Value::Str(s)) => shown.severity = Some(s.to_owned()),
            ("category", list) => shown.categories = strings(list),
            ("late", Value::Bool(late)) => shown.late = late,
            ("incomplete", Value::Bool(incomplete)) => shown.incomplete = incomplete,
            ("trace.result", Value::Str(s)) => (summary.passed, has_summary) = (result(s), true),
            ("trace.close_reason", Value::Str(s)) => s.clone_into(&mut summary.close_reason),
            ("trace.failed_metrics", list) => summary.failed_metrics = strings(list),
            ("trace.failure_chain", list) => summary.chain = strings(list),
            (key, value) => {
                let Some((metric, part)) = key.rsplit_once('.') else { continue };
                let at = metrics.iter().position(|entry| entry.name == metric).unwrap_or_else(|| {
                    metrics.push(ShownMetric { name: metric.to_owned(), ..ShownMetric::default() });
                    metrics.len() - 1
                });
                let metric = &mut metrics[at];
                match (part, value) {
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
    shown.summary = has_summary.then_some(summary);
    metrics.retain(|metric| metric.failed && metric.name != "trace");
    shown.failed = metrics;
    shown
}

fn name(span: &Span) -> String {
    let name = Fields::new(&span.bytes).contents(NAME).last().map_or("", text);
    if name.is_empty() { format!("span {}", span.id) } else { name.to_owned() }
}

fn result(word: &str) -> Option<bool> {
    match word {
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
    /// Spans whose failure was not caused by spans below.
    pub(super) fn failures(&self) -> usize {
        self.shown.iter().filter(|s| s.passed == Some(false) && !s.by_children).count()
    }

    /// Spans that came after the verdict on their trace.
    pub(super) fn is_late(&self) -> bool {
        !self.shown.is_empty() && self.shown.iter().all(|span| span.late)
    }

    pub(super) fn id(&self) -> String {
        self.tree.id.to_string()
    }
}
