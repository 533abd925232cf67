//! A shard whose traces wait for judges: the exported spans and their time, including judges that fail or hang.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use serde_json::{Value, json};
use verdict_eval::metrics::Unmeasured;
use verdict_eval::questions::{Answer, Ask, Opinion, Usage};
use verdict_otlp::trace::SpanId;
use verdict_otlp::value::SPAN_ATTRIBUTES;
use verdict_otlp::work;
use verdict_otlp::write::Scalar;

use super::expensive::expensive;
use super::*;
use crate::pipeline::ask_judges::QuestionAnswerer;
use crate::pipeline::budget::{EVALUATED_FACTOR, JUDGED_FACTOR};
use crate::pipeline::evaluate::INLINE_STEPS;
use crate::pipeline::ingest::ShardItem;

/// A judge with a given behaviour.
#[derive(Debug)]
struct TestJudge {
    behaviour: Behaviour,
    /// The prompts of the questions.
    asked: Mutex<Vec<String>>,
    /// Bytes of the rubrics of all questions.
    rubric_bytes: AtomicUsize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Behaviour {
    /// Answers with the worst score after this number of seconds.
    WorstScore(u64),
    /// Never answers.
    Hangs,
    /// Returns an error.
    Errs,
    /// Panics in the task of the question.
    Panics,
    /// Panics in the task of the trace.
    PanicsAtOnce,
}

impl QuestionAnswerer for TestJudge {
    fn ask(self: Arc<Self>, _: TraceId, ask: Ask) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        assert_ne!(self.behaviour, Behaviour::PanicsAtOnce, "as the test requires");
        self.asked.lock().unwrap().push(ask.question.prompt.user.to_string());
        self.rubric_bytes.fetch_add(ask.question.prompt.system.len(), Ordering::Relaxed);
        Box::pin(async move {
            let key = ask.question.key.clone();
            let opinions = match self.behaviour {
                Behaviour::WorstScore(secs) => {
                    tokio::time::sleep(Duration::from_secs(secs)).await;
                    let opinion =
                        Opinion { value: worst_answer(&ask), weighted: None, judge: Arc::from("m/1") };
                    Ok(vec![opinion])
                }
                Behaviour::Hangs => std::future::pending().await,
                Behaviour::Errs => Err(Unmeasured::JudgeError),
                Behaviour::Panics | Behaviour::PanicsAtOnce => panic!("a judge's bug"),
            };
            Answer { key, opinions, usage: Usage { tokens: 100, cost_usd: 0.5 } }
        })
    }
}

/// The valid answer with the worst score.
fn worst_answer(ask: &Ask) -> Value {
    // The output of the span, so that it is a valid quote.
    fill(&ask.question.form.schema, "Four.")
}

/// The first or smallest value that `schema` admits; every text is `text`.
pub(super) fn fill(schema: &Value, text: &str) -> Value {
    match (schema.get("enum").and_then(Value::as_array), schema["type"].as_str()) {
        (Some(all), _) => all.iter().min_by_key(|v| v.as_u64()).cloned().unwrap(),
        (None, Some("array")) => json!([fill(&schema["items"], text)]),
        (None, Some("object")) => {
            let fields = schema["properties"].as_object().unwrap();
            Value::Object(fields.iter().map(|(key, schema)| (key.clone(), fill(schema, text))).collect())
        }
        _ => json!(text),
    }
}

/// A request of a trace with one model call.
fn model_call_request(trace: u8, id: u8) -> Bytes {
    encode_request(&model_call(trace, id))
}

/// An encoded model call.
fn model_call(trace: u8, id: u8) -> Vec<u8> {
    let mut span = Vec::new();
    write::bytes(&mut span, 1, &[trace; 16]);
    write::bytes(&mut span, 2, &[id; 8]);
    write::fixed64(&mut span, 7, 1);
    write::fixed64(&mut span, 8, 2);
    let message = |role: &str, text: &str| {
        json!([{ "role": role, "parts": [{ "type": "text", "content": text }] }]).to_string()
    };
    let (input, output) = (message("user", "Reply in one word: what is 2+2?"), message("assistant", "Four."));
    for (key, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.input.messages", input.as_str()),
        ("gen_ai.output.messages", output.as_str()),
    ] {
        write::attribute(&mut span, SPAN_ATTRIBUTES, key, Scalar::Str(value));
    }
    let mut spans = Vec::new();
    write::bytes(&mut spans, 2, &span);
    spans
}

/// A configuration with one metric of a judge.
const JUDGED: &str = "verdict: { max_wait: 30s, close: { quiet: 5s }, metrics: { judges: [rules], instruction_following: { judges: [main] } } }
judges: { main: { endpoint: 'http://127.0.0.1:9/v1', model: m } }";

/// Runs a shard with such a judge while `play` runs. Returns the exported requests.
async fn with_judge<F: Future<Output = ()>>(
    behaviour: Behaviour,
    play: impl FnOnce(mpsc::Sender<ShardMessage>, Arc<Shared>) -> F,
) -> (Vec<Value>, Arc<TestJudge>) {
    with_config(JUDGED, behaviour, |inbox, shared, _| play(inbox, shared)).await
}

/// Like [`with_judge`], with another configuration than [`JUDGED`].
async fn with_config<F: Future<Output = ()>>(
    config: &str,
    behaviour: Behaviour,
    play: impl FnOnce(mpsc::Sender<ShardMessage>, Arc<Shared>, Arc<TestJudge>) -> F,
) -> (Vec<Value>, Arc<TestJudge>) {
    let answerer =
        Arc::new(TestJudge { behaviour, asked: Mutex::default(), rubric_bytes: AtomicUsize::new(0) });
    let shared_answerer = Arc::clone(&answerer);
    let out = with_answerer(
        config,
        |_| shared_answerer as Arc<dyn QuestionAnswerer>,
        |inbox, shared| play(inbox, shared, Arc::clone(&answerer)),
    );
    (out.await, answerer)
}

/// Runs a shard with the judges that `answerer` returns. Returns the exported requests.
pub(super) async fn with_answerer<F: Future<Output = ()>>(
    config: &str,
    answerer: impl FnOnce(&crate::config::Config) -> Arc<dyn QuestionAnswerer>,
    play: impl FnOnce(mpsc::Sender<ShardMessage>, Arc<Shared>) -> F,
) -> Vec<Value> {
    with_queue(config, "64MiB", answerer, play).await
}

/// Like [`with_answerer`], with a queue of this size.
async fn with_queue<F: Future<Output = ()>>(
    config: &str,
    queue: &str,
    answerer: impl FnOnce(&crate::config::Config) -> Arc<dyn QuestionAnswerer>,
    play: impl FnOnce(mpsc::Sender<ShardMessage>, Arc<Shared>) -> F,
) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let text = format!(
        "{config}\nexporters: {{ file: {{ path: {path:?}, signals: [traces], sending_queue: {{ queue_size: {queue} }} }} }}\nservice: {{ exporters: [file] }}"
    );
    let config = from_sources(&[Source { name: "test".to_owned(), text }], &|_| None).unwrap();
    let exporters = exporters(&config, ExportClients::new());
    let shared = Arc::new(shared(&config, &exporters, Some(answerer(&config))));
    let (inbox, messages) = mpsc::channel(8);
    let shard = tokio::spawn(Shard::new(Arc::clone(&shared)).run(messages));
    play(inbox, Arc::clone(&shared)).await;
    shard.await.unwrap();
    exporters.drain(tokio::time::Instant::now() + Duration::from_secs(180)).await;
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(super) async fn send(inbox: &mpsc::Sender<ShardMessage>, shared: &Shared, request: &Bytes) {
    let groups = split(request, "verdict.", &Interner::default()).unwrap().groups;
    inbox.send(ShardMessage::Spans(groups, shared.budget.reserve(0), None)).await.unwrap();
}

/// An attribute of the first span of an exported request.
fn attribute<'a>(request: &'a Value, key: &str) -> Option<&'a str> {
    let spans = &request["resourceSpans"][0]["scopeSpans"][0]["spans"];
    let all = spans[0]["attributes"].as_array()?;
    let value = &all.iter().find(|a| a["key"] == key)?["value"];
    value.as_object()?.values().next()?.as_str()
}

#[tokio::test]
async fn judged_measurement_and_its_usage_are_exported() {
    let (out, answerer) = with_judge(Behaviour::WorstScore(0), |inbox, shared| async move {
        send(&inbox, &shared, &model_call_request(1, 1)).await;
    })
    .await;
    assert_eq!(out.len(), 1);
    assert_eq!(attribute(&out[0], "verdict.instruction_following.result"), Some("fail"), "{:#}", out[0]);
    assert_eq!(attribute(&out[0], "verdict.instruction_following.judge"), Some("m/1"));
    assert_eq!(attribute(&out[0], "verdict.trace.judge_tokens"), Some("100"));
    assert_eq!(attribute(&out[0], "verdict.trace.result"), Some("fail"));
    assert!(answerer.asked.lock().unwrap()[0].contains("what is 2+2?"));
}

#[tokio::test]
async fn trace_that_needs_many_steps_is_assessed_on_a_blocking_thread_before_judges_are_asked() {
    let before = work::counted();
    let (out, answerer) = with_judge(Behaviour::WorstScore(0), |inbox, shared| async move {
        send(&inbox, &shared, &expensive(1)).await;
    })
    .await;
    // The runtime of this test has one thread.
    let work = work::counted() - before;
    assert!(work < 2 * INLINE_STEPS, "{work} units of work on the runtime's thread");
    assert_eq!((out.len(), answerer.asked.lock().unwrap().len()), (1, 1));
}

#[tokio::test]
async fn failing_or_panicking_judge_leaves_spans_and_rule_verdicts() {
    for behaviour in [Behaviour::Errs, Behaviour::Panics] {
        let (out, _) = with_judge(behaviour, |inbox, shared| async move {
            send(&inbox, &shared, &model_call_request(1, 1)).await;
            send(&inbox, &shared, &model_call_request(2, 1)).await;
        })
        .await;
        assert_eq!(out.len(), 2, "{behaviour:?}");
        for request in &out {
            assert_eq!(attribute(request, "verdict.instruction_following.result"), Some("unmeasured"));
            let reason = attribute(request, "verdict.instruction_following.reason");
            let expected = if behaviour == Behaviour::Errs { "judge_error" } else { "timeout" };
            assert_eq!(reason, Some(expected), "{behaviour:?}");
            assert_eq!(attribute(request, "verdict.error_detection.result"), Some("pass"), "{behaviour:?}");
        }
    }
}

#[tokio::test]
async fn panic_in_the_task_of_a_trace_is_reported_and_others_are_exported() {
    let (out, _) = with_judge(Behaviour::PanicsAtOnce, |inbox, shared| async move {
        send(&inbox, &shared, &model_call_request(1, 1)).await;
        // Late spans ask no judge.
        shared.stop_waiting.notify_waiters();
        while !shared.shard_failed.load(Ordering::Relaxed) {
            inbox.send(ShardMessage::Flush(tokio::sync::oneshot::channel().0)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        send(&inbox, &shared, &model_call_request(1, 2)).await;
    })
    .await;
    assert_eq!(out.len(), 1, "the trace whose task panicked is lost without a journal");
}

#[tokio::test(start_paused = true)]
async fn trace_waits_for_a_judge_at_most_max_wait() {
    let start = tokio::time::Instant::now();
    let (out, _) = with_judge(Behaviour::Hangs, |inbox, shared| async move {
        send(&inbox, &shared, &model_call_request(1, 1)).await;
    })
    .await;
    assert_eq!(attribute(&out[0], "verdict.instruction_following.reason"), Some("timeout"));
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(30) && waited < Duration::from_secs(45), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn notified_trace_stops_waiting_for_its_judge() {
    let start = tokio::time::Instant::now();
    let (out, _) = with_judge(Behaviour::Hangs, |inbox, shared| async move {
        send(&inbox, &shared, &model_call_request(1, 1)).await;
        drop(inbox);
        tokio::time::sleep(Duration::from_secs(1)).await;
        shared.stop_waiting.notify_waiters();
    })
    .await;
    assert_eq!(attribute(&out[0], "verdict.instruction_following.reason"), Some("timeout"));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

/// Waits until this number of bytes is reserved.
async fn wait_until_reserved(shared: &Shared, bytes: impl Fn() -> usize) {
    for _ in 0..18_000 {
        if shared.budget.reserved() == bytes() as u64 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} bytes are reserved instead of {}", shared.budget.reserved(), bytes());
}

#[tokio::test]
async fn trace_that_waits_for_a_judge_is_charged_with_logs_envelopes_and_questions() {
    let config = JUDGED.replace("quiet: 5s", "quiet: 0s");
    let (out, _) = with_config(&config, Behaviour::Hangs, |inbox, shared, answerer| async move {
        // Some frameworks write all content to log records.
        let bytes = Bytes::from(vec![0; 100_000]);
        let record = GenAiRecord { trace: TraceId([1; 16]), span: SpanId([1; 8]), bytes: bytes.clone() };
        inbox.send(ShardMessage::Logs(vec![record], shared.budget.reserve(0), None)).await.unwrap();
        wait_until_reserved(&shared, || bytes.len()).await;
        let charged = |request: &Bytes| -> usize {
            let groups = split(request, "verdict.", &Interner::default()).unwrap().groups;
            groups.iter().map(ShardItem::charged_bytes).sum()
        };
        let first = model_call_request(1, 1);
        send(&inbox, &shared, &first).await;
        // Each question is charged twice: as a question, and as the body of a request with its rubric.
        let questions = || {
            let shown: usize = answerer.asked.lock().unwrap().iter().map(String::len).sum();
            2 * shown + answerer.rubric_bytes.load(Ordering::Relaxed)
        };
        let waiting = || JUDGED_FACTOR * (charged(&first) + bytes.len()) + questions();
        wait_until_reserved(&shared, waiting).await;
        assert!(questions() > 0);
        // A late span with a large resource is deferred.
        let mut resource = Vec::new();
        write::attribute(&mut resource, 1, "text", Scalar::Str(&"r".repeat(50_000)));
        let late = encode_request_with(&resource, &model_call(1, 2));
        assert!(charged(&late) > 50_000);
        send(&inbox, &shared, &late).await;
        wait_until_reserved(&shared, || waiting() + charged(&late)).await;
        shared.stop_waiting.notify_waiters();
        wait_until_reserved(&shared, || 0).await;
    })
    .await;
    assert_eq!(out.len(), 2);
}

#[tokio::test]
async fn preview_is_charged_as_a_closed_trace_while_it_is_read_and_while_it_waits() {
    let open = JUDGED.replace("quiet: 5s", "quiet: 1h");
    with_config(&open, Behaviour::Hangs, |inbox, shared, answerer| async move {
        let first = model_call_request(1, 1);
        let groups = split(&first, "verdict.", &Interner::default()).unwrap().groups;
        let charged: usize = groups.iter().map(ShardItem::charged_bytes).sum();
        let asked = || answerer.asked.lock().unwrap().len();
        // No thread is free to read it.
        let threads = u32::try_from(shared.blocking_threads.available_permits()).unwrap();
        let threads = shared.blocking_threads.acquire_many(threads).await.unwrap();
        send(&inbox, &shared, &first).await;
        wait_until_reserved(&shared, || (1 + EVALUATED_FACTOR) * charged).await;
        assert_eq!(asked(), 0);
        drop(threads);
        let questions = || {
            let shown: usize = answerer.asked.lock().unwrap().iter().map(String::len).sum();
            2 * shown + answerer.rubric_bytes.load(Ordering::Relaxed)
        };
        wait_until_reserved(&shared, || (1 + JUDGED_FACTOR) * charged + questions()).await;
        assert!(questions() > 0);
        // The trace closes, and its questions are asked again.
        let asked_early = asked();
        drop(inbox);
        while asked() == asked_early {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        shared.stop_waiting.notify_waiters();
    })
    .await;
}

#[tokio::test]
async fn trace_that_closes_while_memory_is_full_asks_no_judge() {
    let config = JUDGED.replace("quiet: 5s", "quiet: 0s");
    let (out, answerer) = with_config(&config, Behaviour::Hangs, |inbox, shared, _| async move {
        let all = shared.budget.reserve(usize::try_from(shared.budget.limit()).unwrap());
        send(&inbox, &shared, &model_call_request(1, 1)).await;
        let (done, flushed) = oneshot::channel();
        inbox.send(ShardMessage::Flush(done)).await.unwrap();
        flushed.await.unwrap();
        drop(all);
    })
    .await;
    assert_eq!(attribute(&out[0], "verdict.instruction_following.reason"), Some("timeout"));
    assert_eq!(*answerer.asked.lock().unwrap(), [""; 0]);
}

#[tokio::test]
async fn late_span_of_a_waiting_trace_is_exported_after_it_without_questions() {
    let (out, _) = with_judge(Behaviour::WorstScore(1), |inbox, shared| async move {
        send(&inbox, &shared, &model_call_request(1, 1)).await;
        let (done, flushed) = oneshot::channel();
        let flush_inbox = inbox.clone();
        let flush = tokio::spawn(async move { flush_inbox.send(ShardMessage::Flush(done)).await.unwrap() });
        flush.await.unwrap();
        send(&inbox, &shared, &model_call_request(1, 2)).await;
        flushed.await.unwrap();
    })
    .await;
    assert_eq!(out.len(), 2);
    assert_eq!(attribute(&out[0], "verdict.trace.revision"), Some("1"));
    assert_eq!(
        attribute(&out[1], "verdict.instruction_following.judge"),
        None,
        "late spans are not asked about"
    );
    let spans = &out[1]["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"];
    let late = spans.as_array().unwrap().iter().find(|a| a["key"] == "verdict.late");
    assert_eq!(late.map(|a| &a["value"]["boolValue"]), Some(&json!(true)));
}

/// Waiting for the exporter on blocking threads would use up the threads that the exporter writes on.
#[test]
fn large_traces_that_wait_for_the_exporter_use_no_blocking_thread() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let config = JUDGED.replace("quiet: 5s", "quiet: 0s");
    let answerer = TestJudge {
        behaviour: Behaviour::WorstScore(0),
        asked: Mutex::default(),
        rubric_bytes: AtomicUsize::new(0),
    };
    let run = with_queue(
        &config,
        "1KiB",
        |_| Arc::new(answerer),
        |inbox, shared| async move {
            for trace in 1..=6 {
                send(&inbox, &shared, &spans(trace, 1..=300)).await;
            }
        },
    );
    let out = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(180), run).await });
    let out = out.expect("the exporter has no thread left to write on");
    let spans = out.iter().map(|request| request.to_string().matches("\"spanId\"").count());
    assert_eq!(spans.sum::<usize>(), 6 * 300);
    runtime.shutdown_timeout(Duration::ZERO);
}

#[tokio::test]
async fn open_trace_is_not_previewed_with_a_judge_that_a_reload_removed() {
    for is_reloaded in [false, true] {
        let open = JUDGED.replace("quiet: 5s", "quiet: 1h");
        with_config(&open, Behaviour::WorstScore(0), |inbox, shared, judge| async move {
            let rules_only = RuntimeConfig::new(&Config::default().verdict, &Extensions::default(), None);
            let rules_only = Arc::new(rules_only.unwrap());
            send(&inbox, &shared, &model_call_request(1, 1)).await;
            let is_asked = || !judge.asked.lock().unwrap().is_empty();
            if is_reloaded {
                shared.config.store(rules_only);
                // Longer than the interval of previews.
                tokio::time::sleep(Duration::from_secs(2)).await;
                assert!(!is_asked());
            }
            while !is_reloaded && !is_asked() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
}
