//! The spans of a trace on which metrics run: all but evaluator spans, the spans beneath them, and
//! cancelled spans.

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
    let mut evaluated = vec![false; trace.views.len()];
    for &at in trace.tree.order() {
        let beneath = trace.tree.parent(at).is_some_and(|up| evaluated.get(up).copied().unwrap_or(false));
        let is_evaluator = trace.views.get(at).is_some_and(|r| r.kind == Kind::Evaluator);
        if let Some(mark) = evaluated.get_mut(at) {
            *mark = beneath || is_evaluator;
        }
    }
    let cancelled = trace.views.iter().map(|r| r.cancelled);
    evaluated.iter().zip(cancelled).map(|(evaluated, cancelled)| !evaluated && !cancelled).collect()
}
