//! An evaluated trace as the page shows it: a row of the list, and its tree.
//!
//! Browsers receive [`TraceRow`] and [`TraceDetail`] as JSON. Their numbers of spans and bytes of text are bounded.

use std::collections::BTreeMap;

use serde::Serialize;

/// A trace in the list.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct TraceRow {
    /// The position of the trace in the history: later verdicts have higher numbers.
    pub seq: u64,
    pub trace_id: String,
    /// `pass`, `fail`, `unmeasured` or `open`.
    pub result: &'static str,
    /// Why there is no verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    pub revision: u32,
    /// The time of the verdict in milliseconds since 1970.
    pub judged_at: u64,
    /// The start of the first span in milliseconds since 1970.
    pub start: u64,
    pub duration_ms: f64,
    /// The name of the root span.
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The outermost agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The id of the session's user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    pub spans: usize,
    /// Spans that fail by their own metrics and whose failure reached the root.
    pub failed_spans: usize,
    pub failed_metrics: Vec<String>,
    pub categories: Vec<&'static str>,
    /// The worst severity of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    pub agents: Vec<UsageCount>,
    pub tools: Vec<UsageCount>,
    pub models: Vec<String>,
    /// Tokens of the agents' model calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The recorded cost of these calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judge_cost_usd: Option<f64>,
    pub close_reason: &'static str,
    pub incomplete: bool,
}

/// The runs of an agent, or the calls of a tool.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct UsageCount {
    pub name: String,
    pub count: u64,
    pub failed: u64,
}

/// The details of a trace that the page shows in addition to its row.
#[derive(Debug, Serialize)]
pub(crate) struct TraceDetail {
    /// Whether the content of the trace is not shown.
    #[serde(rename = "closed")]
    pub is_content_hidden: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_cause: Option<String>,
    pub failure_chain: Vec<String>,
    pub failed_spans: Vec<String>,
    pub measured: usize,
    pub unmeasured: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_probability: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeNote>,
    /// In the order of the tree, parents before their children.
    pub spans: Vec<SpanNode>,
    /// Spans that are left out.
    pub omitted: usize,
}

/// The judges' statement about the outcome.
#[derive(Debug, Serialize)]
pub(crate) struct OutcomeNote {
    pub score: f64,
    pub judge: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rationale: Option<String>,
}

/// A span in the tree of a trace.
#[derive(Debug, Serialize)]
pub(crate) struct SpanNode {
    pub id: String,
    /// The index of the parent, or of the nearest ancestor that is not left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<usize>,
    /// The recorded parent of a span without `up`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    pub name: String,
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `None` if neither the span nor a descendant was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<&'static str>,
    /// `self`, `children` or `both`, if it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
    /// Milliseconds after the start of the trace.
    pub offset_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Signs that the span itself failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// Whether the span arrived after the trace had closed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// The input and output of the span; only if a failure is about the span or rests on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricNode>,
    /// Evaluations of the span that other programs recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evaluations: Vec<EvaluationNode>,
}

/// An evaluation that another program recorded.
#[derive(Debug, Serialize)]
pub(crate) struct EvaluationNode {
    pub name: String,
    /// The label, or whether it passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
    /// Why there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The evaluator, its version and its type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
}

/// A measurement of a span.
#[derive(Debug, Serialize)]
pub(crate) struct MetricNode {
    pub metric: String,
    pub result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    pub judge: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rationale: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<FindingNode>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, String>,
}

/// A finding of a measurement.
#[derive(Debug, Serialize)]
pub(crate) struct FindingNode {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rationale: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// The span of the quote, if it is not this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen_in: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cited: Vec<String>,
    /// The span in which the failure began, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<&'static str>,
    pub severity: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blame: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub touched_outcome: Option<bool>,
    /// Whether the finding is a note, which fails no metric.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub note: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
}
