//! Tests the outcome of items that are refused: as dead letters, dropped, or retained in the journal.

use verdict_journal::{Journal, RetainReason, Storage};

use super::*;
use crate::telemetry::Telemetry;

#[derive(Debug)]
struct Case {
    max_dead_letter_bytes: u64,
    /// Whether the directory of dead letters exists, so that they can be written.
    is_writable: bool,
    is_required: bool,
}

/// Sends a stored request of two spans, which is refused permanently. Returns their outcome, and whether the journal
/// still retains them.
async fn outcome_of_refused_request(case: &Case) -> (Outcome, bool) {
    let (journal_folder, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cells = Telemetry::new().journal.clone();
    let open = || Journal::open(journal_folder.path(), &Storage::default(), 0, &cells).unwrap();
    let (journal, _) = open();
    let parcel = parcel(&["a", "b"]);
    let body = parcel.pieces[0].bytes.clone();
    let seq = journal
        .append_request(Signal::Traces, vec![RetainReason::Forwarded], true, body)
        .await
        .unwrap()
        .accept();

    let sink = Sink::start(|_, _| TestResponse::code(Code::InvalidArgument)).await;
    let exporters = start_one("otlp_grpc", &sink, &format!("required: {}", case.is_required));
    let dead_letters = folder.path().join("dead_letters");
    std::fs::create_dir(&dead_letters).unwrap();
    exporters.set_dead_letters(&Arc::new(
        DeadLetters::open(&dead_letters, case.max_dead_letter_bytes, Default::default()).unwrap(),
    ));
    if !case.is_writable {
        std::fs::remove_dir(&dead_letters).unwrap();
    }
    let receiving = exporters.exporters_for([&parcel], &[]);
    let delivery = Delivery::new(journal.clone(), seq, vec![(seq, RetainReason::Forwarded)], receiving);
    exporters.send_record(parcel, Some(&delivery)).await;
    delivery.dispatched();
    drain(&exporters).await;
    journal.close().await;

    let ledger = only(&exporters).ledger();
    let outcomes =
        [Outcome::Exported, Outcome::Dropped, Outcome::DeadLettered, Outcome::Stored, Outcome::Lost];
    let outcomes: Vec<Outcome> = outcomes.into_iter().filter(|&outcome| ledger.count(outcome) > 0).collect();
    assert_eq!((outcomes.len(), ledger.count(outcomes[0])), (1, 2), "{case:?}: {outcomes:?}");
    let dropped = only(&exporters).dropped(DropReason::Refused);
    assert_eq!(dropped, ledger.count(Outcome::Dropped), "{case:?}");
    (outcomes[0], open().1.forwarded.contains_key(&seq))
}

#[tokio::test(flavor = "multi_thread")]
async fn items_without_a_dead_letter_stay_in_the_journal() {
    let failing = Case { max_dead_letter_bytes: 1 << 20, is_writable: false, is_required: true };
    assert_eq!(outcome_of_refused_request(&failing).await, (Outcome::Stored, true));
    // The journal does not retain items for an exporter that is not required.
    let optional = Case { is_required: false, ..failing };
    assert_eq!(outcome_of_refused_request(&optional).await, (Outcome::Dropped, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_and_items_above_the_size_limit_leave_the_journal() {
    let writable = Case { max_dead_letter_bytes: 1 << 20, is_writable: true, is_required: true };
    assert_eq!(outcome_of_refused_request(&writable).await, (Outcome::DeadLettered, false));
    let full = Case { max_dead_letter_bytes: 10, ..writable };
    assert_eq!(outcome_of_refused_request(&full).await, (Outcome::Dropped, false));
}
