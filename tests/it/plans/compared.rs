//! `compare`: answers to one query, and to many.

use serde_json::{Value, json};

use super::{QUERY, asking_and_replaying, stdout_text};
use crate::binary::{run, write_file};
use crate::model;

#[test]
fn answers_are_compared_by_table_34_and_a_silent_judge_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let answers = ["Waiting.", "The weather.", "Waiting times."]
        .map(|text| write_file(&folder, &format!("{}.txt", text.len()), text));
    let (asking, replaying) = asking_and_replaying(&folder);
    let mut args = vec!["compare", "--query", QUERY, "--judge", "main"];
    args.extend(answers.iter().map(String::as_str));
    let output = run(&[&args[..], &["-c", &asking, "-o", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let compared: Value = serde_json::from_str(stdout_text(&output)).unwrap();
    assert_eq!(compared["decision"], "R1,R3");
    assert_eq!(
        compared["scores"][1],
        json!({ "validity": 1, "consistency": 0, "completeness": 1, "redundancy": 7 })
    );
    let other = run(&[
        "compare",
        "--query",
        "Another?",
        &answers[0],
        &answers[1],
        "--judge",
        "main",
        "-c",
        &replaying,
    ]);
    assert_eq!(other.status.code(), Some(1), "nothing was recorded for it");
}

/// Scores that depend on the texts and not on their order: the answer "Two." is better than "One." if
/// `second_is_better`.
fn scored_by_text(prompt: &str, second_is_better: bool) -> Value {
    let at = |text: &str| prompt.find(text).unwrap();
    let scores = |completeness: i64| json!({ "validity": 1, "consistency": 1, "completeness": completeness, "redundancy": 7 });
    let (one, two) = (scores(6), scores(if second_is_better { 7 } else { 5 }));
    let (first, second) = if at("\nOne.\n") < at("\nTwo.\n") { (one, two) } else { (two, one) };
    json!({ "rationale": "so", "R1": first, "R2": second })
}

#[test]
fn several_judges_and_samples_count_by_median() {
    let folder = tempfile::tempdir().unwrap();
    let count = std::sync::atomic::AtomicUsize::new(0);
    let endpoint = model::serve(move |_, prompt| {
        let third = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst).is_multiple_of(3);
        scored_by_text(prompt, third)
    });
    let config = json!({ "judges": {
        "main": { "endpoint": endpoint, "model": "m", "samples": 2 },
        "other": { "endpoint": endpoint, "model": "n" },
    } });
    let config = write_file(&folder, "judges.yaml", &config.to_string());
    let [one, two] = ["One.", "Two."].map(|text| write_file(&folder, text, text));
    let args =
        ["compare", "--query", "Which?", &one, &two, "--judge", "main", "--judge", "other", "-o", "json"];
    let output = run(&[&args[..], &["-c", &config]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let compared: Value = serde_json::from_str(stdout_text(&output)).unwrap();
    assert_eq!((&compared["decision"], &compared["scores"][1]["completeness"]), (&json!("R1"), &json!(5)));
}

#[test]
fn many_queries_are_compared_in_both_orders_and_give_win_rates() {
    let folder = tempfile::tempdir().unwrap();
    // The judge prefers what is shown first, except for the query about the weather.
    let endpoint = model::serve(|_, prompt| match prompt.contains("weather") {
        true => scored_by_text(prompt, true),
        false => {
            let scores = |completeness: i64| json!({ "validity": 1, "consistency": 1, "completeness": completeness, "redundancy": 7 });
            json!({ "rationale": "the first", "R1": scores(7), "R2": scores(6) })
        }
    });
    let config = json!({ "judges": { "main": { "endpoint": endpoint, "model": "m" } } });
    let config = write_file(&folder, "judges.yaml", &config.to_string());
    let line = |query: &str| json!({ "query": query, "answers": ["One.", "Two."] }).to_string();
    let queries =
        write_file(&folder, "queries.jsonl", &[line("Which?"), line("And the weather?")].join("\n"));
    let args = ["compare", "--queries", &queries, "--judge", "main", "-c", &config];
    let output = run(&[&args[..], &["-o", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report_json: Value = serde_json::from_str(stdout_text(&output)).unwrap();
    assert_eq!((&report_json["wins"], &report_json["all"]), (&json!([0.0, 0.5]), &json!(0.5)));
    assert_eq!(
        (&report_json["consistent"], &report_json["comparisons"][0]["consistent"]),
        (&json!(0.5), &json!(false))
    );
    let table = run(&args);
    assert!(
        stdout_text(&table).contains("both orders lead to the same decision in 50.0 %"),
        "{}",
        stdout_text(&table)
    );
    let one = run(&[&args[..], &["--one-order", "-o", "json"]].concat());
    let one: Value = serde_json::from_str(stdout_text(&one)).unwrap();
    assert_eq!((&one["wins"], &one["consistent"]), (&json!([0.5, 0.5]), &Value::Null));
    let uneven =
        write_file(&folder, "uneven.jsonl", &json!({ "query": "q", "answers": ["one"] }).to_string());
    let refused = run(&["compare", "--queries", &uneven, "--judge", "main", "-c", &config]);
    assert_eq!(refused.status.code(), Some(2));
}
