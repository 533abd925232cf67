//! Finds the agents of a trace that a task applies to, with the captures of their prompt and their calls in order.

use foldhash::HashMap;
use verdict_config::{admits, matches};
use verdict_otlp::attribute_values::values;
use verdict_otlp::trace::Idx;

use super::prompt_pattern::PromptCaptures;
use super::task::{AgentConditions, PromptPattern, Scope, Task};
use crate::measure::agent_index;
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::recognise::{AgentTrace, Call};

/// The calls of agent `i` that `task` applies to, with the captures of its prompt; `None` if the
/// task does not apply. The calls of one message are in the order of the message.
pub fn calls_of(task: &Task, trace: &AgentTrace, i: usize) -> Option<(Vec<usize>, PromptCaptures)> {
    let mut calls = match task.scope {
        Scope::Agent => trace.agents.get(i)?.calls.clone(),
        Scope::Trace if i == 0 => (0..trace.calls.len()).collect(),
        // In trace scope only the outermost agent has a path.
        Scope::Trace => return None,
    };
    let captures = captures(&task.matching, trace, i)?;
    restore_message_order(&trace.calls, &mut calls);
    Some((calls, captures))
}

/// The steps of the work budget that [`calls_of`] takes; sorting eight calls is one step.
pub(super) fn matching_steps(task: &Task, trace: &AgentTrace, i: usize) -> usize {
    let calls = match task.scope {
        Scope::Agent => trace.agents.get(i).map_or(0, |agent| agent.calls.len()),
        Scope::Trace => trace.calls.len() * usize::from(i == 0),
    };
    let prompt = task.matching.prompt.as_ref().and_then(|_| agent_index::task(trace, i));
    1 + calls / 8 + prompt.map_or(0, |prompt| prompt.len() / BYTES_PER_STEP)
}

/// Sorts the calls that one message requested by their order in the message, without moving other calls. A framework
/// that executes them concurrently starts them in any order.
fn restore_message_order(all: &[Call], calls: &mut [usize]) {
    let mut positions_by_llm: HashMap<Idx, Vec<usize>> = HashMap::default();
    for (position, call) in calls.iter().enumerate().filter_map(|(n, &i)| Some((n, all.get(i)?))) {
        if let Some(llm) = call.llm.filter(|_| call.request_index.is_some()) {
            positions_by_llm.entry(llm).or_default().push(position);
        }
    }
    for positions in positions_by_llm.into_values() {
        let mut message_calls: Vec<usize> = positions.iter().map(|&position| calls[position]).collect();
        message_calls.sort_by_key(|&i| all[i].request_index);
        for (position, call) in positions.into_iter().zip(message_calls) {
            calls[position] = call;
        }
    }
}

/// Whether a service and an agent have the required names.
pub(super) fn has_required_names(
    matching: &AgentConditions,
    service: Option<&str>,
    agent: Option<&str>,
) -> bool {
    admits(matching.service.as_deref(), service) && admits(matching.agent.as_deref(), agent)
}

/// The captures of the prompt of agent `i`; `None` if it does not meet the conditions.
fn captures(matching: &AgentConditions, trace: &AgentTrace, i: usize) -> Option<PromptCaptures> {
    let agent = trace.agents.get(i)?;
    let view = trace.views.get(agent.at)?;
    let span = trace.tree.spans.get(agent.at)?;
    let has_value =
        |(key, pattern): (&String, &String)| values(span, key).any(|value| matches(pattern, &value));
    let name = agent.name.as_deref().or(view.agent.as_deref());
    let is_match = has_required_names(matching, view.service.as_deref(), name)
        && matching.attribute.iter().all(has_value);
    if !is_match {
        return None;
    }
    let Some(prompt) = &matching.prompt else { return Some(PromptCaptures::default()) };
    let task = agent_index::task(trace, i)?;
    match prompt {
        PromptPattern::Exactly(text) => (text.trim() == task.trim()).then(PromptCaptures::default),
        PromptPattern::Matches(pattern) => pattern.captures(task),
    }
}
