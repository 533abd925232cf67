//! Error localization: S_fail, the spans whose failure reaches the root, and the failure chain (paper
//! 001, section 3.1).

use foldhash::HashSet;

use verdict_otlp::trace::Idx;

use super::policy::{Policies, Policy};
use super::repeats::Repeats;
use super::verdict::{FailuresBelow, OwnResult, TraceVerdict, Verdict, children_fail, kind_bit, policy_of};
use crate::recognise::AgentTrace;

/// The failures below a span that count, by the policies of the spans above it.
#[derive(Clone, Copy)]
struct FailureFilter {
    /// The kinds of the spans in which failures originate, as bits.
    kinds: u16,
    /// Only failures that affect the outcome count.
    only_relevant: bool,
    /// Failures below passing spans count as well.
    below_passing: bool,
}

/// The result of each span's own metrics, and which failures repeat others.
#[derive(Clone, Copy)]
pub(super) struct OwnFailures<'a> {
    pub(super) span_results: &'a [OwnResult],
    pub(super) repeats: &'a Repeats,
    /// The verdict of the trace follows from its failures as a whole, not from the policy of its root.
    pub(super) is_judged_as_run: bool,
}

/// Fills in the failed spans, their metrics and the failure chain of `verdict`.
pub(super) fn failures(
    trace: &AgentTrace,
    policies: &Policies,
    failures: OwnFailures<'_>,
    span_verdicts: &[Option<Verdict>],
    below: &[FailuresBelow],
    verdict: &mut TraceVerdict,
) {
    let OwnFailures { span_results, repeats, is_judged_as_run } = failures;
    let tree = &trace.tree;
    let unfiltered = FailureFilter { kinds: u16::MAX, only_relevant: false, below_passing: false };
    let top_filter = match is_judged_as_run {
        true => FailureFilter { below_passing: true, ..unfiltered },
        false if tree.top().len() == 1 => unfiltered,
        false => with_policy(unfiltered, &policies.default),
    };
    let mut depth = vec![0usize; tree.len()];
    let mut stack: Vec<(Idx, FailureFilter)> = tree.top().iter().map(|&i| (i, top_filter)).collect();
    let mut failed: Vec<Idx> = Vec::new();
    while let Some((i, filter)) = stack.pop() {
        let fails = span_verdicts[i].is_some_and(Verdict::failed);
        let transparent = span_results[i].transparent;
        if !(fails || filter.below_passing || transparent) {
            continue;
        }
        let counts = span_results[i].fails()
            && filter.kinds & kind_bit(trace.views[i].kind) != 0
            && (span_results[i].relevant || !filter.only_relevant);
        if counts {
            failed.push(i);
        }
        let policy = policy_of(trace, policies, i);
        // The policy of a transparent span has no effect.
        let child_filter = if transparent { filter } else { with_policy(filter, policy) };
        let fails_by_children = || children_fail(&failures_of_children(trace, failures, below, i), policy);
        if transparent || child_filter.below_passing || fails_by_children() {
            for &child in tree.children(i) {
                depth[child] = depth[i] + 1;
                stack.push((child, child_filter));
            }
        }
    }
    // The failure of a span that originated in another failed span is counted there.
    let origins: HashSet<Idx> = failed.iter().copied().collect();
    failed.retain(|&i| !repeats.is_explicit(i, |origin| origins.contains(&origin)));
    // Sorted by depth and id, not by time: the clocks of services may differ.
    failed.sort_by_key(|&i| (std::cmp::Reverse(depth[i]), tree.spans[i].id));
    if let Some(worst) = worst_span(trace, span_results, &failed) {
        verdict.failure_chain = tree.ancestors(worst).collect();
        verdict.failure_chain.reverse();
    }
    verdict.failed_metrics = failed.iter().flat_map(|&i| span_results[i].failed.iter().copied()).collect();
    verdict.failed_metrics.sort_unstable();
    verdict.failed_metrics.dedup();
    verdict.failed_spans = failed;
}

/// The worst of the failed spans: the highest severity, then the lowest score, then the earliest. Of an equally bad
/// ancestor and descendant the descendant is chosen, since the ancestor repeats its failure.
fn worst_span(trace: &AgentTrace, span_results: &[OwnResult], failed: &[Idx]) -> Option<Idx> {
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
        // Stops at the first ancestor that is known: its own ancestors are known, too.
        trace.tree.ancestors(i).skip(1).take_while(|&ancestor| ancestors.insert(ancestor)).for_each(drop);
    }
    equal.into_iter().filter(|i| !ancestors.contains(i)).min()
}

/// The filter for the children of a span with `policy`, to which `filter` applies.
fn with_policy(filter: FailureFilter, policy: &Policy) -> FailureFilter {
    match policy {
        Policy::TypeFiltered { kinds } => FailureFilter {
            kinds: filter.kinds & kinds.iter().fold(0, |bits, &k| bits | kind_bit(k)),
            ..filter
        },
        Policy::SeverityWeighted(_) => FailureFilter { below_passing: true, ..filter },
        Policy::OutcomeRelevant => FailureFilter { only_relevant: true, below_passing: true, ..filter },
        _ => filter,
    }
}

/// The failures below a span, as reported by its children.
fn failures_of_children(
    trace: &AgentTrace,
    OwnFailures { span_results, repeats, .. }: OwnFailures<'_>,
    below: &[FailuresBelow],
    i: Idx,
) -> FailuresBelow {
    let mut sum = FailuresBelow::default();
    trace.tree.children(i).iter().for_each(|&c| sum.add(&below[c]));
    repeats.subtract_repeats(i, span_results, below, &mut sum);
    sum
}
