//! Anthropic's Messages. The shape of an answer is that of a tool which the model must call: all
//! models and versions of the API can do that.
//!
//! In: [`Asked`]. Out: the request's JSON; a [`Reply`] out of the response's. There are no
//! probabilities of tokens.

use serde_json::{Map, Value, json};

use super::dialect::{Asked, Ended, Reply, Tokens};

/// The request. The rubric is marked for the server's cache: it is the same for all spans.
pub(super) fn write(asked: Asked<'_>) -> Map<String, Value> {
    let Asked { config, prompt, form, again } = asked;
    let message = |role: &str, content: &str| json!({ "role": role, "content": content });
    let mut messages = Vec::new();
    match again {
        None => messages.push(message("user", &prompt.user)),
        Some(again) => match &again.said {
            Some(said) => {
                messages.push(message("user", &prompt.user));
                messages.push(message("assistant", said));
                messages.push(message("user", &again.demand()));
            }
            None => messages.push(message("user", &format!("{}\n\n{}", prompt.user, again.demand()))),
        },
    }
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
    put("model", json!(config.model));
    put("max_tokens", json!(config.max_tokens));
    put("temperature", json!(config.temperature()));
    put(
        "system",
        json!([{ "type": "text", "text": &*prompt.system, "cache_control": { "type": "ephemeral" } }]),
    );
    put("messages", Value::Array(messages));
    let tool = json!({
        "name": form.name,
        "description": "Gives the judgement. The only way to answer.",
        "input_schema": form.schema,
    });
    put("tools", json!([tool]));
    put("tool_choice", json!({ "type": "tool", "name": form.name }));
    body
}

/// The reply in a response.
pub(super) fn read(body: &Value) -> Option<Reply> {
    let blocks = body.get("content")?.as_array()?;
    let called =
        blocks.iter().find(|block| block["type"] == "tool_use").map(|block| block["input"].to_string());
    let said = || blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    let ended = match body["stop_reason"].as_str() {
        Some("max_tokens" | "model_context_window_exceeded") => Ended::Cut,
        Some("refusal") => Ended::Refused,
        _ => Ended::Whole,
    };
    Some(Reply { text: called.unwrap_or_else(said), ended, usage: usage(&body["usage"]), tokens: Vec::new() })
}

/// `input_tokens` leaves out what the cache took part in. What is written to the cache is priced
/// as input; the quarter that it costs more is a rounding of one request in many.
fn usage(usage: &Value) -> Option<Tokens> {
    let of = |key: &str| usage[key].as_u64().unwrap_or(0);
    let input = usage["input_tokens"].as_u64()?.saturating_add(of("cache_creation_input_tokens"));
    Some(Tokens { input, cached: of("cache_read_input_tokens"), output: of("output_tokens") })
}
