//! Adapters from functions to metrics that do not ask judges.

use verdict_otlp::trace::{Idx, Kind};

use super::work_budget::{BYTES_PER_STEP, WorkBudget};
use super::{Answer, Context, Measurement, Metric, MetricProgress, Question};
use crate::measure::agent_index;
use crate::recognise::{Agent, AgentTrace};

/// A metric that may measure without questions. Most rules have at most one measurement of a span, which
/// [`Rule::measure`] adds to a common list without allocating another one.
pub(crate) trait Rule: Metric {
    /// Adds the measurements of the first step to `out`; none if the step has questions.
    fn measure(&self, context: &Context<'_>, out: &mut Vec<Measurement>) {
        match self.step(context, &[]) {
            MetricProgress::Done(mut measurements) => out.append(&mut measurements),
            MetricProgress::Ask(questions) => count_prompts(&questions, &context.memo.budget),
        }
    }

    /// The spans on which the rule may have measurements, in order; `None` for all.
    fn spans(&self, _trace: &AgentTrace) -> Option<Vec<Idx>> {
        None
    }
}

/// Counts the work of building the prompts of questions in the budget.
pub(crate) fn count_prompts(questions: &[Question], budget: &WorkBudget) {
    let bytes: usize = questions.iter().map(|q| q.prompt.system.len() + q.prompt.user.len()).sum();
    budget.spend(bytes / BYTES_PER_STEP + 1);
}

/// A rule about one span. The function returns `None` if the metric does not apply to the span.
pub(crate) struct SpanRule(pub fn(&Context<'_>) -> Option<Measurement>);

impl Metric for SpanRule {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> MetricProgress {
        MetricProgress::Done((self.0)(context).map_or_else(Vec::new, |measurement| vec![measurement]))
    }
}

impl Rule for SpanRule {
    fn measure(&self, context: &Context<'_>, out: &mut Vec<Measurement>) {
        if let Some(measurement) = (self.0)(context) {
            out.push(measurement);
        }
    }
}

/// A rule about one model span, which needs not be called for other spans.
pub(crate) struct ModelRule(pub fn(&Context<'_>) -> Option<Measurement>);

impl Metric for ModelRule {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        SpanRule(self.0).step(context, answers)
    }
}

impl Rule for ModelRule {
    fn measure(&self, context: &Context<'_>, out: &mut Vec<Measurement>) {
        SpanRule(self.0).measure(context, out);
    }

    fn spans(&self, trace: &AgentTrace) -> Option<Vec<Idx>> {
        let views = trace.views.iter().enumerate();
        Some(views.filter(|(_, view)| view.kind == Kind::Llm).map(|(at, _)| at).collect())
    }
}

/// A rule about one agent, which is measured on the agent's span. The function receives the index of the agent in the
/// trace, and the agent.
pub(crate) struct AgentRule(pub fn(&Context<'_>, usize, &Agent) -> Measurement);

impl Metric for AgentRule {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> MetricProgress {
        let agent = agent_index::indexed_at(context);
        MetricProgress::Done(agent.map_or_else(Vec::new, |(i, agent)| vec![(self.0)(context, i, agent)]))
    }
}

impl Rule for AgentRule {
    fn measure(&self, context: &Context<'_>, out: &mut Vec<Measurement>) {
        if let Some((i, agent)) = agent_index::indexed_at(context) {
            out.push((self.0)(context, i, agent));
        }
    }

    fn spans(&self, trace: &AgentTrace) -> Option<Vec<Idx>> {
        let mut spans: Vec<Idx> = trace.agents.iter().map(|agent| agent.at).collect();
        spans.sort_unstable();
        spans.dedup();
        Some(spans)
    }
}
