//! What waits is drained, written with one write, and only then answered, or, where it is to be forced
//! to the disk first, left to `force`.
//!
//! In: [`Command`]s. Out: answers. What could not be written is refused, never half kept; that
//! claims are done is written with what comes next, or a moment later by itself, and once the disk takes
//! it again.
//!
//! Whoever brings something writes it, and what others have brought meanwhile: as a rule that is a copy
//! into the operating system's memory, and takes less than to wake a thread and be woken by it. A thread
//! of its own sees to all that nobody waits for, and does the writing where the disk is slow: senders
//! are tasks, and must not hold up others.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::claims::Claims;
use super::config::Durability;
use super::disk::Disk;
use super::force::{self, Forced, Waiting, Written};
use super::log::Log;
use super::record::{Claim, Frame, Over, Record, Seq};
use crate::assemble::Remembered;
use crate::telemetry::{Journaling, Quiet};
use crate::trace::TraceId;

/// One write takes so many commands, or about so many bytes, at the most: enough to hide what a
/// write costs by itself, and short enough that those whom it answers bring more while the next one
/// runs. Were all that wait written at once, writer and senders would take turns at idling.
const COMMANDS: usize = 1024;
const BYTES: usize = 512 << 10;
/// How often a disk that refused is tried again.
const RETRY: Duration = Duration::from_millis(250);
/// How often space is given back when nothing is written.
const IDLE: Duration = Duration::from_secs(1);
/// How long it may take until it is written that claims hold no more, where nothing else is to be
/// written: each trace that has gone out would be a write of its own.
const GATHER: Duration = Duration::from_millis(10);
/// A write that takes longer is no matter for a task; from then on the thread writes, until it takes
/// an eighth of that.
const SLOW: Duration = Duration::from_millis(4);
/// So many writes one task does for others before the thread goes on with it.
const TURNS: usize = 8;

/// What the writer is told.
pub(super) enum Command {
    /// A request, to be kept before it is acknowledged. Without an answer it was given up.
    Admit { frame: Frame, claims: Claims, room: OwnedSemaphorePermit, answer: oneshot::Sender<bool> },
    /// Verdicts, to be kept before they are exported; and what to remember of their traces.
    Seal { frames: Vec<Frame>, closed: Vec<(TraceId, Remembered)>, answer: oneshot::Sender<bool> },
    /// An exporter has what a record gave it.
    Acked(Seq, String),
    /// Nobody wants this record, after all.
    GivenUp(Seq),
    /// Reads a record.
    Read(Seq, oneshot::Sender<Option<Record>>),
    /// Writes what waits, forces it to the disk, and ends.
    Close(oneshot::Sender<()>),
}

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

    fn take_released(&self) -> Vec<Vec<(Seq, Claim)>> {
        std::mem::take(&mut *self.released.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has_released(&self) -> bool {
        !self.released.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
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
        let work = move || run(&its, &shared);
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
        for _ in 0..TURNS {
            if self.state.slow.load(Ordering::Relaxed) {
                break;
            }
            match self.writer.try_lock() {
                Ok(mut writer) => writer.turn(),
                Err(TryLockError::WouldBlock) => return true,
                Err(TryLockError::Poisoned(broken)) => broken.into_inner().break_off(),
            }
            if self.state.urgent.load(Ordering::SeqCst) == 0 {
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
            let moved = std::mem::replace(&mut seen, writer.log.written()) != writer.log.written();
            state.dozing.store(!moved, Ordering::SeqCst);
            if moved { GATHER } else { writer.patience() }
        };
        // Whoever found the writer taken has left that to whom he found there.
        let idle = || state.urgent.load(Ordering::SeqCst) == 0 && !state.gone.load(Ordering::SeqCst);
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

pub(super) struct Writer<D> {
    pub log: Log<D>,
    pub durability: Durability,
    pub interval: Duration,
    /// Requests are refused from here on; a quarter more is for the verdicts on what is held.
    pub admit_below: u64,
    /// Nothing but what gives space back is written from here on.
    pub total: u64,
    pub state: Arc<State>,
    pub cells: Journaling,
    pub commands: Receiver<Command>,
    /// Somebody who waits for the end.
    pub closed: Option<oneshot::Sender<()>>,
    /// Claims that hold no more, which is not written yet.
    pub unwritten: Vec<Over>,
    pub synced: Instant,
    /// When space could not be given back.
    pub unclaimed: Option<Instant>,
    pub quiet: Quiet,
    pub forcing: Forcing,
}

/// The thread that forces to the disk, as the writer has it.
pub(super) struct Forcing {
    written: Option<Sender<Written>>,
    forced: Receiver<Forced>,
    thread: Option<JoinHandle<()>>,
}

impl Forcing {
    /// Starts it.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn start(cells: &Journaling) -> io::Result<Forcing> {
        let (written, inbox) = mpsc::channel();
        let (outbox, forced) = mpsc::channel();
        let took = cells.sync_duration.clone();
        let work = move || force::run(&inbox, &outbox, &took);
        let thread = std::thread::Builder::new().name("journal-force".to_owned()).spawn(work)?;
        Ok(Forcing { written: Some(written), forced, thread: Some(thread) })
    }

    /// Waits until all that it was given is forced.
    fn end(&mut self) {
        self.written = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("forcing the journal to the disk ended abnormally; this is a bug");
        }
    }
}

/// What is to be done at once.
#[derive(Default)]
struct Todo {
    /// Bytes that the log had before it.
    held: u64,
    /// How many commands it is, and bytes to be written.
    commands: usize,
    bytes: usize,
    frames: Vec<Frame>,
    claims: Vec<Claims>,
    waiting: Vec<Waiting>,
    closed: Vec<(TraceId, Remembered)>,
    acked: Vec<(Seq, String)>,
    given_up: Vec<Seq>,
    reads: Vec<(Seq, oneshot::Sender<Option<Record>>)>,
}

impl<D: Disk> Writer<D> {
    /// Takes in what waits, writes it, and answers.
    fn turn(&mut self) {
        let mut todo = Todo { held: self.log.bytes(), ..Todo::default() };
        while todo.commands < COMMANDS && todo.bytes < BYTES {
            let Ok(command) = self.commands.try_recv() else { break };
            self.gather(command, &mut todo);
        }
        let (reads, given_up) = (std::mem::take(&mut todo.reads), std::mem::take(&mut todo.given_up));
        self.learn();
        self.write(todo);
        // They may have been among what was written just now.
        self.give_up(given_up);
        for (seq, answer) in reads {
            let read = self.log.read(seq);
            let failed = |error: &io::Error| tracing::error!(seq, %error, "the journal cannot be read");
            let _ = answer.send(read.inspect_err(failed).unwrap_or_default());
        }
    }

    /// What the thread does each time; true if it was told to close.
    fn look_after(&mut self) -> bool {
        self.turn();
        let due = match self.durability {
            Durability::Interval => self.synced.elapsed() >= self.interval,
            Durability::Sync => self.log.waits_to_be_forced(),
            Durability::None => false,
        };
        if due {
            self.synced = Instant::now();
            self.force(Vec::new());
        }
        self.reclaim();
        self.closed.is_some()
    }

    /// How long nothing need be looked after, where nobody brings anything.
    fn patience(&self) -> Duration {
        let is = |what: &AtomicBool| what.load(Ordering::Relaxed);
        if is(&self.state.failing) {
            return RETRY;
        }
        match self.log.is_dirty() && self.durability == Durability::Interval {
            _ if is(&self.state.full) => GATHER,
            true => self.interval.saturating_sub(self.synced.elapsed()).min(IDLE),
            false => IDLE,
        }
    }

    /// Takes in one command, as far as there is room for it.
    fn gather(&mut self, command: Command, todo: &mut Todo) {
        todo.commands += 1;
        if !matches!(command, Command::Acked(..) | Command::GivenUp(_)) {
            self.state.urgent.fetch_sub(1, Ordering::SeqCst);
        }
        let fits = |size: usize, most: u64| todo.held + (todo.bytes + size) as u64 <= most;
        match command {
            Command::Admit { answer, .. } if answer.is_closed() => {}
            Command::Admit { frame, answer, .. } if !fits(frame.size(), self.admit_below) => {
                self.state.full.store(true, Ordering::Relaxed);
                self.cells.refused.inc();
                let _ = answer.send(false);
            }
            Command::Admit { frame, claims, room, answer } => {
                todo.bytes += frame.size();
                todo.waiting.push(Waiting { answer, _room: Some(room) });
                todo.frames.push(frame);
                todo.claims.push(claims);
            }
            Command::Seal { frames, closed, answer } => {
                let size = frames.iter().map(Frame::size).sum();
                if !fits(size, self.total) {
                    let _ = answer.send(false);
                    return;
                }
                todo.bytes += size;
                todo.waiting.push(Waiting { answer, _room: None });
                todo.claims.extend(frames.iter().map(|_| Claims::new(vec![Claim::Verdict])));
                todo.frames.extend(frames);
                todo.closed.extend(closed);
            }
            Command::Acked(seq, exporter) => todo.acked.push((seq, exporter)),
            Command::GivenUp(seq) => todo.given_up.push(seq),
            Command::Read(seq, answer) => todo.reads.push((seq, answer)),
            Command::Close(done) => self.closed = Some(done),
        }
    }

    fn write(&mut self, todo: Todo) {
        let Todo { frames, claims, waiting, closed, mut acked, .. } = todo;
        // Space is given back by what is known, whether or not that can be written.
        for claims in self.state.take_released() {
            for done in claims.chunk_by(|(a, _), (b, _)| a == b) {
                self.log.done(done, &mut self.unwritten);
            }
        }
        // Verdicts and requests that are done with by now need no word, nor do acknowledgements.
        acked.retain(|(seq, _)| self.log.holds(*seq));
        let failing = self.state.failing.load(Ordering::Relaxed);
        let mut tail: Vec<Frame> = acked.iter().map(|(seq, exporter)| Frame::acked(*seq, exporter)).collect();
        if !self.unwritten.is_empty() || (failing && frames.is_empty()) {
            // With nothing to write, an empty record tells whether the disk takes any.
            tail.push(Frame::done(&self.unwritten));
        }
        if frames.is_empty() && tail.is_empty() {
            return;
        }
        let size: usize = frames.iter().chain(&tail).map(Frame::size).sum();
        let began = Instant::now();
        let appended = self.log.append(frames.iter().chain(&tail));
        self.pace(began.elapsed());
        let places = match appended {
            Ok(places) => places,
            Err(error) => {
                self.failed("write", &error);
                force::answer(waiting, false);
                return;
            }
        };
        // Nobody waits for the books to be kept.
        let waiting = match self.durability {
            Durability::Sync => waiting,
            Durability::Interval | Durability::None => {
                force::answer(waiting, true);
                Vec::new()
            }
        };
        self.cells.written.inc_by(size as u64);
        self.unwritten.clear();
        acked.iter().for_each(|(seq, exporter)| self.log.acked(*seq, exporter));
        closed.into_iter().for_each(|(trace, verdict)| self.log.remember(trace, verdict));
        for ((frame, place), claims) in frames.iter().zip(places).zip(claims) {
            self.log.keep(frame.seq, place, frame.size() as u64, claims);
        }
        if failing {
            tracing::info!("the journal can be written again");
            self.state.failing.store(false, Ordering::Relaxed);
        }
        if !waiting.is_empty() {
            self.force(waiting);
        }
    }

    /// Has what was written forced to the disk, and those who wait told then.
    fn force(&mut self, waiting: Vec<Waiting>) {
        let failed = match self.log.unforced() {
            Ok((files, _)) if files.is_empty() => return force::answer(waiting, true),
            Ok((files, upto)) => match &self.forcing.written {
                // Where it is gone, its answers are gone too, which is an answer.
                Some(written) => return drop(written.send(Written { files, waiting, upto })),
                None => io::ErrorKind::BrokenPipe.into(),
            },
            Err(error) => error,
        };
        force::answer(waiting, false);
        self.unforceable(&failed);
    }

    /// Takes note of what was forced, and of what could not be.
    fn learn(&mut self) {
        while let Ok(forced) = self.forcing.forced.try_recv() {
            match forced {
                Ok(upto) => self.log.forced(upto),
                Err(error) => self.unforceable(&error),
            }
        }
    }

    fn unforceable(&mut self, error: &io::Error) {
        self.log.abandon();
        self.failed("sync", error);
    }

    /// Records that nobody takes for kept: whoever asked will send them again.
    fn give_up(&mut self, records: Vec<Seq>) {
        if records.is_empty() {
            return;
        }
        self.state.release(records.into_iter().map(|seq| self.log.claims(seq).collect()));
    }

    /// Who writes next, after a write that took so long.
    fn pace(&self, took: Duration) {
        let was = self.state.slow.load(Ordering::Relaxed);
        let is = took > if was { SLOW / 8 } else { SLOW };
        if is != was {
            self.state.slow.store(is, Ordering::Relaxed);
        }
    }

    /// Writes what is left to write, and forces all of it.
    fn end(mut self) {
        self.forcing.end();
        self.turn();
        if let Err(error) = self.log.close() {
            self.failed("sync", &error);
        }
        if let Some(closed) = self.closed.take() {
            let _ = closed.send(());
        }
    }

    fn failed(&mut self, what: &'static str, error: &io::Error) {
        self.cells.errors.inc();
        if !self.state.failing.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, what, "the journal cannot be written; requests are refused until it can");
        }
    }

    /// Gives space back. Where that cannot be done, requests are taken all the same for as long as
    /// they can be written.
    fn reclaim(&mut self) {
        let failing = self.state.failing.load(Ordering::Relaxed);
        if self.unclaimed.is_none_or(|since| since.elapsed() >= RETRY) {
            let reclaimed = self.log.reclaim(failing);
            self.unclaimed = reclaimed.is_err().then(Instant::now);
            if let Err(error) = reclaimed {
                self.cells.errors.inc();
                if let Some(held_back) = self.quiet.speak("reclaim") {
                    tracing::error!(%error, held_back, "the journal cannot give space back");
                }
            }
        }
        let bytes = self.log.bytes();
        // Some way below the cap, so that it does not flap with every request.
        if bytes < self.admit_below / 8 * 7 {
            self.state.full.store(false, Ordering::Relaxed);
        }
        let gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.cells.bytes.set(gauge(bytes));
        self.cells.live_bytes.set(gauge(self.log.live()));
        self.cells.segments.set(gauge(self.log.segments() as u64));
    }
}
