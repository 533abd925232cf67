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

/// How often what judges have spent is written, if it has changed: a crash forgets the spending since then.
const INTERVAL: Duration = Duration::from_secs(2);

/// The task that writes the spending of the current judges; none without a directory.
pub(super) fn save_periodically(config: &Config, current: &Arc<Mutex<CurrentComponents>>) -> Tasks {
    let mut tasks = Tasks::default();
    if let Some(file) = file(config) {
        tasks.spawn(save(Arc::clone(current), file, tasks.stop.clone()));
    }
    tasks
}

/// The file of what judges have spent, in the directory of the journal.
fn file(config: &Config) -> Option<PathBuf> {
    config.storage.directory.as_ref().map(|folder| folder.join("judge-spending"))
}

/// Before judges are asked.
pub(super) fn restore(config: &Config, judges: &Option<Judges>) {
    if let (Some(judges), Some(file)) = (judges, file(config)) {
        judges.restore_spending(&file);
    }
}

/// Writes what the current judges have spent, until `stop` and once more then.
async fn save(current: Arc<Mutex<CurrentComponents>>, file: PathBuf, stop: CancellationToken) {
    let throttle = LogThrottle::default();
    loop {
        let stopped = tokio::time::timeout(INTERVAL, stop.cancelled()).await.is_ok();
        let judges = current.lock().unwrap_or_else(PoisonError::into_inner).judges.clone();
        if let Some(judges) = judges {
            let path = file.clone();
            let saved = tokio::task::spawn_blocking(move || judges.save_spending(&path)).await;
            if let Err(error) = saved.map_err(|e| std::io::Error::other(join_error_reason(&e))).flatten()
                && let Some(suppressed) = throttle.allow("spending")
            {
                tracing::warn!(%error, suppressed, "cannot write what judges have spent; after a restart their budgets start at zero");
            }
        }
        if stopped {
            return;
        }
    }
}
