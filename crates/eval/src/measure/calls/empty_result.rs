//! Results that contain nothing: empty values, and short texts that state that nothing was found. The texts are
//! messages of programs, and are recognised in English.

use serde_json::Value;

/// Maximum bytes of a message that states that nothing was found.
const MAX_MESSAGE_BYTES: usize = 400;

/// Whether a result is empty or states that nothing was found.
pub(crate) fn is_nothing(text: &str) -> bool {
    let trimmed = text.trim();
    is_void(trimmed) || says_nothing_found(trimmed)
}

/// Whether the text is an empty value (`""`, `[]`, `null`), also inside the objects in which frameworks wrap results.
pub(crate) fn is_void(text: &str) -> bool {
    /// Maximum bytes of JSON that may be without content.
    const MAX_VOID_BYTES: usize = 120;
    match text {
        "" | "[]" | "{}" | "null" | "None" | "\"\"" | "()" | "undefined" | "[{}]" => true,
        _ if text.len() <= MAX_VOID_BYTES && text.starts_with(['{', '[', '"']) => {
            serde_json::from_str(text).is_ok_and(|value| is_empty_value(&value, 0))
        }
        _ => false,
    }
}

/// Whether a value has no content: objects may have empty lists, empty wrappers, metadata and counts of 0, and need one
/// of the former two unless they are empty. Deeper than four levels, a value counts as content.
fn is_empty_value(value: &Value, depth: usize) -> bool {
    /// Keys under which frameworks wrap a result.
    const WRAPPERS: [&str; 8] =
        ["result", "results", "output", "content", "data", "items", "text", "documents"];
    /// Keys of lists whose entries are problems: an empty list is a good result, not an empty one.
    const PROBLEM_KEYS: [&str; 8] =
        ["errors", "warnings", "issues", "problems", "violations", "conflicts", "failures", "alerts"];
    const METADATA_KEYS: [&str; 9] =
        ["type", "count", "total", "status", "ok", "success", "isError", "query", "annotations"];
    match value {
        Value::Null => true,
        Value::String(text) => matches!(text.trim(), "" | "[]" | "{}" | "null" | "None"),
        Value::Array(items) => depth < 4 && items.iter().all(|item| is_empty_value(item, depth + 1)),
        Value::Object(map) => {
            let mut has_wrapper = false;
            map.is_empty()
                || depth < 4
                    && map.iter().all(|(key, value)| {
                        // Any empty list is an empty result, unless its entries would be problems.
                        let is_list =
                            matches!(value, Value::Array(_)) && !PROBLEM_KEYS.contains(&key.as_str());
                        let is_wrapper = is_list || WRAPPERS.contains(&key.as_str());
                        has_wrapper |= is_wrapper;
                        is_wrapper && is_empty_value(value, depth + 1)
                            || METADATA_KEYS.contains(&key.as_str())
                            || value.as_u64() == Some(0)
                    })
                    && has_wrapper
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

/// Whether the text only states that nothing was found.
pub(crate) fn says_nothing_found(text: &str) -> bool {
    if text.len() > MAX_MESSAGE_BYTES {
        return false;
    }
    let body = text.trim_start_matches(['{', '[', '"', '\'']);
    // A text of more than three lines contains results, even if it begins with "No data ...".
    text.lines().filter(|line| !line.trim().is_empty()).count() <= 3
        && (NOTHING.is_match(text) || NOTHING.is_match(after_key(body)))
}

/// The text after one JSON key (`result": "`) that a wrapper may write before the message.
fn after_key(text: &str) -> &str {
    const KEYS: [&str; 7] = ["result", "output", "message", "content", "text", "response", "answer"];
    let rest = KEYS.iter().find_map(|key| text.strip_prefix(key));
    rest.map_or(text, |rest| rest.trim_start_matches(['"', '\'', ':', ' ', '[', '{']))
}
