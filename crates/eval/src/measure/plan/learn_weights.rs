//! Learns weights from ranked plans (004, section 4.1 and "Sensitivity").
//!
//! In: groups of plans of one query from worst to best, each with its seven values. Out: weights
//! under which better plans score higher, the share of pairs in which the better plan does, and how much the
//! ranking of planners depends on the weights.
//!
//! The sum over ordered pairs of hinge(margin - w (better - worse)), plus a penalty on the distance
//! from the nominal weights, is minimised by projected subgradient descent over two simplices:
//! weights are never negative and each group keeps its budget (0.7 and 0.3). The problem is convex
//! and the steps are fixed, so the same pairs give the same weights.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::part::{EFFECTIVENESS, EFFICIENCY, PartValues, PlanWeights, weighted_mean};
use super::rank::spearman;
use crate::measure::median::median;
use crate::measure::metric_names::PlanPart;

/// The difference by which a better plan should score higher, on 0 to 1: one violated step in ten, of a metric
/// whose weight is a fifth.
const MARGIN: f64 = 0.02;
/// Weight of the penalty: small compared to one violated pair in ten, so that it matters only if the pairs do not
/// determine the weights.
const PENALTY_WEIGHT: f64 = 0.05;
/// Number of steps of the descent; the fourth decimal of the weights converges much earlier.
const STEPS: usize = 4000;
/// Number of random weight vectors of the sensitivity analysis, as in the paper.
pub(crate) const DRAWS: usize = 10;
/// Seed of the draws, fixed so that results are reproducible.
const SEED: u64 = 4;

/// A ranked plan with its measured values.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RankedPlan {
    /// Values from 0 to 1 by metric, with or without `plan.` before the name.
    pub metrics: BTreeMap<String, Option<f64>>,
    /// The planner that wrote the plan, to rank planners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planner: Option<String>,
}

impl RankedPlan {
    /// The values in the order of [`PlanPart::ALL`].
    pub fn values(&self) -> PartValues {
        PlanPart::ALL.map(|part| {
            let value = self.metrics.get(part.metric()).or_else(|| self.metrics.get(part.name()));
            value.copied().flatten().filter(|v| v.is_finite()).map(|v| v.clamp(0.0, 1.0))
        })
    }
}

/// The result of learning.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LearntWeights {
    /// In the form of `verdict.metrics.plan.weights`; their sum is 100.
    pub weights: PlanWeights,
    /// The number of groups of at least two plans.
    pub groups: usize,
    /// The number of ordered pairs: three in a group of three plans.
    pub pairs: usize,
    /// The share of pairs in which the better plan scores strictly higher under the learnt weights.
    pub agreement: f64,
    /// The agreement under the nominal weights.
    pub nominal_agreement: f64,
    /// How the ranking changes with other weights.
    pub sensitivity: Sensitivity,
    /// The agreement of each metric alone with the order of the plans (table 21).
    pub metrics: Vec<MetricAgreement>,
}

/// How often one metric agrees with the order of ranked plans.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MetricAgreement {
    pub metric: &'static str,
    /// The number of ordered pairs in which both plans have a value.
    pub pairs: usize,
    /// The share of these pairs in which the better plan has the higher value; `None` without a pair.
    pub strict: Option<f64>,
    /// The share of these pairs in which the better plan has no lower value (relaxed, as in the paper).
    pub relaxed: Option<f64>,
}

/// Spearman's correlation of the ranking under the learnt weights with the rankings under others: of planners
/// by mean score if at least two are named, otherwise of plans.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sensitivity {
    /// The number of ranked planners or plans.
    pub ranked: usize,
    /// Under seven equal weights.
    pub equal: Option<f64>,
    /// Under ten draws from a flat Dirichlet distribution over each group, with the points of groups
    /// unchanged.
    pub draws: Vec<Option<f64>>,
    pub median: Option<f64>,
}

/// Learns weights from `groups` of plans, each sorted from worst to best. `None` without an ordered pair.
pub fn learn_weights(groups: &[Vec<RankedPlan>]) -> Option<LearntWeights> {
    let all: Vec<Vec<PartValues>> =
        groups.iter().map(|g| g.iter().map(RankedPlan::values).collect()).collect();
    let pairs: Vec<[f64; 7]> = all.iter().flat_map(|group| differences(group)).collect();
    if pairs.is_empty() {
        return None;
    }
    let nominal = PlanWeights::default().to_array().map(|w| w / (EFFECTIVENESS + EFFICIENCY));
    let learnt = descend(&pairs, &nominal);
    Some(LearntWeights {
        weights: PlanWeights::from_array(learnt.map(|w| w * (EFFECTIVENESS + EFFICIENCY))),
        groups: all.iter().filter(|g| g.len() > 1).count(),
        pairs: pairs.len(),
        agreement: agreement(&pairs, &learnt),
        nominal_agreement: agreement(&pairs, &nominal),
        sensitivity: sensitivity(groups, &learnt),
        metrics: PlanPart::ALL.into_iter().map(|part| metric_agreement(part, &all)).collect(),
    })
}

/// The agreement of one metric with the order of the plans.
fn metric_agreement(part: PlanPart, groups: &[Vec<PartValues>]) -> MetricAgreement {
    let (mut pairs, mut higher, mut lower) = (0usize, 0usize, 0usize);
    for group in groups {
        let values = group.iter().map(|values| values[part as usize]).collect::<Vec<_>>();
        for (i, worse) in values.iter().enumerate() {
            for (worse, better) in values[i + 1..].iter().filter_map(|better| (*worse).zip(*better)) {
                pairs += 1;
                higher += usize::from(better > worse);
                lower += usize::from(better < worse);
            }
        }
    }
    let share = |count: usize| (pairs > 0).then(|| count as f64 / pairs as f64);
    MetricAgreement { metric: part.name(), pairs, strict: share(higher), relaxed: share(pairs - lower) }
}

/// For every ordered pair, the values of the better plan minus those of the worse one; 0 for a metric without both
/// values.
fn differences(group: &[PartValues]) -> Vec<[f64; 7]> {
    let pairs = group
        .iter()
        .enumerate()
        .flat_map(|(i, worse)| group[i + 1..].iter().map(move |better| (better, worse)));
    let difference = |(better, worse): (&PartValues, &PartValues)| {
        std::array::from_fn(|i| better[i].zip(worse[i]).map_or(0.0, |(better, worse)| better - worse))
    };
    pairs.map(difference).collect()
}

fn dot(a: &[f64; 7], b: &[f64; 7]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The share of pairs in which the better plan scores strictly higher.
fn agreement(pairs: &[[f64; 7]], weights: &[f64; 7]) -> f64 {
    // The tolerance excludes rounding errors of equal scores.
    let agreeing = pairs.iter().filter(|pair| dot(pair, weights) > 1e-12).count();
    agreeing as f64 / pairs.len() as f64
}

/// The weights of least loss, by projected subgradient descent from the nominal weights.
fn descend(pairs: &[[f64; 7]], nominal: &[f64; 7]) -> [f64; 7] {
    let loss = |w: &[f64; 7]| {
        let hinge: f64 = pairs.iter().map(|pair| (MARGIN - dot(pair, w)).max(0.0)).sum();
        let squared_distance: f64 = w.iter().zip(nominal).map(|(w, n)| (w - n).powi(2)).sum();
        hinge / pairs.len() as f64 + PENALTY_WEIGHT * squared_distance
    };
    let mut current = *nominal;
    let mut best = (loss(&current), current);
    for step in 0..STEPS {
        let mut gradient = [0.0; 7];
        for pair in pairs.iter().filter(|pair| dot(pair, &current) < MARGIN) {
            gradient.iter_mut().zip(pair).for_each(|(s, d)| *s -= d / pairs.len() as f64);
        }
        for (s, (w, n)) in gradient.iter_mut().zip(current.iter().zip(nominal)) {
            *s += 2.0 * PENALTY_WEIGHT * (w - n);
        }
        let rate = 0.5 / ((step + 1) as f64).sqrt();
        current.iter_mut().zip(&gradient).for_each(|(w, s)| *w -= rate * s);
        groups(&mut current).into_iter().for_each(|(group, share)| project_onto_simplex(group, share));
        let current_loss = loss(&current);
        if current_loss < best.0 {
            best = (current_loss, current);
        }
    }
    best.1
}

/// The weights of each group, with its share of the score.
fn groups(weights: &mut [f64; 7]) -> [(&mut [f64], f64); 2] {
    let (effective, efficient) = weights.split_at_mut(PlanPart::EFFECTIVE);
    [(effective, EFFECTIVENESS / 100.0), (efficient, EFFICIENCY / 100.0)]
}

/// Euclidean projection onto {x >= 0, sum x = total} (Duchi and others, 2008).
fn project_onto_simplex(values: &mut [f64], total: f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (mut sum, mut shift) = (0.0, 0.0);
    for (n, value) in sorted.iter().enumerate() {
        sum += value;
        let candidate = (sum - total) / (n + 1) as f64;
        if value - candidate > 0.0 {
            shift = candidate;
        }
    }
    values.iter_mut().for_each(|v| *v = (*v - shift).max(0.0));
}

/// The correlation of the ranking under the learnt weights with the rankings under equal and random weights.
fn sensitivity(groups: &[Vec<RankedPlan>], learnt: &[f64; 7]) -> Sensitivity {
    let base = scores(groups, learnt);
    let correlation = |weights: &[f64; 7]| spearman(&base, &scores(groups, weights));
    let mut random = fastrand::Rng::with_seed(SEED);
    let draws: Vec<Option<f64>> = (0..DRAWS).map(|_| correlation(&dirichlet(&mut random))).collect();
    let median = median(draws.iter().copied().flatten().collect());
    Sensitivity { ranked: base.len(), equal: correlation(&[1.0 / 7.0; 7]), draws, median }
}

/// A flat Dirichlet draw for each group: exponential variables over their sum.
fn dirichlet(random: &mut fastrand::Rng) -> [f64; 7] {
    let mut drawn = [0.0; 7];
    drawn.iter_mut().for_each(|w| *w = -(1.0 - random.f64()).max(f64::MIN_POSITIVE).ln());
    for (group, share) in groups(&mut drawn) {
        let sum: f64 = group.iter().sum();
        group.iter_mut().for_each(|w| *w *= share / sum.max(f64::MIN_POSITIVE));
    }
    drawn
}

/// Mean scores of planners, by name; the scores of plans if fewer than two planners are named.
fn scores(groups: &[Vec<RankedPlan>], weights: &[f64; 7]) -> Vec<f64> {
    let mut by_planner: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    let mut by_plan = Vec::new();
    for plan in groups.iter().flatten() {
        let score = weighted_mean(&plan.values(), weights).unwrap_or(0.0);
        by_plan.push(score);
        if let Some(planner) = &plan.planner {
            let (sum, count) = by_planner.entry(planner).or_default();
            *sum += score;
            *count += 1;
        }
    }
    if by_planner.len() < 2 {
        return by_plan;
    }
    by_planner.values().map(|(sum, count)| sum / *count as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(values: [f64; 7]) -> RankedPlan {
        let metrics =
            PlanPart::ALL.iter().zip(values).map(|(p, v)| (p.metric().to_owned(), Some(v))).collect();
        RankedPlan { metrics, planner: None }
    }

    /// Alignment rises with quality, format falls: the nominal weights get every pair wrong.
    fn groups_against_nominal_weights(n: usize) -> Vec<Vec<RankedPlan>> {
        (0..n)
            .map(|_| {
                let with_values = |alignment, format| plan([alignment, format, 1.0, 1.0, 1.0, 1.0, 1.0]);
                vec![with_values(0.2, 1.0), with_values(0.5, 0.6), with_values(0.8, 0.2)]
            })
            .collect()
    }

    #[test]
    fn weight_moves_to_the_metric_that_separates_better_from_worse() {
        let learnt = learn_weights(&groups_against_nominal_weights(5)).unwrap();
        assert_eq!((learnt.groups, learnt.pairs), (5, 15));
        assert_eq!((learnt.nominal_agreement, learnt.agreement), (0.0, 1.0));
        assert!(learnt.weights.tool_prompt_alignment > learnt.weights.format + 5.0, "{:?}", learnt.weights);
        assert!(learnt.weights.problems().is_empty());
    }

    #[test]
    fn nominal_weights_stay_if_metrics_agree() {
        let better = [plan([0.1; 7]), plan([0.5; 7]), plan([0.9; 7])];
        let learnt = learn_weights(&[better.to_vec()]).unwrap();
        let moved = learnt
            .weights
            .to_array()
            .into_iter()
            .zip(PlanWeights::default().to_array())
            .map(|(a, b)| (a - b).abs());
        assert!(moved.fold(0.0, f64::max) < 1e-6, "{:?}", learnt.weights);
        assert_eq!((learnt.agreement, learnt.sensitivity.ranked), (1.0, 3));
        assert_eq!(learnt.sensitivity.equal, Some(1.0));
        assert_eq!((learnt.sensitivity.draws.len(), learnt.sensitivity.median), (DRAWS, Some(1.0)));
    }

    #[test]
    fn planners_are_ranked_by_mean_score() {
        let mut groups = groups_against_nominal_weights(2);
        for (i, plan) in groups.iter_mut().flatten().enumerate() {
            plan.planner = Some(["a", "b", "c"][i % 3].to_owned());
        }
        assert_eq!(learn_weights(&groups).unwrap().sensitivity.ranked, 3);
    }

    #[test]
    fn no_ordered_pair_gives_no_weights() {
        assert_eq!(learn_weights(&[]), None);
        assert_eq!(learn_weights(&[vec![plan([1.0; 7])]]), None);
        let missing = RankedPlan::default();
        assert_eq!(differences(&[missing.values(), plan([1.0; 7]).values()]), [[0.0; 7]]);
    }

    proptest! {
        // Each case runs a whole descent.
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn learnt_weights_keep_group_budgets(values in prop::collection::vec(prop::array::uniform7(0.0f64..=1.0), 3..12)) {
            let groups: Vec<Vec<RankedPlan>> = values.chunks(3).map(|c| c.iter().copied().map(plan).collect()).collect();
            let learnt = learn_weights(&groups).unwrap();
            let weights = learnt.weights.to_array();
            prop_assert!(weights.iter().all(|w| *w >= 0.0));
            prop_assert!((weights[..PlanPart::EFFECTIVE].iter().sum::<f64>() - EFFECTIVENESS).abs() < 1e-6);
            prop_assert!((weights[PlanPart::EFFECTIVE..].iter().sum::<f64>() - EFFICIENCY).abs() < 1e-6);
        }

        #[test]
        fn projection_is_the_nearest_point(values in prop::array::uniform4(-1.0f64..2.0), other in prop::array::uniform4(0.0f64..1.0)) {
            let mut projected = values;
            project_onto_simplex(&mut projected, 0.7);
            prop_assert!((projected.iter().sum::<f64>() - 0.7).abs() < 1e-9);
            let sum: f64 = other.iter().sum::<f64>().max(1e-9);
            let other = other.map(|o| o * 0.7 / sum);
            let distance = |a: [f64; 4]| a.iter().zip(values).map(|(a, v)| (a - v).powi(2)).sum::<f64>();
            prop_assert!(distance(projected) <= distance(other) + 1e-9);
        }
    }
}
