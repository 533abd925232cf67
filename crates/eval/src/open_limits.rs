//! Alarms about the tokens, the cost and the loops of a trace that is still open.
//!
//! In: an open trace as far as its spans have arrived, and the limits of `verdict.alarms`. Out: at most one alarm per
//! cause. A loop is a failure of `tool_abuse`, by the same rule and threshold; tokens and cost are sums over model
//! calls. Further spans cannot undo an exceeded limit or a repeated call, so these alarms are never retracted.

use std::sync::Arc;

use verdict_config::{Problem, settings};
use verdict_otlp::trace::{Idx, Kind};

use crate::annotate::alarm::{AlarmCause, LimitAlarm};
use crate::measure::agent::tool_abuse;
use crate::measure::table::{SectionKey, rows_of};
use crate::measure::{Context, Memo, Settings};
use crate::recognise::{AgentTrace, SpanView};

settings! {
    /// Alarms about traces that are still open. Harmful calls raise theirs wherever tasks are configured.
    pub struct AlarmConfig {
        /// Default false. Report a run that repeats calls without progress, as soon as `tool_abuse` would fail. Open
        /// traces are then examined while they grow, which costs about as much as evaluating each once more.
        loops: bool = false,
        /// Default none. Report a trace whose model calls have taken more tokens, input and output.
        max_tokens: Option<u64>,
        /// Default none. Report a trace whose model calls have cost more, by the costs that its spans record.
        max_cost_usd: Option<f64>,
    }
}

impl AlarmConfig {
    /// Whether an alarm is configured.
    pub(crate) fn is_on(&self) -> bool {
        self.loops || self.max_tokens.is_some() || self.max_cost_usd.is_some()
    }

    pub(crate) fn problems(&self) -> Vec<Problem> {
        let is_invalid = self.max_cost_usd.is_some_and(|limit| !limit.is_finite() || limit < 0.0);
        is_invalid.then(|| Problem::new("max_cost_usd", "must be 0 or more")).into_iter().collect()
    }
}

/// The alarms of an open trace.
pub(crate) fn alarms(
    trace: &AgentTrace,
    config: &AlarmConfig,
    settings: &Settings,
    memo: &Memo,
) -> Vec<LimitAlarm> {
    let loops = config.loops.then(|| loop_alarm(trace, settings, memo)).flatten();
    let tokens = config.max_tokens.and_then(|limit| {
        let used = |view: &SpanView| view.tokens.sum().map(|sum| sum as f64);
        let (used, index) = exceeded_sum(trace, limit as f64, used)?;
        let text =
            format!("At most {limit} tokens were expected; the model calls of this trace have taken {used}.");
        limit_alarm(trace, AlarmCause::Tokens, index, text)
    });
    let cost = config.max_cost_usd.and_then(|limit| {
        let (used, index) = exceeded_sum(trace, limit, |view| view.cost)?;
        let text = format!(
            "At most USD {limit} was expected; the model calls of this trace have cost USD {used:.4}."
        );
        limit_alarm(trace, AlarmCause::Cost, index, text)
    });
    [loops, tokens, cost].into_iter().flatten().collect()
}

/// The sum of `amount` over all model calls, and the span at which it exceeded `limit`; `None` if it did not.
fn exceeded_sum(
    trace: &AgentTrace,
    limit: f64,
    amount: impl Fn(&SpanView) -> Option<f64>,
) -> Option<(f64, Idx)> {
    let mut sum = 0.0;
    let mut exceeded = None;
    for (index, view) in trace.views.iter().enumerate() {
        let is_counted = view.kind == Kind::Llm && !view.wrapper;
        sum += amount(view).filter(|value| is_counted && value.is_finite()).unwrap_or(0.0);
        if sum > limit && exceeded.is_none() {
            exceeded = Some(index);
        }
    }
    exceeded.map(|index| (sum, index))
}

fn loop_alarm(trace: &AgentTrace, settings: &Settings, memo: &Memo) -> Option<LimitAlarm> {
    let row = rows_of(SectionKey::tool_abuse).next()?;
    trace.agents.iter().enumerate().find_map(|(n, agent)| {
        let context = Context { row, trace, at: agent.at, settings, memo, rule_measurements: &[] };
        let measured = tool_abuse::measure(&context, n, agent).outcome.ok().filter(|m| !m.passed)?;
        let finding = measured.findings.into_iter().find(|finding| !finding.is_note())?;
        // The alarm is about the most recent of the repeated calls.
        let last =
            finding.cited.iter().filter_map(|id| trace.tree.spans.iter().position(|s| s.id == *id)).max();
        limit_alarm(trace, AlarmCause::Loop, last.unwrap_or(agent.at), finding.rationale)
    })
}

fn limit_alarm(trace: &AgentTrace, cause: AlarmCause, index: Idx, explanation: String) -> Option<LimitAlarm> {
    let span = trace.tree.spans.get(index)?;
    let session = trace.views.iter().find_map(|view| view.session.as_deref());
    Some(LimitAlarm {
        cause,
        span: span.id,
        agent: agent_of(trace, index),
        session: session.map(str::to_owned),
        explanation,
        time: span.start,
        envelope: Arc::clone(&span.envelope),
    })
}

/// The name of the agent that a span belongs to; of the outermost agent if the span belongs to none.
pub(crate) fn agent_of(trace: &AgentTrace, index: Idx) -> Option<String> {
    let owner = trace.owner.get(index).copied().flatten().and_then(|agent| trace.agents.get(agent));
    owner.or(trace.agents.first()).and_then(|agent| agent.name.as_deref()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use verdict_otlp::trace::SpanId;

    use super::*;
    use crate::annotate::alarm::AlarmCause::{Cost, Loop, Tokens};
    use crate::measure::testing::Script;
    use crate::recognise::span_view::Tokens as Counts;

    /// An agent whose model calls take 100 tokens and cost half a dollar each.
    fn trace(results: &[&str]) -> AgentTrace {
        let mut script = Script::new("task");
        for result in results {
            script = script.calls("", &[("visit", r#"{"url":"a.example"}"#)]).returns(result);
        }
        let mut trace = script.answers("done").build();
        for view in trace.views.iter_mut() {
            // Every span has tokens and a cost; only those of model calls are counted.
            (view.tokens.input, view.tokens.output) = (Some(99), Some(1));
            view.cost = Some(0.5);
        }
        trace
    }

    fn causes(trace: &AgentTrace, config: &str) -> Vec<(AlarmCause, SpanId)> {
        let config: AlarmConfig = serde_saphyr::from_str(config).unwrap();
        let all = alarms(trace, &config, &Settings::default(), &Memo::new());
        all.into_iter().map(|alarm| (alarm.cause, alarm.span)).collect()
    }

    #[test]
    fn sums_are_of_model_calls_without_wrappers_and_name_the_span_that_exceeds_the_limit() {
        let mut trace = trace(&["found", "found more"]);
        let llms: Vec<Idx> = (0..trace.views.len()).filter(|i| trace.views[*i].kind == Kind::Llm).collect();
        assert_eq!(llms.len(), 3);
        let span = |n: usize| trace.tree.spans[llms[n]].id;
        let (second, third) = (span(1), span(2));
        assert_eq!(causes(&trace, "max_tokens: 199"), [(Tokens, second)]);
        assert_eq!(
            causes(&trace, "{ max_tokens: 200, max_cost_usd: 0.9 }"),
            [(Tokens, third), (Cost, second)]
        );
        assert_eq!(causes(&trace, "{ max_tokens: 300, max_cost_usd: 1.5, loops: true }"), []);
        // An instrumentation may report totals only.
        trace.views[llms[1]].tokens = Counts { total: Some(100), ..Counts::default() };
        assert_eq!(causes(&trace, "max_tokens: 199"), [(Tokens, second)]);
        trace.views[llms[2]].wrapper = true;
        assert_eq!(causes(&trace, "max_tokens: 200"), []);
    }

    #[test]
    fn a_loop_is_a_failure_of_tool_abuse() {
        let error = "Error: invalid url 'a.example': the scheme https:// is required";
        let looping = trace(&[error; 4]);
        assert_eq!(
            causes(&looping, "loops: true").iter().map(|(cause, _)| *cause).collect::<Vec<_>>(),
            [Loop]
        );
        assert_eq!(causes(&looping, "loops: false"), []);
        assert_eq!(causes(&trace(&[error, "found"]), "loops: true"), []);
    }

    #[test]
    fn limits_are_checked() {
        let problems = |yaml: &str| serde_saphyr::from_str::<AlarmConfig>(yaml).unwrap().problems().len();
        let all = [problems("max_cost_usd: -1"), problems("max_cost_usd: .nan"), problems("max_cost_usd: 0")];
        assert_eq!(all, [1, 1, 0]);
    }
}
