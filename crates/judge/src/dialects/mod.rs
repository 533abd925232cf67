//! The built-in dialects: one file and one row each.

mod anthropic;
mod embeddings;
mod evaluator;
mod openai;
mod rerank;

use std::sync::Arc;

use crate::dialect::Dialect;

pub use evaluator::EVALUATOR;

pub(crate) fn built_in() -> [Arc<dyn Dialect>; 5] {
    [
        Arc::new(openai::OpenAi),
        Arc::new(anthropic::Anthropic),
        Arc::new(rerank::Rerank),
        Arc::new(embeddings::Embeddings),
        Arc::new(evaluator::EvaluatorDialect),
    ]
}
