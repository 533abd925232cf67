//! Writes verdicts onto spans by appending fields to their bytes.
//!
//! In: a trace, its measurements and verdicts. Out: requests to export: the spans with `verdict.*`
//! attributes appended, and one `gen_ai.evaluation.result` log record per measurement. The bytes of a
//! span do not change, except that `verdict.*` attributes of the sender are replaced or kept as
//! configured: a second attribute with the same key would be invalid, and a sender could forge a verdict.
//!
//! | file | content |
//! |---|---|
//! | `attributes`, `attribute_cache` | `verdict.*` attributes of spans, encoded |
//! | `summary`, `header` | the facts that are written about a trace, and those that identify its run |
//! | `findings`, `signature` | findings as data; the fingerprint of a failure |
//! | `events`, `record_head` | evaluation events |
//! | `alarm`, `alarm_events` | alarms of open traces, and their log records |
//! | `braintrust` | `braintrust.scores` |
//! | `config` | `verdict.emit`, `explanations`, `detail`, `existing`, `prefix`, `log_unmeasured` |

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use foldhash::HashMap;
use verdict_otlp::Piece;
use verdict_otlp::field_numbers::{instrumentation_scope, scope_logs};
use verdict_otlp::trace::{Envelope, EnvelopeFields, Span, Tree};
use verdict_otlp::value::{EVENT_ATTRIBUTES, LOG_ATTRIBUTES};
use verdict_otlp::write::{self, TelemetryItem};

use crate::measure::Measurement;
use crate::propagate::Verdicts;
use crate::recognise::AgentTrace;

pub(crate) mod alarm;
pub(crate) mod alarm_events;
mod attributes;
pub(crate) mod config;
mod attribute_cache;
mod braintrust;
mod events;
pub(crate) mod findings;
pub(crate) mod header;
mod record_head;
pub(crate) mod signature;
pub(crate) mod summary;
#[cfg(test)]
mod tests;

pub(crate) use config::{DetailLevel, Emission, Emit, Existing, Explanations};
use events::SubjectAttributes;
pub use events::{EVALUATION_EVENT, TRACE_EVALUATION};
use findings::TraceFindings;
use summary::ExplainedMeasurement;
pub(crate) use summary::{Annotator, TraceSummary};

/// Instrumentation scope of evaluation events: the product, not this crate.
pub const SCOPE_NAME: &str = "otel-verdict";

/// Approximate size of the log record of a passing measurement, in bytes.
const RECORD_BYTES: usize = 416;

/// The requests to export for one trace.
#[derive(Debug, Default)]
pub struct Annotated {
    /// Requests of spans.
    pub spans: Vec<Piece>,
    /// Requests of log records.
    pub events: Vec<Piece>,
    /// Number of spans whose `verdict.*` attributes of the sender were removed.
    pub removed_verdicts: usize,
}

/// The encoded annotations of a trace, without its spans, so that they can be stored.
#[derive(Clone, Debug, Default)]
pub struct EncodedAnnotations {
    /// Encoded fields to append, span after span in the tree's order.
    pub appended: Bytes,
    /// The number of bytes in `appended` for each span.
    pub lengths: Vec<usize>,
    /// Requests of log records.
    pub events: Vec<Piece>,
}

/// Encodes the attributes and events of a trace. No request exceeds `max_size` bytes unless a single
/// record does.
pub fn encode(
    trace: &AgentTrace,
    measurements: &[Measurement],
    verdicts: &Verdicts,
    summary: &TraceSummary,
    emission: &Emission,
    max_size: usize,
) -> EncodedAnnotations {
    Annotator { trace, measurements, verdicts, summary, alarms: &[], emission }.encode(max_size)
}

impl Annotator<'_> {
    pub(crate) fn encode(self, max_size: usize) -> EncodedAnnotations {
        let Annotator { trace, measurements, emission, .. } = self;
        let explanations = self.explanations();
        let mut sorted: Vec<_> = with_explanations(measurements, &explanations).collect();
        // Measurements usually are in this order already, so the sort is one pass.
        sorted.sort_by_key(|explained| explained.measurement.at);
        // About the size of a passing measurement, with its share of the verdict.
        let mut appended = Vec::with_capacity(256 + measurements.len() * 128);
        let mut lengths = Vec::with_capacity(trace.tree.len());
        let findings = TraceFindings::new(self);
        let mut writer = attributes::AttributeWriter::new(self, &findings);
        let mut subject_attributes =
            emission.writes_to(Emit::SpanEvents).then(|| SubjectAttributes::new(EVENT_ATTRIBUTES));
        // The journal stores annotations without the skews of spans.
        let has_skew = trace.tree.has_skew();
        let mut rest = &sorted[..];
        for i in trace.tree.without_skew() {
            if has_skew {
                rest = &sorted[sorted.partition_point(|e| e.measurement.at < i)..];
            }
            let span_measurements;
            (span_measurements, rest) =
                rest.split_at(rest.iter().take_while(|e| e.measurement.at == i).count());
            if trace.tree.spans[i].forwarded {
                lengths.push(0);
                continue;
            }
            let start = appended.len();
            let keeps_sender_verdict = trace.tree.spans[i].has_verdict && emission.existing == Existing::Keep;
            if emission.writes_to(Emit::Attributes) && !keeps_sender_verdict {
                writer.write_span(&mut appended, i, span_measurements);
            }
            if emission.writes_to(Emit::BraintrustScores) && !keeps_sender_verdict {
                self.braintrust_scores(&mut appended, i, span_measurements);
            }
            if let Some(subject_attributes) = &mut subject_attributes {
                for explained in span_measurements {
                    self.span_event(&mut appended, *explained, subject_attributes, &findings);
                }
            }
            lengths.push(appended.len() - start);
        }
        let events = match emission.writes_to(Emit::LogEvents) {
            true => self.records(&explanations, &findings, max_size),
            false => Vec::new(),
        };
        EncodedAnnotations { appended: appended.into(), lengths, events }
    }

    /// Encodes only the log records, for spans that were exported on arrival.
    pub(crate) fn encode_events(self, max_size: usize) -> EncodedAnnotations {
        let events = self.records(&self.explanations(), &TraceFindings::new(self), max_size);
        EncodedAnnotations { events, ..EncodedAnnotations::default() }
    }

    /// The explanations of the measurements that have one. Attributes and events share them.
    fn explanations(self) -> ExplanationTexts {
        let indexed = self.measurements.iter().enumerate();
        indexed.filter_map(|(n, m)| Some((n, attributes::explanation(m, self.emission)?))).collect()
    }

    /// Requests of the log records of a trace: one per measurement, and one for the trace.
    fn records(
        self,
        explanations: &ExplanationTexts,
        findings: &TraceFindings<'_>,
        max_size: usize,
    ) -> Vec<Piece> {
        let Annotator { trace, measurements, summary, emission, .. } = self;
        let mut envelopes = RecordEnvelopes::default();
        // All records are in one buffer. `ends` contains the envelope of each record and the position of its end.
        let mut records = Vec::with_capacity(measurements.len() * RECORD_BYTES);
        let mut ends: Vec<(Arc<Envelope>, usize)> = Vec::with_capacity(measurements.len());
        let mut subject_attributes = SubjectAttributes::new(LOG_ATTRIBUTES);
        for explained in with_explanations(measurements, explanations) {
            let start = records.len();
            self.measurement_record(&mut records, explained, &mut subject_attributes, findings);
            if records.len() > start {
                let span = &trace.tree.spans[explained.measurement.at];
                ends.push((envelopes.for_span(&span.envelope), records.len()));
            }
        }
        let has_result = summary.passed.is_some() || summary.unmeasured_reason.is_some();
        let writes_trace = summary.changed && (has_result || emission.log_unmeasured);
        if let Some(root) = trace.tree.root().filter(|_| writes_trace) {
            self.trace_record(&mut records, root, findings);
            ends.push((envelopes.for_span(&trace.tree.spans[root].envelope), records.len()));
        }
        let mut start = 0;
        let items = ends.iter().map(|(envelope, end)| {
            let bytes = &records[std::mem::replace(&mut start, *end)..*end];
            TelemetryItem { envelope, bytes, appended: &[] }
        });
        write::requests(&items.collect::<Vec<_>>(), max_size)
    }
}

/// The envelopes of log records: the resource of the span, and the product's own scope.
#[derive(Default)]
struct RecordEnvelopes<'a> {
    by_resource: HashMap<&'a EnvelopeFields, Arc<Envelope>>,
    /// The previous span's envelope and the record's. Consecutive spans usually share one.
    last: Option<(&'a Arc<Envelope>, Arc<Envelope>)>,
}

impl<'a> RecordEnvelopes<'a> {
    fn for_span(&mut self, span: &'a Arc<Envelope>) -> Arc<Envelope> {
        if let Some((_, record)) = self.last.as_ref().filter(|(last, _)| Arc::ptr_eq(last, span)) {
            return Arc::clone(record);
        }
        let resource = &span.resource;
        let new_envelope = || Arc::new(Envelope { resource: resource.clone(), scope: SCOPE.clone() });
        let record = Arc::clone(self.by_resource.entry(resource).or_insert_with(new_envelope));
        self.last = Some((span, Arc::clone(&record)));
        record
    }
}

/// Requests of a trace's spans with their annotations, without those that were exported on arrival, and the
/// number of spans whose `verdict.*` attributes were removed. `encoded` must be of a tree of the same spans. No request
/// exceeds `max_size` bytes unless a single span does.
pub fn apply(
    tree: &Tree,
    encoded: &EncodedAnnotations,
    emission: &Emission,
    max_size: usize,
) -> (Vec<Piece>, usize) {
    // The sender's attributes are removed even if none are written, because readers would take them for verdicts of
    // this product.
    let replaces_existing =
        emission.existing == Existing::Replace && tree.spans.iter().any(|span| span.has_verdict);
    let strip = |span: &Span| {
        let is_stripped = span.has_verdict && !span.forwarded;
        is_stripped.then(|| write::strip_attributes(&span.bytes, &emission.prefix)).flatten()
    };
    let stripped: Vec<Option<Bytes>> = match replaces_existing {
        true => tree.spans.iter().map(strip).collect(),
        false => Vec::new(),
    };
    let mut rest = &encoded.appended[..];
    let mut items = Vec::with_capacity(tree.len());
    for (i, &len) in tree.without_skew().zip(&encoded.lengths) {
        let span = &tree.spans[i];
        let appended;
        (appended, rest) = rest.split_at(len.min(rest.len()));
        if !span.forwarded {
            let bytes = stripped.get(i).and_then(Option::as_ref).unwrap_or(&span.bytes);
            items.push(TelemetryItem { envelope: &span.envelope, bytes, appended });
        }
    }
    (write::requests(&items, max_size), stripped.iter().flatten().count())
}

/// The product's `InstrumentationScope`, as an encoded field of `ScopeLogs`.
static SCOPE: LazyLock<EnvelopeFields> = LazyLock::new(|| {
    let mut scope = Vec::new();
    write::bytes(&mut scope, instrumentation_scope::NAME, SCOPE_NAME.as_bytes());
    write::bytes(&mut scope, instrumentation_scope::VERSION, env!("CARGO_PKG_VERSION").as_bytes());
    let mut field = Vec::new();
    write::bytes(&mut field, scope_logs::SCOPE, &scope);
    EnvelopeFields::from(field)
});

/// Explanations by the index of their measurement, in order.
type ExplanationTexts = Vec<(usize, String)>;

fn with_explanations<'a>(
    measurements: &'a [Measurement],
    explanations: &'a ExplanationTexts,
) -> impl Iterator<Item = ExplainedMeasurement<'a>> {
    let mut explained = explanations.iter().peekable();
    measurements.iter().enumerate().map(move |(n, measurement)| {
        let explanation = explained.next_if(|(index, _)| *index == n).map(|(_, text)| text.as_str());
        ExplainedMeasurement { measurement, explanation }
    })
}
