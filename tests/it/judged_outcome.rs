//! The last question about a trace, from the configuration to the attributes.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use otel_verdict::config::{Config, load_with};
use otel_verdict::extensions::Extensions;
use otel_verdict::pipeline::offline::{EvaluatedRecording, RecordingEvaluation};
use otel_verdict::receive::Offer;
use serde_json::{Value, json};
use verdict_judge::{JudgeExtensions, JudgeRequest, Provider, Reply, ReplyFuture};
use verdict_otlp::value::SPAN_ATTRIBUTES;
use verdict_otlp::{Attributes, Signal, json as otlp_json};

/// A judge with a fixed score. Below 4 it reports an incomplete answer, and that this touched the outcome.
#[derive(Debug, Default)]
struct Judge {
    /// The names of the forms of all questions, in order.
    asked: Mutex<Vec<String>>,
    score: u8,
}

impl Provider for Judge {
    fn location(&self) -> &str {
        "in-process"
    }

    fn is_external(&self) -> bool {
        false
    }

    fn send<'a>(&'a self, request: JudgeRequest<'a>, _: Bytes) -> ReplyFuture<'a> {
        self.asked.lock().unwrap().push(request.form.name.to_owned());
        let finding = json!({ "problem": "The order is not named.", "span_id": "0000000000000003",
            "quote": "It arrives on Friday.", "category": "Goal Deviation", "severity": "high" });
        let answer = match request.form.name {
            "outcome" => json!({ "rationale": "The user cannot use it.", "touched_outcome": ["1"],
                "root_cause": "1", "score": 1 }),
            _ if self.score < 4 => json!({ "rationale": "r", "score": self.score, "findings": [finding] }),
            _ => json!({ "rationale": "r", "score": self.score, "findings": [] }),
        };
        Box::pin(async move { Ok(Reply::complete(answer.to_string())) })
    }
}

async fn evaluate(judge: &Arc<Judge>, verdict: &str) -> EvaluatedRecording {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    let exporter = "exporters: { otlp_grpc: { endpoint: '127.0.0.1:1', tls: { insecure: true } } }";
    std::fs::write(&file, format!("verdict: {verdict}\n{exporter}\n")).unwrap();
    let judges = JudgeExtensions::default().provider("own", Arc::clone(judge) as _);
    let extensions = Extensions { judges, ..Extensions::default() };
    let config: Config = load_with(&[file], &extensions).unwrap();
    let mut evaluation = RecordingEvaluation::with_extensions(&config, &extensions, 0).unwrap();
    let recorded = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/shop.json")).unwrap();
    let body: Bytes = otlp_json::decode(Signal::Traces, &recorded).unwrap();
    evaluation.add(&Offer { signal: Signal::Traces, body }).unwrap();
    let mut out = None;
    evaluation.finish(|one| out = Some(one)).await;
    out.unwrap()
}

/// An attribute of the span with this index, as text.
fn attribute(evaluated: &EvaluatedRecording, at: usize, key: &str) -> Option<String> {
    let id = evaluated.trace.trace.tree.spans[at].id;
    let envelopes = verdict_otlp::Interner::default();
    let split = verdict_otlp::split(&evaluated.annotated.spans[0].bytes, "verdict.", &envelopes).unwrap();
    let spans = split.groups.iter().flat_map(|group| &group.spans);
    let span = spans.into_iter().find(|span| span.id == id).unwrap();
    let found = Attributes::new(&span.bytes, SPAN_ATTRIBUTES).find(|(name, _)| *name == key);
    found.map(|(_, value)| match value {
        verdict_otlp::Value::Double(number) => number.to_string(),
        value => value.as_str().unwrap_or_default().to_owned(),
    })
}

const METRICS: &str = "completeness: { judges: [own] }, outcome: { judges: [own] }";

#[tokio::test]
async fn failing_trace_has_a_root_cause_and_a_score_by_its_judge() {
    let judge = Arc::new(Judge { score: 2, ..Judge::default() });
    let evaluated = evaluate(&judge, &format!("{{ metrics: {{ {METRICS} }} }}")).await;
    assert_eq!(*judge.asked.lock().unwrap(), ["completeness", "outcome"]);
    let value = |at, key| attribute(&evaluated, at, key);
    assert_eq!(value(0, "verdict.trace.root_cause").as_deref(), Some("0000000000000003"));
    assert_eq!(value(0, "verdict.trace.score").as_deref(), Some("0.2"));
    let findings: Vec<Value> = serde_json::from_str(&value(2, "verdict.findings").unwrap()).unwrap();
    assert_eq!(
        (&findings[0]["touched_outcome"], &findings[0]["metric"]),
        (&json!(true), &json!("completeness"))
    );
    assert_eq!(
        value(0, "verdict.findings"),
        value(2, "verdict.findings"),
        "where it began, and on the judged span"
    );
}

#[tokio::test]
async fn passing_trace_is_not_asked_about_and_the_question_can_be_turned_off() {
    let judge = Arc::new(Judge { score: 5, ..Judge::default() });
    let passing = evaluate(&judge, &format!("{{ metrics: {{ {METRICS} }} }}")).await;
    assert_eq!(*judge.asked.lock().unwrap(), ["completeness"]);
    assert_eq!(attribute(&passing, 0, "verdict.trace.score"), None);
    for metrics in [
        "completeness: { judges: [own] }, outcome: { enabled: false, judges: [own] }",
        "completeness: { judges: [own] }",
    ] {
        let judge = Arc::new(Judge { score: 2, ..Judge::default() });
        let failing = evaluate(&judge, &format!("{{ metrics: {{ {metrics} }} }}")).await;
        assert_eq!(*judge.asked.lock().unwrap(), ["completeness"], "{metrics}");
        assert_eq!(attribute(&failing, 0, "verdict.trace.score"), None);
        assert!(
            attribute(&failing, 0, "verdict.trace.root_cause").is_some(),
            "where the worst failure began"
        );
    }
}
