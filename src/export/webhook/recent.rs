//! The alerts that were sent recently: repeats, and alerts above the rate, are counted instead of sent.
//!
//! This state survives a reload and is lost when the process ends: an alert may then be sent again, with the same id.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use uuid::Uuid;

use super::alert::Alert;
use crate::outcome::AlertOutcome;

/// Maximum number of keys and of ids that are remembered, which take a few megabytes. The least recently used ones are
/// forgotten first.
const MAX_REMEMBERED: u64 = 10_000;

/// How long an alert that was not accepted yet suppresses its repeats: longer than the interval of retries, so that an
/// alert that is retried suppresses them, and one whose retries have ended does not.
const IN_FLIGHT_TIME: Duration = Duration::from_secs(60);

/// The last alert of one key.
#[derive(Debug)]
struct LastAlert {
    id: Uuid,
    time: Instant,
    /// Whether the destination has accepted it.
    is_delivered: bool,
    /// The number of repeats that no delivered alert has reported yet.
    repeated: u64,
}

/// The numbers of alerts that were omitted before one that is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OmittedAlerts {
    /// Alerts with the same key.
    pub repeated: u64,
    /// Alerts of any key above the rate.
    pub limited: u64,
}

/// State of one exporter, for all of its consumers.
pub(in crate::export) struct RecentAlerts {
    /// The last alert of each key.
    last: Cache<String, Arc<Mutex<LastAlert>>>,
    /// Ids of alerts that were sent or left out.
    completed: Cache<Uuid, ()>,
    rate: DefaultDirectRateLimiter,
    repeat: Duration,
    /// The number of alerts above the rate that no delivered alert has reported yet.
    limited: AtomicU64,
    outcomes: [AtomicU64; AlertOutcome::ALL.len()],
}

impl fmt::Debug for RecentAlerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentAlerts").field("outcomes", &self.outcomes).finish_non_exhaustive()
    }
}

impl RecentAlerts {
    pub(in crate::export) fn new(repeat: Duration, max_per_minute: u32) -> RecentAlerts {
        let rate = RateLimiter::direct(Quota::per_minute(
            NonZeroU32::new(max_per_minute).unwrap_or(NonZeroU32::MIN),
        ));
        RecentAlerts {
            // The default policy of the cache may reject a new key, so that its repeats would be sent.
            last: Cache::builder()
                .max_capacity(MAX_REMEMBERED)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
            completed: Cache::builder()
                .max_capacity(MAX_REMEMBERED)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
            rate,
            repeat,
            limited: AtomicU64::new(0),
            outcomes: Default::default(),
        }
    }

    pub(in crate::export) fn count(&self, outcome: AlertOutcome) -> u64 {
        self.outcomes[outcome as usize].load(Ordering::Relaxed)
    }

    fn add(&self, outcome: AlertOutcome) {
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Decides whether an alert is sent now: `None` if it is left out. Called again for the same alert if its request
    /// fails.
    pub(super) fn admit(&self, alert: &Alert, now: Instant) -> Option<OmittedAlerts> {
        if self.completed.contains_key(&alert.id) {
            return None;
        }
        let omit = |outcome| {
            self.completed.insert(alert.id, ());
            self.add(outcome);
        };
        let mut is_new = false;
        let last = self.last.get_with(alert.key.clone(), || {
            is_new = true;
            Arc::new(Mutex::new(LastAlert { id: alert.id, time: now, is_delivered: false, repeated: 0 }))
        });
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_retry = !is_new && last.id == alert.id;
        let suppressed_for = if last.is_delivered { self.repeat } else { self.repeat.min(IN_FLIGHT_TIME) };
        if !is_new && !is_retry && now.saturating_duration_since(last.time) < suppressed_for {
            last.repeated += 1;
            omit(AlertOutcome::Repeated);
            return None;
        }
        if !is_retry && self.rate.check().is_err() {
            if is_new {
                self.last.invalidate(&alert.key);
            }
            self.limited.fetch_add(1, Ordering::Relaxed);
            omit(AlertOutcome::Limited);
            return None;
        }
        (last.id, last.time, last.is_delivered) = (alert.id, now, false);
        Some(OmittedAlerts { repeated: last.repeated, limited: self.limited.load(Ordering::Relaxed) })
    }

    /// Records that the destination has accepted an alert, which reported the numbers in `omitted`.
    pub(super) fn note_sent(&self, alert: &Alert, omitted: OmittedAlerts) {
        self.completed.insert(alert.id, ());
        self.add(AlertOutcome::Sent);
        let subtract = |reported: u64| move |count: u64| Some(count.saturating_sub(reported));
        let _ = self.limited.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract(omitted.limited));
        if let Some(last) = self.last.get(&alert.key) {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            last.repeated = last.repeated.saturating_sub(omitted.repeated);
            last.is_delivered |= last.id == alert.id;
        }
        // An alarm that is raised once more after its retraction is no repeat.
        alert.revoked_key.iter().for_each(|key| self.last.invalidate(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::webhook_config::Occasion;

    #[test]
    fn the_newest_alerts_are_remembered_when_the_oldest_are_forgotten() {
        let recent = RecentAlerts::new(Duration::from_secs(3600), u32::MAX);
        let now = Instant::now();
        let alert = |n: u64| Alert {
            id: Uuid::from_u64_pair(0, n),
            key: n.to_string(),
            ..Alert::empty(Occasion::Fail)
        };
        // Each key is used twice, since a policy by frequency would retain such keys.
        for n in (0..MAX_REMEMBERED).chain(0..MAX_REMEMBERED) {
            if let Some(omitted) = recent.admit(&alert(n), now) {
                recent.note_sent(&alert(n), omitted);
            }
        }
        let newest = alert(MAX_REMEMBERED);
        let omitted = recent.admit(&newest, now).unwrap();
        recent.note_sent(&newest, omitted);
        recent.last.run_pending_tasks();
        recent.completed.run_pending_tasks();
        assert!(recent.completed.contains_key(&newest.id) && recent.last.contains_key(&newest.key));
        let repeat = Alert { id: Uuid::from_u64_pair(1, 1), ..newest };
        assert_eq!(recent.admit(&repeat, now), None);
    }
}
