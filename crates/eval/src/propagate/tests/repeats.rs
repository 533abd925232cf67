//! A defect counts once in every policy.

use super::*;
use crate::measure::Category;

/// The measurement with changed findings.
fn map_findings(m: Measurement, change: impl Fn(Finding) -> Finding) -> Measurement {
    let outcome = m.outcome.map(|measured| Measured {
        findings: measured.findings.into_iter().map(&change).collect(),
        ..measured
    });
    Measurement { outcome, ..m }
}

fn with_origin(m: Measurement, origin: usize) -> Measurement {
    map_findings(m, |finding| Finding { origin: Some(origin), ..finding })
}

fn with_category(m: Measurement, category: Category) -> Measurement {
    map_findings(m, |finding| Finding { category: Some(category), ..finding })
}

fn id(i: usize) -> SpanId {
    SpanId((i as u64 + 1).to_be_bytes())
}

fn weighted(medium: f64) -> Policies {
    policies(Policy::SeverityWeighted(SeverityWeights { medium, ..SeverityWeights::default() }))
}

/// A model writes a malformed call, the tool refuses it, and a third step is correct.
fn malformed_call() -> (AgentTrace, Vec<Measurement>) {
    let trace = trace(&[(A, None), (L, Some(0)), (T, Some(0)), (L, Some(0))]);
    let ms = vec![
        measured(1, "tool_completeness", 2.0),
        with_origin(measured(2, "tool_completeness", 2.0), 1),
        measured(3, "avoidance", 5.0),
    ];
    (trace, ms)
}

#[test]
fn malformed_call_is_one_failure_of_threshold_and_of_weights() {
    let (trace, ms) = malformed_call();
    // Two of three children fail, by one defect: one of two.
    let half = policies(Policy::Threshold { alpha: 0.5 });
    assert_eq!(propagate(&trace, &ms, &half).trace.passed, Some(true));
    let two_defects = [ms[0].clone(), measured(2, "tool_completeness", 2.0), ms[2].clone()];
    assert_eq!(propagate(&trace, &two_defects, &half).trace.passed, Some(false));
    // One failure of medium severity weighs 0.5, two 1.
    assert_eq!(propagate(&trace, &ms, &weighted(0.5)).trace.passed, Some(true));
    assert_eq!(propagate(&trace, &two_defects, &weighted(0.5)).trace.passed, Some(false));
    let verdicts = propagate(&trace, &ms, &Policies::default());
    assert_eq!((verdicts.trace.passed, verdicts.trace.failed_spans), (Some(false), vec![1]));
    assert_eq!(verdicts.by_span[2], Some(Verdict::Fail(Cause::Own)), "the tool's span keeps its verdict");
}

#[test]
fn defect_counts_with_the_worst_severity_that_was_found_of_it() {
    let (trace, mut ms) = malformed_call();
    ms[1] = with_origin(measured(2, "error_detection", 1.0), 1);
    assert_eq!(propagate(&trace, &ms, &weighted(0.5)).trace.passed, Some(false), "high weighs 1");
}

#[test]
fn failure_counts_where_its_origin_is_not_below() {
    // The model of the manager writes the call that the tool of the worker refuses.
    let trace = trace(&[(A, None), (L, Some(0)), (A, Some(0)), (T, Some(2)), (L, Some(2))]);
    let ms = [measured(1, "m", 1.0), with_origin(measured(3, "m", 1.0), 1), measured(4, "m", 5.0)];
    let third = policies(Policy::Threshold { alpha: 0.4 });
    let verdicts = propagate(&trace, &ms, &third);
    assert_eq!(
        verdicts.by_span[2],
        Some(Verdict::Fail(Cause::Children)),
        "one of the worker's two children fails"
    );
    // Of the manager's children the worker only repeats the model's failure.
    assert_eq!(verdicts.trace.passed, Some(false));
    let verdicts = propagate(&trace, &ms, &weighted(0.5));
    assert_eq!(verdicts.by_span[2], Some(Verdict::Fail(Cause::Children)));
    let high_limit =
        policies(Policy::SeverityWeighted(SeverityWeights { limit: 1.5, ..SeverityWeights::default() }));
    assert_eq!(propagate(&trace, &ms, &high_limit).trace.passed, Some(true), "one failure of weight 1");
}

#[test]
fn metric_of_a_run_that_repeats_a_failure_below_does_not_count_again() {
    let trace = trace(&[(A, None), (L, Some(0)), (T, Some(0))]);
    let fact = with_category(measured(1, "reasoning_integrity", 2.0), Category::LanguageOnly);
    let citing = |category| {
        let m = with_category(measured(0, "completeness", 2.0), category);
        map_findings(m, |finding| Finding { cited: vec![id(1)], ..finding })
    };
    let passes = |run_measurement: Measurement| {
        propagate(&trace, &[fact.clone(), run_measurement], &weighted(0.5)).trace.passed == Some(true)
    };
    assert!(passes(citing(Category::LanguageOnly)));
    assert!(
        passes(with_origin(measured(0, "completeness", 2.0), 1)),
        "as a judge names the span where it began"
    );
    assert!(!passes(citing(Category::GoalDeviation)), "another defect");
    assert!(
        !passes(with_category(measured(0, "completeness", 2.0), Category::LanguageOnly)),
        "of another span"
    );
}

#[test]
fn lower_of_two_judgements_about_one_span_counts() {
    // The span itself was not judged: the agent and the trace name it.
    let trace = trace(&[(C, None), (A, Some(0)), (L, Some(1))]);
    let ms = [
        with_origin(measured(0, "gpa.tool_calling", 2.0), 2),
        with_origin(measured(1, "gpa.tool_calling", 2.0), 2),
    ];
    let verdicts = propagate(&trace, &ms, &weighted(0.5));
    assert_eq!((verdicts.by_span[1], verdicts.by_span[0]), (Some(Verdict::Pass), Some(Verdict::Pass)));
    let verdicts = propagate(&trace, &ms, &Policies::default());
    assert_eq!((verdicts.trace.passed, verdicts.trace.failed_spans), (Some(false), vec![1]));
    assert_eq!(propagate(&trace, &ms, &weighted(1.0)).trace.passed, Some(false));
}

#[test]
fn one_failure_of_a_circle_of_origins_counts() {
    let trace = trace(&[(A, None), (L, Some(0)), (T, Some(0))]);
    let ms = [with_origin(measured(1, "m", 2.0), 2), with_origin(measured(2, "m", 2.0), 1)];
    assert_eq!(propagate(&trace, &ms, &weighted(0.5)).trace.passed, Some(true));
    let verdicts = propagate(&trace, &ms, &Policies::default());
    assert_eq!((verdicts.trace.passed, verdicts.trace.failed_spans.len()), (Some(false), 1));
}

#[test]
fn expected_outcome_counts_a_failure_whose_origin_does_not_fail() {
    let trace = trace(&[(A, None), (L, Some(0)), (T, Some(0))]);
    let terms = |ms: &[Measurement]| OutcomeEvidence::new(&trace, ms).terms;
    let tool = with_origin(measured(2, "tool_completeness", 1.0), 1);
    assert_eq!(terms(std::slice::from_ref(&tool)), terms(&[measured(2, "tool_completeness", 1.0)]));
    let model = measured(1, "tool_completeness", 1.0);
    assert_eq!(terms(&[model.clone(), tool]), terms(&[model]));
}

#[test]
fn work_on_deep_trees_is_bounded() {
    // A chain of agents, each of which repeats the failure of the model at its end.
    let n = 5_000usize;
    let nodes: Vec<(Kind, Option<usize>)> =
        (0..n).map(|i| (if i == n - 1 { L } else { A }, i.checked_sub(1))).collect();
    let trace = trace(&nodes);
    let mut ms: Vec<Measurement> =
        (0..n - 1).map(|i| with_origin(measured(i, "tool_abuse", 3.0), n - 1)).collect();
    ms.push(measured(n - 1, "avoidance", 3.0));
    let verdicts = propagate(&trace, &ms, &weighted(0.5));
    assert_eq!(verdicts.trace.passed, Some(true), "one failure of low severity");
    assert_eq!(verdicts.trace.measured, n);
}
