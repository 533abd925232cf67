//! Tests exporters of type `scores` with fake back ends on the loopback interface: requests, repeats, and the time of
//! sending.

use serde_json::Value;

use super::*;

mod back_end;
mod held_scores;
mod parts;
pub(super) mod records;
use back_end::BackEnd;
use records::{events_parcel, logs_request, score_event, spans_parcel, trace_verdict, verdicts};

const FLAVORS: [&str; 5] = ["phoenix", "langfuse", "mlflow", "datadog", "langsmith"];

fn settings(flavor: &str, addr: &str, more_settings: &str) -> String {
    let delay = if more_settings.contains("delay") { "" } else { "delay: 1ms," };
    let key = if flavor == "langfuse" { "public_key: pk-1," } else { "" };
    let retry = "retry_on_failure: { initial_interval: 1ms, max_interval: 5ms, max_elapsed_time: 0 }";
    format!(
        "scores/{flavor}: {{ flavor: {flavor}, endpoint: 'http://{addr}', api_key: hunter2, {key} {delay} {retry}, {more_settings} }}\n"
    )
}

fn start_scores(yaml: &str) -> Exporters {
    let configs = parse_configs(yaml);
    let ids: Vec<String> = configs.0.keys().cloned().collect();
    let normalize: Normalize = Arc::new(|name, score| match name {
        "tool_abuse" => Some((score - 1.0) / 4.0),
        "path.correctness" => Some(score),
        _ => None,
    });
    Exporters::start(&configs, &ids, &ExportContext { normalize, ..context() }).unwrap()
}

/// Sends the events of each trace after those of the previous one have left the queue, and drains.
async fn send_all(
    flavor: &str,
    back_end: &BackEnd,
    more_settings: &str,
    traces: Vec<Vec<LogRecord>>,
) -> Exporters {
    let exporters = start_scores(&settings(flavor, &back_end.addr.to_string(), more_settings));
    for records in traces {
        exporters.send_trace([None, Some(events_parcel(records))], None).await;
        let exported = || only(&exporters).ledger().count(Outcome::Exported);
        let before = exported();
        // Revisions of a trace are sent one after another.
        while only(&exporters).queued_bytes() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(exported() > before);
    }
    drain(&exporters).await;
    exporters
}

/// Compares with a file under `tests/assert_golden`; with `UPDATE_GOLDEN` set the file is written.
fn assert_golden(name: &str, text: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == text, "{name} differs from its golden file; UPDATE_GOLDEN=1 accepts it:\n{text}");
}

#[tokio::test]
async fn every_back_end_accepts_the_requests_and_shows_one_score_per_verdict() {
    for flavor in FLAVORS {
        let back_end = BackEnd::start(flavor).await;
        let exporters = send_all(flavor, &back_end, "", vec![verdicts()]).await;
        assert_eq!(exported_and_dropped(only(&exporters)), (7, 0), "{flavor}");
        let mut requests = back_end.requests();
        // Requests to LangSmith are concurrent.
        requests.sort_by_key(|(request, body, _)| (request.starts_with("PATCH"), body["key"].to_string()));
        let lines: Vec<String> = requests
            .iter()
            .map(|(request, body, key)| {
                format!("{request}\n{key}\n{}\n", serde_json::to_string_pretty(body).unwrap())
            })
            .collect();
        assert_golden(&format!("scores-{flavor}.txt"), &lines.join("\n"));
        let (sessions, unmeasured) =
            (usize::from(flavor == "phoenix"), usize::from(flavor != "langfuse" && flavor != "datadog"));
        assert_eq!(back_end.scores().len(), 5 + sessions + unmeasured, "{flavor}");
    }
}

#[tokio::test]
async fn a_repeat_is_an_update_and_no_second_score() {
    let value_of = |flavor: &str, score: &Value| match flavor {
        "phoenix" => score["result"]["score"].clone(),
        "langfuse" => score["value"].clone(),
        "mlflow" => score["feedback"]["value"].clone(),
        "datadog" => score["score_value"].clone(),
        _ => score["score"].clone(),
    };
    for flavor in FLAVORS {
        let once = BackEnd::start(flavor).await;
        send_all(flavor, &once, "", vec![verdicts()]).await;
        let back_end = BackEnd::start(flavor).await;
        send_all(flavor, &back_end, "", vec![verdicts(), verdicts()]).await;
        let ids = |server: &BackEnd| server.scores().into_keys().collect::<Vec<_>>();
        assert_eq!(ids(&back_end), ids(&once), "{flavor}: the same verdict twice");
        if flavor == "mlflow" {
            let writes =
                back_end.requests().iter().filter(|(request, ..)| !request.starts_with("GET")).count();
            assert_eq!(writes, 6, "equal assessments are not written again");
        }
        // A later verdict with other values.
        let mut later = vec![score_event("tool_abuse", 4.0, false, "rules/1"), trace_verdict(true, 2)];
        if flavor == "datadog" {
            // Datadog identifies an evaluation also by its time.
            later
                .iter_mut()
                .for_each(|record| record.observed_time_unix_nano = verdicts()[0].observed_time_unix_nano);
        }
        send_all(flavor, &back_end, "", vec![later]).await;
        assert_eq!(ids(&back_end), ids(&once), "{flavor}: a revision");
        let values: Vec<Value> = back_end.scores().values().map(|score| value_of(flavor, score)).collect();
        assert!(values.contains(&0.75.into()) && !values.contains(&0.25.into()), "{flavor}: {values:?}");
    }
}

#[tokio::test]
async fn an_interrupted_request_is_completed_without_second_scores() {
    for flavor in FLAVORS {
        let once = BackEnd::start(flavor).await;
        send_all(flavor, &once, "", vec![verdicts()]).await;
        let back_end = BackEnd::start(flavor).await;
        back_end.fail(&[503, 429, 500]);
        let exporters = send_all(flavor, &back_end, "", vec![verdicts()]).await;
        assert_eq!(exported_and_dropped(only(&exporters)), (7, 0), "{flavor}");
        assert!(only(&exporters).retries() >= 1, "{flavor}");
        assert_eq!(back_end.scores().len(), once.scores().len(), "{flavor}");
    }
}

#[tokio::test]
async fn include_selects_verdicts() {
    for (include, names) in
        [("failed", &["path.correctness", "tool_abuse", "verdict"][..]), ("trace", &["verdict"])]
    {
        let back_end = BackEnd::start("langfuse").await;
        send_all("langfuse", &back_end, &format!("include: {include}"), vec![verdicts()]).await;
        let mut sent_names: Vec<String> =
            back_end.scores().values().map(|score| score["name"].as_str().unwrap().to_owned()).collect();
        sent_names.sort();
        assert_eq!(sent_names, names);
    }
    // Without selected scores there is no request.
    let back_end = BackEnd::start("langfuse").await;
    let passing = vec![score_event("tool_abuse", 5.0, false, "rules/1")];
    send_all("langfuse", &back_end, "include: failed", vec![passing]).await;
    assert_eq!(back_end.requests(), []);
}

#[tokio::test]
async fn forwarded_logs_and_events_of_other_scopes_are_not_scores() {
    let back_end = BackEnd::start("phoenix").await;
    let exporters = start_scores(&settings("phoenix", &back_end.addr.to_string(), ""));
    assert!(!exporters.accepts(Signal::Logs) && !exporters.accepts(Signal::Traces));
    // Log records from senders are not verdicts, even in the scope of verdicts.
    let forged = Parcel::request(Signal::Logs, logs_request(verdicts(), "otel-verdict"));
    assert_eq!(exporters.send_record(forged, None).await, 0);
    let foreign = Parcel {
        source: ParcelSource::Trace,
        ..Parcel::request(Signal::Logs, logs_request(verdicts(), "x"))
    };
    exporters.send_trace([None, Some(foreign)], None).await;
    drain(&exporters).await;
    assert_eq!(back_end.requests(), []);
}

#[tokio::test]
async fn scores_that_the_back_end_refuses_are_dropped_and_others_are_not() {
    let back_end = BackEnd::start("langfuse").await;
    let records =
        vec![score_event("refused", 1.0, true, "rules/1"), score_event("tool_abuse", 2.0, true, "rules/1")];
    let exporters = send_all("langfuse", &back_end, "", vec![records]).await;
    assert_eq!(exported_and_dropped(only(&exporters)), (1, 1));
    assert_eq!(only(&exporters).dropped(DropReason::Rejected), 1);
    assert_eq!(back_end.scores().len(), 1);
}

#[tokio::test]
async fn a_reload_replaces_the_key() {
    let back_end = BackEnd::start("langsmith").await;
    let yaml = settings("langsmith", &back_end.addr.to_string(), "");
    let exporters = start_scores(&yaml);
    exporters.renew(&parse_configs(&yaml), &parse_configs(&yaml.replace("hunter2", "hunter3")));
    exporters.send_trace([None, Some(events_parcel(vec![trace_verdict(true, 1)]))], None).await;
    drain(&exporters).await;
    assert_eq!(back_end.requests()[0].2, "x-api-key: hunter3");
}

#[test]
fn settings_are_checked_and_keys_are_hidden() {
    let parse = |yaml: &str| serde_saphyr::from_str::<ExporterConfigs>(yaml).unwrap();
    let keys = |yaml: &str| parse(yaml).problems().into_iter().map(|p| p.key).collect::<Vec<_>>();
    assert_eq!(keys("scores: {}"), ["scores.flavor", "scores.endpoint"]);
    assert_eq!(keys("scores: { flavor: phoenix, endpoint: 'http://user:x@h' }"), ["scores.endpoint"]);
    assert_eq!(
        keys("scores: { flavor: langfuse, endpoint: 'http://h', api_key: sk }"),
        ["scores.public_key"]
    );
    assert_eq!(
        keys("scores: { flavor: mlflow, endpoint: 'http://h', public_key: pk }"),
        ["scores.public_key"]
    );
    assert_eq!(keys("scores: { flavor: mlflow, endpoint: 'http://h', project: p }"), ["scores.project"]);
    assert_eq!(
        keys("scores: { flavor: mlflow, endpoint: 'http://h', api_key: \"a\\nb\" }"),
        ["scores.api_key"]
    );
    let text = serde_saphyr::to_string(&parse(
        "scores: { flavor: datadog, endpoint: 'http://h', api_key: hunter2 }",
    ));
    assert!(!text.unwrap().contains("hunter2"));

    let configs = parse(
        "otlp_http/a: { endpoint: 'http://a' }\notlp_http/b: { endpoint: 'http://b' }\nconsole: {}\nscores: { flavor: phoenix, endpoint: 'http://h' }\nscores/b: { flavor: phoenix, endpoint: 'http://h', after: otlp_http/b }",
    );
    let ids = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        configs.followed_exporter("scores", &ids("otlp_http/a console scores")),
        Ok(Some("otlp_http/a".to_owned()))
    );
    assert_eq!(configs.followed_exporter("scores", &ids("console scores")), Ok(None));
    assert!(
        configs
            .followed_exporter("scores", &ids("otlp_http/a otlp_http/b scores"))
            .unwrap_err()
            .message
            .contains("several")
    );
    assert_eq!(
        configs.followed_exporter("scores/b", &ids("otlp_http/a otlp_http/b")),
        Ok(Some("otlp_http/b".to_owned()))
    );
    assert!(
        configs
            .followed_exporter("scores/b", &ids("otlp_http/a scores/b"))
            .unwrap_err()
            .message
            .contains("no exporter in use")
    );
}
