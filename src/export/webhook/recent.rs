//! The alerts that were sent lately: repeats and what is above the rate are counted instead of sent.
//!
//! Survives a reload, and is lost with the process: then an alert may be sent again, with the same id.

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

/// Keys and ids that are remembered, the least recently used are forgotten first: a few megabytes.
const MAX_KNOWN: u64 = 10_000;

/// How long an alert that was not accepted yet suppresses its repeats: longer than the interval of retries, so that
/// one that is retried does, and one that was given up does not.
const IN_FLIGHT: Duration = Duration::from_secs(60);

/// The last alert of one key.
#[derive(Debug)]
struct Last {
    id: Uuid,
    at: Instant,
    /// The destination has accepted it.
    delivered: bool,
    /// Repeats since it was sent, or since the one before that.
    repeated: u64,
}

/// The number of alerts that were left out before one that is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LeftOut {
    /// Alerts with the same key.
    pub repeated: u64,
    /// Alerts of any key above the rate.
    pub limited: u64,
}

/// State of one exporter, for all of its consumers.
pub(in crate::export) struct RecentAlerts {
    last: Cache<String, Arc<Mutex<Last>>>,
    /// Alerts that were sent or left out.
    settled: Cache<Uuid, ()>,
    rate: DefaultDirectRateLimiter,
    repeat: Duration,
    /// Above the rate since the last alert was sent.
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
            // The default policy may not admit a new key, whose repeats would then be sent.
            last: Cache::builder().max_capacity(MAX_KNOWN).eviction_policy(EvictionPolicy::lru()).build(),
            settled: Cache::builder().max_capacity(MAX_KNOWN).eviction_policy(EvictionPolicy::lru()).build(),
            rate,
            repeat,
            limited: AtomicU64::new(0),
            outcomes: Default::default(),
        }
    }

    pub(in crate::export) fn count(&self, outcome: AlertOutcome) -> u64 {
        self.outcomes[outcome as usize].load(Ordering::Relaxed)
    }

    fn counted(&self, outcome: AlertOutcome) {
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether an alert is sent now. The same alert is asked for again after an error or a cut request.
    pub(super) fn admit(&self, alert: &Alert, now: Instant) -> Option<LeftOut> {
        if self.settled.contains_key(&alert.id) {
            return None;
        }
        let leave_out = |outcome| {
            self.settled.insert(alert.id, ());
            self.counted(outcome);
        };
        let mut is_new = false;
        let last = self.last.get_with(alert.key.clone(), || {
            is_new = true;
            Arc::new(Mutex::new(Last { id: alert.id, at: now, delivered: false, repeated: 0 }))
        });
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_retry = !is_new && last.id == alert.id;
        let known_for = if last.delivered { self.repeat } else { self.repeat.min(IN_FLIGHT) };
        if !is_new && !is_retry && now.saturating_duration_since(last.at) < known_for {
            last.repeated += 1;
            leave_out(AlertOutcome::Repeated);
            return None;
        }
        if !is_retry && self.rate.check().is_err() {
            if is_new {
                self.last.invalidate(&alert.key);
            }
            self.limited.fetch_add(1, Ordering::Relaxed);
            leave_out(AlertOutcome::Limited);
            return None;
        }
        (last.id, last.at, last.delivered) = (alert.id, now, false);
        Some(LeftOut { repeated: last.repeated, limited: self.limited.load(Ordering::Relaxed) })
    }

    /// The destination has accepted an alert, with the numbers of those that were left out.
    pub(super) fn sent(&self, alert: &Alert, left_out: LeftOut) {
        self.settled.insert(alert.id, ());
        self.counted(AlertOutcome::Sent);
        let less = |left_out: u64| move |left: u64| Some(left.saturating_sub(left_out));
        let _ = self.limited.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less(left_out.limited));
        if let Some(last) = self.last.get(&alert.key) {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            last.repeated = last.repeated.saturating_sub(left_out.repeated);
            last.delivered |= last.id == alert.id;
        }
        // An alarm that is raised once more after its retraction is no repeat.
        alert.takes_back.iter().for_each(|key| self.last.invalidate(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::webhook_config::Occasion;

    #[test]
    fn the_newest_alerts_are_known_when_the_oldest_are_forgotten() {
        let recent = RecentAlerts::new(Duration::from_secs(3600), u32::MAX);
        let now = Instant::now();
        let alert = |n: u64| Alert {
            id: Uuid::from_u64_pair(0, n),
            occasion: Occasion::Fail,
            key: n.to_string(),
            takes_back: None,
            at: 0,
            trace_id: String::new(),
            span_id: String::new(),
            revision: None,
            service: None,
            agent: None,
            session_id: None,
            severity: None,
            signature: None,
            failed_metrics: Vec::new(),
            failures: Vec::new(),
            cause: None,
            state: None,
            explanation: None,
        };
        // Keys that are asked for often are those that a policy by frequency keeps.
        for n in (0..MAX_KNOWN).chain(0..MAX_KNOWN) {
            if let Some(left_out) = recent.admit(&alert(n), now) {
                recent.sent(&alert(n), left_out);
            }
        }
        let newest = alert(MAX_KNOWN);
        let left_out = recent.admit(&newest, now).unwrap();
        recent.sent(&newest, left_out);
        recent.last.run_pending_tasks();
        recent.settled.run_pending_tasks();
        assert!(recent.settled.contains_key(&newest.id) && recent.last.contains_key(&newest.key));
        let repeat = Alert { id: Uuid::from_u64_pair(1, 1), ..newest };
        assert_eq!(recent.admit(&repeat, now), None);
    }
}
