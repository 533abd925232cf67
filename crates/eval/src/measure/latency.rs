//! `latency` (001, table 1): how long a span took, in milliseconds, held against its limit.
//!
//! In: a span's times and the operator's limits. Out: a number; a span without a limit has none.

use super::anchors::{Defect, measured, unmeasured};
use super::{Answer, Measured, Metric, Need, Reason, Step, Value, View};

/// See the module.
pub struct Latency;

/// As in its attribute key.
pub const NAME: &str = "latency";

impl Metric for Latency {
    fn name(&self) -> &'static str {
        NAME
    }

    fn need(&self) -> Need {
        Need::Span
    }

    fn step(&self, view: &View<'_>, _: &[Answer]) -> Step {
        let Some(limit) = view.settings.max_ms(view.scene, view.at) else { return Step::Done(Vec::new()) };
        let took = view.scene.readings.get(view.at).and_then(|r| r.duration_ms);
        let measurement = match took {
            // The end was never set: nothing is known of how long it took.
            None => unmeasured(view.at, NAME, Reason::NoContent),
            Some(ms) => {
                let over = ms > limit;
                let finding = || {
                    let rationale =
                        format!("at most {limit:.0} ms were expected, by the limit set; it took {ms:.0} ms");
                    Defect::OverLimit.found(rationale, &format!("{ms:.0} ms"))
                };
                let findings = if over { vec![finding()] } else { Vec::new() };
                measured(view.at, NAME, Measured { value: Value::Number(ms), passed: !over, findings })
            }
        };
        Step::Done(vec![measurement])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Memo, Settings};
    use crate::recognise::{Reading, Scene};
    use verdict_otlp::trace::Kind;

    fn outcome(kind: Kind, ms: Option<f64>) -> Option<Result<(Value, bool), Reason>> {
        let settings: Settings = serde_saphyr::from_str("latency: { max_ms: { llm: 100 } }").unwrap();
        let reading = Reading { kind, duration_ms: ms, ..Reading::default() };
        let scene = Scene { readings: vec![reading], owner: vec![None], ..Scene::default() };
        let memo = Memo::new();
        let view = View { scene: &scene, at: 0, settings: &settings, memo: &memo, rules: &[] };
        let Step::Done(out) = Latency.step(&view, &[]) else { panic!("rules never ask") };
        out.into_iter().next().map(|m| m.outcome.map(|m| (m.value, m.passed)))
    }

    #[test]
    fn only_kinds_with_a_limit_are_measured() {
        assert_eq!(outcome(Kind::Tool, Some(500.0)), None);
        assert_eq!(outcome(Kind::Llm, Some(99.0)), Some(Ok((Value::Number(99.0), true))));
        assert_eq!(outcome(Kind::Llm, Some(101.0)), Some(Ok((Value::Number(101.0), false))));
        assert_eq!(outcome(Kind::Llm, None), Some(Err(Reason::NoContent)));
    }
}
