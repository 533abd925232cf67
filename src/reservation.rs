//! Bytes counted in a shared total until they are released: requests in flight, queues, buffered spans.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use prometheus_client::metrics::gauge::Gauge;

/// A shared total of bytes, and its limit.
#[derive(Clone, Debug)]
pub(crate) struct ByteLimit {
    pub(crate) total: Gauge,
    pub(crate) limit: u64,
}

impl ByteLimit {
    pub(crate) fn new(limit: u64) -> ByteLimit {
        ByteLimit { total: Gauge::default(), limit }
    }

    /// Bytes reserved now.
    pub(crate) fn reserved(&self) -> u64 {
        u64::try_from(self.total.get()).unwrap_or(0)
    }

    /// Reserves `bytes`, also above the limit.
    pub(crate) fn reserve(&self, bytes: usize) -> Reservation {
        let mut reservation = Reservation { of: self.clone(), bytes: 0 };
        reservation.resize(bytes);
        reservation
    }

    /// A reservation of 0 bytes that may grow to a share of the limit.
    pub(crate) fn reserve_for(&self, holder: Option<Holder>) -> FairReservation {
        FairReservation { reservation: self.reserve(0), holder }
    }

    /// Whether the rest is only for holders that have less than a quarter.
    pub(crate) fn is_scarce(&self) -> bool {
        self.reserved() > self.limit / 4 * 3
    }
}

/// The bytes that one of those who share a [`ByteLimit`] has reserved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holder(pub(crate) Arc<AtomicI64>);

/// Bytes that count in a [`ByteLimit`] until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    of: ByteLimit,
    bytes: i64,
}

impl Reservation {
    /// Reserves `bytes` instead of what was reserved before. `false` if the total then exceeds the limit,
    /// unless this is the only reservation.
    fn resize(&mut self, bytes: usize) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX / 2);
        let more = bytes - self.bytes;
        self.bytes = bytes;
        let total = self.of.total.inc_by(more) + more;
        total == bytes || u64::try_from(total).is_ok_and(|total| total <= self.of.limit)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.of.total.dec_by(self.bytes);
    }
}

/// A reservation in a limit that several holders share, so that none of them can use it up.
#[derive(Debug)]
pub(crate) struct FairReservation {
    reservation: Reservation,
    holder: Option<Holder>,
}

impl FairReservation {
    /// Reserves `bytes` instead of what was reserved before. `false` if these are more and the total then
    /// exceeds the limit, or three quarters of it while the holder has more than one quarter. The only
    /// reservation may have any size.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let before = self.reservation.bytes;
        let within = self.reservation.resize(bytes);
        let Reservation { of, bytes } = &self.reservation;
        let more = bytes - before;
        let held = self.holder.as_ref().map(|Holder(held)| held.fetch_add(more, Ordering::Relaxed) + more);
        let has_little = held.is_none_or(|held| held <= i64::try_from(of.limit / 4).unwrap_or(i64::MAX));
        let only = of.total.get() == *bytes;
        more <= 0 || only || (within && (has_little || !of.is_scarce()))
    }
}

impl Drop for FairReservation {
    fn drop(&mut self) {
        self.resize(0);
    }
}
