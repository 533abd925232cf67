//! The questions of the improvement loop to the evaluator of steps and the optimizer of plans (004, tables 28 and 29,
//! paraphrased).

use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};
use serde_json::json;
use verdict_otlp::labelled_enum;

use crate::measure::plan::prompt::{DATA, FORM, fence, render_tools};
use crate::measure::plan::schema::{Plan, PlanStep};
use crate::measure::plan::shape;
use crate::measure::plan::tools::Toolbox;
use crate::measure::question::object_schema;
use crate::measure::{AnswerForm, Prompt, Question};

const EVALUATE: &str = "\
You check one step of a plan by which tools are to answer a user's query. Nothing is carried out: you \
judge what is written. Look for these, in this order:
1. INCORRECT_PROMPT: the prompt leaves out or alters what the query needs of this step, asks what the \
tool's inputs cannot give, or lacks the placeholder of an output that it works on.
2. COMPLEX_PROMPT: the prompt asks for several things that the tool must be asked one at a time.
3. INCORRECT_TOOL: by its description the tool cannot do what the prompt asks, and another one can.
4. REPEATED_DETAIL: the prompt filters again by what a step that it depends on has already seen to. \
Pointing back (\"in these calls\") is no repetition.
5. MULTI_TOOL_PROMPT: another tool could answer the same prompt from other data, and no step of the \
plan asks it yet.
6. NO_CHANGE: none of these. Then it is the only finding.
Judge this step alone. The order of dependencies and of placeholders does not matter. For each finding \
give the reason first, in one or two sentences that name what must change.";

const OPTIMIZE: &str = "\
You mend a plan by which tools are to answer a user's query. A check of one step found what is wrong \
with it. Work in two stages:
- Change 0 mends that step as the findings say: rewrite its prompt, divide it into several steps, give \
it another tool, leave out the repeated detail, or add a step that asks the other tool the same.
- Change 1 keeps the rest of the plan whole after change 0: numbers, dependencies, placeholders, and a \
step that puts results together where there are now several. It improves nothing else. A fault like \
the one found, in another step, stays for later.
If a finding is mistaken or already met by another step, return the plan as it is. Return every step, \
in order; numbers follow from the order, from 1. 'inputs' are the steps whose outputs stand before the \
prompt, 'depends_on' all earlier steps that the step needs. Each dependency has a placeholder, in \
'inputs' or as (k) in the prompt, as the tool takes it.";

// The form of the evaluator's answer.
static TAGS_FORM: LazyLock<Arc<AnswerForm>> = LazyLock::new(|| {
    let tag = json!({ "type": "string", "enum": Tag::ALL.map(Tag::as_str) });
    let finding = object_schema(json!({ "reason": { "type": "string" }, "tag": tag }));
    let findings = json!({ "type": "array", "items": finding });
    AnswerForm::object("plan_step_check", json!({ "findings": findings }))
});

// The form of the optimizer's answer.
static REVISION_FORM: LazyLock<Arc<AnswerForm>> = LazyLock::new(|| {
    let numbers = json!({ "type": "array", "items": { "type": "integer" } });
    let step = object_schema(json!({
        "tool": { "type": "string" },
        "inputs": numbers,
        "prompt": { "type": "string" },
        "depends_on": numbers,
    }));
    let fields = json!({
        "change_0": { "type": "string" },
        "change_1": { "type": "string" },
        "steps": { "type": "array", "items": step },
    });
    AnswerForm::object("plan_revision", fields)
});

labelled_enum! {
    /// Findings of the evaluator, in the order in which it checks for them.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    pub enum Tag {
        /// The prompt is incomplete, or does not fit its tool. Critical.
        IncorrectPrompt = "INCORRECT_PROMPT",
        /// The prompt is too complex for one step. Critical.
        ComplexPrompt = "COMPLEX_PROMPT",
        /// The step requires another tool. Critical.
        IncorrectTool = "INCORRECT_TOOL",
        /// The step repeats a detail that an earlier step has handled.
        RepeatedDetail = "REPEATED_DETAIL",
        /// Another tool could answer the prompt in addition.
        MultiToolPrompt = "MULTI_TOOL_PROMPT",
        /// The step is correct.
        NoChange = "NO_CHANGE",
    }
}

/// A tag with its reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StepFinding {
    pub reason: String,
    pub tag: Tag,
}

fn question(key: String, rubric: &str, tools: &Toolbox, user: String, form: &Arc<AnswerForm>) -> Question {
    let system = format!("{rubric}\n\n{FORM}\n\n{DATA}\n\nTools:\n{}", render_tools(tools, true));
    Question::new(key, Prompt::new(system, user), form.clone())
}

fn render_step(step: &PlanStep) -> String {
    format!("step {}: {}, depends_on {:?}", step.number, step.instruction(), step.depends_on)
}

/// The question to the evaluator about `step`.
pub(super) fn evaluator_question(
    key: String,
    query: &str,
    plan: &Plan,
    step: &PlanStep,
    tools: &Toolbox,
) -> Question {
    let position = plan.position(step.number).unwrap_or(0);
    let earlier: Vec<String> =
        shape::earlier(plan, position, step).filter_map(|d| plan.steps.get(d)).map(render_step).collect();
    let earlier = if earlier.is_empty() { "none".to_owned() } else { earlier.join("\n") };
    let user = format!(
        "{}{}Its dependencies:\n{}The step to check:\n{}",
        fence("QUERY", query),
        fence("PLAN", &plan.to_text()),
        fence("DEPENDENCIES", &earlier),
        fence("STEP", &render_step(step)),
    );
    question(key, EVALUATE, tools, user, &TAGS_FORM)
}

/// The question to the optimizer: how to rewrite the plan.
pub(super) fn optimizer_question(
    key: String,
    query: &str,
    plan: &Plan,
    step: &PlanStep,
    tags: &[StepFinding],
    tools: &Toolbox,
) -> Question {
    let findings: Vec<String> = tags.iter().map(|t| format!("{}: {}", t.tag.as_str(), t.reason)).collect();
    let user = format!(
        "{}{}The step that was checked is step {}. Found in it:\n{}",
        fence("QUERY", query),
        fence("PLAN", &plan.to_text()),
        step.number,
        fence("FINDINGS", &findings.join("\n")),
    );
    question(key, OPTIMIZE, tools, user, &REVISION_FORM)
}
