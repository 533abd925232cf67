//! The baseline of paper 001, section 4.2: one question about a whole trace, with the taxonomy.
//!
//! In: a trace. Out: a question with its whole transcript as text; from the answer, the errors that it reports at
//! spans of the trace. Nothing is split: the caller checks whether the question fits into a judge's context window.
//! As in the published baselines, quotations are not compared with the record.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use verdict_otlp::trace::{Idx, SpanId};

use super::asker::Asker;
use super::content::TraceContent;
use super::form::{category, severity};
use super::parts::MAX_SPANS;
use super::prompt_page::{PromptBlock, PromptPage};
use super::system::{CATEGORIES, RECORD};
use super::topology::{self, CONTROL_FLOW_TITLE};
use super::transcript::{RunScope, transcribe};
use crate::measure::defects::clip;
use crate::measure::question::object_schema;
use crate::measure::{AnswerForm, Category, Memo, Question, Severity};
use crate::recognise::AgentTrace;

/// Maximum number of errors that are read of one answer; the benchmark's traces have up to about thirty.
const MAX_ERRORS: usize = 200;
/// Maximum bytes of a description and of a quotation.
const MAX_TEXT_BYTES: usize = 600;

const TASK: &str = "\
You read the recorded trace of a whole run of an AI agent, or of several together, and report every error in \
it: what went wrong, in which span, and of which category.";

const ERRORS: &str = "\
# Errors

For each error:

- `problem`: one or two plain sentences: what was expected, what happened instead, why it matters.
- `span_id`: the span in which the error happened, one of those in the headings of the record. Where an error \
occurs again and again, the first one; of needless or repeated calls the last one.
- `quote`: the evidence, copied from that span, at most two hundred characters.
";

const ANSWER: &str = "\
- `severity`: `high` breaks the step or the answer; `medium` is likely to matter to the result; `low` changes \
little.

# Answer

Answer with one JSON object and nothing else, its keys in this order:
- `rationale`: a short summary of the run and of what went wrong;
- `errors`: every error, in the order of the record; an empty list where there is none.";

/// An error that a judge reported.
#[derive(Clone, PartialEq, Debug)]
pub struct ReportedError {
    /// The span of the error.
    pub at: Idx,
    /// `None` if no category fits.
    pub category: Option<Category>,
    pub severity: Severity,
    pub problem: String,
    /// The quotation, not verified.
    pub quote: String,
}

/// The question about the whole trace. With `with_control_flow` the record begins with the agents of the run, their
/// callers, tools and turns, as in the paper's second baseline.
pub fn question(asker: &Asker, trace: &AgentTrace, with_control_flow: bool) -> Question {
    let description = if with_control_flow { topology::describe(asker, trace) } else { String::new() };
    let head =
        (!description.is_empty()).then(|| PromptBlock::without_span(CONTROL_FLOW_TITLE, description, false));
    let record = transcribe(TraceContent { asker, trace, memo: &Memo::new() }, RunScope::Trace, usize::MAX);
    let page = PromptPage {
        intro: "Report the errors of this run.".to_owned(),
        blocks: head.into_iter().chain(record).collect(),
        question: "Now list every error with its span and category.".to_owned(),
    };
    let ids: Vec<SpanId> = page.spans().into_iter().map(|(_, id)| id).collect();
    let system: Arc<str> = format!("{TASK}\n\n{}\n\n{ERRORS}{CATEGORIES}{ANSWER}", RECORD.trim()).into();
    Question::new("trace", page.prompt(system), form(&ids))
}

/// The form of the answer. Servers limit the number of values of an enumeration: for more spans, only [`read`] verifies
/// the ids.
fn form(ids: &[SpanId]) -> Arc<AnswerForm> {
    let mut id = json!({ "type": "string" });
    if ids.len() <= MAX_SPANS {
        id["enum"] = ids.iter().map(|id| json!(id.to_string())).collect();
    }
    let error = object_schema(json!({
        "problem": { "type": "string" },
        "span_id": id,
        "quote": { "type": "string" },
        "category": category(),
        "severity": severity(),
    }));
    let fields = json!({ "rationale": { "type": "string" }, "errors": { "type": "array", "items": error } });
    AnswerForm::object("trace_errors", fields)
}

/// The errors of an answer at spans of the trace, and the number of errors that were dropped because they name no span
/// of the trace.
pub fn read(trace: &AgentTrace, answer: &Value) -> (Vec<ReportedError>, usize) {
    let spans =
        trace.tree.spans.iter().enumerate().map(|(span_index, span)| (span.id.to_string(), span_index));
    let by_id: HashMap<String, Idx> = spans.collect();
    let listed = answer.get("errors").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let errors: Vec<ReportedError> =
        listed.iter().take(MAX_ERRORS).filter_map(|error| read_error(&by_id, error)).collect();
    let dropped = listed.len() - errors.len();
    (errors, dropped)
}

/// An error in an answer; `None` if its span is not in the trace.
fn read_error(by_id: &HashMap<String, Idx>, error: &Value) -> Option<ReportedError> {
    let text = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default().trim();
    let category_name = text("category");
    Some(ReportedError {
        at: *by_id.get(&text("span_id").to_ascii_lowercase())?,
        category: Category::ALL.into_iter().find(|category| category.as_str() == category_name),
        severity: Severity::named(text("severity")).unwrap_or(Severity::Medium),
        problem: clip(text("problem"), MAX_TEXT_BYTES).to_owned(),
        quote: clip(text("quote"), MAX_TEXT_BYTES).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Script;

    #[test]
    fn the_question_contains_every_text_and_the_categories() {
        let words = |i: usize| (0..60).map(|w| format!("word-{i}-{w} ")).collect::<String>();
        let texts: Vec<String> = (0..300).map(|i| format!("step {i}: {}end", words(i))).collect();
        let script = texts.iter().fold(Script::new("find it"), |script, text| script.says(text));
        let trace = script.answers("it is 7").build();
        let question = question(&Asker::default(), &trace, false);
        assert!(texts.iter().all(|text| question.prompt.user.contains(text)), "nothing is cut");
        assert!(Category::ALL.iter().all(|c| question.prompt.system.contains(c.as_str())));
        let ids = &question.form.schema["properties"]["errors"]["items"]["properties"]["span_id"];
        assert_eq!(ids.get("enum"), None, "too many spans for an enumeration");
    }

    #[test]
    fn control_flow_is_the_first_block_where_it_is_asked_for() {
        let script = Script::new("find it").calls("", &[("search", "{}")]).returns("7");
        let trace = script.answers("it is 7").build();
        let [without, with] = [false, true].map(|flow| question(&Asker::default(), &trace, flow).prompt);
        assert_eq!(without.system, with.system);
        assert!(!without.user.contains(CONTROL_FLOW_TITLE), "{}", without.user);
        let offset = |text: &str| with.user.find(text).unwrap();
        assert!(
            offset(CONTROL_FLOW_TITLE) < offset("find it") && with.user.contains("search"),
            "{}",
            with.user
        );
    }

    #[test]
    fn errors_at_unknown_spans_are_counted_and_left_out() {
        let trace = Script::new("find it").says("looking").answers("it is 7").build();
        let id = trace.tree.spans[1].id.to_string();
        let error = |id: &str, category: &str| json!({ "problem": "p", "span_id": id, "quote": "q", "category": category, "severity": "high" });
        let answer = json!({ "rationale": "r", "errors": [
            error(&id.to_uppercase(), "Goal Deviation"), error("00000000000000ff", "Goal Deviation"),
            error(&id, "None"), 7,
        ] });
        let (read, dropped) = read(&trace, &answer);
        let categories: Vec<_> = read.iter().map(|error| (error.at, error.category)).collect();
        assert_eq!(categories, [(1, Some(Category::GoalDeviation)), (1, None)]);
        assert_eq!(dropped, 2);
        assert_eq!(super::read(&trace, &json!({})), (Vec::new(), 0));
    }
}
