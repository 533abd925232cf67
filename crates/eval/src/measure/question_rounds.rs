//! Runs the metrics that ask judges, in rounds of questions and answers.
//!
//! In: a trace and the measurements of the rules. Out: [`Ask`]s, which the caller sends to judges, and, when they are
//! answered or the time is over, [`Measurement`]s. No metric waits for another. This module performs no I/O.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use verdict_otlp::trace::Idx;

use super::ask::filter::{AskConditions, AskDecision};
use super::ask::links::has_ended;
use super::catalog::{self, JudgedRow};
use super::custom_metric::CustomMetric;
use super::evaluated_spans::evaluated_spans;
pub(crate) use super::inputs::JudgeInputs;
use super::memo::SharedValues;
use super::question::{Answer, Question, Usage, services};
use super::question_context::QuestionContext;
use super::table::MetricSpec;
use super::work_budget::{DEFAULT_STEPS, Stop, WorkBudget};
use super::{Context, Measurement, Memo, Metric, MetricProgress, Need, Unmeasured, defects};
use crate::recognise::{AgentTrace, Text};

/// Maximum rounds of questions of one metric on one span. The checklist needs all of them: criteria, filter, summaries,
/// order, passages, more passages (or a search, for a question of fact), an answer, and two uses of a tool, each of
/// which may run a program.
pub(super) const MAX_ROUNDS: usize = 11;

/// A question for judges.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The id for [`Questions::answer`], which the questions of one metric on one span share.
    pub id: usize,
    /// The span of the question.
    pub at: Idx,
    pub metric: &'static str,
    pub question: Question,
    /// The names of the judges, as configured.
    pub judges: Vec<String>,
    /// The services whose content the prompt shows.
    pub services: Arc<[Text]>,
    /// The facts that are known before the question is asked.
    pub context: QuestionContext,
}

/// One metric on one span.
struct PendingMetric {
    /// The index of the metric in [`Questions::metrics`].
    metric: usize,
    at: Idx,
    round: usize,
    /// The number of questions of this round without an answer.
    unanswered: usize,
    /// The keys of the questions of this round.
    asked_keys: Vec<String>,
    answers: Vec<Answer>,
}

/// The metrics of one trace that ask judges.
pub struct Questions<'a> {
    inputs: JudgeInputs<'a>,
    metrics: Vec<JudgedRow<'a>>,
    /// The pairs of metric and span that have not begun. Questions are rendered on demand, since all questions of a
    /// long trace would be many times its size.
    not_begun: VecDeque<(usize, Idx)>,
    /// The pairs of metric and span about which judges are not asked. The first step of the metric decides whether it
    /// applies.
    not_asked: Vec<(usize, Idx, Unmeasured)>,
    /// Whether the trace is still open.
    is_early: bool,
    /// Questions that are ready to be asked.
    ready: VecDeque<Ask>,
    /// Metrics that wait for answers, by id.
    pending: HashMap<usize, PendingMetric>,
    last_id: usize,
    /// The measurements of completed metrics.
    done: Vec<Measurement>,
    /// Every service of the trace.
    services: Arc<[Text]>,
    /// The remaining steps of the trace's work budget.
    remaining_steps: u64,
    /// Starts the clock that ends the work.
    stop: Option<fn() -> Stop>,
    /// The cached values that questions about this trace share.
    shared_values: SharedValues,
}

impl<'a> Questions<'a> {
    /// All questions about a closed trace.
    pub(crate) fn new(inputs: JudgeInputs<'a>, custom: &'a [CustomMetric]) -> Questions<'a> {
        let metrics = catalog::judged_rows(inputs.settings, custom);
        Questions::with_metrics(metrics, inputs, AskConditions::closed(inputs.rule_measurements), |_, _| true)
    }

    /// The questions that can be asked about an open trace: those of metrics that only need the steps of an agent, on
    /// spans whose agent has ended, and those that depend on an agent's task alone. When the trace has closed, the same
    /// questions are asked again, and their answers are cached or pending. There are none if the configuration
    /// withholds content: a span may repeat content of a span that has not arrived.
    pub(crate) fn early(inputs: JudgeInputs<'a>, custom: &'a [CustomMetric]) -> Questions<'a> {
        // Findings of the rules may change with further spans, and would change the questions.
        let inputs = JudgeInputs { rule_measurements: &[], ..inputs };
        let AgentTrace { tree, agents, owner, .. } = inputs.trace;
        let agent_spans: HashSet<Idx> = agents.iter().map(|agent| agent.at).collect();
        let has_parent = |span_index| tree.parent(span_index).is_some() || tree.root() == Some(span_index);
        let is_ready = |row: &MetricSpec, span_index: Idx| match row.need {
            Need::Span => has_parent(span_index),
            Need::Agent => match owner.get(span_index).copied().flatten().and_then(|i| agents.get(i)) {
                Some(agent) => has_ended(inputs.trace, agent),
                None => has_parent(span_index),
            },
            // Some questions of metrics of whole runs depend on the task alone.
            _ => row.rubric.is_none() && agent_spans.contains(&span_index),
        };
        let mut metrics = catalog::judged_rows(inputs.settings, custom);
        metrics.retain(|_| inputs.settings.asker.ask.withhold.is_empty());
        Questions {
            is_early: true,
            ..Questions::with_metrics(metrics, inputs, AskConditions::open(), is_ready)
        }
    }

    /// The questions of `metrics` on the evaluated spans for which `is_ready` is true.
    fn with_metrics(
        metrics: Vec<JudgedRow<'a>>,
        inputs: JudgeInputs<'a>,
        conditions: AskConditions,
        is_ready: impl Fn(&MetricSpec, Idx) -> bool,
    ) -> Questions<'a> {
        let evaluated = evaluated_spans(inputs.trace);
        let JudgeInputs { trace, settings, rule_measurements } = inputs;
        let memo = Memo::new();
        let mut done = Vec::new();
        let mut not_begun = VecDeque::new();
        let mut not_asked = Vec::new();
        for (index, (row, _)) in metrics.iter().enumerate() {
            let metric_settings = inputs.settings.metric_settings(row);
            for (span_index, view) in inputs.trace.views.iter().enumerate() {
                let applies = evaluated.get(span_index).copied().unwrap_or(false)
                    && (!view.wrapper || row.is_on_wrapper(inputs.trace, span_index))
                    && is_ready(row, span_index)
                    && metric_settings.is_enabled_on(inputs.trace, span_index);
                if !applies {
                    continue;
                }
                let context =
                    Context { row, trace, at: span_index, settings, memo: &memo, rule_measurements };
                match settings.asker.decide(&context, conditions) {
                    AskDecision::Ask => not_begun.push_back((index, span_index)),
                    AskDecision::Unmeasured(reason) if row.rubric.is_none() => {
                        not_asked.push((index, span_index, reason))
                    }
                    AskDecision::Unmeasured(reason) => {
                        done.push(defects::unmeasured(span_index, row.name, reason))
                    }
                    AskDecision::Skip => {}
                }
            }
        }
        Questions {
            metrics,
            not_begun,
            not_asked,
            is_early: false,
            ready: VecDeque::new(),
            pending: HashMap::new(),
            last_id: 0,
            done,
            services: services(inputs.trace),
            inputs,
            remaining_steps: DEFAULT_STEPS,
            stop: None,
            shared_values: memo.into_shared_values(),
        }
    }

    /// Sets the steps that the rules have left of the trace's work budget. `stop` is called each time that questions
    /// are prepared, so that the time during which judges answer does not count.
    pub(crate) fn within(self, remaining_steps: u64, stop: Option<fn() -> Stop>) -> Questions<'a> {
        Questions { remaining_steps, stop, ..self }
    }

    /// Calls `run` with a memo within the budget. A [`Memo`] cannot be stored between answers, which may arrive on
    /// other threads, so that only its [`SharedValues`] are stored.
    fn with_memo(&mut self, run: impl FnOnce(&mut Self, &Memo)) {
        let memo = self.memo();
        run(self, &memo);
        self.remaining_steps = memo.budget.left();
        self.shared_values = memo.into_shared_values();
    }

    fn memo(&mut self) -> Memo {
        let budget = WorkBudget::new(self.remaining_steps, self.stop.map(|stop| stop()));
        Memo::within(budget).with_shared_values(std::mem::take(&mut self.shared_values))
    }

    /// The next question; `None` if there is no further question, or none before an answer arrives.
    pub fn next_question(&mut self) -> Option<Ask> {
        if self.ready.is_empty() && !self.not_begun.is_empty() {
            self.with_memo(Questions::begin_next);
        }
        self.ready.pop_front()
    }

    /// Begins metrics until one has a question.
    fn begin_next(&mut self, memo: &Memo) {
        while self.ready.is_empty() {
            let Some((metric, span_index)) = self.not_begun.pop_front() else { return };
            self.last_id += 1;
            let pending = PendingMetric {
                metric,
                at: span_index,
                round: 0,
                unanswered: 0,
                asked_keys: Vec::new(),
                answers: Vec::new(),
            };
            self.step(self.last_id, pending, memo);
        }
    }

    /// Adds an answer. When all questions of the round are answered, the metric takes its next step.
    pub fn answer(&mut self, id: usize, answer: Answer) {
        let Some(mut pending) = self.pending.remove(&id) else { return };
        if self.is_early
            && self.metrics.get(pending.metric).is_none_or(|(row, _)| !has_only_early_questions(row))
        {
            // The following questions may depend on findings of the rules, which are not known yet.
            return;
        }
        pending.answers.push(answer);
        pending.unanswered = pending.unanswered.saturating_sub(1);
        if pending.unanswered == 0 {
            self.with_memo(|rounds, memo| rounds.step(id, pending, memo));
        } else {
            self.pending.insert(id, pending);
        }
    }

    /// The next step of a metric: its measurements, or a round of questions.
    fn step(&mut self, id: usize, mut pending: PendingMetric, memo: &Memo) {
        let Some((row, metric)) = self.metrics.get(pending.metric) else { return };
        // The order in which answers arrive must have no effect.
        pending.answers.sort_by(|a, b| a.key.cmp(&b.key));
        let JudgeInputs { trace, settings, rule_measurements } = self.inputs;
        let context = Context { row, trace, at: pending.at, settings, memo, rule_measurements };
        let early = EarlyMetric(&**metric);
        let metric: &dyn Metric =
            if self.is_early && has_only_early_questions(row) { &early } else { &**metric };
        match catalog::step_within_budget(metric, &context, &pending.answers) {
            MetricProgress::Done(measurements) => self.done.extend(measurements),
            MetricProgress::Ask(questions) if pending.round < MAX_ROUNDS && !questions.is_empty() => {
                let judges = settings.judges(row);
                let (span_index, metric) = (pending.at, row.name);
                pending.round += 1;
                pending.unanswered = questions.len();
                pending.asked_keys = questions.iter().map(|question| question.key.clone()).collect();
                self.ready.extend(questions.into_iter().map(|mut question| {
                    let question_judges = std::mem::take(&mut question.judges);
                    let judges = if question_judges.is_empty() { judges.clone() } else { question_judges };
                    let services = question.prompt.shows().services(trace, &self.services);
                    let context = QuestionContext::new(row, self.inputs, span_index, &question.form);
                    let context = QuestionContext { is_early: self.is_early, ..context };
                    Ask { id, at: span_index, metric, question, judges, services, context }
                }));
                self.pending.insert(id, pending);
            }
            MetricProgress::Ask(_) => {
                self.done.push(defects::unmeasured(pending.at, row.name, Unmeasured::JudgeError));
            }
        }
    }

    /// The measurements. Metrics whose questions have no answer are unmeasured for `reason`, unless their other answers
    /// suffice.
    pub fn finish(mut self, reason: Unmeasured) -> Vec<Measurement> {
        let memo = self.memo();
        let begun = self.pending.into_values().map(|mut pending| {
            add_missing_answers(&mut pending.answers, pending.asked_keys, reason);
            (pending.metric, pending.at, pending.answers, reason)
        });
        let not_begun =
            self.not_begun.into_iter().map(|(metric, span_index)| (metric, span_index, Vec::new(), reason));
        let not_asked = self
            .not_asked
            .into_iter()
            .map(|(metric, span_index, reason)| (metric, span_index, Vec::new(), reason));
        for (metric, span_index, answers, reason) in begun.chain(not_begun).chain(not_asked) {
            let Some((row, metric)) = self.metrics.get(metric) else { continue };
            if row.rubric.is_some() {
                // A metric with a rubric is known to apply, and its step would render a prompt.
                self.done.push(defects::unmeasured(span_index, row.name, reason));
                continue;
            }
            let JudgeInputs { trace, settings, rule_measurements } = self.inputs;
            let context = Context { row, trace, at: span_index, settings, memo: &memo, rule_measurements };
            self.done.extend(finish_without_answers(&**metric, &context, answers, reason));
        }
        self.done.sort_by_key(|m| m.at);
        self.done
    }
}

/// Adds a missing answer with its `reason` for each of the `keys` that has no answer.
fn add_missing_answers(answers: &mut Vec<Answer>, keys: Vec<String>, reason: Unmeasured) {
    for key in keys {
        if !answers.iter().any(|answer| answer.key == key) {
            answers.push(Answer { key, opinions: Err(reason), usage: Usage::default() });
        }
    }
}

/// The measurements of a metric whose further questions have no answer for `reason`. Its steps decide whether it
/// applies to the span, and whether the answers so far suffice.
fn finish_without_answers(
    metric: &dyn Metric,
    context: &Context<'_>,
    mut answers: Vec<Answer>,
    reason: Unmeasured,
) -> Vec<Measurement> {
    for _ in 0..=MAX_ROUNDS {
        answers.sort_by(|a, b| a.key.cmp(&b.key));
        let questions = match catalog::step_within_budget(metric, context, &answers) {
            MetricProgress::Done(measurements) => return measurements,
            MetricProgress::Ask(questions) => questions,
        };
        let answer_count = answers.len();
        add_missing_answers(
            &mut answers,
            questions.into_iter().map(|question| question.key).collect(),
            reason,
        );
        if answers.len() == answer_count {
            break;
        }
    }
    vec![context.unmeasured(reason)]
}

/// Whether only the early questions of the metric, which depend on an agent's task alone, can be asked about an open
/// trace.
fn has_only_early_questions(row: &MetricSpec) -> bool {
    !matches!(row.need, Need::Span | Need::Agent)
}

/// A metric in a trace that is still open, whose steps are its early steps.
struct EarlyMetric<'m>(&'m dyn Metric);

impl Metric for EarlyMetric<'_> {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        self.0.early_step(context, answers)
    }
}

#[cfg(test)]
mod tests;
