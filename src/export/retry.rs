//! Delays between attempts: exponential backoff with jitter, at least as long as the destination requests, until
//! `max_elapsed_time`.
//!
//! The crate `backon` is not used: its jitter only lengthens delays, up to doubling them, while the Collector's
//! `randomization_factor` spreads them around the interval, and its limit counts the delays alone, not the elapsed time
//! including requests.

use std::time::Duration;

use tokio::time::Instant;

use super::config::RetryOnFailure;

/// Upper bound on a delay that the destination requests, since the queue is bounded.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// The delays of one request.
#[derive(Debug)]
pub(super) struct Backoff<'a> {
    policy: &'a RetryOnFailure,
    started: Instant,
    interval: Duration,
}

impl<'a> Backoff<'a> {
    pub(super) fn new(policy: &'a RetryOnFailure) -> Backoff<'a> {
        Backoff { policy, started: Instant::now(), interval: *policy.initial_interval }
    }

    /// The delay before the next attempt; `None` when retries end. `retry_after` is the delay that the destination
    /// requests, a lower bound.
    pub(super) fn next_delay(&mut self, retry_after: Option<Duration>) -> Option<Duration> {
        if !self.policy.enabled {
            return None;
        }
        let spread = self.policy.randomization_factor.clamp(0.0, 1.0);
        let jitter = 1.0 - spread + 2.0 * spread * fastrand::f64();
        let base = self.interval.min(*self.policy.max_interval).as_secs_f64();
        let delay = Duration::try_from_secs_f64(base * jitter).unwrap_or(*self.policy.max_interval);
        let next_interval = self.interval.as_secs_f64() * self.policy.multiplier.max(1.0);
        self.interval = Duration::try_from_secs_f64(next_interval)
            .unwrap_or(*self.policy.max_interval)
            .min(*self.policy.max_interval);
        let delay = delay.max(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER));
        let limit = *self.policy.max_elapsed_time;
        (limit.is_zero() || self.started.elapsed() + delay <= limit).then_some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdict_config::Period;

    fn policy() -> RetryOnFailure {
        RetryOnFailure {
            initial_interval: Period::secs(1),
            max_interval: Period::secs(3),
            multiplier: 2.0,
            randomization_factor: 0.0,
            max_elapsed_time: Period::secs(20),
            ..RetryOnFailure::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn delays_grow_to_max_interval_until_max_elapsed_time() {
        let policy = policy();
        let mut backoff = Backoff::new(&policy);
        let mut waits = Vec::new();
        while let Some(wait) = backoff.next_delay(None) {
            waits.push(wait.as_secs());
            tokio::time::sleep(wait).await;
        }
        assert_eq!(waits, [1, 2, 3, 3, 3, 3, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_is_a_lower_bound() {
        let policy = policy();
        let mut backoff = Backoff::new(&policy);
        assert_eq!(backoff.next_delay(Some(Duration::from_secs(7))), Some(Duration::from_secs(7)));
        assert_eq!(backoff.next_delay(Some(Duration::from_millis(1))), Some(Duration::from_secs(2)));
        assert_eq!(backoff.next_delay(Some(Duration::from_secs(21))), None, "longer than max_elapsed_time");
    }

    #[tokio::test(start_paused = true)]
    async fn zero_elapsed_time_retries_without_end_and_disabled_never() {
        let forever = RetryOnFailure { max_elapsed_time: Period::secs(0), ..policy() };
        let mut backoff = Backoff::new(&forever);
        tokio::time::sleep(Duration::from_secs(1_000_000)).await;
        assert!(backoff.next_delay(None).is_some());
        let disabled = RetryOnFailure { enabled: false, ..policy() };
        assert_eq!(Backoff::new(&disabled).next_delay(Some(Duration::from_secs(1))), None);
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_stays_within_randomization_factor() {
        let policy = RetryOnFailure { randomization_factor: 0.5, ..policy() };
        let waits: Vec<Duration> = (0..50).filter_map(|_| Backoff::new(&policy).next_delay(None)).collect();
        assert!(waits.iter().all(|w| (500..=1500).contains(&w.as_millis())));
        assert!(waits.iter().any(|w| *w != waits[0]));
    }
}
