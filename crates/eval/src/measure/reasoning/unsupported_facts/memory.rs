//! Answers that name the model's memory as their source: "from memory, the two can be given together".
//!
//! Principle: an answer that names the memory of the model as its source is supported by nothing in the run, however
//! exact it is.
//!
//! In: an answer. Out: the first sentence that names memory as the source. A question, an offer ("if you like, I can
//! answer from general knowledge") and a refusal ("I won't give one from memory") do not name it.

use crate::measure::Memo;
use crate::measure::language::ReadText;

/// The first sentence that names memory as the source; `None` if there is none.
pub(super) fn source<'t>(answer: &'t str, memo: &Memo) -> Option<&'t str> {
    ReadText::new(answer, None, memo).memory_claims().into_iter().next()
}
