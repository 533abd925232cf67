//! Settings of `service.telemetry`.

use std::collections::BTreeMap;

use reqwest::Url;
use verdict_client::Tls;
use verdict_config::{Period, Problem, Secret, settings};

settings! {
    /// Telemetry of this process as OTLP over HTTP.
    pub struct TelemetryConfig {
        /// Base URL; `/v1/traces` and `/v1/metrics` are appended. No default. Proxies are taken from the environment,
        /// except for a loopback address; redirects are not followed.
        endpoint: String,
        /// Sent with every request; values are secrets. Default: none.
        headers: BTreeMap<String, Secret>,
        /// TLS; the URL decides whether it is used.
        tls: Tls,
        /// Default true: spans of requests, of evaluated traces and of requests to judges. They contain no content.
        traces: bool = true,
        /// Share of these spans that is recorded, from 0 to 1, by trace. Default 1.
        sampling_ratio: f64 = 1.0,
        /// Default true: the metrics of `/metrics` are pushed.
        metrics: bool = true,
        /// Time between two pushes of metrics. Default 60s.
        interval: Period = Period::secs(60),
        /// Timeout of one request. Default 10s. Nothing is retried: metrics are cumulative, and spans are lost.
        timeout: Period = Period::secs(10),
    }
}

impl TelemetryConfig {
    /// The URL of a signal.
    pub(super) fn url(&self, path: &str) -> Result<Url, String> {
        let text = &self.endpoint;
        if text.is_empty() {
            return Err("required, for example http://127.0.0.1:4318".to_owned());
        }
        let mut url = verdict_client::http_url(text)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("contains credentials; configure them as headers".to_owned());
        }
        verdict_client::append_path(&mut url, path);
        Ok(url)
    }

    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if let Err(message) = self.url("") {
            problems.push(Problem::new("endpoint", message));
        }
        for (name, value) in &self.headers {
            if verdict_client::header(name, value).is_err() {
                problems.push(Problem::new(format!("headers.{name}"), "not a valid HTTP header"));
            }
        }
        if !(0.0..=1.0).contains(&self.sampling_ratio) {
            problems.push(Problem::new("sampling_ratio", "must be between 0 and 1"));
        }
        for (key, period) in [("interval", self.interval), ("timeout", self.timeout)] {
            if period.is_zero() {
                problems.push(Problem::new(key, "must be above 0"));
            }
        }
        problems
    }
}
