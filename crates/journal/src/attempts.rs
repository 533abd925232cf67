//! Quarantine: a trace during whose evaluation the process died is evaluated alone after the restart, and
//! passed through unevaluated after a second death.
//!
//! In: the begin and the end of every section of code that reads the contents of a trace (evaluation,
//! preview of an open trace, a judge's answer). Out: at the next start, which traces are suspects and which
//! are quarantined.
//!
//! A section writes its trace id into a slot of a preallocated file before it begins and clears the slot when
//! it ends: two writes of 32 bytes into the page cache, together about 1 µs, without fsync. The page
//! cache survives the death of the process by any signal. Waiting for a judge is outside of sections, so a
//! process that is killed while traces wait for answers leaves no suspects.
//!
//! | file | contents |
//! |---|---|
//! | `judging-<n>` | 64 slots; a thread uses the file that its number selects, so that cores do not contend for one inode lock |
//! | `suspects` | the generation and the boot id of the process that wrote it; traces, and the number of deaths that each was in |
//!
//! At start the slots with the generation in `suspects` are counted as deaths, and `suspects` is
//! replaced (write, fsync, rename) with the next generation, so that a death is counted once. A trace
//! with one death is a suspect: its sections exclude all others, so a second death concerns it alone, and
//! it is quarantined. Before such a section begins its slot is written as announced
//! and fsynced. An announced section counts as begun only after a power cut, which a changed boot id shows:
//! the write that would have marked it as begun may be lost. Otherwise the process died during the fsync.
//!
//! # Limits
//!
//! - A power cut may lose the slots of the first attempt. The trace is then evaluated as any other once more.
//! - A trace is also quarantined if the process is killed twice from outside while evaluating it.
//! - At most 64 sections for each file are recorded at once. The list has at most [`MOST`]
//!   entries, the newest.
//! - Without a journal no trace is evaluated again, so nothing is recorded.
//! - A file that cannot be read or written is logged, and otherwise ignored.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use verdict_otlp::trace::TraceId;

/// Slots of one file: a `u64` has one bit for each.
const SLOTS: usize = 64;
/// Trace id, generation, whether the section has begun, checksum: slots never cross a page.
const SLOT: usize = 32;
/// The section is about to begin.
const ANNOUNCED: u32 = 1;
/// The section has begun.
const BEGUN: u32 = 2;
/// Files at most; with more cores, several share one.
const FILES: usize = 16;
/// Traces in `suspects` at most: the number of all slots.
const MOST: usize = SLOTS * FILES;
/// Begin of `suspects`; generation, boot id and a checksum follow.
const MAGIC: [u8; 8] = *b"otvsusp1";
const HEADER: usize = 8 + 8 + 4 + 4;
/// Trace id, deaths, checksum.
const ENTRY: usize = 16 + 4 + 4;
/// Deaths after which a trace is quarantined.
const QUARANTINED: u32 = 2;

/// Records which traces are being evaluated, for the next process.
#[derive(Debug, Default)]
pub struct Attempts {
    folder: PathBuf,
    generation: u64,
    boot: u32,
    files: Vec<Slots>,
    /// Does not change after the start.
    quarantined: HashSet<TraceId>,
    suspects: Mutex<HashSet<TraceId>>,
    /// The size of `suspects`; at 0 no section takes a lock.
    left: AtomicUsize,
    /// While there are suspects, their sections lock it exclusively, and all others shared.
    gate: RwLock<()>,
    closed: AtomicBool,
    failed: AtomicBool,
}

/// One file of slots.
#[derive(Debug)]
struct Slots {
    file: File,
    taken: AtomicU64,
}

/// Until it is dropped, its trace is recorded as being evaluated.
#[derive(Debug)]
#[must_use]
pub struct Section<'a> {
    attempts: &'a Attempts,
    slot: Option<(usize, usize)>,
    gate: Gate<'a>,
}

/// The guards are kept only to be dropped with the section.
#[derive(Debug)]
#[allow(dead_code)]
enum Gate<'a> {
    Open,
    Shared(RwLockReadGuard<'a, ()>),
    Alone(RwLockWriteGuard<'a, ()>),
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        let Some((file, slot)) = self.slot else { return };
        let alone = matches!(self.gate, Gate::Alone(_));
        self.attempts.write(file, slot, &[0; SLOT], alone);
        if let Some(slots) = self.attempts.files.get(file) {
            slots.taken.fetch_and(!(1 << slot), Ordering::Release);
        }
    }
}

impl Attempts {
    /// Reads the files of the process before, and begins to record. `is_open` returns whether a trace will be
    /// evaluated again; other traces do not become suspects. If the directory cannot be written, nothing is
    /// recorded.
    pub fn open(folder: &Path, is_open: impl Fn(TraceId) -> bool) -> Attempts {
        let list = List::read(&folder.join("suspects"));
        let named: Vec<Named> = (0..FILES).flat_map(|n| named(&slot_file(folder, n))).collect();
        let next = list.counted(&named, boot(), is_open);
        let (generation, boot) = (next.generation, next.boot);
        let mut attempts = Attempts { folder: folder.to_owned(), generation, boot, ..Attempts::default() };
        if let Err(error) = next.write(folder) {
            attempts.fault(&error);
        }
        let (quarantined, suspects): (Vec<_>, Vec<_>) =
            next.traces.into_iter().partition(|(_, deaths)| *deaths >= QUARANTINED);
        attempts.quarantined = quarantined.into_iter().map(|(trace, _)| trace).collect();
        let suspects: HashSet<TraceId> = suspects.into_iter().map(|(trace, _)| trace).collect();
        if !suspects.is_empty() {
            let traces: Vec<String> = suspects.iter().map(ToString::to_string).collect();
            tracing::warn!(
                ?traces,
                "the process died while it evaluated these traces; each is now evaluated alone"
            );
        }
        attempts.left = AtomicUsize::new(suspects.len());
        attempts.suspects = Mutex::new(suspects);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for n in 0..cores.min(FILES) {
            match Slots::open(&slot_file(folder, n)) {
                Ok(slots) => attempts.files.push(slots),
                Err(error) => attempts.fault(&error),
            }
        }
        attempts
    }

    /// Waits until a section may begin, and records it. Drop the section before the next await.
    pub async fn enter(&self, trace: TraceId) -> Section<'_> {
        let gate = match (self.left.load(Ordering::Acquire) > 0, self.is_suspect(trace)) {
            (false, _) => Gate::Open,
            (true, false) => Gate::Shared(self.gate.read().await),
            (true, true) => Gate::Alone(self.gate.write().await),
        };
        self.begin(trace, gate)
    }

    fn enter_blocking(&self, trace: TraceId) -> Section<'_> {
        let gate = match (self.left.load(Ordering::Acquire) > 0, self.is_suspect(trace)) {
            (false, _) => Gate::Open,
            (true, false) => Gate::Shared(self.gate.blocking_read()),
            (true, true) => Gate::Alone(self.gate.blocking_write()),
        };
        self.begin(trace, gate)
    }

    /// Runs one section on a thread that may block.
    pub fn run<T>(&self, trace: TraceId, work: impl FnOnce() -> T) -> T {
        let _section = self.enter_blocking(trace);
        work()
    }

    /// Runs a future. Each poll is a section; the time between polls is not.
    pub async fn watch<F: Future>(&self, trace: TraceId, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        loop {
            let section = self.enter(trace).await;
            let polled = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
            drop(section);
            if let Poll::Ready(out) = polled {
                return out;
            }
            // Pending once: `work` has registered this task's waker.
            let mut woken = false;
            poll_fn(|_| if std::mem::replace(&mut woken, true) { Poll::Ready(()) } else { Poll::Pending })
                .await;
        }
    }

    /// Whether the process died during its evaluation, and it has not been evaluated since.
    pub fn is_suspect(&self, trace: TraceId) -> bool {
        self.left.load(Ordering::Acquire) > 0 && self.listed().contains(&trace)
    }

    /// Whether an open trace must not be previewed, since a death during the preview would count against it.
    pub fn is_noted(&self, trace: TraceId) -> bool {
        self.is_quarantined(trace) || self.is_suspect(trace)
    }

    /// Whether it has to be passed through unevaluated.
    pub fn is_quarantined(&self, trace: TraceId) -> bool {
        self.quarantined.contains(&trace)
    }

    /// Removes a suspect whose evaluation the process has survived.
    pub fn judged(&self, trace: TraceId) {
        if !self.is_suspect(trace) {
            return;
        }
        let mut listed = self.listed();
        listed.remove(&trace);
        let quarantined = self.quarantined.iter().map(|&trace| (trace, QUARANTINED));
        let traces = quarantined.chain(listed.iter().map(|&trace| (trace, 1))).collect();
        if let Err(error) =
            (List { generation: self.generation, boot: self.boot, traces }).write(&self.folder)
        {
            self.fault(&error);
        }
        self.left.store(listed.len(), Ordering::Release);
    }

    /// At shutdown: a death from now on is not counted.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for slots in &self.files {
            if slots.taken.load(Ordering::SeqCst) != 0
                && let Err(error) = slots.file.write_all_at(&[0; SLOTS * SLOT], 0)
            {
                self.fault(&error);
            }
        }
    }

    fn listed(&self) -> std::sync::MutexGuard<'_, HashSet<TraceId>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin<'a>(&'a self, trace: TraceId, gate: Gate<'a>) -> Section<'a> {
        let slot = self.claim();
        if let Some((file, slot)) = slot.filter(|_| !self.closed.load(Ordering::SeqCst)) {
            let name = |state| encode(Named { trace, generation: self.generation, state });
            if matches!(gate, Gate::Alone(_)) {
                self.write(file, slot, &name(ANNOUNCED), true);
            }
            self.write(file, slot, &name(BEGUN), false);
            // `close` ran concurrently, and may have cleared the slots before this one was written.
            if self.closed.load(Ordering::SeqCst) {
                self.write(file, slot, &[0; SLOT], false);
            }
        }
        Section { attempts: self, slot, gate }
    }

    /// A free slot; `None` if all are taken.
    fn claim(&self) -> Option<(usize, usize)> {
        let first = of_this_thread();
        (0..self.files.len()).find_map(|n| {
            let file = (first + n) % self.files.len();
            let taken = &self.files.get(file)?.taken;
            let free = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
            let before = taken.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).ok()?;
            Some((file, before.trailing_ones() as usize))
        })
    }

    fn write(&self, file: usize, slot: usize, bytes: &[u8], durable: bool) {
        let Some(Slots { file, .. }) = self.files.get(file) else { return };
        let written = file.write_all_at(bytes, (slot * SLOT) as u64);
        if let Err(error) = written.and_then(|()| if durable { file.sync_data() } else { Ok(()) }) {
            self.fault(&error);
        }
    }

    /// Logs the first failure only: a failing disk fails thousands of writes.
    fn fault(&self, error: &io::Error) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, "cannot record which traces are being evaluated; one that ends the process may end it again");
        }
    }
}

impl Slots {
    fn open(path: &Path) -> io::Result<Slots> {
        // Allocates the blocks, so that no later write can fail for lack of space.
        let file = options().truncate(true).open(path)?;
        file.write_all_at(&[0; SLOTS * SLOT], 0)?;
        Ok(Slots { file, taken: AtomicU64::new(0) })
    }
}

/// The contents of `suspects`.
#[derive(Debug, Default, PartialEq)]
struct List {
    generation: u64,
    /// Of the operating system, as a checksum; 0 where it is not known.
    boot: u32,
    /// In how many deaths each was named.
    traces: BTreeMap<TraceId, u32>,
}

impl List {
    /// A file that is missing or damaged reads as an empty list; a damaged entry is left out.
    fn read(path: &Path) -> List {
        List::decode(&read(path, HEADER + MOST * ENTRY))
    }

    fn decode(bytes: &[u8]) -> List {
        let Some((header, entries)) = bytes.split_at_checked(HEADER) else { return List::default() };
        let rest = checked(header).and_then(|rest| rest.strip_prefix(&MAGIC));
        let Some((generation, boot)) = rest.and_then(|rest| rest.split_first_chunk::<8>()) else {
            return List::default();
        };
        let entry = |entry: &[u8]| {
            let (trace, deaths) = checked(entry)?.split_first_chunk::<16>()?;
            Some((TraceId(*trace), u32::from_le_bytes(deaths.try_into().ok()?)))
        };
        let traces = entries.chunks_exact(ENTRY).filter_map(entry).collect();
        List {
            generation: u64::from_le_bytes(*generation),
            boot: boot.try_into().map_or(0, u32::from_le_bytes),
            traces,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.boot.to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        for (trace, deaths) in &self.traces {
            let from = out.len();
            out.extend_from_slice(&trace.0);
            out.extend_from_slice(&deaths.to_le_bytes());
            let check = crc32fast::hash(out.get(from..).unwrap_or_default());
            out.extend_from_slice(&check.to_le_bytes());
        }
        out
    }

    /// Replaces the file atomically.
    fn write(&self, folder: &Path) -> io::Result<()> {
        let (new, path) = (folder.join("suspects.new"), folder.join("suspects"));
        let mut file = options().truncate(true).open(&new)?;
        file.write_all(&self.encode())?;
        file.sync_all()?;
        fs::rename(new, path)?;
        File::open(folder)?.sync_all()
    }

    /// The list of the process that starts now: adds a death for each trace in a slot of the generation that
    /// died. Suspects that will not be evaluated again are removed; quarantined traces stay, for late spans.
    fn counted(mut self, named: &[Named], boot: u32, is_open: impl Fn(TraceId) -> bool) -> List {
        let newest = named.iter().map(|slot| slot.generation).max().unwrap_or_default();
        let power_cut = self.boot != boot;
        // Without a list, only the slots show the generation that died.
        let of = if self.generation == 0 { newest } else { self.generation };
        let dead: HashSet<TraceId> = named
            .iter()
            .filter(|slot| slot.generation == of && (slot.state == BEGUN || power_cut))
            .map(|slot| slot.trace)
            .collect();
        for trace in dead.into_iter().filter(|trace| is_open(*trace)) {
            let deaths = self.traces.entry(trace).or_default();
            *deaths = deaths.saturating_add(1);
        }
        self.traces.retain(|trace, deaths| *deaths >= QUARANTINED || is_open(*trace));
        // If there are too many, traces that can end the process again stay.
        let mut all: Vec<(TraceId, u32)> = self.traces.into_iter().collect();
        all.sort_by_key(|(trace, _)| !is_open(*trace));
        all.truncate(MOST);
        let generation = self.generation.max(newest).saturating_add(1);
        List { generation, boot, traces: all.into_iter().collect() }
    }
}

fn slot_file(folder: &Path, n: usize) -> PathBuf {
    folder.join(format!("judging-{n}"))
}

/// Readable by its owner only, as the journal is.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

/// The occupied slots of a file.
fn named(path: &Path) -> Vec<Named> {
    read(path, SLOTS * SLOT).chunks_exact(SLOT).filter_map(decode).collect()
}

/// The first `most` bytes of a file; empty if it cannot be read.
fn read(path: &Path, most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(most as u64).read_to_end(&mut bytes)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::error!(%error, path = %path.display(), "cannot read which traces were being evaluated");
        }
        Ok(_) | Err(_) => {}
    }
    bytes
}

/// A decoded slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Named {
    trace: TraceId,
    generation: u64,
    state: u32,
}

fn encode(named: Named) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    slot[..16].copy_from_slice(&named.trace.0);
    slot[16..24].copy_from_slice(&named.generation.to_le_bytes());
    slot[24..28].copy_from_slice(&named.state.to_le_bytes());
    let check = crc32fast::hash(&slot[..28]);
    slot[28..].copy_from_slice(&check.to_le_bytes());
    slot
}

/// `None` for a free or damaged slot.
fn decode(slot: &[u8]) -> Option<Named> {
    let (trace, rest) = checked(slot)?.split_first_chunk::<16>()?;
    let (generation, state) = rest.split_first_chunk::<8>()?;
    let (generation, state) = (u64::from_le_bytes(*generation), u32::from_le_bytes(state.try_into().ok()?));
    Some(Named { trace: TraceId(*trace), generation, state })
}

/// Identifies the boot of the operating system; 0 if unknown.
fn boot() -> u32 {
    fs::read("/proc/sys/kernel/random/boot_id").map_or(0, |id| crc32fast::hash(&id))
}

/// The bytes before a checksum that matches.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (rest, check) = bytes.split_last_chunk::<4>()?;
    (crc32fast::hash(rest) == u32::from_le_bytes(*check)).then_some(rest)
}

/// The number of this thread, counted from its first call.
fn of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    OWN.with(|own| *own)
}

#[cfg(test)]
mod tests;
