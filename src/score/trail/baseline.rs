//! Predictions of a judge that read a whole trace in one question (paper 001, section 4.2).
//!
//! In: a trace and the judge's answer. Out: the reported errors in the benchmark's shape, at the spans that the judge
//! named. They are scored unchanged.

use verdict_eval::baseline;
use verdict_eval::questions::Answer;
use verdict_eval::trace::AgentTrace;

use super::annotation::{Annotation, Annotations, impact};

/// The name of a category that is none of the taxonomy.
const NO_CATEGORY: &str = "None";

/// The predictions in an answer, and the number of errors at no span of the trace; `None` without an answer.
pub fn read_prediction(trace: &AgentTrace, answer: &Answer) -> Option<(Annotations, usize)> {
    let opinion = answer.opinions.as_ref().ok()?.first()?;
    let (errors, unknown_spans) = baseline::read(trace, &opinion.value);
    let errors = errors.into_iter().map(|error| Annotation {
        category: error.category.map_or(NO_CATEGORY, |category| category.as_str()).to_owned(),
        location: trace.tree.spans.get(error.at).map(|span| span.id.to_string()).unwrap_or_default(),
        evidence: error.quote,
        description: error.problem,
        impact: impact(error.severity),
    });
    let prediction = Annotations {
        trace: Some(trace.tree.id.to_string()),
        errors: errors.collect(),
        ..Annotations::default()
    };
    Some((prediction, unknown_spans))
}
