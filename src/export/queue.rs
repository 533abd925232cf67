//! The bounded queue before one exporter, sized in bytes.
//!
//! In: parcels with their receipts. Out: [`Load`]s of parcels of one signal, up to a size. What
//! is being sent still counts: the bound is on memory, not on a list's length. Nothing waits for
//! a timer while the exporter is idle; while requests are in flight, what comes meanwhile
//! gathers, so that batches grow with load and only with load.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::{Parcel, slot};
use crate::outcome::Receipt;
use verdict_otlp::Signal;

/// Room is handed out in units of this many bytes: the semaphore counts in `u32`, and so this
/// lets one parcel be as large as 256 GiB.
const UNIT: usize = 64;

/// Requests in flight beside which another begins whatever has gathered: one slow answer holds up
/// nothing. Beyond them what comes gathers.
const LINES: usize = 3;

/// How far apart such requests begin, so that a busy line still makes batches: some five times what
/// a request takes of a core by itself.
const APART: Duration = Duration::from_micros(200);

/// Otherwise a request begins once so much has gathered: from here on what it costs by itself is
/// small against its bytes, ...
const GATHER: usize = 128 << 10;

/// ... or once the oldest has waited so long: a slow destination must not hold up the others.
const PATIENCE: Duration = Duration::from_millis(1);

/// Why a parcel was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoRoom {
    /// The bytes of others fill it.
    Full,
    /// Shutdown has begun.
    Closed,
}

/// A parcel that waits, or is being sent.
#[derive(Debug)]
pub(super) struct Job {
    pub parcel: Parcel,
    pub receipt: Receipt,
    pub hold: Hold,
}

/// Bytes that a parcel occupies; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    _room: OwnedSemaphorePermit,
    bytes: u64,
    held: Arc<AtomicU64>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What a consumer sends next.
#[derive(Debug)]
pub(super) struct Load {
    pub signal: Signal,
    pub jobs: Vec<Job>,
    pub turn: Turn,
}

/// Says that a request is in flight. Given up before a retry's wait, so that one consumer's
/// trouble does not make the others gather.
#[derive(Debug)]
pub(super) struct Turn(Arc<Queue>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.lock().active -= 1;
        self.0.arrived.notify_one();
    }
}

#[derive(Debug, Default)]
struct State {
    /// By signal, since a request holds one; each with its place in the order and time of arrival.
    lanes: [VecDeque<(u64, Instant, Job)>; 3],
    next: u64,
    bytes: usize,
    active: usize,
    /// When the last request began.
    began: Option<Instant>,
    closed: bool,
}

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    arrived: Notify,
    room: Arc<Semaphore>,
    units: usize,
    capacity: u64,
    held: Arc<AtomicU64>,
    senders_waiting: AtomicUsize,
}

impl Queue {
    /// For `capacity` bytes; 0 holds one parcel at a time, whatever its size.
    pub fn new(capacity: u64) -> Arc<Queue> {
        let units = usize::try_from(capacity)
            .unwrap_or(usize::MAX)
            .div_ceil(UNIT)
            .clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Arc::new(Queue {
            state: Mutex::default(),
            arrived: Notify::new(),
            room: Arc::new(Semaphore::new(units)),
            units,
            capacity,
            held: Arc::default(),
            senders_waiting: AtomicUsize::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing here panics half-way through a change, so a poisoned lock is still sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that wait or are being sent.
    pub fn bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Bytes that it may hold.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// True once senders must wait, or are about to: less than a sixteenth is left.
    pub fn nearly_full(&self) -> bool {
        self.senders_waiting.load(Ordering::Relaxed) > 0 || self.room.available_permits() < self.units / 16
    }

    /// A parcel larger than the whole queue takes all of it rather than never getting in.
    fn needed(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT).clamp(1, self.units)).unwrap_or(u32::MAX)
    }

    fn hold(&self, room: OwnedSemaphorePermit, bytes: usize) -> Hold {
        self.held.fetch_add(bytes as u64, Ordering::Relaxed);
        Hold { _room: room, bytes: bytes as u64, held: Arc::clone(&self.held) }
    }

    /// Room for `bytes`, if there is some now.
    pub fn try_reserve(&self, bytes: usize) -> Result<Hold, NoRoom> {
        match Arc::clone(&self.room).try_acquire_many_owned(self.needed(bytes)) {
            Ok(room) => Ok(self.hold(room, bytes)),
            Err(tokio::sync::TryAcquireError::NoPermits) => Err(NoRoom::Full),
            Err(tokio::sync::TryAcquireError::Closed) => Err(NoRoom::Closed),
        }
    }

    /// Room for `bytes`, in order of asking; an error only once closed.
    pub async fn reserve(&self, bytes: usize) -> Result<Hold, NoRoom> {
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.senders_waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.senders_waiting);
        let room = Arc::clone(&self.room).acquire_many_owned(self.needed(bytes)).await;
        room.map(|room| self.hold(room, bytes)).map_err(|_| NoRoom::Closed)
    }

    /// Puts in a parcel that has its room; gives it back once closed.
    pub fn put(&self, job: Job) -> Result<(), Job> {
        let mut state = self.lock();
        if state.closed {
            return Err(job);
        }
        let place = state.next;
        state.next += 1;
        state.bytes += job.parcel.size();
        state.lanes[slot(job.parcel.signal)].push_back((place, Instant::now(), job));
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Waits for what to send next: the oldest parcel and those of its signal that fit into `max`
    /// bytes with it. `None` once closed and empty.
    pub async fn take(self: &Arc<Self>, max: usize) -> Option<Load> {
        loop {
            // Created before looking, so that nothing put in between goes unnoticed.
            let arrived = self.arrived.notified();
            let ready_at = {
                let mut state = self.lock();
                match state.oldest() {
                    None if state.closed => return None,
                    None => None,
                    Some((lane, since)) => {
                        let now = Instant::now();
                        let ready_at = state.ready_at(since);
                        if state.active == 0 || state.closed || state.bytes >= GATHER || ready_at <= now {
                            state.began = Some(now);
                            return Some(self.load(&mut state, lane, max));
                        }
                        Some(ready_at)
                    }
                }
            };
            match ready_at {
                None => arrived.await,
                Some(at) => tokio::select! {
                    () = arrived => {}
                    () = tokio::time::sleep_until(at) => {}
                },
            }
        }
    }

    fn load(self: &Arc<Self>, state: &mut State, lane: usize, max: usize) -> Load {
        let mut jobs = Vec::new();
        let mut total = 0usize;
        while let Some((_, _, next)) = state.lanes[lane].front() {
            let size = next.parcel.size();
            if !jobs.is_empty() && total.saturating_add(size) > max {
                break;
            }
            total = total.saturating_add(size);
            jobs.extend(state.lanes[lane].pop_front().map(|(_, _, job)| job));
        }
        state.bytes = state.bytes.saturating_sub(total);
        state.active += 1;
        if state.lanes.iter().any(|lane| !lane.is_empty()) {
            self.arrived.notify_one();
        }
        let signal = [Signal::Traces, Signal::Logs, Signal::Metrics][lane];
        Load { signal, jobs, turn: Turn(Arc::clone(self)) }
    }

    /// No more comes in; what is there can still be taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.room.close();
        self.arrived.notify_waiters();
    }

    /// All that is left, for when there is no time to send it.
    pub fn purge(&self) -> Vec<Job> {
        let mut state = self.lock();
        state.bytes = 0;
        state.lanes.iter_mut().flat_map(std::mem::take).map(|(_, _, job)| job).collect()
    }
}

impl State {
    /// When a request begins whatever has gathered, the oldest of it having waited since then.
    fn ready_at(&self, since: Instant) -> Instant {
        let patient = since + PATIENCE;
        match self.began {
            Some(began) if self.active < LINES => patient.min(began + APART),
            _ => patient,
        }
    }

    /// The lane of the oldest parcel, and since when it waits.
    fn oldest(&self) -> Option<(usize, Instant)> {
        let fronts = self.lanes.iter().enumerate();
        let fronts = fronts.filter_map(|(lane, q)| q.front().map(|(place, since, _)| (*place, lane, *since)));
        fronts.min_by_key(|(place, _, _)| *place).map(|(_, lane, since)| (lane, since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Ledger, Outcome};
    use verdict_otlp::Piece;

    fn parcel(signal: Signal, size: usize) -> Parcel {
        let bytes = vec![0u8; size].into();
        Parcel { signal, pieces: vec![Piece { bytes, items: 1 }], trace: None }
    }

    fn push(queue: &Arc<Queue>, signal: Signal, size: usize) -> Result<(), NoRoom> {
        let hold = queue.try_reserve(size)?;
        let receipt = Receipt::new(1, Arc::new(Ledger::default()));
        queue.put(Job { parcel: parcel(signal, size), receipt, hold }).map_err(|job| {
            job.receipt.resolve(Outcome::Dropped);
            NoRoom::Closed
        })
    }

    fn settle(jobs: Vec<Job>) -> Vec<usize> {
        jobs.into_iter()
            .map(|job| {
                job.receipt.resolve(Outcome::Exported);
                job.parcel.size()
            })
            .collect()
    }

    #[tokio::test]
    async fn what_is_being_sent_still_occupies_its_room() {
        let queue = Queue::new(6400);
        push(&queue, Signal::Traces, 6400).unwrap();
        assert_eq!(push(&queue, Signal::Traces, 64), Err(NoRoom::Full));
        assert!(queue.nearly_full());
        let load = queue.take(usize::MAX).await.unwrap();
        assert_eq!(push(&queue, Signal::Traces, 64), Err(NoRoom::Full));
        assert_eq!(queue.bytes(), 6400);
        settle(load.jobs);
        assert_eq!(queue.bytes(), 0);
        push(&queue, Signal::Traces, 64).unwrap();
        settle(queue.purge());
    }

    #[tokio::test]
    async fn a_parcel_larger_than_the_queue_gets_in_alone() {
        let queue = Queue::new(640);
        push(&queue, Signal::Traces, 1 << 20).unwrap();
        assert_eq!(push(&queue, Signal::Traces, 1), Err(NoRoom::Full));
        settle(queue.purge());
    }

    #[tokio::test]
    async fn parcels_of_one_signal_join_up_to_the_size_and_the_oldest_goes_first() {
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
        let mut loads = Vec::new();
        while let Some(load) = queue.take(1000).await {
            loads.push((load.signal, settle(load.jobs)));
        }
        assert_eq!(
            loads,
            [(Signal::Logs, vec![100, 100]), (Signal::Traces, vec![400, 500]), (Signal::Traces, vec![200])]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn idle_sends_at_once_and_busy_gathers_but_not_for_long() {
        let queue = Queue::new(1 << 20);
        let start = Instant::now();
        push(&queue, Signal::Traces, 10).unwrap();
        let first = queue.take(1 << 20).await.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);

        push(&queue, Signal::Traces, 20).unwrap();
        push(&queue, Signal::Traces, 30).unwrap();
        let second = queue.take(1 << 20).await.unwrap();
        assert!(start.elapsed() >= PATIENCE && start.elapsed() < PATIENCE * 2);
        assert_eq!(settle(second.jobs), [20, 30]);

        push(&queue, Signal::Traces, GATHER).unwrap();
        let now = Instant::now();
        let third = queue.take(1 << 20).await.unwrap();
        assert_eq!(now.elapsed(), Duration::ZERO);
        settle(third.jobs);
        settle(first.jobs);
    }

    #[tokio::test(start_paused = true)]
    async fn one_slow_answer_holds_up_nothing() {
        let queue = Queue::new(1 << 20);
        let mut in_flight = Vec::new();
        for _ in 0..LINES {
            tokio::time::advance(APART).await;
            let now = Instant::now();
            push(&queue, Signal::Traces, 10).unwrap();
            in_flight.push(queue.take(1 << 20).await.unwrap());
            assert_eq!(now.elapsed(), Duration::ZERO);
        }
        tokio::time::advance(APART).await;
        let now = Instant::now();
        push(&queue, Signal::Traces, 10).unwrap();
        in_flight.push(queue.take(1 << 20).await.unwrap());
        assert!(now.elapsed() >= PATIENCE);
        in_flight.into_iter().for_each(|load| drop(settle(load.jobs)));
    }

    #[tokio::test]
    async fn closing_wakes_those_who_wait_on_either_side() {
        let queue = Queue::new(64);
        push(&queue, Signal::Traces, 64).unwrap();
        let sender = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.reserve(64).await.map(|_| ()) }
        });
        let load = queue.take(1).await.unwrap();
        let consumer = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.take(1).await.is_none() }
        });
        tokio::task::yield_now().await;
        queue.close();
        assert_eq!(sender.await.unwrap(), Err(NoRoom::Closed));
        assert!(consumer.await.unwrap());
        assert_eq!(push(&queue, Signal::Traces, 1), Err(NoRoom::Closed));
        settle(load.jobs);
    }
}
