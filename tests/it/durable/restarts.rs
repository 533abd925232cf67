//! The service is stopped and started again, with the same configuration or another one.

use std::collections::BTreeSet;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::Span;

use super::{
    expected_attributes, has_attribute, requests, span, storage, verdict_attributes, wait_for_spans,
};
use crate::support::{Destination, MAX_TIME_WITHOUT_PROGRESS, Process, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_late_span_after_a_restart_is_late_and_changes_the_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let config = storage(folder.path(), "verdict: { close: { quiet: 30ms } }");
    let [mut leaves, root] = requests(1);
    let tool = leaves.resource_spans[0].scope_spans[0].spans.pop().unwrap();
    let process = Process::start(&config).await;
    for request in [leaves.clone(), root] {
        process.client().spans(request).await;
    }
    process.until("the trace", |d| d.spans().len() == 2).await;
    let first = process.stop().await;
    assert!(first.records().iter().any(|r| has_attribute(r, "verdict.trace.revision", "1")));
    assert!(first.records().iter().any(|r| has_attribute(r, "verdict.trace.result", "pass")));
    // One more start and stop deletes the segment with the trace's records.
    Process::start(&config).await.stop().await;

    let process = Process::start(&config).await;
    leaves.resource_spans[0].scope_spans[0].spans = vec![tool];
    process.client().spans(leaves).await;
    process.until("the late span", |d| d.spans().len() == 1).await;
    let late = process.stop().await;
    assert!(verdict_attributes(&late.spans()[0]).iter().any(|a| a.contains("verdict.late")));
    let is_second_revision = |r: &&LogRecord| has_attribute(r, "verdict.trace.revision", "2");
    let records = late.records();
    let verdict = records.iter().find(is_second_revision).unwrap_or_else(|| panic!("{records:#?}"));
    assert!(
        has_attribute(verdict, "verdict.trace.result", "fail")
            && has_attribute(verdict, "verdict.trace.close_reason", "late")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn annotated_spans_of_the_journal_are_sent_after_a_restart_in_shadow_mode() {
    let folder = tempfile::tempdir().unwrap();
    let to = |port: u16, more_settings: &str| {
        let exporter = format!("endpoint: '127.0.0.1:{port}', tls: {{ insecure: true }}");
        storage(folder.path(), &format!("exporters: {{ otlp_grpc: {{ {exporter} }} }}\n{more_settings}"))
    };
    // Port 1 is closed.
    let process = Process::start(&to(1, "")).await;
    for request in requests(0) {
        process.client().spans(request).await;
    }
    process.service.flush().await;
    assert_eq!(process.service.stop(Duration::from_millis(500)).await, 0, "nothing is dropped");
    let destination = Destination::default();
    let process = Process::start(&to(destination.serve().await, "verdict: { mode: shadow }")).await;
    wait_for_spans(&destination, 3).await;
    assert_eq!(process.service.stop(MAX_TIME_WITHOUT_PROGRESS).await, 0);
    assert!(destination.spans().iter().all(|span| !verdict_attributes(span).is_empty()));
}

/// Starts the service once per step on one journal. A step has the mode, whether the destination is reachable, and the
/// requests to send, after which traces are closed unless the step sends leaves. Returns all exported spans.
async fn through_restarts(
    more_settings: &str,
    steps: &[(&str, bool, Option<&ExportTraceServiceRequest>)],
) -> Vec<Span> {
    let folder = tempfile::tempdir().unwrap();
    let destination = Destination::default();
    let port = destination.serve().await;
    let spans = |r: &ExportTraceServiceRequest| -> usize {
        r.resource_spans
            .iter()
            .flat_map(|resource| &resource.scope_spans)
            .map(|scope| scope.spans.len())
            .sum()
    };
    let sent: usize = steps.iter().filter_map(|(.., request)| *request).map(spans).sum();
    for (nth, &(mode, reachable, request)) in steps.iter().enumerate() {
        // Port 1 is closed.
        let to = if reachable { port } else { 1 };
        let exporter = format!("endpoint: '127.0.0.1:{to}', tls: {{ insecure: true }}");
        let verdict = format!("verdict: {{ mode: {mode}, {more_settings} }}");
        let more_settings = format!("exporters: {{ otlp_grpc: {{ {exporter} }} }}\n{verdict}");
        let process = Process::start(&storage(folder.path(), &more_settings)).await;
        if let Some(request) = request {
            process.client().spans(request.clone()).await;
        }
        let leaves = |r: &ExportTraceServiceRequest| r.resource_spans[0].scope_spans[0].spans.len() > 1;
        if !request.is_some_and(leaves) {
            process.service.flush().await;
        }
        // Records of earlier steps in the journal are exported after the start; a stop would leave them for the next
        // one.
        if nth + 1 == steps.len() {
            until("every span is exported", || destination.spans().len() >= sent).await;
        }
        let within = if reachable { MAX_TIME_WITHOUT_PROGRESS } else { Duration::from_millis(500) };
        assert_eq!(process.service.stop(within).await, 0, "nothing is dropped");
    }
    destination.spans()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_with_another_mode_spans_are_exported_once_by_the_mode_of_their_arrival() {
    const REACHABLE: bool = true;
    const UNREACHABLE: bool = false;
    let scope =
        |name: &str| Some(InstrumentationScope { name: name.into(), ..InstrumentationScope::default() });
    let [mut leaves, root] = requests(1).map(|mut request| {
        request.resource_spans[0].scope_spans[0].scope = scope("agent");
        request
    });
    // With `select` this span is forwarded separately.
    let mut web = leaves.resource_spans[0].scope_spans[0].clone();
    web.scope = scope("web");
    web.spans = vec![span(1, 4, 1, "GET", Vec::new())];
    leaves.resource_spans[0].scope_spans.push(web);
    let mut sent: Vec<Span> = Vec::new();
    for request in [&leaves, &root] {
        sent.extend(request.resource_spans[0].scope_spans.iter().flat_map(|scope| scope.spans.clone()));
    }
    let (leaves, root) = (Some(&leaves), Some(&root));
    let cases: [(&[_], &[&str]); 6] = [
        (&[("annotate", REACHABLE, leaves), ("shadow", REACHABLE, root)], &["chat m", "execute_tool search"]),
        (
            &[("annotate", REACHABLE, leaves), ("shadow", UNREACHABLE, root), ("shadow", REACHABLE, None)],
            &["chat m", "execute_tool search"],
        ),
        (&[("shadow", REACHABLE, leaves), ("annotate", REACHABLE, root)], &["invoke_agent a"]),
        (&[("shadow", UNREACHABLE, leaves), ("annotate", REACHABLE, root)], &["invoke_agent a"]),
        (
            &[("shadow", REACHABLE, leaves), ("annotate", UNREACHABLE, root), ("annotate", REACHABLE, None)],
            &["invoke_agent a"],
        ),
        (
            &[("shadow", UNREACHABLE, leaves), ("annotate", UNREACHABLE, root), ("shadow", REACHABLE, None)],
            &["invoke_agent a"],
        ),
    ];
    for select in ["", "select: { scope: [agent] }"] {
        for (steps, annotated) in cases {
            let out = through_restarts(select, steps).await;
            let steps: Vec<_> = steps.iter().map(|(mode, up, _)| (mode, up)).collect();
            assert_eq!(out.len(), sent.len(), "{select} {steps:?}: {out:#?}");
            for sent in &sent {
                let mut span = out.iter().find(|span| span.span_id == sent.span_id).unwrap().clone();
                // The span of scope `web` is not measured.
                let is_annotated = !verdict_attributes(&span).is_empty();
                assert_eq!(
                    is_annotated,
                    annotated.contains(&span.name.as_str()),
                    "{select} {steps:?}: {}",
                    span.name
                );
                span.attributes.retain(|kv| !kv.key.starts_with("verdict."));
                assert_eq!(&span, sent, "{select} {steps:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_not_accepted_before_shutdown_are_sent_after_restart_with_the_same_verdict() {
    let expected = expected_attributes("").await;
    let folder = tempfile::tempdir().unwrap();
    // The required destination and an optional one are unreachable (port 1 is closed). A file accepts
    // everything at once.
    let file = folder.path().join("out.jsonl");
    let exporters = |main: &str| {
        format!(
            "exporters: {{ otlp_grpc: {{ endpoint: '{main}', tls: {{ insecure: true }} }}, \
             otlp_grpc/side: {{ endpoint: '127.0.0.1:1', required: false, tls: {{ insecure: true }} }}, \
             file: {{ path: '{}' }} }}",
            file.display()
        )
    };
    let unreachable_config = storage(folder.path(), &exporters("127.0.0.1:1"));
    let process = Process::start(&unreachable_config).await;
    for request in requests(0) {
        process.client().spans(request).await;
    }
    process.service.flush().await;
    // Stopped while the destination is unreachable: only the file has the spans and the log records.
    let written = || std::fs::read_to_string(&file).unwrap_or_default();
    until("the file", || ["resourceSpans", "resourceLogs"].iter().all(|key| written().contains(key))).await;
    assert_eq!(process.service.stop(Duration::from_millis(500)).await, 0, "nothing is dropped");
    let lines = written().lines().count();

    let destination = Destination::default();
    // All metrics are disabled, so that a second evaluation would measure nothing.
    let family = |name: &'static str| name.split('.').next().unwrap_or(name);
    let all: BTreeSet<&str> = verdict_eval::metrics::names().map(family).collect();
    let disabled: Vec<String> = all.iter().map(|name| format!("{name}: {{ enabled: false }}")).collect();
    let reachable_config = exporters(&format!("127.0.0.1:{}", destination.serve().await));
    let reachable_config =
        format!("{reachable_config}\nverdict: {{ metrics: {{ {} }} }}", disabled.join(", "));
    let process = Process::start(&storage(folder.path(), &reachable_config)).await;
    wait_for_spans(&destination, 3).await;
    // The optional destination is still unreachable, so the stop takes the whole time.
    assert_eq!(process.service.stop(Duration::from_secs(5)).await, 0);
    for span in destination.spans() {
        let shutdown = |set: &BTreeSet<String>| -> Vec<String> {
            set.iter().filter(|a| !a.contains("close_reason")).cloned().collect()
        };
        assert_eq!(shutdown(&verdict_attributes(&span)), shutdown(&expected[&span.name]));
    }
    let after = std::fs::read_to_string(&file).unwrap().lines().count();
    assert_eq!(after, lines, "the file received the spans twice");
}
