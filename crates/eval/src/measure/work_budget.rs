//! The work budget of one trace: a bound on what its measurement costs, counted in steps.
//!
//! A step is about as much work as one comparison: a rule that a schema's check applies, a call that is
//! compared, [`BYTES_PER_STEP`] bytes that are searched. Metrics whose work is not linear in their span count it here.
//! One metric on one span may take half of what is left, so that a hostile span neither costs more than the
//! budget nor takes it from the other spans and metrics. What takes more is unmeasured: `limit`. Steps do not
//! depend on the machine, so equal traces have equal results, unless the caller's `stop` ends the work.
//!
//! An attempt has a part of these steps. It shows whether a trace is cheap, for a caller that can evaluate an expensive
//! one elsewhere: a metric that reaches the limit of an attempt makes the whole attempt void.

use std::cell::Cell;
use std::fmt;

pub(crate) use verdict_otlp::work::BYTES_PER_STEP;

/// Steps of one trace: one to two seconds. A recorded run takes less than a thousand, a trace of 100,000
/// spans some millions.
pub(crate) const DEFAULT_STEPS: u64 = 1 << 26;
/// Steps between two calls of `stop`, about a millisecond.
const POLL_STEPS: u64 = 1 << 16;
/// As what the beginning of a metric on a span counts towards the next call of `stop`: metrics that count no
/// steps take time as well.
const BEGIN_STEPS: u64 = 1 << 6;

/// Returns true when the work on a trace shall end.
pub type Stop = Box<dyn Fn() -> bool>;

/// Whether this number of further steps of work is allowed.
pub(crate) type Allows<'a> = &'a dyn Fn(usize) -> bool;

/// The steps that are left.
pub(crate) struct WorkBudget {
    left: Cell<u64>,
    /// Steps of the trace that an attempt may not take; 0 if this is no attempt.
    withheld: u64,
    is_void: Cell<bool>,
    /// Steps that the present metric may take.
    share: Cell<u64>,
    exceeded: Cell<bool>,
    until_poll: Cell<u64>,
    stop: Option<Stop>,
}

impl WorkBudget {
    pub(crate) fn new(steps: u64, stop: Option<Stop>) -> WorkBudget {
        WorkBudget {
            left: Cell::new(steps),
            withheld: 0,
            is_void: Cell::default(),
            share: Cell::new(steps),
            exceeded: Cell::default(),
            until_poll: Cell::new(POLL_STEPS),
            stop,
        }
    }

    /// The budget of an attempt to measure a trace in `steps` of the [`DEFAULT_STEPS`].
    pub(crate) fn attempt(steps: u64, stop: Option<Stop>) -> WorkBudget {
        let steps = steps.min(DEFAULT_STEPS);
        WorkBudget { withheld: DEFAULT_STEPS - steps, ..WorkBudget::new(steps, stop) }
    }

    /// Begins the work of one metric on one span.
    pub(crate) fn begin(&self) {
        self.poll(BEGIN_STEPS);
        let left = self.left.get();
        self.share.set(if self.withheld > 0 { left } else { left / 2 });
        self.exceeded.set(false);
    }

    /// Counts steps, before or after the work. False if the metric has exceeded its share and shall end.
    pub(crate) fn spend(&self, steps: usize) -> bool {
        let steps = steps as u64;
        self.poll(steps);
        self.left.set(self.left.get().saturating_sub(steps));
        match self.share.get().checked_sub(steps) {
            Some(left) => self.share.set(left),
            None => self.exceed(),
        }
        !self.exceeded.get()
    }

    /// As [`WorkBudget::spend`], for a part of a metric that can be left out: if its steps exceed the share,
    /// they are not counted, and the metric goes on without that part.
    pub(crate) fn spend_if_left(&self, steps: usize) -> bool {
        let steps = steps as u64;
        self.poll(steps.min(self.share.get()));
        let Some(left) = self.share.get().checked_sub(steps) else {
            self.end_attempt();
            return false;
        };
        self.left.set(self.left.get().saturating_sub(steps));
        self.share.set(left);
        !self.exceeded.get()
    }

    fn poll(&self, steps: u64) {
        match self.until_poll.get().checked_sub(steps) {
            Some(left) => self.until_poll.set(left),
            None => {
                self.until_poll.set(POLL_STEPS);
                if self.stop.as_ref().is_some_and(|stop| stop()) {
                    self.left.set(0);
                    self.share.set(0);
                }
            }
        }
    }

    /// Ends the work of the present metric.
    pub(crate) fn exceed(&self) {
        self.share.set(0);
        self.exceeded.set(true);
        self.end_attempt();
    }

    /// Makes an attempt void, and ends its work.
    fn end_attempt(&self) {
        if self.withheld > 0 {
            self.left.set(0);
            self.share.set(0);
            self.is_void.set(true);
        }
    }

    /// Whether this was an attempt, and the trace needs more steps: its measurements are not those of the trace.
    pub(crate) fn is_void(&self) -> bool {
        self.is_void.get()
    }

    /// Whether the present metric has exceeded its share.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.exceeded.get()
    }

    /// Steps that the present metric may still take.
    pub(crate) fn share(&self) -> u64 {
        self.share.get()
    }

    /// Steps that are left of the trace's.
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
