//! Locking of the crate's mutexes.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. A panic of another holder is ignored: no critical section leaves a value half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
