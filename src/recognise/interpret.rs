//! From what one pass has found to a [`Reading`]. Each field is chosen on its own, from the first
//! candidate that says anything (conventions, section 5.7).

use std::borrow::Cow;

use super::errors;
use super::message::{Message, Part, Role, Text, ToolDefinition, ToolRequest};
use super::node::Node;
use super::overrides::{EventRule, Field, Piece};
use super::read::{Event, Flat, Found};
use super::reading::{Content, Evaluation, Reading, Tokens};
use super::shape::{Shaper, role_word};
use super::table::{Order, Table};
use super::texts::Texts;
use super::{plans, tool};
use crate::trace::Kind;
use crate::wire::{Attributes, Value};

/// Reads spans into one scene.
pub(crate) struct Interpreter<'t> {
    pub(crate) table: &'t Table,
    pub(crate) texts: Texts,
}

/// A field as it was found: content, nothing, or a stand-in.
enum Seen<T> {
    Read(T),
    Redacted,
    Absent,
}

impl<T> Seen<T> {
    fn content(&self) -> Content {
        match self {
            Seen::Read(_) => Content::Present,
            Seen::Redacted => Content::Redacted,
            Seen::Absent => Content::Absent,
        }
    }
}

impl Interpreter<'_> {
    /// The reading of one span. `content` is false for spans whose messages nobody will ask for.
    pub(crate) fn reading(
        &mut self,
        found: &mut Found<'_>,
        kind: Kind,
        lifecycle: bool,
        content: bool,
    ) -> Reading {
        found.sort();
        let mut reading = Reading { kind, wrapper: lifecycle, ..Reading::default() };
        reading.name = self.texts.some(found.name);
        self.facts(found, &mut reading);
        match kind {
            Kind::Tool => self.tool(found, &mut reading),
            Kind::Retriever | Kind::Memory => {
                self.messages(found, &mut reading);
                self.result(found, &mut reading);
            }
            _ if content => self.messages(found, &mut reading),
            _ => self.content_only(found, &mut reading),
        }
        errors::signs(self.table, &mut self.texts, found, &mut reading);
        self.evaluations(found, &mut reading);
        plans::of_attributes(found, &mut self.texts, &mut reading);
        reading
    }

    /// The first candidate of `field` that says anything.
    fn value<'a>(&self, found: &Found<'a>, field: Field) -> Seen<(Order, Value<'a>)> {
        let mut redacted = false;
        for (_, order, value) in found.candidates(field) {
            match value {
                Value::Empty => {}
                Value::Str(s) if self.table.is_absent(*order, s) => {}
                Value::Str(s) if self.table.is_redacted(s) => redacted = true,
                value => return Seen::Read((*order, *value)),
            }
        }
        if redacted { Seen::Redacted } else { Seen::Absent }
    }

    fn text(&mut self, found: &Found<'_>, field: Field) -> Option<Text> {
        match self.value(found, field) {
            // MLflow writes a string as a JSON string.
            Seen::Read((_, Value::Str(s))) if s.starts_with('"') => {
                let inner = Node::Str(Cow::Borrowed(s)).unfold();
                self.texts.some(&inner.text())
            }
            Seen::Read((_, Value::Str(s))) => self.texts.some(s),
            Seen::Read((_, value)) => self.texts.some(&Node::of(value).text()),
            _ => None,
        }
    }

    fn count(&self, found: &Found<'_>, field: Field) -> Option<u64> {
        match self.value(found, field) {
            Seen::Read((_, value)) => Node::of(value).count(),
            _ => None,
        }
    }

    /// Everything that is not content.
    fn facts(&mut self, found: &Found<'_>, reading: &mut Reading) {
        reading.agent = self.text(found, Field::AgentName);
        reading.model = self.text(found, Field::Model);
        reading.provider = self.text(found, Field::Provider);
        reading.response_id = self.text(found, Field::ResponseId);
        reading.session = self.text(found, Field::Session);
        let mut tokens = Tokens {
            input: self.count(found, Field::TokensInput),
            output: self.count(found, Field::TokensOutput),
            total: self.count(found, Field::TokensTotal),
            cached: self.count(found, Field::TokensCached),
            reasoning: self.count(found, Field::TokensReasoning),
        };
        if let Seen::Read((_, value)) = self.value(found, Field::Usage) {
            let usage = Node::decoded(value);
            let of = |keys: &[&str]| usage.any(keys).and_then(Node::count);
            tokens.input = tokens.input.or(of(&["input_tokens", "input", "prompt_tokens", "inputTokens"]));
            tokens.output =
                tokens.output.or(of(&["output_tokens", "output", "completion_tokens", "outputTokens"]));
            tokens.total = tokens.total.or(of(&["total_tokens", "total", "totalTokens"]));
            tokens.cached =
                tokens.cached.or(of(&["cache_read_input_tokens", "input_cached_tokens", "cached_tokens"]));
            tokens.reasoning = tokens.reasoning.or(of(&["reasoning_tokens", "output_reasoning_tokens"]));
        }
        if tokens.total.is_none()
            && let (Some(i), Some(o)) = (tokens.input, tokens.output)
        {
            tokens.total = i.checked_add(o);
        }
        reading.tokens = tokens;
        if let Seen::Read((_, value)) = self.value(found, Field::Cost) {
            reading.cost = Node::of(value).number();
        } else if let Seen::Read((_, value)) = self.value(found, Field::CostMap) {
            reading.cost = Node::decoded(value).any(&["total", "total_cost"]).and_then(Node::number);
        }
        if let Seen::Read((_, value)) = self.value(found, Field::Finish) {
            match Node::decoded(value) {
                Node::List(reasons) => {
                    reading.finish.extend(reasons.iter().filter_map(|r| self.texts.some(&r.text())))
                }
                one => reading.finish.extend(self.texts.some(&one.text())),
            }
        }
        if matches!(reading.kind, Kind::Llm | Kind::Agent | Kind::Plan) {
            reading.tools = self.definitions(found);
        }
    }

    fn definitions(&mut self, found: &Found<'_>) -> Vec<ToolDefinition> {
        let mut best: Vec<ToolDefinition> = Vec::new();
        for (_, _, value) in found.candidates(Field::ToolDefinitions) {
            let read = match value {
                Value::Str(s) => tool::cached(s, &mut self.texts).to_vec(),
                value => tool::definitions(&Node::of(*value), &mut self.texts),
            };
            // Names alone are the poorest form: a later candidate may have the schemas.
            if best.is_empty()
                || (best.iter().all(|d| d.parameters.is_none())
                    && read.iter().any(|d| d.parameters.is_some()))
            {
                best = read;
            }
        }
        if best.iter().any(|d| d.parameters.is_some()) {
            return best;
        }
        let flat = self.flat_definitions(found.leaves(Field::ToolDefinitions));
        if flat.is_empty() { best } else { flat }
    }

    fn flat_definitions(&mut self, leaves: &[Flat<'_>]) -> Vec<ToolDefinition> {
        let mut out = Vec::new();
        for tool in leaves.chunk_by(|a, b| (a.order, a.leaf.n) == (b.order, b.leaf.n)) {
            let of = |piece: Piece| tool.iter().find(|f| f.leaf.piece == piece).map(|f| f.value);
            if let Some(json) = of(Piece::Definition).and_then(|v| v.as_str()) {
                out.extend(tool::cached(json, &mut self.texts).iter().cloned());
            } else if let Some(name) = of(Piece::Name).and_then(|v| v.as_str()) {
                out.push(ToolDefinition {
                    name: self.texts.intern(name),
                    description: of(Piece::Description)
                        .and_then(|v| v.as_str())
                        .and_then(|d| self.texts.some(d)),
                    parameters: of(Piece::Parameters).and_then(|v| tool::parameters(&Node::decoded(v))),
                });
            }
        }
        out
    }

    /// A TOOL span: which tool, with what, and what came back.
    fn tool(&mut self, found: &Found<'_>, reading: &mut Reading) {
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
        reading.input_content = seen;
        if schema.is_some() || description.is_some() {
            reading.tools = vec![ToolDefinition { name: name.clone(), description, parameters: schema }];
        }
        let id = self.text(found, Field::CallId);
        reading.call = Some(ToolRequest { id, name, arguments });
        self.result(found, reading);
        if let (None, Some(call)) = (reading.call.as_ref().and_then(|c| c.id.clone()), reading.call.as_mut())
        {
            call.id = found.events.iter().find_map(|e| event_id(e)).and_then(|id| self.texts.some(id));
        }
    }

    fn arguments(&mut self, found: &Found<'_>, names: &[&str]) -> (Option<Text>, Content) {
        let mut redacted = false;
        for field in [Field::Arguments, Field::Input] {
            match self.value(found, field) {
                Seen::Read((_, Value::Str(s))) => {
                    let node = Node::Str(Cow::Borrowed(s)).unfold();
                    return (Some(self.texts.intern(&tool::arguments(&node, names))), Content::Present);
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
            if let Some(content) = event_field(event, &["content", "arguments"]) {
                let node = Node::decoded(content);
                return (Some(self.texts.intern(&tool::arguments(&node, names))), Content::Present);
            }
        }
        (None, if redacted { Content::Redacted } else { Content::Absent })
    }

    fn result(&mut self, found: &Found<'_>, reading: &mut Reading) {
        let mut redacted = false;
        for field in [Field::Result, Field::Output] {
            let node = match self.value(found, field) {
                Seen::Read((_, value)) => Node::decoded(value),
                Seen::Redacted => {
                    redacted = true;
                    continue;
                }
                Seen::Absent => continue,
            };
            return self.said(&node, reading);
        }
        let documents: Vec<&str> = found
            .leaves(Field::Result)
            .iter()
            .filter(|f| f.leaf.piece == Piece::Text)
            .filter_map(|f| f.value.as_str())
            .collect();
        if !documents.is_empty() {
            reading.result = Some(self.texts.intern(&documents.join("\n\n")));
            reading.output_content = Content::Present;
            return;
        }
        for event in found.events.iter().filter(|e| e.rule == EventRule::Choice) {
            if let Some(message) = event_field(event, &["message", "content", "tool.result"]) {
                return self.said(&Node::decoded(message), reading);
            }
        }
        reading.output_content = if redacted { Content::Redacted } else { Content::Absent };
    }

    fn said(&mut self, node: &Node<'_>, reading: &mut Reading) {
        let (text, failed) = tool::result(node);
        reading.result = Some(self.texts.intern(&text));
        reading.output_content = Content::Present;
        if failed && reading.kind == Kind::Tool {
            errors::marked(&mut self.texts, reading);
        }
    }

    /// Whether there is content, for spans whose messages are not read.
    fn content_only(&self, found: &Found<'_>, reading: &mut Reading) {
        let seen = |field| match self.value(found, field) {
            Seen::Absent if !found.leaves(field).is_empty() => Content::Present,
            seen => seen.content(),
        };
        reading.input_content = seen(Field::Input);
        reading.output_content = seen(Field::Output);
    }

    /// The conversation of an LLM, AGENT or other span.
    fn messages(&mut self, found: &Found<'_>, reading: &mut Reading) {
        let (mut input, mut seen_in) = self.conversation(found, Field::Input, Role::User, reading);
        let (mut output, mut seen_out) = self.conversation(found, Field::Output, Role::Assistant, reading);
        self.apart(found, reading, &mut output, &mut seen_out);
        self.whole(found, reading, &mut input, &mut output);
        self.events(found, reading, &mut input, &mut output);
        if let Seen::Read((_, value)) = self.value(found, Field::System) {
            let mut shaper = Shaper { texts: &mut self.texts, finish: Vec::new() };
            let mut parts = Vec::new();
            shaper.parts(&Node::decoded(value), &mut parts);
            let already = input.iter().any(|m| m.role == Role::System && m.parts == parts);
            if !parts.is_empty() && !already {
                input.insert(0, Message { role: Role::System, parts });
            }
        }
        if !input.is_empty() {
            seen_in = Content::Present;
        }
        if !output.is_empty() {
            seen_out = Content::Present;
        }
        (reading.input, reading.output) = (input, output);
        (reading.input_content, reading.output_content) = (seen_in, seen_out);
    }

    /// Messages from the candidates of `field`, flattened lists among them, most telling first.
    fn conversation(
        &mut self,
        found: &Found<'_>,
        field: Field,
        role: Role,
        reading: &mut Reading,
    ) -> (Vec<Message>, Content) {
        let whole = self.value(found, field);
        let lists = found.leaves(field);
        let first_list = lists.first().map_or(Order::MAX, |f| f.order);
        let mut seen = whole.content();
        if let Seen::Read((order, value)) = whole
            && order < first_list
        {
            return (self.shaped(value, role, reading), Content::Present);
        }
        for list in lists.chunk_by(|a, b| a.order == b.order) {
            let (messages, hidden) = self.flattened(list, role, reading);
            if hidden {
                seen = Content::Redacted;
            } else if !messages.is_empty() {
                return (messages, Content::Present);
            }
        }
        match self.value(found, field) {
            Seen::Read((_, value)) => (self.shaped(value, role, reading), Content::Present),
            _ => (Vec::new(), seen),
        }
    }

    fn shaped(&mut self, value: Value<'_>, role: Role, reading: &mut Reading) -> Vec<Message> {
        let mut shaper = Shaper { texts: &mut self.texts, finish: Vec::new() };
        let messages = shaper.messages(&Node::of(value), role);
        if reading.finish.is_empty() && role == Role::Assistant {
            reading.finish = shaper.finish;
        }
        messages
    }

    /// Messages of one flattened list; and whether all of it is redacted.
    fn flattened(&mut self, list: &[Flat<'_>], role: Role, reading: &mut Reading) -> (Vec<Message>, bool) {
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
                    node => Shaper { texts: &mut self.texts, finish: Vec::new() }.parts(&node, &mut parts),
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
                        reading.finish.extend(self.texts.some(s));
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
        reading: &mut Reading,
        output: &mut Vec<Message>,
        seen: &mut Content,
    ) {
        let mut parts = Vec::new();
        if let Seen::Read((_, value)) = self.value(found, Field::OutputReasoning) {
            parts.extend(self.texts.some(&Node::of(value).text()).map(Part::Reasoning));
        }
        if let Seen::Read((_, value)) = self.value(found, Field::OutputCalls) {
            *seen = Content::Present;
            for message in self.shaped(value, Role::Assistant, reading) {
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
        reading: &mut Reading,
        input: &mut Vec<Message>,
        output: &mut Vec<Message>,
    ) {
        let mut messages = Vec::new();
        if let Seen::Read((_, value)) = self.value(found, Field::Conversation) {
            messages = self.shaped(value, Role::User, reading);
        } else if let Seen::Read((_, value)) = self.value(found, Field::PackedEvents) {
            let Node::List(events) = Node::decoded(value) else { return };
            for event in &events {
                let named = event.str_at("event.name").and_then(|n| self.table.events.get(n));
                let mut shaper = Shaper { texts: &mut self.texts, finish: Vec::new() };
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
        let is_agent = reading.kind != Kind::Llm;
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
        reading: &mut Reading,
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
            let node = event_node(event);
            let mut shaper = Shaper { texts: &mut self.texts, finish: Vec::new() };
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
            if choice && reading.finish.is_empty() {
                reading.finish.extend(node.str_at("finish_reason").and_then(|r| self.texts.some(r)));
            }
        }
    }

    fn evaluations(&mut self, found: &Found<'_>, reading: &mut Reading) {
        if let Some(name) = self.text(found, Field::EvaluationName) {
            let score = match self.value(found, Field::EvaluationScore) {
                Seen::Read((_, value)) => Node::of(value).number(),
                _ => None,
            };
            let label = self.text(found, Field::EvaluationLabel);
            let explanation = self.text(found, Field::EvaluationExplanation);
            reading.evaluations.push(Evaluation { name, score, label, explanation });
        }
        for leaves in
            found.leaves(Field::Evaluations).chunk_by(|a, b| (a.order, a.leaf.n) == (b.order, b.leaf.n))
        {
            let of = |piece: Piece| leaves.iter().find(|f| f.leaf.piece == piece).map(|f| Node::of(f.value));
            let mut text = |piece: Piece| of(piece).and_then(|n| self.texts.some(&n.text()));
            let Some(name) = text(Piece::Name) else { continue };
            let (label, explanation) = (text(Piece::Label), text(Piece::Explanation));
            let score = of(Piece::Score).and_then(|n| n.number());
            reading.evaluations.push(Evaluation { name, score, label, explanation });
        }
        for event in found.events.iter().filter(|e| e.rule == EventRule::Evaluation) {
            let node = event_node(event);
            let Some(name) = node.str_at("gen_ai.evaluation.name") else { continue };
            reading.evaluations.push(Evaluation {
                name: self.texts.intern(name),
                score: node.get("gen_ai.evaluation.score.value").and_then(Node::number),
                label: node.str_at("gen_ai.evaluation.score.label").and_then(|s| self.texts.some(s)),
                explanation: node.str_at("gen_ai.evaluation.explanation").and_then(|s| self.texts.some(s)),
            });
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

/// An event as one map: a log's body, or its attributes.
fn event_node<'a>(event: &Event<'a>) -> Node<'a> {
    let mut entries: Vec<_> = Attributes::new(event.message, event.attributes)
        .map(|(key, value)| (Cow::Borrowed(key), Node::decoded(value)))
        .collect();
    match Node::decoded(event.body) {
        Node::Map(body) => entries.splice(0..0, body).for_each(drop),
        Node::Null => {}
        body => entries.insert(0, (Cow::Borrowed("content"), body)),
    }
    Node::Map(entries)
}

fn event_field<'a>(event: &Event<'a>, keys: &[&str]) -> Option<Value<'a>> {
    keys.iter().find_map(|key| {
        let attributes = Attributes::new(event.message, event.attributes);
        attributes.chain(event.body.entries()).find(|(k, v)| k == key && *v != Value::Empty).map(|(_, v)| v)
    })
}

fn event_id<'a>(event: &Event<'a>) -> Option<&'a str> {
    event_field(event, &["id", "tool_call_id"]).and_then(|v| v.as_str())
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
