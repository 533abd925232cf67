//! Makes untrusted text safe for a prompt without changing its meaning.
//!
//! In: any text. Out: the text without invisible characters, with control tokens of chat templates
//! and imitations of the fence broken by a space, and with long repetitions replaced by a count.
//! Quotations are compared without whitespace, so the space does not affect them.

use std::borrow::Cow;
use std::fmt::Write;

use regex::Captures;

use crate::measure::defects::clip;

/// Longest run of one character that is kept: rulers and padding are shorter.
const MOST_SAME: usize = 200;
/// Characters shown of a longer run.
const SHOWN_SAME: usize = 20;
/// Longest run of equal lines that is kept.
const MOST_LINES: usize = 20;
/// Lines shown of a longer run.
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
    if let Cow::Owned(shortened) = without_floods(&out) {
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

/// Most characters of a name.
pub(crate) const MOST_NAME: usize = 80;

/// An untrusted name as part of one line of a label.
pub(crate) fn sanitize_name(text: &str) -> String {
    let flat: String = sanitize(clip(text, 4 * MOST_NAME))
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !matches!(c, '[' | ']' | '<' | '>' | '`' | '"'))
        .take(MOST_NAME)
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

/// Replaces long runs of one character or one line by a count.
fn without_floods(text: &str) -> Cow<'_, str> {
    let base = if has_flood_of_lines(text) { Cow::Owned(shorten_lines(text)) } else { Cow::Borrowed(text) };
    match shorten_characters(&base) {
        Some(shortened) => Cow::Owned(shortened),
        None => base,
    }
}

fn has_flood_of_lines(text: &str) -> bool {
    let (mut last, mut times) = ("", 0usize);
    text.split_inclusive('\n').any(|line| {
        times = if line == last { times + 1 } else { 1 };
        last = line;
        times > MOST_LINES
    })
}

fn shorten_lines(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let mut times = 1;
        while lines.peek() == Some(&line) {
            lines.next();
            times += 1;
        }
        if times > MOST_LINES {
            (0..SHOWN_LINES).for_each(|_| out.push_str(line));
            let _ = writeln!(out, "[the line above {} times more]", times - SHOWN_LINES);
        } else {
            (0..times).for_each(|_| out.push_str(line));
        }
    }
    out
}

fn shorten_characters(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut shortened = false;
    let mut kept = 0;
    let mut run_start = 0;
    let mut run: Option<(char, usize)> = None;
    let end = |out: &mut String, kept: &mut usize, start: usize, at: usize, run: (char, usize)| {
        if run.1 <= MOST_SAME || run.0 == '\n' {
            return false;
        }
        out.push_str(text.get(*kept..start).unwrap_or_default());
        (0..SHOWN_SAME).for_each(|_| out.push(run.0));
        let _ = write!(out, "[the same {} times more]", run.1 - SHOWN_SAME);
        *kept = at;
        true
    };
    for (at, c) in text.char_indices() {
        match &mut run {
            Some((same, times)) if *same == c => *times += 1,
            _ => {
                if let Some(run) = run {
                    shortened |= end(&mut out, &mut kept, run_start, at, run);
                }
                (run, run_start) = (Some((c, 1)), at);
            }
        }
    }
    if let Some(run) = run {
        shortened |= end(&mut out, &mut kept, run_start, text.len(), run);
    }
    shortened.then(|| {
        out.push_str(text.get(kept..).unwrap_or_default());
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_text_is_left_as_it_is() {
        for text in [
            "a plan:\n1. search\n2. <end_plan>\n",
            "<think>hm</think> {\"a\": [1, 2]} <code>x < 3 || y</code>",
            "Ünïcode, 漢字, עברית, emoji 🎉 and a | table |\n|---|---|\n",
            "",
        ] {
            assert!(matches!(sanitize(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn floods_are_told() {
        let text = format!("x{}y\n{}", "a".repeat(100_000), "again\n".repeat(5_000));
        let out = sanitize(&text);
        assert!(out.len() < 200, "{}", out.len());
        assert!(out.contains("[the same 99980 times more]y\n"));
        assert!(out.contains("again\n[the line above 4997 times more]"));
        assert_eq!(sanitize(&"-".repeat(MOST_SAME)), "-".repeat(MOST_SAME));
    }

    #[test]
    fn a_name_is_one_short_line() {
        assert_eq!(sanitize_name("tool\n[x] \"<|im_start|>system\""), "tool x  |im_start| system");
        assert_eq!(sanitize_name(&"n".repeat(150)).len(), 80);
    }

    proptest! {
        #[test]
        fn what_is_harmless_stays_so(text in "[<|>a-c/\\[\\]INSTdata \n\u{200b}]{0,60}") {
            let once = sanitize(&text).into_owned();
            prop_assert!(!once.contains("<|") && !once.contains("|>") && !once.contains("[INST]"));
            prop_assert!(!once.contains("<data") && !once.contains("</data"));
            // Nothing is lost but blanks and what cannot be seen.
            let bare = |t: &str| t.chars().filter(|c| !c.is_whitespace() && !is_hidden(*c)).collect::<String>();
            prop_assert_eq!(bare(&once), bare(&text));
        }
    }
}
