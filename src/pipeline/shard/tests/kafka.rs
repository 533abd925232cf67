//! Traces of partitions that are revoked, and assigned again.

use verdict_journal::RetainReason;

use super::*;
use crate::pipeline::kafka_store::KafkaStore;
use crate::pipeline::store::NoStore;
use crate::receive::kafka::log::KafkaLog;
use crate::receive::kafka::stream::PartitionStream;

const TRACE: TraceId = TraceId([1; 16]);

fn groups(body: &Bytes) -> Vec<Group> {
    split(body, "verdict.", &Interner::default()).unwrap().groups
}

/// Runs a shard with a store of Kafka; returns the exported lines.
async fn run(quiet: &str, steps: impl AsyncFnOnce(&Arc<KafkaLog>, &mpsc::Sender<ShardMessage>)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let text = format!(
        "exporters: {{ file: {{ path: {path:?}, signals: [traces] }} }}\nservice: {{ exporters: [file] }}\n\
         verdict: {{ close: {{ quiet: {quiet} }} }}"
    );
    let config = from_sources(&[Source { name: "test".to_owned(), text }], &|_| None).unwrap();
    let exporters = exporters(&config, ExportClients::new());
    let log: Arc<KafkaLog> = Arc::default();
    let store = Box::new(KafkaStore::new(Arc::clone(&log), Box::new(NoStore)));
    let shared = Arc::new(Shared { store, ..shared(&config, &exporters, None) });
    let (inbox, messages) = mpsc::channel(8);
    let shard = tokio::spawn(Shard::new(shared).run(messages));
    steps(&log, &inbox).await;
    drop(inbox);
    shard.await.unwrap();
    exporters.drain(tokio::time::Instant::now() + Duration::from_secs(180)).await;
    std::fs::read_to_string(path).unwrap()
}

/// Sends the spans of an assignment's record at this offset.
async fn receive(
    log: &KafkaLog,
    assignment: &crate::receive::kafka::log::Assignment,
    inbox: &mpsc::Sender<ShardMessage>,
    offset: i64,
    body: &Bytes,
) {
    let seq = assignment.record(PartitionStream::Spans, offset);
    assert!(log.retain(seq, &[RetainReason::Trace(TRACE)]));
    assignment.note_read(PartitionStream::Spans, offset);
    let reservation = ByteLimit::new(u64::MAX).reserve(1);
    inbox.send(ShardMessage::Spans(groups(body), reservation, Some(seq))).await.unwrap();
}

async fn drop_revoked(inbox: &mpsc::Sender<ShardMessage>) {
    let (done, dropped) = oneshot::channel();
    inbox.send(ShardMessage::DropRevoked(done)).await.unwrap();
    dropped.await.unwrap();
}

#[tokio::test]
async fn open_traces_of_a_revoked_partition_are_dropped_and_others_stay() {
    let out = run("1h", async |log, inbox| {
        let assignment = log.assign(0, [None; 2], "");
        receive(log, &assignment, inbox, 5, &request(1)).await;
        // A request of another receiver.
        let seq = Some(crate::receive::kafka::log::NO_RECORD);
        let reservation = ByteLimit::new(u64::MAX).reserve(1);
        inbox.send(ShardMessage::Spans(groups(&request(2)), reservation, seq)).await.unwrap();
        drop_revoked(inbox).await;
        assert_eq!(assignment.commit(100).unwrap().offsets[0], Some(5));
        assignment.revoked.cancel();
        drop_revoked(inbox).await;
        log.end(assignment.id);
        assert_eq!(assignment.commit(100).unwrap().offsets[0], Some(5));
    })
    .await;
    assert_eq!(out.matches("\"spanId\"").count(), 3, "{out}");
    assert!(out.contains("\"traceId\":\"020202"), "{out}");
}

#[tokio::test]
async fn a_partition_that_comes_back_has_its_traces_evaluated_from_the_first_span() {
    let out = run("0s", async |log, inbox| {
        let before = log.assign(0, [None; 2], "");
        receive(log, &before, inbox, 5, &spans(1, 1..=2)).await;
        drop_revoked(inbox).await;
        // The trace has closed. Its export may or may not have been acknowledged.
        before.revoked.cancel();
        log.end(before.id);
        let after = log.assign(0, [Some(5), None], "");
        receive(log, &after, inbox, 5, &spans(1, 1..=2)).await;
        drop_revoked(inbox).await;
        // Spans of a trace that closed in this assignment are late.
        receive(log, &after, inbox, 6, &spans(1, 3..=3)).await;
    })
    .await;
    assert_eq!(out.matches("\"spanId\"").count(), 5, "{out}");
    assert_eq!(out.matches("verdict.late").count(), 1, "{out}");
}
