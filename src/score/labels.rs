//! Labels of traces.
//!
//! In: JSON as in [`SHAPE`], or annotations of the TRAIL benchmark. Out: [`TraceLabels`].
//! A span without a label is correct, unless the trace is `partial`: then the span is unknown.

use std::collections::BTreeMap;

use serde::Deserialize;
use verdict_eval::metrics::Severity;
use verdict_eval::metrics::spec;

use super::trail::ratings::PASSES;
use super::trail::{Annotation, Annotations, CategoryLabel, impact};

/// The JSON shape of a file of labels, for `--help`.
pub const SHAPE: &str = r#"{ "traces": [{
    "trace_id": "hex",
    "expected": "pass" | "fail",           the trace as a whole; optional
    "partial": false,                      true: spans without a label were not examined
    "scores": { "completeness": 3 },       labelled scores of the trace, by metric, on its scale
    "spans": [{
      "span_id": "hex",
      "expected": "pass" | "fail",         fail unless said otherwise
      "category": "Formatting Errors",     optional: what is wrong
      "severity": "low" | "medium" | "high",
      "metric": "tool_completeness",       optional: the label applies to this metric alone
      "score": 2                           optional, with metric: labelled score on its scale
    }]
}] }"#;

const SEVERITIES: [Severity; 3] = [Severity::Low, Severity::Medium, Severity::High];

/// A file of labels.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelFile {
    pub traces: Vec<TraceLabels>,
}

/// The labels of a trace and its spans.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceLabels {
    /// In hex.
    pub trace_id: String,
    pub expected: Option<Expected>,
    /// Whether spans without a label were not examined.
    #[serde(default)]
    pub partial: bool,
    /// Scores of the whole trace by metric.
    #[serde(default)]
    pub scores: BTreeMap<String, f64>,
    #[serde(default)]
    pub spans: Vec<SpanLabel>,
}

/// The labelled verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    Pass,
    #[default]
    Fail,
}

/// The label of a span.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpanLabel {
    /// In hex.
    pub span_id: String,
    #[serde(default)]
    pub expected: Expected,
    /// Category of the error.
    pub category: Option<String>,
    pub severity: Option<Severity>,
    /// The only metric that the label applies to; `None` if it applies to every metric that detects its category.
    pub metric: Option<String>,
    /// Labelled score of that metric.
    pub score: Option<f64>,
}

impl SpanLabel {
    /// Whether the label applies to `metric`: it names the metric, or it names none and its category, if
    /// any, is one that the metric detects.
    pub fn applies_to(&self, metric: &str) -> bool {
        match (&self.metric, &self.category) {
            (Some(labelled_metric), _) => labelled_metric == metric,
            (None, None) => true,
            (None, Some(category)) => CategoryLabel::read(category).category().is_none_or(|category| {
                let detected = spec(metric).map_or(&[][..], |row| row.categories);
                detected.is_empty() || detected.contains(&category)
            }),
        }
    }
}

impl TraceLabels {
    /// Labels of an annotated trace of the TRAIL benchmark.
    pub fn from_trail(trace_id: &str, annotations: &Annotations) -> TraceLabels {
        let expected = |overall| if overall >= PASSES { Expected::Pass } else { Expected::Fail };
        let spans = annotations.errors.iter().map(|error| SpanLabel {
            span_id: error.location.clone(),
            category: Some(error.category.clone()),
            severity: SEVERITIES.into_iter().find(|severity| impact(*severity) == error.impact),
            ..SpanLabel::default()
        });
        TraceLabels {
            trace_id: trace_id.to_owned(),
            expected: annotations.ratings.overall().map(expected),
            spans: spans.collect(),
            ..TraceLabels::default()
        }
    }

    /// The failing labels as annotations, so that the tables of annotations apply to them.
    pub fn annotations(&self) -> Vec<Annotation> {
        let failing = self.spans.iter().filter(|label| label.expected == Expected::Fail);
        let annotation = |label: &SpanLabel| Annotation {
            category: label.category.clone().unwrap_or_default(),
            location: label.span_id.clone(),
            impact: label.severity.map(impact).unwrap_or_default(),
            ..Annotation::default()
        };
        failing.map(annotation).collect()
    }

    /// Whether the labels of `spans` (hex ids) contain an error that `metric` detects. `None` if the spans
    /// are unknown.
    pub fn fails<'a>(&self, metric: &str, mut spans: impl Iterator<Item = &'a str>) -> Option<bool> {
        let mut is_examined = !self.partial;
        let has_error = spans.any(|span| {
            let mut span_labels = self.spans.iter().filter(|l| l.span_id == span && l.applies_to(metric));
            span_labels.any(|label| {
                is_examined = true;
                label.expected == Expected::Fail
            })
        });
        is_examined.then_some(has_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(spans: &str, partial: bool) -> TraceLabels {
        let text = format!(r#"{{"traces": [{{"trace_id": "t", "partial": {partial}, "spans": {spans}}}]}}"#);
        serde_json::from_str::<LabelFile>(&text).unwrap().traces.remove(0)
    }

    #[test]
    fn label_applies_to_the_metrics_that_detect_its_category() {
        let t = labels(r#"[{"span_id": "a", "category": "formatting"}]"#, false);
        assert_eq!(t.fails("instruction_following", ["a"].into_iter()), Some(true));
        assert_eq!(t.fails("tool_abuse", ["a"].into_iter()), Some(false));
        assert_eq!(t.fails("a_metric_of_ones_own", ["b", "a"].into_iter()), Some(true));
        assert_eq!(t.fails("instruction_following", ["b"].into_iter()), Some(false));
    }

    #[test]
    fn unlabelled_spans_of_a_partial_trace_are_unknown() {
        let t = labels(
            r#"[{"span_id": "a", "metric": "avoidance"}, {"span_id": "b", "expected": "pass"}]"#,
            true,
        );
        assert_eq!(t.fails("avoidance", ["a"].into_iter()), Some(true));
        assert_eq!(t.fails("tokens", ["a"].into_iter()), None);
        assert_eq!(t.fails("tokens", ["b"].into_iter()), Some(false));
    }

    #[test]
    fn unknown_keys_are_faults() {
        assert!(serde_json::from_str::<LabelFile>(r#"{"traces": [{"trace_id": "t", "span": []}]}"#).is_err());
    }

    #[test]
    fn documented_shape_is_read() {
        // Comments are removed, and the first of each choice is taken.
        let mut text = String::new();
        for line in SHAPE.lines() {
            let line = line.split("  ").find(|part| part.trim().starts_with(['"', '{', '}'])).unwrap_or("");
            let (before, after) = line.split_once(" | ").unwrap_or((line, ""));
            text.push_str(before);
            text.push_str(if after.ends_with(',') { "," } else { "" });
        }
        let read: LabelFile = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert_eq!(read.traces[0].spans[0].severity, Some(Severity::Low));
        assert_eq!(read.traces[0].scores["completeness"], 3.0);
    }
}
