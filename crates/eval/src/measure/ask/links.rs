//! The steps of each agent in order, and the calls by the spans that requested and executed them.
//!
//! In: a trace. Out: for a model or tool call, the steps of the same agent, wherever a framework nests them, and for a
//! tool call the model call that requested it, as `recognise` linked them by call id.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use verdict_otlp::trace::{Idx, Kind};

use crate::measure::memo::Memo;
use crate::recognise::{Agent, AgentTrace, Call, Message, Part};

/// Maximum number of pieces shown of one step.
pub(super) const MAX_PIECES: usize = 4;

/// Steps and calls of a trace, computed once.
pub(super) struct StepLinks {
    /// By tool span: the index of the call that it executed.
    executed: HashMap<Idx, usize>,
    /// By model span that requested calls: the positions of the calls in its output, and those of the first other
    /// parts.
    requests: HashMap<Idx, (PartPositions, PartPositions)>,
    /// By agent: the spans of its model and tool calls, and of the agents that it called, in order.
    steps: Vec<Vec<Idx>>,
}

impl StepLinks {
    pub(super) fn cached(trace: &AgentTrace, memo: &Memo) -> Arc<StepLinks> {
        memo.shared_value(|| StepLinks::new(trace))
    }

    fn new(trace: &AgentTrace) -> StepLinks {
        let mut links = StepLinks {
            executed: HashMap::new(),
            requests: HashMap::new(),
            steps: vec![Vec::new(); trace.agents.len()],
        };
        for (i, call) in trace.calls.iter().enumerate() {
            if let Some(tool) = call.tool {
                links.executed.entry(tool).or_insert(i);
            }
            if let Some(llm) = call.llm {
                links.requests.entry(llm).or_insert_with(|| requests(trace, llm));
            }
        }
        for (span_index, owner) in trace.owner.iter().enumerate() {
            let Some(owner) = *owner else { continue };
            let Some(agent) = trace.agents.get(owner) else { continue };
            // The span of a called agent is a step of its caller.
            let step_owner = if agent.at == span_index { agent.parent } else { Some(owner) };
            if is_step(trace, span_index)
                && let Some(steps) = step_owner.and_then(|index| links.steps.get_mut(index))
            {
                steps.push(span_index);
            }
        }
        links
    }

    /// The call that a tool span executed.
    pub(super) fn executed<'t>(&self, trace: &'t AgentTrace, tool: Idx) -> Option<&'t Call> {
        trace.calls.get(*self.executed.get(&tool)?)
    }

    /// Whether the tool call at `tool` was requested by the model call at `llm`.
    pub(super) fn is_requested_by(&self, trace: &AgentTrace, tool: Idx, llm: Idx) -> bool {
        self.executed(trace, tool).is_some_and(|call| call.llm == Some(llm))
    }

    /// The call at index `position` among the calls of a model span's output, together with the first parts that are
    /// not calls, in order; `None` if the span requested no such call.
    pub(super) fn request<'t>(
        &self,
        trace: &'t AgentTrace,
        llm: Idx,
        position: usize,
    ) -> Option<Vec<&'t Part>> {
        let (calls, others) = self.requests.get(&llm)?;
        let mut parts = [others, &[*calls.get(position)?][..]].concat();
        parts.sort_unstable();
        let part = |(m, p): (usize, usize)| trace.views.get(llm)?.output.get(m)?.parts.get(p);
        Some(parts.into_iter().filter_map(part).collect())
    }

    /// The steps of an agent, in order.
    pub(super) fn steps(&self, agent: usize) -> &[Idx] {
        self.steps.get(agent).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Positions in the output of a span: indexes of message and part.
type PartPositions = Vec<(usize, usize)>;

/// The positions of the calls in the output of a model span, and those of the first other parts.
fn requests(trace: &AgentTrace, llm: Idx) -> (PartPositions, PartPositions) {
    let messages = trace.views.get(llm).map(|view| &*view.output).unwrap_or_default();
    let positions = |(m, message): (usize, &Message)| (0..message.parts.len()).map(move |p| (m, p));
    let is_call = |&(m, p): &(usize, usize)| matches!(messages[m].parts[p], Part::Call(_));
    let (calls, mut others): (PartPositions, PartPositions) =
        messages.iter().enumerate().flat_map(positions).partition(is_call);
    others.truncate(MAX_PIECES);
    (calls, others)
}

/// Whether a span is a step of its agent. Chains and spans without a kind only contain steps.
pub(super) fn is_step(trace: &AgentTrace, span_index: Idx) -> bool {
    trace.views.get(span_index).is_some_and(|view| {
        !view.wrapper
            && !view.cancelled
            && !matches!(view.kind, Kind::Chain | Kind::Unknown | Kind::Evaluator)
    })
}

/// Whether the span of an agent has arrived and ended, after which no span beneath it usually follows. An agent without
/// a span of its own has ended when the root of the trace has ended.
pub(crate) fn has_ended(trace: &AgentTrace, agent: &Agent) -> bool {
    let is_agent = trace.views.get(agent.at).is_some_and(|view| view.kind == Kind::Agent);
    let span = trace.tree.spans.get(agent.at);
    span.is_some_and(|span| span.end != 0 && (is_agent || span.parent.is_zero()))
}
