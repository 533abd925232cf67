//! The confidence of a finding: how often its rule was right on labelled traces.
//!
//! In: a defect, and the rule where several report it. Out: the precision of the rule, from 0 to 1, by
//! `confidence.tsv`. `otel-verdict score rules` writes that table from labelled sets. A firing counts once: on a set
//! labelled by span, it is right if the span is labelled as failing; on a set labelled by run, if the run failed.
//!
//! The share is estimated as (right + 1) / (fired + 2), Laplace's rule of succession, so that a rule that
//! fired once is not certain, and a rule that never fired has the confidence 0.5. Where several rules report a defect,
//! the share p of all of them replaces the prior 1/2: (right + 2 p) / (fired + 2), so that the estimate of a rule that
//! fired rarely is near the precision of all rules of the defect, and of one that fired often near its own.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::defect::Defect;

/// By rule: right and fired on sets labelled by span, then right and fired on sets labelled by run.
const TABLE: &str = include_str!("confidence.tsv");

static COUNTS: LazyLock<HashMap<&'static str, [u32; 2]>> = LazyLock::new(|| {
    let row = |line: &'static str| {
        let mut fields = line.split('\t');
        let rule = fields.next()?;
        let counts: Option<Vec<u32>> = fields.map(|field| field.parse().ok()).collect();
        let [right_at_spans, fired_at_spans, right_in_runs, fired_in_runs] = counts?.try_into().ok()?;
        Some((rule, [right_at_spans + right_in_runs, fired_at_spans + fired_in_runs]))
    };
    TABLE.lines().filter_map(row).collect()
});

/// The estimated precision of a rule that fired `fired` times and was right `right` times.
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

/// How often the rule was right, and how often it fired; zeros for a rule that is not in the table.
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

    /// The rows of a table of rules.md, from the line after its heading.
    fn table_rows<'m>(rules: &'m str, heading: &str) -> Vec<Vec<&'m str>> {
        let (_, rows) =
            rules.split_once(heading).unwrap_or_else(|| panic!("no table has the heading {heading}"));
        let rows = rows.lines().skip(2).take_while(|line| line.starts_with("| "));
        rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
    }

    #[test]
    fn rule_that_fires_on_fewer_than_two_sets_has_a_note() {
        let rules = std::fs::read_to_string(crate::measure::testing::tests().join("bench/rules.md")).unwrap();
        let named =
            |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
        // The sets on which each defect fired.
        let (_, by_set) = rules.split_once("\nrule  ").unwrap();
        let mut lines = by_set.lines().take_while(|line| !line.starts_with("```"));
        let sets: Vec<&str> =
            lines.next().unwrap().split_whitespace().take_while(|name| *name != "at").collect();
        assert!(sets.len() >= 10, "{sets:?}");
        let mut fired: HashMap<&str, Vec<&str>> = HashMap::new();
        for line in lines {
            let cells: Vec<&str> = line.split_whitespace().collect();
            let set_cells = cells[1..].iter().zip(&sets).filter(|(cell, _)| **cell != "-");
            let all: u32 = set_cells
                .clone()
                .map(|(cell, _)| cell.split('/').next_back().unwrap().parse::<u32>().unwrap())
                .sum();
            assert_eq!(
                all,
                counts(cells[0])[1],
                "{}: the table by set differs from confidence.tsv",
                cells[0]
            );
            fired.insert(cells[0], set_cells.map(|(_, set)| *set).collect());
        }
        let one_set = table_rows(&rules, "| rule | set | why no other labelled set has such a case |");
        let on_none = table_rows(&rules, "| rules | why no labelled run has such a case |");
        for defect in Defect::ALL {
            let name = defect.name().to_owned();
            let sets = fired.get(defect.name()).map_or(&[][..], Vec::as_slice);
            let noted_set = one_set.iter().find(|row| named(row[0]).contains(&name)).map(|row| row[1]);
            let is_in_none = on_none.iter().any(|row| named(row[0]).contains(&name));
            assert_eq!(
                noted_set,
                <[&str; 1]>::try_from(sets).ok().map(|[set]| set),
                "{name} fires on {sets:?}"
            );
            assert_eq!(is_in_none, sets.is_empty(), "{name} fires on {sets:?}");
        }
        // Rules that share a defect have their sets and notes in one table.
        let shared = table_rows(&rules, "| rule | sets | at spans | in runs |");
        let all = Defect::ALL.iter().filter(|defect| **defect != Defect::AnswerUnsupported);
        let mut names: Vec<String> = all
            .flat_map(|defect| defect.rules().into_iter().map(|rule| format!("{}.{rule}", defect.name())))
            .collect();
        for row in &shared {
            let [name] = named(row[0]).try_into().unwrap();
            names.retain(|other| *other != name);
            let sets = row[1].split(',').filter(|set| *set != "-").count();
            let fired = row[2..4].iter().filter_map(|cell| cell.split('/').nth(1)?.parse::<u32>().ok());
            assert_eq!(fired.sum::<u32>(), counts(&name)[1], "{name}: the table differs from confidence.tsv");
            assert_eq!(sets < 2, row.last().is_some_and(|note| *note != "-"), "{name} fires on {sets} sets");
        }
        assert!(names.is_empty(), "without a row: {names:?}");
    }
}
