//! The log of a run, from which proofs are taken (003, section 3.2): calls with their arguments and outcomes, tool
//! results and model outputs, each with its span.
//!
//! In: a trace and the agent whose task is judged. Out: [`LogText`]s, whole, for rules; and [`Chunk`]s of about 300
//! tokens, each of one text, split at line ends, for judges. Plans are removed ([`super::plan_content`]).

use foldhash::HashMap;
use serde_json::Value;
use verdict_otlp::trace::{Idx, Kind};
use verdict_otlp::work;

use super::plan_content::PlanContent;
use crate::measure::Memo;
use crate::measure::ask::Asker;
use crate::measure::ask::content::{TraceContent, WITHHELD};
use crate::measure::calls::error_signs::call_error;
use crate::measure::content_piece::{ContentPiece, PieceKind};
use crate::measure::defects::{QUOTE_BYTES, clip};
use crate::measure::work_budget::BYTES_PER_STEP;
use crate::recognise::{Agent, AgentTrace, Call, Text};

/// Approximate bytes of a token.
const TOKEN_BYTES: usize = 4;
/// Maximum number of chunks of one run: 12 MB of text.
const MAX_CHUNKS: usize = 10_000;
/// Maximum number of chunks that list the numbers of calls.
const MAX_COUNTS: usize = 100;
/// Number of plans for which searching a text takes about as long as one pass of another rule over the text.
const PLANS_PER_PASS: usize = 8;

/// The kind of content that a text of the log consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogSource {
    /// A call: its outcome and its arguments.
    Call,
    /// The result of a call.
    Result,
    /// The output of a model.
    Output,
    /// The numbers of calls of each tool.
    Calls,
}

/// A text of the log, whole or a piece of one.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LogText {
    pub at: Idx,
    pub source: LogSource,
    /// The tool of a call or a result.
    pub tool: Option<Text>,
    pub text: String,
}

/// A piece of the log.
pub(crate) type Chunk = LogText;

/// The texts of an agent's run and of the agents that it called, in order; the last one counts the calls. The list ends
/// early if the work budget is exceeded. With an `asker`, withheld content is left out, so that judges may read the
/// texts.
pub(crate) fn texts(trace: &AgentTrace, memo: &Memo, agent: &Agent, asker: Option<&Asker>) -> Vec<LogText> {
    let content = asker.map(|asker| TraceContent { asker, trace, memo });
    let mut out = Vec::new();
    let plan_content = PlanContent::cached(trace, memo);
    // Each text is searched for each plan.
    let is_within_budget = |text_bytes: usize| {
        let searched_bytes = text_bytes.saturating_mul(1 + plan_content.text_count() / PLANS_PER_PASS);
        memo.budget.spend(1 + searched_bytes / BYTES_PER_STEP)
    };
    let calls = calls_within(trace, memo, agent.at);
    let mut calls_by_span: HashMap<Idx, Vec<&Call>> = HashMap::default();
    for (i, call) in calls.iter().filter_map(|&i| Some((i, trace.calls.get(i)?))) {
        if !plan_content.is_todo_call(i) {
            calls_by_span.entry(call.at).or_default().push(call);
        }
    }
    let log_text = |span_index, source, tool, is_withheld: bool, text: String| {
        let is_withheld = is_withheld && !text.trim().is_empty();
        LogText { at: span_index, source, tool, text: if is_withheld { WITHHELD.to_owned() } else { text } }
    };
    let withholds = |span_index| content.is_some_and(|content| content.withholds_output(span_index));
    let text_of_call = |call: &Call| {
        let arguments = call.arguments.as_ref().map_or(0, |arguments| arguments.len());
        is_within_budget(arguments).then(|| {
            let is_withheld = content.is_some_and(|content| withholds_call(content, call));
            let is_quoted = content.is_none() || call.tool.is_some_and(|tool| !withholds(tool));
            let rendered = call_text(trace, memo, &plan_content, call, is_quoted);
            log_text(call.at, LogSource::Call, Some(call.name.clone()), is_withheld, rendered)
        })
    };
    for span_index in trace.tree.subtree(agent.at) {
        let Some(view) = trace.views.get(span_index) else { continue };
        if out.len() >= MAX_CHUNKS || !is_within_budget(0) {
            break;
        }
        if view.wrapper || plan_content.is_todo_span(span_index) {
            continue;
        }
        let calls = calls_by_span.remove(&span_index).unwrap_or_default();
        if view.kind == Kind::Llm {
            let is_within_budget = is_within_budget(view.output_text().len());
            let output = if is_within_budget { plan_content.strip_output(view) } else { String::new() };
            out.push(log_text(span_index, LogSource::Output, None, withholds(span_index), output));
            out.extend(calls.into_iter().filter_map(text_of_call));
            continue;
        }
        out.extend(calls.into_iter().filter_map(text_of_call));
        if let Some(result) = view.result.as_ref().filter(|result| is_within_budget(result.len())) {
            let tool = view.call.as_ref().map(|call| call.name.clone());
            out.push(log_text(
                span_index,
                LogSource::Result,
                tool,
                withholds(span_index),
                plan_content.strip_result(result),
            ));
        }
    }
    // Results of calls without a span of their own occur in a later prompt, which may contain content of any span.
    for (i, call) in calls.iter().filter_map(|&i| Some((i, trace.calls.get(i)?))) {
        if call.tool.is_some() || plan_content.is_todo_call(i) {
            continue;
        }
        let result = call.result.as_ref().filter(|_| out.len() < MAX_CHUNKS);
        if let Some(result) = result.filter(|result| is_within_budget(result.len())) {
            let (tool, result) = (Some(call.name.clone()), plan_content.strip_result(result));
            out.push(log_text(call.at, LogSource::Result, tool, content.is_some(), result));
        }
    }
    out.retain(|text| !text.text.trim().is_empty());
    out.push(log_text(agent.at, LogSource::Calls, None, false, call_counts(trace, &calls)));
    out
}

/// The outcome of a call and its arguments, each member of an object on a line of its own, so that code is shown as it
/// was run. An error is quoted only if `is_quoted`.
fn call_text(
    trace: &AgentTrace,
    memo: &Memo,
    plan_content: &PlanContent,
    call: &Call,
    is_quoted: bool,
) -> String {
    let outcome = match call_error(trace, memo, call) {
        Some(_) if !is_quoted => format!("it failed: {WITHHELD}"),
        Some(error) => format!("it failed: {}", clip(&error.quote, QUOTE_BYTES)),
        None if call.result.is_some() => "it returned a result".to_owned(),
        None => "its result is not recorded".to_owned(),
    };
    let arguments = match (call.parsed.as_deref(), call.arguments.as_deref()) {
        (Some(Value::Object(members)), _) => {
            let line = |(key, value): (&String, &Value)| match value {
                Value::String(text) => format!("{key}: {text}"),
                other => format!("{key}: {other}"),
            };
            members.iter().map(line).collect::<Vec<_>>().join("\n")
        }
        (_, Some(text)) => text.to_owned(),
        (_, None) => "(arguments are not recorded)".to_owned(),
    };
    format!("call of {}, {outcome}\n{}", call.name, plan_content.strip_result(&arguments))
}

/// The texts in chunks of `tokens`. The count of calls is always the last.
pub(crate) fn chunks(texts: &[LogText], tokens: usize) -> Vec<Chunk> {
    let size = tokens.max(1) * TOKEN_BYTES;
    let mut out = Vec::new();
    let (counts, texts) = texts.split_last().map_or((None, texts), |(last, texts)| (Some(last), texts));
    for text in texts {
        push_chunks(text, size, &mut out);
    }
    let mut last = Vec::new();
    if let Some(counts) = counts {
        push_chunks(counts, size, &mut last);
        last.truncate(MAX_COUNTS);
    }
    out.truncate(MAX_CHUNKS - last.len());
    out.extend(last);
    out
}

/// The calls of a trace by their span.
struct CallsBySpan(HashMap<Idx, Vec<usize>>);

/// The calls on a span and beneath it, in order; up to the end of the work budget.
pub(super) fn calls_within(trace: &AgentTrace, memo: &Memo, top_span: Idx) -> Vec<usize> {
    let by_span = memo.shared_value(|| {
        let mut by_span: HashMap<Idx, Vec<usize>> = HashMap::default();
        for (i, call) in trace.calls.iter().enumerate() {
            by_span.entry(call.at).or_default().push(i);
        }
        CallsBySpan(by_span)
    });
    let spans = trace.tree.subtree(top_span).take_while(|_| memo.budget.spend(1));
    let mut calls: Vec<usize> =
        spans.filter_map(|span_index| by_span.0.get(&span_index)).flatten().copied().collect();
    calls.sort_unstable();
    calls
}

/// Whether the arguments of a call are withheld, by its span, the model that wrote them, or their text.
fn withholds_call(content: TraceContent<'_>, call: &Call) -> bool {
    let arguments = ContentPiece::new(PieceKind::Arguments, call.arguments.as_deref().unwrap_or_default());
    call.llm.is_some_and(|llm| content.withholds(llm)) || content.withholds_piece(call.at, &arguments)
}

/// Appends a text in chunks of at most `size` bytes.
fn push_chunks(whole: &LogText, size: usize, out: &mut Vec<Chunk>) {
    let mut rest = whole.text.trim();
    while !rest.is_empty() && out.len() < MAX_CHUNKS {
        let mut end = rest.len();
        if end > size {
            let limit = rest.floor_char_boundary(size).max(rest.chars().next().map_or(1, char::len_utf8));
            // Split at the end of a line, sentence or word in the second half.
            let head = rest.get(..limit).unwrap_or(rest);
            let in_second_half = |found: Option<usize>| found.filter(|&i| i >= limit / 2);
            end = in_second_half(head.rfind('\n'))
                .or_else(|| in_second_half(head.rfind(". ").map(|i| i + 1)))
                .or_else(|| in_second_half(head.rfind(' ')))
                .unwrap_or(limit);
        }
        let (head, tail) = rest.split_at(end);
        let LogText { at: span_index, source, .. } = *whole;
        out.push(Chunk { at: span_index, source, tool: whole.tool.clone(), text: head.trim().to_owned() });
        rest = tail.trim_start();
    }
}

/// One line per tool: its calls, and how many of them failed. Tools are in the order of their first calls.
fn call_counts(trace: &AgentTrace, calls: &[usize]) -> String {
    let mut counts: Vec<(&Text, usize, usize)> = Vec::new();
    let mut row_indices: HashMap<&Text, usize> = HashMap::default();
    for call in calls.iter().filter_map(|&i| trace.calls.get(i)) {
        work::count(1);
        let row = *row_indices.entry(&call.name).or_insert_with(|| {
            counts.push((&call.name, 0, 0));
            counts.len() - 1
        });
        if let Some((_, call_count, failed)) = counts.get_mut(row) {
            *call_count += 1;
            *failed += usize::from(call.failed);
        }
    }
    if counts.is_empty() {
        return "Tool calls of this run: none.".to_owned();
    }
    let mut text = "Tool calls of this run, all of them:".to_owned();
    for (name, call_count, failed) in counts {
        text.push_str(&format!("\n{name}: {call_count}, of which {failed} failed"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Script;

    fn log(trace: &AgentTrace) -> Vec<Chunk> {
        chunks(&texts(trace, &Memo::new(), &trace.agents[0], None), 300)
    }

    #[test]
    fn log_contains_results_and_outputs_but_no_plans() {
        let trace = Script::new("How high is Elbrus?")
            .plan(&["search for Elbrus", "email the answer to the client"])
            .calls("Looking it up.", &[("search", r#"{"q":"Elbrus"}"#)])
            .returns("Elbrus is 5642 metres high.")
            .says("It is 5642 metres high.")
            .answers("5642")
            .build();
        let log = log(&trace);
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
        let log = self::log(&trace);
        let work = work::counted() - before;
        assert!(work <= 8 * CALLS as u64, "{work}");
        let counts: Vec<&Chunk> = log.iter().filter(|chunk| chunk.source == LogSource::Calls).collect();
        assert!(counts.iter().all(|chunk| chunk.text.len() <= 1_200));
        assert_eq!(counts.iter().map(|c| c.text.matches(", of which").count()).sum::<usize>(), CALLS);
        // Beyond the budget the log ends.
        let memo = Memo::within(crate::measure::work_budget::WorkBudget::new(10, None));
        texts(&trace, &memo, &trace.agents[0], None);
        assert!(memo.budget.is_exceeded());
    }

    #[test]
    fn calls_are_logged_with_arguments_as_they_were_run_and_with_their_outcome() {
        let trace = Script::new("Sum up the list.")
            .calls(
                "",
                &[("python", r#"{"code": "total = 0\nfor n in [1, 2]:\n    total += n", "timeout": 5}"#)],
            )
            .returns("Error: name 'x' is not defined")
            .answers("3")
            .build();
        let log = log(&trace);
        let call = log.iter().find(|chunk| chunk.source == LogSource::Call).unwrap();
        assert!(call.text.contains("code: total = 0\nfor n in [1, 2]:\n    total += n"), "{}", call.text);
        assert!(call.text.starts_with("call of python, it failed: "), "{}", call.text);
        assert!(call.text.contains("timeout: 5"), "{}", call.text);
        assert_eq!(call.tool.as_deref(), Some("python"));
    }

    #[test]
    fn long_text_is_split_at_line_ends_within_the_size() {
        let log_text_of = |text: String| LogText { at: 3, source: LogSource::Result, tool: None, text };
        let line = "The quick brown fox jumps over the lazy dog.\n".repeat(200);
        let mut out = Vec::new();
        push_chunks(&log_text_of(line), 1200, &mut out);
        assert!(out.iter().all(|c| c.text.len() <= 1200 && c.text.ends_with("dog.")));
        assert_eq!(out.iter().map(|c| c.text.matches("fox").count()).sum::<usize>(), 200);
        out.clear();
        push_chunks(&log_text_of("é".repeat(1000)), 3, &mut out);
        assert_eq!(out.iter().map(|c| c.text.chars().count()).sum::<usize>(), 1000);
    }
}
