//! The terms of the root policy `expected_outcome`.
//!
//! In: the failing measurements with their confidences, and which of them affect the outcome. Out: [`Terms`], from
//! which [`outcome_model`](super::outcome_model) computes the probability that the run failed its user:
//!
//! - `answer`: failures of the answer: of a span that gave one, or of an agent's result as a whole.
//! - `lasting`: failures of other steps that affect the outcome (`propagate::relevance`).
//! - `recovered`: failures of steps that do not affect the outcome.
//! - `process`: failures of the process only, such as repeated calls.
//!
//! A term is the probability that at least one of its findings is right, 1 - Π(1 - confidence). A failure that
//! originated in another failed span counts there, hence once. Findings of judges count with confidence 1.

use super::outcome_model::{TERMS, Terms};
use super::relevance::Relevance;
use super::repeats::Repeats;
use super::verdict::OwnResult;
use crate::measure::table::spec_among;
use crate::measure::{Measurement, MetricSpec};

/// The terms of a trace.
pub(super) fn terms(
    measurements: &[Measurement],
    own: &[OwnResult],
    repeats: &Repeats,
    relevance: &Relevance<'_>,
    custom: &[&'static MetricSpec],
) -> Terms {
    // The probabilities that no finding of a term is right.
    let mut none = [1.0; TERMS.len()];
    for m in measurements {
        let (Some(own), Ok(measured)) = (own.get(m.at), &m.outcome) else { continue };
        if measured.passed || !own.failed.contains(&m.metric) || repeats.is_explicit(m.at, |_| true) {
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
