//! Writes `braintrust.scores`, which Braintrust reads at its OTLP endpoint: a JSON object of scores by name.
//! Source: the attribute that its OpenTelemetry SDKs set.

use serde_json::{Map, Value as Json};
use verdict_otlp::Attributes;
use verdict_otlp::trace::Idx;
use verdict_otlp::value::SPAN_ATTRIBUTES;
use verdict_otlp::write::{self, Scalar};

use super::summary::{Annotator, ExplainedMeasurement, MAX_ITEMS};
use crate::measure::Value;

const KEY: &str = "braintrust.scores";
/// The name of the trace's score, which its root has.
const TRACE_SCORE_NAME: &str = "verdict";

impl Annotator<'_> {
    /// Appends the scores of span `i`, unless it has none, or has the attribute already.
    pub(super) fn braintrust_scores(
        self,
        out: &mut Vec<u8>,
        i: Idx,
        measurements: &[ExplainedMeasurement<'_>],
    ) {
        let mut scores = Map::new();
        for measurement in measurements.iter().map(|explained| explained.measurement) {
            let Ok(measured) = &measurement.outcome else { continue };
            let scaled = match measured.value {
                Value::Score(score) => self.emission.normalized(&measurement.name(), score),
                Value::Label(_) | Value::Number(_) => None,
            };
            let score = scaled.unwrap_or(f64::from(u8::from(measured.passed)));
            if scores.len() < MAX_ITEMS {
                scores.insert(measurement.name().into_owned(), score.into());
            }
        }
        if self.carries_trace(i) {
            let judged = self.verdicts.trace.outcome.as_ref().map(|outcome| outcome.score);
            let score = self.summary.passed.map(|passed| judged.unwrap_or(f64::from(u8::from(passed))));
            scores.extend(score.map(|score| (TRACE_SCORE_NAME.to_owned(), score.into())));
        }
        let Some(span) = self.trace.tree.spans.get(i).filter(|_| !scores.is_empty()) else { return };
        if Attributes::new(&span.bytes, SPAN_ATTRIBUTES).any(|(key, _)| key == KEY) {
            return;
        }
        let json = Json::Object(scores).to_string();
        write::attribute(out, SPAN_ATTRIBUTES, KEY, Scalar::Str(&json));
    }
}
