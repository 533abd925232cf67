//! The values of propagation: a span's own result, the failures below it, and verdicts.

use verdict_otlp::trace::{Idx, Kind};

use super::policy::{Policies, Policy};
use crate::measure::ask::outcome::{FindingRef, RunOutcome};
use crate::measure::{Severity, Unmeasured};
use crate::recognise::AgentTrace;

verdict_otlp::labelled_enum! {
    /// Why a span fails. Labels are values of `verdict.cause`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Cause {
        Own = "self",
        Children = "children",
        Both = "both",
    }
}

/// Verdict of a span, v(s) in paper 001.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No failure counts.
    Pass,
    /// A failure counts.
    Fail(Cause),
}

impl Verdict {
    pub fn failed(self) -> bool {
        matches!(self, Verdict::Fail(_))
    }
}

/// The verdict of a trace.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TraceVerdict {
    /// `None` if nothing was measured, or if nothing failed and the outcome is unknown.
    pub passed: Option<bool>,
    /// Why the outcome is unknown, if the trace has no verdict for this reason.
    pub unmeasured_reason: Option<Unmeasured>,
    /// S_fail, deepest first: spans that fail by their own metrics and whose failure reaches the root.
    pub failed_spans: Vec<Idx>,
    /// The spans from a topmost one down to the worst failure.
    pub failure_chain: Vec<Idx>,
    /// P_fail over S_fail: the failing metrics, sorted by name, each once.
    pub failed_metrics: Vec<&'static str>,
    /// The probability that the run failed its user, with the root policy `expected_outcome`.
    pub failure: Option<FailureProbability>,
    /// The span in which the failure of the trace began, as judges state it; without their answer, the span in which
    /// the worst failure began. `None` if the trace does not fail.
    pub root_cause: Option<Idx>,
    /// The judges' statement about the outcome, if they were asked.
    pub outcome: Option<RunOutcome>,
    /// Measurements with a value.
    pub measured: usize,
    /// Measurements without one.
    pub unmeasured: usize,
}

impl TraceVerdict {
    /// Whether the finding touched the outcome, if judges were asked about it.
    pub fn touched_outcome(&self, span_index: Idx, metric: &str, index: usize) -> Option<bool> {
        let outcome = self.outcome.as_ref()?;
        let is_this_finding = |finding: &FindingRef| {
            finding.at == span_index && finding.index == index && finding.metric == metric
        };
        outcome.asked.iter().any(is_this_finding).then(|| outcome.touched_outcome.iter().any(is_this_finding))
    }
}

/// The value of `verdict.trace.failure_probability`, and the terms that it consists of.
#[derive(Clone, PartialEq, Debug)]
pub struct FailureProbability {
    /// From 0 to 1.
    pub probability: f64,
    /// The contribution of each term to the log odds, the largest first.
    pub contributions: Vec<(&'static str, f64)>,
}

/// Verdicts of the spans of a trace, and of the trace.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Verdicts {
    /// By span; `None` if neither the span nor a descendant was measured.
    pub by_span: Vec<Option<Verdict>>,
    pub trace: TraceVerdict,
}

/// The result of a span's own metrics.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnResult {
    /// A metric of the span has a value.
    pub(super) measured: bool,
    /// The failing metrics.
    pub(super) failed: Vec<&'static str>,
    /// The worst severity and score of its failures, to find the worst failure of the trace.
    pub(super) severity: Option<Severity>,
    pub(super) score: f64,
    /// The failure consists of defects of spans below.
    pub(super) repeats: bool,
    /// The verdicts of the span's children count in its place.
    pub(super) transparent: bool,
    /// Whether the failure affects the outcome.
    pub(super) relevant: bool,
}

impl OwnResult {
    pub(super) fn fails(&self) -> bool {
        !self.failed.is_empty()
    }
}

/// The failures below a span, as sums, so that the cost does not grow with chains of transparent
/// spans.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FailuresBelow {
    /// The number of children with a verdict. Children of a transparent span count in its place.
    pub(super) voting: usize,
    /// The number of these children that fail.
    pub(super) failing: usize,
    /// The number of failing children that only repeat failures of others.
    pub(super) repeated: usize,
    /// The kinds of the spans in which the failing children's failures originated, as bits.
    pub(super) kinds: u16,
    /// The number of spans that fail by their own metrics, by severity: low, medium, high.
    pub(super) by_severity: [usize; 3],
    /// The number of these spans whose failure affects the outcome.
    pub(super) relevant: usize,
}

impl FailuresBelow {
    pub(super) fn add(&mut self, other: &FailuresBelow) {
        self.voting += other.voting;
        self.failing += other.failing;
        self.repeated += other.repeated;
        self.kinds |= other.kinds;
        for (count, other_count) in self.by_severity.iter_mut().zip(other.by_severity) {
            *count += other_count;
        }
        self.relevant += other.relevant;
    }

    pub(super) fn add_own(&mut self, result: &OwnResult) {
        if let Some(severity) = result.severity {
            self.by_severity[severity as usize] += usize::from(!result.repeats);
            self.relevant += usize::from(result.relevant);
        }
    }

    /// The failing children and those with a verdict, without those that only repeat another's failure.
    fn votes(&self) -> (usize, usize) {
        (self.failing.saturating_sub(self.repeated), self.voting.saturating_sub(self.repeated))
    }

    pub(super) fn has_failures(&self) -> bool {
        self.by_severity.iter().sum::<usize>() > 0
    }
}

/// The bit of a kind in [`FailuresBelow::kinds`].
pub(super) fn kind_bit(kind: Kind) -> u16 {
    1 << kind as u16
}

pub(super) fn policy_of<'p>(trace: &AgentTrace, policies: &'p Policies, i: Idx) -> &'p Policy {
    let view = &trace.views[i];
    policies.for_span(view.name.as_deref(), view.service.as_deref(), view.kind)
}

/// Whether the failures below a span make the span fail under `policy`.
pub(super) fn children_fail(below: &FailuresBelow, policy: &Policy) -> bool {
    match policy {
        Policy::Existential => below.failing > 0,
        Policy::Threshold { alpha } => {
            let (failing, voting) = below.votes();
            voting > 0 && failing as f64 / voting as f64 > *alpha
        }
        Policy::TypeFiltered { kinds } => kinds.iter().any(|&k| below.kinds & kind_bit(k) != 0),
        Policy::Conjunctive => {
            let (failing, voting) = below.votes();
            voting > 0 && failing == voting
        }
        Policy::SeverityWeighted(weights) => {
            let [low, medium, high] = below.by_severity;
            // Counts are multiplied by weights: adding up 0.1 ten times would give less than 1.
            let sum = low as f64 * weights.low + medium as f64 * weights.medium + high as f64 * weights.high;
            below.has_failures() && sum + 1e-9 >= weights.limit
        }
        Policy::OutcomeRelevant => below.relevant > 0,
    }
}
