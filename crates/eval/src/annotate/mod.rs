//! Verdicts written onto spans: fields appended to bytes that stay as they came.
//!
//! In: a trace, its measurements and verdicts. Out: requests ready to export: the spans with
//! `verdict.*` attributes appended, and one `gen_ai.evaluation.result` log record a measurement.
//! Nothing of a span is changed, save `verdict.*` attributes that it brought along, which are
//! replaced or kept as configured: appending beside them would make duplicate keys, and a sender
//! could spoof a verdict.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use verdict_otlp::Piece;
use verdict_otlp::trace::{Envelope, Idx, Span, Tree};
use verdict_otlp::write::{self, Item};

use crate::measure::Measurement;
use crate::propagate::Verdicts;
use crate::recognise::AgentTrace;

mod attributes;
pub(crate) mod config;
mod attribute_cache;
mod events;
pub(crate) mod summary;
#[cfg(test)]
mod tests;

pub(crate) use config::{Emission, Emit, Existing, Explanations};
use summary::ExplainedMeasurement;
pub(crate) use summary::TraceSummary;

/// Instrumentation scope of evaluation events: the product, not this crate.
const SCOPE_NAME: &str = "otel-verdict";

/// Bytes that the log record of a passing measurement takes.
const RECORD: usize = 224;

/// What goes out for one trace.
#[derive(Debug, Default)]
pub struct Annotated {
    /// Requests of spans.
    pub spans: Vec<Piece>,
    /// Requests of log records.
    pub events: Vec<Piece>,
    /// How many spans had `verdict.*` attributes of their own taken off.
    pub existing: usize,
}

/// What is written of a trace, apart from its spans, so that it can be stored without them.
#[derive(Clone, Debug, Default)]
pub struct EncodedAnnotations {
    /// Encoded fields to append, span after span in the tree's order.
    pub appended: Bytes,
    /// How many bytes of them are each span's.
    pub lengths: Vec<usize>,
    /// Requests of log records.
    pub events: Vec<Piece>,
}

/// Encodes what there is to say of a trace and its spans. No request made here is larger than
/// `max_size` bytes, unless one record is.
pub fn encode(
    trace: &AgentTrace,
    measurements: &[Measurement],
    verdicts: &Verdicts,
    summary: &TraceSummary,
    emission: &Emission,
    max_size: usize,
) -> EncodedAnnotations {
    let explanations = explanations(measurements, emission);
    let sorted = by_span(measurements, &explanations);
    let mut rest = &sorted[..];
    // What a passing measurement takes, with its share of the verdict.
    let mut appended = Vec::with_capacity(256 + measurements.len() * 128);
    let mut lengths = Vec::with_capacity(trace.tree.len());
    let mut writer = attributes::Writer::new(trace, verdicts, summary, emission);
    for i in 0..trace.tree.len() {
        let own;
        (own, rest) =
            rest.split_at(rest.iter().take_while(|explained| explained.measurement.at == i).count());
        let start = appended.len();
        let kept = trace.tree.spans[i].has_verdict && emission.existing == Existing::Keep;
        if emission.has(Emit::Attributes) && !kept {
            writer.span(&mut appended, i, own);
        }
        if emission.has(Emit::SpanEvents) {
            own.iter().for_each(|explained| events::span_event(&mut appended, *explained, summary, emission));
        }
        lengths.push(appended.len() - start);
    }
    let events = match emission.has(Emit::LogEvents) {
        true => records(trace, (measurements, &explanations), verdicts, summary, emission, max_size),
        false => Vec::new(),
    };
    EncodedAnnotations { appended: appended.into(), lengths, events }
}

/// Requests of a trace's spans with what was written for each, and how many spans came with
/// verdicts of their own. `encoded` is of a tree of the same spans. No request is larger than `max_size`
/// bytes, unless one span is.
pub fn apply(
    tree: &Tree,
    encoded: &EncodedAnnotations,
    emission: &Emission,
    max_size: usize,
) -> (Vec<Piece>, usize) {
    // Also where we write no attributes: what is left in place would be taken for ours.
    let replace = emission.existing == Existing::Replace && tree.spans.iter().any(|span| span.has_verdict);
    let strip =
        |span: &Span| span.has_verdict.then(|| write::strip_attributes(&span.bytes, &emission.prefix));
    let stripped: Vec<Option<Bytes>> = match replace {
        true => tree.spans.iter().map(|span| strip(span).flatten()).collect(),
        false => Vec::new(),
    };
    let mut rest = &encoded.appended[..];
    let items: Vec<Item<'_>> = tree
        .spans
        .iter()
        .zip(&encoded.lengths)
        .enumerate()
        .map(|(i, (span, &len))| {
            let appended;
            (appended, rest) = rest.split_at(len.min(rest.len()));
            let bytes = stripped.get(i).and_then(Option::as_ref).unwrap_or(&span.bytes);
            Item { envelope: &span.envelope, bytes, appended }
        })
        .collect();
    (write::requests(&items, max_size), stripped.iter().flatten().count())
}

/// As [`encode`], the `gen_ai.evaluation.result` records of a trace alone, and one for the trace itself.
pub(crate) fn encode_events(
    trace: &AgentTrace,
    measurements: &[Measurement],
    verdicts: &Verdicts,
    summary: &TraceSummary,
    emission: &Emission,
    max_size: usize,
) -> EncodedAnnotations {
    let explanations = explanations(measurements, emission);
    let events = records(trace, (measurements, &explanations), verdicts, summary, emission, max_size);
    EncodedAnnotations { events, ..EncodedAnnotations::default() }
}

/// The records of a trace, of measurements with their explanations.
fn records(
    trace: &AgentTrace,
    (measurements, explanations): (&[Measurement], &ExplanationTexts),
    verdicts: &Verdicts,
    summary: &TraceSummary,
    emission: &Emission,
    max_size: usize,
) -> Vec<Piece> {
    // Records come under our own scope and the resource of the span that they speak of.
    let mut envelopes: HashMap<&[u8], Arc<Envelope>> = HashMap::new();
    // Neighbours mostly share one, and a resource takes long to hash.
    let mut last: Option<(&Arc<Envelope>, Arc<Envelope>)> = None;
    // All records, one behind the other, and where each ends.
    let mut records = Vec::with_capacity(measurements.len() * RECORD);
    let mut ends: Vec<(Arc<Envelope>, usize)> = Vec::with_capacity(measurements.len());
    let mut push = |at: Idx, end: usize| {
        let around = &trace.tree.spans[at].envelope;
        let (_, envelope) = match last.take().filter(|(of, _)| Arc::ptr_eq(of, around)) {
            Some(same) => last.insert(same),
            None => {
                let resource = &around.resource;
                let ours = || Arc::new(Envelope { resource: resource.clone(), scope: SCOPE.clone() });
                let envelope = envelopes.entry(resource).or_insert_with(ours);
                last.insert((around, Arc::clone(envelope)))
            }
        };
        ends.push((Arc::clone(envelope), end));
    };
    for explained in with_explanations(measurements, explanations) {
        let start = records.len();
        events::measurement(&mut records, trace, explained, summary, emission);
        if records.len() > start {
            push(explained.measurement.at, records.len());
        }
    }
    let worth_saying = summary.passed.is_some() || summary.unmeasured.is_some() || emission.log_unmeasured;
    let writes_trace = summary.changed && worth_saying;
    if let Some(root) = trace.tree.root().filter(|_| writes_trace) {
        events::trace(&mut records, trace, root, verdicts, summary, emission);
        push(root, records.len());
    }
    let mut start = 0;
    let items: Vec<Item<'_>> = ends
        .iter()
        .map(|(envelope, end)| {
            let bytes = records.get(std::mem::replace(&mut start, *end)..*end).unwrap_or_default();
            Item { envelope, bytes, appended: &[] }
        })
        .collect();
    write::requests(&items, max_size)
}

/// Our `InstrumentationScope`, as the field of a `ScopeLogs` that holds it.
static SCOPE: LazyLock<Bytes> = LazyLock::new(|| {
    let mut scope = Vec::new();
    write::bytes(&mut scope, 1, SCOPE_NAME.as_bytes());
    write::bytes(&mut scope, 2, env!("CARGO_PKG_VERSION").as_bytes());
    let mut field = Vec::new();
    write::bytes(&mut field, 1, &scope);
    Bytes::from(field)
});

/// Explanations of some measurements, by their place among all, in order.
type ExplanationTexts = Vec<(usize, String)>;

/// Made once for the attributes and the events that give them.
fn explanations(measurements: &[Measurement], emission: &Emission) -> ExplanationTexts {
    let all = measurements.iter().enumerate();
    all.filter_map(|(n, m)| Some((n, attributes::explanation(m, emission)?))).collect()
}

fn with_explanations<'a>(
    measurements: &'a [Measurement],
    explanations: &'a ExplanationTexts,
) -> impl Iterator<Item = ExplainedMeasurement<'a>> {
    let mut explained = explanations.iter().peekable();
    measurements.iter().enumerate().map(move |(n, measurement)| {
        let explanation = explained.next_if(|(of, _)| *of == n).map(|(_, text)| text.as_str());
        ExplainedMeasurement { measurement, explanation }
    })
}

/// The measurements by span, those of one span in their order.
fn by_span<'a>(
    measurements: &'a [Measurement],
    explanations: &'a ExplanationTexts,
) -> Vec<ExplainedMeasurement<'a>> {
    let mut sorted: Vec<ExplainedMeasurement<'_>> = with_explanations(measurements, explanations).collect();
    // Which they mostly are already.
    sorted.sort_by_key(|explained| explained.measurement.at);
    sorted
}
