//! Cascades: one judge answers first, another one where the first does not suffice.
//!
//! In: the answers of the first judge and the [`QuestionContext`] of the question. Out: the reason for which the second
//! judge is asked too, if there is one, and counts of the reasons, of agreement, and of the avoided cost. A cascade has
//! no endpoint: its members are judges or cascades with their own limits, and content is withheld from each of them by
//! its own settings.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde::Serialize;
use serde_json::{Value, json};
use verdict_eval::questions::{
    AnswerForm, Opinion, PassCriterion, Prompt, Question, QuestionContext, QuestionSubject, Usage,
};
use verdict_telemetry::{CascadeCells, CascadeResult};

use crate::config::{CascadeConfig, EscalationRule};
use crate::lock::lock;
use crate::record::JudgeAnswer;
use crate::tally::PlannedQuestions;

/// The field in which a judge states its confidence, in percent.
const CONFIDENCE_FIELD: &str = "judge_confidence";
const CONFIDENCE_RUBRIC: &str = "\n\nState in `judge_confidence` how likely it is, in percent, that an expert who reads the \
same comes to the same result. Say 50 where it could be either.";

/// The counts of one cascade in a command.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct CascadeReport {
    pub cascade: String,
    pub first: String,
    pub then: String,
    /// Questions by their result: `kept` (the first judge's answer applies), or the reason for which the second judge
    /// was asked.
    pub questions: BTreeMap<&'static str, u64>,
    /// Questions that both judges answered with a pass or a fail, and those that both answered with the same.
    pub compared: u64,
    pub agreed: u64,
    /// The cost of the answers of the first judge.
    pub spent: CascadeCost,
    /// The estimated cost of the second judge for the answers that were kept, as in a dry run.
    pub avoided: CascadeCost,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct CascadeCost {
    pub tokens: u64,
    pub cost_usd: f64,
}

impl CascadeCost {
    fn add(&mut self, tokens: u64, cost_usd: f64) {
        self.tokens += tokens;
        self.cost_usd += cost_usd;
    }
}

#[derive(Debug)]
pub(crate) struct Cascade {
    pub(crate) config: CascadeConfig,
    cells: CascadeCells,
    tally: Mutex<CascadeReport>,
}

impl Cascade {
    pub(crate) fn new(name: &str, config: &CascadeConfig, cells: CascadeCells) -> Cascade {
        let CascadeConfig { first, then, .. } = config.clone();
        let report = CascadeReport { cascade: name.to_owned(), first, then, ..CascadeReport::default() };
        Cascade { config: config.clone(), cells, tally: Mutex::new(report) }
    }

    /// The reason for asking the second judge at once, known before the first has answered.
    pub(crate) fn immediate_escalation(&self, context: &QuestionContext) -> Option<CascadeResult> {
        let rule = match context.subject {
            QuestionSubject::Span => None,
            QuestionSubject::Agent => Some(EscalationRule::Agent),
            QuestionSubject::Trace => Some(EscalationRule::Trace),
        };
        let subject_matches = rule.is_some_and(|rule| self.config.stakes.contains(&rule));
        let severe = context.has_severe_finding && self.config.stakes.contains(&EscalationRule::Severity);
        (subject_matches || severe).then_some(CascadeResult::Stakes)
    }

    /// Whether the answers of the first judge apply, or the reason to ask the second one.
    pub(crate) fn review(&self, first: &[Opinion], context: &QuestionContext) -> CascadeResult {
        let config = &self.config;
        let passes: Vec<Option<bool>> = first.iter().map(|o| passes(o, context)).collect();
        let Some(verdict) = passes.first() else { return CascadeResult::NoAnswer };
        let has_severe = config.stakes.contains(&EscalationRule::Severity)
            && first.iter().zip(&passes).any(|(o, passes)| *passes == Some(false) && is_severe(&o.value));
        let differs = verdict.zip(context.rules_passed).is_some_and(|(judged, rules)| judged != rules);
        let unsure = passes.iter().any(|one| one != verdict)
            || (context.criterion.is_some() && verdict.is_none())
            || first.iter().any(|opinion| self.is_unsure(opinion, context));
        match () {
            () if has_severe => CascadeResult::Stakes,
            () if config.disagreement && differs => CascadeResult::Disagreement,
            () if unsure => CascadeResult::Unsure,
            () => CascadeResult::Kept,
        }
    }

    fn is_unsure(&self, opinion: &Opinion, context: &QuestionContext) -> bool {
        let is_near_threshold = match (&context.criterion, score(opinion)) {
            (Some(PassCriterion::Score(threshold)), Some(score)) => {
                // Of whole scores, the lowest that passes and the highest that fails are equally near to this boundary.
                let boundary = if opinion.weighted.is_some() { *threshold } else { threshold.ceil() - 0.5 };
                (score - boundary).abs() <= self.config.margin
            }
            _ => false,
        };
        let stated = opinion.value.get(CONFIDENCE_FIELD).and_then(Value::as_f64);
        is_near_threshold || stated.is_some_and(|percent| percent < 100.0 * self.config.confidence)
    }

    /// Whether the first judge is asked for its confidence: not if probabilities of tokens weight its score, which are
    /// more precise.
    pub(crate) fn asks_confidence(&self, form: &AnswerForm, logprobs: bool) -> bool {
        self.config.confidence > 0.0 && !(logprobs && form.score.is_some())
    }

    pub(crate) fn count(&self, result: CascadeResult) {
        self.cells.count_question(result);
        *lock(&self.tally).questions.entry(result.as_str()).or_default() += 1;
    }

    /// Adds the cost of answers of the first judge.
    pub(crate) fn spent(&self, usage: Usage) {
        lock(&self.tally).spent.add(usage.tokens, usage.cost_usd);
    }

    /// Counts a question that was not sent to the second judge.
    pub(crate) fn avoided(&self, planned: PlannedQuestions) {
        let tokens = planned.input_tokens + planned.output_tokens;
        self.cells.add_avoided(tokens, planned.cost_usd);
        lock(&self.tally).avoided.add(tokens, planned.cost_usd);
    }

    /// Counts whether both judges agree, if each of them passes or fails the subject.
    pub(crate) fn compare(&self, first: &[Opinion], then: &[Opinion], context: &QuestionContext) {
        let verdict = |all: &[Opinion]| {
            let passing = all.iter().filter_map(|opinion| passes(opinion, context));
            let (pass, fail): (Vec<bool>, Vec<bool>) = passing.partition(|passed| *passed);
            (pass.len() + fail.len() > 0).then_some(pass.len() > fail.len())
        };
        let Some((first, then)) = verdict(first).zip(verdict(then)) else { return };
        self.cells.count_comparison(first == then);
        let mut tally = lock(&self.tally);
        tally.compared += 1;
        tally.agreed += u64::from(first == then);
    }

    pub(crate) fn report(&self) -> CascadeReport {
        lock(&self.tally).clone()
    }
}

fn score(opinion: &Opinion) -> Option<f64> {
    opinion.weighted.or_else(|| opinion.value.get("score")?.as_f64())
}

/// Whether an answer passes; `None` if it is neither a pass nor a fail.
fn passes(opinion: &Opinion, context: &QuestionContext) -> Option<bool> {
    match context.criterion.as_ref()? {
        PassCriterion::Score(threshold) => Some(score(opinion)? >= *threshold),
        PassCriterion::Label { key, pass, fail } => {
            let word = opinion.value.get(*key)?.as_str()?;
            (pass.contains(&word) || fail.contains(&word)).then(|| pass.contains(&word))
        }
    }
}

fn is_severe(value: &Value) -> bool {
    let findings = value.get("findings").and_then(Value::as_array);
    findings.into_iter().flatten().any(|finding| finding.get("severity").is_some_and(|s| s == "high"))
}

/// The question with a field for the confidence; `None` if its form is not an object of named fields.
pub(crate) fn with_confidence(question: &Question) -> Option<Question> {
    let mut schema = question.form.schema.clone();
    let percent: Vec<u8> = (0..=10).map(|tenth| tenth * 10).collect();
    let fields = schema.get_mut("properties")?.as_object_mut()?;
    if fields.contains_key(CONFIDENCE_FIELD) {
        return None;
    }
    fields.insert(CONFIDENCE_FIELD.to_owned(), json!({ "type": "integer", "enum": percent }));
    schema.get_mut("required")?.as_array_mut()?.push(CONFIDENCE_FIELD.into());
    let Prompt { system, user, .. } = &question.prompt;
    let prompt = Prompt::new(format!("{system}{CONFIDENCE_RUBRIC}"), Arc::clone(user));
    Some(Question {
        prompt,
        form: Arc::new(AnswerForm { schema, ..(*question.form).clone() }),
        ..question.clone()
    })
}

/// Removes the field for the confidence from an answer, which then has the form of the original question.
pub(crate) fn without_confidence(answer: &mut Arc<JudgeAnswer>) {
    if answer.value.get(CONFIDENCE_FIELD).is_some()
        && let Some(fields) = Arc::make_mut(answer).value.as_object_mut()
    {
        fields.shift_remove(CONFIDENCE_FIELD);
    }
}
