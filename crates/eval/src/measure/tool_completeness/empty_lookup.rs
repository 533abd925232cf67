//! Lookups that found nothing: information about what was asked for, unless the question was made up.
//!
//! Principle: that there is nothing is information about what was asked for, and no failure. For an identifier that
//! the model made up it is no information about the request at all, and the lookup fails.
//!
//! In: a call of a tool that returns information, whose result is empty or says that there is no such thing. That the
//! tool raises an exception to say that its search found nothing ("No results found") makes no difference; a resource
//! that an exception reports as missing (404) is an error. Out: a finding. It is only noted where the call looked for
//! what the user, the instructions or an earlier result named, and fails where the model made the identifier up. A run
//! that answers with particulars although none of its lookups found anything fails where it answers
//! (`reasoning::skipped_lookups`).

use crate::measure::calls::empty_result::is_nothing;
use crate::measure::calls::error_signs::call_error;
use crate::measure::defects::Defect;
use crate::measure::provenance::Provenance;
use crate::measure::reasoning::recovery;
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::measure::{Context, Finding};
use crate::recognise::Call;

/// The finding on a lookup that reports that its search found nothing or, without a sign of failure on its span, that
/// there is no such thing.
pub(crate) fn not_found(context: &Context<'_>, call: &Call) -> Option<Finding> {
    let error = call_error(context.trace, context.memo, call)?;
    let purpose = || purpose(context.trace, context.memo, call);
    let is_answer = match error.cause {
        Defect::EmptyResult => purpose() != Purpose::Action,
        Defect::NotFound => !call.failed && purpose() == Purpose::Query,
        _ => false,
    };
    (is_answer && !writes_statement(call)).then(|| {
        let rationale = format!("a result of {} was expected; it found no such thing", call.name.trim());
        finding(context, call, &rationale, &error.quote)
    })
}

/// Whether the model wrote a statement of a query language: a table that does not exist is its error.
fn writes_statement(call: &Call) -> bool {
    const WORDS: [&str; 7] = ["select", "with", "insert", "update", "delete", "create", "match"];
    const MARKS: [&str; 5] = [" from ", " into ", " set ", "(", "{"];
    let begins = |text: &str| {
        let lower = text.trim_start().to_ascii_lowercase();
        WORDS.iter().any(|word| lower.starts_with(word)) && MARKS.iter().any(|mark| lower.contains(mark))
    };
    let arguments = call.parsed.as_deref().and_then(|value| value.as_object());
    arguments.is_some_and(|map| map.values().filter_map(|value| value.as_str()).any(begins))
}

/// The finding on a lookup that found nothing.
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

/// The finding on the model call that made the identifier up.
pub(super) fn wrote(context: &Context<'_>, call: &Call) -> Option<Finding> {
    let nothing = !call.failed
        && call.result.as_deref().is_some_and(is_nothing)
        && purpose(context.trace, context.memo, call) == Purpose::Query;
    if nothing || not_found(context, call).is_some() { invented(context, call) } else { None }
}

/// The finding on an identifier that the model made up, for which nothing was found.
pub(super) fn invented(context: &Context<'_>, call: &Call) -> Option<Finding> {
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
