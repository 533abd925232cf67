//! The peers of all listeners, so that memory for requests in flight is shared fairly among them.
//!
//! In: addresses of connections. Out: the [`Holder`] of each, which its requests charge. One client can open
//! many connections, so they count together.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::reservation::Holder;

/// Peers with open connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers(Arc<Mutex<HashMap<IpAddr, Weak<AtomicI64>>>>);

impl Peers {
    /// The holder of a peer, the same while it has connections.
    pub(super) fn holder(&self, peer: IpAddr) -> Holder {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // At most as many as there are connections.
        peers.retain(|_, held| held.strong_count() > 0);
        let held = peers.get(&peer).and_then(Weak::upgrade).unwrap_or_default();
        peers.insert(peer, Arc::downgrade(&held));
        Holder(held)
    }
}
