//! A judged trace as one JSON object, as `eval --output json` prints it.
//!
//! In: a trace, its measurements and verdicts. Out: JSON in the shape of [`SHAPE`]. The shape is stable:
//! keys may be added, but none changes its meaning.

use serde_json::{Value, json};
use verdict_eval::propagation::{Verdict, Verdicts};
use verdict_eval::{AgentTrace, EvaluatedTrace, Finding, Measurement};
use verdict_otlp::trace::Idx;

use crate::telemetry::ResultLabel;

/// The JSON shape as the help text shows it.
pub(super) const SHAPE: &str = r#"{
  "trace_id": "hex", "result": "pass" | "fail" | "unmeasured",
  "close_reason": "end_of_input", "incomplete": false,
  "failed_spans": ["span id", ...],        leaves first
  "failure_chain": ["span id", ...],       root to the worst failure
  "failure_probability": 0.7,              only with propagation.root: expected_outcome
  "failure_terms": { "lasting": 1.2 },     what its terms add to the log odds
  "failed_metrics": ["name", ...], "measured": 12, "unmeasured": 3,
  "spans": [{
    "span_id": "hex", "parent_span_id": "hex" | null, "name": "...", "kind": "llm",
    "service": "...", "agent": "...",      if the span contains them
    "result": "pass" | "fail" | null, "cause": "self" | "children" | "both" | null,
    "measurements": [{
      "metric": "tool_completeness", "judge": "rules/1",
      "result": "pass" | "fail" | "unmeasured",
      "reason": "no_content",              only if unmeasured
      "score" | "label" | "value": ...,    one of them, only if measured
      "examined": 3,                       only if measured by rules: how many things were examined
      "findings": [{ "rationale": "...", "quote": "...",
                     "seen_in": "span id" | null,   the quote's span, if not this one
                     "cited": ["span id"],
                     "category": "Service Errors" | null, "severity": "high", "score": 1.0,
                     "origin": "span id" | null,
                     "note": true | false,          recorded only, fails nothing
                     "confidence": 0.8 | null }],   of rules: their precision on labelled traces
      "details": { "path.harmful_call.state": "...", ... }   only of some metrics
    }]
  }]
}"#;

pub(super) fn trace(evaluated: &EvaluatedTrace) -> Value {
    let EvaluatedTrace { trace, measurements, verdicts, summary: note } = evaluated;
    let root = &verdicts.trace;
    let mut by_span: Vec<Vec<Value>> = vec![Vec::new(); trace.tree.len()];
    for m in measurements {
        if let Some(own) = by_span.get_mut(m.at) {
            own.push(measurement(trace, m));
        }
    }
    let spans: Vec<Value> = trace
        .tree
        .order()
        .iter()
        .map(|&i| span(trace, verdicts, i, by_span.get_mut(i).map(std::mem::take).unwrap_or_default()))
        .collect();
    let mut out = json!({
        "trace_id": trace.tree.id.to_string(),
        "result": ResultLabel::from(note.passed).as_str(),
        "close_reason": note.reason.as_str(),
        "incomplete": note.incomplete,
        "failed_spans": ids(trace, &root.failed_spans),
        "failure_chain": ids(trace, &root.failure_chain),
        "failed_metrics": root.failed_metrics,
        "measured": root.measured,
        "unmeasured": root.unmeasured,
        "spans": spans,
    });
    if let Some(failure) = &root.failure {
        out["failure_probability"] = failure.probability.into();
        out["failure_terms"] =
            failure.contributions.iter().map(|(term, part)| (*term, json!(part))).collect();
    }
    out
}

fn id(trace: &AgentTrace, i: Idx) -> Option<String> {
    trace.tree.spans.get(i).map(|span| span.id.to_string())
}

fn ids(trace: &AgentTrace, spans: &[Idx]) -> Vec<String> {
    spans.iter().filter_map(|&i| id(trace, i)).collect()
}

fn span(trace: &AgentTrace, verdicts: &Verdicts, i: Idx, measurements: Vec<Value>) -> Value {
    let verdict = verdicts.of.get(i).copied().flatten();
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
    out["measurements"] = measurements.into();
    out
}

fn measurement(trace: &AgentTrace, m: &Measurement) -> Value {
    let result = ResultLabel::from(m.outcome.as_ref().ok().map(|measured| measured.passed));
    let mut out = json!({ "metric": m.metric, "judge": m.judge.as_ref(), "result": result.as_str() });
    match &m.outcome {
        Ok(measured) => {
            match measured.value {
                verdict_eval::Value::Score(score) => out["score"] = score.into(),
                verdict_eval::Value::Label(label) => out["label"] = label.into(),
                verdict_eval::Value::Number(value) => out["value"] = value.into(),
            }
            if m.examined > 0 {
                out["examined"] = m.examined.into();
            }
            out["findings"] = measured.findings.iter().map(|f| finding(trace, f)).collect();
        }
        Err(reason) => out["reason"] = reason.as_str().into(),
    }
    if !m.details.is_empty() {
        out["details"] = m.details.iter().map(|d| (d.key, json!(d.value))).collect();
    }
    out
}

fn finding(trace: &AgentTrace, f: &Finding) -> Value {
    json!({
        "rationale": f.rationale,
        "quote": f.quote,
        "seen_in": f.seen_in.map(|id| id.to_string()),
        "cited": f.cited.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "category": f.category.map(|c| c.as_str()),
        "severity": f.severity.as_str(),
        "score": f.score,
        "origin": f.origin.and_then(|i| id(trace, i)),
        "note": f.is_note(),
        "confidence": f.confidence,
    })
}
