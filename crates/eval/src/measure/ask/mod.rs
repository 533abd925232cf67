//! Questions to judges, and measurements from their answers (001, tables 1 and 2; 000, section 3).
//!
//! In: a trace, a span, the findings of the rules. Out: prompts and forms; and from the answers,
//! measurements whose findings quote the trace. The caller sends the questions to judges.
//!
//! | file | content |
//! |---|---|
//! | `rubric/` | the rubric of each metric |
//! | `config` | `verdict.ask`, `verdict.rubrics`, `verdict.instructions` |
//! | `asker` | how questions are asked, resolved once from the configuration |
//! | `filter` | which questions are asked: sampling, spans, conditions |
//! | `step` | a metric of one model or tool call |
//! | `surroundings`, `links` | the context of a step in a prompt: task, request, definition, earlier and later steps |
//! | `run` | a metric of an agent or a trace, in as many parts as needed |
//! | `transcript`, `parts` | a run without repetition, split into prompts |
//! | `plans` | plans with their triggers, and segments between plans |
//! | `topology`, `utc` | the observed calls between agents; the time at which the run began |
//! | `origins` | the spans to whose content a text belongs, if spans of several services repeat it |
//! | `content`, `prompt_page` | untrusted content, cleaned (`measure::sanitize`) and fenced |
//! | `stable_hash` | a hash that is the same in every process, for the marks of fences |
//! | `system`, `form` | the judge's instructions, and the form of its answer |
//! | `outcome` | the last question about a trace: the effect of its failures on the outcome |
//! | `whole_trace` | a baseline: one question about a whole trace |
//! | `opinion`, `quote`, `verdict` | answers read, compared with the content, and combined |
//!
//! # Security
//!
//! Content is untrusted: it is redacted, stripped of invisible characters and control tokens, and
//! fenced by a mark that does not occur in it. Every answer is compared with the content that
//! was shown to the judge: findings on other spans, and findings whose quotations do not occur, are dropped.

use super::table::About;
use super::{Answer, Context, Metric, MetricProgress, Unmeasured};

pub(crate) mod asker;
pub(crate) mod config;
pub(crate) mod content;
pub(crate) mod stable_hash;
pub(crate) mod filter;
pub(crate) mod form;
pub(crate) mod opinion;
mod origins;
pub(crate) mod outcome;
pub(crate) mod links;
pub(crate) mod parts;
pub(crate) mod plans;
pub(crate) mod quote;
pub(crate) mod run;
pub(crate) mod prompt_page;
pub(crate) mod step;
pub(crate) mod surroundings;
pub(crate) mod transcript;
pub(crate) mod system;
pub(crate) mod topology;
mod utc;
pub(crate) mod verdict;
pub(crate) mod whole_trace;

pub(crate) use asker::Asker;

/// A metric that judges answer.
pub(crate) struct JudgedMetric;

impl Metric for JudgedMetric {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        match applicability(context) {
            Err(None) => return MetricProgress::Done(Vec::new()),
            Err(Some(reason)) => return MetricProgress::Done(vec![context.unmeasured(reason)]),
            Ok(()) => {}
        }
        match context.row.about {
            About::Model | About::Tool | About::Call => step::step(context, answers),
            _ => run::step(context, answers),
        }
    }
}

/// Whether the metric applies to the span of `context`. If not, the error is the reason for which the metric is
/// unmeasured, or `None` for no measurement at all. It must be cheap: it is called for every span before anything is
/// rendered.
fn applicability(context: &Context<'_>) -> Result<(), Option<Unmeasured>> {
    match context.row.about {
        About::Model | About::Tool | About::Call => step::applicability(context),
        _ => run::applicability(context).map(|_| ()),
    }
}

#[cfg(test)]
mod tests;
