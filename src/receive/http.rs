//! OTLP/HTTP: `POST` to three paths, protobuf or JSON, answered in the request's type.
//!
//! In: HTTP/1.1 and HTTP/2 requests. Out: the encoded request message to the intake (JSON is
//! turned into protobuf first), and `Export*ServiceResponse`, or `google.rpc.Status` for an
//! error, as OTLP's specification of HTTP asks.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use prost::Message as _;
use serde_json::json;
use tokio::time::timeout;

use super::answer::{self, Desk, Rejection, STALL, response};
use super::body::{BodyError, Coding, Hold, Unpack};
use super::config::HttpConfig;
use super::cors::Cors;
use super::{Accepted, Refused};
use verdict_otlp::Signal;
use verdict_otlp::json;

/// JSON above this is decoded off the threads that serve connections: it takes milliseconds.
const LARGE_JSON: usize = 256 << 10;

/// How long the rest of a refused body is read for.
const DRAIN_TIME: Duration = Duration::from_secs(5);

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// What a request is written in, and so its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Protobuf,
    Json,
}

/// Which path takes which signal.
struct Paths([(String, Signal); 3]);

/// What every request is answered with.
struct Window {
    desk: Desk,
    paths: Paths,
    cors: Option<Cors>,
}

impl Paths {
    fn signal(&self, path: &str) -> Option<Signal> {
        self.0.iter().find(|(known, _)| known == path).map(|(_, signal)| *signal)
    }
}

pub(crate) fn router(desk: Desk, config: &HttpConfig) -> Router {
    let paths = Paths([
        (config.traces_url_path.clone(), Signal::Traces),
        (config.logs_url_path.clone(), Signal::Logs),
        (config.metrics_url_path.clone(), Signal::Metrics),
    ]);
    let shared = Arc::new(Window { desk, paths, cors: config.cors.clone() });
    Router::new().fallback(move |request: Request| {
        let shared = shared.clone();
        async move { answer(&shared, request).await }
    })
}

async fn answer(window: &Window, request: Request) -> Response {
    let (parts, mut body) = request.into_parts();
    let Window { desk, paths, cors } = window;
    // Browsers send no credentials with the question whether they may send.
    if let Some(headers) = cors.as_ref().and_then(|cors| cors.preflight(&parts.method, &parts.headers)) {
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::NO_CONTENT;
        *answer.headers_mut() = headers;
        return answer;
    }
    let mut answer = respond(desk, paths, &parts, &mut body).await;
    if let Some(cors) = cors {
        cors.mark(&parts.headers, answer.headers_mut());
    }
    // Who waits for "100 Continue" sends no body to a refusal; HTTP/2 ends a stream by itself.
    let unread = parts.version < Version::HTTP_2 && !parts.headers.contains_key(header::EXPECT);
    if unread && !matches!(answer.status(), StatusCode::OK | StatusCode::REQUEST_TIMEOUT) {
        drain(&mut body).await;
    }
    answer
}

async fn respond(desk: &Desk, paths: &Paths, parts: &Parts, body: &mut Body) -> Response {
    let Some(signal) = paths.signal(parts.uri.path()) else {
        return plain(StatusCode::NOT_FOUND, "no such path");
    };
    if let Err(rejection) = desk.admit(&parts.headers) {
        return turned_away(desk, signal, format(&parts.headers), rejection);
    }
    if parts.method != Method::POST {
        let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "send requests with POST");
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
        return answer;
    }
    let Some(format) = format(&parts.headers) else {
        desk.unsupported(signal);
        let text = "send application/x-protobuf or application/json";
        return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    };
    let answer = take(desk, signal, format, &parts.headers, body).await;
    desk.count(signal, &answer);
    match answer {
        Ok(accepted) => success(signal, format, accepted),
        Err(rejection) => failure(format, &rejection),
    }
}

fn turned_away(desk: &Desk, signal: Signal, format: Option<Format>, rejection: Rejection) -> Response {
    let mut answer = match format {
        Some(format) => failure(format, &rejection),
        None => plain(status(&rejection), "credentials are missing or not known"),
    };
    desk.challenge(answer.headers_mut());
    desk.count(signal, &Err(rejection));
    answer
}

fn format(headers: &HeaderMap) -> Option<Format> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let essence = kind.split(';').next()?.trim();
    if essence.eq_ignore_ascii_case("application/x-protobuf") {
        Some(Format::Protobuf)
    } else if essence.eq_ignore_ascii_case("application/json") {
        Some(Format::Json)
    } else {
        None
    }
}

fn coding(headers: &HeaderMap) -> Result<Coding, Rejection> {
    let Some(name) = headers.get(header::CONTENT_ENCODING) else { return Ok(Coding::Identity) };
    match name.as_bytes().trim_ascii().to_ascii_lowercase().as_slice() {
        b"" | b"identity" => Ok(Coding::Identity),
        b"gzip" | b"x-gzip" => Ok(Coding::Gzip),
        b"zstd" => Ok(Coding::Zstd),
        // HTTP calls the zlib format so.
        b"deflate" => Ok(Coding::Zlib),
        _ => Err(Rejection::Encoding(String::from_utf8_lossy(name.as_bytes()).into_owned())),
    }
}

async fn take(
    desk: &Desk,
    signal: Signal,
    format: Format,
    headers: &HeaderMap,
    body: &mut Body,
) -> Result<Accepted, Rejection> {
    let coding = coding(headers)?;
    desk.pressure()?;
    let (message, hold) = read(desk, coding, body).await?;
    let message = match format {
        Format::Protobuf => message,
        Format::Json => to_protobuf(signal, message).await?,
    };
    desk.offer(signal, message, hold).await
}

async fn read(desk: &Desk, coding: Coding, body: &mut Body) -> Result<(Bytes, Hold), BodyError> {
    let stated = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    let unpack = Unpack::new(coding, stated, desk.limit, desk.room.hold())?;
    let mut unpack = unpack.at_most_times(desk.ratio);
    loop {
        match timeout(STALL, body.frame()).await {
            Err(_) => return Err(BodyError::CutOff("the request body stalled")),
            Ok(Some(Err(_))) => return Err(BodyError::CutOff("the request body was cut off")),
            Ok(None) => return unpack.finish(),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    unpack.feed(&data)?;
                }
            }
        }
    }
}

async fn to_protobuf(signal: Signal, body: Bytes) -> Result<Bytes, Rejection> {
    let decoded = if body.len() > LARGE_JSON {
        let decoding = tokio::task::spawn_blocking(move || json::decode(signal, &body));
        decoding.await.map_err(|_| BodyError::Malformed("the JSON could not be decoded".to_owned()))?
    } else {
        json::decode(signal, &body)
    };
    decoded.map_err(|error| Rejection::Refused(Refused::Malformed(error.to_string())))
}

/// Reads on, keeping nothing: over HTTP/1.1 a sender reads no answer before its body is out, and
/// a connection closed under it would take the answer along.
async fn drain(body: &mut Body) {
    let view = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = timeout(DRAIN_TIME, view).await;
}

fn success(signal: Signal, format: Format, accepted: Accepted) -> Response {
    let response = response(accepted);
    let body = match format {
        Format::Protobuf => response.encode_to_vec(),
        Format::Json => match response.partial_success {
            None => b"{}".to_vec(),
            Some(partial) => {
                let rejected = match signal {
                    Signal::Traces => "rejectedSpans",
                    Signal::Logs => "rejectedLogRecords",
                    Signal::Metrics => "rejectedDataPoints",
                };
                // Protobuf's JSON writes 64-bit numbers as strings.
                let count = partial.rejected_spans.to_string();
                json!({ "partialSuccess": { rejected: count, "errorMessage": partial.error_message } })
                    .to_string()
                    .into_bytes()
            }
        },
    };
    typed(StatusCode::OK, format, body)
}

fn failure(format: Format, rejection: &Rejection) -> Response {
    let status = status(rejection);
    let details = answer::status(rejection);
    let body = match format {
        Format::Protobuf => details.encode_to_vec(),
        Format::Json => json!({ "code": details.code, "message": details.message }).to_string().into_bytes(),
    };
    let mut answer = typed(status, format, body);
    if let Some(retry) = rejection.retry() {
        // Whole seconds, rounded up: earlier would be too early.
        let seconds = retry.as_millis().div_ceil(1000).max(1);
        if let Ok(seconds) = HeaderValue::from_str(&seconds.to_string()) {
            answer.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
    }
    if matches!(rejection, Rejection::Encoding(_)) {
        let served = HeaderValue::from_static("gzip, zstd, deflate");
        answer.headers_mut().insert(HeaderName::from_static("accept-encoding"), served);
    }
    answer
}

fn status(rejection: &Rejection) -> StatusCode {
    match rejection {
        Rejection::Body(BodyError::TooLarge { .. } | BodyError::Ratio { .. }) => {
            StatusCode::PAYLOAD_TOO_LARGE
        }
        Rejection::Body(BodyError::Malformed(_)) | Rejection::Refused(Refused::Malformed(_)) => {
            StatusCode::BAD_REQUEST
        }
        Rejection::Body(BodyError::CutOff(_)) => StatusCode::REQUEST_TIMEOUT,
        Rejection::Body(BodyError::NoRoom)
        | Rejection::Refused(Refused::Overloaded { .. } | Refused::ShuttingDown) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Rejection::Refused(Refused::Unsupported(_)) => StatusCode::NOT_FOUND,
        Rejection::Encoding(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Rejection::Unauthenticated => StatusCode::UNAUTHORIZED,
    }
}

fn typed(status: StatusCode, format: Format, body: Vec<u8>) -> Response {
    let kind = match format {
        Format::Protobuf => PROTOBUF,
        Format::Json => JSON,
    };
    with_type(status, kind, Body::from(body))
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    with_type(status, TEXT, Body::from(text))
}

fn with_type(status: StatusCode, kind: HeaderValue, body: Body) -> Response {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}
