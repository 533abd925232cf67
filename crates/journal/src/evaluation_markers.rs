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
//! | `suspects` | the generation and the boot id of the process that wrote it; traces, and for each the number of deaths during its evaluation |
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
//! - A trace is also quarantined if another process kills this one twice during its evaluation.
//! - At most 64 concurrent sections are recorded in each file. The list has at most [`MAX_TRACES`]
//!   entries, the newest.
//! - Nothing is recorded without a directory.
//! - A file that cannot be read or written is logged, and otherwise ignored.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use verdict_otlp::trace::TraceId;

use super::disk::{if_found, owner_only, verified, with_checksum};

/// Slots of one file: a `u64` has one bit for each.
const SLOTS_PER_FILE: usize = 64;
/// Size of a slot in bytes: trace id, generation, state, checksum. No slot crosses the boundary of a page.
const SLOT_SIZE: usize = 32;
/// The section is about to begin.
const ANNOUNCED: u32 = 1;
const BEGUN: u32 = 2;
/// Maximum number of files; with more cores, several cores share one file.
const MAX_FILES: usize = 16;
/// Maximum number of traces in `suspects`: the number of all slots.
const MAX_TRACES: usize = SLOTS_PER_FILE * MAX_FILES;
/// The first bytes of `suspects`; generation, boot id and a checksum follow.
const MAGIC: [u8; 8] = *b"otvsusp1";
/// Size in bytes of the header of `suspects`.
const HEADER_SIZE: usize = 8 + 8 + 4 + 4;
/// Size in bytes of an entry of `suspects`: trace id, deaths, checksum.
const ENTRY_SIZE: usize = 16 + 4 + 4;
/// Number of deaths after which a trace is quarantined.
const QUARANTINE_DEATHS: u32 = 2;

/// Records which traces are being evaluated, for the next process.
#[derive(Debug, Default)]
pub struct EvaluationMarkers {
    folder: PathBuf,
    generation: u64,
    boot_id_hash: u32,
    files: Vec<SlotFile>,
    /// Does not change after the start.
    quarantined: HashSet<TraceId>,
    suspects: Mutex<HashSet<TraceId>>,
    /// The number of `suspects`; at 0 no section takes a lock.
    suspect_count: AtomicUsize,
    /// While there are suspects, their sections lock it exclusively, and all other sections lock it shared.
    section_lock: RwLock<()>,
    /// Locked before `section_lock`, shared only by long sections, which run on threads that may block. A section of a
    /// suspect waits for them on this lock, so that short sections that begin meanwhile on other tasks do not wait.
    blocking_section_lock: RwLock<()>,
    is_closed: AtomicBool,
    has_failed: AtomicBool,
}

/// An open file of slots.
#[derive(Debug)]
struct SlotFile {
    file: File,
    /// One bit for each slot in use.
    used_slots: AtomicU64,
}

/// A section of code that reads the contents of a trace. Until the guard is dropped, the trace is recorded as being
/// evaluated.
#[derive(Debug)]
#[must_use]
pub struct EvaluationGuard<'a> {
    markers: &'a EvaluationMarkers,
    slot: Option<(&'a SlotFile, usize)>,
    lock: SectionLock<'a>,
}

/// The locks that a section holds. The lock guards are stored only to be dropped with the section.
#[derive(Debug)]
#[allow(dead_code)]
enum SectionLock<'a> {
    NotNeeded,
    Shared(Option<RwLockReadGuard<'a, ()>>, RwLockReadGuard<'a, ()>),
    Exclusive([RwLockWriteGuard<'a, ()>; 2]),
}

impl Drop for EvaluationGuard<'_> {
    fn drop(&mut self) {
        let Some((file, slot)) = self.slot else { return };
        let is_exclusive = matches!(self.lock, SectionLock::Exclusive(_));
        self.markers.write(file, slot, &[0; SLOT_SIZE], is_exclusive);
        file.used_slots.fetch_and(!(1 << slot), Ordering::Release);
    }
}

impl EvaluationMarkers {
    /// Reads the files of the previous process, and begins to record. `is_open` returns whether a trace will be
    /// evaluated again; other traces do not become suspects. If the directory cannot be written, nothing is
    /// recorded.
    pub fn open(folder: &Path, is_open: impl Fn(TraceId) -> bool) -> EvaluationMarkers {
        let entries: Vec<SlotEntry> =
            (0..MAX_FILES).flat_map(|n| read_slots(&slot_file(folder, n))).collect();
        let new_list = SuspectList::read(folder).count_deaths(&entries, boot_id_hash(), is_open);
        let written = new_list.write(folder);
        let (quarantined, suspects): (BTreeMap<_, _>, BTreeMap<_, _>) =
            new_list.traces.into_iter().partition(|(_, deaths)| *deaths >= QUARANTINE_DEATHS);
        if !suspects.is_empty() {
            let traces: Vec<String> = suspects.keys().map(ToString::to_string).collect();
            tracing::warn!(
                ?traces,
                "the process died while it evaluated these traces; each is now evaluated alone"
            );
        }
        let mut markers = EvaluationMarkers {
            folder: folder.to_owned(),
            generation: new_list.generation,
            boot_id_hash: new_list.boot_id_hash,
            quarantined: quarantined.into_keys().collect(),
            suspect_count: AtomicUsize::new(suspects.len()),
            suspects: Mutex::new(suspects.into_keys().collect()),
            ..EvaluationMarkers::default()
        };
        markers.ok_or_log(written);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for n in 0..cores.min(MAX_FILES) {
            let file = owner_only().write(true).create(true).truncate(true).open(slot_file(folder, n));
            // Allocates the blocks, so that no later write can fail for lack of space.
            let file =
                file.and_then(|file| file.write_all_at(&[0; SLOTS_PER_FILE * SLOT_SIZE], 0).map(|()| file));
            let file = markers.ok_or_log(file);
            markers.files.extend(file.map(|file| SlotFile { file, used_slots: AtomicU64::new(0) }));
        }
        markers
    }

    /// Waits until a section may begin, and records it. Drop the guard before the next await. For short work
    /// only: while a section of a suspect waits for this one, all later sections wait as well.
    pub async fn enter(&self, trace: TraceId) -> EvaluationGuard<'_> {
        let lock = match self.needs_exclusion(trace) {
            None => SectionLock::NotNeeded,
            Some(false) => SectionLock::Shared(None, self.section_lock.read().await),
            Some(true) => SectionLock::Exclusive([
                self.blocking_section_lock.write().await,
                self.section_lock.write().await,
            ]),
        };
        self.begin(trace, lock)
    }

    /// Runs one section on a thread that may block.
    pub fn run<T>(&self, trace: TraceId, work: impl FnOnce() -> T) -> T {
        let lock = match self.needs_exclusion(trace) {
            None => SectionLock::NotNeeded,
            Some(false) => {
                let blocking_section_lock = self.blocking_section_lock.blocking_read();
                SectionLock::Shared(Some(blocking_section_lock), self.section_lock.blocking_read())
            }
            Some(true) => SectionLock::Exclusive([
                self.blocking_section_lock.blocking_write(),
                self.section_lock.blocking_write(),
            ]),
        };
        let _section = self.begin(trace, lock);
        work()
    }

    /// Whether a section of this trace excludes all others; `None` if there are no suspects.
    fn needs_exclusion(&self, trace: TraceId) -> Option<bool> {
        (self.suspect_count.load(Ordering::Acquire) > 0).then(|| self.lock_suspects().contains(&trace))
    }

    /// Whether the process died once during the evaluation of the trace, which has not been evaluated since.
    pub fn is_suspect(&self, trace: TraceId) -> bool {
        self.needs_exclusion(trace) == Some(true)
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

    /// Whether an open trace must not be previewed, since a death during the preview would count against it.
    pub fn is_suspect_or_quarantined(&self, trace: TraceId) -> bool {
        self.is_quarantined(trace) || self.is_suspect(trace)
    }

    /// Whether the trace has to be passed through unevaluated.
    pub fn is_quarantined(&self, trace: TraceId) -> bool {
        self.quarantined.contains(&trace)
    }

    /// Removes a suspect whose evaluation the process has survived.
    pub fn evaluated(&self, trace: TraceId) {
        if !self.is_suspect(trace) {
            return;
        }
        let mut suspects = self.lock_suspects();
        suspects.remove(&trace);
        let quarantined = self.quarantined.iter().map(|&trace| (trace, QUARANTINE_DEATHS));
        let traces = quarantined.chain(suspects.iter().map(|&trace| (trace, 1))).collect();
        self.ok_or_log(
            SuspectList { generation: self.generation, boot_id_hash: self.boot_id_hash, traces }
                .write(&self.folder),
        );
        self.suspect_count.store(suspects.len(), Ordering::Release);
    }

    /// Clears all slots at shutdown: a death after this call is not counted.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        for file in self.files.iter().filter(|file| file.used_slots.load(Ordering::SeqCst) != 0) {
            self.ok_or_log(file.file.write_all_at(&[0; SLOTS_PER_FILE * SLOT_SIZE], 0));
        }
    }

    fn lock_suspects(&self) -> MutexGuard<'_, HashSet<TraceId>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin<'a>(&'a self, trace: TraceId, lock: SectionLock<'a>) -> EvaluationGuard<'a> {
        let slot = self.take_slot();
        if let Some((file, slot)) = slot.filter(|_| !self.is_closed.load(Ordering::SeqCst)) {
            let entry = |state| encode(SlotEntry { trace, generation: self.generation, state });
            if matches!(lock, SectionLock::Exclusive(_)) {
                self.write(file, slot, &entry(ANNOUNCED), true);
            }
            self.write(file, slot, &entry(BEGUN), false);
            // `close` ran concurrently, and may have cleared the slots before this one was written.
            if self.is_closed.load(Ordering::SeqCst) {
                self.write(file, slot, &[0; SLOT_SIZE], false);
            }
        }
        EvaluationGuard { markers: self, slot, lock }
    }

    /// Takes a free slot; `None` if all are in use.
    fn take_slot(&self) -> Option<(&SlotFile, usize)> {
        let (before, after) = self.files.split_at_checked(thread_number() % self.files.len().max(1))?;
        after.iter().chain(before).find_map(|file| {
            let free = |used: u64| (used != u64::MAX).then(|| used | (used + 1));
            let used = file.used_slots.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).ok()?;
            Some((file, used.trailing_ones() as usize))
        })
    }

    fn write(&self, SlotFile { file, .. }: &SlotFile, slot: usize, bytes: &[u8], durable: bool) {
        let written = file.write_all_at(bytes, (slot * SLOT_SIZE) as u64);
        self.ok_or_log(written.and_then(|()| if durable { file.sync_data() } else { Ok(()) }));
    }

    /// The value, or `None` after an error. Only the first error is logged: a failing disk fails thousands of writes.
    fn ok_or_log<T>(&self, result: io::Result<T>) -> Option<T> {
        let log = |error: &io::Error| {
            if !self.has_failed.swap(true, Ordering::Relaxed) {
                tracing::error!(%error, "cannot record which traces are being evaluated; one that ends the process may end it again");
            }
        };
        result.inspect_err(log).ok()
    }
}

/// The contents of `suspects`.
#[derive(Debug, Default, PartialEq)]
struct SuspectList {
    generation: u64,
    /// Checksum of the boot id of the operating system; 0 if unknown.
    boot_id_hash: u32,
    /// For each trace, the number of deaths of the process during its evaluation.
    traces: BTreeMap<TraceId, u32>,
}

impl SuspectList {
    /// Reads the list. A missing or damaged file is an empty list; a damaged entry is left out.
    fn read(folder: &Path) -> SuspectList {
        SuspectList::decode(&read(&folder.join("suspects"), HEADER_SIZE + MAX_TRACES * ENTRY_SIZE))
            .unwrap_or_default()
    }

    fn decode(bytes: &[u8]) -> Option<SuspectList> {
        let (header, entries) = bytes.split_at_checked(HEADER_SIZE)?;
        let (generation, boot_id_hash) = verified(header)?.strip_prefix(&MAGIC)?.split_first_chunk::<8>()?;
        let entry = |entry: &[u8]| {
            let (trace, deaths) = verified(entry)?.split_first_chunk::<16>()?;
            Some((TraceId(*trace), u32::from_le_bytes(deaths.try_into().ok()?)))
        };
        Some(SuspectList {
            generation: u64::from_le_bytes(*generation),
            boot_id_hash: u32::from_le_bytes(boot_id_hash.try_into().ok()?),
            traces: entries.chunks_exact(ENTRY_SIZE).filter_map(entry).collect(),
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut out =
            with_checksum(&[&MAGIC, &self.generation.to_le_bytes(), &self.boot_id_hash.to_le_bytes()]);
        for (trace, deaths) in &self.traces {
            out.extend(with_checksum(&[&trace.0, &deaths.to_le_bytes()]));
        }
        out
    }

    /// Replaces the file atomically.
    fn write(&self, folder: &Path) -> io::Result<()> {
        let (new, path) = (folder.join("suspects.new"), folder.join("suspects"));
        let mut file = owner_only().write(true).create(true).truncate(true).open(&new)?;
        file.write_all(&self.encode())?;
        file.sync_all()?;
        fs::rename(new, path)?;
        File::open(folder)?.sync_all()
    }

    /// The list for the process that starts now: adds a death for each trace in a slot of the process that died.
    /// Suspects that will not be evaluated again are removed; quarantined traces remain in the list, for late spans.
    fn count_deaths(
        mut self,
        entries: &[SlotEntry],
        boot_id_hash: u32,
        is_open: impl Fn(TraceId) -> bool,
    ) -> SuspectList {
        let newest = entries.iter().map(|entry| entry.generation).max().unwrap_or_default();
        let power_cut = self.boot_id_hash != boot_id_hash;
        // Without a list, only the slots show the generation that died.
        let dead_generation = if self.generation == 0 { newest } else { self.generation };
        let counts_as_death =
            |entry: &&SlotEntry| entry.generation == dead_generation && (entry.state == BEGUN || power_cut);
        let traces: HashSet<TraceId> =
            entries.iter().filter(counts_as_death).map(|entry| entry.trace).collect();
        for trace in traces.into_iter().filter(|trace| is_open(*trace)) {
            let deaths = self.traces.entry(trace).or_default();
            *deaths = deaths.saturating_add(1);
        }
        self.traces.retain(|trace, deaths| *deaths >= QUARANTINE_DEATHS || is_open(*trace));
        // If there are too many traces, those that will be evaluated again remain: they can end the process again.
        let mut all: Vec<(TraceId, u32)> = self.traces.into_iter().collect();
        all.sort_by_key(|(trace, _)| !is_open(*trace));
        all.truncate(MAX_TRACES);
        let generation = self.generation.max(newest).saturating_add(1);
        SuspectList { generation, boot_id_hash, traces: all.into_iter().collect() }
    }
}

fn slot_file(folder: &Path, n: usize) -> PathBuf {
    folder.join(format!("judging-{n}"))
}

/// The occupied slots of a file.
fn read_slots(path: &Path) -> Vec<SlotEntry> {
    read(path, SLOTS_PER_FILE * SLOT_SIZE).chunks_exact(SLOT_SIZE).filter_map(decode).collect()
}

/// The first `max_bytes` bytes of a file; empty if it cannot be read.
fn read(path: &Path, max_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(max_bytes as u64).read_to_end(&mut bytes));
    if let Err(error) = if_found(read) {
        tracing::error!(%error, path = %path.display(), "cannot read which traces were being evaluated");
    }
    bytes
}

/// A decoded slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SlotEntry {
    trace: TraceId,
    generation: u64,
    state: u32,
}

fn encode(entry: SlotEntry) -> Vec<u8> {
    with_checksum(&[&entry.trace.0, &entry.generation.to_le_bytes(), &entry.state.to_le_bytes()])
}

/// `None` for a free or damaged slot.
fn decode(slot: &[u8]) -> Option<SlotEntry> {
    let (trace, rest) = verified(slot)?.split_first_chunk::<16>()?;
    let (generation, state) = rest.split_first_chunk::<8>()?;
    let (generation, state) = (u64::from_le_bytes(*generation), u32::from_le_bytes(state.try_into().ok()?));
    Some(SlotEntry { trace: TraceId(*trace), generation, state })
}

/// The checksum of the boot id of the operating system; 0 if unknown.
fn boot_id_hash() -> u32 {
    fs::read("/proc/sys/kernel/random/boot_id").map_or(0, |id| crc32fast::hash(&id))
}

/// The number of this thread: threads are numbered in the order of their first call.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

#[cfg(test)]
mod tests;
