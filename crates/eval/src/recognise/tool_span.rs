//! TOOL spans: which tool, with what, and what came back; results of RETRIEVER and MEMORY spans.

use std::borrow::Cow;

use verdict_otlp::Value;
use verdict_otlp::trace::Kind;

use super::interpret::{Interpreter, Lookup};
use super::message::{Text, ToolDefinition, ToolRequest};
use super::node::Node;
use super::overrides::{EventRule, Field, LeafKind};
use super::scan::SpanScan;
use super::span_view::{Content, SpanView};
use super::{errors, event, tool};

impl Interpreter<'_> {
    /// A TOOL span: which tool, with what, and what came back.
    pub(super) fn tool(&mut self, scan: &SpanScan<'_>, view: &mut SpanView) {
        let name = match self.text(scan, Field::ToolName) {
            Some(name) => name,
            None => self.texts.intern(tool_of_name(scan.name)),
        };
        let schema = match self.value(scan, Field::ToolSchema) {
            Lookup::Found((_, value)) => tool::parameters(&Node::decoded(value)),
            _ => None,
        };
        let description = self.text(scan, Field::ToolDescription);
        let (arguments, seen) = self.arguments(scan, &tool::parameter_names(schema.as_deref()));
        view.input_content = seen;
        if schema.is_some() || description.is_some() {
            view.tools = vec![ToolDefinition { name: name.clone(), description, parameters: schema }];
        }
        let id = self.text(scan, Field::CallId);
        view.call = Some(ToolRequest { id, name, arguments });
        self.result(scan, view);
        if let (None, Some(call)) = (view.call.as_ref().and_then(|c| c.id.clone()), view.call.as_mut()) {
            call.id = scan.events.iter().find_map(event::id).and_then(|id| self.texts.some(id));
        }
    }

    fn arguments(&mut self, scan: &SpanScan<'_>, names: &[&str]) -> (Option<Text>, Content) {
        let mut redacted = false;
        for field in [Field::Arguments, Field::Input] {
            match self.value(scan, field) {
                Lookup::Found((_, Value::Str(s))) => {
                    return (Some(self.texts.intern(&tool::arguments_from_text(s, names))), Content::Present);
                }
                Lookup::Found((_, value)) => {
                    let node = Node::of(value);
                    return (Some(self.texts.intern(&tool::arguments(&node, names))), Content::Present);
                }
                Lookup::Redacted => redacted = true,
                Lookup::Absent => {}
            }
        }
        let named: Vec<_> = scan.open.iter().filter(|(f, ..)| *f == Field::Arguments).collect();
        if !named.is_empty() {
            let map = Node::Map(named.iter().map(|(_, _, k, v)| (Cow::Borrowed(*k), Node::of(*v))).collect());
            return (Some(self.texts.intern(&map.to_json())), Content::Present);
        }
        // Strands: the call is a tool message on the tool's own span.
        for event in scan.events.iter().filter(|e| e.rule == EventRule::Tool) {
            if let Some(content) = event::field(event, &["content", "arguments"]) {
                let node = Node::decoded(content);
                return (Some(self.texts.intern(&tool::arguments(&node, names))), Content::Present);
            }
        }
        (None, if redacted { Content::Redacted } else { Content::Absent })
    }

    pub(super) fn result(&mut self, scan: &SpanScan<'_>, view: &mut SpanView) {
        let mut redacted = false;
        for field in [Field::Result, Field::Output] {
            let value = match self.value(scan, field) {
                Lookup::Found((_, value)) => value,
                Lookup::Redacted => {
                    redacted = true;
                    continue;
                }
                Lookup::Absent => continue,
            };
            return self.set_result(value, view);
        }
        let documents: Vec<&str> = scan
            .leaves(Field::Result)
            .iter()
            .filter(|f| f.leaf.kind == LeafKind::Text)
            .filter_map(|f| f.value.as_str())
            .collect();
        if !documents.is_empty() {
            view.result = Some(self.texts.intern(&documents.join("\n\n")));
            view.output_content = Content::Present;
            return;
        }
        for event in scan.events.iter().filter(|e| e.rule == EventRule::Choice) {
            if let Some(message) = event::field(event, &["message", "content", "tool.result"]) {
                return self.set_result(message, view);
            }
        }
        view.output_content = if redacted { Content::Redacted } else { Content::Absent };
    }

    fn set_result(&mut self, value: Value<'_>, view: &mut SpanView) {
        let written = value.as_str().filter(|text| text.starts_with('{'));
        let (text, failed) = match written.filter(|text| tool::is_unwrapped(text)) {
            Some(text) => (Cow::Borrowed(text), false),
            None => {
                let (text, failed) = tool::result(&Node::decoded(value), written);
                (Cow::Owned(text), failed)
            }
        };
        view.result = Some(self.texts.intern(&text));
        view.output_content = Content::Present;
        if failed && view.kind == Kind::Tool {
            errors::add_error_flag(&mut self.texts, view);
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
