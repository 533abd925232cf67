//! Measures a plan by rules, without a judge (004, tables 30 to 32; decisions, "Plans").
//!
//! In: a [`Plan`], its tools, and an optional reference plan. Out: every
//! [`PlanIssue`], and for each metric that rules can answer (steps - violations) / steps, at least
//! 0. A step counts once for its structure, once for its placeholders and once for `(query)`; a
//! plan that had to be repaired counts once as a whole.

use super::part::{PartValues, PlanPart};
use super::placeholder::{self, Placeholder};
use super::schema::{Fault, Plan, PlanIssue, PlanStep, StepNotation};
use super::tools::{Placement, ToolSpec, Toolbox};
use super::words::{SIMILAR, Words};
use super::{prose, shape};
use crate::measure::defects::clip;

/// Shared words in a row from which a detail counts as repeated.
const REPEATED_WORDS: usize = 3;
/// Least number of these that carry content.
const REPEATED_CONTENT: usize = 2;
/// Most pairs of steps of one plan whose words are compared.
const MAX_COMPARED: usize = 500;
/// Bytes of a prompt that an issue quotes.
const EXCERPT_BYTES: usize = 80;

regex!(
    SPEAKS_OF_QUERY,
    r"(?i)\b(the|this|original|initial|user'?s?|customer'?s?|following)\s+((original|initial|user'?s?|following)\s+)?(query|question)\b"
);

/// Everything that rules find wrong with `plan`.
pub(crate) fn issues(plan: &Plan, tools: &Toolbox, reference: Option<&Plan>) -> Vec<PlanIssue> {
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
        out.extend(shape::edge_issues(plan));
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

/// The metrics that rules can answer. For prose only those of [`prose`]; a rejected plan
/// (unreadable or circular) has 0 everywhere.
pub(crate) fn values(
    plan: &Plan,
    tools: &Toolbox,
    issues: &[PlanIssue],
    reference: Option<&Plan>,
) -> PartValues {
    if shape::is_rejected(plan) {
        return [Some(0.0); 7];
    }
    let mut values: PartValues = [None; 7];
    for part in PlanPart::ALL {
        let answered = match part {
            PlanPart::Format => plan.structured,
            PlanPart::Dependencies => plan.structured || prose::has_references(plan),
            // A single step in prose cannot repeat another.
            PlanPart::Redundancy => plan.structured || plan.steps.len() > 1,
            PlanPart::StepExecutability => plan.steps.iter().all(|s| has_limits(s, tools)),
            PlanPart::ToolUsageCompleteness => {
                reference.is_some_and(|r| !r.is_unreadable()) && judged_steps(plan, part) > 0
            }
            // Rules cannot decide whether a tool can do what it is asked, or whether the plan
            // answers the query.
            PlanPart::ToolPromptAlignment | PlanPart::QueryAdherence => false,
        };
        if let Some(slot) = values.get_mut(part.index()).filter(|_| answered) {
            *slot = Some(share(judged_steps(plan, part), violations(issues, part)));
        }
    }
    values
}

/// (steps - violations) / steps, at least 0; 0 where there are no steps.
pub(crate) fn share(steps: usize, violations: usize) -> f64 {
    if steps == 0 { 0.0 } else { steps.saturating_sub(violations) as f64 / steps as f64 }
}

/// The steps that `part` is about: all, but for prose and metrics about tools only those that name
/// a tool.
pub(crate) fn judged_steps(plan: &Plan, part: PlanPart) -> usize {
    let of_tools = matches!(
        part,
        PlanPart::ToolPromptAlignment | PlanPart::StepExecutability | PlanPart::ToolUsageCompleteness
    );
    let judged = |step: &&PlanStep| plan.structured || !of_tools || step.tool.is_some();
    plan.steps.iter().filter(judged).count()
}

pub(crate) fn violations(issues: &[PlanIssue], part: PlanPart) -> usize {
    let mut seen: Vec<(Option<usize>, u8)> = Vec::new();
    for issue in issues.iter().filter(|i| PlanPart::of(i.fault) == Some(part)) {
        // Faults of one group count once for a step.
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

fn spec<'a>(step: &PlanStep, tools: &'a Toolbox) -> Option<&'a ToolSpec> {
    tools.get(step.tool.as_deref()?)
}

/// Checks that each dependency has one well-formed placeholder where the tool takes it.
fn placeholders(plan: &Plan, step: &PlanStep, tools: &Toolbox) -> Vec<PlanIssue> {
    let mut out = Vec::new();
    if !plan.structured {
        return out;
    }
    let placement = spec(step, tools).map_or(Placement::Anywhere, |s| s.placeholders);
    let expected = placement != Placement::Anywhere || shape::has_placeholders(plan);
    let used = shape::outputs(step);
    for number in step.depends_on.iter().filter(|n| expected && !used.contains(n)) {
        let message = format!("depends on step {number} and has no placeholder ({number})");
        out.push(PlanIssue::at(step.number, Fault::MissingPlaceholder, message));
    }
    for (text, here) in [(&step.inputs, Placement::Outside), (&step.prompt, Placement::Inside)] {
        let wrong_place = step.notation == StepNotation::Call
            && ((placement == Placement::Outside && here == Placement::Inside)
                || (placement == Placement::Inside && here == Placement::Outside));
        for place in placeholder::all(text) {
            match place {
                Placeholder::Malformed(seen, _) => {
                    let message = format!("\"{seen}\" is no placeholder; each step has one of its own: (1)");
                    out.push(PlanIssue::at(step.number, Fault::MalformedPlaceholder, message));
                }
                Placeholder::Output(n) if wrong_place && plan.position(n).is_some() => {
                    let tool = step.tool.as_deref().unwrap_or("");
                    let wanted = if placement == Placement::Outside { "before" } else { "in" };
                    let message = format!("{tool} takes ({n}) {wanted} the prompt");
                    out.push(PlanIssue::at(step.number, Fault::MisplacedPlaceholder, message));
                }
                _ => {}
            }
        }
    }
    let bare = step.inputs.trim_matches(['[', ']', ' ']);
    if !bare.is_empty() && !placeholder::is_only(bare) && placeholder::all(bare).is_empty() {
        let message =
            format!("\"{}\" before the prompt is no placeholder", clip(&step.inputs, EXCERPT_BYTES));
        out.push(PlanIssue::at(step.number, Fault::MalformedPlaceholder, message));
    }
    out
}

/// A step that refers to the query must pass it on, or its tool never receives it.
fn query(step: &PlanStep) -> Option<PlanIssue> {
    let speaks = SPEAKS_OF_QUERY.find(&step.prompt)?;
    let passed = |text: &str| placeholder::all(text).contains(&Placeholder::Query);
    if step.notation == StepNotation::Prose || passed(&step.prompt) || passed(&step.inputs) {
        return None;
    }
    let message = format!("speaks of \"{}\" without (query)", speaks.as_str());
    Some(PlanIssue::at(step.number, Fault::MissingQuery, message))
}

/// Whether the tool of the step has limits that rules can check.
fn has_limits(step: &PlanStep, tools: &Toolbox) -> bool {
    spec(step, tools)
        .is_some_and(|s| s.any_complexity || s.max_phrases.is_some() || s.max_questions.is_some())
}

/// More phrases or questions than the tool's spec allows in one step.
fn complexity(step: &PlanStep, tools: &Toolbox) -> Option<PlanIssue> {
    let spec = spec(step, tools).filter(|s| !s.any_complexity)?;
    let prompt = step.prompt.to_lowercase();
    if let Some(max) = spec.max_phrases {
        let found: Vec<&str> =
            spec.phrases.iter().map(String::as_str).filter(|p| prompt.contains(&p.to_lowercase())).collect();
        if found.len() > max {
            let message =
                format!("asks for {} things at once, more than {max}: {}", found.len(), found.join(", "));
            return Some(PlanIssue::at(step.number, Fault::TooComplex, message));
        }
    }
    let questions = prompt.matches('?').count();
    if let Some(max) = spec.max_questions.filter(|max| questions > *max) {
        let message = format!("asks {questions} questions at once, more than {max}");
        return Some(PlanIssue::at(step.number, Fault::TooComplex, message));
    }
    None
}

/// A tool that does not exist.
fn known(step: &PlanStep, tools: &Toolbox) -> Option<PlanIssue> {
    let tool = step.tool.as_deref()?;
    tools
        .lacks(tool)
        .then(|| PlanIssue::at(step.number, Fault::WrongTool, format!("there is no tool \"{tool}\"")))
}

/// Steps that the last step does not depend on; the output of the last step is that of the plan.
fn ignored(plan: &Plan) -> Vec<PlanIssue> {
    let Some(last) = plan.steps.len().checked_sub(1).filter(|_| plan.structured) else { return Vec::new() };
    let used = shape::transitive_dependencies(plan, last);
    let unused = plan.steps.iter().enumerate().filter(|(at, _)| *at < last && !used.contains(at));
    unused
        .map(|(_, s)| PlanIssue::at(s.number, Fault::Ignored, "does not contribute to the last step"))
        .collect()
}

/// Words in a row that a step repeats from one of its dependencies, if this costs its tool.
fn repeated(plan: &Plan, tools: &Toolbox) -> Vec<PlanIssue> {
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
                let message = format!("repeats \"{words}\" of step {}", earlier.number);
                out.push(PlanIssue::at(step.number, Fault::RepeatedDetail, message));
            }
        }
    }
    out
}

/// Where the reference asks two tools the same, a plan that asks only one of them.
fn one_tool_of_two(plan: &Plan, reference: &Plan) -> Vec<PlanIssue> {
    let words = |plan: &Plan| plan.steps.iter().map(|s| Words::of(&s.prompt)).collect::<Vec<_>>();
    let (wanted, own) = (words(reference), words(plan));
    let same_tool = |a: &PlanStep, b: &PlanStep| match (&a.tool, &b.tool) {
        (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
        _ => false,
    };
    // The step of the plan that corresponds to a step of the reference.
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
            let message = format!("the reference asks {tool} the same as well");
            out.push(PlanIssue::at(there, Fault::SecondToolMissing, message));
        }
    }
    out
}

#[cfg(test)]
mod tests;
