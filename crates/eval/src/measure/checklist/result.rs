//! The verdict with its questions, in the format of the paper's appendix (003, section 8.3).
//!
//! In: each question with its proofs and its answer. Out: yes, no or unmeasured, and the JSON that
//! is written as `verdict.checklist.items`.

use serde_json::{Value, json};
use verdict_otlp::trace::Idx;

use crate::measure::Unmeasured;
use crate::measure::defects::clip;
use crate::recognise::AgentTrace;

/// Maximum bytes of a proof as written.
const MAX_PROOF_BYTES: usize = 1024;
/// Approximate length of the whole JSON, in bytes.
const MAX_ITEMS_BYTES: usize = 16 * 1024;

/// A passage of the record.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Proof {
    /// The span of the passage.
    pub at: Idx,
    pub text: String,
}

/// A passage of a source other than the record: an asset, or a result of a search.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Citation {
    pub source: String,
    pub quote: String,
}

/// The result of a question.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ItemResult {
    pub question: String,
    /// Passages that support the answer.
    pub proofs: Vec<Proof>,
    /// Passages of sources on which the answer to a question of fact rests.
    pub sources: Box<[Citation]>,
    /// Yes or no, or the reason why the question has no answer.
    pub answer: Result<bool, Unmeasured>,
    pub reason: String,
    /// The decision path: source of the proofs, class of the question, tools used.
    pub path: Vec<String>,
}

impl ItemResult {
    pub(crate) fn new(
        question: &str,
        proofs: Vec<Proof>,
        answer: Result<bool, Unmeasured>,
        reason: impl Into<String>,
        path: Vec<String>,
    ) -> ItemResult {
        let (question, reason) = (question.to_owned(), reason.into());
        ItemResult { question, proofs, sources: Box::default(), answer, reason, path }
    }
}

/// An answer as it is written.
pub(crate) fn label(answer: Result<bool, Unmeasured>) -> &'static str {
    match answer {
        Ok(true) => "yes",
        Ok(false) => "no",
        Err(_) => "unmeasured",
    }
}

/// No if any answer is no; otherwise the reason of the first unmeasured one; otherwise yes.
pub(crate) fn verdict(items: &[ItemResult]) -> Result<bool, Unmeasured> {
    if items.iter().any(|item| item.answer == Ok(false)) {
        return Ok(false);
    }
    match items.iter().find_map(|item| item.answer.err()) {
        Some(reason) => Err(reason),
        None if items.is_empty() => Err(Unmeasured::NotApplicable),
        None => Ok(true),
    }
}

/// The items as JSON. If it would be too long, proofs of the last questions are left out.
pub(crate) fn items_json(trace: &AgentTrace, items: &[ItemResult], final_answer: Option<&str>) -> String {
    let mut remaining = MAX_ITEMS_BYTES;
    let eval: Vec<Value> = items
        .iter()
        .map(|item| {
            let texts = item.proofs.iter().map(|proof| {
                let id = trace.tree.spans.get(proof.at).map(|s| s.id.to_string()).unwrap_or_default();
                format!("span {id}: {}", clip(&proof.text, MAX_PROOF_BYTES))
            });
            let cited = item.sources.iter().map(|cited| format!("source {}: {}", cited.source, cited.quote));
            let texts = texts.chain(cited);
            let proofs = clip(&texts.collect::<Vec<_>>().join("\n"), remaining / 2).to_owned();
            let object = json!({
                "question": item.question,
                "proofs": { "proofs": proofs, "final_answer": clip(final_answer.unwrap_or_default(), MAX_PROOF_BYTES.min(remaining / 4)) },
                "c3_response": {
                    "answer": label(item.answer),
                    "reason": clip(&item.reason, MAX_PROOF_BYTES.min(remaining / 4)),
                    "decision_path": item.path,
                },
            });
            remaining = remaining.saturating_sub(object.to_string().len());
            object
        })
        .collect();
    json!({ "verdict": label(verdict(items)), "eval": eval }).to_string()
}

/// The source of proofs in a decision path.
pub(super) fn proof_source(uses_answer: bool) -> &'static str {
    if uses_answer { "proofs+final_answer" } else { "proofs" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(answer: Result<bool, Unmeasured>) -> ItemResult {
        ItemResult {
            question: "Q?".into(),
            proofs: Vec::new(),
            sources: Box::default(),
            answer,
            reason: "r".into(),
            path: vec!["proofs".into()],
        }
    }

    #[test]
    fn verdict_is_no_if_any_answer_is_no_else_unmeasured_if_any_is() {
        let unknown = Err(Unmeasured::Timeout);
        assert_eq!(verdict(&[item(Ok(true)), item(unknown), item(Ok(false))]), Ok(false));
        assert_eq!(verdict(&[item(Ok(true)), item(unknown)]), Err(Unmeasured::Timeout));
        assert_eq!(verdict(&[item(Ok(true))]), Ok(true));
        assert_eq!(verdict(&[]), Err(Unmeasured::NotApplicable));
    }

    #[test]
    fn items_have_the_papers_format_and_bounded_length() {
        let trace = AgentTrace::default();
        let text = items_json(&trace, &[item(Ok(false))], Some("St. Petersburg"));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["verdict"], "no");
        let one = &value["eval"][0];
        assert_eq!(one["proofs"]["final_answer"], "St. Petersburg");
        assert_eq!(one["c3_response"]["answer"], "no");
        assert_eq!(one["c3_response"]["decision_path"][0], "proofs");
        let mut long = item(Ok(true));
        long.proofs = vec![Proof { at: 0, text: "x".repeat(5000) }; 40];
        let all = vec![long; 50];
        assert!(items_json(&trace, &all, Some(&"y".repeat(9000))).len() < 2 * MAX_ITEMS_BYTES);
    }
}
