//! Parses JSON into [`Node`]s, in one pass and without the intermediate steps of a general deserializer: most of the
//! content of a trace is JSON, or JSON in JSON.
//!
//! In: a text. Out: its value, where `serde_json` accepts it within the bounds. Numbers that are no plain integers and
//! strings with `\u` are left to `serde_json`.

use std::borrow::Cow;

use serde_json::Number;
use verdict_otlp::Value;

use super::json_keys;
use super::node::{MAX_NODES, Node};

/// Maximum depth of JSON, as `serde_json` limits it.
const MAX_DEPTH: usize = 127;
/// Digits of an integer that fits into any type.
const MAX_DIGITS: usize = 18;

impl<'a> Node<'a> {
    /// Parses JSON. `None` if it is invalid or has more than [`MAX_NODES`] nodes.
    pub(crate) fn json(text: &'a str) -> Option<Node<'a>> {
        whole(text, MAX_NODES)
    }

    /// Parses the JSON value at the beginning of `text`, of at most so many levels, and returns its length.
    pub(crate) fn first_json(text: &'a str, depth: usize) -> Option<(Node<'a>, usize)> {
        first(text, depth, MAX_NODES)
    }

    /// Converts an `AnyValue`; a string that contains a JSON object, array or string is parsed.
    pub(crate) fn decoded(value: Value<'a>) -> Node<'a> {
        Node::of(value).unfold()
    }

    /// Parses a string that contains JSON, and once more if the result is such a string. Any other
    /// node is returned unchanged.
    pub(crate) fn unfold(self) -> Node<'a> {
        let mut node = self;
        for _ in 0..2 {
            let inner = match &node {
                Node::Str(Cow::Borrowed(s)) if contains_json(s) => Node::json(s),
                Node::Str(Cow::Owned(s)) if contains_json(s) => Node::json(s).map(Node::into_owned),
                _ => None,
            };
            match inner {
                Some(inner) => node = inner,
                None => break,
            }
        }
        node
    }
}

fn contains_json(s: &str) -> bool {
    matches!(s.trim_ascii_start().as_bytes().first(), Some(b'{' | b'[' | b'"'))
}

/// Parses JSON of at most so many values.
fn whole(text: &str, max_values: usize) -> Option<Node<'_>> {
    let (node, end) = first(text, MAX_DEPTH, max_values)?;
    text.get(end..)?.bytes().all(is_space).then_some(node)
}

/// Parses the JSON value at the beginning of `text`, of at most so many levels and values, and returns its length.
fn first(text: &str, depth: usize, max_values: usize) -> Option<(Node<'_>, usize)> {
    let mut parser = Parser { text, at: 0, values: max_values, unescaped: String::new() };
    let node = parser.value(depth.min(MAX_DEPTH))?;
    Some((node, parser.at))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\t' | b'\r')
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Values that may still be read.
    values: usize,
    /// Buffer for strings with escapes.
    unescaped: String,
}

impl<'a> Parser<'a> {
    /// The next byte that is no white space, which is left to be read.
    fn peek(&mut self) -> Option<u8> {
        let mut byte = *self.text.as_bytes().get(self.at)?;
        while is_space(byte) {
            self.at += 1;
            byte = *self.text.as_bytes().get(self.at)?;
        }
        Some(byte)
    }

    /// Reads this sign behind white space.
    fn sign(&mut self, sign: u8) -> Option<()> {
        (self.peek()? == sign).then(|| self.at += 1)
    }

    /// Reads a value of at most so many levels.
    fn value(&mut self, depth: usize) -> Option<Node<'a>> {
        self.values = self.values.checked_sub(1)?;
        match self.peek()? {
            b'"' => Some(Node::Str(self.string()?)),
            b'{' => self.map(depth.checked_sub(1)?),
            b'[' => self.list(depth.checked_sub(1)?),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word("true", Node::Bool(true)),
            b'f' => self.word("false", Node::Bool(false)),
            b'n' => self.word("null", Node::Null),
            _ => None,
        }
    }

    fn word(&mut self, word: &str, node: Node<'a>) -> Option<Node<'a>> {
        let is_it = self.text.as_bytes().get(self.at..)?.starts_with(word.as_bytes());
        self.at += word.len();
        is_it.then_some(node)
    }

    fn map(&mut self, depth: usize) -> Option<Node<'a>> {
        let mut entries = Vec::new();
        self.at += 1;
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(Node::Map(entries));
        }
        loop {
            if self.peek()? != b'"' {
                return None;
            }
            let key = self.string()?;
            self.sign(b':')?;
            entries.push((key, self.value(depth)?));
            if self.is_last(b'}')? {
                return Some(Node::Map(entries));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Option<Node<'a>> {
        let mut items = Vec::new();
        self.at += 1;
        if self.peek()? == b']' {
            self.at += 1;
            return Some(Node::List(items));
        }
        loop {
            items.push(self.value(depth)?);
            if self.is_last(b']')? {
                return Some(Node::List(items));
            }
        }
    }

    /// Reads the sign behind a member: whether it closes the map or list.
    fn is_last(&mut self, closing: u8) -> Option<bool> {
        let sign = self.peek()?;
        self.at += 1;
        match sign {
            b',' => Some(false),
            sign => (sign == closing).then_some(true),
        }
    }

    fn number(&mut self) -> Option<Node<'a>> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let is_negative = rest.first() == Some(&b'-');
        let unsigned = rest.get(usize::from(is_negative)..)?;
        let (mut value, mut digits) = (0i64, 0);
        for digit in unsigned.iter().take_while(|byte| byte.is_ascii_digit()).take(MAX_DIGITS) {
            value = value * 10 + i64::from(digit - b'0');
            digits += 1;
        }
        let goes_on = matches!(unsigned.get(digits), Some(b'0'..=b'9' | b'.' | b'e' | b'E'));
        // Neither "-0" nor "01".
        let is_plain = unsigned.first().is_some_and(|first| matches!(first, b'1'..=b'9'))
            || unsigned.first() == Some(&b'0') && digits == 1 && !is_negative;
        if !is_plain || goes_on {
            return self.other_number();
        }
        self.at += usize::from(is_negative) + digits;
        Some(Node::Int(if is_negative { -value } else { value }))
    }

    fn other_number(&mut self) -> Option<Node<'a>> {
        let rest = self.text.get(self.at..)?;
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let len = rest.bytes().take_while(|byte| is_part(byte)).count();
        self.at += len;
        let number: Number = serde_json::from_str(rest.get(..len)?).ok()?;
        let integer = number.as_i64().map(Node::Int).or_else(|| number.as_u64().map(Node::Uint));
        integer.or_else(|| number.as_f64().map(Node::Float))
    }

    /// Reads a string from its opening quote on.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        let (text, bytes, quote) = (self.text, self.text.as_bytes(), self.at);
        let mut from = quote + 1;
        let unescaped = &mut self.unescaped;
        unescaped.clear();
        loop {
            let end = end_of_plain(bytes, from)?;
            let plain = text.get(from..end)?;
            if bytes.get(end) == Some(&b'"') {
                self.at = end + 1;
                if from == quote + 1 {
                    return Some(Cow::Borrowed(plain));
                }
                unescaped.push_str(plain);
                return Some(Cow::Owned(unescaped.clone()));
            }
            unescaped.push_str(plain);
            unescaped.push(match (bytes.get(end)?, bytes.get(end + 1)?) {
                (b'\\', escape @ (b'"' | b'\\' | b'/')) => char::from(*escape),
                (b'\\', b'b') => '\u{8}',
                (b'\\', b'f') => '\u{c}',
                (b'\\', b'n') => '\n',
                (b'\\', b'r') => '\r',
                (b'\\', b't') => '\t',
                (b'\\', b'u') => return self.other_string(),
                // A control character.
                _ => return None,
            });
            from = end + 2;
        }
    }

    fn other_string(&mut self) -> Option<Cow<'a, str>> {
        let quote = self.at;
        let (len, _) = json_keys::string_end(self.text.as_bytes().get(quote + 1..)?, |_| true)?;
        self.at = quote + len + 2;
        serde_json::from_str(self.text.get(quote..self.at)?).ok().map(Cow::Owned)
    }
}

/// The position of the first quote, backslash or control character at or after `at`. If there is a control character
/// before a quote far behind, `None`.
fn end_of_plain(bytes: &[u8], at: usize) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    const FIRST_PRINTED: u8 = b' ';
    let mut at = at;
    // Most strings are shorter than what a vectorised search is worth.
    for _ in 0..3 {
        let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk().copied()) else { break };
        let block = u64::from_le_bytes(block);
        // The highest bit of the first byte that is less, and perhaps of bytes behind it.
        let less = |block: u64, than: u8| block.wrapping_sub(ONES * u64::from(than)) & !block;
        let is = |byte: u8| less(block ^ (ONES * u64::from(byte)), 1);
        let found = (is(b'"') | is(b'\\') | less(block, FIRST_PRINTED)) & ONES << 7;
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = bytes.get(at..)?;
    let end = memchr::memchr2(b'"', b'\\', rest)?;
    let has_control = rest.get(..end)?.iter().fold(false, |any, byte| any | (*byte < FIRST_PRINTED));
    (!has_control).then_some(at + end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value as Json;

    use super::*;

    #[test]
    fn doubly_encoded_json_unfolds_and_plain_text_stays() {
        let node = Node::Str(Cow::Borrowed(r#""{\"a\": 1}""#)).unfold();
        assert_eq!(node.get("a"), Some(&Node::Int(1)));
        let node = Node::Str(Cow::Borrowed("{not json")).unfold();
        assert_eq!(node.as_str(), Some("{not json"));
        assert_eq!(Node::Str(Cow::Borrowed("42")).unfold().as_str(), Some("42"));
    }

    #[test]
    fn nesting_and_size_are_bounded() {
        let deep = "[".repeat(100_000);
        assert_eq!(Node::json(&deep), None);
        let wide = format!("[{}1]", "1,".repeat(MAX_NODES));
        assert_eq!(Node::json(&wide), None);
    }

    #[test]
    fn strings_without_escapes_are_borrowed() {
        let node = Node::json(r#"{"a": "plain", "b": "esc\n"}"#);
        let node = node.as_ref();
        assert!(matches!(node.and_then(|n| n.get("a")), Some(Node::Str(Cow::Borrowed("plain")))));
        assert!(matches!(node.and_then(|n| n.get("b")), Some(Node::Str(Cow::Owned(_)))));
    }

    const VALUES: usize = 1000;

    fn parsed(text: &str) -> Option<String> {
        whole(text, VALUES).map(|node| node.to_json())
    }

    fn expected(text: &str) -> Option<String> {
        serde_json::from_str::<Json>(text).ok().map(|value| value.to_string())
    }

    #[test]
    fn what_serde_json_accepts_is_parsed_as_it_does() {
        for text in [
            r#"{"a": [1, -2, 3.5, "x\ny", true, false, null, {}, []], "b": {"c": "\u00e9\ud83d\ude00\/"}}"#,
            " \t\r\n7 ",
            "-0",
            "0",
            "-0.0",
            "1e3",
            "1E+2",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "18446744073709551616",
            "123456789012345678901234567890",
            r#""a long string without any escapes, which goes on for some time""#,
            r#""a long string with an escape, which goes on for some time: \" and \\""#,
            "\"é\u{7f}\"",
            r#""""#,
        ] {
            assert_eq!(parsed(text), expected(text), "{text}");
            assert!(parsed(text).is_some(), "{text}");
        }
        for text in [
            "",
            " ",
            "01",
            "-",
            "-01",
            "1.",
            ".5",
            "1e",
            "1e999",
            "+1",
            "tru",
            "nul",
            "truex",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\":1,}",
            "{\"a\"}",
            "{a:1}",
            "{1:2}",
            "[",
            "{",
            "\"",
            "\"\\",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\\u12\"",
            "\"\n\"",
            "\"a long string with a line break in the middle of it \n and more\"",
            "1 2",
            "1-2",
            "[1-2]",
            "]",
            "\u{feff}1",
        ] {
            assert_eq!(expected(text), None, "{text}");
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn depth_is_bounded_as_by_serde_json() {
        for (levels, is_read) in [(1, true), (MAX_DEPTH, true), (MAX_DEPTH + 1, false)] {
            let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            assert_eq!((parsed(&text).is_some(), expected(&text).is_some()), (is_read, is_read), "{levels}");
            let text = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
            assert_eq!((parsed(&text).is_some(), expected(&text).is_some()), (is_read, is_read), "{levels}");
        }
        assert!(first("[[1]] more", 2, 3).is_some_and(|(_, len)| len == 5));
        assert!(first("[[1]]", 1, 3).is_none() && first("[[1]]", 2, 2).is_none());
    }

    fn any_value() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            any::<u64>().prop_map(Json::from),
            any::<f64>().prop_map(Json::from),
            "(.|\\PC|[\"\\\\\n\u{1}]){0,40}".prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
                prop::collection::vec(("[a-z\"\\\\]{0,6}", inner), 0..6)
                    .prop_map(|members| Json::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_json_is_parsed_as_by_serde_json(value in any_value(), is_pretty in any::<bool>()) {
            let text = if is_pretty { format!("{value:#}") } else { value.to_string() };
            prop_assert_eq!(parsed(&text), expected(&text));
        }

        #[test]
        fn broken_json_is_accepted_as_by_serde_json(
            value in any_value(),
            at in any::<prop::sample::Index>(),
            change in "[\\[\\]{}:,\"\\\\0-9a-f. \n-]{0,2}",
        ) {
            let mut text = value.to_string();
            let at = text.floor_char_boundary(at.index(text.len() + 1));
            let end = text.ceil_char_boundary((at + 1).min(text.len()));
            text.replace_range(at..end, &change);
            prop_assert_eq!(parsed(&text).is_some(), expected(&text).is_some(), "{}", text);
        }
    }
}
