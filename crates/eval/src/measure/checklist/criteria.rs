//! The questions of a task's checklist, made by a judge and filtered (003, section 3.1).
//!
//! In: the task and the answers so far. Out: the questions, or the next question to a judge.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Value, json};

use super::settings::Item;
use crate::measure::ask::prompt_page::{PromptBlock, PromptPage};
use crate::measure::defects::clip;
use crate::measure::table::{CHECKLIST_CRITERIA, CHECKLIST_FILTER};
use crate::measure::{Answer, AnswerForm, Prompt, Question, Unmeasured};

const CRITERIA: &str = include_str!("prompts/criteria.md");
const FILTER: &str = include_str!("prompts/filter.md");
/// Maximum bytes of a question: a sentence that states one requirement is shorter.
const MAX_QUESTION_BYTES: usize = 400;

type Answers<'a> = HashMap<&'a str, &'a Answer>;

/// The next step if there are no questions yet.
pub(crate) enum CriteriaStep {
    Ask(Box<Question>),
    Unmeasured(Unmeasured),
}

/// The value of the first opinion of an answer.
fn first_value(answer: &Answer) -> Result<&Value, Unmeasured> {
    answer
        .opinions
        .as_ref()
        .map_err(|reason| *reason)?
        .first()
        .map(|o| &o.value)
        .ok_or(Unmeasured::NotApplicable)
}

/// Renders a page, with the name of its rubric and the text of the rubric.
type Render<'a> = &'a dyn Fn(PromptPage, (&str, &str)) -> Prompt;

/// The questions of the checklist, or as an error the step before they are known.
pub(crate) fn questions(
    task: &str,
    max_questions: usize,
    answers: &Answers<'_>,
    render: Render<'_>,
) -> Result<Vec<Item>, CriteriaStep> {
    let Some(answer) = answers.get("criteria") else {
        return Err(ask_for_list(
            "criteria",
            (CHECKLIST_CRITERIA, CRITERIA),
            task,
            None,
            ("questions", "string"),
            render,
        ));
    };
    let mut questions = read_questions(first_value(answer).map_err(CriteriaStep::Unmeasured)?);
    questions.truncate(max_questions);
    if questions.is_empty() {
        // The task has no requirement that a record could show.
        return Err(CriteriaStep::Unmeasured(Unmeasured::NotApplicable));
    }
    let Some(filter) = answers.get("filter") else {
        let numbered: Vec<String> =
            questions.iter().enumerate().map(|(i, q)| format!("{}. {q}", i + 1)).collect();
        return Err(ask_for_list(
            "filter",
            (CHECKLIST_FILTER, FILTER),
            task,
            Some(numbered.join("\n")),
            ("drop", "integer"),
            render,
        ));
    };
    // If the filter did not answer, or would drop every question, all are kept.
    let numbers = first_value(filter).ok().and_then(|value| value.get("drop")?.as_array());
    let dropped: BTreeSet<u64> = numbers.into_iter().flatten().filter_map(Value::as_u64).collect();
    let is_dropped = |i: usize| dropped.contains(&(i as u64 + 1));
    let all_dropped = (0..questions.len()).all(is_dropped);
    let remaining = questions.into_iter().enumerate().filter(|(i, _)| all_dropped || !is_dropped(*i));
    Ok(remaining.map(|(_, question)| Item { question, check: None }).collect())
}

/// The questions without duplicates.
fn read_questions(value: &Value) -> Vec<String> {
    let values = value.get("questions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut earlier = BTreeSet::new();
    let texts =
        values.iter().filter_map(Value::as_str).map(|q| clip(q.trim(), MAX_QUESTION_BYTES).to_owned());
    texts.filter(|q| !q.is_empty() && earlier.insert(q.to_lowercase())).collect()
}

/// The question for a list in the field `list`, whose items have the type `item_type`. `question_list` contains the
/// questions under review, if there are any yet.
fn ask_for_list(
    key: &str,
    (question_name, rubric): (&str, &str),
    task: &str,
    question_list: Option<String>,
    (list, item_type): (&str, &str),
    render: Render<'_>,
) -> CriteriaStep {
    let mut blocks = vec![PromptBlock::without_span("the task", task, true)];
    blocks.extend(question_list.map(|text| PromptBlock::without_span("the questions", text, false)));
    let (intro, question) = match key {
        "criteria" => ("Write the checklist of a task.", "Write its checklist now."),
        _ => ("Review the checklist of a task.", "Give the numbers of the questions to drop."),
    };
    let page = PromptPage { intro: intro.to_owned(), blocks, question: question.to_owned() };
    let items = json!({ "type": "array", "items": { "type": item_type } });
    let form = AnswerForm::object("checklist", json!({ "thought": { "type": "string" }, list: items }));
    let prompt = render(page, (question_name, rubric));
    CriteriaStep::Ask(Box::new(Question::new(key, prompt, form)))
}
