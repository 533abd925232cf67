//! Traces for the tests of metrics, built span by span.

use std::sync::Arc;

use bytes::Bytes;
use verdict_otlp::trace::{Idx, Kind, Span, SpanId, Status, TraceId, Tree};

use super::{Context, Measurement, Memo, MetricProgress, Settings};
use crate::recognise::{
    AgentTrace, Call, Content, ErrorSign, ErrorSource, Message, Part, Role, SpanView, Text, ToolRequest,
};

/// Builds an [`AgentTrace`] without agents; span `i` has the id `i + 1` and starts at `i`.
#[derive(Default)]
pub(crate) struct SampleTrace {
    spans: Vec<Span>,
    views: Vec<SpanView>,
    calls: Vec<Call>,
}

pub(crate) fn text(s: &str) -> Text {
    Text::from(s)
}

pub(crate) fn text_message(role: Role, content: &str) -> Message {
    Message { role, parts: vec![Part::Text(text(content))].into() }
}

pub(crate) fn sign(source: ErrorSource, error_type: Option<&str>, message: Option<&str>) -> ErrorSign {
    ErrorSign { source, error_type: error_type.map(text), message: message.map(text) }
}

/// A model call with the messages of its prompt and an answer as text.
pub(crate) fn llm(input: Vec<Message>, answer: &str) -> SpanView {
    let parts = if answer.is_empty() { Vec::new() } else { vec![Part::Text(text(answer))] };
    SpanView {
        kind: Kind::Llm,
        input,
        output: vec![Message { role: Role::Assistant, parts: parts.into() }],
        input_content: Content::Present,
        output_content: Content::Present,
        ..SpanView::default()
    }
}

/// The model call, with a request for a tool call added to its output.
pub(crate) fn with_tool_request(mut view: SpanView, name: &str, arguments: &str) -> SpanView {
    let call = ToolRequest { id: Some(text("c1")), name: text(name), arguments: Some(text(arguments)) };
    if let Some(message) = view.output.last_mut() {
        message.parts.push(Part::Call(call));
    }
    view
}

/// A tool call.
pub(crate) fn tool(name: &str, arguments: &str, result: &str) -> SpanView {
    SpanView {
        kind: Kind::Tool,
        name: Some(text(name)),
        call: Some(ToolRequest { id: None, name: text(name), arguments: Some(text(arguments)) }),
        result: Some(text(result)),
        input_content: Content::Present,
        output_content: Content::Present,
        ..SpanView::default()
    }
}

impl SampleTrace {
    pub(crate) fn new() -> SampleTrace {
        SampleTrace::default()
    }

    /// Adds a span under `parent`, and returns its index.
    pub(crate) fn span(&mut self, parent: Option<Idx>, view: SpanView) -> Idx {
        let i = self.spans.len();
        let id = |i: usize| SpanId((i as u64 + 1).to_be_bytes());
        self.spans.push(Span {
            id: id(i),
            parent: parent.map(id).unwrap_or_default(),
            start: i as u64,
            end: i as u64 + 1,
            status: Status::Unset,
            remote_parent: false,
            has_verdict: false,
            forwarded: false,
            skew: 0,
            bytes: Bytes::new(),
            envelope: Arc::default(),
        });
        self.views.push(view);
        i
    }

    /// Adds a call.
    pub(crate) fn call(
        &mut self,
        llm: Option<Idx>,
        tool: Option<Idx>,
        name: &str,
        arguments: &str,
        result: Option<&str>,
    ) -> &mut Call {
        self.calls.push(Call {
            llm,
            tool,
            agent: None,
            name: text(name),
            id: None,
            request_index: None,
            arguments: Some(text(arguments)),
            arguments_content: Content::Present,
            parsed: serde_json::from_str(arguments).ok().map(Arc::new),
            too_large: false,
            result: result.map(text),
            result_content: Content::Present,
            failed: false,
            definition: None,
            at: tool.or(llm).unwrap_or(0),
            start: self.calls.len() as u64,
        });
        let index = self.calls.len() - 1;
        &mut self.calls[index]
    }

    pub(crate) fn trace(self) -> AgentTrace {
        let owner = vec![None; self.views.len()];
        AgentTrace {
            tree: Tree::new(TraceId([1; 16]), self.spans),
            views: self.views,
            owner,
            calls: self.calls,
            control_tools: super::testing::default_control_tools(),
            results: Content::Present,
            ..AgentTrace::default()
        }
    }
}

/// The measurements of one span by the rule of a metric.
pub(crate) fn measure(metric: &str, trace: &AgentTrace, span_index: Idx) -> Vec<Measurement> {
    let (settings, memo) = (Settings::default(), Memo::new());
    let (row, _, rule) = super::catalog::rules().find(|(row, ..)| row.name == metric).unwrap();
    let context =
        Context { row, trace, at: span_index, settings: &settings, memo: &memo, rule_measurements: &[] };
    match rule.step(&context, &[]) {
        MetricProgress::Done(measurements) => measurements,
        MetricProgress::Ask(_) => panic!("a rule without judges has a question"),
    }
}
