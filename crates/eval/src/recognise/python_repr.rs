//! A bounded, tolerant reader of Python's `repr` of plain values: what `str(dict)` leaves behind
//! where JSON was meant (conventions, section 2: OpenLLMetry's `input_str`).

use std::borrow::Cow;

use super::node::Node;

/// Longer texts are left as they are: tool arguments are short.
const MAX_LEN: usize = 256 * 1024;
/// Deeper values are left as they are.
const MAX_DEPTH: usize = 32;

/// Reads dicts, lists, tuples, strings, numbers, `True`, `False`, `None`. `None` when the text is
/// anything else; nothing is guessed.
pub(crate) fn parse(text: &str) -> Option<Node<'static>> {
    if text.len() > MAX_LEN {
        return None;
    }
    let mut reader = Reader { rest: text.trim() };
    let node = reader.value(MAX_DEPTH)?;
    reader.rest.trim_start().is_empty().then_some(node)
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn eat(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self, depth: usize) -> Option<Node<'static>> {
        let depth = depth.checked_sub(1)?;
        self.rest = self.rest.trim_start();
        match self.rest.chars().next()? {
            '{' => self.dict(depth),
            '[' => self.list("[", "]", depth),
            '(' => self.list("(", ")", depth),
            '\'' | '"' => self.string().map(|s| Node::Str(Cow::Owned(s))),
            _ => self.atom(),
        }
    }

    fn dict(&mut self, depth: usize) -> Option<Node<'static>> {
        self.eat("{");
        let mut entries = Vec::new();
        while !self.eat("}") {
            self.rest = self.rest.trim_start();
            let key = self.string()?;
            if !self.eat(":") {
                return None;
            }
            entries.push((Cow::Owned(key), self.value(depth)?));
            if !self.eat(",") && !self.rest.trim_start().starts_with('}') {
                return None;
            }
        }
        Some(Node::Map(entries))
    }

    fn list(&mut self, open: &str, close: &str, depth: usize) -> Option<Node<'static>> {
        self.eat(open);
        let mut items = Vec::new();
        while !self.eat(close) {
            items.push(self.value(depth)?);
            if !self.eat(",") && !self.rest.trim_start().starts_with(close) {
                return None;
            }
        }
        Some(Node::List(items))
    }

    fn string(&mut self) -> Option<String> {
        let mut chars = self.rest.char_indices();
        let (_, quote) = chars.next().filter(|(_, c)| matches!(c, '\'' | '"'))?;
        let mut out = String::new();
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.rest = self.rest.get(at + 1..)?;
                return Some(out);
            }
            if c != '\\' {
                out.push(c);
                continue;
            }
            let (_, escape) = chars.next()?;
            let digits = match escape {
                'n' => Err('\n'),
                't' => Err('\t'),
                'r' => Err('\r'),
                'x' => Ok(2),
                'u' => Ok(4),
                'U' => Ok(8),
                other => Err(other),
            };
            match digits {
                Err(c) => out.push(c),
                Ok(n) => {
                    let mut code = 0u32;
                    for _ in 0..n {
                        code = code.checked_mul(16)?.checked_add(chars.next()?.1.to_digit(16)?)?;
                    }
                    out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
            }
        }
        None
    }

    fn atom(&mut self) -> Option<Node<'static>> {
        let end = self.rest.find([',', '}', ']', ')', ':']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end)?;
        let word = word.trim();
        let node = match word {
            "None" => Node::Null,
            "True" => Node::Bool(true),
            "False" => Node::Bool(false),
            _ => match word.parse::<i64>() {
                Ok(n) => Node::Int(n),
                Err(_) => Node::Float(word.parse::<f64>().ok().filter(|n| n.is_finite())?),
            },
        };
        self.rest = rest;
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_dict_reads_as_the_json_that_was_meant() {
        let node = parse(r#"{'q': "it's", 'n': [1, -2.5, True, None], 't': ('a',), 'é': '\n\x41'}"#);
        assert_eq!(
            node.map(|n| n.to_json()).as_deref(),
            Some(r#"{"q":"it's","n":[1,-2.5,true,null],"t":["a"],"é":"\nA"}"#)
        );
    }

    #[test]
    fn what_is_not_a_plain_value_is_left_alone() {
        for text in [
            "ActionStep(step_number=1)",
            "{'a': <object>}",
            "{'a' 1}",
            "['a'",
            "plain words",
            "",
            "{'a': 1} x",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&"[".repeat(10_000)), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".{0,200}") {
            let _ = parse(&text);
        }

        #[test]
        fn any_bracketed_text_is_survived(text in "[\\[\\]{}(),:'\"\\\\a-zé0-9 ]{0,60}") {
            let _ = parse(&text);
        }
    }
}
