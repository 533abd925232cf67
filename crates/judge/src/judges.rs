//! All judges of a configuration.
//!
//! In: [`Ask`]s of metrics. Out: [`Answer`]s. Spending, caches and the state of unchanged judges are kept
//! across reloads of the configuration.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use verdict_client::ClientError;
use verdict_eval::metrics::Unmeasured;
use verdict_eval::questions::{Answer, Ask, Opinion, Question, QuestionContext, Usage};
use verdict_otlp::trace::TraceId;
use verdict_telemetry::{CascadeResult, JudgeMetrics, QuestionOutcome};

use crate::answer_cache::{AnswerCache, Resolved};
use crate::answer_validator::AnswerValidator;
use crate::budget::{self, BudgetTracker};
use crate::cache_key::{self, CacheKey};
use crate::cascade::{self, Cascade, CascadeReport};
use crate::config::{CascadeConfig, JudgeConfig, JudgeConfigs, JudgingConfig};
use crate::disk_cache::DiskCacheError;
use crate::extensions::JudgeExtensions;
use crate::http_provider::HttpProvider;
use crate::judge_client::JudgeClient;
use crate::lock::lock;
use crate::prepared_question::PreparedQuestion;
use crate::provider::Provider;
use crate::record::JudgeAnswer;
use crate::recording::{Recorder, Recording};
use crate::spending;
use crate::tally::{JudgeReport, PlannedQuestions, TallyEntry};

/// The judges cannot be used as they are configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JudgeError {
    #[error("judges.{judge}.{source}")]
    Endpoint { judge: String, source: ClientError },
    #[error("judges.{judge}.dialect: '{dialect}' is not one of {known}")]
    UnknownDialect { judge: String, dialect: String, known: String },
    /// `key` is `replay` or `record`.
    #[error("judges.{judge}.{key}: {reason}")]
    Recording { judge: String, key: &'static str, reason: String },
    #[error("judging.cache.directory: {0}")]
    Cache(#[from] DiskCacheError),
}

#[derive(Debug)]
struct Judge {
    client: JudgeClient,
    replay: Option<Recording>,
    record: Option<Recorder>,
}

/// The inputs of [`Judges`].
#[derive(Clone, Debug)]
struct JudgesParameters {
    configs: JudgeConfigs,
    judging: JudgingConfig,
    metrics: JudgeMetrics,
    extensions: JudgeExtensions,
    batch: BatchMode,
}

/// How judges answer the questions of a command, which has no deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BatchMode {
    /// Maximum time of waiting for a judge that does not respond, in addition to its retries.
    pub patience: Duration,
    /// Questions are counted and not asked; they have no answers (`sampled_out`).
    pub dry_run: bool,
}

/// Maximum number of different questions that a dry run remembers, 32 bytes each; equal questions count once.
const MAX_PLANNED: usize = 4_000_000;

#[derive(Debug)]
struct Inner {
    judges: BTreeMap<String, Arc<Judge>>,
    cascades: BTreeMap<String, Cascade>,
    parameters: JudgesParameters,
    budget: Arc<BudgetTracker>,
    cache: AnswerCache,
    /// The questions that a dry run has counted.
    planned: Mutex<HashSet<CacheKey>>,
}

/// All judges. Clones are cheap and share all state.
#[derive(Clone, Debug)]
pub struct Judges {
    inner: Arc<Inner>,
    run: u32,
}

impl Judges {
    /// Reads files: TLS settings, cached and recorded answers. The first question opens a connection.
    /// The judges count into `metrics`, which are exposed only if they are registered. `extensions` contain the
    /// dialects, by default the built-in ones, and providers.
    ///
    /// # Errors
    /// A file, folder, endpoint or dialect cannot be used; the message names the key.
    pub fn new(
        configs: &JudgeConfigs,
        judging: &JudgingConfig,
        metrics: &JudgeMetrics,
        extensions: &JudgeExtensions,
    ) -> Result<Judges, JudgeError> {
        Judges::for_batch(configs, judging, metrics, extensions, BatchMode::default())
    }

    /// Like [`Judges::new`], for a command.
    ///
    /// # Errors
    /// Like [`Judges::new`].
    pub fn for_batch(
        configs: &JudgeConfigs,
        judging: &JudgingConfig,
        metrics: &JudgeMetrics,
        extensions: &JudgeExtensions,
        batch: BatchMode,
    ) -> Result<Judges, JudgeError> {
        let (configs, judging) = (configs.clone(), judging.clone());
        let (metrics, extensions) = (metrics.clone(), extensions.clone());
        build(JudgesParameters { configs, judging, metrics, extensions, batch }, None)
    }

    /// Results of the questions so far, for each judge that was asked one.
    pub fn report(&self) -> Vec<JudgeReport> {
        let all = self.inner.judges.iter();
        let reports = all.map(|(name, judge)| {
            let JudgeConfig { model, price, .. } = &judge.client.config;
            let priced = price.input > 0.0 || price.output > 0.0;
            JudgeReport { priced, ..judge.client.tally.report(name, model) }
        });
        reports.filter(|r| r.asked > 0 || r.withheld > 0 || r.planned.is_some()).collect()
    }

    /// Counts of the questions so far, for each cascade that was asked one.
    pub fn cascades(&self) -> Vec<CascadeReport> {
        let all = self.inner.cascades.values().map(Cascade::report);
        all.filter(|report| !report.questions.is_empty()).collect()
    }

    /// Judges of another configuration, with the same dialects and providers. Spending and cached answers
    /// are kept. `self` still answers its pending questions, within the new limits.
    ///
    /// # Errors
    /// Like [`Judges::new`]. No limit changes then.
    pub fn renewed(&self, configs: &JudgeConfigs, judging: &JudgingConfig) -> Result<Judges, JudgeError> {
        let (configs, judging) = (configs.clone(), judging.clone());
        build(JudgesParameters { configs, judging, ..self.inner.parameters.clone() }, Some(&self.inner))
    }

    /// Adds the spending that [`Judges::save_spending`] wrote to `file`, which then counts against the limits.
    /// A missing or damaged file adds nothing. Blocking.
    pub fn restore_spending(&self, file: &Path) {
        self.inner.budget.restore(spending::read(file));
    }

    /// Writes the spending that counts against the limits to `file`, if it has changed since the last call.
    /// Blocking.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_spending(&self, file: &Path) -> io::Result<()> {
        self.inner.budget.save(file)
    }

    /// Returns when the answers so far are in the cache on disk, if there is one. To be awaited before the runtime
    /// ends, which drops writes that have not begun.
    pub async fn cache_written(&self) {
        self.inner.cache.wait_until_written().await;
    }

    /// These judges for one run, whose answers are independent of those of other runs: they are cached separately.
    #[must_use]
    pub fn for_run(&self, run: u32) -> Judges {
        Judges { inner: Arc::clone(&self.inner), run }
    }

    /// Whether a question fits into the context window of the judge `name`, `max_prompt_tokens`, by the estimate
    /// with which longer questions are not sent. False if there is no such judge.
    pub fn fits(&self, name: &str, question: &Question) -> bool {
        let members = self.inner.members(name);
        !members.is_empty() && members.iter().all(|judge| judge.client.fits(&judge.client.encode(question)))
    }

    /// Answers a question about a trace, within the trace's budget. After a failure the answer is an
    /// [`Unmeasured`]. Dropping the future releases permits and reservations; a caller that waits for the
    /// same question then asks it.
    pub async fn ask(&self, trace: TraceId, ask: &Ask) -> Answer {
        let question = &ask.question;
        let answer = |opinions, usage| Answer { key: question.key.clone(), opinions, usage };
        let validator = match AnswerValidator::new(&question.form) {
            Ok(validator) => validator,
            Err(error) => {
                tracing::error!(metric = ask.metric, %error, "the form of a question has an invalid schema, which is a bug of the metric");
                return answer(Err(Unmeasured::JudgeError), Usage::default());
            }
        };
        let rubric = cache_key::rubric_hash(question);
        let prepared = PreparedQuestion { question, validator, rubric, trace, services: &ask.services };
        // While a trace is open, services whose content it repeats may not be known.
        let judging = &self.inner.parameters.judging;
        let is_free = |judge: &&Judge| !judge.client.withholds_any(judging);
        let is_asked = |name: &&String| !ask.context.is_early || self.inner.members(name).iter().all(is_free);
        let asked = ask.judges.iter().filter(is_asked);
        let each = asked.map(|name| self.answers(name, &prepared, &ask.context));
        let resolved: Vec<Resolved> = join_all(each).await.into_iter().flatten().collect();
        let mut usage = Usage::default();
        resolved.iter().for_each(|one| usage += one.usage);
        answer(opinions(&resolved), usage)
    }

    /// The answers of one judge, one for each sample, or of a cascade. Boxed, since members may be cascades.
    fn answers<'a>(
        &'a self,
        name: &'a str,
        prepared: &'a PreparedQuestion<'a>,
        context: &'a QuestionContext,
    ) -> Pin<Box<dyn Future<Output = Vec<Resolved>> + Send + 'a>> {
        Box::pin(async move {
            if let Some(cascade) = self.inner.cascades.get(name) {
                return self.cascade(cascade, prepared, context).await;
            }
            let Some(judge) = self.inner.judges.get(name) else { return Vec::new() };
            let samples = judge.client.config.samples.max(1);
            let first = self.run.saturating_mul(samples);
            let each = (0..samples).map(|i| Box::pin(self.resolve(judge, prepared, first.saturating_add(i))));
            join_all(each).await
        })
    }

    /// The answers of the first judge, or those of the second if they do not suffice and it has any.
    async fn cascade(
        &self,
        cascade: &Cascade,
        prepared: &PreparedQuestion<'_>,
        context: &QuestionContext,
    ) -> Vec<Resolved> {
        let CascadeConfig { first, then, .. } = &cascade.config;
        let is_dry = self.inner.parameters.batch.dry_run;
        let immediate = cascade.immediate_escalation(context);
        if let Some(result) = immediate {
            cascade.count(result);
            let answers = self.answers(then, prepared, context).await;
            if is_dry || answers.iter().any(|one| one.answer.is_ok()) {
                return answers;
            }
            return with_usage_of(self.answers(first, prepared, context).await, &answers);
        }
        let logprobs = self.inner.judges.get(first).is_some_and(|judge| judge.client.config.logprobs);
        let with_confidence = cascade.asks_confidence(&prepared.question.form, logprobs);
        let with_confidence = with_confidence.then(|| cascade::with_confidence(prepared.question)).flatten();
        let with_confidence = with_confidence.as_ref().and_then(|question| prepared.with_question(question));
        let mut answers = self.answers(first, with_confidence.as_ref().unwrap_or(prepared), context).await;
        if is_dry {
            self.plan_at_most(then, prepared);
            return answers;
        }
        let first_opinions = opinions(&answers).unwrap_or_default();
        let result = cascade.review(&first_opinions, context);
        cascade.count(result);
        answers.iter_mut().filter_map(|one| one.answer.as_mut().ok()).for_each(cascade::without_confidence);
        cascade.spent(answers.iter().fold(Usage::default(), |mut sum, one| {
            sum += one.usage;
            sum
        }));
        if result == CascadeResult::Kept {
            // If the first judge's answer came from the cache, so would the second judge's answer: nothing was saved.
            if answers.iter().any(|one| one.outcome == QuestionOutcome::Answered) {
                let judges = self.inner.members(then);
                judges.iter().take(1).for_each(|judge| cascade.avoided(judge.plan(prepared.question)));
            }
            return answers;
        }
        let second = self.answers(then, prepared, context).await;
        match opinions(&second) {
            Ok(opinions) => {
                cascade.compare(&first_opinions, &opinions, context);
                with_usage_of(second, &answers)
            }
            // The first judge's answer is better than none.
            Err(_) => with_usage_of(answers, &second),
        }
    }

    /// Counts a question that the judge `name` may be asked, depending on the answer of another judge.
    fn plan_at_most(&self, name: &str, prepared: &PreparedQuestion<'_>) {
        for Judge { client, .. } in self.inner.members(name) {
            if !client.may_see(prepared.services, &self.inner.parameters.judging) {
                continue;
            }
            let body = client.encode(prepared.question);
            let key = cache_key::request_key(client.location(), &body, 0);
            let mut planned = lock(&self.inner.planned);
            if !self.inner.cache.contains(&key) && (planned.len() >= MAX_PLANNED || planned.insert(key)) {
                client.tally.add_planned(client.plan(&body).upper_bound());
            }
        }
    }

    /// Answers for one judge and one sample.
    async fn resolve(&self, judge: &Judge, prepared: &PreparedQuestion<'_>, sample: u32) -> Resolved {
        let Judge { client, replay, record } = judge;
        let Inner { parameters, budget, cache, .. } = &*self.inner;
        let valid = |answer: &JudgeAnswer| prepared.validator.validate(answer.value.clone()).is_ok();
        let resolved = if !client.may_see(prepared.services, &parameters.judging) {
            Resolved::without_usage(Err(Unmeasured::NotApplicable), QuestionOutcome::Withheld)
        } else if let Some(recording) = replay {
            // A recorded answer that does not match the form was edited.
            match recording.get(&cache_key::recording_key(prepared.question, sample)).filter(|a| valid(a)) {
                // The recorded cost is part of the repeated run.
                Some(answer) => Resolved {
                    usage: answer.usage(),
                    ..Resolved::without_usage(Ok(answer), QuestionOutcome::Replayed)
                },
                None => {
                    client.tally.count_question(TallyEntry::Failed("not_recorded"));
                    Resolved::without_usage(Err(Unmeasured::JudgeError), QuestionOutcome::Failed)
                }
            }
        } else {
            let body = client.encode(prepared.question);
            let key = cache_key::request_key(client.location(), &body, sample);
            if parameters.batch.dry_run {
                return self.plan(client, &body, key);
            }
            cache.get_or_ask(key, valid, client.ask(prepared, budget)).await
        };
        self.count(client, &resolved);
        if let (Some(recorder), Ok(answer)) = (record, &resolved.answer) {
            recorder.record(&cache_key::recording_key(prepared.question, sample), answer);
        }
        client.cells.count_question(resolved.outcome);
        resolved
    }

    /// Counts a question in the judge's tally. Failures of requests have been counted with their reason.
    fn count(&self, client: &JudgeClient, resolved: &Resolved) {
        let counted = match (resolved.outcome, &resolved.answer) {
            (QuestionOutcome::Answered, _) => TallyEntry::Answered,
            (QuestionOutcome::Cached, _) | (QuestionOutcome::Shared, Ok(_)) => TallyEntry::Cached,
            (QuestionOutcome::Shared, Err(_)) => TallyEntry::Failed("same_question_failed"),
            (QuestionOutcome::Replayed, _) => TallyEntry::Replayed,
            (QuestionOutcome::Withheld, _) => TallyEntry::Withheld,
            (QuestionOutcome::Budget | QuestionOutcome::Timeout | QuestionOutcome::Failed, _) => return,
        };
        client.tally.count_question(counted);
    }

    /// Counts a question without asking it.
    fn plan(&self, client: &JudgeClient, body: &bytes::Bytes, key: CacheKey) -> Resolved {
        let no_answer = Resolved::without_usage(Err(Unmeasured::SampledOut), QuestionOutcome::Withheld);
        if self.inner.cache.contains(&key) {
            client.tally.count_question(TallyEntry::Cached);
            return no_answer;
        }
        let mut planned = lock(&self.inner.planned);
        if planned.len() >= MAX_PLANNED || planned.insert(key) {
            client.tally.add_planned(client.plan(body));
        }
        no_answer
    }
}

impl Inner {
    /// The judges of this name: itself, or those of a cascade.
    fn members(&self, name: &str) -> Vec<&Judge> {
        let names = self.parameters.judging.members(name).into_iter();
        names.filter_map(|name| self.judges.get(name)).map(AsRef::as_ref).collect()
    }
}

impl Judge {
    /// The tokens and cost of all samples of a question.
    fn plan(&self, question: &Question) -> PlannedQuestions {
        let body = self.client.encode(question);
        self.client.plan(&body).times(u64::from(self.client.config.samples.max(1)))
    }
}

/// `answers` with the usage of `others` added, whose answers do not apply.
fn with_usage_of(mut answers: Vec<Resolved>, others: &[Resolved]) -> Vec<Resolved> {
    if let Some(one) = answers.first_mut() {
        others.iter().for_each(|other| one.usage += other.usage);
    }
    answers
}

fn build(mut parameters: JudgesParameters, previous: Option<&Inner>) -> Result<Judges, JudgeError> {
    for name in parameters.extensions.providers.keys() {
        parameters.configs.entry(name.clone()).or_default();
    }
    let disk_errors = &parameters.metrics.disk_errors;
    let cache =
        AnswerCache::open(&parameters.judging.cache, previous.map(|inner| &inner.cache), disk_errors)?;
    let mut judges = BTreeMap::new();
    for (name, config) in &parameters.configs {
        // A judge with the same configuration keeps its connections, limiter and breaker.
        let existing = previous.and_then(|inner| inner.judges.get(name));
        let judge = match existing.filter(|judge| judge.client.config == *config) {
            Some(judge) => Arc::clone(judge),
            None => Arc::new(judge(name, config, &parameters)?),
        };
        judges.insert(name.clone(), judge);
    }
    // Budgets and the disk cache are shared with `previous`, so their limits change only after the last fallible step.
    let budget = previous.map_or_else(Arc::default, |inner| Arc::clone(&inner.budget));
    budget.set_limits(budget::ALL_JUDGES, parameters.judging.budget);
    for (name, config) in &parameters.configs {
        budget.set_limits(name, config.budget);
    }
    cache.set_max_bytes(parameters.judging.cache.max_bytes.0);
    let cascades = parameters.judging.cascades.iter();
    let cascades = cascades
        .map(|(name, config)| {
            (name.clone(), Cascade::new(name, config, parameters.metrics.cascade_cells(name)))
        })
        .collect();
    let inner = Inner { judges, cascades, parameters, budget, cache, planned: Mutex::default() };
    Ok(Judges { inner: Arc::new(inner), run: 0 })
}

/// The endpoint of a judge that only replays: the discard port of this machine.
const DISCARD_ENDPOINT: &str = "http://127.0.0.1:9/v1";

fn judge(name: &str, config: &JudgeConfig, parameters: &JudgesParameters) -> Result<Judge, JudgeError> {
    let JudgesParameters { extensions, metrics, batch, .. } = parameters;
    // No request is sent to this endpoint.
    let is_replay_only = config.endpoint.is_empty() && config.replay.is_some();
    let endpoint = if is_replay_only { DISCARD_ENDPOINT.to_owned() } else { config.endpoint.clone() };
    let effective_config = JudgeConfig { endpoint, ..config.clone() };
    let provider = match extensions.providers.get(name) {
        Some(provider) => Arc::clone(provider),
        None => http_provider(name, &effective_config, extensions)?,
    };
    let recording_error = |key, path: &Path, error| {
        let reason = format!("{}: {error}", path.display());
        JudgeError::Recording { judge: name.to_owned(), key, reason }
    };
    let replay = config.replay.as_deref();
    let replay =
        replay.map(|path| Recording::read(path).map_err(|error| recording_error("replay", path, error)));
    let record = config.record.as_deref();
    let recorder = |path| Recorder::open(path, metrics.disk_errors.clone());
    let record = record.map(|path| recorder(path).map_err(|error| recording_error("record", path, error)));
    Ok(Judge {
        client: JudgeClient::new(name, &effective_config, provider, metrics.cells_for(name), batch.patience),
        replay: replay.transpose()?,
        record: record.transpose()?,
    })
}

fn http_provider(
    name: &str,
    config: &JudgeConfig,
    extensions: &JudgeExtensions,
) -> Result<Arc<dyn Provider>, JudgeError> {
    let judge = name.to_owned();
    let Some(dialect) = extensions.dialects.iter().find(|dialect| dialect.name() == config.dialect) else {
        let (dialect, known) = (config.dialect.clone(), extensions.dialect_names().join(", "));
        return Err(JudgeError::UnknownDialect { judge, dialect, known });
    };
    let provider = HttpProvider::new(config, Arc::clone(dialect));
    Ok(Arc::new(provider.map_err(|source| JudgeError::Endpoint { judge, source })?))
}

/// The opinions in order. If there are none, the most specific reason: a failure, else a timeout, else a spent
/// budget, else content that is withheld from the judges.
fn opinions(resolved: &[Resolved]) -> Result<Vec<Opinion>, Unmeasured> {
    let answers = resolved.iter().filter_map(|one| one.answer.as_ref().ok());
    let opinion = |answer: &Arc<JudgeAnswer>| Opinion {
        value: answer.value.clone(),
        weighted: answer.weighted,
        judge: Arc::clone(&answer.judge),
    };
    let opinions: Vec<Opinion> = answers.map(opinion).collect();
    let rank = |reason: &Unmeasured| match reason {
        Unmeasured::JudgeError => 3,
        Unmeasured::Timeout => 2,
        Unmeasured::Budget => 1,
        _ => 0,
    };
    let reasons = resolved.iter().filter_map(|one| one.answer.as_ref().err().copied());
    match opinions.is_empty() {
        // Without opinions and reasons, no judge of these names is configured.
        true => Err(reasons.rev().max_by_key(rank).unwrap_or(Unmeasured::JudgeError)),
        false => Ok(opinions),
    }
}
