//! Steps that the instructions put before an action, and that the run skipped: "Before any change to a policy, call
//! `send_otp`", and a new address without it.
//!
//! Principle: instructions that name a tool, and the action that it precedes, are about the calls that are such an
//! action. The action needs an earlier call of the tool, with any result. A sentence with a condition or a choice is
//! not compared, nor one that is about a thing that neither the call nor the user names; an earlier result that states
//! that the step was done (`verified: true`) replaces it. A confirmation of the user is such a step as well: it needs a
//! message of theirs before the action.
//!
//! In: the instructions, the tools that were offered and the calls of an agent. Out: one finding for each agent, on the
//! model span that wrote the call.

mod request_verbs;

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use foldhash::{HashMap, HashSet};
use verdict_otlp::trace::Idx;
use verdict_otlp::work;

pub(super) use request_verbs::verbs;

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

/// Most bytes of instructions and of one sentence that are read.
const MAX_BYTES: usize = 32 << 10;
const MAX_SENTENCE: usize = 400;
/// Most calls of an agent that are read.
const MAX_CALLS: usize = 100;
/// Most orders of the instructions, and most bytes of what the user said, that calls are compared with; and most
/// arguments of a call whose names are compared.
const MAX_ORDERS: usize = 64;
const MAX_SAID: usize = 64 << 10;
const MAX_KEYS: usize = 64;
/// Bytes at the beginning of two words by which they are the same: "verified", `verify_otp`.
const STEM: usize = 5;

/// Signs that end a clause.
const ENDS: [char; 9] = [',', ':', ';', '(', '\n', '，', '、', '：', '；'];
/// Maximum number of words between "only" and "after".
const MAX_GAP_WORDS: usize = 3;
/// Words by which a sentence may demand an order.
const ORDERS: WordClasses = classes!(Before Restriction);
/// Words by which a step is not always needed, besides figures.
const CONDITION: WordClasses = classes!(
    Condition Probability Restriction Sequence Alternative Exception Bound Advice
);
/// Words that make an action with a confirmation depend on something else.
const SOMETIMES: WordClasses = classes!(Condition Exception Bound);
/// Words that name no object of an action.
const PLAIN: WordClasses = classes!(AnyAction Client);
/// Words by which a request confirms in advance.
const AGREES: WordClasses = classes!(AtOnce Confirmation);

/// An order that the instructions demand: steps, and an action after them.
struct DemandedOrder {
    /// The tools of the steps, in order.
    steps: Vec<String>,
    /// The user has to confirm the action.
    confirms: bool,
    /// The words for the action.
    later: String,
    /// The words name a tool.
    names_tool: bool,
    /// The sentence is about any action: "make any change".
    is_any: bool,
    /// The classes of the action.
    verbs: Vec<Action>,
    /// The stems of the words for its object.
    things: Vec<String>,
    sentence: String,
}

/// The orders that instructions demand, by their text and the names of the tools.
struct Orders(Vec<DemandedOrder>);

fn read_orders(text: &str, tools: Vec<&str>) -> Vec<DemandedOrder> {
    let memo = &Memo::new();
    let Some(language) = Language::detected(text, None, memo) else { return Vec::new() };
    let words = language.places(text, memo);
    let needs = || words.all().has_any(classes!(Obligation Negation)) && language.mentions_consent(text);
    if !words.all().has_any(ORDERS) && !needs()
        || !(words.all().has(WordClass::Confirmation)
            || tools.iter().any(|tool| text.contains(tool))
            || language.mentions_consent(text))
    {
        return Vec::new();
    }
    let read = Instructions { text, tools, language, words };
    let parts = sentences(text).into_iter().filter_map(|(start, end)| text.get(start..end));
    let orders = parts.flat_map(|part| part.split('。')).filter_map(|sentence| read.order(sentence));
    orders.take(MAX_ORDERS).collect()
}

/// The finding on an agent.
pub(super) fn check(conduct: &Conduct<'_>) -> Option<(Idx, Finding)> {
    let Conduct { trace, memo, attempts, i, .. } = *conduct;
    let calls: Vec<(usize, &Call)> = conduct.calls(MAX_CALLS).collect();
    // Most runs only look things up, and need no instructions read.
    let acts = |(at, call): &(usize, &Call)| {
        call.llm.is_some() && attempts.has_succeeded(*at) && purpose(trace, memo, call) != Purpose::Query
    };
    if !calls.iter().any(acts) {
        return None;
    }
    let text = agent_index::instructions(trace, i).filter(|text| text.len() <= MAX_BYTES)?;
    let tools: Vec<&str> =
        offered_tools(trace, i).map(|tool| &*tool.name).filter(|name| is_distinct(name)).collect();
    if !memo.budget.spend(text.len() / 16 * (2 + tools.len() / 8)) {
        return None;
    }
    // A name of a tool ends at the NUL.
    let key = [&**text].iter().chain(&tools).copied().collect::<Vec<&str>>().join("\0");
    let orders = memo.recurring(&key, || Orders(read_orders(text, tools)));
    let Orders(orders) = &*orders;
    let user_texts = conduct.user_messages();
    let bytes: usize = user_texts.iter().map(|text| text.len()).sum();
    if orders.is_empty() || bytes > MAX_SAID || !memo.budget.spend(bytes / BYTES_PER_STEP) {
        return None;
    }
    let run = AgentCalls { conduct, calls, user_texts, words: OnceCell::new(), prompts: RefCell::default() };
    orders.iter().find_map(|order| run.skipping(order))
}

/// The calls of an agent, and the texts before them.
struct AgentCalls<'t> {
    conduct: &'t Conduct<'t>,
    calls: Vec<(usize, &'t Call)>,
    user_texts: Vec<Text>,
    /// The words of the user's messages, by their roots.
    words: OnceCell<HashSet<(bool, String)>>,
    /// The prompts by model call.
    prompts: RefCell<HashMap<Idx, Rc<ModelPrompt>>>,
}

/// The prompt of a model call.
struct ModelPrompt {
    /// Messages of the user.
    user_message_count: usize,
    /// The names of the tools whose calls it has, in lower case.
    called: HashSet<String>,
}

impl<'t> AgentCalls<'t> {
    /// The first call that skips the step before it. Nothing beyond the work budget.
    fn skipping(&self, order: &DemandedOrder) -> Option<(Idx, Finding)> {
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
            if !memo.budget.spend(1 + (order.later.len() + order.steps.len()) / BYTES_PER_STEP) {
                return None;
            }
            let has_run = attempts.has_succeeded(*at) && !is_step(&call.name);
            let Some(llm) = call.llm.filter(|_| has_run && self.is_later(call, order)) else { continue };
            let prompt = self.prompt(llm)?;
            if order.confirms && !self.has_spoken(&prompt) {
                return finding("a confirmation of the user", call);
            }
            if !memo.budget.spend(order.steps.len() * (1 + self.calls.len() / 4)) {
                return None;
            }
            let mut skipped = order.steps.iter().filter(|step| {
                let earlier = self.calls.iter().take_while(|(_, other)| other.start < call.start);
                !prompt.called.contains(&step.to_ascii_lowercase())
                    && !earlier.into_iter().any(|(_, other)| other.name.trim().eq_ignore_ascii_case(step))
            });
            let Some(skipped) = skipped.next() else { continue };
            if !self.is_told(call, skipped)? {
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
        let prompt = Rc::new(ModelPrompt { user_message_count, called: calls.collect() });
        self.prompts.borrow_mut().insert(llm, prompt.clone());
        Some(prompt)
    }

    /// Whether the user said more than the request before a model call, or the request itself confirms.
    fn has_spoken(&self, prompt: &ModelPrompt) -> bool {
        prompt.user_message_count != 1
            || self.user_texts.first().is_none_or(|task| {
                let analysed_task = ReadText::new(task, None, self.conduct.memo);
                analysed_task.agrees() || analysed_task.classes(task).has_any(AGREES)
            })
    }

    /// Whether a call is the action of an order, which names its tool, or its action and the object of that.
    fn is_later(&self, call: &Call, order: &DemandedOrder) -> bool {
        let name = call.name.trim();
        if order.names_tool {
            return order.later.contains(name) && is_distinct(name);
        }
        // A draft is made so that it can be confirmed.
        if is_of_kind("prepares", &identifier_words(name)) {
            return false;
        }
        let purpose = ToolPurpose::for_call(self.conduct.trace, self.conduct.memo, call);
        let Some(first) = purpose.actions.first().filter(|_| !purpose.is_query()) else { return false };
        if order.is_any {
            return true;
        }
        if !order.verbs.contains(first) {
            return false;
        }
        let passed = call.parsed.as_deref().and_then(serde_json::Value::as_object).into_iter().flatten();
        let mut call_words: Vec<String> =
            passed.take(MAX_KEYS).flat_map(|(key, _)| identifier_words(key)).collect();
        call_words.extend(identifier_words(name));
        if !self.conduct.memo.budget.spend(1 + call_words.len() * order.things.len() / 4) {
            return false;
        }
        let user_words = self.words.get_or_init(|| {
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
                || user_words.contains(&(is_long, root.to_owned()))
        };
        order.things.iter().all(is_known)
    }

    /// Whether an earlier result states that the step was done; `None` beyond the work budget.
    fn is_told(&self, call: &Call, step: &str) -> Option<bool> {
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
                field.name.iter().any(|word| step.iter().any(|step_word| alike_begin(word, step_word)))
            }) {
                return Some(true);
            }
        }
        Some(false)
    }
}

/// Whether a tool's name cannot be a word of a sentence.
fn is_distinct(name: &str) -> bool {
    let has_inner_capital =
        name.bytes().zip(name.bytes().skip(1)).any(|(a, b)| a.is_ascii_lowercase() && b.is_ascii_uppercase());
    name.contains(['_', '-']) || has_inner_capital
}

/// Instructions, the names of tools that cannot be words of them, and their words of closed classes.
struct Instructions<'t> {
    text: &'t str,
    tools: Vec<&'t str>,
    language: Language,
    words: Rc<ClassifiedWords>,
}

impl<'t> Instructions<'t> {
    /// The words of closed classes in a part of the text.
    fn words(&self, part: &str) -> &[ClassifiedWord] {
        let from = part.as_ptr().addr() - self.text.as_ptr().addr();
        self.words.within(from..from + part.len())
    }

    /// The classes of the words of a part.
    fn classes(&self, part: &str) -> WordClasses {
        classes_of(self.words(part))
    }

    /// Whether a part depends on what its classes say, or on a figure.
    fn depends(&self, part: &str, classes: WordClasses) -> bool {
        has_digit(part) || self.classes(part).has_any(classes)
    }

    /// The parts of a sentence before and after a word of it.
    fn around(&self, sentence: &'t str, word: &ClassifiedWord) -> Option<(&'t str, &'t str)> {
        let start = sentence.as_ptr().addr() - self.text.as_ptr().addr();
        Some((sentence.get(..word.at.start - start)?, sentence.get(word.at.end - start..)?))
    }

    /// The order that a sentence demands; `None` without a step.
    fn build_order(
        &self,
        text: &'t str,
        steps: Vec<&'t str>,
        confirms: bool,
        later: &'t str,
    ) -> Option<DemandedOrder> {
        (confirms || !steps.is_empty()).then_some(())?;
        let language = self.language;
        let words = language.content_words(later);
        let names = words.iter().filter(|word| !language.classes(word).has_any(PLAIN));
        let things =
            names.flat_map(|word| stems(word)).filter(|word| request_verbs::verb(word, language).is_none());
        let things: Vec<String> = things.collect();
        let is_any = things.is_empty() && self.classes(later).has(WordClass::AnyAction);
        let names_tool = self.tools.iter().any(|tool| later.contains(tool));
        let verbs = verbs(later, language);
        let steps = steps.into_iter().map(str::to_owned).collect();
        let (later, sentence) = (later.to_owned(), text.to_owned());
        Some(DemandedOrder { steps, confirms, later, names_tool, is_any, verbs, things, sentence })
    }

    /// The order that a sentence demands, if it has no condition.
    fn order(&self, sentence: &'t str) -> Option<DemandedOrder> {
        if sentence.len() > MAX_SENTENCE {
            return None;
        }
        let (spaced, language) = (self.language.is_spaced(), self.language);
        if let Some(order) = self.only_after(sentence).filter(|_| spaced) {
            return Some(order);
        }
        let mut words = self.words(sentence).iter();
        let Some(before) = words.find(|place| place.classes.has(WordClass::Before)) else {
            let order = || self.without_consent(sentence).or_else(|| self.needs_consent(sentence));
            return spaced.then(order).flatten();
        };
        let (ahead, rest) = self.around(sentence, before)?;
        let (later, around) = if spaced {
            let later = rest.split(ENDS).next()?;
            (later, [ahead, rest.get(later.len()..)?])
        } else {
            let later = ahead.rsplit(ENDS).next()?;
            (later, [ahead.get(..ahead.len() - later.len())?, rest])
        };
        // "Never run a command before the user has approved it": the action is forbidden, and the step is what
        // follows "before".
        let (forbidden, step) = if spaced {
            (ahead.trim_end_matches(|c: char| c == ' ' || ENDS.contains(&c)).rsplit(ENDS).next()?, rest)
        } else {
            (rest, later)
        };
        if let Some(never) = self.words(forbidden).iter().find(|place| place.classes.has(WordClass::Negation))
        {
            // A verb may be before the negation: "stornieren Sie nie".
            let (_, behind) = self.around(forbidden, never)?;
            let has_verb = || !verbs(behind, language).is_empty();
            let later = if language == Language::English || has_verb() { behind } else { forbidden };
            let steps = self.tools.iter().filter(|tool| step.contains(**tool)).copied().collect();
            let is_order = !self.depends(later, CONDITION) && !self.depends(step, CONDITION);
            let confirms = language.mentions_consent(step);
            return self.build_order(sentence, steps, confirms, later).filter(|_| is_order);
        }
        // A negation means what is not needed, or what must not be done: "do not" before the action is no
        // condition. "May be called", but not "must be called".
        let has_condition = |part: &str| {
            let classes = self.classes(part);
            let is_free = classes.has(WordClass::Modal) && !classes.has(WordClass::Obligation);
            is_free || self.depends(part, CONDITION)
        };
        if around.iter().any(|part| has_condition(part)) || has_condition(later) {
            return None;
        }
        let is_sign = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        let is_in = |part: &str, tool: &str| part.split(is_sign).any(|word| word == tool);
        let tools = self.tools.iter();
        let named = |tool: &&&'t str| around.iter().any(|part| is_in(part, tool));
        let steps: Vec<&str> = tools.clone().filter(named).copied().collect();
        // Without a comma the sentence names the action before the step: "before a refund you must call check_id".
        let last =
            tools.filter(|tool| is_in(later, tool)).filter_map(|tool| Some((later.rfind(tool)?, *tool)));
        let (steps, later) = match last.max_by_key(|(at, _)| *at).filter(|_| steps.is_empty()) {
            Some((at, tool)) => (vec![tool], later.get(..at)?),
            None => (steps, later),
        };
        let confirms = around.iter().any(|part| language.mentions_consent(part));
        self.build_order(sentence, steps, confirms, later)
    }

    /// "Refund only after the customer has agreed": the sentence names the action before the step.
    fn only_after(&self, sentence: &'t str) -> Option<DemandedOrder> {
        let mut words = self.words(sentence).iter();
        let only = words.find(|place| place.classes.has(WordClass::Restriction))?;
        let (free, behind) = self.around(sentence, only)?;
        // With the verb between: "may only be started after".
        let is_after = |place: &&ClassifiedWord| {
            place.classes.has(WordClass::Sequence) && !place.classes.has(WordClass::Before)
        };
        let is_near = |(_, step): &(&str, &str)| {
            let between = behind.get(..behind.len() - step.len());
            between.is_some_and(|text| text.split_whitespace().count() <= 1 + MAX_GAP_WORDS)
        };
        let after = words.find(is_after).and_then(|after| self.around(sentence, after)).filter(is_near);
        let step = after.map_or(behind, |(_, step)| step);
        let clause = |part: &'t str| part.rsplit([';', ':']).next().unwrap_or(part);
        let is_order = !self.depends(step, SOMETIMES)
            && !self.depends(clause(free), SOMETIMES)
            && self.language.mentions_consent(step);
        let later = sentence.get(..sentence.len() - step.len()).filter(|_| is_order)?;
        self.build_order(sentence, Vec::new(), true, self.last_verb(clause(later)))
    }

    /// "Never cancel an order without the consent of the customer": the action is between the two negations.
    fn without_consent(&self, sentence: &'t str) -> Option<DemandedOrder> {
        let mut negations =
            self.words(sentence).iter().filter(|place| place.classes.has(WordClass::Negation));
        let (never, without) = (negations.next()?, negations.next()?);
        let (ahead, behind) = self.around(sentence, never)?;
        let (_, step) = self.around(sentence, without)?;
        let between = behind.get(..behind.len() - step.len() - without.at.len())?;
        // A verb may be before the negation: "kündige nie ohne".
        let later = if between.trim().is_empty() { ahead } else { between };
        let is_order = !self.depends(step, SOMETIMES)
            && !self.depends(later, CONDITION)
            && self.language.mentions_consent(step);
        let order = self.build_order(sentence, Vec::new(), true, later).filter(|_| is_order)?;
        (order.names_tool || order.is_any || !order.verbs.is_empty()).then_some(order)
    }

    /// "Cancellations need the customer's consent": what needs it comes before the word for that.
    fn needs_consent(&self, sentence: &'t str) -> Option<DemandedOrder> {
        let mut words = self.words(sentence).iter();
        let needs = words.find(|place| place.classes.has(WordClass::Obligation))?;
        let (later, step) = self.around(sentence, needs)?;
        let is_order = !self.depends(step, SOMETIMES)
            && !self.depends(later, CONDITION)
            && !self.classes(sentence).has(WordClass::Negation)
            && self.language.mentions_consent(sentence)
            && !self.language.mentions_consent(later);
        let order = self.build_order(sentence, Vec::new(), true, later).filter(|_| is_order)?;
        // A person that has to confirm something is no action: "the customer must confirm the address".
        (order.is_any || !order.verbs.is_empty() && !self.classes(later).has(WordClass::Client))
            .then_some(order)
    }

    /// The part of a clause behind its last conjunction, if it has an action of its own: "present the offer and apply
    /// it".
    fn last_verb(&self, clause: &'t str) -> &'t str {
        let conjunction = self.words(clause).iter().rfind(|place| place.classes.has(WordClass::Conjunction));
        let behind = conjunction.and_then(|place| Some(self.around(clause, place)?.1));
        behind.filter(|behind| !verbs(behind, self.language).is_empty()).unwrap_or(clause)
    }
}

/// The root of a word, by which words are compared: its first letters if it is long, or all of them.
fn root(word: &str) -> (bool, &str) {
    let is_long = word.len() >= STEM;
    let end = if is_long { word.floor_char_boundary(STEM) } else { word.len() };
    (is_long, word.get(..end).unwrap_or(word))
}

fn have_same_root(one: &str, other: &str) -> bool {
    root(one) == root(other)
}

/// "verified" and "verify".
fn alike_begin(one: &str, other: &str) -> bool {
    let length = one.len().min(other.len()).saturating_sub(1).max(4);
    one.get(..length).is_some_and(|begin| other.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::calls::attempts::CallAttempts;
    use crate::measure::reasoning::conduct::apply_rule;
    use crate::measure::reasoning::conduct::found as found_by;
    use crate::measure::testing::Script;

    const TOOLS: [&str; 5] = ["get_member", "send_code", "check_code", "cancel_contract", "update_email"];

    fn found(system: &str, task: &str, calls: &[(&str, &str)]) -> usize {
        let script = Script::new(task).system(system).tools(&TOOLS);
        let call = |script: Script, (tool, result): &(&str, &str)| {
            script.calls("", &[(*tool, r#"{"contract_no":"K-7"}"#)]).returns(result)
        };
        let trace = calls.iter().fold(script, call).answers("Done.").build();
        found_by(check, &trace).len()
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
            assert_eq!(found(system, "Cancel K-7.", &[cancelled]), 1, "{system}");
            let both = [("send_code", "sent"), ("check_code", "ok"), cancelled];
            assert_eq!(found(system, "Cancel K-7.", &both), 0, "{system}");
        }
        let before = "Before cancelling a contract, call check_code.";
        assert_eq!(found(before, "Cancel K-7.", &[cancelled, ("check_code", "ok")]), 1, "too late");
    }

    #[test]
    fn confirmation_of_the_user_needs_a_message_of_theirs() {
        let system = "Always get the explicit confirmation of the customer before cancelling a contract.";
        let cancelled = ("cancel_contract", r#"{"ok":true}"#);
        assert_eq!(found(system, "Cancel K-7.", &[cancelled]), 1);
        assert_eq!(found(system, "Cancel K-7, I confirm it.", &[cancelled]), 0);
        let asked = Script::new("Cancel K-7.").system(system).tools(&TOOLS).says("Shall I cancel K-7?");
        let asked = asked.user("Yes.").calls("", &[("cancel_contract", "{}")]).returns("ok").answers("Done.");
        let trace = asked.build();
        assert!(found_by(check, &trace).is_empty());
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
            assert_eq!(found(system, "K-7", &[cancelled]), 1, "{system}");
            assert_eq!(found(system, "K-7", &[checked, cancelled]), 0, "{system}");
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
            assert_eq!(found(system, "K-7", &[cancelled]), 1, "{system}");
        }
    }

    #[test]
    fn words_are_alike_by_whole_characters() {
        assert!(!have_same_root("straße", "größe") && !have_same_root("größe", "straße"));
        assert!(
            have_same_root("straßen", "straße")
                && have_same_root("verified", "verify")
                && have_same_root("id", "id")
        );
        assert!(!have_same_root("id", "idea") && !have_same_root("stra", "straße"));
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
            assert_eq!(found(system, "Cancel K-7.", &[cancelled]), 0, "{system}");
        }
        let system = "Before cancelling a contract, call check_code.";
        assert_eq!(
            found(
                system,
                "Cancel K-7.",
                &[("get_member", r#"{"member":"M-1","code_checked":true}"#), cancelled]
            ),
            0
        );
        assert_eq!(found(system, "Cancel K-7.", &[("get_member", r#"{"member":"M-1"}"#)]), 0);
        assert_eq!(found(system, "Cancel K-7.", &[("cancel_contract", "Error: locked")]), 0);
    }
}
