//! When the journal forces to the disk, and what follows where that cannot be done.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::failing::{Small, admit, storage, until, until_calm};
use super::*;

/// A journal whose disk forces as `force` does.
fn forcing(folder: &Path, durability: Durability, force: fn() -> io::Result<()>) -> Arc<Journal> {
    let storage = Storage { segment_bytes: Size(1 << 20), max_bytes: Size(8 << 20), ..storage(durability) };
    Journal::on(Small::on(folder, force), &storage, 10, &cells()).unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_disk_is_forced_nobody_is_told_and_what_is_done_is_written_all_the_same() {
    static STUCK: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let journal = forcing(folder.path(), Durability::Sync, || {
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
    until(folder.path(), |all| all.open.len() == 2).await;
    // The disk still works on the second; that the first is done does not wait for it.
    journal.release(vec![(first, Claim::Trace(trace(1)))]);
    until(folder.path(), |all| all.open.len() == 1).await;
    assert!(!second.is_finished(), "told before it was forced to the disk");
    STUCK.store(false, Ordering::SeqCst);
    assert!(second.await.unwrap().is_some());
    journal.close().await;
}

#[tokio::test]
async fn what_cannot_be_forced_to_the_disk_is_refused_and_not_kept() {
    static WORKS: AtomicBool = AtomicBool::new(true);
    let folder = tempfile::tempdir().unwrap();
    let journal = forcing(folder.path(), Durability::Sync, || match WORKS.load(Ordering::SeqCst) {
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

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_to_a_file_that_could_not_be_forced_is_not_taken_for_kept() {
    static STUCK: AtomicBool = AtomicBool::new(false);
    static FAILS_ONCE: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    // As an operating system does, which tells of a failure once.
    let journal = forcing(folder.path(), Durability::Sync, || {
        while STUCK.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        match FAILS_ONCE.swap(false, Ordering::SeqCst) {
            true => Err(io::Error::other("the disk has gone")),
            false => Ok(()),
        }
    });
    let before = admit(&journal, 1).await.unwrap();
    STUCK.store(true, Ordering::SeqCst);
    FAILS_ONCE.store(true, Ordering::SeqCst);
    let ask = |t| {
        let journal = Arc::clone(&journal);
        tokio::spawn(async move { admit(&journal, t).await })
    };
    let first = ask(2);
    until(folder.path(), |all| all.open.len() == 2).await;
    let second = ask(3);
    until(folder.path(), |all| all.open.len() == 3).await;
    STUCK.store(false, Ordering::SeqCst);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (None, None));
    let after = admit(&journal, 4).await.unwrap();
    journal.close().await;
    let (_, recovered, _) = open(folder.path());
    assert_eq!(recovered.open.into_keys().collect::<Vec<_>>(), [before, after]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_force_serves_all_that_wait_for_it() {
    static FORCED: AtomicU64 = AtomicU64::new(0);
    let folder = tempfile::tempdir().unwrap();
    let journal = forcing(folder.path(), Durability::Sync, || {
        FORCED.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(50));
        Ok(())
    });
    let senders: Vec<_> = (0..64)
        .map(|t| {
            let journal = Arc::clone(&journal);
            tokio::spawn(async move { admit(&journal, t).await })
        })
        .collect();
    for sender in senders {
        assert!(sender.await.unwrap().is_some());
    }
    let forced = FORCED.load(Ordering::SeqCst);
    assert!((1..32).contains(&forced), "{forced} forces for 64 requests");
    journal.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_intervals_it_is_forced_without_anybody_waiting_and_with_none_it_never_is() {
    static INTERVAL: AtomicU64 = AtomicU64::new(0);
    static NONE: AtomicU64 = AtomicU64::new(0);
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let interval = forcing(folders[0].path(), Durability::Interval, || {
        INTERVAL.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let none = forcing(folders[1].path(), Durability::None, || {
        NONE.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    for round in 1..3 {
        assert!(admit(&interval, 1).await.is_some() && admit(&none, 1).await.is_some());
        for _ in 0..500 {
            if INTERVAL.load(Ordering::SeqCst) >= round {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(INTERVAL.load(Ordering::SeqCst) >= round);
    }
    interval.close().await;
    none.close().await;
    assert_eq!(NONE.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_request_that_was_kept_when_nobody_waited_any_more_is_given_up_too() {
    static STUCK: AtomicBool = AtomicBool::new(true);
    let folder = tempfile::tempdir().unwrap();
    let journal = forcing(folder.path(), Durability::Sync, || {
        while STUCK.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(())
    });
    let mut gone = Box::pin(admit(&journal, 1));
    // Asked, and not looked at again: when the answer comes, nobody takes it.
    tokio::select! {
        biased;
        _ = &mut gone => panic!("answered before it was forced to the disk"),
        () = std::future::ready(()) => {}
    }
    until(folder.path(), |all| all.open.len() == 1).await;
    STUCK.store(false, Ordering::SeqCst);
    // The second one is told after the first.
    assert!(admit(&journal, 2).await.is_some());
    drop(gone);
    until(folder.path(), |all| all.open.keys().eq(&[2])).await;
    journal.close().await;
}

#[tokio::test]
async fn a_disk_that_writes_and_does_not_force_is_in_trouble_until_it_does() {
    static WORKS: AtomicBool = AtomicBool::new(true);
    let folder = tempfile::tempdir().unwrap();
    let journal = forcing(folder.path(), Durability::Sync, || match WORKS.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err(io::Error::other("the disk has gone")),
    });
    assert!(admit(&journal, 1).await.is_some() && !journal.pressure());
    WORKS.store(false, Ordering::SeqCst);
    assert!(admit(&journal, 2).await.is_none());
    // It tries by itself, which goes wrong again and again.
    let mut calm = 0;
    for _ in 0..100 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        calm += usize::from(!journal.pressure());
    }
    assert!(calm < 5, "{calm} times it was said that all is well");
    WORKS.store(true, Ordering::SeqCst);
    until_calm(&journal).await;
    assert!(!journal.pressure() && admit(&journal, 3).await.is_some());
    journal.close().await;
}

#[test]
fn what_was_copied_and_could_not_be_forced_stays_where_it_was() {
    static WORKS: AtomicBool = AtomicBool::new(true);
    let folder = tempfile::tempdir().unwrap();
    let disk = Small::on(folder.path(), || match WORKS.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err(io::Error::other("the disk has gone")),
    });
    let limits = Limits { sync: true, ..limits() };
    let (mut log, ..) = Log::open(disk, limits).unwrap();
    let admit = |log: &mut Log<Small>, seq| {
        let frame = Frame::request(seq, Signal::Logs, &[Claim::Pass], vec![7; 500].into());
        let places = log.append(std::iter::once(&frame)).unwrap();
        log.keep(seq, places[0], frame.size() as u64, Claims::new(vec![Claim::Pass]));
    };
    admit(&mut log, 1);
    let mut over = Vec::new();
    for seq in 2..30 {
        admit(&mut log, seq);
        log.done(&[(seq, Claim::Pass)], &mut over);
    }
    log.append(std::iter::once(&Frame::done(&over))).unwrap();
    log.sync().unwrap();
    WORKS.store(false, Ordering::SeqCst);
    let first = folder.path().join("0000000000000001.log");
    for _ in 0..3 {
        assert!(log.reclaim(false).is_err());
        assert!(first.exists());
    }
    WORKS.store(true, Ordering::SeqCst);
    for _ in 0..50 {
        log.reclaim(false).unwrap();
    }
    assert!(!first.exists());
    assert!(matches!(log.read(1), Ok(Some(Record::Request { .. }))));
    drop(log);
    let (_, recovered, _) = open(folder.path());
    assert_eq!(recovered.passes.into_keys().collect::<Vec<_>>(), [1]);
}
