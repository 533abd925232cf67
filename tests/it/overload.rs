//! More than it can take, for seconds on end: senders are refused with a time to retry, memory
//! stays where it was allowed to be, and what was acknowledged comes out. And one trace that does
//! not end.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};

use crate::durable::{Processor, deliver, requests, undisturbed, written};
use crate::support::{Destination, Process};

const MIB: u64 = 1 << 20;
/// `memory.budget`, and the exporter's queue beside it.
const BUDGET: u64 = 24 * MIB;
const QUEUE: u64 = 4 * MIB;
/// What the process may take beyond these: requests being read and written, what is being judged,
/// and pages that the allocator gives back only after a while.
const BESIDE: u64 = 96 * MIB;
/// Bytes of a span.
const SPAN: usize = 16 << 10;
/// Spans of a request, each a trace.
const SPANS: u64 = 8;

/// A request of traces of one large span each.
fn large(n: u64) -> ExportTraceServiceRequest {
    let content = any_value::Value::StringValue("x".repeat(SPAN));
    let span = |n: u64| Span {
        trace_id: [[9; 8], n.to_be_bytes()].concat(),
        span_id: n.to_be_bytes().to_vec(),
        name: "chat".into(),
        start_time_unix_nano: 1,
        end_time_unix_nano: 2,
        attributes: vec![KeyValue {
            key: "content".into(),
            value: Some(AnyValue { value: Some(content.clone()) }),
            ..KeyValue::default()
        }],
        ..Span::default()
    };
    let spans = (1..=SPANS).map(|i| span(n * SPANS + i)).collect();
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { scope_spans, ..Default::default() }] }
}

/// `VmRSS` or `VmHWM` of a process, in bytes.
fn memory(pid: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

async fn overload(folder: &Path, more: &str) {
    let destination = Destination::default();
    // Two requests of at most 256 KiB in 50 ms: some 10 MB/s.
    destination.slow(Duration::from_millis(50));
    let text = format!(
        "exporters: {{ otlp_grpc: {{ max_request_size: 256KiB, \
         sending_queue: {{ queue_size: {QUEUE}, num_consumers: 2 }} }} }}\n"
    );
    let port = destination.serve().await;
    std::fs::write(folder.join("over.yaml"), format!("{text}memory: {{ budget: {BUDGET} }}\n{more}"))
        .unwrap();
    let mut processor = Processor::start(folder, port, "verdict: { close: { quiet: 1s } }");
    deliver(&mut processor.client(), &requests(0)[0]).await;
    let before = memory(processor.id(), "VmRSS");

    let stop = Arc::new(AtomicBool::new(false));
    let (next, offered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let taken: Arc<Mutex<Vec<u64>>> = Arc::default();
    let senders: Vec<_> = (0..12)
        .map(|_| {
            let (stop, next, offered, taken) =
                (Arc::clone(&stop), Arc::clone(&next), Arc::clone(&offered), Arc::clone(&taken));
            let mut client = processor.client();
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    offered.fetch_add(1, Ordering::Relaxed);
                    match client.export(large(n)).await {
                        Ok(_) => taken.lock().unwrap().push(n),
                        // The client's own patience has ended; whether it was taken is not known.
                        Err(status) if status.code() == tonic::Code::Cancelled => {}
                        Err(status) => {
                            assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
                            let details = String::from_utf8_lossy(status.details()).into_owned();
                            assert!(details.contains("google.rpc.RetryInfo"), "{status}");
                            // Sooner than it was asked to: an unruly sender.
                            tokio::time::sleep(Duration::from_millis(30)).await;
                        }
                    }
                }
            })
        })
        .collect();
    // As long as it takes until far more has been taken than may be held.
    let began = Instant::now();
    let enough = || taken.lock().unwrap().len() as u64 * SPANS * SPAN as u64 > BUDGET + BUDGET / 2;
    while began.elapsed() < Duration::from_secs(6) || !enough() {
        assert!(began.elapsed() < Duration::from_secs(120), "hardly anything is taken");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    stop.store(true, Ordering::Relaxed);
    for sender in senders {
        sender.await.unwrap();
    }
    let peak = memory(processor.id(), "VmHWM");
    let taken = taken.lock().unwrap().clone();
    let offered = offered.load(Ordering::Relaxed);
    let mib = |bytes: u64| bytes / MIB;
    println!(
        "{} of {offered} requests taken, {} MiB; resident before {} MiB, at most {} MiB",
        taken.len(),
        mib(taken.len() as u64 * SPANS * SPAN as u64),
        mib(before),
        mib(peak)
    );
    assert!(offered >= 2 * taken.len() as u64, "only {offered} requests for {} taken", taken.len());
    assert!(peak < before + BUDGET + QUEUE + BESIDE, "{} MiB resident", mib(peak));

    destination.slow(Duration::ZERO);
    let expected: BTreeSet<u64> =
        taken.iter().flat_map(|n| (1..=SPANS).map(move |i| n * SPANS + i)).collect();
    let began = Instant::now();
    loop {
        let ids = destination.spans().into_iter().filter(|span| span.trace_id.starts_with(&[9; 8]));
        let there: BTreeSet<u64> =
            ids.map(|span| u64::from_be_bytes(span.span_id.try_into().unwrap())).collect();
        let missing = expected.difference(&there).count();
        if missing == 0 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{missing} acknowledged spans did not come out");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(processor.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn under_twice_the_load_memory_stays_in_its_budget_and_nothing_acknowledged_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    overload(folder.path(), "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_twice_the_load_with_a_journal_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    overload(folder.path(), &format!("storage: {{ directory: '{}' }}", journal.display())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_far_beyond_its_cap_harms_no_other() {
    const CHUNK: u64 = 500;
    const CHUNKS: u64 = 40;
    let close = "verdict: { close: { quiet: 300ms, max_spans: 500 } }";
    let expected = undisturbed(close).await;
    let process = Process::start(close).await;
    let endless = |chunk: u64| {
        let span = |n: u64| Span {
            trace_id: vec![3; 16],
            span_id: n.to_be_bytes().to_vec(),
            parent_span_id: vec![3; 8],
            name: "step".into(),
            start_time_unix_nano: n,
            end_time_unix_nano: n + 1,
            ..Span::default()
        };
        let spans = (chunk * CHUNK + 1..=(chunk + 1) * CHUNK).map(span).collect();
        let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
        let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
        ExportTraceServiceRequest { resource_spans }
    };
    for chunk in 0..CHUNKS {
        process.client().spans(endless(chunk)).await;
        for request in requests(chunk) {
            process.client().spans(request).await;
        }
    }
    let all = (CHUNKS * CHUNK + CHUNKS * 3) as usize;
    process.until("every span", |d| d.spans().len() >= all).await;
    let spans = process.stop().await.spans();
    assert_eq!(spans.len(), all);
    let others = spans.iter().filter(|span| span.trace_id != [3; 16]);
    for span in others {
        assert_eq!(written(span), expected[&span.name], "{}", span.name);
    }
}
