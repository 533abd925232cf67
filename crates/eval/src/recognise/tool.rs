//! Unwraps tool arguments, results and definitions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::message::{Text, ToolDefinition};
use super::node::ContentNode;
use super::texts::TextInterner;
use super::{json_keys, part, python_repr};

/// Maximum number of tools in one list of definitions, and of one agent.
pub(super) const MAX_TOOLS: usize = 1_000;
/// Maximum size of a schema. Of a tool with a larger schema, only name and description are kept.
const MAX_SCHEMA: usize = 1 << 20;

/// The arguments of a call as JSON, unwrapped; unchanged if they are in no known wrapper.
///
/// `names` are the tool's parameters in order, for positional arguments.
pub(crate) fn arguments<'n>(node: &'n ContentNode<'_>, names: &[&str]) -> Cow<'n, str> {
    match unwrap_arguments(node, names) {
        Some(node) => Cow::Owned(node.to_json()),
        None => node.text(),
    }
}

/// As [`arguments`], of a text, which is returned unchanged if nothing has to be unwrapped.
pub(crate) fn arguments_from_text<'n>(text: &'n str, names: &[&str]) -> Cow<'n, str> {
    // Any other object is returned unchanged.
    let is_wrapper =
        |key: &[u8]| matches!(key, b"input_str" | b"args" | b"inputs" | b"kwargs" | b"arguments");
    if text.starts_with("{'")
        && let Some(map) = python_repr::parse(text)
    {
        return Cow::Owned(arguments(&map, names).into_owned());
    }
    if text.starts_with('{') && !json_keys::may_have_key(text, is_wrapper) {
        return Cow::Borrowed(text);
    }
    let node = ContentNode::Str(Cow::Borrowed(text)).unfold();
    match unwrap_arguments(&node, names) {
        Some(node) => Cow::Owned(node.to_json()),
        None if text.trim_start().starts_with('"') => Cow::Owned(node.text().into_owned()),
        None => Cow::Borrowed(text),
    }
}

fn unwrap_arguments<'a>(node: &ContentNode<'a>, names: &[&str]) -> Option<ContentNode<'a>> {
    let ContentNode::Map(entries) = node else { return None };
    // OpenLLMetry's LangChain handler records the arguments among the run's settings.
    if let Some(text) = node.get("input_str") {
        if let Some(inputs @ ContentNode::Map(_)) = node.get("inputs").filter(|inputs| !inputs.is_empty()) {
            return Some(inputs.clone());
        }
        let text = text.as_str()?;
        return match python_repr::parse(text).or_else(|| ContentNode::json(text).map(ContentNode::into_owned))
        {
            Some(map @ ContentNode::Map(_)) => Some(map),
            _ => Some(name_positional(vec![ContentNode::Str(Cow::Owned(text.to_owned()))], names)),
        };
    }
    // A decorated function: `{"args": [], "kwargs": {}}`, with or without settings of the decorator.
    if let (Some(ContentNode::List(args)), Some(ContentNode::Map(kwargs))) =
        (node.get("args"), node.get("kwargs"))
    {
        let ContentNode::Map(mut arguments) = name_positional(args.clone(), names) else {
            return Some(ContentNode::List(args.clone()));
        };
        arguments.extend(kwargs.iter().cloned());
        return Some(ContentNode::Map(arguments));
    }
    // LangChain's tool node records the whole tool call as its arguments.
    if let Some(args @ ContentNode::Map(_)) = node.get("args")
        && node.has_key("name")
        && entries.len() <= 4
    {
        return Some(args.clone());
    }
    match entries.as_slice() {
        [(key, inner @ ContentNode::Map(_))] if matches!(key.as_ref(), "inputs" | "kwargs" | "arguments") => {
            Some(inner.clone())
        }
        _ => None,
    }
}

/// The positional arguments as a map by parameter name; as a list if there are fewer names than arguments.
fn name_positional<'a>(args: Vec<ContentNode<'a>>, names: &[&str]) -> ContentNode<'a> {
    if args.len() > names.len() {
        return ContentNode::List(args);
    }
    ContentNode::Map(names.iter().map(|n| Cow::Owned((*n).to_owned())).zip(args).collect())
}

/// The text of a tool's result, and whether the result has a flag for failure. `source` is the JSON
/// that `node` was parsed from, if it was.
pub(crate) fn result(node: &ContentNode<'_>, source: Option<&str>) -> (String, bool) {
    result_within(node, source, MAX_WRAPPERS)
}

/// Maximum number of nested wrappers around a result.
const MAX_WRAPPERS: usize = 6;

fn result_within(node: &ContentNode<'_>, source: Option<&str>, depth: usize) -> (String, bool) {
    let Some(depth) = depth.checked_sub(1) else { return (node.text().into_owned(), false) };
    if let Some(message) = node.as_str().and_then(python_repr::message) {
        return message_result(&message, false);
    }
    let failed = part::has_failure_flag(node);
    // LangChain records a message as the result, or the output of a run among its settings.
    let message = node.get("data").or_else(|| node.get("kwargs")).filter(|inner| inner.has_key("content"));
    let inner = match node.entries() {
        [(key, inner)] if matches!(key.as_ref(), "result" | "output" | "outputs" | "toolResult") => {
            Some(inner)
        }
        [(a, inner), (b, _)] if a == "output" && b == "kwargs" => Some(inner),
        _ if message.is_some() => return message_result(message.unwrap_or(node), failed),
        _ if node.has_key("tool_call_id") && node.has_key("content") => return message_result(node, failed),
        _ => None,
    };
    if let Some(inner) = inner {
        let (text, inner_failed) = result_within(inner, None, depth);
        return (text, failed || inner_failed);
    }
    let is_plain_map = matches!(node, ContentNode::Map(_)) && part::wrapped(node).is_none();
    let text = match source.filter(|source| is_plain_map && is_compact(source, |_| false)) {
        Some(source) => source.to_owned(),
        None => part::plain(node).into_owned(),
    };
    (text, failed || node.items().iter().any(part::has_failure_flag))
}

/// Whether [`result`] and its callees may read a map with this key as a wrapper, a block of content or a failure.
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
            | b"toolRequest"
            | b"toolResponse"
            | b"functionCall"
            | b"reasoningContent"
            | b"blocks"
            | b"message"
            | b"response"
            | b"results"
            | b"error"
    )
}

/// Whether [`result`] would return `text`, the JSON of a map, unchanged and without a failure. Costs a tenth of
/// parsing. `on_string` is called with each string before the first key of a wrapper.
pub(crate) fn is_unwrapped<'j>(text: &'j str, mut on_string: impl FnMut(JsonString<'j>)) -> bool {
    text.starts_with('{')
        && is_compact(text, |string| {
            on_string(string);
            string.is_key() && is_wrapper_key(string.content)
        })
}

/// A string in JSON.
#[derive(Clone, Copy)]
pub(crate) struct JsonString<'j> {
    /// The bytes between the quotation marks, with escapes.
    pub(crate) content: &'j [u8],
    pub(crate) has_escapes: bool,
    /// The byte after the closing quotation mark.
    pub(crate) after: Option<u8>,
}

impl JsonString<'_> {
    fn is_key(self) -> bool {
        self.after == Some(b':')
    }
}

/// Whether parsing and writing `json` returns it unchanged, if it is valid: it is compact, and none of its few keys
/// occurs twice.
pub(crate) fn is_canonical(json: &str) -> bool {
    /// Every key is compared with all earlier ones.
    const MAX_KEYS: usize = 16;
    let mut keys: Vec<&[u8]> = Vec::new();
    is_compact(json, |string| {
        let may_be_repeated = string.is_key() && (keys.len() >= MAX_KEYS || keys.contains(&string.content));
        if string.is_key() {
            keys.push(string.content);
        }
        may_be_repeated
    })
}

/// Whether `json` equals its own compact form: no whitespace, no needless escapes, no numbers other
/// than plain integers; and `is_excluded` is false for every string in it, at any depth. Costs a tenth of serializing.
fn is_compact<'j>(json: &'j str, mut is_excluded: impl FnMut(JsonString<'j>) -> bool) -> bool {
    /// Integers with at most this many digits fit an `i64`.
    const DIGITS: usize = 18;
    let bytes = json.as_bytes();
    let mut position = 0;
    while let Some(&b) = bytes.get(position) {
        let rest = bytes.get(position + 1..).unwrap_or_default();
        position += 1 + match b {
            b'"' => {
                let string_end = json_keys::string_end(rest, is_needed_escape);
                let Some((end, is_unescaped)) = string_end else { return false };
                let after = rest.get(end + 1).copied();
                if is_excluded(JsonString { content: &rest[..end], has_escapes: !is_unescaped, after }) {
                    return false;
                }
                end + 1
            }
            b'-' | b'0'..=b'9' => {
                let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
                let is_plain_integer = match rest.get(digits) {
                    Some(b'.' | b'e' | b'E') => false,
                    _ => digits < DIGITS && !(b == b'-' && rest.first() == Some(&b'0')),
                };
                if !is_plain_integer {
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

/// Whether compact JSON writes a character as a backslash and `escape`. `\/` and `\u` are needless for
/// most characters.
fn is_needed_escape(escape: u8) -> bool {
    matches!(escape, b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't')
}

fn message_result(message: &ContentNode<'_>, failed: bool) -> (String, bool) {
    let text = message.get("content").map(part::plain).unwrap_or_default();
    (text.into_owned(), failed || part::has_failure_flag(message))
}

/// Keys of a list of tools, or of a map that contains one.
const TOOL_LIST_KEYS: [&str; 7] = [
    "tools",
    "function_tools",
    "output_tools",
    "function_declarations",
    "functionDeclarations",
    "functions",
    "config",
];

/// The tools in a list of definitions in any provider's format, or in a list of names.
pub(crate) fn definitions(node: &ContentNode<'_>, texts: &mut TextInterner) -> Vec<ToolDefinition> {
    let mut out = Vec::new();
    collect_definitions(node, texts, &mut out, MAX_LIST_DEPTH);
    out
}

/// Maximum number of maps, lists and JSON texts around a definition.
const MAX_LIST_DEPTH: usize = 8;
/// Maximum length of a text that is a tool's name and not a description.
const MAX_TOOL_NAME: usize = 200;

fn collect_definitions(
    node: &ContentNode<'_>,
    texts: &mut TextInterner,
    out: &mut Vec<ToolDefinition>,
    depth: usize,
) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match node {
        ContentNode::Str(s) if s.trim_start().starts_with(['{', '[']) => {
            if let Some(inner) = ContentNode::json(s) {
                collect_definitions(&inner, texts, out, depth);
            }
        }
        ContentNode::Str(s) if !s.is_empty() && s.len() <= MAX_TOOL_NAME && out.len() < MAX_TOOLS => {
            out.push(ToolDefinition { name: texts.intern(s), description: None, parameters: None });
        }
        ContentNode::List(items) => {
            for item in items {
                if out.len() >= MAX_TOOLS {
                    return;
                }
                collect_definitions(item, texts, out, depth);
            }
        }
        ContentNode::Map(_) => match definition(node, texts) {
            Some(definition) => out.push(definition),
            None => {
                for inner in TOOL_LIST_KEYS.iter().filter_map(|key| node.get(key)) {
                    collect_definitions(inner, texts, out, depth);
                }
            }
        },
        _ => {}
    }
}

fn definition(node: &ContentNode<'_>, texts: &mut TextInterner) -> Option<ToolDefinition> {
    let body =
        node.first_of(&["function", "toolSpec"]).filter(|f| matches!(f, ContentNode::Map(_))).unwrap_or(node);
    let name = body.str_at("name").or_else(|| node.str_at("name"))?;
    let schema = body.first_of(&[
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
        description: body.str_at("description").and_then(|d| texts.non_empty(d)),
        parameters: schema.and_then(parameters),
    })
}

/// The JSON schema of a tool's parameters, also from a map of parameters (smolagents).
pub(crate) fn parameters(node: &ContentNode<'_>) -> Option<Arc<serde_json::Value>> {
    let node = match node {
        ContentNode::Str(s) if s.len() <= MAX_SCHEMA => &ContentNode::json(s)?,
        other => other,
    };
    let ContentNode::Map(entries) = node else { return None };
    let text = node.to_json();
    if text.len() > MAX_SCHEMA {
        return None;
    }
    let schema: serde_json::Value = serde_json::from_str(&text).ok()?;
    let is_schema = ["properties", "$ref", "$schema", "anyOf", "oneOf", "allOf", "required"]
        .iter()
        .any(|k| node.has_key(k))
        || node.str_at("type").is_some();
    if is_schema {
        return Some(Arc::new(schema));
    }
    if entries.iter().all(|(_, v)| v.has_key("type") || v.has_key("description")) {
        return Some(Arc::new(serde_json::json!({ "type": "object", "properties": schema })));
    }
    None
}

/// The names of a schema's parameters, in order.
pub(crate) fn parameter_names(schema: Option<&serde_json::Value>) -> Vec<&str> {
    let properties = schema.and_then(|s| s.get("properties")).and_then(|p| p.as_object());
    properties.map(|p| p.keys().map(String::as_str).collect()).unwrap_or_default()
}

/// Definitions by their text. The cache outlives the trace, since every prompt of every run of an agent
/// repeats them.
#[derive(Debug, Default)]
pub(crate) struct DefinitionCache(Mutex<CachedLists>);

#[derive(Debug, Default)]
struct CachedLists {
    lists: HashMap<Arc<str>, Arc<[ToolDefinition]>, foldhash::fast::RandomState>,
    bytes: usize,
}

impl DefinitionCache {
    /// Maximum size of all cached texts; above it the cache is cleared. The list of an agent has some
    /// KiB and takes about three times as much when parsed.
    const MAX_BYTES: usize = 2 << 20;
    /// Maximum size of a cached text; longer lists are parsed every time.
    const MAX_TEXT: usize = 128 << 10;

    /// The text, shared with the cache, and its definitions.
    pub(crate) fn read(&self, raw: &str) -> (Arc<str>, Arc<[ToolDefinition]>) {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((text, tools)) = lock().lists.get_key_value(raw) {
            return (Arc::clone(text), Arc::clone(tools));
        }
        let text: Arc<str> = raw.into();
        let parsed: Arc<[ToolDefinition]> =
            definitions(&ContentNode::Str(Cow::Borrowed(raw)), &mut TextInterner::new()).into();
        if raw.len() <= Self::MAX_TEXT {
            let mut cache = lock();
            if cache.bytes + raw.len() > Self::MAX_BYTES {
                *cache = CachedLists::default();
            }
            if cache.lists.insert(Arc::clone(&text), Arc::clone(&parsed)).is_none() {
                cache.bytes += raw.len();
            }
        }
        (text, parsed)
    }
}

/// Parses `arguments`. A value that is no object becomes the value of the tool's only parameter.
pub(crate) fn parse(arguments: &Text, schema: Option<&serde_json::Value>) -> Option<serde_json::Value> {
    let parsed = serde_json::from_str(arguments);
    if let Ok(object @ serde_json::Value::Object(_)) = parsed {
        return Some(object);
    }
    let [only] = parameter_names(schema)[..] else { return parsed.ok() };
    if arguments.trim_start().starts_with('{') {
        return None;
    }
    let value = parsed.unwrap_or_else(|_| serde_json::Value::String(arguments.to_string()));
    Some(serde_json::json!({ only: value }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COMPACT: [&str; 6] = [
        r#"{"order":123,"items":[{"sku":-4,"note":"é \"x\" \\ \n"}],"ok":true,"no":null}"#,
        r#"{}"#,
        r#"{"a":"","b":[],"c":{}}"#,
        r#"{"n":999999999999999999}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"del":"","z":0}"#,
    ];
    const NOT_COMPACT: [&str; 8] = [
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
    fn compact_json_equals_its_serialization() {
        for json in COMPACT {
            assert!(is_compact(json, |_| false), "{json}");
            assert_eq!(ContentNode::json(json).map(|n| n.to_json()).as_deref(), Some(json));
        }
        for json in NOT_COMPACT {
            assert!(!is_compact(json, |_| false), "{json}");
        }
    }

    proptest! {
        #[test]
        fn json_accepted_as_compact_serializes_to_itself(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "{", "}", "[", "]", ",", ":", "\"a\"", "\"", "\\", "\\n", "\\u0041", "1", "-", "0", ".5", "e2", " ", "é", "null", "\"k\":",
                ]),
                0..10,
            ),
        ) {
            let json = format!("{{\"x\":{}}}", pieces.concat());
            if let Some(node) = ContentNode::json(&json).filter(|_| is_compact(&json, |_| false)) {
                prop_assert_eq!(node.to_json(), json);
            }
        }

        #[test]
        fn unwrapped_text_is_returned_as_the_result_unchanged(
            keys in prop::collection::vec(prop::sample::select(vec![
                "order", "status", "isError", "content", "tool_call_id", "kwargs", "toolResult", "json", "type", "text",
            ]), 0..4),
            values in prop::collection::vec(prop::sample::select(vec![
                "1", "true", "\"error\"", "\"\\\"type\\\"\"", "{\"failed\":true}", "[{\"text\":\"x\"}]", "nul", "}",
            ]), 4),
        ) {
            let members: Vec<String> = keys.iter().zip(&values).map(|(k, v)| format!("\"{k}\":{v}")).collect();
            let json = format!("{{{}}}", members.join(","));
            if is_unwrapped(&json, |_| ()) {
                let text_and_flag = result(&ContentNode::Str(Cow::Borrowed(&json)).unfold(), Some(&json));
                prop_assert_eq!(text_and_flag, (json, false));
            }
        }
    }
}
