//! Runs the metrics that ask judges: questions out, answers in, round by round.
//!
//! In: a trace and the findings of the rules. Out: [`Ask`]s, which the caller sends to judges, and, when
//! they are answered or the time is over, [`Measurement`]s. No metric waits for another. No I/O happens
//! here.

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

/// Maximum rounds of questions of one metric on one span. The checklist needs all of them (criteria,
/// filter, summaries, order, passages, more passages, an answer and two uses of a tool, each of which may run a
/// program; for a question of fact a search instead of more passages).
pub(super) const MAX_ROUNDS: usize = 11;

/// A question for judges.
#[derive(Clone, Debug)]
pub struct Ask {
    /// For [`Questions::answer`]; the questions of one metric on one span have the same.
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
    metric: usize,
    at: Idx,
    round: usize,
    /// Questions of this round without an answer.
    waiting: usize,
    /// The keys of the questions of this round.
    asked: Vec<String>,
    answers: Vec<Answer>,
}

/// The asking metrics of one trace.
pub struct Questions<'a> {
    inputs: JudgeInputs<'a>,
    metrics: Vec<JudgedRow<'a>>,
    /// Metrics and spans that have not begun. Questions are rendered on demand: those of a long trace
    /// together would be many times its size.
    todo: VecDeque<(usize, Idx)>,
    /// Metrics and spans that judges are not asked about. Their first step decides which of them apply.
    not_asked: Vec<(usize, Idx, Unmeasured)>,
    /// The trace is still open.
    is_early: bool,
    ready: VecDeque<Ask>,
    open: HashMap<usize, PendingMetric>,
    last_id: usize,
    done: Vec<Measurement>,
    /// Every service of the trace.
    services: Arc<[Text]>,
    /// The remaining steps of the trace's work budget, and the check that ends the work by the clock.
    steps: u64,
    stop: Option<fn() -> Stop>,
    /// The parts that questions about this trace have in common.
    shared_values: SharedValues,
}

impl<'a> Questions<'a> {
    /// All questions about a closed trace.
    pub(crate) fn new(inputs: JudgeInputs<'a>, custom: &'a [CustomMetric]) -> Questions<'a> {
        let metrics = catalog::asking(inputs.settings, custom);
        Questions::over(metrics, inputs, AskConditions::closed(inputs.rule_measurements), |_, _| true)
    }

    /// The questions that can be asked about an open trace: those of metrics that need no more than the steps of the
    /// agent, on spans whose agent has ended, and those that depend on an agent's task alone. When the trace has closed
    /// the same questions are asked again, so that their answers are cached or pending. None while content may be
    /// withheld: a span may repeat what one produced that is still to come.
    pub(crate) fn early(inputs: JudgeInputs<'a>, custom: &'a [CustomMetric]) -> Questions<'a> {
        // Findings of the rules, and with them the questions, may change with further spans.
        let inputs = JudgeInputs { rule_measurements: &[], ..inputs };
        let AgentTrace { tree, agents, owner, .. } = inputs.trace;
        let agent_spans: HashSet<Idx> = agents.iter().map(|agent| agent.at).collect();
        let with_parent = |at| tree.parent(at).is_some() || tree.root() == Some(at);
        let ready = |row: &MetricSpec, at: Idx| match row.need {
            Need::Span => with_parent(at),
            Need::Agent => match owner.get(at).copied().flatten().and_then(|i| agents.get(i)) {
                Some(agent) => has_ended(inputs.trace, agent),
                None => with_parent(at),
            },
            // Metrics of whole runs may know a part of their questions from the task.
            _ => row.rubric.is_none() && agent_spans.contains(&at),
        };
        let mut metrics = catalog::asking(inputs.settings, custom);
        metrics.retain(|_| inputs.settings.asker.ask.withhold.is_empty());
        Questions { is_early: true, ..Questions::over(metrics, inputs, AskConditions::open(), ready) }
    }

    fn over(
        metrics: Vec<JudgedRow<'a>>,
        inputs: JudgeInputs<'a>,
        state: AskConditions,
        ready: impl Fn(&MetricSpec, Idx) -> bool,
    ) -> Questions<'a> {
        let evaluated = evaluated_spans(inputs.trace);
        let JudgeInputs { trace, settings, rule_measurements } = inputs;
        let memo = Memo::new();
        let mut done = Vec::new();
        let mut todo = VecDeque::new();
        let mut not_asked = Vec::new();
        for (index, (row, _)) in metrics.iter().enumerate() {
            let metric_settings = inputs.settings.metric_settings(row);
            for (at, view) in inputs.trace.views.iter().enumerate() {
                let applies = evaluated.get(at).copied().unwrap_or(false)
                    && (!view.wrapper || row.is_on_wrapper(inputs.trace, at))
                    && ready(row, at)
                    && metric_settings.enabled(inputs.trace, at);
                if !applies {
                    continue;
                }
                let context = Context { row, trace, at, settings, memo: &memo, rule_measurements };
                match settings.asker.decide(&context, state) {
                    AskDecision::Ask => todo.push_back((index, at)),
                    AskDecision::Unmeasured(reason) if row.rubric.is_none() => {
                        not_asked.push((index, at, reason))
                    }
                    AskDecision::Unmeasured(reason) => done.push(defects::unmeasured(at, row.name, reason)),
                    AskDecision::Skip => {}
                }
            }
        }
        Questions {
            metrics,
            todo,
            not_asked,
            is_early: false,
            ready: VecDeque::new(),
            open: HashMap::new(),
            last_id: 0,
            done,
            services: services(inputs.trace),
            inputs,
            steps: DEFAULT_STEPS,
            stop: None,
            shared_values: memo.into_shared_values(),
        }
    }

    /// With what the rules have left of the trace's work budget. `stop` is called anew whenever questions are
    /// prepared: the time during which judges answer does not count.
    pub(crate) fn within(self, steps: u64, stop: Option<fn() -> Stop>) -> Questions<'a> {
        Questions { steps, stop, ..self }
    }

    /// Prepares questions within the budget. A [`Memo`] cannot be stored between answers, which may arrive on
    /// other threads; its [`SharedValues`] are stored.
    fn with_memo(&mut self, work: impl FnOnce(&mut Self, &Memo)) {
        let memo = self.memo();
        work(self, &memo);
        self.steps = memo.budget.left();
        self.shared_values = memo.into_shared_values();
    }

    fn memo(&mut self) -> Memo {
        let budget = WorkBudget::new(self.steps, self.stop.map(|stop| stop()));
        Memo::within(budget).with_shared_values(std::mem::take(&mut self.shared_values))
    }

    /// The next question; `None` if there is none, or none until an answer arrives.
    pub fn next_question(&mut self) -> Option<Ask> {
        if self.ready.is_empty() && !self.todo.is_empty() {
            self.with_memo(Questions::begin_next);
        }
        self.ready.pop_front()
    }

    /// Begins metrics until one asks.
    fn begin_next(&mut self, memo: &Memo) {
        while self.ready.is_empty() {
            let Some((metric, at)) = self.todo.pop_front() else { return };
            self.last_id += 1;
            let open =
                PendingMetric { metric, at, round: 0, waiting: 0, asked: Vec::new(), answers: Vec::new() };
            self.step(self.last_id, open, memo);
        }
    }

    /// Takes an answer.
    pub fn answer(&mut self, id: usize, answer: Answer) {
        let Some(mut open) = self.open.remove(&id) else { return };
        if self.is_early && self.metrics.get(open.metric).is_none_or(|(row, _)| !is_of_task(row)) {
            // Which questions follow may depend on the findings of the rules.
            return;
        }
        open.answers.push(answer);
        open.waiting = open.waiting.saturating_sub(1);
        if open.waiting == 0 {
            self.with_memo(|rounds, memo| rounds.step(id, open, memo));
        } else {
            self.open.insert(id, open);
        }
    }

    fn step(&mut self, id: usize, mut open: PendingMetric, memo: &Memo) {
        let Some((row, metric)) = self.metrics.get(open.metric) else { return };
        // The order in which answers arrive must have no effect.
        open.answers.sort_by(|a, b| a.key.cmp(&b.key));
        let JudgeInputs { trace, settings, rule_measurements } = self.inputs;
        let context = Context { row, trace, at: open.at, settings, memo, rule_measurements };
        let early = Early(&**metric);
        let metric: &dyn Metric = if self.is_early && is_of_task(row) { &early } else { &**metric };
        match catalog::step_within_budget(metric, &context, &open.answers) {
            MetricProgress::Done(measurements) => self.done.extend(measurements),
            MetricProgress::Ask(questions) if open.round < MAX_ROUNDS && !questions.is_empty() => {
                let judges = settings.judges(row);
                let (at, metric) = (open.at, row.name);
                open.round += 1;
                open.waiting = questions.len();
                open.asked = questions.iter().map(|question| question.key.clone()).collect();
                self.ready.extend(questions.into_iter().map(|mut question| {
                    let question_judges = std::mem::take(&mut question.judges);
                    let judges = if question_judges.is_empty() { judges.clone() } else { question_judges };
                    let services = question.prompt.shows().services(trace, &self.services);
                    let context = QuestionContext::new(row, self.inputs, at, &question.form);
                    let context = QuestionContext { is_early: self.is_early, ..context };
                    Ask { id, at, metric, question, judges, services, context }
                }));
                self.open.insert(id, open);
            }
            MetricProgress::Ask(_) => {
                self.done.push(defects::unmeasured(open.at, row.name, Unmeasured::JudgeError));
            }
        }
    }

    /// The measurements. Questions without an answer are unmeasured for `reason`; what was answered is kept.
    pub fn finish(mut self, reason: Unmeasured) -> Vec<Measurement> {
        let memo = self.memo();
        let begun = self.open.into_values().map(|mut open| {
            without_answer(&mut open.answers, open.asked, reason);
            (open.metric, open.at, open.answers, reason)
        });
        let todo = self.todo.into_iter().map(|(metric, at)| (metric, at, Vec::new(), reason));
        let not_asked =
            self.not_asked.into_iter().map(|(metric, at, reason)| (metric, at, Vec::new(), reason));
        for (metric, at, answers, reason) in begun.chain(todo).chain(not_asked) {
            let Some((row, metric)) = self.metrics.get(metric) else { continue };
            if row.rubric.is_some() {
                // A metric with a rubric is known to apply, and its step would render a prompt.
                self.done.push(defects::unmeasured(at, row.name, reason));
                continue;
            }
            let JudgeInputs { trace, settings, rule_measurements } = self.inputs;
            let context = Context { row, trace, at, settings, memo: &memo, rule_measurements };
            self.done.extend(finish_without_answers(&**metric, &context, answers, reason));
        }
        self.done.sort_by_key(|m| m.at);
        self.done
    }
}

/// Adds that the questions `keys` have no answer for `reason`, except those that have one.
fn without_answer(answers: &mut Vec<Answer>, keys: Vec<String>, reason: Unmeasured) {
    for key in keys {
        if !answers.iter().any(|answer| answer.key == key) {
            answers.push(Answer { key, opinions: Err(reason), usage: Usage::default() });
        }
    }
}

/// The measurements of a metric whose further questions have no answer for `reason`. Its steps decide whether
/// it applies to the span, and what the answers so far amount to.
fn finish_without_answers(
    metric: &dyn Metric,
    context: &Context<'_>,
    mut answers: Vec<Answer>,
    reason: Unmeasured,
) -> Vec<Measurement> {
    for _ in 0..=MAX_ROUNDS {
        answers.sort_by(|a, b| a.key.cmp(&b.key));
        let asked = match catalog::step_within_budget(metric, context, &answers) {
            MetricProgress::Done(measurements) => return measurements,
            MetricProgress::Ask(questions) => questions,
        };
        let answered = answers.len();
        without_answer(&mut answers, asked.into_iter().map(|question| question.key).collect(), reason);
        if answers.len() == answered {
            break;
        }
    }
    vec![context.unmeasured(reason)]
}

/// Whether no more than its early questions, which depend on an agent's task alone, can be asked about an open trace.
fn is_of_task(row: &MetricSpec) -> bool {
    !matches!(row.need, Need::Span | Need::Agent)
}

/// A metric in a trace that is still open.
struct Early<'m>(&'m dyn Metric);

impl Metric for Early<'_> {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        self.0.early_step(context, answers)
    }
}

#[cfg(test)]
mod tests;
