//! `path`: the authors' tasks and vectors through the commands, and what the commands refuse.
//!
//! The cases have no licence to be shipped: they are looked for where `OTEL_VERDICT_CASES` says, and
//! the tests that need them say so when they are not there.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use serde_json::{Value, json};

use crate::support::Process;

fn path(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    command.arg("path").args(args).stdin(Stdio::null()).output().unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn core() -> Option<PathBuf> {
    let folder = std::env::var_os("OTEL_VERDICT_CASES").map(|folder| Path::new(&folder).join("core"));
    if folder.is_none() {
        println!("skipped: OTEL_VERDICT_CASES is not set");
    }
    folder
}

/// The names of the vectors' expected values and ours.
const KEYS: [(&str, &str); 10] = [
    ("condensed", "condensed"),
    ("harm_mask", "harm_mask"),
    ("final_state", "final_state"),
    ("accepting", "accepting"),
    ("path_correctness", "path_correctness"),
    ("pc_ktc_lambda0.5", "pc_ktc"),
    ("prefix_criticality_beta0.5", "prefix_criticality"),
    ("harmful_call_rate", "harmful_call_rate"),
    ("harmful_call_count", "harmful_call_count"),
    ("efficiency", "efficiency"),
];

#[test]
fn the_scores_of_the_authors_vectors_agree_to_1e_9() {
    let Some(core) = core() else { return };
    let (tasks, vectors) = (core.join("tasks.json"), core.join("vectors.json"));
    let checked = path(&["check", tasks.to_str().unwrap()]);
    assert!(checked.status.success(), "{}", err(&checked));
    let output = path(&["score", tasks.to_str().unwrap(), vectors.to_str().unwrap()]);
    assert!(output.status.success(), "{}", err(&output));
    let scored: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected: Value = serde_json::from_slice(&std::fs::read(vectors).unwrap()).unwrap();
    let (scored, expected) = (scored["vectors"].as_array().unwrap(), expected["vectors"].as_array().unwrap());
    assert_eq!(scored.len(), expected.len());
    assert!(!scored.is_empty());
    for (scored, expected) in scored.iter().zip(expected) {
        assert_eq!(scored["prompt_id"], expected["prompt_id"]);
        for (theirs, ours) in KEYS {
            let (found, wanted) = (&scored["metrics"][ours], &expected["expected"][theirs]);
            let same = match (found.as_f64(), wanted.as_f64()) {
                (Some(found), Some(wanted)) => (found - wanted).abs() < 1e-9,
                _ => found == wanted,
            };
            assert!(same, "{} {}: {ours} is {found}, not {wanted}", scored["prompt_id"], scored["name"]);
        }
        assert_eq!(scored["metrics"].as_object().unwrap().len(), 11, "these keys, pc_hlr, and no other");
    }
}

#[test]
fn every_malformed_record_is_refused_with_a_reason() {
    let Some(core) = core() else { return };
    let records: Value =
        serde_json::from_slice(&std::fs::read(core.join("malformed.json")).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for record in records.as_array().unwrap() {
        let file = folder.path().join("task.json");
        std::fs::write(&file, serde_json::to_string_pretty(record).unwrap()).unwrap();
        let output = path(&["check", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{} was accepted", record["prompt_id"]);
        let reasons = ["is not in the alphabet", "must be deterministic", "this edge is listed under state"];
        let text = err(&output);
        assert!(reasons.iter().any(|reason| text.contains(reason)), "{text}");
        assert!(text.contains("task.json:"), "{text}");
    }
}

fn written(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let file = folder.path().join(name);
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

const TASK: &str = "
task: send
match: { agent: mailer }
alphabet: { S: send_message, R: read_inbox }
states:
  begin: { on: { S: sent }, reads: [R] }
  sent: { final: true, reads: [R] }
weights: { correctness: 1, harm_free: 1 }
";

#[test]
fn sequences_are_scored_and_what_is_unmeasured_is_null() {
    let folder = tempfile::tempdir().unwrap();
    let tasks = written(&folder, "task.yaml", TASK);
    let sequences = json!({"note": 1, "vectors": [
        {"prompt_id": "send", "name": "good", "sequence": ["R", "S"], "expected": {}},
        {"prompt_id": "send", "name": "idle", "sequence": []},
        {"prompt_id": "send", "name": "strange", "sequence": ["X", "S", "S"]},
    ]});
    let sequences = written(&folder, "sequences.json", &sequences.to_string());
    let output = path(&["score", "--more", &tasks, &sequences]);
    assert!(output.status.success(), "{}", err(&output));
    let scored: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |i: usize| &scored["vectors"][i]["metrics"];
    assert_eq!(
        (of(0)["efficiency"].as_f64(), of(0)["condensed"].clone(), of(0)["pareto"].clone()),
        (Some(0.5), json!(["S"]), json!(true))
    );
    assert_eq!((of(1)["efficiency"].clone(), of(1)["weighted"].clone()), (json!(null), json!(0.5)));
    assert_eq!(of(2)["condensed"], json!(["X", "S", "S"]));
    assert_eq!(of(2)["harm_mask"], json!([1, 0, 1]));
    assert_eq!(of(2)["pareto"], json!(false));
    assert!((of(2)["harm_free"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-12);
}

#[test]
fn unusable_input_exits_2_and_names_the_location() {
    let folder = tempfile::tempdir().unwrap();
    let good = written(&folder, "good.yaml", TASK);
    let bad = written(&folder, "bad.yaml", &TASK.replace("S: sent", "S: snet"));
    let refused = |args: &[&str], reason: &str| {
        let output = path(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty());
        assert!(err(&output).contains(reason), "{} does not say {reason}", err(&output));
    };
    refused(
        &["check", &good, &bad],
        "bad.yaml:6:18: states.begin.on.S: no state is named 'snet'; did you mean 'sent'?",
    );
    refused(&["check", "/nowhere.yaml"], "/nowhere.yaml:");
    let unknown =
        written(&folder, "u.json", r#"{"vectors": [{"prompt_id": "x", "name": "n", "sequence": []}]}"#);
    refused(&["score", &good, &unknown], "vectors[0]: no task is named 'x'");
    let broken = written(&folder, "b.json", r#"{"vectors": [{"prompt_id": "send", "name": "n"}]}"#);
    refused(&["score", &good, &broken], "missing field `sequence` at line 1");
    refused(&["score", &bad, &unknown], "snet");
}

#[test]
fn sequences_may_come_on_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let tasks = written(&folder, "task.yaml", TASK);
    let mut child = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
        .args(["path", "score", &tasks, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(br#"{"vectors": []}"#).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"{\"vectors\":[]}\n");
}

fn shipped(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config/tasks").join(name).to_str().unwrap().to_owned()
}

#[test]
fn shipped_tasks_are_valid_and_accept_the_intended_paths() {
    let output = path(&["check", &shipped("rover.yaml"), &shipped("refund.yaml")]);
    assert!(output.status.success(), "{}", err(&output));
    let text = err(&output);
    assert!(text.contains("2 tasks can be used"), "{text}");
    // 'move' before 'move_elsewhere' is intended: the first match is used.
    assert!(text.contains("both 'move' and 'move_elsewhere'; the first one is used"), "{text}");
    assert_eq!(text.matches("warning:").count(), 1, "{text}");
}

#[test]
fn a_drawing_of_a_run_marks_harmful_calls() {
    let (task, run) = (shipped("rover.yaml"), shipped("rover-run.json"));
    let output = path(&["show", "--format", "dot", &task, "--trace", &run]);
    assert!(output.status.success(), "{}", err(&output));
    let dot = String::from_utf8(output.stdout).unwrap();
    for part in [
        "digraph \"water-plant\" {",
        "[label=\"locked\", shape=circle, style=filled",
        "[label=\"done\", shape=doublecircle, style=filled, fillcolor=\"#b7e1c0\"]",
        "[label=\"3: open\", color=\"#cf222e\", fontcolor=\"#cf222e\", style=dashed]",
        "[label=\"2: unlock\", color=\"#1a7f37\"",
        "6: water",
    ] {
        assert!(dot.contains(part), "no {part} in\n{dot}");
    }
    let output = path(&["show", &task, "--trace", &run]);
    let svg = String::from_utf8(output.stdout).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("\u{2717} ").count(), 2, "{svg}");
    assert_eq!(svg.matches("r=\"34\"").count(), 7, "a circle a state");
    let output = path(&["show", &task, "--walk", "unlock,water,<script>"]);
    let svg = String::from_utf8(output.stdout).unwrap();
    assert!(svg.contains("\u{2717} 3: &lt;script&gt;"), "{svg}");
    let output = path(&["show", &task, "--trace", &shipped("refund-run.json")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("the task 'water-plant' matches no agent in the traces"),
        "{}",
        err(&output)
    );
}

/// The shipped runs evaluated with the shipped tasks, from the root of the repository.
fn judged(run: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["eval", "-c", "config/paths.yaml", "--output", "json", &shipped(run)])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", err(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn measured(trace: &Value, span: usize) -> std::collections::BTreeMap<String, Value> {
    let all = trace["spans"][span]["measurements"].as_array().unwrap().iter();
    all.filter(|m| m["metric"].as_str().unwrap().starts_with("path."))
        .map(|m| (m["metric"].as_str().unwrap().to_owned(), m.clone()))
        .collect()
}

#[test]
fn shipped_runs_are_judged_by_shipped_tasks() {
    let trace = judged("rover-run.json");
    assert_eq!(trace["result"], "fail");
    let agent = measured(&trace, 0);
    let score = |metric: &str| agent[metric]["score"].as_f64().unwrap();
    // unlock open! move scan water! open water log: eight kept of nine, two of them harmful.
    assert!((score("path.correctness") - (1.0 - 4.0 / 16.0)).abs() < 1e-12);
    assert!((score("path.pc_ktc") - (0.5 * 0.75 + 0.5 * (1.0 - 2.0 * 2.0 / 30.0))).abs() < 0.05);
    assert_eq!(score("path.harm_rate"), 0.25);
    assert_eq!(score("path.efficiency"), 6.0 / 9.0);
    assert_eq!(agent["path.accepting"]["label"], "accepting");
    let first = &measured(&trace, 3)["path.harmful_call"];
    assert_eq!((first["label"].as_str(), first["result"].as_str()), (Some("not_allowed_here"), Some("fail")));
    let why = first["findings"][0]["rationale"].as_str().unwrap();
    assert!(why.contains(" was expected in state 'unlocked' of the task 'water-plant'; "), "{why}");
    let second = &measured(&trace, 6)["path.harmful_call"];
    assert_eq!(second["label"], "other_arguments");
    assert!((0..10).filter(|i| measured(&trace, *i).contains_key("path.harmful_call")).count() == 2);

    let trace = judged("refund-run.json");
    assert_eq!(measured(&trace, 3)["path.harmful_call"]["label"], "not_allowed_here");
    assert!(measured(&trace, 1).is_empty(), "a call that the policy does not mention");
    // The refund does not count as made for the policy, so no notification is required.
    assert_eq!(measured(&trace, 0)["path.accepting"]["label"], "accepting");
}

#[test]
fn a_learnt_task_accepts_its_runs() {
    let folder = tempfile::tempdir().unwrap();
    let refused = path(&["learn", &shipped("rover-run.json"), "--agent", "nobody"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(err(&refused).contains("no run with calls"), "{}", err(&refused));
    let output = path(&["learn", "--all", "--task", "rover", &shipped("rover-run.json")]);
    assert!(output.status.success(), "{}", err(&output));
    assert!(err(&output).contains("to review: only 1 runs"), "{}", err(&output));
    let draft = written(&folder, "draft.yaml", &String::from_utf8(output.stdout).unwrap());
    let checked = path(&["check", &draft]);
    assert!(checked.status.success(), "{}", err(&checked));
    let shown = path(&["show", "--format", "dot", &draft, "--trace", &shipped("rover-run.json")]);
    let dot = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success() && !dot.contains("#cf222e"), "{dot}");
}

#[test]
fn a_faulty_task_file_is_a_faulty_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let bad = written(&folder, "bad.yaml", &TASK.replace("S: sent", "S: snet"));
    let config =
        written(&folder, "c.yaml", &format!("verdict: {{ metrics: {{ path: {{ tasks: ['{bad}'] }} }} }}"));
    let binary = || Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    // Text alone is checked: no file is opened.
    assert!(binary().args(["validate", "-c", &config]).output().unwrap().status.success());
    let output = binary().args(["eval", "-c", &config, &shipped("rover-run.json")]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("verdict.metrics.path.tasks:"), "{}", err(&output));
    assert!(err(&output).contains("bad.yaml:6:18"), "{}", err(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn harmful_calls_are_reported_while_their_trace_is_open() {
    let text = format!(
        "verdict: {{ close: {{ quiet: 1h, idle: 1h }}, metrics: {{ path: {{ tasks: ['{}'] }} }} }}",
        shipped("rover.yaml")
    );
    let process = Process::start(&text).await;
    let mut client = process.client();
    let mut request: ExportTraceServiceRequest =
        serde_json::from_slice(&std::fs::read(shipped("rover-run.json")).unwrap()).unwrap();
    let spans = &mut request.resource_spans[0].scope_spans[0].spans;
    let rest = spans.split_off(5);
    client.spans(request.clone()).await;
    let told = |process: &Process| process.service.telemetry().traces.harmful_calls.get();
    let mut waited = 0;
    while told(&process) < 1 && waited < 1000 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        waited += 1;
    }
    assert_eq!(told(&process), 1, "the valve was opened where the rover stood");
    request.resource_spans[0].scope_spans[0].spans = rest;
    client.spans(request).await;
    while told(&process) < 2 && waited < 2000 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        waited += 1;
    }
    assert_eq!(told(&process), 2, "too much water; the first call is not told again");
    assert!(process.destination.spans().is_empty(), "the trace is still open");
    process.service.flush().await;
    process.until("the trace", |d| d.spans().len() == 10).await;
    let label = |key: &str| {
        let spans = process.destination.spans();
        spans.iter().flat_map(|s| &s.attributes).filter(|a| a.key == key).count()
    };
    assert_eq!(label("verdict.path.harmful_call.label"), 2);
    assert_eq!(label("verdict.path.harmful_call.state"), 2);
    Box::pin(process.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulty_task_file_is_refused_at_reload() {
    let folder = tempfile::tempdir().unwrap();
    let task = written(&folder, "task.yaml", TASK);
    let process =
        Process::start(&format!("verdict: {{ metrics: {{ path: {{ tasks: ['{task}'] }} }} }}")).await;
    let config = process.service.config();
    process.service.reload(&config).unwrap();
    written(&folder, "task.yaml", &TASK.replace("S: sent", "S: snet"));
    let why = process.service.reload(&config).unwrap_err().to_string();
    assert!(why.starts_with("verdict.metrics.path.tasks:") && why.contains("task.yaml:6:18"), "{why}");
    Box::pin(process.stop()).await;
}
