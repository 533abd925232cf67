//! The clocks of senders have no effect on verdicts: a capture whose tool spans belong to another service, with a clock
//! that differs by up to 5 s, has the same verdicts as the recorded capture. Tasks limit the times between the calls,
//! and spans have limits of latency. The clocks have no effect on the alarms of an open trace either, whose last spans
//! have not arrived.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use otel_verdict::pipeline::offline::RecordingEvaluation;
use otel_verdict::receive::Offer;
use prost::Message as _;
use verdict_config::Source;
use verdict_eval::Evaluator;
use verdict_eval::alarms::AlarmState;
use verdict_eval::metrics::TaskSet;
use verdict_eval::trace::Kind;
use verdict_otlp::Signal;
use verdict_otlp::trace::{ClosedTrace, SpanId};

use crate::frameworks::{Case, cases, config, read};

/// The span ids of the tool spans among all spans of a capture, and the names of the tools.
fn tools(case: &Case) -> (HashSet<Vec<u8>>, BTreeSet<String>) {
    let mut evaluation = RecordingEvaluation::new(&config(case), 0).unwrap();
    case.requests.iter().for_each(|offer| drop(evaluation.add(offer).unwrap()));
    let (mut ids, mut names) = (HashSet::new(), BTreeSet::new());
    crate::support::finish(&mut evaluation, |evaluated| {
        let spans = evaluated.trace.trace.tree.spans.iter().zip(&evaluated.trace.trace.views);
        let tools = spans.filter(|(_, view)| view.kind == Kind::Tool);
        ids.extend(tools.map(|(span, _)| span.id.0.to_vec()));
        names.extend(evaluated.trace.trace.calls.iter().map(|call| call.name.to_string()));
    });
    (ids, names)
}

/// A task that limits the time between any two calls of these tools.
fn timed_task(names: &BTreeSet<String>) -> String {
    let names: Vec<&String> = names.iter().take(6).collect();
    let mut text = "task: timed\nmatch: {}\nalphabet:\n".to_owned();
    for (i, name) in names.iter().enumerate() {
        writeln!(text, "  c{i}: {}", serde_json::Value::from(name.as_str())).unwrap();
    }
    text += "policy:\n";
    for (i, j) in (0..names.len()).flat_map(|i| (0..names.len()).map(move |j| (i, j))) {
        writeln!(text, "  - c{i} no sooner than 2s after c{j}").unwrap();
    }
    for i in 1..names.len() {
        writeln!(text, "  - c{i} within 3s after c{}", i - 1).unwrap();
    }
    text
}

/// The request with `tools` in resources of another service, whose clock is ahead by `skew` nanoseconds.
fn skewed(offer: &Offer, tools: &HashSet<Vec<u8>>, skew: i64) -> Offer {
    let shift = |time: &mut u64| {
        if *time != 0 {
            *time = time.checked_add_signed(skew).unwrap();
        }
    };
    let body = offer.body.clone();
    let body = match offer.signal {
        Signal::Traces => {
            let mut request = ExportTraceServiceRequest::decode(body).unwrap();
            let mut moved = request.resource_spans.clone();
            let retain = |resources: &mut Vec<ResourceSpans>, is_tool: bool| {
                for resource in resources {
                    for scope in &mut resource.scope_spans {
                        scope.spans.retain(|span| tools.contains(&span.span_id) == is_tool);
                    }
                    resource.scope_spans.retain(|scope| !scope.spans.is_empty());
                }
            };
            retain(&mut request.resource_spans, false);
            retain(&mut moved, true);
            for resource in &mut moved {
                let attributes = &mut resource.resource.get_or_insert_default().attributes;
                attributes.retain(|kv| kv.key != "service.name");
                let name = Some(Value::StringValue("tools".to_owned()));
                attributes.push(KeyValue {
                    key: "service.name".to_owned(),
                    value: Some(AnyValue { value: name }),
                    ..KeyValue::default()
                });
                for span in resource.scope_spans.iter_mut().flat_map(|scope| &mut scope.spans) {
                    shift(&mut span.start_time_unix_nano);
                    shift(&mut span.end_time_unix_nano);
                    span.events.iter_mut().for_each(|event| shift(&mut event.time_unix_nano));
                }
            }
            request.resource_spans.extend(moved);
            request.resource_spans.retain(|resource| !resource.scope_spans.is_empty());
            request.encode_to_vec()
        }
        Signal::Logs => {
            let mut request = ExportLogsServiceRequest::decode(body).unwrap();
            let scopes = request.resource_logs.iter_mut().flat_map(|resource| &mut resource.scope_logs);
            let records = scopes.flat_map(|scope| &mut scope.log_records);
            for record in records.filter(|record| tools.contains(&record.span_id)) {
                shift(&mut record.time_unix_nano);
                shift(&mut record.observed_time_unix_nano);
            }
            request.encode_to_vec()
        }
        Signal::Metrics => body.to_vec(),
    };
    Offer { signal: offer.signal, body: body.into() }
}

/// Differences of the clocks in milliseconds.
const SKEWS: [i64; 13] = [0, -5_000, -2_000, -300, -150, -50, -10, 10, 50, 150, 300, 2_000, 5_000];

/// Every verdict attribute, by span and key.
fn verdicts(
    case: &Case,
    task: Option<&PathBuf>,
    tools: &HashSet<Vec<u8>>,
    skew: i64,
) -> BTreeMap<(String, String), String> {
    let mut config = config(case);
    config.verdict.evaluation.metrics.path.tasks.extend(task.cloned());
    let latency = "{ max_ms: { llm: 1, tool: 1, agent: 1, chain: 1 } }";
    config.verdict.evaluation.metrics.latency = serde_saphyr::from_str(latency).unwrap();
    let mut evaluation = RecordingEvaluation::new(&config, 0).unwrap();
    for offer in &case.requests {
        evaluation.add(&skewed(offer, tools, skew)).unwrap();
    }
    let mut out = Vec::new();
    crate::support::finish(&mut evaluation, |trace| {
        out.extend(trace.annotated.spans.into_iter().map(|piece| piece.bytes))
    });
    let mut verdicts = BTreeMap::new();
    for (id, span) in read(&out) {
        for (key, value) in span.attributes {
            if key.starts_with("verdict.") {
                verdicts.insert((format!("{} {id}", span.name), key), value);
            }
        }
    }
    verdicts
}

#[test]
fn verdicts_do_not_depend_on_the_clock_of_the_tools_service() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("demo"), root.join("tests/data/frameworks")];
    folders.extend(std::env::var_os("OTEL_VERDICT_CASES").map(|c| Path::new(&c).join("frameworks")));
    let mut differences = Vec::new();
    let (mut compared, mut limited, mut slow) = (0, 0, 0);
    let folder = tempfile::tempdir().unwrap();
    for case in folders.iter().flat_map(|folder| cases(folder)) {
        let (tools, names) = tools(&case);
        let task = (!names.is_empty()).then(|| folder.path().join("task.yaml"));
        if let Some(task) = &task {
            std::fs::write(task, timed_task(&names)).unwrap();
        }
        let expected = verdicts(&case, task.as_ref(), &HashSet::new(), 0);
        compared += usize::from(!tools.is_empty());
        limited += expected.values().filter(|value| value.contains("too_soon")).count();
        slow += expected.keys().filter(|(_, key)| key == "verdict.latency.result").count();
        for skew in SKEWS {
            let skewed_verdicts = verdicts(&case, task.as_ref(), &tools, skew * 1_000_000);
            let keys: BTreeSet<_> = expected.keys().chain(skewed_verdicts.keys()).collect();
            let differing = keys.into_iter().filter(|key| expected.get(key) != skewed_verdicts.get(key));
            differences.extend(differing.map(|key| {
                format!(
                    "{} {skew} ms: {key:?}: {:?} -> {:?}",
                    case.name,
                    expected.get(key),
                    skewed_verdicts.get(key)
                )
            }));
        }
    }
    assert!(compared >= 8, "{compared} captures have tool spans");
    assert!(limited >= 8, "{limited} calls are too soon");
    assert!(slow >= 8, "{slow} spans have a latency");
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

/// The spans of a capture by the end that was recorded, which is the order in which they are exported.
fn spans_by_end(evaluator: &Evaluator, case: &Case) -> Vec<SpanId> {
    let bodies = case.requests.iter().filter(|offer| offer.signal == Signal::Traces).map(|offer| &offer.body);
    let traces = evaluator.traces(bodies).unwrap();
    let mut spans: Vec<_> =
        traces.iter().flat_map(|closed| &closed.spans).map(|span| (span.end, span.id)).collect();
    spans.sort_unstable();
    spans.into_iter().map(|(_, id)| id).collect()
}

/// The harmful calls that are known when these spans have arrived, by span, reason and state; and the spans of those
/// that the whole trace confirms.
fn alarms(
    evaluator: &Evaluator,
    case: &Case,
    tools: &HashSet<Vec<u8>>,
    skew: i64,
    arrived: &[SpanId],
) -> (BTreeSet<String>, BTreeSet<SpanId>) {
    let requests = case.requests.iter().filter(|offer| offer.signal == Signal::Traces);
    let bodies: Vec<_> = requests.map(|offer| skewed(offer, tools, skew).body).collect();
    let (mut raised, mut confirmed) = (BTreeSet::new(), BTreeSet::new());
    for whole in evaluator.traces(bodies).unwrap() {
        let mut open = ClosedTrace { incomplete: true, ..whole.clone() };
        open.spans.retain(|span| arrived.contains(&span.id));
        let alarms = evaluator.harmful(open).alarms;
        let mut evaluated = evaluator.evaluate(whole, 0, &mut |_| ());
        evaluator.confirm_alarms(&mut evaluated, &alarms, &[]);
        let still_raised = evaluated.alarms.iter().filter(|alarm| alarm.state == AlarmState::Raised);
        confirmed.extend(still_raised.map(|alarm| alarm.span));
        raised.extend(alarms.iter().map(|alarm| format!("{} {} {}", alarm.span, alarm.reason, alarm.state)));
    }
    (raised, confirmed)
}

/// The spans that show the order of two calls may be among those that have not arrived: an alarm that depends on the
/// clock for that reason is retracted when they have.
#[test]
fn alarms_on_open_traces_do_not_depend_on_the_clock_of_the_tools_service() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut raised, mut too_soon) = (0, 0);
    let mut differences = Vec::new();
    for case in
        [root.join("demo"), root.join("tests/data/frameworks")].iter().flat_map(|folder| cases(folder))
    {
        let (tools, names) = tools(&case);
        if names.is_empty() {
            continue;
        }
        let source = Source { name: "task.yaml".to_owned(), text: timed_task(&names) };
        let tasks = TaskSet::parse(&[source]).unwrap();
        let evaluator =
            Evaluator::builder(&config(&case).verdict.evaluation).path_tasks(tasks).build().unwrap();
        let spans = spans_by_end(&evaluator, &case);
        let (expected, harmful) = alarms(&evaluator, &case, &HashSet::new(), 0, &spans);
        raised += expected.len();
        too_soon += expected.iter().filter(|alarm| alarm.contains("too_soon")).count();
        for skew in SKEWS {
            let (skewed_alarms, _) = alarms(&evaluator, &case, &tools, skew * 1_000_000, &spans);
            if skewed_alarms != expected {
                differences.push(format!("{} {skew} ms: {expected:?} -> {skewed_alarms:?}", case.name));
            }
            for arrived in [&spans[..spans.len() / 3], &spans[..spans.len() * 2 / 3]] {
                let (early, confirmed) = alarms(&evaluator, &case, &tools, skew * 1_000_000, arrived);
                if !confirmed.is_subset(&harmful) {
                    differences.push(format!("{} {skew} ms: {early:?}, {confirmed:?} confirmed", case.name));
                }
            }
        }
    }
    assert!(raised >= 20 && too_soon >= 8, "{raised} alarms, {too_soon} of them too soon");
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}
