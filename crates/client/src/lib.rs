//! Outgoing connections of exporters and judges: TLS settings, headers, HTTP clients.
//!
//! In: settings by the Collector's key names. Out: a `rustls` configuration, or an HTTP client that
//! follows no redirects, does not retry, and uses no proxy for loopback addresses.

#![deny(unreachable_pub)]

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url, redirect};
use verdict_config::Secret;

pub mod tls;

pub use tls::{Tls, TlsError};

/// The `User-Agent` of every request.
pub const USER_AGENT: &str = concat!("otel-verdict/", env!("CARGO_PKG_VERSION"));

/// A client cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The endpoint or URL cannot be parsed.
    #[error("endpoint: {0}")]
    Endpoint(String),
    /// The name or the value is not valid in HTTP.
    #[error("headers.{0}: not a valid HTTP header")]
    Header(String),
    /// TLS cannot be set up.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
}

/// Parses a URL with the scheme `http` or `https` and a host.
///
/// # Errors
/// The text is no such URL; the message contains it.
pub fn http_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("'{text}' is not a URL: {error}"))?;
    match matches!(url.scheme(), "http" | "https") && url.has_host() {
        true => Ok(url),
        false => Err(format!("'{text}' must begin with http:// or https:// and name a host")),
    }
}

/// Appends a path, which begins with a slash or is empty, to that of a URL.
pub fn append_path(url: &mut Url, path: &str) {
    let path = format!("{}{path}", url.path().trim_end_matches('/'));
    url.set_path(&path);
}

/// A header with its value, marked sensitive so that it is never printed.
///
/// # Errors
/// The name or the value is not valid in HTTP.
pub fn header(name: &str, value: &Secret) -> Result<(HeaderName, HeaderValue), ClientError> {
    let invalid = || ClientError::Header(name.to_owned());
    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
    let mut value = HeaderValue::from_str(value.expose()).map_err(|_| invalid())?;
    value.set_sensitive(true);
    Ok((header, value))
}

/// The configured headers, with sensitive values.
///
/// # Errors
/// The first header that is not valid in HTTP.
pub fn headers(all: &BTreeMap<String, Secret>) -> Result<HeaderMap, ClientError> {
    all.iter().map(|(name, value)| header(name, value)).collect()
}

/// A client for `urls` that follows no redirects and does not retry. A request fails after `timeout`,
/// counted from sending to the last byte of the response. Up to `max_idle` unused connections per host are
/// kept open.
///
/// # Errors
/// TLS or the client cannot be set up.
pub fn client(
    urls: &[&Url],
    settings: &Tls,
    timeout: Duration,
    max_idle: usize,
) -> Result<Client, ClientError> {
    let uses_tls = urls.iter().any(|url| url.scheme() == "https");
    let loopback = urls.iter().all(|url| is_loopback(url));
    let tls = match (uses_tls, loopback) {
        (true, _) => tls::client_config(settings, &[b"h2", b"http/1.1"])?,
        (false, true) => tls::without_authorities()?,
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
        .pool_max_idle_per_host(max_idle);
    if loopback {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|e| ClientError::Endpoint(reasons(&e)))
}

/// Whether the URL's host is this machine.
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

/// The messages of an error and its sources, without repetitions.
pub fn reasons(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |e| e.source()).take(8);
    let mut messages: Vec<String> = Vec::new();
    for text in chain.map(ToString::to_string) {
        if messages.iter().all(|message| !message.contains(&text)) {
            messages.push(text);
        }
    }
    messages.join(": ")
}

/// Parses `Retry-After`: seconds, or a date, which is compared with `now`. `None` if the value is neither.
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
    fn retry_after_parses_seconds_and_dates() {
        let now = httpdate::parse_http_date("Sat, 21 Nov 2026 04:00:00 GMT").unwrap();
        let read = |text| retry_after(&HeaderValue::from_static(text), now);
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read("Sat, 21 Nov 2026 04:01:30 GMT"), Some(Duration::from_secs(90)));
        assert_eq!(read("Sat, 21 Nov 2026 03:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("soon"), None);
    }
}
