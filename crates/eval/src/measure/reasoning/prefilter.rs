//! One pass over each output for the patterns of several rules, since most outputs match none.

use std::cell::Cell;
use std::rc::Rc;

use verdict_otlp::trace::Idx;

use super::answer::{MAX_ANSWER, masked};
use super::claims;
use crate::measure::Memo;
use crate::recognise::AgentTrace;

/// A change of approach.
pub(super) const ANOTHER_WAY_WORDS: &str = r"(?i)\b(?:try|use|take|need|with|attempt|to|adopt|in)\s+(?:a |an |some |yet )?(?:\w+ )?(?:different|another|alternative) (?:approach|way|method|strategy|technique)\b";
regex!(
    ANY,
    &[claims::BY_TOOL_WORDS, claims::BY_SELF_WORDS, ANOTHER_WAY_WORDS]
        .map(|words| format!("(?:{words})"))
        .join("|")
);

/// Whether the output of each span may match a rule; `None` if it was not searched yet.
pub(super) struct Prefilter(Vec<Cell<Option<bool>>>);

impl Prefilter {
    pub(super) fn of(trace: &AgentTrace, memo: &Memo) -> Rc<Prefilter> {
        memo.trace(|| Prefilter(vec![Cell::new(None); trace.views.len()]))
    }

    /// False if the output of the span at `at` has neither a claim of work nor a change of approach.
    pub(super) fn may_match(&self, trace: &AgentTrace, at: Idx) -> bool {
        let (Some(known), Some(view)) = (self.0.get(at), trace.views.get(at)) else { return true };
        let search = || {
            let text = view.output_text();
            // Rules cut a longer text, which changes what is masked.
            text.len() > MAX_ANSWER || ANY.is_match(&masked(&text))
        };
        let any = known.get().unwrap_or_else(search);
        known.set(Some(any));
        any
    }
}
