//! Adapters from functions to metrics that ask no judge.

use super::{Answer, Context, Measurement, Metric, MetricProgress};
use crate::measure::agent_index;
use crate::recognise::Agent;

/// A rule about one span; `None` if the metric does not apply to the span.
pub(crate) struct SpanRule(pub fn(&Context<'_>) -> Option<Measurement>);

impl Metric for SpanRule {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> MetricProgress {
        MetricProgress::Done((self.0)(context).map_or_else(Vec::new, |measurement| vec![measurement]))
    }
}

/// A rule about one agent and its index in the trace; it applies to the agent's span.
pub(crate) struct AgentRule(pub fn(&Context<'_>, usize, &Agent) -> Measurement);

impl Metric for AgentRule {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> MetricProgress {
        let agent = agent_index::indexed_at(context);
        MetricProgress::Done(agent.map_or_else(Vec::new, |(i, agent)| vec![(self.0)(context, i, agent)]))
    }
}
