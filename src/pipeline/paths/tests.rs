//! The work and the memory of questions, with a shard that counts its snapshots.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock, mpsc as std_mpsc};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::advance;
use tokio_util::task::TaskTracker;
use verdict_config::Source;
use verdict_eval::path::{ProposedCall, RunHints};
use verdict_otlp::trace::{CloseReason, ClosedTrace};

use super::*;
use crate::admin::Readiness;
use crate::config::{Config, from_sources};
use crate::export::ExportClients;
use crate::page::server::PageSource as _;
use crate::pipeline::components::CurrentComponents;
use crate::pipeline::page::PageState;
use crate::pipeline::shared::testing;
use crate::receive::paths::RunId;

/// Bytes of a snapshot.
const SNAPSHOT_BYTES: usize = 1_000;
const TRACE: TraceId = TraceId([7; 16]);
const TASK: &str = "task: t\nmatch: {}\nalphabet:\n  pay: { function: pay, other_arguments: true, arguments: {} }\n  \
                    look: look\nstates: { a: { final: true, reads: [pay, look] } }\n";

/// A pipeline whose only shard has one open trace, and the number of snapshots that it has sent.
fn pipeline() -> (Arc<Pipeline>, Arc<AtomicUsize>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let task = folder.path().join("task.yaml");
    std::fs::write(&task, TASK).unwrap();
    let text = format!(
        "verdict: {{ metrics: {{ path: {{ tasks: [{task:?}] }} }} }}\n\
         exporters: {{ file: {{ path: {:?} }} }}\nservice: {{ exporters: [file] }}",
        folder.path().join("out.jsonl")
    );
    let config = from_sources(&[Source { name: "test".to_owned(), text }], &|_| None).unwrap();
    let exporters = testing::exporters(&config, ExportClients::new());
    let mut shared = testing::shared(&config, &exporters, None);
    shared.queried_runs = Some(QueriedRuns::new());
    let (inbox, mut work) = mpsc::channel(8);
    let snapshots = Arc::new(AtomicUsize::new(0));
    let snapshot_count = Arc::clone(&snapshots);
    tokio::spawn(async move {
        while let Some(work) = work.recv().await {
            match work {
                ShardMessage::State(_, reply) => reply.send(TraceState::Open((1, 0))).unwrap(),
                ShardMessage::Snapshot(trace, permit, reply) => {
                    snapshot_count.fetch_add(1, Ordering::Relaxed);
                    let trace = ClosedTrace {
                        trace,
                        spans: Vec::new(),
                        logs: Vec::new(),
                        bytes: SNAPSHOT_BYTES,
                        close_reason: CloseReason::Idle,
                        incomplete: true,
                        prior_verdict: None,
                    };
                    reply.send(Some(Snapshot { trace, sizes: (1, 0), permit })).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
    });
    let pipeline = Pipeline {
        inboxes: RwLock::new(vec![inbox]),
        shared: Arc::new(shared),
        hasher: Default::default(),
        envelopes: Default::default(),
        prefix: "verdict.".to_owned(),
        tasks: TaskTracker::new(),
    };
    (Arc::new(pipeline), snapshots, folder)
}

fn question(agent: &str, name: &str, arguments: Value, id: &str) -> PathQuestion {
    PathQuestion {
        run: RunId::Trace(TRACE),
        hints: RunHints { agent: Some(agent.to_owned()), ..RunHints::default() },
        call: ProposedCall::new(name.to_owned(), arguments, Some(id.to_owned()), 1),
    }
}

fn look(agent: &str) -> PathQuestion {
    question(agent, "look", Value::Null, "")
}

#[tokio::test]
async fn questions_about_any_number_of_agents_make_one_snapshot_of_a_trace() {
    let (pipeline, snapshots, _folder) = pipeline();
    for n in 0..50 {
        let reply = pipeline.decide(look(&format!("agent {n}"))).await.unwrap();
        assert_eq!(reply.decision, PathDecision::Allowed);
    }
    assert_eq!(snapshots.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn snapshots_are_made_only_with_a_permit() {
    let (pipeline, snapshots, _folder) = pipeline();
    let runs = pipeline.shared.queried_runs.as_ref().unwrap();
    let permits = [runs.read_permit().await, runs.read_permit().await];
    for n in 0..20 {
        let refused = pipeline.decide(look(&format!("agent {n}"))).await.unwrap_err();
        assert_eq!(refused, Refused::Overloaded { retry: RETRY_DELAY });
    }
    assert_eq!(snapshots.load(Ordering::Relaxed), 0, "while other traces are read");
    drop(permits);
    assert!(pipeline.decide(look("agent")).await.is_ok());
    assert_eq!(snapshots.load(Ordering::Relaxed), 1);
}

#[test]
fn a_trace_read_after_the_timeout_of_its_question_answers_the_next_one() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let (pipeline, snapshots, _folder) = pipeline();
        let (release, blocked) = std_mpsc::channel::<()>();
        // The only blocking thread is busy, so the trace cannot be read in time.
        let occupied = tokio::task::spawn_blocking(move || blocked.recv());
        let task_pipeline = Arc::clone(&pipeline);
        let reply = tokio::spawn(async move { task_pipeline.decide(look("agent")).await.map(|_| ()) });
        while snapshots.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        advance(REPLY_TIMEOUT * 2).await;
        assert_eq!(reply.await.unwrap(), Err(Refused::Overloaded { retry: RETRY_DELAY }));
        drop(release);
        assert!(occupied.await.unwrap().is_err());
        assert!(pipeline.decide(look("agent")).await.is_ok());
        assert_eq!(snapshots.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn trace_that_is_read_for_a_question_or_the_page_is_charged_for_its_recognised_form() {
    for is_page in [false, true] {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (pipeline, snapshots, _folder) = pipeline();
            let (release, blocked) = std_mpsc::channel::<()>();
            // The only blocking thread is busy, so that the trace waits while it is charged.
            let occupied = tokio::task::spawn_blocking(move || blocked.recv());
            let question_pipeline = Arc::clone(&pipeline);
            let page = PageState::new(
                Arc::clone(&pipeline),
                Arc::clone(&pipeline.shared.exporters),
                Arc::clone(&pipeline.shared.meter.telemetry),
                Arc::new(Readiness::new("test")),
                Arc::new(Mutex::new(CurrentComponents { config: Config::default(), judges: None })),
            );
            let read = tokio::spawn(async move {
                match is_page {
                    true => drop(page.open_trace(TRACE).await),
                    false => drop(question_pipeline.decide(look("agent")).await),
                }
            });
            let reserved = || pipeline.shared.budget.reserved();
            while snapshots.load(Ordering::Relaxed) == 0 || reserved() == 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(reserved(), (EVALUATED_FACTOR * SNAPSHOT_BYTES) as u64);
            drop(release);
            assert!(occupied.await.unwrap().is_err());
            read.await.unwrap();
            assert_eq!(reserved(), 0);
        });
    }
}

#[tokio::test]
async fn awaited_calls_of_a_run_take_a_bounded_number_of_bytes() {
    let (pipeline, _, _folder) = pipeline();
    let runs = pipeline.shared.queried_runs.as_ref().unwrap();
    let text = "x".repeat(100_000);
    let mut decided = 0;
    for n in 0..20 {
        let reply =
            pipeline.decide(question("agent", "pay", json!({ "text": text }), &n.to_string())).await.unwrap();
        match reply.reason {
            None => decided += 1,
            Some(reason) => assert_eq!(reason, "too_many_pending"),
        }
    }
    assert_eq!(decided, 6, "the sixth reaches 512 KiB");
    assert!((500_000..700_000).contains(&runs.pending_bytes()), "{}", runs.pending_bytes());
    // Arguments that no task reads are not remembered.
    for n in 0..20 {
        let reply = pipeline
            .decide(question("other", "look", json!({ "text": text }), &n.to_string()))
            .await
            .unwrap();
        assert_eq!(reply.pending, n + 1);
    }
    assert!(runs.pending_bytes() < 700_000, "{}", runs.pending_bytes());
}

#[test]
fn sessions_with_a_name_above_the_limit_are_not_kept() {
    let runs = QueriedRuns::new();
    let (short, long) = ("x".repeat(1024), "x".repeat(1025));
    runs.note_session(&short, TRACE);
    runs.note_session(&long, TRACE);
    assert_eq!(runs.trace_of(&RunId::Session(short)), Some(TRACE));
    assert_eq!(runs.trace_of(&RunId::Session(long)), None);
}
