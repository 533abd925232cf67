//! The cause of an error by its text.
//!
//! In: the text of an error (a status description, an exception, an error that a tool returned). Out: the
//! [`Defect`] for its cause, which has the TRAIL category. More specific causes take precedence: "connection timed
//! out" is a timeout, and `ModuleNotFoundError` is not a missing resource.

use aho_corasick::{AhoCorasick, MatchKind};

use super::conversation::runs_code;
use super::defects::{Defect, QUOTE_BYTES, clip};
use super::excerpt::{around, head};
use super::vocabulary::{self, WordMeaning};
use crate::recognise::Call;
use crate::recognise::framework_errors::{CODE_REFUSED, after_failed_code, reports_failed_code};
use phrases::PHRASES;

mod phrases;

/// Maximum bytes of an error that are searched for phrases.
const READ_BYTES: usize = 2048;

struct Phrases {
    automaton: AhoCorasick,
    /// By pattern: its row in [`PHRASES`], and whether its left and its right end may be inside a word.
    patterns: Vec<(usize, bool, bool)>,
}

checked_static!(COMPILED: Phrases = compile());

/// Compiles the phrases to one automaton.
fn compile() -> Result<Phrases, aho_corasick::BuildError> {
    let mut texts = Vec::new();
    let mut patterns = Vec::new();
    for (rank, (_, phrases)) in PHRASES.iter().enumerate() {
        for phrase in phrases.iter().copied().flatten() {
            texts.push(phrase.trim_matches('~'));
            patterns.push((rank, phrase.starts_with('~'), phrase.ends_with('~')));
        }
    }
    let row = |cause| PHRASES.iter().position(|(defect, _)| *defect == cause).unwrap_or(PHRASES.len());
    let composed: Vec<(Defect, String)> = phrases::composed().collect();
    for (cause, phrase) in &composed {
        texts.push(phrase);
        patterns.push((row(*cause), false, false));
    }
    let words: Vec<_> = vocabulary::spellings_of(WordMeaning::TimedOut).collect();
    for (word, left_open, right_open) in &words {
        texts.push(word);
        patterns.push((row(Defect::TimedOut), *left_open, *right_open));
    }
    let automaton =
        AhoCorasick::builder().ascii_case_insensitive(true).match_kind(MatchKind::Standard).build(texts)?;
    Ok(Phrases { automaton, patterns })
}

/// The cause of an error; [`Defect::Errored`] if its text does not name one.
pub(crate) fn cause(text: &str) -> Defect {
    let (error, _) = after_failed_code(text);
    let searched = clip(error, READ_BYTES);
    // A class name without a message is split into words: `UsageLimitExceeded`.
    let best = best_phrase(searched).or_else(|| best_phrase(&split_camel_case(searched)));
    match best {
        Some((rank, _)) => PHRASES.get(rank).map_or(Defect::Errored, |(defect, _)| *defect),
        None if error.len() < text.len() && reports_failed_code(clip(text, QUOTE_BYTES)) => {
            Defect::InvalidCode
        }
        None => cause_by_word_pair(clip(text, READ_BYTES)),
    }
}

// The name of an exception: `ZeroDivisionError`, `java.lang.IllegalStateException`.
regex!(EXCEPTION, r"\b[A-Z]\w*(?:Error|Exception)\b");

/// The cause of an error of this call. An exception without a known cause is attributed to the model's code if the
/// call passes code to a tool that runs it; otherwise the code of the tool raised it.
pub(crate) fn cause_of_call(call: &Call, text: &str) -> Defect {
    match cause(text) {
        Defect::Errored if passes_code(call) && EXCEPTION.is_match(text) => Defect::InvalidCode,
        cause => cause,
    }
}

/// Whether the call passes code to a tool that runs code. `run_report` takes a name, which contains no `(` or `=`.
fn passes_code(call: &Call) -> bool {
    runs_code(&call.name) && call.arguments.as_deref().is_some_and(|text| text.contains(['(', '=']))
}

/// The cause of an error without a phrase: invalid code if it contains a pair of [`CODE_REFUSED`].
fn cause_by_word_pair(text: &str) -> Defect {
    let lower = text.to_ascii_lowercase();
    let is_refused = CODE_REFUSED.iter().any(|(one, two)| lower.contains(one) && lower.contains(two));
    if is_refused { Defect::InvalidCode } else { Defect::Errored }
}

/// The text with a space before each upper-case letter that follows a lower-case one.
fn split_camel_case(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut after_lower = false;
    for c in text.chars() {
        if after_lower && c.is_uppercase() {
            out.push(' ');
        }
        after_lower = c.is_lowercase();
        out.push(c);
    }
    out
}

/// At most [`QUOTE_BYTES`] of an error: the part around the phrase that names its cause, or the last line of a
/// traceback, or its beginning.
pub(crate) fn cause_excerpt(text: &str) -> &str {
    let text = text.trim();
    if text.len() <= QUOTE_BYTES {
        return text;
    }
    let (error, error_start) = after_failed_code(text);
    if let Some((_, phrase)) = best_phrase(clip(error, READ_BYTES)) {
        // Details follow the phrase, so that a quarter of the excerpt before it is enough.
        let before = QUOTE_BYTES.saturating_sub(phrase.len()) / 4;
        let start = error_start + phrase.start;
        return head(around(text, start, start + QUOTE_BYTES, before), QUOTE_BYTES);
    }
    let is_traceback = text.contains("Traceback (most recent call last)");
    let last_line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    head(last_line.filter(|_| is_traceback).unwrap_or(text), QUOTE_BYTES)
}

/// The row of the most specific phrase in `text`, and its first occurrence.
fn best_phrase(text: &str) -> Option<(usize, std::ops::Range<usize>)> {
    let bytes = text.as_bytes();
    let is_word_byte = |i: Option<usize>| {
        i.and_then(|i| bytes.get(i)).is_some_and(|b| b.is_ascii_alphanumeric() || *b >= 0x80)
    };
    let mut best: Option<(usize, std::ops::Range<usize>)> = None;
    for occurrence in COMPILED.automaton.find_overlapping_iter(text) {
        let Some(&(rank, left_open, right_open)) = COMPILED.patterns.get(occurrence.pattern().as_usize())
        else {
            continue;
        };
        // A number within a path or a longer number (`/503/`, `1.503`) is not a status code.
        let is_number = bytes.get(occurrence.start()).is_some_and(u8::is_ascii_digit);
        let is_in_path = |i: Option<usize>| {
            is_number && i.and_then(|i| bytes.get(i)).is_some_and(|b| b"/.-_=%,".contains(b))
        };
        let before = occurrence.start().checked_sub(1);
        let after = Some(occurrence.end());
        // A full stop or comma after a status code is punctuation when no digit follows.
        let is_continued = is_in_path(after) && is_word_byte(Some(occurrence.end() + 1));
        if (!left_open && is_word_byte(before))
            || is_in_path(before)
            || (!right_open && is_word_byte(after))
            || is_continued
        {
            continue;
        }
        if best.as_ref().is_none_or(|(best_rank, _)| rank < *best_rank) {
            best = Some((rank, occurrence.range()));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_is_found_in_the_text() {
        let cases = [
            ("Error code: 429 - {'error': {'code': 'insufficient_quota'}}", Defect::RateLimited),
            ("ThrottlingException: Rate exceeded", Defect::RateLimited),
            ("401 Unauthorized", Defect::Unauthenticated),
            ("openai.AuthenticationError: Incorrect API key provided", Defect::Unauthenticated),
            ("HTTP 503: upstream overloaded", Defect::ServiceDown),
            (
                "('Connection aborted.', RemoteDisconnected('Remote end closed connection'))",
                Defect::ServiceDown,
            ),
            ("PageNotFound: 404 for https://example.org/x", Defect::NotFound),
            ("FileNotFoundError: [Errno 2] No such file or directory: 'a.txt'", Defect::NotFound),
            ("ModuleNotFoundError: No module named 'pandas'", Defect::EnvironmentBroken),
            ("bash: ffmpeg: command not found", Defect::EnvironmentBroken),
            ("CUDA out of memory", Defect::Exhausted),
            ("This model's maximum context length is 8192 tokens", Defect::Exhausted),
            ("ReadTimeout: Connection timed out", Defect::TimedOut),
            ("DEADLINE_EXCEEDED", Defect::TimedOut),
            ("search() got an unexpected keyword argument 'topk'", Defect::WrongArguments),
            ("Error: teleport is not a valid tool, try one of [search].", Defect::ToolMisdefined),
            ("SyntaxError: unterminated string literal", Defect::InvalidCode),
            ("NameError: name 'totals' is not defined", Defect::UndefinedName),
            (
                "Code execution failed at line 'open(\"timeout.txt\")' due to: ModuleNotFoundError: No module named 'x'",
                Defect::EnvironmentBroken,
            ),
            ("Code execution failed at line 'f(\"401\")' due to: ValueError: odd", Defect::InvalidCode),
            ("Import of the module os is not allowed here", Defect::InvalidCode),
            ("The code you sent could not be parsed", Defect::InvalidCode),
            ("quantity must be an integer, got 'two'", Defect::WrongArguments),
            ("lookup.find expects a string depot", Defect::WrongArguments),
            ("jsonschema.SchemaError: depot", Defect::WrongArguments),
            ("date must be formatted YYYY-MM-DD", Defect::WrongArguments),
            ("Reached the maximum number of operations (5000)", Defect::Exhausted),
            ("UsageLimitExceeded", Defect::Exhausted),
            ("RateLimitError: rate limit exceeded for this key", Defect::RateLimited),
            ("the maximum number of passengers is 5", Defect::Errored),
            ("Exception: No results found for query: 'x'. Use a less specific query.", Defect::EmptyResult),
            ("invalid url 'almanac': the scheme is required", Defect::Errored),
        ];
        for (text, expected) in cases {
            assert_eq!(cause(text), expected, "{text}");
        }
    }

    #[test]
    fn excerpt_of_a_long_error_contains_its_cause() {
        let frames = "  File \"convert.py\", line 7, in convert\n    raise error\n".repeat(12);
        let text = format!(
            "Could not convert.\nTraceback (most recent call last):\n{frames}FileNotFoundError: [Errno 2] No such file or directory: 'a.mp3'\n"
        );
        assert!(cause_excerpt(&text).contains("FileNotFoundError: [Errno 2]"), "{}", cause_excerpt(&text));
        let odd = text
            .replace("FileNotFoundError: [Errno 2] No such file or directory: 'a.mp3'", "OddError: so it is");
        assert_eq!(cause_excerpt(&odd), "OddError: so it is");
        assert_eq!(cause_excerpt(" 401 Unauthorized "), "401 Unauthorized");
    }

    #[test]
    fn numbers_in_addresses_and_amounts_are_not_status_codes() {
        for text in [
            "bad row in https://example.org/404/index",
            "expected 1.503 got 2",
            "wanted 5000 rows",
            "id=429x",
        ] {
            assert_eq!(cause(text), Defect::Errored, "{text}");
        }
        assert_eq!(cause("server said 503."), Defect::ServiceDown);
    }
}
