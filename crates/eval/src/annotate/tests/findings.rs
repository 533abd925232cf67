//! Findings as data on spans and in events.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::annotate::findings::{MAX_FINDINGS, finding_id};
use crate::measure::Defect;
use crate::redact::{Mode, Redact, Redactor};

/// Attributes of spans or records, each as text.
type AllAttributes = Vec<BTreeMap<String, String>>;

/// The annotations of [`trace`] with these measurements.
fn annotated(ms: &[Measurement], emission: &Emission) -> (AllAttributes, AllAttributes) {
    let trace = trace();
    let verdicts = propagate(&trace, ms, &Policies::default());
    let encoded = encode(&trace, ms, &verdicts, &SUMMARY, emission, 1 << 20);
    let (spans, _) = apply(&trace.tree, &encoded, emission, 1 << 20);
    let request = ExportTraceServiceRequest::decode(spans[0].bytes.clone()).unwrap();
    let spans = request.resource_spans.iter().flat_map(|r| &r.scope_spans).flat_map(|s| &s.spans);
    let spans = spans.map(|span| attributes(&span.attributes)).collect();
    let logs =
        encoded.events.iter().map(|piece| ExportLogsServiceRequest::decode(piece.bytes.clone()).unwrap());
    let records: Vec<_> = logs
        .flat_map(|request| request.resource_logs)
        .flat_map(|r| r.scope_logs)
        .flat_map(|s| s.log_records)
        .collect();
    (spans, records.iter().map(|record| attributes(&record.attributes)).collect())
}

fn findings(span: &BTreeMap<String, String>) -> Json {
    serde_json::from_str(&span["verdict.findings"]).unwrap()
}

/// The model of span 1 wrote a call that tool 2 refused, and a judge of the run of agent 0 cites both.
fn malformed_call() -> Vec<Measurement> {
    let refused = Defect::WrongArguments.finding("Expected a valid URL.", "404").from_origin(1);
    let judged = Finding {
        cited: vec![SpanId(3u64.to_be_bytes())],
        seen_in: Some(SpanId(2u64.to_be_bytes())),
        ..Finding::new("It asked once.", "visit", 2.0)
    };
    let mut ms = vec![
        measurement(0, "gpa.tool_calling", Ok((Value::Score(1.0), vec![judged]))),
        measurement(2, "error_detection", Ok((Value::Label("tool_error"), vec![refused]))),
    ];
    ms[0].judge = "some/model/1a2b3c4d".into();
    ms
}

#[test]
fn finding_is_on_its_span_and_on_its_origin_and_cited_spans_name_it() {
    let ms = malformed_call();
    let (spans, records) = annotated(&ms, &Emission::default());
    let refused = json!([{
        "id": finding_id(&trace(), &ms[1], 0),
        "metric": "error_detection",
        "severity": "high",
        "category": "Formatting Errors",
        "blame": "agent",
        "span": "0000000000000003",
        "origin": "0000000000000002",
        "rationale": "Expected a valid URL.",
        "quote": "404",
    }]);
    assert_eq!(findings(&spans[2]), refused);
    assert_eq!(findings(&spans[1]), refused, "the span where it began");
    assert!(!spans[1].contains_key("verdict.signature"), "only failing spans have one");
    let judged = json!([{
        "id": finding_id(&trace(), &ms[0], 0),
        "metric": "gpa.tool_calling",
        "severity": "medium",
        "blame": "agent",
        "span": "0000000000000001",
        "origin": "0000000000000001",
        "cited": ["0000000000000003"],
        "seen_in": "0000000000000002",
        "rationale": "It asked once.",
        "quote": "visit",
    }]);
    assert_eq!(findings(&spans[0]), judged);
    let cited_by = |i: usize| spans[i].get("verdict.cited_by").map(String::as_str);
    let citation = Some("gpa.tool_calling@0000000000000001");
    assert_eq!([0, 1, 2, 3].map(cited_by), [None, citation, citation, None]);
    // The trace's signature is that of its worst failure, which the tool has.
    assert_eq!(spans[0]["verdict.signature"], spans[2]["verdict.signature"]);
    let by_name = |name: &str| records.iter().find(|r| r["gen_ai.evaluation.name"] == name).unwrap();
    let record = by_name("error_detection");
    assert_eq!(findings(record), refused);
    assert_eq!(by_name("trace")["verdict.signature"], spans[2]["verdict.signature"]);
    assert_ne!(by_name("gpa.tool_calling")["verdict.signature"], spans[2]["verdict.signature"]);
}

#[test]
fn events_name_the_evaluator_and_the_target() {
    let mut ms = malformed_call();
    ms.push(measurement(1, "avoidance", Ok((Value::Label("valid"), vec![]))));
    ms.push(Measurement {
        judge: "task/refund".into(),
        ..measurement(0, "path.correctness", Err(Unmeasured::Hidden))
    });
    ms.push(measurement(1, "reasoning_integrity", Err(Unmeasured::JudgeError)));
    let mut trace = trace();
    trace.views[1].response_id = Some("resp-1".into());
    trace.views[1].session = Some("talk-7".into());
    let verdicts = propagate(&trace, &ms, &Policies::default());
    let emission = Emission { log_unmeasured: true, ..Emission::default() };
    let encoded = encode(&trace, &ms, &verdicts, &SUMMARY, &emission, 1 << 20);
    let request = ExportLogsServiceRequest::decode(encoded.events[0].bytes.clone()).unwrap();
    let records = &request.resource_logs[0].scope_logs[0].log_records;
    let record_attribute = |name: &str, key: &str| {
        let record_attributes: Vec<_> = records.iter().map(|r| attributes(&r.attributes)).collect();
        record_attributes.into_iter().find(|r| r["gen_ai.evaluation.name"] == name).unwrap().get(key).cloned()
    };
    let evaluator = |name: &str| {
        ["id", "version", "type"]
            .map(|key| record_attribute(name, &format!("gen_ai.evaluation.evaluator.{key}")))
    };
    let owned_texts = |texts: [&str; 3]| texts.map(|text| Some(text.to_owned()));
    assert_eq!(evaluator("avoidance"), owned_texts(["rules", "rules/1", "code"]));
    assert_eq!(evaluator("gpa.tool_calling"), owned_texts(["some/model", "some/model/1a2b3c4d", "llm"]));
    assert_eq!(evaluator("path.correctness"), owned_texts(["rules", "task/refund", "code"]));
    assert_eq!(evaluator("reasoning_integrity"), [None, None, None], "the judge that failed is not known");
    for (name, response) in [("avoidance", Some("resp-1")), ("gpa.tool_calling", None)] {
        assert_eq!(record_attribute(name, "gen_ai.evaluation.target").as_deref(), Some("agent"));
        assert_eq!(record_attribute(name, "gen_ai.response.id").as_deref(), response);
    }
    assert_eq!(record_attribute("avoidance", "gen_ai.conversation.id").as_deref(), Some("talk-7"));
}

#[test]
fn verdict_of_a_trace_below_a_workflow_names_its_agent_and_conversation() {
    let evaluated_targets = |agent: Option<&str>| {
        let (_, out) = annotate_with(&SUMMARY, &Emission::default(), |trace| {
            // The root is no agent's.
            (trace.owner[0], trace.views[0].service) = (None, Some("shop".into()));
            trace.agents[0].name = agent.map(Into::into);
            trace.views[3].session = Some("talk-7".into());
        });
        let request = ExportLogsServiceRequest::decode(out.events[0].bytes.clone()).unwrap();
        let records = &request.resource_logs[0].scope_logs[0].log_records;
        let record_attributes = records.iter().map(|r| attributes(&r.attributes));
        let [trace_record, call_record] = ["trace", "tool_abuse"]
            .map(|name| record_attributes.clone().find(|r| r["gen_ai.evaluation.name"] == name).unwrap());
        assert_eq!(trace_record["gen_ai.conversation.id"], "talk-7");
        assert!(!call_record.contains_key("gen_ai.conversation.id"), "that span has no conversation");
        (trace_record["gen_ai.evaluation.target"].clone(), call_record["gen_ai.evaluation.target"].clone())
    };
    assert_eq!(evaluated_targets(Some("planner")), ("planner".into(), "shop".into()));
    assert_eq!(evaluated_targets(None), ("shop".into(), "shop".into()));
}

#[test]
fn passing_trace_and_notes_have_no_findings() {
    let note = Defect::MissingTag.finding("A tag was expected.", "x").noted();
    let noted = Measured { value: Value::Score(5.0), passed: true, findings: vec![note.clone()] };
    let passing = [Measurement::new(1, "completeness", "rules/1", Ok(noted))];
    let failing = [measurement(1, "completeness", Ok((Value::Score(1.0), vec![note])))];
    for ms in [&passing, &failing] {
        let (spans, records) = annotated(ms, &Emission::default());
        let keys = || spans.iter().chain(&records).flat_map(BTreeMap::keys);
        assert!(keys().all(|key| key != "verdict.findings" && key != "verdict.cited_by"));
        let failed = ms[0].outcome.as_ref().is_ok_and(|m| !m.passed);
        assert_eq!(keys().any(|key| key == "verdict.signature"), failed);
    }
}

#[test]
fn findings_that_do_not_fit_lose_their_texts_or_are_counted() {
    let all: Vec<Finding> = (0..40)
        .map(|i| {
            let severity = if i == 39 { Severity::High } else { Severity::Low };
            Finding { severity, ..finding(&format!("{i} {}", "why ".repeat(200)), &"quote ".repeat(100)) }
        })
        .collect();
    let (spans, _) =
        annotated(&[measurement(2, "tool_completeness", Ok((Value::Score(1.0), all)))], &Emission::default());
    assert!(spans[2]["verdict.findings"].len() <= MAX_FINDINGS);
    let listed = findings(&spans[2]);
    let listed = listed.as_array().unwrap();
    let (last, entries) = listed.split_last().unwrap();
    assert_eq!(last["more"], 40 - entries.len(), "{last}");
    assert_eq!(entries[0]["severity"], "high", "the worst first");
    let rationale = entries[0]["rationale"].as_str().unwrap();
    assert!(rationale.starts_with("39 why") && rationale.ends_with(" [cut]"), "{rationale}");
    assert!(entries.last().unwrap().get("quote").is_none() && entries.len() > 3);
}

#[test]
fn prefix_and_redaction_apply_to_findings() {
    let secret = "sk-abcdefghijklmnopqrstuvwxyz0123456789ABCD";
    let redacted_findings = |redact: Redact| {
        let all = vec![finding(&format!("the key {secret} was sent"), secret)];
        let redactor = Redactor::new(&redact).unwrap();
        let emission = Emission { prefix: "judge.".to_owned(), redactor, ..Emission::default() };
        let (spans, _) =
            annotated(&[measurement(2, "tool_completeness", Ok((Value::Score(1.0), all)))], &emission);
        spans[2]["judge.findings"].clone()
    };
    assert!(!redacted_findings(Redact::default()).contains("abcdefghij"));
    assert!(redacted_findings(Redact { mode: Mode::Off, ..Redact::default() }).contains(secret));
}

/// Texts that are expensive or dangerous within JSON.
fn hostile_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<String>(),
        Just("\"}],\"".to_owned()),
        Just("\u{0}\u{1f}\\\\\"".repeat(80)),
        Just("\u{202e}\u{10ffff}é".repeat(60)),
        Just("SECRETCONTENT".to_owned()),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn findings_are_valid_json_of_bounded_size_and_without_content_if_explanations_are_off(
        texts in prop::collection::vec((hostile_text(), hostile_text(), 0usize..6, 0usize..120), 1..30),
        explanations in prop::sample::select(vec![Explanations::Off, Explanations::Fail, Explanations::All]),
    ) {
        let all: Vec<Finding> = texts
            .iter()
            .map(|(rationale, quote, origin, cited)| Finding {
                origin: Some(*origin).filter(|&origin| origin != 2),
                cited: (0..*cited).map(|i| SpanId((i as u64 % 5).to_be_bytes())).collect(),
                ..finding(rationale, quote)
            })
            .collect();
        let count = all.len();
        let emission = Emission { explanations, ..Emission::default() };
        let ms = [
            measurement(0, "gpa.tool_calling", Ok((Value::Score(0.0), all.clone()))),
            measurement(2, "tool_completeness", Ok((Value::Score(1.0), all))),
        ];
        let (spans, records) = annotated(&ms, &emission);
        for attributes in spans.iter().chain(&records) {
            let Some(text) = attributes.get("verdict.findings") else { continue };
            prop_assert!(text.len() <= MAX_FINDINGS, "{} bytes", text.len());
            let listed: Vec<Json> = serde_json::from_str(text).unwrap();
            let more = listed.last().and_then(|last| last["more"].as_u64()).unwrap_or(0) as usize;
            let entries = listed.iter().filter(|entry| entry.get("more").is_none());
            for entry in entries.clone() {
                prop_assert!(entry["id"].as_str().unwrap().len() == 16);
                let has_text = entry.get("quote").is_some() || entry.get("rationale").is_some();
                prop_assert!(!has_text || explanations != Explanations::Off);
            }
            prop_assert!(entries.count() + more <= 2 * count);
        }
        let judged = findings(&spans[2]);
        let judged = judged.as_array().unwrap();
        prop_assert!(judged[0].get("id").is_some(), "at least one finding is written");
        if explanations == Explanations::Off {
            let written = spans.iter().chain(&records).flat_map(BTreeMap::values);
            prop_assert!(written.into_iter().all(|value| !value.contains("SECRETCONTENT")));
        }
    }
}
