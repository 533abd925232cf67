//! Judges of commands: their options, the questions of commands, the report at the end, and `judge check`.
//!
//! In: options and configuration. Out: answers, a report, an exit code.

pub(super) mod check;
pub(super) mod options;
pub(super) mod report;
pub(super) mod run;
pub(super) mod session;
