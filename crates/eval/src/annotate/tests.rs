//! Annotated spans, decoded by OpenTelemetry's own types.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use prost::Message as _;
use verdict_otlp::trace::{CloseReason, Idx, SpanId, TraceId};

use super::*;
use crate::annotate::summary::{MAX_EXPLANATION, MAX_ITEMS};
use crate::measure::testing::Script;
use crate::measure::{Category, Finding, Measured, Measurement, Severity, Unmeasured, Value};
use crate::propagate::{Policies, propagate};

mod events;
mod findings;

fn finding(rationale: &str, quote: &str) -> Finding {
    Finding {
        rationale: rationale.to_owned(),
        quote: quote.to_owned(),
        seen_in: None,
        cited: vec![SpanId([9; 8])],
        category: Some(Category::ResourceNotFound),
        severity: Severity::High,
        score: 1.0,
        origin: None,
        fact: false,
        defect: None,
        rule: None,
        confidence: None,
    }
}

fn measurement(
    index: Idx,
    metric: &'static str,
    outcome: Result<(Value, Vec<Finding>), Unmeasured>,
) -> Measurement {
    let outcome = outcome.map(|(value, findings)| Measured { value, passed: findings.is_empty(), findings });
    Measurement::new(index, metric, "rules/1", outcome)
}

/// Span 0 is the agent, 1 a model call, 2 the tool that failed, 3 the answer.
fn trace() -> AgentTrace {
    let script = Script::new("How high?").calls("", &[("visit", "{}")]).returns("404").says("I cannot tell.");
    let mut trace = script.build();
    for (i, span) in trace.tree.spans.iter_mut().enumerate() {
        let mut bytes = Vec::new();
        write::bytes(&mut bytes, 1, &trace.tree.id.0);
        write::bytes(&mut bytes, 2, &span.id.0);
        write::bytes(&mut bytes, 5, format!("span {i}").as_bytes());
        span.bytes = bytes.into();
    }
    trace
}

fn measurements() -> Vec<Measurement> {
    vec![
        measurement(0, "tool_abuse", Ok((Value::Score(5.0), vec![]))),
        measurement(1, "avoidance", Ok((Value::Label("valid"), vec![]))),
        measurement(1, "reasoning_integrity", Err(Unmeasured::NoContent)),
        measurement(
            2,
            "tool_completeness",
            Ok((Value::Score(1.0), vec![finding("Expected a page.", "404")])),
        ),
        measurement(2, "latency", Ok((Value::Number(12.5), vec![]))),
    ]
}

const SUMMARY: TraceSummary = TraceSummary {
    close_reason: CloseReason::Complete,
    revision: 1,
    passed: Some(false),
    changed: true,
    incomplete: false,
    now: 77,
    unmeasured_reason: None,
    usage: None,
};

fn value_text(value: &Any) -> String {
    match value {
        Any::StringValue(s) => s.clone(),
        Any::BoolValue(b) => b.to_string(),
        Any::IntValue(i) => i.to_string(),
        Any::DoubleValue(d) => format!("{d:?}"),
        Any::ArrayValue(a) => {
            a.values.iter().flat_map(|v| &v.value).map(value_text).collect::<Vec<_>>().join(",")
        }
        other => format!("{other:?}"),
    }
}

fn attributes(pairs: &[KeyValue]) -> BTreeMap<String, String> {
    let read =
        |kv: &KeyValue| (kv.key.clone(), kv.value.as_ref().and_then(|v| v.value.as_ref()).map(value_text));
    let entries: Vec<_> = pairs.iter().map(read).collect();
    let map: BTreeMap<String, String> =
        entries.iter().map(|(k, v)| (k.clone(), v.clone().unwrap())).collect();
    assert_eq!(map.len(), entries.len(), "no duplicate keys");
    map
}

fn annotate_with(
    summary: &TraceSummary,
    emission: &Emission,
    change: impl FnOnce(&mut AgentTrace),
) -> (Vec<BTreeMap<String, String>>, Annotated) {
    let mut trace = trace();
    change(&mut trace);
    let ms = measurements();
    let verdicts = propagate(&trace, &ms, &Policies::default());
    let encoded = encode(&trace, &ms, &verdicts, summary, emission, 1 << 20);
    let (spans, removed_verdicts) = apply(&trace.tree, &encoded, emission, 1 << 20);
    let out = Annotated { spans, events: encoded.events, removed_verdicts };
    let mut spans = Vec::new();
    for piece in &out.spans {
        let request = ExportTraceServiceRequest::decode(piece.bytes.clone()).unwrap();
        let request_spans = request.resource_spans.iter().flat_map(|r| &r.scope_spans).flat_map(|s| &s.spans);
        spans.extend(request_spans.map(|span| attributes(&span.attributes)));
    }
    (spans, out)
}

#[test]
fn full_detail_writes_the_judge_and_the_examined_number() {
    let attributes_with = |detail: DetailLevel| {
        let trace = trace();
        let ms: Vec<Measurement> = measurements().into_iter().map(|m| m.having_examined(3)).collect();
        let verdicts = propagate(&trace, &ms, &Policies::default());
        let emission = Emission { detail, ..Emission::default() };
        let encoded = encode(&trace, &ms, &verdicts, &SUMMARY, &emission, 1 << 20);
        let (spans, _) = apply(&trace.tree, &encoded, &emission, 1 << 20);
        let request = ExportTraceServiceRequest::decode(spans[0].bytes.clone()).unwrap();
        attributes(&request.resource_spans[0].scope_spans[0].spans[0].attributes)
    };
    let (normal, full) = (attributes_with(DetailLevel::Normal), attributes_with(DetailLevel::Full));
    for (field, value) in [("judge", "rules/1"), ("normalized", "1.0"), ("examined", "3")] {
        let key = format!("verdict.tool_abuse.{field}");
        assert_eq!((normal.get(&key), full.get(&key).map(String::as_str)), (None, Some(value)), "{field}");
    }
}

#[test]
fn annotations_of_a_trace_with_skew_fit_its_spans_as_they_were_sent() {
    let (expected, _) = annotate_with(&SUMMARY, &Emission::default(), |_| ());
    let mut sent = Vec::new();
    let (found, annotated) = annotate_with(&SUMMARY, &Emission::default(), |trace| {
        let after = trace.tree.spans[2].start - trace.tree.spans[1].start;
        trace.tree.spans[2].skew = -1 - after.cast_signed();
        sent = trace.tree.spans.clone();
    });
    assert_eq!(found, [0, 2, 1, 3].map(|i| expected[i].clone()));
    // As after a restart, when only the times of the sender are known.
    for span in &mut sent {
        (span.start, span.end, span.skew) = (span.as_sent(span.start), span.as_sent(span.end), 0);
    }
    let ids: Vec<u8> = Tree::new(TraceId([1; 16]), sent).spans.iter().map(|span| span.id.0[7]).collect();
    let requests =
        annotated.spans.iter().map(|p| ExportTraceServiceRequest::decode(p.bytes.clone()).unwrap());
    let scopes: Vec<_> = requests.flat_map(|r| r.resource_spans).flat_map(|r| r.scope_spans).collect();
    let exported: Vec<u8> = scopes.iter().flat_map(|s| &s.spans).map(|span| span.span_id[7]).collect();
    assert_eq!((&exported, &ids[..]), (&ids, &[1, 3, 2, 4][..]));
}

#[test]
fn failing_trace_has_the_documented_attributes() {
    let (spans, _) = annotate_with(&SUMMARY, &Emission::default(), |_| ());
    insta::assert_debug_snapshot!(spans, @r#"
    [
        {
            "verdict.cause": "children",
            "verdict.result": "fail",
            "verdict.signature": "0fb5ac35f1c2b9cd",
            "verdict.tool_abuse.result": "pass",
            "verdict.tool_abuse.score": "5.0",
            "verdict.trace.close_reason": "complete",
            "verdict.trace.failed_metrics": "tool_completeness",
            "verdict.trace.failed_spans": "0000000000000003",
            "verdict.trace.failure_chain": "0000000000000001,0000000000000003",
            "verdict.trace.measured": "4",
            "verdict.trace.result": "fail",
            "verdict.trace.revision": "1",
            "verdict.trace.root_cause": "0000000000000003",
            "verdict.trace.unmeasured": "1",
        },
        {
            "verdict.avoidance.label": "valid",
            "verdict.avoidance.result": "pass",
            "verdict.reasoning_integrity.reason": "no_content",
            "verdict.reasoning_integrity.result": "unmeasured",
            "verdict.result": "pass",
        },
        {
            "verdict.category": "Resource Not Found",
            "verdict.cause": "self",
            "verdict.failed_metrics": "tool_completeness",
            "verdict.findings": "[{\"id\":\"2f25aa7007a6c39b\",\"metric\":\"tool_completeness\",\"severity\":\"high\",\"category\":\"Resource Not Found\",\"blame\":\"agent\",\"span\":\"0000000000000003\",\"origin\":\"0000000000000003\",\"cited\":[\"0909090909090909\"],\"rationale\":\"Expected a page.\",\"quote\":\"404\"}]",
            "verdict.latency.result": "pass",
            "verdict.latency.value": "12.5",
            "verdict.result": "fail",
            "verdict.severity": "high",
            "verdict.signature": "0fb5ac35f1c2b9cd",
            "verdict.tool_completeness.explanation": "Expected a page. Seen: \"404\". See span 0909090909090909.",
            "verdict.tool_completeness.judge": "rules/1",
            "verdict.tool_completeness.normalized": "0.0",
            "verdict.tool_completeness.result": "fail",
            "verdict.tool_completeness.score": "1.0",
        },
        {},
    ]
    "#);
}

#[test]
fn existing_verdicts_are_replaced_or_kept_as_configured() {
    let add_forged_verdict = |trace: &mut AgentTrace| {
        let span = &mut trace.tree.spans[2];
        let mut bytes = span.bytes.to_vec();
        write::attribute(&mut bytes, 9, "verdict.result", write::Scalar::Str("pass"));
        span.bytes = bytes.into();
        span.has_verdict = true;
    };
    let (spans, out) = annotate_with(&SUMMARY, &Emission::default(), add_forged_verdict);
    assert_eq!((spans[2]["verdict.result"].as_str(), out.removed_verdicts), ("fail", 1));
    let keep = Emission { existing: Existing::Keep, ..Emission::default() };
    let (spans, out) = annotate_with(&SUMMARY, &keep, add_forged_verdict);
    assert_eq!((spans[2].len(), spans[2]["verdict.result"].as_str(), out.removed_verdicts), (1, "pass", 0));
}

#[test]
fn late_spans_are_marked_and_have_trace_attributes_if_they_changed_the_verdict() {
    let late = TraceSummary { close_reason: CloseReason::Late, revision: 2, incomplete: true, ..SUMMARY };
    let (spans, _) = annotate_with(&late, &Emission::default(), |_| ());
    assert!(spans.iter().all(|s| s["verdict.late"] == "true"));
    assert_eq!(spans[0]["verdict.trace.revision"], "2");
    let without_root = |trace: &mut AgentTrace| trace.tree.spans[0].parent = SpanId([8; 8]);
    let (spans, _) = annotate_with(&late, &Emission::default(), without_root);
    assert_eq!(spans[0]["verdict.trace.revision"], "2");
    assert!(spans[1..].iter().all(|s| !s.contains_key("verdict.trace.result")));
    let (spans, _) =
        annotate_with(&TraceSummary { changed: false, ..late }, &Emission::default(), without_root);
    assert!(spans.iter().all(|s| !s.contains_key("verdict.trace.result")));
}

#[test]
fn braintrust_scores_are_normalised_and_those_of_the_sender_stay() {
    let emission = Emission { emit: vec![Emit::BraintrustScores], ..Emission::default() };
    let (spans, _) = annotate_with(&SUMMARY, &emission, |_| ());
    let scores: Vec<_> = spans.iter().map(|span| span.get("braintrust.scores").map(String::as_str)).collect();
    assert_eq!(
        scores,
        [
            Some(r#"{"tool_abuse":1.0,"verdict":0.0}"#),
            Some(r#"{"avoidance":1.0}"#),
            Some(r#"{"tool_completeness":0.0,"latency":1.0}"#),
            None
        ]
    );
    assert!(spans.iter().all(|span| span.keys().all(|key| key == "braintrust.scores")));
    let (spans, _) = annotate_with(&SUMMARY, &emission, |trace| {
        let span = &mut trace.tree.spans[2];
        let mut bytes = span.bytes.to_vec();
        write::attribute(&mut bytes, 9, "braintrust.scores", write::Scalar::Str("{}"));
        span.bytes = bytes.into();
    });
    // `attributes` asserts that there is one of each key.
    assert_eq!(spans[2]["braintrust.scores"], "{}");
    let (spans, _) = annotate_with(&SUMMARY, &Emission::default(), |_| ());
    assert!(spans.iter().all(|span| !span.contains_key("braintrust.scores")));
}

#[test]
fn scores_are_scaled_by_their_names_in_events() {
    let scaled = |name: &str, score| Emission::default().normalized(name, score);
    assert_eq!(scaled("tool_abuse", 2.0), Some(0.25));
    assert_eq!(scaled("gpa.plan_quality", 3.0), Some(1.0));
    assert_eq!(scaled("path.correctness", 0.5), Some(0.5));
    assert_eq!(scaled("path.book a flight v1.2.correctness", 0.5), Some(0.5), "with a task in it");
    assert_eq!(
        (scaled("avoidance", 1.0), scaled("latency", 12.0), scaled("none.such.thing", 1.0)),
        (None, None, None)
    );
}

#[test]
fn emit_prefix_and_explanations_apply_as_configured() {
    let emission = Emission {
        prefix: "judge.".to_owned(),
        emit: vec![Emit::Attributes, Emit::SpanEvents],
        explanations: Explanations::Off,
        ..Emission::default()
    };
    let (spans, out) = annotate_with(&SUMMARY, &emission, |_| ());
    assert!(
        spans.iter().flat_map(|s| s.keys()).all(|k| k.starts_with("judge.") && !k.ends_with("explanation"))
    );
    assert!(out.events.is_empty());
    let request = ExportTraceServiceRequest::decode(out.spans[0].bytes.clone()).unwrap();
    let tool = &request.resource_spans[0].scope_spans[0].spans[2];
    assert_eq!(
        tool.events.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(),
        ["gen_ai.evaluation.result"; 2]
    );
}

#[test]
fn explanation_names_the_span_of_its_quote_if_it_is_another_one() {
    let finding = Finding { seen_in: Some(SpanId([7; 8])), ..finding("A page was expected", "404") };
    let measured = measurement(0, "tool_abuse", Ok((Value::Score(1.0), vec![finding])));
    let text = attributes::explanation(&measured, &Emission::default()).unwrap();
    assert_eq!(
        text,
        "A page was expected. Seen in span 0707070707070707: \"404\". See span 0909090909090909."
    );
}

#[test]
fn equal_measurements_keep_their_own_explanations() {
    let explained = |index, rationale: &str| {
        let base = measurement(index, "completeness", Ok((Value::Score(5.0), vec![])));
        Measurement { rationale: Some(rationale.into()), ..base }
    };
    let (trace, ms) = (trace(), [explained(0, "all of it"), explained(1, "all of that")]);
    let verdicts = propagate(&trace, &ms, &Policies::default());
    let emission = Emission { explanations: Explanations::All, ..Emission::default() };
    let encoded = encode(&trace, &ms, &verdicts, &SUMMARY, &emission, 1 << 20);
    let count = |text: &str| memchr::memmem::find_iter(&encoded.appended, text.as_bytes()).count();
    assert_eq!((count("all of it"), count("all of that")), (1, 1));
}

#[test]
fn explanations_and_arrays_are_cut_at_their_limits() {
    let long = measurement(0, "m", Ok((Value::Score(1.0), vec![finding(&"é".repeat(2000), "")])));
    let text = attributes::explanation(&long, &Emission::default()).unwrap();
    assert!(text.len() <= MAX_EXPLANATION && text.ends_with("[cut]"));
    let trace = trace();
    assert_eq!(attributes::ids(&trace, &[0; 500]).len(), MAX_ITEMS);
}

#[test]
fn scores_are_normalised_by_their_scale() {
    let normalized_score =
        |metric, score| attributes::normalized(metric, &Value::Score(score), &Emission::default());
    assert_eq!(normalized_score("tool_abuse", 3.0), Some(0.5));
    assert_eq!(normalized_score("gpa.plan_quality", 3.0), Some(1.0));
    assert_eq!(normalized_score("plan.score", 70.0), Some(0.7));
    assert_eq!(normalized_score("path.correctness", 0.25), Some(0.25));
    assert_eq!(attributes::normalized("avoidance", &Value::Label("valid"), &Emission::default()), None);
}

#[test]
fn failure_chain_above_the_limit_keeps_its_ends() {
    let trace = trace();
    let long: Vec<Idx> = [vec![0], vec![1; 500], vec![3]].concat();
    let ids = super::attributes::chain_ids(&trace, &long);
    assert_eq!(ids.len(), MAX_ITEMS);
    assert_eq!(ids[0], trace.tree.spans[0].id.to_string());
    assert_eq!(ids[MAX_ITEMS - 1], trace.tree.spans[3].id.to_string());
    assert_eq!(super::attributes::chain_ids(&trace, &long[..MAX_ITEMS]).len(), MAX_ITEMS);
}
