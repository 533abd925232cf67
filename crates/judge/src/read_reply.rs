//! Reads a judge's reply to a question. In: the reply and the validator of the answer form. Out: a valid value, or the
//! fault of the reply.

use serde_json::Value;

use crate::answer_validator::{AnswerValidator, InvalidAnswer};
use crate::provider::{Correction, FinishReason, Reply};

/// Largest size in bytes of an unusable answer that is repeated in the next request.
const MAX_REPEATED_BYTES: usize = 8 << 10;

/// The valid value of a reply. If there is none, the name of the fault and, unless the judge refused to answer, the
/// correction for a second request.
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
