//! Providers: what answers a judge's questions, be it an HTTP endpoint, a library or a process.
//!
//! In: a [`JudgeRequest`]. Out: a [`Reply`] or a [`Failure`]. Limits, retries, budgets, validation and
//! caches are the same for all providers and lie above this trait. An HTTP API needs only a
//! [`Dialect`](crate::Dialect).

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use serde_json::json;
use verdict_eval::{Form, Prompt};

use crate::config::JudgeConfig;
use crate::failure::Failure;

/// The future of [`Provider::send`].
pub type ReplyFuture<'a> = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send + 'a>>;

/// Answers single requests. Registered by the name of a judge with
/// [`JudgesBuilder::provider`](crate::JudgesBuilder::provider).
pub trait Provider: fmt::Debug + Send + Sync {
    /// Where requests go: a URL, or another name. Cached answers of one location do not serve another.
    fn location(&self) -> &str;

    /// Whether content leaves this machine. `judges.<name>.external` overrides it.
    fn is_external(&self) -> bool {
        true
    }

    /// Everything of `request` that the answer depends on: the same request gives the same bytes.
    /// Cached answers are found by them, and their length is the estimate of the prompt's tokens.
    fn encode(&self, request: &JudgeRequest<'_>) -> Bytes {
        let turns: Vec<_> = request.turns();
        let JudgeRequest { config, prompt, form, .. } = request;
        let (model, system, schema) = (&config.model, &*prompt.system, &form.schema);
        json!({ "model": model, "system": system, "turns": turns, "schema": schema }).to_string().into()
    }

    /// Sends one request; `body` is what [`Provider::encode`] returned for it. Dropped when the
    /// judge's `timeout` has passed.
    fn send<'a>(&'a self, request: JudgeRequest<'a>, body: Bytes) -> ReplyFuture<'a>;
}

/// A question as it is put to one judge.
#[derive(Clone, Copy, Debug)]
pub struct JudgeRequest<'a> {
    pub config: &'a JudgeConfig,
    pub prompt: &'a Prompt,
    /// What the answer must look like.
    pub form: &'a Form,
    /// Set when the judge is asked again, because its answer could not be used.
    pub correction: Option<&'a Correction>,
}

impl JudgeRequest<'_> {
    /// The conversation after the system prompt, as pairs of role and text. Roles alternate, as chat
    /// templates demand.
    pub fn turns(&self) -> Vec<(&'static str, String)> {
        let question = &self.prompt.user;
        match self.correction {
            None => vec![("user", question.to_string())],
            Some(again @ Correction { answer: None, .. }) => {
                vec![("user", format!("{question}\n\n{}", again.instruction()))]
            }
            Some(again @ Correction { answer: Some(answer), .. }) => {
                vec![
                    ("user", question.to_string()),
                    ("assistant", answer.clone()),
                    ("user", again.instruction()),
                ]
            }
        }
    }

    /// What is added to the system prompt if the request has no schema of the answer.
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
    /// The answer, unless it was cut or is too long to repeat.
    pub answer: Option<String>,
    pub fault: String,
}

impl Correction {
    /// What is said to the judge about it.
    pub fn instruction(&self) -> String {
        format!(
            "That answer cannot be used: {}. Answer the same question again, with one JSON object of \
             the required shape and nothing else.",
            self.fault
        )
    }
}

/// What a judge returned.
#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    /// The text; of a tool call, its arguments.
    pub text: String,
    pub finish: FinishReason,
    /// Left out, tokens are estimated from the lengths of prompt and text.
    pub usage: Option<TokenCount>,
    /// Probabilities of the text's tokens, where the server gave them.
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
    /// Cut at the most tokens that an answer may have.
    Length,
    /// The model refused, or a filter removed the answer.
    Refused,
}

/// Tokens of a request and its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TokenCount {
    /// Of the prompt, without the cached ones.
    pub input: u64,
    /// Of the prompt, those that the server had cached.
    pub cached: u64,
    pub output: u64,
}

impl TokenCount {
    pub fn total(self) -> u64 {
        self.input.saturating_add(self.cached).saturating_add(self.output)
    }
}

/// One token of a reply.
#[derive(Clone, PartialEq, Debug)]
pub struct Token {
    /// The bytes of the text that it covers; a character may take several tokens.
    pub bytes: Vec<u8>,
    /// The most probable tokens at its place, with their natural log probabilities.
    pub alternatives: Vec<(String, f64)>,
}
