//! The context of a step that its judge sees.
//!
//! In: a model or tool call. Out: blocks: the task of its agent, the span that contains it, the steps of the agent
//! before it, the model call that requested it, the definition of its tool, and the later steps. Steps are found by
//! agent and call, not by parent, because frameworks nest the steps of one agent under different spans. A text that
//! the judged call itself received is not repeated.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use verdict_otlp::trace::{Idx, Kind};

use super::content::{
    ContentPiece, PieceKind, arguments_of, input_pieces, output_pieces_of, render_tools, step_title,
};
use super::links::{self, MAX_PIECES, StepLinks};
use super::parts::{HEADING_BYTES, block_bytes};
use super::prompt_page::PromptBlock;
use super::stable_hash::text_hash;
use crate::measure::agent_index::first_text;
use crate::measure::{Context, Shows};
use crate::recognise::{Agent, Role, SpanView, ToolDefinition};

/// Maximum number of earlier steps shown, the latest ones.
const MAX_EARLIER: usize = 8;
/// Maximum number of later steps shown, the first ones.
const MAX_LATER: usize = 4;
/// Maximum number of spans that are searched for earlier or later steps.
const MAX_SEARCHED: usize = 100;
/// Maximum number of model calls, besides the one that requested the call, that are searched for the definition of a
/// tool.
const MAX_OFFERS: usize = 8;
/// Minimum bytes shown of a piece; a piece for which there is less space is left out.
const MIN_BYTES: usize = 60;
/// Bytes shown of the request of a call whose arguments are shown in full with the call.
const REMINDER_BYTES: usize = 160;

pub(super) struct Surroundings<'c, 'a> {
    context: &'c Context<'a>,
    view: &'a SpanView,
    links: Arc<StepLinks>,
    agent: Option<(usize, &'a Agent)>,
    /// Hashes of the texts in the input of the judged step.
    own_input: HashSet<u64>,
}

impl<'c, 'a> Surroundings<'c, 'a> {
    pub(super) fn new(context: &'c Context<'a>, view: &'a SpanView) -> Surroundings<'c, 'a> {
        let trace = context.trace;
        let owner = trace.owner.get(context.at).copied().flatten();
        Surroundings {
            context,
            view,
            links: StepLinks::cached(trace, context.memo),
            agent: owner.and_then(|i| Some((i, trace.agents.get(i)?))),
            own_input: input_pieces(view).iter().map(|piece| text_hash(&piece.text)).collect(),
        }
    }

    /// The task of the agent, unless the step's own input states it.
    pub(super) fn task(&self, max_bytes: usize) -> Option<PromptBlock> {
        let content = self.context.content();
        let (_, agent) = self.agent?;
        let task = agent.task.as_ref().filter(|task| !self.own_input.contains(&text_hash(task)))?;
        let span_index = agent.task_at.unwrap_or(agent.at);
        let label = match content.asker.agent_name(agent) {
            Some(name) => format!("the task of its agent, {name}"),
            None => "the task of its agent".to_owned(),
        };
        let task = ContentPiece::new(PieceKind::User, &**task);
        let block = content.block(span_index, &task, label, max_bytes);
        let shows = Shows::span(content.trace, agent.at).union(&block.shows);
        Some(PromptBlock { span: None, shows, ..block })
    }

    /// The request to the parent span, if it is neither the task nor in the input of the judged span.
    pub(super) fn parent_request(&self, max_bytes: usize) -> Option<PromptBlock> {
        let (trace, asker) = (self.context.trace, &self.context.settings.asker);
        let parent = trace.tree.parent(self.context.at)?;
        let view = trace.views.get(parent)?;
        let request = view.input.iter().rev().filter(|m| m.role == Role::User).find_map(first_text);
        let arguments = view.call.as_ref().and_then(|call| call.arguments.as_ref()).filter(|_| !view.wrapper);
        let text = arguments.or(request)?;
        let is_task = self.agent.is_some_and(|(_, agent)| agent.task.as_ref() == Some(text));
        if is_task || text.trim().is_empty() || self.own_input.contains(&text_hash(text)) {
            return None;
        }
        let label = format!("what the {} around it was asked", step_title(asker, trace, parent));
        let follows = view.input.iter().any(|m| matches!(m.role, Role::Assistant | Role::Tool));
        let is_repeated = arguments.is_none() && follows;
        let piece = ContentPiece { is_repeated, ..ContentPiece::new(PieceKind::User, &**text) };
        let block = self.context.content().block(parent, &piece, label, max_bytes);
        Some(PromptBlock { span: None, ..block })
    }

    /// The latest steps of the agent that ended before this one started, so that the question does not depend on
    /// the order in which parallel steps end.
    pub(super) fn earlier_steps(&self, max_bytes: usize) -> Vec<PromptBlock> {
        let (span_index, tree) = (self.context.at, &self.context.trace.tree);
        let Some(span) = tree.spans.get(span_index) else { return Vec::new() };
        let requester = self.requester();
        let has_ended_before =
            |other: &Idx| tree.spans.get(*other).is_some_and(|s| s.end != 0 && s.end <= span.start);
        let steps = self.steps();
        let before = steps.get(..steps.partition_point(|&i| i < span_index)).unwrap_or_default();
        let before = before.iter().rev().take(MAX_SEARCHED).copied();
        let shown = before
            .filter(|other| has_ended_before(other) && Some(*other) != requester && self.is_shown(*other));
        let latest: Vec<Idx> = shown.take(MAX_EARLIER).collect();
        let mut bytes_left = max_bytes;
        let mut groups = Vec::new();
        for (n, &step) in latest.iter().enumerate() {
            let Some(view) = self.context.trace.views.get(step) else { continue };
            // Pieces that are part of the step's own input are skipped; there may be very many of them.
            let is_within_budget = |_: &ContentPiece<'_>| self.context.memo.budget.spend(1);
            let is_new = |piece: &ContentPiece<'_>| !self.own_input.contains(&text_hash(&piece.text));
            let output_pieces = output_pieces_of(view, view.output.iter().flat_map(|message| &message.parts));
            let pieces = request_pieces(view)
                .chain(output_pieces)
                .take_while(is_within_budget)
                .filter(is_new)
                .take(MAX_PIECES)
                .collect();
            let blocks = self.blocks("earlier", step, pieces, bytes_left / (latest.len() - n));
            bytes_left -= blocks.iter().map(block_bytes).sum::<usize>().min(bytes_left);
            groups.push(blocks);
        }
        groups.into_iter().rev().flatten().collect()
    }

    /// The model call that requested this tool call: the first texts of its output, and the request.
    pub(super) fn request(&self, max_bytes: usize) -> Vec<PromptBlock> {
        let Some(llm) = self.requester() else { return Vec::new() };
        let trace = self.context.trace;
        let Some(view) = trace.views.get(llm) else { return Vec::new() };
        let position = self.links.executed(trace, self.context.at).and_then(|call| call.request_index);
        // A message may have thousands of calls, and a question is asked about each: only the request of the judged
        // call is visited.
        let shown =
            position.and_then(|position| self.links.request(trace, llm, position)).unwrap_or_else(|| {
                view.output.iter().flat_map(|message| &message.parts).take(MAX_PIECES).collect()
            });
        let pieces = output_pieces_of(view, shown.into_iter()).map(|piece| self.abridge_request(piece));
        let pieces = pieces.take(MAX_PIECES).collect();
        self.blocks("the model call that asked for it", llm, pieces, max_bytes)
    }

    /// Shortens the request of the judged call, whose arguments are shown in full with the call.
    fn abridge_request<'p>(&self, piece: ContentPiece<'p>) -> ContentPiece<'p> {
        let arguments = self.view.call.as_ref().and_then(|call| call.arguments.as_deref());
        let is_same = arguments.is_some_and(|arguments| piece.text.contains(arguments));
        if piece.kind != PieceKind::Call || !is_same {
            return piece;
        }
        let asker = &self.context.settings.asker;
        ContentPiece { text: Cow::Owned(asker.cleaned_excerpt(&piece.text, REMINDER_BYTES)), ..piece }
    }

    /// The most complete definition of the judged tool. Of equally complete ones, the first in this order: on the
    /// call's own span, on the model call that requested it, on the agent, on another model call of the agent.
    pub(super) fn definition(&self, max_bytes: usize) -> Option<PromptBlock> {
        let called = &self.view.call.as_ref()?.name;
        let trace = self.context.trace;
        let agent = self.agent.map(|(_, agent)| agent);
        let offers = agent.into_iter().flat_map(|agent| agent.llms.iter().copied().take(MAX_OFFERS));
        let nearby_spans = self.requester().into_iter().chain(agent.map(|agent| agent.at)).chain(offers);
        // A message may have many calls, and the tool of each is looked up among the offered tools.
        let offered_tool = |span_index: Idx| {
            let view = trace
                .views
                .get(span_index)
                .filter(|view| self.context.memo.budget.spend(view.tools.len()))?;
            Some((span_index, view.tools.iter().find(|tool| tool.name == *called)?))
        };
        let own_tool = own_definition(self.view).map(|tool| (self.context.at, tool));
        let definitions: Vec<(Idx, &ToolDefinition)> =
            own_tool.into_iter().chain(nearby_spans.filter_map(offered_tool)).collect();
        let recorded_parts = |tool: &ToolDefinition| (tool.parameters.is_some(), tool.description.is_some());
        let best = definitions.iter().map(|(_, tool)| recorded_parts(tool)).max()?;
        let (span_index, tool) = definitions.into_iter().find(|(_, tool)| recorded_parts(tool) == best)?;
        Some(definition_block(self.context, span_index, tool, max_bytes))
    }

    /// The first steps of the agent after this one, up to its next model call; or a note that no step follows.
    pub(super) fn later_steps(&self, max_bytes: usize) -> Vec<PromptBlock> {
        let (span_index, trace) = (self.context.at, self.context.trace);
        let (Some(span), Some((_, agent))) = (trace.tree.spans.get(span_index), self.agent) else {
            return Vec::new();
        };
        let is_later_step = |other: &Idx| {
            let start = trace.tree.spans.get(*other).map_or(0, |other| other.start);
            span.end != 0 && start >= span.end || self.links.is_requested_by(trace, *other, span_index)
        };
        let steps = self.steps();
        let after = steps.get(steps.partition_point(|&i| i <= span_index)..).unwrap_or_default();
        let mut steps_found: Vec<Idx> = Vec::new();
        for &other in
            after.iter().take(MAX_SEARCHED).filter(|other| is_later_step(other) && self.is_shown(**other))
        {
            steps_found.push(other);
            let is_model = trace.views.get(other).is_some_and(|view| view.kind == Kind::Llm);
            if is_model || steps_found.len() == MAX_LATER {
                break;
            }
        }
        if after.is_empty() && links::has_ended(trace, agent) {
            let text = "(nothing: it is the last step of its agent)";
            return vec![PromptBlock::without_span("what followed", text, false).showing(Shows::nothing())];
        }
        let share = max_bytes / steps_found.len().max(1);
        let blocks = steps_found.iter().flat_map(|&step| {
            let view = trace.views.get(step);
            let parts = view.into_iter().flat_map(|view| &view.output).flat_map(|message| &message.parts);
            let pieces = view.into_iter().flat_map(|view| output_pieces_of(view, parts.clone()));
            self.blocks("what followed", step, pieces.take(MAX_PIECES).collect(), share)
        });
        blocks.collect()
    }

    /// The steps of the agent; without an agent, the siblings of this span.
    fn steps(&self) -> &[Idx] {
        match self.agent {
            Some((i, _)) => self.links.steps(i),
            None => {
                let tree = &self.context.trace.tree;
                tree.parent(self.context.at).map_or(&[][..], |parent| tree.children(parent))
            }
        }
    }

    /// Whether a span may be shown as a step: it is a step and not an ancestor of the judged span.
    fn is_shown(&self, other: Idx) -> bool {
        let trace = self.context.trace;
        links::is_step(trace, other)
            && trace.tree.ancestors(self.context.at).take(MAX_SEARCHED).all(|i| i != other)
    }

    /// The model call that requested this tool call.
    fn requester(&self) -> Option<Idx> {
        let llm = self.links.executed(self.context.trace, self.context.at)?.llm?;
        (llm != self.context.at).then_some(llm)
    }

    /// Pieces of another step, in at most `max_bytes` bytes; a piece for which there is no space is left out.
    fn blocks(
        &self,
        heading: &str,
        step: Idx,
        pieces: Vec<ContentPiece<'_>>,
        max_bytes: usize,
    ) -> Vec<PromptBlock> {
        let content = self.context.content();
        let title = step_title(content.asker, content.trace, step);
        let mut bytes_left = max_bytes;
        let mut out = Vec::new();
        for (n, piece) in pieces.iter().enumerate().filter(|(_, piece)| !piece.text.trim().is_empty()) {
            let label = format!("{heading}: {title} | {}", piece.kind.as_str());
            let share = (bytes_left / (pieces.len() - n)).saturating_sub(label.len() + HEADING_BYTES);
            if share < MIN_BYTES {
                continue;
            }
            let block = content.block(step, piece, label, share);
            bytes_left = bytes_left.saturating_sub(block_bytes(&block));
            out.push(block);
        }
        out
    }
}

/// The definition on a tool's own span: the one of the called name, else the only one on the span.
pub(super) fn own_definition(view: &SpanView) -> Option<&ToolDefinition> {
    let called = view.call.as_ref().map(|call| &call.name);
    let named = view.tools.iter().find(|tool| Some(&tool.name) == called);
    named.or(if let [only] = &*view.tools { Some(only) } else { None })
}

/// The definition of the judged tool, as recorded on the span `span_index`.
pub(super) fn definition_block(
    context: &Context<'_>,
    span_index: Idx,
    tool: &ToolDefinition,
    max_bytes: usize,
) -> PromptBlock {
    let text = context.content().text(span_index, &render_tools(std::slice::from_ref(tool)), max_bytes);
    PromptBlock::without_span("the definition of the judged tool", text, true)
        .showing(Shows::span(context.trace, span_index))
}

/// The request to a step: the arguments of a call, the request to an agent. The input of a model call is not shown: it
/// repeats the steps before it.
fn request_pieces(view: &SpanView) -> impl Iterator<Item = ContentPiece<'_>> {
    let pieces = if view.kind == Kind::Agent { input_pieces(view) } else { arguments_of(view).collect() };
    pieces.into_iter().filter(|piece| matches!(piece.kind, PieceKind::Arguments | PieceKind::User))
}
