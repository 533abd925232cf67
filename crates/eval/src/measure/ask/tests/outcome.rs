//! The last question about a trace.

use super::*;
use crate::measure::ask::outcome::{FindingRef, OutcomeQuestion};
use crate::measure::defects::measured;
use crate::measure::testing::golden;
use crate::measure::{Category, Defect, Finding, Measured, Severity};

fn failed_measurement(span_index: usize, metric: &'static str, findings: Vec<Finding>) -> Measurement {
    measured(span_index, metric, Measured { value: Value::Score(1.0), passed: false, findings })
}

/// A wrong year in the answer (span 3), which a judge of the run has reported too, and a missing tag.
fn failures() -> Vec<Measurement> {
    let judged = Finding { origin: Some(3), ..Finding::new("The year is wrong.", "1884", 1.0) };
    let wrong = Defect::ContradictsResult.finding("The result says 1883.", "1884");
    vec![
        failed_measurement(0, "gpa.goal_fulfillment", vec![judged.under(Category::GoalDeviation)]),
        failed_measurement(
            1,
            "instruction_following",
            vec![Defect::MissingTag.finding("A tag was expected.", "search")],
        ),
        failed_measurement(3, "reasoning_integrity", vec![wrong]),
    ]
}

fn outcome_question(trace: &AgentTrace, settings: &Settings) -> OutcomeQuestion {
    OutcomeQuestion::new(&settings.asker, trace, &failures()).unwrap()
}

fn opinion(score: u8, touched: &[&str], cause: &str) -> Opinion {
    let value = json!({ "rationale": "The answer states another year than the search.", "score": score,
        "touched_outcome": touched, "root_cause": cause });
    Opinion { value, weighted: None, judge: "m/0".into() }
}

#[test]
fn question_shows_task_answer_and_failures_by_number() {
    let question = outcome_question(&bridge(), &Settings::default()).question;
    golden("ask-outcome", &format!("{}\n====\n{}", question.prompt.system, question.prompt.user));
    let schema = &question.form.schema;
    assert_eq!(schema["properties"]["root_cause"]["enum"], json!(["1", "2", "3", "none"]));
    assert_eq!(schema["properties"]["touched_outcome"]["items"]["enum"], json!(["1", "2", "3"]));
}

#[test]
fn trace_without_a_failing_finding_has_no_question() {
    let note = Defect::MissingTag.finding("A tag was expected.", "x").noted();
    let none = [
        failed_measurement(1, "instruction_following", vec![note]),
        failed_measurement(0, "tool_abuse", Vec::new()),
    ];
    assert!(OutcomeQuestion::new(&Asker::default(), &bridge(), &none).is_none());
}

#[test]
fn answer_names_the_findings_that_touched_the_outcome_and_the_root_cause() {
    let asked = outcome_question(&bridge(), &Settings::default());
    let outcome = asked.read(&[opinion(1, &["1", "2"], "1")]).unwrap();
    assert_eq!((outcome.score, outcome.root_cause, &*outcome.judge), (0.2, Some(3), "m/0"));
    let reference = |span_index, metric| FindingRef { at: span_index, metric, index: 0 };
    let worst_first = [
        reference(0, "gpa.goal_fulfillment"),
        reference(3, "reasoning_integrity"),
        reference(1, "instruction_following"),
    ];
    assert_eq!((&outcome.asked[..], &outcome.touched_outcome[..]), (&worst_first[..], &worst_first[..2]));
    let harmless = asked.read(&[opinion(5, &[], "none")]).unwrap();
    assert_eq!((harmless.score, harmless.root_cause, harmless.touched_outcome.len()), (1.0, None, 0));
    // A root cause that touched nothing is none.
    assert_eq!(asked.read(&[opinion(4, &["2"], "1")]).unwrap().root_cause, None);
}

#[test]
fn several_opinions_give_the_median_and_the_findings_that_most_of_them_name() {
    let asked = outcome_question(&bridge(), &Settings::default());
    let all = [opinion(0, &["1", "2"], "2"), opinion(2, &["2", "3"], "2"), opinion(4, &["2"], "none")];
    let outcome = asked.read(&all).unwrap();
    assert_eq!((outcome.score, outcome.root_cause), (0.4, Some(3)));
    assert_eq!(outcome.touched_outcome, [FindingRef { at: 3, metric: "reasoning_integrity", index: 0 }]);
    assert_eq!(asked.read(&all[..2]).unwrap().score, 0.2, "of two the middle");
    let weighted = Opinion { weighted: Some(1.5), ..opinion(1, &[], "none") };
    assert_eq!(asked.read(&[weighted]).unwrap().score, 0.3);
}

#[test]
fn unreadable_opinions_are_left_out_and_unknown_numbers_ignored() {
    let asked = outcome_question(&bridge(), &Settings::default());
    let value = |value: Json| Opinion { value, weighted: None, judge: "m/0".into() };
    for broken in
        [json!({}), json!({ "score": 6, "touched_outcome": [] }), json!({ "score": 1 }), json!(null)]
    {
        assert_eq!(asked.read(&[value(broken.clone())]), None, "{broken}");
    }
    let odd = asked
        .read(&[value(json!({ "score": 1, "touched_outcome": ["0", "9", "x", 1, "2"], "root_cause": 7 }))]);
    assert_eq!(odd.unwrap().touched_outcome.len(), 1);
    assert_eq!(asked.read(&[]), None);
}

#[test]
fn findings_of_rules_are_withheld_where_content_is() {
    let mut trace = bridge();
    trace.views.iter_mut().for_each(|view| view.service = Some("payroll".into()));
    let settings = asked_with(Settings::default(), |ask| ask.withhold = vec!["payroll".to_owned()]);
    let text = outcome_question(&trace, &settings).question.prompt.user.to_string();
    assert!(!text.contains("The result says 1883.") && !text.contains("Kirchenfeld"), "{text}");
    assert!(text.contains("The year is wrong."), "a judge was not shown it either");
}

#[test]
fn question_is_of_bounded_size_and_states_that_findings_are_left_out() {
    let long = |i: usize| Finding {
        severity: Severity::Medium,
        ..Finding::new(format!("{i} {}", "why ".repeat(500)), "quote", 2.0)
    };
    let measurements = [failed_measurement(3, "reasoning_integrity", (0..200).map(long).collect())];
    let settings = asked_with(Settings::default(), |ask| ask.max_prompt_tokens = 8_000);
    let question = OutcomeQuestion::new(&settings.asker, &bridge(), &measurements).unwrap().question;
    assert!(question.prompt.user.len() < 8_000 * prompt_page::BYTES_PER_TOKEN);
    assert!(question.prompt.user.contains("milder ones are not shown"));
    // One finding is shown however little room there is.
    assert!(question.prompt.user.contains("finding 1:"));
}
