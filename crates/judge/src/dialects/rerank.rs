//! The `/rerank` API of cross-encoders (llama.cpp, vLLM, TEI, Jina, Cohere): the relevance of each text to
//! a query. The system prompt is the query, and the user prompt a JSON array of texts. The text of the
//! reply is `{"scores": [...]}` in the order of the texts.

use serde_json::{Map, Value, json};

use crate::dialect::Dialect;
use crate::provider::{JudgeRequest, Reply, TokenCount};

#[derive(Debug)]
pub(super) struct Rerank;

impl Dialect for Rerank {
    fn name(&self) -> &str {
        "rerank"
    }

    fn path(&self) -> &str {
        "/rerank"
    }

    fn write(&self, request: &JudgeRequest<'_>) -> Map<String, Value> {
        let JudgeRequest { config, prompt, .. } = request;
        let texts: Vec<String> = serde_json::from_str(&prompt.user).unwrap_or_default();
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(config.model));
        body.insert("query".to_owned(), json!(&*prompt.system));
        body.insert("top_n".to_owned(), json!(texts.len()));
        body.insert("documents".to_owned(), json!(texts));
        body
    }

    /// Results are sorted by relevance, each with the index of its text.
    fn read(&self, body: &Value) -> Option<Reply> {
        let results = body.get("results")?.as_array()?;
        let mut scores = vec![None; results.len()];
        for result in results {
            let index = usize::try_from(result["index"].as_u64()?).ok()?;
            *scores.get_mut(index)? = Some(result["relevance_score"].as_f64()?);
        }
        // A reply in which a text has no score is not usable.
        let scores: Vec<f64> = scores.into_iter().collect::<Option<_>>()?;
        let usage = body["usage"]["total_tokens"].as_u64();
        let usage = usage.map(|input| TokenCount { input, ..TokenCount::default() });
        Some(Reply { usage, ..Reply::complete(json!({ "scores": scores }).to_string()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_in_the_order_of_the_texts() {
        let body = json!({ "results": [
            { "index": 1, "relevance_score": 4.5 }, { "index": 0, "relevance_score": -2.0 } ],
            "usage": { "total_tokens": 12 } });
        let reply = Rerank.read(&body).unwrap();
        assert_eq!(reply.text, r#"{"scores":[-2.0,4.5]}"#);
        assert_eq!(reply.usage.map(TokenCount::total), Some(12));
    }

    #[test]
    fn a_reply_with_a_missing_or_duplicate_index_is_rejected() {
        for results in [
            json!([{ "index": 2, "relevance_score": 1.0 }, { "index": 0, "relevance_score": 1.0 }]),
            json!([{ "index": 0, "relevance_score": 1.0 }, { "index": 0, "relevance_score": 1.0 }]),
            json!([{ "index": 0 }]),
        ] {
            assert_eq!(Rerank.read(&json!({ "results": results })), None, "{results}");
        }
        assert_eq!(Rerank.read(&json!({ "choices": [] })), None);
    }
}
