//! Content of spans as blocks of a page.
//!
//! In: a trace and a span. Out: what it was given, what it said, what went wrong, each piece cleaned
//! and named. What an instrumentation did not record, or a service withholds, is said to be missing.

use std::borrow::Cow;

use super::Asker;
use super::prompt_page::Block;
use crate::measure::Shows;
use crate::measure::defects::{clip, clip_end};
use crate::recognise::{AgentTrace, Message, Part, Role, SpanView, ToolDefinition, ToolRequest};
use verdict_otlp::trace::{Idx, Kind};

/// What is shown of what a service withholds.
pub const WITHHELD: &str = "(withheld)";
/// Tools shown of one offer; beyond it only their number is told.
const MOST_TOOLS: usize = 200;
/// Bytes of one tool's description and of its schema.
const MOST_OF_TOOL: usize = 4 * 1024;

/// A piece of content before it is cleaned.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    /// What it is.
    pub what: What,
    /// The text.
    pub text: Cow<'a, str>,
}

/// What a piece of content is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Instructions of the developer.
    System,
    /// What a user or a caller says.
    User,
    /// What a model said before.
    Assistant,
    /// What a tool returned, as it stands in a prompt.
    ToolMessage,
    /// What a model says.
    Output,
    /// What it thinks, where that is recorded.
    Thinking,
    /// A tool call that it asks for.
    Call,
    /// Arguments that a tool was given.
    Arguments,
    /// What a tool or search returned.
    Result,
    /// Why it failed.
    Error,
}

impl What {
    /// In the words of a heading.
    pub fn words(self) -> &'static str {
        match self {
            What::System => "input, system instructions",
            What::User => "input, user",
            What::Assistant => "input, assistant before",
            What::ToolMessage => "input, tool result",
            What::Output => "output",
            What::Thinking => "thinking",
            What::Call => "output, tool call",
            What::Arguments => "arguments",
            What::Result => "result",
            What::Error => "error",
        }
    }

    /// It tells the agent what to do: an omission may quote it.
    pub fn binds(self) -> bool {
        matches!(self, What::System | What::User)
    }

    /// It was made by this span: it is shown even if the same was said before.
    pub fn is_new(self) -> bool {
        matches!(
            self,
            What::Output | What::Thinking | What::Call | What::Arguments | What::Result | What::Error
        )
    }
}

/// What a span was given.
pub fn given(view: &SpanView) -> Vec<Piece<'_>> {
    let mut out: Vec<Piece<'_>> = view.input.iter().flat_map(said_before).collect();
    if let Some(arguments) = view.call.as_ref().and_then(|call| call.arguments.as_ref()) {
        out.push(Piece { what: What::Arguments, text: Cow::Borrowed(arguments) });
    }
    out
}

/// What a span made of it.
pub fn made(view: &SpanView) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    for part in view.output.iter().flat_map(|m| &m.parts) {
        out.push(match part {
            Part::Text(text) => Piece { what: What::Output, text: Cow::Borrowed(text) },
            Part::Reasoning(text) => Piece { what: What::Thinking, text: Cow::Borrowed(text) },
            Part::Call(request) => Piece { what: What::Call, text: Cow::Owned(called(request)) },
            Part::Result { content, .. } => Piece { what: What::Result, text: Cow::Borrowed(content) },
            Part::Media => Piece { what: What::Output, text: Cow::Borrowed(MEDIA) },
        });
    }
    if let Some(result) = &view.result {
        out.push(Piece { what: What::Result, text: Cow::Borrowed(result) });
    }
    for error in &view.errors {
        let parts: Vec<&str> = [&error.kind, &error.message].into_iter().flatten().map(|t| &**t).collect();
        let text = if parts.is_empty() { "status: error".to_owned() } else { parts.join(": ") };
        out.push(Piece { what: What::Error, text: Cow::Owned(text) });
    }
    out
}

const MEDIA: &str = "(an image or file, not shown)";

fn said_before(message: &Message) -> Vec<Piece<'_>> {
    let of_role = match message.role {
        Role::System => What::System,
        Role::User => What::User,
        Role::Assistant => What::Assistant,
        Role::Tool => What::ToolMessage,
    };
    let parts = message.parts.iter().map(|part| match part {
        Part::Text(text) => Piece { what: of_role, text: Cow::Borrowed(text) },
        Part::Reasoning(text) => Piece { what: What::Assistant, text: Cow::Borrowed(text) },
        Part::Call(request) => Piece { what: What::Assistant, text: Cow::Owned(called(request)) },
        Part::Result { content, .. } => Piece { what: What::ToolMessage, text: Cow::Borrowed(content) },
        Part::Media => Piece { what: of_role, text: Cow::Borrowed(MEDIA) },
    });
    parts.collect()
}

/// A tool call as a line.
pub fn called(request: &ToolRequest) -> String {
    format!("{}({})", request.name, request.arguments.as_deref().unwrap_or_default())
}

/// What a span is, in the words of a heading.
pub fn title(asker: &Asker, trace: &AgentTrace, at: Idx) -> String {
    let Some(view) = trace.views.get(at) else { return String::new() };
    let mut out = match view.kind {
        Kind::Unknown => "span".to_owned(),
        kind => kind.as_str().to_owned(),
    };
    let called = view.call.as_ref().map(|call| &call.name);
    if let Some(given) = called.or(view.name.as_ref()).map(|n| asker.name(n)).filter(|n| !n.is_empty()) {
        out = format!("{out} {given}");
    }
    let owner = trace.owner.get(at).copied().flatten().filter(|_| trace.agents.len() > 1);
    if let Some(agent) = owner.and_then(|i| trace.agents.get(i)).filter(|agent| agent.at != at) {
        let of = agent.name.as_ref().map_or_else(|| "an agent".to_owned(), |n| asker.name(n));
        out = format!("{out}, of {of}");
    }
    out
}

/// The tools that were offered, one a line.
pub fn tools(definitions: &[ToolDefinition]) -> String {
    let mut out = String::new();
    for tool in definitions.iter().take(MOST_TOOLS) {
        out.push_str(&tool.name);
        if let Some(description) = &tool.description {
            out.push_str(": ");
            out.push_str(clip(description, MOST_OF_TOOL));
        }
        if let Some(parameters) = &tool.parameters {
            out.push_str(" Parameters: ");
            out.push_str(clip(&parameters.to_string(), MOST_OF_TOOL));
        }
        out.push('\n');
    }
    if definitions.len() > MOST_TOOLS {
        out.push_str(&format!("({} more)\n", definitions.len() - MOST_TOOLS));
    }
    out
}

/// A text of at most about `max` bytes: its beginning and its end, and how much is left out.
pub fn excerpt(text: &str, max: usize) -> Cow<'_, str> {
    /// What a note of the gap takes.
    const NOTE: usize = 40;
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let room = max.saturating_sub(NOTE);
    let (head, tail) = (clip(text, room * 2 / 3), clip_end(text, room / 3));
    let out = text.len() - head.len() - tail.len();
    Cow::Owned(format!("{head}\n[{out} bytes left out]\n{tail}"))
}

impl Asker {
    /// A piece as a block of the span `at`, at most `max` bytes of it; in `label` nothing of another span
    /// may stand but its agent's name.
    pub fn block(&self, trace: &AgentTrace, at: Idx, piece: &Piece<'_>, label: String, max: usize) -> Block {
        let shown = self.shown(trace, at, &piece.text, max);
        let id = trace.tree.spans.get(at).map(|span| span.id).unwrap_or_default();
        let of = Some((at, id));
        Block { of, ..Block::about(label, shown, piece.what.binds()).showing(Shows::span(trace, at)) }
    }

    /// A text of the span `at`, cleaned, unless its service withholds it.
    pub fn shown(&self, trace: &AgentTrace, at: Idx, text: &str, max: usize) -> String {
        match self.withholds(trace, at) {
            true => WITHHELD.to_owned(),
            // Cleaned it may be longer than it was.
            false => match self.clean(&excerpt(text, max)) {
                long if long.len() > max => excerpt(&long, max).into_owned(),
                clean => clean,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_keeps_both_ends() {
        let text = format!("begin{}end", "é".repeat(1_000));
        let short = excerpt(&text, 300);
        assert!(short.starts_with("begin") && short.ends_with("end") && short.len() <= 310);
        assert_eq!(excerpt("short", 300), "short");
    }
}
