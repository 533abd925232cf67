//! Evaluation events, decoded by OpenTelemetry's own types.

use super::*;

#[test]
fn events_have_the_fields_of_opentelemetry_proto() {
    let (_, out) = annotate_with(&SUMMARY, &Emission::default(), |_| ());
    let encoded = &out.events[0].bytes;
    let request = ExportLogsServiceRequest::decode(encoded.clone()).unwrap();
    // Decoding drops unknown fields, and the order of fields does not change the length.
    assert_eq!(request.encoded_len(), encoded.len());
    let logs = &request.resource_logs[0].scope_logs[0];
    assert_eq!(logs.scope.as_ref().unwrap().version, env!("CARGO_PKG_VERSION"));
    let trace = trace();
    let record = &logs.log_records[0];
    assert_eq!(record.trace_id, trace.tree.id.0);
    assert_eq!(record.time_unix_nano, trace.tree.spans[0].end);
    assert_eq!(record.observed_time_unix_nano, SUMMARY.now);

    let emission = Emission { emit: vec![Emit::SpanEvents], ..Emission::default() };
    let (_, out) = annotate_with(&SUMMARY, &emission, |_| ());
    let encoded = &out.spans[0].bytes;
    let request = ExportTraceServiceRequest::decode(encoded.clone()).unwrap();
    assert_eq!(request.encoded_len(), encoded.len());
    let event = &request.resource_spans[0].scope_spans[0].spans[2].events[0];
    assert_eq!((event.time_unix_nano, event.attributes.len()), (SUMMARY.now, 10));
}

#[test]
fn events_follow_the_semantic_conventions() {
    let (_, out) = annotate_with(&SUMMARY, &Emission::default(), |_| ());
    let request = ExportLogsServiceRequest::decode(out.events[0].bytes.clone()).unwrap();
    let scope = &request.resource_logs[0].scope_logs[0];
    assert_eq!(scope.scope.as_ref().unwrap().name, "otel-verdict");
    let records: Vec<_> = scope
        .log_records
        .iter()
        .map(|r| (r.event_name.clone(), hex(&r.span_id), r.severity_number, attributes(&r.attributes)))
        .collect();
    insta::assert_debug_snapshot!(records, @r#"
    [
        (
            "gen_ai.evaluation.result",
            "0000000000000001",
            9,
            {
                "gen_ai.evaluation.evaluator.id": "rules",
                "gen_ai.evaluation.evaluator.type": "code",
                "gen_ai.evaluation.evaluator.version": "rules/1",
                "gen_ai.evaluation.name": "tool_abuse",
                "gen_ai.evaluation.score.label": "pass",
                "gen_ai.evaluation.score.value": "5.0",
                "gen_ai.evaluation.target": "agent",
            },
        ),
        (
            "gen_ai.evaluation.result",
            "0000000000000002",
            9,
            {
                "gen_ai.evaluation.evaluator.id": "rules",
                "gen_ai.evaluation.evaluator.type": "code",
                "gen_ai.evaluation.evaluator.version": "rules/1",
                "gen_ai.evaluation.name": "avoidance",
                "gen_ai.evaluation.score.label": "valid",
                "gen_ai.evaluation.target": "agent",
            },
        ),
        (
            "gen_ai.evaluation.result",
            "0000000000000003",
            13,
            {
                "gen_ai.evaluation.evaluator.id": "rules",
                "gen_ai.evaluation.evaluator.type": "code",
                "gen_ai.evaluation.evaluator.version": "rules/1",
                "gen_ai.evaluation.explanation": "Expected a page. Seen: \"404\". See span 0909090909090909.",
                "gen_ai.evaluation.name": "tool_completeness",
                "gen_ai.evaluation.score.label": "fail",
                "gen_ai.evaluation.score.value": "1.0",
                "gen_ai.evaluation.target": "agent",
                "verdict.findings": "[{\"id\":\"2f25aa7007a6c39b\",\"metric\":\"tool_completeness\",\"severity\":\"high\",\"category\":\"Resource Not Found\",\"blame\":\"agent\",\"span\":\"0000000000000003\",\"origin\":\"0000000000000003\",\"cited\":[\"0909090909090909\"],\"rationale\":\"Expected a page.\",\"quote\":\"404\"}]",
                "verdict.signature": "0fb5ac35f1c2b9cd",
            },
        ),
        (
            "gen_ai.evaluation.result",
            "0000000000000003",
            9,
            {
                "gen_ai.evaluation.evaluator.id": "rules",
                "gen_ai.evaluation.evaluator.type": "code",
                "gen_ai.evaluation.evaluator.version": "rules/1",
                "gen_ai.evaluation.name": "latency",
                "gen_ai.evaluation.score.label": "pass",
                "gen_ai.evaluation.score.value": "12.5",
                "gen_ai.evaluation.target": "agent",
            },
        ),
        (
            "gen_ai.evaluation.result",
            "0000000000000001",
            13,
            {
                "gen_ai.evaluation.name": "trace",
                "gen_ai.evaluation.score.label": "fail",
                "gen_ai.evaluation.target": "agent",
                "verdict.severity": "high",
                "verdict.signature": "0fb5ac35f1c2b9cd",
                "verdict.trace.close_reason": "complete",
                "verdict.trace.failed_metrics": "tool_completeness",
                "verdict.trace.failed_spans": "0000000000000003",
                "verdict.trace.failure_chain": "0000000000000001,0000000000000003",
                "verdict.trace.result": "fail",
                "verdict.trace.revision": "1",
                "verdict.trace.root_cause": "0000000000000003",
            },
        ),
    ]
    "#);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn event_of_a_trace_is_marked_if_its_span_is_not_the_root() {
    let rootless = |change: fn(&mut AgentTrace)| {
        let (_, out) = annotate_with(&SUMMARY, &Emission::default(), change);
        let request = ExportLogsServiceRequest::decode(out.events[0].bytes.clone()).unwrap();
        let records = &request.resource_logs[0].scope_logs[0].log_records;
        let events: Vec<_> = records.iter().map(|record| attributes(&record.attributes)).collect();
        let is_rootless = |event: &BTreeMap<String, String>| event.contains_key("verdict.trace.rootless");
        assert!(events.iter().all(|event| !is_rootless(event) || event["gen_ai.evaluation.name"] == "trace"));
        events.iter().any(is_rootless)
    };
    assert!(!rootless(|_| ()));
    assert!(rootless(|trace| trace.tree.spans[0].parent = SpanId([8; 8])));
}

#[test]
fn unchanged_verdict_has_no_trace_event() {
    let late = TraceSummary { close_reason: CloseReason::Late, changed: false, ..SUMMARY };
    let (_, out) = annotate_with(&late, &Emission::default(), |_| ());
    let (_, first) = annotate_with(&SUMMARY, &Emission::default(), |_| ());
    assert_eq!(out.events[0].items + 1, first.events[0].items);
}

#[test]
fn unmeasured_trace_has_an_event_only_if_configured() {
    let unmeasured = TraceSummary { passed: None, ..SUMMARY };
    let count = |summary: &TraceSummary, emission: &Emission| {
        let (_, out) = annotate_with(summary, emission, |_| ());
        out.events.iter().map(|piece| piece.items).sum::<u64>()
    };
    let unmeasured_events = count(&unmeasured, &Emission::default());
    assert_eq!(count(&SUMMARY, &Emission::default()), unmeasured_events + 1);
    let with_unmeasured = Emission { log_unmeasured: true, ..Emission::default() };
    assert_eq!(count(&unmeasured, &with_unmeasured), count(&SUMMARY, &with_unmeasured));
}
