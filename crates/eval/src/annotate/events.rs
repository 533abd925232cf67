//! Writes evaluation results as events, in the form of the GenAI semantic conventions:
//! `gen_ai.evaluation.result`.
//!
//! Records are written field by field, not encoded from opentelemetry-proto's `LogRecord`. One reused
//! `LogRecord`, encoded by prost, raised the hot-path benchmark (`agent`, "ours, all rules") from 101,746
//! to 105,255 instructions per span, 3.4 %: prost computes the length of a nested message at every
//! level above it. opentelemetry-proto would also bring opentelemetry_sdk into this
//! crate, with an executor and a clock. The field numbers come from `proto/otlp.proto`; the tests decode
//! the records with opentelemetry-proto.

use verdict_otlp::numbers::{log_record, span, span_event};
use verdict_otlp::trace::Idx;
use verdict_otlp::value::{EVENT_ATTRIBUTES, LOG_ATTRIBUTES};
use verdict_otlp::write::{self, Scalar};

use super::attributes::result_label;
use super::summary::{Annotator, ExplainedMeasurement};
use crate::measure::{Unmeasured, Value};

const NAME: &str = "gen_ai.evaluation.result";
/// `SeverityNumber` INFO and WARN. A failed verdict is no error of the pipeline.
const INFO: u64 = 9;
const WARN: u64 = 13;

impl Annotator<'_> {
    /// Appends the log record of a measurement, unless it has no value and those are not logged.
    pub(super) fn measurement_record(self, record: &mut Vec<u8>, explained: ExplainedMeasurement<'_>) {
        let m = explained.measurement;
        if m.outcome.is_ok() || self.emission.log_unmeasured {
            self.record_head(record, m.at, m.outcome.as_ref().is_ok_and(|o| !o.passed));
            evaluation(record, LOG_ATTRIBUTES, explained);
        }
    }

    /// Appends the log record of the trace's verdict.
    pub(super) fn trace_record(self, record: &mut Vec<u8>, root: Idx) {
        let passed = self.summary.passed;
        self.record_head(record, root, passed == Some(false));
        let mut put = |key: &str, value: Scalar<'_>| write::attribute(record, LOG_ATTRIBUTES, key, value);
        put("gen_ai.evaluation.name", Scalar::Str("trace"));
        put("gen_ai.evaluation.score.label", Scalar::Str(passed.map_or("unmeasured", result_label)));
        let prefix = &self.emission.prefix;
        self.trace_result(|key, value| put(&format!("{prefix}{key}"), value));
        self.trace_failures(|key, value| put(&format!("{prefix}{key}"), value));
    }

    /// Appends the event of a measurement to a span, under the same condition as a log record.
    pub(super) fn span_event(self, out: &mut Vec<u8>, explained: ExplainedMeasurement<'_>) {
        if explained.measurement.outcome.is_ok() || self.emission.log_unmeasured {
            let mut event = Vec::new();
            write::fixed64(&mut event, span_event::TIME_UNIX_NANO, self.summary.now);
            write::bytes(&mut event, span_event::NAME, NAME.as_bytes());
            evaluation(&mut event, EVENT_ATTRIBUTES, explained);
            write::bytes(out, span::EVENTS, &event);
        }
    }

    /// Appends a `LogRecord` of span `at` without attributes.
    fn record_head(self, record: &mut Vec<u8>, at: Idx, failed: bool) {
        let at = &self.trace.tree.spans[at];
        // The event's time is the end of the span; the observed time is that of the evaluation.
        let time = at.sent(if at.end == 0 { at.start } else { at.end });
        write::fixed64(record, log_record::TIME_UNIX_NANO, time);
        write::integer(record, log_record::SEVERITY_NUMBER, if failed { WARN } else { INFO });
        write::bytes(record, log_record::TRACE_ID, &self.trace.tree.id.0);
        write::bytes(record, log_record::SPAN_ID, &at.id.0);
        write::fixed64(record, log_record::OBSERVED_TIME_UNIX_NANO, self.summary.now);
        write::bytes(record, log_record::EVENT_NAME, NAME.as_bytes());
    }
}

fn evaluation(out: &mut Vec<u8>, field: u32, explained: ExplainedMeasurement<'_>) {
    let m = explained.measurement;
    let mut put = |key: &str, value: Scalar<'_>| write::attribute(out, field, key, value);
    put("gen_ai.evaluation.name", Scalar::Str(m.metric));
    match &m.outcome {
        Ok(measured) => {
            match measured.value {
                Value::Score(score) | Value::Number(score) => {
                    put("gen_ai.evaluation.score.value", Scalar::Double(score));
                    put("gen_ai.evaluation.score.label", Scalar::Str(result_label(measured.passed)));
                }
                Value::Label(label) => put("gen_ai.evaluation.score.label", Scalar::Str(label)),
            }
            if let Some(text) = explained.explanation {
                put("gen_ai.evaluation.explanation", Scalar::Str(text));
            }
        }
        Err(reason) => {
            put("gen_ai.evaluation.score.label", Scalar::Str("unmeasured"));
            // `error.type` is for failed evaluations, not for those that do not apply.
            if matches!(reason, Unmeasured::JudgeError | Unmeasured::Timeout) {
                put("error.type", Scalar::Str(reason.as_str()));
            }
        }
    }
}
