//! Limits of requests to one judge: requests in flight, requests per minute, and pauses.
//!
//! In: the configured limits, and the server's `Retry-After`. Out: a permit. The rate is limited by GCRA
//! (`governor`) with bursts of at most one second's share, so that no sixty seconds contain more than the
//! configured number and a sixtieth of it.

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::JudgeConfig;
use crate::lock::lock;

/// Longest pause. A server that requests a longer one is tried earlier, since it may have recovered.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(120);
/// Requests that wait for the end of a pause are sent at random times within this interval.
const MAX_SPREAD: Duration = Duration::from_millis(500);

/// The runtime's clock, which tests can advance, as the time since the creation of the limiter.
#[derive(Clone, Debug)]
struct ElapsedClock(Instant);

impl Clock for ElapsedClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

type Limiter = RateLimiter<NotKeyed, InMemoryState, ElapsedClock, NoOpMiddleware<Duration>>;

#[derive(Debug)]
pub(crate) struct RequestLimiter {
    concurrency: Semaphore,
    limiter: Option<(Limiter, ElapsedClock)>,
    paused_until: Mutex<Option<Instant>>,
}

impl RequestLimiter {
    pub(crate) fn new(config: &JudgeConfig) -> RequestLimiter {
        let clock = ElapsedClock(Instant::now());
        let limiter = config.requests_per_minute.and_then(NonZeroU32::new).map(|rate| {
            let burst = NonZeroU32::new(rate.get() / 60).unwrap_or(NonZeroU32::MIN);
            let quota = Quota::per_minute(rate).allow_burst(burst);
            (RateLimiter::direct_with_clock(quota, clock.clone()), clock)
        });
        let concurrency = Semaphore::new(config.max_concurrency.max(1));
        RequestLimiter { concurrency, limiter, paused_until: Mutex::new(None) }
    }

    /// Waits for a permit, in order of the calls. `None` only if the semaphore is closed, which never happens.
    pub(crate) async fn acquire(&self) -> Option<SemaphorePermit<'_>> {
        let permit = self.concurrency.acquire().await.ok()?;
        loop {
            if let Some(until) = self.paused_until() {
                sleep_until(until + MAX_SPREAD.mul_f64(fastrand::f64())).await;
                continue;
            }
            match self.limiter.as_ref().map(|(limiter, clock)| (limiter.check(), clock)) {
                None | Some((Ok(()), _)) => return Some(permit),
                Some((Err(not_yet), clock)) => sleep(not_yet.wait_time_from(clock.now())).await,
            }
        }
    }

    /// Issues no permit for `time`.
    pub(crate) fn pause(&self, time: Duration) {
        let until = Instant::now() + time.min(MAX_PAUSE);
        let mut paused = lock(&self.paused_until);
        *paused = Some(paused.map_or(until, |before| before.max(until)));
    }

    fn paused_until(&self) -> Option<Instant> {
        let mut paused = lock(&self.paused_until);
        *paused = paused.filter(|until| *until > Instant::now());
        *paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(max_concurrency: usize, requests_per_minute: Option<u32>) -> RequestLimiter {
        RequestLimiter::new(&JudgeConfig { max_concurrency, requests_per_minute, ..JudgeConfig::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn no_minute_exceeds_the_rate() {
        let limiter = limiter(100, Some(120));
        let start = Instant::now();
        let mut times = Vec::new();
        for _ in 0..361 {
            drop(limiter.acquire().await);
            times.push(start.elapsed().as_secs_f64());
        }
        for (i, first) in times.iter().enumerate() {
            let count = times[i..].iter().take_while(|t| **t < first + 60.0).count();
            assert!(count <= 122, "{count} in a minute");
        }
        let last = times.last().unwrap();
        assert!((178.0..182.0).contains(last), "361 at 120 a minute took {last} s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_is_released_when_it_is_dropped() {
        let limiter = limiter(2, None);
        let one = limiter.acquire().await.unwrap();
        let _two = limiter.acquire().await.unwrap();
        let third = limiter.acquire();
        tokio::pin!(third);
        assert!(tokio::time::timeout(Duration::from_secs(9), &mut third).await.is_err());
        drop(one);
        assert!(third.await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_applies_to_all_requests_and_is_bounded() {
        let limiter = limiter(8, None);
        limiter.pause(Duration::from_secs(7));
        limiter.pause(Duration::from_secs(3));
        let start = Instant::now();
        drop(limiter.acquire().await);
        let waited = start.elapsed();
        assert!(
            waited >= Duration::from_secs(7) && waited <= Duration::from_secs(7) + MAX_SPREAD,
            "{waited:?}"
        );
        limiter.pause(Duration::from_secs(86_400));
        let start = Instant::now();
        drop(limiter.acquire().await);
        assert!(start.elapsed() <= MAX_PAUSE + MAX_SPREAD);
    }
}
