//! The keys of JSON text, found without parsing it.

/// Whether JSON in `text` has, at any depth, a key that is `wanted`, or may have one: of keys with
/// escapes in them nothing is known. Costs a fraction of parsing it. Anything may come of what is no
/// JSON.
pub(crate) fn may_have(text: &str, wanted: impl Fn(&[u8]) -> bool) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(begin) = bytes.get(at..).and_then(|rest| memchr::memchr(b'"', rest)) {
        let begin = at + begin + 1;
        let Some((end, plain)) = bytes.get(begin..).and_then(|rest| string_end(rest, |_| true)) else {
            return false;
        };
        let Some((string, rest)) = bytes.get(begin..).and_then(|rest| rest.split_at_checked(end)) else {
            return false;
        };
        let is_key = rest.iter().skip(1).find(|b| !b.is_ascii_whitespace()) == Some(&b':');
        if is_key && (!plain || wanted(string)) {
            return true;
        }
        at = begin + end + 1;
    }
    false
}

/// Where the string ends that `rest` goes on with, and whether it has no escapes; nothing where it does
/// not end, or an escape (what follows its backslash) is not `allowed`.
#[inline]
pub(super) fn string_end(rest: &[u8], allowed: impl Fn(u8) -> bool) -> Option<(usize, bool)> {
    let (mut at, mut plain) = (0, true);
    loop {
        at += memchr::memchr2(b'"', b'\\', rest.get(at..)?)?;
        if rest.get(at) == Some(&b'"') {
            return Some((at, plain));
        }
        if !allowed(*rest.get(at + 1)?) {
            return None;
        }
        (at, plain) = (at + 2, false);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn keys_are_told_from_values_and_from_what_stands_in_strings() {
        let has = |json| may_have(json, |key| key == b"a");
        assert!(has(r#"{"a":1}"#) && has(r#"[{"b": {"x":"", "a" : null}}]"#));
        assert!(has(r#"{"\u0061":1}"#), "an escaped key may be any");
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

    proptest! {
        #[test]
        fn no_key_is_passed_over(
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
                prop_assert!(!has(&value, "a") || may_have(&json, |key| key == b"a"), "{json}");
            }
        }
    }
}
