//! From a [`Node`] in any message shape to [`Message`]s: the parts form, OpenAI chat and Responses,
//! Anthropic and Bedrock blocks, Gemini contents, LangChain's serialised classes, pairs, and the
//! wrappers around them (conventions, section 5.3).

use std::borrow::Cow;

use super::message::{Message, Part, Role, Text};
use super::node::Node;
use super::part;
use super::texts::Texts;

/// Messages kept of one field: more is a runaway, not a conversation.
pub(crate) const MAX_MESSAGES: usize = 5_000;
/// How far wrappers are unwrapped.
const MAX_DEPTH: usize = 12;

/// Keys that hold the instructions beside a conversation.
const SYSTEM_KEYS: [&str; 6] = [
    "system",
    "system_instruction",
    "systemInstruction",
    "system_prompt",
    "instructions",
    "system_instructions",
];
/// Keys that hold a conversation, most telling first.
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
/// Keys that hold what was asked or answered, in calls of plain functions.
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

/// Reads messages into one trace's texts.
pub(crate) struct MessageReader<'t> {
    pub(crate) texts: &'t mut Texts,
    /// Finish reasons met on the way.
    pub(crate) finish: Vec<Text>,
    /// A block was met that names its type, but whose content was left out.
    pub(crate) withheld: bool,
}

impl<'t> MessageReader<'t> {
    pub(crate) fn new(texts: &'t mut Texts) -> MessageReader<'t> {
        MessageReader { texts, finish: Vec::new(), withheld: false }
    }
}

impl MessageReader<'_> {
    /// The messages in `node`; what names no role is said by `role`.
    pub(crate) fn messages(&mut self, node: &Node<'_>, role: Role) -> Vec<Message> {
        let mut out = Vec::new();
        self.read(node, role, &mut out, MAX_DEPTH);
        out
    }

    /// The one message in `node`, if it is a map that names its role.
    pub(crate) fn single(&mut self, node: &Node<'_>) -> Option<Message> {
        role_of(node).map(|(role, body)| self.message(role, node, body))
    }

    fn read(&mut self, node: &Node<'_>, role: Role, out: &mut Vec<Message>, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        if out.len() >= MAX_MESSAGES {
            return;
        }
        match node {
            Node::Null => {}
            Node::Str(s) => {
                let inner = Node::Str(Cow::Borrowed(s.as_ref())).unfold();
                match &inner {
                    Node::Str(s) if s.is_empty() => {}
                    Node::Str(s) => {
                        let text = Part::Text(self.texts.intern(s));
                        out.push(Message { role, parts: vec![text] });
                    }
                    inner => self.read(inner, role, out, depth),
                }
            }
            Node::List(items) => self.list(items, role, out, depth),
            Node::Map(_) => self.map(node, role, out, depth),
            scalar => {
                let text = Part::Text(self.texts.intern(&scalar.text()));
                out.push(Message { role, parts: vec![text] });
            }
        }
    }

    fn list(&mut self, items: &[Node<'_>], role: Role, out: &mut Vec<Message>, depth: usize) {
        if let [Node::Str(who), said] = items
            && let Some(who) = role_word(who)
        {
            let mut parts = Vec::new();
            self.parts(said, &mut parts);
            out.push(Message { role: who, parts });
            return;
        }
        // Parts without a role, one after the other, make one message.
        let mut open: Option<Role> = None;
        for item in items {
            if let Node::Map(_) = item
                && role_of(item).is_none()
                && let Some(part) = part::read(item, self.texts)
            {
                let part_role = match part {
                    Part::Call(_) | Part::Reasoning(_) => Role::Assistant,
                    Part::Result { .. } => Role::Tool,
                    _ => role,
                };
                match out.last_mut() {
                    Some(last) if open == Some(part_role) => last.parts.push(part),
                    _ => out.push(Message { role: part_role, parts: vec![part] }),
                }
                open = Some(part_role);
            } else {
                open = None;
                self.read(item, role, out, depth);
            }
        }
    }

    fn map(&mut self, node: &Node<'_>, role: Role, out: &mut Vec<Message>, depth: usize) {
        if let Some((role, body)) = role_of(node) {
            let message = self.message(role, node, body);
            out.push(message);
            return;
        }
        self.finish_of(node);
        if let Some(part) = part::read(node, self.texts) {
            out.push(Message { role, parts: vec![part] });
            return;
        }
        let config = node.get("config").or_else(|| node.get("generationConfig"));
        let system = node.any(&SYSTEM_KEYS).or_else(|| config.and_then(|c| c.any(&SYSTEM_KEYS)));
        let before = out.len();
        for key in MESSAGE_KEYS {
            if let Some(inner) = node.get(key)
                && (matches!(inner, Node::List(_) | Node::Map(_)) || inner.as_str().is_some_and(looks_nested))
                && !inner.is_empty()
            {
                let system = system.filter(|s| !std::ptr::eq(*s, inner));
                if let Some(system) = system {
                    self.system(system, out);
                }
                let start = out.len();
                self.read(inner, role, out, depth);
                if out.len() > start {
                    // A chat completion's choice, a Bedrock `output`, say more beside it.
                    return;
                }
                out.truncate(before);
            }
        }
        if let Some(system) = system {
            self.system(system, out);
        }
        let said = node.any(&TEXT_KEYS).or(match node.entries() {
            [(_, only)] => Some(only),
            _ => None,
        });
        match said {
            Some(said) if !said.is_empty() => self.read(said, role, out, depth),
            _ if node.is_empty() => {}
            _ if out.len() > before => {}
            _ => {
                let text = Part::Text(self.texts.intern(&node.to_json()));
                out.push(Message { role, parts: vec![text] });
            }
        }
    }

    fn system(&mut self, node: &Node<'_>, out: &mut Vec<Message>) {
        let mut parts = Vec::new();
        self.parts(node, &mut parts);
        if !parts.is_empty() {
            out.push(Message { role: Role::System, parts });
        }
    }

    fn finish_of(&mut self, node: &Node<'_>) {
        let reason = node.str_at("finish_reason").or_else(|| node.str_at("finishReason"));
        if let Some(reason) = reason.or_else(|| node.str_at("stop_reason")).filter(|r| !r.is_empty()) {
            let reason = self.texts.intern(reason);
            self.finish.push(reason);
        }
    }

    /// One message: `outer` is the map as found, `body` the one that holds its content.
    fn message(&mut self, role: Role, outer: &Node<'_>, body: &Node<'_>) -> Message {
        self.finish_of(outer);
        let mut parts = Vec::new();
        for key in ["reasoning_content", "reasoning", "thinking"] {
            if let Some(said) = body.str_at(key).filter(|s| !s.is_empty()) {
                parts.push(Part::Reasoning(self.texts.intern(said)));
            }
        }
        let content = body.any(&["parts", "content", "contents", "text"]);
        if role == Role::Tool && !content.is_some_and(holds_results) {
            let id =
                body.str_at("tool_call_id").or_else(|| body.str_at("call_id")).or_else(|| body.str_at("id"));
            parts.push(Part::Result {
                id: id.and_then(|s| self.texts.some(s)),
                name: body.str_at("name").and_then(|s| self.texts.some(s)),
                content: {
                    let said = content.map(part::plain).unwrap_or_default();
                    self.texts.intern(&said)
                },
                failed: part::failed(body),
            });
            return Message { role, parts };
        }
        if let Some(content) = content {
            self.parts(content, &mut parts);
        }
        if let Some(refusal) = body.str_at("refusal").filter(|s| !s.is_empty()) {
            parts.push(Part::Text(self.texts.intern(refusal)));
        }
        self.calls(body, &mut parts);
        // Providers that have no tool role send results as the user's.
        let results = !parts.is_empty() && parts.iter().all(|p| matches!(p, Part::Result { .. }));
        Message { role: if results { Role::Tool } else { role }, parts }
    }

    fn calls(&mut self, body: &Node<'_>, parts: &mut Vec<Part>) {
        let extra = body.get("additional_kwargs");
        let calls = [
            body.any(&["tool_calls", "toolCalls"]).or_else(|| extra.and_then(|e| e.get("tool_calls"))),
            body.get("invalid_tool_calls"),
        ];
        let single = body.get("function_call").or_else(|| extra.and_then(|e| e.get("function_call")));
        for call in calls.into_iter().flatten().flat_map(Node::items).chain(single) {
            let Some(new) = part::call(call, self.texts) else { continue };
            let known = parts.iter().any(|p| match p {
                Part::Call(c) => {
                    c.name == new.name
                        && (c.id.is_some() && c.id == new.id
                            || c.arguments == new.arguments && new.id.is_none())
                }
                _ => false,
            });
            if !known {
                parts.push(Part::Call(new));
            }
        }
    }

    /// Content in any form, as parts.
    pub(crate) fn parts(&mut self, content: &Node<'_>, out: &mut Vec<Part>) {
        match content {
            Node::Null => {}
            Node::Str(s) if s.is_empty() => {}
            Node::Str(s) => {
                // A block list may come as JSON; a text that merely is JSON stays the text it is.
                let inner = Node::Str(Cow::Borrowed(s.as_ref())).unfold();
                match &inner {
                    Node::List(items) if !items.is_empty() && items.iter().all(part::is_block) => {
                        self.parts(&inner, out);
                    }
                    _ => out.push(Part::Text(self.texts.intern(s))),
                }
            }
            Node::List(items) => {
                for item in items {
                    let withheld = part::withheld(item);
                    self.withheld |= withheld;
                    match part::read(item, self.texts) {
                        Some(part) => out.push(part),
                        None if withheld || item.is_empty() => {}
                        None => out.push(Part::Text(self.texts.intern(&item.text()))),
                    }
                }
            }
            Node::Map(_) => match part::read(content, self.texts) {
                Some(part) => out.push(part),
                None => match content.any(&["parts", "content", "text"]) {
                    Some(inner @ (Node::List(_) | Node::Str(_))) => self.parts(inner, out),
                    _ => out.push(Part::Text(self.texts.intern(&content.to_json()))),
                },
            },
            scalar => out.push(Part::Text(self.texts.intern(&scalar.text()))),
        }
    }
}

fn looks_nested(s: &str) -> bool {
    matches!(s.trim_ascii_start().as_bytes().first(), Some(b'{' | b'['))
}

fn holds_results(content: &Node<'_>) -> bool {
    content.items().iter().any(part::is_result)
}

/// The role a word names, in any of the words in use.
pub(crate) fn role_word(word: &str) -> Option<Role> {
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

/// Whether a map is a message: its role, and the map that holds its content.
fn role_of<'n, 'a>(node: &'n Node<'a>) -> Option<(Role, &'n Node<'a>)> {
    if let Some(role) = node.str_at("role") {
        let words = role.rsplit('.').next().unwrap_or(role);
        // A role of the framework's own is somebody who speaks to the model.
        return Some((role_word(role).or_else(|| role_word(words)).unwrap_or(Role::User), node));
    }
    // LangChain's constructor form: the class says who speaks.
    if let (Some(kwargs), Some(id)) = (node.get("kwargs"), node.get("id")) {
        let class = id.items().last().and_then(Node::as_str)?;
        return role_word(class).map(|role| (role, kwargs));
    }
    let kind = node.str_at("type")?;
    if let Some(data) = node.get("data") {
        return role_word(kind).map(|role| (role, data));
    }
    if kind != "function" && (node.has("content") || node.has("tool_calls")) {
        return role_word(kind).map(|role| (role, node));
    }
    None
}
