//! A judge's answer, and its serialisation as one line of JSON for recordings and the cache on disk.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use verdict_eval::questions::Usage;

use crate::cache_key::{self, CacheKey};

/// A valid answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct JudgeAnswer {
    /// The model and the hash of rubric and form.
    pub(crate) judge: Arc<str>,
    /// The score weighted by the probabilities of its tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) weighted: Option<f64>,
    #[serde(default)]
    tokens: u64,
    #[serde(default)]
    cost_usd: f64,
    pub(crate) value: Value,
}

impl JudgeAnswer {
    /// `usage` is that of the requests that led to the answer.
    pub(crate) fn new(judge: &str, value: Value, weighted: Option<f64>, usage: Usage) -> JudgeAnswer {
        let Usage { tokens, cost_usd } = usage;
        JudgeAnswer { judge: judge.into(), weighted, tokens, cost_usd, value }
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage { tokens: self.tokens, cost_usd: self.cost_usd }
    }
}

/// Largest size of a line in bytes; answers are a few KiB.
pub(crate) const MAX_LINE: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
struct RecordedLine<A> {
    key: String,
    #[serde(flatten)]
    answer: A,
}

/// The line, without a line break.
pub(crate) fn write(key: &CacheKey, answer: &JudgeAnswer) -> String {
    // Strings, numbers and JSON values: serialising them cannot fail.
    serde_json::to_string(&RecordedLine { key: cache_key::hex(key), answer }).unwrap_or_default()
}

/// Parses a line of [`write()`]; `None` if it has another form.
pub(crate) fn read(text: &str) -> Option<(CacheKey, JudgeAnswer)> {
    let line: RecordedLine<JudgeAnswer> = serde_json::from_str(text).ok()?;
    Some((cache_key::parse_key(&line.key)?, line.answer))
}
