//! Anthropic's Messages API. The schema of the answer is that of a tool that the model must call, which all
//! models and versions of the API support. The API returns no probabilities of tokens.

use serde_json::{Map, Value, json};
use verdict_config::Secret;

use crate::dialect::Dialect;
use crate::provider::{FinishReason, JudgeRequest, Reply, TokenCount};

#[derive(Debug)]
pub(super) struct Anthropic;

impl Dialect for Anthropic {
    fn name(&self) -> &str {
        "anthropic"
    }

    fn path(&self) -> &str {
        "/messages"
    }

    fn headers(&self) -> &[(&str, &str)] {
        &[("anthropic-version", "2023-06-01")]
    }

    fn auth(&self, key: &Secret) -> (String, Secret) {
        ("x-api-key".to_owned(), key.clone())
    }

    /// The system prompt is marked for the server's cache, since it is the same for all spans.
    fn write(&self, request: &JudgeRequest<'_>) -> Map<String, Value> {
        let JudgeRequest { config, prompt, form, .. } = request;
        let turns = request.turns().into_iter();
        let messages = turns.map(|(role, content)| json!({ "role": role, "content": content }));
        let mut body = Map::new();
        let mut put = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
        put("model", json!(config.model));
        put("max_tokens", json!(config.max_tokens));
        put("temperature", json!(config.temperature()));
        put(
            "system",
            json!([{ "type": "text", "text": &*prompt.system, "cache_control": { "type": "ephemeral" } }]),
        );
        put("messages", messages.collect());
        let tool = json!({
            "name": form.name,
            "description": "Gives the judgement. The only way to answer.",
            "input_schema": form.schema,
        });
        put("tools", json!([tool]));
        put("tool_choice", json!({ "type": "tool", "name": form.name }));
        body
    }

    fn read(&self, body: &Value) -> Option<Reply> {
        let blocks = body.get("content")?.as_array()?;
        let call = blocks.iter().find(|block| block["type"] == "tool_use");
        let prose = || blocks.iter().filter_map(|block| block["text"].as_str()).collect();
        let text = call.map_or_else(prose, |block| block["input"].to_string());
        let finish = match body["stop_reason"].as_str() {
            Some("max_tokens" | "model_context_window_exceeded") => FinishReason::Length,
            Some("refusal") => FinishReason::Refused,
            _ => FinishReason::Complete,
        };
        Some(Reply { text, finish, usage: usage(&body["usage"]), tokens: Vec::new() })
    }
}

/// `input_tokens` excludes tokens that were read from or written to the cache. Written tokens are priced
/// as input; their surcharge of a quarter is neglected, since few requests write to the cache.
fn usage(usage: &Value) -> Option<TokenCount> {
    let of = |key: &str| usage[key].as_u64().unwrap_or(0);
    let input = usage["input_tokens"].as_u64()?.saturating_add(of("cache_creation_input_tokens"));
    Some(TokenCount { input, cached: of("cache_read_input_tokens"), output: of("output_tokens") })
}
