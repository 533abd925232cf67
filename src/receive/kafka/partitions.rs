//! The partitions that this process owns: their assignment, revocation, commits and pauses.
//!
//! In: rebalances of the group, which librdkafka reports on the thread that polls. Out: an [`Assignment`] for each
//! partition. The thread does nothing else during a rebalance, so that no message of a revoked partition is
//! offered after its revocation has begun.
//!
//! The order of a revocation:
//!
//! 1. Answers of judges are no longer awaited, and open traces are dropped, since they would not close within
//!    `revoke_grace`.
//! 2. Exports in flight are awaited, up to `revoke_grace`: acknowledged traces are not evaluated again.
//! 3. The assignment lapses: no export begins any more. An export that begins after the commit would be repeated by the
//!    next owner, perhaps with another answer of a judge. Exports that began since step 2 are awaited as well.
//! 4. The state is committed, while acknowledgements still count. If the commit fails, it is tried once more within
//!    `revoke_grace`. If acknowledgements arrived during the commit, it is repeated with them: the group assigns the
//!    partition to another member only when this rebalance ends, or the session.
//! 5. The assignment ends, with which its number becomes invalid. An earlier end would lose the acknowledgements of
//!    step 4, and the next owner would export these traces again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::Statistics;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};
use tokio::runtime::Handle;

use super::backlog::Backlog;
use super::config::{InitialOffset, KafkaReceiver};
use super::log::KafkaLog;
use super::owned::{OwnedPartition, Partitions};
use super::stream::{Offsets, PartitionStream, STREAMS};
use crate::kafka::client::ClientLog;
use crate::receive::Intake;
use crate::telemetry::{CommitResult, Telemetry};

/// Timeout of a request to the group's coordinator.
const COORDINATOR_TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts to read the state that the previous owner committed. Without it, traces would be evaluated in part.
const MAX_READ_ATTEMPTS: u32 = 3;
/// How often exports in flight are checked during a revocation.
const DRAIN_INTERVAL: Duration = Duration::from_millis(5);

/// Maximum number of commits at a revocation: a second one follows acknowledgements during the first one, or its
/// failure.
const MAX_LAST_COMMITS: u32 = 2;
/// Delay before a failed commit at a revocation is repeated.
const COMMIT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Timeout of a request for the metadata of a topic.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a request for the ends of a partition, during which nothing is polled.
const ENDS_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a message may be refused before its partition is paused, which discards prefetched messages.
const REFUSED_BEFORE_PAUSE: Duration = Duration::from_millis(100);
/// The limit on the metadata of an offset is not halved below this.
const MIN_METADATA_BYTES: usize = 64;

/// The context of the consumer, which librdkafka calls at rebalances.
pub(super) struct ConsumerGroup {
    pub config: KafkaReceiver,
    /// The topic of each stream: of spans alone, or of spans and of logs.
    pub topics: Vec<String>,
    pub log: Arc<KafkaLog>,
    pub intake: Arc<dyn Intake>,
    pub runtime: Handle,
    pub telemetry: Arc<Telemetry>,
    pub client_log: ClientLog,
    /// `verdict.close.quiet`
    pub quiet: Duration,
    owned: Mutex<Partitions>,
    failure: Mutex<Option<String>>,
    /// The limit on the metadata of an offset: the configured one, or a smaller one if brokers refused it.
    max_metadata_bytes: AtomicUsize,
    /// The number of revocations.
    revocations: Mutex<u64>,
}

impl ConsumerGroup {
    pub(super) fn new(
        config: KafkaReceiver,
        log: Arc<KafkaLog>,
        intake: Arc<dyn Intake>,
        telemetry: Arc<Telemetry>,
        quiet: Duration,
    ) -> ConsumerGroup {
        ConsumerGroup {
            max_metadata_bytes: AtomicUsize::new(config.offset_metadata_max_bytes as usize),
            quiet,
            revocations: Mutex::default(),
            topics: config.topics().map(str::to_owned).collect(),
            config,
            log,
            intake,
            runtime: Handle::current(),
            telemetry,
            client_log: ClientLog::new("receivers.kafka"),
            owned: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// Locks the owned partitions. The lock must not be held while polling, since rebalances take it too.
    pub(super) fn owned(&self) -> MutexGuard<'_, Partitions> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and returns the reason why the receiver cannot continue; `None` if it can.
    pub(super) fn take_failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The stream of a topic; `None` if it is not received.
    pub(super) fn stream(&self, topic: &str) -> Option<PartitionStream> {
        let index = self.topics.iter().position(|name| name == topic)?;
        Some(if index == 0 { PartitionStream::Spans } else { PartitionStream::Logs })
    }

    fn fail(&self, reason: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    /// The number of partitions of each topic; 0 for one that does not exist.
    pub(super) fn partition_counts(
        &self,
        consumer: &BaseConsumer<ConsumerGroup>,
    ) -> Result<Vec<usize>, KafkaError> {
        let count = |topic: &String| {
            let metadata = consumer.fetch_metadata(Some(topic), METADATA_TIMEOUT)?;
            let Some(topic_metadata) = metadata.topics().first() else { return Ok(0) };
            match topic_metadata.error().map(RDKafkaErrorCode::from) {
                None => Ok(topic_metadata.partitions().len()),
                Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Ok(0),
                Some(error) => Err(KafkaError::MetadataFetch(error)),
            }
        };
        self.topics.iter().map(count).collect()
    }

    /// The committed offsets of partitions. With `initial_offset: latest`, the end of a partition without a committed
    /// offset is committed first, so that later records are received even after a restart.
    fn committed_offsets(
        &self,
        consumer: &BaseConsumer<ConsumerGroup>,
        list: &TopicPartitionList,
    ) -> Result<TopicPartitionList, KafkaError> {
        let committed = consumer.committed_offsets(list.clone(), COORDINATOR_TIMEOUT)?;
        let mut ends = TopicPartitionList::new();
        for element in committed.elements() {
            element.error()?;
            if self.config.initial_offset == InitialOffset::Latest && element.offset() == Offset::Invalid {
                let (topic, partition) = (element.topic(), element.partition());
                let (_, end) = consumer.fetch_watermarks(topic, partition, COORDINATOR_TIMEOUT)?;
                ends.add_partition_offset(topic, partition, Offset::Offset(end))?;
            }
        }
        if ends.count() == 0 {
            return Ok(committed);
        }
        consumer.commit(&ends, CommitMode::Sync)?;
        consumer.committed_offsets(list.clone(), COORDINATOR_TIMEOUT)
    }

    /// The backlog of both streams of a partition, if both are read and their ends are known.
    fn open_backlog(
        &self,
        consumer: &BaseConsumer<ConsumerGroup>,
        partition: i32,
        offsets: Offsets,
    ) -> Option<Backlog> {
        let [spans, logs] = &self.topics[..] else { return None };
        let bounds = |topic: &String, committed: Option<i64>| {
            let (first, end) = consumer.fetch_watermarks(topic, partition, ENDS_TIMEOUT).ok()?;
            Some((committed.unwrap_or(first).max(first), end))
        };
        Some(Backlog::new([bounds(spans, offsets[0])?, bounds(logs, offsets[1])?], Instant::now()))
    }

    /// Reads the committed state of newly assigned partitions, and adds them to the owned ones.
    fn assign(&self, consumer: &BaseConsumer<ConsumerGroup>, list: &TopicPartitionList) {
        let committed = (1..=MAX_READ_ATTEMPTS).find_map(|attempt| {
            let committed = self.committed_offsets(consumer, list);
            committed
                .inspect_err(|error| tracing::warn!(attempt, %error, "cannot read committed offsets"))
                .ok()
        });
        let Some(committed) = committed else {
            return self.fail("the offsets that the previous owner committed cannot be read".to_owned());
        };
        // Partitions can be added to a topic at any time, which changes the group.
        if self.topics.len() > 1
            && let Ok(counts) = self.partition_counts(consumer)
            && counts.iter().any(|count| Some(count) != counts.first())
        {
            return self
                .fail(format!("the topics {:?} have {counts:?} partitions; both need as many", self.topics));
        }
        let mut assigned: BTreeMap<i32, ([bool; STREAMS], Offsets, String)> = BTreeMap::new();
        for element in committed.elements() {
            let Some(stream) = self.stream(element.topic()) else { continue };
            let (owned_streams, offsets, metadata) = assigned.entry(element.partition()).or_default();
            owned_streams[stream as usize] = true;
            if let Offset::Offset(offset) = element.offset() {
                offsets[stream as usize] = Some(offset);
                // The metadata is stored with the offset of spans, or with that of logs if there is none of spans.
                if stream == PartitionStream::Spans || metadata.is_empty() {
                    element.metadata().clone_into(metadata);
                }
            }
        }
        let numbers: Vec<&i32> = assigned.keys().collect();
        tracing::info!(?numbers, "Kafka partitions assigned");
        let (mut owned, mut brokers_respond) = (self.owned(), true);
        for (partition, (owned_streams, offsets, metadata)) in assigned {
            let missing_topic =
                (0..self.topics.len()).find(|stream| !owned_streams[*stream]).map(|s| &self.topics[s]);
            if let Some(topic) = missing_topic {
                tracing::error!(
                    partition,
                    topic,
                    "another member has this partition of the topic: its spans and logs do not meet. All members \
                     must subscribe to both topics, and both must have as many partitions"
                );
            }
            let assignment = self.log.assign(partition, offsets, &metadata);
            tracing::debug!(partition, assignment = assignment.id, ?offsets, "Kafka partition assigned");
            // After a timeout the ends of further partitions are not requested, since no message is polled meanwhile.
            let backlog =
                if brokers_respond { self.open_backlog(consumer, partition, offsets) } else { None };
            brokers_respond &= backlog.is_some();
            let new = OwnedPartition {
                assignment,
                waiting: VecDeque::new(),
                refused_since: None,
                paused: [false; STREAMS],
                backlog,
                owned_streams,
                last_commit: None,
            };
            owned.insert(partition, new);
        }
        self.update_gauges(&owned);
    }

    /// Returns partitions to the group, in the order that the module header describes. `lost`: the session of this
    /// member has ended, so another member may own them already.
    pub(super) fn revoke(
        &self,
        consumer: &BaseConsumer<ConsumerGroup>,
        partitions: &BTreeSet<i32>,
        lost: bool,
        grace: Duration,
    ) {
        let deadline = Instant::now() + if lost { Duration::ZERO } else { grace };
        let mut revoked_partitions = Partitions::new();
        revoked_partitions.extend(self.owned().extract_if(.., |partition, _| partitions.contains(partition)));
        if revoked_partitions.is_empty() {
            return;
        }
        revoked_partitions.values().for_each(|owned| owned.assignment.revoked.cancel());
        let remaining = deadline.saturating_duration_since(Instant::now()).max(DRAIN_INTERVAL);
        // The task outlives the timeout: a shard that waits for an exporter drops its traces later, but before it
        // receives spans of another assignment.
        let drop_task = self.runtime.spawn(self.intake.drop_revoked());
        let dropped =
            self.runtime.block_on(async { tokio::time::timeout(remaining, drop_task).await.is_ok() });
        let await_exports = || {
            while unacknowledged_verdicts(&revoked_partitions) > 0 && Instant::now() < deadline {
                std::thread::sleep(DRAIN_INTERVAL);
            }
        };
        await_exports();
        revoked_partitions.values().for_each(|owned| owned.assignment.lapse());
        await_exports();
        let (numbers, unfinished): (Vec<&i32>, _) =
            (revoked_partitions.keys().collect(), unacknowledged_verdicts(&revoked_partitions));
        tracing::info!(?numbers, lost, dropped, exporting = unfinished, "Kafka partitions revoked");
        // Waits for a commit in progress, and cancels commits that were requested before: they would overwrite the
        // state that the next owner reads.
        *self.revocations() += 1;
        let replayed =
            if lost { unfinished } else { self.commit_last(consumer, &mut revoked_partitions, deadline) };
        revoked_partitions.values().for_each(|owned| self.log.end(owned.assignment.id));
        self.telemetry.kafka.count_replayed(replayed);
        self.update_gauges(&self.owned());
    }

    /// Commits the state of revoked partitions, again if it changes meanwhile or, before the deadline, if the commit
    /// fails. Returns the number of exported traces that the next owner evaluates again.
    fn commit_last(
        &self,
        consumer: &BaseConsumer<ConsumerGroup>,
        revoked_partitions: &mut Partitions,
        deadline: Instant,
    ) -> u64 {
        // The result of the last commit before the revocation may not be known: it may have failed, or not been begun.
        revoked_partitions.values_mut().for_each(|owned| owned.last_commit = None);
        let mut replayed = 0;
        for attempt in 1..=MAX_LAST_COMMITS {
            let unfinished = unacknowledged_verdicts(revoked_partitions);
            let (list, reevaluated_traces) = self.changed_offsets(revoked_partitions);
            replayed = unfinished + reevaluated_traces;
            if list.count() == 0 {
                break;
            }
            let result = consumer.commit(&list, CommitMode::Sync);
            self.note_commit(&result, &list, revoked_partitions);
            let Err(error) = result else { continue };
            let remaining = deadline.saturating_duration_since(Instant::now());
            let retries = attempt < MAX_LAST_COMMITS && !remaining.is_zero();
            let numbers: Vec<&i32> = revoked_partitions.keys().collect();
            tracing::warn!(?numbers, %error, retries, "offsets of revoked Kafka partitions could not be committed");
            if !retries {
                break;
            }
            std::thread::sleep(remaining.min(COMMIT_RETRY_DELAY));
        }
        replayed
    }

    /// The number of revocations, which does not change while it is locked.
    pub(super) fn revocations(&self) -> MutexGuard<'_, u64> {
        self.revocations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The offsets that have changed since the last commit, and the number of exported traces that a new owner
    /// evaluates again.
    pub(super) fn changed_offsets(&self, partitions: &mut Partitions) -> (TopicPartitionList, u64) {
        let budget = self.max_metadata_bytes.load(Ordering::Relaxed);
        let mut reevaluated_traces = 0;
        let mut list = TopicPartitionList::new();
        for (partition, owned) in partitions.iter_mut() {
            let Some(commit) = owned.assignment.commit(budget) else {
                self.telemetry.kafka.count_commit(CommitResult::Deferred);
                continue;
            };
            reevaluated_traces += commit.reevaluated_traces;
            if owned.last_commit.as_ref() == Some(&commit) {
                continue;
            }
            let mut metadata = Some(&commit.metadata);
            for (stream, topic) in
                self.topics.iter().enumerate().filter(|(stream, _)| owned.owned_streams[*stream])
            {
                let Some(offset) = commit.offsets[stream] else { continue };
                let mut element = list.add_partition(topic, *partition);
                // A valid offset is never refused.
                let _ = element.set_offset(Offset::Offset(offset));
                if let Some(metadata) = metadata.take() {
                    element.set_metadata(metadata);
                }
            }
            owned.last_commit = Some(commit);
        }
        (list, reevaluated_traces)
    }

    /// Counts the result of a commit. After an error or a cancellation the same offsets are committed again.
    pub(super) fn note_commit(
        &self,
        result: &Result<(), KafkaError>,
        list: &TopicPartitionList,
        partitions: &mut Partitions,
    ) {
        let Err(error) = result else {
            return self.telemetry.kafka.count_commit(CommitResult::Committed);
        };
        for element in list.elements() {
            if let Some(owned) = partitions.get_mut(&element.partition()) {
                owned.last_commit = None;
            }
        }
        if matches!(error, KafkaError::Canceled) {
            return;
        }
        self.telemetry.kafka.count_commit(CommitResult::Failed);
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::OffsetMetadataTooLarge) {
            let halved = (self.max_metadata_bytes.load(Ordering::Relaxed) / 2).max(MIN_METADATA_BYTES);
            self.max_metadata_bytes.store(halved, Ordering::Relaxed);
        }
    }

    /// Pauses partitions with refused messages or too many uncommitted records, and streams that are ahead of the other
    /// stream; resumes the others. `pauses_all`: pauses all partitions.
    pub(super) fn update_pauses(
        &self,
        consumer: &BaseConsumer<ConsumerGroup>,
        partitions: &mut Partitions,
        pauses_all: bool,
    ) {
        let (max_uncommitted, now) = (self.config.max_uncommitted_records, Instant::now());
        let [mut pause, mut resume] = [TopicPartitionList::new(), TopicPartitionList::new()];
        for (partition, owned) in partitions.iter_mut() {
            let uncommitted = owned.assignment.uncommitted();
            // A partition is resumed at three quarters, so that its state does not alternate with each trace.
            let is_paused = owned.paused.contains(&true);
            let has_too_many =
                uncommitted >= if is_paused { max_uncommitted / 4 * 3 } else { max_uncommitted };
            let is_refused =
                owned.refused_since.is_some_and(|since| now.duration_since(since) >= REFUSED_BEFORE_PAUSE);
            let pauses_all_streams = pauses_all || is_refused || has_too_many;
            if let Some(backlog) = owned.backlog.as_mut().filter(|_| pauses_all_streams) {
                backlog.note_pause(now);
            }
            let ahead = owned.backlog.as_ref().and_then(|backlog| backlog.stream_ahead(self.quiet, now));
            for (stream, topic) in
                self.topics.iter().enumerate().filter(|(stream, _)| owned.owned_streams[*stream])
            {
                let should_pause = pauses_all_streams || ahead.is_some_and(|ahead| ahead as usize == stream);
                if std::mem::replace(&mut owned.paused[stream], should_pause) != should_pause {
                    if should_pause { &mut pause } else { &mut resume }.add_partition(topic, *partition);
                }
            }
        }
        let paused = if pause.count() > 0 { consumer.pause(&pause) } else { Ok(()) };
        let resumed = if resume.count() > 0 { consumer.resume(&resume) } else { Ok(()) };
        if let Err(error) = paused.and(resumed) {
            tracing::warn!(%error, "Kafka partitions could not be paused or resumed");
        }
        self.update_gauges(partitions);
    }

    fn update_gauges(&self, partitions: &Partitions) {
        let paused = partitions.values().filter(|owned| owned.paused.contains(&true)).count();
        let uncommitted = partitions.values().map(|owned| owned.assignment.uncommitted()).sum();
        self.telemetry.kafka.set_partitions(partitions.len(), paused, uncommitted);
    }
}

/// The number of verdicts whose export is not acknowledged.
fn unacknowledged_verdicts(partitions: &Partitions) -> u64 {
    partitions.values().map(|owned| owned.assignment.unacknowledged_verdicts()).sum()
}

impl ClientContext for ConsumerGroup {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.client_log.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.client_log.error(error, reason);
    }

    /// Called while polling. The statistics contain the ends of topics as of the latest fetches.
    fn stats(&self, statistics: Statistics) {
        let (mut owned, now) = (self.owned(), Instant::now());
        for (name, topic) in &statistics.topics {
            let Some(stream) = self.stream(name) else { continue };
            for (number, partition) in &topic.partitions {
                if let Some(backlog) = owned.get_mut(number).and_then(|owned| owned.backlog.as_mut()) {
                    backlog.note_end(stream, partition.hi_offset, now);
                }
            }
        }
    }
}

impl ConsumerContext for ConsumerGroup {
    fn pre_rebalance(&self, consumer: &BaseConsumer<ConsumerGroup>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => self.assign(consumer, list),
            Rebalance::Revoke(list) => {
                let partitions = list.elements().iter().map(|element| element.partition()).collect();
                self.revoke(consumer, &partitions, consumer.assignment_lost(), *self.config.revoke_grace);
            }
            Rebalance::Error(error) => tracing::warn!(%error, "rebalance of the consumer group"),
        }
    }

    /// Resumes the assigned partitions: librdkafka preserves the pause of a partition over its revocation.
    fn post_rebalance(&self, consumer: &BaseConsumer<ConsumerGroup>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(list) = rebalance
            && let Err(error) = consumer.resume(list)
        {
            self.fail(format!("partitions that were assigned cannot be resumed: {error}"));
        }
    }
}
