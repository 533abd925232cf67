//! [`AgentTrace`]: a recognised trace with its agents and their calls.

use std::sync::{Arc, OnceLock};

use foldhash::{HashMap, HashSet};
use verdict_otlp::trace::{Idx, Kind, Tree};

use super::control_tools::ControlTools;
use super::message::{Part, Text, ToolDefinition};
use super::span_view::{Content, RecordedPlan, SpanView, is_media};
use crate::redact::EmailAddresses;

/// A tool call: the request, the tool span, or both.
#[derive(Clone, Debug)]
pub struct Call {
    /// The LLM span that requested it, if known.
    pub llm: Option<Idx>,
    /// The tool span that executed it; `None` if there is none (client-side or server-side tools).
    pub tool: Option<Idx>,
    /// Index into [`AgentTrace::agents`] of the agent that made it.
    pub agent: Option<usize>,
    pub name: Text,
    pub id: Option<Text>,
    /// The index among the requests of the model call; `None` for a call that no model requested.
    pub request_index: Option<usize>,
    /// The arguments as recorded; `None` if they are hidden or cut off.
    pub arguments: Option<Text>,
    /// Whether the arguments were recorded.
    pub arguments_content: Content,
    /// The arguments, parsed, if they are JSON.
    pub parsed: Option<Arc<serde_json::Value>>,
    /// The arguments have too many values to be parsed.
    pub too_large: bool,
    /// The result, from the tool span or a later tool message; `None` if it is hidden or cut off.
    pub result: Option<Text>,
    /// Whether the result was recorded.
    pub result_content: Content,
    /// A structural sign of failure: error status, flag or exception on the tool span, or a failed tool
    /// message. Error messages in a result's text are found by `measure`.
    pub failed: bool,
    /// The tool's definition, as offered to the model.
    pub definition: Option<ToolDefinition>,
    /// The tool span if there is one, else the LLM span.
    pub at: Idx,
    /// Start time in nanoseconds. Calls are sorted by it, then by index in the message, then by id.
    pub start: u64,
}

/// One run of an agent: an AGENT span or, in a trace without one, the topmost span above the LLM and
/// tool spans.
#[derive(Clone, Debug, Default)]
pub struct Agent {
    /// The agent's span. Metrics of agents are recorded on it.
    pub at: Idx,
    pub name: Option<Text>,
    /// The agent that called this one (index into [`AgentTrace::agents`]).
    pub parent: Option<usize>,
    pub task: Option<Text>,
    /// Whether the task was recorded; no rule reads one that is hidden or cut off.
    pub task_content: Content,
    /// The span whose input is the task.
    pub task_at: Option<Idx>,
    /// The final answer. `None` if content is absent, hidden or cut off, or the run ended before it;
    /// `answer_content` distinguishes these.
    pub answer: Option<Text>,
    /// The span whose output is the answer: an LLM span, a final-answer tool, or `at`.
    pub answer_at: Option<Idx>,
    /// Whether the agent's output was recorded. `Present` without an `answer`: the run ended before its answer.
    pub answer_content: Content,
    /// The agent's LLM spans in order, without wrappers and those of sub-agents.
    pub llms: Vec<Idx>,
    /// The agent's calls in order (indexes into [`AgentTrace::calls`]).
    pub calls: Vec<usize>,
    /// The agent's plans in order, each with the span that wrote it.
    pub plans: Vec<(Idx, RecordedPlan)>,
    /// The tools that the agent was offered, one per name, in order of first appearance.
    pub tools: Vec<ToolDefinition>,
}

/// Whether further spans of a trace are expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The trace is being assembled.
    Open,
    /// `incomplete`: the root is missing, or the trace was closed early.
    Closed { incomplete: bool },
}

/// A recognised trace. `views[i]` belongs to `tree.spans[i]`.
#[derive(Debug, Default)]
pub struct AgentTrace {
    /// The encoded spans as a tree.
    pub tree: Tree,
    /// One view per span.
    pub views: Vec<SpanView>,
    /// The agents, outermost first.
    pub agents: Vec<Agent>,
    /// The agent of each span. An agent's span belongs to that agent.
    pub owner: Vec<Option<usize>>,
    /// Every tool call in order.
    pub calls: Vec<Call>,
    /// The tools that only control the run.
    pub control_tools: Arc<ControlTools>,
    /// The root is missing or the trace was closed early, so missing spans may still be running.
    pub incomplete: bool,
    /// The most specific reason for which a result of the trace cannot be read: it is hidden or cut off, or it is an
    /// image (`Absent`). `Present` if every result can be read.
    pub results: Content,
    /// By span, whether it is a model call whose prompt contains an image, a file or the like, whose content is not
    /// read.
    pub(crate) has_media: OnceLock<Vec<bool>>,
    /// The e-mail addresses of its texts, see [`AgentTrace::addresses`].
    pub(crate) addresses: OnceLock<EmailAddresses>,
}

impl From<Tree> for AgentTrace {
    /// The spans of a trace that is not recognised.
    fn from(tree: Tree) -> AgentTrace {
        AgentTrace { tree, ..AgentTrace::default() }
    }
}

impl AgentTrace {
    /// Whether the content was recorded that the output of a model call can be based on: its prompt, or without a
    /// prompt the results of the trace. `Absent` if it contains an image, a file or the like.
    pub fn evidence(&self, span_index: Idx) -> Content {
        let Some(view) = self.views.get(span_index) else { return Content::Absent };
        match view.input_content {
            Content::Present if view.kind == Kind::Llm && self.has_media(span_index) => Content::Absent,
            Content::Present if view.kind == Kind::Llm => Content::Present,
            partial if partial.is_partial() => partial,
            _ => self.results,
        }
    }

    /// The e-mail addresses in its messages, arguments and results, collected at the first call: only judges need them.
    pub(crate) fn addresses(&self) -> &EmailAddresses {
        self.addresses.get_or_init(|| {
            let part_text = |part: &'_ Part| match part {
                Part::Text(text) | Part::Reasoning(text) => Some(text.clone()),
                Part::Call(call) => call.arguments.clone(),
                Part::Result { content, .. } => Some(content.clone()),
                Part::Media => None,
            };
            let mut known_texts = HashSet::default();
            let mut texts: Vec<Text> = Vec::new();
            for view in &self.views {
                let parts = view.input.iter().chain(&view.output).flat_map(|message| &message.parts);
                let arguments = view.call.iter().filter_map(|call| call.arguments.clone());
                let view_texts = parts.filter_map(part_text).chain(arguments).chain(view.result.clone());
                // Every prompt repeats the texts of earlier prompts; texts are interned, so their addresses identify
                // them.
                texts.extend(view_texts.filter(|text| known_texts.insert(text.as_ptr())));
            }
            EmailAddresses::from_texts(texts.iter().map(|text| &**text))
        })
    }

    fn has_media(&self, span_index: Idx) -> bool {
        let by_span = self.has_media.get_or_init(|| {
            // Every prompt repeats the results of earlier prompts; texts are interned, so their addresses identify
            // them.
            let mut is_media_by_address: HashMap<*const u8, bool> = HashMap::default();
            if self.results == Content::Present {
                let tools =
                    self.views.iter().filter(|view| matches!(view.kind, Kind::Tool | Kind::Retriever));
                is_media_by_address
                    .extend(tools.filter_map(|view| Some((view.result.as_ref()?.as_ptr(), false))));
            }
            let mut is_unread = |part: &Part| match part {
                Part::Media => true,
                Part::Result { content, .. } => {
                    *is_media_by_address.entry(content.as_ptr()).or_insert_with(|| is_media(content))
                }
                _ => false,
            };
            let mut has_unread =
                |view: &SpanView| view.input.iter().flat_map(|m| &m.parts).any(&mut is_unread);
            self.views.iter().map(|view| view.kind == Kind::Llm && has_unread(view)).collect()
        });
        by_span.get(span_index).copied().unwrap_or_default()
    }
}
