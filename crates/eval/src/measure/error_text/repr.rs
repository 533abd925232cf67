//! Objects as Python prints them: `{'error': ...}`, `content='...' status='error'`,
//! `CallToolResult(content=[TextContent(text='...')], isError=True)`.
//!
//! In: a text. Out: the value as JSON, with the fields of an object as a map, or `None` for any other text. The depth
//! of values is bounded.

use serde_json::{Map, Value};

/// Maximum depth of values.
const MAX_DEPTH: usize = 12;

/// The value of which the whole text is the printed form.
pub(super) fn parse(text: &str) -> Option<Value> {
    if !may_be_object(text) {
        return None;
    }
    let mut reader = ReprReader { rest: text.trim() };
    let value = match reader.fields_without_name() {
        Some(fields) => fields,
        None => {
            reader = ReprReader { rest: text.trim() };
            reader.value(MAX_DEPTH)?
        }
    };
    reader.rest.trim().is_empty().then_some(value)
}

/// Whether the text begins like a container, a constructor or a field, which is cheap to test.
pub(super) fn may_be_object(text: &str) -> bool {
    let body = text.trim_start();
    let name = body.len() - body.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').len();
    match body.get(name..).and_then(|rest| rest.bytes().next()) {
        Some(b'{' | b'[') => name == 0,
        Some(b'(' | b'=') => name > 0,
        _ => false,
    }
}

/// A reader over the rest of a text. Each method returns `None` where the text has another form.
struct ReprReader<'t> {
    rest: &'t str,
}

impl<'t> ReprReader<'t> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Skips space and, if it follows, the character `c`; returns whether it did.
    fn eat(&mut self, c: char) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// The name at the beginning of the rest, which may have dots.
    fn name(&mut self) -> Option<&'t str> {
        self.skip_space();
        let end =
            self.rest.find(|c: char| !(c.is_alphanumeric() || "_.".contains(c))).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        let is_name = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
        is_name.then(|| {
            self.rest = rest;
            name
        })
    }

    /// Fields without a constructor, as a map: `content='...' name='search'`.
    fn fields_without_name(&mut self) -> Option<Value> {
        let mut map = Map::new();
        while let Some(name) = self.name() {
            if !self.rest.starts_with('=') || !self.eat('=') {
                return None;
            }
            map.insert(name.to_owned(), self.value(MAX_DEPTH)?);
        }
        (!map.is_empty()).then_some(Value::Object(map))
    }

    /// Parses a value, with at most `depth` further levels.
    fn value(&mut self, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        self.skip_space();
        match self.rest.chars().next()? {
            '{' => self.map(depth),
            '[' => self.list(']', depth),
            '(' => self.list(')', depth),
            '\'' | '"' => self.string().map(Value::String),
            // An enum value: `<Status.ERROR: 2>`.
            '<' => {
                let (_, rest) = self.rest.split_once('>')?;
                self.rest = rest;
                Some(Value::Null)
            }
            c if c.is_ascii_digit() || c == '-' || c == '+' => self.number(),
            _ => self.named(depth),
        }
    }

    /// Parses a dictionary.
    fn map(&mut self, depth: usize) -> Option<Value> {
        let mut map = Map::new();
        self.eat('{');
        while !self.eat('}') {
            let key = match self.value(depth)? {
                Value::String(key) => key,
                other => other.to_string(),
            };
            // A set has no values.
            let value = if self.eat(':') { self.value(depth)? } else { Value::Null };
            map.insert(key, value);
            if !self.eat(',') && !self.rest.trim_start().starts_with('}') {
                return None;
            }
        }
        Some(Value::Object(map))
    }

    /// Parses a list or a tuple, which ends with `close`.
    fn list(&mut self, close: char, depth: usize) -> Option<Value> {
        let mut items = Vec::new();
        self.rest = self.rest.get(1..)?;
        while !self.eat(close) {
            items.push(self.value(depth)?);
            if !self.eat(',') && !self.rest.trim_start().starts_with(close) {
                return None;
            }
        }
        Some(Value::Array(items))
    }

    /// A constant, a string with a prefix, or a constructor with its fields.
    fn named(&mut self, depth: usize) -> Option<Value> {
        let name = self.name()?;
        if matches!(name, "b" | "r" | "u" | "f") && self.rest.starts_with(['\'', '"']) {
            return self.string().map(Value::String);
        }
        if !self.rest.starts_with('(') {
            return Some(match name {
                "None" => Value::Null,
                "True" | "true" => Value::Bool(true),
                "False" | "false" => Value::Bool(false),
                other => Value::String(other.to_owned()),
            });
        }
        self.eat('(');
        let mut map = Map::new();
        while !self.eat(')') {
            let argument = self.rest;
            let field = self.name().filter(|_| self.rest.starts_with('='));
            match field {
                Some(field) => {
                    self.eat('=');
                    map.insert(field.to_owned(), self.value(depth)?);
                }
                // A positional argument; the one of an exception is its message.
                None => {
                    self.rest = argument;
                    let value = self.value(depth)?;
                    map.entry(positional_key(name)).or_insert(value);
                }
            }
            if !self.eat(',') && !self.rest.trim_start().starts_with(')') {
                return None;
            }
        }
        Some(Value::Object(map))
    }

    /// Parses a number or a constant; other words are read as texts.
    fn number(&mut self) -> Option<Value> {
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c)))
            .unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        serde_json::from_str(digits).ok().or_else(|| Some(Value::String(digits.to_owned())))
    }

    /// Parses a text in single or double quotes.
    fn string(&mut self) -> Option<String> {
        let mut chars = self.rest.chars();
        let quote = chars.next()?;
        let mut out = String::new();
        loop {
            out.push(match chars.next()? {
                c if c == quote => break,
                '\\' => match chars.next()? {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    other => other,
                },
                c => c,
            });
        }
        self.rest = chars.as_str();
        Some(out)
    }
}

/// The key of a constructor's positional argument.
fn positional_key(class: &str) -> &'static str {
    if class.ends_with("Error") || class.ends_with("Exception") { "error" } else { "value" }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(text: &str) -> Option<String> {
        parse(text).map(|value| value.to_string())
    }

    #[test]
    fn printed_objects_are_read() {
        assert_eq!(
            json("content='Error: it\\'s gone' name='find' tool_call_id='c1' status='error'").as_deref(),
            Some(r#"{"content":"Error: it's gone","name":"find","tool_call_id":"c1","status":"error"}"#)
        );
        assert_eq!(
            json("CallToolResult(meta=None, content=[TextContent(type='text', text='no')], isError=True)")
                .as_deref(),
            Some(r#"{"meta":null,"content":[{"type":"text","text":"no"}],"isError":true}"#)
        );
        assert_eq!(
            json("{'ok': False, 'n': (1, -2.5), 'kind': <Kind.A: 1>, 3: {'x'}}").as_deref(),
            Some(r#"{"ok":false,"n":[1,-2.5],"kind":null,"3":{"x":null}}"#)
        );
        assert_eq!(json("ValueError('no such row')").as_deref(), Some(r#"{"error":"no such row"}"#));
    }

    #[test]
    fn other_texts_are_not_read() {
        for text in
            ["", "plain words", "a=b and more", "f(x) = 3", "{'a': 1} x", "[1, 2", "x = 3; y = 4", "see (1)"]
        {
            assert_eq!(json(text), None, "{text}");
        }
        assert_eq!(parse(&"[".repeat(10_000)), None);
    }

    proptest! {
        #[test]
        fn any_text_is_accepted(text in "[\\[\\]{}(),:='\"\\\\a-zé0-9 <>]{0,60}") {
            let _ = parse(&text);
        }
    }
}
