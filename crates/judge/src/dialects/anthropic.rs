//! Anthropic's Messages API. The schema of the answer is that of a tool that the model must call. A model that thinks
//! cannot be forced to call one and takes no temperature (both are documented): it is offered the tool, and a text
//! that contains the answer is accepted as well. The API returns no probabilities of tokens.

use serde_json::{Map, Value, json};
use verdict_config::Secret;

use crate::config::ReasoningEffort;
use crate::dialect::Dialect;
use crate::provider::{FinishReason, JudgeRequest, Reply, TokenCount};
use crate::request_shape::Reasoning;

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
        let JudgeRequest { config, prompt, form, shape, .. } = request;
        let thinks = !matches!(shape.reasoning, Reasoning::Unset | Reasoning::Effort(ReasoningEffort::None));
        let forced = shape.forced_tool && !thinks;
        let turns = request.turns().into_iter();
        let messages = turns.map(|(role, content)| json!({ "role": role, "content": content }));
        let mut body = Map::new();
        let mut insert = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
        insert("model", json!(config.model));
        insert("max_tokens", json!(request.token_limit()));
        if shape.temperature && !thinks {
            insert("temperature", json!(config.temperature()));
        }
        match shape.reasoning {
            Reasoning::Effort(effort) if thinks => {
                insert("thinking", json!({ "type": "adaptive" }));
                insert("output_config", json!({ "effort": adaptive_effort(effort) }));
            }
            Reasoning::Budget(effort) if thinks => {
                insert("thinking", json!({ "type": "enabled", "budget_tokens": effort.tokens() }));
            }
            _ => {}
        }
        let system = match forced {
            true => prompt.system.to_string(),
            false => {
                format!("{}\n\nGive your answer only by calling the tool `{}`.", prompt.system, form.name)
            }
        };
        insert(
            "system",
            json!([{ "type": "text", "text": system, "cache_control": { "type": "ephemeral" } }]),
        );
        insert("messages", messages.collect());
        let tool = json!({
            "name": form.name,
            "description": "Gives the judgement. The only way to answer.",
            "input_schema": form.schema,
        });
        insert("tools", json!([tool]));
        let choice = match forced {
            true => json!({ "type": "tool", "name": form.name }),
            false => json!({ "type": "auto" }),
        };
        insert("tool_choice", choice);
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

/// The API has no effort below `low`, and its own name for the highest.
fn adaptive_effort(effort: ReasoningEffort) -> &'static str {
    match effort {
        ReasoningEffort::None | ReasoningEffort::Minimal | ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Xhigh => "xhigh",
        ReasoningEffort::Max => "max",
    }
}

/// `input_tokens` excludes tokens that were read from or written to the cache.
fn usage(usage: &Value) -> Option<TokenCount> {
    let token_count = |key: &str| usage[key].as_u64().unwrap_or(0);
    Some(TokenCount {
        input: usage["input_tokens"].as_u64()?,
        cached: token_count("cache_read_input_tokens"),
        cache_write: token_count("cache_creation_input_tokens"),
        output: token_count("output_tokens"),
    })
}
