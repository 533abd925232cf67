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
    let calls = match task.scope {
        Scope::Agent => trace.agents.get(i)?.calls.clone(),
        Scope::Trace if i == 0 => (0..trace.calls.len()).collect(),
        // In trace scope only the outermost agent has a path.
        Scope::Trace => return None,
    };
    Some((calls, captured(&task.matching, trace, i)?))
}

fn captured(matching: &Matching, trace: &AgentTrace, i: usize) -> Option<PromptCaptures> {
    let agent = trace.agents.get(i)?;
    let view = trace.views.get(agent.at)?;
    let span = trace.tree.spans.get(agent.at)?;
    let has = |(key, wanted): (&String, &String)| stated(span, key).any(|value| matches(wanted, &value));
    let matches = admits(matching.service.as_deref(), view.service.as_deref())
        && admits(matching.agent.as_deref(), agent.name.as_deref().or(view.agent.as_deref()))
        && matching.attribute.iter().all(has);
    if !matches {
        return None;
    }
    let Some(prompt) = &matching.prompt else { return Some(PromptCaptures::default()) };
    let asked = agent_index::task(trace, i)?;
    match prompt {
        PromptPattern::Exactly(text) => (text.trim() == asked.trim()).then(PromptCaptures::default),
        PromptPattern::Matches(regex) => {
            let found = regex.captures(asked)?;
            let text = |name: &str| Some((name.to_owned(), found.name(name)?.as_str().to_owned()));
            Some(regex.capture_names().flatten().filter_map(text).collect())
        }
    }
}
