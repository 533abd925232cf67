//! The statement of an executor on how a run of code or a command ended.
//!
//! In: the text of a result. Out: the exit status that the executor wrote around the output of the program.
//! The exit status is on a separate line before or after the output, and takes precedence over the output: a program
//! that prints the word "error" and ends with status 0 did not fail.

use crate::pattern::WordSearcher;

/// Longer lines are output and no headline.
const MAX_LINE: usize = 200;
/// Lines at the beginning and at the end of a text in which any form of a headline counts.
const OUTER_LINES: usize = 2;
/// Words of which a headline with a number contains one.
const WORDS: [&str; 8] =
    ["exit", "Exit", "EXIT", "returncode", "return_code", "return code", "Return code", "Return Code"];
checked_static!(WORD: WordSearcher = WordSearcher::new(&WORDS));

// With the word for what ended, or with a separator before the number.
regex!(
    NUMBERED,
    r"(?xi)^\W*
    (?: (?P<subject> (?:the\s+|child\s+)? (?:process|subprocess|command|program|script|execution|job|task|container|shell
          |cell|code|build|step|action|run|it)\b [^\n]{0,120}? \b ) )?
    (?: exited (?:\s+with)? (?:\s+(?:an?\s+)?(?:non-?zero\s+)?(?:exit\s+)?(?:code|status))?
      | (?: (?:non-?zero\s+)? exit | return ) [\s_-]? (?:code|status) )
    (?P<separator> \W{0,6}? ) (?P<status> -?\d{1,10} ) \b
    (?P<rest> \W* (?: (?:execution\s+)? (?:failed|succeeded|success|failure|error|ok) )? \W* (?:</\w+>)? $ | :\s )"
);
// Without a number: only on the outermost lines.
regex!(
    WORDED,
    r"(?xi)^\W* (?:(?:code|script|command|program|tool|cell|notebook)\s+)?
    (?:execution|command|script|program|process|build|job) \W{0,3} (?:status|result)? \W{0,3} (?:has\s+)?
    (?: (?P<bad> failed|failure|crashed|aborted ) | succeeded | success | (?:finished|completed)\s+successfully ) \W* $"
);

regex!(LABEL, r"(?i)^(?:(?:code|program|command|console|standard)\s+)?(?:output|stdout|result)\s*:");

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Headline<'t> {
    /// The exit status; 1 if the headline says that the run failed, without a number.
    pub(super) status: i64,
    /// The headline says in a word that the run failed.
    pub(super) says_failed: bool,
    pub(super) line: &'t str,
}

/// The headline of the text. One at the beginning decides over later ones, which may be of programs that the
/// run started; otherwise the last one decides.
pub(super) fn find(text: &str) -> Option<Headline<'_>> {
    let outer = |line: &&str| numbered(line, true).or_else(|| in_words(line)).is_some();
    let read = |line| numbered(line, true).or_else(|| in_words(line));
    if let Some(first) = written_lines(text.lines()).find(outer) {
        return read(first);
    }
    if let Some(last) = written_lines(text.lines().rev()).find(outer) {
        return read(last);
    }
    let mut last = None;
    let mut at = 0;
    // Each line is read once.
    while let Some(found) = text.get(at..).and_then(|rest| WORD.find(rest)) {
        let (line, end) = line_around(text, at + found);
        last = numbered(line, false).or(last);
        at = end;
    }
    last
}

fn written_lines<'t>(lines: impl Iterator<Item = &'t str>) -> impl Iterator<Item = &'t str> {
    lines.map(str::trim).filter(|line| !line.is_empty()).take(OUTER_LINES)
}

/// The line that contains the byte `at`, and its end.
fn line_around(text: &str, at: usize) -> (&str, usize) {
    let bytes = text.as_bytes();
    let start = bytes.get(..at).and_then(|b| memchr::memrchr(b'\n', b)).map_or(0, |i| i + 1);
    let end = bytes.get(at..).and_then(|b| memchr::memchr(b'\n', b)).map_or(text.len(), |i| at + i);
    (text.get(start..end).unwrap_or_default(), end)
}

/// A headline with a number. Within other text only a form that prose does not have counts.
fn numbered(line: &str, outer: bool) -> Option<Headline<'_>> {
    if line.len() > MAX_LINE {
        return None;
    }
    let found = NUMBERED.captures(line)?;
    let has_subject = found.name("subject").is_some();
    let has_separator = found.name("separator").is_some_and(|s| s.as_str().contains([':', '=', '>']));
    // A message follows the number: the subject is needed, since documentation lists status codes so.
    let explained = found.name("rest").is_some_and(|rest| rest.as_str().starts_with(": "));
    if explained && !has_subject || !outer && !has_subject && !has_separator {
        return None;
    }
    let status: i64 = found.name("status")?.as_str().parse().ok()?;
    // "Return code: 200" is a status of HTTP.
    let status =
        if (200..300).contains(&status) && !line.to_ascii_lowercase().contains("exit") { 0 } else { status };
    Some(Headline { status, says_failed: says_failed(line), line })
}

fn says_failed(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    ["failed", "failure", "error", "crashed", "non-zero"].iter().any(|word| lower.contains(word))
}

fn in_words(line: &str) -> Option<Headline<'_>> {
    if line.len() > MAX_LINE {
        return None;
    }
    let bad = WORDED.captures(line)?.name("bad").is_some();
    Some(Headline { status: i64::from(bad), says_failed: bad, line })
}

/// The output of the program, without the headline of its executor and a label.
pub(super) fn without(text: &str) -> &str {
    let text = text.trim();
    // A longer line is none, and most results have one line.
    if text.len() > MAX_LINE && memchr::memchr(b'\n', text.as_bytes()).is_none() {
        return without_label(text);
    }
    let is_headline = |line: &str| numbered(line.trim(), true).or_else(|| in_words(line.trim())).is_some();
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let text = if is_headline(first) { rest.trim() } else { text };
    let (before, last) = text.rsplit_once('\n').unwrap_or(("", text));
    let text = if is_headline(last) { before.trim() } else { text };
    without_label(text)
}

fn without_label(text: &str) -> &str {
    LABEL.find(text).and_then(|label| text.get(label.end()..)).unwrap_or(text).trim()
}
