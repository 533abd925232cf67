//! The listener of the live page: static files, the JSON that they read, and updates.
//!
//! In: GET requests. Out: responses with headers that protect the page from other sites and from content of traces: it
//! runs no script but `page.js`, is in no frame, and loads nothing from another origin. A request whose `Host` is not a
//! name of this listener is refused, so that a name of another site that resolves to this address reads nothing (DNS
//! rebinding); then credentials are checked. The JSON serves the page: its shape may change with it.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use verdict_otlp::trace::TraceId;

use super::assets;
use super::config::PageConfig;
use super::filter::RowFilter;
use super::history::History;
use super::model::{TraceDetail, TraceRow};
use super::overview::Overview;
use crate::receive::BindError;
use crate::receive::auth::Authenticator;
use crate::receive::connections::OpenConnection;
use crate::receive::restricted_listener::{self, RestrictedListener};
use crate::telemetry::PageRefusal;

/// Maximum number of connections: several people with several tabs each.
const MAX_CONNECTIONS: u32 = 64;
/// Maximum number of streams of updates.
const MAX_STREAMS: usize = 32;
/// Maximum number of updates that wait for the client of a stream.
const MAX_WAITING_UPDATES: usize = 64;
/// Interval of comments on a stream, by which the end of a client is detected.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// Time for which the overview and the list of open traces are cached.
const CACHE_TIME: Duration = Duration::from_secs(1);
/// Timeout of an answer of the pipeline.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Headers of every response. The content security policy allows only the script and style of this page, and no script
/// that turns text into markup.
const HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// Boxed, so that the listener is not generic over the pipeline.
pub(crate) type SourceFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The state that the page shows in addition to evaluated traces. Implemented by `pipeline`.
pub(crate) trait PageSource: Send + Sync + 'static {
    /// Traces that have not closed, those with the latest spans first; not all if there are many.
    fn open_traces(&self) -> SourceFuture<'_, Vec<OpenTrace>>;
    /// The trace with this id; `None` if it is not open.
    fn open_trace(&self, trace: TraceId) -> SourceFuture<'_, Option<(TraceRow, TraceDetail)>>;
    /// The state of the process.
    fn health(&self) -> Value;
}

/// A trace that has not closed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OpenTrace {
    pub trace_id: String,
    /// The name of the root span, or of the span that arrived first.
    pub name: String,
    pub service: Option<String>,
    pub spans: usize,
    pub bytes: usize,
    /// Milliseconds since the first span arrived.
    pub age_ms: u64,
    /// Milliseconds since the latest span arrived.
    pub idle_ms: u64,
    /// Milliseconds until the trace closes if no further span arrives.
    pub closes_in_ms: u64,
    /// The reason for which the trace then closes.
    pub close_reason: &'static str,
    /// Whether the root or a parent has not arrived.
    pub incomplete: bool,
}

/// A bound socket whose requests are not answered yet.
#[derive(Debug)]
pub(crate) struct BoundPage {
    listener: RestrictedListener,
    hosts: Vec<String>,
}

impl BoundPage {
    /// Opens the socket, and reads certificates and tokens.
    pub(crate) async fn bind(config: &PageConfig) -> Result<BoundPage, BindError> {
        let PageConfig { endpoint, tls, auth, .. } = config;
        let listener = RestrictedListener::bind("page", endpoint, tls.as_ref(), auth.as_ref()).await?;
        let endpoint_host = Some(endpoint.host()).filter(|host| !host.is_empty());
        let hosts = config.hosts.iter().map(String::as_str).chain(endpoint_host);
        Ok(BoundPage { listener, hosts: hosts.map(str::to_ascii_lowercase).collect() })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.listener.addr()
    }

    /// Answers until `stop` is cancelled, then lets requests in flight finish for at most `grace`.
    pub(crate) async fn serve(
        self,
        history: Arc<History>,
        source: Arc<dyn PageSource>,
        stop: CancellationToken,
        grace: Duration,
    ) {
        let BoundPage { listener, hosts } = self;
        let state = Arc::new(ServerState {
            history,
            source,
            hosts,
            authenticator: listener.authenticator(),
            clients: Arc::new(Semaphore::new(MAX_STREAMS)),
            overview: Cached::default(),
            open: Cached::default(),
            stop: stop.clone(),
        });
        let scheme = if listener.is_tls() { "https" } else { "http" };
        tracing::info!("the live page is at {scheme}://{}/", listener.addr());
        let router = Router::new().fallback(move |request: Request| {
            let state = Arc::clone(&state);
            async move { state.respond(request).await }
        });
        listener.serve(router, MAX_CONNECTIONS, "the live page", stop, grace).await;
    }
}

/// An answer that is computed at most once in [`CACHE_TIME`], for any number of clients.
#[derive(Default)]
struct Cached(Mutex<Option<(Instant, Bytes)>>);

impl Cached {
    async fn get(&self, compute: impl Future<Output = Value>) -> Bytes {
        let mut cached = self.0.lock().await;
        match &*cached {
            Some((computed_at, body)) if computed_at.elapsed() < CACHE_TIME => body.clone(),
            _ => {
                let body = Bytes::from(compute.await.to_string());
                *cached = Some((Instant::now(), body.clone()));
                body
            }
        }
    }
}

struct ServerState {
    history: Arc<History>,
    source: Arc<dyn PageSource>,
    /// In lower case.
    hosts: Vec<String>,
    authenticator: Option<Arc<Authenticator>>,
    clients: Arc<Semaphore>,
    overview: Cached,
    open: Cached,
    stop: CancellationToken,
}

impl ServerState {
    async fn respond(&self, request: Request) -> Response {
        let (parts, _) = request.into_parts();
        let mut response = self.answer(&parts).await;
        let headers = HEADERS
            .map(|(name, value)| (header::HeaderName::from_static(name), HeaderValue::from_static(value)));
        response.headers_mut().extend(headers);
        response
    }

    async fn answer(&self, parts: &Parts) -> Response {
        if !self.is_own_host(parts) {
            self.count_refusal(PageRefusal::Host);
            let message = "the page is not opened under this host name: use an IP address or localhost, or add the \
                           name to page.hosts";
            return error_response(StatusCode::MISDIRECTED_REQUEST, message);
        }
        if let Some(challenges) = restricted_listener::refusal(self.authenticator.as_deref(), &parts.headers)
        {
            self.count_refusal(PageRefusal::Credentials);
            let mut response = error_response(StatusCode::UNAUTHORIZED, "credentials are missing or unknown");
            response.headers_mut().extend(challenges);
            return response;
        }
        if parts.method != Method::GET {
            let allow = [(header::ALLOW, "GET")];
            return (allow, error_response(StatusCode::METHOD_NOT_ALLOWED, "only GET")).into_response();
        }
        match parts.uri.path() {
            "/" => static_file("text/html; charset=utf-8", assets::HTML),
            "/page.css" => static_file("text/css; charset=utf-8", assets::CSS),
            "/page.js" => static_file("text/javascript; charset=utf-8", assets::JS),
            "/api/overview" => json_body(self.overview.get(self.overview()).await),
            "/api/open" => json_body(self.open.get(self.open_traces()).await),
            "/api/traces" => self.list(parts.uri.query().unwrap_or_default()),
            "/api/events" => self.events(parts),
            path => match path.strip_prefix("/api/traces/") {
                Some(id) => self.trace(id).await,
                None => error_response(StatusCode::NOT_FOUND, "no such path"),
            },
        }
    }

    fn count_refusal(&self, reason: PageRefusal) {
        self.history.metrics().refused[reason as usize].inc();
    }

    /// Whether the requested host is a name of this listener. Every IP address is accepted, because DNS rebinding needs
    /// a host name.
    fn is_own_host(&self, parts: &Parts) -> bool {
        let Some(host) = requested_host(parts) else { return false };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        address.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || self.hosts.contains(&host)
    }

    async fn overview(&self) -> Value {
        let entries = self.history.all();
        let overview =
            Overview::from_rows(entries.iter().map(|entry| &entry.row)).with_minutes(self.history.timeline());
        let metrics = self.history.metrics();
        let page = json!({
            "traces": metrics.traces.get(), "bytes": metrics.bytes.get(), "max_bytes": self.history.max_bytes(),
            "skipped": metrics.skipped.get(), "clients": metrics.clients.get(), "slow": metrics.slow.get(),
        });
        json!({ "overview": overview, "health": self.source.health(), "page": page })
    }

    async fn open_traces(&self) -> Value {
        let open = tokio::time::timeout(ANSWER_TIMEOUT, self.source.open_traces()).await;
        json!({ "open": open.unwrap_or_default() })
    }

    fn list(&self, query: &str) -> Response {
        let filter = match RowFilter::parse(query) {
            Ok(filter) => filter,
            Err(message) => return error_response(StatusCode::BAD_REQUEST, &message),
        };
        let entries = self.history.all();
        let matching: Vec<&TraceRow> =
            entries.iter().map(|entry| &entry.row).filter(|row| filter.matches(row)).collect();
        let older = matching.iter().filter(|row| filter.before.is_none_or(|before| row.seq < before));
        let page: Vec<_> = older.clone().take(filter.limit).collect();
        let more = older.count() > page.len();
        json_body(
            json!({ "traces": page, "more": more, "matching": matching.len(), "all": entries.len() })
                .to_string(),
        )
    }

    async fn trace(&self, id: &str) -> Response {
        let id = id.to_ascii_lowercase();
        let Ok(trace) = id.parse::<TraceId>() else {
            return error_response(StatusCode::BAD_REQUEST, "a trace id has 32 hexadecimal digits");
        };
        if let Some(entry) = self.history.get(&id) {
            let row = serde_json::to_vec(&entry.row).unwrap_or_default();
            let parts: [&[u8]; 5] = [b"{\"trace\":", &row, b",\"detail\":", &entry.detail, b"}"];
            return json_body(parts.concat());
        }
        match tokio::time::timeout(ANSWER_TIMEOUT, self.source.open_trace(trace)).await {
            Ok(Some((row, detail))) => json_body(json!({ "trace": row, "detail": detail }).to_string()),
            Ok(None) => error_response(StatusCode::NOT_FOUND, "the trace is neither open nor in the history"),
            Err(_) => error_response(StatusCode::SERVICE_UNAVAILABLE, "the pipeline is busy"),
        }
    }

    /// A stream of the rows of traces as they are evaluated. A client that reads too slowly is disconnected, and reads
    /// the list when it connects again.
    fn events(&self, parts: &Parts) -> Response {
        let Ok(permit) = Arc::clone(&self.clients).try_acquire_owned() else {
            self.count_refusal(PageRefusal::Clients);
            return error_response(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open");
        };
        let (sender, frames) = mpsc::channel::<Bytes>(MAX_WAITING_UPDATES);
        let (mut updates, metrics) = (self.history.updates(), self.history.metrics().clone());
        let (stop, close) = (self.stop.clone(), OpenConnection::close_token(&parts.extensions));
        let in_use = OpenConnection::hold_busy(&parts.extensions);
        tokio::spawn(async move {
            let _permit = permit;
            metrics.clients.inc();
            let mut ping = interval(PING_INTERVAL);
            ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let is_slow = loop {
                let frame = tokio::select! {
                    () = stop.cancelled() => break false,
                    () = sender.closed() => break false,
                    _ = ping.tick() => Ok(Bytes::from_static(b": still here\n\n")),
                    update = updates.recv() => update,
                };
                let Ok(frame) = frame else { break true };
                if let Err(refused) = sender.try_send(frame) {
                    break matches!(refused, mpsc::error::TrySendError::Full(_));
                }
            };
            drop(in_use);
            if is_slow {
                metrics.slow.inc();
                close.cancel();
            }
            metrics.clients.dec();
        });
        let frames = ReceiverStream::new(frames).map(Ok::<Bytes, std::convert::Infallible>);
        ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(frames)).into_response()
    }
}

/// The host of a request, without port; `None` if there is none or more than one.
fn requested_host(parts: &Parts) -> Option<&str> {
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let header = match (hosts.next(), hosts.next()) {
        (Some(host), None) => Some(host.to_str().ok()?),
        (None, None) => None,
        _ => return None,
    };
    // HTTP/2 has an authority in place of the header.
    let authority = parts.uri.authority().map(http::uri::Authority::as_str);
    let host = match (header, authority) {
        (Some(header), Some(authority)) if header != authority => return None,
        (header, authority) => header.or(authority)?,
    };
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    Some(without_port).filter(|host| !host.is_empty())
}

fn static_file(content_type: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

fn json_body(body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

/// A response that the page shows as a message.
fn error_response(status: StatusCode, message: &str) -> Response {
    let mut response = json_body(json!({ "error": message }).to_string());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::receive::config::Endpoint;
    use crate::telemetry::PageMetrics;

    struct EmptySource;

    impl PageSource for EmptySource {
        fn open_traces(&self) -> SourceFuture<'_, Vec<OpenTrace>> {
            Box::pin(async { Vec::new() })
        }
        fn open_trace(&self, _: TraceId) -> SourceFuture<'_, Option<(TraceRow, TraceDetail)>> {
            Box::pin(async { None })
        }
        fn health(&self) -> Value {
            Value::Null
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn client_that_does_not_read_its_updates_is_disconnected() {
        let config = PageConfig { endpoint: Endpoint::loopback(0), ..PageConfig::default() };
        let (metrics, stop) = (PageMetrics::default(), CancellationToken::new());
        let history = Arc::new(History::new(&config, metrics.clone()));
        let page = BoundPage::bind(&config).await.unwrap();
        let address = page.addr();
        let server = tokio::spawn(page.serve(
            Arc::clone(&history),
            Arc::new(EmptySource),
            stop.clone(),
            Duration::ZERO,
        ));
        let connect = async || {
            let mut socket = TcpStream::connect(address).await.unwrap();
            let head = format!("GET /api/events HTTP/1.1\r\nhost: {address}\r\n\r\n");
            socket.write_all(head.as_bytes()).await.unwrap();
            let mut begin = [0; 16];
            socket.read_exact(&mut begin).await.unwrap();
            assert_eq!(&begin[..12], b"HTTP/1.1 200");
            socket
        };
        let (mut reading, slow) = (connect().await, connect().await);
        let bytes_read = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&bytes_read);
        let reader = tokio::spawn(async move {
            let mut buffer = vec![0; 1 << 20];
            while let Ok(read @ 1..) = reading.read(&mut buffer).await {
                counter.fetch_add(read, Ordering::Relaxed);
            }
        });
        // Larger than the buffers of sockets.
        let row = TraceRow { name: "x".repeat(1 << 16), ..TraceRow::default() };
        let (mut sent, max_updates) = (0, 2_000);
        while metrics.slow.get() == 0 && sent < max_updates {
            history.publish(&row);
            sent += 1;
            // Not faster than the reading client, on any machine.
            while bytes_read.load(Ordering::Relaxed) < sent << 16 && metrics.slow.get() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert_eq!(metrics.slow.get(), 1, "after {sent} updates");
        while metrics.clients.get() > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(metrics.clients.get(), 1, "the one that reads stays");
        // The connection is closed, although the client does not read: after the buffered bytes it receives a reset or
        // the end.
        let read_to_end = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let (mut slow, mut buffer) = (slow, vec![0; 1 << 20]);
            while let Ok(1..) = slow.read(&mut buffer).await {}
        };
        tokio::time::timeout(Duration::from_secs(180), read_to_end).await.unwrap();
        stop.cancel();
        tokio::time::timeout(Duration::from_secs(180), server).await.unwrap().unwrap();
        reader.await.unwrap();
    }

    fn host(request: http::request::Builder) -> Option<String> {
        requested_host(&request.body(()).unwrap().into_parts().0).map(str::to_owned)
    }

    #[test]
    fn host_is_that_of_the_header_or_the_authority_and_never_ambiguous() {
        let get = |uri: &str| http::Request::builder().uri(uri);
        assert_eq!(host(get("/").header("host", "a.example:4321")).as_deref(), Some("a.example"));
        assert_eq!(host(get("/").header("host", "[::1]:4321")).as_deref(), Some("[::1]"));
        assert_eq!(host(get("/").header("host", "::1")).as_deref(), Some("::1"));
        assert_eq!(host(get("http://b.example/")).as_deref(), Some("b.example"));
        for none in [
            get("/"),
            get("/").header("host", ""),
            get("/").header("host", "a").header("host", "b"),
            get("http://b.example/").header("host", "a.example"),
        ] {
            assert_eq!(host(none), None);
        }
    }
}
