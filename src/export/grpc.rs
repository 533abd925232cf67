//! OTLP over gRPC: tonic's channel serves as an HTTP/2 client; framing, compression and statuses are
//! implemented here, so that encoded pieces are sent without a copy.
//!
//! In: an [`ExportRequest`]. Out: an [`ExportResult`] by the OTLP specification's table of retryable
//! codes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::uri::{PathAndQuery, Scheme, Uri};
use ::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tower::{Service, ServiceExt};
use verdict_client::{ClientError, tls};

use super::client::{ExportClient, ExportFuture};
use super::config::OtlpGrpc;
use super::error::StartError;
use super::pack::ExportRequest;
use super::response::{ExportResponse, ExportResult, MAX_RESPONSE_BYTES, one_line};
use crate::rpc;

/// Consecutive timeouts after which the connection is replaced: its peer may have vanished, which the kernel would only
/// detect after a quarter of an hour.
const MAX_TIMEOUTS: u32 = 2;

/// An endpoint cannot be used.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum EndpointError {
    #[error("required, for example host:4317")]
    Missing,
    #[error("'{0}' is not a scheme for gRPC; omit it")]
    Scheme(String),
    #[error("'{0}' is not host:port")]
    NotHostPort(String),
}

/// A parsed endpoint.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct GrpcEndpoint {
    uri: Uri,
    is_tls: bool,
}

impl GrpcEndpoint {
    /// Parses `host:port`, optionally with `http://` or `https://`.
    pub(super) fn parse(endpoint: &str, insecure: bool) -> Result<GrpcEndpoint, EndpointError> {
        if endpoint.trim().is_empty() {
            return Err(EndpointError::Missing);
        }
        let (is_tls, authority) = match endpoint.split_once("://") {
            Some(("http", authority)) => (false, authority),
            Some(("https", authority)) => (true, authority),
            Some((scheme, _)) => return Err(EndpointError::Scheme(scheme.to_owned())),
            None => (!insecure, endpoint),
        };
        let authority = authority.trim_end_matches('/');
        let scheme = if is_tls { Scheme::HTTPS } else { Scheme::HTTP };
        let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build();
        match uri {
            Ok(uri) if uri.port_u16().is_some_and(|port| port > 0) => Ok(GrpcEndpoint { uri, is_tls }),
            _ => Err(EndpointError::NotHostPort(endpoint.to_owned())),
        }
    }
}

/// A client of one destination.
#[derive(Debug)]
pub(super) struct GrpcClient {
    endpoint: Endpoint,
    connector: Connector,
    channel: Mutex<Channel>,
    /// Consecutive timeouts.
    timeouts: AtomicU32,
    headers: HeaderMap,
}

impl GrpcClient {
    /// Reads the TLS files; connects with the first request.
    pub(super) fn new(config: &OtlpGrpc) -> Result<GrpcClient, StartError> {
        let target = GrpcEndpoint::parse(&config.endpoint, config.tls.insecure)
            .map_err(|e| ClientError::Endpoint(e.to_string()))?;
        let tls = match target.is_tls {
            true => Some(TlsClient {
                config: Arc::new(tls::client_config(&config.tls, &[b"h2"]).map_err(ClientError::from)?),
                server_name: tls::server_name(
                    config.tls.server_name_override.as_deref().or(target.uri.host()).unwrap_or_default(),
                )
                .map_err(ClientError::from)?,
            }),
            false => None,
        };
        let authority = target.uri.authority().map(ToString::to_string).unwrap_or_default();
        // The connector performs TLS itself, so that the URI of the channel is `http`; `origin` sets the scheme of
        // requests to that of the endpoint.
        let endpoint = Endpoint::from_shared(format!("http://{authority}"))
            .map_err(|e| ClientError::Endpoint(e.to_string()))?
            .origin(target.uri)
            .user_agent(verdict_client::USER_AGENT)
            .map_err(|e| ClientError::Endpoint(e.to_string()))?
            .connect_timeout(*config.timeout);
        let mut headers = verdict_client::headers(&config.headers)?;
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(http::header::TE, HeaderValue::from_static("trailers"));
        // gRPC allows at most eight digits.
        let millis = config.timeout.as_millis().min(99_999_999);
        if let Ok(value) = HeaderValue::from_str(&format!("{millis}m")) {
            headers.insert("grpc-timeout", value);
        }
        let connector = Connector { authority: authority.into(), tls };
        let channel = Mutex::new(connector.channel(&endpoint));
        let timeouts = AtomicU32::new(0);
        Ok(GrpcClient { endpoint, connector, channel, timeouts, headers })
    }

    /// Sends a request, and reads the response.
    async fn call(&self, message: &ExportRequest) -> ExportResponse {
        let mut request = Request::new(tonic::body::Body::new(message.grpc_body()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from(PathAndQuery::from_static(message.signal.grpc_method()));
        *request.headers_mut() = self.headers.clone();
        if let Some(name) = message.compression.name() {
            request.headers_mut().insert("grpc-encoding", HeaderValue::from_static(name));
        }
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let result = match channel.ready().await {
            Ok(channel) => channel.call(request).await,
            Err(error) => Err(error),
        };
        let response = match result {
            Ok(response) => read_response(response).await,
            Err(error) => connection_error(&error),
        };
        self.timeouts.store(0, Ordering::Relaxed);
        response
    }
}

impl ExportClient for GrpcClient {
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a> {
        Box::pin(self.call(request))
    }

    fn timed_out(&self) {
        if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_TIMEOUTS {
            self.timeouts.store(0, Ordering::Relaxed);
            let channel = self.connector.channel(&self.endpoint);
            *self.channel.lock().unwrap_or_else(PoisonError::into_inner) = channel;
        }
    }
}

/// The response for a failed connection: it is unknown whether the request was accepted.
fn connection_error(error: &(dyn std::error::Error + 'static)) -> ExportResponse {
    ExportResponse::without_response("connection", one_line(&verdict_client::reasons(error)))
}

/// Reads a response: message and trailers, or headers alone if the call failed early.
async fn read_response<B>(response: Response<B>) -> ExportResponse
where
    B: http_body::Body + Unpin,
    B::Error: std::error::Error + 'static,
{
    let (head, mut body) = response.into_parts();
    if let Some(status) = Status::from_header_map(&head.headers) {
        return classify(&status, &[]);
    }
    if head.status != StatusCode::OK {
        return classify(&status_of_http(head.status), &[]);
    }
    let mut message = BytesMut::new();
    let mut trailers = HeaderMap::new();
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return connection_error(&error),
        };
        match frame.into_data() {
            Ok(mut data) => {
                while data.has_remaining() && message.len() < MAX_RESPONSE_BYTES {
                    let chunk = data.chunk();
                    let length = chunk.len().min(MAX_RESPONSE_BYTES - message.len());
                    message.extend_from_slice(chunk.get(..length).unwrap_or_default());
                    data.advance(length);
                }
            }
            Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
        }
    }
    match Status::from_header_map(&trailers) {
        Some(status) => classify(&status, &message),
        // The response was cut off, for example by a proxy or a restart.
        None => ExportResponse::without_response("connection", "the response ended without a status".into()),
    }
}

/// The gRPC status for an HTTP response without one, by the mapping of gRPC.
fn status_of_http(status: StatusCode) -> Status {
    let code = match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    };
    Status::new(code, format!("HTTP status {status}"))
}

/// Labels of statuses in self-metrics, by the numbers of the codes.
const STATUS_LABELS: [&str; 17] = [
    "ok",
    "cancelled",
    "unknown",
    "invalid_argument",
    "deadline_exceeded",
    "not_found",
    "already_exists",
    "permission_denied",
    "resource_exhausted",
    "failed_precondition",
    "aborted",
    "out_of_range",
    "unimplemented",
    "internal",
    "unavailable",
    "data_loss",
    "unauthenticated",
];

/// The result of a call with a status and a body in gRPC's framing.
fn classify(status: &Status, framed: &[u8]) -> ExportResponse {
    let label = STATUS_LABELS.get(status.code() as usize).copied().unwrap_or("unknown");
    let reason = format!("{:?}: {}", status.code(), one_line(status.message()));
    let after = retry_delay(status.details());
    let result = match status.code() {
        Code::Ok => ExportResult::from_success(first_message(framed)),
        // tonic's servers report a message above their limit as OUT_OF_RANGE.
        Code::ResourceExhausted | Code::OutOfRange
            if after.is_none() && is_message_size_error(status.message()) =>
        {
            ExportResult::TooLarge(reason)
        }
        // OTLP allows clients to drop a request after RESOURCE_EXHAUSTED without RetryInfo. Rate limiters and the
        // Collector's memory limiter respond with it during a temporary overload, so that it is retried as UNAVAILABLE
        // is, until `max_elapsed_time`.
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => ExportResult::Retry { after, reason },
        Code::InvalidArgument => ExportResult::Invalid(reason),
        Code::Unimplemented => ExportResult::Unsupported(reason),
        Code::Unauthenticated | Code::PermissionDenied => ExportResult::Unauthorized(reason),
        _ => ExportResult::Rejected(reason),
    };
    ExportResponse { status: label, result }
}

/// Whether a status message states that the request exceeds the server's limit on the size of messages, by the wording
/// of gRPC for Go, C++, JavaScript ("larger than"), Java, .NET ("message exceeds") and tonic ("too large"). There is
/// no status code for this case alone.
fn is_message_size_error(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["larger than", "too large", "too big", "message exceeds", "size exceeds"]
        .iter()
        .any(|s| message.contains(s))
}

/// The first message of a gRPC body; empty if it is compressed, which the requests do not permit.
fn first_message(framed: &[u8]) -> &[u8] {
    match framed.split_first_chunk::<5>() {
        Some(([0, a, b, c, d], message)) => {
            let len = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            message.get(..len).unwrap_or_default()
        }
        _ => &[],
    }
}

/// The delay of a `google.rpc.RetryInfo` in the details of a status, which are an encoded `google.rpc.Status`.
fn retry_delay(details: &[u8]) -> Option<Duration> {
    rpc::RpcStatus::decode(details).ok()?.retry_delay()
}

/// TLS settings, and the name that the server's certificate must have.
#[derive(Clone, Debug)]
struct TlsClient {
    config: Arc<rustls::ClientConfig>,
    server_name: rustls::pki_types::ServerName<'static>,
}

/// Connects with TCP_NODELAY, and with TLS if the endpoint uses it.
#[derive(Clone, Debug)]
struct Connector {
    authority: Arc<str>,
    tls: Option<TlsClient>,
}

trait IoStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> IoStream for T {}

impl Connector {
    /// A channel that connects with the first request.
    fn channel(&self, endpoint: &Endpoint) -> Channel {
        let connector = self.clone();
        endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| connector.clone().connect()))
    }

    async fn connect(self) -> std::io::Result<TokioIo<Box<dyn IoStream>>> {
        let tcp = TcpStream::connect(&*self.authority).await?;
        tcp.set_nodelay(true)?;
        let stream: Box<dyn IoStream> = match self.tls {
            Some(tls) => Box::new(TlsConnector::from(tls.config).connect(tls.server_name, tcp).await?),
            None => Box::new(tcp),
        };
        Ok(TokioIo::new(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_parsed_as_in_the_collector() {
        let parse =
            |text: &str, insecure| GrpcEndpoint::parse(text, insecure).map(|t| (t.uri.to_string(), t.is_tls));
        assert_eq!(parse("h:4317", false), Ok(("https://h:4317/".into(), true)));
        assert_eq!(parse("h:4317", true), Ok(("http://h:4317/".into(), false)));
        assert_eq!(parse("http://h:4317", false), Ok(("http://h:4317/".into(), false)));
        assert_eq!(parse("https://h:4317/", false), Ok(("https://h:4317/".into(), true)));
        assert_eq!(parse("https://h:4317", true), Ok(("https://h:4317/".into(), true)));
        assert_eq!(parse("[::1]:4317", true), Ok(("http://[::1]:4317/".into(), false)));
        for invalid in ["", "h", "h:", "ftp://h:1", "h:4317/path", "h:99999", "h:0"] {
            assert!(GrpcEndpoint::parse(invalid, false).is_err(), "{invalid}");
        }
    }

    #[test]
    fn only_the_codes_of_the_specification_are_retried() {
        let retried =
            |code| matches!(classify(&Status::new(code, ""), &[]).result, ExportResult::Retry { .. });
        for code in (0..=16).map(Code::from_i32) {
            let expected = matches!(
                code,
                Code::Cancelled
                    | Code::DeadlineExceeded
                    | Code::ResourceExhausted
                    | Code::Aborted
                    | Code::OutOfRange
                    | Code::Unavailable
                    | Code::DataLoss
            );
            assert_eq!(retried(code), expected, "{code:?}");
        }
    }

    #[test]
    fn only_a_request_whose_size_is_refused_is_halved() {
        let is_halved = |code, message| {
            matches!(classify(&Status::new(code, message), &[]).result, ExportResult::TooLarge(_))
        };
        // Messages of gRPC for Go, for C++ and Python, for Java, for .NET, of tonic, and of this crate's receiver.
        for message in [
            "grpc: received message larger than max (5000000 vs. 4194304)",
            "CLIENT: Received message larger than max (5000000 vs. 4194304)",
            "gRPC message exceeds maximum size 4194304: 5000000",
            "Received message exceeds the maximum configured message size.",
            "Error, decoded message length too large: found 5000000 bytes, the limit is: 4194304 bytes",
            "the request is larger than 4194304 bytes",
        ] {
            assert!(is_halved(Code::ResourceExhausted, message), "{message}");
            assert!(
                is_halved(Code::OutOfRange, message) && !is_halved(Code::Unavailable, message),
                "{message}"
            );
        }
        // Messages of Tempo, and of the Collector's memory limiter and queue.
        for message in [
            "",
            "RATE_LIMITED: ingestion rate limit (local: 15000000 bytes, global: 0 bytes) exceeded while adding 5 bytes",
            "data refused due to high memory usage",
            "sending queue is full",
        ] {
            assert!(!is_halved(Code::ResourceExhausted, message), "{message}");
        }
    }

    #[test]
    fn retry_info_is_read_from_status_details() {
        // google.rpc.Status { details: [Any { "…/google.rpc.RetryInfo", RetryInfo { 2.5 s } }] }
        let duration = [0x08, 2, 0x10, 0x80, 0xca, 0xb5, 0xee, 0x01];
        let mut any = vec![0x0a, 40];
        any.extend(b"type.googleapis.com/google.rpc.RetryInfo");
        any.extend([0x12, 10, 0x0a, 8]);
        any.extend(duration);
        let mut details = vec![0x08, 8, 0x1a, u8::try_from(any.len()).unwrap()];
        details.extend(&any);
        assert_eq!(retry_delay(&details), Some(Duration::from_millis(2500)));
        assert_eq!(retry_delay(&[]), None);
        assert_eq!(retry_delay(b"\x1a\x04\x0a\x02ab"), None);
        let status = Status::with_details(Code::ResourceExhausted, "slow down", details.into());
        assert!(matches!(classify(&status, &[]).result, ExportResult::Retry { after: Some(_), .. }));
    }
}
