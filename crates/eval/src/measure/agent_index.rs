//! Agents by span.
//!
//! In: the agents of a trace. Out: the agent whose verdicts are written on a given span, its calls
//! together with those of the agents beneath it, and its task.

use std::iter::successors;
use std::ops::Range;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use verdict_otlp::trace::Idx;

use crate::measure::excerpt::is_blank;
use crate::measure::{Context, Memo, Unmeasured};
use crate::recognise::{Agent, AgentTrace, Message, Part, RecordedPlan, Role, Text};

/// Relations among the agents of a trace, computed once.
struct Relations {
    /// By span: the agent of the span.
    agent_by_span: HashMap<Idx, usize>,
    /// By agent: the starts of the agents directly beneath it, ascending.
    child_starts: Vec<Vec<u64>>,
    /// By name: the number of agents.
    agents_per_name: HashMap<Text, usize>,
    /// By agent: its calls and those of the agents beneath it, in order.
    subtree_calls: Vec<Vec<usize>>,
    /// By agent: its spans, in order.
    spans: Vec<Vec<Idx>>,
    /// By agent: the agents directly beneath it.
    children: Vec<Vec<usize>>,
    /// By span: the plans that it wrote, as the agent and the position among that agent's plans.
    plans: HashMap<Idx, Vec<(usize, usize)>>,
    /// By agent: whether it is a group chat: it calls no model, and contains several runs of one agent.
    is_group_chat: Vec<bool>,
}

impl Relations {
    fn cached(trace: &AgentTrace, memo: &Memo) -> Arc<Relations> {
        memo.shared_value(|| {
            let mut spans: Vec<Vec<Idx>> = vec![Vec::new(); trace.agents.len()];
            for (span_index, owner) in trace.owner.iter().enumerate() {
                if let Some(spans) = owner.and_then(|i| spans.get_mut(i)) {
                    spans.push(span_index);
                }
            }
            let mut children: Vec<Vec<usize>> = vec![Vec::new(); trace.agents.len()];
            let mut agent_by_span = HashMap::new();
            let mut child_starts: Vec<Vec<u64>> = vec![Vec::new(); trace.agents.len()];
            let mut agents_per_name: HashMap<Text, usize> = HashMap::new();
            let mut plans: HashMap<Idx, Vec<(usize, usize)>> = HashMap::new();
            let mut members: HashSet<(usize, &str)> = HashSet::new();
            let mut is_group_chat = vec![false; trace.agents.len()];
            let mut subtree_calls: Vec<Vec<usize>> = trace.agents.iter().map(|a| a.calls.clone()).collect();
            for (i, agent) in trace.agents.iter().enumerate() {
                agent_by_span.entry(agent.at).or_insert(i);
                for (nth, (span_index, _)) in agent.plans.iter().enumerate() {
                    plans.entry(*span_index).or_default().push((i, nth));
                }
                if let Some(siblings) = agent.parent.and_then(|parent| children.get_mut(parent)) {
                    siblings.push(i);
                }
                if let Some(starts) = agent.parent.and_then(|parent| child_starts.get_mut(parent)) {
                    starts.push(trace.tree.spans.get(agent.at).map_or(0, |span| span.start));
                }
                if let Some(name) = &agent.name {
                    *agents_per_name.entry(name.clone()).or_default() += 1;
                }
                let member = agent.parent.zip(agent.name.as_deref());
                if let Some((parent, name)) = member.filter(|member| !members.insert(*member))
                    && let Some(is_group_chat) = is_group_chat.get_mut(parent)
                {
                    *is_group_chat |=
                        !name.is_empty() && trace.agents.get(parent).is_some_and(|a| a.llms.is_empty());
                }
                let ancestors = successors(agent.parent, |&ancestor| trace.agents.get(ancestor)?.parent);
                for ancestor in ancestors.take(MAX_DEPTH) {
                    if let Some(calls) = subtree_calls.get_mut(ancestor) {
                        calls.extend_from_slice(&agent.calls);
                    }
                }
            }
            for calls in &mut subtree_calls {
                calls.sort_unstable();
                calls.dedup();
            }
            child_starts.iter_mut().for_each(|starts| starts.sort_unstable());
            Relations {
                agent_by_span,
                child_starts,
                agents_per_name,
                subtree_calls,
                spans,
                children,
                plans,
                is_group_chat,
            }
        })
    }
}

/// The agent whose span is that of the context, with the agent's index; `None` for a span that is not an agent's.
pub(crate) fn indexed_at<'a>(context: &Context<'a>) -> Option<(usize, &'a Agent)> {
    let agents = &context.trace.agents;
    let i = match agents.len() {
        // This function is called for every span: for few agents, a scan is cheaper than the map.
        ..=FEW_AGENTS => agents.iter().position(|agent| agent.at == context.at)?,
        _ => *Relations::cached(context.trace, context.memo).agent_by_span.get(&context.at)?,
    };
    Some((i, agents.get(i)?))
}

/// Whether agent `i` called other agents.
pub(crate) fn has_sub_agents(trace: &AgentTrace, memo: &Memo, i: usize) -> bool {
    Relations::cached(trace, memo).child_starts.get(i).is_some_and(|starts| !starts.is_empty())
}

/// The spans of agent `i`, in order.
pub(crate) fn spans_of(trace: &AgentTrace, memo: &Memo, i: usize) -> Vec<Idx> {
    Relations::cached(trace, memo).spans.get(i).cloned().unwrap_or_default()
}

/// The agents directly beneath agent `i`.
pub(crate) fn agents_beneath(trace: &AgentTrace, memo: &Memo, i: usize) -> Vec<usize> {
    Relations::cached(trace, memo).children.get(i).cloned().unwrap_or_default()
}

/// The plans that a span wrote, each with its agent.
pub(crate) fn plans_at<'t>(
    trace: &'t AgentTrace,
    memo: &Memo,
    span_index: Idx,
) -> Vec<(usize, &'t RecordedPlan)> {
    let relations = Relations::cached(trace, memo);
    let plans = relations.plans.get(&span_index).map(Vec::as_slice).unwrap_or_default();
    let plan = |&(i, nth): &(usize, usize)| Some((i, &trace.agents.get(i)?.plans.get(nth)?.1));
    plans.iter().filter_map(plan).collect()
}

/// Whether an agent has this name.
pub(crate) fn is_agent_name(trace: &AgentTrace, memo: &Memo, name: &str) -> bool {
    Relations::cached(trace, memo).agents_per_name.contains_key(&Text::from(name))
}

/// Whether an agent directly beneath agent `i` started within this time.
pub(crate) fn starts_agent_within(trace: &AgentTrace, memo: &Memo, i: usize, time: Range<u64>) -> bool {
    let relations = Relations::cached(trace, memo);
    let starts = relations.child_starts.get(i).map(Vec::as_slice).unwrap_or_default();
    starts.get(starts.partition_point(|start| *start < time.start)).is_some_and(|start| time.contains(start))
}

/// Whether an agent other than `agent` has this name.
pub(crate) fn other_agent_is_named(trace: &AgentTrace, memo: &Memo, agent: &Agent, name: &str) -> bool {
    let own_count = usize::from(agent.name.as_deref() == Some(name));
    Relations::cached(trace, memo).agents_per_name.get(&Text::from(name)).is_some_and(|&all| all > own_count)
}

/// The calls of agent `i` and of all agents beneath it, in order.
///
/// The calls of an agent count for the `MAX_DEPTH` agents above it.
pub(crate) fn subtree_calls(trace: &AgentTrace, memo: &Memo, i: usize) -> Vec<usize> {
    Relations::cached(trace, memo).subtree_calls.get(i).cloned().unwrap_or_default()
}

/// Maximum agents above an agent for which its calls count; deeper nesting does not occur in practice.
const MAX_DEPTH: usize = 16;
/// Up to this number of agents, the agent of a span is found by a scan.
const FEW_AGENTS: usize = 8;

/// The unmeasured reason for an agent without a task that can be read.
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
    if let Some(task) = agent.task.as_ref().filter(|t| !is_blank(t)) {
        return Some((task, agent.task_at.unwrap_or(agent.at)));
    }
    let span_index = *agent.llms.first()?;
    let view = trace.views.get(span_index).filter(|view| !view.input_content.is_partial())?;
    let users = view.input.iter().rev().filter(|m| m.role == Role::User);
    Some((users.into_iter().find_map(first_text)?, span_index))
}

/// Whether the agent is one turn of a group chat: its parent calls no model, and contains several runs of one agent.
/// A turn of a group chat is a message to the other agents, not an answer to a user.
pub(crate) fn is_group_chat_turn(trace: &AgentTrace, memo: &Memo, agent: &Agent) -> bool {
    agent.parent.is_some_and(|parent| {
        Relations::cached(trace, memo).is_group_chat.get(parent).copied().unwrap_or(false)
    })
}

/// The system prompt of the first model call of agent `i`.
pub(crate) fn instructions(trace: &AgentTrace, i: usize) -> Option<&Text> {
    let agent = trace.agents.get(i)?;
    let first = trace.views.get(*agent.llms.first()?)?;
    first.input.iter().find(|m| m.role == Role::System).and_then(first_text)
}

/// The first text of a message that is not blank.
pub(crate) fn first_text(message: &Message) -> Option<&Text> {
    message.parts.iter().find_map(|p| match p {
        Part::Text(t) if !is_blank(t) => Some(t),
        _ => None,
    })
}
