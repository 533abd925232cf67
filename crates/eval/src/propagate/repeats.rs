//! Failures that repeat a defect of another span, so that a defect counts once (paper 001, B.1 and appendix C).
//!
//! In: the findings of the failing measurements of a trace. Out: [`Repeats`]: the spans whose failure consists of
//! defects of other spans, and, by span, the failures that would be counted twice below it.
//!
//! A finding is about a defect of another span if it names that span as its origin, or if it is about a run, cites that
//! span, and that span fails by a finding of the same category. A tool call with invalid arguments is one defect of the
//! model call that wrote them, even if metrics of the tool, its agent and the trace find it as well. If several spans
//! fail by a defect of a span that does not fail itself, the lowest of them counts.
//!
//! Below the lowest common ancestor of the repeat and the repeated failure, both count, so that no policy ignores a
//! failing child.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashSet};
use verdict_otlp::trace::{Idx, Kind, SpanId, Tree};

use super::verdict::{FailuresBelow, OwnResult};
use crate::measure::{Category, Finding, Severity};
use crate::recognise::AgentTrace;

/// Maximum number of steps up the tree for all repeats of a trace, since the sender determines the depth. Beyond it
/// every failure counts.
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
    /// The spans whose failures count instead.
    counted: Vec<Idx>,
    /// Every finding names its origin.
    is_explicit: bool,
}

/// A repeat, as seen from the lowest common ancestor of the repeat and the failures that it repeats.
struct CommonAncestor {
    /// The span of the repeat.
    repeat: Idx,
    /// The child of the ancestor, or of a transparent span below it, whose subtree contains the repeat, and whose
    /// verdict counts for the ancestor.
    voter: Idx,
    /// The same for each of the failures that the repeat repeats.
    counted_voters: Vec<Idx>,
}

/// The repeated failures of a trace.
#[derive(Default)]
pub(super) struct Repeats {
    by_span: BTreeMap<Idx, RepeatedFailure>,
    common_ancestors: HashMap<Idx, Vec<CommonAncestor>>,
}

impl Repeats {
    /// Finds the repeats, and raises the severity of each failure that counts to the worst severity of its repeats.
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
        let mut repeats = Repeats {
            by_span: repeated_failures(trace, failing, span_results),
            common_ancestors: HashMap::default(),
        };
        repeats.find_common_ancestors(trace, span_results);
        repeats
    }

    /// Whether the failure of the span names its origins, and `counts` accepts every span in which it is counted.
    pub(super) fn is_explicit(&self, span_index: Idx, counts: impl Fn(Idx) -> bool) -> bool {
        self.by_span
            .get(&span_index)
            .is_some_and(|repeat| repeat.is_explicit && repeat.counted.iter().all(|&i| counts(i)))
    }

    /// Subtracts from the failures below the span `span_index` those that are counted twice. `reports` are the reports
    /// of all spans to their parents.
    pub(super) fn subtract_repeats(
        &self,
        span_index: Idx,
        span_results: &[OwnResult],
        reports: &[FailuresBelow],
        below: &mut FailuresBelow,
    ) {
        let Some(common_ancestors) = self.common_ancestors.get(&span_index) else { return };
        // By voter: the number of repeats below it, and whether the failures that they repeat count elsewhere.
        let mut repeats_by_voter: BTreeMap<Idx, (usize, bool)> = BTreeMap::new();
        for CommonAncestor { repeat, voter, counted_voters } in common_ancestors {
            if let Some(severity) = span_results.get(*repeat).and_then(|result| result.severity) {
                let count = &mut below.by_severity[severity as usize];
                *count = count.saturating_sub(1);
            }
            let fail = |voter: &Idx| reports.get(*voter).is_some_and(|report| report.failing > 0);
            let (count, are_counted) = repeats_by_voter.entry(*voter).or_insert((0, true));
            *count += 1;
            *are_counted &= counted_voters.iter().all(fail);
        }
        for (voter, (count, are_counted)) in repeats_by_voter {
            let Some(report) = reports.get(voter) else { continue };
            let failure_count: usize = report.by_severity.iter().sum();
            if are_counted && count == failure_count {
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
        for (&span_index, repeat) in &self.by_span {
            let lowest = tree.ancestors(span_index).find(|&ancestor| {
                steps += 1;
                steps > MAX_STEPS || repeat.counted.iter().all(|&i| subtrees.contains(ancestor, i))
            });
            // Spans of several roots have no common ancestor in the tree.
            let ancestor = lowest.unwrap_or(ABOVE_ALL);
            let mut voter = |from: Idx| {
                let path = tree.ancestors(from).take_while(|&i| i != ancestor).inspect(|_| steps += 1);
                path.filter(|&i| !span_results[i].transparent).last()
            };
            if span_index == ancestor {
                span_results[span_index].repeats = true;
                continue;
            }
            let Some(own_voter) = voter(span_index) else { continue };
            let counted_voters = repeat.counted.iter().filter_map(|&i| voter(i)).collect();
            if steps > MAX_STEPS {
                return;
            }
            let common_ancestor = CommonAncestor { repeat: span_index, voter: own_voter, counted_voters };
            self.common_ancestors.entry(ancestor).or_default().push(common_ancestor);
        }
    }
}

/// The index that represents the common parent of several roots.
pub(super) const ABOVE_ALL: Idx = Idx::MAX;

/// The failing spans all of whose defects are counted in other spans.
fn repeated_failures(
    trace: &AgentTrace,
    failing: &FailingFindings<'_>,
    span_results: &mut [OwnResult],
) -> BTreeMap<Idx, RepeatedFailure> {
    let subjects = SubjectFinder::new(trace, failing);
    let mut repeats = BTreeMap::new();
    // By span: the spans in which its defect is counted, which are the span itself or others.
    let mut counting_spans_by_span: HashMap<Idx, Vec<Idx>> = HashMap::default();
    // The failing spans all of whose findings are about other spans, with those spans.
    let mut candidates: Vec<(Idx, Vec<FindingSpan>)> = Vec::new();
    for (&span_index, findings) in failing {
        match subjects.find_all(span_index, findings) {
            Some(sources) => candidates.push((span_index, sources)),
            None => drop(counting_spans_by_span.insert(span_index, vec![span_index])),
        }
    }
    let positions: HashMap<Idx, usize> =
        trace.tree.order().iter().enumerate().map(|(n, &i)| (i, n)).collect();
    // Descendants come before their ancestors.
    candidates.sort_by_key(|(span_index, _)| std::cmp::Reverse(positions.get(span_index).copied()));
    for (span_index, sources) in candidates {
        let all_counted =
            sources.iter().all(|source| counting_spans_by_span.contains_key(&source.span_index));
        if !all_counted {
            for source in sources.iter().map(|source| source.span_index).chain([span_index]) {
                counting_spans_by_span.entry(source).or_insert_with(|| vec![span_index]);
            }
            continue;
        }
        let mut counting_spans: Vec<Idx> = Vec::new();
        for source in &sources {
            for &span in counting_spans_by_span.get(&source.span_index).map_or(&[][..], Vec::as_slice) {
                if let Some(result) = span_results.get_mut(span) {
                    result.severity = result.severity.max(Some(source.severity));
                }
                counting_spans.push(span);
            }
        }
        counting_spans.sort_unstable();
        counting_spans.dedup();
        let is_explicit = sources.iter().all(|source| source.is_explicit);
        counting_spans_by_span.insert(span_index, counting_spans.clone());
        repeats.insert(span_index, RepeatedFailure { counted: counting_spans, is_explicit });
    }
    repeats
}

/// The span that a finding is about, if it is not the judged one.
struct FindingSpan {
    span_index: Idx,
    severity: Severity,
    /// The finding names the span as its origin.
    is_explicit: bool,
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
        let step_categories = |(&span_index, findings): (&Idx, &Vec<FailingFinding<'_>>)| {
            let categories = findings.iter().filter(|f| !f.is_about_run).filter_map(|f| f.finding?.category);
            categories.map(move |category| (span_index, category)).collect::<Vec<_>>()
        };
        let categories = failing.iter().flat_map(step_categories).collect();
        // Reversed, so that the first of several spans with one id is kept.
        let by_id = trace
            .tree
            .spans
            .iter()
            .enumerate()
            .rev()
            .map(|(span_index, span)| (span.id, span_index))
            .collect();
        SubjectFinder { trace, by_id, categories }
    }

    /// The spans that the findings of the span `span_index` are about; `None` if a finding is about that span itself.
    fn find_all(&self, span_index: Idx, findings: &[FailingFinding<'_>]) -> Option<Vec<FindingSpan>> {
        findings.iter().map(|failing| self.source(span_index, failing)).collect()
    }

    /// The span that a finding is about; `None` if it is the span `span_index`, or not known.
    fn source(&self, span_index: Idx, failing: &FailingFinding<'_>) -> Option<FindingSpan> {
        let finding = failing.finding?;
        let finding_span =
            |span_index, is_explicit| FindingSpan { span_index, severity: finding.severity, is_explicit };
        if let Some(origin) = finding.origin.filter(|&origin| origin < self.trace.tree.len()) {
            return (origin != span_index).then(|| finding_span(origin, true));
        }
        let category = finding.category.filter(|_| failing.is_about_run)?;
        let cited = finding.seen_in.iter().chain(&finding.cited);
        let mut cited =
            cited.filter_map(|id| self.by_id.get(id).copied()).filter(|&cited| cited != span_index);
        let cited_span = cited.find(|&cited| self.categories.contains(&(cited, category)))?;
        Some(finding_span(cited_span, false))
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
        for (position, &i) in tree.order().iter().enumerate() {
            positions[i] = (position, position);
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
        let ((first, last), (position, _)) = (self.positions[ancestor], self.positions[i]);
        (first..=last).contains(&position)
    }
}

/// Whether the verdicts of a span's children count in its place.
pub(super) fn is_transparent(kind: Kind, result: &OwnResult) -> bool {
    kind == Kind::Unknown && !result.measured
}
