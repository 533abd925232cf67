//! The output and the exit codes of `plan` on the plans of paper 004, and what `compare` and measured traces have in
//! common with it.

mod compared;
mod traces;

use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};

use crate::binary::{run, write_file};
use crate::model;

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

fn contact_centre_tools() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config/tools/contact-centre.yaml");
    path.to_str().unwrap().to_owned()
}

fn stdout_text(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

#[test]
fn plan_check_prints_layout_and_faults_and_exits_accordingly() {
    let folder = tempfile::tempdir().unwrap();
    let (good, tools) = (write_file(&folder, "plan.json", LISTING_1), contact_centre_tools());
    assert_eq!(run(&["validate", "--config", &tools]).status.code(), Some(0));
    let output = run(&["plan", "check", &good, "--tools", &tools]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout_text(&output).starts_with("6 steps, 4 hops, 2 wide\n"), "{}", stdout_text(&output));
    let bad = write_file(&folder, "bad.json", &LISTING_1.replace("[4,5]", "[4,9]").replace("RAG(", "WEB("));
    let output = run(&["plan", "check", &bad, "--tools", &tools]);
    assert_eq!(output.status.code(), Some(1));
    for part in [
        "step 6: depends on step 9, which does not exist [dependencies]",
        "step 6: uses (5) and does not depend on step 5 [dependencies]",
        "step 6: depends on step 9 and has no placeholder (9) [format]",
        "step 5: does not contribute to the last step [redundancy]",
        "step 2: there is no tool \"WEB\" [tool_prompt_alignment]",
    ] {
        assert!(stdout_text(&output).contains(part), "no {part:?} in\n{}", stdout_text(&output));
    }
    assert_eq!(run(&["plan", "check", "/nowhere.json"]).status.code(), Some(2));
}

#[test]
fn plan_score_prints_metrics_rating_and_unmeasured_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let best = write_file(&folder, "best.json", LISTING_1);
    let worse =
        write_file(&folder, "plan.json", &LISTING_1.replace("\"depends_on\": [2]", "\"depends_on\": [1]"));
    let output = run(&[
        "plan",
        "score",
        &worse,
        "--reference",
        &best,
        "--tools",
        &contact_centre_tools(),
        "-o",
        "json",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report_json: Value = serde_json::from_str(stdout_text(&output)).unwrap();
    assert_eq!(report_json["comparison"]["rating"], "good");
    assert_eq!(report_json["comparison"]["nearly"], json!([[3, 3]]));
    assert_eq!(report_json["metrics"]["query_adherence"], Value::Null);
    assert_eq!(report_json["metrics"]["tool_usage_completeness"], 1.0);
    assert_eq!(report_json["metrics"]["format"], json!(5.0 / 6.0), "no placeholder (1)");
    let table = run(&["plan", "score", &worse, "--reference", &best]);
    assert!(
        stdout_text(&table).contains("rating                             good"),
        "{}",
        stdout_text(&table)
    );
    assert!(stdout_text(&table).contains("not measured"), "{}", stdout_text(&table));
}

/// A plan of two steps: a question `first` to a tool, and a summary of its result.
fn two_steps(first: &str) -> String {
    json!({ "1": { "step": format!("RAG([], {first:?})"), "depends_on": [] },
            "2": { "step": "LLM(\"For (query): sum up (1)\")", "depends_on": [1] } })
    .to_string()
}

#[test]
fn a_folder_of_plans_gives_the_papers_tables() {
    let folder = tempfile::tempdir().unwrap();
    let plans = folder.path().join("plans");
    std::fs::create_dir(&plans).unwrap();
    let write = |name: &str, text: &str| std::fs::write(plans.join(name), text).unwrap();
    let object = |plan: &str, more: Value| {
        let mut object = json!({ "query": QUERY, "plan": plan, "reference": LISTING_1, "kind": "compound" });
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object.to_string()
    };
    let worse = LISTING_1.replace("\"depends_on\": [2]", "\"depends_on\": [1]");
    let tags = json!({ "1": ["NO_CHANGE"], "2": ["COMPLEX_PROMPT"] });
    write("a.json", &object(LISTING_1, json!({ "before": worse, "rating": "extremely_good", "tags": tags })));
    let two = [
        object(&worse, json!({ "rating": "acceptable", "planner": "small" })),
        object("{\"1\": {", json!({})),
    ];
    write("b.jsonl", &two.join("\n"));
    write("ignored.txt", "no plan");
    let plans = plans.to_str().unwrap();
    let output = run(&["plan", "score", plans, "--tools", &contact_centre_tools(), "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("tags of 1 plans are not compared: they need --judge")
    );
    let report_json: Value = serde_json::from_str(stdout_text(&output)).unwrap();
    let all = &report_json["tiers"][0];
    assert_eq!(
        (&all["by"], &all["after"]["plans"], &all["before"]["plans"]),
        (&json!("all"), &json!(3), &json!(1))
    );
    assert_eq!(all["after"]["counts"]["extremely_good"], 1);
    assert_eq!((&all["after"]["a_plus"], &all["after"]["a"]), (&json!(1.0 / 3.0), &json!(2.0 / 3.0)));
    assert_eq!(all["before"]["a_plus"], 0.0);
    let groups: Vec<String> = report_json["tiers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| format!("{} {}", g["by"], g["group"]))
        .collect();
    assert_eq!(
        groups,
        [
            r#""all" "all""#,
            r#""steps" "5-15""#,
            r#""hops" "3+""#,
            r#""kind" "compound""#,
            r#""planner" "small""#
        ]
    );
    assert_eq!(report_json["rating_agreement"]["items"], 2);
    assert_eq!(
        (&report_json["rating_agreement"]["f1"], &report_json["tag_agreement"]),
        (&json!(1.0 / 3.0), &Value::Null)
    );
    let table = run(&["plan", "score", plans, "--tools", &contact_centre_tools()]);
    for line in ["3 plans\n", "kind compound", "tiers and people (2)", "macro average"] {
        assert!(stdout_text(&table).contains(line), "no {line:?} in\n{}", stdout_text(&table));
    }
    let endpoint = model::serve(|form, _| match form {
        "plan_step_check" => json!({ "findings": [] }),
        "plan_adherence" => json!({ "rationale": "so", "score": 2 }),
        "plan_pairs" => json!({ "pairs": [] }),
        _ => json!({ "rationale": "so", "wrong": [] }),
    });
    let judges = json!({ "judges": { "main": { "endpoint": endpoint, "model": "m" } } });
    let judges = write_file(&folder, "judges.yaml", &judges.to_string());
    let judged = run(&["plan", "score", plans, "--judge", "main", "-c", &judges, "-o", "json"]);
    assert_eq!(judged.status.code(), Some(0), "{}", String::from_utf8_lossy(&judged.stderr));
    let judged: Value = serde_json::from_str(stdout_text(&judged)).unwrap();
    let no_change = &judged["tag_agreement"]["labels"][5];
    assert_eq!(
        (&no_change["label"], &no_change["people"], &no_change["judge"]),
        (&json!("NO_CHANGE"), &json!(1), &json!(2))
    );
    assert_eq!(judged["means"][7]["plans"], 3);
    assert_eq!(run(&["plan", "score", folder.path().to_str().unwrap()]).status.code(), Some(2), "no plans");
}

#[test]
fn pairs_of_steps_that_rules_cannot_tell_are_unsure_until_a_judge_or_embeddings_decide() {
    let folder = tempfile::tempdir().unwrap();
    let plan = write_file(&folder, "plan.json", &two_steps("What are customers most unhappy about?"));
    let best = write_file(&folder, "best.json", &two_steps("What are the main complaints of customers?"));
    let score = ["plan", "score", &plan, "--reference", &best, "--query", QUERY];
    let table = run(&score);
    assert!(
        stdout_text(&table).contains("unsure (plan=reference)  1=1 2=2: with them F1 1.000, extremely good"),
        "{}",
        stdout_text(&table)
    );
    let judged = |same: &'static str, cosine: Option<f64>| {
        let main = model::serve(move |form, prompt| match form {
            "plan_pairs" => {
                assert!(
                    prompt.contains(
                        "A: What are customers most unhappy about?\nB: What are the main complaints"
                    ),
                    "{prompt}"
                );
                json!({ "pairs": [{ "reason": "r", "pair": 1, "same": same }] })
            }
            "plan_adherence" => json!({ "rationale": "so", "score": 2 }),
            _ => json!({ "rationale": "so", "wrong": [] }),
        });
        let mut config = json!({ "judges": { "main": { "endpoint": main, "model": "m" } } });
        if let Some(cosine) = cosine {
            let endpoint = model::embed(move |text| match text.contains("unhappy") {
                true => vec![1.0, 0.0],
                false => vec![cosine, (1.0 - cosine * cosine).sqrt()],
            });
            config["judges"]["vectors"] =
                json!({ "endpoint": endpoint, "model": "v", "dialect": "embeddings" });
            config["verdict"] = json!({ "metrics": { "plan": { "matching": { "embeddings": "vectors" } } } });
        }
        let config = write_file(&folder, "judges.yaml", &config.to_string());
        let output = run(&[&score[..], &["--judge", "main", "-c", &config, "-o", "json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let report_json: Value = serde_json::from_str(stdout_text(&output)).unwrap();
        (report_json["comparison"]["f1"].clone(), report_json["comparison"]["unsure"].clone())
    };
    assert_eq!(judged("yes", None), (json!(1.0), json!([])));
    assert_eq!(judged("no", None), (json!(0.0), json!([])));
    assert_eq!(judged("no", Some(0.95)), (json!(1.0), json!([])), "embeddings decide above their cut");
    assert_eq!(judged("yes", Some(0.3)), (json!(0.0), json!([])), "and below");
    assert_eq!(judged("yes", Some(0.8)), (json!(1.0), json!([])), "judges decide between");
}

#[test]
fn weights_are_learnt_from_metrics_and_from_plans() {
    let folder = tempfile::tempdir().unwrap();
    let entry = |alignment: f64, format: f64| json!({ "metrics": { "tool_prompt_alignment": alignment, "format": format, "dependencies": 1.0 } });
    let misled = json!({ "plans": [entry(0.2, 1.0), entry(0.5, 0.6), entry(0.8, 0.2)] }).to_string();
    let broken = LISTING_1.replace("[4,5]", "[9]");
    let plans = json!({ "plans": [{ "plan": broken }, { "plan": LISTING_1 }] }).to_string();
    let ordered = write_file(&folder, "ordered.jsonl", &format!("{misled}\n\n{plans}\n"));
    let output = run(&["plan", "learn-weights", &ordered, "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let learnt: Value = serde_json::from_str(stdout_text(&output)).unwrap();
    assert_eq!((&learnt["groups"], &learnt["pairs"]), (&json!(2), &json!(4)));
    assert_eq!((&learnt["nominal_agreement"], &learnt["agreement"]), (&json!(0.25), &json!(1.0)));
    assert_eq!(learnt["sensitivity"]["draws"].as_array().unwrap().len(), 10);
    // The table is a configuration that can be used as it is.
    let table = run(&["plan", "learn-weights", &ordered]);
    let config = write_file(&folder, "weights.yaml", stdout_text(&table));
    assert_eq!(run(&["validate", "--config", &config]).status.code(), Some(0), "{}", stdout_text(&table));
    let nothing = write_file(&folder, "nothing.jsonl", "{\"plans\": []}\n");
    assert_eq!(run(&["plan", "learn-weights", &nothing]).status.code(), Some(2));
}

const QUERY: &str = "What are customers most unhappy about in refund-related calls longer than 30 minutes?";
const REFUND: &str = r#"{
1: {"step": T2S([], "Fetch interaction_ids of interactions where the call driver is related to refunds and duration is longer than 30 minutes."), "depends_on": []},
2: {"step": RAG((1), "What are customers most unhappy about?"), "depends_on": [1]}
}"#;

/// The model's answer, by the form that is requested. Only step 2 has a fault, and only in the first pass.
fn model_answer(form: &str, prompt: &str) -> Value {
    let ask = |tool: &str| json!({ "tool": tool, "inputs": [1], "prompt": "What are customers most unhappy about?", "depends_on": [1] });
    match form {
        "plan_step_check" => {
            let alone = prompt.contains("step 2: RAG") && !prompt.contains("Combine");
            let tag = if alone { "MULTI_TOOL_PROMPT" } else { "NO_CHANGE" };
            json!({ "findings": [{ "reason": "call drivers tell it too", "tag": tag }] })
        }
        "plan_revision" => json!({
            "change_0": "asks T2S the same",
            "change_1": "puts both together",
            "steps": [
                { "tool": "T2S", "inputs": [], "prompt": "Fetch interaction_ids of interactions where the call driver is related to refunds and duration is longer than 30 minutes.", "depends_on": [] },
                ask("RAG"),
                ask("T2S"),
                { "tool": "LLM", "inputs": [], "prompt": "Combine the following 2 outputs to answer the following query (query):First:(2)Second:(3)", "depends_on": [2, 3] },
            ],
        }),
        "plan_steps" => json!({ "rationale": "fine", "wrong": [] }),
        "plan_adherence" => json!({ "rationale": "one source of two", "score": 1 }),
        "compared_responses" => json!({
            "rationale": "the second is beside the point",
            "R1": { "validity": 1, "consistency": 1, "completeness": 6, "redundancy": 7 },
            "R2": { "validity": 1, "consistency": 0, "completeness": 7, "redundancy": 7 },
            "R3": { "validity": 1, "consistency": 1, "completeness": 6, "redundancy": 7 },
        }),
        other => panic!("asked for {other}"),
    }
}

/// Two configuration files: the first asks the model and records its answers, the second replays the recorded answers.
fn asking_and_replaying(folder: &tempfile::TempDir) -> (String, String) {
    let record = folder.path().join("answers.jsonl");
    let record = record.to_str().unwrap();
    let asking = json!({ "judges": { "main": { "endpoint": model::serve(model_answer), "model": "m", "record": record } } });
    let replaying = json!({ "judges": { "main": { "replay": record } } });
    (
        write_file(folder, "asking.yaml", &asking.to_string()),
        write_file(folder, "replaying.yaml", &replaying.to_string()),
    )
}

#[test]
fn a_plan_is_improved_and_its_lineage_can_be_counted() {
    let folder = tempfile::tempdir().unwrap();
    let plan = write_file(&folder, "plan.txt", &format!("# Query: {QUERY}\n{REFUND}"));
    let (asking, replaying) = asking_and_replaying(&folder);
    let lineage = folder.path().join("lineage.json");
    let lineage = lineage.to_str().unwrap();
    let args = [
        "plan",
        "improve",
        &plan,
        "--judge",
        "main",
        "--tools",
        &contact_centre_tools(),
        "--lineage",
        lineage,
        "-c",
    ];
    let asked = run(&[&args[..], &[&asking]].concat());
    assert_eq!(asked.status.code(), Some(0), "{}", String::from_utf8_lossy(&asked.stderr));
    let better = write_file(&folder, "better.json", stdout_text(&asked));
    let checked = run(&["plan", "check", &better, "--tools", &contact_centre_tools()]);
    assert!(stdout_text(&checked).starts_with("4 steps, 2 hops, 2 wide\n"), "{}", stdout_text(&checked));
    let written: Value = serde_json::from_str(&std::fs::read_to_string(lineage).unwrap()).unwrap();
    assert_eq!((&written["end"], &written["revisions_per_pass"]), (&json!("unchanged"), &json!([1, 0])));
    assert_eq!(written["revisions"][0]["shape"]["hops"], 1);
    assert_eq!(written["revisions"][1]["tags"][0]["tag"], "MULTI_TOOL_PROMPT");
    let replayed = run(&[&args[..], &[&replaying]].concat());
    assert_eq!(stdout_text(&replayed), stdout_text(&asked), "{}", String::from_utf8_lossy(&replayed.stderr));
    let learnt =
        run(&["plan", "learn-weights", lineage, lineage, "--tools", &contact_centre_tools(), "-o", "json"]);
    assert_eq!(learnt.status.code(), Some(0), "{}", String::from_utf8_lossy(&learnt.stderr));
    let learnt: Value = serde_json::from_str(stdout_text(&learnt)).unwrap();
    assert_eq!((&learnt["groups"], &learnt["pairs"]), (&json!(2), &json!(2)));
    let completeness = &learnt["metrics"][6];
    assert_eq!(
        (&completeness["metric"], &completeness["strict"]),
        (&json!("tool_usage_completeness"), &json!(1.0))
    );
    let stats = run(&["plan", "stats", lineage, lineage]);
    let stats: Value = serde_json::from_str(stdout_text(&stats)).unwrap();
    assert_eq!((&stats["lineages"], &stats["hops"]), (&json!(2), &json!({ "2": 2 })));
}

#[test]
fn a_score_with_a_judge_uses_every_metric_without_reference() {
    let folder = tempfile::tempdir().unwrap();
    let plan = write_file(&folder, "plan.txt", REFUND);
    let (asking, _) = asking_and_replaying(&folder);
    let args = ["plan", "score", &plan, "--judge", "main", "-c", &asking, "-o", "json"];
    assert_eq!(run(&args).status.code(), Some(2), "which query?");
    let output = run(&[&args[..], &["--query", QUERY]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report_json: Value = serde_json::from_str(stdout_text(&output)).unwrap();
    assert_eq!(report_json["metrics"]["query_adherence"], 0.5);
    assert_eq!(report_json["metrics"]["tool_usage_completeness"], Value::Null);
    assert_eq!(report_json["score"], json!(20.0 + 20.0 + 15.0 + 7.5 + 30.0));
    let unknown = run(&["plan", "score", &plan, "--judge", "other", "--query", QUERY, "-c", &asking]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("defined are main"));
}

#[test]
fn redacted_text_is_sent_by_no_command() {
    let folder = tempfile::tempdir().unwrap();
    let (sender, prompts) = std::sync::mpsc::channel();
    let endpoint = model::serve(move |form, prompt| {
        sender.send(prompt.to_owned()).unwrap();
        model_answer(form, prompt)
    });
    let config = json!({ "judges": { "main": { "endpoint": endpoint, "model": "m" } } });
    let config = write_file(&folder, "judges.yaml", &config.to_string());
    let address = "ann@example.com";
    let plan = write_file(&folder, "plan.txt", &REFUND.replace("interaction_ids", address));
    let answer = write_file(&folder, "answer.txt", &format!("Ask {address}."));
    let query = format!("What does {address} say?");
    let judged = ["--query", &query, "--judge", "main", "-c", &config];
    for args in [
        &["plan", "score", &plan][..],
        &["plan", "improve", &plan, "--max-passes", "1"],
        &["compare", &answer, &answer, &answer],
    ] {
        let output = run(&[args, &judged[..]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
        let mut asked = 0;
        for prompt in prompts.try_iter() {
            assert!(!prompt.contains(address) && prompt.contains("[redacted: e-mail]"), "{args:?}: {prompt}");
            asked += 1;
        }
        assert!(asked > 0, "{args:?} asks");
        assert_eq!(stderr.contains("removed text from the plan"), args.contains(&"improve"), "{stderr}");
    }
}
