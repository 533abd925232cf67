//! The process is killed while spans are sent or a judge is asked.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::Span;

use super::{
    Processor, begun_evaluations, expected_attributes, has_attribute, requests, send_until_acknowledged,
    span, verdict_attributes,
};
use crate::support::{Destination, until, until_none_is_missing};

/// Concurrent senders of the tests that kill the process. Each has one trace in flight.
const SENDERS: u64 = 32;
/// Pause of a sender after each request.
const SENDER_PAUSE: Duration = Duration::from_millis(5);

/// A test that kills and restarts the process while spans are sent.
struct KillTest<'a> {
    durability: &'a str,
    rounds: u64,
    /// The section `verdict` of the configuration.
    verdict: &'a str,
    /// An attribute that some span must have.
    attribute: &'a str,
    /// Whether the mode is `shadow`, in which no attributes are appended.
    shadow: bool,
    /// If present, the process is killed while a question that it has asked is open.
    questions: Option<&'a Questions>,
}

/// The questions to a judge.
#[derive(Default)]
struct Questions {
    asked: AtomicU64,
    is_open: AtomicBool,
}

impl Default for KillTest<'_> {
    fn default() -> Self {
        KillTest {
            durability: "interval",
            rounds: 50,
            verdict: "verdict: { close: { quiet: 300ms } }",
            attribute: "verdict.trace.result",
            shadow: false,
            questions: None,
        }
    }
}

/// The traces whose requests were all acknowledged, and whether one of them was sent more than once.
type Acknowledged = HashMap<u64, bool>;

/// The state that the senders share.
#[derive(Default)]
struct SenderState {
    stop: AtomicBool,
    /// Traces begun.
    begun: AtomicU64,
    /// Acknowledged requests.
    requests: AtomicU64,
    acknowledged: Mutex<Acknowledged>,
}

/// Starts the senders; they end after `stop` is set. Each waits for the export of a trace before it sends the next: so
/// there are never more traces than senders that a kill can repeat, or that wait for a judge, however slow the
/// process is.
fn start_senders(
    processor: &Processor,
    destination: &Destination,
    sending: &Arc<SenderState>,
) -> Vec<tokio::task::JoinHandle<()>> {
    let sender = |_| {
        let (sending, destination) = (Arc::clone(sending), destination.clone());
        let mut client = processor.client();
        tokio::spawn(async move {
            let is_stopped = || sending.stop.load(Ordering::Relaxed);
            while !is_stopped() {
                let trace = 1 + sending.begun.fetch_add(1, Ordering::Relaxed);
                let mut resent = false;
                for request in requests(trace) {
                    resent |= send_until_acknowledged(&mut client, &request).await > 1;
                    sending.requests.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(SENDER_PAUSE).await;
                }
                sending.acknowledged.lock().unwrap().insert(trace, resent);
                let id = span(trace, 1, 0, "", Vec::new()).trace_id;
                // Without a limit of its own: before a kill, the test waits for progress of all senders.
                while !is_stopped() && !destination.has_received(&id) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        })
    };
    (0..SENDERS).map(sender).collect()
}

/// Kills and restarts the process at pseudo-random times. Returns the evaluations that a kill interrupted.
async fn kill_and_restart(
    processor: &mut Processor,
    journal: &Path,
    rounds: u64,
    sending: &SenderState,
    questions: Option<&Questions>,
) -> BTreeSet<(Vec<u8>, Vec<u8>)> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut interrupted = BTreeSet::new();
    for round in 0..rounds {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let acknowledged = || sending.requests.load(Ordering::Relaxed);
        let asked = || questions.map_or(0, |all| all.asked.load(Ordering::Relaxed));
        let (enough, asked_before) = (acknowledged() + 1 + (random >> 48) % 32, asked());
        // A slow process may still recover at any time that is chosen here. So three of four acknowledge some requests
        // before, and the others may be killed during recovery.
        if round % 4 != 0 {
            let missing = || usize::try_from(enough.saturating_sub(acknowledged())).unwrap();
            until_none_is_missing("acknowledged requests", missing).await;
        }
        tokio::time::sleep(Duration::from_millis(40 + (random >> 33) % 700)).await;
        if let Some(all) = questions {
            let is_open = || asked() > asked_before && all.is_open.load(Ordering::Relaxed);
            until("an open question", is_open).await;
        }
        processor.kill();
        interrupted.extend(begun_evaluations(journal));
        processor.restart();
    }
    interrupted
}

/// Waits until every acknowledged span and the verdict on its trace are exported.
async fn wait_for_acknowledged(destination: &Destination, acknowledged: &Acknowledged) {
    let is_of_trace = |r: &LogRecord| r.attributes.iter().any(|kv| kv.key == "verdict.trace.result");
    let missing = || {
        let exported: BTreeSet<Vec<u8>> = destination.spans().into_iter().map(|span| span.span_id).collect();
        let events = destination.records().into_iter().filter(is_of_trace);
        let evaluated: BTreeSet<Vec<u8>> = events.map(|record| record.trace_id).collect();
        let all = acknowledged.keys().flat_map(|&trace| requests(trace));
        let spans = all.flat_map(|r| r.resource_spans[0].scope_spans[0].spans.clone());
        spans.filter(|s| !exported.contains(&s.span_id) || !evaluated.contains(&s.trace_id)).count()
    };
    until_none_is_missing("acknowledged spans, or the verdicts on their traces", missing).await;
}

/// Returns the number of traces sent.
async fn kill_repeatedly(test: KillTest<'_>) -> u64 {
    let KillTest { durability, rounds, verdict: close, attribute, shadow, questions } = test;
    let mut expected = expected_attributes(if shadow { "" } else { close }).await;
    assert!(format!("{expected:?}").contains(attribute), "{expected:#?}");
    if shadow {
        expected.values_mut().for_each(BTreeSet::clear);
    }
    let destination = Destination::default();
    let folder = tempfile::tempdir().unwrap();
    let storage = folder.path().join("journal");
    let more_settings = format!(
        "{close}\nstorage: {{ directory: '{}', durability: {durability}, segment_bytes: 64KiB, max_bytes: 256MiB }}",
        storage.display()
    );
    let mut processor = Processor::start(folder.path(), destination.serve().await, &more_settings);
    let sending: Arc<SenderState> = Arc::default();
    let senders = start_senders(&processor, &destination, &sending);
    let interrupted = kill_and_restart(&mut processor, &storage, rounds, &sending, questions).await;
    sending.stop.store(true, Ordering::Relaxed);
    for sender in senders {
        sender.await.unwrap();
    }
    let acknowledged = sending.acknowledged.lock().unwrap().clone();
    assert!(acknowledged.len() as u64 > rounds / 2, "only {} traces were sent", acknowledged.len());
    wait_for_acknowledged(&destination, &acknowledged).await;
    assert_eq!(processor.terminate(), Some(0));

    let mut copies: HashMap<Vec<u8>, Vec<Span>> = HashMap::new();
    for span in destination.spans() {
        copies.entry(span.span_id.clone()).or_default().push(span);
    }
    let events =
        destination.records().into_iter().filter(|r| has_attribute(r, "verdict.trace.reason", "quarantined"));
    let quarantined: BTreeSet<Vec<u8>> = events.map(|record| record.trace_id).collect();
    // An unoptimised process compiles patterns for 50 to 250 ms in its first evaluation, so that two kills can
    // meet the same trace.
    for trace in &quarantined {
        let deaths = interrupted.iter().filter(|(id, _)| id == trace).count();
        assert!(deaths >= 2, "a trace was quarantined after {deaths} kills during its evaluation");
    }
    let (mut by_processor, mut more_than_twice, mut by_sender, mut resent_traces) = (0, 0, 0, 0);
    for (&trace, &resent) in &acknowledged {
        resent_traces += u64::from(resent);
        for sent in requests(trace).iter().flat_map(|r| &r.resource_spans[0].scope_spans[0].spans) {
            let copies = &copies[&sent.span_id];
            if resent {
                by_sender += copies.len() - 1;
            } else {
                by_processor += copies.len() - 1;
                more_than_twice += usize::from(copies.len() > 2);
            }
            let mut distinct: Vec<BTreeSet<String>> = copies.iter().map(verdict_attributes).collect();
            distinct.dedup();
            // A sender resends a request whose acknowledgement was lost. The copy may arrive after its trace
            // has closed, and then has another verdict. All other copies have the same one.
            let unevaluated = quarantined.contains(&sent.trace_id);
            assert!(unevaluated || distinct.contains(&expected[&sent.name]), "{}: {distinct:#?}", sent.name);
            assert!(resent || distinct.len() == 1, "{}: copies differ: {distinct:#?}", sent.name);
            for copy in copies {
                let mut plain = copy.clone();
                plain.attributes.retain(|kv| !kv.key.starts_with("verdict."));
                assert_eq!(&plain, sent);
            }
        }
    }
    println!(
        "{durability}: killed {rounds} times; {} traces; spans twice: {by_processor} by the processor, {more_than_twice} more than twice; \
         {by_sender} of the {resent_traces} traces that were sent again by their sender; {} quarantined",
        acknowledged.len(),
        quarantined.len()
    );
    // A kill repeats what is in flight: at most one trace of three spans for each sender. Without releases in the
    // journal, every start would send all spans again.
    let limit = rounds as usize * SENDERS as usize * 3;
    assert!(
        by_processor <= limit,
        "{by_processor} of the spans of {} traces were sent again",
        acknowledged.len()
    );
    acknowledged.len() as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn after_fifty_kills_under_load_every_acknowledged_span_is_exported_unchanged() {
    kill_repeatedly(KillTest::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kills_with_fsync_per_request_few_spans_are_exported_twice() {
    kill_repeatedly(KillTest { durability: "sync", rounds: 15, ..KillTest::default() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kills_in_shadow_mode_spans_and_verdicts_are_exported() {
    let verdict = "verdict: { mode: shadow, close: { quiet: 300ms } }";
    kill_repeatedly(KillTest { verdict, shadow: true, rounds: 15, ..KillTest::default() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_traces_that_waited_for_a_judge_are_asked_about_again() {
    let questions: Arc<Questions> = Arc::default();
    let all = Arc::clone(&questions);
    let endpoint = crate::model::serve(move |_, _| {
        all.asked.fetch_add(1, Ordering::Relaxed);
        all.is_open.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(20));
        all.is_open.store(false, Ordering::Relaxed);
        serde_json::json!({ "rationale": "nearly all of it", "score": 4, "findings": [] })
    });
    // The judge answers one question at a time, however long that takes.
    let verdict = format!(
        "judges: {{ main: {{ endpoint: '{endpoint}', model: m, timeout: 10m }} }}\n\
         verdict: {{ close: {{ quiet: 50ms }}, max_wait: 1h, metrics: {{ completeness: {{ judges: [main] }} }} }}"
    );
    let test = KillTest {
        rounds: 15,
        verdict: &verdict,
        attribute: "verdict.completeness.score",
        questions: Some(&questions),
        ..KillTest::default()
    };
    let traces = kill_repeatedly(test).await;
    let asked = questions.asked.load(Ordering::Relaxed);
    assert!(asked > traces + 1, "{asked} questions about {traces} traces: none was waiting at a kill");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_or_a_kill_the_spent_budget_of_an_hour_is_still_spent() {
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    // One answer costs more than the budget, which its estimate does not exceed.
    let endpoint = crate::model::serve_for(1_000_000, move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        serde_json::json!({ "rationale": "nearly all of it", "score": 4, "findings": [] })
    });
    for killed in [false, true] {
        asked.store(0, Ordering::Relaxed);
        let (folder, destination) = (tempfile::tempdir().unwrap(), Destination::default());
        let journal = folder.path().join("journal");
        let more_settings = format!(
            "judges: {{ main: {{ endpoint: '{endpoint}', model: m }} }}\n\
             judging: {{ budget: {{ per_hour: {{ tokens: 500000 }} }} }}\n\
             verdict: {{ close: {{ quiet: 50ms }}, max_wait: 1m, metrics: {{ completeness: {{ judges: [main] }} }} }}\n\
             storage: {{ directory: '{}' }}",
            journal.display()
        );
        let mut processor = Processor::start(folder.path(), destination.serve().await, &more_settings);
        for trace in 1..=3 {
            for request in requests(trace) {
                send_until_acknowledged(&mut processor.client(), &request).await;
            }
            wait_for_acknowledged(&destination, &[(trace, false)].into()).await;
            if killed {
                until("the spending is stored", || journal.join("judge-spending").exists()).await;
                processor.kill();
            } else {
                assert_eq!(processor.terminate(), Some(0));
            }
            processor.restart();
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1, "killed: {killed}");
        let refused = destination.spans().into_iter().filter(|span| {
            verdict_attributes(span)
                .iter()
                .any(|a| a.contains("verdict.completeness.reason") && a.contains("budget"))
        });
        assert_eq!(refused.map(|span| span.trace_id).collect::<BTreeSet<_>>().len(), 2);
    }
}
