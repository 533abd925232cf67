//! Tests exporters of type `webhook` with servers on the loopback interface: content, selection, repeats and retries
//! of alerts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use opentelemetry_proto::tonic::common::v1::KeyValue;

use super::scores::records::{
    attribute, event, events_parcel, logs_request, score_event, trace_verdict, verdicts,
};
use super::*;
use crate::outcome::AlertOutcome;

const SECRET: &str = "0123456789abcdef01234567";

/// A server that responds to the first requests with these statuses, and to later ones with 200.
async fn server(statuses: &[u16]) -> MockServer {
    let server = MockServer::start().await;
    for (n, status) in statuses.iter().enumerate() {
        let response = Mock::given(method("POST")).respond_with(ResponseTemplate::new(*status));
        response.up_to_n_times(1).with_priority(u8::try_from(n + 1).unwrap()).mount(&server).await;
    }
    let ok = Mock::given(method("POST")).and(path("/hook")).respond_with(ResponseTemplate::new(200));
    ok.with_priority(200).mount(&server).await;
    server
}

fn webhook(server: &MockServer, more_settings: &str) -> Exporters {
    let retry = "retry_on_failure: { initial_interval: 1ms, max_interval: 5ms, max_elapsed_time: 0 }";
    let queue = "sending_queue: { num_consumers: 1 }";
    let configs = parse_configs(&format!(
        "webhook: {{ endpoint: '{}/hook', {retry}, {queue}, {more_settings} }}\n",
        server.uri()
    ));
    assert_eq!(configs.problems(), []);
    Exporters::start(&configs, &["webhook".to_owned()], &context()).unwrap()
}

/// The bodies of the received requests, in order.
async fn bodies(server: &MockServer) -> Vec<Value> {
    let requests = server.received_requests().await.unwrap();
    requests.iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect()
}

/// Sends the events of each trace after those of the previous one have left the queue.
async fn send_traces(exporters: &Exporters, traces: Vec<Vec<LogRecord>>) {
    for records in traces {
        exporters.send_trace([None, Some(events_parcel(records))], None).await;
        while only(exporters).queued_bytes() > 0 {
            short_sleep().await;
        }
    }
}

/// The events of a failed trace, whose id consists of the byte `trace`.
fn failed_trace(trace: u8, signature: &str, severity: &str) -> Vec<LogRecord> {
    let mut verdict = trace_verdict(false, 1);
    verdict.attributes.push(attribute("verdict.signature", signature));
    verdict.attributes.push(attribute("verdict.severity", severity));
    verdict.attributes.push(attribute("gen_ai.evaluation.target", "planner"));
    let mut all = vec![score_event("tool_abuse", 2.0, true, "rules/1"), verdict];
    all.iter_mut().for_each(|record| record.trace_id = vec![trace; 16]);
    all
}

/// The number of alerts with each outcome.
fn alert_outcomes(exporters: &Exporters) -> [Option<u64>; 3] {
    AlertOutcome::ALL.map(|outcome| only(exporters).alerts(outcome))
}

#[tokio::test]
async fn a_failed_trace_is_one_signed_request() {
    let server = server(&[]).await;
    let exporters =
        webhook(&server, &format!("secret: '{SECRET}', link: 'http://page/#{{trace_id}}/{{span_id}}'"));
    send_traces(&exporters, vec![failed_trace(7, "00aa00bb00cc00dd", "high")]).await;
    drain(&exporters).await;
    assert_eq!(exported_and_dropped(only(&exporters)), (2, 0));
    let requests = server.received_requests().await.unwrap();
    let [request] = &requests[..] else { panic!("{} requests", requests.len()) };
    let header = |name: &str| request.headers.get(name).unwrap().to_str().unwrap().to_owned();
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    let head = format!("{}.{}.", header("webhook-id"), header("webhook-timestamp"));
    mac.update(head.as_bytes());
    mac.update(&request.body);
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    assert_eq!(header("webhook-signature"), expected);
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let trace = "07".repeat(16);
    let expected = serde_json::json!({
        "type": "trace.fail",
        "timestamp": "2026-09-21T14:13:20.123Z",
        "data": {
            "trace_id": trace,
            "span_id": "00000000000001ff",
            "revision": 1,
            "service": "checkout",
            "agent": "planner",
            "session_id": "session-1",
            "severity": "high",
            "signature": "00aa00bb00cc00dd",
            "failed_metrics": ["tool_abuse", "path.correctness"],
            "failures": [{
                "metric": "tool_abuse", "span_id": "00000000000001ff", "explanation": "search was called 4 times.",
            }],
            "explanation": "Failed metrics: tool_abuse, path.correctness. Root cause: span 00000000000001ff.",
            "id": header("webhook-id"),
            "repeated": 0,
            "limited": 0,
            "link": format!("http://page/#{trace}/00000000000001ff"),
        },
    });
    assert_eq!(body, expected, "{body:#}");
}

#[tokio::test]
async fn repeats_of_a_signature_and_of_a_revision_are_counted() {
    let server = server(&[]).await;
    let exporters = webhook(&server, "");
    let repeated_failure = || failed_trace(1, "00aa00bb00cc00dd", "low");
    send_traces(
        &exporters,
        vec![
            repeated_failure(),
            repeated_failure(),
            failed_trace(2, "00aa00bb00cc00dd", "low"),
            failed_trace(3, "11aa00bb00cc00dd", "low"),
        ],
    )
    .await;
    drain(&exporters).await;
    let signatures: Vec<String> =
        bodies(&server).await.iter().map(|b| b["data"]["signature"].as_str().unwrap().to_owned()).collect();
    assert_eq!(signatures, ["00aa00bb00cc00dd", "11aa00bb00cc00dd"]);
    // The second verdict with the same trace and revision counts as no alert at all.
    assert_eq!(alert_outcomes(&exporters), [Some(2), Some(1), Some(0)]);
}

#[tokio::test]
async fn the_next_alert_contains_the_number_of_suppressed_repeats() {
    let server = server(&[]).await;
    let exporters = webhook(&server, "repeat: 3s");
    let failure = |trace| failed_trace(trace, "00aa00bb00cc00dd", "low");
    let _clock_guard = stop_clock();
    send_traces(&exporters, vec![failure(1), failure(2), failure(3)]).await;
    tokio::time::advance(Duration::from_millis(3_100)).await;
    send_traces(&exporters, vec![failure(4)]).await;
    drain(&exporters).await;
    let repeated: Vec<Value> = bodies(&server).await.iter().map(|b| b["data"]["repeated"].clone()).collect();
    assert_eq!(repeated, [0, 2]);
}

#[tokio::test]
async fn alerts_above_the_rate_are_counted() {
    let server = server(&[]).await;
    let exporters = webhook(&server, "max_per_minute: 2");
    let traces = (1..6).map(|n| failed_trace(n, &format!("{n:016x}"), "low")).collect();
    send_traces(&exporters, traces).await;
    drain(&exporters).await;
    assert_eq!(bodies(&server).await.len(), 2);
    assert_eq!(alert_outcomes(&exporters), [Some(2), Some(0), Some(3)]);
    assert_eq!(exported_and_dropped(only(&exporters)), (10, 0));
}

#[tokio::test]
async fn rules_select_by_verdict_severity_signature_metric_service_and_agent() {
    let passing = || {
        let mut record = trace_verdict(true, 1);
        record.trace_id = vec![9; 16];
        vec![record]
    };
    let over_budget = || {
        let mut record = trace_verdict(true, 1);
        record.attributes.push(attribute("verdict.trace.judge_budget", "spent"));
        vec![record]
    };
    for (rule, expected) in [
        ("{}", &["fail", "fail", "spent"][..]),
        ("{ on: [fail] }", &["fail", "fail"]),
        ("{ on: [pass] }", &["pass", "pass"]),
        ("{ on: [budget] }", &["spent"]),
        ("{ on: [alarm, unmeasured] }", &[]),
        ("{ on: [fail], severity: high }", &["fail"]),
        ("{ signatures: [11AA00BB00CC00DD], on: [fail] }", &["fail"]),
        ("{ metrics: [path.correctness], on: [fail] }", &["fail", "fail"]),
        ("{ metrics: [tool_coverage], on: [fail] }", &[]),
        ("{ services: [other] }", &[]),
        ("{ services: [checkout], agents: [planner], on: [fail] }", &["fail", "fail"]),
        ("{ on: [pass] }, { on: [budget] }", &["pass", "pass", "spent"]),
    ] {
        let server = server(&[]).await;
        let exporters = webhook(&server, &format!("rules: [{rule}], repeat: 0s"));
        let traces = vec![
            failed_trace(1, "00aa00bb00cc00dd", "low"),
            failed_trace(2, "11aa00bb00cc00dd", "high"),
            passing(),
            over_budget(),
        ];
        send_traces(&exporters, traces).await;
        drain(&exporters).await;
        let event_type = |b: &Value| b["type"].as_str().unwrap().rsplit_once('.').unwrap().1.to_owned();
        let event_types: Vec<String> = bodies(&server).await.iter().map(event_type).collect();
        assert_eq!(event_types, expected, "{rule}");
    }
}

/// An alarm event, as the pipeline writes it.
fn alarm_event(trace: u8, name: &str, attributes: Vec<KeyValue>) -> LogRecord {
    let mut record = event("alarm", true, attributes);
    record.event_name = name.to_owned();
    record.trace_id = vec![trace; 16];
    record
}

/// An alarm event about a harmful call.
fn harmful_call_alarm(trace: u8, state: &str) -> LogRecord {
    let attributes = vec![
        attribute("verdict.path.alarm", state),
        attribute("verdict.path.task", "refund"),
        attribute("verdict.path.harmful_call.label", "not_allowed"),
        attribute("gen_ai.agent.name", "planner"),
    ];
    alarm_event(trace, "otel_verdict.path.alarm", attributes)
}

#[tokio::test]
async fn an_alarm_is_sent_once_per_trace_and_cause_and_selected_by_agent() {
    let token_alarm = |trace| {
        let attributes =
            vec![attribute("verdict.alarm.cause", "tokens"), attribute("gen_ai.agent.name", "planner")];
        alarm_event(trace, "otel_verdict.alarm", attributes)
    };
    for (rule, expected) in [("{ on: [alarm], agents: [planner] }", 5), ("{ on: [alarm], agents: [x] }", 0)] {
        let server = server(&[]).await;
        let exporters = webhook(&server, &format!("rules: [{rule}]"));
        let (raised, retracted) =
            (|trace| harmful_call_alarm(trace, "raised"), harmful_call_alarm(1, "retracted"));
        for records in
            [vec![raised(1), token_alarm(1), raised(1)], vec![raised(2), token_alarm(2)], vec![retracted]]
        {
            let parcel = Parcel { source: ParcelSource::Alarm, ..events_parcel(records) };
            assert_eq!(exporters.send_record(parcel, None).await, 1);
        }
        drain(&exporters).await;
        let alerts: Vec<(Value, Value)> = bodies(&server)
            .await
            .iter()
            .map(|b| (b["type"].clone(), b["data"]["trace_id"].clone()))
            .collect();
        assert_eq!(alerts.len(), expected, "{rule}: {alerts:?}");
    }
}

#[tokio::test]
async fn an_alarm_about_another_call_after_a_retraction_is_sent() {
    let server = server(&[]).await;
    let exporters = webhook(&server, "");
    let alarm_for_call =
        |span: u8, state| LogRecord { span_id: vec![span; 8], ..harmful_call_alarm(1, state) };
    for (span, state) in [(1, "raised"), (2, "raised"), (1, "retracted"), (3, "raised"), (3, "raised")] {
        let parcel =
            Parcel { source: ParcelSource::Alarm, ..events_parcel(vec![alarm_for_call(span, state)]) };
        assert_eq!(exporters.send_record(parcel, None).await, 1);
    }
    drain(&exporters).await;
    let span_ids: Vec<Value> =
        bodies(&server).await.iter().map(|body| body["data"]["span_id"].clone()).collect();
    assert_eq!(span_ids, ["0101010101010101", "0101010101010101", "0303030303030303"]);
}

#[tokio::test]
async fn failures_of_two_services_are_not_repeats_of_one_another() {
    let server = server(&[]).await;
    let exporters = webhook(&server, "");
    let parcel_for = |service: &str, trace| {
        let bytes = logs_request(failed_trace(trace, "00aa00bb00cc00dd", "low"), "otel-verdict");
        let mut request = ExportLogsServiceRequest::decode(bytes).unwrap();
        request.resource_logs[0].resource.as_mut().unwrap().attributes =
            vec![attribute("service.name", service)];
        Parcel {
            source: ParcelSource::Trace,
            ..Parcel::request(Signal::Logs, request.encode_to_vec().into())
        }
    };
    for (service, trace) in [("checkout", 1), ("returns", 2), ("checkout", 3)] {
        exporters.send_trace([None, Some(parcel_for(service, trace))], None).await;
    }
    drain(&exporters).await;
    assert_eq!(bodies(&server).await.len(), 2);
}

#[tokio::test]
async fn alarms_of_open_traces_are_sent_and_forged_ones_are_not() {
    let tokens = vec![
        attribute("verdict.alarm.cause", "tokens"),
        attribute("verdict.alarm.explanation", "The trace has used 12000 tokens; the limit is 10000."),
        attribute("gen_ai.agent.name", "planner"),
    ];
    let server = server(&[]).await;
    let exporters = webhook(&server, "");
    let records = vec![
        harmful_call_alarm(7, "raised"),
        harmful_call_alarm(7, "retracted"),
        alarm_event(7, "otel_verdict.alarm", tokens),
    ];
    let parcel = Parcel { source: ParcelSource::Alarm, ..events_parcel(records.clone()) };
    assert_eq!(exporters.send_record(parcel, None).await, 1);
    // Log records from senders cause no alert, whatever their scope.
    let forged = Parcel { source: ParcelSource::Sender, ..events_parcel(records) };
    assert_eq!(exporters.send_record(forged, None).await, 0);
    drain(&exporters).await;
    let alerts: Vec<(Value, Value, Value)> = bodies(&server)
        .await
        .iter()
        .map(|b| (b["type"].clone(), b["data"]["cause"].clone(), b["data"]["agent"].clone()))
        .collect();
    let expected = [
        ("alarm.raised".into(), "harmful_call".into(), "planner".into()),
        ("alarm.retracted".into(), "harmful_call".into(), "planner".into()),
        ("alarm.raised".into(), "tokens".into(), "planner".into()),
    ];
    assert_eq!(alerts, expected);
}

#[tokio::test]
async fn after_faults_every_alert_is_sent_once_and_with_the_same_id() {
    // The second alert of the request fails. The first alert is not sent again.
    let server = server(&[200, 503, 429, 500]).await;
    let exporters = webhook(&server, "");
    let mut records = failed_trace(1, "00aa00bb00cc00dd", "low");
    records.extend(failed_trace(2, "11aa00bb00cc00dd", "low"));
    send_traces(&exporters, vec![records]).await;
    drain(&exporters).await;
    let ids: Vec<Value> = bodies(&server).await.iter().map(|b| b["data"]["id"].clone()).collect();
    assert_eq!(ids.len(), 5);
    assert_ne!(ids[0], ids[1]);
    assert!(ids[2..].iter().all(|id| *id == ids[1]), "{ids:?}");
    assert_eq!(alert_outcomes(&exporters), [Some(2), Some(0), Some(0)]);
    assert_eq!(exported_and_dropped(only(&exporters)), (4, 0));
    assert!(only(&exporters).retries() >= 1);
}

#[tokio::test]
async fn a_permanently_refused_alert_is_dropped_and_counted() {
    for (status, reason) in [(404, DropReason::Refused), (400, DropReason::Refused)] {
        let server = server(&[status]).await;
        let exporters = webhook(&server, "");
        send_traces(&exporters, vec![failed_trace(1, "00aa00bb00cc00dd", "low")]).await;
        drain(&exporters).await;
        assert_eq!(only(&exporters).dropped(reason), 2, "{status}");
        assert_eq!(alert_outcomes(&exporters), [Some(0), Some(0), Some(0)]);
    }
}

#[tokio::test]
async fn markup_in_content_is_escaped_for_slack() {
    let hostile = "<!channel> *bold* <http://evil|click> `code` @here _so_ a_b";
    let server = server(&[]).await;
    let exporters = webhook(&server, "template: slack");
    let mut records = failed_trace(1, "00aa00bb00cc00dd", "high");
    for record in &mut records {
        for kv in &mut record.attributes {
            if matches!(&*kv.key, "gen_ai.evaluation.explanation" | "gen_ai.evaluation.target") {
                *kv = attribute(&kv.key.clone(), hostile);
            }
        }
    }
    send_traces(&exporters, vec![records]).await;
    drain(&exporters).await;
    let body = bodies(&server).await.remove(0);
    let mut markdown = vec![body["text"].as_str().unwrap()];
    let blocks = body["blocks"].as_array().unwrap();
    let mut plain = Vec::new();
    for text in
        blocks.iter().flat_map(|b| b["elements"].as_array().cloned().unwrap_or(vec![b["text"].clone()]))
    {
        match text["type"].as_str().unwrap() {
            "plain_text" => plain.push(text["text"].as_str().unwrap().to_owned()),
            _ => markdown.push(Box::leak(text["text"].as_str().unwrap().to_owned().into_boxed_str())),
        }
    }
    assert!(plain.iter().any(|text| text.contains(hostile)), "content is plain text: {body:#}");
    for text in markdown {
        assert!(!text.contains("<!") && !text.contains("<http") && !text.contains("`code`"), "{text}");
        assert!(!text.contains("@here") && !text.contains("*bold*") && !text.contains("_so_"), "{text}");
    }
    assert!(body["text"].as_str().unwrap().contains("a_b"), "a name can be copied");
    assert!(body["text"].as_str().unwrap().contains("*Failed*: &lt;!channel&gt;"), "{}", body["text"]);
}

#[tokio::test]
async fn a_server_that_is_down_does_not_affect_the_pipeline() {
    let closed_port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let yaml = format!(
        "webhook: {{ endpoint: 'http://{closed_port}/s3cret', sending_queue: {{ queue_size: 4KiB }} }}\n"
    );
    let exporters = Exporters::start(&parse_configs(&yaml), &["webhook".to_owned()], &context()).unwrap();
    for n in 0..20 {
        exporters
            .send_trace([None, Some(events_parcel(failed_trace(n, "00aa00bb00cc00dd", "low")))], None)
            .await;
    }
    assert_eq!(exporters.pressure(), None);
    exporters.drain(Instant::now() + Duration::from_millis(100)).await;
    assert!(only(&exporters).dropped(DropReason::QueueFull) > 0);
    assert_eq!(exported_and_dropped(only(&exporters)), (0, 40));
}

#[tokio::test]
async fn a_reload_replaces_url_and_secret_and_keeps_the_record_of_sent_alerts() {
    let (first, second) = (server(&[]).await, server(&[]).await);
    let yaml = format!("webhook: {{ endpoint: '{}/hook', secret: '{SECRET}' }}\n", first.uri());
    let exporters = Exporters::start(&parse_configs(&yaml), &["webhook".to_owned()], &context()).unwrap();
    send_traces(&exporters, vec![failed_trace(1, "00aa00bb00cc00dd", "low")]).await;
    let changed = yaml.replace(&first.uri(), &second.uri());
    exporters.renew(&parse_configs(&yaml), &parse_configs(&changed));
    send_traces(
        &exporters,
        vec![failed_trace(2, "00aa00bb00cc00dd", "low"), failed_trace(3, "11aa00bb00cc00dd", "low")],
    )
    .await;
    drain(&exporters).await;
    assert_eq!((bodies(&first).await.len(), bodies(&second).await.len()), (1, 1));
}

#[test]
fn settings_are_checked_and_secrets_are_hidden() {
    let parse = |yaml: &str| serde_saphyr::from_str::<ExporterConfigs>(yaml).unwrap();
    let keys = |yaml: &str| parse(yaml).problems().into_iter().map(|p| p.key).collect::<Vec<_>>();
    assert_eq!(keys("webhook: {}"), ["webhook.endpoint"]);
    let invalid = "webhook: { endpoint: 'http://h', secret: short, max_per_minute: 0, link: x, rules: [{ on: [], signatures: ['1'] }] }";
    assert_eq!(
        keys(invalid),
        [
            "webhook.secret",
            "webhook.max_per_minute",
            "webhook.rules[0].on",
            "webhook.rules[0].signatures",
            "webhook.link"
        ]
    );
    let faulty = parse("webhook: { endpoint: 'ftp://hooks/T0/hunter2' }").problems();
    assert!(!format!("{faulty:?}").contains("hunter2"), "{faulty:?}");
    let all = parse(&format!("webhook: {{ endpoint: 'https://hooks/T0/hunter2', secret: '{SECRET}' }}"));
    let text = serde_saphyr::to_string(&all).unwrap();
    assert!(!text.contains("hunter2") && !text.contains(SECRET), "{text}");
    assert!(!format!("{all:?}").contains("hunter2"));
    // The output of `print-config` is a valid configuration.
    assert_eq!(parse(&text).problems(), []);
}

#[tokio::test]
async fn verdicts_of_scores_are_one_alert() {
    let server = server(&[]).await;
    let exporters = webhook(&server, "");
    send_traces(&exporters, vec![verdicts()]).await;
    drain(&exporters).await;
    assert_eq!(bodies(&server).await.len(), 1);
    assert_eq!(exported_and_dropped(only(&exporters)), (7, 0));
}
