//! OTLP in, over gRPC and HTTP: bytes are framed, unpacked under limits, and offered to the
//! pipeline; the answer is the protocol's own.
//!
//! In: connections. Out: [`Offer`]s to an [`Intake`], and responses by OTLP's rules: malformed
//! INVALID_ARGUMENT / 400, too large RESOURCE_EXHAUSTED without RetryInfo / 413, overloaded
//! UNAVAILABLE with RetryInfo / 503 with Retry-After, partly bad `partial_success`, for nobody
//! UNIMPLEMENTED / 404.
//!
//! [`bind`] opens the sockets, so that ports are known and an address in use fails early;
//! [`Bound::serve`] takes requests until it is told to stop, then lets those in flight finish.
//! `listen` accepts connections, `grpc` and `http` speak the protocols, `body` unpacks under
//! limits, `answer` stands between them and the intake. `tls`, `auth` and `cors` say who may
//! come in; `doors` opens them and keeps them fresh.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use verdict_otlp::{Signal, Transport};

use crate::telemetry::Telemetry;

mod answer;
mod auth;
mod body;
pub mod config;
mod cors;
mod doors;
mod grpc;
mod http;
mod rpc;
pub(crate) mod listen;
mod tls;

pub use auth::{Auth, Basic};
pub use config::OtlpConfig;
pub use cors::Cors;
use doors::Door;
pub use listen::BindError;
use listen::{Cells, Limits, Listener};
pub use tls::{ServerTls, TlsVersion};

/// One request, unpacked: the encoded `Export*ServiceRequest` message.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Which service it was sent to.
    pub signal: Signal,
    /// The message, in an allocation of its own (a JSON request has been turned into protobuf).
    pub body: Bytes,
}

/// The request was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Spans (or records, or points) that could not be taken; 0 for full success.
    pub rejected: u64,
    /// Names them and says why; empty for full success.
    pub message: String,
}

/// The request was not taken at all, and the sender is told so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not the message it should be: INVALID_ARGUMENT / 400. Sending it again will not help.
    #[error("malformed request: {0}")]
    Malformed(String),
    /// No room now: UNAVAILABLE with RetryInfo / 503 with Retry-After.
    #[error("overloaded, try again in {retry:?}")]
    Overloaded {
        /// When to try again.
        retry: Duration,
    },
    /// Nobody would get it: UNIMPLEMENTED / 404. Taking it would be to drop it.
    #[error("no exporter takes {}", .0.as_str())]
    Unsupported(Signal),
    /// Going down: as overloaded, another instance may take it.
    #[error("shutting down")]
    ShuttingDown,
}

/// Boxed, so that receivers do not become generic over the pipeline.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Accepted, Refused>> + Send + 'a>>;

/// Where requests go. Implemented by `pipeline`.
pub trait Intake: Send + Sync + 'static {
    /// Asked before a body is read or decoded: `Some` means "refuse now, try again then".
    fn pressure(&self) -> Option<Duration>;
    /// Takes a request; returns once it is safe to acknowledge it.
    fn offer(&self, offer: Offer) -> Answer<'_>;
}

/// Sockets that are bound; nothing is accepted yet.
#[derive(Debug)]
pub struct Bound {
    config: OtlpConfig,
    /// Bytes of all requests in flight.
    room: u64,
    grpc: Option<(Listener, Door)>,
    http: Option<(Listener, Door)>,
}

/// Opens the sockets of every protocol that is on, and reads the certificates and tokens of their
/// doors.
///
/// # Errors
/// When an address is taken, unknown or not ours, or a door's files cannot be used.
pub async fn bind(config: &OtlpConfig) -> Result<Bound, BindError> {
    let grpc = match &config.protocols.grpc {
        Some(grpc) => {
            let door = Door::open(&grpc.endpoint, grpc.tls.as_ref(), grpc.auth.as_ref(), &[b"h2"])?;
            Some((Listener::bind(&grpc.endpoint).await?.over_tls(door.identity()), door))
        }
        None => None,
    };
    let http = match &config.protocols.http {
        Some(http) => {
            let alpn: [&[u8]; 2] = [b"h2", b"http/1.1"];
            let door = Door::open(&http.endpoint, http.tls.as_ref(), http.auth.as_ref(), &alpn)?;
            Some((Listener::bind(&http.endpoint).await?.over_tls(door.identity()), door))
        }
        None => None,
    };
    let room = config.admission.request_limit_mib.saturating_mul(1 << 20);
    Ok(Bound { config: config.clone(), room, grpc, http })
}

impl Bound {
    /// Where OTLP/gRPC listens, with the real port.
    pub fn grpc_addr(&self) -> Option<SocketAddr> {
        self.grpc.as_ref().map(|(listener, _)| listener.addr)
    }

    /// Where OTLP/HTTP listens, with the real port.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(|(listener, _)| listener.addr)
    }

    /// Lets at most so many bytes of requests in at once, whatever `admission` says.
    pub fn within(self, bytes: u64) -> Bound {
        Bound { room: self.room.min(bytes), ..self }
    }

    /// Takes requests until `stop` is cancelled, then accepts no more and returns when those in
    /// flight are answered, or `grace` is over and the rest was cut off. Dropping the future
    /// cuts them off at once.
    pub async fn serve(
        self,
        intake: Arc<dyn Intake>,
        telemetry: Arc<Telemetry>,
        stop: CancellationToken,
        grace: Duration,
    ) {
        let room = body::Room { held: telemetry.receive.held_bytes.clone(), limit: self.room };
        let ratio = self.config.admission.max_decompression_ratio;
        let desk = |transport, limit: u64, door: &Door| answer::Desk {
            transport,
            intake: intake.clone(),
            telemetry: telemetry.clone(),
            room: room.clone(),
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            ratio,
            guard: door.guard(),
        };
        let cells = |transport| Cells {
            open: telemetry.receive.connections(transport).clone(),
            handshakes_failed: telemetry.receive.handshakes_failed(transport).clone(),
        };
        let config::Protocols { grpc, http } = self.config.protocols;
        let doors = [&self.grpc, &self.http].map(|bound| bound.as_ref().map(|(_, door)| door.clone()));
        let grpc = self.grpc.zip(grpc).map(|((listener, door), config)| {
            let limit = config.max_recv_msg_size_mib.saturating_mul(1 << 20);
            let desk = desk(Transport::Grpc, limit, &door);
            tracing::info!(endpoint = %listener.addr, tls = door.is_tls(), auth = door.is_guarded(), "receiving OTLP/gRPC");
            door.warn("receivers.otlp.protocols.grpc", listener.addr);
            let limits = Limits::grpc(&config);
            listener.serve(grpc::router(desk), limits, cells(Transport::Grpc), stop.clone(), grace)
        });
        let http = self.http.zip(http).map(|((listener, door), config)| {
            let desk = desk(Transport::Http, config.max_request_body_size.0, &door);
            tracing::info!(endpoint = %listener.addr, tls = door.is_tls(), auth = door.is_guarded(), "receiving OTLP/HTTP");
            door.warn("receivers.otlp.protocols.http", listener.addr);
            let limits = Limits::http(&config);
            listener.serve(http::router(desk, &config), limits, cells(Transport::Http), stop.clone(), grace)
        });
        let [grpc_door, http_door] = doors.map(|door| maybe(door.map(|door| door.keep_fresh(stop.clone()))));
        tokio::join!(maybe(grpc), maybe(http), grpc_door, http_door);
    }
}

async fn maybe(serving: Option<impl Future<Output = ()>>) {
    if let Some(serving) = serving {
        serving.await;
    }
}

impl Limits {
    fn grpc(config: &config::GrpcConfig) -> Limits {
        let keepalive = &config.keepalive.server_parameters;
        Limits {
            connections: config.max_connections,
            streams: config.max_concurrent_streams,
            header_bytes: usize::try_from(config.max_header_size.0).unwrap_or(usize::MAX),
            // gRPC has no key for it; a peer that says nothing that long is not coming.
            header_time: Some(Duration::from_secs(60)),
            ping: (!keepalive.time.0.is_zero()).then_some((keepalive.time.0, keepalive.timeout.0)),
            age: keepalive.max_connection_age.map(|age| (age.0, keepalive.max_connection_age_grace.0)),
            http2_only: true,
        }
    }

    fn http(config: &config::HttpConfig) -> Limits {
        let idle = Some(config.read_header_timeout.0).filter(|time| !time.is_zero());
        Limits {
            connections: config.max_connections,
            streams: config.max_concurrent_streams,
            header_bytes: usize::try_from(config.max_header_size.0).unwrap_or(usize::MAX),
            header_time: idle,
            // On HTTP/2 the header timeout does not find a peer that went away; pings do.
            ping: idle.map(|idle| (idle, Duration::from_secs(20))),
            age: None,
            http2_only: false,
        }
    }
}

#[cfg(test)]
mod tests;
