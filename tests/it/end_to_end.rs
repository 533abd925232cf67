//! The data path over OTLP: spans are exported completely, unchanged, and with verdicts.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use verdict_otlp::Signal;

use crate::frameworks::{Case, Score, case, cases, hex, read, spans_of};
use crate::support::{MAX_TIME_WITHOUT_PROGRESS, Process};

/// Captures that ship with the project.
pub fn shipped() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut shipped = cases(&root.join("demo"));
    shipped.extend(cases(&root.join("tests/data/frameworks")));
    shipped
}

fn shipped_case(name: &str) -> Case {
    case(&Path::new(env!("CARGO_MANIFEST_DIR")).join("demo").join(name))
}

/// A span without the attributes of its verdict.
fn unannotated(mut span: Span) -> Span {
    span.attributes.retain(|kv| !kv.key.starts_with("verdict."));
    span
}

fn sorted(spans: impl IntoIterator<Item = Span>) -> Vec<Span> {
    let mut spans: Vec<Span> = spans.into_iter().collect();
    spans.sort_by(|a, b| (&a.trace_id, &a.span_id).cmp(&(&b.trace_id, &b.span_id)));
    spans
}

/// The spans of a capture, in order.
pub fn sent(case: &Case) -> Vec<Span> {
    let bodies: Vec<_> =
        case.requests.iter().filter(|r| r.signal == Signal::Traces).map(|r| r.body.clone()).collect();
    sorted(spans_of(&bodies))
}

fn policy(case: &Case) -> &'static str {
    match case.truth["expected_overall"] == "pass (handled tool error)" {
        true => "verdict: { propagation: { default: outcome_relevant } }",
        false => "",
    }
}

/// Sends a capture and compares the exported spans with it.
async fn replay(case: &Case) -> Vec<bytes::Bytes> {
    let process = Process::start(policy(case)).await;
    let mut client = process.client();
    for request in &case.requests {
        client.send(request).await;
    }
    process.service.flush().await;
    let destination = process.stop().await;
    let out = sorted(destination.spans().into_iter().map(unannotated));
    assert_eq!(out, sent(case), "{}: every span is exported unchanged", case.name);
    destination.requests()
}

async fn replay_all(cases: &[Case]) {
    let mut score = Score::default();
    for case in cases {
        score.add(case, &read(&replay(case).await));
    }
    score.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn shipped_captures_are_complete_and_get_the_expected_verdicts() {
    let cases = shipped();
    assert!(cases.len() >= 6);
    replay_all(&cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_framework_captures_are_complete_and_get_the_expected_verdicts() {
    let Some(folder) = std::env::var_os("OTEL_VERDICT_CASES") else {
        println!("skipped: OTEL_VERDICT_CASES is not set");
        return;
    };
    replay_all(&cases(&Path::new(&folder).join("frameworks"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_closes_after_the_quiet_time() {
    let case = shipped_case("vercelai-e");
    let process = Process::start("verdict: { close: { quiet: 50ms } }").await;
    for request in &case.requests {
        process.client().send(request).await;
    }
    let spans = sent(&case).len();
    process.until("the trace", |d| d.spans().len() == spans).await;
    let out = read(&process.destination.requests());
    assert!(
        out.values().any(|s| s.attributes.get("verdict.trace.close_reason").is_some_and(|r| r == "complete"))
    );
    process
        .until("its events", |d| d.records().iter().any(|r| r.event_name == "gen_ai.evaluation.result"))
        .await;
    process.stop().await;
}

/// The spans of a capture, each in a request of its own, with `salt` mixed into every id.
fn split_into_spans(case: &Case, salt: u64) -> Vec<ExportTraceServiceRequest> {
    let mix = |id: &mut Vec<u8>| {
        if id.iter().any(|b| *b != 0) {
            let tail = id.len() - 8;
            let mixed =
                u64::from_be_bytes(id[tail..].try_into().unwrap()) ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            id[tail..].copy_from_slice(&mixed.to_be_bytes());
        }
    };
    let mut out = Vec::new();
    for body in case.requests.iter().filter(|r| r.signal == Signal::Traces).map(|r| &r.body) {
        let request = ExportTraceServiceRequest::decode(body.clone()).unwrap();
        for resource in request.resource_spans {
            for scope in &resource.scope_spans {
                for span in &scope.spans {
                    let mut span = span.clone();
                    mix(&mut span.trace_id);
                    mix(&mut span.span_id);
                    mix(&mut span.parent_span_id);
                    let scope = ScopeSpans { spans: vec![span], ..scope.clone() };
                    let resource = ResourceSpans { scope_spans: vec![scope], ..resource.clone() };
                    out.push(ExportTraceServiceRequest { resource_spans: vec![resource] });
                }
            }
        }
    }
    out
}

/// The attributes written on each span, by trace and position in the trace, without ids.
fn verdicts(requests: &[bytes::Bytes]) -> BTreeMap<Vec<u8>, Vec<String>> {
    let mut by_trace: BTreeMap<Vec<u8>, Vec<String>> = BTreeMap::new();
    for span in sorted(spans_of(requests)) {
        let mut written: Vec<String> = span
            .attributes
            .iter()
            .filter(|kv| kv.key.starts_with("verdict."))
            // Ids differ by their salt; the lengths of chains and lists are compared.
            .filter(|kv| !kv.key.ends_with("explanation") && !kv.key.ends_with("close_reason"))
            .map(|kv| match kv.key.as_str() {
                "verdict.cited_by"
                | "verdict.findings"
                | "verdict.trace.failed_spans"
                | "verdict.trace.failure_chain"
                | "verdict.trace.root_cause" => {
                    format!("{} of {}", kv.key, kv.value.as_ref().unwrap().encoded_len())
                }
                _ => format!("{kv:?}"),
            })
            .collect();
        written.sort();
        by_trace
            .entry(span.trace_id)
            .or_default()
            .push(format!("{} {}: {written:?}", span.start_time_unix_nano, span.name));
    }
    by_trace.values_mut().for_each(|spans| spans.sort());
    by_trace
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_interleaved_traces_get_the_verdicts_of_one_request_each() {
    let captures: Vec<Case> =
        shipped().into_iter().filter(|c| c.requests.iter().all(|r| r.signal == Signal::Traces)).collect();
    let mut verdicts_at_once = Vec::new();
    for case in &captures {
        let process = Process::start("").await;
        for request in &case.requests {
            process.client().send(request).await;
        }
        process.service.flush().await;
        let mut all: Vec<Vec<String>> = verdicts(&process.stop().await.requests()).into_values().collect();
        all.sort();
        verdicts_at_once.push(all);
    }

    // Each of 16 senders sends a part of the traces; each of its requests has one span of each of them. The spans of a
    // trace come in reverse order.
    let traces: Vec<Vec<ExportTraceServiceRequest>> =
        (0..1000).map(|n| split_into_spans(&captures[n % captures.len()], n as u64 + 1)).collect();
    let spans: usize = traces.iter().map(Vec::len).sum();
    // On a slow machine, traces whose spans are still being sent must not close.
    let process = Process::start("verdict: { close: { quiet: 5m } }").await;
    let mut traces = traces.into_iter();
    let send = |mut pending: Vec<Vec<ExportTraceServiceRequest>>| {
        let mut client = process.client();
        tokio::spawn(async move {
            while !pending.is_empty() {
                let next = pending.iter_mut().filter_map(Vec::pop).flat_map(|request| request.resource_spans);
                client.spans(ExportTraceServiceRequest { resource_spans: next.collect() }).await;
                pending.retain(|requests| !requests.is_empty());
            }
        })
    };
    let mut senders = Vec::new();
    while traces.len() > 0 {
        senders.push(send(traces.by_ref().take(63).collect()));
    }
    for sender in senders {
        sender.await.unwrap();
    }
    process.service.flush().await;
    let destination = process.stop().await;
    assert_eq!(destination.spans().len(), spans, "no span is lost or duplicated");

    let out = verdicts(&destination.requests());
    let mut actual: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    out.into_values().for_each(|trace| *actual.entry(trace).or_default() += 1);
    for (n, traces) in verdicts_at_once.iter().enumerate() {
        for trace in traces {
            assert!(
                actual.contains_key(trace),
                "{}: another verdict when interleaved: {trace:#?}",
                captures[n].name
            );
        }
    }
    assert_eq!(
        actual.len(),
        verdicts_at_once.concat().iter().collect::<std::collections::BTreeSet<_>>().len()
    );
}

/// Spans of a trace that waits for some seconds are compressed.
#[tokio::test(flavor = "multi_thread")]
async fn runs_that_wait_are_exported_unchanged_with_the_same_verdicts() {
    let captures: Vec<Case> =
        shipped().into_iter().filter(|c| c.requests.iter().all(|r| r.signal == Signal::Traces)).collect();
    let process = Process::start("verdict: { close: { quiet: 5m } }").await;
    let mut client = process.client();
    let mut last = Vec::new();
    for case in &captures {
        let mut spans = split_into_spans(case, 0);
        last.extend(spans.pop());
        let first = spans.into_iter().flat_map(|request| request.resource_spans).collect();
        client.spans(ExportTraceServiceRequest { resource_spans: first }).await;
    }
    tokio::time::sleep(Duration::from_secs(13)).await;
    for request in last {
        client.spans(request).await;
    }
    process.service.flush().await;
    let waited = process.stop().await;
    let out = sorted(waited.spans().into_iter().map(unannotated));
    assert_eq!(out, sorted(captures.iter().flat_map(sent)), "every span is exported unchanged");

    let at_once = Process::start("verdict: { close: { quiet: 5m } }").await;
    for request in captures.iter().flat_map(|case| &case.requests) {
        at_once.client().send(request).await;
    }
    at_once.service.flush().await;
    assert_eq!(verdicts(&waited.requests()), verdicts(&at_once.stop().await.requests()));
}

#[tokio::test(flavor = "multi_thread")]
async fn shadow_mode_exports_spans_unchanged_and_verdicts_as_events() {
    let case = shipped_case("vercelai-e");
    let process = Process::start("verdict: { mode: shadow }").await;
    for request in &case.requests {
        process.client().send(request).await;
    }
    let spans = sent(&case);
    process.until("the spans, before their trace closes", |d| d.spans().len() == spans.len()).await;
    let destination = process.stop().await;
    assert_eq!(sorted(destination.spans()), spans);
    assert!(destination.records().iter().any(|r| hex(&r.trace_id) == hex(&spans[0].trace_id)));
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_that_are_not_selected_are_forwarded_unchanged() {
    let case = shipped_case("vercelai-e");
    let process = Process::start("verdict: { select: { service: [nobody] } }").await;
    for request in &case.requests {
        process.client().send(request).await;
    }
    let spans = sent(&case);
    process.until("the spans", |d| d.spans().len() == spans.len()).await;
    let destination = process.stop().await;
    assert_eq!(sorted(destination.spans()), spans);
    assert!(destination.records().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn late_span_is_exported_and_marked_as_late() {
    let case = shipped_case("vercelai-e");
    let process = Process::start("verdict: { close: { quiet: 30ms } }").await;
    let mut requests = split_into_spans(&case, 0);
    let late = requests.remove(0);
    let late_id = late.resource_spans[0].scope_spans[0].spans[0].span_id.clone();
    // No other span has the late span as its parent, so the trace closes without it.
    for request in requests {
        process.client().spans(request).await;
    }
    let before = sent(&case).len() - 1;
    process.until("the trace", |d| d.spans().len() == before).await;
    process.client().spans(late).await;
    process.until("the late span", |d| d.spans().len() == before + 1).await;
    let out = read(&process.stop().await.requests());
    assert_eq!(out[&hex(&late_id)].attributes.get("verdict.late").map(String::as_str), Some("true"));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_pressure_closes_idle_traces_early_and_refuses_requests() {
    let case = shipped_case("vercelai-e");
    let process = Process::start("memory: { budget: 64KiB }").await;
    let mut client = process.client();
    let mut accepted = 0;
    let mut refused = None;
    for n in 0..64 {
        // All but the root, so that these traces stay open.
        for request in split_into_spans(&case, n + 1).into_iter().filter(|r| !is_root(r)) {
            match client.try_spans(request).await {
                Ok(()) => accepted += 1,
                Err(status) => refused = Some(status),
            }
        }
    }
    let status = refused.expect("the budget was too small for all");
    assert_eq!(status.code(), tonic::Code::Unavailable);
    process
        .until("idle traces to close", |d| {
            let out = read(&d.requests());
            out.values().any(|s| {
                s.attributes.get("verdict.trace.close_reason").is_some_and(|r| r == "memory_pressure")
                    && s.attributes.get("verdict.incomplete").is_some_and(|v| v == "true")
            })
        })
        .await;
    // Reservations of closed traces are released shortly after the export.
    let started_at = Instant::now();
    while let Err(status) = client.try_spans(split_into_spans(&case, 1000).remove(0)).await {
        assert!(started_at.elapsed() < MAX_TIME_WITHOUT_PROGRESS, "{status}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let destination = process.stop().await;
    assert_eq!(destination.spans().len(), accepted + 1, "accepted spans are exported");
}

fn is_root(request: &ExportTraceServiceRequest) -> bool {
    request.resource_spans[0].scope_spans[0].spans[0].parent_span_id.is_empty()
}
