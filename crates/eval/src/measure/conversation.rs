//! The turns of a run: the order of an agent's model calls, and the texts between them.
//!
//! In: a trace. Out: [`Turns`], and the texts of a prompt after the last message of the model. Frameworks often run
//! the code that a model writes without a span, so that its output is only in the next prompt.

use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use verdict_otlp::trace::Idx;

use super::identifier::each_word;
use super::memo::Memo;
pub(crate) use crate::recognise::action_text::writes_code;
use crate::recognise::{AgentTrace, Message, Part, Role, SpanView, Text};

/// The previous and the next model call of each model call.
#[derive(Debug)]
pub(crate) struct Turns {
    before: HashMap<Idx, Idx>,
    after: HashMap<Idx, Idx>,
}

impl Turns {
    /// The turns of the trace, computed once.
    pub(crate) fn cached(trace: &AgentTrace, memo: &Memo) -> Rc<Turns> {
        memo.trace(|| {
            let len = trace.agents.iter().map(|agent| agent.llms.len()).sum();
            let mut turns = Turns { before: HashMap::with_capacity(len), after: HashMap::with_capacity(len) };
            for agent in &trace.agents {
                for pair in agent.llms.windows(2) {
                    if let [first, second] = pair {
                        turns.before.insert(*second, *first);
                        turns.after.insert(*first, *second);
                    }
                }
            }
            turns
        })
    }

    /// The model call of the same agent before this one.
    pub(crate) fn before(&self, span_index: Idx) -> Option<Idx> {
        self.before.get(&span_index).copied()
    }

    /// The model call of the same agent after this one.
    pub(crate) fn after(&self, span_index: Idx) -> Option<Idx> {
        self.after.get(&span_index).copied()
    }
}

/// The texts of a prompt after the last message of the model: results and observations. Empty if there is no message
/// of the model.
pub(crate) fn new_in_prompt(view: &SpanView) -> impl Iterator<Item = &Text> {
    let last_assistant = view.input.iter().rposition(|m| m.role == Role::Assistant);
    let newer_messages = last_assistant.and_then(|index| view.input.get(index + 1..)).unwrap_or_default();
    newer_messages.iter().flat_map(|m| &m.parts).filter_map(readable_text)
}

/// The text of a part that is plain text.
pub(crate) fn plain_text(part: &Part) -> Option<&Text> {
    match part {
        Part::Text(text) => Some(text),
        _ => None,
    }
}

/// The text that a part of a prompt shows to the model: plain text, or a result.
pub(crate) fn readable_text(part: &Part) -> Option<&Text> {
    match part {
        Part::Text(text) => Some(text),
        Part::Result { content, .. } => Some(content),
        _ => None,
    }
}

/// All texts that a prompt shows to the model.
pub(crate) fn prompt_texts(view: &SpanView) -> impl Iterator<Item = &Text> {
    view.input.iter().flat_map(|m| &m.parts).filter_map(readable_text)
}

/// Whether a tool of this name runs code, by words of programs, which are of no language.
pub(crate) fn runs_code(name: &str) -> bool {
    /// The length of "interpreter", the longest of these words.
    const MAX_WORD_BYTES: usize = 11;
    let (mut runs, mut writes) = (false, false);
    each_word(name, |word| {
        let mut lower = [0; MAX_WORD_BYTES];
        let Some(lower) = lower.get_mut(..word.len()) else { return };
        lower.copy_from_slice(word.as_bytes());
        lower.make_ascii_lowercase();
        match &*lower {
            b"run" | b"execute" | b"exec" | b"eval" | b"python" | b"python3" | b"ipython" | b"bash"
            | b"sh" | b"shell" | b"terminal" | b"interpreter" | b"node" | b"javascript" | b"repl"
            | b"notebook" | b"code" => runs = true,
            b"write" | b"edit" | b"create" | b"save" | b"append" | b"patch" | b"insert" => writes = true,
            _ => {}
        }
    });
    runs && !writes
}

/// As [`runs_code`], computed once for each name.
pub(crate) fn is_code_runner(name: &Text, memo: &Memo) -> bool {
    struct RunsCode(bool);
    memo.for_text(name, |name| RunsCode(runs_code(name))).0
}

/// From this number of bytes on, the user's messages may contain a page for the model to read.
const MIN_PASTED_BYTES: usize = 2000;

/// The number of results in a prompt. If it exceeds the number of calls of the trace, some are of earlier runs.
pub(crate) fn results_in_prompt(input: &[Message]) -> usize {
    input.iter().flat_map(|m| &m.parts).filter(|p| matches!(p, Part::Result { .. })).count()
}

/// Whether the user's messages contain a long text to read. Texts that another agent of the run wrote, for which
/// `is_written` is true, do not count.
pub(crate) fn has_pasted_text(input: &[Message], is_written: impl Fn(&str) -> bool) -> bool {
    let users = input.iter().filter(|m| m.role == Role::User).flat_map(|m| &m.parts);
    let bytes: usize = users
        .map(|p| match p {
            Part::Text(t) if t.len() < 40 || !is_written(t) => t.len(),
            Part::Media => MIN_PASTED_BYTES,
            _ => 0,
        })
        .sum();
    bytes >= MIN_PASTED_BYTES
}
