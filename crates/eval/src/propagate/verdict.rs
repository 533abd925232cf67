//! The values of propagation: a span's own result, the failures beneath it, and verdicts.

use verdict_otlp::trace::{Idx, Kind};

use super::policy::{Policies, Policy};
use crate::measure::Severity;
use crate::recognise::AgentTrace;

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
pub(super) struct OwnResult {
    pub(super) measured: bool,
    /// Failing metrics.
    pub(super) failed: Vec<&'static str>,
    /// The worst failing severity and score, for choosing the worst failure.
    pub(super) severity: Option<Severity>,
    pub(super) score: f64,
    /// Every failing finding only points to an origin elsewhere.
    pub(super) manifestation_of: Option<Idx>,
    /// It touches the outcome.
    pub(super) relevant: bool,
}

impl OwnResult {
    pub(super) fn fails(&self) -> bool {
        !self.failed.is_empty()
    }
}

/// What is known of the failures beneath a span. Sums, so that a chain of transparent spans costs
/// no more than any other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FailuresBeneath {
    /// Effective children with a verdict.
    pub(super) voting: usize,
    /// Of those, failing.
    pub(super) failing: usize,
    /// Kinds (as bits) where the failing children's failures originated.
    pub(super) kinds: u16,
    /// All failures by own evidence beneath, by severity: low, medium, high.
    pub(super) by_severity: [usize; 3],
    /// Of all those, the ones that touch the outcome.
    pub(super) relevant: usize,
}

impl FailuresBeneath {
    pub(super) fn add(&mut self, other: &FailuresBeneath) {
        self.voting += other.voting;
        self.failing += other.failing;
        self.kinds |= other.kinds;
        for (mine, more) in self.by_severity.iter_mut().zip(other.by_severity) {
            *mine += more;
        }
        self.relevant += other.relevant;
    }

    pub(super) fn add_own(&mut self, own: &OwnResult) {
        if let Some(severity) = own.severity {
            self.by_severity[severity as usize] += 1;
            self.relevant += usize::from(own.relevant);
        }
    }

    pub(super) fn any(&self) -> bool {
        self.by_severity.iter().sum::<usize>() > 0
    }
}

pub(super) fn kind_bit(kind: Kind) -> u16 {
    1 << kind as u16
}

pub(super) fn policy_of<'p>(trace: &AgentTrace, policies: &'p Policies, i: Idx) -> &'p Policy {
    let view = &trace.views[i];
    policies.of(view.name.as_deref(), view.service.as_deref(), view.kind)
}

/// Whether the failures beneath a span fail it under `policy`.
pub(super) fn children_fail(beneath: &FailuresBeneath, policy: &Policy) -> bool {
    match policy {
        Policy::Existential => beneath.failing > 0,
        Policy::Threshold { alpha } => {
            beneath.voting > 0 && beneath.failing as f64 / beneath.voting as f64 > *alpha
        }
        Policy::TypeFiltered { kinds } => kinds.iter().any(|&k| beneath.kinds & kind_bit(k) != 0),
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
