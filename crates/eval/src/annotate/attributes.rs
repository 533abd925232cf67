//! Writes the `verdict.*` attributes of spans.

use std::borrow::Cow;
use std::ops::Range;

use foldhash::HashMap;
use verdict_otlp::trace::{CloseReason, Idx, SpanId};
use verdict_otlp::value::SPAN_ATTRIBUTES;
use verdict_otlp::write::{self, Scalar};

use super::alarm::AlarmState;
use super::attribute_cache::{AttributeCache, FixedValue};
use super::findings::TraceFindings;
use super::summary::{Annotator, ExplainedMeasurement, MAX_EXPLANATION, MAX_ITEMS};
use super::{DetailLevel, Emission, Explanations};
use crate::measure::table::spec_among;
use crate::measure::{Detail, DetailValue, Finding, Measurement, Severity, Value};
use crate::propagate::Verdict;
use crate::recognise::AgentTrace;

/// `pass` or `fail`.
pub(super) fn result_label(passed: bool) -> &'static str {
    if passed { "pass" } else { "fail" }
}

/// Sets `key` to the configured prefix and the parts of `path`, joined by dots.
pub(super) fn set_key<'k>(key: &'k mut String, emission: &Emission, path: &[&str]) -> &'k str {
    key.clear();
    key.push_str(&emission.prefix);
    for (n, part) in path.iter().enumerate() {
        if n > 0 {
            key.push('.');
        }
        key.push_str(part);
    }
    key
}

/// Writes the attributes of one trace's spans.
pub(super) struct AttributeWriter<'a> {
    annotator: Annotator<'a>,
    findings: &'a TraceFindings<'a>,
    alarms: HashMap<SpanId, AlarmState>,
    cache: AttributeCache,
    /// Buffer for keys.
    key: String,
    recent_spans: [Option<RecentSpan<'a>>; RECENT_SPANS],
    /// The index in `recent_spans` of the next span to be overwritten.
    next_recent: usize,
}

/// A span whose attributes were written recently, and their position in the output.
struct RecentSpan<'a> {
    verdict: Option<Verdict>,
    measurements: &'a [ExplainedMeasurement<'a>],
    written: Range<usize>,
}

/// Number of recent spans. Most spans of a trace have one of a few combinations of measurements.
const RECENT_SPANS: usize = 4;

impl<'a> AttributeWriter<'a> {
    pub(super) fn new(annotator: Annotator<'a>, findings: &'a TraceFindings<'a>) -> AttributeWriter<'a> {
        let alarms = annotator.alarms.iter().map(|mark| (mark.span, mark.state)).collect();
        let (cache, key) = (AttributeCache::new(), String::with_capacity(64));
        AttributeWriter {
            annotator,
            findings,
            alarms,
            cache,
            key,
            recent_spans: Default::default(),
            next_recent: 0,
        }
    }

    /// Appends the attributes of span `i`, whose measurements are `measurements`. `out` must be the same buffer
    /// for every span.
    pub(super) fn write_span(
        &mut self,
        out: &mut Vec<u8>,
        i: Idx,
        measurements: &'a [ExplainedMeasurement<'a>],
    ) {
        self.write_evaluation(out, self.annotator.verdicts.by_span.get(i).copied().flatten(), measurements);
        if self.annotator.summary.close_reason == CloseReason::Late {
            self.append_attribute(out, &["late"], Scalar::Bool(true));
        }
        if !self.alarms.is_empty()
            && let Some(span) = self.annotator.trace.tree.spans.get(i)
            && let Some(state) = self.alarms.get(&span.id).copied()
        {
            self.append_attribute(out, &["path.alarm"], Scalar::Str(state.as_str()));
        }
        let carries_trace = self.annotator.carries_trace(i);
        if carries_trace {
            self.write_trace(out);
        }
        self.write_findings(out, i, carries_trace);
    }

    /// Writes the findings of a span, and the signature of its failure; on a span that carries the trace's verdict,
    /// the signature of the trace's failure.
    fn write_findings(&mut self, out: &mut Vec<u8>, i: Idx, carries_trace: bool) {
        let findings = self.findings;
        if findings.is_empty() {
            return;
        }
        if let Some(json) = findings.span_json(i) {
            self.append_attribute(out, &["findings"], Scalar::Str(&json));
        }
        let cited_by = findings.cited_by(i);
        if !cited_by.is_empty() {
            self.append_attribute(out, &["cited_by"], Scalar::Strs(&strs(&cited_by)));
        }
        let trace_signature = carries_trace.then(|| findings.trace_signature()).flatten();
        if let Some(signature) = trace_signature.or_else(|| findings.signature(i)) {
            self.append_attribute(out, &["signature"], Scalar::Str(&signature.to_string()));
        }
    }

    /// Writes the verdict and measurements of a span, or copies those of an equal recent span.
    fn write_evaluation(
        &mut self,
        out: &mut Vec<u8>,
        verdict: Option<Verdict>,
        measurements: &'a [ExplainedMeasurement<'a>],
    ) {
        let detail = self.annotator.emission.detail;
        let is_same = |recent: &&RecentSpan<'_>| {
            recent.verdict == verdict
                && recent.measurements.len() == measurements.len()
                && recent.measurements.iter().zip(measurements).all(|(a, b)| is_equal(a, b, detail))
        };
        if let Some(recent) = self.recent_spans.iter().flatten().find(is_same) {
            return out.extend_from_within(recent.written.clone());
        }
        let start = out.len();
        if let Some(verdict) = verdict {
            self.append_cached(out, "", "result", FixedValue::Text(result_label(!verdict.failed())));
            if let Verdict::Fail(cause) = verdict {
                self.append_cached(out, "", "cause", FixedValue::Text(cause.as_str()));
            }
        }
        self.write_failures(out, measurements);
        measurements.iter().for_each(|explained| self.write_measurement(out, *explained));
        self.recent_spans[self.next_recent] =
            Some(RecentSpan { verdict, measurements, written: start..out.len() });
        self.next_recent = (self.next_recent + 1) % RECENT_SPANS;
    }

    fn append_attribute(&mut self, out: &mut Vec<u8>, path: &[&str], value: Scalar<'_>) {
        write::attribute(out, SPAN_ATTRIBUTES, set_key(&mut self.key, self.annotator.emission, path), value);
    }

    /// As [`AttributeWriter::append_attribute`], for attributes that repeat. `metric` is empty for attributes of the
    /// span itself.
    fn append_cached(
        &mut self,
        out: &mut Vec<u8>,
        metric: &'static str,
        field: &'static str,
        value: FixedValue,
    ) {
        let (emission, key) = (self.annotator.emission, &mut self.key);
        self.cache.append(out, (metric, field, value), |out| {
            let path = [metric, field];
            let key = set_key(key, emission, &path[usize::from(metric.is_empty())..]);
            write::attribute(out, SPAN_ATTRIBUTES, key, value.scalar());
        });
    }

    /// Appends a field of a measurement. Attributes whose names contain a task are not cached.
    fn append_field(&mut self, out: &mut Vec<u8>, m: &Measurement, field: &'static str, value: FixedValue) {
        match m.task {
            None => self.append_cached(out, m.metric, field, value),
            Some(_) => self.append_attribute(out, &[&m.name(), field], value.scalar()),
        }
    }

    /// Writes the failing metrics of a span (P_fail(s) of paper 001), with the categories and the worst severity of
    /// their findings.
    fn write_failures(&mut self, out: &mut Vec<u8>, measurements: &[ExplainedMeasurement<'_>]) {
        let plain_measurements = || measurements.iter().map(|explained| explained.measurement);
        let failing = || plain_measurements().filter(|m| m.outcome.as_ref().is_ok_and(|o| !o.passed));
        let names: Vec<Cow<'static, str>> = failing().map(Measurement::name).take(MAX_ITEMS).collect();
        let metrics: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        if metrics.is_empty() {
            return;
        }
        let findings = || failing().flat_map(|m| m.outcome.iter().flat_map(|o| &o.findings));
        let mut categories: Vec<&str> = findings().filter_map(|f| f.category).map(|c| c.as_str()).collect();
        categories.sort_unstable();
        categories.dedup();
        categories.truncate(MAX_ITEMS);
        self.append_attribute(out, &["failed_metrics"], Scalar::Strs(&metrics));
        if !categories.is_empty() {
            self.append_attribute(out, &["category"], Scalar::Strs(&categories));
        }
        let worst = findings().map(|f| f.severity).max().unwrap_or(Severity::Medium);
        self.append_attribute(out, &["severity"], Scalar::Str(worst.as_str()));
    }

    fn write_measurement(&mut self, out: &mut Vec<u8>, explained: ExplainedMeasurement<'_>) {
        let m = explained.measurement;
        let name = &*m.name();
        let measured = match &m.outcome {
            Ok(measured) => measured,
            Err(reason) => {
                self.append_field(out, m, "result", FixedValue::Text("unmeasured"));
                self.append_field(out, m, "reason", FixedValue::Text(reason.as_str()));
                return self.write_details(out, m);
            }
        };
        match measured.value {
            Value::Score(score) => self.append_field(out, m, "score", FixedValue::Number(score)),
            Value::Label(label) => self.append_field(out, m, "label", FixedValue::Text(label)),
            Value::Number(number) => self.append_attribute(out, &[name, "value"], Scalar::Double(number)),
        }
        self.append_field(out, m, "result", FixedValue::Text(result_label(measured.passed)));
        if let Some(text) = explained.explanation {
            self.append_attribute(out, &[name, "explanation"], Scalar::Str(text));
        }
        let is_full = self.annotator.emission.detail == DetailLevel::Full;
        if is_full || !measured.passed {
            if let Some(normalized) = normalized(m.metric, &measured.value, self.annotator.emission) {
                self.append_attribute(out, &[name, "normalized"], Scalar::Double(normalized));
            }
            self.append_attribute(out, &[name, "judge"], Scalar::Str(&m.judge));
            if let Some(confidence) = measured.confidence() {
                self.append_attribute(out, &[name, "confidence"], Scalar::Double(confidence));
            }
        }
        if is_full && m.examined > 0 {
            let examined = i64::try_from(m.examined).unwrap_or(i64::MAX);
            self.append_attribute(out, &[name, "examined"], Scalar::Int(examined));
        }
        self.write_details(out, m);
    }

    fn write_details(&mut self, out: &mut Vec<u8>, m: &Measurement) {
        for Detail { key, value } in &m.details {
            let texts;
            let scalar = match value {
                DetailValue::Text(text) => Scalar::Str(text),
                DetailValue::Number(number) => Scalar::Double(*number),
                DetailValue::Count(n) => Scalar::Int(i64::try_from(*n).unwrap_or(i64::MAX)),
                DetailValue::Flag(flag) => Scalar::Bool(*flag),
                DetailValue::Texts(all) => {
                    texts = strs(first_items(all));
                    Scalar::Strs(&texts)
                }
            };
            self.append_attribute(out, &[&m.with_task(key)], scalar);
        }
    }

    /// Writes `verdict.trace.*`, on the root or on the topmost spans of an incomplete trace.
    fn write_trace(&mut self, out: &mut Vec<u8>) {
        let Annotator { verdicts, summary, .. } = self.annotator;
        self.annotator.trace_result(|key, value| self.append_attribute(out, &[key], value));
        self.append_attribute(out, &["trace.measured"], Scalar::Int(verdicts.trace.measured as i64));
        self.append_attribute(out, &["trace.unmeasured"], Scalar::Int(verdicts.trace.unmeasured as i64));
        self.annotator.trace_failures(|key, value| self.append_attribute(out, &[key], value));
        if let Some(usage) = &summary.usage {
            self.append_attribute(
                out,
                &["trace.judge_tokens"],
                Scalar::Int(usage.tokens.min(i64::MAX as u64) as i64),
            );
            self.append_attribute(out, &["trace.judge_cost_usd"], Scalar::Double(usage.cost_usd));
        }
        if summary.incomplete {
            self.append_attribute(out, &["incomplete"], Scalar::Bool(true));
        }
    }
}

impl Annotator<'_> {
    /// Whether span `i` carries the trace's verdict. The root of late spans was exported before: a verdict that they
    /// changed is written on the topmost of them, for back ends that accept no log records.
    pub(super) fn carries_trace(self, i: Idx) -> bool {
        let tree = &self.trace.tree;
        let writes_trace = self.summary.close_reason != CloseReason::Late || self.summary.changed;
        let is_root = || tree.spans.get(i).is_some_and(|span| span.parent.is_zero());
        tree.parent(i).is_none() && (writes_trace || is_root())
    }

    /// The attributes of the trace's verdict, on spans and in its event.
    pub(super) fn trace_result(self, mut put_attribute: impl FnMut(&str, Scalar<'_>)) {
        let summary = self.summary;
        put_attribute("trace.result", Scalar::Str(summary.passed.map_or("unmeasured", result_label)));
        if let Some(reason) = summary.unmeasured_reason {
            put_attribute("trace.reason", Scalar::Str(reason.as_str()));
        }
        if let Some(failure) = &self.verdicts.trace.failure {
            put_attribute("trace.failure_probability", Scalar::Double(failure.probability));
        }
        if let Some(outcome) = &self.verdicts.trace.outcome {
            put_attribute("trace.score", Scalar::Double(outcome.score));
        }
        put_attribute("trace.close_reason", Scalar::Str(summary.close_reason.as_str()));
        put_attribute("trace.revision", Scalar::Int(i64::from(summary.revision)));
    }

    /// The attributes of the trace's failures, on spans and in its event.
    pub(super) fn trace_failures(self, mut put_attribute: impl FnMut(&str, Scalar<'_>)) {
        let verdict = &self.verdicts.trace;
        if !verdict.failed_spans.is_empty() {
            put_attribute("trace.failed_spans", Scalar::Strs(&strs(&ids(self.trace, &verdict.failed_spans))));
            put_attribute(
                "trace.failure_chain",
                Scalar::Strs(&strs(&chain_ids(self.trace, &verdict.failure_chain))),
            );
            put_attribute("trace.failed_metrics", Scalar::Strs(first_items(&verdict.failed_metrics)));
        }
        if let Some(span) = verdict.root_cause.and_then(|index| self.trace.tree.spans.get(index)) {
            put_attribute("trace.root_cause", Scalar::Str(&span.id.to_string()));
        }
    }
}

/// Whether both measurements have the same attributes. Without findings and details these depend only on metric, task,
/// value and explanation, and with [`DetailLevel::Full`] also on the judge and the examined number.
fn is_equal(a: &ExplainedMeasurement<'_>, b: &ExplainedMeasurement<'_>, detail: DetailLevel) -> bool {
    if a.explanation != b.explanation {
        return false;
    }
    let (a, b) = (a.measurement, b.measurement);
    let has_only_values = |m: &Measurement| {
        m.details.is_empty() && m.outcome.as_ref().map_or(true, |o| o.passed && o.findings.is_empty())
    };
    let equal_outcomes = match (&a.outcome, &b.outcome) {
        (Ok(a), Ok(b)) => a.value == b.value,
        (Err(a), Err(b)) => a == b,
        _ => false,
    };
    let equal_evaluations =
        equal_outcomes && (detail == DetailLevel::Normal || a.examined == b.examined && a.judge == b.judge);
    equal_evaluations
        && std::ptr::eq(a.metric, b.metric)
        && a.task == b.task
        && has_only_values(a)
        && has_only_values(b)
}

/// Span ids in hex, at most [`MAX_ITEMS`].
pub(super) fn ids(trace: &AgentTrace, spans: &[Idx]) -> Vec<String> {
    spans.iter().take(MAX_ITEMS).filter_map(|&i| trace.tree.spans.get(i)).map(|s| s.id.to_string()).collect()
}

/// Span ids of a failure chain in hex; of one with more than [`MAX_ITEMS`] spans, the root and the last ones.
pub(super) fn chain_ids(trace: &AgentTrace, spans: &[Idx]) -> Vec<String> {
    match spans {
        [root, rest @ ..] if rest.len() >= MAX_ITEMS => {
            let mut hex_ids = ids(trace, &[*root]);
            hex_ids.extend(ids(trace, &rest[rest.len() + 1 - MAX_ITEMS..]));
            hex_ids
        }
        _ => ids(trace, spans),
    }
}

fn first_items<T>(all: &[T]) -> &[T] {
    &all[..all.len().min(MAX_ITEMS)]
}

fn strs(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

/// The rationales of a measurement with their quotes, cut at [`MAX_EXPLANATION`] bytes; `None` if there
/// are none or the configuration excludes them.
pub(super) fn explanation(m: &Measurement, emission: &Emission) -> Option<String> {
    let measured = m.outcome.as_ref().ok()?;
    let has_explanation = match emission.explanations {
        Explanations::Fail => !measured.passed,
        Explanations::All => true,
        Explanations::Off => false,
    };
    if !has_explanation || measured.findings.is_empty() && m.rationale.is_none() {
        return None;
    }
    let mut text = String::with_capacity(MAX_EXPLANATION / 2);
    text.push_str(m.rationale.as_deref().unwrap_or_default());
    for finding in &measured.findings {
        if !text.is_empty() {
            text.push('\n');
        }
        append_finding(&mut text, finding);
        if text.len() > MAX_EXPLANATION {
            break;
        }
    }
    // Redacted before it is truncated: no pattern matches a part of a secret.
    if let Cow::Owned(redacted) = emission.redactor.redact(&text) {
        text = redacted;
    }
    if text.len() > MAX_EXPLANATION {
        const CUT_MARK: &str = " [cut]";
        text.truncate(text.floor_char_boundary(MAX_EXPLANATION - CUT_MARK.len()));
        text.push_str(CUT_MARK);
    }
    Some(text)
}

/// Appends the rationale of a finding, its quote unless the rationale contains it, and the cited spans.
fn append_finding(text: &mut String, finding: &Finding) {
    text.push_str(&finding.rationale);
    if !finding.rationale.ends_with(['.', '!', '?']) {
        text.push('.');
    }
    let (rationale, quote) = (finding.rationale.as_bytes(), finding.quote.as_bytes());
    // Comparing at each occurrence of the first byte is cheaper than preparing a substring search.
    let is_in = |first: u8| {
        memchr::memchr_iter(first, rationale)
            .any(|start| rationale.get(start..).is_some_and(|r| r.starts_with(quote)))
    };
    if quote.first().is_some_and(|first| !is_in(*first)) {
        text.push_str(" Seen");
        if let Some(id) = finding.seen_in {
            text.push_str(" in span ");
            text.push_str(&id.to_string());
        }
        text.push_str(": \"");
        text.push_str(&finding.quote);
        text.push_str("\".");
    }
    for (n, id) in finding.cited.iter().take(MAX_ITEMS).enumerate() {
        text.push_str(if n == 0 { " See span " } else { ", " });
        text.push_str(&id.to_string());
    }
    if !finding.cited.is_empty() {
        text.push('.');
    }
}

/// The score on a scale from 0 to 1; `None` for labels and quantities.
pub(super) fn normalized(metric: &str, value: &Value, emission: &Emission) -> Option<f64> {
    let Value::Score(score) = *value else { return None };
    spec_among(&emission.custom, metric)?.scale.normalized(score)
}
