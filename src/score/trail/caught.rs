//! Annotated errors that each metric's judge caught and localised, by impact (paper 000, tables 1 to 16).
//!
//! In: annotated errors and the findings of a run. Out: [`CaughtErrors`]. The unit is the annotated error. An error
//! is *mapped* to the metrics that are designed to detect its category (table 1). A metric *catches* it if one of
//! its findings identifies it, and *localises* it if such a finding cites its span. A metric that catches an
//! error that is not mapped to it has a false positive, as in the paper.
//!
//! A judge decides whether a finding identifies an error ([`super::adjudicate`]), in place of the paper's annotators.
//! Without a judge, [`by_rules`] does: the finding has the error's category, or its metric is designed for that
//! category and it cites the error's span. The rules cannot distinguish two errors of one category in a trace, so they
//! overstate what is caught.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use verdict_eval::metrics::{Category, Measurement};
use verdict_eval::metrics::{TABLE, spec};
use verdict_eval::trace::AgentTrace;
use verdict_otlp::trace::SpanId;

use super::Annotation;
use super::benchmark::{IMPACTS, impact_index};
use super::placement::Predicted;
use crate::score::counts::Confusion;

/// A finding of a metric, as evidence that it identified an error.
#[derive(Clone, PartialEq, Debug)]
pub struct ErrorClaim {
    pub metric: &'static str,
    pub category: Option<Category>,
    /// The spans that the finding names, in hex: of the measurement, of the quotation, of the origin, and the cited
    /// ones.
    pub spans: BTreeSet<String>,
    pub rationale: String,
    pub quote: String,
}

/// The claims of a trace's measurements.
pub fn claims(trace: &AgentTrace, measurements: &[Measurement], predicted: Predicted) -> Vec<ErrorClaim> {
    let id = |at: usize| trace.tree.spans.get(at).map(|span| span.id);
    let measured = measurements.iter().filter_map(|m| Some((m, m.outcome.as_ref().ok()?)));
    let included = measured.filter(|(_, measured)| predicted.includes(measured));
    let claim = |(m, finding): (&Measurement, &verdict_eval::metrics::Finding)| {
        let origin = finding.origin.and_then(id);
        let named_spans =
            [id(m.at), finding.seen_in, origin].into_iter().flatten().chain(finding.cited.iter().copied());
        ErrorClaim {
            metric: m.metric,
            category: finding.category,
            spans: named_spans.map(|span: SpanId| span.to_string()).collect(),
            rationale: finding.rationale.clone(),
            quote: finding.quote.clone(),
        }
    };
    let findings = included.flat_map(|(m, measured)| measured.findings.iter().map(move |f| (m, f)));
    findings.filter(|(_, finding)| !finding.is_note()).map(claim).collect()
}

/// Whether `metric` is designed to detect errors of this category.
fn detects(metric: &str, category: Category) -> bool {
    spec(metric).is_some_and(|row| row.categories.contains(&category))
}

/// The claims that identify an error, by category and span.
pub fn by_rules(error: &Annotation, claims: &[ErrorClaim]) -> Vec<usize> {
    let Some(category) = error.label().category() else { return Vec::new() };
    let identifies = |claim: &ErrorClaim| {
        claim.category == Some(category)
            || detects(claim.metric, category) && claim.spans.contains(&error.location)
    };
    (0..claims.len()).filter(|&i| identifies(&claims[i])).collect()
}

/// An annotated error with the metrics that are designed for it, caught it and localised it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ErrorCase {
    impact: usize,
    mapped: BTreeSet<&'static str>,
    caught: BTreeSet<&'static str>,
    localised: BTreeSet<&'static str>,
}

impl ErrorCase {
    /// The case of an error that the claims at `identified` identify.
    pub fn new(error: &Annotation, claims: &[ErrorClaim], identified: &[usize]) -> ErrorCase {
        let category = error.label().category();
        let rows = TABLE.iter().filter(|row| category.is_some_and(|c| row.categories.contains(&c)));
        let metrics_where = |matches: &dyn Fn(&ErrorClaim) -> bool| {
            let matching_claims =
                identified.iter().filter_map(|&i| claims.get(i)).filter(|claim| matches(claim));
            matching_claims.map(|claim| claim.metric).collect()
        };
        ErrorCase {
            impact: impact_index(&error.impact),
            mapped: rows.map(|row| row.name).collect(),
            caught: metrics_where(&|_| true),
            localised: metrics_where(&|claim| claim.spans.contains(&error.location)),
        }
    }
}

/// Errors of one impact, and those that any metric caught or localised (tables 2 and 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct AnyMetric {
    pub errors: usize,
    pub caught: usize,
    pub localised: usize,
}

/// One metric's errors by impact: predicted is caught (or localised), actual is mapped.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct MetricErrors {
    /// The counts for each impact, and for all impacts under `all`.
    pub caught: BTreeMap<&'static str, Confusion>,
    pub localised: BTreeMap<&'static str, Confusion>,
}

/// The tables of caught and localised errors.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct CaughtErrors {
    /// The figures for each impact, and for all impacts under `all`.
    pub any_metric: BTreeMap<&'static str, AnyMetric>,
    pub metrics: BTreeMap<&'static str, MetricErrors>,
}

/// The key of all impacts together.
pub const ALL: &str = "all";

impl CaughtErrors {
    /// The counts of errors in runs in which `measured` metrics have a value. A metric that is designed for no category
    /// and caught nothing has no row.
    pub fn from_cases(cases: &[ErrorCase], measured: &BTreeSet<&'static str>) -> CaughtErrors {
        let is_designed = |name: &str| spec(name).is_some_and(|row| !row.categories.is_empty());
        let caught: BTreeSet<&str> = cases.iter().flat_map(|case| case.caught.iter().copied()).collect();
        let rows = measured.iter().copied().filter(|name| is_designed(name) || caught.contains(name));
        let mut out = CaughtErrors::default();
        for metric in rows {
            let metric_errors = out.metrics.entry(metric).or_default();
            for case in cases {
                let mapped = case.mapped.contains(metric);
                for impact in [IMPACTS[case.impact], ALL] {
                    metric_errors
                        .caught
                        .entry(impact)
                        .or_default()
                        .count(case.caught.contains(metric), mapped);
                    metric_errors
                        .localised
                        .entry(impact)
                        .or_default()
                        .count(case.localised.contains(metric), mapped);
                }
            }
        }
        for case in cases {
            for impact in [IMPACTS[case.impact], ALL] {
                let any = out.any_metric.entry(impact).or_default();
                any.errors += 1;
                any.caught += usize::from(!case.caught.is_empty());
                any.localised += usize::from(!case.localised.is_empty());
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(category: &str, location: &str, impact: &str) -> Annotation {
        let [category, location, impact] = [category, location, impact].map(str::to_owned);
        Annotation { category, location, impact, ..Annotation::default() }
    }

    fn claim(metric: &'static str, category: Option<Category>, span: &str) -> ErrorClaim {
        let (rationale, quote) = Default::default();
        ErrorClaim { metric, category, spans: BTreeSet::from([span.to_owned()]), rationale, quote }
    }

    #[test]
    fn a_finding_identifies_by_category_or_by_span_and_the_metrics_design() {
        let claims = [
            claim("instruction_following", Some(Category::FormattingErrors), "b"),
            claim("tool_abuse", Some(Category::ResourceAbuse), "a"),
            claim("tool_completeness", None, "a"),
            claim("tool_completeness", None, "b"),
        ];
        // The category elsewhere; the span, by a metric that is designed for it.
        assert_eq!(by_rules(&error("Formatting Errors", "a", "LOW"), &claims), [0, 2]);
        assert_eq!(by_rules(&error("Goal Deviation", "a", "LOW"), &claims), [0usize; 0]);
        assert_eq!(by_rules(&error("unheard of", "a", "LOW"), &claims), [0usize; 0]);
    }

    #[test]
    fn errors_are_counted_by_metric_and_impact() {
        let claims = [
            claim("instruction_following", Some(Category::FormattingErrors), "b"),
            claim("reasoning_integrity", None, "a"),
        ];
        let errors = [
            error("Formatting Errors", "a", "LOW"),
            error("Formatting Errors", "b", "HIGH"),
            error("Goal Deviation", "a", "HIGH"),
        ];
        // The second claim identifies the third error, for which its metric is not designed.
        let identified: [&[usize]; 3] = [&[0], &[0], &[1]];
        let cases: Vec<ErrorCase> = errors
            .iter()
            .zip(identified)
            .map(|(error, indices)| ErrorCase::new(error, &claims, indices))
            .collect();
        let measured = BTreeSet::from(["instruction_following", "reasoning_integrity", "latency"]);
        let tables = CaughtErrors::from_cases(&cases, &measured);
        let any = |impact| tables.any_metric[impact];
        assert_eq!(any(ALL), AnyMetric { errors: 3, caught: 3, localised: 2 });
        assert_eq!(any("LOW"), AnyMetric { errors: 1, caught: 1, localised: 0 });
        assert_eq!(any("HIGH"), AnyMetric { errors: 2, caught: 2, localised: 2 });
        let following = &tables.metrics["instruction_following"];
        assert_eq!(following.caught[ALL], Confusion { tp: 2, fp: 0, fn_: 0, tn: 1 });
        assert_eq!(following.localised[ALL], Confusion { tp: 1, fp: 0, fn_: 1, tn: 1 });
        assert_eq!(following.localised["LOW"], Confusion { tp: 0, fp: 0, fn_: 1, tn: 0 });
        let reasoning = &tables.metrics["reasoning_integrity"];
        assert_eq!(reasoning.caught[ALL], Confusion { tp: 0, fp: 1, fn_: 0, tn: 2 });
        assert!(!tables.metrics.contains_key("latency"), "designed for no category");
    }
}
