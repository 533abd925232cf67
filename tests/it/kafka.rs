//! Kafka: the messages of the exporter, and receivers that start, end and pause.
//!
//! The tests use the mock brokers of librdkafka, which are part of the test's process. `.ci/neighbours kafka` runs the
//! same with a real broker, and more spans and changes (`kafka_broker`). `OTEL_VERDICT_SEED` repeats the order of
//! changes that a run printed, and `OTEL_VERDICT_KEEP` keeps the logs of the members.

pub mod captures;
pub mod group;
mod pauses;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use otel_verdict::receive::Offer;
use prost::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _};
use rdkafka::{ClientConfig, Message as _};
use verdict_otlp::Signal;

use self::captures::Captures;
use crate::frameworks::{hex, spans_of};
use crate::support::{Destination, MAX_TIME_WITHOUT_PROGRESS, Process, until};

pub const SPANS: &str = "otlp_spans";
pub const LOGS: &str = "otlp_logs";
pub const PARTITIONS: i32 = 6;

fn producer(brokers: &str) -> BaseProducer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("partitioner", "fnv1a_random").set("linger.ms", "1");
    config.set("acks", "all").create().unwrap()
}

/// A consumer that reads the topics from their beginning.
pub fn consumer(brokers: &str, topics: &[&str]) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", brokers)
        .set("group.id", topics.join("-"))
        .set("auto.offset.reset", "earliest");
    let consumer: BaseConsumer = config.create().unwrap();
    consumer.subscribe(topics).unwrap();
    consumer
}

/// A member of the group, as a process of its own.
pub struct Member {
    child: Child,
    pub log: PathBuf,
}

impl Member {
    pub fn start(folder: &Path, number: usize, config: &str) -> Member {
        let (file, log) = (folder.join(format!("{number}.yaml")), folder.join(format!("{number}.log")));
        std::fs::write(&file, config).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
            .args(["run", "--config"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Member { child, log }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The log of the member so far.
    pub fn read_log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub fn terminate(mut self) {
        let started = Instant::now();
        // Before this message, the signal may end the process without a shutdown.
        while !std::fs::read_to_string(&self.log).unwrap().contains("receiving from Kafka") {
            assert!(started.elapsed() < MAX_TIME_WITHOUT_PROGRESS, "{:?} does not receive", self.log);
            std::thread::sleep(Duration::from_millis(20));
        }
        Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", std::fs::read_to_string(&self.log).unwrap());
        std::mem::forget(self);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn cluster() -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(1).unwrap();
    for topic in [SPANS, LOGS] {
        cluster.create_topic(topic, PARTITIONS, 1).unwrap();
    }
    cluster
}

/// Sarama's hash partitioner, which the Collector's exporter uses: FNV-1a of the key, as a signed number.
pub fn partition(key: &str) -> i32 {
    let hash =
        key.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    ((hash as i32) % PARTITIONS).abs()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exporter_writes_one_message_a_trace_to_the_partition_of_its_key() {
    let cluster = cluster();
    let brokers = cluster.bootstrap_servers();
    let process = Process::start(&format!(
        "exporters: {{ kafka: {{ brokers: ['{brokers}'], signals: [traces, logs] }} }}\n\
         service: {{ exporters: [otlp_grpc, kafka] }}\nverdict: {{ close: {{ quiet: 100ms }} }}"
    ))
    .await;
    let mut client = process.client();
    let captures = Captures::read();
    for run in 0..5 {
        for (signal, _, body) in captures.messages(run) {
            client.send(&Offer { signal, body }).await;
        }
    }
    let destination = process.stop().await;
    let consumer = consumer(&brokers, &[SPANS, LOGS]);
    let (mut bodies, mut logs, started) = (Vec::new(), 0, Instant::now());
    let expected_spans = captures.spans * 5;
    while started.elapsed() < MAX_TIME_WITHOUT_PROGRESS
        && (spans_of(&bodies).len() < expected_spans || logs == 0)
    {
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(200)) else { continue };
        let key = std::str::from_utf8(message.key().unwrap()).unwrap().to_owned();
        assert_eq!(message.partition(), partition(&key));
        let body = Bytes::copy_from_slice(message.payload().unwrap());
        if message.topic() == LOGS {
            logs += 1;
            continue;
        }
        assert!(spans_of(std::slice::from_ref(&body)).iter().all(|span| hex(&span.trace_id) == key), "{key}");
        bodies.push(body);
    }
    let sorted = |mut spans: Vec<Span>| {
        spans.sort_by(|a, b| (&a.trace_id, &a.span_id).cmp(&(&b.trace_id, &b.span_id)));
        spans
    };
    // As the other exporter sent them, with verdicts.
    assert_eq!(sorted(spans_of(&bodies)), sorted(destination.spans()));
    assert!(logs > 0 && bodies.iter().all(|body| !body.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_with_different_numbers_of_partitions_end_the_process() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(SPANS, 4, 1).unwrap();
    cluster.create_topic(LOGS, 3, 1).unwrap();
    let brokers = cluster.bootstrap_servers();
    let text = format!("receivers: {{ kafka: {{ brokers: ['{brokers}'], logs: {{}} }} }}");
    let process = Process::start(&text).await;
    let failed = tokio::time::timeout(Duration::from_secs(20), process.service.failed()).await;
    assert!(failed.unwrap().contains("listener or another task"));
    process.stop().await;
}

/// A request of one span for each name, each of a trace of its own; the first bytes of a name are the ids.
pub fn request(names: &[&str], padding: usize, has_root: bool) -> Bytes {
    let span = |name: &&str| {
        let mut id = [b'_'; 16];
        id[..name.len().min(16)].copy_from_slice(&name.as_bytes()[..name.len().min(16)]);
        Span {
            trace_id: id.into(),
            span_id: id[..8].into(),
            parent_span_id: if has_root { vec![] } else { vec![1; 8] },
            name: (*name).to_owned(),
            trace_state: "p".repeat(if name.starts_with("large") { padding } else { 0 }),
            start_time_unix_nano: 1,
            end_time_unix_nano: 2,
            ..Span::default()
        }
    };
    let scope_spans = vec![ScopeSpans { spans: names.iter().map(span).collect(), ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec().into()
}

/// Writes messages to the topic of spans, all with the same key.
pub fn write(brokers: &str, bodies: impl IntoIterator<Item = Bytes>) {
    write_keyed(brokers, bodies.into_iter().map(|body| ("key".to_owned(), body)));
}

/// Writes messages with their keys to the topic of spans.
pub fn write_keyed(brokers: &str, messages: impl IntoIterator<Item = (String, Bytes)>) {
    let producer: BaseProducer<DefaultProducerContext> = producer(brokers);
    for (key, body) in messages {
        producer.send(BaseRecord::<str, [u8]>::to(SPANS).key(&key).payload(&body[..])).unwrap();
        producer.poll(Duration::ZERO);
    }
    producer.flush(Duration::from_secs(30)).unwrap();
}

/// The configuration of a member, with more settings of its receiver.
fn member(brokers: &str, port: u16, receiver: &str) -> String {
    let receiver = format!("commit_interval: 100ms, {receiver}");
    member_with(brokers, port, &receiver, "verdict: { close: { quiet: 100ms } }")
}

/// Like [`member`], with `more_settings` for everything that is not about connections.
pub fn member_with(brokers: &str, port: u16, receiver: &str, more_settings: &str) -> String {
    format!(
        "receivers:\n  otlp: {{ protocols: {{ http: {{ endpoint: '127.0.0.1:0' }} }} }}\n  \
         kafka: {{ brokers: ['{brokers}'], session_timeout: 4s, heartbeat_interval: 300ms, {receiver} }}\n\
         exporters: {{ otlp_grpc: {{ endpoint: '127.0.0.1:{port}', tls: {{ insecure: true }} }} }}\n\
         admin: {{ endpoint: '127.0.0.1:0' }}\nservice: {{ log_format: text }}\n{more_settings}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_member_has_exported_is_exported_by_the_next_one() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(SPANS, 1, 1).unwrap();
    let (brokers, destination) = (cluster.bootstrap_servers(), Destination::default());
    let (port, folder) = (destination.serve().await, tempfile::tempdir().unwrap());
    let config = member(&brokers, port, "");
    // More traces than metadata has space for, after one that stays open.
    let names: Vec<String> = (0..1000).map(|n| format!("{n:05}")).collect();
    write(&brokers, [request(&["open"], 0, false)]);
    write(&brokers, names.iter().map(|name| request(&[name], 0, true)));
    let first = Member::start(folder.path(), 1, &config);
    until("the first member exports", || destination.spans().len() >= names.len()).await;
    tokio::task::spawn_blocking(|| first.terminate()).await.unwrap();
    assert_eq!(destination.spans().len(), names.len());
    let second = Member::start(folder.path(), 2, &config);
    // When this trace is exported, everything before it has been read.
    write(&brokers, [request(&["after"], 0, true)]);
    until("the second member exports", || destination.spans().iter().any(|span| span.name == "after")).await;
    tokio::task::spawn_blocking(|| second.terminate()).await.unwrap();
    assert_eq!(destination.spans().len(), names.len() + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_after_the_first_start_is_received_with_latest_also_while_no_member_runs() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(SPANS, 1, 1).unwrap();
    let (brokers, destination) = (cluster.bootstrap_servers(), Destination::default());
    let (port, folder) = (destination.serve().await, tempfile::tempdir().unwrap());
    let config = member(&brokers, port, "initial_offset: latest, max_message_size: 10KiB");
    write(&brokers, [request(&["before"], 0, true)]);
    let first = Member::start(folder.path(), 1, &config);
    let log = first.log.clone();
    until("partitions are assigned", || {
        std::fs::read_to_string(&log).unwrap().contains("partitions assigned")
    })
    .await;
    tokio::task::spawn_blocking(|| first.terminate()).await.unwrap();
    write(&brokers, [request(&["large"], 50_000, true), request(&["between"], 0, true)]);
    let second = Member::start(folder.path(), 2, &config);
    until("the message is received", || !destination.spans().is_empty()).await;
    tokio::task::spawn_blocking(|| second.terminate()).await.unwrap();
    assert_eq!(destination.spans().iter().map(|span| &*span.name).collect::<Vec<_>>(), ["between"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_that_is_larger_than_a_message_does_not_repeat_the_others_of_its_request() {
    let cluster = cluster();
    let brokers = cluster.bootstrap_servers();
    let process = Process::start(&format!(
        "exporters: {{ kafka: {{ brokers: ['{brokers}'], producer: {{ max_message_bytes: 20000 }} }} }}\n\
         service: {{ exporters: [otlp_grpc, kafka] }}\nverdict: {{ mode: shadow }}"
    ))
    .await;
    let small: Vec<String> = (0..9).map(|n| format!("{n}")).collect();
    let names: Vec<&str> = small.iter().map(String::as_str).chain(["large"]).collect();
    let body = request(&names, 50_000, true);
    process.client().send(&Offer { signal: Signal::Traces, body }).await;
    assert_eq!(process.service.stop(Duration::from_secs(60)).await, 1, "the large one");
    let consumer = consumer(&brokers, &[SPANS]);
    let (mut written, mut last) = (Vec::new(), Instant::now());
    // Nothing more is written.
    while last.elapsed() < Duration::from_secs(if written.is_empty() { 30 } else { 3 }) {
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(200)) else { continue };
        last = Instant::now();
        let body = Bytes::copy_from_slice(message.payload().unwrap());
        written.extend(spans_of(&[body]).into_iter().map(|span| span.name));
    }
    written.sort_unstable();
    assert_eq!(written, small);
}
