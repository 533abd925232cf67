//! The path metrics on a trace: scores on the agent's span, harmful calls on the spans that made
//! them.
//!
//! In: tasks that are ready, a trace. Out: `path.*` measurements. An agent that no task is for gets
//! none. Where several tasks are for one agent, the first scores it, and a call is harmful if any
//! of them says so: an attribute can hold one number. Scores of a run that is not over, or of which
//! calls are not recorded, are unmeasured; what was harmful until then was harmful.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::matching::calls_of;
use super::review;
use super::score::Scores;
use super::settings::Settings;
use super::task::{Gate, Task};
use super::trail::{Harm, Trail, Why};
use super::walk::Token;
use crate::measure::agent::attempts::quoted;
use crate::measure::excerpt::head;
use crate::measure::{
    Answer, Category, Context, Detail, DetailValue, Finding, Measured, Measurement, Memo, Metric, Severity,
    Step, Unmeasured, Value,
};
use crate::recognise::{AgentTrace, Call, Content};
use verdict_otlp::trace::Idx;

/// As in `verdict.metrics`.
pub const NAME: &str = "path";
/// On the span that made a harmful call.
pub const HARMFUL_CALL: &str = "path.harmful_call";

/// What is written, in this order.
pub const NAMES: [&str; 9] = [
    "path.correctness",
    "path.pc_ktc",
    "path.prefix_criticality",
    "path.harm_rate",
    "path.efficiency",
    "path.pc_hlr",
    "path.accepting",
    "path.weighted",
    HARMFUL_CALL,
];

/// Calls named in one explanation at most.
const MOST_NAMED: usize = 12;
/// Bytes of arguments shown.
const SHOWN: usize = 160;
/// Spans cited by a score at most.
const MOST_CITED: usize = 20;

/// See the module.
pub struct Paths;

impl Metric for Paths {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> Step {
        let settings = &context.settings.path;
        if settings.loaded.tasks().is_empty() {
            return Step::Done(Vec::new());
        }
        let of = all(context.trace, settings, context.memo);
        Step::Done(of.0.get(&context.at).cloned().unwrap_or_default())
    }
}

/// Every path measurement of a trace, by span.
struct All(BTreeMap<Idx, Vec<Measurement>>);

/// The harmful calls of a trace, by span: what can be told of a trace that is still open.
pub fn harmful_calls(trace: &AgentTrace, settings: &Settings) -> Vec<Measurement> {
    let mut harmful = BTreeMap::new();
    each_agent(trace, settings, &mut |judge, _, trail, _| judge.all_harmful(trail, &mut harmful));
    harmful.into_values().collect()
}

fn all(trace: &AgentTrace, settings: &Settings, memo: &Memo) -> Rc<All> {
    memo.trace(|| {
        let mut of: BTreeMap<Idx, Vec<Measurement>> = BTreeMap::new();
        let mut harmful: BTreeMap<Idx, Measurement> = BTreeMap::new();
        each_agent(trace, settings, &mut |judge, i, trail, calls| {
            judge.all_harmful(trail, &mut harmful);
            let at = trace.agents.get(i).map_or(0, |agent| agent.at);
            let own = of.entry(at).or_default();
            if own.is_empty() {
                own.extend(judge.scores(i, trail, calls));
            }
        });
        for (at, measurement) in harmful {
            of.entry(at).or_default().push(measurement);
        }
        All(of)
    })
}

/// What is done with an agent's trail: who judges, which agent, the trail, its calls.
type Each<'e> = dyn FnMut(&Judge<'_>, usize, &Trail, &[usize]) + 'e;

/// Calls `each` with every agent and task that belong together.
fn each_agent(trace: &AgentTrace, settings: &Settings, each: &mut Each<'_>) {
    for i in 0..trace.agents.len() {
        for task in settings.loaded.tasks() {
            if let Some((calls, captured)) = calls_of(task, trace, i) {
                let trail = Trail::follow(task, trace, &calls, &captured);
                each(&Judge { trace, settings, task }, i, &trail, &calls);
            }
        }
    }
}

fn made(call: &Call) -> review::Made<'_> {
    review::Made {
        name: &call.name,
        arguments: call.parsed.as_deref().and_then(|parsed| parsed.as_object()),
        failed: call.failed,
    }
}

struct Judge<'a> {
    trace: &'a AgentTrace,
    settings: &'a Settings,
    task: &'a Task,
}

impl Judge<'_> {
    fn fails_on(&self, gate: Gate) -> bool {
        self.task.fail_on.as_ref().unwrap_or(&self.settings.fail_on).contains(&gate)
    }

    fn measurement(
        &self,
        at: Idx,
        metric: &'static str,
        outcome: Result<Measured, Unmeasured>,
    ) -> Measurement {
        let judge = Cow::Owned(format!("task/{}", self.task.name));
        Measurement { at, metric, outcome, judge, details: Vec::new(), rationale: None }
    }

    /// Why the scores of agent `i` cannot be told, if so.
    fn untold(&self, i: usize, trail: &Trail) -> Option<Unmeasured> {
        let agent = self.trace.agents.get(i)?;
        let silent =
            |at: &Idx| self.trace.views.get(*at).is_none_or(|r| r.output_content != Content::Present);
        // No calls may also mean that none was recorded.
        let hidden = self.trace.calls.is_empty() && agent.llms.iter().all(silent);
        (trail.lost || hidden).then_some(Unmeasured::NoContent)
    }

    fn scores(&self, i: usize, trail: &Trail, calls: &[usize]) -> Vec<Measurement> {
        let Some(agent) = self.trace.agents.get(i) else { return Vec::new() };
        let scores = Scores::of(&self.task.automaton, &trail.walk, self.task.parameters);
        let untold = self.untold(i, trail);
        // What is missing may still come, but for harm, which has been done.
        let unfinished = untold.or(self.trace.incomplete.then_some(Unmeasured::NotApplicable));
        let score = |name, gate, value: Option<f64>, why: Option<Unmeasured>| {
            let outcome = match (why, value) {
                (Some(why), _) => Err(why),
                (None, None) => Err(Unmeasured::NotApplicable),
                (None, Some(value)) => Ok(self.judged(gate, value, trail)),
            };
            self.measurement(agent.at, name, outcome)
        };
        let mut out = vec![
            score(NAMES[0], Gate::Correctness, scores.correctness, unfinished),
            score(NAMES[1], Gate::PcKtc, scores.pc_ktc, unfinished),
            score(NAMES[2], Gate::PrefixCriticality, Some(scores.prefix_criticality), untold),
            score(NAMES[3], Gate::HarmRate, Some(scores.harm_rate), untold),
            score(NAMES[4], Gate::Efficiency, scores.efficiency, unfinished),
            score(NAMES[5], Gate::PcHlr, scores.pc_hlr, unfinished),
            self.measurement(
                agent.at,
                NAMES[6],
                unfinished.map_or_else(|| Ok(self.ended(&scores, trail)), Err),
            ),
        ];
        if untold.is_none() {
            // H, HarmFree and the state: without them 1.0 may also be a run that did nothing.
            out[3].details = vec![
                Detail { key: "path.harmful_calls", value: DetailValue::Count(scores.harmful_calls as u64) },
                Detail { key: "path.harm_free", value: DetailValue::Number(scores.harm_free()) },
            ];
            let state = self.task.automaton.state_name(scores.final_state).to_owned();
            out[6].details = vec![Detail { key: "path.final_state", value: DetailValue::Text(state) }];
            out[6].details.extend(self.hidden_by_the_end(calls));
        }
        if let Some(weights) = &self.task.weights {
            out.push(score(NAMES[7], Gate::Weighted, scores.weighted(weights), unfinished));
        }
        out
    }

    /// What the end state does not show: calls that undo each other, writes made twice.
    fn hidden_by_the_end(&self, calls: &[usize]) -> Vec<Detail> {
        let all: Vec<&Call> = calls.iter().filter_map(|i| self.trace.calls.get(*i)).collect();
        let made: Vec<review::Made<'_>> = all.iter().map(|call| made(call)).collect();
        let said = |key, pairs: Vec<(usize, usize)>, word: &str| {
            let said = |(a, b): (usize, usize)| format!("{}, {word} {}", made[a].name, made[b].name);
            let texts: Vec<String> = pairs.into_iter().take(MOST_NAMED).map(said).collect();
            (!texts.is_empty()).then_some(Detail { key, value: DetailValue::Texts(texts) })
        };
        let undone = said("path.undone", review::compensating(&made), "undone by");
        let repeated = said("path.repeated", review::repeated(&made), "again");
        undone.into_iter().chain(repeated).collect()
    }

    fn judged(&self, gate: Gate, value: f64, trail: &Trail) -> Measured {
        let limit = self.task.thresholds.or(self.settings.thresholds).of(gate).unwrap_or(0.0);
        let most = gate == Gate::HarmRate;
        let reached = if most { value <= limit } else { value >= limit };
        let passed = reached || !self.fails_on(gate);
        let findings = (!passed).then(|| {
            let side = if most { "at most" } else { "at least" };
            let rationale = format!(
                "{side} {limit} was expected for the task '{}'; these calls come to {value:.4}",
                self.task.name
            );
            self.finding(rationale, self.condensed(trail), Severity::Medium, trail)
        });
        Measured { value: Value::Score(value), passed, findings: findings.into_iter().collect() }
    }

    fn ended(&self, scores: &Scores, trail: &Trail) -> Measured {
        let automaton = &self.task.automaton;
        let passed = scores.accepting || !self.fails_on(Gate::Accepting);
        let label = if scores.accepting { "accepting" } else { "not_accepting" };
        let findings = (!passed).then(|| {
            let state = automaton.state_name(scores.final_state);
            let next = self.names(automaton.progress(scores.final_state).map(|(symbol, _)| symbol));
            let rationale = format!(
                "an end in a final state of the task '{}' was expected; the run ended in '{state}'; what would have \
                 gone on: {next}",
                self.task.name
            );
            Finding {
                rationale,
                quote: self.condensed(trail),
                seen_in: None,
                cited: Vec::new(),
                category: Some(Category::GoalDeviation),
                severity: Severity::Medium,
                score: 2.0,
                origin: None,
                fact: true,
                defect: None,
            }
        });
        Measured { value: Value::Label(label), passed, findings: findings.into_iter().collect() }
    }

    fn all_harmful(&self, trail: &Trail, all: &mut BTreeMap<Idx, Measurement>) {
        trail.harmful.iter().for_each(|harm| self.harmful(harm, all));
    }

    /// Adds a harmful call to what is said of its span.
    fn harmful(&self, harm: &Harm, all: &mut BTreeMap<Idx, Measurement>) {
        let Some(call) = self.trace.calls.get(harm.call) else { return };
        let passed = !self.fails_on(Gate::HarmfulCall);
        let finding = Finding {
            rationale: self.why(harm, call.name.trim()),
            quote: head(quoted(call), SHOWN).to_owned(),
            seen_in: None,
            cited: Vec::new(),
            category: Some(Category::ToolSelectionErrors),
            severity: Severity::High,
            score: 1.0,
            origin: None,
            fact: true,
            defect: None,
        };
        let found = Measured { value: Value::Label(harm.why.as_str()), passed, findings: vec![finding] };
        match all.get_mut(&call.at).map(|known| &mut known.outcome) {
            // Another task's, or another call of the same model span.
            Some(Ok(known)) => {
                known.passed &= found.passed;
                if known.findings.len() < MOST_NAMED {
                    known.findings.extend(found.findings);
                }
            }
            _ => {
                let state = self.task.automaton.state_name(harm.state).to_owned();
                let mut measurement = self.measurement(call.at, HARMFUL_CALL, Ok(found));
                measurement.details =
                    vec![Detail { key: "path.harmful_call.state", value: DetailValue::Text(state) }];
                all.insert(call.at, measurement);
            }
        }
    }

    /// The state and the reason, in words.
    fn why(&self, harm: &Harm, name: &str) -> String {
        let automaton = &self.task.automaton;
        let state = automaton.state_name(harm.state);
        let allowed = self.names(automaton.edges(harm.state).iter().map(|(symbol, _)| *symbol));
        let what = match harm.why {
            Why::NotAllowedHere => "is not allowed there",
            Why::OtherArguments => "is not allowed with these arguments at all",
            Why::OtherFunction => "is not part of the task",
        };
        format!("in state '{state}' of the task '{}': expected was {allowed}; {name} {what}", self.task.name)
    }

    fn names(&self, symbols: impl Iterator<Item = super::Symbol>) -> String {
        let mut names: Vec<&str> = symbols.map(|s| self.task.automaton.symbol_name(s)).collect();
        let more = names.len() > MOST_NAMED;
        names.truncate(MOST_NAMED);
        match (names.is_empty(), more) {
            (true, _) => "nothing".to_owned(),
            (false, true) => names.join(", ") + ", ...",
            (false, false) => names.join(", "),
        }
    }

    /// The condensed path in symbols, harmful steps with an exclamation mark.
    fn condensed(&self, trail: &Trail) -> String {
        let kept = trail.walk.condensed();
        let names = kept.iter().take(MOST_NAMED * 2).map(|kept| {
            let name: Cow<'_, str> = match kept.token {
                Token::Symbol(symbol) => self.task.automaton.symbol_name(symbol).into(),
                Token::Foreign(i) => {
                    self.trace.calls.get(i as usize).map_or("?".into(), |c| c.name.to_string().into())
                }
            };
            if kept.harmful { format!("{name}!") } else { name.into_owned() }
        });
        if kept.is_empty() {
            return "no call".to_owned();
        }
        let shown = names.collect::<Vec<_>>().join(" ");
        if kept.len() > MOST_NAMED * 2 { shown + " ..." } else { shown }
    }

    fn finding(&self, rationale: String, quote: String, severity: Severity, trail: &Trail) -> Finding {
        let spans = trail.harmful.iter().filter_map(|harm| {
            let at = self.trace.calls.get(harm.call)?.at;
            Some(self.trace.tree.spans.get(at)?.id)
        });
        let finding = Finding {
            rationale,
            quote,
            seen_in: None,
            cited: Vec::new(),
            category: Some(Category::TaskOrchestration),
            severity,
            score: 2.0,
            origin: None,
            fact: true,
            defect: None,
        };
        spans.take(MOST_CITED).fold(finding, Finding::citing)
    }
}

#[cfg(test)]
mod tests;
