//! Answers that contradict the structured results of tools.
//!
//! In: an agent's request, the results before its answer, read as [`Records`], and the answer. Out: findings
//! on the model span that gave the answer. A statement is compared with the field, list or identifier that
//! it names. It is a contradiction if a result refutes it and nothing that the model had seen supports it.

mod counts;
mod exchange;
mod extremes;
mod identifiers;
mod labels;
mod nothing;
mod predicates;
mod sources;
mod states;
mod totals;

use verdict_otlp::trace::{Idx, Kind};

use super::answer::{MAX_ANSWER, final_answer};
use super::answer_span::answered_by;
use super::statements::{clauses, words_of};
use crate::measure::agent::agent_index;
use crate::measure::agent::attempts::CallAttempts;
use crate::measure::agent::request::{Demand, TaskDemands};
use crate::measure::defects::clip;
use crate::measure::{Finding, Memo};
use crate::recognise::{AgentTrace, Content};
use exchange::{Exchange, Outcome};
use sources::Sources;

/// Most findings on one answer.
const MAX_FINDINGS: usize = 4;

/// The comparison of one agent's answer with its results.
pub(crate) struct Compared {
    pub agent: usize,
    /// The model span that gave the answer.
    pub at: Option<Idx>,
    pub findings: Vec<Finding>,
}

/// The answers that state something that a result also states.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo, attempts: &CallAttempts) -> Vec<Compared> {
    (0..trace.agents.len()).filter_map(|i| of_agent(trace, memo, attempts, i)).collect()
}

fn of_agent(trace: &AgentTrace, memo: &Memo, attempts: &CallAttempts, i: usize) -> Option<Compared> {
    let agent = trace.agents.get(i)?;
    let is_llm = |at: &Idx| trace.views.get(*at).is_some_and(|view| view.kind == Kind::Llm);
    let at = answered_by(trace, memo, agent).filter(is_llm);
    let view = at.and_then(|at| trace.views.get(at)).filter(|view| view.output_content == Content::Present);
    let answer = view
        .and_then(|view| final_answer(&trace.control_tools, view))
        .or_else(|| agent.answer.as_deref().map(str::to_owned))?;
    let sources = Sources::before(trace, memo, attempts, i, at)?;
    let task = agent_index::task(trace, i).map(|task| &**task).unwrap_or_default();
    let demands = TaskDemands::new(task);
    if demands.asks(Demand::Making) || demands.asks(Demand::Rearranging) {
        return None;
    }
    let answer = clip(&answer, MAX_ANSWER);
    // Each clause is compared with each field.
    memo.budget.spend(answer.len() / 16 + sources.fields()).then_some(())?;
    let exchange = Exchange { task, answer, asked: words_of(task), clauses: clauses(answer), sources };
    let mut compared = Compared { agent: i, at, findings: Vec::new() };
    let mut examined = false;
    for check in [
        states::check,
        labels::check,
        counts::check,
        totals::check,
        extremes::check,
        nothing::check,
        identifiers::check,
    ] {
        let mut outcome = Outcome::default();
        check(&exchange, &mut outcome);
        examined |= outcome.examined;
        let placed = outcome.findings.into_iter().map(|(finding, source)| match source {
            Some(call) => finding.citing_at(trace, call),
            None => finding,
        });
        compared.findings.extend(placed);
    }
    compared.findings.truncate(MAX_FINDINGS);
    examined.then_some(compared)
}
