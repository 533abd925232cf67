//! Validation of `judges:` and `judging:` without opening files or connections.

use std::collections::HashMap;
use std::path::Path;

use verdict_config::{Problem, Secret, nearest};

use crate::config::{BudgetConfig, JudgeConfig, JudgeConfigs, JudgingConfig};
use crate::extensions::JudgeExtensions;
use crate::http_provider;

/// With HTTP/1.1 each request in flight uses a connection.
const MAX_CONCURRENCY: usize = 1024;
/// More samples multiply the cost without a better median.
const MAX_SAMPLES: u32 = 100;
/// More attempts take longer than a trace may wait for a verdict.
const MAX_RETRIES: u32 = 20;
/// A file takes 4 KiB or more, so a smaller cache would contain few answers.
const MIN_CACHE_BYTES: u64 = 1 << 20;

/// The problems of `judges`, and those of `judging`; keys are relative to each section.
pub fn problems(
    judges: &JudgeConfigs,
    judging: &JudgingConfig,
    extensions: &JudgeExtensions,
) -> (Vec<Problem>, Vec<Problem>) {
    let mut found = Vec::new();
    let mut files: HashMap<&Path, &str> = HashMap::new();
    for (name, config) in judges {
        let mut own = Vec::new();
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name == "rules" || name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
            let message = "a judge's name consists of up to 64 letters, digits, - and _; 'rules' is reserved for the built-in rules";
            own.push(Problem::new("", message));
        }
        if !extensions.provides(name) {
            endpoint(config, extensions, &mut own);
        }
        values(config, &mut own);
        for (key, file) in [("replay", &config.replay), ("record", &config.record)] {
            let Some(file) = file else { continue };
            if let Some(other) = files.insert(file, name) {
                let message = format!("'{}' is already used by judge '{other}'", file.display());
                own.push(Problem::new(key, message));
            }
        }
        found.extend(own.into_iter().map(|problem| problem.below(name)));
    }
    let mut of_judging = Vec::new();
    budget(&judging.budget, &mut of_judging);
    if judging.cache.max_bytes.0 < MIN_CACHE_BYTES {
        of_judging.push(Problem::new("cache.max_bytes", "must be at least 1MiB"));
    }
    (found, of_judging)
}

/// Endpoint, dialect, model, credentials and TLS.
fn endpoint(config: &JudgeConfig, extensions: &JudgeExtensions, found: &mut Vec<Problem>) {
    // A judge that only replays needs no endpoint.
    let is_asked = !config.endpoint.is_empty() || config.replay.is_none();
    if is_asked && let Err(why) = http_provider::url(config, "") {
        found.push(Problem::new("endpoint", why));
    }
    let names = extensions.dialect_names();
    if !names.contains(&config.dialect.as_str()) {
        let message = format!("'{}' is not one of {}", config.dialect, names.join(", "));
        found.push(Problem::new("dialect", message).with_hint(nearest(&config.dialect, names)));
    }
    if config.model.is_empty() && config.replay.is_none() {
        found.push(Problem::new("model", "the name of the model is missing"));
    }
    let bearer = |key: &Secret| Secret::new(format!("Bearer {}", key.expose()));
    if config.api_key.as_ref().is_some_and(|key| !sendable("authorization", &bearer(key))) {
        let message = "is not valid in an HTTP header: it contains a line break or another control character";
        found.push(Problem::new("api_key", message));
    }
    for (name, value) in &config.headers {
        if !sendable(name, value) {
            found.push(Problem::new(format!("headers.{name}"), "not a valid HTTP header"));
        }
    }
    if config.tls.cert_file.is_some() != config.tls.key_file.is_some() {
        found.push(Problem::new("tls", "cert_file and key_file need each other"));
    }
}

fn values(config: &JudgeConfig, found: &mut Vec<Problem>) {
    let mut check = |key: &str, valid: bool, message: &str| {
        if !valid {
            found.push(Problem::new(key, message));
        }
    };
    check("timeout", !config.timeout.is_zero(), "must be above 0");
    let concurrency = (1..=MAX_CONCURRENCY).contains(&config.max_concurrency);
    check("max_concurrency", concurrency, "must lie between 1 and 1024");
    check("requests_per_minute", config.requests_per_minute != Some(0), "must be above 0");
    check("retries", config.retries <= MAX_RETRIES, "must be at most 20");
    check("samples", (1..=MAX_SAMPLES).contains(&config.samples), "must lie between 1 and 100");
    check("max_tokens", config.max_tokens > 0, "must be above 0");
    let room = config.max_prompt_tokens > u64::from(config.max_tokens);
    check("max_prompt_tokens", room, "must be above max_tokens: prompt and answer share the window");
    let temperature = config.temperature.is_none_or(|t| (0.0..=2.0).contains(&t));
    check("temperature", temperature, "must lie between 0 and 2");
    let same = config.samples > 1 && config.temperature == Some(0.0);
    check("temperature", !same, "at 0 all samples would be equal; omit it, or set samples to 1");
    check("hedge_after", config.hedge_after.is_none_or(|p| !p.is_zero()), "must be above 0");
    check("breaker.failures", config.breaker.failures > 0, "must be above 0");
    let price = &config.price;
    for (key, usd) in [("input", Some(price.input)), ("output", Some(price.output)), ("cached", price.cached)]
    {
        let message = "must be 0 or more USD per million tokens";
        check(&format!("price.{key}"), usd.is_none_or(is_amount), message);
    }
    let free = price.input == 0.0 && price.output == 0.0;
    let bounded = [&config.budget.per_trace, &config.budget.per_hour, &config.budget.per_day];
    let idle = free && bounded.iter().any(|limit| limit.usd.is_some());
    check("budget", !idle, "is in USD, but no price is configured, so it would limit nothing");
    budget(&config.budget, found);
}

fn is_amount(usd: f64) -> bool {
    usd.is_finite() && usd >= 0.0
}

fn sendable(name: &str, value: &Secret) -> bool {
    verdict_client::header(name, value).is_ok()
}

fn budget(config: &BudgetConfig, found: &mut Vec<Problem>) {
    let all = [("per_trace", config.per_trace), ("per_hour", config.per_hour), ("per_day", config.per_day)];
    for (key, limit) in all {
        if !limit.usd.is_none_or(is_amount) {
            found.push(Problem::new(format!("budget.{key}.usd"), "must be 0 or more USD"));
        }
    }
}
