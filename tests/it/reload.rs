//! Reload while spans are buffered: no span is lost, and an invalid configuration changes nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use otel_verdict::config::Mode;
use verdict_config::Period;
use verdict_eval::config::Emit;

use crate::processes::Running;
use crate::support::{Process, text_attribute};

/// A model call of one second that is a trace by itself; `n` is in its ids.
pub fn call(n: u64) -> ExportTraceServiceRequest {
    let span = Span {
        trace_id: [[7; 8], n.to_be_bytes()].concat(),
        span_id: (n + 1).to_be_bytes().to_vec(),
        name: "chat".to_owned(),
        start_time_unix_nano: 1_000_000_000,
        end_time_unix_nano: 2_000_000_000,
        attributes: vec![
            text_attribute("gen_ai.operation.name", "chat"),
            text_attribute("gen_ai.request.model", "m"),
        ],
        ..Span::default()
    };
    let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
    ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { scope_spans, ..Default::default() }] }
}

fn has_attribute(span: &Span, key: &str) -> bool {
    span.attributes.iter().any(|attribute| attribute.key == key)
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_before_during_and_after_a_reload_are_exported_once() {
    let process = Process::start("verdict: { close: { quiet: 1h }, emit: [attributes, log_events] }").await;
    let mut client = process.client();
    client.spans(call(0)).await;
    let sending = {
        let mut client = process.client();
        tokio::spawn(async move {
            for n in 1..=300 {
                client.spans(call(n)).await;
            }
        })
    };
    let mut new = process.service.config();
    for round in 0..20 {
        new.verdict
            .evaluation
            .metrics
            .latency
            .max_ms
            .insert(verdict_otlp::trace::Kind::Llm, f64::from(100 + round));
        process.service.reload(&new).unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    sending.await.unwrap();
    assert!(process.destination.spans().is_empty(), "buffered, since they arrived with quiet: 1h");
    new.verdict.close.quiet = Period::millis(50);
    new.verdict.evaluation.emit = vec![Emit::Attributes];
    let reloaded = process.service.reload(&new).unwrap();
    assert_eq!(reloaded.changed, ["verdict.close.quiet", "verdict.emit"]);
    assert!(reloaded.needs_restart.is_empty());

    // A trace that opens now closes by the new time.
    let after = call(1000);
    let id = after.resource_spans[0].scope_spans[0].spans[0].trace_id.clone();
    client.spans(after).await;
    process.until("the new trace", |d| d.spans().iter().any(|s| s.trace_id == id)).await;
    process.service.flush().await;
    let destination = process.stop().await;
    let mut ids: Vec<Vec<u8>> = destination.spans().into_iter().map(|s| s.trace_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), destination.spans().len()), (302, 302), "each once");
    // Traces that were buffered before the reload are evaluated by its limit.
    assert!(destination.spans().iter().all(|s| has_attribute(s, "verdict.latency.value")));
    assert!(destination.records().is_empty(), "log events were turned off before any trace closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_need_a_restart_are_named_and_the_others_applied() {
    let process = Process::start("").await;
    let mut new = process.service.config();
    new.verdict.mode = Mode::Shadow;
    new.verdict.close.quiet = Period::millis(50);
    new.admin.endpoint = otel_verdict::receive::config::Endpoint::new("127.0.0.1:1").unwrap();
    for _ in 0..2 {
        // Reported at each reload until the restart.
        let reloaded = process.service.reload(&new).unwrap();
        assert_eq!(reloaded.needs_restart, ["admin.endpoint", "verdict.mode"]);
    }
    process.client().spans(call(1)).await;
    process.until("the span", |d| !d.spans().is_empty()).await;
    let destination = process.stop().await;
    assert_eq!(destination.spans().len(), 1);
    assert!(has_attribute(&destination.spans()[0], "verdict.trace.result"), "still annotated");
}

fn write_config(folder: &Path, out: &Path, more_settings: &str) -> PathBuf {
    let text = std::fs::read_to_string(folder.join("config.yaml")).unwrap();
    let first: String = text.lines().take(4).map(|line| format!("{line}\n")).collect();
    assert!(first.contains(out.to_str().unwrap()));
    let file = folder.join("config.yaml");
    std::fs::write(&file, format!("{first}{more_settings}\n")).unwrap();
    file
}

#[test]
fn sighup_applies_a_valid_file_and_refuses_a_faulty_one() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.jsonl");
    let mut running = Running::start(folder.path(), &out);
    write_config(folder.path(), &out, "verdict: { clos: {}, max_wait: soon }");
    running.signal("-HUP");
    running.wait_for_log("the current one stays in force");
    let log = running.log();
    assert!(log.contains("verdict.clos: no such key") && log.contains("'soon' is not a duration"), "{log}");
    assert!(running.get("/metrics").contains("config_reloads_total{result=\"refused\"} 1"));
    assert!(running.get("/readyz").starts_with("HTTP/1.1 200"));

    write_config(folder.path(), &out, "verdict: { mode: shadow, prefix: verdict., explanations: all }");
    running.signal("-HUP");
    running.wait_for_log("configuration reloaded");
    // Logged after the first line.
    running.wait_for_log("need a restart");
    assert!(running.log().contains("verdict.explanations"), "{}", running.log());
    assert!(running.get("/metrics").contains("config_reloads_total{result=\"taken\"} 1"));
    assert_eq!(running.terminate(), Some(0));
}

#[test]
fn changed_file_is_reloaded_without_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.jsonl");
    let mut running = Running::start(folder.path(), &out);
    let text = std::fs::read_to_string(folder.path().join("config.yaml")).unwrap();
    let louder = text.replace("log_format: json", "log_format: json, log_level: debug");
    std::fs::write(folder.path().join("config.yaml"), louder).unwrap();
    running.wait_for_log("a file has changed");
    // A connection that is not HTTP is logged at that level.
    running.get("not a path");
    running.wait_for_log("\"level\":\"DEBUG\"");
    assert_eq!(running.terminate(), Some(0));
}
