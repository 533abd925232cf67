//! Lookups that found nothing: information about what was asked for, unless the question was made up.
//!
//! In: a call of a tool that returns information, whose result is empty or says that there is no such thing.
//! Out: a finding. It is only noted where the call looked for what the user, the instructions or an earlier
//! result named. It fails where the model made the identifier up, and where the run answers with particulars
//! although none of its lookups found anything.

use std::rc::Rc;

use super::nothing::is_nothing;
use crate::measure::agent::attempts::{CallAttempts, CallOutcome};
use crate::measure::defects::Defect;
use crate::measure::error_detection::signs::of_call;
use crate::measure::language::{Readable, readable};
use crate::measure::provenance::{Provenance, follows_negation};
use crate::measure::tool_purpose::{Purpose, purpose};
use crate::measure::{Context, Finding, avoidance, recovery};
use crate::recognise::{Agent, Call};

/// The finding on a lookup that reports, without a sign of failure on its span, that there is no such thing.
pub(crate) fn not_found(context: &Context<'_>, call: &Call) -> Option<Finding> {
    if call.failed {
        return None;
    }
    let error = of_call(context.trace, context.memo, call)?;
    let none_such = matches!(error.cause, Defect::NotFound | Defect::EmptyResult);
    (none_such && purpose(context.trace, context.memo, call) == Purpose::Query && !writes_statement(call))
        .then(|| {
            let rationale = format!("{} found no such thing", call.name.trim());
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
    if let Some(particular) = UnfoundedAnswers::of(context).particular(call) {
        let rationale = format!(
            "{rationale}; the run's answer gives particulars (\"{particular}\") that no result contains"
        );
        return Defect::EmptyResult.finding(rationale, quote);
    }
    Defect::EmptyResult.finding(rationale, quote).noted()
}

/// The same on the model call that made the identifier up.
pub(super) fn wrote(context: &Context<'_>, call: &Call) -> Option<Finding> {
    let nothing = !call.failed
        && call.result.as_deref().is_some_and(is_nothing)
        && purpose(context.trace, context.memo, call) == Purpose::Query;
    if nothing || not_found(context, call).is_some() { invented(context, call) } else { None }
}

/// The finding on an identifier that the model made up, for which nothing was found.
pub(super) fn invented(context: &Context<'_>, call: &Call) -> Option<Finding> {
    call.llm?;
    let provenance = Provenance::of(context.trace, context.memo);
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

/// By agent: a particular of its answer that no text of the run contains, if no lookup found anything and the
/// answer does not say so.
struct UnfoundedAnswers(Vec<Option<String>>);

impl UnfoundedAnswers {
    fn of(context: &Context<'_>) -> Rc<UnfoundedAnswers> {
        let of_agent = |agent: &Agent| {
            let answer = agent.answer.as_deref()?;
            let is_unread = readable(answer, agent.task.as_deref(), context.memo) == Readable::No;
            if is_unread || found_something(context, agent) || avoidance::mentions_lack(answer, context.memo)
            {
                return None;
            }
            let provenance = Provenance::of(context.trace, context.memo);
            let particular = provenance.unknown_specific(answer)?;
            (!follows_negation(answer, particular)).then(|| particular.to_owned())
        };
        context.memo.trace(|| UnfoundedAnswers(context.trace.agents.iter().map(of_agent).collect()))
    }

    fn particular(&self, call: &Call) -> Option<&str> {
        self.0.get(call.agent?)?.as_deref()
    }
}

/// Whether a call of the agent returned anything.
fn found_something(context: &Context<'_>, agent: &Agent) -> bool {
    let attempts = CallAttempts::get(context.trace, context.memo);
    agent.calls.iter().any(|i| {
        let Some(call) = context.trace.calls.get(*i) else { return false };
        let has_text = call.result.as_deref().is_some_and(|text| !is_nothing(text));
        let succeeded = attempts.at(*i).is_some_and(|a| a.outcome == CallOutcome::Succeeded);
        // Without its result it is unknown what a call found.
        succeeded && has_text || call.result.is_none() && !call.failed
    })
}
