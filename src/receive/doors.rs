//! A listener's door: its certificate and its credentials, opened before anything is served and
//! kept as fresh as their files.
//!
//! In: settings. Out: what a listener and its protocol ask at each connection and request. A door
//! that stands open to the network is told at start.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::auth::{Auth, Guard, TOKENS_INTERVAL};
use super::config::Endpoint;
use super::listen::BindError;
use super::tls::{Identity, ServerTls};

/// Who a listener is, and who may send.
#[derive(Clone, Debug, Default)]
pub(crate) struct Door {
    identity: Option<(Arc<Identity>, Duration)>,
    /// A client must show a certificate.
    mutual: bool,
    guard: Option<Arc<Guard>>,
}

impl Door {
    pub(crate) fn open(
        endpoint: &Endpoint,
        tls: Option<&ServerTls>,
        auth: Option<&Auth>,
        alpn: &[&[u8]],
    ) -> Result<Door, BindError> {
        let failed =
            |why: String| BindError { endpoint: endpoint.to_string(), source: io::Error::other(why) };
        let identity = match tls {
            Some(tls) => {
                let identity = Identity::open(tls, alpn).map_err(|e| failed(e.to_string()))?;
                Some((Arc::new(identity), tls.reload_interval.0))
            }
            None => None,
        };
        let guard = auth.map(Guard::open).transpose().map_err(failed)?.map(Arc::new);
        Ok(Door { identity, mutual: tls.is_some_and(|tls| tls.client_ca_file.is_some()), guard })
    }

    pub(crate) fn identity(&self) -> Option<Arc<Identity>> {
        self.identity.as_ref().map(|(identity, _)| Arc::clone(identity))
    }

    pub(crate) fn guard(&self) -> Option<Arc<Guard>> {
        self.guard.clone()
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.identity.is_some()
    }

    pub(crate) fn is_guarded(&self) -> bool {
        self.guard.is_some() || self.mutual
    }

    /// Why a listener at `addr` would let in more than its owner may think.
    pub(crate) fn openness(&self, addr: SocketAddr) -> Option<&'static str> {
        if addr.ip().to_canonical().is_loopback() {
            return None;
        }
        match (self.is_tls(), self.is_guarded()) {
            (false, false) => Some("open to the network: anybody who reaches it is let in, unencrypted"),
            (false, true) => Some("credentials and content cross the network unencrypted: set tls"),
            (true, false) => {
                Some("open to the network: anybody who reaches it is let in; set auth or client_ca_file")
            }
            (true, true) => None,
        }
    }

    /// Tells it.
    pub(crate) fn warn(&self, key: &'static str, addr: SocketAddr) {
        if let Some(why) = self.openness(addr) {
            tracing::warn!(listener = key, endpoint = %addr, "{why}");
        }
    }

    /// Looks at the files again and again until `stop`.
    pub(crate) async fn keep_fresh(self, stop: CancellationToken) {
        let certificates = async {
            let Some((identity, interval)) = self.identity.filter(|(_, every)| !every.is_zero()) else {
                return;
            };
            loop {
                sleep(interval).await;
                let identity = Arc::clone(&identity);
                let refreshed = spawn_blocking(move || identity.refresh().map_err(|e| e.to_string())).await;
                tell("certificates", refreshed.unwrap_or_else(|e| Err(e.to_string())));
            }
        };
        let tokens = async {
            let Some(guard) = self.guard.filter(|guard| guard.has_file()) else { return };
            let mut told = None;
            loop {
                sleep(TOKENS_INTERVAL).await;
                let guard = Arc::clone(&guard);
                let refreshed = spawn_blocking(move || guard.refresh()).await;
                let refreshed = refreshed.unwrap_or_else(|e| Err(e.to_string()));
                let fault = refreshed.as_ref().err().cloned();
                if fault.is_none() || fault != told {
                    tell("tokens", refreshed);
                }
                told = fault;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            _ = async { tokio::join!(certificates, tokens) } => {}
        }
    }
}

fn tell(what: &'static str, refreshed: Result<bool, String>) {
    match refreshed {
        Ok(true) => tracing::info!("{what} read again from their files"),
        Ok(false) => {}
        Err(why) => tracing::error!(%why, "new {what} cannot be used; those in force stay"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_that_is_open_to_the_network_is_told() {
        let open = |addr: &str| Door::default().openness(addr.parse().unwrap());
        for quiet in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(open(quiet), None, "{quiet}");
        }
        for loud in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
            assert!(open(loud).is_some_and(|why| why.contains("anybody")), "{loud}");
        }
        let auth = Auth { bearer_token: Some(verdict_config::Secret::new("x")), ..Auth::default() };
        let guarded = Door { guard: Some(Arc::new(Guard::open(&auth).unwrap())), ..Door::default() };
        let why = guarded.openness("0.0.0.0:1".parse().unwrap()).unwrap();
        assert!(why.contains("unencrypted") && !why.contains("anybody"), "{why}");
    }
}
