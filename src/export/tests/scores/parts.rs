//! Tests back ends that accept only some of the scores of a request, temporarily or permanently.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};

use super::held_scores::dead_letter_records;
use super::*;

/// A parcel with `score_count` scores of the trace whose id consists of the byte `trace`.
fn trace_events(trace: u8, score_count: usize) -> Parcel {
    let records = (0..score_count).map(|n| {
        let mut record = score_event(&format!("metric_{n}"), 2.0, true, "rules/1");
        record.trace_id = vec![trace; 16];
        record
    });
    events_parcel(records.collect())
}

fn retry_settings(max_elapsed_millis: u32) -> String {
    format!(
        "retry_on_failure: {{ initial_interval: 1ms, max_interval: 5ms, max_elapsed_time: {max_elapsed_millis}ms }}"
    )
}

fn exporter_settings(flavor: &str, back_end: &BackEnd, max_elapsed_millis: u32) -> String {
    settings(flavor, &back_end.addr.to_string(), "").replace(
        "retry_on_failure: { initial_interval: 1ms, max_interval: 5ms, max_elapsed_time: 0 }",
        &retry_settings(max_elapsed_millis),
    )
}

#[tokio::test]
async fn a_rate_limit_ends_and_no_score_is_sent_twice() {
    for flavor in ["langsmith", "mlflow"] {
        let back_end = BackEnd::start(flavor).await;
        back_end.state.lock().unwrap().rate_limit = Some(4);
        // Shorter than all attempts together: a partial success restarts the time for retries.
        let exporters = start_scores(&exporter_settings(flavor, &back_end, 3_000));
        exporters.send_trace([None, Some(trace_events(1, 60))], None).await;
        drain(&exporters).await;
        assert_eq!(exported_and_dropped(only(&exporters)), (60, 0), "{flavor}");
        assert_eq!(back_end.scores().len(), 60, "{flavor}");
        let requests = back_end.requests();
        let updates = requests.iter().filter(|(request, ..)| request.starts_with("PATCH")).count();
        assert_eq!(updates, 0, "{flavor}: accepted scores are not sent again");
    }
}

#[tokio::test]
async fn scores_that_are_refused_before_a_retry_are_counted_once() {
    let back_end = BackEnd::start("langsmith").await;
    back_end.fail(&[422, 503, 422]);
    let exporters = start_scores(&exporter_settings("langsmith", &back_end, 0));
    exporters.send_trace([None, Some(trace_events(1, 20))], None).await;
    drain(&exporters).await;
    assert_eq!(exported_and_dropped(only(&exporters)), (18, 2));
    assert_eq!(only(&exporters).dropped(DropReason::Rejected), 2);
}

#[tokio::test]
async fn the_verdict_of_a_trace_moves_to_a_late_root_in_langsmith() {
    let verdict = |span: u8, rootless: bool, passed: bool, revision: i64| {
        let mut record = trace_verdict(passed, revision);
        record.span_id = vec![0, 0, 0, 0, 0, 0, 0, span];
        if rootless {
            let value = Some(AnyValue { value: Some(Value::BoolValue(true)) });
            let key = "verdict.trace.rootless".to_owned();
            record.attributes.push(KeyValue { key, value, ..Default::default() });
        }
        record
    };
    let run_id = |n: u8| format!("00000000-0000-0000-0000-0000000000{n:02x}");
    let run_scores = |back_end: &BackEnd| {
        let all = back_end.scores().into_values();
        all.map(|score| (score["run_id"].as_str().unwrap().to_owned(), score["score"].as_f64().unwrap()))
            .collect::<Vec<_>>()
    };
    let sent_one_by_one = async |verdicts: Vec<LogRecord>| {
        let back_end = BackEnd::start("langsmith").await;
        let verdicts = verdicts.into_iter().map(|record| vec![record]).collect();
        send_all("langsmith", &back_end, "", verdicts).await;
        run_scores(&back_end)
    };
    // The root arrives late: it has the verdict, and the feedback on the previous topmost run is deleted.
    let late_root = vec![verdict(2, true, true, 1), verdict(3, true, true, 2), verdict(1, false, false, 3)];
    assert_eq!(sent_one_by_one(late_root).await, [(run_id(1), 0.0)]);
    // Another run arrives late: the verdict on the root changes.
    let late_tool = vec![verdict(1, false, true, 1), verdict(4, true, false, 2)];
    assert_eq!(sent_one_by_one(late_tool).await, [(run_id(1), 0.0)]);
    // The root never arrives.
    let no_root = vec![verdict(2, true, true, 1), verdict(2, true, false, 2)];
    assert_eq!(sent_one_by_one(no_root).await, [(run_id(2), 0.0)]);
}

#[tokio::test]
async fn feedback_on_a_run_that_langsmith_has_not_stored_yet_is_retried() {
    let back_end = BackEnd::start("langsmith").await;
    back_end.fail(&[404, 404]);
    let exporters = start_scores(&exporter_settings("langsmith", &back_end, 0));
    exporters.send_trace([None, Some(trace_events(1, 20))], None).await;
    drain(&exporters).await;
    assert_eq!((exported_and_dropped(only(&exporters)), back_end.scores().len()), ((20, 0), 20));
}

#[tokio::test]
async fn feedback_names_the_project_of_its_runs() {
    let id = uuid::Uuid::from_u128(7);
    let start = async |project: &str, exists: bool| {
        let back_end = BackEnd::start("langsmith").await;
        back_end.state.lock().unwrap().project = exists.then(|| ("a & b".to_owned(), id));
        let yaml = exporter_settings("langsmith", &back_end, 0);
        let exporters = start_scores(&yaml.replace("api_key:", &format!("project: {project}, api_key:")));
        exporters.send_trace([None, Some(trace_events(1, 20))], None).await;
        (back_end, exporters)
    };
    let project_requests = |back_end: &BackEnd| {
        back_end.requests().iter().filter(|(request, ..)| request.starts_with("GET")).count()
    };
    // By name: LangSmith creates the project with its first run, and another project may replace it later.
    let (back_end, exporters) = start("'a & b'", false).await;
    while project_requests(&back_end) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(back_end.scores().len(), 0);
    back_end.state.lock().unwrap().project = Some(("a & b".to_owned(), uuid::Uuid::from_u128(6)));
    while back_end.scores().len() < 20 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    back_end.state.lock().unwrap().project = Some(("a & b".to_owned(), id));
    let before = project_requests(&back_end);
    exporters.send_trace([None, Some(trace_events(2, 20))], None).await;
    exporters.send_trace([None, Some(trace_events(3, 20))], None).await;
    drain(&exporters).await;
    assert_eq!(exported_and_dropped(only(&exporters)), (60, 0));
    let sessions = back_end.scores().into_values().map(|score| score["session_id"].clone());
    assert_eq!(sessions.filter(|session| *session == id.to_string()).count(), 40);
    assert!((1..=2).contains(&(project_requests(&back_end) - before)), "the id is cached");
    // By id: no request.
    let (back_end, exporters) = start(&id.to_string(), true).await;
    drain(&exporters).await;
    assert_eq!((exported_and_dropped(only(&exporters)), project_requests(&back_end)), ((20, 0), 0));
    // Not configured, although the deployment requires it.
    let (back_end, exporters) = start("''", true).await;
    drain(&exporters).await;
    assert_eq!((only(&exporters).dropped(DropReason::Refused), only(&exporters).retries()), (20, 0));
    assert_eq!(back_end.scores().len(), 0);
}

#[tokio::test]
async fn a_trace_that_never_arrives_does_not_delay_others() {
    let back_end = BackEnd::start("mlflow").await;
    back_end.state.lock().unwrap().missing_traces.insert("01".repeat(16));
    let config = parse_configs(&settings("mlflow", &back_end.addr.to_string(), ""));
    let crate::export::config::ExporterConfig::Scores(config) = &config.0["scores/mlflow"] else { panic!() };
    let normalize: Normalize = Arc::new(|_, _| None);
    let client = ScoresClient::new(config, "verdict.", &normalize).unwrap();
    let pieces = [trace_events(1, 2), trace_events(2, 2)].map(|parcel| parcel.pieces[0].bytes.clone());
    let request = ExportRequest::from_pieces(Signal::Logs, pieces.iter());
    let response = client.export(&request).await;
    assert!(matches!(response.result, crate::export::response::ExportResult::Retry { .. }), "{response:?}");
    assert_eq!(back_end.scores().len(), 2);
    assert_eq!(request.delivered().chunks, [(1, 0)].into());
    // The next attempt requests only the missing trace.
    let before = back_end.requests().len();
    client.export(&request).await;
    let new_requests: Vec<String> =
        back_end.requests()[before..].iter().map(|(request, ..)| request.clone()).collect();
    assert_eq!(new_requests, [format!("GET /api/3.0/mlflow/traces/tr-{}", "01".repeat(16))]);
    // The trace arrives.
    back_end.state.lock().unwrap().missing_traces.clear();
    let response = client.export(&request).await;
    assert_eq!(response.result, crate::export::response::ExportResult::ACCEPTED);
    assert_eq!(back_end.scores().len(), 4);
}

#[tokio::test]
async fn when_retries_end_only_scores_that_were_not_accepted_become_dead_letters() {
    let back_end = BackEnd::start("mlflow").await;
    back_end.state.lock().unwrap().missing_traces.insert("01".repeat(16));
    let exporters = start_scores(&exporter_settings("mlflow", &back_end, 200));
    let folder = tempfile::tempdir().unwrap();
    let dead_letters = DeadLetters::open(folder.path(), 1 << 20, Default::default()).unwrap();
    exporters.set_dead_letters(&Arc::new(dead_letters));
    for parcel in [trace_events(1, 2), trace_events(2, 3), trace_events(3, 4)] {
        exporters.send_trace([None, Some(parcel)], None).await;
    }
    drain(&exporters).await;
    let ledger = only(&exporters).ledger();
    assert_eq!((ledger.count(Outcome::Exported), ledger.count(Outcome::DeadLettered)), (7, 2));
    assert_eq!(back_end.scores().len(), 7);
    assert_eq!(dead_letter_records(&folder), 2);
}
