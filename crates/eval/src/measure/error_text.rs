//! Errors that tools return as text while the status of their span is not an error.
//!
//! In: a tool's result. Out: the passage that reports an error, if the result *is* an error
//! report. Position and structure decide, not the presence of a word: a page about errors, source code
//! that raises one, or a log that contains one are valid results.

use std::sync::LazyLock;

use aho_corasick::packed::Searcher;
use serde_json::{Map, Value};

use super::defects::clip;
use super::error_kind::cause_excerpt;
use crate::recognise::json_keys;

/// Maximum bytes of JSON that is parsed; larger JSON is not an error report.
const MAX_JSON: usize = 64 * 1024;
/// The first line of a Python traceback.
const TRACEBACK: &str = "Traceback (most recent call last)";
/// Bytes at the beginning of a text that are matched with the patterns of error reports.
const HEAD_BYTES: usize = 300;
/// Maximum bytes of a text that a sentence such as "Failed to open the page" makes an error report; a longer
/// text that begins with it is prose.
const SHORT_BYTES: usize = 600;
/// Maximum depth of wrappers around a text.
const MAX_UNWRAP: usize = 4;
/// Maximum elements of a JSON array that is one message.
const MAX_BLOCKS: usize = 4;

/// The passage of `result` that reports an error, if `result` is an error report.
///
/// The passage is unescaped if it was within JSON, and clipped to the length of a quote.
pub(crate) fn reported(result: &str) -> Option<String> {
    let text = result.trim();
    let first = *text.as_bytes().first()?;
    if matches!(first, b'{' | b'[' | b'"') && text.len() <= MAX_JSON {
        if !might_be_error_json(text) {
            return None;
        }
        if let Ok(value) = serde_json::from_str::<Value>(text) {
            let said = from_value(&value, 0)?;
            return Some(if said.is_empty() { cause_excerpt(text).to_owned() } else { said });
        }
    }
    from_text(text).map(|passage| cause_excerpt(passage).to_owned())
}

/// JSON that reports an error contains at least one of these: parts of the keys and words that
/// [`flagged`], [`ALWAYS`] and [`SHORT`] look for, in lower case.
const PREFILTER: [&str; 59] = [
    "err",
    "exce",
    "fail",
    "fault",
    "fatal",
    "trace",
    "\"detail\"",
    "\"status",
    "status:",
    "status=",
    "status =",
    "status code",
    "status_code",
    "success",
    "\"ok\"",
    "code\"",
    "code:",
    "exit",
    "unable",
    "could not",
    "couldn't",
    "cannot",
    "can't",
    "can not",
    "denied",
    "timeout",
    "time out",
    "timed out",
    "timedout",
    "not found",
    "notfound",
    "exceeded",
    "not auth",
    "exist",
    "unknown",
    "no such",
    "undefined",
    "invalid",
    "missing req",
    "refused",
    "was reset",
    "rate limit",
    "quota",
    "too many",
    "forbidden",
    "unauth",
    "unavail",
    "gateway",
    "bad req",
    "method not",
    "gone",
    "unprocess",
    "payment req",
    "http/",
    "http4",
    "http5",
    "http ",
    "<title",
    "http:",
];

/// Whether [`from_map`] or [`flagged`] looks for the key. An object without any such key reports no error
/// and wraps no text.
fn may_report_error(key: &[u8]) -> bool {
    matches!(
        key,
        b"isError"
            | b"is_error"
            | b"success"
            | b"ok"
            | b"error"
            | b"errors"
            | b"exception"
            | b"traceback"
            | b"error_message"
            | b"errorMessage"
            | b"status"
            | b"type"
            | b"status_code"
            | b"statusCode"
            | b"code"
            | b"http_status"
            | b"exit_code"
            | b"exitCode"
            | b"returncode"
            | b"return_code"
            | b"detail"
            | b"message"
    ) || WRAPPERS.iter().any(|wrapper| wrapper.as_bytes() == key)
}

/// Rules out most JSON without parsing it.
fn might_be_error_json(text: &str) -> bool {
    // Text that only resembles an object may end in a traceback.
    let is_object = text.starts_with("{\"") && text.ends_with('}') && !text.contains(TRACEBACK);
    if is_object && !json_keys::may_have(text, may_report_error) {
        return false;
    }
    static WORDS: LazyLock<Option<Searcher>> = LazyLock::new(|| Searcher::new(PREFILTER));
    // Lower case first, as the searcher is fast only with case-sensitive words.
    WORDS.as_ref().is_none_or(|words| words.find(text.to_ascii_lowercase()).is_some())
}

fn from_value(value: &Value, depth: usize) -> Option<String> {
    if depth > MAX_UNWRAP {
        return None;
    }
    match value {
        Value::String(text) => {
            let inner = text.trim();
            if matches!(inner.as_bytes().first(), Some(b'{' | b'['))
                && inner.len() <= MAX_JSON
                && let Ok(value) = serde_json::from_str::<Value>(inner)
            {
                return from_value(&value, depth + 1);
            }
            from_text(inner).map(|passage| cause_excerpt(passage).to_owned())
        }
        // Content blocks: one message in pieces, the first of which must report the error.
        Value::Array(items) if !items.is_empty() && items.len() <= MAX_BLOCKS => {
            let block = |item: &Value| match item {
                Value::Object(map) if map.contains_key("text") || map.contains_key("type") => {
                    from_map(map, depth + 1)
                }
                Value::String(_) if items.len() == 1 => from_value(item, depth + 1),
                _ => None,
            };
            items.first().and_then(block)
        }
        Value::Object(map) => from_map(map, depth),
        _ => None,
    }
}

/// Keys of the text of an error in an object with an error flag.
const MESSAGES: [&str; 13] = [
    "error",
    "message",
    "detail",
    "details",
    "error_message",
    "errorMessage",
    "stderr",
    "msg",
    "reason",
    "text",
    "content",
    "output",
    "result",
];
/// Keys under which frameworks wrap a plain result.
const WRAPPERS: [&str; 12] = [
    "result",
    "output",
    "content",
    "response",
    "text",
    "value",
    "return_value",
    "data",
    "body",
    "update",
    "structuredContent",
    "messages",
];

fn from_map(map: &Map<String, Value>, depth: usize) -> Option<String> {
    if flagged(map) {
        let message = MESSAGES.iter().find_map(|key| map.get(*key).and_then(message_text));
        // Without a message the caller quotes the whole result.
        return Some(message.unwrap_or_default());
    }
    // Only a message, such as `{"detail": "Not Found"}`.
    if map.len() == 1
        && let Some((key, Value::String(text))) = map.iter().next()
        && ["detail", "message"].contains(&key.as_str())
        && text.len() <= SHORT_BYTES
        && from_text(text).is_some()
    {
        return Some(cause_excerpt(text).to_owned());
    }
    // A wrapper has few keys.
    if map.len() > 8 {
        return None;
    }
    WRAPPERS.iter().filter_map(|key| map.get(*key)).find_map(|inner| from_value(inner, depth + 1))
}

/// Whether a flag, a status or an error field of the object reports a failure.
fn flagged(map: &Map<String, Value>) -> bool {
    let says = |key: &str, wanted: bool| map.get(key).and_then(Value::as_bool) == Some(wanted);
    if says("isError", true) || says("is_error", true) || says("success", false) || says("ok", false) {
        return true;
    }
    let has_payload = ["data", "results", "result", "items", "output", "content", "records"]
        .iter()
        .any(|key| map.get(*key).is_some_and(|v| !is_void(v)));
    for key in ["error", "errors", "exception", "traceback", "error_message", "errorMessage"] {
        match map.get(key) {
            Some(Value::Bool(true)) => return true,
            Some(v @ (Value::String(_) | Value::Object(_) | Value::Array(_))) if !is_void(v) => {
                // Together with a payload it is a warning about part of the work.
                return !has_payload || key == "error" && map.len() <= 3;
            }
            _ => {}
        }
    }
    let word = |key: &str| map.get(key).and_then(Value::as_str).map(str::to_ascii_lowercase);
    if let Some("error" | "failed" | "failure" | "fail") = word("status").as_deref() {
        return map.keys().any(|k| MESSAGES.contains(&k.as_str()) || k.starts_with("error"))
            || map.len() == 1;
    }
    if let Some("error") = word("type").as_deref() {
        return map.keys().any(|k| MESSAGES.contains(&k.as_str()));
    }
    let status = ["status", "status_code", "statusCode", "code", "http_status"]
        .iter()
        .filter_map(|key| map.get(*key))
        .find_map(Value::as_u64);
    if status.is_some_and(|code| (400..600).contains(&code)) {
        return map.keys().any(|k| ["message", "detail", "title", "error", "reason"].contains(&k.as_str()));
    }
    let exit =
        ["exit_code", "exitCode", "returncode", "return_code"].iter().find_map(|k| map.get(*k)?.as_i64());
    exit.is_some_and(|code| code != 0) && map.get("stderr").is_some_and(|v| !is_void(v))
}

fn is_void(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(s) => s.trim().is_empty() || s == "None" || s == "null",
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

/// The text of a message, which may be in a small structure.
fn message_text(value: &Value) -> Option<String> {
    match value {
        Value::String(s) if !s.trim().is_empty() => Some(cause_excerpt(s).to_owned()),
        Value::Object(map) => {
            ["message", "detail", "text", "type", "code"].iter().find_map(|key| match map.get(*key)? {
                Value::String(s) => Some(cause_excerpt(s).to_owned()),
                Value::Number(n) => Some(n.to_string()),
                _ => None,
            })
        }
        Value::Array(items) => items.iter().take(MAX_BLOCKS).find_map(|item| match item {
            Value::String(_) => message_text(item),
            _ => {
                let message = ["message", "text", "msg"].iter().find_map(|key| item.get(*key))?;
                Some(cause_excerpt(message.as_str()?).to_owned())
            }
        }),
        _ => None,
    }
}

/// Beginnings that make a text of any length an error report.
const ALWAYS: &str = r#"(?x)^(?:
    (?i: traceback\ \(most\ recent\ call\ last\) )
  | (?i: (?: (?:tool|api|http|internal|server|validation|runtime|fatal|unexpected|execution|python|search|
             network|connection|input|parse|parsing|request|timeout|syntax|type|value|client|database|sql|
             file|io|unknown|call|function|invocation|os|shell|command|code)[\ _-]? ){0,3}
         error (?: \s* \(?(?:code|status)?\s*\#?\d{3,5}\)? )? \s* (?: :(?:[^:]|$) | !\s ) )
  | (?i: error \s* \n )
  | (?i: error(?:ed)? \s+ (?: \d{3}\b | executing | when | while | during | occurred | calling | running | invoking
         | fetching | loading | reading | opening | accessing | connecting | parsing | processing | retrieving
         | searching | performing | code\s*:?\s+\d | in\s+(?:tool|function|call|code)\b | from\s+(?:tool|server|api)\b ) )
  | (?i: (?: an? | some | the\ following ) \s+ (?:\w+\s+){0,2} (?:error|exception) \s+ (?:has\s+)? (?:occurred|was\s+raised|was\s+thrown|happened) )
  | (?i: there\ was\ an?\ (?:\w+\ ){0,2} error\b )
  | (?i: tool\ (?:execution|call|invocation)\ failed | execution\ failed\b | command\ failed\b | request\ failed\b )
  | (?: (?:[A-Za-z_]\w*\.){0,6} [A-Z]\w* (?: Error|Exception|Fault|Failure|Timeout|NotFound|Refused|Denied|Exceeded ) \s* (?: \( | : ) )
  | (?: Exception \s* : )
  | (?i: http (?:/\d(?:\.\d)?)? \s* (?:error|status|response)? \s* (?:code)? \s* :? \s* [45]\d\d \b )
  | (?i: (?:status (?:[\ _]code)? ) \s* [:=] \s* [45]\d\d \b )
  | (?i: [45]\d\d \s* [:\-\ ] \s* (?: client\ error | server\ error | not\ found | forbidden | unauthori[sz]ed | bad\ request
         | internal\ server | too\ many | service\ (?:temporarily\ )?unavailable | bad\ gateway | gateway\ time | method\ not
         | gone\b | unprocessable | payment\ required | request\ timeout ) )
  | (?i: <(?:tool_use_)?error> | <tool_error> )
)"#;

/// Beginnings that make a text of at most [`SHORT_BYTES`] an error report.
const SHORT: &str = r#"(?ix)^(?:
    (?: sorry,?\s+ | the\ tool\s+ | tool\s+ | request\s+ | operation\s+ | call\s+ )?
    (?: failed\s+(?:to\b|with\b|because\b|due\b|:) | failure\s*: | fatal\s*: | failed\s*: | unable\s+to\s+(?:\w+ly\s+)?
        (?:open|read|access|connect|fetch|load|parse|execute|import|resolve|retrieve|reach|complete|process|get|download|authenticate|establish|run|call|perform|decode|write|save|create)\b
      | (?:could\s+not|couldn't|cannot|can't|can\s+not)\s+
        (?:open|read|access|connect|fetch|load|parse|execute|import|resolve|retrieve|reach|complete|process|get|download|authenticate|establish|run|call|perform|decode|write|save|create)\b )
  | (?: the\s+)?(?:requested\s+|specified\s+)?(?:page|file|url|resource|tool|function|endpoint|module|path|document|directory|website)\b [^\n]*?
    (?: (?:was\s+|were\s+|is\s+)?not\s+found | does\s+not\s+exist | doesn't\s+exist | could\s+not\s+be\s+(?:found|loaded|opened|reached) | is\s+unavailable )
  | (?: unknown|no\s+such|undefined ) \s+ (?:tool|function|file|command|url|page|resource|method|endpoint)\b
  | invalid \s+ (?:\w+\s+)? (?:url|uri|argument|arguments|parameter|parameters|input|request|api[\ _]key|json|path|query|token|credentials|syntax|format) \b
  | missing\s+required\b
  | (?: request|connection|operation|command|execution|tool|call|query )\s+ (?:has\s+)? (?:timed\s+out|was\s+refused|refused|was\s+reset) | timed?\s*out\b | timeout\b
  | (?: rate\s+limit(?:ed)?\b | too\s+many\s+requests | quota\s+exceeded | access\s+denied | permission\s+denied | unauthorized | forbidden | not\s+authorized
      | authentication\s+(?:failed|required) | service\s+unavailable | internal\s+server\s+error | bad\s+gateway )
  | [\w./-]{1,60} \s* : \s* [^\n]*? (?: command\s+not\s+found | no\s+such\s+file\s+or\s+directory | permission\s+denied | connection\s+refused | not\s+found\s*$ )
  | (?: exit\s+(?:code|status) | process\s+exited\s+with\s+(?:code|status) )\s*:?\s*[1-9]
)"#;

regex!(IS_ERROR, ALWAYS);
regex!(IS_SHORT_ERROR, SHORT);

/// The passage of a plain text that makes it an error report.
fn from_text(text: &str) -> Option<&str> {
    let text = without_labels(text);
    let head = clip(text, HEAD_BYTES);
    if IS_ERROR.is_match(head) || text.len() <= SHORT_BYTES && IS_SHORT_ERROR.is_match(head) {
        return Some(text);
    }
    python_repr(text).or_else(|| error_page(text)).or_else(|| ending_traceback(text))
}

/// Skips labels that frameworks put before a tool's output.
fn without_labels(text: &str) -> &str {
    const LABELS: [&str; 8] = [
        "observation:",
        "result:",
        "output:",
        "tool result:",
        "tool output:",
        "response:",
        "tool response:",
        "execution result:",
    ];
    let mut text = text.trim();
    for _ in 0..MAX_UNWRAP {
        let marked =
            text.trim_start_matches(|c: char| c.is_whitespace() || "*#>`\"'[(❌⚠🚫✗✘\u{fe0f}".contains(c));
        let cut = LABELS.iter().find_map(|label| {
            let start = marked.get(..label.len())?;
            start.eq_ignore_ascii_case(label).then(|| marked.get(label.len()..))?
        });
        match cut {
            Some(rest) => text = rest.trim_start(),
            None => return marked,
        }
    }
    text
}

regex!(
    DICT,
    r"^\{\s*'(?:error|errors|exception|error_message)'\s*:\s*(?:'[^']|\x22|\{|\[[^\]]|True)|^\{\s*'(?:status|type)'\s*:\s*'(?:error|failed|failure)'|^\{\s*'(?:success|ok)'\s*:\s*False|^\{\s*'is_?[eE]rror'\s*:\s*True"
);

/// `{'error': ...}` as Python prints it.
fn python_repr(text: &str) -> Option<&str> {
    if text.as_bytes().first() != Some(&b'{') || text.len() > MAX_JSON {
        return None;
    }
    DICT.is_match(clip(text, HEAD_BYTES)).then_some(text)
}

regex!(
    TITLE,
    r"(?i)<title>\s*(?:error\s+)?[45]\d\d\b\s*(?:[-:|]|not|for|un|bad|int|ser|gat|too|me|go|err|</)"
);

/// An HTML page whose title is an HTTP error.
fn error_page(text: &str) -> Option<&str> {
    if text.as_bytes().first() != Some(&b'<') {
        return None;
    }
    let found = TITLE.find(clip(text, 4 * HEAD_BYTES))?;
    text.get(found.start()..)
}

/// Output that ends in a Python traceback: its header is followed only by indented lines and the
/// line of the exception. A traceback in the middle of a document does not count.
fn ending_traceback(text: &str) -> Option<&str> {
    /// Maximum further lines of the exception's message.
    const MAX_MESSAGE_LINES: usize = 4;
    let start = memchr::memmem::rfind(text.as_bytes(), TRACEBACK.as_bytes())?;
    let trace = text.get(start..)?;
    let mut flush = trace.lines().skip(1).filter(|line| !line.is_empty() && !line.starts_with([' ', '\t']));
    let named = flush.next().is_some_and(|line| {
        let name = line.split([':', '(']).next().unwrap_or("").trim();
        !name.is_empty() && name.len() < 120 && !name.contains(' ')
    });
    (named && flush.count() < MAX_MESSAGE_LINES).then_some(trace)
}

#[cfg(test)]
mod tests;
