//! The outcome of items that cannot be delivered: with and without a dead letter, and in the journal.

use verdict_journal::{Journal, RetainReason, Storage};

use super::*;
use crate::telemetry::Telemetry;

#[derive(Debug)]
struct Case {
    /// Bytes that dead letters may take.
    cap: u64,
    /// Their directory exists.
    disk: bool,
    required: bool,
}

/// A stored request of two spans is refused for good. Returns their outcome, and whether the journal
/// still retains them.
async fn refused(case: &Case) -> (Outcome, bool) {
    let (stored, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cells = Telemetry::new().journal.clone();
    let open = || Journal::open(stored.path(), &Storage::default(), 0, &cells).unwrap();
    let (journal, _) = open();
    let parcel = parcel(&["a", "b"]);
    let body = parcel.pieces[0].bytes.clone();
    let seq = journal
        .append_request(Signal::Traces, vec![RetainReason::Forwarded], true, body)
        .await
        .unwrap()
        .accept();

    let sink = Sink::start(|_, _| TestResponse::code(Code::InvalidArgument)).await;
    let exporters = one("otlp_grpc", &sink, &format!("required: {}", case.required));
    let dead_letters = folder.path().join("dead_letters");
    std::fs::create_dir(&dead_letters).unwrap();
    exporters
        .set_dead_letters(&Arc::new(DeadLetters::open(&dead_letters, case.cap, Default::default()).unwrap()));
    if !case.disk {
        std::fs::remove_dir(&dead_letters).unwrap();
    }
    let receiving = exporters.receiving([&parcel], &[]);
    let delivery = Delivery::new(journal.clone(), seq, vec![(seq, RetainReason::Forwarded)], receiving);
    exporters.send_record(parcel, Some(&delivery)).await;
    delivery.dispatched();
    drain(&exporters).await;
    journal.close().await;

    let ledger = only(&exporters).ledger();
    let ended = [Outcome::Exported, Outcome::Dropped, Outcome::DeadLettered, Outcome::Stored, Outcome::Lost];
    let ended: Vec<Outcome> = ended.into_iter().filter(|&outcome| ledger.count(outcome) > 0).collect();
    assert_eq!((ended.len(), ledger.count(ended[0])), (1, 2), "{case:?}: {ended:?}");
    let dropped = only(&exporters).dropped(DropReason::Refused);
    assert_eq!(dropped, ledger.count(Outcome::Dropped), "{case:?}");
    (ended[0], open().1.forwarded.contains_key(&seq))
}

#[tokio::test(flavor = "multi_thread")]
async fn items_without_a_dead_letter_stay_in_the_journal() {
    let failing = Case { cap: 1 << 20, disk: false, required: true };
    assert_eq!(refused(&failing).await, (Outcome::Stored, true));
    // The journal does not wait for an exporter that is not required.
    let optional = Case { required: false, ..failing };
    assert_eq!(refused(&optional).await, (Outcome::Dropped, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_and_items_beyond_the_cap_leave_the_journal() {
    let letter = Case { cap: 1 << 20, disk: true, required: true };
    assert_eq!(refused(&letter).await, (Outcome::DeadLettered, false));
    let at_the_cap = Case { cap: 10, ..letter };
    assert_eq!(refused(&at_the_cap).await, (Outcome::Dropped, false));
}
