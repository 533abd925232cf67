//! Tests the time at which scores are sent: after their spans were acknowledged and a delay, at shutdown, and after
//! failures of either destination.

use super::*;

/// An exporter of spans and one of their scores, both with dead letters, and their destinations.
async fn span_and_score_exporters(
    response_fn: impl Fn(usize, &sink::ReceivedRequest) -> TestResponse + Send + Sync + 'static,
    more_settings: &str,
) -> (Exporters, Sink, BackEnd, tempfile::TempDir) {
    let (sink, back_end) = (Sink::start(response_fn).await, BackEnd::start("phoenix").await);
    let span_settings = yaml("otlp_http", "http", &sink.addr.to_string(), "signals: [traces]");
    let exporters =
        start_scores(&(span_settings + &settings("phoenix", &back_end.addr.to_string(), more_settings)));
    let folder = tempfile::tempdir().unwrap();
    let dead_letters = DeadLetters::open(folder.path(), 1 << 20, Default::default()).unwrap();
    exporters.set_dead_letters(&Arc::new(dead_letters));
    (exporters, sink, back_end, folder)
}

/// The number of log records in the dead letters. Each request in a file follows its length.
pub(super) fn dead_letter_records(folder: &tempfile::TempDir) -> usize {
    let files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let mut records = 0;
    for file in files.filter(|file| file.to_str().unwrap().contains("logs")) {
        let bytes = std::fs::read(file).unwrap();
        let mut remaining = &bytes[..];
        while let Some((length, after)) = remaining.split_first_chunk::<4>() {
            let (request, after) = after.split_at(u32::from_be_bytes(*length) as usize);
            let request = ExportLogsServiceRequest::decode(request).unwrap();
            let scopes = request.resource_logs.iter().flat_map(|r| &r.scope_logs);
            records += scopes.map(|s| s.log_records.len()).sum::<usize>();
            remaining = after;
        }
    }
    records
}

fn scores_exporter(exporters: &Exporters) -> &Exporter {
    exporters.iter().find(|exporter| exporter.id() == "scores/phoenix").unwrap()
}

#[tokio::test]
async fn scores_are_sent_after_the_spans_were_acknowledged_and_the_delay() {
    let (exporters, sink, back_end, _folder) =
        span_and_score_exporters(|_, _| TestResponse::Ok(vec![]), "delay: 300ms").await;
    sink.gate.forget_permits(1_000_000);
    exporters.send_trace([Some(spans_parcel()), Some(events_parcel(verdicts()))], None).await;
    while sink.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((sink.requests().len(), back_end.requests().len()), (1, 0), "the spans are not acknowledged");
    assert!(scores_exporter(&exporters).queued_bytes() > 0, "they count in the queue");
    let acknowledged_at = Instant::now();
    sink.gate.add_permits(1_000_000);
    while back_end.requests().is_empty() {
        assert!(acknowledged_at.elapsed() < Duration::from_secs(180));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(acknowledged_at.elapsed() >= Duration::from_millis(300), "{:?}", acknowledged_at.elapsed());
    drain(&exporters).await;
    assert_eq!(exported_and_dropped(scores_exporter(&exporters)), (7, 0));
}

#[tokio::test]
async fn shutdown_ends_the_delay_and_not_the_wait_for_the_spans() {
    let (exporters, sink, back_end, _folder) =
        span_and_score_exporters(|_, _| TestResponse::Ok(vec![]), "delay: 1h").await;
    sink.gate.forget_permits(1_000_000);
    exporters.send_trace([Some(spans_parcel()), Some(events_parcel(verdicts()))], None).await;
    let draining = drain(&exporters);
    let acknowledging = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(back_end.requests().len(), 0);
        sink.gate.add_permits(1_000_000);
    };
    tokio::join!(draining, acknowledging);
    assert_eq!(exported_and_dropped(scores_exporter(&exporters)), (7, 0));
    assert_eq!(back_end.scores().len(), 7);
}

#[tokio::test]
async fn scores_that_are_held_at_the_end_of_shutdown_are_dropped() {
    let (exporters, _sink, back_end, _folder) =
        span_and_score_exporters(|_, _| TestResponse::Hang, "delay: 1h").await;
    exporters.send_trace([Some(spans_parcel()), Some(events_parcel(verdicts()))], None).await;
    exporters.drain(Instant::now() + Duration::from_millis(100)).await;
    assert_eq!(exported_and_dropped(scores_exporter(&exporters)), (0, 7));
    assert_eq!(scores_exporter(&exporters).dropped(DropReason::Shutdown), 7);
    assert_eq!(back_end.requests(), []);
}

#[tokio::test]
async fn scores_of_spans_that_are_dead_letters_are_dead_letters_too() {
    let (exporters, _sink, back_end, folder) =
        span_and_score_exporters(|_, _| TestResponse::Http(422, None), "").await;
    exporters.send_trace([Some(spans_parcel()), Some(events_parcel(verdicts()))], None).await;
    drain(&exporters).await;
    let ledger = scores_exporter(&exporters).ledger();
    assert_eq!((ledger.count(Outcome::DeadLettered), ledger.count(Outcome::Lost)), (7, 0));
    assert_eq!(back_end.requests(), []);
    assert_eq!(dead_letter_records(&folder), 7);
}

#[tokio::test]
async fn permanently_refused_scores_become_dead_letters() {
    let (exporters, _sink, back_end, folder) =
        span_and_score_exporters(|_, _| TestResponse::Ok(vec![]), "").await;
    back_end.fail(&[404; 50]);
    exporters.send_trace([Some(spans_parcel()), Some(events_parcel(verdicts()))], None).await;
    drain(&exporters).await;
    let ledger = scores_exporter(&exporters).ledger();
    assert_eq!((ledger.count(Outcome::DeadLettered), ledger.count(Outcome::Lost)), (7, 0));
    assert_eq!(dead_letter_records(&folder), 7);
}

#[tokio::test]
async fn a_back_end_that_is_down_does_not_affect_spans() {
    let closed_port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let sink = Sink::start(|_, _| TestResponse::Ok(vec![])).await;
    let span_settings = yaml("otlp_http", "http", &sink.addr.to_string(), "signals: [traces]");
    let small_queue = "sending_queue: { queue_size: 4KiB }";
    let exporters =
        start_scores(&(span_settings + &settings("phoenix", &closed_port.to_string(), small_queue)));
    for _ in 0..20 {
        exporters.send_trace([Some(spans_parcel()), Some(events_parcel(verdicts()))], None).await;
    }
    assert_eq!(exporters.pressure(), None);
    let spans = exporters.iter().find(|exporter| exporter.id() == "otlp_http").unwrap();
    while spans.ledger().count(Outcome::Exported) < 40 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    exporters.drain(Instant::now() + Duration::from_millis(100)).await;
    assert_eq!(exported_and_dropped(spans), (40, 0));
    let (exported, dropped) = exported_and_dropped(scores_exporter(&exporters));
    assert_eq!((exported, dropped), (0, 140));
    assert!(scores_exporter(&exporters).dropped(DropReason::QueueFull) > 0);
}
