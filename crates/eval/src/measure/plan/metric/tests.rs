//! Measurements of plans in small traces, by rules alone and with a judge's fixed answers.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::*;
use crate::measure::sections::Section;
use crate::measure::testing::{Script, row};
use crate::measure::{Memo, Opinion, Settings, Usage};
use crate::recognise::{AgentTrace, Text};

const TASK: &str = "What are customers most unhappy about?";
const PLAN: &str = r#"{
"1": {"step": "T2S([], \"Fetch ids of long refund calls.\")", "depends_on": []},
"2": {"step": "RAG((1), \"What are customers most unhappy about?\")", "depends_on": [1]}
}"#;
const REFERENCE_PLAN: &str = r#"{
"1": {"step": "T2S([], \"Fetch ids of long refund calls.\")", "depends_on": []},
"2": {"step": "RAG((1), \"What are customers most unhappy about?\")", "depends_on": [1]},
"3": {"step": "T2S((1), \"What are customers most unhappy about?\")", "depends_on": [1]},
"4": {"step": "LLM(\"Combine (2) and (3).\")", "depends_on": [2, 3]}
}"#;

fn trace(plan: &str) -> AgentTrace {
    let mut trace =
        Script::new(TASK).tools(&["T2S"]).says(plan).plan(&["a", "b"]).answers("Waiting.").build();
    trace.agents[0].plans[0].1.text = Text::from(plan);
    trace
}

fn settings(yaml: &str) -> Settings {
    serde_saphyr::from_str(&format!("plan: {{ enabled: true, {yaml} }}")).unwrap()
}

fn settings_with_reference() -> Settings {
    let mut settings = settings("");
    let query = format!("  {}  ", TASK.to_uppercase());
    settings.plan.references =
        vec![super::super::settings::Reference { query, plan: REFERENCE_PLAN.to_owned() }];
    settings
}

fn step(metric: &dyn Metric, trace: &AgentTrace, settings: &Settings, answers: &[Answer]) -> MetricProgress {
    let (span_index, memo) = (trace.agents[0].plans[0].0, Memo::new());
    metric.step(
        &Context {
            row: row("plan.score"),
            trace,
            at: span_index,
            settings,
            memo: &memo,
            rule_measurements: &[],
        },
        answers,
    )
}

fn rule_measurements(plan: &str, settings: &Settings) -> Vec<Measurement> {
    match step(&PlanRules, &trace(plan), settings, &[]) {
        MetricProgress::Done(measurements) => measurements,
        MetricProgress::Ask(_) => panic!("rules do not ask"),
    }
}

fn value_of(all: &[Measurement], metric: &str) -> Result<(Value, bool), Unmeasured> {
    let found = all.iter().find(|m| m.metric == metric).unwrap_or_else(|| panic!("no {metric}"));
    found.outcome.as_ref().map(|m| (m.value.clone(), m.passed)).map_err(|r| *r)
}

fn answer(part: PlanPart, opinions: Result<Vec<Json>, Unmeasured>) -> Answer {
    let opinion = |value| Opinion { value, weighted: None, judge: Arc::from("model/hash") };
    let opinions = opinions.map(|all| all.into_iter().map(opinion).collect());
    Answer { key: part.metric().to_owned(), opinions, usage: Usage::default() }
}

fn wrong_steps(steps: &[usize]) -> Json {
    let list: Vec<Json> = steps.iter().map(|n| json!({ "reason": "it cannot", "step": n })).collect();
    json!({ "rationale": "so", "wrong": list })
}

#[test]
fn plan_without_steps_fails_and_passes_under_no_threshold() {
    // It cannot be parsed.
    let format = |extra: &str| {
        let all = rule_measurements("{ depends_on: [", &settings(extra));
        let found = all.into_iter().find(|m| m.metric == "plan.format").unwrap();
        (found.outcome.map(|measured| measured.passed), found.examined)
    };
    assert_eq!(format(""), (Ok(false), 1));
    assert_eq!(format("threshold: 0.0"), (Err(Unmeasured::NotApplicable), 0));
}

#[test]
fn rules_measure_their_metrics_and_list_them_in_the_score() {
    let all = rule_measurements(PLAN, &settings(""));
    for metric in ["plan.format", "plan.dependencies", "plan.redundancy"] {
        assert_eq!(value_of(&all, metric), Ok((Value::Score(1.0), true)), "{metric}");
    }
    for metric in
        ["plan.tool_prompt_alignment", "plan.query_adherence", "plan.tool_usage_completeness", PLAN_RATING]
    {
        assert_eq!(value_of(&all, metric), Err(Unmeasured::NotApplicable), "{metric}");
    }
    assert_eq!(value_of(&all, PLAN_SCORE), Ok((Value::Score(100.0), true)));
    let score = all.iter().find(|m| m.metric == PLAN_SCORE).unwrap();
    let texts = ["format", "dependencies", "redundancy"].map(str::to_owned).to_vec();
    assert_eq!(score.details[0].value, DetailValue::Texts(texts));
    assert_eq!(score.details[3], Detail { key: "plan.hops", value: DetailValue::Count(1) });
}

#[test]
fn reference_makes_completeness_and_rating_measurable() {
    let all = rule_measurements(PLAN, &settings_with_reference());
    assert_eq!(value_of(&all, "plan.tool_usage_completeness"), Ok((Value::Score(0.5), false)));
    // Two of two steps match two of four: F1 is 2/3.
    assert_eq!(value_of(&all, PLAN_RATING), Ok((Value::Label("acceptable"), false)));
    let all = rule_measurements(REFERENCE_PLAN, &settings_with_reference());
    assert_eq!(value_of(&all, PLAN_RATING), Ok((Value::Label("extremely_good"), true)));
}

#[test]
fn broken_plan_fails_with_its_step_quoted_and_is_not_judged() {
    let all = rule_measurements(&PLAN.replace("(1), ", ""), &settings(""));
    let format = all.iter().find(|m| m.metric == "plan.format").unwrap().outcome.as_ref().unwrap();
    assert_eq!((&format.value, format.passed), (&Value::Score(0.5), false));
    assert_eq!(format.findings[0].quote, "What are customers most unhappy about?");
    assert_eq!(format.findings[0].category, Some(Category::FormattingErrors));
    let cycle = PLAN.replace("[]}", "[2]}");
    for broken in [r#"{"1": {"step": "T2S([], "depends_on": [}"#, &cycle] {
        let all = rule_measurements(broken, &settings(""));
        assert_eq!(value_of(&all, PLAN_SCORE), Ok((Value::Score(0.0), false)), "{broken}");
        assert_eq!(value_of(&all, "plan.query_adherence"), Ok((Value::Score(0.0), false)));
        assert_eq!(step(&PlanJudged, &trace(broken), &settings(""), &[]), MetricProgress::Done(Vec::new()));
    }
}

#[test]
fn plan_in_prose_is_measured_in_part() {
    let without_references = rule_measurements("1. Search\n2. Answer", &settings(""));
    assert_eq!(value_of(&without_references, "plan.redundancy"), Ok((Value::Score(1.0), true)));
    for metric in ["plan.format", "plan.dependencies", "plan.step_executability", PLAN_SCORE, PLAN_RATING] {
        assert_eq!(value_of(&without_references, metric), Err(Unmeasured::NotApplicable), "{metric}");
    }
    let details = |all: &[Measurement]| {
        let score = all.iter().find(|m| m.metric == PLAN_SCORE).unwrap();
        score.details.iter().filter(|d| d.key != "plan.score.reference").cloned().collect::<Vec<_>>()
    };
    let count_detail = |key, n| Detail { key, value: DetailValue::Count(n) };
    let measured =
        Detail { key: "plan.score.measured", value: DetailValue::Texts(vec!["redundancy".to_owned()]) };
    assert_eq!(
        details(&without_references),
        [measured, count_detail("plan.steps", 2)],
        "prose without references states only the order"
    );

    let with_references =
        "1. Search\n2. Search again\n3. Compare steps 1 and 2\n4. Take the result of step 6\n5. Search";
    let with_references = rule_measurements(with_references, &settings(""));
    assert_eq!(value_of(&with_references, "plan.dependencies"), Ok((Value::Score(0.8), true)));
    assert_eq!(value_of(&with_references, "plan.redundancy"), Ok((Value::Score(0.8), true)));
    assert_eq!(details(&with_references)[2..], [count_detail("plan.hops", 1), count_detail("plan.width", 4)]);
    let dependencies = with_references.iter().find(|m| m.metric == "plan.dependencies").unwrap();
    let finding = &dependencies.outcome.as_ref().unwrap().findings[0];
    assert_eq!(finding.quote, "Take the result of step 6");
    assert!(finding.rationale.ends_with("step 4: uses the result of step 6, which does not exist"));
}

#[test]
fn todo_list_with_reference_is_measured_on_steps_that_name_a_tool() {
    let todo = r#"{"todos": [
        {"content": "Fetch ids of long refund calls", "status": "pending"},
        {"content": "With RAG: what are customers most unhappy about?", "status": "pending"}]}"#;
    let mut settings = settings("tools: { T2S: {}, RAG: { max_questions: 1 }, LLM: {} }");
    settings.plan.references =
        vec![super::super::settings::Reference { query: TASK.to_owned(), plan: REFERENCE_PLAN.to_owned() }];
    let all = rule_measurements(todo, &settings);
    // The reference has the prompt of the one step that names a tool for another tool as well.
    assert_eq!(value_of(&all, "plan.tool_usage_completeness"), Ok((Value::Score(0.0), false)));
    assert_eq!(value_of(&all, PLAN_RATING), Err(Unmeasured::NotApplicable), "the reference is structured");
    settings.plan.references[0].plan = "1. Fetch ids of long refund calls\n2. Answer".to_owned();
    assert_eq!(
        value_of(&rule_measurements(todo, &settings), PLAN_RATING),
        Ok((Value::Label("bad"), false)),
        "both are prose"
    );
}

#[test]
fn judge_of_prose_is_asked_only_applicable_questions() {
    let mut trace = trace("1. Search\n2. Answer");
    let MetricProgress::Ask(asked) = step(&PlanJudged, &trace, &settings(""), &[]) else {
        panic!("expected questions")
    };
    let keys: Vec<&str> = asked.iter().map(|q| q.key.as_str()).collect();
    assert_eq!(keys, ["plan.query_adherence"]);
    let answers = [answer(PlanPart::QueryAdherence, Ok(vec![json!({ "rationale": "half", "score": 1 })]))];
    let MetricProgress::Done(all) = step(&PlanJudged, &trace, &settings(""), &answers) else {
        panic!("expected measurements")
    };
    assert_eq!(value_of(&all, "plan.tool_prompt_alignment"), Err(Unmeasured::NotApplicable));
    // Half of effectiveness, and all of the measured efficiency.
    assert_eq!(value_of(&all, PLAN_SCORE), Ok((Value::Score(35.0 + 30.0), false)));

    trace.agents[0].plans[0].1.text = "1. Ask T2S for the ids\n2. Answer".into();
    let MetricProgress::Ask(asked) = step(&PlanJudged, &trace, &settings(""), &[]) else {
        panic!("expected questions")
    };
    assert_eq!(asked.len(), 3);
    assert!(asked[0].prompt.user.contains("1. Ask T2S for the ids [tool: T2S]\n2. Answer\n"));
    assert!(asked[0].prompt.system.contains("Only steps that name a tool"));
}

#[test]
fn redacted_content_is_not_in_prompts_and_fixed_text_is() {
    let secret = PLAN.replace("Fetch ids", "Mail ids to ann@example.com");
    let mut settings = settings_with_reference();
    let redact = |yaml: &str| {
        let redact = serde_saphyr::from_str(yaml).unwrap();
        Arc::new(
            crate::measure::ask::Asker::new(Default::default(), Default::default(), Vec::new(), &redact)
                .unwrap(),
        )
    };
    for (yaml, gone) in
        [("mode: known", "ann@example.com"), ("{ mode: allow_list, allow: [customers] }", "unhappy")]
    {
        settings.asker = redact(yaml);
        let MetricProgress::Ask(asked) = step(&PlanJudged, &trace(&secret), &settings, &[]) else {
            panic!("expected questions")
        };
        for question in &asked {
            let user = &question.prompt.user;
            assert!(!user.contains(gone), "{user}");
            assert_ne!(question.key, pair_questions::JUDGED_KEY, "the redacted text may be the difference");
            assert!(user.contains("<<<QUERY\n") && user.contains("\"depends_on\":[1]"), "{user}");
        }
    }
}

#[test]
fn rating_that_depends_on_unsure_pairs_is_undecided_until_embeddings_or_judges_decide() {
    let reworded =
        PLAN.replace("What are customers most unhappy about?", "What are the main complaints of customers?");
    assert_ne!(reworded, PLAN);
    let mut settings = settings("matching: { embeddings: vectors }");
    settings.plan.references =
        vec![super::super::settings::Reference { query: TASK.to_owned(), plan: reworded }];
    let ruled = rule_measurements(PLAN, &settings);
    let rating = ruled.iter().find(|m| m.metric == PLAN_RATING).unwrap();
    assert_eq!(rating.outcome, Err(Unmeasured::Undecided));
    assert!(
        rating.details.contains(&Detail { key: "plan.rating.f1_at_most", value: DetailValue::Number(1.0) })
    );
    let trace = trace(PLAN);
    let keys = |step: &MetricProgress| match step {
        MetricProgress::Ask(asked) => asked.iter().map(|q| q.key.clone()).collect::<Vec<_>>(),
        MetricProgress::Done(_) => Vec::new(),
    };
    let first = step(&PlanJudged, &trace, &settings, &[]);
    assert_eq!(keys(&first).last().unwrap(), pair_questions::EMBEDDED_KEY);
    let answer_with = |key: &str, value: serde_json::Value| Answer {
        key: key.to_owned(),
        opinions: Ok(vec![Opinion { value, weighted: None, judge: Arc::from("m/1") }]),
        usage: Default::default(),
    };
    let between = answer_with(pair_questions::EMBEDDED_KEY, json!({ "cosines": [0.8] }));
    let second = step(&PlanJudged, &trace, &settings, std::slice::from_ref(&between));
    assert_eq!(keys(&second), [pair_questions::JUDGED_KEY]);
    let pair = json!({ "pairs": [{ "reason": "", "pair": 1, "same": "yes" }] });
    let MetricProgress::Done(all) =
        step(&PlanJudged, &trace, &settings, &[between, answer_with(pair_questions::JUDGED_KEY, pair)])
    else {
        panic!("expected measurements")
    };
    assert_eq!(value_of(&all, PLAN_RATING), Ok((Value::Label("extremely_good"), true)));
    assert_eq!(all.iter().find(|m| m.metric == PLAN_RATING).unwrap().judge, "m/1");
}

#[test]
fn prompts_for_captured_run_match_golden_file() {
    let mut out = String::new();
    for trace in crate::measure::testing::captured("vercelai-e") {
        let (span_index, memo) = (trace.agents[0].plans[0].0, Memo::new());
        let context = Context {
            row: row("plan.score"),
            trace: &trace,
            at: span_index,
            settings: &settings(""),
            memo: &memo,
            rule_measurements: &[],
        };
        let MetricProgress::Ask(asked) = PlanJudged.step(&context, &[]) else { panic!("expected questions") };
        for q in asked {
            out.push_str(&format!(
                "# {}\n## system\n{}\n## user\n{}\n",
                q.key, q.prompt.system, q.prompt.user
            ));
        }
    }
    crate::measure::testing::golden("plan_judged-vercelai-e", &out);
}

#[test]
fn spans_without_a_plan_have_no_measurement() {
    let trace = trace(PLAN);
    let (memo, settings) = (Memo::new(), settings(""));
    let context = Context {
        row: row("plan.score"),
        trace: &trace,
        at: trace.agents[0].at,
        settings: &settings,
        memo: &memo,
        rule_measurements: &[],
    };
    assert_eq!(PlanRules.step(&context, &[]), MetricProgress::Done(Vec::new()));
    assert_eq!(PlanJudged.step(&context, &[]), MetricProgress::Done(Vec::new()));
}

#[test]
fn judged_metrics_enter_the_score() {
    let (trace, settings) = (trace(PLAN), settings_with_reference());
    let MetricProgress::Ask(questions) = step(&PlanJudged, &trace, &settings, &[]) else {
        panic!("expected questions")
    };
    let keys: Vec<&str> = questions.iter().map(|q| q.key.as_str()).collect();
    assert_eq!(keys, ["plan.tool_prompt_alignment", "plan.step_executability", "plan.query_adherence"]);
    assert!(questions.iter().all(|q| q.prompt.user.contains("<<<BEST")));
    let answers = [
        answer(
            PlanPart::ToolPromptAlignment,
            Ok(vec![wrong_steps(&[2]), wrong_steps(&[2]), wrong_steps(&[1, 2])]),
        ),
        answer(PlanPart::StepExecutability, Ok(vec![wrong_steps(&[])])),
        answer(PlanPart::QueryAdherence, Ok(vec![json!({ "rationale": "half", "score": 1 })])),
    ];
    let MetricProgress::Done(all) = step(&PlanJudged, &trace, &settings, &answers) else {
        panic!("expected measurements")
    };
    assert_eq!(
        value_of(&all, "plan.tool_prompt_alignment"),
        Ok((Value::Score(0.5), false)),
        "the median of three"
    );
    assert_eq!(value_of(&all, "plan.query_adherence"), Ok((Value::Score(0.5), false)));
    assert_eq!(
        value_of(&all, PLAN_SCORE),
        Ok((Value::Score(20.0 + 10.0 + 15.0 + 7.5 + 10.0 + 10.0 + 5.0), true))
    );
    assert!(all.iter().all(|m| m.judge == "model/hash"));
    let adherence = all.iter().find(|m| m.metric == "plan.query_adherence").unwrap();
    let rationale = &adherence.outcome.as_ref().unwrap().findings[0].rationale;
    assert_eq!(rationale, "a plan for the whole query was expected; half");
}

#[test]
fn unanswered_question_leaves_metric_and_score_unmeasured() {
    let (trace, settings) = (trace(PLAN), settings(""));
    let answers = [
        answer(PlanPart::ToolPromptAlignment, Err(Unmeasured::Timeout)),
        answer(PlanPart::StepExecutability, Ok(vec![wrong_steps(&[])])),
    ];
    let MetricProgress::Done(all) = step(&PlanJudged, &trace, &settings, &answers) else {
        panic!("expected measurements")
    };
    assert_eq!(value_of(&all, "plan.tool_prompt_alignment"), Err(Unmeasured::Timeout));
    assert_eq!(value_of(&all, "plan.step_executability"), Ok((Value::Score(1.0), true)));
    // A question that was not asked was too long.
    assert_eq!(value_of(&all, "plan.query_adherence"), Err(Unmeasured::Limit));
    assert_eq!(value_of(&all, PLAN_SCORE), Err(Unmeasured::Limit));
}

#[test]
fn plans_are_disabled_by_default_and_invalid_settings_are_problems() {
    assert!(!Settings::default().plan.enabled);
    let settings = settings(
        "threshold: 2, weights: { format: -1 }, tools: { X: { max_phrases: 1 } }, references: [{ plan: '' }]",
    );
    let keys: Vec<String> = settings.plan.problems(row("plan.format")).into_iter().map(|p| p.key).collect();
    let expected =
        ["threshold", "weights.format", "tools.X.max_phrases", "references[0].query", "references[0].plan"];
    assert_eq!(keys, expected);
}
