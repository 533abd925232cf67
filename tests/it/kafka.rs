//! Kafka: the messages of the exporter, and a group of receivers whose members start and end.
//!
//! The tests use the mock brokers of librdkafka, which are part of the test's process. `.ci/neighbours kafka` runs the
//! same with a real broker, and more spans and changes (`kafka_broker`). `OTEL_VERDICT_SEED` repeats the order of
//! changes that a run printed, and `OTEL_VERDICT_KEEP` keeps the logs of the members.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use otel_verdict::config::Config;
use otel_verdict::pipeline::offline::RecordingEvaluation;
use otel_verdict::receive::Offer;
use prost::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _};
use rdkafka::{ClientConfig, Message as _};
use regex::Regex;
use verdict_otlp::Signal;

use crate::frameworks::{hex, spans_of};
use crate::order::single_item_requests;
use crate::scrape::http;
use crate::support::{Destination, MAX_TIME_WITHOUT_PROGRESS, Process, finish};

pub const SPANS: &str = "otlp_spans";
pub const LOGS: &str = "otlp_logs";
pub const PARTITIONS: i32 = 6;

/// Messages of one run of the captures: signal, key, body.
pub type Messages = Vec<(Signal, String, Bytes)>;
/// The subject of a verdict: trace, span, and the metric of an evaluation event; without a metric the span itself.
type VerdictSubject = (String, String, String);
/// Attributes of a verdict by key.
type Verdict = BTreeMap<String, String>;
type Verdicts = BTreeMap<VerdictSubject, Verdict>;

/// The captures, each span and record a message of its own.
pub struct Captures {
    offers: Vec<Offer>,
    /// The offsets of trace ids, by offer.
    trace_id_offsets: Vec<Vec<(usize, [u8; 16])>>,
    /// All trace ids in the captures.
    traces: BTreeSet<[u8; 16]>,
    /// The verdicts that one process writes on spans.
    verdicts: Verdicts,
    /// The verdicts that it writes as events.
    events: Verdicts,
    pub spans: usize,
}

/// The attributes that are equal whether a process evaluates a recording or receives it.
fn comparable_attributes<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> Verdict {
    // Offline traces close for another reason.
    let compared = attributes.filter(|kv| kv.key != "verdict.trace.close_reason");
    // Ids of findings depend on the id of the trace.
    static ID: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"\\"id\\":\\"[0-9a-f]{16}\\""#).unwrap());
    compared.map(|kv| (kv.key.clone(), ID.replace_all(&format!("{:?}", kv.value), "").into_owned())).collect()
}

fn span_verdict(span: &Span) -> (VerdictSubject, Verdict) {
    let ours = span.attributes.iter().filter(|kv| kv.key.starts_with("verdict."));
    ((hex(&span.trace_id), hex(&span.span_id), String::new()), comparable_attributes(ours))
}

/// The verdict of an evaluation event; `None` for a log record that was received.
fn event_verdict(record: &LogRecord) -> Option<(VerdictSubject, Verdict)> {
    if record.event_name != "gen_ai.evaluation.result" {
        return None;
    }
    let name = record.attributes.iter().find(|kv| kv.key == "gen_ai.evaluation.name").unwrap();
    let Some(AnyValue { value: Some(Value::StringValue(metric)) }) = &name.value else { panic!("{name:?}") };
    let mut verdict = comparable_attributes(record.attributes.iter());
    verdict.insert("severity".to_owned(), record.severity_number.to_string());
    Some(((hex(&record.trace_id), hex(&record.span_id), metric.clone()), verdict))
}

pub fn records_of(body: &Bytes) -> Vec<LogRecord> {
    let request = ExportLogsServiceRequest::decode(body.clone()).unwrap();
    let scopes = request.resource_logs.into_iter().flat_map(|resource| resource.scope_logs);
    scopes.flat_map(|scope| scope.log_records).collect()
}

fn record_hash(record: &LogRecord) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(record.encode_to_vec())
}

impl Captures {
    /// Evaluates the captures on a thread without a runtime, because the evaluation has its own.
    pub fn read() -> Captures {
        std::thread::spawn(|| Captures::evaluate(single_item_requests())).join().unwrap()
    }

    /// Like [`Captures::read`], without log records.
    fn without_logs() -> Captures {
        let spans = || single_item_requests().into_iter().filter(|offer| offer.signal == Signal::Traces);
        std::thread::spawn(move || Captures::evaluate(spans().collect())).join().unwrap()
    }

    fn evaluate(offers: Vec<Offer>) -> Captures {
        let of_traces = |offer: &&Offer| offer.signal == Signal::Traces;
        let bodies: Vec<Bytes> = offers.iter().filter(of_traces).map(|offer| offer.body.clone()).collect();
        let spans = spans_of(&bodies);
        let traces: BTreeSet<[u8; 16]> =
            spans.iter().map(|span| span.trace_id[..].try_into().unwrap()).collect();
        let in_body = |offer: &Offer| {
            let windows = offer.body.windows(16).enumerate();
            windows.filter_map(|(at, id)| Some((at, *traces.get(id)?))).collect()
        };
        let trace_id_offsets = offers.iter().map(in_body).collect();
        let mut evaluation = RecordingEvaluation::new(&Config::default(), 1).unwrap();
        for offer in &offers {
            evaluation.add(offer).unwrap();
        }
        let (mut verdicts, mut events) = (Verdicts::new(), Verdicts::new());
        finish(&mut evaluation, |done| {
            for piece in done.annotated.spans {
                verdicts.extend(spans_of(&[piece.bytes]).iter().map(span_verdict));
            }
            let records = done.annotated.events.iter().flat_map(|piece| records_of(&piece.bytes));
            for (judged, verdict) in records.filter_map(|record| event_verdict(&record)) {
                assert!(events.insert(judged.clone(), verdict).is_none(), "two events about {judged:?}");
            }
        });
        assert_eq!(verdicts.len(), spans.len());
        assert!(!events.is_empty());
        Captures { offers, trace_id_offsets, traces, verdicts, events, spans: spans.len() }
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
        let message = |(Offer { signal, body }, trace_id_offsets): (&Offer, &Vec<(usize, [u8; 16])>)| {
            let mut body = body.to_vec();
            for (at, trace) in trace_id_offsets {
                body[*at..at + 16].copy_from_slice(&Captures::id(trace, run));
            }
            let (_, first) = trace_id_offsets.first()?;
            Some((*signal, hex(&Captures::id(first, run)), body.into()))
        };
        self.offers.iter().zip(&self.trace_id_offsets).filter_map(message).collect()
    }

    /// The run and the trace of the captures of each trace of `runs`, by id.
    fn capture_traces(&self, runs: u32) -> BTreeMap<String, (u32, String)> {
        let in_run = |run| {
            let entry = move |trace: &[u8; 16]| (hex(&Captures::id(trace, run)), (run, hex(trace)));
            self.traces.iter().map(entry)
        };
        (0..runs).flat_map(in_run).collect()
    }

    /// The log records of `runs`, as they are sent.
    fn records(&self, runs: u32) -> BTreeSet<u64> {
        let messages = (0..runs).flat_map(|run| self.messages(run));
        let logs = messages.filter(|(signal, ..)| *signal == Signal::Logs);
        logs.flat_map(|(_, _, body)| records_of(&body)).map(|record| record_hash(&record)).collect()
    }
}

fn producer(brokers: &str) -> BaseProducer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("partitioner", "fnv1a_random").set("linger.ms", "1");
    config.set("acks", "all").create().unwrap()
}

/// Writes the runs, many of them interleaved, at `rate` spans a second; returns the rate that was reached.
fn produce(brokers: &str, captures: &Captures, runs: u32, rate: f64) -> f64 {
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
    spans as f64 / started.elapsed().as_secs_f64()
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

/// A change of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Kill,
    Addition,
    /// A member ends after SIGTERM.
    Removal,
}

/// Maximum number of members at once.
const MAX_MEMBERS: usize = 6;

/// The settings of a test with a group.
pub struct GroupTest {
    /// The number of members at the beginning and at the end.
    pub members: usize,
    /// Whether log records are sent too; the group assigns the partitions of spans alone in another way.
    pub logs: bool,
    pub runs: u32,
    /// Spans written per second.
    pub rate: f64,
    pub kills: usize,
    pub additions: usize,
    pub removals: usize,
    /// Time between changes, whose order is random.
    pub interval: Duration,
    pub session: &'static str,
    pub quiet: &'static str,
    /// Longest time after the last message until everything has arrived.
    pub patience: Duration,
}

/// The result for all spans, or all evaluation events. Another revision of a verdict is another verdict.
#[derive(Debug, Default)]
pub struct DeliveryComparison {
    pub expected: usize,
    /// Subjects that were not delivered.
    pub lost: usize,
    /// Subjects that were delivered, but never with the verdict of one process.
    pub wrong: usize,
    /// Subjects that were delivered with the verdict of one process, and with another one.
    pub double: usize,
    /// Subjects that were delivered, although one process does not write them.
    pub unexpected: usize,
    /// Deliveries with a verdict that had been delivered.
    pub repeated: usize,
    /// The first subjects that are wrong, double or unexpected, for the message.
    pub first: Vec<String>,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    pub spans: DeliveryComparison,
    pub events: DeliveryComparison,
    /// Received log records that were not forwarded.
    pub lost_records: usize,
    /// Log records that were forwarded again.
    pub repeated_records: usize,
    /// Spans a second that were written.
    pub rate: f64,
    /// Changes of the group that ended while spans were written.
    pub changes_under_load: usize,
}

impl Outcome {
    /// Asserts that no span or event is lost, and that each has the verdict of one process. At most the share
    /// `max_double_share` may have another verdict in addition.
    pub fn assert(&self, max_double_share: f64) {
        let Outcome { rate, changes_under_load, lost_records, repeated_records, .. } = self;
        println!(
            "{rate:.0} spans/s written, {changes_under_load} changes meanwhile; log records: {lost_records} lost, \
             {repeated_records} repeated"
        );
        for (kind, compared) in [("spans", &self.spans), ("events", &self.events)] {
            let DeliveryComparison { expected, lost, wrong, double, unexpected, repeated, .. } = compared;
            println!(
                "{expected} {kind}: {lost} lost, {wrong} wrong, {double} double, {unexpected} unexpected, {repeated} repeated"
            );
        }
        for DeliveryComparison { expected, lost, wrong, double, unexpected, .. } in
            [&self.spans, &self.events]
        {
            assert_eq!((*lost, *wrong), (0, 0), "{self:#?}");
            assert!((double + unexpected) as f64 <= max_double_share * *expected as f64, "{self:#?}");
        }
        assert_eq!(self.lost_records, 0, "{self:#?}");
    }
}

/// `OTEL_VERDICT_SEED`, with which an order of changes is tried again, or another number each time.
fn change_order_seed() -> u64 {
    match std::env::var("OTEL_VERDICT_SEED") {
        Ok(change_order_seed) => change_order_seed.parse().expect("OTEL_VERDICT_SEED must be a number"),
        Err(_) => u64::from(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()),
    }
}

/// Runs members, changes the group while messages are written, and compares with one process.
pub async fn run_group_test(brokers: &str, test: &GroupTest) -> Outcome {
    let read = if test.logs { Captures::read } else { Captures::without_logs };
    let captures = read();
    let destination = Destination::default();
    let port = destination.serve().await;
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "receivers:\n  otlp: {{ protocols: {{ http: {{ endpoint: '127.0.0.1:0' }} }} }}\n  \
         kafka: {{ brokers: {:?}, {}session_timeout: {}, heartbeat_interval: 300ms, commit_interval: 200ms }}\n\
         exporters: {{ otlp_grpc: {{ endpoint: '127.0.0.1:{port}', tls: {{ insecure: true }} }} }}\n\
         admin: {{ endpoint: '127.0.0.1:0' }}\nverdict: {{ close: {{ quiet: {} }} }}\n\
         service: {{ log_format: text }}\n",
        brokers.split(',').collect::<Vec<_>>(),
        if test.logs { "logs: {}, " } else { "" },
        test.session,
        test.quiet,
    );
    let mut started = 0;
    let mut start = || {
        started += 1;
        Member::start(folder.path(), started, &config)
    };
    let mut members: Vec<Member> = (0..test.members).map(|_| start()).collect();
    let writing = {
        let (brokers, runs, rate) = (brokers.to_owned(), test.runs, test.rate);
        tokio::task::spawn_blocking(move || produce(&brokers, &read(), runs, rate))
    };
    let change_order_seed = change_order_seed();
    println!("OTEL_VERDICT_SEED={change_order_seed}");
    let mut random = change_order_seed;
    let mut pick = move |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let kinds =
        [(Change::Kill, test.kills), (Change::Addition, test.additions), (Change::Removal, test.removals)];
    let mut left: Vec<Change> =
        kinds.into_iter().flat_map(|(change, times)| std::iter::repeat_n(change, times)).collect();
    let mut changes_under_load = 0;
    let mut ticks = tokio::time::interval(test.interval);
    // A removal takes longer than the other changes; the next change must not follow immediately.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick is immediate.
    ticks.tick().await;
    while !left.is_empty() {
        ticks.tick().await;
        // There is always at least one member. Additions and removals balance, so that one of the remaining changes is
        // possible.
        let is_possible = |change: Change| match change {
            Change::Addition => members.len() < MAX_MEMBERS,
            Change::Kill | Change::Removal => members.len() > 1,
        };
        let possible: Vec<usize> = (0..left.len()).filter(|at| is_possible(left[*at])).collect();
        let change = left.swap_remove(possible[pick(possible.len())]);
        match change {
            Change::Kill => members.remove(pick(members.len())).kill(),
            Change::Addition => members.push(start()),
            Change::Removal => {
                let member = members.remove(pick(members.len()));
                tokio::task::spawn_blocking(|| member.terminate()).await.unwrap();
            }
        }
        println!("{change:?}, {} members", members.len());
        changes_under_load += usize::from(!writing.is_finished());
    }
    while members.len() < test.members {
        members.push(start());
    }
    let rate = writing.await.unwrap();
    let wanted = captures.spans * test.runs as usize;
    let (mut before, mut since, ended) = (Default::default(), Instant::now(), Instant::now());
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = destination.counts();
        if now != before {
            (before, since) = (now, Instant::now());
        }
        if since.elapsed() > test.patience / 4 {
            let spans = destination.spans();
            let distinct: BTreeSet<_> = spans.iter().map(|span| (&span.trace_id, &span.span_id)).collect();
            if distinct.len() >= wanted || ended.elapsed() > test.patience {
                break;
            }
        }
    }
    for member in members {
        let log = member.log.clone();
        member.terminate();
        let log = std::fs::read_to_string(log).unwrap();
        assert!(!log.contains("panicked"), "{log}");
    }
    if std::env::var_os("OTEL_VERDICT_KEEP").is_some() {
        println!("logs: {}", folder.keep().display());
    }
    let capture_traces = captures.capture_traces(test.runs);
    let mut spans = Comparison::new(&captures.verdicts, &capture_traces);
    destination.for_each_span(|span| spans.add(span_verdict(span)));
    let mut events = Comparison::new(&captures.events, &capture_traces);
    let (mut forwarded, mut repeated_records) = (BTreeSet::new(), 0);
    destination.for_each_record(|record| match event_verdict(record) {
        Some(event) => events.add(event),
        None => repeated_records += usize::from(!forwarded.insert(record_hash(record))),
    });
    Outcome {
        spans: spans.result(test.runs),
        events: events.result(test.runs),
        lost_records: captures.records(test.runs).difference(&forwarded).count(),
        repeated_records,
        rate,
        changes_under_load,
    }
}

/// The delivered verdicts, compared with those that one process writes about the captures.
struct Comparison<'c> {
    expected: &'c Verdicts,
    capture_traces: &'c BTreeMap<String, (u32, String)>,
    /// The different verdicts by run and subject; the trace of the subject is that of the captures.
    delivered: BTreeMap<(u32, VerdictSubject), Vec<Arc<Verdict>>>,
    /// Each different verdict once, since the verdicts of all runs are equal.
    verdicts: BTreeSet<Arc<Verdict>>,
    repeated: usize,
}

impl<'c> Comparison<'c> {
    fn new(expected: &'c Verdicts, capture_traces: &'c BTreeMap<String, (u32, String)>) -> Comparison<'c> {
        let (delivered, verdicts) = Default::default();
        Comparison { expected, capture_traces, delivered, verdicts, repeated: 0 }
    }

    fn add(&mut self, ((trace, span, metric), verdict): (VerdictSubject, Verdict)) {
        let (run, trace) = &self.capture_traces[&trace];
        let existing = self.verdicts.get(&verdict).cloned();
        let verdict = existing.unwrap_or_else(|| Arc::new(verdict));
        self.verdicts.insert(Arc::clone(&verdict));
        let all = self.delivered.entry((*run, (trace.clone(), span, metric))).or_default();
        if all.contains(&verdict) {
            self.repeated += 1;
        } else {
            all.push(verdict);
        }
    }

    fn result(self, runs: u32) -> DeliveryComparison {
        let expected = self.expected.len() * runs as usize;
        let mut out =
            DeliveryComparison { expected, repeated: self.repeated, ..DeliveryComparison::default() };
        let mut found = 0;
        for ((run, judged), delivered) in self.delivered {
            let wanted = self.expected.get(&judged);
            found += usize::from(wanted.is_some());
            let count = match wanted {
                None => &mut out.unexpected,
                Some(wanted) if !delivered.iter().any(|verdict| **verdict == *wanted) => &mut out.wrong,
                Some(_) if delivered.len() > 1 => &mut out.double,
                Some(_) => continue,
            };
            *count += 1;
            if out.first.len() < 3 {
                out.first.push(format!("run {run}, {judged:?}\n{wanted:?}\n{delivered:?}"));
            }
        }
        out.lost = expected - found;
        out
    }
}

pub fn cluster() -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(1).unwrap();
    for topic in [SPANS, LOGS] {
        cluster.create_topic(topic, PARTITIONS, 1).unwrap();
    }
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_changes_loses_no_span_and_gives_the_verdicts_of_one_process() {
    let cluster = cluster();
    let test = GroupTest {
        members: 3,
        logs: true,
        runs: 40,
        // Some 22 s, so that the group changes meanwhile.
        rate: 60.0,
        kills: 1,
        additions: 1,
        removals: 1,
        interval: Duration::from_secs(6),
        // Longer than the 3 s for which the mock coordinator waits for the first members: it counts that time as
        // silence of theirs.
        session: "4s",
        quiet: "2s",
        patience: Duration::from_secs(60),
    };
    run_group_test(&cluster.bootstrap_servers(), &test).await.assert(0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_receives_spans_alone_loses_none_while_a_member_comes_and_one_goes() {
    let cluster = cluster();
    let test = GroupTest {
        members: 2,
        logs: false,
        runs: 50,
        // Some 28 s. A change with this assignment takes two rounds of the group, of up to 3 s each.
        rate: 60.0,
        kills: 0,
        additions: 1,
        removals: 1,
        interval: Duration::from_secs(8),
        session: "4s",
        quiet: "2s",
        patience: Duration::from_secs(60),
    };
    let out = run_group_test(&cluster.bootstrap_servers(), &test).await;
    out.assert(0.0);
    assert_eq!(out.changes_under_load, 2);
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
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &brokers)
        .set("group.id", "test")
        .set("auto.offset.reset", "earliest")
        .create()
        .unwrap();
    consumer.subscribe(&[SPANS, LOGS]).unwrap();
    let (mut bodies, mut logs, started) = (Vec::new(), 0, Instant::now());
    let wanted = captures.spans * 5;
    while started.elapsed() < MAX_TIME_WITHOUT_PROGRESS && (spans_of(&bodies).len() < wanted || logs == 0) {
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

/// Like [`member`], with `more` for everything that is not about connections.
pub fn member_with(brokers: &str, port: u16, receiver: &str, more_settings: &str) -> String {
    format!(
        "receivers:\n  otlp: {{ protocols: {{ http: {{ endpoint: '127.0.0.1:0' }} }} }}\n  \
         kafka: {{ brokers: ['{brokers}'], session_timeout: 4s, heartbeat_interval: 300ms, {receiver} }}\n\
         exporters: {{ otlp_grpc: {{ endpoint: '127.0.0.1:{port}', tls: {{ insecure: true }} }} }}\n\
         admin: {{ endpoint: '127.0.0.1:0' }}\nservice: {{ log_format: text }}\n{more_settings}\n"
    )
}

pub async fn until(condition: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < MAX_TIME_WITHOUT_PROGRESS, "{condition}");
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
    // More traces than metadata has space for, after one that stays open.
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

/// The value of a metric of a process.
async fn value(process: &Process, metric: &str) -> u64 {
    let page = http(process.service.admin.unwrap(), "GET /metrics", b"").await;
    let start = format!("otel_verdict_receive_kafka_{metric} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {metric} in\n{page}")).parse().unwrap()
}

/// Waits until the number of paused partitions is `partitions`.
async fn until_paused(process: &Process, partitions: u64) {
    let started = Instant::now();
    while value(process, "paused_partitions").await != partitions {
        assert!(started.elapsed() < MAX_TIME_WITHOUT_PROGRESS, "paused partitions are not {partitions}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

const ACCEPTED: &str = "records_total{signal=\"traces\",outcome=\"accepted\"}";

/// Writes twice as many spans as a process takes that has one partition and these settings, while its destination does
/// not answer; the second half when the partition is paused.
async fn pauses(receiver: &str, exporter: &str, spans: usize) {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(SPANS, 1, 1).unwrap();
    let brokers = cluster.bootstrap_servers();
    let process = Process::start(&format!(
        "receivers: {{ kafka: {{ brokers: ['{brokers}'], session_timeout: 4s, heartbeat_interval: 300ms, {receiver} }} }}\n\
         exporters: {{ otlp_grpc: {{ {exporter} }} }}\nverdict: {{ close: {{ quiet: 100ms }} }}"
    ))
    .await;
    process.destination.stop_answering();
    let names: Vec<String> = (0..2 * spans).map(|n| format!("large{n:05}")).collect();
    let (first, second) = names.split_at(spans);
    write(&brokers, first.iter().map(|name| request(&[name], 20_000, true)));
    until_paused(&process, 1).await;
    let accepted = value(&process, ACCEPTED).await;
    write(&brokers, second.iter().map(|name| request(&[name], 20_000, true)));
    // A partition that is not paused would be read at once. Longer than the session: the member still polls.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(value(&process, "paused_partitions").await, 1);
    assert_eq!(value(&process, "partitions").await, 1);
    assert_eq!(value(&process, ACCEPTED).await, accepted, "messages of a paused partition were received");
    assert!(process.destination.spans().is_empty());
    process.destination.release();
    process.until("all spans", |destination| destination.spans().len() >= names.len()).await;
    until_paused(&process, 0).await;
    let written: BTreeSet<&String> = names.iter().collect();
    let spans = process.stop().await.spans();
    assert_eq!(spans.len(), names.len());
    assert_eq!(spans.iter().map(|span| &span.name).collect::<BTreeSet<_>>(), written);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_is_paused_while_too_many_of_its_messages_are_uncommitted() {
    pauses("max_uncommitted_records: 10", "", 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_is_paused_while_the_queue_of_an_exporter_is_full() {
    pauses("", "sending_queue: { queue_size: 64KiB, num_consumers: 1 }", 40).await;
}
