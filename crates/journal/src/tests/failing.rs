//! The whole journal on full, slow and failing disks, and with cancelled requests.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::super::disk::{Disk, Fsync};
use super::*;

/// A disk with limited space: a write that exceeds it is partial and fails.
pub(super) struct FaultyDisk {
    folder: Directory,
    remaining: Arc<AtomicU64>,
    sync: fn() -> io::Result<()>,
    /// While this is set, reads and deletions fail.
    broken: Arc<AtomicBool>,
    /// Duration of a write; a write with the maximum panics.
    delay: std::time::Duration,
    /// Writes wait while this is set, for at most three minutes.
    stuck: Arc<AtomicBool>,
}

impl FaultyDisk {
    /// A disk without faults and with unlimited space; `sync` is called before each fsync.
    pub(crate) fn new(folder: &Path, sync: fn() -> io::Result<()>) -> FaultyDisk {
        let remaining = Arc::new(AtomicU64::new(u64::MAX));
        let folder = Directory::open(folder).unwrap();
        FaultyDisk {
            folder,
            remaining,
            sync,
            broken: Arc::default(),
            delay: std::time::Duration::ZERO,
            stuck: Arc::default(),
        }
    }

    fn check(&self) -> io::Result<()> {
        match self.broken.load(Ordering::SeqCst) {
            true => Err(io::Error::other("the disk is broken")),
            false => Ok(()),
        }
    }
}

/// Calls a function before each fsync, which fails if that does.
struct CheckedFsync(Arc<dyn Fsync>, fn() -> io::Result<()>);

impl Fsync for CheckedFsync {
    fn fsync(&self) -> io::Result<()> {
        (self.1)()?;
        self.0.fsync()
    }
}

impl Disk for FaultyDisk {
    fn list(&self) -> io::Result<Vec<u64>> {
        self.folder.list()
    }
    fn create(&mut self, segment: u64, size: u64) -> io::Result<Arc<dyn Fsync>> {
        Ok(Arc::new(CheckedFsync(self.folder.create(segment, size)?, self.sync)))
    }
    fn append(&mut self, segment: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        assert_ne!(self.delay, std::time::Duration::MAX, "as the test requires");
        std::thread::sleep(self.delay);
        for _ in 0..180_000 {
            if !self.stuck.load(Ordering::SeqCst) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let remaining = self.remaining.load(Ordering::SeqCst);
        let accepted = (bytes.len() as u64).min(remaining);
        self.remaining.fetch_sub(accepted, Ordering::SeqCst);
        self.folder.append(segment, &mut [IoSlice::new(&bytes[..accepted as usize])])?;
        if accepted == bytes.len() as u64 { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }
    fn truncate(&mut self, segment: u64, len: u64) -> io::Result<()> {
        self.folder.truncate(segment, len)
    }
    fn directory_to_sync(&mut self) -> io::Result<Option<Arc<dyn Fsync>>> {
        self.folder.directory_to_sync()
    }
    fn read(&mut self, segment: u64, at: u64, len: usize) -> io::Result<Vec<u8>> {
        self.check()?;
        self.folder.read(segment, at, len)
    }
    fn read_all(&mut self, segment: u64) -> io::Result<Vec<u8>> {
        self.folder.read_all(segment)
    }
    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.check()?;
        self.folder.remove(segment)
    }
}

pub(super) fn storage(durability: Durability) -> Storage {
    Storage {
        durability,
        interval: Period::millis(20),
        max_bytes: Size(64 << 10),
        segment_bytes: Size(4 << 10),
        ..Storage::default()
    }
}

pub(super) async fn admit(journal: &Arc<Journal>, t: u8) -> Option<Seq> {
    let reasons = vec![RetainReason::Trace(trace(t))];
    journal.append_request(Signal::Traces, reasons, false, body(&[t], 500)).await.map(AppendedRequest::accept)
}

#[tokio::test]
async fn a_full_disk_refuses_and_requests_acknowledged_before_and_after_are_recovered() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = metrics();
    let disk = FaultyDisk::new(folder.path(), || Ok(()));
    let remaining = Arc::clone(&disk.remaining);
    remaining.store(5000, Ordering::SeqCst);
    let (journal, _) = Journal::with_disk(disk, &storage(Durability::Sync), 0, &metrics).unwrap();
    let mut stored = Vec::new();
    while let Some(seq) = admit(&journal, 1).await {
        stored.push(seq);
    }
    assert!(stored.len() > 3 && journal.pressure() && metrics.errors.get() > 0);
    // A release is applied although it cannot be written.
    journal.release(vec![(stored[0], RetainReason::Trace(trace(1)))]);
    remaining.store(1 << 20, Ordering::SeqCst);
    until_no_pressure(&journal).await;
    assert!(!journal.pressure(), "pressure remains after the disk has room");
    stored.push(admit(&journal, 2).await.unwrap());
    journal.close().await;
    let (_, recovered, _) = open(folder.path());
    let expected: Vec<Seq> = stored[1..].to_vec();
    assert_eq!(recovered.open.into_keys().collect::<Vec<_>>(), expected);
    assert_eq!((recovered.corrupt, recovered.truncated_bytes), (0, 0));
}

#[tokio::test]
async fn at_the_size_cap_requests_are_refused_until_something_is_released() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = metrics();
    let (journal, _) = Journal::open(folder.path(), &storage(Durability::None), 0, &metrics).unwrap();
    let mut stored = Vec::new();
    while let Some(seq) = admit(&journal, 1).await {
        stored.push(seq);
    }
    assert!(stored.len() > 50 && journal.pressure() && metrics.refused.get() == 1);
    // A verdict on stored requests still has room.
    assert!(
        journal
            .append_verdicts(
                [VerdictRecord { trace: trace(1), requests: stored.clone(), ..VerdictRecord::default() }]
                    .iter()
            )
            .await
            .1
    );
    journal.release(stored.iter().map(|&seq| (seq, RetainReason::Trace(trace(1)))).collect());
    until_no_pressure(&journal).await;
    assert!(admit(&journal, 2).await.is_some());
    journal.close().await;
}

#[tokio::test]
async fn a_cancelled_request_is_discarded() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = metrics();
    let (journal, _) = Journal::open(folder.path(), &storage(Durability::Interval), 0, &metrics).unwrap();
    let reasons = vec![RetainReason::Trace(trace(1))];
    drop(journal.append_request(Signal::Traces, reasons.clone(), false, body(&[1], 10)).await);
    let gone = journal.append_request(Signal::Traces, reasons, false, body(&[1], 10));
    tokio::select! {
        biased;
        _ = gone => {}
        () = std::future::ready(()) => {}
    }
    let stored = admit(&journal, 2).await.unwrap();
    journal.close().await;
    let (_, recovered, _) = open(folder.path());
    assert_eq!(recovered.open.into_keys().collect::<Vec<_>>(), [stored]);
}

#[tokio::test]
async fn while_the_disk_neither_reads_nor_deletes_requests_are_accepted_and_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = metrics();
    let disk = FaultyDisk::new(folder.path(), || Ok(()));
    let broken = Arc::clone(&disk.broken);
    let storage = Storage { max_bytes: Size(1 << 20), ..storage(Durability::None) };
    let (journal, _) = Journal::with_disk(disk, &storage, 0, &metrics).unwrap();
    let open = admit(&journal, 1).await.unwrap();
    let other = async || {
        let seq = admit(&journal, 2).await.unwrap();
        journal.release(vec![(seq, RetainReason::Trace(trace(2)))]);
        assert!(!journal.pressure());
    };
    broken.store(true, Ordering::SeqCst);
    for _ in 0..100 {
        other().await;
    }
    // The open trace is in the oldest segment, which has to be rewritten.
    while metrics.errors.get() < 2 {
        other().await;
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    broken.store(false, Ordering::SeqCst);
    for _ in 0..18_000 {
        if metrics.segments.get() < 4 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        other().await;
    }
    assert!(metrics.segments.get() < 4, "{} segments", metrics.segments.get());
    assert!(matches!(journal.read(open).await, Some(JournalRecord::Request { .. })));
    journal.close().await;
    let (_, recovered, _) = super::open(folder.path());
    assert_eq!(recovered.open.into_keys().collect::<Vec<_>>(), [open]);
}

/// Waits until there is no pressure, or for three minutes.
pub(super) async fn until_no_pressure(journal: &Journal) {
    for _ in 0..18_000 {
        if !journal.pressure() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// The records that recovery would find if the process were killed now.
fn killed_now(folder: &Path) -> Recovered {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    open(copy.path()).1
}

/// Waits until the records that recovery would find after a kill match `condition`.
pub(super) async fn until_recoverable(folder: &Path, condition: fn(&Recovered) -> bool) {
    for _ in 0..18_000 {
        if condition(&killed_now(folder)) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{:?}", killed_now(folder));
}

#[tokio::test]
async fn a_slow_disk_blocks_only_callers_that_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = metrics();
    let mut disk = FaultyDisk::new(folder.path(), || Ok(()));
    disk.delay = std::time::Duration::from_millis(50);
    let stuck = Arc::clone(&disk.stuck);
    let storage =
        Storage { segment_bytes: Size(1 << 20), max_bytes: Size(8 << 20), ..storage(Durability::None) };
    let (journal, _) = Journal::with_disk(disk, &storage, 0, &metrics).unwrap();
    // A task executes the first slow write. This runtime has one thread.
    assert!(admit(&journal, 1).await.is_some());
    stuck.store(true, Ordering::SeqCst);
    let waiting: Vec<_> = (2..6)
        .map(|t| {
            let journal = Arc::clone(&journal);
            tokio::spawn(async move { admit(&journal, t).await })
        })
        .collect();
    tokio::task::yield_now().await;
    assert!(waiting.iter().all(|task| !task.is_finished()), "this thread waited for the disk");
    stuck.store(false, Ordering::SeqCst);
    for stored in waiting {
        assert!(stored.await.unwrap().is_some());
    }
    journal.close().await;
}

#[tokio::test]
async fn panic_in_the_writer_or_the_sync_thread_is_reported_and_leaves_no_caller_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let writing = FaultyDisk { delay: std::time::Duration::MAX, ..FaultyDisk::new(folder.path(), || Ok(())) };
    let syncing = FaultyDisk::new(&folder.path().join("syncing"), || panic!("as the test requires"));
    for disk in [writing, syncing] {
        let journal = Journal::with_disk(disk, &storage(Durability::Sync), 10, &metrics()).unwrap().0;
        assert!(!journal.has_failed());
        // A sync thread that still unwinds is noticed at a later request.
        for _ in 0..18_000 {
            assert_eq!(admit(&journal, 1).await, None);
            if journal.has_failed() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(journal.has_failed() && journal.pressure());
        journal.close().await;
    }
}
