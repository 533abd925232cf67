//! TLS identity and authentication of a listener: loaded before it serves, and reloaded from their
//! files.
//!
//! In: settings. Out: the TLS configuration of each connection and the authenticator of each request.
//! Warns at start about a listener that is exposed to the network.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::auth::{Auth, Authenticator, TOKEN_RELOAD_INTERVAL};
use super::config::Endpoint;
use super::listen::BindError;
use super::tls::{Identity, ServerTls};

/// TLS identity and authenticator of a listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListenerSecurity {
    identity: Option<(Arc<Identity>, Duration)>,
    /// Clients must present a certificate.
    mutual: bool,
    authenticator: Option<Arc<Authenticator>>,
}

impl ListenerSecurity {
    pub(crate) fn load(
        endpoint: &Endpoint,
        tls: Option<&ServerTls>,
        auth: Option<&Auth>,
        alpn: &[&[u8]],
    ) -> Result<ListenerSecurity, BindError> {
        let failed =
            |error: String| BindError { endpoint: endpoint.to_string(), source: io::Error::other(error) };
        let identity = match tls {
            Some(tls) => {
                let identity = Identity::load(tls, alpn).map_err(|e| failed(e.to_string()))?;
                Some((Arc::new(identity), tls.reload_interval.0))
            }
            None => None,
        };
        let authenticator = auth.map(Authenticator::load).transpose().map_err(|e| failed(e.to_string()))?;
        let mutual = tls.is_some_and(|tls| tls.client_ca_file.is_some());
        Ok(ListenerSecurity { identity, mutual, authenticator: authenticator.map(Arc::new) })
    }

    pub(crate) fn identity(&self) -> Option<Arc<Identity>> {
        self.identity.as_ref().map(|(identity, _)| Arc::clone(identity))
    }

    pub(crate) fn authenticator(&self) -> Option<Arc<Authenticator>> {
        self.authenticator.clone()
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.identity.is_some()
    }

    pub(crate) fn authenticates(&self) -> bool {
        self.authenticator.is_some() || self.mutual
    }

    /// The risk of a listener at `addr` that other machines can reach, if there is one.
    pub(crate) fn exposure(&self, addr: SocketAddr) -> Option<&'static str> {
        if addr.ip().to_canonical().is_loopback() {
            return None;
        }
        match (self.is_tls(), self.authenticates()) {
            (false, false) => {
                Some("reachable from the network without authentication or encryption: set auth and tls")
            }
            (false, true) => Some("credentials and content are sent unencrypted: set tls"),
            (true, false) => {
                Some("reachable from the network without authentication: set auth or client_ca_file")
            }
            (true, true) => None,
        }
    }

    pub(crate) fn warn_if_exposed(&self, key: &'static str, addr: SocketAddr) {
        if let Some(exposure) = self.exposure(addr) {
            tracing::warn!(listener = key, endpoint = %addr, "{exposure}");
        }
    }

    /// Reloads certificates and tokens from their files until `stop`.
    pub(crate) async fn reload_loop(self, stop: CancellationToken) {
        let certificates = async {
            let Some((identity, interval)) = self.identity.filter(|(_, every)| !every.is_zero()) else {
                return;
            };
            loop {
                sleep(interval).await;
                let identity = Arc::clone(&identity);
                let reloaded = spawn_blocking(move || identity.reload().map_err(|e| e.to_string())).await;
                log_reload("certificates", reloaded.unwrap_or_else(|e| Err(e.to_string())));
            }
        };
        let tokens = async {
            let Some(authenticator) = self.authenticator.filter(|a| a.has_file()) else { return };
            let mut last_fault = None;
            loop {
                sleep(TOKEN_RELOAD_INTERVAL).await;
                let authenticator = Arc::clone(&authenticator);
                let reloaded =
                    spawn_blocking(move || authenticator.reload().map_err(|e| e.to_string())).await;
                let reloaded = reloaded.unwrap_or_else(|e| Err(e.to_string()));
                let fault = reloaded.as_ref().err().cloned();
                if fault.is_none() || fault != last_fault {
                    log_reload("tokens", reloaded);
                }
                last_fault = fault;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            _ = async { tokio::join!(certificates, tokens) } => {}
        }
    }
}

/// Logs a reload that changed something or failed. `what` is `certificates` or `tokens`.
fn log_reload(what: &'static str, reloaded: Result<bool, String>) {
    match reloaded {
        Ok(true) => tracing::info!("{what} reloaded"),
        Ok(false) => {}
        Err(error) => tracing::error!(%error, "cannot reload {what}; the current ones stay in use"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposure_names_missing_authentication_and_encryption() {
        let exposure = |addr: &str| ListenerSecurity::default().exposure(addr.parse().unwrap());
        for loopback in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(exposure(loopback), None, "{loopback}");
        }
        for public in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
            assert!(exposure(public).is_some_and(|text| text.contains("without authentication")), "{public}");
        }
        let auth = Auth { bearer_token: Some(verdict_config::Secret::new("x")), ..Auth::default() };
        let authenticator = Some(Arc::new(Authenticator::load(&auth).unwrap()));
        let security = ListenerSecurity { authenticator, ..ListenerSecurity::default() };
        let text = security.exposure("0.0.0.0:1".parse().unwrap()).unwrap();
        assert!(text.contains("unencrypted") && !text.contains("without authentication"), "{text}");
    }
}
