//! Tests that each list of metrics or labels outside the table has the entries of the table.

use std::collections::BTreeSet;

use serde_json::json;

use crate::measure::metric_names::{GpaMetric, PathMetric, PlanPart};
use crate::measure::plan::reference::Rating;
use crate::measure::sections::{AvoidanceLabel, ErrorLabel};
use crate::measure::table::{MetricSpec, PLAN_RATING, PLAN_SCORE, Scale, SectionKey, rows_of, spec};

/// The names of the rows of a section.
fn rows(section: SectionKey) -> Vec<&'static str> {
    rows_of(section).map(|row| row.name).collect()
}

fn labels(row: &MetricSpec) -> &'static [&'static str] {
    match row.scale {
        Scale::Labels(labels) => labels,
        other => panic!("{row:?} has the scale {other:?}"),
    }
}

#[test]
fn names_of_sections_are_those_of_their_rows() {
    let names = |names: &[&'static str]| names.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!(names(&PathMetric::ALL.map(PathMetric::as_str)), names(&rows(SectionKey::path)));
    assert_eq!(GpaMetric::ALL.map(GpaMetric::as_str).to_vec(), rows(SectionKey::gpa));
    for metric in GpaMetric::ALL {
        assert_eq!(json!(metric), metric.as_str().trim_start_matches("gpa."));
    }
    for metric in PathMetric::ALL {
        assert_eq!(json!(metric), metric.as_str().trim_start_matches("path."));
    }
    let mut plans = rows(SectionKey::plan);
    plans.retain(|name| ![PLAN_SCORE, PLAN_RATING].contains(name));
    assert_eq!(PlanPart::ALL.map(PlanPart::metric).to_vec(), plans);
}

#[test]
fn labels_are_those_of_their_enumerations() {
    let harm = spec("path.harmful_call").unwrap();
    assert_eq!(harm.fail_labels, labels(harm));
    assert_eq!(labels(spec(PLAN_RATING).unwrap()), Rating::ALL.map(Rating::as_str));
}

#[test]
fn labels_that_can_fail_are_those_of_the_row() {
    let errors = ErrorLabel::ALL.map(|label| (label.as_str(), json!(label)));
    let avoidances = AvoidanceLabel::ALL.map(|label| (label.as_str(), json!(label)));
    for (metric, failing) in [("error_detection", errors), ("avoidance", avoidances)] {
        let mut expected = labels(spec(metric).unwrap()).to_vec();
        expected.retain(|label| *label != "valid");
        let mut names = failing.each_ref().map(|(name, _)| *name);
        expected.sort_unstable();
        names.sort_unstable();
        assert_eq!(names[..], expected, "{metric}");
        assert!(failing.iter().all(|(name, written)| written == name), "{metric}");
    }
}
