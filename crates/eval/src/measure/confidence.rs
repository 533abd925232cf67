//! The confidence of a finding: how often its rule was right on labelled traces.
//!
//! In: a defect. Out: the precision of its rule, from 0 to 1, by `confidence.tsv`. `otel-verdict score rules`
//! writes that table from labelled sets. A firing counts once: on a set labelled by span it is right if the
//! span is labelled as failing, on a set labelled by run if the run failed.
//!
//! The share is estimated as (right + 1) / (fired + 2), Laplace's rule of succession, so that a rule that
//! fired once is not certain, and a rule that never fired has the confidence 0.5.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::defect::Defect;

/// Right and fired at spans, then right and fired in runs, by rule.
const TABLE: &str = include_str!("confidence.tsv");

static CONFIDENCES: LazyLock<HashMap<&'static str, f64>> = LazyLock::new(|| {
    let row = |line: &'static str| {
        let mut fields = line.split('\t');
        let rule = fields.next()?;
        let counts: Option<Vec<u32>> = fields.map(|field| field.parse().ok()).collect();
        let [at_spans, fired_at_spans, in_runs, fired_in_runs] = counts?.try_into().ok()?;
        Some((rule, estimate(at_spans + in_runs, fired_at_spans + fired_in_runs)))
    };
    TABLE.lines().filter_map(row).collect()
});

/// The estimated precision of a rule that was right in `right` of `fired` cases.
pub fn estimate(right: u32, fired: u32) -> f64 {
    (f64::from(right) + 1.0) / (f64::from(fired) + 2.0)
}

impl Defect {
    /// The confidence of a finding of this defect.
    pub fn confidence(self) -> f64 {
        CONFIDENCES.get(self.name()).copied().unwrap_or_else(|| estimate(0, 0))
    }
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
            assert!(Defect::ALL.iter().any(|defect| defect.name() == *rule), "{rule} is no rule");
            let counts: Vec<u32> = counts.iter().map(|field| field.parse().unwrap()).collect();
            assert!(counts.len() == 4 && counts[0] <= counts[1] && counts[2] <= counts[3], "{line}");
            rows += 1;
        }
        assert_eq!(rows, CONFIDENCES.len());
    }

    #[test]
    fn estimate_is_the_rule_of_succession() {
        assert_eq!(estimate(0, 0), 0.5);
        assert_eq!(estimate(8, 8), 0.9);
        assert_eq!(estimate(0, 8), 0.1);
    }
}
