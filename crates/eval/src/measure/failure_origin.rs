//! The party at fault for a failed call.
//!
//! In: a call, and its outcome. Out: whether it failed for a reason other than the output of the model.

use super::defects::Defect;
use super::memo::Memo;
use super::provenance::Provenance;
use crate::measure::calls::attempts::{Attempt, CallOutcome};
use crate::recognise::{AgentTrace, Call};

/// Whether the service or the user's request caused the failure, not the output of the model. False for a call that
/// did not fail.
pub(crate) fn is_external_failure(trace: &AgentTrace, memo: &Memo, attempt: &Attempt, call: &Call) -> bool {
    use Defect::{InvalidCode, ToolMisdefined, UndefinedName, WrongArguments};
    let CallOutcome::Failed { cause, .. } = attempt.outcome else { return false };
    !matches!(cause, InvalidCode | ToolMisdefined | UndefinedName | WrongArguments)
        && Provenance::cached(trace, memo).invented(trace, call).is_none()
}
