//! The rules on the conduct of an agent: what it did against its request, its instructions and its own results.
//!
//! In: a trace. Out: the findings of each rule, at most one for each agent, on the model span that wrote the call or
//! the answer.

use verdict_otlp::trace::Idx;

use crate::measure::calls::attempts::{CallAttempts, quoted};
use crate::measure::defects::Defect;
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::measure::{Finding, Memo, agent_index, dialogue};
use crate::recognise::{Agent, AgentTrace, Call, Text};

/// An agent, its calls, and what it was asked for.
pub(super) struct Conduct<'a> {
    pub trace: &'a AgentTrace,
    pub memo: &'a Memo,
    pub attempts: &'a CallAttempts,
    /// The index of the agent.
    pub i: usize,
    pub agent: &'a Agent,
}

/// A rule: the finding on an agent.
pub(super) type ConductRule = fn(&Conduct<'_>) -> Option<(Idx, Finding)>;

/// Findings of one rule, by model span.
pub(super) fn apply_rule(
    (name, rule): (&'static str, ConductRule),
    trace: &AgentTrace,
    memo: &Memo,
    attempts: &CallAttempts,
) -> Vec<(Idx, Finding)> {
    let found = Conduct::for_agents(trace, memo, attempts).filter_map(|conduct| rule(&conduct));
    by_rule(name, found).collect()
}

/// Findings of one rule with its name.
pub(super) fn by_rule(
    name: &'static str,
    found: impl IntoIterator<Item = (Idx, Finding)>,
) -> impl Iterator<Item = (Idx, Finding)> {
    found.into_iter().map(move |(at, finding)| (at, finding.by_rule(name)))
}

/// Findings of one rule on a trace.
#[cfg(test)]
pub(super) fn found(rule: ConductRule, trace: &AgentTrace) -> Vec<(Idx, Finding)> {
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
        agents.map(move |(i, agent)| Conduct { trace, memo, attempts, i, agent })
    }

    /// The request, unless it is longer than `max` bytes.
    pub(super) fn task(&self, max: usize) -> Option<&'a Text> {
        agent_index::task(self.trace, self.i).filter(|task| task.len() <= max)
    }

    /// The messages of the user.
    pub(super) fn user_messages(&self) -> Vec<Text> {
        dialogue::said_by_user(self.trace, self.memo, self.i)
    }

    /// The texts of the agent that the user answered.
    pub(super) fn turns(&self) -> impl Iterator<Item = String> + '_ {
        let replies = dialogue::Replies::cached(self.trace, self.memo);
        let answered = self.agent.llms.iter().filter(move |at| replies.to(**at).is_some());
        answered.filter_map(|at| Some(self.trace.views.get(*at)?.output_text().into_owned()))
    }

    /// The first `max` calls, each with its index.
    pub(super) fn calls(&self, max: usize) -> impl Iterator<Item = (usize, &'a Call)> + use<'a> {
        let trace = self.trace;
        self.agent.calls.iter().take(max).filter_map(|i| Some((*i, trace.calls.get(*i)?)))
    }

    /// The first `max` calls without those that failed.
    pub(super) fn succeeded(&self, max: usize) -> impl Iterator<Item = (usize, &'a Call)> + use<'a> {
        let attempts = self.attempts;
        self.calls(max).filter(|(i, _)| attempts.has_succeeded(*i))
    }

    pub(super) fn is_action(&self, call: &Call) -> bool {
        purpose(self.trace, self.memo, call) == Purpose::Action
    }

    /// A finding that quotes a call, on the model span that wrote it.
    pub(super) fn finding(&self, defect: Defect, rationale: String, call: &Call) -> Option<(Idx, Finding)> {
        Some((call.llm?, defect.finding(rationale, quoted(call)).citing_at(self.trace, call.at)))
    }
}
