//! The spans that a measurement on an agent, a step or a root is about.
//!
//! In: a metric, the span of its measurement, another span. Out: whether the measurement covers that span. A metric of
//! an agent's run covers every span beneath, a metric of an agent without its sub-agents the spans of that agent, and
//! a metric of the whole trace every span. Prompts contain the same spans ([`super::ask::run`]).

use verdict_otlp::trace::Idx;

use super::Settings;
use super::ask::run::run_scope;
use super::ask::transcript::{RunScope, in_scope};
use super::table::{About, spec};
use crate::recognise::AgentTrace;

/// Whether the measurement of `metric` on the span `span_index` is about the span `other`.
pub fn covers(trace: &AgentTrace, settings: &Settings, metric: &str, span_index: Idx, other: Idx) -> bool {
    let is_beneath = || trace.tree.ancestors(other).any(|span| span == span_index);
    let about = spec(metric).map_or(About::Any, |row| row.about);
    match about {
        About::Agent => is_beneath(),
        About::Run | About::Plans | About::Segments => {
            match run_scope(about, trace, &settings.gpa.per, span_index) {
                Some(RunScope::Own(agent)) => in_scope(trace, RunScope::Own(agent), other),
                Some(RunScope::Trace) => true,
                Some(RunScope::Beneath(_)) | None => is_beneath(),
            }
        }
        // A step or an agent's span covers the spans of the same agent beneath it.
        About::Model | About::Tool | About::Call | About::Any => {
            let owner = |span: Idx| trace.owner.get(span).copied().flatten();
            is_beneath() && owner(span_index).is_none_or(|agent| owner(other) == Some(agent))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::gpa::Per;
    use crate::testing::Script;

    /// A manager calls an agent, which calls a tool.
    fn nested() -> AgentTrace {
        Script::new("find it")
            .calls("I ask the searcher", &[("searcher", r#"{"task": "search"}"#)])
            .enter("search")
            .calls("looking", &[("look", r#"{"q": 1}"#)])
            .returns("nothing")
            .leave()
            .answers("it is 7")
            .build()
    }

    fn covered_spans(trace: &AgentTrace, settings: &Settings, metric: &str, span_index: Idx) -> Vec<Idx> {
        (0..trace.tree.len()).filter(|&other| covers(trace, settings, metric, span_index, other)).collect()
    }

    #[test]
    fn metric_of_an_agents_run_covers_all_spans_beneath() {
        let (trace, settings) = (nested(), Settings::default());
        let all: Vec<Idx> = (0..trace.tree.len()).collect();
        let inner = trace.agents[1].at;
        for metric in ["plan_efficiency", "tool_coverage", "tool_abuse", "completeness"] {
            assert_eq!(covered_spans(&trace, &settings, metric, trace.agents[0].at), all, "{metric}");
            let beneath: Vec<Idx> = trace.tree.subtree(inner).collect();
            assert_eq!(covered_spans(&trace, &settings, metric, inner), beneath, "{metric}");
        }
    }

    #[test]
    fn metric_of_the_trace_covers_all_spans_and_metric_of_an_agent_its_own() {
        let (trace, mut settings) = (nested(), Settings::default());
        let (outer, inner) = (trace.agents[0].at, trace.agents[1].at);
        let all: Vec<Idx> = (0..trace.tree.len()).collect();
        let spans_of = |agent: usize| -> Vec<Idx> {
            all.iter().copied().filter(|&span| trace.owner[span] == Some(agent)).collect()
        };
        assert_eq!(covered_spans(&trace, &settings, "gpa.logical_consistency", outer), all);
        assert_eq!(covered_spans(&trace, &settings, "gpa.logical_consistency", inner), spans_of(1));
        // Each agent is judged alone: of an agent that it calls, only the topmost span is covered, with task and
        // answer.
        settings.gpa.per = vec![Per::Agents];
        let outer_spans: Vec<Idx> =
            all.iter().copied().filter(|&s| trace.owner[s] == Some(0) || s == inner).collect();
        assert_eq!(covered_spans(&trace, &settings, "gpa.logical_consistency", outer), outer_spans);
        assert!(outer_spans.len() < all.len());
    }

    #[test]
    fn metric_of_a_span_covers_the_spans_of_its_agent_beneath() {
        let (trace, settings) = (nested(), Settings::default());
        let first_agent_spans: Vec<Idx> =
            (0..trace.tree.len()).filter(|&s| trace.owner[s] == Some(0)).collect();
        assert_eq!(
            covered_spans(&trace, &settings, "error_detection", trace.agents[0].at),
            first_agent_spans
        );
    }
}
