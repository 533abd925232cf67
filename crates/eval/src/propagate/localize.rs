//! Error localisation: S_fail, the spans whose failure reached the root, and the causal chain
//! (paper 001, section 3.1, error localization).

use std::collections::HashSet;

use verdict_otlp::trace::{Idx, Kind};

use super::policy::{Policies, Policy};
use super::verdict::{FailuresBeneath, OwnResult, TraceVerdict, Verdict, children_fail, kind_bit, policy_of};
use crate::recognise::AgentTrace;

/// Which failures beneath a span count, gathered from the policies on the way down.
#[derive(Clone, Copy)]
struct Filter {
    /// Kinds of originating spans, as bits.
    kinds: u16,
    /// Only those that touch the outcome.
    relevant: bool,
    /// Count them even beneath spans whose own verdict is a pass.
    through: bool,
}

/// Fills in who failed and how the failure came to the root.
pub(super) fn failures(
    trace: &AgentTrace,
    policies: &Policies,
    own: &[OwnResult],
    of: &[Option<Verdict>],
    beneath: &[FailuresBeneath],
    verdict: &mut TraceVerdict,
) {
    let tree = &trace.tree;
    let open = Filter { kinds: u16::MAX, relevant: false, through: false };
    let first = if tree.top().len() == 1 { open } else { narrow(open, &policies.default) };
    let mut depth = vec![0usize; tree.len()];
    let mut stack: Vec<(Idx, Filter)> = tree.top().iter().map(|&i| (i, first)).collect();
    let mut failed: Vec<Idx> = Vec::new();
    while let Some((i, filter)) = stack.pop() {
        let fails = of[i].is_some_and(Verdict::failed);
        let transparent = trace.views[i].kind == Kind::Unknown && !own[i].measured;
        if !(fails || filter.through || transparent) {
            continue;
        }
        let counts = own[i].fails()
            && filter.kinds & kind_bit(trace.views[i].kind) != 0
            && (own[i].relevant || !filter.relevant);
        if counts {
            failed.push(i);
        }
        let policy = policy_of(trace, policies, i);
        // A transparent span passes its children up whatever its own policy says of them.
        let inner = if transparent { filter } else { narrow(filter, policy) };
        let reaches = transparent || inner.through || children_fail(&whole(trace, beneath, i), policy);
        if reaches {
            for &child in tree.children(i) {
                depth[child] = depth[i] + 1;
                stack.push((child, inner));
            }
        }
    }
    // A manifestation gives way to its origin, where the origin is named too.
    let named: HashSet<Idx> = failed.iter().copied().collect();
    failed.retain(|&i| own[i].manifestation_of.is_none_or(|origin| !named.contains(&origin)));
    failed.sort_by_key(|&i| (std::cmp::Reverse(depth[i]), i));
    let worst = failed.iter().copied().min_by(|&a, &b| {
        own[b].severity.cmp(&own[a].severity).then(own[a].score.total_cmp(&own[b].score)).then(a.cmp(&b))
    });
    if let Some(worst) = worst {
        verdict.failure_chain = tree.ancestors(worst).collect();
        verdict.failure_chain.reverse();
    }
    verdict.failed_metrics = failed.iter().flat_map(|&i| own[i].failed.iter().copied()).collect();
    verdict.failed_metrics.sort_unstable();
    verdict.failed_metrics.dedup();
    verdict.failed_spans = failed;
}

fn narrow(filter: Filter, policy: &Policy) -> Filter {
    match policy {
        Policy::TypeFiltered { kinds } => {
            Filter { kinds: filter.kinds & kinds.iter().fold(0, |bits, &k| bits | kind_bit(k)), ..filter }
        }
        Policy::SeverityWeighted(_) => Filter { through: true, ..filter },
        Policy::OutcomeRelevant => Filter { relevant: true, through: true, ..filter },
        _ => filter,
    }
}

/// What lies beneath a span, summed from what its children passed up.
fn whole(trace: &AgentTrace, beneath: &[FailuresBeneath], i: Idx) -> FailuresBeneath {
    let mut sum = FailuresBeneath::default();
    trace.tree.children(i).iter().for_each(|&c| sum.add(&beneath[c]));
    sum
}
