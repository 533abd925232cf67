//! The attribute contract: which `verdict.*` attributes a span gets.

use std::borrow::Cow;
use std::ops::Range;

use verdict_otlp::trace::{CloseReason, Idx};
use verdict_otlp::value::SPAN_ATTRIBUTES;
use verdict_otlp::write::{self, Scalar};

use super::attribute_cache::{AttributeCache, Fixed};
use super::summary::{ExplainedMeasurement, MAX_EXPLANATION, MAX_ITEMS, TraceSummary};
use super::{Emission, Explanations};
use crate::measure::table::spec_among;
use crate::measure::{self, Detail, Finding, Measurement, Severity, Value};
use crate::propagate::{Verdict, Verdicts};
use crate::recognise::AgentTrace;

/// `pass` or `fail`.
pub(super) fn word(passed: bool) -> &'static str {
    if passed { "pass" } else { "fail" }
}

/// Makes `key` the configured prefix, and the parts joined by dots.
fn name<'k>(key: &'k mut String, emission: &Emission, path: &[&str]) -> &'k str {
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
pub(super) struct Writer<'a> {
    trace: &'a AgentTrace,
    verdicts: &'a Verdicts,
    summary: &'a TraceSummary,
    emission: &'a Emission,
    encoded: AttributeCache,
    /// The key that is being written.
    key: String,
    recent: [Option<RecentSpan<'a>>; RECENT],
    next: usize,
}

/// A span of which was written of late, and where that stands.
struct RecentSpan<'a> {
    verdict: Option<Verdict>,
    own: &'a [ExplainedMeasurement<'a>],
    span_attributes: Range<usize>,
}

/// Spans of a trace that are measured alike are of a few sorts, and take turns.
const RECENT: usize = 4;

impl<'a> Writer<'a> {
    pub(super) fn new(
        trace: &'a AgentTrace,
        verdicts: &'a Verdicts,
        summary: &'a TraceSummary,
        emission: &'a Emission,
    ) -> Writer<'a> {
        Writer {
            trace,
            verdicts,
            summary,
            emission,
            encoded: AttributeCache::new(),
            key: String::with_capacity(64),
            recent: Default::default(),
            next: 0,
        }
    }

    /// Appends what there is to say of span `i`, whose own measurements are `own`. `out` is the same
    /// for every span, and only grows.
    pub(super) fn span(&mut self, out: &mut Vec<u8>, i: Idx, own: &'a [ExplainedMeasurement<'a>]) {
        let verdict = self.verdicts.of.get(i).copied().flatten();
        self.span_attributes(out, verdict, own);
        if self.summary.reason == CloseReason::Late {
            self.put(out, &["late"], Scalar::Bool(true));
        }
        // A late span's parent has gone out before it; only a root that is late speaks for the trace.
        let late = self.summary.reason == CloseReason::Late;
        if self.trace.tree.parent(i).is_none() && (!late || self.trace.tree.spans[i].parent.is_zero()) {
            self.trace(out);
        }
    }

    /// A span's verdict and measurements: copied where a recent span's came to the same.
    fn span_attributes(
        &mut self,
        out: &mut Vec<u8>,
        verdict: Option<Verdict>,
        own: &'a [ExplainedMeasurement<'a>],
    ) {
        let alike = |before: &&RecentSpan<'_>| {
            before.verdict == verdict
                && before.own.len() == own.len()
                && before.own.iter().zip(own).all(|(a, b)| is_equal(a, b))
        };
        if let Some(before) = self.recent.iter().flatten().find(alike) {
            return out.extend_from_within(before.span_attributes.clone());
        }
        let start = out.len();
        if let Some(verdict) = verdict {
            self.push_cached(out, "", "result", Fixed::Word(word(!verdict.failed())));
            if let Verdict::Fail(cause) = verdict {
                self.push_cached(out, "", "cause", Fixed::Word(cause.as_str()));
            }
        }
        self.failures(out, own);
        own.iter().for_each(|explained| self.metric(out, *explained));
        self.recent[self.next] = Some(RecentSpan { verdict, own, span_attributes: start..out.len() });
        self.next = (self.next + 1) % RECENT;
    }

    fn put(&mut self, out: &mut Vec<u8>, path: &[&str], value: Scalar<'_>) {
        write::attribute(out, SPAN_ATTRIBUTES, name(&mut self.key, self.emission, path), value);
    }

    /// As [`Writer::put`], for what is said again and again: `metric` is empty for the span's own.
    fn push_cached(&mut self, out: &mut Vec<u8>, metric: &'static str, field: &'static str, value: Fixed) {
        let (emission, key) = (self.emission, &mut self.key);
        self.encoded.put(out, metric, field, value, || match metric {
            "" => name(key, emission, &[field]),
            metric => name(key, emission, &[metric, field]),
        });
    }

    /// P_fail(s), and the categories and worst severity of its findings.
    fn failures(&mut self, out: &mut Vec<u8>, own: &[ExplainedMeasurement<'_>]) {
        let failing = || {
            own.iter()
                .map(|explained| explained.measurement)
                .filter(|m| m.outcome.as_ref().is_ok_and(|o| !o.passed))
        };
        let metrics: Vec<&str> = failing().map(|m| m.metric).take(MAX_ITEMS).collect();
        if metrics.is_empty() {
            return;
        }
        let findings = || failing().flat_map(|m| m.outcome.iter().flat_map(|o| &o.findings));
        let mut categories: Vec<&str> = findings().filter_map(|f| f.category).map(|c| c.as_str()).collect();
        categories.sort_unstable();
        categories.dedup();
        categories.truncate(MAX_ITEMS);
        self.put(out, &["failed_metrics"], Scalar::Strs(&metrics));
        if !categories.is_empty() {
            self.put(out, &["category"], Scalar::Strs(&categories));
        }
        let worst = findings().map(|f| f.severity).max().unwrap_or(Severity::Medium);
        self.put(out, &["severity"], Scalar::Str(worst.as_str()));
    }

    fn metric(&mut self, out: &mut Vec<u8>, explained: ExplainedMeasurement<'_>) {
        let m = explained.measurement;
        let measured = match &m.outcome {
            Ok(measured) => measured,
            Err(reason) => {
                self.push_cached(out, m.metric, "result", Fixed::Word("unmeasured"));
                self.push_cached(out, m.metric, "reason", Fixed::Word(reason.as_str()));
                self.details(out, m);
                return;
            }
        };
        match measured.value {
            Value::Score(score) => self.push_cached(out, m.metric, "score", Fixed::Number(score)),
            Value::Label(label) => self.push_cached(out, m.metric, "label", Fixed::Word(label)),
            Value::Number(number) => self.put(out, &[m.metric, "value"], Scalar::Double(number)),
        }
        self.push_cached(out, m.metric, "result", Fixed::Word(word(measured.passed)));
        if let Some(text) = explained.explanation {
            self.put(out, &[m.metric, "explanation"], Scalar::Str(text));
        }
        if !measured.passed {
            if let Some(normalized) = normalized(m.metric, &measured.value, self.emission) {
                self.put(out, &[m.metric, "normalized"], Scalar::Double(normalized));
            }
            self.put(out, &[m.metric, "judge"], Scalar::Str(&m.judge));
        }
        self.details(out, m);
    }

    fn details(&mut self, out: &mut Vec<u8>, m: &Measurement) {
        for Detail { key, value } in &m.details {
            match value {
                measure::DetailValue::Text(text) => self.put(out, &[key], Scalar::Str(text)),
                measure::DetailValue::Number(number) => self.put(out, &[key], Scalar::Double(*number)),
                measure::DetailValue::Count(n) => {
                    self.put(out, &[key], Scalar::Int(i64::try_from(*n).unwrap_or(i64::MAX)));
                }
                measure::DetailValue::Flag(flag) => self.put(out, &[key], Scalar::Bool(*flag)),
                measure::DetailValue::Texts(texts) => {
                    let cut = &texts[..texts.len().min(MAX_ITEMS)];
                    self.put(out, &[key], Scalar::Strs(&strs(cut)));
                }
            }
        }
    }

    /// `verdict.trace.*`, on the root and on a partial trace's topmost spans.
    fn trace(&mut self, out: &mut Vec<u8>) {
        let trace = &self.verdicts.trace;
        let result = self.summary.passed.map_or("unmeasured", word);
        self.put(out, &["trace", "result"], Scalar::Str(result));
        if let Some(why) = self.summary.unmeasured {
            self.put(out, &["trace", "reason"], Scalar::Str(why.as_str()));
        }
        self.put(out, &["trace", "close_reason"], Scalar::Str(self.summary.reason.as_str()));
        self.put(out, &["trace", "revision"], Scalar::Int(i64::from(self.summary.revision)));
        self.put(out, &["trace", "measured"], Scalar::Int(trace.measured as i64));
        self.put(out, &["trace", "unmeasured"], Scalar::Int(trace.unmeasured as i64));
        if !trace.failed_spans.is_empty() {
            let failed = ids(self.trace, &trace.failed_spans);
            let chain = chain(self.trace, &trace.failure_chain);
            let metrics = &trace.failed_metrics[..trace.failed_metrics.len().min(MAX_ITEMS)];
            self.put(out, &["trace", "failed_spans"], Scalar::Strs(&strs(&failed)));
            self.put(out, &["trace", "failure_chain"], Scalar::Strs(&strs(&chain)));
            self.put(out, &["trace", "failed_metrics"], Scalar::Strs(metrics));
        }
        if let Some(usage) = &self.summary.usage {
            self.put(out, &["trace", "judge_tokens"], Scalar::Int(usage.tokens.min(i64::MAX as u64) as i64));
            self.put(out, &["trace", "judge_cost_usd"], Scalar::Double(usage.cost_usd));
        }
        if self.summary.incomplete {
            self.put(out, &["incomplete"], Scalar::Bool(true));
        }
    }
}

/// Both are written alike: nothing but metric, value and the same explanation is said of either.
fn is_equal(a: &ExplainedMeasurement<'_>, b: &ExplainedMeasurement<'_>) -> bool {
    if a.explanation != b.explanation {
        return false;
    }
    let (a, b) = (a.measurement, b.measurement);
    let bare = |m: &Measurement| {
        m.details.is_empty() && m.outcome.as_ref().map_or(true, |o| o.passed && o.findings.is_empty())
    };
    let same = match (&a.outcome, &b.outcome) {
        (Ok(a), Ok(b)) => a.value == b.value,
        (Err(a), Err(b)) => a == b,
        _ => false,
    };
    same && std::ptr::eq(a.metric, b.metric) && bare(a) && bare(b)
}

/// Span ids in hex, at most [`MAX_ITEMS`].
pub(super) fn ids(trace: &AgentTrace, spans: &[Idx]) -> Vec<String> {
    spans.iter().take(MAX_ITEMS).filter_map(|&i| trace.tree.spans.get(i)).map(|s| s.id.to_string()).collect()
}

/// A chain's span ids in hex. Of one that is too long the middle is left out: what counts is where
/// it leads.
pub(super) fn chain(trace: &AgentTrace, spans: &[Idx]) -> Vec<String> {
    match spans {
        [root, rest @ ..] if rest.len() >= MAX_ITEMS => {
            let mut all = ids(trace, &[*root]);
            all.extend(ids(trace, &rest[rest.len() + 1 - MAX_ITEMS..]));
            all
        }
        _ => ids(trace, spans),
    }
}

pub(super) fn strs(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

/// The rationales of a measurement with their quotes, cut at [`MAX_EXPLANATION`] bytes; `None`
/// where there is nothing to say or the configuration says not to.
pub(super) fn explanation(m: &Measurement, emission: &Emission) -> Option<String> {
    let measured = m.outcome.as_ref().ok()?;
    let wanted = match emission.explanations {
        Explanations::Fail => !measured.passed,
        Explanations::All => true,
        Explanations::Off => false,
    };
    if !wanted || measured.findings.is_empty() && m.rationale.is_none() {
        return None;
    }
    let mut text = m.rationale.as_deref().unwrap_or_default().to_owned();
    for finding in &measured.findings {
        if !text.is_empty() {
            text.push('\n');
        }
        sentence(&mut text, finding);
        if text.len() > MAX_EXPLANATION {
            break;
        }
    }
    // Before it is cut: half a secret is not known as one.
    if let Cow::Owned(redacted) = emission.redactor.redact(&text) {
        text = redacted;
    }
    if text.len() > MAX_EXPLANATION {
        const CUT: &str = " [cut]";
        text.truncate(text.floor_char_boundary(MAX_EXPLANATION - CUT.len()));
        text.push_str(CUT);
    }
    Some(text)
}

fn sentence(text: &mut String, finding: &Finding) {
    text.push_str(&finding.rationale);
    if !finding.rationale.ends_with(['.', '!', '?']) {
        text.push('.');
    }
    if !finding.quote.is_empty() && !finding.rationale.contains(&finding.quote) {
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

/// A score on 0..1; a label or a quantity has no such thing.
pub(super) fn normalized(metric: &str, value: &Value, emission: &Emission) -> Option<f64> {
    let Value::Score(score) = *value else { return None };
    spec_among(&emission.custom, metric)?.scale.normalised(score)
}
