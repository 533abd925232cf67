//! Limits repeated log lines, so that a fault of every request does not fill the log.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A fault of every request would otherwise write a line for each.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Allows one log line per subject and interval, and counts the lines suppressed between two.
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<BTreeMap<&'static str, (Option<Instant>, u64)>>);

impl LogThrottle {
    /// `Some(lines suppressed since the last one)` when it is time for a line about `what`.
    pub fn allow(&self, what: &'static str) -> Option<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, suppressed) = all.entry(what).or_default();
        let now = Instant::now();
        if last.is_some_and(|last| now - last < LOG_EVERY) {
            *suppressed += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(suppressed))
    }
}
