//! A checklist from end to end: a run of a real framework, a cross-encoder that orders its record, a
//! judge that looks for proof, another one for questions about code, and what is written of it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::model;

/// The judge's answer about a record: it quotes the page only if the page is first.
fn perceived(prompt: &str) -> Value {
    let pieces = prompt.find("| piece ").unwrap();
    let page = prompt[pieces..].find("4806 m").map(|at| pieces + at);
    let passages: Vec<Value> = page
        .map(|at| {
            let label = prompt[..at].rfind("| piece ").unwrap() + "| piece ".len();
            let piece = prompt[label..].split(',').next().unwrap();
            json!({ "piece": piece, "quote": "Mount Elbrus: 5642 m. Mont Blanc: 4806 m." })
        })
        .into_iter()
        .collect();
    let sufficient = if passages.is_empty() { "no" } else { "yes" };
    json!({ "thought": "t", "class": "coding", "passages": passages, "final_answer": "yes", "sufficient": sufficient })
}

#[test]
fn the_judge_of_the_class_answers_search_proof_and_question() {
    let folder = tempfile::tempdir().unwrap();
    let (ranked, queries) = mpsc::channel();
    let cross = model::rank(move |query, text| {
        ranked.send(query.to_owned()).unwrap();
        if text.contains("4806 m") { 4.0 } else { -4.0 }
    });
    let main = model::serve(|form, prompt| {
        assert_eq!(form, "perceive", "it answers nothing itself");
        perceived(prompt)
    });
    let coder = model::serve(|form, prompt| {
        assert_eq!(form, "checked");
        assert!(prompt.contains("Mount Elbrus: 5642 m. Mont Blanc: 4806 m."), "{prompt}");
        json!({ "reason": "5642 - 4806 is 836", "tool": "none", "input": "", "answer": "no" })
    });
    let question = "Is the computed difference right?";
    let config = json!({
        "judges": {
            "main": { "endpoint": main, "model": "main" },
            "coder": { "endpoint": coder, "model": "coder" },
            "cross": { "endpoint": cross, "model": "cross", "dialect": "rerank" },
        },
        "verdict": { "metrics": { "checklist": {
            "judges": ["main"], "rerank": "cross", "by_class": { "coding": ["coder"] }, "keep": 1,
            "fixed": [{ "items": [{ "question": question }] }],
        } } },
    });
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, config.to_string()).unwrap();
    let run = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("demo/vercelai-e");
    let output = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
        .args(["eval", "--output", "json", "--config"])
        .args([&path, &run])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let queries: Vec<String> = queries.try_iter().collect();
    assert!(!queries.is_empty() && queries.iter().all(|query| query.contains(question)), "{queries:?}");
    let trace: Value = serde_json::from_slice(&output.stdout).unwrap();
    let spans = trace["spans"].as_array().unwrap();
    let all: Vec<&Value> = spans.iter().flat_map(|span| span["measurements"].as_array().unwrap()).collect();
    let verdict = all.iter().find(|m| m["metric"] == "checklist.verdict").unwrap();
    assert_eq!((&verdict["result"], &verdict["label"]), (&json!("fail"), &json!("no")), "{verdict:#}");
    assert!(verdict["judge"].as_str().unwrap().starts_with("coder/"), "{verdict:#}");
    let items: Value = serde_json::from_str(verdict["details"]["checklist.items"].as_str().unwrap()).unwrap();
    let one = &items["eval"][0];
    assert_eq!(one["c3_response"]["decision_path"], json!(["proofs+final_answer", "logical", "coding"]));
    let proof = one["proofs"]["proofs"].as_str().unwrap();
    let page = spans.iter().find(|span| proof.contains(span["span_id"].as_str().unwrap()));
    assert_eq!(page.map(|span| &span["kind"]), Some(&json!("tool")), "what the tool returned: {proof}");
}
