//! One content block of any provider as a [`Part`]; tool calls and results among them.

use std::borrow::Cow;

use super::message::{Part, ToolRequest};
use super::node::Node;
use super::texts::Texts;

const CALL_IDS: [&str; 6] = ["id", "call_id", "tool_call_id", "toolCallId", "toolUseId", "tool_use_id"];
// A result's own `id` may be the item's, not the call's: the explicit names come first.
const RESULT_IDS: [&str; 6] = ["tool_call_id", "call_id", "tool_use_id", "toolCallId", "toolUseId", "id"];
const NAMES: [&str; 4] = ["name", "toolName", "tool_name", "recipient_name"];
const ARGUMENTS: [&str; 5] = ["arguments", "args", "input", "parameters", "action"];
const RESULTS: [&str; 6] = ["response", "result", "content", "output", "results", "outputs"];

/// The block, when it is one. A map that is none of the known blocks is `None`.
pub(crate) fn read(node: &Node<'_>, texts: &mut Texts) -> Option<Part> {
    if let Node::Str(s) = node {
        return texts.some(s).map(Part::Text);
    }
    match node.str_at("type").or_else(|| node.str_at("part_kind")) {
        Some(kind) => typed(kind, node, texts),
        None => untyped(node, texts),
    }
}

fn typed(kind: &str, node: &Node<'_>, texts: &mut Texts) -> Option<Part> {
    match kind {
        "text" | "input_text" | "output_text" | "summary_text" | "refusal" => {
            let said = node.any(&["content", "text", "refusal", "value"])?;
            Some(Part::Text(texts.intern(&plain(said))))
        }
        "reasoning" | "thinking" | "redacted_thinking" | "thought" => {
            let said = node.any(&["content", "text", "thinking", "summary", "reasoning", "data"])?;
            Some(Part::Reasoning(texts.intern(&plain(said))))
        }
        "tool_call_response" | "server_tool_call_response" => Some(result(node, texts)),
        _ if kind.ends_with("_output")
            || kind.ends_with("tool_result")
            || kind == "tool-result"
            || kind == "tool-return" =>
        {
            Some(result(node, texts))
        }
        "function" if node.has("parameters") && !node.has("arguments") => None,
        "tool_call" | "tool-call" | "tool_use" | "function" | "function_call" | "server_tool_call"
        | "server_tool_use" | "mcp_call" | "mcp_tool_use" | "toolCall" => call(node, texts).map(Part::Call),
        // Server-side tools of the Responses API: `web_search_call`, `code_interpreter_call`, ...
        _ if kind.ends_with("_call") => {
            let name = node.any(&NAMES).and_then(Node::as_str).unwrap_or(kind.trim_end_matches("_call"));
            Some(Part::Call(ToolRequest {
                id: node.any(&CALL_IDS).and_then(Node::as_str).and_then(|s| texts.some(s)),
                name: texts.intern(name),
                arguments: node.any(&ARGUMENTS).and_then(|a| texts.some(&a.text())),
            }))
        }
        "image" | "image_url" | "input_image" | "image-data" | "blob" | "uri" | "file" | "input_file"
        | "audio" | "input_audio" | "video" | "media" | "document" | "file-data" => Some(Part::Media),
        _ => None,
    }
}

fn untyped(node: &Node<'_>, texts: &mut Texts) -> Option<Part> {
    let Node::Map(entries) = node else { return None };
    if let Some(call_) = node.any(&["toolUse", "functionCall", "function_call"]) {
        return call(call_, texts).map(Part::Call);
    }
    if let Some(answer) = node.any(&["toolResult", "functionResponse", "function_response"]) {
        return Some(result(answer, texts));
    }
    if node.has("toolCallId") && node.has("toolName") {
        let answered = node.has("result") || node.has("output");
        return if answered { Some(result(node, texts)) } else { call(node, texts).map(Part::Call) };
    }
    if let Some(thought) = node.get("reasoningContent") {
        let said = thought.get("reasoningText").and_then(|t| t.get("text")).unwrap_or(thought);
        return Some(Part::Reasoning(texts.intern(&plain(said))));
    }
    if let Some(text) = node.str_at("text")
        && entries.len() <= 3
    {
        let text = texts.intern(text);
        return Some(if node.get("thought") == Some(&Node::Bool(true)) {
            Part::Reasoning(text)
        } else {
            Part::Text(text)
        });
    }
    let media = ["image", "inlineData", "inline_data", "fileData", "file_data", "document", "video"];
    (entries.len() <= 2 && media.iter().any(|k| node.has(k))).then_some(Part::Media)
}

/// A block of a content list, as against any other map.
pub(crate) fn is_block(node: &Node<'_>) -> bool {
    let typed = node.str_at("type").is_some_and(|t| {
        t.contains("text")
            || t.contains("tool")
            || t.contains("function_call")
            || t.contains("thinking")
            || t == "reasoning"
            || t.contains("image")
    });
    typed
        || ["toolUse", "toolResult", "functionCall", "reasoningContent"].iter().any(|k| node.has(k))
        || matches!(node.entries(), [(k, Node::Str(_))] if k == "text")
}

/// A block of which only the frame was recorded: a type and perhaps a call's id and name, but no
/// content (`include_content=False` of Pydantic AI, and like settings).
pub(crate) fn withheld(node: &Node<'_>) -> bool {
    let Some(kind) = node.str_at("type") else { return false };
    let frame = |key: &str| {
        matches!(key, "type" | "index" | "builtin" | "status" | "is_error")
            || RESULT_IDS.contains(&key)
            || NAMES.contains(&key)
    };
    let may_hold = ["text", "input_text", "output_text", "reasoning", "thinking"].contains(&kind)
        || kind.starts_with("tool_call")
        || kind.starts_with("tool-");
    may_hold && node.entries().iter().all(|(key, _)| frame(key))
}

/// A block that carries a tool's answer.
pub(crate) fn is_result(node: &Node<'_>) -> bool {
    node.has("toolResult")
        || node.has("functionResponse")
        || node.has("function_response")
        || node.str_at("type").is_some_and(|t| {
            t.ends_with("response")
                || t.ends_with("tool_result")
                || t.ends_with("_output")
                || t == "tool-result"
        })
}

/// A tool call, in any provider's form.
pub(crate) fn call(node: &Node<'_>, texts: &mut Texts) -> Option<ToolRequest> {
    let function = node.get("function").filter(|f| matches!(f, Node::Map(_))).unwrap_or(node);
    let name = function.any(&NAMES).or_else(|| node.any(&NAMES)).and_then(Node::as_str)?;
    let arguments = function.any(&ARGUMENTS).or_else(|| node.any(&ARGUMENTS));
    Some(ToolRequest {
        id: node.any(&CALL_IDS).and_then(Node::as_str).and_then(|s| texts.some(s)),
        name: texts.intern(name),
        arguments: arguments.and_then(|a| texts.some(&a.text())),
    })
}

fn result(node: &Node<'_>, texts: &mut Texts) -> Part {
    let said = node.any(&RESULTS);
    Part::Result {
        id: node.any(&RESULT_IDS).and_then(Node::as_str).and_then(|s| texts.some(s)),
        name: node.any(&NAMES).and_then(Node::as_str).and_then(|s| texts.some(s)),
        content: {
            let said = said.or(node.get("error")).map(plain).unwrap_or_default();
            texts.intern(&said)
        },
        failed: failed(node) || said.is_some_and(failed) || (said.is_none() && node.has("error")),
    }
}

/// The convention's own mark of a failed tool.
pub(crate) fn failed(node: &Node<'_>) -> bool {
    node.any(&["is_error", "isError", "failed"]) == Some(&Node::Bool(true))
        || node.str_at("status").is_some_and(|s| matches!(s, "error" | "failed" | "failure"))
        || node.str_at("type").is_some_and(|t| {
            matches!(t, "error-text" | "error-json" | "execution-denied" | "tool_result_error")
        })
}

/// What a result or a content list says, as one text: blocks joined, wrappers off, anything else
/// as JSON.
pub(crate) fn plain<'n>(node: &'n Node<'_>) -> Cow<'n, str> {
    plain_within(node, 8)
}

fn plain_within<'n>(node: &'n Node<'_>, depth: usize) -> Cow<'n, str> {
    let Some(depth) = depth.checked_sub(1) else { return node.text() };
    match node {
        Node::Null => Cow::Borrowed(""),
        Node::Str(s) => Cow::Borrowed(s),
        Node::List(items)
            if !items.is_empty() && items.iter().all(|i| is_block(i) || matches!(i, Node::Str(_))) =>
        {
            match items.as_slice() {
                [only] => plain_within(only, depth),
                many => {
                    let texts: Vec<_> = many.iter().map(|n| plain_within(n, depth)).collect();
                    Cow::Owned(texts.join("\n"))
                }
            }
        }
        Node::Map(_) => match wrapped(node) {
            Some(inner) => plain_within(inner, depth),
            None => node.text(),
        },
        other => other.text(),
    }
}

/// What the map `node` wraps; nothing where it speaks for itself.
pub(crate) fn wrapped<'n, 'a>(node: &'n Node<'a>) -> Option<&'n Node<'a>> {
    match node.entries() {
        [(k, v)]
            if matches!(
                k.as_ref(),
                "result" | "output" | "text" | "content" | "json" | "value" | "toolResult"
            ) =>
        {
            Some(v)
        }
        _ if is_block(node) || node.has("isError") || node.has("is_error") => {
            node.any(&["text", "content", "value", "toolResult", "output", "blocks"])
        }
        [_, _] if node.has("type") => node.any(&["value", "text", "content"]),
        _ => None,
    }
}
