//! Every list of metrics or labels outside the table has the table's entries.

use std::collections::BTreeSet;

use serde_json::json;

use crate::measure::metric_names::{FailCondition, GpaMetric, PlanPart};
use crate::measure::plan::reference::Rating;
use crate::measure::sections::{AvoidanceLabel, ErrorLabel, FailingAvoidances, FailingErrors};
use crate::measure::table::{MetricSpec, PLAN_RATING, PLAN_SCORE, Scale, SectionKey, rows_of, spec};

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
    assert_eq!(names(&FailCondition::ALL.map(FailCondition::as_str)), names(&rows(SectionKey::path)));
    assert_eq!(GpaMetric::ALL.map(GpaMetric::as_str).to_vec(), rows(SectionKey::gpa));
    for metric in GpaMetric::ALL {
        assert_eq!(json!(metric), metric.as_str().trim_start_matches("gpa."));
    }
    for condition in FailCondition::ALL {
        assert_eq!(json!(condition), condition.as_str().trim_start_matches("path."));
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
fn labels_that_fail_by_default_are_those_of_the_row() {
    let written = |labels: serde_json::Value| serde_json::from_value::<Vec<String>>(labels).unwrap();
    for (metric, failing) in [
        ("error_detection", written(json!(FailingErrors::default()))),
        ("avoidance", written(json!(FailingAvoidances::default()))),
    ] {
        let row = spec(metric).unwrap();
        let mut expected = row.fail_labels.to_vec();
        let mut failing: Vec<&str> = failing.iter().map(String::as_str).collect();
        expected.sort_unstable();
        failing.sort_unstable();
        assert_eq!(failing, expected, "{metric}");
    }
    let errors =
        [ErrorLabel::System, ErrorLabel::Tool, ErrorLabel::Api].map(|label| (label as usize, json!(label)));
    let avoidances =
        [AvoidanceLabel::MissingKnowledge, AvoidanceLabel::PolicyRestriction, AvoidanceLabel::Other];
    let avoidances = avoidances.map(|label| (label as usize, json!(label)));
    for (metric, by_index) in [("error_detection", errors), ("avoidance", avoidances)] {
        for (index, name) in by_index {
            assert_eq!(json!(labels(spec(metric).unwrap())[index]), name, "{metric}");
        }
    }
}
