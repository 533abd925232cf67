//! The spans, messages and texts of which the shapes consist.

use bytes::Bytes;
use serde_json::{Value, json};
use verdict_otlp::trace::{Envelope, Span, SpanId, Status};
use verdict_otlp::value::SPAN_ATTRIBUTES;
use verdict_otlp::write::{self, Scalar};

/// 2026-01-01, in nanoseconds since 1970.
const START_UNIX_NANOS: u64 = 1_767_225_600_000_000_000;
/// The field of a span with its links.
const SPAN_LINKS: u32 = 13;
/// The duration of a model or tool call.
pub const CALL_NANOS: u64 = 1_000_000;

pub const TASK: &str = "Use look_up to find how high each mountain is, and answer with a source.";

pub fn span(i: u64, parent: u64, attributes: &[(&str, &str)]) -> Span {
    let id = |i: u64| SpanId(i.to_be_bytes());
    let mut bytes = Vec::new();
    attributes.iter().for_each(|(key, value)| {
        write::attribute(&mut bytes, SPAN_ATTRIBUTES, key, Scalar::Str(value));
    });
    Span {
        id: id(i),
        parent: id(parent),
        start: START_UNIX_NANOS + i * CALL_NANOS,
        end: START_UNIX_NANOS + (i + 1) * CALL_NANOS,
        status: Status::Unset,
        remote_parent: false,
        has_verdict: false,
        forwarded: false,
        skew: 0,
        bytes: Bytes::from(bytes),
        envelope: Envelope::default().into(),
    }
}

pub fn agent_span(i: u64, parent: u64, name: &str) -> Span {
    agent_span_with_prompt(i, parent, name, TASK)
}

pub fn agent_span_with_prompt(i: u64, parent: u64, name: &str, prompt: &str) -> Span {
    let input = json!([user_message(prompt)]).to_string();
    let attributes = [
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.agent.name", name),
        ("gen_ai.input.messages", input.as_str()),
    ];
    span(i, parent, &attributes)
}

pub fn model_call(i: u64, parent: u64, input: &[Value], output: &[Value]) -> Span {
    model_call_with_tools(i, parent, &tool_definition("look_up"), input, output)
}

pub fn model_call_with_tools(
    i: u64,
    parent: u64,
    definitions: &str,
    input: &[Value],
    output: &[Value],
) -> Span {
    let input = Value::from(input).to_string();
    let output = json!([{ "role": "assistant", "parts": output, "finish_reason": "stop" }]).to_string();
    let attributes = [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.request.model", "m"),
        ("gen_ai.tool.definitions", definitions),
        ("gen_ai.input.messages", input.as_str()),
        ("gen_ai.output.messages", output.as_str()),
    ];
    span(i, parent, &attributes)
}

pub fn tool_call(i: u64, parent: u64, name: &str, id: u64, result: &str) -> Span {
    tool_call_with_arguments(i, parent, name, id, &json!({ "q": format!("mountain {id}") }), result)
}

pub fn tool_call_with_arguments(
    i: u64,
    parent: u64,
    name: &str,
    id: u64,
    arguments: &Value,
    result: &str,
) -> Span {
    let (arguments, id) = (arguments.to_string(), id.to_string());
    let attributes = [
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", name),
        ("gen_ai.tool.call.id", id.as_str()),
        ("gen_ai.tool.call.arguments", arguments.as_str()),
        ("gen_ai.tool.call.result", result),
    ];
    span(i, parent, &attributes)
}

pub fn failing_tool_call(i: u64, parent: u64) -> Span {
    tool_call(i, parent, "look_up", i / 2, "Error: not found")
}

pub fn tool_definition(name: &str) -> String {
    let parameters =
        json!({ "type": "object", "properties": { "q": { "type": "string" } }, "required": ["q"] });
    json!([{ "type": "function", "name": name, "parameters": parameters }]).to_string()
}

pub fn user_message(content: &str) -> Value {
    json!({ "role": "user", "parts": [text_part(content)] })
}

pub fn text_part(content: &str) -> Value {
    json!({ "type": "text", "content": content })
}

/// The answer about mountain `i`. One of its two figures is in no result.
pub fn answer_part(i: u64) -> Value {
    text_part(&height_sentence(i))
}

pub fn height_sentence(i: u64) -> String {
    format!("Mountain {i} is {} m high, as of 2025-03-02, in {}.", 1_000 + 2 * i, 3_000 + i)
}

pub fn sentences(n: u64, sentence: impl Fn(u64) -> String) -> String {
    (0..n).map(|i| sentence(i) + " ").collect()
}

pub fn nested_object(depth: u64) -> Value {
    (0..depth).fold(json!("x"), |below, _| json!({ "a": below }))
}

pub fn call(name: &str, id: u64) -> Value {
    call_part_with_arguments(name, id, &json!({ "q": format!("mountain {id}") }))
}

pub fn call_part_with_arguments(name: &str, id: u64, arguments: &Value) -> Value {
    json!({ "type": "tool_call", "id": id.to_string(), "name": name, "arguments": arguments })
}

pub fn result_part(id: u64) -> Value {
    json!({ "type": "tool_call_response", "id": id.to_string(), "response": height_result(id) })
}

pub fn height_result(i: u64) -> String {
    format!("Mountain {i}: {} m above the sea.", 1_000 + 2 * i)
}

pub fn json_array(n: u64, part: impl Fn(u64) -> Value) -> Vec<Value> {
    (0..n).map(part).collect()
}

/// A root with the number 1, and the spans 2 to `n`; `parent` returns the number of a span's parent.
pub fn spans_below_root(
    n: u64,
    parent: impl Fn(u64) -> u64,
    make_span: impl Fn(u64, u64) -> Span,
) -> Vec<Span> {
    let mut spans = vec![agent_span(1, 0, "finder")];
    spans.extend((2..=n).map(|i| make_span(i, parent(i))));
    spans
}

/// `span` with links to the spans of the numbers `to`.
pub fn with_links(mut span: Span, to: std::ops::Range<u64>) -> Span {
    let mut bytes = span.bytes.to_vec();
    for i in to {
        let mut link = Vec::new();
        write::bytes(&mut link, 1, &[1; 16]);
        write::bytes(&mut link, 2, &i.to_be_bytes());
        write::bytes(&mut bytes, SPAN_LINKS, &link);
    }
    span.bytes = bytes.into();
    span
}
