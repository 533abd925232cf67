//! The two streams of a partition: spans and logs. Partitions of both topics with the same number have one owner.

/// Number of streams.
pub(crate) const STREAMS: usize = 2;

/// A stream of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartitionStream {
    Spans = 0,
    Logs = 1,
}

/// Offsets by stream; `None`: nothing of the stream was read or committed.
pub(crate) type Offsets = [Option<i64>; STREAMS];
