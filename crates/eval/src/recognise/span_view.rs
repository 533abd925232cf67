//! [`SpanView`]: a recognised span.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use verdict_otlp::trace::Kind;

use super::message::{Message, Part, Text, ToolDefinition, ToolRequest, plain};

verdict_otlp::labelled_enum! {
    /// Whether an input or output was recorded as a whole.
    ///
    /// The states are ordered: a later one is the more specific reason for missing content.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
    pub enum Content {
        /// The content was recorded.
        Present = "present",
        /// The content was not recorded, so metrics can conclude nothing from its absence.
        #[default]
        Absent = "absent",
        /// A marker or a hash replaces it, or a part of it (`__REDACTED__` and similar).
        Redacted = "redacted",
        /// The content was cut off, as by the attribute length limit of an SDK.
        Truncated = "truncated",
    }
}

impl Content {
    /// Whether there is content that was withheld or cut off. No rule reads the remaining part, since the missing part
    /// may contradict it.
    pub fn is_partial(self) -> bool {
        matches!(self, Content::Redacted | Content::Truncated)
    }
}

/// Evidence on a span that it failed.
#[derive(Clone, PartialEq, Debug)]
pub struct ErrorSign {
    /// Where the sign was found.
    pub source: ErrorSource,
    /// `error.type` or `exception.type`.
    pub error_type: Option<Text>,
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
    /// An error of an attempt that is retried.
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
    /// Prompt tokens written to a cache, which cost more than others.
    pub cache_write: Option<u64>,
    /// Completion tokens spent on reasoning.
    pub reasoning: Option<u64>,
}

impl Tokens {
    /// Prompt and completion tokens together: the total, or else the sum of the counts that are reported.
    pub fn sum(&self) -> Option<u64> {
        let parts = self.input.unwrap_or(0).saturating_add(self.output.unwrap_or(0));
        self.total.or((self.input.is_some() || self.output.is_some()).then_some(parts))
    }
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
    /// Whether it passed, if that is recorded apart from score and label.
    pub passed: Option<bool>,
    /// The evaluator failed: there is no result, although there may be a label.
    pub error: Option<Text>,
    /// The id or name of the evaluator.
    pub evaluator: Option<Text>,
    pub evaluator_version: Option<Text>,
    /// `human`, `llm` or `code`, as recorded.
    pub evaluator_type: Option<Text>,
    /// The target: an agent, a service, or a span.
    pub target: Option<Text>,
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
    /// The id of the session's user.
    pub user: Option<Text>,
    /// The input: system messages first, then the conversation in order.
    pub input: Vec<Message>,
    pub output: Vec<Message>,
    /// The call that a TOOL span executes.
    pub call: Option<ToolRequest>,
    /// The result of a TOOL, RETRIEVER or MEMORY span as text.
    pub result: Option<Text>,
    /// Tools offered to the model or declared by the agent.
    pub tools: Vec<ToolDefinition>,
    pub input_content: Content,
    pub output_content: Content,
    /// Finish reasons as recorded (`stop`, `length`, `tool_calls`, ...).
    pub finish: Vec<Text>,
    /// Signs that the span itself failed.
    pub errors: Vec<ErrorSign>,
    /// Error signs that only repeat signs of a descendant. They are no evidence that this span itself failed.
    pub inherited_errors: Vec<ErrorSign>,
    /// The span was cancelled, which is not a failure.
    pub cancelled: bool,
    pub tokens: Tokens,
    /// Cost in USD.
    pub cost: Option<f64>,
    /// The plans that the span wrote.
    pub plans: Vec<RecordedPlan>,
    /// Nodes or tasks that were declared before the run. Which of them are executed is decided during the run, so the
    /// run is not compared with them.
    pub graph: Option<RecordedPlan>,
    /// Evaluations that other programs recorded.
    pub evaluations: Vec<RecordedEvaluation>,
    /// Milliseconds from start to end; `None` if the end is not set.
    pub duration_ms: Option<f64>,
}

// The key of the type of a block.
static TYPE_KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"type\":"));
// The beginning of an image in a `data:` URL.
static IMAGE_URL: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("data:image/"));

/// Whether a result contains an image or audio as a block of content.
pub(crate) fn is_media(result: &str) -> bool {
    result.starts_with(['{', '[']) && {
        let bytes = result.as_bytes();
        let is_media_type = |start: usize| {
            let value = bytes.get(start + TYPE_KEY.needle().len()..).unwrap_or_default();
            ["\"image", " \"image", "\"audio"].iter().any(|media| value.starts_with(media.as_bytes()))
        };
        TYPE_KEY.find_iter(bytes).any(is_media_type) || IMAGE_URL.find(bytes).is_some()
    }
}

impl SpanView {
    /// Why the input or the output cannot be read: the more specific of the two reasons. `None` if both were
    /// recorded.
    pub fn content_gap(&self) -> Option<Content> {
        let gaps = [self.output_content, self.input_content];
        gaps.into_iter().filter(|content| *content != Content::Present).max()
    }

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
