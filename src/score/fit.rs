//! Fits the weights of `propagation.root: expected_outcome` to labelled runs.
//!
//! In: by set, the terms of each run and whether it failed. Out: weights, their log loss and area under the ROC
//! curve on the runs they were fitted to, and the same on each set with weights fitted to the others.
//!
//! The model is a logistic regression with weights of at least 0 (projected gradient ascent) and a penalty that
//! keeps weights of rare terms small. Shares of failed runs differ between sets for reasons that no span shows,
//! so every set has an intercept of its own while weights are fitted; the fitted intercept is their mean. Sets
//! count alike, regardless of their size.

use serde::Serialize;
use verdict_eval::propagation::{OutcomeModel, TERMS, Terms};

/// Steps of the ascent. The function is concave and the terms are between 0 and 1, so this converges.
const STEPS: usize = 4000;
const RATE: f64 = 0.5;
/// The penalty per squared weight: some three runs of a set of a hundred.
const PENALTY: f64 = 0.01;

/// A labelled run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelledRun {
    pub terms: Terms,
    pub failed: bool,
}

/// Runs of one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSet {
    pub name: String,
    pub runs: Vec<LabelledRun>,
}

impl RunSet {
    /// Runs of one outcome fit nothing.
    pub fn is_usable(&self) -> bool {
        self.runs.iter().any(|run| run.failed) && self.runs.iter().any(|run| !run.failed)
    }
}

/// A model's figures on one set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    pub set: String,
    pub runs: usize,
    pub failed: usize,
    /// Area under the ROC curve; 0.5 is chance.
    pub auc: Option<f64>,
    /// Area with weights fitted to the other sets.
    pub auc_held_out: Option<f64>,
    /// Area with the weights that the program ships.
    pub auc_shipped: Option<f64>,
    /// Mean log loss in nats with the fitted and with the shipped weights.
    pub log_loss: f64,
    pub log_loss_shipped: f64,
}

/// A fit with its figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutcomeFit {
    pub model: OutcomeModel,
    pub sets: Vec<Figures>,
}

impl OutcomeFit {
    /// The fit to all usable sets; `None` if there is none.
    pub fn from_sets(sets: &[RunSet]) -> Option<OutcomeFit> {
        let usable: Vec<&RunSet> = sets.iter().filter(|set| set.is_usable()).collect();
        let model = fit(&usable)?;
        let shipped = OutcomeModel::default();
        let figures = |set: &&RunSet| {
            let others: Vec<&RunSet> =
                usable.iter().copied().filter(|other| other.name != set.name).collect();
            Figures {
                set: set.name.clone(),
                runs: set.runs.len(),
                failed: set.runs.iter().filter(|run| run.failed).count(),
                auc: auc(&model, &set.runs),
                auc_held_out: fit(&others).and_then(|model| auc(&model, &set.runs)),
                auc_shipped: auc(&shipped, &set.runs),
                log_loss: log_loss(&model, &set.runs),
                log_loss_shipped: log_loss(&shipped, &set.runs),
            }
        };
        Some(OutcomeFit { model, sets: usable.iter().map(figures).collect() })
    }
}

/// The weights of greatest penalised likelihood.
fn fit(sets: &[&RunSet]) -> Option<OutcomeModel> {
    if sets.is_empty() {
        return None;
    }
    let mut weights = [0.0; TERMS.len()];
    let mut intercepts = vec![0.0; sets.len()];
    for _ in 0..STEPS {
        let mut slope = weights.map(|weight: f64| -2.0 * PENALTY * weight);
        for (set, intercept) in sets.iter().zip(&mut intercepts) {
            let model = OutcomeModel::new(*intercept, weights);
            let share = 1.0 / (set.runs.len() as f64 * sets.len() as f64);
            let mut rise = 0.0;
            for run in &set.runs {
                let error = f64::from(u8::from(run.failed)) - model.probability(&run.terms);
                rise += error / set.runs.len() as f64;
                slope.iter_mut().zip(&run.terms).for_each(|(slope, term)| *slope += error * term * share);
            }
            *intercept += RATE * rise;
        }
        weights.iter_mut().zip(slope).for_each(|(weight, slope)| *weight = (*weight + RATE * slope).max(0.0));
    }
    Some(OutcomeModel::new(intercepts.iter().sum::<f64>() / sets.len() as f64, weights))
}

/// The probability that a failed run has a greater probability than a passed one; equal ones count half.
fn auc(model: &OutcomeModel, runs: &[LabelledRun]) -> Option<f64> {
    let probabilities =
        |failed: bool| runs.iter().filter(move |r| r.failed == failed).map(|r| model.probability(&r.terms));
    let (failed, passed): (Vec<f64>, Vec<f64>) =
        (probabilities(true).collect(), probabilities(false).collect());
    let ranks = super::correlation::ranks(failed.iter().chain(&passed).copied());
    let (f, p) = (failed.len() as f64, passed.len() as f64);
    let sum: f64 = ranks.iter().take(failed.len()).sum();
    (f > 0.0 && p > 0.0).then(|| (sum - f * (f + 1.0) / 2.0) / (f * p))
}

fn log_loss(model: &OutcomeModel, runs: &[LabelledRun]) -> f64 {
    let loss = |run: &LabelledRun| {
        let p = model.probability(&run.terms).clamp(1e-9, 1.0 - 1e-9);
        -(if run.failed { p } else { 1.0 - p }).ln()
    };
    runs.iter().map(loss).sum::<f64>() / runs.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(counts: &[(Terms, u32, u32)]) -> Vec<LabelledRun> {
        let expand = |&(terms, failed, passed): &(Terms, u32, u32)| {
            (0..failed + passed).map(move |n| LabelledRun { terms, failed: n < failed })
        };
        counts.iter().flat_map(expand).collect()
    }

    fn set(name: &str, counts: &[(Terms, u32, u32)]) -> RunSet {
        RunSet { name: name.to_owned(), runs: runs(counts) }
    }

    const NONE: Terms = [0.0; 5];
    const ANSWER: Terms = [1.0, 0.0, 0.0, 0.0, 0.0];
    const RECOVERED: Terms = [0.0, 0.0, 1.0, 0.0, 0.0];

    #[test]
    fn weights_follow_the_shares_and_are_never_negative() {
        // Failures of the answer go with failed runs; recovered errors with passed ones, which is chance.
        let fit =
            OutcomeFit::from_sets(&[set("a", &[(NONE, 20, 80), (ANSWER, 80, 20), (RECOVERED, 10, 90)])])
                .unwrap();
        assert!(fit.model.answer > 1.5, "{:?}", fit.model);
        assert_eq!(fit.model.recovered, 0.0);
        assert!(
            fit.model.probability(&ANSWER) > 0.6 && fit.model.probability(&NONE) < 0.35,
            "{:?}",
            fit.model
        );
    }

    #[test]
    fn held_out_figures_use_weights_of_the_other_sets() {
        let a = set("a", &[(NONE, 1, 9), (ANSWER, 9, 1)]);
        let b = set("b", &[(NONE, 5, 5), (RECOVERED, 9, 1)]);
        let fit = OutcomeFit::from_sets(&[a.clone(), b]).unwrap();
        // Weights of `b` know nothing of answers, so they rank the runs of `a` alike.
        assert_eq!(fit.sets[0].auc_held_out, Some(0.5));
        assert_eq!(fit.sets[0].auc, Some(0.9));
        assert_eq!(OutcomeFit::from_sets(&[a]).unwrap().sets[0].auc_held_out, None);
    }

    #[test]
    fn a_set_with_one_outcome_is_left_out() {
        assert_eq!(OutcomeFit::from_sets(&[set("failed", &[(ANSWER, 5, 0)])]), None);
    }
}
