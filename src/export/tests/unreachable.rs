//! Destinations that are unavailable, flap, or are slow for hours, with paused time.

use std::sync::Mutex;

use verdict_config::Period;

use super::*;
use crate::export::config::RetryOnFailure;

/// The response of a destination at a time after the start.
type Script = fn(Duration) -> ExportResult;

/// A destination without a network.
#[derive(Debug)]
struct ScriptedClient {
    began: Instant,
    script: Script,
    takes: Duration,
    /// Times of the requests, and whether each was accepted.
    asked: Arc<Mutex<Vec<(Duration, bool)>>>,
}

impl ExportClient for ScriptedClient {
    fn export<'a>(&'a self, _: &'a ExportRequest) -> ExportFuture<'a> {
        Box::pin(async {
            tokio::time::sleep(self.takes).await;
            let at = self.began.elapsed();
            let result = (self.script)(at);
            self.asked.lock().unwrap().push((at, matches!(result, ExportResult::Accepted { .. })));
            ExportResponse { status: "scripted", result }
        })
    }
}

fn accepted() -> ExportResult {
    ExportResult::ACCEPTED
}

fn unsupported() -> ExportResult {
    ExportResult::Unsupported("scripted".to_owned())
}

fn retry_later(after: Option<Duration>) -> ExportResult {
    ExportResult::Retry { after, reason: "scripted".to_owned() }
}

const fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

/// An exporter to a scripted destination, and its requests.
struct UnreachableDestination {
    exporters: Exporters,
    asked: Arc<Mutex<Vec<(Duration, bool)>>>,
}

impl UnreachableDestination {
    fn new(script: Script, takes: Duration, retry: RetryOnFailure, queue: u64) -> UnreachableDestination {
        let exporter = Exporter::new("otlp_grpc", true, &Signal::ALL, queue);
        let asked = Arc::default();
        let client = ScriptedClient { began: Instant::now(), script, takes, asked: Arc::clone(&asked) };
        let transport = ReloadableClient::new(Arc::new(client), Duration::MAX);
        let (packing, grouping) = (Packing::UNCOMPRESSED, RequestGrouping::UpTo(4 << 20));
        let consumer = Consumer { exporter: Arc::new(exporter), transport, packing, grouping, retry };
        UnreachableDestination { exporters: Exporters::run(vec![(consumer, 4)], &context()), asked }
    }

    /// Sends one span per second for `time`.
    async fn send_for(&self, time: Duration) -> u64 {
        self.send_each_second(&parcel(&["s"]), time).await
    }

    async fn send_each_second(&self, parcel: &Parcel, time: Duration) -> u64 {
        let began = Instant::now();
        let mut sent = 0;
        while began.elapsed() < time {
            self.exporters.send_record(parcel.clone(), None).await;
            sent += 1;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        sent
    }

    /// Waits until every span has its outcome: (exported, dropped), the number of requests, and the time of the
    /// last one.
    async fn end(self) -> ((u64, u64), usize, Duration) {
        self.exporters.drain(Instant::now() + minutes(600)).await;
        let asked = self.asked.lock().unwrap().clone();
        let last = asked.last().map(|(at, _)| *at).unwrap_or_default();
        (ended(only(&self.exporters)), asked.len(), last)
    }
}

fn endless() -> RetryOnFailure {
    RetryOnFailure { max_elapsed_time: Period::secs(0), ..RetryOnFailure::default() }
}

#[tokio::test(start_paused = true)]
async fn destination_unreachable_for_minutes_loses_nothing_and_is_not_flooded() {
    let script = |at| if at < minutes(4) { retry_later(None) } else { accepted() };
    let unreachable = UnreachableDestination::new(script, Duration::ZERO, RetryOnFailure::default(), 1 << 20);
    let sent = unreachable.send_for(minutes(3)).await;
    let (ended, asked, last) = unreachable.end().await;
    assert_eq!((sent, ended), (180, (180, 0)));
    // Four consumers whose waits grow from 5 s to 30 s, give or take half.
    assert!(asked < 4 * 30, "asked {asked} times");
    assert!(
        last < minutes(4) + Duration::from_secs(45),
        "delivered soon after the destination returned: {last:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn destination_unreachable_for_hours_is_retried_without_max_elapsed_time() {
    let script = |at| if at < minutes(300) { retry_later(None) } else { accepted() };
    let unreachable = UnreachableDestination::new(script, Duration::ZERO, endless(), 1 << 20);
    let sent = unreachable.send_for(minutes(10)).await;
    let (ended, _, _) = unreachable.end().await;
    assert_eq!(ended, (sent, 0));
}

#[tokio::test(start_paused = true)]
async fn destination_unreachable_beyond_max_elapsed_time_drops_or_dead_letters() {
    for letters in [false, true] {
        let unreachable = UnreachableDestination::new(
            |_| retry_later(None),
            Duration::ZERO,
            RetryOnFailure::default(),
            1 << 20,
        );
        let folder = tempfile::tempdir().unwrap();
        if letters {
            let letters = DeadLetters::open(folder.path(), 1 << 20, Default::default()).unwrap();
            unreachable.exporters.set_dead_letters(&Arc::new(letters));
        }
        unreachable.exporters.send_record(parcel(&["a", "b"]), None).await;
        unreachable.exporters.drain(Instant::now() + minutes(600)).await;
        let exporter = only(&unreachable.exporters);
        let count = |outcome| exporter.ledger().count(outcome);
        let (dropped, dead_lettered) = if letters { (0, 2) } else { (2, 0) };
        assert_eq!((count(Outcome::Dropped), count(Outcome::DeadLettered)), (dropped, dead_lettered));
        assert_eq!(exporter.dropped(DropReason::RetriesEnded), dropped);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), usize::from(letters));
        let last = unreachable.asked.lock().unwrap().last().unwrap().0;
        assert!(last > minutes(4) && last <= minutes(5), "retried for five minutes: {last:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn destination_flapping_for_an_hour_receives_everything() {
    // Ten seconds up, ten seconds down.
    let script = |at: Duration| if at.as_secs() / 10 % 2 == 1 { accepted() } else { retry_later(None) };
    // With a limit on retries, a batch that fails a dozen times would not arrive.
    let unreachable = UnreachableDestination::new(script, Duration::from_millis(50), endless(), 1 << 20);
    let sent = unreachable.send_for(minutes(60)).await;
    let (ended, asked, last) = unreachable.end().await;
    assert_eq!(ended, (sent, 0));
    assert!(asked < 2 * 3600 && last < minutes(75), "asked {asked} times until {last:?}");
}

#[tokio::test(start_paused = true)]
async fn slow_destination_causes_back_pressure_and_receives_everything() {
    // The queue holds some thirty parcels; each request takes forty seconds.
    let unreachable =
        UnreachableDestination::new(|_| accepted(), Duration::from_secs(40), RetryOnFailure::default(), 2048);
    let began = Instant::now();
    let mut pressed = 0;
    for _ in 0..200 {
        unreachable.exporters.send_record(parcel(&["s"]), None).await;
        pressed += u32::from(unreachable.exporters.pressure().is_some());
    }
    assert!(pressed > 5, "pressure was seen {pressed} times");
    assert!(began.elapsed() > minutes(3), "senders waited for {:?} only", began.elapsed());
    assert!(only(&unreachable.exporters).queued_bytes() <= 2048);
    let (ended, _, _) = unreachable.end().await;
    assert_eq!(ended, (200, 0));
}

#[tokio::test(start_paused = true)]
async fn retry_delay_of_the_destination_is_respected() {
    let script = |at| if at < minutes(2) { retry_later(Some(minutes(2))) } else { accepted() };
    let unreachable = UnreachableDestination::new(script, Duration::ZERO, RetryOnFailure::default(), 1 << 20);
    unreachable.exporters.send_record(parcel(&["s"]), None).await;
    let asked = Arc::clone(&unreachable.asked);
    let (ended, _, last) = unreachable.end().await;
    assert_eq!((ended, asked.lock().unwrap().len()), ((1, 0), 2));
    assert!(last >= minutes(2) && last < minutes(2) + Duration::from_secs(1), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn permanent_rejections_are_not_retried() {
    let refusals: [Script; 2] = [
        |_| ExportResult::Rejected("configured response".to_owned()),
        |_| ExportResult::Unsupported("configured response".to_owned()),
    ];
    for script in refusals {
        let unreachable = UnreachableDestination::new(script, Duration::ZERO, endless(), 1 << 20);
        unreachable.exporters.send_record(parcel(&["a", "b"]), None).await;
        let (ended, asked, last) = unreachable.end().await;
        assert_eq!((ended, asked), ((0, 2), 1));
        assert!(last < Duration::from_secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn signal_that_was_once_unsupported_is_sent_again() {
    let script = |at: Duration| if at.as_secs() == 1 { unsupported() } else { accepted() };
    for letters in [false, true] {
        let unreachable = UnreachableDestination::new(script, Duration::ZERO, endless(), 1 << 20);
        let folder = tempfile::tempdir().unwrap();
        if letters {
            let letters = DeadLetters::open(folder.path(), 1 << 20, Default::default()).unwrap();
            unreachable.exporters.set_dead_letters(&Arc::new(letters));
        }
        assert_eq!(unreachable.send_each_second(&logs(1), Duration::from_secs(10)).await, 10);
        assert!(unreachable.exporters.accepts(Signal::Logs) && !unreachable.exporters.delivers(Signal::Logs));
        assert_eq!(unreachable.send_for(Duration::from_secs(10)).await, 10);
        assert_eq!(unreachable.asked.lock().unwrap().len(), 12, "two requests of log records, and all spans");
        unreachable.send_each_second(&logs(1), Duration::from_secs(40)).await;
        assert!(unreachable.exporters.delivers(Signal::Logs));
        unreachable.exporters.drain(Instant::now() + minutes(600)).await;
        let exporter = only(&unreachable.exporters);
        // One is accepted. Unsupported for 30 s: in the first 9 of them, and 10 s later, a record per second.
        let count = |outcome| exporter.ledger().count(outcome);
        let (dropped, dead_lettered) = if letters { (0, 20) } else { (20, 0) };
        assert_eq!((count(Outcome::Exported), count(Outcome::Lost)), (10 + 30, 0));
        assert_eq!((count(Outcome::Dropped), count(Outcome::DeadLettered)), (dropped, dead_lettered));
        assert_eq!(exporter.dropped(DropReason::Unsupported), dropped);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), usize::from(letters));
    }
}

#[tokio::test(start_paused = true)]
async fn signal_that_is_never_supported_is_sent_every_half_minute() {
    let unreachable = UnreachableDestination::new(|_| unsupported(), Duration::ZERO, endless(), 1 << 20);
    let sent = unreachable.send_each_second(&logs(1), minutes(10)).await;
    let (ended, asked, _) = unreachable.end().await;
    assert_eq!((ended, asked), ((0, sent), 20));
}

#[tokio::test(start_paused = true)]
async fn signal_that_is_unsupported_from_the_start_becomes_dead_letters_of_bounded_size() {
    const MIB: usize = 1 << 20;
    // The route is missing for two minutes, or for ever.
    let (late, never): (Script, Script) =
        (|at| if at < minutes(2) { unsupported() } else { accepted() }, |_| unsupported());
    for (script, large, bytes) in [(late, false, 0..MIB), (never, true, 15 * MIB..17 * MIB)] {
        let unreachable = UnreachableDestination::new(script, Duration::ZERO, endless(), 64 << 20);
        let folder = tempfile::tempdir().unwrap();
        let letters = DeadLetters::open(folder.path(), 64 << 20, Default::default()).unwrap();
        unreachable.exporters.set_dead_letters(&Arc::new(letters));
        let mut record = logs(1);
        if large {
            // An unknown field, so that the request stays valid.
            let mut padded = record.pieces[0].bytes.to_vec();
            verdict_otlp::write::bytes(&mut padded, 1000, &vec![b'x'; MIB]);
            record.pieces[0].bytes = padded.into();
        }
        let sent = unreachable.send_each_second(&record, minutes(3)).await;
        unreachable.exporters.drain(Instant::now() + minutes(600)).await;
        let exporter = only(&unreachable.exporters);
        let count = |outcome| exporter.ledger().count(outcome);
        let files = std::fs::read_dir(folder.path()).unwrap();
        let written: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes.contains(&(written as usize)), "{written} bytes of dead letters");
        let lost = if large { sent - count(Outcome::DeadLettered) } else { 0 };
        assert_eq!((count(Outcome::Dropped), count(Outcome::Lost)), (lost, 0));
        assert_eq!(count(Outcome::DeadLettered) + count(Outcome::Exported) + lost, sent);
        assert!(count(Outcome::DeadLettered) > 10, "{}", count(Outcome::DeadLettered));
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_that_stay_refused_are_final_after_one_retry() {
    let script = |_| ExportResult::Unauthorized("scripted".to_owned());
    let destination = UnreachableDestination::new(script, Duration::ZERO, endless(), 1 << 20);
    for requests in [2, 3, 4] {
        destination.exporters.send_record(parcel(&["a", "b"]), None).await;
        tokio::time::sleep(minutes(1)).await;
        assert_eq!(destination.asked.lock().unwrap().len(), requests, "two for the first, then one each");
    }
    assert_eq!(only(&destination.exporters).dropped(DropReason::Refused), 6);
    let (ended, ..) = destination.end().await;
    assert_eq!(ended, (0, 6));
}
