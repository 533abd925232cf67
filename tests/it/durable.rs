//! With `storage.directory`: however the process is stopped or killed and restarted, every acknowledged span is
//! exported with the same verdict.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use otel_verdict::telemetry::Telemetry;
use tonic::transport::{Channel, Endpoint};
use verdict_journal::{Journal, Storage};

use crate::support::{Destination, MAX_TIME_WITHOUT_PROGRESS, Process, until, until_none_is_missing};

/// Concurrent senders of the tests that kill the process. Each has one trace in flight.
const SENDERS: u64 = 32;
/// Pause of a sender after each request.
const SENDER_PAUSE: Duration = Duration::from_millis(5);

pub fn text(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value.into())) });
    KeyValue { key: key.into(), value, ..KeyValue::default() }
}

pub fn span(trace: u64, id: u8, parent: u8, name: &str, attributes: Vec<KeyValue>) -> Span {
    // No byte is zero, so that every id is valid.
    let id_bytes = |id: u8| trace.to_be_bytes().map(|b| b ^ 0xa5 ^ id).to_vec();
    Span {
        trace_id: [[7; 8].to_vec(), trace.wrapping_add(1).to_be_bytes().to_vec()].concat(),
        span_id: id_bytes(id),
        parent_span_id: if parent == 0 { Vec::new() } else { id_bytes(parent) },
        name: name.into(),
        start_time_unix_nano: 1_000 + u64::from(id),
        end_time_unix_nano: 2_000 + u64::from(id),
        attributes,
        ..Span::default()
    }
}

/// A small agent run with a failing tool call, in two requests: leaves first, as SDKs send them.
pub fn requests(trace: u64) -> [ExportTraceServiceRequest; 2] {
    let model = vec![
        text("gen_ai.operation.name", "chat"),
        text("gen_ai.request.model", "m"),
        text("gen_ai.output.messages", r#"[{"role":"assistant","parts":[{"type":"text","content":"4"}]}]"#),
    ];
    let tool = vec![text("gen_ai.operation.name", "execute_tool"), text("gen_ai.tool.name", "search")];
    let agent = vec![text("gen_ai.operation.name", "invoke_agent"), text("gen_ai.agent.name", "a")];
    let failed = Status { code: 2, message: "connection refused".into() };
    let leaves = vec![
        span(trace, 2, 1, "chat m", model),
        Span { status: Some(failed), ..span(trace, 3, 1, "execute_tool search", tool) },
    ];
    [leaves, vec![span(trace, 1, 0, "invoke_agent a", agent)]].map(|spans| {
        let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }],
        }
    })
}

/// The attributes that the processor appended to a span. For attributes that contain span ids, only the key.
pub fn verdict_attributes(span: &Span) -> BTreeSet<String> {
    let with_ids = [
        "verdict.cited_by",
        "verdict.findings",
        "verdict.trace.failed_spans",
        "verdict.trace.failure_chain",
        "verdict.trace.root_cause",
    ];
    let ours = span.attributes.iter().filter(|kv| kv.key.starts_with("verdict."));
    ours.map(|kv| match with_ids.contains(&kv.key.as_str()) {
        true => kv.key.clone(),
        false => format!("{kv:?}"),
    })
    .collect()
}

/// The processor as a process of its own. Every start uses the same port and directory. `over.yaml` in the
/// directory, if it exists, is merged into the configuration.
pub struct Processor {
    config: std::path::PathBuf,
    port: u16,
    /// A command that executes the processor, with its arguments; empty to execute it directly.
    wrapper: Vec<String>,
    child: Child,
}

impl Processor {
    pub fn start(folder: &Path, destination: u16, more_settings: &str) -> Processor {
        Processor::start_through(Vec::new(), folder, destination, more_settings)
    }

    pub fn start_through(
        wrapper: Vec<String>,
        folder: &Path,
        destination: u16,
        more_settings: &str,
    ) -> Processor {
        let port = crate::support::unused_port();
        let config = folder.join("config.yaml");
        let text = format!(
            "receivers: {{ otlp: {{ protocols: {{ grpc: {{ endpoint: '127.0.0.1:{port}' }}, http: {{ endpoint: '127.0.0.1:0' }} }} }} }}\n\
             exporters: {{ otlp_grpc: {{ endpoint: '127.0.0.1:{destination}', tls: {{ insecure: true }}, timeout: 5m, retry_on_failure: {{ initial_interval: 50ms }} }} }}\n\
             admin: {{ endpoint: '127.0.0.1:0' }}\n\
             service: {{ log_level: warn, shutdown_timeout: 5m }}\n\
             {more_settings}\n"
        );
        std::fs::write(&config, text).unwrap();
        let child = run(&wrapper, &config);
        Processor { config, port, wrapper, child }
    }

    pub fn restart(&mut self) {
        self.child = run(&self.wrapper, &self.config);
    }

    /// Executes the processor directly from now on.
    pub fn restart_directly(&mut self) {
        self.wrapper.clear();
        self.restart();
    }

    /// Waits until the process has ended by itself.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    pub fn terminate(&mut self) -> Option<i32> {
        self.signal();
        self.child.wait().unwrap().code()
    }

    pub fn client(&self) -> TraceServiceClient<Channel> {
        TraceServiceClient::new(self.channel())
    }

    pub fn logs_client(&self) -> LogsServiceClient<Channel> {
        LogsServiceClient::new(self.channel())
    }

    fn channel(&self) -> Channel {
        let url = format!("http://127.0.0.1:{}", self.port);
        // A process that was killed resets its connections, and one that waits for its cores answers late.
        Endpoint::from_shared(url).unwrap().timeout(MAX_TIME_WITHOUT_PROGRESS).connect_lazy()
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(wrapper: &[String], config: &Path) -> Child {
    let binary = env!("CARGO_BIN_EXE_otel-verdict").to_owned();
    let over = config.with_file_name("over.yaml");
    let files = [config, &over].into_iter().filter(|file| file.exists());
    let mut words = wrapper.iter().chain([&binary]);
    Command::new(words.next().unwrap())
        .args(words)
        .arg("run")
        .args(files.flat_map(|file| ["--config", file.to_str().unwrap()]))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Sends a request until it is acknowledged; returns the number of attempts that had a connection.
pub async fn send_until_acknowledged(
    client: &mut TraceServiceClient<Channel>,
    request: &ExportTraceServiceRequest,
) -> u64 {
    let started_at = Instant::now();
    let mut attempts = 1;
    loop {
        match client.export(request.clone()).await {
            Ok(answer) => {
                assert_eq!(answer.into_inner().partial_success, None);
                return attempts;
            }
            // Connections fail until the process has started.
            Err(status) => attempts += u64::from(!format!("{status:?}").contains("ConnectError")),
        }
        assert!(started_at.elapsed() < 2 * MAX_TIME_WITHOUT_PROGRESS, "no request is acknowledged");
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
}

/// The attributes appended to each span of [`requests`], by span name, if no process is killed.
pub async fn expected_attributes(close: &str) -> BTreeMap<String, BTreeSet<String>> {
    let process = Process::start(close).await;
    for request in requests(0) {
        process.client().spans(request).await;
    }
    process.until("the trace", |d| d.spans().len() == 3).await;
    let spans = process.stop().await.spans();
    let expected: BTreeMap<_, _> =
        spans.iter().map(|span| (span.name.clone(), verdict_attributes(span))).collect();
    assert!(format!("{expected:?}").contains("verdict.trace.result"), "{expected:#?}");
    expected
}

/// A test that kills and restarts the process while spans are sent.
struct KillTest<'a> {
    durability: &'a str,
    rounds: u64,
    /// The section `verdict` of the configuration.
    verdict: &'a str,
    /// An attribute that some span must have.
    attribute: &'a str,
    /// Whether the mode is `shadow`, in which no attributes are appended.
    shadow: bool,
    /// If present, the process is killed while a question that it has asked is open.
    questions: Option<&'a Questions>,
}

/// The questions to a judge.
#[derive(Default)]
struct Questions {
    asked: AtomicU64,
    is_open: AtomicBool,
}

impl Default for KillTest<'_> {
    fn default() -> Self {
        KillTest {
            durability: "interval",
            rounds: 50,
            verdict: "verdict: { close: { quiet: 300ms } }",
            attribute: "verdict.trace.result",
            shadow: false,
            questions: None,
        }
    }
}

/// The traces whose requests were all acknowledged, and whether one of them was sent more than once.
type Acknowledged = HashMap<u64, bool>;

/// The state that the senders share.
#[derive(Default)]
struct SenderState {
    stop: AtomicBool,
    /// Traces begun.
    begun: AtomicU64,
    /// Acknowledged requests.
    requests: AtomicU64,
    acknowledged: Mutex<Acknowledged>,
}

/// Starts the senders; they end after `stop` is set. Each waits for the export of a trace before it sends the next: so
/// there are never more traces than senders that a kill can repeat, or that wait for a judge, however slow the
/// process is.
fn start_senders(
    processor: &Processor,
    destination: &Destination,
    sending: &Arc<SenderState>,
) -> Vec<tokio::task::JoinHandle<()>> {
    let sender = |_| {
        let (sending, destination) = (Arc::clone(sending), destination.clone());
        let mut client = processor.client();
        tokio::spawn(async move {
            let is_stopped = || sending.stop.load(Ordering::Relaxed);
            while !is_stopped() {
                let trace = 1 + sending.begun.fetch_add(1, Ordering::Relaxed);
                let mut resent = false;
                for request in requests(trace) {
                    resent |= send_until_acknowledged(&mut client, &request).await > 1;
                    sending.requests.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(SENDER_PAUSE).await;
                }
                sending.acknowledged.lock().unwrap().insert(trace, resent);
                let id = span(trace, 1, 0, "", Vec::new()).trace_id;
                // Without a limit of its own: before a kill, the test waits for progress of all senders.
                while !is_stopped() && !destination.has_received(&id) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        })
    };
    (0..SENDERS).map(sender).collect()
}

/// The traces whose evaluation has begun and not ended, each with the generation of its process, as the slot
/// files in the journal's directory record them.
pub fn begun_evaluations(journal: &Path) -> BTreeSet<(Vec<u8>, Vec<u8>)> {
    let files = (0..16).filter_map(|n| std::fs::read(journal.join(format!("judging-{n}"))).ok());
    let slots: Vec<u8> = files.flatten().collect();
    let begun = slots.chunks_exact(32).filter(|slot| slot[24] == 2);
    begun.map(|slot| (slot[..16].to_vec(), slot[16..24].to_vec())).collect()
}

/// Kills and restarts the process at pseudo-random times. Returns the evaluations that a kill interrupted.
async fn kill_and_restart(
    processor: &mut Processor,
    journal: &Path,
    rounds: u64,
    sending: &SenderState,
    questions: Option<&Questions>,
) -> BTreeSet<(Vec<u8>, Vec<u8>)> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut interrupted = BTreeSet::new();
    for round in 0..rounds {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let acknowledged = || sending.requests.load(Ordering::Relaxed);
        let asked = || questions.map_or(0, |all| all.asked.load(Ordering::Relaxed));
        let (enough, asked_before) = (acknowledged() + 1 + (random >> 48) % 32, asked());
        // A slow process may still recover at any time that is chosen here. So three of four acknowledge some requests
        // before, and the others may be killed during recovery.
        if round % 4 != 0 {
            let missing = || usize::try_from(enough.saturating_sub(acknowledged())).unwrap();
            until_none_is_missing("acknowledged requests", missing).await;
        }
        tokio::time::sleep(Duration::from_millis(40 + (random >> 33) % 700)).await;
        if let Some(all) = questions {
            let is_open = || asked() > asked_before && all.is_open.load(Ordering::Relaxed);
            until("an open question", is_open).await;
        }
        processor.kill();
        interrupted.extend(begun_evaluations(journal));
        processor.restart();
    }
    interrupted
}

/// Waits until every acknowledged span and the verdict on its trace are exported.
async fn wait_for_acknowledged(destination: &Destination, acknowledged: &Acknowledged) {
    let is_of_trace = |r: &LogRecord| r.attributes.iter().any(|kv| kv.key == "verdict.trace.result");
    let missing = || {
        let exported: BTreeSet<Vec<u8>> = destination.spans().into_iter().map(|span| span.span_id).collect();
        let events = destination.records().into_iter().filter(is_of_trace);
        let evaluated: BTreeSet<Vec<u8>> = events.map(|record| record.trace_id).collect();
        let all = acknowledged.keys().flat_map(|&trace| requests(trace));
        let spans = all.flat_map(|r| r.resource_spans[0].scope_spans[0].spans.clone());
        spans.filter(|s| !exported.contains(&s.span_id) || !evaluated.contains(&s.trace_id)).count()
    };
    until_none_is_missing("acknowledged spans, or the verdicts on their traces", missing).await;
}

/// Returns the number of traces sent.
async fn kill_repeatedly(test: KillTest<'_>) -> u64 {
    let KillTest { durability, rounds, verdict: close, attribute, shadow, questions } = test;
    let mut expected = expected_attributes(if shadow { "" } else { close }).await;
    assert!(format!("{expected:?}").contains(attribute), "{expected:#?}");
    if shadow {
        expected.values_mut().for_each(BTreeSet::clear);
    }
    let destination = Destination::default();
    let folder = tempfile::tempdir().unwrap();
    let storage = folder.path().join("journal");
    let more = format!(
        "{close}\nstorage: {{ directory: '{}', durability: {durability}, segment_bytes: 64KiB, max_bytes: 256MiB }}",
        storage.display()
    );
    let mut processor = Processor::start(folder.path(), destination.serve().await, &more);
    let sending: Arc<SenderState> = Arc::default();
    let senders = start_senders(&processor, &destination, &sending);
    let interrupted = kill_and_restart(&mut processor, &storage, rounds, &sending, questions).await;
    sending.stop.store(true, Ordering::Relaxed);
    for sender in senders {
        sender.await.unwrap();
    }
    let acknowledged = sending.acknowledged.lock().unwrap().clone();
    assert!(acknowledged.len() as u64 > rounds / 2, "only {} traces were sent", acknowledged.len());
    wait_for_acknowledged(&destination, &acknowledged).await;
    assert_eq!(processor.terminate(), Some(0));

    let mut copies: HashMap<Vec<u8>, Vec<Span>> = HashMap::new();
    for span in destination.spans() {
        copies.entry(span.span_id.clone()).or_default().push(span);
    }
    let events =
        destination.records().into_iter().filter(|r| has_attribute(r, "verdict.trace.reason", "quarantined"));
    let quarantined: BTreeSet<Vec<u8>> = events.map(|record| record.trace_id).collect();
    // An unoptimised process compiles patterns for 50 to 250 ms in its first evaluation, so that two kills can
    // meet the same trace.
    for trace in &quarantined {
        let deaths = interrupted.iter().filter(|(id, _)| id == trace).count();
        assert!(deaths >= 2, "a trace was quarantined after {deaths} kills during its evaluation");
    }
    let (mut by_processor, mut more_than_twice, mut by_sender, mut resent_traces) = (0, 0, 0, 0);
    for (&trace, &resent) in &acknowledged {
        resent_traces += u64::from(resent);
        for sent in requests(trace).iter().flat_map(|r| &r.resource_spans[0].scope_spans[0].spans) {
            let copies = &copies[&sent.span_id];
            if resent {
                by_sender += copies.len() - 1;
            } else {
                by_processor += copies.len() - 1;
                more_than_twice += usize::from(copies.len() > 2);
            }
            let mut distinct: Vec<BTreeSet<String>> = copies.iter().map(verdict_attributes).collect();
            distinct.dedup();
            // A sender resends a request whose acknowledgement was lost. The copy may arrive after its trace
            // has closed, and then has another verdict. All other copies have the same one.
            let unevaluated = quarantined.contains(&sent.trace_id);
            assert!(unevaluated || distinct.contains(&expected[&sent.name]), "{}: {distinct:#?}", sent.name);
            assert!(resent || distinct.len() == 1, "{}: copies differ: {distinct:#?}", sent.name);
            for copy in copies {
                let mut plain = copy.clone();
                plain.attributes.retain(|kv| !kv.key.starts_with("verdict."));
                assert_eq!(&plain, sent);
            }
        }
    }
    println!(
        "{durability}: killed {rounds} times; {} traces; spans twice: {by_processor} by us, {more_than_twice} more than twice; \
         {by_sender} of the {resent_traces} traces that were sent again by their sender; {} quarantined",
        acknowledged.len(),
        quarantined.len()
    );
    // A kill repeats what is in flight: at most one trace of three spans for each sender. Without releases in the
    // journal, every start would send all spans again.
    let limit = rounds as usize * SENDERS as usize * 3;
    assert!(
        by_processor <= limit,
        "{by_processor} of the spans of {} traces were sent again",
        acknowledged.len()
    );
    acknowledged.len() as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn after_fifty_kills_under_load_every_acknowledged_span_is_exported_unchanged() {
    kill_repeatedly(KillTest::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kills_with_fsync_per_request_few_spans_are_exported_twice() {
    kill_repeatedly(KillTest { durability: "sync", rounds: 15, ..KillTest::default() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kills_in_shadow_mode_spans_and_verdicts_are_exported() {
    let verdict = "verdict: { mode: shadow, close: { quiet: 300ms } }";
    kill_repeatedly(KillTest { verdict, shadow: true, rounds: 15, ..KillTest::default() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_traces_that_waited_for_a_judge_are_asked_about_again() {
    let questions: Arc<Questions> = Arc::default();
    let all = Arc::clone(&questions);
    let endpoint = crate::model::serve(move |_, _| {
        all.asked.fetch_add(1, Ordering::Relaxed);
        all.is_open.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(20));
        all.is_open.store(false, Ordering::Relaxed);
        serde_json::json!({ "rationale": "nearly all of it", "score": 4, "findings": [] })
    });
    // The judge answers one question at a time, however long that takes.
    let verdict = format!(
        "judges: {{ main: {{ endpoint: '{endpoint}', model: m, timeout: 10m }} }}\n\
         verdict: {{ close: {{ quiet: 50ms }}, max_wait: 1h, metrics: {{ completeness: {{ judges: [main] }} }} }}"
    );
    let test = KillTest {
        rounds: 15,
        verdict: &verdict,
        attribute: "verdict.completeness.score",
        questions: Some(&questions),
        ..KillTest::default()
    };
    let traces = kill_repeatedly(test).await;
    let asked = questions.asked.load(Ordering::Relaxed);
    assert!(asked > traces + 1, "{asked} questions about {traces} traces: none was waiting at a kill");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_or_a_kill_the_spent_budget_of_an_hour_is_still_spent() {
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    // One answer costs more than the budget, which its estimate does not exceed.
    let endpoint = crate::model::serve_for(1_000_000, move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        serde_json::json!({ "rationale": "nearly all of it", "score": 4, "findings": [] })
    });
    for killed in [false, true] {
        asked.store(0, Ordering::Relaxed);
        let (folder, destination) = (tempfile::tempdir().unwrap(), Destination::default());
        let journal = folder.path().join("journal");
        let more = format!(
            "judges: {{ main: {{ endpoint: '{endpoint}', model: m }} }}\n\
             judging: {{ budget: {{ per_hour: {{ tokens: 500000 }} }} }}\n\
             verdict: {{ close: {{ quiet: 50ms }}, max_wait: 1m, metrics: {{ completeness: {{ judges: [main] }} }} }}\n\
             storage: {{ directory: '{}' }}",
            journal.display()
        );
        let mut processor = Processor::start(folder.path(), destination.serve().await, &more);
        for trace in 1..=3 {
            for request in requests(trace) {
                send_until_acknowledged(&mut processor.client(), &request).await;
            }
            wait_for_acknowledged(&destination, &[(trace, false)].into()).await;
            if killed {
                until("the spending is stored", || journal.join("judge-spending").exists()).await;
                processor.kill();
            } else {
                assert_eq!(processor.terminate(), Some(0));
            }
            processor.restart();
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1, "killed: {killed}");
        let refused = destination.spans().into_iter().filter(|span| {
            verdict_attributes(span)
                .iter()
                .any(|a| a.contains("verdict.completeness.reason") && a.contains("budget"))
        });
        assert_eq!(refused.map(|span| span.trace_id).collect::<BTreeSet<_>>().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_span_after_a_restart_is_late_and_changes_the_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let more = storage(folder.path(), "verdict: { close: { quiet: 30ms } }");
    let [mut leaves, root] = requests(1);
    let tool = leaves.resource_spans[0].scope_spans[0].spans.pop().unwrap();
    let process = Process::start(&more).await;
    for request in [leaves.clone(), root] {
        process.client().spans(request).await;
    }
    process.until("the trace", |d| d.spans().len() == 2).await;
    let first = process.stop().await;
    assert!(first.records().iter().any(|r| has_attribute(r, "verdict.trace.revision", "1")));
    assert!(first.records().iter().any(|r| has_attribute(r, "verdict.trace.result", "pass")));
    // One more start and stop deletes the segment with the trace's records.
    Process::start(&more).await.stop().await;

    let process = Process::start(&more).await;
    leaves.resource_spans[0].scope_spans[0].spans = vec![tool];
    process.client().spans(leaves).await;
    process.until("the late span", |d| d.spans().len() == 1).await;
    let late = process.stop().await;
    assert!(verdict_attributes(&late.spans()[0]).iter().any(|a| a.contains("verdict.late")));
    let is_second_revision = |r: &&LogRecord| has_attribute(r, "verdict.trace.revision", "2");
    let records = late.records();
    let verdict = records.iter().find(is_second_revision).unwrap_or_else(|| panic!("{records:#?}"));
    assert!(
        has_attribute(verdict, "verdict.trace.result", "fail")
            && has_attribute(verdict, "verdict.trace.close_reason", "late")
    );
}

/// Whether a log record has an attribute of this value.
fn has_attribute(record: &LogRecord, key: &str, value: &str) -> bool {
    record.attributes.iter().any(|kv| {
        kv.key == key
            && match kv.value.as_ref().and_then(|v| v.value.as_ref()) {
                Some(any_value::Value::StringValue(text)) => text == value,
                Some(any_value::Value::IntValue(n)) => n.to_string() == value,
                _ => false,
            }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_process_and_the_journal_keeps_unsent_data() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let more =
        format!("verdict: {{ close: {{ quiet: 10ms }} }}\nstorage: {{ directory: '{}' }}", journal.display());
    std::fs::write(folder.path().join("over.yaml"), "service: { shutdown_timeout: 5m }").unwrap();
    // Port 1 is closed, so that spans stay unsent until the shutdown deadline. Logs go to a file.
    let log = folder.path().join("stderr");
    let wrapper = ["sh", "-c", &format!("exec \"$0\" \"$@\" 2> '{}'", log.display())].map(str::to_owned);
    let mut processor = Processor::start_through(wrapper.to_vec(), folder.path(), 1, &more);
    for request in requests(1) {
        send_until_acknowledged(&mut processor.client(), &request).await;
    }
    // An open trace would stay in the journal, and the process end at once: the spans have to be with the exporter.
    while !std::fs::read_to_string(&log).unwrap_or_default().contains("retrying") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Repeated, because two signals that arrive at the same time count as one. The exit code and the log show whether
    // the first one ended the process.
    let started_at = Instant::now();
    let code = loop {
        processor.signal();
        tokio::time::sleep(Duration::from_millis(100)).await;
        if let Some(status) = processor.child.try_wait().unwrap() {
            break status.code();
        }
        assert!(
            started_at.elapsed() < MAX_TIME_WITHOUT_PROGRESS,
            "the process does not end after further signals"
        );
    };
    assert_eq!(code, Some(1));
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("ended by a second signal"), "{log}");
    assert!(!log.contains("without an outcome"), "unsent spans are no bug after a second signal: {log}");
    let destination = Destination::default();
    let _processor = Processor::start(folder.path(), destination.serve().await, &more);
    wait_for_spans(&destination, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_leaves_open_traces_in_the_journal_and_without_one_closes_them() {
    let destination = Destination::default();
    let port = destination.serve().await;
    let folder = tempfile::tempdir().unwrap();
    let close = "verdict: { close: { quiet: 200ms } }";
    let more = format!("{close}\nstorage: {{ directory: '{}' }}", folder.path().join("journal").display());
    let mut processor = Processor::start(folder.path(), port, &more);
    let [leaves, root] = requests(1);
    send_until_acknowledged(&mut processor.client(), &leaves).await;
    assert_eq!(processor.terminate(), Some(0));
    assert!(destination.spans().is_empty(), "the open trace was exported");

    processor.restart();
    send_until_acknowledged(&mut processor.client(), &root).await;
    wait_for_spans(&destination, 3).await;
    assert_eq!(processor.terminate(), Some(0));
    let expected = expected_attributes(close).await;
    for span in destination.spans() {
        assert_eq!(verdict_attributes(&span), expected[&span.name]);
    }
    // The journal has nothing left to send.
    processor.restart();
    send_until_acknowledged(&mut processor.client(), &requests(2)[0]).await;
    assert_eq!(processor.terminate(), Some(0));
    assert_eq!(destination.spans().len(), 3);

    let mut processor_without_journal = Processor::start(folder.path(), port, close);
    send_until_acknowledged(&mut processor_without_journal.client(), &requests(3)[0]).await;
    assert_eq!(processor_without_journal.terminate(), Some(0));
    assert_eq!(destination.spans().len(), 5);
    assert!(verdict_attributes(&destination.spans()[4]).iter().any(|a| a.contains("shutdown")));
}

pub async fn wait_for_spans(destination: &Destination, spans: usize) {
    until_none_is_missing("spans", || spans.saturating_sub(destination.spans().len())).await;
}

/// The configuration of a journal in `folder`, and `more`.
pub fn storage(folder: &Path, more_settings: &str) -> String {
    format!("storage: {{ directory: '{}' }}\n{more_settings}", folder.join("journal").display())
}

/// The records that a journal without a process keeps for traces or exporters.
pub async fn retained_records(journal: &Path) -> usize {
    let telemetry = Telemetry::new();
    let (journal, recovered) = Journal::open(journal, &Storage::default(), 10, &telemetry.journal).unwrap();
    journal.close().await;
    recovered.open.len() + recovered.verdicts.len() + recovered.forwarded.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_outcome_leaves_an_empty_journal() {
    let case = crate::end_to_end::shipped().into_iter().find(|c| c.name.contains("googleadk-logs")).unwrap();
    for more in ["", "verdict: { mode: shadow }", "verdict: { select: { service: [nobody] } }"] {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start(&storage(folder.path(), more)).await;
        for request in &case.requests {
            process.client().send(request).await;
        }
        process.service.flush().await;
        let out = process.stop().await;
        let sent = crate::end_to_end::sent(&case);
        assert_eq!(out.spans().len(), sent.len(), "{more}");
        assert!(out.records().len() >= 2, "{more}: logs pass through");
        assert_eq!(retained_records(&folder.path().join("journal")).await, 0, "{more}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn annotated_spans_of_the_journal_are_sent_after_a_restart_in_shadow_mode() {
    let folder = tempfile::tempdir().unwrap();
    let to = |port: u16, more_settings: &str| {
        let exporter = format!("endpoint: '127.0.0.1:{port}', tls: {{ insecure: true }}");
        storage(folder.path(), &format!("exporters: {{ otlp_grpc: {{ {exporter} }} }}\n{more_settings}"))
    };
    // Port 1 is closed.
    let process = Process::start(&to(1, "")).await;
    for request in requests(0) {
        process.client().spans(request).await;
    }
    process.service.flush().await;
    assert_eq!(process.service.stop(Duration::from_millis(500)).await, 0, "nothing is dropped");
    let destination = Destination::default();
    let process = Process::start(&to(destination.serve().await, "verdict: { mode: shadow }")).await;
    wait_for_spans(&destination, 3).await;
    assert_eq!(process.service.stop(MAX_TIME_WITHOUT_PROGRESS).await, 0);
    assert!(destination.spans().iter().all(|span| !verdict_attributes(span).is_empty()));
}

/// Starts the service once per step on one journal. A step has the mode, whether the destination is reachable, and the
/// requests to send, after which traces are closed unless the step sends leaves. Returns all exported spans.
async fn through_restarts(
    more_settings: &str,
    steps: &[(&str, bool, Option<&ExportTraceServiceRequest>)],
) -> Vec<Span> {
    let folder = tempfile::tempdir().unwrap();
    let destination = Destination::default();
    let port = destination.serve().await;
    let spans = |r: &ExportTraceServiceRequest| -> usize {
        r.resource_spans
            .iter()
            .flat_map(|resource| &resource.scope_spans)
            .map(|scope| scope.spans.len())
            .sum()
    };
    let sent: usize = steps.iter().filter_map(|(.., request)| *request).map(spans).sum();
    for (nth, &(mode, reachable, request)) in steps.iter().enumerate() {
        // Port 1 is closed.
        let to = if reachable { port } else { 1 };
        let exporter = format!("endpoint: '127.0.0.1:{to}', tls: {{ insecure: true }}");
        let verdict = format!("verdict: {{ mode: {mode}, {more_settings} }}");
        let more_settings = format!("exporters: {{ otlp_grpc: {{ {exporter} }} }}\n{verdict}");
        let process = Process::start(&storage(folder.path(), &more_settings)).await;
        if let Some(request) = request {
            process.client().spans(request.clone()).await;
        }
        let leaves = |r: &ExportTraceServiceRequest| r.resource_spans[0].scope_spans[0].spans.len() > 1;
        if !request.is_some_and(leaves) {
            process.service.flush().await;
        }
        // Records of earlier steps in the journal are exported after the start; a stop would leave them for the next
        // one.
        if nth + 1 == steps.len() {
            until("every span is exported", || destination.spans().len() >= sent).await;
        }
        let within = if reachable { MAX_TIME_WITHOUT_PROGRESS } else { Duration::from_millis(500) };
        assert_eq!(process.service.stop(within).await, 0, "nothing is dropped");
    }
    destination.spans()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_with_another_mode_spans_are_exported_once_by_the_mode_of_their_arrival() {
    const REACHABLE: bool = true;
    const UNREACHABLE: bool = false;
    let scope =
        |name: &str| Some(InstrumentationScope { name: name.into(), ..InstrumentationScope::default() });
    let [mut leaves, root] = requests(1).map(|mut request| {
        request.resource_spans[0].scope_spans[0].scope = scope("agent");
        request
    });
    // With `select` this span is forwarded separately.
    let mut web = leaves.resource_spans[0].scope_spans[0].clone();
    web.scope = scope("web");
    web.spans = vec![span(1, 4, 1, "GET", Vec::new())];
    leaves.resource_spans[0].scope_spans.push(web);
    let mut sent: Vec<Span> = Vec::new();
    for request in [&leaves, &root] {
        sent.extend(request.resource_spans[0].scope_spans.iter().flat_map(|scope| scope.spans.clone()));
    }
    let (leaves, root) = (Some(&leaves), Some(&root));
    let cases: [(&[_], &[&str]); 6] = [
        (&[("annotate", REACHABLE, leaves), ("shadow", REACHABLE, root)], &["chat m", "execute_tool search"]),
        (
            &[("annotate", REACHABLE, leaves), ("shadow", UNREACHABLE, root), ("shadow", REACHABLE, None)],
            &["chat m", "execute_tool search"],
        ),
        (&[("shadow", REACHABLE, leaves), ("annotate", REACHABLE, root)], &["invoke_agent a"]),
        (&[("shadow", UNREACHABLE, leaves), ("annotate", REACHABLE, root)], &["invoke_agent a"]),
        (
            &[("shadow", REACHABLE, leaves), ("annotate", UNREACHABLE, root), ("annotate", REACHABLE, None)],
            &["invoke_agent a"],
        ),
        (
            &[("shadow", UNREACHABLE, leaves), ("annotate", UNREACHABLE, root), ("shadow", REACHABLE, None)],
            &["invoke_agent a"],
        ),
    ];
    for select in ["", "select: { scope: [agent] }"] {
        for (steps, annotated) in cases {
            let out = through_restarts(select, steps).await;
            let steps: Vec<_> = steps.iter().map(|(mode, up, _)| (mode, up)).collect();
            assert_eq!(out.len(), sent.len(), "{select} {steps:?}: {out:#?}");
            for sent in &sent {
                let mut span = out.iter().find(|span| span.span_id == sent.span_id).unwrap().clone();
                // The span of scope `web` is not measured.
                let is_annotated = !verdict_attributes(&span).is_empty();
                assert_eq!(
                    is_annotated,
                    annotated.contains(&span.name.as_str()),
                    "{select} {steps:?}: {}",
                    span.name
                );
                span.attributes.retain(|kv| !kv.key.starts_with("verdict."));
                assert_eq!(&span, sent, "{select} {steps:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_not_accepted_before_shutdown_are_sent_after_restart_with_the_same_verdict() {
    let expected = expected_attributes("").await;
    let folder = tempfile::tempdir().unwrap();
    // The required destination and an optional one are unreachable (port 1 is closed). A file accepts
    // everything at once.
    let file = folder.path().join("out.jsonl");
    let exporters = |main: &str| {
        format!(
            "exporters: {{ otlp_grpc: {{ endpoint: '{main}', tls: {{ insecure: true }} }}, \
             otlp_grpc/side: {{ endpoint: '127.0.0.1:1', required: false, tls: {{ insecure: true }} }}, \
             file: {{ path: '{}' }} }}",
            file.display()
        )
    };
    let unreachable_config = storage(folder.path(), &exporters("127.0.0.1:1"));
    let process = Process::start(&unreachable_config).await;
    for request in requests(0) {
        process.client().spans(request).await;
    }
    process.service.flush().await;
    // Stopped while the destination is unreachable: only the file has the spans and the log records.
    let written = || std::fs::read_to_string(&file).unwrap_or_default();
    until("the file", || ["resourceSpans", "resourceLogs"].iter().all(|key| written().contains(key))).await;
    assert_eq!(process.service.stop(Duration::from_millis(500)).await, 0, "nothing is dropped");
    let lines = written().lines().count();

    let destination = Destination::default();
    // All metrics are disabled, so that a second evaluation would measure nothing.
    let family = |name: &'static str| name.split('.').next().unwrap_or(name);
    let all: BTreeSet<&str> = verdict_eval::metrics::names().map(family).collect();
    let disabled: Vec<String> = all.iter().map(|name| format!("{name}: {{ enabled: false }}")).collect();
    let reachable_config = exporters(&format!("127.0.0.1:{}", destination.serve().await));
    let reachable_config =
        format!("{reachable_config}\nverdict: {{ metrics: {{ {} }} }}", disabled.join(", "));
    let process = Process::start(&storage(folder.path(), &reachable_config)).await;
    wait_for_spans(&destination, 3).await;
    // The optional destination is still unreachable, so the stop takes the whole time.
    assert_eq!(process.service.stop(Duration::from_secs(5)).await, 0);
    for span in destination.spans() {
        let shutdown = |set: &BTreeSet<String>| -> Vec<String> {
            set.iter().filter(|a| !a.contains("close_reason")).cloned().collect()
        };
        assert_eq!(shutdown(&verdict_attributes(&span)), shutdown(&expected[&span.name]));
    }
    let after = std::fs::read_to_string(&file).unwrap().lines().count();
    assert_eq!(after, lines, "the file received the spans twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanently_refused_request_becomes_a_dead_letter_that_replay_sends() {
    let folder = tempfile::tempdir().unwrap();
    // A server without OTLP: it refuses every request for good.
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(server, axum::Router::new()).await });
    let exporters = format!("exporters: {{ otlp_http: {{ endpoint: '{url}', signals: [traces] }} }}");
    let process = Process::start(&storage(folder.path(), &exporters)).await;
    for request in requests(0) {
        process.client().spans(request).await;
    }
    process.service.flush().await;
    assert_eq!(process.service.stop(MAX_TIME_WITHOUT_PROGRESS).await, 0, "nothing is dropped");

    let files: Vec<_> = std::fs::read_dir(folder.path().join("journal"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("dead-letter-traces"))
        .collect();
    assert_eq!(files.len(), 1);
    let destination = Destination::default();
    let endpoint = format!("127.0.0.1:{}", destination.serve().await);
    let path = files[0].clone();
    let replay = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
        command.args(["replay", path.to_str().unwrap(), "--endpoint", &endpoint]).output().unwrap()
    });
    let output = replay.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(destination.spans().len(), 3);
    assert!(destination.spans().iter().all(|span| !verdict_attributes(span).is_empty()));
    // The journal does not send them again after a restart.
    assert_eq!(retained_records(&folder.path().join("journal")).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_directory_is_an_error_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal");
    std::fs::write(&file, "not a directory").unwrap();
    let config = crate::support::config(1, &storage(folder.path(), ""));
    let error = otel_verdict::pipeline::service::Service::start(&config).await.unwrap_err();
    assert!(error.to_string().starts_with("storage.directory: cannot use"), "{error}");
}
