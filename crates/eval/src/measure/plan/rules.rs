//! Measures a plan by rules, without a judge (004, tables 30 to 32).
//!
//! In: a [`Plan`], its tools, and an optional reference plan. Out: every
//! [`PlanIssue`], and for each metric that rules can answer (steps - violations) / steps, at least
//! 0. A step has at most one violation each of its structure, of its placeholders and of
//! `(query)`; all repairs of the text together are one violation.

use std::collections::BTreeSet;
use std::ops::Range;

use super::intent::{Intent, Intents, Likeness};
use super::part::PartValues;
use super::placeholder::{self, Placeholder};
use super::schema::{Fault, Plan, PlanIssue, PlanStep, StepNotation};
use super::tools::{Placement, ToolSpec, Toolbox};
use super::words::PromptWords;
use super::{prose, shape};
use crate::measure::defects::clip;
use crate::measure::language::RequestWords;
use crate::measure::metric_names::PlanPart;

/// Minimum length of a run of common words that counts as a repeated detail.
const MIN_REPEATED_WORDS: usize = 3;
/// Minimum number of content words in the run.
const MIN_REPEATED_CONTENT: usize = 2;
/// Maximum number of pairs of steps of one plan whose words are compared.
const MAX_COMPARED: usize = 500;
/// Maximum number of bytes of a prompt that an issue quotes.
const EXCERPT_BYTES: usize = 80;

regex!(
    MENTIONS_QUERY,
    r"(?i)\b(the|this|original|initial|user'?s?|customer'?s?|following)\s+((original|initial|user'?s?|following)\s+)?(query|question)\b"
);

/// The issues of `plan` that rules find.
pub(crate) fn issues(plan: &Plan, tools: &Toolbox, reference: Option<&Plan>) -> Vec<PlanIssue> {
    let mut out = plan.issues.clone();
    if plan.is_unreadable() {
        return out;
    }
    for step in &plan.steps {
        out.extend(placeholder_issues(plan, step, tools));
        out.extend(missing_query(step));
        out.extend(excessive_complexity(step, tools));
        out.extend(unknown_tool(step, tools));
    }
    if plan.is_structured {
        out.extend(shape::edge_issues(plan));
        out.extend(ignored_steps(plan));
        out.extend(repeated_details(plan, tools));
    } else {
        out.extend(prose::issues(plan));
    }
    if let Some(reference) = reference {
        out.extend(missing_second_tools(plan, reference));
    }
    out
}

/// The values of the metrics that rules can answer; for prose only those that [`prose`] lists. Every value of a
/// rejected plan (unreadable or circular) is 0.
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
        let is_answered = match part {
            PlanPart::Format => plan.is_structured,
            PlanPart::Dependencies => plan.is_structured || prose::has_references(plan),
            // A single step in prose cannot repeat another.
            PlanPart::Redundancy => plan.is_structured || plan.steps.len() > 1,
            PlanPart::StepExecutability => plan.steps.iter().all(|s| has_limits(s, tools)),
            PlanPart::ToolUsageCompleteness => {
                reference.is_some_and(|r| !r.is_unreadable()) && judged_steps(plan, part) > 0
            }
            // Rules cannot decide whether a tool can do what it is asked, or whether the plan
            // answers the query.
            PlanPart::ToolPromptAlignment | PlanPart::QueryAdherence => false,
        };
        values[part as usize] =
            is_answered.then(|| share(judged_steps(plan, part), violations(issues, part)));
    }
    values
}

/// (steps - violations) / steps, at least 0; 0 if there are no steps.
pub(crate) fn share(steps: usize, violations: usize) -> f64 {
    if steps == 0 { 0.0 } else { steps.saturating_sub(violations) as f64 / steps as f64 }
}

/// The number of steps that `part` applies to: in prose, metrics about tools apply to steps that name a tool; otherwise
/// a metric applies to all steps.
pub(crate) fn judged_steps(plan: &Plan, part: PlanPart) -> usize {
    let is_about_tools = matches!(
        part,
        PlanPart::ToolPromptAlignment | PlanPart::StepExecutability | PlanPart::ToolUsageCompleteness
    );
    let applies = |step: &&PlanStep| plan.is_structured || !is_about_tools || step.tool.is_some();
    plan.steps.iter().filter(applies).count()
}

/// The number of issues that count against `part`; several issues of one step and kind count once.
pub(crate) fn violations(issues: &[PlanIssue], part: PlanPart) -> usize {
    let counted = issues.iter().filter(|i| PlanPart::for_fault(i.fault) == Some(part));
    let distinct: BTreeSet<(Option<usize>, u8)> = counted
        .map(|issue| {
            let kind = match issue.fault {
                Fault::MissingPlaceholder | Fault::MalformedPlaceholder | Fault::MisplacedPlaceholder => 1,
                Fault::MissingQuery => 2,
                Fault::RepeatedDetail => 3,
                _ => 0,
            };
            (issue.step, kind)
        })
        .collect();
    distinct.len()
}

/// The limits of the tool of a step.
fn tool_spec<'a>(step: &PlanStep, tools: &'a Toolbox) -> Option<&'a ToolSpec> {
    tools.get(step.tool.as_deref()?)
}

/// Dependencies without a placeholder, and placeholders that are malformed or misplaced.
fn placeholder_issues(plan: &Plan, step: &PlanStep, tools: &Toolbox) -> Vec<PlanIssue> {
    let mut out = Vec::new();
    if !plan.is_structured {
        return out;
    }
    let placement = tool_spec(step, tools).map_or(Placement::Anywhere, |s| s.placeholders);
    let are_expected = placement != Placement::Anywhere || shape::has_placeholders(plan);
    let used = shape::outputs(step);
    for number in step.depends_on.iter().filter(|n| are_expected && !used.contains(n)) {
        let message = format!("depends on step {number} and has no placeholder ({number})");
        out.push(PlanIssue::for_step(step.number, Fault::MissingPlaceholder, message));
    }
    let is_fixed = step.notation == StepNotation::Call && placement != Placement::Anywhere;
    for (text, text_placement) in [(&step.inputs, Placement::Outside), (&step.prompt, Placement::Inside)] {
        for placeholder in placeholder::all(text) {
            let (fault, message) = match placeholder {
                Placeholder::Malformed(text, _) => {
                    let message = format!("\"{text}\" is not a placeholder; expected one per step: (1)");
                    (Fault::MalformedPlaceholder, message)
                }
                Placeholder::Output(n)
                    if is_fixed && placement != text_placement && plan.position(n).is_some() =>
                {
                    let tool = step.tool.as_deref().unwrap_or("");
                    let expected = if placement == Placement::Outside { "before" } else { "in" };
                    (Fault::MisplacedPlaceholder, format!("{tool} takes ({n}) {expected} the prompt"))
                }
                _ => continue,
            };
            out.push(PlanIssue::for_step(step.number, fault, message));
        }
    }
    let inputs = step.inputs.trim_matches(['[', ']', ' ']);
    if !inputs.is_empty() && placeholder::all(inputs).is_empty() {
        let message =
            format!("\"{}\" before the prompt is not a placeholder", clip(&step.inputs, EXCERPT_BYTES));
        out.push(PlanIssue::for_step(step.number, Fault::MalformedPlaceholder, message));
    }
    out
}

/// The issue of a step that refers to the query without containing it: the tool would not receive the query.
fn missing_query(step: &PlanStep) -> Option<PlanIssue> {
    let reference = MENTIONS_QUERY.find(&step.prompt)?;
    let has_query = |text: &str| placeholder::all(text).contains(&Placeholder::Query);
    if step.notation == StepNotation::Prose || has_query(&step.prompt) || has_query(&step.inputs) {
        return None;
    }
    let message = format!("mentions \"{}\" without (query)", reference.as_str());
    Some(PlanIssue::for_step(step.number, Fault::MissingQuery, message))
}

/// Whether the tool of the step has limits that rules can check.
fn has_limits(step: &PlanStep, tools: &Toolbox) -> bool {
    tool_spec(step, tools)
        .is_some_and(|s| s.any_complexity || s.max_phrases.is_some() || s.max_questions.is_some())
}

/// The issue of a prompt with more phrases or questions than the tool's spec allows.
fn excessive_complexity(step: &PlanStep, tools: &Toolbox) -> Option<PlanIssue> {
    let spec = tool_spec(step, tools).filter(|s| !s.any_complexity)?;
    let prompt = step.prompt.to_lowercase();
    let phrases: Vec<&str> =
        spec.phrases.iter().map(String::as_str).filter(|p| prompt.contains(&p.to_lowercase())).collect();
    let questions = prompt.matches('?').count();
    let message = if let Some(max) = spec.max_phrases.filter(|max| phrases.len() > *max) {
        format!("asks for {} things at once, more than {max}: {}", phrases.len(), phrases.join(", "))
    } else {
        let max = spec.max_questions.filter(|max| questions > *max)?;
        format!("asks {questions} questions at once, more than {max}")
    };
    Some(PlanIssue::for_step(step.number, Fault::TooComplex, message))
}

/// The issue of a step whose tool does not exist.
fn unknown_tool(step: &PlanStep, tools: &Toolbox) -> Option<PlanIssue> {
    let tool = step.tool.as_deref().filter(|tool| tools.lacks(tool))?;
    Some(PlanIssue::for_step(step.number, Fault::WrongTool, format!("there is no tool \"{tool}\"")))
}

/// The issues of steps on which the last step, whose output is the answer of the plan, does not depend.
fn ignored_steps(plan: &Plan) -> Vec<PlanIssue> {
    let Some((_, earlier)) = plan.steps.split_last() else { return Vec::new() };
    let used = shape::transitive_dependencies(plan, earlier.len());
    let message = "does not contribute to the last step";
    let unused = earlier.iter().enumerate().filter(|(position, _)| !used.contains(position));
    unused.map(|(_, step)| PlanIssue::for_step(step.number, Fault::Ignored, message)).collect()
}

/// The issues of details that a step repeats from one of its dependencies, if this costs its tool: a run of words, or a
/// number with its unit. The object that a step asks for ("Fetch call_ids of ...") is not a detail.
fn repeated_details(plan: &Plan, tools: &Toolbox) -> Vec<PlanIssue> {
    let mut out = Vec::new();
    let mut compared = 0;
    let prompts: Vec<&str> = plan.steps.iter().map(|step| step.prompt.as_str()).collect();
    let lists = RequestWords::for_text(&prompts.join("\n"));
    for (position, step) in plan.steps.iter().enumerate() {
        if !tool_spec(step, tools).is_some_and(|s| s.repeats_cost) {
            continue;
        }
        let (step_words, intent) =
            (PromptWords::from_prompt(&step.prompt, lists), Intent::from_prompt(&step.prompt, lists));
        for earlier in shape::earlier(plan, position, step).filter_map(|d| plan.steps.get(d)) {
            compared += 1;
            if compared > MAX_COMPARED {
                return out;
            }
            let run = step_words.shared_run(&PromptWords::from_prompt(&earlier.prompt, lists));
            let words = step_words.all().get(run.clone()).unwrap_or_default();
            let number = || {
                intent
                    .common_numbers(&Intent::from_prompt(&earlier.prompt, lists))
                    .next()
                    .map(|(n, _)| n.to_owned())
            };
            let is_long = words.len() >= MIN_REPEATED_WORDS
                && restricting_words(&step_words, run, lists) >= MIN_REPEATED_CONTENT;
            let Some(detail) = is_long.then(|| words.join(" ")).or_else(number) else { continue };
            let message = format!("repeats \"{detail}\" of step {}", earlier.number);
            out.push(PlanIssue::for_step(step.number, Fault::RepeatedDetail, message));
        }
    }
    out
}

/// The number of words in `run` that restrict the request: content words after the object that is asked for, without
/// identifiers, which only name the inputs.
fn restricting_words(words: &PromptWords, run: Range<usize>, lists: Option<&RequestWords>) -> usize {
    let all = words.all();
    let has_content = |word: &String| lists.is_none_or(|lists| lists.has_content(word));
    let object_start = all.iter().position(has_content).unwrap_or(all.len());
    let object_end = (object_start..all.len())
        .find(|&i| all.get(i).is_some_and(|word| !has_content(word)))
        .unwrap_or(object_start);
    let is_identifier = |word: &String| word.contains('_') || matches!(word.as_str(), "id" | "ids");
    let restricts = |i: &usize| all.get(*i).is_some_and(|word| has_content(word) && !is_identifier(word));
    run.filter(|i| *i >= object_end).filter(restricts).count()
}

/// The issues of steps whose prompt the reference has for two tools, and the plan for only one of them. The two steps
/// of the reference ask for the same with the same inputs, so that neither uses the output of the other.
fn missing_second_tools(plan: &Plan, reference: &Plan) -> Vec<PlanIssue> {
    let intents = Intents::new(plan, reference);
    // The step of the plan that corresponds to a step of the reference.
    let counterpart = |reference_position: usize| {
        let mut steps = plan.steps.iter().enumerate();
        let corresponds = |(position, step): &(usize, &PlanStep)| {
            step.has_tool_of(&reference.steps[reference_position])
                && intents.likeness(*position, reference_position) == Likeness::Same
        };
        steps.find(corresponds).map(|(_, step)| step.number)
    };
    let inputs = |position: usize| shape::transitive_dependencies(reference, position);
    let mut out = Vec::new();
    for (i, one) in reference.steps.iter().enumerate() {
        for (j, other) in reference.steps.iter().enumerate().skip(i + 1) {
            let (Some(tool), Some(other_tool)) = (&one.tool, &other.tool) else { continue };
            let has_same_prompt =
                !one.has_tool_of(other) && intents.reference_likeness(i, j) == Likeness::Same;
            if !has_same_prompt || inputs(i) != inputs(j) {
                continue;
            }
            let (number, missing) = match (counterpart(i), counterpart(j)) {
                (Some(number), None) => (number, other_tool),
                (None, Some(number)) => (number, tool),
                _ => continue,
            };
            let message = format!("the reference has the same prompt for {missing} as well");
            out.push(PlanIssue::for_step(number, Fault::SecondToolMissing, message));
        }
    }
    out
}

#[cfg(test)]
mod tests;
