//! TOOL spans: which tool, with what, and what came back; results of RETRIEVER and MEMORY spans.

use std::borrow::Cow;

use super::event;
use super::interpret::{Interpreter, Seen};
use super::message::{Text, ToolDefinition, ToolRequest};
use super::node::Node;
use super::overrides::{EventRule, Field, Piece};
use super::read::Found;
use super::span_view::{Content, SpanView};
use super::{errors, tool};
use verdict_otlp::Value;
use verdict_otlp::trace::Kind;

impl Interpreter<'_> {
    /// A TOOL span: which tool, with what, and what came back.
    pub(super) fn tool(&mut self, found: &Found<'_>, view: &mut SpanView) {
        let name = match self.text(found, Field::ToolName) {
            Some(name) => name,
            None => self.texts.intern(tool_of_name(found.name)),
        };
        let schema = match self.value(found, Field::ToolSchema) {
            Seen::Read((_, value)) => tool::parameters(&Node::decoded(value)),
            _ => None,
        };
        let description = self.text(found, Field::ToolDescription);
        let (arguments, seen) = self.arguments(found, &tool::parameter_names(schema.as_deref()));
        view.input_content = seen;
        if schema.is_some() || description.is_some() {
            view.tools = vec![ToolDefinition { name: name.clone(), description, parameters: schema }];
        }
        let id = self.text(found, Field::CallId);
        view.call = Some(ToolRequest { id, name, arguments });
        self.result(found, view);
        if let (None, Some(call)) = (view.call.as_ref().and_then(|c| c.id.clone()), view.call.as_mut()) {
            call.id = found.events.iter().find_map(event::id).and_then(|id| self.texts.some(id));
        }
    }

    fn arguments(&mut self, found: &Found<'_>, names: &[&str]) -> (Option<Text>, Content) {
        let mut redacted = false;
        for field in [Field::Arguments, Field::Input] {
            match self.value(found, field) {
                Seen::Read((_, Value::Str(s))) => {
                    return (Some(self.texts.intern(&tool::written(s, names))), Content::Present);
                }
                Seen::Read((_, value)) => {
                    let node = Node::of(value);
                    return (Some(self.texts.intern(&tool::arguments(&node, names))), Content::Present);
                }
                Seen::Redacted => redacted = true,
                Seen::Absent => {}
            }
        }
        let named: Vec<_> = found.open.iter().filter(|(f, ..)| *f == Field::Arguments).collect();
        if !named.is_empty() {
            let map = Node::Map(named.iter().map(|(_, _, k, v)| (Cow::Borrowed(*k), Node::of(*v))).collect());
            return (Some(self.texts.intern(&map.to_json())), Content::Present);
        }
        // Strands: the call is a tool message on the tool's own span.
        for event in found.events.iter().filter(|e| e.rule == EventRule::Tool) {
            if let Some(content) = event::field(event, &["content", "arguments"]) {
                let node = Node::decoded(content);
                return (Some(self.texts.intern(&tool::arguments(&node, names))), Content::Present);
            }
        }
        (None, if redacted { Content::Redacted } else { Content::Absent })
    }

    pub(super) fn result(&mut self, found: &Found<'_>, view: &mut SpanView) {
        let mut redacted = false;
        for field in [Field::Result, Field::Output] {
            let value = match self.value(found, field) {
                Seen::Read((_, value)) => value,
                Seen::Redacted => {
                    redacted = true;
                    continue;
                }
                Seen::Absent => continue,
            };
            return self.said(value, view);
        }
        let documents: Vec<&str> = found
            .leaves(Field::Result)
            .iter()
            .filter(|f| f.leaf.piece == Piece::Text)
            .filter_map(|f| f.value.as_str())
            .collect();
        if !documents.is_empty() {
            view.result = Some(self.texts.intern(&documents.join("\n\n")));
            view.output_content = Content::Present;
            return;
        }
        for event in found.events.iter().filter(|e| e.rule == EventRule::Choice) {
            if let Some(message) = event::field(event, &["message", "content", "tool.result"]) {
                return self.said(message, view);
            }
        }
        view.output_content = if redacted { Content::Redacted } else { Content::Absent };
    }

    fn said(&mut self, value: Value<'_>, view: &mut SpanView) {
        let written = value.as_str().filter(|text| text.starts_with('{'));
        let (text, failed) = match written.filter(|text| tool::is_bare(text)) {
            Some(text) => (Cow::Borrowed(text), false),
            None => {
                let (text, failed) = tool::result(&Node::decoded(value), written);
                (Cow::Owned(text), failed)
            }
        };
        view.result = Some(self.texts.intern(&text));
        view.output_content = Content::Present;
        if failed && view.kind == Kind::Tool {
            errors::marked(&mut self.texts, view);
        }
    }
}

/// The tool that a span's name names, where no attribute does.
fn tool_of_name(name: &str) -> &str {
    let begins =
        ["execute_tool ", "tools/call ", "running tool: ", "running tool ", "running output function: "];
    let name = begins.iter().find_map(|b| name.strip_prefix(b)).unwrap_or(name);
    name.strip_suffix(".tool").unwrap_or(name)
}
