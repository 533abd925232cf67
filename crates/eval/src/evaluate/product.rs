//! The parts of an [`Evaluator`] that the service and the commands of the product read, behind the feature `internals`.

use super::{Assessment, Evaluator};
use crate::annotate::Emission;
use crate::measure::MetricSpec;
use crate::measure::question_rounds::Questions;
use crate::recognise::Recogniser;

impl Evaluator {
    /// The evaluator without the function of [`Builder::stop`](super::Builder::stop), so that its results do not depend
    /// on the speed of the machine.
    #[must_use]
    pub fn without_stop(self) -> Evaluator {
        Evaluator { stop: None, ..self }
    }

    /// The settings of annotation.
    pub fn emission(&self) -> &Emission {
        &self.emission
    }

    /// The rows of the metrics that are not built in.
    pub fn added_rows(&self) -> impl Iterator<Item = &'static MetricSpec> {
        self.custom.iter().map(|metric| metric.row)
    }

    /// Determines the kinds of spans; for rendering.
    pub fn recogniser(&self) -> &Recogniser {
        &self.recogniser
    }

    /// Whether tasks are configured (`metrics.path.tasks`).
    pub fn has_tasks(&self) -> bool {
        !self.settings.path_tasks.is_empty()
    }

    /// Whether open traces can raise alarms.
    pub fn raises_alarms(&self) -> bool {
        self.has_tasks() || self.alarms.is_on()
    }

    /// The questions that can be asked about a trace that is still open.
    pub fn early_questions<'a>(&'a self, assessment: &'a Assessment) -> Questions<'a> {
        Questions::early(self.inputs(assessment), &self.custom).within(assessment.steps_left, self.stop)
    }
}
