//! The line in which an executor reports how a run of code or a command ended.
//!
//! In: the text of a result. Out: the exit status that the executor reports. It is on a separate line before or after
//! the output of the program, and takes precedence over the output: a program that prints the word "error" and ends
//! with status 0 did not fail. A line that is indented below the first one is a field of what the text describes, such
//! as the last state of a container.

use crate::pattern::WordSearcher;

/// Maximum bytes of a headline; longer lines are output of the program.
const MAX_LINE_BYTES: usize = 200;
/// Lines at the beginning and at the end of a text in which any form of a headline counts.
const OUTER_LINES: usize = 2;
/// A headline with a number contains one of these words.
const STATUS_WORDS: [&str; 8] =
    ["exit", "Exit", "EXIT", "returncode", "return_code", "return code", "Return code", "Return Code"];
checked_static!(STATUS_WORD: WordSearcher = WordSearcher::new(&STATUS_WORDS));

// A headline with a number. Its subject is optional, as is the separator before the number.
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
// A headline without a number, which counts only on the outermost lines.
regex!(
    WORDED,
    r"(?xi)^\W* (?:(?:code|script|command|program|tool|cell|notebook)\s+)?
    (?:execution|command|script|program|process|build|job) \W{0,3} (?:status|result)? \W{0,3} (?:has\s+)?
    (?: (?P<bad> failed|failure|crashed|aborted ) | succeeded | success | (?:finished|completed)\s+successfully ) \W* $"
);

regex!(LABEL, r"(?i)^(?:(?:code|program|command|console|standard)\s+)?(?:output|stdout|result)\s*:");

/// The line of an executor about the end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Headline<'t> {
    /// The exit status; 1 if the headline reports a failure without a number.
    pub(super) status: i64,
    /// Whether a word of the headline reports a failure.
    pub(super) reports_failure: bool,
    pub(super) line: &'t str,
}

/// The headline of the text. One at the beginning takes precedence over later ones, which may be of programs that the
/// run started; otherwise the last one is returned. `None` without a headline.
pub(super) fn find(text: &str) -> Option<Headline<'_>> {
    let margin = text.lines().find(|line| !line.trim().is_empty()).map_or(0, indent);
    let is_nested = |line: &&str| indent(line) > margin;
    if let Some(headline) = outer_lines(text.lines()).filter(|line| !is_nested(line)).find_map(outer_headline)
    {
        return Some(headline);
    }
    if let Some(headline) =
        outer_lines(text.lines().rev()).filter(|line| !is_nested(line)).find_map(outer_headline)
    {
        return Some(headline);
    }
    let mut last = None;
    let mut start = 0;
    // Each line is read once.
    while let Some(offset) = text.get(start..).and_then(|rest| STATUS_WORD.find(rest)) {
        let (line, end) = line_around(text, start + offset);
        let headline =
            Some(line).filter(|line| !is_nested(line)).and_then(|line| numbered_headline(line, false));
        last = headline.or(last);
        start = end;
    }
    last
}

/// The first [`OUTER_LINES`] of the lines that are not blank.
fn outer_lines<'t>(lines: impl Iterator<Item = &'t str>) -> impl Iterator<Item = &'t str> {
    lines.filter(|line| !line.trim().is_empty()).take(OUTER_LINES)
}

fn outer_headline(line: &str) -> Option<Headline<'_>> {
    let line = line.trim();
    numbered_headline(line, true).or_else(|| worded_headline(line))
}

/// The bytes of white space at the beginning of a line.
fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The line that contains the byte at `offset`, and its end.
fn line_around(text: &str, offset: usize) -> (&str, usize) {
    let bytes = text.as_bytes();
    let start = bytes.get(..offset).and_then(|b| memchr::memrchr(b'\n', b)).map_or(0, |i| i + 1);
    let end = bytes.get(offset..).and_then(|b| memchr::memchr(b'\n', b)).map_or(text.len(), |i| offset + i);
    (text.get(start..end).unwrap_or_default(), end)
}

/// A headline with a number. A line that is not outermost (`is_outer`) needs a subject or a separator, since prose may
/// contain the other forms.
fn numbered_headline(line: &str, is_outer: bool) -> Option<Headline<'_>> {
    if line.len() > MAX_LINE_BYTES {
        return None;
    }
    let captures = NUMBERED.captures(line)?;
    let has_subject = captures.name("subject").is_some();
    let has_separator = captures.name("separator").is_some_and(|s| s.as_str().contains([':', '=', '>']));
    // With a message after the number the subject is required, since documentation lists status codes in this form.
    let has_message = captures.name("rest").is_some_and(|rest| rest.as_str().starts_with(": "));
    if has_message && !has_subject || !is_outer && !has_subject && !has_separator {
        return None;
    }
    let status: i64 = captures.name("status")?.as_str().parse().ok()?;
    // "Return code: 200" is an HTTP status.
    let status =
        if (200..300).contains(&status) && !line.to_ascii_lowercase().contains("exit") { 0 } else { status };
    Some(Headline { status, reports_failure: reports_failure(line), line })
}

fn reports_failure(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    ["failed", "failure", "error", "crashed", "non-zero"].iter().any(|word| lower.contains(word))
}

/// A headline without a number.
fn worded_headline(line: &str) -> Option<Headline<'_>> {
    if line.len() > MAX_LINE_BYTES {
        return None;
    }
    let has_failed = WORDED.captures(line)?.name("bad").is_some();
    Some(Headline { status: i64::from(has_failed), reports_failure: has_failed, line })
}

/// The output of the program, without the headline of its executor and without a label.
pub(super) fn strip_headline(text: &str) -> &str {
    let text = text.trim();
    // A single line above the limit is no headline; most results have one line.
    if text.len() > MAX_LINE_BYTES && memchr::memchr(b'\n', text.as_bytes()).is_none() {
        return without_label(text);
    }
    let is_headline =
        |line: &str| numbered_headline(line.trim(), true).or_else(|| worded_headline(line.trim())).is_some();
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let text = if is_headline(first) { rest.trim() } else { text };
    let (before, last) = text.rsplit_once('\n').unwrap_or(("", text));
    let text = if is_headline(last) { before.trim() } else { text };
    without_label(text)
}

fn without_label(text: &str) -> &str {
    LABEL.find(text).and_then(|label| text.get(label.end()..)).unwrap_or(text).trim()
}
