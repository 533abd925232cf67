//! Answers one question: retrieval, perception, proofs, answer (003, section 3.3).
//!
//! In: a question, the log, and the answers so far. Out: the next question, or the result. The
//! paper asks a model separately for each stage of the class and for the sufficiency of proofs;
//! here one call returns class, passages and sufficiency, since all three need the same pieces. The
//! two levels of the class remain in the decision path.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use verdict_otlp::trace::Idx;

use super::log::{Chunk, Source};
use super::result::{ItemResult, Proof};
use super::retrieve::{self, Bm25Index};
use super::settings::{Asset, Class, Item, Settings};
use super::{check, tools};
use crate::measure::ask::Asker;
use crate::measure::ask::content::WITHHELD;
use crate::measure::ask::prompt_page::{Block, PromptPage};
use crate::measure::ask::quote::QuotableText;
use crate::measure::defects::clip;
use crate::measure::question::object_schema;
use crate::measure::{Answer, Form, Memo, Opinion, Prompt, Question, Unmeasured};
use crate::recognise::{Agent, AgentTrace};

const PERCEIVE: &str = include_str!("prompts/perceive.md");
const ANSWER: &str = include_str!("prompts/answer.md");
/// Most tool calls for one question.
const TOOL_CALLS: usize = 2;
/// Most pieces sent to a rerank endpoint, the best by BM25.
const RERANKED: usize = 40;
/// Longest task and final answer shown, in bytes.
const MOST_TEXT: usize = 8 * 1024;

/// Common data of all questions of a checklist.
pub(crate) struct ChecklistRun<'a> {
    pub trace: &'a AgentTrace,
    pub memo: &'a Memo,
    /// The agent whose task is judged.
    pub agent: &'a Agent,
    pub settings: &'a Settings,
    /// Cleans untrusted texts.
    pub asker: &'a Asker,
    pub task: String,
    /// The log from which proofs are taken, without withheld content.
    pub log: Vec<Chunk>,
    /// The full log for rules, if content is withheld from judges.
    pub record: Option<Vec<Chunk>>,
    pub index: Bm25Index,
    /// Answers so far, by key.
    pub answers: HashMap<&'a str, &'a Answer>,
}

/// The next step for a question.
pub(crate) enum NextStep {
    Ask(Question),
    Done(ItemResult),
}

/// A judge's reading of the record for a question.
struct Perception {
    class: Class,
    proofs: Vec<Proof>,
    by_answer: bool,
    sufficient: bool,
}

impl<'a> ChecklistRun<'a> {
    pub(crate) fn next_step(&self, i: usize, item: &Item) -> NextStep {
        self.result(i, item).map_or_else(|next| next, NextStep::Done)
    }

    /// The result of an item; an error is the step that precedes it.
    fn result(&self, i: usize, item: &Item) -> Result<ItemResult, NextStep> {
        if let Some(check) = &item.check {
            return Ok(self.run_check(item, check));
        }
        let key = |stage: &str| format!("q{i:03}.{stage}");
        let scores = self.scores(&key("0-rerank"), item)?;
        let keep = self.settings.keep;
        let first = self.with_calls(retrieve::select(&scores, keep, self.settings.threshold));
        let mut perception = self.perception(&key("1-perceive"), item, &first)?;
        if !perception.sufficient {
            let wider = self.with_calls(retrieve::widen(&scores, keep));
            if wider.len() > first.len() {
                perception = self.perception(&key("2-wider"), item, &wider)?;
            }
        }
        self.answer(&key("3-answer"), item, perception)
    }

    /// Adds the count of calls, which is evidence that something was not done.
    fn with_calls(&self, mut pieces: Vec<usize>) -> Vec<usize> {
        let last = self.log.len().saturating_sub(1);
        if pieces.last() != Some(&last) {
            pieces.push(last);
        }
        pieces
    }

    fn run_check(&self, item: &Item, check: &check::Check) -> ItemResult {
        let path = |source: &str| [source, "logical", "rules"].map(str::to_owned).to_vec();
        let record = self.record.as_ref().unwrap_or(&self.log);
        let Some(found) = check.evaluate(self.trace, self.memo, self.agent, record) else {
            let (answer, reason) = (Err(Unmeasured::NoContent), "the record contains nothing to check");
            return ItemResult::new(&item.question, Vec::new(), answer, reason, path("proofs"));
        };
        let proofs = vec![Proof { at: found.at, text: found.quote }];
        ItemResult::new(&item.question, proofs, Ok(found.yes), found.reason, path(source(found.by_answer)))
    }

    /// The score of each piece: by BM25, and by a rerank endpoint if configured.
    fn scores(&self, key: &str, item: &Item) -> Result<Vec<f64>, NextStep> {
        let mut scores = self.index.scores(&item.question);
        if scores.iter().all(|score| *score == 0.0) {
            // No word of the question occurs in the record ("Was only the name given?"): use those of
            // the task.
            scores = self.index.scores(&self.task);
        }
        let Some(judge) = &self.settings.rerank else { return Ok(scores) };
        let pool = retrieve::select(&scores, RERANKED, 0.0);
        if pool.is_empty() {
            return Ok(scores);
        }
        let Some(answer) = self.answers.get(key) else {
            let texts: Vec<String> = pool.iter().map(|&i| self.asker.clean(&self.log[i].text)).collect();
            let prompt = Prompt::new(self.asker.clean(&item.question), Value::from(texts).to_string());
            let scores = json!({ "type": "array", "items": { "type": "number" } });
            let form = Form::object("rerank", json!({ "scores": scores }));
            let judges = vec![judge.clone()];
            return Err(NextStep::Ask(Question { judges, ..Question::new(key, prompt, form) }));
        };
        // Without an answer of the endpoint the order of BM25 is kept.
        let given =
            answer.opinions.as_ref().ok().and_then(|all| all.first()?.value.get("scores")?.as_array());
        let Some(given) = given.filter(|given| given.len() == pool.len()) else { return Ok(scores) };
        let mut out = vec![0.0; scores.len()];
        // Cross-encoders return logits; the sigmoid makes them positive, so that shares of the best
        // are defined.
        for (&i, score) in pool.iter().zip(given) {
            out[i] = 1.0 / (1.0 + (-score.as_f64().unwrap_or(f64::MIN)).exp());
        }
        Ok(out)
    }

    fn perception(&self, key: &str, item: &Item, pieces: &[usize]) -> Result<Perception, NextStep> {
        let Some(answer) = self.answers.get(key) else {
            return Err(NextStep::Ask(self.perception_question(key, item, pieces)));
        };
        let value = match &answer.opinions {
            Ok(opinions) => opinions.first().map(|opinion| &opinion.value).unwrap_or(&Value::Null),
            Err(reason) => return Err(unmeasured(item, *reason, "no judge read the record")),
        };
        let yes = |key: &str| value.get(key).and_then(Value::as_str) == Some("yes");
        let class = match value.get("class").and_then(Value::as_str) {
            Some("factual") => Class::Factual,
            Some("coding") => Class::Coding,
            _ => Class::Reasoning,
        };
        let given = value.get("passages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let proofs = given.iter().filter_map(|passage| self.proof(passage, pieces)).collect();
        Ok(Perception { class, proofs, by_answer: yes("final_answer"), sufficient: yes("sufficient") })
    }

    /// A passage, if its piece contains it.
    fn proof(&self, passage: &Value, pieces: &[usize]) -> Option<Proof> {
        let text = passage.get("quote")?.as_str()?;
        let piece = passage.get("piece")?.as_str()?.strip_prefix('p')?.parse::<usize>().ok()?;
        let chunk = self.log.get(piece).filter(|_| pieces.contains(&piece))?;
        let shown = self.asker.clean(&chunk.text);
        let contained = QuotableText::of([shown.as_str()]).contains_quote(text);
        contained.then(|| Proof { at: chunk.at, text: clip(text, MOST_TEXT).to_owned() })
    }

    fn perception_question(&self, key: &str, item: &Item, pieces: &[usize]) -> Question {
        let ids: Vec<String> = pieces.iter().map(|i| format!("p{i}")).collect();
        let mut blocks = self.task_blocks(item);
        for (&i, id) in pieces.iter().zip(&ids) {
            let Some(chunk) = self.log.get(i) else { continue };
            let origin = match (chunk.source, &chunk.tool) {
                (Source::Result, Some(tool)) => format!("returned by {}", self.asker.name(tool)),
                (Source::Result, None) => "returned by a tool".to_owned(),
                (Source::Output, _) => "written by a model".to_owned(),
                (Source::Calls, _) => "counted".to_owned(),
            };
            blocks.push(self.span_block(chunk.at, format!("piece {id}, {origin}"), &chunk.text));
        }
        let question = "Prepare the check of what stands under our heading \"the question\".".to_owned();
        let page = PromptPage { intro: "Prepare the check of a question.".to_owned(), blocks, question };
        Question::new(key, page.prompt(PERCEIVE.trim()), perceive_form(&ids))
    }

    /// Content of the span `at`.
    fn span_block(&self, at: Idx, label: impl Into<String>, text: &str) -> Block {
        let of = self.trace.tree.spans.get(at).map(|span| (at, span.id));
        Block { of, ..Block::about(label, self.asker.clean(text), false) }
    }

    /// Task, question and final answer.
    fn task_blocks(&self, item: &Item) -> Vec<Block> {
        let answer = check::final_answer(self.agent).map_or("", |(text, _)| text);
        let answer = match self.asker.withholds_answer(self.trace, self.agent) {
            true => WITHHELD.to_owned(),
            false => self.asker.clean(clip(answer, MOST_TEXT)),
        };
        vec![
            Block::about("the task", self.task.clone(), true),
            Block::about("the question", self.asker.clean(&item.question), true),
            Block::about("the agent's final answer", answer, false),
        ]
    }

    /// The judges' answer. An error is the question for it, with the outputs of the tools that the judge
    /// has used so far.
    fn answer(&self, key: &str, item: &Item, perception: Perception) -> Result<ItemResult, NextStep> {
        let mut path = vec![source(perception.by_answer).to_owned()];
        path.extend(perception.class.path().iter().map(|&step| step.to_owned()));
        let assets: Vec<&Asset> =
            self.settings.assets.iter().filter(|asset| asset.of.fits(self.trace, self.agent)).collect();
        let judges = match self.answering_judges(&perception, &assets) {
            Ok(judges) => judges,
            Err(reason) => {
                let answer = Err(Unmeasured::NotApplicable);
                return Ok(ItemResult::new(&item.question, perception.proofs, answer, reason, path));
            }
        };
        let mut tool_outputs: Vec<(String, String)> = Vec::new();
        for turn in 0..=TOOL_CALLS {
            let key = format!("{key}-{turn}");
            let Some(answer) = self.answers.get(key.as_str()) else {
                let last = turn == TOOL_CALLS;
                let prompt = self.answer_prompt(item, &perception, &assets, &tool_outputs, last);
                return Err(NextStep::Ask(Question { judges, ..Question::new(key, prompt, answer_form()) }));
            };
            let opinions = match &answer.opinions {
                Ok(opinions) => opinions,
                Err(reason) => return Err(unmeasured(item, *reason, "no judge answered")),
            };
            let first = opinions.first().map(|opinion| &opinion.value).unwrap_or(&Value::Null);
            let text = |key: &str| first.get(key).and_then(Value::as_str).unwrap_or_default();
            let (tool, input) = (text("tool"), text("input"));
            if tool != "none" && !tool.is_empty() && turn < TOOL_CALLS {
                let output = tools::call_tool(tool, input, self.trace, &self.log);
                tool_outputs.push((format!("{tool} {input}"), output));
                path.push(tool.to_owned());
                continue;
            }
            let (answer, split) = majority(opinions);
            let reason = split.as_deref().unwrap_or_else(|| clip(text("reason"), MOST_TEXT));
            return Ok(ItemResult::new(&item.question, perception.proofs, answer, reason, path));
        }
        Err(unmeasured(item, Unmeasured::JudgeError, "the judge exceeded its tool calls"))
    }

    /// The judges to answer, those of the metric if empty; or the reason why no judge is asked.
    fn answering_judges(
        &self,
        perception: &Perception,
        assets: &[&Asset],
    ) -> Result<Vec<String>, &'static str> {
        let by_answer = perception.by_answer && check::final_answer(self.agent).is_some();
        if !perception.sufficient || (perception.proofs.is_empty() && !by_answer) {
            return Err("the record does not contain enough evidence");
        }
        if perception.class == Class::Factual && assets.is_empty() {
            let search = self.settings.search.as_ref();
            return search.map(|judge| vec![judge.clone()]).ok_or("there is no source for this fact");
        }
        Ok(self.settings.by_class.get(&perception.class).cloned().unwrap_or_default())
    }

    fn answer_prompt(
        &self,
        item: &Item,
        perception: &Perception,
        assets: &[&Asset],
        tool_outputs: &[(String, String)],
        last: bool,
    ) -> Prompt {
        let mut blocks = self.task_blocks(item);
        for proof in &perception.proofs {
            blocks.push(self.span_block(proof.at, "passage", &proof.text));
        }
        for asset in assets {
            blocks.push(Block::about(format!("known beforehand: {}", asset.name), asset.text.clone(), true));
        }
        for (used, output) in tool_outputs {
            let label = format!("your tool: {}", self.asker.clean(clip(used, 200)).replace('\n', " "));
            blocks.push(Block::about(label, self.asker.clean(output), false));
        }
        let tools = if last { " Tools can be used no more." } else { "" };
        let question = format!("Answer what stands under our heading \"the question\".{tools}");
        let page = PromptPage { intro: "Answer a question about a run.".to_owned(), blocks, question };
        page.prompt(ANSWER.trim())
    }
}

/// The source of proofs in a decision path.
fn source(by_answer: bool) -> &'static str {
    if by_answer { "proofs+final_answer" } else { "proofs" }
}

/// The answer of more than half of the judges. Without a majority the judges failed to answer, and the
/// second value gives their votes.
fn majority(opinions: &[Opinion]) -> (Result<bool, Unmeasured>, Option<String>) {
    let votes = |word: &str| opinions.iter().filter(|o| o.value.get("answer") == Some(&json!(word))).count();
    let (yes, no, unclear, all) = (votes("yes"), votes("no"), votes("unclear"), opinions.len());
    match (yes * 2 > all, no * 2 > all, unclear * 2 > all) {
        (true, _, _) => (Ok(true), None),
        (_, true, _) => (Ok(false), None),
        (_, _, true) => (Err(Unmeasured::NotApplicable), None),
        _ => {
            let split =
                format!("no majority: of {all} judges {yes} answered yes, {no} no, {unclear} unclear");
            (Err(Unmeasured::JudgeError), Some(split))
        }
    }
}

fn unmeasured(item: &Item, why: Unmeasured, explanation: &str) -> NextStep {
    let path = vec!["proofs".to_owned()];
    NextStep::Done(ItemResult::new(&item.question, Vec::new(), Err(why), explanation, path))
}

fn perceive_form(pieces: &[String]) -> Arc<Form> {
    let piece = json!({ "type": "string", "enum": pieces });
    let passage = object_schema(json!({ "piece": piece, "quote": { "type": "string" } }));
    let fields = json!({
        "thought": { "type": "string" },
        "class": { "type": "string", "enum": ["factual", "reasoning", "coding"] },
        "passages": { "type": "array", "items": passage },
        "final_answer": { "type": "string", "enum": ["yes", "no"] },
        "sufficient": { "type": "string", "enum": ["yes", "no"] },
    });
    Form::object("perceive", fields)
}

fn answer_form() -> Arc<Form> {
    let fields = json!({
        "reason": { "type": "string" },
        "tool": { "type": "string", "enum": ["none", "calculator", "read_span", "json_query"] },
        "input": { "type": "string" },
        "answer": { "type": "string", "enum": ["yes", "no", "unclear"] },
    });
    Form::object("checked", fields)
}
