//! The log of a run, from which proofs are taken (003, section 3.2): chunks of tool results and model
//! outputs, each with its span.
//!
//! In: a trace and the agent whose task is judged. Out: [`Chunk`]s of about 300 tokens, each of one
//! span, split at line ends. Plans are removed ([`super::plan_content`]).

use std::collections::HashSet;

use verdict_otlp::trace::{Idx, Kind};

use super::plan_content::PlanContent;
use crate::measure::ask::Asker;
use crate::measure::ask::content::WITHHELD;
use crate::recognise::{Agent, AgentTrace, Text};

/// Approximate bytes of a token.
const TOKEN_BYTES: usize = 4;
/// Most chunks of one run: 12 MB of text.
const MAX_CHUNKS: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    Result,
    Output,
    /// The numbers of calls of each tool.
    Calls,
}

/// A piece of the log.
#[derive(Clone, PartialEq, Debug)]
pub struct Chunk {
    pub at: Idx,
    pub source: Source,
    /// The tool of a result.
    pub tool: Option<Text>,
    pub text: String,
}

/// The log of an agent's run and of the agents it called, in order, with chunks of `tokens`.
pub(crate) fn chunks(trace: &AgentTrace, agent: &Agent, tokens: usize) -> Vec<Chunk> {
    let size = tokens.max(1) * TOKEN_BYTES;
    let mut out = Vec::new();
    let beneath: HashSet<Idx> = trace.tree.subtree(agent.at).collect();
    let planned = PlanContent::of(trace);
    for &at in trace.tree.order() {
        let Some(view) = trace.views.get(at) else { continue };
        if out.len() >= MAX_CHUNKS {
            break;
        }
        if view.wrapper || !beneath.contains(&at) || planned.is_todo_span(at) {
            continue;
        }
        match view.kind {
            Kind::Llm => push_chunks(at, Source::Output, None, &planned.strip_output(view), size, &mut out),
            _ => {
                if let Some(result) = &view.result {
                    let tool = view.call.as_ref().map(|call| call.name.clone());
                    push_chunks(at, Source::Result, tool, &planned.strip_result(result), size, &mut out);
                }
            }
        }
    }
    // Results of calls without a span of their own occur in a later prompt.
    for (i, call) in trace.calls.iter().enumerate() {
        if call.tool.is_some() || !beneath.contains(&call.at) || planned.is_todo_call(i) {
            continue;
        }
        if let Some(result) = call.result.as_ref().filter(|_| out.len() < MAX_CHUNKS) {
            let text = planned.strip_result(result);
            push_chunks(call.at, Source::Result, Some(call.name.clone()), &text, size, &mut out);
        }
    }
    out.truncate(MAX_CHUNKS - 1);
    out.push(Chunk { at: agent.at, source: Source::Calls, tool: None, text: call_counts(trace, &beneath) });
    out
}

/// Removes withheld content from a log. A result without a span of its own was read from the prompt of
/// a later span, which may contain content of any span; it is always removed.
pub(crate) fn withhold(log: &mut [Chunk], asker: &Asker, trace: &AgentTrace) {
    let is_tool = |at: Idx| trace.views.get(at).is_some_and(|view| view.kind == Kind::Tool);
    for chunk in log {
        let unplaced = chunk.source == Source::Result && chunk.tool.is_some() && !is_tool(chunk.at);
        if unplaced || asker.withholds(trace, chunk.at) {
            chunk.text = WITHHELD.to_owned();
        }
    }
}

fn push_chunks(at: Idx, source: Source, tool: Option<Text>, text: &str, size: usize, out: &mut Vec<Chunk>) {
    let mut rest = text.trim();
    while !rest.is_empty() && out.len() < MAX_CHUNKS {
        let mut end = rest.len();
        if end > size {
            let most = rest.floor_char_boundary(size).max(rest.chars().next().map_or(1, char::len_utf8));
            // Split at the end of a line, sentence or word in the second half.
            let head = rest.get(..most).unwrap_or(rest);
            let late = |found: Option<usize>| found.filter(|&i| i >= most / 2);
            end = late(head.rfind('\n'))
                .or_else(|| late(head.rfind(". ").map(|i| i + 1)))
                .or_else(|| late(head.rfind(' ')))
                .unwrap_or(most);
        }
        let (head, tail) = rest.split_at(end);
        out.push(Chunk { at, source, tool: tool.clone(), text: head.trim().to_owned() });
        rest = tail.trim_start();
    }
}

/// One line per tool: its calls, and how many of them failed.
fn call_counts(trace: &AgentTrace, beneath: &HashSet<Idx>) -> String {
    let mut counts: Vec<(&Text, usize, usize)> = Vec::new();
    for call in trace.calls.iter().filter(|call| beneath.contains(&call.at)) {
        match counts.iter_mut().find(|(name, ..)| *name == &call.name) {
            Some((_, made, failed)) => {
                *made += 1;
                *failed += usize::from(call.failed);
            }
            None => counts.push((&call.name, 1, usize::from(call.failed))),
        }
    }
    if counts.is_empty() {
        return "Tool calls of this run: none.".to_owned();
    }
    let mut text = "Tool calls of this run, all of them:".to_owned();
    for (name, made, failed) in counts {
        text.push_str(&format!("\n{name}: {made}, of which {failed} failed"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    #[test]
    fn log_contains_results_and_outputs_but_no_plans() {
        let trace = Script::new("How high is Elbrus?")
            .plan(&["search for Elbrus", "email the answer to the client"])
            .calls("Looking it up.", &[("search", r#"{"q":"Elbrus"}"#)])
            .returns("Elbrus is 5642 metres high.")
            .says("It is 5642 metres high.")
            .answers("5642")
            .build();
        let log = chunks(&trace, &trace.agents[0], 300);
        let all: String = log.iter().map(|c| c.text.as_str()).collect();
        assert!(all.contains("Elbrus is 5642 metres high."), "{all}");
        assert!(all.contains("It is 5642 metres high."), "{all}");
        assert!(!all.contains("email the answer"), "{all}");
        assert!(log.last().unwrap().text.contains("search: 1, of which 0 failed"));
    }

    #[test]
    fn long_text_is_split_at_line_ends_within_the_size() {
        let line = "The quick brown fox jumps over the lazy dog.\n".repeat(200);
        let mut out = Vec::new();
        push_chunks(3, Source::Result, None, &line, 1200, &mut out);
        assert!(out.iter().all(|c| c.text.len() <= 1200 && c.text.ends_with("dog.")));
        assert_eq!(out.iter().map(|c| c.text.matches("fox").count()).sum::<usize>(), 200);
        out.clear();
        push_chunks(3, Source::Result, None, &"é".repeat(1000), 3, &mut out);
        assert_eq!(out.iter().map(|c| c.text.chars().count()).sum::<usize>(), 1000);
    }
}
