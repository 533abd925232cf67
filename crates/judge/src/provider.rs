//! Providers, which answer a judge's requests: an HTTP endpoint, a library or a process.
//!
//! In: a [`JudgeRequest`]. Out: a [`Reply`] or a [`Failure`]. Limits, retries, budgets, validation and
//! caches are implemented above this trait, for all providers. An HTTP API needs only a
//! [`Dialect`](crate::Dialect).

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use serde_json::json;
use verdict_eval::questions::{AnswerForm, Prompt};

use crate::config::JudgeConfig;
use crate::failure::Failure;
use crate::request_shape::RequestShape;

/// The future of [`Provider::send`].
pub type ReplyFuture<'a> = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send + 'a>>;

/// Answers single requests. Registered by the name of a judge with
/// [`JudgeExtensions::provider`](crate::JudgeExtensions::provider).
pub trait Provider: fmt::Debug + Send + Sync {
    /// The destination of requests: a URL or another name. It is part of the cache key.
    fn location(&self) -> &str;

    /// Whether content is sent to another machine. `judges.<name>.external` overrides it.
    fn is_external(&self) -> bool {
        true
    }

    /// Everything in `request` that the answer depends on; the same request must give the same bytes. They
    /// are part of the cache key, and the prompt's tokens are estimated by their length.
    fn encode(&self, request: &JudgeRequest<'_>) -> Bytes {
        let turns: Vec<_> = request.turns();
        let JudgeRequest { config, prompt, form, .. } = request;
        let (model, system, schema) = (&config.model, &*prompt.system, &form.schema);
        json!({ "model": model, "system": system, "turns": turns, "schema": schema }).to_string().into()
    }

    /// Sends one request; `body` is the result of [`Provider::encode`] for it. The future is dropped after
    /// the judge's `timeout`.
    fn send<'a>(&'a self, request: JudgeRequest<'a>, body: Bytes) -> ReplyFuture<'a>;
}

/// A question to one judge.
#[derive(Clone, Copy, Debug)]
pub struct JudgeRequest<'a> {
    pub config: &'a JudgeConfig,
    pub prompt: &'a Prompt,
    pub form: &'a AnswerForm,
    /// Set if the judge is asked again because its answer could not be used.
    pub correction: Option<&'a Correction>,
    /// The optional parts, without those that the server refused before.
    pub shape: RequestShape,
}

impl JudgeRequest<'_> {
    /// Maximum number of tokens of the answer, reasoning included.
    pub fn token_limit(&self) -> u32 {
        self.config.max_tokens.saturating_add(self.shape.reasoning_tokens())
    }

    /// The conversation after the system prompt, as pairs of role and text. Roles alternate, as chat
    /// templates require.
    pub fn turns(&self) -> Vec<(&'static str, String)> {
        let question = &self.prompt.user;
        match self.correction {
            None => vec![("user", question.to_string())],
            Some(correction @ Correction { answer: None, .. }) => {
                vec![("user", format!("{question}\n\n{}", correction.instruction()))]
            }
            Some(correction @ Correction { answer: Some(answer), .. }) => {
                vec![
                    ("user", question.to_string()),
                    ("assistant", answer.clone()),
                    ("user", correction.instruction()),
                ]
            }
        }
    }

    /// The text to append to the system prompt if the API takes no schema of the answer.
    pub fn schema_instruction(&self) -> String {
        format!(
            "\n\nAnswer with one JSON object and nothing else: no text before or after it, no code fence. \
             It must fit this JSON schema:\n{}",
            self.form.schema
        )
    }
}

/// An answer that could not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Correction {
    /// The answer, unless it was truncated or is too long to repeat.
    pub answer: Option<String>,
    pub fault: String,
}

impl Correction {
    /// The text of the second request.
    pub fn instruction(&self) -> String {
        format!(
            "That answer cannot be used: {}. Answer the same question again, with one JSON object of \
             the required shape and nothing else.",
            self.fault
        )
    }
}

/// The response of a judge.
#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    /// The text, or the arguments of a tool call.
    pub text: String,
    pub finish: FinishReason,
    /// If `None`, tokens are estimated from the lengths of prompt and text.
    pub usage: Option<TokenCount>,
    /// The tokens of the text with their probabilities, if the server returned them.
    pub tokens: Vec<Token>,
}

impl Reply {
    /// A complete text, with neither token counts nor probabilities.
    pub fn complete(text: impl Into<String>) -> Reply {
        Reply { text: text.into(), finish: FinishReason::Complete, usage: None, tokens: Vec::new() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FinishReason {
    Complete,
    /// Truncated at `max_tokens`.
    Length,
    /// The model refused, or a filter removed the answer.
    Refused,
}

/// Tokens of a request and its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TokenCount {
    /// Tokens of the prompt that the server had not cached.
    pub input: u64,
    /// Tokens of the prompt that the server had cached.
    pub cached: u64,
    /// Tokens of the prompt that the server has written to its cache; not part of `input`.
    pub cache_write: u64,
    pub output: u64,
}

impl TokenCount {
    pub fn total(self) -> u64 {
        let prompt = self.input.saturating_add(self.cached).saturating_add(self.cache_write);
        prompt.saturating_add(self.output)
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Token {
    /// The bytes of the text that it covers; a character may take several tokens.
    pub bytes: Vec<u8>,
    /// The most probable tokens at this position, with the natural logarithms of their probabilities.
    pub alternatives: Vec<(String, f64)>,
}
