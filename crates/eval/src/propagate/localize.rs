//! Error localization: S_fail, the spans whose failure reaches the root, and the failure chain (paper
//! 001, section 3.1).

use foldhash::HashSet;

use verdict_otlp::trace::Idx;

use super::policy::{Policies, Policy};
use super::repeats::Repeats;
use super::verdict::{FailuresBelow, OwnResult, TraceVerdict, Verdict, children_fail, kind_bit, policy_of};
use crate::recognise::AgentTrace;

/// Which failures below a span count, by the policies of the spans above.
#[derive(Clone, Copy)]
struct FailureFilter {
    /// The kinds of the spans in which failures originate, as bits.
    kinds: u16,
    /// Only failures that affect the outcome count.
    relevant: bool,
    /// Failures below passing spans count as well.
    through: bool,
}

/// The result of each span's own metrics, and which failures repeat others.
#[derive(Clone, Copy)]
pub(super) struct OwnFailures<'a> {
    pub(super) span_results: &'a [OwnResult],
    pub(super) repeats: &'a Repeats,
    /// The verdict of the trace follows from its failures as a whole, not from the policy of its root.
    pub(super) by_run: bool,
}

/// Fills in the failed spans, their metrics and the failure chain.
pub(super) fn failures(
    trace: &AgentTrace,
    policies: &Policies,
    failures: OwnFailures<'_>,
    span_verdicts: &[Option<Verdict>],
    below: &[FailuresBelow],
    verdict: &mut TraceVerdict,
) {
    let OwnFailures { span_results, repeats, by_run } = failures;
    let tree = &trace.tree;
    let open = FailureFilter { kinds: u16::MAX, relevant: false, through: false };
    let first = match by_run {
        // Every failure counts, also below passing spans.
        true => FailureFilter { through: true, ..open },
        false if tree.top().len() == 1 => open,
        false => narrow(open, &policies.default),
    };
    let mut depth = vec![0usize; tree.len()];
    let mut stack: Vec<(Idx, FailureFilter)> = tree.top().iter().map(|&i| (i, first)).collect();
    let mut failed: Vec<Idx> = Vec::new();
    while let Some((i, filter)) = stack.pop() {
        let fails = span_verdicts[i].is_some_and(Verdict::failed);
        let transparent = span_results[i].transparent;
        if !(fails || filter.through || transparent) {
            continue;
        }
        let counts = span_results[i].fails()
            && filter.kinds & kind_bit(trace.views[i].kind) != 0
            && (span_results[i].relevant || !filter.relevant);
        if counts {
            failed.push(i);
        }
        let policy = policy_of(trace, policies, i);
        // The policy of a transparent span has no effect.
        let inner = if transparent { filter } else { narrow(filter, policy) };
        if transparent || inner.through || children_fail(&children_of(trace, failures, below, i), policy) {
            for &child in tree.children(i) {
                depth[child] = depth[i] + 1;
                stack.push((child, inner));
            }
        }
    }
    // A span whose failure originated in another failed span is left out.
    let origins: HashSet<Idx> = failed.iter().copied().collect();
    failed.retain(|&i| !repeats.is_explicit(i, |origin| origins.contains(&origin)));
    // Not by time: the clocks of services may differ.
    failed.sort_by_key(|&i| (std::cmp::Reverse(depth[i]), tree.spans[i].id));
    let worst = worst(trace, span_results, &failed);
    if let Some(worst) = worst {
        verdict.failure_chain = tree.ancestors(worst).collect();
        verdict.failure_chain.reverse();
    }
    verdict.failed_metrics = failed.iter().flat_map(|&i| span_results[i].failed.iter().copied()).collect();
    verdict.failed_metrics.sort_unstable();
    verdict.failed_metrics.dedup();
    verdict.failed_spans = failed;
}

/// The worst of the failed spans: the highest severity, then the lowest score, then the earliest. A span
/// above an equally bad one repeats its failure, so the one below is chosen.
fn worst(trace: &AgentTrace, span_results: &[OwnResult], failed: &[Idx]) -> Option<Idx> {
    let order = |a: Idx, b: Idx| {
        span_results[b]
            .severity
            .cmp(&span_results[a].severity)
            .then(span_results[a].score.total_cmp(&span_results[b].score))
    };
    let worst = failed.iter().copied().min_by(|&a, &b| order(a, b))?;
    let equal: Vec<Idx> = failed.iter().copied().filter(|&i| order(i, worst).is_eq()).collect();
    let mut ancestors = HashSet::default();
    for &i in &equal {
        // The spans above a span that was reached before were added then.
        trace.tree.ancestors(i).skip(1).take_while(|&ancestor| ancestors.insert(ancestor)).for_each(drop);
    }
    equal.into_iter().filter(|i| !ancestors.contains(i)).min()
}

fn narrow(filter: FailureFilter, policy: &Policy) -> FailureFilter {
    match policy {
        Policy::TypeFiltered { kinds } => FailureFilter {
            kinds: filter.kinds & kinds.iter().fold(0, |bits, &k| bits | kind_bit(k)),
            ..filter
        },
        Policy::SeverityWeighted(_) => FailureFilter { through: true, ..filter },
        Policy::OutcomeRelevant => FailureFilter { relevant: true, through: true, ..filter },
        _ => filter,
    }
}

/// The failures below a span, as reported by its children.
fn children_of(
    trace: &AgentTrace,
    OwnFailures { span_results, repeats, .. }: OwnFailures<'_>,
    below: &[FailuresBelow],
    i: Idx,
) -> FailuresBelow {
    let mut sum = FailuresBelow::default();
    trace.tree.children(i).iter().for_each(|&c| sum.add(&below[c]));
    repeats.discount(i, span_results, below, &mut sum);
    sum
}
