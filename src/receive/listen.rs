//! The accept loop of every listener we have: connections in, requests to a router.
//!
//! Bounds: how many connections at once (more wait in the kernel's queue), how long a new one
//! may say nothing, header sizes, streams per connection. Ends gracefully: when told to stop it
//! accepts no more, lets requests in flight finish, and after the grace time cuts them off.
//!
//! It stands on hyper itself, where `axum::serve` and tonic's server stand as well, since those
//! leave some of these bounds out. TLS, where it is on, comes between the socket and HTTP; its
//! handshake happens on the connection's own task, under a limit of time.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::config::Endpoint;
use super::tls::Identity;

/// HTTP/2's preface: a peer that has not sent as much has not said which protocol it speaks.
const PREFACE: usize = 24;

/// How long a TLS handshake may take: three round trips over the worst of links, and no longer,
/// since it holds one of the places for connections.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Pause after `accept` failed for want of descriptors or memory, lest the loop spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {endpoint}: {source}")]
pub struct BindError {
    /// Where.
    pub endpoint: String,
    /// Why not.
    pub source: io::Error,
}

/// What a listener allows.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: u32,
    pub(crate) streams: u32,
    pub(crate) header_bytes: usize,
    /// How long a peer may take to say what it wants, a TLS handshake included.
    pub(crate) header_time: Option<Duration>,
    pub(crate) ping: Option<(Duration, Duration)>,
    /// Age at which a connection is asked to end, and the grace that it then has.
    pub(crate) age: Option<(Duration, Duration)>,
    pub(crate) http2_only: bool,
}

/// What a listener counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    /// Connections that are open.
    pub(crate) open: Gauge,
    /// TLS handshakes that came to nothing.
    pub(crate) handshakes_failed: Counter,
}

/// A bound socket: its port is known, nothing is served yet.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    pub(crate) addr: SocketAddr,
    tls: Option<Arc<Identity>>,
}

impl Listener {
    pub(crate) async fn bind(endpoint: &Endpoint) -> Result<Listener, BindError> {
        let failed = |source| BindError { endpoint: endpoint.to_string(), source };
        let socket = TcpListener::bind(endpoint.bindable().as_ref()).await.map_err(failed)?;
        let addr = socket.local_addr().map_err(failed)?;
        Ok(Listener { socket, addr, tls: None })
    }

    /// Speaks TLS alone, as `identity` says at each new connection.
    pub(crate) fn over_tls(self, identity: Option<Arc<Identity>>) -> Listener {
        Listener { tls: identity, ..self }
    }

    /// Serves until `stop`, then lets requests in flight finish for at most `grace`.
    pub(crate) async fn serve(
        self,
        router: Router,
        limits: Limits,
        cells: Cells,
        stop: CancellationToken,
        grace: Duration,
    ) {
        // Resolves handlers once instead of for each request.
        let router = router.with_state::<()>(());
        let slots = Arc::new(Semaphore::new(limits.connections.max(1) as usize));
        let builder = builder(&limits);
        let tasks = TaskTracker::new();
        // Cancelled when the grace time is over, and when this future is dropped.
        let cut = CancellationToken::new();
        let cut_on_drop = cut.clone().drop_guard();
        loop {
            let slot = tokio::select! {
                () = stop.cancelled() => break,
                slot = slots.clone().acquire_owned() => slot,
            };
            let (socket, peer) = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.socket.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => { after_failed_accept(&error).await; continue }
                },
            };
            let connection = Connection {
                peer,
                builder: builder.clone(),
                router: router.clone(),
                header_time: limits.header_time,
                age: limits.age.map(|(age, grace)| (spread(age, peer), grace)),
            };
            let tls = self.tls.as_ref().map(|identity| TlsAcceptor::from(identity.current()));
            let (cells, stop, cut) = (cells.clone(), stop.clone(), cut.clone());
            tasks.spawn(async move {
                let _slot = slot;
                cells.open.inc();
                tokio::select! {
                    () = connection.begin(socket, tls, &cells, stop) => {}
                    () = cut.cancelled() => {}
                }
                cells.open.dec();
            });
        }
        drop(self.socket);
        tasks.close();
        if timeout(grace, tasks.wait()).await.is_err() {
            tracing::warn!(listener = %self.addr, connections = tasks.len(), "requests cut off at shutdown");
        }
        drop(cut_on_drop);
        tasks.wait().await;
    }
}

async fn after_failed_accept(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(%error, "cannot accept connections");
        sleep(ACCEPT_PAUSE).await;
    }
}

/// Nine to eleven tenths of `age`, by the peer's port.
fn spread(age: Duration, peer: SocketAddr) -> Duration {
    age.mul_f64(0.9 + 0.2 * f64::from(peer.port() % 64) / 63.0)
}

fn builder(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        // Bounds the headers (431) and the steps in which bodies are read; hyper wants 8 KiB.
        .max_buf_size(limits.header_bytes.max(8 << 10));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX));
    if let Some((interval, patience)) = limits.ping {
        builder.http2().keep_alive_interval(interval).keep_alive_timeout(patience);
    }
    if limits.http2_only { builder.http2_only() } else { builder }
}

struct Connection {
    peer: SocketAddr,
    builder: Builder<TokioExecutor>,
    router: Router,
    header_time: Option<Duration>,
    age: Option<(Duration, Duration)>,
}

impl Connection {
    async fn begin(
        self,
        socket: TcpStream,
        tls: Option<TlsAcceptor>,
        cells: &Cells,
        stop: CancellationToken,
    ) {
        // Answers are small: waiting to fill a packet would only delay acknowledgements.
        let _ = socket.set_nodelay(true);
        let Some(tls) = tls else { return self.serve(socket, stop).await };
        let patience = self.header_time.map_or(HANDSHAKE, |time| time.min(HANDSHAKE));
        let peer = self.peer;
        let shaken = tokio::select! {
            () = stop.cancelled() => return,
            shaken = timeout(patience, tls.accept(socket)) => shaken,
        };
        if !matches!(shaken, Ok(Ok(_))) {
            cells.handshakes_failed.inc();
        }
        match shaken {
            // Boxed: the state of TLS would make every connection's task larger.
            Ok(Ok(socket)) => Box::pin(self.serve(socket, stop)).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "TLS handshake not finished in time"),
        }
    }

    async fn serve<S>(self, socket: S, stop: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let heard = Arc::new(AtomicUsize::new(0));
        let socket = TokioIo::new(Counted { socket, heard: heard.clone() });
        let mut serving = pin!(self.builder.serve_connection(socket, TowerToHyperService::new(self.router)));
        let begun = Instant::now();
        let mut silence = self.header_time.map(|patience| begun + patience);
        let mut end: Option<Instant> = None;
        let retire = self.age.map(|(age, _)| begun + age);
        let mut stopping = false;
        loop {
            let mut leave = false;
            tokio::select! {
                done = serving.as_mut() => {
                    if let Err(error) = done {
                        tracing::debug!(peer = %self.peer, %error, "connection ended");
                    }
                    return;
                }
                () = at(silence), if silence.is_some() => {
                    silence = None;
                    if heard.load(Ordering::Relaxed) < PREFACE {
                        return;
                    }
                }
                () = stop.cancelled(), if !stopping => leave = true,
                () = at(retire), if !stopping && retire.is_some() => {
                    leave = true;
                    end = self.age.map(|(_, grace)| Instant::now() + grace);
                }
                () = at(end), if end.is_some() => return,
            }
            if leave {
                stopping = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// A socket that says how much was heard from its peer: nothing below times out a peer that
/// never says which protocol it speaks.
struct Counted<S> {
    socket: S,
    heard: Arc<AtomicUsize>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.socket).poll_read(cx, buf);
        self.heard.fetch_add(buf.filled().len().saturating_sub(before), Ordering::Relaxed);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }
    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
