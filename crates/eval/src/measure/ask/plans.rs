//! Plans with their triggers, and runs split at plans.
//!
//! In: a trace and a scope. Out: for plan quality, the first plan of each agent with the input of
//! its model call, and each later plan with its trigger (results and errors since the previous plan) and
//! the reason that was written with it; nothing else, since a plan is not judged by its execution (000,
//! section 3). For plan adherence, segments from plan to replan, so that steps are compared with the plan
//! in force. If no plan is marked, the first reasoning or text of each agent: the judge decides whether it
//! states a plan (000, appendix B).

use verdict_otlp::trace::{Idx, Kind};

use super::content::{
    ContentPiece, PieceKind, TraceContent, WITHHELD, input_pieces, output_pieces, render_tools,
};
use super::parts::{block_bytes, split_into_parts};
use super::prompt_page::PromptBlock;
use super::transcript::{RunScope, in_scope};
use crate::recognise::{Agent, AgentTrace, Part, RecordedPlan};

/// Maximum number of results and errors shown before a replan, the latest ones.
const MAX_TRIGGERS: usize = 6;
/// Maximum number of spans that are searched for results and errors before a replan.
const MAX_SEARCHED: usize = 300;
/// Maximum number of model calls of an agent that are searched for its first words.
const MAX_FIRST_CALLS: usize = 3;
/// Maximum number of agents whose first words are shown.
const MAX_UNPLANNED_AGENTS: usize = 8;
/// Maximum number of spans beneath a plan span that are searched for the model call that wrote the plan.
const MAX_WRITERS: usize = 50;

/// Agents of a scope that have plans.
pub(crate) fn planners(trace: &AgentTrace, scope: RunScope) -> Vec<&Agent> {
    agents_of(trace, scope).iter().filter(|agent| !agent.plans.is_empty()).collect()
}

/// The agents whose plans are in the scope.
fn agents_of(trace: &AgentTrace, scope: RunScope) -> &[Agent] {
    let agents = match scope {
        RunScope::Trace => trace.agents.get(..),
        RunScope::Own(i) | RunScope::Beneath(i) => trace.agents.get(i..=i),
    };
    agents.unwrap_or_default()
}

/// The first reasoning or text of an agent, which may state a plan.
pub(crate) struct FirstWords<'a> {
    agent: &'a Agent,
    at: Idx,
    kind: PieceKind,
    text: &'a str,
}

/// The first words of the agents of a scope in which no plan is marked. A text after the work is not a plan
/// of the work: first words are only taken from a model call that requests a tool or precedes another model call.
pub(crate) fn first_words(trace: &AgentTrace, scope: RunScope) -> Vec<FirstWords<'_>> {
    let agents = agents_of(trace, scope);
    if agents.iter().any(|agent| !agent.plans.is_empty()) {
        return Vec::new();
    }
    agents.iter().filter_map(|agent| first_words_of(trace, agent)).take(MAX_UNPLANNED_AGENTS).collect()
}

fn first_words_of<'a>(trace: &'a AgentTrace, agent: &'a Agent) -> Option<FirstWords<'a>> {
    let last = agent.llms.last().copied();
    agent.llms.iter().take(MAX_FIRST_CALLS).find_map(|&span_index| {
        let view = trace.views.get(span_index)?;
        if Some(span_index) == last && view.requests().next().is_none() {
            return None;
        }
        let parts = || view.output.iter().flat_map(|message| &message.parts);
        let output_text = |part: &'a Part| match part {
            Part::Text(text) if !text.trim().is_empty() => Some((PieceKind::Output, &**text)),
            _ => None,
        };
        let reasoning_text = |part: &'a Part| match part {
            Part::Reasoning(text) if !text.trim().is_empty() => Some((PieceKind::Thinking, &**text)),
            _ => None,
        };
        let (kind, text) = parts().find_map(reasoning_text).or_else(|| parts().find_map(output_text))?;
        Some(FirstWords { agent, at: span_index, kind, text })
    })
}

impl FirstWords<'_> {
    /// A block of the first words. It is binding, since the words may state a plan.
    pub(crate) fn block(&self, content: TraceContent<'_>, max_bytes: usize) -> PromptBlock {
        let piece = ContentPiece::new(self.kind, self.text);
        let purpose = "its first words, not marked as a plan";
        PromptBlock {
            is_plan: true,
            is_binding: true,
            ..content.titled_block(self.at, &piece, purpose, max_bytes)
        }
    }
}

/// Plans with their triggers.
pub(crate) fn with_triggers(
    content: TraceContent<'_>,
    scope: RunScope,
    max_bytes: usize,
) -> Vec<PromptBlock> {
    let mut out = Vec::new();
    for agent in planners(content.trace, scope) {
        out.extend(task_and_tools(content, agent, max_bytes));
        for (n, (span_index, plan)) in agent.plans.iter().enumerate() {
            let previous =
                n.checked_sub(1).and_then(|b| agent.plans.get(b)).map(|(span_index, _)| *span_index);
            match previous {
                None => out.extend(planning_input(content, *span_index, max_bytes)),
                Some(previous) => out.extend(triggers(content, agent, previous, *span_index, max_bytes)),
            }
            out.extend(reasons(content, *span_index, plan, max_bytes));
            out.push(plan_block(content, *span_index, plan, n, max_bytes));
        }
    }
    for words in first_words(content.trace, scope) {
        out.extend(task_and_tools(content, words.agent, max_bytes));
        out.extend(planning_input(content, words.at, max_bytes));
        out.push(words.block(content, max_bytes));
    }
    out
}

/// The task of an agent, and its tools.
fn task_and_tools(content: TraceContent<'_>, agent: &Agent, max_bytes: usize) -> Vec<PromptBlock> {
    let mut out = Vec::new();
    let agent_name = content.asker.agent_name(agent).unwrap_or_else(|| "the agent".to_owned());
    if let Some(task) = &agent.task {
        let text = content.text(agent.task_at.unwrap_or(agent.at), task, max_bytes);
        out.push(PromptBlock::without_span(format!("what {agent_name} was asked"), text, true));
    }
    if !agent.tools.is_empty() {
        let text = match content.withholds_agent(agent) {
            true => WITHHELD.to_owned(),
            false => content.text(agent.at, &render_tools(&agent.tools), max_bytes),
        };
        out.push(PromptBlock::without_span(format!("tools that {agent_name} has"), text, true));
    }
    out
}

/// The reasoning and text that the model wrote together with a plan: the reason of the plan and its premises.
fn reasons(
    content: TraceContent<'_>,
    span_index: Idx,
    plan: &RecordedPlan,
    max_bytes: usize,
) -> Vec<PromptBlock> {
    let contains_plan = |i: &Idx| {
        let view = content.trace.views.get(*i).filter(|view| *i == span_index || view.kind == Kind::Llm);
        view.is_some_and(|view| output_pieces(view).iter().any(|piece| piece.text.contains(&*plan.text)))
    };
    let Some(writer) = content.trace.tree.subtree(span_index).take(MAX_WRITERS).find(contains_plan) else {
        return Vec::new();
    };
    let Some(view) = content.trace.views.get(writer) else { return Vec::new() };
    let mut out = Vec::new();
    let mut show = |kind: PieceKind, text: &str| {
        if text.chars().any(char::is_alphanumeric) {
            out.push(content.titled_block(
                writer,
                &ContentPiece::new(kind, text),
                "with the plan",
                max_bytes,
            ));
        }
    };
    let is_shown = |piece: &ContentPiece<'_>| !content.withholds_piece(writer, piece);
    for piece in output_pieces(view).into_iter().filter(is_shown) {
        match (piece.kind, piece.text.split_once(&*plan.text)) {
            (PieceKind::Thinking, _) => show(piece.kind, &piece.text),
            (PieceKind::Output, Some((before, after))) => {
                show(piece.kind, before);
                show(piece.kind, after);
            }
            _ => {}
        }
    }
    out
}

/// The plan `n` of an agent, which its span wrote.
fn plan_block(
    content: TraceContent<'_>,
    span_index: Idx,
    plan: &RecordedPlan,
    n: usize,
    max_bytes: usize,
) -> PromptBlock {
    let ordinal = if n == 0 { "PLAN, the first".to_owned() } else { format!("REPLAN {n}") };
    let piece = ContentPiece::new(PieceKind::Output, &*plan.text);
    let mut block =
        content.block(span_index, &piece, format!("{} | {ordinal}", content.title(span_index)), max_bytes);
    // The text of the plan is a part of the span's output.
    if content.withholds_output(span_index) {
        block.text = WITHHELD.to_owned();
    }
    (block.is_plan, block.is_binding) = (true, true);
    block
}

/// The input of the model call that wrote the first plan.
fn planning_input(content: TraceContent<'_>, span_index: Idx, max_bytes: usize) -> Vec<PromptBlock> {
    let Some(view) = content.trace.views.get(span_index) else { return Vec::new() };
    let pieces = input_pieces(view);
    let pieces = pieces.iter().filter(|piece| !piece.text.trim().is_empty());
    pieces.map(|piece| content.titled_block(span_index, piece, "before the plan", max_bytes)).collect()
}

/// Results and errors between two plans of an agent.
fn triggers(
    content: TraceContent<'_>,
    agent: &Agent,
    from: Idx,
    to: Idx,
    max_bytes: usize,
) -> Vec<PromptBlock> {
    let scope = content.trace.owner.get(agent.at).copied().flatten().map(RunScope::Own);
    let is_of_agent = |i: &Idx| scope.is_some_and(|scope| in_scope(content.trace, scope, *i));
    let mut out: Vec<PromptBlock> = Vec::new();
    let mut left_out = 0;
    for span_index in (from + 1..to).rev().take(MAX_SEARCHED).filter(is_of_agent) {
        let Some(view) = content.trace.views.get(span_index) else { continue };
        let is_trigger = |kind: PieceKind| match view.kind {
            Kind::Llm => kind == PieceKind::Error,
            _ => matches!(kind, PieceKind::Result | PieceKind::Error | PieceKind::Output),
        };
        let pieces = output_pieces(view);
        for piece in pieces.iter().rev().filter(|piece| is_trigger(piece.kind)) {
            if out.len() == MAX_TRIGGERS {
                left_out += 1;
            } else {
                out.push(content.titled_block(span_index, piece, "before the replan", max_bytes));
            }
        }
    }
    if left_out > 0 {
        let label = format!("{left_out} earlier results before the replan left out");
        out.push(PromptBlock::without_span(label, "(left out)", false));
    }
    out.reverse();
    out
}

/// Splits a transcript at its plans; small segments share a part.
pub(crate) fn segments(transcript: Vec<PromptBlock>, max_bytes: usize) -> Vec<Vec<PromptBlock>> {
    let mut segments: Vec<Vec<PromptBlock>> = vec![Vec::new()];
    for block in transcript {
        if block.is_plan && segments.last().is_some_and(|s| !s.is_empty()) {
            segments.push(Vec::new());
        }
        if let Some(segment) = segments.last_mut() {
            segment.push(block);
        }
    }
    let mut parts: Vec<Vec<PromptBlock>> = Vec::new();
    let mut used_bytes = usize::MAX;
    for segment in segments {
        let segment_bytes: usize = segment.iter().map(block_bytes).sum();
        match parts.last_mut().filter(|_| used_bytes.saturating_add(segment_bytes) <= max_bytes) {
            Some(part) => {
                used_bytes += segment_bytes;
                part.extend(segment);
            }
            None => {
                parts.extend(split_into_parts(segment, max_bytes));
                used_bytes = parts.last().map_or(0, |part| part.iter().map(block_bytes).sum());
            }
        }
    }
    parts
}
