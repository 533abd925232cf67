//! Which thread executes the writer, and how a command reaches it.
//!
//! In: commands, from any number of tasks. Out: steps of the writer, one at a time.
//!
//! A caller of [`WriterHandle::submit`] executes the step itself if it gets the lock: most writes copy
//! into the page cache, which takes less time than waking a thread. The journal thread executes all
//! maintenance and the commands that no caller waits for. While the disk is slow it executes all writes,
//! because callers are async tasks and must not block a worker thread.
//!
//! # Threads
//!
//! | thread | executes | may block on |
//! |---|---|---|
//! | caller, in `submit` | steps, if `try_lock` succeeds, for about 4 ms or 32 steps | reads and writes of the disk; no fsync, and never the lock |
//! | journal thread, `run` | `pass`: steps, maintenance (rewriting fsyncs here), `finish` | the lock, the disk, `park_timeout`, and in `finish` the sync thread |
//! | sync thread, `syncer::run` | fsyncs | its requests and the disk; it takes neither lock |
//!
//! Two locks: `writer`, and inside it `released`, which is locked only to push or take a `Vec`.
//!
//! # State
//!
//! | state | changed by | on | ordering |
//! |---|---|---|---|
//! | `writer` locked | the executing thread | a step or pass begins or ends | the lock's |
//! | `writer` is `Some` | holder of the lock | set to `None` for good after `finish`, or a panic in a step | the lock's |
//! | `urgent` = n | caller: + 1; holder of the lock: - 1 | before a command is sent; when a step receives it | relaxed, read after fence B |
//! | `parked` = true | journal thread, in a pass that wrote nothing | before the last step of the pass | relaxed, fence D follows |
//! | `parked` = false | journal thread after its park, or a waker, which then unparks | end of the park; enqueued command or release | relaxed |
//! | `released` | any thread: push; holder of the lock: take | a release; a step | the lock's |
//! | `slow` | holder of the lock | a write took longer or shorter than the limit | relaxed: only decides which thread executes |
//! | `failing` | holder of the lock | true: a write or fsync failed, or a step panicked; false: a write succeeded while no fsync fails | relaxed: only refuses requests |
//! | `full` | holder of the lock | true: a request exceeds the size cap; false: space was reclaimed | relaxed: only refuses requests |
//! | `panicked` = true | holder of the lock | a panic in a step, or the sync thread has ended; for good | relaxed: only reported |
//! | `handle_dropped` = true | drop of the handle | no command can follow | relaxed, ordered by `unpark` |
//!
//! The journal thread:
//!
//! | in | event | goes to |
//! |---|---|---|
//! | pass | something was written since the last pass | short park |
//! | pass | nothing was written: sets `parked`, executes one more step, unlocks | long park, or short park if there is a release, or pass if `urgent` or `handle_dropped` |
//! | long park | `unpark`, or the timeout (fsync interval, retry, reclaiming) | short park |
//! | short park | `unpark`, or 10 ms; skipped if `urgent` or `handle_dropped` | pass |
//! | pass | close was received or the handle dropped: `finish` | ended |
//! | pass | the writer is `None` | ended |
//!
//! # Why no wakeup is lost
//!
//! Fences A to D are `fence(SeqCst)`, for which there is one total order. If the fence of one thread comes
//! first, its writes before the fence are visible to the other thread after that thread's fence.
//!
//! - A submitted command: the caller adds to `urgent`, sends, passes A and fails in `try_lock` because a
//!   thread holds the lock. That thread unlocks, passes B and reads `urgent`. If B came first, `try_lock`
//!   would have seen the unlock. So A comes first, and the holder sees the command unless it has received it.
//!   A caller then executes another step or unparks the journal thread; the journal thread does not park.
//! - An enqueued command: the sender sends, passes C and reads `parked`. The journal thread sets `parked`,
//!   passes D and receives. If C comes first the thread receives the command. Otherwise the sender reads
//!   `parked` as true and unparks, or as false since a waker or the end of the park reset it; the thread
//!   then makes another pass, to which the same applies.
//! - A release: the caller locks `released` to push, a step locks it to take. If the caller locks it first, the
//!   step takes the release. If the step locks it first, the caller reads `parked` as set before that step.
//! - `close`, `drop` and a caller that stops executing always unpark. The token of `unpark` persists until the
//!   next park, and a pass follows every park.
//! - A panic in a step drops the writer under the lock, and with it the receiver, the commands in it and the
//!   senders of their replies: no caller waits indefinitely, and `submit` returns false from then on.
//!
//! `tests/handover` checks this with loom. It fails without any one of the fences, the last step of a pass, the
//! checks before the long park, or the `unpark` calls. It covers this file alone, with a model in place of the
//! writer. The sync thread needs none: it shares only channels with the writer, and that it reports a result before
//! it replies is tested on real threads (`tests/syncing`); nor do the counters of `log`, plain fields that only the
//! holder of the lock accesses, which debug assertions and the tests of the log check.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use super::sync::mpsc::{self, Receiver, Sender};
use super::sync::thread::{self, JoinHandle, Thread};
use super::sync::{Instant, Mutex, TryLockError, hint};
use crate::record::{RetainReason, Seq};

/// Maximum delay before releases are written if there is nothing else to write. Without it, each exported trace
/// would need its own write.
pub(crate) const RELEASE_DELAY: Duration = Duration::from_millis(10);
/// After a write that took longer than this, the journal thread executes all writes, until one takes less than an
/// eighth of this.
const SLOW_WRITE: Duration = Duration::from_millis(4);
/// Steps that one call of `submit` executes for other callers before the journal thread takes over.
const MAX_STEPS: usize = 32;

/// The state that the writer, its callers and the journal thread share without the lock.
#[derive(Debug, Default)]
pub(crate) struct HandoverState {
    /// The last write or fsync failed.
    pub failing: AtomicBool,
    /// The size cap is reached.
    pub full: AtomicBool,
    /// The writer or the sync thread panicked.
    pub panicked: AtomicBool,
    /// Commands with a caller that waits, from before they are sent until a step receives them.
    urgent: AtomicUsize,
    /// The last write took longer than [`SLOW_WRITE`].
    slow: AtomicBool,
    /// The journal thread is about to park and must be unparked for a command that it has not received.
    parked: AtomicBool,
    /// The [`WriterHandle`] was dropped: no more commands will be sent.
    handle_dropped: AtomicBool,
    /// Releases that no step has taken yet.
    released: Mutex<Vec<Vec<(Seq, RetainReason)>>>,
}

impl HandoverState {
    pub(crate) fn release(&self, releases: impl IntoIterator<Item = Vec<(Seq, RetainReason)>>) {
        self.released.lock().unwrap_or_else(PoisonError::into_inner).extend(releases);
    }

    pub(crate) fn take_released(&self) -> Vec<Vec<(Seq, RetainReason)>> {
        std::mem::take(&mut *self.released.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has_released(&self) -> bool {
        !self.released.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Notes that a step received a submitted command.
    pub(crate) fn received(&self) {
        self.urgent.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes the duration of a write, which decides whether callers execute the next one.
    pub(crate) fn wrote_in(&self, time: Duration) {
        let was_slow = self.slow.load(Ordering::Relaxed);
        let is_slow = time > if was_slow { SLOW_WRITE / 8 } else { SLOW_WRITE };
        if is_slow != was_slow {
            self.slow.store(is_slow, Ordering::Relaxed);
        }
    }

    /// Whether a submitted command waits. Called after the lock was released.
    fn is_urgent(&self) -> bool {
        // B.
        fence(Ordering::SeqCst);
        self.urgent.load(Ordering::Relaxed) > 0
    }
}

/// The state of the work that is executed under the lock. It owns the receiving end of the commands.
pub(crate) trait WriterStep: Send {
    /// Receives commands, writes them and answers.
    fn step(&mut self);
    /// A step and maintenance, on the journal thread only; true once a command to close was received.
    fn maintain(&mut self) -> bool;
    /// The number of writes so far.
    fn written(&self) -> u64;
    /// The maximum time for which the journal thread may park while nothing is submitted.
    fn park_timeout(&self) -> Duration;
    /// Writes and fsyncs all remaining commands and releases.
    fn finish(&mut self);
}

/// The writer; `None` once it has ended or panicked. The queued commands were then dropped, which notifies their
/// callers, and no command can be sent any more.
type WriterSlot = Option<Box<dyn WriterStep>>;

/// Runs `work` with the writer. `None` if the writer has ended, or if `work` panicked, which ends the writer.
fn with_writer<T>(
    slot: &mut WriterSlot,
    state: &HandoverState,
    work: impl FnOnce(&mut dyn WriterStep) -> T,
) -> Option<T> {
    let writer = slot.as_deref_mut()?;
    let result = catch_unwind(AssertUnwindSafe(|| work(writer))).ok();
    if result.is_none() {
        tracing::error!("the journal's writer panicked; it stores nothing more. This is a bug");
        state.failing.store(true, Ordering::Relaxed);
        state.panicked.store(true, Ordering::Relaxed);
        *slot = None;
    }
    result
}

/// Sends commands to the writer and executes its steps.
pub(crate) struct WriterHandle<C> {
    commands: Sender<C>,
    writer: Arc<Mutex<WriterSlot>>,
    state: Arc<HandoverState>,
    thread: Thread,
}

impl<C> WriterHandle<C> {
    /// Starts the journal thread.
    ///
    /// # Errors
    /// The operating system cannot start a thread.
    pub(crate) fn open<W: WriterStep + 'static>(
        writer: impl FnOnce(Receiver<C>) -> W,
        state: &Arc<HandoverState>,
    ) -> io::Result<(WriterHandle<C>, JoinHandle<()>)> {
        let (commands, receiver) = mpsc::channel();
        let writer: Arc<Mutex<WriterSlot>> = Arc::new(Mutex::new(Some(Box::new(writer(receiver)))));
        let (slot, shared) = (Arc::clone(&writer), Arc::clone(state));
        let thread = thread::Builder::new().name("journal".to_owned()).spawn(move || run(&slot, &shared))?;
        let handle =
            WriterHandle { commands, writer, state: Arc::clone(state), thread: thread.thread().clone() };
        Ok((handle, thread))
    }

    /// Sends a command whose caller waits, and executes steps until no such command is left. If another
    /// thread holds the lock, that thread executes it. False if the writer has ended.
    pub(crate) fn submit(&self, command: C) -> bool {
        // Before the send: a step that receives the command subtracts it again.
        self.state.urgent.fetch_add(1, Ordering::Relaxed);
        if self.commands.send(command).is_err() {
            return false;
        }
        let started_at = Instant::now();
        for _ in 0..MAX_STEPS {
            if self.state.slow.load(Ordering::Relaxed) || started_at.elapsed() > SLOW_WRITE {
                break;
            }
            // A: if `try_lock` fails, the holder calls `is_urgent` after it unlocks and sees the command.
            fence(Ordering::SeqCst);
            let mut slot = match self.writer.try_lock() {
                Ok(slot) => slot,
                Err(TryLockError::WouldBlock) => return true,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            };
            let is_running = with_writer(&mut slot, &self.state, |writer| writer.step()).is_some();
            drop(slot);
            if !is_running {
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

    /// Sends a command that no caller waits for. It is discarded if the writer has ended.
    pub(crate) fn enqueue(&self, command: C) {
        let _ = self.commands.send(command);
        // C: either the last step of a pass receives the command, or `wake` sees `parked`.
        fence(Ordering::SeqCst);
        self.wake();
    }

    /// Unparks the journal thread if it is parked or about to park.
    pub(crate) fn wake(&self) {
        if self.state.parked.load(Ordering::Relaxed) && self.state.parked.swap(false, Ordering::Relaxed) {
            self.thread.unpark();
        }
    }

    /// Sends the command to close, which the journal thread executes. False if the writer has ended.
    pub(crate) fn close(&self, command: C) -> bool {
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

/// The loop of the journal thread, which runs until the writer ends.
fn run(slot: &Mutex<WriterSlot>, state: &HandoverState) {
    let mut last_written = 0;
    loop {
        let passed = pass(&mut slot.lock().unwrap_or_else(PoisonError::into_inner), state, &mut last_written);
        let Some(timeout) = passed else { return };
        // A caller whose `try_lock` failed during the pass left its command to this thread: without this
        // check the command would wait for the timeout.
        let idle = || !state.is_urgent() && !state.handle_dropped.load(Ordering::Relaxed);
        if timeout > RELEASE_DELAY && idle() && !state.has_released() {
            thread::park_timeout(timeout);
        }
        state.parked.store(false, Ordering::Relaxed);
        // Releases and acknowledgements that arrive meanwhile are written together.
        if idle() {
            thread::park_timeout(RELEASE_DELAY);
        } else {
            hint::spin_loop();
        }
    }
}

/// One pass of the journal thread under the lock. Returns the maximum time for which the thread may park, or `None`
/// once the writer has ended. `last_written` is the number of writes at the previous pass.
fn pass(slot: &mut WriterSlot, state: &HandoverState, last_written: &mut u64) -> Option<Duration> {
    let dropped = state.handle_dropped.load(Ordering::Relaxed);
    let close = with_writer(slot, state, |writer| writer.maintain())?;
    if close || dropped {
        with_writer(slot, state, |writer| writer.finish())?;
        *slot = None;
        return None;
    }
    let written = slot.as_ref()?.written();
    if std::mem::replace(last_written, written) != written {
        return Some(RELEASE_DELAY);
    }
    state.parked.store(true, Ordering::Relaxed);
    // D: a command that was enqueued before `parked` was set unparked no thread; this step receives it.
    fence(Ordering::SeqCst);
    with_writer(slot, state, |writer| writer.step())?;
    Some(slot.as_ref()?.park_timeout())
}
