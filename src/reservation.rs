//! Bytes counted in a shared total until they are released: requests in flight, queues, buffered spans.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

/// A shared total of bytes, and its limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteLimit {
    pub(crate) total: Gauge,
    pub(crate) limit: u64,
    /// When a holder below its own limit was last refused.
    last_exhausted: Arc<Mutex<Option<Instant>>>,
}

impl ByteLimit {
    pub(crate) fn new(limit: u64) -> ByteLimit {
        ByteLimit { limit, ..ByteLimit::default() }
    }

    /// The limit, with its total counted in `total`, such as a self-metric.
    pub(crate) fn counted_in(self, total: &Gauge) -> ByteLimit {
        ByteLimit { total: total.clone(), ..self }
    }

    /// Whether a holder below its own limit was refused within this time. A holder above its limit is refused earlier,
    /// while there is still space for others.
    pub(crate) fn was_exhausted(&self, within: Duration) -> bool {
        let last_exhausted = *self.last_exhausted.lock().unwrap_or_else(PoisonError::into_inner);
        last_exhausted.is_some_and(|instant| instant.elapsed() < within)
    }

    /// The total of all reservations, in bytes.
    pub(crate) fn reserved(&self) -> u64 {
        bytes_in(&self.total)
    }

    /// Reserves `bytes`, also above the limit.
    pub(crate) fn reserve(&self, bytes: usize) -> Reservation {
        let mut reservation = Reservation { total: self.total.clone(), limit: self.limit, bytes: 0 };
        reservation.resize(bytes);
        reservation
    }

    /// A reservation of 0 bytes for one of several holders, such as a sender, that share this limit. `holder` is the
    /// limit of this holder alone.
    pub(crate) fn reserve_for(&self, holder: &ByteLimit) -> FairReservation {
        let last_exhausted = Arc::clone(&self.last_exhausted);
        FairReservation {
            shared_reservation: self.reserve(0),
            holder_reservation: holder.reserve(0),
            last_exhausted,
        }
    }
}

/// Bytes that are counted in a [`ByteLimit`] until the reservation is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    total: Gauge,
    limit: u64,
    bytes: i64,
}

impl Reservation {
    /// Changes the reserved bytes to `bytes`. Returns `false` if the total then exceeds the limit, unless this is the
    /// only reservation.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX / 2);
        let added = bytes - self.bytes;
        self.bytes = bytes;
        let total = self.total.inc_by(added) + added;
        total == bytes || u64::try_from(total).is_ok_and(|total| total <= self.limit)
    }

    /// The reserved bytes.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(0)
    }

    /// Whether no other reservation counts in the total.
    fn is_only(&self) -> bool {
        self.total.get() == self.bytes
    }

    fn is_within_limit(&self) -> bool {
        bytes_in(&self.total) <= self.limit
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.total.dec_by(self.bytes);
    }
}

/// A reservation in a limit that several holders share, so that none of them can use it up.
#[derive(Debug)]
pub(crate) struct FairReservation {
    shared_reservation: Reservation,
    /// The same bytes, reserved in the limit of the holder.
    holder_reservation: Reservation,
    /// When the shared limit was last exhausted.
    last_exhausted: Arc<Mutex<Option<Instant>>>,
}

impl FairReservation {
    /// Changes the reserved bytes to `bytes`. Returns `false` if this is an increase and the total then exceeds the
    /// limit, or if it exceeds three quarters of the limit and the holder exceeds its own. The only reservation may
    /// have any size.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let bytes_before = self.shared_reservation.bytes;
        let (within_shared_limit, within_holder_limit) =
            (self.shared_reservation.resize(bytes), self.holder_reservation.resize(bytes));
        let Reservation { total, limit, bytes } = &self.shared_reservation;
        let has_room = within_shared_limit && (within_holder_limit || !is_scarce(total, *limit));
        let admitted = *bytes <= bytes_before || self.shared_reservation.is_only() || has_room;
        if !admitted && self.holder_reservation.is_within_limit() {
            *self.last_exhausted.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        admitted
    }
}

fn bytes_in(total: &Gauge) -> u64 {
    u64::try_from(total.get()).unwrap_or(0)
}

/// Whether more than three quarters of the limit are used: the rest is for holders below their own limits.
fn is_scarce(total: &Gauge, limit: u64) -> bool {
    bytes_in(total) > limit / 4 * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn limit_is_exhausted_when_a_holder_within_its_own_limit_is_refused() {
        const MINUTE: Duration = Duration::from_secs(60);
        let all = ByteLimit::new(1000);
        let [greedy, other] = [ByteLimit::new(250), ByteLimit::new(250)];
        let mut reservations = Vec::new();
        // One holder takes all that it can get, and is refused again and again.
        for _ in 0..100 {
            let mut reservation = all.reserve_for(&greedy);
            if reservation.resize(50) {
                reservations.push(reservation);
            }
        }
        assert!((700..=800).contains(&all.reserved()), "{}", all.reserved());
        assert!(!all.was_exhausted(MINUTE), "there is room for others");
        let mut small = all.reserve_for(&other);
        assert!(small.resize(200) && !all.was_exhausted(MINUTE));
        let mut third = all.reserve_for(&ByteLimit::new(250));
        assert!(!third.resize(200) && all.was_exhausted(MINUTE));
        tokio::time::advance(MINUTE).await;
        assert!(!all.was_exhausted(MINUTE));
    }
}
