//! The seven metrics of a plan, their weights, and the score that follows from them (004, section 4).
//!
//! In: a value from 0 to 1 for each metric that was measured. Out: `plan.score`, 0 to 100, which
//! has 70 points for effectiveness and 30 for efficiency even if metrics are unmeasured.

use verdict_config::{Problem, settings};

use super::schema::Fault;
use crate::measure::metric_names::PlanPart;

impl PlanPart {
    /// The number of metrics of effectiveness, which come first in [`PlanPart::ALL`].
    pub const EFFECTIVE: usize = 4;

    /// The metric's name, as in its attribute key.
    pub const fn metric(self) -> &'static str {
        self.as_str()
    }

    /// The name without `plan.`.
    pub fn name(self) -> &'static str {
        self.metric().trim_start_matches("plan.")
    }

    /// The expectation with which explanations begin.
    pub fn expectation(self) -> &'static str {
        match self {
            PlanPart::ToolPromptAlignment => "a prompt for the tool that fits it",
            PlanPart::Format => "a step in the format of plans",
            PlanPart::StepExecutability => "a step that its tool can carry out",
            PlanPart::QueryAdherence => "a plan for the whole query",
            PlanPart::Dependencies => "a dependency for each result that is used",
            PlanPart::Redundancy => "a step that adds something",
            PlanPart::ToolUsageCompleteness => "the use of every tool of the reference plan",
        }
    }

    /// The metric that a fault counts against; `None` for faults without effect.
    pub fn for_fault(fault: Fault) -> Option<PlanPart> {
        use Fault::*;
        Some(match fault {
            Surrounded | TooLong => return None,
            Unreadable | Repaired | Numbering | NoInstruction | NoCall | Quotes | DependsOn
            | MissingPlaceholder | MalformedPlaceholder | MisplacedPlaceholder | MissingQuery => {
                PlanPart::Format
            }
            UnknownStep | NotEarlier | Circular | Undeclared | Superfluous => PlanPart::Dependencies,
            Ignored | RepeatedDetail => PlanPart::Redundancy,
            TooComplex => PlanPart::StepExecutability,
            WrongTool => PlanPart::ToolPromptAlignment,
            SecondToolMissing => PlanPart::ToolUsageCompleteness,
        })
    }
}

/// The points of all metrics of effectiveness together, independently of their weights.
pub(crate) const EFFECTIVENESS: f64 = 70.0;
/// The points of all metrics of efficiency together.
pub(crate) const EFFICIENCY: f64 = 30.0;

settings! {
    /// The weights of the metrics. Only proportions within a group have an effect: effectiveness always
    /// has 70 points and efficiency 30.
    #[derive(Copy)]
    pub struct PlanWeights {
        /// Default 20.
        tool_prompt_alignment: f64 = 20.0,
        /// Default 20.
        format: f64 = 20.0,
        /// Default 15.
        step_executability: f64 = 15.0,
        /// Default 15.
        query_adherence: f64 = 15.0,
        /// Default 10.
        dependencies: f64 = 10.0,
        /// Default 10.
        redundancy: f64 = 10.0,
        /// Default 10.
        tool_usage_completeness: f64 = 10.0,
    }
}

impl PlanPart {
    /// The weight of this metric.
    pub fn weight(self, weights: &PlanWeights) -> f64 {
        weights.to_array()[self as usize]
    }
}

/// A value of each metric, in the order of [`PlanPart::ALL`].
type PerPart<T> = [T; PlanPart::ALL.len()];

impl PlanWeights {
    fn weight_mut(&mut self, part: PlanPart) -> &mut f64 {
        match part {
            PlanPart::ToolPromptAlignment => &mut self.tool_prompt_alignment,
            PlanPart::Format => &mut self.format,
            PlanPart::StepExecutability => &mut self.step_executability,
            PlanPart::QueryAdherence => &mut self.query_adherence,
            PlanPart::Dependencies => &mut self.dependencies,
            PlanPart::Redundancy => &mut self.redundancy,
            PlanPart::ToolUsageCompleteness => &mut self.tool_usage_completeness,
        }
    }

    pub(crate) fn from_array(weights: PerPart<f64>) -> PlanWeights {
        let mut out = PlanWeights::default();
        PlanPart::ALL.into_iter().zip(weights).for_each(|(part, weight)| *out.weight_mut(part) = weight);
        out
    }

    pub(crate) fn to_array(mut self) -> PerPart<f64> {
        PlanPart::ALL.map(|part| *self.weight_mut(part))
    }

    /// Invalid weights, and groups whose weights are all 0.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let weights = self.to_array();
        let mut out = Vec::new();
        for (part, weight) in PlanPart::ALL.iter().zip(weights) {
            if !(weight.is_finite() && weight >= 0.0) {
                out.push(Problem::new(
                    part.name(),
                    format!("expected a weight of at least 0, found {weight}"),
                ));
            }
        }
        let (effective, efficient) = weights.split_at(PlanPart::EFFECTIVE);
        for (group, name) in [(effective, "effectiveness"), (efficient, "efficiency")] {
            if out.is_empty() && group.iter().sum::<f64>() <= 0.0 {
                out.push(Problem::new("", format!("every weight of {name} is 0")));
            }
        }
        out
    }
}

/// The value of each metric, from 0 to 1; `None` if unmeasured.
pub(crate) type PartValues = PerPart<Option<f64>>;

/// The score from 0 to 100: the points of each group times the weighted mean of its measured metrics,
/// so that an unmeasured metric has no effect. `None` if a group has no measured metric.
pub(crate) fn score(values: &PartValues, weights: &PlanWeights) -> Option<f64> {
    let (weights, split) = (weights.to_array(), PlanPart::EFFECTIVE);
    let effectiveness = weighted_mean(&values[..split], &weights[..split])?;
    let efficiency = weighted_mean(&values[split..], &weights[split..])?;
    Some(EFFECTIVENESS * effectiveness + EFFICIENCY * efficiency)
}

/// The weighted mean of the measured values; `None` if their weights are 0.
pub(crate) fn weighted_mean(values: &[Option<f64>], weights: &[f64]) -> Option<f64> {
    let measured = || values.iter().zip(weights).filter_map(|(value, weight)| Some(((*value)?, weight)));
    let total: f64 = measured().map(|(_, weight)| weight).sum();
    let sum: f64 = measured().map(|(value, weight)| value.clamp(0.0, 1.0) * weight).sum();
    (total > 0.0).then(|| sum / total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn default_weights_equal_the_papers() {
        let weights = PlanWeights::default().to_array();
        assert_eq!(weights[..PlanPart::EFFECTIVE].iter().sum::<f64>(), EFFECTIVENESS);
        assert_eq!(weights[PlanPart::EFFECTIVE..].iter().sum::<f64>(), EFFICIENCY);
        assert_eq!(score(&[Some(1.0); 7], &PlanWeights::default()), Some(100.0));
        // Table 35's shape with values that a plan of two steps can reach.
        let refund = [Some(1.0), Some(1.0), Some(0.5), Some(0.5), Some(1.0), Some(1.0), Some(0.5)];
        assert_eq!(
            score(&refund, &PlanWeights::default()),
            Some(20.0 + 20.0 + 7.5 + 7.5 + 10.0 + 10.0 + 5.0)
        );
    }

    #[test]
    fn weight_of_unmeasured_metric_goes_to_its_group() {
        let mut values = PartValues::default();
        values[PlanPart::Format as usize] = Some(0.5);
        assert_eq!(score(&values, &PlanWeights::default()), None, "efficiency is unmeasured");
        values[PlanPart::Dependencies as usize] = Some(1.0);
        assert_eq!(score(&values, &PlanWeights::default()), Some(65.0));
        values[PlanPart::Redundancy as usize] = Some(0.5);
        assert_eq!(score(&values, &PlanWeights::default()), Some(35.0 + 22.5));
    }

    #[test]
    fn negative_weight_and_group_without_weight_are_problems() {
        assert_eq!(PlanWeights::default().problems(), []);
        let mut weights = PlanWeights { format: -1.0, ..PlanWeights::default() };
        assert_eq!(weights.problems()[0].key, "format");
        weights = PlanWeights::from_array([1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
        assert!(weights.problems()[0].message.contains("efficiency"));
    }

    proptest! {
        #[test]
        fn scores_stay_on_their_scale_and_rise_with_their_values(
            values in prop::array::uniform7(prop::option::of(0.0f64..=1.0)),
            weights in prop::array::uniform7(0.1f64..10.0),
            raised in 0usize..7,
        ) {
            let weights = PlanWeights::from_array(weights);
            if let Some(before) = score(&values, &weights) {
                prop_assert!((0.0..=100.0 + 1e-9).contains(&before));
                let mut better = values;
                if better[raised].is_some() {
                    better[raised] = Some(1.0);
                    prop_assert!(score(&better, &weights).unwrap() >= before - 1e-9);
                }
            }
        }
    }
}
