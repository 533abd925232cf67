//! Chat completions, as OpenAI has them and most servers take them.
//!
//! In: [`Asked`]. Out: the request's JSON; a [`Reply`] out of the response's.

use serde_json::{Map, Value, json};

use super::config::Format;
use super::dialect::{Asked, Ended, Reply, Token, Tokens, in_words};

/// Choices asked for at each token: scores of five values, each with and without a space before
/// it. Servers allow 20 at most.
const CHOICES: u32 = 10;

/// The request.
pub(super) fn write(asked: Asked<'_>) -> Map<String, Value> {
    let Asked { config, form, .. } = asked;
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
    put("model", json!(config.model));
    put("messages", messages(asked));
    put("max_tokens", json!(config.max_tokens));
    put("temperature", json!(config.temperature()));
    match config.format {
        Format::Schema => put(
            "response_format",
            json!({
                "type": "json_schema",
                "json_schema": { "name": form.name, "strict": true, "schema": form.schema },
            }),
        ),
        Format::Object => put("response_format", json!({ "type": "json_object" })),
        Format::Text => {}
    }
    if config.logprobs && form.score.is_some() {
        put("logprobs", json!(true));
        put("top_logprobs", json!(CHOICES));
    }
    body
}

fn messages(asked: Asked<'_>) -> Value {
    let Asked { config, prompt, form, again } = asked;
    let mut system = prompt.system.to_string();
    if config.format != Format::Schema {
        system.push_str(&in_words(form));
    }
    let message = |role: &str, content: &str| json!({ "role": role, "content": content });
    let mut all = vec![message("system", &system)];
    match again {
        None => all.push(message("user", &prompt.user)),
        Some(again) => match &again.said {
            Some(said) => {
                all.push(message("user", &prompt.user));
                all.push(message("assistant", said));
                all.push(message("user", &again.demand()));
            }
            // Chat templates want turns to alternate.
            None => all.push(message("user", &format!("{}\n\n{}", prompt.user, again.demand()))),
        },
    }
    Value::Array(all)
}

/// The reply in a response.
pub(super) fn read(body: &Value) -> Option<Reply> {
    let choice = body.get("choices")?.get(0)?;
    let message = choice.get("message")?;
    let text = text(&message["content"]);
    let refused = message["refusal"].as_str().is_some_and(|said| !said.is_empty());
    let ended = match choice["finish_reason"].as_str() {
        _ if refused => Ended::Refused,
        Some("length") => Ended::Cut,
        Some("content_filter") => Ended::Refused,
        _ => Ended::Whole,
    };
    let tokens = choice["logprobs"]["content"].as_array().map(|all| all.iter().map(token).collect());
    Some(Reply { text, ended, usage: usage(&body["usage"]), tokens: tokens.unwrap_or_default() })
}

/// A string, or parts with text.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// `prompt_tokens` counts cached ones too.
fn usage(usage: &Value) -> Option<Tokens> {
    let prompt = usage["prompt_tokens"].as_u64()?;
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0).min(prompt);
    let output = usage["completion_tokens"].as_u64().unwrap_or(0);
    Some(Tokens { input: prompt - cached, cached, output })
}

fn token(token: &Value) -> Token {
    let text = token["token"].as_str().unwrap_or_default();
    let choice = |one: &Value| Some((one["token"].as_str()?.to_owned(), one["logprob"].as_f64()?));
    let mut choices: Vec<(String, f64)> = token["top_logprobs"]
        .as_array()
        .map(|all| all.iter().filter_map(choice).collect())
        .unwrap_or_default();
    if choices.is_empty() {
        choices.extend(choice(token));
    }
    let byte = |one: &Value| one.as_u64().and_then(|byte| u8::try_from(byte).ok());
    let bytes = token["bytes"].as_array().map(|all| all.iter().filter_map(byte).collect());
    Token { bytes: bytes.unwrap_or_else(|| text.as_bytes().to_vec()), choices }
}
