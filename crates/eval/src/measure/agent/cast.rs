//! Who stands where: the agent of a span, and what was asked of it.
//!
//! In: the agents of a scene. Out: the one whose verdicts are written on a given span, its calls
//! together with those of the agents beneath it, and its task.

use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};

use crate::measure::{Memo, View};
use crate::recognise::{Agent, Message, Part, Role, Scene, Text};
use verdict_otlp::trace::Idx;

struct Cast(HashMap<Idx, usize>);

/// The index of the agent whose span is `at`.
pub fn index_at(scene: &Scene, memo: &Memo, at: Idx) -> Option<usize> {
    let cast: Rc<Cast> = memo.scene(|| {
        let mut map = HashMap::with_capacity(scene.agents.len());
        for (i, agent) in scene.agents.iter().enumerate() {
            map.entry(agent.at).or_insert(i);
        }
        Cast(map)
    });
    cast.0.get(&at).copied()
}

/// The agent whose span is looked at, with its index.
pub fn indexed_at<'a>(view: &View<'a>) -> Option<(usize, &'a Agent)> {
    let i = index_at(view.scene, view.memo, view.at)?;
    Some((i, view.scene.agents.get(i)?))
}

/// The agent whose span is looked at.
pub fn agent_at<'a>(view: &View<'a>) -> Option<&'a Agent> {
    indexed_at(view).map(|(_, agent)| agent)
}

struct Others {
    /// Whether an agent has agents beneath it.
    helped: Vec<bool>,
    /// How many agents have a name.
    named: HashMap<Text, usize>,
}

fn others(scene: &Scene, memo: &Memo) -> Rc<Others> {
    memo.scene(|| {
        let mut others = Others { helped: vec![false; scene.agents.len()], named: HashMap::new() };
        for agent in &scene.agents {
            if let Some(helped) = agent.parent.and_then(|p| others.helped.get_mut(p)) {
                *helped = true;
            }
            if let Some(name) = &agent.name {
                *others.named.entry(name.clone()).or_default() += 1;
            }
        }
        others
    })
}

/// Whether agent `i` called other agents.
pub fn has_helpers(scene: &Scene, memo: &Memo, i: usize) -> bool {
    others(scene, memo).helped.get(i).copied().unwrap_or(false)
}

/// Whether an agent other than `agent` goes by `name`.
pub fn is_another(scene: &Scene, memo: &Memo, agent: &Agent, name: &str) -> bool {
    let own = usize::from(agent.name.as_deref() == Some(name));
    others(scene, memo).named.get(&Text::from(name)).is_some_and(|&all| all > own)
}

struct Reach(Vec<Vec<usize>>);

/// The calls of agent `i` and of all agents beneath it, in order.
///
/// Agents deeper than `MAX_DEPTH` are not counted for those far above them.
pub fn calls_beneath(scene: &Scene, memo: &Memo, i: usize) -> Vec<usize> {
    let reach: Rc<Reach> = memo.scene(|| {
        let mut all: Vec<Vec<usize>> = scene.agents.iter().map(|a| a.calls.clone()).collect();
        for agent in &scene.agents {
            let mut up = agent.parent;
            for _ in 0..MAX_DEPTH {
                let Some(above) = up else { break };
                if let Some(calls) = all.get_mut(above) {
                    calls.extend_from_slice(&agent.calls);
                }
                up = scene.agents.get(above).and_then(|a| a.parent);
            }
        }
        for calls in &mut all {
            calls.sort_unstable();
            calls.dedup();
        }
        Reach(all)
    });
    reach.0.get(i).cloned().unwrap_or_default()
}

/// Agents that call agents that call agents: deeper nesting is a sender's fancy.
const MAX_DEPTH: usize = 16;

/// What agent `i` was asked: as recognised, else the last thing a user said to its first model
/// call.
pub fn task(scene: &Scene, i: usize) -> Option<&Text> {
    task_at(scene, i).map(|(task, _)| task)
}

/// The same, with the span whose input it is.
pub fn task_at(scene: &Scene, i: usize) -> Option<(&Text, Idx)> {
    let agent = scene.agents.get(i)?;
    if let Some(task) = agent.task.as_ref().filter(|t| !t.trim().is_empty()) {
        return Some((task, agent.task_at.unwrap_or(agent.at)));
    }
    let at = *agent.llms.first()?;
    let users = scene.readings.get(at)?.input.iter().rev().filter(|m| m.role == Role::User);
    Some((users.into_iter().find_map(said)?, at))
}

/// The system prompt of agent `i`, where it is recorded.
pub fn instructions(scene: &Scene, i: usize) -> Option<&Text> {
    let agent = scene.agents.get(i)?;
    let first = scene.readings.get(*agent.llms.first()?)?;
    first.input.iter().find(|m| m.role == Role::System).and_then(said)
}

fn said(message: &Message) -> Option<&Text> {
    message.parts.iter().find_map(|p| match p {
        Part::Text(t) if !t.trim().is_empty() => Some(t),
        _ => None,
    })
}
