//! Bytes counted in a shared total until they are released: requests in flight, queues, buffered spans.

use prometheus_client::metrics::gauge::Gauge;

/// A shared total of bytes, and its limit.
#[derive(Clone, Debug, Default)]
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

    /// A reservation of 0 bytes of a holder with a limit of its own.
    pub(crate) fn reserve_for(&self, holder: &ByteLimit) -> FairReservation {
        FairReservation { all: self.reserve(0), own: holder.reserve(0) }
    }

    /// Whether the rest is only for holders within their own limits.
    pub(crate) fn is_scarce(&self) -> bool {
        self.reserved() > self.limit / 4 * 3
    }
}

/// Bytes that count in a [`ByteLimit`] until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    of: ByteLimit,
    bytes: i64,
}

impl Reservation {
    /// Reserves `bytes` instead of what was reserved before. `false` if the total then exceeds the limit,
    /// unless this is the only reservation.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
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
    all: Reservation,
    /// The same bytes in the limit of the holder.
    own: Reservation,
}

impl FairReservation {
    /// Reserves `bytes` instead of what was reserved before. `false` if these are more and the total then
    /// exceeds the limit, or three quarters of it while the holder exceeds its own limit. The only
    /// reservation may have any size.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let before = self.all.bytes;
        let (within, has_little) = (self.all.resize(bytes), self.own.resize(bytes));
        let Reservation { of, bytes } = &self.all;
        let only = of.total.get() == *bytes;
        *bytes <= before || only || (within && (has_little || !of.is_scarce()))
    }
}
