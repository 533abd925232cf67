//! TLS identity and authentication of a listener: loaded before it serves, and reloaded from their
//! files.
//!
//! In: settings. Out: the TLS configuration of each connection and the authenticator of each request.
//! Warns at start about a listener that is exposed to the network.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{OptionFuture, join};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::auth::{Auth, Authenticator, TOKEN_RELOAD_INTERVAL};
use super::config::Endpoint;
use super::listen::BindError;
use super::tls::{Identity, ServerTls};
use crate::logging::join_error_reason;

/// TLS identity and authenticator of a listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListenerSecurity {
    pub(crate) identity: Option<Arc<Identity>>,
    pub(crate) authenticator: Option<Arc<Authenticator>>,
}

impl ListenerSecurity {
    pub(crate) fn load(
        key: &'static str,
        endpoint: &Endpoint,
        tls: Option<&ServerTls>,
        auth: Option<&Auth>,
        alpn: &[&[u8]],
    ) -> Result<ListenerSecurity, BindError> {
        let failed = |error: String| BindError::new(key, endpoint, io::Error::other(error));
        let identity = tls.map(|tls| Identity::load(tls, alpn)).transpose();
        let authenticator = auth.map(|auth| Authenticator::load(key, auth)).transpose();
        Ok(ListenerSecurity {
            identity: identity.map_err(|e| failed(e.to_string()))?.map(Arc::new),
            authenticator: authenticator.map_err(|e| failed(e.to_string()))?.map(Arc::new),
        })
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.identity.is_some()
    }

    /// Whether senders must authenticate, by credentials or by a client certificate.
    pub(crate) fn authenticates(&self) -> bool {
        self.authenticator.is_some() || self.identity.as_ref().is_some_and(|identity| identity.is_mutual())
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
        let certificates = self.identity.and_then(|identity| {
            let interval = identity.reload_interval()?;
            Some(reload_every(interval, "certificates", move || identity.reload().map_err(|e| e.to_string())))
        });
        let tokens =
            self.authenticator.filter(|authenticator| authenticator.has_file()).map(|authenticator| {
                let reload = move || authenticator.reload().map_err(|e| e.to_string());
                reload_every(TOKEN_RELOAD_INTERVAL, "tokens", reload)
            });
        stop.run_until_cancelled(join(OptionFuture::from(certificates), OptionFuture::from(tokens))).await;
    }
}

/// Calls `reload` at every `interval`; logs each change, and an error unless it repeats the previous one.
/// `credentials` is `certificates` or `tokens`.
async fn reload_every(
    interval: Duration,
    credentials: &'static str,
    reload: impl Fn() -> Result<bool, String> + Clone + Send + 'static,
) {
    let mut last_error = None;
    loop {
        sleep(interval).await;
        let reloaded =
            spawn_blocking(reload.clone()).await.unwrap_or_else(|e| Err(join_error_reason(&e).to_owned()));
        match &reloaded {
            Ok(true) => tracing::info!("{credentials} reloaded"),
            Err(error) if last_error.as_ref() != Some(error) => {
                tracing::error!(%error, "cannot reload {credentials}; the current ones stay in use");
            }
            _ => {}
        }
        last_error = reloaded.err();
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
        let authenticator = Some(Arc::new(Authenticator::load("test", &auth).unwrap()));
        let security = ListenerSecurity { authenticator, ..ListenerSecurity::default() };
        let text = security.exposure("0.0.0.0:1".parse().unwrap()).unwrap();
        assert!(text.contains("unencrypted") && !text.contains("without authentication"), "{text}");
    }
}
