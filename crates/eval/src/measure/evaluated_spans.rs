//! The spans of a trace on which metrics run: all except evaluator spans, the spans beneath them, and cancelled spans.

use std::ops::Deref;
use std::sync::Arc;

use verdict_otlp::trace::Kind;

use super::Memo;
use crate::recognise::AgentTrace;

/// For each span, whether metrics run on it.
pub(crate) struct EvaluatedSpans(Vec<bool>);

impl EvaluatedSpans {
    /// The evaluated spans of the trace, computed once.
    pub(crate) fn cached(trace: &AgentTrace, memo: &Memo) -> Arc<EvaluatedSpans> {
        memo.shared_value(|| EvaluatedSpans(evaluated_spans(trace)))
    }
}

impl Deref for EvaluatedSpans {
    type Target = [bool];

    fn deref(&self) -> &[bool] {
        &self.0
    }
}

/// For each span, whether metrics run on it.
pub(crate) fn evaluated_spans(trace: &AgentTrace) -> Vec<bool> {
    // For each span, whether it is an evaluator span or beneath one.
    let mut is_in_evaluator = vec![false; trace.views.len()];
    for &span_index in trace.tree.order() {
        let is_beneath = trace
            .tree
            .parent(span_index)
            .is_some_and(|parent| is_in_evaluator.get(parent).copied().unwrap_or(false));
        let is_evaluator = trace.views.get(span_index).is_some_and(|view| view.kind == Kind::Evaluator);
        if let Some(entry) = is_in_evaluator.get_mut(span_index) {
            *entry = is_beneath || is_evaluator;
        }
    }
    let cancelled = trace.views.iter().map(|view| view.cancelled);
    is_in_evaluator
        .iter()
        .zip(cancelled)
        .map(|(is_in_evaluator, cancelled)| !is_in_evaluator && !cancelled)
        .collect()
}
