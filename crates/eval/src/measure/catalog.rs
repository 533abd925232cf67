//! All rule-based metrics, and the one call that runs them over a trace.
//!
//! In: a [`AgentTrace`] and [`Settings`]. Out: [`Measurement`]s, ordered by span, then as the metrics
//! stand here. Never judged: evaluator spans and all beneath them, and cancelled spans. Wrappers
//! (a second span for one model call, an agent's mere creation) carry no leaf metric; only their
//! own errors count.

use super::locate_quotes;
use super::memo::Memo;
use super::{Context, Measurement, Metric, Settings, Step};
use crate::recognise::AgentTrace;
use verdict_otlp::trace::Kind;

/// Every metric of this version that rules answer.
pub fn rules() -> Vec<Box<dyn Metric>> {
    vec![
        Box::new(super::error_detection::ErrorDetection),
        Box::new(super::avoidance::Avoidance),
        Box::new(super::instruction_following::InstructionFollowing),
        Box::new(super::tool_completeness::ToolCompleteness),
        Box::new(super::reasoning::ReasoningIntegrity),
        Box::new(super::latency::Latency),
        Box::new(super::tokens::Tokens),
        Box::new(super::agent::plan_efficiency::PlanEfficiency),
        Box::new(super::agent::tool_coverage::ToolCoverage),
        Box::new(super::agent::tool_abuse::ToolAbuse),
        Box::new(super::agent::completeness::Completeness),
        Box::new(super::plan::metric::PlanRules),
        Box::new(super::path::metric::Paths),
        Box::new(super::checklist::Checklist { asks: false }),
    ]
}

/// Every metric that asks judges, where the settings name any for it.
pub fn asking(settings: &Settings) -> Vec<Box<dyn Metric>> {
    let mut all = super::ask::metrics();
    all.push(Box::new(super::plan::metric::PlanJudged));
    all.push(Box::new(super::checklist::Checklist { asks: true }));
    all.into_iter().filter(|metric| !settings.judges(metric.name()).is_empty()).collect()
}

/// Names of [`rules`], as in the configuration and, but for `path`, in attribute keys.
pub fn names() -> impl Iterator<Item = &'static str> {
    rules().into_iter().map(|metric| metric.name())
}

/// Names of measurements that may be made, and of the rules themselves.
pub fn written() -> impl Iterator<Item = &'static str> {
    let asked = super::ask::metrics().into_iter().map(|metric| metric.name());
    let asked = asked.filter(|asked| !names().any(|name| name == *asked));
    names().chain(super::path::metric::NAMES).chain(asked)
}

/// Runs every rule over every span that may be judged.
pub fn run(trace: &AgentTrace, settings: &Settings) -> Vec<Measurement> {
    run_each(trace, settings, &mut |_| ())
}

/// As [`run`]; `after` hears of each metric when it is through with the trace, so that a caller
/// with a clock can tell what each costs.
pub fn run_each(
    trace: &AgentTrace,
    settings: &Settings,
    after: &mut dyn FnMut(&'static str),
) -> Vec<Measurement> {
    let memo = Memo::new();
    let judged = judged(trace);
    let mut out = Vec::new();
    for metric in rules() {
        let ruled = settings.ruled(metric.name());
        let everywhere = settings.everywhere(metric.name());
        for (at, view) in trace.views.iter().enumerate() {
            let applies = ruled
                && judged.get(at).copied().unwrap_or(false)
                && (!view.wrapper || metric.name() == super::error_detection::NAME)
                && everywhere.unwrap_or_else(|| settings.enabled(metric.name(), trace, at));
            if !applies {
                continue;
            }
            let context = Context { trace, at, settings, memo: &memo, rules: &[] };
            if let Step::Done(measurements) = metric.step(&context, &[]) {
                out.extend(measurements);
            }
        }
        after(metric.name());
    }
    // Stable, so that the metrics' order holds within a span.
    out.sort_by_key(|m| m.at);
    locate_quotes::locate(trace, &memo, &mut out);
    out
}

/// Which spans may be judged at all.
pub(super) fn judged(trace: &AgentTrace) -> Vec<bool> {
    let mut evaluated = vec![false; trace.views.len()];
    for &at in trace.tree.order() {
        let beneath = trace.tree.parent(at).is_some_and(|up| evaluated.get(up).copied().unwrap_or(false));
        let own = trace.views.get(at).is_some_and(|r| r.kind == Kind::Evaluator);
        if let Some(mark) = evaluated.get_mut(at) {
            *mark = beneath || own;
        }
    }
    let cancelled = trace.views.iter().map(|r| r.cancelled);
    evaluated.iter().zip(cancelled).map(|(evaluated, cancelled)| !evaluated && !cancelled).collect()
}
