//! Receives OTLP over gRPC and HTTP: reads and decompresses bodies under limits, offers messages to
//! the pipeline, and responds as the protocol requires.
//!
//! In: connections. Out: [`Offer`]s to an [`Intake`], and responses by OTLP's rules, over gRPC / HTTP:
//!
//! | request | response |
//! |---|---|
//! | malformed | INVALID_ARGUMENT / 400 |
//! | too large | RESOURCE_EXHAUSTED without RetryInfo / 413 |
//! | refused by an overloaded pipeline | UNAVAILABLE with RetryInfo / 503 with Retry-After |
//! | partly rejected | `partial_success` |
//! | of a signal without exporter | UNIMPLEMENTED / 404 |
//!
//! [`bind`] opens the sockets, so that ports are known and an address in use fails early;
//! [`BoundReceiver::serve`] serves requests until its cancellation, then lets requests in flight finish.
//!
//! | file | content |
//! |---|---|
//! | `config` | the section `receivers.otlp` |
//! | `listen`, `connections` | the accept loop of all listeners; open connections and their fair shares |
//! | `grpc`, `http`, `body` | the protocols; bodies, decompressed under limits |
//! | `request_handler`, `intake`, `rejection` | the steps that both protocols share; the interface to the pipeline; the reason of a rejection |
//! | `tls`, `auth`, `cors`, `listener_security` | restrictions on senders; the files of certificates and credentials, loaded and reloaded |
//! | `restricted_listener`, `paths` | a listener that is no receiver, for callers that are authenticated; such a listener for questions before a call |
//! | `kafka` | the receiver of records of Kafka |

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::Version;
use axum::Router;
use futures_util::future::{OptionFuture, join};
use tokio_util::sync::CancellationToken;
use verdict_otlp::Transport;

use crate::reservation::ByteLimit;
use crate::telemetry::Telemetry;

pub(crate) mod auth;
mod body;
pub(crate) mod connections;
pub mod config;
mod cors;
mod grpc;
pub(crate) mod restricted_listener;
mod http;
mod intake;
pub mod kafka;
pub(crate) mod listen;
pub(crate) mod paths;
mod listener_security;
mod rejection;
mod request_handler;
mod tls;

pub use auth::{Auth, Basic};
pub use config::OtlpConfig;
use config::{Endpoint, Protocols};
use connections::Peers;
pub use cors::Cors;
pub use intake::{Accepted, DropFuture, Intake, Offer, OfferFuture, Refused};
pub use listen::BindError;
use listen::{Listener, ListenerLimits, ListenerMetrics};
use listener_security::ListenerSecurity;
use request_handler::RequestHandler;
pub use tls::{ServerTls, TlsVersion};

const MIB: u64 = 1 << 20;

/// Bound sockets that do not accept connections yet.
#[derive(Debug)]
pub struct BoundReceiver {
    config: OtlpConfig,
    /// Bytes of all requests in flight.
    in_flight: ByteLimit,
    grpc: Option<(Listener, ListenerSecurity)>,
    http: Option<(Listener, ListenerSecurity)>,
}

/// Opens the sockets of every enabled protocol, and reads its certificates and tokens.
///
/// # Errors
/// An address cannot be bound, or a file of certificates or tokens cannot be used.
pub async fn bind(config: &OtlpConfig) -> Result<BoundReceiver, BindError> {
    let Protocols { grpc, http } = &config.protocols;
    let grpc = grpc.as_ref().map(|grpc| {
        open_listener("receivers.otlp.protocols.grpc", &grpc.endpoint, &grpc.tls, &grpc.auth, &[b"h2"])
    });
    let http = http.as_ref().map(|http| {
        open_listener(
            "receivers.otlp.protocols.http",
            &http.endpoint,
            &http.tls,
            &http.auth,
            &[b"h2", b"http/1.1"],
        )
    });
    Ok(BoundReceiver {
        config: config.clone(),
        in_flight: ByteLimit::new(config.admission.request_limit_mib.saturating_mul(MIB)),
        grpc: OptionFuture::from(grpc).await.transpose()?,
        http: OptionFuture::from(http).await.transpose()?,
    })
}

async fn open_listener(
    key: &'static str,
    endpoint: &Endpoint,
    tls: &Option<ServerTls>,
    auth: &Option<Auth>,
    alpn: &[&[u8]],
) -> Result<(Listener, ListenerSecurity), BindError> {
    let security = ListenerSecurity::load(key, endpoint, tls.as_ref(), auth.as_ref(), alpn)?;
    Ok((Listener::bind(key, endpoint).await?.over_tls(security.identity.clone()), security))
}

impl BoundReceiver {
    /// The address of OTLP/gRPC, with the actual port.
    pub fn grpc_addr(&self) -> Option<SocketAddr> {
        self.grpc.as_ref().map(|(listener, _)| listener.addr)
    }

    /// The address of OTLP/HTTP, with the actual port.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(|(listener, _)| listener.addr)
    }

    /// Lowers the limit on bytes of requests in flight to `bytes`, if `admission` allows more.
    pub fn with_in_flight_limit(self, bytes: u64) -> BoundReceiver {
        BoundReceiver { in_flight: ByteLimit::new(self.in_flight.limit.min(bytes)), ..self }
    }

    /// The limit on bytes of requests in flight, counted in the self-metrics.
    pub(crate) fn in_flight(&self, telemetry: &Telemetry) -> ByteLimit {
        self.in_flight.clone().counted_in(&telemetry.receive.held_bytes)
    }

    /// Serves requests until `stop` is cancelled, then lets those in flight finish for at most `grace`.
    /// Dropping the future aborts them at once.
    pub async fn serve(
        self,
        intake: Arc<dyn Intake>,
        telemetry: Arc<Telemetry>,
        stop: CancellationToken,
        grace: Duration,
    ) {
        let in_flight = self.in_flight(&telemetry);
        // A quarter: while the total is above three quarters, only peers within their share are admitted.
        let peers = Peers { share: in_flight.limit / 4, ..Peers::default() };
        let max_ratio = self.config.admission.max_decompression_ratio;
        let serve = |(listener, security): (Listener, ListenerSecurity),
                     transport: Transport,
                     max_message_bytes: u64,
                     limits: ListenerLimits,
                     router: &dyn Fn(RequestHandler) -> Router| {
            let (protocol, key) = match transport {
                Transport::Grpc => ("OTLP/gRPC", "receivers.otlp.protocols.grpc"),
                Transport::Http => ("OTLP/HTTP", "receivers.otlp.protocols.http"),
            };
            let handler = RequestHandler {
                transport,
                intake: intake.clone(),
                telemetry: telemetry.clone(),
                in_flight: in_flight.clone(),
                max_message_bytes: usize::try_from(max_message_bytes).unwrap_or(usize::MAX),
                max_ratio,
                authenticator: security.authenticator.clone(),
            };
            let metrics = ListenerMetrics {
                open: telemetry.receive.connections(transport).clone(),
                handshakes_failed: telemetry.receive.handshakes_failed(transport).clone(),
                peers: peers.clone(),
            };
            tracing::info!(endpoint = %listener.addr, tls = security.is_tls(), auth = security.authenticates(), "receiving {protocol}");
            security.warn_if_exposed(key, listener.addr);
            let served = listener.serve(router(handler), limits, metrics, stop.clone(), grace);
            join(served, security.reload_loop(stop.clone()))
        };
        let Protocols { grpc, http } = self.config.protocols;
        let grpc = self.grpc.zip(grpc).map(|(bound, config)| {
            let max_message_bytes = config.max_recv_msg_size_mib.saturating_mul(MIB);
            serve(bound, Transport::Grpc, max_message_bytes, ListenerLimits::grpc(&config), &grpc::router)
        });
        let http = self.http.zip(http).map(|(bound, config)| {
            let router = |handler| http::router(handler, &config);
            serve(
                bound,
                Transport::Http,
                config.max_request_body_size.0,
                ListenerLimits::http(&config),
                &router,
            )
        });
        join(OptionFuture::from(grpc), OptionFuture::from(http)).await;
    }
}

impl ListenerLimits {
    fn grpc(config: &config::GrpcConfig) -> ListenerLimits {
        let keepalive = &config.keepalive.server_parameters;
        ListenerLimits {
            max_connections: config.max_connections,
            max_streams: config.max_concurrent_streams,
            max_header_bytes: usize::try_from(config.max_header_size.0).unwrap_or(usize::MAX),
            // The Collector has no key for gRPC's header timeout.
            header_timeout: Some(Duration::from_secs(60)),
            ping: (!keepalive.time.0.is_zero()).then_some((keepalive.time.0, keepalive.timeout.0)),
            max_age: keepalive.max_connection_age.map(|age| (age.0, keepalive.max_connection_age_grace.0)),
            version: Some(Version::HTTP_2),
        }
    }

    fn http(config: &config::HttpConfig) -> ListenerLimits {
        let timeout = Some(config.read_header_timeout.0).filter(|time| !time.is_zero());
        ListenerLimits {
            max_connections: config.max_connections,
            max_streams: config.max_concurrent_streams,
            max_header_bytes: usize::try_from(config.max_header_size.0).unwrap_or(usize::MAX),
            header_timeout: timeout,
            // On HTTP/2 the header timeout does not detect a vanished peer; pings do.
            ping: timeout.map(|interval| (interval, Duration::from_secs(20))),
            max_age: None,
            version: None,
        }
    }
}

#[cfg(test)]
mod tests;
