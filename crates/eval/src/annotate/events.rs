//! Evaluation results as events, in the form that the GenAI semantic conventions give them:
//! `gen_ai.evaluation.result`.

use verdict_otlp::trace::Idx;
use verdict_otlp::value::{EVENT_ATTRIBUTES, LOG_ATTRIBUTES};
use verdict_otlp::write::{self, Scalar};

use super::Emission;
use super::attributes::{chain, ids, strs, word};
use super::summary::{ExplainedMeasurement, MAX_ITEMS, TraceSummary};
use crate::measure::{self, Value};
use crate::propagate::Verdicts;
use crate::recognise::AgentTrace;

const NAME: &str = "gen_ai.evaluation.result";
/// `Span.events`.
const SPAN_EVENTS: u32 = 11;
/// `SeverityNumber` INFO and WARN: a failed verdict is worth a look, not an error of the pipeline.
const INFO: u64 = 9;
const WARN: u64 = 13;

/// Appends the log record of a measurement; nothing for unmeasured ones, unless they were asked for.
pub(super) fn measurement(
    record: &mut Vec<u8>,
    trace: &AgentTrace,
    explained: ExplainedMeasurement<'_>,
    summary: &TraceSummary,
    emission: &Emission,
) {
    let m = explained.measurement;
    if m.outcome.is_err() && !emission.log_unmeasured {
        return;
    }
    let failed = m.outcome.as_ref().is_ok_and(|o| !o.passed);
    head(record, trace, m.at, failed, summary);
    evaluation(record, LOG_ATTRIBUTES, explained);
}

/// Appends the log record of the trace's verdict.
pub(super) fn trace(
    record: &mut Vec<u8>,
    trace: &AgentTrace,
    root: Idx,
    verdicts: &Verdicts,
    summary: &TraceSummary,
    emission: &Emission,
) {
    let verdict = &verdicts.trace;
    let result = summary.passed.map_or("unmeasured", word);
    head(record, trace, root, summary.passed == Some(false), summary);
    let mut put = |key: &str, value: Scalar<'_>| write::attribute(record, LOG_ATTRIBUTES, key, value);
    put("gen_ai.evaluation.name", Scalar::Str("trace"));
    put("gen_ai.evaluation.score.label", Scalar::Str(result));
    let prefix = &emission.prefix;
    put(&format!("{prefix}trace.result"), Scalar::Str(result));
    if let Some(why) = summary.unmeasured {
        put(&format!("{prefix}trace.reason"), Scalar::Str(why.as_str()));
    }
    put(&format!("{prefix}trace.revision"), Scalar::Int(i64::from(summary.revision)));
    put(&format!("{prefix}trace.close_reason"), Scalar::Str(summary.reason.as_str()));
    if !verdict.failed_spans.is_empty() {
        put(&format!("{prefix}trace.failed_spans"), Scalar::Strs(&strs(&ids(trace, &verdict.failed_spans))));
        put(
            &format!("{prefix}trace.failure_chain"),
            Scalar::Strs(&strs(&chain(trace, &verdict.failure_chain))),
        );
        let metrics = &verdict.failed_metrics[..verdict.failed_metrics.len().min(MAX_ITEMS)];
        put(&format!("{prefix}trace.failed_metrics"), Scalar::Strs(metrics));
    }
}

/// The same as an event on the span itself.
pub(super) fn span_event(
    out: &mut Vec<u8>,
    explained: ExplainedMeasurement<'_>,
    summary: &TraceSummary,
    emission: &Emission,
) {
    if explained.measurement.outcome.is_err() && !emission.log_unmeasured {
        return;
    }
    let mut event = Vec::new();
    write::fixed64(&mut event, 1, summary.now);
    write::bytes(&mut event, 2, NAME.as_bytes());
    evaluation(&mut event, EVENT_ATTRIBUTES, explained);
    write::bytes(out, SPAN_EVENTS, &event);
}

/// Appends a `LogRecord` that speaks of span `at`, its attributes still to come.
fn head(record: &mut Vec<u8>, trace: &AgentTrace, at: Idx, failed: bool, summary: &TraceSummary) {
    let span = &trace.tree.spans[at];
    // The result holds from when the span ended; when we came to know it is the observed time.
    write::fixed64(record, 1, if span.end == 0 { span.start } else { span.end });
    write::integer(record, 2, if failed { WARN } else { INFO });
    write::bytes(record, 9, &trace.tree.id.0);
    write::bytes(record, 10, &span.id.0);
    write::fixed64(record, 11, summary.now);
    write::bytes(record, 12, NAME.as_bytes());
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
                    put("gen_ai.evaluation.score.label", Scalar::Str(word(measured.passed)));
                }
                Value::Label(label) => put("gen_ai.evaluation.score.label", Scalar::Str(label)),
            }
            if let Some(text) = explained.explanation {
                put("gen_ai.evaluation.explanation", Scalar::Str(text));
            }
        }
        Err(reason) => {
            put("gen_ai.evaluation.score.label", Scalar::Str("unmeasured"));
            // `error.type` is for evaluations that went wrong; one that does not apply did not.
            if matches!(reason, measure::Unmeasured::JudgeError | measure::Unmeasured::Timeout) {
                put("error.type", Scalar::Str(reason.as_str()));
            }
        }
    }
}
