//! From findings to the benchmark's errors: which findings count, under which category, at which span.
//!
//! In: an evaluated trace. Out: [`Annotation`]s in the form that annotators use.
//!
//! **Which.** With [`Predicted::FLAGGED`], findings of failing measurements: what the product reports, and what
//! paper 001 scores. With [`Predicted::ALL`], also those of passing measurements: annotators mark minor errors as
//! well (a fifth of their errors are of low impact).
//!
//! **Category.** The finding's. Some findings have none on purpose: an error of unknown cause, a framework's
//! announced retry, an operator's limit of time or tokens. The taxonomy is by cause, so these are left out.
//!
//! **Span.** Annotators mark model calls, and tool calls if the tool or its environment caused the error; never
//! an agent or a step. A finding with an origin therefore counts at its origin. A finding on a tool span stays
//! there if its cause is the environment, the tool, the retrieved content or the number of calls; otherwise it
//! moves to the model call that requested the tool call (001, B.1: the origin). A finding on an agent or a step
//! moves to a span that it cites, or to the model call of the answer, of the plan, or the last one below.
//! Annotators mark the first occurrence of an error, but the last one of Resource Abuse; cited spans are
//! chosen in the same way.
//!
//! **Once.** Findings of one metric with the same text are one error: only the first occurrence in a trace
//! counts, of Resource Abuse the last. Formatting is the exception: each malformed text is an error of its own,
//! and annotators mark each.
//!
//! With [`FindingPlacement::Every`] each finding counts, at the span that it names: nothing is moved from a tool call
//! to a model call, and nothing is merged. That is the rule of paper 001, whose predictions are flagged spans.

use std::collections::BTreeMap;

use verdict_eval::metrics::{Category, Finding, Measured, Measurement};
use verdict_eval::trace::AgentTrace;
use verdict_otlp::trace::{Idx, Kind, SpanId};

use super::annotation::{Annotation, impact};

/// The findings that are predictions, and their spans.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Predicted {
    /// Whether findings of passing measurements are predictions as well.
    pub all: bool,
    pub placement: FindingPlacement,
}

/// The span at which a finding counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum FindingPlacement {
    /// The first occurrence in a trace, at the model call that caused it, as annotators mark errors.
    #[default]
    First,
    /// Every finding, at the span that it names.
    Every,
}

impl Predicted {
    /// Findings of failing measurements.
    pub const FLAGGED: Predicted = Predicted { all: false, placement: FindingPlacement::First };
    /// Findings of passing measurements as well.
    pub const ALL: Predicted = Predicted { all: true, ..Predicted::FLAGGED };

    /// Whether findings of this measurement are predictions.
    pub fn includes(self, measured: &Measured) -> bool {
        self.all || !measured.passed
    }
}

/// A finding with the span at which the benchmark counts it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LocatedFinding<'a> {
    /// The model or tool call at which the finding counts.
    pub at: Idx,
    /// The span of the finding's measurement.
    pub measured_at: Idx,
    pub category: Category,
    pub metric: &'static str,
    pub finding: &'a Finding,
}

/// The findings that count, by span and category; of each pair the worst finding.
pub fn located_findings<'a>(
    trace: &AgentTrace,
    measurements: &'a [Measurement],
    predicted: Predicted,
) -> Vec<LocatedFinding<'a>> {
    let spans = Spans::new(trace);
    let mut chosen: BTreeMap<(&str, Category, &str), LocatedFinding<'a>> = BTreeMap::new();
    let mut located: Vec<LocatedFinding<'a>> = Vec::new();
    for m in measurements {
        let Some(measured) = m.outcome.as_ref().ok().filter(|measured| predicted.includes(measured)) else {
            continue;
        };
        for finding in &measured.findings {
            let Some(category) = finding.category else { continue };
            let is_every = predicted.placement == FindingPlacement::Every;
            let named_span = is_every.then(|| spans.named_span(m.at, finding)).flatten();
            let Some(at) = named_span.or_else(|| spans.counted_span(m.at, finding, category)) else {
                continue;
            };
            let located_finding =
                LocatedFinding { at, measured_at: m.at, category, metric: m.metric, finding };
            if is_every || recurs(category) {
                located.push(located_finding);
                continue;
            }
            let current =
                chosen.entry((m.metric, category, finding.rationale.as_str())).or_insert(located_finding);
            let is_marked_instead = if marks_last(category) { at > current.at } else { at < current.at };
            if is_marked_instead {
                *current = located_finding;
            }
        }
    }
    located.extend(chosen.into_values());
    // Of one span and category the worst finding comes first; the sort is stable.
    located
        .sort_by(|a, b| (a.at, a.category).cmp(&(b.at, b.category)).then(a.finding.worst_first(b.finding)));
    located.dedup_by_key(|f| (f.at, f.category));
    located
}

impl LocatedFinding<'_> {
    /// The finding in the benchmark's shape.
    pub fn annotation(&self, trace: &AgentTrace) -> Annotation {
        let span = trace.tree.spans.get(self.at).map(|span| span.id.to_string());
        Annotation {
            category: self.category.as_str().to_owned(),
            location: span.unwrap_or_default(),
            evidence: self.finding.quote.clone(),
            description: format!("{}: {}", self.metric, self.finding.rationale),
            impact: impact(self.finding.severity),
        }
    }
}

/// Whether each occurrence of an error of the category is a separate error.
fn recurs(category: Category) -> bool {
    category == Category::FormattingErrors
}

/// Whether annotators mark the last occurrence of an error of the category instead of the first.
fn marks_last(category: Category) -> bool {
    category == Category::ResourceAbuse
}

/// Whether annotators mark the tool call instead of the model call that requested it.
fn stays_on_tool(category: Category) -> bool {
    category.is_environment()
        || matches!(
            category,
            Category::ResourceNotFound
                | Category::ToolDefinitionIssues
                | Category::PoorInformationRetrieval
                | Category::ResourceAbuse
                | Category::ContextHandlingFailures
        )
}

struct Spans<'s> {
    trace: &'s AgentTrace,
    /// The model call that requested each tool call.
    requester: BTreeMap<Idx, Idx>,
    by_id: BTreeMap<SpanId, Idx>,
}

impl<'s> Spans<'s> {
    fn new(trace: &'s AgentTrace) -> Spans<'s> {
        let requester = trace.calls.iter().filter_map(|call| Some((call.tool?, call.llm?))).collect();
        let by_id = trace.tree.spans.iter().enumerate().map(|(i, span)| (span.id, i)).collect();
        Spans { trace, requester, by_id }
    }

    fn kind(&self, i: Idx) -> Kind {
        self.trace.views.get(i).map_or(Kind::Unknown, |r| r.kind)
    }

    /// The span at which a finding on `at` counts; `None` in a trace without a model or tool call.
    fn counted_span(&self, at: Idx, finding: &Finding, category: Category) -> Option<Idx> {
        let at = finding.origin.unwrap_or(at);
        match self.kind(at) {
            Kind::Llm | Kind::Tool => Some(self.marked_call(at, category)),
            _ => self.cited_call(finding, category).or_else(|| self.subject_call(at, category)),
        }
    }

    /// The span that a finding on `at` names: where it began, the call itself, or the only span that it cites.
    fn named_span(&self, at: Idx, finding: &Finding) -> Option<Idx> {
        let cited = || match finding.cited.as_slice() {
            [only] => self.by_id.get(only).copied(),
            _ => None,
        };
        finding
            .origin
            .or_else(|| matches!(self.kind(at), Kind::Llm | Kind::Tool).then_some(at))
            .or_else(cited)
    }

    /// The cited model or tool call that an annotator would mark.
    fn cited_call(&self, finding: &Finding, category: Category) -> Option<Idx> {
        let cited = finding.cited.iter().filter_map(|id| self.by_id.get(id).copied());
        let mut calls = cited.filter(|&i| matches!(self.kind(i), Kind::Llm | Kind::Tool));
        let at = if marks_last(category) { calls.max() } else { calls.by_ref().min() }?;
        Some(self.marked_call(at, category))
    }

    /// The call `at`; of a tool call, the model call that requested it, if annotators mark that one.
    fn marked_call(&self, at: Idx, category: Category) -> Idx {
        if self.kind(at) != Kind::Tool || stays_on_tool(category) {
            return at;
        }
        self.requester.get(&at).copied().or_else(|| self.preceding_model_call(at)).unwrap_or(at)
    }

    /// The model call that a finding on an agent or a step concerns.
    fn subject_call(&self, at: Idx, category: Category) -> Option<Idx> {
        let agent = self.trace.agents.iter().find(|agent| agent.at == at);
        let planning_agent = agent.filter(|_| category == Category::TaskOrchestration);
        planning_agent
            .and_then(|agent| Some(agent.plans.first()?.0))
            .or_else(|| agent?.answer_at)
            .filter(|&i| matches!(self.kind(i), Kind::Llm | Kind::Tool))
            .or_else(|| agent.and_then(|agent| agent.llms.last().copied()))
            .or_else(|| self.trace.tree.subtree(at).filter(|&i| self.kind(i) == Kind::Llm).max())
            .or_else(|| self.preceding_model_call(at))
    }

    /// The last model call of the same agent that began before `at`.
    fn preceding_model_call(&self, at: Idx) -> Option<Idx> {
        let agent = self.trace.agents.get(self.trace.owner.get(at).copied().flatten()?)?;
        agent.llms.iter().copied().filter(|&llm| llm < at).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdict_eval::metrics::Defect;
    use verdict_eval::metrics::Value;
    use verdict_eval::testing::{Script, measured};

    /// A manager asks a tool twice and answers. Spans: agent 0, model 1, tool 2, model 3, tool 4, model 5.
    fn trace() -> AgentTrace {
        Script::new("find it")
            .tools(&["look"])
            .calls("looking", &[("look", r#"{"q": 1}"#)])
            .returns("nothing")
            .calls("again", &[("look", r#"{"q": 1}"#)])
            .returns("nothing")
            .answers("it is 7")
            .build()
    }

    fn failed(at: Idx, metric: &'static str, findings: Vec<Finding>) -> Measurement {
        measured(at, metric, Measured { value: Value::Score(1.0), passed: false, findings })
    }

    fn passing() -> Measured {
        Measured { value: Value::Score(5.0), passed: true, findings: Vec::new() }
    }

    fn placements(trace: &AgentTrace, measurements: &[Measurement]) -> Vec<(Kind, Idx, Category)> {
        let located = located_findings(trace, measurements, Predicted::ALL);
        located.iter().map(|f| (trace.views[f.at].kind, f.at, f.category)).collect()
    }

    fn spans_of_kind(trace: &AgentTrace, kind: Kind) -> Vec<Idx> {
        (0..trace.tree.len()).filter(|&i| trace.views[i].kind == kind).collect()
    }

    #[test]
    fn repeated_error_counts_at_its_first_occurrence_and_abuse_at_its_last() {
        let trace = trace();
        let llm = spans_of_kind(&trace, Kind::Llm);
        let missing_tag = || vec![Defect::MissingTag.finding("no tag", "x")];
        let measurements = [failed(llm[0], "m", missing_tag()), failed(llm[1], "m", missing_tag())];
        assert_eq!(
            placements(&trace, &measurements),
            [(Kind::Llm, llm[0], Category::InstructionNonCompliance)]
        );
        let repeated_call = || vec![Defect::RepeatedCall.finding("again", "x")];
        let measurements = [failed(llm[0], "m", repeated_call()), failed(llm[1], "m", repeated_call())];
        assert_eq!(placements(&trace, &measurements), [(Kind::Llm, llm[1], Category::ResourceAbuse)]);
        let other = vec![Defect::MissingTag.finding("no other tag", "x")];
        let measurements = [failed(llm[0], "m", missing_tag()), failed(llm[1], "m", other)];
        assert_eq!(placements(&trace, &measurements).len(), 2);
        let format = || vec![Defect::WrongFormat.finding("not JSON", "x")];
        let measurements = [failed(llm[0], "m", format()), failed(llm[1], "m", format())];
        assert_eq!(placements(&trace, &measurements).len(), 2);
    }

    #[test]
    fn model_error_on_a_tool_call_moves_to_the_model_call_and_service_error_stays() {
        let trace = trace();
        let (llm, tool) = (spans_of_kind(&trace, Kind::Llm), spans_of_kind(&trace, Kind::Tool));
        let measurements = [failed(tool[1], "m", vec![Defect::WrongArguments.finding("bad", "x")])];
        assert_eq!(placements(&trace, &measurements), [(Kind::Llm, llm[1], Category::FormattingErrors)]);
        let measurements = [failed(tool[1], "m", vec![Defect::TimedOut.finding("late", "x")])];
        assert_eq!(placements(&trace, &measurements), [(Kind::Tool, tool[1], Category::TimeoutIssues)]);
    }

    #[test]
    fn every_finding_counts_at_the_span_that_it_names() {
        let trace = trace();
        let (llm, tool) = (spans_of_kind(&trace, Kind::Llm), spans_of_kind(&trace, Kind::Tool));
        let every = Predicted { placement: FindingPlacement::Every, ..Predicted::FLAGGED };
        let missing_tag = || Defect::MissingTag.finding("no tag", "x");
        let arguments = Defect::WrongArguments.finding("bad", "x");
        let cited = missing_tag().citing(trace.tree.spans[llm[2]].id);
        let measurements = [
            failed(trace.agents[0].at, "agent", vec![cited]),
            failed(llm[0], "m", vec![missing_tag()]),
            failed(llm[1], "m", vec![missing_tag()]),
            failed(tool[0], "m", vec![arguments]),
        ];
        let located = located_findings(&trace, &measurements, every);
        let spans: Vec<Idx> = located.iter().map(|f| f.at).collect();
        assert_eq!(spans, [llm[0], tool[0], llm[1], llm[2]]);
        assert_eq!(located_findings(&trace, &measurements, Predicted::FLAGGED).len(), 3);
    }

    #[test]
    fn agent_finding_moves_to_a_cited_span_or_to_the_answer() {
        let trace = trace();
        let (llm, tool) = (spans_of_kind(&trace, Kind::Llm), spans_of_kind(&trace, Kind::Tool));
        let agent = trace.agents[0].at;
        let id = |i: Idx| trace.tree.spans[i].id;
        let abuse = Defect::CallLoop.finding("round and round", "x").citing(id(tool[0])).citing(id(tool[1]));
        let measurements = [failed(agent, "m", vec![abuse])];
        assert_eq!(placements(&trace, &measurements), [(Kind::Tool, tool[1], Category::ResourceAbuse)]);
        let measurements = [failed(agent, "m", vec![Defect::PartUnanswered.finding("half", "x")])];
        let answer = *llm.last().unwrap();
        assert_eq!(placements(&trace, &measurements), [(Kind::Llm, answer, Category::GoalDeviation)]);
    }

    #[test]
    fn finding_of_a_passing_measurement_is_no_flagged_one_and_one_without_category_does_not_count() {
        let trace = trace();
        let llm = spans_of_kind(&trace, Kind::Llm);
        let minor = Measured { findings: vec![Defect::MissingTag.finding("no tag", "x")], ..passing() };
        let measurements =
            [measured(llm[0], "m", minor), failed(llm[1], "m", vec![Defect::Errored.finding("?", "x")])];
        let recorded = (Kind::Llm, llm[0], Category::InstructionNonCompliance);
        assert_eq!(placements(&trace, &measurements), [recorded]);
        assert!(located_findings(&trace, &measurements, Predicted::FLAGGED).is_empty());
        let measurements = [failed(llm[0], "m", vec![Defect::MissingTag.finding("no tag", "x")])];
        assert_eq!(located_findings(&trace, &measurements, Predicted::FLAGGED).len(), 1);
    }
}
