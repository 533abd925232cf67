//! Reads tool, arguments and result of TOOL spans, and the results of RETRIEVER and MEMORY spans.

use std::borrow::Cow;

use verdict_otlp::Value;
use verdict_otlp::trace::Kind;

use super::interpret::{FieldLookup, Interpreter};
use super::message::{Text, ToolDefinition, ToolRequest};
use super::node::ContentNode;
use super::overrides::{EventRule, Field, LeafKind};
use super::scan::SpanScan;
use super::span_view::{Content, SpanView};
use super::{errors, event, tool};

impl Interpreter<'_> {
    /// Fills in the call and the result of a TOOL span.
    pub(super) fn fill_tool(&mut self, scan: &SpanScan<'_>, view: &mut SpanView) {
        let name = match self.text(scan, Field::ToolName) {
            Some(name) => name,
            None => self.texts.intern(tool_in_span_name(scan.name)),
        };
        let schema = match self.value(scan, Field::ToolSchema) {
            FieldLookup::Found((_, value)) => tool::parameters(&ContentNode::decoded(value)),
            _ => None,
        };
        let description = self.text(scan, Field::ToolDescription);
        let (arguments, content) = self.arguments(scan, &tool::parameter_names(schema.as_deref()));
        view.input_content = content;
        if schema.is_some() || description.is_some() {
            view.tools = vec![ToolDefinition { name: name.clone(), description, parameters: schema }];
        }
        let id = self
            .text(scan, Field::CallId)
            .or_else(|| self.texts.option(scan.events.iter().find_map(event::call_id)));
        view.call = Some(ToolRequest { id, name, arguments });
        self.fill_result(scan, view);
    }

    /// The arguments, and whether they were recorded. `names` are the tool's parameters in order.
    fn arguments(&mut self, scan: &SpanScan<'_>, names: &[&str]) -> (Option<Text>, Content) {
        let mut redacted = false;
        let mut cut = None;
        for field in [Field::Arguments, Field::Input] {
            match self.value(scan, field) {
                FieldLookup::Found((_, Value::Str(s))) => {
                    return self.intern_arguments(&tool::arguments_from_text(s, names));
                }
                FieldLookup::Found((_, value)) => {
                    return self.unwrapped_arguments(&ContentNode::from_value(value), names);
                }
                FieldLookup::Cut((_, value)) => cut = cut.or(value.as_str()),
                FieldLookup::Redacted => redacted = true,
                FieldLookup::Absent => {}
            }
        }
        if let Some(text) = cut {
            return (Some(self.texts.intern(text)), Content::Truncated);
        }
        let map_entries: Vec<_> = scan.map_entries.iter().filter(|(f, ..)| *f == Field::Arguments).collect();
        if !map_entries.is_empty() {
            let entries =
                map_entries.iter().map(|(_, _, k, v)| (Cow::Borrowed(*k), ContentNode::from_value(*v)));
            return self.intern_arguments(&ContentNode::Map(entries.collect()).to_json());
        }
        // Strands records the call as a tool message on the tool's own span.
        for event in scan.events.iter().filter(|e| e.rule == EventRule::Tool) {
            if let Some(content) = event::field(event, &["content", "arguments"]) {
                if let Some(text) = content.as_str().filter(|text| self.limit.is_some() && self.is_cut(text))
                {
                    return (Some(self.texts.intern(text)), Content::Truncated);
                }
                return self.unwrapped_arguments(&ContentNode::decoded(content), names);
            }
        }
        (None, if redacted { Content::Redacted } else { Content::Absent })
    }

    fn unwrapped_arguments(&mut self, node: &ContentNode<'_>, names: &[&str]) -> (Option<Text>, Content) {
        self.intern_arguments(&tool::arguments(node, names))
    }

    /// Interns arguments that are not cut off; they count as redacted if a value is hidden.
    fn intern_arguments(&mut self, arguments: &str) -> (Option<Text>, Content) {
        let hidden = self.table.has_hidden_value(arguments);
        let content = if hidden { Content::Redacted } else { Content::Present };
        (Some(self.texts.intern(arguments)), content)
    }

    /// Fills in the result of a span.
    pub(super) fn fill_result(&mut self, scan: &SpanScan<'_>, view: &mut SpanView) {
        let mut redacted = false;
        let mut cut = None;
        for field in [Field::Result, Field::Output] {
            match self.value(scan, field) {
                FieldLookup::Found((_, value)) => return self.set_result(value, view),
                FieldLookup::Cut((_, value)) => cut = cut.or(Some(value)),
                FieldLookup::Redacted => redacted = true,
                FieldLookup::Absent => {}
            }
        }
        if let Some(value) = cut {
            self.set_result(value, view);
            return view.output_content = Content::Truncated;
        }
        let texts = scan.leaves(Field::Result).iter().filter(|f| f.leaf.kind == LeafKind::Text);
        let documents: Vec<&str> = texts.filter_map(|f| f.value.as_str()).collect();
        if !documents.is_empty() {
            view.result = Some(self.texts.intern(&documents.join("\n\n")));
            let cut = documents.iter().any(|text| self.is_cut(text));
            view.output_content = if cut { Content::Truncated } else { Content::Present };
            return;
        }
        for event in scan.events.iter().filter(|e| e.rule == EventRule::Choice) {
            if let Some(message) = event::field(event, &["message", "content", "tool.result"]) {
                self.set_result(message, view);
                if self.limit.is_some() && message.as_str().is_some_and(|text| self.is_cut(text)) {
                    view.output_content = Content::Truncated;
                }
                return;
            }
        }
        view.output_content = if redacted { Content::Redacted } else { Content::Absent };
    }

    fn set_result(&mut self, value: Value<'_>, view: &mut SpanView) {
        let source = value.as_str().filter(|text| text.starts_with('{'));
        let mut may_hide = false;
        let on_string = |string| may_hide |= self.table.may_hide(string);
        let (text, failed) = match source.filter(|text| tool::is_unwrapped(text, on_string)) {
            Some(text) if !may_hide && !self.table.is_hidden(text) => {
                view.output_content = Content::Present;
                return view.result = Some(self.texts.intern(text));
            }
            Some(text) => (self.texts.intern(text), false),
            None => {
                let (text, failed) = tool::result(&ContentNode::decoded(value), source);
                (self.texts.intern(&text), failed)
            }
        };
        let hidden = self.table.is_hidden(&text) || self.table.has_hidden_value(&text);
        view.output_content = if hidden { Content::Redacted } else { Content::Present };
        view.result = Some(text);
        if failed && view.kind == Kind::Tool {
            errors::add_error_flag(&mut self.texts, view);
        }
    }
}

/// The name of the tool in the name of a span, for spans without an attribute for it.
fn tool_in_span_name(name: &str) -> &str {
    let begins =
        ["execute_tool ", "tools/call ", "running tool: ", "running tool ", "running output function: "];
    let name = begins.iter().find_map(|b| name.strip_prefix(b)).unwrap_or(name);
    name.strip_suffix(".tool").unwrap_or(name)
}
