//! Reads the task files of `verdict.metrics.path`, at start and at a reload.
//!
//! In: their names. Out: the tasks, or every fault of every file.

use verdict_config::{Source, read_bounded};
use verdict_eval::path::{Settings, TaskSet, load};

/// Largest task file: thousands of tasks.
const MAX_BYTES: u64 = 64 << 20;

/// The tasks of `settings`; none where they are switched off.
///
/// # Errors
/// A file that cannot be read or used; one line a fault.
pub(super) fn read(settings: &Settings) -> Result<TaskSet, String> {
    if !settings.is_on() {
        return Ok(TaskSet::default());
    }
    let of = |file: &std::path::PathBuf| {
        let name = file.display().to_string();
        let text =
            read_bounded(file, MAX_BYTES).map_err(|why| format!("metrics.path.tasks: {name}: {why}"))?;
        Ok(Source { name, text })
    };
    let sources = settings.tasks.iter().map(of).collect::<Result<Vec<_>, String>>()?;
    let loaded = load(&sources).map_err(|faults| format!("metrics.path.tasks:\n{faults}"))?;
    for warning in &loaded.warnings {
        tracing::warn!(%warning, "a task file may not mean what it says");
    }
    Ok(TaskSet::new(loaded.tasks))
}
