//! A checklist from end to end: a run of a real framework, a cross-encoder that orders its record, a
//! judge that looks for proof, another one for questions about code, and what is written of it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;

use otel_verdict::receive::Offer;
use serde_json::{Value, json};
use verdict_otlp::Signal;

use crate::model;
use crate::support::Process;

/// The judge's answer about a record: it quotes the page only if the page is first.
fn perceive_answer(prompt: &str) -> Value {
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
        perceive_answer(prompt)
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

/// The checklist of the demo's run, with the judges and settings of `config`.
fn checklist_of_the_demo(config: &Value) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, config.to_string()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
        .args(["eval", "--output", "json", "--config"])
        .args([&path, &PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("demo/vercelai-e")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let trace: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut all =
        trace["spans"].as_array().unwrap().iter().flat_map(|span| span["measurements"].as_array().unwrap());
    all.find(|m| m["metric"] == "checklist.verdict").unwrap().clone()
}

#[test]
fn an_honest_judge_leaves_a_question_of_fact_to_the_asset() {
    let main = model::serve(|form, prompt| match form {
        // The record does not hold a fact of the world.
        "perceive" => {
            json!({ "thought": "t", "class": "factual", "passages": [], "final_answer": "yes", "sufficient": "no" })
        }
        "sourced" => {
            assert!(
                prompt.contains("source: atlas]\nMount Elbrus is 836 metres higher than Mont Blanc."),
                "{prompt}"
            );
            let cited = json!([{ "source": "atlas", "quote": "836 metres higher" }]);
            json!({ "reason": "the atlas has it", "cited": cited, "tool": "none", "input": "", "answer": "yes" })
        }
        other => panic!("nothing else is asked: {other}"),
    });
    let verdict = checklist_of_the_demo(&json!({
        "judges": { "main": { "endpoint": main, "model": "main" } },
        "verdict": { "metrics": { "checklist": {
            "judges": ["main"],
            "fixed": [{ "items": [{ "question": "Is the difference of the heights 836 metres?" }] }],
            "assets": [{ "name": "atlas", "text": "Mount Elbrus is 836 metres higher than Mont Blanc." }],
        } } },
    }));
    assert_eq!((&verdict["result"], &verdict["label"]), (&json!("pass"), &json!("yes")), "{verdict:#}");
    let items: Value = serde_json::from_str(verdict["details"]["checklist.items"].as_str().unwrap()).unwrap();
    assert_eq!(items["eval"][0]["proofs"]["proofs"], "source atlas: 836 metres higher");
}

#[test]
fn instructions_and_rubrics_reach_the_prompts_of_checklists() {
    let (sender, systems) = mpsc::channel();
    let main = model::serve_requests(move |form, request| {
        sender
            .send((form.to_owned(), request["messages"][0]["content"].as_str().unwrap().to_owned()))
            .unwrap();
        match form {
            "perceive" => {
                json!({ "thought": "t", "class": "reasoning", "passages": [], "final_answer": "yes", "sufficient": "yes" })
            }
            _ => json!({ "reason": "r", "tool": "none", "input": "", "answer": "yes" }),
        }
    });
    let verdict = checklist_of_the_demo(&json!({
        "judges": { "main": { "endpoint": main, "model": "main" } },
        "verdict": {
            "rubrics": { "checklist.answer": "Answer as the house rules say." },
            "instructions": [{ "metrics": ["checklist.*"], "text": "Heights are in metres.",
                               "examples": [{ "evidence": "836 ft", "problem": "the wrong unit" }] }],
            "metrics": { "checklist": { "judges": ["main"], "fixed": [{ "items": [{ "question": "Is it in metres?" }] }] } },
        },
    }));
    assert_eq!(verdict["label"], "yes", "{verdict:#}");
    for (form, system) in systems.try_iter() {
        assert!(system.contains("Heights are in metres.") && system.contains("836 ft"), "{form}: {system}");
        assert_eq!(system.starts_with("Answer as the house rules say."), form == "checked", "{system}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checklist_of_a_task_is_asked_for_while_its_trace_is_open() {
    let (sender, prompts) = mpsc::channel();
    let main = model::serve(move |form, prompt| {
        let reviewed = prompt.contains("Is the height named?");
        // The receiver is dropped after the first two questions.
        let _ = sender.send((form.to_owned(), prompt.contains("How high is Mont Blanc?"), reviewed));
        match reviewed {
            false => json!({ "thought": "t", "questions": ["Is the height named?"] }),
            true => json!({ "thought": "t", "drop": [] }),
        }
    });
    let config = json!({
        "judges": { "main": { "endpoint": main, "model": "main" } },
        "verdict": {
            "close": { "quiet": "60s" },
            "metrics": { "checklist": { "judges": ["main"], "generate": true } },
        },
    });
    let process = Process::start(&config.to_string()).await;
    // The span of the agent comes last, as SDKs send it.
    let attribute = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let asked =
        json!([{ "role": "user", "parts": [{ "type": "text", "content": "How high is Mont Blanc?" }] }]);
    let span = json!({
        "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "00f067aa0ba902b8",
        "parentSpanId": "00f067aa0ba902b7", "name": "chat m",
        "startTimeUnixNano": "1000000000", "endTimeUnixNano": "2000000000",
        "attributes": [
            attribute("gen_ai.operation.name", "chat"), attribute("gen_ai.request.model", "m"),
            attribute("gen_ai.input.messages", &asked.to_string()),
        ],
    });
    let body = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": [span] }] }] }).to_string();
    let body = verdict_otlp::json::decode(Signal::Traces, body.as_bytes()).unwrap();
    process.client().send(&Offer { signal: Signal::Traces, body }).await;
    // Its questions are made, and reviewed.
    let next = move || [(); 2].map(|()| prompts.recv_timeout(crate::support::MAX_TIME_WITHOUT_PROGRESS));
    let expected_prompt = |reviewed| Ok(("checklist".to_owned(), true, reviewed));
    assert_eq!(
        tokio::task::spawn_blocking(next).await.unwrap(),
        [expected_prompt(false), expected_prompt(true)]
    );
    process.stop().await;
}
