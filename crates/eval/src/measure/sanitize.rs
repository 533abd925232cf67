//! Makes untrusted text safe for a prompt without changing its meaning.
//!
//! In: any text. Out: the text without invisible characters, with a space inserted into control tokens of chat
//! templates and imitations of the fence, and with long repetitions replaced by a count. Quotations are compared
//! without white space, so that the inserted space does not affect them.

use std::borrow::Cow;

use regex::Captures;

use crate::measure::defects::clip;

/// Maximum length of an unchanged run of one character: rulers and padding are shorter.
const MAX_SAME_CHARS: usize = 200;
/// Characters that remain of a longer run.
const SHOWN_SAME_CHARS: usize = 20;
/// Maximum length of an unchanged run of equal lines.
const MAX_SAME_LINES: usize = 20;
/// Lines that remain of a longer run.
const SHOWN_SAME_LINES: usize = 3;

// Tokens that separate turns and roles in the chat templates of common models, and imitations of the fence. A server
// that interprets such a token in the text of a message would end the user's turn at it.
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

/// The text as it may be in a prompt; borrowed if nothing had to be changed.
pub(crate) fn sanitize(text: &str) -> Cow<'_, str> {
    let mut out = without_hidden_characters(text);
    let shortened = shorten_repetitions(&out);
    if shortened != *out {
        out = Cow::Owned(shortened);
    }
    // A broken token may leave another one: `<|>` contains two.
    for _ in 0..3 {
        let Cow::Owned(broken) = CONTROL.replace_all(&out, break_token) else { break };
        out = Cow::Owned(broken);
    }
    out
}

/// The token with a space after its first character.
fn break_token(token: &Captures<'_>) -> String {
    let mut chars = token[0].chars();
    let first: String = chars.by_ref().take(1).collect();
    format!("{first} {}", chars.as_str())
}

/// Maximum characters of a name.
pub(crate) const MAX_NAME_CHARS: usize = 80;

/// An untrusted name as a part of a label, which is one line.
pub(crate) fn sanitize_name(text: &str) -> String {
    let flat: String = sanitize(clip(text, 4 * MAX_NAME_CHARS))
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !matches!(c, '[' | ']' | '<' | '>' | '`' | '"'))
        .take(MAX_NAME_CHARS)
        .collect();
    flat.trim().to_owned()
}

/// Removes invisible characters: control characters, zero-width characters, direction changes, tags and variation
/// selectors, which can hide text from human readers. Line ends become `\n`.
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
fn shorten_repetitions(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    let text = shorten_runs(lines, MAX_SAME_LINES, SHOWN_SAME_LINES, |n| {
        format!("[the line above {n} times more]\n")
    });
    let characters = text.char_indices().filter_map(|(at, c)| text.get(at..at + c.len_utf8()));
    shorten_runs(characters, MAX_SAME_CHARS, SHOWN_SAME_CHARS, |n| format!("[the same {n} times more]"))
}

/// Reduces each run of more than `max_repeats` equal pieces to `shown` pieces and a note on the number of the others.
fn shorten_runs<'t>(
    pieces: impl Iterator<Item = &'t str>,
    max_repeats: usize,
    shown: usize,
    note: impl Fn(usize) -> String,
) -> String {
    let mut out = String::new();
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        let mut run_length = 1;
        while pieces.next_if_eq(&piece).is_some() {
            run_length += 1;
        }
        let shown_count = if run_length > max_repeats { shown } else { run_length };
        (0..shown_count).for_each(|_| out.push_str(piece));
        if run_length > shown_count {
            out.push_str(&note(run_length - shown_count));
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
    fn long_repetitions_are_replaced_by_a_count() {
        let text = format!("x{}y\n{}", "a".repeat(100_000), "again\n".repeat(5_000));
        let out = sanitize(&text);
        assert!(out.len() < 200, "{}", out.len());
        assert!(out.contains("[the same 99980 times more]y\n"));
        assert!(out.contains("again\n[the line above 4997 times more]"));
        assert_eq!(sanitize(&"-".repeat(MAX_SAME_CHARS)), "-".repeat(MAX_SAME_CHARS));
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
            let visible_text = |t: &str| t.chars().filter(|c| !c.is_whitespace() && !is_hidden(*c)).collect::<String>();
            prop_assert_eq!(visible_text(&once), visible_text(&text));
        }
    }
}
