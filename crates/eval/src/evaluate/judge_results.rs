//! The answers of judges about a trace, and the last question to them.

use crate::measure::ask::outcome::{OutcomeQuestion, RunOutcome};
use crate::measure::question_rounds::Ask;
use crate::measure::{Answer, Measurement, Usage};

/// The answers of judges about a trace.
#[derive(Debug, Default)]
pub struct JudgeResults {
    /// As [`Questions::finish`](crate::questions::Questions::finish) returns them.
    pub measurements: Vec<Measurement>,
    /// As [`OutcomeAsk::read`] returns it, if that question was asked and answered.
    pub outcome: Option<RunOutcome>,
    /// `None` if no judge was to be asked.
    pub usage: Option<Usage>,
}

/// The value of [`Ask::metric`] in the last question about a trace.
pub const OUTCOME_QUESTION: &str = "trace";

/// The last question about a trace: which of its failures affected the outcome.
pub struct OutcomeAsk {
    /// The question, addressed to judges.
    pub ask: Ask,
    pub(super) question: OutcomeQuestion,
}

impl OutcomeAsk {
    /// The outcome that the answer states; `None` if the answer is an error or not usable.
    pub fn read(&self, answer: &Answer) -> Option<RunOutcome> {
        self.question.read(answer.opinions.as_ref().ok()?)
    }
}
