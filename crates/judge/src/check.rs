//! Validation of `judges:` and `judging:` without opening files or connections.

use std::collections::HashMap;
use std::path::Path;

use verdict_config::{Problem, Secret, nearest};

use crate::config::{BudgetConfig, CascadeConfig, JudgeConfig, JudgeConfigs, JudgingConfig, MAX_MEMBERS};
use crate::dialects::EVALUATOR;
use crate::extensions::JudgeExtensions;
use crate::http_provider;

/// Largest `max_concurrency`: with HTTP/1.1 each request in flight uses a connection.
const MAX_CONCURRENCY: usize = 1024;
/// Largest `samples`: more samples multiply the cost without a better median.
const MAX_SAMPLES: u32 = 100;
/// Largest `retries`: more attempts take longer than a trace may wait for a verdict.
const MAX_RETRIES: u32 = 20;
/// Smallest `cache.max_bytes`: a file takes 4 KiB or more, so a smaller cache would contain few answers.
const MIN_CACHE_BYTES: u64 = 1 << 20;

/// The problems of `judges`, and those of `judging`; keys are relative to each section.
pub fn problems(
    judges: &JudgeConfigs,
    judging: &JudgingConfig,
    extensions: &JudgeExtensions,
) -> (Vec<Problem>, Vec<Problem>) {
    let mut out = Vec::new();
    let mut files: HashMap<&Path, &str> = HashMap::new();
    for (name, config) in judges {
        let mut judge_problems = Vec::new();
        if !is_valid_name(name) {
            judge_problems.push(Problem::new("", INVALID_NAME));
        }
        if !extensions.provides(name) {
            endpoint(config, extensions, &mut judge_problems);
        }
        check_values(config, &mut judge_problems);
        for (key, file) in [("replay", &config.replay), ("record", &config.record)] {
            let Some(file) = file else { continue };
            if let Some(other) = files.insert(file, name) {
                let message = format!("'{}' is already used by judge '{other}'", file.display());
                judge_problems.push(Problem::new(key, message));
            }
        }
        out.extend(judge_problems.into_iter().map(|problem| problem.in_section(name)));
    }
    let mut judging_problems = Vec::new();
    budget(&judging.budget, &mut judging_problems);
    if judging.cache.max_bytes.0 < MIN_CACHE_BYTES {
        judging_problems.push(Problem::new("cache.max_bytes", "must be at least 1MiB"));
    }
    for (name, cascade) in &judging.cascades {
        let problems = cascade_problems(name, cascade, judges, judging, extensions);
        judging_problems
            .extend(problems.into_iter().map(|problem| problem.in_section(name).in_section("cascades")));
    }
    (out, judging_problems)
}

const INVALID_NAME: &str = "a judge's name consists of up to 64 letters, digits, - and _; 'rules' is reserved for the built-in rules";

fn is_valid_name(name: &str) -> bool {
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name != "rules" && !name.is_empty() && name.len() <= 64 && name.chars().all(is_name_char)
}

fn cascade_problems(
    name: &str,
    cascade: &CascadeConfig,
    judges: &JudgeConfigs,
    judging: &JudgingConfig,
    extensions: &JudgeExtensions,
) -> Vec<Problem> {
    let mut out = Vec::new();
    if !is_valid_name(name) {
        out.push(Problem::new("", INVALID_NAME));
    }
    if judges.contains_key(name) || extensions.provides(name) {
        out.push(Problem::new("", "is the name of a judge too"));
    }
    for (key, member) in [("first", &cascade.first), ("then", &cascade.then)] {
        let dialect = judges.get(member).map(|judge| judge.dialect.as_str());
        let is_known =
            dialect.is_some() || judging.cascades.contains_key(member) || extensions.provides(member);
        if member.is_empty() {
            out.push(Problem::new(key, "is required: the name of a judge or of another cascade"));
        } else if !is_known {
            let known_names = judges.keys().chain(judging.cascades.keys()).map(String::as_str);
            let message = format!("'{member}' is not defined under judges or judging.cascades");
            out.push(Problem::new(key, message).with_hint(nearest(member, known_names)));
        } else if let Some(dialect @ ("rerank" | "embeddings" | EVALUATOR)) = dialect {
            let message = format!("'{member}' is of dialect '{dialect}', which gives no verdicts");
            out.push(Problem::new(key, message));
        }
    }
    if !(0.0..=100.0).contains(&cascade.margin) {
        out.push(Problem::new("margin", "must be a number of points, 0 or more"));
    }
    if !(0.0..=1.0).contains(&cascade.confidence) {
        out.push(Problem::new("confidence", "must lie between 0 and 1"));
    }
    if out.is_empty() {
        let members = judging.members(name);
        let is_repeated =
            |(i, member): &(usize, &&str)| members.iter().take(*i).any(|before| before == *member);
        if members.len() > MAX_MEMBERS {
            let message = format!("contains itself, or has more than {MAX_MEMBERS} judges");
            out.push(Problem::new("", message));
        } else if let Some((_, member)) = members.iter().enumerate().find(is_repeated) {
            out.push(Problem::new("", format!("asks '{member}' twice")));
        }
    }
    out
}

/// Endpoint, dialect, model, credentials and TLS.
fn endpoint(config: &JudgeConfig, extensions: &JudgeExtensions, out: &mut Vec<Problem>) {
    // A judge that only replays needs no endpoint.
    let is_asked = !config.endpoint.is_empty() || config.replay.is_none();
    if is_asked && let Err(reason) = http_provider::url(config, "") {
        out.push(Problem::new("endpoint", reason));
    }
    let names = extensions.dialect_names();
    if !names.contains(&config.dialect.as_str()) {
        let message = format!("'{}' is not one of {}", config.dialect, names.join(", "));
        out.push(Problem::new("dialect", message).with_hint(nearest(&config.dialect, names)));
    }
    if config.model.is_empty() && config.replay.is_none() {
        out.push(Problem::new("model", "the name of the model is missing"));
    }
    let bearer = |key: &Secret| Secret::new(format!("Bearer {}", key.expose()));
    if config.api_key.as_ref().is_some_and(|key| !is_valid_header("authorization", &bearer(key))) {
        let message = "is not valid in an HTTP header: it contains a line break or another control character";
        out.push(Problem::new("api_key", message));
    }
    for (name, value) in &config.headers {
        if !is_valid_header(name, value) {
            out.push(Problem::new(format!("headers.{name}"), "not a valid HTTP header"));
        }
    }
    if config.tls.cert_file.is_some() != config.tls.key_file.is_some() {
        out.push(Problem::new("tls", "cert_file and key_file need each other"));
    }
}

/// Limits, prices and other numbers.
fn check_values(config: &JudgeConfig, out: &mut Vec<Problem>) {
    let mut check = |key: &str, valid: bool, message: &str| {
        if !valid {
            out.push(Problem::new(key, message));
        }
    };
    check("timeout", !config.timeout.is_zero(), "must be above 0");
    let concurrency = (1..=MAX_CONCURRENCY).contains(&config.max_concurrency);
    check("max_concurrency", concurrency, "must lie between 1 and 1024");
    check("requests_per_minute", config.requests_per_minute != Some(0), "must be above 0");
    check("retries", config.retries <= MAX_RETRIES, "must be at most 20");
    check("samples", (1..=MAX_SAMPLES).contains(&config.samples), "must lie between 1 and 100");
    check("max_tokens", config.max_tokens > 0, "must be above 0");
    let above_max_tokens = config.max_prompt_tokens > u64::from(config.max_tokens);
    check(
        "max_prompt_tokens",
        above_max_tokens,
        "must be above max_tokens: prompt and answer share the window",
    );
    let temperature = config.temperature.is_none_or(|t| (0.0..=2.0).contains(&t));
    check("temperature", temperature, "must lie between 0 and 2");
    let has_equal_samples = config.samples > 1 && config.temperature == Some(0.0);
    check("temperature", !has_equal_samples, "at 0 all samples would be equal; omit it, or set samples to 1");
    check("hedge_after", config.hedge_after.is_none_or(|p| !p.is_zero()), "must be above 0");
    check("breaker.failures", config.breaker.failures > 0, "must be above 0");
    let price = &config.price;
    let (input, output) = (Some(price.input), Some(price.output));
    let prices =
        [("input", input), ("output", output), ("cached", price.cached), ("cache_write", price.cache_write)];
    for (key, usd) in prices {
        let message = "must be 0 or more USD per million tokens";
        check(&format!("price.{key}"), usd.is_none_or(is_amount), message);
    }
    let free = price.input == 0.0 && price.output == 0.0;
    let bounded = [&config.budget.per_trace, &config.budget.per_hour, &config.budget.per_day];
    let idle = free && bounded.iter().any(|limit| limit.usd.is_some());
    check("budget", !idle, "is in USD, but no price is configured, so it would limit nothing");
    budget(&config.budget, out);
}

fn is_amount(usd: f64) -> bool {
    usd.is_finite() && usd >= 0.0
}

fn is_valid_header(name: &str, value: &Secret) -> bool {
    verdict_client::header(name, value).is_ok()
}

fn budget(config: &BudgetConfig, out: &mut Vec<Problem>) {
    let all = [("per_trace", config.per_trace), ("per_hour", config.per_hour), ("per_day", config.per_day)];
    for (key, limit) in all {
        if !limit.usd.is_none_or(is_amount) {
            out.push(Problem::new(format!("budget.{key}.usd"), "must be 0 or more USD"));
        }
    }
}
