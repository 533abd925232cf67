//! The probability that a run failed its user: the root policy `expected_outcome`.
//!
//! In: the failing measurements with their confidences, and which of them affect the outcome. Out: a
//! probability from 0 to 1 with the contribution of each term. The model is a logistic regression over four
//! terms with weights of at least 0, so another finding never lowers the probability:
//!
//! - `answer`: failures of the answer: of a span that gave one, or of an agent's result as a whole.
//! - `lasting`: failures of other steps that affect the outcome (`propagate::relevance`).
//! - `recovered`: failures of steps that do not affect the outcome.
//! - `process`: failures of the process only, such as repeated calls.
//!
//! A term is the probability that at least one of its findings is right, 1 - Π(1 - confidence). A failure that
//! originated in another failed span counts there, hence once. Findings of judges count with confidence 1.
//! `otel-verdict score fit` fits the weights to labelled runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_otlp::trace::Idx;

use super::relevance::Relevance;
use super::verdict::OwnResult;
use crate::measure::table::spec_among;
use crate::measure::{Measurement, MetricSpec};
use crate::recognise::AgentTrace;

/// The names of the terms, in the order of [`Terms`].
pub const TERMS: [&str; 4] = ["answer", "lasting", "recovered", "process"];

/// The values of the terms for one trace, each from 0 to 1.
pub type Terms = [f64; 4];

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
    /// Default 0.5. The root fails if the probability is greater.
    pub limit: f64,
}

impl Default for OutcomeModel {
    /// As `otel-verdict score fit` found it on the sets that `tests/bench/rules.md` names.
    fn default() -> OutcomeModel {
        OutcomeModel { intercept: -0.6, answer: 2.0, lasting: 1.5, recovered: 0.5, process: 0.5, limit: 0.5 }
    }
}

impl OutcomeModel {
    /// From the intercept and the weights in the order of [`TERMS`].
    pub fn new(intercept: f64, weights: Terms) -> OutcomeModel {
        let [answer, lasting, recovered, process] = weights;
        OutcomeModel { intercept, answer, lasting, recovered, process, ..OutcomeModel::default() }
    }

    fn weights(&self) -> Terms {
        [self.answer, self.lasting, self.recovered, self.process]
    }

    /// The probability of a failure.
    pub fn probability(&self, terms: &Terms) -> f64 {
        let odds = self.contributions(terms).iter().fold(self.intercept, |sum, (_, part)| sum + part);
        1.0 / (1.0 + (-odds).exp())
    }

    /// What each term adds to the log odds, the largest first; terms that add nothing are left out.
    pub fn contributions(&self, terms: &Terms) -> Vec<(&'static str, f64)> {
        let parts = self.weights().into_iter().zip(terms).map(|(weight, term)| weight * term);
        let mut parts: Vec<(&'static str, f64)> =
            TERMS.into_iter().zip(parts).filter(|p| p.1 > 0.0).collect();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        parts
    }

    /// The invalid values, by key.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let keys = TERMS.into_iter().zip(self.weights());
        let mut out: Vec<(&'static str, String)> = keys
            .filter(|(_, weight)| !(*weight >= 0.0 && weight.is_finite()))
            .map(|(key, weight)| (key, format!("expected a weight of at least 0, found {weight}")))
            .collect();
        if !self.intercept.is_finite() {
            out.push(("intercept", format!("expected a finite number, found {}", self.intercept)));
        }
        if !(0.0..=1.0).contains(&self.limit) {
            out.push(("limit", format!("expected a probability from 0 to 1, found {}", self.limit)));
        }
        out
    }
}

/// The terms of a trace.
pub(super) fn terms(
    trace: &AgentTrace,
    measurements: &[Measurement],
    own: &[OwnResult],
    relevance: &Relevance<'_>,
    custom: &[&'static MetricSpec],
) -> Terms {
    // The probabilities that no finding of a term is right.
    let mut none = [1.0; TERMS.len()];
    for m in measurements {
        let (Some(own), Ok(measured)) = (own.get(m.at), &m.outcome) else { continue };
        if measured.passed || !own.failed.contains(&m.metric) || is_counted_elsewhere(m.at, own, trace) {
            continue;
        }
        let term = if spec_among(custom, m.metric).is_some_and(|row| row.process) {
            3
        } else if relevance.is_answer(m.at) {
            0
        } else if own.relevant {
            1
        } else {
            2
        };
        none[term] *= 1.0 - measured.confidence().unwrap_or(1.0);
    }
    none.map(|product| 1.0 - product)
}

/// Whether the failures of a span are manifestations of those of another span of the trace.
fn is_counted_elsewhere(at: Idx, own: &OwnResult, trace: &AgentTrace) -> bool {
    own.manifestation_of.is_some_and(|origin| origin != at && origin < trace.tree.len())
}
