//! The forms of a checklist's questions, and the count of the opinions in them.
//!
//! In: the pieces shown, and the tools and sources that may be used. Out: JSON schemas of answers; of several opinions,
//! the answer of the majority.

use std::sync::Arc;

use serde_json::{Value, json};

use super::tools;
use crate::measure::question::object_schema;
use crate::measure::{AnswerForm, Opinion, Unmeasured};

/// The form of a judge's reading of the pieces with these ids: the class of the question, the passages, and whether
/// they suffice.
pub(super) fn perceive_form(pieces: &[String]) -> Arc<AnswerForm> {
    let piece = json!({ "type": "string", "enum": pieces });
    let passage = object_schema(json!({ "piece": piece, "quote": { "type": "string" } }));
    let fields = json!({
        "thought": { "type": "string" },
        "class": { "type": "string", "enum": ["factual", "reasoning", "coding"] },
        "passages": { "type": "array", "items": passage },
        "final_answer": { "type": "string", "enum": ["yes", "no"] },
        "sufficient": { "type": "string", "enum": ["yes", "no"] },
    });
    AnswerForm::object("perceive", fields)
}

/// The form of an answer, or of a call of a tool before it; with the tool that runs code if `with_code`.
pub(super) fn answer_form(with_code: bool) -> Arc<AnswerForm> {
    let tools = ["none", "calculator", "read_span", "json_query"];
    let tools: Vec<&str> = tools.into_iter().chain(with_code.then_some(tools::RUN_CODE)).collect();
    let fields = json!({
        "reason": { "type": "string" },
        "tool": { "type": "string", "enum": tools },
        "input": { "type": "string" },
        "answer": { "type": "string", "enum": ["yes", "no", "unclear"] },
    });
    AnswerForm::object("checked", fields)
}

/// As [`answer_form`], with the passages of sources; without tools for a judge that searches.
pub(super) fn source_form(with_tools: bool) -> Arc<AnswerForm> {
    let cited = object_schema(json!({ "source": { "type": "string" }, "quote": { "type": "string" } }));
    let mut fields = json!({
        "reason": { "type": "string" },
        "cited": { "type": "array", "items": cited },
    });
    if with_tools {
        fields["tool"] =
            json!({ "type": "string", "enum": ["none", "calculator", "read_span", "json_query"] });
        fields["input"] = json!({ "type": "string" });
    }
    fields["answer"] = json!({ "type": "string", "enum": ["yes", "no", "unclear"] });
    AnswerForm::object(if with_tools { "sourced" } else { "searched" }, fields)
}

/// The answer of an opinion: `yes`, `no` or `unclear`.
pub(super) fn answer_word(opinion: &Opinion) -> Option<&str> {
    opinion.value.get("answer").and_then(Value::as_str)
}

/// The answer of more than half of the opinions, and an explanation if it needs one. A yes or no for which `counts` is
/// false is unclear. Without a majority the answer is a judge error, and the explanation lists the votes.
pub(super) fn majority(
    opinions: &[Opinion],
    counts: impl Fn(&Opinion) -> bool,
) -> (Result<bool, Unmeasured>, Option<String>) {
    let votes = |word: &str| opinions.iter().filter(|o| answer_word(o) == Some(word) && counts(o)).count();
    let (yes_count, no_count, all) = (votes("yes"), votes("no"), opinions.len());
    let decided = opinions.iter().filter(|o| matches!(answer_word(o), Some("yes" | "no"))).count();
    let unclear = opinions.iter().filter(|o| answer_word(o) == Some("unclear")).count() + decided
        - yes_count
        - no_count;
    let uncited = decided - yes_count - no_count;
    match (yes_count * 2 > all, no_count * 2 > all, unclear * 2 > all) {
        (true, _, _) => (Ok(true), None),
        (_, true, _) => (Ok(false), None),
        (_, _, true) if uncited > 0 => {
            let reason = "an answer was given without a passage of a source that has it".to_owned();
            (Err(Unmeasured::NotApplicable), Some(reason))
        }
        (_, _, true) => (Err(Unmeasured::NotApplicable), None),
        _ => {
            let explanation = format!(
                "no majority: of {all} judges {yes_count} answered yes, {no_count} no, {unclear} unclear"
            );
            (Err(Unmeasured::JudgeError), Some(explanation))
        }
    }
}
