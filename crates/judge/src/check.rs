//! What may be wrong with `judges:` and `judging:`, as far as text tells.
//!
//! In: both sections. Out: faults, as (key, message), so that all of them show at once.

use std::collections::HashMap;
use std::path::Path;

use super::config::{BudgetConfig, JudgeConfig, JudgeConfigs, JudgingConfig};
use super::transport;
use verdict_config::Secret;

/// Most requests in flight: each is a connection where the server speaks HTTP/1.1.
const MAX_CONCURRENCY: usize = 1024;
/// More samples are statistics, not judging.
const MAX_SAMPLES: u32 = 100;
/// More attempts outlast any wait for a verdict.
const MAX_RETRIES: u32 = 20;

type Problems = Vec<(String, String)>;

/// Of `judges`, as (key below it, message), and of `judging`, likewise.
pub fn problems(judges: &JudgeConfigs, judging: &JudgingConfig) -> (Problems, Problems) {
    let mut found = Vec::new();
    let mut files: HashMap<&Path, &str> = HashMap::new();
    for (name, config) in judges {
        let mut add = |key: &str, message: &str| {
            let dot = if key.is_empty() { "" } else { "." };
            found.push((format!("{name}{dot}{key}"), message.to_owned()));
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name == "rules" || name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
            add("", "a judge's name is made of letters, digits, - and _; 'rules' are the built-in ones");
        }
        of_judge(config, &mut add);
        for (key, file) in [("replay", &config.replay), ("record", &config.record)] {
            let Some(file) = file else { continue };
            if let Some(other) = files.insert(file, name) {
                add(key, &format!("'{}' is the file of judge '{other}' already", file.display()));
            }
        }
    }
    let mut of_judging = Vec::new();
    budget(&judging.budget, &mut |key, message| of_judging.push((key.to_owned(), message.to_owned())));
    if judging.cache.max_bytes.0 < MIN_CACHE_BYTES {
        of_judging.push(("cache.max_bytes".to_owned(), "must be at least 1MiB".to_owned()));
    }
    (found, of_judging)
}

/// Less holds a handful of answers.
const MIN_CACHE_BYTES: u64 = 1 << 20;

fn of_judge(config: &JudgeConfig, add: &mut impl FnMut(&str, &str)) {
    match config.endpoint.is_empty() && config.replay.is_some() {
        // Nothing is asked then.
        true => {}
        false => {
            if let Err(why) = transport::url(config) {
                add("endpoint", &why);
            }
        }
    }
    if config.model.is_empty() && config.replay.is_none() {
        add("model", "which model is to answer is needed");
    }
    let key = config.api_key.iter().map(|key| ("api_key", Secret::new(format!("Bearer {}", key.expose()))));
    if key.map(|(name, key)| (name.to_owned(), key)).any(|(_, key)| !sendable("authorization", &key)) {
        add("api_key", "not a key that can be sent: it holds a line break or another control character");
    }
    for (name, value) in &config.headers {
        if !sendable(name, value) {
            add(&format!("headers.{name}"), "not a header that can be sent");
        }
    }
    if config.tls.cert_file.is_some() != config.tls.key_file.is_some() {
        add("tls", "cert_file and key_file need each other");
    }
    let mut within = |key: &str, fits: bool, message: &str| {
        if !fits {
            add(key, message);
        }
    };
    within("timeout", !config.timeout.is_zero(), "must be above 0");
    within(
        "max_concurrency",
        (1..=MAX_CONCURRENCY).contains(&config.max_concurrency),
        "must lie between 1 and 1024",
    );
    within("requests_per_minute", config.requests_per_minute != Some(0), "must be above 0");
    within("retries", config.retries <= MAX_RETRIES, "must be at most 20");
    within("samples", (1..=MAX_SAMPLES).contains(&config.samples), "must lie between 1 and 100");
    within("max_tokens", config.max_tokens > 0, "must be above 0");
    let room = config.max_prompt_tokens > u64::from(config.max_tokens);
    within("max_prompt_tokens", room, "must be above max_tokens: prompt and answer share the window");
    let temperature = config.temperature.is_none_or(|t| (0.0..=2.0).contains(&t));
    within("temperature", temperature, "must lie between 0 and 2");
    let same = config.samples > 1 && config.temperature == Some(0.0);
    within("temperature", !same, "at 0 all samples would be the same; leave it out, or samples at 1");
    within("hedge_after", config.hedge_after.is_none_or(|p| !p.is_zero()), "must be above 0");
    within("breaker.failures", config.breaker.failures > 0, "must be above 0");
    let amount = |usd: f64| usd.is_finite() && usd >= 0.0;
    let price = &config.price;
    for (key, usd) in [("input", Some(price.input)), ("output", Some(price.output)), ("cached", price.cached)]
    {
        within(&format!("price.{key}"), usd.is_none_or(amount), "must be 0 or more USD per million tokens");
    }
    let free = price.input == 0.0 && price.output == 0.0;
    let bounded = [&config.budget.per_trace, &config.budget.per_hour, &config.budget.per_day];
    let idle = free && bounded.iter().any(|limit| limit.usd.is_some());
    within("budget", !idle, "is in USD, but no price is given: nothing would be bounded");
    budget(&config.budget, &mut |key, message| add(key, message));
}

fn sendable(name: &str, value: &Secret) -> bool {
    verdict_client::headers(&[(name.to_owned(), value.clone())].into()).is_ok()
}

fn budget(config: &BudgetConfig, add: &mut impl FnMut(&str, &str)) {
    let all = [("per_trace", config.per_trace), ("per_hour", config.per_hour), ("per_day", config.per_day)];
    for (key, limit) in all {
        if limit.usd.is_some_and(|usd| !usd.is_finite() || usd < 0.0) {
            add(&format!("budget.{key}.usd"), "must be 0 or more USD");
        }
    }
}
