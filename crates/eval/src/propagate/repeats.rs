//! Failures that repeat a defect of another span, so that a defect counts once (paper 001, B.1 and appendix C).
//!
//! In: the findings of the failing measurements of a trace. Out: [`Repeats`]: the spans whose failure consists of
//! defects that other spans have, and by span the failures below it that are counted twice there.
//!
//! A finding is about a defect of another span if it names that span as its origin, or if it is about a run, cites that
//! span, and that span fails by a finding of the same category. A tool call with invalid arguments is one defect of the
//! model call that wrote them, even if metrics of the tool, its agent and the trace find it as well. Among the spans
//! that fail by a defect of a span that does not fail itself, the lowest counts.
//!
//! Where only one of both is below a span, the failure counts there, so that no policy ignores a failing child.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashSet};
use verdict_otlp::trace::{Idx, Kind, SpanId, Tree};

use super::verdict::{FailuresBelow, OwnResult};
use crate::measure::{Category, Finding, Severity};
use crate::recognise::AgentTrace;

/// Maximum steps up the tree for all repeats of a trace. Beyond them failures count wherever they are: the sender
/// determines the depth.
const MAX_STEPS: usize = 1 << 20;

/// A finding that made a metric of a span fail.
pub(super) struct FailingFinding<'m> {
    /// `None` for a measurement without findings.
    pub(super) finding: Option<&'m Finding>,
    /// Whether the metric is about a run.
    pub(super) is_about_run: bool,
}

/// The findings that made each failing span fail.
pub(super) type FailingFindings<'m> = BTreeMap<Idx, Vec<FailingFinding<'m>>>;

/// A failure that consists of defects of other spans.
struct RepeatedFailure {
    /// The spans that count.
    counted: Vec<Idx>,
    /// Every finding names its origin.
    explicit: bool,
}

/// A repeated failure at the lowest span that has both it and what it repeats below.
struct CommonAncestor {
    repeat: Idx,
    /// The child of that span, or of a transparent one, that has the repeat below.
    voter: Idx,
    /// Children with the repeated failure below them, of the same parents.
    counted_voters: Vec<Idx>,
}

/// The repeated failures of a trace.
#[derive(Default)]
pub(super) struct Repeats {
    by_span: BTreeMap<Idx, RepeatedFailure>,
    common_ancestors: HashMap<Idx, Vec<CommonAncestor>>,
}

impl Repeats {
    /// Finds the repeats, and raises the severity of what they repeat to the worst that was found of it.
    pub(super) fn find(
        trace: &AgentTrace,
        failing: &FailingFindings<'_>,
        span_results: &mut [OwnResult],
    ) -> Repeats {
        let may_repeat = |f: &FailingFinding<'_>| {
            f.finding.is_some_and(|finding| {
                finding.origin.is_some() || f.is_about_run && finding.category.is_some()
            })
        };
        if !failing.values().flatten().any(may_repeat) {
            return Repeats::default();
        }
        let mut repeats =
            Repeats { by_span: repeated(trace, failing, span_results), common_ancestors: HashMap::default() };
        repeats.find_common_ancestors(trace, span_results);
        repeats
    }

    /// Whether the failure of the span, which names its origins, is counted in spans that `counts` accepts.
    pub(super) fn is_explicit(&self, at: Idx, counts: impl Fn(Idx) -> bool) -> bool {
        self.by_span
            .get(&at)
            .is_some_and(|repeat| repeat.explicit && repeat.counted.iter().all(|&i| counts(i)))
    }

    /// Leaves out of the failures below span `at` those that are there twice. `reports` are those of its descendants.
    pub(super) fn discount(
        &self,
        at: Idx,
        span_results: &[OwnResult],
        reports: &[FailuresBelow],
        below: &mut FailuresBelow,
    ) {
        let Some(common_ancestors) = self.common_ancestors.get(&at) else { return };
        let mut in_voter: BTreeMap<Idx, (usize, bool)> = BTreeMap::new();
        for CommonAncestor { repeat, voter, counted_voters } in common_ancestors {
            if let Some(severity) = span_results.get(*repeat).and_then(|result| result.severity) {
                let count = &mut below.by_severity[severity as usize];
                *count = count.saturating_sub(1);
            }
            let fail = |voter: &Idx| reports.get(*voter).is_some_and(|report| report.failing > 0);
            let (count, counted) = in_voter.entry(*voter).or_insert((0, true));
            *count += 1;
            *counted &= counted_voters.iter().all(fail);
        }
        for (voter, (count, counted)) in in_voter {
            let Some(report) = reports.get(voter) else { continue };
            let all: usize = report.by_severity.iter().sum();
            if counted && count == all {
                below.repeated += report.failing;
            }
        }
    }

    /// Finds the lowest common ancestor of each repeat and of the failures that it repeats.
    fn find_common_ancestors(&mut self, trace: &AgentTrace, span_results: &mut [OwnResult]) {
        if self.by_span.is_empty() {
            return;
        }
        let tree = &trace.tree;
        let subtrees = SubtreePositions::new(tree);
        let mut steps = 0usize;
        for (&at, repeat) in &self.by_span {
            let lowest = tree.ancestors(at).find(|&ancestor| {
                steps += 1;
                steps > MAX_STEPS || repeat.counted.iter().all(|&i| subtrees.contains(ancestor, i))
            });
            // Spans of several roots have no common ancestor in the tree.
            let ancestor = lowest.unwrap_or(ABOVE_ALL);
            let mut voter = |from: Idx| {
                let path = tree.ancestors(from).take_while(|&i| i != ancestor).inspect(|_| steps += 1);
                path.filter(|&i| !span_results[i].transparent).last()
            };
            if at == ancestor {
                span_results[at].repeats = true;
                continue;
            }
            let Some(own_voter) = voter(at) else { continue };
            let counted_voters = repeat.counted.iter().filter_map(|&i| voter(i)).collect();
            if steps > MAX_STEPS {
                return;
            }
            let common_ancestor = CommonAncestor { repeat: at, voter: own_voter, counted_voters };
            self.common_ancestors.entry(ancestor).or_default().push(common_ancestor);
        }
    }
}

/// The place above several roots.
pub(super) const ABOVE_ALL: Idx = Idx::MAX;

/// The failing spans whose defects other spans count.
fn repeated(
    trace: &AgentTrace,
    failing: &FailingFindings<'_>,
    span_results: &mut [OwnResult],
) -> BTreeMap<Idx, RepeatedFailure> {
    let sources = SubjectFinder::new(trace, failing);
    let mut repeats = BTreeMap::new();
    // By span: the spans that count for its defect, which are the span itself or others in its place.
    let mut counted: HashMap<Idx, Vec<Idx>> = HashMap::default();
    let mut rest: Vec<(Idx, Vec<FindingSpan>)> = Vec::new();
    for (&at, findings) in failing {
        match sources.find_all(at, findings) {
            Some(found) => rest.push((at, found)),
            None => drop(counted.insert(at, vec![at])),
        }
    }
    let place: HashMap<Idx, usize> = trace.tree.order().iter().enumerate().map(|(n, &i)| (i, n)).collect();
    // Lower spans come first.
    rest.sort_by_key(|(at, _)| std::cmp::Reverse(place.get(at).copied()));
    for (at, found) in rest {
        let all_counted = found.iter().all(|source| counted.contains_key(&source.at));
        if !all_counted {
            for source in found.iter().map(|source| source.at).chain([at]) {
                counted.entry(source).or_insert_with(|| vec![at]);
            }
            continue;
        }
        let mut places: Vec<Idx> = Vec::new();
        for source in &found {
            for &place in counted.get(&source.at).map_or(&[][..], Vec::as_slice) {
                if let Some(result) = span_results.get_mut(place) {
                    result.severity = result.severity.max(Some(source.severity));
                }
                places.push(place);
            }
        }
        places.sort_unstable();
        places.dedup();
        let explicit = found.iter().all(|source| source.explicit);
        counted.insert(at, places.clone());
        repeats.insert(at, RepeatedFailure { counted: places, explicit });
    }
    repeats
}

/// The span that a finding is about, if it is not the judged one.
struct FindingSpan {
    at: Idx,
    severity: Severity,
    explicit: bool,
}

/// Finds the spans that findings are about.
struct SubjectFinder<'f> {
    trace: &'f AgentTrace,
    by_id: HashMap<SpanId, Idx>,
    /// The categories by which single steps fail.
    categories: HashSet<(Idx, Category)>,
}

impl<'f> SubjectFinder<'f> {
    fn new(trace: &'f AgentTrace, failing: &FailingFindings<'_>) -> SubjectFinder<'f> {
        let step_categories = |(at, findings): (&Idx, &Vec<FailingFinding<'_>>)| {
            let categories = findings.iter().filter(|f| !f.is_about_run).filter_map(|f| f.finding?.category);
            let at = *at;
            categories.map(move |category| (at, category)).collect::<Vec<_>>()
        };
        let categories = failing.iter().flat_map(step_categories).collect();
        // Of several spans with one id, the first.
        let by_id = trace.tree.spans.iter().enumerate().rev().map(|(at, span)| (span.id, at)).collect();
        SubjectFinder { trace, by_id, categories }
    }

    /// The sources of all findings of the span `at`; `None` if one is about that span.
    fn find_all(&self, at: Idx, findings: &[FailingFinding<'_>]) -> Option<Vec<FindingSpan>> {
        findings.iter().map(|failing| self.source(at, failing)).collect()
    }

    fn source(&self, at: Idx, failing: &FailingFinding<'_>) -> Option<FindingSpan> {
        let finding = failing.finding?;
        let found = |at, explicit| Some(FindingSpan { at, severity: finding.severity, explicit });
        if let Some(origin) = finding.origin.filter(|&origin| origin < self.trace.tree.len()) {
            return if origin == at { None } else { found(origin, true) };
        }
        let category = finding.category.filter(|_| failing.is_about_run)?;
        let cited = finding.seen_in.iter().chain(&finding.cited);
        let mut cited = cited.filter_map(|id| self.by_id.get(id).copied()).filter(|&cited| cited != at);
        let cited_span = cited.find(|&cited| self.categories.contains(&(cited, category)))?;
        found(cited_span, false)
    }
}

/// Whether a span is below another, by positions in depth-first order.
struct SubtreePositions {
    /// The first and last position of each subtree.
    positions: Vec<(usize, usize)>,
}

impl SubtreePositions {
    fn new(tree: &Tree) -> SubtreePositions {
        let mut positions = vec![(0, 0); tree.len()];
        for (place, &i) in tree.order().iter().enumerate() {
            positions[i] = (place, place);
        }
        for &i in tree.order().iter().rev() {
            if let Some(parent) = tree.parent(i) {
                positions[parent].1 = positions[parent].1.max(positions[i].1);
            }
        }
        SubtreePositions { positions }
    }

    /// Whether `i` is `ancestor` or below it.
    fn contains(&self, ancestor: Idx, i: Idx) -> bool {
        let ((first, last), (place, _)) = (self.positions[ancestor], self.positions[i]);
        (first..=last).contains(&place)
    }
}

/// Whether the verdicts of a span's children count in its place.
pub(super) fn is_transparent(kind: Kind, result: &OwnResult) -> bool {
    kind == Kind::Unknown && !result.measured
}
