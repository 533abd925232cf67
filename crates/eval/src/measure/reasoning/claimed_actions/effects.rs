//! The effects of the calls of a trace, with which claims are compared.
//!
//! In: the calls and their outcomes. Out: for each tool and action, the start of the first call that may have carried
//! it out, and the identifiers in successful calls.

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
/// Minimum rows of a result that is taken for a lookup of a list.
const MIN_ROWS: usize = 2;

/// The index of a call, and the state in which its result waits for approval or for a place.
pub(super) type WaitingCall = (usize, String);

/// A tool that the trace calls.
pub(super) struct CalledTool {
    pub(super) purpose: Rc<ToolPurpose>,
    /// Start of the first call.
    pub(super) first_start: u64,
    /// The stems of the things in the tool's name, see [`things`](super::offers::things).
    pub(super) things: OnceCell<Vec<String>>,
}

/// The successful calls of a trace that change something.
#[derive(Default)]
pub(super) struct Effects {
    /// Called tools by name.
    pub(super) tools: HashMap<String, CalledTool>,
    /// By claimed action, the start of the first call of a tool that may carry it out.
    pub(super) first_possible: RefCell<HashMap<Action, Option<u64>>>,
    /// The starts of the calls, ascending.
    pub(super) starts: Vec<u64>,
    /// The model spans that requested one of the calls.
    pub(super) requesting_spans: HashSet<Idx>,
    /// Identifiers in arguments and results, with the start of the first call that has them.
    pub(super) identifiers: HashMap<String, u64>,
    /// Whether all arguments and results of the calls are recorded.
    pub(super) is_fully_recorded: bool,
    /// Whether any call of the trace, also a lookup, has a result.
    pub(super) has_results: bool,
    /// By the action of its tool, the calls that ran and reported that they had no effect.
    pub(super) denied: HashMap<Action, Vec<usize>>,
    /// The calls in `denied` that were dry runs.
    pub(super) dry_runs: HashSet<usize>,
    /// By model call, whether its output mentions a dry run.
    pub(super) mentions_dry_run: RefCell<HashMap<Idx, bool>>,
    /// By claimed action, the first call in `denied` that does not report that the action was done earlier.
    pub(super) first_denied: RefCell<HashMap<Action, Option<usize>>>,
    /// By claimed action, the start of the first call whose arguments or result state that the action was done.
    pub(super) first_done_start: RefCell<HashMap<Action, Option<u64>>>,
    /// By model call and action, the only call that may have carried out the action, with the state in which it
    /// waits.
    pub(super) waiting_calls: RefCell<HashMap<(Idx, Action), Option<WaitingCall>>>,
    /// By agent, whether the user asked it a question that asks for no action.
    pub(super) asked_question: RefCell<HashMap<Option<usize>, bool>>,
    /// By model call and words, whether the instructions contain the words.
    pub(super) mentioned_in_instructions: RefCell<HashMap<(Idx, String), bool>>,
}

/// Whether a call of a tool of unknown purpose was only a lookup: its whole result is a list.
fn is_lookup(trace: &AgentTrace, call: &Call, memo: &Memo) -> bool {
    let is_list = |result: &Text| {
        let structure = Structure::cached(result, memo);
        let Some(Structure(Some(parsed))) = structure.as_deref() else { return false };
        let row_count = parsed.records.iter().filter(|record| record.list == Some(0)).count();
        let has_fields =
            parsed.records.iter().any(|record| record.list.is_none() && !record.fields.is_empty());
        parsed.lists.len() == 1 && row_count >= MIN_ROWS && !has_fields
    };
    purpose(trace, memo, call) == Purpose::Unknown
        && ToolPurpose::for_call(trace, memo, call).actions.is_empty()
        && call.result.as_ref().is_some_and(is_list)
}

impl Effects {
    pub(super) fn new(trace: &AgentTrace, memo: &Memo, attempts: &CallAttempts) -> Effects {
        let mut effects = Effects { is_fully_recorded: true, ..Effects::default() };
        // The prompt of an agent's first model call may contain calls of earlier runs.
        for agent in &trace.agents {
            let first_view = agent.llms.first().and_then(|at| trace.views.get(*at));
            let parts =
                first_view.into_iter().flat_map(|view| &view.input).flat_map(|message| &message.parts);
            for part in parts {
                match part {
                    Part::Call(call) => {
                        effects.is_fully_recorded = false;
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
            let has_no_effect = is_trial || without_effect::reports_not_done(call, memo);
            let purpose = has_no_effect.then(|| ToolPurpose::for_call(trace, memo, call));
            let action = purpose.and_then(|tool_purpose| {
                tool_purpose.actions.first().copied().filter(|_| !tool_purpose.is_query())
            });
            match action {
                // An executed program may have found nothing to change.
                Some(Action::Execute) => effects.add(trace, call, memo),
                Some(action) => {
                    effects.denied.entry(action).or_default().push(i);
                    if is_trial {
                        effects.dry_runs.insert(i);
                    }
                }
                None if has_no_effect || is_lookup(trace, call, memo) => {}
                None => effects.add(trace, call, memo),
            }
        }
        effects.starts.sort_unstable();
        effects
    }

    /// Adds a call that may have had an effect, with its identifiers.
    fn add(&mut self, trace: &AgentTrace, call: &Call, memo: &Memo) {
        if !self.add_tool(&call.name, || ToolPurpose::for_call(trace, memo, call), call.start) {
            return;
        }
        self.requesting_spans.extend(call.llm);
        self.is_fully_recorded &= call.arguments.is_some() && call.result.is_some();
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
        let tool = || CalledTool { purpose: purpose(), first_start: u64::MAX, things: OnceCell::new() };
        let CalledTool { purpose, first_start, .. } = self.tools.entry(name.to_owned()).or_insert_with(tool);
        if purpose.is_query() {
            return false;
        }
        *first_start = start.min(*first_start);
        self.starts.push(start);
        true
    }

    /// Whether a call is of a tool that may change something.
    pub(super) fn changes(&self, call: &Call) -> bool {
        self.tools.get(&*call.name).is_some_and(|tool| !tool.purpose.is_query())
    }

    /// Whether a tool that may carry out the action was called up to `end`.
    pub(super) fn may_have_done(&self, action: Action, end: u64) -> bool {
        let first = *self.first_possible.borrow_mut().entry(action).or_insert_with(|| {
            let tools = self.tools.values().inspect(|_| work::count(1));
            tools.filter(|tool| tool.purpose.may_do(action)).map(|tool| tool.first_start).min()
        });
        first.is_some_and(|first| first <= end)
    }

    /// Whether a call started from `from` to `end`.
    pub(super) fn has_call_within(&self, from: u64, end: u64) -> bool {
        self.starts.get(self.starts.partition_point(|s| *s < from)).is_some_and(|start| *start <= end)
    }
}
