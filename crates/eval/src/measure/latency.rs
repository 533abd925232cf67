//! `latency` (001, table 1): the duration of a span in milliseconds, compared with its limit.
//!
//! Principle: a span takes no longer than its configured limit. Without a limit no duration is a defect.
//!
//! In: a span's times and the configured limits. Out: a number; none for a span without a limit.

use super::defects::quantity;
use super::{Context, Measurement};

/// The duration of the span; unmeasured if the span has no end time, `None` without a limit.
pub(crate) fn measure(context: &Context<'_>) -> Option<Measurement> {
    let limit = context.settings.max_ms(context.trace, context.at)?;
    let duration_ms = context.trace.views.get(context.at)?.duration_ms;
    Some(quantity(context, duration_ms, limit, "ms"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::row;
    use crate::measure::{Memo, Settings, Unmeasured, Value};
    use crate::recognise::{AgentTrace, SpanView};
    use verdict_otlp::trace::Kind;

    fn outcome(kind: Kind, ms: Option<f64>) -> Option<Result<(Value, bool), Unmeasured>> {
        let settings: Settings = serde_saphyr::from_str("latency: { max_ms: { llm: 100 } }").unwrap();
        let view = SpanView { kind, duration_ms: ms, ..SpanView::default() };
        let trace = AgentTrace { views: vec![view], owner: vec![None], ..AgentTrace::default() };
        let memo = Memo::new();
        let context = Context {
            row: row("latency"),
            trace: &trace,
            at: 0,
            settings: &settings,
            memo: &memo,
            rule_measurements: &[],
        };
        measure(&context).map(|m| m.outcome.map(|m| (m.value, m.passed)))
    }

    #[test]
    fn only_kinds_with_a_limit_are_measured() {
        assert_eq!(outcome(Kind::Tool, Some(500.0)), None);
        assert_eq!(outcome(Kind::Llm, Some(99.0)), Some(Ok((Value::Number(99.0), true))));
        assert_eq!(outcome(Kind::Llm, Some(101.0)), Some(Ok((Value::Number(101.0), false))));
        assert_eq!(outcome(Kind::Llm, None), Some(Err(Unmeasured::NoContent)));
    }
}
