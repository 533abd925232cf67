//! A metric that evaluators answer. In: a span. Out: a question, and from its answer a measurement.

use verdict_otlp::trace::Kind;

use super::outline::Outline;
use super::subject::{Subject, SubjectPart};
use super::{answer, protocol};
use crate::measure::ask::step;
use crate::measure::ask::transcript::RunScope;
use crate::measure::{Answer, Context, Metric, MetricProgress, Question, Unmeasured};

/// The key of the only question.
const KEY: &str = "outline";

/// A metric that evaluators answer.
#[derive(Debug)]
pub(crate) struct RemoteMetric {
    pub subject: Subject,
    pub max_bytes: usize,
}

impl Metric for RemoteMetric {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        let unmeasured = |reason| MetricProgress::Done(vec![context.unmeasured(reason)]);
        let part = match self.part(context) {
            Ok(Some(part)) => part,
            Ok(None) => return MetricProgress::Done(Vec::new()),
            Err(reason) => return unmeasured(reason),
        };
        let outline = match Outline::new(self.max_bytes, context, part) {
            Ok(outline) => outline,
            Err(reason) => return unmeasured(reason),
        };
        match answers.first().map(|answer| &answer.opinions) {
            None => {
                let form = protocol::form(context.row);
                MetricProgress::Ask(vec![Question::new(KEY, outline.prompt(context, part), form)])
            }
            Some(Err(reason)) => unmeasured(*reason),
            Some(Ok(opinions)) => MetricProgress::Done(vec![answer::measured(context, &outline, opinions)]),
        }
    }
}

impl RemoteMetric {
    /// The part of the trace that is measured on the span of `context`; `None` if the metric does not apply to the
    /// span.
    fn part(&self, context: &Context<'_>) -> Result<Option<SubjectPart>, Unmeasured> {
        let Context { trace, at: span_index, .. } = *context;
        let run_part = |scope| Ok(Some(SubjectPart::Run(scope)));
        match self.subject {
            Subject::Model | Subject::Tool | Subject::Step => match step::applicability(context) {
                Ok(()) => Ok(Some(SubjectPart::Step(span_index))),
                Err(None) => Ok(None),
                Err(Some(reason)) => Err(reason),
            },
            Subject::Agent => {
                let owner = trace.owner.get(span_index).copied().flatten();
                let agent =
                    owner.filter(|&i| trace.agents.get(i).is_some_and(|agent| agent.at == span_index));
                agent.map_or(Ok(None), |i| run_part(RunScope::Beneath(i)))
            }
            // A trace without a recognised span has no content to show.
            Subject::Trace => match trace.views.iter().any(|view| view.kind != Kind::Unknown) {
                true if trace.tree.root() == Some(span_index) => run_part(RunScope::Trace),
                _ => Ok(None),
            },
        }
    }
}
