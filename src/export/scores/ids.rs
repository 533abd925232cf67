//! Names and ids as back ends require them.

use uuid::Uuid;
use verdict_otlp::trace::{SpanId, TraceId};

use super::read::{Score, ScoreSubject};

/// Namespace of the ids that are made here: version 5 of the DNS name `otel-verdict`, of no other meaning.
fn namespace() -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_DNS, b"otel-verdict")
}

/// The id of a score, version 5: the same one for every verdict of this name about the same span or trace.
pub(super) fn score_uuid(score: &Score) -> Uuid {
    score_id(score, Some(score.span).filter(|_| score.target == ScoreSubject::Span))
}

/// The id of the score of a trace as the score of one of its spans.
pub(super) fn trace_score_uuid(score: &Score, span: SpanId) -> Uuid {
    score_id(score, Some(span))
}

fn score_id(score: &Score, span: Option<SpanId>) -> Uuid {
    let span = span.as_ref().map_or(&[][..], |span| &span.0[..]);
    Uuid::new_v5(&namespace(), &[&score.trace.0[..], span, score.name.as_bytes()].concat())
}

/// The id of a text, version 5.
pub(in crate::export) fn text_uuid(text: &str) -> Uuid {
    Uuid::new_v5(&namespace(), text.as_bytes())
}

/// LangSmith's id of the run that is made of a span of OTLP: 8 zero bytes, and the span id.
pub(super) fn langsmith_run(span: SpanId) -> Uuid {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&span.0);
    Uuid::from_bytes(bytes)
}

/// MLflow's id of a trace of OTLP.
pub(super) fn mlflow_trace(trace: TraceId) -> String {
    format!("tr-{trace}")
}

/// Ids of Datadog are decimal numbers.
pub(super) fn datadog_span(span: SpanId) -> String {
    u64::from_be_bytes(span.0).to_string()
}

/// As [`datadog_span`].
pub(super) fn datadog_trace(trace: TraceId) -> String {
    u128::from_be_bytes(trace.0).to_string()
}

/// Longest label of Datadog, in bytes.
const MAX_LABEL: usize = 200;

/// A label of Datadog: a letter, then ASCII letters, digits and underscores.
pub(super) fn datadog_label(name: &str) -> String {
    let mut label: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(MAX_LABEL).collect();
    if !label.starts_with(|c: char| c.is_ascii_alphabetic()) {
        label.insert_str(0, "m_");
        label.truncate(MAX_LABEL);
    }
    label
}

/// A name of MLflow has no dots: `path.correctness` is `path/correctness`.
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
        assert_eq!(langsmith_run(span).to_string(), "00000000-0000-0000-00ff-000000000102");
        assert_eq!(mlflow_trace(trace), "tr-010000000000000000000000000000ff");
        assert_eq!(datadog_span(span), (0x00ff_0000_0000_0102_u64).to_string());
        assert_eq!(datadog_span(SpanId([0xff; 8])), "18446744073709551615");
        assert_eq!(datadog_trace(trace), "1329227995784915872903807060280344831", "all 128 bits");
    }

    #[test]
    fn names_are_changed_only_as_far_as_required() {
        assert_eq!(datadog_label("tool_abuse"), "tool_abuse");
        assert_eq!(datadog_label("path.correctness"), "path_correctness");
        assert_eq!(datadog_label("1st-über"), "m_1st__ber");
        assert_eq!(datadog_label("_x"), "m__x");
        assert_eq!(datadog_label(&"9".repeat(300)).len(), 200);
        assert_eq!(mlflow_name("path.book flight.correctness"), "path/book flight/correctness");
    }
}
