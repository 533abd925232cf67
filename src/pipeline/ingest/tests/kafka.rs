//! Requests of Kafka, which must not wait, and which another owner of their partition reads again.

use super::*;
use crate::pipeline::forwarding::ForwardingMode;
use crate::pipeline::kafka_store::KafkaStore;
use crate::pipeline::store::NoStore;
use crate::receive::kafka::log::{Assignment, KafkaLog};
use crate::receive::kafka::stream::{PartitionStream, STREAMS};

/// A pipeline that receives from Kafka, and exports to this client.
fn kafka_pipeline(
    verdict: &str,
    exporter: &str,
    client: Arc<dyn ExportClient>,
) -> (Arc<Pipeline>, Arc<Exporters>, Arc<KafkaLog>) {
    let text = format!(
        "verdict: {{ {verdict} }}\nexporters: {{ custom/x: {{ signals: [traces, logs], {exporter} }} }}"
    );
    let config = from_sources(&[Source { name: "test".to_owned(), text }], &|_| None).unwrap();
    let clients = [("custom/x".to_owned(), client)].into();
    let log = Arc::new(KafkaLog::new(ForwardingMode(config.verdict.mode).forwards()));
    let store = Box::new(KafkaStore::new(Arc::clone(&log), Box::new(NoStore)));
    let (pipeline, exporters) = pipeline_changed_by(&config, clients, |shared| shared.store = store);
    (pipeline, exporters, log)
}

async fn receive(
    pipeline: &Pipeline,
    assignment: &Assignment,
    stream: PartitionStream,
    offset: i64,
    body: &Bytes,
) {
    let signal = if stream == PartitionStream::Spans { Signal::Traces } else { Signal::Logs };
    let offer = Offer { signal, body: body.clone() };
    pipeline.offer_stored(offer, assignment.record(stream, offset)).await.unwrap();
    assignment.note_read(stream, offset);
}

/// Counts the bodies of requests by signal, and their spans.
#[derive(Debug, Default)]
struct Counting([std::sync::atomic::AtomicUsize; 2]);

impl Counting {
    fn get(&self) -> [usize; 2] {
        self.0.each_ref().map(|count| count.load(std::sync::atomic::Ordering::SeqCst))
    }
}

impl ExportClient for Counting {
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a> {
        let items = match request.signal() {
            Signal::Traces => {
                let split = request::split(
                    &request.to_bytes(),
                    "verdict.",
                    &verdict_otlp::request::Interner::default(),
                )
                .unwrap();
                span_count(&split.groups)
            }
            _ => logs::find(&request.to_bytes()).unwrap().records,
        };
        let signal_index = usize::from(request.signal() != Signal::Traces);
        self.0[signal_index].fetch_add(items as usize, std::sync::atomic::Ordering::SeqCst);
        Box::pin(std::future::ready(ExportResult::ACCEPTED.into()))
    }
}

#[tokio::test]
async fn forwarded_parts_are_not_forwarded_again_by_the_next_owner() {
    let select = "select: { scope: [agent] }";
    for verdict in [SHADOW.to_owned(), select.to_owned(), format!("{SHADOW}, {select}")] {
        let client = Arc::new(Counting::default());
        let (pipeline, exporters, log) = kafka_pipeline(&verdict, "", Arc::clone(&client) as _);
        let before = log.assign(0, [None; STREAMS], "");
        // The trace of "agent" stays open.
        receive(&pipeline, &before, PartitionStream::Spans, 5, &request(&["agent", "web"])).await;
        // A log record without content, and a GenAI log record of the open trace.
        let event = [b"\x4a\x10".as_slice(), &[1; 16], b"\x52\x08", &[1; 8], b"\x62\x08gen_ai.x"].concat();
        let nested = |inner: &[u8], tag: u8| [&[tag, inner.len() as u8], inner].concat();
        let body = nested(&nested(&[nested(&event, 0x12), vec![0x12, 0]].concat(), 0x12), 0x0a);
        receive(&pipeline, &before, PartitionStream::Logs, 9, &body.clone().into()).await;
        let forwarded = if verdict.contains("shadow") { 2 } else { 1 };
        while client.get() != [forwarded, 2] || before.commit(4096).unwrap().forwarded_up_to() != [6, 10] {
            tokio::task::yield_now().await;
        }
        let commit = before.commit(4096).unwrap();
        assert_eq!(commit.offsets, [Some(5), Some(9)]);
        before.revoked.cancel();
        pipeline.drop_revoked().await;
        log.end(before.id);
        let after = log.assign(0, commit.offsets, &commit.metadata);
        receive(&pipeline, &after, PartitionStream::Spans, 5, &request(&["agent", "web"])).await;
        receive(&pipeline, &after, PartitionStream::Logs, 9, &body.into()).await;
        pipeline.flush().await;
        assert!(pipeline.shutdown(Duration::from_secs(180)).await);
        exporters.drain(tokio::time::Instant::now() + Duration::from_secs(180)).await;
        assert_eq!(client.get()[0], 2, "{verdict}: each span once");
        assert_eq!(after.commit(4096).unwrap().offsets, [Some(6), Some(10)]);
    }
}

/// A destination that never responds.
#[derive(Debug)]
struct UnresponsiveClient;

impl ExportClient for UnresponsiveClient {
    fn export<'a>(&'a self, _: &'a ExportRequest) -> ExportFuture<'a> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_stored_request_waits_neither_for_the_queue_nor_for_a_shard() {
    let queue = "sending_queue: { queue_size: 1 }, timeout: 1h";
    let (pipeline, _exporters, log) = kafka_pipeline(SHADOW, queue, Arc::new(UnresponsiveClient));
    let assignment = log.assign(0, [None; STREAMS], "");
    // The queue has no space for a further request after the first one.
    for offset in 0..5 {
        receive(&pipeline, &assignment, PartitionStream::Spans, offset, &request(&["agent"])).await;
    }
    let inboxes = pipeline.inboxes();
    let mut permits = Vec::new();
    for inbox in &inboxes {
        permits.push(inbox.reserve_many(inbox.max_capacity()).await.unwrap());
    }
    tokio::time::pause();
    let before = tokio::time::Instant::now();
    let offer = Offer { signal: Signal::Traces, body: request(&["agent"]) };
    let answer = pipeline.offer_stored(offer, assignment.record(PartitionStream::Spans, 5)).await;
    assert_eq!(answer, Err(Refused::Overloaded { retry: RETRY_DELAY }));
    assert!(before.elapsed() < INBOX_TIMEOUT);
}

#[tokio::test]
async fn late_spans_that_are_refused_are_late_when_they_are_offered_again() {
    let client = Arc::new(Counting::default());
    let (pipeline, exporters, log) = kafka_pipeline("close: { quiet: 0s }", "", Arc::clone(&client) as _);
    let before = log.assign(0, [None; STREAMS], "");
    receive(&pipeline, &before, PartitionStream::Spans, 5, &request(&["agent"])).await;
    while before.commit(4096).unwrap().offsets != [Some(6), None] {
        tokio::task::yield_now().await;
    }
    let commit = before.commit(4096).unwrap();
    log.end(before.id);
    let after = log.assign(1, commit.offsets, &commit.metadata);
    let inboxes = pipeline.inboxes();
    let mut permits = Vec::new();
    for inbox in &inboxes {
        permits.push(inbox.reserve_many(inbox.max_capacity()).await.unwrap());
    }
    let offer = Offer { signal: Signal::Traces, body: request(&["agent"]) };
    let record = after.record(PartitionStream::Spans, 6);
    let answer = pipeline.offer_stored(offer.clone(), record).await;
    assert_eq!(answer, Err(Refused::Overloaded { retry: RETRY_DELAY }));
    drop(permits);
    drop(inboxes);
    pipeline.offer_stored(offer, record).await.unwrap();
    assert!(pipeline.shutdown(Duration::from_secs(180)).await);
    exporters.drain(tokio::time::Instant::now() + Duration::from_secs(180)).await;
    assert_eq!(pipeline.shared.meter.telemetry.traces.late.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn logs_of_kafka_are_left_to_an_exporter_whose_destination_does_not_take_them_at_present() {
    let record: Bytes = b"\x0a\x04\x12\x02\x12\x00".as_slice().into();
    let (pipeline, exporters, log) = kafka_pipeline("", "", Arc::new(UnsupportedAtFirst::default()));
    let assignment = log.assign(0, [None; STREAMS], "");
    receive(&pipeline, &assignment, PartitionStream::Logs, 0, &record).await;
    let exporter = exporters.iter().next().unwrap();
    while exporter.ledger().count(Outcome::Dropped) < 1 {
        tokio::task::yield_now().await;
    }
    receive(&pipeline, &assignment, PartitionStream::Logs, 1, &record).await;
    while exporter.ledger().count(Outcome::Dropped) < 2 {
        tokio::task::yield_now().await;
    }
    assert!(pipeline.shutdown(Duration::from_secs(180)).await);
    exporters.drain(tokio::time::Instant::now() + Duration::from_secs(180)).await;
}

#[tokio::test]
async fn open_traces_of_kafka_are_dropped_at_shutdown_if_its_partitions_were_not_given_back() {
    let client = Arc::new(Counting::default());
    let (pipeline, exporters, log) = kafka_pipeline("", "", Arc::clone(&client) as _);
    let assignment = log.assign(0, [None; STREAMS], "");
    receive(&pipeline, &assignment, PartitionStream::Spans, 5, &request(&["agent", "web"])).await;
    pipeline.offer(Offer { signal: Signal::Traces, body: request(&["agent"]) }).await.unwrap();
    pipeline.shared.store.end_received();
    assert!(pipeline.shutdown(Duration::from_secs(180)).await);
    exporters.drain(tokio::time::Instant::now() + Duration::from_secs(180)).await;
    // The trace of "agent" came from another receiver too.
    assert_eq!(client.get(), [1, 0]);
    assert_eq!(assignment.commit(4096).unwrap().offsets, [Some(5), None]);
}

#[tokio::test]
async fn traces_of_a_revoked_partition_are_dropped_while_a_shard_takes_no_work() {
    let (pipeline, exporters, log) = kafka_pipeline("", "", Arc::new(Counting::default()));
    let inboxes = pipeline.inboxes();
    if inboxes.len() < 2 {
        println!("skipped: needs two shards, so two cores");
        return;
    }
    let assignment = log.assign(0, [None; STREAMS], "");
    receive(&pipeline, &assignment, PartitionStream::Spans, 0, &request(&["agent"; 32])).await;
    let other_traces = (1..=32u8)
        .map(|n| TraceId([n; 16]))
        .filter(|trace| !(pipeline.hasher.hash_one(*trace) as usize).is_multiple_of(inboxes.len()));
    let other_traces: Vec<TraceId> = other_traces.collect();
    let full = inboxes[0].reserve_many(inboxes[0].max_capacity()).await.unwrap();
    assignment.revoked.cancel();
    let dropping = tokio::spawn(pipeline.drop_revoked());
    for trace in other_traces {
        let is_open = async || {
            let state = pipeline.ask_shard(trace, |reply| ShardMessage::State(trace, reply)).await;
            matches!(state, Ok(crate::pipeline::queried_runs::TraceState::Open(_)))
        };
        while is_open().await {
            tokio::task::yield_now().await;
        }
    }
    assert!(!dropping.is_finished());
    drop(full);
    drop(inboxes);
    dropping.await.unwrap();
    assert!(pipeline.shutdown(Duration::from_secs(180)).await);
    exporters.drain(tokio::time::Instant::now() + Duration::from_secs(180)).await;
}
