//! A judge that fails time after time is left alone for a while.
//!
//! In: how requests end, and what time it is. Out: whether one may be sent. After so many failures
//! in a row nothing is; then one request tries, and what comes of it decides.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::config::BreakerConfig;

/// What is known of a judge's health.
#[derive(Debug)]
pub(super) struct Breaker {
    failures: u32,
    open_for: Duration,
    state: Mutex<State>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Requests go through; so many have failed in a row.
    Closed(u32),
    /// None goes through until then.
    Open(Instant),
    /// One is trying.
    Trying,
}

/// As the gauge shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Health {
    /// Requests go through.
    Closed = 0,
    /// One tries, or may.
    HalfOpen = 1,
    /// None goes through.
    Open = 2,
}

/// Leave to send one request. Dropped without a word, it says nothing of the judge.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    breaker: &'a Breaker,
    trying: bool,
}

impl Breaker {
    pub fn new(config: &BreakerConfig) -> Breaker {
        let (failures, open_for) = (config.failures.max(1), *config.open_for);
        Breaker { failures, open_for, state: Mutex::new(State::Closed(0)) }
    }

    /// Leave to send, if there is.
    pub fn pass(&self, now: Instant) -> Option<Pass<'_>> {
        let mut state = self.state();
        let trying = match *state {
            State::Closed(_) => false,
            State::Open(until) if now >= until => {
                *state = State::Trying;
                true
            }
            State::Open(_) | State::Trying => return None,
        };
        Some(Pass { breaker: self, trying })
    }

    /// Whether nothing goes through now, so that there is no use in waiting for a place.
    pub fn is_shut(&self, now: Instant) -> bool {
        match *self.state() {
            State::Closed(_) => false,
            State::Open(until) => now < until,
            State::Trying => true,
        }
    }

    /// What the gauge shows.
    pub fn health(&self, now: Instant) -> Health {
        match *self.state() {
            State::Closed(_) => Health::Closed,
            State::Open(until) if now < until => Health::Open,
            State::Open(_) | State::Trying => Health::HalfOpen,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass<'_> {
    /// The judge answered.
    pub fn well(mut self) {
        self.trying = false;
        // One that was sent before it opened counts as well: it has come back.
        *self.breaker.state() = State::Closed(0);
    }

    /// The judge failed. True if that makes it be left alone.
    pub fn unwell(mut self, now: Instant) -> bool {
        let mut state = self.breaker.state();
        let opens = match *state {
            State::Closed(before) if before + 1 < self.breaker.failures => {
                *state = State::Closed(before + 1);
                false
            }
            State::Closed(_) => true,
            State::Trying => self.trying,
            // What was under way as it opened.
            State::Open(_) => false,
        };
        if opens {
            *state = State::Open(now + self.breaker.open_for);
        }
        self.trying = false;
        opens
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.trying {
            // It was given up: the next may try at once.
            let mut state = self.breaker.state();
            if *state == State::Trying {
                *state = State::Open(Instant::now());
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
        breaker.pass(now).unwrap().unwell(now)
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_open_it_and_one_success_between_does_not() {
        let (breaker, now) = (breaker(), Instant::now());
        assert!(!fail(&breaker, now) && !fail(&breaker, now));
        breaker.pass(now).unwrap().well();
        assert!(!fail(&breaker, now) && !fail(&breaker, now) && fail(&breaker, now));
        assert!(breaker.pass(now).is_none());
        assert_eq!(breaker.health(now), Health::Open);
    }

    #[tokio::test(start_paused = true)]
    async fn after_its_time_one_tries_and_decides() {
        let (breaker, now) = (breaker(), Instant::now());
        (0..3).for_each(|_| _ = fail(&breaker, now));
        let later = now + Duration::from_secs(30);
        assert_eq!(breaker.health(later), Health::HalfOpen);
        let trying = breaker.pass(later).unwrap();
        assert!(breaker.pass(later).is_none(), "one alone");
        assert!(trying.unwell(later));
        assert!(breaker.pass(later).is_none(), "open again");
        let trying = breaker.pass(later + Duration::from_secs(30)).unwrap();
        trying.well();
        assert_eq!(breaker.health(later), Health::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_given_up_lets_the_next_try() {
        let (breaker, now) = (breaker(), Instant::now());
        (0..3).for_each(|_| _ = fail(&breaker, now));
        tokio::time::advance(Duration::from_secs(31)).await;
        let trying = breaker.pass(Instant::now()).unwrap();
        assert!(breaker.pass(Instant::now()).is_none());
        drop(trying);
        assert!(breaker.pass(Instant::now()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_under_way_when_it_opened_neither_prolongs_nor_hides() {
        let (breaker, now) = (breaker(), Instant::now());
        let under_way: Vec<Pass<'_>> = (0..5).filter_map(|_| breaker.pass(now)).collect();
        (0..3).for_each(|_| _ = fail(&breaker, now));
        let late = now + Duration::from_secs(29);
        let mut under_way = under_way.into_iter();
        assert!(!under_way.next().unwrap().unwell(late), "open already");
        assert!(breaker.pass(now + Duration::from_secs(30)).is_some(), "not prolonged");
        under_way.next().unwrap().well();
        assert!(breaker.pass(late).is_some(), "it has come back");
    }
}
