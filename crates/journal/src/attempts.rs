//! Traces during whose judging the process died: found again at start, judged alone, and after the
//! second death passed on unjudged.
//!
//! In: the begin and the end of every section of code that reads what a trace holds (judging it,
//! looking at it while it is open, reading a judge's answer). Out: at the next start, which traces are
//! suspects and which are quarantined.
//!
//! A section names its trace in a slot of a preallocated file before it begins and clears the slot when
//! it ends: two writes of 32 bytes into the page cache, together about 1 µs, without fsync. The page
//! cache survives the death of the process, by whatever signal. Waiting for a judge is no section, so a
//! process that is killed while traces wait for answers makes no suspects of them.
//!
//! | file | holds |
//! |---|---|
//! | `judging-<n>` | 64 slots; a thread uses the file that its number selects, so that cores do not contend for one inode lock |
//! | `suspects` | the generation of the process that wrote it and the boot that it ran in; traces, and in how many deaths each was named |
//!
//! At start the slots of the generation that `suspects` names are counted as deaths, and `suspects` is
//! replaced (write, fsync, rename) with the next generation, so that a death is counted once. A trace
//! with one death is a suspect: its sections exclude all others, so a second death names the culprit
//! alone, and the trace is quarantined. Before such a section begins its slot is written as announced
//! and fsynced: after a power cut, which another boot id tells, an announced section counts as begun.
//! Otherwise it does not, so a process that is killed during the fsync has attempted nothing.
//!
//! # Limits
//!
//! - A power cut may lose the slots of the first attempt. The trace is then judged as any other, once more.
//! - Someone who kills the process twice while the same trace is judged has it quarantined.
//! - More than 64 sections for each file at once are not recorded. The list has at most [`MOST`]
//!   entries, the newest.
//! - Without a journal there is nothing to judge again; nothing is recorded.
//! - A file that cannot be read or written is logged; spans flow on.

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

/// Slots of one file: one bit each in a word that says which are taken.
const SLOTS: usize = 64;
/// Trace id, generation, whether the section has begun, checksum: slots never cross a page.
const SLOT: usize = 32;
/// The section is about to begin.
const ANNOUNCED: u32 = 1;
/// The section has begun.
const BEGUN: u32 = 2;
/// Files at most. More cores than this share them.
const FILES: usize = 16;
/// Traces in `suspects` at most: as many as all slots can name.
const MOST: usize = SLOTS * FILES;
/// How `suspects` begins; the generation, the boot and a checksum follow.
const MAGIC: [u8; 8] = *b"otvsusp1";
const HEADER: usize = 8 + 8 + 4 + 4;
/// Trace id, deaths, checksum.
const ENTRY: usize = 16 + 4 + 4;
/// With so many deaths a trace is quarantined.
const QUARANTINED: u32 = 2;

/// Which traces are being judged, recorded so that the next process knows.
#[derive(Debug, Default)]
pub struct Attempts {
    folder: PathBuf,
    generation: u64,
    boot: u32,
    files: Vec<Slots>,
    /// Fixed at start.
    quarantined: HashSet<TraceId>,
    suspects: Mutex<HashSet<TraceId>>,
    /// How many suspects are left; while there are none, no section takes a lock.
    left: AtomicUsize,
    /// Sections of suspects hold it exclusively, all others shared, while any suspect is left.
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

/// While it lives, its trace is recorded as being judged.
#[derive(Debug)]
#[must_use]
pub struct Section<'a> {
    attempts: &'a Attempts,
    slot: Option<(usize, usize)>,
    gate: Gate<'a>,
}

/// Held for its drop alone.
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
    /// Reads what the process before left in the folder, and begins to record. `is_open` says whether
    /// a trace will be judged again: others are not listed as suspects. Without a folder that can be
    /// written nothing is recorded.
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
            tracing::warn!(?traces, "the process died while these traces were judged; each is judged alone");
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

    /// Waits until a section may begin, and records that it does. Drop it before waiting for anything.
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

    /// Runs a future of which every poll is a section: what it waits for is not.
    pub async fn watch<F: Future>(&self, trace: TraceId, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        loop {
            let section = self.enter(trace).await;
            let polled = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
            drop(section);
            if let Poll::Ready(out) = polled {
                return out;
            }
            // `work` wakes this task; until then there is nothing to do.
            let mut woken = false;
            poll_fn(|_| if std::mem::replace(&mut woken, true) { Poll::Ready(()) } else { Poll::Pending })
                .await;
        }
    }

    /// Whether the process died while this trace was judged, and it has not been judged since.
    pub fn is_suspect(&self, trace: TraceId) -> bool {
        self.left.load(Ordering::Acquire) > 0 && self.listed().contains(&trace)
    }

    /// Whether no open trace of this id is to be looked at: should the process die, it is not to count
    /// against it.
    pub fn is_noted(&self, trace: TraceId) -> bool {
        self.is_quarantined(trace) || self.is_suspect(trace)
    }

    /// Whether it is to be passed on unjudged.
    pub fn is_quarantined(&self, trace: TraceId) -> bool {
        self.quarantined.contains(&trace)
    }

    /// A suspect was judged and the process lives: it is a trace as any other.
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

    /// The process was told to end: whatever is judged from now on, or ends it, is no attempt.
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
            // Closed meanwhile: whether before or after this slot was written is not known.
            if self.closed.load(Ordering::SeqCst) {
                self.write(file, slot, &[0; SLOT], false);
            }
        }
        Section { attempts: self, slot, gate }
    }

    /// A free slot; `None` where all are taken.
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

    /// Logged once: the disk that refuses one write refuses thousands.
    fn fault(&self, error: &io::Error) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, "cannot record which traces are judged; one that ends the process may do so again");
        }
    }
}

impl Slots {
    fn open(path: &Path) -> io::Result<Slots> {
        // Zeros are written, so that no later write needs room on the disk.
        let file = options().truncate(true).open(path)?;
        file.write_all_at(&[0; SLOTS * SLOT], 0)?;
        Ok(Slots { file, taken: AtomicU64::new(0) })
    }
}

/// What `suspects` holds.
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

    /// Replaces the file, or leaves it as it is.
    fn write(&self, folder: &Path) -> io::Result<()> {
        let (new, path) = (folder.join("suspects.new"), folder.join("suspects"));
        let mut file = options().truncate(true).open(&new)?;
        file.write_all(&self.encode())?;
        file.sync_all()?;
        fs::rename(new, path)?;
        File::open(folder)?.sync_all()
    }

    /// The list of the process that starts now: deaths are added by what slots named, and in which
    /// generation. Of suspects those stay that will be judged again; quarantined ones stay, for spans
    /// that come late.
    fn counted(mut self, named: &[Named], boot: u32, is_open: impl Fn(TraceId) -> bool) -> List {
        let newest = named.iter().map(|slot| slot.generation).max().unwrap_or_default();
        let power_cut = self.boot != boot;
        // Without a list, which process the slots are of is known from the slots alone.
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
        // Those that can end the process again come first.
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

/// What the slots of a file name.
fn named(path: &Path) -> Vec<Named> {
    read(path, SLOTS * SLOT).chunks_exact(SLOT).filter_map(decode).collect()
}

/// The first `most` bytes of a file; nothing where it cannot be read.
fn read(path: &Path, most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(most as u64).read_to_end(&mut bytes)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::error!(%error, path = %path.display(), "cannot read which traces were judged");
        }
        Ok(_) | Err(_) => {}
    }
    bytes
}

/// What a slot says.
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

/// `None` of a slot that is free or damaged.
fn decode(slot: &[u8]) -> Option<Named> {
    let (trace, rest) = checked(slot)?.split_first_chunk::<16>()?;
    let (generation, state) = rest.split_first_chunk::<8>()?;
    let (generation, state) = (u64::from_le_bytes(*generation), u32::from_le_bytes(state.try_into().ok()?));
    Some(Named { trace: TraceId(*trace), generation, state })
}

/// Which boot of the operating system this is; 0 where it does not say.
fn boot() -> u32 {
    fs::read("/proc/sys/kernel/random/boot_id").map_or(0, |id| crc32fast::hash(&id))
}

/// What stands before a checksum, if it is right.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (rest, check) = bytes.split_last_chunk::<4>()?;
    (crc32fast::hash(rest) == u32::from_le_bytes(*check)).then_some(rest)
}

/// A number of this thread, the same each time.
fn of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    OWN.with(|own| *own)
}

#[cfg(test)]
mod tests;
