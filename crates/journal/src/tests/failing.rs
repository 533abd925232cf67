//! The whole journal on disks that fill up, and that neither read nor delete; and with senders who leave.

use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::super::disk::{Disk, Force};
use super::*;

/// A disk with room for so many more bytes; writes what fits and then fails, as disks do.
pub(super) struct Small {
    folder: Folder,
    room: Arc<AtomicU64>,
    force: fn() -> io::Result<()>,
    /// Neither reads nor deletes while this holds.
    sick: Arc<AtomicBool>,
    /// How long a write takes.
    delay: std::time::Duration,
    told: HashMap<u64, Arc<dyn Force>>,
}

impl Small {
    /// With endless room.
    pub fn on(folder: &Path, force: fn() -> io::Result<()>) -> Small {
        let room = Arc::new(AtomicU64::new(u64::MAX));
        let folder = Folder::open(folder).unwrap();
        Small {
            folder,
            room,
            force,
            sick: Arc::default(),
            delay: std::time::Duration::ZERO,
            told: HashMap::new(),
        }
    }

    fn well(&self) -> io::Result<()> {
        match self.sick.load(Ordering::SeqCst) {
            true => Err(io::Error::other("the disk is sick")),
            false => Ok(()),
        }
    }
}

/// Forces when it is told that it may.
struct Told(Arc<dyn Force>, fn() -> io::Result<()>);

impl Force for Told {
    fn force(&self) -> io::Result<()> {
        (self.1)()?;
        self.0.force()
    }
}

impl Disk for Small {
    fn list(&self) -> io::Result<Vec<u64>> {
        self.folder.list()
    }
    fn create(&mut self, segment: u64, size: u64) -> io::Result<()> {
        self.folder.create(segment, size)
    }
    fn append(&mut self, segment: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        std::thread::sleep(self.delay);
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let room = self.room.load(Ordering::SeqCst);
        let fits = (bytes.len() as u64).min(room);
        self.room.fetch_sub(fits, Ordering::SeqCst);
        self.folder.append(segment, &mut [IoSlice::new(&bytes[..fits as usize])])?;
        if fits == bytes.len() as u64 { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }
    fn cut(&mut self, segment: u64, len: u64) -> io::Result<()> {
        self.folder.cut(segment, len)
    }
    fn forcible(&mut self, segment: u64) -> io::Result<Vec<Arc<dyn Force>>> {
        let mut all = self.folder.forcible(segment)?;
        // The same file is the same each time.
        let told = || Arc::new(Told(Arc::clone(&all[0]), self.force)) as _;
        all[0] = Arc::clone(self.told.entry(segment).or_insert_with(told));
        Ok(all)
    }
    fn read(&mut self, segment: u64, at: u64, len: usize) -> io::Result<Vec<u8>> {
        self.well()?;
        self.folder.read(segment, at, len)
    }
    fn read_all(&mut self, segment: u64) -> io::Result<Vec<u8>> {
        self.folder.read_all(segment)
    }
    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.well()?;
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
    let claims = vec![Claim::Trace(trace(t))];
    journal.admit(Signal::Traces, claims, body(&[t], 500)).await.map(Admitted::take)
}

#[tokio::test]
async fn a_full_disk_refuses_and_what_was_acknowledged_before_and_after_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let cells = cells();
    let disk = Small::on(folder.path(), || Ok(()));
    let room = Arc::clone(&disk.room);
    room.store(5000, Ordering::SeqCst);
    let (journal, _) = Journal::on(disk, &storage(Durability::Sync), 0, &cells).unwrap();
    let mut kept = Vec::new();
    while let Some(seq) = admit(&journal, 1).await {
        kept.push(seq);
    }
    assert!(kept.len() > 3 && journal.pressure() && cells.errors.get() > 0);
    // What is done is known though it cannot be written.
    journal.release(vec![(kept[0], Claim::Trace(trace(1)))]);
    room.store(1 << 20, Ordering::SeqCst);
    until_calm(&journal).await;
    assert!(!journal.pressure(), "it recovers by itself");
    kept.push(admit(&journal, 2).await.unwrap());
    journal.close().await;
    let (_, recovered, _) = open(folder.path());
    let expected: Vec<Seq> = kept[1..].to_vec();
    assert_eq!(recovered.open.into_keys().collect::<Vec<_>>(), expected);
    assert_eq!((recovered.corrupt, recovered.torn), (0, 0));
}

#[tokio::test]
async fn at_the_size_cap_requests_are_refused_until_something_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let cells = cells();
    let (journal, _) = Journal::open(folder.path(), &storage(Durability::None), 0, &cells).unwrap();
    let mut kept = Vec::new();
    while let Some(seq) = admit(&journal, 1).await {
        kept.push(seq);
    }
    assert!(kept.len() > 50 && journal.pressure() && cells.refused.get() == 1);
    // A verdict on what is held still has room.
    assert!(journal.seal([Sealed { trace: trace(1), of: kept.clone(), ..Sealed::default() }].iter()).await.1);
    journal.release(kept.iter().map(|&seq| (seq, Claim::Trace(trace(1)))).collect());
    until_calm(&journal).await;
    assert!(admit(&journal, 2).await.is_some());
    journal.close().await;
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_any_more_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let cells = cells();
    let (journal, _) = Journal::open(folder.path(), &storage(Durability::Interval), 0, &cells).unwrap();
    let claims = vec![Claim::Trace(trace(1))];
    drop(journal.admit(Signal::Traces, claims.clone(), body(&[1], 10)).await);
    let gone = journal.admit(Signal::Traces, claims, body(&[1], 10));
    tokio::select! {
        biased;
        _ = gone => {}
        () = std::future::ready(()) => {}
    }
    let kept = admit(&journal, 2).await.unwrap();
    journal.close().await;
    let (_, recovered, _) = open(folder.path());
    assert_eq!(recovered.open.into_keys().collect::<Vec<_>>(), [kept]);
}

#[tokio::test]
async fn a_disk_that_neither_reads_nor_deletes_refuses_nobody_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cells = cells();
    let disk = Small::on(folder.path(), || Ok(()));
    let sick = Arc::clone(&disk.sick);
    let storage = Storage { max_bytes: Size(1 << 20), ..storage(Durability::None) };
    let (journal, _) = Journal::on(disk, &storage, 0, &cells).unwrap();
    let open = admit(&journal, 1).await.unwrap();
    let other = async || {
        let seq = admit(&journal, 2).await.unwrap();
        journal.release(vec![(seq, Claim::Trace(trace(2)))]);
        assert!(!journal.pressure());
    };
    sick.store(true, Ordering::SeqCst);
    for _ in 0..100 {
        other().await;
    }
    // The open trace stands in the way of what came after it, and is to be written anew.
    while cells.errors.get() < 2 {
        other().await;
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    sick.store(false, Ordering::SeqCst);
    for _ in 0..500 {
        if cells.segments.get() < 4 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        other().await;
    }
    assert!(cells.segments.get() < 4, "{} segments", cells.segments.get());
    assert!(matches!(journal.read(open).await, Some(Record::Request { .. })));
    journal.close().await;
    let (_, recovered, _) = super::open(folder.path());
    assert_eq!(recovered.open.into_keys().collect::<Vec<_>>(), [open]);
}

/// Waits until it takes requests, or for five seconds.
pub(super) async fn until_calm(journal: &Journal) {
    for _ in 0..500 {
        if !journal.pressure() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// What a copy of the folder holds: what would be found, were the process killed now.
fn killed_now(folder: &Path) -> Recovered {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    open(copy.path()).1
}

/// Waits until a kill would leave this.
pub(super) async fn until(folder: &Path, held: fn(&Recovered) -> bool) {
    for _ in 0..1000 {
        if held(&killed_now(folder)) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{:?}", killed_now(folder));
}

#[tokio::test]
async fn a_slow_disk_holds_up_nobody_but_those_who_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let cells = cells();
    let mut disk = Small::on(folder.path(), || Ok(()));
    disk.delay = std::time::Duration::from_millis(50);
    let storage =
        Storage { segment_bytes: Size(1 << 20), max_bytes: Size(8 << 20), ..storage(Durability::None) };
    let (journal, _) = Journal::on(disk, &storage, 0, &cells).unwrap();
    // Only what shows that it is slow is written by a task: this runtime has one thread.
    assert!(admit(&journal, 1).await.is_some());
    let asked = std::time::Instant::now();
    let waiting: Vec<_> = (2..6)
        .map(|t| {
            let journal = Arc::clone(&journal);
            tokio::spawn(async move { admit(&journal, t).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let held_up = asked.elapsed();
    assert!(held_up < std::time::Duration::from_millis(40), "{held_up:?}");
    for kept in waiting {
        assert!(kept.await.unwrap().is_some());
    }
    assert!(asked.elapsed() >= std::time::Duration::from_millis(40));
    journal.close().await;
}
