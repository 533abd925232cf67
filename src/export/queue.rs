//! The queue of one exporter, bounded in bytes.
//!
//! In: parcels with their receipts. Out: [`ParcelBatch`]es of parcels of one signal, up to a size. Parcels that are
//! being sent count until their outcome, since the limit is on memory. An idle exporter sends at once; while requests
//! are in flight, arriving parcels are batched, so that the size of batches grows with the load.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use verdict_otlp::Signal;

use super::parcel::Parcel;
use crate::outcome::Receipt;
use crate::reservation::{ByteLimit, Reservation};

/// Bytes per permit of the semaphore, which counts in `u32`: allows parcels up to 256 GiB.
const PERMIT_BYTES: usize = 64;

/// While fewer than this many requests are in flight, the next request does not wait for a full batch, so that one slow
/// response does not delay other requests.
const EAGER_REQUESTS: usize = 3;

/// Minimum interval between requests that do not wait for a full batch, so that batches form under load: about five
/// times the CPU time of a request.
const EAGER_INTERVAL: Duration = Duration::from_micros(200);

/// The number of queued bytes that make a full batch: the fixed cost of a request is small relative to this size.
const BATCH_BYTES: usize = 128 << 10;

/// The longest time for which a parcel waits for a full batch.
const MAX_WAIT: Duration = Duration::from_millis(1);

/// The reason for which no space could be reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum QueueError {
    Full,
    /// Shutdown has begun.
    Closed,
}

/// A parcel that is queued or being sent.
#[derive(Debug)]
pub(super) struct Job {
    pub parcel: Parcel,
    pub receipt: Receipt,
    pub space: QueueSpace,
}

/// Space in a queue; released when dropped.
#[derive(Debug)]
pub(super) struct QueueSpace {
    _permit: OwnedSemaphorePermit,
    _reservation: Reservation,
}

/// Parcels that a consumer sends together.
#[derive(Debug)]
pub(super) struct ParcelBatch {
    pub signal: Signal,
    pub jobs: Vec<Job>,
    pub in_flight: InFlightExport,
}

/// Counts a request in flight until it is dropped. Consumers drop it before they wait for a retry, so that a failing
/// request does not delay those of other consumers.
#[derive(Debug)]
pub(super) struct InFlightExport(Arc<Queue>);

impl Drop for InFlightExport {
    fn drop(&mut self) {
        self.0.lock().in_flight -= 1;
        self.0.changed.notify_one();
    }
}

/// The queued parcels.
#[derive(Debug, Default)]
struct QueueState {
    /// One queue for each signal, since a request contains one signal. Each parcel has its sequence number and time of
    /// arrival.
    lanes: [VecDeque<(u64, Instant, Job)>; 3],
    next_sequence: u64,
    /// Bytes of queued parcels.
    bytes: usize,
    /// The number of requests in flight.
    in_flight: usize,
    /// When the last request started.
    last_start: Option<Instant>,
    is_closed: bool,
}

/// The bounded queue of one exporter.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    /// Notified when a parcel arrives or a request ends.
    changed: Notify,
    permits: Arc<Semaphore>,
    all_permits: usize,
    /// The capacity, and the bytes queued or being sent.
    bytes: ByteLimit,
    senders_waiting: AtomicUsize,
}

impl Queue {
    /// A queue with `capacity` in bytes; 0 admits one parcel at a time, of any size.
    pub(super) fn new(capacity: u64) -> Arc<Queue> {
        let all_permits = usize::try_from(capacity)
            .unwrap_or(usize::MAX)
            .div_ceil(PERMIT_BYTES)
            .clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Arc::new(Queue {
            state: Mutex::default(),
            changed: Notify::new(),
            permits: Arc::new(Semaphore::new(all_permits)),
            all_permits,
            bytes: ByteLimit::new(capacity),
            senders_waiting: AtomicUsize::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No code panics in the middle of an update, so that the state behind a poisoned lock is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes queued or being sent.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.reserved()
    }

    pub(super) fn capacity(&self) -> u64 {
        self.bytes.limit
    }

    /// Whether senders wait, or less than a sixteenth of the space is free.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.senders_waiting.load(Ordering::Relaxed) > 0
            || self.permits.available_permits() < self.all_permits / 16
    }

    /// The number of permits for a parcel. One larger than the queue takes all of them, and is admitted alone.
    fn permits_for(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(PERMIT_BYTES).clamp(1, self.all_permits)).unwrap_or(u32::MAX)
    }

    fn space(&self, permit: OwnedSemaphorePermit, bytes: usize) -> QueueSpace {
        QueueSpace { _permit: permit, _reservation: self.bytes.reserve(bytes) }
    }

    /// Reserves space without waiting.
    pub(super) fn try_reserve(&self, bytes: usize) -> Result<QueueSpace, QueueError> {
        match Arc::clone(&self.permits).try_acquire_many_owned(self.permits_for(bytes)) {
            Ok(permit) => Ok(self.space(permit, bytes)),
            Err(tokio::sync::TryAcquireError::NoPermits) => Err(QueueError::Full),
            Err(tokio::sync::TryAcquireError::Closed) => Err(QueueError::Closed),
        }
    }

    /// Reserves space, waiting in order of arrival; fails only when the queue is closed.
    pub(super) async fn reserve(&self, bytes: usize) -> Result<QueueSpace, QueueError> {
        struct WaitingSender<'a>(&'a AtomicUsize);
        impl Drop for WaitingSender<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.senders_waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = WaitingSender(&self.senders_waiting);
        let permit = Arc::clone(&self.permits).acquire_many_owned(self.permits_for(bytes)).await;
        permit.map(|permit| self.space(permit, bytes)).map_err(|_| QueueError::Closed)
    }

    /// Queues a parcel with reserved space; returns it if the queue is closed.
    pub(super) fn enqueue(&self, job: Job) -> Result<(), Job> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(job);
        }
        let sequence = state.next_sequence;
        state.next_sequence += 1;
        state.bytes += job.parcel.size();
        state.lanes[job.parcel.signal as usize].push_back((sequence, Instant::now(), job));
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for the next batch: the oldest parcel and further parcels of its signal, up to `max_bytes`. `None` when
    /// the queue is closed and empty.
    pub(super) async fn take(self: &Arc<Self>, max_bytes: usize) -> Option<ParcelBatch> {
        loop {
            // Registered before the check, so that no parcel queued in between is missed.
            let changed = self.changed.notified();
            let ready_at = {
                let mut state = self.lock();
                match state.oldest() {
                    None if state.is_closed => return None,
                    None => None,
                    Some((lane, arrival)) => {
                        let now = Instant::now();
                        let ready_at = state.ready_at(arrival);
                        let is_ready = state.in_flight == 0
                            || state.is_closed
                            || state.bytes >= BATCH_BYTES
                            || ready_at <= now;
                        if is_ready {
                            state.last_start = Some(now);
                            return Some(self.take_batch(&mut state, lane, max_bytes));
                        }
                        Some(ready_at)
                    }
                }
            };
            match ready_at {
                None => changed.await,
                Some(ready_at) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(ready_at) => {}
                },
            }
        }
    }

    fn take_batch(self: &Arc<Self>, state: &mut QueueState, lane: usize, max_bytes: usize) -> ParcelBatch {
        let mut jobs = Vec::new();
        let mut total = 0usize;
        while let Some((_, _, next)) = state.lanes[lane].front() {
            let size = next.parcel.size();
            if !jobs.is_empty() && total.saturating_add(size) > max_bytes {
                break;
            }
            total = total.saturating_add(size);
            jobs.extend(state.lanes[lane].pop_front().map(|(_, _, job)| job));
        }
        state.bytes = state.bytes.saturating_sub(total);
        state.in_flight += 1;
        if state.lanes.iter().any(|lane| !lane.is_empty()) {
            self.changed.notify_one();
        }
        ParcelBatch { signal: Signal::ALL[lane], jobs, in_flight: InFlightExport(Arc::clone(self)) }
    }

    /// Closes the queue: it admits no more parcels. Queued parcels can still be taken.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.permits.close();
        self.changed.notify_waiters();
    }

    /// Removes all queued parcels.
    pub(super) fn purge(&self) -> Vec<Job> {
        let mut state = self.lock();
        state.bytes = 0;
        state.lanes.iter_mut().flat_map(std::mem::take).map(|(_, _, job)| job).collect()
    }
}

impl QueueState {
    /// The latest time at which the next request starts, by the arrival of the oldest parcel.
    fn ready_at(&self, oldest_arrival: Instant) -> Instant {
        let latest = oldest_arrival + MAX_WAIT;
        match self.last_start {
            Some(last) if self.in_flight < EAGER_REQUESTS => latest.min(last + EAGER_INTERVAL),
            _ => latest,
        }
    }

    /// The lane of the oldest parcel, and its time of arrival.
    fn oldest(&self) -> Option<(usize, Instant)> {
        let fronts = self.lanes.iter().enumerate();
        let fronts = fronts.filter_map(|(lane, queue)| {
            queue.front().map(|(sequence, arrival, _)| (*sequence, lane, *arrival))
        });
        fronts.min_by_key(|(sequence, _, _)| *sequence).map(|(_, lane, arrival)| (lane, arrival))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Ledger, Outcome};
    use verdict_otlp::Piece;

    fn parcel(signal: Signal, size: usize) -> Parcel {
        let bytes = vec![0u8; size].into();
        Parcel {
            signal,
            pieces: vec![Piece { bytes, items: 1 }],
            source: crate::export::ParcelSource::Sender,
        }
    }

    fn push(queue: &Arc<Queue>, signal: Signal, size: usize) -> Result<(), QueueError> {
        let space = queue.try_reserve(size)?;
        let receipt = Receipt::new(1, Arc::new(Ledger::default()));
        queue.enqueue(Job { parcel: parcel(signal, size), receipt, space }).map_err(|job| {
            job.receipt.resolve(Outcome::Dropped);
            QueueError::Closed
        })
    }

    fn resolve(jobs: Vec<Job>) -> Vec<usize> {
        jobs.into_iter()
            .map(|job| {
                job.receipt.resolve(Outcome::Exported);
                job.parcel.size()
            })
            .collect()
    }

    #[tokio::test]
    async fn parcels_being_sent_still_occupy_space() {
        let queue = Queue::new(6400);
        push(&queue, Signal::Traces, 6400).unwrap();
        assert_eq!(push(&queue, Signal::Traces, 64), Err(QueueError::Full));
        assert!(queue.is_nearly_full());
        let batch = queue.take(usize::MAX).await.unwrap();
        assert_eq!(push(&queue, Signal::Traces, 64), Err(QueueError::Full));
        assert_eq!(queue.bytes(), 6400);
        resolve(batch.jobs);
        assert_eq!(queue.bytes(), 0);
        push(&queue, Signal::Traces, 64).unwrap();
        resolve(queue.purge());
    }

    #[tokio::test]
    async fn a_parcel_larger_than_the_queue_is_admitted_alone() {
        let queue = Queue::new(640);
        push(&queue, Signal::Traces, 1 << 20).unwrap();
        assert_eq!(push(&queue, Signal::Traces, 1), Err(QueueError::Full));
        resolve(queue.purge());
    }

    #[tokio::test]
    async fn batches_contain_one_signal_up_to_the_size_oldest_first() {
        let queue = Queue::new(1 << 20);
        for (signal, size) in [
            (Signal::Logs, 100),
            (Signal::Traces, 400),
            (Signal::Traces, 500),
            (Signal::Logs, 100),
            (Signal::Traces, 200),
        ] {
            push(&queue, signal, size).unwrap();
        }
        queue.close();
        let mut batches = Vec::new();
        while let Some(batch) = queue.take(1000).await {
            batches.push((batch.signal, resolve(batch.jobs)));
        }
        assert_eq!(
            batches,
            [(Signal::Logs, vec![100, 100]), (Signal::Traces, vec![400, 500]), (Signal::Traces, vec![200])]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn idle_queue_sends_at_once_and_busy_queue_batches_for_a_bounded_time() {
        let queue = Queue::new(1 << 20);
        let start = Instant::now();
        push(&queue, Signal::Traces, 10).unwrap();
        let first = queue.take(1 << 20).await.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);

        push(&queue, Signal::Traces, 20).unwrap();
        push(&queue, Signal::Traces, 30).unwrap();
        let second = queue.take(1 << 20).await.unwrap();
        assert!(start.elapsed() >= MAX_WAIT && start.elapsed() < MAX_WAIT * 2);
        assert_eq!(resolve(second.jobs), [20, 30]);

        push(&queue, Signal::Traces, BATCH_BYTES).unwrap();
        let now = Instant::now();
        let third = queue.take(1 << 20).await.unwrap();
        assert_eq!(now.elapsed(), Duration::ZERO);
        resolve(third.jobs);
        resolve(first.jobs);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_response_does_not_delay_other_requests() {
        let queue = Queue::new(1 << 20);
        let mut in_flight = Vec::new();
        for _ in 0..EAGER_REQUESTS {
            tokio::time::advance(EAGER_INTERVAL).await;
            let now = Instant::now();
            push(&queue, Signal::Traces, 10).unwrap();
            in_flight.push(queue.take(1 << 20).await.unwrap());
            assert_eq!(now.elapsed(), Duration::ZERO);
        }
        tokio::time::advance(EAGER_INTERVAL).await;
        let now = Instant::now();
        push(&queue, Signal::Traces, 10).unwrap();
        in_flight.push(queue.take(1 << 20).await.unwrap());
        assert!(now.elapsed() >= MAX_WAIT);
        in_flight.into_iter().for_each(|batch| drop(resolve(batch.jobs)));
    }

    #[tokio::test]
    async fn closing_wakes_waiting_senders_and_consumers() {
        let queue = Queue::new(64);
        push(&queue, Signal::Traces, 64).unwrap();
        let sender = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.reserve(64).await.map(|_| ()) }
        });
        let batch = queue.take(1).await.unwrap();
        let consumer = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.take(1).await.is_none() }
        });
        tokio::task::yield_now().await;
        queue.close();
        assert_eq!(sender.await.unwrap(), Err(QueueError::Closed));
        assert!(consumer.await.unwrap());
        assert_eq!(push(&queue, Signal::Traces, 1), Err(QueueError::Closed));
        resolve(batch.jobs);
    }
}
