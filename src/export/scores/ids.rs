//! Names and ids as back ends require them.

use uuid::Uuid;
use verdict_otlp::trace::{SpanId, TraceId};

use super::read::{Score, ScoreSubject};

/// The namespace of generated UUIDs: the UUID (version 5) of the DNS name `otel-verdict`.
fn namespace() -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_DNS, b"otel-verdict")
}

/// The id of a score, a UUID of version 5: equal for all verdicts of the same name on the same span or trace.
pub(super) fn score_uuid(score: &Score) -> Uuid {
    score_id(score, Some(score.span).filter(|_| score.subject == ScoreSubject::Span))
}

/// The id of the score of a trace if a back end stores it as a score of `span`.
pub(super) fn trace_score_uuid(score: &Score, span: SpanId) -> Uuid {
    score_id(score, Some(span))
}

fn score_id(score: &Score, span: Option<SpanId>) -> Uuid {
    let span = span.as_ref().map_or(&[][..], |span| &span.0[..]);
    Uuid::new_v5(&namespace(), &[&score.trace.0[..], span, score.name.as_bytes()].concat())
}

/// A UUID of version 5 that depends only on `text`.
pub(in crate::export) fn text_uuid(text: &str) -> Uuid {
    Uuid::new_v5(&namespace(), text.as_bytes())
}

/// The id of the run that LangSmith creates from an OTLP span: 8 zero bytes, then the span id.
pub(super) fn langsmith_run_id(span: SpanId) -> Uuid {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&span.0);
    Uuid::from_bytes(bytes)
}

/// The id of an OTLP trace in MLflow.
pub(super) fn mlflow_trace_id(trace: TraceId) -> String {
    format!("tr-{trace}")
}

/// The id of a span in Datadog: the same number in decimal.
pub(super) fn datadog_span_id(span: SpanId) -> String {
    u64::from_be_bytes(span.0).to_string()
}

/// The id of a trace in Datadog: the same number in decimal.
pub(super) fn datadog_trace_id(trace: TraceId) -> String {
    u128::from_be_bytes(trace.0).to_string()
}

/// Limit of Datadog on the length of a label.
const MAX_LABEL_BYTES: usize = 200;

/// `name` as a label of Datadog: a letter, then ASCII letters, digits and underscores.
pub(super) fn datadog_label(name: &str) -> String {
    let mut label: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(MAX_LABEL_BYTES).collect();
    if !label.starts_with(|c: char| c.is_ascii_alphabetic()) {
        label.insert_str(0, "m_");
        label.truncate(MAX_LABEL_BYTES);
    }
    label
}

/// `name` as the name of an assessment in MLflow, which may not contain dots: `path.correctness` becomes
/// `path/correctness`.
pub(super) fn mlflow_name(name: &str) -> String {
    name.replace('.', "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_spans_and_traces_have_the_form_of_each_back_end() {
        let span = SpanId([0, 0xff, 0, 0, 0, 0, 1, 2]);
        let trace = TraceId([0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff]);
        assert_eq!(langsmith_run_id(span).to_string(), "00000000-0000-0000-00ff-000000000102");
        assert_eq!(mlflow_trace_id(trace), "tr-010000000000000000000000000000ff");
        assert_eq!(datadog_span_id(span), (0x00ff_0000_0000_0102_u64).to_string());
        assert_eq!(datadog_span_id(SpanId([0xff; 8])), "18446744073709551615");
        assert_eq!(datadog_trace_id(trace), "1329227995784915872903807060280344831", "all 128 bits");
    }

    #[test]
    fn only_characters_that_a_back_end_refuses_are_replaced_in_names() {
        assert_eq!(datadog_label("tool_abuse"), "tool_abuse");
        assert_eq!(datadog_label("path.correctness"), "path_correctness");
        assert_eq!(datadog_label("1st-über"), "m_1st__ber");
        assert_eq!(datadog_label("_x"), "m__x");
        assert_eq!(datadog_label(&"9".repeat(300)).len(), 200);
        assert_eq!(mlflow_name("path.book flight.correctness"), "path/book flight/correctness");
    }
}
