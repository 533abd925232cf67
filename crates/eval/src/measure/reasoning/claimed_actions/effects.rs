//! The effects of the calls of a trace, with which claims are compared.
//!
//! In: the calls and their outcomes. Out: by tool and by action, when it may first have been done, and the identifiers
//! that successful calls name.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use foldhash::{HashMap, HashSet};
use verdict_otlp::trace::Idx;
use verdict_otlp::work;

use crate::measure::calls::attempts::CallAttempts;
use crate::measure::excerpt::clip;
use crate::measure::language::Action;
use crate::measure::reasoning::linked_identifiers::identifiers;
use crate::measure::records::Structure;
use crate::measure::tool_purpose::{Purpose, ToolPurpose, purpose};
use crate::measure::{Memo, without_effect};
use crate::recognise::{AgentTrace, Call, Part, Text};

/// Bytes of the arguments and of the result of one call that are read.
pub(super) const MAX_BYTES: usize = 16 << 10;
/// Fewest rows of a list that was looked up.
const MIN_ROWS: usize = 2;

/// The index of a call, and the state in which it waits for somebody.
pub(super) type Awaited = (usize, String);

pub(super) struct CalledTool {
    pub(super) purpose: Rc<ToolPurpose>,
    /// Start of the first call.
    pub(super) first: u64,
    /// The things that the name of the tool is about, see [`things`].
    pub(super) things: OnceCell<Vec<String>>,
}

/// The successful calls of a trace that change something.
#[derive(Default)]
pub(super) struct Effects {
    /// Called tools by name.
    pub(super) tools: HashMap<String, CalledTool>,
    /// By action: the start of the first call of a tool that may carry it out; computed for the actions that are
    /// claimed.
    pub(super) able: RefCell<HashMap<Action, Option<u64>>>,
    /// Starts, ascending.
    pub(super) starts: Vec<u64>,
    /// Model spans that requested a call.
    pub(super) authors: HashSet<Idx>,
    /// Identifiers in arguments and results, with the start of the first call that has them.
    pub(super) identifiers: HashMap<String, u64>,
    /// All arguments and results are recorded.
    pub(super) whole: bool,
    /// A call returned something.
    pub(super) has_results: bool,
    /// By the action of its tool, the calls that ran and reported that they had no effect.
    pub(super) denied: HashMap<Action, Vec<usize>>,
    /// The calls in `denied` that were only a trial, and whether the text of a model call says so.
    pub(super) trials: HashSet<usize>,
    pub(super) says_trial: RefCell<HashMap<Idx, bool>>,
    /// By action, the first of these that does not say that it was done before; found for the actions that are claimed.
    pub(super) first_denied: RefCell<HashMap<Action, Option<usize>>>,
    /// By action, the start of the first call whose result states that it did more than prepare the action.
    pub(super) first_done: RefCell<HashMap<Action, Option<u64>>>,
    /// By model call and action, the only call that may have carried it out, with the state in which it waits, see
    /// [`Claimed::awaited`](super::Claimed::awaited).
    pub(super) awaited: RefCell<HashMap<(Idx, Action), Option<Awaited>>>,
    /// By agent, whether the user asked it a question that asks for no action.
    pub(super) asked_question: RefCell<HashMap<Option<usize>, bool>>,
    /// Whether the instructions of a model call have words.
    pub(super) ruled: RefCell<HashMap<(Idx, String), bool>>,
}

/// Whether a tool whose name has no verb only looked something up: all that it returned is a list.
fn is_lookup(trace: &AgentTrace, call: &Call, memo: &Memo) -> bool {
    let returned = |result: &Text| {
        let structure = Structure::cached(result, memo);
        let Some(Structure(Some(parsed))) = structure.as_deref() else { return false };
        let row_count = parsed.records.iter().filter(|record| record.list == Some(0)).count();
        let has_fields =
            parsed.records.iter().any(|record| record.list.is_none() && !record.fields.is_empty());
        parsed.lists.len() == 1 && row_count >= MIN_ROWS && !has_fields
    };
    purpose(trace, memo, call) == Purpose::Unknown
        && ToolPurpose::for_call(trace, memo, call).actions.is_empty()
        && call.result.as_ref().is_some_and(returned)
}

impl Effects {
    pub(super) fn new(trace: &AgentTrace, memo: &Memo, attempts: &CallAttempts) -> Effects {
        let mut effects = Effects { whole: true, ..Effects::default() };
        // Prompts of the first model calls contain calls of earlier runs.
        for agent in &trace.agents {
            let first = agent.llms.first().and_then(|at| trace.views.get(*at));
            let parts = first.into_iter().flat_map(|view| &view.input).flat_map(|message| &message.parts);
            for part in parts {
                match part {
                    Part::Call(call) => {
                        effects.whole = false;
                        effects.add_tool(
                            &call.name,
                            || memo.for_text(&call.name, |name| ToolPurpose::new(name, None)),
                            0,
                        );
                    }
                    Part::Result { .. } => effects.has_results = true,
                    _ => {}
                }
            }
        }
        for (i, call) in trace.calls.iter().enumerate() {
            effects.has_results |= call.result.is_some();
            let has_run = attempts.at(i).is_some_and(|attempt| !attempt.is_control && !attempt.failed());
            if !has_run {
                continue;
            }
            let is_trial = without_effect::is_trial(call, memo);
            let none = is_trial || without_effect::reports_not_done(call, memo);
            let purpose = none.then(|| ToolPurpose::for_call(trace, memo, call));
            let action = purpose.and_then(|tool_purpose| {
                tool_purpose.actions.first().copied().filter(|_| !tool_purpose.is_query())
            });
            match action {
                // An executed program may have found nothing to change.
                Some(Action::Execute) => effects.add(trace, call, memo),
                Some(action) => {
                    effects.denied.entry(action).or_default().push(i);
                    if is_trial {
                        effects.trials.insert(i);
                    }
                }
                None if none || is_lookup(trace, call, memo) => {}
                None => effects.add(trace, call, memo),
            }
        }
        effects.starts.sort_unstable();
        effects
    }

    fn add(&mut self, trace: &AgentTrace, call: &Call, memo: &Memo) {
        if !self.add_tool(&call.name, || ToolPurpose::for_call(trace, memo, call), call.start) {
            return;
        }
        self.authors.extend(call.llm);
        self.whole &= call.arguments.is_some() && call.result.is_some();
        for text in [&call.arguments, &call.result].into_iter().flatten() {
            let text = clip(text, MAX_BYTES);
            if memo.budget.spend(text.len() / 16) {
                for id in identifiers(text) {
                    self.identifiers.entry(id).or_insert(call.start);
                }
            }
        }
    }

    /// Adds a call of a tool; false if the tool only returns information.
    fn add_tool(&mut self, name: &str, purpose: impl FnOnce() -> Rc<ToolPurpose>, start: u64) -> bool {
        let tool = || CalledTool { purpose: purpose(), first: u64::MAX, things: OnceCell::new() };
        let CalledTool { purpose, first, .. } = self.tools.entry(name.to_owned()).or_insert_with(tool);
        if purpose.is_query() {
            return false;
        }
        *first = start.min(*first);
        self.starts.push(start);
        true
    }

    /// Whether a call is one of a tool that changes something.
    pub(super) fn changes(&self, call: &Call) -> bool {
        self.tools.get(&*call.name).is_some_and(|tool| !tool.purpose.is_query())
    }

    /// Whether a tool that may do this was called before `end`.
    pub(super) fn may_have_done(&self, action: Action, end: u64) -> bool {
        let first = *self.able.borrow_mut().entry(action).or_insert_with(|| {
            let able = self.tools.values().inspect(|_| work::count(1));
            able.filter(|tool| tool.purpose.may_do(action)).map(|tool| tool.first).min()
        });
        first.is_some_and(|first| first <= end)
    }

    pub(super) fn any_within(&self, from: u64, end: u64) -> bool {
        self.starts.get(self.starts.partition_point(|s| *s < from)).is_some_and(|start| *start <= end)
    }
}
