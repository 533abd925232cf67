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

use crate::measure::Severity;
use crate::recognise::{ErrorSource, Scene};
use verdict_otlp::trace::{Idx, Kind, Status};

/// Metrics about the way, not about the result.
const PROCESS: [&str; 5] = ["tool_abuse", "plan_efficiency", "gpa.execution_efficiency", "latency", "tokens"];

/// What makes two spans attempts at the same thing.
type Operation<'s> = (Option<usize>, Kind, &'s str);

/// Answers which failures touch the outcome.
pub struct Relevance<'s> {
    scene: &'s Scene,
    failing: &'s [bool],
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
    pub fn new(scene: &'s Scene, failing: &'s [bool]) -> Relevance<'s> {
        let ends_well: Vec<bool> = (0..scene.agents.len()).map(|a| ends_well(scene, failing, a)).collect();
        let badly: HashSet<Idx> =
            scene.agents.iter().zip(&ends_well).filter(|(_, well)| !**well).map(|(a, _)| a.at).collect();
        let mut relevance = Relevance {
            scene,
            failing,
            success: HashMap::new(),
            tool_success: HashMap::new(),
            ends_well,
            recovered_above: Vec::new(),
            answers: scene.agents.iter().filter_map(|a| a.answer_at).collect(),
        };
        for i in 0..scene.tree.len() {
            if relevance.succeeded(i) && !badly.contains(&i) {
                let latest = relevance.success.entry(operation(scene, i)).or_default();
                let start = scene.tree.spans[i].start;
                *latest = (*latest).max(start);
                if let (Kind::Tool, Some(agent)) = (scene.readings[i].kind, scene.owner[i]) {
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
        let Some(agent) = self.scene.owner.get(i).copied().flatten() else { return true };
        let is_answer = self.answers.contains(&i);
        if self.ends_well[agent] {
            let process = failed.iter().all(|m| PROCESS.contains(m));
            let minor = severity == Severity::Low && !is_answer;
            if process || minor || self.recovered(i) {
                return false;
            }
        }
        !self.recovered_above[agent]
    }

    /// A later success of the same operation in the same agent.
    fn recovered(&self, i: Idx) -> bool {
        let start = self.scene.tree.spans[i].start;
        if self.success.get(&operation(self.scene, i)).is_some_and(|&latest| latest > start) {
            return true;
        }
        let Some(agent) = self.scene.owner[i].filter(|&a| self.never_offered(i, a)) else { return false };
        self.tool_success.get(&agent).is_some_and(|&latest| latest > start)
    }

    /// A call to a tool that is not among those the agent was shown.
    fn never_offered(&self, i: Idx, agent: usize) -> bool {
        let reading = &self.scene.readings[i];
        let Some(call) = reading.call.as_ref().filter(|_| reading.kind == Kind::Tool) else { return false };
        let offered = &self.scene.agents[agent].tools;
        !offered.is_empty() && offered.iter().all(|tool| tool.name != call.name)
    }

    /// An agent above ran the one that failed again, with success, and ended well itself. Agents
    /// are listed outermost first, so one pass tells it of all.
    fn look_above(&mut self) {
        for (at, agent) in self.scene.agents.iter().enumerate() {
            let above = agent.parent.filter(|&p| p < at);
            let recovered = above.is_some_and(|above| {
                self.recovered_above[above] || (self.ends_well[above] && self.recovered(agent.at))
            });
            self.recovered_above.push(recovered);
        }
    }

    fn succeeded(&self, i: Idx) -> bool {
        let reading = &self.scene.readings[i];
        !self.failing[i] && !reading.wrapper && self.scene.tree.spans[i].status != Status::Error
    }
}

fn operation(scene: &Scene, i: Idx) -> Operation<'_> {
    let reading = &scene.readings[i];
    // An agent's own span is an operation of the agent that called it.
    let owner = scene.owner.get(i).copied().flatten();
    let agent = match owner {
        Some(a) if scene.agents[a].at == i => scene.agents[a].parent,
        other => other,
    };
    let name = match (&reading.call, reading.kind) {
        (Some(call), _) => &*call.name,
        // Models are called under many names; any later answer of the agent's model will do.
        (None, Kind::Llm) => "",
        (None, Kind::Agent) => reading.agent.as_deref().or(reading.name.as_deref()).unwrap_or_default(),
        // "Step 2" and "Step 3" are one operation.
        (None, _) => {
            let name = reading.name.as_deref().unwrap_or_default();
            name.trim_end_matches(|c: char| c.is_ascii_digit() || " #_-.:".contains(c))
        }
    };
    (agent, reading.kind, name)
}

fn ends_well(scene: &Scene, failing: &[bool], agent: usize) -> bool {
    let agent = &scene.agents[agent];
    let at = &scene.readings[agent.at];
    let error = scene.tree.spans[agent.at].status == Status::Error
        || at.errors.iter().any(|e| e.source != ErrorSource::Retry);
    let answer_fails = agent.answer_at.is_some_and(|a| a != agent.at && failing[a]);
    !error && !answer_fails
}
