//! The conversation of a span: from one attribute, a flattened list, span events or log records
//! (conventions, sections 2 and 5.4).

use std::borrow::Cow;

use verdict_otlp::Value;
use verdict_otlp::trace::{Kind, Status};

use super::interpret::{Interpreter, Lookup};
use super::message::{Message, Part, Role, ToolRequest};
use super::message_reader::{MessageReader, role_word};
use super::node::Node;
use super::overrides::{EventRule, Field, LeafKind};
use super::scan::{FlatAttribute, SpanScan};
use super::span_view::{Content, SpanView};
use super::table::Order;
use super::{event, message_cache};

impl Interpreter<'_> {
    /// The conversation of an LLM, AGENT or other span.
    pub(super) fn messages(&mut self, scan: &SpanScan<'_>, view: &mut SpanView) {
        self.withheld = false;
        let (mut input, mut seen_in) = self.field_messages(scan, Field::Input, Role::User, view);
        let (mut output, mut seen_out) = self.field_messages(scan, Field::Output, Role::Assistant, view);
        self.separate_output_parts(scan, view, &mut output, &mut seen_out);
        self.packed_conversation(scan, view, &mut input, &mut output);
        self.event_messages(scan, view, &mut input, &mut output);
        if let Lookup::Found((_, value)) = self.value(scan, Field::System) {
            let parts = self.instructions(value);
            let already = input.iter().any(|m| m.role == Role::System && m.parts == parts);
            if !parts.is_empty() && !already {
                input.insert(0, Message { role: Role::System, parts });
            }
        }
        let has_content =
            if self.withheld { has_content_beyond_instructions } else { |m: &[Message]| !m.is_empty() };
        if has_content(&input) {
            seen_in = Content::Present;
        } else if !input.is_empty() {
            seen_in = Content::Redacted;
        }
        // A failed call often leaves an empty message behind: that is nothing said.
        let said_nothing = output.iter().all(|m| m.parts.is_empty());
        if said_nothing && scan.status == Status::Error {
            output.clear();
            seen_out = Content::Absent;
        } else if has_content(&output) {
            seen_out = Content::Present;
        } else if !output.is_empty() {
            seen_out = Content::Redacted;
        }
        (view.input, view.output) = (input, output);
        (view.input_content, view.output_content) = (seen_in, seen_out);
    }

    /// Instructions beside the conversation: the same in every call of a run.
    fn instructions(&mut self, value: Value<'_>) -> Vec<Part> {
        if let Some(known) = value.as_str().and_then(|text| self.system_parts.get(text)) {
            return known.clone();
        }
        let mut reader = MessageReader::new(&mut self.texts);
        let mut parts = Vec::new();
        reader.parts(&Node::decoded(value), &mut parts);
        if let Some(text) = value.as_str() {
            self.system_parts.insert(text.into(), parts.clone());
        }
        parts
    }

    /// Messages from the candidates of `field`, flattened lists among them, most telling first.
    fn field_messages(
        &mut self,
        scan: &SpanScan<'_>,
        field: Field,
        role: Role,
        view: &mut SpanView,
    ) -> (Vec<Message>, Content) {
        let whole = self.value(scan, field);
        let lists = scan.leaves(field);
        let first_list = lists.first().map_or(Order::MAX, |f| f.order);
        let mut seen = whole.content();
        if let Lookup::Found((order, value)) = whole
            && order < first_list
        {
            return (self.read_messages(value, role, view), Content::Present);
        }
        for list in lists.chunk_by(|a, b| a.order == b.order) {
            let (messages, hidden) = self.flattened_messages(list, role, view);
            if hidden {
                seen = Content::Redacted;
            } else if !messages.is_empty() {
                return (messages, Content::Present);
            }
        }
        match self.value(scan, field) {
            Lookup::Found((_, value)) => (self.read_messages(value, role, view), Content::Present),
            _ => (Vec::new(), seen),
        }
    }

    fn read_messages(&mut self, value: Value<'_>, role: Role, view: &mut SpanView) -> Vec<Message> {
        let mut reader = MessageReader::new(&mut self.texts);
        // An output is new, and its finish reasons count; a prompt is mostly what was there before.
        let known = match value {
            Value::Str(list) if role == Role::User => {
                message_cache::messages(list, &mut self.message_cache, &mut reader)
            }
            _ => None,
        };
        let messages = known.unwrap_or_else(|| reader.messages(&Node::of(value), role));
        self.withheld |= reader.withheld;
        if view.finish.is_empty() && role == Role::Assistant {
            view.finish = reader.finish;
        }
        messages
    }

    /// Messages of one flattened list; and whether all of it is redacted.
    fn flattened_messages(
        &mut self,
        list: &[FlatAttribute<'_>],
        role: Role,
        view: &mut SpanView,
    ) -> (Vec<Message>, bool) {
        let mut out = Vec::new();
        let mut hidden = false;
        for leaves in list.chunk_by(|a, b| a.leaf.index == b.leaf.index) {
            let of = |kind: LeafKind| leaves.iter().find(|f| f.leaf.kind == kind).map(|f| f.value);
            let word = of(LeafKind::Role).and_then(|v| v.as_str());
            let role = word.map_or(role, |w| role_word(w).unwrap_or(Role::User));
            let mut parts = Vec::new();
            let texts = || leaves.iter().filter(|f| matches!(f.leaf.kind, LeafKind::PartText));
            let mut content = String::new();
            if let Some(whole) = of(LeafKind::Text).filter(|v| !matches!(v, Value::Str(""))) {
                match Node::of(whole) {
                    Node::Str(s) if self.table.is_redacted(&s) => hidden = true,
                    Node::Str(s) if role == Role::Tool => content = s.into_owned(),
                    node => MessageReader::new(&mut self.texts).parts(&node, &mut parts),
                }
            } else {
                for text in texts().filter_map(|f| f.value.as_str()) {
                    if self.table.is_redacted(text) {
                        hidden = true;
                    } else if role == Role::Tool {
                        content.push_str(text);
                    } else {
                        parts.extend(self.texts.some(text).map(Part::Text));
                    }
                }
            }
            for leaf in leaves {
                match (leaf.leaf.kind, leaf.value) {
                    (LeafKind::PartReasoning, Value::Str(s)) => {
                        parts.extend(self.texts.some(s).map(Part::Reasoning))
                    }
                    (LeafKind::PartMedia, _) => parts.push(Part::Media),
                    (LeafKind::Finish, Value::Str(s)) if role == Role::Assistant && !s.is_empty() => {
                        view.finish.extend(self.texts.some(s));
                    }
                    _ => {}
                }
            }
            if role == Role::Tool {
                parts.push(Part::Result {
                    id: of(LeafKind::CallId).and_then(|v| v.as_str()).and_then(|s| self.texts.some(s)),
                    name: of(LeafKind::Name).and_then(|v| v.as_str()).and_then(|s| self.texts.some(s)),
                    content: self.texts.intern(&content),
                    failed: false,
                });
            }
            self.flat_requests(leaves, &mut parts);
            out.push(Message { role, parts });
        }
        let empty = out.iter().all(|m| m.parts.is_empty());
        (out, hidden && empty)
    }

    fn flat_requests(&mut self, leaves: &[FlatAttribute<'_>], parts: &mut Vec<Part>) {
        let is_request = |f: &&FlatAttribute<'_>| {
            matches!(f.leaf.kind, LeafKind::RequestId | LeafKind::RequestName | LeafKind::RequestArguments)
        };
        let requests: Vec<&FlatAttribute<'_>> = leaves.iter().filter(is_request).collect();
        for request in requests.chunk_by(|a, b| a.leaf.inner_index == b.leaf.inner_index) {
            let of = |kind: LeafKind| request.iter().find(|f| f.leaf.kind == kind).map(|f| f.value);
            let Some(name) = of(LeafKind::RequestName).and_then(|v| v.as_str()) else { continue };
            parts.push(Part::Call(ToolRequest {
                id: of(LeafKind::RequestId).and_then(|v| v.as_str()).and_then(|s| self.texts.some(s)),
                name: self.texts.intern(name),
                arguments: of(LeafKind::RequestArguments).and_then(|v| self.texts.some(&Node::of(v).text())),
            }));
        }
    }

    /// Tool calls and thinking that stand apart from the output's text.
    fn separate_output_parts(
        &mut self,
        scan: &SpanScan<'_>,
        view: &mut SpanView,
        output: &mut Vec<Message>,
        seen: &mut Content,
    ) {
        let mut parts = Vec::new();
        if let Lookup::Found((_, value)) = self.value(scan, Field::OutputReasoning) {
            parts.extend(self.texts.some(&Node::of(value).text()).map(Part::Reasoning));
        }
        if let Lookup::Found((_, value)) = self.value(scan, Field::OutputCalls) {
            *seen = Content::Present;
            for message in self.read_messages(value, Role::Assistant, view) {
                parts.extend(message.parts);
            }
        }
        if parts.is_empty() {
            return;
        }
        match output.last_mut() {
            Some(message) => message.parts.extend(parts),
            None => output.push(Message { role: Role::Assistant, parts }),
        }
    }

    /// A whole conversation in one attribute: what precedes the model's first word is input.
    fn packed_conversation(
        &mut self,
        scan: &SpanScan<'_>,
        view: &mut SpanView,
        input: &mut Vec<Message>,
        output: &mut Vec<Message>,
    ) {
        let mut messages = Vec::new();
        if let Lookup::Found((_, value)) = self.value(scan, Field::Conversation) {
            messages = self.read_messages(value, Role::User, view);
        } else if let Lookup::Found((_, value)) = self.value(scan, Field::PackedEvents) {
            let Node::List(events) = Node::decoded(value) else { return };
            for event in &events {
                let named = event.str_at("event.name").and_then(|n| self.table.events.get(n));
                let mut reader = MessageReader::new(&mut self.texts);
                match named {
                    Some(EventRule::Choice) => output.extend(reader.messages(event, Role::Assistant)),
                    Some(EventRule::System) => messages.extend(reader.messages(event, Role::System)),
                    _ => messages.extend(reader.messages(event, Role::User)),
                }
            }
        }
        if messages.is_empty() {
            return;
        }
        let from =
            self.count(scan, Field::ConversationStart).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let is_agent = view.kind != Kind::Llm;
        let turn = messages.iter().enumerate().position(|(i, m)| i >= from && m.role == Role::Assistant);
        let split = if is_agent { turn.unwrap_or(messages.len()) } else { messages.len() };
        let rest = messages.split_off(split);
        if input.is_empty() {
            *input = messages;
        }
        if output.is_empty() {
            *output = rest;
        }
    }

    /// Messages in span events and log records.
    fn event_messages(
        &mut self,
        scan: &SpanScan<'_>,
        view: &mut SpanView,
        input: &mut Vec<Message>,
        output: &mut Vec<Message>,
    ) {
        let (no_input, no_output) = (input.is_empty(), output.is_empty());
        for event in &scan.events {
            let role = match event.rule {
                EventRule::System => Role::System,
                EventRule::User => Role::User,
                EventRule::Tool => Role::Tool,
                EventRule::Assistant | EventRule::Choice => Role::Assistant,
                _ => continue,
            };
            let choice = event.rule == EventRule::Choice;
            if !(if choice { no_output } else { no_input }) {
                continue;
            }
            let node = event::node(event);
            let mut reader = MessageReader::new(&mut self.texts);
            let messages = match node.get("message").filter(|_| choice) {
                Some(message) => {
                    let message = message.clone().unfold();
                    reader.messages(&with_role(message, role), role)
                }
                None => reader.messages(&with_role(node.clone(), role), role),
            };
            let target = if choice { &mut *output } else { &mut *input };
            for message in messages {
                target.push(Message { role: event_role(role, &message), ..message });
            }
            if choice && view.finish.is_empty() {
                view.finish.extend(node.str_at("finish_reason").and_then(|r| self.texts.some(r)));
            }
        }
    }
}

/// Whether messages that may have been stripped still say something beside their instructions.
fn has_content_beyond_instructions(messages: &[Message]) -> bool {
    let parts = messages.iter().filter(|m| m.role != Role::System).flat_map(|m| &m.parts);
    parts.into_iter().any(|part| match part {
        Part::Text(_) | Part::Reasoning(_) | Part::Media => true,
        Part::Call(request) => request.arguments.is_some(),
        Part::Result { content, .. } => !content.is_empty(),
    })
}

/// An event's map as a message: the event's name gives the role where the map does not.
fn with_role(node: Node<'_>, role: Role) -> Node<'_> {
    let word = match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    match node {
        Node::Map(mut entries) => {
            entries.retain(|(k, _)| k != "role");
            entries.push((Cow::Borrowed("role"), Node::Str(Cow::Borrowed(word))));
            Node::Map(entries)
        }
        other => Node::Map(vec![
            (Cow::Borrowed("role"), Node::Str(Cow::Borrowed(word))),
            (Cow::Borrowed("content"), other),
        ]),
    }
}

/// Blocks of tool results make a user's message a tool's.
fn event_role(role: Role, message: &Message) -> Role {
    if message.role == Role::Tool { Role::Tool } else { role }
}
