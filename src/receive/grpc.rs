//! OTLP/gRPC: the `Export` method of the three collector services.
//!
//! In: HTTP/2 requests. Out: the encoded request message to the intake, and a gRPC response. Only the
//! part of gRPC that a unary call needs is implemented here (length-prefixed messages, compression
//! flag, trailers): a general codec would decode too early, decompress without a limit, and respond
//! OUT_OF_RANGE and INTERNAL where OTLP requires RESOURCE_EXHAUSTED and INVALID_ARGUMENT.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body::Frame;
use http_body_util::BodyExt as _;
use prost::Message as _;
use tokio::time::timeout;
use verdict_otlp::Signal;

use super::body::{BodyDecoder, BodyError, Coding};
use super::intake::Accepted;
use super::rejection::{Rejection, code, status};
use super::request_handler::{RequestHandler, STALL, response};
use crate::reservation::Reservation;

/// Flag and length before a message.
const PREFIX: usize = 5;

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
        return empty_response(StatusCode::METHOD_NOT_ALLOWED);
    }
    if !is_grpc(request.headers()) {
        return empty_response(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let Some(signal) = signal(request.uri().path()) else {
        return tonic::Status::unimplemented("no such method").into_http();
    };
    let result = match handler.authenticate(request.headers()) {
        Ok(()) => handle(handler, signal, request).await,
        Err(rejection) => Err(rejection),
    };
    handler.count(signal, &result);
    match result {
        Ok(accepted) => success(accepted),
        Err(rejection) => {
            let mut response = failure(&rejection);
            if rejection == Rejection::Unauthenticated {
                handler.challenge(response.headers_mut());
            }
            response
        }
    }
}

fn signal(path: &str) -> Option<Signal> {
    match path {
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export" => Some(Signal::Traces),
        "/opentelemetry.proto.collector.logs.v1.LogsService/Export" => Some(Signal::Logs),
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export" => Some(Signal::Metrics),
        _ => None,
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return false };
    let kind = kind.as_bytes();
    let subtype = kind.strip_prefix(b"application/grpc");
    subtype.is_some_and(|rest| matches!(rest.first(), None | Some(b';')) || rest.starts_with(b"+proto"))
}

fn coding(headers: &HeaderMap) -> Result<Coding, Rejection> {
    match headers.get("grpc-encoding").map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(Coding::Identity),
        Some(b"gzip") => Ok(Coding::Gzip),
        Some(b"zstd") => Ok(Coding::Zstd),
        Some(other) => Err(Rejection::Encoding(String::from_utf8_lossy(other).into_owned())),
    }
}

async fn handle(handler: &RequestHandler, signal: Signal, request: Request) -> Result<Accepted, Rejection> {
    let coding = coding(request.headers())?;
    handler.check_pressure()?;
    let (message, reservation) = read(handler, coding, request.into_body()).await?;
    handler.offer(signal, message, reservation).await
}

/// Reads the one message of a unary call.
async fn read(
    handler: &RequestHandler,
    coding: Coding,
    mut body: Body,
) -> Result<(Bytes, Reservation), BodyError> {
    let mut framing = Framing { prefix: [0; PREFIX], have: 0, message: None };
    loop {
        let frame = match timeout(STALL, body.frame()).await {
            Err(_) => return Err(BodyError::CutOff("the request body stalled")),
            Ok(Some(Err(_))) => return Err(BodyError::CutOff("the request body was cut off")),
            Ok(None) => return framing.finish(),
            Ok(Some(Ok(frame))) => frame,
        };
        if let Ok(data) = frame.into_data() {
            framing.push(handler, coding, &data)?;
        }
    }
}

/// Length-prefixed framing, for exactly one message.
struct Framing {
    prefix: [u8; PREFIX],
    have: usize,
    /// Set once the prefix is complete: the message, and the number of bytes still to come.
    message: Option<(BodyDecoder, usize)>,
}

impl Framing {
    fn push(&mut self, handler: &RequestHandler, coding: Coding, mut data: &[u8]) -> Result<(), BodyError> {
        while self.message.is_none() {
            let Some((&first, rest)) = data.split_first() else { return Ok(()) };
            data = rest;
            self.prefix[self.have] = first;
            self.have += 1;
            if self.have == PREFIX {
                let [flag, length @ ..] = self.prefix;
                let length = u32::from_be_bytes(length) as usize;
                let coding = match (flag, coding) {
                    (0, _) => Coding::Identity,
                    (1, Coding::Identity) => {
                        return Err(malformed(
                            "the message is flagged as compressed, but grpc-encoding is not set",
                        ));
                    }
                    (1, coding) => coding,
                    _ => return Err(malformed("invalid compression flag of the message")),
                };
                self.message = Some((handler.body_decoder(coding, Some(length))?, length));
            }
        }
        if let Some((decoder, left)) = &mut self.message {
            *left = left
                .checked_sub(data.len())
                .ok_or_else(|| malformed("more than one message in a unary call"))?;
            decoder.push(data)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(Bytes, Reservation), BodyError> {
        match self.message {
            Some((decoder, 0)) => decoder.finish(),
            _ => Err(malformed("the request ends within its message")),
        }
    }
}

fn malformed(text: &str) -> BodyError {
    BodyError::Malformed(text.to_owned())
}

fn success(accepted: Accepted) -> Response {
    let response = response(accepted);
    let length = response.encoded_len();
    let mut data = BytesMut::with_capacity(PREFIX + length);
    data.extend_from_slice(&[0]);
    data.extend_from_slice(&u32::try_from(length).unwrap_or(0).to_be_bytes());
    data.extend_from_slice(&response.encode_to_vec());
    let mut http = Response::new(Body::new(Unary { data: Some(data.freeze()), ended: false }));
    http.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    http
}

fn failure(rejection: &Rejection) -> Response {
    let code = code(rejection);
    // Details only if they add something to code and message.
    let details = match rejection.retry() {
        Some(_) => status(rejection).encode_to_vec().into(),
        None => Bytes::new(),
    };
    let mut response: Response = tonic::Status::with_details(code, rejection.message(), details).into_http();
    if matches!(rejection, Rejection::Encoding(_)) {
        response.headers_mut().insert("grpc-accept-encoding", SUPPORTED_ENCODINGS);
    }
    response
}

fn empty_response(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// One message, then trailers with status OK.
struct Unary {
    data: Option<Bytes>,
    ended: bool,
}

impl http_body::Body for Unary {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(data) = self.data.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if std::mem::replace(&mut self.ended, true) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}
