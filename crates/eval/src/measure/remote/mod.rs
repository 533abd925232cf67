//! Metrics that programs behind HTTP endpoints answer: `verdict.evaluators`.
//!
//! In: the configuration of an evaluator, a trace, and a span of it. Out: a question whose text is the outline of
//! the span, the agent's run or the trace as JSON; from the answer, one measurement. The question goes to a judge of
//! dialect `evaluator`, so that limits, retries, budgets and caches are those of judges.
//!
//! | file | content |
//! |---|---|
//! | `config` | `verdict.evaluators`, and the rows of its metrics |
//! | `subject` | the part of a trace that a metric is about |
//! | `metric` | the metric: one question, one measurement |
//! | `protocol` | the JSON of requests and answers, and the schema that an answer must fit |
//! | `outline` | the outline of a part of a trace, within a number of bytes |
//! | `answer` | answers compared with the outline |
//!
//! Content is redacted and withheld as for judges, and an answer is as untrusted as a judge's: citations of spans that
//! were not sent, and quotations that do not occur in them, are dropped and counted.

pub(crate) mod answer;
pub(crate) mod config;
pub(crate) mod metric;
pub(crate) mod outline;
pub(crate) mod protocol;
pub(crate) mod subject;

#[cfg(test)]
mod tests;
