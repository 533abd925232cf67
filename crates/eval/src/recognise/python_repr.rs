//! A bounded reader of Python's `repr` of plain values, which some instrumentations record in place of JSON
//! (OpenLLMetry's `input_str`).

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
            let _ = parse(&text);
        }

        #[test]
        fn parsing_any_bracketed_text_does_not_panic(text in "[\\[\\]{}(),:'\"\\\\a-zé0-9 ]{0,60}") {
            let _ = parse(&text);
        }
    }
}
