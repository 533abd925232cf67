//! The partitions that this process owns: their assignment, revocation, commits and pauses.
//!
//! In: rebalances of the group, which librdkafka reports on the thread that polls. Out: an [`Assignment`] for each
//! partition. The thread does nothing else meanwhile, so that no message of a revoked partition is offered after
//! its revocation has begun.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};
use tokio::runtime::Handle;

use super::config::KafkaReceiver;
use super::log::{Assignment, KafkaLog};
use super::stream::{Offsets, STREAMS, Stream};
use super::watermark::Commit;
use crate::kafka::client::ClientLog;
use crate::receive::Intake;
use crate::telemetry::{CommitResult, Telemetry};

/// How long the group's coordinator is waited for, per attempt.
const COORDINATOR: Duration = Duration::from_secs(10);
/// Attempts to read what the previous owner committed. Without it, traces would be evaluated in part.
const ATTEMPTS: u32 = 3;
/// How often exports in flight are looked at during a revocation.
const GRACE_STEP: Duration = Duration::from_millis(5);

/// A message that the pipeline has not accepted yet.
pub(super) struct Waiting {
    pub stream: Stream,
    pub offset: i64,
    pub body: bytes::Bytes,
}

/// A partition of this process: of the topic of spans, and of that of logs.
pub(super) struct Owned {
    pub assignment: Arc<Assignment>,
    /// Messages in order, since later ones must not overtake them.
    pub waiting: VecDeque<Waiting>,
    pub paused: bool,
    streams: [bool; STREAMS],
    committed: Option<Commit>,
}

/// The partitions by number.
pub(super) type Partitions = BTreeMap<i32, Owned>;

/// The context of the consumer.
pub(super) struct Group {
    pub config: KafkaReceiver,
    /// By stream; spans alone, or spans and logs.
    pub topics: Vec<String>,
    pub log: Arc<KafkaLog>,
    pub intake: Arc<dyn Intake>,
    pub runtime: Handle,
    pub telemetry: Arc<Telemetry>,
    pub client_log: ClientLog,
    owned: Mutex<Partitions>,
    failed: Mutex<Option<String>>,
}

impl Group {
    pub(super) fn new(
        config: KafkaReceiver,
        log: Arc<KafkaLog>,
        intake: Arc<dyn Intake>,
        telemetry: Arc<Telemetry>,
    ) -> Group {
        Group {
            topics: config.topics().map(str::to_owned).collect(),
            config,
            log,
            intake,
            runtime: Handle::current(),
            telemetry,
            client_log: ClientLog::new("receivers.kafka"),
            owned: Mutex::default(),
            failed: Mutex::default(),
        }
    }

    /// Locked by the thread that polls, and never while it polls, since rebalances lock it too.
    pub(super) fn owned(&self) -> MutexGuard<'_, Partitions> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the receiver cannot go on.
    pub(super) fn failure(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn stream(&self, topic: &str) -> Option<Stream> {
        let stream = self.topics.iter().position(|own| own == topic)?;
        Some(if stream == 0 { Stream::Spans } else { Stream::Logs })
    }

    fn assign(&self, consumer: &BaseConsumer<Group>, list: &TopicPartitionList) {
        let committed = (1..=ATTEMPTS).find_map(|attempt| {
            let committed = consumer.committed_offsets(list.clone(), COORDINATOR);
            committed
                .inspect_err(|error| tracing::warn!(attempt, %error, "cannot read committed offsets"))
                .ok()
        });
        let Some(committed) = committed else {
            let why = "the offsets that the previous owner committed cannot be read".to_owned();
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            return;
        };
        let mut found: BTreeMap<i32, ([bool; STREAMS], Offsets, String)> = BTreeMap::new();
        for element in committed.elements() {
            let Some(stream) = self.stream(element.topic()) else { continue };
            let (streams, offsets, exported) = found.entry(element.partition()).or_default();
            streams[stream as usize] = true;
            if let Offset::Offset(offset) = element.offset() {
                offsets[stream as usize] = Some(offset);
                if stream == Stream::Spans {
                    element.metadata().clone_into(exported);
                }
            }
        }
        let numbers: Vec<&i32> = found.keys().collect();
        tracing::info!(?numbers, "Kafka partitions assigned");
        let mut owned = self.owned();
        for (partition, (streams, offsets, exported)) in found {
            let missing = (0..self.topics.len()).find(|stream| !streams[*stream]).map(|s| &self.topics[s]);
            if let Some(topic) = missing {
                tracing::error!(
                    partition,
                    topic,
                    "another member has this partition of the topic: its spans and logs do not meet. All members \
                     must subscribe to both topics, and both must have as many partitions"
                );
            }
            let assignment = self.log.assign(offsets, &exported);
            tracing::debug!(partition, assignment = assignment.id, ?offsets, "Kafka partition assigned");
            let (waiting, paused, committed) = (VecDeque::new(), false, None);
            owned.insert(partition, Owned { assignment, waiting, paused, streams, committed });
        }
        self.gauge(&owned);
    }

    /// Gives partitions back. `lost`: another member has them already.
    pub(super) fn revoke(
        &self,
        consumer: &BaseConsumer<Group>,
        partitions: &BTreeSet<i32>,
        lost: bool,
        grace: Duration,
    ) {
        let deadline = Instant::now() + if lost { Duration::ZERO } else { grace };
        let mut leaving = Partitions::new();
        leaving.extend(self.owned().extract_if(.., |partition, _| partitions.contains(partition)));
        if leaving.is_empty() {
            return;
        }
        leaving.values().for_each(|owned| owned.assignment.revoked.cancel());
        let left = deadline.saturating_duration_since(Instant::now()).max(GRACE_STEP);
        // A shard that waits for an exporter drops its traces later, before those of another assignment.
        let dropping = async { tokio::time::timeout(left, self.intake.drop_revoked()).await };
        let dropped = self.runtime.block_on(dropping).is_ok();
        let exporting = || leaving.values().map(|owned| owned.assignment.exporting()).sum::<u64>();
        while exporting() > 0 && Instant::now() < deadline {
            std::thread::sleep(GRACE_STEP);
        }
        let (numbers, exporting): (Vec<&i32>, _) = (leaving.keys().collect(), exporting());
        tracing::info!(?numbers, lost, dropped, exporting, "Kafka partitions revoked");
        leaving.values().for_each(|owned| self.log.end(owned.assignment.id));
        if !lost {
            self.commit(consumer, &mut leaving);
        }
        self.gauge(&self.owned());
    }

    /// Commits what has changed, and waits for the coordinator.
    pub(super) fn commit(&self, consumer: &BaseConsumer<Group>, partitions: &mut Partitions) {
        let budget = self.config.offset_metadata_max_bytes as usize;
        let mut list = TopicPartitionList::new();
        let mut commits = Vec::new();
        for (partition, owned) in partitions.iter() {
            let Some(commit) = owned.assignment.commit(budget) else {
                self.telemetry.kafka.commit(CommitResult::Deferred);
                continue;
            };
            if owned.committed.as_ref() == Some(&commit) {
                continue;
            }
            for (stream, topic) in self.topics.iter().enumerate().filter(|(stream, _)| owned.streams[*stream])
            {
                let Some(offset) = commit.offsets[stream] else { continue };
                let mut element = list.add_partition(topic, *partition);
                // A valid offset is never refused.
                let _ = element.set_offset(Offset::Offset(offset));
                if stream == Stream::Spans as usize {
                    element.set_metadata(&commit.exported);
                }
            }
            commits.push((*partition, commit));
        }
        if list.count() == 0 {
            return;
        }
        match consumer.commit(&list, CommitMode::Sync) {
            Ok(()) => {
                self.telemetry.kafka.commit(CommitResult::Committed);
                for (partition, commit) in commits {
                    if let Some(owned) = partitions.get_mut(&partition) {
                        owned.committed = Some(commit);
                    }
                }
            }
            Err(error) => {
                self.telemetry.kafka.commit(CommitResult::Failed);
                if let Some(suppressed) = self.client_log.throttle.allow("kafka_commit") {
                    tracing::warn!(
                        %error,
                        suppressed,
                        "offsets could not be committed; a new owner reads more records again"
                    );
                }
            }
        }
    }

    /// Pauses partitions with waiting messages or too many uncommitted records, or all of them, and resumes the
    /// others.
    pub(super) fn pause(&self, consumer: &BaseConsumer<Group>, partitions: &mut Partitions, all: bool) {
        let most = self.config.max_uncommitted_records;
        let [mut pause, mut resume] = [TopicPartitionList::new(), TopicPartitionList::new()];
        for (partition, owned) in partitions.iter_mut() {
            let uncommitted = owned.assignment.uncommitted();
            // Resumed at three quarters, so that it does not alternate with each trace.
            let too_many = uncommitted >= if owned.paused { most / 4 * 3 } else { most };
            let wanted = all || !owned.waiting.is_empty() || too_many;
            if wanted == owned.paused {
                continue;
            }
            owned.paused = wanted;
            let list = if wanted { &mut pause } else { &mut resume };
            for topic in self.topics.iter().zip(owned.streams).filter_map(|(topic, own)| own.then_some(topic))
            {
                list.add_partition(topic, *partition);
            }
        }
        let pausing = if pause.count() > 0 { consumer.pause(&pause) } else { Ok(()) };
        let resuming = if resume.count() > 0 { consumer.resume(&resume) } else { Ok(()) };
        if let Err(error) = pausing.and(resuming) {
            tracing::warn!(%error, "Kafka partitions could not be paused or resumed");
        }
        self.gauge(partitions);
    }

    fn gauge(&self, partitions: &Partitions) {
        let paused = partitions.values().filter(|owned| owned.paused).count();
        let uncommitted = partitions.values().map(|owned| owned.assignment.uncommitted()).sum();
        self.telemetry.kafka.partitions(partitions.len(), paused, uncommitted);
    }
}

impl ClientContext for Group {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.client_log.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.client_log.error(error, reason);
    }
}

impl ConsumerContext for Group {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Group>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => self.assign(consumer, list),
            Rebalance::Revoke(list) => {
                let partitions = list.elements().iter().map(|element| element.partition()).collect();
                self.revoke(consumer, &partitions, consumer.assignment_lost(), *self.config.revoke_grace);
            }
            Rebalance::Error(error) => tracing::warn!(%error, "rebalance of the consumer group"),
        }
    }

    /// librdkafka remembers that a partition was paused when it was revoked.
    fn post_rebalance(&self, consumer: &BaseConsumer<Group>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(list) = rebalance
            && let Err(error) = consumer.resume(list)
        {
            let why = format!("partitions that were assigned cannot be resumed: {error}");
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
    }
}
