//! Questions for the unit and integration tests of this crate.

use std::sync::Arc;

use serde_json::json;
use verdict_eval::questions::{AnswerForm, Prompt, Question, ScoreField};

/// A rationale and a score of 1 to 5.
pub(super) fn form() -> AnswerForm {
    AnswerForm {
        name: "verdict",
        schema: json!({
            "type": "object",
            "properties": {
                "rationale": { "type": "string" },
                "score": { "type": "integer", "enum": [1, 2, 3, 4, 5] },
            },
            "required": ["rationale", "score"],
            "additionalProperties": false,
        }),
        score: Some(ScoreField { key: "score", values: vec![1, 2, 3, 4, 5] }),
    }
}

/// A question with that form.
pub(super) fn question(key: &str, system: &str, user: &str) -> Question {
    let prompt = Prompt::new(system, user);
    Question { key: key.to_owned(), prompt, form: Arc::new(form()), judges: Vec::new() }
}
