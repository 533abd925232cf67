//! Removes plans from the record of a run, since a plan does not prove that its steps were carried out
//! (a known failure of the paper's parser, 003, section 5.1).
//!
//! In: a trace. Out: its outputs and results without the plans that `recognise` found, including
//! repetitions by a todo tool that returns its list, by a later output, and by the announcement of a
//! step. Paraphrased plans remain; the judge's prompt excludes them as evidence.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use verdict_otlp::trace::Idx;

use crate::measure::Memo;
use crate::recognise::{AgentTrace, Call, RecordedPlan, SpanView, Text, json_keys};

/// Maximum number of plans of a trace that are removed.
const MAX_PLANS: usize = 100;

pub(crate) struct PlanContent {
    /// The texts of plans, the longest first, so that a plan is removed before its parts.
    texts: Vec<Text>,
    /// The steps of plans, as [`bare_line`] returns them.
    steps: BTreeSet<String>,
    /// Calls whose arguments are a plan, by index; they return the plan again.
    calls: HashSet<usize>,
    /// The spans of these calls.
    spans: HashSet<Idx>,
}

impl PlanContent {
    /// The plans of the trace, found once.
    pub(crate) fn cached(trace: &AgentTrace, memo: &Memo) -> Arc<PlanContent> {
        memo.shared_value(|| PlanContent::from_trace(trace))
    }

    fn from_trace(trace: &AgentTrace) -> PlanContent {
        let plans: Vec<&RecordedPlan> = trace
            .agents
            .iter()
            .flat_map(|agent| &agent.plans)
            .map(|(_, plan)| plan)
            .take(MAX_PLANS)
            .collect();
        // The text of a plan of one step may be any sentence.
        let mut texts: Vec<Text> =
            plans.iter().filter(|plan| plan.steps.len() > 1).map(|plan| plan.text.clone()).collect();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        let steps = plans.iter().flat_map(|plan| &plan.steps).map(|step| bare_line(step)).collect();
        let calls = todo_calls(trace);
        let spans = calls.iter().filter_map(|&i| trace.calls.get(i)).filter_map(|call| call.tool).collect();
        PlanContent { texts, steps, calls, spans }
    }

    /// The number of texts that are searched in each output and result.
    pub(crate) fn text_count(&self) -> usize {
        self.texts.len()
    }

    /// Whether the span is that of a call that wrote a plan.
    pub(crate) fn is_todo_span(&self, span_index: Idx) -> bool {
        self.spans.contains(&span_index)
    }

    /// Whether call `i` of the trace wrote a plan.
    pub(crate) fn is_todo_call(&self, i: usize) -> bool {
        self.calls.contains(&i)
    }

    /// A tool result without plans.
    pub(crate) fn strip_result(&self, result: &str) -> String {
        remove_plans(result.to_owned(), self.texts.iter())
    }

    /// A model output without plans and announced steps.
    pub(crate) fn strip_output(&self, view: &SpanView) -> String {
        let own_plans = view.plans.iter().map(|plan| &plan.text);
        let text = remove_plans(view.output_text().into_owned(), own_plans.chain(self.texts.iter()));
        if self.steps.is_empty() {
            return text;
        }
        text.lines().filter(|line| !self.announces(line)).collect::<Vec<_>>().join("\n")
    }

    /// Whether a line is a step of a plan or its beginning. A single word may be an answer.
    fn announces(&self, line: &str) -> bool {
        let line = bare_line(line);
        let next = self.steps.range(line.clone()..).next();
        line.contains(' ') && next.is_some_and(|step| step.starts_with(&line))
    }
}

/// Calls whose arguments are a plan of the model that made them.
fn todo_calls(trace: &AgentTrace) -> HashSet<usize> {
    // The spans of tool and model may format the same JSON differently.
    let normalised = |text: &str| match json_keys::parse(text) {
        Some(value) => value.to_string(),
        None => text.trim().to_owned(),
    };
    let plan_texts = trace.views.iter().enumerate();
    let plan_texts =
        plan_texts.flat_map(|(span_index, view)| view.plans.iter().map(move |plan| (span_index, &plan.text)));
    let plan_texts: HashSet<(Idx, String)> =
        plan_texts.map(|(span_index, text)| (span_index, normalised(text))).collect();
    if plan_texts.is_empty() {
        return HashSet::new();
    }
    let is_todo = |call: &Call| {
        let (Some(llm), Some(arguments)) = (call.llm, call.arguments.as_deref()) else { return false };
        plan_texts.contains(&(llm, normalised(arguments)))
    };
    trace.calls.iter().enumerate().filter(|(_, call)| is_todo(call)).map(|(i, _)| i).collect()
}

/// The text without plans and the headings above them.
fn remove_plans<'a>(mut text: String, plans: impl Iterator<Item = &'a Text>) -> String {
    for plan in plans.filter(|plan| !plan.is_empty()) {
        if !text.contains(&**plan) {
            continue;
        }
        let mut remaining = String::with_capacity(text.len());
        let mut parts = text.split(&**plan).peekable();
        while let Some(part) = parts.next() {
            let line_start = part.trim_end().rfind('\n').map_or(0, |line_end| line_end + 1);
            let has_heading = parts.peek().is_some() && part.trim_end().ends_with(':');
            remaining.push_str(if has_heading { part.get(..line_start).unwrap_or_default() } else { part });
        }
        text = remaining;
    }
    text
}

/// A line without number, bullet, box and marks: `Step 2: open the page.` is `open the page`.
fn bare_line(line: &str) -> String {
    let is_mark = |c: char| !c.is_alphabetic();
    let start = line.trim_start_matches(is_mark);
    let numbered = start.strip_prefix("Step ").or_else(|| start.strip_prefix("step "));
    let start = numbered.filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())).unwrap_or(start);
    start.trim_start_matches(is_mark).trim_end_matches(|c: char| !c.is_alphanumeric()).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::super::log::{chunks, texts};
    use crate::measure::Memo;
    use crate::measure::testing::Script;

    #[test]
    fn plan_repeated_by_todo_tool_or_output_is_removed() {
        let todo = r#"{"todos": [{"content": "email the client"}, {"content": "close the ticket"}]}"#;
        let mut trace = Script::new("Close the ticket.")
            .calls("", &[("write_todos", todo), ("read_ticket", "{}")])
            .returns("Updated the list: email the client; close the ticket")
            .returns("Ticket 4: open.\nIts plan:\nemail the client\nclose the ticket\n(end)")
            .says("Step 2: Close the ticket.\nEmail the")
            .says("As planned:\nemail the client\nclose the ticket\nNow done.")
            .answers("Closed.")
            .build();
        let plan = |text: &str| crate::recognise::RecordedPlan {
            text: text.into(),
            replan: false,
            steps: vec!["email the client".into(), "close the ticket".into()],
        };
        let span_index = trace.agents[0].llms[0];
        trace.views[span_index].plans.push(plan(&todo.replace(": ", ":")));
        trace.agents[0].plans.push((span_index, plan("email the client\nclose the ticket")));
        let all: String = chunks(&texts(&trace, &Memo::new(), &trace.agents[0], None), 300)
            .iter()
            .map(|c| format!("{}\n", c.text))
            .collect();
        assert!(!all.contains("email the client"), "{all}");
        assert!(
            ["As planned", "Its plan", "Close the ticket", "Email the"]
                .iter()
                .all(|gone| !all.contains(gone)),
            "{all}"
        );
        for passage in ["Ticket 4: open.", "(end)", "Now done.", "write_todos: 1, of which 0 failed"] {
            assert!(all.contains(passage), "{passage}: {all}");
        }
    }

    #[test]
    fn single_words_and_lines_that_continue_after_a_step_are_kept() {
        let trace = Script::new("Where is it?")
            .plan(&["Paris first, then Rome", "read the ticket"])
            .says("Paris")
            .says("read the ticket, and it is in Rome")
            .answers("Rome")
            .build();
        let all: String = chunks(&texts(&trace, &Memo::new(), &trace.agents[0], None), 300)
            .iter()
            .map(|c| format!("{}\n", c.text))
            .collect();
        assert!(all.starts_with("Paris\nread the ticket, and it is in Rome\nRome\n"), "{all}");
    }
}
