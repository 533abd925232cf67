//! The accept loop of all listeners: connections in, requests to a router.
//!
//! Limits: concurrent connections (a further connection replaces an idle one, or waits), time until a
//! new connection sends its first request, header sizes, streams per connection. On cancellation it stops
//! accepting, lets requests in flight finish, and aborts them after the grace time.
//!
//! Uses hyper directly, as `axum::serve` and tonic's server do, because they do not support all of
//! these limits. With TLS, the handshake runs on the connection's own task, with a timeout.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use http::{Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::{Service as _, service_fn};

use super::config::Endpoint;
use super::connections::{Connections, OpenConnection, Peers};
use super::tls::Identity;

/// Length of HTTP/2's preface: with fewer bytes the peer's protocol is unknown.
const PREFACE_LENGTH: usize = 24;

/// Timeout of a TLS handshake: enough for three round trips over a very slow link, but bounded,
/// since a handshake occupies one of the allowed connections.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after `accept` failed for lack of descriptors or memory, so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The error of a socket that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{key}: cannot listen on {endpoint}: {source}")]
pub struct BindError {
    /// The section of the configuration.
    pub key: &'static str,
    pub endpoint: String,
    pub source: io::Error,
}

impl BindError {
    pub(crate) fn new(key: &'static str, endpoint: &Endpoint, source: io::Error) -> BindError {
        BindError { key, endpoint: endpoint.to_string(), source }
    }
}

/// Limits of a listener on its connections.
#[derive(Clone, Debug)]
pub(crate) struct ListenerLimits {
    pub(crate) max_connections: u32,
    /// Concurrent requests per HTTP/2 connection.
    pub(crate) max_streams: u32,
    pub(crate) max_header_bytes: usize,
    /// Timeout for the TLS handshake and for request headers.
    pub(crate) header_timeout: Option<Duration>,
    /// Interval and timeout of HTTP/2 pings.
    pub(crate) ping: Option<(Duration, Duration)>,
    /// Age at which a connection is shut down gracefully, and the grace time for its requests.
    pub(crate) max_age: Option<(Duration, Duration)>,
    /// HTTP/1.1 or HTTP/2; `None` for both.
    pub(crate) version: Option<Version>,
}

/// The counters of a listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListenerMetrics {
    /// Open connections.
    pub(crate) open: Gauge,
    pub(crate) handshakes_failed: Counter,
    /// The limits on the bytes of each peer's requests.
    pub(crate) peers: Peers,
}

/// A bound socket that does not accept connections yet.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    pub(crate) addr: SocketAddr,
    tls: Option<Arc<Identity>>,
}

impl Listener {
    /// Binds a socket. `key` is the section of the configuration, for errors.
    pub(crate) async fn bind(key: &'static str, endpoint: &Endpoint) -> Result<Listener, BindError> {
        let failed = |source| BindError::new(key, endpoint, source);
        let socket = TcpListener::bind(endpoint.bindable().as_ref()).await.map_err(failed)?;
        let addr = socket.local_addr().map_err(failed)?;
        Ok(Listener { socket, addr, tls: None })
    }

    /// Requires TLS, with the current configuration of `identity` for each new connection.
    pub(crate) fn over_tls(self, identity: Option<Arc<Identity>>) -> Listener {
        Listener { tls: identity, ..self }
    }

    /// Serves until `stop`, then lets requests in flight finish for at most `grace`.
    pub(crate) async fn serve(
        self,
        router: Router,
        limits: ListenerLimits,
        metrics: ListenerMetrics,
        stop: CancellationToken,
        grace: Duration,
    ) {
        // Resolves handlers once instead of for each request.
        let router = router.with_state::<()>(());
        let mut connections = Connections::new(self.addr, limits.max_connections, metrics.peers.clone());
        let builder = builder(&limits);
        let tasks = TaskTracker::new();
        // Cancelled when the grace time is over, and when this future is dropped.
        let abort = CancellationToken::new();
        let abort_on_drop = abort.clone().drop_guard();
        loop {
            let (socket, peer) = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.socket.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => { after_failed_accept(self.addr, &error).await; continue }
                },
            };
            let open = tokio::select! {
                () = stop.cancelled() => break,
                open = connections.open(peer.ip()) => open,
            };
            let connection = AcceptedConnection {
                peer,
                open,
                builder: builder.clone(),
                router: router.clone(),
                header_timeout: limits.header_timeout,
                max_age: limits.max_age.map(|(age, grace)| (with_jitter(age, peer), grace)),
            };
            let tls = self.tls.as_ref().map(|identity| TlsAcceptor::from(identity.current()));
            let (metrics, stop, abort) = (metrics.clone(), stop.clone(), abort.clone());
            tasks.spawn(async move {
                metrics.open.inc();
                tokio::select! {
                    () = connection.run(socket, tls, &metrics, stop) => {}
                    () = abort.cancelled() => {}
                }
                metrics.open.dec();
            });
        }
        drop(self.socket);
        tasks.close();
        if timeout(grace, tasks.wait()).await.is_err() {
            tracing::warn!(listener = %self.addr, connections = tasks.len(), "the grace time is over; open connections were aborted");
        }
        drop(abort_on_drop);
        tasks.wait().await;
    }
}

/// Logs an error of `accept` and pauses, unless only the peer's connection failed.
async fn after_failed_accept(listener: SocketAddr, error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(%listener, %error, "cannot accept connections; clients wait until it succeeds again");
        sleep(ACCEPT_PAUSE).await;
    }
}

/// 0.9 to 1.1 times `age`, depending on the peer's port.
fn with_jitter(age: Duration, peer: SocketAddr) -> Duration {
    age.mul_f64(0.9 + 0.2 * f64::from(peer.port() % 64) / 63.0)
}

fn builder(limits: &ListenerLimits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        // Limits the headers (431) and the size of body reads; hyper requires at least 8 KiB.
        .max_buf_size(limits.max_header_bytes.max(8 << 10));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.max_streams)
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX));
    if let Some((interval, timeout)) = limits.ping {
        builder.http2().keep_alive_interval(interval).keep_alive_timeout(timeout);
    }
    match limits.version {
        Some(Version::HTTP_2) => builder.http2_only(),
        Some(_) => builder.http1_only(),
        None => builder,
    }
}

struct AcceptedConnection {
    peer: SocketAddr,
    open: Arc<OpenConnection>,
    builder: Builder<TokioExecutor>,
    router: Router,
    header_timeout: Option<Duration>,
    max_age: Option<(Duration, Duration)>,
}

impl AcceptedConnection {
    /// Performs the TLS handshake, if there is one, and serves the connection.
    async fn run(
        self,
        socket: TcpStream,
        tls: Option<TlsAcceptor>,
        metrics: &ListenerMetrics,
        stop: CancellationToken,
    ) {
        // Responses are small: Nagle's algorithm would only delay acknowledgements.
        let _ = socket.set_nodelay(true);
        let Some(tls) = tls else { return self.serve(socket, stop).await };
        let limit = self.header_timeout.map_or(HANDSHAKE_TIMEOUT, |time| time.min(HANDSHAKE_TIMEOUT));
        let peer = self.peer;
        let handshake = tokio::select! {
            () = stop.cancelled() => return,
            () = self.open.close.cancelled() => return,
            handshake = timeout(limit, tls.accept(socket)) => handshake,
        };
        if !matches!(handshake, Ok(Ok(_))) {
            metrics.handshakes_failed.inc();
        }
        match handshake {
            // Boxed, because TLS state would enlarge the task of every connection.
            Ok(Ok(socket)) => Box::pin(self.serve(socket, stop)).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
        }
    }

    async fn serve<S>(self, socket: S, stop: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // The bytes received are counted, since hyper has no timeout for a peer that sends less than a preface.
        let received = Arc::new(AtomicUsize::new(0));
        let received_by_reader = Arc::clone(&received);
        let socket = InspectReader::new(socket, move |bytes: &[u8]| {
            received_by_reader.fetch_add(bytes.len(), Ordering::Relaxed);
        });
        let (mut router, open) = (self.router, Arc::clone(&self.open));
        let service = TowerToHyperService::new(service_fn(move |mut request: Request<_>| {
            request.extensions_mut().insert(Arc::clone(&open));
            let in_flight = open.begin();
            let response = router.call(request);
            async move {
                let _in_flight = in_flight;
                response.await
            }
        }));
        let mut connection = pin!(self.builder.serve_connection(TokioIo::new(socket), service));
        let started = Instant::now();
        let mut preface_deadline = self.header_timeout.map(|limit| started + limit);
        let mut grace_end: Option<Instant> = None;
        let max_age_reached = self.max_age.map(|(age, _)| started + age);
        let mut is_shutting_down = false;
        loop {
            let mut begin_shutdown = false;
            tokio::select! {
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(peer = %self.peer, %error, "connection ended");
                    }
                    return;
                }
                () = until(preface_deadline) => {
                    preface_deadline = None;
                    if received.load(Ordering::Relaxed) < PREFACE_LENGTH {
                        return;
                    }
                }
                () = stop.cancelled(), if !is_shutting_down => begin_shutdown = true,
                () = until(max_age_reached), if !is_shutting_down => {
                    begin_shutdown = true;
                    grace_end = self.max_age.map(|(_, grace)| Instant::now() + grace);
                }
                () = self.open.close.cancelled(), if !is_shutting_down => {
                    begin_shutdown = true;
                    grace_end = Some(Instant::now() + self.open.grace());
                }
                () = until(grace_end) => return,
            }
            if begin_shutdown {
                is_shutting_down = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Waits until `deadline`; forever if it is `None`.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
