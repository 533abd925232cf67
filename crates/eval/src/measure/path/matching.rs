//! The agents of a trace that a task applies to, with the captures of their prompt.

use verdict_config::{admits, matches};
use verdict_otlp::stated::stated;

use super::argument::PromptCaptures;
use super::task::{Matching, PromptPattern, Scope, Task};
use crate::measure::agent::agent_index;
use crate::recognise::AgentTrace;

/// The calls of agent `i` that `task` applies to, with the captures of its prompt; `None` if the
/// task does not apply.
pub fn calls_of(task: &Task, trace: &AgentTrace, i: usize) -> Option<(Vec<usize>, PromptCaptures)> {
    let agent = trace.agents.get(i)?;
    // In trace scope there is one path: that of the outermost agent with all calls of the trace.
    if task.scope == Scope::Trace && i > 0 {
        return None;
    }
    let captured = captured(&task.matching, trace, i)?;
    let calls = match task.scope {
        Scope::Agent => agent.calls.clone(),
        Scope::Trace => (0..trace.calls.len()).collect(),
    };
    Some((calls, captured))
}

fn captured(matching: &Matching, trace: &AgentTrace, i: usize) -> Option<PromptCaptures> {
    let agent = trace.agents.get(i)?;
    let view = trace.views.get(agent.at)?;
    let named = |wanted: &Option<String>, seen: Option<&str>| admits(wanted.as_deref(), seen);
    let span = trace.tree.spans.get(agent.at)?;
    let matches = named(&matching.service, view.service.as_deref())
        && named(&matching.agent, agent.name.as_deref().or(view.agent.as_deref()))
        && matching
            .attribute
            .iter()
            .all(|(key, wanted)| stated(span, key).any(|value| matches(wanted, &value)));
    if !matches {
        return None;
    }
    let Some(prompt) = &matching.prompt else { return Some(PromptCaptures::default()) };
    let asked = agent_index::task(trace, i)?;
    match prompt {
        PromptPattern::Exactly(text) => (text.trim() == asked.trim()).then(PromptCaptures::default),
        PromptPattern::Matches(regex) => {
            let found = regex.captures(asked)?;
            let named = regex.capture_names().flatten();
            let texts =
                named.filter_map(|name| Some((name.to_owned(), found.name(name)?.as_str().to_owned())));
            Some(texts.collect())
        }
    }
}
