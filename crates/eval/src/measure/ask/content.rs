//! Content of spans as blocks of a prompt page.
//!
//! In: a trace and a span. Out: its input, output and errors, each piece cleaned and labelled.
//! Content that was not recorded or is withheld is marked as missing.

use std::borrow::Cow;
use std::sync::Arc;

use verdict_otlp::trace::{Idx, Kind};

use super::asker::Asker;
use super::origins::Origins;
use super::prompt_page::PromptBlock;
pub(crate) use crate::measure::content_piece::{
    ContentPiece, PieceKind, arguments_of, input_pieces, output_pieces, output_pieces_of,
};
use crate::measure::defects::{clip, clip_end};
use crate::measure::{Memo, Shows};
use crate::recognise::{Agent, AgentTrace, ToolDefinition};
use crate::redact::EmailAddresses;

/// Shown instead of withheld content.
pub(crate) const WITHHELD: &str = "(withheld)";
/// Maximum number of offered tools that are listed; further tools are counted.
const MAX_TOOLS: usize = 200;
/// Maximum bytes of the description of one tool, and of its schema.
const MAX_TOOL_TEXT: usize = 4 * 1024;

/// The kind and name of a span, for a heading.
pub(crate) fn step_title(asker: &Asker, trace: &AgentTrace, span_index: Idx) -> String {
    let Some(view) = trace.views.get(span_index) else { return String::new() };
    let kind = match view.kind {
        Kind::Unknown => "span",
        kind => kind.as_str(),
    };
    let called = view.call.as_ref().map(|call| &call.name);
    match called.or(view.name.as_ref()).map(|n| asker.name(n)).filter(|n| !n.is_empty()) {
        Some(name) => format!("{kind} {name}"),
        None => kind.to_owned(),
    }
}

/// As [`step_title`], followed by the agent of the span if the trace has several agents. Only for questions about
/// closed traces, because the number of agents of an open trace changes.
pub(crate) fn title(asker: &Asker, trace: &AgentTrace, span_index: Idx) -> String {
    let mut out = step_title(asker, trace, span_index);
    let owner = trace.owner.get(span_index).copied().flatten().filter(|_| trace.agents.len() > 1);
    if let Some(agent) = owner.and_then(|i| trace.agents.get(i)).filter(|agent| agent.at != span_index) {
        let owner_name = agent.name.as_ref().map_or_else(|| "an agent".to_owned(), |n| asker.name(n));
        out = format!("{out}, of {owner_name}");
    }
    out
}

/// The offered tools, one per line.
pub(crate) fn render_tools(definitions: &[ToolDefinition]) -> String {
    let mut out = String::new();
    for tool in definitions.iter().take(MAX_TOOLS) {
        out.push_str(&tool.name);
        if let Some(description) = &tool.description {
            out.push_str(": ");
            out.push_str(clip(description, MAX_TOOL_TEXT));
        }
        if let Some(parameters) = &tool.parameters {
            out.push_str(" Parameters: ");
            out.push_str(clip(&parameters.to_string(), MAX_TOOL_TEXT));
        }
        out.push('\n');
    }
    if definitions.len() > MAX_TOOLS {
        out.push_str(&format!("({} more)\n", definitions.len() - MAX_TOOLS));
    }
    out
}

/// Maximum bytes of the note about the gap in an excerpt.
const GAP_NOTE_BYTES: usize = 40;

/// A text of at most about `max_bytes` bytes: its beginning, its end, and the size of the gap.
pub(crate) fn excerpt(text: &str, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes {
        return Cow::Borrowed(text);
    }
    let capacity = max_bytes.saturating_sub(GAP_NOTE_BYTES);
    let (head, tail) = (clip(text, capacity * 2 / 3), clip_end(text, capacity / 3));
    let omitted = text.len() - head.len() - tail.len();
    Cow::Owned(format!("{head}\n[{omitted} bytes left out]\n{tail}"))
}

/// The content of a trace as judges may read it: cleaned, and without withheld content.
#[derive(Clone, Copy)]
pub(crate) struct TraceContent<'a> {
    pub asker: &'a Asker,
    pub trace: &'a AgentTrace,
    pub memo: &'a Memo,
}

impl TraceContent<'_> {
    fn origins(self) -> Arc<Origins> {
        self.memo.shared_value(|| Origins::new(&self.asker.ask.withhold, self.trace, &self.memo.budget))
    }

    pub(crate) fn title(self, span_index: Idx) -> String {
        title(self.asker, self.trace, span_index)
    }

    /// A piece as a block whose label names the span, the kind of the piece and its purpose.
    pub(crate) fn titled_block(
        self,
        span_index: Idx,
        piece: &ContentPiece<'_>,
        purpose: &str,
        max_bytes: usize,
    ) -> PromptBlock {
        self.block(
            span_index,
            piece,
            format!("{} | {}, {purpose}", self.title(span_index), piece.kind.as_str()),
            max_bytes,
        )
    }

    /// A piece as a block of the span `span_index`, at most `max_bytes` bytes of it; `label` must contain nothing
    /// of another span but its agent's name.
    pub(crate) fn block(
        self,
        span_index: Idx,
        piece: &ContentPiece<'_>,
        label: String,
        max_bytes: usize,
    ) -> PromptBlock {
        let id = self.trace.tree.spans.get(span_index).map(|span| span.id).unwrap_or_default();
        let shows = self.shows(span_index, piece).union(&Shows::span(self.trace, span_index));
        let block = PromptBlock::without_span(
            label,
            self.piece(span_index, piece, max_bytes),
            piece.kind.is_instruction(),
        );
        PromptBlock { span: Some((span_index, id)), ..block.showing(shows) }
    }

    /// The spans to whose content a piece of the span `span_index` belongs.
    pub(crate) fn shows(self, span_index: Idx, piece: &ContentPiece<'_>) -> Shows {
        self.origins().spans_of_piece(span_index, piece)
    }

    /// A piece of the span `span_index`, cleaned unless it is withheld.
    pub(crate) fn piece(self, span_index: Idx, piece: &ContentPiece<'_>, max_bytes: usize) -> String {
        match self.withholds_piece(span_index, piece) {
            true => WITHHELD.to_owned(),
            false => self.asker.excerpt_with_addresses(&piece.text, max_bytes, self.trace.addresses()),
        }
    }

    /// As [`TraceContent::piece`], for a text from the input of the span.
    pub(crate) fn text(self, span_index: Idx, text: &str, max_bytes: usize) -> String {
        self.piece(span_index, &ContentPiece::new(PieceKind::User, text), max_bytes)
    }

    /// As [`TraceContent::piece`], for an agent's answer. An answer on a tool's span may consist of arguments from a
    /// model's span.
    pub(crate) fn answer(self, agent: &Agent, text: &str, max_bytes: usize) -> String {
        let span_index = agent.answer_at.unwrap_or(agent.at);
        let comes_from_tool_arguments = span_index != agent.at && !agent.llms.contains(&span_index);
        match self.withholds(span_index) || comes_from_tool_arguments && self.withholds_agent(agent) {
            true => WITHHELD.to_owned(),
            false => self.piece(span_index, &ContentPiece::new(PieceKind::Output, text), max_bytes),
        }
    }

    /// Whether content of any span is withheld.
    pub(crate) fn withholds_any(self) -> bool {
        !self.asker.ask.withhold.is_empty() && self.origins().withholds_any
    }

    /// Whether the content of the span is withheld: because of its service, or because it may be content of a span
    /// whose service is withheld.
    pub(crate) fn withholds(self, span_index: Idx) -> bool {
        self.withholds_any() && self.origins().withholds(&Shows::only(span_index))
    }

    /// Whether a piece of the span `span_index` is withheld.
    pub(crate) fn withholds_piece(self, span_index: Idx, piece: &ContentPiece<'_>) -> bool {
        self.withholds_any() && self.origins().withholds(&self.shows(span_index, piece))
    }

    /// Whether any output of the span is withheld.
    pub(crate) fn withholds_output(self, span_index: Idx) -> bool {
        let pieces = self.trace.views.get(span_index).filter(|_| self.withholds_any()).map(output_pieces);
        pieces.unwrap_or_default().iter().any(|piece| self.withholds_piece(span_index, piece))
    }

    /// Whether content of an agent's own span or of its model calls is withheld; the definitions of its tools are part
    /// of this content.
    pub(crate) fn withholds_agent(self, agent: &Agent) -> bool {
        agent.llms.iter().chain([&agent.at]).any(|&span_index| self.withholds(span_index))
    }
}

impl Asker {
    /// Whether the task or the answer of an agent is withheld.
    pub fn withholds_run(&self, trace: &AgentTrace, agent: &Agent) -> bool {
        let content = TraceContent { asker: self, trace, memo: &Memo::new() };
        let task_at = agent.task_at.unwrap_or(agent.at);
        let task = agent.task.iter().map(|task| content.text(task_at, task, usize::MAX));
        let answer = agent.answer.iter().map(|answer| content.answer(agent, answer, usize::MAX));
        content.withholds(agent.at) || task.chain(answer).any(|shown| shown == WITHHELD)
    }

    /// As [`excerpt`], cleaned. The text is cleaned before it is cut, since a part of a secret matches no pattern; of a
    /// long text only the parts near both ends are cleaned, and the inner bytes of these parts, which may be a part of
    /// a secret, are not shown.
    pub(crate) fn cleaned_excerpt(&self, text: &str, max_bytes: usize) -> String {
        self.excerpt_with_addresses(text, max_bytes, &EmailAddresses::default())
    }

    /// A cleaned excerpt of `text`, at most `max_bytes` bytes of it.
    fn excerpt_with_addresses(&self, text: &str, max_bytes: usize, addresses: &EmailAddresses) -> String {
        /// Longer than any secret except a private key, whose pattern needs only its beginning.
        const MARGIN: usize = 4 << 10;
        if text.len().saturating_sub(2 * MARGIN) <= max_bytes {
            return excerpt(&self.clean_with_addresses(text, addresses), max_bytes).into_owned();
        }
        let capacity = max_bytes.saturating_sub(GAP_NOTE_BYTES);
        let (head, tail) = (
            self.clean_with_addresses(clip(text, capacity * 2 / 3 + MARGIN), addresses),
            self.clean_with_addresses(clip_end(text, capacity / 3 + MARGIN), addresses),
        );
        let head = clip(&head, (capacity * 2 / 3).min(head.len().saturating_sub(MARGIN)));
        let tail = clip_end(&tail, (capacity / 3).min(tail.len().saturating_sub(MARGIN)));
        let omitted = text.len().saturating_sub(head.len() + tail.len());
        format!("{head}\n[{omitted} bytes left out]\n{tail}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_secret_is_shown_where_a_text_is_cut() {
        let secret = format!("sk-{}", "aB3dE5gH7jK9mN1p".repeat(3));
        let asker = Asker::default();
        for max in [300, 2_000] {
            for (before, after) in [(max, 40), (60, max), (max, 20_000), (20_000, max / 2), (20_000, 20_000)]
            {
                for shift in 0..before.min(max) {
                    let text =
                        format!("{} {secret} {}", "-".repeat(before - shift), "=".repeat(after + shift));
                    let shown = asker.cleaned_excerpt(&text, max);
                    let has_part = secret
                        .as_bytes()
                        .windows(6)
                        .any(|part| memchr::memmem::find(shown.as_bytes(), part).is_some());
                    assert!(!has_part, "{max} {before} {after} {shift}: {shown}");
                    assert!(shown.len() <= max + 20, "{} of {max}", shown.len());
                }
            }
        }
    }

    #[test]
    fn excerpt_keeps_both_ends() {
        let text = format!("begin{}end", "é".repeat(1_000));
        let short = excerpt(&text, 300);
        assert!(short.starts_with("begin") && short.ends_with("end") && short.len() <= 310);
        assert_eq!(excerpt("short", 300), "short");
    }
}
