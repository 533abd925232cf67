//! The evaluator's types that the stages of the pipeline use.

pub(super) use verdict_eval::{Assessment, EvaluatedTrace, Evaluator};
