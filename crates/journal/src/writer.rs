//! What waits is drained, written with one write, and only then answered, or, where it is to be forced
//! to the disk first, left to `force`.
//!
//! In: [`Command`]s. Out: answers. What could not be written is refused, never half kept; that
//! claims are done is written with what comes next, or a moment later by itself, and once the disk takes
//! it again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::claims::Claims;
use super::config::Durability;
use super::disk::Disk;
use super::door::{GATHER, State};
use super::force::{self, Forced, Waiting, Written};
use super::log::Log;
use super::record::{Claim, Frame, Over, Record, Seq};
use verdict_otlp::trace::PriorVerdict;
use verdict_otlp::trace::TraceId;
use verdict_telemetry::{JournalMetrics, LogThrottle};

/// One write takes so many commands, or about so many bytes, at the most: enough to hide what a
/// write costs by itself, and short enough that those whom it answers bring more while the next one
/// runs. Were all that wait written at once, writer and senders would take turns at idling.
const COMMANDS: usize = 1024;
const BYTES: usize = 512 << 10;
/// How often a disk that refused is tried again.
const RETRY: Duration = Duration::from_millis(250);
/// How often space is given back when nothing is written.
const IDLE: Duration = Duration::from_secs(1);

/// What the writer is told.
pub(super) enum Command {
    /// A request, to be kept before it is acknowledged. Without an answer it was given up.
    Admit { frame: Frame, claims: Claims, room: OwnedSemaphorePermit, answer: oneshot::Sender<bool> },
    /// Verdicts, to be kept before they are exported; and what to remember of their traces.
    Seal { frames: Vec<Frame>, closed: Vec<(TraceId, PriorVerdict)>, answer: oneshot::Sender<bool> },
    /// An exporter has what a record gave it.
    Acked(Seq, String),
    /// Nobody wants this record, after all.
    GivenUp(Seq),
    /// Reads a record.
    Read(Seq, oneshot::Sender<Option<Record>>),
    /// Writes what waits, forces it to the disk, and ends.
    Close(oneshot::Sender<()>),
}

impl Command {
    /// Whether somebody waits for what comes of it.
    pub fn is_waited_for(&self) -> bool {
        !matches!(self, Command::Acked(..) | Command::GivenUp(_))
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
    pub cells: JournalMetrics,
    pub commands: Receiver<Command>,
    /// Somebody who waits for the end.
    pub closed: Option<oneshot::Sender<()>>,
    /// Claims that hold no more, which is not written yet.
    pub unwritten: Vec<Over>,
    pub synced: Instant,
    /// The disk takes what is written and does not force it.
    pub unforceable: bool,
    /// When space could not be given back.
    pub unclaimed: Option<Instant>,
    pub quiet: LogThrottle,
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
    pub fn start(cells: &JournalMetrics) -> io::Result<Forcing> {
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
    closed: Vec<(TraceId, PriorVerdict)>,
    acked: Vec<(Seq, String)>,
    given_up: Vec<Seq>,
    reads: Vec<(Seq, oneshot::Sender<Option<Record>>)>,
}

impl<D: Disk> Writer<D> {
    /// Takes in what waits, writes it, and answers.
    pub fn turn(&mut self) {
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
    pub fn look_after(&mut self) -> bool {
        self.turn();
        let due = match self.durability {
            // Where the interval is long, space may be wanted sooner.
            Durability::Interval => {
                let wanted = self.log.bytes() > self.total / 2 && self.log.waits_to_be_forced();
                wanted || self.synced.elapsed() >= self.interval
            }
            Durability::Sync => self.log.waits_to_be_forced(),
            Durability::None => false,
        };
        // Whether it forces again is seen by trying.
        if due || self.unforceable {
            self.synced = Instant::now();
            self.force(Vec::new());
        }
        self.reclaim();
        self.closed.is_some()
    }

    /// How long nothing need be looked after, where nobody brings anything.
    pub fn patience(&self) -> Duration {
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
        if command.is_waited_for() {
            self.state.taken();
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
        self.state.took(began.elapsed());
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
        if failing && !self.unforceable {
            tracing::info!("the journal can be written again");
            self.state.failing.store(false, Ordering::Relaxed);
        }
        if !waiting.is_empty() {
            self.force(waiting);
        }
    }

    /// Has what was written forced to the disk, and those who wait told then.
    fn force(&mut self, waiting: Vec<Waiting>) {
        let failed = match self.log.give_out() {
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
                Ok(upto) => {
                    self.unforceable = false;
                    self.log.forced(upto);
                }
                Err(error) => self.unforceable(&error),
            }
        }
    }

    fn unforceable(&mut self, error: &io::Error) {
        self.log.abandon();
        self.unforceable = true;
        self.failed("sync", error);
    }

    /// Records that nobody takes for kept: whoever asked will send them again.
    fn give_up(&mut self, records: Vec<Seq>) {
        if records.is_empty() {
            return;
        }
        self.state.release(records.into_iter().map(|seq| self.log.claims(seq).collect()));
    }

    /// Writes what is left to write, and forces all of it.
    pub fn end(mut self) {
        self.turn();
        self.forcing.end();
        self.learn();
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
                if let Some(held_back) = self.quiet.allow("reclaim") {
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
