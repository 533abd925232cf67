//! The pieces of a span's content before they are cleaned.
//!
//! In: a span. Out: the texts of its input, output and errors, each with its role in the span.

use std::borrow::Cow;

use verdict_otlp::work;

use crate::recognise::{Message, Part, Role, SpanView, ToolRequest};

/// A piece of content before it is cleaned.
#[derive(Clone, Debug)]
pub(crate) struct ContentPiece<'a> {
    pub kind: PieceKind,
    pub text: Cow<'a, str>,
    /// Whether the piece is part of a prompt and another span may have produced it: it is the message of a model or a
    /// tool, or follows such a message, since a result may be recorded as a message of the user.
    pub is_repeated: bool,
}

impl<'a> ContentPiece<'a> {
    pub(crate) fn new(kind: PieceKind, text: impl Into<Cow<'a, str>>) -> ContentPiece<'a> {
        ContentPiece { kind, text: text.into(), is_repeated: false }
    }
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
    /// Whether the piece instructs the agent, so that a finding about an omission may quote it.
    pub(crate) fn is_instruction(self) -> bool {
        matches!(self, PieceKind::System | PieceKind::User)
    }

    /// Whether this span produced the piece, so that it is shown even if the same text occurred before.
    pub(crate) fn is_new(self) -> bool {
        !matches!(self, PieceKind::System | PieceKind::User | PieceKind::Assistant | PieceKind::ToolMessage)
    }
}

/// The pieces of the prompt and the arguments of a span.
pub(crate) fn input_pieces(view: &SpanView) -> Vec<ContentPiece<'_>> {
    let mut out: Vec<ContentPiece<'_>> = view.input.iter().flat_map(message_pieces).collect();
    let is_of_run = |piece: &ContentPiece<'_>| !matches!(piece.kind, PieceKind::System | PieceKind::User);
    let first = out.iter().position(is_of_run).unwrap_or(out.len());
    out.iter_mut().skip(first).for_each(|piece| piece.is_repeated = true);
    out.extend(arguments_of(view));
    out
}

/// The arguments of the call that the span executes.
pub(crate) fn arguments_of(view: &SpanView) -> impl Iterator<Item = ContentPiece<'_>> {
    let arguments = view.call.iter().filter_map(|call| call.arguments.as_ref());
    arguments.map(|text| ContentPiece::new(PieceKind::Arguments, &**text))
}

/// The pieces of the output, the result and the errors of a span.
pub(crate) fn output_pieces(view: &SpanView) -> Vec<ContentPiece<'_>> {
    output_pieces_of(view, view.output.iter().flat_map(|m| &m.parts)).collect()
}

/// As [`output_pieces`], with `parts` in place of the parts of its output messages. Each piece is rendered when the
/// iterator reaches it.
pub(crate) fn output_pieces_of<'v>(
    view: &'v SpanView,
    parts: impl Iterator<Item = &'v Part>,
) -> impl Iterator<Item = ContentPiece<'v>> {
    use PieceKind::{Call, Output, Result, Thinking};
    let parts = parts.map(|part| piece(part, [Output, Thinking, Call, Result]));
    let results = view.result.iter().map(|result| ContentPiece::new(Result, &**result));
    let errors = view.errors.iter().map(|error| {
        let parts: Vec<&str> =
            [&error.error_type, &error.message].into_iter().flatten().map(|t| &**t).collect();
        let text = if parts.is_empty() { NO_DETAIL.to_owned() } else { parts.join(": ") };
        ContentPiece::new(PieceKind::Error, text)
    });
    parts.chain(results).chain(errors)
}

/// The text for an image or a file.
pub(super) const MEDIA: &str = "(an image or file, not shown)";
/// The text for an error without a type and a message.
pub(super) const NO_DETAIL: &str = "status: error";

/// The piece of a part of a message. The kinds are those for text, reasoning, calls and results.
fn piece(part: &Part, [text, thinking, call, result]: [PieceKind; 4]) -> ContentPiece<'_> {
    work::count(1);
    let (kind, text) = match part {
        Part::Text(content) => (text, Cow::Borrowed(&**content)),
        Part::Reasoning(content) => (thinking, Cow::Borrowed(&**content)),
        Part::Call(request) => (call, Cow::Owned(render_call(request))),
        Part::Result { content, .. } => (result, Cow::Borrowed(&**content)),
        Part::Media => (text, Cow::Borrowed(MEDIA)),
    };
    ContentPiece::new(kind, text)
}

/// The pieces of a message of a prompt.
fn message_pieces(message: &Message) -> impl Iterator<Item = ContentPiece<'_>> {
    use PieceKind::{Assistant, System, ToolMessage, User};
    let kind = match message.role {
        Role::System => System,
        Role::User => User,
        Role::Assistant => Assistant,
        Role::Tool => ToolMessage,
    };
    message.parts.iter().map(move |part| piece(part, [kind, Assistant, Assistant, ToolMessage]))
}

/// A tool call as a line.
pub(crate) fn render_call(request: &ToolRequest) -> String {
    format!("{}({})", request.name, request.arguments.as_deref().unwrap_or_default())
}
