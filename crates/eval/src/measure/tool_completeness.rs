//! `tool_completeness` (001, table 1): did a tool call achieve its purpose? 1-5.
//!
//! In: a call, its result, and the definition that the model was shown. Out: 5, or the score of the worst
//! defect: an error (1), arguments that the tool does not accept, an identifier that the model made up, a
//! result that is cut off. That a lookup finds nothing is noted. A defect of the arguments is
//! reported on the LLM span that wrote them, and as a manifestation on the tool span. Calls without a span of
//! their own are measured on the LLM span.
//!
//! Examined are the arguments of a call with a result, where the trace has the tool's schema, and a result
//! that shows whether the call succeeded: structured (JSON, whose fields say so), under a status that was set, or long
//! enough to be compared with the query. A status `OK` is a statement about this very call: it is no default, and
//! it states that the call was completed, as a field of a structured result does. The result is compared with
//! this statement, and an error in its text contradicts it. Of plain text under an unset status the rules can only say
//! that it is not empty, which says nothing about completeness: such a call is unmeasured.

use verdict_otlp::trace::{Kind, Status};

use super::defects::{Defect, Findings};
use super::{Context, Finding, Measurement, Unmeasured};
use crate::measure::calls::attempts::{CallAttempts, STUBBORN, quoted};
use crate::measure::calls::call_index::CallIndex;
use crate::measure::calls::error_signs::{call_error, is_of_model};
use crate::measure::reasoning::recovery;
use crate::recognise::{Call, ErrorSource};

pub(crate) mod arguments;
pub(crate) mod result;
pub(crate) mod unexecuted;
pub(crate) mod empty_lookup;

pub(crate) fn measure(context: &Context<'_>) -> Option<Measurement> {
    match context.trace.views.get(context.at)?.kind {
        Kind::Tool => on_tool(context),
        Kind::Llm => on_llm(context),
        _ => None,
    }
}

/// The call that this span carried out.
fn on_tool(context: &Context<'_>) -> Option<Measurement> {
    let view = context.trace.views.get(context.at)?;
    let mut findings = Findings::new();
    let call_index = CallIndex::cached(context.trace, context.memo);
    let call = call_index.by_tool.get(&context.at).and_then(|&i| context.trace.calls.get(i));
    if let Some(call) = call {
        let seen = check_result(context, call, &mut findings);
        findings.examine(usize::from(seen && arguments::schema(call).is_some()));
        findings.extend(repeated_failure(context, call));
        if let Some(llm) = call.llm {
            let defects = arguments::defects(context, call).into_iter();
            let defects = defects.map(|finding| recovery::graded(context, call, finding));
            findings.extend(defects.map(|finding| finding.citing_at(context.trace, llm).from_origin(llm)));
        }
    }
    Some(findings.scored(context, view.output_content.into()))
}

/// The calls that this model call requested: their arguments, and the results of those without a span.
fn on_llm(context: &Context<'_>) -> Option<Measurement> {
    let call_index = CallIndex::cached(context.trace, context.memo);
    let calls = call_index.by_llm.get(&context.at).map_or(&[][..], Vec::as_slice);
    let mut findings = Findings::new();
    let mut seen = false;
    findings.extend(context.trace.views.get(context.at).and_then(|r| unexecuted::defects(context, r)));
    for call in calls.iter().filter_map(|&i| context.trace.calls.get(i)) {
        if call.tool.is_none() {
            let result_seen = check_result(context, call, &mut findings);
            findings.examine(usize::from(result_seen && arguments::schema(call).is_some()));
            seen |= result_seen;
        }
        let invented = call.tool.and_then(|_| empty_lookup::wrote(context, call));
        let defects = arguments::defects(context, call).into_iter().chain(invented);
        findings.extend(defects.map(|finding| {
            let finding = recovery::graded(context, call, finding);
            match call.tool {
                Some(tool) => finding.citing_at(context.trace, tool),
                None => finding,
            }
        }));
    }
    let spanless =
        calls.iter().filter_map(|&i| context.trace.calls.get(i)).filter(|call| call.tool.is_none());
    let partial = spanless.map(|call| call.result_content).filter(|content| content.is_partial()).max();
    let otherwise = partial.map_or(Unmeasured::NotApplicable, Unmeasured::from);
    (seen || partial.is_some() || !findings.is_empty()).then(|| findings.scored(context, otherwise))
}

/// The last repetition of a failing call, on its tool span.
fn repeated_failure(context: &Context<'_>, call: &Call) -> Option<Finding> {
    let attempts = CallAttempts::get(context.trace, context.memo);
    let repeat =
        attempts.ending(*CallIndex::cached(context.trace, context.memo).by_tool.get(&context.at)?)?;
    let rationale = format!(
        "{} was called {} times with the same arguments and failed each time; after one failure a changed call \
         was expected",
        call.name.trim(),
        repeat.nth
    );
    let finding = Defect::RepeatedFailingCall.finding(rationale, quoted(call));
    // One more attempt harms no user to whom its failure is reported.
    Some(if repeat.nth < STUBBORN { recovery::graded(context, call, finding) } else { finding })
}

/// Checks the result or error of a call; false if neither is recorded.
fn check_result(context: &Context<'_>, call: &Call, findings: &mut Findings) -> bool {
    if let Some(finding) = empty_lookup::not_found(context, call) {
        findings.push(finding);
        return true;
    }
    if let Some(error) = call_error(context.trace, context.memo, call) {
        let retried = call
            .tool
            .and_then(|tool| context.trace.views.get(tool))
            .is_some_and(|r| r.errors.iter().any(|sign| sign.source == ErrorSource::Retry));
        let defect = if retried { Defect::RetryAnnounced } else { error.cause };
        let rationale = format!("a result of {} was expected; the call failed", call.name.trim());
        // If the model's output caused the failure, the model call is its origin.
        let origin = call.llm.filter(|_| is_of_model(error.cause) && call.tool.is_some());
        let category = error.cause.category();
        let finding = Finding { category, origin, ..defect.finding(rationale, &error.quote) };
        findings.push(recovery::graded(context, call, finding));
        return true;
    }
    let Some(text) = &call.result else { return false };
    let status = call.tool.and_then(|tool| context.trace.tree.spans.get(tool)).map(|span| span.status);
    match result::check(context, call, text) {
        result::ResultCheck::Complete { shows_outcome } => {
            findings.examine(usize::from(shows_outcome || status == Some(Status::Ok)));
            true
        }
        result::ResultCheck::Unclear => false,
        result::ResultCheck::Defective(finding) => {
            findings.push(*finding);
            true
        }
    }
}

#[cfg(test)]
mod tests;
