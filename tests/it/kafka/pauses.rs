//! A partition is paused while the process cannot take more of its messages.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rdkafka::mocking::MockCluster;

use super::{SPANS, request, write};
use crate::scrape::http;
use crate::support::{MAX_TIME_WITHOUT_PROGRESS, Process};

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
