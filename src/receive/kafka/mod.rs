//! Receives OTLP from Kafka, as several processes that share the partitions of the topics.
//!
//! In: messages of a topic of spans, and of one of logs if there is one: OTLP protobuf, keyed by trace id. Out:
//! [`Offer`](super::Offer)s to the pipeline, each with its record, and committed offsets.
//!
//! Kafka is the log: a message is not written to disk again. An offset is committed when every trace of the
//! records below it was exported and acknowledged, so that open traces are read again by the next owner of their
//! partition, which assembles and evaluates them from their first span on.
//!
//! | file | content |
//! |---|---|
//! | `config` | `receivers.kafka` |
//! | `consumer` | the thread that polls, offers messages and commits |
//! | `partitions` | the partitions that this process owns: assignment, revocation, pauses |
//! | `log` | records as the pipeline sees them: retained, released, lapsed |
//! | `watermark` | which offset may be committed, and which records and traces are not evaluated again |
//! | `trace` | what is known of a trace for that |
//! | `handover` | these as text, which is committed with the offset |
//! | `stream` | spans and logs |
//! | `backlog` | which of them waits for the other |
//!
//! All state belongs to an assignment, that is a partition from its assignment to its revocation. On revocation
//! judges of its traces are no longer waited for, open traces are dropped, exports in flight are waited for at most
//! `revoke_grace`, then no more begin, what was reached is committed, and the assignment ends; `partitions` has the
//! reasons for this order. What its traces do after that has no effect: they are not exported, and their releases
//! find no assignment. Only then may the partition be assigned again, also to the same process.

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
mod partitions;
#[cfg(feature = "kafka")]
pub(crate) mod stream;
#[cfg(feature = "kafka")]
mod trace;
#[cfg(feature = "kafka")]
pub(crate) mod watermark;

#[cfg(feature = "kafka")]
pub(crate) use consumer::Receiver;
