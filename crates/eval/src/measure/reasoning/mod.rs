//! `reasoning_integrity` (001, table 1): facts and claims held against what the model had seen.
//!
//! In: an LLM span's output, everything that was said and returned before it in the trace. Out:
//! 1-5. Found: facts of a final answer that nothing supports or that results contradict, claims of
//! work that was not done, calls announced and not made, filters dropped, answers without the work
//! that the plan needs, patches to code that was never read, and calls that repeat a failed one
//! unchanged. Without recorded output: no content; where there was nothing to hold against
//! anything: not applicable.

pub mod adrift;
pub mod announced;
pub mod answer;
pub mod claims;
pub mod contradicted;
pub mod dropped_filter;
pub mod evidence;
pub mod grounds;
pub mod history;
pub mod numbers;
pub mod patched;
mod review;
mod signs;
pub mod unworked;

pub use review::Review;

use super::anchors::{Findings, unmeasured};
use super::{Answer, Measurement, Metric, Need, Reason, Step, View};
use crate::recognise::Content;
use verdict_otlp::trace::Kind;

/// As in its attribute key.
pub const NAME: &str = "reasoning_integrity";

/// See the module.
pub struct ReasoningIntegrity;

impl Metric for ReasoningIntegrity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn need(&self) -> Need {
        Need::Trace
    }

    fn step(&self, view: &View<'_>, _: &[Answer]) -> Step {
        Step::Done(measure(view).into_iter().collect())
    }
}

fn measure(view: &View<'_>) -> Option<Measurement> {
    let reading = view.scene.readings.get(view.at)?;
    if reading.kind != Kind::Llm || reading.wrapper {
        return None;
    }
    let review = Review::get(view.scene, view.memo);
    let judged = review.of_llm.get(&view.at);
    // What later prompts and tool spans tell of an output may convict it; only the output itself
    // can clear it.
    let seen = reading.output_content == Content::Present;
    if let Some(judged) = judged.filter(|j| j.examined && seen || !j.findings.is_empty()) {
        let mut findings = Findings::new();
        judged.findings.iter().cloned().for_each(|f| findings.push(f));
        return Some(findings.scored(view, NAME));
    }
    let unseen = reading.output_content != Content::Present || reading.input_content != Content::Present;
    let reason = if unseen { Reason::NoContent } else { Reason::NotApplicable };
    Some(unmeasured(view.at, NAME, reason))
}

#[cfg(test)]
mod tests;
