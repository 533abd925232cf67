//! Checks a limit on how much may be read or printed at a time.
//!
//! In: the texts of a prompt ("read the file 500 characters at a time"), and the results in the
//! next prompt of the same agent. Out: a finding on the model span whose code or call read more.
//! Twice the limit is allowed, since results contain headings and paths.

use crate::measure::conversation::{Turns, new_in_prompt, plain_text, writes_code};
use crate::measure::defects::Defect;
use crate::measure::excerpt::{around, head};
use crate::measure::{Context, Finding};
use crate::recognise::{Role, SpanView};

regex!(
    LIMIT,
    r"(?i)[^.\n]{0,160}\b(\d{2,6})\s+(?:characters|chars)\s+(?:at a time|at once|per (?:step|read|print|call))[^.\n]{0,60}|[^.\n]{0,120}\b(?:print|read|view|scan|display|output)\b[^.\n]{0,60}\b(?:only|at most|up ?to|no more than|not more than|maximum of)\b[^.\n]{0,20}?(\d{2,6})\s+(?:characters|chars)\b[^.\n]{0,60}"
);
/// Results contain headings and paths.
const TOLERANCE: usize = 2;

/// Most texts of a prompt that are searched: limits are in the instructions and the task.
const MAX_TEXTS: usize = 4;

struct Limit(Option<(usize, String)>);

/// `None` without a limit or a result, else the violation, if any.
pub(super) fn check_reading_limit(context: &Context<'_>, view: &SpanView) -> Option<Option<Finding>> {
    let (limit, sentence) = limit(context, view)?;
    let next = Turns::of(context.trace, context.memo).after(context.at)?;
    if view.requests().next().is_none() && !writes_code(&view.output_text()) {
        return None;
    }
    let longest = new_in_prompt(context.trace.views.get(next)?).max_by_key(|text| text.len())?;
    let count = longest.chars().count();
    if count <= limit * TOLERANCE {
        return Some(None);
    }
    let rationale = format!(
        "expected at most {limit} characters at a time, as the prompt says: \"{sentence}\"; {count} were returned"
    );
    Some(Some(Defect::ReadTooMuch.finding(rationale, longest.trim()).citing_at(context.trace, next)))
}

/// The limit in the system or user messages, with its sentence.
fn limit(context: &Context<'_>, view: &SpanView) -> Option<(usize, String)> {
    let asking = view.input.iter().filter(|m| matches!(m.role, Role::System | Role::User));
    let mut texts = asking.flat_map(|m| &m.parts).filter_map(plain_text).take(MAX_TEXTS);
    texts.find_map(|text| context.memo.of(text, |t| Limit(read_limit(t))).0.clone())
}

fn read_limit(text: &str) -> Option<(usize, String)> {
    // Most texts do not mention characters.
    memchr::memmem::find(text.as_bytes(), b"chars")
        .or(memchr::memmem::find(text.as_bytes(), b"characters"))?;
    let found = LIMIT.captures(text)?;
    let number = found.iter().skip(1).flatten().next()?.as_str().parse().ok()?;
    let whole = found.get(0)?;
    let sentence = around(text, whole.start(), whole.end(), 0);
    Some((number, head(sentence.trim(), 200).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_limits_on_reading_are_read() {
        assert_eq!(read_limit("Make sure to do it 500 characters at a time.").unwrap().0, 500);
        assert_eq!(read_limit("Print only the first 300 characters of a file.").unwrap().0, 300);
        assert_eq!(read_limit("Answer in at most 200 characters."), None);
        assert_eq!(read_limit("The string has 500 characters."), None);
    }
}
