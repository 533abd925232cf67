//! Plans of any form, read into the one schema (004, section 2; conventions, section 4).
//!
//! In: the text of a plan: the paper's object of numbered steps, a list of steps with fields, a todo
//! list, or prose with numbered or bulleted items or that says in which order; with words or a code
//! fence around it. Out: a [`Plan`], with an [`Issue`] for everything that had to be mended. A text in which no step can be
//! found makes a plan without steps.

use super::relaxed::{self, Raw};
use super::schema::{Fault, Issue, MAX_STEPS, Plan, Step, Written};
use super::{call, prose};
use crate::measure::defects::clip;
use crate::recognise;

/// Longest text that is read as a plan.
const MAX_BYTES: usize = 256 << 10;
/// Brackets at which a plan may begin that are tried.
const MAX_BEGINNINGS: usize = 16;
/// Plans inside of plans, as text inside of JSON.
const MAX_NESTED: usize = 3;
/// How much of a text is repeated in an issue.
const SAID_BYTES: usize = 80;

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

/// Reads `text` as a plan.
pub fn read(text: &str) -> Plan {
    nested(text, MAX_NESTED)
}

/// The query that stands beside a plan in its file: `{"query": ..., "plan": ...}`, or a line
/// `# Query: ...` before it.
pub fn query_beside(text: &str) -> Option<String> {
    let text = clip(text, MAX_BYTES);
    let heading =
        |line: &str| Some(line.trim().strip_prefix('#')?.trim().strip_prefix("Query:")?.trim().to_owned());
    if let Some(query) = text.lines().take(MAX_BEGINNINGS).find_map(heading) {
        return Some(query);
    }
    let whole = relaxed::read(text.get(text.find('{')?..)?)?.value;
    let has_plan = STEPS.iter().any(|key| whole.get(key).is_some());
    whole.get("query").and_then(Raw::text).filter(|_| has_plan).map(str::to_owned)
}

fn nested(text: &str, depth: usize) -> Plan {
    let text = clip(text, MAX_BYTES).trim_start_matches('\u{feff}').trim();
    let candidates = text
        .match_indices(['{', '['])
        .map(|(at, _)| at)
        .filter(|at| text.get(..*at).is_some_and(|before| !before.ends_with(['(', '{', '['])))
        .take(MAX_BEGINNINGS);
    for at in candidates {
        let Some(read) = text.get(at..).and_then(relaxed::read) else { continue };
        let Some(mut plan) = of_value(&read.value, depth) else { continue };
        // Numbers with nothing behind them.
        if !plan.structured && plan.steps.iter().all(|s| s.prompt.is_empty()) {
            continue;
        }
        // Brackets inside of prose are no plan of their own.
        if !plan.structured && at > 0 && read.bytes < text.len() / 2 {
            continue;
        }
        let mut mended = read.mended;
        if at > 0 && text.starts_with(['{', '[']) {
            mended.push("what is around the steps cannot be followed");
        }
        if !mended.is_empty() {
            let said = format!("not JSON: {}", mended.join(", "));
            plan.issues.insert(0, Issue::whole(Fault::Mended, said));
        }
        if at > 0 || text.get(at + read.bytes..).is_some_and(|rest| !rest.trim().is_empty()) {
            plan.issues.insert(0, Issue::whole(Fault::Surrounded, "words or a fence around the plan"));
        }
        return plan;
    }
    in_words(text)
}

fn in_words(text: &str) -> Plan {
    // A structured plan that cannot be followed is not rescued as a list of its lines.
    let broken = text.contains("depends_on") || text.starts_with(['{', '[']);
    let mut steps = if broken { Vec::new() } else { recognise::plan_steps(text) };
    if steps.is_empty() && !broken {
        steps = prose::in_order(text);
    }
    steps.truncate(MAX_STEPS);
    let mut plan = prose::of_steps(steps);
    if plan.steps.is_empty() {
        let said = match text {
            "" => "there is no text".to_owned(),
            text => format!("no steps can be read: \"{}\"", clip(text, SAID_BYTES)),
        };
        plan.issues.push(Issue::whole(Fault::Unreadable, said));
    }
    plan
}

/// The plan in a value, if it has any.
fn of_value(value: &Raw, depth: usize) -> Option<Plan> {
    let depth = depth.checked_sub(1)?;
    match value {
        Raw::Object(members) => {
            if let Some(inner) = STEPS.iter().find_map(|key| value.get(key)) {
                return of_value(inner, depth);
            }
            let numbered = members.iter().all(|(key, _)| number_in(key).is_some());
            let stepwise = members.iter().all(|(_, v)| is_step(v));
            if members.is_empty() || !(numbered || stepwise) {
                return None;
            }
            Some(assemble(members.iter().map(|(key, value)| (Some(key.as_str()), value))))
        }
        Raw::List(items) => {
            let says = |item: &Raw| item.text().is_some_and(|t| t.contains(char::is_alphabetic));
            let is_plan = !items.is_empty() && items.iter().all(|item| is_step(item) || says(item));
            is_plan.then(|| {
                assemble(items.iter().map(|item| {
                    let name = NUMBER.iter().find_map(|key| item.get(key)).and_then(Raw::text);
                    (name, item)
                }))
            })
        }
        Raw::Text(text) => Some(nested(text, depth)).filter(|plan| !plan.is_unreadable()),
        _ => None,
    }
}

fn is_step(value: &Raw) -> bool {
    let any = |keys: &[&str]| keys.iter().any(|key| value.get(key).is_some());
    matches!(value, Raw::Object(_)) && (any(&INSTRUCTION) || any(&DEPENDS_ON))
}

/// The number in `3`, `step 3`, `S3`, `task_3`.
fn number_in(name: &str) -> Option<usize> {
    let digits =
        name.trim().trim_start_matches(|c: char| c.is_alphabetic() || matches!(c, '_' | '-' | ' ' | '#'));
    digits.parse().ok().filter(|n| *n > 0 && *n <= 10_000)
}

/// Steps as written, with the name each goes by.
fn assemble<'a>(written: impl Iterator<Item = (Option<&'a str>, &'a Raw)>) -> Plan {
    let mut plan = Plan::default();
    let mut names: Vec<(String, usize)> = Vec::new();
    let mut wanted: Vec<Option<&Raw>> = Vec::new();
    for (name, value) in written {
        if plan.steps.len() == MAX_STEPS {
            plan.issues.push(Issue::whole(Fault::TooLong, format!("only {MAX_STEPS} steps are read")));
            break;
        }
        let place = plan.steps.len() + 1;
        let free = |n: &usize| !plan.steps.iter().any(|s: &Step| s.number == *n);
        let given = name.and_then(number_in);
        // Names that are no numbers ("fetch") are as good; the steps are then counted.
        let number = given.filter(free).unwrap_or_else(|| (place..).find(free).unwrap_or(place));
        if given.is_some_and(|given| given != place) {
            let said = format!("is numbered {}, and {place} is its place", given.unwrap_or(number));
            plan.issues.push(Issue::of(number, Fault::Numbering, said));
        }
        if let Some(name) = name {
            names.push((name.trim().to_owned(), number));
        }
        let depends = DEPENDS_ON.iter().find_map(|key| value.get(key));
        let (step, issue) = step(number, value);
        plan.structured |= depends.is_some() || step.written != Written::Prose;
        plan.steps.push(step);
        plan.issues.extend(issue);
        wanted.push(depends);
    }
    if plan.structured {
        for (at, depends) in wanted.into_iter().enumerate() {
            let Some(number) = plan.steps.get(at).map(|s| s.number) else { break };
            let (numbers, issue) = dependencies(number, depends, &names);
            if let Some(step) = plan.steps.get_mut(at) {
                step.depends_on = numbers;
            }
            plan.issues.extend(issue);
        }
        unnamed(&mut plan);
    } else {
        prose::refer(&mut plan);
    }
    plan
}

/// In a plan of calls, a step that is none.
fn unnamed(plan: &mut Plan) {
    for step in &plan.steps {
        if step.tool.is_none() && !step.prompt.is_empty() {
            let said = format!("names no tool: \"{}\"", clip(&step.prompt, SAID_BYTES));
            plan.issues.push(Issue::of(step.number, Fault::NoCall, said));
        }
    }
}

fn step(number: usize, value: &Raw) -> (Step, Option<Issue>) {
    let said = match value {
        Raw::Object(_) => INSTRUCTION.iter().find_map(|key| value.get(key)).and_then(Raw::text),
        value => value.text(),
    };
    let tool = TOOL.iter().find_map(|key| value.get(key)).and_then(Raw::text).map(|t| t.trim().to_owned());
    let Some(said) = said.map(str::trim).filter(|s| !s.is_empty()) else {
        let issue =
            Issue::of(number, Fault::NoInstruction, "has neither \"step\" nor \"query\" with words in it");
        return (Step { number, tool, ..Step::default() }, Some(issue));
    };
    if let Some(tool) = tool.filter(|t| !t.is_empty()) {
        let step = Step {
            number,
            tool: Some(tool),
            prompt: said.to_owned(),
            written: Written::Fields,
            ..Step::default()
        };
        return (step, None);
    }
    match call::parse(said) {
        Some(call) => {
            let issue = (!call.well_formed).then(|| {
                let said =
                    format!("the prompt's quotes or brackets do not match: {}", clip(said, SAID_BYTES));
                Issue::of(number, Fault::Quotes, said)
            });
            let step = Step {
                number,
                tool: Some(call.tool),
                inputs: call.inputs,
                prompt: call.prompt,
                depends_on: Vec::new(),
                written: Written::Call,
            };
            (step, issue)
        }
        None => (Step { number, prompt: said.to_owned(), ..Step::default() }, None),
    }
}

/// The numbers in a step's `depends_on`, which may be names of steps.
fn dependencies(
    number: usize,
    given: Option<&Raw>,
    names: &[(String, usize)],
) -> (Vec<usize>, Option<Issue>) {
    let fault = |said: String| Some(Issue::of(number, Fault::DependsOn, said));
    let Some(given) = given else { return (Vec::new(), fault("has no depends_on".to_owned())) };
    let single = std::slice::from_ref(given);
    let (items, mut odd) = match given {
        Raw::List(items) => (items.as_slice(), false),
        Raw::Null => return (Vec::new(), fault("depends_on is null, not a list".to_owned())),
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
        // A number in quotes is one of the many ways to write a name; a list of names is as good
        // where the steps have names.
        let by_name = names.iter().any(|(name, _)| name == text && name.parse::<usize>().is_err());
        odd |= matches!(item, Raw::Text(_)) && !by_name;
        numbers.push(found);
    }
    let issue = if odd { fault("depends_on is not a list of step numbers".to_owned()) } else { None };
    (numbers, issue)
}

#[cfg(test)]
pub(super) mod tests;
