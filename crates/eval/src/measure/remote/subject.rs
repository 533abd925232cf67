//! The parts of a trace that metrics of evaluators are about.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_otlp::trace::Idx;

use crate::measure::ask::transcript::RunScope;

/// The part of a trace that an evaluator judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Model calls.
    Model,
    /// Tool calls.
    Tool,
    /// Model and tool calls.
    Step,
    /// The run of an agent with all beneath it.
    Agent,
    /// The whole trace.
    Trace,
}

/// The part of a trace that an evaluator is asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SubjectPart {
    Step(Idx),
    Run(RunScope),
}
