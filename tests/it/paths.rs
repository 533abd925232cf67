//! `path`: the tasks and vectors of the authors of paper 002 as input of the commands, and the input that they refuse.
//!
//! The authors' cases may not be redistributed. `OTEL_VERDICT_CASES` names their folder; without it, the tests that
//! need them print that they are skipped.

mod running;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::binary::{stderr, write_file};

fn path(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    command.arg("path").args(args).stdin(Stdio::null()).output().unwrap()
}

fn core_cases() -> Option<PathBuf> {
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
    let Some(core) = core_cases() else { return };
    let (tasks, vectors) = (core.join("tasks.json"), core.join("vectors.json"));
    let checked = path(&["check", tasks.to_str().unwrap()]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    let output = path(&["score", tasks.to_str().unwrap(), vectors.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let scored: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected: Value = serde_json::from_slice(&std::fs::read(vectors).unwrap()).unwrap();
    let (scored, expected) = (scored["vectors"].as_array().unwrap(), expected["vectors"].as_array().unwrap());
    assert_eq!(scored.len(), expected.len());
    assert!(!scored.is_empty());
    for (scored, expected) in scored.iter().zip(expected) {
        assert_eq!(scored["prompt_id"], expected["prompt_id"]);
        for (theirs, ours) in KEYS {
            let (actual, expected_value) = (&scored["metrics"][ours], &expected["expected"][theirs]);
            let is_equal = match (actual.as_f64(), expected_value.as_f64()) {
                (Some(actual), Some(expected_value)) => (actual - expected_value).abs() < 1e-9,
                _ => actual == expected_value,
            };
            assert!(
                is_equal,
                "{} {}: {ours} is {actual}, not {expected_value}",
                scored["prompt_id"], scored["name"]
            );
        }
        assert_eq!(scored["metrics"].as_object().unwrap().len(), 11, "these keys, pc_hlr, and no other");
    }
}

#[test]
fn every_malformed_record_is_refused_with_a_reason() {
    let Some(core) = core_cases() else { return };
    let records: Value =
        serde_json::from_slice(&std::fs::read(core.join("malformed.json")).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for record in records.as_array().unwrap() {
        let file = folder.path().join("task.json");
        std::fs::write(&file, serde_json::to_string_pretty(record).unwrap()).unwrap();
        let output = path(&["check", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{} was accepted", record["prompt_id"]);
        let reasons = ["is not in the alphabet", "must be deterministic", "this edge is listed under state"];
        let text = stderr(&output);
        assert!(reasons.iter().any(|reason| text.contains(reason)), "{text}");
        assert!(text.contains("task.json:"), "{text}");
    }
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
    let tasks = write_file(&folder, "task.yaml", TASK);
    let sequences = json!({"note": 1, "vectors": [
        {"prompt_id": "send", "name": "good", "sequence": ["R", "S"], "expected": {}},
        {"prompt_id": "send", "name": "idle", "sequence": []},
        {"prompt_id": "send", "name": "strange", "sequence": ["X", "S", "S"]},
    ]});
    let sequences = write_file(&folder, "sequences.json", &sequences.to_string());
    let output = path(&["score", "--more", &tasks, &sequences]);
    assert!(output.status.success(), "{}", stderr(&output));
    let scored: Value = serde_json::from_slice(&output.stdout).unwrap();
    let metrics_at = |i: usize| &scored["vectors"][i]["metrics"];
    assert_eq!(
        (
            metrics_at(0)["efficiency"].as_f64(),
            metrics_at(0)["condensed"].clone(),
            metrics_at(0)["pareto"].clone()
        ),
        (Some(0.5), json!(["S"]), json!(true))
    );
    assert_eq!(
        (metrics_at(1)["efficiency"].clone(), metrics_at(1)["weighted"].clone()),
        (json!(null), json!(0.5))
    );
    assert_eq!(metrics_at(2)["condensed"], json!(["X", "S", "S"]));
    assert_eq!(metrics_at(2)["harm_mask"], json!([1, 0, 1]));
    assert_eq!(metrics_at(2)["pareto"], json!(false));
    assert!((metrics_at(2)["harm_free"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-12);
}

#[test]
fn unusable_input_exits_2_and_names_the_location() {
    let folder = tempfile::tempdir().unwrap();
    let good = write_file(&folder, "good.yaml", TASK);
    let bad = write_file(&folder, "bad.yaml", &TASK.replace("S: sent", "S: snet"));
    let refused = |args: &[&str], reason: &str| {
        let output = path(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty());
        assert!(stderr(&output).contains(reason), "{} does not say {reason}", stderr(&output));
    };
    refused(
        &["check", &good, &bad],
        "bad.yaml:6:18: states.begin.on.S: no state is named 'snet'; did you mean 'sent'?",
    );
    refused(&["check", "/nowhere.yaml"], "/nowhere.yaml:");
    let unknown =
        write_file(&folder, "u.json", r#"{"vectors": [{"prompt_id": "x", "name": "n", "sequence": []}]}"#);
    refused(&["score", &good, &unknown], "vectors[0]: no task is named 'x'");
    let broken = write_file(&folder, "b.json", r#"{"vectors": [{"prompt_id": "send", "name": "n"}]}"#);
    refused(&["score", &good, &broken], "missing field `sequence` at line 1");
    refused(&["score", &bad, &unknown], "snet");
}

#[test]
fn sequences_may_come_on_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let tasks = write_file(&folder, "task.yaml", TASK);
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
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.contains("2 tasks can be used"), "{text}");
    // 'move' before 'move_elsewhere' is intended: the first match is used.
    assert!(text.contains("both 'move' and 'move_elsewhere'; the first one is used"), "{text}");
    assert_eq!(text.matches("warning:").count(), 1, "{text}");
}

#[test]
fn a_drawing_of_a_run_marks_harmful_calls() {
    let (task, run) = (shipped("rover.yaml"), shipped("rover-run.json"));
    let output = path(&["show", "--format", "dot", &task, "--trace", &run]);
    assert!(output.status.success(), "{}", stderr(&output));
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
        stderr(&output).contains("the task 'water-plant' matches no agent in the traces"),
        "{}",
        stderr(&output)
    );
}

/// The shipped runs evaluated with the shipped tasks, from the root of the repository.
fn evaluate(run: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["eval", "-c", "config/paths.yaml", "--output", "json", &shipped(run)])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
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
    let trace = evaluate("rover-run.json");
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
    let rationale = first["findings"][0]["rationale"].as_str().unwrap();
    assert!(
        rationale.contains(" was expected in state 'unlocked' of the task 'water-plant'; "),
        "{rationale}"
    );
    let second = &measured(&trace, 6)["path.harmful_call"];
    assert_eq!(second["label"], "other_arguments");
    assert!((0..10).filter(|i| measured(&trace, *i).contains_key("path.harmful_call")).count() == 2);

    let trace = evaluate("refund-run.json");
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
    assert!(stderr(&refused).contains("no run with calls"), "{}", stderr(&refused));
    let output = path(&["learn", "--all", "--task", "rover", &shipped("rover-run.json")]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("to review: only 1 runs"), "{}", stderr(&output));
    let draft = write_file(&folder, "draft.yaml", &String::from_utf8(output.stdout).unwrap());
    let checked = path(&["check", &draft]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    let shown = path(&["show", "--format", "dot", &draft, "--trace", &shipped("rover-run.json")]);
    let dot = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success() && !dot.contains("#cf222e"), "{dot}");
}

#[test]
fn a_faulty_task_file_is_a_faulty_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let bad = write_file(&folder, "bad.yaml", &TASK.replace("S: sent", "S: snet"));
    let config =
        write_file(&folder, "c.yaml", &format!("verdict: {{ metrics: {{ path: {{ tasks: ['{bad}'] }} }} }}"));
    let binary = || Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    // Text alone is checked: no file is opened.
    assert!(binary().args(["validate", "-c", &config]).output().unwrap().status.success());
    let output = binary().args(["eval", "-c", &config, &shipped("rover-run.json")]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("verdict.metrics.path.tasks:"), "{}", stderr(&output));
    assert!(stderr(&output).contains("bad.yaml:6:18"), "{}", stderr(&output));
}

#[test]
fn a_report_has_distributions_and_is_a_gate() {
    let folder = tempfile::tempdir().unwrap();
    let report = |more_arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
        command.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
        let runs = [shipped("rover-run.json"), shipped("refund-run.json")];
        command
            .args(["path", "report", "-c", "config/paths.yaml"])
            .args(more_arguments)
            .args(&runs)
            .output()
            .unwrap()
    };
    let output = report(&["--format", "json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report_json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let group =
        |task: &str| report_json["groups"].as_array().unwrap().iter().find(|g| g["task"] == task).unwrap();
    let rover = group("water-plant");
    assert_eq!((rover["agent"].as_str(), rover["runs"].as_u64()), (Some("rover"), Some(1)));
    assert_eq!(rover["scores"]["correctness"]["mean"], 0.75);
    assert_eq!(rover["scores"]["accepting"]["mean"], 1.0);
    assert_eq!(group("refund-policy")["scores"]["efficiency"]["unmeasured"], 1);
    // Judges of other metrics are not asked. Nothing listens at the address of this one.
    let judged = "{ judges: { main: { endpoint: 'http://127.0.0.1:9/v1', model: m, retries: 0 } },\
                   verdict: { metrics: { judges: [main] } } }";
    let with_judges = report(&["-c", &write_file(&folder, "judges.yaml", judged), "--format", "json"]);
    assert!(
        with_judges.status.success() && !stderr(&with_judges).contains("judge"),
        "{}",
        stderr(&with_judges)
    );
    assert_eq!(with_judges.stdout, output.stdout);
    let table = String::from_utf8(report(&[]).stdout).unwrap();
    assert!(table.contains("water-plant \u{b7} rover: 1 run, on the Pareto front"), "{table}");
    let page = String::from_utf8(report(&["--format", "html"]).stdout).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("water-plant"), "{page}");
    // The same runs do not regress against themselves; against a better past they do.
    let baseline = write_file(&folder, "baseline.json", &String::from_utf8(output.stdout).unwrap());
    let unchanged = report(&["--against", &baseline]);
    assert!(unchanged.status.success(), "{}", stderr(&unchanged));
    assert!(String::from_utf8(unchanged.stdout).unwrap().ends_with("no score regressed\n"));
    let mut better = report_json.clone();
    for group in better["groups"].as_array_mut().unwrap() {
        group["scores"]["correctness"]["mean"] = json!(1.0);
    }
    let better = write_file(&folder, "better.json", &better.to_string());
    let worse = report(&["--against", &better]);
    assert_eq!(worse.status.code(), Some(1), "{}", stderr(&worse));
    let text = String::from_utf8(worse.stdout).unwrap();
    assert!(text.contains("regressed") && text.contains("1.000  0.750"), "{text}");
    assert!(report(&["--against", &better, "--tolerance", "0.9"]).status.success());
    assert_eq!(report(&["--against", "/nowhere.json"]).status.code(), Some(2));
    let none = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
        .args(["path", "report", &shipped("rover-run.json")])
        .output()
        .unwrap();
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("no task of the configuration"), "{}", stderr(&none));
}
