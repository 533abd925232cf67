//! Error reports in structured results: JSON, and objects as Python prints them.
//!
//! In: a value. Out: the passage that reports an error. Flags, statuses and exit statuses decide. Wrappers of
//! frameworks and protocols are removed, and the text within is read as a plain result.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::{Map, Value};

use super::document::MAX_SENTENCE_REPORT_BYTES;
use super::plain;
use super::uncaught::{self, TRACEBACK};
use super::{headline, repr};
use crate::measure::error_kind::cause_excerpt;
use crate::measure::vocabulary::{self, WordMeaning};
use crate::recognise::json_keys;

/// Maximum bytes of JSON that is parsed; larger JSON is not an error report.
const MAX_JSON_BYTES: usize = 64 * 1024;
/// Maximum depth of wrappers around a text.
const MAX_DEPTH: usize = 4;
/// Maximum elements of a JSON array that is one message.
const MAX_BLOCKS: usize = 4;
/// Maximum keys of an object that wraps a text; an object with more keys is data.
const MAX_WRAPPER_KEYS: usize = 8;

/// The passage of a text, which may be JSON, that reports an error; `None` if it reports none.
pub(super) fn reported(text: &str) -> Option<String> {
    let first = *text.as_bytes().first()?;
    if matches!(first, b'{' | b'[' | b'"') && text.len() <= MAX_JSON_BYTES {
        if !may_be_error(text) {
            return None;
        }
        if let Ok(value) = serde_json::from_str::<Value>(text) {
            let passage = from_value(&value, 0)?;
            return Some(if passage.is_empty() { cause_excerpt(text).to_owned() } else { passage });
        }
    }
    from_text(text)
}

/// The passage of a text that makes it an error report. An exit status that an executor reports takes precedence over
/// the output of the program.
fn from_text(text: &str) -> Option<String> {
    if let Some(headline) = headline::find(text) {
        let passage = uncaught::passage(text, headline.line);
        // Commands that search or compare report "no" by status 1 without any output.
        let is_answer = headline.status == 1 && !headline.reports_failure && passage == headline.line;
        return (headline.status != 0 && !is_answer).then(|| cause_excerpt(passage).to_owned());
    }
    if let Some(value) = printed_object(text) {
        let passage = from_value(&value, 0)?;
        return Some(if passage.is_empty() { cause_excerpt(text).to_owned() } else { passage });
    }
    plain::report(text).map(|passage| cause_excerpt(passage).to_owned())
}

/// The value of an object that Python printed; `None` if the text is none or cannot report an error.
fn printed_object(text: &str) -> Option<Value> {
    let is_candidate = text.len() <= MAX_JSON_BYTES && repr::may_be_object(text) && may_be_error(text);
    let value = is_candidate.then(|| repr::parse(text)).flatten();
    value.filter(|value| value.is_object() || value.is_array())
}

/// Keys that [`from_map`] or [`reports_failure`] reads, besides those of the lists below. An object without any key
/// that is read reports no error and wraps no text.
const FURTHER_READ_KEYS: [&str; 20] = [
    "isError",
    "is_error",
    "success",
    "ok",
    "error",
    "errors",
    "exception",
    "traceback",
    "error_message",
    "errorMessage",
    "status",
    "type",
    "status_code",
    "statusCode",
    "code",
    "http_status",
    "detail",
    "message",
    "stderr",
    "metadata",
];

/// A set of keys. Most keys of a result have another first byte or another length, and are not compared.
struct KeySet {
    /// By first byte, one bit for each length.
    lengths: [u32; 256],
    keys: Vec<&'static str>,
}

impl KeySet {
    fn new(keys: impl Iterator<Item = &'static str>) -> KeySet {
        let mut set = KeySet { lengths: [0; 256], keys: keys.collect() };
        for key in &set.keys {
            let first = key.bytes().next().unwrap_or_default();
            set.lengths[usize::from(first)] |= length_bit(key.len());
        }
        set
    }

    fn has(&self, key: &[u8]) -> bool {
        let first = key.first().copied().unwrap_or_default();
        self.lengths[usize::from(first)] & length_bit(key.len()) != 0
            && self.keys.iter().any(|other| other.as_bytes() == key)
    }
}

/// The bit of a length; all lengths from 31 share one.
fn length_bit(length: usize) -> u32 {
    1 << length.min(31)
}

static READ_KEYS: LazyLock<KeySet> = LazyLock::new(|| {
    let statuses = EXIT_STATUS.into_iter().chain(EXIT_STATUS_WITH_STREAMS.iter().map(|(key, _)| *key));
    let keys = FURTHER_READ_KEYS.into_iter().chain(ERROR_KEYS.iter().copied());
    KeySet::new(keys.chain(statuses).chain(WRAPPERS))
});

static FIND_TRACEBACK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(TRACEBACK));

/// Whether a text may report an error. Objects without any key of [`READ_KEYS`] are excluded before they are parsed.
fn may_be_error(text: &str) -> bool {
    // Text that only resembles an object may end in a traceback.
    let is_object =
        text.starts_with("{\"") && text.ends_with('}') && FIND_TRACEBACK.find(text.as_bytes()).is_none();
    let read_keys = &*READ_KEYS;
    !is_object || json_keys::may_have_key(text, |key| read_keys.has(key))
}

/// The passage of a value that reports an error; empty if the value reports a failure without a message.
fn from_value(value: &Value, depth: usize) -> Option<String> {
    if depth > MAX_DEPTH {
        return None;
    }
    match value {
        Value::String(text) => {
            let inner = text.trim();
            if matches!(inner.as_bytes().first(), Some(b'{' | b'['))
                && inner.len() <= MAX_JSON_BYTES
                && let Ok(value) = serde_json::from_str::<Value>(inner)
            {
                return from_value(&value, depth + 1);
            }
            from_text(inner)
        }
        // Content blocks are one message in pieces, of which the first must report the error.
        Value::Array(items) if !items.is_empty() && items.len() <= MAX_BLOCKS => {
            let is_text = |map: &Map<String, Value>| map.len() == 1 && map.contains_key("text");
            let block = |item: &Value| match item {
                // A text with a source or a score is a document.
                Value::Object(map) if map.contains_key("type") || is_text(map) || reports_failure(map) => {
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

/// Keys of an error, besides the word "error" itself.
const ERRORS: [&str; 5] = ["errors", "exception", "traceback", "error_message", "errorMessage"];
/// The word "error" in every language, then [`ERRORS`].
static ERROR_KEYS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| vocabulary::words_of(WordMeaning::Error).chain(ERRORS).collect());
/// Keys of the verdict of a check on its input.
const VERDICT_KEYS: [&str; 5] = ["valid", "is_valid", "isValid", "passed", "compliant"];
/// Keys of the text of an error in an object that reports a failure, besides the word "error" itself.
const MESSAGES: [&str; 12] = [
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
/// The word "error" in every language, then [`MESSAGES`].
static MESSAGE_KEYS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| vocabulary::words_of(WordMeaning::Error).chain(MESSAGES).collect());
/// Keys under which frameworks wrap a plain result.
const WRAPPERS: [&str; 13] = [
    "result",
    "output",
    "stdout",
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

/// Keys of the exit status of a run.
const EXIT_STATUS: [&str; 7] =
    ["exit_code", "exitCode", "exitcode", "exit_status", "exitStatus", "returncode", "return_code"];
/// Further keys of the exit status of a run, each with the keys of output streams next to which it has this meaning.
const EXIT_STATUS_WITH_STREAMS: [(&str, &[&str]); 3] = [
    ("rc", &["stderr", "stdout", "err", "out", "output"]),
    ("exit", &["stderr", "stdout", "err", "out", "output"]),
    ("code", &["stderr", "stdout"]),
];
/// Keys of the output of a run, the most informative first.
const OUTPUT_KEYS: [&str; 9] =
    ["stderr", "err", "error", "output", "stdout", "out", "message", "content", "result"];

/// The exit status of a run, also in the metadata next to its output.
fn exit_status(map: &Map<String, Value>) -> Option<i64> {
    let status_in = |map: &Map<String, Value>| EXIT_STATUS.iter().find_map(|key| map.get(*key)?.as_i64());
    let is_text = |key: &&str| map.get(*key).is_some_and(Value::is_string);
    let status_with_streams = || {
        let mut keys = EXIT_STATUS_WITH_STREAMS.iter().filter(|(_, streams)| streams.iter().any(is_text));
        keys.find_map(|(key, _)| map.get(*key)?.as_i64())
    };
    status_in(map).or_else(|| status_in(map.get("metadata")?.as_object()?)).or_else(status_with_streams)
}

/// The error of a run with an exit status other than 0. `None` for status 1 without any output, by which commands that
/// search or compare report "no".
fn failed_run(map: &Map<String, Value>, status: i64) -> Option<String> {
    let output =
        OUTPUT_KEYS.iter().find_map(|key| map.get(*key)?.as_str().filter(|text| !text.trim().is_empty()));
    match output {
        Some(text) => Some(cause_excerpt(uncaught::passage(text, "")).to_owned()),
        None => (status != 1).then(String::new),
    }
}

/// The passage of an object that reports an error; empty if the object reports a failure without a message.
fn from_map(map: &Map<String, Value>, depth: usize) -> Option<String> {
    match exit_status(map).filter(|_| !is_declared_failure(map)) {
        Some(0) => return None,
        Some(status) => return failed_run(map, status),
        None => {}
    }
    if reports_failure(map) {
        let message = MESSAGE_KEYS.iter().find_map(|key| map.get(*key).and_then(message_text));
        // Without a message the caller quotes the whole result.
        return Some(message.unwrap_or_default());
    }
    // An object with only a message: `{"detail": "Not Found"}`.
    if map.len() == 1
        && let Some((key, Value::String(text))) = map.iter().next()
        && ["detail", "message"].contains(&key.as_str())
        && text.len() <= MAX_SENTENCE_REPORT_BYTES
        && from_text(text).is_some()
    {
        return Some(cause_excerpt(text).to_owned());
    }
    // A program that wrote to its standard error alone.
    if let Some(Value::String(text)) = map.get("stderr")
        && ["stdout", "output", "result"].iter().all(|key| map.get(*key).is_none_or(is_void))
    {
        return from_text(text.trim());
    }
    if map.len() > MAX_WRAPPER_KEYS {
        return None;
    }
    WRAPPERS.iter().filter_map(|key| map.get(*key)).find_map(|inner| from_value(inner, depth + 1))
}

/// Whether a flag of the object reports that the call failed.
fn is_declared_failure(map: &Map<String, Value>) -> bool {
    let is_flag = |key: &str, value: bool| map.get(key).and_then(Value::as_bool) == Some(value);
    is_flag("isError", true) || is_flag("is_error", true) || is_flag("success", false) || is_flag("ok", false)
}

/// Whether a flag, a status or an error field of the object reports a failure.
fn reports_failure(map: &Map<String, Value>) -> bool {
    if is_declared_failure(map) {
        return true;
    }
    let has_payload = ["data", "results", "result", "items", "output", "content", "records"]
        .iter()
        .any(|key| map.get(*key).is_some_and(|v| !is_void(v)));
    // The errors that a check lists are its result.
    let is_verdict = VERDICT_KEYS.iter().any(|key| map.get(*key).is_some_and(Value::is_boolean));
    for &key in ERROR_KEYS.iter().filter(|_| !is_verdict) {
        match map.get(key) {
            Some(Value::Bool(true)) => return true,
            Some(v @ (Value::String(_) | Value::Object(_) | Value::Array(_))) if !is_void(v) => {
                // An error next to a payload is a warning about a part of the work.
                return !has_payload || key == "error" && map.len() <= 3;
            }
            _ => {}
        }
    }
    let lowercase_text = |key: &str| map.get(key).and_then(Value::as_str).map(str::to_ascii_lowercase);
    if let Some("error" | "failed" | "failure" | "fail" | "fault") = lowercase_text("status").as_deref() {
        return map.keys().any(|k| MESSAGE_KEYS.contains(&k.as_str()) || k.starts_with("error"))
            || map.len() == 1;
    }
    if let Some("error") = lowercase_text("type").as_deref() {
        return map.keys().any(|k| MESSAGE_KEYS.contains(&k.as_str()));
    }
    let status = ["status", "status_code", "statusCode", "code", "http_status"]
        .iter()
        .filter_map(|key| map.get(*key))
        .find_map(Value::as_u64);
    status.is_some_and(|code| (400..600).contains(&code))
        && map.keys().any(|k| ["message", "detail", "title", "error", "reason"].contains(&k.as_str()))
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

/// The text of a message, which may be nested in an object or an array.
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
