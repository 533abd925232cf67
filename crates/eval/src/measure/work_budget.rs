//! The work budget of one trace: a bound on the work of measuring it, counted in steps.
//!
//! A step is about as much work as one comparison: a rule that the check of a schema applies, a call that is compared,
//! [`BYTES_PER_STEP`] bytes that are searched. Metrics whose work is not linear in the size of their span count it in
//! the budget. One metric on one span may use half of the remaining steps, so that a hostile span can neither exceed
//! the budget nor use it up for other spans and metrics. A metric that exceeds its share is unmeasured as `limit`.
//! Steps do not depend on the machine, so that equal traces have equal results, unless the caller's `stop` ends the
//! work.
//!
//! An attempt has a part of these steps. It lets a caller evaluate an expensive trace elsewhere: if a metric reaches
//! the limit of the attempt, the whole attempt is void.

use std::cell::Cell;
use std::fmt;

pub(crate) use verdict_otlp::work::BYTES_PER_STEP;

/// The steps of one trace, which take one to two seconds. A recorded run takes less than a thousand steps, a trace of
/// 100,000 spans some millions.
pub(crate) const DEFAULT_STEPS: u64 = 1 << 26;
/// Steps between two calls of `stop`, which take about a millisecond.
const POLL_STEPS: u64 = 1 << 16;
/// The steps that the beginning of a metric on a span counts towards the next call of `stop`, since metrics that count
/// no steps take time as well.
const BEGIN_STEPS: u64 = 1 << 6;

/// Returns true when the work on a trace must end.
pub type Stop = Box<dyn Fn() -> bool>;

/// Whether this number of further steps of work is allowed.
pub(crate) type Allows<'a> = &'a dyn Fn(usize) -> bool;

/// The remaining steps of a trace, and the share of the current metric.
pub(crate) struct WorkBudget {
    /// Steps of the trace that may still be used.
    left: Cell<u64>,
    /// Steps of the trace that an attempt may not use; 0 if the budget is no attempt.
    withheld: u64,
    /// Whether an attempt has reached its limit.
    is_void: Cell<bool>,
    /// Steps that the current metric may use.
    share: Cell<u64>,
    /// Whether the current metric has exceeded its share.
    is_exceeded: Cell<bool>,
    /// Steps until the next call of `stop`.
    steps_until_poll: Cell<u64>,
    stop: Option<Stop>,
}

impl WorkBudget {
    pub(crate) fn new(steps: u64, stop: Option<Stop>) -> WorkBudget {
        WorkBudget {
            left: Cell::new(steps),
            withheld: 0,
            is_void: Cell::default(),
            share: Cell::new(steps),
            is_exceeded: Cell::default(),
            steps_until_poll: Cell::new(POLL_STEPS),
            stop,
        }
    }

    /// The budget of an attempt to measure a trace in `steps` of the [`DEFAULT_STEPS`].
    pub(crate) fn attempt(steps: u64, stop: Option<Stop>) -> WorkBudget {
        let steps = steps.min(DEFAULT_STEPS);
        WorkBudget { withheld: DEFAULT_STEPS - steps, ..WorkBudget::new(steps, stop) }
    }

    /// Begins the work of one metric on one span, and sets its share.
    pub(crate) fn begin(&self) {
        self.poll(BEGIN_STEPS);
        let left = self.left.get();
        self.share.set(if self.withheld > 0 { left } else { left / 2 });
        self.is_exceeded.set(false);
    }

    /// Counts steps, before or after the work. Returns false if the metric has exceeded its share and must end.
    pub(crate) fn spend(&self, steps: usize) -> bool {
        let steps = steps as u64;
        self.poll(steps);
        self.left.set(self.left.get().saturating_sub(steps));
        match self.share.get().checked_sub(steps) {
            Some(left) => self.share.set(left),
            None => self.exceed(),
        }
        !self.is_exceeded.get()
    }

    /// As [`WorkBudget::spend`], for an optional part of a metric: if its steps exceed the share, they are not counted,
    /// and the metric continues without the part.
    pub(crate) fn spend_if_left(&self, steps: usize) -> bool {
        let steps = steps as u64;
        self.poll(steps.min(self.share.get()));
        let Some(left) = self.share.get().checked_sub(steps) else {
            self.end_attempt();
            return false;
        };
        self.left.set(self.left.get().saturating_sub(steps));
        self.share.set(left);
        !self.is_exceeded.get()
    }

    /// Counts steps towards the next call of `stop`, and ends the work if `stop` returns true.
    fn poll(&self, steps: u64) {
        match self.steps_until_poll.get().checked_sub(steps) {
            Some(left) => self.steps_until_poll.set(left),
            None => {
                self.steps_until_poll.set(POLL_STEPS);
                if self.stop.as_ref().is_some_and(|stop| stop()) {
                    self.left.set(0);
                    self.share.set(0);
                }
            }
        }
    }

    /// Ends the work of the current metric.
    pub(crate) fn exceed(&self) {
        self.share.set(0);
        self.is_exceeded.set(true);
        self.end_attempt();
    }

    /// Makes an attempt void and ends its work; does nothing for other budgets.
    fn end_attempt(&self) {
        if self.withheld > 0 {
            self.left.set(0);
            self.share.set(0);
            self.is_void.set(true);
        }
    }

    /// Whether the budget is an attempt and the trace needs more steps, so that its measurements must not be used.
    pub(crate) fn is_void(&self) -> bool {
        self.is_void.get()
    }

    /// Whether the current metric has exceeded its share.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    /// The steps that the current metric may still use.
    pub(crate) fn share(&self) -> u64 {
        self.share.get()
    }

    /// The remaining steps of the trace.
    pub(crate) fn left(&self) -> u64 {
        self.left.get() + self.withheld
    }
}

impl Default for WorkBudget {
    fn default() -> WorkBudget {
        WorkBudget::new(DEFAULT_STEPS, None)
    }
}

impl fmt::Debug for WorkBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkBudget").field("left", &self.left).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
