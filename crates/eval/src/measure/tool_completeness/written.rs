//! What a model wrote to be carried out, and nobody could: a call that does not even parse, or
//! code that does not run. There is no call to look at then; the traces are in the step around it.

use crate::measure::anchors::Defect;
use crate::measure::error_detection::{of_call, own_signs};
use crate::measure::excerpt::head;
use crate::measure::turns::writes_code;
use crate::measure::{Category, Finding, View};
use crate::recognise::{Call, Reading, ToolRequest};
use verdict_otlp::trace::{Idx, Kind};

/// Defects of an output that is on its face an action, found without a call.
pub fn defects(view: &View<'_>, reading: &Reading) -> Option<Finding> {
    if !reading.errors.is_empty() || reading.requests().next().is_some() {
        return None;
    }
    unparsed(view, reading).or_else(|| broken_code(view, reading))
}

/// The model stopped in order to call a tool, the framework found no call it could parse, and the
/// run ended there.
fn unparsed(view: &View<'_>, reading: &Reading) -> Option<Finding> {
    let stopped =
        |f: &str| ["tool_calls", "tool_call", "tool_use", "function_call", "tool-calls"].contains(&f);
    if view.scene.incomplete
        || !reading.finish.iter().any(|f| stopped(f))
        || !reading.output_text().trim().is_empty()
    {
        return None;
    }
    let agent = view.scene.agents.get(view.scene.owner.get(view.at).copied().flatten()?)?;
    let start = view.scene.tree.spans.get(view.at)?.start;
    // An instrumentation that leaves calls out would show them carried out next.
    let went_on = agent.calls.iter().filter_map(|&i| view.scene.calls.get(i)).any(|call| call.start > start);
    if agent.llms.last() != Some(&view.at) || went_on {
        return None;
    }
    // The agent's own record of the conversation may still hold what was written.
    let seen = view.scene.readings.get(agent.at).and_then(|r| r.requests().filter(|r| !is_json(r)).last());
    let rationale = "a call was expected, since the model stopped to call a tool; it wrote none that could be \
                     parsed, and the run ended there";
    let quote = seen.and_then(|r| r.arguments.as_deref()).or(reading.finish.first().map(|f| &**f));
    Some(Defect::MalformedArguments.found(rationale, quote.unwrap_or_default()))
}

fn is_json(request: &ToolRequest) -> bool {
    request.arguments.as_deref().is_none_or(|a| serde_json::from_str::<serde::de::IgnoredAny>(a).is_ok())
}

/// The step around the model call failed on the code that the model wrote.
fn broken_code(view: &View<'_>, _: &Reading) -> Option<Finding> {
    let step = step_of_code(view, view.at)?;
    let (error, cause) = own_signs(view.scene.readings.get(step)?)?;
    category_of_code(cause).filter(|c| !c.is_environment() || cause == Defect::EnvironmentBroken)?;
    let mut finding = Defect::MalformedArguments
        .found("code that runs was expected; what the model wrote could not be run", &error.quote);
    finding.category = category_of_code(cause);
    let id = view.scene.tree.spans.get(step)?.id;
    Some(finding.citing(id))
}

/// The step that failed on the code which the model call `at` wrote.
pub fn step_of_code(view: &View<'_>, at: Idx) -> Option<Idx> {
    let step = view.scene.tree.parent(at)?;
    let around = view.scene.readings.get(step).filter(|r| matches!(r.kind, Kind::Chain | Kind::Unknown))?;
    if around.errors.is_empty() || last_llm(view, step) != Some(at) {
        return None;
    }
    let text = view.scene.readings.get(at)?.output_text();
    writes_code(&text).then_some(step)
}

/// The model call whose code the step `view.at` failed on.
pub fn author_of_step(view: &View<'_>) -> Option<Idx> {
    last_llm(view, view.at).filter(|&llm| step_of_code(view, llm) == Some(view.at))
}

/// What it is when code that a model wrote fails for this cause: code that does not fit the world
/// it runs in (a type, a name, a path that is not there) is malformed like code that does not
/// parse; only what the environment did is told apart.
pub fn category_of_code(cause: Defect) -> Option<Category> {
    match cause.category() {
        Some(category) if category.is_environment() => Some(category),
        _ => Some(Category::FormattingErrors),
    }
}

/// A query that the model wrote and that found nothing: the words of the query are the model's.
pub fn vain_query(view: &View<'_>, call: &Call) -> Option<Finding> {
    let error = of_call(view.scene, view.memo, call).filter(|e| e.cause == Defect::EmptyResult)?;
    let query = call.arguments.as_deref()?;
    let rationale = format!(
        "a query that finds something was expected; {} found nothing with these words (\"{}\")",
        call.name.trim(),
        head(&error.quote, 80)
    );
    Some(Defect::VainQuery.found(rationale, query))
}

fn last_llm(view: &View<'_>, step: Idx) -> Option<Idx> {
    let is_llm = |i: &Idx| view.scene.readings.get(*i).is_some_and(|r| r.kind == Kind::Llm && !r.wrapper);
    view.scene.tree.children(step).iter().copied().rev().find(is_llm)
}
