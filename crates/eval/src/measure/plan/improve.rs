//! The evaluator and optimizer loop (004, section 3 and figure 1): improves a plan step by step
//! without carrying it out.
//!
//! In: a query, a plan, its tools, and answers to the questions of the loop, one at a time. Out: a
//! [`Lineage`] of every distinct plan with the findings that led to it.
//!
//! A pass visits each step once. The evaluator tags the step; with any tag but NO CHANGE the
//! optimizer rewrites the plan. A new plan is kept. If it has another length, its current step is
//! checked again. The loop ends with a pass that changes nothing, after the last pass, or on a plan
//! that occurred before.
//!
//! Choices where the paper leaves them: NO CHANGE together with other tags is ignored; a step is
//! checked again at most three times, since a plan can grow without end; an answer of the optimizer
//! that is no valid plan (no steps, no tool, edges that are not backwards) leaves the plan as it
//! is; without tags the optimizer is not asked. Of several opinions (judges or samples) a tag
//! counts that more than half of them gave, and of rewritten plans the one that most of them wrote,
//! the first of equals: plans have no mean.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::{MAX_STEPS, Plan, PlanStep, StepNotation};
use super::shape::{self, Shape};
use super::tools::{Placement, Toolbox};
use crate::measure::{Question, Unmeasured};

mod questions;

pub(crate) use questions::{StepFinding, Tag};

/// Default number of passes, as in the paper.
pub const MAX_PASSES: usize = 4;
/// How often one step is checked again because the length of the plan changed.
const MAX_RECHECKS: usize = 3;
/// Most questions of one loop.
const MAX_QUESTIONS: usize = 2000;

/// One distinct plan with the findings that led to it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Revision {
    /// The pass that made it, from 1; 0 is the plan that was given.
    pub pass: usize,
    /// The number of the checked step; none for the plan that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// What was found in that step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<StepFinding>,
    /// What was changed in that step.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub change_0: String,
    /// What was changed elsewhere because of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub change_1: String,
    /// How the plan is laid out.
    pub shape: Shape,
    pub plan: Value,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// A whole pass changed nothing.
    Unchanged,
    /// That was the last pass.
    MaxPasses,
    /// The optimizer returned an earlier plan; the loop would repeat.
    SeenBefore,
    /// A pass changed nothing, and questions in it were not answered: more may be wrong.
    Unanswered,
}

/// Plans from the one given to the best, each distinct.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Lineage {
    /// What the plan is to answer.
    pub query: String,
    pub revisions: Vec<Revision>,
    pub passes: usize,
    /// New plans of each pass.
    pub revisions_per_pass: Vec<usize>,
    pub end: StopReason,
    /// Questions that were not answered.
    pub unanswered: usize,
    /// Answers of the optimizer that were no valid plan.
    pub invalid: usize,
}

enum LoopState {
    Evaluate,
    Optimize(Vec<StepFinding>),
    Ended(StopReason),
}

/// The loop. Ask [`ImprovementLoop::question`] and pass its answer to [`ImprovementLoop::answer`]
/// until there is none.
pub struct ImprovementLoop {
    query: String,
    tools: Toolbox,
    max_passes: usize,
    /// Every distinct plan, the current one last.
    plans: Vec<Plan>,
    revisions: Vec<Revision>,
    per_pass: Vec<usize>,
    /// Position of the current step.
    at: usize,
    rechecks: usize,
    asked: usize,
    unanswered: usize,
    invalid: usize,
    /// Not answered in this pass.
    missed: usize,
    state: LoopState,
}

impl ImprovementLoop {
    /// A loop over `plan`, which is to answer `query`.
    pub fn new(query: &str, plan: Plan, tools: Toolbox, max_passes: usize) -> ImprovementLoop {
        let first = Revision {
            pass: 0,
            step: None,
            tags: Vec::new(),
            change_0: String::new(),
            change_1: String::new(),
            shape: shape::shape(&plan),
            plan: plan.to_json(),
        };
        let nothing = plan.is_unreadable() || max_passes == 0;
        ImprovementLoop {
            query: query.to_owned(),
            tools,
            max_passes,
            plans: vec![plan],
            revisions: vec![first],
            per_pass: vec![0],
            at: 0,
            rechecks: 0,
            asked: 0,
            unanswered: 0,
            invalid: 0,
            missed: 0,
            state: if nothing { LoopState::Ended(StopReason::MaxPasses) } else { LoopState::Evaluate },
        }
    }

    /// The current plan.
    pub fn plan(&self) -> &Plan {
        static NONE: Plan = Plan { steps: Vec::new(), structured: false, issues: Vec::new() };
        self.plans.last().unwrap_or(&NONE)
    }

    /// The next question; `None` when the loop has ended.
    pub fn question(&self) -> Option<Question> {
        let step = self.plan().steps.get(self.at)?;
        let key = format!("{}.{}.{}", self.per_pass.len(), step.number, self.rechecks);
        match &self.state {
            LoopState::Evaluate => Some(questions::evaluator_question(
                format!("{key}.evaluate"),
                &self.query,
                self.plan(),
                step,
                &self.tools,
            )),
            LoopState::Optimize(tags) => Some(questions::optimizer_question(
                format!("{key}.optimize"),
                &self.query,
                self.plan(),
                step,
                tags,
                &self.tools,
            )),
            LoopState::Ended(_) => None,
        }
    }

    /// Processes the answers to [`ImprovementLoop::question`], of each judge and sample one; they
    /// fit its form.
    pub fn answer(&mut self, answer: Result<Vec<Value>, Unmeasured>) {
        self.asked += 1;
        let state = std::mem::replace(&mut self.state, LoopState::Evaluate);
        let values = match answer {
            Ok(values) if !values.is_empty() => values,
            _ => {
                self.unanswered += 1;
                self.missed += 1;
                return self.advance();
            }
        };
        match state {
            LoopState::Evaluate => match majority_findings(&values) {
                tags if tags.is_empty() => self.advance(),
                tags => self.state = LoopState::Optimize(tags),
            },
            LoopState::Optimize(tags) => self.revise(tags, &values),
            LoopState::Ended(end) => self.state = LoopState::Ended(end),
        }
    }

    fn revise(&mut self, tags: Vec<StepFinding>, values: &[Value]) {
        let Some((plan, value)) = self.majority_plan(values) else {
            self.invalid += 1;
            return self.advance();
        };
        if plan.same_as(self.plan()) {
            return self.advance();
        }
        if self.plans.iter().any(|known| known.same_as(&plan)) {
            self.state = LoopState::Ended(StopReason::SeenBefore);
            return;
        }
        let said = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        self.revisions.push(Revision {
            pass: self.per_pass.len(),
            step: self.plan().steps.get(self.at).map(|s| s.number),
            tags,
            change_0: said("change_0"),
            change_1: said("change_1"),
            shape: shape::shape(&plan),
            plan: plan.to_json(),
        });
        if let Some(count) = self.per_pass.last_mut() {
            *count += 1;
        }
        let other_length = plan.steps.len() != self.plan().steps.len();
        self.plans.push(plan);
        if other_length && self.rechecks < MAX_RECHECKS {
            self.rechecks += 1;
            if self.at >= self.plan().steps.len() {
                self.advance();
            }
        } else {
            self.advance();
        }
    }

    /// The plan that most answers give, and the first that gives it.
    fn majority_plan<'a>(&self, values: &'a [Value]) -> Option<(Plan, &'a Value)> {
        let read: Vec<(Plan, &Value)> =
            values.iter().filter_map(|value| Some((self.read_plan(value)?, value))).collect();
        let votes = |plan: &Plan| read.iter().filter(|(other, _)| other.same_as(plan)).count();
        // `max_by_key` returns the last of equal ones, which is the first in reverse order.
        let best = (0..read.len()).rev().max_by_key(|&i| read.get(i).map_or(0, |(plan, _)| votes(plan)))?;
        read.into_iter().nth(best)
    }

    /// To the next step, the next pass, or the end.
    fn advance(&mut self) {
        self.at += 1;
        self.rechecks = 0;
        if self.at < self.plan().steps.len() && self.asked < MAX_QUESTIONS {
            return;
        }
        let changed = self.per_pass.last().is_some_and(|count| *count > 0);
        if !changed {
            self.state = LoopState::Ended(if self.missed > 0 {
                StopReason::Unanswered
            } else {
                StopReason::Unchanged
            });
        } else if self.per_pass.len() >= self.max_passes || self.asked >= MAX_QUESTIONS {
            self.state = LoopState::Ended(StopReason::MaxPasses);
        } else {
            self.per_pass.push(0);
            (self.at, self.missed) = (0, 0);
        }
    }

    /// The optimizer's plan, numbered by its order.
    fn read_plan(&self, value: &Value) -> Option<Plan> {
        let written = value.get("steps")?.as_array().filter(|s| !s.is_empty() && s.len() <= MAX_STEPS)?;
        let numbers = |step: &Value, key: &str| -> Option<Vec<usize>> {
            let list = step.get(key)?.as_array()?;
            list.iter().map(|n| n.as_u64().and_then(|n| usize::try_from(n).ok())).collect()
        };
        let mut steps = Vec::with_capacity(written.len());
        for (at, step) in written.iter().enumerate() {
            let text =
                |key: &str| step.get(key).and_then(Value::as_str).map(str::trim).filter(|t| !t.is_empty());
            let tool = text("tool")?;
            let inputs: Vec<String> = numbers(step, "inputs")?.iter().map(|n| format!("({n})")).collect();
            let outside = self.tools.get(tool).is_some_and(|s| s.placeholders == Placement::Outside);
            steps.push(PlanStep {
                number: at + 1,
                tool: Some(tool.to_owned()),
                inputs: if inputs.is_empty() && outside { "[]".to_owned() } else { inputs.join(", ") },
                prompt: text("prompt")?.to_owned(),
                depends_on: numbers(step, "depends_on")?,
                notation: StepNotation::Call,
            });
        }
        let plan = Plan { steps, structured: true, issues: Vec::new() };
        shape::is_sound(&plan).then_some(plan)
    }

    /// Ends the loop.
    pub fn finish(self) -> Lineage {
        let end = match self.state {
            LoopState::Ended(end) => end,
            _ => StopReason::Unanswered,
        };
        Lineage {
            query: self.query,
            revisions: self.revisions,
            passes: self.per_pass.len(),
            revisions_per_pass: self.per_pass,
            end,
            unanswered: self.unanswered,
            invalid: self.invalid,
        }
    }
}

/// The findings of more than half of the evaluators, ordered by tag, each with the first reason
/// given.
fn majority_findings(values: &[Value]) -> Vec<StepFinding> {
    let all: Vec<Vec<StepFinding>> = values.iter().map(findings_of).collect();
    let votes = |tag: Tag| all.iter().flatten().filter(|tagged| tagged.tag == tag).count();
    let mut found: Vec<StepFinding> =
        all.iter().flatten().filter(|tagged| votes(tagged.tag) * 2 > all.len()).cloned().collect();
    found.sort_by_key(|tagged| tagged.tag);
    found.dedup_by_key(|tagged| tagged.tag);
    found
}

/// What one evaluator found, each tag once; empty for NO CHANGE.
fn findings_of(value: &Value) -> Vec<StepFinding> {
    let found = value.get("findings").cloned().unwrap_or_default();
    let mut tags: Vec<StepFinding> = serde_json::from_value(found).unwrap_or_default();
    tags.retain(|tagged| tagged.tag != Tag::NoChange);
    tags.sort_by_key(|tagged| tagged.tag);
    tags.dedup_by_key(|tagged| tagged.tag);
    tags
}

#[cfg(test)]
mod tests;
