//! Results that show a defect: a repeated failing call, and a column of single characters.
//!
//! In: a tool span, or a prompt and the model call before it. Out: a finding on the last repetition of a
//! failing call; and one if code returned a column of single characters, as it iterated over a string
//! instead of its lines or items. The latter is reported on the span that was shown the column, and cites
//! the call that wrote the code.

use crate::measure::agent::attempts::{CallAttempts, quoted};
use crate::measure::conversation::{Turns, new_in_prompt, writes_code};
use crate::measure::defects::Defect;
use crate::measure::error_detection::call_index::CallIndex;
use crate::measure::{Context, Finding};
use crate::recognise::Call;

/// Consecutive lines of one character that are a column.
const COLUMN: usize = 8;
/// Maximum lines of a text that are read.
const MAX_LINES: usize = 400;

/// The last repetition of a failing call, on its tool span.
pub(super) fn repeated_failure(context: &Context<'_>, call: &Call) -> Option<Finding> {
    let attempts = CallAttempts::get(context.trace, context.memo);
    let repeat = attempts.ending(*CallIndex::of(context.trace, context.memo).by_tool.get(&context.at)?)?;
    let rationale = format!(
        "{} was called {} times with the same arguments and failed each time; after one failure a changed call \
         was expected",
        call.name.trim(),
        repeat.nth
    );
    Some(Defect::RepeatedFailingCall.finding(rationale, quoted(call)))
}

/// A column of single characters in the results for the model.
pub(super) fn characters(context: &Context<'_>) -> Option<Finding> {
    let before = Turns::of(context.trace, context.memo).before(context.at)?;
    let view = context.trace.views.get(context.at)?;
    if !writes_code(&context.trace.views.get(before)?.output_text()) {
        return None;
    }
    let column = new_in_prompt(view).find_map(|text| column(text))?;
    let rationale = "lines or items were expected; what came back is one character a line: the code walked \
                     over the characters of a string";
    Some(Defect::CharactersForItems.finding(rationale, column).citing_at(context.trace, before))
}

/// The first column of lines of one letter each.
fn column(text: &str) -> Option<&str> {
    let mut start = 0;
    let mut run = 0;
    let mut at = 0;
    for line in text.split_inclusive('\n').take(MAX_LINES) {
        let mut chars = line.trim_end_matches(['\n', '\r']).chars();
        let single = chars.next().is_none_or(char::is_alphabetic) && chars.next().is_none();
        if single && !line.trim().is_empty() {
            if run == 0 {
                start = at;
            }
            run += 1;
        } else if !single {
            run = 0;
        }
        at += line.len();
        if run >= COLUMN {
            return text.get(start..at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_of_letters_is_found_and_a_list_is_not() {
        assert!(column("Logs:\nD\ni\nr\ne\nc\nt\no\nr\ny\n").is_some());
        assert!(column("1\n2\n3\n4\n5\n6\n7\n8\n9\n").is_none());
        assert!(column("a.py\nb.py\nc\nd.py\ne\nf\ng\nh.py\n").is_none());
    }
}
