//! Fits the weights of `propagation.root: expected_outcome` to labelled runs.
//!
//! In: for each set, the terms of each run and whether the run failed. Out: weights, their log loss and area under the
//! ROC curve on the runs to which they were fitted, and the area on each set with weights that were fitted to the other
//! sets. A single set is cross-validated: the weights for each fifth of its runs are fitted to the other four fifths.
//!
//! The model is a logistic regression with weights of at least 0 (projected gradient ascent) and a penalty that
//! keeps weights of rare terms small. Shares of failed runs differ between sets for reasons that no span shows,
//! so every set has an intercept of its own while weights are fitted; the fitted intercept is their mean. Sets
//! count alike, regardless of their size.

use serde::Serialize;
use verdict_eval::propagation::{OutcomeModel, Term, Terms, probability};

/// Number of steps of the ascent. It converges, since the function is concave and the terms are between 0 and 1.
const STEPS: usize = 4000;
/// Step size of the ascent.
const LEARNING_RATE: f64 = 0.5;
/// The penalty per squared weight; with it, a weight is determined by the labels from about three runs in a hundred on.
const PENALTY: f64 = 0.01;

/// Number of parts of a single set in cross-validation.
pub const FOLDS: usize = 5;

/// A labelled run.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledRun {
    /// The terms with the shipped confidences of rules.
    pub terms: Terms,
    /// For each set, by its index, the terms with confidences estimated from all other sets. Empty if held-out figures
    /// also use the shipped confidences.
    pub terms_without: Vec<Terms>,
    pub failed: bool,
}

impl LabelledRun {
    /// The terms for weights that are fitted without the set.
    fn without(&self, set: usize) -> LabelledRun {
        let terms = self.terms_without.get(set).copied().unwrap_or(self.terms);
        LabelledRun { terms, terms_without: Vec::new(), failed: self.failed }
    }
}

/// Runs of one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSet {
    pub name: String,
    pub runs: Vec<LabelledRun>,
}

impl RunSet {
    /// Whether runs of both outcomes are in the set: weights cannot be fitted to one outcome.
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
    /// The area with weights fitted to the other sets, or to the other folds of the only set.
    pub auc_held_out: Option<f64>,
    /// The area with the weights that the program ships.
    pub auc_shipped: Option<f64>,
    /// Mean log loss in nats with the fitted weights.
    pub log_loss: f64,
    /// Mean log loss in nats with the shipped weights.
    pub log_loss_shipped: f64,
}

/// A fit with its figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutcomeFit {
    pub model: OutcomeModel,
    pub sets: Vec<Figures>,
    /// The area with held-out weights minus the area with the shipped weights: the mean over sets.
    pub gain: Option<f64>,
}

impl OutcomeFit {
    /// The fit to all usable sets; `None` if there is none.
    pub fn from_sets(sets: &[RunSet]) -> Option<OutcomeFit> {
        let usable: Vec<(usize, &RunSet)> =
            sets.iter().enumerate().filter(|(_, set)| set.is_usable()).collect();
        let model = fit(&usable.iter().map(|(_, set)| set.runs.as_slice()).collect::<Vec<_>>())?;
        let shipped = OutcomeModel::default();
        let figures = |&(index, set): &(usize, &RunSet)| Figures {
            set: set.name.clone(),
            runs: set.runs.len(),
            failed: set.runs.iter().filter(|run| run.failed).count(),
            auc: auc(&probabilities(&model, &set.runs)),
            auc_held_out: match usable.len() {
                1 => cross_validated(&set.runs),
                _ => held_out(&usable, index),
            },
            auc_shipped: auc(&probabilities(&shipped, &set.runs)),
            log_loss: log_loss(&model, &set.runs),
            log_loss_shipped: log_loss(&shipped, &set.runs),
        };
        let sets: Vec<Figures> = usable.iter().map(figures).collect();
        let gains: Option<Vec<f64>> =
            sets.iter().map(|set| Some(set.auc_held_out? - set.auc_shipped?)).collect();
        let gain = gains.map(|gains| gains.iter().sum::<f64>() / gains.len() as f64);
        Some(OutcomeFit { model, sets, gain })
    }
}

/// The area on one of several sets with weights fitted to the others.
fn held_out(usable: &[(usize, &RunSet)], left_out: usize) -> Option<f64> {
    let without = |set: &RunSet| set.runs.iter().map(|run| run.without(left_out)).collect::<Vec<_>>();
    let others: Vec<Vec<LabelledRun>> =
        usable.iter().filter(|(index, _)| *index != left_out).map(|(_, set)| without(set)).collect();
    let model = fit(&others.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    let (_, set) = usable.iter().find(|(index, _)| *index == left_out)?;
    auc(&probabilities(&model, &without(set)))
}

/// The area on a set where the weights for each fold are fitted to the other folds; `None` if these have runs of one
/// outcome only.
fn cross_validated(runs: &[LabelledRun]) -> Option<f64> {
    // The runs of each outcome are assigned to the folds in turn, so that every fold has runs of both.
    let mut assigned = [0_usize; 2];
    let folds: Vec<usize> = runs
        .iter()
        .map(|run| {
            let count = &mut assigned[usize::from(run.failed)];
            *count += 1;
            (*count - 1) % FOLDS
        })
        .collect();
    if assigned.iter().any(|count| *count < FOLDS) {
        return None;
    }
    let mut predictions = Vec::with_capacity(runs.len());
    for fold in 0..FOLDS {
        let part = |in_fold: bool| {
            let selected = runs.iter().zip(&folds).filter(move |(_, number)| (**number == fold) == in_fold);
            selected.map(|(run, _)| run.clone()).collect::<Vec<_>>()
        };
        let model = fit(&[&part(false)])?;
        predictions.extend(probabilities(&model, &part(true)));
    }
    auc(&predictions)
}

/// The weights of greatest penalised likelihood; `None` without sets.
fn fit(sets: &[&[LabelledRun]]) -> Option<OutcomeModel> {
    if sets.is_empty() {
        return None;
    }
    let mut weights = [0.0; Term::ALL.len()];
    let mut intercepts = vec![0.0; sets.len()];
    for _ in 0..STEPS {
        let mut gradient = weights.map(|weight: f64| -2.0 * PENALTY * weight);
        for (runs, intercept) in sets.iter().zip(&mut intercepts) {
            let model = OutcomeModel::new(*intercept, weights);
            let run_weight = 1.0 / (runs.len() as f64 * sets.len() as f64);
            let mut intercept_gradient = 0.0;
            for run in *runs {
                let error = f64::from(u8::from(run.failed)) - probability(&model, &run.terms);
                intercept_gradient += error / runs.len() as f64;
                gradient
                    .iter_mut()
                    .zip(&run.terms)
                    .for_each(|(gradient, term)| *gradient += error * term * run_weight);
            }
            *intercept += LEARNING_RATE * intercept_gradient;
        }
        weights
            .iter_mut()
            .zip(gradient)
            .for_each(|(weight, gradient)| *weight = (*weight + LEARNING_RATE * gradient).max(0.0));
    }
    Some(OutcomeModel::new(intercepts.iter().sum::<f64>() / sets.len() as f64, weights))
}

/// The probability that each run failed, and whether it did.
fn probabilities(model: &OutcomeModel, runs: &[LabelledRun]) -> Vec<(f64, bool)> {
    runs.iter().map(|run| (probability(model, &run.terms), run.failed)).collect()
}

/// The probability that a failed run has a greater probability than a passed one; equal
/// probabilities count half. `None` unless there are runs of both outcomes.
fn auc(runs: &[(f64, bool)]) -> Option<f64> {
    let scores = |failed: bool| runs.iter().filter(move |run| run.1 == failed).map(|run| run.0);
    let (failed, passed): (Vec<f64>, Vec<f64>) = (scores(true).collect(), scores(false).collect());
    let ranks = super::correlation::ranks(failed.iter().chain(&passed).copied());
    let (f, p) = (failed.len() as f64, passed.len() as f64);
    let sum: f64 = ranks.iter().take(failed.len()).sum();
    (f > 0.0 && p > 0.0).then(|| (sum - f * (f + 1.0) / 2.0) / (f * p))
}

/// The mean log loss in nats. Probabilities are clamped, because that of a certain wrong prediction is infinite.
fn log_loss(model: &OutcomeModel, runs: &[LabelledRun]) -> f64 {
    let loss = |run: &LabelledRun| {
        let p = probability(model, &run.terms).clamp(1e-9, 1.0 - 1e-9);
        -(if run.failed { p } else { 1.0 - p }).ln()
    };
    runs.iter().map(loss).sum::<f64>() / runs.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(counts: &[(Terms, u32, u32)]) -> Vec<LabelledRun> {
        let expand = |&(terms, failed, passed): &(Terms, u32, u32)| {
            (0..failed + passed).map(move |n| LabelledRun {
                terms,
                terms_without: Vec::new(),
                failed: n < failed,
            })
        };
        counts.iter().flat_map(expand).collect()
    }

    fn set(name: &str, counts: &[(Terms, u32, u32)]) -> RunSet {
        RunSet { name: name.to_owned(), runs: runs(counts) }
    }

    const NO_FAILURE: Terms = [0.0; 5];
    const ANSWER: Terms = [1.0, 0.0, 0.0, 0.0, 0.0];
    const RECOVERED: Terms = [0.0, 0.0, 1.0, 0.0, 0.0];

    #[test]
    fn weights_follow_the_shares_and_are_never_negative() {
        // Failures of the answer correlate with failed runs. Recovered errors correlate with passed runs, by chance.
        let fit = OutcomeFit::from_sets(&[set(
            "a",
            &[(NO_FAILURE, 20, 80), (ANSWER, 80, 20), (RECOVERED, 10, 90)],
        )])
        .unwrap();
        assert!(fit.model.answer > 1.5, "{:?}", fit.model);
        assert_eq!(fit.model.recovered, 0.0);
        assert!(
            probability(&fit.model, &ANSWER) > 0.6 && probability(&fit.model, &NO_FAILURE) < 0.35,
            "{:?}",
            fit.model
        );
    }

    #[test]
    fn held_out_figures_use_weights_of_the_other_sets() {
        let a = set("a", &[(NO_FAILURE, 1, 9), (ANSWER, 9, 1)]);
        let b = set("b", &[(NO_FAILURE, 5, 5), (RECOVERED, 9, 1)]);
        let fit = OutcomeFit::from_sets(&[a.clone(), b]).unwrap();
        // The runs of `b` have no term of the answer, so with weights fitted to them all runs of `a` are equally
        // probable.
        assert_eq!(fit.sets[0].auc_held_out, Some(0.5));
        assert_eq!(fit.sets[0].auc, Some(0.9));
        let gain = |set: &Figures| set.auc_held_out.unwrap() - set.auc_shipped.unwrap();
        assert_eq!(fit.gain, Some((gain(&fit.sets[0]) + gain(&fit.sets[1])) / 2.0));
    }

    #[test]
    fn held_out_figures_of_one_set_are_cross_validated() {
        let a = set("a", &[(NO_FAILURE, 2, 18), (ANSWER, 18, 2)]);
        let fit = OutcomeFit::from_sets(&[a]).unwrap();
        let held_out = fit.sets[0].auc_held_out.unwrap();
        assert!((0.8..=0.95).contains(&held_out), "{held_out}");
        // Too few passed runs for five folds.
        let small = set("a", &[(NO_FAILURE, 2, 4), (ANSWER, 18, 0)]);
        let fit = OutcomeFit::from_sets(&[small]).unwrap();
        assert_eq!((fit.sets[0].auc_held_out, fit.gain), (None, None));
    }

    #[test]
    fn held_out_figures_use_confidences_without_the_set() {
        // With confidences that the set's labels do not raise, its failed runs have no finding that counts.
        let mut a = set("a", &[(NO_FAILURE, 0, 10), (ANSWER, 10, 0)]);
        let b = set("b", &[(NO_FAILURE, 1, 9), (ANSWER, 9, 1)]);
        let held_out =
            |a: &RunSet| OutcomeFit::from_sets(&[a.clone(), b.clone()]).unwrap().sets[0].auc_held_out;
        assert_eq!(held_out(&a), Some(1.0));
        a.runs.iter_mut().for_each(|run| run.terms_without = vec![NO_FAILURE, run.terms]);
        assert_eq!(held_out(&a), Some(0.5));
    }

    #[test]
    fn a_set_with_one_outcome_is_left_out() {
        assert_eq!(OutcomeFit::from_sets(&[set("failed", &[(ANSWER, 5, 0)])]), None);
    }
}
