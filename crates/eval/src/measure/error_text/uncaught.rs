//! Uncaught errors of programs, as interpreters and compilers print them when a program ends.
//!
//! In: the output of a program. Out: the passage that reports the error. At the end of an output it is an
//! error of the run; in the middle of a document it is not.

use crate::measure::defects::{QUOTE_BYTES, clip, clip_end};
use crate::measure::excerpt::tail;

/// The first line of a Python traceback.
pub(super) const TRACEBACK: &str = "Traceback (most recent call last)";
/// Bytes at the end of a text in which the report of an error is searched.
const END_BYTES: usize = 8 * 1024;
/// Maximum further lines of an exception's message.
const MAX_MESSAGE_LINES: usize = 4;

// The line that names an exception: `ValueError: no`, `java.lang.NullPointerException`, `KeyError: 'x'`.
regex!(
    EXCEPTION,
    r#"(?m)^(?:Uncaught |Exception in thread "[^"\n]*" |Caused by: )?(?:[A-Za-z_]\w*\.){0,8}[A-Z]\w*(?:Error|Exception|Exit|Interrupt)\b(?::[^\n]*)?$"#
);
// A syntax error of Python: the position and, some lines later, the error, without a traceback.
regex!(
    SYNTAX,
    r#"(?m)^\s*File "[^"\n]*", line \d+(?:\n[^\n]*){1,4}\n(\w*(?:Syntax|Indentation|Tab)Error: )"#
);
// Stack frames and panics of other languages.
regex!(
    STACK,
    r#"(?m)^(?:(?:Uncaught )?(?:[\w.$]+\.)?[A-Z]\w*(?:Error|Exception)\b[^\n]*(?:\n[^\n]*){0,3}?\n\s+at [^\n]+(?::\d+|\))|panic: [^\n]*(?:\n[^\n]*){0,3}?\ngoroutine \d+ \[|thread '[^'\n]*' (?:\(\d+\) )?panicked at |Exception in thread "|Fatal error: Uncaught |[Ss]egmentation fault)"#
);

/// The uncaught error with which an output ends; `None` if it ends otherwise.
pub(super) fn at_end(text: &str) -> Option<&str> {
    ending_traceback(text).or_else(|| ending_syntax_error(text)).or_else(|| ending_stack(text))
}

/// The Python traceback with which an output ends: only indented lines, the line of the exception and a few lines of
/// its message follow the header.
fn ending_traceback(text: &str) -> Option<&str> {
    let start = memchr::memmem::rfind(text.as_bytes(), TRACEBACK.as_bytes())?;
    let trace = text.get(start..)?;
    let mut unindented =
        trace.lines().skip(1).filter(|line| !line.is_empty() && !line.starts_with([' ', '\t']));
    let is_exception = unindented.next().is_some_and(|line| {
        let name = line.split([':', '(']).next().unwrap_or("").trim();
        !name.is_empty() && name.len() < 120 && !name.contains(' ')
    });
    (is_exception && unindented.count() < MAX_MESSAGE_LINES).then_some(trace)
}

/// The syntax error of Python with which an output ends, from the name of the error on.
fn ending_syntax_error(text: &str) -> Option<&str> {
    let end = clip_end(text, END_BYTES);
    if !(end.contains("Error: ") && end.contains("File \"")) {
        return None;
    }
    let error_name = SYNTAX.captures_iter(end).last()?.get(1)?;
    let message = end.get(error_name.start()..)?;
    (message.lines().count() <= MAX_MESSAGE_LINES).then_some(message)
}

/// The stack frames or the panic with which an output ends.
fn ending_stack(text: &str) -> Option<&str> {
    let end = clip_end(text, END_BYTES);
    // Every match of `STACK` contains one of these.
    const MARKS: [&str; 6] =
        ["\n    at ", "\tat ", "panic", "xception in", "rror: Uncaught", "egmentation fault"];
    if !MARKS.iter().any(|word| end.contains(word)) {
        return None;
    }
    let stack = STACK.find_iter(end).last()?;
    let report = end.get(stack.start()..)?;
    let lines_after = end.get(stack.end()..)?.lines().skip(1).filter(|line| !line.trim().is_empty());
    // After the frames, an interpreter writes at most its version or a hint.
    let is_frame = |line: &&str| {
        line.starts_with([' ', '\t', '}', '#']) || line.contains(".go:") || line.contains("(0x")
    };
    (lines_after.filter(|line| !is_frame(line)).count() <= MAX_MESSAGE_LINES).then_some(report)
}

/// The passage of a failed run that contains the reason of the failure: the last exception, or the end of the output.
/// `headline` is the line that reports the failure.
pub(super) fn passage<'t>(text: &'t str, headline: &'t str) -> &'t str {
    let traceback = memchr::memmem::rfind(text.as_bytes(), TRACEBACK.as_bytes());
    if let Some(trace) = traceback.and_then(|start| text.get(start..)) {
        return EXCEPTION.find(clip(trace, END_BYTES)).and_then(|e| trace.get(e.start()..)).unwrap_or(trace);
    }
    let end = clip_end(text, END_BYTES);
    if let Some(exception) = EXCEPTION.find_iter(end).last() {
        return end.get(exception.start()..).unwrap_or(end);
    }
    let before_headline = text.trim_end().strip_suffix(headline.trim()).unwrap_or(text).trim();
    let output = before_headline.strip_prefix(headline.trim()).unwrap_or(before_headline).trim();
    if output.is_empty() { headline } else { tail(output, QUOTE_BYTES) }
}
