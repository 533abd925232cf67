//! Who writes, and when.
//!
//! In: [`Command`]s, from any number of tasks. Out: turns of the [`Writer`], one at a time.
//!
//! Whoever brings something writes it, and what others have brought meanwhile: as a rule that is a copy
//! into the operating system's memory, and takes less than to wake a thread and be woken by it. A thread
//! of its own sees to all that nobody waits for, and does the writing where the disk is slow: senders
//! are tasks, and must not hold up others.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::disk::Disk;
use super::record::{Claim, Seq};
use super::writer::{Command, Writer};

/// How long it may take until it is written that claims hold no more, where nothing else is to be
/// written: each trace that has gone out would be a write of its own.
pub(super) const GATHER: Duration = Duration::from_millis(10);
/// A write that takes longer is no matter for a task; from then on the thread writes, until it takes
/// an eighth of that.
const SLOW: Duration = Duration::from_millis(4);
/// So many writes one task does for others, or for as long as [`SLOW`], before the thread goes on with it.
const TURNS: usize = 32;

/// What the writer shares with others.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The last write failed.
    pub failing: AtomicBool,
    /// The size cap is reached.
    pub full: AtomicBool,
    /// Commands that somebody waits for and nobody has taken.
    urgent: AtomicUsize,
    /// The last write took too long for a task.
    slow: AtomicBool,
    /// The thread looks again only when it is told to.
    dozing: AtomicBool,
    /// Nobody is left who brings anything.
    gone: AtomicBool,
    /// Claims that hold no more, which the log is still to be told of.
    released: Mutex<Vec<Vec<(Seq, Claim)>>>,
}

impl State {
    /// Adds claims that hold no more.
    pub fn release(&self, claims: impl IntoIterator<Item = Vec<(Seq, Claim)>>) {
        self.released.lock().unwrap_or_else(PoisonError::into_inner).extend(claims);
    }

    pub fn take_released(&self) -> Vec<Vec<(Seq, Claim)>> {
        std::mem::take(&mut *self.released.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has_released(&self) -> bool {
        !self.released.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// A command that somebody waits for has been taken.
    pub fn taken(&self) {
        self.urgent.fetch_sub(1, Ordering::SeqCst);
    }

    /// A write took so long, by which it is told who does the next one.
    pub fn took(&self, time: Duration) {
        let was = self.slow.load(Ordering::Relaxed);
        let is = time > if was { SLOW / 8 } else { SLOW };
        if is != was {
            self.slow.store(is, Ordering::Relaxed);
        }
    }

    fn is_urgent(&self) -> bool {
        fence(Ordering::SeqCst);
        self.urgent.load(Ordering::SeqCst) > 0
    }
}

/// One end of the way to the writer.
pub(super) struct Door {
    commands: Sender<Command>,
    writer: Arc<Mutex<dyn Turn>>,
    state: Arc<State>,
    thread: Thread,
}

/// A writer on whatever disk, until it has ended.
trait Turn: Send {
    /// Takes in what waits, writes it, and answers.
    fn turn(&mut self);
    /// It has panicked: nothing more is taken, and whoever waits is told so.
    fn break_off(&mut self);
}

impl<D: Disk> Turn for Option<Writer<D>> {
    fn turn(&mut self) {
        if let Some(writer) = self {
            writer.turn();
        }
    }

    fn break_off(&mut self) {
        // Those who wait go with the channel that it has.
        if let Some(writer) = self.take() {
            writer.state.failing.store(true, Ordering::Relaxed);
        }
    }
}

impl Door {
    /// Opens it, and starts the thread.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn open<D: Disk>(
        writer: impl FnOnce(Receiver<Command>) -> Writer<D>,
        state: &Arc<State>,
    ) -> io::Result<(Door, JoinHandle<()>)> {
        let (commands, inbox) = mpsc::channel();
        let writer = Arc::new(Mutex::new(Some(writer(inbox))));
        let (its, shared) = (Arc::clone(&writer), Arc::clone(state));
        let work = move || {
            if catch_unwind(AssertUnwindSafe(|| run(&its, &shared))).is_err() {
                tracing::error!("the journal's thread panicked; nothing more is kept. This is a bug");
                its.lock().unwrap_or_else(PoisonError::into_inner).break_off();
            }
        };
        let thread = std::thread::Builder::new().name("journal".to_owned()).spawn(work)?;
        let door = Door { commands, writer, state: Arc::clone(state), thread: thread.thread().clone() };
        Ok((door, thread))
    }

    /// Brings what somebody waits for, and writes it, unless somebody is writing already: he sees it
    /// when he is done. False if nobody takes it any more.
    pub fn bring(&self, command: Command) -> bool {
        // Before it is tried to be the one who writes: whoever is looks at it after that.
        self.state.urgent.fetch_add(1, Ordering::SeqCst);
        if self.commands.send(command).is_err() {
            return false;
        }
        let began = Instant::now();
        for _ in 0..TURNS {
            if self.state.slow.load(Ordering::Relaxed) || began.elapsed() > SLOW {
                break;
            }
            // That it is urgent is seen by whoever has the lock, if we do not get it.
            fence(Ordering::SeqCst);
            match self.writer.try_lock() {
                Ok(mut writer) => writer.turn(),
                Err(TryLockError::WouldBlock) => return true,
                Err(TryLockError::Poisoned(broken)) => broken.into_inner().break_off(),
            }
            if !self.state.is_urgent() {
                self.nudge();
                return true;
            }
        }
        self.thread.unpark();
        true
    }

    /// Leaves what nobody waits for.
    pub fn leave(&self, command: Command) {
        // A writer that is gone has written what it could; the next start finds the rest.
        let _ = self.commands.send(command);
        self.nudge();
    }

    /// Has the thread look after something that nobody waits for.
    pub fn nudge(&self) {
        if self.state.dozing.load(Ordering::SeqCst) && self.state.dozing.swap(false, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }

    /// Has the thread do it.
    pub fn close(&self, command: Command) -> bool {
        self.state.urgent.fetch_add(1, Ordering::SeqCst);
        let sent = self.commands.send(command).is_ok();
        self.thread.unpark();
        sent
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.state.gone.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// What the thread does, until told to close, or until nobody is left who could.
fn run<D: Disk>(shared: &Mutex<Option<Writer<D>>>, state: &State) {
    let mut seen = 0;
    loop {
        let patience = {
            let mut guard = match shared.lock() {
                Ok(guard) => guard,
                Err(broken) => return broken.into_inner().break_off(),
            };
            let gone = state.gone.load(Ordering::SeqCst);
            let Some(writer) = guard.as_mut() else { return };
            if writer.look_after() || gone {
                if let Some(writer) = guard.take() {
                    writer.end();
                }
                return;
            }
            let written = writer.log.written();
            let moved = std::mem::replace(&mut seen, written) != written;
            if !moved {
                state.dozing.store(true, Ordering::SeqCst);
                // Whoever left something before that has not woken anybody.
                writer.turn();
            }
            if moved { GATHER } else { writer.patience() }
        };
        // Whoever found the writer taken has left that to whom he found there.
        let idle = || !state.is_urgent() && !state.gone.load(Ordering::SeqCst);
        if patience > GATHER && idle() && !state.has_released() {
            std::thread::park_timeout(patience);
        }
        state.dozing.store(false, Ordering::SeqCst);
        // What nobody waits for gathers for a moment.
        if idle() {
            std::thread::park_timeout(GATHER);
        }
    }
}
