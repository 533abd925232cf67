//! The whole journal on disks that fill up, that are slow, and that cannot force.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::super::disk::{Disk, Force};
use super::*;

/// A disk with room for so many more bytes; writes what fits and then fails, as disks do.
struct Small {
    folder: Folder,
    room: Arc<AtomicU64>,
    force: fn() -> io::Result<()>,
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
        let told = |all: Arc<dyn Force>| Arc::new(Told(all, self.force)) as _;
        Ok(self.folder.forcible(segment)?.into_iter().map(told).collect())
    }
    fn read(&mut self, segment: u64, at: u64, len: usize) -> io::Result<Vec<u8>> {
        self.folder.read(segment, at, len)
    }
    fn read_all(&mut self, segment: u64) -> io::Result<Vec<u8>> {
        self.folder.read_all(segment)
    }
    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.folder.remove(segment)
    }
}

fn storage(durability: Durability) -> Storage {
    Storage {
        durability,
        interval: Period::millis(20),
        max_bytes: Size(64 << 10),
        segment_bytes: Size(4 << 10),
        ..Storage::default()
    }
}

async fn admit(journal: &Arc<Journal>, t: u8) -> Option<Seq> {
    let claims = vec![Claim::Trace(trace(t))];
    journal.admit(Signal::Traces, claims, body(&[t], 500)).await.map(Admitted::take)
}

#[tokio::test]
async fn a_full_disk_refuses_and_what_was_acknowledged_before_and_after_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let cells = Telemetry::new().journal.clone();
    let room = Arc::new(AtomicU64::new(5000));
    let disk =
        Small { folder: Folder::open(folder.path()).unwrap(), room: Arc::clone(&room), force: || Ok(()) };
    let (journal, _) = Journal::on(disk, &storage(Durability::Sync), 0, &cells).unwrap();
    let mut kept = Vec::new();
    while let Some(seq) = admit(&journal, 1).await {
        kept.push(seq);
    }
    assert!(kept.len() > 3 && journal.pressure() && cells.errors.get() > 0);
    // What is done is known though it cannot be written.
    journal.release(vec![(kept[0], Claim::Trace(trace(1)))]);
    room.store(1 << 20, Ordering::SeqCst);
    for _ in 0..500 {
        if !journal.pressure() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
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
    let cells = Telemetry::new().journal.clone();
    let (journal, _) = Journal::open(folder.path(), &storage(Durability::None), 0, &cells).unwrap();
    let mut kept = Vec::new();
    while let Some(seq) = admit(&journal, 1).await {
        kept.push(seq);
    }
    assert!(kept.len() > 50 && journal.pressure() && cells.refused.get() == 1);
    // A verdict on what is held still has room.
    assert!(journal.seal([Sealed { trace: trace(1), of: kept.clone(), ..Sealed::default() }].iter()).await.1);
    journal.release(kept.iter().map(|&seq| (seq, Claim::Trace(trace(1)))).collect());
    for _ in 0..500 {
        if !journal.pressure() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(admit(&journal, 2).await.is_some());
    journal.close().await;
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_any_more_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let cells = Telemetry::new().journal.clone();
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

/// A journal under `durability: sync` whose disk forces as `force` does.
fn forcing(folder: &Path, force: fn() -> io::Result<()>) -> Arc<Journal> {
    let room = Arc::new(AtomicU64::new(u64::MAX));
    let disk = Small { folder: Folder::open(folder).unwrap(), room, force };
    Journal::on(disk, &storage(Durability::Sync), 10, &Telemetry::new().journal).unwrap().0
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

#[tokio::test(flavor = "multi_thread")]
async fn while_the_disk_is_forced_nobody_is_told_and_what_is_done_is_written_all_the_same() {
    static STUCK: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let journal = forcing(folder.path(), || {
        while STUCK.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(())
    });
    let first = admit(&journal, 1).await.unwrap();
    STUCK.store(true, Ordering::SeqCst);
    let second = tokio::spawn({
        let journal = Arc::clone(&journal);
        async move { admit(&journal, 2).await }
    });
    let until = async |held: fn(&Recovered) -> bool| {
        for _ in 0..1000 {
            if held(&killed_now(folder.path())) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("{:?}", killed_now(folder.path()));
    };
    until(|all| all.open.len() == 2).await;
    // The disk still works on the second; that the first is done does not wait for it.
    journal.release(vec![(first, Claim::Trace(trace(1)))]);
    until(|all| all.open.len() == 1).await;
    assert!(!second.is_finished(), "told before it was forced to the disk");
    STUCK.store(false, Ordering::SeqCst);
    assert!(second.await.unwrap().is_some());
    journal.close().await;
}

#[tokio::test]
async fn what_cannot_be_forced_to_the_disk_is_refused_and_not_kept() {
    static WORKS: AtomicBool = AtomicBool::new(true);
    let folder = tempfile::tempdir().unwrap();
    let journal = forcing(folder.path(), || match WORKS.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err(io::Error::other("the disk has gone")),
    });
    let before = admit(&journal, 1).await.unwrap();
    WORKS.store(false, Ordering::SeqCst);
    assert!(admit(&journal, 2).await.is_none());
    WORKS.store(true, Ordering::SeqCst);
    let after = admit(&journal, 3).await.unwrap();
    journal.close().await;
    let (_, recovered, _) = open(folder.path());
    assert_eq!(recovered.open.into_keys().collect::<Vec<_>>(), [before, after]);
}
