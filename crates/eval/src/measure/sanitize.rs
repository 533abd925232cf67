//! Makes untrusted text safe for a prompt without changing its meaning.
//!
//! In: any text. Out: the text without invisible characters, with control tokens of chat templates
//! and imitations of the fence broken by a space, and with long repetitions replaced by a count.
//! Quotations are compared without whitespace, so the space does not affect them.

use std::borrow::Cow;

use regex::Captures;

use crate::measure::defects::clip;

/// Maximum length of a run of one character that is kept: rulers and padding are shorter.
const MAX_SAME: usize = 200;
/// Characters that are kept of a longer run.
const SHOWN_SAME: usize = 20;
/// Maximum length of a run of equal lines that is kept.
const MAX_LINES: usize = 20;
/// Lines that are kept of a longer run.
const SHOWN_LINES: usize = 3;

// Tokens that separate turns and roles in the chat templates of common models: servers that find
// them in the text of a message would end the user's turn there. Imitations of the fence are
// included. A space is inserted after the first character.
regex!(
    CONTROL,
    concat!(
        r"(?i)<[|｜¦]|[|｜¦]>|\[/?(?:INST|SYS|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|SYSTEM_PROMPT|gMASK)\]",
        r"|<</?SYS>>|</?s>|</?(?:start|end)_of_turn>|</?start_of_(?:image|audio)>",
        r"|<(?:bos|eos|pad|unk|sop|eop|mask)>|</?(?:system|user|assistant|human|developer)>",
        r"|<im_(?:start|end|sep)>|<end_of_(?:utterance|text|sentence)>|<(?:begin|start)_of_text>",
        r"|</?[ \t]*data(?-u:\b)|</?[ \t]*antml:[a-z_]{1,40}|</?function_calls>|<SPECIAL_[0-9]{1,5}>|<unused[0-9]{1,5}>",
    )
);

pub(crate) fn sanitize(text: &str) -> Cow<'_, str> {
    let mut out = without_hidden_characters(text);
    let shortened = without_floods(&out);
    if shortened != *out {
        out = Cow::Owned(shortened);
    }
    // Breaking a token may leave another one: `<|>` contains two.
    for _ in 0..3 {
        let Cow::Owned(broken) = CONTROL.replace_all(&out, break_token) else { break };
        out = Cow::Owned(broken);
    }
    out
}

/// The token with a space after its first character.
fn break_token(found: &Captures<'_>) -> String {
    let mut chars = found[0].chars();
    let first: String = chars.by_ref().take(1).collect();
    format!("{first} {}", chars.as_str())
}

/// Maximum characters of a name.
pub(crate) const MAX_NAME: usize = 80;

/// An untrusted name as part of one line of a label.
pub(crate) fn sanitize_name(text: &str) -> String {
    let flat: String = sanitize(clip(text, 4 * MAX_NAME))
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !matches!(c, '[' | ']' | '<' | '>' | '`' | '"'))
        .take(MAX_NAME)
        .collect();
    flat.trim().to_owned()
}

/// Removes invisible characters: control characters, zero-width characters, direction changes, tags
/// and variation selectors, which can hide text from people. Line ends become `\n`.
fn without_hidden_characters(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| !is_hidden(c)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter(|&c| !is_hidden(c)).collect())
}

fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        c if c.is_control() => true,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => true,
        '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' => true,
        '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e0fff}' => true,
        '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}' => true,
        _ => false,
    }
}

/// Replaces long runs of equal lines, then of equal characters, by a count.
fn without_floods(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    let text = shorten_runs(lines, MAX_LINES, SHOWN_LINES, |n| format!("[the line above {n} times more]\n"));
    let characters = text.char_indices().filter_map(|(at, c)| text.get(at..at + c.len_utf8()));
    shorten_runs(characters, MAX_SAME, SHOWN_SAME, |n| format!("[the same {n} times more]"))
}

/// Reduces each run of more than `max_repeats` equal pieces to `shown` of them and a note on the rest.
fn shorten_runs<'t>(
    pieces: impl Iterator<Item = &'t str>,
    max_repeats: usize,
    shown: usize,
    note: impl Fn(usize) -> String,
) -> String {
    let mut out = String::new();
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        let mut times = 1;
        while pieces.next_if_eq(&piece).is_some() {
            times += 1;
        }
        let shown_count = if times > max_repeats { shown } else { times };
        (0..shown_count).for_each(|_| out.push_str(piece));
        if times > shown_count {
            out.push_str(&note(times - shown_count));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_text_is_unchanged() {
        for text in [
            "a plan:\n1. search\n2. <end_plan>\n",
            "<think>hm</think> {\"a\": [1, 2]} <code>x < 3 || y</code>",
            "Ünïcode, 漢字, עברית, emoji 🎉 and a | table |\n|---|---|\n",
            "",
        ] {
            assert!(matches!(sanitize(text), Cow::Borrowed(unchanged) if unchanged == text), "{text}");
        }
    }

    #[test]
    fn floods_are_replaced_by_a_count() {
        let text = format!("x{}y\n{}", "a".repeat(100_000), "again\n".repeat(5_000));
        let out = sanitize(&text);
        assert!(out.len() < 200, "{}", out.len());
        assert!(out.contains("[the same 99980 times more]y\n"));
        assert!(out.contains("again\n[the line above 4997 times more]"));
        assert_eq!(sanitize(&"-".repeat(MAX_SAME)), "-".repeat(MAX_SAME));
    }

    #[test]
    fn name_is_one_short_line() {
        assert_eq!(sanitize_name("tool\n[x] \"<|im_start|>system\""), "tool x  |im_start| system");
        assert_eq!(sanitize_name(&"n".repeat(150)).len(), 80);
    }

    proptest! {
        #[test]
        fn sanitized_text_has_no_control_tokens_and_loses_only_hidden_characters(text in "[<|>a-c/\\[\\]INSTdata \n\u{200b}]{0,60}") {
            let once = sanitize(&text).into_owned();
            prop_assert!(!once.contains("<|") && !once.contains("|>") && !once.contains("[INST]"));
            prop_assert!(!once.contains("<data") && !once.contains("</data"));
            let bare = |t: &str| t.chars().filter(|c| !c.is_whitespace() && !is_hidden(*c)).collect::<String>();
            prop_assert_eq!(bare(&once), bare(&text));
        }
    }
}
