//! Kafka: the state that a member leaves to the next owner of a partition, with the mock brokers of librdkafka.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::durable::{requests, verdict_attributes};
use crate::frameworks::{hex, spans_of};
use crate::interrupted::Judge;
use crate::kafka::{Member, PARTITIONS, SPANS, cluster, member_with, partition, request, write, write_keyed};
use crate::support::{Destination, until};

/// The partitions that a member has, by its log.
pub fn held_partitions(log: &str) -> BTreeSet<i32> {
    let mut held = BTreeSet::new();
    for line in log.lines() {
        let Some((_, numbers)) = line.split_once("numbers=[") else { continue };
        let numbers = numbers.split_once(']').unwrap().0.split(", ").filter_map(|number| number.parse().ok());
        let numbers: BTreeSet<i32> = numbers.collect();
        if line.contains("Kafka partitions assigned") {
            held.extend(numbers);
        } else if line.contains("Kafka partitions revoked") {
            held.retain(|number| !numbers.contains(number));
        }
    }
    held
}

/// Waits until every partition has one owner, and each member has some.
pub async fn until_shared(members: &[&Member]) {
    until("the members share the partitions", || {
        let all: Vec<BTreeSet<i32>> =
            members.iter().map(|member| held_partitions(&member.read_log())).collect();
        let numbers: Vec<&i32> = all.iter().flatten().collect();
        let distinct: BTreeSet<&i32> = numbers.iter().copied().collect();
        all.iter().all(|held| !held.is_empty()) && [numbers.len(), distinct.len()] == [PARTITIONS as usize; 2]
    })
    .await;
}

pub async fn terminate(member: Member) {
    tokio::task::spawn_blocking(|| member.terminate()).await.unwrap();
}

const TRACES: u64 = 24;

/// The messages of the traces for which a judge is asked, by key.
fn judged() -> Vec<(String, Bytes)> {
    let bodies = (1..=TRACES).flat_map(requests).map(|request| Bytes::from(request.encode_to_vec()));
    bodies.map(|body| (hex(&spans_of(std::slice::from_ref(&body))[0].trace_id), body)).collect()
}

/// Revokes partitions while a judge is asked about their traces: some, by a second member, whereupon the judge answers
/// both; and all, if the first member leaves before that.
async fn revoke_while_judges_are_asked(first_leaves: bool) {
    let (cluster, destination, judge) = (cluster(), Destination::default(), Judge::silent());
    let (port, folder) = (destination.serve().await, tempfile::tempdir().unwrap());
    let brokers = cluster.bootstrap_servers();
    let config = member_with(&brokers, port, "commit_interval: 100ms", &judge.config());
    let messages = judged();
    let first = Member::start(folder.path(), 1, &config);
    write_keyed(&brokers, messages.clone());
    until("the judge is asked", || judge.asked.load(Ordering::SeqCst) > 0).await;
    // The judge answers one question after the other: others wait for it in its backlog.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let second = Member::start(folder.path(), 2, &config);
    until_shared(&[&first, &second]).await;
    let moved = held_partitions(&second.read_log());
    let keys: BTreeSet<&String> = messages.iter().map(|(key, _)| key).collect();
    let [of_first, of_second] = [false, true]
        .map(|is_moved| keys.iter().filter(|key| moved.contains(&partition(key)) == is_moved).count());
    assert!(of_first > 0 && of_second > 0, "{moved:?}");
    let first = match first_leaves {
        true => {
            terminate(first).await;
            None
        }
        false => Some(first),
    };
    assert!(destination.spans().is_empty(), "a trace was exported without an answer");
    judge.answers.store(true, Ordering::SeqCst);
    let spans: usize = messages.iter().map(|(_, body)| spans_of(std::slice::from_ref(body)).len()).sum();
    let distinct = || -> BTreeSet<_> {
        destination.spans().into_iter().map(|span| (span.trace_id, span.span_id)).collect()
    };
    until("all spans are exported", || distinct().len() == spans).await;
    for member in first.into_iter().chain([second]) {
        terminate(member).await;
    }
    let mut verdicts: BTreeMap<_, Vec<BTreeSet<String>>> = BTreeMap::new();
    for span in destination.spans() {
        let verdict = verdict_attributes(&span);
        verdicts.entry((span.trace_id, span.span_id)).or_default().push(verdict);
    }
    let answered = verdicts
        .values()
        .flatten()
        .filter(|verdict| verdict.iter().any(|attribute| attribute.contains("verdict.completeness.score")));
    // On the root of each trace, by one of the two.
    assert_eq!(answered.count() as u64, TRACES);
    assert!(verdicts.values().all(|all| all.iter().all(|verdict| *verdict == all[0])), "{verdicts:#?}");
    let most_deliveries = verdicts.values().map(Vec::len).max();
    assert_eq!(
        (verdicts.len(), most_deliveries),
        (spans, Some(1)),
        "nothing was exported before the revocation"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_for_which_a_judge_is_asked_are_evaluated_by_the_new_owner_of_their_partition() {
    revoke_while_judges_are_asked(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_for_which_a_judge_is_asked_are_evaluated_by_the_one_that_stays_when_a_member_leaves() {
    revoke_while_judges_are_asked(true).await;
}

/// A cluster with one partition, and a member that commits only when it leaves.
async fn leaving(
    receiver: &str,
) -> (MockCluster<'static, rdkafka::producer::DefaultProducerContext>, Leaving) {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(SPANS, 1, 1).unwrap();
    let (brokers, destination) = (cluster.bootstrap_servers(), Destination::default());
    let (port, folder) = (destination.serve().await, tempfile::tempdir().unwrap());
    let close = "verdict: { close: { quiet: 100ms } }";
    let config = member_with(&brokers, port, &format!("commit_interval: 10m, {receiver}"), close);
    (cluster, Leaving { brokers, destination, folder, config })
}

struct Leaving {
    brokers: String,
    destination: Destination,
    folder: tempfile::TempDir,
    config: String,
}

impl Leaving {
    fn start(&self, number: usize) -> Member {
        Member::start(self.folder.path(), number, &self.config)
    }

    /// Runs the next owner until it has read everything; asserts that it exports only what is written now.
    async fn assert_nothing_is_repeated(&self, before: &[&str]) {
        let second = self.start(2);
        write(&self.brokers, [request(&["after"], 0, true)]);
        let exported = || self.destination.spans().into_iter().map(|span| span.name).collect::<Vec<String>>();
        until("the second member exports", || exported().iter().any(|name| name == "after")).await;
        terminate(second).await;
        let mut exported = exported();
        exported.sort_unstable();
        assert_eq!(exported, [&["after"], before].concat());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_fails_at_a_revocation_is_repeated() {
    let (cluster, leaving) = leaving("").await;
    write(&leaving.brokers, [request(&["one"], 0, true), request(&["two"], 0, true)]);
    let first = leaving.start(1);
    until("the first member exports", || leaving.destination.spans().len() == 2).await;
    // Its commit at the end is the first one. librdkafka does not repeat one with this error by itself.
    cluster.request_errors(
        RDKafkaApiKey::OffsetCommit,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE],
    );
    let log = first.log.clone();
    terminate(first).await;
    let log = std::fs::read_to_string(log).unwrap();
    assert_eq!(log.matches("could not be committed").count(), 1, "{log}");
    leaving.assert_nothing_is_repeated(&["one", "two"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_during_the_commit_of_a_revocation_is_committed_too() {
    let (cluster, leaving) = leaving("revoke_grace: 1ms").await;
    leaving.destination.stop_answering();
    let first = leaving.start(1);
    write(&leaving.brokers, [request(&["held"], 0, true)]);
    until("the member has its partition", || !held_partitions(&first.read_log()).is_empty()).await;
    // The trace closes after 100 ms without spans.
    tokio::time::sleep(Duration::from_secs(3)).await;
    // With this delay, the answer to a commit is late.
    cluster.broker_round_trip_time(1, Duration::from_secs(1)).unwrap();
    let log = first.log.clone();
    let leaves = tokio::spawn(terminate(first));
    let read_log = || std::fs::read_to_string(&log).unwrap();
    until("the partition is revoked", || read_log().contains("Kafka partitions revoked")).await;
    leaving.destination.release();
    leaves.await.unwrap();
    assert!(read_log().contains("exporting=1"), "the export was in flight: {}", read_log());
    cluster.broker_round_trip_time(1, Duration::ZERO).unwrap();
    leaving.assert_nothing_is_repeated(&["held"]).await;
}
