//! Waiting for a judge that does not respond, in commands that have no deadline.
//!
//! In: failures and successes of requests. Out: how long to wait before the next attempt, or that the judge is given
//! up. The service never waits like this: a closed trace waits for judges for `verdict.max_wait` at most. A judge is
//! away from the first failure until the next success. Once it did not respond for longer than `--patience`, questions
//! fail at once, until one succeeds: a command with thousands of questions waits once, not once per question.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::failure::{Failure, FailureKind};
use crate::lock::lock;

/// The first pause for a judge that does not respond; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause: a judge that responds again is noticed within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
struct Outage {
    since: Instant,
    kind: FailureKind,
    status: &'static str,
    announced: bool,
    given_up: bool,
}

/// The state of one judge.
#[derive(Debug)]
pub(crate) struct OutageWait {
    /// Zero: no waiting beyond the retries.
    max_wait: Duration,
    outage: Mutex<Option<Outage>>,
}

/// The pauses of one question.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
    since: Option<Instant>,
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses { next: FIRST_PAUSE, since: None }
    }
}

/// The next action of a question after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterFailure {
    /// Wait, then try again. `announce` is set once per outage, so that it is logged once.
    Wait { pause: Duration, announce: bool },
    /// Stop trying: the judge did not respond for too long. `announce` is set once per outage.
    GiveUp { announce: bool },
}

impl OutageWait {
    pub(crate) fn new(max_wait: Duration) -> OutageWait {
        OutageWait { max_wait, outage: Mutex::new(None) }
    }

    /// Ends the outage; true if it was announced.
    pub(crate) fn succeeded(&self) -> bool {
        lock(&self.outage).take().is_some_and(|outage| outage.announced)
    }

    pub(crate) fn failed(&self, failure: &Failure, now: Instant) {
        let mut outage = lock(&self.outage);
        match &mut *outage {
            Some(outage) => (outage.kind, outage.status) = (failure.kind, failure.status),
            None if failure.is_unhealthy() || failure.kind == FailureKind::RateLimited => {
                let Failure { kind, status, .. } = failure;
                let (announced, given_up) = (false, false);
                *outage = Some(Outage { since: now, kind: *kind, status, announced, given_up });
            }
            None => {}
        }
    }

    /// The status of the last failure since the last success.
    pub(crate) fn last_status(&self) -> Option<&'static str> {
        lock(&self.outage).map(|outage| outage.status)
    }

    /// The next action after a failure that a later attempt may overcome. `least` is the pause that the server
    /// requested.
    pub(crate) fn next(&self, pauses: &mut Pauses, least: Option<Duration>, now: Instant) -> AfterFailure {
        let mut outage = lock(&self.outage);
        let mut outage = outage.as_mut();
        if outage.as_ref().is_some_and(|outage| outage.kind == FailureKind::Misconfigured) {
            return AfterFailure::GiveUp { announce: false };
        }
        let since = *pauses.since.get_or_insert(now);
        // Without an outage, another question has succeeded since this one failed: the time of this question counts.
        let started_at = outage.as_ref().map_or(since, |outage| outage.since.min(since));
        let remaining = self.max_wait.saturating_sub(now.duration_since(started_at));
        let pause = pauses.next.max(least.unwrap_or_default());
        if remaining.is_zero() || least.is_some_and(|least| least > remaining) {
            let first = outage.is_some_and(|outage| !std::mem::replace(&mut outage.given_up, true));
            return AfterFailure::GiveUp { announce: first && !self.max_wait.is_zero() };
        }
        pauses.next = (pauses.next * 2).min(LONGEST_PAUSE);
        let jitter = pause.mul_f64(0.2 * fastrand::f64());
        let announce = outage.as_mut().is_some_and(|outage| !std::mem::replace(&mut outage.announced, true));
        AfterFailure::Wait { pause: (pause + jitter).min(remaining), announce }
    }

    pub(crate) fn max_wait(&self) -> Duration {
        self.max_wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_grow_until_the_judge_is_given_up_once() {
        let (wait, mut pauses) = (OutageWait::new(Duration::from_secs(100)), Pauses::default());
        let start = Instant::now();
        wait.failed(&Failure::from_status(503), start);
        let (mut now, mut waits) = (start, Vec::new());
        let end = loop {
            match wait.next(&mut pauses, None, now) {
                AfterFailure::Wait { pause, announce } => {
                    assert_eq!(announce, waits.is_empty());
                    waits.push(pause);
                    now += pause;
                }
                end @ AfterFailure::GiveUp { .. } => break end,
            }
        };
        assert_eq!((end, now - start), (AfterFailure::GiveUp { announce: true }, Duration::from_secs(100)));
        assert!(waits.len() >= 6 && waits[0] < Duration::from_secs(2), "{waits:?}");
        let other = wait.next(&mut Pauses::default(), None, now);
        assert_eq!(other, AfterFailure::GiveUp { announce: false }, "another question does not wait again");
        assert!(wait.succeeded());
        wait.failed(&Failure::from_status(503), now);
        assert!(matches!(wait.next(&mut Pauses::default(), None, now), AfterFailure::Wait { .. }));
    }

    #[test]
    fn a_question_waits_although_another_has_succeeded_since_it_failed() {
        let (wait, mut pauses) = (OutageWait::new(Duration::from_secs(100)), Pauses::default());
        let start = Instant::now();
        wait.failed(&Failure::from_status(503), start);
        wait.succeeded();
        let mut now = start;
        while let AfterFailure::Wait { pause, announce } = wait.next(&mut pauses, None, now) {
            assert!(!announce, "the judge is responding");
            now += pause;
        }
        assert_eq!(now - start, Duration::from_secs(100));
    }

    #[test]
    fn a_judge_that_is_misconfigured_or_asks_for_more_time_is_not_waited_for() {
        let wait = OutageWait::new(Duration::from_secs(100));
        let now = Instant::now();
        wait.failed(&Failure::from_status(401), now);
        assert_eq!(wait.next(&mut Pauses::default(), None, now), AfterFailure::GiveUp { announce: false });
        wait.failed(&Failure::from_status(429), now);
        let hour = Some(Duration::from_secs(3600));
        assert_eq!(wait.next(&mut Pauses::default(), hour, now), AfterFailure::GiveUp { announce: true });
        let none = OutageWait::new(Duration::ZERO);
        none.failed(&Failure::from_status(503), now);
        assert_eq!(none.next(&mut Pauses::default(), None, now), AfterFailure::GiveUp { announce: false });
    }
}
