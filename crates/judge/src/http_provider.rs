//! The provider behind an HTTP endpoint.
//!
//! In: a request, written by a [`Dialect`]. Out: the reply of a 200 response of bounded size, or a [`Failure`].

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};
use reqwest::{Client, Response, Url};
use serde_json::Value;
use verdict_client::ClientError;
use verdict_config::Secret;

use crate::config::JudgeConfig;
use crate::dialect::Dialect;
use crate::failure::{Failure, FailureKind};
use crate::provider::{JudgeRequest, Provider, Reply, ReplyFuture};

/// Largest response in bytes. An answer of some thousand tokens with probabilities is below 1 MiB.
const MAX_BODY: usize = 4 << 20;
/// Largest error response in bytes; larger ones are ignored.
const MAX_ERROR_BODY: usize = 64 << 10;

/// The URL of an endpoint with `path` appended.
pub(crate) fn url(config: &JudgeConfig, path: &str) -> Result<Url, String> {
    let endpoint = &config.endpoint;
    if endpoint.is_empty() {
        return Err("the judge's base URL is missing, for example http://host:port/v1".to_owned());
    }
    let mut url = verdict_client::http_url(endpoint)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains credentials; configure them as api_key or headers".to_owned());
    }
    verdict_client::append_path(&mut url, path);
    Ok(url)
}

#[derive(Debug)]
pub(crate) struct HttpProvider {
    dialect: Arc<dyn Dialect>,
    client: Client,
    url: Url,
    headers: HeaderMap,
}

impl HttpProvider {
    /// Reads the files of the TLS settings. The first request opens a connection.
    pub(crate) fn new(config: &JudgeConfig, dialect: Arc<dyn Dialect>) -> Result<HttpProvider, ClientError> {
        let url = url(config, dialect.path()).map_err(ClientError::Endpoint)?;
        let client = verdict_client::client(&[&url], &config.tls, *config.timeout, config.max_concurrency)?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let fixed = dialect.headers().iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value)));
        let key = config.api_key.as_ref().map(|key| dialect.auth(key));
        headers.extend(verdict_client::headers(&fixed.chain(key).collect())?);
        // Configured headers replace those of the dialect.
        headers.extend(verdict_client::headers(&config.headers)?);
        Ok(HttpProvider { dialect, client, url, headers })
    }

    async fn post(&self, body: Bytes) -> Result<Bytes, Failure> {
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let mut response = request.send().await.map_err(|e| failure_for_error(&e))?;
        let status = response.status().as_u16();
        if status != 200 {
            let value = response.headers().get(RETRY_AFTER);
            let retry_after = value.and_then(|v| verdict_client::retry_after(v, SystemTime::now()));
            let body = read_body(&mut response, MAX_ERROR_BODY).await.unwrap_or_default();
            // Some servers send plain text.
            let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
            let body = serde_json::from_slice(&body).unwrap_or_else(|_| text());
            return Err(Failure { retry_after, ..Failure::from_status(status) }.with_error_type(&body));
        }
        read_body(&mut response, MAX_BODY).await
    }

    fn read(&self, body: &[u8]) -> Result<Reply, Failure> {
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            // An error page, a stream, or a truncated body.
            return Err(Failure::new("not_json", FailureKind::Unavailable));
        };
        if body.get("error").is_some_and(|error| !error.is_null()) {
            let code = body["error"]["code"].as_u64().and_then(|code| u16::try_from(code).ok());
            let failure = match code.filter(|code| (300..600).contains(code)) {
                Some(code) => Failure::from_status(code),
                None => Failure::new("error_body", FailureKind::Unavailable),
            };
            return Err(failure.with_error_type(&body));
        }
        let not_an_answer = || Failure::new("not_an_answer", FailureKind::Unavailable);
        self.dialect.read(&body).ok_or_else(not_an_answer)
    }
}

impl Provider for HttpProvider {
    fn location(&self) -> &str {
        self.url.as_str()
    }

    fn is_external(&self) -> bool {
        !verdict_client::is_loopback(&self.url)
    }

    fn encode(&self, request: &JudgeRequest<'_>) -> Bytes {
        let mut body = self.dialect.write(request);
        for (key, value) in &request.config.body {
            match value {
                Value::Null => drop(body.shift_remove(key)),
                value => drop(body.insert(key.clone(), value.clone())),
            }
        }
        Value::Object(body).to_string().into()
    }

    fn send<'a>(&'a self, _: JudgeRequest<'a>, body: Bytes) -> ReplyFuture<'a> {
        Box::pin(async move { self.read(&self.post(body).await?) })
    }
}

async fn read_body(response: &mut Response, max_bytes: usize) -> Result<Bytes, Failure> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|e| failure_for_error(&e))? {
        if body.len() + chunk.len() > max_bytes {
            return Err(Failure::new("too_large", FailureKind::Unavailable));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.into())
}

fn failure_for_error(error: &reqwest::Error) -> Failure {
    match error.is_timeout() {
        true => Failure::new("timeout", FailureKind::Timeout),
        false => Failure::new("connection", FailureKind::Unavailable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dialects_path_is_appended_and_urls_with_credentials_are_refused() {
        let url_of = |endpoint: &str, path| {
            url(&JudgeConfig { endpoint: endpoint.to_owned(), ..JudgeConfig::default() }, path)
        };
        let [openai, anthropic, ..] = crate::dialects::built_in();
        let plain = url_of("http://h:1/v1/", openai.path()).unwrap();
        assert_eq!(plain.as_str(), "http://h:1/v1/chat/completions");
        let other = url_of("https://h/v1?a=b", anthropic.path()).unwrap();
        assert_eq!(other.as_str(), "https://h/v1/messages?a=b");
        for bad in ["", "h:1", "ftp://h", "http://", "https://me:pw@h"] {
            let error = url_of(bad, openai.path()).unwrap_err();
            assert!(!error.contains("pw"), "{error}");
        }
    }
}
