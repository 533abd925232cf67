//! Small traces that need many steps: begun on the shard's task, evaluated on a blocking thread.

use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, OnceLock};
use std::thread::{self, ThreadId};

use serde_json::json;
use tokio::sync::Semaphore;
use verdict_otlp::value::SPAN_ATTRIBUTES;
use verdict_otlp::work;
use verdict_otlp::write::Scalar;

use super::*;
use crate::page::config::PageConfig;
use crate::page::history::{History, HistoryFeed};
use crate::pipeline::budget::{Budget, EVALUATED_FACTOR, JUDGED_FACTOR};
use crate::pipeline::evaluate::INLINE_STEPS;
use crate::pipeline::ingest::ShardItem;
use crate::telemetry::PageMetrics;

/// A request of a trace with one model call, which calls a tool whose schema takes 400,000 steps to check: each of
/// 1,000 items matches the last of 400 alternatives.
pub(super) fn expensive(trace: u8) -> Bytes {
    let mut branches = vec![json!({ "type": "null" }); 400];
    branches.push(json!({ "type": "integer" }));
    let items = json!({ "type": "array", "items": { "anyOf": branches } });
    let parameters = json!({ "type": "object", "properties": { "a": items } });
    let tools = json!([{ "type": "function", "name": "t", "parameters": parameters }]).to_string();
    let call = json!({ "type": "tool_call", "id": "c1", "name": "t", "arguments": { "a": vec![1; 1_000] } });
    let text = json!({ "type": "text", "content": "Look it up." });
    let input = json!([{ "role": "user", "parts": [text] }]).to_string();
    let output = json!([{ "role": "assistant", "parts": [text, call] }]).to_string();
    let mut span = Vec::new();
    write::bytes(&mut span, 1, &[trace; 16]);
    write::bytes(&mut span, 2, &[1; 8]);
    write::fixed64(&mut span, 7, 1);
    write::fixed64(&mut span, 8, 2);
    for (key, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.tool.definitions", tools.as_str()),
        ("gen_ai.input.messages", input.as_str()),
        ("gen_ai.output.messages", output.as_str()),
    ] {
        write::attribute(&mut span, SPAN_ATTRIBUTES, key, Scalar::Str(value));
    }
    let mut spans = Vec::new();
    write::bytes(&mut spans, 2, &span);
    encode_request(&spans)
}

/// Calls `before` for each trace whose evaluation begins.
fn set_hook(shared: &Shared, verdict: &crate::config::VerdictConfig, before: fn(TraceId)) {
    let mut config = RuntimeConfig::new(verdict, &Extensions::default(), None).unwrap();
    config.evaluator.before_assessment = Some(before);
    shared.config.store(Arc::new(config));
}

/// The evaluations that began: the first byte of the trace's id, and the thread.
type Evaluations = Mutex<Vec<(u8, ThreadId)>>;

#[tokio::test]
async fn expensive_trace_leaves_the_task_of_the_shard_to_others() {
    static EVALUATIONS: Evaluations = Evaluations::new(Vec::new());
    let before = work::counted();
    let requests = vec![request(1), expensive(2), request(3)];
    let (out, telemetry) = run(
        requests,
        |shared, verdict| {
            set_hook(shared, verdict, |trace| {
                EVALUATIONS.lock().unwrap().push((trace.0[0], thread::current().id()))
            });
        },
        || (),
    )
    .await;
    // The runtime of this test has one thread, which is that of the shard.
    let work = work::counted() - before;
    assert!(work < 2 * INLINE_STEPS, "{work} units of work on the shard's task");
    assert_eq!(out.matches("\"spanId\"").count(), 3 + 1 + 3);
    assert_eq!(out.matches("verdict.trace.result").count(), 3);
    assert!(out.contains("verdict.error_detection.result") && !out.contains("\"limit\""));
    assert_eq!(telemetry.traces.unjudged.get(), 0);
    let evaluations = EVALUATIONS.lock().unwrap();
    let inline = |id: u8| -> Vec<bool> {
        let trace_evaluations = evaluations.iter().filter(|(trace, _)| *trace == id);
        trace_evaluations.map(|(_, thread_id)| *thread_id == thread::current().id()).collect()
    };
    assert_eq!([inline(1), inline(2), inline(3)], [vec![true], vec![true, false], vec![true]]);
}

#[tokio::test]
async fn spans_are_exported_if_the_evaluation_on_a_blocking_thread_panics() {
    static ATTEMPTS: AtomicUsize = AtomicUsize::new(0);
    let (out, telemetry) = run(
        vec![expensive(1), request(2)],
        |shared, verdict| {
            set_hook(shared, verdict, |trace| {
                let is_expensive = trace == TraceId([1; 16]);
                let is_second_attempt = is_expensive && ATTEMPTS.fetch_add(1, Ordering::Relaxed) == 1;
                assert!(!is_second_attempt, "as the test requires");
            });
        },
        || (),
    )
    .await;
    assert_eq!(out.matches("\"spanId\"").count(), 1 + 3);
    assert!(!out.contains("verdict.error_detection.result"));
    assert_eq!((ATTEMPTS.load(Ordering::Relaxed), telemetry.traces.unjudged.get()), (2, 1));
}

#[tokio::test]
async fn evaluations_on_blocking_threads_are_bounded_for_all_shards() {
    static SHARD: OnceLock<ThreadId> = OnceLock::new();
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    static MAX_RUNNING: AtomicUsize = AtomicUsize::new(0);
    SHARD.get_or_init(|| thread::current().id());
    let large = |trace| spans(trace, 1..=300);
    let requests = vec![large(1), expensive(2), large(3), expensive(4)];
    let (out, _) = run(
        requests,
        |shared, verdict| {
            shared.blocking_threads = Arc::new(Semaphore::new(1));
            set_hook(shared, verdict, |_| {
                if SHARD.get() != Some(&thread::current().id()) {
                    MAX_RUNNING.fetch_max(RUNNING.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(20));
                    RUNNING.fetch_sub(1, Ordering::Relaxed);
                }
            });
        },
        || (),
    )
    .await;
    assert_eq!(out.matches("\"spanId\"").count(), 2 * 300 + 2);
    assert_eq!(MAX_RUNNING.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn large_trace_is_charged_for_its_recognised_form_while_it_is_evaluated() {
    static BUDGET: OnceLock<Arc<Budget>> = OnceLock::new();
    static MAX_RESERVED: AtomicUsize = AtomicUsize::new(0);
    let (out, _) = run(
        vec![spans(1, 1..=300)],
        |shared, verdict| {
            BUDGET.get_or_init(|| Arc::clone(&shared.budget));
            set_hook(shared, verdict, |_| {
                let reserved = BUDGET.get().map_or(0, |budget| budget.reserved());
                MAX_RESERVED.fetch_max(usize::try_from(reserved).unwrap(), Ordering::Relaxed);
            });
        },
        || (),
    )
    .await;
    assert_eq!(out.matches("\"spanId\"").count(), 300);
    let charged = MAX_RESERVED.load(Ordering::Relaxed);
    assert!(charged >= EVALUATED_FACTOR * 300 * crate::assemble::SPAN_OVERHEAD, "{charged} bytes");
}

#[tokio::test]
async fn trace_that_waits_for_the_page_is_charged_for_its_recognised_form() {
    static BUDGET: OnceLock<Arc<Budget>> = OnceLock::new();
    let history = Arc::new(History::new(&PageConfig::default(), PageMetrics::default()));
    let (feed, queue) = HistoryFeed::new(history);
    let (out, _) = run(
        (1..=3).map(request).collect(),
        |shared, _| {
            BUDGET.get_or_init(|| Arc::clone(&shared.budget));
            shared.page = Some(feed);
        },
        || (),
    )
    .await;
    assert_eq!(out.matches("verdict.trace.result").count(), 3);
    let reserved = || BUDGET.get().map_or(0, |budget| budget.reserved());
    let groups = (1..=3).flat_map(|n| split(&request(n), "verdict.", &Interner::default()).unwrap().groups);
    let charged: usize = groups.map(|group| ShardItem::charged_bytes(&group)).sum();
    assert_eq!(reserved(), (JUDGED_FACTOR * charged) as u64);
    drop(queue);
    assert_eq!(reserved(), 0);
}
