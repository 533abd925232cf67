//! The markers that the next start reads, also from damaged files.

use std::cell::Cell;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::time::Duration;

use super::*;

fn trace(n: u8) -> TraceId {
    TraceId([n; 16])
}

/// The start of the next process; every trace is open in its journal.
fn open(folder: &Path) -> EvaluationMarkers {
    EvaluationMarkers::open(folder, |_| true)
}

/// The output of a future that is ready at its first poll.
fn if_ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(out) => Some(out),
        Poll::Pending => None,
    }
}

/// The process dies while it evaluates this trace.
async fn die(markers: EvaluationMarkers, n: u8) {
    std::mem::forget(markers.enter(trace(n)).await);
}

#[tokio::test]
async fn a_trace_is_a_suspect_after_one_death_and_quarantined_after_two() {
    let folder = tempfile::tempdir().unwrap();
    die(open(folder.path()), 1).await;
    let second = open(folder.path());
    assert!(
        second.is_suspect(trace(1))
            && !second.is_quarantined(trace(1))
            && !second.is_suspect_or_quarantined(trace(2))
    );
    die(second, 1).await;
    let third = open(folder.path());
    assert!(!third.is_suspect(trace(1)) && third.is_quarantined(trace(1)));
    // Quarantine lasts over restarts, for late spans.
    drop(third);
    assert!(EvaluationMarkers::open(folder.path(), |_| false).is_quarantined(trace(1)));
}

#[tokio::test]
async fn a_finished_section_is_not_counted_and_a_death_is_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    drop(first.enter(trace(1)).await);
    first.watch(trace(2), tokio::time::sleep(Duration::from_millis(1))).await;
    die(first, 3).await;
    for _ in 0..3 {
        let restarted = open(folder.path());
        assert!(
            !restarted.is_suspect_or_quarantined(trace(1)) && !restarted.is_suspect_or_quarantined(trace(2))
        );
        assert!(restarted.is_suspect(trace(3)) && !restarted.is_quarantined(trace(3)));
    }
}

#[tokio::test]
async fn waiting_is_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    let recorded = || (0..MAX_FILES).map(|n| read_slots(&slot_file(folder.path(), n)).len()).sum::<usize>();
    let polled = Cell::new(0);
    let mut work = pin!(first.watch(
        trace(1),
        poll_fn(|_| {
            polled.set(polled.get() + 1);
            assert_eq!(recorded(), 1, "while it is polled");
            Poll::<()>::Pending
        })
    ));
    for _ in 0..3 {
        assert!(work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(recorded(), 0, "while it waits");
    }
    assert!(polled.get() > 0);
}

#[tokio::test]
async fn after_close_no_section_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    let section = first.enter(trace(1)).await;
    first.close();
    std::mem::forget(section);
    std::mem::forget(first.enter(trace(2)).await);
    let second = open(folder.path());
    assert!(!second.is_suspect_or_quarantined(trace(1)) && !second.is_suspect_or_quarantined(trace(2)));
}

#[tokio::test]
async fn an_evaluated_suspect_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    die(open(folder.path()), 1).await;
    let second = open(folder.path());
    let section = second.enter(trace(1)).await;
    second.evaluated(trace(1));
    drop(section);
    assert!(!second.is_suspect(trace(1)));
    die(second, 1).await;
    assert!(open(folder.path()).is_suspect(trace(1)));
}

#[tokio::test]
async fn a_trace_that_will_not_be_evaluated_again_is_no_suspect() {
    let folder = tempfile::tempdir().unwrap();
    die(open(folder.path()), 1).await;
    assert!(!EvaluationMarkers::open(folder.path(), |_| false).is_suspect(trace(1)));
    assert!(!open(folder.path()).is_suspect(trace(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspect_is_evaluated_alone() {
    let folder = tempfile::tempdir().unwrap();
    die(open(folder.path()), 1).await;
    let second = Arc::new(open(folder.path()));
    let other = second.enter(trace(2)).await;
    // Other traces are evaluated concurrently; the suspect waits for them.
    drop(second.enter(trace(3)).await);
    assert!(if_ready(second.enter(trace(1))).is_none());
    drop(other);
    let alone = second.enter(trace(1)).await;
    assert!(if_ready(second.enter(trace(2))).is_none());
    assert!(second.blocking_section_lock.try_read().is_err(), "nor does a section on another thread begin");
    let blocked = Arc::clone(&second);
    let thread = tokio::task::spawn_blocking(move || blocked.run(trace(4), || ()));
    // Only the suspect is recorded.
    let slots: Vec<_> = (0..MAX_FILES).flat_map(|n| read_slots(&slot_file(folder.path(), n))).collect();
    assert_eq!(slots.iter().map(|slot| slot.trace).collect::<Vec<_>>(), [trace(1)]);
    drop(alone);
    thread.await.unwrap();
    drop(second.enter(trace(2)).await);
}

#[tokio::test]
async fn intact_entries_of_damaged_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let list = SuspectList {
        generation: 7,
        boot_id_hash: 0,
        traces: [(trace(1), 1), (trace(2), 2), (trace(3), 1)].into(),
    };
    list.write(folder.path()).unwrap();
    assert_eq!(SuspectList::read(folder.path()), list);
    let bytes = list.encode();
    for len in 0..bytes.len() {
        let cut = SuspectList::decode(&bytes[..len]).unwrap_or_default();
        assert!(cut.traces.iter().all(|entry| list.traces.iter().any(|one| one == entry)), "{len}");
        assert_eq!(cut.traces.len(), len.saturating_sub(HEADER_SIZE) / ENTRY_SIZE, "{len}");
    }
    for index in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[index] ^= 0x10;
        let read = SuspectList::decode(&flipped).unwrap_or_default();
        assert_eq!(read.traces.len(), if index < HEADER_SIZE { 0 } else { 2 }, "{index}");
    }
    // One slot is truncated, another overwritten. The next file is intact.
    let slot = |n| encode(SlotEntry { trace: trace(n), generation: 7, state: BEGUN });
    let mut first = [slot(1), vec![0xff; SLOT_SIZE], slot(4), slot(5)].concat();
    first.truncate(first.len() - 1);
    fs::write(slot_file(folder.path(), 0), first).unwrap();
    fs::write(slot_file(folder.path(), 1), slot(6)).unwrap();
    // An older generation was counted by an earlier start.
    let older_slot = encode(SlotEntry { trace: trace(8), generation: 6, state: BEGUN });
    fs::write(slot_file(folder.path(), 2), older_slot).unwrap();
    let markers = open(folder.path());
    let suspects: Vec<u8> = (0..10).filter(|&n| markers.is_suspect(trace(n))).collect();
    assert_eq!(suspects, [3, 4, 6]);
    let quarantined: Vec<u8> = (0..10).filter(|&n| markers.is_quarantined(trace(n))).collect();
    assert_eq!(quarantined, [1, 2]);
}

#[tokio::test]
async fn without_the_list_suspects_are_found_in_the_slots() {
    let folder = tempfile::tempdir().unwrap();
    die(open(folder.path()), 1).await;
    fs::write(folder.path().join("suspects"), b"garbage").unwrap();
    assert!(open(folder.path()).is_suspect(trace(1)));
}

#[tokio::test]
async fn the_list_is_bounded_and_so_are_the_slots() {
    let folder = tempfile::tempdir().unwrap();
    let id = |n: usize| TraceId(((n + 1) as u128).to_be_bytes());
    let traces = (0..MAX_TRACES * 2).map(|n| (id(n), 2)).collect();
    let bytes = SuspectList { generation: 1, boot_id_hash: 0, traces }.encode();
    fs::write(folder.path().join("suspects"), bytes).unwrap();
    assert_eq!(open(folder.path()).quarantined.len(), MAX_TRACES);
    let markers = open(folder.path());
    let mut all = Vec::new();
    for n in 0..MAX_TRACES + 10 {
        all.push(markers.enter(id(MAX_TRACES * 3 + n)).await);
    }
    assert_eq!(
        all.iter().filter(|section| section.slot.is_some()).count(),
        markers.files.len() * SLOTS_PER_FILE
    );
    all.clear();
    assert!(markers.enter(trace(1)).await.slot.is_some());
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let markers = open(&folder.path().join("missing"));
    assert_eq!(markers.watch(trace(1), async { 7 }).await, 7);
    assert_eq!(markers.run(trace(1), || 8), 8);
    markers.evaluated(trace(1));
    markers.close();
}

#[test]
fn nothing_is_recorded_without_a_journal() {
    let markers = EvaluationMarkers::default();
    assert_eq!(markers.run(trace(1), || 8), 8);
    assert!(!markers.is_suspect_or_quarantined(trace(1)));
}

#[test]
fn an_announced_section_counts_only_after_a_power_cut() {
    let entries = [SlotEntry { trace: trace(1), generation: 7, state: ANNOUNCED }];
    for (now, deaths) in [(3, 1), (4, 2)] {
        let list = SuspectList { generation: 7, boot_id_hash: 3, traces: [(trace(1), 1)].into() };
        let new_list = list.count_deaths(&entries, now, |_| true);
        assert_eq!(
            new_list,
            SuspectList { generation: 8, boot_id_hash: now, traces: [(trace(1), deaths)].into() }
        );
    }
}

#[tokio::test]
async fn sections_begin_while_a_suspect_waits_for_a_long_one() {
    let folder = tempfile::tempdir().unwrap();
    die(open(folder.path()), 1).await;
    let second = Arc::new(open(folder.path()));
    let (begun_sender, begun_receiver) = mpsc::channel();
    let (end_sender, end_receiver) = mpsc::channel::<()>();
    let long = Arc::clone(&second);
    let thread = std::thread::spawn(move || {
        long.run(trace(2), || {
            begun_sender.send(()).unwrap();
            end_receiver.recv().unwrap();
        });
    });
    begun_receiver.recv().unwrap();
    let mut suspect = pin!(second.enter(trace(1)));
    for n in 3..10 {
        assert!(suspect.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(if_ready(second.enter(trace(n))).is_some(), "a shard waits for the section of another trace");
    }
    end_sender.send(()).unwrap();
    thread.join().unwrap();
    let alone = suspect.await;
    assert!(if_ready(second.enter(trace(3))).is_none());
    drop(alone);
}
