//! A shard, its exporters behind it: what becomes of spans when judging goes wrong.

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::config::{Source, from_sources};
use crate::export::Look;
use crate::telemetry::Telemetry;
use crate::trace::Kind;
use crate::wire::request::{Interner, split};
use crate::wire::write;

/// A request of one trace: a root and two children.
fn request(trace: u8) -> Bytes {
    let mut spans = Vec::new();
    for id in 1..=3u8 {
        let mut span = Vec::new();
        write::bytes(&mut span, 1, &[trace; 16]);
        write::bytes(&mut span, 2, &[id; 8]);
        if id > 1 {
            write::bytes(&mut span, 4, &[1; 8]);
        }
        write::fixed64(&mut span, 7, 1);
        write::fixed64(&mut span, 8, 2);
        write::bytes(&mut spans, 2, &span);
    }
    let mut scope = Vec::new();
    write::bytes(&mut scope, 2, &spans);
    let mut request = Vec::new();
    write::bytes(&mut request, 1, &scope);
    request.into()
}

/// Runs one shard over three traces; what it exports, as lines of JSON.
async fn export(change: impl FnOnce(&mut Shared, &crate::config::Verdict)) -> (String, Arc<Telemetry>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let text = format!(
        "exporters: {{ file: {{ path: {path:?}, signals: [traces] }} }}\nservice: {{ exporters: [file] }}"
    );
    let config = from_sources(&[Source { name: "test".to_owned(), text }], &|_| None).unwrap();
    let look = Look { kind_of: Arc::new(|_, _| Kind::Unknown), prefix: "verdict.".to_owned() };
    let exporters = Arc::new(Exporters::start(&config.exporters, &config.service.exporters, &look).unwrap());
    let telemetry = Telemetry::new();
    let mut shared = Shared {
        live: InForce::new(Live::new(&config.verdict, None).unwrap()),
        exporters: Arc::clone(&exporters),
        meter: Meter::new(Arc::clone(&telemetry)),
        budget: Budget::new(config.memory.budget),
        shadow: false,
        journal: None,
        hurried: AtomicBool::new(false),
        hurry: Notify::new(),
        leaving: AtomicBool::new(false),
    };
    change(&mut shared, &config.verdict);
    let budget = Arc::clone(&shared.budget);
    let (inbox, work) = mpsc::channel(8);
    for trace in 1..=3 {
        let groups = split(&request(trace), "verdict.", &Interner::default()).unwrap().groups;
        inbox.send(Work::Spans(groups, budget.hold(0), None)).await.unwrap();
    }
    drop(inbox);
    Shard::new(Arc::new(shared)).run(work).await;
    exporters.drain(tokio::time::Instant::now() + Duration::from_secs(10)).await;
    (std::fs::read_to_string(path).unwrap(), telemetry)
}

#[tokio::test]
async fn a_trace_that_cannot_be_judged_goes_on_and_so_do_its_neighbours() {
    let (out, telemetry) = export(|shared, verdict| {
        let mut live = Live::new(verdict, None).unwrap();
        live.engine.panics_on = Some(TraceId([2; 16]));
        shared.live.set(live);
    })
    .await;
    assert_eq!(out.matches("\"spanId\"").count(), 9, "{out}");
    assert_eq!(out.matches("verdict.trace.result").count(), 3, "{out}");
    assert_eq!(telemetry.traces.unjudged.get(), 1);
}

#[tokio::test]
async fn without_time_to_judge_spans_go_on_unjudged() {
    let (out, telemetry) = export(|shared, _| shared.hurried = AtomicBool::new(true)).await;
    assert_eq!(out.matches("\"spanId\"").count(), 9, "{out}");
    assert_eq!(out.matches("\"unmeasured\"").count(), 3, "{out}");
    assert_eq!(telemetry.traces.unjudged.get(), 3);
}
