//! The benchmark's five trace scores, 1 to 5, and their agreement with verdicts.
//!
//! In: an evaluated trace's findings. Out: [`Ratings`] by a fixed rule, and their correlation with the annotators'
//! scores. Neither paper gives a rule; this one is not fitted to the data.
//!
//! **Rule.** Each score starts at 5 and depends on the findings of some categories. The worst finding among
//! them subtracts 3 (high), 1.5 (medium) or 0.5 (low). Each further category subtracts 0.25, and all together
//! not more than 1. A finding without effect on the outcome (the run recovered from it, or it concerns the
//! process) counts as low, because annotators rate the result of the run. Security is rated only if a metric
//! measures harmful calls. Overall is the mean of the available scores, as in the benchmark.

use std::collections::BTreeSet;

use verdict_eval::metrics::HARMFUL_CALL;
use verdict_eval::metrics::{Category, Measurement, Severity};
use verdict_eval::propagation::{
    self, OutcomeModel, Policies, Policy, Relevance, RootPolicy, SeverityWeights,
};
use verdict_eval::trace::AgentTrace;

use super::annotation::Ratings;
use super::placement::LocatedFinding;
use crate::score::correlation::{pearson, spearman};
use crate::score::counts::Confusion;

/// The best and the worst score of the benchmark's scale.
const BEST: f64 = 5.0;
const WORST: f64 = 1.0;
/// The deduction for each further category, in addition to the deduction for the worst finding.
const FURTHER_CATEGORY: f64 = 0.25;
/// Largest sum of the deductions for further categories.
const MAX_FURTHER_DEDUCTION: f64 = 1.0;
/// Lowest overall score of a passing trace, as the benchmark defines it (the upper half of its scale).
pub const PASSES: f64 = 3.5;

/// The deduction of the worst finding.
fn deduction(severity: Severity) -> f64 {
    match severity {
        Severity::High => 3.0,
        Severity::Medium => 1.5,
        Severity::Low => 0.5,
    }
}

/// Whether a finding of the category affects the score of reliability.
fn affects_reliability(category: Category) -> bool {
    !matches!(
        category,
        Category::InstructionNonCompliance | Category::ResourceAbuse | Category::TaskOrchestration
    )
}

/// Whether a finding of the category affects the score of instruction adherence.
fn affects_instructions(category: Category) -> bool {
    matches!(
        category,
        Category::InstructionNonCompliance | Category::FormattingErrors | Category::GoalDeviation
    )
}

/// Whether a finding of the category affects the score of plan optimisation.
fn affects_plan(category: Category) -> bool {
    matches!(
        category,
        Category::TaskOrchestration
            | Category::GoalDeviation
            | Category::ResourceAbuse
            | Category::ToolSelectionErrors
            | Category::PoorInformationRetrieval
            | Category::IncorrectProblemIdentification
            | Category::ContextHandlingFailures
    )
}

/// Scores a trace; `None` for every score if nothing was measured.
pub fn rate(trace: &AgentTrace, measurements: &[Measurement], located: &[LocatedFinding<'_>]) -> Ratings {
    if measurements.iter().all(|m| m.outcome.is_err()) {
        return Ratings::default();
    }
    let mut failing = vec![false; trace.tree.len()];
    for m in measurements.iter().filter(|m| m.outcome.as_ref().is_ok_and(|o| !o.passed)) {
        if let Some(is_failing) = failing.get_mut(m.at) {
            *is_failing = true;
        }
    }
    let relevance = Relevance::new(trace, &failing, &[]);
    let counted: Vec<(Category, Severity)> = located
        .iter()
        .map(|f| {
            let severity = f.finding.severity;
            let affects_outcome = relevance.affects_outcome(f.measured_at, severity, &[f.metric]);
            (f.category, if affects_outcome { severity } else { Severity::Low })
        })
        .collect();
    let [reliability, adherence, plan] = [affects_reliability, affects_instructions, affects_plan]
        .map(|affects| Some(score(&counted, affects)));
    let scores = [reliability, security(measurements), adherence, plan];
    let rated: Vec<f64> = scores.into_iter().flatten().collect();
    let overall = Some(rated.iter().sum::<f64>() / rated.len() as f64);
    let [reliability, security, adherence, plan] = scores;
    Ratings([reliability, security, adherence, plan, overall])
}

/// The score that depends on the findings of the categories that `affects` selects.
fn score(findings: &[(Category, Severity)], affects: fn(Category) -> bool) -> f64 {
    let relevant = findings.iter().filter(|(category, _)| affects(*category));
    let Some(worst) = relevant.clone().map(|(_, severity)| *severity).max() else { return BEST };
    let categories: BTreeSet<Category> = relevant.map(|(category, _)| *category).collect();
    let further = (FURTHER_CATEGORY * (categories.len() - 1) as f64).min(MAX_FURTHER_DEDUCTION);
    (BEST - deduction(worst) - further).max(WORST)
}

fn security(measurements: &[Measurement]) -> Option<f64> {
    let harm =
        measurements.iter().filter(|m| m.metric == HARMFUL_CALL).filter_map(|m| m.outcome.as_ref().ok());
    harm.map(|m| if m.passed { BEST } else { WORST }).reduce(f64::min)
}

/// The correlation of one score with the annotators' score.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct RatingCorrelation {
    /// Traces with both scores.
    pub traces: usize,
    /// `None` if one of the two lists is constant.
    pub pearson: Option<f64>,
    /// `None` if one of the two lists is constant.
    pub spearman: Option<f64>,
    /// Whether the annotators' scores are all equal.
    #[serde(rename = "annotators_constant")]
    pub constant: bool,
}

/// The correlation of each of the five scores, in the order of `annotation::RATINGS`; `pairs` are `(ours, theirs)`.
pub fn correlate(pairs: &[(Ratings, Ratings)]) -> [RatingCorrelation; 5] {
    std::array::from_fn(|i| {
        let theirs: Vec<f64> = pairs.iter().filter_map(|(_, theirs)| theirs.0[i]).collect();
        let both: Vec<(f64, f64)> =
            pairs.iter().filter_map(|(ours, theirs)| Some((ours.0[i]?, theirs.0[i]?))).collect();
        RatingCorrelation {
            traces: both.len(),
            pearson: pearson(&both),
            spearman: spearman(&both),
            constant: !theirs.is_empty() && theirs.iter().all(|score| *score == theirs[0]),
        }
    })
}

/// The trace's verdict as configured, then under each propagation policy, with that policy's default parameters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RootVerdicts(pub Vec<(&'static str, Option<bool>)>);

/// The parameter of the propagation policy `threshold`: more than half of the children.
const ALPHA: f64 = 0.5;

impl RootVerdicts {
    /// `configured` is the verdict under the policies of the configuration.
    pub fn from_measurements(
        trace: &AgentTrace,
        measurements: &[Measurement],
        configured: Option<bool>,
    ) -> RootVerdicts {
        let policies = [
            ("existential", Policy::Existential),
            ("outcome_relevant", Policy::OutcomeRelevant),
            ("severity_weighted", Policy::SeverityWeighted(SeverityWeights::default())),
            ("threshold 0.5", Policy::Threshold { alpha: ALPHA }),
        ];
        let by_policy = policies.into_iter().map(|(name, default)| {
            let policies = Policies { default, ..Policies::default() };
            (name, propagation::propagate(trace, measurements, &policies).trace.passed)
        });
        let root = RootPolicy::ExpectedOutcome(OutcomeModel::default());
        let expected = Policies { root, ..Policies::default() };
        let expected = propagation::propagate(trace, measurements, &expected).trace.passed;
        let all = [("as configured", configured)].into_iter().chain(by_policy);
        RootVerdicts(all.chain([("expected_outcome", expected)]).collect())
    }
}

/// Passing verdicts compared with overall scores of at least [`PASSES`].
pub fn verdicts(pairs: impl IntoIterator<Item = (Option<bool>, Option<f64>)>) -> Confusion {
    let mut confusion = Confusion::default();
    let both = pairs.into_iter().filter_map(|(passed, overall)| passed.zip(overall));
    both.for_each(|(passed, overall)| confusion.count(passed, overall >= PASSES));
    confusion
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdict_eval::metrics::{Finding, Measured, Value};
    use verdict_eval::testing::Script;

    #[test]
    fn worst_finding_and_further_categories_are_deducted() {
        let all = |_| true;
        assert_eq!(score(&[], all), 5.0);
        let one = (Category::GoalDeviation, Severity::High);
        assert_eq!(score(&[one], all), 2.0);
        assert_eq!(score(&[one, one, (Category::GoalDeviation, Severity::Low)], all), 2.0);
        assert_eq!(score(&[one, (Category::TimeoutIssues, Severity::Low)], all), 1.75);
        let many: Vec<_> = Category::ALL.into_iter().map(|c| (c, Severity::High)).collect();
        assert_eq!(score(&many, all), 1.0);
        assert_eq!(score(&[(Category::ResourceAbuse, Severity::High)], affects_instructions), 5.0);
    }

    #[test]
    fn every_category_affects_a_score() {
        let on_any = |c| affects_reliability(c) || affects_instructions(c) || affects_plan(c);
        assert!(Category::ALL.into_iter().all(on_any));
    }

    #[test]
    fn constant_score_has_no_correlation_and_is_reported() {
        let ratings = |overall, security| Ratings([None, Some(security), None, None, Some(overall)]);
        let pairs = [
            (ratings(1.0, 4.0), ratings(2.0, 5.0)),
            (ratings(2.0, 5.0), ratings(3.0, 5.0)),
            (ratings(3.0, 1.0), ratings(5.0, 5.0)),
        ];
        let [reliability, security, .., overall] = correlate(&pairs);
        assert_eq!((security.pearson, security.constant), (None, true));
        assert_eq!(overall.spearman, Some(1.0));
        assert_eq!((reliability.traces, reliability.constant), (0, false));
    }

    #[test]
    fn a_root_has_a_verdict_under_each_policy() {
        // One of four calls fails, with medium severity, and the run recovers from it.
        let trace = Script::new("find it")
            .tools(&["look"])
            .calls("looking", &[("look", r#"{"q": 1}"#)])
            .raises("timed out")
            .calls("again", &[("look", r#"{"q": 1}"#)])
            .returns("it is 7")
            .answers("it is 7")
            .build();
        let measured = |at: usize, finding: Option<Finding>| {
            let passed = finding.is_none();
            let findings = finding.into_iter().collect();
            let measured = Measured { value: Value::Score(if passed { 5.0 } else { 2.0 }), passed, findings };
            Measurement::new(at, "tool_completeness", "rules/1", Ok(measured))
        };
        let calls: Vec<usize> = (1..trace.tree.len()).collect();
        let tool =
            (0..trace.tree.len()).find(|&i| trace.views[i].kind == verdict_eval::trace::Kind::Tool).unwrap();
        let failure = |at: usize| (at == tool).then(|| Finding::new("it timed out", "timed out", 2.0));
        let measurements: Vec<Measurement> = calls.iter().map(|&at| measured(at, failure(at))).collect();
        let RootVerdicts(by_policy) = RootVerdicts::from_measurements(&trace, &measurements, None);
        let expected = [
            ("as configured", None),
            ("existential", Some(false)),
            ("outcome_relevant", Some(true)),
            ("severity_weighted", Some(true)),
            ("threshold 0.5", Some(true)),
        ];
        let (last, others) = by_policy.split_last().unwrap();
        assert_eq!((others, last.0), (&expected[..], "expected_outcome"));
    }

    #[test]
    fn verdicts_are_compared_with_overall_scores() {
        let predicted =
            [(Some(true), Some(3.5)), (Some(false), Some(3.4)), (Some(true), Some(2.0)), (None, Some(5.0))];
        assert_eq!(verdicts(predicted), Confusion { tp: 1, fp: 1, fn_: 0, tn: 1 });
    }

    #[test]
    fn trace_without_measurements_has_no_scores() {
        assert_eq!(rate(&AgentTrace::default(), &[], &[]), Ratings::default());
    }
}
