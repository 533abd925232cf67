//! Verdicts from the leaves to the root (paper 001, section 3.1, hierarchical aggregation).
//!
//! In: a trace and its measurements. Out: [`Verdicts`]: pass or fail for every span that was
//! measured or has a measured descendant, and for the trace, with S_fail, P_fail and the causal
//! chain from the root to the worst failure.
//!
//! The recursion is on v(child), not on the child's own metrics, so that a failure passes through
//! spans without metrics. Spans of unknown kind are transparent: their parent sees their children
//! instead. Unmeasured children carry no verdict. Two policies look at every failure beneath a
//! parent and at its own, rather than at its children's verdicts: `severity_weighted`, where minor
//! failures are recorded and do not fail the trace, and `outcome_relevant`.

use verdict::{FailuresBeneath, OwnResult, children_fail, kind_bit, policy_of};
use verdict_otlp::trace::Kind;

use crate::measure::{Measurement, MetricSpec, Severity, Value};
use crate::recognise::AgentTrace;

mod localize;
pub(crate) mod policy;
pub(crate) mod relevance;
pub(crate) mod verdict;
#[cfg(test)]
mod tests;

pub(crate) use verdict::{Cause, TraceVerdict, Verdict, Verdicts};

pub(crate) use policy::{Policies, Policy};

/// Verdicts of every span and of the trace.
pub fn propagate(trace: &AgentTrace, measurements: &[Measurement], policies: &Policies) -> Verdicts {
    propagate_with(trace, measurements, policies, &[])
}

/// As [`propagate`], with metrics that were added from outside.
pub(crate) fn propagate_with(
    trace: &AgentTrace,
    measurements: &[Measurement],
    policies: &Policies,
    custom: &[&'static MetricSpec],
) -> Verdicts {
    let own = own_results(trace, measurements, custom);
    let tree = &trace.tree;
    let mut of = vec![None; tree.len()];
    let mut beneath = vec![FailuresBeneath::default(); tree.len()];
    for &i in tree.order().iter().rev() {
        // A leaf's own failure is its verdict; a policy makes a parent's.
        let policy =
            if tree.children(i).is_empty() { &Policy::Existential } else { policy_of(trace, policies, i) };
        let (verdict, passed_on) = judge(&own[i], &beneath[i], policy, trace.views[i].kind);
        of[i] = verdict;
        if let Some(parent) = tree.parent(i) {
            beneath[parent].add(&passed_on);
        }
        // Kept for `localize`: what this span passes on, which for a transparent one is its children's.
        beneath[i] = passed_on;
    }
    let mut whole = FailuresBeneath::default();
    tree.top().iter().for_each(|&i| whole.add(&beneath[i]));
    let passed = match tree.top() {
        [only] => of[*only].map(|v: Verdict| !v.failed()),
        _ => judge(&OwnResult::default(), &whole, &policies.default, Kind::Chain).0.map(|v| !v.failed()),
    };
    let mut verdict = TraceVerdict {
        passed,
        measured: measurements.iter().filter(|m| m.outcome.is_ok()).count(),
        unmeasured: measurements.iter().filter(|m| m.outcome.is_err()).count(),
        ..TraceVerdict::default()
    };
    if passed == Some(false) {
        localize::failures(trace, policies, &own, &of, &beneath, &mut verdict);
    }
    Verdicts { of, trace: verdict }
}

/// One span's verdict, and what its parent gets to see.
fn judge(
    own: &OwnResult,
    beneath: &FailuresBeneath,
    policy: &Policy,
    kind: Kind,
) -> (Option<Verdict>, FailuresBeneath) {
    let by_children = children_fail(beneath, policy);
    let by_self = own.fails()
        && match policy {
            Policy::OutcomeRelevant => own.relevant,
            Policy::SeverityWeighted(_) => {
                let mut all = *beneath;
                all.add_own(own);
                children_fail(&all, policy)
            }
            _ => true,
        };
    let verdict = match (by_self, by_children) {
        (true, true) => Some(Verdict::Fail(Cause::Both)),
        (true, false) if beneath.any() && matches!(policy, Policy::SeverityWeighted(_)) => {
            Some(Verdict::Fail(Cause::Both))
        }
        (true, false) => Some(Verdict::Fail(Cause::Own)),
        (false, true) => Some(Verdict::Fail(Cause::Children)),
        (false, false) if own.measured || beneath.voting > 0 => Some(Verdict::Pass),
        (false, false) => None,
    };
    let mut passed_on = *beneath;
    passed_on.add_own(own);
    let transparent = kind == Kind::Unknown && !own.measured;
    if !transparent {
        let failed = verdict.is_some_and(Verdict::failed);
        passed_on.voting = usize::from(verdict.is_some());
        passed_on.failing = usize::from(failed);
        passed_on.kinds = 0;
        if failed && by_children {
            passed_on.kinds |= beneath.kinds;
        }
        if failed && own.fails() {
            passed_on.kinds |= kind_bit(kind);
        }
    }
    (verdict, passed_on)
}

/// P_fail(s) and what goes with it, for every span.
fn own_results(
    trace: &AgentTrace,
    measurements: &[Measurement],
    custom: &[&'static MetricSpec],
) -> Vec<OwnResult> {
    let mut own = vec![OwnResult { score: f64::INFINITY, ..OwnResult::default() }; trace.tree.len()];
    for m in measurements {
        let (Some(own), Ok(measured)) = (own.get_mut(m.at), &m.outcome) else { continue };
        own.measured = true;
        if measured.passed {
            continue;
        }
        let first = !own.fails();
        own.failed.push(m.metric);
        let score = match measured.value {
            Value::Score(s) => s,
            _ => measured.findings.iter().map(|f| f.score).fold(f64::INFINITY, f64::min),
        };
        let severity =
            measured.findings.iter().map(|f| f.severity).max().unwrap_or(Severity::of_score(score));
        own.severity = own.severity.max(Some(severity));
        own.score = own.score.min(score);
        let origin = measured.findings.iter().all(|f| f.origin.is_some_and(|o| o != m.at));
        let origin = measured.findings.first().and_then(|f| f.origin).filter(|_| origin);
        own.manifestation_of = if first { origin } else { own.manifestation_of.and(origin) };
    }
    let failing: Vec<bool> = own.iter().map(OwnResult::fails).collect();
    let relevance = relevance::Relevance::new(trace, &failing, custom);
    for (i, own) in own.iter_mut().enumerate() {
        if let Some(severity) = own.severity {
            own.relevant = relevance.touches_outcome(i, severity, &own.failed);
        }
    }
    own
}
