//! Limits repeated log lines, so that a fault that every request has does not fill the log.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two log lines about one subject: short enough to show that a fault persists.
const INTERVAL: Duration = Duration::from_secs(10);

/// Allows one log line per subject every ten seconds, and counts the suppressed lines. For each subject: the time of
/// the last line, and the number of lines suppressed since.
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<BTreeMap<&'static str, (Option<Instant>, u64)>>);

impl LogThrottle {
    /// The number of lines suppressed since the last logged one, if a line about `subject` may be logged now; otherwise
    /// counts the line as suppressed and returns `None`.
    pub fn allow(&self, subject: &'static str) -> Option<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, suppressed) = all.entry(subject).or_default();
        let now = Instant::now();
        if last.is_some_and(|last| now - last < INTERVAL) {
            *suppressed += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(suppressed))
    }
}
