//! Self-metrics of the pipeline. The cells of every metric are looked up at start.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use verdict_eval::metrics::{MetricSpec, Unmeasured};
use verdict_eval::{EvaluatedTrace, Progress, metrics};
use verdict_otlp::trace::CloseReason;
use verdict_telemetry::LogThrottle;

use super::agent_metrics;
use crate::assemble::SpanTally;
use crate::receive::Refused;
use crate::telemetry::{MetricCells, Telemetry};

/// Counts the requests and the evaluated traces of the pipeline.
#[derive(Debug)]
pub(super) struct Meter {
    pub telemetry: Arc<Telemetry>,
    /// The cells of each metric and each rule, by name.
    cells: ArcSwap<HashMap<&'static str, MetricCells>>,
    throttle: LogThrottle,
}

impl Meter {
    /// `added_metrics` are the metrics that are not built in.
    pub(super) fn new(
        telemetry: Arc<Telemetry>,
        added_metrics: impl Iterator<Item = &'static MetricSpec>,
    ) -> Meter {
        // The durations of rules are recorded by the names of rules, measurements are counted by those of rows.
        let rows = metrics::TABLE.iter().chain(added_metrics);
        let names = metrics::names().chain(rows.map(|row| row.name));
        let cells: HashMap<_, _> = names.map(|name| (name, telemetry.verdicts.metric(name))).collect();
        Meter { telemetry, cells: ArcSwap::from_pointee(cells), throttle: LogThrottle::default() }
    }

    /// Adds the metrics that a reload has added. Those of a metric that it removed remain.
    pub(super) fn add_metrics(&self, added_metrics: impl Iterator<Item = &'static MetricSpec>) {
        let current = self.cells.load_full();
        let new: Vec<_> =
            added_metrics.map(|row| row.name).filter(|name| !current.contains_key(name)).collect();
        if !new.is_empty() {
            let mut all = HashMap::clone(&current);
            all.extend(new.into_iter().map(|name| (name, self.telemetry.verdicts.metric(name))));
            self.cells.store(Arc::new(all));
        }
    }

    /// Counts the valid and the malformed spans of a request.
    pub(super) fn count_received(&self, valid: u64, malformed: u64) {
        let receive = &self.telemetry.receive;
        receive.spans_received.inc_by(valid.saturating_add(malformed));
        if malformed > 0 {
            receive.count_refused("malformed", malformed);
        }
    }

    /// Counts the valid spans of a request as accepted or refused.
    pub(super) fn count_answered(&self, valid: u64, result: &Result<(), Refused>) {
        let receive = &self.telemetry.receive;
        let reason = match result {
            Ok(()) => {
                receive.spans_accepted.inc_by(valid);
                return;
            }
            Err(Refused::Malformed(_)) => "malformed",
            Err(Refused::Overloaded { .. }) => "overloaded",
            Err(Refused::Unsupported(_) | Refused::Undeliverable(_)) => "unsupported",
            Err(Refused::ShuttingDown) => "shutting_down",
        };
        receive.count_refused(reason, valid);
    }

    /// Counts duplicates and late spans.
    pub(super) fn count_tally(&self, tally: SpanTally) {
        let traces = &self.telemetry.traces;
        if tally.duplicates > 0 {
            traces.duplicates.inc_by(tally.duplicates as u64);
        }
        if tally.late > 0 {
            traces.late.inc_by(tally.late as u64);
        }
    }

    /// A callback that records how long each rule runs on one trace.
    pub(super) fn stopwatch(&self) -> impl FnMut(Progress) {
        let mut since = Instant::now();
        move |progress| {
            let now = Instant::now();
            if let Progress::Ran(metric) = progress
                && let Some(cells) = self.cells.load().get(metric)
            {
                cells.record_duration(now - since);
            }
            since = now;
        }
    }

    /// Counts an evaluated trace. `replaced` is the number of attributes of its spans that verdicts replace.
    pub(super) fn count_evaluated(&self, evaluated: &EvaluatedTrace, replaced: usize) {
        agent_metrics::count(&self.telemetry.agents, evaluated);
        let mut limited: Vec<&str> = Vec::new();
        let metrics = self.cells.load();
        for m in &evaluated.measurements {
            let Some(cells) = metrics.get(m.metric) else {
                if let Some(suppressed) = self.throttle.allow(m.metric) {
                    tracing::error!(
                        metric = m.metric,
                        suppressed,
                        "a measurement is not counted in the self-metrics, since its metric is not known there. This is a bug"
                    );
                }
                continue;
            };
            cells.count(m.outcome.as_ref().ok().map(|measured| measured.passed).into());
            let Err(reason) = m.outcome else { continue };
            self.telemetry.verdicts.count_unmeasured(reason);
            if reason == Unmeasured::Limit {
                cells.limited.inc();
                if !limited.contains(&m.metric) {
                    limited.push(m.metric);
                }
            }
        }
        if !limited.is_empty() {
            let trace = evaluated.trace.tree.id;
            tracing::warn!(%trace, metrics = ?limited, "a trace exceeds the work that one trace may take; these metrics are unmeasured on some of its spans");
        }
        let Telemetry { traces, verdicts, .. } = &*self.telemetry;
        if evaluated.summary.close_reason != CloseReason::Late {
            verdicts.count_trace(evaluated.summary.passed.into());
        }
        traces.count_closed(evaluated.summary.close_reason);
        traces.attributes_replaced.inc_by(replaced as u64);
    }

    /// Updates the gauges of open traces by the change of one shard's traces, spans and bytes.
    pub(super) fn update_buffered(&self, before: (usize, usize, usize), now: (usize, usize, usize)) {
        let traces = &self.telemetry.traces;
        let delta = |before: usize, now: usize| now as i64 - before as i64;
        traces.open.inc_by(delta(before.0, now.0));
        traces.buffered_spans.inc_by(delta(before.1, now.1));
        traces.buffered_bytes.inc_by(delta(before.2, now.2));
    }
}

#[cfg(test)]
mod tests {
    use verdict_eval::metrics::Measurement;
    use verdict_eval::{Config, Evaluator};
    use verdict_otlp::trace::{ClosedTrace, TraceId};

    use super::*;

    fn closed() -> ClosedTrace {
        ClosedTrace {
            trace: TraceId([1; 16]),
            spans: Vec::new(),
            logs: Vec::new(),
            bytes: 0,
            close_reason: CloseReason::EndOfInput,
            incomplete: false,
            prior_verdict: None,
        }
    }

    /// The log output after measurements of these names, unmeasured for this reason, are counted three times.
    fn logged(meter: &Meter, names: &[&'static str], reason: Unmeasured) -> String {
        let evaluator = Evaluator::builder(&Config::default()).build().unwrap();
        let mut evaluated = evaluator.unmeasured(closed(), 0);
        for name in names.iter().cycle().take(3 * names.len()) {
            evaluated.measurements.push(Measurement::new(0, name, "test/1", Err(reason)));
        }
        crate::logging::testing::logged(|| meter.count_evaluated(&evaluated, 0))
    }

    #[test]
    fn measurements_beyond_the_work_budget_are_counted_and_logged_once_for_a_trace() {
        let meter = Meter::new(Telemetry::new(), std::iter::empty());
        let log = logged(&meter, &["tool_abuse", "avoidance"], Unmeasured::Limit);
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains(&format!("trace={}", TraceId([1; 16]))), "{log}");
        assert!(log.contains(r#"metrics=["tool_abuse", "avoidance"]"#), "{log}");
        assert_eq!(meter.cells.load()["tool_abuse"].limited.get(), 3);
        assert_eq!(meter.cells.load()["latency"].limited.get(), 0);
    }

    #[test]
    fn a_measurement_of_an_unknown_metric_is_logged() {
        let meter = Meter::new(Telemetry::new(), std::iter::empty());
        let log = logged(&meter, &["unlisted"], Unmeasured::NotApplicable);
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("metric=\"unlisted\""), "{log}");
    }
}
