//! The client of one judge. In: a question. Out: a valid answer or the reason for having none, and the cost.
//!
//! Each request reserves its budget, acquires permits of the request limiter and the circuit breaker, and is
//! sent by the provider; transient failures are retried. A request that the server refuses is sent once more without
//! the refused part, if it has one, and never again in the same form. If an answer cannot be used, the question is
//! asked once more together with the fault. Dropping the future at any point releases all permits and reservations.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use bytes::Bytes;
use moka::sync::Cache;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tracing::{Instrument as _, field::Empty};
use verdict_config::matches;
use verdict_eval::metrics::Unmeasured;
use verdict_eval::questions::{Question, Usage};
use verdict_eval::trace::Text;
use verdict_otlp::trace::TraceId;
use verdict_telemetry::{JudgeCells, SELF_TARGET};

use crate::breaker::{Breaker, BreakerPermit};
use crate::budget::{Amount, BudgetTracker};
use crate::cache_key::{self, CacheKey};
use crate::config::{BYTES_PER_TOKEN, JudgeConfig, JudgingConfig};
use crate::failure::{Failure, FailureKind, NoAnswer, failed};
use crate::gauge_guard::GaugeGuard;
use crate::lock::lock;
use crate::logprobs;
use crate::outage::{AfterFailure, OutageWait, Pauses};
use crate::prepared_question::PreparedQuestion;
use crate::provider::{Correction, JudgeRequest, Provider, Reply, TokenCount};
use crate::read_reply::read_reply;
use crate::record::JudgeAnswer;
use crate::request_limiter::{MAX_PAUSE, RequestLimiter};
use crate::request_shape::RequestShape;
use crate::tally::{PlannedQuestions, QuestionTally, TallyEntry};

/// The first delay between attempts. It doubles with each attempt, and jitter adds at most the delay itself.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// The longest delay between attempts; traces wait for judges no longer than `verdict.max_wait`.
const MAX_DELAY: Duration = Duration::from_secs(20);
/// Maximum number of times that a question is asked: a second time if its first answer cannot be used.
const MAX_TIMES_ASKED: usize = 2;
/// Smallest average number of bytes per token (prose, JSON, scripts with three bytes per letter), for
/// the estimates of reservations, which must not be too low.
const MIN_BYTES_PER_TOKEN: u64 = 3;
/// Maximum number of refused requests that are remembered, 40 bytes each.
const MAX_REFUSED: u64 = 10_000;
/// Time for which a refused request is not sent again: the server may be configured differently later.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(600);
/// Maximum number of refusals of one question that change the shape of its request. There are nine changes.
const MAX_ADAPTATIONS: usize = 10;
/// Number of tokens of a typical answer: a rationale and one or two findings.
const TYPICAL_ANSWER_TOKENS: u64 = 400;

#[derive(Debug)]
pub(crate) struct JudgeClient {
    pub(crate) name: Arc<str>,
    pub(crate) config: JudgeConfig,
    pub(crate) cells: JudgeCells,
    provider: Arc<dyn Provider>,
    limiter: RequestLimiter,
    breaker: Arc<Breaker>,
    external: bool,
    /// Statuses and faults that were logged: each is logged as a warning only once.
    logged: Mutex<HashSet<&'static str>>,
    /// The shape of requests, without the parts that the server has refused.
    shape: Mutex<RequestShape>,
    /// Requests that the server refused, with the status.
    refused: Cache<CacheKey, &'static str>,
    outage_wait: OutageWait,
    pub(crate) tally: QuestionTally,
}

/// One request, with the budget and the trace to which its cost is charged.
#[derive(Clone, Copy)]
struct Outgoing<'a> {
    request: JudgeRequest<'a>,
    body: &'a Bytes,
    budget: &'a BudgetTracker,
    trace: TraceId,
    /// The cost of the requests to this judge about the question so far.
    spent: &'a Mutex<Amount>,
}

enum NoReply {
    BudgetSpent,
    BreakerOpen,
    Failed(Failure),
}

impl JudgeClient {
    pub(crate) fn new(
        name: &str,
        config: &JudgeConfig,
        provider: Arc<dyn Provider>,
        cells: JudgeCells,
        patience: Duration,
    ) -> JudgeClient {
        cells.breaker.set(0);
        JudgeClient {
            name: name.into(),
            config: config.clone(),
            cells,
            limiter: RequestLimiter::new(config),
            breaker: Arc::new(Breaker::new(&config.breaker)),
            external: config.external.unwrap_or(provider.is_external()),
            provider,
            logged: Mutex::default(),
            shape: Mutex::new(RequestShape::from_config(config)),
            refused: Cache::builder().max_capacity(MAX_REFUSED).time_to_live(REFUSAL_LIFETIME).build(),
            outage_wait: OutageWait::new(patience),
            tally: QuestionTally::default(),
        }
    }

    pub(crate) fn location(&self) -> &str {
        self.provider.location()
    }

    /// Whether the content of every service in `services` may be sent to this judge.
    pub(crate) fn may_see(&self, services: &[Text], judging: &JudgingConfig) -> bool {
        let listed = |list: &[String]| services.iter().any(|name| list.iter().any(|p| matches(p, name)));
        let withheld =
            listed(&self.config.exclude_services) || (self.external && listed(&judging.keep_internal));
        !withheld
    }

    /// Whether content of any services may not be sent to this judge.
    pub(crate) fn withholds_any(&self, judging: &JudgingConfig) -> bool {
        !self.config.exclude_services.is_empty() || self.external && !judging.keep_internal.is_empty()
    }

    /// The request body of a question in the configured shape. It identifies the question in the caches, even if the
    /// server accepts only another shape.
    pub(crate) fn encode(&self, question: &Question) -> Bytes {
        self.provider.encode(&self.request(question, None, RequestShape::from_config(&self.config)))
    }

    /// Whether a request with this body and its answer fit into the model's context window.
    pub(crate) fn fits(&self, body: &Bytes) -> bool {
        self.config.accepts(body.len() as u64)
    }

    /// The estimated tokens and cost of the question with this body.
    pub(crate) fn plan(&self, body: &Bytes) -> PlannedQuestions {
        let shape = *lock(&self.shape);
        let input = body.len() as u64 / BYTES_PER_TOKEN;
        let max_output = u64::from(self.config.max_tokens.saturating_add(shape.reasoning_tokens()));
        let usual = max_output.min(TYPICAL_ANSWER_TOKENS + u64::from(shape.reasoning_tokens()) / 2);
        let cost = |output| {
            Amount::new(TokenCount { input, output, ..TokenCount::default() }, &self.config.price).usd()
        };
        PlannedQuestions {
            questions: 1,
            input_tokens: input,
            output_tokens: usual,
            output_tokens_at_most: max_output,
            cost_usd: cost(usual),
            cost_usd_at_most: cost(max_output),
        }
    }

    fn request<'a>(
        &'a self,
        question: &'a Question,
        correction: Option<&'a Correction>,
        shape: RequestShape,
    ) -> JudgeRequest<'a> {
        JudgeRequest {
            config: &self.config,
            prompt: &question.prompt,
            form: &question.form,
            correction,
            shape,
        }
    }

    /// Asks a question; returns the answer, or the reason for having none, and the usage of all requests.
    pub(crate) async fn ask(
        &self,
        prepared: &PreparedQuestion<'_>,
        budget: &BudgetTracker,
    ) -> (Result<JudgeAnswer, Unmeasured>, Usage) {
        let spent = Mutex::default();
        let answer = self.ask_with_correction(prepared, budget, &spent).await;
        let spent: Amount = *lock(&spent);
        let usage = Usage { tokens: spent.tokens, cost_usd: spent.usd() };
        match answer {
            Ok((value, weighted)) => {
                let judge = format!("{}/{}", self.config.model, prepared.rubric);
                (Ok(JudgeAnswer::new(&judge, value, weighted, usage)), usage)
            }
            Err(NoAnswer { unmeasured: reason, cause }) => {
                self.tally.count_question(TallyEntry::Failed(cause));
                (Err(reason), usage)
            }
        }
    }

    /// The value and weighted score of a valid answer. An invalid first answer is followed by a correction.
    async fn ask_with_correction(
        &self,
        prepared: &PreparedQuestion<'_>,
        budget: &BudgetTracker,
        spent: &Mutex<Amount>,
    ) -> Result<(Value, Option<f64>), NoAnswer> {
        let PreparedQuestion { question, validator, trace, .. } = prepared;
        let mut correction: Option<Correction> = None;
        let mut last = failed("unusable");
        for _ in 0..MAX_TIMES_ASKED {
            let reply = self.accepted_reply(question, correction.as_ref(), budget, *trace, spent).await?;
            match read_reply(&reply, validator) {
                Ok(value) => {
                    if correction.is_some() {
                        self.tally.count_repaired();
                    }
                    let score = question.form.score.as_ref();
                    let weighted = score.and_then(|f| logprobs::weighted(&reply.text, &reply.tokens, f));
                    return Ok((value, weighted));
                }
                Err((fault, next_correction)) => {
                    self.unusable(fault);
                    last = failed(fault);
                    let Some(next_correction) = next_correction else { break };
                    correction = Some(next_correction);
                }
            }
        }
        Err(last)
    }

    /// The reply to a request in a shape that the server accepts.
    async fn accepted_reply(
        &self,
        question: &Question,
        correction: Option<&Correction>,
        budget: &BudgetTracker,
        trace: TraceId,
        spent: &Mutex<Amount>,
    ) -> Result<Reply, NoAnswer> {
        let mut shape = *lock(&self.shape);
        for _ in 0..MAX_ADAPTATIONS {
            let request = self.request(question, correction, shape);
            let body = self.provider.encode(&request);
            let key = cache_key::request_key(self.location(), &body, 0);
            if let Some(status) = self.refused.get(&key) {
                return Err(failed(status));
            }
            let outgoing = Outgoing { request, body: &body, budget, trace, spent };
            let failure = match self.reply(outgoing).await {
                Ok(reply) => return Ok(reply),
                Err((no_answer, None)) => return Err(no_answer),
                Err((no_answer, Some(failure))) if !failure.is_refusal() => return Err(no_answer),
                Err((_, Some(failure))) => failure,
            };
            let next = self.adapt(shape, &failure).filter(|next| {
                // The configured `body`, or a custom dialect, may send the same request nevertheless.
                self.provider.encode(&self.request(question, correction, *next)) != body
            });
            let Some(next) = next else {
                self.refused.insert(key, failure.status);
                self.report_refusal(&failure, question);
                return Err(failed(failure.status));
            };
            shape = next;
        }
        Err(failed("refused_request"))
    }

    /// The shape for the next request after a refusal of `shape`; `None` if the refusal names no part of it.
    fn adapt(&self, shape: RequestShape, failure: &Failure) -> Option<RequestShape> {
        let mut current = lock(&self.shape);
        if *current != shape {
            // Another question was refused meanwhile.
            return Some(*current);
        }
        let (next, change) = shape.without(failure.message.words())?;
        *current = next;
        self.tally.add_adaptation(change);
        tracing::info!(judge = %self.name, change, "the server refuses a request parameter; further requests of this process are sent with this change");
        Some(next)
    }

    fn report_refusal(&self, failure: &Failure, question: &Question) {
        let message = failure.message.shown(&self.config, &question.prompt.user);
        if self.tally.add_message(message.clone()) {
            tracing::warn!(judge = %self.name, status = failure.status, %message, "the server refuses requests to a judge");
        }
    }

    /// Sends a request until there is a reply, the retries are used up, or another attempt cannot help.
    async fn reply(&self, outgoing: Outgoing<'_>) -> Result<Reply, (NoAnswer, Option<Failure>)> {
        if !self.fits(outgoing.body) {
            self.unusable("question_too_long");
            return Err((failed("question_too_long"), None));
        }
        let mut delays = ExponentialBuilder::default()
            .with_jitter()
            .with_min_delay(FIRST_DELAY)
            .with_max_delay(MAX_DELAY)
            .with_max_times(self.config.retries as usize)
            .build();
        let mut pauses = Pauses::default();
        loop {
            let request_span =
                tracing::info_span!(target: SELF_TARGET, "judge_request", judge = %self.name, status = Empty);
            let sent = Box::pin(self.send_hedged(outgoing)).instrument(request_span.clone()).await;
            let status = match &sent {
                Ok(_) => "ok",
                Err(NoReply::BudgetSpent) => "budget",
                Err(NoReply::BreakerOpen) => "breaker_open",
                Err(NoReply::Failed(failure)) => failure.status,
            };
            request_span.record("status", status);
            let failure = match sent {
                Ok(reply) => return Ok(reply),
                Err(NoReply::BudgetSpent) => {
                    return Err((NoAnswer { unmeasured: Unmeasured::Budget, cause: "budget" }, None));
                }
                Err(NoReply::BreakerOpen) => None,
                Err(NoReply::Failed(failure)) => Some(failure),
            };
            let after = failure.as_ref().and_then(|failure| failure.retry_after);
            let retried =
                failure.as_ref().filter(|f| f.is_retryable() && after.is_none_or(|a| a <= MAX_PAUSE));
            if let Some(delay) = retried.and_then(|_| delays.next()) {
                sleep(delay).await;
                continue;
            }
            if failure.as_ref().is_none_or(Failure::is_outage) && self.pause(&mut pauses, after).await {
                continue;
            }
            return Err(match failure {
                // The status of the earlier failure is more specific than `breaker_open`.
                None => (failed(self.outage_wait.last_status().unwrap_or("breaker_open")), None),
                Some(failure) if failure.kind == FailureKind::Timeout => {
                    (NoAnswer { unmeasured: Unmeasured::Timeout, cause: "timeout" }, Some(failure))
                }
                Some(failure) => (failed(failure.status), Some(failure)),
            });
        }
    }

    /// Pauses before the next attempt to reach a judge that does not respond; false if no more attempts are made.
    async fn pause(&self, pauses: &mut Pauses, least: Option<Duration>) -> bool {
        let status = self.outage_wait.last_status().unwrap_or("breaker_open");
        match self.outage_wait.next(pauses, least, Instant::now()) {
            AfterFailure::Wait { pause, announce } => {
                if announce {
                    tracing::warn!(judge = %self.name, status, patience = ?self.outage_wait.max_wait(), "the judge does not respond; requests are retried for up to --patience");
                }
                sleep(pause).await;
                true
            }
            AfterFailure::GiveUp { announce } => {
                if announce {
                    tracing::error!(judge = %self.name, status, patience = ?self.outage_wait.max_wait(), "the judge did not respond within --patience; its questions fail until a request succeeds");
                }
                false
            }
        }
    }

    /// One attempt. With `hedge_after`, a second attempt starts after this time, and the first reply is used.
    async fn send_hedged(&self, outgoing: Outgoing<'_>) -> Result<Reply, NoReply> {
        let sent = Notify::new();
        let first = self.send_once(outgoing, &sent);
        let Some(after) = self.config.hedge_after else { return first.await };
        tokio::pin!(first);
        // The time is counted from sending: before that, a second attempt would only wait for the limiter as well.
        let delay = async {
            sent.notified().await;
            sleep(*after).await;
        };
        tokio::select! {
            ended = &mut first => return ended,
            () = delay => {}
        }
        let second = self.send_once(outgoing, &sent);
        tokio::pin!(second);
        let (ended, first_ended) = tokio::select! {
            ended = &mut first => (ended, true),
            ended = &mut second => (ended, false),
        };
        let Err(first_error) = ended else { return ended };
        match if first_ended { second.await } else { first.await } {
            // The failure of the request that was sent is the more specific reason.
            Err(NoReply::BudgetSpent | NoReply::BreakerOpen) => Err(first_error),
            other => other,
        }
    }

    async fn send_once(&self, outgoing: Outgoing<'_>, sent: &Notify) -> Result<Reply, NoReply> {
        let Outgoing { request, body, budget, trace, spent } = outgoing;
        if self.breaker.is_open(Instant::now()) {
            return Err(NoReply::BreakerOpen);
        }
        let price = &self.config.price;
        let prompt =
            TokenCount { input: (body.len() as u64).div_ceil(MIN_BYTES_PER_TOKEN), ..TokenCount::default() };
        let max_count = TokenCount { output: u64::from(request.token_limit()), ..prompt };
        let reserved = budget.reserve(&self.name, trace, Amount::new(max_count, price)).await;
        let mut reserved = reserved.ok_or(NoReply::BudgetSpent)?;
        let slot = {
            let _waiting = GaugeGuard::inc(&self.cells.waiting);
            self.limiter.acquire().await
        };
        let permit = self.breaker.try_acquire(Instant::now());
        let (Some(_slot), Some(permit)) = (slot, permit) else {
            return Err(NoReply::BreakerOpen);
        };
        let _in_flight = GaugeGuard::inc(&self.cells.in_flight);
        let prompt_cost = Amount::new(prompt, price);
        reserved.sent(prompt_cost);
        sent.notify_one();
        let started = Instant::now();
        let reply = timeout(*self.config.timeout, self.provider.send(request, body.clone())).await;
        let reply = reply.unwrap_or_else(|_| Err(Failure::new("timeout", FailureKind::Timeout)));
        self.cells.count_request(reply.as_ref().map_or_else(|f| f.status, |_| "ok"), started.elapsed());
        self.tally.count_request(reply.is_ok().then(|| started.elapsed()));
        let (result, cost) = match reply {
            Ok(reply) => {
                permit.succeeded();
                if self.outage_wait.succeeded() {
                    tracing::info!(judge = %self.name, "the judge answers again");
                }
                let output = (reply.text.len() as u64).div_ceil(MIN_BYTES_PER_TOKEN);
                let counted = reply.usage.unwrap_or(TokenCount { output, ..prompt });
                let cost = Amount::new(counted, price);
                let input = counted.input.saturating_add(counted.cache_write);
                self.cells.add_usage([input, counted.cached, counted.output], cost.usd());
                self.tally.add_usage(counted, cost.usd());
                (Ok(reply), cost)
            }
            Err(failure) => {
                // After a timeout the server may have processed the prompt nevertheless.
                let cost = if failure.kind == FailureKind::Timeout { prompt_cost } else { Amount::default() };
                self.failed(&failure, permit);
                (Err(NoReply::Failed(failure)), cost)
            }
        };
        reserved.commit_cost(cost);
        let mut spent = lock(spent);
        *spent = spent.plus(cost);
        self.cells.breaker.set(self.breaker.breaker_state(Instant::now()) as i64);
        result
    }

    fn failed(&self, failure: &Failure, permit: BreakerPermit<'_>) {
        let Failure { status, error_type: error, .. } = failure;
        self.outage_wait.failed(failure, Instant::now());
        if self.is_first_log(status) {
            tracing::warn!(judge = %self.name, status, %error, "request to a judge failed; further failures with this status are logged at level debug");
        } else {
            tracing::debug!(judge = %self.name, status, %error, "request to a judge failed");
        }
        if let Some(after) = failure.retry_after {
            self.limiter.pause(after);
        }
        if failure.is_unhealthy() {
            if permit.failed(Instant::now()) {
                let open_for = *self.config.breaker.open_for;
                tracing::warn!(judge = %self.name, status, %error, ?open_for, "circuit breaker opened after consecutive failures; no requests are sent to the judge for open_for");
                self.update_breaker_gauge_after(open_for);
            }
        } else if failure.kind == FailureKind::InvalidRequest {
            permit.succeeded();
        }
    }

    /// Updates the self-metric when the breaker admits a probe: there may be no further question that updates it.
    fn update_breaker_gauge_after(&self, open_for: Duration) {
        let (breaker, gauge) = (Arc::downgrade(&self.breaker), self.cells.breaker.clone());
        let end = Instant::now() + open_for;
        tokio::spawn(async move {
            tokio::time::sleep_until(end).await;
            // After a reload the gauge belongs to another client.
            if let Some(breaker) = breaker.upgrade() {
                gauge.set(breaker.breaker_state(Instant::now()) as i64);
            }
        });
    }

    fn unusable(&self, fault: &'static str) {
        self.cells.count_unusable(fault);
        if self.is_first_log(fault) {
            tracing::warn!(judge = %self.name, fault, "an answer of a judge could not be used, or a question to it is too long; logged once per fault");
        }
    }

    fn is_first_log(&self, kind: &'static str) -> bool {
        lock(&self.logged).insert(kind)
    }
}
