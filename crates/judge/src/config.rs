//! `judges:` and `judging:` - who answers questions, and what holds for all of them together.
//!
//! What is of one endpoint stands under its judge: where it is, how it is asked, how much it
//! bears, what it costs, and a budget for what that provider may get. What protects the operator
//! whoever answers stands under `judging`: the budget of a trace, an hour and a day over all
//! judges (the bill is one), the cache (questions carry their endpoint and model in their key, so
//! one folder and one bound do), and the services whose content no external judge may see.

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
    /// Default `openai`. What the endpoint speaks.
    pub dialect: Dialect,
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
    /// Default 32768. The model's window, for prompt and answer together. Longer prompts are not
    /// sent: some servers would cut them silently.
    pub max_prompt_tokens: u64,
    /// Default 2048. Most tokens of an answer; a longer one is cut and asked for once more.
    pub max_tokens: u32,
    /// Default 1. Independent answers to each question (self-consistency): costs as many times.
    pub samples: u32,
    /// Default 0 with one sample, 0.7 with more, which at 0 would all be the same.
    pub temperature: Option<f64>,
    /// Default `schema`. How the server is told the shape of an answer; every answer is checked
    /// here all the same.
    pub format: Format,
    /// Default false. Ask for probabilities of tokens and weigh scores by them. Some models refuse.
    pub logprobs: bool,
    /// Default none. Laid over the body of every request; null takes a key out:
    /// `{ max_completion_tokens: 2048, max_tokens: null, temperature: null }`.
    pub body: BTreeMap<String, Value>,
    /// Default 60s. How long one attempt may take, from sending to the last byte.
    pub timeout: Period,
    /// Default 16. Requests in flight at once; more wait.
    pub max_concurrency: usize,
    /// Default none. Requests a minute, spread evenly.
    pub requests_per_minute: Option<u32>,
    /// Default 2. Attempts after the first where the server is away, overloaded or fails.
    pub retries: u32,
    /// Default off. Send a question once more if there is no answer after this, and take whichever
    /// comes first: shorter tails, more cost.
    pub hedge_after: Option<Period>,
    /// When a judge that fails is left alone.
    pub breaker: BreakerConfig,
    /// USD per million tokens. Default 0: budgets in money then bound nothing.
    pub price: Price,
    /// Default none. What this judge may be given, beside the budget of all under `judging`.
    pub budget: BudgetConfig,
    /// Default none. Answer from this file alone, which `record` wrote; the endpoint is not asked.
    pub replay: Option<PathBuf>,
    /// Default none. Append every answer to this file. It quotes what was judged.
    pub record: Option<PathBuf>,
}

impl Default for JudgeConfig {
    fn default() -> JudgeConfig {
        JudgeConfig {
            endpoint: String::new(),
            dialect: Dialect::default(),
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
    /// As configured, else 0 for one answer and 0.7 for several: independent answers need it.
    pub fn temperature(&self) -> f64 {
        self.temperature.unwrap_or(if self.samples > 1 { 0.7 } else { 0.0 })
    }
}

/// What an endpoint speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// Chat completions, as most servers have them.
    #[default]
    Openai,
    /// Anthropic's Messages.
    Anthropic,
    /// A cross-encoder's `/rerank`: no judge, but what orders proofs for checklists.
    Rerank,
}

/// How a server is told the shape of an answer. `anthropic` is always given a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A strict JSON schema, which the server enforces.
    #[default]
    Schema,
    /// Some JSON object; the schema stands in the prompt.
    Object,
    /// The schema stands in the prompt, and that is all.
    Text,
}

/// When a judge that fails is left alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerConfig {
    /// Default 5. Failures in a row, after which nothing is sent.
    pub failures: u32,
    /// Default 30s. For how long; then one request tries, and the others wait for what it finds.
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
    /// Default: as `input`. Of what the server had of the prompt already.
    pub cached: Option<f64>,
}

/// What may be spent. What is not given is not bounded.
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

/// `judging:` - what holds for all judges together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JudgingConfig {
    /// Default none. What all judges together may be given. What is over it is unmeasured
    /// (`budget`). Counted anew when the process starts.
    pub budget: BudgetConfig,
    /// Answers that are kept.
    pub cache: CacheConfig,
    /// Default none. Services whose content no external judge may see; `*` at the end matches any
    /// rest.
    pub keep_internal: Vec<String>,
}

/// Answers that are kept, so that a question is paid for once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Default 10000. Answers in memory, some 2 KiB each; 0 keeps none.
    pub entries: u64,
    /// Default none. A folder for answers, which then outlive the process. One process a folder.
    /// They quote what was judged; readable by their owner only.
    pub directory: Option<PathBuf>,
    /// Default 256MiB. Most bytes of the folder; the oldest answers go first.
    pub max_bytes: Size,
}

impl Default for CacheConfig {
    fn default() -> CacheConfig {
        CacheConfig { entries: 10_000, directory: None, max_bytes: Size(256 << 20) }
    }
}
