//! Parses plans of any form into [`Plan`] (004, section 2).
//!
//! In: the text of a plan: the paper's object of numbered steps, a list of steps with fields, a
//! todo list, or prose with numbered or bulleted items or sequence words; with text or a code
//! fence around it. Out: a [`Plan`], with a [`PlanIssue`] for every repair. A text without a step
//! gives a plan without steps.

use super::lenient_json::{self, LenientValue};
use super::schema::{Fault, MAX_STEPS, Plan, PlanIssue, PlanStep, StepNotation};
use super::{call, prose};
use crate::measure::defects::clip;
use crate::recognise;

/// Longest text that is parsed as a plan.
const MAX_BYTES: usize = 256 << 10;
/// Most opening brackets that are tried as the beginning of a plan.
const MAX_BEGINNINGS: usize = 16;
/// Deepest nesting of plans as text inside JSON.
const MAX_NESTED: usize = 3;
/// Bytes of a text that an issue quotes.
const EXCERPT_BYTES: usize = 80;

/// Members with the steps of a plan.
const STEPS: [&str; 9] =
    ["plan", "steps", "execution_plan", "todos", "tasks", "actions", "subtasks", "items", "new_plan"];
/// Members with a step's instruction. The first two are the paper's.
const INSTRUCTION: [&str; 11] = [
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
/// Members that name a step's tool.
const TOOL: [&str; 4] = ["tool", "tool_name", "agent", "function"];
/// Members with a step's dependencies.
const DEPENDS_ON: [&str; 4] = ["depends_on", "dependencies", "dependsOn", "requires"];
/// Members that give a step's number or name.
const NUMBER: [&str; 4] = ["id", "step_number", "number", "index"];

pub fn parse_plan(text: &str) -> Plan {
    parse_nested(text, MAX_NESTED)
}

/// Parses a plan that `recognise` found. If no steps can be separated, the plan is one step with
/// the whole text.
pub(crate) fn from_recognised(written: &recognise::RecordedPlan) -> Plan {
    let plan = parse_plan(&written.text);
    // Text that looks structured and cannot be parsed is a broken plan, not prose.
    if !plan.is_unreadable() || written.text.contains("depends_on") {
        return plan;
    }
    // `recognise` supports the fields of more todo tools than this parser.
    let steps: Vec<String> = written.steps.iter().map(|step| step.to_string()).collect();
    prose::from_steps(if steps.is_empty() { vec![written.text.to_string()] } else { steps })
}

/// The query in the file of a plan: `{"query": ..., "plan": ...}`, or a line `# Query: ...` before
/// it.
pub fn query_of_file(text: &str) -> Option<String> {
    let text = clip(text, MAX_BYTES);
    let heading =
        |line: &str| Some(line.trim().strip_prefix('#')?.trim().strip_prefix("Query:")?.trim().to_owned());
    if let Some(query) = text.lines().take(MAX_BEGINNINGS).find_map(heading) {
        return Some(query);
    }
    let file = lenient_json::parse(text.get(text.find('{')?..)?)?.value;
    member(&file, &STEPS)?;
    file.get("query")?.text().map(str::to_owned)
}

/// The first of the members `keys` that a value has.
fn member<'a>(value: &'a LenientValue, keys: &[&str]) -> Option<&'a LenientValue> {
    keys.iter().find_map(|key| value.get(key))
}

fn parse_nested(text: &str, depth: usize) -> Plan {
    let text = clip(text, MAX_BYTES).trim_start_matches('\u{feff}').trim();
    let candidates = text
        .match_indices(['{', '['])
        .map(|(at, _)| at)
        .filter(|at| text.get(..*at).is_some_and(|before| !before.ends_with(['(', '{', '['])))
        .take(MAX_BEGINNINGS);
    for at in candidates {
        let Some(parsed) = text.get(at..).and_then(lenient_json::parse) else { continue };
        let Some(mut plan) = plan_from_value(&parsed.value, depth) else { continue };
        let only_numbers = plan.steps.iter().all(|step| step.prompt.is_empty());
        let in_prose = at > 0 && parsed.bytes < text.len() / 2;
        if !plan.structured && (only_numbers || in_prose) {
            continue;
        }
        let mut repairs = parsed.repairs;
        if at > 0 && text.starts_with(['{', '[']) {
            repairs.push("the text around the steps cannot be parsed");
        }
        if !repairs.is_empty() {
            let message = format!("not JSON: {}", repairs.join(", "));
            plan.issues.insert(0, PlanIssue::for_plan(Fault::Repaired, message));
        }
        if at > 0 || text.get(at + parsed.bytes..).is_some_and(|rest| !rest.trim().is_empty()) {
            plan.issues.insert(0, PlanIssue::for_plan(Fault::Surrounded, "text or a fence around the plan"));
        }
        return plan;
    }
    parse_prose(text)
}

fn parse_prose(text: &str) -> Plan {
    // A structured plan that cannot be parsed is not read as a list of its lines.
    let broken = text.contains("depends_on") || text.starts_with(['{', '[']);
    let mut steps = if broken { Vec::new() } else { recognise::plan_steps(text) };
    if steps.is_empty() && !broken {
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
            if let Some(inner) = member(value, &STEPS) {
                return plan_from_value(inner, depth);
            }
            let numbered = members.iter().all(|(key, _)| number_in(key).is_some());
            let stepwise = members.iter().all(|(_, v)| is_step(v));
            let is_plan = !members.is_empty() && (numbered || stepwise);
            is_plan.then(|| plan_from_steps(members.iter().map(|(key, value)| (Some(key.as_str()), value))))
        }
        LenientValue::List(items) => {
            let has_words =
                |item: &LenientValue| item.text().is_some_and(|t| t.contains(char::is_alphabetic));
            let is_plan = !items.is_empty() && items.iter().all(|item| is_step(item) || has_words(item));
            let name = |item| member(item, &NUMBER).and_then(LenientValue::text);
            is_plan.then(|| plan_from_steps(items.iter().map(|item| (name(item), item))))
        }
        LenientValue::Text(text) => Some(parse_nested(text, depth)).filter(|plan| !plan.is_unreadable()),
        _ => None,
    }
}

fn is_step(value: &LenientValue) -> bool {
    member(value, &INSTRUCTION).or_else(|| member(value, &DEPENDS_ON)).is_some()
}

/// The number in `3`, `step 3`, `S3`, `task_3`.
fn number_in(name: &str) -> Option<usize> {
    let digits =
        name.trim().trim_start_matches(|c: char| c.is_alphabetic() || matches!(c, '_' | '-' | ' ' | '#'));
    digits.parse().ok().filter(|n| *n > 0 && *n <= 10_000)
}

/// A plan from steps as written, each with its name.
fn plan_from_steps<'a>(written: impl Iterator<Item = (Option<&'a str>, &'a LenientValue)>) -> Plan {
    let mut plan = Plan::default();
    let mut names: Vec<(&str, usize)> = Vec::new();
    let mut dependencies: Vec<Option<&LenientValue>> = Vec::new();
    for (name, value) in written {
        if plan.steps.len() == MAX_STEPS {
            plan.issues.push(PlanIssue::for_plan(Fault::TooLong, format!("only {MAX_STEPS} steps are read")));
            break;
        }
        let place = plan.steps.len() + 1;
        let free = |n: &usize| !plan.steps.iter().any(|s: &PlanStep| s.number == *n);
        let given = name.and_then(number_in);
        // Names without a number ("fetch") are valid; such steps are numbered in order.
        let number = given.filter(free).unwrap_or_else(|| (place..).find(free).unwrap_or(place));
        if let Some(given) = given.filter(|given| *given != place) {
            let message = format!("is numbered {given} at position {place}");
            plan.issues.push(PlanIssue::at(number, Fault::Numbering, message));
        }
        names.extend(name.map(|name| (name.trim(), number)));
        let depends_on = member(value, &DEPENDS_ON);
        let (step, issue) = parse_step(number, value);
        plan.structured |= depends_on.is_some() || step.notation != StepNotation::Prose;
        plan.steps.push(step);
        plan.issues.extend(issue);
        dependencies.push(depends_on);
    }
    if !plan.structured {
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
        PlanIssue::at(step.number, Fault::NoCall, message)
    }));
    plan
}

fn parse_step(number: usize, value: &LenientValue) -> (PlanStep, Option<PlanIssue>) {
    let text = |keys| member(value, keys).and_then(LenientValue::text);
    let prompt = text(&INSTRUCTION[..]).or(value.text()).unwrap_or_default().trim().to_owned();
    let tool = text(&TOOL).map(|tool| tool.trim().to_owned()).filter(|tool| !tool.is_empty());
    let mut step = PlanStep { number, tool, prompt, ..PlanStep::default() };
    if step.prompt.is_empty() {
        let message = "has neither a \"step\" nor a \"query\" with text";
        return (step, Some(PlanIssue::at(number, Fault::NoInstruction, message)));
    }
    if step.tool.is_some() {
        step.notation = StepNotation::Fields;
        return (step, None);
    }
    let Some(call) = call::parse_call(&step.prompt) else { return (step, None) };
    let issue = (!call.well_formed).then(|| {
        let message =
            format!("the prompt's quotes or brackets do not match: {}", clip(&step.prompt, EXCERPT_BYTES));
        PlanIssue::at(number, Fault::Quotes, message)
    });
    let (tool, notation) = (Some(call.tool), StepNotation::Call);
    (PlanStep { number, tool, inputs: call.inputs, prompt: call.prompt, notation, ..step }, issue)
}

/// The numbers in a step's `depends_on`, which may be names of steps.
fn parse_dependencies(
    number: usize,
    given: Option<&LenientValue>,
    names: &[(&str, usize)],
) -> (Vec<usize>, Option<PlanIssue>) {
    let fault = |message: &str| Some(PlanIssue::at(number, Fault::DependsOn, message));
    let (items, mut malformed) = match given {
        None => return (Vec::new(), fault("has no depends_on")),
        Some(LenientValue::Null) => return (Vec::new(), fault("depends_on is null, not a list")),
        Some(LenientValue::List(items)) => (items.as_slice(), false),
        Some(single) => (std::slice::from_ref(single), true),
    };
    let mut numbers = Vec::new();
    for item in items.iter().take(MAX_STEPS) {
        let text = item.text().unwrap_or("").trim();
        let named = names.iter().find(|(name, _)| *name == text);
        let Some(found) = named.map(|(_, n)| *n).or_else(|| number_in(text)) else {
            malformed = true;
            continue;
        };
        // A quoted number is a fault, unless it is the name of a step: a list of names is valid.
        let by_name = named.is_some() && text.parse::<usize>().is_err();
        malformed |= matches!(item, LenientValue::Text(_)) && !by_name;
        numbers.push(found);
    }
    let issue = malformed.then(|| fault("depends_on is not a list of step numbers")).flatten();
    (numbers, issue)
}

#[cfg(test)]
pub(super) mod tests;
