//! One judge: a question in, an answer that fits or a reason out, and what it took.
//!
//! A question is reserved for, waits at the gate, is let through by the breaker, sent, tried again
//! where that may help, and read. An answer that cannot be used is asked for once more, with what
//! was wrong with it; then the judge has failed. Dropping the future at any point gives back what
//! it holds.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::answer::{Fault, Mould};
use super::breaker::Breaker;
use super::budget::{Amount, Spending};
use super::config::{JudgeConfig, JudgingConfig};
use super::dialect::{Again, Asked, Ended, Reply, Tokens};
use super::gate::{Gate, LONGEST_PAUSE};
use super::kept::Said;
use super::transport::{Failure, Kind, Transport};
use super::weigh;
use verdict_client::ClientError;
use verdict_config::matches;
use verdict_eval::measure::{Form, Prompt, Question, Unmeasured, Usage};
use verdict_eval::recognise::Text;
use verdict_otlp::trace::TraceId;
use verdict_telemetry::JudgeCells;

/// The first wait between attempts; each is twice the one before, with as much again of jitter.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Longer than this no retry is worth while a trace waits for its verdict.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// An answer that cannot be used is asked for once more.
const ROUNDS: usize = 2;
/// Bytes that a token stands for at least, on average, in prose, JSON and scripts of three bytes a
/// letter: what is set aside should not be too little.
const FEWEST_BYTES: u64 = 3;
/// Bytes that a token of a long text stands for on average: more than the window of these are not sent.
const USUAL_BYTES: u64 = 4;
/// Of an answer that could not be used, this much is shown to its writer.
const MAX_SAID: usize = 8 << 10;

/// One judge.
#[derive(Debug)]
pub(super) struct Seat {
    pub name: Arc<str>,
    pub config: JudgeConfig,
    pub cells: JudgeCells,
    transport: Transport,
    gate: Gate,
    breaker: Breaker,
    external: bool,
    /// What was warned of: each kind of fault is told once, not once a question.
    told: Mutex<HashSet<&'static str>>,
}

/// A question, with what is worked out of it once for all judges.
#[derive(Debug)]
pub(super) struct Posed<'a> {
    pub question: &'a Question,
    pub mould: Mould<'a>,
    /// Hash of rubric and form.
    pub rubric: String,
    pub trace: TraceId,
    /// The services whose content the question shows.
    pub services: &'a [Text],
}

/// Why there is no reply.
enum Stopped {
    /// Nothing is left to spend.
    Budget,
    /// The judge is left alone.
    Open,
    /// The request failed.
    Failed(Failure),
}

impl Seat {
    pub fn new(name: &str, config: &JudgeConfig, cells: JudgeCells) -> Result<Seat, ClientError> {
        let transport = Transport::new(config)?;
        let external = config.external.unwrap_or(!verdict_client::is_loopback(transport.url()));
        cells.breaker.set(0);
        Ok(Seat {
            name: name.into(),
            config: config.clone(),
            cells,
            gate: Gate::new(config),
            breaker: Breaker::new(&config.breaker),
            transport,
            external,
            told: Mutex::default(),
        })
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        self.transport.url().as_str()
    }

    /// Whether it may be shown content of all these services.
    pub fn may_see(&self, services: &[Text], judging: &JudgingConfig) -> bool {
        let listed = |list: &[String]| services.iter().any(|name| list.iter().any(|p| matches(p, name)));
        let withheld =
            listed(&self.config.exclude_services) || (self.external && listed(&judging.keep_internal));
        !withheld
    }

    /// The body that asks `question`.
    pub fn body(&self, prompt: &Prompt, form: &Form, again: Option<&Again>) -> Bytes {
        self.config.dialect.write(Asked { config: &self.config, prompt, form, again })
    }

    /// Asks. `first` is the body of the question as [`Seat::body`] made it.
    pub async fn answer(
        &self,
        posed: &Posed<'_>,
        first: Bytes,
        spending: &Spending,
    ) -> (Result<Said, Unmeasured>, Usage) {
        let Posed { question, mould, trace, .. } = posed;
        let account = (spending, *trace);
        let mut usage = Usage::default();
        let mut body = first;
        for _ in 0..ROUNDS {
            let (reply, spent) = match self.reply(&body, account).await {
                Ok(found) => found,
                Err((reason, spent)) => {
                    add(&mut usage, spent);
                    return (Err(reason), usage);
                }
            };
            add(&mut usage, spent);
            let again = match read(&reply, mould) {
                Ok(value) => {
                    let score = question.form.score.as_ref();
                    let weighted = score.and_then(|f| weigh::weighted(&reply.text, &reply.tokens, f));
                    let judge = format!("{}/{}", self.config.model, posed.rubric);
                    return (Ok(Said { value, weighted, judge: judge.into(), usage }), usage);
                }
                Err((word, again)) => {
                    self.unusable(word);
                    again
                }
            };
            let Some(again) = again else { break };
            body = self.body(&question.prompt, &question.form, Some(&again));
        }
        (Err(Unmeasured::JudgeError), usage)
    }

    /// Sends a body until there is a reply, or no more sense in it.
    async fn reply(
        &self,
        body: &Bytes,
        account: (&Spending, TraceId),
    ) -> Result<(Reply, Amount), (Unmeasured, Amount)> {
        let mut spent = Amount::default();
        if body.len() as u64 / USUAL_BYTES + u64::from(self.config.max_tokens) > self.config.max_prompt_tokens
        {
            self.unusable("question_too_long");
            return Err((Unmeasured::JudgeError, spent));
        }
        let mut waits = ExponentialBuilder::default()
            .with_jitter()
            .with_min_delay(FIRST_WAIT)
            .with_max_delay(LONGEST_WAIT)
            .with_max_times(self.config.retries as usize)
            .build();
        loop {
            let failure = match Box::pin(self.hedged(body, account)).await {
                Ok((reply, cost)) => return Ok((reply, spent.plus(cost))),
                Err((Stopped::Budget, cost)) => return Err((Unmeasured::Budget, spent.plus(cost))),
                Err((Stopped::Open, cost)) => return Err((Unmeasured::JudgeError, spent.plus(cost))),
                Err((Stopped::Failed(failure), cost)) => {
                    spent = spent.plus(cost);
                    failure
                }
            };
            let hopeless = !failure.is_passing() || failure.after.is_some_and(|after| after > LONGEST_PAUSE);
            let wait = if hopeless { None } else { waits.next() };
            match wait {
                Some(wait) => sleep(wait).await,
                None if failure.kind == Kind::Slow => return Err((Unmeasured::Timeout, spent)),
                None => return Err((Unmeasured::JudgeError, spent)),
            }
        }
    }

    /// One attempt; where hedging is on and it takes long, two, of which the first reply counts.
    async fn hedged(
        &self,
        body: &Bytes,
        account: (&Spending, TraceId),
    ) -> Result<(Reply, Amount), (Stopped, Amount)> {
        let sent = Notify::new();
        let first = self.attempt(body, account, &sent);
        let Some(after) = self.config.hedge_after else { return first.await };
        tokio::pin!(first);
        // From when it is sent: while it waits for a place another would only wait behind it.
        let long = async {
            sent.notified().await;
            sleep(*after).await;
        };
        tokio::select! {
            ended = &mut first => return ended,
            () = long => {}
        }
        let second = self.attempt(body, account, &sent);
        tokio::pin!(second);
        let (ended, first_ended) = tokio::select! {
            ended = &mut first => (ended, true),
            ended = &mut second => (ended, false),
        };
        let Err((why, spent)) = ended else { return ended };
        // One has failed; the other is still under way.
        let rest = if first_ended { second.await } else { first.await };
        match rest {
            Ok((reply, cost)) => Ok((reply, spent.plus(cost))),
            // Of two reasons, the failure of the request that was sent says more.
            Err((Stopped::Failed(failure), cost)) => Err((Stopped::Failed(failure), spent.plus(cost))),
            Err((_, cost)) => Err((why, spent.plus(cost))),
        }
    }

    async fn attempt(
        &self,
        body: &Bytes,
        (spending, trace): (&Spending, TraceId),
        under_way: &Notify,
    ) -> Result<(Reply, Amount), (Stopped, Amount)> {
        let nothing = Amount::default();
        if self.breaker.is_shut(Instant::now()) {
            return Err((Stopped::Open, nothing));
        }
        let price = &self.config.price;
        let prompt = Tokens { input: (body.len() as u64).div_ceil(FEWEST_BYTES), ..Tokens::default() };
        let most = Tokens { output: u64::from(self.config.max_tokens), ..prompt };
        let reserved = spending.reserve(&self.name, trace, Amount::of(most, price)).await;
        let Some(mut reserved) = reserved else { return Err((Stopped::Budget, nothing)) };
        let place = {
            let _waiting = Counted::up(&self.cells.waiting);
            self.gate.enter().await
        };
        let pass = self.breaker.pass(Instant::now());
        let (Some(_place), Some(pass)) = (place, pass) else { return Err((Stopped::Open, nothing)) };
        let _in_flight = Counted::up(&self.cells.in_flight);
        let prompt_cost = Amount::of(prompt, price);
        reserved.sent(prompt_cost);
        under_way.notify_one();
        let started = Instant::now();
        let sent = timeout(*self.config.timeout, self.transport.post(body.clone())).await;
        let sent = sent.unwrap_or_else(|_| Err(Failure::new("timeout", Kind::Slow)));
        let read = sent.and_then(|body| self.config.dialect.read(&body));
        self.cells.request(read.as_ref().map_or_else(|f| f.status, |_| "ok"), started.elapsed());
        let result = match read {
            Ok(reply) => {
                pass.well();
                let counted = reply.usage.unwrap_or_else(|| Tokens {
                    output: (reply.text.len() as u64).div_ceil(FEWEST_BYTES),
                    ..prompt
                });
                let cost = Amount::of(counted, price);
                self.cells.spent([counted.input, counted.cached, counted.output], cost.usd());
                reserved.settle(cost);
                Ok((reply, cost))
            }
            Err(failure) => {
                // The prompt of a request that was given up may have been read all the same.
                let cost = if failure.kind == Kind::Slow { prompt_cost } else { nothing };
                reserved.settle(cost);
                self.failed(&failure, pass);
                Err((Stopped::Failed(failure), cost))
            }
        };
        self.show_health();
        result
    }

    fn failed(&self, failure: &Failure, pass: super::breaker::Pass<'_>) {
        let Failure { status, word, .. } = failure;
        if self.first(status) {
            tracing::warn!(judge = %self.name, status, error = %word, "a request to a judge failed; told once");
        } else {
            tracing::debug!(judge = %self.name, status, error = %word, "a request to a judge failed");
        }
        if let Some(after) = failure.after {
            self.gate.shut(after);
        }
        if failure.is_of_judge() {
            if pass.unwell(Instant::now()) {
                let open_for = *self.config.breaker.open_for;
                tracing::warn!(judge = %self.name, status, error = %word, ?open_for, "a judge fails time after time and is left alone");
            }
        } else if failure.kind == Kind::Unasked {
            pass.well();
        }
    }

    fn unusable(&self, fault: &'static str) {
        self.cells.unusable(fault);
        if self.first(fault) {
            tracing::warn!(judge = %self.name, fault, "an answer of a judge, or a question to it, cannot be used; told once");
        }
    }

    /// Whether `word` has not been told of.
    fn first(&self, word: &'static str) -> bool {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(word)
    }

    /// The gauge follows what is known now.
    pub fn show_health(&self) {
        self.cells.breaker.set(self.breaker.health(Instant::now()) as i64);
    }
}

/// What a reply comes to, or a word for what is wrong with it and, where asking again may help,
/// what is to be said.
fn read(reply: &Reply, mould: &Mould<'_>) -> Result<serde_json::Value, (&'static str, Option<Again>)> {
    let fault = match reply.ended {
        // Whoever refuses once refuses twice.
        Ended::Refused => return Err(("refused", None)),
        Ended::Cut => Fault::Cut,
        Ended::Whole => match mould.read(&reply.text) {
            Ok(value) => return Ok(value),
            Err(fault) => fault,
        },
    };
    let word = match fault {
        Fault::Cut => "cut",
        Fault::TooLong => "too_long",
        Fault::NoObject => "no_object",
        Fault::Several => "several",
        Fault::Unfit(_) => "unfit",
    };
    let shown = fault != Fault::Cut && !reply.text.trim().is_empty() && reply.text.len() <= MAX_SAID;
    let said = shown.then(|| reply.text.clone());
    Err((word, Some(Again { said, fault: fault.to_string() })))
}

fn add(usage: &mut Usage, spent: Amount) {
    *usage += Usage { tokens: spent.tokens, cost_usd: spent.usd() };
}

/// Counts one in a gauge for as long as it lives.
struct Counted<'a>(&'a prometheus_client::metrics::gauge::Gauge);

impl<'a> Counted<'a> {
    fn up(gauge: &'a prometheus_client::metrics::gauge::Gauge) -> Counted<'a> {
        gauge.inc();
        Counted(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
