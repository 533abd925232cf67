//! An answer that a limit of length cut off.
//!
//! In: a model call. Out: a finding if it is the last of its run and ended at the limit without a call. An
//! earlier call that is cut off may be continued.

use verdict_otlp::trace::Kind;

use crate::measure::defects::Defect;
use crate::measure::excerpt::{QUOTE_BYTES, tail};
use crate::measure::{Context, Finding};
use crate::recognise::SpanView;

/// Reasons of ending, in lower case, by which providers report the limit.
const LIMITS: [&str; 9] = [
    "length",
    "max_tokens",
    "max_output_tokens",
    "max_length",
    "token_limit",
    "model_length",
    "model_context_window_exceeded",
    "error_limit_output_length",
    "incomplete",
];

pub(super) fn find(context: &Context<'_>, view: &SpanView) -> Option<Finding> {
    let reason = view.finish.iter().find(|reason| {
        let reason = reason.to_ascii_lowercase().replace('-', "_");
        LIMITS.contains(&reason.trim())
    })?;
    let is_whole = !view.wrapper && !view.output_content.is_partial();
    if view.kind != Kind::Llm || !is_whole || view.requests().next().is_some() || !is_last(context) {
        return None;
    }
    let rationale =
        format!("a whole answer was expected; it was cut off at a limit of length ('{}')", reason.trim());
    let text = view.output_text();
    let end = tail(text.trim_end(), QUOTE_BYTES);
    Some(Defect::CutAnswer.finding(rationale, if end.is_empty() { reason } else { end }))
}

/// Whether no model call of the agent, or of a trace without agents, follows.
fn is_last(context: &Context<'_>) -> bool {
    let trace = context.trace;
    let owner = trace.owner.get(context.at).copied().flatten().and_then(|a| trace.agents.get(a));
    match owner {
        Some(agent) => agent.llms.last() == Some(&context.at),
        None => {
            let mut later =
                trace.views.iter().skip(context.at + 1).take_while(|_| context.memo.budget.spend(1));
            !trace.incomplete && !later.any(|v| v.kind == Kind::Llm && !v.wrapper)
        }
    }
}
