//! The root cause, and the verdict of a trace by judges.

use super::*;
use crate::measure::ask::outcome::{FindingRef, RunOutcome};

fn outcome(touched_outcome: &[usize], root_cause: Option<usize>) -> RunOutcome {
    let reference = |&span: &usize| FindingRef { at: span, metric: "m", index: 0 };
    RunOutcome {
        score: 0.4,
        root_cause,
        touched_outcome: touched_outcome.iter().map(reference).collect(),
        asked: [1, 2].iter().map(reference).collect(),
        judge: "j/0".to_owned(),
        rationale: String::new(),
    }
}

fn judged_verdicts(ms: &[Measurement], root: RootPolicy, outcome: Option<RunOutcome>) -> Verdicts {
    let trace = trace(&[(A, None), (L, Some(0)), (T, Some(0))]);
    let policies = Policies { root, ..Policies::default() };
    propagate_with(&trace, ms, Basis { policies: &policies, custom: &[], outcome })
}

#[test]
fn root_cause_is_where_the_worst_failure_began_unless_judges_name_another() {
    let mut tool = measured(2, "m", 1.0);
    let ms = [measured(1, "m", 3.0), tool.clone()];
    assert_eq!(judged_verdicts(&ms, RootPolicy::Inherit, None).trace.root_cause, Some(2));
    tool.outcome.as_mut().unwrap().findings[0].origin = Some(1);
    let verdicts = judged_verdicts(&[tool], RootPolicy::Inherit, None).trace;
    assert_eq!(
        (verdicts.failed_spans, verdicts.root_cause),
        (vec![2], Some(1)),
        "the model call was not measured"
    );
    let verdicts = judged_verdicts(&ms, RootPolicy::Inherit, Some(outcome(&[1], Some(1)))).trace;
    assert_eq!((verdicts.passed, verdicts.root_cause), (Some(false), Some(1)));
    let passing = [measured(1, "m", 5.0)];
    assert_eq!(judged_verdicts(&passing, RootPolicy::Inherit, None).trace.root_cause, None);
}

#[test]
fn judged_root_fails_if_a_finding_touched_the_outcome() {
    let ms = [measured(1, "m", 1.0), measured(2, "m", 1.0)];
    let harmless = judged_verdicts(&ms, RootPolicy::Judged, Some(outcome(&[], None)));
    assert_eq!((harmless.trace.passed, harmless.by_span[0]), (Some(true), Some(Verdict::Pass)));
    assert_eq!((harmless.by_span[1], harmless.trace.root_cause), (Some(Verdict::Fail(Cause::Own)), None));
    let touched = judged_verdicts(&ms, RootPolicy::Judged, Some(outcome(&[2], Some(2)))).trace;
    assert_eq!((touched.passed, touched.root_cause), (Some(false), Some(2)));
    assert_eq!(touched.touched_outcome(2, "m", 0), Some(true));
    assert_eq!(touched.touched_outcome(1, "m", 0), Some(false));
    assert_eq!(touched.touched_outcome(1, "other", 0), None, "judges were not asked about it");
    // Without an answer the policies decide.
    assert_eq!(judged_verdicts(&ms, RootPolicy::Judged, None).trace.passed, Some(false));
    assert_eq!(judged_verdicts(&ms, RootPolicy::Inherit, Some(outcome(&[], None))).trace.passed, Some(false));
}
