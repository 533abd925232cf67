//! A count of elementary work for tests: spans of trees that are visited, comparisons, bytes that patterns search.
//!
//! The work is counted where it is done and not where a budget is spent, so that a test with a bound on the count also
//! finds work that no budget counts. Without the feature `testing` nothing is counted.

#[cfg(any(test, feature = "testing"))]
thread_local! {
    static WORK: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Bytes that are searched or copied in one step of a work budget.
pub const BYTES_PER_STEP: usize = 16;

/// Counts `n` units of work of this thread.
#[inline]
pub fn count(n: usize) {
    #[cfg(any(test, feature = "testing"))]
    WORK.with(|work| work.set(work.get() + n as u64));
    #[cfg(not(any(test, feature = "testing")))]
    let _ = n;
}

/// The work of this thread so far.
#[cfg(any(test, feature = "testing"))]
pub fn counted() -> u64 {
    WORK.with(std::cell::Cell::get)
}
