//! The error of the previous step that a model call was shown.
//!
//! In: an LLM span and the model call before it. Out: a finding that is only noted and cites the call that
//! caused the failure. The error of code without a span of its own, or of a refused call, is nowhere else
//! in the conversation. Outages and empty results are ignored, as the model did not cause them.

use verdict_otlp::trace::Idx;

use super::call_index::CallIndex;
use super::signs::{of_call, own_signs};
use crate::measure::conversation::{Turns, writes_code};
use crate::measure::defects::Defect;
use crate::measure::tool_completeness::unexecuted;
use crate::measure::{Category, Context, Finding};

/// The error of the previous step, as a finding on this model call.
pub(super) fn find(context: &Context<'_>) -> Option<Finding> {
    let before = Turns::of(context.trace, context.memo).before(context.at)?;
    let (what, cause, quote, place) =
        failed_call(context, before).or_else(|| failed_code(context, before))?;
    let rationale = format!(
        "a result of the step before was expected here; {what}, and this call was shown the error. What \
         failed was written by the model call before it"
    );
    let finding = Finding { category: cause, ..Defect::PrecedingError.finding(rationale, &quote) };
    // The quote is from this span or from the failed one.
    Some(finding.citing_at(context.trace, before).citing_at(context.trace, place))
}

/// A description of the failed step, its category, the text of the error, and its span.
type FailedStep = (String, Option<Category>, String, Idx);

fn failed_call(context: &Context<'_>, before: Idx) -> Option<FailedStep> {
    let known = CallIndex::of(context.trace, context.memo);
    // A call within the model's code gets the category of failing code.
    let coded = || context.trace.views.get(before).is_some_and(|r| writes_code(&r.output_text()));
    let calls = known.by_llm.get(&before)?.iter().filter_map(|&i| context.trace.calls.get(i));
    calls.filter_map(|call| Some((call, of_call(context.trace, context.memo, call)?))).find_map(
        |(call, error)| {
            let own = !matches!(error.cause, Defect::EmptyResult | Defect::Errored)
                && error.cause.category().is_some_and(|c| !c.is_environment());
            let category =
                if coded() { unexecuted::category_of_code(error.cause) } else { error.cause.category() };
            own.then(|| (format!("{} failed", call.name.trim()), category, error.quote, call.at))
        },
    )
}

fn failed_code(context: &Context<'_>, before: Idx) -> Option<FailedStep> {
    let step = unexecuted::step_of_code(context, before)?;
    let (error, cause) = own_signs(context.trace.views.get(step)?)?;
    let category = unexecuted::category_of_code(cause);
    Some(("the code did not run".to_owned(), category, error.quote, step))
}
