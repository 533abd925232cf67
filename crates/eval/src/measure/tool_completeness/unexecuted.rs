//! Outputs that could not be executed: a call that cannot be parsed, or code that fails. No call is recorded for them;
//! the error is on the step around the model call.
//!
//! Principle: a call or code that a model writes can be executed. The rule does not judge the effect that the code
//! would have had.

use std::cell::RefCell;

use foldhash::HashMap;
use verdict_otlp::trace::{Idx, Kind};

use crate::measure::calls::error_signs::own_signs;
use crate::measure::conversation::writes_code;
use crate::measure::defects::Defect;
use crate::measure::{Category, Context, Finding};
use crate::recognise::{FinishReason, SpanView, ToolRequest};

/// The finding about the output of the model call that could not be executed.
pub(crate) fn defects(context: &Context<'_>, view: &SpanView) -> Option<Finding> {
    if !view.errors.is_empty() || view.requests().next().is_some() || view.output_content.is_partial() {
        return None;
    }
    unparsed_call(context, view).or_else(|| broken_code(context))
}

/// The finding if the model stopped to call a tool, the framework could not parse a call, and the run ended.
fn unparsed_call(context: &Context<'_>, view: &SpanView) -> Option<Finding> {
    if context.trace.incomplete
        || view.finished_by(FinishReason::ToolCalls).is_none()
        || !view.output_text().trim().is_empty()
    {
        return None;
    }
    let agent = context.trace.agents.get(context.trace.owner.get(context.at).copied().flatten()?)?;
    if agent.llms.last() != Some(&context.at) {
        return None;
    }
    let start = context.trace.tree.spans.get(context.at)?.start;
    // An instrumentation that does not record requests may still record later calls.
    let has_continued =
        agent.calls.iter().filter_map(|&i| context.trace.calls.get(i)).any(|call| call.start > start);
    if has_continued {
        return None;
    }
    // The agent's span may contain the request.
    let request = context
        .trace
        .views
        .get(agent.at)
        .and_then(|r| r.requests().filter(|r| !has_json_arguments(r)).last());
    let rationale = "a call was expected, since the model stopped to call a tool; it wrote none that could be \
                     parsed, and the run ended there";
    let quote = request.and_then(|r| r.arguments.as_deref()).or(view.finish.first().map(|f| &**f));
    Some(Defect::MalformedArguments.finding(rationale, quote.unwrap_or_default()))
}

/// Whether the arguments of a request are valid JSON, or absent.
fn has_json_arguments(request: &ToolRequest) -> bool {
    request.arguments.as_deref().is_none_or(|a| serde_json::from_str::<serde::de::IgnoredAny>(a).is_ok())
}

/// The finding if the step around the model call failed on the code that the model wrote.
fn broken_code(context: &Context<'_>) -> Option<Finding> {
    let step = step_of_code(context, context.at)?;
    let (error, cause) = own_signs(context.trace.views.get(step)?, None)?;
    if cause == Defect::EmptyResult {
        let finding = Defect::EmptyResult
            .finding("a result of the code's search was expected; it found nothing", &error.quote);
        return Some(finding.noted().citing_at(context.trace, step));
    }
    let category = category_of_code(cause)?;
    if category.is_environment() && cause != Defect::EnvironmentBroken {
        return None;
    }
    let rationale = "code that runs was expected; what the model wrote could not be run";
    let finding = Defect::InvalidCode.finding(rationale, &error.quote).citing_at(context.trace, step);
    Some(finding.under(category))
}

/// The step around a model call that failed on the code which the model wrote; `None` if there is none.
pub(crate) fn step_of_code(context: &Context<'_>, span_index: Idx) -> Option<Idx> {
    let step = context.trace.tree.parent(span_index)?;
    let step_view =
        context.trace.views.get(step).filter(|view| matches!(view.kind, Kind::Chain | Kind::Unknown))?;
    if step_view.errors.is_empty() || last_llm(context, step) != Some(span_index) {
        return None;
    }
    let text = context.trace.views.get(span_index)?.output_text();
    writes_code(&text).then_some(step)
}

/// The model call whose code caused the failure of the step of the context.
pub(crate) fn author_of_step(context: &Context<'_>) -> Option<Idx> {
    last_llm(context, context.at).filter(|&llm| step_of_code(context, llm) == Some(context.at))
}

/// Whether the step of the context only ended because a search in the code of its model found nothing.
pub(crate) fn found_nothing(context: &Context<'_>, cause: Defect) -> bool {
    cause == Defect::EmptyResult && author_of_step(context).is_some()
}

/// The category of failing code by the cause of its error. An error without a known cause has the category of invalid
/// code, since TRAIL's "Formatting Errors" include the execution of code.
pub(crate) fn category_of_code(cause: Defect) -> Option<Category> {
    cause.category().or(Defect::InvalidCode.category())
}

/// By span, its last child that is a model call.
#[derive(Default)]
struct LastLlm(RefCell<HashMap<Idx, Option<Idx>>>);

/// The last child of a step that is a model call, computed once.
fn last_llm(context: &Context<'_>, step: Idx) -> Option<Idx> {
    let is_llm = |i: &Idx| context.trace.views.get(*i).is_some_and(|r| r.kind == Kind::Llm && !r.wrapper);
    let last = || context.trace.tree.children(step).iter().copied().rev().find(is_llm);
    *context.memo.shared::<LastLlm>().0.borrow_mut().entry(step).or_insert_with(last)
}
