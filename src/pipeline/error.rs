//! The errors with which a service cannot start, or cannot apply a new configuration.

use std::io;

use verdict_config::Invalid;
use verdict_eval::BuildError;
use verdict_journal::OpenError;
use verdict_judge::JudgeError;

use crate::export::StartError;
use crate::receive::BindError;

/// The process cannot start, or cannot apply a new configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address of a listener cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("exporters.{id}: {source}")]
    Exporter { id: String, source: StartError },
    /// `verdict.recognise`, `verdict.redact` or an added metric cannot be used.
    #[error("verdict.{0}")]
    Evaluator(#[from] BuildError),
    /// A task file cannot be read.
    #[error("verdict.metrics.path.tasks: {file}: {source}")]
    TaskFile { file: String, source: io::Error },
    /// Task files contain errors, which are listed one per line.
    #[error("verdict.metrics.path.tasks:\n{0}")]
    Tasks(#[from] Invalid),
    /// `storage.directory` cannot be opened.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// `judges` or `judging` cannot be used.
    #[error(transparent)]
    Judges(#[from] JudgeError),
    /// A metric that was added names a judge that is neither configured nor provided.
    #[error("metric '{metric}': '{judge}' is not defined under judges")]
    UnknownJudge { metric: &'static str, judge: String },
    /// The binary was built without Kafka.
    #[error("receivers.kafka: {}", crate::kafka::FEATURE_MISSING)]
    NoKafka,
    /// No exporter accepts traces, so that spans would be received and not exported.
    #[error("service.exporters: none of the exporters takes traces")]
    NoTraces,
}
