//! Tests exporters of type `scores` with fake back ends on the loopback interface: requests, repeats, and the time of
//! sending.

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use serde_json::Value;

use super::*;

mod back_end;
mod parts;
use back_end::BackEnd;

const FLAVORS: [&str; 5] = ["phoenix", "langfuse", "mlflow", "datadog", "langsmith"];

/// The value of an attribute.
pub(super) struct Plain(Any);

impl From<&str> for Plain {
    fn from(text: &str) -> Plain {
        Plain(Any::StringValue(text.to_owned()))
    }
}

impl From<f64> for Plain {
    fn from(number: f64) -> Plain {
        Plain(Any::DoubleValue(number))
    }
}

impl From<i64> for Plain {
    fn from(number: i64) -> Plain {
        Plain(Any::IntValue(number))
    }
}

impl From<[&str; 2]> for Plain {
    fn from(texts: [&str; 2]) -> Plain {
        let value = |text| AnyValue { value: Some(Plain::from(text).0) };
        Plain(Any::ArrayValue(ArrayValue { values: texts.map(value).to_vec() }))
    }
}

pub(super) fn attribute(key: &str, value: impl Into<Plain>) -> KeyValue {
    let value = Some(AnyValue { value: Some(value.into().0) });
    KeyValue { key: key.to_owned(), value, ..Default::default() }
}

/// An evaluation event about a span of the trace whose id consists of bytes 7.
pub(super) fn event(name: &str, failed: bool, mut attributes: Vec<KeyValue>) -> LogRecord {
    attributes.insert(0, attribute("gen_ai.evaluation.name", name));
    LogRecord {
        trace_id: vec![7; 16],
        span_id: vec![0, 0, 0, 0, 0, 0, 1, 0xff],
        event_name: "gen_ai.evaluation.result".into(),
        severity_number: if failed { 13 } else { 9 },
        observed_time_unix_nano: 1_790_000_000_123_456_789,
        attributes,
        ..LogRecord::default()
    }
}

/// The attributes of an evaluation by `evaluator`.
fn evaluator_attributes(evaluator: &str) -> Vec<KeyValue> {
    let evaluator_type = if evaluator.starts_with("rules") { "code" } else { "llm" };
    vec![
        attribute("gen_ai.evaluation.target", "planner"),
        attribute("gen_ai.conversation.id", "session-1"),
        attribute("gen_ai.evaluation.evaluator.id", evaluator.rsplit_once('/').unwrap().0),
        attribute("gen_ai.evaluation.evaluator.version", evaluator),
        attribute("gen_ai.evaluation.evaluator.type", evaluator_type),
    ]
}

pub(super) fn score_event(name: &str, score: f64, failed: bool, evaluator: &str) -> LogRecord {
    let mut attributes = vec![
        attribute("gen_ai.evaluation.score.value", score),
        attribute("gen_ai.evaluation.score.label", if failed { "fail" } else { "pass" }),
    ];
    if failed {
        attributes.push(attribute("gen_ai.evaluation.explanation", "search was called 4 times."));
        attributes.push(attribute("verdict.signature", "00aa00bb00cc00dd"));
    }
    attributes.extend(evaluator_attributes(evaluator));
    event(name, failed, attributes)
}

fn label_event(name: &str, label: &str) -> LogRecord {
    let mut attributes = vec![attribute("gen_ai.evaluation.score.label", label)];
    attributes.extend(evaluator_attributes("gpt-x/1f2e"));
    event(name, false, attributes)
}

pub(super) fn trace_verdict(passed: bool, revision: i64) -> LogRecord {
    let result = if passed { "pass" } else { "fail" };
    let mut attributes = vec![
        attribute("gen_ai.evaluation.score.label", result),
        attribute("verdict.trace.result", result),
        attribute("verdict.trace.revision", revision),
    ];
    if !passed {
        attributes.push(attribute("verdict.trace.failed_metrics", ["tool_abuse", "path.correctness"]));
        attributes.push(attribute("verdict.trace.root_cause", "00000000000001ff"));
    }
    attributes.push(attribute("gen_ai.conversation.id", "session-1"));
    event("trace", !passed, attributes)
}

/// The verdicts of a failed trace: scores, a label and an unmeasured metric. An alarm is not a verdict.
pub(super) fn verdicts() -> Vec<LogRecord> {
    let unmeasured = event("latency", false, vec![attribute("gen_ai.evaluation.score.label", "unmeasured")]);
    let mut alarm = event("alarm", true, vec![]);
    alarm.event_name = "verdict.alarm".into();
    vec![
        score_event("tool_abuse", 2.0, true, "rules/1"),
        score_event("path.correctness", 0.5, true, "rules/1"),
        score_event("tokens", 12_000.0, false, "rules/1"),
        label_event("avoidance", "valid"),
        unmeasured,
        trace_verdict(false, 1),
        alarm,
    ]
}

pub(super) fn request(records: Vec<LogRecord>, scope: &str) -> Bytes {
    let scope = InstrumentationScope { name: scope.to_owned(), ..Default::default() };
    let scope_logs = vec![ScopeLogs { scope: Some(scope), log_records: records, ..Default::default() }];
    let resource =
        Resource { attributes: vec![attribute("service.name", "checkout")], ..Resource::default() };
    let resource_logs = vec![ResourceLogs { resource: Some(resource), scope_logs, ..Default::default() }];
    ExportLogsServiceRequest { resource_logs }.encode_to_vec().into()
}

pub(super) fn events(records: Vec<LogRecord>) -> Parcel {
    Parcel { source: ParcelSource::Trace, ..Parcel::request(Signal::Logs, request(records, "otel-verdict")) }
}

fn spans_parcel() -> Parcel {
    Parcel { source: ParcelSource::Trace, ..parcel(&["agent", "tool"]) }
}

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
        exporters.send_trace([None, Some(events(records))], None).await;
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

/// Compares with a file under `tests/golden`; with `UPDATE_GOLDEN` set the file is written.
fn golden(name: &str, text: &str) {
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
        golden(&format!("scores-{flavor}.txt"), &lines.join("\n"));
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
    let forged = Parcel::request(Signal::Logs, request(verdicts(), "otel-verdict"));
    assert_eq!(exporters.send_record(forged, None).await, 0);
    let foreign =
        Parcel { source: ParcelSource::Trace, ..Parcel::request(Signal::Logs, request(verdicts(), "x")) };
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
fn dead_letter_records(folder: &tempfile::TempDir) -> usize {
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
    exporters.send_trace([Some(spans_parcel()), Some(events(verdicts()))], None).await;
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
    exporters.send_trace([Some(spans_parcel()), Some(events(verdicts()))], None).await;
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
    exporters.send_trace([Some(spans_parcel()), Some(events(verdicts()))], None).await;
    exporters.drain(Instant::now() + Duration::from_millis(100)).await;
    assert_eq!(exported_and_dropped(scores_exporter(&exporters)), (0, 7));
    assert_eq!(scores_exporter(&exporters).dropped(DropReason::Shutdown), 7);
    assert_eq!(back_end.requests(), []);
}

#[tokio::test]
async fn scores_of_spans_that_are_dead_letters_are_dead_letters_too() {
    let (exporters, _sink, back_end, folder) =
        span_and_score_exporters(|_, _| TestResponse::Http(422, None), "").await;
    exporters.send_trace([Some(spans_parcel()), Some(events(verdicts()))], None).await;
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
    exporters.send_trace([Some(spans_parcel()), Some(events(verdicts()))], None).await;
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
        exporters.send_trace([Some(spans_parcel()), Some(events(verdicts()))], None).await;
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

#[tokio::test]
async fn a_reload_replaces_the_key() {
    let back_end = BackEnd::start("langsmith").await;
    let yaml = settings("langsmith", &back_end.addr.to_string(), "");
    let exporters = start_scores(&yaml);
    exporters.renew(&parse_configs(&yaml), &parse_configs(&yaml.replace("hunter2", "hunter3")));
    exporters.send_trace([None, Some(events(vec![trace_verdict(true, 1)]))], None).await;
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

    let all = parse(
        "otlp_http/a: { endpoint: 'http://a' }\notlp_http/b: { endpoint: 'http://b' }\nconsole: {}\nscores: { flavor: phoenix, endpoint: 'http://h' }\nscores/b: { flavor: phoenix, endpoint: 'http://h', after: otlp_http/b }",
    );
    let ids = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        all.followed_exporter("scores", &ids("otlp_http/a console scores")),
        Ok(Some("otlp_http/a".to_owned()))
    );
    assert_eq!(all.followed_exporter("scores", &ids("console scores")), Ok(None));
    assert!(
        all.followed_exporter("scores", &ids("otlp_http/a otlp_http/b scores"))
            .unwrap_err()
            .message
            .contains("several")
    );
    assert_eq!(
        all.followed_exporter("scores/b", &ids("otlp_http/a otlp_http/b")),
        Ok(Some("otlp_http/b".to_owned()))
    );
    assert!(
        all.followed_exporter("scores/b", &ids("otlp_http/a scores/b"))
            .unwrap_err()
            .message
            .contains("no exporter in use")
    );
}
