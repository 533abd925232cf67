//! The admin endpoint: `/livez`, `/readyz`, `/metrics`.
//!
//! In: [`Readiness`] and [`Telemetry`]. Out: small HTTP responses. `/livez` is 200, or 500 with the parts that
//! have failed; `/readyz` is 200 while spans are accepted, else 503 with every reason; `/metrics` is OpenMetrics
//! or Prometheus text, as the client accepts. Uses the accept loop of the receivers, over HTTP/1.1 only, with short
//! limits, since the process is killed if other connections keep a probe from its response.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::{HeaderMap, StatusCode, Version, header};
use tokio_util::sync::CancellationToken;
use verdict_config::settings;

use crate::receive::config::Endpoint;
use crate::receive::listen::{Listener, ListenerLimits, ListenerMetrics};
use crate::telemetry::{Telemetry, TextFormat};

/// Limit on connections: there are few probes and scrapes.
const MAX_CONNECTIONS: u32 = 64;
/// Probes and scrapers send their request at once. An idle connection is closed after the same time.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit on the age of a connection: a client that does not read its response does not hold it for long.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(30);

settings! {
    /// `admin:`
    pub struct AdminConfig {
        /// Address of `/livez`, `/readyz` and `/metrics`. Default 127.0.0.1:13133, which only this machine can
        /// reach; a Kubernetes probe needs 0.0.0.0:13133.
        endpoint: Endpoint = Endpoint::loopback(13133),
        /// Most combinations of service, agent and model that get counters of their own in `/metrics`; the others
        /// are counted with `other` in these labels. The same limit holds for versions, tools and signatures of
        /// failures. 0: no counters by agent.
        agent_series: u32 = 500,
    }
}

/// The state of the service, read for each probe.
pub trait Health: Send + Sync + Debug {
    /// The parts that have failed for good: only a new process recovers them.
    fn failures(&self) -> Vec<&'static str>;
    /// Why all senders are asked to retry.
    fn overloads(&self) -> Vec<&'static str>;
}

/// Whether requests are accepted. Initially they are not.
#[derive(Debug)]
pub struct Readiness {
    /// The phase in which the process does not serve; `None` while it serves.
    phase: Mutex<Option<&'static str>>,
    health: OnceLock<Box<dyn Health>>,
}

impl Readiness {
    /// `phase` names the activity of the process until it serves.
    pub fn new(phase: &'static str) -> Readiness {
        Readiness { phase: Mutex::new(Some(phase)), health: OnceLock::new() }
    }

    /// Sets the state that later probes read, once: there is one service.
    pub fn set_health(&self, health: impl Health + 'static) {
        let _ = self.health.set(Box::new(health));
    }

    /// The parts that have failed for good.
    pub fn failures(&self) -> Vec<&'static str> {
        self.health.get().map(|health| health.failures()).unwrap_or_default()
    }

    /// All listeners serve from now on.
    pub fn set_serving(&self) {
        *self.lock_phase() = None;
    }

    /// Shutdown has begun.
    pub fn set_stopping(&self) {
        *self.lock_phase() = Some("shutting down");
    }

    /// Every reason why requests are not accepted; none while they are.
    pub fn obstacles(&self) -> Vec<&'static str> {
        let mut all = self.failures();
        all.extend(*self.lock_phase());
        all.extend(self.health.get().map(|health| health.overloads()).unwrap_or_default());
        all
    }

    fn lock_phase(&self) -> MutexGuard<'_, Option<&'static str>> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves until `stop`, which is cancelled last at shutdown, so that probes and scrapes can observe it.
pub(crate) async fn serve(
    listener: Listener,
    telemetry: Arc<Telemetry>,
    readiness: Arc<Readiness>,
    stop: CancellationToken,
) {
    let limits = ListenerLimits {
        max_connections: MAX_CONNECTIONS,
        max_streams: MAX_CONNECTIONS,
        max_header_bytes: 16 << 10,
        header_timeout: Some(HEADER_TIMEOUT),
        ping: None,
        max_age: Some((MAX_CONNECTION_AGE, HEADER_TIMEOUT)),
        version: Some(Version::HTTP_11),
    };
    tracing::info!(endpoint = %listener.addr, "serving /livez, /readyz and /metrics");
    if !listener.addr.ip().to_canonical().is_loopback() {
        tracing::warn!(listener = "admin", endpoint = %listener.addr, "reachable from the network: any client can read health and metrics");
    }
    let router = router(telemetry, readiness);
    listener.serve(router, limits, ListenerMetrics::default(), stop, Duration::from_secs(1)).await;
}

fn router(telemetry: Arc<Telemetry>, readiness: Arc<Readiness>) -> Router {
    let health = Arc::clone(&readiness);
    let live = move || async move { respond("live", StatusCode::INTERNAL_SERVER_ERROR, &health.failures()) };
    let ready =
        move || async move { respond("ready", StatusCode::SERVICE_UNAVAILABLE, &readiness.obstacles()) };
    let metrics = move |headers: HeaderMap| async move {
        let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let format = TextFormat::accepted(accepted);
        ([(header::CONTENT_TYPE, format.content_type())], telemetry.render(format))
    };
    Router::new().route("/livez", get(live)).route("/readyz", get(ready)).route("/metrics", get(metrics))
}

/// One line for each problem, or 200 if there is none.
fn respond(ok_text: &str, error_status: StatusCode, problems: &[&str]) -> (StatusCode, String) {
    if problems.is_empty() {
        (StatusCode::OK, ok_text.to_owned())
    } else {
        (error_status, problems.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Debug)]
    struct Flags {
        full: Arc<AtomicBool>,
        broken: Arc<AtomicBool>,
    }

    impl Health for Flags {
        fn failures(&self) -> Vec<&'static str> {
            self.broken.load(Ordering::Relaxed).then_some("a shard has failed").into_iter().collect()
        }
        fn overloads(&self) -> Vec<&'static str> {
            self.full.load(Ordering::Relaxed).then_some("overloaded").into_iter().collect()
        }
    }

    async fn get_path(addr: SocketAddr, path: &str) -> (u16, String) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut socket = tokio::net::TcpStream::connect(addr).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).await.unwrap();
        let status = response.split(' ').nth(1).unwrap().parse().unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (status, format!("{head}\n{body}"))
    }

    #[tokio::test]
    async fn probes_report_start_overload_and_shutdown_and_metrics_are_served() {
        let listener = Listener::bind("admin", &Endpoint::loopback(0)).await.unwrap();
        let addr = listener.addr;
        let full = Arc::new(AtomicBool::new(false));
        let broken = Arc::new(AtomicBool::new(false));
        let readiness = Arc::new(Readiness::new("starting"));
        readiness.set_health(Flags { full: full.clone(), broken: broken.clone() });
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, Telemetry::new(), readiness.clone(), stop.clone()));

        let (status, body) = get_path(addr, "/readyz").await;
        assert!(status == 503 && body.ends_with("starting"), "{body}");
        assert_eq!(get_path(addr, "/livez").await.0, 200);
        readiness.set_serving();
        assert_eq!(get_path(addr, "/readyz").await.0, 200);
        full.store(true, Ordering::Relaxed);
        let (status, body) = get_path(addr, "/readyz").await;
        assert!(status == 503 && body.ends_with("overloaded"), "{body}");
        readiness.set_stopping();
        let (status, body) = get_path(addr, "/readyz").await;
        assert!(status == 503 && body.ends_with("shutting down\noverloaded"), "{body}");
        assert_eq!(get_path(addr, "/livez").await.0, 200);
        let (status, page) = get_path(addr, "/metrics").await;
        assert!(status == 200 && page.contains("text/plain; version=0.0.4"), "{page}");
        assert!(page.contains("otel_verdict_build_info{version=\""), "{page}");
        assert_eq!(get_path(addr, "/elsewhere").await.0, 404);
        broken.store(true, Ordering::Relaxed);
        let all = "a shard has failed\nshutting down\noverloaded";
        for (path, expected_status, expected_text) in
            [("/livez", 500, "a shard has failed"), ("/readyz", 503, all)]
        {
            let (status, body) = get_path(addr, path).await;
            assert!(status == expected_status && body.ends_with(expected_text), "{path}: {status} {body}");
        }

        stop.cancel();
        server.await.unwrap();
    }

    #[tokio::test]
    async fn probes_are_answered_while_idle_clients_hold_every_connection() {
        use tokio::io::AsyncWriteExt as _;
        let listener = Listener::bind("admin", &Endpoint::loopback(0)).await.unwrap();
        let addr = listener.addr;
        let stop = CancellationToken::new();
        let readiness = Arc::new(Readiness::new("starting"));
        let server = tokio::spawn(serve(listener, Telemetry::new(), readiness, stop.clone()));
        for opening in
            [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"[..], b"", b"GET /livez HTTP/1.1\r\n"]
        {
            let mut idle = Vec::new();
            for _ in 0..MAX_CONNECTIONS {
                let mut socket = tokio::net::TcpStream::connect(addr).await.unwrap();
                socket.write_all(opening).await.unwrap();
                idle.push(socket);
            }
            assert_eq!(get_path(addr, "/livez").await.0, 200, "{opening:?}");
        }
        stop.cancel();
        server.await.unwrap();
    }
}
