//! Lookups that found nothing, which is information, unless the model invented the identifier.
//!
//! Principle: an empty result is information about the requested thing, and no failure. For an identifier that the
//! model invented it is no information about the request, and the lookup fails.
//!
//! In: a call of a tool that returns information, whose result is empty or states that the thing does not exist. An
//! exception which states that a search found nothing ("No results found") counts as such a result; an exception about
//! a missing resource (404) is an error. Out: a finding. It is a note if the identifier comes from the user, the
//! instructions or an earlier result, and fails if the model invented it. A run that answers with details although none
//! of its lookups found anything fails on its answer (`reasoning::skipped_lookups`).

use crate::measure::calls::empty_result::is_nothing;
use crate::measure::calls::error_signs::call_error;
use crate::measure::defects::Defect;
use crate::measure::provenance::Provenance;
use crate::measure::reasoning::recovery;
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::measure::{Context, Finding};
use crate::recognise::Call;

/// The finding about a lookup whose error states that its search found nothing or, without a sign of failure on its
/// span, that the thing does not exist; else `None`.
pub(crate) fn not_found(context: &Context<'_>, call: &Call) -> Option<Finding> {
    let error = call_error(context.trace, context.memo, call)?;
    let purpose = || purpose(context.trace, context.memo, call);
    let is_answer = match error.cause {
        Defect::EmptyResult => purpose() != Purpose::Action,
        Defect::NotFound => !call.failed && purpose() == Purpose::Query,
        _ => false,
    };
    (is_answer && !has_query_statement(call)).then(|| {
        let rationale = format!("a result of {} was expected; it found no such thing", call.name.trim());
        finding(context, call, &rationale, &error.quote)
    })
}

/// Whether the arguments contain a statement of a query language, in which a missing table is an error of the model.
fn has_query_statement(call: &Call) -> bool {
    const KEYWORDS: [&str; 7] = ["select", "with", "insert", "update", "delete", "create", "match"];
    const CLAUSES: [&str; 5] = [" from ", " into ", " set ", "(", "{"];
    let is_statement = |text: &str| {
        let lower = text.trim_start().to_ascii_lowercase();
        KEYWORDS.iter().any(|word| lower.starts_with(word))
            && CLAUSES.iter().any(|clause| lower.contains(clause))
    };
    let arguments = call.parsed.as_deref().and_then(|value| value.as_object());
    arguments.is_some_and(|map| map.values().filter_map(|value| value.as_str()).any(is_statement))
}

/// The finding about a lookup that found nothing.
pub(super) fn finding(context: &Context<'_>, call: &Call, rationale: &str, quote: &str) -> Finding {
    if let Some(finding) = invented(context, call) {
        let finding = recovery::graded(context, call, finding);
        return match call.llm.filter(|_| call.tool.is_some()) {
            Some(llm) => finding.citing_at(context.trace, llm).from_origin(llm),
            None => finding,
        };
    }
    Defect::EmptyResult.finding(rationale, quote).noted()
}

/// The finding on the model call that invented the identifier of a lookup without a result.
pub(super) fn finding_of_author(context: &Context<'_>, call: &Call) -> Option<Finding> {
    let has_found_nothing = !call.failed
        && call.result.as_deref().is_some_and(is_nothing)
        && purpose(context.trace, context.memo, call) == Purpose::Query;
    if has_found_nothing || not_found(context, call).is_some() { invented(context, call) } else { None }
}

/// The finding about an identifier of a call that the model invented; `None` if there is none.
fn invented(context: &Context<'_>, call: &Call) -> Option<Finding> {
    call.llm?;
    let provenance = Provenance::cached(context.trace, context.memo);
    let value = provenance.invented(context.trace, call)?;
    let rationale = format!(
        "a value of the request or of a result was expected for '{}' of {}; the model made '{}' up, and nothing was \
         found for it",
        value.name,
        call.name.trim(),
        value.value
    );
    Some(Defect::InventedIdentifier.finding(rationale, &value.value))
}
