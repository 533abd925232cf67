//! The decision whether a question is asked, by trace, span and condition.
//!
//! In: a metric, a span, the findings of the rules in the trace. Out: whether the question is asked; if
//! not, whether the metric is unmeasured. Sampling hashes the trace id, so that every process selects
//! the same traces, independently of upstream samplers that also use the id.

use verdict_config::matches;
use verdict_otlp::trace::Idx;

use super::asker::Asker;
use super::config::AskCondition;
use super::stable_hash::{stable_hash, unit_fraction};
use super::{applicability, step};
use crate::measure::table::SectionKey;
use crate::measure::{Context, Measurement, MetricSpec, Unmeasured};
use crate::recognise::AgentTrace;

/// Whether a question is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AskDecision {
    Ask,
    /// The question is not asked, and the metric is unmeasured for this reason.
    Unmeasured(Unmeasured),
    /// The metric does not apply, or its result is already certain.
    Skip,
}

/// The state of a trace that conditions depend on, computed once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskConditions {
    /// Whether the trace is still open.
    is_open: bool,
    /// Whether the rules found a failure in the trace.
    has_failure: bool,
}

impl AskConditions {
    /// The conditions of a closed trace.
    pub(crate) fn closed(rules: &[Measurement]) -> AskConditions {
        let has_failure = rules.iter().any(|m| m.outcome.as_ref().is_ok_and(|measured| !measured.passed));
        AskConditions { is_open: false, has_failure }
    }

    /// The conditions of an open trace, whose failures are not known yet.
    pub(crate) fn open() -> AskConditions {
        AskConditions { is_open: true, has_failure: false }
    }
}

impl Asker {
    /// Whether judges are asked for the metric of `context` about its span.
    pub(crate) fn decide(&self, context: &Context<'_>, state: AskConditions) -> AskDecision {
        let Context { row, trace, at: span_index, rule_measurements, .. } = *context;
        let not_applicable = row.rubric.and_then(|_| applicability(context).err());
        if not_applicable == Some(None) || !self.is_selected(trace, span_index) {
            return AskDecision::Skip;
        }
        let rule_results = || {
            step::measurements_at(rule_measurements, span_index)
                .iter()
                .filter(|m| m.metric == row.name)
                .filter_map(|m| m.outcome.as_ref().ok())
        };
        // A fact found by a rule is final.
        if rule_results().any(|measured| !measured.passed && measured.findings.iter().any(|f| f.fact)) {
            return AskDecision::Skip;
        }
        if let Some(Some(reason)) = not_applicable {
            return AskDecision::Unmeasured(reason);
        }
        let meets_condition = match self.condition(row) {
            AskCondition::Always => true,
            // The result is unsure without a measurement by rules, or with findings that are not facts.
            AskCondition::Unsure => {
                !state.is_open && !rule_results().any(|measured| measured.findings.is_empty())
            }
            AskCondition::Failing => state.has_failure,
        };
        if self.is_sampled(trace, span_index) && meets_condition {
            AskDecision::Ask
        } else {
            AskDecision::Unmeasured(Unmeasured::SampledOut)
        }
    }

    /// Whether judges are asked about this trace, by the share of the span's service.
    pub(crate) fn is_sampled(&self, trace: &AgentTrace, span_index: Idx) -> bool {
        let service = trace.views.get(span_index).and_then(|r| r.service.as_deref()).unwrap_or_default();
        unit_fraction(stable_hash([&b"sample"[..], &trace.tree.id.0])) < self.sampling_rate(service)
    }

    /// Whether the configuration selects the span by its kind, name and service.
    fn is_selected(&self, trace: &AgentTrace, span_index: Idx) -> bool {
        let Some(view) = trace.views.get(span_index) else { return false };
        let is_listed = |patterns: &[String], value: Option<&str>| {
            patterns.is_empty() || value.is_some_and(|value| patterns.iter().any(|p| matches(p, value)))
        };
        let filter = &self.ask.spans;
        (filter.kind.is_empty() || filter.kind.contains(&view.kind))
            && is_listed(&filter.name, view.name.as_deref())
            && is_listed(&filter.service, view.service.as_deref())
    }

    /// The share of traces about which judges are asked, for spans of a service.
    fn sampling_rate(&self, service: &str) -> f64 {
        let sample = &self.ask.sample;
        let named = sample.by_service.get(service).or_else(|| {
            let fitting = sample.by_service.iter().filter(|(pattern, _)| matches(pattern, service));
            fitting.max_by_key(|(pattern, _)| pattern.len()).map(|(_, rate)| rate)
        });
        named.copied().unwrap_or(sample.rate)
    }

    /// The condition on which judges are asked for a metric.
    fn condition(&self, row: &MetricSpec) -> AskCondition {
        let by_metric = &self.ask.when_by_metric;
        let gpa_condition =
            || by_metric.get(SectionKey::gpa.as_str()).filter(|_| row.section == Some(SectionKey::gpa));
        by_metric.get(row.name).or_else(gpa_condition).copied().unwrap_or(self.ask.when)
    }
}
