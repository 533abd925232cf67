//! Reads one content block of any provider as a [`Part`], including tool calls and results.

use std::borrow::Cow;

use super::message::{Part, ToolRequest};
use super::node::ContentNode;
use super::texts::TextInterner;

// `id` comes last: it may be the id of the item or of the result and not of the call.
const CALL_ID_KEYS: [&str; 7] =
    ["tool_call_id", "call_id", "tool_use_id", "toolCallId", "toolUseId", "ref", "id"];
const NAME_KEYS: [&str; 4] = ["name", "toolName", "tool_name", "recipient_name"];
const ARGUMENT_KEYS: [&str; 5] = ["arguments", "args", "input", "parameters", "action"];
const RESULT_KEYS: [&str; 6] = ["response", "result", "content", "output", "results", "outputs"];

/// Reads `node` as a part; `None` for a map that is no known block.
pub(crate) fn read(node: &ContentNode<'_>, texts: &mut TextInterner) -> Option<Part> {
    if let ContentNode::Str(s) = node {
        return texts.non_empty(s).map(Part::Text);
    }
    match node.str_at("type").or_else(|| node.str_at("part_kind")) {
        Some(block_type) => read_typed(block_type, node, texts),
        None => read_untyped(node, texts),
    }
}

/// Reads a block that names its type.
fn read_typed(block_type: &str, node: &ContentNode<'_>, texts: &mut TextInterner) -> Option<Part> {
    match block_type {
        "text" | "input_text" | "output_text" | "summary_text" | "refusal" => {
            let text = node.first_of(&["content", "text", "refusal", "value"])?;
            Some(Part::Text(texts.intern(&plain(text))))
        }
        "reasoning" | "thinking" | "redacted_thinking" | "thought" => {
            let text = node.first_of(&["content", "text", "thinking", "summary", "reasoning", "data"])?;
            Some(Part::Reasoning(texts.intern(&plain(text))))
        }
        "tool_call_response" | "server_tool_call_response" => Some(result(node, texts)),
        "tool-result" | "tool-return" => Some(result(node, texts)),
        _ if block_type.ends_with("_output") || block_type.ends_with("tool_result") => {
            Some(result(node, texts))
        }
        "function" if node.has_key("parameters") && !node.has_key("arguments") => None,
        "tool_call" | "tool-call" | "tool_use" | "function" | "function_call" | "server_tool_call"
        | "server_tool_use" | "mcp_call" | "mcp_tool_use" | "toolCall" => call(node, texts).map(Part::Call),
        // Server-side tools of the Responses API: `web_search_call`, `code_interpreter_call`, ...
        _ if block_type.ends_with("_call") => {
            let recorded_name = node.first_of(&NAME_KEYS).and_then(ContentNode::as_str);
            let name = recorded_name.unwrap_or(block_type.trim_end_matches("_call"));
            Some(Part::Call(request(node, name, node.first_of(&ARGUMENT_KEYS), texts)))
        }
        "image" | "image_url" | "input_image" | "image-data" | "blob" | "uri" | "file" | "input_file"
        | "audio" | "input_audio" | "video" | "media" | "document" | "file-data" => Some(Part::Media),
        _ => None,
    }
}

/// Reads a block whose keys show its type (Bedrock, Gemini).
fn read_untyped(node: &ContentNode<'_>, texts: &mut TextInterner) -> Option<Part> {
    let ContentNode::Map(entries) = node else { return None };
    if let Some(tool_use) = node.first_of(&["toolUse", "functionCall", "function_call", "toolRequest"]) {
        return call(tool_use, texts).map(Part::Call);
    }
    if let Some(response) =
        node.first_of(&["toolResult", "functionResponse", "function_response", "toolResponse"])
    {
        return Some(result(response, texts));
    }
    if node.has_key("toolCallId") && node.has_key("toolName") {
        let has_result = node.has_key("result") || node.has_key("output");
        return if has_result { Some(result(node, texts)) } else { call(node, texts).map(Part::Call) };
    }
    if let Some(reasoning) = node.get("reasoningContent") {
        let text = reasoning.get("reasoningText").and_then(|t| t.get("text")).unwrap_or(reasoning);
        return Some(Part::Reasoning(texts.intern(&plain(text))));
    }
    if let Some(text) = node.str_at("text")
        && entries.len() <= 3
    {
        let text = texts.intern(text);
        let is_thought = node.get("thought") == Some(&ContentNode::Bool(true));
        return Some(if is_thought { Part::Reasoning(text) } else { Part::Text(text) });
    }
    let media = ["image", "inlineData", "inline_data", "fileData", "file_data", "document", "video"];
    (entries.len() <= 2 && media.iter().any(|k| node.has_key(k))).then_some(Part::Media)
}

/// Whether a map is a block of a content list.
pub(crate) fn is_block(node: &ContentNode<'_>) -> bool {
    const TYPES: [&str; 5] = ["text", "tool", "function_call", "thinking", "image"];
    node.str_at("type").is_some_and(|t| t == "reasoning" || TYPES.iter().any(|word| t.contains(word)))
        || ["toolUse", "toolResult", "functionCall", "reasoningContent", "toolRequest", "toolResponse"]
            .iter()
            .any(|k| node.has_key(k))
        || matches!(node.entries(), [(k, ContentNode::Str(_))] if k == "text")
}

/// Whether a block was recorded without its content: with a type and perhaps a call's id and name
/// only (`include_content=False` of Pydantic AI and similar settings), or with the reason.
pub(crate) fn is_withheld(node: &ContentNode<'_>) -> bool {
    if node.has_key("stripped_reason") && !node.has_key("content") {
        return true;
    }
    let Some(block_type) = node.str_at("type") else { return false };
    // Most blocks have content.
    if node.has_key("content") || node.has_key("text") {
        return false;
    }
    let is_metadata = |key: &str| {
        matches!(key, "type" | "index" | "builtin" | "status" | "is_error")
            || CALL_ID_KEYS.contains(&key)
            || NAME_KEYS.contains(&key)
    };
    let has_content_when_recorded = ["text", "input_text", "output_text", "reasoning", "thinking"]
        .contains(&block_type)
        || block_type.starts_with("tool_call")
        || block_type.starts_with("tool-");
    has_content_when_recorded && node.entries().iter().all(|(key, _)| is_metadata(key))
}

/// Whether a block is a tool result.
pub(crate) fn is_result(node: &ContentNode<'_>) -> bool {
    node.has_key("toolResult")
        || node.has_key("functionResponse")
        || node.has_key("function_response")
        || node.has_key("toolResponse")
        || node.str_at("type").is_some_and(|t| {
            t == "tool-result" || ["response", "tool_result", "_output"].iter().any(|end| t.ends_with(end))
        })
}

/// A tool call in any provider's format.
pub(crate) fn call(node: &ContentNode<'_>, texts: &mut TextInterner) -> Option<ToolRequest> {
    let function = node.get("function").filter(|f| matches!(f, ContentNode::Map(_))).unwrap_or(node);
    let name =
        function.first_of(&NAME_KEYS).or_else(|| node.first_of(&NAME_KEYS)).and_then(ContentNode::as_str)?;
    Some(request(
        node,
        name,
        function.first_of(&ARGUMENT_KEYS).or_else(|| node.first_of(&ARGUMENT_KEYS)),
        texts,
    ))
}

fn request(
    node: &ContentNode<'_>,
    name: &str,
    arguments: Option<&ContentNode<'_>>,
    texts: &mut TextInterner,
) -> ToolRequest {
    ToolRequest {
        id: texts.option(node.first_of(&CALL_ID_KEYS).and_then(ContentNode::as_str)),
        name: texts.intern(name),
        arguments: arguments.and_then(|a| texts.non_empty(&a.text())),
    }
}

fn result(node: &ContentNode<'_>, texts: &mut TextInterner) -> Part {
    let value = node.first_of(&RESULT_KEYS);
    Part::Result {
        id: texts.option(node.first_of(&CALL_ID_KEYS).and_then(ContentNode::as_str)),
        name: texts.option(node.first_of(&NAME_KEYS).and_then(ContentNode::as_str)),
        content: texts.intern(&value.or(node.get("error")).map(plain).unwrap_or_default()),
        failed: has_failure_flag(node) || value.map_or(node.has_key("error"), has_failure_flag),
    }
}

/// Whether a result carries its convention's flag for a failed tool.
pub(crate) fn has_failure_flag(node: &ContentNode<'_>) -> bool {
    node.first_of(&["is_error", "isError", "failed"]) == Some(&ContentNode::Bool(true))
        || node.str_at("status").is_some_and(|s| matches!(s, "error" | "failed" | "failure"))
        || node.str_at("type").is_some_and(|t| {
            matches!(t, "error-text" | "error-json" | "execution-denied" | "tool_result_error")
        })
}

/// The text of a result or a content list: blocks joined by newlines, wrappers removed, anything
/// else as JSON.
pub(crate) fn plain<'n>(node: &'n ContentNode<'_>) -> Cow<'n, str> {
    plain_within(node, MAX_WRAPPERS)
}

/// Maximum number of nested wrappers around a text.
const MAX_WRAPPERS: usize = 8;

fn plain_within<'n>(node: &'n ContentNode<'_>, depth: usize) -> Cow<'n, str> {
    let Some(depth) = depth.checked_sub(1) else { return node.text() };
    match node {
        ContentNode::Null => Cow::Borrowed(""),
        ContentNode::Str(s) => Cow::Borrowed(s),
        ContentNode::List(items)
            if !items.is_empty() && items.iter().all(|i| is_block(i) || matches!(i, ContentNode::Str(_))) =>
        {
            let mut texts: Vec<_> = items.iter().map(|item| plain_within(item, depth)).collect();
            if texts.len() == 1 { texts.remove(0) } else { Cow::Owned(texts.join("\n")) }
        }
        ContentNode::Map(_) => match wrapped(node) {
            Some(inner) => plain_within(inner, depth),
            None => node.text(),
        },
        other => other.text(),
    }
}

/// The value that the map `node` wraps; `None` if it is no wrapper.
pub(crate) fn wrapped<'n, 'a>(node: &'n ContentNode<'a>) -> Option<&'n ContentNode<'a>> {
    match node.entries() {
        [(k, v)]
            if matches!(
                k.as_ref(),
                "result" | "output" | "text" | "content" | "json" | "value" | "toolResult"
            ) =>
        {
            Some(v)
        }
        _ if is_block(node) || node.has_key("isError") || node.has_key("is_error") => {
            node.first_of(&["text", "content", "value", "toolResult", "output", "blocks"])
        }
        [_, _] if node.has_key("type") => node.first_of(&["value", "text", "content"]),
        _ => None,
    }
}
