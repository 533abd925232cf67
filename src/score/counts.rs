//! Hits and misses, and the shares made of them.
//!
//! In: counts. Out: precision, recall, F-beta and accuracy, all from 0 to 1. A share of nothing
//! is 0, as the benchmark's own script has it: who predicts nothing has no precision to show.

use std::ops::AddAssign;

/// What was predicted, what is right, and what is both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Predicted and right.
    pub hits: usize,
    /// Predicted.
    pub predicted: usize,
    /// Right.
    pub gold: usize,
}

impl Tally {
    /// The share of the predictions that are right.
    pub fn precision(&self) -> f64 {
        share(self.hits, self.predicted)
    }

    /// The share of what is right that was predicted.
    pub fn recall(&self) -> f64 {
        share(self.hits, self.gold)
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

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Tally) {
        self.hits += more.hits;
        self.predicted += more.predicted;
        self.gold += more.gold;
    }
}

/// A yes-or-no prediction against a yes-or-no truth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Confusion {
    /// Said yes, is yes.
    pub tp: usize,
    /// Said yes, is no.
    pub fp: usize,
    /// Said no, is yes.
    pub fn_: usize,
    /// Said no, is no.
    pub tn: usize,
}

impl Confusion {
    /// Counts one more case.
    pub fn count(&mut self, said: bool, is: bool) {
        *match (said, is) {
            (true, true) => &mut self.tp,
            (true, false) => &mut self.fp,
            (false, true) => &mut self.fn_,
            (false, false) => &mut self.tn,
        } += 1;
    }

    /// Without the cases that are rightly left alone.
    pub fn tally(&self) -> Tally {
        Tally { hits: self.tp, predicted: self.tp + self.fp, gold: self.tp + self.fn_ }
    }

    /// Cases counted.
    pub fn total(&self) -> usize {
        self.tp + self.fp + self.fn_ + self.tn
    }

    /// The share of cases told rightly.
    pub fn accuracy(&self) -> f64 {
        share(self.tp + self.tn, self.total())
    }
}

impl Confusion {
    /// Cohen's kappa of prediction and truth: the agreement beyond what their habits give. 0 for
    /// one that always says the same; `None` where both do.
    pub fn kappa(&self) -> Option<f64> {
        let of = |part: usize| share(part, self.total());
        let (said, is) = (of(self.tp + self.fp), of(self.tp + self.fn_));
        let chance = said * is + (1.0 - said) * (1.0 - is);
        (self.total() > 0 && chance < 1.0).then(|| (self.accuracy() - chance) / (1.0 - chance))
    }
}

/// `part` of `whole`; 0 of nothing.
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
        // Fifty grant proposals; then two tables with one observed agreement and other habits.
        for ([tp, fp, fn_, tn], known) in
            [([20, 5, 10, 15], 0.4), ([45, 15, 25, 15], 0.1304), ([25, 35, 5, 35], 0.2593)]
        {
            let got = Confusion { tp, fp, fn_, tn }.kappa();
            assert!(got.is_some_and(|k| close(k, known)), "{got:?}");
        }
        assert_eq!(Confusion { tp: 3, ..Confusion::default() }.kappa(), None);
        assert_eq!(Confusion { tp: 3, fp: 2, ..Confusion::default() }.kappa(), Some(0.0));
        assert_eq!(Confusion::default().kappa(), None);
    }

    #[test]
    fn a_share_of_nothing_is_0() {
        let t = Tally::default();
        assert_eq!((t.precision(), t.recall(), t.f1(), t.f(2.0)), (0.0, 0.0, 0.0, 0.0));
        assert_eq!(Confusion::default().accuracy(), 0.0);
        assert_eq!(Tally { hits: 0, predicted: 3, gold: 2 }.f1(), 0.0);
    }

    #[test]
    fn counting_puts_each_case_in_its_cell() {
        let mut c = Confusion::default();
        for (said, is) in [(true, true), (true, false), (false, true), (false, false), (true, true)] {
            c.count(said, is);
        }
        assert_eq!(c, Confusion { tp: 2, fp: 1, fn_: 1, tn: 1 });
    }
}
