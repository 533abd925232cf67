//! The texts that precede each call of a trace, with their authors: the possible sources of the values of the call.
//!
//! In: a trace. Out: for a call, the texts before it in the order in which they became known, and whether one of them
//! contains a number, another kind of value or a wording. The texts are listed once per trace, at the first use, and
//! each text is read once for each kind of value.

use std::cell::RefCell;
use std::rc::Rc;

use foldhash::{HashMap, HashSet};
use verdict_otlp::trace::{Idx, Kind};

use crate::measure::conversation::{Turns, plain_text};
use crate::measure::dialogue::{Replies, is_for_reader};
use crate::measure::memo::Memo;
use crate::measure::numbers;
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::recognise::{AgentTrace, Call, Message, Part, Role, Text};

/// Maximum distinct numbers of a trace.
const MAX_NUMBERS: usize = 400_000;

/// The origin of a value. If a value has several origins, the first one in this order counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Origin {
    /// A message of the user, or of the agent's caller.
    User,
    /// The instructions, or the definition of the tool.
    System,
    /// A result of an earlier call.
    Result,
    /// The model, which invented or derived the value: no earlier text contains it.
    Model,
}

/// A text of a prompt or a result, or a text that a model wrote for its user.
pub(crate) struct KnownText {
    pub(crate) text: Text,
    /// The author. A text of the model is one to which the user replied.
    pub(crate) origin: Origin,
    /// The agent that received the text first. A message of the user is listed for each agent.
    pub(crate) agent: Option<usize>,
    /// The index of the first call that the text precedes.
    first_call: usize,
}

/// The distinct texts of a trace.
#[derive(Default)]
pub(crate) struct KnownTexts {
    /// Sorted by the first call that they precede.
    texts: Vec<KnownText>,
    /// From this call on, a value may come from an image, or from a text beyond the work budget.
    hidden_from: Option<usize>,
    numbers: RefCell<NumberIndex>,
}

impl KnownTexts {
    /// The texts of the trace, listed once.
    pub(crate) fn cached(trace: &AgentTrace, memo: &Memo) -> Rc<KnownTexts> {
        memo.trace(|| TextLister::new(trace, memo).list())
    }

    /// The texts before a call, in the order in which they became known. `None` if an image or a text that was not
    /// listed may contain any value.
    pub(crate) fn before(&self, trace: &AgentTrace, call: &Call) -> Option<&[KnownText]> {
        let call = index_of(trace, call)?;
        (!self.may_hide_value(call)).then(|| self.until(call))
    }

    /// Whether a text before a call contains the number, in digits or as a word. True where [`Self::before`] is `None`,
    /// and beyond the work budget.
    pub(crate) fn has_number(&self, trace: &AgentTrace, memo: &Memo, call: &Call, number: f64) -> bool {
        let Some(call) = index_of(trace, call).filter(|call| !self.may_hide_value(*call)) else {
            return true;
        };
        let mut numbers = self.numbers.borrow_mut();
        !numbers.read(memo, self.until(call)) || numbers.is_known(number, call)
    }

    /// The texts before the call of this index.
    pub(super) fn until(&self, call: usize) -> &[KnownText] {
        let end = self.texts.partition_point(|known| known.first_call <= call);
        self.texts.get(..end).unwrap_or_default()
    }

    /// Whether the texts before the call of this index may be incomplete.
    pub(super) fn may_hide_value(&self, call: usize) -> bool {
        self.hidden_from.is_some_and(|first_hidden| first_hidden <= call)
    }
}

/// Whether `has` is true for the values that `read` returns for one of the texts. Each text is read once for each type
/// `T`. True beyond the work budget.
pub(crate) fn have_value<'k, T: 'static>(
    mut texts: impl Iterator<Item = &'k KnownText>,
    memo: &Memo,
    read: impl Fn(&str) -> T,
    has: impl Fn(&T) -> bool,
) -> bool {
    texts.any(|known| {
        let is_within_budget = |text: &str| memo.budget.spend(1 + text.len() / BYTES_PER_STEP);
        let values = memo.for_text(&known.text, |text| is_within_budget(text).then(|| read(text)));
        (*values).as_ref().is_none_or(&has)
    })
}

/// Whether `has` is true for one of the texts. True beyond the work budget.
pub(crate) fn have_wording<'k>(
    mut texts: impl Iterator<Item = &'k KnownText>,
    memo: &Memo,
    has: impl Fn(&str) -> bool,
) -> bool {
    texts.any(|known| !memo.budget.spend(1 + known.text.len() / BYTES_PER_STEP) || has(&known.text))
}

/// The numbers of the texts that were read so far.
#[derive(Default)]
struct NumberIndex {
    /// The number of texts that were read.
    read_count: usize,
    /// By the bits of a number, the first call that a text with the number precedes.
    first_calls: HashMap<u64, usize>,
}

impl NumberIndex {
    /// Reads the texts that were not read before; returns false beyond the work budget.
    fn read(&mut self, memo: &Memo, texts: &[KnownText]) -> bool {
        for known in texts.get(self.read_count..).unwrap_or_default() {
            let is_within = memo.budget.spend(1 + known.text.len() / BYTES_PER_STEP);
            if !is_within || self.first_calls.len() > MAX_NUMBERS {
                return false;
            }
            self.read_count += 1;
            let mut add = |number: f64| {
                self.first_calls.entry(number.to_bits()).or_insert(known.first_call);
            };
            numbers::scan(&known.text, |n| n.possible_values().for_each(&mut add));
            let words = known.text.split(|c: char| !c.is_alphabetic());
            words.filter_map(numbers::from_any_word).for_each(add);
        }
        true
    }

    fn is_known(&self, number: f64, call: usize) -> bool {
        self.first_calls.get(&number.to_bits()).is_some_and(|first_call| *first_call <= call)
    }
}

/// The index of a call in `trace.calls`, by its address; `None` if the call is not one of them.
pub(super) fn index_of(trace: &AgentTrace, call: &Call) -> Option<usize> {
    let offset = std::ptr::from_ref(call).addr().checked_sub(trace.calls.as_ptr().addr())?;
    let i = offset / size_of::<Call>();
    trace.calls.get(i).filter(|entry| std::ptr::eq(*entry, call)).map(|_| i)
}

/// Lists the texts of a trace in the order of its calls.
struct TextLister<'t> {
    trace: &'t AgentTrace,
    memo: &'t Memo,
    turns: Rc<Turns>,
    replies: Rc<Replies>,
    known: KnownTexts,
    /// The listed texts by address, length and author; texts of the user also by agent.
    listed: HashSet<(usize, usize, Origin, Option<usize>)>,
    /// The model calls whose prompts are listed.
    prompts: HashSet<Idx>,
    /// The index of the next call.
    next_call: usize,
}

impl<'t> TextLister<'t> {
    fn new(trace: &'t AgentTrace, memo: &'t Memo) -> TextLister<'t> {
        let (turns, replies) = (Turns::cached(trace, memo), Replies::cached(trace, memo));
        let (listed, prompts) = (HashSet::default(), HashSet::default());
        TextLister {
            trace,
            memo,
            turns,
            replies,
            known: KnownTexts::default(),
            listed,
            prompts,
            next_call: 0,
        }
    }

    fn list(mut self) -> KnownTexts {
        let trace = self.trace;
        let start = |span_index: Idx| trace.tree.spans.get(span_index).map_or(0, |span| span.start);
        let is_llm =
            |span_index: &Idx| trace.views.get(*span_index).is_some_and(|view| view.kind == Kind::Llm);
        let mut agents: Vec<usize> = (0..trace.agents.len()).collect();
        agents.sort_by_key(|agent| trace.agents.get(*agent).map_or(0, |agent| start(agent.at)));
        let start_of_agent = |agent: usize| trace.agents.get(agent).map_or(0, |agent| start(agent.at));
        let mut agents = agents.into_iter().peekable();
        let mut llms = (0..trace.views.len()).filter(is_llm).peekable();
        let mut pending_results = trace.calls.iter().peekable();
        // Calls and spans are sorted by their start.
        for (i, call) in trace.calls.iter().enumerate() {
            self.next_call = i;
            while let Some(agent) = agents.next_if(|agent| start_of_agent(*agent) <= call.start) {
                self.add_task(agent);
            }
            call.agent.into_iter().for_each(|agent| self.add_task(agent));
            while let Some(earlier) = pending_results.next_if(|earlier| earlier.start < call.start) {
                self.add_result(earlier);
            }
            while let Some(span_index) = llms.next_if(|span_index| start(*span_index) < call.start) {
                self.add_prompt(span_index);
            }
            call.llm.into_iter().for_each(|span_index| self.add_prompt(span_index));
        }
        // An answer follows all calls, so that the texts after the last call precede it as well.
        self.next_call = trace.calls.len();
        agents.for_each(|agent| self.add_task(agent));
        pending_results.for_each(|call| self.add_result(call));
        llms.for_each(|span_index| self.add_prompt(span_index));
        self.known
    }

    /// Adds a text, unless it is listed with this origin.
    fn add(&mut self, text: &Text, origin: Origin, agent: Option<usize>) {
        let for_agent = agent.filter(|_| origin == Origin::User);
        if self.listed.insert((text.as_ptr() as usize, text.len(), origin, for_agent)) {
            self.known.texts.push(KnownText {
                text: text.clone(),
                origin,
                agent,
                first_call: self.next_call,
            });
        }
    }

    fn add_task(&mut self, agent: usize) {
        let task = self.trace.agents.get(agent).and_then(|agent| agent.task.as_ref());
        task.into_iter().for_each(|task| self.add(task, Origin::User, Some(agent)));
    }

    fn add_result(&mut self, call: &Call) {
        call.result.iter().for_each(|text| self.add(text, Origin::Result, call.agent));
    }

    /// Adds the messages of a prompt. Of the model's own texts, those with a reply of the user are added.
    fn add_prompt(&mut self, span_index: Idx) {
        let Some(view) = self.trace.views.get(span_index).filter(|_| self.prompts.insert(span_index)) else {
            return;
        };
        if !self.memo.budget.spend(1 + view.input.len() / BYTES_PER_STEP) {
            self.known.hidden_from.get_or_insert(self.next_call);
            return;
        }
        let agent = self.trace.owner.get(span_index).copied().flatten();
        let before = self.turns.before(span_index);
        let view_before = before.and_then(|before| self.trace.views.get(before));
        // A prompt may contain only the new messages, without the text to which the user replied.
        if before.is_some_and(|before| self.replies.to(before).is_some()) {
            let answered = view_before.into_iter().flat_map(|view| &view.output);
            answered.for_each(|message| self.add_proposal(message, agent));
        }
        // Most prompts begin with the prompt of the previous turn. Its last message is read again: it may have a reply
        // now.
        let listed = view_before.filter(|_| before.is_some_and(|before| self.prompts.contains(&before)));
        let listed = listed.map_or(&[][..], |view| view.input.as_slice());
        let repeated = listed.iter().zip(&view.input).take_while(|(one, other)| one == other).count();
        let mut messages = view.input.iter().skip(repeated.saturating_sub(1)).peekable();
        while let Some(message) = messages.next() {
            let origin = match message.role {
                Role::System => Origin::System,
                Role::User => Origin::User,
                Role::Tool => Origin::Result,
                Role::Assistant => Origin::Model,
            };
            for part in &message.parts {
                match part {
                    Part::Result { content, .. } => self.add(content, Origin::Result, agent),
                    Part::Text(text) if origin != Origin::Model => self.add(text, origin, agent),
                    Part::Media => _ = self.known.hidden_from.get_or_insert(self.next_call),
                    _ => {}
                }
            }
            let is_answered = messages.peek().is_some_and(|next| next.role == Role::User);
            if origin == Origin::Model && is_answered && is_for_reader(std::iter::once(message)) {
                self.add_proposal(message, agent);
            }
        }
    }

    /// Adds the texts of a message of the model to which the user replied.
    fn add_proposal(&mut self, message: &Message, agent: Option<usize>) {
        message.parts.iter().filter_map(plain_text).for_each(|text| self.add(text, Origin::Model, agent));
    }
}

#[cfg(test)]
mod tests {
    use verdict_otlp::work;

    use super::*;
    use crate::measure::testing::Script;

    fn texts_before(trace: &AgentTrace, call: usize) -> Vec<(String, Origin)> {
        let known = KnownTexts::cached(trace, &Memo::new());
        let texts = known.before(trace, &trace.calls[call]).unwrap();
        texts.iter().map(|known| (known.text.to_string(), known.origin)).collect()
    }

    fn transfer() -> Script {
        Script::new("Pay the rent.")
            .system("At most 900 a day.")
            .calls("Let me see.", &[("get_rent", "{}")])
            .returns("rent: 1150")
            .says("The rent is 1150, and the fee is 3. Shall I pay twelve months?")
            .user("One, please.")
            .calls("", &[("transfer", r#"{"amount":1150}"#)])
            .returns("balance: 77")
            .answers("It is paid.")
    }

    #[test]
    fn texts_of_the_user_the_instructions_results_and_answered_proposals_precede_a_call() {
        use Origin::{Model, Result, System, User};
        let trace = transfer().build();
        let owned_texts = |texts: &[(&str, Origin)]| -> Vec<(String, Origin)> {
            texts.iter().map(|(text, origin)| ((*text).to_owned(), *origin)).collect()
        };
        assert_eq!(
            texts_before(&trace, 0),
            owned_texts(&[("Pay the rent.", User), ("At most 900 a day.", System)])
        );
        let mut second = texts_before(&trace, 1);
        second.sort();
        let mut all = owned_texts(&[
            ("Pay the rent.", User),
            ("At most 900 a day.", System),
            ("rent: 1150", Result),
            ("The rent is 1150, and the fee is 3. Shall I pay twelve months?", Model),
            ("One, please.", User),
        ]);
        all.sort();
        assert_eq!(second, all, "not what the model wrote to itself");
    }

    #[test]
    fn number_is_known_from_the_first_text_that_has_it() {
        let (trace, memo) = (transfer().build(), Memo::new());
        let known = KnownTexts::cached(&trace, &memo);
        let knows = |call: usize, number: f64| known.has_number(&trace, &memo, &trace.calls[call], number);
        assert!(knows(1, 1150.0) && knows(1, 900.0) && knows(1, 3.0) && knows(1, 12.0) && knows(1, 1.0));
        assert!(!knows(1, 77.0), "of its own result");
        assert!(knows(0, 900.0) && !knows(0, 1150.0), "of a later result");
    }

    #[test]
    fn texts_that_a_later_prompt_omits_are_known() {
        let mut trace = transfer().build();
        let llm = trace.calls[1].llm.unwrap();
        trace.views[llm].input.drain(..5);
        assert_eq!(texts_before(&trace, 1).len(), 5);
    }

    #[test]
    fn each_text_is_read_once() {
        let turns = 200;
        let mut script = Script::new("Count.");
        for n in 0..turns {
            script =
                script.calls("", &[("next", &format!(r#"{{"n":{n}}}"#))]).returns(&format!("{n} of 1000"));
        }
        let (trace, memo) = (script.answers("Done.").build(), Memo::new());
        let known = KnownTexts::cached(&trace, &memo);
        let before = work::counted();
        assert!(trace.calls.iter().all(|call| !known.has_number(&trace, &memo, call, 7_777.0)));
        let work = work::counted() - before;
        assert!(work <= 2 * turns, "{work} pieces of texts");
    }

    #[test]
    fn image_may_contain_any_value() {
        let mut trace = transfer().build();
        let llm = trace.calls[1].llm.unwrap();
        trace.views[llm].input.push(Message { role: Role::User, parts: vec![Part::Media].into() });
        let (memo, calls) = (Memo::new(), &trace.calls);
        let known = KnownTexts::cached(&trace, &memo);
        assert!(known.before(&trace, &calls[0]).is_some() && known.before(&trace, &calls[1]).is_none());
        assert!(known.has_number(&trace, &memo, &calls[1], 77.0));
    }
}
