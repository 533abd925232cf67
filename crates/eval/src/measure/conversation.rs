//! The turns of a run: which model call came before which, and what was handed back between them.
//!
//! In: a trace. Out: [`Turns`], and the texts of a prompt that are newer than the model's own last
//! words. Code that a model writes is often carried out without a span: what came of it is to be
//! seen only in the next prompt.

use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use verdict_otlp::trace::Idx;

use super::memo::Memo;
use crate::recognise::{AgentTrace, Message, Part, Role, SpanView, Text};

/// Neighbours among the model calls of one agent.
#[derive(Debug)]
pub(crate) struct Turns {
    before: HashMap<Idx, Idx>,
    after: HashMap<Idx, Idx>,
}

impl Turns {
    /// Those of the trace, computed once.
    pub(crate) fn of(trace: &AgentTrace, memo: &Memo) -> Rc<Turns> {
        memo.trace(|| {
            let mut turns = Turns { before: HashMap::new(), after: HashMap::new() };
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

    /// The same agent's model call before this one.
    pub(crate) fn before(&self, at: Idx) -> Option<Idx> {
        self.before.get(&at).copied()
    }

    /// The same agent's model call after this one.
    pub(crate) fn after(&self, at: Idx) -> Option<Idx> {
        self.after.get(&at).copied()
    }
}

/// What a prompt holds that is newer than the model's own last words: results and observations.
/// Nothing where the model has not spoken in it.
pub(crate) fn new_in_prompt(view: &SpanView) -> impl Iterator<Item = &Text> {
    let last_assistant = view.input.iter().rposition(|m| m.role == Role::Assistant);
    let newer = last_assistant.and_then(|at| view.input.get(at + 1..)).unwrap_or_default();
    newer.iter().flat_map(|m| &m.parts).filter_map(|p| match p {
        Part::Text(text) => Some(text),
        Part::Result { content, .. } => Some(content),
        _ => None,
    })
}

/// Whether a model's output holds code that is to be run.
pub(crate) fn writes_code(text: &str) -> bool {
    const MARKS: [&[u8]; 3] = [b"```", b"<code>", b"Code:"];
    let bytes = text.as_bytes();
    let is_mark =
        |at: usize| bytes.get(at..).is_some_and(|rest| MARKS.iter().any(|mark| rest.starts_with(mark)));
    memchr::memchr3_iter(b'`', b'<', b'C', bytes).any(is_mark)
}

/// From this many bytes on, what a user said may be the very page that the model says it read.
const PASTED: usize = 2000;

/// Results that stand in the prompt: more than this trace's calls were brought in from before it.
pub(crate) fn results_in_prompt(input: &[Message]) -> usize {
    input.iter().flat_map(|m| &m.parts).filter(|p| matches!(p, Part::Result { .. })).count()
}

/// A user gave the model something to read.
pub(crate) fn has_pasted_text(input: &[Message]) -> bool {
    let users = input.iter().filter(|m| m.role == Role::User).flat_map(|m| &m.parts);
    let bytes: usize = users
        .map(|p| match p {
            Part::Text(t) => t.len(),
            Part::Media => PASTED,
            _ => 0,
        })
        .sum();
    bytes >= PASTED
}
