//! A trace as one entry of a report: its header, result and failing measurements as text.

use verdict_eval::annotation::TraceHeader;
use verdict_eval::metrics::{Finding, Measurement};
use verdict_eval::{Emission, EvaluatedTrace};

use crate::telemetry::ResultLabel;

/// Maximum number of findings of one trace; the others are counted.
const MAX_FAILURES: usize = 20;

/// A trace in a report.
pub(super) struct ReportEntry {
    pub trace_id: String,
    pub result: ResultLabel,
    pub header: TraceHeader,
    pub failed_metrics: Vec<String>,
    /// The first failures, by span.
    pub failures: Vec<FailureEntry>,
    /// Failures beyond [`MAX_FAILURES`].
    pub omitted_failures: usize,
    /// Why nothing was measured, if there is one reason.
    pub unmeasured: Option<&'static str>,
}

/// A finding of a failing measurement, or the measurement itself if it has none.
pub(super) struct FailureEntry {
    pub span: String,
    pub metric: &'static str,
    pub category: Option<&'static str>,
    pub severity: Option<&'static str>,
    /// Empty where explanations are off.
    pub rationale: String,
}

impl ReportEntry {
    pub(super) fn new(evaluated: &EvaluatedTrace, emission: &Emission) -> ReportEntry {
        let EvaluatedTrace { trace, measurements, verdicts, summary, .. } = evaluated;
        let failing =
            measurements.iter().filter(|m| m.outcome.as_ref().is_ok_and(|measured| !measured.passed));
        let mut failures: Vec<FailureEntry> = failing
            .flat_map(|measurement| {
                let name =
                    trace.views.get(measurement.at).and_then(|view| view.name.as_deref()).unwrap_or_default();
                let findings = measurement.outcome.as_ref().map_or(&[][..], |measured| &measured.findings);
                let findings: Vec<&Finding> = findings.iter().filter(|f| !f.is_note()).collect();
                let failure = |f| FailureEntry::new(name, measurement, f, emission);
                if findings.is_empty() {
                    vec![failure(None)]
                } else {
                    findings.into_iter().map(|f| failure(Some(f))).collect()
                }
            })
            .collect();
        let omitted_failures = failures.len().saturating_sub(MAX_FAILURES);
        failures.truncate(MAX_FAILURES);
        ReportEntry {
            trace_id: trace.tree.id.to_string(),
            result: summary.passed.into(),
            header: TraceHeader::new(trace, emission),
            failed_metrics: verdicts.trace.failed_metrics.iter().map(ToString::to_string).collect(),
            failures,
            omitted_failures,
            unmeasured: summary.unmeasured_reason.map(|reason| reason.as_str()),
        }
    }

    /// Adds the changes by late spans of the trace. The header remains that of the trace.
    pub(super) fn revise(&mut self, late: ReportEntry) {
        self.result = late.result;
        self.unmeasured = late.unmeasured;
        let new_metrics =
            late.failed_metrics.into_iter().filter(|metric| !self.failed_metrics.contains(metric));
        let new_metrics: Vec<String> = new_metrics.collect();
        self.failed_metrics.extend(new_metrics);
        self.failures.extend(late.failures);
        self.omitted_failures += late.omitted_failures + self.failures.len().saturating_sub(MAX_FAILURES);
        self.failures.truncate(MAX_FAILURES);
    }

    /// Seconds from the first start to the last end.
    pub(super) fn seconds(&self) -> f64 {
        self.header.duration.unwrap_or(0) as f64 / 1e9
    }

    /// The task, else the name of the root.
    pub(super) fn title(&self) -> &str {
        self.header.task.as_deref().or(self.header.name.as_deref()).unwrap_or("unnamed trace")
    }
}

impl FailureEntry {
    fn new(span: &str, m: &Measurement, finding: Option<&Finding>, emission: &Emission) -> FailureEntry {
        let rationale = finding.and_then(|f| emission.disclose(&f.rationale));
        FailureEntry {
            span: span.to_owned(),
            metric: m.metric,
            category: finding.and_then(|f| f.category).map(|category| category.as_str()),
            severity: finding.map(|f| f.severity.as_str()),
            rationale: rationale.unwrap_or_default().into_owned(),
        }
    }

    /// `metric (category, severity): rationale`; unknown parts are omitted.
    pub(super) fn text(&self) -> String {
        let facts: Vec<&str> = [self.category, self.severity].into_iter().flatten().collect();
        let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
        let colon = if self.rationale.is_empty() { "" } else { ": " };
        format!("{}{facts}{colon}{}", self.metric, self.rationale)
    }
}
