//! Reads alerts from evaluation events of closed traces and from alarms of open traces.
//!
//! In: the log records of the scope `otel-verdict`. Out: one [`Alert`] per verdict of a trace, per alarm, and per
//! trace with a spent budget. Explanations were redacted, cut or left out when the event was written.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use serde::Serialize;
use uuid::Uuid;
use verdict_eval::annotation::{ALARM_EVENT, PATH_ALARM_EVENT, SCOPE_NAME};
use verdict_eval::metrics::HARMFUL_CALL;
use verdict_otlp::trace::{SpanId, TraceId};

use crate::export::config::Include;
use crate::export::scores::{Score, ScoreOutcome, ScoreSubject, all_scores, text, text_uuid};
use crate::export::webhook_config::{AlertSeverity, Occasion};

/// Maximum number of failing measurements in an alert. Those of the root cause come first.
const MAX_FAILURES: usize = 5;

/// A failing measurement.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct FailingMeasurement {
    pub metric: String,
    pub span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}

/// One alert. The serialised fields are the content of `data` in a request.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Alert {
    /// The same id for every attempt, even after a restart.
    #[serde(skip)]
    pub id: Uuid,
    #[serde(skip)]
    pub occasion: Occasion,
    /// Alerts with the same key are repeats of one another.
    #[serde(skip)]
    pub key: String,
    /// The key of the alerts that this one revokes: those of the other state of the same alarm.
    #[serde(skip)]
    pub revoked_key: Option<String>,
    /// The time of the verdict or alarm, in nanoseconds since 1970.
    #[serde(skip)]
    pub unix_nanos: u64,
    pub trace_id: String,
    /// The root cause, the span of the alarm, or the root.
    pub span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<AlertSeverity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_metrics: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailingMeasurement>,
    /// The cause of an alarm, as in `verdict.alarm.cause`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The state of an alarm: `raised` or `retracted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}

/// The alerts of some events, in their order.
pub(super) fn alerts(request: &ExportLogsServiceRequest, prefix: &str) -> Vec<Alert> {
    let scores = all_scores(request, Include::Failed, prefix);
    let mut all = Vec::new();
    for verdict in scores.iter().filter(|score| score.subject == ScoreSubject::Trace) {
        all.push(verdict_alert(verdict, &scores));
        if verdict.metadata.contains_key("judge_budget") {
            all.push(budget_alert(verdict));
        }
    }
    for resource_logs in &request.resource_logs {
        let attributes = resource_logs.resource.as_ref().map(|resource| &resource.attributes[..]);
        let service = text(attributes.unwrap_or_default(), "service.name");
        let scopes = resource_logs
            .scope_logs
            .iter()
            .filter(|s| s.scope.as_ref().is_some_and(|s| s.name == SCOPE_NAME));
        let records = scopes.flat_map(|scope| &scope.log_records);
        all.extend(records.filter_map(|record| alarm_alert(record, service, prefix)));
    }
    all
}

/// A text in the metadata of a score.
fn metadata_text(score: &Score, key: &str) -> Option<String> {
    score.metadata.get(key)?.as_str().map(str::to_owned)
}

/// An alert with the fields that alerts of every occasion have. [`Alert::with_identity`] completes it.
fn base_alert(score: &Score, occasion: Occasion) -> Alert {
    Alert {
        unix_nanos: score.evaluated_at_nanos,
        trace_id: score.trace.to_string(),
        span_id: metadata_text(score, "root_cause").unwrap_or_else(|| score.span.to_string()),
        revision: score.metadata.get("revision").and_then(|revision| revision.as_u64()),
        service: score.service.clone(),
        agent: metadata_text(score, "agent"),
        session_id: score.session.clone(),
        ..Alert::empty(occasion)
    }
}

impl Alert {
    /// An alert without an id, a key or a subject.
    pub(super) fn empty(occasion: Occasion) -> Alert {
        Alert {
            id: Uuid::nil(),
            occasion,
            key: String::new(),
            revoked_key: None,
            unix_nanos: 0,
            trace_id: String::new(),
            span_id: String::new(),
            revision: None,
            service: None,
            agent: None,
            session_id: None,
            severity: None,
            signature: None,
            failed_metrics: Vec::new(),
            failures: Vec::new(),
            cause: None,
            state: None,
            explanation: None,
        }
    }

    /// Sets the id and the key. `subject` distinguishes the alerts of one trace; without a key, the key is made of the
    /// subject, the service and the agent.
    fn with_identity(mut self, subject: &str, key: Option<String>) -> Alert {
        let revision = self.revision.unwrap_or(0);
        self.id = text_uuid(&format!("alert {subject} {} {revision}", self.trace_id));
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        self.key =
            key.unwrap_or_else(|| format!("{subject}\n{}\n{}", text(&self.service), text(&self.agent)));
        self
    }
}

fn verdict_alert(verdict: &Score, scores: &[Score]) -> Alert {
    let occasion = match verdict.outcome {
        ScoreOutcome::Fail => Occasion::Fail,
        ScoreOutcome::Pass => Occasion::Pass,
        ScoreOutcome::Unmeasured => Occasion::Unmeasured,
    };
    let mut alert = base_alert(verdict, occasion);
    alert.explanation = verdict.comment.clone();
    if occasion != Occasion::Fail {
        return alert.with_identity(occasion.as_str(), None);
    }
    alert.signature = metadata_text(verdict, "signature");
    alert.severity = metadata_text(verdict, "severity").and_then(|text| AlertSeverity::parse(&text));
    let metrics = verdict.metadata.get("failed_metrics").and_then(|all| all.as_array());
    let metrics = metrics.into_iter().flatten().filter_map(|metric| metric.as_str().map(str::to_owned));
    alert.failed_metrics = metrics.collect();
    let failing = scores.iter().filter(|score| {
        score.subject == ScoreSubject::Span
            && score.outcome == ScoreOutcome::Fail
            && score.trace == verdict.trace
    });
    let mut failures: Vec<FailingMeasurement> = failing
        .map(|score| FailingMeasurement {
            metric: score.name.clone(),
            span_id: score.span.to_string(),
            explanation: score.comment.clone(),
        })
        .collect();
    failures.sort_by_key(|failure| failure.span_id != alert.span_id);
    failures.truncate(MAX_FAILURES);
    alert.failures = failures;
    // Services with agents of the same name may fail in the same way.
    let service = alert.service.as_deref().unwrap_or_default();
    let key = alert.signature.as_ref().map(|signature| format!("{signature}\n{service}"));
    alert.with_identity(occasion.as_str(), key)
}

fn budget_alert(verdict: &Score) -> Alert {
    let explanation = "Metrics of this trace are unmeasured, because the budget of the judges is spent.";
    let alert = Alert { explanation: Some(explanation.to_owned()), ..base_alert(verdict, Occasion::Budget) };
    alert.with_identity("budget", Some("budget".to_owned()))
}

fn alarm_alert(record: &LogRecord, service: Option<&str>, prefix: &str) -> Option<Alert> {
    let prefixed = |key: &str| text(&record.attributes, &format!("{prefix}{key}")).map(str::to_owned);
    let (cause, state, subject, explanation) = match record.event_name.as_str() {
        PATH_ALARM_EVENT => {
            let subject =
                format!("{} {}", prefixed("path.task")?, prefixed(&format!("{HARMFUL_CALL}.label"))?);
            (
                "harmful_call".to_owned(),
                prefixed("path.alarm")?,
                subject,
                prefixed(&format!("{HARMFUL_CALL}.explanation")),
            )
        }
        ALARM_EVENT => {
            (prefixed("alarm.cause")?, "raised".to_owned(), String::new(), prefixed("alarm.explanation"))
        }
        _ => return None,
    };
    let span = SpanId(record.span_id[..].try_into().ok()?);
    let trace_id = TraceId(record.trace_id[..].try_into().ok()?).to_string();
    // The key contains the trace: an alarm about another run of the same agent is no repeat.
    let key = |state: &str| format!("{cause} {state} {subject}\n{trace_id}");
    let other_state = if state == "raised" { "retracted" } else { "raised" };
    let (revoked_key, key) = (Some(key(other_state)), key(&state));
    // Another call may be harmful after an alarm was retracted.
    let identity = format!("{cause} {state} {subject} {span}");
    let alert = Alert {
        revoked_key,
        unix_nanos: record.observed_time_unix_nano,
        trace_id,
        span_id: span.to_string(),
        service: service.map(str::to_owned),
        agent: text(&record.attributes, "gen_ai.agent.name").map(str::to_owned),
        session_id: text(&record.attributes, "gen_ai.conversation.id").map(str::to_owned),
        cause: Some(cause),
        state: Some(state),
        explanation,
        ..Alert::empty(Occasion::Alarm)
    };
    Some(alert.with_identity(&identity, Some(key)))
}
