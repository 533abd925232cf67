//! What the pipeline counts about itself, with every cell resolved beforehand.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verdict_eval::{CustomMetric, EvaluatedTrace, Progress, metrics};
use verdict_otlp::trace::CloseReason;

use crate::assemble::Tally;
use crate::receive::Refused;
use crate::telemetry::{self as telemetry, MetricCells, Telemetry};

#[derive(Debug)]
pub(super) struct Meter {
    telemetry: Arc<Telemetry>,
    metrics: HashMap<&'static str, MetricCells>,
}

impl Meter {
    /// `custom` are the metrics that were added.
    pub fn new(telemetry: Arc<Telemetry>, custom: &[CustomMetric]) -> Meter {
        // Rules are timed by names of their own, measurements are counted by those of the table.
        let rows = metrics::TABLE.iter().chain(custom.iter().map(|metric| metric.row));
        let names = metrics::names().chain(rows.map(|row| row.name));
        let metrics = names.map(|name| (name, telemetry.verdicts.metric(name))).collect();
        Meter { telemetry, metrics }
    }

    pub fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// A request was read: spans that are as they should be, and others.
    pub fn received(&self, good: u64, bad: u64) {
        let receive = &self.telemetry.receive;
        receive.spans_received.inc_by(good.saturating_add(bad));
        if bad > 0 {
            receive.refused("malformed", bad);
        }
    }

    /// Its good spans were taken, or not.
    pub fn taken(&self, good: u64, taken: &Result<(), Refused>) {
        let receive = &self.telemetry.receive;
        let why = match taken {
            Ok(()) => {
                receive.spans_accepted.inc_by(good);
                return;
            }
            Err(Refused::Malformed(_)) => "malformed",
            Err(Refused::Overloaded { .. }) => "overloaded",
            Err(Refused::Unsupported(_)) => "unsupported",
            Err(Refused::ShuttingDown) => "shutting_down",
        };
        receive.refused(why, good);
    }

    pub fn tally(&self, tally: Tally) {
        let traces = &self.telemetry.traces;
        if tally.duplicates > 0 {
            traces.duplicates.inc_by(tally.duplicates as u64);
        }
        if tally.late > 0 {
            traces.late.inc_by(tally.late as u64);
        }
    }

    /// Measures how long each metric runs over one trace.
    pub fn stopwatch(&self) -> impl FnMut(Progress) {
        let mut since = Instant::now();
        move |progress| {
            let now = Instant::now();
            if let Progress::Ran(metric) = progress
                && let Some(cells) = self.metrics.get(metric)
            {
                cells.took(now - since);
            }
            since = now;
        }
    }

    pub fn evaluated(&self, evaluated: &EvaluatedTrace, replaced: usize) {
        for m in &evaluated.measurements {
            let result = result(m.outcome.as_ref().ok().map(|o| o.passed));
            if let Some(cells) = self.metrics.get(m.metric) {
                cells.count(result);
            }
        }
        if evaluated.summary.reason != CloseReason::Late {
            self.telemetry.verdicts.trace(result(evaluated.summary.passed));
        }
        self.telemetry.traces.closed(evaluated.summary.reason);
        self.telemetry.traces.attributes_replaced.inc_by(replaced as u64);
    }

    pub fn harmful_call(&self) {
        self.telemetry.traces.harmful_calls.inc();
    }

    pub fn unevaluated(&self) {
        self.telemetry.traces.unjudged.inc();
    }

    pub fn quarantined(&self) {
        self.telemetry.traces.quarantined.inc();
    }

    pub fn exported(&self, time: Duration) {
        self.telemetry.verdicts.close_to_export(time);
    }

    /// Traces, spans and bytes of one shard, before and now.
    pub fn buffered(&self, before: (usize, usize, usize), now: (usize, usize, usize)) {
        let traces = &self.telemetry.traces;
        let by = |before: usize, now: usize| now as i64 - before as i64;
        traces.open.inc_by(by(before.0, now.0));
        traces.buffered_spans.inc_by(by(before.1, now.1));
        traces.buffered_bytes.inc_by(by(before.2, now.2));
    }
}

fn result(passed: Option<bool>) -> telemetry::Judged {
    match passed {
        Some(true) => telemetry::Judged::Pass,
        Some(false) => telemetry::Judged::Fail,
        None => telemetry::Judged::Unmeasured,
    }
}
