//! Tests of evaluating a recording while it is read: memory, late spans, and the same verdicts in any order.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;
use verdict_config::Source;
use verdict_eval::metrics::names;
use verdict_otlp::trace::TraceId;
use verdict_otlp::write::{self, TelemetryItem};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::*;
use crate::config::from_sources;

const SECOND: u64 = 1_000_000_000;

/// Requests with the number of their file.
type Recording = Vec<(u32, Offer)>;

fn config(text: String) -> Config {
    from_sources(&[Source { name: "test".to_owned(), text }], &|_| None).unwrap()
}

fn without_metrics() -> Config {
    let disabled: Vec<String> = names()
        .map(|name| name.split('.').next().unwrap().to_owned())
        .collect::<BTreeSet<String>>()
        .into_iter()
        .map(|name| format!("{name}: {{ enabled: false }}"))
        .collect();
    config(format!("verdict: {{ metrics: {{ {} }} }}", disabled.join(", ")))
}

/// A span of a trace in a request of its own. Span 0 is the root.
fn request(trace: u16, span: u8, end: u64, error: bool, name_bytes: usize) -> Offer {
    let parent = if span == 0 { "" } else { "0000000000000001" };
    let status = if error { r#","status":{"code":2,"message":"failed"}"# } else { "" };
    let name = "x".repeat(name_bytes);
    let text = format!(
        r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"{:032x}","spanId":"{:016x}",
        "parentSpanId":"{parent}","name":"execute_tool {name}","startTimeUnixNano":"{}","endTimeUnixNano":"{end}",
        "attributes":[{{"key":"gen_ai.operation.name","value":{{"stringValue":"execute_tool"}}}},
        {{"key":"gen_ai.tool.name","value":{{"stringValue":"search"}}}}]{status}}}]}}]}}]}}"#,
        u32::from(trace) + 1,
        u32::from(span) + 1,
        end - 1_000
    );
    let body = verdict_otlp::json::decode(Signal::Traces, text.as_bytes()).unwrap();
    Offer { signal: Signal::Traces, body }
}

/// The last positions of a recording, as a first pass finds them.
fn ends_of(recording: &Recording) -> TraceEnds {
    let mut ends = TraceEnds::default();
    for (number, (file, offer)) in recording.iter().enumerate() {
        verdict_otlp::trace_ids::visit_request(offer.signal, &offer.body, &mut |trace| {
            ends.note(trace, Position { file: *file, offset: number as u64 });
        });
    }
    ends
}

/// Evaluates a recording while it is read. Returns the evaluated traces, and the peak of bytes in memory.
fn follow(config: &Config, closing: Closing, recording: &Recording) -> (Vec<EvaluatedRecording>, usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut evaluation = RecordingEvaluation::new(config, 0).unwrap();
    let parser = evaluation.parser();
    let (sender, requests) = tokio::sync::mpsc::channel(4);
    let mut all = Vec::new();
    let peak_bytes = std::thread::scope(|scope| {
        scope.spawn(move || {
            for (number, (file, offer)) in recording.iter().enumerate() {
                let end = Position { file: *file, offset: number as u64 + 1 };
                sender.blocking_send(parser.parse(offer, end).unwrap()).unwrap();
            }
        });
        runtime.block_on(evaluation.follow(closing, requests, |evaluated| all.push(evaluated)))
    });
    (all, peak_bytes)
}

/// Evaluates a recording at its end.
fn evaluate_at_end(config: &Config, recording: &Recording) -> Vec<EvaluatedRecording> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut evaluation = RecordingEvaluation::new(config, 0).unwrap();
    recording.iter().for_each(|(_, offer)| _ = evaluation.add(offer).unwrap());
    let mut all = Vec::new();
    runtime.block_on(evaluation.finish(|evaluated| all.push(evaluated)));
    all
}

/// The annotated spans of every trace with spans, which contain every verdict.
fn annotated(all: &[EvaluatedRecording]) -> BTreeMap<TraceId, Vec<Bytes>> {
    let spans = |evaluated: &EvaluatedRecording| {
        evaluated.annotated.spans.iter().map(|piece| piece.bytes.clone()).collect()
    };
    let with_spans = all.iter().filter(|evaluated| !evaluated.trace.trace.tree.is_empty());
    with_spans.map(|evaluated| (evaluated.trace.trace.tree.id, spans(evaluated))).collect()
}

fn spans_in(all: &[EvaluatedRecording]) -> usize {
    all.iter().map(|evaluated| evaluated.trace.trace.tree.len()).sum()
}

/// The spans and log records of the shipped recordings, each in a request of its own.
fn shipped() -> Vec<Offer> {
    let mut offers = Vec::new();
    for folder in
        ["demo/googleadk-logs-a", "demo/strands-c", "demo/vercelai-e", "demo/langgraph-openllmetry-x"]
    {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let mut paths: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "pb")) {
            let body = Bytes::from(std::fs::read(path).unwrap());
            if path.file_name().unwrap().to_str().unwrap().starts_with("logs") {
                offers.push(Offer { signal: Signal::Logs, body });
                continue;
            }
            let split = request::split(&body, "verdict.", &Interner::default()).unwrap();
            for span in split.groups.iter().flat_map(|group| &group.spans) {
                let item = TelemetryItem { envelope: &span.envelope, bytes: &span.bytes, appended: &[] };
                let pieces = write::requests(&[item], usize::MAX);
                offers.extend(pieces.into_iter().map(|p| Offer { signal: Signal::Traces, body: p.bytes }));
            }
        }
    }
    offers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_order_of_a_recording_gives_the_verdicts_of_the_whole(
        offers in Just(shipped()).prop_shuffle(),
        files in 1u32..4,
    ) {
        let offers_per_file = offers.len().div_ceil(files as usize);
        let recording: Recording = (0..).zip(offers.chunks(offers_per_file)).flat_map(|(file, part)| {
            part.iter().map(move |offer| (file, offer.clone()))
        }).collect();
        let config = Config::default();
        let expected = evaluate_at_end(&config, &recording);
        let (evaluated, _) = follow(&config, Closing::AfterLastSpans(ends_of(&recording)), &recording);
        prop_assert_eq!(annotated(&evaluated), annotated(&expected));
        // With closing by time a shuffled trace may be evaluated in parts, but no span is lost or evaluated twice.
        let (by_time, _) = follow(&config, Closing::ByTime, &recording);
        prop_assert_eq!(spans_in(&by_time), spans_in(&expected));
    }
}

/// `traces` one after the other, 20 s apart, of four spans; the root comes last.
fn one_after_the_other(traces: u16) -> Recording {
    let requests_for = |trace: u16| {
        let end = (u64::from(trace) + 1) * 20 * SECOND;
        [3, 2, 1, 0].map(|span| (0, request(trace, span, end - u64::from(span), false, 4_000)))
    };
    (0..traces).flat_map(requests_for).collect()
}

#[test]
fn memory_follows_open_traces_and_not_the_recording() {
    let config = without_metrics();
    // In addition to the open traces, one batch for each task and the waiting ones are in memory.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bound = (cores * 2 + 2) * (256 << 10);
    let traces = u16::try_from(bound * 3 / 16_000).unwrap();
    let recording = one_after_the_other(traces);
    let bytes: usize = recording.iter().map(|(_, offer)| offer.body.len()).sum();
    assert!(bytes > 2 * bound);
    for closing in [Closing::ByTime, Closing::AfterLastSpans(ends_of(&recording))] {
        let context = format!("{closing:.20?}");
        let (all, peak_bytes) = follow(&config, closing, &recording);
        assert_eq!(all.len(), usize::from(traces), "{context}");
        assert!(peak_bytes < bound, "{context}: {peak_bytes}, expected less than {bound}");
    }
    // A trace that is open all the time stays in memory, and no other one.
    let mut long = vec![(0, request(u16::MAX, 1, SECOND, false, 10))];
    long.extend(recording);
    long.push((0, request(u16::MAX, 0, 2 * SECOND, false, 10)));
    let (all, peak_bytes) = follow(&config, Closing::AfterLastSpans(ends_of(&long)), &long);
    assert_eq!(all.last().map(|last| last.trace.trace.tree.len()), Some(2));
    assert!(peak_bytes < bound, "{peak_bytes}, expected less than {bound}");
}

#[test]
fn by_time_later_spans_revise_the_verdict() {
    let mut recording = one_after_the_other(10);
    recording.push((0, request(0, 9, 400 * SECOND, true, 10)));
    recording.push((0, request(0, 10, 401 * SECOND, false, 10)));
    let (all, _) = follow(&Config::default(), Closing::ByTime, &recording);
    let evaluations: Vec<_> =
        all.iter().filter(|evaluated| evaluated.trace.trace.tree.id.0[15] == 1).collect();
    let facts: Vec<_> = evaluations
        .iter()
        .map(|evaluated| {
            let summary = &evaluated.trace.summary;
            (
                summary.close_reason,
                summary.passed,
                summary.revision,
                evaluated.prior_verdict.map(|prior| prior.revision),
            )
        })
        .collect();
    assert_eq!(
        facts,
        [
            // A single call without failures gives the rules nothing to measure.
            (CloseReason::Complete, None, 1, None),
            (CloseReason::Late, Some(false), 2, Some(1)),
            (CloseReason::Late, Some(false), 2, Some(2)),
        ]
    );
    // A file that is read twice has one verdict.
    let (all, _) = follow(&Config::default(), Closing::AfterLastSpans(ends_of(&recording)), &recording);
    let evaluations: Vec<_> =
        all.iter().filter(|evaluated| evaluated.trace.trace.tree.id.0[15] == 1).collect();
    assert_eq!(evaluations.len(), 1);
    let summary = &evaluations[0].trace.summary;
    assert_eq!(
        (summary.close_reason, summary.passed, summary.revision),
        (CloseReason::EndOfInput, Some(false), 1)
    );
}

#[test]
fn by_time_recordings_that_begin_anew_and_wrong_clocks_split_no_trace() {
    // Two agents whose files cover the same hour, and a span that claims to end in the year 2500.
    let mut recording = one_after_the_other(30);
    let second: Recording = recording.iter().map(|(_, offer)| (1, with_other_trace_id(offer))).collect();
    recording.extend(second);
    let wrong = request(7, 4, u64::MAX / 2, false, 10);
    recording.insert(30, (0, wrong));
    let (all, _) = follow(&without_metrics(), Closing::ByTime, &recording);
    assert!(all.iter().all(|evaluated| evaluated.prior_verdict.is_none()), "late spans");
    assert_eq!((all.len(), spans_in(&all)), (60, 241));
}

/// The same request with another trace id.
fn with_other_trace_id(offer: &Offer) -> Offer {
    let mut body = offer.body.to_vec();
    let id = body.windows(2).position(|two| two == [0x0a, 0x10]).unwrap() + 2;
    body[id] = 0xff;
    Offer { signal: offer.signal, body: body.into() }
}

#[test]
fn a_trace_that_is_absent_in_the_first_pass_closes_at_the_end() {
    let recording = one_after_the_other(3);
    let ends = ends_of(&recording[..8].to_vec());
    let (all, _) = follow(&without_metrics(), Closing::AfterLastSpans(ends), &recording);
    assert_eq!(all.iter().map(|evaluated| evaluated.trace.trace.tree.len()).collect::<Vec<_>>(), [4, 4, 4]);
}

const TRACE: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{
    "traceId":"01010101010101010101010101010101","spanId":"0101010101010101","name":"chat",
    "startTimeUnixNano":"1","endTimeUnixNano":"2","attributes":[
    {"key":"gen_ai.operation.name","value":{"stringValue":"chat"}},
    {"key":"gen_ai.input.messages","value":{"stringValue":"[{\"role\":\"user\",\"parts\":[{\"type\":\"text\",\"content\":\"In one word: 2+2?\"}]}]"}},
    {"key":"gen_ai.output.messages","value":{"stringValue":"[{\"role\":\"assistant\",\"parts\":[{\"type\":\"text\",\"content\":\"Four.\"}]}]"}}]}]}]}]}"#;

#[tokio::test]
async fn judges_are_asked_on_the_runtime_of_the_caller() {
    let server = MockServer::start().await;
    Mock::given(wiremock::matchers::any()).respond_with(ResponseTemplate::new(400)).mount(&server).await;
    let text = format!(
        "verdict: {{ metrics: {{ judges: [rules], instruction_following: {{ judges: [main] }} }} }}\n\
         judges: {{ main: {{ endpoint: '{}/v1', model: m }} }}",
        server.uri()
    );
    let config = config(text);
    let mut evaluation = RecordingEvaluation::new(&config, 0).unwrap();
    let body: Bytes = verdict_otlp::json::decode(Signal::Traces, TRACE.as_bytes()).unwrap();
    evaluation.add(&Offer { signal: Signal::Traces, body }).unwrap();
    let mut traces = 0;
    evaluation.finish(|_| traces += 1).await;
    assert_eq!(traces, 1);
    assert!(!server.received_requests().await.unwrap().is_empty());
}
