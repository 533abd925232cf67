//! How many requests a judge is sent at once, how many a minute, and when none at all.
//!
//! In: the configured bounds, and what the server asked for. Out: a place, when there is one. The
//! rate is GCRA (`governor`) with bursts of at most a second's worth, so that no sixty seconds hold
//! more than the configured number and a sixtieth.

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, sleep_until};

use super::config::JudgeConfig;

/// A server that wants to be left alone for longer is tried sooner: it may have come back.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(120);
/// After a pause those that waited come back over this time, not all at once.
const SPREAD: Duration = Duration::from_millis(500);

/// The runtime's clock, so that tests can turn it.
#[derive(Clone, Debug)]
struct Since(Instant);

impl Clock for Since {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

type Limiter = RateLimiter<NotKeyed, InMemoryState, Since, NoOpMiddleware<Duration>>;

/// The way in to one judge.
#[derive(Debug)]
pub(super) struct Gate {
    places: Semaphore,
    limiter: Option<(Limiter, Since)>,
    shut_until: Mutex<Option<Instant>>,
}

impl Gate {
    /// Needs the runtime's clock alone.
    pub fn new(config: &JudgeConfig) -> Gate {
        let clock = Since(Instant::now());
        let limiter = config.requests_per_minute.and_then(NonZeroU32::new).map(|rate| {
            let burst = NonZeroU32::new(rate.get() / 60).unwrap_or(NonZeroU32::MIN);
            let quota = Quota::per_minute(rate).allow_burst(burst);
            (RateLimiter::direct_with_clock(quota, clock.clone()), clock)
        });
        Gate { places: Semaphore::new(config.max_concurrency.max(1)), limiter, shut_until: Mutex::new(None) }
    }

    /// Waits for a place, in the order of asking. `None` only when the gate is gone.
    pub async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        let place = self.places.acquire().await.ok()?;
        loop {
            if let Some(until) = self.shut_until() {
                sleep_until(until + SPREAD.mul_f64(fastrand::f64())).await;
                continue;
            }
            match self.limiter.as_ref().map(|(limiter, clock)| (limiter.check(), clock)) {
                None | Some((Ok(()), _)) => return Some(place),
                Some((Err(not_yet), clock)) => sleep(not_yet.wait_time_from(clock.now())).await,
            }
        }
    }

    /// Lets nobody in for so long.
    pub fn shut(&self, time: Duration) {
        let until = Instant::now() + time.min(LONGEST_PAUSE);
        let mut shut = self.shut_until.lock().unwrap_or_else(PoisonError::into_inner);
        *shut = Some(shut.map_or(until, |before| before.max(until)));
    }

    fn shut_until(&self) -> Option<Instant> {
        let mut shut = self.shut_until.lock().unwrap_or_else(PoisonError::into_inner);
        *shut = shut.filter(|until| *until > Instant::now());
        *shut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(max_concurrency: usize, requests_per_minute: Option<u32>) -> Gate {
        Gate::new(&JudgeConfig { max_concurrency, requests_per_minute, ..JudgeConfig::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn no_minute_holds_more_than_the_rate() {
        let gate = gate(100, Some(120));
        let start = Instant::now();
        let mut at = Vec::new();
        for _ in 0..361 {
            drop(gate.enter().await);
            at.push(start.elapsed().as_secs_f64());
        }
        for (i, first) in at.iter().enumerate() {
            let within = at[i..].iter().take_while(|t| **t < first + 60.0).count();
            assert!(within <= 122, "{within} in a minute");
        }
        let last = at.last().unwrap();
        assert!((178.0..182.0).contains(last), "361 at 120 a minute took {last} s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_given_back_when_the_holder_goes() {
        let gate = gate(2, None);
        let one = gate.enter().await.unwrap();
        let _two = gate.enter().await.unwrap();
        let third = gate.enter();
        tokio::pin!(third);
        assert!(tokio::time::timeout(Duration::from_secs(9), &mut third).await.is_err());
        drop(one);
        assert!(third.await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_holds_for_everybody_and_has_an_end() {
        let gate = gate(8, None);
        gate.shut(Duration::from_secs(7));
        gate.shut(Duration::from_secs(3));
        let start = Instant::now();
        drop(gate.enter().await);
        let waited = start.elapsed();
        assert!(waited >= Duration::from_secs(7) && waited <= Duration::from_secs(7) + SPREAD, "{waited:?}");
        gate.shut(Duration::from_secs(86_400));
        let start = Instant::now();
        drop(gate.enter().await);
        assert!(start.elapsed() <= LONGEST_PAUSE + SPREAD);
    }
}
