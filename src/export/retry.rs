//! When to try again: exponential backoff with jitter, at least as long as the destination asks
//! for, until the configured time is over.

use std::time::Duration;

use tokio::time::Instant;

use super::config::RetryOnFailure;

/// A destination that asks for a longer wait than this is asked again sooner: it may have come
/// back, and the queue is bounded.
const LONGEST_ASKED: Duration = Duration::from_secs(600);

/// The waits of one request.
#[derive(Debug)]
pub(super) struct Backoff<'a> {
    policy: &'a RetryOnFailure,
    started: Instant,
    interval: Duration,
}

impl<'a> Backoff<'a> {
    /// Starts now.
    pub fn new(policy: &'a RetryOnFailure) -> Backoff<'a> {
        Backoff { policy, started: Instant::now(), interval: *policy.initial_interval }
    }

    /// How long to wait before the next try; `None`: give up.
    pub fn next(&mut self, asked: Option<Duration>) -> Option<Duration> {
        if !self.policy.enabled {
            return None;
        }
        let spread = self.policy.randomization_factor.clamp(0.0, 1.0);
        let jitter = 1.0 - spread + 2.0 * spread * fastrand::f64();
        let base = self.interval.min(*self.policy.max_interval).as_secs_f64();
        let wait = Duration::try_from_secs_f64(base * jitter).unwrap_or(*self.policy.max_interval);
        let next = self.interval.as_secs_f64() * self.policy.multiplier.max(1.0);
        self.interval = Duration::try_from_secs_f64(next)
            .unwrap_or(*self.policy.max_interval)
            .min(*self.policy.max_interval);
        let wait = wait.max(asked.unwrap_or_default().min(LONGEST_ASKED));
        let limit = *self.policy.max_elapsed_time;
        (limit.is_zero() || self.started.elapsed() + wait <= limit).then_some(wait)
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
    async fn waits_grow_to_the_longest_and_end() {
        let policy = policy();
        let mut backoff = Backoff::new(&policy);
        let mut waits = Vec::new();
        while let Some(wait) = backoff.next(None) {
            waits.push(wait.as_secs());
            tokio::time::sleep(wait).await;
        }
        assert_eq!(waits, [1, 2, 3, 3, 3, 3, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_destination_asks_for_is_a_lower_bound() {
        let policy = policy();
        let mut backoff = Backoff::new(&policy);
        assert_eq!(backoff.next(Some(Duration::from_secs(7))), Some(Duration::from_secs(7)));
        assert_eq!(backoff.next(Some(Duration::from_millis(1))), Some(Duration::from_secs(2)));
        assert_eq!(backoff.next(Some(Duration::from_secs(21))), None, "longer than all the time there is");
    }

    #[tokio::test(start_paused = true)]
    async fn zero_elapsed_time_means_for_ever_and_disabled_means_never() {
        let forever = RetryOnFailure { max_elapsed_time: Period::secs(0), ..policy() };
        let mut backoff = Backoff::new(&forever);
        tokio::time::sleep(Duration::from_secs(1_000_000)).await;
        assert!(backoff.next(None).is_some());
        let off = RetryOnFailure { enabled: false, ..policy() };
        assert_eq!(Backoff::new(&off).next(Some(Duration::from_secs(1))), None);
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_stays_within_its_factor_and_differs() {
        let policy = RetryOnFailure { randomization_factor: 0.5, ..policy() };
        let waits: Vec<Duration> = (0..50).filter_map(|_| Backoff::new(&policy).next(None)).collect();
        assert!(waits.iter().all(|w| (500..=1500).contains(&w.as_millis())));
        assert!(waits.iter().any(|w| *w != waits[0]));
    }
}
