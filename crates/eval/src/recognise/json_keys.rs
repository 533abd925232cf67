//! Scans JSON text for keys, or for the number of its values, without parsing it.

use serde_json::Value;

use super::node::MAX_NODES;

/// Whether the JSON `text` may have a key, at any depth, for which `is_wanted` is true. A key with escapes counts
/// as wanted. Costs a fraction of parsing. The result for invalid JSON is unspecified.
pub(crate) fn may_have_key(text: &str, is_wanted: impl Fn(&[u8]) -> bool) -> bool {
    let bytes = text.as_bytes();
    let mut position = 0;
    while let Some(quote) = next_of([b'"'; 2], bytes, position) {
        let begin = quote + 1;
        let body = bytes.get(begin..).unwrap_or_default();
        let Some((end, is_unescaped)) = string_end(body, |_| true) else { return false };
        let (string, rest) = body.split_at(end);
        let is_key = rest.iter().skip(1).find(|b| !b.is_ascii_whitespace()) == Some(&b':');
        if is_key && (!is_unescaped || is_wanted(string)) {
            return true;
        }
        position = begin + end + 1;
    }
    false
}

/// Parses JSON. `None` if it is invalid or has more than [`MAX_NODES`] values, which take up to 150 bytes
/// each.
pub(crate) fn parse(text: &str) -> Option<Value> {
    (values(text) <= MAX_NODES).then(|| serde_json::from_str(text).ok()).flatten()
}

/// The number of values in the JSON `text`, plus one for each empty list and object. For invalid JSON, at least the
/// number of values before the error.
pub fn values(text: &str) -> usize {
    let bytes = text.trim_ascii_start().as_bytes();
    let (mut position, mut values) = (0, 1);
    if !matches!(bytes.first(), Some(b'[' | b'{')) {
        return values;
    }
    while let Some(&byte) = bytes.get(position) {
        position += 1;
        match byte {
            b'"' => match string_end(bytes.get(position..).unwrap_or_default(), |_| true) {
                Some((end, _)) => position += end + 1,
                None => break,
            },
            b',' | b'[' | b'{' => values += 1,
            _ => {}
        }
    }
    values
}

/// The length of the string at the beginning of `rest` (the text after an opening quote), and whether
/// it has no escapes. `None` if it is not closed, or if `is_allowed` is false for the byte after a backslash.
#[inline]
pub(super) fn string_end(rest: &[u8], is_allowed: impl Fn(u8) -> bool) -> Option<(usize, bool)> {
    let (mut position, mut is_unescaped) = (0, true);
    loop {
        position = next_of([b'"', b'\\'], rest, position)?;
        if rest.get(position) == Some(&b'"') {
            return Some((position, is_unescaped));
        }
        if !is_allowed(*rest.get(position + 1)?) {
            return None;
        }
        (position, is_unescaped) = (position + 2, false);
    }
}

/// The position of the first of two bytes at or after `position`.
#[inline(always)]
pub(super) fn next_of([a, b]: [u8; 2], bytes: &[u8], mut position: usize) -> Option<usize> {
    // Most strings are too short for a vectorised search to be worthwhile, so eight bytes are compared at a time first.
    const ONES: u64 = u64::MAX / 255;
    for _ in 0..3 {
        let Some(word) = bytes.get(position..).and_then(|rest| rest.first_chunk().copied()) else { break };
        let match_bits = |byte: u8| {
            let zero_where_equal = u64::from_le_bytes(word) ^ (ONES * u64::from(byte));
            zero_where_equal.wrapping_sub(ONES) & !zero_where_equal
        };
        let matches = (match_bits(a) | match_bits(b)) & ONES << 7;
        if matches != 0 {
            return Some(position + matches.trailing_zeros() as usize / 8);
        }
        position += 8;
    }
    memchr::memchr2(a, b, bytes.get(position..)?).map(|offset| position + offset)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_keys_match_not_values_or_string_contents() {
        let has = |json| may_have_key(json, |key| key == b"a");
        assert!(has(r#"{"a":1}"#) && has(r#"[{"b": {"x":"", "a" : null}}]"#));
        assert!(has(r#"{"\u0061":1}"#), "an escaped key counts as wanted");
        for json in [r#"{"b":"a"}"#, r#"{"b":"\"a\":1"}"#, r#"["a"]"#, "{}", "", r#"{"b":"#, r#""\"#] {
            assert!(!has(json), "{json}");
        }
    }

    fn has(value: &Value, key: &str) -> bool {
        match value {
            Value::Object(map) => map.iter().any(|(k, v)| k == key || has(v, key)),
            Value::Array(items) => items.iter().any(|item| has(item, key)),
            _ => false,
        }
    }

    fn count(value: &Value) -> usize {
        1 + match value {
            Value::Object(map) => map.values().map(count).sum::<usize>() + usize::from(map.is_empty()),
            Value::Array(items) => items.iter().map(count).sum::<usize>() + usize::from(items.is_empty()),
            _ => 0,
        }
    }

    #[test]
    fn values_are_counted_outside_strings() {
        for json in [r#" {"a":[1,"x,[{\\",{"b":null}],"c":"\",["}"#, "[]", "[[],{}]", "1", r#""a,b""#] {
            assert_eq!(values(json), count(&serde_json::from_str(json).unwrap()), "{json}");
        }
        assert_eq!(values("a, b, c"), 1);
        assert_eq!(values("[1,2,\"3"), 4);
        assert_eq!(parse("[1,2]"), Some(serde_json::json!([1, 2])));
        assert_eq!(parse(&format!("[1{}]", ",1".repeat(MAX_NODES))), None);
    }

    proptest! {
        #[test]
        fn every_key_of_valid_json_is_found(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "{", "}", "[", "]", ",", ":", " ", "\n", "\"a\"", "\"b\"", "\"\\\"a\"", "\"\\u0061\"", "\"\\\\\"", "1",
                    "\"a\" :", "\"b\":", "null",
                ]),
                0..12,
            ),
        ) {
            let json = format!("{{\"x\":{}}}", pieces.concat());
            if let Ok(value) = serde_json::from_str::<Value>(&json) {
                prop_assert!(!has(&value, "a") || may_have_key(&json, |key| key == b"a"), "{json}");
            }
        }
    }
}
