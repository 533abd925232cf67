//! One question's way to its answer: looked up, perceived, proved, answered (003, section 3.3).
//!
//! In: a question, the log, and the answers so far. Out: what to ask next, or what came of it. The
//! paper asks a model for each stage of the class and for the sufficiency of proofs; here one call
//! gives class, passages and sufficiency, since all three come from reading the same pieces. The
//! class's two levels stay in the decision path.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::check;
use super::log::{Chunk, Source};
use super::result::{Answered, Proof};
use super::retrieve::{self, Index};
use super::settings::{Class, Item, Settings};
use super::tools;
use crate::measure::ask::Asker;
use crate::measure::ask::content::WITHHELD;
use crate::measure::ask::prompt_page::{Block, Sheet};
use crate::measure::ask::quote::Quotable;
use crate::measure::defects::clip;
use crate::measure::{Answer, Form, Opinion, Prompt, Question, Unmeasured};
use crate::recognise::{Agent, AgentTrace};

const PERCEIVE: &str = include_str!("prompts/perceive.md");
const ANSWER: &str = include_str!("prompts/answer.md");
/// How often a tool may be used for one question.
const TOOL_CALLS: usize = 2;
/// Pieces that a rerank endpoint is given, the best by BM25.
const RERANKED: usize = 40;
/// Longest task and final answer shown, in bytes.
const MOST_TEXT: usize = 8 * 1024;

/// What all questions of a checklist share.
pub struct Case<'a> {
    /// The trace.
    pub trace: &'a AgentTrace,
    /// Whose task it is.
    pub agent: &'a Agent,
    /// How checklists are judged.
    pub settings: &'a Settings,
    /// What cleans a stranger's text.
    pub asker: &'a Asker,
    /// As a judge may read it.
    pub task: String,
    /// Where proofs are looked for: all that judges may read.
    pub log: Vec<Chunk>,
    /// What the rules read, where judges may not read all of it.
    pub record: Option<Vec<Chunk>>,
    /// Its words.
    pub index: Index,
    /// What judges have answered so far, by key.
    pub answers: HashMap<&'a str, &'a Answer>,
}

/// What a question comes to.
pub enum Next {
    /// To be asked.
    Ask(Question),
    /// Answered, or not.
    Done(Answered),
}

/// How a judge sees the question.
struct Perceived {
    class: Class,
    proofs: Vec<Proof>,
    by_answer: bool,
    sufficient: bool,
}

impl<'a> Case<'a> {
    /// The next step of question `i`.
    pub fn next(&self, i: usize, item: &Item) -> Next {
        if let Some(check) = &item.check {
            return Next::Done(self.checked(item, check));
        }
        let key = |stage: &str| format!("q{i:03}.{stage}");
        let scores = match self.scores(&key("0-rerank"), item) {
            Ok(scores) => scores,
            Err(next) => return next,
        };
        let keep = self.settings.keep;
        let first = self.with_calls(retrieve::best(&scores, keep, self.settings.threshold));
        let mut seen = match self.perceived(&key("1-perceive"), item, &first) {
            Ok(seen) => seen,
            Err(next) => return next,
        };
        if !seen.sufficient {
            let wider = self.with_calls(retrieve::wider(&scores, keep));
            if wider.len() > first.len() {
                seen = match self.perceived(&key("2-wider"), item, &wider) {
                    Ok(seen) => seen,
                    Err(next) => return next,
                };
            }
        }
        self.judged(&key("3-answer"), item, seen)
    }

    /// The count of calls is always shown, so that what was never done can be told.
    fn with_calls(&self, mut pieces: Vec<usize>) -> Vec<usize> {
        let last = self.log.len().saturating_sub(1);
        if pieces.last() != Some(&last) {
            pieces.push(last);
        }
        pieces
    }

    fn checked(&self, item: &Item, check: &check::Check) -> Answered {
        let path = |source: &str| vec![source.to_owned(), "logical".to_owned(), "rules".to_owned()];
        match check.seen(self.trace, self.agent, self.record.as_ref().unwrap_or(&self.log)) {
            Some(seen) => Answered {
                question: item.question.clone(),
                proofs: vec![Proof { at: seen.at, text: seen.quote }],
                answer: Ok(seen.yes),
                reason: seen.reason,
                path: path(if seen.by_answer { "proofs+final_answer" } else { "proofs" }),
            },
            None => Answered {
                question: item.question.clone(),
                proofs: Vec::new(),
                answer: Err(Unmeasured::NoContent),
                reason: "the record holds nothing to check".to_owned(),
                path: path("proofs"),
            },
        }
    }

    /// How well each piece fits the question: by BM25, and by a rerank endpoint where there is one.
    fn scores(&self, key: &str, item: &Item) -> Result<Vec<f64>, Next> {
        let mut scores = self.index.scores(&item.question);
        if scores.iter().all(|score| *score == 0.0) {
            // None of its words stand in the record ("Was only the name given?"): what the task is
            // about does.
            scores = self.index.scores(&self.task);
        }
        let Some(judge) = &self.settings.rerank else { return Ok(scores) };
        let pool = retrieve::best(&scores, RERANKED, 0.0);
        if pool.is_empty() {
            return Ok(scores);
        }
        let Some(answer) = self.answers.get(key) else {
            let texts: Vec<String> = pool.iter().map(|&i| self.asker.clean(&self.log[i].text)).collect();
            return Err(Next::Ask(Question {
                key: key.to_owned(),
                prompt: Prompt::new(self.asker.clean(&item.question), Value::from(texts).to_string()),
                form: Arc::new(Form { name: "rerank", schema: scores_form(), score: None }),
                judges: vec![judge.clone()],
            }));
        };
        // An endpoint that is down leaves the order that BM25 gave.
        let given =
            answer.opinions.as_ref().ok().and_then(|all| all.first()?.value.get("scores")?.as_array());
        let Some(given) = given.filter(|given| given.len() == pool.len()) else { return Ok(scores) };
        let mut out = vec![0.0; scores.len()];
        // Cross-encoders give logits: brought above 0, so that shares of the best mean something.
        for (&i, score) in pool.iter().zip(given) {
            out[i] = 1.0 / (1.0 + (-score.as_f64().unwrap_or(f64::MIN)).exp());
        }
        Ok(out)
    }

    fn perceived(&self, key: &str, item: &Item, pieces: &[usize]) -> Result<Perceived, Next> {
        let Some(answer) = self.answers.get(key) else {
            return Err(Next::Ask(self.perceive(key, item, pieces)));
        };
        let value = match &answer.opinions {
            Ok(opinions) => opinions.first().map(|opinion| &opinion.value).unwrap_or(&Value::Null),
            Err(reason) => return Err(Next::Done(unanswered(item, *reason, "no judge read the record"))),
        };
        let yes = |key: &str| value.get(key).and_then(Value::as_str) == Some("yes");
        let class = match value.get("class").and_then(Value::as_str) {
            Some("factual") => Class::Factual,
            Some("coding") => Class::Coding,
            _ => Class::Reasoning,
        };
        let given = value.get("passages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let proofs = given.iter().filter_map(|passage| self.proof(passage, pieces)).collect();
        Ok(Perceived { class, proofs, by_answer: yes("final_answer"), sufficient: yes("sufficient") })
    }

    /// A passage, if it stands where it is said to.
    fn proof(&self, passage: &Value, pieces: &[usize]) -> Option<Proof> {
        let text = passage.get("quote")?.as_str()?;
        let piece = passage.get("piece")?.as_str()?.strip_prefix('p')?.parse::<usize>().ok()?;
        let chunk = self.log.get(*pieces.contains(&piece).then_some(&piece)?)?;
        let shown = self.asker.clean(&chunk.text);
        let there = Quotable::of([shown.as_str()]).holds(text);
        there.then(|| Proof { at: chunk.at, text: clip(text, MOST_TEXT).to_owned() })
    }

    fn perceive(&self, key: &str, item: &Item, pieces: &[usize]) -> Question {
        let ids: Vec<String> = pieces.iter().map(|i| format!("p{i}")).collect();
        let mut blocks = self.about(item);
        for (&i, id) in pieces.iter().zip(&ids) {
            let Some(chunk) = self.log.get(i) else { continue };
            let what = match (chunk.source, &chunk.tool) {
                (Source::Result, Some(tool)) => format!("returned by {}", self.asker.clean(clip(tool, 80))),
                (Source::Result, None) => "returned by a tool".to_owned(),
                (Source::Output, _) => "written by a model".to_owned(),
                (Source::Calls, _) => "counted".to_owned(),
            };
            let of = self.trace.tree.spans.get(chunk.at).map(|span| (chunk.at, span.id));
            let label = format!("piece {id}, {what}");
            blocks.push(Block { of, ..Block::about(label, self.asker.clean(&chunk.text), false) });
        }
        let question = format!("Prepare the check of this question: {}", self.asker.clean(&item.question));
        let sheet = Sheet { intro: "Prepare the check of a question.".to_owned(), blocks, question };
        Question {
            key: key.to_owned(),
            prompt: sheet.prompt(PERCEIVE.trim()),
            form: Arc::new(Form { name: "perceive", schema: perceive_form(&ids), score: None }),
            judges: Vec::new(),
        }
    }

    /// Task, question and final answer.
    fn about(&self, item: &Item) -> Vec<Block> {
        let answer = check::answer(self.agent).map_or("", |(text, _)| text);
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

    fn judged(&self, key: &str, item: &Item, seen: Perceived) -> Next {
        let source = if seen.by_answer { "proofs+final_answer" } else { "proofs" };
        let mut path = vec![source.to_owned()];
        path.extend(seen.class.path().iter().map(|&step| step.to_owned()));
        let unmeasured = |why: &str, proofs: Vec<Proof>, path: Vec<String>| {
            let answer = Err(Unmeasured::NotApplicable);
            Next::Done(Answered {
                question: item.question.clone(),
                proofs,
                answer,
                reason: why.to_owned(),
                path,
            })
        };
        let has_answer = check::answer(self.agent).is_some();
        if !seen.sufficient || (seen.proofs.is_empty() && !(seen.by_answer && has_answer)) {
            return unmeasured("the record does not hold enough to tell", seen.proofs, path);
        }
        let assets: Vec<&super::settings::Asset> = self
            .settings
            .assets
            .iter()
            .filter(|asset| super::fits(&asset.of, self.trace, self.agent))
            .collect();
        let mut judges = self.settings.by_class.get(&seen.class).cloned().unwrap_or_default();
        if seen.class == Class::Factual && assets.is_empty() {
            match &self.settings.search {
                Some(search) => judges = vec![search.clone()],
                None => return unmeasured("there is no source for this fact", seen.proofs, path),
            }
        }
        let mut gave: Vec<(String, String)> = Vec::new();
        for turn in 0..=TOOL_CALLS {
            let key = format!("{key}-{turn}");
            let Some(answer) = self.answers.get(key.as_str()) else {
                let prompt = self.answering(item, &seen, &assets, &gave, turn == TOOL_CALLS);
                let form = Arc::new(Form { name: "checked", schema: answer_form(), score: None });
                return Next::Ask(Question { key, prompt, form, judges });
            };
            let opinions = match &answer.opinions {
                Ok(opinions) => opinions,
                Err(reason) => return Next::Done(unanswered(item, *reason, "no judge answered")),
            };
            let first = opinions.first().map(|opinion| &opinion.value).unwrap_or(&Value::Null);
            let text = |key: &str| first.get(key).and_then(Value::as_str).unwrap_or_default();
            if text("tool") != "none" && !text("tool").is_empty() && turn < TOOL_CALLS {
                let used = format!("{} {}", text("tool"), text("input"));
                gave.push((used, tools::call(text("tool"), text("input"), self.trace, &self.log)));
                path.push(text("tool").to_owned());
                continue;
            }
            let (answer, split) = majority(opinions);
            let reason = split.unwrap_or_else(|| clip(text("reason"), MOST_TEXT).to_owned());
            return Next::Done(Answered {
                question: item.question.clone(),
                proofs: seen.proofs,
                answer,
                reason,
                path,
            });
        }
        Next::Done(unanswered(item, Unmeasured::JudgeError, "the judge went on using tools"))
    }

    fn answering(
        &self,
        item: &Item,
        seen: &Perceived,
        assets: &[&super::settings::Asset],
        gave: &[(String, String)],
        last: bool,
    ) -> Prompt {
        let mut blocks = self.about(item);
        for proof in &seen.proofs {
            let of = self.trace.tree.spans.get(proof.at).map(|span| (proof.at, span.id));
            blocks.push(Block { of, ..Block::about("passage", self.asker.clean(&proof.text), false) });
        }
        for asset in assets {
            blocks.push(Block::about(format!("known beforehand: {}", asset.name), asset.text.clone(), true));
        }
        for (used, output) in gave {
            let label = format!("your tool: {}", self.asker.clean(clip(used, 200)).replace('\n', " "));
            blocks.push(Block::about(label, self.asker.clean(output), false));
        }
        let tools = if last { " Tools can be used no more." } else { "" };
        let question = format!("Answer this question: {}{tools}", self.asker.clean(&item.question));
        let sheet = Sheet { intro: "Answer a question about a run.".to_owned(), blocks, question };
        sheet.prompt(ANSWER.trim())
    }
}

/// What more than half of the judges answered. Where no answer has a majority, the judges failed to
/// answer, and the second value says how they are split.
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

fn unanswered(item: &Item, why: Unmeasured, words: &str) -> Answered {
    Answered {
        question: item.question.clone(),
        proofs: Vec::new(),
        answer: Err(why),
        reason: words.to_owned(),
        path: vec!["proofs".to_owned()],
    }
}

fn object(fields: Value) -> Value {
    let required: Vec<&String> = fields.as_object().map(|map| map.keys().collect()).unwrap_or_default();
    json!({ "type": "object", "properties": fields, "required": required, "additionalProperties": false })
}

fn perceive_form(pieces: &[String]) -> Value {
    let piece = match pieces.is_empty() {
        true => json!({ "type": "string", "enum": ["none"] }),
        false => json!({ "type": "string", "enum": pieces }),
    };
    let passage = object(json!({ "piece": piece, "quote": { "type": "string" } }));
    object(json!({
        "thought": { "type": "string" },
        "class": { "type": "string", "enum": ["factual", "reasoning", "coding"] },
        "passages": { "type": "array", "items": passage },
        "final_answer": { "type": "string", "enum": ["yes", "no"] },
        "sufficient": { "type": "string", "enum": ["yes", "no"] },
    }))
}

fn answer_form() -> Value {
    object(json!({
        "reason": { "type": "string" },
        "tool": { "type": "string", "enum": ["none", "calculator", "read_span", "json_query"] },
        "input": { "type": "string" },
        "answer": { "type": "string", "enum": ["yes", "no", "unclear"] },
    }))
}

fn scores_form() -> Value {
    object(json!({ "scores": { "type": "array", "items": { "type": "number" } } }))
}
