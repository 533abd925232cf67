//! The run up to a moment: which calls had been made, and what had been read.
//!
//! In: a trace, and moments in rising order. Out: counts of calls, and the [`Evidence`] that a
//! model could have seen by then. Both move forward only, so a trace is walked once.

use foldhash::HashSet;
use verdict_otlp::trace::{Idx, Kind};

use super::evidence::{Evidence, Source};
use crate::measure::agent::attempts::{Attempts, CallOutcome};
use crate::recognise::{AgentTrace, Part, Role};

/// How far above an agent its calling tool span is looked for.
const MAX_ABOVE: usize = 16;

/// The calls made so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallCounts {
    /// Calls into the world (not the model talking to itself, not the final answer).
    pub calls: usize,
    /// Of those, the ones that gave a result.
    pub succeeded: usize,
    /// Of those, the ones of which nothing tells how they ended.
    pub unknown: usize,
}

/// Walks a trace forward in time.
pub(crate) struct History<'a> {
    trace: &'a AgentTrace,
    attempts: &'a Attempts,
    /// What the model could have read.
    pub evidence: Evidence<'a>,
    counts: CallCounts,
    next_call: usize,
    /// When results became available: by calls' ends, and the ends of spans that retrieve.
    results: Vec<(u64, ResultAt)>,
    next_result: usize,
    llms: Vec<Idx>,
    next_llm: usize,
    /// Calls that started an agent: their result is that agent's word, not the world's.
    delegations: HashSet<Idx>,
    /// The first model call of each agent: what an assistant said in its prompt was said before
    /// this trace, and nothing here can vouch for it.
    first_llms: HashSet<Idx>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ResultAt {
    Call(usize),
    Span(Idx),
}

impl<'a> History<'a> {
    /// At the beginning of the trace.
    pub(crate) fn new(trace: &'a AgentTrace, attempts: &'a Attempts) -> History<'a> {
        let end = |at: Idx| trace.tree.spans.get(at).map_or(0, |s| s.end.max(s.start));
        let calls = trace.calls.iter().enumerate();
        let mut results: Vec<(u64, ResultAt)> =
            calls.map(|(i, c)| (c.tool.map_or(c.start, end), ResultAt::Call(i))).collect();
        let retrieves = |k: Kind| matches!(k, Kind::Retriever | Kind::Memory);
        let spans = trace.views.iter().enumerate();
        results.extend(
            spans
                .filter(|(_, r)| retrieves(r.kind) && r.result.is_some())
                .map(|(at, _)| (end(at), ResultAt::Span(at))),
        );
        results.sort_unstable();
        let llms =
            trace.views.iter().enumerate().filter(|(_, r)| r.kind == Kind::Llm).map(|(at, _)| at).collect();
        History {
            trace,
            attempts,
            evidence: Evidence::default(),
            counts: CallCounts::default(),
            next_call: 0,
            results,
            next_result: 0,
            llms,
            next_llm: 0,
            delegations: delegations(trace),
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
        self.counts
    }

    /// Reads everything that was there when the model call `until` began, its own prompt
    /// included; for an agent's own span, when it was about to end.
    pub(crate) fn read_until(&mut self, until: Idx) {
        let llm = self.trace.views.get(until).is_some_and(|r| r.kind == Kind::Llm);
        let at =
            |s: &verdict_otlp::trace::Span| if llm { s.start } else { s.end.max(s.start).saturating_sub(1) };
        let now = self.trace.tree.spans.get(until).map_or(0, at);
        while let Some(&(_, item)) = self.results.get(self.next_result).filter(|(end, _)| *end <= now) {
            self.next_result += 1;
            match item {
                ResultAt::Call(i) => self.read_call(i),
                ResultAt::Span(at) => {
                    if let Some(result) = self.trace.views.get(at).and_then(|r| r.result.as_ref()) {
                        self.evidence.add(result, Source::Tool);
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
    }

    fn read_call(&mut self, i: usize) {
        let Some(call) = self.trace.calls.get(i) else { return };
        let Some(result) = &call.result else { return };
        if self.attempts.at(i).is_none_or(|a| a.is_control) {
            return;
        }
        // An echo proves nothing: `print("6012")`, a note written and returned.
        let shown = result.trim();
        if shown.len() > 2 && call.arguments.as_deref().is_some_and(|a| a.contains(shown)) {
            return;
        }
        let secondhand = call.tool.is_some_and(|t| self.delegations.contains(&t));
        self.evidence.add(result, if secondhand { Source::Conversation } else { Source::Tool });
    }

    /// Notes what the model said and asked for.
    fn note_output(&mut self, at: Idx) {
        let Some(view) = self.trace.views.get(at) else { return };
        for part in view.output.iter().flat_map(|m| &m.parts) {
            match part {
                Part::Text(text) | Part::Reasoning(text) => self.evidence.note_model_text(text),
                Part::Call(call) => call.arguments.iter().for_each(|a| self.evidence.note_model_text(a)),
                _ => {}
            }
        }
    }

    fn read_prompt(&mut self, at: Idx) {
        let Some(view) = self.trace.views.get(at) else { return };
        let is_first = self.first_llms.contains(&at);
        for message in &view.input {
            let source = match message.role {
                Role::System => Source::Instructions,
                Role::User | Role::Tool => Source::Conversation,
                Role::Assistant if is_first => Source::Conversation,
                Role::Assistant => continue,
            };
            for part in &message.parts {
                match part {
                    Part::Text(text) => self.evidence.add(text, source),
                    Part::Result { content, .. } => self.evidence.add(content, source),
                    _ => {}
                }
            }
        }
    }
}

fn delegations(trace: &AgentTrace) -> HashSet<Idx> {
    let is_tool = |at: &Idx| trace.views.get(*at).is_some_and(|r| r.kind == Kind::Tool);
    let above = |at: Idx| trace.tree.ancestors(at).take(MAX_ABOVE).find(is_tool);
    trace.agents.iter().filter_map(|agent| above(agent.at)).collect()
}
