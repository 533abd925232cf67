//! The conversation of a span: from one attribute, a flattened list, span events or log records
//! (conventions, sections 2 and 5.4).

use std::borrow::Cow;

use super::event;
use super::interpret::{Interpreter, Seen};
use super::message::{Message, Part, Role, ToolRequest};
use super::node::Node;
use super::overrides::{EventRule, Field, Piece};
use super::read::{Flat, Found};
use super::seen;
use super::shape::{Shaper, role_word};
use super::span_view::{Content, SpanView};
use super::table::Order;
use verdict_otlp::Value;
use verdict_otlp::trace::{Kind, Status};

impl Interpreter<'_> {
    /// The conversation of an LLM, AGENT or other span.
    pub(super) fn messages(&mut self, found: &Found<'_>, view: &mut SpanView) {
        self.withheld = false;
        let (mut input, mut seen_in) = self.conversation(found, Field::Input, Role::User, view);
        let (mut output, mut seen_out) = self.conversation(found, Field::Output, Role::Assistant, view);
        self.apart(found, view, &mut output, &mut seen_out);
        self.whole(found, view, &mut input, &mut output);
        self.events(found, view, &mut input, &mut output);
        if let Seen::Read((_, value)) = self.value(found, Field::System) {
            let parts = self.instructions(value);
            let already = input.iter().any(|m| m.role == Role::System && m.parts == parts);
            if !parts.is_empty() && !already {
                input.insert(0, Message { role: Role::System, parts });
            }
        }
        let left = if self.withheld { holds } else { |m: &[Message]| !m.is_empty() };
        if left(&input) {
            seen_in = Content::Present;
        } else if !input.is_empty() {
            seen_in = Content::Redacted;
        }
        // A failed call often leaves an empty message behind: that is nothing said.
        let said_nothing = output.iter().all(|m| m.parts.is_empty());
        if said_nothing && found.status == Status::Error {
            output.clear();
            seen_out = Content::Absent;
        } else if left(&output) {
            seen_out = Content::Present;
        } else if !output.is_empty() {
            seen_out = Content::Redacted;
        }
        (view.input, view.output) = (input, output);
        (view.input_content, view.output_content) = (seen_in, seen_out);
    }

    /// Instructions beside the conversation: the same in every call of a run.
    fn instructions(&mut self, value: Value<'_>) -> Vec<Part> {
        if let Some(known) = value.as_str().and_then(|text| self.systems.get(text)) {
            return known.clone();
        }
        let mut shaper = Shaper { texts: &mut self.texts, finish: Vec::new(), withheld: false };
        let mut parts = Vec::new();
        shaper.parts(&Node::decoded(value), &mut parts);
        if let Some(text) = value.as_str() {
            self.systems.insert(text.into(), parts.clone());
        }
        parts
    }

    /// Messages from the candidates of `field`, flattened lists among them, most telling first.
    fn conversation(
        &mut self,
        found: &Found<'_>,
        field: Field,
        role: Role,
        view: &mut SpanView,
    ) -> (Vec<Message>, Content) {
        let whole = self.value(found, field);
        let lists = found.leaves(field);
        let first_list = lists.first().map_or(Order::MAX, |f| f.order);
        let mut seen = whole.content();
        if let Seen::Read((order, value)) = whole
            && order < first_list
        {
            return (self.shaped(value, role, view), Content::Present);
        }
        for list in lists.chunk_by(|a, b| a.order == b.order) {
            let (messages, hidden) = self.flattened(list, role, view);
            if hidden {
                seen = Content::Redacted;
            } else if !messages.is_empty() {
                return (messages, Content::Present);
            }
        }
        match self.value(found, field) {
            Seen::Read((_, value)) => (self.shaped(value, role, view), Content::Present),
            _ => (Vec::new(), seen),
        }
    }

    fn shaped(&mut self, value: Value<'_>, role: Role, view: &mut SpanView) -> Vec<Message> {
        let mut shaper = Shaper { texts: &mut self.texts, finish: Vec::new(), withheld: false };
        // An output is new, and its finish reasons count; a prompt is mostly what was there before.
        let known = match value {
            Value::Str(list) if role == Role::User => seen::messages(list, &mut self.seen, &mut shaper),
            _ => None,
        };
        let messages = known.unwrap_or_else(|| shaper.messages(&Node::of(value), role));
        self.withheld |= shaper.withheld;
        if view.finish.is_empty() && role == Role::Assistant {
            view.finish = shaper.finish;
        }
        messages
    }

    /// Messages of one flattened list; and whether all of it is redacted.
    fn flattened(&mut self, list: &[Flat<'_>], role: Role, view: &mut SpanView) -> (Vec<Message>, bool) {
        let mut out = Vec::new();
        let mut hidden = false;
        for leaves in list.chunk_by(|a, b| a.leaf.n == b.leaf.n) {
            let of = |piece: Piece| leaves.iter().find(|f| f.leaf.piece == piece).map(|f| f.value);
            let word = of(Piece::Role).and_then(|v| v.as_str());
            let role = word.map_or(role, |w| role_word(w).unwrap_or(Role::User));
            let mut parts = Vec::new();
            let texts = || leaves.iter().filter(|f| matches!(f.leaf.piece, Piece::PartText));
            let mut content = String::new();
            if let Some(whole) = of(Piece::Text).filter(|v| !matches!(v, Value::Str(""))) {
                match Node::of(whole) {
                    Node::Str(s) if self.table.is_redacted(&s) => hidden = true,
                    Node::Str(s) if role == Role::Tool => content = s.into_owned(),
                    node => Shaper { texts: &mut self.texts, finish: Vec::new(), withheld: false }
                        .parts(&node, &mut parts),
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
                match (leaf.leaf.piece, leaf.value) {
                    (Piece::PartReasoning, Value::Str(s)) => {
                        parts.extend(self.texts.some(s).map(Part::Reasoning))
                    }
                    (Piece::PartMedia, _) => parts.push(Part::Media),
                    (Piece::Finish, Value::Str(s)) if role == Role::Assistant && !s.is_empty() => {
                        view.finish.extend(self.texts.some(s));
                    }
                    _ => {}
                }
            }
            if role == Role::Tool {
                parts.push(Part::Result {
                    id: of(Piece::CallId).and_then(|v| v.as_str()).and_then(|s| self.texts.some(s)),
                    name: of(Piece::Name).and_then(|v| v.as_str()).and_then(|s| self.texts.some(s)),
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

    fn flat_requests(&mut self, leaves: &[Flat<'_>], parts: &mut Vec<Part>) {
        let is_request = |f: &&Flat<'_>| {
            matches!(f.leaf.piece, Piece::RequestId | Piece::RequestName | Piece::RequestArguments)
        };
        let requests: Vec<&Flat<'_>> = leaves.iter().filter(is_request).collect();
        for request in requests.chunk_by(|a, b| a.leaf.m == b.leaf.m) {
            let of = |piece: Piece| request.iter().find(|f| f.leaf.piece == piece).map(|f| f.value);
            let Some(name) = of(Piece::RequestName).and_then(|v| v.as_str()) else { continue };
            parts.push(Part::Call(ToolRequest {
                id: of(Piece::RequestId).and_then(|v| v.as_str()).and_then(|s| self.texts.some(s)),
                name: self.texts.intern(name),
                arguments: of(Piece::RequestArguments).and_then(|v| self.texts.some(&Node::of(v).text())),
            }));
        }
    }

    /// Tool calls and thinking that stand apart from the output's text.
    fn apart(
        &mut self,
        found: &Found<'_>,
        view: &mut SpanView,
        output: &mut Vec<Message>,
        seen: &mut Content,
    ) {
        let mut parts = Vec::new();
        if let Seen::Read((_, value)) = self.value(found, Field::OutputReasoning) {
            parts.extend(self.texts.some(&Node::of(value).text()).map(Part::Reasoning));
        }
        if let Seen::Read((_, value)) = self.value(found, Field::OutputCalls) {
            *seen = Content::Present;
            for message in self.shaped(value, Role::Assistant, view) {
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
    fn whole(
        &mut self,
        found: &Found<'_>,
        view: &mut SpanView,
        input: &mut Vec<Message>,
        output: &mut Vec<Message>,
    ) {
        let mut messages = Vec::new();
        if let Seen::Read((_, value)) = self.value(found, Field::Conversation) {
            messages = self.shaped(value, Role::User, view);
        } else if let Seen::Read((_, value)) = self.value(found, Field::PackedEvents) {
            let Node::List(events) = Node::decoded(value) else { return };
            for event in &events {
                let named = event.str_at("event.name").and_then(|n| self.table.events.get(n));
                let mut shaper = Shaper { texts: &mut self.texts, finish: Vec::new(), withheld: false };
                match named {
                    Some(EventRule::Choice) => output.extend(shaper.messages(event, Role::Assistant)),
                    Some(EventRule::System) => messages.extend(shaper.messages(event, Role::System)),
                    _ => messages.extend(shaper.messages(event, Role::User)),
                }
            }
        }
        if messages.is_empty() {
            return;
        }
        let from =
            self.count(found, Field::ConversationStart).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
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
    fn events(
        &mut self,
        found: &Found<'_>,
        view: &mut SpanView,
        input: &mut Vec<Message>,
        output: &mut Vec<Message>,
    ) {
        let (no_input, no_output) = (input.is_empty(), output.is_empty());
        for event in &found.events {
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
            let mut shaper = Shaper { texts: &mut self.texts, finish: Vec::new(), withheld: false };
            let messages = match node.get("message").filter(|_| choice) {
                Some(message) => {
                    let message = message.clone().unfold();
                    shaper.messages(&with_role(message, role), role)
                }
                None => shaper.messages(&with_role(node.clone(), role), role),
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
fn holds(messages: &[Message]) -> bool {
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
