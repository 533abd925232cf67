//! Which failures affect the outcome: the `outcome_relevant` policy.
//!
//! Section 5 of paper 001 proposes outcome-relevance filtering without a definition. Here a failure is
//! irrelevant if its agent ends well and one of these conditions is met:
//!
//! - The agent recovered: the same tool or operation succeeded later, in the same agent or in an agent
//!   above it that ran the failed one again. Numbered steps are one operation. A tool that was not
//!   offered cannot succeed later, so the success of any tool counts. A model call with an error recovers by
//!   a later model call, and a model call that requested a wrong tool call by a later tool call; a wrong statement of a
//!   model call does not recover. (That another tool succeeded, or that the user went on, lowers the severity of the
//!   failure: `measure::reasoning::recovery`.)
//! - It is minor (severity low) and not on the span that gave the answer.
//! - It concerns the process and not the result (`tool_abuse`, `plan_efficiency`, ...).
//!
//! An agent ends well if its span has no error and the span that gave its answer does not fail. These
//! are facts of the structure, so they need no recorded content.

use std::cell::RefCell;

use foldhash::{HashMap, HashMapExt, HashSet};
use verdict_otlp::trace::{Idx, Kind, Status};

use crate::measure::table::spec_among;
use crate::measure::{MetricSpec, Severity};
use crate::recognise::{AgentTrace, ErrorSource, ToolLookup};

/// Agent, kind and name. Spans with the same operation are attempts at the same action.
type Operation<'s> = (Option<usize>, Kind, &'s str);

/// Decides which failures affect the outcome of a trace.
pub struct Relevance<'s> {
    trace: &'s AgentTrace,
    failing: &'s [bool],
    custom: &'s [&'static MetricSpec],
    /// The latest start of a successful span of each operation.
    success: HashMap<Operation<'s>, u64>,
    /// The latest start of a successful tool call of each agent.
    tool_success: HashMap<usize, u64>,
    ends_well: Vec<bool>,
    /// By agent: whether it or an agent above it was run again, with success, by one that ends well.
    recovered_above: Vec<bool>,
    /// The spans that gave an agent's answer.
    answers: HashSet<Idx>,
    tools: RefCell<ToolLookup<'s>>,
}

impl<'s> Relevance<'s> {
    /// `failing[i]`: whether span `i` fails by its own metrics.
    pub fn new(
        trace: &'s AgentTrace,
        failing: &'s [bool],
        custom: &'s [&'static MetricSpec],
    ) -> Relevance<'s> {
        let ends_well: Vec<bool> = (0..trace.agents.len()).map(|a| ends_well(trace, failing, a)).collect();
        let ends_badly: HashSet<Idx> =
            trace.agents.iter().zip(&ends_well).filter(|(_, well)| !**well).map(|(a, _)| a.at).collect();
        let mut relevance = Relevance {
            trace,
            failing,
            custom,
            success: HashMap::new(),
            tool_success: HashMap::new(),
            ends_well,
            recovered_above: Vec::new(),
            answers: trace.agents.iter().filter_map(|a| a.answer_at).collect(),
            tools: RefCell::default(),
        };
        for i in (0..trace.tree.len()).filter(|i| !ends_badly.contains(i)) {
            if relevance.is_success(i) {
                let start = trace.tree.spans[i].start;
                let latest = relevance.success.entry(operation(trace, i)).or_default();
                *latest = start.max(*latest);
                if let (Kind::Tool, Some(agent)) = (trace.views[i].kind, trace.owner[i]) {
                    let latest = relevance.tool_success.entry(agent).or_default();
                    *latest = start.max(*latest);
                }
            }
        }
        relevance.find_recovered_above();
        relevance
    }

    /// Whether a failure of span `i` by these metrics affects the outcome of the run.
    pub fn affects_outcome(&self, i: Idx, severity: Severity, failed: &[&str]) -> bool {
        let Some(agent) = self.trace.owner.get(i).copied().flatten() else { return true };
        let is_answer = self.answers.contains(&i);
        if self.ends_well[agent] {
            let is_process = failed.iter().all(|m| spec_among(self.custom, m).is_some_and(|row| row.process));
            let is_minor = severity == Severity::Low && !is_answer;
            if is_process || is_minor || self.has_recovered(i, failed) {
                return false;
            }
        }
        !self.recovered_above[agent]
    }

    /// Whether the span gave an agent's answer, or is the span of an agent.
    pub(super) fn is_answer(&self, i: Idx) -> bool {
        self.answers.contains(&i) || self.trace.views[i].kind == Kind::Agent
    }

    /// Whether the operation of the span succeeded later, by the conditions in the module's description.
    fn has_recovered(&self, i: Idx, failed: &[&str]) -> bool {
        let start = self.trace.tree.spans[i].start;
        let view = &self.trace.views[i];
        if view.kind == Kind::Llm && view.errors.is_empty() {
            let all_judge_calls =
                failed.iter().all(|m| spec_among(self.custom, m).is_some_and(|row| row.judges_calls));
            let success = self.trace.owner[i].and_then(|agent| self.tool_success.get(&agent));
            return all_judge_calls && success.is_some_and(|&latest| latest > start);
        }
        if self.success.get(&operation(self.trace, i)).is_some_and(|&latest| latest > start) {
            return true;
        }
        let Some(agent) = self.trace.owner[i].filter(|&a| self.calls_unoffered_tool(i, a)) else {
            return false;
        };
        self.tool_success.get(&agent).is_some_and(|&latest| latest > start)
    }

    /// Whether the span calls a tool that the agent was not offered.
    fn calls_unoffered_tool(&self, i: Idx, agent: usize) -> bool {
        let view = &self.trace.views[i];
        let Some(call) = view.call.as_ref().filter(|_| view.kind == Kind::Tool) else { return false };
        let offered = &self.trace.agents[agent].tools;
        !offered.is_empty() && self.tools.borrow_mut().find(agent, offered, &call.name).is_none()
    }

    /// Finds the agents that another agent, which ends well, ran again with success. Agents are sorted
    /// outermost first, so one pass suffices.
    fn find_recovered_above(&mut self) {
        for (agent_index, agent) in self.trace.agents.iter().enumerate() {
            let parent = agent.parent.filter(|&parent| parent < agent_index);
            let recovered = parent.is_some_and(|parent| {
                self.recovered_above[parent] || (self.ends_well[parent] && self.has_recovered(agent.at, &[]))
            });
            self.recovered_above.push(recovered);
        }
    }

    fn is_success(&self, i: Idx) -> bool {
        let view = &self.trace.views[i];
        !self.failing[i] && !view.wrapper && self.trace.tree.spans[i].status != Status::Error
    }
}

fn operation(trace: &AgentTrace, i: Idx) -> Operation<'_> {
    let view = &trace.views[i];
    // An agent's own span is an operation of the agent that called it.
    let owner = trace.owner.get(i).copied().flatten();
    let agent = match owner {
        Some(a) if trace.agents[a].at == i => trace.agents[a].parent,
        other => other,
    };
    let name = match (&view.call, view.kind) {
        (Some(call), _) => &*call.name,
        // Spans of models have various names. Any later model call of the agent is a retry.
        (None, Kind::Llm) => "",
        (None, Kind::Agent) => view.agent.as_deref().or(view.name.as_deref()).unwrap_or_default(),
        // "Step 2" and "Step 3" are one operation.
        (None, _) => {
            let name = view.name.as_deref().unwrap_or_default();
            name.trim_end_matches(|c: char| c.is_ascii_digit() || " #_-.:".contains(c))
        }
    };
    (agent, view.kind, name)
}

fn ends_well(trace: &AgentTrace, failing: &[bool], agent: usize) -> bool {
    let agent = &trace.agents[agent];
    let view = &trace.views[agent.at];
    let has_error = trace.tree.spans[agent.at].status == Status::Error
        || view.errors.iter().any(|e| e.source != ErrorSource::Retry);
    let answer_fails = agent.answer_at.is_some_and(|a| a != agent.at && failing[a]);
    !has_error && !answer_fails
}
