//! Tests destinations that are unavailable, flapping, or slow for hours. The clock is paused.

use std::sync::Mutex;

use verdict_config::Period;

use super::*;
use crate::export::config::RetryOnFailure;

/// The response of a destination, given the time since its start.
type ResponseFn = fn(Duration) -> ExportResult;

/// A destination without a network.
#[derive(Debug)]
struct FakeClient {
    started: Instant,
    respond: ResponseFn,
    request_duration: Duration,
    /// The time of each request since the start, and whether it was accepted.
    requests: Arc<Mutex<Vec<(Duration, bool)>>>,
}

impl ExportClient for FakeClient {
    fn export<'a>(&'a self, _: &'a ExportRequest) -> ExportFuture<'a> {
        Box::pin(async {
            tokio::time::sleep(self.request_duration).await;
            let time = self.started.elapsed();
            let result = (self.respond)(time);
            self.requests.lock().unwrap().push((time, matches!(result, ExportResult::Accepted { .. })));
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

/// An exporter to a fake destination, and its requests.
struct UnreachableDestination {
    exporters: Exporters,
    requests: Arc<Mutex<Vec<(Duration, bool)>>>,
}

impl UnreachableDestination {
    fn new(
        respond: ResponseFn,
        request_duration: Duration,
        retry: RetryOnFailure,
        queue_size: u64,
    ) -> UnreachableDestination {
        let exporter = Exporter::new("otlp_grpc", true, &Signal::ALL, queue_size);
        let requests = Arc::default();
        let client = FakeClient {
            started: Instant::now(),
            respond,
            request_duration,
            requests: Arc::clone(&requests),
        };
        let client = ReloadableClient::new(Arc::new(client), Duration::MAX);
        let (packing, grouping) = (Packing::UNCOMPRESSED, RequestGrouping::UpTo(4 << 20));
        let consumer = Consumer { exporter: Arc::new(exporter), client, packing, grouping, retry };
        UnreachableDestination { exporters: Exporters::run(vec![(consumer, 4)], &context()), requests }
    }

    /// Sends one span per second for `time`. Returns the number of spans.
    async fn send_for(&self, time: Duration) -> u64 {
        self.send_each_second(&parcel(&["s"]), time).await
    }

    /// Sends a clone of `parcel` per second for `time`. Returns the number of parcels.
    async fn send_each_second(&self, parcel: &Parcel, time: Duration) -> u64 {
        let started = Instant::now();
        let mut sent = 0;
        while started.elapsed() < time {
            self.exporters.send_record(parcel.clone(), None).await;
            sent += 1;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        sent
    }

    /// Waits until every span has an outcome. Returns the numbers of exported and dropped spans, the number of
    /// requests, and the time of the last request.
    async fn finish(self) -> ((u64, u64), usize, Duration) {
        self.exporters.drain(Instant::now() + minutes(600)).await;
        let requests = self.requests.lock().unwrap().clone();
        let last = requests.last().map(|(time, _)| *time).unwrap_or_default();
        (exported_and_dropped(only(&self.exporters)), requests.len(), last)
    }
}

fn endless_retries() -> RetryOnFailure {
    RetryOnFailure { max_elapsed_time: Period::secs(0), ..RetryOnFailure::default() }
}

#[tokio::test(start_paused = true)]
async fn destination_unreachable_for_minutes_loses_nothing_and_is_not_flooded() {
    let respond = |at| if at < minutes(4) { retry_later(None) } else { accepted() };
    let unreachable =
        UnreachableDestination::new(respond, Duration::ZERO, RetryOnFailure::default(), 1 << 20);
    let sent = unreachable.send_for(minutes(3)).await;
    let (counts, requests, last) = unreachable.finish().await;
    assert_eq!((sent, counts), (180, (180, 0)));
    // Four consumers, with delays that grow from 5 s to 30 s and are randomised by half.
    assert!(requests < 4 * 30, "{requests} requests");
    assert!(
        last < minutes(4) + Duration::from_secs(45),
        "delivered soon after the destination returned: {last:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn destination_unreachable_for_hours_is_retried_without_max_elapsed_time() {
    let respond = |at| if at < minutes(300) { retry_later(None) } else { accepted() };
    let unreachable = UnreachableDestination::new(respond, Duration::ZERO, endless_retries(), 1 << 20);
    let sent = unreachable.send_for(minutes(10)).await;
    let (counts, _, _) = unreachable.finish().await;
    assert_eq!(counts, (sent, 0));
}

#[tokio::test(start_paused = true)]
async fn destination_unreachable_beyond_max_elapsed_time_drops_or_dead_letters() {
    for has_dead_letters in [false, true] {
        let unreachable = UnreachableDestination::new(
            |_| retry_later(None),
            Duration::ZERO,
            RetryOnFailure::default(),
            1 << 20,
        );
        let folder = tempfile::tempdir().unwrap();
        if has_dead_letters {
            let letters = DeadLetters::open(folder.path(), 1 << 20, Default::default()).unwrap();
            unreachable.exporters.set_dead_letters(&Arc::new(letters));
        }
        unreachable.exporters.send_record(parcel(&["a", "b"]), None).await;
        unreachable.exporters.drain(Instant::now() + minutes(600)).await;
        let exporter = only(&unreachable.exporters);
        let count = |outcome| exporter.ledger().count(outcome);
        let (dropped, dead_lettered) = if has_dead_letters { (0, 2) } else { (2, 0) };
        assert_eq!((count(Outcome::Dropped), count(Outcome::DeadLettered)), (dropped, dead_lettered));
        assert_eq!(exporter.dropped(DropReason::RetriesEnded), dropped);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), usize::from(has_dead_letters));
        let last = unreachable.requests.lock().unwrap().last().unwrap().0;
        assert!(last > minutes(4) && last <= minutes(5), "retried for five minutes: {last:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn destination_flapping_for_an_hour_receives_everything() {
    // Ten seconds up, ten seconds down.
    let respond = |at: Duration| if at.as_secs() / 10 % 2 == 1 { accepted() } else { retry_later(None) };
    // With a limit on retries, a batch that fails a dozen times would not arrive.
    let unreachable =
        UnreachableDestination::new(respond, Duration::from_millis(50), endless_retries(), 1 << 20);
    let sent = unreachable.send_for(minutes(60)).await;
    let (counts, requests, last) = unreachable.finish().await;
    assert_eq!(counts, (sent, 0));
    assert!(requests < 2 * 3600 && last < minutes(75), "{requests} requests until {last:?}");
}

#[tokio::test(start_paused = true)]
async fn slow_destination_causes_back_pressure_and_receives_everything() {
    // The queue holds some thirty parcels; each request takes forty seconds.
    let unreachable =
        UnreachableDestination::new(|_| accepted(), Duration::from_secs(40), RetryOnFailure::default(), 2048);
    let started = Instant::now();
    let mut pressure_count = 0;
    for _ in 0..200 {
        unreachable.exporters.send_record(parcel(&["s"]), None).await;
        pressure_count += u32::from(unreachable.exporters.pressure().is_some());
    }
    assert!(pressure_count > 5, "back pressure after {pressure_count} of the parcels");
    assert!(started.elapsed() > minutes(3), "senders waited for {:?} only", started.elapsed());
    assert!(only(&unreachable.exporters).queued_bytes() <= 2048);
    let (counts, _, _) = unreachable.finish().await;
    assert_eq!(counts, (200, 0));
}

#[tokio::test(start_paused = true)]
async fn retry_delay_of_the_destination_is_respected() {
    let respond = |at| if at < minutes(2) { retry_later(Some(minutes(2))) } else { accepted() };
    let unreachable =
        UnreachableDestination::new(respond, Duration::ZERO, RetryOnFailure::default(), 1 << 20);
    unreachable.exporters.send_record(parcel(&["s"]), None).await;
    let requests = Arc::clone(&unreachable.requests);
    let (counts, _, last) = unreachable.finish().await;
    assert_eq!((counts, requests.lock().unwrap().len()), ((1, 0), 2));
    assert!(last >= minutes(2) && last < minutes(2) + Duration::from_secs(1), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn permanent_rejections_are_not_retried() {
    let refusals: [ResponseFn; 2] = [
        |_| ExportResult::Rejected("configured response".to_owned()),
        |_| ExportResult::Unsupported("configured response".to_owned()),
    ];
    for respond in refusals {
        let unreachable = UnreachableDestination::new(respond, Duration::ZERO, endless_retries(), 1 << 20);
        unreachable.exporters.send_record(parcel(&["a", "b"]), None).await;
        let (counts, requests, last) = unreachable.finish().await;
        assert_eq!((counts, requests), ((0, 2), 1));
        assert!(last < Duration::from_secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn signal_that_was_once_unsupported_is_sent_again() {
    let respond = |at: Duration| if at.as_secs() == 1 { unsupported() } else { accepted() };
    for has_dead_letters in [false, true] {
        let unreachable = UnreachableDestination::new(respond, Duration::ZERO, endless_retries(), 1 << 20);
        let folder = tempfile::tempdir().unwrap();
        if has_dead_letters {
            let letters = DeadLetters::open(folder.path(), 1 << 20, Default::default()).unwrap();
            unreachable.exporters.set_dead_letters(&Arc::new(letters));
        }
        assert_eq!(unreachable.send_each_second(&logs_parcel(1), Duration::from_secs(10)).await, 10);
        assert!(unreachable.exporters.accepts(Signal::Logs) && !unreachable.exporters.delivers(Signal::Logs));
        assert_eq!(unreachable.send_for(Duration::from_secs(10)).await, 10);
        assert_eq!(
            unreachable.requests.lock().unwrap().len(),
            12,
            "two requests of log records, and all spans"
        );
        unreachable.send_each_second(&logs_parcel(1), Duration::from_secs(40)).await;
        assert!(unreachable.exporters.delivers(Signal::Logs));
        unreachable.exporters.drain(Instant::now() + minutes(600)).await;
        let exporter = only(&unreachable.exporters);
        // One record is accepted. The signal then counts as unsupported for 30 s, in which 9 records are sent at the
        // start and 11 at the end.
        let count = |outcome| exporter.ledger().count(outcome);
        let (dropped, dead_lettered) = if has_dead_letters { (0, 20) } else { (20, 0) };
        assert_eq!((count(Outcome::Exported), count(Outcome::Lost)), (10 + 30, 0));
        assert_eq!((count(Outcome::Dropped), count(Outcome::DeadLettered)), (dropped, dead_lettered));
        assert_eq!(exporter.dropped(DropReason::Unsupported), dropped);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), usize::from(has_dead_letters));
    }
}

#[tokio::test(start_paused = true)]
async fn signal_that_is_never_supported_is_sent_every_half_minute() {
    let unreachable =
        UnreachableDestination::new(|_| unsupported(), Duration::ZERO, endless_retries(), 1 << 20);
    let sent = unreachable.send_each_second(&logs_parcel(1), minutes(10)).await;
    let (counts, requests, _) = unreachable.finish().await;
    assert_eq!((counts, requests), ((0, sent), 20));
}

#[tokio::test(start_paused = true)]
async fn signal_that_is_unsupported_from_the_start_becomes_dead_letters_of_bounded_size() {
    const MIB: usize = 1 << 20;
    // The destination supports the signal after two minutes, or never.
    let (late, never): (ResponseFn, ResponseFn) =
        (|at| if at < minutes(2) { unsupported() } else { accepted() }, |_| unsupported());
    for (respond, is_large, expected_bytes) in [(late, false, 0..MIB), (never, true, 15 * MIB..17 * MIB)] {
        let unreachable = UnreachableDestination::new(respond, Duration::ZERO, endless_retries(), 64 << 20);
        let folder = tempfile::tempdir().unwrap();
        let letters = DeadLetters::open(folder.path(), 64 << 20, Default::default()).unwrap();
        unreachable.exporters.set_dead_letters(&Arc::new(letters));
        let mut record = logs_parcel(1);
        if is_large {
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
        let written_bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(expected_bytes.contains(&(written_bytes as usize)), "{written_bytes} bytes of dead letters");
        let dropped = if is_large { sent - count(Outcome::DeadLettered) } else { 0 };
        assert_eq!((count(Outcome::Dropped), count(Outcome::Lost)), (dropped, 0));
        assert_eq!(count(Outcome::DeadLettered) + count(Outcome::Exported) + dropped, sent);
        assert!(count(Outcome::DeadLettered) > 10, "{}", count(Outcome::DeadLettered));
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_that_stay_refused_are_final_after_one_retry() {
    let respond = |_| ExportResult::Unauthorized("scripted".to_owned());
    let destination = UnreachableDestination::new(respond, Duration::ZERO, endless_retries(), 1 << 20);
    for requests in [2, 3, 4] {
        destination.exporters.send_record(parcel(&["a", "b"]), None).await;
        tokio::time::sleep(minutes(1)).await;
        assert_eq!(destination.requests.lock().unwrap().len(), requests, "two for the first, then one each");
    }
    assert_eq!(only(&destination.exporters).dropped(DropReason::Refused), 6);
    let (counts, ..) = destination.finish().await;
    assert_eq!(counts, (0, 6));
}
