//! Bytes counted in a shared total until they are released: requests in flight, queues, buffered spans.

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
        reservation.grow(bytes);
        reservation
    }
}

/// Bytes that count in a [`ByteLimit`] until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    of: ByteLimit,
    bytes: i64,
}

impl Reservation {
    /// Adds `bytes`. `false` if the total then exceeds the limit, unless this is the only reservation.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let more = i64::try_from(bytes).unwrap_or(i64::MAX / 2);
        let total = self.of.total.inc_by(more) + more;
        self.bytes += more;
        total == self.bytes || u64::try_from(total).is_ok_and(|total| total <= self.of.limit)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.of.total.dec_by(self.bytes);
    }
}
