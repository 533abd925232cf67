//! A shard with exporters: spans are exported even if their evaluation fails or takes long.

mod expensive;
mod judges;
#[cfg(feature = "kafka")]
mod kafka;
mod private;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use verdict_config::Source;
use verdict_otlp::request::{Interner, split};
use verdict_otlp::write;

use super::*;
use crate::config::{Config, from_sources};
use crate::export::ExportClients;
use crate::extensions::Extensions;
use crate::pipeline::meter::Meter;
use crate::pipeline::shared::testing::{exporters, shared};
use crate::reservation::ByteLimit;
use crate::telemetry::Telemetry;

/// A request of one trace: a root and two children.
fn request(trace: u8) -> Bytes {
    spans(trace, 1..=3)
}

/// A request of spans of one trace with these ids, of which the first is the root.
fn spans(trace: u8, ids: std::ops::RangeInclusive<u64>) -> Bytes {
    let mut spans = Vec::new();
    for id in ids {
        let mut span = Vec::new();
        write::bytes(&mut span, 1, &[trace; 16]);
        write::bytes(&mut span, 2, &id.to_be_bytes());
        if id > 1 {
            write::bytes(&mut span, 4, &1u64.to_be_bytes());
        }
        write::fixed64(&mut span, 7, 1);
        write::fixed64(&mut span, 8, 2);
        write::bytes(&mut spans, 2, &span);
    }
    encode_request(&spans)
}

/// A request of encoded spans with an empty resource and scope.
fn encode_request(spans: &[u8]) -> Bytes {
    encode_request_with(&[], spans)
}

/// A request of encoded spans with an encoded resource.
fn encode_request_with(resource: &[u8], spans: &[u8]) -> Bytes {
    let mut scope = Vec::new();
    write::bytes(&mut scope, 1, resource);
    write::bytes(&mut scope, 2, spans);
    let mut request = Vec::new();
    write::bytes(&mut request, 1, &scope);
    request.into()
}

/// Runs one shard over three traces. Returns the exported lines of JSON, and the self-metrics.
async fn export(change: impl FnOnce(&mut Shared, &crate::config::VerdictConfig)) -> (String, Arc<Telemetry>) {
    run((1..=3).map(request).collect(), change, || ()).await
}

/// Sends groups, and waits until the shard has taken them: traces that are due close before the next message.
async fn send(inbox: &mpsc::Sender<ShardMessage>, groups: Vec<Group>) {
    let waiting = ByteLimit::new(u64::MAX);
    inbox.send(ShardMessage::Spans(groups, waiting.reserve(1), None)).await.unwrap();
    while waiting.reserved() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A configuration with an exporter that writes spans to a file; the file, and the folder that contains it.
fn config_with_file() -> (Config, std::path::PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let text = format!(
        "exporters: {{ file: {{ path: {path:?}, signals: [traces] }} }}\nservice: {{ exporters: [file] }}\n\
         verdict: {{ close: {{ quiet: 0s }} }}"
    );
    (from_sources(&[Source { name: "test".to_owned(), text }], &|_| None).unwrap(), path, folder)
}

/// Runs one shard over requests; each is sent after the traces of the previous one have closed. `then` is called
/// when the small traces of all of them are exported.
async fn run(
    requests: Vec<Bytes>,
    change: impl FnOnce(&mut Shared, &crate::config::VerdictConfig),
    then: impl FnOnce(),
) -> (String, Arc<Telemetry>) {
    let (config, path, _folder) = config_with_file();
    let exporters = exporters(&config, ExportClients::new());
    let telemetry = Telemetry::new();
    let mut shared = Shared {
        meter: Meter::new(Arc::clone(&telemetry), std::iter::empty()),
        ..shared(&config, &exporters, None)
    };
    change(&mut shared, &config.verdict);
    let (inbox, messages) = mpsc::channel(8);
    let shard = tokio::spawn(Shard::new(Arc::new(shared)).run(messages));
    for request in requests {
        send(&inbox, split(&request, "verdict.", &Interner::default()).unwrap().groups).await;
    }
    send(&inbox, Vec::new()).await;
    then();
    drop(inbox);
    shard.await.unwrap();
    exporters.drain(tokio::time::Instant::now() + Duration::from_secs(180)).await;
    (std::fs::read_to_string(path).unwrap(), telemetry)
}

#[tokio::test]
async fn trace_whose_evaluation_panics_and_other_traces_are_exported() {
    let (out, telemetry) = export(|shared, verdict| {
        let mut config = RuntimeConfig::new(verdict, &Extensions::default(), None).unwrap();
        config.evaluator.before_assessment =
            Some(|trace| assert_ne!(trace, TraceId([2; 16]), "a panic for the test"));
        shared.config.store(Arc::new(config));
    })
    .await;
    assert_eq!(out.matches("\"spanId\"").count(), 9, "{out}");
    assert_eq!(out.matches("verdict.trace.result").count(), 3, "{out}");
    assert_eq!(telemetry.traces.unjudged.get(), 1);
}

#[tokio::test]
async fn other_tasks_run_while_many_traces_are_evaluated() {
    use std::sync::atomic::AtomicUsize;
    // Evaluations since another task of this runtime was polled, and their maximum.
    static IN_A_ROW: AtomicUsize = AtomicUsize::new(0);
    static MAX_IN_A_ROW: AtomicUsize = AtomicUsize::new(0);
    let other = tokio::spawn(async {
        loop {
            IN_A_ROW.store(0, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let all: Vec<Bytes> = (1..=100).map(request).collect();
    let change = |shared: &mut Shared, verdict: &crate::config::VerdictConfig| {
        let mut config = RuntimeConfig::new(verdict, &Extensions::default(), None).unwrap();
        config.evaluator.before_assessment = Some(|_| {
            MAX_IN_A_ROW.fetch_max(IN_A_ROW.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        });
        shared.config.store(Arc::new(config));
    };
    let (out, _) = run(vec![all.concat().into()], change, || ()).await;
    other.abort();
    assert_eq!(out.matches("verdict.trace.result").count(), 100, "{out}");
    let max_in_a_row = MAX_IN_A_ROW.load(Ordering::Relaxed);
    // Both tasks yield, and the runtime may poll the shard first.
    assert!(max_in_a_row <= 2 * YIELD_AFTER, "{max_in_a_row} evaluations in a row");
}

#[tokio::test]
async fn spans_are_exported_unmeasured_when_shutdown_leaves_no_time() {
    let (out, telemetry) = export(|shared, _| shared.skip_evaluation = AtomicBool::new(true)).await;
    assert_eq!(out.matches("\"spanId\"").count(), 9, "{out}");
    assert_eq!(out.matches("\"unmeasured\"").count(), 3, "{out}");
    assert_eq!(telemetry.traces.unjudged.get(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_spans_of_a_large_trace_wait_for_its_verdict() {
    // Set when the shard has taken the late span and the other trace.
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // Large enough to be evaluated on a blocking thread.
    let large = 300;
    let requests = vec![spans(1, 1..=large), spans(1, large + 1..=large + 1), request(2)];
    let change = |shared: &mut Shared, verdict: &crate::config::VerdictConfig| {
        let mut config = RuntimeConfig::new(verdict, &Extensions::default(), None).unwrap();
        config.evaluator.before_assessment = Some(|trace| {
            while trace == TraceId([1; 16]) && !TAKEN.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        shared.config.store(Arc::new(config));
    };
    let (out, _) = run(requests, change, || TAKEN.store(true, Ordering::Relaxed)).await;
    assert_eq!(out.matches("\"spanId\"").count() as u64, large + 1 + 3);
    let lines_with = |trace: &str| -> Vec<usize> {
        let lines = out.lines().enumerate().filter(|(_, line)| line.contains(trace));
        lines.map(|(n, _)| n).collect()
    };
    let late: Vec<usize> = lines_with("verdict.late");
    let (large, other) = (lines_with("\"traceId\":\"010101"), lines_with("\"traceId\":\"020202"));
    assert_eq!((late.len(), other.len()), (1, 1));
    assert_eq!(Some(&late[0]), large.last(), "the late span was exported before its trace");
    assert!(other[0] < large[0], "the other trace waited for the large trace");
}

/// A store that panics once, in the shard's task.
#[derive(Debug, Default)]
struct PanickingStore(std::sync::atomic::AtomicU32);

impl crate::pipeline::store::Store for PanickingStore {
    fn max_batch(&self) -> usize {
        assert_ne!(self.0.fetch_add(1, Ordering::Relaxed), 0, "as the test requires");
        1
    }
}

#[tokio::test]
async fn panic_in_a_shard_loses_no_span_and_is_reported() {
    let (config, path, _folder) = config_with_file();
    let exporters = exporters(&config, ExportClients::new());
    let store = Box::new(PanickingStore::default());
    let shared = Arc::new(Shared { store, ..shared(&config, &exporters, None) });
    let (inbox, messages) = mpsc::channel(8);
    // The first trace panics while several requests are in the inbox and several traces are closed at once.
    for trace in 1..=6 {
        let groups = split(&request(trace), "verdict.", &Interner::default()).unwrap().groups;
        inbox.send(ShardMessage::Spans(groups, shared.budget.reserve(0), None)).await.unwrap();
    }
    Shard::new(Arc::clone(&shared)).run(messages).await;
    assert!(shared.shard_failed.load(Ordering::Relaxed));
    assert!(inbox.is_closed(), "senders are refused");
    exporters.drain(tokio::time::Instant::now() + Duration::from_secs(180)).await;
    let out = std::fs::read_to_string(path).unwrap();
    assert_eq!(out.matches("\"spanId\"").count(), 18, "{out}");
    assert_eq!(shared.meter.telemetry.traces.buffered_spans.get(), 0);
}

#[tokio::test]
async fn trace_that_cannot_be_encoded_is_exported_as_it_arrived() {
    let (out, telemetry) = export(|shared, _| shared.unencodable = Some(TraceId([2; 16]))).await;
    assert_eq!(out.matches("\"spanId\"").count(), 9, "{out}");
    assert_eq!(out.matches("verdict.trace.result").count(), 2, "{out}");
    assert_eq!(telemetry.traces.unjudged.get(), 1);
}

#[tokio::test]
async fn large_traces_that_wait_leave_the_task_of_the_shard_to_others() {
    use std::sync::RwLock;
    static GATE: RwLock<()> = RwLock::new(());
    let closed_gate = GATE.write().unwrap();
    let large = (1..=6).map(|trace| spans(trace, 1..=300));
    let exported = run(
        // The small trace is evaluated on the shard's task, although no large trace is finished.
        large.chain([request(7)]).collect(),
        |shared, verdict| {
            let mut config = RuntimeConfig::new(verdict, &Extensions::default(), None).unwrap();
            config.evaluator.before_assessment = Some(|trace| {
                if trace != TraceId([7; 16]) {
                    drop(GATE.read());
                }
            });
            shared.config.store(Arc::new(config));
        },
        || drop(closed_gate),
    );
    let (out, _) = tokio::time::timeout(Duration::from_secs(180), exported).await.expect("the task waits");
    assert_eq!(out.matches("\"spanId\"").count(), 6 * 300 + 3);
}
