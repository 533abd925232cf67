//! Tasks of the service that end together.
//!
//! In: futures that end when the group is stopped. Out: whether one of them panicked, which the service reports.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A group of tasks that end when `stop` is cancelled.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    pub stop: CancellationToken,
    tasks: JoinSet<()>,
    /// Whether one of them panicked or failed: the process must end.
    pub failed: Arc<AtomicBool>,
}

impl Tasks {
    /// Spawns a task, whose panic ends the process.
    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let failed = Arc::clone(&self.failed);
        self.tasks.spawn(async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                tracing::error!("a task of the service panicked, and the process ends. This is a bug");
                failed.store(true, Ordering::Relaxed);
            }
        });
    }

    /// Like [`Tasks::spawn`]; an error ends the process too.
    #[cfg(feature = "kafka")]
    pub(super) fn spawn_fallible<E: std::fmt::Display>(
        &mut self,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let failed = Arc::clone(&self.failed);
        self.spawn(async move {
            if let Err(error) = task.await {
                tracing::error!(%error, "a receiver has failed, and the process ends");
                failed.store(true, Ordering::Relaxed);
            }
        });
    }

    /// Cancels `stop`, and aborts the tasks that have not ended after `within`. Returns `false` if a task was aborted.
    pub(super) async fn end(&mut self, within: Duration) -> bool {
        self.stop.cancel();
        let all_ended = async { while self.tasks.join_next().await.is_some() {} };
        let have_ended = tokio::time::timeout(within, all_ended).await.is_ok();
        self.tasks.abort_all();
        have_ended
    }
}
