//! Cross-encoders behind `/rerank`, as llama.cpp, vLLM, TEI, Jina and Cohere serve them: how well
//! each text fits a query.
//!
//! In: [`Asked`] whose first text is the query and whose second is a JSON array of texts. Out: the
//! request's JSON; a [`Reply`] whose text is `{"scores": [...]}` in the order of the texts.

use serde_json::{Map, Value, json};

use super::dialect::{Asked, Ended, Reply, Tokens};

/// The request.
pub(super) fn write(asked: Asked<'_>) -> Map<String, Value> {
    let Asked { config, prompt, .. } = asked;
    let texts: Vec<String> = serde_json::from_str(&prompt.user).unwrap_or_default();
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(config.model));
    body.insert("query".to_owned(), json!(&*prompt.system));
    body.insert("top_n".to_owned(), json!(texts.len()));
    body.insert("documents".to_owned(), json!(texts));
    body
}

/// The reply in a response. Results come best first, each with the index of its text.
pub(super) fn read(body: &Value) -> Option<Reply> {
    let results = body.get("results")?.as_array()?;
    let mut scores = vec![None; results.len()];
    for result in results {
        let index = usize::try_from(result["index"].as_u64()?).ok()?;
        *scores.get_mut(index)? = Some(result["relevance_score"].as_f64()?);
    }
    // Every text has a score, or the answer is of another question.
    let scores: Vec<f64> = scores.into_iter().collect::<Option<_>>()?;
    let text = json!({ "scores": scores }).to_string();
    let counted = &body["usage"];
    let usage = counted["total_tokens"].as_u64().map(|input| Tokens { input, ..Tokens::default() });
    Some(Reply { text, ended: Ended::Whole, usage, tokens: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_come_in_the_order_of_the_texts() {
        let body = json!({ "results": [
            { "index": 1, "relevance_score": 4.5 }, { "index": 0, "relevance_score": -2.0 } ],
            "usage": { "total_tokens": 12 } });
        let reply = read(&body).unwrap();
        assert_eq!(reply.text, r#"{"scores":[-2.0,4.5]}"#);
        assert_eq!(reply.usage.map(Tokens::total), Some(12));
    }

    #[test]
    fn an_answer_that_leaves_a_text_out_or_names_one_twice_is_none() {
        for results in [
            json!([{ "index": 2, "relevance_score": 1.0 }, { "index": 0, "relevance_score": 1.0 }]),
            json!([{ "index": 0, "relevance_score": 1.0 }, { "index": 0, "relevance_score": 1.0 }]),
            json!([{ "index": 0 }]),
        ] {
            assert_eq!(read(&json!({ "results": results })), None, "{results}");
        }
        assert_eq!(read(&json!({ "choices": [] })), None);
    }
}
