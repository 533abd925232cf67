//! The evaluator as a library: evaluates and annotates closed traces. Never blocks and needs no runtime.
//!
//! ```text
//! Evaluator::builder(config).build()            once
//!   assess(ClosedTrace) -> Assessment           the recognised trace and the measurements of the rules
//!   questions(&Assessment) -> Questions         next_question(), answer(), finish(); empty without judges
//!   outcome_question(&Assessment, ..)           one more question, if a metric failed
//!   decide(Assessment, ..) -> EvaluatedTrace    verdicts of spans and trace
//!   annotate(&EvaluatedTrace) -> Annotated      the same spans with attributes, and events
//! ```

mod judge_results;
#[cfg(feature = "internals")]
mod product;

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use verdict_otlp::logs::LogView;
use verdict_otlp::request::{Interner, split};
use verdict_otlp::trace::{AttachedLog, CloseReason, ClosedTrace, PriorVerdict, SpanId, TraceId, Tree};
use verdict_otlp::{Malformed, Piece};

use crate::annotate::alarm::AlarmMark;
use crate::annotate::{self, Annotated, Annotator, Emission, EncodedAnnotations, TraceSummary};
use crate::config::{Config, Problem};
use crate::measure::ask::outcome::OutcomeQuestion;
use crate::measure::custom_metric::CustomMetric;
use crate::measure::merge_judgements::merge_judgements;
use crate::measure::path::settings::TaskSet;
use crate::measure::question::services;
use crate::measure::question_context::QuestionContext;
use crate::measure::question_rounds::{Ask, JudgeInputs, Questions};
use crate::measure::recurring::RecurringValues;
use crate::measure::sections::Scored;
use crate::measure::settings::CustomSettings;
use crate::measure::work_budget::{DEFAULT_STEPS, Stop, WorkBudget};
use crate::measure::{self, Measurement, Memo, Metric, MetricSpec, Settings};
use crate::open_limits::AlarmConfig;
use crate::propagate::{self, Basis, Policies, Verdicts};
use crate::recognise::{AgentTrace, Recogniser, TableError};
use crate::redact::InvalidPattern;

pub use judge_results::{JudgeResults, OUTCOME_QUESTION, OutcomeAsk};

/// Maximum size of a request. Servers accept 4 MiB by default; exporters join and split requests by their
/// own limits.
pub const MAX_REQUEST: usize = 4 << 20;

/// Evaluates closed traces by one configuration. It can be shared by any number of threads.
#[derive(Debug)]
pub struct Evaluator {
    pub(crate) recogniser: Recogniser,
    pub(crate) settings: Settings,
    custom: Vec<CustomMetric>,
    policies: Policies,
    /// Values that rules computed from texts which recur in later traces, such as system prompts.
    recurring: Arc<RecurringValues>,
    pub(crate) emission: Emission,
    pub(crate) alarms: AlarmConfig,
    /// Whether a metric is enabled.
    has_metrics: bool,
    /// Whether a metric names a judge other than the rules.
    has_judges: bool,
    /// Returns, for each trace, the function that can end the work on it; see [`Builder::stop`].
    pub(crate) stop: Option<fn() -> Stop>,
    /// A hook that is called before a trace is assessed, with which tests panic or wait.
    #[cfg(any(test, feature = "testing"))]
    pub before_assessment: Option<fn(TraceId)>,
}

/// Progress of the rules in a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The first metric is about to run.
    Begun,
    /// The metric of this name has run on the whole trace.
    Ran(&'static str),
}

/// A trace with the measurements of the rules.
#[derive(Debug)]
pub struct Assessment {
    pub trace: AgentTrace,
    /// The measurements of the rules.
    pub rule_measurements: Vec<Measurement>,
    prior_verdict: Option<PriorVerdict>,
    close_reason: CloseReason,
    /// The steps of the work budget that the rules did not use.
    steps_left: u64,
}

impl Assessment {
    pub(crate) fn without_rules(trace: AgentTrace, close_reason: CloseReason) -> Assessment {
        Assessment {
            trace,
            rule_measurements: Vec::new(),
            prior_verdict: None,
            close_reason,
            steps_left: DEFAULT_STEPS,
        }
    }
}

/// A trace with its verdicts.
#[derive(Debug)]
pub struct EvaluatedTrace {
    pub trace: AgentTrace,
    pub measurements: Vec<Measurement>,
    /// The verdicts of spans and trace.
    pub verdicts: Verdicts,
    /// Further facts that are written about the trace.
    pub summary: TraceSummary,
    /// The alarms that were raised while the trace was open.
    pub alarms: Vec<AlarmMark>,
}

/// Why an evaluator cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A pattern of `redact` is no regular expression.
    #[error(transparent)]
    Redact(#[from] InvalidPattern),
    /// The conventions of the configuration are invalid.
    #[error("recognise: {0}")]
    Recognise(#[from] TableError),
    /// Values of the configuration are invalid, each at its key.
    #[error("{}", join_problems(.0))]
    Config(Vec<Problem>),
    /// An added metric is invalid.
    #[error("metric '{name}': {reason}")]
    Metric { name: &'static str, reason: String },
}

fn join_problems(problems: &[Problem]) -> String {
    let lines = problems.iter().map(|problem| format!("{}: {}", problem.key, problem.message));
    lines.collect::<Vec<_>>().join("; ")
}

/// Builds an [`Evaluator`].
#[derive(Debug)]
pub struct Builder<'c> {
    config: &'c Config,
    tasks: TaskSet,
    custom: Vec<CustomMetric>,
    stop: Option<fn() -> Stop>,
}

impl Builder<'_> {
    /// Sets a function that is called once for each trace. The function that it returns is called about once in a
    /// millisecond while metrics run; when it returns true, the remaining measurements are unmeasured: `limit`.
    /// Without it the work on a trace is bounded only by the number of its steps.
    #[must_use]
    pub fn stop(mut self, stop: fn() -> Stop) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Sets the tasks with whose paths calls are compared, in place of those that `metrics.path.tasks` names: the
    /// evaluator reads no files itself.
    #[must_use]
    pub fn path_tasks(mut self, tasks: TaskSet) -> Self {
        self.tasks = tasks;
        self
    }

    /// Adds a custom metric; see [`CustomMetric::new`].
    #[must_use]
    pub fn metric(self, row: &'static MetricSpec, settings: Scored, metric: impl Metric + 'static) -> Self {
        self.metrics([CustomMetric::new(row, settings, metric)])
    }

    /// Adds several custom metrics.
    #[must_use]
    pub fn metrics(mut self, custom: impl IntoIterator<Item = CustomMetric>) -> Self {
        self.custom.extend(custom);
        self
    }

    /// Builds the evaluator.
    ///
    /// # Errors
    /// The configuration or an added metric is invalid.
    pub fn build(self) -> Result<Evaluator, BuildError> {
        let Builder { config, tasks, mut custom, stop } = self;
        custom.extend(config.evaluators.iter().map(|(name, evaluator)| evaluator.metric(name)));
        for (i, metric) in custom.iter().enumerate() {
            let is_duplicate = custom[..i].iter().any(|other| other.row.name == metric.row.name);
            let reason =
                metric.row.problem(&metric.settings).or(is_duplicate.then(|| "added twice".to_owned()));
            if let Some(reason) = reason {
                return Err(BuildError::Metric { name: metric.row.name, reason });
            }
        }
        let rows = custom.iter().map(|metric| metric.row).collect();
        let emission = Emission { custom: rows, ..Emission::new(config) };
        let custom_settings =
            |metric: &CustomMetric| CustomSettings { row: metric.row, settings: metric.settings.clone() };
        let settings = Settings {
            path_tasks: tasks,
            custom: custom.iter().map(custom_settings).collect(),
            ..Settings::new(config)?
        };
        let recogniser = Recogniser::new(&config.recognise)?;
        let problems = config.problems_with(&emission.custom);
        if !problems.is_empty() {
            return Err(BuildError::Config(problems));
        }
        Ok(Evaluator {
            recogniser,
            policies: config.propagation.clone(),
            recurring: Arc::default(),
            emission,
            alarms: config.alarms.clone(),
            has_metrics: measure::catalog::measures_anything(&settings),
            has_judges: config.metrics.named_judges().next().is_some()
                || custom.iter().any(|metric| metric.named_judges().next().is_some()),
            settings,
            custom,
            stop,
            #[cfg(any(test, feature = "testing"))]
            before_assessment: None,
        })
    }
}

impl Assessment {
    /// The steps of the work budget that the rules used.
    pub fn steps(&self) -> u64 {
        DEFAULT_STEPS - self.steps_left
    }
}

impl Evaluator {
    /// A builder with the evaluator's part of the section `verdict`.
    pub fn builder(config: &Config) -> Builder<'_> {
        Builder { config, tasks: TaskSet::default(), custom: Vec::new(), stop: None }
    }

    /// The traces of OTLP trace requests (protobuf), sorted by id and closed at the end of the input.
    /// Invalid spans are left out.
    ///
    /// # Errors
    /// A request is malformed.
    pub fn traces<B: AsRef<[u8]>>(
        &self,
        requests: impl IntoIterator<Item = B>,
    ) -> Result<Vec<ClosedTrace>, Malformed> {
        let envelopes = Interner::default();
        let mut traces: HashMap<TraceId, ClosedTrace> = HashMap::new();
        for request in requests {
            for group in split(request.as_ref(), &self.emission.prefix, &envelopes)?.groups {
                let trace = traces.entry(group.trace).or_insert_with(|| ClosedTrace {
                    trace: group.trace,
                    spans: Vec::new(),
                    logs: Vec::new(),
                    bytes: 0,
                    close_reason: CloseReason::EndOfInput,
                    incomplete: false,
                    prior_verdict: None,
                });
                trace.bytes += group.size;
                trace.spans.extend(group.spans);
            }
        }
        let mut traces: Vec<ClosedTrace> = traces.into_values().collect();
        for trace in &mut traces {
            let span_ids: foldhash::HashSet<SpanId> = trace.spans.iter().map(|span| span.id).collect();
            let is_missing = |parent: SpanId| !parent.is_zero() && !span_ids.contains(&parent);
            let has_root = trace.spans.iter().any(|span| span.parent.is_zero());
            trace.incomplete = !has_root || trace.spans.iter().any(|span| is_missing(span.parent));
        }
        traces.sort_by_key(|trace| trace.trace);
        Ok(traces)
    }

    /// Evaluates a closed trace by rules only. `now` is in nanoseconds since 1970; `progress` is called as
    /// in [`Evaluator::assess`].
    pub fn evaluate(
        &self,
        closed: ClosedTrace,
        now: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> EvaluatedTrace {
        if !self.has_metrics {
            return self.unmeasured(closed, now);
        }
        let assessment = self.assess(closed, progress);
        self.decide(assessment, JudgeResults::default(), now)
    }

    /// As [`Evaluator::evaluate`], if the rules need at most `steps` of the work budget. `None` otherwise: the
    /// results of at most `steps` of work are then discarded.
    pub fn evaluate_within(
        &self,
        steps: u64,
        closed: ClosedTrace,
        now: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Option<EvaluatedTrace> {
        if !self.has_metrics {
            return Some(self.unmeasured(closed, now));
        }
        let assessment = self.assess_within(steps, closed, progress)?;
        Some(self.decide(assessment, JudgeResults::default(), now))
    }

    /// Whether judges are asked about a trace that closed for this reason. Late spans do not wait for
    /// judges.
    pub fn asks(&self, reason: CloseReason) -> bool {
        self.has_judges && reason != CloseReason::Late
    }

    /// Recognises a closed trace and runs the rules on it. `progress` is called before the first rule and
    /// after each one, so that the caller can measure time; the evaluator has no clock.
    pub fn assess(&self, closed: ClosedTrace, progress: &mut dyn FnMut(Progress)) -> Assessment {
        let budget = WorkBudget::new(DEFAULT_STEPS, self.stop.map(|stop| stop()));
        self.assess_with(&self.memo_within(budget), closed, progress)
    }

    /// As [`Evaluator::assess`], if the rules need at most `steps` of the work budget. `None` otherwise: the
    /// results of at most `steps` of work are then discarded.
    pub fn assess_within(
        &self,
        steps: u64,
        closed: ClosedTrace,
        progress: &mut dyn FnMut(Progress),
    ) -> Option<Assessment> {
        let memo = self.memo_within(WorkBudget::attempt(steps, self.stop.map(|stop| stop())));
        let assessment = self.assess_with(&memo, closed, progress);
        (!memo.budget.is_void()).then_some(assessment)
    }

    fn memo_within(&self, budget: WorkBudget) -> Memo {
        Memo::within(budget).with_recurring(Arc::clone(&self.recurring))
    }

    fn assess_with(
        &self,
        memo: &Memo,
        closed: ClosedTrace,
        progress: &mut dyn FnMut(Progress),
    ) -> Assessment {
        #[cfg(any(test, feature = "testing"))]
        if let Some(hook) = self.before_assessment {
            hook(closed.trace);
        }
        let tree = Tree::new(closed.trace, closed.spans);
        let trace = self.recogniser.trace(tree, &sorted_logs(closed.logs), closed.incomplete);
        progress(Progress::Begun);
        let report_metric = &mut |metric| progress(Progress::Ran(metric));
        let rule_measurements =
            measure::catalog::run_each(&trace, &self.settings, &self.custom, memo, report_metric);
        let ClosedTrace { prior_verdict, close_reason, .. } = closed;
        Assessment { trace, rule_measurements, prior_verdict, close_reason, steps_left: memo.budget.left() }
    }

    /// The questions about a closed trace.
    pub fn questions<'a>(&'a self, assessment: &'a Assessment) -> Questions<'a> {
        Questions::new(self.inputs(assessment), &self.custom).within(assessment.steps_left, self.stop)
    }

    fn inputs<'a>(&'a self, assessment: &'a Assessment) -> JudgeInputs<'a> {
        JudgeInputs {
            trace: &assessment.trace,
            settings: &self.settings,
            rule_measurements: &assessment.rule_measurements,
        }
    }

    /// The last question about a trace, with the measurements of judges in it; `None` if no judge is asked, or no
    /// metric failed.
    pub fn outcome_question(&self, assessment: &Assessment, judged: &[Measurement]) -> Option<OutcomeAsk> {
        let Assessment { trace, rule_measurements, .. } = assessment;
        let judges = self.settings.outcome_judges();
        let root = trace.tree.root().or_else(|| trace.tree.top().first().copied())?;
        let asker = &self.settings.asker;
        if judges.is_empty() || !asker.is_sampled(trace, root) {
            return None;
        }
        let measurements = merge_judgements(rule_measurements.clone(), judged.to_vec());
        let question = OutcomeQuestion::new(asker, trace, &measurements)?;
        let services = services(trace);
        let (metric, context) = (OUTCOME_QUESTION, QuestionContext::for_outcome());
        let ask =
            Ask { id: 0, at: root, metric, question: question.question.clone(), judges, services, context };
        Some(OutcomeAsk { ask, question })
    }

    /// The verdicts of a trace. `now` is in nanoseconds since 1970.
    pub fn decide(&self, assessment: Assessment, judged: JudgeResults, now: u64) -> EvaluatedTrace {
        let Assessment { trace, rule_measurements, prior_verdict, close_reason, .. } = assessment;
        let JudgeResults { measurements: judged_measurements, outcome, usage } = judged;
        let measurements = match judged_measurements.is_empty() {
            true => rule_measurements,
            false => merge_judgements(rule_measurements, judged_measurements),
        };
        let basis = Basis { policies: &self.policies, custom: &self.emission.custom, outcome };
        let verdicts = propagate::propagate_with(&trace, &measurements, basis);
        let trace_summary =
            summary(&prior_verdict, close_reason, trace.incomplete, verdicts.trace.passed, now);
        let unmeasured_reason = verdicts.trace.unmeasured_reason.filter(|_| trace_summary.passed.is_none());
        EvaluatedTrace {
            trace,
            measurements,
            verdicts,
            summary: TraceSummary { usage, unmeasured_reason, ..trace_summary },
            alarms: Vec::new(),
        }
    }

    /// A closed trace without measurements: for a trace that is not evaluated for lack of time, or whose evaluation
    /// failed.
    pub fn unmeasured(&self, closed: ClosedTrace, now: u64) -> EvaluatedTrace {
        let tree = Tree::new(closed.trace, closed.spans);
        let trace = AgentTrace { incomplete: closed.incomplete, ..tree.into() };
        let summary = summary(&closed.prior_verdict, closed.close_reason, closed.incomplete, None, now);
        let (measurements, alarms) = (Vec::new(), Vec::new());
        EvaluatedTrace { trace, measurements, verdicts: Verdicts::default(), summary, alarms }
    }

    /// Encodes the annotations of a trace and applies them to its spans.
    pub fn annotate(&self, evaluated: &EvaluatedTrace) -> Annotated {
        let encoded = EncodedAnnotations::new(self, evaluated);
        let (spans, removed_verdicts) = encoded.apply(self, &evaluated.trace.tree);
        Annotated { spans, events: encoded.events, removed_verdicts }
    }
}

impl EncodedAnnotations {
    /// The annotations of a trace: fields to append to its spans, and log events; only log events if all spans
    /// were exported on arrival.
    pub fn new(evaluator: &Evaluator, evaluated: &EvaluatedTrace) -> EncodedAnnotations {
        let EvaluatedTrace { trace, measurements, verdicts, summary, alarms } = evaluated;
        let emission = &evaluator.emission;
        let annotator = Annotator { trace, measurements, verdicts, summary, alarms, emission };
        match trace.tree.spans.iter().all(|span| span.forwarded) {
            true => annotator.encode_events(MAX_REQUEST),
            false => annotator.encode(MAX_REQUEST),
        }
    }

    /// Requests of a trace's spans with their annotations, without those that were exported on arrival, and
    /// the number of spans whose `verdict.*` attributes were removed. `tree` must have the same spans as the encoded
    /// trace.
    pub fn apply(&self, evaluator: &Evaluator, tree: &Tree) -> (Vec<Piece>, usize) {
        if self.lengths.is_empty() {
            return (Vec::new(), 0);
        }
        annotate::apply(tree, self, &evaluator.emission, MAX_REQUEST)
    }
}

/// Log records sorted by time, without duplicates. They arrive in any order, and again if the sender did
/// not receive the acknowledgement.
pub(crate) fn sorted_logs(mut logs: Vec<AttachedLog>) -> Vec<AttachedLog> {
    logs.sort_by_cached_key(|log| (LogView::read(&log.record).time, log.span, log.record.clone()));
    logs.dedup();
    logs
}

/// The summary of a trace. The verdict of late spans is combined with the earlier one: the trace fails
/// if either part fails. A recovery across the two parts is not recognised.
fn summary(
    prior: &Option<PriorVerdict>,
    close_reason: CloseReason,
    incomplete: bool,
    passed: Option<bool>,
    now: u64,
) -> TraceSummary {
    let (passed, changed, revision) = match prior {
        None => (passed, true, 1),
        Some(prior) => {
            let only_verdict = prior.passed.or(passed);
            let combined = prior.passed.zip(passed).map(|(a, b)| a && b).or(only_verdict);
            let changed = combined != prior.passed;
            (combined, changed, prior.revision.max(1) + u32::from(changed))
        }
    };
    TraceSummary {
        close_reason,
        revision,
        passed,
        changed,
        incomplete,
        now,
        unmeasured_reason: None,
        usage: None,
    }
}
