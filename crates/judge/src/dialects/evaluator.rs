//! Evaluators: programs that get the outline of a span, a run or a trace and answer with a value
//! (`verdict.evaluators`).
//!
//! The user prompt is the request of `verdict_eval::evaluators`, which is sent as the body, and the body of the answer
//! is the text of the reply. Both are JSON with a shipped schema.

use serde_json::{Map, Value, json};

use crate::dialect::Dialect;
use crate::provider::{JudgeRequest, Reply, TokenCount};

/// The dialect of the judges that answer `verdict.evaluators`.
pub const EVALUATOR: &str = "evaluator";

#[derive(Debug)]
pub(super) struct EvaluatorDialect;

impl Dialect for EvaluatorDialect {
    fn name(&self) -> &str {
        EVALUATOR
    }

    /// The endpoint is the whole URL.
    fn path(&self) -> &str {
        ""
    }

    fn write(&self, request: &JudgeRequest<'_>) -> Map<String, Value> {
        let mut body: Map<String, Value> = serde_json::from_str(&request.prompt.user).unwrap_or_default();
        body.insert("model".to_owned(), json!(request.config.model));
        if let Some(correction) = request.correction {
            body.insert("correction".to_owned(), json!(correction.fault));
        }
        body
    }

    fn read(&self, body: &Value) -> Option<Reply> {
        let mut answer = body.as_object()?.clone();
        let usage = match answer.shift_remove("usage").filter(|usage| !usage.is_null()) {
            Some(usage) => {
                let count = |key: &str| usage.get(key).and_then(Value::as_u64);
                let (input, output) = (count("input_tokens")?, count("output_tokens")?);
                Some(TokenCount { input, output, ..TokenCount::default() })
            }
            None => None,
        };
        Some(Reply { usage, ..Reply::complete(Value::Object(answer).to_string()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_an_object_whose_usage_has_both_counts() {
        let reply =
            EvaluatorDialect.read(&json!({ "score": 3, "usage": { "input_tokens": 7, "output_tokens": 1 } }));
        let reply = reply.unwrap();
        assert_eq!((reply.text.as_str(), reply.usage.map(TokenCount::total)), (r#"{"score":3}"#, Some(8)));
        assert_eq!(EvaluatorDialect.read(&json!({ "score": 3 })).unwrap().usage, None);
        for body in
            [json!([1]), json!("score: 3"), json!({ "usage": { "input_tokens": -1, "output_tokens": 0 } })]
        {
            assert_eq!(EvaluatorDialect.read(&body), None, "{body}");
        }
    }
}
