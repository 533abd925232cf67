//! The input of the rules on the conduct of an agent, which compare its calls and its answer with its request, its
//! instructions and its results.
//!
//! In: a trace. Out: the findings of each rule, at most one for each agent, on the model span that requested the call
//! or wrote the answer.

use verdict_otlp::trace::Idx;

use crate::measure::calls::attempts::{CallAttempts, quoted};
use crate::measure::defects::Defect;
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::measure::{Finding, Memo, agent_index, dialogue};
use crate::recognise::{Agent, AgentTrace, Call, Text};

/// An agent, with its trace and the attempts of its calls.
pub(super) struct Conduct<'a> {
    pub trace: &'a AgentTrace,
    pub memo: &'a Memo,
    pub attempts: &'a CallAttempts,
    /// The index of the agent in the trace.
    pub agent_index: usize,
    pub agent: &'a Agent,
}

/// A rule: returns the finding on an agent, with its model span; `None` if there is no defect.
pub(super) type ConductRule = fn(&Conduct<'_>) -> Option<(Idx, Finding)>;

/// The findings of one rule on all agents, by model span.
pub(super) fn apply_rule(
    (name, rule): (&'static str, ConductRule),
    trace: &AgentTrace,
    memo: &Memo,
    attempts: &CallAttempts,
) -> Vec<(Idx, Finding)> {
    let findings = Conduct::for_agents(trace, memo, attempts).filter_map(|conduct| rule(&conduct));
    by_rule(name, findings).collect()
}

/// Adds the name of their rule to findings.
pub(super) fn by_rule(
    name: &'static str,
    findings: impl IntoIterator<Item = (Idx, Finding)>,
) -> impl Iterator<Item = (Idx, Finding)> {
    findings.into_iter().map(move |(at, finding)| (at, finding.by_rule(name)))
}

/// The findings of one rule on a trace.
#[cfg(test)]
pub(super) fn findings_of(rule: ConductRule, trace: &AgentTrace) -> Vec<(Idx, Finding)> {
    let memo = Memo::new();
    apply_rule(("tested", rule), trace, &memo, &CallAttempts::get(trace, &memo))
}

impl<'a> Conduct<'a> {
    pub(super) fn for_agents(
        trace: &'a AgentTrace,
        memo: &'a Memo,
        attempts: &'a CallAttempts,
    ) -> impl Iterator<Item = Conduct<'a>> {
        let agents = trace.agents.iter().enumerate();
        agents.map(move |(agent_index, agent)| Conduct { trace, memo, attempts, agent_index, agent })
    }

    /// The request, unless it is longer than `max` bytes.
    pub(super) fn task(&self, max: usize) -> Option<&'a Text> {
        agent_index::task(self.trace, self.agent_index).filter(|task| task.len() <= max)
    }

    /// The messages of the user.
    pub(super) fn user_messages(&self) -> Vec<Text> {
        dialogue::said_by_user(self.trace, self.memo, self.agent_index)
    }

    /// The outputs of the agent that the user replied to.
    pub(super) fn answered_outputs(&self) -> impl Iterator<Item = String> + '_ {
        let replies = dialogue::Replies::cached(self.trace, self.memo);
        let answered_spans = self.agent.llms.iter().filter(move |at| replies.to(**at).is_some());
        answered_spans.filter_map(|at| Some(self.trace.views.get(*at)?.output_text().into_owned()))
    }

    /// The first `max` calls, each with its index.
    pub(super) fn calls(&self, max: usize) -> impl Iterator<Item = (usize, &'a Call)> + use<'a> {
        let trace = self.trace;
        self.agent.calls.iter().take(max).filter_map(|i| Some((*i, trace.calls.get(*i)?)))
    }

    /// The calls among the first `max` that did not fail.
    pub(super) fn succeeded(&self, max: usize) -> impl Iterator<Item = (usize, &'a Call)> + use<'a> {
        let attempts = self.attempts;
        self.calls(max).filter(|(i, _)| attempts.has_succeeded(*i))
    }

    pub(super) fn is_action(&self, call: &Call) -> bool {
        purpose(self.trace, self.memo, call) == Purpose::Action
    }

    /// A finding that quotes a call, on the model span that requested the call; `None` if that span is not known.
    pub(super) fn finding(&self, defect: Defect, rationale: String, call: &Call) -> Option<(Idx, Finding)> {
        Some((call.llm?, defect.finding(rationale, quoted(call)).citing_at(self.trace, call.at)))
    }
}
