//! The calls made, and the content read, before a point in time of a run.
//!
//! In: a trace, and points in time in ascending order. Out: counts of calls, and the [`Evidence`] that a model could
//! have read. Both only advance, so that a trace is read once.

use foldhash::HashSet;
use verdict_otlp::trace::{Idx, Kind};

use super::dates::year_of;
use super::evidence::{Evidence, TextSource};
use super::executed_placeholder::writes_text;
use crate::measure::calls::attempts::{CallAttempts, CallOutcome};
use crate::measure::conversation::{plain_text, readable_text};
use crate::measure::dialogue::Replies;
use crate::measure::identifier::NameWords;
use crate::measure::language::Action;
use crate::measure::records::Structure;
use crate::measure::tool_purpose::{Purpose, ToolPurpose, purpose};
use crate::measure::{Memo, numbers};
use crate::recognise::{AgentTrace, Call, Part, Role, Text};

/// Maximum ancestors of an agent's span that are searched for the tool span that called the agent.
const MAX_ANCESTORS: usize = 16;

/// Maximum texts to which the user replied whose numbers are known to the answers after them. Each answer is compared
/// with all numbers before it.
const MAX_REPLIED_TEXTS: usize = 24;

/// The calls made so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallCounts {
    /// Calls of tools that do more than control the run, and retrievals of documents.
    pub calls: usize,
    /// Calls that returned a result.
    pub succeeded: usize,
    /// Calls whose outcome is not recorded.
    pub unknown: usize,
    /// Calls that are retrievals.
    pub retrieved: usize,
}

/// A walk over a trace, forward in time.
pub(crate) struct TraceHistory<'a> {
    trace: &'a AgentTrace,
    memo: &'a Memo,
    attempts: &'a CallAttempts,
    /// Whether a result is prose, see [`TraceHistory::has_prose`].
    has_prose: bool,
    /// Results that were not yet examined for prose.
    unexamined_results: Vec<&'a Text>,
    /// The content that the model could have read.
    pub evidence: Evidence<'a>,
    counts: CallCounts,
    next_call: usize,
    /// The ends of retrievals that returned something, ascending.
    retrieval_ends: Vec<u64>,
    next_retrieved: usize,
    /// The results, each with the time at which it became available: the end of the call or of the retrieving span.
    results: Vec<(u64, ResultSource)>,
    next_result: usize,
    llms: Vec<Idx>,
    next_llm: usize,
    /// The next model call whose text is added if the user replied to it.
    next_replied: usize,
    /// Tool spans that started an agent: their result is a report of that agent.
    delegations: HashSet<Idx>,
    /// The model calls whose texts are answers that were checked. A number that was reported is no evidence afterwards;
    /// an answer after it that repeats another answer states no new fact.
    checked_answers: HashSet<Idx>,
    /// The number of texts that were added since the user replied to them.
    replied_texts: usize,
    /// The first model call of each agent. Assistant messages in its prompt are from before this trace, and are read as
    /// conversation.
    first_llms: HashSet<Idx>,
}

/// The call or the retrieving span that returned a result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ResultSource {
    Call(usize),
    Span(Idx),
}

impl<'a> TraceHistory<'a> {
    /// A walk at the beginning of the trace.
    pub(crate) fn new(trace: &'a AgentTrace, attempts: &'a CallAttempts, memo: &'a Memo) -> TraceHistory<'a> {
        let end = |at: Idx| end_of(trace, at);
        let calls = trace.calls.iter().enumerate();
        let mut results: Vec<(u64, ResultSource)> =
            calls.map(|(i, c)| (c.tool.map_or(c.start, end), ResultSource::Call(i))).collect();
        let mut llms = Vec::new();
        for (at, view) in trace.views.iter().enumerate() {
            match view.kind {
                Kind::Llm => llms.push(at),
                Kind::Retriever | Kind::Memory if view.result.is_some() => {
                    results.push((end(at), ResultSource::Span(at)));
                }
                _ => {}
            }
        }
        results.sort_unstable();
        let returned = |at: Idx| {
            let view = trace.views.get(at).filter(|view| view.kind == Kind::Retriever && !view.wrapper);
            view.and_then(|view| view.result.as_ref()).is_some_and(|result| !result.trim().is_empty())
        };
        let retrieval_ends =
            results.iter().filter(|(_, item)| matches!(item, ResultSource::Span(at) if returned(*at)));
        let retrieval_ends = retrieval_ends.map(|(end, _)| *end).collect();
        let mut evidence = Evidence::within(&memo.budget);
        let year = trace.tree.spans.first().and_then(|span| year_of(span.start));
        year.into_iter().for_each(|year| evidence.add_number(year as f64));
        TraceHistory {
            trace,
            memo,
            attempts,
            has_prose: false,
            unexamined_results: Vec::new(),
            evidence,
            counts: CallCounts::default(),
            next_call: 0,
            retrieval_ends,
            next_retrieved: 0,
            results,
            next_result: 0,
            llms,
            next_llm: 0,
            next_replied: 0,
            delegations: delegations(trace),
            checked_answers: HashSet::default(),
            replied_texts: 0,
            first_llms: trace.agents.iter().filter_map(|a| a.llms.first().copied()).collect(),
        }
    }

    /// The calls made until `now`.
    pub(crate) fn call_counts(&mut self, now: u64) -> CallCounts {
        while let Some(call) = self.trace.calls.get(self.next_call).filter(|c| c.start <= now) {
            if let Some(attempt) = self.attempts.at(self.next_call).filter(|a| !a.is_control) {
                self.counts.calls += 1;
                self.counts.succeeded += usize::from(attempt.outcome == CallOutcome::Succeeded);
                self.counts.unknown += usize::from(call.result.is_none() && !call.failed);
            }
            self.next_call += 1;
        }
        while self.retrieval_ends.get(self.next_retrieved).is_some_and(|end| *end <= now) {
            self.next_retrieved += 1;
            self.counts.calls += 1;
            self.counts.succeeded += 1;
            self.counts.retrieved += 1;
        }
        self.counts
    }

    /// Reads all content up to the start of the model call `until`, with its prompt; for an agent's span, all content
    /// that was available before its end.
    pub(crate) fn read_until(&mut self, until: Idx) {
        let now = match self.trace.views.get(until).is_some_and(|view| view.kind == Kind::Llm) {
            true => self.trace.tree.spans.get(until).map_or(0, |s| s.start),
            false => end_of(self.trace, until).saturating_sub(1),
        };
        while let Some(&(_, item)) = self.results.get(self.next_result).filter(|(end, _)| *end <= now) {
            self.next_result += 1;
            match item {
                ResultSource::Call(i) => self.read_call(i),
                ResultSource::Span(at) => {
                    if let Some(result) = self.trace.views.get(at).and_then(|r| r.result.as_ref()) {
                        self.unexamined_results.push(result);
                        self.evidence.add(result, TextSource::Tool);
                    }
                }
            }
        }
        while let Some(&at) = self.llms.get(self.next_llm).filter(|at| **at <= until) {
            self.next_llm += 1;
            self.read_prompt(at);
            if at < until {
                self.note_output(at);
            }
        }
        while let Some(&at) = self.llms.get(self.next_replied).filter(|at| **at < until) {
            self.next_replied += 1;
            self.add_replied_text(at);
        }
    }

    /// Adds the result of a call, and the arguments of a successful action.
    fn read_call(&mut self, i: usize) {
        let Some(call) = self.trace.calls.get(i) else { return };
        let Some(result) = &call.result else { return };
        let Some(attempt) = self.attempts.at(i).filter(|a| !a.is_control) else { return };
        if let Some(arguments) = call.arguments.as_ref().filter(|_| attempt.outcome == CallOutcome::Succeeded)
            && purpose(self.trace, self.memo, call) == Purpose::Action
            && is_carried_out(call, &ToolPurpose::for_call(self.trace, self.memo, call), self.memo)
        {
            self.evidence.add(arguments, TextSource::Instructions);
        }
        // A result that repeats the arguments is no evidence: `print("6012")`, a note that is written.
        let shown = result.trim();
        if shown.len() > 2 && call.arguments.as_deref().is_some_and(|a| a.contains(shown)) {
            return;
        }
        self.unexamined_results.push(result);
        self.evidence.add_columns(result, self.memo);
        let is_report = call.tool.is_some_and(|t| self.delegations.contains(&t));
        self.evidence.add(result, if is_report { TextSource::Conversation } else { TextSource::Tool });
    }

    /// Whether a result read so far is prose, which may state facts in other words than an answer.
    pub(crate) fn has_prose(&mut self) -> bool {
        for result in std::mem::take(&mut self.unexamined_results) {
            let is_structured =
                matches!(Structure::cached(result, self.memo).as_deref(), Some(Structure(Some(_))));
            self.has_prose |= !is_structured && numbers::all(result).len() != 1;
        }
        self.has_prose
    }

    /// Notes that the facts of the text of this model call were checked.
    pub(crate) fn note_checked(&mut self, at: Idx) {
        self.checked_answers.insert(at);
    }

    /// Adds the text of a model call if the user replied to it: the user and the model know its numbers.
    fn add_replied_text(&mut self, at: Idx) {
        let Some(view) = self.trace.views.get(at) else { return };
        let is_full = self.replied_texts >= MAX_REPLIED_TEXTS;
        if is_full || Replies::cached(self.trace, self.memo).to(at).is_none() {
            return;
        }
        self.replied_texts += 1;
        let is_checked = self.checked_answers.contains(&at);
        for text in view.output.iter().flat_map(|message| &message.parts).filter_map(plain_text) {
            match is_checked {
                true => self.evidence.add_answer(text),
                false => self.evidence.add_proposal(text),
            }
        }
    }

    /// Notes the numbers of the model's output and calls.
    fn note_output(&mut self, at: Idx) {
        let Some(view) = self.trace.views.get(at) else { return };
        for part in view.output.iter().flat_map(|m| &m.parts) {
            match part {
                Part::Text(text) | Part::Reasoning(text) => self.evidence.note_model_text(text),
                Part::Call(call) => call.arguments.iter().for_each(|a| self.evidence.note_arguments(a)),
                _ => {}
            }
        }
    }

    /// Adds the texts of the prompt of a model call, except texts of the model itself.
    fn read_prompt(&mut self, at: Idx) {
        let Some(view) = self.trace.views.get(at) else { return };
        let is_first = self.first_llms.contains(&at);
        for message in &view.input {
            let source = match message.role {
                Role::System => TextSource::Instructions,
                Role::User | Role::Tool => TextSource::Conversation,
                Role::Assistant if is_first => TextSource::Conversation,
                Role::Assistant => continue,
            };
            message.parts.iter().filter_map(readable_text).for_each(|text| self.evidence.add(text, source));
        }
    }
}

/// Whether the arguments of an action are its effect, such as a date that was booked or a text that was sent. A text
/// that is stored or run as code is a statement of the model and not an effect.
fn is_carried_out(call: &Call, tool: &ToolPurpose, memo: &Memo) -> bool {
    let is_storing = |action: &Action| matches!(action, Action::Execute | Action::Save);
    tool.actions.first().is_some_and(|action| !is_storing(action))
        && !writes_text(&NameWords::cached(&call.name, memo))
}

/// The end of the span at `at`, or its start if that is later.
pub(super) fn end_of(trace: &AgentTrace, at: Idx) -> u64 {
    trace.tree.spans.get(at).map_or(0, |s| s.end.max(s.start))
}

/// The tool spans that an agent's span descends from.
fn delegations(trace: &AgentTrace) -> HashSet<Idx> {
    let is_tool = |at: &Idx| trace.views.get(*at).is_some_and(|r| r.kind == Kind::Tool);
    let delegating_tool = |at: Idx| trace.tree.ancestors(at).take(MAX_ANCESTORS).find(is_tool);
    trace.agents.iter().filter_map(|agent| delegating_tool(agent.at)).collect()
}
