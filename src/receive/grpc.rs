//! OTLP/gRPC: the `Export` method of the three collector services.
//!
//! In: HTTP/2 requests. Out: the encoded request message to the intake, and a gRPC response. Only the
//! part of gRPC that a unary call needs is implemented here (length-prefixed messages, compression
//! flag, trailers): a general codec would decode too early, decompress without a limit, and respond
//! OUT_OF_RANGE and INTERNAL where OTLP requires RESOURCE_EXHAUSTED and INVALID_ARGUMENT.

use std::future::ready;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use verdict_otlp::Signal;

use super::body::{BodyError, Coding, malformed};
use super::intake::Accepted;
use super::rejection::RequestRejection;
use super::request_handler::{RequestHandler, body_deadline, next_chunk, response};
use crate::reservation::FairReservation;

/// Length of the prefix of a message: the compression flag and the length of the message.
const PREFIX_LENGTH: usize = 5;

const SUPPORTED_ENCODINGS: HeaderValue = HeaderValue::from_static("identity,gzip,zstd");

pub(crate) fn router(handler: RequestHandler) -> Router {
    let handler = Arc::new(handler);
    Router::new().fallback(move |request: Request| {
        let handler = handler.clone();
        async move { respond(&handler, request).await }
    })
}

async fn respond(handler: &RequestHandler, request: Request) -> Response {
    if request.method() != Method::POST {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    if !is_grpc(request.headers()) {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let path = request.uri().path();
    let Some(signal) = Signal::ALL.into_iter().find(|signal| signal.grpc_method() == path) else {
        return tonic::Status::unimplemented("no such method").into_http();
    };
    let result = match handler.authenticate(request.headers()) {
        Ok(()) => handle(handler, signal, request).await,
        Err(rejection) => Err(rejection),
    };
    handler.count(signal, &result);
    result.map_or_else(|rejection| failure(handler, &rejection), success)
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let Some(content_type) = headers.get(header::CONTENT_TYPE) else { return false };
    let suffix = content_type.as_bytes().strip_prefix(b"application/grpc");
    suffix.is_some_and(|suffix| matches!(suffix.first(), None | Some(b';')) || suffix.starts_with(b"+proto"))
}

fn coding(headers: &HeaderMap) -> Result<Coding, RequestRejection> {
    match headers.get("grpc-encoding").map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(Coding::Identity),
        Some(b"gzip") => Ok(Coding::Gzip),
        Some(b"zstd") => Ok(Coding::Zstd),
        Some(other) => Err(RequestRejection::Encoding(String::from_utf8_lossy(other).into_owned())),
    }
}

async fn handle(
    handler: &RequestHandler,
    signal: Signal,
    request: Request,
) -> Result<Accepted, RequestRejection> {
    let coding = coding(request.headers())?;
    handler.check_pressure()?;
    let (message, reservation) = read_message(handler, coding, request).await?;
    handler.offer(signal, message, reservation).await
}

/// Reads the one message of a unary call.
async fn read_message(
    handler: &RequestHandler,
    coding: Coding,
    request: Request,
) -> Result<(Bytes, FairReservation), BodyError> {
    const TRUNCATED: &str = "the request ends within its message";
    // The headers are dropped: they must not stay in memory while the body arrives.
    let (Parts { extensions, .. }, mut body) = request.into_parts();
    let mut deadline = body_deadline();
    let mut prefix = [0; PREFIX_LENGTH];
    let mut prefix_bytes = 0;
    let mut chunk = Bytes::new();
    while prefix_bytes < PREFIX_LENGTH {
        if chunk.is_empty() {
            chunk = next_chunk(&mut body, &mut deadline).await?.ok_or_else(|| malformed(TRUNCATED))?;
        }
        let part = chunk.split_to(chunk.len().min(PREFIX_LENGTH - prefix_bytes));
        prefix[prefix_bytes..prefix_bytes + part.len()].copy_from_slice(&part);
        prefix_bytes += part.len();
    }
    let [flag, length @ ..] = prefix;
    let coding = match (flag, coding) {
        (0, _) => Coding::Identity,
        (1, Coding::Identity) => {
            return Err(malformed("the message is flagged as compressed, but grpc-encoding is not set"));
        }
        (1, coding) => coding,
        _ => return Err(malformed("invalid compression flag of the message")),
    };
    let mut remaining = u32::from_be_bytes(length) as usize;
    let mut decoder = handler.body_decoder(coding, Some(remaining), &extensions, 0)?;
    let mut next = Some(chunk);
    while let Some(chunk) = next {
        remaining = remaining
            .checked_sub(chunk.len())
            .ok_or_else(|| malformed("more than one message in a unary call"))?;
        decoder.push(&chunk)?;
        drop(chunk);
        next = next_chunk(&mut body, &mut deadline).await?;
    }
    if remaining > 0 { Err(malformed(TRUNCATED)) } else { decoder.finish() }
}

fn success(accepted: Accepted) -> Response {
    let message = response(accepted).encode_to_vec();
    let mut data = vec![0];
    data.extend_from_slice(&u32::try_from(message.len()).unwrap_or(0).to_be_bytes());
    data.extend_from_slice(&message);
    let trailers =
        HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    let body = Full::new(Bytes::from(data)).with_trailers(ready(Some(Ok(trailers))));
    ([(header::CONTENT_TYPE, "application/grpc")], Body::new(body)).into_response()
}

fn failure(handler: &RequestHandler, rejection: &RequestRejection) -> Response {
    // Without a retry delay, details would only repeat code and message.
    let details = match rejection.retry_delay() {
        Some(_) => rejection.status().encode_to_vec().into(),
        None => Bytes::new(),
    };
    let status = tonic::Status::with_details(rejection.codes().0, rejection.message(), details);
    let mut response: Response = status.into_http();
    if matches!(rejection, RequestRejection::Encoding(_)) {
        response.headers_mut().insert("grpc-accept-encoding", SUPPORTED_ENCODINGS);
    }
    handler.challenge(rejection, response.headers_mut());
    response
}
