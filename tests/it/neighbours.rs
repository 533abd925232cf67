//! Verdicts in other products: Arize Phoenix and MLflow receive recorded runs of frameworks through the service, and
//! the test reads the verdicts from their APIs.
//!
//! `.ci/neighbours` installs the products and runs these tests, which are ignored otherwise.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use reqwest::{Client, Url};
use serde_json::Value;
use verdict_client::Tls;
use verdict_otlp::trace::{SpanId, TraceId};

use crate::frameworks::{Case, case, cases};
use crate::support::{Destination, Process};

/// Phoenix takes some 20 s to start on an idle machine, and over 180 s on one that compiles at the same time.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// A server and its child processes, which are terminated when the value is dropped.
struct Server {
    child: Child,
    url: Url,
}

impl Server {
    /// Runs `program`, which is next to the Python that `variable` names, until `path` is served.
    async fn start(
        variable: &str,
        program: &str,
        port: u16,
        path: &str,
        set_up: impl Fn(&mut Command),
    ) -> Server {
        let python = std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} must name a Python"));
        // The path is not resolved: the Python of a virtual environment is a link.
        let mut command = Command::new(Path::new(&python).with_file_name(program));
        set_up(&mut command);
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Server { child, url: format!("http://127.0.0.1:{port}/").parse().unwrap() };
        let started = Instant::now();
        while server.get(path).await.is_none() {
            assert!(server.child.try_wait().unwrap().is_none(), "{program} ended");
            assert!(started.elapsed() < START_TIMEOUT, "{program} did not start");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        server
    }

    /// The response, if its status is a success.
    async fn get(&self, path: &str) -> Option<Value> {
        let timeout = Duration::from_secs(30);
        let client: Client = verdict_client::client(&[&self.url], &Tls::default(), timeout, 1).unwrap();
        let response = client.get(self.url.join(path).unwrap()).send().await.ok()?;
        let response = response.error_for_status().ok()?;
        Some(serde_json::from_slice(&response.bytes().await.ok()?).unwrap_or_default())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // MLflow starts workers.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-TERM", "--", &group]).status();
        let _ = self.child.wait();
    }
}

pub fn free_port() -> u16 {
    crate::support::unused_port()
}

/// Recorded runs: some fail, some pass.
fn runs() -> Vec<Case> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut all = cases(&root.join("demo"));
    all.push(case(&root.join("tests/data/frameworks/mlflowsdk-b")));
    all
}

/// A verdict: the result, the score if it is sent as one, and the rationale.
#[derive(Clone, Debug, PartialEq)]
struct ShownVerdict {
    result: String,
    score: Option<f64>,
    rationale: Option<String>,
}

fn attribute<'a>(record: &'a LogRecord, key: &str) -> Option<&'a Attribute> {
    record.attributes.iter().find(|kv| kv.key == key)?.value.as_ref()?.value.as_ref()
}

fn text(record: &LogRecord, key: &str) -> Option<String> {
    match attribute(record, key)? {
        Attribute::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

/// The verdicts that the service wrote as events, by trace, span (none for the trace's) and metric.
type Verdicts = BTreeMap<(String, Option<String>, String), ShownVerdict>;

/// The sessions of traces, by trace.
type Sessions = BTreeMap<String, String>;

fn written_verdicts(destination: &Destination) -> Verdicts {
    let mut all = Verdicts::new();
    for record in destination.records() {
        let Some(metric) = text(&record, "gen_ai.evaluation.name") else { continue };
        let trace = TraceId(record.trace_id[..].try_into().unwrap()).to_string();
        let span = SpanId(record.span_id[..].try_into().unwrap()).to_string();
        let is_trace_verdict = metric == "trace";
        let score = match attribute(&record, "gen_ai.evaluation.score.value") {
            Some(Attribute::DoubleValue(score)) => Some(*score),
            _ => None,
        };
        let unmeasured = text(&record, "gen_ai.evaluation.score.label").as_deref() == Some("unmeasured");
        let result = match record.severity_number {
            _ if unmeasured => "unmeasured",
            13.. => "fail",
            _ => "pass",
        };
        let rationale = text(&record, "gen_ai.evaluation.explanation");
        let key = match is_trace_verdict {
            true => (trace, None, "verdict".to_owned()),
            false => (trace, Some(span), metric),
        };
        all.insert(key, ShownVerdict { result: result.to_owned(), score, rationale });
    }
    all
}

/// The sessions of the traces with a verdict that have one.
fn sessions_of(destination: &Destination) -> Sessions {
    let verdicts = destination.records().into_iter();
    let verdicts = verdicts.filter(|r| text(r, "gen_ai.evaluation.name").as_deref() == Some("trace"));
    verdicts
        .filter_map(|record| {
            let trace = TraceId(record.trace_id[..].try_into().unwrap()).to_string();
            Some((trace, text(&record, "gen_ai.conversation.id")?))
        })
        .collect()
}

/// Sends the runs through a service with `exporters`; returns the written verdicts and sessions after the service has
/// sent everything.
async fn process(exporters: &str) -> (Verdicts, Sessions) {
    let config = format!("verdict: {{ close: {{ quiet: 200ms, idle: 1s }} }}\nexporters:\n{exporters}");
    let process = Process::start(&config).await;
    let mut client = process.client();
    for run in runs() {
        for offer in &run.requests {
            client.send(offer).await;
        }
    }
    let traces = |destination: &Destination| {
        destination
            .records()
            .iter()
            .filter(|r| text(r, "gen_ai.evaluation.name").as_deref() == Some("trace"))
            .count()
    };
    process.until("a verdict of every run", |destination| traces(destination) >= runs().len()).await;
    let destination = Box::pin(process.stop_within(Duration::from_secs(60))).await;
    (written_verdicts(&destination), sessions_of(&destination))
}

/// Asserts that `shown` are the verdicts that were written: 0..1 scores, the same results and rationales.
fn assert_shown(written: &Verdicts, shown: &Verdicts) {
    let keys = |verdicts: &Verdicts| verdicts.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(shown), keys(written));
    assert!(written.values().any(|verdict| verdict.result == "fail"), "nothing fails");
    assert!(written.values().any(|verdict| verdict.result == "pass"), "nothing passes");
    for (key, verdict) in written {
        let other = &shown[key];
        assert_eq!(other.result, verdict.result, "{key:?}");
        let unit = other.score.is_none_or(|score| (0.0..=1.0).contains(&score));
        assert!(unit && other.score.is_some() == (verdict.result != "unmeasured"), "{key:?} {other:?}");
        if verdict.score.is_none() && verdict.result != "unmeasured" {
            assert_eq!(other.score, Some(if verdict.result == "pass" { 1.0 } else { 0.0 }), "{key:?}");
        }
        if key.1.is_some() {
            assert_eq!(other.rationale, verdict.rationale, "{key:?}");
        }
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Phoenix; .ci/neighbours installs it"]
async fn phoenix_shows_every_verdict_and_a_repeat_is_an_update() {
    let (folder, port, grpc) = (tempfile::tempdir().unwrap(), free_port(), free_port());
    let server = Server::start("OTEL_VERDICT_PHOENIX", "phoenix", port, "healthz", |command| {
        command.arg("serve").env("PHOENIX_HOST", "127.0.0.1").env("PHOENIX_PORT", port.to_string());
        command.env("PHOENIX_GRPC_PORT", grpc.to_string()).env("PHOENIX_WORKING_DIR", folder.path());
        command.env("PHOENIX_TELEMETRY_ENABLED", "false");
    })
    .await;
    let exporters = format!(
        "  otlp_http: {{ endpoint: 'http://127.0.0.1:{port}', signals: [traces] }}\n  \
         scores: {{ flavor: phoenix, endpoint: 'http://127.0.0.1:{port}', after: otlp_http, delay: 100ms }}\n"
    );
    // The second time, spans and verdicts are there already.
    for _ in 0..2 {
        let (written, trace_sessions) = process(&exporters).await;
        assert!(!trace_sessions.is_empty(), "no run has a session");
        let mut shown = Verdicts::new();
        // Phoenix stores annotations later than it accepts them.
        let started = Instant::now();
        while shown.len() < written.len() && started.elapsed() < Duration::from_secs(60) {
            tokio::time::sleep(Duration::from_millis(500)).await;
            shown = annotations(&server, &written).await;
        }
        assert_shown(&written, &shown);
        let mut sessions = BTreeMap::new();
        while sessions.len() < trace_sessions.len() && started.elapsed() < Duration::from_secs(90) {
            sessions = session_annotations(&server, &trace_sessions).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        for (trace, session) in &trace_sessions {
            let verdict = &written[&(trace.clone(), None, "verdict".to_owned())].result;
            assert_eq!(sessions.get(trace), Some(&(session.clone(), verdict.clone())), "{trace}");
        }
        println!("{} annotations, {} of sessions", shown.len(), sessions.len());
    }
}

/// The annotations that Phoenix shows. A second annotation of the same name about the same span fails the test.
async fn annotations(server: &Server, written: &Verdicts) -> Verdicts {
    let traces: BTreeMap<&String, &String> =
        written.keys().filter_map(|(trace, span, _)| Some((span.as_ref()?, trace))).collect();
    let mut shown = Verdicts::new();
    for (kind, id) in [("span", "span_id"), ("trace", "trace_id")] {
        let path = format!("v1/projects/default/{kind}_annotations?identifier=otel-verdict&limit=10000");
        let Some(response) = server.get(&path).await else { continue };
        for entry in response["data"].as_array().unwrap() {
            let key = match kind {
                "span" => {
                    let span = string(&entry[id]);
                    let trace = traces.get(&span).map(|trace| (*trace).clone()).unwrap_or_default();
                    (trace, Some(span), string(&entry["name"]))
                }
                _ => (string(&entry[id]), None, string(&entry["name"])),
            };
            let result = &entry["result"];
            let rationale = result["explanation"].as_str().map(str::to_owned);
            let verdict =
                ShownVerdict { result: string(&result["label"]), score: result["score"].as_f64(), rationale };
            assert!(shown.insert(key, verdict).is_none(), "twice: {entry}");
            assert!(entry["metadata"]["result"].is_string(), "{entry}");
        }
    }
    shown
}

/// Session and result of the annotations of sessions, by trace: one for each trace of a session.
async fn session_annotations(server: &Server, sessions: &Sessions) -> BTreeMap<String, (String, String)> {
    let mut all = BTreeMap::new();
    for (trace, session) in sessions {
        let mut path = server.url.join("v1/projects/default/session_annotations").unwrap();
        path.query_pairs_mut()
            .append_pair("session_ids", session)
            .append_pair("identifier", &format!("otel-verdict/{trace}"));
        let path = format!("{}?{}", &path.path()[1..], path.query().unwrap());
        let response = server.get(&path).await.unwrap_or_default();
        for entry in response["data"].as_array().into_iter().flatten() {
            let shown = (string(&entry["session_id"]), string(&entry["result"]["label"]));
            assert!(all.insert(trace.clone(), shown).is_none(), "twice: {entry}");
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs MLflow; .ci/neighbours installs it"]
async fn mlflow_shows_every_verdict_and_a_repeat_is_an_update() {
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let server = Server::start("OTEL_VERDICT_MLFLOW", "mlflow", port, "health", |command| {
        let store = format!("sqlite:///{}", folder.path().join("mlflow.db").display());
        command.args(["server", "--host", "127.0.0.1", "--port", &port.to_string(), "--workers", "1"]);
        command.args(["--backend-store-uri", &store, "--default-artifact-root"]).arg(folder.path());
        command.current_dir(folder.path());
    })
    .await;
    let exporters = format!(
        "  otlp_http: {{ endpoint: 'http://127.0.0.1:{port}', signals: [traces], headers: {{ x-mlflow-experiment-id: '0' }} }}\n  \
         scores: {{ flavor: mlflow, endpoint: 'http://127.0.0.1:{port}', after: otlp_http, delay: 100ms }}\n"
    );
    for _ in 0..2 {
        let (written, _) = process(&exporters).await;
        let mut shown = Verdicts::new();
        for trace in written.keys().filter(|(_, span, _)| span.is_none()).map(|(trace, ..)| trace) {
            let info = server.get(&format!("api/3.0/mlflow/traces/tr-{trace}")).await.unwrap();
            for entry in info["trace"]["trace_info"]["assessments"].as_array().unwrap() {
                let name = string(&entry["assessment_name"]).replace('/', ".");
                let key = (trace.clone(), entry["span_id"].as_str().map(str::to_owned), name);
                let verdict = ShownVerdict {
                    result: string(&entry["metadata"]["result"]),
                    score: entry["feedback"]["value"].as_f64(),
                    rationale: entry["rationale"].as_str().map(str::to_owned),
                };
                assert!(string(&entry["source"]["source_id"]).starts_with("otel-verdict"), "{entry}");
                assert!(shown.insert(key, verdict).is_none(), "twice: {entry}");
            }
        }
        assert_shown(&written, &shown);
        println!("{} assessments", shown.len());
    }
}
