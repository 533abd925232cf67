//! The transcript of a run: every text at its first occurrence.
//!
//! In: the spans of an agent, of an agent with all beneath it, or of a trace. Out: blocks in the
//! order of the run, each agent's instructions once, of each prompt only the new texts, plans marked,
//! tools listed where they are first offered (000, section 4.1.2). Every model call repeats the
//! whole conversation before it, so that a plain listing would grow with the square of the steps.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use verdict_otlp::trace::{Idx, Kind};

use super::content::{
    ContentPiece, PieceKind, TraceContent, WITHHELD, input_pieces, output_pieces, render_tools,
};
use super::parts::max_text_length;
use super::prompt_page::PromptBlock;
use super::stable_hash::{stable_hash, text_hash};
use crate::measure::agent_index;
use crate::measure::evaluated_spans::EvaluatedSpans;
use crate::measure::memo::Memo;
use crate::recognise::{AgentTrace, RecordedPlan, SpanView};

/// The spans of a transcript.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunScope {
    /// An agent's own spans, with task and answer of the agents that it called.
    Own(usize),
    /// An agent and all beneath it.
    Beneath(usize),
    Trace,
}

/// Maximum bytes shown of a repeated text.
const REMINDER_BYTES: usize = 160;

/// Depth-first order: enter a span, its children, leave it.
#[derive(Clone, Copy)]
enum Visit {
    Enter(Idx),
    Leave(Idx),
}

/// The cleaned transcript. If it would need more than [`MAX_PARTS`](super::parts::MAX_PARTS)
/// parts of `max_bytes` bytes, the longest texts are reduced to both their ends.
pub(crate) fn transcribe(content: TraceContent<'_>, scope: RunScope, max_bytes: usize) -> Vec<PromptBlock> {
    let mut blocks = collect_blocks(content, scope);
    let lengths: Vec<usize> = blocks.iter().map(|block| block.text.len()).collect();
    let max_length = max_text_length(&lengths, max_bytes);
    for block in &mut blocks {
        if let Some((span_index, _)) = block.span {
            block.text = content.text(span_index, &block.text, max_length);
        }
    }
    blocks
}

/// The blocks of a transcript before cleaning.
fn collect_blocks(content: TraceContent<'_>, scope: RunScope) -> Vec<PromptBlock> {
    let TraceContent { trace, memo, .. } = content;
    let evaluated = EvaluatedSpans::cached(trace, memo);
    let mut builder = TranscriptBuilder {
        content,
        seen_by_agent: HashSet::new(),
        first_spans: HashMap::new(),
        listed_tools: HashSet::new(),
        out: Vec::new(),
    };
    let is_shown = |i: Idx| evaluated.get(i).copied().unwrap_or(false) && in_scope(trace, scope, i);
    let mut stack: Vec<Visit> = scope_roots(trace, scope).into_iter().rev().map(Visit::Enter).collect();
    while let Some(visit) = stack.pop() {
        match visit {
            Visit::Enter(span_index) => {
                stack.push(Visit::Leave(span_index));
                // Spans of another agent are part of that agent's transcript.
                let is_agent =
                    trace.views.get(span_index).is_some_and(|r| r.kind == Kind::Agent && !r.wrapper);
                let is_other_agent = is_agent
                    && match scope {
                        RunScope::Own(i) => trace.agents.get(i).is_some_and(|a| a.at != span_index),
                        // Agents that are nested too deeply are not shown, nor are the spans beneath them.
                        RunScope::Beneath(_) => !in_scope(trace, scope, span_index),
                        RunScope::Trace => false,
                    };
                if !is_other_agent {
                    stack.extend(
                        trace.tree.children(span_index).iter().rev().map(|&child| Visit::Enter(child)),
                    );
                }
                if is_shown(span_index) {
                    builder.enter_span(span_index);
                }
            }
            Visit::Leave(span_index) if is_shown(span_index) => builder.leave_span(span_index),
            Visit::Leave(_) => {}
        }
    }
    builder.out
}

/// The top spans of a scope. An agent without a span of its own may have several.
fn scope_roots(trace: &AgentTrace, scope: RunScope) -> Vec<Idx> {
    let (RunScope::Own(i) | RunScope::Beneath(i)) = scope else { return trace.tree.top().to_vec() };
    let agent_at = trace.agents.get(i).map(|agent| agent.at);
    let agent_span =
        agent_at.filter(|&agent_at| trace.views.get(agent_at).is_some_and(|r| r.kind == Kind::Agent));
    agent_span.map_or_else(|| trace.tree.top().to_vec(), |agent_at| vec![agent_at])
}

/// Whether a span belongs to the scope.
pub(crate) fn in_scope(trace: &AgentTrace, scope: RunScope, span_index: Idx) -> bool {
    let owner = trace.owner.get(span_index).copied().flatten();
    match scope {
        RunScope::Trace => true,
        RunScope::Own(agent) => {
            // Of a called agent only its own span belongs to the scope, with task and answer.
            let is_called_agent =
                |i: usize| trace.agents.get(i).is_some_and(|a| a.at == span_index && a.parent == Some(agent));
            owner == Some(agent) || owner.is_some_and(is_called_agent)
        }
        RunScope::Beneath(agent) => {
            // Agents are listed outermost first, so this terminates.
            let ancestors = std::iter::successors(owner, |&i| trace.agents.get(i)?.parent.filter(|&p| p < i));
            ancestors.take(MAX_DEPTH).any(|i| i == agent)
        }
    }
}

/// The spans of a scope, in order.
pub(crate) fn spans_in_scope(trace: &AgentTrace, memo: &Memo, scope: RunScope) -> Vec<Idx> {
    let mut agents: Vec<usize> = match scope {
        RunScope::Trace => return (0..trace.views.len()).collect(),
        RunScope::Own(agent) | RunScope::Beneath(agent) => vec![agent],
    };
    let mut spans = Vec::new();
    match scope {
        RunScope::Own(agent) => {
            let called = agent_index::agents_beneath(trace, memo, agent);
            spans.extend(called.into_iter().filter_map(|i| trace.agents.get(i)).map(|agent| agent.at));
        }
        _ => {
            let mut level = 0..1;
            for _ in 1..MAX_DEPTH {
                let called_agents = |i: &usize| agent_index::agents_beneath(trace, memo, *i);
                let next: Vec<usize> =
                    agents.get(level.clone()).into_iter().flatten().flat_map(called_agents).collect();
                level = agents.len()..agents.len() + next.len();
                agents.extend(next);
            }
        }
    }
    spans.extend(agents.into_iter().flat_map(|i| agent_index::spans_of(trace, memo, i)));
    spans.sort_unstable();
    spans.dedup();
    spans.retain(|span_index| in_scope(trace, scope, *span_index));
    spans
}

/// Deepest nesting of agents that is followed.
const MAX_DEPTH: usize = 64;

struct TranscriptBuilder<'a> {
    content: TraceContent<'a>,
    /// Hashes of the texts of each agent that the transcript contains already.
    seen_by_agent: HashSet<(Option<usize>, u64)>,
    /// The first span of each text, by its hash.
    first_spans: HashMap<u64, Idx>,
    /// Tools already listed, by agent.
    listed_tools: HashSet<(Option<usize>, u64)>,
    out: Vec<PromptBlock>,
}

impl<'a> TranscriptBuilder<'a> {
    /// Adds the new input of a span, and its output if no span is beneath it.
    fn enter_span(&mut self, span_index: Idx) {
        let Some(view) = self.content.trace.views.get(span_index) else { return };
        self.render_tools(span_index, view);
        for piece in input_pieces(view).into_iter().filter(|piece| !piece.text.trim().is_empty()) {
            let is_new_to_agent = self.mark_seen(span_index, &piece);
            // The same text may be sent to another agent; a span that is not a call only repeats it.
            let is_new =
                is_new_to_agent && (is_leaf(view) || !self.first_spans.contains_key(&text_hash(&piece.text)));
            if is_new || piece.kind.is_new() && is_leaf(view) {
                self.push_piece(span_index, &piece);
            }
        }
        // `leave_span` pushes the output only of spans with children.
        if self.content.trace.tree.children(span_index).is_empty() {
            self.push_output(span_index, view);
        }
    }

    /// The output of a span with children follows them.
    fn leave_span(&mut self, span_index: Idx) {
        let Some(view) = self.content.trace.views.get(span_index) else { return };
        if !self.content.trace.tree.children(span_index).is_empty() {
            self.push_output(span_index, view);
        }
    }

    /// Adds the new output of a span, and plans that are not in its output.
    fn push_output(&mut self, span_index: Idx, view: &SpanView) {
        let mut output = String::new();
        for piece in output_pieces(view) {
            let is_new =
                self.mark_seen(span_index, &piece) && !self.first_spans.contains_key(&text_hash(&piece.text));
            output.push_str(&piece.text);
            if is_new || is_leaf(view) || piece.kind == PieceKind::Error {
                self.push_piece(span_index, &piece);
            }
        }
        for plan in self.plans_at(span_index).into_iter().filter(|plan| !output.contains(&*plan.text)) {
            self.push_piece(span_index, &ContentPiece::new(PieceKind::Output, &*plan.text));
        }
    }

    /// Marks the piece as shown to the agent of the span; returns false if it was marked before.
    fn mark_seen(&mut self, span_index: Idx, piece: &ContentPiece<'_>) -> bool {
        self.seen_by_agent.insert((self.owner(span_index), text_hash(&piece.text)))
    }

    /// Adds a piece of a span; of a long text that was shown before, only an excerpt.
    fn push_piece(&mut self, span_index: Idx, piece: &ContentPiece<'_>) {
        let hash = text_hash(&piece.text);
        let mut label = format!("{} | {}", self.content.title(span_index), piece.kind.as_str());
        let plans = if piece.kind == PieceKind::Output { self.plans_at(span_index) } else { Vec::new() };
        let plan = plans.into_iter().find(|plan| piece.text.contains(&*plan.text));
        if let Some(plan) = plan {
            label.push_str(if plan.replan { ", REPLAN" } else { ", PLAN" });
        }
        let earlier_span = self.first_spans.get(&hash).copied().filter(|&first| first != span_index);
        let mut text = Cow::Borrowed(&*piece.text);
        if let Some(first) = earlier_span.filter(|_| piece.text.len() > 2 * REMINDER_BYTES) {
            let id = self.content.trace.tree.spans.get(first).map(|span| span.id).unwrap_or_default();
            label.push_str(&format!(", the very same text as in span {id}"));
            text = Cow::Owned(self.content.asker.cleaned_excerpt(&piece.text, REMINDER_BYTES));
        }
        if self.content.withholds_piece(span_index, piece) {
            text = Cow::Borrowed(WITHHELD);
        }
        self.first_spans.entry(hash).or_insert(span_index);
        let (is_binding, is_plan) = (piece.kind.is_instruction() || plan.is_some(), plan.is_some());
        self.push(span_index, label, text.into_owned(), is_binding, is_plan);
    }

    /// Lists tools that were not offered to the agent before.
    fn render_tools(&mut self, span_index: Idx, view: &SpanView) {
        let owner = self.owner(span_index);
        let new_tools: Vec<_> = view
            .tools
            .iter()
            .filter(|tool| {
                let has_parameters = u8::from(tool.parameters.is_some());
                let key = stable_hash([tool.name.as_bytes(), &[has_parameters][..]]);
                self.listed_tools.insert((owner, key))
            })
            .cloned()
            .collect();
        if new_tools.is_empty() {
            return;
        }
        let agent =
            owner.and_then(|i| self.content.trace.agents.get(i)).and_then(|agent| agent.name.as_ref());
        let recipient = agent.map_or_else(String::new, |n| format!(" to {}", self.content.asker.name(n)));
        self.push(span_index, format!("tools offered{recipient}"), render_tools(&new_tools), true, false);
    }

    /// Adds a block.
    fn push(&mut self, span_index: Idx, label: String, text: String, is_binding: bool, is_plan: bool) {
        let id = self.content.trace.tree.spans.get(span_index).map(|span| span.id).unwrap_or_default();
        self.out.push(PromptBlock {
            span: Some((span_index, id)),
            is_plan,
            ..PromptBlock::without_span(label, text, is_binding)
        });
    }

    fn plans_at(&self, span_index: Idx) -> Vec<&'a RecordedPlan> {
        let plans = agent_index::plans_at(self.content.trace, self.content.memo, span_index);
        plans.into_iter().map(|(_, plan)| plan).collect()
    }

    fn owner(&self, span_index: Idx) -> Option<usize> {
        self.content.trace.owner.get(span_index).copied().flatten()
    }
}

/// A model or tool call that does not only wrap another span.
fn is_leaf(view: &SpanView) -> bool {
    matches!(view.kind, Kind::Llm | Kind::Tool) && !view.wrapper
}
