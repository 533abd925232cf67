//! A trace during whose evaluation the process always aborts. The product has no code that aborts on demand: a process
//! of these tests embeds it with a metric that aborts or never ends, so that no test depends on timing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread::{self, ThreadId};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use otel_verdict::config::load_with;
use otel_verdict::extensions::Extensions;
use otel_verdict::logging::{self, Format};
use otel_verdict::pipeline::service::Service;
use tokio::signal::unix::{SignalKind, signal};
use verdict_eval::metrics::{Context, CustomMetric, Metric, MetricProgress, MetricSpec, Scale};
use verdict_eval::questions::Answer;

use crate::durable::{
    Processor, begun_evaluations, expected_attributes, requests, send_until_acknowledged, span,
    verdict_attributes, wait_for_spans,
};
use crate::support::{Destination, text_attribute, until};

const POISON_TRACE: u64 = 1000;
const SENTENCE: &str = "The museum had 12 visitors in March, as the report says. ";
const CLOSE: &str = "verdict: { close: { quiet: 200ms } }";

/// A run that is evaluated on the task of a shard if it has few spans.
fn poison(spans: u32) -> ExportTraceServiceRequest {
    let mut request = requests(POISON_TRACE)[1].clone();
    let words = SENTENCE.repeat(1 + 20_000 / spans as usize);
    let attributes =
        vec![text_attribute("gen_ai.operation.name", "chat"), text_attribute("output.value", &words)];
    let model = span(POISON_TRACE, 2, 1, "chat m", attributes);
    let numbered_span =
        |n: u32| Span { span_id: [vec![9; 4], (n + 1).to_be_bytes().to_vec()].concat(), ..model.clone() };
    request.resource_spans[0].scope_spans[0].spans.extend((1..spans).map(numbered_span));
    request
}

fn requests_of_other_service(trace: u64) -> [ExportTraceServiceRequest; 2] {
    let attributes = vec![text_attribute("service.name", "other")];
    requests(trace).map(|mut request| {
        let attributes = attributes.clone();
        request.resource_spans[0].resource = Some(Resource { attributes, ..Resource::default() });
        request
    })
}

/// The ids of the traces that are being evaluated.
fn evaluated_now(journal: &Path) -> BTreeSet<Vec<u8>> {
    begun_evaluations(journal).into_iter().map(|(trace, _)| trace).collect()
}

fn id(trace: u64) -> Vec<u8> {
    span(trace, 1, 0, "", Vec::new()).trace_id
}

fn has_attribute(span: &Span, key: &str, value: &str) -> bool {
    span.attributes.iter().any(|kv| *kv == text_attribute(key, value))
}

/// The environment variable with the path of the configuration, for the process of these tests that embeds the product.
const CONFIG_VARIABLE: &str = "OTEL_VERDICT_TEST_EMBEDS";
/// The file next to the configuration that contains the kind of thread on which the process aborted.
const ABORT_FILE: &str = "died_on";
static DEADLY: MetricSpec = MetricSpec::custom("test.deadly", Scale::UNIT, Some(0.5));

/// Aborts the process when it evaluates the poison trace.
struct Deadly {
    folder: PathBuf,
    shard: ThreadId,
}

impl Metric for Deadly {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> MetricProgress {
        if context.trace.tree.id.0[..] == id(POISON_TRACE) {
            let thread_kind = if thread::current().id() == self.shard { "shard" } else { "blocking" };
            std::fs::write(self.folder.join(ABORT_FILE), thread_kind).unwrap();
            std::process::abort();
        }
        MetricProgress::Done(Vec::new())
    }
}

/// Does not end when it evaluates the poison trace.
struct Endless;

impl Metric for Endless {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> MetricProgress {
        while context.trace.tree.id.0[..] == id(POISON_TRACE) {
            thread::park();
        }
        MetricProgress::Done(Vec::new())
    }
}

/// Panics when it evaluates the poison trace, with a message that quotes the trace, as a wrong slice of a string does.
struct Panicking;

impl Metric for Panicking {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> MetricProgress {
        assert_ne!(context.trace.tree.id.0[..], id(POISON_TRACE), "end byte index 1 of {SENTENCE:?}");
        MetricProgress::Done(Vec::new())
    }
}

/// The command that makes a test the process that embeds the product, with its log in `log` next to the configuration,
/// whose path follows.
fn process(test: &str) -> Vec<String> {
    let executable = std::env::current_exe().unwrap();
    let script = format!(
        "{CONFIG_VARIABLE}=\"$4\" exec '{}' attacks::poison::{test} --exact --nocapture 2>> \"${{4%/*}}/log\"",
        executable.display()
    );
    ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec()
}

/// Embeds the product with a metric until SIGTERM, if this is the process for it. The tasks of its shards are on this
/// thread.
fn embed<M: Metric + 'static>(metric: impl FnOnce(&Path) -> M) {
    let Some(file) = std::env::var_os(CONFIG_VARIABLE).map(PathBuf::from) else { return };
    let metric = CustomMetric::new(&DEADLY, DEADLY.defaults(), metric(file.parent().unwrap()));
    let extensions = Extensions { metrics: vec![metric], ..Extensions::default() };
    let config = load_with(&[&file], &extensions).unwrap();
    logging::init(&config.service.log_level, Format::Json).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut stop = signal(SignalKind::terminate()).unwrap();
        let service = Box::pin(Service::start_with(&config, extensions)).await.unwrap();
        stop.recv().await;
        service.stop(*config.service.shutdown_timeout).await;
    });
}

#[test]
fn process_that_dies_while_it_evaluates() {
    embed(|folder| Deadly { folder: folder.to_owned(), shard: thread::current().id() });
}

#[test]
fn process_that_evaluates_without_end() {
    embed(|_| Endless);
}

#[test]
fn process_that_panics_while_it_evaluates() {
    embed(|_| Panicking);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_panic_has_its_location_and_nothing_of_the_trace() {
    let destination = Destination::default();
    let folder = tempfile::tempdir().unwrap();
    let wrapper = process("process_that_panics_while_it_evaluates");
    let mut processor = Processor::start_through(wrapper, folder.path(), destination.serve().await, CLOSE);
    send_until_acknowledged(&mut processor.client(), &poison(3)).await;
    wait_for_spans(&destination, 3).await;
    assert_eq!(processor.terminate(), Some(0));
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("\"location\":\"tests/it/attacks/poison.rs:"), "{log}");
    assert!(log.contains("evaluating a trace panicked"), "{log}");
    assert!(!log.contains("museum"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_that_crashes_the_process_twice_is_exported_unmeasured() {
    let expected = expected_attributes("").await;
    // The first is evaluated on the shard's task, the second on a blocking thread. A suspect may take long.
    exported_unmeasured(250, ["shard", "blocking"], &expected).await;
    exported_unmeasured(3000, ["blocking", "blocking"], &expected).await;
}

async fn exported_unmeasured(spans: u32, dies_on: [&str; 2], expected: &BTreeMap<String, BTreeSet<String>>) {
    let destination = Destination::default();
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let close = |quiet: &str| {
        format!("verdict: {{ close: {{ quiet: 200ms, by_service: {{ other: {{ quiet: {quiet} }} }} }} }}")
    };
    let config_text = format!("{}\nstorage: {{ directory: '{}' }}", close("1h"), journal.display());
    let wrapper = process("process_that_dies_while_it_evaluates");
    let mut processor =
        Processor::start_through(wrapper, folder.path(), destination.serve().await, &config_text);
    for request in (1..=10).flat_map(requests_of_other_service) {
        send_until_acknowledged(&mut processor.client(), &request).await;
    }
    send_until_acknowledged(&mut processor.client(), &poison(spans)).await;
    for (n, thread_kind) in dies_on.into_iter().enumerate() {
        if n > 0 {
            processor.restart();
        }
        assert!(!processor.wait().success());
        assert_eq!(std::fs::read_to_string(folder.path().join(ABORT_FILE)).unwrap(), thread_kind);
        std::fs::remove_file(folder.path().join(ABORT_FILE)).unwrap();
        assert_eq!(evaluated_now(&journal), BTreeSet::from([id(POISON_TRACE)]), "the poison alone");
    }
    std::fs::write(folder.path().join("override.yaml"), close("200ms")).unwrap();
    processor.restart_directly();
    wait_for_spans(&destination, 30 + spans as usize).await;
    assert_eq!(processor.terminate(), Some(0));

    let mut copies: BTreeMap<Vec<u8>, Vec<Span>> = BTreeMap::new();
    destination.spans().into_iter().for_each(|s| copies.entry(s.span_id.clone()).or_default().push(s));
    assert!(copies.values().all(|all| all.len() == 1), "a span was exported twice");
    let (poison_spans, other_spans): (Vec<Span>, Vec<Span>) =
        copies.into_values().flatten().partition(|span| span.trace_id == id(POISON_TRACE));
    assert_eq!((poison_spans.len(), other_spans.len()), (spans as usize, 30));
    for span in &other_spans {
        assert_eq!(verdict_attributes(span), expected[&span.name], "{}", span.name);
    }
    let root = poison_spans.iter().find(|span| span.parent_span_id.is_empty()).unwrap();
    assert!(has_attribute(root, "verdict.trace.result", "unmeasured"), "{root:#?}");
    assert!(has_attribute(root, "verdict.trace.reason", "quarantined"), "{root:#?}");
    assert!(has_attribute(root, "verdict.trace.close_reason", "complete"), "{root:#?}");
    assert_eq!(
        poison_spans.iter().filter(|span| !verdict_attributes(span).is_empty()).count(),
        1,
        "nothing was measured"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_shutdown_is_not_counted_as_a_crash() {
    let destination = Destination::default();
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let config_text = format!("{CLOSE}\nstorage: {{ directory: '{}' }}", journal.display());
    let wrapper = process("process_that_evaluates_without_end");
    let mut processor =
        Processor::start_through(wrapper, folder.path(), destination.serve().await, &config_text);
    // On a blocking thread, so that the process handles the signal.
    let spans = 3000;
    send_until_acknowledged(&mut processor.client(), &poison(spans)).await;
    for n in 0..3 {
        if n > 0 {
            processor.restart();
        }
        until("evaluation of the trace", || evaluated_now(&journal).contains(&id(POISON_TRACE))).await;
        assert_eq!(std::fs::read(journal.join("suspects")).unwrap().len(), 24, "a header and no entry");
        processor.signal();
        until("the signal is handled", || evaluated_now(&journal).is_empty()).await;
        processor.kill();
    }
    assert!(destination.spans().is_empty(), "no evaluation has ended");
    processor.restart_directly();
    wait_for_spans(&destination, spans as usize).await;
    assert_eq!(processor.terminate(), Some(0));
    assert_eq!(std::fs::read(journal.join("suspects")).unwrap().len(), 24, "a header and no entry");
    let spans = destination.spans();
    let root = spans.iter().find(|span| span.parent_span_id.is_empty()).unwrap();
    assert!(!verdict_attributes(root).iter().any(|a| a.contains("quarantined")), "{root:#?}");
    assert!(
        has_attribute(root, "verdict.completeness.reason", "no_content"),
        "the trace was not evaluated: {root:#?}"
    );
}
