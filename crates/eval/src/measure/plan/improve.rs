//! The evaluator and optimizer loop (004, section 3 and figure 1): a plan made better step by step,
//! without being carried out.
//!
//! In: a query, a plan, its tools, and answers to the questions that the loop asks one at a time.
//! Out: a [`Lineage`], every distinct plan on the way with what was wrong with the one before.
//!
//! A pass visits each step once. The evaluator tags the step; with any tag but NO CHANGE the
//! optimizer rewrites the plan. A plan that is new is kept. One of another length has its current
//! step looked at again. The loop ends with a pass that changes nothing, after the last pass, or on a
//! plan that was there before.
//!
//! Choices where the paper leaves them: NO CHANGE beside other tags gives way to them; a step is
//! looked at again at most three times, since a plan can grow without end; an answer of the optimizer
//! that is no valid plan (no steps, no tool, edges that are not backwards) leaves the plan as it is;
//! without tags the optimizer is not asked, since it has nothing to do. Of several opinions (judges
//! or samples) a tag counts that more than half of them gave, and of rewritten plans the one that
//! most of them wrote, the first of equals: plans have no mean.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::{MAX_STEPS, Plan, Step, Written};
use super::shape::{self, Shape};
use super::tools::{Placement, Toolbox};
use crate::measure::{Question, Unmeasured};

mod asked;

/// Passes where nobody says otherwise, as in the paper.
pub const MAX_PASSES: usize = 4;
/// How often one step is looked at again because the plan got longer or shorter.
const MAX_RECHECKS: usize = 3;
/// Questions of one loop, whatever its plans do.
const MAX_QUESTIONS: usize = 2000;

/// What the evaluator can find in a step, in the order in which it is to look.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Tag {
    /// The prompt is incomplete, or not for what its tool can do. Critical.
    IncorrectPrompt,
    /// The prompt is too much for one step. Critical.
    ComplexPrompt,
    /// Another tool must do this. Critical.
    IncorrectTool,
    /// What a step before has seen to is said again.
    RepeatedDetail,
    /// Another tool could do the same beside this one.
    MultiToolPrompt,
    /// Nothing is wrong.
    NoChange,
}

/// A tag with its reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tagged {
    /// Why.
    pub reason: String,
    /// What.
    pub tag: Tag,
}

/// One distinct plan, and what led to it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Revision {
    /// The pass in which it came, from 1; 0 is the plan that was given.
    pub pass: usize,
    /// The number of the step that was looked at; none for the plan that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// What was found in that step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tagged>,
    /// What was changed in that step.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub change_0: String,
    /// What was changed elsewhere because of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub change_1: String,
    /// How the plan is laid out.
    pub shape: Shape,
    /// The plan.
    pub plan: Value,
}

/// Why the loop ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// A whole pass changed nothing.
    Unchanged,
    /// That was the last pass.
    MaxPasses,
    /// The optimizer went back to an earlier plan, and would go round in circles.
    SeenBefore,
    /// A pass changed nothing, and questions in it were not answered: more may be wrong.
    Unanswered,
}

/// Plans from the one given to the best, each distinct.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Lineage {
    /// What the plan is to answer.
    pub query: String,
    /// The plans.
    pub revisions: Vec<Revision>,
    /// Passes made.
    pub passes: usize,
    /// New plans of each pass.
    pub revisions_per_pass: Vec<usize>,
    /// Why the loop ended.
    pub end: End,
    /// Questions that were not answered.
    pub unanswered: usize,
    /// Answers of the optimizer that were no valid plan.
    pub invalid: usize,
}

enum State {
    Evaluate,
    Optimize(Vec<Tagged>),
    Ended(End),
}

/// The loop. Ask [`Improve::question`], give its answer to [`Improve::answer`], until there is none.
pub struct Improve {
    query: String,
    tools: Toolbox,
    max_passes: usize,
    /// Every distinct plan, the current one last.
    plans: Vec<Plan>,
    revisions: Vec<Revision>,
    per_pass: Vec<usize>,
    /// Place of the step that is looked at.
    at: usize,
    rechecks: usize,
    asked: usize,
    unanswered: usize,
    invalid: usize,
    /// Not answered in this pass.
    missed: usize,
    state: State,
}

impl Improve {
    /// A loop over `plan`, which is to answer `query`.
    pub fn new(query: &str, plan: Plan, tools: Toolbox, max_passes: usize) -> Improve {
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
        Improve {
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
            state: if nothing { State::Ended(End::MaxPasses) } else { State::Evaluate },
        }
    }

    /// The plan as it stands.
    pub fn plan(&self) -> &Plan {
        static NONE: Plan = Plan { steps: Vec::new(), structured: false, issues: Vec::new() };
        self.plans.last().unwrap_or(&NONE)
    }

    /// What is asked next; `None` when the loop has ended.
    pub fn question(&self) -> Option<Question> {
        let step = self.plan().steps.get(self.at)?;
        let key = format!("{}.{}.{}", self.per_pass.len(), step.number, self.rechecks);
        match &self.state {
            State::Evaluate => {
                Some(asked::evaluator(format!("{key}.evaluate"), &self.query, self.plan(), step, &self.tools))
            }
            State::Optimize(tags) => Some(asked::optimizer(
                format!("{key}.optimize"),
                &self.query,
                self.plan(),
                step,
                tags,
                &self.tools,
            )),
            State::Ended(_) => None,
        }
    }

    /// Takes the answers to [`Improve::question`], of each judge and sample one; they fit its form.
    pub fn answer(&mut self, answer: Result<Vec<Value>, Unmeasured>) {
        self.asked += 1;
        let state = std::mem::replace(&mut self.state, State::Evaluate);
        let values = match answer {
            Ok(values) if !values.is_empty() => values,
            _ => {
                self.unanswered += 1;
                self.missed += 1;
                return self.next_step();
            }
        };
        match state {
            State::Evaluate => match tags(&values) {
                tags if tags.is_empty() => self.next_step(),
                tags => self.state = State::Optimize(tags),
            },
            State::Optimize(tags) => self.revise(tags, &values),
            State::Ended(end) => self.state = State::Ended(end),
        }
    }

    fn revise(&mut self, tags: Vec<Tagged>, values: &[Value]) {
        let Some((plan, value)) = self.agreed(values) else {
            self.invalid += 1;
            return self.next_step();
        };
        if plan.same_as(self.plan()) {
            return self.next_step();
        }
        if self.plans.iter().any(|known| known.same_as(&plan)) {
            self.state = State::Ended(End::SeenBefore);
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
                self.next_step();
            }
        } else {
            self.next_step();
        }
    }

    /// The plan that most answers give, and the first that gives it.
    fn agreed<'a>(&self, values: &'a [Value]) -> Option<(Plan, &'a Value)> {
        let read: Vec<(Plan, &Value)> =
            values.iter().filter_map(|value| Some((self.read_plan(value)?, value))).collect();
        let votes = |plan: &Plan| read.iter().filter(|(other, _)| other.same_as(plan)).count();
        // The last of equal ones is taken: the first, seen from the end.
        let best = (0..read.len()).rev().max_by_key(|&i| read.get(i).map_or(0, |(plan, _)| votes(plan)))?;
        read.into_iter().nth(best)
    }

    /// To the next step, the next pass, or the end.
    fn next_step(&mut self) {
        self.at += 1;
        self.rechecks = 0;
        if self.at < self.plan().steps.len() && self.asked < MAX_QUESTIONS {
            return;
        }
        let changed = self.per_pass.last().is_some_and(|count| *count > 0);
        if !changed {
            self.state = State::Ended(if self.missed > 0 { End::Unanswered } else { End::Unchanged });
        } else if self.per_pass.len() >= self.max_passes || self.asked >= MAX_QUESTIONS {
            self.state = State::Ended(End::MaxPasses);
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
            steps.push(Step {
                number: at + 1,
                tool: Some(tool.to_owned()),
                inputs: if inputs.is_empty() && outside { "[]".to_owned() } else { inputs.join(", ") },
                prompt: text("prompt")?.to_owned(),
                depends_on: numbers(step, "depends_on")?,
                written: Written::Call,
            });
        }
        let plan = Plan { steps, structured: true, issues: Vec::new() };
        shape::is_sound(&plan).then_some(plan)
    }

    /// What became of the plan.
    pub fn finish(self) -> Lineage {
        let end = match self.state {
            State::Ended(end) => end,
            _ => End::Unanswered,
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

/// What more than half of the evaluators found, in the order of judgement, in the words of the first
/// that did.
fn tags(values: &[Value]) -> Vec<Tagged> {
    let all: Vec<Vec<Tagged>> = values.iter().map(tags_of).collect();
    let votes = |tag: Tag| all.iter().flatten().filter(|tagged| tagged.tag == tag).count();
    let mut found: Vec<Tagged> =
        all.iter().flatten().filter(|tagged| votes(tagged.tag) * 2 > all.len()).cloned().collect();
    found.sort_by_key(|tagged| tagged.tag);
    found.dedup_by_key(|tagged| tagged.tag);
    found
}

/// What one evaluator found, each tag once; empty for NO CHANGE.
fn tags_of(value: &Value) -> Vec<Tagged> {
    let found = value.get("findings").cloned().unwrap_or_default();
    let mut tags: Vec<Tagged> = serde_json::from_value(found).unwrap_or_default();
    tags.retain(|tagged| tagged.tag != Tag::NoChange);
    tags.sort_by_key(|tagged| tagged.tag);
    tags.dedup_by_key(|tagged| tagged.tag);
    tags
}

#[cfg(test)]
mod tests;
