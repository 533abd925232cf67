//! An evaluated trace as one JSON object, as `eval --output json` prints it.
//!
//! In: a trace, its measurements and verdicts. Out: JSON in the shape of [`SHAPE`]. The shape is stable:
//! keys may be added, but none changes its meaning.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use verdict_eval::annotation::{TraceHeader, finding_id, signature};
use verdict_eval::metrics::{Finding, Measurement};
use verdict_eval::propagation::{Verdict, Verdicts};
use verdict_eval::trace::AgentTrace;
use verdict_eval::{Emission, EvaluatedTrace};
use verdict_otlp::trace::{CloseReason, Idx};

use crate::telemetry::ResultLabel;

/// The JSON shape as the help text shows it.
pub(super) const SHAPE: &str = r#"{
  "trace_id": "hex", "result": "pass" | "fail" | "unmeasured",
  "name": "...", "service": "...", "agent": "...", "session_id": "...",   if the spans contain them
  "task": "..." | null,                    what the outermost agent was asked; null with explanations: off
  "start": "2026-01-31T12:00:00.000000000Z", "duration_seconds": 1.25,
  "close_reason": "end_of_input", "incomplete": false,
  "revision": 2,                           only of late spans, whose result is that of the whole trace
  "failed_spans": ["span id", ...],        leaves first
  "failure_chain": ["span id", ...],       root to the worst failure
  "failure_probability": 0.7,              only with propagation.root: expected_outcome
  "failure_terms": { "lasting": 1.2 },     what its terms add to the log odds
  "failed_metrics": ["name", ...], "measured": 12, "unmeasured": 3,
  "root_cause": "span id",                 only if failing: where the failure began that others follow from
  "outcome": { "score": 0.4, "judge": "model/1a2b3c4d", "rationale": "..." | null },   only of judges
  "signature": "hex",                      only if failing: the same for failures of the same kind
  "spans": [{
    "span_id": "hex", "parent_span_id": "hex" | null, "name": "...", "kind": "llm",
    "service": "...", "agent": "...",      if the span contains them
    "result": "pass" | "fail" | null, "cause": "self" | "children" | "both" | null,
    "signature": "hex",                    only if metrics of the span failed
    "measurements": [{
      "metric": "tool_completeness", "judge": "rules/1",
      "result": "pass" | "fail" | "unmeasured",
      "reason": "no_content",              only if unmeasured
      "score" | "label" | "value": ...,    one of them, only if measured
      "examined": 3,                       only if measured by rules: how many things were examined
      "rationale": "...",                  only of judges: why they gave the value
      "findings": [{ "id": "hex",
                     "rationale": "..." | null, "quote": "..." | null,   null with explanations: off
                     "seen_in": "span id" | null,   the quote's span, if not this one
                     "cited": ["span id"],
                     "category": "Service Errors" | null, "severity": "high", "score": 1.0,
                     "blame": "agent" | "environment" | null,
                     "touched_outcome": true | false | null,   null if no judge was asked
                     "origin": "span id" | null,
                     "note": true | false,          recorded only, fails nothing
                     "confidence": 0.8 | null }],   of rules: their precision on labelled traces
      "details": { "path.harmful_call.state": "...", ... }   only of some metrics
    }]
  }]
}"#;

pub(super) fn trace(evaluated: &EvaluatedTrace, emission: &Emission) -> Value {
    let EvaluatedTrace { trace, measurements, verdicts, summary, .. } = evaluated;
    let root = &verdicts.trace;
    let mut by_span: Vec<Vec<&Measurement>> = vec![Vec::new(); trace.tree.len()];
    for m in measurements {
        if let Some(span_measurements) = by_span.get_mut(m.at) {
            span_measurements.push(m);
        }
    }
    let report = TraceReport { trace, verdicts, emission };
    let measurements_at = |i: Idx| by_span.get(i).map_or(&[][..], Vec::as_slice);
    let spans: Vec<Value> = trace.tree.order().iter().map(|&i| report.span(i, measurements_at(i))).collect();
    let mut out = json!({
        "trace_id": trace.tree.id.to_string(),
        "result": ResultLabel::from(summary.passed).as_str(),
        "close_reason": summary.close_reason.as_str(),
        "incomplete": summary.incomplete,
        "failed_spans": span_ids(trace, &root.failed_spans),
        "failure_chain": span_ids(trace, &root.failure_chain),
        "failed_metrics": root.failed_metrics,
        "measured": root.measured,
        "unmeasured": root.unmeasured,
        "spans": spans,
    });
    if summary.close_reason == CloseReason::Late {
        out["revision"] = summary.revision.into();
    }
    add_header(&mut out, TraceHeader::new(trace, emission));
    if let Some(failure) = &root.failure {
        out["failure_probability"] = failure.probability.into();
        out["failure_terms"] =
            failure.contributions.iter().map(|(term, part)| (*term, json!(part))).collect();
    }
    if let Some(cause) = root.root_cause.and_then(|i| span_id(trace, i)) {
        out["root_cause"] = cause.into();
    }
    if let Some(outcome) = &root.outcome {
        let rationale = emission.disclose(&outcome.rationale);
        out["outcome"] = json!({ "score": outcome.score, "judge": outcome.judge, "rationale": rationale });
    }
    let last_signature =
        root.failure_chain.last().and_then(|&i| signature(trace, measurements_at(i).iter().copied()));
    if let Some(signature) = last_signature {
        out["signature"] = signature.into();
    }
    out
}

fn add_header(out: &mut Value, header: TraceHeader) {
    let TraceHeader { name, service, agent, session, task, start, duration } = header;
    for (key, text) in [("name", name), ("service", service), ("agent", agent), ("session_id", session)] {
        if let Some(text) = text {
            out[key] = text.into();
        }
    }
    out["task"] = task.into();
    if let Some(start) = start {
        let start = UNIX_EPOCH + Duration::from_nanos(start);
        out["start"] = humantime::format_rfc3339_nanos(start).to_string().into();
    }
    if let Some(duration) = duration {
        out["duration_seconds"] = (duration as f64 / 1e9).into();
    }
}

fn span_id(trace: &AgentTrace, i: Idx) -> Option<String> {
    trace.tree.spans.get(i).map(|span| span.id.to_string())
}

fn span_ids(trace: &AgentTrace, spans: &[Idx]) -> Vec<String> {
    spans.iter().filter_map(|&i| span_id(trace, i)).collect()
}

/// The sources of a trace's report.
#[derive(Clone, Copy)]
struct TraceReport<'a> {
    trace: &'a AgentTrace,
    verdicts: &'a Verdicts,
    emission: &'a Emission,
}

impl TraceReport<'_> {
    fn span(self, i: Idx, measurements: &[&Measurement]) -> Value {
        let TraceReport { trace, verdicts, .. } = self;
        let verdict = verdicts.by_span.get(i).copied().flatten();
        let cause = verdict.and_then(|v| match v {
            Verdict::Fail(cause) => Some(cause.as_str()),
            Verdict::Pass => None,
        });
        let mut out = json!({});
        if let Some(span) = trace.tree.spans.get(i) {
            out["span_id"] = span.id.to_string().into();
            out["parent_span_id"] = (!span.parent.is_zero()).then(|| span.parent.to_string()).into();
        }
        if let Some(view) = trace.views.get(i) {
            out["name"] = view.name.as_deref().into();
            out["kind"] = view.kind.as_str().into();
            for (key, text) in [("service", &view.service), ("agent", &view.agent)] {
                if let Some(text) = text {
                    out[key] = (**text).into();
                }
            }
        }
        out["result"] = verdict.map(|v| ResultLabel::from(Some(!v.failed())).as_str()).into();
        out["cause"] = cause.into();
        if let Some(signature) = signature(trace, measurements.iter().copied()) {
            out["signature"] = signature.into();
        }
        out["measurements"] = measurements.iter().map(|m| self.measurement(m)).collect();
        out
    }

    fn measurement(self, m: &Measurement) -> Value {
        let result = ResultLabel::from(m.outcome.as_ref().ok().map(|measured| measured.passed));
        let mut out = json!({ "metric": m.name(), "judge": m.judge.as_ref(), "result": result.as_str() });
        match &m.outcome {
            Ok(measured) => {
                match measured.value {
                    verdict_eval::metrics::Value::Score(score) => out["score"] = score.into(),
                    verdict_eval::metrics::Value::Label(label) => out["label"] = label.into(),
                    verdict_eval::metrics::Value::Number(value) => out["value"] = value.into(),
                }
                if m.examined > 0 {
                    out["examined"] = m.examined.into();
                }
                let findings = measured.findings.iter().enumerate();
                out["findings"] = findings.map(|(n, f)| self.finding(m, n, f)).collect();
            }
            Err(reason) => out["reason"] = reason.as_str().into(),
        }
        if let Some(rationale) = m.rationale.as_deref().and_then(|text| self.emission.disclose(text)) {
            out["rationale"] = rationale.into();
        }
        if !m.details.is_empty() {
            out["details"] = m.details.iter().map(|d| (m.with_task(d.key), json!(d.value))).collect();
        }
        out
    }

    fn finding(self, m: &Measurement, index: usize, f: &Finding) -> Value {
        json!({
            "id": finding_id(self.trace, m, index),
            "rationale": self.emission.disclose(&f.rationale),
            "quote": self.emission.disclose(&f.quote),
            "seen_in": f.seen_in.map(|id| id.to_string()),
            "cited": f.cited.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "category": f.category.map(|c| c.as_str()),
            "severity": f.severity.as_str(),
            "score": f.score,
            "blame": f.blame().map(|blame| blame.as_str()),
            "touched_outcome": self.verdicts.trace.touched_outcome(m.at, m.metric, index),
            "origin": f.origin.and_then(|i| span_id(self.trace, i)),
            "note": f.is_note(),
            "confidence": f.confidence,
        })
    }
}
