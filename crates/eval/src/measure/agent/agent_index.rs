//! Agents by span.
//!
//! In: the agents of a trace. Out: the agent whose verdicts are written on a given span, its calls
//! together with those of the agents beneath it, and its task.

use std::iter::successors;
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use verdict_otlp::trace::Idx;

use crate::measure::{Context, Memo, Unmeasured};
use crate::recognise::{Agent, AgentTrace, Message, Part, Role, Text};

/// Relations among the agents of a trace, computed once.
struct Relations {
    /// By span: the agent of the span.
    of_span: HashMap<Idx, usize>,
    /// By agent: whether it has agents beneath it.
    calls_agents: Vec<bool>,
    /// The number of agents with a name.
    with_name: HashMap<Text, usize>,
    /// By agent: its calls and those of the agents beneath it, in order.
    calls_beneath: Vec<Vec<usize>>,
}

impl Relations {
    fn of(trace: &AgentTrace, memo: &Memo) -> Rc<Relations> {
        memo.trace(|| {
            let mut of_span = HashMap::new();
            let mut calls_agents = vec![false; trace.agents.len()];
            let mut with_name: HashMap<Text, usize> = HashMap::new();
            let mut calls_beneath: Vec<Vec<usize>> = trace.agents.iter().map(|a| a.calls.clone()).collect();
            for (i, agent) in trace.agents.iter().enumerate() {
                of_span.entry(agent.at).or_insert(i);
                if let Some(calls_agents) = agent.parent.and_then(|up| calls_agents.get_mut(up)) {
                    *calls_agents = true;
                }
                if let Some(name) = &agent.name {
                    *with_name.entry(name.clone()).or_default() += 1;
                }
                let above = successors(agent.parent, |&up| trace.agents.get(up)?.parent);
                for up in above.take(MAX_DEPTH) {
                    if let Some(calls) = calls_beneath.get_mut(up) {
                        calls.extend_from_slice(&agent.calls);
                    }
                }
            }
            for calls in &mut calls_beneath {
                calls.sort_unstable();
                calls.dedup();
            }
            Relations { of_span, calls_agents, with_name, calls_beneath }
        })
    }
}

/// The agent whose span is that of the context, with its index.
pub(crate) fn indexed_at<'a>(context: &Context<'a>) -> Option<(usize, &'a Agent)> {
    let i = *Relations::of(context.trace, context.memo).of_span.get(&context.at)?;
    Some((i, context.trace.agents.get(i)?))
}

/// Whether agent `i` called other agents.
pub(crate) fn has_sub_agents(trace: &AgentTrace, memo: &Memo, i: usize) -> bool {
    Relations::of(trace, memo).calls_agents.get(i).copied().unwrap_or(false)
}

/// Whether an agent other than `agent` has this name.
pub(crate) fn other_agent_is_named(trace: &AgentTrace, memo: &Memo, agent: &Agent, name: &str) -> bool {
    let own = usize::from(agent.name.as_deref() == Some(name));
    Relations::of(trace, memo).with_name.get(&Text::from(name)).is_some_and(|&all| all > own)
}

/// The calls of agent `i` and of all agents beneath it, in order.
///
/// The calls of an agent count for the `MAX_DEPTH` agents above it.
pub(crate) fn calls_beneath(trace: &AgentTrace, memo: &Memo, i: usize) -> Vec<usize> {
    Relations::of(trace, memo).calls_beneath.get(i).cloned().unwrap_or_default()
}

/// Deeper nesting of agents does not occur in practice.
const MAX_DEPTH: usize = 16;

/// Why the agent has no task that can be read.
pub(crate) fn missing_task(agent: &Agent) -> Unmeasured {
    if agent.task_content.is_partial() { agent.task_content.into() } else { Unmeasured::NoContent }
}

/// The task of agent `i`: as recognised, else the last user message of its first model call.
pub(crate) fn task(trace: &AgentTrace, i: usize) -> Option<&Text> {
    task_at(trace, i).map(|(task, _)| task)
}

/// The task, with the span whose input contains it.
pub(crate) fn task_at(trace: &AgentTrace, i: usize) -> Option<(&Text, Idx)> {
    let agent = trace.agents.get(i).filter(|agent| !agent.task_content.is_partial())?;
    if let Some(task) = agent.task.as_ref().filter(|t| !t.trim().is_empty()) {
        return Some((task, agent.task_at.unwrap_or(agent.at)));
    }
    let at = *agent.llms.first()?;
    let view = trace.views.get(at).filter(|view| !view.input_content.is_partial())?;
    let users = view.input.iter().rev().filter(|m| m.role == Role::User);
    Some((users.into_iter().find_map(first_text)?, at))
}

/// The system prompt of agent `i`.
pub(crate) fn instructions(trace: &AgentTrace, i: usize) -> Option<&Text> {
    let agent = trace.agents.get(i)?;
    let first = trace.views.get(*agent.llms.first()?)?;
    first.input.iter().find(|m| m.role == Role::System).and_then(first_text)
}

/// The first text of a message that is not blank.
pub(crate) fn first_text(message: &Message) -> Option<&Text> {
    message.parts.iter().find_map(|p| match p {
        Part::Text(t) if !t.trim().is_empty() => Some(t),
        _ => None,
    })
}
