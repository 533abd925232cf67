//! The spending of judges in a file next to the journal, so that budgets survive a restart.
//!
//! In: the current judges. Out: a file that is written when the spending has changed, and read at start.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use verdict_judge::Judges;
use verdict_telemetry::LogThrottle;

use super::tasks::Tasks;
use crate::config::Config;
use crate::logging::join_error_reason;
use crate::pipeline::components::CurrentComponents;

/// The interval at which the spending is written, if it has changed. A crash loses the spending since the last write.
const SAVE_INTERVAL: Duration = Duration::from_secs(2);

/// The task that writes the spending of the current judges; none without a directory.
pub(super) fn save_periodically(config: &Config, current: &Arc<Mutex<CurrentComponents>>) -> Tasks {
    let mut tasks = Tasks::default();
    if let Some(file) = spending_file(config) {
        tasks.spawn(save_loop(Arc::clone(current), file, tasks.stop.clone()));
    }
    tasks
}

/// The file of the judges' spending, in the directory of the journal; `None` without a directory.
fn spending_file(config: &Config) -> Option<PathBuf> {
    config.storage.directory.as_ref().map(|folder| folder.join("judge-spending"))
}

/// Restores the spending of judges. Must be called before they are asked.
pub(super) fn restore(config: &Config, judges: &Option<Judges>) {
    if let (Some(judges), Some(file)) = (judges, spending_file(config)) {
        judges.restore_spending(&file);
    }
}

/// Writes the spending of the current judges at intervals, and once more when `stop` is cancelled.
async fn save_loop(current: Arc<Mutex<CurrentComponents>>, file: PathBuf, stop: CancellationToken) {
    let throttle = LogThrottle::default();
    loop {
        let is_stopped = tokio::time::timeout(SAVE_INTERVAL, stop.cancelled()).await.is_ok();
        let judges = current.lock().unwrap_or_else(PoisonError::into_inner).judges.clone();
        if let Some(judges) = judges {
            let path = file.clone();
            let result = tokio::task::spawn_blocking(move || judges.save_spending(&path)).await;
            if let Err(error) = result.map_err(|e| std::io::Error::other(join_error_reason(&e))).flatten()
                && let Some(suppressed) = throttle.allow("spending")
            {
                tracing::warn!(%error, suppressed, "cannot write what judges have spent; after a restart their budgets start at zero");
            }
        }
        if is_stopped {
            return;
        }
    }
}
