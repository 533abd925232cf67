//! `consistency` with a model on loopback whose answers about one of two plans vary.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::binary::run;
use crate::model;

/// A trace in which an agent is asked `query` and writes a plan of one step.
fn trace(id: u8, query: &str) -> Value {
    let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let plan = r#"{"1": {"step": "T2S([], 'Fetch the calls.')", "depends_on": []}}"#;
    let span = |span: u8, parent: &str, attributes: Value| {
        json!({
            "traceId": format!("{id:032x}"), "spanId": format!("{span:016x}"), "parentSpanId": parent,
            "name": "step", "kind": 1, "startTimeUnixNano": format!("170000000{span}000000000"),
            "endTimeUnixNano": "1700000009000000000", "attributes": attributes,
        })
    };
    let agent = json!([text("openinference.span.kind", "AGENT"), text("input.value", query)]);
    let model = json!([
        text("openinference.span.kind", "LLM"),
        text("llm.input_messages.0.message.role", "user"),
        text("llm.input_messages.0.message.content", query),
        text("llm.output_messages.0.message.role", "assistant"),
        text("llm.output_messages.0.message.content", plan),
    ]);
    let spans = [span(1, "", agent), span(2, "0000000000000001", model)];
    json!({ "resourceSpans": [{ "scopeSpans": [{ "scope": {}, "spans": spans }] }] })
}

/// A model whose scores of plans about refunds alternate and of plans about the weather are constant. Its scores
/// of completeness alternate too.
fn inconsistent_model() -> String {
    let asked_about_refunds = AtomicUsize::new(0);
    let asked_about_all = AtomicUsize::new(0);
    model::serve(move |form, prompt| match form {
        "plan_adherence" if prompt.contains("refund") => {
            let times = asked_about_refunds.fetch_add(1, Ordering::Relaxed);
            json!({ "rationale": "half of it", "score": times % 2 })
        }
        "plan_adherence" => json!({ "rationale": "all of it", "score": 2 }),
        "completeness" => {
            let times = asked_about_all.fetch_add(1, Ordering::Relaxed);
            json!({ "rationale": format!("part {times} was answered"), "score": 4 + times % 2, "findings": [] })
        }
        _ => json!({ "rationale": "fine", "wrong": [] }),
    })
}

#[test]
fn runs_are_independent_and_their_spread_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| -> String {
        let path: PathBuf = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let traces =
        [trace(1, "What are customers of refund calls unhappy about?"), trace(2, "How is the weather?")];
    let traces = file("traces.jsonl", traces.map(|t| t.to_string()).join("\n"));
    let config = json!({
        "judges": { "main": { "endpoint": inconsistent_model(), "model": "m" } },
        "verdict": { "metrics": {
            "plan": { "enabled": true, "judges": ["rules", "main"] },
            "completeness": { "judges": ["main"] },
        } },
    });
    let config = file("config.yaml", config.to_string());
    let output = run(&["consistency", &traces, "--runs", "4", "--config", &config, "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let adherence = &printed["metrics"]["plan.query_adherence"];
    assert_eq!((&adherence["places"], &adherence["ratings"]), (&json!(2), &json!(8)), "{printed}");
    // 0, 1/2, 0, 1/2 and four times 1: deviations of sqrt(1/12) and 0.
    let mean = adherence["mean_standard_deviation"].as_f64().unwrap();
    assert!((mean - (1.0f64 / 12.0).sqrt() / 2.0).abs() < 1e-9, "{printed}");
    assert!(
        adherence["alpha_interval"].as_f64().is_some_and(|alpha| alpha > 0.5 && alpha < 1.0),
        "{printed}"
    );
    let steady = &printed["metrics"]["plan.tool_prompt_alignment"];
    assert_eq!((&steady["alpha_interval"], &steady["mean_standard_deviation"]), (&Value::Null, &json!(0.0)));
    let holistic = &printed["metrics"]["completeness"];
    assert_eq!((&holistic["places"], &holistic["ratings"]), (&json!(2), &json!(8)), "{printed}");
    // Four of eight say 4 and four say 5, whichever trace they are about: no agreement beyond chance.
    assert!(holistic["alpha_ordinal"].as_f64().is_some_and(|alpha| alpha < 0.2), "{printed}");
    let similarity = holistic["rationale_similarity_lexical"].as_f64().unwrap();
    // Of four words three are in all eight rationales (rarity 1) and one in one alone: ln(9/2) + 1.
    let number = 4.5f64.ln() + 1.0;
    assert!((similarity - 3.0 / (3.0 + number * number)).abs() < 1e-9, "{printed}");
    assert!(printed["metrics"]["plan.format"].is_null(), "what rules answer is left out: {printed}");
    let table = run(&["consistency", &traces, "--runs", "2", "--config", &config]);
    let (table, warned) = (String::from_utf8_lossy(&table.stdout), String::from_utf8_lossy(&table.stderr));
    assert!(table.contains("plan.query_adherence") && table.contains("lexical (TF-IDF)"), "{table}");
    assert!(warned.contains("temperature 0: main;"), "the default with one sample: {warned}");
    assert_eq!(printed["temperature_0"], json!(["main"]));
}

#[test]
fn an_embedding_endpoint_compares_rationales_by_their_meaning() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| -> String {
        let path: PathBuf = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let trace = file("trace.json", trace(1, "What are customers of refund calls unhappy about?").to_string());
    // Of three rationales two have the same direction and one is at a right angle to them.
    let vectors = |text: &str| if text.contains("part 1 ") { vec![0.0, 2.0] } else { vec![3.0, 0.0] };
    let config = |more: Value| {
        let mut judges = json!({
            "main": { "endpoint": inconsistent_model(), "model": "m", "temperature": 0.5 },
            "meaning": { "endpoint": model::embed(vectors), "model": "e", "dialect": "embeddings" },
        });
        judges.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let metrics = json!({ "completeness": { "judges": ["main"] } });
        file("config.yaml", json!({ "judges": judges, "verdict": { "metrics": metrics } }).to_string())
    };
    let one = config(json!({}));
    let output = run(&["consistency", &trace, "--runs", "3", "--config", &one, "--output", "json"]);
    let warned = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !warned.contains("temperature"), "{warned}");
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let completeness = &printed["metrics"]["completeness"];
    let similarity = completeness["rationale_similarity_embedding"].as_f64().unwrap();
    assert!((similarity - 1.0 / 3.0).abs() < 1e-9, "{printed}");
    assert!(
        completeness["rationale_similarity_lexical"].as_f64().is_some_and(|lexical| lexical > similarity),
        "{printed}"
    );
    assert_eq!(printed["likeness"], "by embeddings of judge 'meaning'");
    let second = json!({ "endpoint": "http://127.0.0.1:9/v1", "model": "e", "dialect": "embeddings" });
    let two = config(json!({ "second": second }));
    for (more, expected) in [
        (vec![], "choose one with --embeddings"),
        (vec!["--embeddings", "main"], "is not of dialect"),
        (vec!["--embeddings", "absent"], "'absent' is not defined"),
    ] {
        let output = run(&[&["consistency", &trace, "--config", &two][..], &more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected), "{more:?}");
    }
}

#[test]
fn consistency_without_a_judge_exits_2() {
    let output = run(&["consistency", "-"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no metric names a judge"));
}

#[test]
fn eval_and_consistency_report_the_same_fault_alike() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| -> String {
        let path: PathBuf = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let input = file("trace.json", trace(1, "Where is my refund?").to_string());
    let judges = "judges: { main: { endpoint: 'http://127.0.0.1:9/v1', model: m } }";
    let tasks = "path: { enabled: true, tasks: [absent.yaml] }";
    let config = file("c.yaml", format!("verdict: {{ metrics: {{ judges: [main], {tasks} }} }}\n{judges}"));
    let errors = ["eval", "consistency"].map(|command| {
        let output = run(&[command, &input, "--config", &config]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        String::from_utf8(output.stderr).unwrap()
    });
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].contains("verdict.metrics.path.tasks: "), "{}", errors[0]);
}
