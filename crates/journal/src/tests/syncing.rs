//! When the journal fsyncs, and the consequences of a failed fsync.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::failing::{FaultyDisk, admit, storage, until_no_pressure, until_recoverable};
use super::*;

/// A journal whose every fsync calls `sync` first.
fn syncing(folder: &Path, durability: Durability, sync: fn() -> io::Result<()>) -> Arc<Journal> {
    let storage = Storage { segment_bytes: Size(1 << 20), max_bytes: Size(8 << 20), ..storage(durability) };
    Journal::with_disk(FaultyDisk::new(folder, sync), &storage, 10, &metrics()).unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn during_an_fsync_no_sender_is_acknowledged_and_releases_are_written() {
    static STUCK: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let journal = syncing(folder.path(), Durability::Sync, || {
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
    until_recoverable(folder.path(), |all| all.open.len() == 2).await;
    // The fsync of the second still runs; the release of the first does not wait for it.
    journal.release(vec![(first, RetainReason::Trace(trace(1)))]);
    until_recoverable(folder.path(), |all| all.open.len() == 1).await;
    assert!(!second.is_finished(), "acknowledged before the fsync");
    STUCK.store(false, Ordering::SeqCst);
    assert!(second.await.unwrap().is_some());
    journal.close().await;
}

#[tokio::test]
async fn a_request_whose_fsync_fails_is_refused_and_not_recovered() {
    static WORKS: AtomicBool = AtomicBool::new(true);
    let folder = tempfile::tempdir().unwrap();
    let journal = syncing(folder.path(), Durability::Sync, || match WORKS.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err(io::Error::other("injected fsync error")),
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
async fn after_a_failed_fsync_a_second_one_of_the_same_file_does_not_count() {
    static STUCK: AtomicBool = AtomicBool::new(false);
    static FAILS_ONCE: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    // Linux reports a failed write to the disk once.
    let journal = syncing(folder.path(), Durability::Sync, || {
        while STUCK.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        match FAILS_ONCE.swap(false, Ordering::SeqCst) {
            true => Err(io::Error::other("injected fsync error")),
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
    until_recoverable(folder.path(), |all| all.open.len() == 2).await;
    let second = ask(3);
    until_recoverable(folder.path(), |all| all.open.len() == 3).await;
    STUCK.store(false, Ordering::SeqCst);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (None, None));
    let after = admit(&journal, 4).await.unwrap();
    journal.close().await;
    let (_, recovered, _) = open(folder.path());
    assert_eq!(recovered.open.into_keys().collect::<Vec<_>>(), [before, after]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_fsync_serves_all_requests_that_wait_for_it() {
    static SYNCED: AtomicU64 = AtomicU64::new(0);
    static STUCK: AtomicBool = AtomicBool::new(true);
    let folder = tempfile::tempdir().unwrap();
    let journal = syncing(folder.path(), Durability::Sync, || {
        SYNCED.fetch_add(1, Ordering::SeqCst);
        while STUCK.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(())
    });
    let senders: Vec<_> = (0..64)
        .map(|t| {
            let journal = Arc::clone(&journal);
            tokio::spawn(async move { admit(&journal, t).await })
        })
        .collect();
    // All are written during the first fsync.
    until_recoverable(folder.path(), |all| all.open.len() == 64).await;
    STUCK.store(false, Ordering::SeqCst);
    for sender in senders {
        assert!(sender.await.unwrap().is_some());
    }
    let synced = SYNCED.load(Ordering::SeqCst);
    assert!((1..4).contains(&synced), "{synced} fsyncs for 64 requests");
    journal.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_interval_it_syncs_without_a_waiting_sender_and_with_none_never() {
    static INTERVAL_SYNCS: AtomicU64 = AtomicU64::new(0);
    static NONE_SYNCS: AtomicU64 = AtomicU64::new(0);
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let interval = syncing(folders[0].path(), Durability::Interval, || {
        INTERVAL_SYNCS.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let none = syncing(folders[1].path(), Durability::None, || {
        NONE_SYNCS.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    for round in 1..3 {
        assert!(admit(&interval, 1).await.is_some() && admit(&none, 1).await.is_some());
        for _ in 0..18_000 {
            if INTERVAL_SYNCS.load(Ordering::SeqCst) >= round {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(INTERVAL_SYNCS.load(Ordering::SeqCst) >= round);
    }
    interval.close().await;
    none.close().await;
    assert_eq!(NONE_SYNCS.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_request_cancelled_during_the_fsync_is_discarded() {
    static STUCK: AtomicBool = AtomicBool::new(true);
    let folder = tempfile::tempdir().unwrap();
    let journal = syncing(folder.path(), Durability::Sync, || {
        while STUCK.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(())
    });
    let mut cancelled = Box::pin(admit(&journal, 1));
    // Polled once: when the reply comes, nothing receives it.
    tokio::select! {
        biased;
        _ = &mut cancelled => panic!("answered before the fsync"),
        () = std::future::ready(()) => {}
    }
    until_recoverable(folder.path(), |all| all.open.len() == 1).await;
    STUCK.store(false, Ordering::SeqCst);
    // The second is answered after the first.
    assert!(admit(&journal, 2).await.is_some());
    drop(cancelled);
    until_recoverable(folder.path(), |all| all.open.keys().eq(&[2])).await;
    journal.close().await;
}

#[tokio::test]
async fn a_disk_that_writes_but_does_not_fsync_exerts_pressure_until_it_does() {
    static WORKS: AtomicBool = AtomicBool::new(true);
    static FAILED: AtomicU64 = AtomicU64::new(0);
    let folder = tempfile::tempdir().unwrap();
    let journal = syncing(folder.path(), Durability::Sync, || match WORKS.load(Ordering::SeqCst) {
        true => Ok(()),
        false => {
            FAILED.fetch_add(1, Ordering::SeqCst);
            Err(io::Error::other("injected fsync error"))
        }
    });
    assert!(admit(&journal, 1).await.is_some() && !journal.pressure());
    WORKS.store(false, Ordering::SeqCst);
    assert!(admit(&journal, 2).await.is_none());
    // The caller may know of the failure before the writer does.
    while !journal.pressure() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    // The journal retries, and each fsync fails.
    let before = FAILED.load(Ordering::SeqCst);
    while FAILED.load(Ordering::SeqCst) < before + 5 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert!(journal.pressure());
    }
    WORKS.store(true, Ordering::SeqCst);
    until_no_pressure(&journal).await;
    assert!(!journal.pressure() && admit(&journal, 3).await.is_some());
    journal.close().await;
}

/// Appends and syncs 29 requests, and releases all but the first: the oldest segment has one retained record, so
/// that it is rewritten.
fn fill_segments(log: &mut Log<FaultyDisk>) {
    let mut unwritten = Vec::new();
    for seq in 1..30 {
        let frame = Frame::request(seq, Signal::Logs, &[RetainReason::Forwarded], true, vec![7; 500].into());
        let places = log.append(std::iter::once(&frame)).unwrap();
        log.insert(seq, places[0], frame.size() as u64, RetainReasons::new(vec![RetainReason::Forwarded]));
        if seq > 1 {
            log.release(&[(seq, RetainReason::Forwarded)], &mut unwritten);
        }
    }
    log.append(std::iter::once(&Frame::released(&unwritten))).unwrap();
    log.sync().unwrap();
}

#[test]
fn records_whose_copies_could_not_be_fsynced_stay_where_they_were() {
    static WORKS: AtomicBool = AtomicBool::new(true);
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(folder.path(), || match WORKS.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err(io::Error::other("injected fsync error")),
    });
    let limits = LogLimits { sync: true, ..limits() };
    let (mut log, ..) = Log::open(disk, limits).unwrap();
    fill_segments(&mut log);
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
    assert!(matches!(log.read(1), Ok(Some(JournalRecord::Request { .. }))));
    drop(log);
    let (_, recovered, _) = open(folder.path());
    assert_eq!(recovered.forwarded.into_keys().collect::<Vec<_>>(), [1]);
}

#[test]
fn after_a_failed_fsync_an_inline_fsync_of_the_same_file_fails_as_well() {
    static FAILS_ONCE: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    // Linux reports a failed write to the disk once.
    let disk = FaultyDisk::new(folder.path(), || match FAILS_ONCE.swap(false, Ordering::SeqCst) {
        true => Err(io::Error::other("injected fsync error")),
        false => Ok(()),
    });
    let (mut log, ..) = Log::open(disk, LogLimits { sync: true, ..limits() }).unwrap();
    fill_segments(&mut log);
    log.append(std::iter::once(&Frame::acked(1, "a"))).unwrap();
    // The sync thread fails, and the log has not received the result when it rewrites the segment.
    FAILS_ONCE.store(true, Ordering::SeqCst);
    let (files, _) = log.begin_sync().unwrap();
    assert!(disk::fsync_all(&files).is_err());
    let first = folder.path().join("0000000000000001.log");
    assert!(log.reclaim(false).is_err(), "the copies count as fsynced");
    assert!(first.exists());
    // The next copies are in another segment.
    log.abandon_segment();
    for _ in 0..50 {
        log.reclaim(false).unwrap();
        let (files, up_to) = log.begin_sync().unwrap();
        disk::fsync_all(&files).unwrap();
        log.sync_completed(up_to);
    }
    assert!(!first.exists());
    assert!(matches!(log.read(1), Ok(Some(JournalRecord::Request { .. }))));
}
