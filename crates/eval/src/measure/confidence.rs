//! The confidence of a finding: how often its rule was right on labelled traces.
//!
//! In: a defect, and the rule where several report it. Out: the precision of the rule, from 0 to 1, by
//! `confidence.tsv`. `otel-verdict score rules` writes that table from labelled sets. A firing counts once: on a set
//! labelled by span it is right if the span is labelled as failing, on a set labelled by run if the run failed.
//!
//! The share is estimated as (right + 1) / (fired + 2), Laplace's rule of succession, so that a rule that
//! fired once is not certain, and a rule that never fired has the confidence 0.5. Where several rules report a defect,
//! the share of all of them takes the place of one half: (right + 2 p) / (fired + 2), so that a rule that fired on few
//! labelled traces has nearly the precision of its kind, and one that fired often its own.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::defect::Defect;

/// Right and fired at spans, then right and fired in runs, by rule.
const TABLE: &str = include_str!("confidence.tsv");

static COUNTS: LazyLock<HashMap<&'static str, [u32; 2]>> = LazyLock::new(|| {
    let row = |line: &'static str| {
        let mut fields = line.split('\t');
        let rule = fields.next()?;
        let counts: Option<Vec<u32>> = fields.map(|field| field.parse().ok()).collect();
        let [at_spans, fired_at_spans, in_runs, fired_in_runs] = counts?.try_into().ok()?;
        Some((rule, [at_spans + in_runs, fired_at_spans + fired_in_runs]))
    };
    TABLE.lines().filter_map(row).collect()
});

/// The estimated precision of a rule that was right in `right` of `fired` cases.
pub fn estimate(right: u32, fired: u32) -> f64 {
    estimate_from(0.5, right, fired)
}

/// The estimate where `prior` is the precision of the rules with the same defect.
pub fn estimate_from(prior: f64, right: u32, fired: u32) -> f64 {
    (f64::from(right) + 2.0 * prior) / (f64::from(fired) + 2.0)
}

impl Defect {
    /// The confidence of a finding of this defect.
    pub fn confidence(self) -> f64 {
        let [right, fired] = counts(self.name());
        estimate(right, fired)
    }

    /// The confidence of a finding of one of the rules that report this defect, by its name in tables.
    pub(crate) fn confidence_of(self, rule: &str) -> f64 {
        let [right, fired] = counts(rule);
        estimate_from(self.confidence(), right, fired)
    }
}

/// How often the rule was right, and how often it fired.
fn counts(rule: &str) -> [u32; 2] {
    COUNTS.get(rule).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_names_existing_rules_with_possible_counts() {
        let mut rows = 0;
        for line in TABLE.lines().skip(1) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [rule, counts @ ..] = fields.as_slice() else { panic!("{line}") };
            let (defect, shared) = rule.split_once('.').map_or((*rule, None), |(d, rule)| (d, Some(rule)));
            let defect = Defect::ALL.iter().find(|known| known.name() == defect).expect(rule);
            assert!(shared.is_none_or(|name| defect.rules().contains(&name)), "{rule} is no rule");
            let counts: Vec<u32> = counts.iter().map(|field| field.parse().unwrap()).collect();
            assert!(counts.len() == 4 && counts[0] <= counts[1] && counts[2] <= counts[3], "{line}");
            rows += 1;
        }
        assert_eq!(rows, COUNTS.len());
    }

    #[test]
    fn estimate_is_the_rule_of_succession() {
        assert_eq!(estimate(0, 0), 0.5);
        assert_eq!(estimate(8, 8), 0.9);
        assert_eq!(estimate(0, 8), 0.1);
    }

    #[test]
    fn rule_that_never_fired_has_the_estimate_of_its_defect() {
        assert_eq!(estimate_from(0.9, 0, 0), 0.9);
        assert_eq!(estimate_from(0.9, 0, 2), 0.45);
        let defect = Defect::ContradictsResult;
        assert_eq!(defect.confidence_of("ContradictsResult.no such rule"), defect.confidence());
    }
}
