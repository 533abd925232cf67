//! The state of one partition that this process owns.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use verdict_otlp::Signal;

use super::backlog::Backlog;
use super::log::Assignment;
use super::stream::{PartitionStream, STREAMS};
use super::watermark::Commit;

/// A message that the pipeline has not accepted yet.
pub(super) struct WaitingMessage {
    pub stream: PartitionStream,
    pub offset: i64,
    pub body: bytes::Bytes,
}

/// The partitions of both topics that have the same number, owned by this process.
pub(super) struct OwnedPartition {
    pub assignment: Arc<Assignment>,
    /// Messages that the pipeline has not accepted, in order of their offsets.
    pub waiting: VecDeque<WaitingMessage>,
    /// When the pipeline first refused the first waiting message.
    pub refused_since: Option<Instant>,
    /// For each stream, whether it is paused.
    pub paused: [bool; STREAMS],
    /// `Some` if both streams are read and their ends are known.
    pub backlog: Option<Backlog>,
    /// For each stream, whether this process owns its partition.
    pub owned_streams: [bool; STREAMS],
    /// The last commit, unless it failed.
    pub last_commit: Option<Commit>,
}

impl OwnedPartition {
    /// Bytes of the waiting messages and of the state of the assignment.
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

/// Owned partitions by number.
pub(super) type Partitions = BTreeMap<i32, OwnedPartition>;
