//! The threshold of a metric's scores that fits labels best.
//!
//! In: points with a score and the truth. Out: [`ThresholdFit`]: the counts of every threshold, the best threshold,
//! and its counts on traces that it was not fitted to.
//!
//! The best threshold has the highest F1 of failing; of equal ones the lowest, which causes the fewest
//! failures. A threshold is the mean of two adjacent scores. Because fitted figures are optimistic, each
//! trace is also judged by the threshold fitted to the other traces (leave one out).

use std::collections::BTreeSet;

use serde::Serialize;

use super::counts::Confusion;
use super::metrics::LabelledMeasurement;

/// A threshold, and the counts if scores below it fail.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Cut {
    #[serde(flatten)]
    pub counts: Confusion,
    /// On the metric's scale.
    pub tau: f64,
}

/// A metric's thresholds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ThresholdFit {
    /// Points with a score.
    pub points: usize,
    pub best: Cut,
    /// The counts where each trace has the threshold fitted to the others; `None` for a single trace.
    pub held_out: Option<Confusion>,
    /// The counts with the configured threshold.
    #[serde(rename = "now")]
    pub configured: Confusion,
    /// Every threshold, from the lowest, with which nothing fails.
    pub curve: Vec<Cut>,
}

impl ThresholdFit {
    /// `None` if nothing can be fitted: no failing or no passing case, or only one score.
    pub fn from_points(points: &[LabelledMeasurement]) -> Option<ThresholdFit> {
        let scored: Vec<LabelledMeasurement> = points.iter().filter(|p| p.score.is_some()).copied().collect();
        let curve = curve(&scored);
        let failing = scored.iter().filter(|p| p.should_fail).count();
        if curve.len() < 2 || failing == 0 || failing == scored.len() {
            return None;
        }
        let configured = super::metrics::confusion(&scored);
        let best = best(&curve)?;
        Some(ThresholdFit { points: scored.len(), best, held_out: held_out(&scored), configured, curve })
    }
}

/// A cut at the lowest score and between each two adjacent scores of `points`.
fn curve(points: &[LabelledMeasurement]) -> Vec<Cut> {
    let score = |point: &LabelledMeasurement| point.score.unwrap_or_default();
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| score(a).total_cmp(&score(b)));
    let failing = sorted.iter().filter(|p| p.should_fail).count();
    let mut counts = Confusion { fn_: failing, tn: sorted.len() - failing, ..Confusion::default() };
    let mut cuts = Vec::new();
    let mut previous_score: Option<f64> = None;
    for group in sorted.chunk_by(|a, b| a.score == b.score) {
        let score = score(&group[0]);
        cuts.push(Cut { tau: previous_score.map_or(score, |low| low + (score - low) / 2.0), counts });
        let failing = group.iter().filter(|point| point.should_fail).count();
        counts.tp += failing;
        counts.fn_ -= failing;
        counts.fp += group.len() - failing;
        counts.tn -= group.len() - failing;
        previous_score = Some(score);
    }
    cuts
}

fn best(curve: &[Cut]) -> Option<Cut> {
    let f1 = |cut: &Cut| cut.counts.tally().f1();
    curve.iter().copied().reduce(|best, cut| if f1(&cut) > f1(&best) { cut } else { best })
}

fn held_out(points: &[LabelledMeasurement]) -> Option<Confusion> {
    let traces: BTreeSet<usize> = points.iter().map(|p| p.trace).collect();
    if traces.len() < 2 {
        return None;
    }
    let mut counts = Confusion::default();
    for trace in traces {
        let (test_points, others): (Vec<LabelledMeasurement>, Vec<LabelledMeasurement>) =
            points.iter().partition(|p| p.trace == trace);
        let tau = best(&curve(&others))?.tau;
        test_points
            .iter()
            .for_each(|p| counts.count(p.score.is_some_and(|score| score < tau), p.should_fail));
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(trace: usize, score: f64, should_fail: bool) -> LabelledMeasurement {
        LabelledMeasurement { trace, failed: score < 4.0, score: Some(score), should_fail }
    }

    #[test]
    fn the_best_threshold_separates_the_classes() {
        let points: Vec<LabelledMeasurement> = (0..8)
            .flat_map(|t| {
                [point(t, 1.0, true), point(t, 2.0, true), point(t, 3.0, false), point(t, 5.0, false)]
            })
            .collect();
        let fit = ThresholdFit::from_points(&points).unwrap();
        assert_eq!(fit.best.tau, 2.5);
        assert_eq!(fit.best.counts, Confusion { tp: 16, fp: 0, fn_: 0, tn: 16 });
        assert_eq!(fit.configured, Confusion { tp: 16, fp: 8, fn_: 0, tn: 8 });
        assert_eq!(fit.held_out, Some(fit.best.counts));
        assert_eq!(fit.curve.iter().map(|c| c.tau).collect::<Vec<_>>(), [1.0, 1.5, 2.5, 4.0]);
        assert_eq!(fit.curve[0].counts.tally().predicted, 0);
    }

    #[test]
    fn the_held_out_f1_of_a_chance_fit_is_lower() {
        // Each trace's failing score is another's passing one: any fit is chance.
        let points = [point(0, 1.0, true), point(0, 2.0, false), point(1, 2.0, true), point(1, 3.0, false)];
        let fit = ThresholdFit::from_points(&points).unwrap();
        assert!(fit.held_out.unwrap().tally().f1() < fit.best.counts.tally().f1());
    }

    #[test]
    fn without_two_classes_and_two_scores_there_is_no_fit() {
        assert_eq!(ThresholdFit::from_points(&[]), None);
        assert_eq!(ThresholdFit::from_points(&[point(0, 1.0, true), point(1, 2.0, true)]), None);
        assert_eq!(ThresholdFit::from_points(&[point(0, 1.0, true), point(1, 1.0, false)]), None);
        let label = LabelledMeasurement { score: None, ..point(0, 1.0, true) };
        assert_eq!(ThresholdFit::from_points(&[label, label]), None);
    }

    #[test]
    fn every_cut_has_the_counts_of_its_threshold() {
        let points: Vec<LabelledMeasurement> =
            (0..50usize).map(|i| point(i % 7, (i * 37 % 11) as f64 / 2.0, i % 3 == 0)).collect();
        let fit = ThresholdFit::from_points(&points).unwrap();
        for cut in &fit.curve {
            let mut counts = Confusion::default();
            points.iter().for_each(|p| counts.count(p.score.is_some_and(|s| s < cut.tau), p.should_fail));
            assert_eq!(counts, cut.counts, "{}", cut.tau);
        }
    }
}
