//! Properties of every reader of untrusted bytes: of requests, configurations, judges' answers and journal
//! segments, and of the evaluation of any agent run. Each is a function, called by the targets next to this
//! file, which a coverage-guided fuzzer runs, and by `tests/it/fuzz.rs`, which needs a stable compiler only.

use std::path::Path;
use std::sync::OnceLock;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use otel_verdict::config::{Config, from_sources};
use otel_verdict::telemetry::Telemetry;
use prost::Message;
use serde_json::Value;
use verdict_config::{Size, Source};
use verdict_eval::alarms::{Alarm, AlarmState};
use verdict_eval::metrics::{TaskSet, Unmeasured};
use verdict_eval::questions::{Answer, AnswerForm, Opinion, ScoreField, Usage};
use verdict_eval::{Evaluator, JudgeResults};
use verdict_journal::{Journal, Recovered, Storage};
use verdict_judge::AnswerValidator;
use verdict_otlp::trace::{ClosedTrace, Span};
use verdict_otlp::write::{TelemetryItem, requests, strip_attributes};
use verdict_otlp::{Interner, Signal, json, logs, metrics, split};

#[path = "agent_runs.rs"]
mod agent_runs;

/// As a trace request: no panic; what is accepted is written again byte for byte, and splitting
/// what was written gives the same spans.
pub fn wire_split(data: &[u8]) {
    let _ = logs::find(data);
    let _ = metrics::count(data);
    let _ = strip_attributes(data, "verdict.");
    let interner = Interner::default();
    let Ok(first) = split(data, "verdict.", &interner) else { return };
    for group in &first.groups {
        let items: Vec<TelemetryItem<'_>> = group
            .spans
            .iter()
            .map(|span| TelemetryItem { envelope: &span.envelope, bytes: &span.bytes, appended: &[] })
            .collect();
        let written: Vec<u8> = requests(&items, 4096).iter().flat_map(|piece| piece.bytes.to_vec()).collect();
        let reread = split(&written, "verdict.", &interner).expect("a written request is valid");
        assert_eq!(reread.rejected.count, 0);
        let [reread_group] = &reread.groups[..] else { panic!("one trace became several") };
        let sorted = |spans: &[Span]| {
            let place = |s: &Span| (s.envelope.resource.clone(), s.envelope.scope.clone(), s.bytes.clone());
            let mut all: Vec<_> = spans.iter().map(place).collect();
            all.sort();
            all
        };
        assert_eq!(sorted(&reread_group.spans), sorted(&group.spans));
    }
}

/// As JSON and as protobuf of every signal: no panic; what one direction writes, the other reads,
/// without further changes.
pub fn json(data: &[u8]) {
    for signal in [Signal::Traces, Signal::Logs, Signal::Metrics] {
        if let Ok(bytes) = json::decode(signal, data) {
            let text = json::encode(signal, &bytes).expect("a written request is valid");
            let decoded = json::decode(signal, &text).expect("written JSON is valid");
            assert_eq!(json::encode(signal, &decoded).as_ref(), Ok(&text));
        }
        let _ = json::encode(signal, data);
    }
}

/// As a configuration: read, or refused with a message; what is read and shown is read again.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let load = |text: &str| -> Result<Config, String> {
        let source = Source { name: "fuzz".to_owned(), text: text.to_owned() };
        from_sources(&[source], &|_| None).map_err(|invalid| {
            assert!(!invalid.lines().is_empty(), "a refusal names a reason");
            invalid.to_string()
        })
    };
    let Ok(config) = load(text) else { return };
    let shown = config.to_yaml().expect("what was read can be shown");
    // A secret is not shown, and a value that looks like a variable would be read as one.
    if !shown.contains("[redacted]") && !shown.contains('$') {
        let reloaded = load(&shown).unwrap_or_else(|faults| panic!("{faults}\n{shown}"));
        assert_eq!(config.differences(&reloaded), [""; 0], "{shown}");
    }
}

/// As a judge's answer: no panic; an accepted answer matches the form and is accepted again.
pub fn judge_answer(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let form = AnswerForm {
        name: "verdict",
        schema: serde_json::json!({
            "type": "object",
            "properties": {
                "rationale": { "type": "string" },
                "score": { "type": "integer", "enum": [1, 2, 3, 4, 5] },
            },
            "required": ["rationale", "score"],
            "additionalProperties": false,
        }),
        score: Some(ScoreField { key: "score", values: vec![1, 2, 3, 4, 5] }),
    };
    let validator = AnswerValidator::new(&form).expect("the schema is valid");
    if let Ok(value) = validator.read(text) {
        assert!((1..=5).contains(&value["score"].as_u64().expect("a whole number")));
        assert_eq!(validator.read(&value.to_string()).as_ref(), Ok(&value));
    }
}

/// Metrics with judges are answered by [`evaluation`], the others by rules.
const METRICS: &str = r#"
metrics:
  completeness: { judges: [rules, main] }
  reasoning_integrity: { judges: [rules, main] }
  tool_abuse: { judges: [rules, main] }
  latency: { max_ms: { llm: 1 } }
  plan:
    enabled: true
    judges: [rules, main]
    tools: { search: { placeholders: outside, max_questions: 1 }, lookup_order: { phrases: [order], max_phrases: 1 } }
    references:
      - query: "I will call search and then answer."
        plan: '[{"id": 1, "tool": "search", "prompt": "the price", "depends_on": []}]'
  checklist:
    judges: [rules, main]
    of: agents
    fixed:
      - items:
          - { question: "Was it searched?", check: { called: { tool: search, arguments: { q: 1 } } } }
          - { question: "Is the price named?", check: { matches: { text: "[0-9]+ EUR", in: outputs } } }
          - { question: "Is it JSON?", check: { answer: { json: { type: object, required: [name] } } } }
          - { question: "Is the answer right?" }
  path: { tasks: [tasks.yaml] }
"#;
/// An automaton, a policy with limits, and a task of the whole trace, for the tools of [`agent_runs`].
const TASKS: [&str; 3] = [
    "
task: order
alphabet: { search: search, look: { function: lookup_order, arguments: { q: { any: true, optional: true }, /a/b: { max: 5, optional: true } } } }
states:
  begin: { on: { search: found }, reads: [look] }
  found: { final: true, on: { look: done }, reads: [search] }
  done: { final: true, reads: [look] }
unknown_calls: harmful
",
    "
task: limits
match: { prompt: '(?i)(?<what>search|order)' }
alphabet: { search: { function: search, arguments: { q: { any: true } }, other_arguments: true }, look: lookup_order }
policy:
  - { at_most: 2, of: search }
  - { never: look, before: search }
  - { must_follow: look, after: search }
  - sum of search.q <= 3 per run
  - search no sooner than 2ms after look
  - look within 5ms after search
failed_calls: advance
",
    "
task: whole
scope: trace
alphabet: { search: search }
states: { only: { final: true, reads: [search] } }
unknown_calls: ignore
",
];
/// More answers than this are not given; the rest is unmeasured.
const ANSWERS: usize = 64;

/// With these metrics and tasks.
fn evaluator() -> Evaluator {
    let config: verdict_eval::Config = serde_saphyr::from_str(METRICS).expect("a configuration");
    let source = |(n, text): (usize, &&str)| Source { name: format!("{n}.yaml"), text: (*text).to_owned() };
    let sources: Vec<Source> = TASKS.iter().enumerate().map(source).collect();
    let tasks = TaskSet::parse(&sources).unwrap_or_else(|faults| panic!("{faults:?}"));
    Evaluator::builder(&config).path_tasks(tasks).build().expect("an evaluator")
}

/// As an agent run ([`agent_runs`]), evaluated with rules and a judge, and checked for harmful calls while it is open:
/// no panic; the spans that are written are those that were read, with attributes appended; their order in the request
/// changes nothing; each alarm is confirmed or retracted; an attempt in fewer steps has the same result or none.
pub fn evaluation(data: &[u8]) {
    static EVALUATOR: OnceLock<Evaluator> = OnceLock::new();
    let evaluator = EVALUATOR.get_or_init(evaluator);
    let request = agent_runs::request(data);
    let mut reversed = request.clone();
    reversed.resource_spans.reverse();
    for resource in &mut reversed.resource_spans {
        resource.scope_spans.reverse();
        resource.scope_spans.iter_mut().for_each(|scope| scope.spans.reverse());
    }
    let sent = plain_spans(&request.encode_to_vec());
    let annotated = annotated(evaluator, &request.encode_to_vec());
    let mut plain: Vec<Vec<u8>> = annotated.iter().flat_map(|request| plain_spans(request)).collect();
    plain.sort();
    assert_eq!(plain, sent, "the spans that are written are those that were read");
    let whole = |requests: &[Vec<u8>]| {
        let decode = |bytes: &Vec<u8>| ExportTraceServiceRequest::decode(&bytes[..]).expect("a request");
        let resources = requests.iter().flat_map(|bytes| decode(bytes).resource_spans);
        let spans = resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans);
        let mut spans: Vec<_> = spans.map(|span| (span.span_id.clone(), span)).collect();
        spans.sort_by(|a, b| a.0.cmp(&b.0));
        spans
    };
    let reordered = self::annotated(evaluator, &reversed.encode_to_vec());
    assert_eq!(whole(&annotated), whole(&reordered), "the order of spans in the request changes nothing");
    alarms(evaluator, &request.encode_to_vec());
}

/// Checks the trace when half of its spans have arrived, and again when it closes.
fn alarms(evaluator: &Evaluator, request: &[u8]) {
    for closed in evaluator.traces([request]).expect("a request") {
        let half = closed.spans.len() / 2;
        let open = ClosedTrace { spans: closed.spans[..half].to_vec(), incomplete: true, ..closed.clone() };
        let alarms = evaluator.harmful(open.clone()).alarms;
        evaluator.path_positions(open);
        let attempt = evaluator.evaluate_within(64, closed.clone(), 0, &mut |_| ());
        let mut evaluated = evaluator.evaluate(closed, 0, &mut |_| ());
        if let Some(attempt) = attempt {
            assert_eq!(
                attempt.measurements, evaluated.measurements,
                "an attempt that ends has the same result"
            );
        }
        let retracted = evaluator.confirm_alarms(&mut evaluated, &alarms, &[]);
        let is_retracted = |alarm: &Alarm| retracted.iter().any(|other| other.span == alarm.span);
        for alarm in alarms.iter().filter(|alarm| !is_retracted(alarm)) {
            let confirmed = evaluated.alarms.iter().any(|mark| mark.state == AlarmState::Raised);
            assert!(confirmed, "the alarm on {} is neither confirmed nor retracted", alarm.span);
        }
        let all: Vec<_> = alarms.iter().map(|alarm| (alarm, AlarmState::Raised)).collect();
        let events = evaluator.alarm_events(evaluated.trace.tree.id, &all, 0);
        assert_eq!(events.iter().map(|piece| piece.items).sum::<u64>(), alarms.len() as u64);
        for piece in events {
            ExportLogsServiceRequest::decode(&piece.bytes[..]).expect("a request of logs");
        }
    }
}

/// The metrics that have a result on an agent run, and `alarm` if one is raised while it is open.
#[allow(dead_code)]
pub fn measured(data: &[u8]) -> Vec<&'static str> {
    let evaluator = evaluator();
    let mut metrics = Vec::new();
    for closed in evaluator.traces([agent_runs::request(data).encode_to_vec()]).expect("a request") {
        metrics.extend(evaluator.harmful(closed.clone()).alarms.iter().map(|_| "alarm"));
        let measured = evaluator.evaluate(closed, 0, &mut |_| ()).measurements.into_iter();
        metrics.extend(measured.filter(|m| m.outcome.is_ok()).map(|m| m.metric));
    }
    metrics
}

/// The annotated requests of the evaluated trace.
fn annotated(evaluator: &Evaluator, request: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for closed in evaluator.traces([request]).expect("a request") {
        let assessment = evaluator.assess(closed, &mut |_| ());
        let mut questions = evaluator.questions(&assessment);
        for _ in 0..ANSWERS {
            let Some(ask) = questions.next_question() else { break };
            let value = answer(&ask.question.form.schema);
            let opinion = Opinion { value, weighted: None, judge: "fuzz".into() };
            let key = ask.question.key.clone();
            questions.answer(ask.id, Answer { key, opinions: Ok(vec![opinion]), usage: Usage::default() });
        }
        let judged =
            JudgeResults { measurements: questions.finish(Unmeasured::Timeout), ..JudgeResults::default() };
        let evaluated = evaluator.decide(assessment, judged, 0);
        out.extend(evaluator.annotate(&evaluated).spans.iter().map(|piece| piece.bytes.to_vec()));
    }
    out
}

/// An answer of this form, with the first of each choice and one element in each list.
fn answer(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|all| all.first()) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("object") => {
            let members = schema["properties"].as_object().into_iter().flatten();
            Value::Object(members.map(|(key, schema)| (key.clone(), answer(schema))).collect())
        }
        Some("array") => Value::from(vec![answer(&schema["items"])]),
        Some("integer" | "number") => 1.into(),
        Some("boolean") => false.into(),
        _ => "search".into(),
    }
}

/// The spans of a request without the attributes of verdicts, sorted.
fn plain_spans(request: &[u8]) -> Vec<Vec<u8>> {
    let split = split(request, "verdict.", &Interner::default()).expect("a request");
    let spans = split.groups.iter().flat_map(|group| &group.spans);
    let plain = |span: &Span| strip_attributes(&span.bytes, "verdict.").unwrap_or_else(|| span.bytes.clone());
    let mut plain: Vec<Vec<u8>> = spans.map(|span| plain(span).to_vec()).collect();
    plain.sort();
    plain
}

/// As a segment of the journal: the start succeeds, every record that it found can be read, and the next start
/// finds the same records. An odd first byte: the remaining bytes are the segment. An even one: they encode kinds,
/// names, lengths and payloads of frames with valid checksums.
pub fn journal(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let segment = if first % 2 == 1 { rest.to_vec() } else { framed(rest) };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("0000000000000001.log"), segment).expect("a file");
    let (found, restarted) = (start(folder.path()), start(folder.path()));
    assert_eq!((&found.open, &found.verdicts), (&restarted.open, &restarted.verdicts));
    assert_eq!((&found.forwarded, &found.closed), (&restarted.forwarded, &restarted.closed));
}

fn start(folder: &Path) -> Recovered {
    let storage = Storage { max_bytes: Size(1 << 30), ..Storage::default() };
    let opened = Journal::open(folder, &storage, 100, &Telemetry::new().journal);
    let (journal, recovered) = opened.expect("a damaged segment does not prevent a start");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let records =
            recovered.open.keys().chain(recovered.verdicts.keys()).chain(recovered.forwarded.keys());
        for &seq in records {
            assert!(journal.read(seq).await.is_some(), "{seq} was found and cannot be read");
        }
        journal.close().await;
    });
    recovered
}

/// A segment in the layout of the journal.
fn framed(mut rest: &[u8]) -> Vec<u8> {
    const MARKER: &[u8; 4] = b"mark";
    let mut out = b"otvjrnl\n\x02\0\0\0".to_vec();
    out.extend_from_slice(MARKER);
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    while let Some((&[kind, seq, len], behind)) = rest.split_first_chunk::<3>() {
        let (payload, behind) = behind.split_at(behind.len().min(usize::from(len)));
        out.extend_from_slice(MARKER);
        let from = out.len();
        out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        out.push(kind);
        out.extend_from_slice(&u64::from(seq).to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
        let check = crc32fast::hash(&out[from..]);
        out.extend_from_slice(&check.to_le_bytes());
        out.extend_from_slice(payload);
        rest = behind;
    }
    out
}
