//! A group of receivers whose members start and end while messages are written, compared with one process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _};
use verdict_otlp::Signal;

use super::captures::{
    Captures, Messages, Verdict, VerdictSubject, Verdicts, event_verdict, record_hash, span_verdict,
};
use super::{LOGS, Member, SPANS, cluster, producer};
use crate::support::Destination;

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
        Ok(seed) => seed.parse().expect("OTEL_VERDICT_SEED must be a number"),
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
    let mut member_number = 0;
    let mut start = || {
        member_number += 1;
        Member::start(folder.path(), member_number, &config)
    };
    let mut members: Vec<Member> = (0..test.members).map(|_| start()).collect();
    let writing = {
        let (brokers, runs, rate) = (brokers.to_owned(), test.runs, test.rate);
        tokio::task::spawn_blocking(move || produce(&brokers, &read(), runs, rate))
    };
    let seed = change_order_seed();
    println!("OTEL_VERDICT_SEED={seed}");
    let mut random = seed;
    let mut pick = move |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let kinds =
        [(Change::Kill, test.kills), (Change::Addition, test.additions), (Change::Removal, test.removals)];
    let mut remaining_changes: Vec<Change> =
        kinds.into_iter().flat_map(|(change, times)| std::iter::repeat_n(change, times)).collect();
    let mut changes_under_load = 0;
    let mut ticks = tokio::time::interval(test.interval);
    // A removal takes longer than the other changes; the next change must not follow immediately.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick is immediate.
    ticks.tick().await;
    while !remaining_changes.is_empty() {
        ticks.tick().await;
        // There is always at least one member. Additions and removals balance, so that one of the remaining changes is
        // possible.
        let is_possible = |change: Change| match change {
            Change::Addition => members.len() < MAX_MEMBERS,
            Change::Kill | Change::Removal => members.len() > 1,
        };
        let possible: Vec<usize> =
            (0..remaining_changes.len()).filter(|at| is_possible(remaining_changes[*at])).collect();
        let change = remaining_changes.swap_remove(possible[pick(possible.len())]);
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
    let expected_spans = captures.spans * test.runs as usize;
    let (mut last_counts, mut last_change, written_at) = (Default::default(), Instant::now(), Instant::now());
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let counts = destination.counts();
        if counts != last_counts {
            (last_counts, last_change) = (counts, Instant::now());
        }
        if last_change.elapsed() > test.patience / 4 {
            let spans = destination.spans();
            let distinct: BTreeSet<_> = spans.iter().map(|span| (&span.trace_id, &span.span_id)).collect();
            if distinct.len() >= expected_spans || written_at.elapsed() > test.patience {
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
        let mut delivered_expected = 0;
        for ((run, subject), delivered) in self.delivered {
            let expected_verdict = self.expected.get(&subject);
            delivered_expected += usize::from(expected_verdict.is_some());
            let count = match expected_verdict {
                None => &mut out.unexpected,
                Some(expected_verdict) if !delivered.iter().any(|verdict| **verdict == *expected_verdict) => {
                    &mut out.wrong
                }
                Some(_) if delivered.len() > 1 => &mut out.double,
                Some(_) => continue,
            };
            *count += 1;
            if out.first.len() < 3 {
                out.first.push(format!("run {run}, {subject:?}\n{expected_verdict:?}\n{delivered:?}"));
            }
        }
        out.lost = expected - delivered_expected;
        out
    }
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
