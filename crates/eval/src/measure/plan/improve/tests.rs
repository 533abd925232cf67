//! The loop with fixed answers: the refund lineage of tables 35 and 36, and every stop reason.

use serde_json::json;

use super::*;
use crate::measure::plan::parse::parse_plan;

const QUERY: &str = "What are customers most unhappy about in refund-related calls longer than 30 minutes?";
const BEFORE: &str = r#"{
1: {"step": T2S([], "Fetch interaction_ids of interactions where the call driver is related to refunds and duration is longer than 30 minutes."), "depends_on": []},
2: {"step": RAG((1), "What are customers most unhappy about?"), "depends_on": [1]}
}"#;

fn tools() -> Toolbox {
    let spec = |placeholders| crate::measure::plan::tools::ToolSpec { placeholders, ..Default::default() };
    let specs = [("T2S", Placement::Outside), ("RAG", Placement::Outside), ("LLM", Placement::Inside)];
    Toolbox::new(&specs.into_iter().map(|(name, placement)| (name.to_owned(), spec(placement))).collect())
}

fn tag_answer(tag: &str) -> Value {
    json!({ "findings": [{ "reason": "why", "tag": tag }] })
}

fn step(tool: &str, inputs: &[usize], prompt: &str, depends_on: &[usize]) -> Value {
    json!({ "tool": tool, "inputs": inputs, "prompt": prompt, "depends_on": depends_on })
}

fn revision_answer(steps: &[Value]) -> Value {
    json!({ "change_0": "this step", "change_1": "the others", "steps": steps })
}

fn filter_step() -> Value {
    let prompt = "Fetch interaction_ids of interactions where the call driver is related to refunds and duration is longer than 30 minutes.";
    step("T2S", &[], prompt, &[])
}

fn question_step(tool: &str) -> Value {
    step(tool, &[1], "What are customers most unhappy about?", &[1])
}

fn combining_revision() -> Value {
    let prompt = "Combine the following 2 outputs to answer the following query (query):First:(2)Second:(3)";
    revision_answer(&[
        filter_step(),
        question_step("RAG"),
        question_step("T2S"),
        step("LLM", &[], prompt, &[2, 3]),
    ])
}

/// Runs the loop to its end; questions beyond the list are answered with NO CHANGE.
fn run(plan: &str, max_passes: usize, answers: Vec<Result<Value, Unmeasured>>) -> (Lineage, Vec<String>) {
    let mut improve = ImprovementLoop::new(QUERY, parse_plan(plan), tools(), max_passes);
    let (mut answers, mut keys) = (answers.into_iter(), Vec::new());
    while let Some(question) = improve.question() {
        keys.push(question.key);
        let answer = answers.next().unwrap_or_else(|| Ok(tag_answer("NO_CHANGE")));
        improve.answer(answer.map(|value| vec![value]));
        assert!(keys.len() <= MAX_QUESTIONS, "the loop ends");
    }
    (improve.finish(), keys)
}

#[test]
fn refund_plan_grows_from_one_hop_to_two() {
    let (lineage, keys) = run(
        BEFORE,
        MAX_PASSES,
        vec![Ok(tag_answer("NO_CHANGE")), Ok(tag_answer("MULTI_TOOL_PROMPT")), Ok(combining_revision())],
    );
    let shapes: Vec<Shape> = lineage.revisions.iter().map(|r| r.shape).collect();
    let expected = [Shape { steps: 2, hops: 1, width: 1 }, Shape { steps: 4, hops: 2, width: 2 }];
    assert_eq!(shapes, expected);
    let last = &lineage.revisions[1];
    assert_eq!((last.pass, last.step, last.tags[0].tag), (1, Some(2), Tag::MultiToolPrompt));
    assert_eq!(last.change_1, "the others");
    assert_eq!(last.plan["3"]["step"], r#"T2S((1), "What are customers most unhappy about?")"#);
    assert_eq!(last.plan["1"]["step"].as_str().unwrap().split(',').next(), Some("T2S([]"));
    assert_eq!((lineage.passes, lineage.end), (2, StopReason::Unchanged));
    assert_eq!(lineage.revisions_per_pass, [1, 0]);
    // The plan grew at step 2, which is checked again; then steps 3 and 4, then all of pass 2.
    let expected = [
        "1.1.0.evaluate",
        "1.2.0.evaluate",
        "1.2.0.optimize",
        "1.2.1.evaluate",
        "1.3.0.evaluate",
        "1.4.0.evaluate",
        "2.1.0.evaluate",
        "2.2.0.evaluate",
        "2.3.0.evaluate",
        "2.4.0.evaluate",
    ];
    assert_eq!(keys, expected);
    let deserialized: Lineage = serde_json::from_str(&serde_json::to_string(&lineage).unwrap()).unwrap();
    assert_eq!(deserialized, lineage);
}

#[test]
fn revision_of_equal_length_advances_to_the_next_step() {
    let reworded = revision_answer(&[
        step("T2S", &[], "Fetch call_ids of refund calls over 30 minutes.", &[]),
        question_step("RAG"),
    ]);
    let (lineage, keys) = run(BEFORE, 1, vec![Ok(tag_answer("INCORRECT_PROMPT")), Ok(reworded)]);
    assert_eq!(keys, ["1.1.0.evaluate", "1.1.0.optimize", "1.2.0.evaluate"]);
    assert_eq!((lineage.revisions.len(), lineage.end), (2, StopReason::MaxPasses));
}

#[test]
fn earlier_plan_ends_the_loop() {
    let changed = revision_answer(&[step("T2S", &[], "Another filter.", &[]), question_step("RAG")]);
    let original = revision_answer(&[filter_step(), question_step("RAG")]);
    let answers = vec![
        Ok(tag_answer("INCORRECT_PROMPT")),
        Ok(changed),
        Ok(tag_answer("REPEATED_DETAIL")),
        Ok(original),
    ];
    let (lineage, _) = run(BEFORE, MAX_PASSES, answers);
    assert_eq!((lineage.revisions.len(), lineage.end), (2, StopReason::SeenBefore));
}

#[test]
fn invalid_revision_leaves_the_plan_unchanged() {
    for bad in [
        revision_answer(&[]),
        revision_answer(&[step("", &[], "x", &[])]),
        revision_answer(&[step("T2S", &[], "", &[])]),
        revision_answer(&[step("T2S", &[], "x", &[1])]),
        revision_answer(&[step("T2S", &[], "x", &[7])]),
        json!({ "steps": "none" }),
    ] {
        let (lineage, _) = run(BEFORE, MAX_PASSES, vec![Ok(tag_answer("INCORRECT_TOOL")), Ok(bad)]);
        assert_eq!((lineage.revisions.len(), lineage.invalid, lineage.end), (1, 1, StopReason::Unchanged));
    }
}

#[test]
fn growing_plan_is_rechecked_three_times_per_step() {
    let revision_with_steps = |n: usize| {
        let steps: Vec<Value> = (0..n).map(|k| step("T2S", &[], &format!("part {k} of {n}"), &[])).collect();
        revision_answer(&steps)
    };
    let answers =
        (3..7).flat_map(|n| [Ok(tag_answer("COMPLEX_PROMPT")), Ok(revision_with_steps(n))]).collect();
    let (lineage, keys) = run(BEFORE, 1, answers);
    let first: Vec<&String> =
        keys.iter().filter(|k| k.starts_with("1.1.") && k.ends_with("evaluate")).collect();
    assert_eq!(first, ["1.1.0.evaluate", "1.1.1.evaluate", "1.1.2.evaluate", "1.1.3.evaluate"]);
    assert_eq!(lineage.revisions.len(), 5);
}

#[test]
fn unanswered_questions_end_the_loop_as_unanswered() {
    let (lineage, keys) =
        run(BEFORE, MAX_PASSES, vec![Err(Unmeasured::Timeout), Err(Unmeasured::JudgeError)]);
    assert_eq!((keys.len(), lineage.unanswered, lineage.end), (2, 2, StopReason::Unanswered));
}

#[test]
fn tags_are_ordered_and_no_change_is_ignored() {
    let found = json!({ "findings": [
        { "reason": "a", "tag": "NO_CHANGE" },
        { "reason": "b", "tag": "MULTI_TOOL_PROMPT" },
        { "reason": "c", "tag": "REPEATED_DETAIL" },
        { "reason": "d", "tag": "INCORRECT_TOOL" },
        { "reason": "e", "tag": "REPEATED_DETAIL" },
    ] });
    let order: Vec<Tag> = majority_findings(&[found]).into_iter().map(|t| t.tag).collect();
    assert_eq!(order, [Tag::IncorrectTool, Tag::RepeatedDetail, Tag::MultiToolPrompt]);
    assert_eq!(majority_findings(&[tag_answer("NO_CHANGE")]), []);
    assert_eq!(majority_findings(&[json!({})]), []);
}

#[test]
fn majority_of_opinions_decides_tags_and_plan() {
    let both = json!({ "findings": [
        { "reason": "first words", "tag": "MULTI_TOOL_PROMPT" }, { "reason": "c", "tag": "COMPLEX_PROMPT" } ] });
    let other = json!({ "findings": [{ "reason": "other words", "tag": "MULTI_TOOL_PROMPT" }] });
    let found = majority_findings(&[both.clone(), other.clone(), tag_answer("NO_CHANGE")]);
    assert_eq!(found, [StepFinding { reason: "first words".to_owned(), tag: Tag::MultiToolPrompt }]);
    assert_eq!(
        majority_findings(&[other, tag_answer("NO_CHANGE")]),
        [],
        "half of the opinions are no majority"
    );

    let mut improve = ImprovementLoop::new(QUERY, parse_plan(BEFORE), tools(), 1);
    improve.answer(Ok(vec![both]));
    let other_plan = revision_answer(&[filter_step(), step("T2S", &[1], "Something else.", &[1])]);
    improve.answer(Ok(vec![
        json!({ "steps": [] }),
        other_plan.clone(),
        combining_revision(),
        combining_revision(),
    ]));
    assert_eq!(improve.plan().steps.len(), 4, "the plan of two of three valid answers");
    let mut improve = ImprovementLoop::new(QUERY, parse_plan(BEFORE), tools(), 1);
    improve.answer(Ok(vec![tag_answer("INCORRECT_TOOL")]));
    improve.answer(Ok(vec![other_plan, combining_revision()]));
    assert_eq!(improve.plan().steps.len(), 2, "the first of equally frequent plans");
    improve.answer(Ok(Vec::new()));
    assert_eq!(improve.finish().unanswered, 1);
}

#[test]
fn unreadable_plan_or_zero_passes_asks_nothing() {
    assert_eq!(run("no plan at all", MAX_PASSES, Vec::new()).1.len(), 0);
    assert_eq!(run(BEFORE, 0, Vec::new()).1.len(), 0);
}

#[test]
fn prompts_match_golden_file() {
    let mut improve = ImprovementLoop::new(QUERY, parse_plan(BEFORE), tools(), MAX_PASSES);
    let evaluator = improve.question().unwrap();
    improve.answer(Ok(vec![tag_answer("INCORRECT_PROMPT")]));
    let optimizer = improve.question().unwrap();
    let text = [evaluator, optimizer].map(|q| {
        format!(
            "# {}\n## system\n{}\n## user\n{}\n## form\n{:#}\n",
            q.key, q.prompt.system, q.prompt.user, q.form.schema
        )
    });
    crate::measure::testing::golden("plan_improve", &text.concat());
}

#[test]
fn statistics_summarise_lineages() {
    let answers =
        vec![Ok(tag_answer("NO_CHANGE")), Ok(tag_answer("MULTI_TOOL_PROMPT")), Ok(combining_revision())];
    let all = [run(BEFORE, MAX_PASSES, answers).0, run(BEFORE, MAX_PASSES, Vec::new()).0];
    let found = crate::measure::plan::lineage::statistics(&all);
    assert_eq!((found.lineages, found.length.min, found.length.mean, found.length.max), (2, 1, 1.5, 2));
    assert_eq!((found.passes.min, found.passes.max), (1, 2));
    assert_eq!(found.revisions_per_pass.len(), 2);
    assert_eq!(found.revisions_per_pass[0].mean, 0.5);
    assert_eq!(found.hops.into_iter().collect::<Vec<_>>(), [(1, 1), (2, 1)]);
    assert_eq!((found.tags[&Tag::MultiToolPrompt], found.ends[&StopReason::Unchanged]), (1, 2));
}
