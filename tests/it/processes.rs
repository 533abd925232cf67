//! Commands that process traces: `eval`, `replay`, `run` and `demo`, each as its own process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::binary::{otel_verdict, run, text};
use crate::support::MAX_TIME_WITHOUT_PROGRESS;

fn lines(output: &Output) -> Vec<Value> {
    String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const FAILS: &str = "demo/vercelai-e";
const PASSES: &str = "demo/googleadk-logs-a";

#[test]
fn eval_prints_one_object_a_trace_and_fail_on_makes_it_an_exit_code() {
    let output = run(&["eval", FAILS, PASSES, "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let traces = lines(&output);
    assert_eq!(traces.len(), 2);
    let failing = traces.iter().find(|t| t["result"] == "fail").unwrap();
    assert!(!failing["failed_spans"].as_array().unwrap().is_empty());
    assert!(failing["spans"].as_array().unwrap().iter().any(|span| {
        span["measurements"].as_array().unwrap().iter().any(|m| m["findings"][0]["quote"].is_string())
    }));
    assert_eq!(run(&["eval", FAILS, "--fail-on", "fail"]).status.code(), Some(1));
    assert_eq!(run(&["eval", PASSES, "--fail-on", "unmeasured"]).status.code(), Some(0));
}

#[test]
fn eval_counts_results_selects_traces_and_fails_on_a_rate() {
    let both =
        |more_arguments: &[&str]| run(&[&["eval", FAILS, PASSES, "-o", "json"], more_arguments].concat());
    let lines = |output: &Output| String::from_utf8_lossy(&output.stdout).lines().count();
    let all = both(&[]);
    let stderr = String::from_utf8_lossy(&all.stderr).into_owned();
    assert!(stderr.contains("2 traces: 1 pass, 1 fail, 0 unmeasured"), "{stderr}");
    assert_eq!(lines(&all), 2);
    let only = both(&["--only", "fail"]);
    assert_eq!((lines(&only), only.status.code()), (1, Some(0)));
    let trace: serde_json::Value = serde_json::from_slice(&only.stdout).unwrap();
    assert_eq!(trace["result"], "fail");
    assert!(trace["task"].is_string() && trace["service"].is_string(), "{trace}");
    assert!(trace["duration_seconds"].as_f64().unwrap() > 0.0 && trace["start"].is_string(), "{trace}");
    assert_eq!(both(&["--only", "unmeasured"]).stdout, b"");
    assert_eq!(both(&["--fail-on-rate", "50%"]).status.code(), Some(0));
    assert_eq!(both(&["--fail-on-rate", "0.49", "--only", "pass"]).status.code(), Some(1));
    assert_eq!(both(&["--fail-on-rate", "150%"]).status.code(), Some(2));
}

#[test]
fn eval_writes_junit_and_markdown() {
    let junit = run(&["eval", FAILS, PASSES, "-o", "junit"]);
    let junit = String::from_utf8_lossy(&junit.stdout).into_owned();
    assert!(junit.contains(r#"tests="2" failures="1" errors="0" skipped="0""#), "{junit}");
    assert_eq!(junit.matches("<testcase ").count(), 2, "{junit}");
    let markdown = run(&["eval", FAILS, PASSES, "-o", "markdown"]);
    let markdown = String::from_utf8_lossy(&markdown.stdout).into_owned();
    assert!(markdown.starts_with("### Verdicts: 2 traces: 1 pass, 1 fail, 0 unmeasured\n"), "{markdown}");
    assert_eq!(markdown.lines().filter(|line| line.starts_with("| `")).count(), 1, "{markdown}");
}

#[test]
fn eval_reads_its_own_otlp_output_and_standard_input() {
    let output = run(&["eval", FAILS, "--output", "otlp"]);
    let request = &lines(&output)[0];
    let annotated = text(&output.stdout);
    assert!(request["resourceSpans"].is_array() && annotated.contains("verdict.trace.result"));
    let mut child = otel_verdict()
        .args(["eval", "-", "--output", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&output.stdout).unwrap();
    let reevaluated = child.wait_with_output().unwrap();
    let (first, second) = (lines(&run(&["eval", FAILS, "--output", "json"])), lines(&reevaluated));
    assert_eq!(first, second, "annotated spans are judged as they were before");
}

#[test]
fn eval_names_unreadable_input_and_exits_2() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.json");
    std::fs::write(&bad, "{\"resourceSpans\": [").unwrap();
    let output = run(&["eval", bad.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("bad.json: line 1"), "{}", text(&output.stderr));
    assert_eq!(run(&["eval", "/nowhere"]).status.code(), Some(2));
    assert_eq!(run(&["eval"]).status.code(), Some(2));
    // Logs alone are telemetry without traces.
    let output = run(&["eval", "demo/googleadk-logs-a/logs-001.pb"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn the_demo_shows_every_run_and_exits_0() {
    let output = run(&["demo"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let trees = text(&output.stdout);
    assert!(trees.contains("✗ fail") && trees.contains("✓ pass"), "{trees}");
    assert!(trees.contains("closed by complete"), "{trees}");
}

/// `run` as a process, with the gRPC and admin addresses from its log.
pub struct Running {
    child: Child,
    pub grpc: String,
    admin: String,
    log: Arc<Mutex<String>>,
}

impl Running {
    pub fn start(folder: &Path, out: &Path) -> Running {
        let text = format!(
            "receivers: {{ otlp: {{ protocols: {{ grpc: {{ endpoint: '127.0.0.1:0' }} }} }} }}\n\
             exporters: {{ file: {{ path: '{}' }} }}\n\
             admin: {{ endpoint: '127.0.0.1:0' }}\n\
             service: {{ log_format: json, shutdown_timeout: 5m }}\n",
            out.display()
        );
        Running::configured(folder, &text)
    }

    /// With a configuration that logs JSON, and gRPC and admin listeners.
    pub fn configured(folder: &Path, text: &str) -> Running {
        let config = folder.join("config.yaml");
        std::fs::write(&config, text).unwrap();
        let mut child = otel_verdict()
            .env("OTEL_BSP_SCHEDULE_DELAY", "100")
            .args(["run", "--config", config.to_str().unwrap()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (mut grpc, mut admin) = (None, None);
        while grpc.is_none() || admin.is_none() {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "it ended before it listened");
            let event: Value = serde_json::from_str(&line).unwrap();
            let endpoint = event["endpoint"].as_str().map(str::to_owned);
            match event["message"].as_str() {
                Some("receiving OTLP/gRPC") => grpc = endpoint,
                Some(message) if message.contains("/readyz") => admin = endpoint,
                _ => {}
            }
        }
        // The pipe is read to its end, because the process blocks if it is full.
        let lines = Arc::new(Mutex::new(String::new()));
        let shared_lines = lines.clone();
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                let mut lines = shared_lines.lock().unwrap();
                lines.push_str(&line);
                lines.push('\n');
            }
        });
        Running { child, grpc: grpc.unwrap(), admin: admin.unwrap(), log: lines }
    }

    /// The log after the process began to listen.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub fn wait_for_log(&self, words: &str) {
        let started_at = Instant::now();
        while !self.log().contains(words) {
            assert!(
                started_at.elapsed() < MAX_TIME_WITHOUT_PROGRESS,
                "waited in vain for {words:?} in\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    pub fn get(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(&self.admin).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    pub fn terminate(&mut self) -> Option<i32> {
        self.signal("-TERM");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn replayed_requests_are_exported_with_verdicts_at_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let out: PathBuf = folder.path().join("out.jsonl");
    let mut running = Running::start(folder.path(), &out);
    // Listeners accept connections before the service is ready.
    let begun = Instant::now();
    while !running.get("/readyz").starts_with("HTTP/1.1 200") {
        assert!(begun.elapsed() < MAX_TIME_WITHOUT_PROGRESS, "it never became ready");
        std::thread::sleep(Duration::from_millis(10));
    }
    let sent = run(&["replay", FAILS, PASSES, "--endpoint", &running.grpc, "--rate", "100"]);
    assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    assert!(text(&sent.stderr).contains("3 requests sent, 0 refused"), "{}", text(&sent.stderr));
    assert!(running.get("/metrics").contains("otel_verdict"));
    assert_eq!(running.terminate(), Some(0));
    let output = run(&["eval", out.to_str().unwrap(), "--output", "json"]);
    let mut results: Vec<String> =
        lines(&output).iter().map(|trace| trace["result"].as_str().unwrap().to_owned()).collect();
    results.sort();
    assert_eq!(results, ["fail", "pass"]);
    assert!(std::fs::read_to_string(&out).unwrap().contains("verdict.trace.result"));
}

#[test]
fn run_prints_why_it_cannot_start() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("c.yaml");
    let address = listener.local_addr().unwrap().to_string();
    let free = "127.0.0.1:0";
    // The key names the listener whose address is in use.
    for (key, grpc, http, admin, page) in [
        ("receivers.otlp.protocols.grpc", &*address, free, free, free),
        ("receivers.otlp.protocols.http", free, &*address, free, free),
        ("admin", free, free, &*address, free),
        ("page", free, free, free, &*address),
    ] {
        let protocols = format!("grpc: {{ endpoint: '{grpc}' }}, http: {{ endpoint: '{http}' }}");
        let sections = format!("admin: {{ endpoint: '{admin}' }}\npage: {{ endpoint: '{page}' }}\n");
        let config_text = format!("{sections}receivers: {{ otlp: {{ protocols: {{ {protocols} }} }} }}\n");
        std::fs::write(&config, config_text).unwrap();
        let output = run(&["run", "--config", config.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        let expected = format!("{key}: cannot listen on {address}: ");
        assert!(text(&output.stderr).contains(&expected), "{}", text(&output.stderr));
    }
    let replayed = run(&["replay", FAILS, "--endpoint", "not an endpoint"]);
    assert_eq!(replayed.status.code(), Some(2), "{}", text(&replayed.stderr));
}
