//! OTLP/HTTP: `POST` to three paths, protobuf or JSON; responses have the request's content type.
//!
//! In: HTTP/1.1 and HTTP/2 requests. Out: the encoded request message to the intake (JSON is
//! converted to protobuf first), and `Export*ServiceResponse`, or `google.rpc.Status` for an
//! error, as OTLP's specification of HTTP requires.

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
use verdict_otlp::{Signal, json};

use super::body::{BodyError, Coding};
use super::config::HttpConfig;
use super::cors::Cors;
use super::intake::{Accepted, Refused};
use super::rejection::{self, Rejection};
use super::request_handler::{RequestHandler, STALL, response};
use crate::reservation::Reservation;

/// JSON above this size is decoded on a blocking thread: it takes milliseconds.
const LARGE_JSON: usize = 256 << 10;

/// How long the rest of a rejected request's body is read.
const DRAIN_TIME: Duration = Duration::from_secs(5);

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The encoding of a request and its response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Protobuf,
    Json,
}

/// The path of each signal.
struct Paths([(String, Signal); 3]);

/// State shared by all requests.
struct HttpState {
    handler: RequestHandler,
    paths: Paths,
    cors: Option<Cors>,
}

impl Paths {
    fn signal(&self, path: &str) -> Option<Signal> {
        self.0.iter().find(|(known, _)| known == path).map(|(_, signal)| *signal)
    }
}

pub(crate) fn router(handler: RequestHandler, config: &HttpConfig) -> Router {
    let paths = Paths([
        (config.traces_url_path.clone(), Signal::Traces),
        (config.logs_url_path.clone(), Signal::Logs),
        (config.metrics_url_path.clone(), Signal::Metrics),
    ]);
    let state = Arc::new(HttpState { handler, paths, cors: config.cors.clone() });
    Router::new().fallback(move |request: Request| {
        let state = state.clone();
        async move { serve(&state, request).await }
    })
}

async fn serve(state: &HttpState, request: Request) -> Response {
    let (parts, mut body) = request.into_parts();
    let HttpState { handler, paths, cors } = state;
    // Before authentication: browsers send preflight requests without credentials.
    if let Some(headers) = cors.as_ref().and_then(|cors| cors.preflight(&parts.method, &parts.headers)) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        *response.headers_mut() = headers;
        return response;
    }
    let mut response = respond(handler, paths, &parts, &mut body).await;
    if let Some(cors) = cors {
        cors.add_headers(&parts.headers, response.headers_mut());
    }
    // A client that awaits "100 Continue" sends no body after a rejection; HTTP/2 resets the stream.
    let unread = parts.version < Version::HTTP_2 && !parts.headers.contains_key(header::EXPECT);
    if unread && !matches!(response.status(), StatusCode::OK | StatusCode::REQUEST_TIMEOUT) {
        drain(&mut body).await;
    }
    response
}

async fn respond(handler: &RequestHandler, paths: &Paths, parts: &Parts, body: &mut Body) -> Response {
    let Some(signal) = paths.signal(parts.uri.path()) else {
        return text_response(StatusCode::NOT_FOUND, "no such path");
    };
    if let Err(rejection) = handler.authenticate(&parts.headers) {
        return unauthenticated(handler, signal, format(&parts.headers), rejection);
    }
    if parts.method != Method::POST {
        let mut response = text_response(StatusCode::METHOD_NOT_ALLOWED, "send requests with POST");
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    let Some(format) = format(&parts.headers) else {
        handler.count_unsupported(signal);
        let text = "send application/x-protobuf or application/json";
        return text_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    };
    let result = handle(handler, signal, format, &parts.headers, body).await;
    handler.count(signal, &result);
    match result {
        Ok(accepted) => success(signal, format, accepted),
        Err(rejection) => failure(format, &rejection),
    }
}

fn unauthenticated(
    handler: &RequestHandler,
    signal: Signal,
    format: Option<Format>,
    rejection: Rejection,
) -> Response {
    let mut response = match format {
        Some(format) => failure(format, &rejection),
        None => text_response(status(&rejection), "credentials are missing or unknown"),
    };
    handler.challenge(response.headers_mut());
    handler.count(signal, &Err(rejection));
    response
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
        // HTTP's name of the zlib format.
        b"deflate" => Ok(Coding::Zlib),
        _ => Err(Rejection::Encoding(String::from_utf8_lossy(name.as_bytes()).into_owned())),
    }
}

async fn handle(
    handler: &RequestHandler,
    signal: Signal,
    format: Format,
    headers: &HeaderMap,
    body: &mut Body,
) -> Result<Accepted, Rejection> {
    let coding = coding(headers)?;
    handler.check_pressure()?;
    let (message, reservation) = read(handler, coding, body).await?;
    let message = match format {
        Format::Protobuf => message,
        Format::Json => to_protobuf(signal, message).await?,
    };
    handler.offer(signal, message, reservation).await
}

async fn read(
    handler: &RequestHandler,
    coding: Coding,
    body: &mut Body,
) -> Result<(Bytes, Reservation), BodyError> {
    let length = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    let mut decoder = handler.body_decoder(coding, length)?;
    loop {
        match timeout(STALL, body.frame()).await {
            Err(_) => return Err(BodyError::CutOff("the request body stalled")),
            Ok(Some(Err(_))) => return Err(BodyError::CutOff("the request body was cut off")),
            Ok(None) => return decoder.finish(),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    decoder.push(&data)?;
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

/// Reads and discards the rest of the body: an HTTP/1.1 client reads the response only after it has
/// sent its body, and would lose the response if the connection were closed before.
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
    encoded_response(StatusCode::OK, format, body)
}

fn failure(format: Format, rejection: &Rejection) -> Response {
    let status = status(rejection);
    let details = rejection::status(rejection);
    let body = match format {
        Format::Protobuf => details.encode_to_vec(),
        Format::Json => json!({ "code": details.code, "message": details.message }).to_string().into_bytes(),
    };
    let mut response = encoded_response(status, format, body);
    if let Some(retry) = rejection.retry() {
        // Whole seconds, rounded up, so that no retry comes too early.
        let seconds = retry.as_millis().div_ceil(1000).max(1);
        if let Ok(seconds) = HeaderValue::from_str(&seconds.to_string()) {
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
    }
    if matches!(rejection, Rejection::Encoding(_)) {
        let supported = HeaderValue::from_static("gzip, zstd, deflate");
        response.headers_mut().insert(HeaderName::from_static("accept-encoding"), supported);
    }
    response
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
        Rejection::Body(BodyError::InFlightLimit)
        | Rejection::Refused(Refused::Overloaded { .. } | Refused::ShuttingDown) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Rejection::Refused(Refused::Unsupported(_)) => StatusCode::NOT_FOUND,
        Rejection::Encoding(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Rejection::Unauthenticated => StatusCode::UNAUTHORIZED,
    }
}

fn encoded_response(status: StatusCode, format: Format, body: Vec<u8>) -> Response {
    let kind = match format {
        Format::Protobuf => PROTOBUF,
        Format::Json => JSON,
    };
    response_with_type(status, kind, Body::from(body))
}

fn text_response(status: StatusCode, text: &'static str) -> Response {
    response_with_type(status, TEXT, Body::from(text))
}

fn response_with_type(status: StatusCode, kind: HeaderValue, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
