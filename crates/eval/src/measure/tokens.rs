//! `tokens` (001, table 1): how many tokens a model call took, held against its limit.
//!
//! In: reported token counts and the operator's limits. Out: a count, input and output together;
//! a span without a limit has none, one that reports no tokens is unmeasured.

use super::anchors::{Defect, measured, unmeasured};
use super::{Answer, Measured, Metric, Need, Reason, Step, Value, View};
use verdict_otlp::trace::Kind;

/// See the module.
pub struct Tokens;

/// As in its attribute key.
pub const NAME: &str = "tokens";

impl Metric for Tokens {
    fn name(&self) -> &'static str {
        NAME
    }

    fn need(&self) -> Need {
        Need::Span
    }

    fn step(&self, view: &View<'_>, _: &[Answer]) -> Step {
        let reading = view.scene.readings.get(view.at).filter(|r| r.kind == Kind::Llm);
        let limit = view.settings.max_tokens(view.scene, view.at);
        let (Some(reading), Some(limit)) = (reading, limit) else { return Step::Done(Vec::new()) };
        let parts = [reading.tokens.input, reading.tokens.output];
        let sum = parts.iter().flatten().copied().reduce(u64::saturating_add);
        let measurement = match reading.tokens.total.or(sum) {
            None => unmeasured(view.at, NAME, Reason::NoContent),
            Some(count) => {
                let over = count > limit;
                let finding = || {
                    let rationale = format!(
                        "at most {limit} tokens were expected, by the limit set; it took {count} tokens"
                    );
                    Defect::OverLimit.found(rationale, &format!("{count} tokens"))
                };
                let findings = if over { vec![finding()] } else { Vec::new() };
                // Counts are far below 2^53: exact as a double.
                let value = Value::Number(count as f64);
                measured(view.at, NAME, Measured { value, passed: !over, findings })
            }
        };
        Step::Done(vec![measurement])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Memo, Settings};
    use crate::recognise::{Reading, Scene, Tokens as Counts};

    fn outcome(kind: Kind, tokens: Counts, yaml: &str) -> Option<Result<(Value, bool), Reason>> {
        let settings: Settings = serde_saphyr::from_str(yaml).unwrap();
        let reading = Reading { kind, tokens, ..Reading::default() };
        let scene = Scene { readings: vec![reading], owner: vec![None], ..Scene::default() };
        let memo = Memo::new();
        let view = View { scene: &scene, at: 0, settings: &settings, memo: &memo, rules: &[] };
        let Step::Done(out) = Tokens.step(&view, &[]) else { panic!("rules never ask") };
        out.into_iter().next().map(|m| m.outcome.map(|m| (m.value, m.passed)))
    }

    #[test]
    fn counts_are_added_where_no_total_is_reported() {
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
        assert_eq!(outcome(Kind::Llm, Counts::default(), "tokens: { max: 1 }"), Some(Err(Reason::NoContent)));
    }
}
