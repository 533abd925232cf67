//! Kafka: what the exporter writes, and a group of receivers whose members come and go.
//!
//! With the mock brokers of librdkafka, which are part of the test's process. `.ci/neighbours kafka` runs the same
//! with a real broker, and more spans and changes (`kafka_broker`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use otel_verdict::config::Config;
use otel_verdict::pipeline::offline::Evaluation;
use otel_verdict::receive::Offer;
use prost::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _};
use rdkafka::{ClientConfig, Message as _};
use regex::Regex;
use verdict_otlp::Signal;

use crate::frameworks::{hex, spans_of};
use crate::order::one_by_one;
use crate::support::{Destination, PATIENCE, Process, finish};

pub const SPANS: &str = "otlp_spans";
pub const LOGS: &str = "otlp_logs";
pub const PARTITIONS: i32 = 6;

/// Messages of one run of the captures: signal, key, body.
pub type Messages = Vec<(Signal, String, Bytes)>;
/// By trace and span: the verdict's attributes.
pub type Verdicts = BTreeMap<(String, String), BTreeMap<String, String>>;

/// The captures, each span and record a message of its own.
pub struct Captures {
    offers: Vec<Offer>,
    /// Where trace ids are, by offer.
    places: Vec<Vec<(usize, [u8; 16])>>,
    /// All trace ids in them.
    traces: BTreeSet<[u8; 16]>,
    verdicts: Verdicts,
    pub spans: usize,
}

fn verdict(span: &Span) -> BTreeMap<String, String> {
    let ours = span.attributes.iter().filter(|kv| kv.key.starts_with("verdict."));
    // Offline traces close for another reason.
    let kept = ours.filter(|kv| kv.key != "verdict.trace.close_reason");
    // Ids of findings depend on the id of the trace.
    static ID: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"\\"id\\":\\"[0-9a-f]{16}\\""#).unwrap());
    kept.map(|kv| (kv.key.clone(), ID.replace_all(&format!("{:?}", kv.value), "").into_owned())).collect()
}

impl Captures {
    /// On a thread without a runtime, since the evaluation has its own.
    pub fn read() -> Captures {
        std::thread::spawn(Captures::evaluate).join().unwrap()
    }

    fn evaluate() -> Captures {
        let offers = one_by_one();
        let of_traces = |offer: &&Offer| offer.signal == Signal::Traces;
        let bodies: Vec<Bytes> = offers.iter().filter(of_traces).map(|offer| offer.body.clone()).collect();
        let spans = spans_of(&bodies);
        let traces: BTreeSet<[u8; 16]> =
            spans.iter().map(|span| span.trace_id[..].try_into().unwrap()).collect();
        let in_body = |offer: &Offer| {
            let windows = offer.body.windows(16).enumerate();
            windows.filter_map(|(at, id)| Some((at, *traces.get(id)?))).collect()
        };
        let places = offers.iter().map(in_body).collect();
        let mut evaluation = Evaluation::new(&Config::default(), 1).unwrap();
        for offer in &offers {
            evaluation.add(offer).unwrap();
        }
        let mut annotated = Vec::new();
        finish(&mut evaluation, |done| {
            annotated.extend(done.annotated.spans.into_iter().map(|piece| piece.bytes))
        });
        let verdicts =
            spans_of(&annotated).iter().map(|s| ((hex(&s.trace_id), hex(&s.span_id)), verdict(s))).collect();
        Captures { offers, places, traces, verdicts, spans: spans.len() }
    }

    /// The id of a trace in a run: another trace is in another partition.
    fn id(trace: &[u8; 16], run: u32) -> [u8; 16] {
        let mut id = *trace;
        for (byte, other) in id.iter_mut().zip(run.wrapping_mul(0x9e37_79b1).to_be_bytes().repeat(4)) {
            *byte ^= other;
        }
        id
    }

    /// The messages of a run, with ids of its own.
    pub fn messages(&self, run: u32) -> Messages {
        let message = |(Offer { signal, body }, places): (&Offer, &Vec<(usize, [u8; 16])>)| {
            let mut body = body.to_vec();
            for (at, trace) in places {
                body[*at..at + 16].copy_from_slice(&Captures::id(trace, run));
            }
            let (_, first) = places.first()?;
            Some((*signal, hex(&Captures::id(first, run)), body.into()))
        };
        self.offers.iter().zip(&self.places).filter_map(message).collect()
    }

    /// What is expected of all spans of `runs`, by trace and span.
    fn expected(&self, runs: u32) -> Verdicts {
        let of_run = |run: u32| {
            self.traces.iter().flat_map(move |trace| {
                let (own, new) = (hex(trace), hex(&Captures::id(trace, run)));
                let of_trace = self.verdicts.iter().filter(move |((trace, _), _)| *trace == own);
                of_trace.map(move |((_, span), verdict)| ((new.clone(), span.clone()), verdict.clone()))
            })
        };
        (0..runs).flat_map(of_run).collect()
    }
}

fn producer(brokers: &str) -> BaseProducer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("partitioner", "fnv1a_random").set("linger.ms", "1");
    config.set("acks", "all").create().unwrap()
}

/// Writes the runs, many of them interleaved, at `rate` spans a second.
fn produce(brokers: &str, captures: &Captures, runs: u32, rate: f64) {
    let producer: BaseProducer<DefaultProducerContext> = producer(brokers);
    let started = Instant::now();
    let mut spans = 0;
    let all: Vec<u32> = (0..runs).collect();
    for together in all.chunks(20) {
        let messages: Vec<Messages> = together.iter().map(|run| captures.messages(*run)).collect();
        for step in 0..messages[0].len() {
            for (signal, key, body) in messages.iter().map(|run| &run[step]) {
                let topic = if *signal == Signal::Traces { SPANS } else { LOGS };
                spans += usize::from(*signal == Signal::Traces);
                let mut record = BaseRecord::to(topic).key(key).payload(&body[..]);
                while let Err((_, unsent)) = producer.send(record) {
                    record = unsent;
                    producer.poll(Duration::from_millis(10));
                }
                producer.poll(Duration::ZERO);
                let due = Duration::from_secs_f64(spans as f64 / rate);
                std::thread::sleep(due.saturating_sub(started.elapsed()));
            }
        }
    }
    producer.flush(Duration::from_secs(30)).unwrap();
}

/// A member of the group, as a process of its own.
struct Member {
    child: Child,
    log: PathBuf,
}

impl Member {
    fn start(folder: &Path, number: usize, config: &str) -> Member {
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

    fn terminate(mut self) {
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

/// How a group is tried.
pub struct Trial {
    pub runs: u32,
    /// Spans a second.
    pub rate: f64,
    /// Kills, additions and removals.
    pub changes: usize,
    /// Between them.
    pub interval: Duration,
    pub session: &'static str,
    pub quiet: &'static str,
    /// After the last message.
    pub patience: Duration,
}

/// What came out.
#[derive(Debug, Default)]
pub struct Outcome {
    pub spans: usize,
    pub lost: usize,
    /// Spans of which some verdict is not that of one process.
    pub different: usize,
    /// Spans that were delivered with two different verdicts.
    pub double: usize,
    /// Deliveries of a span with a verdict that it had been delivered with.
    pub repeated: usize,
    pub first: Vec<String>,
}

/// Runs three members, changes the group while messages are written, and compares with one process.
pub async fn try_group(brokers: &str, trial: &Trial) -> Outcome {
    let captures = Captures::read();
    let destination = Destination::default();
    let port = destination.serve().await;
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "receivers:\n  otlp: {{ protocols: {{ http: {{ endpoint: '127.0.0.1:0' }} }} }}\n  \
         kafka: {{ brokers: {:?}, logs: {{}}, session_timeout: {}, heartbeat_interval: 300ms, commit_interval: 200ms }}\n\
         exporters: {{ otlp_grpc: {{ endpoint: '127.0.0.1:{port}', tls: {{ insecure: true }} }} }}\n\
         admin: {{ endpoint: '127.0.0.1:0' }}\nverdict: {{ close: {{ quiet: {} }} }}\n\
         service: {{ log_format: text }}\n",
        brokers.split(',').collect::<Vec<_>>(),
        trial.session,
        trial.quiet,
    );
    let mut started = 0;
    let mut start = || {
        started += 1;
        Member::start(folder.path(), started, &config)
    };
    let mut members: Vec<Member> = (0..3).map(|_| start()).collect();
    let writing = {
        let (brokers, runs, rate) = (brokers.to_owned(), trial.runs, trial.rate);
        tokio::task::spawn_blocking(move || produce(&brokers, &Captures::read(), runs, rate))
    };
    let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    println!("seed {seed}");
    let mut random = u64::from(seed);
    let mut pick = move |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    for change in 0..trial.changes {
        tokio::time::sleep(trial.interval).await;
        // Each kind as often as the others; always at least one member.
        match change % 3 {
            0 => {
                let at = pick(members.len());
                members.remove(at).kill();
                println!("killed, {} left", members.len());
            }
            1 => members.push(start()),
            _ if members.len() > 1 && pick(2) == 0 => {
                let at = pick(members.len());
                let member = members.remove(at);
                tokio::task::spawn_blocking(|| member.terminate()).await.unwrap();
                println!("removed, {} left", members.len());
            }
            _ => members.push(start()),
        }
    }
    while members.len() < 3 {
        members.push(start());
    }
    writing.await.unwrap();
    let expected = captures.expected(trial.runs);
    assert_eq!(expected.len(), captures.spans * trial.runs as usize);
    let (mut before, mut since, ended) = (0, Instant::now(), Instant::now());
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let spans = destination.spans();
        if spans.len() != before {
            (before, since) = (spans.len(), Instant::now());
        }
        let distinct: BTreeSet<_> = spans.iter().map(|span| (&span.trace_id, &span.span_id)).collect();
        let complete = distinct.len() >= expected.len();
        let settled = since.elapsed() > trial.patience / 4;
        if settled && (complete || ended.elapsed() > trial.patience) {
            break;
        }
    }
    for member in members {
        let log = member.log.clone();
        member.terminate();
        let log = std::fs::read_to_string(log).unwrap();
        assert!(!log.contains("panicked"), "{log}");
    }
    let out = compare(&expected, &destination.spans());
    if std::env::var_os("OTEL_VERDICT_KEEP").is_some() {
        println!("logs: {}", folder.keep().display());
    }
    out
}

fn compare(expected: &Verdicts, delivered: &[Span]) -> Outcome {
    let mut by_span: BTreeMap<(String, String), Vec<BTreeMap<String, String>>> = BTreeMap::new();
    let mut out = Outcome { spans: expected.len(), ..Outcome::default() };
    for span in delivered {
        let all = by_span.entry((hex(&span.trace_id), hex(&span.span_id))).or_default();
        let verdict = verdict(span);
        if all.contains(&verdict) {
            out.repeated += 1;
        } else {
            all.push(verdict);
        }
    }
    for (span, verdict) in expected {
        let Some(delivered) = by_span.get(span) else {
            out.lost += 1;
            continue;
        };
        out.double += usize::from(delivered.len() > 1);
        if delivered.iter().any(|other| other != verdict) {
            out.different += 1;
            if out.first.len() < 3 {
                let other = delivered.iter().find(|other| *other != verdict);
                out.first.push(format!("{span:?}\n{verdict:?}\n{other:?}"));
            }
        }
    }
    out
}

fn cluster() -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(1).unwrap();
    for topic in [SPANS, LOGS] {
        cluster.create_topic(topic, PARTITIONS, 1).unwrap();
    }
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_changes_loses_no_span_and_gives_the_verdicts_of_one_process() {
    let cluster = cluster();
    let trial = Trial {
        runs: 40,
        rate: 250.0,
        changes: 3,
        interval: Duration::from_secs(6),
        // Longer than the 3 s for which the mock coordinator waits for the first members: it counts that time as
        // silence of theirs.
        session: "4s",
        quiet: "2s",
        patience: Duration::from_secs(60),
    };
    let out = try_group(&cluster.bootstrap_servers(), &trial).await;
    println!("{out:#?}");
    assert_eq!((out.lost, out.different, out.double), (0, 0, 0), "{out:#?}");
}

/// Sarama's hash partitioner, which the Collector's exporter uses: FNV-1a of the key, as a signed number.
fn partition(key: &str) -> i32 {
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
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &brokers)
        .set("group.id", "test")
        .set("auto.offset.reset", "earliest")
        .create()
        .unwrap();
    consumer.subscribe(&[SPANS, LOGS]).unwrap();
    let (mut bodies, mut logs, started) = (Vec::new(), 0, Instant::now());
    let wanted = captures.spans * 5;
    while started.elapsed() < PATIENCE && (spans_of(&bodies).len() < wanted || logs == 0) {
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
fn request(names: &[&str], padding: usize, has_root: bool) -> Bytes {
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

/// Writes messages to the topic of spans.
fn write(brokers: &str, bodies: impl IntoIterator<Item = Bytes>) {
    let producer: BaseProducer<DefaultProducerContext> = producer(brokers);
    for body in bodies {
        producer.send(BaseRecord::<str, [u8]>::to(SPANS).key("key").payload(&body[..])).unwrap();
        producer.poll(Duration::ZERO);
    }
    producer.flush(Duration::from_secs(30)).unwrap();
}

fn member(brokers: &str, port: u16, more: &str) -> String {
    format!(
        "receivers:\n  otlp: {{ protocols: {{ http: {{ endpoint: '127.0.0.1:0' }} }} }}\n  \
         kafka: {{ brokers: ['{brokers}'], session_timeout: 4s, heartbeat_interval: 300ms, commit_interval: 100ms, {more} }}\n\
         exporters: {{ otlp_grpc: {{ endpoint: '127.0.0.1:{port}', tls: {{ insecure: true }} }} }}\n\
         admin: {{ endpoint: '127.0.0.1:0' }}\nverdict: {{ close: {{ quiet: 100ms }} }}\n\
         service: {{ log_format: text }}\n"
    )
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_member_has_exported_is_exported_by_the_next_one() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(SPANS, 1, 1).unwrap();
    let (brokers, destination) = (cluster.bootstrap_servers(), Destination::default());
    let (port, folder) = (destination.serve().await, tempfile::tempdir().unwrap());
    let config = member(&brokers, port, "");
    // More traces than metadata has room for, after one that stays open.
    let names: Vec<String> = (0..1000).map(|n| format!("{n:05}")).collect();
    write(&brokers, [request(&["open"], 0, false)]);
    write(&brokers, names.iter().map(|name| request(&[name], 0, true)));
    let first = Member::start(folder.path(), 1, &config);
    until("the first member exports", || destination.spans().len() >= names.len()).await;
    tokio::task::spawn_blocking(|| first.terminate()).await.unwrap();
    assert_eq!(destination.spans().len(), names.len());
    let second = Member::start(folder.path(), 2, &config);
    // All that is before it is read then.
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
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &brokers)
        .set("group.id", "test")
        .set("auto.offset.reset", "earliest")
        .create()
        .unwrap();
    consumer.subscribe(&[SPANS]).unwrap();
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
