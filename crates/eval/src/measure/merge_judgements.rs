//! Merges the measurements of rules and judges into one per metric and span.
//!
//! In: the measurements by rules and by judges. Out: one list, ordered by span; within a span, the metrics of rules are
//! first and keep their order. A measurement of a rule that fails by a fact (an error status, arguments that violate
//! their schema) is final. Otherwise the judge takes precedence, and the rules' measurement is used if the judge has
//! none.

use std::collections::HashMap;

use super::{Measurement, Unmeasured};

/// Merges both lists. Neither has two measurements of one metric on one span.
pub(crate) fn merge_judgements(
    rules: Vec<Measurement>,
    judge_measurement: Vec<Measurement>,
) -> Vec<Measurement> {
    let mut by_key: HashMap<(usize, &'static str), Measurement> =
        judge_measurement.into_iter().map(|m| ((m.at, m.metric), m)).collect();
    let mut out: Vec<Measurement> = rules
        .into_iter()
        .map(|rule| match by_key.remove(&(rule.at, rule.metric)) {
            Some(judge) => choose(rule, judge),
            None => rule,
        })
        .collect();
    let mut only_judged: Vec<Measurement> = by_key.into_values().collect();
    only_judged.sort_by_key(|m| (m.at, m.metric));
    out.extend(only_judged);
    out.sort_by_key(|m| m.at);
    out
}

/// The final one of two measurements of one metric on one span.
fn choose(rule: Measurement, judge: Measurement) -> Measurement {
    let fails_by_fact = rule.outcome.as_ref().is_ok_and(|m| !m.passed && m.findings.iter().any(|f| f.fact));
    if fails_by_fact {
        return rule;
    }
    match (&rule.outcome, &judge.outcome) {
        (_, Ok(_)) => judge,
        (Ok(_), Err(_)) => rule,
        // The reason of a judge that failed is more informative than that the rules do not apply.
        (Err(_), Err(Unmeasured::NotApplicable | Unmeasured::NoContent)) => rule,
        (Err(_), Err(_)) => judge,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::defects::{Defect, measured, unmeasured};
    use crate::measure::{Measured, Value};

    fn rule_measurement(span_index: usize, findings: Vec<crate::measure::Finding>) -> Measurement {
        let passed = findings.is_empty();
        measured(span_index, "tool_completeness", Measured { value: Value::Score(3.0), passed, findings })
    }

    fn judge_measurement(span_index: usize, score: f64) -> Measurement {
        let mut m = measured(
            span_index,
            "tool_completeness",
            Measured { value: Value::Score(score), passed: score >= 4.0, findings: Vec::new() },
        );
        m.judge = "model/hash".into();
        m
    }

    #[test]
    fn finding_of_a_fact_is_final_and_another_finding_is_not() {
        let fact = rule_measurement(0, vec![Defect::MissingParameter.finding("no city", "{}")]);
        let hunch = rule_measurement(1, vec![Defect::PartNotCovered.finding("nothing about dogs", "cats")]);
        let clean = rule_measurement(2, Vec::new());
        let all = merge_judgements(
            vec![fact.clone(), hunch, clean],
            vec![judge_measurement(0, 5.0), judge_measurement(1, 5.0), judge_measurement(2, 2.0)],
        );
        assert_eq!(all, [fact, judge_measurement(1, 5.0), judge_measurement(2, 2.0)]);
    }

    #[test]
    fn failed_judge_leaves_the_measurement_of_the_rules_or_its_reason() {
        let rules =
            vec![rule_measurement(0, Vec::new()), unmeasured(1, "tool_completeness", Unmeasured::NoContent)];
        let mut failed =
            [0, 1].map(|span_index| unmeasured(span_index, "tool_completeness", Unmeasured::Timeout));
        failed.iter_mut().for_each(|m| m.judge = "model/hash".into());
        let all = merge_judgements(rules.clone(), failed.to_vec());
        assert_eq!(all, [rules[0].clone(), failed[1].clone()]);
    }

    #[test]
    fn measurements_by_judges_alone_follow_those_of_rules() {
        let mut gpa = judge_measurement(0, 5.0);
        gpa.metric = "gpa.tool_calling";
        let all = merge_judgements(
            vec![rule_measurement(0, Vec::new()), rule_measurement(1, Vec::new())],
            vec![gpa.clone()],
        );
        assert_eq!(all, [rule_measurement(0, Vec::new()), gpa, rule_measurement(1, Vec::new())]);
    }
}
