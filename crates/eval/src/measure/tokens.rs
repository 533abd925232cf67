//! `tokens` (001, table 1): the tokens of a model call, compared with their limit.
//!
//! Principle: a model call uses no more tokens than its configured limit. Without a limit no count is a defect.
//!
//! In: reported token counts and the configured limits. Out: the count of input and output together; unmeasured if the
//! span reports no tokens, and no measurement without a limit.

use verdict_otlp::trace::Kind;

use super::defects::quantity;
use super::{Context, Measurement};

pub(crate) fn measure(context: &Context<'_>) -> Option<Measurement> {
    let view = context.trace.views.get(context.at).filter(|r| r.kind == Kind::Llm)?;
    let limit = context.settings.max_tokens(context.trace, context.at)?;
    // Counts are far below 2^53, so that a double represents them exactly.
    let count = view.tokens.sum().map(|count| count as f64);
    Some(quantity(context, count, limit as f64, "tokens"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::row;
    use crate::measure::{Memo, Settings, Unmeasured, Value};
    use crate::recognise::span_view::Tokens as Counts;
    use crate::recognise::{AgentTrace, SpanView};

    fn outcome(kind: Kind, tokens: Counts, yaml: &str) -> Option<Result<(Value, bool), Unmeasured>> {
        let settings: Settings = serde_saphyr::from_str(yaml).unwrap();
        let view = SpanView { kind, tokens, ..SpanView::default() };
        let trace = AgentTrace { views: vec![view], owner: vec![None], ..AgentTrace::default() };
        let memo = Memo::new();
        let context = Context {
            row: row("tokens"),
            trace: &trace,
            at: 0,
            settings: &settings,
            memo: &memo,
            rule_measurements: &[],
        };
        measure(&context).map(|m| m.outcome.map(|m| (m.value, m.passed)))
    }

    #[test]
    fn input_and_output_are_added_without_a_reported_total() {
        let counts = Counts { input: Some(80), output: Some(30), ..Counts::default() };
        assert_eq!(
            outcome(Kind::Llm, counts, "tokens: { max: 100 }"),
            Some(Ok((Value::Number(110.0), false)))
        );
        assert_eq!(
            outcome(Kind::Llm, counts, "tokens: { max: 110 }"),
            Some(Ok((Value::Number(110.0), true)))
        );
        assert_eq!(outcome(Kind::Llm, counts, "{}"), None);
        assert_eq!(outcome(Kind::Agent, counts, "tokens: { max: 1 }"), None);
        assert_eq!(
            outcome(Kind::Llm, Counts::default(), "tokens: { max: 1 }"),
            Some(Err(Unmeasured::NoContent))
        );
    }
}
