//! What becomes of items that are given up, by whether a dead letter can hold them, and of what the
//! journal has of them.

use super::*;
use crate::telemetry::Telemetry;
use verdict_journal::{Claim, Journal, Storage};

/// What a case begins with.
#[derive(Debug)]
struct Case {
    /// Bytes that letters may take.
    cap: u64,
    /// Their folder is there.
    disk: bool,
    required: bool,
}

/// A kept request of two spans is refused for good. How its spans ended, and whether the journal
/// still has them for the next start.
async fn refused(case: &Case) -> (Outcome, bool) {
    let (kept, buried) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cells = Telemetry::new().journal.clone();
    let open = || Journal::open(kept.path(), &Storage::default(), 0, &cells).unwrap();
    let (journal, _) = open();
    let parcel = parcel(&["a", "b"]);
    let body = parcel.pieces[0].bytes.clone();
    let seq = journal.admit(Signal::Traces, vec![Claim::Pass], body).await.unwrap().take();

    let sink = Sink::start(|_, _| Say::code(Code::InvalidArgument)).await;
    let exporters = one("otlp_grpc", &sink, &format!("required: {}", case.required));
    let letters = buried.path().join("letters");
    std::fs::create_dir(&letters).unwrap();
    exporters.keep_dead_letters(&Arc::new(Letters::open(&letters, case.cap, Default::default()).unwrap()));
    if !case.disk {
        std::fs::remove_dir(&letters).unwrap();
    }
    let takers = exporters.takers(&[Signal::Traces], &[]);
    let ticket = Ticket::new(&journal, seq, vec![(seq, Claim::Pass)], takers);
    exporters.send_kept(parcel, Some(&ticket)).await;
    ticket.handed_out();
    drain(&exporters).await;
    journal.close().await;

    let ledger = only(&exporters).ledger();
    let ended = [Outcome::Exported, Outcome::Dropped, Outcome::DeadLettered, Outcome::Stored, Outcome::Lost];
    let ended: Vec<Outcome> = ended.into_iter().filter(|&outcome| ledger.count(outcome) > 0).collect();
    assert_eq!((ended.len(), ledger.count(ended[0])), (1, 2), "{case:?}: {ended:?}");
    let dropped = only(&exporters).dropped(Dropped::Refused);
    assert_eq!(dropped, ledger.count(Outcome::Dropped), "{case:?}");
    (ended[0], open().1.passes.contains_key(&seq))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_dead_letter_could_be_written_of_stays_in_the_journal() {
    let failing = Case { cap: 1 << 20, disk: false, required: true };
    assert_eq!(refused(&failing).await, (Outcome::Stored, true));
    // Not for the sake of one that is not required: the journal does not wait for it.
    let optional = Case { required: false, ..failing };
    assert_eq!(refused(&optional).await, (Outcome::Dropped, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_or_a_cap_that_is_reached_ends_it() {
    let letter = Case { cap: 1 << 20, disk: true, required: true };
    assert_eq!(refused(&letter).await, (Outcome::DeadLettered, false));
    let at_the_cap = Case { cap: 10, ..letter };
    assert_eq!(refused(&at_the_cap).await, (Outcome::Dropped, false));
}
