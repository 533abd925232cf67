//! The probability that a run failed its user: the root policy `expected_outcome`.
//!
//! In: the terms of a trace. Out: a probability from 0 to 1 with the contribution of each term. The model is a
//! logistic regression with weights of at least 0, so another finding never lowers the probability.
//! `otel-verdict score fit` fits the weights to labelled runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::Problem;
use verdict_otlp::labelled_enum;

labelled_enum! {
    /// A term of the model, as `expected_outcome` describes it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Term {
        Answer = "answer",
        Lasting = "lasting",
        Recovered = "recovered",
        Process = "process",
        Changes = "changes",
    }
}

/// The values of the terms for one trace, each from 0 to 1, in the order of [`Term::ALL`].
pub type Terms = [f64; Term::ALL.len()];

/// The weights of `propagation.root: expected_outcome`, in log odds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutcomeModel {
    /// Log odds of a failure of a run without findings.
    pub intercept: f64,
    /// Weight of failures of the answer, at least 0.
    pub answer: f64,
    /// Weight of failures of steps that affect the outcome, at least 0.
    pub lasting: f64,
    /// Weight of failures of steps that do not affect the outcome, at least 0.
    pub recovered: f64,
    /// Weight of failures of the process, at least 0.
    pub process: f64,
    /// Weight of the changes that the run made, at least 0.
    pub changes: f64,
    /// Default 0.5. The root fails if the probability is greater.
    pub limit: f64,
}

impl Default for OutcomeModel {
    /// The result of `otel-verdict score fit` on the data sets that `tests/bench/rules.md` names.
    fn default() -> OutcomeModel {
        OutcomeModel {
            intercept: -0.78,
            answer: 0.8,
            lasting: 1.01,
            recovered: 0.07,
            process: 0.2,
            changes: 0.62,
            limit: 0.5,
        }
    }
}

/// The probability that the run failed its user.
pub fn probability(model: &OutcomeModel, terms: &Terms) -> f64 {
    let log_odds = model.contributions(terms).iter().fold(model.intercept, |sum, (_, part)| sum + part);
    1.0 / (1.0 + (-log_odds).exp())
}

impl OutcomeModel {
    /// A model with this intercept and weights, and the default limit.
    #[cfg(feature = "internals")]
    pub fn new(intercept: f64, weights: Terms) -> OutcomeModel {
        let [answer, lasting, recovered, process, changes] = weights;
        OutcomeModel { intercept, answer, lasting, recovered, process, changes, ..OutcomeModel::default() }
    }

    fn weights(&self) -> Terms {
        [self.answer, self.lasting, self.recovered, self.process, self.changes]
    }

    /// The contribution of each term to the log odds, the largest first; terms that add nothing are left out.
    pub(crate) fn contributions(&self, terms: &Terms) -> Vec<(&'static str, f64)> {
        let parts = self.weights().into_iter().zip(terms).map(|(weight, term)| weight * term);
        let mut parts: Vec<(&'static str, f64)> =
            Term::ALL.map(Term::as_str).into_iter().zip(parts).filter(|p| p.1 > 0.0).collect();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        parts
    }

    /// The invalid values, by key.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let weights = Term::ALL.map(Term::as_str).into_iter().zip(self.weights());
        let weights = weights.filter(|(_, weight)| !(*weight >= 0.0 && weight.is_finite()));
        let weights = weights.map(|(key, weight)| (key, format!("a weight of at least 0, found {weight}")));
        let intercept = || ("intercept", format!("a finite number, found {}", self.intercept));
        let limit = || ("limit", format!("a probability from 0 to 1, found {}", self.limit));
        let other_problems =
            [(!self.intercept.is_finite()).then(intercept), (!(0.0..=1.0).contains(&self.limit)).then(limit)];
        let messages = weights.chain(other_problems.into_iter().flatten());
        messages.map(|(key, message)| Problem::new(key, format!("expected {message}"))).collect()
    }
}
