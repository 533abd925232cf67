//! The circuit breaker of one judge.
//!
//! In: results of requests, and the time. Out: permission to send a request. After the configured number of
//! failures in a row the breaker opens: no request is sent for `open_for`. Then one request is sent as a
//! probe; its success closes the breaker, its failure opens it again.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::BreakerConfig;
use crate::lock::lock;

#[derive(Debug)]
pub(crate) struct Breaker {
    /// The number of failures in a row that opens the breaker.
    failures: u32,
    open_for: Duration,
    state: Mutex<CircuitState>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CircuitState {
    /// With the number of failures in a row.
    Closed(u32),
    /// Until this time.
    Open(Instant),
    /// The probe is in flight.
    Probing,
}

/// The state as the self-metric shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BreakerState {
    Closed = 0,
    /// The probe is in flight, or may be sent.
    HalfOpen = 1,
    Open = 2,
}

/// Permission to send one request. Dropping it reports neither success nor failure.
#[derive(Debug)]
pub(crate) struct BreakerPermit<'a> {
    breaker: &'a Breaker,
    is_probe: bool,
}

impl Breaker {
    pub(crate) fn new(config: &BreakerConfig) -> Breaker {
        let (failures, open_for) = (config.failures.max(1), *config.open_for);
        Breaker { failures, open_for, state: Mutex::new(CircuitState::Closed(0)) }
    }

    /// `None` while the breaker is open.
    pub(crate) fn try_acquire(&self, now: Instant) -> Option<BreakerPermit<'_>> {
        let mut state = lock(&self.state);
        let is_probe = match *state {
            CircuitState::Closed(_) => false,
            CircuitState::Open(until) if now >= until => {
                *state = CircuitState::Probing;
                true
            }
            CircuitState::Open(_) | CircuitState::Probing => return None,
        };
        Some(BreakerPermit { breaker: self, is_probe })
    }

    /// Whether no request may be sent now; waiting for the request limiter is then pointless.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        match *lock(&self.state) {
            CircuitState::Closed(_) => false,
            CircuitState::Open(until) => now < until,
            CircuitState::Probing => true,
        }
    }

    pub(crate) fn breaker_state(&self, now: Instant) -> BreakerState {
        match *lock(&self.state) {
            CircuitState::Closed(_) => BreakerState::Closed,
            CircuitState::Open(until) if now < until => BreakerState::Open,
            CircuitState::Open(_) | CircuitState::Probing => BreakerState::HalfOpen,
        }
    }
}

impl BreakerPermit<'_> {
    /// Reports that the request succeeded.
    pub(crate) fn succeeded(mut self) {
        self.is_probe = false;
        // This also closes an open breaker: a request sent before it opened shows that the judge has recovered.
        *lock(&self.breaker.state) = CircuitState::Closed(0);
    }

    /// Reports that the request failed; returns whether this failure opens the breaker.
    pub(crate) fn failed(mut self, now: Instant) -> bool {
        let mut state = lock(&self.breaker.state);
        let opens = match *state {
            CircuitState::Closed(before) if before + 1 < self.breaker.failures => {
                *state = CircuitState::Closed(before + 1);
                false
            }
            CircuitState::Closed(_) => true,
            CircuitState::Probing => self.is_probe,
            // Sent before the breaker opened.
            CircuitState::Open(_) => false,
        };
        if opens {
            *state = CircuitState::Open(now + self.breaker.open_for);
        }
        self.is_probe = false;
        opens
    }
}

impl Drop for BreakerPermit<'_> {
    fn drop(&mut self) {
        if self.is_probe {
            // The probe was cancelled: the next request may be a probe immediately.
            let mut state = lock(&self.breaker.state);
            if *state == CircuitState::Probing {
                *state = CircuitState::Open(Instant::now());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdict_config::Period;

    fn breaker() -> Breaker {
        Breaker::new(&BreakerConfig { failures: 3, open_for: Period::secs(30) })
    }

    fn fail(breaker: &Breaker, now: Instant) -> bool {
        breaker.try_acquire(now).unwrap().failed(now)
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_open_the_breaker_and_a_success_resets_the_count() {
        let (breaker, now) = (breaker(), Instant::now());
        assert!(!fail(&breaker, now) && !fail(&breaker, now));
        breaker.try_acquire(now).unwrap().succeeded();
        assert!(!fail(&breaker, now) && !fail(&breaker, now) && fail(&breaker, now));
        assert!(breaker.try_acquire(now).is_none());
        assert_eq!(breaker.breaker_state(now), BreakerState::Open);
    }

    #[tokio::test(start_paused = true)]
    async fn one_probe_is_sent_after_open_for() {
        let (breaker, now) = (breaker(), Instant::now());
        (0..3).for_each(|_| _ = fail(&breaker, now));
        let later = now + Duration::from_secs(30);
        assert_eq!(breaker.breaker_state(later), BreakerState::HalfOpen);
        let probe = breaker.try_acquire(later).unwrap();
        assert!(breaker.try_acquire(later).is_none(), "one probe at a time");
        assert!(probe.failed(later));
        assert!(breaker.try_acquire(later).is_none(), "open again");
        let probe = breaker.try_acquire(later + Duration::from_secs(30)).unwrap();
        probe.succeeded();
        assert_eq!(breaker.breaker_state(later), BreakerState::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_probe_lets_the_next_request_probe() {
        let (breaker, now) = (breaker(), Instant::now());
        (0..3).for_each(|_| _ = fail(&breaker, now));
        tokio::time::advance(Duration::from_secs(31)).await;
        let probe = breaker.try_acquire(Instant::now()).unwrap();
        assert!(breaker.try_acquire(Instant::now()).is_none());
        drop(probe);
        assert!(breaker.try_acquire(Instant::now()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_sent_before_the_breaker_opened_do_not_prolong_it_and_may_close_it() {
        let (breaker, now) = (breaker(), Instant::now());
        let in_flight: Vec<BreakerPermit<'_>> = (0..5).filter_map(|_| breaker.try_acquire(now)).collect();
        (0..3).for_each(|_| _ = fail(&breaker, now));
        let late = now + Duration::from_secs(29);
        let mut in_flight = in_flight.into_iter();
        assert!(!in_flight.next().unwrap().failed(late), "open already");
        assert!(breaker.try_acquire(now + Duration::from_secs(30)).is_some(), "not prolonged");
        in_flight.next().unwrap().succeeded();
        assert!(breaker.try_acquire(late).is_some(), "it has recovered");
    }
}
