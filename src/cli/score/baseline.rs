//! A plain judge of task completion, as the baseline of checklists (003, section 4.3).
//!
//! In: tasks and final answers. Out: whether the judge considers each task completed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use verdict_eval::plan::{DATA, fence};
use verdict_eval::questions::{Answer, AnswerForm, Prompt, Question};
use verdict_eval::trace::Text;

use crate::cli::judge::session::JudgeSession;
use crate::score::metrics::ScoredTrace;

const RUBRIC: &str = "\
You judge whether an AI agent completed its task. You see the task and the agent's final answer, and nothing of \
what it did. Give the reason first, in one to three sentences. Then 'completed': yes or no.";

/// Traces that are asked about at once.
const MAX_CONCURRENT_TRACES: usize = 32;

/// The judge's answer on each trace; `None` without a task or an answer of the judge.
pub(super) fn ask(traces: &[&ScoredTrace], judge: &JudgeSession) -> Vec<Option<bool>> {
    let mut out = vec![None; traces.len()];
    let schema = json!({
        "type": "object",
        "properties": {
            "reason": { "type": "string" },
            "completed": { "type": "string", "enum": ["yes", "no"] },
        },
        "required": ["reason", "completed"],
        "additionalProperties": false,
    });
    let form = Arc::new(AnswerForm { name: "completed", schema, score: None });
    let question = |(i, trace): (usize, &&ScoredTrace)| {
        let task = judge.clean(trace.task.as_deref()?);
        let answer = trace.answer.as_deref().map_or("(none)".to_owned(), |answer| judge.clean(answer));
        let user = format!("{}{}", fence("TASK", &task), fence("ANSWER", &answer));
        let prompt = Prompt::new(format!("{RUBRIC}\n\n{DATA}"), user);
        Some(Question { key: i.to_string(), prompt, form: Arc::clone(&form), judges: Vec::new() })
    };
    let mut by_services: BTreeMap<&Arc<[Text]>, Vec<Question>> = BTreeMap::new();
    for (i, trace) in traces.iter().enumerate() {
        // The content of a service may be withheld from a judge.
        by_services.entry(&trace.services).or_default().extend(question((i, trace)));
    }
    for (services, questions) in by_services {
        for chunk in questions.chunks(MAX_CONCURRENT_TRACES) {
            for answer in judge.ask_about(services, "baseline", chunk.to_vec()) {
                let label = majority(&answer);
                if let Some(slot) = answer.key.parse::<usize>().ok().and_then(|i| out.get_mut(i)) {
                    *slot = label;
                }
            }
        }
    }
    out
}

/// The answer of more than half of the opinions.
fn majority(answer: &Answer) -> Option<bool> {
    let opinions = answer.opinions.as_deref().ok()?;
    let votes = |word: &str| {
        opinions.iter().filter(|o| o.value.get("completed").and_then(Value::as_str) == Some(word)).count()
    };
    let (yes_votes, no_votes) = (votes("yes"), votes("no"));
    match (yes_votes * 2 > opinions.len(), no_votes * 2 > opinions.len()) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}
