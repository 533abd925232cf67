//! Plans: each with what led to it, and a run cut where its plans change.
//!
//! In: a trace and whose plans. Out: for plan quality, the first plan of each agent with what it
//! knew then, and each later plan with its trigger alone (the results and errors since the plan
//! before); no other execution, since a plan is not judged by what became of it (000, section 3).
//! For plan adherence, segments from plan to replan: what was done is held against the plan that was
//! in force.

use super::Asker;
use super::content::{Piece, WITHHELD, What, given, made, title, tools};
use super::parts::{cut, size};
use super::prompt_page::Block;
use super::transcript::Scope;
use crate::recognise::{Agent, AgentTrace, Plan};
use verdict_otlp::trace::{Idx, Kind};

/// Results and errors shown of what came before a replan, the latest.
const MOST_TRIGGERS: usize = 6;
/// Spans looked through for them.
const FAR: usize = 300;

/// Agents of a scope that have plans.
pub fn planners(trace: &AgentTrace, scope: Scope) -> Vec<&Agent> {
    let of = |i: usize| match scope {
        Scope::Trace => true,
        Scope::Own(own) | Scope::Beneath(own) => i == own,
    };
    trace
        .agents
        .iter()
        .enumerate()
        .filter(|(i, agent)| of(*i) && !agent.plans.is_empty())
        .map(|(_, a)| a)
        .collect()
}

/// Plans with what was known when they were made.
pub fn with_triggers(asker: &Asker, trace: &AgentTrace, scope: Scope, most: usize) -> Vec<Block> {
    let mut out = Vec::new();
    for agent in planners(trace, scope) {
        let who = agent.name.as_ref().map_or_else(|| "the agent".to_owned(), |n| asker.name(n));
        if let Some(task) = &agent.task {
            let text = asker.shown(trace, agent.task_at.unwrap_or(agent.at), task, most);
            out.push(Block::about(format!("what {who} was asked"), text, true));
        }
        if !agent.tools.is_empty() {
            let text = match asker.withholds_of(trace, agent) {
                true => WITHHELD.to_owned(),
                false => asker.shown(trace, agent.at, &tools(&agent.tools), most),
            };
            out.push(Block::about(format!("tools that {who} has"), text, true));
        }
        for (n, (at, plan)) in agent.plans.iter().enumerate() {
            let before = n.checked_sub(1).and_then(|b| agent.plans.get(b)).map(|(at, _)| *at);
            match before {
                None => out.extend(known(asker, trace, *at, most)),
                Some(before) => out.extend(triggers(asker, trace, agent, before, *at, most)),
            }
            out.push(written(asker, trace, *at, plan, n, most));
        }
    }
    out
}

fn written(asker: &Asker, trace: &AgentTrace, at: Idx, plan: &Plan, n: usize, most: usize) -> Block {
    let which = if n == 0 { "PLAN, the first".to_owned() } else { format!("REPLAN {n}") };
    let piece = Piece { what: What::Output, text: std::borrow::Cow::Borrowed(&plan.text) };
    let mut block = asker.block(trace, at, &piece, format!("{} | {which}", title(asker, trace, at)), most);
    (block.plan, block.binds) = (true, true);
    block
}

/// What the first plan's writer had read.
fn known(asker: &Asker, trace: &AgentTrace, at: Idx, most: usize) -> Vec<Block> {
    let Some(view) = trace.views.get(at) else { return Vec::new() };
    let pieces = given(view);
    let blocks = pieces.iter().filter(|piece| !piece.text.trim().is_empty()).map(|piece| {
        let label = format!("{} | {}, before the plan", title(asker, trace, at), piece.what.words());
        asker.block(trace, at, piece, label, most)
    });
    blocks.collect()
}

/// Results and errors between two plans of an agent.
fn triggers(asker: &Asker, trace: &AgentTrace, agent: &Agent, from: Idx, to: Idx, most: usize) -> Vec<Block> {
    let own = trace.owner.get(agent.at).copied().flatten();
    let belongs = |at: &Idx| {
        let owner = trace.owner.get(*at).copied().flatten();
        let called =
            trace.agents.get(owner.unwrap_or(usize::MAX)).is_some_and(|a| a.at == *at && a.parent == own);
        owner == own || called
    };
    let mut out: Vec<Block> = Vec::new();
    for at in (from + 1..to).rev().take(FAR).filter(belongs) {
        let Some(view) = trace.views.get(at) else { continue };
        let tells = |what: What| match view.kind {
            Kind::Llm => what == What::Error,
            _ => matches!(what, What::Result | What::Error | What::Output),
        };
        let pieces = made(view);
        for piece in pieces.iter().rev().filter(|piece| tells(piece.what)) {
            if out.len() < MOST_TRIGGERS {
                let label =
                    format!("{} | {}, before the replan", title(asker, trace, at), piece.what.words());
                out.push(asker.block(trace, at, piece, label, most));
            }
        }
    }
    out.reverse();
    out
}

/// A story cut at its plans; small segments share a part.
pub fn segments(story: Vec<Block>, room: usize) -> Vec<Vec<Block>> {
    let mut segments: Vec<Vec<Block>> = vec![Vec::new()];
    for block in story {
        if block.plan && segments.last().is_some_and(|s| !s.is_empty()) {
            segments.push(Vec::new());
        }
        if let Some(segment) = segments.last_mut() {
            segment.push(block);
        }
    }
    let mut parts: Vec<Vec<Block>> = Vec::new();
    let mut used = usize::MAX;
    for segment in segments {
        let takes: usize = segment.iter().map(size).sum();
        match parts.last_mut().filter(|_| used.saturating_add(takes) <= room) {
            Some(part) => {
                used += takes;
                part.extend(segment);
            }
            None => {
                parts.extend(cut(segment, room));
                used = parts.last().map_or(0, |part| part.iter().map(size).sum());
            }
        }
    }
    parts
}
