//! The evaluator's types under the names of the pipeline's stages.

pub(super) use verdict_eval::evaluate::{
    Engine as Evaluator, Judged as EvaluatedTrace, Weighed as Assessment,
};
