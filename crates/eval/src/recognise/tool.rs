//! Tool arguments, results and definitions out of their wrappings (conventions, section 2).

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::message::{Text, ToolDefinition};
use super::node::Node;
use super::texts::Texts;
use super::{json_keys, part, python_repr};

/// Tools read of one definition list.
const MAX_TOOLS: usize = 1_000;
/// A schema larger than this is kept as a name only.
const MAX_SCHEMA: usize = 1 << 20;

/// The call's arguments as JSON or, where they are no object, as they stand.
///
/// `names` are the tool's parameters in order, to name positional arguments by.
pub(crate) fn arguments<'n>(node: &'n Node<'_>, names: &[&str]) -> Cow<'n, str> {
    match unwrap_arguments(node, names) {
        Some(node) => Cow::Owned(node.to_json()),
        None => node.text(),
    }
}

/// As [`arguments`], of a text: what needs no unwrapping stays as it was written.
pub(crate) fn arguments_from_text<'n>(text: &'n str, names: &[&str]) -> Cow<'n, str> {
    let node = Node::Str(Cow::Borrowed(text)).unfold();
    match unwrap_arguments(&node, names) {
        Some(node) => Cow::Owned(node.to_json()),
        None if text.trim_start().starts_with('"') => Cow::Owned(node.text().into_owned()),
        None => Cow::Borrowed(text),
    }
}

fn unwrap_arguments<'a>(node: &Node<'a>, names: &[&str]) -> Option<Node<'a>> {
    let Node::Map(entries) = node else { return None };
    // OpenLLMetry's LangChain handler: the arguments among the run's settings.
    if let Some(written) = node.get("input_str") {
        return node.get("inputs").filter(|i| matches!(i, Node::Map(_)) && !i.is_empty()).cloned().or_else(
            || {
                let written = written.as_str()?;
                match python_repr::parse(written).or_else(|| Node::json(written).map(Node::into_owned)) {
                    Some(map @ Node::Map(_)) => Some(map),
                    _ => Some(name_positional(vec![Node::Str(Cow::Owned(written.to_owned()))], names)),
                }
            },
        );
    }
    // A decorated function: `{"args": [], "kwargs": {}}`, perhaps with settings of the decorator.
    if let (Some(Node::List(args)), Some(Node::Map(kwargs))) = (node.get("args"), node.get("kwargs")) {
        let Node::Map(mut all) = name_positional(args.clone(), names) else {
            return Some(Node::List(args.clone()));
        };
        all.extend(kwargs.iter().cloned());
        return Some(Node::Map(all));
    }
    // LangChain's tool node: a tool call in place of its arguments.
    if let Some(args @ Node::Map(_)) = node.get("args")
        && node.has("name")
        && entries.len() <= 4
    {
        return Some(args.clone());
    }
    match entries.as_slice() {
        [(key, inner @ Node::Map(_))] if matches!(key.as_ref(), "inputs" | "kwargs" | "arguments") => {
            Some(inner.clone())
        }
        _ => None,
    }
}

/// Positional arguments under the parameters' names; a bare list where there are too few names.
fn name_positional<'a>(args: Vec<Node<'a>>, names: &[&str]) -> Node<'a> {
    if args.len() > names.len() {
        return Node::List(args);
    }
    Node::Map(names.iter().map(|n| Cow::Owned((*n).to_owned())).zip(args).collect())
}

/// What the tool said, and whether the result itself is marked as failed. `written` is the JSON
/// that `node` was read from, where it was.
pub(crate) fn result(node: &Node<'_>, written: Option<&str>) -> (String, bool) {
    result_within(node, written, 6)
}

fn result_within(node: &Node<'_>, written: Option<&str>, depth: usize) -> (String, bool) {
    let Some(depth) = depth.checked_sub(1) else { return (node.text().into_owned(), false) };
    let failed = part::failed(node);
    // A LangChain message in place of the result; a run's output among its settings.
    let message = node.get("data").or_else(|| node.get("kwargs")).filter(|inner| inner.has("content"));
    let inner = match node.entries() {
        [(key, inner)] if matches!(key.as_ref(), "result" | "output" | "outputs" | "toolResult") => {
            Some(inner)
        }
        [(a, inner), (b, _)] if a == "output" && b == "kwargs" => Some(inner),
        _ if message.is_some() => return message_result(message.unwrap_or(node), failed),
        _ if node.has("tool_call_id") && node.has("content") => return message_result(node, failed),
        _ => None,
    };
    match inner {
        Some(inner) => {
            let (text, inside) = result_within(inner, None, depth);
            (text, failed || inside)
        }
        None => {
            let own = matches!(node, Node::Map(_)) && part::wrapped(node).is_none();
            let text = match written.filter(|written| own && is_compact(written, |_| false)) {
                Some(written) => written.to_owned(),
                None => part::plain(node).into_owned(),
            };
            (text, failed || node.items().iter().any(part::failed))
        }
    }
}

/// Keys by which [`result`] and what it asks tell a wrapping, a block of content, or a failure.
fn is_wrapper_key(key: &[u8]) -> bool {
    matches!(
        key,
        b"is_error"
            | b"isError"
            | b"failed"
            | b"status"
            | b"type"
            | b"data"
            | b"kwargs"
            | b"tool_call_id"
            | b"content"
            | b"result"
            | b"output"
            | b"outputs"
            | b"toolResult"
            | b"text"
            | b"json"
            | b"value"
            | b"toolUse"
            | b"functionCall"
            | b"reasoningContent"
            | b"blocks"
            | b"message"
            | b"response"
            | b"results"
            | b"error"
    )
}

/// Whether a text that begins as a map is what the tool said, word for word: [`result`] would give
/// it back as it stands, and no failure. Costs a tenth of parsing it.
pub(crate) fn is_unwrapped(text: &str) -> bool {
    text.starts_with('{') && is_compact(text, is_wrapper_key)
}

/// Whether JSON is written just as we would write it: no blanks, no escapes that are not needed,
/// no numbers but plain integers; and has, at any depth, no key that is `is_barred`. Costs a tenth of
/// writing it anew.
fn is_compact(json: &str, is_barred: impl Fn(&[u8]) -> bool) -> bool {
    const DIGITS: usize = 18;
    let bytes = json.as_bytes();
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        let rest = bytes.get(at + 1..).unwrap_or_default();
        at += 1 + match b {
            b'"' => match string_end(rest) {
                Some(end)
                    if rest.get(end + 1) == Some(&b':') && is_barred(rest.get(..end).unwrap_or(rest)) =>
                {
                    return false;
                }
                Some(end) => end + 1,
                None => return false,
            },
            b'-' | b'0'..=b'9' => {
                let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
                let plain = match rest.get(digits) {
                    Some(b'.' | b'e' | b'E') => false,
                    _ => digits < DIGITS && !(b == b'-' && rest.first() == Some(&b'0')),
                };
                if !plain {
                    return false;
                }
                digits
            }
            b' ' | b'\t' | b'\r' | b'\n' => return false,
            _ => 0,
        };
    }
    true
}

/// Where the string ends that `rest` goes on with; nothing where we would write it otherwise.
fn string_end(rest: &[u8]) -> Option<usize> {
    // The others are `\/` and `\u`, which we write as what they stand for.
    let as_written = |b| matches!(b, b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't');
    json_keys::string_end(rest, as_written).map(|(end, _)| end)
}

fn message_result(message: &Node<'_>, failed: bool) -> (String, bool) {
    let said = message.get("content").map(part::plain).unwrap_or_default();
    (said.into_owned(), failed || part::failed(message))
}

/// The tools in a definition list of any provider's form; names alone make bare definitions.
pub(crate) fn definitions(node: &Node<'_>, texts: &mut Texts) -> Vec<ToolDefinition> {
    let mut out = Vec::new();
    collect(node, texts, &mut out, 8);
    out
}

fn collect(node: &Node<'_>, texts: &mut Texts, out: &mut Vec<ToolDefinition>, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match node {
        Node::Str(s) if s.trim_start().starts_with(['{', '[']) => {
            if let Some(inner) = Node::json(s) {
                collect(&inner, texts, out, depth);
            }
        }
        Node::Str(s) if !s.is_empty() && s.len() <= 200 && out.len() < MAX_TOOLS => {
            out.push(ToolDefinition { name: texts.intern(s), description: None, parameters: None });
        }
        Node::List(items) => {
            for item in items {
                if out.len() >= MAX_TOOLS {
                    return;
                }
                collect(item, texts, out, depth);
            }
        }
        Node::Map(_) => match definition(node, texts) {
            Some(definition) => out.push(definition),
            None => {
                for key in [
                    "tools",
                    "function_tools",
                    "output_tools",
                    "function_declarations",
                    "functionDeclarations",
                    "functions",
                ] {
                    if let Some(inner) = node.get(key) {
                        collect(inner, texts, out, depth);
                    }
                }
                if let Some(config) = node.get("config") {
                    collect(config, texts, out, depth);
                }
            }
        },
        _ => {}
    }
}

fn definition(node: &Node<'_>, texts: &mut Texts) -> Option<ToolDefinition> {
    let body = node.any(&["function", "toolSpec"]).filter(|f| matches!(f, Node::Map(_))).unwrap_or(node);
    let name = body.str_at("name").or_else(|| node.str_at("name"))?;
    let schema = body.any(&[
        "parameters",
        "input_schema",
        "inputSchema",
        "parameters_json_schema",
        "parametersJsonSchema",
        "schema",
        "args_schema",
    ]);
    let schema = schema.map(|s| s.get("json").or_else(|| s.get("jsonSchema")).unwrap_or(s));
    Some(ToolDefinition {
        name: texts.intern(name),
        description: body.str_at("description").and_then(|d| texts.some(d)),
        parameters: schema.and_then(parameters),
    })
}

/// A JSON schema of parameters. A bare map of parameters (smolagents) is made one.
pub(crate) fn parameters(node: &Node<'_>) -> Option<Arc<serde_json::Value>> {
    let node = match node {
        Node::Str(s) if s.len() <= MAX_SCHEMA => &Node::json(s)?,
        other => other,
    };
    let Node::Map(entries) = node else { return None };
    let text = node.to_json();
    if text.len() > MAX_SCHEMA {
        return None;
    }
    let schema: serde_json::Value = serde_json::from_str(&text).ok()?;
    let is_schema =
        ["properties", "$ref", "$schema", "anyOf", "oneOf", "allOf", "required"].iter().any(|k| node.has(k))
            || node.str_at("type").is_some();
    if is_schema {
        return Some(Arc::new(schema));
    }
    if entries.iter().all(|(_, v)| v.has("type") || v.has("description")) {
        return Some(Arc::new(serde_json::json!({ "type": "object", "properties": schema })));
    }
    None
}

/// Names of a schema's parameters, in order.
pub(crate) fn parameter_names(schema: Option<&serde_json::Value>) -> Vec<&str> {
    let properties = schema.and_then(|s| s.get("properties")).and_then(|p| p.as_object());
    properties.map(|p| p.keys().map(String::as_str).collect()).unwrap_or_default()
}

/// Definitions by the text they came in, kept from trace to trace: every prompt of every run of an
/// agent repeats them.
#[derive(Debug, Default)]
pub(crate) struct DefinitionCache(Mutex<CachedLists>);

#[derive(Debug, Default)]
struct CachedLists {
    lists: HashMap<Arc<str>, Arc<[ToolDefinition]>, foldhash::fast::RandomState>,
    bytes: usize,
}

impl DefinitionCache {
    /// Bytes of text remembered; all are forgotten once there are more. An agent's list has some
    /// KiB, and parsed it takes about three times as much.
    const BYTES: usize = 2 << 20;
    /// A longer list is parsed each time.
    const LONGEST: usize = 128 << 10;

    /// Definitions in `raw`, parsed where they are new.
    pub(crate) fn read(&self, raw: &str) -> Arc<[ToolDefinition]> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().lists.get(raw) {
            return Arc::clone(known);
        }
        let read: Arc<[ToolDefinition]> =
            definitions(&Node::Str(Cow::Borrowed(raw)), &mut Texts::new()).into();
        if raw.len() <= Self::LONGEST {
            let mut known = lock();
            if known.bytes + raw.len() > Self::BYTES {
                *known = CachedLists::default();
            }
            if known.lists.insert(raw.into(), Arc::clone(&read)).is_none() {
                known.bytes += raw.len();
            }
        }
        read
    }
}

/// `arguments` as a JSON object: as they are, or under the tool's only parameter.
pub(crate) fn parse(arguments: &Text, schema: Option<&serde_json::Value>) -> Option<serde_json::Value> {
    match serde_json::from_str(arguments) {
        Ok(object @ serde_json::Value::Object(_)) => Some(object),
        parsed => {
            let names = parameter_names(schema);
            match (names.as_slice(), parsed) {
                // A tool of one parameter, called with the bare value.
                ([only], parsed) => {
                    let bare = arguments.trim_start();
                    if bare.starts_with('{') {
                        return None;
                    }
                    let value = parsed.unwrap_or_else(|_| serde_json::Value::String(arguments.to_string()));
                    Some(serde_json::json!({ *only: value }))
                }
                (_, parsed) => parsed.ok(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WRITTEN: [&str; 6] = [
        r#"{"order":123,"items":[{"sku":-4,"note":"é \"x\" \\ \n"}],"ok":true,"no":null}"#,
        r#"{}"#,
        r#"{"a":"","b":[],"c":{}}"#,
        r#"{"n":999999999999999999}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"del":"","z":0}"#,
    ];
    const OTHERWISE: [&str; 8] = [
        r#"{"a": 1}"#,
        r#"{"a":1} "#,
        r#"{"a":1.50}"#,
        r#"{"a":1e3}"#,
        r#"{"a":-0}"#,
        r#"{"a":"\/"}"#,
        r#"{"a":"\u00e9"}"#,
        r#"{"a":99999999999999999999}"#,
    ];

    #[test]
    fn compact_json_is_what_we_would_write() {
        for json in WRITTEN {
            assert!(is_compact(json, |_| false), "{json}");
            assert_eq!(Node::json(json).map(|n| n.to_json()).as_deref(), Some(json));
        }
        for json in OTHERWISE {
            assert!(!is_compact(json, |_| false), "{json}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_taken_for_compact_that_we_would_write_otherwise(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "{", "}", "[", "]", ",", ":", "\"a\"", "\"", "\\", "\\n", "\\u0041", "1", "-", "0", ".5", "e2", " ", "é", "null", "\"k\":",
                ]),
                0..10,
            ),
        ) {
            let json = format!("{{\"x\":{}}}", pieces.concat());
            if let Some(node) = Node::json(&json).filter(|_| is_compact(&json, |_| false)) {
                prop_assert_eq!(node.to_json(), json);
            }
        }

        #[test]
        fn what_is_bare_is_what_the_tool_said(
            keys in prop::collection::vec(prop::sample::select(vec![
                "order", "status", "isError", "content", "tool_call_id", "kwargs", "toolResult", "json", "type", "text",
            ]), 0..4),
            values in prop::collection::vec(prop::sample::select(vec![
                "1", "true", "\"error\"", "\"\\\"type\\\"\"", "{\"failed\":true}", "[{\"text\":\"x\"}]", "nul", "}",
            ]), 4),
        ) {
            let members: Vec<String> = keys.iter().zip(&values).map(|(k, v)| format!("\"{k}\":{v}")).collect();
            let json = format!("{{{}}}", members.join(","));
            if is_unwrapped(&json) {
                let read = result(&Node::Str(Cow::Borrowed(&json)).unfold(), Some(&json));
                prop_assert_eq!(read, (json, false));
            }
        }
    }
}
