//! Parses plans of any form into [`Plan`] (004, section 2; conventions, section 4).
//!
//! In: the text of a plan: the paper's object of numbered steps, a list of steps with fields, a
//! todo list, or prose with numbered or bulleted items or with words of order; with text or a code
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

/// Members that hold the steps of a plan.
const STEPS: [&str; 9] =
    ["plan", "steps", "execution_plan", "todos", "tasks", "actions", "subtasks", "items", "new_plan"];
/// Members that hold a step's instruction. The first two are the paper's.
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
/// Members that hold a step's dependencies.
const DEPENDS_ON: [&str; 4] = ["depends_on", "dependencies", "dependsOn", "requires"];
/// Members that give a step's number or name.
const NUMBER: [&str; 4] = ["id", "step_number", "number", "index"];

pub fn parse_plan(text: &str) -> Plan {
    parse_nested(text, MAX_NESTED)
}

/// Parses a plan that `recognise` found. If no steps can be separated, the plan is one step with
/// the whole text.
pub(crate) fn from_recognised(written: &recognise::Plan) -> Plan {
    let plan = parse_plan(&written.text);
    // Text that looks structured and cannot be parsed is a broken plan, not prose.
    if !plan.is_unreadable() || written.text.contains("depends_on") {
        return plan;
    }
    // `recognise` knows the fields of more todo tools than this parser does.
    let steps = written.steps.iter().map(|step| step.to_string()).collect::<Vec<_>>();
    let steps = if steps.is_empty() { vec![written.text.to_string()] } else { steps };
    prose::from_steps(steps)
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
    let whole = lenient_json::parse(text.get(text.find('{')?..)?)?.value;
    let has_plan = STEPS.iter().any(|key| whole.get(key).is_some());
    whole.get("query").and_then(LenientValue::text).filter(|_| has_plan).map(str::to_owned)
}

fn parse_nested(text: &str, depth: usize) -> Plan {
    let text = clip(text, MAX_BYTES).trim_start_matches('\u{feff}').trim();
    let candidates = text
        .match_indices(['{', '['])
        .map(|(at, _)| at)
        .filter(|at| text.get(..*at).is_some_and(|before| !before.ends_with(['(', '{', '['])))
        .take(MAX_BEGINNINGS);
    for at in candidates {
        let Some(read) = text.get(at..).and_then(lenient_json::parse) else { continue };
        let Some(mut plan) = plan_from_value(&read.value, depth) else { continue };
        // Numbers without text.
        if !plan.structured && plan.steps.iter().all(|s| s.prompt.is_empty()) {
            continue;
        }
        // Brackets inside prose are not a plan.
        if !plan.structured && at > 0 && read.bytes < text.len() / 2 {
            continue;
        }
        let mut repairs = read.repairs;
        if at > 0 && text.starts_with(['{', '[']) {
            repairs.push("the text around the steps cannot be parsed");
        }
        if !repairs.is_empty() {
            let message = format!("not JSON: {}", repairs.join(", "));
            plan.issues.insert(0, PlanIssue::of_plan(Fault::Repaired, message));
        }
        if at > 0 || text.get(at + read.bytes..).is_some_and(|rest| !rest.trim().is_empty()) {
            plan.issues.insert(0, PlanIssue::of_plan(Fault::Surrounded, "text or a fence around the plan"));
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
    if plan.steps.is_empty() {
        let message = match text {
            "" => "there is no text".to_owned(),
            text => format!("no steps can be read: \"{}\"", clip(text, EXCERPT_BYTES)),
        };
        plan.issues.push(PlanIssue::of_plan(Fault::Unreadable, message));
    }
    plan
}

/// The plan in a value, if there is one.
fn plan_from_value(value: &LenientValue, depth: usize) -> Option<Plan> {
    let depth = depth.checked_sub(1)?;
    match value {
        LenientValue::Object(members) => {
            if let Some(inner) = STEPS.iter().find_map(|key| value.get(key)) {
                return plan_from_value(inner, depth);
            }
            let numbered = members.iter().all(|(key, _)| number_in(key).is_some());
            let stepwise = members.iter().all(|(_, v)| is_step(v));
            if members.is_empty() || !(numbered || stepwise) {
                return None;
            }
            Some(plan_from_steps(members.iter().map(|(key, value)| (Some(key.as_str()), value))))
        }
        LenientValue::List(items) => {
            let says = |item: &LenientValue| item.text().is_some_and(|t| t.contains(char::is_alphabetic));
            let is_plan = !items.is_empty() && items.iter().all(|item| is_step(item) || says(item));
            is_plan.then(|| {
                plan_from_steps(items.iter().map(|item| {
                    let name = NUMBER.iter().find_map(|key| item.get(key)).and_then(LenientValue::text);
                    (name, item)
                }))
            })
        }
        LenientValue::Text(text) => Some(parse_nested(text, depth)).filter(|plan| !plan.is_unreadable()),
        _ => None,
    }
}

fn is_step(value: &LenientValue) -> bool {
    let any = |keys: &[&str]| keys.iter().any(|key| value.get(key).is_some());
    matches!(value, LenientValue::Object(_)) && (any(&INSTRUCTION) || any(&DEPENDS_ON))
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
    let mut names: Vec<(String, usize)> = Vec::new();
    let mut wanted: Vec<Option<&LenientValue>> = Vec::new();
    for (name, value) in written {
        if plan.steps.len() == MAX_STEPS {
            plan.issues.push(PlanIssue::of_plan(Fault::TooLong, format!("only {MAX_STEPS} steps are read")));
            break;
        }
        let place = plan.steps.len() + 1;
        let free = |n: &usize| !plan.steps.iter().any(|s: &PlanStep| s.number == *n);
        let given = name.and_then(number_in);
        // Names that are no numbers ("fetch") are valid; such steps are counted.
        let number = given.filter(free).unwrap_or_else(|| (place..).find(free).unwrap_or(place));
        if given.is_some_and(|given| given != place) {
            let message = format!("is numbered {}, and {place} is its position", given.unwrap_or(number));
            plan.issues.push(PlanIssue::at(number, Fault::Numbering, message));
        }
        if let Some(name) = name {
            names.push((name.trim().to_owned(), number));
        }
        let depends = DEPENDS_ON.iter().find_map(|key| value.get(key));
        let (step, issue) = parse_step(number, value);
        plan.structured |= depends.is_some() || step.notation != StepNotation::Prose;
        plan.steps.push(step);
        plan.issues.extend(issue);
        wanted.push(depends);
    }
    if plan.structured {
        for (at, depends) in wanted.into_iter().enumerate() {
            let Some(number) = plan.steps.get(at).map(|s| s.number) else { break };
            let (numbers, issue) = parse_dependencies(number, depends, &names);
            if let Some(step) = plan.steps.get_mut(at) {
                step.depends_on = numbers;
            }
            plan.issues.extend(issue);
        }
        flag_steps_without_tool(&mut plan);
    } else {
        prose::resolve_references(&mut plan);
    }
    plan
}

/// Adds an issue for each step that is no call in a plan of calls.
fn flag_steps_without_tool(plan: &mut Plan) {
    for step in &plan.steps {
        if step.tool.is_none() && !step.prompt.is_empty() {
            let message = format!("names no tool: \"{}\"", clip(&step.prompt, EXCERPT_BYTES));
            plan.issues.push(PlanIssue::at(step.number, Fault::NoCall, message));
        }
    }
}

fn parse_step(number: usize, value: &LenientValue) -> (PlanStep, Option<PlanIssue>) {
    let message = match value {
        LenientValue::Object(_) => {
            INSTRUCTION.iter().find_map(|key| value.get(key)).and_then(LenientValue::text)
        }
        value => value.text(),
    };
    let tool =
        TOOL.iter().find_map(|key| value.get(key)).and_then(LenientValue::text).map(|t| t.trim().to_owned());
    let Some(message) = message.map(str::trim).filter(|s| !s.is_empty()) else {
        let issue = PlanIssue::at(
            number,
            Fault::NoInstruction,
            "has neither \"step\" nor \"query\" with words in it",
        );
        return (PlanStep { number, tool, ..PlanStep::default() }, Some(issue));
    };
    if let Some(tool) = tool.filter(|t| !t.is_empty()) {
        let step = PlanStep {
            number,
            tool: Some(tool),
            prompt: message.to_owned(),
            notation: StepNotation::Fields,
            ..PlanStep::default()
        };
        return (step, None);
    }
    match call::parse_call(message) {
        Some(call) => {
            let issue = (!call.well_formed).then(|| {
                let message =
                    format!("the prompt's quotes or brackets do not match: {}", clip(message, EXCERPT_BYTES));
                PlanIssue::at(number, Fault::Quotes, message)
            });
            let step = PlanStep {
                number,
                tool: Some(call.tool),
                inputs: call.inputs,
                prompt: call.prompt,
                depends_on: Vec::new(),
                notation: StepNotation::Call,
            };
            (step, issue)
        }
        None => (PlanStep { number, prompt: message.to_owned(), ..PlanStep::default() }, None),
    }
}

/// The numbers in a step's `depends_on`, which may be names of steps.
fn parse_dependencies(
    number: usize,
    given: Option<&LenientValue>,
    names: &[(String, usize)],
) -> (Vec<usize>, Option<PlanIssue>) {
    let fault = |message: String| Some(PlanIssue::at(number, Fault::DependsOn, message));
    let Some(given) = given else { return (Vec::new(), fault("has no depends_on".to_owned())) };
    let single = std::slice::from_ref(given);
    let (items, mut odd) = match given {
        LenientValue::List(items) => (items.as_slice(), false),
        LenientValue::Null => return (Vec::new(), fault("depends_on is null, not a list".to_owned())),
        _ => (single, true),
    };
    let mut numbers = Vec::new();
    for item in items.iter().take(MAX_STEPS) {
        let text = item.text().unwrap_or("").trim();
        let named = names.iter().find(|(name, _)| name == text).map(|(_, n)| *n);
        let Some(found) = named.or_else(|| number_in(text)) else {
            odd = true;
            continue;
        };
        // A quoted number is a fault, unless the steps have names: then a list of names is valid.
        let by_name = names.iter().any(|(name, _)| name == text && name.parse::<usize>().is_err());
        odd |= matches!(item, LenientValue::Text(_)) && !by_name;
        numbers.push(found);
    }
    let issue = if odd { fault("depends_on is not a list of step numbers".to_owned()) } else { None };
    (numbers, issue)
}

#[cfg(test)]
pub(super) mod tests;
