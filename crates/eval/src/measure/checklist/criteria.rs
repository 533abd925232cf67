//! The questions of a task's checklist, made by a judge and filtered (003, section 3.1).
//!
//! In: the task and the answers so far. Out: the questions, or the next question to a judge.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};

use super::settings::Item;
use crate::measure::ask::prompt_page::{Block, PromptPage};
use crate::measure::defects::clip;
use crate::measure::{Answer, Form, Question, Unmeasured};

const CRITERIA: &str = include_str!("prompts/criteria.md");
const FILTER: &str = include_str!("prompts/filter.md");
/// Longest question, in bytes: one requirement fits in a sentence.
const MOST_QUESTION: usize = 400;

type Answers<'a> = HashMap<&'a str, &'a Answer>;

/// The next step if there are no questions yet.
pub(crate) enum CriteriaStep {
    Ask(Box<Question>),
    None(Unmeasured),
}

pub(crate) fn questions(task: &str, most: usize, answers: &Answers<'_>) -> Result<Vec<Item>, CriteriaStep> {
    let made = match answers.get("criteria") {
        None => return Err(ask("criteria", CRITERIA, task, None, list_form("questions", "string"))),
        Some(answer) => match &answer.opinions {
            Err(reason) => return Err(CriteriaStep::None(*reason)),
            Ok(opinions) => opinions.first().map(|o| &o.value).map(read_questions).unwrap_or_default(),
        },
    };
    let made: Vec<String> = made.into_iter().take(most).collect();
    if made.is_empty() {
        // The task has no requirement that a record could show.
        return Err(CriteriaStep::None(Unmeasured::NotApplicable));
    }
    let Some(filter) = answers.get("filter") else {
        let numbered: Vec<String> = made.iter().enumerate().map(|(i, q)| format!("{}. {q}", i + 1)).collect();
        let listed = Some(numbered.join("\n"));
        return Err(ask("filter", FILTER, task, listed, list_form("drop", "integer")));
    };
    // Without an answer of the filter, or if it would drop every question, all are kept.
    let value = filter.opinions.as_ref().ok().and_then(|all| all.first()).map(|o| &o.value);
    let numbers = value.and_then(|v| v.get("drop")).and_then(Value::as_array);
    let dropped: BTreeSet<u64> = numbers.into_iter().flatten().filter_map(Value::as_u64).collect();
    let kept = |all: bool| {
        let numbered = made.iter().enumerate();
        let kept = numbered.filter(|(i, _)| all || !dropped.contains(&(*i as u64 + 1)));
        kept.map(|(_, q)| Item { question: q.clone(), check: None }).collect::<Vec<Item>>()
    };
    let some = kept(false);
    Ok(if some.is_empty() { kept(true) } else { some })
}

/// The questions without duplicates.
fn read_questions(value: &Value) -> Vec<String> {
    let given = value.get("questions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut seen = BTreeSet::new();
    let texts = given.iter().filter_map(Value::as_str).map(|q| clip(q.trim(), MOST_QUESTION).to_owned());
    texts.filter(|q| !q.is_empty() && seen.insert(q.to_lowercase())).collect()
}

fn ask(key: &str, system: &str, task: &str, listed: Option<String>, schema: Value) -> CriteriaStep {
    let mut blocks = vec![Block::about("the task", task, true)];
    blocks.extend(listed.map(|text| Block::about("the questions", text, false)));
    let (intro, question) = match key {
        "criteria" => ("Write the checklist of a task.", "Write its checklist now."),
        _ => ("Review the checklist of a task.", "Give the numbers of the questions to drop."),
    };
    let page = PromptPage { intro: intro.to_owned(), blocks, question: question.to_owned() };
    CriteriaStep::Ask(Box::new(Question {
        key: key.to_owned(),
        prompt: page.prompt(system.trim()),
        form: Arc::new(Form { name: "checklist", schema, score: None }),
        judges: Vec::new(),
    }))
}

fn list_form(key: &str, of: &str) -> Value {
    json!({
        "type": "object",
        "properties": { "thought": { "type": "string" }, key: { "type": "array", "items": { "type": of } } },
        "required": ["thought", key],
        "additionalProperties": false,
    })
}
