//! A listener that is no receiver, whose responses contain data of runs: it listens on loopback, or authenticates its
//! callers.
//!
//! In: address, TLS, credentials, a router. Out: requests to the router, with the accept loop, TLS and limits of the
//! receivers. The router must call [`refusal`] for each request.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::future::join;
use http::HeaderMap;
use tokio_util::sync::CancellationToken;
use verdict_config::Problem;

use super::auth::{Auth, Authenticator};
use super::config::Endpoint;
use super::listen::{BindError, Listener, ListenerLimits, ListenerMetrics};
use super::listener_security::ListenerSecurity;
use super::tls::ServerTls;

const MAX_STREAMS: u32 = 64;
const MAX_HEADER_BYTES: usize = 16 << 10;
/// Timeout for headers and idle connections, as of the receivers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The problems of invalid settings.
pub(crate) fn problems(endpoint: &Endpoint, tls: Option<&ServerTls>, auth: Option<&Auth>) -> Vec<Problem> {
    let auth_problems = auth.into_iter().flat_map(Auth::problems).map(|problem| problem.in_section("auth"));
    let mut problems: Vec<Problem> = auth_problems.collect();
    let is_mutual = tls.is_some_and(|tls| tls.client_ca_file.is_some());
    if auth.is_none() && !is_mutual && !endpoint.is_loopback() {
        let message = format!(
            "{endpoint} can be reached from the network: set auth, or tls with client_ca_file, or listen on 127.0.0.1"
        );
        problems.push(Problem::new("endpoint", message));
    }
    problems
}

/// A bound socket that does not answer yet.
#[derive(Debug)]
pub(crate) struct RestrictedListener {
    /// The section of the configuration.
    key: &'static str,
    listener: Listener,
    security: ListenerSecurity,
}

impl RestrictedListener {
    /// Opens the socket, and reads certificates and tokens.
    pub(crate) async fn bind(
        key: &'static str,
        endpoint: &Endpoint,
        tls: Option<&ServerTls>,
        auth: Option<&Auth>,
    ) -> Result<RestrictedListener, BindError> {
        let alpn: &[&[u8]] = &[b"h2", b"http/1.1"];
        let security = ListenerSecurity::load(key, endpoint, tls, auth, alpn)?;
        let listener = Listener::bind(key, endpoint).await?.over_tls(security.identity.clone());
        // A name can resolve to an address that is not loopback.
        if !listener.addr.ip().to_canonical().is_loopback() && !security.authenticates() {
            let source = io::Error::other(format!("can be reached from the network: set {key}.auth"));
            return Err(BindError::new(key, endpoint, source));
        }
        Ok(RestrictedListener { key, listener, security })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.listener.addr
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.security.is_tls()
    }

    pub(crate) fn authenticator(&self) -> Option<Arc<Authenticator>> {
        self.security.authenticator.clone()
    }

    /// Serves until `stop` is cancelled, then lets requests in flight finish for at most `grace`. `content` describes
    /// the responses in the log.
    pub(crate) async fn serve(
        self,
        router: Router,
        max_connections: u32,
        content: &'static str,
        stop: CancellationToken,
        grace: Duration,
    ) {
        let RestrictedListener { key, listener, security } = self;
        tracing::info!(endpoint = %listener.addr, tls = security.is_tls(), auth = security.authenticates(), "serving {content}");
        security.warn_if_exposed(key, listener.addr);
        let limits = ListenerLimits {
            max_connections,
            max_streams: MAX_STREAMS,
            max_header_bytes: MAX_HEADER_BYTES,
            header_timeout: Some(HEADER_TIMEOUT),
            ping: Some((HEADER_TIMEOUT, PING_TIMEOUT)),
            max_age: None,
            version: None,
        };
        let served = listener.serve(router, limits, ListenerMetrics::default(), stop.clone(), grace);
        join(served, security.reload_loop(stop)).await;
    }
}

/// The headers of the response (401) to a request without valid credentials; `None` if its credentials are valid.
pub(crate) fn refusal(authenticator: Option<&Authenticator>, headers: &HeaderMap) -> Option<HeaderMap> {
    let authenticator = authenticator.filter(|authenticator| !authenticator.accepts(headers))?;
    let mut challenges = HeaderMap::new();
    authenticator.challenge(&mut challenges);
    Some(challenges)
}
