//! All rule-based metrics, and the one call that runs them over a scene.
//!
//! In: a [`Scene`] and [`Settings`]. Out: [`Measurement`]s, ordered by span, then as the metrics
//! stand here. Never judged: evaluator spans and all beneath them, and cancelled spans. Wrappers
//! (a second span for one model call, an agent's mere creation) carry no leaf metric; only their
//! own errors count.

use super::memo::Memo;
use super::whereabouts;
use super::{Measurement, Metric, Settings, Step, View};
use crate::recognise::Scene;
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
pub fn run(scene: &Scene, settings: &Settings) -> Vec<Measurement> {
    run_each(scene, settings, &mut |_| ())
}

/// As [`run`]; `after` hears of each metric when it is through with the scene, so that a caller
/// with a clock can tell what each costs.
pub fn run_each(scene: &Scene, settings: &Settings, after: &mut dyn FnMut(&'static str)) -> Vec<Measurement> {
    let memo = Memo::new();
    let judged = judged(scene);
    let mut out = Vec::new();
    for metric in rules() {
        let ruled = settings.ruled(metric.name());
        let everywhere = settings.everywhere(metric.name());
        for (at, reading) in scene.readings.iter().enumerate() {
            let applies = ruled
                && judged.get(at).copied().unwrap_or(false)
                && (!reading.wrapper || metric.name() == super::error_detection::NAME)
                && everywhere.unwrap_or_else(|| settings.enabled(metric.name(), scene, at));
            if !applies {
                continue;
            }
            let view = View { scene, at, settings, memo: &memo, rules: &[] };
            if let Step::Done(measurements) = metric.step(&view, &[]) {
                out.extend(measurements);
            }
        }
        after(metric.name());
    }
    // Stable, so that the metrics' order holds within a span.
    out.sort_by_key(|m| m.at);
    whereabouts::locate(scene, &memo, &mut out);
    out
}

/// Which spans may be judged at all.
pub(super) fn judged(scene: &Scene) -> Vec<bool> {
    let mut evaluated = vec![false; scene.readings.len()];
    for &at in scene.tree.order() {
        let beneath = scene.tree.parent(at).is_some_and(|up| evaluated.get(up).copied().unwrap_or(false));
        let own = scene.readings.get(at).is_some_and(|r| r.kind == Kind::Evaluator);
        if let Some(mark) = evaluated.get_mut(at) {
            *mark = beneath || own;
        }
    }
    let cancelled = scene.readings.iter().map(|r| r.cancelled);
    evaluated.iter().zip(cancelled).map(|(evaluated, cancelled)| !evaluated && !cancelled).collect()
}
