//! Traces counted by result.

use std::fmt;

use crate::telemetry::ResultLabel;

/// Results of traces, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::cli) struct Totals {
    counts: [usize; ResultLabel::ALL.len()],
}

impl Totals {
    pub(super) fn add(&mut self, result: ResultLabel) {
        self.counts[result as usize] += 1;
    }

    /// Reverts [`Totals::add`].
    pub(super) fn remove(&mut self, result: ResultLabel) {
        let count = &mut self.counts[result as usize];
        *count = count.saturating_sub(1);
    }

    pub(in crate::cli) fn count(self, result: ResultLabel) -> usize {
        self.counts[result as usize]
    }

    pub(in crate::cli) fn all(self) -> usize {
        self.counts.iter().sum()
    }

    /// The share of failing traces in those with a verdict; `None` if none has one.
    pub(in crate::cli) fn fail_rate(self) -> Option<f64> {
        let (failed, passed) = (self.count(ResultLabel::Fail), self.count(ResultLabel::Pass));
        (failed + passed > 0).then(|| failed as f64 / (failed + passed) as f64)
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.all();
        write!(f, "{all} trace{}", if all == 1 { "" } else { "s" })?;
        for (i, result) in ResultLabel::ALL.into_iter().enumerate() {
            write!(f, "{} {} {}", if i == 0 { ":" } else { "," }, self.count(result), result.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_name_every_result_and_the_rate_leaves_out_unmeasured_traces() {
        let mut totals = Totals::default();
        assert_eq!(totals.fail_rate(), None);
        for result in [ResultLabel::Pass, ResultLabel::Unmeasured, ResultLabel::Fail, ResultLabel::Pass] {
            totals.add(result);
        }
        assert_eq!(totals.to_string(), "4 traces: 2 pass, 1 fail, 1 unmeasured");
        assert_eq!(totals.fail_rate(), Some(1.0 / 3.0));
    }
}
