//! The final answer in a model's output, without code, calls and thoughts.
//!
//! In: the view of an LLM span. Out: its final answer as text, if its output has one; and the prose of a text, with
//! code, links and paths masked, so that only statements are compared with the evidence.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;
use verdict_otlp::work;

use crate::measure::defects::clip;
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::recognise::{ControlTools, SpanView, ToolRequest, action_text, json_keys};

/// Maximum bytes of an answer that are checked.
pub(crate) const MAX_ANSWER: usize = 32 * 1024;

/// The final answer of `view`: text without a call, or the arguments of a final-answer tool that is called or used in
/// code. `None` if the output has another call, is code, or is empty.
pub(crate) fn final_answer(tools: &ControlTools, view: &SpanView) -> Option<String> {
    if view.requests().any(|request| !tools.is_final_answer(&request.name)) {
        return None;
    }
    let arguments: String = view.requests().map(argument_text).collect();
    let text = view.output_text();
    let answer = if !arguments.trim().is_empty() {
        arguments
    } else if let Some(literal) = tools.answer_in_code(&text) {
        literal?
    } else if let Some(answer) = action_text::labelled_answer(&text) {
        answer.to_owned()
    } else if action_text::is_action(&text) {
        return None;
    } else {
        text.into_owned()
    };
    let answer = answer.trim();
    (!answer.is_empty()).then(|| clip(answer, MAX_ANSWER).to_owned())
}

/// All texts and numbers in the arguments of a call, one per line.
fn argument_text(request: &ToolRequest) -> String {
    let Some(raw) = request.arguments.as_deref() else { return String::new() };
    let Some(value) = json_keys::parse(raw) else { return raw.to_owned() };
    let mut leaves = Vec::new();
    collect_leaves(value, &mut leaves);
    leaves.join("\n")
}

/// Adds all texts and numbers of `value`. Depth is bounded by the JSON parser.
fn collect_leaves(value: Value, leaves: &mut Vec<String>) {
    match value {
        Value::String(text) => leaves.push(text),
        Value::Number(n) => leaves.push(n.to_string()),
        Value::Array(items) => items.into_iter().for_each(|v| collect_leaves(v, leaves)),
        Value::Object(map) => map.into_iter().for_each(|(_, v)| collect_leaves(v, leaves)),
        _ => {}
    }
}

regex!(MASKED, &format!("(?s){}|{REFERENCES}", action_text::NOT_PROSE));
/// Inline code, links and paths.
const REFERENCES: &str = r"`[^`\n]*`|\b(?:https?|ftp|file)://[^\s<>)\]]+|\bwww\.[^\s<>)\]]+|(?:[\w.~-]+)?(?:/[\w.~-]+){2,}|\b[\w-]+\.(?:py|js|ts|rs|md|txt|json|csv|pdf|png|html?)\b";

/// `text` with code blocks, inline code, links and paths replaced by spaces, so that byte positions
/// stay the same.
pub(crate) fn masked(text: &str) -> Cow<'_, str> {
    // The regular expression is run only if the text has a first character of a match, or a dot as in an extension or
    // after "www".
    let bytes = text.as_bytes();
    let may_be_extension = |at: usize| {
        bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase)
            || at.checked_sub(1).and_then(|before| bytes.get(before)) == Some(&b'w')
    };
    let may_match = || memchr::memchr3(b'`', b'<', b'/', bytes).is_some();
    if !may_match() && !memchr::memchr_iter(b'.', bytes).any(may_be_extension) {
        return Cow::Borrowed(text);
    }
    MASKED.replace_all(text, |masked: &regex::Captures<'_>| " ".repeat(masked.get(0).map_or(0, |m| m.len())))
}

/// The byte ranges of the sentences of `text`. Each ends with ".", "!" or "?" before whitespace, or with a line break.
pub(crate) fn sentences(text: &str) -> Vec<(usize, usize)> {
    work::count(1 + text.len() / BYTES_PER_STEP);
    let bytes = text.as_bytes();
    let has_text = |part| text.get::<Range<usize>>(part).is_some_and(|s| !s.chars().all(char::is_whitespace));
    let mut out = Vec::new();
    let mut start = 0;
    for end in end_signs(bytes) {
        let next = end + 1;
        let ends = bytes.get(end) == Some(&b'\n')
            || bytes.get(next).is_none_or(u8::is_ascii_whitespace) && !is_inner_dot(text, end);
        if ends {
            if has_text(start..next) {
                out.push((start, next));
            }
            start = next;
        }
    }
    if has_text(start..text.len()) {
        out.push((start, text.len()));
    }
    out
}

/// Bytes before a dot that are read: more than the bytes of an initial, an abbreviation or a list number.
const MAX_ABBREVIATION_BYTES: usize = 8;

/// The positions of the bytes that may end a sentence, in order.
fn end_signs(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let mut marks = memchr::memchr3_iter(b'.', b'!', b'?', bytes).peekable();
    let mut breaks = memchr::memchr_iter(b'\n', bytes).peekable();
    std::iter::from_fn(move || match (marks.peek(), breaks.peek()) {
        (Some(mark), Some(line)) if line < mark => breaks.next(),
        (None, _) => breaks.next(),
        _ => marks.next(),
    })
}

/// Whether the dot at `at` belongs to an initial, an abbreviation or a list number.
fn is_inner_dot(text: &str, at: usize) -> bool {
    // Only a few bytes are read, so that the work is bounded in a text of dots.
    let from = text.floor_char_boundary(at.saturating_sub(MAX_ABBREVIATION_BYTES));
    let end = text.get(from..at).unwrap_or_default();
    work::count(end.len());
    let word = end.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    let is_initial = word.chars().count() == 1 && word.chars().all(char::is_uppercase);
    let is_known = matches!(
        word,
        "e.g" | "i.e" | "ca" | "approx" | "Mr" | "Mrs" | "Dr" | "St" | "No" | "Inc" | "vs" | "ft"
    );
    let is_number = matches!(word.len(), 1 | 2) && word.bytes().all(|b| b.is_ascii_digit());
    let is_indented = || text.get(..at).is_some_and(|s| s.trim_end_matches(word).ends_with(['\n', ' ']));
    is_initial || is_known || is_number && at < 4 && is_indented()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::default_control_tools;
    use crate::recognise::{Message, Part, Role, Text};

    fn output(text: &str, calls: &[(&str, &str)]) -> SpanView {
        let mut parts = vec![Part::Text(Text::from(text))];
        parts.extend(calls.iter().map(|(name, arguments)| {
            Part::Call(ToolRequest { id: None, name: (*name).into(), arguments: Some((*arguments).into()) })
        }));
        SpanView {
            output: vec![Message { role: Role::Assistant, parts: parts.into() }],
            ..SpanView::default()
        }
    }

    fn answer_of(view: &SpanView) -> Option<String> {
        final_answer(&default_control_tools(), view)
    }

    #[test]
    fn plain_text_without_calls_is_an_answer() {
        assert_eq!(answer_of(&output("836 metres.", &[])).as_deref(), Some("836 metres."));
        assert_eq!(answer_of(&output("Thought: x\nFinal Answer: 836", &[])).as_deref(), Some("836"));
    }

    #[test]
    fn arguments_of_a_final_answer_tool_are_the_answer() {
        let by_call = output("", &[("final_answer", r#"{"answer": "about 800 m"}"#)]);
        assert_eq!(answer_of(&by_call).as_deref(), Some("about 800 m"));
        let by_code = output("Thought: done.\n<code>\nfinal_answer(\"It is 836 m.\")\n</code>", &[]);
        assert_eq!(answer_of(&by_code).as_deref(), Some("It is 836 m."));
    }

    #[test]
    fn actions_are_not_answers() {
        assert!(answer_of(&output("I will search.", &[("search", "{}")])).is_none());
        assert!(answer_of(&output("Thought: run\n<code>\nprint(5642)\n</code>", &[])).is_none());
        assert!(answer_of(&output("Thought: run\nAction: search[x]", &[])).is_none());
        assert!(answer_of(&output("<code>final_answer(result)</code>", &[])).is_none());
        assert!(answer_of(&output("  ", &[])).is_none());
    }

    #[test]
    fn code_links_and_paths_are_masked_in_place() {
        let text = "See `x = 12` and https://a.example/2019?p=3 or /usr/lib/77/x: 836 m\n```\n99\n```";
        let plain = masked(text);
        assert_eq!(plain.len(), text.len());
        assert_eq!(plain.split_whitespace().collect::<Vec<_>>(), ["See", "and", "or", ":", "836", "m"]);
    }

    #[test]
    fn end_of_a_sentence_is_read_without_the_text_before_it() {
        for (sign, space) in [(".", "\t"), ("!", "\r"), ("x.", "\u{b}\r"), ("ä.", "\r")] {
            let text = format!("{sign}{space}").repeat(MAX_ANSWER / 4);
            let before = work::counted();
            sentences(&text);
            let work = work::counted() - before;
            assert!(work <= 8 * text.len() as u64, "{work} of {} bytes", text.len());
        }
    }

    #[test]
    fn sentences_do_not_end_inside_numbers_or_initials() {
        let text = "It is 5.642 km high. J. Smith said so!\nReally?";
        let parts: Vec<&str> = sentences(text).iter().map(|(a, b)| text[*a..*b].trim()).collect();
        assert_eq!(parts, ["It is 5.642 km high.", "J. Smith said so!", "Really?"]);
    }
}
