//! Outgoing connections of exporters and judges: TLS settings, headers, HTTP clients.
//!
//! In: settings by the Collector's key names. Out: a `rustls` configuration, or an HTTP client that
//! follows no redirect, retries nothing by itself and uses a proxy for no loopback address.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url, redirect};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict_config::Secret;

pub mod tls;

pub use tls::TlsError;

/// The `User-Agent` of every request.
pub const USER_AGENT: &str = concat!("otel-verdict/", env!("CARGO_PKG_VERSION"));

/// How a client does TLS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// No TLS, unless the endpoint says `https://`. Default false. Spans then travel in the clear.
    /// For HTTP the URL alone decides.
    pub insecure: bool,
    /// PEM file of authorities to trust. Default: the system's. With it, only these are trusted.
    pub ca_file: Option<PathBuf>,
    /// PEM file of the client's certificate chain. Default: none; needs `key_file`.
    pub cert_file: Option<PathBuf>,
    /// PEM file of the client's private key. Default: none; needs `cert_file`.
    pub key_file: Option<PathBuf>,
    /// The name that the server's certificate must carry. Default: the endpoint's host.
    pub server_name_override: Option<String>,
    /// Accept any certificate. Default false. Anybody on the path can then read and change spans.
    pub insecure_skip_verify: bool,
}

/// A client that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The endpoint (or URL) is not one.
    #[error("endpoint: {0}")]
    Endpoint(String),
    /// A header that cannot be sent.
    #[error("headers.{0}: not a header that can be sent")]
    Header(String),
    /// TLS cannot be set up.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
}

/// A header with its value, marked so that nothing prints it.
///
/// # Errors
/// Name or value cannot be sent.
pub fn header(name: &str, value: &Secret) -> Result<(HeaderName, HeaderValue), ClientError> {
    let bad = || ClientError::Header(name.to_owned());
    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
    let mut value = HeaderValue::from_str(value.expose()).map_err(|_| bad())?;
    value.set_sensitive(true);
    Ok((header, value))
}

/// The configured headers, marked so that nothing prints their values.
pub fn headers(all: &BTreeMap<String, Secret>) -> Result<HeaderMap, ClientError> {
    all.iter().map(|(name, value)| header(name, value)).collect()
}

/// A client of `urls` that follows no redirect, tries nothing again by itself, and takes at most
/// `timeout` from sending to the last byte.
pub fn client(urls: &[&Url], settings: &Tls, timeout: Duration, idle: usize) -> Result<Client, ClientError> {
    let secured = urls.iter().any(|url| url.scheme() == "https");
    let loopback = urls.iter().all(|url| is_loopback(url));
    let tls = match (secured, loopback) {
        (true, _) => tls::client_config(settings, &[b"h2", b"http/1.1"])?,
        (false, true) => tls::trusting_nobody()?,
        (false, false) => tls::for_proxy()?,
    };
    let mut builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .user_agent(USER_AGENT)
        .connect_timeout(timeout)
        .timeout(timeout)
        .tcp_nodelay(true)
        .pool_max_idle_per_host(idle);
    if loopback {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|e| ClientError::Endpoint(reasons(&e)))
}

/// Whether a URL names this machine.
pub fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
        None => false,
    }
}

/// An error with the causes that say what happened.
pub fn reasons(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |e| e.source()).take(8);
    let mut said: Vec<String> = Vec::new();
    for text in chain.map(ToString::to_string) {
        if said.iter().all(|s| !s.contains(&text)) {
            said.push(text);
        }
    }
    said.join(": ")
}

/// `Retry-After`: seconds, or a date.
pub fn retry_after(value: &HeaderValue, now: SystemTime) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_in_both_forms() {
        let now = httpdate::parse_http_date("Sat, 21 Nov 2026 04:00:00 GMT").unwrap();
        let read = |text| retry_after(&HeaderValue::from_static(text), now);
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read("Sat, 21 Nov 2026 04:01:30 GMT"), Some(Duration::from_secs(90)));
        assert_eq!(read("Sat, 21 Nov 2026 03:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("soon"), None);
    }
}
