//! Inability that is claimed without trying: "I cannot look up your bookings" where a tool that does so was
//! offered and never called.
//!
//! In: a sentence of a model that states an inability. Out: the tool, if one was offered whose name or
//! description shares the action and the object, no call of it is in the run, no instruction limits it, and what it is
//! about was not looked up with a result that may say why.
//! What the speaker calls the user's own ("your balance"), and the instructions know of, is looked for in the
//! user's record.

use super::excuse::gives_reason;
use super::policy::{Declined, MAX_BYTES, is_grounded};
use crate::measure::Context;
use crate::measure::agent::agent_index;
use crate::measure::error_detection::call_index::CallIndex;
use crate::measure::excerpt::clip;
use crate::measure::language::Action;
use crate::measure::tool_purpose::{ToolPurpose, are_alike, offered, stems};
use crate::recognise::{Part, SpanView, Text};

/// Who a user's record belongs to.
const RECORDS: [&str; 11] = [
    "user",
    "customer",
    "account",
    "profile",
    "client",
    "member",
    "guest",
    "patient",
    "subscriber",
    "passenger",
    "employee",
];
/// The sentence speaks of what is missing, not of what cannot be done.
const CONDITIONS: [&str; 6] = ["without", "until", "unless", "before", "if", "yet"];

/// The name of the tool that was not tried.
pub(super) fn untried<'t>(
    context: &Context<'t>,
    view: &SpanView,
    sentence: &str,
    declined: &Declined,
) -> Option<&'t str> {
    let trace = context.trace;
    let agent = trace.owner.get(context.at).copied().flatten()?;
    let lower = sentence.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric());
    if words.clone().any(|word| CONDITIONS.contains(&word)) {
        return None;
    }
    let own = words.any(|word| word == "your");
    let instructions = agent_index::instructions(trace, agent).map(|text| &**text).unwrap_or_default();
    if !context.memo.budget.spend(instructions.len() / 16) {
        return None;
    }
    let is_known = || stems(clip(instructions, MAX_BYTES)).any(|word| declined.objects.contains(&word));
    let calls = CallIndex::of(trace, context.memo);
    let fits = offered(trace, agent).filter_map(|tool| {
        let purpose = ToolPurpose::of(&tool.name, tool.description.as_deref());
        let is_close = |does: &Action| are_close(declined.action, *does);
        let does = match declined.is_information() {
            true => purpose.is_query(),
            false => !purpose.is_query() && purpose.actions.iter().any(is_close),
        };
        let in_record =
            own && declined.is_information() && RECORDS.iter().any(|r| purpose.objects.contains(*r));
        let named = stems(&tool.name).filter(|word| declined.objects.contains(word)).count();
        let shared = named + purpose.objects.intersection(&declined.objects).count();
        let fit = if shared == 0 && in_record && is_known() { 1 } else { shared };
        (does && fit > 0).then_some((fit, &*tool.name))
    });
    let fits: Vec<(usize, &str)> = fits.collect();
    let most = fits.iter().map(|(fit, _)| *fit).max()?;
    let mut best = fits.into_iter().filter(|(fit, _)| *fit == most).map(|(_, name)| name);
    let tool = best.clone().next()?;
    let parts = || view.input.iter().flat_map(|m| &m.parts);
    let in_prompt = |name: &str| parts().any(|part| matches!(part, Part::Call(call) if &*call.name == name));
    // Of tools that fit equally well, a call of any was a try.
    if best.any(|name| calls.first.contains_key(&Text::from(name)) || in_prompt(name)) {
        return None;
    }
    (!is_grounded(declined, instructions) && !gives_reason(context, sentence, declined)).then_some(tool)
}

/// Whether the tool's action is the one that is said to be impossible, and not only of the same kind.
fn are_close(said: Action, does: Action) -> bool {
    said == does || matches!(does, Action::Update | Action::Delete | Action::Cancel) && are_alike(said, does)
}
