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
//!
//! | file | content |
//! |---|---|
//! | `settings`, `compiled` | the section `verdict.metrics.checklist`, and its regular expressions |
//! | `criteria`, `forms`, `prompt` | the questions, their forms and their prompts |
//! | `log`, `plan_content` | the log of a run, from which proofs are taken, without plans |
//! | `retrieve`, `summary` | the passages that may prove an answer; summaries of them |
//! | `compose`, `inquiry`, `tools` | the answer to a question; how it is asked for; the tools of its judge |
//! | `check` | checks that answer a question by rules |
//! | `result` | the verdict |

use std::collections::HashMap;

use verdict_otlp::trace::Idx;

use super::ask::prompt_page::PromptPage;
use super::content_piece::{ContentPiece, PieceKind};
use super::defects::{Defect, measured, unmeasured};
use super::rule::Rule;
use super::table::CHECKLIST;
use super::{
    Answer, Context, Detail, DetailValue, Finding, Measured, Measurement, Metric, MetricProgress, Prompt,
    Unmeasured, Value,
};
use crate::measure::agent_index;
use crate::recognise::{Agent, AgentTrace};

pub(crate) mod check;
pub(crate) mod compiled;
pub(crate) mod compose;
pub(crate) mod criteria;
pub(crate) mod forms;
mod inquiry;
pub(crate) mod log;
pub(crate) mod plan_content;
mod prompt;
pub(crate) mod result;
pub(crate) mod retrieve;
pub(crate) mod settings;
pub(crate) mod summary;
#[cfg(test)]
mod tests;
pub(crate) mod tools;

use compose::{ChecklistRun, NextStep};
use result::ItemResult;
use retrieve::Bm25Index;
use settings::{Item, JudgedAgents};

/// Maximum number of questions of one checklist.
const MAX_QUESTIONS: usize = 50;
/// Maximum bytes shown of a task.
const MAX_TASK_BYTES: usize = 16 * 1024;

pub(crate) struct Checklist {
    /// Whether the metric asks judges. If not, only rules answer: checklists whose items all have a check, a failed
    /// check of any checklist and, if no judge is configured, all other checklists, which then are undecided unless a
    /// check fails.
    pub asks: bool,
}

impl Rule for Checklist {}

impl Metric for Checklist {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        let settings = &context.settings.checklist;
        let Some((i, agent)) = agent_of(context) else { return MetricProgress::Done(Vec::new()) };
        let fixed = settings.fixed.iter().find(|fixed| fixed.tasks.fits(context.trace, agent));
        if fixed.is_none() && !settings.generate {
            return MetricProgress::Done(Vec::new());
        }
        let is_checked = |item: &Item| item.check.is_some();
        let is_fully_checked = fixed.is_some_and(|fixed| fixed.items.iter().all(is_checked));
        let has_judges = !context.settings.judges(context.row).is_empty();
        if self.asks && is_fully_checked {
            return MetricProgress::Done(Vec::new());
        }
        let is_partly_checked = fixed.is_some_and(|fixed| fixed.items.iter().any(is_checked));
        if !self.asks && has_judges && !is_partly_checked {
            return MetricProgress::Done(Vec::new());
        }
        let span_index = verdict_span(context.trace, agent, settings.judged_agents);
        let Some(task) = shown_task(context, i) else {
            return MetricProgress::Done(vec![unmeasured(span_index, CHECKLIST, Unmeasured::NoContent)]);
        };
        let answers_by_key: HashMap<&str, &Answer> = answers.iter().map(|a| (a.key.as_str(), a)).collect();
        let questions: Vec<Item> = match fixed {
            Some(fixed) => fixed.items.clone(),
            None if !self.asks => {
                return MetricProgress::Done(vec![unmeasured(span_index, CHECKLIST, Unmeasured::Undecided)]);
            }
            None => match criteria::questions(
                &task,
                settings.max_questions,
                &answers_by_key,
                &render(context, agent),
            ) {
                Ok(questions) => questions,
                Err(criteria::CriteriaStep::Ask(question)) => return MetricProgress::Ask(vec![*question]),
                Err(criteria::CriteriaStep::Unmeasured(reason)) => {
                    return MetricProgress::Done(vec![unmeasured(span_index, CHECKLIST, reason)]);
                }
            },
        };
        let (trace, memo, asker) = (context.trace, context.memo, &context.settings.asker);
        let record = log::texts(trace, memo, agent, None);
        let withholds = context.content().withholds_any();
        let shown_texts = withholds.then(|| log::texts(trace, memo, agent, Some(asker)));
        let log = log::chunks(shown_texts.as_ref().unwrap_or(&record), settings.chunk_tokens);
        let asks = self.asks;
        let (index, summaries) = (Bm25Index::default(), Vec::new());
        let mut run = ChecklistRun {
            content: context.content(),
            agent,
            settings,
            task,
            log,
            record,
            index,
            summaries,
            asks,
            answers: answers_by_key,
        };
        if asks && settings.summaries {
            match run.summarise() {
                Ok(summaries) => run.summaries = summaries,
                Err(questions) => return MetricProgress::Ask(questions),
            }
        }
        if asks {
            run.index_log();
        }
        match compose_all(&run, span_index, &questions, answers) {
            // Judges answer the other items, so that without them only a no is certain.
            MetricProgress::Done(all) if !self.asks && !is_fully_checked && has_judges => {
                MetricProgress::Done(all.into_iter().filter(|m| m.outcome.is_ok()).collect())
            }
            step => step,
        }
    }

    /// Asks for the questions of the checklist, which depend on the task alone.
    fn early_step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        let settings = &context.settings.checklist;
        let Some((i, agent)) = agent_of(context).filter(|_| settings.generate) else {
            return MetricProgress::Done(Vec::new());
        };
        if settings.fixed.iter().any(|fixed| fixed.tasks.fits(context.trace, agent)) {
            return MetricProgress::Done(Vec::new());
        }
        let Some(task) = shown_task(context, i) else { return MetricProgress::Done(Vec::new()) };
        let answers_by_key: HashMap<&str, &Answer> = answers.iter().map(|a| (a.key.as_str(), a)).collect();
        match criteria::questions(&task, settings.max_questions, &answers_by_key, &render(context, agent)) {
            Err(criteria::CriteriaStep::Ask(question)) => MetricProgress::Ask(vec![*question]),
            _ => MetricProgress::Done(Vec::new()),
        }
    }
}

/// Renders pages about the task of `agent`.
fn render<'a>(
    context: &'a Context<'_>,
    agent: &'a Agent,
) -> impl Fn(PromptPage, (&str, &str)) -> Prompt + 'a {
    |page, rubric| prompt::checklist_prompt(&context.settings.asker, page, rubric, (context.trace, agent.at))
}

/// The agent whose span is that of `context`, with its index; `None` if there is none or its task is not judged.
fn agent_of<'a>(context: &Context<'a>) -> Option<(usize, &'a Agent)> {
    let (i, agent) = agent_index::indexed_at(context)?;
    (context.settings.checklist.judged_agents == JudgedAgents::Agents || i == 0).then_some((i, agent))
}

/// The task of agent `i` as judges may read it; `None` if there is none, or it is withheld.
fn shown_task(context: &Context<'_>, i: usize) -> Option<String> {
    let asker = &context.settings.asker;
    let (task, task_span) = agent_index::task_at(context.trace, i)?;
    let piece = ContentPiece::new(PieceKind::User, &**task);
    let content = context.content();
    let is_withheld = content.withholds(context.at) || content.withholds_piece(task_span, &piece);
    (!is_withheld).then(|| asker.cleaned_excerpt(task, MAX_TASK_BYTES))
}

/// The next questions about all items, or the measurement if all are answered.
fn compose_all(
    run: &ChecklistRun<'_>,
    span_index: Idx,
    questions: &[Item],
    answers: &[Answer],
) -> MetricProgress {
    let (mut next_questions, mut results) = (Vec::new(), Vec::new());
    for (i, item) in questions.iter().take(MAX_QUESTIONS).enumerate() {
        match run.next_step(i, item) {
            NextStep::Ask(question) => next_questions.push(question),
            NextStep::Done(result) => results.push(result),
        }
    }
    if !next_questions.is_empty() {
        return MetricProgress::Ask(next_questions);
    }
    MetricProgress::Done(vec![measurement(run, span_index, &results, answers)])
}

/// The measurement on the span `span_index` from the results of all items.
fn measurement(
    run: &ChecklistRun<'_>,
    span_index: Idx,
    results: &[ItemResult],
    answers: &[Answer],
) -> Measurement {
    let mut out = match result::verdict(results) {
        Err(reason) => unmeasured(span_index, CHECKLIST, reason),
        Ok(passed) => {
            let failing = results.iter().filter(|item| item.answer == Ok(false));
            let findings = failing.map(|item| finding(run.content.trace, span_index, item)).collect();
            let value = Value::Label(result::label(Ok(passed)));
            measured(span_index, CHECKLIST, Measured { value, passed, findings })
                .having_examined(results.len())
        }
    };
    if let Some(opinion) = answers.iter().rev().find_map(|a| a.opinions.as_ref().ok()?.first()) {
        out.judge = opinion.judge.to_string().into();
        out.examined = 0;
    }
    let answer = check::final_answer(run.agent).map(|(text, _)| text);
    let items = result::items_json(run.content.trace, results, answer);
    out.details.push(Detail { key: "checklist.items", value: DetailValue::Text(items) });
    out
}

/// The finding about an item whose answer is no.
fn finding(trace: &AgentTrace, span_index: Idx, item: &ItemResult) -> Finding {
    // Without a proof the final answer is quoted.
    let answer =
        || trace.agents.iter().find(|a| a.at == span_index).or(trace.agents.first())?.answer.as_deref();
    let proof = item.proofs.first().map(|proof| proof.text.as_str()).filter(|text| !text.is_empty());
    let quote = proof.or_else(answer).unwrap_or("no answer");
    let rationale = format!("{} Yes was expected. No: {}", item.question, item.reason);
    let spans = item.proofs.iter().filter(|proof| proof.at != span_index);
    let ids = spans.filter_map(|proof| trace.tree.spans.get(proof.at)).map(|span| span.id);
    ids.fold(Defect::PartUnanswered.finding(rationale, quote), Finding::citing)
}

/// The span on which the verdict is written: for the outermost agent the root.
fn verdict_span(trace: &AgentTrace, agent: &Agent, judged_agents: JudgedAgents) -> Idx {
    match judged_agents {
        JudgedAgents::Root => trace.tree.root().unwrap_or(agent.at),
        JudgedAgents::Agents => agent.at,
    }
}
