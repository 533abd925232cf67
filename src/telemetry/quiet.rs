//! One line for many: what goes wrong with every request must not bury all else in the log.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The same trouble comes with every request; a log line each would bury all others.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Lets one log line through at a time, and tells how many were held back.
#[derive(Debug, Default)]
pub struct Quiet(Mutex<BTreeMap<&'static str, (Option<Instant>, u64)>>);

impl Quiet {
    /// `Some(held back since)` when it is time for a line about `what`.
    pub fn speak(&self, what: &'static str) -> Option<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, held_back) = all.entry(what).or_default();
        let now = Instant::now();
        if last.is_some_and(|last| now - last < LOG_EVERY) {
            *held_back += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(held_back))
    }
}
