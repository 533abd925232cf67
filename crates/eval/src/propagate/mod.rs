//! Verdicts from the leaves to the root (paper 001, section 3.1, hierarchical aggregation).
//!
//! In: a trace and its measurements. Out: [`Verdicts`]: pass or fail for every span that was measured
//! or has a measured descendant, and for the trace, with S_fail, P_fail and the failure chain from the
//! root to the worst failure.
//!
//! A parent's verdict follows from the verdicts of its children, not from their metrics, so that a failure passes
//! through spans without metrics. A trace without a failure passes only if it shows the result of the run. Spans of
//! unknown kind are transparent: their children count as children of their parent. Children without a measurement have
//! no verdict. Two policies consider every failure below a parent and its own failures instead of its children's
//! verdicts: `severity_weighted`, under which a few minor failures do not fail the trace, and `outcome_relevant`.

use expected_outcome::{TermFailure, failures, terms, with_changes};
use localize::OwnFailures;
use outcome_model::{Term, Terms, probability};
use repeats::{ABOVE_ALL, FailingFinding, FailingFindings, Repeats};
use verdict::{FailureProbability, FailuresBelow, OwnResult, children_fail, kind_bit, policy_of};
use verdict_otlp::trace::{Idx, Kind};

use crate::measure::ask::outcome::RunOutcome;
use crate::measure::table::{About, Requires, spec_among};
use crate::measure::{Finding, Measured, Measurement, MetricSpec, Severity, Unmeasured, Value};
use crate::recognise::{AgentTrace, Content};

mod expected_outcome;
mod localize;
mod repeats;
pub(crate) mod outcome_model;
pub(crate) mod policy;
pub(crate) mod relevance;
pub(crate) mod verdict;
#[cfg(test)]
mod tests;

pub(crate) use verdict::{Cause, TraceVerdict, Verdict, Verdicts};

pub(crate) use policy::{Policies, Policy, RootPolicy};

/// Verdicts of every span and of the trace.
pub fn propagate(trace: &AgentTrace, measurements: &[Measurement], policies: &Policies) -> Verdicts {
    propagate_with(trace, measurements, Basis { policies, custom: &[], outcome: None })
}

/// The inputs of verdicts in addition to measurements.
pub(crate) struct Basis<'b> {
    pub policies: &'b Policies,
    /// The metrics that the embedding program added.
    pub custom: &'b [&'static MetricSpec],
    /// The judges' statement about the outcome.
    pub outcome: Option<RunOutcome>,
}

/// As [`propagate`], with custom metrics and the judges' statement.
pub(crate) fn propagate_with(trace: &AgentTrace, measurements: &[Measurement], basis: Basis<'_>) -> Verdicts {
    let Basis { policies, custom, outcome } = basis;
    let results = own_results(trace, measurements, policies, custom);
    let terms = matches!(policies.root, RootPolicy::ExpectedOutcome(_)).then(|| results.terms());
    let OwnResults { span_results, repeats, .. } = results;
    let tree = &trace.tree;
    let mut span_verdicts = vec![None; tree.len()];
    let mut below = vec![FailuresBelow::default(); tree.len()];
    for &i in tree.order().iter().rev() {
        // The verdict of a leaf follows from its own metrics under every policy.
        let is_leaf = tree.children(i).is_empty();
        let policy = if is_leaf { &Policy::Existential } else { policy_of(trace, policies, i) };
        let mut without_repeats = below[i];
        repeats.subtract_repeats(i, &span_results, &below, &mut without_repeats);
        below[i] = without_repeats;
        let kind = trace.views[i].kind;
        span_verdicts[i] = verdict_of(&span_results[i], &below[i], policy);
        // `below[i]` is now the report of the span to its parent, which `localize` reads.
        below[i] = report(&span_results[i], &below[i], policy, kind, span_verdicts[i]);
        if let Some(parent) = tree.parent(i) {
            let reported = below[i];
            below[parent].add(&reported);
        }
    }
    let root = match tree.top() {
        [only] => span_verdicts[*only],
        several => {
            let mut below_roots = FailuresBelow::default();
            several.iter().for_each(|&i| below_roots.add(&below[i]));
            repeats.subtract_repeats(ABOVE_ALL, &span_results, &below, &mut below_roots);
            verdict_of(&OwnResult::default(), &below_roots, &policies.default)
        }
    };
    let mut passed = root.map(|verdict| !verdict.failed());
    let mut failure = None;
    // Whether the run passes, if the root policy judges it as a whole.
    let run_passes = match (&policies.root, &outcome) {
        (RootPolicy::ExpectedOutcome(model), _) => {
            let terms = with_changes(trace, terms.unwrap_or_default());
            let probability = probability(model, &terms);
            let contributions = model.contributions(&terms);
            failure = passed.map(|_| FailureProbability { probability, contributions });
            Some(probability <= model.limit)
        }
        (RootPolicy::Judged, Some(outcome)) => Some(outcome.touched_outcome.is_empty()),
        (RootPolicy::Inherit | RootPolicy::Judged, _) => None,
    };
    let run_passes = run_passes.filter(|_| passed.is_some());
    if let Some(run_passes) = run_passes {
        passed = Some(run_passes);
        if let [only] = tree.top() {
            span_verdicts[*only] = Some(root_verdict(run_passes, &span_results[*only]));
        }
    }
    let unmeasured_reason = unrecorded_outcome(trace, measurements, custom).filter(|_| passed == Some(true));
    let passed = passed.filter(|_| unmeasured_reason.is_none());
    let measured = measurements.iter().filter(|m| m.outcome.is_ok()).count();
    let unmeasured = measurements.len() - measured;
    let mut verdict =
        TraceVerdict { passed, unmeasured_reason, failure, measured, unmeasured, ..TraceVerdict::default() };
    if passed == Some(false) {
        let failures = OwnFailures {
            span_results: &span_results,
            repeats: &repeats,
            is_judged_as_run: run_passes.is_some(),
        };
        localize::failures(trace, policies, failures, &span_verdicts, &below, &mut verdict);
        let judged_cause = outcome.as_ref().and_then(|outcome| outcome.root_cause);
        verdict.root_cause =
            judged_cause.or_else(|| Some(failure_origin(measurements, *verdict.failure_chain.last()?)));
    }
    verdict.outcome = outcome;
    Verdicts { by_span: span_verdicts, trace: verdict }
}

/// The span in which the worst failure of the span `index` began.
fn failure_origin(measurements: &[Measurement], index: Idx) -> Idx {
    let results = measurements.iter().filter(|m| m.at == index).filter_map(|m| m.outcome.as_ref().ok());
    let findings = results.filter(|measured| !measured.passed).flat_map(|measured| &measured.findings);
    let worst = findings.filter(|finding| !finding.is_note()).min_by(|a, b| a.worst_first(b));
    worst.and_then(|finding| finding.origin).unwrap_or(index)
}

/// The verdict of the only root, where the verdict of the trace follows from the run as a whole.
fn root_verdict(passed: bool, result: &OwnResult) -> Verdict {
    match (passed, result.fails()) {
        (true, _) => Verdict::Pass,
        (false, true) => Verdict::Fail(Cause::Both),
        (false, false) => Verdict::Fail(Cause::Children),
    }
}

/// The reason why a trace without a failure does not pass: no outermost agent has a recorded answer, and no metric
/// about the result of an agent was measured. Tool calls without errors do not show the result of the run.
fn unrecorded_outcome(
    trace: &AgentTrace,
    measurements: &[Measurement],
    custom: &[&'static MetricSpec],
) -> Option<Unmeasured> {
    let outermost = trace.agents.iter().filter(|agent| agent.parent.is_none());
    let answers = outermost.map(|agent| agent.answer_content);
    if answers.clone().any(|content| content == Content::Present) {
        return None;
    }
    // `completeness`, judged metrics of runs, tasks, checklists and custom metrics; not metrics of calls.
    let is_about_result = |row: &MetricSpec| {
        let is_whole_run =
            row.about == About::Run || row.rubric.is_none() && matches!(row.about, About::Agent | About::Any);
        !row.process && (is_whole_run || row.requires == Requires::Answer)
    };
    let is_decisive = |m: &Measurement| match &m.outcome {
        // The policy has decided that a failure does not count: the run passes in spite of it.
        Ok(measured) => !measured.passed || spec_among(custom, m.metric).is_some_and(is_about_result),
        Err(_) => false,
    };
    if measurements.iter().any(is_decisive) {
        return None;
    }
    answers.max().map(Unmeasured::from)
}

/// The verdict of a span; `None` if neither it nor a child was measured.
fn verdict_of(result: &OwnResult, below: &FailuresBelow, policy: &Policy) -> Option<Verdict> {
    let by_children = children_fail(below, policy);
    match (fails_by_own(result, below, policy), by_children) {
        (true, true) => Some(Verdict::Fail(Cause::Both)),
        // The failures below are part of the sum that reaches the limit.
        (true, false) if below.has_failures() && matches!(policy, Policy::SeverityWeighted(_)) => {
            Some(Verdict::Fail(Cause::Both))
        }
        (true, false) => Some(Verdict::Fail(Cause::Own)),
        (false, true) => Some(Verdict::Fail(Cause::Children)),
        (false, false) => (result.measured || below.voting > 0).then_some(Verdict::Pass),
    }
}

/// Whether the span's own failures make it fail under `policy`.
fn fails_by_own(result: &OwnResult, below: &FailuresBelow, policy: &Policy) -> bool {
    result.fails()
        && match policy {
            Policy::OutcomeRelevant => result.relevant,
            Policy::SeverityWeighted(_) => {
                let mut with_own = *below;
                with_own.add_own(result);
                children_fail(&with_own, policy)
            }
            _ => true,
        }
}

/// The contribution of a span to the failures below its parent. A transparent span adds those of its children.
fn report(
    result: &OwnResult,
    below: &FailuresBelow,
    policy: &Policy,
    kind: Kind,
    verdict: Option<Verdict>,
) -> FailuresBelow {
    let mut reported = *below;
    reported.add_own(result);
    if result.transparent {
        return reported;
    }
    let failed = verdict.is_some_and(Verdict::failed);
    reported.voting = usize::from(verdict.is_some());
    reported.failing = usize::from(failed);
    reported.repeated = 0;
    reported.kinds = 0;
    if failed && children_fail(below, policy) {
        reported.kinds |= below.kinds;
    }
    if failed && result.fails() {
        reported.kinds |= kind_bit(kind);
    }
    reported
}

/// The results of the measurements of each span.
struct OwnResults<'m> {
    span_results: Vec<OwnResult>,
    /// The failures that count in the terms of the expected outcome.
    failures: Vec<TermFailure<'m>>,
    repeats: Repeats,
}

impl OwnResults<'_> {
    /// The terms of the expected outcome, without [`Term::Changes`].
    fn terms(&self) -> Terms {
        let confidence = |measured: &Measured| measured.confidence().unwrap_or(1.0);
        terms(self.failures.iter().map(|failure| (failure.term, confidence(failure.measured))))
    }
}

/// The result of each span's own metrics, which failures repeat others, and which count in the terms of the expected
/// outcome.
fn own_results<'m>(
    trace: &AgentTrace,
    measurements: &'m [Measurement],
    policies: &Policies,
    custom: &[&'static MetricSpec],
) -> OwnResults<'m> {
    let mut span_results = vec![OwnResult { score: f64::INFINITY, ..OwnResult::default() }; trace.tree.len()];
    let mut failing = FailingFindings::new();
    for m in measurements {
        let (Some(result), Ok(measured)) = (span_results.get_mut(m.at), &m.outcome) else { continue };
        result.measured = true;
        let is_trusted = |confidence| confidence >= policies.min_confidence;
        if measured.passed || !measured.confidence().is_none_or(is_trusted) {
            continue;
        }
        // Several tasks may be measured on one span.
        if !result.failed.contains(&m.metric) {
            result.failed.push(m.metric);
        }
        let score = match measured.value {
            Value::Score(s) => s,
            _ => measured.findings.iter().map(|f| f.score).fold(f64::INFINITY, f64::min),
        };
        let severity =
            measured.findings.iter().map(|f| f.severity).max().unwrap_or(Severity::from_score(score));
        result.severity = result.severity.max(Some(severity));
        result.score = result.score.min(score);
        let is_about_run = spec_among(custom, m.metric).is_some_and(|row| row.about.is_run());
        let span_findings = failing.entry(m.at).or_default();
        let earlier_count = span_findings.len();
        let decisive = measured.findings.iter().filter(|f| !f.is_note());
        span_findings.extend(decisive.map(|f| FailingFinding { finding: Some(f), is_about_run }));
        if span_findings.len() == earlier_count {
            span_findings.push(FailingFinding { finding: None, is_about_run });
        }
    }
    for (result, view) in span_results.iter_mut().zip(&trace.views) {
        result.transparent = repeats::is_transparent(view.kind, result);
    }
    let fails: Vec<bool> = span_results.iter().map(OwnResult::fails).collect();
    // Relevance is not computed for a trace without a failure, as most are.
    let any_failed = span_results.iter().any(|result| result.severity.is_some());
    let relevance = any_failed.then(|| relevance::Relevance::new(trace, &fails, custom));
    for (i, result) in span_results.iter_mut().enumerate() {
        if let (Some(severity), Some(relevance)) = (result.severity, &relevance) {
            result.relevant = relevance.affects_outcome(i, severity, &result.failed);
        }
    }
    let repeats = Repeats::find(trace, &failing, &mut span_results);
    let failures = failures(measurements, &span_results, &repeats, relevance.as_ref(), custom).collect();
    OwnResults { span_results, failures, repeats }
}

/// The inputs of the terms of a trace's expected outcome, for fitting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutcomeEvidence {
    /// The terms with the shipped confidences.
    pub terms: Terms,
    /// For each failure its term, and the rules of its findings; no rules for a failure that a judge found.
    failures: Vec<(Term, Vec<String>)>,
}

impl OutcomeEvidence {
    pub fn new(trace: &AgentTrace, measurements: &[Measurement]) -> OutcomeEvidence {
        let results = own_results(trace, measurements, &Policies::default(), &[]);
        let rules = |measured: &Measured| {
            let decisive = measured.findings.iter().filter(|finding| !finding.is_note());
            decisive.filter_map(Finding::rule_name).collect()
        };
        OutcomeEvidence {
            terms: with_changes(trace, results.terms()),
            failures: results.failures.iter().map(|f| (f.term, rules(f.measured))).collect(),
        }
    }

    /// The terms with other confidences of rules.
    pub fn terms_with(&self, confidence: impl Fn(&str) -> f64) -> Terms {
        let greatest = |rules: &[String]| rules.iter().map(|rule| confidence(rule)).reduce(f64::max);
        let failures = self.failures.iter().map(|(term, rules)| (*term, greatest(rules).unwrap_or(1.0)));
        let mut terms = terms(failures);
        // No rule finds a change.
        terms[Term::Changes as usize] = self.terms[Term::Changes as usize];
        terms
    }
}
