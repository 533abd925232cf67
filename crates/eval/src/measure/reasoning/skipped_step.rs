//! Steps that the instructions require before an action, and that the run skipped: "Before any change to a policy, call
//! `send_otp`", and a change of the address without this call.
//!
//! Principle: where instructions require a call of a tool before an action, each call for that action needs an earlier
//! call of the tool, with any result. An earlier result which states that the step was done (`verified: true`)
//! replaces the call. A confirmation of the user is such a step as well, and needs a message of the user before the
//! action. A sentence with a condition or a choice is not compared, nor one about a thing that neither the call nor
//! the user names. [`sequences`] reads procedures.
//!
//! In: the instructions, the offered tools and the calls of an agent. Out: one finding for each agent, on the model
//! span that requested the call.

mod request_verbs;
mod sequences;
mod word_roots;

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use foldhash::{HashMap, HashSet};
use verdict_otlp::trace::Idx;
use verdict_otlp::work;

use word_roots::{have_same_beginning, root};
pub(super) use {request_verbs::actions_of_verbs, word_roots::have_same_root};

use super::answer::sentences;
use super::conduct::Conduct;
use crate::measure::defects::Defect;
use crate::measure::identifier::identifier_words;
use crate::measure::language::{
    Action, ClassifiedWord, ClassifiedWords, Language, ReadText, WordClass, WordClasses, classes, classes_of,
};
use crate::measure::numbers::has_digit;
use crate::measure::records::{FieldValue, Structure};
use crate::measure::tool_purpose::{Purpose, ToolPurpose, is_of_kind, offered_tools, purpose, stems};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::measure::{Finding, Memo, agent_index};
use crate::recognise::{Call, Part, Role, Text};

/// Maximum bytes of instructions that are read.
const MAX_BYTES: usize = 32 << 10;
/// Maximum bytes of a sentence of the instructions that is read.
const MAX_SENTENCE_BYTES: usize = 400;
/// Maximum calls of an agent that are read.
const MAX_CALLS: usize = 100;
/// Maximum required orders of the instructions.
const MAX_ORDERS: usize = 64;
/// Maximum bytes of all messages of the user; longer dialogues are not examined.
const MAX_USER_BYTES: usize = 64 << 10;
/// Maximum arguments of a call whose names are compared.
const MAX_ARGUMENTS: usize = 64;

/// Characters that end a clause.
const CLAUSE_DELIMITERS: [char; 9] = [',', ':', ';', '(', '\n', '，', '、', '：', '；'];
/// Maximum number of words between "only" and "after".
const MAX_GAP_WORDS: usize = 3;
/// Classes of words by which a sentence may require an order of actions.
const ORDER_CLASSES: WordClasses = classes!(Before Restriction);
/// Classes of words by which a step is not always required. A digit has the same effect.
const CONDITION: WordClasses = classes!(
    Condition Probability Restriction Sequence Alternative Exception Bound Advice
);
/// Classes of words by which a confirmation is not always required.
const CONSENT_CONDITION: WordClasses = classes!(Condition Exception Bound);
/// Classes of words that are not the object of an action.
const NO_OBJECT: WordClasses = classes!(AnyAction Client);
/// Classes of words by which a request confirms an action in advance.
const AGREEMENT: WordClasses = classes!(AtOnce Confirmation);

/// An order that the instructions require: steps, and an action after them.
struct RequiredOrder {
    /// The tools of the steps, in order.
    steps: Vec<String>,
    /// Whether the user has to confirm the action.
    needs_consent: bool,
    /// The part of the sentence that describes the action.
    action_text: String,
    /// Whether that part names a tool.
    names_tool: bool,
    /// Whether the sentence is about every action: "make any change".
    is_any: bool,
    /// The actions of the verbs in that part.
    actions: Vec<Action>,
    /// The stems of the words for the object of the action.
    objects: Vec<String>,
    sentence: String,
}

/// The orders of one text of instructions with one list of tools, as they are cached.
struct Orders(Vec<RequiredOrder>);

/// The orders that instructions require, with these distinct names of tools.
fn read_orders(text: &str, tools: Vec<&str>) -> Vec<RequiredOrder> {
    let memo = &Memo::new();
    let Some(language) = Language::detected(text, None, memo) else { return Vec::new() };
    let words = language.places(text, memo);
    let requires_consent =
        || words.all().has_any(classes!(Obligation Negation)) && language.mentions_consent(text);
    let names_tool = tools.iter().any(|tool| text.contains(tool));
    let has_orders = (words.all().has_any(ORDER_CLASSES) || requires_consent())
        && (words.all().has(WordClass::Confirmation) || names_tool || language.mentions_consent(text));
    if !has_orders && !names_tool {
        return Vec::new();
    }
    let instructions = Instructions { text, tools, language, words };
    let parts = sentences(text).into_iter().filter_map(|(start, end)| text.get(start..end));
    let parts = parts.filter(|_| has_orders).flat_map(|part| part.split('。'));
    let orders = parts.filter_map(|sentence| instructions.order(sentence));
    orders.take(MAX_ORDERS).chain(instructions.sequences().into_iter().take(MAX_ORDERS)).collect()
}

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, attempts, agent_index, .. } = *conduct;
    let calls: Vec<(usize, &Call)> = conduct.calls(MAX_CALLS).collect();
    // In most runs, which only look things up, the instructions need not be read.
    let is_successful_change = |(at, call): &(usize, &Call)| {
        call.llm.is_some() && attempts.has_succeeded(*at) && purpose(trace, memo, call) != Purpose::Query
    };
    if !calls.iter().any(is_successful_change) {
        return None;
    }
    let text = agent_index::instructions(trace, agent_index).filter(|text| text.len() <= MAX_BYTES)?;
    let tools: Vec<&str> =
        offered_tools(trace, agent_index).map(|tool| &*tool.name).filter(|name| is_distinct(name)).collect();
    if !memo.budget.spend(text.len() / 16 * (2 + tools.len() / 8)) {
        return None;
    }
    // NUL separates the text and the names of the tools in the key of the cache.
    let key = [&**text].iter().chain(&tools).copied().collect::<Vec<&str>>().join("\0");
    let orders = memo.recurring(&key, || Orders(read_orders(text, tools)));
    let Orders(orders) = &*orders;
    let user_texts = conduct.user_messages();
    let bytes: usize = user_texts.iter().map(|text| text.len()).sum();
    if orders.is_empty() || bytes > MAX_USER_BYTES || !memo.budget.spend(bytes / BYTES_PER_STEP) {
        return None;
    }
    let agent_calls =
        AgentCalls { conduct, calls, user_texts, user_roots: OnceCell::new(), prompts: RefCell::default() };
    orders.iter().find_map(|order| agent_calls.skipped_step(order))
}

/// The calls of an agent, and the texts before them.
struct AgentCalls<'t> {
    conduct: &'t Conduct<'t>,
    calls: Vec<(usize, &'t Call)>,
    user_texts: Vec<Text>,
    /// The roots of the words in the user's messages, see [`root`].
    user_roots: OnceCell<HashSet<(bool, String)>>,
    /// By model call, its prompt.
    prompts: RefCell<HashMap<Idx, Rc<ModelPrompt>>>,
}

/// The prompt of a model call.
struct ModelPrompt {
    /// The number of messages of the user.
    user_message_count: usize,
    /// The names in lower case of the tools whose calls are in the prompt.
    called_tools: HashSet<String>,
}

impl<'t> AgentCalls<'t> {
    /// The finding on the first call without a step that the order requires before it. `None` beyond the work budget.
    fn skipped_step(&self, order: &RequiredOrder) -> Option<(Idx, Finding)> {
        let Conduct { memo, attempts, .. } = *self.conduct;
        let is_step = |name: &str| order.steps.iter().any(|step| step.eq_ignore_ascii_case(name.trim()));
        let finding = |expected: &str, call: &Call| {
            let rationale = format!(
                "{expected} was expected before {}, since the instructions say: \"{}\"",
                call.name.trim(),
                order.sentence.trim()
            );
            self.conduct.finding(Defect::StepSkipped, rationale, call)
        };
        for (at, call) in &self.calls {
            if !memo.budget.spend(1 + (order.action_text.len() + order.steps.len()) / BYTES_PER_STEP) {
                return None;
            }
            let has_run = attempts.has_succeeded(*at) && !is_step(&call.name);
            let Some(llm) = call.llm.filter(|_| has_run && self.is_ordered_action(call, order)) else {
                continue;
            };
            let prompt = self.prompt(llm)?;
            if order.needs_consent && !self.has_consent(&prompt) {
                return finding("a confirmation of the user", call);
            }
            if !memo.budget.spend(order.steps.len() * (1 + self.calls.len() / 4)) {
                return None;
            }
            let mut skipped = order.steps.iter().filter(|step| {
                let earlier = self.calls.iter().take_while(|(_, other)| other.start < call.start);
                !prompt.called_tools.contains(&step.to_ascii_lowercase())
                    && !earlier.into_iter().any(|(_, other)| other.name.trim().eq_ignore_ascii_case(step))
            });
            let Some(skipped) = skipped.next() else { continue };
            if !self.is_reported_done(call, skipped)? {
                return finding(&format!("a call of {skipped}"), call);
            }
        }
        None
    }

    /// The content of the prompt of a model call, read once; `None` beyond the work budget.
    fn prompt(&self, llm: Idx) -> Option<Rc<ModelPrompt>> {
        if let Some(prompt) = self.prompts.borrow().get(&llm) {
            return Some(prompt.clone());
        }
        let messages = self.conduct.trace.views.get(llm).map_or(&[][..], |view| &view.input);
        let parts: usize = messages.iter().map(|message| message.parts.len()).sum();
        self.conduct.memo.budget.spend(1 + messages.len() + parts).then_some(())?;
        work::count(parts);
        let calls = messages.iter().flat_map(|message| &message.parts).filter_map(|part| match part {
            Part::Call(call) => Some(call.name.trim().to_ascii_lowercase()),
            _ => None,
        });
        let user_message_count = messages.iter().filter(|message| message.role == Role::User).count();
        let prompt = Rc::new(ModelPrompt { user_message_count, called_tools: calls.collect() });
        self.prompts.borrow_mut().insert(llm, prompt.clone());
        Some(prompt)
    }

    /// Whether the user wrote a message after the request and before a model call, or the request itself confirms.
    fn has_consent(&self, prompt: &ModelPrompt) -> bool {
        prompt.user_message_count != 1
            || self.user_texts.first().is_none_or(|task| {
                let analysed_task = ReadText::new(task, None, self.conduct.memo);
                analysed_task.agrees() || analysed_task.classes(task).has_any(AGREEMENT)
            })
    }

    /// Whether a call is the action of an order: the order names its tool, or has its action and objects that the call
    /// or the user names.
    fn is_ordered_action(&self, call: &Call, order: &RequiredOrder) -> bool {
        let name = call.name.trim();
        if order.names_tool {
            return order.action_text.contains(name) && is_distinct(name);
        }
        // A draft is created so that it can be confirmed, and needs no confirmation itself.
        if is_of_kind("prepares", &identifier_words(name)) {
            return false;
        }
        let purpose = ToolPurpose::for_call(self.conduct.trace, self.conduct.memo, call);
        let Some(first) = purpose.actions.first().filter(|_| !purpose.is_query()) else { return false };
        if order.is_any {
            return true;
        }
        if !order.actions.contains(first) {
            return false;
        }
        let passed = call.parsed.as_deref().and_then(serde_json::Value::as_object).into_iter().flatten();
        let mut call_words: Vec<String> =
            passed.take(MAX_ARGUMENTS).flat_map(|(key, _)| identifier_words(key)).collect();
        call_words.extend(identifier_words(name));
        if !self.conduct.memo.budget.spend(1 + call_words.len() * order.objects.len() / 4) {
            return false;
        }
        let user_roots = self.user_roots.get_or_init(|| {
            let texts = self.user_texts.iter().inspect(|text| work::count(text.len()));
            let root_of = |word: String| {
                let (is_long, root) = root(&word);
                (is_long, root.to_owned())
            };
            texts.flat_map(|text| stems(text)).map(root_of).collect()
        });
        let is_known = |word: &String| {
            let (is_long, root) = root(word);
            call_words.iter().any(|call_word| have_same_root(call_word, word))
                || user_roots.contains(&(is_long, root.to_owned()))
        };
        order.objects.iter().all(is_known)
    }

    /// Whether an earlier result states that the step was done; `None` beyond the work budget.
    fn is_reported_done(&self, call: &Call, step: &str) -> Option<bool> {
        let step = identifier_words(step);
        let earlier =
            self.conduct.trace.calls.iter().take(MAX_CALLS).take_while(|other| other.start < call.start);
        for result in earlier.filter_map(|other| other.result.as_ref()) {
            let structure = Structure::cached(result, self.conduct.memo)?;
            let Structure(Some(parsed)) = &*structure else { continue };
            let fields = || parsed.records.iter().flat_map(|record| &record.fields);
            self.conduct.memo.budget.spend(1 + fields().count() / 4).then_some(())?;
            let mut true_fields = fields().filter(|field| field.value == FieldValue::Bool(true));
            if true_fields.any(|field| {
                field
                    .name
                    .iter()
                    .any(|word| step.iter().any(|step_word| have_same_beginning(word, step_word)))
            }) {
                return Some(true);
            }
        }
        Some(false)
    }
}

/// Whether a tool's name cannot be an ordinary word of a sentence.
fn is_distinct(name: &str) -> bool {
    let has_inner_capital =
        name.bytes().zip(name.bytes().skip(1)).any(|(a, b)| a.is_ascii_lowercase() && b.is_ascii_uppercase());
    name.contains(['_', '-']) || has_inner_capital
}

/// Instructions, the distinct names of tools, and the classified words of the text.
struct Instructions<'t> {
    text: &'t str,
    tools: Vec<&'t str>,
    language: Language,
    words: Rc<ClassifiedWords>,
}

impl<'t> Instructions<'t> {
    /// The classified words in a part of the text.
    fn words(&self, part: &str) -> &[ClassifiedWord] {
        let from = part.as_ptr().addr() - self.text.as_ptr().addr();
        self.words.within(from..from + part.len())
    }

    /// The classes of the words of a part.
    fn classes(&self, part: &str) -> WordClasses {
        classes_of(self.words(part))
    }

    /// Whether a part has a word of one of the classes, or a digit.
    fn has_condition(&self, part: &str, classes: WordClasses) -> bool {
        has_digit(part) || self.classes(part).has_any(classes)
    }

    /// The parts of a sentence before and after one of its words.
    fn split_at_word(&self, sentence: &'t str, word: &ClassifiedWord) -> Option<(&'t str, &'t str)> {
        let start = sentence.as_ptr().addr() - self.text.as_ptr().addr();
        Some((sentence.get(..word.at.start - start)?, sentence.get(word.at.end - start..)?))
    }

    /// The order of a sentence with these steps and this part for the action; `None` without a step.
    fn build_order(
        &self,
        text: &'t str,
        steps: Vec<&'t str>,
        needs_consent: bool,
        action_text: &'t str,
    ) -> Option<RequiredOrder> {
        (needs_consent || !steps.is_empty()).then_some(())?;
        let language = self.language;
        let words = language.content_words(action_text);
        let names = words.iter().filter(|word| !language.classes(word).has_any(NO_OBJECT));
        let objects =
            names.flat_map(|w| stems(w)).filter(|w| request_verbs::action_of_verb(w, language).is_none());
        let objects: Vec<String> = objects.collect();
        let is_any = objects.is_empty() && self.classes(action_text).has(WordClass::AnyAction);
        let names_tool = self.tools.iter().any(|tool| action_text.contains(tool));
        let actions = actions_of_verbs(action_text, language);
        let steps = steps.into_iter().map(str::to_owned).collect();
        let (action_text, sentence) = (action_text.to_owned(), text.to_owned());
        Some(RequiredOrder {
            steps,
            needs_consent,
            action_text,
            names_tool,
            is_any,
            actions,
            objects,
            sentence,
        })
    }

    /// The order that a sentence requires; `None` if it requires none, or under a condition.
    fn order(&self, sentence: &'t str) -> Option<RequiredOrder> {
        if sentence.len() > MAX_SENTENCE_BYTES {
            return None;
        }
        let (is_spaced, language) = (self.language.is_spaced(), self.language);
        if let Some(order) = self.order_only_after(sentence).filter(|_| is_spaced) {
            return Some(order);
        }
        let mut words = self.words(sentence).iter();
        let Some(before) = words.find(|word| word.classes.has(WordClass::Before)) else {
            let order = || self.order_without_consent(sentence).or_else(|| self.order_with_consent(sentence));
            return is_spaced.then(order).flatten();
        };
        let (text_before, text_after) = self.split_at_word(sentence, before)?;
        // The clause of the action, which follows the word for "before" where spaces separate words and precedes it
        // elsewhere, and the other parts of the sentence.
        let (action_clause, other_parts) = if is_spaced {
            let clause = text_after.split(CLAUSE_DELIMITERS).next()?;
            (clause, [text_before, text_after.get(clause.len()..)?])
        } else {
            let clause = text_before.rsplit(CLAUSE_DELIMITERS).next()?;
            (clause, [text_before.get(..text_before.len() - clause.len())?, text_after])
        };
        // "Never run a command before the user has approved it": the action is negated, and the step follows "before".
        let (forbidden, step) = if is_spaced {
            let before = text_before.trim_end_matches(|c: char| c == ' ' || CLAUSE_DELIMITERS.contains(&c));
            (before.rsplit(CLAUSE_DELIMITERS).next()?, text_after)
        } else {
            (text_after, action_clause)
        };
        if let Some(never) = self.words(forbidden).iter().find(|word| word.classes.has(WordClass::Negation)) {
            // A verb may be before the negation: "stornieren Sie nie".
            let (_, after_negation) = self.split_at_word(forbidden, never)?;
            let has_verb = || !actions_of_verbs(after_negation, language).is_empty();
            let action = if language == Language::English || has_verb() { after_negation } else { forbidden };
            let steps = self.tools.iter().filter(|tool| step.contains(**tool)).copied().collect();
            let is_order = !self.has_condition(action, CONDITION) && !self.has_condition(step, CONDITION);
            let needs_consent = language.mentions_consent(step);
            return self.build_order(sentence, steps, needs_consent, action).filter(|_| is_order);
        }
        // "May be called" is optional, and "must be called" is not. A negation, as in "do not", is not a condition.
        let is_conditional = |part: &str| {
            let classes = self.classes(part);
            let is_optional = classes.has(WordClass::Modal) && !classes.has(WordClass::Obligation);
            is_optional || self.has_condition(part, CONDITION)
        };
        if other_parts.iter().any(|part| is_conditional(part)) || is_conditional(action_clause) {
            return None;
        }
        let is_separator = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        let is_in = |part: &str, tool: &str| part.split(is_separator).any(|word| word == tool);
        let tools = self.tools.iter();
        let is_named = |tool: &&&'t str| other_parts.iter().any(|part| is_in(part, tool));
        let steps: Vec<&str> = tools.clone().filter(is_named).copied().collect();
        // Without a comma the sentence names the action before the step: "before a refund you must call check_id".
        let last = tools
            .filter(|tool| is_in(action_clause, tool))
            .filter_map(|tool| Some((action_clause.rfind(tool)?, *tool)));
        let (steps, action) = match last.max_by_key(|(at, _)| *at).filter(|_| steps.is_empty()) {
            Some((at, tool)) => (vec![tool], action_clause.get(..at)?),
            None => (steps, action_clause),
        };
        let needs_consent = other_parts.iter().any(|part| language.mentions_consent(part));
        self.build_order(sentence, steps, needs_consent, action)
    }

    /// The order of a sentence such as "Refund only after the customer has agreed", with the action before the step.
    fn order_only_after(&self, sentence: &'t str) -> Option<RequiredOrder> {
        let mut words = self.words(sentence).iter();
        let only = words.find(|word| word.classes.has(WordClass::Restriction))?;
        let (before_only, after_only) = self.split_at_word(sentence, only)?;
        // A verb may be between the two words: "may only be started after".
        let is_after = |word: &&ClassifiedWord| {
            word.classes.has(WordClass::Sequence) && !word.classes.has(WordClass::Before)
        };
        let is_near = |(_, step): &(&str, &str)| {
            let between = after_only.get(..after_only.len() - step.len());
            between.is_some_and(|text| text.split_whitespace().count() <= 1 + MAX_GAP_WORDS)
        };
        let after =
            words.find(is_after).and_then(|after| self.split_at_word(sentence, after)).filter(is_near);
        let step = after.map_or(after_only, |(_, step)| step);
        let clause = |part: &'t str| part.rsplit([';', ':']).next().unwrap_or(part);
        let is_order = !self.has_condition(step, CONSENT_CONDITION)
            && !self.has_condition(clause(before_only), CONSENT_CONDITION)
            && self.language.mentions_consent(step);
        let action = sentence.get(..sentence.len() - step.len()).filter(|_| is_order)?;
        self.build_order(sentence, Vec::new(), true, self.last_action(clause(action)))
    }

    /// The order of a sentence such as "Never cancel an order without the consent of the customer", with the action
    /// between the two negations.
    fn order_without_consent(&self, sentence: &'t str) -> Option<RequiredOrder> {
        let mut negations = self.words(sentence).iter().filter(|word| word.classes.has(WordClass::Negation));
        let (never, without) = (negations.next()?, negations.next()?);
        let (before_negation, after_negation) = self.split_at_word(sentence, never)?;
        let (_, step) = self.split_at_word(sentence, without)?;
        let between = after_negation.get(..after_negation.len() - step.len() - without.at.len())?;
        // A verb may be before the negation: "kündige nie ohne".
        let action = if between.trim().is_empty() { before_negation } else { between };
        let is_order = !self.has_condition(step, CONSENT_CONDITION)
            && !self.has_condition(action, CONDITION)
            && self.language.mentions_consent(step);
        let order = self.build_order(sentence, Vec::new(), true, action).filter(|_| is_order)?;
        (order.names_tool || order.is_any || !order.actions.is_empty()).then_some(order)
    }

    /// The order of a sentence such as "Cancellations need the customer's consent", with the action before the verb.
    fn order_with_consent(&self, sentence: &'t str) -> Option<RequiredOrder> {
        let mut words = self.words(sentence).iter();
        let needs = words.find(|word| word.classes.has(WordClass::Obligation))?;
        let (action, step) = self.split_at_word(sentence, needs)?;
        let is_order = !self.has_condition(step, CONSENT_CONDITION)
            && !self.has_condition(action, CONDITION)
            && !self.classes(sentence).has(WordClass::Negation)
            && self.language.mentions_consent(sentence)
            && !self.language.mentions_consent(action);
        let order = self.build_order(sentence, Vec::new(), true, action).filter(|_| is_order)?;
        // A sentence about a person who has to confirm something is no order: "the customer must confirm the address".
        (order.is_any || !order.actions.is_empty() && !self.classes(action).has(WordClass::Client))
            .then_some(order)
    }

    /// The part of a clause after its last conjunction, if that part has an action ("present the offer and apply it"),
    /// or else the clause.
    fn last_action(&self, clause: &'t str) -> &'t str {
        let conjunction = self.words(clause).iter().rfind(|word| word.classes.has(WordClass::Conjunction));
        let after = conjunction.and_then(|word| Some(self.split_at_word(clause, word)?.1));
        after.filter(|after| !actions_of_verbs(after, self.language).is_empty()).unwrap_or(clause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::calls::attempts::CallAttempts;
    use crate::measure::reasoning::conduct::apply_rule;
    use crate::measure::reasoning::conduct::findings_of;
    use crate::measure::testing::Script;

    const TOOLS: [&str; 5] = ["get_member", "send_code", "check_code", "cancel_contract", "update_email"];

    fn finding_count(system: &str, task: &str, calls: &[(&str, &str)]) -> usize {
        let script = Script::new(task).system(system).tools(&TOOLS);
        let call = |script: Script, (tool, result): &(&str, &str)| {
            script.calls("", &[(*tool, r#"{"contract_no":"K-7"}"#)]).returns(result)
        };
        let trace = calls.iter().fold(script, call).answers("Done.").build();
        findings_of(check, &trace).len()
    }

    #[test]
    fn action_without_the_step_that_comes_before_it_is_found() {
        let cancelled = ("cancel_contract", r#"{"ok":true}"#);
        for system in [
            "Be kind. Before cancelling a contract, call send_code and check_code.",
            "Always call check_code before cancel_contract.",
            "Before the cancellation of a contract: check_code.",
            "You must run check_code before any cancellation.",
            "Before a cancellation you must call check_code.",
            "Vor jeder Kündigung muss check_code aufgerufen werden.",
        ] {
            assert_eq!(finding_count(system, "Cancel K-7.", &[cancelled]), 1, "{system}");
            let both = [("send_code", "sent"), ("check_code", "ok"), cancelled];
            assert_eq!(finding_count(system, "Cancel K-7.", &both), 0, "{system}");
        }
        let before = "Before cancelling a contract, call check_code.";
        assert_eq!(finding_count(before, "Cancel K-7.", &[cancelled, ("check_code", "ok")]), 1, "too late");
    }

    #[test]
    fn confirmation_of_the_user_needs_a_message_of_the_user() {
        let system = "Always get the explicit confirmation of the customer before cancelling a contract.";
        let cancelled = ("cancel_contract", r#"{"ok":true}"#);
        assert_eq!(finding_count(system, "Cancel K-7.", &[cancelled]), 1);
        assert_eq!(finding_count(system, "Cancel K-7, I confirm it.", &[cancelled]), 0);
        let asked = Script::new("Cancel K-7.").system(system).tools(&TOOLS).says("Shall I cancel K-7?");
        let asked = asked.user("Yes.").calls("", &[("cancel_contract", "{}")]).returns("ok").answers("Done.");
        let trace = asked.build();
        assert!(findings_of(check, &trace).is_empty());
    }

    #[test]
    fn orders_are_read_in_every_language() {
        let cancelled = ("cancel_contract", r#"{"ok":true}"#);
        for system in [
            "You help members of a gym. Always run check_code before you cancel a contract.",
            "Du hilfst den Mitgliedern. Vor jeder Kündigung muss check_code aufgerufen werden.",
            "Tu aides les membres du club. Avant toute résiliation, appelle toujours check_code.",
            "Atiendes a los socios del club. Antes de cancelar, llama siempre a check_code.",
            "Você atende os sócios do clube. Antes de cancelar, chame sempre check_code.",
            "Assisti i soci della palestra. Prima di annullare, chiama sempre check_code.",
            "你负责会员服务。调用 cancel_contract 之前，必须先调用 check_code。",
            "あなたは会員の担当者です。cancel_contract を呼び出す前に、必ず check_code を実行してください。",
        ] {
            let checked = ("check_code", r#"{"valid":true}"#);
            assert_eq!(finding_count(system, "K-7", &[cancelled]), 1, "{system}");
            assert_eq!(finding_count(system, "K-7", &[checked, cancelled]), 0, "{system}");
        }
        for system in [
            "You help members of a gym. Cancel a contract only after the member has agreed.",
            "You help members of a gym. Explain the fee first and cancel it only after the member accepts.",
            "You help members of a gym. The cancellation of a contract requires the consent of the customer.",
            "You help members of a gym. Any change requires the explicit yes of the member.",
            "You help members of a gym. Never cancel a contract without the consent of the customer.",
            "You help members of a gym. Never call cancel_contract without an explicit confirmation from the member.",
            "Du hilfst den Mitgliedern. Kündige nie ohne Zustimmung des Kunden.",
            "Du hilfst den Mitgliedern. Eine Kündigung ist nur mit Zustimmung des Kunden erlaubt.",
            "Tu aides les membres du club. Ne résilie jamais avant que le client ait donné son accord.",
            "Atiendes a los socios. Un contrato se puede cancelar solo con el consentimiento del cliente.",
            "Você atende os sócios do clube. Nunca cancele antes que o cliente confirme.",
            "Assisti i soci della palestra. Annulla solo dopo la conferma del cliente.",
        ] {
            assert_eq!(finding_count(system, "K-7", &[cancelled]), 1, "{system}");
        }
    }

    #[test]
    fn what_the_user_said_and_prompts_are_read_once_for_all_orders_and_calls() {
        const CALLS: usize = 60;
        let orders = "Before cancelling a contract of a vessel, call check_code. ".repeat(CALLS);
        let request = "Cancel the contract, please. ".repeat(300);
        let mut script = Script::new(&request).system(&orders).tools(&TOOLS);
        for _ in 0..CALLS {
            script = script.calls("", &[("cancel_contract", r#"{"contract_no":"K-7"}"#)]).returns("ok");
        }
        let (trace, memo) = (script.answers("Done.").build(), Memo::new());
        let attempts = CallAttempts::get(&trace, &memo);
        let before = work::counted();
        assert!(apply_rule(("tested", check), &trace, &memo, &attempts).is_empty());
        let work = work::counted() - before;
        assert!(work <= 4 * request.len() as u64, "{work} of {} bytes", request.len());
    }

    #[test]
    fn other_actions_conditions_and_known_steps_are_none() {
        let cancelled = ("cancel_contract", r#"{"ok":true}"#);
        for system in [
            "Before cancelling a contract, call send_code or check_code if the member is new.",
            "Before cancelling a premium contract, call check_code.",
            "Before updating an email, call check_code.",
            "Call check_code when asked. Think before cancelling a contract.",
            "Ask for the reason before cancelling a contract.",
            "The customer must confirm the address.",
            "Cancellations of premium contracts require the consent of the customer.",
            "A cancellation needs no consent of the customer.",
            "Never update an email without the consent of the customer.",
        ] {
            assert_eq!(finding_count(system, "Cancel K-7.", &[cancelled]), 0, "{system}");
        }
        let system = "Before cancelling a contract, call check_code.";
        assert_eq!(
            finding_count(
                system,
                "Cancel K-7.",
                &[("get_member", r#"{"member":"M-1","code_checked":true}"#), cancelled]
            ),
            0
        );
        assert_eq!(finding_count(system, "Cancel K-7.", &[("get_member", r#"{"member":"M-1"}"#)]), 0);
        assert_eq!(finding_count(system, "Cancel K-7.", &[("cancel_contract", "Error: locked")]), 0);
    }
}
