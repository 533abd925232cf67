//! The party at fault for a failed call.
//!
//! In: a call, and how it ended. Out: whether it failed through no fault of the model.

use super::defects::Defect;
use super::memo::Memo;
use super::provenance::Provenance;
use crate::measure::calls::attempts::{Attempt, CallOutcome};
use crate::recognise::{AgentTrace, Call};

/// Whether the failure is one of the service or of what the user asked for, not of what the model wrote.
pub(crate) fn is_of_others(trace: &AgentTrace, memo: &Memo, attempt: &Attempt, call: &Call) -> bool {
    use Defect::{InvalidCode, ToolMisdefined, UndefinedName, WrongArguments};
    let CallOutcome::Failed { cause, .. } = attempt.outcome else { return false };
    !matches!(cause, InvalidCode | ToolMisdefined | UndefinedName | WrongArguments)
        && Provenance::cached(trace, memo).invented(trace, call).is_none()
}
