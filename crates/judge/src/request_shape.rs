//! The optional parts of a request, without the parts that a server has refused.
//!
//! In: the configuration of a judge, and the message with which a server refused a request. Out: a
//! [`RequestShape`] without the refused part. Servers with the same API accept different parameters: reasoning
//! models of OpenAI accept neither `max_tokens` nor a temperature, Anthropic's models accept no forced tool while
//! they think, and many servers enforce no schema. After the first refusal, all later requests of the
//! process have the accepted shape.

use crate::config::{Format, JudgeConfig, ReasoningEffort};

/// The key of the limit on the tokens of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenLimit {
    MaxTokens,
    /// Reasoning models of OpenAI. Their limit includes the tokens of the reasoning.
    MaxCompletionTokens,
}

/// How a request states how much a model should reason before it answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reasoning {
    /// The server's default.
    Unset,
    /// The name of an effort.
    Effort(ReasoningEffort),
    /// A number of tokens, for models of Anthropic without adaptive thinking.
    Budget(ReasoningEffort),
}

/// The optional parts of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestShape {
    pub token_limit: TokenLimit,
    pub temperature: bool,
    /// How the server is given the schema of the answer.
    pub format: Format,
    /// Whether a schema is marked as strict.
    pub strict: bool,
    /// Whether the model must call the tool whose schema is that of the answer.
    pub forced_tool: bool,
    pub logprobs: bool,
    pub reasoning: Reasoning,
    /// `token_limit` was changed already. Requests to a server that refuses both keys must not alternate between
    /// them.
    limit_changed: bool,
}

impl RequestShape {
    pub(crate) fn from_config(config: &JudgeConfig) -> RequestShape {
        RequestShape {
            token_limit: TokenLimit::MaxTokens,
            temperature: true,
            format: config.format,
            strict: true,
            forced_tool: true,
            logprobs: config.logprobs,
            reasoning: config.reasoning_effort.map_or(Reasoning::Unset, Reasoning::Effort),
            limit_changed: false,
        }
    }

    /// Tokens for reasoning that the limit of an answer must leave space for.
    pub fn reasoning_tokens(&self) -> u32 {
        match (self.reasoning, self.token_limit) {
            (Reasoning::Effort(effort) | Reasoning::Budget(effort), _) => effort.tokens(),
            // Only reasoning models need this key, and their default effort is a medium one.
            (Reasoning::Unset, TokenLimit::MaxCompletionTokens) => ReasoningEffort::Medium.tokens(),
            (Reasoning::Unset, TokenLimit::MaxTokens) => 0,
        }
    }

    /// The shape without the part that `refusal`, the text of an error in lower case, complains about, and the
    /// change in words. `None` if it names no part that can be left out.
    pub fn without(self, refusal: &str) -> Option<(RequestShape, &'static str)> {
        let mentions = |words: &[&str]| words.iter().any(|word| refusal.contains(word));
        let shape = self;
        if !shape.limit_changed
            && mentions(&["max_tokens", "max_completion_tokens"])
            && mentions(UNSUPPORTED_WORDS)
        {
            let (token_limit, change) = match shape.token_limit {
                TokenLimit::MaxTokens => {
                    (TokenLimit::MaxCompletionTokens, "max_completion_tokens instead of max_tokens")
                }
                TokenLimit::MaxCompletionTokens => {
                    (TokenLimit::MaxTokens, "max_tokens instead of max_completion_tokens")
                }
            };
            return Some((RequestShape { token_limit, limit_changed: true, ..shape }, change));
        }
        if shape.temperature && mentions(&["temperature"]) {
            return Some((RequestShape { temperature: false, ..shape }, "no temperature"));
        }
        if shape.forced_tool && mentions(&["tool_choice", "tool choice"]) {
            return Some((RequestShape { forced_tool: false, ..shape }, "the tool is offered, not forced"));
        }
        if shape.logprobs && mentions(&["logprob"]) {
            return Some((RequestShape { logprobs: false, ..shape }, "no token probabilities"));
        }
        if mentions(&["reasoning", "thinking", "effort", "output_config", "budget_tokens"])
            && let Some(changed) = shape.less_reasoning(refusal)
        {
            return Some(changed);
        }
        if mentions(SCHEMA_WORDS) { shape.weaker_schema(refusal) } else { None }
    }

    fn less_reasoning(self, refusal: &str) -> Option<(RequestShape, &'static str)> {
        let (reasoning, change) = match self.reasoning {
            Reasoning::Unset => return None,
            Reasoning::Effort(effort)
                if refusal.contains("adaptive") || refusal.contains("output_config") =>
            {
                (Reasoning::Budget(effort), "reasoning by a number of tokens instead of an effort")
            }
            Reasoning::Effort(_) | Reasoning::Budget(_) => (Reasoning::Unset, "no reasoning effort"),
        };
        Some((RequestShape { reasoning, ..self }, change))
    }

    fn weaker_schema(self, refusal: &str) -> Option<(RequestShape, &'static str)> {
        let mentions_strict =
            ["strict", "invalid schema", "invalid_json_schema"].iter().any(|w| refusal.contains(w));
        match self.format {
            Format::Schema if self.strict && mentions_strict => {
                Some((RequestShape { strict: false, ..self }, "a schema that is not strict"))
            }
            Format::Schema => Some((
                RequestShape { format: Format::Object, ..self },
                "the schema in the prompt; the server ensures a JSON object",
            )),
            Format::Object => {
                Some((RequestShape { format: Format::Text, ..self }, "the schema in the prompt only"))
            }
            Format::Text => None,
        }
    }
}

/// Words with which servers refuse a parameter that they do not accept. Without one of them a message that names the
/// limit is about its value.
const UNSUPPORTED_WORDS: &[&str] = &[
    "unsupported",
    "not supported",
    "does not support",
    "not permitted",
    "not allowed",
    "extra_forbidden",
    "unknown",
    "unrecognized",
    "unexpected",
    "deprecated",
    "instead",
];

/// Words in the messages of servers that refuse a schema or cannot enforce one.
const SCHEMA_WORDS: &[&str] = &[
    "response_format",
    "response format",
    "response_schema",
    "json_schema",
    "json_object",
    "json mode",
    "schema",
    "grammar",
    "guided",
    "structured output",
    "additionalproperties",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn change(refusal: &str) -> Option<&'static str> {
        let config = JudgeConfig {
            logprobs: true,
            reasoning_effort: Some(ReasoningEffort::High),
            ..JudgeConfig::default()
        };
        RequestShape::from_config(&config).without(&refusal.to_lowercase()).map(|(_, change)| change)
    }

    #[test]
    fn each_documented_refusal_names_its_part() {
        for (refusal, expected) in [
            (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                "max_completion_tokens instead of max_tokens",
            ),
            (
                "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.",
                "no temperature",
            ),
            (
                "Thinking may not be enabled when tool_choice forces tool use.",
                "the tool is offered, not forced",
            ),
            ("`temperature` may only be set to 1 when thinking is enabled.", "no temperature"),
            ("You are not allowed to request logprobs from this model.", "no token probabilities"),
            (
                "adaptive thinking is not supported on this model",
                "reasoning by a number of tokens instead of an effort",
            ),
            ("Unrecognized request argument supplied: reasoning_effort", "no reasoning effort"),
            (
                "This response_format type is unavailable now",
                "the schema in the prompt; the server ensures a JSON object",
            ),
            (
                "Invalid schema for response_format 'verdict': In context=(), 'required' is required",
                "a schema that is not strict",
            ),
            (
                "Unknown name \"additionalProperties\" at 'generation_config.response_schema': Cannot find field.",
                "the schema in the prompt; the server ensures a JSON object",
            ),
        ] {
            assert_eq!(change(refusal), Some(expected), "{refusal}");
        }
    }

    #[test]
    fn other_refusals_change_nothing() {
        for refusal in [
            "This model's maximum context length is 8192 tokens",
            "max_tokens must be less than or equal to 1024",
            "Incorrect API key provided",
            "",
        ] {
            assert_eq!(change(refusal), None, "{refusal}");
        }
    }

    #[test]
    fn repeated_refusals_end() {
        let all = "unsupported max_tokens temperature tool_choice logprobs adaptive reasoning strict response_format";
        let mut shape = RequestShape::from_config(&JudgeConfig {
            logprobs: true,
            reasoning_effort: Some(ReasoningEffort::Low),
            ..JudgeConfig::default()
        });
        let mut changes = 0;
        while let Some((next, _)) = shape.without(all) {
            shape = next;
            changes += 1;
        }
        assert_eq!(changes, 9);
        assert_eq!((shape.format, shape.reasoning), (Format::Text, Reasoning::Unset));
    }
}
