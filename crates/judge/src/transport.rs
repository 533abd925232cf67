//! One request to a judge over HTTP, and what may go wrong with it.
//!
//! In: an encoded body. Out: the bytes of a 200, bounded, or a [`Failure`] that says what to do
//! about it. What a server wrote into an error is never passed on but for one word of it: servers
//! quote keys and prompts there.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use serde_json::Value;

use super::config::{Dialect, JudgeConfig};
use verdict_client::ClientError;
use verdict_config::Secret;

/// An answer of some thousand tokens with probabilities is below 1 MiB.
const MAX_BODY: usize = 4 << 20;
/// Of an error's body: enough to find its type.
const MAX_ERROR_BODY: usize = 64 << 10;
/// The version of the Messages API whose shapes `anthropic` reads and writes.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// Why there is no answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    /// One of a fixed set of words, for metrics.
    pub status: &'static str,
    /// What follows from it.
    pub kind: Kind,
    /// How long the server wants to be left alone.
    pub after: Option<Duration>,
    /// The type of the error, by the server's word.
    pub word: String,
}

/// What follows from a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Away or broken: another attempt may succeed.
    Away,
    /// No answer in time. The prompt may have been read and charged for.
    Slow,
    /// It asks for patience.
    Busy,
    /// It will not answer anybody as it is configured: key, address, model.
    Barred,
    /// It will not answer this question: too long, a key it does not know.
    Unasked,
}

impl Failure {
    /// Without a word of the server's.
    pub fn new(status: &'static str, kind: Kind) -> Failure {
        Failure { status, kind, after: None, word: String::new() }
    }

    /// Another attempt may succeed.
    pub fn is_passing(&self) -> bool {
        matches!(self.kind, Kind::Away | Kind::Slow | Kind::Busy)
    }

    /// It says that the judge is unwell, not that the question was. A server that says when to come
    /// back is well.
    pub fn is_of_judge(&self) -> bool {
        match self.kind {
            Kind::Away | Kind::Slow | Kind::Barred => true,
            Kind::Busy => self.after.is_none(),
            Kind::Unasked => false,
        }
    }

    /// By an HTTP status.
    pub fn of_status(status: u16) -> Failure {
        let (status, kind) = match status {
            400 => ("http_400", Kind::Unasked),
            401 => ("http_401", Kind::Barred),
            403 => ("http_403", Kind::Barred),
            404 => ("http_404", Kind::Barred),
            408 => ("http_408", Kind::Away),
            413 => ("http_413", Kind::Unasked),
            422 => ("http_422", Kind::Unasked),
            429 => ("http_429", Kind::Busy),
            402..=499 => ("http_4xx", Kind::Barred),
            500 => ("http_500", Kind::Away),
            502 => ("http_502", Kind::Away),
            503 => ("http_503", Kind::Away),
            504 => ("http_504", Kind::Away),
            501..=599 => ("http_5xx", Kind::Away),
            300..=399 => ("http_3xx", Kind::Barred),
            _ => ("http_other", Kind::Away),
        };
        Failure::new(status, kind)
    }

    /// With the type out of an error's body, as both dialects have it.
    pub fn with_word(mut self, body: &Value) -> Failure {
        let error = body.get("error").unwrap_or(body);
        let word = ["code", "type"].iter().find_map(|key| error.get(*key)?.as_str()).unwrap_or_default();
        let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        self.word = word.chars().take(MAX_WORD).filter(plain).collect();
        self
    }
}

/// Types of errors are shorter.
const MAX_WORD: usize = 64;

/// The URL that questions go to.
pub(super) fn url(config: &JudgeConfig) -> Result<Url, String> {
    if config.endpoint.is_empty() {
        return Err("where the judge is, is needed, as http://host:port/v1".to_owned());
    }
    let mut url =
        Url::parse(&config.endpoint).map_err(|why| format!("'{}' is not a URL: {why}", config.endpoint))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(format!("'{}' must begin with http:// or https:// and name a host", config.endpoint));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("credentials stand under api_key or headers, not in the URL".to_owned());
    }
    let path = match config.dialect {
        Dialect::Openai => "/chat/completions",
        Dialect::Anthropic => "/messages",
        Dialect::Rerank => "/rerank",
    };
    let path = format!("{}{path}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

/// The way to one endpoint.
#[derive(Debug)]
pub(super) struct Transport {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

impl Transport {
    /// Reads files (TLS); connects with the first request.
    pub fn new(config: &JudgeConfig) -> Result<Transport, ClientError> {
        let url = url(config).map_err(ClientError::Endpoint)?;
        let client = verdict_client::client(&[&url], &config.tls, *config.timeout, config.max_concurrency)?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if config.dialect == Dialect::Anthropic {
            let name = HeaderName::from_static("anthropic-version");
            headers.insert(name, HeaderValue::from_static(ANTHROPIC_VERSION));
        }
        headers.extend(verdict_client::headers(&key(config).into_iter().collect())?);
        // What is configured goes before what is made up.
        headers.extend(verdict_client::headers(&config.headers)?);
        Ok(Transport { client, url, headers })
    }

    /// Where it goes to.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Sends one body; takes at most the timeout.
    pub async fn post(&self, body: Bytes) -> Result<Bytes, Failure> {
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let mut response = request.send().await.map_err(|e| of_error(&e))?;
        let status = response.status().as_u16();
        if status != 200 {
            let after = response.headers().get(RETRY_AFTER);
            let after = after.and_then(|v| verdict_client::retry_after(v, SystemTime::now()));
            let body = read(&mut response, MAX_ERROR_BODY).await.unwrap_or_default();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            return Err(Failure { after, ..Failure::of_status(status) }.with_word(&body));
        }
        read(&mut response, MAX_BODY).await
    }
}

fn key(config: &JudgeConfig) -> Option<(String, Secret)> {
    let key = config.api_key.as_ref()?.expose();
    Some(match config.dialect {
        Dialect::Openai | Dialect::Rerank => {
            ("authorization".to_owned(), Secret::new(format!("Bearer {key}")))
        }
        Dialect::Anthropic => ("x-api-key".to_owned(), Secret::new(key)),
    })
}

async fn read(response: &mut Response, most: usize) -> Result<Bytes, Failure> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|e| of_error(&e))? {
        if body.len() + chunk.len() > most {
            return Err(Failure::new("too_large", Kind::Away));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.into())
}

fn of_error(error: &reqwest::Error) -> Failure {
    match error.is_timeout() {
        true => Failure::new("timeout", Kind::Slow),
        false => Failure::new("connection", Kind::Away),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_dialect_is_appended_and_credentials_do_not_stand_in_urls() {
        let at = |endpoint: &str, dialect| {
            url(&JudgeConfig { endpoint: endpoint.to_owned(), dialect, ..JudgeConfig::default() })
        };
        let plain = at("http://h:1/v1/", Dialect::Openai).unwrap();
        assert_eq!(plain.as_str(), "http://h:1/v1/chat/completions");
        let other = at("https://h/v1?a=b", Dialect::Anthropic).unwrap();
        assert_eq!(other.as_str(), "https://h/v1/messages?a=b");
        for bad in ["", "h:1", "ftp://h", "http://", "https://me:pw@h"] {
            let error = at(bad, Dialect::Openai).unwrap_err();
            assert!(!error.contains("pw"), "{error}");
        }
    }

    #[test]
    fn what_a_server_says_of_an_error_is_one_plain_word() {
        let word = |body: &str| {
            Failure::of_status(400).with_word(&serde_json::from_str(body).unwrap_or_default()).word
        };
        assert_eq!(
            word(r#"{"error":{"type":"invalid_request_error","code":null}}"#),
            "invalid_request_error"
        );
        assert_eq!(word(r#"{"error":{"code":"a b\n\u001b[31m<sk-1>","message":"sk-2"}}"#), "ab31msk-1");
        assert_eq!(word("[1]"), "");
        assert_eq!(word(&format!(r#"{{"type":"{}"}}"#, "x".repeat(500))).len(), MAX_WORD);
    }

    #[test]
    fn every_status_but_200_is_a_failure_of_one_kind() {
        let passing = |s: &u16| Failure::of_status(*s).is_passing();
        let all: Vec<u16> = (201..600).filter(passing).collect();
        let clients: Vec<u16> = all.iter().copied().filter(|s| (300..500).contains(s)).collect();
        assert_eq!(clients, [408, 429]);
        assert!((500..600).all(|s| all.contains(&s)));
    }
}
