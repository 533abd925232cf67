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

use crate::measure::{Measurement, Severity, Value};
use crate::recognise::AgentTrace;
use verdict_otlp::trace::{Idx, Kind};

mod policy;
mod reach;
pub mod relevance;
#[cfg(test)]
mod tests;

pub use policy::{Policies, Policy, Weights};

/// Why a span fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// By its own metrics.
    Own,
    /// By what is beneath it.
    Children,
    /// By both.
    Both,
}

impl Cause {
    /// As written in `verdict.cause`.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Own => "self",
            Cause::Children => "children",
            Cause::Both => "both",
        }
    }
}

/// v(s).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing that counts failed.
    Pass,
    /// Something did.
    Fail(Cause),
}

impl Verdict {
    /// True for [`Verdict::Fail`].
    pub fn failed(self) -> bool {
        matches!(self, Verdict::Fail(_))
    }
}

/// The trace as a whole.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TraceVerdict {
    /// `None`: nothing in it was measured.
    pub passed: Option<bool>,
    /// S_fail, deepest first: spans that fail by own evidence and whose failure reached the root.
    pub failed_spans: Vec<Idx>,
    /// From a top span down to the worst of them.
    pub failure_chain: Vec<Idx>,
    /// P_fail over S_fail, each metric once, in order of name.
    pub failed_metrics: Vec<&'static str>,
    /// Measurements with a value.
    pub measured: usize,
    /// Measurements without one.
    pub unmeasured: usize,
}

/// Verdicts of a trace's spans, and of the trace.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Verdicts {
    /// v(s) by index; `None` where neither it nor anything beneath it was measured.
    pub of: Vec<Option<Verdict>>,
    /// The trace's verdict.
    pub trace: TraceVerdict,
}

/// What a span's own metrics say.
#[derive(Clone, Debug, Default)]
struct Own {
    measured: bool,
    /// Failing metrics.
    failed: Vec<&'static str>,
    /// The worst failing severity and score, for choosing the worst failure.
    severity: Option<Severity>,
    score: f64,
    /// Every failing finding only points to an origin elsewhere.
    manifestation_of: Option<Idx>,
    /// It touches the outcome.
    relevant: bool,
}

impl Own {
    fn fails(&self) -> bool {
        !self.failed.is_empty()
    }
}

/// What is known of the failures beneath a span. Sums, so that a chain of transparent spans costs
/// no more than any other.
#[derive(Clone, Copy, Debug, Default)]
struct Beneath {
    /// Effective children with a verdict.
    voting: usize,
    /// Of those, failing.
    failing: usize,
    /// Kinds (as bits) where the failing children's failures originated.
    kinds: u16,
    /// All failures by own evidence beneath, by severity: low, medium, high.
    by_severity: [usize; 3],
    /// Of all those, the ones that touch the outcome.
    relevant: usize,
}

impl Beneath {
    fn add(&mut self, other: &Beneath) {
        self.voting += other.voting;
        self.failing += other.failing;
        self.kinds |= other.kinds;
        for (mine, more) in self.by_severity.iter_mut().zip(other.by_severity) {
            *mine += more;
        }
        self.relevant += other.relevant;
    }

    fn add_own(&mut self, own: &Own) {
        if let Some(severity) = own.severity {
            self.by_severity[severity as usize] += 1;
            self.relevant += usize::from(own.relevant);
        }
    }

    fn any(&self) -> bool {
        self.by_severity.iter().sum::<usize>() > 0
    }
}

fn bit(kind: Kind) -> u16 {
    1 << kind as u16
}

/// Verdicts of every span and of the trace.
pub fn propagate(trace: &AgentTrace, measurements: &[Measurement], policies: &Policies) -> Verdicts {
    let own = own_results(trace, measurements);
    let tree = &trace.tree;
    let mut of = vec![None; tree.len()];
    let mut beneath = vec![Beneath::default(); tree.len()];
    for &i in tree.order().iter().rev() {
        // A leaf's own failure is its verdict; a policy makes a parent's.
        let policy =
            if tree.children(i).is_empty() { &Policy::Existential } else { policy_of(trace, policies, i) };
        let (verdict, upward) = judge(&own[i], &beneath[i], policy, trace.views[i].kind);
        of[i] = verdict;
        if let Some(parent) = tree.parent(i) {
            beneath[parent].add(&upward);
        }
        // Kept for `reach`: what this span passes on, which for a transparent one is its children's.
        beneath[i] = upward;
    }
    let mut whole = Beneath::default();
    tree.top().iter().for_each(|&i| whole.add(&beneath[i]));
    let passed = match tree.top() {
        [only] => of[*only].map(|v: Verdict| !v.failed()),
        _ => judge(&Own::default(), &whole, &policies.default, Kind::Chain).0.map(|v| !v.failed()),
    };
    let mut verdict = TraceVerdict {
        passed,
        measured: measurements.iter().filter(|m| m.outcome.is_ok()).count(),
        unmeasured: measurements.iter().filter(|m| m.outcome.is_err()).count(),
        ..TraceVerdict::default()
    };
    if passed == Some(false) {
        reach::explain(trace, policies, &own, &of, &beneath, &mut verdict);
    }
    Verdicts { of, trace: verdict }
}

fn policy_of<'p>(trace: &AgentTrace, policies: &'p Policies, i: Idx) -> &'p Policy {
    let view = &trace.views[i];
    policies.of(view.name.as_deref(), view.service.as_deref(), view.kind)
}

/// One span's verdict, and what its parent gets to see.
fn judge(own: &Own, beneath: &Beneath, policy: &Policy, kind: Kind) -> (Option<Verdict>, Beneath) {
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
    let mut upward = *beneath;
    upward.add_own(own);
    let transparent = kind == Kind::Unknown && !own.measured;
    if !transparent {
        let failed = verdict.is_some_and(Verdict::failed);
        upward.voting = usize::from(verdict.is_some());
        upward.failing = usize::from(failed);
        upward.kinds = 0;
        if failed && by_children {
            upward.kinds |= beneath.kinds;
        }
        if failed && own.fails() {
            upward.kinds |= bit(kind);
        }
    }
    (verdict, upward)
}

fn children_fail(beneath: &Beneath, policy: &Policy) -> bool {
    match policy {
        Policy::Existential => beneath.failing > 0,
        Policy::Threshold { alpha } => {
            beneath.voting > 0 && beneath.failing as f64 / beneath.voting as f64 > *alpha
        }
        Policy::TypeFiltered { kinds } => kinds.iter().any(|&k| beneath.kinds & bit(k) != 0),
        Policy::Conjunctive => beneath.voting > 0 && beneath.failing == beneath.voting,
        Policy::SeverityWeighted(weights) => {
            let [low, medium, high] = beneath.by_severity;
            // Summed in whole failures first, so that ten times 0.1 is 1.
            let sum = low as f64 * weights.low + medium as f64 * weights.medium + high as f64 * weights.high;
            beneath.any() && sum + 1e-9 >= weights.limit
        }
        Policy::OutcomeRelevant => beneath.relevant > 0,
    }
}

/// P_fail(s) and what goes with it, for every span.
fn own_results(trace: &AgentTrace, measurements: &[Measurement]) -> Vec<Own> {
    let mut own = vec![Own { score: f64::INFINITY, ..Own::default() }; trace.tree.len()];
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
    let failing: Vec<bool> = own.iter().map(Own::fails).collect();
    let relevance = relevance::Relevance::new(trace, &failing);
    for (i, own) in own.iter_mut().enumerate() {
        if let Some(severity) = own.severity {
            own.relevant = relevance.touches_outcome(i, severity, &own.failed);
        }
    }
    own
}
