//! The command `score` on a synthetic trace, and compared with the reference script on the cases.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const TRACE: &str = "5b8efff798038103d269b633813fc60c";

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/score").join(name)
}

pub fn score(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    let output = command.env("NO_COLOR", "1").arg("score").args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

pub fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_slice(&score(args).stdout).unwrap()
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The report of `score trail`, which writes its predictions into `folder`.
fn score_trail(traces: &Path, gold: &Path, folder: &Path) -> serde_json::Value {
    let [traces, gold, folder] = [traces, gold, folder].map(text);
    json(&["trail", "--traces", traces, "--gold", gold, "--predictions", folder, "--output", "json"])
}

#[test]
fn written_predictions_have_the_benchmarks_shape_and_the_same_scores() {
    let folder = tempfile::tempdir().unwrap();
    let (traces, gold) = (data("traces"), data("gold"));
    let judged = score_trail(&traces, &gold, folder.path());
    let file = folder.path().join(format!("{TRACE}.json"));
    let written: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let limited = written["errors"].as_array().unwrap().iter().find(|e| e["category"] == "Rate Limiting");
    assert_eq!(limited.unwrap()["location"], "aaaaaaaaaaaaaaa3", "{written}");
    assert!(limited.unwrap()["evidence"].as_str().unwrap().contains("429"), "{written}");
    assert!(judged["joint"]["hits"].as_u64() >= Some(1), "{judged}");
    assert_eq!(judged["trace_scores"]["security_score"]["pearson"], serde_json::Value::Null);

    let recomputed =
        json(&["trail", "--from", text(folder.path()), "--gold", text(&gold), "--output", "json"]);
    for figure in ["location", "joint", "category_f1_weighted", "impacts"] {
        assert_eq!(recomputed[figure], judged[figure], "{figure}");
    }
    let table = score(&["trail", "--from", text(folder.path()), "--gold", text(&gold)]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("security_score: undefined") && table.contains("Rate Limiting"), "{table}");
}

#[test]
fn the_page_is_self_contained_and_escapes_texts_of_traces() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    for (command, labels) in [("trail", "gold"), ("labels", "labels.json"), ("thresholds", "labels.json")] {
        let option = if command == "trail" { "--gold" } else { "--labels" };
        let (traces, labels) = (data("traces"), data(labels));
        score(&[command, "--traces", text(&traces), option, text(&labels), "--report", text(&page)]);
        let html = std::fs::read_to_string(&page).unwrap();
        assert!(html.contains("Keeper &lt;script&gt;"), "{command}: the agent's name is there");
        assert!(html.contains("aaaaaaaaaaaaaaa3") && html.contains("found and annotated"), "{command}");
        assert!(html.contains("A sample of explanations"), "{command}");
        for active in ["<script", "javascript:", "src=", "href=", "url(", "@import"] {
            assert!(!html.contains(active), "{command}: {active}");
        }
    }
}

#[test]
fn score_labels_prints_each_metric_and_its_scores() {
    let (traces, labels) = (data("traces"), data("labels.json"));
    let report = json(&["labels", "--traces", text(&traces), "--labels", text(&labels), "--output", "json"]);
    assert_eq!(report["metrics"]["error_detection"]["tp"], 1, "{report}");
    assert_eq!(report["trace_verdict"]["tp"], 1, "{report}");
    assert_eq!(report["impacts"][0]["impact"], "HIGH", "{report}");
}

#[test]
fn labels_of_whole_traces_are_compared_with_verdicts_alone() {
    let folder = tempfile::tempdir().unwrap();
    let labels = folder.path().join("labels.json");
    for partial in [true, false] {
        let trace_label = serde_json::json!({ "trace_id": TRACE, "expected": "fail", "partial": partial });
        std::fs::write(&labels, serde_json::json!({ "traces": [trace_label] }).to_string()).unwrap();
        let traces = data("traces");
        let args = ["--traces", text(&traces), "--labels", text(&labels)];
        let printed = String::from_utf8(score(&[&["labels"][..], &args].concat()).stdout).unwrap();
        assert!(printed.contains("trace verdict") && printed.contains("no label names a span"), "{printed}");
        assert!(!printed.contains("location") && !printed.contains("tool_completeness"), "{printed}");
        let report = json(&[&["labels"][..], &args, &["--output", "json"]].concat());
        assert_eq!(
            (&report["trace_verdict"]["tp"], report.get("location")),
            (&serde_json::json!(1), None),
            "{report}"
        );
        let fitted = String::from_utf8(score(&[&["thresholds"][..], &args].concat()).stdout).unwrap();
        assert!(fitted.starts_with("nothing to fit: "), "{fitted}");
    }
}

#[test]
fn unusable_input_of_score_exits_2() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("labels.json");
    std::fs::write(&wrong, r#"{"traces": [{"trace_id": "x", "spam": 1}]}"#).unwrap();
    let (traces, empty) = (data("traces"), folder.path().join("empty"));
    std::fs::create_dir(&empty).unwrap();
    for (args, expected) in [
        (["labels", "--traces", text(&traces), "--labels", text(&wrong)], "spam"),
        (["trail", "--traces", text(&traces), "--gold", text(&empty)], "no annotations"),
        (["trail", "--traces", text(&traces), "--gold", "/nowhere"], "/nowhere"),
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_otel-verdict")).arg("score").args(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}

/// Our figures equal the reference script's, for any predictions on the cases.
#[test]
fn figures_equal_the_reference_scripts() {
    let cases = std::env::var("OTEL_VERDICT_CASES").map(PathBuf::from);
    let script = std::env::var("OTEL_VERDICT_TRAIL_SCORE").map(PathBuf::from);
    let python = Command::new("python3").arg("--version").output().is_ok_and(|o| o.status.success());
    let (Ok(cases), Ok(script), true) = (cases, script, python) else {
        println!("skipped: needs OTEL_VERDICT_CASES, OTEL_VERDICT_TRAIL_SCORE and python3");
        return;
    };
    // The smaller half is enough for every branch of the definitions, and quicker.
    let (traces, gold) = (cases.join("trail/swe/traces"), cases.join("trail/swe/gold"));
    let folder = tempfile::tempdir().unwrap();
    let ours = score_trail(&traces, &gold, folder.path());
    let output = Command::new("python3")
        .arg(&script)
        .args(["--gold", text(&gold), "--pred", text(folder.path())])
        .output()
        .unwrap();
    let theirs = String::from_utf8(output.stdout).unwrap();
    let figure = |name: &str, key: &str| ours[name][key].as_f64().unwrap();
    let line = |name: &str| {
        let [p, r, f] = ["precision", "recall", "f1"].map(|key| figure(name, key));
        format!("{name:<8} P {p:.3} R {r:.3} F1 {f:.3}")
    };
    let means = ["benchmark_location_mean", "benchmark_joint_mean", "category_f1_weighted"];
    let [location, joint, category] = means.map(|name| ours[name].as_f64().unwrap());
    let expected = [
        format!(
            "traces {}  predicted spans {}  gold spans {}",
            ours["traces"], ours["location"]["predicted"], ours["location"]["gold"]
        ),
        line("location"),
        line("joint"),
        format!("benchmark: location {location:.4} joint {joint:.4} weighted category F1 {category:.4}"),
    ];
    assert_eq!(theirs.lines().collect::<Vec<_>>(), expected);
}

/// The options of labelled sets of the small runs.
fn small_sets(names: &[&str]) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/small");
    let file = |name: &str, suffix: &str| text(&folder.join(format!("{name}.{suffix}"))).to_owned();
    let options =
        |name: &&str| ["--set".into(), (*name).into(), file(name, "jsonl.gz"), file(name, "labels.json")];
    names.iter().flat_map(options).collect()
}

#[test]
fn score_fit_reports_by_how_much_held_out_weights_exceed_the_shipped_ones() {
    let fit = |names: &[&str], more_arguments: &[&str]| {
        let sets = small_sets(names);
        let args: Vec<&str> = ["fit"].into_iter().chain(sets.iter().map(String::as_str)).collect();
        let report = json(&[&args[..], &["--output", "json"], more_arguments].concat());
        (report, String::from_utf8(score(&[&args[..], more_arguments].concat()).stdout).unwrap())
    };
    let area = |report: &serde_json::Value, set: usize, key: &str| report["sets"][set][key].as_f64().unwrap();
    // One set: cross-validated.
    let (report, printed) = fit(&["first"], &[]);
    let gain = report["gain"].as_f64().unwrap();
    assert!((gain - (area(&report, 0, "auc_held_out") - area(&report, 0, "auc_shipped"))).abs() < 1e-9);
    assert!(printed.contains("Held out, the fitted weights have an AUC"), "{printed}");
    assert!(printed.contains("expected_outcome:\n        intercept:"), "{printed}");
    // Two sets: each with the weights of the other, and with its confidences where that is asked for.
    let (report, _) = fit(&["first", "second"], &[]);
    assert!(area(&report, 1, "auc_held_out") > 0.5, "{report}");
    let (estimated, _) = fit(&["first", "second"], &["--estimate-confidences"]);
    assert_eq!(area(&report, 1, "auc"), area(&estimated, 1, "auc"), "{estimated}");
    assert!(area(&estimated, 1, "auc_held_out") > 0.5, "{estimated}");
}

#[test]
fn score_rules_compares_confidences_with_sets_that_are_left_out() {
    let sets = small_sets(&["first", "second"]);
    let args: Vec<&str> = ["rules"].into_iter().chain(sets.iter().map(String::as_str)).collect();
    let report = json(&[&args[..], &["--output", "json"]].concat());
    let second = &report["calibration"][1];
    let brier = |key: &str| second[key]["brier"].as_f64().unwrap();
    assert!(second["firings"]["fired"].as_u64() > Some(10), "{report}");
    assert!(brier("all_sets") < brier("left_out"), "{report}");
    let printed = String::from_utf8(score(&args).stdout).unwrap();
    assert!(printed.contains("left out") && printed.contains("Brier"), "{printed}");
    let rows = String::from_utf8(score(&[&args[..], &["--by-set"]].concat()).stdout).unwrap();
    let row = rows.lines().find(|row| row.contains("ContradictsResult") && row.contains("second")).unwrap();
    assert!(row.contains("1.000 ["), "{rows}");
}
