//! One measurement a metric and span, where rules and judges both spoke.
//!
//! In: what the rules measured and what the judges did. Out: one list, by span and then as the
//! rules' metrics stand. A rule's fact (an error status, arguments against their schema) is final;
//! elsewhere the judge leads, and where it could not answer the rules' word stands.

use std::collections::HashMap;

use super::{Measurement, Unmeasured};

/// Joins both. Neither list has two measurements of one metric on one span.
pub(crate) fn merge_judgements(rules: Vec<Measurement>, judged: Vec<Measurement>) -> Vec<Measurement> {
    let mut by_key: HashMap<(usize, &'static str), Measurement> =
        judged.into_iter().map(|m| ((m.at, m.metric), m)).collect();
    let mut out: Vec<Measurement> = rules
        .into_iter()
        .map(|rule| match by_key.remove(&(rule.at, rule.metric)) {
            Some(judge) => choose(rule, judge),
            None => rule,
        })
        .collect();
    let mut alone: Vec<Measurement> = by_key.into_values().collect();
    alone.sort_by_key(|m| (m.at, m.metric));
    out.extend(alone);
    out.sort_by_key(|m| m.at);
    out
}

fn choose(rule: Measurement, judge: Measurement) -> Measurement {
    let fact = rule.outcome.as_ref().is_ok_and(|m| !m.passed && m.findings.iter().any(|f| f.fact));
    if fact {
        return rule;
    }
    match (&rule.outcome, &judge.outcome) {
        (_, Ok(_)) => judge,
        (Ok(_), Err(_)) => rule,
        // That a judge failed says more than that the rules had nothing to say.
        (Err(_), Err(Unmeasured::NotApplicable | Unmeasured::NoContent)) => rule,
        (Err(_), Err(_)) => judge,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::defects::{Defect, measured, unmeasured};
    use crate::measure::{Measured, Value};

    fn ruled(at: usize, findings: Vec<crate::measure::Finding>) -> Measurement {
        let passed = findings.is_empty();
        measured(at, "tool_completeness", Measured { value: Value::Score(3.0), passed, findings })
    }

    fn judged(at: usize, score: f64) -> Measurement {
        let mut m = measured(
            at,
            "tool_completeness",
            Measured { value: Value::Score(score), passed: score >= 4.0, findings: Vec::new() },
        );
        m.judge = "model/hash".into();
        m
    }

    #[test]
    fn a_fact_of_the_rules_is_final_and_a_judgement_of_theirs_is_not() {
        let fact = ruled(0, vec![Defect::MissingParameter.finding("no city", "{}")]);
        let hunch = ruled(1, vec![Defect::IrrelevantResult.finding("off topic", "cats")]);
        let clean = ruled(2, Vec::new());
        let all = merge_judgements(
            vec![fact.clone(), hunch, clean],
            vec![judged(0, 5.0), judged(1, 5.0), judged(2, 2.0)],
        );
        assert_eq!(all, [fact, judged(1, 5.0), judged(2, 2.0)]);
    }

    #[test]
    fn where_the_judge_fails_the_rules_stand_and_its_failure_shows_only_where_they_are_silent() {
        let rules = vec![ruled(0, Vec::new()), unmeasured(1, "tool_completeness", Unmeasured::NoContent)];
        let mut failed = [0, 1].map(|at| unmeasured(at, "tool_completeness", Unmeasured::Timeout));
        failed.iter_mut().for_each(|m| m.judge = "model/hash".into());
        let all = merge_judgements(rules.clone(), failed.to_vec());
        assert_eq!(all, [rules[0].clone(), failed[1].clone()]);
    }

    #[test]
    fn what_only_a_judge_measures_comes_after_the_rules_of_its_span() {
        let mut gpa = judged(0, 5.0);
        gpa.metric = "gpa.tool_calling";
        let all = merge_judgements(vec![ruled(0, Vec::new()), ruled(1, Vec::new())], vec![gpa.clone()]);
        assert_eq!(all, [ruled(0, Vec::new()), gpa, ruled(1, Vec::new())]);
    }
}
