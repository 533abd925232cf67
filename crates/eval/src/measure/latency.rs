//! `latency` (001, table 1): how long a span took, in milliseconds, held against its limit.
//!
//! In: a span's times and the operator's limits. Out: a number; a span without a limit has none.

use super::defects::{Defect, measured, unmeasured};
use super::{Answer, Context, Measured, Metric, Step, Unmeasured, Value};

pub(crate) struct Latency;

pub(crate) const NAME: &str = "latency";

impl Metric for Latency {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> Step {
        let Some(limit) = context.settings.max_ms(context.trace, context.at) else {
            return Step::Done(Vec::new());
        };
        let took = context.trace.views.get(context.at).and_then(|r| r.duration_ms);
        let measurement = match took {
            // The end was never set: nothing is known of how long it took.
            None => unmeasured(context.at, NAME, Unmeasured::NoContent),
            Some(ms) => {
                let over = ms > limit;
                let finding = || {
                    let rationale =
                        format!("at most {limit:.0} ms were expected, by the limit set; it took {ms:.0} ms");
                    Defect::OverLimit.finding(rationale, &format!("{ms:.0} ms"))
                };
                let findings = if over { vec![finding()] } else { Vec::new() };
                measured(context.at, NAME, Measured { value: Value::Number(ms), passed: !over, findings })
            }
        };
        Step::Done(vec![measurement])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Memo, Settings};
    use crate::recognise::{AgentTrace, SpanView};
    use verdict_otlp::trace::Kind;

    fn outcome(kind: Kind, ms: Option<f64>) -> Option<Result<(Value, bool), Unmeasured>> {
        let settings: Settings = serde_saphyr::from_str("latency: { max_ms: { llm: 100 } }").unwrap();
        let view = SpanView { kind, duration_ms: ms, ..SpanView::default() };
        let trace = AgentTrace { views: vec![view], owner: vec![None], ..AgentTrace::default() };
        let memo = Memo::new();
        let context = Context { trace: &trace, at: 0, settings: &settings, memo: &memo, rules: &[] };
        let Step::Done(out) = Latency.step(&context, &[]) else { panic!("rules never ask") };
        out.into_iter().next().map(|m| m.outcome.map(|m| (m.value, m.passed)))
    }

    #[test]
    fn only_kinds_with_a_limit_are_measured() {
        assert_eq!(outcome(Kind::Tool, Some(500.0)), None);
        assert_eq!(outcome(Kind::Llm, Some(99.0)), Some(Ok((Value::Number(99.0), true))));
        assert_eq!(outcome(Kind::Llm, Some(101.0)), Some(Ok((Value::Number(101.0), false))));
        assert_eq!(outcome(Kind::Llm, None), Some(Err(Unmeasured::NoContent)));
    }
}
