//! Reads one opinion: the judge's grade, and those of its findings that are valid.
//!
//! In: an answer, and the pages that were shown. Out: grade, rationale and findings whose
//! quotations occur in their spans. The answer is untrusted: a judge may be any server, and its
//! input is untrusted.

use std::collections::HashMap;

use serde_json::Value;
use verdict_otlp::trace::{Idx, SpanId};

use super::form::{FINDINGS, LABEL, RATIONALE, SCORE};
use super::prompt_page::PromptPage;
use super::quote::QuotableText;
use crate::measure::defects::clip;
use crate::measure::table::{MetricSpec, Scale};
use crate::measure::{Category, Opinion, Severity};

/// The grade in an opinion.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Grade {
    /// A score on the metric's scale, weighted if the server returns probabilities.
    Score(f64),
    /// Index into the metric's labels.
    Label(usize),
}

impl Grade {
    pub(crate) fn score(self) -> Option<f64> {
        match self {
            Grade::Score(score) => Some(score),
            Grade::Label(_) => None,
        }
    }
}

/// A finding whose quotation was verified.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct JudgeFinding {
    /// The span of the finding.
    pub at: Idx,
    pub id: SpanId,
    pub problem: String,
    /// The quotation, verbatim.
    pub quote: String,
    /// `None` if no category fits.
    pub category: Option<Category>,
    pub severity: Severity,
}

impl JudgeFinding {
    /// Whether both findings of one judge are the same problem: one quotation may prove two problems of different
    /// categories.
    pub(crate) fn repeats(&self, other: &JudgeFinding) -> bool {
        self.is_about_same(other) && self.category == other.category
    }

    /// Whether both findings are about the same span, and have the same quotation or the same problem.
    pub(crate) fn is_about_same(&self, other: &JudgeFinding) -> bool {
        self.at == other.at && (self.quote == other.quote || self.problem == other.problem)
    }
}

/// The verified content of an opinion.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct JudgeOpinion {
    pub grade: Grade,
    pub rationale: String,
    pub findings: Vec<JudgeFinding>,
    /// The number of findings that were dropped because they are not valid.
    pub dropped: usize,
    /// The number of findings beyond [`MAX_FINDINGS`] and of those that were not read.
    pub over_limit: usize,
}

/// Maximum number of findings of one answer and of one measurement by judges. The rules have a smaller limit: each of
/// their findings is an occurrence of one defect, while a judge lists the different problems of a whole run.
pub(crate) const MAX_FINDINGS: usize = 64;

/// Maximum bytes of a rationale and of a problem: an explanation, which contains them, is cut at 1 KiB.
pub(super) const MAX_RATIONALE_BYTES: usize = 600;
const MAX_PROBLEM_BYTES: usize = 400;
/// Maximum bytes of a quotation.
const MAX_QUOTE_BYTES: usize = crate::measure::defects::QUOTE_BYTES;
/// Maximum number of findings read of one answer.
const MAX_READ_FINDINGS: usize = 200;

/// The content shown to a judge, to verify findings.
pub(crate) struct ShownContent {
    /// The shown spans, by their ids in hexadecimal digits.
    spans: HashMap<String, (Idx, SpanId)>,
    /// The shown texts of each span.
    content: HashMap<Idx, QuotableText>,
    /// The texts that a finding on any span may quote: the task, instructions, plans.
    binding: QuotableText,
}

impl ShownContent {
    /// The texts of each span, and those that a finding on any span may quote.
    pub(crate) fn new<'t>(
        spans: impl IntoIterator<Item = ((Idx, SpanId), Vec<String>)>,
        binding: impl IntoIterator<Item = &'t str>,
    ) -> ShownContent {
        let (mut by_id, mut content) = (HashMap::new(), HashMap::new());
        for ((span_index, id), texts) in spans {
            by_id.insert(id.to_string(), (span_index, id));
            content.insert(span_index, QuotableText::from_texts(texts.iter().map(String::as_str)));
        }
        ShownContent { spans: by_id, content, binding: QuotableText::from_texts(binding) }
    }

    /// The content of a page.
    pub(crate) fn from_page(page: &PromptPage) -> ShownContent {
        let spans =
            page.spans().into_iter().map(|(span_index, id)| (id.to_string(), (span_index, id))).collect();
        let mut texts: HashMap<Idx, Vec<&str>> = HashMap::new();
        for block in &page.blocks {
            if let Some((span_index, _)) = block.span {
                texts.entry(span_index).or_default().push(&block.text);
            }
        }
        let content = texts
            .into_iter()
            .map(|(span_index, texts)| (span_index, QuotableText::from_texts(texts)))
            .collect();
        let binding =
            QuotableText::from_texts(page.blocks.iter().filter(|b| b.is_binding).map(|b| b.text.as_str()));
        ShownContent { spans, content, binding }
    }

    /// A finding of an answer; `None` if its span was not shown, or its quotation does not occur in the content.
    fn read_finding(&self, value: &Value) -> Option<JudgeFinding> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().trim();
        let (span_index, id) = *self.spans.get(&text("span_id").to_ascii_lowercase())?;
        let quote = text("quote");
        let is_in_span = self.content.get(&span_index).is_some_and(|content| content.contains_quote(quote));
        if !is_in_span && !self.binding.contains_quote(quote) {
            return None;
        }
        let category = text("category");
        let problem = clip(text("problem"), MAX_PROBLEM_BYTES);
        Some(JudgeFinding {
            at: span_index,
            id,
            problem: if problem.is_empty() { "unexplained".to_owned() } else { problem.to_owned() },
            quote: clip(quote, MAX_QUOTE_BYTES).to_owned(),
            category: Category::ALL.into_iter().find(|c| c.as_str() == category),
            severity: Severity::named(text("severity")).unwrap_or(Severity::Medium),
        })
    }

    /// The opinion in an answer, with this grade: the rationale, and those of the findings that are valid.
    pub(crate) fn opinion(&self, grade: Grade, value: &Value) -> JudgeOpinion {
        let listed = value.get(FINDINGS).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut findings: Vec<JudgeFinding> = Vec::new();
        let mut dropped = 0;
        let mut over_limit = listed.len().saturating_sub(MAX_READ_FINDINGS);
        for value in listed.iter().take(MAX_READ_FINDINGS) {
            match self.read_finding(value) {
                Some(finding) if findings.iter().any(|earlier| finding.repeats(earlier)) => {}
                Some(finding) if findings.len() < MAX_FINDINGS => findings.push(finding),
                Some(_) => over_limit += 1,
                None => dropped += 1,
            }
        }
        let rationale = value.get(RATIONALE).and_then(Value::as_str).unwrap_or_default();
        let rationale = clip(rationale.trim(), MAX_RATIONALE_BYTES).to_owned();
        JudgeOpinion { grade, rationale, findings, dropped, over_limit }
    }
}

/// The label of an answer, if it is one of `labels`.
pub(crate) fn label_of(labels: &[&str], value: &Value) -> Option<Grade> {
    let label = value.get(LABEL)?.as_str()?;
    Some(Grade::Label(labels.iter().position(|candidate| *candidate == label)?))
}

/// Reads an opinion; `None` if it has no grade on the metric's scale.
pub(crate) fn read_opinion(
    row: &MetricSpec,
    shown: &ShownContent,
    opinion: &Opinion,
) -> Option<JudgeOpinion> {
    let value = &opinion.value;
    let grade = match row.scale {
        Scale::Labels(labels) => label_of(labels, value)?,
        scale => {
            let values = scale.scores();
            let score = u8::try_from(value.get(SCORE)?.as_u64()?).ok()?;
            let (lowest, highest) = (*values.first()?, *values.last()?);
            let is_on_scale = |weighted: &f64| (f64::from(lowest)..=f64::from(highest)).contains(weighted);
            values.contains(&score).then_some(())?;
            Grade::Score(opinion.weighted.filter(is_on_scale).unwrap_or(f64::from(score)))
        }
    };
    Some(shown.opinion(grade, value))
}

/// Findings of all parts, the worst first, each once.
pub(super) fn merge_findings<'s>(opinions: impl Iterator<Item = &'s JudgeOpinion>) -> Vec<JudgeFinding> {
    let mut out: Vec<JudgeFinding> = Vec::new();
    for finding in opinions.flat_map(|opinion| &opinion.findings) {
        if !out.iter().any(|existing| finding.repeats(existing)) {
            out.push(finding.clone());
        }
    }
    out.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.at));
    out
}
