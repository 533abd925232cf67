//! What rules can tell of a plan without a judge (004, tables 30 to 32; decisions, "Plans").
//!
//! In: a [`Plan`], what is known of its tools, and a reference plan where there is one. Out: every
//! [`Issue`], and for each metric that rules can answer (steps - violations) / steps, at least 0. A
//! step counts once for its structure, once for its placeholders and once for `(query)`; a plan
//! that had to be mended counts once as a whole.

use super::part::{Part, Values};
use super::placeholder::{self, Placeholder};
use super::prose;
use super::schema::{Fault, Issue, Plan, Step, Written};
use super::shape;
use super::tools::{Placement, ToolSpec, Toolbox};
use super::words::{SIMILAR, Words};
use crate::measure::defects::clip;

/// A detail is repeated when so many words in a row are.
const REPEATED_WORDS: usize = 3;
/// And so many of them carry content.
const REPEATED_CONTENT: usize = 2;
/// Pairs of steps of one plan whose words are compared.
const MAX_COMPARED: usize = 500;
/// How much of a prompt an issue repeats.
const SAID_BYTES: usize = 80;

regex!(
    SPEAKS_OF_QUERY,
    r"(?i)\b(the|this|original|initial|user'?s?|customer'?s?|following)\s+((original|initial|user'?s?|following)\s+)?(query|question)\b"
);

/// Everything that rules find wrong with `plan`.
pub fn issues(plan: &Plan, tools: &Toolbox, reference: Option<&Plan>) -> Vec<Issue> {
    let mut out = plan.issues.clone();
    if plan.is_unreadable() {
        return out;
    }
    for step in &plan.steps {
        out.extend(placeholders(plan, step, tools));
        out.extend(query(step));
        out.extend(complexity(step, tools));
        out.extend(known(step, tools));
    }
    if plan.structured {
        out.extend(shape::edges(plan));
        out.extend(ignored(plan));
        out.extend(repeated(plan, tools));
    } else {
        out.extend(prose::issues(plan));
    }
    if let Some(reference) = reference {
        out.extend(one_tool_of_two(plan, reference));
    }
    out
}

/// The metrics that rules can answer. Of a plan in words only what words have ([`prose`]); one that
/// is rejected (unreadable or circular) has 0 everywhere.
pub fn values(plan: &Plan, tools: &Toolbox, issues: &[Issue], reference: Option<&Plan>) -> Values {
    if shape::rejected(plan) {
        return [Some(0.0); 7];
    }
    let mut values: Values = [None; 7];
    for part in Part::ALL {
        let answered = match part {
            Part::Format => plan.structured,
            Part::Dependencies => plan.structured || prose::is_wired(plan),
            // A single step in words has nothing that it could repeat.
            Part::Redundancy => plan.structured || plan.steps.len() > 1,
            Part::StepExecutability => plan.steps.iter().all(|s| has_limits(s, tools)),
            Part::ToolUsageCompleteness => {
                reference.is_some_and(|r| !r.is_unreadable()) && judged_steps(plan, part) > 0
            }
            // Whether a tool can do what it is asked, and whether all of it answers the query, no
            // rule can tell.
            Part::ToolPromptAlignment | Part::QueryAdherence => false,
        };
        if let Some(slot) = values.get_mut(part.place()).filter(|_| answered) {
            *slot = Some(share(judged_steps(plan, part), violations(issues, part)));
        }
    }
    values
}

/// (steps - violations) / steps, at least 0; 0 where there are no steps.
pub fn share(steps: usize, violations: usize) -> f64 {
    if steps == 0 { 0.0 } else { steps.saturating_sub(violations) as f64 / steps as f64 }
}

/// The steps that `part` is about: all, but of a plan in words, where it is about tools, those that
/// name one.
pub fn judged_steps(plan: &Plan, part: Part) -> usize {
    let of_tools =
        matches!(part, Part::ToolPromptAlignment | Part::StepExecutability | Part::ToolUsageCompleteness);
    let judged = |step: &&Step| plan.structured || !of_tools || step.tool.is_some();
    plan.steps.iter().filter(judged).count()
}

/// Violations that count against `part`.
pub fn violations(issues: &[Issue], part: Part) -> usize {
    let mut seen: Vec<(Option<usize>, u8)> = Vec::new();
    for issue in issues.iter().filter(|i| Part::of(i.fault) == Some(part)) {
        // What is one fault of a step however often it shows.
        let group = match issue.fault {
            Fault::MissingPlaceholder | Fault::MalformedPlaceholder | Fault::MisplacedPlaceholder => 1,
            Fault::MissingQuery => 2,
            Fault::RepeatedDetail => 3,
            _ => 0,
        };
        if !seen.contains(&(issue.step, group)) {
            seen.push((issue.step, group));
        }
    }
    seen.len()
}

fn spec<'a>(step: &Step, tools: &'a Toolbox) -> Option<&'a ToolSpec> {
    tools.get(step.tool.as_deref()?)
}

/// One placeholder for each dependency, well-formed, where the tool takes it.
fn placeholders(plan: &Plan, step: &Step, tools: &Toolbox) -> Vec<Issue> {
    let mut out = Vec::new();
    if !plan.structured {
        return out;
    }
    let placement = spec(step, tools).map_or(Placement::Anywhere, |s| s.placeholders);
    let expected = placement != Placement::Anywhere || shape::has_placeholders(plan);
    let used = shape::outputs(step);
    for number in step.depends_on.iter().filter(|n| expected && !used.contains(n)) {
        let said = format!("depends on step {number} and has no placeholder ({number})");
        out.push(Issue::of(step.number, Fault::MissingPlaceholder, said));
    }
    for (text, here) in [(&step.inputs, Placement::Outside), (&step.prompt, Placement::Inside)] {
        let wrong_place = step.written == Written::Call
            && ((placement == Placement::Outside && here == Placement::Inside)
                || (placement == Placement::Inside && here == Placement::Outside));
        for place in placeholder::all(text) {
            match place {
                Placeholder::Malformed(seen, _) => {
                    let said = format!("\"{seen}\" is no placeholder; each step has one of its own: (1)");
                    out.push(Issue::of(step.number, Fault::MalformedPlaceholder, said));
                }
                Placeholder::Output(n) if wrong_place && plan.position(n).is_some() => {
                    let tool = step.tool.as_deref().unwrap_or("");
                    let wanted = if placement == Placement::Outside { "before" } else { "in" };
                    let said = format!("{tool} takes ({n}) {wanted} the prompt");
                    out.push(Issue::of(step.number, Fault::MisplacedPlaceholder, said));
                }
                _ => {}
            }
        }
    }
    let bare = step.inputs.trim_matches(['[', ']', ' ']);
    if !bare.is_empty() && !placeholder::is_only(bare) && placeholder::all(bare).is_empty() {
        let said = format!("\"{}\" before the prompt is no placeholder", clip(&step.inputs, SAID_BYTES));
        out.push(Issue::of(step.number, Fault::MalformedPlaceholder, said));
    }
    out
}

/// A step that speaks of the query must pass it on, or its tool never sees it.
fn query(step: &Step) -> Option<Issue> {
    let speaks = SPEAKS_OF_QUERY.find(&step.prompt)?;
    let passed = |text: &str| placeholder::all(text).contains(&Placeholder::Query);
    if step.written == Written::Prose || passed(&step.prompt) || passed(&step.inputs) {
        return None;
    }
    let said = format!("speaks of \"{}\" without (query)", speaks.as_str());
    Some(Issue::of(step.number, Fault::MissingQuery, said))
}

/// Whether a rule can tell if the step is too much for its tool.
fn has_limits(step: &Step, tools: &Toolbox) -> bool {
    spec(step, tools)
        .is_some_and(|s| s.any_complexity || s.max_phrases.is_some() || s.max_questions.is_some())
}

/// More phrases or questions than the tool's spec allows in one step.
fn complexity(step: &Step, tools: &Toolbox) -> Option<Issue> {
    let spec = spec(step, tools).filter(|s| !s.any_complexity)?;
    let prompt = step.prompt.to_lowercase();
    if let Some(max) = spec.max_phrases {
        let found: Vec<&str> =
            spec.phrases.iter().map(String::as_str).filter(|p| prompt.contains(&p.to_lowercase())).collect();
        if found.len() > max {
            let said =
                format!("asks for {} things at once, more than {max}: {}", found.len(), found.join(", "));
            return Some(Issue::of(step.number, Fault::TooComplex, said));
        }
    }
    let questions = prompt.matches('?').count();
    if let Some(max) = spec.max_questions.filter(|max| questions > *max) {
        let said = format!("asks {questions} questions at once, more than {max}");
        return Some(Issue::of(step.number, Fault::TooComplex, said));
    }
    None
}

/// A tool that there is not.
fn known(step: &Step, tools: &Toolbox) -> Option<Issue> {
    let tool = step.tool.as_deref()?;
    tools
        .lacks(tool)
        .then(|| Issue::of(step.number, Fault::WrongTool, format!("there is no tool \"{tool}\"")))
}

/// Steps that the last one does not rest on: the last step's output is the plan's.
fn ignored(plan: &Plan) -> Vec<Issue> {
    let Some(last) = plan.steps.len().checked_sub(1).filter(|_| plan.structured) else { return Vec::new() };
    let used = shape::rests_on(plan, last);
    let unused = plan.steps.iter().enumerate().filter(|(at, _)| *at < last && !used.contains(at));
    unused.map(|(_, s)| Issue::of(s.number, Fault::Ignored, "does not contribute to the last step")).collect()
}

/// Words in a row that a step repeats from one that it depends on, where its tool pays for them.
fn repeated(plan: &Plan, tools: &Toolbox) -> Vec<Issue> {
    let mut out = Vec::new();
    let mut compared = 0;
    for (at, step) in plan.steps.iter().enumerate() {
        if !spec(step, tools).is_some_and(|s| s.repeats_cost) {
            continue;
        }
        let own = Words::of(&step.prompt);
        for earlier in shape::earlier(plan, at, step).filter_map(|d| plan.steps.get(d)) {
            compared += 1;
            if compared > MAX_COMPARED {
                return out;
            }
            let run = own.shared_run(&Words::of(&earlier.prompt));
            let long = |(words, content): &(String, usize)| {
                words.split(' ').count() >= REPEATED_WORDS && *content >= REPEATED_CONTENT
            };
            if let Some((words, _)) = run.filter(long) {
                let said = format!("repeats \"{words}\" of step {}", earlier.number);
                out.push(Issue::of(step.number, Fault::RepeatedDetail, said));
            }
        }
    }
    out
}

/// Where the reference asks two tools the same, a plan that asks only one of them.
fn one_tool_of_two(plan: &Plan, reference: &Plan) -> Vec<Issue> {
    let words = |plan: &Plan| plan.steps.iter().map(|s| Words::of(&s.prompt)).collect::<Vec<_>>();
    let (wanted, own) = (words(reference), words(plan));
    let same_tool = |a: &Step, b: &Step| match (&a.tool, &b.tool) {
        (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
        _ => false,
    };
    // The step of the plan that does what a step of the reference does.
    let does = |at: usize| {
        let target = (reference.steps.get(at)?, wanted.get(at)?);
        plan.steps
            .iter()
            .zip(&own)
            .find(|(step, words)| same_tool(step, target.0) && words.similarity(target.1) >= SIMILAR)
            .map(|(step, _)| step.number)
    };
    let mut out = Vec::new();
    for (i, one) in reference.steps.iter().enumerate() {
        for (j, other) in reference.steps.iter().enumerate().skip(i + 1) {
            let twins = one.tool.is_some()
                && other.tool.is_some()
                && !same_tool(one, other)
                && wanted.get(i).zip(wanted.get(j)).is_some_and(|(a, b)| a.similarity(b) >= SIMILAR);
            if !twins {
                continue;
            }
            let (there, missing) = match (does(i), does(j)) {
                (Some(there), None) => (there, other),
                (None, Some(there)) => (there, one),
                _ => continue,
            };
            let tool = missing.tool.as_deref().unwrap_or_default();
            let said = format!("the reference asks {tool} the same as well");
            out.push(Issue::of(there, Fault::OneToolOfTwo, said));
        }
    }
    out
}

#[cfg(test)]
mod tests;
