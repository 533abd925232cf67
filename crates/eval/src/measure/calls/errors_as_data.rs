//! Results that contain errors other than the call's own: the record of a thing with its state, a log, and a
//! document.
//!
//! In: a lookup and its result. Out: whether what reads as an error is what was looked up. A record names the thing
//! that the lookup asked for and says more of it than an error: one thing, or two if the error would explain why a call
//! failed. A log has several lines. A document has the error as its title, or at the end of other text.

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
/// Most members of a record, and arguments of a call, that are compared.
const MAX_MEMBERS: usize = 40;
/// Members that say something of the response or of its error, and nothing of a thing.
const ABOUT_THE_CALL: [&str; 22] = [
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

/// Whether the error that a result reports (`message`) is a statement about what was looked up.
pub(super) fn is_data(trace: &AgentTrace, memo: &Memo, call: &Call, result: &str, message: &str) -> bool {
    let is_lookup = || purpose(trace, memo, call) == Purpose::Query;
    match result.trim_start().starts_with('{') {
        true => {
            let explains = !matches!(cause(message), Defect::Errored | Defect::Exhausted);
            described_members(call, result) > usize::from(explains) && is_lookup()
        }
        false => {
            let is_log = || returns_log(call) && result.trim().lines().nth(1).is_some();
            let is_document = || returns_documents(call) && error_text::is_in_document(result);
            (is_log() || is_document()) && is_lookup()
        }
    }
}

/// Whether the tool is named for the documents that it returns, or one of its arguments names a document.
fn returns_documents(call: &Call) -> bool {
    let arguments = call.parsed.as_deref().and_then(Value::as_object).into_iter().flatten();
    let texts = arguments.take(MAX_MEMBERS).filter(|(_, value)| value.is_string());
    let mut names = texts.map(|(key, _)| key.as_str()).chain([&*call.name]);
    names.any(|name| is_of_kind("documents", &identifier_words(name)))
}

fn returns_log(call: &Call) -> bool {
    identifier_words(&call.name).iter().any(|word| matches!(word.as_str(), "log" | "logs"))
}

/// The members of a record of what the lookup asked for that say something of it; none of another result.
fn described_members(call: &Call, result: &str) -> usize {
    let Some(arguments) = call.parsed.as_deref().and_then(Value::as_object) else { return 0 };
    if result.len() > MAX_BYTES {
        return 0;
    }
    let Ok(Value::Object(map)) = serde_json::from_str(result) else { return 0 };
    let is_passed = |value: &Value| arguments.values().take(MAX_MEMBERS).any(|passed| passed == value);
    let is_name = |value: &Value| (value.is_string() || value.is_number()) && is_passed(value);
    let has_failed = |word: &str| {
        ["error", "failed", "failure", "fail"].iter().any(|failure| word.eq_ignore_ascii_case(failure))
    };
    let is_code = |key: &str, value: &Value| key == "status" && value.is_number();
    let says =
        |key: &str, value: &Value| !value.is_null() && !is_code(key, value) && !ABOUT_THE_CALL.contains(&key);
    let declares = ["success", "ok", "isError", "is_error"].iter().any(|flag| map.contains_key(*flag))
        || map.get("status").and_then(Value::as_str).is_some_and(has_failed);
    match !declares && map.values().take(MAX_MEMBERS).any(is_name) {
        true => {
            let members = map.iter().take(MAX_MEMBERS);
            members.filter(|(key, value)| !is_name(value) && says(key, value)).count()
        }
        false => 0,
    }
}
