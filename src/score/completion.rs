//! Whether tasks were completed, compared with people (003, section 4.2): the checklist, the verdict of the trace, and
//! a plain judge.
//!
//! In: the answers of each rater about traces with a labelled outcome. Out: accuracy, precision, recall, specificity
//! and Cohen's kappa, with "completed" as the positive class.

use serde::Serialize;

use super::counts::Confusion;
use super::labels::{Expected, TraceLabels};
use super::metrics::ScoredTrace;

/// The agreement of one rater with people.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CompletionAgreement {
    #[serde(rename = "by")]
    pub rater: &'static str,
    #[serde(flatten)]
    pub counts: Confusion,
    /// Traces with a labelled outcome about which the rater gave no answer.
    pub unmeasured: usize,
}

impl CompletionAgreement {
    /// `answer` returns whether a rater considers the task of a labelled trace completed; `None` without
    /// an answer.
    pub fn from_answers(
        rater: &'static str,
        pairs: &[(&ScoredTrace, &TraceLabels)],
        answer: impl Fn(usize, &ScoredTrace) -> Option<bool>,
    ) -> CompletionAgreement {
        let mut out = CompletionAgreement { rater, counts: Confusion::default(), unmeasured: 0 };
        for (i, (trace, labels)) in pairs.iter().enumerate() {
            let Some(expected) = labels.expected else { continue };
            match answer(i, trace) {
                Some(completed) => out.counts.count(completed, expected == Expected::Pass),
                None => out.unmeasured += 1,
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_without_an_answer_are_counted_as_unmeasured() {
        let trace = |completed| ScoredTrace { completed, ..ScoredTrace::default() };
        let label = |expected| TraceLabels { expected, ..TraceLabels::default() };
        let (pass, fail) = (Some(Expected::Pass), Some(Expected::Fail));
        let cases = [
            (trace(Some(true)), label(pass)),
            (trace(Some(false)), label(pass)),
            (trace(Some(false)), label(fail)),
            (trace(None), label(fail)),
            (trace(Some(true)), label(None)),
        ];
        let pairs: Vec<(&ScoredTrace, &TraceLabels)> =
            cases.iter().map(|(trace, label)| (trace, label)).collect();
        let agreement =
            CompletionAgreement::from_answers("checklist.verdict", &pairs, |_, trace| trace.completed);
        assert_eq!(agreement.counts, Confusion { tp: 1, fp: 0, fn_: 1, tn: 1 });
        assert_eq!((agreement.unmeasured, agreement.counts.specificity()), (1, 1.0));
    }
}
