//! The items of lists, and the words of a request with the signs between them.
//!
//! In: a line of an answer, or a request. Out: the thing that the line names; the words with commas and full stops.

use crate::measure::excerpt::lowercase;
use crate::measure::reasoning::statements::words_of;

/// Maximum bytes of the name of a thing.
pub(super) const MAX_THING_BYTES: usize = 60;

/// Maximum calls of a trace.
pub(super) const MAX_CALLS: usize = 64;

/// Maximum bytes of a request: longer requests name several things.
pub(super) const MAX_TASK_BYTES: usize = 400;

/// The words of a text in lower case, with its commas and full stops as words of their own.
pub(super) fn words_with_signs(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 4 + 4);
    let end_word = |out: &mut String| {
        if !out.ends_with(' ') {
            out.push(' ');
        }
    };
    out.push(' ');
    for c in text.chars().chain(['.']) {
        let sign = match c {
            ',' => Some(", "),
            '.' | '!' | '?' | ';' | ':' | '\n' => Some(". "),
            _ => None,
        };
        match sign {
            Some(sign) => {
                end_word(&mut out);
                out.push_str(sign);
            }
            None if c.is_whitespace() || matches!(c, '(' | ')') => end_word(&mut out),
            None => out.push(c),
        }
    }
    lowercase(&out)
}

/// The thing that an item of a list names; `None` if the item has other text.
pub(super) fn listed_thing(line: &str) -> Option<&str> {
    let marked = line
        .strip_prefix(['-', '*', '•'])
        .or_else(|| line.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(['.', ')']))?;
    let thing = marked.trim().trim_matches(['*', '`', '_', '"']).trim_end_matches('.');
    let is_name = !thing.is_empty()
        && thing.len() <= MAX_THING_BYTES
        && words_of(thing).split_whitespace().count() <= 4;
    (is_name && !thing.contains([':', ' '])).then_some(thing)
}
