//! When the journal fsyncs, and the consequences of a failed fsync.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::failing::{Small, admit, storage, until, until_calm};
use super::*;

/// A journal whose every fsync calls `sync` first.
fn syncing(folder: &Path, durability: Durability, sync: fn() -> io::Result<()>) -> Arc<Journal> {
    let storage = Storage { segment_bytes: Size(1 << 20), max_bytes: Size(8 << 20), ..storage(durability) };
    Journal::on(Small::on(folder, sync), &storage, 10, &metrics()).unwrap().0
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
    until(folder.path(), |all| all.open.len() == 2).await;
    // The fsync of the second still runs; the release of the first does not wait for it.
    journal.release(vec![(first, RetainReason::Trace(trace(1)))]);
    until(folder.path(), |all| all.open.len() == 1).await;
    assert!(!second.is_finished(), "acknowledged before the fsync");
    STUCK.store(false, Ordering::SeqCst);
    assert!(second.await.unwrap().is_some());
    journal.close().await;
}

#[tokio::test]
async fn a_request_whose_fsync_fails_is_refused_and_not_recovered() {
    static WORKS: AtomicBool = AtomicBool::new(true);
    static FAILED: AtomicUsize = AtomicUsize::new(0);
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
    until_calm(&journal).await;
    assert!(!journal.pressure() && admit(&journal, 3).await.is_some());
    journal.close().await;
}

/// Appends and syncs 29 requests, and releases all but the first: the oldest segment has one retained record, so
/// that it is rewritten.
fn fill_segments(log: &mut Log<Small>) {
    let mut unwritten = Vec::new();
    for seq in 1..30 {
        let frame =
            Frame::request(seq, Signal::Logs, &[RetainReason::PassThrough], true, vec![7; 500].into());
        let places = log.append(std::iter::once(&frame)).unwrap();
        log.insert(seq, places[0], frame.size() as u64, RetainReasons::new(vec![RetainReason::PassThrough]));
        if seq > 1 {
            log.release(&[(seq, RetainReason::PassThrough)], &mut unwritten);
        }
    }
    log.append(std::iter::once(&Frame::released(&unwritten))).unwrap();
    log.sync().unwrap();
}

#[test]
fn records_whose_copies_could_not_be_fsynced_stay_where_they_were() {
    static WORKS: AtomicBool = AtomicBool::new(true);
    let folder = tempfile::tempdir().unwrap();
    let disk = Small::on(folder.path(), || match WORKS.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err(io::Error::other("injected fsync error")),
    });
    let limits = Limits { sync: true, ..limits() };
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
    assert!(matches!(log.read(1), Ok(Some(Record::Request { .. }))));
    drop(log);
    let (_, recovered, _) = open(folder.path());
    assert_eq!(recovered.passes.into_keys().collect::<Vec<_>>(), [1]);
}

#[test]
fn after_a_failed_fsync_an_inline_fsync_of_the_same_file_fails_as_well() {
    static FAILS_ONCE: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    // Linux reports a failed write to the disk once.
    let disk = Small::on(folder.path(), || match FAILS_ONCE.swap(false, Ordering::SeqCst) {
        true => Err(io::Error::other("injected fsync error")),
        false => Ok(()),
    });
    let (mut log, ..) = Log::open(disk, Limits { sync: true, ..limits() }).unwrap();
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
    assert!(matches!(log.read(1), Ok(Some(Record::Request { .. }))));
}
