//! `judges:` and `judging:` - the judges that answer questions, and the settings for all of them.
//!
//! `judges.<name>` has what concerns one endpoint: its address, requests, limits, prices and budget.
//! `judging` has what protects the operator from all judges together: budgets, the cache (one folder
//! serves all, since keys contain endpoint and model), and services that no external judge may see.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use verdict_client::Tls;
use verdict_config::{Period, Secret, Size};

/// The `judges` section, by name.
pub type JudgeConfigs = BTreeMap<String, JudgeConfig>;

/// One judge: a model behind an endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JudgeConfig {
    /// Base URL; `/chat/completions` (or `/messages`) is appended. No default. Proxies are taken
    /// from the environment except for a loopback address; redirects are not followed.
    pub endpoint: String,
    /// Default `openai`. The API of the endpoint: `openai` (chat completions), `anthropic` (Messages) or
    /// `rerank` (a cross-encoder, which only checklists use).
    #[schemars(extend("enum" = ["openai", "anthropic", "rerank"]))]
    pub dialect: String,
    /// The model, as the endpoint names it. No default.
    pub model: String,
    /// Default none. Sent as a bearer token (`openai`) or `x-api-key` (`anthropic`).
    pub api_key: Option<Secret>,
    /// Default none. Sent with every request; values are secrets.
    pub headers: BTreeMap<String, Secret>,
    /// TLS, where the URL says `https`.
    pub tls: Tls,
    /// Default: true unless the endpoint is a loopback address. Content of services under
    /// `judging.keep_internal` never goes to an external judge.
    pub external: Option<bool>,
    /// Default none. Services whose content this judge is not shown; `*` at the end matches any rest.
    pub exclude_services: Vec<String>,
    /// Default 32768. The model's window for prompt and answer together. Longer prompts are not sent,
    /// since some servers would cut them silently.
    pub max_prompt_tokens: u64,
    /// Default 2048. Most tokens of an answer; a longer one is cut and asked for once more.
    pub max_tokens: u32,
    /// Default 1. Independent answers to each question (self-consistency): costs as many times.
    pub samples: u32,
    /// Default 0 with one sample, 0.7 with more, which at 0 would all be the same.
    pub temperature: Option<f64>,
    /// Default `schema`. How the schema of an answer is sent. Every answer is validated in
    /// any case.
    pub format: Format,
    /// Default false. Ask for probabilities of tokens and weigh scores by them. Some models refuse.
    pub logprobs: bool,
    /// Default none. Laid over the body of every request; null removes a key:
    /// `{ max_completion_tokens: 2048, max_tokens: null, temperature: null }`.
    pub body: BTreeMap<String, Value>,
    /// Default 60s. How long one attempt may take, from sending to the last byte.
    pub timeout: Period,
    /// Default 16. Requests in flight at once; more wait.
    pub max_concurrency: usize,
    /// Default none. Requests a minute, spread evenly.
    pub requests_per_minute: Option<u32>,
    /// Default 2. Attempts after the first if the server is unreachable, overloaded or fails.
    pub retries: u32,
    /// Default off. Sends a question once more if there is no answer after this time, and takes the first
    /// answer: shorter tails at a higher cost.
    pub hedge_after: Option<Period>,
    /// When nothing is sent to a judge that fails.
    pub breaker: BreakerConfig,
    /// USD per million tokens. Default 0: budgets in money then bound nothing.
    pub price: Price,
    /// Default none. What this judge may spend, in addition to the budget of all under `judging`.
    pub budget: BudgetConfig,
    /// Default none. Answers come only from this file, which `record` wrote; the endpoint is not asked.
    pub replay: Option<PathBuf>,
    /// Default none. Append every answer to this file. It quotes what was judged.
    pub record: Option<PathBuf>,
}

impl Default for JudgeConfig {
    fn default() -> JudgeConfig {
        JudgeConfig {
            endpoint: String::new(),
            dialect: "openai".to_owned(),
            model: String::new(),
            api_key: None,
            headers: BTreeMap::new(),
            tls: Tls::default(),
            external: None,
            exclude_services: Vec::new(),
            max_prompt_tokens: 32_768,
            max_tokens: 2048,
            samples: 1,
            temperature: None,
            format: Format::default(),
            logprobs: false,
            body: BTreeMap::new(),
            timeout: Period::secs(60),
            max_concurrency: 16,
            requests_per_minute: None,
            retries: 2,
            hedge_after: None,
            breaker: BreakerConfig::default(),
            price: Price::default(),
            budget: BudgetConfig::default(),
            replay: None,
            record: None,
        }
    }
}

impl JudgeConfig {
    /// As configured, otherwise 0 for one sample and 0.7 for several, which would be equal at 0.
    pub fn temperature(&self) -> f64 {
        self.temperature.unwrap_or(if self.samples > 1 { 0.7 } else { 0.0 })
    }
}

/// How the schema of an answer is sent. `anthropic` always uses a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A strict JSON schema, which the server enforces.
    #[default]
    Schema,
    /// Any JSON object; the schema is in the prompt.
    Object,
    /// The schema is in the prompt only.
    Text,
}

/// When nothing is sent to a judge that fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerConfig {
    /// Default 5. Failures in a row, after which nothing is sent.
    pub failures: u32,
    /// Default 30s. For how long. Then one request is sent; its success lets the others through.
    pub open_for: Period,
}

impl Default for BreakerConfig {
    fn default() -> BreakerConfig {
        BreakerConfig { failures: 5, open_for: Period::secs(30) }
    }
}

/// USD per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Price {
    /// Default 0. Of the prompt.
    pub input: f64,
    /// Default 0. Of the answer.
    pub output: f64,
    /// Default: as `input`. Of the part of the prompt that the server had cached.
    pub cached: Option<f64>,
}

/// What may be spent. A limit that is left out does not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetConfig {
    /// On one trace.
    pub per_trace: Limit,
    /// In any sixty minutes.
    pub per_hour: Limit,
    /// In any twenty-four hours.
    pub per_day: Limit,
}

/// A bound in tokens, in money, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limit {
    /// Default none. Tokens of prompts and answers.
    pub tokens: Option<u64>,
    /// Default none. USD, by the judges' prices.
    pub usd: Option<f64>,
}

/// `judging:` - settings for all judges together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JudgingConfig {
    /// Default none. What all judges together may spend. Questions beyond it are unmeasured
    /// (`budget`). Spending is counted from the start of the process.
    pub budget: BudgetConfig,
    /// The cache of answers.
    pub cache: CacheConfig,
    /// Default none. Services whose content no external judge may see; `*` at the end matches any
    /// rest.
    pub keep_internal: Vec<String>,
}

/// The cache of answers: a question is paid for once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Default 10000. Answers in memory, some 2 KiB each; 0 caches none there.
    pub entries: u64,
    /// Default none. A folder for answers, which then outlive the process. One process per folder.
    /// Answers quote what was judged; only their owner may read them.
    pub directory: Option<PathBuf>,
    /// Default 256MiB. Most bytes of the folder; the oldest answers are removed first.
    pub max_bytes: Size,
}

impl Default for CacheConfig {
    fn default() -> CacheConfig {
        CacheConfig { entries: 10_000, directory: None, max_bytes: Size(256 << 20) }
    }
}
