//! The partitions that this process owns: their assignment, revocation, commits and pauses.
//!
//! In: rebalances of the group, which librdkafka reports on the thread that polls. Out: an [`Assignment`] for each
//! partition. The thread does nothing else meanwhile, so that no message of a revoked partition is offered after
//! its revocation has begun.
//!
//! The order of a revocation:
//!
//! 1. Judges are no longer waited for, and open traces are dropped: they would not close within the grace.
//! 2. Exports in flight are waited for, up to `revoke_grace`: what is acknowledged is not evaluated again.
//! 3. The assignment lapses: no export begins any more. An export that begins after the commit would be repeated by the
//!    next owner, perhaps with another answer of a judge. Those that began since step 2 are waited for as well.
//! 4. The state is committed, while acknowledgements still count. If the commit fails, it is tried once more within the
//!    rest of the grace. If acknowledgements came during the commit, it is repeated with them: the group gives the
//!    partition to another member only when this one returns, or its session ends.
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
use verdict_otlp::Signal;

use super::backlog::Backlog;
use super::config::{InitialOffset, KafkaReceiver};
use super::log::{Assignment, KafkaLog};
use super::stream::{Offsets, PartitionStream, STREAMS};
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

/// Commits at a revocation: one, and one with what is acknowledged meanwhile, or after a failure.
const LAST_COMMITS: u32 = 2;
/// Until a failed commit at a revocation is repeated.
const COMMIT_RETRY: Duration = Duration::from_millis(100);

/// How long metadata of topics is waited for, per attempt.
const METADATA: Duration = Duration::from_secs(5);
/// How long the ends of a partition are waited for. Nothing is polled meanwhile.
const ENDS: Duration = Duration::from_secs(1);
/// How long a message is offered before its partition is paused, which drops what was fetched ahead.
const REFUSED: Duration = Duration::from_millis(100);
/// Smallest metadata of an offset that brokers are tried with.
const MIN_METADATA: usize = 64;

/// A message that the pipeline has not accepted yet.
pub(super) struct WaitingMessage {
    pub stream: PartitionStream,
    pub offset: i64,
    pub body: bytes::Bytes,
}

/// A partition of this process: of the topic of spans, and of that of logs.
pub(super) struct Owned {
    pub assignment: Arc<Assignment>,
    /// Messages in order, since later ones must not overtake them.
    pub waiting: VecDeque<WaitingMessage>,
    /// Since when the first of them is refused.
    pub refused: Option<Instant>,
    pub paused: [bool; STREAMS],
    /// If both streams are read.
    pub backlog: Option<Backlog>,
    streams: [bool; STREAMS],
    committed: Option<Commit>,
}

impl Owned {
    /// Bytes of the messages that wait, and of what is known of others.
    pub(super) fn bytes(&self) -> usize {
        self.waiting.iter().map(|waiting| waiting.body.len()).sum::<usize>() + self.assignment.bytes()
    }
}

impl WaitingMessage {
    pub(super) fn signal(&self) -> Signal {
        match self.stream {
            PartitionStream::Spans => Signal::Traces,
            PartitionStream::Logs => Signal::Logs,
        }
    }
}

/// The partitions by number.
pub(super) type Partitions = BTreeMap<i32, Owned>;

/// The context of the consumer.
pub(super) struct ConsumerGroup {
    pub config: KafkaReceiver,
    /// By stream; spans alone, or spans and logs.
    pub topics: Vec<String>,
    pub log: Arc<KafkaLog>,
    pub intake: Arc<dyn Intake>,
    pub runtime: Handle,
    pub telemetry: Arc<Telemetry>,
    pub client_log: ClientLog,
    /// `verdict.close.quiet`
    pub quiet: Duration,
    owned: Mutex<Partitions>,
    failed: Mutex<Option<String>>,
    /// Most bytes of metadata, as the brokers take them.
    metadata: AtomicUsize,
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
            metadata: AtomicUsize::new(config.offset_metadata_max_bytes as usize),
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

    pub(super) fn stream(&self, topic: &str) -> Option<PartitionStream> {
        let stream = self.topics.iter().position(|name| name == topic)?;
        Some(if stream == 0 { PartitionStream::Spans } else { PartitionStream::Logs })
    }

    fn fail(&self, reason: String) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    /// The number of partitions of each topic; 0 for one that does not exist.
    pub(super) fn partition_counts(
        &self,
        consumer: &BaseConsumer<ConsumerGroup>,
    ) -> Result<Vec<usize>, KafkaError> {
        let count = |topic: &String| {
            let metadata = consumer.fetch_metadata(Some(topic), METADATA)?;
            let Some(found) = metadata.topics().first() else { return Ok(0) };
            match found.error().map(RDKafkaErrorCode::from) {
                None => Ok(found.partitions().len()),
                Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Ok(0),
                Some(error) => Err(KafkaError::MetadataFetch(error)),
            }
        };
        self.topics.iter().map(count).collect()
    }

    /// The committed offsets of partitions. With `initial_offset: latest` a partition without one has its end, which is
    /// committed first: later records are received also after a restart.
    fn committed(
        &self,
        consumer: &BaseConsumer<ConsumerGroup>,
        list: &TopicPartitionList,
    ) -> Result<TopicPartitionList, KafkaError> {
        let committed = consumer.committed_offsets(list.clone(), COORDINATOR)?;
        let mut ends = TopicPartitionList::new();
        for element in committed.elements() {
            element.error()?;
            if self.config.initial_offset == InitialOffset::Latest && element.offset() == Offset::Invalid {
                let (topic, partition) = (element.topic(), element.partition());
                let (_, end) = consumer.fetch_watermarks(topic, partition, COORDINATOR)?;
                ends.add_partition_offset(topic, partition, Offset::Offset(end))?;
            }
        }
        if ends.count() == 0 {
            return Ok(committed);
        }
        consumer.commit(&ends, CommitMode::Sync)?;
        consumer.committed_offsets(list.clone(), COORDINATOR)
    }

    /// The backlog of both streams of a partition, if both are read and their ends are known.
    fn backlog(
        &self,
        consumer: &BaseConsumer<ConsumerGroup>,
        partition: i32,
        offsets: Offsets,
    ) -> Option<Backlog> {
        let [spans, logs] = &self.topics[..] else { return None };
        let bounds = |topic: &String, committed: Option<i64>| {
            let (first, end) = consumer.fetch_watermarks(topic, partition, ENDS).ok()?;
            Some((committed.unwrap_or(first).max(first), end))
        };
        Some(Backlog::new([bounds(spans, offsets[0])?, bounds(logs, offsets[1])?], Instant::now()))
    }

    fn assign(&self, consumer: &BaseConsumer<ConsumerGroup>, list: &TopicPartitionList) {
        let committed = (1..=ATTEMPTS).find_map(|attempt| {
            let committed = self.committed(consumer, list);
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
        let mut found: BTreeMap<i32, ([bool; STREAMS], Offsets, String)> = BTreeMap::new();
        for element in committed.elements() {
            let Some(stream) = self.stream(element.topic()) else { continue };
            let (streams, offsets, metadata) = found.entry(element.partition()).or_default();
            streams[stream as usize] = true;
            if let Offset::Offset(offset) = element.offset() {
                offsets[stream as usize] = Some(offset);
                // With the offset of logs while there is none of spans.
                if stream == PartitionStream::Spans || metadata.is_empty() {
                    element.metadata().clone_into(metadata);
                }
            }
        }
        let numbers: Vec<&i32> = found.keys().collect();
        tracing::info!(?numbers, "Kafka partitions assigned");
        let (mut owned, mut answers) = (self.owned(), true);
        for (partition, (streams, offsets, metadata)) in found {
            let missing = (0..self.topics.len()).find(|stream| !streams[*stream]).map(|s| &self.topics[s]);
            if let Some(topic) = missing {
                tracing::error!(
                    partition,
                    topic,
                    "another member has this partition of the topic: its spans and logs do not meet. All members \
                     must subscribe to both topics, and both must have as many partitions"
                );
            }
            let assignment = self.log.assign(partition, offsets, &metadata);
            tracing::debug!(partition, assignment = assignment.id, ?offsets, "Kafka partition assigned");
            // Not after the brokers did not answer: nothing is polled meanwhile.
            let backlog = if answers { self.backlog(consumer, partition, offsets) } else { None };
            answers &= backlog.is_some();
            let (waiting, refused, paused, committed) = (VecDeque::new(), None, [false; STREAMS], None);
            let new = Owned { assignment, waiting, refused, paused, backlog, streams, committed };
            owned.insert(partition, new);
        }
        self.gauge(&owned);
    }

    /// Gives partitions back. `lost`: another member has them already.
    pub(super) fn revoke(
        &self,
        consumer: &BaseConsumer<ConsumerGroup>,
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
        // A shard that waits for an exporter drops its traces later, before those of another assignment: the task goes
        // on.
        let dropping = self.runtime.spawn(self.intake.drop_revoked());
        let dropped = self.runtime.block_on(async { tokio::time::timeout(left, dropping).await.is_ok() });
        let drain = || {
            while exporting(&leaving) > 0 && Instant::now() < deadline {
                std::thread::sleep(GRACE_STEP);
            }
        };
        drain();
        leaving.values().for_each(|owned| owned.assignment.lapse());
        drain();
        let (numbers, unfinished): (Vec<&i32>, _) = (leaving.keys().collect(), exporting(&leaving));
        tracing::info!(?numbers, lost, dropped, exporting = unfinished, "Kafka partitions revoked");
        // A commit that was begun ends first, and none of before is begun any more: the next owner would find it.
        *self.revocations() += 1;
        let replayed = if lost { unfinished } else { self.commit_last(consumer, &mut leaving, deadline) };
        leaving.values().for_each(|owned| self.log.end(owned.assignment.id));
        self.telemetry.kafka.replayed(replayed);
        self.gauge(&self.owned());
    }

    /// Commits the state of partitions that leave, again if it changes meanwhile, and once more after a failure if the
    /// deadline is not over. Returns how many exported traces the next owner evaluates again.
    fn commit_last(
        &self,
        consumer: &BaseConsumer<ConsumerGroup>,
        leaving: &mut Partitions,
        deadline: Instant,
    ) -> u64 {
        // The result of the last commit before the revocation may not be known: it may have failed, or not been begun.
        leaving.values_mut().for_each(|owned| owned.committed = None);
        let mut replayed = 0;
        for attempt in 1..=LAST_COMMITS {
            let unfinished = exporting(leaving);
            let (list, left_out) = self.changes(leaving);
            replayed = unfinished + left_out;
            if list.count() == 0 {
                break;
            }
            let result = consumer.commit(&list, CommitMode::Sync);
            self.note_commit(&result, &list, leaving);
            let Err(error) = result else { continue };
            let left = deadline.saturating_duration_since(Instant::now());
            let retries = attempt < LAST_COMMITS && !left.is_zero();
            let numbers: Vec<&i32> = leaving.keys().collect();
            tracing::warn!(?numbers, %error, retries, "offsets of revoked Kafka partitions could not be committed");
            if !retries {
                break;
            }
            std::thread::sleep(left.min(COMMIT_RETRY));
        }
        replayed
    }

    /// The number of revocations, which does not change while it is locked.
    pub(super) fn revocations(&self) -> MutexGuard<'_, u64> {
        self.revocations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The offsets changed since the last commit, and the number of exported traces that a new owner evaluates again.
    pub(super) fn changes(&self, partitions: &mut Partitions) -> (TopicPartitionList, u64) {
        let budget = self.metadata.load(Ordering::Relaxed);
        let mut reevaluated_traces = 0;
        let mut list = TopicPartitionList::new();
        for (partition, owned) in partitions.iter_mut() {
            let Some(commit) = owned.assignment.commit(budget) else {
                self.telemetry.kafka.commit(CommitResult::Deferred);
                continue;
            };
            reevaluated_traces += commit.reevaluated_traces;
            if owned.committed.as_ref() == Some(&commit) {
                continue;
            }
            let mut metadata = Some(&commit.metadata);
            for (stream, topic) in self.topics.iter().enumerate().filter(|(stream, _)| owned.streams[*stream])
            {
                let Some(offset) = commit.offsets[stream] else { continue };
                let mut element = list.add_partition(topic, *partition);
                // A valid offset is never refused.
                let _ = element.set_offset(Offset::Offset(offset));
                if let Some(metadata) = metadata.take() {
                    element.set_metadata(metadata);
                }
            }
            owned.committed = Some(commit);
        }
        (list, reevaluated_traces)
    }

    /// Counts the result of a commit. After an error, or if it was cancelled, the same is committed again.
    pub(super) fn note_commit(
        &self,
        result: &Result<(), KafkaError>,
        list: &TopicPartitionList,
        partitions: &mut Partitions,
    ) {
        let Err(error) = result else {
            return self.telemetry.kafka.commit(CommitResult::Committed);
        };
        for element in list.elements() {
            if let Some(owned) = partitions.get_mut(&element.partition()) {
                owned.committed = None;
            }
        }
        if matches!(error, KafkaError::Canceled) {
            return;
        }
        self.telemetry.kafka.commit(CommitResult::Failed);
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::OffsetMetadataTooLarge) {
            let halved = (self.metadata.load(Ordering::Relaxed) / 2).max(MIN_METADATA);
            self.metadata.store(halved, Ordering::Relaxed);
        }
    }

    /// Pauses partitions with waiting messages or too many uncommitted records, or all of them, and streams that are
    /// ahead of the other one; resumes the others.
    pub(super) fn pause(
        &self,
        consumer: &BaseConsumer<ConsumerGroup>,
        partitions: &mut Partitions,
        all: bool,
    ) {
        let (max_uncommitted, now) = (self.config.max_uncommitted_records, Instant::now());
        let [mut pause, mut resume] = [TopicPartitionList::new(), TopicPartitionList::new()];
        for (partition, owned) in partitions.iter_mut() {
            let uncommitted = owned.assignment.uncommitted();
            // Resumed at three quarters, so that it does not alternate with each trace.
            let is_paused = owned.paused.contains(&true);
            let too_many = uncommitted >= if is_paused { max_uncommitted / 4 * 3 } else { max_uncommitted };
            let refused = owned.refused.is_some_and(|since| now.duration_since(since) >= REFUSED);
            let whole = all || refused || too_many;
            if let Some(backlog) = owned.backlog.as_mut().filter(|_| whole) {
                backlog.paused(now);
            }
            let ahead = owned.backlog.as_ref().and_then(|backlog| backlog.ahead(self.quiet, now));
            for (stream, topic) in self.topics.iter().enumerate().filter(|(stream, _)| owned.streams[*stream])
            {
                let wanted = whole || ahead.is_some_and(|ahead| ahead as usize == stream);
                if std::mem::replace(&mut owned.paused[stream], wanted) != wanted {
                    if wanted { &mut pause } else { &mut resume }.add_partition(topic, *partition);
                }
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
        let paused = partitions.values().filter(|owned| owned.paused.contains(&true)).count();
        let uncommitted = partitions.values().map(|owned| owned.assignment.uncommitted()).sum();
        self.telemetry.kafka.partitions(partitions.len(), paused, uncommitted);
    }
}

/// Verdicts whose export is not acknowledged.
fn exporting(partitions: &Partitions) -> u64 {
    partitions.values().map(|owned| owned.assignment.exporting()).sum()
}

impl ClientContext for ConsumerGroup {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.client_log.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.client_log.error(error, reason);
    }

    /// Called while polling. The ends of topics are those of the last fetches.
    fn stats(&self, statistics: Statistics) {
        let (mut owned, now) = (self.owned(), Instant::now());
        for (name, topic) in &statistics.topics {
            let Some(stream) = self.stream(name) else { continue };
            for (number, partition) in &topic.partitions {
                if let Some(backlog) = owned.get_mut(number).and_then(|owned| owned.backlog.as_mut()) {
                    backlog.ends_at(stream, partition.hi_offset, now);
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

    /// librdkafka remembers that a partition was paused when it was revoked.
    fn post_rebalance(&self, consumer: &BaseConsumer<ConsumerGroup>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(list) = rebalance
            && let Err(error) = consumer.resume(list)
        {
            self.fail(format!("partitions that were assigned cannot be resumed: {error}"));
        }
    }
}
