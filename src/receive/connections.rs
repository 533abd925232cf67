//! The open connections of a listener and their peers: fair shares of permits and of memory.
//!
//! In: connections as they open, and their requests. Out: a permit for each; while there is none, the longest
//! idle connections are asked to close. If none is idle, one of the address with the most connections is, if that has
//! at least two more than the address that waits: it finishes its requests first. All connections of an address on all
//! listeners have one limit on the bytes of their requests, since one client can open many. For IPv6 an address is the
//! first 64 bits: a host has all addresses of such a network.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::Extensions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use verdict_telemetry::LogThrottle;

use crate::reservation::ByteLimit;

/// Connections that close at once are at most this share of the limit: a peer that does not cooperate takes
/// a second, and many such must not slow down the others.
const CLOSING_SHARE: usize = 16;

/// How often a waiting connection looks for idle ones.
const RETRY: Duration = Duration::from_secs(1);

/// How long a connection that has to close may stay open while it is idle, ...
const IDLE_GRACE: Duration = Duration::from_secs(1);

/// ... and while it has requests, whose bodies have a deadline.
const GRACE: Duration = Duration::from_secs(30);

/// The limits of peers with open connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    pub(super) limits: Arc<Mutex<HashMap<IpAddr, Weak<ByteLimit>>>>,
    /// The bytes of requests in flight that each peer may hold even while there is little room.
    pub(super) share: u64,
}

impl Peers {
    fn limit(&self, peer: IpAddr) -> Arc<ByteLimit> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        // At most as many as there are connections.
        limits.retain(|_, limit| limit.strong_count() > 0);
        let limit = limits.get(&peer).and_then(Weak::upgrade);
        let limit = limit.unwrap_or_else(|| Arc::new(ByteLimit::new(self.share)));
        limits.insert(peer, Arc::downgrade(&limit));
        limit
    }
}

/// The address or network whose connections share a limit.
fn limit_key(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

/// One open connection; an extension of its requests.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    /// The limit on requests of its peer.
    pub(super) bytes: Arc<ByteLimit>,
    /// The number of requests in flight, and when it last changed.
    requests: Mutex<(usize, Instant)>,
    /// Cancelled when the connection has to close.
    pub(super) close: CancellationToken,
    _permit: Option<OwnedSemaphorePermit>,
}

/// A request of a connection, until it is answered.
#[derive(Debug)]
pub(crate) struct InFlightRequest(Arc<OpenConnection>);

impl OpenConnection {
    /// The limit on requests of the peer of a request with these extensions.
    pub(super) fn limit_of(extensions: &Extensions) -> Arc<ByteLimit> {
        extensions.get::<Arc<OpenConnection>>().map(|open| Arc::clone(&open.bytes)).unwrap_or_default()
    }

    /// Closes the connection of a request with these extensions: an idle one after a second, also while the peer
    /// reads nothing of a response.
    pub(crate) fn close_of(extensions: &Extensions) -> CancellationToken {
        extensions.get::<Arc<OpenConnection>>().map(|connection| connection.close.clone()).unwrap_or_default()
    }

    /// Counts the connection of a request with these extensions as one in use until the result is dropped: a response
    /// without an end would otherwise count as idle.
    pub(crate) fn in_use(extensions: &Extensions) -> Option<InFlightRequest> {
        extensions.get::<Arc<OpenConnection>>().map(OpenConnection::begin)
    }

    pub(super) fn begin(self: &Arc<OpenConnection>) -> InFlightRequest {
        self.requests().0 += 1;
        InFlightRequest(Arc::clone(self))
    }

    /// The time to close.
    pub(super) fn grace(&self) -> Duration {
        if self.requests().0 == 0 { IDLE_GRACE } else { GRACE }
    }

    fn requests(&self) -> MutexGuard<'_, (usize, Instant)> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let mut requests = self.0.requests();
        *requests = (requests.0 - 1, Instant::now());
    }
}

/// The open connections of a listener.
pub(super) struct Connections {
    listener: SocketAddr,
    peers: Peers,
    limit: usize,
    permits: Arc<Semaphore>,
    open: Vec<Weak<OpenConnection>>,
    throttle: LogThrottle,
}

impl Connections {
    pub(super) fn new(listener: SocketAddr, limit: u32, peers: Peers) -> Connections {
        let limit = limit.max(1) as usize;
        let permits = Arc::new(Semaphore::new(limit));
        Connections { listener, peers, limit, permits, open: Vec::new(), throttle: LogThrottle::default() }
    }

    /// Waits for a permit for a connection that was accepted.
    pub(super) async fn open(&mut self, peer: IpAddr) -> Arc<OpenConnection> {
        self.open.retain(|connection| connection.strong_count() > 0);
        let bytes = self.peers.limit(limit_key(peer));
        let mut permit = Arc::clone(&self.permits).try_acquire_owned().ok();
        while permit.is_none() {
            if let Some(suppressed) = self.throttle.allow("connections") {
                tracing::warn!(listener = %self.listener, limit = self.limit, suppressed, "the limit on connections is reached; the longest idle ones are closed");
            }
            self.make_room(&bytes);
            let waiting = timeout(RETRY, Arc::clone(&self.permits).acquire_owned());
            permit = waiting.await.ok().and_then(Result::ok);
        }
        let (requests, close) = (Mutex::new((0, Instant::now())), CancellationToken::new());
        let connection = Arc::new(OpenConnection { bytes, requests, close, _permit: permit });
        self.open.push(Arc::downgrade(&connection));
        connection
    }

    /// For a connection of the address with the limit `waiting`.
    fn make_room(&self, waiting: &Arc<ByteLimit>) {
        let mut open: Vec<_> = self.open.iter().filter_map(Weak::upgrade).collect();
        let all = open.len();
        open.retain(|connection| !connection.close.is_cancelled());
        let max_closed = (self.limit / CLOSING_SHARE).max(1).saturating_sub(all - open.len());
        open.sort_by_cached_key(|connection| connection.requests().1);
        let mut closed: Vec<_> =
            open.iter().filter(|connection| connection.requests().0 == 0).take(max_closed).collect();
        if closed.is_empty() {
            let mut counts_by_peer: HashMap<*const ByteLimit, usize> = HashMap::new();
            open.iter().for_each(|connection| {
                *counts_by_peer.entry(Arc::as_ptr(&connection.bytes)).or_default() += 1
            });
            let waiting_count = counts_by_peer.get(&Arc::as_ptr(waiting)).copied().unwrap_or(0);
            let largest = counts_by_peer
                .into_iter()
                .filter(|(_, count)| *count > waiting_count + 1)
                .max_by_key(|(_, n)| *n);
            let belongs_to_largest = |connection: &&Arc<OpenConnection>| {
                largest.is_some_and(|(peer, _)| std::ptr::eq(Arc::as_ptr(&connection.bytes), peer))
            };
            closed = open.iter().filter(belongs_to_largest).take(max_closed.min(1)).collect();
        }
        closed.iter().for_each(|connection| connection.close.cancel());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_of_one_address_or_ipv6_network_share_a_limit() {
        let mut connections = Connections::new("[::1]:4317".parse().unwrap(), 8, Peers::default());
        let mut limit = async |peer: &str| connections.open(peer.parse().unwrap()).await.bytes.clone();
        let first = limit("2001:db8:0:1::1").await;
        for (peer, shared) in [
            ("2001:db8:0:1:ffff:ffff:ffff:ffff", true),
            ("2001:db8:0:2::1", false),
            ("10.0.0.1", false),
            ("2001:db8:0:1::2", true),
        ] {
            assert_eq!(Arc::ptr_eq(&limit(peer).await, &first), shared, "{peer}");
        }
        assert!(Arc::ptr_eq(&limit("10.0.0.1").await, &limit("::ffff:10.0.0.1").await));
        assert!(!Arc::ptr_eq(&limit("10.0.0.1").await, &limit("10.0.0.2").await));
    }

    #[tokio::test]
    async fn busy_connections_are_closed_only_if_their_peer_has_many_and_no_other_is_idle() {
        let [crowd, other] = ["127.0.0.1", "127.0.0.2"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let mut connections = Connections::new("127.0.0.1:4317".parse().unwrap(), 4, Peers::default());
        let mut open = Vec::new();
        for peer in [other, crowd, crowd, crowd] {
            open.push(connections.open(peer).await);
        }
        let mut busy: Vec<_> = open.iter().map(OpenConnection::begin).collect();
        let closing = |open: &[Arc<OpenConnection>]| -> Vec<bool> {
            open.iter().map(|connection| connection.close.is_cancelled()).collect()
        };
        let newcomer = connections.peers.limit("127.0.0.3".parse().unwrap());
        connections.make_room(&newcomer);
        assert_eq!(closing(&open), [false, true, false, false], "the oldest of the peer with many");
        connections.make_room(&newcomer);
        assert_eq!(closing(&open), [false, true, false, false], "one closes at a time");
        drop((busy.remove(1), open.remove(1)));
        // The first one has finished its request.
        busy.remove(0);
        connections.make_room(&newcomer);
        assert_eq!(closing(&open), [true, false, false], "the idle one, of whichever peer");
    }

    #[tokio::test]
    async fn addresses_that_share_all_permits_make_room_for_one_that_has_fewer() {
        let address = |n: usize| format!("127.0.1.{n}").parse::<IpAddr>().unwrap();
        for (each, waiting, closed) in [(2, 9, 1), (2, 0, 0), (1, 9, 0)] {
            let limit = 4 * each;
            let listener = "127.0.0.1:4317".parse().unwrap();
            let mut connections = Connections::new(listener, limit as u32, Peers::default());
            let mut open = Vec::new();
            for n in 0..limit {
                open.push(connections.open(address(n % 4)).await);
            }
            let _busy: Vec<_> = open.iter().map(OpenConnection::begin).collect();
            connections.make_room(&connections.peers.limit(address(waiting)));
            let closing = open.iter().filter(|connection| connection.close.is_cancelled()).count();
            assert_eq!(closing, closed, "{each} connections each");
        }
    }
}
