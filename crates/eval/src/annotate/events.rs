//! Writes evaluation results as events, in the form of the GenAI semantic conventions:
//! `gen_ai.evaluation.result`.
//!
//! Records are written field by field, not encoded from opentelemetry-proto's `LogRecord`. One reused
//! `LogRecord`, encoded by prost, raised the hot-path benchmark (`agent`, "ours, all rules") from 101,746
//! to 105,255 instructions per span, 3.4 %: prost computes the length of a nested message at every
//! level above it. opentelemetry-proto would also bring opentelemetry_sdk into this
//! crate, with an executor and a clock. The field numbers come from `proto/otlp.proto`; the tests decode
//! the records with opentelemetry-proto.

use verdict_otlp::field_numbers::{span, span_event};
use verdict_otlp::trace::Idx;
use verdict_otlp::value::{EVENT_ATTRIBUTES, LOG_ATTRIBUTES};
use verdict_otlp::write::{self, Scalar};

use super::attribute_cache::{AttributeCache, FixedValue};
use super::attributes::{result_label, set_key};
use super::findings::TraceFindings;
use super::record_head::{INFO, WARN, put_head};
use super::summary::{Annotator, ExplainedMeasurement};
use crate::measure::defects::RULES_JUDGE;
use crate::measure::sections::agent_name;
use crate::measure::{Measurement, Severity, Unmeasured, Value};
use crate::propagate::Verdict;
use crate::recognise::AgentTrace;

/// The event's name.
pub const EVALUATION_EVENT: &str = "gen_ai.evaluation.result";
/// `gen_ai.evaluation.name` of the verdict of a trace.
pub const TRACE_EVALUATION: &str = "trace";

/// The encoded attributes of the evaluated span and of the evaluator, cached: consecutive measurements usually share
/// both.
pub(super) struct SubjectAttributes<'a> {
    /// The protobuf field number of the attributes.
    field: u32,
    /// The span whose attributes `span_attributes` contains.
    cached_span: Option<Idx>,
    span_attributes: Vec<u8>,
    judge: Option<&'a str>,
    judge_attributes: Vec<u8>,
    cache: AttributeCache,
}

impl<'a> SubjectAttributes<'a> {
    pub(super) fn new(field: u32) -> SubjectAttributes<'a> {
        let cache = AttributeCache::new();
        SubjectAttributes {
            field,
            cached_span: None,
            span_attributes: Vec::new(),
            judge: None,
            judge_attributes: Vec::new(),
            cache,
        }
    }

    /// Appends the attributes of a measurement.
    fn append(&mut self, out: &mut Vec<u8>, trace: &AgentTrace, m: &'a Measurement) {
        if self.cached_span != Some(m.at) {
            self.cached_span = Some(m.at);
            self.span_attributes.clear();
            put_subject(&mut self.span_attributes, self.field, trace, m.at, false);
        }
        out.extend_from_slice(&self.span_attributes);
        // A measurement without a value has the judge `rules` if no judge answered. It has no evaluator then.
        if m.outcome.is_err() && m.judge == RULES_JUDGE {
            return;
        }
        if self.judge != Some(&*m.judge) {
            self.judge = Some(&m.judge);
            self.judge_attributes.clear();
            put_evaluator(&mut self.judge_attributes, self.field, &m.judge);
        }
        out.extend_from_slice(&self.judge_attributes);
    }
}

/// Appends the target of an evaluation: the agent, and the response and conversation of the span. If the evaluation is
/// of the whole trace, agent and conversation are those of any span, since the root may be a workflow around the agent.
fn put_subject(out: &mut Vec<u8>, field: u32, trace: &AgentTrace, index: Idx, is_whole_trace: bool) {
    let Some(view) = trace.views.get(index) else { return };
    let agent = || trace.agents.iter().filter(|_| is_whole_trace).find_map(|agent| agent.name.as_deref());
    let session = || trace.views.iter().filter(|_| is_whole_trace).find_map(|view| view.session.as_deref());
    let target = agent_name(trace, index).or_else(agent).or(view.service.as_deref());
    let ids = [
        ("gen_ai.evaluation.target", target),
        ("gen_ai.response.id", view.response_id.as_deref()),
        ("gen_ai.conversation.id", view.session.as_deref().or_else(session)),
    ];
    for (key, value) in ids {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            write::attribute(out, field, key, Scalar::Str(value));
        }
    }
}

/// Appends the evaluator. `judge` is the value of `verdict.<metric>.judge`.
fn put_evaluator(out: &mut Vec<u8>, field: u32, judge: &str) {
    let name = |judge: &'_ str| judge.rsplit_once('/').map_or(judge, |(name, _)| name).to_owned();
    let is_code = judge == RULES_JUDGE || judge.starts_with("task/");
    let id =
        if is_code { "rules".to_owned() } else { judge.split('+').map(name).collect::<Vec<_>>().join("+") };
    let mut put_attribute = |key: &str, value: &str| write::attribute(out, field, key, Scalar::Str(value));
    put_attribute("gen_ai.evaluation.evaluator.id", &id);
    put_attribute("gen_ai.evaluation.evaluator.version", judge);
    put_attribute("gen_ai.evaluation.evaluator.type", if is_code { "code" } else { "llm" });
}

impl Annotator<'_> {
    /// Appends the log record of a measurement; of one without a value only with `log_unmeasured`.
    pub(super) fn measurement_record<'m>(
        self,
        record: &mut Vec<u8>,
        explained: ExplainedMeasurement<'m>,
        subject_attributes: &mut SubjectAttributes<'m>,
        findings: &TraceFindings<'_>,
    ) {
        let m = explained.measurement;
        if m.outcome.is_ok() || self.emission.log_unmeasured {
            self.put_record_head(record, m.at, m.outcome.as_ref().is_ok_and(|o| !o.passed));
            self.put_evaluation(record, LOG_ATTRIBUTES, explained, subject_attributes, findings);
        }
    }

    /// Appends the log record of the trace's verdict.
    pub(super) fn trace_record(self, record: &mut Vec<u8>, root: Idx, findings: &TraceFindings<'_>) {
        let passed = self.summary.passed;
        self.put_record_head(record, root, passed == Some(false));
        let mut put_attribute =
            |key: &str, value: Scalar<'_>| write::attribute(record, LOG_ATTRIBUTES, key, value);
        let (mut key, emission) = (String::new(), self.emission);
        put_attribute("gen_ai.evaluation.name", Scalar::Str(TRACE_EVALUATION));
        put_attribute(
            "gen_ai.evaluation.score.label",
            Scalar::Str(passed.map_or("unmeasured", result_label)),
        );
        if let Some(outcome) = &self.verdicts.trace.outcome {
            put_attribute("gen_ai.evaluation.score.value", Scalar::Double(outcome.score));
            if let Some(rationale) =
                self.emission.disclose(&outcome.rationale).filter(|text| !text.is_empty())
            {
                put_attribute("gen_ai.evaluation.explanation", Scalar::Str(&rationale));
            }
        }
        let mut put_verdict =
            |name: &str, value: Scalar<'_>| put_attribute(set_key(&mut key, emission, &[name]), value);
        self.trace_result(&mut put_verdict);
        self.trace_failures(&mut put_verdict);
        if !self.trace.tree.spans[root].parent.is_zero() {
            put_verdict("trace.rootless", Scalar::Bool(true));
        }
        if let Some(signature) = findings.trace_signature() {
            put_verdict("signature", Scalar::Str(&signature.to_string()));
        }
        if let Some(severity) = self.worst_severity().filter(|_| passed == Some(false)) {
            put_verdict("severity", Scalar::Str(severity.as_str()));
        }
        if self
            .measurements
            .iter()
            .any(|m| m.outcome.as_ref().is_err_and(|reason| *reason == Unmeasured::Budget))
        {
            put_verdict("trace.judge_budget", Scalar::Str("spent"));
        }
        put_subject(record, LOG_ATTRIBUTES, self.trace, root, true);
        if let Some(outcome) = &self.verdicts.trace.outcome {
            put_evaluator(record, LOG_ATTRIBUTES, &outcome.judge);
        }
    }

    /// The worst severity among the failures of spans whose verdict is fail.
    fn worst_severity(self) -> Option<Severity> {
        let failed = |m: &&Measurement| {
            self.verdicts.by_span.get(m.at).copied().flatten().is_some_and(Verdict::failed)
        };
        let failing = self.measurements.iter().filter(failed).filter_map(|m| m.outcome.as_ref().ok());
        let findings = failing.filter(|measured| !measured.passed).flat_map(|measured| &measured.findings);
        findings.filter(|finding| !finding.is_note()).map(|finding| finding.severity).max()
    }

    /// Appends the event of a measurement to a span; of one without a value only with `log_unmeasured`.
    pub(super) fn span_event<'m>(
        self,
        out: &mut Vec<u8>,
        explained: ExplainedMeasurement<'m>,
        subject_attributes: &mut SubjectAttributes<'m>,
        findings: &TraceFindings<'_>,
    ) {
        if explained.measurement.outcome.is_ok() || self.emission.log_unmeasured {
            let mut event = Vec::new();
            write::fixed64(&mut event, span_event::TIME_UNIX_NANO, self.summary.now);
            write::bytes(&mut event, span_event::NAME, EVALUATION_EVENT.as_bytes());
            self.put_evaluation(&mut event, EVENT_ATTRIBUTES, explained, subject_attributes, findings);
            write::bytes(out, span::EVENTS, &event);
        }
    }

    /// Appends the fields of a `LogRecord` about span `index`, except its attributes.
    fn put_record_head(self, record: &mut Vec<u8>, index: Idx, failed: bool) {
        let span = &self.trace.tree.spans[index];
        // The event's time is the end of the span; the observed time is that of the evaluation.
        let time = span.as_sent(if span.end == 0 { span.start } else { span.end });
        let (ids, times) = ((self.trace.tree.id, span.id), (time, self.summary.now));
        put_head(record, ids, times, if failed { WARN } else { INFO }, EVALUATION_EVENT);
    }

    /// Appends the attributes of a measurement's record or event.
    fn put_evaluation<'m>(
        self,
        out: &mut Vec<u8>,
        field: u32,
        explained: ExplainedMeasurement<'m>,
        subject_attributes: &mut SubjectAttributes<'m>,
        findings: &TraceFindings<'_>,
    ) {
        let m = explained.measurement;
        let (label, value) = match &m.outcome {
            Ok(measured) => match measured.value {
                Value::Score(score) | Value::Number(score) => {
                    (result_label(measured.passed), FixedValue::Number(score))
                }
                Value::Label(label) => (label, FixedValue::Text(label)),
            },
            Err(reason) => ("unmeasured", FixedValue::Text(reason.as_str())),
        };
        let write_result = |out: &mut Vec<u8>| {
            let mut put_attribute = |key: &str, value: Scalar<'_>| write::attribute(out, field, key, value);
            put_attribute("gen_ai.evaluation.name", Scalar::Str(&m.name()));
            if let FixedValue::Number(score) = value {
                put_attribute("gen_ai.evaluation.score.value", Scalar::Double(score));
            }
            put_attribute("gen_ai.evaluation.score.label", Scalar::Str(label));
            // `error.type` is for failed evaluations, not for those that do not apply.
            if let Err(reason @ (Unmeasured::JudgeError | Unmeasured::Timeout)) = &m.outcome {
                put_attribute("error.type", Scalar::Str(reason.as_str()));
            }
        };
        match m.task {
            None => subject_attributes.cache.append(out, (m.metric, label, value), write_result),
            Some(_) => write_result(out),
        }
        let mut put_attribute = |key: &str, value: Scalar<'_>| write::attribute(out, field, key, value);
        if let Some(text) = explained.explanation {
            put_attribute("gen_ai.evaluation.explanation", Scalar::Str(text));
        }
        if m.outcome.as_ref().is_ok_and(|measured| !measured.passed) {
            self.put_failure(m, findings, &mut put_attribute);
        }
        subject_attributes.append(out, self.trace, m);
    }

    /// Appends the findings of a failing measurement, and its signature.
    fn put_failure(
        self,
        m: &Measurement,
        findings: &TraceFindings<'_>,
        put_attribute: &mut dyn FnMut(&str, Scalar<'_>),
    ) {
        let prefix = &self.emission.prefix;
        if let Some(json) = findings.measurement_json(m) {
            put_attribute(&format!("{prefix}findings"), Scalar::Str(&json));
        }
        put_attribute(&format!("{prefix}signature"), Scalar::Str(&findings.signature_of(m).to_string()));
    }
}
