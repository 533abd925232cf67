//! Back ends that take some scores of a request and not the others, for a while or for good.

use super::*;

/// The events of a trace, with as many scores.
fn of_trace(trace: u8, scores: usize) -> Parcel {
    let records = (0..scores).map(|n| {
        let mut record = scored(&format!("metric_{n}"), 2.0, true, "rules/1");
        record.trace_id = vec![trace; 16];
        record
    });
    events(records.collect())
}

fn retries(for_millis: u32) -> String {
    format!(
        "retry_on_failure: {{ initial_interval: 1ms, max_interval: 5ms, max_elapsed_time: {for_millis}ms }}"
    )
}

fn exporter_settings(flavor: &str, back_end: &BackEnd, for_millis: u32) -> String {
    settings(flavor, &back_end.addr.to_string(), "").replace(
        "retry_on_failure: { initial_interval: 1ms, max_interval: 5ms, max_elapsed_time: 0 }",
        &retries(for_millis),
    )
}

#[tokio::test]
async fn a_rate_limit_ends_and_no_score_is_sent_twice() {
    for flavor in ["langsmith", "mlflow"] {
        let back_end = BackEnd::start(flavor).await;
        back_end.state.lock().unwrap().limit = Some(4);
        // Shorter than all the attempts together, since each of them is a success in part.
        let exporters = start_scores(&exporter_settings(flavor, &back_end, 3_000));
        exporters.send_trace([None, Some(of_trace(1, 60))], None).await;
        drain(&exporters).await;
        assert_eq!(ended(only(&exporters)), (60, 0), "{flavor}");
        assert_eq!(back_end.scores().len(), 60, "{flavor}");
        let requests = back_end.requests();
        let updates = requests.iter().filter(|(request, ..)| request.starts_with("PATCH")).count();
        assert_eq!(updates, 0, "{flavor}: what was taken is not sent again");
    }
}

#[tokio::test]
async fn scores_that_are_refused_before_a_retry_are_counted_once() {
    let back_end = BackEnd::start("langsmith").await;
    back_end.fail(&[404, 200, 200, 200, 200, 200, 200, 200, 503, 404]);
    let exporters = start_scores(&exporter_settings("langsmith", &back_end, 0));
    exporters.send_trace([None, Some(of_trace(1, 20))], None).await;
    drain(&exporters).await;
    assert_eq!(ended(only(&exporters)), (18, 2));
    assert_eq!(only(&exporters).dropped(DropReason::Rejected), 2);
}

#[tokio::test]
async fn a_trace_that_never_comes_does_not_keep_others_back() {
    let back_end = BackEnd::start("mlflow").await;
    back_end.state.lock().unwrap().missing.insert("01".repeat(16));
    let config = read(&settings("mlflow", &back_end.addr.to_string(), ""));
    let crate::export::config::ExporterConfig::Scores(config) = &config.0["scores/mlflow"] else { panic!() };
    let normalize: Normalize = Arc::new(|_, _| None);
    let client = ScoresClient::new(config, "verdict.", &normalize).unwrap();
    let pieces = [of_trace(1, 2), of_trace(2, 2)].map(|parcel| parcel.pieces[0].bytes.clone());
    let request = ExportRequest::of_pieces(Signal::Logs, pieces.iter());
    let response = client.export(&request).await;
    assert!(matches!(response.result, crate::export::response::ExportResult::Retry { .. }), "{response:?}");
    assert_eq!(back_end.scores().len(), 2);
    assert_eq!(request.delivered().chunks, [(1, 0)].into());
    // The next attempt asks for that trace only.
    let before = back_end.requests().len();
    client.export(&request).await;
    let asked: Vec<String> =
        back_end.requests()[before..].iter().map(|(request, ..)| request.clone()).collect();
    assert_eq!(asked, [format!("GET /api/3.0/mlflow/traces/tr-{}", "01".repeat(16))]);
    // It comes.
    back_end.state.lock().unwrap().missing.clear();
    let response = client.export(&request).await;
    assert_eq!(response.result, crate::export::response::ExportResult::ACCEPTED);
    assert_eq!(back_end.scores().len(), 4);
}

#[tokio::test]
async fn when_retries_end_only_what_was_not_taken_becomes_a_dead_letter() {
    let back_end = BackEnd::start("mlflow").await;
    back_end.state.lock().unwrap().missing.insert("01".repeat(16));
    let exporters = start_scores(&exporter_settings("mlflow", &back_end, 200));
    let folder = tempfile::tempdir().unwrap();
    let dead_letters = DeadLetters::open(folder.path(), 1 << 20, Default::default()).unwrap();
    exporters.set_dead_letters(&Arc::new(dead_letters));
    for parcel in [of_trace(1, 2), of_trace(2, 3), of_trace(3, 4)] {
        exporters.send_trace([None, Some(parcel)], None).await;
    }
    drain(&exporters).await;
    let ledger = only(&exporters).ledger();
    assert_eq!((ledger.count(Outcome::Exported), ledger.count(Outcome::DeadLettered)), (7, 2));
    assert_eq!(back_end.scores().len(), 7);
    assert_eq!(dead_records(&folder), 2);
}
