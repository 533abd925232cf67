//! Which thread executes the writer, and how a command reaches it.
//!
//! In: commands, from any number of tasks. Out: steps of the writer, one at a time.
//!
//! A caller of [`WriterHandle::submit`] executes the step itself if it gets the lock: most writes copy
//! into the page cache, which takes less time than waking a thread. The journal thread executes what no
//! caller waits for and all maintenance, and all writes while the disk is slow: callers are async tasks
//! and must not block a worker thread.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use super::sync::mpsc::{self, Receiver, Sender};
use super::sync::thread::{self, JoinHandle, Thread};
use super::sync::{Instant, Mutex, TryLockError, hint};
use crate::record::{RetainReason, Seq};

/// Longest delay before releases are written when there is nothing else to write: without it, each
/// exported trace would cost a write of its own.
pub(super) const RELEASE_DELAY: Duration = Duration::from_millis(10);
/// After a write that took longer, the journal thread executes all writes, until one takes less than an
/// eighth of this.
const SLOW_WRITE: Duration = Duration::from_millis(4);
/// Steps that one call of `submit` executes for other callers before the journal thread takes over.
const MAX_STEPS: usize = 32;

/// What the writer, its callers and the journal thread share without the lock.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The last write or fsync failed.
    pub failing: AtomicBool,
    /// The size cap is reached.
    pub full: AtomicBool,
    /// Commands with a caller that waits, from before they are sent until a step receives them.
    urgent: AtomicUsize,
    /// The last write took longer than [`SLOW_WRITE`].
    slow: AtomicBool,
    /// The journal thread is about to park and must be unparked for a command that it has not seen.
    parked: AtomicBool,
    /// The [`WriterHandle`] was dropped: no more commands will be sent.
    handle_dropped: AtomicBool,
    /// Releases that no step has taken yet.
    released: Mutex<Vec<Vec<(Seq, RetainReason)>>>,
}

impl State {
    pub fn release(&self, releases: impl IntoIterator<Item = Vec<(Seq, RetainReason)>>) {
        self.released.lock().unwrap_or_else(PoisonError::into_inner).extend(releases);
    }

    pub fn take_released(&self) -> Vec<Vec<(Seq, RetainReason)>> {
        std::mem::take(&mut *self.released.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has_released(&self) -> bool {
        !self.released.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// A step received a command that was submitted.
    pub fn received(&self) {
        self.urgent.fetch_sub(1, Ordering::Relaxed);
    }

    /// Decides by the duration of a write whether callers execute the next one.
    pub fn wrote_in(&self, time: Duration) {
        let was = self.slow.load(Ordering::Relaxed);
        let is = time > if was { SLOW_WRITE / 8 } else { SLOW_WRITE };
        if is != was {
            self.slow.store(is, Ordering::Relaxed);
        }
    }

    /// Whether a submitted command waits. Called after the lock was released; the fence pairs with the
    /// one before `try_lock` in [`WriterHandle::submit`].
    fn is_urgent(&self) -> bool {
        fence(Ordering::SeqCst);
        self.urgent.load(Ordering::Relaxed) > 0
    }
}

/// What is executed under the lock. It owns the receiving end of the commands.
pub(super) trait WriterStep: Send {
    /// Receives commands, writes them and answers.
    fn step(&mut self);
    /// A step, and what only the journal thread does; true once a command to close was received.
    fn maintain(&mut self) -> bool;
    /// How often it has written.
    fn written(&self) -> u64;
    /// How long the journal thread may park while nothing is submitted.
    fn park_timeout(&self) -> Duration;
    /// Writes what is left and makes it durable.
    fn finish(&mut self);
}

/// `None` once it has ended or panicked: the commands still queued were dropped, which tells their
/// callers, and none can be sent any more.
type Slot = Option<Box<dyn WriterStep>>;

/// Runs `work` with the writer; `None` if there is none, or if it panicked, which ends it.
fn with_writer<T>(slot: &mut Slot, state: &State, work: impl FnOnce(&mut dyn WriterStep) -> T) -> Option<T> {
    let writer = slot.as_deref_mut()?;
    let done = catch_unwind(AssertUnwindSafe(|| work(writer))).ok();
    if done.is_none() {
        tracing::error!("the journal's writer panicked; it stores nothing more. This is a bug");
        state.failing.store(true, Ordering::Relaxed);
        *slot = None;
    }
    done
}

/// Sends commands to the writer and executes its steps.
pub(super) struct WriterHandle<C> {
    commands: Sender<C>,
    writer: Arc<Mutex<Slot>>,
    state: Arc<State>,
    thread: Thread,
}

impl<C> WriterHandle<C> {
    /// Starts the journal thread.
    ///
    /// # Errors
    /// The operating system cannot start a thread.
    pub fn open<W: WriterStep + 'static>(
        writer: impl FnOnce(Receiver<C>) -> W,
        state: &Arc<State>,
    ) -> io::Result<(WriterHandle<C>, JoinHandle<()>)> {
        let (commands, receiver) = mpsc::channel();
        let writer: Arc<Mutex<Slot>> = Arc::new(Mutex::new(Some(Box::new(writer(receiver)))));
        let (slot, shared) = (Arc::clone(&writer), Arc::clone(state));
        let thread = thread::Builder::new().name("journal".to_owned()).spawn(move || run(&slot, &shared))?;
        let handle =
            WriterHandle { commands, writer, state: Arc::clone(state), thread: thread.thread().clone() };
        Ok((handle, thread))
    }

    /// Sends a command whose caller waits, and executes steps until no such command is left. If another
    /// thread holds the lock, that thread executes it. False if the writer has ended.
    pub fn submit(&self, command: C) -> bool {
        // Before the send: a step that receives the command subtracts it again.
        self.state.urgent.fetch_add(1, Ordering::Relaxed);
        if self.commands.send(command).is_err() {
            return false;
        }
        let began = Instant::now();
        for _ in 0..MAX_STEPS {
            if self.state.slow.load(Ordering::Relaxed) || began.elapsed() > SLOW_WRITE {
                break;
            }
            // If `try_lock` fails, the holder calls `is_urgent` after it unlocks and sees the command.
            fence(Ordering::SeqCst);
            let mut slot = match self.writer.try_lock() {
                Ok(slot) => slot,
                Err(TryLockError::WouldBlock) => return true,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            };
            let lives = with_writer(&mut slot, &self.state, |writer| writer.step()).is_some();
            drop(slot);
            if !lives {
                return true;
            }
            if !self.state.is_urgent() {
                self.wake();
                return true;
            }
        }
        self.thread.unpark();
        true
    }

    /// Sends a command that no caller waits for. If the writer has ended, the next start does without it.
    pub fn enqueue(&self, command: C) {
        let _ = self.commands.send(command);
        // Pairs with the fence in `pass`: either that step receives the command, or `wake` sees `parked`.
        fence(Ordering::SeqCst);
        self.wake();
    }

    /// Unparks the journal thread if it is parked or about to park.
    pub fn wake(&self) {
        if self.state.parked.load(Ordering::Relaxed) && self.state.parked.swap(false, Ordering::Relaxed) {
            self.thread.unpark();
        }
    }

    /// Sends the command to close, which the journal thread executes. False if the writer has ended.
    pub fn close(&self, command: C) -> bool {
        self.state.urgent.fetch_add(1, Ordering::Relaxed);
        let sent = self.commands.send(command).is_ok();
        self.thread.unpark();
        sent
    }
}

impl<C> Drop for WriterHandle<C> {
    fn drop(&mut self) {
        self.state.handle_dropped.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// The journal thread: runs until the writer ends.
fn run(slot: &Mutex<Slot>, state: &State) {
    let mut seen = 0;
    loop {
        let passed = pass(&mut slot.lock().unwrap_or_else(PoisonError::into_inner), state, &mut seen);
        let Some(timeout) = passed else { return };
        // A caller whose `try_lock` failed during the pass left its command to this thread: without this
        // check the command would wait for the timeout.
        let idle = || !state.is_urgent() && !state.handle_dropped.load(Ordering::Relaxed);
        if timeout > RELEASE_DELAY && idle() && !state.has_released() {
            thread::park_timeout(timeout);
        }
        state.parked.store(false, Ordering::Relaxed);
        // Lets releases and acknowledgements gather.
        if idle() {
            thread::park_timeout(RELEASE_DELAY);
        } else {
            hint::spin_loop();
        }
    }
}

/// What the journal thread does under the lock; returns how long it may park, or `None` once the writer
/// has ended.
fn pass(slot: &mut Slot, state: &State, seen: &mut u64) -> Option<Duration> {
    let dropped = state.handle_dropped.load(Ordering::Relaxed);
    let close = with_writer(slot, state, |writer| writer.maintain())?;
    if close || dropped {
        with_writer(slot, state, |writer| writer.finish())?;
        *slot = None;
        return None;
    }
    let written = slot.as_ref()?.written();
    if std::mem::replace(seen, written) != written {
        return Some(RELEASE_DELAY);
    }
    state.parked.store(true, Ordering::Relaxed);
    // A command that was enqueued before `parked` was set has woken nobody: this step receives it.
    fence(Ordering::SeqCst);
    with_writer(slot, state, |writer| writer.step())?;
    Some(slot.as_ref()?.park_timeout())
}
