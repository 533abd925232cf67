//! With `storage.directory`: requests and traces in progress when a sender cancels or the process stops.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use otel_verdict::telemetry::Telemetry;
use serde_json::json;
use verdict_journal::{Journal, JournalRecord, Seq, Storage};

use crate::durable::{requests, retained_records, storage, verdict_attributes};
use crate::support::{Destination, MAX_TIME_WITHOUT_PROGRESS, Process, until};

/// A judge that answers only after `answers` is set, and counts the questions.
pub struct Judge {
    endpoint: String,
    pub asked: Arc<AtomicU64>,
    pub answers: Arc<AtomicBool>,
}

impl Judge {
    pub fn silent() -> Judge {
        let (asked, answers) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, may_answer) = (Arc::clone(&asked), Arc::clone(&answers));
        let endpoint = crate::model::serve(move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
            while !may_answer.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            json!({ "rationale": "nearly all of it", "score": 4, "findings": [] })
        });
        Judge { endpoint, asked, answers }
    }

    pub fn config(&self) -> String {
        format!(
            "judges: {{ main: {{ endpoint: '{}', model: m, timeout: 1h }} }}\n\
             verdict: {{ close: {{ quiet: 30ms }}, max_wait: 1h, metrics: {{ completeness: {{ judges: [main] }} }} }}",
            self.endpoint
        )
    }
}

/// Two more requests of the same trace, of one span each.
fn late_requests(trace: u64) -> [ExportTraceServiceRequest; 2] {
    [4, 5].map(|id| {
        let mut request = requests(trace)[0].clone();
        let spans = &mut request.resource_spans[0].scope_spans[0].spans;
        spans.truncate(1);
        spans[0].span_id = vec![id; 8];
        request
    })
}

/// A process with a trace that waits for the judge, and late spans of it.
async fn start_with_waiting_trace(judge: &Judge, folder: &Path, more_settings: &str) -> Process {
    let process = Process::start(&storage(folder, &format!("{}\n{more_settings}", judge.config()))).await;
    for request in requests(1) {
        process.client().spans(request).await;
    }
    until("the judge is asked", || judge.asked.load(Ordering::SeqCst) > 0).await;
    let (late, mut sent) = (late_requests(1), 0);
    for request in late {
        process.client().spans(request).await;
        sent += 1;
    }
    // The late spans are in the journal. The shard counts them in the turn in which it defers them.
    until("the late spans are counted", || process.service.telemetry().traces.late.get() >= sent).await;
    process
}

#[tokio::test(flavor = "multi_thread")]
async fn late_spans_of_a_trace_that_waits_for_a_judge_survive_a_restart() {
    let (folder, judge) = (tempfile::tempdir().unwrap(), Judge::silent());
    let process = start_with_waiting_trace(&judge, folder.path(), "").await;
    let before = process.stop_within(MAX_TIME_WITHOUT_PROGRESS).await;
    assert!(before.spans().is_empty(), "spans were exported before the verdict");

    let process = Process::start(&storage(folder.path(), "verdict: { close: { quiet: 30ms } }")).await;
    process.until("all spans", |d| d.spans().len() >= 5).await;
    let after = process.stop().await.spans();
    let ids: BTreeSet<&[u8]> = after.iter().map(|span| &span.span_id[..]).collect();
    assert_eq!((after.len(), ids.len()), (5, 5));
    assert!(after.iter().all(|span| !verdict_attributes(span).is_empty()));
    judge.answers.store(true, Ordering::SeqCst);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_the_judge_is_not_asked_again_and_late_spans_have_their_own_records() {
    let (folder, judge) = (tempfile::tempdir().unwrap(), Judge::silent());
    // Port 1 is closed.
    let unreachable = "exporters: { otlp_grpc: { endpoint: '127.0.0.1:1' } }";
    let process = start_with_waiting_trace(&judge, folder.path(), unreachable).await;
    judge.answers.store(true, Ordering::SeqCst);
    process.service.flush().await;
    assert!(process.stop_within(Duration::from_millis(500)).await.spans().is_empty());
    let asked = judge.asked.load(Ordering::SeqCst);

    let path = folder.path().join("journal");
    let telemetry = Telemetry::new();
    let (journal, recovered) = Journal::open(&path, &Storage::default(), 10, &telemetry.journal).unwrap();
    let mut verdict_requests: Vec<Vec<Seq>> = Vec::new();
    for &seq in recovered.verdicts.keys() {
        let Some(JournalRecord::Verdict(verdict)) = journal.read(seq).await else { panic!("no verdict") };
        verdict_requests.push(verdict.requests);
    }
    journal.close().await;
    drop(journal);
    let mut sizes: Vec<usize> = verdict_requests.iter().map(Vec::len).collect();
    sizes.sort_unstable();
    let distinct: BTreeSet<Seq> = verdict_requests.iter().flatten().copied().collect();
    assert_eq!((sizes, distinct.len()), (vec![1, 1, 2], 4), "{verdict_requests:?}");

    let process = Process::start(&storage(folder.path(), &judge.config())).await;
    process.until("all spans", |d| d.spans().len() >= 5).await;
    let after = process.stop().await;
    assert_eq!(after.spans().len(), 5);
    let scores = |span| verdict_attributes(span).iter().any(|a| a.contains("verdict.completeness.score"));
    assert!(after.spans().iter().any(scores), "no span has the judge's score");
    assert_eq!(judge.asked.load(Ordering::SeqCst), asked, "the judge was asked again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_request_leaves_no_journal_record() {
    let folder = tempfile::tempdir().unwrap();
    let port = crate::support::unused_port();
    let text = format!(
        "exporters: {{ otlp_grpc: {{ endpoint: '127.0.0.1:{port}', sending_queue: {{ queue_size: 2048 }}, \
         retry_on_failure: {{ initial_interval: 50ms, max_interval: 50ms }} }} }}"
    );
    let process = Process::start(&storage(folder.path(), &text)).await;
    let record = LogRecord { event_name: "e".repeat(1500), ..LogRecord::default() };
    let scope_logs = vec![ScopeLogs { log_records: vec![record], ..ScopeLogs::default() }];
    let resource_logs = vec![ResourceLogs { scope_logs, ..ResourceLogs::default() }];
    let request = ExportLogsServiceRequest { resource_logs };
    // The queue has space for one request; the sender of the other waits, then cancels.
    process.client().logs(request.clone()).await.unwrap();
    let telemetry = Arc::clone(process.service.telemetry());
    let (held_bytes, written) = (&telemetry.receive.held_bytes, &telemetry.journal.written);
    until("the first request is released", || held_bytes.get() == 0).await;
    let before = written.get();
    let mut other = process.client();
    tokio::select! {
        answer = other.logs(request) => panic!("the second request was answered: {answer:?}"),
        () = until("the second request is written", || held_bytes.get() > 0 && written.get() > before) => {}
    }
    drop(other);
    until("the second request is cancelled", || held_bytes.get() == 0).await;

    let destination = Destination::default();
    destination.serve_on(port).await;
    until("both requests are exported", || destination.records().len() == 2).await;
    process.stop().await;
    assert_eq!(
        retained_records(&folder.path().join("journal")).await,
        0,
        "exported records are still in the journal"
    );
}
