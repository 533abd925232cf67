//! The thread that polls Kafka: offers each message to the pipeline, and commits.
//!
//! In: messages, in the order of their partition. Out: offers, and commits by the watermark. A message that the
//! pipeline refuses for now waits, and its partition is paused, while polling continues: a member that does not poll
//! for some time is removed from the group. Messages that are not OTLP, or that no exporter accepts, are counted and
//! skipped.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::{Message as _, TopicPartitionList};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::config::KafkaReceiver;
use super::log::{Assignment, KafkaLog};
use super::owned::{OwnedPartition, Partitions, WaitingMessage};
use super::partitions::ConsumerGroup;
use crate::kafka::client::client_config;
use crate::receive::{Accepted, Intake, Offer, Refused};
use crate::telemetry::{MessageOutcome, Telemetry};

/// How long a poll waits for a message.
const POLL_TIMEOUT: Duration = Duration::from_millis(50);
/// How long a poll waits for a message while other messages wait for the pipeline.
const BUSY_POLL_TIMEOUT: Duration = Duration::from_millis(5);
/// How long the pipeline may be under pressure before partitions are paused, which discards prefetched messages.
const PRESSURE_BEFORE_PAUSE: Duration = Duration::from_millis(500);
/// How often it is checked whether partitions have to be paused or resumed.
const PAUSE_INTERVAL: Duration = Duration::from_millis(50);
/// How often the client reports the ends of topics, which `backlog` uses.
const STATISTICS_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of attempts to read metadata.
const METADATA_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// librdkafka's default of `max.poll.interval.ms`, which must not be below the session timeout.
const MAX_POLL_INTERVAL_MS: u128 = 300_000;
/// Minimum of `fetch.max.bytes`, which must not be below librdkafka's `message.max.bytes`.
const MIN_FETCH_BYTES: u64 = 1_000_000;
/// The share of the shutdown timeout for requests in flight that is spent on waiting for exports in flight.
const SHUTDOWN_SHARE: f64 = 0.15;

/// The receiver cannot start, or cannot continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiverError {
    #[error("receivers.kafka: {0}")]
    Client(#[from] KafkaError),
    #[error(
        "receivers.kafka: topic '{spans}' has {span_partitions} partitions and '{logs}' {log_partitions}: spans and logs of a trace \
         would not meet. Both need as many"
    )]
    Partitions { spans: String, span_partitions: usize, logs: String, log_partitions: usize },
    #[error("receivers.kafka: {0}")]
    Failed(String),
}

/// The receiver, before it is started.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub config: KafkaReceiver,
    pub log: Arc<KafkaLog>,
    /// `verdict.close.quiet`
    quiet: Duration,
}

impl Receiver {
    /// `forwards`: spans are exported on arrival, before their trace is evaluated.
    pub(crate) fn new(config: KafkaReceiver, quiet: Duration, forwards: bool) -> Receiver {
        Receiver { config, log: Arc::new(KafkaLog::new(forwards)), quiet }
    }

    /// Receives until `stop` is cancelled, then revokes its partitions within a part of `shutdown`.
    ///
    /// # Errors
    /// The client cannot be created, the topics have different numbers of partitions, or librdkafka reports an
    /// error that it cannot recover from.
    pub(crate) async fn serve(
        self,
        intake: Arc<dyn Intake>,
        telemetry: Arc<Telemetry>,
        stop: CancellationToken,
        shutdown: Duration,
    ) -> Result<(), ReceiverError> {
        let (config, log) = (self.config.clone(), Arc::clone(&self.log));
        let group = ConsumerGroup::new(self.config, self.log, intake, telemetry, self.quiet);
        let consumer: BaseConsumer<ConsumerGroup> = consumer_config(&config).create_with_context(group)?;
        let grace = config.revoke_grace.0.min(shutdown.mul_f64(SHUTDOWN_SHARE));
        let (sender, result) = oneshot::channel();
        let thread = std::thread::Builder::new().name("kafka".to_owned());
        let run = move || drop(sender.send(Poller { consumer, stop, grace }.run()));
        thread
            .spawn(run)
            .map_err(|error| ReceiverError::Failed(format!("cannot start a thread: {error}")))?;
        let panicked = || ReceiverError::Failed("its thread panicked. This is a bug".to_owned());
        let result = result.await.unwrap_or_else(|_| Err(panicked()));
        // If the thread panicked, its assignments have not ended.
        log.end_all();
        result
    }
}

fn consumer_config(config: &KafkaReceiver) -> rdkafka::ClientConfig {
    let mut client = client_config(config.connection());
    let millis = |period: verdict_config::Period| period.0.as_millis().to_string();
    // `range` assigns partitions of the same number in both topics to one member; with one topic, a change of
    // members moves only the partitions that have to.
    let strategy = if config.logs.is_some() { "range" } else { "cooperative-sticky" };
    let prefetch = config.prefetch.0;
    client
        .set("group.id", &config.group_id)
        .set("partition.assignment.strategy", strategy)
        .set("session.timeout.ms", millis(config.session_timeout))
        .set("heartbeat.interval.ms", millis(config.heartbeat_interval))
        .set(
            "max.poll.interval.ms",
            config.session_timeout.0.as_millis().max(MAX_POLL_INTERVAL_MS).to_string(),
        )
        // This also applies where a committed offset is out of range. `initial_offset: latest` is applied when a
        // partition is assigned.
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("queued.max.messages.kbytes", (prefetch >> 10).to_string())
        .set("fetch.max.bytes", prefetch.max(MIN_FETCH_BYTES).to_string())
        .set("receive.message.max.bytes", (config.max_message_size.0.max(prefetch) + (1 << 20)).to_string());
    if config.logs.is_some() {
        client.set("statistics.interval.ms", STATISTICS_INTERVAL.as_millis().to_string());
    }
    if !config.group_instance_id.is_empty() {
        client.set("group.instance.id", &config.group_instance_id);
    }
    client
}

/// The state of the thread that polls.
struct Poller {
    consumer: BaseConsumer<ConsumerGroup>,
    stop: CancellationToken,
    /// Maximum time to wait for exports in flight at shutdown.
    grace: Duration,
}

impl Poller {
    /// Subscribes to the topics once they exist, and receives until the end.
    fn run(self) -> Result<(), ReceiverError> {
        let group = Arc::clone(self.consumer.context());
        if !self.wait_for_topics(&group)? {
            return Ok(());
        }
        let topics: Vec<&str> = group.topics.iter().map(String::as_str).collect();
        self.consumer.subscribe(&topics)?;
        tracing::info!(?topics, group = group.config.group_id, "receiving from Kafka");
        let (requests, received_requests) = mpsc::channel();
        let (result_sender, results) = mpsc::channel();
        // On a thread of its own: a commit takes long while the group has no coordinator, and polling must continue.
        let commit = || {
            for (list, revocations) in received_requests {
                let current = group.revocations();
                let result = match *current == revocations {
                    true => self.consumer.commit(&list, CommitMode::Sync),
                    false => Err(KafkaError::Canceled),
                };
                drop(current);
                if result_sender.send((list, result)).is_err() {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("kafka-commit".to_owned());
            thread
                .spawn_scoped(scope, commit)
                .map_err(|error| ReceiverError::Failed(format!("cannot start a thread: {error}")))?;
            let result = self.receive(&group, &mut Committer { requests, results, is_pending: false });
            let all: BTreeSet<i32> = group.owned().keys().copied().collect();
            group.revoke(&self.consumer, &all, self.consumer.assignment_lost(), self.grace);
            result
        })
    }

    /// Waits until the topics exist, and checks their numbers of partitions. `false` if the process stops before.
    ///
    /// # Errors
    /// The topics have different numbers of partitions, or the client has a fatal error.
    fn wait_for_topics(&self, group: &ConsumerGroup) -> Result<bool, ReceiverError> {
        while !self.stop.is_cancelled() {
            let counts = group.partition_counts(&self.consumer);
            match (counts.as_deref(), &group.topics[..]) {
                (Ok(counts), _) if counts.contains(&0) => {
                    if let Some(suppressed) = group.client_log.throttle.allow("kafka_topics") {
                        tracing::warn!(topics = ?group.topics, suppressed, "waiting for topics that do not exist");
                    }
                }
                (Ok([span_partitions, log_partitions]), [spans, logs])
                    if span_partitions != log_partitions =>
                {
                    return Err(ReceiverError::Partitions {
                        spans: spans.clone(),
                        span_partitions: *span_partitions,
                        logs: logs.clone(),
                        log_partitions: *log_partitions,
                    });
                }
                (Ok(_), _) => return Ok(true),
                (Err(error), _) => {
                    if let Some(suppressed) = group.client_log.throttle.allow("kafka_metadata") {
                        tracing::warn!(%error, suppressed, "waiting for the brokers");
                    }
                }
            }
            // Polling logs the reason why the brokers cannot be reached.
            if let Some(Err(error)) = self.consumer.poll(METADATA_RETRY_INTERVAL) {
                self.check_error(group, error)?;
            }
        }
        Ok(false)
    }

    /// Polls, offers messages, and commits at intervals, until `stop` is cancelled or the receiver fails.
    fn receive(&self, group: &ConsumerGroup, committer: &mut Committer) -> Result<(), ReceiverError> {
        let (mut last_commit, mut last_pause_check) = (Instant::now(), Instant::now());
        let mut pressure_since: Option<Instant> = None;
        let (mut charged_bytes, mut _charge) = (0, group.intake.charge(0));
        while !self.stop.is_cancelled() {
            if let Some(reason) = group.take_failure() {
                return Err(ReceiverError::Failed(reason));
            }
            let was_overloaded = is_overloaded(pressure_since);
            pressure_since = group.intake.pressure().map(|_| pressure_since.unwrap_or_else(Instant::now));
            let overloaded = is_overloaded(pressure_since);
            if pressure_since.is_some() && !overloaded {
                std::thread::sleep(BUSY_POLL_TIMEOUT);
                continue;
            }
            let mut owned = group.owned();
            for (number, partition) in owned.iter_mut() {
                offer_waiting(group, *number, partition);
            }
            let has_waiting = owned.values().any(|partition| !partition.waiting.is_empty());
            let is_commit_due = last_commit.elapsed() >= *group.config.commit_interval;
            if is_commit_due {
                last_commit = Instant::now();
                committer.commit_changes(group, &mut owned);
            }
            // Pauses precede the next poll, which returns messages of every partition that is not paused.
            if is_commit_due || overloaded != was_overloaded || last_pause_check.elapsed() >= PAUSE_INTERVAL {
                last_pause_check = Instant::now();
                group.update_pauses(&self.consumer, &mut owned, overloaded);
                let bytes = owned.values().map(OwnedPartition::bytes).sum();
                if charged_bytes != bytes {
                    (charged_bytes, _charge) = (bytes, group.intake.charge(bytes));
                }
            }
            drop(owned);
            match self.consumer.poll(if has_waiting { BUSY_POLL_TIMEOUT } else { POLL_TIMEOUT }) {
                Some(Ok(message)) => enqueue(group, &message),
                Some(Err(error)) => self.check_error(group, error)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Logs an error of polling. librdkafka recovers from all but fatal errors.
    ///
    /// # Errors
    /// The client has a fatal error.
    fn check_error(&self, group: &ConsumerGroup, error: KafkaError) -> Result<(), ReceiverError> {
        if let Some((code, reason)) = self.consumer.client().fatal_error() {
            return Err(ReceiverError::Failed(format!("{code}: {reason}")));
        }
        if let Some(suppressed) = group.client_log.throttle.allow("kafka_poll") {
            tracing::warn!(%error, suppressed, "receiving from Kafka");
        }
        Ok(())
    }
}

/// A list of offsets, and the result of its commit.
type CommitReply = (TopicPartitionList, Result<(), KafkaError>);

/// The polling side of the thread that commits, one list after the other.
struct Committer {
    /// Lists to commit, each with the number of revocations at the time of the request: after a further revocation the
    /// commit is cancelled.
    requests: mpsc::Sender<(TopicPartitionList, u64)>,
    results: mpsc::Receiver<CommitReply>,
    /// Whether the result of a commit is awaited.
    is_pending: bool,
}

impl Committer {
    /// Commits the offsets that have changed, unless the result of the last commit is awaited.
    fn commit_changes(&mut self, group: &ConsumerGroup, owned: &mut Partitions) {
        for (list, result) in self.results.try_iter() {
            self.is_pending = false;
            group.note_commit(&result, &list, owned);
            if let Err(error) = result
                && !matches!(error, KafkaError::Canceled)
                && let Some(suppressed) = group.client_log.throttle.allow("kafka_commit")
            {
                tracing::warn!(%error, suppressed, "offsets could not be committed; a new owner reads more records again");
            }
        }
        if !self.is_pending {
            let (list, _) = group.changed_offsets(owned);
            let revocations = *group.revocations();
            self.is_pending = list.count() > 0 && self.requests.send((list, revocations)).is_ok();
        }
    }
}

/// Whether the pressure of the pipeline lasts long enough to pause partitions.
fn is_overloaded(pressure_since: Option<Instant>) -> bool {
    pressure_since.is_some_and(|since| since.elapsed() >= PRESSURE_BEFORE_PAUSE)
}

/// Adds a message to the waiting messages of its partition.
fn enqueue(group: &ConsumerGroup, message: &BorrowedMessage<'_>) {
    let Some(stream) = group.stream(message.topic()) else { return };
    let mut owned = group.owned();
    // A message of a partition that was revoked meanwhile is read by the next owner.
    let Some(partition) = owned.get_mut(&message.partition()) else { return };
    let body = Bytes::copy_from_slice(message.payload().unwrap_or_default());
    if let Some(backlog) = &mut partition.backlog {
        backlog.note_read(stream, message.offset(), message.timestamp().to_millis(), Instant::now());
    }
    partition.waiting.push_back(WaitingMessage { stream, offset: message.offset(), body });
}

/// Offers the waiting messages of a partition until one is refused.
fn offer_waiting(group: &ConsumerGroup, number: i32, partition: &mut OwnedPartition) {
    while let Some(waiting) = partition.waiting.front() {
        let (stream, offset) = (waiting.stream, waiting.offset);
        let name = PartitionName { topic: &group.topics[stream as usize], partition: number };
        let Some(outcome) = offer(group, &partition.assignment, waiting, &name) else {
            partition.refused_since.get_or_insert_with(Instant::now);
            return;
        };
        group.telemetry.kafka.count_message(waiting.signal(), outcome, waiting.body.len());
        partition.assignment.note_read(stream, offset);
        partition.waiting.pop_front();
        partition.refused_since = None;
    }
}

/// The topic and number of a partition, for logs.
#[derive(Debug)]
struct PartitionName<'a> {
    topic: &'a str,
    partition: i32,
}

/// Offers a message. `None` if the pipeline refuses it for now.
fn offer(
    group: &ConsumerGroup,
    assignment: &Assignment,
    message: &WaitingMessage,
    name: &PartitionName<'_>,
) -> Option<MessageOutcome> {
    let WaitingMessage { stream, offset, ref body } = *message;
    let PartitionName { topic, partition } = name;
    let allow = |log_key| group.client_log.throttle.allow(log_key);
    if !assignment.begin_record(stream, offset) {
        tracing::warn!(
            topic,
            partition,
            offset,
            "the offset is before that of the last message: the topic was created again, or its log was truncated. \
             What is known of its messages is forgotten"
        );
    }
    if assignment.skips(stream, offset) {
        return Some(MessageOutcome::Skipped);
    }
    let bytes = body.len();
    if bytes as u64 > group.config.max_message_size.0 {
        if let Some(suppressed) = allow("kafka_too_large") {
            tracing::warn!(
                topic,
                partition,
                offset,
                bytes,
                suppressed,
                "a message is larger than max_message_size; it is left out"
            );
        }
        return Some(MessageOutcome::TooLarge);
    }
    if group.intake.pressure().is_some() {
        return None;
    }
    let offer = Offer { signal: message.signal(), body: body.clone() };
    let record = assignment.record(stream, offset);
    let result = group.runtime.block_on(group.intake.offer_stored(offer, record));
    outcome_of(group, result, offset, name)
}

/// The outcome of a message that was offered; `None` if the message must be offered again.
fn outcome_of(
    group: &ConsumerGroup,
    result: Result<Accepted, Refused>,
    offset: i64,
    name: &PartitionName<'_>,
) -> Option<MessageOutcome> {
    let PartitionName { topic, partition } = name;
    let allow = |log_key| group.client_log.throttle.allow(log_key);
    match result {
        Ok(accepted) if accepted.rejected == 0 => Some(MessageOutcome::Accepted),
        Ok(accepted) => {
            if let Some(suppressed) = allow("kafka_rejected") {
                let reason = accepted.message;
                tracing::warn!(
                    topic,
                    partition,
                    offset,
                    reason,
                    suppressed,
                    "parts of a message are rejected"
                );
            }
            Some(MessageOutcome::Partial)
        }
        Err(Refused::Overloaded { .. } | Refused::ShuttingDown) => None,
        Err(refused @ Refused::Malformed(_)) => {
            if let Some(suppressed) = allow("kafka_malformed") {
                let reason = refused.to_string();
                tracing::warn!(
                    topic,
                    partition,
                    offset,
                    reason,
                    suppressed,
                    "a message is not OTLP; it is left out"
                );
            }
            Some(MessageOutcome::Malformed)
        }
        Err(Refused::Unsupported(_) | Refused::Undeliverable(_)) => {
            if let Some(suppressed) = allow("kafka_undeliverable") {
                tracing::warn!(
                    topic,
                    partition,
                    offset,
                    suppressed,
                    "no exporter takes a message; it is left out"
                );
            }
            Some(MessageOutcome::Undeliverable)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdict_config::{Period, Size};

    #[test]
    fn the_name_of_a_member_and_the_assignment_reach_the_client() {
        let named = KafkaReceiver { group_instance_id: "pod-0".to_owned(), ..KafkaReceiver::default() };
        let both = KafkaReceiver { logs: Some(Default::default()), ..KafkaReceiver::default() };
        let values = |config: &KafkaReceiver| {
            let client = consumer_config(config);
            ["group.instance.id", "partition.assignment.strategy"]
                .map(|key| client.get(key).map(str::to_owned))
        };
        let spans_alone = Some("cooperative-sticky".to_owned());
        assert_eq!(values(&named), [Some("pod-0".to_owned()), spans_alone.clone()]);
        // librdkafka would use an empty name as a name.
        assert_eq!(values(&KafkaReceiver::default()), [None, spans_alone]);
        assert_eq!(values(&both), [None, Some("range".to_owned())]);
    }

    #[test]
    fn a_client_is_created_with_every_valid_bound() {
        let valid = KafkaReceiver { brokers: vec!["127.0.0.1:1".to_owned()], ..KafkaReceiver::default() };
        let millis = |millis| Period(Duration::from_millis(millis));
        let bounds = [
            KafkaReceiver { prefetch: Size(1 << 10), ..valid.clone() },
            KafkaReceiver { prefetch: Size(1 << 30), ..valid.clone() },
            KafkaReceiver { max_message_size: Size(1 << 10), prefetch: Size(1 << 10), ..valid.clone() },
            KafkaReceiver { max_message_size: Size(500 << 20), prefetch: Size(1 << 30), ..valid.clone() },
            KafkaReceiver { session_timeout: millis(1000), heartbeat_interval: millis(1), ..valid.clone() },
            KafkaReceiver {
                session_timeout: millis(1_800_000),
                heartbeat_interval: millis(600_000),
                ..valid.clone()
            },
        ];
        for config in bounds {
            assert!(config.problems().is_empty(), "{:?}", config.problems());
            let created: Result<BaseConsumer, _> = consumer_config(&config).create();
            created.unwrap();
        }
    }
}
