//! Converts a [`ContentNode`] in any message format to [`Message`]s: OpenTelemetry's parts, OpenAI chat and
//! Responses, Anthropic and Bedrock blocks, Gemini contents, LangChain's serialised classes, pairs,
//! and the wrappers around them.

use std::borrow::Cow;

use foldhash::{HashSet, HashSetExt};

use super::message::{Message, Part, Role, Text, ToolRequest};
use super::node::ContentNode;
use super::part;
use super::texts::TextInterner;

/// Maximum number of messages in one field. No conversation is longer.
pub(crate) const MAX_MESSAGES: usize = 5_000;
/// Maximum number of nested wrappers.
const MAX_DEPTH: usize = 12;

/// Keys of instructions that are recorded next to a conversation.
const SYSTEM_KEYS: [&str; 6] = [
    "system",
    "system_instruction",
    "systemInstruction",
    "system_prompt",
    "instructions",
    "system_instructions",
];
/// Keys of a conversation, in order of precedence.
const MESSAGE_KEYS: [&str; 22] = [
    "messages",
    "all_messages",
    "new_messages",
    "contents",
    "choices",
    "generations",
    "candidates",
    "message",
    "output",
    "outputs",
    "inputs",
    "input",
    "update",
    "prompt",
    "prompts",
    "content",
    "data",
    "value",
    "response",
    "request",
    "return_values",
    "raw_output",
];
/// Keys of a question or an answer in calls of plain functions, in order of precedence.
const TEXT_KEYS: [&str; 22] = [
    "question",
    "query",
    "task",
    "user_input",
    "user_message",
    "user_query",
    "user_prompt",
    "prompt",
    "input",
    "text",
    "answer",
    "final_answer",
    "final_output",
    "output",
    "result",
    "response",
    "reply",
    "completion",
    "message",
    "instruction",
    "topic",
    "objective",
];

/// Reads messages and interns their texts.
pub(crate) struct MessageReader<'t> {
    pub(crate) texts: &'t mut TextInterner,
    /// The finish reasons of the messages read so far.
    pub(crate) finish: Vec<Text>,
    /// A block was read that names its type but was recorded without its content.
    pub(crate) withheld: bool,
}

impl<'t> MessageReader<'t> {
    pub(crate) fn new(texts: &'t mut TextInterner) -> MessageReader<'t> {
        MessageReader { texts, finish: Vec::new(), withheld: false }
    }
}

impl MessageReader<'_> {
    /// The messages in `node`. `role` applies to content that names no role.
    pub(crate) fn messages(&mut self, node: &ContentNode<'_>, role: Role) -> Vec<Message> {
        let mut out = Vec::new();
        self.read(node, role, &mut out, MAX_DEPTH);
        out
    }

    /// Reads `node` as one message; `None` unless it is a map that names its role.
    pub(crate) fn single(&mut self, node: &ContentNode<'_>) -> Option<Message> {
        role_of(node).map(|(role, body)| self.message(role, node, body))
    }

    fn read(&mut self, node: &ContentNode<'_>, role: Role, out: &mut Vec<Message>, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        if out.len() >= MAX_MESSAGES {
            return;
        }
        match node {
            ContentNode::Null => {}
            ContentNode::Str(s) => match ContentNode::Str(Cow::Borrowed(s.as_ref())).unfold() {
                ContentNode::Str(s) if s.is_empty() => {}
                ContentNode::Str(s) => self.push_text(&s, role, out),
                inner => self.read(&inner, role, out, depth),
            },
            ContentNode::List(items) => self.read_list(items, role, out, depth),
            ContentNode::Map(_) => self.read_map(node, role, out, depth),
            scalar => self.push_text(&scalar.text(), role, out),
        }
    }

    fn push_text(&mut self, text: &str, role: Role, out: &mut Vec<Message>) {
        out.push(Message { role, parts: vec![Part::Text(self.texts.intern(text))].into() });
    }

    fn read_list(&mut self, items: &[ContentNode<'_>], role: Role, out: &mut Vec<Message>, depth: usize) {
        if let [ContentNode::Str(role), content] = items
            && let Some(role) = role_of_word(role)
        {
            let parts = self.parts(content).into();
            return out.push(Message { role, parts });
        }
        // Consecutive parts without a role of their own are one message, which has this role.
        let mut open_role: Option<Role> = None;
        for item in items {
            if let ContentNode::Map(_) = item
                && role_of(item).is_none()
                && let Some(part) = part::read(item, self.texts)
            {
                let part_role = match part {
                    Part::Call(_) | Part::Reasoning(_) => Role::Assistant,
                    Part::Result { .. } => Role::Tool,
                    _ => role,
                };
                match out.last_mut() {
                    Some(last) if open_role == Some(part_role) => last.parts.push(part),
                    _ => out.push(Message { role: part_role, parts: vec![part].into() }),
                }
                open_role = Some(part_role);
            } else {
                open_role = None;
                self.read(item, role, out, depth);
            }
        }
    }

    fn read_map(&mut self, node: &ContentNode<'_>, role: Role, out: &mut Vec<Message>, depth: usize) {
        if let Some(message) = self.single(node) {
            return out.push(message);
        }
        // The result of a model call without a role: `{ text, toolCalls }`.
        let calls = node.first_of(&["toolCalls", "tool_calls"]).map_or(&[][..], ContentNode::items);
        if !calls.is_empty() && node.first_of(&["text", "content"]).is_some() {
            return out.push(self.message(role, node, node));
        }
        self.add_finish_reason(node);
        if let Some(part) = part::read(node, self.texts) {
            return out.push(Message { role, parts: vec![part].into() });
        }
        // An answer repeats the instructions of its request.
        let system = system_of(node).filter(|_| role != Role::Assistant);
        if self.nested_messages(node, system, role, out, depth) {
            return;
        }
        let len_before = out.len();
        self.push_system(system, out);
        match text_of(node) {
            Some(text) => self.read(text, role, out, depth),
            // A map may contain only instructions.
            None if node.is_empty() || out.len() > len_before => {}
            None => self.push_text(&node.to_json(), role, out),
        }
    }

    /// Reads the instructions and the first conversation among the members of `node`. Returns false if
    /// there is none. Members of lower precedence repeat or describe the conversation.
    fn nested_messages(
        &mut self,
        node: &ContentNode<'_>,
        system: Option<&ContentNode<'_>>,
        role: Role,
        out: &mut Vec<Message>,
        depth: usize,
    ) -> bool {
        let len_before = out.len();
        let members = MESSAGE_KEYS.iter().filter_map(|key| node.get(key));
        for member in members.filter(|member| is_nested(member)) {
            self.push_system(system.filter(|system| !std::ptr::eq(*system, member)), out);
            let start = out.len();
            self.read(member, role, out, depth);
            if out.len() > start {
                return true;
            }
            out.truncate(len_before);
        }
        false
    }

    fn push_system(&mut self, node: Option<&ContentNode<'_>>, out: &mut Vec<Message>) {
        let parts = node.map(|node| self.parts(node)).unwrap_or_default();
        if !parts.is_empty() {
            out.push(Message { role: Role::System, parts: parts.into() });
        }
    }

    fn add_finish_reason(&mut self, node: &ContentNode<'_>) {
        let reason = node.str_at("finish_reason").or_else(|| node.str_at("finishReason"));
        self.finish.extend(self.texts.option(reason.or_else(|| node.str_at("stop_reason"))));
    }

    /// One message. `body` is the map that contains its content: `outer` itself or a member of it.
    fn message(&mut self, role: Role, outer: &ContentNode<'_>, body: &ContentNode<'_>) -> Message {
        self.add_finish_reason(outer);
        let mut parts = Vec::new();
        for key in ["reasoning_content", "reasoning", "thinking"] {
            parts.extend(self.texts.option(body.str_at(key)).map(Part::Reasoning));
        }
        let content = body.first_of(&["parts", "content", "contents", "text"]);
        if role == Role::Tool && !content.is_some_and(|c| c.items().iter().any(part::is_result)) {
            let id = ["tool_call_id", "call_id", "id"].iter().find_map(|key| body.str_at(key));
            parts.push(Part::Result {
                id: self.texts.option(id),
                name: self.texts.option(body.str_at("name")),
                content: self.texts.intern(&content.map(part::plain).unwrap_or_default()),
                failed: part::has_failure_flag(body),
            });
            return Message { role, parts: parts.into() };
        }
        if let Some(content) = content {
            self.add_parts(content, &mut parts);
        }
        parts.extend(self.texts.option(body.str_at("refusal")).map(Part::Text));
        self.add_calls(body, &mut parts);
        message_of(role, parts)
    }

    /// Adds the tool calls of a message that are recorded outside its content.
    fn add_calls(&mut self, body: &ContentNode<'_>, parts: &mut Vec<Part>) {
        let additional = body.get("additional_kwargs");
        let calls = [
            body.first_of(&["tool_calls", "toolCalls"])
                .or_else(|| additional.and_then(|map| map.get("tool_calls"))),
            body.get("invalid_tool_calls"),
        ];
        let single =
            body.get("function_call").or_else(|| additional.and_then(|map| map.get("function_call")));
        let mut calls = calls.into_iter().flatten().flat_map(ContentNode::items).chain(single).peekable();
        if calls.peek().is_none() {
            return;
        }
        // Two calls are the same if their names and ids are equal, or, without an id, their names and arguments.
        let by_id = |call: &ToolRequest| (true, call.name.clone(), call.id.clone());
        let by_arguments = |call: &ToolRequest| (false, call.name.clone(), call.arguments.clone());
        let mut known_calls: HashSet<_> = HashSet::new();
        for part in &*parts {
            if let Part::Call(call) = part {
                known_calls.extend([by_id(call), by_arguments(call)]);
            }
        }
        for call in calls {
            let Some(request) = part::call(call, self.texts) else { continue };
            let key = if request.id.is_some() { by_id(&request) } else { by_arguments(&request) };
            if !known_calls.contains(&key) {
                known_calls.extend([by_id(&request), by_arguments(&request)]);
                parts.push(Part::Call(request));
            }
        }
    }

    /// The parts of content in any format.
    pub(crate) fn parts(&mut self, content: &ContentNode<'_>) -> Vec<Part> {
        let mut parts = Vec::new();
        self.add_parts(content, &mut parts);
        parts
    }

    fn add_parts(&mut self, content: &ContentNode<'_>, out: &mut Vec<Part>) {
        match content {
            ContentNode::Null => {}
            ContentNode::Str(text) => self.add_text_parts(text, out),
            ContentNode::List(items) => items.iter().for_each(|item| self.add_block(item, out)),
            ContentNode::Map(_) => self.add_map_parts(content, out),
            scalar => out.push(Part::Text(self.texts.intern(&scalar.text()))),
        }
    }

    /// Adds a text. A list of blocks may be recorded as JSON; any other text is kept, even if it is JSON.
    fn add_text_parts(&mut self, text: &str, out: &mut Vec<Part>) {
        match ContentNode::Str(Cow::Borrowed(text)).unfold() {
            ContentNode::List(items) if !items.is_empty() && items.iter().all(part::is_block) => {
                items.iter().for_each(|item| self.add_block(item, out));
            }
            _ => out.extend(self.texts.non_empty(text).map(Part::Text)),
        }
    }

    fn add_block(&mut self, block: &ContentNode<'_>, out: &mut Vec<Part>) {
        let is_withheld = part::is_withheld(block);
        self.withheld |= is_withheld;
        match part::read(block, self.texts) {
            Some(part) => out.push(part),
            None if is_withheld || block.is_empty() => {}
            None => out.push(Part::Text(self.texts.intern(&block.text()))),
        }
    }

    fn add_map_parts(&mut self, map: &ContentNode<'_>, out: &mut Vec<Part>) {
        match (part::read(map, self.texts), map.first_of(&["parts", "content", "text"])) {
            (Some(part), _) => out.push(part),
            (None, Some(inner @ (ContentNode::List(_) | ContentNode::Str(_)))) => self.add_parts(inner, out),
            (None, _) => out.push(Part::Text(self.texts.intern(&map.to_json()))),
        }
    }
}

/// The instructions in a map, or in its configuration (Gemini).
fn system_of<'n, 'a>(node: &'n ContentNode<'a>) -> Option<&'n ContentNode<'a>> {
    let config = || node.first_of(&["config", "generationConfig"])?.first_of(&SYSTEM_KEYS);
    node.first_of(&SYSTEM_KEYS).or_else(config)
}

/// The question or answer in a map, or its only member.
fn text_of<'n, 'a>(node: &'n ContentNode<'a>) -> Option<&'n ContentNode<'a>> {
    let only = match node.entries() {
        [(_, only)] => Some(only),
        _ => None,
    };
    node.first_of(&TEXT_KEYS).or(only).filter(|text| !text.is_empty())
}

/// Whether a member may contain messages: a list or map, or a text that begins like one.
fn is_nested(member: &ContentNode<'_>) -> bool {
    match member {
        ContentNode::List(_) | ContentNode::Map(_) => !member.is_empty(),
        ContentNode::Str(s) => matches!(s.trim_ascii_start().as_bytes().first(), Some(b'{' | b'[')),
        _ => false,
    }
}

/// A message. If all parts are results its role is `tool`: providers without that role record results in user messages.
pub(super) fn message_of(role: Role, parts: Vec<Part>) -> Message {
    let has_only_results = !parts.is_empty() && parts.iter().all(|p| matches!(p, Part::Result { .. }));
    Message { role: if has_only_results { Role::Tool } else { role }, parts: parts.into() }
}

/// The role of a message that names it.
pub(super) fn role_named(role: &str) -> Role {
    let last_word = role.rsplit('.').next().unwrap_or(role);
    // A role that is specific to a framework counts as that of a user: such a message is input of the model.
    role_of_word(role).or_else(|| role_of_word(last_word)).unwrap_or(Role::User)
}

/// The role that a word or class name denotes in any convention.
pub(crate) fn role_of_word(word: &str) -> Option<Role> {
    Some(match word {
        "system" | "developer" | "SystemMessage" => Role::System,
        "user" | "human" | "HumanMessage" | "HumanMessageChunk" | "USER" => Role::User,
        "assistant" | "ai" | "model" | "AIMessage" | "AIMessageChunk" | "ASSISTANT" | "tool-call" => {
            Role::Assistant
        }
        "tool" | "function" | "ToolMessage" | "FunctionMessage" | "tool-response" | "TOOL" => Role::Tool,
        _ => return None,
    })
}

/// The role of a map that is a message, and the map with its content.
fn role_of<'n, 'a>(node: &'n ContentNode<'a>) -> Option<(Role, &'n ContentNode<'a>)> {
    if let Some(role) = node.str_at("role") {
        return Some((role_named(role), node));
    }
    // LangChain's constructor form: the class is the role.
    if let (Some(kwargs), Some(id)) = (node.get("kwargs"), node.get("id")) {
        let class = id.items().last().and_then(ContentNode::as_str)?;
        return role_of_word(class).map(|role| (role, kwargs));
    }
    let message_type = node.str_at("type")?;
    if let Some(data) = node.get("data") {
        return role_of_word(message_type).map(|role| (role, data));
    }
    if message_type != "function" && (node.has_key("content") || node.has_key("tool_calls")) {
        return role_of_word(message_type).map(|role| (role, node));
    }
    None
}
