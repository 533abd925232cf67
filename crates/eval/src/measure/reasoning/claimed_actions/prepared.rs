//! Claims of an action whose call was denied, or only made what the action takes.
//!
//! Principle: a call that reports that nothing was done supports no claim of its action. Where one tool makes a thing and
//! another one does the action with it (`create_draft` and `send_draft`), a claim of the action needs the second one, or a
//! result, or an argument of the first one that says that it was done at once.
//!
//! In: a claim and the calls before it. Out: the call that was denied, or the tool that was not called.

use super::{Action, CalledTool, Claim, Claimed, MAX_CALLS, Named, things};
use crate::measure::Memo;
use crate::measure::excerpt::clip;
use crate::measure::identifier::identifier_words;
use crate::measure::reasoning::history::end_of;
use crate::measure::reasoning::missing_announced_call::instructions;
use crate::measure::reasoning::records::{Field, Scalar, Structure};
use crate::measure::tool_purpose::{ToolPurpose, action_of};
use crate::pattern::contains_ignoring_case;
use crate::recognise::{Call, Text};

/// Most bytes of a result, and arguments, that are read.
const MAX_BYTES: usize = 4_000;
const MAX_ARGUMENTS: usize = 32;

impl Claimed<'_, '_> {
    /// The call of a tool for the claimed action that reported that nothing was done, if no other call may have done it.
    pub(super) fn denied(&self) -> Option<&Call> {
        let end = end_of(self.trace, self.at);
        let action = self.claim.action;
        let made = self.effects.denied.iter().filter_map(|i| self.trace.calls.get(*i));
        let mut made = made.filter(|call| call.start <= end);
        let is_of = |call: &&Call| {
            let purpose = ToolPurpose::of_call(self.trace, self.memo, call);
            // What was done before is no lack.
            !purpose.is_query()
                && purpose.actions.first() == Some(&action)
                && !says_done(call, action, self.memo)
        };
        made.find(is_of).filter(|_| !self.effects.may_have_done(action, end))
    }

    /// The offered tool that does what is claimed, where the calls only made what it takes: `create_draft`, and a
    /// claim that it was sent without `send_draft`.
    pub(super) fn only_prepared(&self) -> Option<&Text> {
        let Claim { action, .. } = self.claim;
        // What is made for a later day is scheduled, or ordered, by that.
        if !matches!(action, Action::Send | Action::Submit) {
            return None;
        }
        let of_action = self.offers.named.iter().filter(|named| named.action == action && !named.is_own);
        if !self.effects.whole || !self.memo.budget.spend(self.offers.named.len()) {
            return None;
        }
        let end = end_of(self.trace, self.at);
        let made = || self.effects.tools.iter().filter(|(_, tool)| tool.first <= end);
        let makes = |(name, tool): &(&String, &CalledTool), of: &Named| {
            let first = tool.purpose.actions.first();
            let is_same = || *tool.things.get_or_init(|| things(name)) == of.things;
            matches!(first, Some(Action::Create | Action::Add | Action::Save)) && is_same()
        };
        let named = of_action.into_iter().find(|named| made().any(|tool| makes(&tool, named)))?;
        // Any other tool may have done it.
        let may_be = made().any(|(_, tool)| {
            let actions = &tool.purpose.actions;
            actions.is_empty() || actions.contains(&action) || actions.contains(&Action::Execute)
        });
        let calls = self.trace.calls.iter().take_while(|call| call.start <= end).take(MAX_CALLS);
        let mut calls = calls.filter(|call| !ToolPurpose::of_call(self.trace, self.memo, call).is_query());
        let mut says_done = || calls.any(|call| says_done(call, action, self.memo));
        let prompt = self.trace.views.get(self.at).into_iter().flat_map(instructions);
        let is_ruled = || prompt.into_iter().any(|text| contains_ignoring_case(text, "automatic"));
        (!may_be && !says_done() && !is_ruled()).then_some(&named.tool)
    }
}

/// Whether a word says that such a thing is or was done.
pub(in super::super) fn is_form_of(word: &str, action: Action) -> bool {
    let irregular =
        matches!((word, action), ("sent", Action::Send) | ("paid", Action::Pay) | ("bought", Action::Order));
    irregular || action_of(word) == Some(action)
}

/// Whether the result or the arguments of a call say that the action was done with what it made.
fn says_done(call: &Call, action: Action, memo: &Memo) -> bool {
    let passed = call.parsed.as_deref().and_then(serde_json::Value::as_object).into_iter().flatten();
    let is_asked = passed.take(MAX_ARGUMENTS).any(|(key, value)| {
        let is_on = !value.is_null() && value.as_bool() != Some(false);
        is_on && identifier_words(key).iter().any(|word| is_form_of(word, action))
    });
    let Some(result) = call.result.as_ref().filter(|_| !is_asked) else { return is_asked };
    let structure = Structure::of(result, memo);
    let says = |text: &str| {
        let words = text.split(|c: char| !c.is_alphabetic()).filter(|word| word.len() > 2);
        words.map(str::to_lowercase).any(|word| is_form_of(&word, action))
    };
    // A field without a value is none.
    let is_said = |field: &Field| match &field.value {
        Scalar::Bool(holds) => *holds && field.name.iter().any(|word| is_form_of(word, action)),
        Scalar::Number(number) => *number != 0.0 && field.name.iter().any(|word| is_form_of(word, action)),
        Scalar::Text(text) => {
            !text.is_empty() && (field.name.iter().any(|word| is_form_of(word, action)) || says(text))
        }
    };
    match structure.as_deref() {
        Some(Structure(Some(parsed))) => parsed.records.iter().flat_map(|record| &record.fields).any(is_said),
        _ => says(clip(result, MAX_BYTES)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{asked, unsupported};

    #[test]
    fn denied_action_supports_no_claim() {
        let run = |result: &str, text: &str| {
            let called = asked(&["cancel_plan"]).calls("", &[("cancel_plan", r#"{"account":"AC-3391"}"#)]);
            unsupported(called.returns(result).answers(text)).len()
        };
        let denied = r#"{"code":200,"result":{"plan":"Plus","change":{"accepted":false,"reason":"DUES"}}}"#;
        assert_eq!(run(denied, "I have cancelled your plan."), 1);
        assert_eq!(run(denied, "Your plan has been cancelled."), 1);
        assert_eq!(run(denied, "Your plan could not be cancelled."), 0);
        let before = r#"{"accepted":false,"reason":"ALREADY_CANCELLED"}"#;
        assert_eq!(run(before, "Your plan has been cancelled."), 0, "before");
        assert_eq!(run(r#"{"accepted":true}"#, "Your plan has been cancelled."), 0);
    }

    #[test]
    fn claim_needs_the_tool_that_takes_what_was_made() {
        let tools = &["create_draft", "send_draft"][..];
        let made =
            || asked(tools).calls("", &[("create_draft", "{}")]).returns(r#"{"draft":"d1","sent_at":null}"#);
        assert_eq!(unsupported(made().answers("I have emailed it to Ana.")).len(), 1);
        assert!(unsupported(made().answers("I have created a draft to Ana.")).is_empty());
        let sent = made().calls("", &[("send_draft", "{}")]).returns("ok");
        assert!(unsupported(sent.answers("I have emailed it to Ana.")).is_empty());
        let at_once = asked(tools).calls("", &[("create_draft", r#"{"send":true}"#)]).returns("ok");
        assert!(unsupported(at_once.answers("I have emailed it to Ana.")).is_empty());
        let told = asked(tools).calls("", &[("create_draft", "{}")]).returns(r#"{"state":"sent"}"#);
        assert!(unsupported(told.answers("I have emailed it to Ana.")).is_empty());
    }
}
