//! Reads scores from evaluation events.
//!
//! In: log records of this program's instrumentation scope. Out: one [`Score`] per measurement and per verdict on a
//! trace. Explanations were redacted, cut or omitted when the event was written.

use std::collections::HashMap;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use serde_json::{Map, Value as Json, json};
use verdict_eval::annotation::{EVALUATION_EVENT, SCOPE_NAME, TRACE_EVALUATION};
use verdict_otlp::trace::{SpanId, TraceId};

use crate::export::config::Include;

/// Scales the score of a metric to 0..1, given the name of the metric in evaluation events; `None` for labels and
/// quantities.
pub type Normalize = Arc<dyn Fn(&str, f64) -> Option<f64> + Send + Sync>;

/// The name of the score for the verdict on a trace.
pub(super) const TRACE_VERDICT: &str = "verdict";

/// The lowest `SeverityNumber` of a failed evaluation: WARN.
const MIN_FAILED_SEVERITY: i32 = 13;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::export) enum ScoreOutcome {
    Pass,
    Fail,
    Unmeasured,
}

impl ScoreOutcome {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            ScoreOutcome::Pass => "pass",
            ScoreOutcome::Fail => "fail",
            ScoreOutcome::Unmeasured => "unmeasured",
        }
    }
}

/// The subject of a score.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::export) enum ScoreSubject {
    Span,
    /// The trace. The span of the score is its root, or its topmost span.
    Trace,
}

/// One verdict, in a form that every back end can represent.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::export) struct Score {
    pub trace: TraceId,
    pub span: SpanId,
    pub subject: ScoreSubject,
    /// Whether this is the verdict on a trace whose root is unknown, so that the span is not the root.
    pub is_rootless: bool,
    /// The name of the metric, including its task if the metric has several; [`TRACE_VERDICT`] for a trace.
    pub name: String,
    pub outcome: ScoreOutcome,
    /// From 0 to 1: the scaled score, or else 1 for pass and 0 for fail; `None` if unmeasured.
    pub value: Option<f64>,
    pub comment: Option<String>,
    /// Whether a model made the verdict, rather than code.
    pub is_llm_judged: bool,
    /// The evaluator with its version, as in `verdict.<metric>.judge`; empty if unknown.
    pub evaluator: String,
    pub session: Option<String>,
    /// `service.name` of the span.
    pub service: Option<String>,
    /// The time of the evaluation, in nanoseconds since 1970.
    pub evaluated_at_nanos: u64,
    /// Further values, with short keys.
    pub metadata: Map<String, serde_json::Value>,
}

/// Like [`scores`], with unscaled scores of metrics.
pub(in crate::export) fn all_scores(
    request: &ExportLogsServiceRequest,
    include: Include,
    prefix: &str,
) -> Vec<Score> {
    let normalize: Normalize = Arc::new(|_, score| Some(score));
    let all = scores(std::slice::from_ref(request), include, prefix, &normalize);
    all.into_iter().map(|(_, score)| score).collect()
}

/// The scores in evaluation events, each with the index of its request. Of several with the same name on the same span
/// or trace, only the last one is returned.
pub(super) fn scores(
    requests: &[ExportLogsServiceRequest],
    include: Include,
    prefix: &str,
    normalize: &Normalize,
) -> Vec<(usize, Score)> {
    let mut all: Vec<(usize, Score)> = Vec::new();
    let mut positions: HashMap<(TraceId, Option<SpanId>, String), usize> = HashMap::new();
    let indexed_requests = requests.iter().enumerate();
    for (request, resource_logs) in indexed_requests
        .flat_map(|(index, request)| request.resource_logs.iter().map(move |logs| (index, logs)))
    {
        let attributes = resource_logs.resource.as_ref().map(|resource| &resource.attributes[..]);
        let service = text(attributes.unwrap_or_default(), "service.name");
        let scopes = resource_logs
            .scope_logs
            .iter()
            .filter(|s| s.scope.as_ref().is_some_and(|scope| scope.name == SCOPE_NAME));
        for record in scopes.flat_map(|scope| &scope.log_records) {
            let Some(score) = score(record, service, prefix, normalize) else { continue };
            let is_included = match include {
                Include::All => true,
                Include::Failed => {
                    score.subject == ScoreSubject::Trace || score.outcome == ScoreOutcome::Fail
                }
                Include::Trace => score.subject == ScoreSubject::Trace,
            };
            if !is_included {
                continue;
            }
            let span = (score.subject == ScoreSubject::Span).then_some(score.span);
            match positions.entry((score.trace, span, score.name.clone())) {
                std::collections::hash_map::Entry::Occupied(entry) => all[*entry.get()] = (request, score),
                std::collections::hash_map::Entry::Vacant(entry) => {
                    entry.insert(all.len());
                    all.push((request, score));
                }
            }
        }
    }
    all
}

fn score(record: &LogRecord, service: Option<&str>, prefix: &str, normalize: &Normalize) -> Option<Score> {
    if record.event_name != EVALUATION_EVENT {
        return None;
    }
    let trace = TraceId(record.trace_id[..].try_into().ok()?);
    let span = SpanId(record.span_id[..].try_into().ok()?);
    let attributes = &record.attributes[..];
    let prefixed = |key: &str| attribute(attributes, &format!("{prefix}{key}"));
    let name = text(attributes, "gen_ai.evaluation.name")?;
    let label = text(attributes, "gen_ai.evaluation.score.label");
    let value = number(attribute(attributes, "gen_ai.evaluation.score.value"));
    // A metric may have the same name as the event of a trace.
    let subject = match prefixed("trace.result") {
        Some(_) if name == TRACE_EVALUATION => ScoreSubject::Trace,
        _ => ScoreSubject::Span,
    };
    let outcome = match record.severity_number {
        _ if label == Some(ScoreOutcome::Unmeasured.as_str()) => ScoreOutcome::Unmeasured,
        MIN_FAILED_SEVERITY.. => ScoreOutcome::Fail,
        _ => ScoreOutcome::Pass,
    };
    let scaled = match subject {
        ScoreSubject::Span => value.and_then(|value| normalize(name, value)),
        ScoreSubject::Trace => value,
    };
    let pass_or_fail = match outcome {
        ScoreOutcome::Pass => Some(1.0),
        ScoreOutcome::Fail => Some(0.0),
        ScoreOutcome::Unmeasured => None,
    };
    let evaluator = text(attributes, "gen_ai.evaluation.evaluator.version").unwrap_or_default().to_owned();
    let original = match (value, label) {
        _ if subject == ScoreSubject::Trace => None,
        (Some(value), _) => Some(("value", json!(value))),
        (None, label) => label
            .filter(|label| *label != ScoreOutcome::Unmeasured.as_str())
            .map(|label| ("label", label.into())),
    };
    let mut metadata = score_metadata(attributes, prefix, outcome, original);
    let failed_metrics = prefixed("trace.failed_metrics").map(string_items).unwrap_or_default();
    if !failed_metrics.is_empty() {
        metadata.insert("failed_metrics".to_owned(), json!(failed_metrics));
    }
    let comment = text(attributes, "gen_ai.evaluation.explanation").map(str::to_owned);
    let comment = comment.or_else(|| {
        let cause = metadata.get("root_cause").and_then(|cause| cause.as_str());
        let cause = cause.map(|cause| format!(" Root cause: span {cause}.")).unwrap_or_default();
        (!failed_metrics.is_empty()).then(|| format!("Failed metrics: {}.{cause}", failed_metrics.join(", ")))
    });
    Some(Score {
        trace,
        span,
        subject,
        is_rootless: matches!(prefixed("trace.rootless"), Some(Value::BoolValue(true))),
        name: if subject == ScoreSubject::Trace { TRACE_VERDICT } else { name }.to_owned(),
        outcome,
        value: scaled.or(pass_or_fail).filter(|_| outcome != ScoreOutcome::Unmeasured),
        comment,
        is_llm_judged: text(attributes, "gen_ai.evaluation.evaluator.type") == Some("llm"),
        evaluator,
        session: text(attributes, "gen_ai.conversation.id").map(str::to_owned),
        service: service.map(str::to_owned),
        evaluated_at_nanos: record.observed_time_unix_nano,
        metadata,
    })
}

/// The metadata of a score. `original` is the key and the unscaled value, or the label.
fn score_metadata(
    attributes: &[KeyValue],
    prefix: &str,
    outcome: ScoreOutcome,
    original: Option<(&str, Json)>,
) -> Map<String, Json> {
    let mut metadata = Map::new();
    metadata.insert("result".to_owned(), outcome.as_str().into());
    let evaluator = text(attributes, "gen_ai.evaluation.evaluator.version").unwrap_or_default();
    if !evaluator.is_empty() {
        let id = text(attributes, "gen_ai.evaluation.evaluator.id").unwrap_or_default();
        metadata.insert("evaluator".to_owned(), id.into());
        metadata.insert("evaluator_version".to_owned(), evaluator.into());
    }
    if let Some((key, value)) = original {
        metadata.insert(key.to_owned(), value);
    }
    for (key, short_key) in [
        ("gen_ai.evaluation.target", "agent"),
        ("gen_ai.conversation.id", "session_id"),
        ("gen_ai.response.id", "response_id"),
        ("error.type", "error_type"),
    ] {
        if let Some(text) = text(attributes, key) {
            metadata.insert(short_key.to_owned(), text.into());
        }
    }
    let prefixed = |key: &str| attribute(attributes, &format!("{prefix}{key}"));
    for key in [
        "signature",
        "severity",
        "trace.reason",
        "trace.close_reason",
        "trace.root_cause",
        "trace.judge_budget",
    ] {
        if let Some(Value::StringValue(text)) = prefixed(key) {
            metadata.insert(key.trim_start_matches("trace.").to_owned(), text.as_str().into());
        }
    }
    if let Some(Value::IntValue(revision)) = prefixed("trace.revision") {
        metadata.insert("revision".to_owned(), (*revision).into());
    }
    metadata
}

fn attribute<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    attributes.iter().find(|kv| kv.key == key)?.value.as_ref()?.value.as_ref()
}

/// The value of an attribute if it is a string.
pub(in crate::export) fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    match attribute(attributes, key)? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

/// A finite number of type double; `None` for other values.
fn number(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::DoubleValue(number) => Some(*number).filter(|number| number.is_finite()),
        _ => None,
    }
}

fn string_items(value: &Value) -> Vec<&str> {
    let Value::ArrayValue(all) = value else { return Vec::new() };
    let values = all.values.iter().filter_map(|AnyValue { value, .. }| value.as_ref());
    let text = values.filter_map(|value| match value {
        Value::StringValue(text) => Some(text.as_str()),
        _ => None,
    });
    text.collect()
}
