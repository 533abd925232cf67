//! OTLP over HTTP, protobuf encoded: reqwest, without redirects, with the environment's proxies
//! (as the Collector) except for loopback addresses.
//!
//! In: a [`Packed`] message. Out: an [`Answer`] by the OTLP specification's retryable statuses.

use std::time::{Duration, SystemTime};

use ::http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use ::http::{HeaderMap, HeaderValue, StatusCode};
use bytes::BytesMut;
use reqwest::{Client, Response, Url};
use verdict_client::{ClientError, retry_after};

use super::answer::{Answer, MAX_ANSWER, Reply, words};
use super::config::OtlpHttp;
use super::pack::Packed;
use super::{StartError, slot};
use verdict_otlp::Signal;
use verdict_otlp::{Fields, Payload};

/// The URL that takes a signal, or the key that is at fault and why.
pub(super) fn url(config: &OtlpHttp, signal: Signal) -> Result<Url, (&'static str, String)> {
    let (key, own, path) = match signal {
        Signal::Traces => ("traces_endpoint", &config.traces_endpoint, "/v1/traces"),
        Signal::Logs => ("logs_endpoint", &config.logs_endpoint, "/v1/logs"),
        Signal::Metrics => ("metrics_endpoint", &config.metrics_endpoint, "/v1/metrics"),
    };
    let (key, text, append) = match (own.is_empty(), config.endpoint.is_empty()) {
        (false, _) => (key, own, ""),
        (true, false) => ("endpoint", &config.endpoint, path),
        (true, true) => return Err(("endpoint", "where to send to is needed, as http://host:port".into())),
    };
    let mut url = Url::parse(text).map_err(|why| (key, format!("'{text}' is not a URL: {why}")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err((key, format!("'{text}' must begin with http:// or https:// and name a host")));
    }
    if !append.is_empty() {
        let path = format!("{}{append}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(url)
}

/// A client of one destination.
#[derive(Debug)]
pub(super) struct HttpClient {
    client: Client,
    urls: [Option<Url>; 3],
    headers: HeaderMap,
}

impl HttpClient {
    /// Reads files (TLS); connects with the first request.
    pub fn new(config: &OtlpHttp) -> Result<HttpClient, StartError> {
        let mut urls = [None, None, None];
        for &signal in &config.signals {
            urls[slot(signal)] = Some(url(config, signal).map_err(|(_, why)| ClientError::Endpoint(why))?);
        }
        let named: Vec<&Url> = urls.iter().flatten().collect();
        let idle = config.sending_queue.num_consumers;
        let client = verdict_client::client(&named, &config.tls, *config.timeout, idle)?;
        let mut headers = verdict_client::headers(&config.headers)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        Ok(HttpClient { client, urls, headers })
    }

    /// Sends one message; takes at most the timeout.
    pub async fn export(&self, signal: Signal, message: &Packed) -> Reply {
        let Some(url) = self.urls[slot(signal)].clone() else {
            let answer = Answer::Unsupported("no endpoint for this signal".into());
            return Reply { status: "unsupported", answer };
        };
        let mut request =
            self.client.post(url).headers(self.headers.clone()).body(reqwest::Body::wrap(message.body()));
        if let Some(name) = message.encoding.name() {
            request = request.header(CONTENT_ENCODING, name);
        }
        match request.send().await {
            Ok(response) => read(response).await,
            // Nothing says what became of it: refused connection, reset, timeout.
            Err(error) => {
                let status = if error.is_timeout() { "timeout" } else { "connection" };
                Reply::none(status, words(&verdict_client::reasons(&error.without_url())))
            }
        }
    }
}

async fn read(mut response: Response) -> Reply {
    let status = response.status();
    let after = response.headers().get(RETRY_AFTER).and_then(|v| retry_after(v, SystemTime::now()));
    let mut body = BytesMut::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let taken = chunk.len().min(MAX_ANSWER - body.len());
        body.extend_from_slice(chunk.get(..taken).unwrap_or_default());
        if body.len() >= MAX_ANSWER {
            break;
        }
    }
    let json =
        response.headers().get(CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"application/json"));
    Reply { status: word(status), answer: judge(status, after, &body, json) }
}

/// A fixed set of words, whatever a destination makes up.
fn word(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200..=299 => "ok",
        400 => "http_400",
        401 => "http_401",
        403 => "http_403",
        404 => "http_404",
        413 => "http_413",
        429 => "http_429",
        402..=499 => "http_4xx",
        500 => "http_500",
        502 => "http_502",
        503 => "http_503",
        504 => "http_504",
        501..=599 => "http_5xx",
        _ => "http_other",
    }
}

fn judge(status: StatusCode, after: Option<Duration>, body: &[u8], json: bool) -> Answer {
    if status.is_success() {
        return if json { taken_json(body) } else { Answer::taken(body) };
    }
    let why = format!("HTTP {status}: {}", explanation(body));
    match status.as_u16() {
        429 | 502 | 503 | 504 => Answer::Later { after, why },
        413 => Answer::TooLarge(why),
        400 | 422 => Answer::Invalid(why),
        404 | 405 | 501 => Answer::Unsupported(why),
        _ => Answer::Refused(why),
    }
}

/// Some servers answer in JSON whatever they were sent.
fn taken_json(body: &[u8]) -> Answer {
    let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let partial = &answer["partialSuccess"];
    let rejected = ["rejectedSpans", "rejectedLogRecords", "rejectedDataPoints"].iter().find_map(|key| {
        let value = &partial[*key];
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    });
    let message = words(partial["errorMessage"].as_str().unwrap_or_default());
    Answer::Taken { rejected: rejected.unwrap_or(0), message }
}

/// The message of an encoded `google.rpc.Status`, else the body as text.
fn explanation(body: &[u8]) -> String {
    let fields: Result<Vec<_>, _> = Fields::new(body).collect();
    let message = fields.ok().and_then(|fields| {
        fields.iter().find_map(|f| match f.payload {
            Payload::Bytes(text) if f.number == 2 => std::str::from_utf8(text).ok(),
            _ => None,
        })
    });
    message.map_or_else(|| words(&String::from_utf8_lossy(body)), words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_made_as_in_the_collector() {
        let config = OtlpHttp {
            endpoint: "http://h:4318/base/".into(),
            logs_endpoint: "https://logs/x".into(),
            ..OtlpHttp::default()
        };
        assert_eq!(url(&config, Signal::Traces).unwrap().as_str(), "http://h:4318/base/v1/traces");
        assert_eq!(url(&config, Signal::Logs).unwrap().as_str(), "https://logs/x");
        for bad in ["", "h:4318", "ftp://h", "http://"] {
            let config = OtlpHttp { endpoint: bad.into(), ..OtlpHttp::default() };
            assert_eq!(url(&config, Signal::Traces).unwrap_err().0, "endpoint", "{bad}");
        }
    }

    #[test]
    fn only_the_statuses_of_the_specification_are_retried() {
        for status in (300..600).filter_map(|s| StatusCode::from_u16(s).ok()) {
            let later = matches!(judge(status, None, b"", false), Answer::Later { .. });
            assert_eq!(later, [429, 502, 503, 504].contains(&status.as_u16()), "{status}");
        }
    }

    #[test]
    fn answers_are_read_as_protobuf_json_or_text() {
        let json = br#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"old"}}"#;
        let two = Answer::Taken { rejected: 2, message: "old".into() };
        assert_eq!(judge(StatusCode::OK, None, json, true), two);
        let status = b"\x08\x03\x12\x08no spans";
        assert_eq!(
            judge(StatusCode::BAD_REQUEST, None, status, false),
            Answer::Invalid("HTTP 400 Bad Request: no spans".into())
        );
        assert_eq!(
            judge(StatusCode::FORBIDDEN, None, b"go away", false),
            Answer::Refused("HTTP 403 Forbidden: go away".into())
        );
    }
}
