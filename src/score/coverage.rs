//! The share of measured results among those asked for, by metric.
//!
//! In: measurements. Out: for each metric the number of measurements with a value, and of those without one by
//! their reason. A figure from half of the spans means less than a figure from all of them.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::json;
use verdict_eval::metrics::{Measurement, Unmeasured};

use super::counts::share;

/// One metric's measurements.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MetricCoverage {
    pub measured: usize,
    /// The number of measurements without a value, by reason. A metric that does not apply to a span is not counted.
    pub unmeasured: BTreeMap<&'static str, usize>,
}

impl MetricCoverage {
    pub fn missing(&self) -> usize {
        self.unmeasured.values().sum()
    }

    /// The share of measurements without a value.
    pub fn unmeasured_share(&self) -> f64 {
        share(self.missing(), self.measured + self.missing())
    }
}

impl Serialize for MetricCoverage {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let MetricCoverage { measured, unmeasured } = self;
        let share = self.unmeasured_share();
        json!({ "measured": measured, "unmeasured": unmeasured, "unmeasured_share": share }).serialize(to)
    }
}

/// The coverage of all metrics, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Coverage(pub BTreeMap<&'static str, MetricCoverage>);

impl Coverage {
    /// Adds the measurements of a trace.
    pub fn add(&mut self, measurements: &[Measurement]) {
        for m in measurements {
            match &m.outcome {
                Ok(_) => self.0.entry(m.metric).or_default().measured += 1,
                Err(Unmeasured::NotApplicable) => {}
                Err(reason) => {
                    let entry = self.0.entry(m.metric).or_default();
                    *entry.unmeasured.entry(reason.as_str()).or_default() += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdict_eval::metrics::{Measured, Value};
    use verdict_eval::testing::measured;

    #[test]
    fn shares_are_of_the_spans_to_which_a_metric_applies() {
        let value = Measured { value: Value::Score(5.0), passed: true, findings: Vec::new() };
        let missing = |reason| Measurement::new(0, "completeness", "main/1", Err(reason));
        let mut coverage = Coverage::default();
        coverage.add(&[
            measured(0, "completeness", value.clone()),
            missing(Unmeasured::JudgeError),
            missing(Unmeasured::JudgeError),
            missing(Unmeasured::NoContent),
            missing(Unmeasured::NotApplicable),
            measured(0, "tool_abuse", value),
        ]);
        let completeness = &coverage.0["completeness"];
        assert_eq!(
            (completeness.measured, completeness.missing(), completeness.unmeasured["judge_error"]),
            (1, 3, 2)
        );
        assert_eq!(completeness.unmeasured_share(), 0.75);
        assert_eq!(coverage.0["tool_abuse"].unmeasured_share(), 0.0);
    }
}
