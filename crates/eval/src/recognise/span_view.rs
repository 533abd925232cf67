//! [`SpanView`]: one span in the one vocabulary.

use std::borrow::Cow;

use verdict_otlp::trace::Kind;

use super::message::{Message, Part, Text, ToolDefinition, ToolRequest, plain};

/// Whether there was anything to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Content {
    /// Input or output was read.
    Present,
    /// The instrumentation does not record it: nothing may be concluded.
    #[default]
    Absent,
    /// A sentinel stands in its place (`__REDACTED__` and its like).
    Redacted,
}

/// What says that something went wrong, as own evidence of this span.
#[derive(Clone, PartialEq, Debug)]
pub struct ErrorSign {
    /// Where it was read.
    pub source: ErrorSource,
    /// `error.type` or `exception.type`, where given.
    pub kind: Option<Text>,
    /// Status description, exception message, or the flag's value.
    pub message: Option<Text>,
}

/// Where an [`ErrorSign`] was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorSource {
    /// `Status.code` = ERROR.
    Status,
    /// An `exception` event, or its log form.
    Exception,
    /// The `error.type` attribute.
    ErrorType,
    /// A convention's own flag (`gen_ai.tool.status`, `isError`, level ERROR, ...).
    Flag,
    /// An exception that the framework itself announced as to be retried.
    Retry,
}

/// Token counts; `None` where not reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tokens {
    /// Prompt tokens.
    pub input: Option<u64>,
    /// Completion tokens.
    pub output: Option<u64>,
    /// Their sum, as reported or added.
    pub total: Option<u64>,
    /// Prompt tokens read from a cache.
    pub cached: Option<u64>,
    /// Completion tokens spent on reasoning.
    pub reasoning: Option<u64>,
}

/// A plan, found as in conventions section 4.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The plan as written.
    pub text: Text,
    /// It replaces an earlier plan of the same agent.
    pub replan: bool,
    /// Its steps in order, numbering and bullets stripped.
    pub steps: Vec<Text>,
}

/// An evaluation that somebody else wrote (conventions, section 3).
#[derive(Clone, PartialEq, Debug)]
pub struct Evaluation {
    pub name: Text,
    pub score: Option<f64>,
    pub label: Option<Text>,
    pub explanation: Option<Text>,
}

/// One span in the one vocabulary.
#[derive(Clone, Debug, Default)]
pub struct SpanView {
    /// What it is.
    pub kind: Kind,
    /// An LLM span that only wraps another one for the same call, or an agent's mere creation:
    /// kept in the tree, no leaf metric, tokens not counted.
    pub wrapper: bool,
    /// Span name.
    pub name: Option<Text>,
    /// `service.name` of its resource.
    pub service: Option<Text>,
    /// Agent's name, where the span says it.
    pub agent: Option<Text>,
    /// Model that answered, else that was asked.
    pub model: Option<Text>,
    /// Provider of the model.
    pub provider: Option<Text>,
    /// Response id, which ties a wrapper to what it wraps.
    pub response_id: Option<Text>,
    /// Conversation or session.
    pub session: Option<Text>,
    /// System and developer messages first, then the conversation, in order.
    pub input: Vec<Message>,
    /// What came out.
    pub output: Vec<Message>,
    /// For TOOL spans: the call it carries out.
    pub call: Option<ToolRequest>,
    /// For TOOL, RETRIEVER and MEMORY spans: what came back, as text.
    pub result: Option<Text>,
    /// Tools offered to the model or declared by the agent.
    pub tools: Vec<ToolDefinition>,
    /// Whether input was readable.
    pub input_content: Content,
    /// Whether output was readable.
    pub output_content: Content,
    /// Finish reasons as sent (`stop`, `length`, `tool_calls`, ...).
    pub finish: Vec<Text>,
    /// Own signs of error.
    pub errors: Vec<ErrorSign>,
    /// Signs of error that only repeat what a descendant says: no evidence of this span's own.
    pub inherited_errors: Vec<ErrorSign>,
    /// Cancelled on purpose: not a failure.
    pub cancelled: bool,
    /// Token counts.
    pub tokens: Tokens,
    /// Cost in USD, where given.
    pub cost: Option<f64>,
    /// Plans that this span wrote.
    pub plans: Vec<Plan>,
    /// Nodes or tasks that were declared before the run. Which of them run is decided on the way,
    /// so this is no plan to be held to.
    pub graph: Option<Plan>,
    /// Evaluations already on the wire.
    pub evaluations: Vec<Evaluation>,
    /// Milliseconds from start to end; `None` when the end was never set.
    pub duration_ms: Option<f64>,
}

impl SpanView {
    /// All text of the output's plain parts, joined by newlines.
    pub fn output_text(&self) -> Cow<'_, str> {
        plain(&self.output)
    }

    /// The tool calls in the output, in order.
    pub fn requests(&self) -> impl Iterator<Item = &ToolRequest> {
        self.output.iter().flat_map(|m| &m.parts).filter_map(|p| match p {
            Part::Call(c) => Some(c),
            _ => None,
        })
    }
}
