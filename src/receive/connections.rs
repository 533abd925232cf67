//! The open connections of a listener and their peers: fair shares of permits and of memory.
//!
//! In: connections as they open, and their requests. Out: a permit for each. While there is none, the longest idle
//! connections are asked to close. If none is idle, one connection of the address with the most connections is asked to
//! close after its requests, if that address has at least two connections more than the address that waits. All
//! connections of an address on all listeners share one limit on the bytes of their requests, since one client can open
//! many. For IPv6 an address is its first 64 bits, since one host can use all addresses of such a network.

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

/// At most `limit / CLOSING_DIVISOR` connections are closing at a time: a connection whose peer does not cooperate
/// takes a second to close, and many of them must not slow down the others.
const CLOSING_DIVISOR: usize = 16;

/// How often idle connections are searched for while a connection waits.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long a connection that has to close may stay open while it is idle.
const IDLE_GRACE: Duration = Duration::from_secs(1);

/// How long a connection that has to close may stay open while it has requests, whose bodies have a deadline.
const BUSY_GRACE: Duration = Duration::from_secs(30);

/// The limits of peers with open connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    pub(super) limits: Arc<Mutex<HashMap<IpAddr, Weak<ByteLimit>>>>,
    /// The bytes of requests in flight that each peer may hold even while the shared limit is nearly reached.
    pub(super) share: u64,
}

impl Peers {
    fn limit(&self, peer: IpAddr) -> Arc<ByteLimit> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        // So that there are at most as many limits as connections.
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
    /// The limit on the bytes of its peer's requests.
    pub(super) peer_limit: Arc<ByteLimit>,
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
    /// The limit on the bytes of the requests of the peer that sent a request with these extensions.
    pub(super) fn limit_of(extensions: &Extensions) -> Arc<ByteLimit> {
        extensions.get::<Arc<OpenConnection>>().map(|open| Arc::clone(&open.peer_limit)).unwrap_or_default()
    }

    /// The token that closes the connection of a request with these extensions, an idle one after a second, even
    /// if the peer does not read its response.
    pub(crate) fn close_token(extensions: &Extensions) -> CancellationToken {
        extensions.get::<Arc<OpenConnection>>().map(|connection| connection.close.clone()).unwrap_or_default()
    }

    /// Counts the connection of a request with these extensions as busy until the result is dropped. A connection
    /// whose response streams without an end would otherwise count as idle.
    pub(crate) fn hold_busy(extensions: &Extensions) -> Option<InFlightRequest> {
        extensions.get::<Arc<OpenConnection>>().map(OpenConnection::begin)
    }

    /// Counts a request of the connection until the result is dropped.
    pub(super) fn begin(self: &Arc<OpenConnection>) -> InFlightRequest {
        self.requests().0 += 1;
        InFlightRequest(Arc::clone(self))
    }

    /// The time within which the connection has to close.
    pub(super) fn grace(&self) -> Duration {
        if self.requests().0 == 0 { IDLE_GRACE } else { BUSY_GRACE }
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

    /// Waits for a permit for a connection that was accepted from `peer`.
    pub(super) async fn open(&mut self, peer: IpAddr) -> Arc<OpenConnection> {
        self.open.retain(|connection| connection.strong_count() > 0);
        let peer_limit = self.peers.limit(limit_key(peer));
        let mut permit = Arc::clone(&self.permits).try_acquire_owned().ok();
        while permit.is_none() {
            if let Some(suppressed) = self.throttle.allow("connections") {
                tracing::warn!(listener = %self.listener, limit = self.limit, suppressed, "the limit on connections is reached; the longest idle ones are closed");
            }
            self.make_room(&peer_limit);
            let waiting = timeout(RETRY_INTERVAL, Arc::clone(&self.permits).acquire_owned());
            permit = waiting.await.ok().and_then(Result::ok);
        }
        let (requests, close) = (Mutex::new((0, Instant::now())), CancellationToken::new());
        let connection = Arc::new(OpenConnection { peer_limit, requests, close, _permit: permit });
        self.open.push(Arc::downgrade(&connection));
        connection
    }

    /// Asks connections to close, since one of the peer with the limit `waiting_peer` waits for a permit.
    fn make_room(&self, waiting_peer: &Arc<ByteLimit>) {
        let mut open: Vec<_> = self.open.iter().filter_map(Weak::upgrade).collect();
        let open_count = open.len();
        open.retain(|connection| !connection.close.is_cancelled());
        let max_closed = (self.limit / CLOSING_DIVISOR).max(1).saturating_sub(open_count - open.len());
        open.sort_by_cached_key(|connection| connection.requests().1);
        let mut to_close: Vec<_> =
            open.iter().filter(|connection| connection.requests().0 == 0).take(max_closed).collect();
        if to_close.is_empty() {
            let mut counts_by_peer: HashMap<*const ByteLimit, usize> = HashMap::new();
            open.iter().for_each(|connection| {
                *counts_by_peer.entry(Arc::as_ptr(&connection.peer_limit)).or_default() += 1
            });
            let waiting_count = counts_by_peer.get(&Arc::as_ptr(waiting_peer)).copied().unwrap_or(0);
            let largest = counts_by_peer
                .into_iter()
                .filter(|(_, count)| *count > waiting_count + 1)
                .max_by_key(|(_, count)| *count);
            let belongs_to_largest = |connection: &&Arc<OpenConnection>| {
                largest.is_some_and(|(peer, _)| std::ptr::eq(Arc::as_ptr(&connection.peer_limit), peer))
            };
            to_close = open.iter().filter(belongs_to_largest).take(max_closed.min(1)).collect();
        }
        to_close.iter().for_each(|connection| connection.close.cancel());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_of_one_address_or_ipv6_network_share_a_limit() {
        let mut connections = Connections::new("[::1]:4317".parse().unwrap(), 8, Peers::default());
        let mut limit = async |peer: &str| connections.open(peer.parse().unwrap()).await.peer_limit.clone();
        let first = limit("2001:db8:0:1::1").await;
        for (peer, is_shared) in [
            ("2001:db8:0:1:ffff:ffff:ffff:ffff", true),
            ("2001:db8:0:2::1", false),
            ("10.0.0.1", false),
            ("2001:db8:0:1::2", true),
        ] {
            assert_eq!(Arc::ptr_eq(&limit(peer).await, &first), is_shared, "{peer}");
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
        for (connections_per_address, waiting_address, closed_count) in [(2, 9, 1), (2, 0, 0), (1, 9, 0)] {
            let limit = 4 * connections_per_address;
            let listener = "127.0.0.1:4317".parse().unwrap();
            let mut connections = Connections::new(listener, limit as u32, Peers::default());
            let mut open = Vec::new();
            for n in 0..limit {
                open.push(connections.open(address(n % 4)).await);
            }
            let _busy: Vec<_> = open.iter().map(OpenConnection::begin).collect();
            connections.make_room(&connections.peers.limit(address(waiting_address)));
            let closing = open.iter().filter(|connection| connection.close.is_cancelled()).count();
            assert_eq!(closing, closed_count, "{connections_per_address} connections each");
        }
    }
}
