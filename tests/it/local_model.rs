//! Judges against a real model: llama.cpp's server with SmolLM2, as `tests/llama.py` starts it.
//! Its judgements are meaningless; the tests check the form of its answers and the handling of its refusals.
//!
//! Requires a Python with the packages: `OTEL_VERDICT_LLAMA`, or the one that `.ci/run` installs into
//! `target/tools/llama`. Elsewhere the tests print that they are skipped.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use otel_verdict::telemetry::{Telemetry, TextFormat};
use serde_json::json;
use verdict_config::Period;
use verdict_eval::metrics::Unmeasured;
use verdict_eval::questions::{Answer, AnswerForm, Ask, Prompt, Question, QuestionContext, ScoreField};
use verdict_judge::config::Format;
use verdict_judge::{JudgeConfig, JudgeExtensions, Judges, JudgingConfig};
use verdict_otlp::trace::TraceId;

/// The server, which is killed when the value is dropped.
struct Model {
    child: Child,
    url: String,
}

impl Model {
    fn start() -> Option<Model> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let installed = root.join("target/tools/llama/bin/python");
        let python = std::env::var_os("OTEL_VERDICT_LLAMA").map_or(installed, PathBuf::from);
        if !python.exists() {
            println!("skipped: no local model; .ci/run installs one");
            return None;
        }
        let mut child = Command::new(python)
            .arg(root.join("tests/llama.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        assert!(url.starts_with("http://127.0.0.1:"), "the local model did not start: {url:?}");
        Some(Model { child, url: url.trim().to_owned() })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn question(n: usize, user: &str) -> Question {
    let schema = json!({
        "type": "object",
        "properties": {
            "rationale": { "type": "string" },
            "score": { "type": "integer", "enum": [1, 2, 3, 4, 5] },
            "span_id": { "type": "string", "enum": ["00f067aa0ba902b7", "53995c3f42cd8ad8"] },
        },
        "required": ["rationale", "score", "span_id"],
        "additionalProperties": false,
    });
    let score = Some(ScoreField { key: "score", values: vec![1, 2, 3, 4, 5] });
    let system = "You rate whether an answer follows its instruction, from 1 to 5. Give a rationale of \
                  one short sentence, then the score.";
    let prompt = Prompt::new(system, user);
    let form = Arc::new(AnswerForm { name: "verdict", schema, score });
    Question { key: n.to_string(), prompt, form, judges: Vec::new() }
}

async fn ask(judges: &Judges, judge: &str, n: usize, user: &str) -> Answer {
    let trace = TraceId([7; 16]);
    let judges_of = vec![judge.to_owned()];
    let ask = Ask {
        id: n,
        at: 0,
        metric: "instruction_following",
        question: question(n, user),
        judges: judges_of,
        services: Arc::default(),
        context: QuestionContext::default(),
    };
    judges.ask(trace, &ask).await
}

fn assert_fits(answer: &Answer) {
    for opinion in answer.opinions.as_ref().unwrap() {
        let value = &opinion.value;
        assert!(value["rationale"].is_string() && value["span_id"].is_string(), "{value}");
        assert!((1..=5).contains(&value["score"].as_u64().unwrap()), "{value}");
        assert!(opinion.weighted.is_none_or(|score| (1.0..=5.0).contains(&score)), "{opinion:?}");
        assert!(opinion.judge.starts_with("smollm2/"), "{opinion:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_model_answers_in_shape_and_its_refusals_are_understood() {
    let Some(model) = tokio::task::spawn_blocking(Model::start).await.unwrap() else { return };
    let plain = JudgeConfig {
        endpoint: model.url.clone(),
        model: "smollm2".to_owned(),
        max_concurrency: 2,
        max_tokens: 200,
        // A busy machine is slow; the time is not tested.
        timeout: Period::secs(300),
        ..JudgeConfig::default()
    };
    let configs = [
        ("strict", JudgeConfig { logprobs: true, ..plain.clone() }),
        ("sampled", JudgeConfig { samples: 2, ..plain.clone() }),
        ("prose", JudgeConfig { format: Format::Text, max_tokens: 60, ..plain.clone() }),
        ("brief", JudgeConfig { max_tokens: 4, ..plain.clone() }),
        ("wide", JudgeConfig { max_prompt_tokens: 1_000_000, ..plain }),
    ];
    let configs = configs.map(|(name, config)| (name.to_owned(), config)).into();
    let telemetry = Telemetry::new();
    let judges =
        Judges::new(&configs, &JudgingConfig::default(), &telemetry.judge, &JudgeExtensions::default())
            .unwrap();

    let mut weighted = 0;
    for n in 0..3 {
        let answer =
            ask(&judges, "strict", n, &format!("Instruction: count to {n}. Answer: one, two.")).await;
        assert_fits(&answer);
        assert!(answer.usage.tokens > 50, "the server counts: {answer:?}");
        weighted += usize::from(answer.opinions.unwrap()[0].weighted.is_some());
    }
    // A single answer may violate the grammar, not all.
    assert!(weighted > 0, "it gives probabilities");
    let sampled = ask(&judges, "sampled", 10, "Instruction: be polite. Answer: go away.").await;
    assert_fits(&sampled);
    // A sample that is cut at the token limit twice is left out; scripted judges show that both count.
    assert!((1..=2).contains(&sampled.opinions.unwrap().len()));
    // Without the server's grammar an answer may or may not have the form; it is always validated.
    let prose = ask(&judges, "prose", 11, "Instruction: be polite. Answer: good day.").await;
    match &prose.opinions {
        Ok(_) => assert_fits(&prose),
        Err(reason) => assert_eq!(*reason, Unmeasured::JudgeError),
    }
    assert!(prose.usage.tokens > 50);
    let brief = ask(&judges, "brief", 12, "Instruction: be polite. Answer: good day.").await;
    assert_eq!(brief.opinions, Err(Unmeasured::JudgeError), "cut twice");
    let long = ask(&judges, "wide", 13, &"a b c d e f g ".repeat(3000)).await;
    assert_eq!(long.opinions, Err(Unmeasured::JudgeError), "longer than its context");
    let page = telemetry.render(TextFormat::OpenMetrics);
    for wanted in [
        "judge_unusable_answers_total{judge=\"brief\",fault=\"cut\"} 2",
        "judge_requests_total{judge=\"wide\",status=\"http_400\"} 1",
        "judge_questions_total{judge=\"strict\",outcome=\"answered\"} 3",
    ] {
        assert!(page.contains(wanted), "{wanted}\n{page}");
    }
    let sampled = page.lines().filter(|line| line.contains("judge_requests_total{judge=\"sampled\""));
    let requests = sampled.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>();
    assert!(requests >= 2.0, "one for each sample\n{page}");
}

/// A question end to end: composed from a real run, sent, answered by a model, validated, written.
/// The time is bounded: an item without an answer in time is unmeasured, in the same form.
#[tokio::test(flavor = "multi_thread")]
async fn a_checklist_of_a_real_run_is_judged_by_a_real_model() {
    let Some(model) = tokio::task::spawn_blocking(Model::start).await.unwrap() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("judged.yaml");
    let text = format!(
        "judges: {{ main: {{ endpoint: '{}', model: smollm2, max_tokens: 120, timeout: 20s, retries: 0 }} }}\n\
         verdict: {{ metrics: {{ checklist: {{ judges: [main], keep: 2, chunk_tokens: 100, fixed: [{{ items: [\n\
         {{ question: 'Is a height named?' }},\n\
         {{ question: 'Is 836 named?', check: {{ contains: {{ text: '836' }} }} }} ] }}] }} }} }}\n",
        model.url
    );
    std::fs::write(&config, text).unwrap();
    let run = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("demo/strands-c");
    let output = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
        .args(["eval", "--output", "json", "--config"])
        .args([&config, &run])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let trace: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let measured =
        trace["spans"].as_array().unwrap().iter().flat_map(|s| s["measurements"].as_array().unwrap());
    let all: Vec<_> = measured.filter(|m| m["metric"] == "checklist.verdict").collect();
    assert_eq!(all.len(), 1, "one checklist, on the root");
    assert_eq!(all[0]["result"], "fail", "836 is not named, whatever the model says: {:#}", all[0]);
    let items = all[0]["details"]["checklist.items"].as_str().unwrap();
    let items: serde_json::Value = serde_json::from_str(items).unwrap();
    let eval = items["eval"].as_array().unwrap();
    assert_eq!(eval.len(), 2);
    let answer = eval[0]["c3_response"]["answer"].as_str().unwrap();
    assert!(["yes", "no", "unmeasured"].contains(&answer), "{answer}");
    // Both answers of so small a model may be cut at the limit: then the item is unmeasured.
    let answered = all[0]["judge"].as_str().unwrap().starts_with("smollm2/");
    assert!(answered || answer == "unmeasured", "{:#}", all[0]);
    assert_eq!(eval[1]["c3_response"]["answer"], "no");
    assert_eq!(eval[1]["c3_response"]["decision_path"][2], "rules");
}

/// A real model and a plan. Answers are arbitrary within the schema. A question without an answer in time is
/// reported as unanswered.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_scored_and_improved_by_a_real_model() {
    let Some(model) = tokio::task::spawn_blocking(Model::start).await.unwrap() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let config = file(
        "judges.yaml",
        &format!(
            "judges: {{ main: {{ endpoint: '{}', model: smollm2, max_tokens: 80, timeout: 12s, retries: 0 }} }}\n\
             judging: {{ budget: {{ per_trace: {{ tokens: 6000 }} }} }}\n",
            model.url
        ),
    );
    let plan = file(
        "plan.txt",
        "# Query: Why are customers unhappy?\n\
         {1: {\"step\": T2S([], \"Fetch ids of refund calls.\"), \"depends_on\": []},\n\
         2: {\"step\": RAG((1), \"Why are customers unhappy?\"), \"depends_on\": [1]}}",
    );
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_otel-verdict"))
            .args(["plan", arguments[0]])
            .arg(&plan)
            .args(["--judge", "main", "--output", "json", "--config"])
            .arg(&config)
            .args(&arguments[1..])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        (serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap(), stderr)
    };

    let (scored, stderr) = run(&["score"]);
    assert_eq!((&scored["metrics"]["format"], &scored["shape"]["steps"]), (&json!(1.0), &json!(2)));
    for part in ["tool_prompt_alignment", "step_executability", "query_adherence"] {
        let value = &scored["metrics"][part];
        let on_scale = value.as_f64().is_some_and(|value| (0.0..=1.0).contains(&value));
        // A part without an answer is reported and left out.
        assert!(
            on_scale || (value.is_null() && stderr.contains(&format!("{part}: the judge did not answer"))),
            "{value} {stderr}"
        );
    }
    assert!((0.0..=100.0).contains(&scored["score"].as_f64().unwrap()), "format and wiring are always there");

    let (lineage, _) = run(&["improve", "--max-passes", "1"]);
    let revisions = lineage["revisions"].as_array().unwrap();
    assert_eq!(revisions[0]["plan"]["2"]["depends_on"], json!([1]), "the plan that was given comes first");
    assert_eq!(revisions.len() - 1, lineage["revisions_per_pass"][0].as_u64().unwrap() as usize);
    for revision in &revisions[1..] {
        assert!(
            !revision["tags"].as_array().unwrap().is_empty(),
            "nothing changes without a tag: {revision}"
        );
        assert!(revision["shape"]["steps"].as_u64().unwrap() > 0);
    }
    let ends = ["unchanged", "max_passes", "seen_before", "unanswered"];
    assert!(ends.contains(&lineage["end"].as_str().unwrap()), "{lineage}");
}

#[test]
fn a_real_model_answers_the_forms_of_plans_and_checklists() {
    let Some(model) = Model::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let config = write(
        "config.yaml",
        &json!({
            "judges": { "local": { "endpoint": model.url, "model": "smollm2", "max_tokens": 120, "timeout": "300s" } },
            "verdict": { "max_wait": "600s", "metrics": { "checklist": {
                "judges": ["local"], "keep": 1, "chunk_tokens": 100,
                "fixed": [{ "items": [{ "question": "Is a height named?" }] }],
            } } },
        })
        .to_string(),
    );
    let step = |prompt: &str| {
        json!({ "1": { "step": format!("RAG([], {prompt:?})"), "depends_on": [] } }).to_string()
    };
    let plan = write("plan.json", &step("What are customers most unhappy about?"));
    let best = write("best.json", &step("What are the main complaints of customers?"));
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_otel-verdict")).args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let [config, plan, best] = [&config, &plan, &best].map(|path| path.to_str().unwrap());
    let scored = run(&[
        "plan",
        "score",
        plan,
        "--reference",
        best,
        "--query",
        "What are customers unhappy about?",
        "--judge",
        "local",
        "-c",
        config,
        "-o",
        "json",
    ]);
    // The decision of so small a model is arbitrary; the test requires that it decides or leaves the pair unsure.
    let found = &scored["comparison"];
    let pairs = found["matched"].as_array().unwrap().len() + found["unsure"].as_array().unwrap().len();
    assert!(pairs <= 1 && found["f1"].as_f64() <= found["f1_at_most"].as_f64(), "{found}");
    let run_of_the_demo = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("demo/vercelai-e");
    let judged = run(&["eval", run_of_the_demo.to_str().unwrap(), "--output", "json", "--config", config]);
    let spans = judged["spans"].as_array().unwrap().iter();
    let mut all = spans.flat_map(|span| span["measurements"].as_array().unwrap());
    let verdict = all.find(|m| m["metric"] == "checklist.verdict").unwrap();
    assert!(
        ["pass", "fail", "unmeasured"].contains(&verdict["result"].as_str().unwrap())
            && verdict["details"]["checklist.items"].as_str().unwrap().contains("Is a height named?"),
        "{verdict}"
    );
}
