//! Checks an output against one rule.

use super::prompt::{LengthUnit, OutputRule};
use crate::measure::defects::{Defect, QUOTE_BYTES, clip, clip_end};
use crate::measure::excerpt::{head, tail};
use crate::measure::numbers;
use crate::measure::vocabulary::{self, WordMeaning};

/// Programs count words differently, so that a limit on words is exceeded only beyond this factor.
const WORD_TOLERANCE: f64 = 1.1;

/// The violation of a rule by an output.
pub(crate) struct Violation {
    /// The kind of defect, which fixes the score.
    pub defect: Defect,
    /// The requirement of the rule, which follows the word "expected" in the rationale.
    pub expected: String,
    /// The part of the output that violates the rule.
    pub quote: String,
}

/// The violation of `rule` by `output`; `None` if the output follows the rule. Rules about tools apply to calls, and
/// are not checked here.
pub(crate) fn violation(rule: &OutputRule, output: &str) -> Option<Violation> {
    let text = output.trim();
    match rule {
        OutputRule::EndsWith(mark) => {
            // A word or bracket after the marker is accepted.
            let is_met = contains(clip_end(text, mark.len() + 80), mark);
            violation_unless(
                is_met,
                Defect::MissingTag,
                format!("an output that ends with {mark}"),
                tail(text, 80),
            )
        }
        OutputRule::StartsWith(mark) => {
            let start = text.trim_start_matches(['*', '#', '>', '_', ' ', '"', '`']);
            let is_met = contains(clip(start, mark.len() + 4), mark.trim_end_matches([':', ' ']));
            violation_unless(
                is_met,
                Defect::MissingTag,
                format!("an output that starts with {mark}"),
                head(text, 80),
            )
        }
        OutputRule::Enclosed(tag) => tag_violation(text, tag),
        OutputRule::OnlyJson => {
            let reason = reason_not_json(text)?;
            violation_unless(false, Defect::WrongFormat, format!("JSON and nothing else; {reason}"), text)
        }
        OutputRule::OnlyYesOrNo => {
            let word = text.trim_matches(|c: char| !c.is_alphanumeric());
            let is_met = word.eq_ignore_ascii_case("yes") || word.eq_ignore_ascii_case("no");
            violation_unless(is_met, Defect::WrongFormat, "yes or no and nothing else", text)
        }
        OutputRule::OnlyNumber => {
            // A unit or a currency next to the number is accepted.
            let is_met = text.split_whitespace().count() <= 3 && text.contains(|c: char| c.is_numeric());
            violation_unless(is_met, Defect::WrongFormat, "a number and nothing else", text)
        }
        OutputRule::HasNumber => {
            let is_met = text.contains(|c: char| c.is_numeric()) || has_number_word(text);
            violation_unless(is_met, Defect::WrongFormat, "an answer with a number", text)
        }
        OutputRule::AtMost(limit, unit) => length_violation(text, *limit, *unit),
        OutputRule::Bullets(required_count) => {
            let count = text.lines().filter(|line| is_bullet(line)).count();
            let expected = format!("exactly {required_count} bullet points; there are {count}");
            violation_unless(count == *required_count, Defect::WrongFormat, expected, text)
        }
        OutputRule::NoFence | OutputRule::NoMarkdown | OutputRule::Fence(_) => markup_violation(rule, text),
        OutputRule::Forbidden(word) => {
            let quote = text.get(find_word(text, word)?..).unwrap_or(text);
            violation_unless(false, Defect::ForbiddenText, format!("an output without '{word}'"), quote)
        }
        OutputRule::UseTool(_) | OutputRule::UseSomeTool | OutputRule::OneCall => None,
    }
}

/// The violation, unless the requirement `is_met`.
fn violation_unless(
    is_met: bool,
    defect: Defect,
    expected: impl Into<String>,
    quote: &str,
) -> Option<Violation> {
    let quote = head(quote, QUOTE_BYTES).to_owned();
    (!is_met).then(|| Violation { defect, expected: expected.into(), quote })
}

/// The violation of an output without the opening or the closing tag.
fn tag_violation(text: &str, tag: &str) -> Option<Violation> {
    let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
    let missing = if !contains(text, &open) { format!("{open}>") } else { close };
    let is_met = contains(text, &missing.replace('>', ""));
    let expected = format!("an output with <{tag}> and </{tag}>; {missing} is missing");
    violation_unless(is_met, Defect::MissingTag, expected, text)
}

/// The violation of a rule about code fences or markdown.
fn markup_violation(rule: &OutputRule, text: &str) -> Option<Violation> {
    let is_markdown = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("```")
            || line.starts_with("## ")
            || line.starts_with("# ")
            || line.matches("**").count() >= 2
    };
    match rule {
        OutputRule::NoFence => {
            let start = memchr::memmem::find(text.as_bytes(), b"```")?;
            violation_unless(
                false,
                Defect::CodeBlockRule,
                "no code fences",
                text.get(start..).unwrap_or(text),
            )
        }
        OutputRule::NoMarkdown => {
            violation_unless(false, Defect::CodeBlockRule, "no markdown", text.lines().find(is_markdown)?)
        }
        OutputRule::Fence(lang) => {
            let language_suffix = lang.as_deref().map_or_else(String::new, |lang| format!(" in {lang}"));
            violation_unless(
                text.contains("```"),
                Defect::CodeBlockRule,
                format!("a code block{language_suffix}"),
                text,
            )
        }
        _ => None,
    }
}

/// Whether `text` contains `part`, ignoring ASCII case.
fn contains(text: &str, part: &str) -> bool {
    text.contains(part) || text.to_ascii_lowercase().contains(&part.to_ascii_lowercase())
}

fn has_number_word(text: &str) -> bool {
    text.split(|c: char| !c.is_alphabetic()).any(|word| numbers::from_any_word(word).is_some())
        || vocabulary::has(text, WordMeaning::Tens)
}

/// The reason why the text is not JSON alone; `None` if it is. A fence around it is accepted, since another rule
/// forbids fences.
fn reason_not_json(text: &str) -> Option<String> {
    let body = match text.strip_prefix("```") {
        Some(rest) => {
            let rest = rest.strip_suffix("```").unwrap_or(rest);
            rest.split_once('\n').map_or(rest, |(_, body)| body)
        }
        None => text,
    };
    let error = serde_json::from_str::<serde::de::IgnoredAny>(body.trim()).err()?;
    Some(match body.trim().starts_with(['{', '[']) {
        true => format!("it does not parse: {error}"),
        false => "there is other text".to_owned(),
    })
}

/// The violation of a limit on the length.
fn length_violation(text: &str, limit: usize, unit: LengthUnit) -> Option<Violation> {
    let (count, allowed, name) = match unit {
        LengthUnit::Words => {
            let words = text.split_whitespace().filter(|w| w.contains(char::is_alphanumeric)).count();
            // Small limits have no tolerance, since programs agree on the number of words of a short text.
            let allowed = if limit <= 3 { limit } else { (limit as f64 * WORD_TOLERANCE) as usize };
            (words, allowed, "words")
        }
        LengthUnit::Sentences => (sentence_count(text), limit, "sentences"),
        LengthUnit::Characters => (text.chars().count(), limit, "characters"),
    };
    let expected = format!("at most {limit} {name}; there are {count}");
    violation_unless(count <= allowed, Defect::LengthLimit, expected, tail(text, 80))
}

/// The number of sentences. A sentence ends with a full stop, `!` or `?` after a word of more than three letters and
/// before white space and a capital letter, which excludes abbreviations, initials and numbers.
fn sentence_count(text: &str) -> usize {
    let mut count = 0;
    let mut rest = text;
    while let Some(mark) = rest.find(['.', '!', '?']) {
        let word = rest.get(..mark).unwrap_or("").rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or("");
        let after = rest.get(mark + 1..).unwrap_or("");
        let next = after.trim_start();
        let is_end = after.len() > next.len() && next.starts_with(|c: char| c.is_uppercase());
        if word.chars().count() > 3 && word.contains(char::is_alphabetic) && is_end {
            count += 1;
        }
        rest = after;
    }
    count + usize::from(!text.trim().is_empty())
}

/// Whether a line begins an item of a list.
fn is_bullet(line: &str) -> bool {
    let line = line.trim_start();
    let is_numbered = line
        .split_once(['.', ')'])
        .is_some_and(|(n, _)| !n.is_empty() && n.len() <= 2 && n.bytes().all(|b| b.is_ascii_digit()));
    is_numbered || line.starts_with("- ") || line.starts_with("* ") || line.starts_with("\u{2022}")
}

/// The position of `word` as a whole word.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let (lower, word) = (text.to_ascii_lowercase(), word.to_ascii_lowercase());
    memchr::memmem::find_iter(lower.as_bytes(), word.as_bytes()).find(|&start| {
        let before = lower.get(..start).and_then(|t| t.chars().next_back());
        let after = lower.get(start + word.len()..).and_then(|t| t.chars().next());
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}
