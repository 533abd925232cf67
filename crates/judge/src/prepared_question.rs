//! A question with its validator and keys.

use verdict_eval::questions::Question;
use verdict_eval::trace::Text;
use verdict_otlp::trace::TraceId;

use crate::answer_validator::AnswerValidator;
use crate::cache_key;

/// A question with values that are derived from it once for all judges.
#[derive(Debug)]
pub(crate) struct PreparedQuestion<'a> {
    pub(crate) question: &'a Question,
    pub(crate) validator: AnswerValidator<'a>,
    /// Hash of rubric and form.
    pub(crate) rubric: String,
    pub(crate) trace: TraceId,
    /// The services whose content the prompt contains.
    pub(crate) services: &'a [Text],
}

impl<'a> PreparedQuestion<'a> {
    /// The prepared question with another prompt and form; `None` if the form has an invalid schema.
    pub(crate) fn with_question<'b>(&self, question: &'b Question) -> Option<PreparedQuestion<'b>>
    where
        'a: 'b,
    {
        let validator = AnswerValidator::new(&question.form).ok()?;
        let (rubric, services) = (cache_key::rubric_hash(question), self.services);
        Some(PreparedQuestion { question, validator, rubric, trace: self.trace, services })
    }
}
