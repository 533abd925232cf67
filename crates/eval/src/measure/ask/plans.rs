//! Plans with their triggers, and runs split at plans.
//!
//! In: a trace and a scope. Out: for plan quality, the first plan of each agent with the input of
//! its model call, and each later plan with its trigger alone (results and errors since the
//! previous plan); nothing else, since a plan is not judged by its execution (000, section 3). For
//! plan adherence, segments from plan to replan, so that steps are compared with the plan in force.

use verdict_otlp::trace::{Idx, Kind};

use super::asker::Asker;
use super::content::{ContentPiece, PieceKind, WITHHELD, input_pieces, output_pieces, render_tools, title};
use super::parts::{size, split_into_parts};
use super::prompt_page::Block;
use super::transcript::{RunScope, in_scope};
use crate::recognise::{Agent, AgentTrace, RecordedPlan};

/// Maximum results and errors shown before a replan, the latest.
const MAX_TRIGGERS: usize = 6;
/// Maximum spans searched for them.
const MAX_SEARCHED: usize = 300;

/// Agents of a scope that have plans.
pub(crate) fn planners(trace: &AgentTrace, scope: RunScope) -> Vec<&Agent> {
    let agents = match scope {
        RunScope::Trace => trace.agents.get(..),
        RunScope::Own(i) | RunScope::Beneath(i) => trace.agents.get(i..=i),
    };
    agents.unwrap_or_default().iter().filter(|agent| !agent.plans.is_empty()).collect()
}

/// Plans with their triggers.
pub(crate) fn with_triggers(asker: &Asker, trace: &AgentTrace, scope: RunScope, most: usize) -> Vec<Block> {
    let mut out = Vec::new();
    for agent in planners(trace, scope) {
        let who = asker.agent_name(agent).unwrap_or_else(|| "the agent".to_owned());
        if let Some(task) = &agent.task {
            let text = asker.shown(trace, agent.task_at.unwrap_or(agent.at), task, most);
            out.push(Block::about(format!("what {who} was asked"), text, true));
        }
        if !agent.tools.is_empty() {
            let text = match asker.withholds_of(trace, agent) {
                true => WITHHELD.to_owned(),
                false => asker.shown(trace, agent.at, &render_tools(&agent.tools), most),
            };
            out.push(Block::about(format!("tools that {who} has"), text, true));
        }
        for (n, (at, plan)) in agent.plans.iter().enumerate() {
            let before = n.checked_sub(1).and_then(|b| agent.plans.get(b)).map(|(at, _)| *at);
            match before {
                None => out.extend(planning_input(asker, trace, *at, most)),
                Some(before) => out.extend(triggers(asker, trace, agent, before, *at, most)),
            }
            out.push(plan_block(asker, trace, *at, plan, n, most));
        }
    }
    out
}

fn plan_block(
    asker: &Asker,
    trace: &AgentTrace,
    at: Idx,
    plan: &RecordedPlan,
    n: usize,
    most: usize,
) -> Block {
    let which = if n == 0 { "PLAN, the first".to_owned() } else { format!("REPLAN {n}") };
    let piece = ContentPiece { kind: PieceKind::Output, text: std::borrow::Cow::Borrowed(&plan.text) };
    let mut block = asker.block(trace, at, &piece, format!("{} | {which}", title(asker, trace, at)), most);
    (block.plan, block.binds) = (true, true);
    block
}

/// The input of the model call that wrote the first plan.
fn planning_input(asker: &Asker, trace: &AgentTrace, at: Idx, most: usize) -> Vec<Block> {
    let Some(view) = trace.views.get(at) else { return Vec::new() };
    let pieces = input_pieces(view);
    let blocks = pieces.iter().filter(|piece| !piece.text.trim().is_empty()).map(|piece| {
        let label = format!("{} | {}, before the plan", title(asker, trace, at), piece.kind.as_str());
        asker.block(trace, at, piece, label, most)
    });
    blocks.collect()
}

/// Results and errors between two plans of an agent.
fn triggers(asker: &Asker, trace: &AgentTrace, agent: &Agent, from: Idx, to: Idx, most: usize) -> Vec<Block> {
    let own = trace.owner.get(agent.at).copied().flatten().map(RunScope::Own);
    let belongs = |at: &Idx| own.is_some_and(|own| in_scope(trace, own, *at));
    let mut out: Vec<Block> = Vec::new();
    for at in (from + 1..to).rev().take(MAX_SEARCHED).filter(belongs) {
        let Some(view) = trace.views.get(at) else { continue };
        let is_trigger = |kind: PieceKind| match view.kind {
            Kind::Llm => kind == PieceKind::Error,
            _ => matches!(kind, PieceKind::Result | PieceKind::Error | PieceKind::Output),
        };
        let pieces = output_pieces(view);
        for piece in pieces.iter().rev().filter(|piece| is_trigger(piece.kind)) {
            if out.len() < MAX_TRIGGERS {
                let label =
                    format!("{} | {}, before the replan", title(asker, trace, at), piece.kind.as_str());
                out.push(asker.block(trace, at, piece, label, most));
            }
        }
    }
    out.reverse();
    out
}

/// Splits a transcript at its plans; small segments share a part.
pub(crate) fn segments(transcript: Vec<Block>, max_bytes: usize) -> Vec<Vec<Block>> {
    let mut segments: Vec<Vec<Block>> = vec![Vec::new()];
    for block in transcript {
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
        match parts.last_mut().filter(|_| used.saturating_add(takes) <= max_bytes) {
            Some(part) => {
                used += takes;
                part.extend(segment);
            }
            None => {
                parts.extend(split_into_parts(segment, max_bytes));
                used = parts.last().map_or(0, |part| part.iter().map(size).sum());
            }
        }
    }
    parts
}
