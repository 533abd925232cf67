//! A bounded reader of Python's `repr` of plain values, which some instrumentations record in place of JSON
//! (OpenLLMetry's `input_str`).

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

use super::node::ContentNode;

/// Longer texts are not read: tool arguments are short.
const MAX_LEN: usize = 256 * 1024;
/// Deeper values are not read.
const MAX_DEPTH: usize = 32;

/// Reads dicts, lists, tuples, strings, numbers, `True`, `False` and `None`. `None` if the text
/// contains anything else; nothing is repaired.
pub(crate) fn parse(text: &str) -> Option<ContentNode<'static>> {
    if text.len() > MAX_LEN {
        return None;
    }
    ContentNode::json(&to_json(text)?).map(ContentNode::into_owned)
}

/// Reads the fields of a message as LangChain prints it: `content='...' name='...' tool_call_id='...'`. `None` if the
/// text is no such message; fields after one with another value than [`parse`] reads are left out.
pub(crate) fn message(text: &str) -> Option<ContentNode<'static>> {
    if text.len() > MAX_LEN || !text.strip_prefix("content=")?.starts_with(['\'', '"', '[']) {
        return None;
    }
    let mut fields = Vec::new();
    let mut rest = text;
    while let Some((key, tail)) = rest.split_once('=') {
        let end = value_len(tail);
        let (value, after) = tail.split_at_checked(end)?;
        let Some(json) = to_json(value) else { break };
        let value = ContentNode::json(&json).map_or(ContentNode::Null, ContentNode::into_owned);
        fields.push((Cow::Owned(key.to_owned()), value));
        rest = after.trim_start();
    }
    (fields.len() > 1).then_some(ContentNode::Map(fields))
}

/// The length of the value at the beginning of `text`: up to a space outside of strings and brackets.
fn value_len(text: &str) -> usize {
    let (mut depth, mut quote, mut is_escaped) = (0usize, None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(_), _) if is_escaped => is_escaped = false,
            (Some(_), '\\') => is_escaped = true,
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '{' | '[' | '(') => depth += 1,
            (None, '}' | ']' | ')') => depth = depth.saturating_sub(1),
            (None, ' ') if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

/// Translates token by token. The JSON parser checks the rest of the grammar.
fn to_json(text: &str) -> Option<String> {
    let mut json = String::with_capacity(text.len());
    let mut closing = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '{' | '[' | '(' if closing.len() < MAX_DEPTH => {
                closing.push(match c {
                    '{' => '}',
                    '[' => ']',
                    _ => ')',
                });
                json.push(if c == '(' { '[' } else { c });
            }
            '}' | ']' | ')' if closing.pop() == Some(c) => {
                // Python accepts a comma after the last item and writes one in `('a',)`.
                if json.strip_suffix(',').is_some_and(|items| !items.ends_with(['{', '['])) {
                    json.pop();
                }
                json.push(if c == ')' { ']' } else { c });
            }
            ',' | ':' => json.push(c),
            '\'' | '"' => json += &serde_json::to_string(&string(&mut chars, c)?).ok()?,
            _ if c.is_whitespace() => {}
            _ => json += number_or_constant(c, &mut chars)?.as_str(),
        }
    }
    Some(json)
}

/// The JSON of a number or constant that begins with `first`.
fn number_or_constant(first: char, chars: &mut Peekable<Chars<'_>>) -> Option<String> {
    let mut word = String::from(first);
    while let Some(c) = chars.next_if(|c| !matches!(c, ',' | '}' | ']' | ')' | ':')) {
        word.push(c);
    }
    match word.trim_end() {
        "None" => Some("null".to_owned()),
        "True" => Some("true".to_owned()),
        "False" => Some("false".to_owned()),
        number => number.starts_with(|c: char| c == '-' || c.is_ascii_digit()).then(|| number.to_owned()),
    }
}

/// A string literal after its opening `quote`.
fn string(chars: &mut Peekable<Chars<'_>>, quote: char) -> Option<String> {
    let mut out = String::new();
    loop {
        out.push(match chars.next()? {
            c if c == quote => return Some(out),
            '\\' => match chars.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'x' => code_point(chars, 2)?,
                'u' => code_point(chars, 4)?,
                'U' => code_point(chars, 8)?,
                other => other,
            },
            c => c,
        });
    }
}

fn code_point(chars: &mut Peekable<Chars<'_>>, digits: usize) -> Option<char> {
    let code = (0..digits).try_fold(0, |code, _| Some(code << 4 | chars.next()?.to_digit(16)?))?;
    Some(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn python_dict_reads_as_the_equivalent_json() {
        let node = parse(r#"{'q': "it's", 'n': [1, -2.5, True, None], 't': ('a',), 'é': '\n\x41'}"#);
        assert_eq!(
            node.map(|n| n.to_json()).as_deref(),
            Some(r#"{"q":"it's","n":[1,-2.5,true,null],"t":["a"],"é":"\nA"}"#)
        );
    }

    #[test]
    fn printed_message_reads_as_its_fields() {
        let node =
            message(r#"content='it\'s {"a": 1}' name='f' tool_calls=[{'id': 'a b'}] x=<object at 1> y=1"#);
        let expected = r#"{"content":"it's {\"a\": 1}","name":"f","tool_calls":[{"id":"a b"}]}"#;
        assert_eq!(node.map(|n| n.to_json()).as_deref(), Some(expected));
        for text in ["content='a'", "content=a b=1", "the content='a' b='c'", "content='a b='c"] {
            assert_eq!(message(text), None, "{text}");
        }
    }

    #[test]
    fn text_that_is_no_plain_value_is_rejected() {
        for text in [
            "ActionStep(step_number=1)",
            "{'a': <object>}",
            "{'a' 1}",
            "['a'",
            "plain words",
            "",
            "{'a': 1} x",
            "[,]",
            "('a']",
            "{'a': true}",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&"[".repeat(10_000)), None);
    }

    proptest! {
        #[test]
        fn parsing_any_text_does_not_panic(text in ".{0,200}") {
            let _ = (parse(&text), message(&text), message(&format!("content='{text}")));
        }

        #[test]
        fn parsing_any_bracketed_text_does_not_panic(text in "[\\[\\]{}(),:'\"\\\\a-zé0-9 ]{0,60}") {
            let _ = parse(&text);
        }
    }
}
