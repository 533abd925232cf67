//! The rules on the paper's plans and on malformed variants of them.

use std::collections::BTreeMap;

use super::*;
use crate::measure::plan::parse::parse_plan;
use crate::measure::plan::parse::tests::LISTING_1;
use crate::measure::plan::part::{self, PlanWeights};

/// Tables 35 and 36, before and after the loop.
const BEFORE: &str = r#"{
1: {"step": T2S([], "Fetch interaction_ids of interactions where the call driver is related to refunds and duration is longer than 30 minutes."), "depends_on": []},
2: {"step": RAG((1), "What are customers most unhappy about?"), "depends_on": [1]}
}"#;
const AFTER: &str = r#"{
1: {"step": T2S([], "Fetch call_ids of calls where the call driver is related to refunds and duration is longer than 30 minutes."), "depends_on": []},
2: {"step": RAG((1), "What are customers most unhappy about?"), "depends_on": [1]},
3: {"step": T2S((1), "What are customers most unhappy about?"), "depends_on": [1]},
4: {"step": LLM("Combine the following 2 outputs to answer the following query (query):First:(2)Second:(3)"), "depends_on": [2, 3]}
}"#;

/// The tools of `config/tools`.
fn triad() -> Toolbox {
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../config/tools/contact-centre.yaml"
    ))
    .unwrap();
    let whole: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    let tools = whole.pointer("/verdict/metrics/plan/tools").cloned().unwrap();
    Toolbox::new(&serde_json::from_value::<BTreeMap<String, ToolSpec>>(tools).unwrap())
}

fn faults(plan: &str, reference: Option<&str>) -> Vec<(Option<usize>, Fault)> {
    let issues = issues(&parse_plan(plan), &triad(), reference.map(parse_plan).as_ref());
    issues.into_iter().map(|i| (i.step, i.fault)).collect()
}

fn measured(plan: &str, reference: Option<&str>) -> PartValues {
    let (plan, tools, reference) = (parse_plan(plan), triad(), reference.map(parse_plan));
    values(&plan, &tools, &issues(&plan, &tools, reference.as_ref()), reference.as_ref())
}

#[test]
fn listing_1_has_no_issues() {
    assert_eq!(faults(LISTING_1, Some(LISTING_1)), []);
    let values = measured(LISTING_1, Some(LISTING_1));
    assert_eq!(values, [None, Some(1.0), Some(1.0), None, Some(1.0), Some(1.0), Some(1.0)]);
    assert_eq!(part::score(&values, &PlanWeights::default()), Some(100.0));
}

#[test]
fn missing_second_tool_is_an_issue_of_the_refund_plan_before_improvement() {
    assert_eq!(faults(BEFORE, Some(AFTER)), [(Some(2), Fault::SecondToolMissing)]);
    assert_eq!(faults(AFTER, Some(AFTER)), []);
    // As in table 35: format, dependencies and redundancy 1, completeness one half.
    let values = measured(BEFORE, Some(AFTER));
    assert_eq!(values, [None, Some(1.0), Some(1.0), None, Some(1.0), Some(1.0), Some(0.5)]);
    assert_eq!(measured(BEFORE, None)[6], None, "unmeasured without a reference");
    // A plan with neither of the two tools has no such issue.
    let neither = r#"{"1": {"step": "T2S([], 'Count the calls')", "depends_on": []}}"#;
    assert_eq!(faults(neither, Some(AFTER)), []);
}

#[test]
fn placeholder_faults_count_once_per_step() {
    let cases = [
        (r#"LLM("Compare.")"#, "[1, 2]", Fault::MissingPlaceholder),
        (r#"LLM("Compare (1, 2).")"#, "[1, 2]", Fault::MalformedPlaceholder),
        (r#"LLM((1), (2), "Compare.")"#, "[1, 2]", Fault::MisplacedPlaceholder),
        (r#"T2S([], "Count those of (1) and (2).")"#, "[1, 2]", Fault::MisplacedPlaceholder),
        (r#"T2S([1, 2], "Count them.")"#, "[1, 2]", Fault::MissingPlaceholder),
        (r#"LLM("Answer the question from (1) and (2).")"#, "[1, 2]", Fault::MissingQuery),
        (r#"LLM("Answer the user's query from (1) and (2).")"#, "[1, 2]", Fault::MissingQuery),
    ];
    for (step, depends, fault) in cases {
        let plan = format!(
            r#"{{1: {{"step": T2S([], "a"), "depends_on": []}}, 2: {{"step": T2S([], "b"), "depends_on": []}},
                3: {{"step": {step}, "depends_on": {depends}}}}}"#
        );
        let found = faults(&plan, None);
        assert!(found.contains(&(Some(3), fault)), "{step}: {found:?}");
        assert_eq!(measured(&plan, None)[1], Some(2.0 / 3.0), "{step}: one step of three, {found:?}");
    }
    let passed_on = AFTER.replace("(query)", "");
    assert_eq!(faults(&passed_on, None), [(Some(4), Fault::MissingQuery)]);
}

#[test]
fn repairs_count_once_per_plan() {
    let comma = BEFORE.replace("[1]}", "[1]},");
    assert_eq!(measured(&comma, None)[1], Some(0.5));
    let fenced = format!("```json\n{BEFORE}\n```");
    assert_eq!(measured(&fenced, None)[1], Some(1.0), "a fence has no effect on the metric");
}

#[test]
fn dependency_faults_count_by_step() {
    let unwired = AFTER.replace("\"depends_on\": [2, 3]", "\"depends_on\": [2]");
    assert!(faults(&unwired, None).contains(&(Some(4), Fault::Undeclared)));
    assert!(faults(&unwired, None).contains(&(Some(3), Fault::Ignored)));
    let values = measured(&unwired, None);
    assert_eq!((values[4], values[5]), (Some(0.75), Some(0.75)));
}

#[test]
fn repeated_detail_counts_for_tools_with_repeats_cost() {
    let repeated_step =
        r#"T2S((1), "What is the mean score of calls where the call driver is related to refunds?")"#;
    let plan = BEFORE.replace(r#"RAG((1), "What are customers most unhappy about?")"#, repeated_step);
    let tools = triad();
    let issues = issues(&parse_plan(&plan), &tools, None);
    let repeated: Vec<&PlanIssue> = issues.iter().filter(|i| i.fault == Fault::RepeatedDetail).collect();
    assert_eq!(repeated.len(), 1, "{issues:?}");
    assert!(repeated[0].message.contains("the call driver is related to refunds"), "{}", repeated[0].message);
    assert_eq!(measured(&plan, None)[5], Some(0.5));
    let by_reading = plan.replace("T2S((1)", "RAG((1)");
    assert_eq!(measured(&by_reading, None)[5], Some(1.0));
}

#[test]
fn request_for_the_same_thing_repeats_no_detail() {
    let repeated = |first: &str, second: &str| {
        let plan = format!(
            r#"{{1: {{"step": T2S([], "{first}"), "depends_on": []}}, 2: {{"step": T2S((1), "{second}"), "depends_on": [1]}}}}"#
        );
        faults(&plan, None).iter().filter(|(_, fault)| *fault == Fault::RepeatedDetail).count()
    };
    let first = "Fetch call_ids of unresolved calls";
    assert_eq!(repeated(first, "Fetch call_ids of calls with QA score below 3"), 0);
    assert_eq!(repeated("Retrieve QA scores of calls", "Retrieve QA scores of agents"), 0);
    assert_eq!(
        repeated(
            "Fetch ids of calls longer than 30 minutes",
            "Mean score of those that took above 30 minutes"
        ),
        1
    );
    assert_eq!(repeated("Fetch ids of calls longer than 30 minutes", "Mean score of the 30 best agents"), 0);
    assert_eq!(repeated(first, "Mean score of unresolved calls with sales"), 1, "two content words in a row");
}

#[test]
fn step_that_uses_the_output_of_another_step_needs_no_second_tool() {
    let reference = BEFORE.replace(
        "[1]}\n}",
        r#"[1]},
3: {"step": LLM("Summarize what customers are most unhappy about in (2)"), "depends_on": [2]}
}"#,
    );
    assert_ne!(reference, BEFORE);
    assert_eq!(faults(BEFORE, Some(&reference)), []);
    let reworded = reference.replace(
        "Summarize what customers are most unhappy about in (2)",
        "(2): What are customers most unhappy about?",
    );
    assert_eq!(faults(BEFORE, Some(&reworded)), [], "the second step has another input");
}

#[test]
fn step_beyond_its_tools_limits_is_too_complex() {
    let many = r#"{1: {"step": T2S([], "By call driver and sentiment: QA score, hold time, duration, escalation"), "depends_on": []}}"#;
    assert_eq!(faults(many, None), [(Some(1), Fault::TooComplex)]);
    assert_eq!(measured(many, None)[2], Some(0.0));
    let two = r#"{1: {"step": RAG([], "Why did they call? How did it end?"), "depends_on": []}}"#;
    assert_eq!(faults(two, None), [(Some(1), Fault::TooComplex)]);
    let model = r#"{1: {"step": LLM("Why? How? When? For (query)"), "depends_on": []}}"#;
    assert_eq!(measured(model, None)[2], Some(1.0), "any_complexity exempts a tool");
    // An unknown tool has no limits that rules could check.
    let plan = parse_plan(many);
    assert_eq!(values(&plan, &Toolbox::default(), &[], None)[2], None);
}

#[test]
fn unknown_tool_is_an_issue() {
    let plan = BEFORE.replace("RAG(", "SEARCH(");
    assert_eq!(faults(&plan, None), [(Some(2), Fault::WrongTool)]);
    assert_eq!(issues(&parse_plan(&plan), &Toolbox::default(), None), [], "no issue if no tools are known");
}

#[test]
fn rejected_plan_scores_0_and_prose_has_no_format() {
    for plan in ["", "{\"1\": {", &LISTING_1.replace("\"depends_on\": []", "\"depends_on\": [6]")] {
        assert_eq!(measured(plan, None), [Some(0.0); 7], "{plan}");
    }
    let words = measured("1. Search\n2. Answer the question", None);
    assert_eq!(words, [None, None, None, None, None, Some(1.0), None]);
}

#[test]
fn plan_of_fields_needs_no_placeholders() {
    let fields = r#"[
        {"id": 1, "tool": "search", "prompt": "Find it", "depends_on": []},
        {"id": 2, "tool": "visit", "prompt": "Read it", "depends_on": [1]},
        {"id": 3, "tool": "write", "prompt": "Sum it up", "depends_on": [1, 2]}
    ]"#;
    assert_eq!(issues(&parse_plan(fields), &Toolbox::default(), None), []);
    // With one placeholder, or a tool that takes them, every dependency needs one.
    let one_placeholder = fields.replace("Read it", "Read (1)");
    let found: Vec<(Option<usize>, Fault)> = issues(&parse_plan(&one_placeholder), &Toolbox::default(), None)
        .into_iter()
        .map(|i| (i.step, i.fault))
        .collect();
    let missing = (Some(3), Fault::MissingPlaceholder);
    assert_eq!(found, [missing, missing, (Some(3), Fault::Superfluous)]);
    let renamed = fields.replace("search", "T2S").replace("visit", "RAG").replace("write", "LLM");
    assert_eq!(faults(&renamed, None), [(Some(2), Fault::MissingPlaceholder), missing, missing]);
}
