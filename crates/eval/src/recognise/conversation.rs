//! Reads the conversation of a span from one attribute, a flattened list, span events or log records.

use std::borrow::Cow;

use foldhash::HashSet;
use verdict_otlp::Value;
use verdict_otlp::trace::{Kind, Status};

use super::flat_attribute::FlatAttribute;
use super::flat_message::FlatMessage;
use super::interpret::{FieldLookup, Interpreter};
use super::kind_rules::FieldPrecedence;
use super::message::{Message, MessageParts, Part, Role, ToolRequest};
use super::message_reader::{MessageReader, role_of_word};
use super::node::ContentNode;
use super::overrides::{EventRule, Field, LeafKind, Meaning};
use super::recorded_elsewhere::mark_recorded_elsewhere;
use super::scan::SpanScan;
use super::span_view::{Content, SpanView};
use super::{event, message_cache};

impl Interpreter<'_> {
    /// Fills in the messages of a span and whether they were recorded.
    pub(super) fn fill_messages(&mut self, scan: &SpanScan<'_>, view: &mut SpanView) {
        self.withheld = false;
        (view.input, view.input_content) = self.field_messages(scan, Field::Input, Role::User, view);
        (view.output, view.output_content) = self.field_messages(scan, Field::Output, Role::Assistant, view);
        self.add_separate_output_parts(scan, view);
        self.add_packed_conversation(scan, view);
        self.add_event_messages(scan, view);
        // Some instrumentations record prompt and answer as one conversation.
        if view.kind == Kind::Llm
            && let Some(last) = view.input.last().filter(|last| last.role == Role::Assistant)
            && view.output.last() == Some(last)
        {
            view.input.pop();
        }
        // A failed call often records an empty message. It is no output.
        if scan.status == Status::Error && view.output.iter().all(|m| m.parts.is_empty()) {
            view.output.clear();
            view.output_content = Content::Absent;
        }
        view.input_content = self.content_of(&view.input, view.input_content, true);
        view.output_content = self.content_of(&view.output, view.output_content, false);
        mark_recorded_elsewhere(scan, view);
        self.add_separate_instructions(scan, view);
    }

    /// Whether messages have content. `recorded` is the state of the attributes that they were read from.
    fn content_of(&mut self, messages: &[Message], recorded: Content, is_prompt: bool) -> Content {
        match () {
            () if messages.is_empty() || recorded.is_partial() => recorded,
            () if self.withheld && !has_content_beyond_instructions(messages) => Content::Redacted,
            () if is_prompt && self.prompt_has_hidden_part(messages) => Content::Redacted,
            () if !is_prompt && messages.iter().any(|m| self.has_hidden_part(m)) => Content::Redacted,
            () => Content::Present,
        }
    }

    /// Whether a message of a prompt has a hidden part. Messages without one are remembered, since the next prompt
    /// repeats most of them.
    fn prompt_has_hidden_part(&mut self, messages: &[Message]) -> bool {
        let is_known = |(parts, message): &(&MessageParts, &Message)| parts.ptr_eq(&message.parts);
        let known_count = self.visible_messages.iter().zip(messages).take_while(is_known).count();
        self.visible_messages.truncate(known_count);
        let new_messages = messages.get(known_count..).unwrap_or_default();
        let visible_count = new_messages.iter().take_while(|message| !self.has_hidden_part(message)).count();
        self.visible_messages
            .extend(new_messages.iter().take(visible_count).map(|message| message.parts.clone()));
        visible_count < new_messages.len()
    }

    /// Whether a marker or a hash replaces a part of the message.
    fn has_hidden_part(&self, message: &Message) -> bool {
        message.parts.iter().any(|part| match part {
            Part::Text(text) | Part::Reasoning(text) => self.table.is_hidden(text),
            Part::Result { content, .. } => self.table.is_hidden(content),
            Part::Call(call) => call.arguments.as_ref().is_some_and(|text| self.table.is_hidden(text)),
            Part::Media => false,
        })
    }

    /// Adds instructions that were recorded outside the conversation, unless it repeats them.
    fn add_separate_instructions(&mut self, scan: &SpanScan<'_>, view: &mut SpanView) {
        let lookup = self.value(scan, Field::System);
        let recorded = match lookup.content() {
            Content::Absent if scan.has(Meaning::SystemElsewhere) => Content::Redacted,
            recorded => recorded,
        };
        view.input_content = match (view.input_content, recorded) {
            (Content::Absent, Content::Present) => Content::Present,
            (conversation, instructions) if instructions.is_partial() => conversation.max(instructions),
            (conversation, _) => conversation,
        };
        let (FieldLookup::Found((_, value)) | FieldLookup::Cut((_, value))) = lookup else { return };
        let parts = self.instructions(value);
        let is_repeated = view.input.iter().any(|m| m.role == Role::System && m.parts == parts);
        if !parts.is_empty() && !is_repeated {
            view.input.insert(0, Message { role: Role::System, parts });
        }
    }

    /// The parts of an instructions attribute. Every call of a run repeats it.
    fn instructions(&mut self, value: Value<'_>) -> MessageParts {
        let mut read_parts =
            || MessageParts::from(MessageReader::new(&mut self.texts).parts(&ContentNode::decoded(value)));
        let Some(text) = value.as_str() else { return read_parts() };
        if let Some((start, len, parts)) = &self.last_instructions
            && (*start, *len) == (text.as_ptr(), text.len())
        {
            return parts.clone();
        }
        let parts = match self.system_parts.get(text) {
            Some(parts) => {
                self.uncut_texts.push(text.as_ptr());
                parts.clone()
            }
            None => self.system_parts.entry(text.into()).or_insert_with(read_parts).clone(),
        };
        self.last_instructions = Some((text.as_ptr(), text.len(), parts.clone()));
        parts
    }

    /// Messages from the candidate of `field`, whole or flattened, with the highest precedence.
    fn field_messages(
        &mut self,
        scan: &SpanScan<'_>,
        field: Field,
        role: Role,
        view: &mut SpanView,
    ) -> (Vec<Message>, Content) {
        let whole = self.value(scan, field);
        let lists = scan.leaves(field);
        let first_list_order = lists.first().map_or(FieldPrecedence::MAX, |f| f.order);
        let mut recorded = whole.content();
        if let FieldLookup::Found((order, value)) = whole
            && order < first_list_order
        {
            return (self.read_messages(value, role, view), Content::Present);
        }
        let mut partial = Vec::new();
        for list in lists.chunk_by(|a, b| a.order == b.order) {
            let (messages, content) = self.flattened_messages(list, role, view);
            if content.is_partial() {
                recorded = recorded.max(content);
                partial = if partial.is_empty() { messages } else { partial };
            } else if !messages.is_empty() {
                // The JSON of the whole conversation may have what its flattened form lacks.
                if let FieldLookup::Found((_, value)) = whole
                    && messages.iter().any(lacks_content)
                {
                    let all = self.read_messages(value, role, view);
                    if all.len() == messages.len() && !all.iter().any(lacks_content) {
                        return (all, Content::Present);
                    }
                }
                return (messages, Content::Present);
            }
        }
        match whole {
            FieldLookup::Found((_, value)) => (self.read_messages(value, role, view), Content::Present),
            _ if !partial.is_empty() => (partial, recorded),
            FieldLookup::Cut((_, value)) => (self.read_messages(value, role, view), Content::Truncated),
            _ => (Vec::new(), recorded),
        }
    }

    fn read_messages(&mut self, value: Value<'_>, role: Role, view: &mut SpanView) -> Vec<Message> {
        let mut reader = MessageReader::new(&mut self.texts);
        // Most messages of a prompt are those of earlier prompts and outputs, which are cached.
        let list = value.as_str();
        let cached = list.and_then(|list| {
            message_cache::messages(list, role == Role::User, &mut self.message_cache, &mut reader)
        });
        self.uncut_texts.extend(list.filter(|_| cached.is_some()).map(str::as_ptr));
        let messages = cached.unwrap_or_else(|| {
            reader.finish.clear();
            reader.messages(&ContentNode::from_value(value), role)
        });
        self.withheld |= reader.withheld;
        if view.finish.is_empty() && role == Role::Assistant {
            view.finish = reader.finish;
        }
        messages
    }

    /// The messages of one flattened list, and whether a part is redacted or cut off.
    fn flattened_messages(
        &mut self,
        list: &[FlatAttribute<'_>],
        role: Role,
        view: &mut SpanView,
    ) -> (Vec<Message>, Content) {
        let is_prompt = role == Role::User;
        let mut out = Vec::with_capacity(if is_prompt { self.flat_messages.len() + 2 } else { 1 });
        let (mut hidden, mut cut) = (false, false);
        for (nth, leaves) in list.chunk_by(|a, b| a.leaf.index == b.leaf.index).enumerate() {
            let cached =
                self.flat_messages.get(nth).filter(|earlier| earlier.was_read_from(leaves) && is_prompt);
            if let Some(FlatMessage { message, is_hidden, is_cut, .. }) = cached {
                (hidden, cut) = (hidden || *is_hidden, cut || *is_cut);
                out.push(message.clone());
                continue;
            }
            let is_cut = leaves.iter().filter_map(|f| f.value.as_str()).any(|text| self.is_cut(text));
            let mut is_hidden = false;
            let value_of = |kind: LeafKind| leaves.iter().find(|f| f.leaf.kind == kind).map(|f| f.value);
            let recorded_role = value_of(LeafKind::Role).and_then(|v| v.as_str());
            let role = recorded_role.map_or(role, |word| role_of_word(word).unwrap_or(Role::User));
            let mut parts = Vec::new();
            let mut content = Cow::Borrowed("");
            if let Some(whole) = value_of(LeafKind::Text).filter(|v| !matches!(v, Value::Str(""))) {
                match ContentNode::from_value(whole) {
                    ContentNode::Str(s) if self.table.is_hidden(&s) => is_hidden = true,
                    ContentNode::Str(s) if role == Role::Tool => content = s,
                    node => parts = MessageReader::new(&mut self.texts).parts(&node),
                }
            } else {
                let texts = leaves.iter().filter(|f| f.leaf.kind == LeafKind::PartText);
                for text in texts.filter_map(|f| f.value.as_str()) {
                    if self.table.is_hidden(text) {
                        is_hidden = true;
                    } else if role == Role::Tool {
                        content.to_mut().push_str(text);
                    } else {
                        parts.extend(self.texts.non_empty(text).map(Part::Text));
                    }
                }
            }
            for leaf in leaves {
                match (leaf.leaf.kind, leaf.value) {
                    (LeafKind::PartReasoning, Value::Str(s)) => {
                        parts.extend(self.texts.non_empty(s).map(Part::Reasoning));
                    }
                    (LeafKind::PartMedia, _) => parts.push(Part::Media),
                    (LeafKind::Finish, Value::Str(s)) if role == Role::Assistant => {
                        view.finish.extend(self.texts.non_empty(s));
                    }
                    _ => {}
                }
            }
            if role == Role::Tool {
                parts.push(Part::Result {
                    id: self.texts.option(value_of(LeafKind::CallId).and_then(|v| v.as_str())),
                    name: self.texts.option(value_of(LeafKind::Name).and_then(|v| v.as_str())),
                    content: self.texts.intern(&content),
                    failed: false,
                });
            }
            self.add_flat_requests(leaves, &mut parts);
            let message = Message { role, parts: parts.into() };
            if is_prompt {
                self.flat_messages.truncate(nth);
                self.flat_messages.extend(FlatMessage::new(leaves, &message, is_hidden, is_cut));
            }
            (hidden, cut) = (hidden || is_hidden, cut || is_cut);
            out.push(message);
        }
        let content = match () {
            () if cut => Content::Truncated,
            () if hidden => Content::Redacted,
            () => Content::Present,
        };
        if hidden && out.iter().all(|m| m.parts.is_empty()) {
            out.clear();
        }
        (out, content)
    }

    fn add_flat_requests(&mut self, leaves: &[FlatAttribute<'_>], parts: &mut Vec<Part>) {
        let is_request = |f: &&FlatAttribute<'_>| {
            matches!(f.leaf.kind, LeafKind::RequestId | LeafKind::RequestName | LeafKind::RequestArguments)
        };
        let requests: Vec<&FlatAttribute<'_>> = leaves.iter().filter(is_request).collect();
        for request in requests.chunk_by(|a, b| a.leaf.inner_index == b.leaf.inner_index) {
            let value_of = |kind: LeafKind| request.iter().find(|f| f.leaf.kind == kind).map(|f| f.value);
            let Some(name) = value_of(LeafKind::RequestName).and_then(|v| v.as_str()) else { continue };
            parts.push(Part::Call(ToolRequest {
                id: self.texts.option(value_of(LeafKind::RequestId).and_then(|v| v.as_str())),
                name: self.texts.intern(name),
                arguments: value_of(LeafKind::RequestArguments)
                    .and_then(|v| self.texts.non_empty(&ContentNode::from_value(v).text())),
            }));
        }
    }

    /// Adds tool calls and reasoning that were recorded apart from the output's text.
    fn add_separate_output_parts(&mut self, scan: &SpanScan<'_>, view: &mut SpanView) {
        let mut parts = Vec::new();
        if let FieldLookup::Found((_, value)) = self.value(scan, Field::OutputReasoning) {
            parts.extend(self.texts.non_empty(&ContentNode::from_value(value).text()).map(Part::Reasoning));
        }
        let calls = self.value(scan, Field::OutputCalls);
        if let FieldLookup::Found((_, value)) | FieldLookup::Cut((_, value)) = calls {
            if view.output_content != Content::Truncated {
                view.output_content = calls.content();
            }
            let messages = self.read_messages(value, Role::Assistant, view);
            parts.extend(messages.iter().flat_map(|m| &m.parts).cloned());
        }
        match view.output.last_mut() {
            _ if parts.is_empty() => {}
            Some(message) => {
                // A second instrumentation of the span may have recorded the same calls.
                let new_calls = CallKeys::from_parts(&parts);
                let kept = message.parts.iter().filter(|part| !new_calls.repeat(part)).cloned();
                message.parts = kept.chain(parts.iter().cloned()).collect::<Vec<_>>().into();
            }
            None => view.output.push(Message { role: Role::Assistant, parts: parts.into() }),
        }
    }

    /// Adds a whole conversation that was recorded in one attribute. The messages of an agent's conversation before the
    /// first message of the model are the input, the others the output.
    fn add_packed_conversation(&mut self, scan: &SpanScan<'_>, view: &mut SpanView) {
        let mut messages = Vec::new();
        let conversation = self.value(scan, Field::Conversation);
        if let FieldLookup::Found((_, value)) | FieldLookup::Cut((_, value)) = conversation {
            messages = self.read_messages(value, Role::User, view);
        } else if let FieldLookup::Found((_, value)) = self.value(scan, Field::PackedEvents) {
            let ContentNode::List(events) = ContentNode::decoded(value) else { return };
            for event in &events {
                let rule = event.str_at("event.name").and_then(|name| self.table.events.get(name));
                let mut reader = MessageReader::new(&mut self.texts);
                match rule {
                    Some(EventRule::Choice) => view.output.extend(reader.messages(event, Role::Assistant)),
                    Some(EventRule::System) => messages.extend(reader.messages(event, Role::System)),
                    _ => messages.extend(reader.messages(event, Role::User)),
                }
            }
        }
        let start = self.count(scan, Field::ConversationStart).and_then(|n| usize::try_from(n).ok());
        let is_model_turn = |(i, m): (usize, &Message)| i >= start.unwrap_or(0) && m.role == Role::Assistant;
        let first_turn =
            messages.iter().enumerate().position(is_model_turn).filter(|_| view.kind != Kind::Llm);
        let output = messages.split_off(first_turn.unwrap_or(messages.len()));
        let is_cut = conversation.content() == Content::Truncated;
        if view.input.is_empty() {
            view.input = messages;
            view.input_content = if is_cut { Content::Truncated } else { view.input_content };
        }
        if view.output.is_empty() {
            view.output = output;
            view.output_content = if is_cut { Content::Truncated } else { view.output_content };
        }
    }

    /// Adds messages in span events and log records, if no attribute has any.
    fn add_event_messages(&mut self, scan: &SpanScan<'_>, view: &mut SpanView) {
        let (no_input, no_output) = (view.input.is_empty(), view.output.is_empty());
        for event in &scan.events {
            let role = match event.rule {
                EventRule::System => "system",
                EventRule::User => "user",
                EventRule::Tool => "tool",
                EventRule::Assistant | EventRule::Choice => "assistant",
                _ => continue,
            };
            let is_choice = event.rule == EventRule::Choice;
            if !(if is_choice { no_output } else { no_input }) {
                continue;
            }
            let node = event::node(event);
            if is_choice && view.finish.is_empty() {
                view.finish.extend(self.texts.option(node.str_at("finish_reason")));
            }
            let message = match node.get("message").filter(|_| is_choice) {
                Some(message) => message.clone().unfold(),
                None => node,
            };
            if self.limit.is_some() && event::texts(event).any(|text| self.is_cut(text)) {
                *(if is_choice { &mut view.output_content } else { &mut view.input_content }) =
                    Content::Truncated;
            }
            let target = if is_choice { &mut view.output } else { &mut view.input };
            target.extend(MessageReader::new(&mut self.texts).single(&with_role(message, role)));
        }
    }
}

/// The names and ids of calls, to find the same calls among others in one pass over each.
struct CallKeys<'p> {
    names: HashSet<&'p str>,
    with_ids: HashSet<(&'p str, &'p str)>,
}

impl<'p> CallKeys<'p> {
    fn from_parts(parts: &'p [Part]) -> CallKeys<'p> {
        let calls =
            || parts.iter().filter_map(|part| if let Part::Call(call) = part { Some(call) } else { None });
        CallKeys {
            names: calls().map(|call| &*call.name).collect(),
            with_ids: calls().filter_map(|call| Some((&*call.name, &**call.id.as_ref()?))).collect(),
        }
    }

    /// Whether a part is one of the calls: by its name and id, or by its name alone if it has no id.
    fn repeat(&self, part: &Part) -> bool {
        let Part::Call(call) = part else { return false };
        match &call.id {
            Some(id) => self.with_ids.contains(&(&*call.name, &**id)),
            None => self.names.contains(&*call.name),
        }
    }
}

/// Whether a request or its instructions were recorded without their content.
fn lacks_content(message: &Message) -> bool {
    matches!(message.role, Role::System | Role::User) && message.parts.is_empty()
}

/// Whether messages have content, except for instructions.
fn has_content_beyond_instructions(messages: &[Message]) -> bool {
    let parts = messages.iter().filter(|m| m.role != Role::System).flat_map(|m| &m.parts);
    parts.into_iter().any(|part| match part {
        Part::Text(_) | Part::Reasoning(_) | Part::Media => true,
        Part::Call(request) => request.arguments.is_some(),
        Part::Result { content, .. } => !content.is_empty(),
    })
}

/// An event's map as a message. The event's name determines the role.
fn with_role<'a>(node: ContentNode<'a>, role: &'static str) -> ContentNode<'a> {
    let mut entries = match node {
        ContentNode::Map(entries) => entries,
        other => vec![(Cow::Borrowed("content"), other)],
    };
    entries.retain(|(key, _)| key != "role");
    entries.push((Cow::Borrowed("role"), ContentNode::Str(Cow::Borrowed(role))));
    ContentNode::Map(entries)
}
