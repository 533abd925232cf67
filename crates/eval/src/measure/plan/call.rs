//! Parses a step's instruction as a call of its tool: `T2S((1), "prompt")`, `LLM("prompt with (1)")`.
//!
//! In: the text of the instruction. Out: tool, inputs, prompt, and whether the call is well formed.

use super::lenient_json::{call_name, unescape};
use super::placeholder;

/// An instruction parsed as a call.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct InstructionCall {
    pub tool: String,
    /// The text before the prompt, unchanged: `[]`, `(1)`, `[(1), (2)]`.
    pub inputs: String,
    /// The prompt without its quotes.
    pub prompt: String,
    /// Whether the prompt is quoted, and the bracket of the call is closed.
    pub is_well_formed: bool,
}

/// Parses `text`; `None` if it is not a call.
pub(crate) fn parse_call(text: &str) -> Option<InstructionCall> {
    let text = text.trim().trim_end_matches([';', '.']);
    let tool = call_name(text)?;
    let rest = text.get(tool.len()..)?.trim_start().strip_prefix('(')?;
    let (inside, is_closed) = match rest.strip_suffix(')') {
        Some(inside) => (inside.trim(), true),
        None => (rest.trim(), false),
    };
    let (inputs, prompt) = split_inputs(inside);
    let (prompt, is_quoted) = strip_quotes(prompt);
    Some(InstructionCall {
        tool: tool.to_owned(),
        inputs: inputs.to_owned(),
        is_well_formed: is_closed && (is_quoted || (prompt.is_empty() && !inputs.is_empty())),
        prompt,
    })
}

/// Splits the inputs from the prompt: lists and placeholders, each followed by a comma.
fn split_inputs(inside: &str) -> (&str, &str) {
    let mut end = 0;
    loop {
        let rest = inside.get(end..).unwrap_or("");
        let start = rest.len() - rest.trim_start().len();
        let group = match rest.trim_start().chars().next() {
            Some('[') => rest.find(']'),
            Some('(') => rest.find(')').filter(|close| {
                rest.get(start..=*close).is_some_and(|group| !placeholder::all(group).is_empty())
            }),
            _ => None,
        };
        let Some(close) = group else { break };
        let after = rest.get(close + 1..).unwrap_or("");
        let blank = after.len() - after.trim_start().len();
        match after.trim_start().strip_prefix(',') {
            Some(_) => end += close + 1 + blank + 1,
            None if after.trim().is_empty() => return (inside.trim(), ""),
            // An unquoted prompt begins here.
            None => break,
        }
    }
    let inputs = inside.get(..end).unwrap_or("").trim().trim_end_matches(',').trim_end();
    (inputs, inside.get(end..).unwrap_or("").trim())
}

/// The prompt without its quotation marks, and whether these match. Escapes in double quotation marks are resolved.
fn strip_quotes(prompt: &str) -> (String, bool) {
    const SINGLE: [char; 4] = ['\'', '`', '\u{2018}', '\u{2019}'];
    const DOUBLE: [char; 3] = ['"', '\u{201c}', '\u{201d}'];
    let quote_kind = |c: Option<char>| match c {
        Some(c) if SINGLE.contains(&c) => 1,
        Some(c) if DOUBLE.contains(&c) => 2,
        _ => 0,
    };
    let mut inner = prompt.chars();
    let first = quote_kind(prompt.chars().next());
    if first > 0 {
        inner.next();
    }
    let last = quote_kind(inner.clone().next_back());
    if last > 0 {
        inner.next_back();
    }
    let is_paired = first > 0 && first == last;
    let unquoted = inner.as_str().trim();
    (if is_paired && first == 2 { unescape(unquoted) } else { unquoted.to_owned() }, is_paired)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_call(text: &str, tool: &str, inputs: &str, prompt: &str, is_well_formed: bool) {
        let call = InstructionCall {
            tool: tool.into(),
            inputs: inputs.into(),
            prompt: prompt.into(),
            is_well_formed,
        };
        assert_eq!(parse_call(text), Some(call), "{text}");
    }

    #[test]
    fn inputs_and_prompt_are_separated() {
        assert_call(r#"T2S([], "Fetch ids (all)")"#, "T2S", "[]", "Fetch ids (all)", true);
        assert_call(r#"RAG((1), "What, exactly?")"#, "RAG", "(1)", "What, exactly?", true);
        assert_call(r#"RAG((1), (2), "Why?")"#, "RAG", "(1), (2)", "Why?", true);
        assert_call(r#"RAG([(1), (2)], 'Why?')"#, "RAG", "[(1), (2)]", "Why?", true);
        assert_call(r#"LLM("Compare (4) with (5).")"#, "LLM", "", "Compare (4) with (5).", true);
        assert_call("LLM(\u{2019}Extract ids from (2).\u{2019})", "LLM", "", "Extract ids from (2).", true);
        assert_call("refresh([])", "refresh", "[]", "", true);
    }

    #[test]
    fn unmatched_quotes_are_not_well_formed() {
        assert_call("T2S([], Fetch ids\u{2019})", "T2S", "[]", "Fetch ids", false);
        assert_call("T2S([], Fetch ids)", "T2S", "[]", "Fetch ids", false);
        assert_call(r#"T2S([], "Fetch ids""#, "T2S", "[]", "Fetch ids", false);
        assert_call("LLM((1) and (2) together)", "LLM", "", "(1) and (2) together", false);
    }

    #[test]
    fn prose_is_not_a_call() {
        for text in ["Search the web", "", "(1)", "1(2)", "Look it up (twice)"] {
            assert_eq!(parse_call(text), None, "{text}");
        }
    }
}
