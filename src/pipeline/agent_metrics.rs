//! Counts an evaluated trace by service, agent, model, tool and signature.
//!
//! A span counts for the agent that owns it, with the model of that agent's first model call, since a metric of a
//! tool span also measures the model that requested the call.

use std::collections::HashMap;
use std::sync::Arc;

use verdict_eval::EvaluatedTrace;
use verdict_eval::annotation::signature;
use verdict_eval::metrics::spec;
use verdict_eval::metrics::{Measurement, Value};
use verdict_eval::propagation::Verdict;
use verdict_eval::trace::{AgentTrace, Kind, Tokens};
use verdict_otlp::trace::{CloseReason, Idx};

use crate::telemetry::{AgentMetrics, ResultLabel, RunCells, TokenCounts};

/// The labels of one agent of a trace, or of the spans without an agent.
struct AgentLabels<'a> {
    service: &'a str,
    agent: &'a str,
    model: &'a str,
}

impl<'a> AgentLabels<'a> {
    /// The labels of an agent, or without one those of the span `at`.
    fn new(trace: &'a AgentTrace, agent: Option<usize>, at: Idx) -> AgentLabels<'a> {
        let view = |i: Idx| trace.views.get(i);
        let agent = agent.and_then(|agent| trace.agents.get(agent));
        let service = |i: Idx| view(i).and_then(|view| view.service.as_deref());
        let model = |i: Idx| view(i).and_then(|view| view.model.as_deref());
        AgentLabels {
            service: agent.and_then(|agent| service(agent.at)).or_else(|| service(at)).unwrap_or_default(),
            agent: agent.and_then(|agent| agent.name.as_deref()).unwrap_or_default(),
            model: match agent {
                Some(agent) => agent.llms.iter().find_map(|&llm| model(llm)).unwrap_or_default(),
                None => model(at).unwrap_or_default(),
            },
        }
    }
}

/// Counts an evaluated trace.
pub(super) fn count(metrics: &AgentMetrics, evaluated: &EvaluatedTrace) {
    if !metrics.is_enabled() || evaluated.trace.views.is_empty() {
        return;
    }
    let EvaluatedTrace { trace, measurements, verdicts, summary, .. } = evaluated;
    // All spans without an agent have the labels of the first of them.
    let mut cells_by_owner: HashMap<Option<usize>, Arc<RunCells>> = HashMap::new();
    let mut owner_and_cells = |at: Idx| {
        let owner = trace.owner.get(at).copied().flatten();
        let cells = cells_by_owner.entry(owner).or_insert_with(|| {
            let AgentLabels { service, agent, model } = AgentLabels::new(trace, owner, at);
            metrics.run(service, agent, model)
        });
        (owner, Arc::clone(cells))
    };

    // Passed, failed and unmeasured measurements by owner and metric.
    let mut results: HashMap<(Option<usize>, &'static str), [u64; ResultLabel::ALL.len()]> = HashMap::new();
    for m in measurements {
        let (owner, cells) = owner_and_cells(m.at);
        let result = ResultLabel::from(m.outcome.as_ref().ok().map(|measured| measured.passed));
        results.entry((owner, m.metric)).or_default()[result as usize] += 1;
        let Ok(measured) = &m.outcome else { continue };
        if metrics.counts_scores()
            && let Value::Score(score) = &measured.value
            && let Some(normalized) = spec(m.metric).and_then(|row| row.scale.normalized(*score))
        {
            metrics.count_score(&cells, m.metric, normalized);
        }
        for finding in measured.findings.iter().filter(|finding| !measured.passed && !finding.is_note()) {
            let category = finding.category.map_or("", |category| category.as_str());
            metrics.count_finding(&cells, m.metric, category, finding.severity.as_str());
        }
    }
    for (at, view) in trace.views.iter().enumerate() {
        let (owner, cells) = owner_and_cells(at);
        match view.kind {
            Kind::Llm if !view.wrapper => {
                cells.count_tokens(counts_of(&view.tokens));
                cells.count_cost(view.cost.unwrap_or(0.0));
            }
            Kind::Tool if !view.wrapper => {
                let name =
                    view.call.as_ref().map(|call| &*call.name).or(view.name.as_deref()).unwrap_or_default();
                let labels = AgentLabels::new(trace, owner, at);
                let verdict = verdicts.by_span.get(at).copied().flatten();
                let passed = verdict.map(|verdict| !matches!(verdict, Verdict::Fail(_)));
                metrics.count_tool_call(labels.service, labels.agent, name, passed.into());
            }
            _ => {}
        }
    }
    for ((owner, metric), counts) in results {
        if let Some(cells) = cells_by_owner.get(&owner) {
            metrics.count_measurements(cells, metric, counts);
        }
    }
    if summary.close_reason != CloseReason::Late {
        count_trace(metrics, evaluated);
    }
}

fn counts_of(tokens: &Tokens) -> TokenCounts {
    TokenCounts {
        input: tokens.input.unwrap_or(0),
        output: tokens.output.unwrap_or(0),
        cached: tokens.cached.unwrap_or(0),
        cache_write: tokens.cache_write.unwrap_or(0),
        reasoning: tokens.reasoning.unwrap_or(0),
        unspecified: match (tokens.input, tokens.output) {
            (Some(_), Some(_)) => 0,
            (input, output) => tokens.total.unwrap_or(0).saturating_sub(input.or(output).unwrap_or(0)),
        },
    }
}

/// Counts the verdict of the trace for its outermost agent.
fn count_trace(metrics: &AgentMetrics, evaluated: &EvaluatedTrace) {
    let EvaluatedTrace { trace, measurements, verdicts, summary, .. } = evaluated;
    let at = trace.agents.first().map(|agent| agent.at).or_else(|| trace.tree.root()).unwrap_or(0);
    let AgentLabels { service, agent, model } =
        AgentLabels::new(trace, (!trace.agents.is_empty()).then_some(0), at);
    metrics.run(service, agent, model).count_trace(summary.passed.into());
    if let Some(version) = trace.version(at) {
        metrics.count_version(service, agent, version, summary.passed.into());
    }
    if let Some(&worst) = verdicts.trace.failure_chain.last() {
        let worst_measurements: Vec<&Measurement> = measurements.iter().filter(|m| m.at == worst).collect();
        if let Some(signature) = signature(trace, worst_measurements.iter().copied()) {
            metrics.count_failure(service, agent, &signature);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_with_a_recorded_total_alone_are_counted_as_unspecified() {
        let counts = |input, output, total| {
            let counts = counts_of(&Tokens { input, output, total, ..Tokens::default() });
            (counts.input, counts.output, counts.unspecified)
        };
        assert_eq!(counts(None, None, Some(100)), (0, 0, 100));
        assert_eq!(counts(Some(70), None, Some(100)), (70, 0, 30));
        assert_eq!(counts(Some(70), Some(20), Some(100)), (70, 20, 0));
        assert_eq!(counts(Some(70), None, None), (70, 0, 0));
    }
}
