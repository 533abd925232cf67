//! The open connections of a listener, and which of them are closed when a further one waits.
//!
//! In: connections as they open, and their requests. Out: a place for each; while there is none, the longest
//! idle connections are asked to close. If none is idle, those are that belong to an address with more than
//! a quarter of the places: they finish their requests first.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use verdict_telemetry::LogThrottle;

/// Connections that close at once are at most this share of the limit: a peer that does not cooperate takes
/// a second, and many such must not slow down the others.
const CLOSING_SHARE: usize = 16;

/// How often a waiting connection looks for idle ones.
const RETRY: Duration = Duration::from_secs(1);

/// How long a connection that has to close may stay open while it is idle, ...
const IDLE_GRACE: Duration = Duration::from_secs(1);

/// ... and while it has requests, whose bodies have a deadline.
const GRACE: Duration = Duration::from_secs(30);

/// One open connection.
#[derive(Debug)]
pub(super) struct Usage {
    peer: IpAddr,
    /// The number of requests in flight, and when it last changed.
    requests: Mutex<(usize, Instant)>,
    /// Cancelled when the connection has to close.
    pub(super) close: CancellationToken,
    _place: Option<OwnedSemaphorePermit>,
}

/// A request of a connection, until it is answered.
pub(super) struct InFlight(Arc<Usage>);

impl Usage {
    pub(super) fn begin(self: &Arc<Usage>) -> InFlight {
        self.requests().0 += 1;
        InFlight(Arc::clone(self))
    }

    /// The time to close.
    pub(super) fn grace(&self) -> Duration {
        if self.requests().0 == 0 { IDLE_GRACE } else { GRACE }
    }

    fn requests(&self) -> MutexGuard<'_, (usize, Instant)> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut requests = self.0.requests();
        *requests = (requests.0 - 1, Instant::now());
    }
}

/// The open connections of a listener.
pub(super) struct Connections {
    listener: SocketAddr,
    limit: usize,
    places: Arc<Semaphore>,
    open: Vec<Weak<Usage>>,
    throttle: LogThrottle,
}

impl Connections {
    pub(super) fn new(listener: SocketAddr, limit: u32) -> Connections {
        let limit = limit.max(1) as usize;
        let places = Arc::new(Semaphore::new(limit));
        Connections { listener, limit, places, open: Vec::new(), throttle: LogThrottle::default() }
    }

    /// Waits for a place for a connection that was accepted.
    pub(super) async fn open(&mut self, peer: IpAddr) -> Arc<Usage> {
        self.open.retain(|usage| usage.strong_count() > 0);
        let mut place = Arc::clone(&self.places).try_acquire_owned().ok();
        while place.is_none() {
            if let Some(suppressed) = self.throttle.allow("connections") {
                tracing::warn!(listener = %self.listener, limit = self.limit, suppressed, "the limit on connections is reached; the longest idle ones are closed");
            }
            self.make_room();
            let waiting = timeout(RETRY, Arc::clone(&self.places).acquire_owned());
            place = waiting.await.ok().and_then(Result::ok);
        }
        let (requests, close) = (Mutex::new((0, Instant::now())), CancellationToken::new());
        let usage = Arc::new(Usage { peer, requests, close, _place: place });
        self.open.push(Arc::downgrade(&usage));
        usage
    }

    fn make_room(&self) {
        let (closing, open): (Vec<_>, Vec<_>) =
            self.open.iter().filter_map(Weak::upgrade).partition(|usage| usage.close.is_cancelled());
        let mut of_peer: HashMap<IpAddr, usize> = HashMap::new();
        open.iter().for_each(|usage| *of_peer.entry(usage.peer).or_default() += 1);
        let crowds = |peer| of_peer.get(peer).is_some_and(|&count| count > self.limit / 4);
        let (mut idle, mut busy): (Vec<_>, Vec<_>) = open
            .iter()
            .map(|usage| (*usage.requests(), usage))
            .partition(|((requests, _), _)| *requests == 0);
        busy.retain(|(_, usage)| crowds(&usage.peer));
        let candidates = if idle.is_empty() { &mut busy } else { &mut idle };
        candidates.sort_by_key(|((_, since), _)| *since);
        let most = (self.limit / CLOSING_SHARE).max(1).saturating_sub(closing.len());
        candidates.iter().take(most).for_each(|(_, usage)| usage.close.cancel());
    }
}
