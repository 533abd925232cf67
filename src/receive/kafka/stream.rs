//! The two streams of a partition: spans and logs. The partitions with the same number of both topics have one owner.

/// Number of streams.
pub(crate) const STREAMS: usize = 2;

/// A stream of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartitionStream {
    Spans = 0,
    Logs = 1,
}

/// Offsets by stream; `None` if no record of the stream was read or committed.
pub(crate) type Offsets = [Option<i64>; STREAMS];
