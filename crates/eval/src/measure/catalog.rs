//! The one call that runs every rule over a trace.
//!
//! In: a [`AgentTrace`] and [`Settings`]. Out: [`Measurement`]s, ordered by span, then as the rows of the
//! [`table`](super::table). Never judged: evaluator spans and all beneath them, and cancelled spans.
//! Wrappers (a second span for one model call, an agent's mere creation) carry no leaf metric; only
//! their own errors count.

use super::ask::JudgedMetric;
use super::evaluated_spans::evaluated_spans;
use super::memo::Memo;
use super::table::{MetricSpec, TABLE};
use super::{Context, Measurement, Metric, Settings, Step, locate_quotes};
use crate::recognise::AgentTrace;

/// A metric that asks judges, with its row.
pub(crate) type Asking<'a> = (&'static MetricSpec, Box<dyn Metric + 'a>);

/// Every metric that rules answer, with its row.
pub(crate) fn rules() -> impl Iterator<Item = (&'static MetricSpec, &'static dyn Metric)> {
    TABLE.iter().filter_map(|row| Some((row, row.rules?)))
}

/// Every metric that asks judges where the settings name any for it.
pub(crate) fn asking(settings: &Settings) -> Vec<Asking<'_>> {
    // Rows with a way of asking of their own come after the others.
    let common = super::table::asked().map(|row| (row, Box::new(JudgedMetric(row)) as Box<dyn Metric>));
    let own = TABLE.iter().filter_map(|row| Some((row, Box::new(row.asks?) as Box<dyn Metric>)));
    let custom = settings.custom.iter().map(|own| (own.row, Box::new(&*own.metric) as Box<dyn Metric>));
    common.chain(own).chain(custom).filter(|(row, _)| !settings.judges(row).is_empty()).collect()
}

/// Names of the rules, under which their work is timed: as in the table, but for `path`.
pub fn names() -> impl Iterator<Item = &'static str> {
    rules().map(|(row, _)| row.timed())
}

/// Runs every rule over every span that may be judged.
pub fn run(trace: &AgentTrace, settings: &Settings) -> Vec<Measurement> {
    run_each(trace, settings, &mut |_| ())
}

/// As [`run`]; `after` hears of each metric when it is through with the trace, so that a caller
/// with a clock can tell what each costs.
pub(crate) fn run_each(
    trace: &AgentTrace,
    settings: &Settings,
    after: &mut dyn FnMut(&'static str),
) -> Vec<Measurement> {
    let memo = Memo::new();
    let judged = evaluated_spans(trace);
    let mut out = Vec::new();
    let custom = settings.custom.iter().map(|own| (own.row, &*own.metric));
    let rules = rules().map(|(row, metric)| -> (_, &dyn Metric) { (row, metric) });
    for (row, metric) in rules.chain(custom) {
        let own = settings.own(row);
        let everywhere = own.everywhere();
        let on = settings.ruled(row) && everywhere != Some(false);
        for (at, view) in trace.views.iter().enumerate().filter(|_| on) {
            let applies = judged.get(at).copied().unwrap_or(false)
                && (!view.wrapper || row.on_wrappers)
                && everywhere.unwrap_or_else(|| own.enabled(trace, at));
            if !applies {
                continue;
            }
            let context = Context { trace, at, settings, memo: &memo, rules: &[] };
            if let Step::Done(measurements) = metric.step(&context, &[]) {
                out.extend(measurements);
            }
        }
        after(row.timed());
    }
    // Stable, so that the metrics' order holds within a span.
    out.sort_by_key(|m| m.at);
    locate_quotes::locate(trace, &memo, &mut out);
    out
}
