//! The sync thread: fsyncs files, so that the writer never waits for an fsync.
//!
//! In: files with unsynced writes, and the callers that wait for them. Out: replies to the callers; for the
//! writer, the number of the last write that is on the disk. Requests that arrive during one fsync share the next. An
//! acknowledgement or release is written without waiting for an fsync, however slow the disk is. If the
//! process is killed, only unwritten data is lost; if the machine fails, unsynced data is lost.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Instant;

use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use verdict_telemetry::JournalMetrics;

use super::disk::{Fsync, fsync_all};

/// A caller that waits until its records are stored.
pub(crate) struct Waiter {
    pub reply: oneshot::Sender<bool>,
    /// Released with the reply.
    pub _permit: Option<OwnedSemaphorePermit>,
}

/// Files to fsync, and the callers that wait for it.
pub(crate) struct SyncRequest {
    pub files: Vec<Arc<dyn Fsync>>,
    pub waiters: Vec<Waiter>,
    /// The number of a write: all writes up to it are in these files or in files of an earlier request.
    pub up_to: u64,
}

/// The writer's side of the sync thread.
pub(crate) struct Syncer {
    requests: Option<Sender<SyncRequest>>,
    /// For each fsync, the `up_to` of the last request that it covers, or the error.
    pub results: Receiver<io::Result<u64>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The operating system cannot start a thread.
    pub(crate) fn start(metrics: &JournalMetrics) -> io::Result<Syncer> {
        let (requests, request_receiver) = mpsc::channel();
        let (result_sender, results) = mpsc::channel();
        let duration = metrics.sync_duration.clone();
        let work = move || run(&request_receiver, &result_sender, &duration);
        let thread = std::thread::Builder::new().name("journal-sync".to_owned()).spawn(work)?;
        Ok(Syncer { requests: Some(requests), results, thread: Some(thread) })
    }

    /// Passes files to the sync thread.
    ///
    /// # Errors
    /// The thread has ended; the waiters are dropped, which notifies their callers.
    pub(crate) fn request(&self, request: SyncRequest) -> io::Result<()> {
        let sent = self.requests.as_ref().and_then(|requests| requests.send(request).ok());
        sent.ok_or_else(|| io::Error::other("the sync thread has ended"))
    }

    /// Waits until every request is served.
    pub(crate) fn join(&mut self) {
        self.requests = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the sync thread of the journal panicked; this is a bug");
        }
    }
}

/// Serves requests until the writer drops its end of the channel.
fn run(requests: &Receiver<SyncRequest>, results: &Sender<io::Result<u64>>, duration: &Histogram) {
    while let Ok(first) = requests.recv() {
        let SyncRequest { mut files, mut waiters, mut up_to } = first;
        while let Ok(further_request) = requests.try_recv() {
            for file in further_request.files {
                if files.iter().all(|other| !Arc::ptr_eq(other, &file)) {
                    files.push(file);
                }
            }
            waiters.extend(further_request.waiters);
            up_to = further_request.up_to;
        }
        let start = Instant::now();
        let result = fsync_all(&files).map(|()| up_to);
        duration.observe(start.elapsed().as_secs_f64());
        let stored = result.is_ok();
        // Before the replies, so that the writer receives a failure before a caller can submit more.
        let sent = results.send(result);
        reply(waiters, stored);
        if sent.is_err() {
            return;
        }
    }
}

/// Replies whether the records are stored. If a caller was cancelled, its `AppendedRequest` discards the record.
pub(crate) fn reply(waiters: Vec<Waiter>, stored: bool) {
    for Waiter { reply, .. } in waiters {
        let _ = reply.send(stored);
    }
}
