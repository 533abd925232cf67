//! Why a model stopped, in one vocabulary.
//!
//! In: the reason as a provider or a framework spells it. Out: a [`FinishReason`]. All spellings are in this module;
//! rules compare only reasons.

use super::message::Text;
use super::span_view::SpanView;

/// Why a model stopped, as far as rules distinguish it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FinishReason {
    /// The text is complete.
    Stop,
    /// The output reached a length limit.
    Length,
    /// A filter of the provider, or the model itself, refused.
    ContentFilter,
    /// The model waits for the results of calls.
    ToolCalls,
    /// The call failed.
    Error,
    /// None of these, or an unknown spelling.
    Other,
}

/// Spellings in lower case, with `_` between words.
const SPELLINGS: [(FinishReason, &[&str]); 5] = [
    (FinishReason::Stop, &["stop", "end_turn", "stop_sequence", "complete", "completed"]),
    (
        FinishReason::Length,
        &[
            "length",
            "max_tokens",
            "max_output_tokens",
            "max_length",
            "token_limit",
            "model_length",
            "model_context_window_exceeded",
            "error_limit_output_length",
            "incomplete",
        ],
    ),
    (
        FinishReason::ContentFilter,
        &["content_filter", "refusal", "safety", "prohibited_content", "blocklist", "recitation"],
    ),
    (FinishReason::ToolCalls, &["tool_calls", "tool_call", "tool_use", "function_call"]),
    (FinishReason::Error, &["error"]),
];

impl FinishReason {
    pub(crate) fn read(spelling: &str) -> FinishReason {
        let recorded = spelling.trim();
        let is_same =
            |byte: u8, other: u8| byte.to_ascii_lowercase() == other || byte == b'-' && other == b'_';
        let is_recorded = |spelling: &&str| {
            recorded.len() == spelling.len()
                && recorded.bytes().zip(spelling.bytes()).all(|(byte, other)| is_same(byte, other))
        };
        let row = SPELLINGS.iter().find(|(_, spellings)| spellings.iter().any(is_recorded));
        row.map_or(FinishReason::Other, |(reason, _)| *reason)
    }
}

impl SpanView {
    /// The recorded spelling of `reason`; `None` if the model did not stop for it.
    pub(crate) fn finished_by(&self, reason: FinishReason) -> Option<&Text> {
        self.finish.iter().find(|spelling| FinishReason::read(spelling) == reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_providers_are_one_reason() {
        for (spelling, reason) in [
            ("MAX_TOKENS", FinishReason::Length),
            ("max-tokens", FinishReason::Length),
            (" length ", FinishReason::Length),
            ("content-filter", FinishReason::ContentFilter),
            ("SAFETY", FinishReason::ContentFilter),
            ("tool-calls", FinishReason::ToolCalls),
            ("end_turn", FinishReason::Stop),
            ("Error", FinishReason::Error),
            ("pause_turn", FinishReason::Other),
            ("", FinishReason::Other),
        ] {
            assert_eq!(FinishReason::read(spelling), reason, "{spelling}");
        }
    }
}
