//! Whether a model's output may say what rules on prose look for: one pass over it for several of
//! them, since most outputs say none of it.

use std::cell::Cell;
use std::rc::Rc;

use verdict_otlp::trace::Idx;

use super::answer::{MAX_ANSWER, masked};
use super::claims;
use crate::measure::Memo;
use crate::recognise::AgentTrace;

/// An approach that is given up for another.
pub(super) const ANOTHER_WAY_WORDS: &str = r"(?i)\b(?:try|use|take|need|with|attempt|to|adopt|in)\s+(?:a |an |some |yet )?(?:\w+ )?(?:different|another|alternative) (?:approach|way|method|strategy|technique)\b";
regex!(
    ANY,
    &[claims::BY_TOOL_WORDS, claims::BY_SELF_WORDS, ANOTHER_WAY_WORDS]
        .map(|words| format!("(?:{words})"))
        .join("|")
);

/// What is known of the outputs of a trace, by span.
pub(super) struct Prefilter(Vec<Cell<Option<bool>>>);

impl Prefilter {
    pub(super) fn of(trace: &AgentTrace, memo: &Memo) -> Rc<Prefilter> {
        memo.trace(|| Prefilter(vec![Cell::new(None); trace.views.len()]))
    }

    /// False where the output of the span at `at` claims no work and speaks of no other way to go about
    /// it.
    pub(super) fn may_match(&self, trace: &AgentTrace, at: Idx) -> bool {
        let (Some(known), Some(view)) = (self.0.get(at), trace.views.get(at)) else { return true };
        if let Some(any) = known.get() {
            return any;
        }
        let text = view.output_text();
        // Of a longer one the beginning is judged by itself, where other marks may be left open.
        let any = text.len() > MAX_ANSWER || ANY.is_match(&masked(&text));
        known.set(Some(any));
        any
    }
}
