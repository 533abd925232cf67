//! What the loop asks: the step evaluator's and the plan optimizer's questions (004, tables 28 and 29,
//! in our words).

use std::sync::{Arc, LazyLock};

use serde_json::json;

use super::Tagged;
use crate::measure::plan::prompt::{DATA, FORM, fence, tools};
use crate::measure::plan::schema::{Plan, Step};
use crate::measure::plan::shape;
use crate::measure::plan::tools::Toolbox;
use crate::measure::{Form, Prompt, Question};

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

static TAGS: LazyLock<Arc<Form>> = LazyLock::new(|| {
    let tags = [
        "INCORRECT_PROMPT",
        "COMPLEX_PROMPT",
        "INCORRECT_TOOL",
        "REPEATED_DETAIL",
        "MULTI_TOOL_PROMPT",
        "NO_CHANGE",
    ];
    let finding = json!({
        "type": "object",
        "properties": { "reason": { "type": "string" }, "tag": { "type": "string", "enum": tags } },
        "required": ["reason", "tag"],
        "additionalProperties": false,
    });
    let schema = json!({
        "type": "object",
        "properties": { "findings": { "type": "array", "items": finding } },
        "required": ["findings"],
        "additionalProperties": false,
    });
    Arc::new(Form { name: "plan_step_check", schema, score: None })
});

static REVISED: LazyLock<Arc<Form>> = LazyLock::new(|| {
    let numbers = json!({ "type": "array", "items": { "type": "integer" } });
    let step = json!({
        "type": "object",
        "properties": {
            "tool": { "type": "string" },
            "inputs": numbers,
            "prompt": { "type": "string" },
            "depends_on": numbers,
        },
        "required": ["tool", "inputs", "prompt", "depends_on"],
        "additionalProperties": false,
    });
    let schema = json!({
        "type": "object",
        "properties": {
            "change_0": { "type": "string" },
            "change_1": { "type": "string" },
            "steps": { "type": "array", "items": step },
        },
        "required": ["change_0", "change_1", "steps"],
        "additionalProperties": false,
    });
    Arc::new(Form { name: "plan_revision", schema, score: None })
});

fn question(key: String, system: String, user: String, form: &Arc<Form>) -> Question {
    Question { key, prompt: Prompt::new(system, user), form: form.clone(), judges: Vec::new() }
}

fn written(step: &Step) -> String {
    format!("step {}: {}, depends_on {:?}", step.number, step.instruction(), step.depends_on)
}

/// What is wrong with `step`?
pub fn evaluator(key: String, query: &str, plan: &Plan, step: &Step, known: &Toolbox) -> Question {
    let at = plan.position(step.number).unwrap_or(0);
    let earlier: Vec<String> =
        shape::earlier(plan, at, step).filter_map(|d| plan.steps.get(d)).map(written).collect();
    let earlier = if earlier.is_empty() { "none".to_owned() } else { earlier.join("\n") };
    let user = format!(
        "{}{}Its dependencies:\n{}The step to check:\n{}",
        fence("QUERY", query),
        fence("PLAN", &plan.to_text()),
        fence("DEPENDENCIES", &earlier),
        fence("STEP", &written(step)),
    );
    question(key, format!("{EVALUATE}\n\n{FORM}\n\n{DATA}\n\nTools:\n{}", tools(known)), user, &TAGS)
}

/// What becomes of the plan?
pub fn optimizer(
    key: String,
    query: &str,
    plan: &Plan,
    step: &Step,
    tags: &[Tagged],
    known: &Toolbox,
) -> Question {
    let findings: Vec<String> = tags
        .iter()
        .map(|t| {
            format!("{}: {}", serde_json::to_string(&t.tag).unwrap_or_default().trim_matches('"'), t.reason)
        })
        .collect();
    let user = format!(
        "{}{}The step that was checked is step {}. Found in it:\n{}",
        fence("QUERY", query),
        fence("PLAN", &plan.to_text()),
        step.number,
        fence("FINDINGS", &findings.join("\n")),
    );
    question(key, format!("{OPTIMIZE}\n\n{FORM}\n\n{DATA}\n\nTools:\n{}", tools(known)), user, &REVISED)
}
