//! Which questions are asked at all: of which traces, about which spans, and where there is doubt.
//!
//! In: a metric, a span, what the rules found in the trace. Out: whether it is asked; if not,
//! whether that is to be said. Sampling goes by the trace's id, so that every process takes the same
//! traces, mixed anew, so that it is independent of samplers upstream that go by the id too.

use super::Asker;
use super::config::{When, matches};
use super::digest::{digest, share};
use super::run;
use super::step;
use super::topic::{About, topic};
use crate::measure::rounds::Sight;
use crate::measure::{Measurement, Reason};
use crate::trace::Idx;

/// What becomes of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// It is asked.
    Ask,
    /// It is not, and the metric says why.
    Leave(Reason),
    /// There is none, or its answer would not count.
    Skip,
}

/// What filters look at of a trace, worked out once.
#[derive(Clone, Copy, Debug)]
pub struct Doubt {
    /// Nothing is known yet but that the trace is open.
    early: bool,
    /// The rules found a failure somewhere.
    failing: bool,
}

impl Doubt {
    /// Of a trace that has closed.
    pub fn of(rules: &[Measurement]) -> Doubt {
        let failing = rules.iter().any(|m| m.outcome.as_ref().is_ok_and(|measured| !measured.passed));
        Doubt { early: false, failing }
    }

    /// Of one that is still open: whether it fails is not known.
    pub fn early() -> Doubt {
        Doubt { early: true, failing: false }
    }
}

impl Asker {
    /// Whether `metric` is asked about the span `at`.
    pub fn gate(&self, metric: &str, sight: Sight<'_>, at: Idx, doubt: Doubt) -> Gate {
        let Some(reading) = sight.scene.readings.get(at) else { return Gate::Skip };
        let own = step::of_span(sight.rules, at).iter().filter(|m| m.metric == metric);
        let own: Vec<&Measurement> = own.collect();
        // A rule's fact is final whatever a judge says.
        let settled = own.iter().any(|m| {
            m.outcome
                .as_ref()
                .is_ok_and(|measured| !measured.passed && measured.findings.iter().any(|f| f.fact))
        });
        if settled || !self.is_wanted(sight, at) {
            return Gate::Skip;
        }
        // That something is left out is said only where it could have been asked.
        let leave = || match topic(metric).is_none_or(|topic| is_about(topic.about, sight, at)) {
            true => Gate::Leave(Reason::SampledOut),
            false => Gate::Skip,
        };
        let service = reading.service.as_deref().unwrap_or_default();
        if share(digest([&b"sample"[..], &sight.scene.tree.id.0])) >= self.rate(service) {
            return leave();
        }
        let passes = match self.when(metric) {
            When::Always => true,
            // Rules that were not asked know nothing, and what they only suspect they do not know.
            When::Unsure => {
                let sure = |m: &&Measurement| m.outcome.as_ref().is_ok_and(|o| o.findings.is_empty());
                !doubt.early && !own.iter().any(sure)
            }
            When::Failing => doubt.failing,
        };
        if passes { Gate::Ask } else { leave() }
    }

    fn is_wanted(&self, sight: Sight<'_>, at: Idx) -> bool {
        let Some(reading) = sight.scene.readings.get(at) else { return false };
        let listed = |patterns: &[String], seen: Option<&str>| {
            patterns.is_empty() || seen.is_some_and(|seen| patterns.iter().any(|p| matches(p, seen)))
        };
        let which = &self.ask.spans;
        (which.kind.is_empty() || which.kind.contains(&reading.kind))
            && listed(&which.name, reading.name.as_deref())
            && listed(&which.service, reading.service.as_deref())
    }

    fn rate(&self, service: &str) -> f64 {
        let sample = &self.ask.sample;
        let named = sample.by_service.get(service).or_else(|| {
            let fitting = sample.by_service.iter().filter(|(pattern, _)| matches(pattern, service));
            fitting.max_by_key(|(pattern, _)| pattern.len()).map(|(_, rate)| rate)
        });
        named.copied().unwrap_or(sample.rate)
    }

    fn when(&self, metric: &str) -> When {
        let special = &self.ask.when_by_metric;
        let of_gpa = || special.get("gpa").filter(|_| metric.starts_with("gpa."));
        special.get(metric).or_else(of_gpa).copied().unwrap_or(self.ask.when)
    }
}

/// Whether the metric exists on such a span; cheap, since it is asked of every one.
fn is_about(about: About, sight: Sight<'_>, at: Idx) -> bool {
    let Some(reading) = sight.scene.readings.get(at) else { return false };
    match about {
        About::Model | About::Tool | About::Step => step::fits(about, reading.kind),
        _ => run::scope(about, sight.scene, sight.settings, at).is_some(),
    }
}
