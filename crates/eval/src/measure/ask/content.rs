//! Content of spans as blocks of a prompt page.
//!
//! In: a trace and a span. Out: its input, output and errors, each piece cleaned and labelled.
//! Content that was not recorded or is withheld is marked as missing.

use std::borrow::Cow;

use verdict_otlp::trace::{Idx, Kind};

use super::asker::Asker;
use super::prompt_page::Block;
use crate::measure::Shows;
use crate::measure::defects::{clip, clip_end};
use crate::recognise::{AgentTrace, Message, Part, Role, SpanView, ToolDefinition, ToolRequest};
use crate::redact::Addresses;

/// Shown instead of withheld content.
pub(crate) const WITHHELD: &str = "(withheld)";
/// Maximum tools listed of one offer; the rest is counted.
const MAX_TOOLS: usize = 200;
/// Maximum bytes of the description of one tool, and of its schema.
const MAX_OF_TOOL: usize = 4 * 1024;

/// A piece of content before it is cleaned.
#[derive(Clone, Debug)]
pub struct ContentPiece<'a> {
    pub kind: PieceKind,
    pub text: Cow<'a, str>,
}

verdict_otlp::labelled_enum! {
    /// The role of a piece of content. Labels are used in headings.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum PieceKind {
        System = "input, system instructions",
        /// A message of a user or a caller.
        User = "input, user",
        /// An earlier message of a model.
        Assistant = "input, assistant before",
        /// A tool result in a prompt.
        ToolMessage = "input, tool result",
        Output = "output",
        /// Recorded reasoning of a model.
        Thinking = "thinking",
        /// A tool call that a model requests.
        Call = "output, tool call",
        /// Arguments of a tool call.
        Arguments = "arguments",
        /// The result of a tool or search.
        Result = "result",
        Error = "error",
    }
}

impl PieceKind {
    /// It instructs the agent, so that a finding about an omission may quote it.
    pub fn binds(self) -> bool {
        matches!(self, PieceKind::System | PieceKind::User)
    }

    /// This span produced it, so that it is shown even if the same text occurred before.
    pub fn is_new(self) -> bool {
        !matches!(self, PieceKind::System | PieceKind::User | PieceKind::Assistant | PieceKind::ToolMessage)
    }
}

pub(crate) fn input_pieces(view: &SpanView) -> Vec<ContentPiece<'_>> {
    let mut out: Vec<ContentPiece<'_>> = view.input.iter().flat_map(message_pieces).collect();
    let arguments = view.call.as_ref().and_then(|call| call.arguments.as_ref());
    out.extend(arguments.map(|text| ContentPiece { kind: PieceKind::Arguments, text: Cow::Borrowed(text) }));
    out
}

pub(crate) fn output_pieces(view: &SpanView) -> Vec<ContentPiece<'_>> {
    output_pieces_where(view, |_| true).collect()
}

/// As [`output_pieces`], of the parts that `keep` returns true for. Each is rendered when it is reached.
pub(crate) fn output_pieces_where<'v>(
    view: &'v SpanView,
    mut keep: impl FnMut(&Part) -> bool + 'v,
) -> impl Iterator<Item = ContentPiece<'v>> {
    use PieceKind::{Call, Output, Result, Thinking};
    let parts = view.output.iter().flat_map(|m| &m.parts).filter(move |part| keep(part));
    let said = parts.map(|part| piece(part, Output, Thinking, Call, Result));
    let results = view.result.iter();
    let results = results.map(|result| ContentPiece { kind: Result, text: Cow::Borrowed(result) });
    let errors = view.errors.iter().map(|error| {
        let parts: Vec<&str> = [&error.kind, &error.message].into_iter().flatten().map(|t| &**t).collect();
        let text = if parts.is_empty() { "status: error".to_owned() } else { parts.join(": ") };
        ContentPiece { kind: PieceKind::Error, text: Cow::Owned(text) }
    });
    said.chain(results).chain(errors)
}

const MEDIA: &str = "(an image or file, not shown)";

/// A part of a message; the kinds are those of text, reasoning, calls and results.
fn piece(
    part: &Part,
    text: PieceKind,
    thinking: PieceKind,
    call: PieceKind,
    result: PieceKind,
) -> ContentPiece<'_> {
    let (kind, text) = match part {
        Part::Text(content) => (text, Cow::Borrowed(&**content)),
        Part::Reasoning(content) => (thinking, Cow::Borrowed(&**content)),
        Part::Call(request) => (call, Cow::Owned(render_call(request))),
        Part::Result { content, .. } => (result, Cow::Borrowed(&**content)),
        Part::Media => (text, Cow::Borrowed(MEDIA)),
    };
    ContentPiece { kind, text }
}

fn message_pieces(message: &Message) -> impl Iterator<Item = ContentPiece<'_>> {
    use PieceKind::{Assistant, System, ToolMessage, User};
    let kind = match message.role {
        Role::System => System,
        Role::User => User,
        Role::Assistant => Assistant,
        Role::Tool => ToolMessage,
    };
    message.parts.iter().map(move |part| piece(part, kind, Assistant, Assistant, ToolMessage))
}

/// A tool call as a line.
pub(crate) fn render_call(request: &ToolRequest) -> String {
    format!("{}({})", request.name, request.arguments.as_deref().unwrap_or_default())
}

/// The kind and name of a span, for a heading.
pub(crate) fn step_title(asker: &Asker, trace: &AgentTrace, at: Idx) -> String {
    let Some(view) = trace.views.get(at) else { return String::new() };
    let kind = match view.kind {
        Kind::Unknown => "span",
        kind => kind.as_str(),
    };
    let called = view.call.as_ref().map(|call| &call.name);
    match called.or(view.name.as_ref()).map(|n| asker.name(n)).filter(|n| !n.is_empty()) {
        Some(given) => format!("{kind} {given}"),
        None => kind.to_owned(),
    }
}

/// As [`step_title`], with the agent where there are several: for questions about closed traces, because the number
/// of agents of an open trace changes.
pub(crate) fn title(asker: &Asker, trace: &AgentTrace, at: Idx) -> String {
    let mut out = step_title(asker, trace, at);
    let owner = trace.owner.get(at).copied().flatten().filter(|_| trace.agents.len() > 1);
    if let Some(agent) = owner.and_then(|i| trace.agents.get(i)).filter(|agent| agent.at != at) {
        let of = agent.name.as_ref().map_or_else(|| "an agent".to_owned(), |n| asker.name(n));
        out = format!("{out}, of {of}");
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
            out.push_str(clip(description, MAX_OF_TOOL));
        }
        if let Some(parameters) = &tool.parameters {
            out.push_str(" Parameters: ");
            out.push_str(clip(&parameters.to_string(), MAX_OF_TOOL));
        }
        out.push('\n');
    }
    if definitions.len() > MAX_TOOLS {
        out.push_str(&format!("({} more)\n", definitions.len() - MAX_TOOLS));
    }
    out
}

/// Bytes of the note about the gap.
const NOTE: usize = 40;

/// A text of at most about `max` bytes: its beginning, its end, and the size of the gap.
pub(crate) fn excerpt(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let room = max.saturating_sub(NOTE);
    let (head, tail) = (clip(text, room * 2 / 3), clip_end(text, room / 3));
    let out = text.len() - head.len() - tail.len();
    Cow::Owned(format!("{head}\n[{out} bytes left out]\n{tail}"))
}

impl Asker {
    /// A piece as a block of the span `at`, at most `max` bytes of it; `label` must contain nothing
    /// of another span but its agent's name.
    pub fn block(
        &self,
        trace: &AgentTrace,
        at: Idx,
        piece: &ContentPiece<'_>,
        label: String,
        max: usize,
    ) -> Block {
        let shown = self.shown(trace, at, &piece.text, max);
        let id = trace.tree.spans.get(at).map(|span| span.id).unwrap_or_default();
        let of = Some((at, id));
        Block { of, ..Block::about(label, shown, piece.kind.binds()).showing(Shows::span(trace, at)) }
    }

    /// A text of the span `at`, cleaned, unless its service withholds it.
    pub fn shown(&self, trace: &AgentTrace, at: Idx, text: &str, max: usize) -> String {
        match self.withholds(trace, at) {
            true => WITHHELD.to_owned(),
            false => self.excerpt_numbering(text, max, trace.addresses()),
        }
    }

    /// As [`excerpt`], cleaned. The text is cleaned before it is cut, since a part of a secret matches no pattern; of a
    /// long text only what is near its ends is cleaned, and the last bytes of that, which may cut a secret, are not shown.
    pub(crate) fn cleaned_excerpt(&self, text: &str, max: usize) -> String {
        self.excerpt_numbering(text, max, &Addresses::default())
    }

    fn excerpt_numbering(&self, text: &str, max: usize, addresses: &Addresses) -> String {
        /// No secret is longer, but a private key, whose pattern needs only its beginning.
        const MARGIN: usize = 4 << 10;
        if text.len().saturating_sub(2 * MARGIN) <= max {
            return excerpt(&self.clean_numbering(text, addresses), max).into_owned();
        }
        let room = max.saturating_sub(NOTE);
        let (head, tail) = (
            self.clean_numbering(clip(text, room * 2 / 3 + MARGIN), addresses),
            self.clean_numbering(clip_end(text, room / 3 + MARGIN), addresses),
        );
        let head = clip(&head, (room * 2 / 3).min(head.len().saturating_sub(MARGIN)));
        let tail = clip_end(&tail, (room / 3).min(tail.len().saturating_sub(MARGIN)));
        let out = text.len().saturating_sub(head.len() + tail.len());
        format!("{head}\n[{out} bytes left out]\n{tail}")
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
