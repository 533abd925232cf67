//! The last question about a trace: the effect of its failures on the outcome (001, section 5, aggregation that
//! reasons).
//!
//! In: a trace and the measurements of rules and judges. Out: one question, if a metric failed; from its answers a
//! [`RunOutcome`]: the findings that touched the outcome, the root cause, and the quality of the run. Judges refer to
//! findings by number, so that an answer cannot name anything that was not found.

use std::sync::Arc;

use serde_json::{Value, json};
use verdict_otlp::trace::Idx;

use super::asker::Asker;
use super::content::{TraceContent, WITHHELD, excerpt};
use super::form::{RATIONALE, SCORE};
use super::parts::block_bytes;
use super::prompt_page::{PromptBlock, PromptPage};
use super::system::RECORD;
use super::topology;
use crate::measure::defects::clip;
use crate::measure::median::median;
use crate::measure::question::object_schema;
use crate::measure::{AnswerForm, Finding, Measurement, Memo, Opinion, Question, ScoreField};
use crate::recognise::{Agent, AgentTrace};

/// The key of the question.
const KEY: &str = "outcome";
/// Maximum number of findings in a question, the worst ones.
const MAX_FINDINGS: usize = 40;
/// Maximum bytes of a rationale.
const MAX_RATIONALE_BYTES: usize = 600;
/// The best score of the scale in the rubric.
const BEST: u8 = 5;
/// The answer if no finding is the root cause.
const NO_ROOT_CAUSE: &str = "none";

const TOUCHED_OUTCOME: &str = "touched_outcome";
const ROOT_CAUSE: &str = "root_cause";

const RUBRIC: &str = include_str!("rubric/outcome.md");

const ANSWER: &str = "\
# Answer

Answer with one JSON object and nothing else, its keys in this order:
- `rationale`: two to five sentences: how the run ended, and which failure led there;
- `touched_outcome`: the numbers of the findings that touched the outcome, as texts; an empty list where none did;
- `root_cause`: the number of the finding that is the root cause, or `none`;
- `score`: 0, 1, 2, 3, 4 or 5, by the scale above.
";

/// The judges' statement about the outcome of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct RunOutcome {
    /// The quality of the run, from 0 to 1.
    pub score: f64,
    /// The span in which the root cause began, the failure that led to the others; `None` if no failure touched the
    /// outcome.
    pub root_cause: Option<Idx>,
    /// The findings that touched the outcome.
    pub touched_outcome: Vec<FindingRef>,
    /// The findings that judges were asked about, the worst first.
    pub asked: Vec<FindingRef>,
    /// The judges, in the form of `verdict.<metric>.judge`.
    pub judge: String,
    pub rationale: String,
}

/// A finding: the span and metric of its measurement, and its index there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FindingRef {
    pub at: Idx,
    pub metric: &'static str,
    pub index: usize,
}

/// A failing finding of the trace.
struct FailedFinding<'m> {
    reference: FindingRef,
    finding: &'m Finding,
    is_by_rule: bool,
}

/// The last question about a trace, with the findings that it numbers and the spans in which they began.
pub(crate) struct OutcomeQuestion {
    pub(crate) question: Question,
    findings: Vec<(FindingRef, Idx)>,
}

impl OutcomeQuestion {
    /// The question; `None` if no metric failed with a finding.
    pub(crate) fn new(
        asker: &Asker,
        trace: &AgentTrace,
        measurements: &[Measurement],
    ) -> Option<OutcomeQuestion> {
        let failed_findings = failed_findings(measurements);
        if failed_findings.is_empty() {
            return None;
        }
        let built_in = RUBRIC.split_once("-->").map_or(RUBRIC, |(_, text)| text);
        let system: Arc<str> = format!("{}\n\n{}\n\n{ANSWER}", built_in.trim(), RECORD.trim()).into();
        let max_bytes = asker.max_bytes(&system);
        let content = TraceContent { asker, trace, memo: &Memo::new() };
        let mut blocks = head_blocks(content, max_bytes);
        let mut remaining = max_bytes.saturating_sub(blocks.iter().map(block_bytes).sum());
        let mut findings = Vec::new();
        for failed in failed_findings.iter().take(MAX_FINDINGS) {
            let finding_block = finding_block(content, failed, findings.len() + 1);
            if block_bytes(&finding_block) > remaining && !findings.is_empty() {
                break;
            }
            remaining = remaining.saturating_sub(block_bytes(&finding_block));
            blocks.push(finding_block);
            findings.push((failed.reference, failed.finding.origin.unwrap_or(failed.reference.at)));
        }
        let omitted = failed_findings.len() - findings.len();
        let mut intro = "Judge the outcome of the whole run.".to_owned();
        if omitted > 0 {
            intro.push_str(&format!(" These are its worst findings; {omitted} milder ones are not shown."));
        }
        if trace.incomplete {
            intro.push_str(" The record is incomplete: the run may have gone on.");
        }
        let question =
            "Now say which findings touched the outcome, what the root cause was, and how good the run was.";
        let page = PromptPage { intro, blocks, question: question.to_owned() };
        let question = Question::new(KEY, page.prompt(system), form(findings.len()));
        Some(OutcomeQuestion { question, findings })
    }

    /// The merged opinions: the median of the scores, and the findings that more than half of the opinions name.
    /// `None` if no opinion can be read.
    pub(crate) fn read(&self, opinions: &[Opinion]) -> Option<RunOutcome> {
        let parsed: Vec<(&Opinion, OutcomeOpinion)> =
            opinions.iter().filter_map(|opinion| Some((opinion, self.parse_opinion(opinion)?))).collect();
        let score = median(parsed.iter().map(|(_, opinion)| opinion.score).collect())?;
        let is_majority = |votes: usize| 2 * votes > parsed.len();
        let touched_votes = |index: usize| {
            parsed.iter().filter(|(_, opinion)| opinion.touched_outcome.contains(&index)).count()
        };
        let touched_outcome: Vec<usize> =
            (0..self.findings.len()).filter(|&n| is_majority(touched_votes(n))).collect();
        let root_cause_votes =
            |index: usize| parsed.iter().filter(|(_, opinion)| opinion.root_cause == Some(index)).count();
        // Of findings with the same number of votes, the worst one: `max_by_key` returns the last maximum.
        let most_voted = touched_outcome.iter().rev().copied().max_by_key(|&n| root_cause_votes(n));
        let root_cause = most_voted.filter(|&n| root_cause_votes(n) > 0);
        let nearest = parsed
            .iter()
            .min_by(|(_, a), (_, b)| (a.score - score).abs().total_cmp(&(b.score - score).abs()))?;
        let mut judges: Vec<&str> = Vec::new();
        for (opinion, _) in &parsed {
            if !judges.contains(&&*opinion.judge) {
                judges.push(&opinion.judge);
            }
        }
        let reference = |&n: &usize| self.findings.get(n).map(|(reference, _)| *reference);
        Some(RunOutcome {
            score: score / f64::from(BEST),
            root_cause: root_cause.and_then(|n| self.findings.get(n)).map(|(_, span_index)| *span_index),
            touched_outcome: touched_outcome.iter().filter_map(reference).collect(),
            asked: self.findings.iter().map(|(reference, _)| *reference).collect(),
            judge: judges.join("+"),
            rationale: nearest.1.rationale.clone(),
        })
    }

    /// Reads an opinion; `None` if it has no score on the scale.
    fn parse_opinion(&self, opinion: &Opinion) -> Option<OutcomeOpinion> {
        let value = &opinion.value;
        let score = u8::try_from(value.get(SCORE)?.as_u64()?).ok().filter(|score| *score <= BEST)?;
        let best = f64::from(BEST);
        let weighted = opinion.weighted.filter(|weighted| (0.0..=best).contains(weighted));
        let finding_index = |value: &Value| {
            let index = value.as_str()?.parse::<usize>().ok()?.checked_sub(1)?;
            (index < self.findings.len()).then_some(index)
        };
        let touched_outcome =
            value.get(TOUCHED_OUTCOME)?.as_array()?.iter().filter_map(finding_index).collect();
        let rationale = value.get(RATIONALE).and_then(Value::as_str).unwrap_or_default();
        Some(OutcomeOpinion {
            score: weighted.unwrap_or(f64::from(score)),
            touched_outcome,
            root_cause: value.get(ROOT_CAUSE).and_then(finding_index),
            rationale: clip(rationale.trim(), MAX_RATIONALE_BYTES).to_owned(),
        })
    }
}

/// One opinion, with findings by their index.
struct OutcomeOpinion {
    score: f64,
    touched_outcome: Vec<usize>,
    root_cause: Option<usize>,
    rationale: String,
}

/// The findings of failing measurements, the worst first, then in the order of the run.
fn failed_findings(measurements: &[Measurement]) -> Vec<FailedFinding<'_>> {
    let failing =
        measurements.iter().filter_map(|m| Some((m, m.outcome.as_ref().ok().filter(|o| !o.passed)?)));
    let findings = failing.flat_map(|(m, measured)| {
        let reference = |index| FindingRef { at: m.at, metric: m.metric, index };
        let counted_findings = measured.findings.iter().enumerate().filter(|(_, finding)| !finding.is_note());
        counted_findings.map(move |(index, finding)| FailedFinding {
            reference: reference(index),
            finding,
            is_by_rule: finding.defect.is_some(),
        })
    });
    let mut findings: Vec<FailedFinding<'_>> = findings.collect();
    findings.sort_by_key(|failed| (std::cmp::Reverse(failed.finding.severity), failed.reference.at));
    findings
}

/// The task, agents and final answer of the run.
fn head_blocks(content: TraceContent<'_>, max_bytes: usize) -> Vec<PromptBlock> {
    let TraceContent { asker, trace, .. } = content;
    let mut blocks = Vec::new();
    if trace.agents.len() > 1 {
        let text = topology::describe(asker, trace);
        blocks.push(PromptBlock::without_span(
            topology::CONTROL_FLOW_TITLE,
            excerpt(&text, max_bytes / 8),
            false,
        ));
    }
    for agent in trace.agents.iter().filter(|agent| agent.parent.is_none()).take(MAX_RUNS) {
        blocks.extend(task_and_answer(content, agent, max_bytes / (4 * MAX_RUNS)));
    }
    blocks
}

/// Maximum number of outermost agents whose task and answer are shown; a trace usually has one.
const MAX_RUNS: usize = 2;

/// The task and the final answer of the agent.
fn task_and_answer(content: TraceContent<'_>, agent: &Agent, max_bytes: usize) -> Vec<PromptBlock> {
    let mut blocks = Vec::new();
    if let Some(task) = &agent.task {
        let text = content.text(agent.task_at.unwrap_or(agent.at), task, max_bytes);
        blocks.push(PromptBlock::without_span("the task", text, true));
    }
    let answer = match &agent.answer {
        Some(answer) => content.answer(agent, answer, max_bytes),
        None => format!("(none; content {})", agent.answer_content.as_str()),
    };
    blocks.push(PromptBlock::without_span("the final answer", answer, false));
    blocks
}

/// The finding with this number, as a judge reads it.
fn finding_block(content: TraceContent<'_>, failed: &FailedFinding<'_>, number: usize) -> PromptBlock {
    let FailedFinding { reference, finding, is_by_rule } = failed;
    let origin = finding.origin.unwrap_or(reference.at);
    let id =
        |span_index: Idx| content.trace.tree.spans.get(span_index).map(|span| span.id).unwrap_or_default();
    let category = finding.category.map_or("no category", |category| category.as_str());
    let label = format!(
        "finding {number}: {}, {}, {category}, began in span {} ({})",
        reference.metric,
        finding.severity.as_str(),
        id(origin),
        content.title(origin),
    );
    // Rules may quote withheld content. Findings of judges cannot: this content was not shown to them.
    let text = match *is_by_rule && content.withholds_any() {
        true => WITHHELD.to_owned(),
        false => content.asker.clean(&format!("{}\nquote: {}", finding.rationale, finding.quote)),
    };
    PromptBlock::without_span(label, text, false)
}

/// The form of the answer about findings of this number.
fn form(finding_count: usize) -> Arc<AnswerForm> {
    let numbers: Vec<String> = (1..=finding_count).map(|n| n.to_string()).collect();
    let causes: Vec<&str> = numbers.iter().map(String::as_str).chain([NO_ROOT_CAUSE]).collect();
    let values: Vec<u8> = (0..=BEST).collect();
    let fields = json!({
        RATIONALE: { "type": "string" },
        TOUCHED_OUTCOME: { "type": "array", "items": { "type": "string", "enum": numbers } },
        ROOT_CAUSE: { "type": "string", "enum": causes },
        SCORE: { "type": "integer", "enum": values },
    });
    Arc::new(AnswerForm {
        name: "outcome",
        schema: object_schema(fields),
        score: Some(ScoreField { key: SCORE, values }),
    })
}
