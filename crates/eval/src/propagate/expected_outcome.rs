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
//!   no rule sees. With n such calls, n / (n + 2).
//!
//! Each of the others is the probability that at least one of its findings is right, 1 - Π(1 - confidence). A failure
//! that originated in another failed span counts there, hence once. Findings of judges count with confidence 1.

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
    // The probabilities that no finding of a term is right.
    let mut none = [1.0; Term::ALL.len()];
    failures.for_each(|(term, confidence)| none[term as usize] *= 1.0 - confidence);
    none.map(|product| 1.0 - product)
}

/// Most calls whose tools are read.
const MAX_CALLS: usize = 10_000;

/// The terms with that of the changes, which needs no measurement.
pub(super) fn with_changes(trace: &AgentTrace, mut terms: Terms) -> Terms {
    let changes = changes(trace) as f64;
    terms[Term::Changes as usize] = changes / (changes + 2.0);
    terms
}

/// The calls of tools that are named for a change: not of lookups, nor of tools of unknown purpose.
fn changes(trace: &AgentTrace) -> usize {
    let mut changes_by_tool: HashMap<&str, bool> = HashMap::default();
    let calls = trace.calls.iter().take(MAX_CALLS).filter(|call| !trace.control_tools.is_control(&call.name));
    calls
        .filter(|call| {
            *changes_by_tool.entry(&call.name).or_insert_with(|| {
                let purpose = ToolPurpose::new(&call.name, None);
                let hands_over = purpose.actions.contains(&Action::Transfer);
                !purpose.actions.is_empty() && !purpose.is_query() && !hands_over
            })
        })
        .count()
}
