//! Plans in every form, and every malformation.

use proptest::prelude::*;

use super::*;

/// Listing 1 of the paper, with its instructions quoted as in the paper's grammar.
pub(crate) const LISTING_1: &str = r#"{
"1": {"step": "T2S([], 'Fetch interaction_ids of unresolved calls')", "depends_on": []},
"2": {"step": "RAG((1), 'Fetch calls where the sentiment transitioned from negative to positive within the transcript')", "depends_on": [1]},
"3": {"step": "LLM('Extract interaction_ids from Data Insights in (2).')", "depends_on": [2]},
"4": {"step": "T2S((3), 'Retrieve QA scores for resolution procedures in these calls.')", "depends_on": [3]},
"5": {"step": "T2S((3), 'Retrieve QA scores for professionalism in these calls.')", "depends_on": [3]},
"6": {"step": "LLM('Compare QA scores from (4) vs. (5) in light of unresolved status and sentiment transitions.')", "depends_on": [4,5]}
}"#;

fn faults(plan: &Plan) -> Vec<(Option<usize>, Fault)> {
    plan.issues.iter().map(|i| (i.step, i.fault)).collect()
}

fn dependencies(plan: &Plan) -> Vec<&[usize]> {
    plan.steps.iter().map(|s| s.depends_on.as_slice()).collect()
}

#[test]
fn listing_1_parses_without_issue() {
    let plan = parse_plan(LISTING_1);
    assert!(plan.is_structured && plan.issues.is_empty(), "{:?}", plan.issues);
    let tools: Vec<&str> = plan.steps.iter().filter_map(|s| s.tool.as_deref()).collect();
    assert_eq!(tools, ["T2S", "RAG", "LLM", "T2S", "T2S", "LLM"]);
    assert_eq!(dependencies(&plan), [&[][..], &[1], &[2], &[3], &[3], &[4, 5]]);
    assert_eq!((plan.steps[1].inputs.as_str(), plan.steps[5].inputs.as_str()), ("(1)", ""));
    assert!(parse_plan(&plan.to_text()).same_as(&plan));
}

#[test]
fn listing_1_as_printed_has_only_quote_faults() {
    let printed = LISTING_1.replace(", 'F", ", F").replace(", 'R", ", R").replace('\'', "\u{2019}");
    let printed = format!("# Query: Compare QA scores.\n# Plan:\n{printed}");
    let plan = parse_plan(&printed);
    assert!(plan.same_as(&parse_plan(LISTING_1)), "{plan:?}");
    let quotes = [1, 2, 4, 5].map(|n| (Some(n), Fault::Quotes));
    assert_eq!(faults(&plan)[0], (None, Fault::Surrounded));
    assert_eq!(faults(&plan)[1..], quotes);
}

#[test]
fn bare_numbers_and_calls_are_no_fault() {
    let refund = r#"{
1: {"step": T2S([], "Fetch ids of interactions longer than 30 minutes."), "depends_on": []},
2: {"query": RAG((1), "What are customers most unhappy about?"), "depends_on": [1]}
}"#;
    let plan = parse_plan(refund);
    assert!(plan.issues.is_empty(), "{:?}", plan.issues);
    assert_eq!(dependencies(&plan), [&[][..], &[1]]);
}

#[test]
fn lists_with_fields_and_names_parse() {
    let text = r#"```json
{"query": "q", "plan": [
  {"id": "fetch", "tool": "search", "prompt": "Find it", "depends_on": []},
  {"id": "read", "tool": "visit", "prompt": "Read (1)", "depends_on": ["fetch"]}
]}
```"#;
    let plan = parse_plan(text);
    assert_eq!(faults(&plan), [(None, Fault::Surrounded)]);
    assert!(plan.is_structured);
    assert_eq!(query_of_file(text), Some("q".to_owned()));
    assert_eq!(query_of_file("# Query: Why?\n# Plan:\n{}"), Some("Why?".to_owned()));
    assert_eq!(query_of_file(LISTING_1), None);
    assert_eq!(dependencies(&plan), [&[][..], &[1]]);
    assert_eq!(plan.steps[1].instruction(), r#"visit("Read (1)")"#);
}

#[test]
fn todo_lists_and_prose_are_unstructured() {
    for text in [
        r#"{"todos": [{"content": "Search", "status": "pending"}, {"content": "Read what step 1 found"}]}"#,
        "Here is my plan:\n1. Search\n2. Read what step 1 found",
        "- [ ] Search\n- [x] Read what step 1 found",
        r#"["Search", "Read what step 1 found"]"#,
        r#"{"1": "Search", "2": "Read what step 1 found"}"#,
    ] {
        let plan = parse_plan(text);
        assert!(!plan.is_structured, "{text}");
        let steps: Vec<&str> = plan.steps.iter().map(|s| s.prompt.as_str()).collect();
        assert_eq!(steps, ["Search", "Read what step 1 found"], "{text}");
        assert_eq!(dependencies(&plan), [&[][..], &[1]], "{text}");
    }
}

#[test]
fn every_malformation_has_its_fault() {
    type Case = (&'static str, &'static [(Option<usize>, Fault)]);
    let cases: [Case; 11] = [
        ("", &[(None, Fault::Unreadable)]),
        ("I would rather not plan.", &[(None, Fault::Unreadable)]),
        (r#"{"1": {"step": "T2S([], ", depends_on}"#, &[(None, Fault::Unreadable)]),
        (r#"{"1": {"step": "T2S([], 'x')", "depends_on": [],}}"#, &[(None, Fault::Repaired)]),
        (r#"{"1": {"depends_on": []}}"#, &[(Some(1), Fault::NoInstruction)]),
        (r#"{"1": {"step": "Look around", "depends_on": []}}"#, &[(Some(1), Fault::NoCall)]),
        (r#"{"1": {"step": "T2S([], 'x')"}}"#, &[(Some(1), Fault::DependsOn)]),
        (r#"{"1": {"step": "T2S([], 'x')", "depends_on": null}}"#, &[(Some(1), Fault::DependsOn)]),
        (
            r#"{"1": {"step": "f('x')", "depends_on": []}, "2": {"step": "f('(1)')", "depends_on": "1"}}"#,
            &[(Some(2), Fault::DependsOn)],
        ),
        (
            r#"{"1": {"step": "f('x')", "depends_on": []}, "3": {"step": "f('(1)')", "depends_on": [1]}}"#,
            &[(Some(3), Fault::Numbering)],
        ),
        (
            r#"{"1": {"step": "f('x')", "depends_on": []}, "1": {"step": "f('y')", "depends_on": []}}"#,
            &[(Some(2), Fault::Numbering)],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(faults(&parse_plan(text)), expected, "{text}");
    }
}

#[test]
fn quoted_dependency_numbers_parse_with_a_fault() {
    let plan = parse_plan(
        r#"{"1": {"step": "f('x')", "depends_on": []}, "2": {"step": "f('(1)')", "depends_on": ["1"]}}"#,
    );
    assert_eq!(dependencies(&plan), [&[][..], &[1]]);
    assert_eq!(faults(&plan), [(Some(2), Fault::DependsOn)]);
}

#[test]
fn plan_with_too_many_steps_is_cut() {
    let steps: Vec<String> =
        (1..=MAX_STEPS + 1).map(|n| format!(r#""{n}": {{"step": "f('x')", "depends_on": []}}"#)).collect();
    let plan = parse_plan(&format!("{{{}}}", steps.join(",")));
    assert_eq!(plan.steps.len(), MAX_STEPS);
    assert_eq!(faults(&plan), [(None, Fault::TooLong)]);
}

/// Texts of the maximum length that are expensive to parse.
#[test]
fn largest_inputs_finish_in_bounded_time() {
    let repeated = |piece: &str| piece.repeat(MAX_BYTES / piece.len());
    for text in [
        repeated("\""),
        format!("{{\"a{}x", repeated("\"")),
        repeated("{\"1\": "),
        repeated("a("),
        format!("{{1: {}", repeated("f(\"(1)")),
        repeated("\"depends_on\" "),
        repeated("(1) "),
        format!("{{\"1\": {{\"step\": \"f('{}')\", \"depends_on\": [1]}}}}", repeated("(1) ")),
        format!(
            "{{\"1\": {{\"step\": \"f('x')\", \"depends_on\": [{}]}}}}",
            repeated("7,").trim_end_matches(',')
        ),
        repeated("- x\n"),
        repeated("[["),
    ] {
        let plan = parse_plan(&text);
        let tools = super::super::tools::Toolbox::default();
        let issues = super::super::rules::issues(&plan, &tools, Some(&plan));
        super::super::reference::match_reference(&plan, &plan, &issues, &Default::default());
    }
    // The maximum of steps, with many dependencies, and no step number equal to its position.
    let numbers: Vec<String> = (0..80).map(|n| (n + 500).to_string()).collect();
    let numbers = numbers.join(",");
    let steps: Vec<String> = (0..MAX_STEPS)
        .map(|n| format!(r#""{}": {{"step": "f('x')", "depends_on": [{numbers}]}}"#, n + 500))
        .collect();
    let plan = parse_plan(&format!("{{{}}}", steps.join(",")));
    assert_eq!(plan.steps.len(), MAX_STEPS);
    let issues = super::super::rules::issues(&plan, &Default::default(), Some(&plan));
    let compared = super::super::reference::match_reference(&plan, &plan, &issues, &Default::default());
    assert_eq!(
        compared.rating,
        super::super::reference::Rating::ExtremelyBad,
        "the dependencies are circular"
    );
}

proptest! {
    #[test]
    fn any_text_is_a_plan_or_unreadable(text in "(\\PC|[\\n{}\\[\\]\"',:()1-3]){0,80}") {
        let plan = parse_plan(&text);
        prop_assert_eq!(plan.is_unreadable(), plan.issues.iter().any(|i| i.fault == Fault::Unreadable));
    }

    #[test]
    fn rendered_plan_parses_to_the_same_plan(prompts in prop::collection::vec("[a-zA-Z][a-zA-Z0-9 .?\"\\\\]{0,30}[a-z]", 1..6)) {
        let steps = prompts.iter().enumerate().map(|(n, prompt)| PlanStep {
            number: n + 1,
            tool: Some("T2S".to_owned()),
            inputs: if n == 0 { "[]".to_owned() } else { format!("({n})") },
            prompt: prompt.clone(),
            depends_on: if n == 0 { vec![] } else { vec![n] },
            notation: StepNotation::Call,
        });
        let plan = Plan { steps: steps.collect(), is_structured: true, issues: Vec::new() };
        let reparsed = parse_plan(&plan.to_text());
        prop_assert!(reparsed.same_as(&plan), "{:?}\n{:?}", reparsed, plan);
        prop_assert!(reparsed.issues.is_empty(), "{:?}", reparsed.issues);
    }
}
