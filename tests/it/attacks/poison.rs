//! A trace during whose evaluation the process always dies. The product has no code that aborts on demand:
//! the test waits until the slot files record the evaluation of the trace, and sends SIGKILL then.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;

use crate::durable::{
    Processor, begun_evaluations, expected_attributes, requests, send_until_acknowledged, span, text,
    verdict_attributes, wait_for_spans,
};
use crate::support::{Destination, PATIENCE};

const POISON: u64 = 1000;
/// Other traces close long after the poison, so that none of them is in flight when the process dies.
const CLOSE: &str = "verdict: { close: { quiet: 200ms, by_service: { other: { quiet: 4s } } } }";

/// A run whose evaluation takes long enough to kill the process during it, and which is not too large for the
/// task of a shard if it has few spans.
fn poison(spans: u32) -> ExportTraceServiceRequest {
    let mut request = requests(POISON)[1].clone();
    let words =
        "The museum had 12 visitors in March, as the report says. ".repeat(1 + 20_000 / spans as usize);
    let attributes = vec![text("gen_ai.operation.name", "chat"), text("output.value", &words)];
    let model = span(POISON, 2, 1, "chat m", attributes);
    let of =
        |n: u32| Span { span_id: [vec![9; 4], (n + 1).to_be_bytes().to_vec()].concat(), ..model.clone() };
    request.resource_spans[0].scope_spans[0].spans.extend((1..spans).map(of));
    request
}

fn other(trace: u64) -> [ExportTraceServiceRequest; 2] {
    let attributes = vec![text("service.name", "other")];
    requests(trace).map(|mut request| {
        let attributes = attributes.clone();
        request.resource_spans[0].resource = Some(Resource { attributes, ..Resource::default() });
        request
    })
}

/// The ids of the traces that are being evaluated.
fn evaluated_now(journal: &Path) -> BTreeSet<Vec<u8>> {
    begun_evaluations(journal).into_iter().map(|(trace, _)| trace).collect()
}

fn id(trace: u64) -> Vec<u8> {
    span(trace, 1, 0, "", Vec::new()).trace_id
}

/// Whether the evaluation of the poison could be observed before it ended.
async fn is_evaluated(journal: &Path, destination: &Destination) -> bool {
    let mut evaluated = false;
    until("evaluation of the poison", || {
        evaluated = evaluated_now(journal).contains(&id(POISON));
        evaluated || destination.spans().iter().any(|span| span.trace_id == id(POISON))
    })
    .await;
    evaluated
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "timeout while waiting: {what}");
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

fn has(span: &Span, key: &str, value: &str) -> bool {
    span.attributes.iter().any(|kv| *kv == text(key, value))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_that_crashes_the_process_twice_is_exported_unmeasured() {
    let expected = expected_attributes("").await;
    // The first is evaluated on the shard's task, the second on a blocking thread.
    for spans in [250, 3000] {
        // On a busy machine a whole evaluation may run between two looks at the slots.
        let mut missed = 0;
        while !exported_unmeasured(spans, &expected).await {
            missed += 1;
            assert!(missed < 20, "no evaluation was observed");
        }
    }
}

/// False if the process could not be killed during the evaluation.
async fn exported_unmeasured(spans: u32, expected: &BTreeMap<String, BTreeSet<String>>) -> bool {
    let destination = Destination::default();
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let more = format!("{CLOSE}\nstorage: {{ directory: '{}' }}", journal.display());
    let mut processor = Processor::start(folder.path(), destination.serve().await, &more);
    for request in (1..=10).flat_map(other) {
        send_until_acknowledged(&mut processor.client(), &request).await;
    }
    send_until_acknowledged(&mut processor.client(), &poison(spans)).await;
    for _ in 0..2 {
        let evaluated = is_evaluated(&journal, &destination).await;
        processor.kill();
        let died_in = evaluated_now(&journal);
        if !evaluated || died_in.is_empty() {
            return false;
        }
        assert_eq!(died_in, BTreeSet::from([id(POISON)]), "the poison alone was being evaluated");
        processor.restart();
        until("the next process has read the slots", || evaluated_now(&journal).is_empty()).await;
    }
    wait_for_spans(&destination, 30 + spans as usize).await;
    assert_eq!(processor.terminate(), Some(0));

    let mut copies: BTreeMap<Vec<u8>, Vec<Span>> = BTreeMap::new();
    destination.spans().into_iter().for_each(|s| copies.entry(s.span_id.clone()).or_default().push(s));
    assert!(copies.values().all(|all| all.len() == 1), "a span was exported twice");
    let (bad, good): (Vec<Span>, Vec<Span>) =
        copies.into_values().flatten().partition(|span| span.trace_id == id(POISON));
    assert_eq!((bad.len(), good.len()), (spans as usize, 30));
    for span in &good {
        assert_eq!(verdict_attributes(span), expected[&span.name], "{}", span.name);
    }
    let root = bad.iter().find(|span| span.parent_span_id.is_empty()).unwrap();
    assert!(has(root, "verdict.trace.result", "unmeasured"), "{root:#?}");
    assert!(has(root, "verdict.trace.reason", "quarantined"), "{root:#?}");
    assert!(has(root, "verdict.trace.close_reason", "complete"), "{root:#?}");
    assert_eq!(
        bad.iter().filter(|span| !verdict_attributes(span).is_empty()).count(),
        1,
        "nothing was measured"
    );
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_shutdown_is_not_counted_as_a_crash() {
    let destination = Destination::default();
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let more = format!("{CLOSE}\nstorage: {{ directory: '{}' }}", journal.display());
    let mut processor = Processor::start(folder.path(), destination.serve().await, &more);
    let spans = 6000;
    send_until_acknowledged(&mut processor.client(), &poison(spans)).await;
    for _ in 0..3 {
        until("evaluation of the trace", || evaluated_now(&journal).contains(&id(POISON))).await;
        processor.signal();
        until("the signal is handled", || evaluated_now(&journal).is_empty()).await;
        assert!(destination.spans().is_empty(), "the evaluation has ended");
        processor.kill();
        processor.restart();
    }
    assert_eq!(std::fs::read(journal.join("suspects")).unwrap().len(), 24, "a header and no entry");
    wait_for_spans(&destination, spans as usize).await;
    assert_eq!(processor.terminate(), Some(0));
    let spans = destination.spans();
    let root = spans.iter().find(|span| span.parent_span_id.is_empty()).unwrap();
    assert!(!verdict_attributes(root).iter().any(|a| a.contains("quarantined")), "{root:#?}");
    assert!(has(root, "verdict.completeness.reason", "no_content"), "the trace was not evaluated: {root:#?}");
}
