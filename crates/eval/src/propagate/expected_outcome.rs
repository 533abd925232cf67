//! The terms of the root policy `expected_outcome`.
//!
//! In: the failing measurements with their confidences, and which of them affect the outcome. Out: [`Terms`], from
//! which [`outcome_model`](super::outcome_model) computes the probability that the run failed its user:
//!
//! - `answer`: failures of the answer: of a span that gave one, or of an agent's result as a whole.
//! - `lasting`: failures of other steps that affect the outcome (`propagate::relevance`).
//! - `recovered`: failures of steps that do not affect the outcome.
//! - `process`: failures of the process only, such as repeated calls.
//! - `changes`: how much the run changed: each call of a tool that changes something can be a wrong one, which
//!   no rule detects. With n such calls, n / (n + 2).
//!
//! Every other term is the probability that at least one of its findings is right, 1 - Π(1 - confidence). A failure
//! that originated in another failed span is counted only there. Findings of judges count with confidence 1.

use foldhash::HashMap;

use super::outcome_model::{Term, Terms};
use super::relevance::Relevance;
use super::repeats::Repeats;
use super::verdict::OwnResult;
use crate::measure::language::Action;
use crate::measure::table::spec_among;
use crate::measure::tool_purpose::ToolPurpose;
use crate::measure::{Measured, Measurement, MetricSpec};
use crate::recognise::AgentTrace;

/// A failing measurement that counts in a term.
pub(super) struct TermFailure<'m> {
    pub term: Term,
    pub measured: &'m Measured,
}

/// The failures that the terms of a trace are computed from.
pub(super) fn failures<'m>(
    measurements: &'m [Measurement],
    span_results: &[OwnResult],
    repeats: &Repeats,
    relevance: Option<&Relevance<'_>>,
    custom: &[&'static MetricSpec],
) -> impl Iterator<Item = TermFailure<'m>> {
    measurements.iter().filter_map(move |m| {
        let (result, measured) = (span_results.get(m.at)?, m.outcome.as_ref().ok()?);
        if measured.passed || !result.failed.contains(&m.metric) || repeats.is_explicit(m.at, |_| true) {
            return None;
        }
        let term = if spec_among(custom, m.metric).is_some_and(|row| row.process) {
            Term::Process
        } else if relevance.is_some_and(|relevance| relevance.is_answer(m.at)) {
            Term::Answer
        } else if result.relevant {
            Term::Lasting
        } else {
            Term::Recovered
        };
        Some(TermFailure { term, measured })
    })
}

/// The terms of failures with these confidences.
pub(super) fn terms(failures: impl Iterator<Item = (Term, f64)>) -> Terms {
    // For each term, the probability that none of its findings is right.
    let mut none_right = [1.0; Term::ALL.len()];
    failures.for_each(|(term, confidence)| none_right[term as usize] *= 1.0 - confidence);
    none_right.map(|probability| 1.0 - probability)
}

/// Maximum number of calls that are counted; a bound on work.
const MAX_CALLS: usize = 10_000;

/// The terms with [`Term::Changes`], which depends on no measurement.
pub(super) fn with_changes(trace: &AgentTrace, mut terms: Terms) -> Terms {
    let changes = changing_calls(trace) as f64;
    terms[Term::Changes as usize] = changes / (changes + 2.0);
    terms
}

/// The number of calls of tools whose names state a change: lookups and tools of unknown purpose do not count.
fn changing_calls(trace: &AgentTrace) -> usize {
    let mut is_changing: HashMap<&str, bool> = HashMap::default();
    let calls = trace.calls.iter().take(MAX_CALLS).filter(|call| !trace.control_tools.is_control(&call.name));
    calls
        .filter(|call| {
            *is_changing.entry(&call.name).or_insert_with(|| {
                let purpose = ToolPurpose::new(&call.name, None);
                let hands_over = purpose.actions.contains(&Action::Transfer);
                !purpose.actions.is_empty() && !purpose.is_query() && !hands_over
            })
        })
        .count()
}
