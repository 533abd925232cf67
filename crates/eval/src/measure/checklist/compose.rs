//! Answers one question: retrieval, perception, proofs, answer (003, section 3.3).
//!
//! In: a question, the log, and the answers so far. Out: the next question, or the result. The
//! paper asks a model separately for each stage of the class and for the sufficiency of proofs. Here one call returns
//! class, passages and sufficiency, since all three need the same pieces. The decision path has both levels.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};
use verdict_otlp::trace::Idx;

use super::forms::{answer_form, answer_word, majority, perceive_form, source_form};
use super::inquiry::{ANSWER, Inquiry, SEARCH, SOURCE};
use super::log::{Chunk, LogSource, LogText};
use super::prompt::checklist_prompt;
use super::result::{Citation, ItemResult, Proof, proof_source};
use super::retrieve::{self, Bm25Index};
use super::settings::{Asset, ChecklistSettings, Class, Item};
use super::{check, summary, tools};
use crate::measure::ask::content::TraceContent;
use crate::measure::ask::prompt_page::{PromptBlock, PromptPage};
use crate::measure::ask::quote::QuotableText;
use crate::measure::defects::clip;
use crate::measure::remote::protocol::{read_run, run_code};
use crate::measure::table::{CHECKLIST_PERCEIVE, CHECKLIST_SUMMARY};
use crate::measure::{Answer, AnswerForm, Opinion, Prompt, Question, Unmeasured};
use crate::recognise::Agent;

/// The tool of a judge whose checklist has `run_code`.
const RUN_CODE_TOOL: &str = " You may also use the tool `run_code`: `input` is a Python program that prints what you \
need; gives what it prints. It has no files and no network, so it must contain the code and data from the record that it \
checks.";

const PERCEIVE: &str = include_str!("prompts/perceive.md");
/// Maximum number of tool calls for one question.
const MAX_TOOL_CALLS: usize = 2;
/// Maximum number of passages of sources in one answer, and maximum bytes of one passage.
const MAX_CITATIONS: usize = 10;
const MAX_CITED_BYTES: usize = 1024;
/// Maximum number of pieces sent to a rerank endpoint, the best ones by BM25.
const MAX_RERANKED: usize = 40;
/// Maximum bytes shown of a task, a final answer or another text.
const MAX_TEXT_BYTES: usize = 8 * 1024;

/// The data that all questions of a checklist share.
pub(crate) struct ChecklistRun<'a> {
    pub content: TraceContent<'a>,
    /// The agent whose task is judged.
    pub agent: &'a Agent,
    pub settings: &'a ChecklistSettings,
    pub task: String,
    /// The log from which proofs are taken, without withheld content.
    pub log: Vec<Chunk>,
    /// The log as whole texts, for rules, including content that is withheld from judges.
    pub record: Vec<LogText>,
    pub index: Bm25Index,
    /// A summary of each piece of the log; none unless configured.
    pub summaries: Vec<String>,
    /// Whether judges are asked; if not, questions without a check are undecided.
    pub asks: bool,
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
    /// Whether the final answer is needed for the answer to the question.
    uses_answer: bool,
    /// Whether the proofs suffice for the answer to the question.
    is_sufficient: bool,
}

impl Perception {
    /// The source of the proofs and the class of the question.
    fn decision_path(&self) -> Vec<String> {
        let path = [proof_source(self.uses_answer)].into_iter().chain(self.class.path().iter().copied());
        path.map(str::to_owned).collect()
    }
}

impl<'a> ChecklistRun<'a> {
    /// The summaries of the log, or the questions for them.
    pub(crate) fn summarise(&self) -> Result<Vec<String>, Vec<Question>> {
        let block = |chunk: &Chunk, label: String| self.span_block(chunk.at, label, &chunk.text);
        let render = |page| self.prompt(page, CHECKLIST_SUMMARY, summary::SUMMARY);
        summary::summaries(&self.log, &self.answers, block, render)
    }

    /// Makes the log searchable, by the words of the pieces and of their summaries.
    pub(crate) fn index_log(&mut self) {
        let texts: Vec<String> = (0..self.log.len()).map(|i| self.searchable_text(i)).collect();
        self.index = Bm25Index::new(texts.iter().map(String::as_str));
    }

    fn searchable_text(&self, i: usize) -> String {
        let summary = self.summaries.get(i).map_or("", String::as_str);
        self.log.get(i).map_or_else(String::new, |chunk| summary::searchable_text(chunk, summary))
    }

    pub(crate) fn next_step(&self, i: usize, item: &Item) -> NextStep {
        self.result(i, item).map_or_else(|next| next, NextStep::Done)
    }

    /// The result of an item, or as an error the step before it.
    fn result(&self, i: usize, item: &Item) -> Result<ItemResult, NextStep> {
        if let Some(check) = &item.check {
            return Ok(self.run_check(item, check));
        }
        if !self.asks {
            let (answer, reason) = (Err(Unmeasured::Undecided), "no judge is asked");
            return Ok(ItemResult::new(
                &item.question,
                Vec::new(),
                answer,
                reason,
                vec!["proofs".to_owned()],
            ));
        }
        let key = |stage: &str| format!("q{i:03}.{stage}");
        let scores = self.scores(&key("0-rerank"), item)?;
        let keep = self.settings.keep;
        let threshold = self.settings.threshold;
        let first = self.pieces(&scores, |scores| retrieve::select(scores, keep, threshold));
        let mut perception = self.perception(&key("1-perceive"), item, &first)?;
        // The record need not suffice for a question of fact, which sources answer.
        let by_sources = perception.class == Class::Factual && self.has_sources();
        if !perception.is_sufficient && !by_sources {
            let wider = self.pieces(&scores, |scores| retrieve::widen(scores, keep));
            if wider.len() > first.len() {
                perception = self.perception(&key("2-wider"), item, &wider)?;
            }
        }
        match perception.class {
            Class::Factual => self.factual_answer(&key, item, &perception),
            _ => self.answer(&key("3-answer"), item, &perception),
        }
    }

    /// The texts known beforehand that apply to the agent's task.
    fn assets(&self) -> Vec<&Asset> {
        self.settings.assets.iter().filter(|asset| asset.tasks.fits(self.content.trace, self.agent)).collect()
    }

    fn has_sources(&self) -> bool {
        self.settings.search.is_some() || !self.assets().is_empty()
    }

    /// The pieces that `select` takes by their scores. Calls are selected separately, because the arguments of a tool
    /// repeat words of the task, and would displace its results. The count of calls is always among them, as evidence
    /// that something was not done.
    fn pieces(&self, scores: &[f64], select: impl Fn(&[f64]) -> Vec<usize>) -> Vec<usize> {
        let is_call = |i: &usize| self.log.get(*i).is_some_and(|chunk| chunk.source == LogSource::Call);
        let (calls, others): (Vec<usize>, Vec<usize>) = (0..scores.len()).partition(is_call);
        let mut out: BTreeSet<usize> = [self.log.len().saturating_sub(1)].into();
        for group in [calls, others] {
            let group_scores: Vec<f64> = group.iter().filter_map(|&i| scores.get(i).copied()).collect();
            out.extend(select(&group_scores).into_iter().filter_map(|i| group.get(i).copied()));
        }
        out.into_iter().collect()
    }

    /// The result of a question that a check answers without judges.
    fn run_check(&self, item: &Item, check: &check::Check) -> ItemResult {
        let path = |source: &str| [source, "logical", "rules"].map(str::to_owned).to_vec();
        let Some(found) = check.evaluate(self.content.trace, self.content.memo, self.agent, &self.record)
        else {
            let (answer, reason) = (Err(Unmeasured::NoContent), "the record contains nothing to check");
            return ItemResult::new(&item.question, Vec::new(), answer, reason, path("proofs"));
        };
        let proofs = vec![Proof { at: found.at, text: found.quote }];
        ItemResult::new(
            &item.question,
            proofs,
            Ok(found.passed),
            found.rationale,
            path(proof_source(found.uses_answer)),
        )
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
        let candidates = retrieve::select(&scores, MAX_RERANKED, 0.0);
        if candidates.is_empty() {
            return Ok(scores);
        }
        let Some(answer) = self.answers.get(key) else {
            let texts: Vec<String> =
                candidates.iter().map(|&i| self.content.asker.clean(&self.searchable_text(i))).collect();
            let prompt =
                Prompt::new(self.content.asker.clean(&item.question), Value::from(texts).to_string());
            let scores = json!({ "type": "array", "items": { "type": "number" } });
            let form = AnswerForm::object("rerank", json!({ "scores": scores }));
            let judges = vec![judge.clone()];
            return Err(NextStep::Ask(Question { judges, ..Question::new(key, prompt, form) }));
        };
        // Without an answer of the endpoint the order of BM25 is kept.
        let reranked =
            answer.opinions.as_ref().ok().and_then(|all| all.first()?.value.get("scores")?.as_array());
        let Some(reranked) = reranked.filter(|reranked| reranked.len() == candidates.len()) else {
            return Ok(scores);
        };
        let mut out = vec![0.0; scores.len()];
        // Cross-encoders return logits; the sigmoid makes them positive, so that shares of the best
        // are defined.
        for (&i, score) in candidates.iter().zip(reranked) {
            out[i] = 1.0 / (1.0 + (-score.as_f64().unwrap_or(f64::MIN)).exp());
        }
        Ok(out)
    }

    /// The judge's reading of these pieces, or as an error the question for it.
    fn perception(&self, key: &str, item: &Item, pieces: &[usize]) -> Result<Perception, NextStep> {
        let Some(answer) = self.answers.get(key) else {
            return Err(NextStep::Ask(self.perception_question(key, item, pieces)));
        };
        let value = match &answer.opinions {
            Ok(opinions) => opinions.first().map(|opinion| &opinion.value).unwrap_or(&Value::Null),
            Err(reason) => return Err(unmeasured(item, *reason, "no judge read the record")),
        };
        let is_yes = |key: &str| value.get(key).and_then(Value::as_str) == Some("yes");
        let class = match value.get("class").and_then(Value::as_str) {
            Some("factual") => Class::Factual,
            Some("coding") => Class::Coding,
            _ => Class::Reasoning,
        };
        let passages = value.get("passages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let proofs = passages.iter().filter_map(|passage| self.proof(passage, pieces)).collect();
        Ok(Perception {
            class,
            proofs,
            uses_answer: is_yes("final_answer"),
            is_sufficient: is_yes("sufficient"),
        })
    }

    /// A passage of an answer as a proof, if the piece that it names contains it.
    fn proof(&self, passage: &Value, pieces: &[usize]) -> Option<Proof> {
        let text = passage.get("quote")?.as_str()?;
        let piece = passage.get("piece")?.as_str()?.strip_prefix('p')?.parse::<usize>().ok()?;
        let chunk = self.log.get(piece).filter(|_| pieces.contains(&piece))?;
        let shown = self.content.asker.clean(&chunk.text);
        let is_contained = QuotableText::from_texts([shown.as_str()]).contains_quote(text);
        is_contained.then(|| Proof { at: chunk.at, text: clip(text, MAX_TEXT_BYTES).to_owned() })
    }

    /// The question to read these pieces of the log for an item.
    fn perception_question(&self, key: &str, item: &Item, pieces: &[usize]) -> Question {
        let ids: Vec<String> = pieces.iter().map(|i| format!("p{i}")).collect();
        let mut blocks = self.task_blocks(item);
        for (&i, id) in pieces.iter().zip(&ids) {
            let Some(chunk) = self.log.get(i) else { continue };
            let origin = match (chunk.source, &chunk.tool) {
                (LogSource::Call, Some(tool)) => format!("call of {}", self.content.asker.name(tool)),
                (LogSource::Call, None) => "call of a tool".to_owned(),
                (LogSource::Result, Some(tool)) => format!("returned by {}", self.content.asker.name(tool)),
                (LogSource::Result, None) => "returned by a tool".to_owned(),
                (LogSource::Output, _) => "written by a model".to_owned(),
                (LogSource::Calls, _) => "counted".to_owned(),
            };
            blocks.push(self.span_block(chunk.at, format!("piece {id}, {origin}"), &chunk.text));
        }
        let question = "Prepare the check of what stands under our heading \"the question\".".to_owned();
        let page = PromptPage { intro: "Prepare the check of a question.".to_owned(), blocks, question };
        let prompt = self.prompt(page, CHECKLIST_PERCEIVE, PERCEIVE);
        Question::new(key, prompt, perceive_form(&ids))
    }

    fn prompt(&self, page: PromptPage, question: &str, rubric: &str) -> Prompt {
        checklist_prompt(self.content.asker, page, (question, rubric), (self.content.trace, self.agent.at))
    }

    /// Content of the span `span_index`.
    fn span_block(&self, span_index: Idx, label: impl Into<String>, text: &str) -> PromptBlock {
        let span = self.content.trace.tree.spans.get(span_index).map(|span| (span_index, span.id));
        PromptBlock { span, ..PromptBlock::without_span(label, self.content.asker.clean(text), false) }
    }

    /// Task, question and final answer.
    fn task_blocks(&self, item: &Item) -> Vec<PromptBlock> {
        let answer = check::final_answer(self.agent).map_or("", |(text, _)| text);
        let answer = self.content.answer(self.agent, answer, MAX_TEXT_BYTES);
        vec![
            PromptBlock::without_span("the task", self.task.clone(), true),
            PromptBlock::without_span("the question", self.content.asker.clean(&item.question), true),
            PromptBlock::without_span("the agent's final answer", answer, false),
        ]
    }

    /// The answer to a question of fact: by the assets, and if these do not decide it by the judge that searches.
    /// Neither the record nor the memory of a judge decides: an answer counts only if it cites a source.
    fn factual_answer(
        &self,
        key: &impl Fn(&str) -> String,
        item: &Item,
        perception: &Perception,
    ) -> Result<ItemResult, NextStep> {
        let assets = self.assets();
        let mut from_assets = None;
        if !assets.is_empty() {
            let judges = self.settings.by_class.get(&Class::Factual).cloned().unwrap_or_default();
            let inquiry =
                Inquiry { system: SOURCE, form: source_form(true), judges, assets: &assets, runner: None };
            let result = self.inquire(&key("3-source"), item, perception, &inquiry)?;
            if result.answer.is_ok() || self.settings.search.is_none() {
                return Ok(result);
            }
            from_assets = Some(result);
        }
        let Some(judge) = &self.settings.search else {
            let path = perception.decision_path();
            let answer = Err(Unmeasured::NotApplicable);
            let reason = "there is no source for this fact";
            return Ok(ItemResult::new(&item.question, perception.proofs.clone(), answer, reason, path));
        };
        let (form, judges) = (source_form(false), vec![judge.clone()]);
        let inquiry = Inquiry { system: SEARCH, form, judges, assets: &[], runner: None };
        let mut result = self.inquire(&key("4-search"), item, perception, &inquiry)?;
        if let Some(from_assets) = from_assets {
            // The path names both sources, in the order in which they were asked.
            let search_path = result.path.split_off(perception.decision_path().len().min(result.path.len()));
            result.path = from_assets.path.into_iter().chain(search_path).collect();
        }
        Ok(result)
    }

    /// The judges' answer from the record. An error is the question for it, with the outputs of the tools that the
    /// judge has used so far.
    fn answer(&self, key: &str, item: &Item, perception: &Perception) -> Result<ItemResult, NextStep> {
        let uses_answer = perception.uses_answer && check::final_answer(self.agent).is_some();
        if !perception.is_sufficient || (perception.proofs.is_empty() && !uses_answer) {
            let answer = Err(Unmeasured::NotApplicable);
            let reason = "the record does not contain enough evidence";
            let path = perception.decision_path();
            return Ok(ItemResult::new(&item.question, perception.proofs.clone(), answer, reason, path));
        }
        let assets = self.assets();
        let judges = self.settings.by_class.get(&perception.class).cloned().unwrap_or_default();
        let runner = self.settings.run_code.as_deref().filter(|_| perception.class == Class::Coding);
        let form = answer_form(runner.is_some());
        let inquiry = Inquiry { system: ANSWER, form, judges, assets: &assets, runner };
        self.inquire(key, item, perception, &inquiry)
    }

    /// The result of the inquiry about an item. An error is its next question, with the outputs of the tools that the
    /// judge has used so far.
    fn inquire(
        &self,
        key: &str,
        item: &Item,
        perception: &Perception,
        inquiry: &Inquiry<'_>,
    ) -> Result<ItemResult, NextStep> {
        let mut path = perception.decision_path();
        match inquiry.system {
            SOURCE => path.push("assets".to_owned()),
            SEARCH => path.push("search".to_owned()),
            _ => {}
        }
        let mut tool_outputs: Vec<(String, String)> = Vec::new();
        for turn in 0..=MAX_TOOL_CALLS {
            let key = format!("{key}-{turn}");
            let Some(answer) = self.answers.get(key.as_str()) else {
                let is_last_turn = turn == MAX_TOOL_CALLS;
                let prompt = self.answer_prompt(item, perception, inquiry, &tool_outputs, is_last_turn);
                let (judges, form) = (inquiry.judges.clone(), Arc::clone(&inquiry.form));
                return Err(NextStep::Ask(Question { judges, ..Question::new(key, prompt, form) }));
            };
            let opinions = match &answer.opinions {
                Ok(opinions) => opinions,
                Err(reason) => return Err(unmeasured(item, *reason, "no judge answered")),
            };
            let first = opinions.first().map(|opinion| &opinion.value).unwrap_or(&Value::Null);
            let text = |key: &str| first.get(key).and_then(Value::as_str).unwrap_or_default();
            let (tool, input) = (text("tool"), text("input"));
            if tool != "none" && !tool.is_empty() && turn < MAX_TOOL_CALLS {
                let output = match inquiry.runner.filter(|_| tool == tools::RUN_CODE) {
                    Some(runner) => self.program_output(format!("{key}-run"), runner, input)?,
                    None => tools::call_tool(tool, input, self.content.trace, &self.log),
                };
                tool_outputs.push((format!("{tool} {input}"), output));
                path.push(tool.to_owned());
                continue;
            }
            let needs_source = inquiry.system == SOURCE || inquiry.system == SEARCH;
            let citations = |opinion: &Opinion| self.valid_citations(&opinion.value, inquiry);
            let (answer, explanation) =
                majority(opinions, |opinion| !needs_source || !citations(opinion).is_empty());
            let reason = explanation.as_deref().unwrap_or_else(|| clip(text("reason"), MAX_TEXT_BYTES));
            let sources = match answer {
                // The sources of the opinions with the majority's answer.
                Ok(is_yes) => opinions
                    .iter()
                    .filter(|o| answer_word(o) == Some(if is_yes { "yes" } else { "no" }))
                    .flat_map(citations)
                    .collect(),
                Err(_) => Box::default(),
            };
            let proofs = perception.proofs.clone();
            return Ok(ItemResult {
                sources,
                ..ItemResult::new(&item.question, proofs, answer, reason, path)
            });
        }
        Err(unmeasured(item, Unmeasured::JudgeError, "the judge exceeded its tool calls"))
    }

    /// The output of a program that the judge has written, or as an error the question that runs it.
    fn program_output(&self, key: String, runner: &str, code: &str) -> Result<String, NextStep> {
        let Some(answer) = self.answers.get(key.as_str()) else {
            let id = |span_index: Idx| {
                self.content.trace.tree.spans.get(span_index).map(|span| span.id.to_string())
            };
            let ids = (id(self.agent.at).unwrap_or_default(), self.content.trace.tree.id.to_string());
            let question = run_code(key, clip(code, tools::MAX_CODE_BYTES), ids.0, ids.1);
            return Err(NextStep::Ask(Question { judges: vec![runner.to_owned()], ..question }));
        };
        let opinions =
            answer.opinions.as_ref().map_err(|reason| format!("it was not run: {}", reason.as_str()));
        let output = opinions.and_then(|all| read_run(&all.first().map_or(Value::Null, |o| o.value.clone())));
        Ok(tools::render_output(output))
    }

    /// The valid passages that an answer cites: those of an asset occur in it verbatim; those of a search name their
    /// source.
    fn valid_citations(&self, answer: &Value, inquiry: &Inquiry<'_>) -> Vec<Citation> {
        let passages = answer.get("cited").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let citation = |passage: &Value| {
            let text = |key: &str| {
                let text =
                    passage.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
                text.map(|text| clip(text, MAX_CITED_BYTES).to_owned())
            };
            let (source, quote) = (text("source")?, text("quote")?);
            let asset_name = source.trim_start_matches("source:").trim();
            let contains_quote = |asset: &&Asset| {
                asset.name.trim() == asset_name
                    && QuotableText::from_texts([asset.text.as_str()]).contains_quote(&quote)
            };
            let is_valid = inquiry.system == SEARCH || inquiry.assets.iter().any(contains_quote);
            is_valid.then_some(Citation { source, quote })
        };
        passages.iter().take(MAX_CITATIONS).filter_map(citation).collect()
    }

    /// The prompt of the question for the answer to an item.
    fn answer_prompt(
        &self,
        item: &Item,
        perception: &Perception,
        inquiry: &Inquiry<'_>,
        tool_outputs: &[(String, String)],
        is_last_turn: bool,
    ) -> Prompt {
        let mut blocks = self.task_blocks(item);
        for proof in &perception.proofs {
            blocks.push(self.span_block(proof.at, "passage", &proof.text));
        }
        let kind = if inquiry.system == SOURCE { "source" } else { "known beforehand" };
        for asset in inquiry.assets {
            let label = format!("{kind}: {}", asset.name);
            blocks.push(PromptBlock::without_span(label, asset.text.clone(), true));
        }
        for (tool_call, output) in tool_outputs {
            let label = format!(
                "your tool: {}",
                self.content.asker.cleaned_excerpt(tool_call, 200).replace('\n', " ")
            );
            blocks.push(PromptBlock::without_span(label, self.content.asker.clean(output), false));
        }
        let tools = match inquiry.runner {
            _ if is_last_turn && inquiry.system != SEARCH => " Tools can be used no more.",
            Some(_) => RUN_CODE_TOOL,
            None => "",
        };
        let question = format!("Answer what stands under our heading \"the question\".{tools}");
        let page = PromptPage { intro: "Answer a question about a run.".to_owned(), blocks, question };
        self.prompt(page, inquiry.name(), inquiry.system)
    }
}

fn unmeasured(item: &Item, reason: Unmeasured, explanation: &str) -> NextStep {
    let path = vec!["proofs".to_owned()];
    NextStep::Done(ItemResult::new(&item.question, Vec::new(), Err(reason), explanation, path))
}
