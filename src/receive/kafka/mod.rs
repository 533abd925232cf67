//! Receives OTLP from Kafka, as several processes that share the partitions of the topics.
//!
//! In: messages of a topic of spans, and of a topic of logs if one is configured: OTLP protobuf, keyed by trace id.
//! Out: [`Offer`](super::Offer)s to the pipeline, each with its record, and committed offsets.
//!
//! Kafka takes the place of the journal: a message is not written to disk again. An offset is committed when every
//! trace of the records below it was exported and acknowledged. The next owner of a partition therefore reads its open
//! traces again, and assembles and evaluates them from their first span on.
//!
//! | file | content |
//! |---|---|
//! | `config` | `receivers.kafka` |
//! | `consumer` | the thread that polls, offers messages and commits |
//! | `partitions` | assignment, revocation and pauses of the partitions that this process owns |
//! | `owned` | the state of one of these partitions, and the messages that wait to be offered |
//! | `log` | the records for the pipeline: retained, released, lapsed |
//! | `watermark` | the offset that may be committed, and the records and traces that are not evaluated again |
//! | `trace` | the state of one trace in a watermark |
//! | `handover` | the state of a watermark as text, which is committed with the offset |
//! | `stream` | spans and logs |
//! | `backlog` | which of the two streams waits for the other |
//!
//! All state belongs to an assignment: a partition from its assignment to its revocation. On revocation, answers of
//! judges are no longer awaited, open traces are dropped, exports in flight are awaited for at most `revoke_grace`, no
//! further exports begin, the reached state is committed, and the assignment ends. `partitions` gives the reasons for
//! this order. Traces that are still processed after that have no effect: they are not exported, and their releases are
//! ignored, since their assignment has ended. Only then may the partition be assigned again, also to the same process.

pub mod config;
#[cfg(feature = "kafka")]
mod backlog;
#[cfg(feature = "kafka")]
mod consumer;
#[cfg(feature = "kafka")]
mod handover;
#[cfg(feature = "kafka")]
pub(crate) mod log;
#[cfg(feature = "kafka")]
mod owned;
#[cfg(feature = "kafka")]
mod partitions;
#[cfg(feature = "kafka")]
pub(crate) mod stream;
#[cfg(feature = "kafka")]
pub(crate) mod trace;
#[cfg(feature = "kafka")]
mod watermark;

#[cfg(feature = "kafka")]
pub(crate) use consumer::Receiver;
