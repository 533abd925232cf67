//! The JSON of requests to evaluators and of their answers, version 1.
//!
//! The schemas `docs/schemas/evaluation-request.v1.json` and `docs/schemas/evaluation-answer.v1.json` are generated
//! from these types. Within a version keys are only added to requests: evaluators ignore keys that they do not know.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use verdict_otlp::trace::Kind;

use crate::measure::ask::form::{FINDINGS, LABEL, RATIONALE, SCORE, severity};
use crate::measure::table::{MetricSpec, Scale};
use crate::measure::{AnswerForm, Prompt, Question};

/// The version of the protocol.
pub const VERSION: u32 = 1;

/// The body of a request to an evaluator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EvaluationRequest {
    /// The version of the protocol: 1.
    pub version: u32,
    /// `judges.<name>.model`: name and version of the evaluator, as configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The metric to measure.
    pub metric: String,
    /// The values that an answer may have.
    pub scale: RequestedScale,
    /// The evaluated part of the trace.
    pub subject: EvaluatedSubject,
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// Spans are missing: the run may have gone on, so that an absent answer is no defect.
    pub incomplete: bool,
    /// The agents in the part that is evaluated, outermost first; at most 64.
    pub agents: Vec<AgentOutline>,
    /// The spans of the part that is evaluated, in the order of their start.
    pub spans: Vec<SpanOutline>,
    /// The number of spans that were left out of the middle, since the request would be too large.
    pub omitted_spans: u64,
    /// Of the metric `checklist.run_code`: the Python program to run. What it prints is the rationale of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Set if the same request was answered before in a form that cannot be used: what was wrong with the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<String>,
}

/// The values of a metric.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RequestedScale {
    /// A number between `min` and `max`, which is the best.
    Score { min: u8, max: u8 },
    /// One of these labels, from good to bad.
    Label { labels: Vec<String> },
}

/// The evaluated part of the trace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EvaluatedSubject {
    pub r#type: SubjectType,
    /// The span on which the measurement is written: the step, the agent's span, or the root.
    pub span_id: String,
}

/// The kind of a subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubjectType {
    /// One model or tool call.
    Span,
    /// The run of an agent with all beneath it.
    Agent,
    /// The whole trace.
    Trace,
}

/// An agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentOutline {
    /// The span of its run.
    pub span_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The span of the agent that called it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<String>,
    /// The request to the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Its final answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// A span.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SpanOutline {
    /// 16 hexadecimal digits.
    pub span_id: String,
    /// The nearest span above it in this request; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<String>,
    pub kind: Kind,
    /// The name of the called tool, otherwise of the span.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The span of the agent that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_span_id: Option<String>,
    /// The model of a model call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Nanoseconds since 1970, as in OTLP/JSON a string.
    pub start_time_unix_nano: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    /// Tokens of a model call, input and output together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Whether an error was recorded; its text is in `content`.
    pub failed: bool,
    /// The state of its input: `present`, `absent`, `redacted` or `truncated`.
    pub input: String,
    /// The state of its output.
    pub output: String,
    /// Texts that were sent to it and that it produced, in this order. Secrets are removed; a text of a service that is
    /// withheld is `(withheld)`.
    pub content: Vec<ContentOutline>,
    /// The number of texts that an earlier span in this request contains already: every model call repeats the
    /// conversation before it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeated: u64,
    /// The number of texts that were left out of the middle of this span, since the request would be too large.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_texts: u64,
}

/// A text.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ContentOutline {
    pub r#type: ContentType,
    /// A text that is too long is cut in its middle, with a note of how many bytes were left out.
    pub text: String,
}

/// The role of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContentType {
    /// The tools that were offered to a model, one per line.
    Tools,
    /// Instructions of the system.
    System,
    /// A message of a user or another caller.
    User,
    /// An earlier message of a model, in the input.
    Assistant,
    /// The result of a tool, in the input of a model.
    ToolMessage,
    /// Arguments of a tool call.
    Arguments,
    /// Text that a model wrote.
    Output,
    /// Recorded reasoning of a model.
    Thinking,
    /// A tool call that a model requested: `name(arguments)`.
    ToolCall,
    /// The return value of a tool or a search.
    Result,
    /// A recorded error.
    Error,
}

/// The body of an evaluator's answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvaluationAnswer {
    /// Required for a scale of scores: a number on it; null if the metric does not apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Required for a scale of labels: one of them; null if the metric does not apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Why; 600 bytes of it are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rationale: Option<String>,
    /// The problems. A value that fails needs at least one with a valid quotation.
    #[serde(default)]
    pub findings: Vec<EvaluationFinding>,
    /// The cost of the answer, for budgets; if absent, estimated at one token per three bytes of request and answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<EvaluationUsage>,
}

/// A problem.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvaluationFinding {
    /// The expected and the actual content; 400 bytes of it are used.
    pub problem: String,
    /// The span where the problem began, one of those in the request.
    pub span_id: String,
    /// The evidence: a text or a value of that span, verbatim, or of a task or instruction; white space does not count.
    pub quote: String,
    /// Default `medium`. How much the problem matters: `low`, `medium` or `high`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// Default none. A failure category of the TRAIL taxonomy, as in `verdict.category`; another text counts as none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
}

/// The cost of an answer.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvaluationUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The JSON schema of requests.
pub fn request_schema() -> Value {
    schemars::schema_for!(EvaluationRequest).to_value()
}

/// The JSON schema of answers. The answer to one request must also have a value on its scale.
#[cfg(test)]
pub(crate) fn answer_schema() -> Value {
    schemars::schema_for!(EvaluationAnswer).to_value()
}

impl RequestedScale {
    pub(crate) fn new(scale: Scale) -> RequestedScale {
        match scale {
            Scale::Labels(labels) => {
                RequestedScale::Label { labels: labels.iter().map(|label| (*label).to_owned()).collect() }
            }
            Scale::Scores(min, max) => RequestedScale::Score { min, max },
            Scale::Quantity(_) => RequestedScale::Score { min: 0, max: 1 },
        }
    }

    /// The schema of the value, with the key that it has.
    fn value_schema(&self) -> (&'static str, Value) {
        match self {
            RequestedScale::Score { min, max } => {
                (SCORE, json!({ "type": ["number", "null"], "minimum": min, "maximum": max }))
            }
            RequestedScale::Label { labels } => {
                let values: Vec<Value> =
                    labels.iter().map(|label| json!(label)).chain([Value::Null]).collect();
                (LABEL, json!({ "enum": values }))
            }
        }
    }
}

/// The form of the answers to a metric of this row.
pub(crate) fn form(row: &MetricSpec) -> Arc<AnswerForm> {
    form_of(row.name, &RequestedScale::new(row.scale))
}

/// The form of the answers on a scale.
fn form_of(name: &'static str, scale: &RequestedScale) -> Arc<AnswerForm> {
    let text = json!({ "type": "string" });
    let optional = json!({ "type": ["string", "null"] });
    let finding = json!({
        "type": "object",
        "properties": {
            "problem": text, "span_id": text, "quote": text, "category": optional,
            "severity": { "anyOf": [severity(), { "type": "null" }] },
        },
        "required": ["problem", "span_id", "quote"],
        "additionalProperties": false,
    });
    let (key, value) = scale.value_schema();
    let schema = json!({
        "type": "object",
        "properties": {
            key: value,
            RATIONALE: optional,
            FINDINGS: { "type": "array", "items": finding },
        },
        "required": [key],
        "additionalProperties": false,
    });
    Arc::new(AnswerForm { name, schema, score: None })
}

/// The metric of requests to run a program.
const RUN_CODE: &str = "checklist.run_code";

/// A request to run a program that a judge has written about the span `span_id`.
pub fn run_code(key: impl Into<String>, code: &str, span_id: String, trace_id: String) -> Question {
    let labels = ["ok", "failed"].map(str::to_owned).to_vec();
    let scale = RequestedScale::Label { labels };
    let form = form_of("verdict", &scale);
    let request = EvaluationRequest {
        version: VERSION,
        model: None,
        metric: RUN_CODE.to_owned(),
        scale,
        subject: EvaluatedSubject { r#type: SubjectType::Agent, span_id },
        trace_id,
        incomplete: false,
        agents: Vec::new(),
        spans: Vec::new(),
        omitted_spans: 0,
        code: Some(code.to_owned()),
        correction: None,
    };
    Question::new(key, Prompt::new("", json!(request).to_string()), form)
}

/// The output of a program, after a line `failed` if the program ended with an error; `Err` if it was not run, with the
/// reason if the runner gave one.
pub(crate) fn read_run(answer: &Value) -> Result<String, String> {
    let text = answer.get(RATIONALE).and_then(Value::as_str).unwrap_or_default();
    match answer.get(LABEL).and_then(Value::as_str) {
        Some("ok") => Ok(text.to_owned()),
        Some(_) => Ok(format!("failed\n{text}")),
        None => Err(format!("it was not run: {text}")),
    }
}

/// A question about an invented tool call, to examine whether an evaluator answers for the metric `metric` and its
/// scale.
pub fn probe(metric: &str, scale: RequestedScale) -> Question {
    let id = "00f067aa0ba902b7";
    let content = |r#type, text: &str| ContentOutline { r#type, text: text.to_owned() };
    let span = SpanOutline {
        span_id: id.to_owned(),
        parent_span_id: None,
        kind: Kind::Tool,
        name: Some("get_order".to_owned()),
        service: Some("shop".to_owned()),
        agent_span_id: None,
        model: None,
        start_time_unix_nano: "1700000000000000000".to_owned(),
        duration_ms: Some(12.0),
        tokens: None,
        failed: false,
        input: "present".to_owned(),
        output: "present".to_owned(),
        content: vec![
            content(ContentType::Arguments, r#"{"id": 7}"#),
            content(ContentType::Result, r#"{"id": 7, "state": "shipped"}"#),
        ],
        repeated: 0,
        omitted_texts: 0,
    };
    let form = form_of("verdict", &scale);
    let request = EvaluationRequest {
        version: VERSION,
        model: None,
        metric: metric.to_owned(),
        scale,
        subject: EvaluatedSubject { r#type: SubjectType::Span, span_id: id.to_owned() },
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
        incomplete: false,
        agents: Vec::new(),
        spans: vec![span],
        omitted_spans: 0,
        code: None,
        correction: None,
    };
    Question::new("check", Prompt::new("", json!(request).to_string()), form)
}
