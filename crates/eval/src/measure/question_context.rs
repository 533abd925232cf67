//! The context of a question before it is asked, by which a cascade selects the judges.
//!
//! In: the metric, its span and form, and the findings of the rules. Out: [`QuestionContext`], which does not depend on
//! the judge.

use verdict_otlp::trace::Idx;

use super::ask::form::LABEL;
use super::ask::step::measurements_at;
use super::inputs::JudgeInputs;
use super::question::AnswerForm;
use super::table::{MetricSpec, Scale};
use super::{Settings, Severity};
use crate::recognise::AgentTrace;

/// The part of a trace that a question is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QuestionSubject {
    #[default]
    Span,
    Agent,
    Trace,
}

/// The criterion by which an answer passes or fails.
#[derive(Clone, PartialEq, Debug)]
pub enum PassCriterion {
    /// The score of the form passes from this value.
    Score(f64),
    /// The value of the field `key` passes, fails, or is neither.
    Label { key: &'static str, pass: Vec<&'static str>, fail: Vec<&'static str> },
}

/// The facts about a question that are known before it is asked.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct QuestionContext {
    pub subject: QuestionSubject,
    /// Whether the rules pass the same metric on the span. If they do not measure it, false if another metric of the
    /// rules fails on the span, else `None`.
    pub rules_passed: Option<bool>,
    /// Whether the rules found a failure of high severity on the span.
    pub has_severe_finding: bool,
    /// The criterion of a pass; `None` for questions without a verdict, such as a question for passages.
    pub criterion: Option<PassCriterion>,
    /// Whether the trace is open, so that the prompt may contain content of a service that is not known yet.
    pub is_early: bool,
}

impl QuestionContext {
    /// The context of a question of the metric `row` about the span `span_index`.
    pub(super) fn new(
        row: &MetricSpec,
        inputs: JudgeInputs<'_>,
        span_index: Idx,
        form: &AnswerForm,
    ) -> QuestionContext {
        let JudgeInputs { trace, settings, rule_measurements } = inputs;
        let rule_results = || {
            let measurements = measurements_at(rule_measurements, span_index).iter();
            measurements.filter_map(|m| Some((m.metric == row.name, m.outcome.as_ref().ok()?)))
        };
        let metric_passed = rule_results().find(|(is_own, _)| *is_own).map(|(_, m)| m.passed);
        let has_failed = rule_results().any(|(_, m)| !m.passed).then_some(false);
        let failing = rule_results().filter(|(_, m)| !m.passed);
        let has_severe_finding = failing.flat_map(|(_, m)| &m.findings).any(|f| f.severity == Severity::High);
        QuestionContext {
            subject: subject(row, trace, span_index),
            rules_passed: metric_passed.or(has_failed),
            has_severe_finding,
            criterion: criterion(row, settings, trace, span_index, form),
            is_early: false,
        }
    }

    /// The context of the last question, about the outcome of a trace.
    pub(crate) fn for_outcome() -> QuestionContext {
        QuestionContext { subject: QuestionSubject::Trace, ..QuestionContext::default() }
    }
}

/// The part of the trace that a question of the metric on a span is about.
fn subject(row: &MetricSpec, trace: &AgentTrace, span_index: Idx) -> QuestionSubject {
    match row.about.is_run() {
        false => QuestionSubject::Span,
        true if trace.tree.root() == Some(span_index) => QuestionSubject::Trace,
        true => QuestionSubject::Agent,
    }
}

/// The text by which judges answer the question.
fn criterion(
    row: &MetricSpec,
    settings: &Settings,
    trace: &AgentTrace,
    span_index: Idx,
    form: &AnswerForm,
) -> Option<PassCriterion> {
    match (row.rubric, row.scale) {
        (Some(_), Scale::Labels(labels)) => {
            let (fail, pass) = labels.iter().partition(|label| settings.fails(row, label));
            Some(PassCriterion::Label { key: LABEL, pass, fail })
        }
        (Some(_), _) => {
            form.score.as_ref().map(|_| PassCriterion::Score(settings.threshold(row, trace, span_index)))
        }
        (None, _) if form.answers_yes_or_no() => {
            Some(PassCriterion::Label { key: "answer", pass: vec!["yes"], fail: vec!["no"] })
        }
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::measure::ask::form::grade_only;
    use crate::measure::defects::measured;
    use crate::measure::sample::{SampleTrace, llm};
    use crate::measure::table::spec;
    use crate::measure::{Finding, Measured, Measurement, Value};

    fn rule(metric: &'static str, score: f64) -> Measurement {
        let findings = if score < 4.0 { vec![Finding::new("r", "q", score)] } else { Vec::new() };
        measured(0, metric, Measured { value: Value::Score(score), passed: score >= 4.0, findings })
    }

    #[test]
    fn context_follows_from_rules_threshold_and_span() {
        let mut sample = SampleTrace::new();
        let root = sample.span(None, llm(Vec::new(), "one"));
        sample.span(Some(root), llm(Vec::new(), "two"));
        let (trace, settings) = (sample.trace(), Settings::default());
        let context = |metric: &str, span_index, rule_measurements: &[Measurement]| {
            let row = spec(metric).unwrap();
            QuestionContext::new(
                row,
                JudgeInputs { trace: &trace, settings: &settings, rule_measurements },
                span_index,
                &grade_only(row),
            )
        };
        let metric_name = "instruction_following";
        let passing_context = context(metric_name, 0, &[rule(metric_name, 5.0)]);
        assert_eq!(
            (passing_context.subject, passing_context.rules_passed, passing_context.has_severe_finding),
            (QuestionSubject::Span, Some(true), false)
        );
        assert_eq!(passing_context.criterion, Some(PassCriterion::Score(4.0)));
        // Another metric that fails on the span is evidence against a pass; one that passes is no evidence.
        let other = context(metric_name, 0, &[rule("reasoning_integrity", 1.0)]);
        assert_eq!((other.rules_passed, other.has_severe_finding), (Some(false), true));
        assert_eq!(context(metric_name, 0, &[rule("reasoning_integrity", 5.0)]).rules_passed, None);
        assert_eq!(context(metric_name, 1, &[rule(metric_name, 1.0)]).rules_passed, None, "of another span");
        assert_eq!(context("completeness", 0, &[]).subject, QuestionSubject::Trace);
        assert_eq!(context("completeness", 1, &[]).subject, QuestionSubject::Agent);
        let Some(PassCriterion::Label { key: "label", pass, fail }) = context("avoidance", 0, &[]).criterion
        else {
            panic!()
        };
        assert_eq!((pass.len(), fail), (2, vec!["missing_knowledge", "other"]));
    }

    #[test]
    fn questions_of_a_checklist_have_a_verdict_and_those_for_passages_none() {
        let trace = SampleTrace::new().trace();
        let settings = Settings::default();
        let criterion = |fields| {
            let inputs = JudgeInputs { trace: &trace, settings: &settings, rule_measurements: &[] };
            QuestionContext::new(
                spec("checklist.verdict").unwrap(),
                inputs,
                0,
                &Arc::clone(&AnswerForm::object("f", fields)),
            )
            .criterion
        };
        let answer = json!({ "answer": { "type": "string", "enum": ["yes", "no", "unclear"] } });
        assert!(matches!(criterion(answer), Some(PassCriterion::Label { key: "answer", .. })));
        assert_eq!(criterion(json!({ "thought": { "type": "string" } })), None);
    }
}
