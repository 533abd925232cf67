//! With `storage.directory`: however the process is stopped or killed and restarted, every acknowledged span is
//! exported with the same verdict.

mod kills;
mod restarts;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use otel_verdict::telemetry::Telemetry;
use tonic::transport::{Channel, Endpoint};
use verdict_journal::{Journal, Storage};

use crate::support::{
    Destination, MAX_TIME_WITHOUT_PROGRESS, Process, text_attribute, until_none_is_missing,
};

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
        text_attribute("gen_ai.operation.name", "chat"),
        text_attribute("gen_ai.request.model", "m"),
        text_attribute(
            "gen_ai.output.messages",
            r#"[{"role":"assistant","parts":[{"type":"text","content":"4"}]}]"#,
        ),
    ];
    let tool = vec![
        text_attribute("gen_ai.operation.name", "execute_tool"),
        text_attribute("gen_ai.tool.name", "search"),
    ];
    let agent = vec![
        text_attribute("gen_ai.operation.name", "invoke_agent"),
        text_attribute("gen_ai.agent.name", "a"),
    ];
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

/// The processor as a process of its own. Every start uses the same port and directory. `override.yaml` in the
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
    let override_file = config.with_file_name("override.yaml");
    let files = [config, &override_file].into_iter().filter(|file| file.exists());
    let mut command_line = wrapper.iter().chain([&binary]);
    Command::new(command_line.next().unwrap())
        .args(command_line)
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

/// The traces whose evaluation has begun and not ended, each with the generation of its process, as the slot
/// files in the journal's directory record them.
pub fn begun_evaluations(journal: &Path) -> BTreeSet<(Vec<u8>, Vec<u8>)> {
    let files = (0..16).filter_map(|n| std::fs::read(journal.join(format!("judging-{n}"))).ok());
    let slots: Vec<u8> = files.flatten().collect();
    let begun = slots.chunks_exact(32).filter(|slot| slot[24] == 2);
    begun.map(|slot| (slot[..16].to_vec(), slot[16..24].to_vec())).collect()
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
    let config =
        format!("verdict: {{ close: {{ quiet: 10ms }} }}\nstorage: {{ directory: '{}' }}", journal.display());
    std::fs::write(folder.path().join("override.yaml"), "service: { shutdown_timeout: 5m }").unwrap();
    // Port 1 is closed, so that spans stay unsent until the shutdown deadline. Logs go to a file.
    let log = folder.path().join("stderr");
    let wrapper = ["sh", "-c", &format!("exec \"$0\" \"$@\" 2> '{}'", log.display())].map(str::to_owned);
    let mut processor = Processor::start_through(wrapper.to_vec(), folder.path(), 1, &config);
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
    let _processor = Processor::start(folder.path(), destination.serve().await, &config);
    wait_for_spans(&destination, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_leaves_open_traces_in_the_journal_and_without_one_closes_them() {
    let destination = Destination::default();
    let port = destination.serve().await;
    let folder = tempfile::tempdir().unwrap();
    let close = "verdict: { close: { quiet: 200ms } }";
    let config = format!("{close}\nstorage: {{ directory: '{}' }}", folder.path().join("journal").display());
    let mut processor = Processor::start(folder.path(), port, &config);
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

/// The configuration of a journal in `folder`, followed by `more_settings`.
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
    for verdict in ["", "verdict: { mode: shadow }", "verdict: { select: { service: [nobody] } }"] {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start(&storage(folder.path(), verdict)).await;
        for request in &case.requests {
            process.client().send(request).await;
        }
        process.service.flush().await;
        let out = process.stop().await;
        let sent = crate::end_to_end::sent(&case);
        assert_eq!(out.spans().len(), sent.len(), "{verdict}");
        assert!(out.records().len() >= 2, "{verdict}: logs pass through");
        assert_eq!(retained_records(&folder.path().join("journal")).await, 0, "{verdict}");
    }
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
