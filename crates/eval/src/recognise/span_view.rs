//! [`SpanView`]: a recognised span.

use std::borrow::Cow;

use verdict_otlp::trace::Kind;

use super::message::{Message, Part, Text, ToolDefinition, ToolRequest, plain};

verdict_otlp::labelled_enum! {
    /// Whether an input or output was recorded.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum Content {
        /// It was recorded.
        Present = "present",
        /// It was not recorded, so metrics can conclude nothing from its absence.
        #[default]
        Absent = "absent",
        /// A marker replaces it (`__REDACTED__` and similar).
        Redacted = "redacted",
    }
}

/// Evidence on a span that it failed.
#[derive(Clone, PartialEq, Debug)]
pub struct ErrorSign {
    /// Where the sign was found.
    pub source: ErrorSource,
    /// `error.type` or `exception.type`.
    pub kind: Option<Text>,
    /// Status message, exception message, or the value of the flag.
    pub message: Option<Text>,
}

/// Where an [`ErrorSign`] was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorSource {
    /// `Status.code` = ERROR.
    Status,
    /// An `exception` event or log record.
    Exception,
    /// The `error.type` attribute.
    ErrorType,
    /// A convention's own flag (`gen_ai.tool.status`, `isError`, level ERROR, ...).
    Flag,
    /// An exception after which the framework says that it retries.
    Retry,
}

/// Token counts; `None` if not reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tokens {
    /// Prompt tokens.
    pub input: Option<u64>,
    /// Completion tokens.
    pub output: Option<u64>,
    /// The sum, as reported or computed.
    pub total: Option<u64>,
    /// Prompt tokens read from a cache.
    pub cached: Option<u64>,
    /// Completion tokens spent on reasoning.
    pub reasoning: Option<u64>,
}

/// A plan that an agent wrote before it acted.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedPlan {
    pub text: Text,
    /// Whether it replaces an earlier plan of the same agent.
    pub replan: bool,
    /// The steps in order, without numbers and bullets.
    pub steps: Vec<Text>,
}

/// An evaluation that another program recorded.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedEvaluation {
    pub name: Text,
    pub score: Option<f64>,
    pub label: Option<Text>,
    pub explanation: Option<Text>,
}

/// A recognised span.
#[derive(Clone, Debug, Default)]
pub struct SpanView {
    pub kind: Kind,
    /// The span records the same call as another span, or only creates an agent. It stays in the tree,
    /// but no metric of leaves applies and its tokens are not counted.
    pub wrapper: bool,
    pub name: Option<Text>,
    /// `service.name` of the resource.
    pub service: Option<Text>,
    /// The agent's name, if the span has it.
    pub agent: Option<Text>,
    /// The model of the response, else of the request.
    pub model: Option<Text>,
    pub provider: Option<Text>,
    /// The id of the response. A wrapper has the same id as the span that it wraps.
    pub response_id: Option<Text>,
    /// The conversation or session.
    pub session: Option<Text>,
    /// The input: system messages first, then the conversation in order.
    pub input: Vec<Message>,
    pub output: Vec<Message>,
    /// Of TOOL spans: the call that the span executes.
    pub call: Option<ToolRequest>,
    /// Of TOOL, RETRIEVER and MEMORY spans: the result as text.
    pub result: Option<Text>,
    /// Tools offered to the model or declared by the agent.
    pub tools: Vec<ToolDefinition>,
    pub input_content: Content,
    pub output_content: Content,
    /// Finish reasons as recorded (`stop`, `length`, `tool_calls`, ...).
    pub finish: Vec<Text>,
    /// Signs that the span itself failed.
    pub errors: Vec<ErrorSign>,
    /// Error signs that only repeat a descendant's. They are no evidence against this span.
    pub inherited_errors: Vec<ErrorSign>,
    /// The span was cancelled, which is not a failure.
    pub cancelled: bool,
    pub tokens: Tokens,
    /// Cost in USD.
    pub cost: Option<f64>,
    /// The plans that the span wrote.
    pub plans: Vec<RecordedPlan>,
    /// Nodes or tasks that were declared before the run. The run decides which of them are executed, so
    /// it is not compared with them.
    pub graph: Option<RecordedPlan>,
    /// Evaluations that other programs recorded.
    pub evaluations: Vec<RecordedEvaluation>,
    /// Milliseconds from start to end; `None` if the end is not set.
    pub duration_ms: Option<f64>,
}

impl SpanView {
    /// The text parts of the output, joined by newlines.
    pub fn output_text(&self) -> Cow<'_, str> {
        plain(&self.output)
    }

    /// The tool calls in the output in order.
    pub fn requests(&self) -> impl Iterator<Item = &ToolRequest> {
        self.output.iter().flat_map(|m| &m.parts).filter_map(|p| match p {
            Part::Call(c) => Some(c),
            _ => None,
        })
    }
}
