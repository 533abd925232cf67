//! `judges:` and `judging:` - the judges that answer questions, and the settings for all of them.
//!
//! `judges.<name>` configures one endpoint: its address, requests, limits, prices and budget. `judging`
//! configures all judges together: budgets, the cache (one folder for all, since keys contain endpoint
//! and model), and services whose content is withheld from external judges.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use verdict_client::Tls;
use verdict_config::{Period, Secret, Size, settings};

/// Typical number of bytes per token of a long text, with which prompts are compared with the context window.
pub(crate) const BYTES_PER_TOKEN: u64 = 4;

/// The `judges` section, by name.
pub type JudgeConfigs = BTreeMap<String, JudgeConfig>;

settings! {
    /// One judge: a model behind an endpoint.
    pub struct JudgeConfig {
        /// No default. Base URL, such as `http://host:port/v1`; the path of the API is appended
        /// (`/chat/completions`, `/messages`, `/rerank` or
        /// `/embeddings`; of `evaluator`, it is the whole URL). Proxies of the environment are used except
        /// for loopback addresses; redirects are not followed.
        endpoint: String,
        /// Default `openai`. The API of the endpoint: `openai` (chat completions), `anthropic` (Messages),
        /// `rerank` (a cross-encoder, which only checklists use), `embeddings` (vectors of texts, which only
        /// `otel-verdict consistency` uses) or `evaluator` (a program that answers metrics of
        /// `verdict.evaluators`).
        #[schemars(extend("enum" = ["openai", "anthropic", "rerank", "embeddings", "evaluator"]))]
        dialect: String = "openai".to_owned(),
        /// No default. The name of the model at the endpoint; of an evaluator, its name and version, with which cached
        /// answers change.
        model: String,
        /// Default none. Sent as a bearer token, or as `x-api-key` (`anthropic`).
        api_key: Option<Secret>,
        /// Default none. Headers of every request; values are secrets.
        headers: BTreeMap<String, Secret>,
        /// TLS settings, used if the URL begins with `https://`.
        tls: Tls,
        /// Default: true unless the endpoint is a loopback address. Content of services under
        /// `judging.keep_internal` is withheld from external judges.
        external: Option<bool>,
        /// Default none. Services whose content is withheld from this judge; `*` at the end of a name matches any
        /// suffix.
        exclude_services: Vec<String>,
        /// Default 32768. The model's context window in tokens, prompt and answer together. Longer prompts are
        /// not sent, since some servers truncate them silently; their questions are unmeasured.
        max_prompt_tokens: u64 = 32_768,
        /// Default 2048. Largest number of tokens of an answer. A longer answer is truncated by the server and
        /// requested once more.
        max_tokens: u32 = 2048,
        /// Default 1. Independent answers to each question (self-consistency), at most 100; multiplies the cost.
        samples: u32 = 1,
        /// Default 0 with one sample and 0.7 with several, since all samples would be equal at 0. From 0 to 2. Not
        /// sent to a server that refuses it.
        temperature: Option<f64>,
        /// Default none: the default of the server. How much the model reasons before it answers: `none`, `minimal`,
        /// `low`, `medium`, `high`, `xhigh` or `max`. Tokens of reasoning are in addition to `max_tokens`.
        reasoning_effort: Option<ReasoningEffort>,
        /// Default `schema`. How a request contains the schema of an answer. Every answer is validated in any case.
        format: Format,
        /// Default false. Request the probabilities of tokens and weight scores by them. Some models refuse.
        logprobs: bool = false,
        /// Default none. Merged into the body of every request; null removes a key: `{ top_p: 0.9, max_tokens: null }`.
        /// Parameters that the server refuses (`max_tokens`, a temperature, a schema) are left out without an entry.
        body: BTreeMap<String, Value>,
        /// Default 60s. Timeout of one attempt, from sending to the last byte.
        timeout: Period = Period::secs(60),
        /// Default 16. Maximum number of requests in flight, 1 to 1024; further requests wait.
        max_concurrency: usize = 16,
        /// Default none. Maximum number of requests per minute, spread evenly; further requests wait.
        requests_per_minute: Option<u32>,
        /// Default 2. Number of retries, at most 20, with growing delays, if the server is unreachable, overloaded,
        /// slow or returns an invalid response.
        retries: u32 = 2,
        /// Default none. If there is no answer after this time, the question is sent a second time and the first answer
        /// is used: lower tail latency at a higher cost.
        hedge_after: Option<Period>,
        /// The circuit breaker, which stops requests to a failing judge for a time.
        breaker: BreakerConfig,
        /// Prices in USD per million tokens. Default 0: budgets in USD then limit nothing.
        price: Price,
        /// Default none. The budget of this judge, in addition to `judging.budget`.
        budget: BudgetConfig,
        /// Default none. Answer from this file only, which `record` wrote; the endpoint is not used.
        replay: Option<PathBuf>,
        /// Default none. Append every answer to this file. Answers quote the judged content.
        record: Option<PathBuf>,
    }

    /// The circuit breaker, which stops requests to a failing judge for a time.
    pub struct BreakerConfig {
        /// Default 5. Number of failures in a row after which no requests are sent.
        failures: u32 = 5,
        /// Default 30s. Time for which no requests are sent. Then one request is sent as a probe; if it succeeds,
        /// requests are sent again.
        open_for: Period = Period::secs(30),
    }

    /// Prices in USD per million tokens.
    #[derive(Copy)]
    pub struct Price {
        /// Default 0. Tokens of the prompt.
        input: f64 = 0.0,
        /// Default 0. Tokens of the answer.
        output: f64 = 0.0,
        /// Default: as `input`. Tokens of the prompt that the server read from its cache.
        cached: Option<f64>,
        /// Default: as `input`. Tokens of the prompt that the server wrote to its cache, for which some providers
        /// charge more.
        cache_write: Option<f64>,
    }

    /// Limits of spending. A limit that is not given does not apply.
    #[derive(Copy)]
    pub struct BudgetConfig {
        /// Default none. The limit for one trace.
        per_trace: Limit,
        /// Default none. The limit for any sixty minutes.
        per_hour: Limit,
        /// Default none. The limit for any twenty-four hours.
        per_day: Limit,
    }

    /// A limit in tokens, in USD, or both.
    #[derive(Copy)]
    pub struct Limit {
        /// Default none. Tokens of prompts and answers.
        tokens: Option<u64>,
        /// Default none. USD, by the judges' prices.
        usd: Option<f64>,
    }

    /// `judging:` - settings for all judges together.
    pub struct JudgingConfig {
        /// Default none. The budget of all judges together. Questions beyond it are unmeasured (`budget`).
        /// Spending is counted from the start of the process, or with `storage.directory` across restarts.
        budget: BudgetConfig,
        /// The answer cache.
        cache: CacheConfig,
        /// Default none. Services whose content is withheld from external judges; `*` at the end of a name matches any
        /// suffix.
        keep_internal: Vec<String>,
        /// Default none. Pairs of judges, each with a name that can be used like the name of a judge. The first judge
        /// answers; the second answers where the answer of the first does not suffice.
        cascades: BTreeMap<String, CascadeConfig>,
    }

    /// Two judges. The second is asked where the answer of the first does not suffice; its answer then applies.
    pub struct CascadeConfig {
        /// No default. The name of a judge or of another cascade, typically with a small and cheap model.
        first: String,
        /// No default. The name of a judge or of another cascade, typically with a large and expensive model.
        then: String,
        /// Default 0.5. The second is asked if the score of the first is at most this far from the threshold, in points
        /// of the scale. The lowest whole score that passes and the highest that fails are 0.5 from it.
        margin: f64 = 0.5,
        /// Default 0.75. The second is asked if the first states a lower confidence (0 to 1). The prompt asks for the
        /// confidence unless `logprobs` weight the score, or this value is 0.
        confidence: f64 = 0.75,
        /// Default true. The second is asked if the first contradicts the rules: about the same metric, or by a pass on
        /// a span on which another metric fails.
        disagreement: bool = true,
        /// Default `[severity, trace]`. Cases in which the second is always asked: `severity` (the rules or the first
        /// found a failure of high severity), `agent` (questions about an agent's run), `trace` (questions about the
        /// whole trace). If this is known before, the first is not asked.
        stakes: Vec<EscalationRule> = vec![EscalationRule::Severity, EscalationRule::Trace],
    }

    /// The answer cache: a question that was answered before is not sent again.
    pub struct CacheConfig {
        /// Default 10000. Number of answers in memory, about 2 KiB each; with 0 none are cached in memory.
        entries: u64 = 10_000,
        /// Default none. A folder for answers, which then survive a restart. One process per folder. Answers
        /// quote the judged content; only their owner may read them.
        directory: Option<PathBuf>,
        /// Default 256MiB. Largest size of the folder; the oldest answers are removed first.
        max_bytes: Size = Size(256 << 20),
    }
}

impl Limit {
    /// Whether there is a limit.
    pub fn is_limited(self) -> bool {
        self.tokens.is_some() || self.usd.is_some()
    }
}

impl JudgeConfig {
    /// The configured temperature, otherwise 0 for one sample and 0.7 for several. `body` may replace it.
    pub fn temperature(&self) -> f64 {
        self.temperature.unwrap_or(if self.samples > 1 { 0.7 } else { 0.0 })
    }

    /// Whether a request of this many bytes and its answer fit into the context window, estimated by a
    /// typical number of bytes per token. Requests that do not fit are not sent.
    pub fn accepts(&self, bytes: u64) -> bool {
        bytes / BYTES_PER_TOKEN + u64::from(self.max_tokens) <= self.max_prompt_tokens
    }

    /// Whether the same question always has the same answer according to the configuration: the temperature is 0, or
    /// answers are replayed.
    pub fn is_deterministic(&self) -> bool {
        let sent = match self.body.get("temperature") {
            // The server's default applies.
            Some(Value::Null) => None,
            Some(replaced) => replaced.as_f64(),
            None => Some(self.temperature()),
        };
        self.replay.is_some() || sent == Some(0.0)
    }
}

/// Maximum number of judges of one cascade.
pub(crate) const MAX_MEMBERS: usize = 16;

impl JudgingConfig {
    /// The judges behind a name: the judge of this name, or the judges of a cascade in the order in which they are
    /// asked.
    pub fn members<'a>(&'a self, name: &'a str) -> Vec<&'a str> {
        let (mut names, mut judges) = (vec![name], Vec::new());
        // Validation rejects cycles; the bounds end the loop even with one.
        while let Some(name) = names.pop().filter(|_| judges.len() <= MAX_MEMBERS) {
            match self.cascades.get(name).filter(|_| names.len() <= MAX_MEMBERS) {
                Some(cascade) => names.extend([cascade.then.as_str(), &cascade.first]),
                None => judges.push(name),
            }
        }
        judges
    }
}

/// A kind of question that the second judge of a cascade is asked in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EscalationRule {
    /// The rules or the first judge found a failure of high severity on the span.
    Severity,
    /// The question is about an agent's run.
    Agent,
    /// The question is about the whole trace.
    Trace,
}

/// How much a model reasons before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    /// No reasoning, if the model supports that.
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

impl ReasoningEffort {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ReasoningEffort::None => "none",
            ReasoningEffort::Minimal => "minimal",
            ReasoningEffort::Low => "low",
            ReasoningEffort::Medium => "medium",
            ReasoningEffort::High => "high",
            ReasoningEffort::Xhigh => "xhigh",
            ReasoningEffort::Max => "max",
        }
    }

    /// Tokens of reasoning that an answer may take in addition to `max_tokens`. Anthropic accepts 1024 or more.
    pub(crate) fn tokens(self) -> u32 {
        match self {
            ReasoningEffort::None => 0,
            ReasoningEffort::Minimal => 1_024,
            ReasoningEffort::Low => 4_096,
            ReasoningEffort::Medium => 8_192,
            ReasoningEffort::High => 16_384,
            ReasoningEffort::Xhigh | ReasoningEffort::Max => 32_768,
        }
    }
}

/// How a request contains the schema of an answer. `anthropic` always uses a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// As a strict JSON schema, which the server enforces.
    #[default]
    Schema,
    /// In the prompt; the server is asked to ensure a JSON object.
    Object,
    /// In the prompt only.
    Text,
}
