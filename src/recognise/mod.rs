//! From spans in any convention to one vocabulary: [`Reading`] of a span, [`Scene`] of a trace.
//!
//! In: a [`Tree`] of bytes and the log records that belong to its spans. Out: kinds, messages,
//! tool calls, agents, plans, errors. After this stage nothing reads a vendor's key. The map of
//! conventions is data (`convention/*.yaml`), versioned, overridable from the configuration.

use std::ops::Deref;
use std::sync::Arc;

use crate::trace::{Idx, Kind, Tree};

/// A text of the trace, interned: the same message in ten prompts is one allocation, and
/// [`Text::same`] tells so without comparing bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Text(pub Arc<str>);

impl Text {
    /// True when both are the very same interned text.
    pub fn same(&self, other: &Text) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(s: &str) -> Text {
        Text(Arc::from(s))
    }
}

/// Who says a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// System or developer instructions.
    System,
    /// The user, or whoever calls the agent.
    User,
    /// The model.
    Assistant,
    /// A tool's answer.
    Tool,
}

/// A tool call as a model wrote it.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolRequest {
    /// Links the request to its result; often absent.
    pub id: Option<Text>,
    /// The tool's name.
    pub name: Text,
    /// The arguments as written: usually JSON, possibly malformed.
    pub arguments: Option<Text>,
}

/// One piece of a message.
#[derive(Clone, PartialEq, Debug)]
pub enum Part {
    /// Plain text.
    Text(Text),
    /// The model's visible thinking.
    Reasoning(Text),
    /// The model asks for a tool.
    Call(ToolRequest),
    /// A tool's answer, in a later prompt.
    Result {
        /// The id of the call it answers.
        id: Option<Text>,
        /// The tool's name, where the convention repeats it.
        name: Option<Text>,
        /// What the tool said.
        content: Text,
        /// The convention's own error flag (`is_error`, `status: error`).
        failed: bool,
    },
    /// An image, file or blob: there, but not read.
    Media,
}

/// One message of a conversation, whatever shape it had on the wire.
#[derive(Clone, PartialEq, Debug)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
}

/// A tool offered to a model.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolDefinition {
    /// Its name.
    pub name: Text,
    /// What it says of itself.
    pub description: Option<Text>,
    /// JSON schema of its parameters; `None` when the trace shows only a name.
    pub parameters: Option<Arc<serde_json::Value>>,
}

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
    /// Metric name.
    pub name: Text,
    /// Numeric score.
    pub score: Option<f64>,
    /// Label.
    pub label: Option<Text>,
    /// Rationale.
    pub explanation: Option<Text>,
}

/// One span in the one vocabulary.
#[derive(Clone, Debug, Default)]
pub struct Reading {
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
    /// Cancelled on purpose: not a failure.
    pub cancelled: bool,
    /// Token counts.
    pub tokens: Tokens,
    /// Cost in USD, where given.
    pub cost: Option<f64>,
    /// Plans that this span wrote.
    pub plans: Vec<Plan>,
    /// Evaluations already on the wire.
    pub evaluations: Vec<Evaluation>,
    /// Milliseconds from start to end; `None` when the end was never set.
    pub duration_ms: Option<f64>,
}

impl Reading {
    /// All text of the output's plain parts, joined by newlines.
    pub fn output_text(&self) -> String {
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

/// The plain text parts of messages, joined by newlines.
pub fn plain(messages: &[Message]) -> String {
    let mut out = String::new();
    for part in messages.iter().flat_map(|m| &m.parts) {
        if let Part::Text(t) = part {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(t);
        }
    }
    out
}

/// A tool call of the run: the request, its span, or both.
#[derive(Clone, Debug)]
pub struct Call {
    /// The LLM span that wrote it, where known.
    pub llm: Option<Idx>,
    /// The span that carried it out; `None` for a virtual step (client-side or server-side tools).
    pub tool: Option<Idx>,
    /// Index into [`Scene::agents`] of the agent that made it.
    pub agent: Option<usize>,
    /// The tool's name.
    pub name: Text,
    /// Call id.
    pub id: Option<Text>,
    /// Arguments as written.
    pub arguments: Option<Text>,
    /// Arguments parsed, when they are JSON.
    pub parsed: Option<Arc<serde_json::Value>>,
    /// What came back, from the tool span or from a later tool message.
    pub result: Option<Text>,
    /// A structural sign of failure: error status, flag or exception on the tool span, or a
    /// failed tool message. Error *text* is for `measure` to judge.
    pub failed: bool,
    /// The definition that the caller was shown.
    pub definition: Option<ToolDefinition>,
    /// Where it happened: the tool span if there is one, else the LLM span.
    pub at: Idx,
    /// The position in its run: calls are sorted by start time, then index in the message, then id.
    pub start: u64,
}

/// One run of an agent: an AGENT span, or, in a trace without one, the topmost span above the
/// LLM and tool spans.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its span. Agent-level metrics are written here.
    pub at: Idx,
    /// Its name, where known.
    pub name: Option<Text>,
    /// The agent that called it (index into [`Scene::agents`]).
    pub parent: Option<usize>,
    /// What it was asked to do.
    pub task: Option<Text>,
    /// What it finally answered. `None` when content is absent or the run did not get there;
    /// `answer_content` tells which.
    pub answer: Option<Text>,
    /// The span whose output the answer is (an LLM span, a final-answer tool, or `at` itself).
    pub answer_at: Option<Idx>,
    /// Whether an answer could have been seen.
    pub answer_content: Content,
    /// Its own LLM spans (wrappers and sub-agents' left out), in order.
    pub llms: Vec<Idx>,
    /// Its own calls (indexes into [`Scene::calls`]), in order.
    pub calls: Vec<usize>,
    /// Its plans in order, with the span that wrote each.
    pub plans: Vec<(Idx, Plan)>,
    /// Tools it was shown, by name, in order of first appearance.
    pub tools: Vec<ToolDefinition>,
}

/// A whole trace in the one vocabulary. Pure data; `readings[i]` belongs to `tree.spans[i]`.
#[derive(Debug, Default)]
pub struct Scene {
    /// The spans and their links.
    pub tree: Tree,
    /// One reading a span.
    pub readings: Vec<Reading>,
    /// Agents, outermost first.
    pub agents: Vec<Agent>,
    /// For each span the agent it belongs to (an agent span belongs to itself).
    pub owner: Vec<Option<usize>>,
    /// Every tool call, in order.
    pub calls: Vec<Call>,
    /// The root has not come, or the trace was closed early: what is missing may still be running.
    pub incomplete: bool,
}
