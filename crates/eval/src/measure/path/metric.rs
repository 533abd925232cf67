//! The path metrics of a trace: scores on the agent's span, harmful calls on the calling spans.
//!
//! In: loaded tasks, a trace. Out: `path.*` measurements. An agent without a task gets none. If
//! several tasks apply to one agent, the scores of the first are `path.*` and those of the others
//! `path.<task>.*`; a call is harmful if it is harmful for any task. Scores of a run that is incomplete, or has
//! unrecorded calls, are unmeasured; harmful calls before that point are reported.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use verdict_otlp::trace::Idx;

use super::matching::{calls_of, matching_steps};
use super::review;
use super::run_walk::{HarmfulCall, RunWalk};
use super::score::PathScores;
use super::settings::{PathSettings, TaskSet};
use super::task::Task;
use super::walk::PathToken;
use crate::measure::calls::attempts::quoted;
use crate::measure::excerpt::{clip, head};
use crate::measure::harm_reason::HarmReason;
use crate::measure::metric_names::PathMetric;
use crate::measure::rule::Rule;
use crate::measure::table::HARMFUL_CALL_STATE;
use crate::measure::{
    Answer, Category, Context, Detail, DetailValue, Finding, Measured, Measurement, Memo, Metric,
    MetricProgress, Unmeasured, Value,
};
use crate::recognise::{AgentTrace, Call, Content};

/// Maximum number of calls that one explanation names.
const MAX_NAMED: usize = 12;
/// Maximum length of the name of a function in such a list, in bytes. Names come from the trace.
const MAX_NAME_BYTES: usize = 64;
/// Maximum number of bytes of quoted arguments.
const MAX_QUOTE_BYTES: usize = 160;
/// Maximum number of spans that a score cites.
const MAX_CITED: usize = 20;
/// The score of a finding of high severity, on the scale from 1 to 5.
const HIGH: f64 = 1.0;
/// The score of a finding of medium severity.
const MEDIUM: f64 = 2.0;

/// The path metrics.
pub(crate) struct Paths;

impl Rule for Paths {}

impl Metric for Paths {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> MetricProgress {
        let (settings, tasks) = (&context.settings.path, &context.settings.path_tasks);
        if tasks.is_empty() {
            return MetricProgress::Done(Vec::new());
        }
        let measurements = measure_all(context.trace, (settings, tasks), context.memo);
        MetricProgress::Done(measurements.0.get(&context.at).cloned().unwrap_or_default())
    }
}

/// The settings, and the tasks, whose own settings take precedence.
pub(crate) type PathRules<'a> = (&'a PathSettings, &'a TaskSet);

/// All path measurements of a trace.
struct MeasurementsBySpan(BTreeMap<Idx, Vec<Measurement>>);

/// The harmful calls of a trace, which may still be open.
pub(crate) fn harmful_calls(trace: &AgentTrace, rules: PathRules<'_>, memo: &Memo) -> Vec<Measurement> {
    let mut harmful = BTreeMap::new();
    for TaskRun { scorer, run_walk, .. } in task_runs(trace, rules, memo) {
        run_walk.harmful_calls.iter().for_each(|harm| scorer.add_harmful_call(harm, &mut harmful));
    }
    harmful.into_values().collect()
}

/// The measurements of all runs that tasks match, computed once per trace.
fn measure_all(trace: &AgentTrace, rules: PathRules<'_>, memo: &Memo) -> Rc<MeasurementsBySpan> {
    memo.trace(|| {
        let mut by_span: BTreeMap<Idx, Vec<Measurement>> = BTreeMap::new();
        let mut harmful: BTreeMap<Idx, Measurement> = BTreeMap::new();
        // All runs are followed before any is scored: scores may use up the work budget, and the harmful calls of other
        // agents must be found nevertheless.
        let runs = task_runs(trace, rules, memo);
        for TaskRun { scorer, agent, run_walk, calls } in &runs {
            run_walk.harmful_calls.iter().for_each(|harm| scorer.add_harmful_call(harm, &mut harmful));
            let agent_span = trace.agents.get(*agent).map_or(0, |agent| agent.at);
            let span_measurements = by_span.entry(agent_span).or_default();
            // An agent has one span, so the first task of an agent is the one whose span has no measurements yet.
            let task = (!span_measurements.is_empty()).then(|| Arc::from(scorer.task.name.as_str()));
            let mut scores = scorer.scores(*agent, run_walk, calls, memo);
            scores.iter_mut().for_each(|score| score.task.clone_from(&task));
            span_measurements.extend(scores);
        }
        for (span, measurement) in harmful {
            by_span.entry(span).or_default().push(measurement);
        }
        MeasurementsBySpan(by_span)
    })
}

/// The run of an agent, followed through a task that applies to it.
struct TaskRun<'a> {
    scorer: TaskScorer<'a>,
    agent: usize,
    run_walk: RunWalk,
    /// Indexes into [`AgentTrace::calls`].
    calls: Vec<usize>,
}

/// The runs of all agents, with each task that applies, until the work budget is spent.
fn task_runs<'a>(trace: &'a AgentTrace, (settings, tasks): PathRules<'a>, memo: &Memo) -> Vec<TaskRun<'a>> {
    let mut out = Vec::new();
    for agent in 0..trace.agents.len() {
        for task in tasks.tasks() {
            if !memo.budget.spend(matching_steps(task, trace, agent)) {
                return out;
            }
            if let Some((calls, captures)) = calls_of(task, trace, agent) {
                let run_walk = RunWalk::follow_with(memo, task, trace, &calls, &captures);
                let scorer = TaskScorer { trace, settings, task };
                out.push(TaskRun { scorer, agent, run_walk, calls });
            }
        }
    }
    out
}

fn reviewed_call(call: &Call) -> review::ReviewedCall<'_> {
    review::ReviewedCall {
        name: &call.name,
        arguments: call.parsed.as_deref().and_then(|parsed| parsed.as_object()),
        failed: call.failed,
    }
}

/// Measures runs by one task.
struct TaskScorer<'a> {
    trace: &'a AgentTrace,
    settings: &'a PathSettings,
    task: &'a Task,
}

impl TaskScorer<'_> {
    /// Whether the metric can fail a run, by the task or else by the configuration.
    fn fails_on(&self, metric: PathMetric) -> bool {
        self.task.fail_on.as_ref().unwrap_or(&self.settings.fail_on).contains(&metric)
    }

    fn measurement(
        &self,
        span_index: Idx,
        metric: PathMetric,
        outcome: Result<Measured, Unmeasured>,
    ) -> Measurement {
        Measurement::new(span_index, metric.as_str(), format!("task/{}", self.task.name), outcome)
    }

    /// The reason why the scores of agent `i` are unmeasured; `None` if they are measured.
    fn unmeasured(&self, i: usize, run_walk: &RunWalk) -> Option<Unmeasured> {
        let agent = self.trace.agents.get(i)?;
        let has_no_output = |span_index: &Idx| {
            self.trace.views.get(*span_index).is_none_or(|r| r.output_content != Content::Present)
        };
        // A trace without calls and without model outputs was recorded without content.
        let is_without_content = self.trace.calls.is_empty() && agent.llms.iter().all(has_no_output);
        run_walk.indeterminate.or(is_without_content.then_some(Unmeasured::NoContent))
    }

    /// The scores of the run of agent `i`, on the agent's span.
    fn scores(&self, i: usize, run_walk: &RunWalk, calls: &[usize], memo: &Memo) -> Vec<Measurement> {
        let Some(agent) = self.trace.agents.get(i) else { return Vec::new() };
        let is_limited = Cell::new(false);
        let allows = |steps| {
            let is_left = memo.budget.spend_if_left(steps);
            is_limited.set(is_limited.get() || !is_left);
            is_left
        };
        let mut scores =
            PathScores::within(&self.task.automaton, &run_walk.walk, self.task.parameters, &allows);
        let exceeds_budget =
            |value: Option<f64>| (value.is_none() && is_limited.get()).then_some(Unmeasured::Limit);
        scores.is_accepting = run_walk.accepts(self.task);
        let unmeasured = self.unmeasured(i, run_walk);
        // Missing calls of an incomplete run may follow; harmful calls are final.
        let unfinished = unmeasured.or(self.trace.incomplete.then_some(Unmeasured::NotApplicable));
        // Paper 002 defines the best scores of harm for a path without calls, but no call was examined for them.
        let harm_unmeasured = unmeasured.or(calls.is_empty().then_some(Unmeasured::NotApplicable));
        let score = |metric: PathMetric, value: Option<f64>, reason: Option<Unmeasured>| {
            let value = reason.map_or(value.ok_or(Unmeasured::NotApplicable), Err);
            self.measurement(
                agent.at,
                metric,
                value.map(|value| self.measured_score(metric, value, run_walk)),
            )
        };
        let mut harm_rate = score(PathMetric::HarmRate, Some(scores.harm_rate), harm_unmeasured);
        let end = unfinished.map_or_else(|| Ok(self.measured_end(&scores, run_walk)), Err);
        let mut accepting = self.measurement(agent.at, PathMetric::Accepting, end);
        if unmeasured.is_none() {
            // These details distinguish a rate of 0 over calls from that of a path without calls.
            harm_rate.details = vec![
                Detail { key: "path.harmful_calls", value: DetailValue::Count(scores.harmful_calls as u64) },
                Detail { key: "path.harm_free", value: DetailValue::Number(scores.harm_free()) },
            ];
            let state = self.task.automaton.state_name(scores.final_state).to_owned();
            accepting.details = vec![Detail { key: "path.final_state", value: DetailValue::Text(state) }];
            accepting.details.extend(self.calls_hidden_by_final_state(calls));
        }
        let mut out = vec![
            score(
                PathMetric::Correctness,
                scores.correctness,
                unfinished.or(exceeds_budget(scores.correctness)),
            ),
            // PC-KTC is missing only if there are more golden paths than are compared.
            score(
                PathMetric::PcKtc,
                scores.pc_ktc,
                unfinished.or(Some(Unmeasured::Limit).filter(|_| scores.pc_ktc.is_none())),
            ),
            score(PathMetric::PrefixCriticality, Some(scores.prefix_criticality), harm_unmeasured),
            harm_rate,
            score(PathMetric::Efficiency, scores.efficiency, unfinished),
            score(PathMetric::PcHlr, scores.pc_hlr, unfinished.or(exceeds_budget(scores.pc_hlr))),
            accepting,
        ];
        if let Some(weights) = &self.task.weights {
            // A mean without one of its scores would be incomparable to others.
            let is_partial = is_limited.get().then_some(Unmeasured::Limit);
            let weighted = scores.weighted(weights);
            out.push(score(PathMetric::Weighted, weighted, unfinished.or(is_partial)));
        }
        for measurement in out.iter_mut().filter(|m| m.outcome.is_ok()) {
            // Of a path without calls, the end is examined.
            measurement.examined = calls.len().max(1) as u64;
        }
        out
    }

    /// Compensating calls and repeated writes, which the final state does not show.
    fn calls_hidden_by_final_state(&self, calls: &[usize]) -> Vec<Detail> {
        let all: Vec<&Call> = calls.iter().filter_map(|i| self.trace.calls.get(*i)).collect();
        let reviewed_calls: Vec<review::ReviewedCall<'_>> =
            all.iter().map(|call| reviewed_call(call)).collect();
        let detail = |key, pairs: Vec<(usize, usize)>, relation: &str| {
            let name = |i: usize| clip(reviewed_calls[i].name, MAX_NAME_BYTES);
            let text = |(a, b): (usize, usize)| format!("{}, {relation} {}", name(a), name(b));
            let texts: Vec<String> = pairs.into_iter().take(MAX_NAMED).map(text).collect();
            (!texts.is_empty()).then_some(Detail { key, value: DetailValue::Texts(texts) })
        };
        let undone = detail("path.undone", review::compensating(&reviewed_calls), "undone by");
        let repeated = detail("path.repeated", review::repeated(&reviewed_calls), "again");
        undone.into_iter().chain(repeated).collect()
    }

    /// A score, with a finding if it is beyond the limit of a metric that fails the run.
    fn measured_score(&self, metric: PathMetric, value: f64, run_walk: &RunWalk) -> Measured {
        let limit = self.task.thresholds.limit_for(metric, &self.settings.thresholds).unwrap_or(0.0);
        let is_maximum = metric == PathMetric::HarmRate;
        let is_within_limit = if is_maximum { value <= limit } else { value >= limit };
        let passed = is_within_limit || !self.fails_on(metric);
        let findings = (!passed).then(|| {
            let side = if is_maximum { "at most" } else { "at least" };
            let rationale = format!(
                "{side} {limit} was expected for the task '{}'; these calls come to {value:.4}",
                self.task.name
            );
            let spans = run_walk.harmful_calls.iter().filter_map(|harm| {
                let calling_span = self.trace.calls.get(harm.call)?.at;
                Some(self.trace.tree.spans.get(calling_span)?.id)
            });
            let finding =
                finding(rationale, self.render_condensed(run_walk), Category::TaskOrchestration, MEDIUM);
            spans.take(MAX_CITED).fold(finding, Finding::citing)
        });
        Measured { value: Value::Score(value), passed, findings: findings.into_iter().collect() }
    }

    /// Whether the run ended in a final state, with a finding if it did not and this fails the run.
    fn measured_end(&self, scores: &PathScores, run_walk: &RunWalk) -> Measured {
        let automaton = &self.task.automaton;
        let passed = scores.is_accepting || !self.fails_on(PathMetric::Accepting);
        let label = if scores.is_accepting { "accepting" } else { "not_accepting" };
        let findings = (!passed).then(|| {
            let state = automaton.state_name(scores.final_state);
            let next = self.symbol_names(automaton.progress(scores.final_state).map(|(symbol, _)| symbol));
            let missing = run_walk.registers.unanswered(&self.task.limits).map(|limit| &limit.text);
            let missing = missing.map(|rule| format!("; the rule '{rule}' is not fulfilled")).unwrap_or_default();
            let rationale = format!(
                "an end in a final state of the task '{}' was expected; the run ended in '{state}'; calls allowed \
                 next: {next}{missing}",
                self.task.name
            );
            finding(rationale, self.render_condensed(run_walk), Category::GoalDeviation, MEDIUM)
        });
        Measured { value: Value::Label(label), passed, findings: findings.into_iter().collect() }
    }

    /// Adds a harmful call to the measurement of its span.
    fn add_harmful_call(&self, harm: &HarmfulCall, all: &mut BTreeMap<Idx, Measurement>) {
        let Some(call) = self.trace.calls.get(harm.call) else { return };
        let passed = !self.fails_on(PathMetric::HarmfulCall);
        let quote = head(quoted(call), MAX_QUOTE_BYTES).to_owned();
        let rationale = self.explain_harm(harm, call.name.trim());
        let finding = finding(rationale, quote, Category::ToolSelectionErrors, HIGH);
        let harmful = Measured { value: Value::Label(harm.reason.as_str()), passed, findings: vec![finding] };
        match all.get_mut(&call.at).map(|existing| &mut existing.outcome) {
            // Another task, or another call on the same model span, has been measured.
            Some(Ok(existing)) => {
                existing.passed &= harmful.passed;
                if existing.findings.len() < MAX_NAMED {
                    existing.findings.extend(harmful.findings);
                }
            }
            _ => {
                let state = self.task.automaton.state_name(harm.state).to_owned();
                let mut measurement =
                    self.measurement(call.at, PathMetric::HarmfulCall, Ok(harmful)).having_examined(1);
                measurement.details =
                    vec![Detail { key: HARMFUL_CALL_STATE, value: DetailValue::Text(state) }];
                all.insert(call.at, measurement);
            }
        }
    }

    /// The explanation of a harmful call.
    fn explain_harm(&self, harm: &HarmfulCall, name: &str) -> String {
        let automaton = &self.task.automaton;
        let state = automaton.state_name(harm.state);
        if let Some(limit) = harm.limit.and_then(|i| self.task.limits.get(i)) {
            return format!(
                "the rule '{}' of the task '{}' does not allow {name} here",
                limit.text, self.task.name
            );
        }
        let allowed = self.symbol_names(automaton.edges(harm.state).iter().map(|(symbol, _)| *symbol));
        let problem = match harm.reason {
            HarmReason::NotAllowedHere
            | HarmReason::OverLimit
            | HarmReason::TooLate
            | HarmReason::TooSoon => "is not allowed in this state",
            HarmReason::OtherArguments => "is not allowed with these arguments in any state",
            HarmReason::OtherFunction => "is not part of the task",
        };
        format!(
            "{allowed} was expected in state '{state}' of the task '{}'; {name} {problem}",
            self.task.name
        )
    }

    /// The names of the first symbols, for a text.
    fn symbol_names(&self, symbols: impl Iterator<Item = super::Symbol>) -> String {
        let names = symbols.map(|s| self.task.automaton.symbol_name(s)).take(MAX_NAMED + 1);
        let mut names: Vec<&str> = names.collect();
        if let Some(rest) = names.get_mut(MAX_NAMED) {
            *rest = "...";
        }
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    }

    /// The condensed path in symbols, harmful steps with an exclamation mark.
    fn render_condensed(&self, run_walk: &RunWalk) -> String {
        let steps = run_walk.walk.condensed();
        if steps.is_empty() {
            return "no call".to_owned();
        }
        let names = steps.iter().take(MAX_NAMED * 2).map(|step| {
            let name = match step.token {
                PathToken::Symbol(symbol) => self.task.automaton.symbol_name(symbol),
                PathToken::Foreign(i) => {
                    self.trace.calls.get(i as usize).map_or("?", |call| clip(&call.name, MAX_NAME_BYTES))
                }
            };
            if step.is_harmful { format!("{name}!") } else { name.to_owned() }
        });
        let shown = names.collect::<Vec<_>>().join(" ");
        if steps.len() > MAX_NAMED * 2 { shown + " ..." } else { shown }
    }
}

fn finding(rationale: String, quote: String, category: Category, score: f64) -> Finding {
    Finding { category: Some(category), fact: true, ..Finding::new(rationale, quote, score) }
}

#[cfg(test)]
mod tests;
