//! Claims of an action whose call was denied, or only prepared the action.
//!
//! Principle: a call that reports that nothing was done supports no claim of its action. Where one tool creates a
//! thing and a second tool carries out the action with it (`create_draft` and `send_draft`), a claim of the action
//! needs a call of the second tool, or an argument or result of the first one which states that the action was carried
//! out at once. A result in a state that waits for approval or for a place (`pending_approval`, `waitlisted`) supports
//! no claim that the action is done, unless the answer mentions that state.
//!
//! In: a claim and the calls before it. Out: the call that was denied, or the tool that was not called.

use verdict_otlp::work;

use super::effects::WaitingCall;
use super::offers::{NamedTool, things};
use super::{Action, ActionClaim, CalledTool, ClaimCheck, MAX_CALLS, Tense};
use crate::measure::Memo;
use crate::measure::excerpt::clip;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{
    GrammarGroup, Language, WordClass, WordClasses, classes, classes_in, is_english,
};
use crate::measure::reasoning::history::end_of;
use crate::measure::records::{FieldValue, RecordField, Structure};
use crate::measure::tool_purpose::{Purpose, ToolPurpose, action_of, description, purpose, stems};
use crate::measure::without_effect;
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::pattern::contains_ignoring_case;
use crate::recognise::{Call, Text};

/// Maximum bytes of a result that are read.
const MAX_BYTES: usize = 4_000;
/// Maximum arguments of a call that are read.
const MAX_ARGUMENTS: usize = 32;

/// Minimum characters of a word in lower case that is taken for a noun.
const MIN_NOUN_CHARS: usize = 5;
/// Maximum nouns and names of a claim that are searched for.
const MAX_NAMES: usize = 16;
/// Beginnings of texts that state the absence of a value: `not_requested`, `n/a`. Such texts are states of records, of
/// no language.
const ABSENT_VALUES: [&str; 4] = ["not", "none", "n/a", "null"];

impl ClaimCheck<'_, '_> {
    /// The call of a tool for the claimed action that reported that nothing was done; `None` if there is none, or if
    /// another call may have carried out the action.
    pub(super) fn denied_call(&self) -> Option<&Call> {
        let end = end_of(self.trace, self.span);
        let action = self.claim.action;
        let first = *self.effects.first_denied.borrow_mut().entry(action).or_insert_with(|| {
            // A call may report no effect because the action was done earlier; the claim is then true.
            let is_undone = |call: &Call| states_action_done(call, action, self.memo).map(|done| !done);
            let denied = self.effects.denied.get(&action)?;
            denied.iter().find_map(|i| match is_undone(self.trace.calls.get(*i)?) {
                Some(true) => Some(Some(*i)),
                Some(false) => None,
                // The work budget is exceeded.
                None => Some(None),
            })?
        });
        let call = self.trace.calls.get(first?).filter(|call| call.start <= end)?;
        // The answer may state that it was a dry run.
        if self.effects.dry_runs.contains(&first?) && self.mentions_dry_run() {
            return None;
        }
        (!self.effects.may_have_done(action, end)).then_some(call)
    }

    /// Whether the answer mentions a dry run or uses an unreal mood. True beyond the work budget.
    fn mentions_dry_run(&self) -> bool {
        *self.effects.mentions_dry_run.borrow_mut().entry(self.span).or_insert_with(|| {
            let text = self.trace.views.get(self.span).map(|view| view.output_text()).unwrap_or_default();
            let mentions_dry_run = |classes: WordClasses| classes.has_any(classes!(Trial Unreal));
            !self.memo.budget.spend(1 + text.len() / BYTES_PER_STEP)
                || classes_in(&text, None, self.memo).is_none_or(mentions_dry_run)
        })
    }

    /// The only call that may have carried out the claimed action, with the state in which its result waits, if the
    /// answer does not mention that state.
    pub(super) fn waiting_call(&self) -> Option<(&Call, String)> {
        use Action::{Book, Cancel, Delete, Pay, Refund, Transfer, Update};
        // Other actions are complete even if their result waits: a request that waits was submitted or sent.
        if !matches!(self.claim.action, Book | Cancel | Delete | Pay | Refund | Transfer | Update) {
            return None;
        }
        // "Ho prenotato la sala: la portineria deve ancora dare l'ok."
        if self.classes.has(WordClass::Obligation) {
            return None;
        }
        // Cached, since an answer may repeat a claim many times.
        let key = (self.span, self.claim.action);
        let cached = self.effects.waiting_calls.borrow().get(&key).cloned();
        let (call, state) = cached.unwrap_or_else(|| {
            let waiting_call = self.find_waiting_call();
            self.effects.waiting_calls.borrow_mut().insert(key, waiting_call.clone());
            waiting_call
        })?;
        Some((self.trace.calls.get(call)?, state))
    }

    /// As [`Self::waiting_call`], not cached. The call is given by its index.
    fn find_waiting_call(&self) -> Option<WaitingCall> {
        let end = end_of(self.trace, self.span);
        let may_be_action = |(_, call): &(usize, &Call)| {
            let tool = self.effects.tools.get(&*call.name);
            tool.is_some_and(|tool| !tool.purpose.is_query() && tool.purpose.may_do(self.claim.action))
        };
        self.memo.budget.spend(1 + self.trace.calls.len() / BYTES_PER_STEP).then_some(())?;
        let earlier_calls = self.trace.calls.iter().enumerate().take_while(|(_, call)| call.start <= end);
        let mut possible_calls = earlier_calls.take(MAX_CALLS).filter(may_be_action);
        let (call_index, call) = possible_calls.next()?;
        // Another call may have carried out the action.
        let state =
            without_effect::waiting_state(call, self.memo).filter(|_| possible_calls.next().is_none())?;
        let answer = self.trace.views.get(self.span)?.output_text();
        self.memo.budget.spend(1 + answer.len() / BYTES_PER_STEP).then_some(())?;
        let classes = classes_in(&answer, None, self.memo)?;
        let state_words = identifier_words(&state);
        let begins = |word: &str, prefix: &str| {
            word.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix))
        };
        let mut words = answer.split(|c: char| !c.is_alphanumeric());
        // There are words for approval in every language, but none for a place in a queue.
        let mentions_state = words.any(|word| {
            begins(word, "wait") || state_words.iter().any(|state_word| begins(word, state_word))
        }) || classes.has_any(classes!(Barrier Confirmation Sequence))
            || state.contains("waitlist") && !is_english(&answer, None, self.memo);
        (!mentions_state).then_some((call_index, state))
    }

    /// The offered tool for the claimed action that was not called, where the calls only created the thing that it
    /// takes: `create_draft` was called, and the claim that it was sent needs `send_draft`.
    pub(super) fn unused_second_step(&self) -> Option<&Text> {
        let ActionClaim { action, .. } = self.claim;
        // Not `Schedule` or `Order`: to create a thing for a later day is to schedule or to order it.
        if !matches!(action, Action::Send | Action::Submit) {
            return None;
        }
        let action_tools =
            self.offers.named.iter().filter(|named| named.action == action && !named.is_action_noun);
        if !self.effects.is_fully_recorded || !self.memo.budget.spend(self.offers.named.len()) {
            return None;
        }
        let end = end_of(self.trace, self.span);
        let called_tools = || self.effects.tools.iter().filter(|(_, tool)| tool.first_start <= end);
        let makes = |(name, tool): &(&String, &CalledTool), named_tool: &NamedTool| {
            let first = tool.purpose.actions.first();
            let is_same = || *tool.things.get_or_init(|| things(name)) == named_tool.things;
            matches!(first, Some(Action::Create | Action::Add | Action::Save)) && is_same()
        };
        let named = action_tools.into_iter().find(|named| called_tools().any(|tool| makes(&tool, named)))?;
        // Another called tool may have carried out the action.
        let may_be = called_tools().any(|(_, tool)| {
            let actions = &tool.purpose.actions;
            actions.is_empty() || actions.contains(&action) || actions.contains(&Action::Execute)
        });
        let is_done = || self.first_done_start(action).is_some_and(|start| start <= end);
        (!may_be && !is_done() && !self.has_automatic_messages()).then_some(&named.tool)
    }

    /// The offered tool that sends, if the model claims that it sent something, no call sends, and no result or
    /// argument states that something was sent. `None` for "sent" in another meaning, such as a transfer.
    pub(super) fn unused_sender(&self) -> Option<&Text> {
        let ActionClaim { action: action @ (Action::Send | Action::Notify), tense: Tense::Done, .. } =
            self.claim
        else {
            return None;
        };
        if action == Action::Notify && !self.tells_others()
            || !self.effects.is_fully_recorded
            || !self.memo.budget.spend(self.offers.named.len())
        {
            return None;
        }
        let sends = |named: &&NamedTool| {
            matches!(named.action, Action::Send | Action::Notify) && !named.is_action_noun
        };
        let tool = &self.offers.named.iter().find(sends)?.tool;
        let end = end_of(self.trace, self.span);
        let may_be = self.effects.tools.values().filter(|tool| tool.first_start <= end).any(|tool| {
            let actions = &tool.purpose.actions;
            let sends = [Action::Send, Action::Notify, Action::Execute, Action::Submit];
            actions.is_empty() || sends.iter().any(|action| actions.contains(action))
        });
        if !self.names_tool_object(Action::Send) && self.is_about_change(end) {
            return None;
        }
        let is_done = [Action::Send, action]
            .map(|done_action| self.first_done_start(done_action).is_some_and(|start| start <= end));
        if self.called_tool_informs(end) {
            return None;
        }
        (!may_be && !is_done.contains(&true) && !self.has_automatic_messages()).then_some(tool)
    }

    /// Whether the instructions mention something that happens automatically. True beyond the work budget.
    pub(super) fn has_automatic_messages(&self) -> bool {
        let is_automatic = |classes: WordClasses| classes.has(WordClass::Automatic);
        self.any_instruction_matches("", |text| classes_in(text, None, self.memo).is_none_or(is_automatic))
    }

    /// Whether the claim names the thing that an offered tool of this action is for.
    fn names_tool_object(&self, action: Action) -> bool {
        let claim_stems: Vec<String> = stems(self.claim.sentence).collect();
        let named = self.offers.named.iter().filter(|named| named.action == action && !named.is_action_noun);
        named.into_iter().any(|named| named.things.iter().all(|thing| claim_stems.contains(thing)))
    }

    /// Whether the arguments of a call, or the result of a call that changed something, contain a name or a number of
    /// the claim: "I've sent 200 euros to Ana" is about a transfer to her. True beyond the work budget.
    fn is_about_change(&self, end: u64) -> bool {
        // In English the object of the action is after its verb.
        let sentence = self.claim.sentence;
        let after_verb = sentence.to_lowercase().find(&self.claim.verb).and_then(|at| sentence.get(at..));
        let after_verb = after_verb.filter(|_| is_english(sentence, None, self.memo)).unwrap_or(sentence);
        let words = after_verb.split_whitespace().skip(1);
        let words = words.map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
        let is_name = |word: &&str| {
            let chars = word.chars().count();
            let begins = word.chars().next().is_some_and(|c| c.is_uppercase() || c.is_ascii_digit());
            chars > 1 && begins || chars >= MIN_NOUN_CHARS
        };
        let calendar = classes!(Weekday Month RelativeDay);
        let language = Language::detected(sentence, None, self.memo);
        let is_calendar_word =
            |word: &str| language.is_some_and(|language| language.classes(word).has_any(calendar));
        let names: Vec<&str> =
            words.filter(is_name).filter(|word| !is_calendar_word(word)).take(MAX_NAMES).collect();
        let earlier_calls = || self.trace.calls.iter().take(MAX_CALLS).filter(|call| call.start <= end);
        let changes = |call: &&Call| purpose(self.trace, self.memo, call) != Purpose::Query;
        let results = earlier_calls().filter(changes).filter_map(|call| call.result.as_ref());
        let texts: Vec<&Text> =
            earlier_calls().filter_map(|call| call.arguments.as_ref()).chain(results).collect();
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        !self.memo.budget.spend((1 + bytes / BYTES_PER_STEP) * (1 + names.len()))
            || names.iter().any(|name| texts.iter().any(|text| contains_ignoring_case(text, name)))
    }

    /// Whether the description of a called tool states that it informs somebody. True beyond the work budget.
    pub(super) fn called_tool_informs(&self, end: u64) -> bool {
        let earlier_calls = self.trace.calls.iter().take(MAX_CALLS).filter(|call| call.start <= end);
        let texts = earlier_calls.filter_map(|call| description(self.trace, self.memo, call));
        let texts: Vec<&str> = texts.filter(|text| text.len() <= MAX_BYTES).collect();
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        let is_message =
            |word: &str| matches!(action_of(&word.to_lowercase()), Some(Action::Send | Action::Notify));
        let is_automatic = |classes: WordClasses| classes.has(WordClass::Automatic);
        let informs = |text: &&str| {
            text.split(|c: char| !c.is_alphanumeric()).any(is_message)
                || classes_in(text, None, self.memo).is_none_or(is_automatic)
        };
        !self.memo.budget.spend(1 + bytes / BYTES_PER_STEP) || texts.iter().any(informs)
    }

    /// Whether a claim to have informed somebody is about another person than the user. In English, such a claim has a
    /// verb of messages without "you" after it; in other languages, the user has to have asked for the action.
    pub(super) fn tells_others(&self) -> bool {
        if !is_english(self.claim.sentence, None, self.memo) {
            return self.is_asked();
        }
        let words = self.claim.sentence.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
        let mut after_verb =
            words.skip_while(|word| *word != self.claim.verb).skip(1).filter(|word| !word.is_empty());
        Language::English.is_in_group(&self.claim.verb, GrammarGroup::Message)
            && after_verb.next().is_some_and(|word| word != "you")
    }

    /// The start of the first call which states that the action was done; 0 beyond the work budget.
    fn first_done_start(&self, action: Action) -> Option<u64> {
        *self.effects.first_done_start.borrow_mut().entry(action).or_insert_with(|| {
            let calls = self.trace.calls.iter().take(MAX_CALLS);
            let mut calls =
                calls.filter(|call| !ToolPurpose::for_call(self.trace, self.memo, call).is_query());
            calls.find_map(|call| match states_action_done(call, action, self.memo) {
                Some(false) => None,
                Some(true) => Some(call.start),
                None => Some(0),
            })
        })
    }
}

/// Whether a word of a key or a result is a verb form of the action. Irregular forms are states of records.
pub(in super::super) fn is_form_of(word: &str, action: Action) -> bool {
    let irregular = matches!(
        (word, action),
        ("sent", Action::Send)
            | ("paid", Action::Pay)
            | ("bought", Action::Order)
            | ("notified", Action::Notify)
    );
    irregular || action_of(word) == Some(action)
}

/// Whether the arguments or the result of a call state that the action was carried out; `None` beyond the work budget.
pub(in super::super) fn states_action_done(call: &Call, action: Action, memo: &Memo) -> Option<bool> {
    work::count(1);
    let passed = call.parsed.as_deref().and_then(serde_json::Value::as_object).into_iter().flatten();
    let is_requested = passed.take(MAX_ARGUMENTS).any(|(key, value)| {
        let is_set = !value.is_null() && value.as_bool() != Some(false);
        is_set && identifier_words(key).iter().any(|word| is_form_of(word, action))
    });
    let Some(result) = call.result.as_ref().filter(|_| !is_requested) else { return Some(is_requested) };
    let has_form = |text: &str| {
        let words = text.split(|c: char| !c.is_alphabetic()).filter(|word| word.len() > 2);
        words.map(str::to_lowercase).any(|word| is_form_of(&word, action))
    };
    let structure = Structure::cached(result, memo)?;
    let Structure(Some(parsed)) = &*structure else { return Some(has_form(clip(result, MAX_BYTES))) };
    // A field that is false, 0 or absent does not state that the action was done.
    let states_done = |field: &RecordField| match &field.value {
        FieldValue::Bool(holds) => *holds && field.name.iter().any(|word| is_form_of(word, action)),
        FieldValue::Number(number) => {
            *number != 0.0 && field.name.iter().any(|word| is_form_of(word, action))
        }
        FieldValue::Text(text) => {
            let is_none = text.is_empty() || ABSENT_VALUES.iter().any(|none| text.starts_with(none));
            !is_none && (field.name.iter().any(|word| is_form_of(word, action)) || has_form(text))
        }
    };
    let fields = || parsed.records.iter().flat_map(|record| &record.fields);
    memo.budget.spend(1 + fields().count() / 4).then(|| fields().any(states_done))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{script_with, unsupported, work_of};

    #[test]
    fn denied_calls_are_read_once_for_all_claims() {
        let denied = r#"{"accepted":false,"reason":"ALREADY_CANCELLED"}"#;
        let mut run = script_with(&["cancel_plan"]);
        for _ in 0..100 {
            run = run.calls("", &[("cancel_plan", r#"{"account":"AC-3391"}"#)]).returns(denied);
        }
        let (work, findings) = work_of(run, "I have cancelled your plan. ");
        assert!(findings == 100 && work <= 4_000, "{findings}: {work}");
    }

    #[test]
    fn instructions_and_calls_are_read_once_for_all_claims_of_what_was_prepared() {
        let prompt = "Be kind to the customers. ".repeat(200);
        let mut run = script_with(&["create_draft", "send_draft"]).system(&prompt);
        for _ in 0..100 {
            run = run.calls("", &[("create_draft", "{}")]).returns(r#"{"draft":"d1"}"#);
        }
        let (work, findings) = work_of(run, "I have emailed it to Ana. ");
        assert!(findings == 100 && work <= 2 * prompt.len() as u64, "{findings}: {work} of {}", prompt.len());
    }

    #[test]
    fn claim_of_what_still_waits_for_somebody_is_found_unless_the_answer_says_so() {
        let run = |tool: &str, result: &str, answer: &str| {
            let run = script_with(&["get_order", "issue_refund", "book_slot", "submit_claim"]);
            unsupported(run.calls("", &[(tool, r#"{"id":"55218"}"#)]).returns(result).answers(answer)).len()
        };
        let waits = r#"{"status":"pending_approval","approval_id":"AP-771"}"#;
        assert_eq!(
            run("issue_refund", waits, "I've refunded it, depending on your bank within five days."),
            1
        );
        assert_eq!(run("issue_refund", waits, "Ich habe den Betrag auf Ihre Karte erstattet."), 1);
        let listed = r#"{"booking":{"status":"waitlisted","position":4}}"#;
        assert_eq!(run("book_slot", listed, "I have booked the slot on Monday for you."), 1);
        for (tool, result, answer) in [
            ("issue_refund", waits, "I've refunded the full amount, which a supervisor has to approve."),
            ("issue_refund", waits, "Ich habe den Betrag erstattet, die Freigabe steht noch aus."),
            ("issue_refund", r#"{"status":"pending"}"#, "I've refunded the full amount to your card."),
            ("issue_refund", r#"{"status":"approved"}"#, "I've refunded the full amount to your card."),
            ("book_slot", listed, "I have booked the slot on Monday, you are on the waiting list."),
            ("book_slot", listed, "Ho prenotato il turno di lunedì, siete in lista d'attesa."),
            ("submit_claim", waits, "I have submitted your claim to the insurer."),
        ] {
            assert_eq!(run(tool, result, answer), 0, "{result} {answer}");
        }
        let retried = script_with(&["issue_refund"]).calls("", &[("issue_refund", "{}")]).returns(waits);
        let retried = retried.calls("", &[("issue_refund", r#"{"force":true}"#)]).returns("ok");
        assert!(unsupported(retried.answers("I've refunded the full amount to your card.")).is_empty());
    }

    #[test]
    fn nothing_is_searched_beyond_the_budget() {
        use crate::measure::Memo;
        use crate::measure::calls::attempts::CallAttempts;
        use crate::measure::work_budget::WorkBudget;

        let result = format!("{{\"draft\":\"d1\",\"note\":\"{}\"}}", "It was sent. ".repeat(1_000));
        let run = script_with(&["create_draft"]).calls("", &[("create_draft", "{}")]).returns(&result);
        let (trace, memo) = (run.answers("Done.").build(), Memo::within(WorkBudget::new(100, None)));
        memo.budget.begin();
        CallAttempts::get(&trace, &memo);
        assert_eq!(super::states_action_done(&trace.calls[0], super::Action::Send, &memo), None);
    }

    #[test]
    fn denied_action_supports_no_claim() {
        let run = |result: &str, text: &str| {
            let called =
                script_with(&["cancel_plan"]).calls("", &[("cancel_plan", r#"{"account":"AC-3391"}"#)]);
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
    fn trial_supports_a_claim_only_where_the_answer_calls_it_one() {
        let run = |result: &str, answer: &str| {
            let run = script_with(&["rollback"]).calls("", &[("rollback", r#"{"version":"v1"}"#)]);
            unsupported(run.returns(result).answers(answer)).len()
        };
        let trial = r#"{"dry_run":true,"plan":"v2 -> v1"}"#;
        assert_eq!(run(trial, "The service has been rolled back to v1."), 1);
        assert_eq!(run(trial, "I have rolled the service back to v1 as a dry run, nothing is changed."), 0);
        assert_eq!(run(r#"{"dry_run":false}"#, "The service has been rolled back to v1."), 0);
    }

    #[test]
    fn claim_needs_the_tool_that_takes_what_was_made() {
        let tools = &["create_draft", "send_draft"][..];
        let drafted = || {
            script_with(tools)
                .calls("", &[("create_draft", "{}")])
                .returns(r#"{"draft":"d1","sent_at":null}"#)
        };
        assert_eq!(unsupported(drafted().answers("I have emailed it to Ana.")).len(), 1);
        assert!(unsupported(drafted().answers("I have created a draft to Ana.")).is_empty());
        let sent = drafted().calls("", &[("send_draft", "{}")]).returns("ok");
        assert!(unsupported(sent.answers("I have emailed it to Ana.")).is_empty());
        let at_once = script_with(tools).calls("", &[("create_draft", r#"{"send":true}"#)]).returns("ok");
        assert!(unsupported(at_once.answers("I have emailed it to Ana.")).is_empty());
        let reported = script_with(tools).calls("", &[("create_draft", "{}")]).returns(r#"{"state":"sent"}"#);
        assert!(unsupported(reported.answers("I have emailed it to Ana.")).is_empty());
    }
}
