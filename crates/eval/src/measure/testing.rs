//! Small traces for tests of metrics, written as a script of messages, calls and results.
//!
//! In: method calls. Out: an [`AgentTrace`] with the messages, calls, agents and times that `recognise` would produce.
//! The input of every model call is the whole history of its agent, as in real frameworks.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use verdict_otlp::request::{Interner, split};
use verdict_otlp::trace::{Envelope, Idx, Kind, Span, SpanId, Status, TraceId, Tree};

use super::table::{MetricSpec, spec};
use super::{Measured, Measurement, defects, schema};
use crate::recognise::{
    Agent, AgentTrace, Call, Content, ControlTools, ErrorSign, ErrorSource, Message, Overrides, Part,
    Recogniser, RecordedPlan, Role, SpanView, Text, ToolDefinition, ToolRequest,
};

/// The folder of integration tests, their data and golden files.
pub(crate) fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests")
}

/// Compares `text` with a file under `tests/golden`. If `UPDATE_GOLDEN` is set, the file is written first.
pub(crate) fn golden(name: &str, text: &str) {
    let path = tests().join(format!("golden/{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == text, "{name} differs from its golden file; UPDATE_GOLDEN=1 accepts it:\n{text}");
}

/// The maximum steps of the check of one value against a schema.
pub const MAX_STEPS: u64 = schema::MAX_STEPS;
/// The maximum problems of one value.
pub const MAX_PROBLEMS: usize = schema::problem::MAX_PROBLEMS;

/// A measurement by the built-in rules.
pub fn measured(span_index: Idx, metric: &'static str, measured: Measured) -> Measurement {
    defects::measured(span_index, metric, measured)
}

/// The row of a metric.
pub(crate) fn row(metric: &str) -> &'static MetricSpec {
    spec(metric).unwrap()
}

/// The traces of a request's body, as `recognise` reads them.
pub(crate) fn traces_of(body: &[u8]) -> Vec<AgentTrace> {
    let recogniser = Recogniser::new(&Overrides::default()).unwrap();
    let groups = split(body, "verdict.", &Interner::default()).unwrap().groups;
    groups.into_iter().map(|g| recogniser.trace(Tree::new(g.trace, g.spans), &[], false)).collect()
}

/// A recorded run of a real framework, from the demo.
pub(crate) fn captured(name: &str) -> Vec<AgentTrace> {
    traces_of(&std::fs::read(tests().join("../demo").join(name).join("001.pb")).unwrap())
}

/// The control tools with this configuration.
pub(crate) fn control_tools(overrides: &Overrides) -> Arc<ControlTools> {
    Recogniser::new(overrides).unwrap().trace(Tree::default(), &[], false).control_tools
}

/// The control tools of the built-in conventions.
pub(crate) fn default_control_tools() -> Arc<ControlTools> {
    static TOOLS: LazyLock<Arc<ControlTools>> = LazyLock::new(|| control_tools(&Overrides::default()));
    TOOLS.clone()
}

/// Builds a trace as a script. Methods add the next message, call or result of the running agent.
pub struct Script {
    spans: Vec<Span>,
    views: Vec<SpanView>,
    agents: Vec<Agent>,
    owner: Vec<Option<usize>>,
    calls: Vec<Call>,
    /// The running agents, innermost last, each with its conversation so far.
    running: Vec<(usize, Vec<Message>)>,
    /// Requested calls that have not returned, with the agent that requested them.
    pending: Vec<(usize, Idx, ToolRequest)>,
    incomplete: bool,
}

fn message(role: Role, parts: Vec<Part>) -> Message {
    Message { role, parts: parts.into() }
}

impl Script {
    /// A script with one running agent, which has a task.
    pub fn new(task: &str) -> Script {
        let mut script = Script {
            spans: Vec::new(),
            views: Vec::new(),
            agents: Vec::new(),
            owner: Vec::new(),
            calls: Vec::new(),
            running: Vec::new(),
            pending: Vec::new(),
            incomplete: false,
        };
        script.begin("agent", task, None);
        script
    }

    /// Adds a span of the agent `owner`.
    fn span(&mut self, kind: Kind, parent: Option<Idx>, owner: usize) -> Idx {
        let span_index = self.spans.len();
        let id = |i: usize| SpanId(((i + 1) as u64).to_be_bytes());
        let start = 1_000_000 * (span_index as u64 + 1);
        self.spans.push(Span {
            id: id(span_index),
            parent: parent.map_or(SpanId::default(), id),
            start,
            end: start + 500_000,
            status: Status::Unset,
            remote_parent: false,
            has_verdict: false,
            forwarded: false,
            skew: 0,
            bytes: Default::default(),
            envelope: Arc::new(Envelope::default()),
        });
        self.views.push(SpanView {
            kind,
            input_content: Content::Present,
            output_content: Content::Present,
            ..SpanView::default()
        });
        self.owner.push(Some(owner));
        span_index
    }

    /// Starts an agent.
    fn begin(&mut self, name: &str, task: &str, parent: Option<Idx>) {
        let agent = self.agents.len();
        let parent_agent = self.running.last().map(|(a, _)| *a);
        let span_index = self.span(Kind::Agent, parent, agent);
        let task = Text::from(task);
        self.agents.push(Agent {
            at: span_index,
            name: Some(name.into()),
            parent: parent_agent,
            task: Some(task.clone()),
            task_at: Some(span_index),
            answer_content: Content::Present,
            ..Agent::default()
        });
        self.running.push((agent, vec![message(Role::User, vec![Part::Text(task)])]));
    }

    /// The running agent and its conversation.
    fn running_agent(&mut self) -> &mut (usize, Vec<Message>) {
        self.running.last_mut().expect("an agent is running")
    }

    /// Adds the running agent's system prompt.
    pub fn system(mut self, text: &str) -> Script {
        let prompt = message(Role::System, vec![Part::Text(text.into())]);
        self.running_agent().1.insert(0, prompt);
        self
    }

    /// Adds a further message of the user.
    pub fn user(mut self, text: &str) -> Script {
        let prompt = message(Role::User, vec![Part::Text(text.into())]);
        self.running_agent().1.push(prompt);
        self
    }

    /// Adds tools that are offered to the running agent.
    pub fn tools(mut self, names: &[&str]) -> Script {
        let agent = self.running_agent().0;
        for name in names {
            self.agents[agent].tools.push(ToolDefinition {
                name: (*name).into(),
                description: None,
                parameters: None,
            });
        }
        self
    }

    /// Adds a plan that the running agent's last model call wrote, or its own span without a model call.
    pub fn plan(mut self, steps: &[&str]) -> Script {
        let agent = self.running_agent().0;
        let span_index = self.agents[agent].llms.last().copied().unwrap_or(self.agents[agent].at);
        let replan = !self.agents[agent].plans.is_empty();
        let steps: Vec<Text> = steps.iter().map(|s| Text::from(*s)).collect();
        let text = steps.iter().map(|s| &**s).collect::<Vec<_>>().join("\n");
        let plan = RecordedPlan { text: text.as_str().into(), replan, steps };
        self.agents[agent].plans.push((span_index, plan));
        self
    }

    /// Adds a model call of the running agent.
    fn model_call(&mut self, parts: Vec<Part>) -> Idx {
        let (agent, history) = self.running_agent().clone();
        let parent = self.agents[agent].at;
        let span_index = self.span(Kind::Llm, Some(parent), agent);
        let output = message(Role::Assistant, parts);
        self.views[span_index].tools = self.agents[agent].tools.clone();
        self.views[span_index].input = history;
        self.views[span_index].output = vec![output.clone()];
        self.running_agent().1.push(output);
        self.agents[agent].llms.push(span_index);
        span_index
    }

    /// Adds a model call that outputs a text.
    pub fn says(mut self, text: &str) -> Script {
        self.model_call(vec![Part::Text(text.into())]);
        self
    }

    /// Adds a model call that outputs `text` (unless empty) and requests tool calls, with arguments as JSON.
    pub fn calls(mut self, text: &str, requests: &[(&str, &str)]) -> Script {
        let agent = self.running_agent().0;
        let mut parts = Vec::new();
        if !text.is_empty() {
            parts.push(Part::Text(text.into()));
        }
        let first_id = self.calls.len() + self.pending.len();
        let requests: Vec<ToolRequest> = requests
            .iter()
            .enumerate()
            .map(|(i, (name, arguments))| ToolRequest {
                id: Some(format!("call_{}", first_id + i).as_str().into()),
                name: (*name).into(),
                arguments: Some((*arguments).into()),
            })
            .collect();
        parts.extend(requests.iter().cloned().map(Part::Call));
        let llm = self.model_call(parts);
        self.pending.extend(requests.into_iter().map(|r| (agent, llm, r)));
        self
    }

    /// Removes the earliest pending call of the running agent.
    fn next_pending(&mut self) -> (usize, Idx, ToolRequest) {
        let agent = self.running_agent().0;
        let index = self.pending.iter().position(|(a, ..)| *a == agent).expect("a pending call");
        self.pending.remove(index)
    }

    /// The position of a request among those of its model call.
    fn position_of_request(&self, llm: Idx, request: &ToolRequest) -> Option<usize> {
        self.views[llm].requests().position(|candidate| candidate.id == request.id)
    }

    /// Adds the span of a requested call and the call; returns the indices of both.
    fn tool_span(&mut self, agent: usize, llm: Idx, request: &ToolRequest) -> (Idx, usize) {
        let parent = self.agents[agent].at;
        let span_index = self.span(Kind::Tool, Some(parent), agent);
        self.views[span_index].call = Some(request.clone());
        let parsed = request.arguments.as_deref().and_then(|a| serde_json::from_str(a).ok()).map(Arc::new);
        self.agents[agent].calls.push(self.calls.len());
        self.calls.push(Call {
            llm: Some(llm),
            tool: Some(span_index),
            agent: Some(agent),
            name: request.name.clone(),
            id: request.id.clone(),
            request_index: self.position_of_request(llm, request),
            arguments: request.arguments.clone(),
            arguments_content: Content::Present,
            parsed,
            too_large: false,
            result: None,
            result_content: Content::Absent,
            failed: false,
            definition: None,
            at: span_index,
            start: self.spans[span_index].start,
        });
        (span_index, self.calls.len() - 1)
    }

    /// Adds the result of a call, also to the conversation of the running agent.
    fn finish(&mut self, span_index: Idx, call: usize, request: &ToolRequest, result: &str, failed: bool) {
        let content = Text::from(result);
        self.views[span_index].result = Some(content.clone());
        self.calls[call].result = Some(content.clone());
        self.calls[call].failed = failed;
        if failed {
            self.spans[span_index].status = Status::Error;
            self.views[span_index].errors.push(ErrorSign {
                source: ErrorSource::Exception,
                error_type: None,
                message: Some(content.clone()),
            });
        }
        let part = Part::Result { id: request.id.clone(), name: Some(request.name.clone()), content, failed };
        self.running_agent().1.push(message(Role::Tool, vec![part]));
    }

    /// Adds that the earliest pending call returns `result`.
    pub fn returns(mut self, result: &str) -> Script {
        let (agent, llm, request) = self.next_pending();
        let (span_index, call) = self.tool_span(agent, llm, &request);
        self.finish(span_index, call, &request, result, false);
        self
    }

    /// Adds that the earliest pending call raises an exception; its span has the status ERROR.
    pub fn raises(mut self, text: &str) -> Script {
        let (agent, llm, request) = self.next_pending();
        let (span_index, call) = self.tool_span(agent, llm, &request);
        self.finish(span_index, call, &request, text, true);
        self
    }

    /// Adds a retriever that returns passages.
    pub fn retrieves(mut self, passages: &str) -> Script {
        let agent = self.running_agent().0;
        let parent = self.agents[agent].at;
        let span_index = self.span(Kind::Retriever, Some(parent), agent);
        self.views[span_index].result = Some(passages.into());
        self
    }

    /// Adds that the earliest pending call starts an agent, which runs until [`Script::leave`].
    pub fn enter(mut self, task: &str) -> Script {
        let (agent, llm, request) = self.next_pending();
        let (span_index, _) = self.tool_span(agent, llm, &request);
        self.pending.insert(0, (agent, llm, request.clone()));
        self.begin(&request.name, task, Some(span_index));
        self
    }

    /// Adds a retriever that returns documents, which are also in the prompt of the next model call.
    pub fn retrieves_for_prompt(mut self, documents: &str) -> Script {
        let agent = self.running_agent().0;
        let parent = self.agents[agent].at;
        let span_index = self.span(Kind::Retriever, Some(parent), agent);
        self.views[span_index].result = Some(documents.into());
        self.user(documents)
    }

    /// Ends the running agent; its answer is the result of the call that started it.
    pub fn leave(mut self) -> Script {
        let (agent, _) = self.running.pop().expect("an agent is running");
        let answer = self.agents[agent].answer.clone().unwrap_or_else(|| "".into());
        let (_, _, request) = self.next_pending();
        let call = self.calls.iter().rposition(|c| c.id == request.id).expect("the call that started it");
        let span_index = self.calls[call].at;
        self.spans[span_index].end = self.spans.last().map_or(0, |s| s.end);
        self.finish(span_index, call, &request, &answer, false);
        self
    }

    /// Adds a model call with the running agent's final answer.
    pub fn answers(mut self, text: &str) -> Script {
        let span_index = self.model_call(vec![Part::Text(text.into())]);
        let agent = self.running_agent().0;
        self.agents[agent].answer = Some(text.into());
        self.agents[agent].answer_at = Some(span_index);
        self
    }

    /// Marks the trace as closed before its root arrived.
    pub fn incomplete(mut self) -> Script {
        self.incomplete = true;
        self
    }

    pub fn build(self) -> AgentTrace {
        let tree = Tree::new(TraceId([1; 16]), self.spans);
        assert_eq!(tree.len(), self.views.len());
        AgentTrace {
            tree,
            views: self.views,
            agents: self.agents,
            owner: self.owner,
            calls: self.calls,
            control_tools: default_control_tools(),
            incomplete: self.incomplete,
            results: Content::Present,
            has_media: std::sync::OnceLock::new(),
            addresses: std::sync::OnceLock::new(),
        }
    }

    /// The trace as an instrumentation without content records it: names, ids, times, statuses.
    pub fn build_without_content(self) -> AgentTrace {
        let mut trace = self.build();
        for view in &mut trace.views {
            view.input.clear();
            view.output.clear();
            view.result = None;
            view.input_content = Content::Absent;
            view.output_content = Content::Absent;
            if let Some(call) = &mut view.call {
                call.arguments = None;
            }
        }
        for call in &mut trace.calls {
            call.arguments = None;
            call.parsed = None;
            call.result = None;
        }
        for agent in &mut trace.agents {
            agent.task = None;
            agent.answer = None;
            agent.answer_at = None;
            agent.answer_content = Content::Absent;
            agent.plans.clear();
        }
        trace
    }
}
