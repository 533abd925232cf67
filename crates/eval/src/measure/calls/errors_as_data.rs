//! Results that contain errors other than the call's own: the record of an object with its state, a log, and a
//! document.
//!
//! In: a lookup and its result. Out: whether the error text in the result is content that was looked up. A record
//! contains the identifier that the lookup asked for and describes the object by further members: at least one, or
//! two if the error could be the reason for a failure of the call. A log has several lines. A document has the error
//! as its title, or after other text.

use serde_json::Value;

use crate::measure::Memo;
use crate::measure::defect::Defect;
use crate::measure::error_kind::cause;
use crate::measure::error_text;
use crate::measure::identifier::identifier_words;
use crate::measure::tool_purpose::{Purpose, is_of_kind, purpose};
use crate::recognise::{AgentTrace, Call};

/// Maximum bytes of a record that is read.
const MAX_BYTES: usize = 16 << 10;
/// Maximum members of a record, and arguments of a call, that are compared.
const MAX_MEMBERS: usize = 40;
/// Keys of members that describe the response or its error, not an object.
const RESPONSE_KEYS: [&str; 22] = [
    "error",
    "errors",
    "error_message",
    "errorMessage",
    "exception",
    "code",
    "error_code",
    "status_code",
    "statusCode",
    "http_status",
    "message",
    "msg",
    "detail",
    "details",
    "reason",
    "hint",
    "timestamp",
    "request_id",
    "trace_id",
    "path",
    "type",
    "retryable",
];

/// Whether the error that a result reports (`message`) is content that was looked up, not an error of the call.
pub(super) fn is_data(trace: &AgentTrace, memo: &Memo, call: &Call, result: &str, message: &str) -> bool {
    let is_lookup = || purpose(trace, memo, call) == Purpose::Query;
    match result.trim_start().starts_with('{') {
        true => {
            let has_specific_cause = !matches!(cause(message), Defect::Errored | Defect::Exhausted);
            described_members(call, result) > usize::from(has_specific_cause) && is_lookup()
        }
        false => {
            let is_log = || returns_log(call) && result.trim().lines().nth(1).is_some();
            let is_document = || returns_documents(call) && error_text::is_in_document(result);
            (is_log() || is_document()) && is_lookup()
        }
    }
}

/// Whether the name of the tool or of one of its text arguments contains a word for documents.
fn returns_documents(call: &Call) -> bool {
    let arguments = call.parsed.as_deref().and_then(Value::as_object).into_iter().flatten();
    let texts = arguments.take(MAX_MEMBERS).filter(|(_, value)| value.is_string());
    let mut names = texts.map(|(key, _)| key.as_str()).chain([&*call.name]);
    names.any(|name| is_of_kind("documents", &identifier_words(name)))
}

/// Whether the name of the tool contains "log".
fn returns_log(call: &Call) -> bool {
    identifier_words(&call.name).iter().any(|word| matches!(word.as_str(), "log" | "logs"))
}

/// The number of members that describe the object of a lookup in its record; 0 for a result that is no such record.
fn described_members(call: &Call, result: &str) -> usize {
    let Some(arguments) = call.parsed.as_deref().and_then(Value::as_object) else { return 0 };
    if result.len() > MAX_BYTES {
        return 0;
    }
    let Ok(Value::Object(map)) = serde_json::from_str(result) else { return 0 };
    let is_argument = |value: &Value| arguments.values().take(MAX_MEMBERS).any(|argument| argument == value);
    let is_identifier = |value: &Value| (value.is_string() || value.is_number()) && is_argument(value);
    let is_failure = |word: &str| {
        ["error", "failed", "failure", "fail"].iter().any(|failure| word.eq_ignore_ascii_case(failure))
    };
    let is_code = |key: &str, value: &Value| key == "status" && value.is_number();
    let describes =
        |key: &str, value: &Value| !value.is_null() && !is_code(key, value) && !RESPONSE_KEYS.contains(&key);
    let declares_outcome =
        ["success", "ok", "isError", "is_error"].iter().any(|flag| map.contains_key(*flag))
            || map.get("status").and_then(Value::as_str).is_some_and(is_failure);
    match !declares_outcome && map.values().take(MAX_MEMBERS).any(is_identifier) {
        true => {
            let members = map.iter().take(MAX_MEMBERS);
            members.filter(|(key, value)| !is_identifier(value) && describes(key, value)).count()
        }
        false => 0,
    }
}
