//! `plan` by what it prints and how it exits, on the plans of paper 004.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

const LISTING_1: &str = r#"# Query: Compare QA scores for professionalism and resolution procedures in unresolved calls.
# Plan:
{
"1": {"step": "T2S([], 'Fetch interaction_ids of unresolved calls')", "depends_on": []},
"2": {"step": "RAG((1), 'Fetch calls where the sentiment transitioned from negative to positive within the transcript')", "depends_on": [1]},
"3": {"step": "LLM('Extract interaction_ids from Data Insights in (2).')", "depends_on": [2]},
"4": {"step": "T2S((3), 'Retrieve QA scores for resolution procedures in these calls.')", "depends_on": [3]},
"5": {"step": "T2S((3), 'Retrieve QA scores for professionalism in these calls.')", "depends_on": [3]},
"6": {"step": "LLM('Compare QA scores from (4) vs. (5) in light of unresolved status and sentiment transitions.')", "depends_on": [4,5]}
}"#;

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    command.env("NO_COLOR", "1").stdin(Stdio::null()).args(args).output().unwrap()
}

fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn triad() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config/tools/contact-centre.yaml");
    path.to_str().unwrap().to_owned()
}

fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

#[test]
fn check_tells_the_layout_and_every_fault_and_exits_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let (good, tools) = (file(&folder, "plan.json", LISTING_1), triad());
    let output = run(&["plan", "check", &good, "--tools", &tools]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(out(&output).starts_with("6 steps, 4 hops, 2 wide\n"), "{}", out(&output));
    let bad = file(&folder, "bad.json", &LISTING_1.replace("[4,5]", "[4,9]").replace("RAG(", "WEB("));
    let output = run(&["plan", "check", &bad, "--tools", &tools]);
    assert_eq!(output.status.code(), Some(1));
    for part in [
        "step 6: depends on step 9, which there is not [dependencies]",
        "step 6: uses (5) and does not depend on step 5 [dependencies]",
        "step 6: depends on step 9 and has no placeholder (9) [format]",
        "step 5: does not contribute to the last step [redundancy]",
        "step 2: there is no tool \"WEB\" [tool_prompt_alignment]",
    ] {
        assert!(out(&output).contains(part), "no {part:?} in\n{}", out(&output));
    }
    assert_eq!(run(&["plan", "check", "/nowhere.json"]).status.code(), Some(2));
}

#[test]
fn score_measures_rates_and_names_what_it_did_not_measure() {
    let folder = tempfile::tempdir().unwrap();
    let best = file(&folder, "best.json", LISTING_1);
    let worse = file(&folder, "plan.json", &LISTING_1.replace("\"depends_on\": [2]", "\"depends_on\": [1]"));
    let output = run(&["plan", "score", &worse, "--reference", &best, "--tools", &triad(), "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_str(out(&output)).unwrap();
    assert_eq!(found["comparison"]["rating"], "good");
    assert_eq!(found["comparison"]["nearly"], json!([[3, 3]]));
    assert_eq!(found["metrics"]["query_adherence"], Value::Null);
    assert_eq!(found["metrics"]["tool_usage_completeness"], 1.0);
    assert_eq!(found["metrics"]["format"], json!(5.0 / 6.0), "no placeholder (1)");
    let table = run(&["plan", "score", &worse, "--reference", &best]);
    assert!(out(&table).contains("rating                             good"), "{}", out(&table));
    assert!(out(&table).contains("not measured"), "{}", out(&table));
}

#[test]
fn weights_are_learnt_from_metrics_and_from_plans() {
    let folder = tempfile::tempdir().unwrap();
    let entry = |alignment: f64, format: f64| json!({ "metrics": { "tool_prompt_alignment": alignment, "format": format, "dependencies": 1.0 } });
    let misled = json!({ "plans": [entry(0.2, 1.0), entry(0.5, 0.6), entry(0.8, 0.2)] }).to_string();
    let broken = LISTING_1.replace("[4,5]", "[9]");
    let plans = json!({ "plans": [{ "plan": broken }, { "plan": LISTING_1 }] }).to_string();
    let ordered = file(&folder, "ordered.jsonl", &format!("{misled}\n\n{plans}\n"));
    let output = run(&["plan", "learn-weights", &ordered, "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let learnt: Value = serde_json::from_str(out(&output)).unwrap();
    assert_eq!((&learnt["groups"], &learnt["pairs"]), (&json!(2), &json!(4)));
    assert_eq!((&learnt["nominal_agreement"], &learnt["agreement"]), (&json!(0.25), &json!(1.0)));
    assert_eq!(learnt["sensitivity"]["draws"].as_array().unwrap().len(), 10);
    // The table is a configuration that can be used as it is.
    let table = run(&["plan", "learn-weights", &ordered]);
    let config = file(&folder, "weights.yaml", out(&table));
    assert_eq!(run(&["validate", "--config", &config]).status.code(), Some(0), "{}", out(&table));
    let nothing = file(&folder, "nothing.jsonl", "{\"plans\": []}\n");
    assert_eq!(run(&["plan", "learn-weights", &nothing]).status.code(), Some(2));
}
