//! A lenient JSON parser for plans as models write them (004, sections 2 and 4.1).
//!
//! In: text. Out: a tree, and the repairs that were needed. Two deviations that occur in the paper's own
//! plans are accepted without a repair: numbers as bare keys, and calls as bare values (`1:
//! {"step": T2S([], "..."), ...}`). Every other repair is recorded: other quote characters, nested
//! quotes, extra or missing commas, comments, unclosed brackets. Strings of text that is strict JSON
//! are parsed strictly.
//!
//! `recognise::python_repr` is a separate parser, because it must reject texts that this parser repairs.

/// Maximum depth of nested values.
const MAX_DEPTH: usize = 16;
/// Maximum number of consecutive quote characters that count as one quotation mark.
const MAX_QUOTE_RUN: usize = 3;
/// Maximum number of values of one plan.
const MAX_VALUES: usize = 20_000;

/// A value. Members keep their order; duplicate keys are kept.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum LenientValue {
    /// `{...}`
    Object(Vec<(String, LenientValue)>),
    /// `[...]`
    List(Vec<LenientValue>),
    /// A string, without its quotation marks and with its escapes resolved.
    Text(String),
    /// A number, a word without quotation marks, or a call; unchanged.
    Bare(String),
    /// `null`
    Null,
}

impl LenientValue {
    /// The member with this key, in any case; `None` if there is none or the value is no object.
    pub(crate) fn get(&self, key: &str) -> Option<&LenientValue> {
        match self {
            LenientValue::Object(members) => {
                members.iter().find(|(k, _)| k.trim().eq_ignore_ascii_case(key)).map(|(_, v)| v)
            }
            _ => None,
        }
    }

    /// The text of a string, number, word or call.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            LenientValue::Text(text) | LenientValue::Bare(text) => Some(text),
            _ => None,
        }
    }
}

/// A parsed value with its repairs.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LenientJson {
    pub value: LenientValue,
    /// The repairs, each kind once.
    pub repairs: Vec<&'static str>,
    /// The length of the value in the text, in bytes.
    pub bytes: usize,
}

/// Parses the object or list at the beginning of `text`; `None` if there is none or it cannot be
/// parsed.
pub(crate) fn parse(text: &str) -> Option<LenientJson> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    let is_strict = matches!(values.next(), Some(Ok(_)));
    let mut parser = LenientParser { text, position: 0, value_count: 0, is_strict, repairs: Vec::new() };
    let value = text.starts_with(['{', '[']).then(|| parser.value(MAX_DEPTH))??;
    Some(LenientJson { value, repairs: parser.repairs, bytes: parser.position })
}

struct LenientParser<'a> {
    text: &'a str,
    /// The position in `text`.
    position: usize,
    /// The number of values so far.
    value_count: usize,
    /// Whether the text is valid JSON.
    is_strict: bool,
    repairs: Vec<&'static str>,
}

impl<'a> LenientParser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn note_repair(&mut self, repair: &'static str) {
        if !self.repairs.contains(&repair) {
            self.repairs.push(repair);
        }
    }

    /// Skips `expected`, if it is the next character, and returns whether it was.
    fn accept(&mut self, expected: char) -> bool {
        let is_next = self.peek() == Some(expected);
        if is_next {
            self.position += expected.len_utf8();
        }
        is_next
    }

    fn take_while(&mut self, is_accepted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !is_accepted(c)).unwrap_or(rest.len());
        self.position += end;
        rest.get(..end).unwrap_or("")
    }

    fn number(&mut self) -> &'a str {
        self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    }

    /// Skips whitespace, and comments of JavaScript and Python.
    fn skip_whitespace(&mut self) {
        self.take_while(char::is_whitespace);
        while self.rest().starts_with('#') || self.rest().starts_with("//") {
            self.note_repair("comments");
            self.take_while(|c| c != '\n');
            self.take_while(char::is_whitespace);
        }
    }

    /// Parses a value, with at most `depth` further levels.
    fn value(&mut self, depth: usize) -> Option<LenientValue> {
        let depth = depth.checked_sub(1)?;
        self.value_count += 1;
        if self.value_count > MAX_VALUES {
            return None;
        }
        self.skip_whitespace();
        match self.peek()? {
            '{' => self.items('}', |parser| parser.member(depth)).map(LenientValue::Object),
            '[' => self.items(']', |parser| parser.value(depth)).map(LenientValue::List),
            c if is_quote(c) => self.string().map(LenientValue::Text),
            '+' | '-' | '0'..='9' => Some(LenientValue::Bare(self.number().to_owned())),
            c if c.is_alphabetic() || c == '_' => self.word(),
            _ => None,
        }
    }

    /// The items of an object or a list, up to the bracket `close`.
    fn items<T>(&mut self, close: char, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        // The opening bracket.
        self.position += 1;
        let mut items = Vec::new();
        loop {
            self.skip_whitespace();
            if self.accept(close) {
                return Some(items);
            }
            if self.rest().is_empty() {
                self.note_repair("brackets that never close");
                return Some(items);
            }
            items.push(item(self)?);
            self.skip_separator(close)?;
        }
    }

    /// Skips the comma after an item; it may be missing before the bracket `close`.
    fn skip_separator(&mut self, close: char) -> Option<()> {
        self.skip_whitespace();
        let has_comma = self.accept(',');
        self.skip_whitespace();
        let next = self.peek();
        match (has_comma, next.is_none_or(|c| c == close)) {
            (true, true) => self.note_repair("a comma after the last item"),
            (false, false) if matches!(next, Some('}' | ']')) => return None,
            (false, false) => self.note_repair("a missing comma"),
            _ => {}
        }
        Some(())
    }

    /// Parses a member of an object.
    fn member(&mut self, depth: usize) -> Option<(String, LenientValue)> {
        let key = match self.peek()? {
            c if is_quote(c) => self.string()?,
            '0'..='9' => self.number().to_owned(),
            c if c.is_alphabetic() || c == '_' => {
                self.note_repair("keys without quotes");
                self.take_while(is_name_char).to_owned()
            }
            _ => return None,
        };
        self.skip_whitespace();
        if !self.accept(':') {
            return None;
        }
        Some((key, self.value(depth)?))
    }

    /// A word without quotation marks, such as `true` or `None`, or a call of a tool.
    fn word(&mut self) -> Option<LenientValue> {
        let (start, text) = (self.position, self.rest());
        let word = self.take_while(is_name_char);
        if self.peek() == Some('(') {
            let call = text.get(..call_length(text)?)?;
            self.position = start + call.len();
            return Some(LenientValue::Bare(call.to_owned()));
        }
        match word {
            "null" | "true" | "false" => {}
            "None" | "True" | "False" => self.note_repair("words of Python"),
            _ => self.note_repair("text without quotes"),
        }
        let is_null = matches!(word, "null" | "None");
        Some(if is_null { LenientValue::Null } else { LenientValue::Bare(word.to_owned()) })
    }

    /// Parses a text in quotes.
    fn string(&mut self) -> Option<String> {
        if self.is_strict {
            let mut strings = serde_json::Deserializer::from_str(self.rest()).into_iter::<String>();
            let text = strings.next()?.ok()?;
            self.position += strings.byte_offset();
            return Some(text);
        }
        let open = self.peek()?;
        if open != '"' {
            self.note_repair("quotes other than \"");
        }
        let rest = self.rest();
        // Several quote characters, as in ""step"".
        let mut run = rest.chars().take_while(|c| *c == open).count();
        if rest.chars().nth(run).is_none_or(|next| matches!(next, ',' | ':' | '}' | ']' | ')' | '\n')) {
            run = 1;
        }
        if run > 1 {
            self.note_repair("quotes in runs");
        }
        self.position += open.len_utf8() * run;
        let body = self.rest();
        let (end, has_inner_quotes) = find_closing_quote(body, open)?;
        if has_inner_quotes {
            self.note_repair("quotes inside quotes");
        }
        self.position += end;
        self.take_while(|c| closes_quote(open, c));
        Some(unescape(body.get(..end)?))
    }
}

fn is_quote(c: char) -> bool {
    closes_quote('"', c) || closes_quote('\'', c)
}

/// Whether `close` may end a string that begins with `open`.
fn closes_quote(open: char, close: char) -> bool {
    match open {
        '"' | '\u{201c}' | '\u{201d}' => matches!(close, '"' | '\u{201c}' | '\u{201d}'),
        _ => matches!(close, '\'' | '`' | '\u{2018}' | '\u{2019}'),
    }
}

/// The end of the string at the beginning of `body`, and whether it contains quote characters of its own kind. A
/// quote character ends the string only where a value can end: before a comma, colon or bracket, and not inside the
/// brackets of a call.
fn find_closing_quote(body: &str, open: char) -> Option<(usize, bool)> {
    let is_call = call_name(body).is_some();
    let (mut depth, mut has_inner_quotes) = (0usize, false);
    for (i, c) in unescaped_chars(body) {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if closes_quote(open, c) => {
                let mut after = body.get(i + c.len_utf8()..)?;
                // Quote characters in plans are at most tripled; the bound keeps the function linear.
                for _ in 0..MAX_QUOTE_RUN {
                    after = after.strip_prefix(|c| closes_quote(open, c)).unwrap_or(after);
                }
                let next = after.trim_start().chars().next();
                let may_end = next.is_none_or(|c| matches!(c, ',' | ':' | '}' | ']'));
                if member_follows(after) || (may_end && !(is_call && depth > 0)) {
                    return Some((i, has_inner_quotes));
                }
                has_inner_quotes = true;
            }
            _ => {}
        }
    }
    None
}

/// The characters of `text` with their positions, except backslashes and escaped characters.
fn unescaped_chars(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let mut is_escaped = false;
    text.char_indices().filter(move |(_, c)| {
        let is_skipped = is_escaped || *c == '\\';
        is_escaped = is_skipped && !is_escaped;
        !is_skipped
    })
}

/// Whether the end of the text or the key `depends_on` of a step follows: then the string has ended, even inside
/// brackets.
fn member_follows(after: &str) -> bool {
    let after = after.trim_start().trim_start_matches([',', '}']).trim_start();
    let after = after.trim_start_matches(is_quote);
    after.is_empty() || after.get(..10).is_some_and(|key| key.eq_ignore_ascii_case("depends_on"))
}

/// Whether a character may be part of the name of a tool or a key.
fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// The name of the call at the beginning of `text`. Text with a space before the bracket is prose.
pub(crate) fn call_name(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let name = text.get(..text.find(|c| !is_name_char(c))?)?;
    let is_name = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    (is_name && text.get(name.len()..)?.starts_with('(')).then_some(name)
}

/// The length in bytes of the call at the beginning of `text`, up to its closing bracket; if the bracket is missing, up
/// to the next member.
fn call_length(text: &str) -> Option<usize> {
    let (mut depth, mut is_quoted) = (0usize, false);
    for (i, c) in unescaped_chars(text) {
        match c {
            '"' => is_quoted = !is_quoted,
            '(' if !is_quoted => depth += 1,
            ')' if !is_quoted => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if c == ')' && depth == 0 {
            return Some(i + 1);
        }
    }
    let next = text.find("depends_on")?;
    text.get(..next)?.rfind(',')
}

regex!(ESCAPE, r#"\\([ntr"'\\/]|u[0-9a-fA-F]{4})"#);

/// `text` with JSON's escapes resolved; a backslash before anything else is kept.
pub(crate) fn unescape(text: &str) -> String {
    let resolve = |captures: &regex::Captures<'_>| {
        let (escape, [code]) = captures.extract();
        let resolved = match (code, code.strip_prefix('u')) {
            ("n", _) => Some('\n'),
            ("t", _) => Some('\t'),
            ("r", _) => Some('\r'),
            (_, Some(digits)) => u32::from_str_radix(digits, 16).ok().and_then(char::from_u32),
            _ => code.chars().next(),
        };
        resolved.map_or_else(|| escape.to_owned(), String::from)
    };
    ESCAPE.replace_all(text, resolve).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn repairs(text: &str) -> (LenientValue, Vec<&'static str>) {
        let parsed = parse(text).unwrap_or_else(|| panic!("not parsed: {text}"));
        (parsed.value, parsed.repairs)
    }

    fn text(value: &LenientValue) -> &str {
        value.get("1").and_then(|step| step.get("step")).and_then(LenientValue::text).unwrap()
    }

    #[test]
    fn bare_numbers_and_calls_need_no_repair() {
        let (value, repairs) = repairs(r#"{ 1: {"step": T2S([], "ids (all)"), "depends_on": []} } rest"#);
        assert_eq!(repairs, [""; 0]);
        assert_eq!(text(&value), r#"T2S([], "ids (all)")"#);
    }

    #[test]
    fn malformed_json_is_repaired_and_the_repair_noted() {
        let cases = [
            (r#"{"1": {"step": "T2S([], "ids, all")", "depends_on": []}}"#, "quotes inside quotes"),
            (
                r#"{'1': {'step': 'T2S([], "the agent's ids, all")', 'depends_on': []}}"#,
                "quotes other than \"",
            ),
            (
                "{\u{201c}1\u{201d}: {\u{201c}step\u{201d}: \u{201c}T2S([])\u{201d}, \"depends_on\": []}}",
                "quotes other than \"",
            ),
            (r#"{"1": {"step": "T2S([])", "depends_on": [],},}"#, "a comma after the last item"),
            (r#"{"1": {"step": "T2S([])" "depends_on": []}}"#, "a missing comma"),
            ("{\"1\": {\"step\": \"T2S([])\", \"depends_on\": []} // one\n}", "comments"),
            (r#"{"1": {"step": "T2S([])", "depends_on": None}}"#, "words of Python"),
            (r#"{"1": {step: "T2S([])", "depends_on": []}}"#, "keys without quotes"),
            (r#"{"1": {"step": "T2S([])", "depends_on": ["#, "brackets that never close"),
            (r#"{""1"": {""step"": ""T2S([])"", "depends_on": []}}"#, "quotes in runs"),
            (r#"{"1": {"step": T2S([], "ids", "depends_on": []}}"#, ""),
        ];
        for (input, repair) in cases {
            let (value, repairs) = repairs(input);
            assert!(text(&value).starts_with("T2S([]"), "{input}: {value:?}");
            assert!(repair.is_empty() || repairs.contains(&repair), "{input}: {repairs:?}");
        }
    }

    #[test]
    fn strict_json_is_parsed_strictly() {
        let input = r#"{"1": {"step": "f(\"a\", (", "depends_on": [1, 2.5, true, null]}, "1": {}}"#;
        let (value, repairs) = repairs(input);
        assert_eq!((text(&value), repairs.len()), ("f(\"a\", (", 0));
        assert!(
            matches!(&value, LenientValue::Object(members) if members.len() == 2),
            "duplicate keys are kept"
        );
    }

    #[test]
    fn text_beyond_repair_is_none() {
        for text in ["", "plain words", "{]", "{1 2}", "[{:}]", "{\"a\": \"b"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&"[".repeat(100_000)), None);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_none(text in "[\\[\\]{}(),:\"'a-c1-3 \\\\\n]{0,60}") {
            if let Some(read) = parse(&text) {
                prop_assert!(read.bytes <= text.len() && text.is_char_boundary(read.bytes));
            }
        }

        #[test]
        fn strict_json_is_never_repaired(steps in prop::collection::vec("\\PC{0,20}", 1..4)) {
            let json = serde_json::to_string(&steps).unwrap();
            let read = parse(&json).unwrap();
            prop_assert_eq!(read.repairs.len(), 0);
            let expected: Vec<LenientValue> = steps.into_iter().map(LenientValue::Text).collect();
            prop_assert_eq!(read.value, LenientValue::List(expected));
        }
    }
}
