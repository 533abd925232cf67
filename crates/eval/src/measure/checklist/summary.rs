//! Summaries of pieces of the log, by which the pieces are found (003, section 3.2); optional.
//!
//! In: the chunks of a run and the answers so far. Out: a summary of each chunk, or the questions for them. Summaries
//! only decide which pieces are shown; proofs are quoted from the pieces themselves.

use std::collections::HashMap;

use serde_json::json;

use super::log::{Chunk, LogSource};
use crate::measure::ask::prompt_page::{PromptBlock, PromptPage};
use crate::measure::defects::clip;
use crate::measure::{Answer, AnswerForm, Prompt, Question};

pub(crate) const SUMMARY: &str = include_str!("prompts/summary.md");
/// Number of chunks that one question asks to summarise.
const BATCH: usize = 10;
/// Maximum number of chunks that are summarised; further chunks are found by their own words.
const MAX_CHUNKS: usize = 200;
/// Maximum bytes of a summary.
const MAX_SUMMARY_BYTES: usize = 600;

/// The summaries by chunk; empty for chunks without one. `Err` has the questions that are not answered yet. `block`
/// renders a chunk under a label.
pub(crate) fn summaries(
    log: &[Chunk],
    answers: &HashMap<&str, &Answer>,
    block: impl Fn(&Chunk, String) -> PromptBlock,
    render: impl Fn(PromptPage) -> Prompt,
) -> Result<Vec<String>, Vec<Question>> {
    let mut out = vec![String::new(); log.len()];
    let mut questions = Vec::new();
    let summarised: Vec<usize> = (0..log.len())
        .filter(|&i| log.get(i).is_some_and(|chunk| chunk.source != LogSource::Calls))
        .take(MAX_CHUNKS)
        .collect();
    for (n, batch) in summarised.chunks(BATCH).enumerate() {
        let key = format!("0-summaries-{n:02}");
        let Some(answer) = answers.get(key.as_str()) else {
            let pieces = batch.iter().enumerate();
            let blocks =
                pieces.filter_map(|(n, i)| Some(block(log.get(*i)?, format!("piece {}", n + 1)))).collect();
            let question = format!("Write the {} summaries now.", batch.len());
            let page = PromptPage { intro: "Summarise pieces of a record.".to_owned(), blocks, question };
            let texts = json!({ "type": "array", "items": { "type": "string" } });
            let form = AnswerForm::object("summaries", json!({ "summaries": texts }));
            questions.push(Question::new(key, render(page), form));
            continue;
        };
        // Without an answer of the right length the pieces are found by their own words.
        let returned =
            answer.opinions.as_ref().ok().and_then(|all| all.first()?.value.get("summaries")?.as_array());
        let Some(returned) = returned.filter(|returned| returned.len() == batch.len()) else { continue };
        for (&i, summary) in batch.iter().zip(returned) {
            if let Some(slot) = out.get_mut(i) {
                *slot =
                    clip(summary.as_str().map(str::trim).unwrap_or_default(), MAX_SUMMARY_BYTES).to_owned();
            }
        }
    }
    if questions.is_empty() { Ok(out) } else { Err(questions) }
}

/// The text by which a chunk is found.
pub(crate) fn searchable_text(chunk: &Chunk, summary: &str) -> String {
    if summary.is_empty() { chunk.text.clone() } else { format!("{summary}\n{}", chunk.text) }
}
