//! An output held against one rule.

use crate::measure::defects::{Defect, QUOTE_BYTES, clip, clip_end};
use crate::measure::excerpt::{head, tail};

use super::prompt::{Rule, Unit};

/// Word counters differ: a limit on words counts as passed only beyond this share.
const WORD_TOLERANCE: f64 = 1.1;

/// The defect, what was expected in words, and what was seen; `None` where the rule is kept.
///
/// Rules about tools are not answered here: they look at calls, not at text.
pub fn broken(rule: &Rule, output: &str) -> Option<(Defect, String, String)> {
    let text = output.trim();
    let shown = |t: &str| head(t, QUOTE_BYTES).to_owned();
    match rule {
        Rule::EndsWith(mark) => {
            // A closing word or bracket after the marker does no harm.
            let kept = contains(clip_end(text, mark.len() + 80), mark);
            (!kept).then(|| {
                (Defect::MissingTag, format!("an output that ends with {mark}"), tail(text, 80).to_owned())
            })
        }
        Rule::StartsWith(mark) => {
            let start = text.trim_start_matches(['*', '#', '>', '_', ' ', '"', '`']);
            let kept = contains(clip(start, mark.len() + 4), mark.trim_end_matches([':', ' ']));
            (!kept).then(|| {
                (Defect::MissingTag, format!("an output that starts with {mark}"), head(text, 80).to_owned())
            })
        }
        Rule::Enclosed(tag) => {
            let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
            let missing = if !contains(text, &open) { format!("{open}>") } else { close };
            (!contains(text, &missing.replace('>', ""))).then(|| {
                (
                    Defect::MissingTag,
                    format!("an output with <{tag}> and </{tag}>; {missing} is missing"),
                    shown(text),
                )
            })
        }
        Rule::OnlyJson => not_json(text)
            .map(|why| (Defect::WrongFormat, format!("JSON and nothing else; {why}"), shown(text))),
        Rule::OnlyYesOrNo => {
            let word = bare(text);
            let kept = word.eq_ignore_ascii_case("yes") || word.eq_ignore_ascii_case("no");
            (!kept).then(|| (Defect::WrongFormat, "yes or no and nothing else".to_owned(), shown(text)))
        }
        Rule::OnlyNumber => {
            // A unit or a currency beside the number is not worth a failure.
            let kept = text.split_whitespace().count() <= 3 && text.contains(|c: char| c.is_numeric());
            (!kept).then(|| (Defect::WrongFormat, "a number and nothing else".to_owned(), shown(text)))
        }
        Rule::HasNumber => {
            let kept = text.contains(|c: char| c.is_numeric()) || number_word(text);
            (!kept).then(|| (Defect::WrongFormat, "an answer with a number".to_owned(), shown(text)))
        }
        Rule::AtMost(limit, unit) => too_long(text, *limit, *unit),
        Rule::Bullets(wanted) => {
            let count = text.lines().filter(|line| is_bullet(line)).count();
            (count != *wanted).then(|| {
                (
                    Defect::WrongFormat,
                    format!("exactly {wanted} bullet points; there are {count}"),
                    shown(text),
                )
            })
        }
        Rule::NoFence => text.contains("```").then(|| {
            let at = memchr::memmem::find(text.as_bytes(), b"```").unwrap_or(0);
            (Defect::CodeBlockRule, "no code fences".to_owned(), shown(text.get(at..).unwrap_or(text)))
        }),
        Rule::NoMarkdown => {
            let line = text.lines().find(|line| {
                let line = line.trim_start();
                line.starts_with("```")
                    || line.starts_with("## ")
                    || line.starts_with("# ")
                    || line.matches("**").count() >= 2
            });
            line.map(|line| (Defect::CodeBlockRule, "no markdown".to_owned(), shown(line)))
        }
        Rule::Fence(lang) => {
            let kept = text.contains("```");
            let named = lang.as_deref().map_or_else(String::new, |l| format!(" in {l}"));
            (!kept).then(|| (Defect::CodeBlockRule, format!("a code block{named}"), shown(text)))
        }
        Rule::Forbidden(word) => {
            let at = find_word(text, word)?;
            Some((
                Defect::ForbiddenText,
                format!("an output without '{word}'"),
                shown(text.get(at..).unwrap_or(text)),
            ))
        }
        Rule::UseTool(_) | Rule::UseSomeTool | Rule::OneCall => None,
    }
}

/// ASCII case does not matter.
fn contains(text: &str, part: &str) -> bool {
    text.contains(part) || text.to_ascii_lowercase().contains(&part.to_ascii_lowercase())
}

/// Without quotes, stars and final punctuation.
fn bare(text: &str) -> &str {
    text.trim_matches(|c: char| !c.is_alphanumeric())
}

fn number_word(text: &str) -> bool {
    const WORDS: [&str; 16] = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
        "twelve", "hundred", "thousand", "million",
    ];
    text.split(|c: char| !c.is_alphabetic()).any(|word| WORDS.iter().any(|w| word.eq_ignore_ascii_case(w)))
}

/// Why the text is not JSON alone. A fence around it is forgiven: another rule forbids fences.
fn not_json(text: &str) -> Option<String> {
    let body = match text.strip_prefix("```") {
        Some(rest) => {
            let rest = rest.strip_suffix("```").unwrap_or(rest);
            rest.split_once('\n').map_or(rest, |(_, body)| body)
        }
        None => text,
    };
    match serde_json::from_str::<serde::de::IgnoredAny>(body.trim()) {
        Ok(_) => None,
        Err(error) => Some(match body.trim().starts_with(['{', '[']) {
            true => format!("it does not parse: {error}"),
            false => "there is other text".to_owned(),
        }),
    }
}

fn too_long(text: &str, limit: usize, unit: Unit) -> Option<(Defect, String, String)> {
    let (count, allowed, name) = match unit {
        Unit::Words => {
            let words = text.split_whitespace().filter(|w| w.contains(char::is_alphanumeric)).count();
            // The tolerance is for counting, not for a limit of one word.
            let allowed = if limit <= 3 { limit } else { (limit as f64 * WORD_TOLERANCE) as usize };
            (words, allowed, "words")
        }
        Unit::Sentences => (sentences(text), limit, "sentences"),
        Unit::Characters => (text.chars().count(), limit, "characters"),
    };
    (count > allowed).then(|| {
        let expected = format!("at most {limit} {name}; there are {count}");
        (Defect::LengthLimit, expected, tail(text, 80).to_owned())
    })
}

/// Sentences that surely end: a stop after a word of some length, followed by a capital. Stops
/// after abbreviations, initials and numbers are not counted.
fn sentences(text: &str) -> usize {
    let mut count = 0;
    let mut rest = text;
    while let Some(at) = rest.find(['.', '!', '?']) {
        let word = rest.get(..at).unwrap_or("").rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or("");
        let after = rest.get(at + 1..).unwrap_or("");
        let next = after.trim_start();
        let broke = after.len() > next.len() && next.starts_with(|c: char| c.is_uppercase());
        if word.chars().count() > 3 && word.contains(char::is_alphabetic) && broke {
            count += 1;
        }
        rest = after;
    }
    count + usize::from(!text.trim().is_empty())
}

fn is_bullet(line: &str) -> bool {
    let line = line.trim_start();
    let numbered = line
        .split_once(['.', ')'])
        .is_some_and(|(n, _)| !n.is_empty() && n.len() <= 2 && n.bytes().all(|b| b.is_ascii_digit()));
    numbered || line.starts_with("- ") || line.starts_with("* ") || line.starts_with("\u{2022}")
}

/// The word's place, where it stands alone.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let (lower, word) = (text.to_ascii_lowercase(), word.to_ascii_lowercase());
    memchr::memmem::find_iter(lower.as_bytes(), word.as_bytes()).find(|&at| {
        let before = lower.get(..at).and_then(|t| t.chars().next_back());
        let after = lower.get(at + word.len()..).and_then(|t| t.chars().next());
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}
