//! Receives OTLP over gRPC and HTTP: reads and decompresses bodies under limits, offers messages to
//! the pipeline, and responds as the protocol requires.
//!
//! In: connections. Out: [`Offer`]s to an [`Intake`], and responses by OTLP's rules: malformed
//! INVALID_ARGUMENT / 400, too large RESOURCE_EXHAUSTED without RetryInfo / 413, overloaded
//! UNAVAILABLE with RetryInfo / 503 with Retry-After, partly rejected `partial_success`, a signal
//! without exporter UNIMPLEMENTED / 404.
//!
//! [`bind`] opens the sockets, so that ports are known and an address in use fails early;
//! [`Bound::serve`] serves requests until its cancellation, then lets those in flight finish.
//! `listen` accepts connections, `grpc` and `http` implement the protocols, `body` decompresses
//! under limits, `request_handler` is what both protocols share, `intake` the interface to the
//! pipeline. `tls`, `auth` and `cors` restrict senders; `listener_security` loads and reloads the
//! files of the first two.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use verdict_otlp::Transport;

use crate::reservation::ByteLimit;
use crate::telemetry::Telemetry;

mod auth;
mod body;
pub mod config;
mod cors;
mod grpc;
mod http;
mod intake;
pub(crate) mod listen;
mod listener_security;
mod rejection;
mod request_handler;
mod rpc;
mod tls;

pub use auth::{Auth, Basic};
pub use config::OtlpConfig;
pub use cors::Cors;
pub use intake::{Accepted, Answer, Intake, Offer, Refused};
pub use listen::BindError;
use listen::{Limits, Listener, ListenerMetrics};
use listener_security::ListenerSecurity;
use request_handler::RequestHandler;
pub use tls::{ServerTls, TlsVersion};

/// Bound sockets that do not accept connections yet.
#[derive(Debug)]
pub struct Bound {
    config: OtlpConfig,
    /// Limit on the bytes of all requests in flight.
    max_in_flight: u64,
    grpc: Option<(Listener, ListenerSecurity)>,
    http: Option<(Listener, ListenerSecurity)>,
}

/// Opens the sockets of every enabled protocol, and reads its certificates and tokens.
///
/// # Errors
/// An address cannot be bound, or a file of certificates or tokens cannot be used.
pub async fn bind(config: &OtlpConfig) -> Result<Bound, BindError> {
    let grpc = match &config.protocols.grpc {
        Some(grpc) => {
            let security =
                ListenerSecurity::load(&grpc.endpoint, grpc.tls.as_ref(), grpc.auth.as_ref(), &[b"h2"])?;
            Some((Listener::bind(&grpc.endpoint).await?.over_tls(security.identity()), security))
        }
        None => None,
    };
    let http = match &config.protocols.http {
        Some(http) => {
            let alpn: [&[u8]; 2] = [b"h2", b"http/1.1"];
            let security =
                ListenerSecurity::load(&http.endpoint, http.tls.as_ref(), http.auth.as_ref(), &alpn)?;
            Some((Listener::bind(&http.endpoint).await?.over_tls(security.identity()), security))
        }
        None => None,
    };
    let max_in_flight = config.admission.request_limit_mib.saturating_mul(1 << 20);
    Ok(Bound { config: config.clone(), max_in_flight, grpc, http })
}

impl Bound {
    /// The address of OTLP/gRPC, with the actual port.
    pub fn grpc_addr(&self) -> Option<SocketAddr> {
        self.grpc.as_ref().map(|(listener, _)| listener.addr)
    }

    /// The address of OTLP/HTTP, with the actual port.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(|(listener, _)| listener.addr)
    }

    /// Lowers the limit on bytes of requests in flight to `bytes`, if `admission` allows more.
    pub fn with_in_flight_limit(self, bytes: u64) -> Bound {
        Bound { max_in_flight: self.max_in_flight.min(bytes), ..self }
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
        let in_flight = ByteLimit { total: telemetry.receive.held_bytes.clone(), limit: self.max_in_flight };
        let max_ratio = self.config.admission.max_decompression_ratio;
        let handler = |transport, max_message: u64, security: &ListenerSecurity| RequestHandler {
            transport,
            intake: intake.clone(),
            telemetry: telemetry.clone(),
            in_flight: in_flight.clone(),
            max_message: usize::try_from(max_message).unwrap_or(usize::MAX),
            max_ratio,
            authenticator: security.authenticator(),
        };
        let metrics = |transport| ListenerMetrics {
            open: telemetry.receive.connections(transport).clone(),
            handshakes_failed: telemetry.receive.handshakes_failed(transport).clone(),
        };
        let config::Protocols { grpc, http } = self.config.protocols;
        let reloads = [&self.grpc, &self.http].map(|bound| {
            maybe(bound.as_ref().map(|(_, security)| security.clone().reload_loop(stop.clone())))
        });
        let grpc = self.grpc.zip(grpc).map(|((listener, security), config)| {
            let limit = config.max_recv_msg_size_mib.saturating_mul(1 << 20);
            let handler = handler(Transport::Grpc, limit, &security);
            tracing::info!(endpoint = %listener.addr, tls = security.is_tls(), auth = security.authenticates(), "receiving OTLP/gRPC");
            security.warn_if_exposed("receivers.otlp.protocols.grpc", listener.addr);
            let limits = Limits::grpc(&config);
            listener.serve(grpc::router(handler), limits, metrics(Transport::Grpc), stop.clone(), grace)
        });
        let http = self.http.zip(http).map(|((listener, security), config)| {
            let handler = handler(Transport::Http, config.max_request_body_size.0, &security);
            tracing::info!(endpoint = %listener.addr, tls = security.is_tls(), auth = security.authenticates(), "receiving OTLP/HTTP");
            security.warn_if_exposed("receivers.otlp.protocols.http", listener.addr);
            let limits = Limits::http(&config);
            listener.serve(http::router(handler, &config), limits, metrics(Transport::Http), stop.clone(), grace)
        });
        let [grpc_reload, http_reload] = reloads;
        tokio::join!(maybe(grpc), maybe(http), grpc_reload, http_reload);
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
            // The Collector has no key for gRPC's header timeout.
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
            // On HTTP/2 the header timeout does not detect a vanished peer; pings do.
            ping: idle.map(|idle| (idle, Duration::from_secs(20))),
            age: None,
            http2_only: false,
        }
    }
}

#[cfg(test)]
mod tests;
