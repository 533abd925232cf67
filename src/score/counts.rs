//! Counts of predictions, and the shares derived from them.
//!
//! In: counts. Out: precision, recall, specificity, F-beta and accuracy, all from 0 to 1. A share of zero cases is 0,
//! as in the benchmark's own script.

use std::iter::Sum;

use serde::{Serialize, Serializer};
use serde_json::json;

/// Numbers of predictions, of gold cases, and of cases in both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PredictionTally {
    /// Cases that were predicted and are in the gold annotations.
    pub hits: usize,
    pub predicted: usize,
    pub gold: usize,
}

impl PredictionTally {
    /// The share of correct predictions.
    pub fn precision(&self) -> f64 {
        share(self.hits, self.predicted)
    }

    /// The share of gold cases that were predicted.
    pub fn recall(&self) -> f64 {
        share(self.hits, self.gold)
    }

    /// Precision, recall and F1.
    pub fn shares(&self) -> [f64; 3] {
        [self.precision(), self.recall(), self.f1()]
    }

    /// The harmonic mean of precision and recall.
    pub fn f1(&self) -> f64 {
        self.f(1.0)
    }

    /// F-beta: recall counts `beta` times as much as precision.
    pub fn f(&self, beta: f64) -> f64 {
        let (p, r, square) = (self.precision(), self.recall(), beta * beta);
        if p + r == 0.0 { 0.0 } else { (1.0 + square) * p * r / (square * p + r) }
    }
}

impl Sum for PredictionTally {
    fn sum<I: Iterator<Item = PredictionTally>>(tallies: I) -> PredictionTally {
        tallies.fold(PredictionTally::default(), |sum, tally| PredictionTally {
            hits: sum.hits + tally.hits,
            predicted: sum.predicted + tally.predicted,
            gold: sum.gold + tally.gold,
        })
    }
}

impl Serialize for PredictionTally {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let PredictionTally { hits, predicted, gold } = self;
        let [precision, recall, f1] = self.shares();
        json!({
            "hits": hits, "predicted": predicted, "gold": gold,
            "precision": precision, "recall": recall, "f1": f1,
        })
        .serialize(to)
    }
}

/// The confusion matrix of a binary prediction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Confusion {
    /// True positives.
    pub tp: usize,
    /// False positives.
    pub fp: usize,
    /// False negatives.
    pub fn_: usize,
    /// True negatives.
    pub tn: usize,
}

impl Confusion {
    pub fn count(&mut self, predicted: bool, actual: bool) {
        *match (predicted, actual) {
            (true, true) => &mut self.tp,
            (true, false) => &mut self.fp,
            (false, true) => &mut self.fn_,
            (false, false) => &mut self.tn,
        } += 1;
    }

    /// The counts without the true negatives.
    pub fn tally(&self) -> PredictionTally {
        PredictionTally { hits: self.tp, predicted: self.tp + self.fp, gold: self.tp + self.fn_ }
    }

    /// The number of cases.
    pub fn total(&self) -> usize {
        self.tp + self.fp + self.fn_ + self.tn
    }

    /// The share of correct predictions.
    pub fn accuracy(&self) -> f64 {
        share(self.tp + self.tn, self.total())
    }

    /// The share of negative cases that were not predicted.
    pub fn specificity(&self) -> f64 {
        share(self.tn, self.tn + self.fp)
    }

    /// Cohen's kappa of prediction and truth: the agreement beyond chance. 0 if one of them is constant,
    /// `None` if both are.
    pub fn kappa(&self) -> Option<f64> {
        let PredictionTally { predicted, gold, .. } = self.tally();
        let [predicted, gold] = [predicted, gold].map(|positive| share(positive, self.total()));
        let chance = predicted * gold + (1.0 - predicted) * (1.0 - gold);
        (self.total() > 0 && chance < 1.0).then(|| (self.accuracy() - chance) / (1.0 - chance))
    }
}

impl Serialize for Confusion {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (Confusion { tp, fp, fn_, tn }, tally) = (self, self.tally());
        let [precision, recall, f1] = tally.shares();
        json!({
            "tp": tp, "fp": fp, "fn": fn_, "tn": tn, "precision": precision, "recall": recall,
            "f1": f1, "f2": tally.f(2.0), "accuracy": self.accuracy(),
            "specificity": self.specificity(), "kappa": self.kappa(),
        })
        .serialize(to)
    }
}

/// The share of `part` in `whole`; 0 if `whole` is 0.
pub fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 5e-5
    }

    #[test]
    fn the_logical_consistency_judge_of_paper_000() {
        let c = Confusion { tp: 116, fp: 36, fn_: 24, tn: 105 };
        let t = c.tally();
        assert!(close(t.precision(), 0.7632) && close(t.recall(), 0.8286), "{t:?}");
        assert!(close(t.f1(), 0.7945) && close(t.f(2.0), 0.8146), "{t:?}");
        assert!(close(c.accuracy(), 0.7865), "{c:?}");
    }

    #[test]
    fn kappa_of_the_textbook_tables() {
        // Fifty grant proposals; then two tables with equal observed agreement and different marginals.
        for ([tp, fp, fn_, tn], expected) in
            [([20, 5, 10, 15], 0.4), ([45, 15, 25, 15], 0.1304), ([25, 35, 5, 35], 0.2593)]
        {
            let kappa = Confusion { tp, fp, fn_, tn }.kappa();
            assert!(kappa.is_some_and(|k| close(k, expected)), "{kappa:?}");
        }
        assert_eq!(Confusion { tp: 3, ..Confusion::default() }.kappa(), None);
        assert_eq!(Confusion { tp: 3, fp: 2, ..Confusion::default() }.kappa(), Some(0.0));
        assert_eq!(Confusion::default().kappa(), None);
    }

    #[test]
    fn a_share_of_nothing_is_0() {
        let t = PredictionTally::default();
        assert_eq!((t.precision(), t.recall(), t.f1(), t.f(2.0)), (0.0, 0.0, 0.0, 0.0));
        assert_eq!(Confusion::default().accuracy(), 0.0);
        assert_eq!(PredictionTally { hits: 0, predicted: 3, gold: 2 }.f1(), 0.0);
    }

    #[test]
    fn count_increments_the_cell_of_the_case() {
        let mut c = Confusion::default();
        for (predicted, actual) in [(true, true), (true, false), (false, true), (false, false), (true, true)]
        {
            c.count(predicted, actual);
        }
        assert_eq!(c, Confusion { tp: 2, fp: 1, fn_: 1, tn: 1 });
    }
}
