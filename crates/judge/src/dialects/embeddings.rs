//! The `/embeddings` API (OpenAI, llama.cpp, vLLM, TEI): how alike texts are by their meaning. The user prompt is
//! a JSON array of texts. The text of the reply is `{"cosines": [...]}`: the cosine of each pair of texts, the
//! first with the second, the first with the third, and so on. The vectors themselves, several KiB each, are
//! neither cached nor recorded.

use serde_json::{Map, Value, json};

use crate::dialect::Dialect;
use crate::provider::{JudgeRequest, Reply, TokenCount};

#[derive(Debug)]
pub(super) struct Embeddings;

impl Dialect for Embeddings {
    fn name(&self) -> &str {
        "embeddings"
    }

    fn path(&self) -> &str {
        "/embeddings"
    }

    fn write(&self, request: &JudgeRequest<'_>) -> Map<String, Value> {
        let texts: Vec<String> = serde_json::from_str(&request.prompt.user).unwrap_or_default();
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(request.config.model));
        body.insert("input".to_owned(), json!(texts));
        body.insert("encoding_format".to_owned(), json!("float"));
        body
    }

    /// Vectors have the index of their text, in any order.
    fn read(&self, body: &Value) -> Option<Reply> {
        let data = body.get("data")?.as_array()?;
        let mut vectors: Vec<Option<Vec<f64>>> = vec![None; data.len()];
        for item in data {
            let index = usize::try_from(item["index"].as_u64()?).ok()?;
            let vector = item["embedding"].as_array()?.iter().map(Value::as_f64).collect::<Option<_>>()?;
            *vectors.get_mut(index)? = Some(vector);
        }
        let vectors: Vec<Vec<f64>> = vectors.into_iter().collect::<Option<_>>()?;
        let pairs = (0..vectors.len()).flat_map(|i| (i + 1..vectors.len()).map(move |j| (i, j)));
        let cosines: Vec<f64> =
            pairs.map(|(i, j)| cosine(&vectors[i], &vectors[j])).collect::<Option<_>>()?;
        let usage = body["usage"]["total_tokens"].as_u64();
        let usage = usage.map(|input| TokenCount { input, ..TokenCount::default() });
        Some(Reply { usage, ..Reply::complete(json!({ "cosines": cosines }).to_string()) })
    }
}

/// `None` for vectors of different lengths or without a direction.
fn cosine(a: &[f64], b: &[f64]) -> Option<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    (a.len() == b.len() && cosine.is_finite()).then(|| cosine.clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(index: u64, values: &[f64]) -> Value {
        json!({ "index": index, "embedding": values })
    }

    #[test]
    fn cosines_are_in_the_order_of_the_pairs() {
        let data = [vector(2, &[0.0, 2.0]), vector(0, &[1.0, 0.0]), vector(1, &[3.0, 4.0])];
        let body = json!({ "data": data, "usage": { "total_tokens": 12 } });
        let reply = Embeddings.read(&body).unwrap();
        assert_eq!(reply.text, r#"{"cosines":[0.6,0.0,0.8]}"#);
        assert_eq!(reply.usage.map(TokenCount::total), Some(12));
    }

    #[test]
    fn a_reply_with_a_missing_index_or_a_vector_of_another_length_is_rejected() {
        for data in [
            json!([vector(0, &[1.0]), vector(0, &[1.0])]),
            json!([vector(0, &[1.0]), vector(2, &[1.0])]),
            json!([vector(0, &[1.0]), vector(1, &[1.0, 2.0])]),
            json!([vector(0, &[0.0]), vector(1, &[1.0])]),
            json!([vector(0, &[1.0]), { "index": 1, "embedding": ["1"] }]),
        ] {
            assert_eq!(Embeddings.read(&json!({ "data": data })), None, "{data}");
        }
        assert_eq!(Embeddings.read(&json!({ "results": [] })), None);
    }
}
