//! The loop of evaluator and optimizer (004, section 3 and figure 1), which improves a plan step by step without
//! carrying it out.
//!
//! In: a query, a plan, its tools, and answers to the questions of the loop, one at a time. Out: a
//! [`Lineage`] of every distinct plan with the findings that led to it.
//!
//! A pass visits each step once. The evaluator tags the step; with any tag but NO CHANGE the
//! optimizer rewrites the plan. If the length of the plan changed, its current step is checked again.
//! The loop ends with a pass that does not change the plan, after the last pass, or on a plan that
//! occurred before.
//!
//! The paper does not specify the following: NO CHANGE together with other tags is ignored. A step is
//! checked again at most three times, since a plan can grow without end. An answer of the optimizer
//! that is not a valid plan (no steps, no tool, edges to later steps) leaves the plan unchanged. Of
//! several opinions (judges or samples) a tag counts if more than half of them gave it. Of rewritten
//! plans the most frequent is used, and of equally frequent ones the first, since plans have no mean.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::{MAX_STEPS, Plan, PlanStep, StepNotation};
use super::shape::{self, Shape};
use super::tools::{Placement, Toolbox};
use crate::measure::{Question, Unmeasured};

pub(crate) mod questions;

pub(crate) use questions::StepFinding;
pub use questions::Tag;

/// Default number of passes, as in the paper.
pub const MAX_PASSES: usize = 4;
/// Maximum number of times that one step is checked again because the length of the plan changed.
const MAX_RECHECKS: usize = 3;
/// Maximum number of questions of one loop.
const MAX_QUESTIONS: usize = 2000;

/// One distinct plan with the findings that led to it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Revision {
    /// The pass that created the plan, from 1; 0 for the initial plan.
    pub pass: usize,
    /// The number of the checked step; `None` for the initial plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// The findings in that step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<StepFinding>,
    /// The change in that step.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub change_0: String,
    /// The resulting changes in other steps.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub change_1: String,
    pub shape: Shape,
    pub plan: Value,
}

impl Revision {
    /// A revision without findings: the initial plan.
    fn new(plan: &Plan) -> Revision {
        Revision { shape: shape::shape(plan), plan: plan.to_json(), ..Revision::default() }
    }
}

/// The reason why the loop ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// A whole pass did not change the plan.
    Unchanged,
    /// The last pass is complete.
    MaxPasses,
    /// The optimizer returned an earlier plan; the loop would repeat.
    SeenBefore,
    /// A pass did not change the plan, but questions in it were not answered.
    Unanswered,
}

/// The distinct plans, from the initial plan to the last one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Lineage {
    /// The query that the plan answers.
    pub query: String,
    pub revisions: Vec<Revision>,
    pub passes: usize,
    /// New plans of each pass.
    pub revisions_per_pass: Vec<usize>,
    pub end: StopReason,
    pub unanswered: usize,
    /// Answers of the optimizer that were not a valid plan.
    pub invalid: usize,
}

/// The next question of the loop.
enum LoopState {
    /// A question to the evaluator, about the current step.
    Evaluate,
    /// A question to the optimizer, with the findings in the current step.
    Optimize(Vec<StepFinding>),
    /// The loop has ended: there is no further question.
    Ended,
}

/// The loop. Ask [`ImprovementLoop::question`] and pass its answer to [`ImprovementLoop::answer`]
/// until there is none.
pub struct ImprovementLoop {
    tools: Toolbox,
    max_passes: usize,
    /// Every distinct plan, the current one last.
    plans: Vec<Plan>,
    /// The result so far; `end` applies once the loop has ended.
    lineage: Lineage,
    /// The position of the current step in the plan.
    position: usize,
    /// The number of times that the current step was checked again.
    rechecks: usize,
    /// The number of questions so far.
    asked: usize,
    /// The number of questions of this pass that were not answered.
    unanswered_in_pass: usize,
    state: LoopState,
}

impl ImprovementLoop {
    /// A loop that improves `plan`, a plan to answer `query`.
    pub fn new(query: &str, plan: Plan, tools: Toolbox, max_passes: usize) -> ImprovementLoop {
        let is_ended = plan.is_unreadable() || max_passes == 0;
        ImprovementLoop {
            tools,
            max_passes,
            lineage: Lineage {
                query: query.to_owned(),
                revisions: vec![Revision::new(&plan)],
                passes: 1,
                revisions_per_pass: vec![0],
                end: StopReason::MaxPasses,
                unanswered: 0,
                invalid: 0,
            },
            plans: vec![plan],
            position: 0,
            rechecks: 0,
            asked: 0,
            unanswered_in_pass: 0,
            state: if is_ended { LoopState::Ended } else { LoopState::Evaluate },
        }
    }

    /// The current plan.
    pub fn plan(&self) -> &Plan {
        static EMPTY_PLAN: Plan = Plan { steps: Vec::new(), is_structured: false, issues: Vec::new() };
        self.plans.last().unwrap_or(&EMPTY_PLAN)
    }

    /// The next question; `None` when the loop has ended.
    pub fn question(&self) -> Option<Question> {
        let step = self.plan().steps.get(self.position)?;
        let key = format!("{}.{}.{}", self.lineage.passes, step.number, self.rechecks);
        let (query, plan, tools) = (&self.lineage.query, self.plan(), &self.tools);
        match &self.state {
            LoopState::Evaluate => {
                Some(questions::evaluator_question(format!("{key}.evaluate"), query, plan, step, tools))
            }
            LoopState::Optimize(tags) => {
                Some(questions::optimizer_question(format!("{key}.optimize"), query, plan, step, tags, tools))
            }
            LoopState::Ended => None,
        }
    }

    /// Processes the answers to [`ImprovementLoop::question`], one per judge and sample, which fit its
    /// form.
    pub fn answer(&mut self, answer: Result<Vec<Value>, Unmeasured>) {
        self.asked += 1;
        let state = std::mem::replace(&mut self.state, LoopState::Evaluate);
        let values = match answer {
            Ok(values) if !values.is_empty() => values,
            _ => {
                self.lineage.unanswered += 1;
                self.unanswered_in_pass += 1;
                return self.advance();
            }
        };
        match state {
            LoopState::Evaluate => match majority_findings(&values) {
                tags if tags.is_empty() => self.advance(),
                tags => self.state = LoopState::Optimize(tags),
            },
            LoopState::Optimize(tags) => self.revise(tags, &values),
            LoopState::Ended => self.state = LoopState::Ended,
        }
    }

    /// Replaces the plan by the optimizer's plan, if it is valid and new.
    fn revise(&mut self, tags: Vec<StepFinding>, values: &[Value]) {
        let Some((plan, value)) = self.majority_plan(values) else {
            self.lineage.invalid += 1;
            return self.advance();
        };
        if plan.same_as(self.plan()) {
            return self.advance();
        }
        if self.plans.iter().any(|earlier| earlier.same_as(&plan)) {
            return self.stop(StopReason::SeenBefore);
        }
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        self.lineage.revisions.push(Revision {
            pass: self.lineage.passes,
            step: self.plan().steps.get(self.position).map(|s| s.number),
            tags,
            change_0: text("change_0"),
            change_1: text("change_1"),
            ..Revision::new(&plan)
        });
        if let Some(count) = self.lineage.revisions_per_pass.last_mut() {
            *count += 1;
        }
        let has_other_length = plan.steps.len() != self.plan().steps.len();
        self.plans.push(plan);
        if !has_other_length || self.rechecks >= MAX_RECHECKS || self.position >= self.plan().steps.len() {
            return self.advance();
        }
        self.rechecks += 1;
    }

    /// The most frequent valid plan of the answers, with the first answer that contains it.
    fn majority_plan<'a>(&self, values: &'a [Value]) -> Option<(Plan, &'a Value)> {
        let plans: Vec<(Plan, &Value)> =
            values.iter().filter_map(|value| Some((self.read_plan(value)?, value))).collect();
        let votes = |plan: &Plan| plans.iter().filter(|(other, _)| other.same_as(plan)).count();
        // `max_by_key` returns the last of equal plans, which is the first one in reverse order.
        plans.iter().rev().max_by_key(|(plan, _)| votes(plan)).cloned()
    }

    /// Continues with the next step or pass, or ends the loop.
    fn advance(&mut self) {
        self.position += 1;
        self.rechecks = 0;
        if self.position < self.plan().steps.len() && self.asked < MAX_QUESTIONS {
            return;
        }
        if self.lineage.revisions_per_pass.last() == Some(&0) {
            self.stop(if self.unanswered_in_pass > 0 {
                StopReason::Unanswered
            } else {
                StopReason::Unchanged
            });
        } else if self.lineage.passes >= self.max_passes || self.asked >= MAX_QUESTIONS {
            self.stop(StopReason::MaxPasses);
        } else {
            self.lineage.revisions_per_pass.push(0);
            self.lineage.passes += 1;
            (self.position, self.unanswered_in_pass) = (0, 0);
        }
    }

    fn stop(&mut self, reason: StopReason) {
        self.lineage.end = reason;
        self.state = LoopState::Ended;
    }

    /// The optimizer's plan, numbered by its order.
    fn read_plan(&self, value: &Value) -> Option<Plan> {
        let recorded_steps =
            value.get("steps")?.as_array().filter(|s| !s.is_empty() && s.len() <= MAX_STEPS)?;
        let numbers = |step: &Value, key: &str| -> Option<Vec<usize>> {
            let list = step.get(key)?.as_array()?;
            list.iter().map(|n| n.as_u64().and_then(|n| usize::try_from(n).ok())).collect()
        };
        let mut steps = Vec::with_capacity(recorded_steps.len());
        for (i, step) in recorded_steps.iter().enumerate() {
            let text =
                |key: &str| step.get(key).and_then(Value::as_str).map(str::trim).filter(|t| !t.is_empty());
            let tool = text("tool")?;
            let inputs: Vec<String> = numbers(step, "inputs")?.iter().map(|n| format!("({n})")).collect();
            let takes_inputs_outside =
                self.tools.get(tool).is_some_and(|s| s.placeholders == Placement::Outside);
            steps.push(PlanStep {
                number: i + 1,
                tool: Some(tool.to_owned()),
                inputs: if inputs.is_empty() && takes_inputs_outside {
                    "[]".to_owned()
                } else {
                    inputs.join(", ")
                },
                prompt: text("prompt")?.to_owned(),
                depends_on: numbers(step, "depends_on")?,
                notation: StepNotation::Call,
            });
        }
        let plan = Plan { steps, is_structured: true, issues: Vec::new() };
        shape::is_sound(&plan).then_some(plan)
    }

    /// Ends the loop.
    pub fn finish(self) -> Lineage {
        match self.state {
            LoopState::Ended => self.lineage,
            _ => Lineage { end: StopReason::Unanswered, ..self.lineage },
        }
    }
}

/// The findings of more than half of the evaluators, ordered by tag, each with its first reason; empty for NO CHANGE.
fn majority_findings(values: &[Value]) -> Vec<StepFinding> {
    let all: Vec<StepFinding> = values.iter().flat_map(findings_of).collect();
    let votes = |tag: Tag| all.iter().filter(|finding| finding.tag == tag).count();
    distinct(all.iter().filter(|finding| votes(finding.tag) * 2 > values.len()).cloned().collect())
}

/// The findings of one evaluator.
fn findings_of(value: &Value) -> Vec<StepFinding> {
    let findings = value.get("findings").cloned().unwrap_or_default();
    let mut findings: Vec<StepFinding> = serde_json::from_value(findings).unwrap_or_default();
    findings.retain(|finding| finding.tag != Tag::NoChange);
    distinct(findings)
}

/// The first finding of each tag, ordered by tag.
fn distinct(mut findings: Vec<StepFinding>) -> Vec<StepFinding> {
    findings.sort_by_key(|finding| finding.tag);
    findings.dedup_by_key(|finding| finding.tag);
    findings
}

/// The question of the loop's evaluator about each step, with the step's number as key.
pub fn tag_questions(query: &str, plan: &Plan, tools: &Toolbox) -> Vec<Question> {
    let question =
        |step: &PlanStep| questions::evaluator_question(step.number.to_string(), query, plan, step, tools);
    plan.steps.iter().map(question).collect()
}

/// The tags that more than half of the answers give; NO CHANGE if there is no such tag.
pub fn read_tags(values: &[Value]) -> BTreeSet<Tag> {
    let tags: BTreeSet<Tag> = majority_findings(values).into_iter().map(|finding| finding.tag).collect();
    if tags.is_empty() { BTreeSet::from([Tag::NoChange]) } else { tags }
}

#[cfg(test)]
mod tests;
