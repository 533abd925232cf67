//! A question as a body of a request, and an answer out of the body of a response.
//!
//! In: a [`Question`](verdict_eval::measure::Question)'s texts and form; bytes of a 200. Out: JSON of
//! each dialect; a [`Reply`], or why these bytes are none.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::config::{Dialect, JudgeConfig};
use super::transport::{Failure, Kind};
use super::{anthropic, openai, rerank};
use verdict_eval::measure::{Form, Prompt};

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// The model and how it is asked.
    pub config: &'a JudgeConfig,
    /// The texts.
    pub prompt: &'a Prompt,
    /// The shape of the answer.
    pub form: &'a Form,
    /// What was wrong with the answer before.
    pub again: Option<&'a Again>,
}

/// An answer that could not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Again {
    /// The answer, if it was whole.
    pub said: Option<String>,
    /// What was wrong with it.
    pub fault: String,
}

impl Again {
    /// What is said about it.
    pub fn demand(&self) -> String {
        format!(
            "That answer cannot be used: {}. Answer the same question again, with one JSON object of \
             the required shape and nothing else.",
            self.fault
        )
    }
}

/// What a judge said.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Reply {
    /// Its text; of a tool call its arguments.
    pub text: String,
    /// How it ended.
    pub ended: Ended,
    /// What it counted, if it did.
    pub usage: Option<Tokens>,
    /// Probabilities of the text's tokens, if it gave them.
    pub tokens: Vec<Token>,
}

/// How an answer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// By itself.
    Whole,
    /// At the most tokens it may have.
    Cut,
    /// The model would not answer, or a filter took the answer away.
    Refused,
}

/// Tokens of one request and its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tokens {
    /// Of the prompt, those that the server had already left out.
    pub input: u64,
    /// Of the prompt, those that the server had already.
    pub cached: u64,
    /// Of the answer.
    pub output: u64,
}

impl Tokens {
    /// All of them.
    pub fn total(self) -> u64 {
        self.input.saturating_add(self.cached).saturating_add(self.output)
    }
}

/// One token of an answer, and what might have stood there.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Token {
    /// The text that it stands for; of a character in several tokens, its part.
    pub bytes: Vec<u8>,
    /// Texts that might have stood here, with their natural log probabilities.
    pub choices: Vec<(String, f64)>,
}

impl Dialect {
    /// The body of a request. The same for the same question, byte for byte.
    pub(super) fn write(self, asked: Asked<'_>) -> Bytes {
        let mut body = match self {
            Dialect::Openai => openai::write(asked),
            Dialect::Anthropic => anthropic::write(asked),
            Dialect::Rerank => rerank::write(asked),
        };
        overlay(&mut body, asked.config);
        Value::Object(body).to_string().into()
    }

    /// The reply in a response's body.
    pub(super) fn read(self, body: &[u8]) -> Result<Reply, Failure> {
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            // An error page, a stream nobody asked for, a body that was cut.
            return Err(Failure::new("not_json", Kind::Away));
        };
        if body.get("error").is_some_and(|error| !error.is_null()) {
            let code = body["error"]["code"].as_u64().and_then(|code| u16::try_from(code).ok());
            let failure = match code.filter(|code| (300..600).contains(code)) {
                Some(code) => Failure::of_status(code),
                None => Failure::new("error_body", Kind::Away),
            };
            return Err(failure.with_word(&body));
        }
        let reply = match self {
            Dialect::Openai => openai::read(&body),
            Dialect::Anthropic => anthropic::read(&body),
            Dialect::Rerank => rerank::read(&body),
        };
        reply.ok_or_else(|| Failure::new("not_an_answer", Kind::Away))
    }
}

fn overlay(body: &mut Map<String, Value>, config: &JudgeConfig) {
    for (key, value) in &config.body {
        match value {
            Value::Null => drop(body.shift_remove(key)),
            value => drop(body.insert(key.clone(), value.clone())),
        }
    }
}

/// The end of a system prompt where the server is not told the shape of an answer.
pub(super) fn in_words(form: &Form) -> String {
    format!(
        "\n\nAnswer with one JSON object and nothing else: no text before or after it, no code fence. \
         It must fit this JSON schema:\n{}",
        form.schema
    )
}
