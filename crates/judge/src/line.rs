//! An answer as one line of JSON: what the cache's folder holds, and recordings.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kept::Said;
use super::named::{self, Key};
use verdict_eval::measure::Usage;

/// Longest line that is read: an answer, and what a folder adds to it.
pub(super) const MAX_LINE: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    judge: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weighted: Option<f64>,
    #[serde(default)]
    tokens: u64,
    #[serde(default)]
    cost_usd: f64,
    value: Value,
}

/// Without its line break.
pub(super) fn write(key: &Key, said: &Said) -> String {
    let line = Line {
        key: named::hex(key),
        judge: said.judge.to_string(),
        weighted: said.weighted,
        tokens: said.usage.tokens,
        cost_usd: said.usage.cost_usd,
        value: said.value.clone(),
    };
    // Strings, numbers and JSON values: there is nothing in it that JSON cannot say.
    serde_json::to_string(&line).unwrap_or_default()
}

/// `None` for what [`write()`] did not write.
pub(super) fn read(text: &str) -> Option<(Key, Said)> {
    let line: Line = serde_json::from_str(text).ok()?;
    let usage = Usage { tokens: line.tokens, cost_usd: line.cost_usd };
    let said = Said { value: line.value, weighted: line.weighted, judge: line.judge.into(), usage };
    Some((named::key(&line.key)?, said))
}
