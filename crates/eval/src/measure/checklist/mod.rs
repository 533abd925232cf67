//! The task as a checklist of questions, each answered with proofs from the run (paper 003, the
//! Auto-Eval Judge).
//!
//! In: an agent's task and its run. Out: `checklist.verdict`, yes or no, with every question, its
//! proofs and its answer as `verdict.checklist.items`; findings cite the spans of the proofs.
//! Judges are asked in rounds: for the questions (`criteria`), then for the passages and class of
//! each question, then for its answer (`compose`). The configuration may fix the questions, each with
//! an optional check that answers it by rules (`check`).
//!
//! The questions depend only on the task's text, so that the answer cache applies to all runs of a
//! task. The verdict is computed from the answers by rule.

use std::collections::HashMap;

use verdict_otlp::trace::Idx;

use super::agent::agent_index;
use super::defects::{Defect, measured, unmeasured};
use super::{
    Answer, Context, Detail, DetailValue, Finding, Measured, Measurement, Metric, Step, Unmeasured, Value,
};
use crate::recognise::{Agent, AgentTrace, Text};

pub(crate) mod check;
pub(crate) mod compiled;
pub(crate) mod compose;
pub(crate) mod criteria;
pub(crate) mod log;
pub(crate) mod plan_content;
pub(crate) mod result;
pub(crate) mod retrieve;
pub(crate) mod settings;
#[cfg(test)]
mod tests;
pub(crate) mod tools;

use compose::{ChecklistRun, NextStep};
use result::ItemResult;
use retrieve::Bm25Index;
use settings::{Item, Of};

pub(crate) const NAME: &str = "checklist.verdict";
/// Most questions of one checklist.
const MOST_QUESTIONS: usize = 50;
/// Longest task shown, in bytes.
const MOST_TASK: usize = 16 * 1024;

pub(crate) struct Checklist {
    /// Whether it asks judges; if not, it handles checklists that rules answer completely.
    pub asks: bool,
}

impl Metric for Checklist {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> Step {
        let settings = &context.settings.checklist;
        let Some((i, agent)) = agent_index::indexed_at(context) else { return Step::Done(Vec::new()) };
        if settings.of == Of::Root && i > 0 {
            return Step::Done(Vec::new());
        }
        let fixed = settings.fixed.iter().find(|fixed| fixed.of.fits(context.trace, agent));
        let by_rules = fixed.is_some_and(|fixed| fixed.items.iter().all(|item| item.check.is_some()));
        let applies = if self.asks { !by_rules && (fixed.is_some() || settings.generate) } else { by_rules };
        if !applies {
            return Step::Done(Vec::new());
        }
        let at = written_at(context.trace, agent, settings.of);
        let asker = &context.settings.asker;
        let shown = |(_, asked_at): &(&Text, Idx)| {
            ![context.at, *asked_at].iter().any(|&at| asker.withholds(context.trace, at))
        };
        let Some((task, _)) = agent_index::task_at(context.trace, i).filter(shown) else {
            return Step::Done(vec![unmeasured(at, NAME, Unmeasured::NoContent)]);
        };
        let task = asker.clean(super::defects::clip(task, MOST_TASK));
        let known: HashMap<&str, &Answer> = answers.iter().map(|a| (a.key.as_str(), a)).collect();
        let questions: Vec<Item> = match fixed {
            Some(fixed) => fixed.items.clone(),
            None => match criteria::questions(&task, settings.max_questions, &known) {
                Ok(questions) => questions,
                Err(criteria::CriteriaStep::Ask(question)) => return Step::Ask(vec![*question]),
                Err(criteria::CriteriaStep::Unmeasured(why)) => {
                    return Step::Done(vec![unmeasured(at, NAME, why)]);
                }
            },
        };
        let mut log = log::chunks(context.trace, context.memo, agent, settings.chunk_tokens);
        let record = asker.withholds_any(context.trace, context.memo).then(|| log.clone());
        if record.is_some() {
            log::withhold(&mut log, asker, context.trace);
        }
        let index = Bm25Index::new(log.iter().map(|chunk| chunk.text.as_str()));
        let trace = context.trace;
        let memo = context.memo;
        let run =
            ChecklistRun { trace, memo, agent, settings, asker, task, log, record, index, answers: known };
        compose_all(&run, at, &questions, answers)
    }
}

fn compose_all(run: &ChecklistRun<'_>, at: Idx, questions: &[Item], answers: &[Answer]) -> Step {
    let (mut asks, mut done) = (Vec::new(), Vec::new());
    for (i, item) in questions.iter().take(MOST_QUESTIONS).enumerate() {
        match run.next_step(i, item) {
            NextStep::Ask(question) => asks.push(question),
            NextStep::Done(answered) => done.push(answered),
        }
    }
    if !asks.is_empty() {
        return Step::Ask(asks);
    }
    Step::Done(vec![measurement(run, at, &done, answers)])
}

fn measurement(run: &ChecklistRun<'_>, at: Idx, done: &[ItemResult], answers: &[Answer]) -> Measurement {
    let mut out = match result::verdict(done) {
        Err(reason) => unmeasured(at, NAME, reason),
        Ok(yes) => {
            let failing = done.iter().filter(|item| item.answer == Ok(false));
            let findings = failing.map(|item| finding(run.trace, at, item)).collect();
            let value = Value::Label(result::label(Ok(yes)));
            measured(at, NAME, Measured { value, passed: yes, findings }).having_examined(done.len())
        }
    };
    if let Some(opinion) = answers.iter().rev().find_map(|a| a.opinions.as_ref().ok()?.first()) {
        out.judge = opinion.judge.to_string().into();
        out.examined = 0;
    }
    let answer = check::final_answer(run.agent).map(|(text, _)| text);
    let items = result::items(run.trace, done, answer);
    out.details.push(Detail { key: "checklist.items", value: DetailValue::Text(items) });
    out
}

fn finding(trace: &AgentTrace, at: Idx, item: &ItemResult) -> Finding {
    // Without a proof the final answer is quoted.
    let answer = || trace.agents.iter().find(|a| a.at == at).or(trace.agents.first())?.answer.as_deref();
    let proof = item.proofs.first().map(|proof| proof.text.as_str()).filter(|text| !text.is_empty());
    let quote = proof.or_else(answer).unwrap_or("no answer");
    let rationale = format!("{} Yes was expected. No: {}", item.question, item.reason);
    let spans = item.proofs.iter().filter(|proof| proof.at != at);
    let ids = spans.filter_map(|proof| trace.tree.spans.get(proof.at)).map(|span| span.id);
    ids.fold(Defect::PartUnanswered.finding(rationale, quote), Finding::citing)
}

/// The span of the verdict: for the outermost agent the root.
fn written_at(trace: &AgentTrace, agent: &Agent, of: Of) -> Idx {
    match of {
        Of::Root => trace.tree.root().unwrap_or(agent.at),
        Of::Agents => agent.at,
    }
}
