//! Agreement of a judge's scores with annotators' scores (paper 000, section 4.1.2 and tables 4, 8 and 17).
//!
//! In: pairs of scores on one scale, ours and theirs. Out: [`Agreement`]. Shares are from 0 to 1.
//! Scores may be between points of the scale: they are equal when they round to the same point
//! (halves up), and off by one when they are at most one point apart.

use std::collections::BTreeMap;

use serde::Serialize;

use super::alpha::{Level, alpha};
use super::correlation::{pearson, spearman};
use super::counts::share;

/// The agreement of two lists of scores: the figures of paper 000, and chance-corrected coefficients.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Agreement {
    pub pairs: usize,
    /// Share of pairs at the same point of the scale.
    pub exact: f64,
    /// Share of pairs at most one point apart.
    pub off_by_one: f64,
    /// Share of pairs at most two points apart.
    pub off_by_two: f64,
    /// Share of pairs in the same of three buckets: worst, between, best.
    pub bucketed: f64,
    /// Share of pairs of which both scores are errors (the worst bucket), or neither: the paper's Acc-2pt, "a binary
    /// 2-point score (error vs. correct)" (000, table 17).
    pub two_point: f64,
    /// `None` if one of the two lists is constant.
    pub pearson: Option<f64>,
    /// `None` if one of the two lists is constant.
    pub spearman: Option<f64>,
    /// Mean absolute error over the scale's range.
    pub nmae: f64,
    /// Cohen's kappa over points; `None` if all points are equal.
    pub kappa: Option<f64>,
    /// Krippendorff's alpha, interval.
    #[serde(rename = "alpha_interval")]
    pub alpha: Option<f64>,
}

impl Agreement {
    /// The agreement of the pairs `(ours, theirs)`, on a scale from the lowest to the highest score; `None` without
    /// pairs, or if the scale has no range.
    pub fn from_pairs(pairs: &[(f64, f64)], scale: (f64, f64)) -> Option<Agreement> {
        let range = scale.1 - scale.0;
        if pairs.is_empty() || !range.is_finite() || range <= 0.0 {
            return None;
        }
        let count = |agrees: &dyn Fn(f64, f64) -> bool| {
            share(pairs.iter().filter(|(a, b)| agrees(*a, *b)).count(), pairs.len())
        };
        let error = pairs.iter().map(|(a, b)| (a - b).abs()).sum::<f64>() / pairs.len() as f64;
        let points: Vec<(i64, i64)> = pairs.iter().map(|(a, b)| (point(*a), point(*b))).collect();
        let units: Vec<Vec<f64>> = pairs.iter().map(|(a, b)| vec![*a, *b]).collect();
        Some(Agreement {
            pairs: pairs.len(),
            exact: count(&|a, b| point(a) == point(b)),
            // The tolerance absorbs rounding errors: 1.1 - 0.1 may be greater than 1.
            off_by_one: count(&|a, b| (a - b).abs() <= 1.0 + 1e-9),
            off_by_two: count(&|a, b| (a - b).abs() <= 2.0 + 1e-9),
            bucketed: count(&|a, b| bucket(a, scale) == bucket(b, scale)),
            two_point: count(&|a, b| (bucket(a, scale) == 0) == (bucket(b, scale) == 0)),
            nmae: error / range,
            pearson: pearson(pairs),
            spearman: spearman(pairs),
            kappa: kappa(&points),
            alpha: alpha(&units, Level::Interval),
        })
    }
}

/// The point of the scale nearest to a score.
fn point(score: f64) -> i64 {
    (score + 0.5).floor() as i64
}

/// Worst, between, or best: judges and annotators confuse the middle points (000, section 4.1.2).
fn bucket(score: f64, (min, max): (f64, f64)) -> u8 {
    match point(score) {
        p if p <= point(min) => 0,
        p if p >= point(max) => 2,
        _ => 1,
    }
}

/// Cohen's kappa: the agreement of two raters beyond chance. `None` without pairs, or if both raters always
/// give the same value.
pub fn kappa<L: Ord + Copy>(pairs: &[(L, L)]) -> Option<f64> {
    let n = pairs.len() as f64;
    let mut counts: BTreeMap<L, (f64, f64)> = BTreeMap::new();
    for (a, b) in pairs {
        counts.entry(*a).or_default().0 += 1.0;
        counts.entry(*b).or_default().1 += 1.0;
    }
    if counts.len() < 2 {
        return None;
    }
    let observed = pairs.iter().filter(|(a, b)| a == b).count() as f64 / n;
    let expected: f64 = counts.values().map(|(a, b)| a / n * (b / n)).sum();
    Some((observed - expected) / (1.0 - expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(cells: [usize; 4]) -> Vec<(bool, bool)> {
        let pairs = [(true, true), (true, false), (false, true), (false, false)];
        pairs.into_iter().zip(cells).flat_map(|(pair, times)| vec![pair; times]).collect()
    }

    #[test]
    fn kappa_of_the_textbook_tables() {
        // Fifty grant proposals; then two tables with equal observed agreement and different marginals.
        for (cells, expected) in
            [([20, 5, 10, 15], 0.4), ([45, 15, 25, 15], 0.1304), ([25, 35, 5, 35], 0.2593)]
        {
            let actual = kappa(&table(cells)).unwrap();
            assert!((actual - expected).abs() < 5e-5, "{cells:?}: {actual}");
        }
    }

    #[test]
    fn kappa_without_variation_is_undefined() {
        assert_eq!(kappa(&table([7, 0, 0, 0])), None);
        assert_eq!(kappa::<i64>(&[]), None);
        assert_eq!(kappa(&table([0, 3, 3, 0])), Some(-1.0));
    }

    #[test]
    fn seventeen_traces_with_four_misses_on_a_range_of_two() {
        let pairs: Vec<(f64, f64)> = (0..17)
            .map(|i| (f64::from(i % 2), if i < 4 { f64::from(i % 2) + 1.0 } else { f64::from(i % 2) }))
            .collect();
        let a = Agreement::from_pairs(&pairs, (0.0, 2.0)).unwrap();
        assert!((a.nmae - 0.118).abs() < 5e-4, "{}", a.nmae);
        assert!((a.exact - 13.0 / 17.0).abs() < 1e-12);
        assert_eq!(a.off_by_one, 1.0);
    }

    #[test]
    fn the_middle_scores_of_four_are_one_bucket() {
        let scale = (0.0, 3.0);
        let a = Agreement::from_pairs(&[(0.0, 0.0), (1.0, 2.0), (2.0, 3.0), (3.0, 3.0)], scale).unwrap();
        assert_eq!((a.exact, a.off_by_one, a.bucketed), (0.5, 1.0, 0.75));
        // 0 against 3 is three points apart; 1 and 2 are no errors, 0 is one.
        let distant =
            Agreement::from_pairs(&[(0.0, 3.0), (1.0, 3.0), (0.0, 1.0), (1.0, 2.0)], scale).unwrap();
        assert_eq!((distant.off_by_one, distant.off_by_two, distant.two_point), (0.5, 0.75, 0.5));
        let halves = Agreement::from_pairs(&[(2.5, 3.0), (1.0, 2.4)], scale).unwrap();
        assert_eq!((halves.exact, halves.off_by_one), (0.5, 0.5));
    }

    #[test]
    fn without_pairs_or_range_there_is_no_agreement() {
        assert_eq!(Agreement::from_pairs(&[], (0.0, 1.0)), None);
        assert_eq!(Agreement::from_pairs(&[(1.0, 1.0)], (1.0, 1.0)), None);
    }
}
