//! The directory of the journal: opened before the pipeline starts.
//!
//! In: the section `storage`. Out: the journal with the records of the previous process, the traces that it was
//! evaluating when it ended, and the dead letters.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use verdict_journal::{self as journal, DeadLetters, EvaluationMarkers, Journal, Recovered};
use verdict_otlp::trace::TraceId;

use crate::config::Config;
use crate::export::Exporters;
use crate::logging::join_error_reason;
use crate::pipeline::error::Error;
use crate::telemetry::Telemetry;

/// The contents of an open directory.
pub(super) struct OpenStorage {
    pub journal: Arc<Journal>,
    /// The traces that the previous process was evaluating when it ended.
    pub markers: Arc<EvaluationMarkers>,
    pub recovered: Recovered,
    pub dead_letters: Arc<DeadLetters>,
}

/// Opens the directory; `None` if none is configured. The journal is read on a blocking thread, since reading may take
/// long and the process must react to signals meanwhile.
pub(super) async fn open(
    config: &Config,
    telemetry: &Arc<Telemetry>,
    exporters: &Exporters,
) -> Result<Option<OpenStorage>, Error> {
    let Some(directory) = config.storage.directory.clone() else { return Ok(None) };
    let (storage, remember) = (config.storage.clone(), config.verdict.close.remember);
    let receives_kafka = config.receivers.kafka.is_some();
    let (path, task_telemetry) = (directory.clone(), Arc::clone(telemetry));
    let open_journal = move || {
        let (journal, recovered) = Journal::open(&path, &storage, remember, &task_telemetry.journal)?;
        let open_traces: HashSet<TraceId> = recovered.open.values().flatten().copied().collect();
        // With Kafka every trace may be open, since open traces are received again.
        let is_open = |trace| receives_kafka || open_traces.contains(&trace);
        let markers = Arc::new(EvaluationMarkers::open(&path, is_open));
        Ok((journal, markers, recovered))
    };
    let result = tokio::task::spawn_blocking(open_journal).await;
    let panic_error =
        |error| journal::OpenError::new(&directory, std::io::Error::other(join_error_reason(&error)));
    let (journal, markers, recovered) = result.map_err(panic_error).flatten()?;
    // From here on the lock of the journal excludes other processes from the directory.
    let dead_letters = open_dead_letters(config, &directory, telemetry, exporters)?;
    Ok(Some(OpenStorage { journal, markers, recovered, dead_letters }))
}

fn open_dead_letters(
    config: &Config,
    directory: &Path,
    telemetry: &Telemetry,
    exporters: &Exporters,
) -> Result<Arc<DeadLetters>, Error> {
    let gauge = telemetry.journal.dead_letter_bytes.clone();
    let dead_letters = Arc::new(DeadLetters::open(directory, config.storage.max_bytes.0, gauge)?);
    exporters.set_dead_letters(&dead_letters);
    Ok(dead_letters)
}
