//! [`AgentTrace`]: a whole trace in the one vocabulary, with its agents and their calls.

use std::sync::Arc;

use verdict_otlp::trace::{Idx, Tree};

use super::control_tools::ControlTools;
use super::message::{Text, ToolDefinition};
use super::span_view::{Content, Plan, SpanView};

/// A tool call of the run: the request, its span, or both.
#[derive(Clone, Debug)]
pub struct Call {
    /// The LLM span that wrote it, where known.
    pub llm: Option<Idx>,
    /// The span that carried it out; `None` for a virtual step (client-side or server-side tools).
    pub tool: Option<Idx>,
    /// Index into [`AgentTrace::agents`] of the agent that made it.
    pub agent: Option<usize>,
    /// The tool's name.
    pub name: Text,
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
#[derive(Clone, Debug, Default)]
pub struct Agent {
    /// Its span. Agent-level metrics are written here.
    pub at: Idx,
    /// Its name, where known.
    pub name: Option<Text>,
    /// The agent that called it (index into [`AgentTrace::agents`]).
    pub parent: Option<usize>,
    /// What it was asked to do.
    pub task: Option<Text>,
    /// The span whose input the task is.
    pub task_at: Option<Idx>,
    /// What it finally answered. `None` when content is absent or the run did not get there;
    /// `answer_content` tells which.
    pub answer: Option<Text>,
    /// The span whose output the answer is (an LLM span, a final-answer tool, or `at` itself).
    pub answer_at: Option<Idx>,
    /// Whether an answer could have been seen.
    pub answer_content: Content,
    /// Its own LLM spans (wrappers and sub-agents' left out), in order.
    pub llms: Vec<Idx>,
    /// Its own calls (indexes into [`AgentTrace::calls`]), in order.
    pub calls: Vec<usize>,
    /// Its plans in order, with the span that wrote each.
    pub plans: Vec<(Idx, Plan)>,
    /// Tools it was shown, by name, in order of first appearance.
    pub tools: Vec<ToolDefinition>,
}

/// A whole trace in the one vocabulary. Pure data; `views[i]` belongs to `tree.spans[i]`.
#[derive(Debug, Default)]
pub struct AgentTrace {
    /// The spans and their links.
    pub tree: Tree,
    /// One view a span.
    pub views: Vec<SpanView>,
    /// Agents, outermost first.
    pub agents: Vec<Agent>,
    /// For each span the agent it belongs to (an agent span belongs to itself).
    pub owner: Vec<Option<usize>>,
    /// Every tool call, in order.
    pub calls: Vec<Call>,
    /// The tools that only control the run, as configured.
    pub control_tools: Arc<ControlTools>,
    /// The root has not come, or the trace was closed early: what is missing may still be running.
    pub incomplete: bool,
}
