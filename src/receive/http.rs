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
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use http_body::Body as _;
use prost::Message as _;
use serde_json::json;
use tokio::time::timeout;
use verdict_otlp::{Signal, json};

use super::body::{BodyError, Coding, malformed};
use super::config::HttpConfig;
use super::cors::Cors;
use super::intake::{Accepted, Refused};
use super::rejection::RequestRejection;
use super::request_handler::{RequestHandler, body_deadline, next_chunk, response};

/// JSON above this size is decoded on a blocking thread, since decoding takes milliseconds.
const LARGE_JSON_BYTES: usize = 256 << 10;

/// How long the remaining body of a rejected request is read.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// The encoding of a request and its response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WireFormat {
    Protobuf,
    Json,
    /// Any other encoding; the response is plain text.
    Unsupported,
}

impl WireFormat {
    fn from_headers(headers: &HeaderMap) -> WireFormat {
        let content_type =
            headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        let has_content_type = |format: &WireFormat| media_type.eq_ignore_ascii_case(format.content_type());
        [WireFormat::Protobuf, WireFormat::Json]
            .into_iter()
            .find(has_content_type)
            .unwrap_or(WireFormat::Unsupported)
    }

    fn content_type(self) -> &'static str {
        match self {
            WireFormat::Protobuf => "application/x-protobuf",
            WireFormat::Json => "application/json",
            WireFormat::Unsupported => "text/plain; charset=utf-8",
        }
    }
}

/// Extension of the response to a body that stalled or broke off: it is not drained, since reading it would only wait
/// again.
#[derive(Clone)]
struct CutOff;

/// State shared by all requests.
struct HttpState {
    handler: RequestHandler,
    paths: [(String, Signal); 3],
    cors: Option<Cors>,
}

pub(crate) fn router(handler: RequestHandler, config: &HttpConfig) -> Router {
    let paths = [
        (config.traces_url_path.clone(), Signal::Traces),
        (config.logs_url_path.clone(), Signal::Logs),
        (config.metrics_url_path.clone(), Signal::Metrics),
    ];
    let state = Arc::new(HttpState { handler, paths, cors: config.cors.clone() });
    Router::new().fallback(move |request: Request| {
        let state = state.clone();
        async move { serve(&state, request).await }
    })
}

async fn serve(state: &HttpState, request: Request) -> Response {
    let (parts, mut body) = request.into_parts();
    // This precedes authentication, since browsers send preflight requests without credentials.
    let preflight = state.cors.as_ref().and_then(|cors| cors.preflight(&parts.method, &parts.headers));
    if let Some(headers) = preflight {
        return (StatusCode::NO_CONTENT, headers).into_response();
    }
    let mut response = respond(state, &parts, &mut body).await;
    if let Some(cors) = &state.cors {
        cors.add_headers(&parts.headers, response.headers_mut());
    }
    // A client that awaits "100 Continue" sends no body after a rejection; HTTP/2 resets the stream.
    let may_send_body = parts.version < Version::HTTP_2 && !parts.headers.contains_key(header::EXPECT);
    let has_ended = response.status() == StatusCode::OK || response.extensions().get::<CutOff>().is_some();
    if may_send_body && !has_ended {
        drain(&mut body).await;
    }
    response
}

async fn respond(state: &HttpState, parts: &Parts, body: &mut Body) -> Response {
    let HttpState { handler, paths, .. } = state;
    let Some(&(_, signal)) = paths.iter().find(|(path, _)| path == parts.uri.path()) else {
        return (StatusCode::NOT_FOUND, "no such path").into_response();
    };
    let format = WireFormat::from_headers(&parts.headers);
    let result = match handler.authenticate(&parts.headers) {
        Ok(()) if parts.method != Method::POST => {
            let allow = [(header::ALLOW, "POST")];
            return (StatusCode::METHOD_NOT_ALLOWED, allow, "send requests with POST").into_response();
        }
        Ok(()) => handle(handler, signal, format, parts, body).await,
        Err(rejection) => Err(rejection),
    };
    handler.count(signal, &result);
    match result {
        Ok(accepted) => success(signal, format, accepted),
        Err(rejection) => failure(handler, format, &rejection),
    }
}

pub(super) fn coding(headers: &HeaderMap) -> Result<Coding, RequestRejection> {
    let Some(name) = headers.get(header::CONTENT_ENCODING) else { return Ok(Coding::Identity) };
    match name.as_bytes().trim_ascii().to_ascii_lowercase().as_slice() {
        b"" | b"identity" => Ok(Coding::Identity),
        b"gzip" | b"x-gzip" => Ok(Coding::Gzip),
        b"zstd" => Ok(Coding::Zstd),
        // HTTP calls the zlib format `deflate`.
        b"deflate" => Ok(Coding::Zlib),
        _ => Err(RequestRejection::Encoding(String::from_utf8_lossy(name.as_bytes()).into_owned())),
    }
}

async fn handle(
    handler: &RequestHandler,
    signal: Signal,
    format: WireFormat,
    parts: &Parts,
    body: &mut Body,
) -> Result<Accepted, RequestRejection> {
    if format == WireFormat::Unsupported {
        return Err(RequestRejection::ContentType);
    }
    let coding = coding(&parts.headers)?;
    handler.check_pressure()?;
    let length = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    let headers: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let mut decoder = handler.body_decoder(coding, length, &parts.extensions, headers)?;
    let mut deadline = body_deadline();
    while let Some(chunk) = next_chunk(body, &mut deadline).await? {
        decoder.push(&chunk)?;
    }
    let (mut message, mut reservation) = decoder.finish()?;
    if format == WireFormat::Json {
        let mut charge = |bytes: usize| match reservation.resize(headers + bytes) {
            true => Ok(()),
            false => Err(BodyError::InFlightLimit),
        };
        // Both forms are in memory until the conversion has ended. The protobuf form can be larger than the JSON,
        // since fixed-size numbers may take more bytes than their digits.
        charge(message.len().saturating_mul(2))?;
        message = to_protobuf(signal, message).await?;
        charge(message.len())?;
    }
    handler.offer(signal, message, reservation).await
}

async fn to_protobuf(signal: Signal, body: Bytes) -> Result<Bytes, RequestRejection> {
    let decoded = if body.len() > LARGE_JSON_BYTES {
        let task = tokio::task::spawn_blocking(move || json::decode(signal, &body));
        task.await.map_err(|_| malformed("the JSON could not be decoded"))?
    } else {
        json::decode(signal, &body)
    };
    decoded.map_err(|error| RequestRejection::Refused(Refused::Malformed(error.to_string())))
}

/// Reads and discards the remaining body: an HTTP/1.1 client reads the response only after it has
/// sent its body, and would lose the response if the connection were closed earlier.
async fn drain(body: &mut Body) {
    let mut deadline = body_deadline();
    let drained = async { while let Ok(Some(_)) = next_chunk(body, &mut deadline).await {} };
    let _ = timeout(DRAIN_TIME, drained).await;
}

fn success(signal: Signal, format: WireFormat, accepted: Accepted) -> Response {
    let response = response(accepted);
    let body = match (format, &response.partial_success) {
        (WireFormat::Json, None) => b"{}".to_vec(),
        (WireFormat::Json, Some(partial)) => {
            let rejected_key = match signal {
                Signal::Traces => "rejectedSpans",
                Signal::Logs => "rejectedLogRecords",
                Signal::Metrics => "rejectedDataPoints",
            };
            // The JSON mapping of protobuf represents 64-bit numbers as strings.
            let count = partial.rejected_spans.to_string();
            let partial = json!({ rejected_key: count, "errorMessage": partial.error_message });
            json!({ "partialSuccess": partial }).to_string().into_bytes()
        }
        _ => response.encode_to_vec(),
    };
    ([(header::CONTENT_TYPE, format.content_type())], body).into_response()
}

fn failure(handler: &RequestHandler, format: WireFormat, rejection: &RequestRejection) -> Response {
    let (code, http_status, _) = rejection.codes();
    let body = match format {
        WireFormat::Protobuf => rejection.status().encode_to_vec(),
        WireFormat::Json => {
            json!({ "code": code as i32, "message": rejection.message() }).to_string().into_bytes()
        }
        WireFormat::Unsupported => rejection.message().into_bytes(),
    };
    let content_type = [(header::CONTENT_TYPE, format.content_type())];
    let mut response = (http_status, content_type, body).into_response();
    let headers = response.headers_mut();
    if let Some(seconds) = rejection.retry_after() {
        headers.insert(header::RETRY_AFTER, seconds);
    }
    if matches!(rejection, RequestRejection::Encoding(_)) {
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip, zstd, deflate"));
    }
    handler.challenge(rejection, headers);
    if matches!(rejection, RequestRejection::Body(BodyError::CutOff(_))) {
        response.extensions_mut().insert(CutOff);
    }
    response
}
