//! `reasoning_integrity` (001, table 1): facts and claims held against what the model had seen.
//!
//! In: an LLM span's output, everything that was said and returned before it in the trace. Out:
//! 1-5. Found: facts of a final answer that nothing supports or that results contradict, claims of
//! work that was not done, calls announced and not made, filters dropped, answers without the work
//! that the plan needs, patches to code that was never read, and calls that repeat a failed one
//! unchanged. Without recorded output: no content; where there was nothing to hold against
//! anything: not applicable.

pub(crate) mod no_progress;
pub(crate) mod missing_announced_call;
pub(crate) mod answer;
mod answer_span;
pub(crate) mod claims;
pub(crate) mod contradicted;
pub(crate) mod dropped_filter;
pub(crate) mod evidence;
pub(crate) mod unsupported_facts;
pub(crate) mod history;
pub(crate) mod numbers;
pub(crate) mod invented_patch_context;
mod review;
mod prefilter;
pub(crate) mod skipped_lookups;

pub(crate) use review::Review;
use verdict_otlp::trace::Kind;

use super::defects::{Findings, unmeasured};
use super::{Answer, Context, Measurement, Metric, Step, Unmeasured};
use crate::recognise::Content;

pub(crate) const NAME: &str = "reasoning_integrity";

pub(crate) struct ReasoningIntegrity;

impl Metric for ReasoningIntegrity {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> Step {
        Step::Done(measure(context).into_iter().collect())
    }
}

fn measure(context: &Context<'_>) -> Option<Measurement> {
    let view = context.trace.views.get(context.at)?;
    if view.kind != Kind::Llm || view.wrapper {
        return None;
    }
    let review = Review::get(context.trace, context.memo);
    let entry = review.of_llm.get(&context.at);
    // What later prompts and tool spans tell of an output may convict it; only the output itself
    // can clear it.
    let seen = view.output_content == Content::Present;
    if let Some(entry) = entry.filter(|j| j.examined && seen || !j.findings.is_empty()) {
        let mut findings = Findings::new();
        entry.findings.iter().cloned().for_each(|f| findings.push(f));
        return Some(findings.scored(context, NAME));
    }
    let unseen = view.output_content != Content::Present || view.input_content != Content::Present;
    let reason = if unseen { Unmeasured::NoContent } else { Unmeasured::NotApplicable };
    Some(unmeasured(context.at, NAME, reason))
}

#[cfg(test)]
mod tests;
