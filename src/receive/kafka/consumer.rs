//! The thread that polls Kafka: offers each message to the pipeline, and commits.
//!
//! In: messages, in the order of their partition. Out: offers, and commits by the watermark. A message that the
//! pipeline refuses for now is kept, and its partition paused, while polling goes on: a member that does not poll
//! for long is taken for dead. Messages that are no OTLP, or that no exporter takes, are counted and left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use verdict_otlp::Signal;

use super::config::{InitialOffset, KafkaReceiver};
use super::log::KafkaLog;
use super::partitions::{Group, Owned, Waiting};
use super::stream::Stream;
use crate::kafka::client::client_config;
use crate::receive::{Intake, Offer, Refused};
use crate::telemetry::{MessageOutcome, Telemetry};

/// How long a poll waits for a message.
const POLL: Duration = Duration::from_millis(50);
/// While messages wait for the pipeline.
const POLL_BUSY: Duration = Duration::from_millis(5);
/// How long the pipeline may be under pressure before partitions are paused, which drops what was fetched ahead.
const PRESSURE: Duration = Duration::from_millis(500);
/// How long metadata of topics is waited for, per attempt.
const METADATA: Duration = Duration::from_secs(5);
/// Interval of attempts to read metadata.
const RETRY: Duration = Duration::from_secs(1);
/// Part of the time for requests in flight at shutdown that exports in flight may take.
const SHUTDOWN_SHARE: f64 = 0.15;

/// Why the receiver cannot start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiverError {
    #[error("receivers.kafka: {0}")]
    Client(#[from] KafkaError),
    #[error(
        "receivers.kafka: topic '{spans}' has {of_spans} partitions and '{logs}' {of_logs}: spans and logs of a trace \
         would not meet. Both need as many"
    )]
    Partitions { spans: String, of_spans: usize, logs: String, of_logs: usize },
    #[error("receivers.kafka: {0}")]
    Failed(String),
}

/// The receiver, before it is started.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub config: KafkaReceiver,
    pub log: Arc<KafkaLog>,
}

impl Receiver {
    pub(crate) fn new(config: KafkaReceiver) -> Receiver {
        Receiver { config, log: Arc::default() }
    }

    /// Receives until `stop` is cancelled, then gives its partitions back.
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
        let config = self.config.clone();
        let group = Group::new(self.config, self.log, intake, telemetry);
        let consumer: BaseConsumer<Group> = consumer_config(&config).create_with_context(group)?;
        let grace = config.revoke_grace.0.min(shutdown.mul_f64(SHUTDOWN_SHARE));
        let (done, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("kafka".to_owned());
        let run = move || drop(done.send(Poll { consumer, stop, grace }.run()));
        thread
            .spawn(run)
            .map_err(|error| ReceiverError::Failed(format!("cannot start a thread: {error}")))?;
        ended
            .await
            .unwrap_or_else(|_| Err(ReceiverError::Failed("its thread panicked. This is a bug".to_owned())))
    }
}

fn consumer_config(config: &KafkaReceiver) -> rdkafka::ClientConfig {
    let mut client = client_config(config.connection());
    let millis = |period: verdict_config::Period| period.0.as_millis().to_string();
    let beginning = match config.initial_offset {
        InitialOffset::Earliest => "earliest",
        InitialOffset::Latest => "latest",
    };
    // `range` assigns partitions of the same number in both topics to one member; with one topic, a change of
    // members moves only the partitions that have to.
    let strategy = if config.logs.is_some() { "range" } else { "cooperative-sticky" };
    let prefetch = config.prefetch.0;
    client
        .set("group.id", &config.group_id)
        .set("partition.assignment.strategy", strategy)
        .set("session.timeout.ms", millis(config.session_timeout))
        .set("heartbeat.interval.ms", millis(config.heartbeat_interval))
        .set("auto.offset.reset", beginning)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("queued.max.messages.kbytes", (prefetch >> 10).to_string())
        .set("fetch.max.bytes", prefetch.to_string())
        .set("receive.message.max.bytes", (config.max_message_size.0.max(prefetch) + (1 << 20)).to_string());
    if !config.group_instance_id.is_empty() {
        client.set("group.instance.id", &config.group_instance_id);
    }
    client
}

struct Poll {
    consumer: BaseConsumer<Group>,
    stop: CancellationToken,
    /// For exports in flight at shutdown.
    grace: Duration,
}

impl Poll {
    fn run(self) -> Result<(), ReceiverError> {
        let group = Arc::clone(self.consumer.context());
        if !self.partitions_match(&group)? {
            return Ok(());
        }
        let topics: Vec<&str> = group.topics.iter().map(String::as_str).collect();
        self.consumer.subscribe(&topics)?;
        tracing::info!(?topics, group = group.config.group_id, "receiving from Kafka");
        let ended = self.receive(&group);
        let all: BTreeSet<i32> = group.owned().keys().copied().collect();
        group.revoke(&self.consumer, &all, self.consumer.assignment_lost(), self.grace);
        ended
    }

    /// Waits for the brokers. `false` if the process stops before they answer.
    fn partitions_match(&self, group: &Group) -> Result<bool, ReceiverError> {
        while !self.stop.is_cancelled() {
            let count = |topic: &String| {
                let metadata = self.consumer.fetch_metadata(Some(topic), METADATA)?;
                let partitions = metadata.topics().first().map_or(0, |topic| topic.partitions().len());
                Ok::<usize, KafkaError>(partitions)
            };
            let counts = group.topics.iter().map(count).collect::<Result<Vec<usize>, KafkaError>>();
            match (counts.as_deref(), &group.topics[..]) {
                (Ok(counts), _) if counts.contains(&0) => {
                    if let Some(suppressed) = group.client_log.throttle.allow("kafka_topics") {
                        tracing::warn!(topics = ?group.topics, suppressed, "waiting for topics that do not exist");
                    }
                }
                (Ok([of_spans, of_logs]), [spans, logs]) if of_spans != of_logs => {
                    return Err(ReceiverError::Partitions {
                        spans: spans.clone(),
                        of_spans: *of_spans,
                        logs: logs.clone(),
                        of_logs: *of_logs,
                    });
                }
                (Ok(_), _) => return Ok(true),
                (Err(error), _) => {
                    if let Some(suppressed) = group.client_log.throttle.allow("kafka_metadata") {
                        tracing::warn!(%error, suppressed, "waiting for the brokers");
                    }
                }
            }
            std::thread::sleep(RETRY);
        }
        Ok(false)
    }

    fn receive(&self, group: &Group) -> Result<(), ReceiverError> {
        let mut committed = Instant::now();
        let mut pressed: Option<Instant> = None;
        let mut wait = POLL;
        while !self.stop.is_cancelled() {
            if let Some(why) = group.failure() {
                return Err(ReceiverError::Failed(why));
            }
            pressed = group.intake.pressure().map(|_| pressed.unwrap_or_else(Instant::now));
            let overloaded = pressed.is_some_and(|since| since.elapsed() >= PRESSURE);
            if pressed.is_some() && !overloaded {
                std::thread::sleep(POLL_BUSY);
                continue;
            }
            match self.consumer.poll(wait) {
                Some(Ok(message)) => take(group, &message),
                Some(Err(error)) => self.note(group, error)?,
                None => {}
            }
            let mut owned = group.owned();
            let mut waits = false;
            for partition in owned.values_mut() {
                retry(group, partition);
                waits |= !partition.waiting.is_empty();
            }
            wait = if waits { POLL_BUSY } else { POLL };
            let due = committed.elapsed() >= *group.config.commit_interval;
            if due {
                committed = Instant::now();
                group.commit(&self.consumer, &mut owned);
            }
            if due || waits || overloaded || owned.values().any(|partition| partition.paused) {
                group.pause(&self.consumer, &mut owned, overloaded);
            }
        }
        Ok(())
    }

    /// librdkafka goes on after most errors by itself.
    fn note(&self, group: &Group, error: KafkaError) -> Result<(), ReceiverError> {
        if let Some((code, why)) = self.consumer.client().fatal_error() {
            return Err(ReceiverError::Failed(format!("{code}: {why}")));
        }
        if let Some(suppressed) = group.client_log.throttle.allow("kafka_poll") {
            tracing::warn!(%error, suppressed, "receiving from Kafka");
        }
        Ok(())
    }
}

fn take(group: &Group, message: &BorrowedMessage<'_>) {
    let Some(stream) = group.stream(message.topic()) else { return };
    let mut owned = group.owned();
    // Messages of a partition that was revoked meanwhile are the next owner's.
    let Some(partition) = owned.get_mut(&message.partition()) else { return };
    let body = Bytes::copy_from_slice(message.payload().unwrap_or_default());
    partition.waiting.push_back(Waiting { stream, offset: message.offset(), body });
    retry(group, partition);
}

/// Offers the messages that wait, until one is refused.
fn retry(group: &Group, partition: &mut Owned) {
    while let Some(Waiting { stream, offset, body }) = partition.waiting.front() {
        let signal = match stream {
            Stream::Spans => Signal::Traces,
            Stream::Logs => Signal::Logs,
        };
        let record = partition.assignment.record(*stream, *offset);
        let offer = Offer { signal, body: body.clone() };
        let metrics = &group.telemetry.kafka;
        let outcome = match group.runtime.block_on(group.intake.offer_stored(offer, record)) {
            Ok(accepted) if accepted.rejected == 0 => MessageOutcome::Accepted,
            Ok(accepted) => {
                if let Some(suppressed) = group.client_log.throttle.allow("kafka_rejected") {
                    let why = accepted.message;
                    tracing::warn!(
                        offset,
                        signal = signal.as_str(),
                        why,
                        suppressed,
                        "parts of a message are rejected"
                    );
                }
                MessageOutcome::Partial
            }
            Err(Refused::Overloaded { .. } | Refused::ShuttingDown) => return,
            Err(refused @ Refused::Malformed(_)) => {
                if let Some(suppressed) = group.client_log.throttle.allow("kafka_malformed") {
                    let why = refused.to_string();
                    tracing::warn!(
                        offset,
                        signal = signal.as_str(),
                        why,
                        suppressed,
                        "a message is not OTLP; it is left out"
                    );
                }
                MessageOutcome::Malformed
            }
            Err(Refused::Unsupported(_) | Refused::Undeliverable(_)) => MessageOutcome::Undeliverable,
        };
        metrics.record(signal, outcome, body.len());
        partition.assignment.read(*stream, *offset);
        partition.waiting.pop_front();
    }
}
