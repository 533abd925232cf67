//! `score trail`: its input, its predictions, and the judges that take part, over HTTP.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json as object};

use crate::model;
use crate::score::{TRACE, data, json, score, text};

/// The judge's name in every configuration of these tests.
const JUDGE: &str = "main";

/// Writes a configuration with the judge at `endpoint` and its context window, and with `metrics`.
fn config(folder: &Path, endpoint: &str, window: u64, metrics: Value) -> PathBuf {
    let judge = object!({ "endpoint": endpoint, "model": "m", "max_prompt_tokens": window });
    let config = object!({ "judges": { JUDGE: judge }, "verdict": { "metrics": metrics } });
    let path = folder.join("config.yaml");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

fn trail(traces: &Path, gold: &Path, more_arguments: &[&str]) -> Value {
    let args = ["trail", "--traces", text(traces), "--gold", text(gold), "--output", "json"];
    json(&[&args[..], more_arguments].concat())
}

fn refused(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    let output = command.arg("score").args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn published_files_give_the_same_predictions_as_otlp() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let written = |traces: &str, folder: &Path| {
        trail(&data(traces), &data("gold"), &["--all-findings", "--predictions", text(folder)]);
        std::fs::read_to_string(folder.join(format!("{TRACE}.json"))).unwrap()
    };
    let published = written("published", first.path());
    assert_eq!(published, written("traces", second.path()));
    assert!(published.contains("aaaaaaaaaaaaaaa3"), "{published}");
    let mut eval = Command::new(env!("CARGO_BIN_EXE_otel-verdict"));
    let output = eval.args(["eval", "--output", "json"]).arg(data("published")).output().unwrap();
    let evaluated: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(evaluated["trace_id"], TRACE, "{evaluated}");
}

#[test]
fn a_file_without_telemetry_among_the_traces_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("{TRACE}.json");
    std::fs::copy(data("traces").join(&name), folder.path().join(&name)).unwrap();
    std::fs::write(folder.path().join("other.json"), r#"{"spans": "elsewhere"}"#).unwrap();
    let gold = data("gold");
    let error = refused(&["trail", "--traces", text(folder.path()), "--gold", text(&gold)]);
    assert!(error.contains("no telemetry") && error.contains("other.json"), "{error}");
}

#[test]
fn annotated_traces_that_were_not_judged_are_left_out() {
    let gold = tempfile::tempdir().unwrap();
    let name = format!("{TRACE}.json");
    std::fs::copy(data("gold").join(&name), gold.path().join(&name)).unwrap();
    std::fs::copy(data("gold").join(&name), gold.path().join("ffff.json")).unwrap();
    assert_eq!(trail(&data("traces"), gold.path(), &[])["traces"], 1);
    // In a folder of predictions an absent one is empty.
    let (from, gold) = (data("gold"), gold.path());
    let report = json(&["trail", "--from", text(&from), "--gold", text(gold), "--output", "json"]);
    assert_eq!((&report["traces"], &report["location"]["recall"]), (&object!(2), &object!(0.5)));
}

#[test]
fn ids_and_halves_select_traces() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("{TRACE}.json");
    let ids: Vec<String> = (0..7).map(|i| format!("{i:032x}")).collect();
    for id in &ids {
        std::fs::copy(data("gold").join(&name), folder.path().join(format!("{id}.json"))).unwrap();
    }
    let gold = folder.path();
    let traces = |more_arguments: &[&str]| {
        let args = ["trail", "--from", text(gold), "--gold", text(gold), "--output", "json"];
        json(&[&args[..], more_arguments].concat())["traces"].as_u64().unwrap()
    };
    assert_eq!((traces(&["--split", "dev"]), traces(&["--split", "test", "--seed", "3"])), (3, 4));
    assert_eq!(traces(&["--ids", &ids[..2].join(",")]), 2);
    let list = folder.path().join("ids.txt");
    std::fs::write(&list, ids[..5].join("\n")).unwrap();
    assert_eq!(traces(&["--ids", text(&list)]), 5);
    assert_eq!(traces(&["--ids", text(&list), "--split", "test"]), 3);
    let error = refused(&["trail", "--from", text(gold), "--gold", text(gold), "--ids", "unknown"]);
    assert!(error.contains("leave no annotated trace"), "{error}");
}

/// Scores every call: 1 for the last model call, with a finding, otherwise 5.
fn critic(asked: &Value) -> Value {
    let page = asked["messages"][1]["content"].as_str().unwrap();
    let fails = page.contains("span aaaaaaaaaaaaaaa4");
    let finding = object!({
        "problem": "an age that nobody looked up", "span_id": "aaaaaaaaaaaaaaa4",
        "quote": "Northpoint is older.", "severity": "high",
    });
    let schema = &asked["response_format"]["json_schema"]["schema"]["properties"]["findings"]["items"];
    let mut findings = vec![finding];
    if schema["properties"].get("category").is_some() {
        findings[0]["category"] = object!("Language-only");
    }
    findings.retain(|_| fails);
    object!({ "rationale": "r", "score": if fails { 1 } else { 5 }, "findings": findings })
}

#[test]
fn the_mapper_files_each_flagged_span_and_no_judge_was_shown_the_categories() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = model::serve_requests(|form, asked| {
        let text = asked.to_string();
        if form == "failure_category" {
            let user = asked["messages"][1]["content"].as_str().unwrap();
            assert!(!user.contains("lighthouse"), "the trace is not shown: {user}");
            let category = if user.contains("nobody looked up") { "Goal Deviation" } else { "none" };
            return object!({ "rationale": "so", "category": category });
        }
        assert!(!text.contains("Goal Deviation") && !text.contains("Formatting Errors"), "{text}");
        critic(asked)
    });
    let metrics = object!({ "reasoning_integrity": { "judges": [JUDGE] } });
    let config = config(folder.path(), &endpoint, 32_768, metrics);
    let out = folder.path().join("out");
    let report = trail(
        &data("traces"),
        &data("gold"),
        &["--mapper", JUDGE, "--config", text(&config), "--predictions", text(&out)],
    );
    let written = std::fs::read(out.join(format!("{TRACE}.json"))).unwrap();
    let written: Value = serde_json::from_slice(&written).unwrap();
    let errors = written["errors"].as_array().unwrap();
    let found: Vec<_> = errors.iter().map(|e| (e["location"].clone(), e["category"].clone())).collect();
    assert_eq!(found, [(object!("aaaaaaaaaaaaaaa4"), object!("Goal Deviation"))]);
    assert_eq!(
        (&report["mapper"]["mapped"], &report["mapper"]["unanswered"]),
        (&object!(1), &object!(0)),
        "{report}"
    );
    assert!(report["mapper"]["no_category"].as_u64() >= Some(1), "the failing tool call: {report}");
}

#[test]
fn without_a_mapper_judges_assign_categories_and_only_flagged_findings_count() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = model::serve_requests(|_, asked| critic(asked));
    let metrics = object!({ "reasoning_integrity": { "judges": [JUDGE] } });
    let strict = config(folder.path(), &endpoint, 32_768, metrics);
    let predicted = |config: &Path, more_arguments: &[&str]| {
        let report =
            trail(&data("traces"), &data("gold"), &[&["--config", text(config)], more_arguments].concat());
        report["categories"]
            .as_array()
            .unwrap()
            .iter()
            .any(|row| row["category"] == "Language-only" && row["spans"]["hits"] == 1)
    };
    assert!(predicted(&strict, &[]));
    // With a threshold that nothing fails, the findings are those of a passing measurement.
    let lenient = tempfile::tempdir().unwrap();
    let metrics = object!({ "reasoning_integrity": { "judges": [JUDGE], "threshold": 1 } });
    let lenient = config(lenient.path(), &endpoint, 32_768, metrics);
    assert!(!predicted(&lenient, &[]) && predicted(&lenient, &["--all-findings"]));
}

#[test]
fn a_judge_of_whole_traces_reports_errors_and_long_traces_are_excluded() {
    let folder = tempfile::tempdir().unwrap();
    let [traces, gold] = ["traces", "gold"].map(|name| folder.path().join(name));
    let name = format!("{TRACE}.json");
    for (from, to) in [(data("traces"), &traces), (data("gold"), &gold)] {
        std::fs::create_dir(to).unwrap();
        std::fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
    // The same run again, with an answer of 60 KB.
    let long = std::fs::read_to_string(traces.join(&name)).unwrap();
    let long = long.replace(TRACE, &"ab".repeat(16)).replace("I look both up.", &"I look. ".repeat(7_500));
    std::fs::write(traces.join("long.json"), long).unwrap();
    std::fs::copy(gold.join(&name), gold.join(format!("{}.json", "ab".repeat(16)))).unwrap();
    let described = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&described);
    let endpoint = model::serve_requests(move |form, asked| {
        assert_eq!(form, "trace_errors");
        let [system, user] = [0, 1].map(|i| asked["messages"][i]["content"].as_str().unwrap());
        count.fetch_add(usize::from(user.contains("agents and control flow")), Ordering::Relaxed);
        assert!(system.contains("Language-only") && user.contains("Northpoint is older."), "{user}");
        let error = |category: &str| {
            object!({ "problem": "p", "span_id": "aaaaaaaaaaaaaaa4", "quote": "q", "category": category,
                "severity": "high" })
        };
        object!({ "rationale": "r", "errors": [error("Language-only"), error("Goal Deviation")] })
    });
    let config = config(folder.path(), &endpoint, 10_000, object!({}));
    let args = ["--monolithic", JUDGE, "--config", text(&config)];
    let report = trail(&traces, &gold, &args);
    assert_eq!((&report["traces"], &report["excluded_share"]), (&object!(1), &object!(0.5)), "{report}");
    assert_eq!(report["joint"]["hits"], 1, "{report}");
    assert_eq!((&report["joint"]["predicted"], &report["location"]["predicted"]), (&object!(2), &object!(1)));
    assert!(report.get("root_verdict").is_none() && report.get("caught").is_none(), "{report}");
    let table = score(&[&["trail", "--traces", text(&traces), "--gold", text(&gold)][..], &args].concat());
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("(50.0 % of the traces, Excl. in tables)"), "{table}");
    assert_eq!(described.load(Ordering::Relaxed), 0);
    let report = trail(&traces, &gold, &[&args[..], &["--control-flow"]].concat());
    assert_eq!((&report["joint"]["hits"], described.load(Ordering::Relaxed)), (&object!(1), 1), "{report}");
}

#[test]
fn an_adjudicator_decides_which_findings_identify_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = model::serve(|form, prompt| {
        assert_eq!(form, "identified_by");
        let findings = if prompt.contains("category: Rate Limiting") { vec![1] } else { vec![] };
        object!({ "rationale": "r", "findings": findings })
    });
    let config = config(folder.path(), &endpoint, 32_768, object!({}));
    let report = trail(&data("traces"), &data("gold"), &["--adjudicator", JUDGE, "--config", text(&config)]);
    let caught = &report["caught"];
    assert_eq!(caught["adjudicator"], JUDGE);
    // Two annotated errors of high impact, of which a finding on the tool call identifies one.
    let all = object!({ "errors": 2, "caught": 1, "localised": 1 });
    assert_eq!((&caught["any_metric"]["all"], &caught["any_metric"]["HIGH"]), (&all, &all), "{report}");
    assert_eq!(caught["metrics"]["error_detection"]["caught"]["all"]["tp"], 1, "{report}");
    assert_eq!(report["adjudicator"]["answered"], 2, "{report}");
    let by_rules = trail(&data("traces"), &data("gold"), &[]);
    assert_eq!(by_rules["caught"]["adjudicator"], "rules");
    assert_eq!(by_rules["caught"]["metrics"]["error_detection"]["localised"]["HIGH"]["tp"], 1, "{by_rules}");
}

/// A chain that only frames one agent, which calls another: the chain is the run, and belongs to no agent.
fn nested() -> Value {
    let span = |id: u8, parent: u8, kind: &str, more_attributes: &[(&str, &str)]| {
        let all = [("openinference.span.kind", kind)].into_iter().chain(more_attributes.iter().copied());
        let attributes: Vec<Value> =
            all.map(|(key, value)| object!({ "key": key, "value": { "stringValue": value } })).collect();
        let parent = if parent == 0 { String::new() } else { format!("{parent:016x}") };
        object!({
            "traceId": TRACE, "spanId": format!("{id:016x}"), "parentSpanId": parent, "name": kind, "kind": 1,
            "startTimeUnixNano": format!("17000000{id:02}000000000"),
            "endTimeUnixNano": format!("17000000{:02}000000000", 60 - id), "attributes": attributes,
        })
    };
    let messages = |answer: &'static str| {
        [
            ("llm.input_messages.0.message.role", "user"),
            ("llm.input_messages.0.message.content", "Which lighthouse is older?"),
            ("llm.output_messages.0.message.role", "assistant"),
            ("llm.output_messages.0.message.content", answer),
        ]
    };
    let asked = [("input.value", "Which lighthouse is older?"), ("output.value", "Northpoint is older.")];
    let spans = [
        span(1, 0, "CHAIN", &[]),
        span(2, 1, "AGENT", &asked),
        span(3, 2, "LLM", &messages("I ask the searcher.")),
        span(4, 2, "AGENT", &asked),
        span(5, 4, "LLM", &messages("Northpoint is older.")),
    ];
    object!({ "resourceSpans": [{ "scopeSpans": [{ "scope": {}, "spans": spans }] }] })
}

#[test]
fn metrics_of_agents_and_traces_are_compared_with_the_labels_in_their_reach() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = model::serve_requests(|_, asked| {
        let page = asked["messages"][1]["content"].as_str().unwrap();
        let fails = page.contains("span 0000000000000005");
        let finding = object!({
            "problem": "nobody looked it up", "span_id": "0000000000000005", "quote": "Northpoint is older.",
            "category": "Language-only", "severity": "high",
        });
        let findings: Vec<Value> = fails.then_some(finding).into_iter().collect();
        let score = if fails { 1 } else { 3 };
        object!({ "rationale": "r", "score": score, "findings": findings })
    });
    let metrics = object!({
        "gpa": { "judges": [JUDGE] }, "completeness": { "judges": [JUDGE] },
    });
    let config = config(folder.path(), &endpoint, 32_768, metrics);
    let [traces, labels] = ["traces.json", "labels.json"].map(|name| folder.path().join(name));
    std::fs::write(&traces, nested().to_string()).unwrap();
    let label = object!({ "span_id": "0000000000000005", "category": "Language-only" });
    let trace_label = object!({ "trace_id": TRACE, "expected": "fail", "spans": [label] });
    std::fs::write(&labels, object!({ "traces": [trace_label] }).to_string()).unwrap();
    let (traces, labels) = (text(&traces), text(&labels));
    let args = ["--traces", traces, "--labels", labels, "--config", text(&config), "--output", "json"];
    let report = json(&[&["labels"][..], &args].concat());
    // The trace on its root and the inner agent fail, and should; the outer agent by itself passes, and should.
    let consistency = &report["metrics"]["gpa.logical_consistency"];
    let counts = ["tp", "fp", "fn", "tn"].map(|key| consistency[key].as_u64().unwrap());
    assert_eq!(counts, [2, 0, 0, 1], "{consistency}");
    // Completeness is of each agent with everything beneath it.
    let completeness = &report["metrics"]["completeness"];
    let counts = ["tp", "fp", "fn", "tn"].map(|key| completeness[key].as_u64().unwrap());
    assert_eq!(counts, [2, 0, 0, 0], "{completeness}");
    let thresholds = json(&[&["thresholds"][..], &args].concat());
    assert_eq!(thresholds["gpa.logical_consistency"]["best"]["f1"], 1.0, "{thresholds}");
}
