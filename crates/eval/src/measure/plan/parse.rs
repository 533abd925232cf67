//! Parses plans of any form into [`Plan`] (004, section 2).
//!
//! In: the text of a plan: the paper's object of numbered steps, a list of steps with fields, a
//! todo list, or prose with numbered or bulleted items or sequence words; possibly within text or a code
//! fence. Out: a [`Plan`], with a [`PlanIssue`] for every repair. The plan of a text without a step
//! has no steps.

use super::lenient_json::{self, LenientValue};
use super::schema::{Fault, MAX_STEPS, Plan, PlanIssue, PlanStep, StepNotation};
use super::{call, prose};
use crate::measure::defects::clip;
use crate::recognise;

/// Maximum length of a text that is parsed as a plan, in bytes.
const MAX_BYTES: usize = 256 << 10;
/// Maximum number of opening brackets that are tried as the beginning of a plan.
const MAX_BEGINNINGS: usize = 16;
/// Maximum depth of plans as text inside JSON.
const MAX_NESTED: usize = 3;
/// Maximum number of bytes of a text that an issue quotes.
const EXCERPT_BYTES: usize = 80;

/// Keys of the steps of a plan.
const STEPS_KEYS: [&str; 9] =
    ["plan", "steps", "execution_plan", "todos", "tasks", "actions", "subtasks", "items", "new_plan"];
/// Keys of a step's instruction. The first two are those of the paper.
const INSTRUCTION_KEYS: [&str; 11] = [
    "step",
    "query",
    "prompt",
    "instruction",
    "content",
    "description",
    "task",
    "title",
    "action",
    "text",
    "goal",
];
/// Keys of the name of a step's tool.
const TOOL_KEYS: [&str; 4] = ["tool", "tool_name", "agent", "function"];
/// Keys of a step's dependencies.
const DEPENDENCY_KEYS: [&str; 4] = ["depends_on", "dependencies", "dependsOn", "requires"];
/// Keys of a step's number or name.
const NUMBER_KEYS: [&str; 4] = ["id", "step_number", "number", "index"];

/// Parses the text of a plan.
pub fn parse_plan(text: &str) -> Plan {
    parse_nested(text, MAX_NESTED)
}

/// Parses a plan that `recognise` found. If it cannot be divided into steps, the plan is one step with
/// the whole text.
pub(crate) fn from_recognised(recorded: &recognise::RecordedPlan) -> Plan {
    let plan = parse_plan(&recorded.text);
    // Text that looks structured and cannot be parsed is a broken plan, not prose.
    if !plan.is_unreadable() || recorded.text.contains("depends_on") {
        return plan;
    }
    // `recognise` supports the fields of more todo tools than this parser.
    let steps: Vec<String> = recorded.steps.iter().map(|step| step.to_string()).collect();
    prose::from_steps(if steps.is_empty() { vec![recorded.text.to_string()] } else { steps })
}

/// The query in the file of a plan: `{"query": ..., "plan": ...}`, or a line `# Query: ...` before the plan.
pub fn query_of_file(text: &str) -> Option<String> {
    let text = clip(text, MAX_BYTES);
    let heading =
        |line: &str| Some(line.trim().strip_prefix('#')?.trim().strip_prefix("Query:")?.trim().to_owned());
    if let Some(query) = text.lines().take(MAX_BEGINNINGS).find_map(heading) {
        return Some(query);
    }
    let file = lenient_json::parse(text.get(text.find('{')?..)?)?.value;
    member(&file, &STEPS_KEYS)?;
    file.get("query")?.text().map(str::to_owned)
}

/// The first of the members `keys` that a value has.
fn member<'a>(value: &'a LenientValue, keys: &[&str]) -> Option<&'a LenientValue> {
    keys.iter().find_map(|key| value.get(key))
}

/// The plan in a text, which may contain JSON in a string of JSON up to a few levels deep.
fn parse_nested(text: &str, depth: usize) -> Plan {
    let text = clip(text, MAX_BYTES).trim_start_matches('\u{feff}').trim();
    let candidates = text
        .match_indices(['{', '['])
        .map(|(start, _)| start)
        .filter(|start| text.get(..*start).is_some_and(|before| !before.ends_with(['(', '{', '['])))
        .take(MAX_BEGINNINGS);
    for start in candidates {
        let Some(parsed) = text.get(start..).and_then(lenient_json::parse) else { continue };
        let Some(mut plan) = plan_from_value(&parsed.value, depth) else { continue };
        let has_no_prompt = plan.steps.iter().all(|step| step.prompt.is_empty());
        let is_in_prose = start > 0 && parsed.bytes < text.len() / 2;
        if !plan.is_structured && (has_no_prompt || is_in_prose) {
            continue;
        }
        let mut repairs = parsed.repairs;
        if start > 0 && text.starts_with(['{', '[']) {
            repairs.push("the text around the steps cannot be parsed");
        }
        if !repairs.is_empty() {
            let message = format!("not JSON: {}", repairs.join(", "));
            plan.issues.insert(0, PlanIssue::for_plan(Fault::Repaired, message));
        }
        if start > 0 || text.get(start + parsed.bytes..).is_some_and(|rest| !rest.trim().is_empty()) {
            plan.issues.insert(0, PlanIssue::for_plan(Fault::Surrounded, "text or a fence around the plan"));
        }
        return plan;
    }
    parse_prose(text)
}

/// The plan of a text without JSON.
fn parse_prose(text: &str) -> Plan {
    // A structured plan that cannot be parsed is not read as a list of its lines.
    let is_broken = text.contains("depends_on") || text.starts_with(['{', '[']);
    let mut steps = if is_broken { Vec::new() } else { recognise::plan_steps(text) };
    if steps.is_empty() && !is_broken {
        steps = prose::ordered_steps(text);
    }
    steps.truncate(MAX_STEPS);
    let mut plan = prose::from_steps(steps);
    if plan.is_unreadable() {
        let message = match text {
            "" => "the text is empty".to_owned(),
            text => format!("no steps can be parsed: \"{}\"", clip(text, EXCERPT_BYTES)),
        };
        plan.issues.push(PlanIssue::for_plan(Fault::Unreadable, message));
    }
    plan
}

/// The plan in a value, if there is one.
fn plan_from_value(value: &LenientValue, depth: usize) -> Option<Plan> {
    let depth = depth.checked_sub(1)?;
    match value {
        LenientValue::Object(members) => {
            if let Some(inner) = member(value, &STEPS_KEYS) {
                return plan_from_value(inner, depth);
            }
            let are_numbered = members.iter().all(|(key, _)| number_in(key).is_some());
            let are_steps = members.iter().all(|(_, v)| is_step(v));
            let is_plan = !members.is_empty() && (are_numbered || are_steps);
            is_plan.then(|| plan_from_steps(members.iter().map(|(key, value)| (Some(key.as_str()), value))))
        }
        LenientValue::List(items) => {
            let has_words =
                |item: &LenientValue| item.text().is_some_and(|t| t.contains(char::is_alphabetic));
            let is_plan = !items.is_empty() && items.iter().all(|item| is_step(item) || has_words(item));
            let name = |item| member(item, &NUMBER_KEYS).and_then(LenientValue::text);
            is_plan.then(|| plan_from_steps(items.iter().map(|item| (name(item), item))))
        }
        LenientValue::Text(text) => Some(parse_nested(text, depth)).filter(|plan| !plan.is_unreadable()),
        _ => None,
    }
}

/// Whether a value is an object that describes a step.
fn is_step(value: &LenientValue) -> bool {
    member(value, &INSTRUCTION_KEYS).or_else(|| member(value, &DEPENDENCY_KEYS)).is_some()
}

/// The number in `3`, `step 3`, `S3`, `task_3`.
fn number_in(name: &str) -> Option<usize> {
    let digits =
        name.trim().trim_start_matches(|c: char| c.is_alphabetic() || matches!(c, '_' | '-' | ' ' | '#'));
    digits.parse().ok().filter(|n| *n > 0 && *n <= 10_000)
}

/// A plan from values of steps, each with its name or number.
fn plan_from_steps<'a>(values: impl Iterator<Item = (Option<&'a str>, &'a LenientValue)>) -> Plan {
    let mut plan = Plan::default();
    let mut names: Vec<(&str, usize)> = Vec::new();
    let mut dependencies: Vec<Option<&LenientValue>> = Vec::new();
    for (name, value) in values {
        if plan.steps.len() == MAX_STEPS {
            plan.issues.push(PlanIssue::for_plan(Fault::TooLong, format!("only {MAX_STEPS} steps are read")));
            break;
        }
        let position = plan.steps.len() + 1;
        let is_free = |n: &usize| !plan.steps.iter().any(|s: &PlanStep| s.number == *n);
        let recorded_number = name.and_then(number_in);
        // Names without a number ("fetch") are valid; such steps are numbered in order.
        let number =
            recorded_number.filter(is_free).unwrap_or_else(|| (position..).find(is_free).unwrap_or(position));
        if let Some(recorded_number) = recorded_number.filter(|number| *number != position) {
            let message = format!("is numbered {recorded_number} at position {position}");
            plan.issues.push(PlanIssue::for_step(number, Fault::Numbering, message));
        }
        names.extend(name.map(|name| (name.trim(), number)));
        let depends_on = member(value, &DEPENDENCY_KEYS);
        let (step, issue) = parse_step(number, value);
        plan.is_structured |= depends_on.is_some() || step.notation != StepNotation::Prose;
        plan.steps.push(step);
        plan.issues.extend(issue);
        dependencies.push(depends_on);
    }
    if !plan.is_structured {
        prose::resolve_references(&mut plan);
        return plan;
    }
    for (step, depends_on) in plan.steps.iter_mut().zip(dependencies) {
        let (numbers, issue) = parse_dependencies(step.number, depends_on, &names);
        step.depends_on = numbers;
        plan.issues.extend(issue);
    }
    let without_tool = plan.steps.iter().filter(|step| step.tool.is_none() && !step.prompt.is_empty());
    plan.issues.extend(without_tool.map(|step| {
        let message = format!("names no tool: \"{}\"", clip(&step.prompt, EXCERPT_BYTES));
        PlanIssue::for_step(step.number, Fault::NoCall, message)
    }));
    plan
}

/// The step with this number, and its first issue.
fn parse_step(number: usize, value: &LenientValue) -> (PlanStep, Option<PlanIssue>) {
    let text = |keys| member(value, keys).and_then(LenientValue::text);
    let prompt = text(&INSTRUCTION_KEYS[..]).or(value.text()).unwrap_or_default().trim().to_owned();
    let tool = text(&TOOL_KEYS).map(|tool| tool.trim().to_owned()).filter(|tool| !tool.is_empty());
    let mut step = PlanStep { number, tool, prompt, ..PlanStep::default() };
    if step.prompt.is_empty() {
        let message = "has neither a \"step\" nor a \"query\" with text";
        return (step, Some(PlanIssue::for_step(number, Fault::NoInstruction, message)));
    }
    if step.tool.is_some() {
        step.notation = StepNotation::Fields;
        return (step, None);
    }
    let Some(call) = call::parse_call(&step.prompt) else { return (step, None) };
    let issue = (!call.is_well_formed).then(|| {
        let message =
            format!("the prompt's quotes or brackets do not match: {}", clip(&step.prompt, EXCERPT_BYTES));
        PlanIssue::for_step(number, Fault::Quotes, message)
    });
    let (tool, notation) = (Some(call.tool), StepNotation::Call);
    (PlanStep { number, tool, inputs: call.inputs, prompt: call.prompt, notation, ..step }, issue)
}

/// The numbers of the steps in a step's `depends_on`, which may contain names of steps.
fn parse_dependencies(
    number: usize,
    depends_on: Option<&LenientValue>,
    names: &[(&str, usize)],
) -> (Vec<usize>, Option<PlanIssue>) {
    let fault = |message: &str| Some(PlanIssue::for_step(number, Fault::DependsOn, message));
    let (items, mut is_malformed) = match depends_on {
        None => return (Vec::new(), fault("has no depends_on")),
        Some(LenientValue::Null) => return (Vec::new(), fault("depends_on is null, not a list")),
        Some(LenientValue::List(items)) => (items.as_slice(), false),
        Some(single) => (std::slice::from_ref(single), true),
    };
    let mut numbers = Vec::new();
    for item in items.iter().take(MAX_STEPS) {
        let text = item.text().unwrap_or("").trim();
        let named = names.iter().find(|(name, _)| *name == text);
        let Some(dependency) = named.map(|(_, n)| *n).or_else(|| number_in(text)) else {
            is_malformed = true;
            continue;
        };
        // A number as a string is a fault, but the name of a step is not: a list of names is valid.
        let is_by_name = named.is_some() && text.parse::<usize>().is_err();
        is_malformed |= matches!(item, LenientValue::Text(_)) && !is_by_name;
        numbers.push(dependency);
    }
    let issue = is_malformed.then(|| fault("depends_on is not a list of step numbers")).flatten();
    (numbers, issue)
}

#[cfg(test)]
pub(super) mod tests;
