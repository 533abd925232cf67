//! The log of a run, from which proofs are taken (003, section 3.2): chunks of tool results and model
//! outputs, each with its span.
//!
//! In: a trace and the agent whose task is judged. Out: [`Chunk`]s of about 300 tokens, each of one
//! span, split at line ends. Plans are removed ([`super::plan_content`]).

use foldhash::HashMap;
use verdict_otlp::trace::{Idx, Kind};
use verdict_otlp::work;

use super::plan_content::PlanContent;
use crate::measure::Memo;
use crate::measure::ask::Asker;
use crate::measure::ask::content::WITHHELD;
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::recognise::{Agent, AgentTrace, Text};

/// Approximate bytes of a token.
const TOKEN_BYTES: usize = 4;
/// Most chunks of one run: 12 MB of text.
const MAX_CHUNKS: usize = 10_000;
/// Most of them that give the numbers of calls.
const MAX_COUNTS: usize = 100;
/// Plans that are looked for in a text in the time of one pass of another rule over it.
const PLANS_PER_PASS: usize = 8;

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

/// The log of an agent's run and of the agents it called, in order, with chunks of `tokens`. It ends early if the
/// work budget is exceeded.
pub(crate) fn chunks(trace: &AgentTrace, memo: &Memo, agent: &Agent, tokens: usize) -> Vec<Chunk> {
    let size = tokens.max(1) * TOKEN_BYTES;
    let mut out = Vec::new();
    let planned = PlanContent::of(trace, memo);
    // Each text is searched for each plan.
    let is_left = |text: usize| {
        let searched = text.saturating_mul(1 + planned.texts() / PLANS_PER_PASS);
        memo.budget.spend(1 + searched / BYTES_PER_STEP)
    };
    for at in trace.tree.subtree(agent.at) {
        let Some(view) = trace.views.get(at) else { continue };
        if out.len() >= MAX_CHUNKS || !is_left(0) {
            break;
        }
        if view.wrapper || planned.is_todo_span(at) {
            continue;
        }
        match view.kind {
            Kind::Llm => {
                let is_left = is_left(view.output_text().len());
                let text = if is_left { planned.strip_output(view) } else { String::new() };
                push_chunks(at, Source::Output, None, &text, size, &mut out);
            }
            _ => {
                if let Some(result) = view.result.as_ref().filter(|result| is_left(result.len())) {
                    let tool = view.call.as_ref().map(|call| call.name.clone());
                    push_chunks(at, Source::Result, tool, &planned.strip_result(result), size, &mut out);
                }
            }
        }
    }
    let calls = calls_within(trace, memo, agent.at);
    // Results of calls without a span of their own occur in a later prompt.
    for (i, call) in calls.iter().filter_map(|&i| Some((i, trace.calls.get(i)?))) {
        if call.tool.is_some() || planned.is_todo_call(i) {
            continue;
        }
        let result = call.result.as_ref().filter(|_| out.len() < MAX_CHUNKS);
        if let Some(result) = result.filter(|result| is_left(result.len())) {
            let text = planned.strip_result(result);
            push_chunks(call.at, Source::Result, Some(call.name.clone()), &text, size, &mut out);
        }
    }
    let mut counts = Vec::new();
    push_chunks(agent.at, Source::Calls, None, &call_counts(trace, &calls), size, &mut counts);
    counts.truncate(MAX_COUNTS);
    out.truncate(MAX_CHUNKS - counts.len());
    out.extend(counts);
    out
}

/// The calls of a trace by their span.
struct CallsBySpan(HashMap<Idx, Vec<usize>>);

/// The calls on a span and beneath it, in order; up to the end of the work budget.
pub(super) fn calls_within(trace: &AgentTrace, memo: &Memo, top: Idx) -> Vec<usize> {
    let by_span = memo.kept(|| {
        let mut by_span: HashMap<Idx, Vec<usize>> = HashMap::default();
        for (i, call) in trace.calls.iter().enumerate() {
            by_span.entry(call.at).or_default().push(i);
        }
        CallsBySpan(by_span)
    });
    let spans = trace.tree.subtree(top).take_while(|_| memo.budget.spend(1));
    let mut calls: Vec<usize> = spans.filter_map(|at| by_span.0.get(&at)).flatten().copied().collect();
    calls.sort_unstable();
    calls
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

/// One line per tool: its calls, and how many of them failed. Tools are in the order of their first calls.
fn call_counts(trace: &AgentTrace, calls: &[usize]) -> String {
    let mut counts: Vec<(&Text, usize, usize)> = Vec::new();
    let mut known: HashMap<&Text, usize> = HashMap::default();
    for call in calls.iter().filter_map(|&i| trace.calls.get(i)) {
        work::count(1);
        let place = *known.entry(&call.name).or_insert_with(|| {
            counts.push((&call.name, 0, 0));
            counts.len() - 1
        });
        if let Some((_, made, failed)) = counts.get_mut(place) {
            *made += 1;
            *failed += usize::from(call.failed);
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
        let log = chunks(&trace, &Memo::new(), &trace.agents[0], 300);
        let all: String = log.iter().map(|c| c.text.as_str()).collect();
        assert!(all.contains("Elbrus is 5642 metres high."), "{all}");
        assert!(all.contains("It is 5642 metres high."), "{all}");
        assert!(!all.contains("email the answer"), "{all}");
        assert!(log.last().unwrap().text.contains("search: 1, of which 0 failed"));
    }

    #[test]
    fn calls_of_many_tools_are_counted_in_linear_time_and_split() {
        const CALLS: usize = 1_000;
        let names: Vec<String> = (0..CALLS).map(|i| format!("tool_{i}")).collect();
        let requests: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "{}")).collect();
        let called = Script::new("Call them.").calls("", &requests);
        let trace = requests.iter().fold(called, |script, _| script.returns("ok")).answers("Done.").build();
        let before = work::counted();
        let log = chunks(&trace, &Memo::new(), &trace.agents[0], 300);
        let work = work::counted() - before;
        assert!(work <= 8 * CALLS as u64, "{work}");
        let counts: Vec<&Chunk> = log.iter().filter(|chunk| chunk.source == Source::Calls).collect();
        assert!(counts.iter().all(|chunk| chunk.text.len() <= 1_200));
        assert_eq!(counts.iter().map(|c| c.text.matches(", of which").count()).sum::<usize>(), CALLS);
        // Beyond the budget the log ends.
        let memo = Memo::within(crate::measure::work_budget::WorkBudget::new(10, None));
        chunks(&trace, &memo, &trace.agents[0], 300);
        assert!(memo.budget.is_exceeded());
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
