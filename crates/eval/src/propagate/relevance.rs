//! Which failures touch the outcome: the `outcome_relevant` policy.
//!
//! Paper 001's section 5 asks for outcome-relevance filtering and leaves it open. Here a failure
//! is irrelevant when the agent it happened in ends well, and one of these holds:
//!
//! - it was recovered from: a later success of the same tool, or of the same operation, in the
//!   same agent, or in an agent above it that ran the failed one again; numbered steps are one
//!   operation. A tool that nobody offered cannot succeed later, so there any tool's success will do;
//! - it is minor (severity low) and not on the span that gave the answer;
//! - it only says how the work went, not what came of it (`tool_abuse`, `plan_efficiency`, ...).
//!
//! An agent ends well when its span shows no error and the span that gave its answer does not
//! fail. That is structural, so it works where no content was recorded.

use foldhash::{HashMap, HashMapExt, HashSet};
use verdict_otlp::trace::{Idx, Kind, Status};

use crate::measure::table::spec_among;
use crate::measure::{MetricSpec, Severity};
use crate::recognise::{AgentTrace, ErrorSource};

/// What makes two spans attempts at the same thing.
type Operation<'s> = (Option<usize>, Kind, &'s str);

/// Answers which failures touch the outcome.
pub struct Relevance<'s> {
    trace: &'s AgentTrace,
    failing: &'s [bool],
    custom: &'s [&'static MetricSpec],
    /// For each operation the latest start among its successes.
    success: HashMap<Operation<'s>, u64>,
    /// For each agent the latest start of a tool call that succeeded.
    tool_success: HashMap<usize, u64>,
    ends_well: Vec<bool>,
    /// By agent: it, or an agent above it, was run again with success by one that ended well.
    recovered_above: Vec<bool>,
    /// Spans that gave an agent's answer.
    answers: HashSet<Idx>,
}

impl<'s> Relevance<'s> {
    /// `failing[i]`: span `i` fails by its own metrics.
    pub fn new(
        trace: &'s AgentTrace,
        failing: &'s [bool],
        custom: &'s [&'static MetricSpec],
    ) -> Relevance<'s> {
        let ends_well: Vec<bool> = (0..trace.agents.len()).map(|a| ends_well(trace, failing, a)).collect();
        let badly: HashSet<Idx> =
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
        };
        for i in 0..trace.tree.len() {
            if relevance.succeeded(i) && !badly.contains(&i) {
                let latest = relevance.success.entry(operation(trace, i)).or_default();
                let start = trace.tree.spans[i].start;
                *latest = (*latest).max(start);
                if let (Kind::Tool, Some(agent)) = (trace.views[i].kind, trace.owner[i]) {
                    let latest = relevance.tool_success.entry(agent).or_default();
                    *latest = (*latest).max(start);
                }
            }
        }
        relevance.look_above();
        relevance
    }

    /// Whether a failure of span `i` by these metrics touches what the run comes to.
    pub fn touches_outcome(&self, i: Idx, severity: Severity, failed: &[&str]) -> bool {
        let Some(agent) = self.trace.owner.get(i).copied().flatten() else { return true };
        let is_answer = self.answers.contains(&i);
        if self.ends_well[agent] {
            let process = failed.iter().all(|m| spec_among(self.custom, m).is_some_and(|row| row.process));
            let minor = severity == Severity::Low && !is_answer;
            if process || minor || self.recovered(i) {
                return false;
            }
        }
        !self.recovered_above[agent]
    }

    /// A later success of the same operation in the same agent.
    fn recovered(&self, i: Idx) -> bool {
        let start = self.trace.tree.spans[i].start;
        if self.success.get(&operation(self.trace, i)).is_some_and(|&latest| latest > start) {
            return true;
        }
        let Some(agent) = self.trace.owner[i].filter(|&a| self.never_offered(i, a)) else { return false };
        self.tool_success.get(&agent).is_some_and(|&latest| latest > start)
    }

    /// A call to a tool that is not among those the agent was shown.
    fn never_offered(&self, i: Idx, agent: usize) -> bool {
        let view = &self.trace.views[i];
        let Some(call) = view.call.as_ref().filter(|_| view.kind == Kind::Tool) else { return false };
        let offered = &self.trace.agents[agent].tools;
        !offered.is_empty() && offered.iter().all(|tool| tool.name != call.name)
    }

    /// An agent above ran the one that failed again, with success, and ended well itself. Agents
    /// are listed outermost first, so one pass tells it of all.
    fn look_above(&mut self) {
        for (at, agent) in self.trace.agents.iter().enumerate() {
            let above = agent.parent.filter(|&p| p < at);
            let recovered = above.is_some_and(|above| {
                self.recovered_above[above] || (self.ends_well[above] && self.recovered(agent.at))
            });
            self.recovered_above.push(recovered);
        }
    }

    fn succeeded(&self, i: Idx) -> bool {
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
        // Models are called under many names; any later answer of the agent's model will do.
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
    let at = &trace.views[agent.at];
    let error = trace.tree.spans[agent.at].status == Status::Error
        || at.errors.iter().any(|e| e.source != ErrorSource::Retry);
    let answer_fails = agent.answer_at.is_some_and(|a| a != agent.at && failing[a]);
    !error && !answer_fails
}
