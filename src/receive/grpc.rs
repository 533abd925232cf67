//! OTLP/gRPC: the `Export` method of the three collector services.
//!
//! In: HTTP/2 requests. Out: the encoded request message to the intake, and a gRPC answer. Of
//! gRPC itself only what a unary call needs is done here (length-prefixed messages, compression
//! flag, trailers), since a general codec would decode too early, decompress without a bound and
//! answer OUT_OF_RANGE and INTERNAL where OTLP wants RESOURCE_EXHAUSTED and INVALID_ARGUMENT.

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

use super::Accepted;
use super::answer::{Desk, Rejection, STALL, code, response, status};
use super::body::{BodyError, Coding, Hold, Unpack};
use verdict_otlp::Signal;

/// Flag and length before a message.
const PREFIX: usize = 5;

const SERVED: HeaderValue = HeaderValue::from_static("identity,gzip,zstd");

pub(crate) fn router(desk: Desk) -> Router {
    let desk = Arc::new(desk);
    Router::new().fallback(move |request: Request| {
        let desk = desk.clone();
        async move { answer(&desk, request).await }
    })
}

async fn answer(desk: &Desk, request: Request) -> Response {
    if request.method() != Method::POST {
        return plain(StatusCode::METHOD_NOT_ALLOWED);
    }
    if !is_grpc(request.headers()) {
        return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let Some(signal) = signal(request.uri().path()) else {
        return tonic::Status::unimplemented("no such method").into_http();
    };
    let answer = match desk.admit(request.headers()) {
        Ok(()) => take(desk, signal, request).await,
        Err(rejection) => Err(rejection),
    };
    desk.count(signal, &answer);
    match answer {
        Ok(accepted) => success(accepted),
        Err(rejection) => {
            let mut answer = failure(&rejection);
            if rejection == Rejection::Unauthenticated {
                desk.challenge(answer.headers_mut());
            }
            answer
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

async fn take(desk: &Desk, signal: Signal, request: Request) -> Result<Accepted, Rejection> {
    let coding = coding(request.headers())?;
    desk.pressure()?;
    let (message, hold) = read(desk, coding, request.into_body()).await?;
    desk.offer(signal, message, hold).await
}

/// Reads the one message of a unary call.
async fn read(desk: &Desk, coding: Coding, mut body: Body) -> Result<(Bytes, Hold), BodyError> {
    let mut framing = Framing { prefix: [0; PREFIX], have: 0, message: None };
    loop {
        let frame = match timeout(STALL, body.frame()).await {
            Err(_) => return Err(BodyError::CutOff("the request body stalled")),
            Ok(Some(Err(_))) => return Err(BodyError::CutOff("the request body was cut off")),
            Ok(None) => return framing.finish(),
            Ok(Some(Ok(frame))) => frame,
        };
        if let Ok(data) = frame.into_data() {
            framing.feed(desk, coding, &data)?;
        }
    }
}

/// Length-prefixed framing, for exactly one message.
struct Framing {
    prefix: [u8; PREFIX],
    have: usize,
    /// Once the prefix is whole: the message, and how many of its bytes are yet to come.
    message: Option<(Unpack, usize)>,
}

impl Framing {
    fn feed(&mut self, desk: &Desk, coding: Coding, mut data: &[u8]) -> Result<(), BodyError> {
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
                            "the message is marked compressed, but grpc-encoding is not set",
                        ));
                    }
                    (1, coding) => coding,
                    _ => return Err(malformed("bad flag before the message")),
                };
                let unpack = Unpack::new(coding, Some(length), desk.limit, desk.room.hold())?;
                let unpack = unpack.at_most_times(desk.ratio);
                self.message = Some((unpack, length));
            }
        }
        if let Some((unpack, left)) = &mut self.message {
            *left = left
                .checked_sub(data.len())
                .ok_or_else(|| malformed("more than one message in a unary call"))?;
            unpack.feed(data)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(Bytes, Hold), BodyError> {
        match self.message {
            Some((unpack, 0)) => unpack.finish(),
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
    let mut answer = Response::new(Body::new(Unary { data: Some(data.freeze()), ended: false }));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    answer
}

fn failure(rejection: &Rejection) -> Response {
    let code = code(rejection);
    // Details only where they say more than code and message do.
    let details = match rejection.retry() {
        Some(_) => status(rejection).encode_to_vec().into(),
        None => Bytes::new(),
    };
    let mut answer: Response = tonic::Status::with_details(code, rejection.message(), details).into_http();
    if matches!(rejection, Rejection::Encoding(_)) {
        answer.headers_mut().insert("grpc-accept-encoding", SERVED);
    }
    answer
}

fn plain(status: StatusCode) -> Response {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    answer
}

/// One message, then the trailers that say OK.
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
