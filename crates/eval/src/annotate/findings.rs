//! Findings as data: `verdict.findings` and `verdict.cited_by`.
//!
//! In: the measurements of a trace. Out, by span: the findings of its failing metrics, and the findings on other spans
//! whose origin it is, as a JSON array of bounded size; and the failing metrics of runs whose findings cite it. Nothing
//! is computed for a trace without a failure.
//!
//! The array is valid JSON for any content of the findings: texts are cut before they are encoded, and findings that do
//! not fit are counted in a last element, `{"more": 3}`. Quotes and rationales obey `explanations` and `redact`.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use foldhash::HashMap;
use serde::Serialize;
use verdict_otlp::trace::{Idx, SpanId};

use super::signature::{self, Signature};
use super::summary::{Annotator, MAX_ITEMS};
use crate::measure::ask::stable_hash::stable_hash;
use crate::measure::table::spec_among;
use crate::measure::{Finding, Measurement};
use crate::recognise::AgentTrace;

/// Maximum size of `verdict.findings` in bytes: below the 2 KB at which stores of spans truncate an attribute.
pub(super) const MAX_FINDINGS: usize = 2000;
/// Maximum size of a rationale per finding, encoded as JSON.
const MAX_RATIONALE: usize = 480;
/// As [`MAX_RATIONALE`], of a quote.
const MAX_QUOTE: usize = 320;
/// Maximum number of cited spans per finding. `verdict.cited_by` names the finding on all of them.
const MAX_CITED: usize = 8;
/// The size of the element that counts the omitted findings, with the end of the array.
const MORE_ELEMENT_BYTES: usize = r#",{"more":18446744073709551615}]"#.len();
/// The end of a text that was cut.
const CUT_MARK: &str = " [cut]";

/// A finding of a failing measurement.
#[derive(Clone, Copy)]
struct IndexedFinding<'a> {
    measurement: &'a Measurement,
    /// The index of the finding in its measurement.
    index: usize,
    finding: &'a Finding,
}

/// The attributes that the findings of a trace add to one span.
#[derive(Default)]
struct SpanFindings<'a> {
    findings: Vec<IndexedFinding<'a>>,
    /// Measurements of runs whose findings cite the span: the metric and its span.
    cited_by: Vec<(&'static str, Idx)>,
    /// The failing measurements of the span itself.
    failing: Vec<&'a Measurement>,
}

/// The findings of the failing measurements of a trace, by span.
pub(super) struct TraceFindings<'a> {
    annotator: Annotator<'a>,
    by_span: HashMap<Idx, SpanFindings<'a>>,
    /// Encoded elements with their texts, by measurement and index of the finding. They are cached, since a finding is
    /// written on its span, on the span of its origin and in an event.
    elements: RefCell<HashMap<(*const Measurement, usize), Rc<str>>>,
    signatures: RefCell<HashMap<*const Measurement, Signature>>,
}

impl<'a> TraceFindings<'a> {
    pub(super) fn new(annotator: Annotator<'a>) -> TraceFindings<'a> {
        let (elements, signatures) = (RefCell::default(), RefCell::default());
        let mut trace_findings =
            TraceFindings { annotator, by_span: HashMap::default(), elements, signatures };
        let mut by_id: Option<HashMap<SpanId, Idx>> = None;
        for m in annotator.measurements.iter().filter(|m| m.outcome.as_ref().is_ok_and(|o| !o.passed)) {
            trace_findings.by_span.entry(m.at).or_default().failing.push(m);
            let is_run_metric =
                spec_among(&annotator.emission.custom, m.metric).is_some_and(|row| row.about.is_run());
            for (index, finding) in scored_findings(m) {
                let indexed = IndexedFinding { measurement: m, index, finding };
                trace_findings.by_span.entry(m.at).or_default().findings.push(indexed);
                let origin =
                    finding.origin.filter(|&origin| origin != m.at && origin < annotator.trace.tree.len());
                if let Some(origin) = origin {
                    trace_findings.by_span.entry(origin).or_default().findings.push(indexed);
                }
                if is_run_metric {
                    let by_id = by_id.get_or_insert_with(|| index_by_id(annotator.trace));
                    let cited = finding.cited.iter().chain(&finding.seen_in);
                    let spans = cited.filter_map(|id| by_id.get(id).copied()).chain(origin);
                    spans
                        .filter(|&index| index != m.at)
                        .for_each(|index| trace_findings.add_citation(index, m));
                }
            }
        }
        trace_findings
    }

    fn add_citation(&mut self, index: Idx, m: &Measurement) {
        let cited_by = &mut self.by_span.entry(index).or_default().cited_by;
        let entry = (m.metric, m.at);
        if cited_by.len() < MAX_ITEMS && !cited_by.contains(&entry) {
            cited_by.push(entry);
        }
    }

    /// Whether nothing failed.
    pub(super) fn is_empty(&self) -> bool {
        self.by_span.is_empty()
    }

    /// `verdict.findings` of the span, if it has any.
    pub(super) fn span_json(&self, index: Idx) -> Option<String> {
        let findings = &self.by_span.get(&index)?.findings;
        (!findings.is_empty()).then(|| self.json_array(findings.clone()))
    }

    /// The findings of one measurement as JSON; `None` if it does not fail or has none.
    pub(super) fn measurement_json(&self, m: &Measurement) -> Option<String> {
        if m.outcome.as_ref().map_or(true, |measured| measured.passed) {
            return None;
        }
        let indexed = |(index, finding)| IndexedFinding { measurement: m, index, finding };
        let findings: Vec<IndexedFinding<'_>> = scored_findings(m).map(indexed).collect();
        (!findings.is_empty()).then(|| self.json_array(findings))
    }

    /// `verdict.cited_by` of the span.
    pub(super) fn cited_by(&self, index: Idx) -> Vec<String> {
        let cited_by = self.by_span.get(&index).map_or(&[][..], |span| &span.cited_by);
        cited_by
            .iter()
            .map(|(metric, citing_span)| {
                [metric, "@", &*span_id(self.annotator.trace, *citing_span)].concat()
            })
            .collect()
    }

    /// The signature of the worst failure of the span.
    pub(super) fn signature(&self, index: Idx) -> Option<Signature> {
        signature::worst(self.by_span.get(&index)?.failing.iter().copied()).map(|m| self.signature_of(m))
    }

    /// The signature of a failing measurement, cached: it is written on a span, in an event and for the trace.
    pub(super) fn signature_of(&self, m: &Measurement) -> Signature {
        let cached = self.signatures.borrow().get(&std::ptr::from_ref(m)).copied();
        cached.unwrap_or_else(|| {
            let signature = signature::signature_for(self.annotator.trace, m);
            self.signatures.borrow_mut().insert(m, signature);
            signature
        })
    }

    /// The signature of the worst failure of the trace.
    pub(super) fn trace_signature(&self) -> Option<Signature> {
        self.signature(*self.annotator.verdicts.trace.failure_chain.last()?)
    }

    /// The findings as a JSON array, the worst first. Findings that do not fit are written without their texts, or only
    /// counted.
    fn json_array(&self, mut findings: Vec<IndexedFinding<'_>>) -> String {
        findings.sort_by(|a, b| a.finding.worst_first(b.finding));
        let mut out = String::with_capacity(MAX_FINDINGS);
        out.push('[');
        for (written, finding) in findings.iter().enumerate() {
            let remaining =
                MAX_FINDINGS.saturating_sub(out.len() + usize::from(written > 0) + MORE_ELEMENT_BYTES);
            let fits = |json: &Rc<str>| json.len() <= remaining;
            let with_texts = || Some(self.element_with_texts(finding)).filter(fits);
            let without_texts = || Some(self.element(finding, false).into()).filter(fits);
            let Some(json) = with_texts().or_else(without_texts) else {
                let comma = if written > 0 { "," } else { "" };
                out.push_str(&format!("{comma}{{\"more\":{}}}", findings.len() - written));
                break;
            };
            if written > 0 {
                out.push(',');
            }
            out.push_str(&json);
        }
        out.push(']');
        out
    }

    /// The element with its texts, cached.
    fn element_with_texts(&self, indexed: &IndexedFinding<'_>) -> Rc<str> {
        let key = (std::ptr::from_ref(indexed.measurement), indexed.index);
        let cached = self.elements.borrow().get(&key).cloned();
        cached.unwrap_or_else(|| {
            let element: Rc<str> = self.element(indexed, true).into();
            self.elements.borrow_mut().insert(key, Rc::clone(&element));
            element
        })
    }

    /// A finding as JSON, with its rationale and quote or without.
    fn element(&self, indexed: &IndexedFinding<'_>, with_texts: bool) -> String {
        let IndexedFinding { measurement: m, index, finding } = *indexed;
        let trace = self.annotator.trace;
        let text = |text: &str, max_bytes: usize| {
            let disclosed =
                self.annotator.emission.disclose(text).filter(|text| with_texts && !text.is_empty())?;
            Some(clip_json(disclosed, max_bytes))
        };
        let element = FindingElement {
            id: finding_id(trace, m, index),
            metric: m.name(),
            severity: finding.severity.as_str(),
            category: finding.category.map(|category| category.as_str()),
            blame: finding.blame().map(|blame| blame.as_str()),
            span: span_id(trace, m.at),
            origin: span_id(trace, finding.origin.unwrap_or(m.at)),
            cited: finding.cited.iter().take(MAX_CITED).map(SpanId::to_string).collect(),
            seen_in: finding.seen_in.map(|span| span.to_string()),
            touched_outcome: self.annotator.verdicts.trace.touched_outcome(m.at, m.metric, index),
            rationale: text(&finding.rationale, MAX_RATIONALE),
            quote: text(&finding.quote, MAX_QUOTE),
        };
        // Writing texts to a string cannot fail.
        serde_json::to_string(&element).unwrap_or_default()
    }
}

/// An element of `verdict.findings`.
#[derive(Serialize)]
struct FindingElement {
    id: String,
    metric: Cow<'static, str>,
    severity: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blame: Option<&'static str>,
    /// The judged span.
    span: String,
    /// The span where the failure began.
    origin: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cited: Vec<String>,
    /// The span of the quote, if it is not `span`.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_in: Option<String>,
    /// Whether judges state that the finding affected the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    touched_outcome: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rationale: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quote: Option<String>,
}

/// The findings of a measurement that can fail it, with their indices.
fn scored_findings(m: &Measurement) -> impl Iterator<Item = (usize, &Finding)> {
    let findings = m.outcome.iter().flat_map(|measured| &measured.findings).enumerate();
    findings.filter(|(_, finding)| !finding.is_note())
}

/// The spans by id; of several spans with one id, the first.
fn index_by_id(trace: &AgentTrace) -> HashMap<SpanId, Idx> {
    trace.tree.spans.iter().enumerate().rev().map(|(index, span)| (span.id, index)).collect()
}

fn span_id(trace: &AgentTrace, index: Idx) -> String {
    trace.tree.spans.get(index).map(|span| span.id).unwrap_or_default().to_string()
}

/// The id of a finding, 16 hex digits: the same on every span and in every output.
pub fn finding_id(trace: &AgentTrace, m: &Measurement, index: usize) -> String {
    let span = trace.tree.spans.get(m.at).map(|span| span.id).unwrap_or_default();
    let index = (index as u64).to_be_bytes();
    let hash = stable_hash([&trace.tree.id.0[..], &span.0, m.name().as_bytes(), &index]);
    format!("{hash:016x}")
}

/// The beginning of a text that takes at most `max_bytes` bytes within JSON, without its quotation marks.
fn clip_json(text: Cow<'_, str>, max_bytes: usize) -> String {
    // An escape has at most six bytes; a character without one has the bytes that it has in the text.
    let needs_escape = |byte: &u8| u8::from(matches!(byte, ..b' ' | b'"' | b'\\'));
    // Chunks of 255, so that a `u8` counter suffices and the loop vectorises.
    let escapes =
        text.as_bytes().chunks(u8::MAX.into()).map(|part| part.iter().map(needs_escape).sum::<u8>());
    if text.len() + 5 * escapes.map(usize::from).sum::<usize>() <= max_bytes {
        return text.into_owned();
    }
    let size = |c: char| match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    };
    let (mut used_bytes, mut end) = (0usize, 0usize);
    for (start, c) in text.char_indices() {
        used_bytes += size(c);
        if used_bytes <= max_bytes - CUT_MARK.len() {
            end = start + c.len_utf8();
        }
        if used_bytes > max_bytes {
            return format!("{}{CUT_MARK}", text.get(..end).unwrap_or_default());
        }
    }
    text.into_owned()
}
