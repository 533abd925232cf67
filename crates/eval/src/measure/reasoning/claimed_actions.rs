//! Claims of carried-out actions: "I have cancelled your booking".
//!
//! Principle: an agent that reports an action has carried it out. A claim without a successful call that does such a
//! thing makes the user rely on something that did not happen. Whether the action was required, or was carried out
//! well, is not examined.
//!
//! In: the texts of models, and the calls of the trace. Out: a finding for a claim without a successful call that does
//! such a thing, or with identifiers that no such call names. A failed call supports no claim. Neither does a call
//! that reports no effect, or a call whose result still waits for approval (`pending_approval`) unless the answer
//! states so. An action supports claims of its consequences in the same turn ("the refund has been issued"). A state
//! that a result reports is not a claim of the model. Actions on the text that the model writes ("I have added a
//! paragraph") are claims only where a tool for them was offered. A draft for the user contains no claims.

mod effects;
mod insufficient_calls;
mod offers;
mod passed_on;

use foldhash::HashSet;
use verdict_otlp::trace::Idx;
use verdict_otlp::work;

use super::history::end_of;
use super::linked_identifiers::{identifiers, is_known_otherwise, shape};
use super::missing_announced_call::instructions;
use super::skipped_step::actions_of_verbs;
use super::statements::before_draft;
use super::wrong_date_time;
use crate::measure::calls::attempts::CallAttempts;
use crate::measure::conversation::{prompt_texts, writes_code};
use crate::measure::defects::Defect;
use crate::measure::dialogue::{Replies, said_by_user};
use crate::measure::excerpt::head;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{
    Action, ActionClaim, GrammarGroup, Language, ReadText, Tense, WordClass, WordClasses, classes, classes_in,
};
use crate::measure::tool_purpose::{ToolPurpose, action_of, stems};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, Memo, agent_index};
use crate::pattern::contains_ignoring_case;
use crate::recognise::{AgentTrace, Call, Content, Text};
use effects::{CalledTool, Effects, MAX_BYTES};
pub(super) use insufficient_calls::{is_form_of, states_action_done};
pub(super) use offers::things;
use offers::{NamedTool, Offers};

/// Classes of words that restrict a claim to a part of the things.
const PARTIAL: WordClasses = classes!(Exception Restriction Bound);
/// Maximum texts of one trace that are read.
const MAX_TEXTS: usize = 2_000;
/// Maximum calls whose arguments and results are searched for one claim.
const MAX_CALLS: usize = 500;
/// Maximum words after "by" that are compared with the results: "ordered by price".
const MAX_CRITERION_WORDS: usize = 3;
/// Maximum identifiers of one claim, or of one request, that are compared.
const MAX_IDENTIFIERS: usize = 8;

/// The claims that were examined, by model span, each with the finding if it is unsupported.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo, attempts: &CallAttempts) -> Vec<(Idx, Option<Finding>)> {
    let mut out = Vec::new();
    let mut effects = None;
    let mut text_count = 0;
    for (i, agent) in trace.agents.iter().enumerate() {
        if agent.tools.is_empty() && agent.calls.is_empty() {
            continue;
        }
        let mut offers = None;
        let mut turn_start = 0;
        for &llm in &agent.llms {
            let Some(view) = trace.views.get(llm) else { continue };
            let text = view.output_text();
            text_count += 1;
            if text_count > MAX_TEXTS || !memo.budget.spend(1 + text.len() / 4) {
                return out;
            }
            if view.output_content == Content::Present && !text.trim().is_empty() && !writes_code(&text) {
                let task = agent_index::task(trace, i).map(|task| &**task);
                let analysed = ReadText::new(&text, task, memo);
                let length = analysed.languages().map(|language| before_draft(&text, language).len()).min();
                let draft_start = text.as_ptr().addr() + length.unwrap_or(text.len());
                for claim in analysed.claims_of_done_action() {
                    if claim.action.is_work() || claim.sentence.as_ptr().addr() >= draft_start {
                        continue;
                    }
                    let effects = effects.get_or_insert_with(|| Effects::new(trace, memo, attempts));
                    let offers = offers.get_or_insert_with(|| offers::offers(trace, i));
                    let classes = analysed.classes(claim.sentence);
                    let verdict =
                        ClaimCheck { trace, memo, span: llm, turn_start, claim, classes, effects, offers }
                            .examine();
                    out.extend(verdict.map(|finding| (llm, finding)));
                }
            }
            if Replies::cached(trace, memo).to(llm).is_some() {
                turn_start = end_of(trace, llm);
            }
        }
    }
    out
}

/// The reason of a finding on a claim of sending, for an offered tool that was not called.
fn never_sent_reason(tool: &str) -> String {
    format!("{tool} was never called, and no call or result says that anything was sent")
}

/// The words of a text that look like names of files or paths: "cart.py", "src/main".
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, '`' | '"' | '(' | ')' | ','));
    let words = words.map(|word| word.trim_end_matches(['.', ':', ';', '!', '?']));
    words.filter(|word| word.contains(char::is_alphabetic) && word.contains(['.', '/', '_']))
}

/// Whether one of two actions makes a thing and the other one ends it.
fn are_opposite(one: Action, other: Action) -> bool {
    use Action::{Add, Book, Cancel, Create, Delete, Order, Refund, Return, Schedule};
    let makes = |action: Action| matches!(action, Add | Book | Create | Order | Schedule);
    let ends = |action: Action| matches!(action, Cancel | Delete | Refund | Return);
    makes(one) && ends(other) || ends(one) && makes(other)
}

/// Whether a text has an English past participle of this action: "CANCELED" for `Cancel`.
fn has_participle(text: &str, action: Action) -> bool {
    let words = text.split(|c: char| !c.is_alphabetic()).filter(|word| word.len() > 3);
    let mut done = words
        .filter(|word| word.as_bytes().last_chunk::<2>().is_some_and(|end| end.eq_ignore_ascii_case(b"ed")));
    done.any(|word| action_of(&word.to_lowercase()) == Some(action))
}

/// One claim, with the calls and offered tools that it is compared with.
struct ClaimCheck<'c, 't> {
    trace: &'c AgentTrace,
    /// The model span whose output has the claim.
    span: Idx,
    /// The time of the user's last reply before the claim.
    turn_start: u64,
    claim: ActionClaim<'t>,
    /// The classes of the words in the sentence of the claim.
    classes: WordClasses,
    memo: &'c Memo,
    effects: &'c Effects,
    offers: &'c Offers,
}

impl ClaimCheck<'_, '_> {
    /// The finding if the claim is unsupported; `None` if the claim cannot be examined.
    fn examine(&self) -> Option<Option<Finding>> {
        use Action::{Book, Cancel, Order, Pay, Refund, Send, Transfer};
        let ActionClaim { action, tense, .. } = self.claim;
        // These actions take effect only outside of a text.
        let is_external = matches!(action, Book | Cancel | Order | Pay | Refund | Send | Transfer);
        let is_offered = self.offers.actions.contains(&action);
        // Verbs that are also used for the order of a text ("moved to the top") or for a decision ("settled on").
        let is_editing = || Language::English.is_in_group(&self.claim.verb, GrammarGroup::Editing);
        let is_about_text =
            || !self.offers.may_change && is_editing() || action == Order && self.is_arrangement();
        if action == Action::Notify && !is_offered {
            // Messages have a recipient.
            let unsent = self.unused_sender().map(|tool| never_sent_reason(tool));
            let not_passed_on = || Some(format!("no call has its words: {}", self.words_not_passed_on()?));
            return unsent.or_else(not_passed_on).map(|reason| Some(self.finding(&reason)));
        }
        if !is_offered && (!is_external || is_about_text()) {
            return None;
        }
        if let Some(id) = self.omitted_identifier() {
            return Some(Some(self.finding(&format!("none that was made names {id} of the request"))));
        }
        if let Some(call) = self.denied_call() {
            let reason = format!("{} reported that it was not done", call.name.trim());
            return Some(Some(self.finding(&reason).citing_at(self.trace, call.at)));
        }
        if let Some((call, state)) = self.waiting_call() {
            let reason = format!("{} reported {state}, which the answer does not say", call.name.trim());
            return Some(Some(self.finding(&reason).citing_at(self.trace, call.at)));
        }
        // "It has been shipped" may report a state that a result contains, and is then not a claim of the model.
        if tense == Tense::DonePassive && self.effects.has_results {
            // The answer to a question is a report.
            if !is_external || !is_offered || !self.effects.is_fully_recorded || self.is_question() {
                return None;
            }
            let uncalled = || self.uncalled_tool(action).filter(|_| self.is_asked());
            let reason = match self.effects.starts.is_empty() {
                true => "no call of the run changed anything".to_owned(),
                false => format!("{} was never called, and no other call does that", uncalled()?),
            };
            let finding = || self.finding(&format!("{reason}, and no message or result says so"));
            return (!self.is_reported()).then(|| Some(finding()));
        }
        if !self.has_supporting_call(action) {
            // "Did you transfer it yesterday?" asks for a report of an earlier action.
            if self.effects.has_results && self.is_question() && self.is_reported() {
                return None;
            }
            return Some(Some(self.finding("none was made that succeeded")));
        }
        if let Some(tool) = self.unused_second_step() {
            let reason = format!("{tool} was never called, and what was called only makes what it takes");
            return Some(Some(self.finding(&reason)));
        }
        if let Some(tool) = self.unused_sender() {
            return Some(Some(self.finding(&never_sent_reason(tool))));
        }
        if let Some(tool) = self.uncalled_tool(action) {
            return Some(Some(
                self.finding(&format!("{tool} was never called, and no other call is about it")),
            ));
        }
        if let Some(id) = self.unknown_identifier() {
            return Some(Some(self.finding(&format!("none that was made names {id}"))));
        }
        Some(self.call_at_other_time().map(|call| {
            self.finding("the call that was made has another day or time").citing_at(self.trace, call.at)
        }))
    }

    /// Whether the claim is about all things of the request, without an exception.
    fn is_about_all(&self) -> bool {
        self.classes.has(WordClass::Quantifier) && !self.classes.has_any(PARTIAL)
    }

    /// An identifier that the request lists and no call names, if the claim is about all things of the request, and the
    /// calls name other identifiers of that list.
    fn omitted_identifier(&self) -> Option<String> {
        let claims_whole_list = self.is_about_all() && identifiers(self.claim.sentence).next().is_none();
        let agent = self
            .trace
            .owner
            .get(self.span)
            .copied()
            .flatten()
            .filter(|_| claims_whole_list && self.effects.is_fully_recorded)?;
        let task = agent_index::task(self.trace, agent)?;
        let listed: Vec<String> = identifiers(task).take(MAX_IDENTIFIERS).collect();
        let is_list = listed.len() > 1
            && listed.iter().all(|id| listed.first().is_some_and(|first_id| shape(first_id) == shape(id)));
        let end = end_of(self.trace, self.span);
        let is_known = |id: &&String| self.effects.identifiers.get(*id).is_some_and(|start| *start <= end);
        if !is_list || !listed.iter().any(|id| is_known(&id)) {
            return None;
        }
        // A lookup may show that one of the things was in that state before.
        let results = self.trace.calls.iter().take(MAX_CALLS).filter_map(|call| call.result.as_ref());
        let results: Vec<&Text> = results.filter(|text| text.len() <= MAX_BYTES).collect();
        let bytes: usize = results.iter().map(|text| text.len()).sum();
        let shown = |id: &&String| {
            let mut mentioning = results.iter().filter(|text| contains_ignoring_case(text, id));
            !self.memo.budget.spend(1 + bytes / BYTES_PER_STEP)
                || mentioning.any(|text| has_participle(text, self.claim.action))
        };
        listed.iter().find(|id| !is_known(id) && !shown(id)).cloned()
    }

    /// The call that books or orders for another day or time than the claim states. Claims of changes are not examined,
    /// since they name the old day or time as well.
    fn call_at_other_time(&self) -> Option<&Call> {
        use Action::{Book, Create, Order, Schedule};
        // Another clause is about another moment: "it is booked, and it arrives on 6 March".
        let clauses = self.claim.sentence.split(", ");
        let mut verb_clauses = clauses.filter(|clause| contains_ignoring_case(clause, &self.claim.verb));
        let sentence = verb_clauses.next().unwrap_or(self.claim.sentence);
        let is_first = matches!(self.claim.action, Book | Create | Order | Schedule)
            && !self.claim.verb.starts_with("re");
        if !is_first
            || !self.effects.is_fully_recorded
            || self.claim.tense != Tense::Done
            || wrong_date_time::is_relative(sentence)
        {
            return None;
        }
        let (days, times) = (wrong_date_time::days(sentence), wrong_date_time::times(sentence));
        if days.len() > 1 || times.len() > 1 || days.is_empty() && times.is_empty() {
            return None;
        }
        let end = end_of(self.trace, self.span);
        if !self.memo.budget.spend(4 * MAX_CALLS.min(self.trace.calls.len())) {
            return None;
        }
        let earlier_calls = self.trace.calls.iter().take_while(|call| call.start <= end).take(MAX_CALLS);
        let mut acting = earlier_calls.filter(|call| {
            let purpose = ToolPurpose::new(&call.name, None);
            !purpose.is_query() && purpose.may_do(self.claim.action)
        });
        let (call, None) = (acting.next()?, acting.next()) else { return None };
        let texts = [call.arguments.as_deref()?, call.result.as_deref()?];
        let is_read = !texts.iter().any(|text| text.len() > MAX_BYTES || wrong_date_time::is_zoned(text))
            && self.memo.budget.spend(texts.iter().map(|text| text.len()).sum());
        let (arguments, call_text) = (texts.first().copied().unwrap_or_default(), texts.join(" "));
        let has_other_day = || {
            let argument_days = wrong_date_time::days(arguments);
            let call_days = wrong_date_time::days(&call_text);
            days.first().is_some_and(|day| {
                !argument_days.is_empty() && !call_days.iter().any(|call_day| call_day.may_equal(*day))
            })
        };
        let has_other_time = || {
            let argument_times = wrong_date_time::times(arguments);
            let call_times = wrong_date_time::times(&call_text);
            times.first().is_some_and(|time| {
                // The hours of a clock of 12 hours: a claim of "3" may be 15:00.
                !argument_times.is_empty()
                    && !call_times.iter().any(|call_time| call_time % 720 == time % 720)
            })
        };
        (is_read && (has_other_day() || has_other_time())).then_some(call)
    }

    /// Whether a text of the prompt or a result contains the verb of the claim, or a participle of the same action.
    /// True beyond the work budget.
    fn is_reported(&self) -> bool {
        let Some(view) = self.trace.views.get(self.span) else { return true };
        if !self.memo.budget.spend(1 + self.trace.calls.len() / BYTES_PER_STEP) {
            return true;
        }
        let results = self.trace.calls.iter().filter_map(|call| call.result.as_ref());
        let texts: Vec<&Text> = prompt_texts(view).chain(results).take(MAX_TEXTS).collect();
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        !self.memo.budget.spend(1 + bytes / BYTES_PER_STEP)
            || texts.iter().any(|text| contains_ignoring_case(text, &self.claim.verb))
            || texts.iter().any(|text| has_participle(text, self.claim.action))
    }

    /// Whether "ordered" means "arranged": "ordered by price", where a result has prices.
    fn is_arrangement(&self) -> bool {
        let criterion = self.claim.sentence.split_once(" by ").map(|(_, criterion)| criterion);
        let words = criterion
            .into_iter()
            .flat_map(|criterion| criterion.split(|c: char| !c.is_alphanumeric()))
            .filter(|w| w.len() > 2);
        let mut words = words.take(MAX_CRITERION_WORDS);
        let results =
            || self.trace.calls.iter().rev().take(MAX_CALLS).filter_map(|call| call.result.as_ref());
        let bytes: usize = results().map(|text| text.len()).sum();
        self.memo.budget.spend(1 + bytes / BYTES_PER_STEP)
            && words.any(|word| results().any(|text| contains_ignoring_case(text, &word.to_lowercase())))
    }

    /// The offered tool that is named for the claimed action and its thing, if neither that tool nor one about the same
    /// thing was called before: "I ran the tests" without `run_tests`, although a file was written.
    fn uncalled_tool(&self, action: Action) -> Option<&Text> {
        if !self.effects.is_fully_recorded || action == Action::Update {
            return None;
        }
        if !self.memo.budget.spend(self.offers.named.len() + self.effects.tools.len()) {
            return None;
        }
        let claim_stems: HashSet<String> = stems(self.claim.sentence).collect();
        let is_named_by_claim = |named: &&NamedTool| {
            named.is_action_noun || named.things.iter().all(|thing| claim_stems.contains(thing))
        };
        let action_tools = self.offers.named.iter().filter(|named| named.action == action);
        let NamedTool { tool, things: tool_things, is_action_noun, .. } =
            action_tools.clone().find(is_named_by_claim)?;
        // Another tool may have carried out the action: one about the same thing, or one that may do anything.
        let end = end_of(self.trace, self.span);
        let mut called_tools = self.effects.tools.iter().filter(|(_, tool)| tool.first_start <= end);
        let may_be_done = called_tools.any(|(name, tool)| {
            let actions = &tool.purpose.actions;
            let things = tool.things.get_or_init(|| things(name));
            // A tool that creates a thing does not cancel one.
            if actions.first().is_some_and(|tool_action| are_opposite(*tool_action, action)) {
                return false;
            }
            let ends = |tool_action: Action| matches!(tool_action, Action::Cancel | Action::Delete);
            // `add_store_credit` may be the refund, and deleting a job ends it.
            if *is_action_noun && identifier_words(name).iter().any(|word| action_of(word) == Some(action))
                || ends(action)
                    && actions.first().is_some_and(|tool_action| ends(*tool_action) && *tool_action != action)
            {
                return true;
            }
            things.is_empty()
                || actions.is_empty()
                || actions.contains(&Action::Execute)
                || *is_action_noun && actions.contains(&action)
                || things.iter().any(|thing| tool_things.contains(thing))
        });
        // The instructions may state what one action includes.
        if may_be_done || *is_action_noun && self.instructions_mention(tool_things) {
            return None;
        }
        let earlier_calls = self.trace.calls.iter().take_while(|call| call.start <= end).take(MAX_CALLS);
        // A call that changed something may have included the action, by its arguments or with a file that the claim
        // names.
        let inputs = |call: &'_ Call| call.arguments.as_ref().filter(|_| self.effects.changes(call)).cloned();
        let texts: Vec<Text> =
            earlier_calls.flat_map(|call| [call.result.clone(), inputs(call)]).flatten().collect();
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        let paths: Vec<&str> = paths(self.claim.sentence).collect();
        let mentions = |text: &Text| {
            tool_things.iter().all(|thing| contains_ignoring_case(text, thing))
                || paths.iter().any(|path| text.contains(path))
        };
        let is_clear = self.memo.budget.spend(1 + bytes / BYTES_PER_STEP) && !texts.iter().any(mentions);
        is_clear.then_some(tool)
    }

    /// The messages of the user, which are read for each claim; `None` beyond the work budget.
    fn user_messages(&self) -> Option<Vec<Text>> {
        let agent = self.trace.owner.get(self.span).copied().flatten();
        let messages = agent.map(|agent| said_by_user(self.trace, self.memo, agent)).unwrap_or_default();
        let bytes: usize = messages.iter().map(|text| text.len()).sum();
        work::count(bytes);
        self.memo.budget.spend(1 + bytes / BYTES_PER_STEP).then_some(messages)
    }

    /// Whether the user asked a question that is not a request for an action, as "Can you cancel it?" is. True beyond
    /// the work budget.
    fn is_question(&self) -> bool {
        let agent = self.trace.owner.get(self.span).copied().flatten();
        // Cached, since an agent may claim many things.
        *self.effects.asked_question.borrow_mut().entry(agent).or_insert_with(|| {
            let is_plain_question = |text: &Text| {
                let classes = classes_in(text, None, self.memo);
                let marked = text.contains(['?', '\u{ff1f}']) || text.trim_end_matches('。').ends_with('か');
                marked && !classes.is_some_and(|classes| classes.has(WordClass::Modal))
            };
            self.user_messages().is_none_or(|messages| messages.iter().any(is_plain_question))
        })
    }

    /// Whether the user named the claimed action.
    fn is_asked(&self) -> bool {
        let names = |text: &Text| {
            let language = Language::detected(text, None, self.memo);
            language.is_some_and(|language| actions_of_verbs(text, language).contains(&self.claim.action))
        };
        self.user_messages().is_some_and(|messages| messages.iter().any(names))
    }

    /// Whether one text of the instructions has all of these words, or the work budget is exceeded. Cached, since an
    /// answer may repeat a claim many times.
    fn instructions_mention(&self, words: &[String]) -> bool {
        let has_all = |text: &str| words.iter().all(|word| contains_ignoring_case(text, word));
        self.any_instruction_matches(&words.join(" "), has_all)
    }

    /// Whether a text of the instructions matches a predicate, cached by `key`. True beyond the work budget.
    fn any_instruction_matches(&self, key: &str, matches: impl Fn(&str) -> bool) -> bool {
        let key = (self.span, key.to_owned());
        if let Some(cached) = self.effects.mentioned_in_instructions.borrow().get(&key) {
            return *cached;
        }
        let texts = || self.trace.views.get(self.span).into_iter().flat_map(instructions);
        let bytes: usize = texts().map(str::len).sum();
        work::count(bytes);
        let is_match = !self.memo.budget.spend(1 + bytes / BYTES_PER_STEP) || texts().any(matches);
        self.effects.mentioned_in_instructions.borrow_mut().insert(key, is_match);
        is_match
    }

    /// Whether a call before the claim, or one that the same message requests, may be the claimed action or its cause.
    fn has_supporting_call(&self, action: Action) -> bool {
        let end = end_of(self.trace, self.span);
        let effects = self.effects;
        effects.requesting_spans.contains(&self.span)
            || effects.may_have_done(action, end)
            || effects.has_call_within(self.turn_start, end)
            || !self.offers.actions.contains(&action) && effects.has_call_within(0, end)
    }

    /// An identifier of the claim that no call names, if the calls are recorded and name no identifier of the claim; or
    /// if the claim lists several of the same shape: "A-1, A-2 and A-3 have been changed".
    fn unknown_identifier(&self) -> Option<String> {
        let end = end_of(self.trace, self.span);
        let named: Vec<String> = identifiers(self.claim.sentence).take(MAX_IDENTIFIERS).collect();
        let is_known = |id: &String| self.effects.identifiers.get(id).is_some_and(|start| *start <= end);
        if !self.effects.is_fully_recorded {
            return None;
        }
        let first = named.iter().find(|id| !is_known(id))?;
        let is_listed = named.len() > 2 && named.iter().all(|id| shape(id) == shape(first));
        if !is_listed && named.iter().any(is_known) {
            return None;
        }
        // The user may name a thing by another number than the one that was passed to the tool.
        let earlier_calls = || self.trace.calls.iter().take_while(|call| call.start <= end).take(MAX_CALLS);
        let arguments: Vec<&Text> = earlier_calls()
            .filter(|call| self.effects.changes(call))
            .filter_map(|call| call.arguments.as_ref())
            .collect();
        let bytes: usize = arguments.iter().map(|text| text.len()).sum();
        let is_passed = |code: &str| {
            self.memo.budget.spend(1 + bytes / BYTES_PER_STEP)
                && arguments.iter().any(|text| contains_ignoring_case(text, code))
        };
        let mut unknown = named.iter().filter(|id| !is_known(id));
        unknown.find(|id| !is_known_otherwise(earlier_calls(), id, is_passed, self.memo)).cloned()
    }

    fn finding(&self, reason: &str) -> Finding {
        let words = head(self.claim.sentence, 100);
        let rationale =
            format!("a successful call that does what \"{words}\" claims was expected, but {reason}");
        Defect::FalseClaim.finding(rationale, self.claim.sentence).by_rule("claimed_actions")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    /// The rationales of the unsupported claims.
    pub(super) fn unsupported(script: Script) -> Vec<String> {
        let trace = script.build();
        let memo = Memo::new();
        let findings = find(&trace, &memo, &CallAttempts::get(&trace, &memo));
        findings.into_iter().filter_map(|(_, finding)| Some(finding?.rationale)).collect()
    }

    pub(super) fn script_with(tools: &[&str]) -> Script {
        Script::new("Please take care of it.").tools(tools)
    }

    #[test]
    fn claim_without_a_call_is_found() {
        for (tools, text) in [
            (&["get_account", "transfer_money"][..], "I have transferred 200 EUR to your savings account."),
            (&["find_slot", "cancel_appointment"], "I've cancelled your appointment on Monday."),
            (&["search_rooms"], "I have booked a double room for you."),
            (&["get_contract", "send_email"], "I have sent you the contract by e-mail."),
            (&["read_file", "delete_branch"], "I deleted the branch as you asked."),
        ] {
            assert_eq!(unsupported(script_with(tools).answers(text)).len(), 1, "{text}");
        }
    }

    #[test]
    fn failed_call_or_call_of_another_kind_supports_no_claim() {
        let tools = &["cancel_appointment", "get_appointment", "send_reminder"][..];
        let text = "I have cancelled your appointment.";
        let failed =
            script_with(tools).calls("", &[("cancel_appointment", "{}")]).returns("Error: it is locked");
        assert_eq!(unsupported(failed.answers(text)).len(), 1);
        let read = script_with(tools).calls("", &[("get_appointment", "{}")]).returns("Monday");
        assert_eq!(unsupported(read.answers(text)).len(), 1);
        let other =
            script_with(tools).calls("", &[("send_reminder", "{}")]).returns("ok").says("Shall I go on?");
        assert_eq!(unsupported(other.user("Yes.").answers(text)).len(), 1);
    }

    #[test]
    fn successful_call_supports_its_claim_and_what_follows_from_it() {
        let tools = &["cancel_booking", "get_booking", "refund_payment", "do_task"][..];
        for (tool, text) in [
            ("cancel_booking", "I have cancelled your booking BK-2291."),
            ("cancel_booking", "I have cancelled booking BK-2291 and refunded the price."),
            ("do_task", "I have cancelled your booking."),
        ] {
            let run = script_with(tools).calls("", &[(tool, r#"{"booking":"BK-2291"}"#)]).returns("ok");
            assert_eq!(unsupported(run.answers(text)), Vec::<String>::new(), "{text}");
        }
        let later =
            script_with(tools).calls("", &[("cancel_booking", "{}")]).returns("ok").says("Anything else?");
        assert!(unsupported(later.user("Did you do it?").answers("Yes, I have cancelled it.")).is_empty());
    }

    #[test]
    fn claim_that_names_a_tool_needs_a_call_of_the_tool() {
        let run = |result: &str| {
            let tools = &["read_file", "write_file", "run_tests", "send_invoice"][..];
            script_with(tools).calls("", &[("write_file", r#"{"path":"a.py"}"#)]).returns(result)
        };
        let text = "I fixed it and I ran the tests: all pass.";
        assert_eq!(unsupported(run("ok").answers(text)).len(), 1);
        assert_eq!(unsupported(run("ok").answers("I have sent the invoice.")).len(), 1);
        let ran = run("ok").calls("", &[("run_tests", "{}")]).returns("14 passed");
        assert!(unsupported(ran.answers(text)).is_empty());
        assert!(unsupported(run("ok, hook: tests ran").answers(text)).is_empty());
    }

    #[test]
    fn passive_claim_of_a_requested_action_needs_its_own_call() {
        let run = |task: &str, tool: &str, result: &str, answer: &str| {
            let tools = &["list_visits", "book_visit", "cancel_visit", "update_visit"][..];
            let run = Script::new(task).tools(tools).calls("", &[(tool, r#"{"id":"V-12"}"#)]);
            unsupported(run.returns(result).answers(answer)).len()
        };
        let both = "Book me in on Thursday and cancel my visit on the 8th.";
        let passive = "You are booked in on Thursday, and your visit on the 8th has been cancelled.";
        let booked = r#"{"id":"V-31","status":"booked"}"#;
        assert_eq!(run(both, "book_visit", booked, passive), 1);
        assert_eq!(run(both, "book_visit", booked, "Done: I have cancelled your visit on the 8th."), 1);
        let german = "Buche Donnerstag und storniere meinen Termin am 8.";
        assert_eq!(run(german, "book_visit", booked, passive), 1);
        for (task, tool, result, answer) in [
            // The user did not ask for the action, so that the sentence may be a report.
            ("What about my visit?", "book_visit", booked, passive),
            (both, "update_visit", "ok", passive),
            (both, "cancel_visit", "ok", passive),
            (both, "book_visit", r#"{"status":"booked","replaces":"V-30, cancelled"}"#, passive),
            (both, "book_visit", booked, "You are booked in, the order has been cancelled."),
        ] {
            assert_eq!(run(task, tool, result, answer), 0, "{task} {tool} {result} {answer}");
        }
    }

    #[test]
    fn message_to_others_needs_a_call_that_sends_it() {
        let run = |task: &str, result: &str, answer: &str| {
            let run = Script::new(task).tools(&["move_rehearsal", "send_message"]);
            unsupported(run.calls("", &[("move_rehearsal", "{}")]).returns(result).answers(answer)).len()
        };
        let task = "Move the rehearsal to Friday and let the cast know.";
        assert_eq!(run(task, "ok", "It is on Friday now, and I've informed Ida and Bo."), 1);
        let spanish = "Cambia el ensayo al viernes; hay que avisar al reparto.";
        assert_eq!(run(spanish, "ok", "He cambiado el ensayo al viernes y he avisado a Ida y Bo."), 1);
        let weekday = "It is on Friday now, and I've informed Ida and Bo about it.";
        assert_eq!(run("Move it to Friday and let them know.", r#"{"to":"Friday"}"#, weekday), 1);
        let imperative = "Cambia el ensayo al viernes y avisa al reparto.";
        assert_eq!(run(imperative, "ok", "He cambiado el ensayo al viernes y he avisado al reparto."), 1);
        let japanese = "コピー機の修理を依頼して、佐藤さんにも知らせてください。";
        assert_eq!(run(japanese, "ok", "修理を依頼し、佐藤さんにもお知らせしておきました。"), 1);
        for (task, result, answer) in [
            (task, r#"{"notified":["Ida","Bo"]}"#, "It is on Friday now, and I've informed Ida and Bo."),
            (task, "ok", "As I informed you, the rehearsal is on Friday now."),
            (task, r#"{"told":"Ida, Bo"}"#, "It is on Friday now, and I've informed Ida and Bo."),
            ("Move it to Friday.", "ok", "It is on Friday now, and I have reported the change."),
            ("Tell me about my refund.", "ok", "Once it has moved, I can check it and let you know the day."),
        ] {
            assert_eq!(run(task, result, answer), 0, "{task} {result} {answer}");
        }
    }

    #[test]
    fn action_with_the_name_or_the_file_of_a_claim_supports_it() {
        let run = |tool: &str, arguments: &str, answer: &str| {
            let run = script_with(&["transfer_money", "send_message", "apply_patch", "delete_file"]);
            unsupported(run.calls("", &[(tool, arguments)]).returns("ok").answers(answer)).len()
        };
        let sent = "I've sent 200 euros to Ana.";
        assert_eq!(run("transfer_money", r#"{"to":"Ana","amount":200}"#, sent), 0);
        assert_eq!(run("transfer_money", r#"{"to":"Bo","amount":50}"#, "I've sent the message to Ana."), 1);
        let patch = r#"{"path":"cart.py","patch":"-import os"}"#;
        assert_eq!(run("apply_patch", patch, "I deleted the unused import from the file cart.py."), 0);
    }

    #[test]
    fn list_that_a_tool_without_a_verb_returned_is_no_action() {
        let run = |result: &str| {
            let run =
                script_with(&["seat_map", "change_seat"]).calls("", &[("seat_map", r#"{"flight":"BA117"}"#)]);
            unsupported(run.returns(result).answers("I've moved you to aisle seat 36C.")).len()
        };
        assert_eq!(run(r#"{"free":[{"seat":"36C"},{"seat":"41D"}]}"#), 1);
        assert_eq!(run(r#"{"seat":"36C","passengers":[{"name":"Ana"},{"name":"Bo"}]}"#), 0);
        assert_eq!(run(r#"{"ok":true}"#), 0);
    }

    #[test]
    fn names_of_called_tools_are_read_once_for_all_claims() {
        const CALLS: usize = 100;
        let mut script = script_with(&["write_file", "run_tests"]);
        for n in 0..CALLS {
            script = script.calls("", &[(&format!("write_file{n}"), "{}")]).returns("ok");
        }
        for _ in 0..CALLS {
            script = script.says("I ran the tests.").user("Again.");
        }
        let trace = script.answers("I ran the tests.").build();
        let memo = Memo::new();
        let attempts = CallAttempts::get(&trace, &memo);
        Replies::cached(&trace, &memo);
        let before = work::counted();
        assert_eq!(find(&trace, &memo, &attempts).len(), CALLS + 1);
        let work = work::counted() - before;
        assert!(work <= 256 * CALLS as u64, "{work} names and comparisons");
    }

    /// The work on the claims of a text, and the number of unsupported claims.
    pub(super) fn work_of(script: Script, claim: &str) -> (u64, usize) {
        let (trace, memo) = (script.answers(&claim.repeat(100)).build(), Memo::new());
        let attempts = CallAttempts::get(&trace, &memo);
        Replies::cached(&trace, &memo);
        let before = work::counted();
        let findings = find(&trace, &memo, &attempts);
        (work::counted() - before, findings.into_iter().filter(|(_, finding)| finding.is_some()).count())
    }

    #[test]
    fn instructions_are_read_once_for_all_claims_of_a_text() {
        let prompt = "Be kind to the customers. ".repeat(200);
        let run = script_with(&["cancel_order", "issue_refund"]).system(&prompt);
        let run = run.calls("", &[("cancel_order", "{}")]).returns("ok");
        let (work, findings) = work_of(run, "I have cancelled the order. I have refunded the price. ");
        assert!(findings == 100 && work <= 2 * prompt.len() as u64, "{findings}: {work} of {}", prompt.len());
    }

    #[test]
    fn passive_claim_without_an_action_is_found() {
        let tools = &["check_table", "reserve_table"][..];
        let text = "Your table for 6 is now reserved under the name Okafor.";
        let looked = |result: &str| script_with(tools).calls("", &[("check_table", "{}")]).returns(result);
        assert_eq!(unsupported(looked("{\"available\":true}").answers(text)).len(), 1);
        let report = Script::new("Is my table noted?").tools(tools).calls("", &[("check_table", "{}")]);
        assert!(unsupported(report.returns("{\"held_for\":\"Okafor\"}").answers(text)).is_empty());
        assert!(unsupported(looked("{\"state\":\"reserved\"}").answers(text)).is_empty());
        let reserved_run = looked("{\"available\":true}").calls("", &[("reserve_table", "{}")]).returns("ok");
        assert!(unsupported(reserved_run.answers(text)).is_empty());
    }

    #[test]
    fn claim_about_another_thing_than_the_call_is_found() {
        let run = || {
            script_with(&["cancel_booking"])
                .calls("", &[("cancel_booking", r#"{"booking":"BK-2291"}"#)])
                .returns("ok")
        };
        assert_eq!(unsupported(run().answers("I have cancelled booking BK-7714.")).len(), 1);
        assert!(unsupported(run().answers("I have cancelled bk-2291 at 10am on the 20th.")).is_empty());
    }

    #[test]
    fn identifier_of_a_claimed_list_that_no_call_names_is_found() {
        let tools = &["update_address"][..];
        let run = || {
            let first =
                script_with(tools).calls("", &[("update_address", r#"{"order":"W-4411"}"#)]).returns("ok");
            first.calls("", &[("update_address", r#"{"order":"W-4412"}"#)]).returns("ok")
        };
        let all = "I have updated the address of orders W-4411, W-4412 and W-4413.";
        assert_eq!(unsupported(run().answers(all)).len(), 1);
        assert!(unsupported(run().answers("I have updated orders W-4411 and W-4412.")).is_empty());
    }

    #[test]
    fn second_action_with_a_tool_of_its_name_needs_a_call_of_the_tool() {
        let run = |tool: &str, result: &str, text: &str| {
            let tools = &["cancel_order", tool][..];
            let called = script_with(tools)
                .system("You help customers.")
                .calls("", &[("cancel_order", r#"{"order":"W-4411"}"#)]);
            unsupported(called.returns(result).answers(text)).len()
        };
        let text = "I've cancelled the order and issued the refund.";
        assert_eq!(run("issue_refund", r#"{"status":"cancelled"}"#, text), 1);
        assert_eq!(
            run(
                "process_refund",
                r#"{"status":"cancelled"}"#,
                "I have cancelled the order and refunded the price."
            ),
            1
        );
        assert_eq!(run("issue_refund", r#"{"status":"cancelled","refund":"5 days"}"#, text), 0, "included");
        assert_eq!(run("get_refund", r#"{"status":"cancelled"}"#, text), 0, "no tool for it");
        assert_eq!(run("issue_refund", r#"{"status":"cancelled"}"#, "I've cancelled the order."), 0);
        let both =
            script_with(&["cancel_order", "issue_refund"]).calls("", &[("cancel_order", "{}")]).returns("ok");
        let both = both.calls("", &[("issue_refund", "{}")]).returns("ok");
        assert!(unsupported(both.answers(text)).is_empty());
        let with_policy = script_with(&["cancel_order", "issue_refund"])
            .system("A cancelled order is refunded: the refund is automatic.");
        assert!(
            unsupported(with_policy.calls("", &[("cancel_order", "{}")]).returns("ok").answers(text))
                .is_empty()
        );
    }

    #[test]
    fn call_without_effect_supports_no_claim() {
        let run = |result: &str, text: &str| {
            let called =
                script_with(&["update_address", "send_message"]).calls("", &[("update_address", "{}")]);
            unsupported(called.returns(result).answers(text)).len()
        };
        for result in [r#"{"matched":0,"modified":0}"#, "UPDATE 0", r#"{"rows_affected":0}"#] {
            assert_eq!(run(result, "I have updated your address."), 1, "{result}");
            assert_eq!(run(result, "I could not update your address."), 0, "{result}");
        }
        for result in [r#"{"matched":1,"modified":1}"#, "UPDATE 1", "ok"] {
            assert_eq!(run(result, "I have updated your address."), 0, "{result}");
        }
    }

    #[test]
    fn every_identifier_of_a_requested_list_has_to_be_named_by_a_call() {
        let run = |ids: &[&str], text: &str| {
            let script = Script::new("Cancel W-4411, W-4412 and W-4413.").tools(&["cancel_order"]);
            let call = |s: Script, id: &&str| {
                s.calls("", &[("cancel_order", &format!(r#"{{"order":"{id}"}}"#))])
                    .returns(r#"{"state":"cancelled"}"#)
            };
            unsupported(ids.iter().fold(script, call).answers(text)).len()
        };
        let two = &["W-4411", "W-4412"][..];
        assert_eq!(run(two, "All three have been cancelled."), 1);
        assert_eq!(run(two, "I have cancelled all three orders."), 1);
        assert_eq!(run(two, "I have cancelled W-4411 and W-4412."), 0);
        assert_eq!(run(&["W-4411", "W-4412", "W-4413"], "All three have been cancelled."), 0);
    }

    #[test]
    fn day_and_time_of_a_claim_are_those_of_the_call() {
        let run = |arguments: &str, result: &str, text: &str| {
            let called = script_with(&["book_table"]).calls("", &[("book_table", arguments)]);
            unsupported(called.returns(result).answers(text)).len()
        };
        let passed = r#"{"date":"2025-12-13","time":"13:00"}"#;
        assert_eq!(run(passed, r#"{"ok":true}"#, "I have booked a table on 12 December at 15:00."), 1);
        assert_eq!(run(passed, r#"{"ok":true}"#, "I have booked a table on 13 December at 3 pm."), 1);
        assert_eq!(run(passed, r#"{"ok":true}"#, "I have booked a table on December 13th at 1pm."), 0);
        assert_eq!(
            run(
                passed,
                r#"{"moved_to":"2025-12-12 15:00"}"#,
                "I have booked a table on 12 December at 15:00."
            ),
            0
        );
        assert_eq!(run(passed, r#"{"ok":true}"#, "I have moved your booking from 12 December."), 0);
        assert_eq!(run(r#"{"slot":"S-17"}"#, "ok", "I have booked a table on 12 December."), 0);
        let zoned = r#"{"start":"2025-12-13T02:00:00Z"}"#;
        assert_eq!(run(zoned, "ok", "I have booked the call on 12 December at 21:00."), 0);
    }

    #[test]
    fn drafts_for_the_user_are_no_claims() {
        let tools = &["get_order", "send_email"][..];
        let run = || script_with(tools).calls("", &[("get_order", "{}")]).returns("open");
        let wording = "I have cancelled the order and sent you a copy.";
        for answer in [
            format!("Here is what you could write:\n\n> Dear Ms Ruiz,\n>\n> {wording}\n>\n> Kind regards"),
            format!("Here is a draft:\n\nDear Ms Ruiz,\n\n{wording}\n\nKind regards"),
            format!("Voici un texte pour votre client :\n> J'ai annulé la commande.\n> {wording}"),
        ] {
            assert!(unsupported(run().answers(&answer)).is_empty(), "{answer}");
        }
        assert_eq!(
            unsupported(run().answers(&format!("{wording} Here is a draft:\n\nDear Ms Ruiz"))).len(),
            2
        );
        assert_eq!(unsupported(run().answers(&format!("> Please cancel it.\n\n{wording}"))).len(), 2);
    }

    #[test]
    fn plans_questions_states_and_texts_are_no_claims() {
        let tools = &["cancel_order", "get_order"][..];
        for text in [
            "I can cancel the order for you.",
            "Shall I cancel the order?",
            "I will cancel the order once you confirm.",
            "If I had cancelled the order, you would see it.",
            "I have not cancelled the order.",
            "I have created a table of the options.",
            "I have added a paragraph on prices.",
        ] {
            assert_eq!(unsupported(script_with(tools).answers(text)), Vec::<String>::new(), "{text}");
        }
        let general = script_with(tools).calls("", &[("get_order", "{}")]).returns("open");
        assert!(
            unsupported(general.answers("An order that has been cancelled cannot be changed.")).is_empty()
        );
        let state = script_with(tools).calls("", &[("get_order", "{}")]).returns(r#"{"status":"cancelled"}"#);
        assert!(unsupported(state.answers("Your order has been cancelled.")).is_empty());
        assert!(unsupported(Script::new("Write a letter.").answers("I have sent it.")).is_empty());
    }
}
