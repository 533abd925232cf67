//! OpenAI's chat completions API, which most servers implement.

use serde_json::{Map, Value, json};

use crate::config::Format;
use crate::dialect::Dialect;
use crate::provider::{FinishReason, JudgeRequest, Reply, Token, TokenCount};
use crate::request_shape::{Reasoning, TokenLimit};

/// Alternatives requested per token: five scores, each with and without a leading space. Servers allow at
/// most 20.
const TOP_LOGPROBS: u32 = 10;

#[derive(Debug)]
pub(super) struct OpenAi;

impl Dialect for OpenAi {
    fn name(&self) -> &str {
        "openai"
    }

    fn path(&self) -> &str {
        "/chat/completions"
    }

    fn write(&self, request: &JudgeRequest<'_>) -> Map<String, Value> {
        let JudgeRequest { config, form, shape, .. } = request;
        let mut body = Map::new();
        let mut insert = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
        insert("model", json!(config.model));
        insert("messages", messages(request));
        let limit = match shape.token_limit {
            TokenLimit::MaxTokens => "max_tokens",
            TokenLimit::MaxCompletionTokens => "max_completion_tokens",
        };
        insert(limit, json!(request.token_limit()));
        if shape.temperature {
            insert("temperature", json!(config.temperature()));
        }
        if let Reasoning::Effort(effort) | Reasoning::Budget(effort) = shape.reasoning {
            insert("reasoning_effort", json!(effort.as_str()));
        }
        match shape.format {
            Format::Schema => insert(
                "response_format",
                json!({
                    "type": "json_schema",
                    "json_schema": { "name": form.name, "strict": shape.strict, "schema": form.schema },
                }),
            ),
            Format::Object => insert("response_format", json!({ "type": "json_object" })),
            Format::Text => {}
        }
        if shape.logprobs && form.score.is_some() {
            insert("logprobs", json!(true));
            insert("top_logprobs", json!(TOP_LOGPROBS));
        }
        body
    }

    fn read(&self, body: &Value) -> Option<Reply> {
        let choice = body.get("choices")?.get(0)?;
        let message = choice.get("message")?;
        let text = text(&message["content"]);
        let refused = message["refusal"].as_str().is_some_and(|refusal| !refusal.is_empty());
        let finish = match choice["finish_reason"].as_str() {
            _ if refused => FinishReason::Refused,
            Some("length") => FinishReason::Length,
            Some("content_filter") => FinishReason::Refused,
            _ => FinishReason::Complete,
        };
        let tokens = choice["logprobs"]["content"].as_array().map(|all| all.iter().map(token).collect());
        Some(Reply { text, finish, usage: usage(&body["usage"]), tokens: tokens.unwrap_or_default() })
    }
}

fn messages(request: &JudgeRequest<'_>) -> Value {
    let mut system = request.prompt.system.to_string();
    if request.shape.format != Format::Schema {
        system.push_str(&request.schema_instruction());
    }
    let turns = [("system", system)].into_iter().chain(request.turns());
    turns.map(|(role, content)| json!({ "role": role, "content": content })).collect()
}

/// The text of a content, which is a string or a list of parts.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// `prompt_tokens` includes cached tokens.
fn usage(usage: &Value) -> Option<TokenCount> {
    let prompt = usage["prompt_tokens"].as_u64()?;
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0).min(prompt);
    let output = usage["completion_tokens"].as_u64().unwrap_or(0);
    Some(TokenCount { input: prompt - cached, cached, output, ..TokenCount::default() })
}

fn token(token: &Value) -> Token {
    let text = token["token"].as_str().unwrap_or_default();
    let choice = |one: &Value| Some((one["token"].as_str()?.to_owned(), one["logprob"].as_f64()?));
    let top = token["top_logprobs"].as_array().into_iter().flatten();
    let mut alternatives: Vec<(String, f64)> = top.filter_map(choice).collect();
    if alternatives.is_empty() {
        alternatives.extend(choice(token));
    }
    let byte = |one: &Value| one.as_u64().and_then(|byte| u8::try_from(byte).ok());
    let bytes = token["bytes"].as_array().map(|all| all.iter().filter_map(byte).collect());
    Token { bytes: bytes.unwrap_or_else(|| text.as_bytes().to_vec()), alternatives }
}
