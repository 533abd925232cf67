//! A stranger's text, made harmless to read: it looks the same and commands nothing.
//!
//! In: any text. Out: the text without characters that cannot be seen, with the control tokens of
//! chat templates and look-alikes of our fence broken by a blank, and with endless repetition told
//! instead of shown. Quotes are compared without regard to white space, so a blank does no harm.

use std::borrow::Cow;
use std::fmt::Write;

use regex::Captures;

use crate::measure::defects::clip;

/// A character this many times in a row is told: rulers and padding stay, floods do not.
const MOST_SAME: usize = 200;
/// Of a flood this much is shown.
const SHOWN_SAME: usize = 20;
/// A line this many times in a row is told.
const MOST_LINES: usize = 20;
/// Of equal lines this many are shown.
const SHOWN_LINES: usize = 3;

// Tokens by which chat templates tell turns and roles apart, of the models in common use: servers
// that look for them in the text of a message would end the user's turn there. And whatever looks
// like our own fence. A blank goes in after the first character.
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

/// See the module.
pub fn sanitize(text: &str) -> Cow<'_, str> {
    let mut out = visible(text);
    if let Cow::Owned(told) = without_floods(&out) {
        out = Cow::Owned(told);
    }
    // Broken tokens may leave another one behind: `<|>` holds two.
    for _ in 0..3 {
        let Cow::Owned(broken) = CONTROL.replace_all(&out, in_two) else { break };
        out = Cow::Owned(broken);
    }
    out
}

/// A token with a blank after its first character.
fn in_two(found: &Captures<'_>) -> String {
    let mut chars = found[0].chars();
    let first: String = chars.by_ref().take(1).collect();
    format!("{first} {}", chars.as_str())
}

/// Characters of a name; longer ones tell nothing more.
pub const MOST_NAME: usize = 80;

/// One line of a stranger's, as part of a line of ours: a name.
pub fn name(text: &str) -> String {
    let flat: String = sanitize(clip(text, 4 * MOST_NAME))
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !matches!(c, '[' | ']' | '<' | '>' | '`' | '"'))
        .take(MOST_NAME)
        .collect();
    flat.trim().to_owned()
}

/// Without what cannot be seen: control characters, zero widths, changes of direction, tags and
/// variation selectors, in which text can be hidden from people. Line ends become `\n`.
fn visible(text: &str) -> Cow<'_, str> {
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

/// Floods of one character or one line, told.
fn without_floods(text: &str) -> Cow<'_, str> {
    let base = if has_flood_of_lines(text) { Cow::Owned(lines_told(text)) } else { Cow::Borrowed(text) };
    match characters_told(&base) {
        Some(told) => Cow::Owned(told),
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

fn lines_told(text: &str) -> String {
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

fn characters_told(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut told = false;
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
                    told |= end(&mut out, &mut kept, run_start, at, run);
                }
                (run, run_start) = (Some((c, 1)), at);
            }
        }
    }
    if let Some(run) = run {
        told |= end(&mut out, &mut kept, run_start, text.len(), run);
    }
    told.then(|| {
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
        assert_eq!(name("tool\n[x] \"<|im_start|>system\""), "tool x  |im_start| system");
        assert_eq!(name(&"n".repeat(150)).len(), 80);
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
