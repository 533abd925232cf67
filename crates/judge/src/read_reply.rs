//! Reads a judge's reply to a question. Out: a value that fits the form, or the fault of the reply.

use serde_json::Value;

use crate::answer_validator::{AnswerValidator, InvalidAnswer};
use crate::provider::{Correction, FinishReason, Reply};

/// Largest size in bytes of an unusable answer that is repeated in the next request.
const MAX_REPEATED_BYTES: usize = 8 << 10;

/// The value of a reply; otherwise the name of its fault and, if asking again may help, the correction.
pub(crate) fn read_reply(
    reply: &Reply,
    validator: &AnswerValidator<'_>,
) -> Result<Value, (&'static str, Option<Correction>)> {
    let fault = match reply.finish {
        // A model that has refused is expected to refuse again.
        FinishReason::Refused => return Err(("refused", None)),
        FinishReason::Length => InvalidAnswer::Cut,
        FinishReason::Complete => match validator.read(&reply.text) {
            Ok(value) => return Ok(value),
            Err(fault) => fault,
        },
    };
    let name = match fault {
        InvalidAnswer::Cut => "cut",
        InvalidAnswer::TooLong => "too_long",
        InvalidAnswer::NoObject => "no_object",
        InvalidAnswer::Ambiguous => "several",
        InvalidAnswer::SchemaMismatch(_) => "unfit",
    };
    let repeated = fault != InvalidAnswer::Cut
        && !reply.text.trim().is_empty()
        && reply.text.len() <= MAX_REPEATED_BYTES;
    let answer = repeated.then(|| reply.text.clone());
    Err((name, Some(Correction { answer, fault: fault.to_string() })))
}
