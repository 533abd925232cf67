//! The configurations in `deploy`, and otel-verdict with an OpenTelemetry Collector with those in `deploy/collector`:
//! recorded runs pass through, and the store has the spans and verdicts that one otel-verdict alone writes.
//!
//! `.ci/neighbours` builds the Collector and runs the tests that need it, which are ignored otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use otel_verdict::receive::Offer;
use prost::Message;
use verdict_otlp::Signal;

use crate::frameworks::{cases, hex};
use crate::neighbours::free_port;
use crate::support::{Client, Destination, Process, until, until_none_is_missing};

/// A program that runs until this is dropped.
pub struct Running {
    child: Child,
    port: u16,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Starts `command`, which listens on `port`.
    pub async fn start(mut command: Command, port: u16) -> Running {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let mut running = Running { child, port };
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(running.child.try_wait().unwrap().is_none(), "{command:?} ended");
            assert!(started.elapsed() < Duration::from_secs(60), "{command:?} does not listen");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        running
    }

    fn address(&self) -> String {
        address(self.port)
    }

    pub async fn client(&self) -> Client {
        Client::connect(self.port).await
    }
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/collector").join(name)
}

/// A Collector with the configuration `name`, and these variables in addition to the addresses of its receivers.
pub async fn collector<'v>(name: &str, variables: impl IntoIterator<Item = (&'v str, &str)>) -> Running {
    let program = std::env::var_os("OTEL_VERDICT_COLLECTOR");
    let port = free_port();
    let mut command = Command::new(program.expect("OTEL_VERDICT_COLLECTOR must name a Collector"));
    command.arg("--config").arg(file(name)).stderr(Stdio::null());
    command.env("COLLECTOR_GRPC", address(port)).env("COLLECTOR_HTTP", address(free_port()));
    command.envs(variables);
    Running::start(command, port).await
}

/// An otel-verdict with the configuration `name` that sends to `store`, and these variables in addition.
pub async fn verdict<'v>(
    name: &str,
    store: &str,
    variables: impl IntoIterator<Item = (&'v str, &str)>,
) -> Running {
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    command.arg("run").arg("--config").arg(file(name)).env("STORE", store);
    command.env("OTEL_VERDICT", address(port)).env("OTEL_VERDICT_ADMIN", address(free_port()));
    command.envs(variables);
    Running::start(command, port).await
}

pub async fn serve(store: &Destination) -> String {
    address(store.serve().await)
}

/// Writes the configuration `text` of a container to `file`, with free ports of loopback in place of the container's
/// `ports`; returns that of OTLP/gRPC.
fn relocated(text: &str, ports: &[&str], file: &Path) -> u16 {
    let (mut text, grpc) = (text.to_owned(), free_port());
    for port in ports {
        let endpoint = format!("0.0.0.0:{port}");
        assert_eq!(text.matches(&endpoint).count(), 1, "{endpoint} in\n{text}");
        text = text.replace(&endpoint, &address(if *port == "4317" { grpc } else { free_port() }));
    }
    assert!(!text.contains("0.0.0.0"), "{text}");
    std::fs::write(file, text).unwrap();
    grpc
}

pub fn shipped(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)).unwrap()
}

/// An otel-verdict with a configuration for containers, which sends to `destination`.
async fn contained(text: &str, destination: &str, folder: &Path) -> Running {
    let file = folder.join("otel-verdict.yaml");
    let port = relocated(text, &["4317", "4318", "13133"], &file);
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    command.arg("run").arg("--config").arg(file).env("OTLP_DESTINATION", destination);
    Running::start(command, port).await
}

#[tokio::test(flavor = "multi_thread")]
async fn configurations_for_containers_evaluate_and_export() {
    let expected = Stored::by_one_process(&requests()).await;
    let mut all = Vec::new();
    for text in [shipped("otel-verdict.yaml"), crate::commands::in_kubernetes()] {
        let (store, folder) = (Destination::default(), tempfile::tempdir().unwrap());
        let process = contained(&text, &serve(&store).await, folder.path()).await;
        send(process.client().await, &requests()).await;
        all.push((store, process, folder));
    }
    for (store, _process, _folder) in all {
        assert_stored(&store, &expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Collector; .ci/neighbours builds it"]
async fn collector_of_the_composition_prints_spans_and_verdicts() {
    let expected = Stored::by_one_process(&requests()).await;
    let folder = tempfile::tempdir().unwrap();
    let (file, printed) = (folder.path().join("collector.yaml"), folder.path().join("printed"));
    let port = relocated(&shipped("collector.yaml"), &["4317"], &file);
    let program = std::env::var_os("OTEL_VERDICT_COLLECTOR");
    let mut command = Command::new(program.expect("OTEL_VERDICT_COLLECTOR must name a Collector"));
    command.arg("--config").arg(file).stderr(std::fs::File::create(&printed).unwrap());
    let downstream = Running::start(command, port).await;
    let upstream = contained(&shipped("otel-verdict.yaml"), &downstream.address(), folder.path()).await;
    send(upstream.client().await, &requests()).await;
    let missing = || missing_in_output(&expected, &std::fs::read_to_string(&printed).unwrap());
    until_none_is_missing("spans and verdicts in the output of the Collector", missing).await;
}

/// How many of the `expected` spans, results of traces and events a Collector with the exporter `debug` has not printed.
pub fn missing_in_output(expected: &Stored, printed: &str) -> usize {
    let is_printed = |id: &[u8]| printed.contains(&hex(id));
    let spans = expected.spans.keys().filter(|(trace, span)| !is_printed(trace) || !is_printed(span));
    let events =
        expected.events.iter().map(|(_, _, metric, _)| format!("gen_ai.evaluation.name: Str({metric})"));
    let events = events.filter(|event| !printed.contains(event));
    let results = ["pass", "fail"].map(|result| {
        let attribute = format!("-> verdict.trace.result: Str({result})");
        // A span may be followed by log records, which have the attribute as well.
        let of_span = |text: &&str| text.split("LogRecord #").next().unwrap().contains(&attribute);
        let found = printed.split("Span #").skip(1).filter(of_span).count();
        expected.traces(result).len().saturating_sub(found)
    });
    spans.count() + events.count() + results.iter().sum::<usize>()
}

/// Copies of a run that passes, each with a trace id of its own.
const COPIES: u8 = 30;

/// The requests of all runs: those of the demo, and copies of one that passes.
pub fn requests() -> Vec<Offer> {
    let runs = cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("demo"));
    let passing = runs.iter().find(|run| run.name == "googleadk-logs-a").unwrap();
    let spans = passing.requests.iter().find(|offer| offer.signal == Signal::Traces).unwrap();
    let id = ExportTraceServiceRequest::decode(spans.body.clone()).unwrap().resource_spans[0].scope_spans[0]
        .spans[0]
        .trace_id
        .clone();
    let copy = |offer: &Offer, copy: u8| {
        let mut body = offer.body.to_vec();
        let offsets: Vec<usize> = memchr::memmem::find_iter(&offer.body, &id).collect();
        assert!(!offsets.is_empty());
        offsets.into_iter().for_each(|at| body[at + 15] = body[at + 15].wrapping_add(copy));
        Offer { signal: offer.signal, body: body.into() }
    };
    let copies =
        (1..=COPIES).flat_map(|replica| passing.requests.iter().map(move |offer| copy(offer, replica)));
    let mut all: Vec<Offer> = copies.collect();
    all.extend(runs.into_iter().flat_map(|run| run.requests));
    all
}

pub async fn send(mut client: Client, requests: &[Offer]) {
    for offer in requests {
        client.send(offer).await;
    }
}

/// The content of a store.
#[derive(PartialEq, Debug)]
pub struct Stored {
    /// The received spans, by trace id and span id.
    spans: BTreeMap<(Vec<u8>, Vec<u8>), Span>,
    /// Evaluation events: trace, span, metric and label.
    events: BTreeSet<(Vec<u8>, Vec<u8>, String, String)>,
}

impl Stored {
    /// The content of `store`; a span that arrived twice arrived unchanged.
    fn from_destination(store: &Destination) -> Stored {
        let mut stored = Stored { spans: BTreeMap::new(), events: BTreeSet::new() };
        for span in store.spans() {
            let id = (span.trace_id.clone(), span.span_id.clone());
            // A Collector sends a request again whose response came too late.
            let stored_span = stored.spans.entry(id).or_insert_with(|| span.clone());
            assert_eq!(*stored_span, span, "a span came twice with other attributes");
        }
        for record in store.records() {
            let text = |key: &str| {
                let attribute = record.attributes.iter().find(|attribute| attribute.key == key)?;
                match attribute.value.as_ref()?.value.as_ref()? {
                    Value::StringValue(text) => Some(text.clone()),
                    _ => None,
                }
            };
            if let Some(name) = text("gen_ai.evaluation.name") {
                let label = text("gen_ai.evaluation.score.label").unwrap_or_default();
                stored.events.insert((record.trace_id.clone(), record.span_id.clone(), name, label));
            }
        }
        stored
    }

    /// The spans and events that one otel-verdict writes about these runs.
    pub async fn by_one_process(requests: &[Offer]) -> Stored {
        let process = Process::start("").await;
        send(process.client(), requests).await;
        let runs = requests.iter().filter(|offer| offer.signal == Signal::Traces).count();
        let verdicts = |store: &Destination| {
            Stored::from_destination(store).events.iter().filter(|(.., metric, _)| metric == "trace").count()
        };
        process.until("a verdict of every run", |store| verdicts(store) >= runs).await;
        Stored::from_destination(&Box::pin(process.stop()).await)
    }

    /// The traces whose root has this result.
    fn traces(&self, result: &str) -> BTreeSet<Vec<u8>> {
        let has_result = |span: &&Span| {
            let expected = Some(Value::StringValue(result.to_owned()));
            let found = span.attributes.iter().find(|attribute| attribute.key == "verdict.trace.result");
            found.is_some_and(|attribute| {
                attribute.value.as_ref().is_some_and(|value| value.value == expected)
            })
        };
        self.spans.values().filter(has_result).map(|span| span.trace_id.clone()).collect()
    }
}

/// Waits until `store` has as much as `expected`, and compares.
pub async fn assert_stored(store: &Destination, expected: &Stored) {
    let missing = || {
        let stored = Stored::from_destination(store);
        expected.spans.len().saturating_sub(stored.spans.len())
            + expected.events.len().saturating_sub(stored.events.len())
    };
    until_none_is_missing("spans and events in the store", missing).await;
    let stored = Stored::from_destination(store);
    for (id, span) in &expected.spans {
        assert_eq!(stored.spans.get(id), Some(span));
    }
    assert_eq!(stored, *expected);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Collector; .ci/neighbours builds it"]
async fn collector_beside_the_agents_authenticates_with_a_token() {
    let expected = Stored::by_one_process(&requests()).await;
    let (store, folder) = (Destination::default(), tempfile::tempdir().unwrap());
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "another-token\ntoken-of-agents\n").unwrap();
    let tokens = tokens.to_str().unwrap();
    let to = serve(&store).await;
    let downstream = verdict("verdict-behind-agents.yaml", &to, [("OTEL_VERDICT_TOKEN_FILE", tokens)]).await;
    let variables =
        [("OTEL_VERDICT", downstream.address()), ("OTEL_VERDICT_TOKEN", "token-of-agents".to_owned())];
    let upstream = collector("agents-to-verdict.yaml", variables.iter().map(|(k, v)| (*k, &**v))).await;
    send(upstream.client().await, &requests()).await;
    assert_stored(&store, &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Collector; .ci/neighbours builds it"]
async fn collector_behind_forwards_spans_and_events() {
    let expected = Stored::by_one_process(&requests()).await;
    let store = Destination::default();
    let downstream = collector("verdict-to-store.yaml", [("STORE", &*serve(&store).await)]).await;
    let upstream = verdict("verdict.yaml", &downstream.address(), []).await;
    send(upstream.client().await, &requests()).await;
    assert_stored(&store, &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Collector; .ci/neighbours builds it"]
async fn collector_balances_traces_among_three_replicas() {
    let mut runs = cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("demo"));
    // Log records of a trace may reach another replica than its spans: see the configuration.
    runs.retain(|run| run.requests.iter().all(|offer| offer.signal == Signal::Traces));
    let requests: Vec<Offer> = runs.into_iter().flat_map(|run| run.requests).collect();
    balances("loadbalancing.yaml", &requests).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Collector; .ci/neighbours builds it"]
async fn collector_balances_services_with_content_in_log_records() {
    balances("loadbalancing-by-service.yaml", &requests()).await;
}

/// Runs that a Collector with this configuration distributes among three replicas are evaluated as one replica does.
async fn balances(configuration: &str, requests: &[Offer]) {
    let expected = Stored::by_one_process(requests).await;
    let stores = [Destination::default(), Destination::default(), Destination::default()];
    let mut replicas = Vec::new();
    for store in &stores {
        replicas.push(verdict("verdict.yaml", &serve(store).await, []).await);
    }
    let addresses: Vec<String> = replicas.iter().map(Running::address).collect();
    let names = ["REPLICA_1", "REPLICA_2", "REPLICA_3"];
    let upstream = collector(configuration, names.into_iter().zip(addresses.iter().map(|a| &**a))).await;
    send(upstream.client().await, requests).await;
    let all = || stores.iter().map(Stored::from_destination).collect::<Vec<_>>();
    let missing = || {
        let (spans, events) =
            all().iter().fold((0, 0), |(s, e), stored| (s + stored.spans.len(), e + stored.events.len()));
        expected.spans.len().saturating_sub(spans) + expected.events.len().saturating_sub(events)
    };
    until_none_is_missing("spans and events in the stores", missing).await;
    let mut merged = Stored { spans: BTreeMap::new(), events: BTreeSet::new() };
    let mut owners: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for (replica, stored) in all().into_iter().enumerate() {
        for (trace, _) in stored.spans.keys() {
            assert_eq!(
                *owners.entry(trace.clone()).or_insert(replica),
                replica,
                "a trace is at two replicas"
            );
        }
        merged.spans.extend(stored.spans);
        merged.events.extend(stored.events);
    }
    assert_eq!(merged, expected);
    assert!(owners.values().collect::<BTreeSet<_>>().len() > 1, "one replica had all traces");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Collector; .ci/neighbours builds it"]
async fn tail_sampling_behind_keeps_what_failed() {
    let expected = Stored::by_one_process(&requests()).await;
    let (failed, passed) = (expected.traces("fail"), expected.traces("pass"));
    assert!(!failed.is_empty() && passed.len() > 2, "{} fail, {} pass", failed.len(), passed.len());
    let store = Destination::default();
    let downstream = collector("tail-sampling.yaml", [("STORE", &*serve(&store).await)]).await;
    let upstream = verdict("verdict.yaml", &downstream.address(), []).await;
    send(upstream.client().await, &requests()).await;
    until("all events", || Stored::from_destination(&store).events.len() >= expected.events.len()).await;
    until("all failed traces", || Stored::from_destination(&store).traces("fail") == failed).await;
    // The Collector decides about the other traces at a fixed interval; this is long enough for the next decision.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let stored = Stored::from_destination(&store);
    assert_eq!(stored.events, expected.events);
    let kept_ids: BTreeSet<&Vec<u8>> = stored.spans.keys().map(|(trace, _)| trace).collect();
    assert!(kept_ids.len() < failed.len() + passed.len(), "every trace was kept");
    // A trace is kept as a whole.
    for (id, span) in expected.spans.iter().filter(|((trace, _), _)| kept_ids.contains(trace)) {
        assert_eq!(stored.spans.get(id), Some(span));
    }
}
