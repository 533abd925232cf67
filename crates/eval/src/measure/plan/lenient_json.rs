//! A lenient JSON parser for plans as models write them (004, sections 2 and 4.1).
//!
//! In: text. Out: a tree, and the repairs that were needed. Two deviations that the paper's own
//! plans have are accepted without a repair: numbers as bare keys, and calls as bare values (`1:
//! {"step": T2S([], "..."), ...}`). Every other repair is noted: other quote characters, nested
//! quotes, extra or missing commas, comments, unclosed brackets. Text that is strict JSON is parsed
//! strictly.

/// Deepest nesting that is parsed.
const MAX_DEPTH: usize = 16;
/// Longest run of quote characters that counts as one quote.
const MAX_QUOTE_RUN: usize = 3;
/// Most values that are parsed of one plan.
const MAX_VALUES: usize = 20_000;

/// A value. Members keep their order; duplicate keys are kept.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum LenientValue {
    /// `{...}`
    Object(Vec<(String, LenientValue)>),
    /// `[...]`
    List(Vec<LenientValue>),
    /// A string, its quotes and escapes resolved.
    Text(String),
    /// A number, a bare word or a call, as written.
    Bare(String),
    /// `null`
    Null,
}

impl LenientValue {
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

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LenientJson {
    pub value: LenientValue,
    /// The repairs, each kind once.
    pub repairs: Vec<&'static str>,
    /// Bytes of the text that the value spans.
    pub bytes: usize,
}

/// Parses the object or list at the beginning of `text`; `None` if there is none or it cannot be
/// parsed.
pub(crate) fn parse(text: &str) -> Option<LenientJson> {
    let mut strict = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    let is_json = matches!(strict.next(), Some(Ok(_)));
    let mut parser = Parser { text, at: 0, values: 0, lenient: !is_json, repairs: Vec::new() };
    let value = match parser.peek()? {
        '{' | '[' => parser.value(MAX_DEPTH)?,
        _ => return None,
    };
    Some(LenientJson { value, repairs: parser.repairs, bytes: parser.at })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    values: usize,
    lenient: bool,
    repairs: Vec<&'static str>,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn note_repair(&mut self, what: &'static str) {
        if !self.repairs.contains(&what) {
            self.repairs.push(what);
        }
    }

    fn accept(&mut self, wanted: char) -> bool {
        let there = self.peek() == Some(wanted);
        if there {
            self.at += wanted.len_utf8();
        }
        there
    }

    /// Skips whitespace, and comments of JavaScript and Python.
    fn skip_whitespace(&mut self) {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start().len();
            let rest = self.rest();
            let comment = rest.starts_with('#') || rest.starts_with("//");
            if !(self.lenient && comment) {
                return;
            }
            self.note_repair("comments");
            self.at += rest.find('\n').unwrap_or(rest.len());
        }
    }

    fn value(&mut self, depth: usize) -> Option<LenientValue> {
        let depth = depth.checked_sub(1)?;
        self.values += 1;
        if self.values > MAX_VALUES {
            return None;
        }
        self.skip_whitespace();
        match self.peek()? {
            '{' => self.object(depth),
            '[' => self.list(depth),
            c if is_quote(c) => self.string().map(LenientValue::Text),
            '+' | '-' | '0'..='9' => Some(LenientValue::Bare(self.number().to_owned())),
            c if c.is_alphabetic() || c == '_' => self.word(),
            _ => None,
        }
    }

    fn object(&mut self, depth: usize) -> Option<LenientValue> {
        self.accept('{');
        let mut members = Vec::new();
        loop {
            self.skip_whitespace();
            if self.at_end('}') {
                return Some(LenientValue::Object(members));
            }
            let key = self.key()?;
            self.skip_whitespace();
            if !self.accept(':') {
                return None;
            }
            let value = self.value(depth)?;
            members.push((key, value));
            self.separator('}')?;
        }
    }

    fn list(&mut self, depth: usize) -> Option<LenientValue> {
        self.accept('[');
        let mut items = Vec::new();
        loop {
            self.skip_whitespace();
            if self.at_end(']') {
                return Some(LenientValue::List(items));
            }
            items.push(self.value(depth)?);
            self.separator(']')?;
        }
    }

    /// Whether the object or list ends here, by its bracket or at the end of the text.
    fn at_end(&mut self, bracket: char) -> bool {
        if self.rest().is_empty() && self.lenient {
            self.note_repair("brackets that never close");
            return true;
        }
        self.accept(bracket)
    }

    /// Skips the comma after an item, unless the bracket follows.
    fn separator(&mut self, bracket: char) -> Option<()> {
        self.skip_whitespace();
        let comma = self.accept(',');
        self.skip_whitespace();
        let last = self.peek().is_none_or(|c| c == bracket);
        match (comma, last) {
            (true, true) => self.note_repair("a comma after the last item"),
            (false, false) if self.lenient && !matches!(self.peek(), Some('}' | ']')) => {
                self.note_repair("a missing comma");
            }
            (false, false) => return None,
            _ => {}
        }
        Some(())
    }

    fn key(&mut self) -> Option<String> {
        match self.peek()? {
            c if is_quote(c) => self.string(),
            '0'..='9' => Some(self.number().to_owned()),
            c if c.is_alphabetic() || c == '_' => {
                self.note_repair("keys without quotes");
                Some(self.identifier().to_owned())
            }
            _ => None,
        }
    }

    fn number(&mut self) -> &'a str {
        let rest = self.rest();
        let number = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let end = rest.find(|c| !number(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or("")
    }

    fn identifier(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')));
        let end = end.unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or("")
    }

    /// `true`, `None`, or a call of a tool.
    fn word(&mut self) -> Option<LenientValue> {
        let start = self.at;
        let word = self.identifier();
        if self.rest().starts_with('(') {
            let length = call_length(self.text.get(start..)?)?;
            self.at = start + length;
            return Some(LenientValue::Bare(self.text.get(start..self.at)?.to_owned()));
        }
        if !self.lenient {
            return Some(if word == "null" {
                LenientValue::Null
            } else {
                LenientValue::Bare(word.to_owned())
            });
        }
        match word {
            "null" => return Some(LenientValue::Null),
            "true" | "false" => {}
            "None" | "True" | "False" => self.note_repair("words of Python"),
            _ => self.note_repair("text without quotes"),
        }
        Some(if word == "None" { LenientValue::Null } else { LenientValue::Bare(word.to_owned()) })
    }

    fn string(&mut self) -> Option<String> {
        let open = self.peek()?;
        if !self.lenient {
            let mut strings = serde_json::Deserializer::from_str(self.rest()).into_iter::<String>();
            let text = strings.next()?.ok()?;
            self.at += strings.byte_offset();
            return Some(text);
        }
        if open != '"' {
            self.note_repair("quotes other than \"");
        }
        let rest = self.rest();
        // Quotes doubled or more, as in ""step"".
        let run = rest.chars().take_while(|c| *c == open).count();
        let run = match rest.chars().nth(run) {
            Some(next) if run > 1 && !matches!(next, ',' | ':' | '}' | ']' | ')' | '\n') => run,
            _ => 1,
        };
        if run > 1 {
            self.note_repair("quotes in runs");
        }
        self.at += open.len_utf8() * run;
        let body = self.rest();
        let (end, inner) = find_closing_quote(body, open)?;
        if inner {
            self.note_repair("quotes inside quotes");
        }
        self.at += end;
        while self.peek().is_some_and(|c| closes_quote(open, c)) {
            self.at += self.peek().map_or(0, char::len_utf8);
        }
        Some(unescape(body.get(..end)?))
    }
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`' | '\u{2018}' | '\u{2019}' | '\u{201c}' | '\u{201d}')
}

/// Whether `close` may end what `open` began.
fn closes_quote(open: char, close: char) -> bool {
    match open {
        '"' | '\u{201c}' | '\u{201d}' => matches!(close, '"' | '\u{201c}' | '\u{201d}'),
        _ => matches!(close, '\'' | '`' | '\u{2018}' | '\u{2019}'),
    }
}

/// Where the string that begins `body` ends, and whether it contains quotes of its own kind. A
/// quote ends it only where a value can end: before a comma, colon or bracket, and not inside the
/// brackets of a call.
fn find_closing_quote(body: &str, open: char) -> Option<(usize, bool)> {
    let is_call = call_name(body).is_some();
    let (mut depth, mut inner, mut escaped) = (0usize, false, false);
    for (at, c) in body.char_indices() {
        if std::mem::take(&mut escaped) {
            continue;
        }
        match c {
            '\\' => escaped = true,
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if closes_quote(open, c) => {
                let mut after = body.get(at + c.len_utf8()..)?;
                // Runs of quotes in plans are doubled or tripled; the bound keeps this loop linear.
                for _ in 0..MAX_QUOTE_RUN {
                    after = after.strip_prefix(|c| closes_quote(open, c)).unwrap_or(after);
                }
                let ends = after.trim_start().chars().next();
                let ends = ends.is_none_or(|c| matches!(c, ',' | ':' | '}' | ']'));
                let next = member_follows(after);
                if next || (ends && !(is_call && depth > 0)) {
                    return Some((at, inner));
                }
                inner = true;
            }
            _ => {}
        }
    }
    None
}

/// Whether a key of a step follows: the string has ended then, even inside brackets.
fn member_follows(after: &str) -> bool {
    let after = after.trim_start().trim_start_matches([',', '}']).trim_start();
    let after = after.trim_start_matches(is_quote);
    after.is_empty() || after.get(..10).is_some_and(|key| key.eq_ignore_ascii_case("depends_on"))
}

/// The name of the call that `text` begins with. A space before the bracket makes it prose.
pub(crate) fn call_name(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')))?;
    let name = text.get(..end).filter(|n| n.starts_with(|c: char| c.is_alphabetic() || c == '_'))?;
    text.get(end..)?.starts_with('(').then_some(name)
}

/// Bytes of the call that `text` begins with, up to its closing bracket. If that is missing, up to
/// the member that follows.
fn call_length(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for (at, c) in text.char_indices() {
        if std::mem::take(&mut escaped) {
            continue;
        }
        match c {
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    let next = text.find("depends_on")?;
    text.get(..next)?.rfind(',')
}

/// `text` with JSON's escapes resolved; a backslash before anything else is kept.
pub(crate) fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some(c @ ('"' | '\'' | '\\' | '/')) => out.push(c),
            Some('u') => {
                let digits: String = chars.clone().take(4).collect();
                match u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32) {
                    Some(c) if digits.len() == 4 => {
                        out.push(c);
                        chars.nth(3);
                    }
                    _ => out.push_str("\\u"),
                }
            }
            Some(c) => out.extend(['\\', c]),
            None => out.push('\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn repairs(text: &str) -> (LenientValue, Vec<&'static str>) {
        let read = parse(text).unwrap_or_else(|| panic!("not read: {text}"));
        (read.value, read.repairs)
    }

    fn text(value: &LenientValue) -> &str {
        value.get("1").and_then(|step| step.get("step")).and_then(LenientValue::text).unwrap()
    }

    #[test]
    fn the_papers_dialect_needs_no_mending() {
        let (value, none) = repairs(r#"{ 1: {"step": T2S([], "ids (all)"), "depends_on": []} } rest"#);
        assert_eq!(none, [""; 0]);
        assert_eq!(text(&value), r#"T2S([], "ids (all)")"#);
    }

    #[test]
    fn what_planners_get_wrong_is_mended_and_told() {
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
        for (given, what) in cases {
            let (value, repairs) = repairs(given);
            assert!(text(&value).starts_with("T2S([]"), "{given}: {value:?}");
            assert!(what.is_empty() || repairs.contains(&what), "{given}: {repairs:?}");
        }
    }

    #[test]
    fn strict_json_is_read_by_its_own_rules() {
        let given = r#"{"1": {"step": "f(\"a\", (", "depends_on": [1, 2.5, true, null]}, "1": {}}"#;
        let (value, none) = repairs(given);
        assert_eq!((text(&value), none.len()), ("f(\"a\", (", 0));
        assert!(
            matches!(&value, LenientValue::Object(members) if members.len() == 2),
            "keys given twice stay"
        );
    }

    #[test]
    fn what_cannot_be_followed_is_none() {
        for text in ["", "plain words", "{]", "{1 2}", "[{:}]", "{\"a\": \"b"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&"[".repeat(100_000)), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\[\\]{}(),:\"'a-c1-3 \\\\\n]{0,60}") {
            if let Some(read) = parse(&text) {
                prop_assert!(read.bytes <= text.len() && text.is_char_boundary(read.bytes));
            }
        }

        #[test]
        fn strict_json_is_never_mended(steps in prop::collection::vec("\\PC{0,20}", 1..4)) {
            let json = serde_json::to_string(&steps).unwrap();
            let read = parse(&json).unwrap();
            prop_assert_eq!(read.repairs.len(), 0);
            let expected: Vec<LenientValue> = steps.into_iter().map(LenientValue::Text).collect();
            prop_assert_eq!(read.value, LenientValue::List(expected));
        }
    }
}
