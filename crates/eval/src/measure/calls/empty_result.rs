//! Results that contain nothing: empty values, and short texts that say that nothing was found, which are messages of
//! programs, in English.

use serde_json::Value;

/// Maximum bytes of a message that nothing was found.
const SHORT_BYTES: usize = 400;

/// Whether a result is empty or says that nothing was found.
pub(crate) fn is_nothing(text: &str) -> bool {
    let plain = text.trim();
    is_void(plain) || says_nothing_found(plain)
}

/// `""`, `[]`, `null` and the like, also inside the objects that frameworks wrap results in.
pub(crate) fn is_void(text: &str) -> bool {
    /// Maximum bytes of JSON without content.
    const VOID_BYTES: usize = 120;
    match text {
        "" | "[]" | "{}" | "null" | "None" | "\"\"" | "()" | "undefined" | "[{}]" => true,
        _ if text.len() <= VOID_BYTES && text.starts_with(['{', '[', '"']) => {
            serde_json::from_str(text).is_ok_and(|value| is_empty_value(&value, 0))
        }
        _ => false,
    }
}

fn is_empty_value(value: &Value, depth: usize) -> bool {
    const WRAPPERS: [&str; 8] =
        ["result", "results", "output", "content", "data", "items", "text", "documents"];
    const UNWANTED: [&str; 8] =
        ["errors", "warnings", "issues", "problems", "violations", "conflicts", "failures", "alerts"];
    const METADATA_KEYS: [&str; 9] =
        ["type", "count", "total", "status", "ok", "success", "isError", "query", "annotations"];
    match value {
        Value::Null => true,
        Value::String(text) => matches!(text.trim(), "" | "[]" | "{}" | "null" | "None"),
        Value::Array(items) => depth < 4 && items.iter().all(|item| is_empty_value(item, depth + 1)),
        Value::Object(map) => {
            let mut wrapped = false;
            map.is_empty()
                || depth < 4
                    && map.iter().all(|(key, value)| {
                        // Any empty list is an empty result, unless having no entries is good.
                        let is_list = matches!(value, Value::Array(_)) && !UNWANTED.contains(&key.as_str());
                        let wraps = is_list || WRAPPERS.contains(&key.as_str());
                        wrapped |= wraps;
                        wraps && is_empty_value(value, depth + 1) || METADATA_KEYS.contains(&key.as_str())
                    })
                    && wrapped
        }
        _ => false,
    }
}

regex!(
    NOTHING,
    concat!(
        r"(?i)^[\W]*(?:(?:sorry|unfortunately)\W+)?(?:",
        r"(?:there (?:are|were|is|was) )?no (?:\w+ ){0,3}?(?:results?|match(?:es|ing)?|documents?|records?|entr(?:y|ies)|items?|hits?|data|files?|pages?|rows?|information|articles?)\b[^.\n]*?(?:\bfound|\bavailable|\breturned|\bmatch(?:ed|ing)?|\bfor\b|\bexists?\b|\.|!|$)",
        r"|no (?:[\w-]+ ){1,4}?(?:(?:was|were|is|are|could be) )?(?:found|available)\b[^.\n]*\.?\W*$",
        r"|nothing (?:was )?found|0 (?:results|matches|hits|rows|documents)\b|(?:could not|couldn't|did not|didn't) find (?:any|a|the)?\b|not found\W*$",
        r"|(?:your |the |this )?(?:search|query)\b[^.\n]*?(?:returned no|returned 0|did not (?:match|return)|found no|yielded no|has no results|had no results)",
        r"|\(?(?:empty|no output|no content|no results?)\)?\W*$)",
    )
);

/// Whether the text only says that nothing was found.
pub(crate) fn says_nothing_found(text: &str) -> bool {
    if text.len() > SHORT_BYTES {
        return false;
    }
    let body = text.trim_start_matches(['{', '[', '"', '\'']);
    // A longer text that begins with "No data ..." contains results.
    text.lines().filter(|line| !line.trim().is_empty()).count() <= 3
        && (NOTHING.is_match(text) || NOTHING.is_match(after_key(body)))
}

/// Skips one JSON key (`result": "`), as wrappers put it before the message.
fn after_key(text: &str) -> &str {
    const KEYS: [&str; 7] = ["result", "output", "message", "content", "text", "response", "answer"];
    let rest = KEYS.iter().find_map(|key| text.strip_prefix(key));
    rest.map_or(text, |rest| rest.trim_start_matches(['"', '\'', ':', ' ', '[', '{']))
}
