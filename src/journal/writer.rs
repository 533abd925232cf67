//! The one thread that writes: it drains what waits, writes it with one write, forces it to the
//! disk once where that is asked for, and only then answers.
//!
//! In: [`Command`]s. Out: answers. What could not be written is refused, never half kept; that
//! claims are done is known at once and written as soon as the disk takes it again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::config::Durability;
use super::disk::Disk;
use super::log::Log;
use super::record::{Claim, Frame, Record, Seq};
use crate::telemetry::Journaling;

/// One write takes so many commands, or bytes, at the most: enough to hide what a write costs by
/// itself, and short enough that nobody waits long behind others.
const COMMANDS: usize = 1024;
const BYTES: usize = 4 << 20;
/// How often a disk that refused is tried again.
const RETRY: Duration = Duration::from_millis(250);
/// How often space is given back when nothing is written.
const IDLE: Duration = Duration::from_secs(1);

/// What the writer is told.
pub(super) enum Command {
    /// A request, to be kept before it is acknowledged. Without an answer it was given up.
    Admit { frame: Frame, claims: Vec<Claim>, room: OwnedSemaphorePermit, answer: oneshot::Sender<bool> },
    /// A verdict, to be kept before it is exported.
    Seal { frame: Frame, answer: oneshot::Sender<bool> },
    /// An exporter has what a record gave it.
    Acked(Seq, String),
    /// These hold no more.
    Done(Vec<(Seq, Claim)>),
    /// Reads a record.
    Read(Seq, oneshot::Sender<Option<Record>>),
    /// Writes what waits, forces it to the disk, and ends.
    Close(oneshot::Sender<()>),
}

/// What others see of the writer.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The last write failed.
    pub failing: AtomicBool,
    /// The size cap is reached.
    pub full: AtomicBool,
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
    /// Claims that are done and not written to be so.
    pub unwritten: Vec<(Seq, Claim)>,
    pub synced: Instant,
}

impl<D: Disk> Writer<D> {
    /// Runs until told to close, or until nobody is left who could.
    pub fn run(mut self, commands: &Receiver<Command>) {
        self.reclaim();
        loop {
            let mut batch = Vec::new();
            match commands.recv_timeout(self.patience()) {
                Ok(command) => batch.push(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let mut bytes = 0;
            while batch.len() < COMMANDS && bytes < BYTES {
                let Ok(command) = commands.try_recv() else { break };
                if let Command::Admit { frame, .. } | Command::Seal { frame, .. } = &command {
                    bytes += frame.size();
                }
                batch.push(command);
            }
            if let Some(closed) = self.commit(batch) {
                self.force();
                let _ = closed.send(());
                return;
            }
            if self.durability == Durability::Interval && self.synced.elapsed() >= self.interval {
                self.force();
            }
            self.reclaim();
        }
        self.force();
    }

    fn patience(&self) -> Duration {
        let failing = self.state.failing.load(Ordering::Relaxed);
        match (failing, self.log.is_dirty() && self.durability == Durability::Interval) {
            (true, _) => RETRY,
            (false, true) => self.interval.saturating_sub(self.synced.elapsed()).min(IDLE),
            (false, false) => IDLE,
        }
    }

    /// Writes one batch and answers it.
    fn commit(&mut self, batch: Vec<Command>) -> Option<oneshot::Sender<()>> {
        let mut frames: Vec<Frame> = Vec::with_capacity(batch.len());
        let mut waiting: Vec<(Vec<Claim>, oneshot::Sender<bool>, Option<OwnedSemaphorePermit>)> = Vec::new();
        let mut reads = Vec::new();
        let mut acked = Vec::new();
        let mut closed = None;
        let mut bytes = self.log.bytes();
        for command in batch {
            match command {
                Command::Admit { frame, claims, room, answer } => {
                    if answer.is_closed() {
                        continue;
                    }
                    if bytes + frame.size() as u64 > self.admit_below {
                        self.state.full.store(true, Ordering::Relaxed);
                        self.cells.refused.inc();
                        let _ = answer.send(false);
                        continue;
                    }
                    bytes += frame.size() as u64;
                    frames.push(frame);
                    waiting.push((claims, answer, Some(room)));
                }
                Command::Seal { frame, answer } => {
                    if bytes + frame.size() as u64 > self.total {
                        let _ = answer.send(false);
                        continue;
                    }
                    bytes += frame.size() as u64;
                    frames.push(frame);
                    waiting.push((vec![Claim::Verdict], answer, None));
                }
                Command::Acked(seq, exporter) => acked.push((seq, exporter)),
                Command::Done(claims) => self.unwritten.extend(claims),
                Command::Read(seq, answer) => reads.push((seq, answer)),
                Command::Close(done) => closed = Some(done),
            }
        }
        self.write(frames, waiting, acked);
        for (seq, answer) in reads {
            let _ = answer.send(self.log.read(seq));
        }
        closed
    }

    fn write(
        &mut self,
        frames: Vec<Frame>,
        waiting: Vec<(Vec<Claim>, oneshot::Sender<bool>, Option<OwnedSemaphorePermit>)>,
        acked: Vec<(Seq, String)>,
    ) {
        // Verdicts and requests that are done with by now need no word, nor do acknowledgements.
        let acked: Vec<(Seq, String)> = acked.into_iter().filter(|(seq, _)| self.log.holds(*seq)).collect();
        let failing = self.state.failing.load(Ordering::Relaxed);
        let mut tail: Vec<Frame> = acked.iter().map(|(seq, exporter)| Frame::acked(*seq, exporter)).collect();
        if !self.unwritten.is_empty() || (failing && frames.is_empty()) {
            // With nothing to write, an empty record tells whether the disk takes any.
            tail.push(Frame::done(&self.unwritten));
        }
        // Space is given back by what is known, whether or not that could be written.
        for &(seq, claim) in &self.unwritten {
            self.log.done(seq, claim);
        }
        if frames.is_empty() && tail.is_empty() {
            return;
        }
        let size: usize = frames.iter().chain(&tail).map(Frame::size).sum();
        let mut written = self.log.append(frames.iter().chain(&tail));
        if written.is_ok() && self.durability == Durability::Sync && !frames.is_empty() {
            let began = Instant::now();
            if let Err(error) = self.log.sync() {
                written = Err(error);
            }
            self.cells.sync_duration.observe(began.elapsed().as_secs_f64());
        }
        match written {
            Ok(places) => {
                self.cells.written.inc_by(size as u64);
                self.unwritten.clear();
                acked.iter().for_each(|(seq, exporter)| self.log.acked(*seq, exporter));
                for ((frame, place), (claims, answer, _room)) in frames.iter().zip(places).zip(waiting) {
                    self.log.keep(frame.seq, place, frame.size() as u64, claims.clone());
                    if answer.send(true).is_err() {
                        // Whoever asked has gone, and will send it again.
                        self.unwritten.extend(claims.into_iter().map(|claim| (frame.seq, claim)));
                    }
                }
                if failing {
                    tracing::info!("the journal can be written again");
                    self.state.failing.store(false, Ordering::Relaxed);
                }
            }
            Err(error) => {
                self.failed("write", &error);
                for (_, answer, _) in waiting {
                    let _ = answer.send(false);
                }
            }
        }
    }

    fn failed(&mut self, what: &'static str, error: &std::io::Error) {
        self.cells.errors.inc();
        if !self.state.failing.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, what, "the journal cannot be written; requests are refused until it can");
        }
    }

    fn force(&mut self) {
        if self.log.is_dirty() {
            let began = Instant::now();
            if let Err(error) = self.log.sync() {
                self.failed("sync", &error);
            }
            self.cells.sync_duration.observe(began.elapsed().as_secs_f64());
        }
        self.synced = Instant::now();
    }

    fn reclaim(&mut self) {
        if let Err(error) = self.log.reclaim() {
            self.failed("reclaim", &error);
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
