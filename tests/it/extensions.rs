//! Metrics, dialects, providers and exporters of a program that embeds the service: also after a reload, and
//! named in a configuration file.

use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::trace::v1::Span;
use otel_verdict::config::{load, load_with};
use otel_verdict::export::{ExportClient, ExportFuture, ExportRequest, ExportResult};
use otel_verdict::extensions::Extensions;
use otel_verdict::pipeline::offline::RecordingEvaluation;
use otel_verdict::pipeline::service::Service;
use otel_verdict::receive::Offer;
use prost::Message as _;
use serde_json::json;
use verdict_eval::metrics::{
    Context, CustomMetric, Measured, Measurement, Metric, MetricProgress, MetricSpec, Scale, Scored, Value,
};
use verdict_eval::questions::{Answer, AnswerForm, Prompt, Question};
use verdict_eval::trace::Kind;
use verdict_judge::{JudgeExtensions, JudgeRequest, Provider, Reply, ReplyFuture};
use verdict_otlp::Signal;

use crate::reload::call;
use crate::support::{Process, config};

static NAME_LENGTH: MetricSpec = MetricSpec::custom("style.name_length", Scale::UNIT, Some(0.5));
static POLITENESS: MetricSpec = MetricSpec::custom("style.politeness", Scale::UNIT, Some(0.5));

fn score(context: &Context<'_>, row: &MetricSpec, score: f64) -> MetricProgress {
    let passed = score >= context.threshold();
    let measured = Measured { value: Value::Score(score), passed, findings: Vec::new() };
    MetricProgress::Done(vec![Measurement::new(context.at, row.name, "test/1", Ok(measured))])
}

/// A metric that a rule answers.
struct NameLength;

impl Metric for NameLength {
    fn step(&self, context: &Context<'_>, _: &[Answer]) -> MetricProgress {
        score(context, &NAME_LENGTH, 1.0)
    }
}

/// A metric that asks one question per model call, then a second one with the first answer.
struct Politeness;

impl Metric for Politeness {
    fn step(&self, context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
        if context.trace.views[context.at].kind != Kind::Llm {
            return MetricProgress::Done(Vec::new());
        }
        let ask = |key: &str, text: String| {
            let properties = json!({ "polite": { "type": "boolean" } });
            let schema = json!({ "type": "object", "properties": properties, "required": ["polite"], "additionalProperties": false });
            let form = AnswerForm { name: "politeness", schema, score: None };
            let prompt = Prompt::new("Is the answer polite?", text);
            MetricProgress::Ask(vec![Question {
                key: key.to_owned(),
                prompt,
                form: Arc::new(form),
                judges: Vec::new(),
            }])
        };
        let polite = |answer: &Answer| answer.opinions.clone().map(|all| all[0].value["polite"] == true);
        match answers {
            [] => ask("first", "round 1".to_owned()),
            [first] => ask("second", format!("round 2, after {:?}", polite(first))),
            [.., last] => match polite(last) {
                Ok(polite) => score(context, &POLITENESS, f64::from(u8::from(polite))),
                Err(reason) => MetricProgress::Done(vec![Measurement::new(
                    context.at,
                    POLITENESS.name,
                    "test/1",
                    Err(reason),
                )]),
            },
        }
    }
}

/// A judge in this process: answers `pass` until the second round.
#[derive(Debug, Default)]
struct InProcess(AtomicUsize);

impl Provider for InProcess {
    fn location(&self) -> &str {
        "in-process"
    }

    fn is_external(&self) -> bool {
        false
    }

    fn send<'a>(&'a self, request: JudgeRequest<'a>, _: Bytes) -> ReplyFuture<'a> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let polite = request.prompt.user.contains("round 1");
        Box::pin(async move { Ok(Reply::complete(json!({ "polite": polite }).to_string())) })
    }
}

fn extensions(provider: &Arc<InProcess>) -> Extensions {
    let scored = Scored { judges: vec!["own".to_owned()], ..POLITENESS.defaults() };
    Extensions {
        metrics: vec![
            CustomMetric::new(&NAME_LENGTH, NAME_LENGTH.defaults(), NameLength),
            CustomMetric::new(&POLITENESS, scored, Politeness),
        ],
        judges: JudgeExtensions::default().provider("own", Arc::clone(provider) as _),
        ..Extensions::default()
    }
}

fn result<'a>(span: &'a Span, metric: &str) -> Option<&'a str> {
    let key = format!("verdict.{metric}.result");
    let value = span.attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?;
    match value.value.as_ref()? {
        opentelemetry_proto::tonic::common::v1::any_value::Value::StringValue(text) => Some(text),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_metrics_and_their_judge_stay_registered_after_a_reload() {
    let provider = Arc::new(InProcess::default());
    let process = Process::start_with("verdict: { close: { quiet: 50ms } }", extensions(&provider)).await;
    process.client().spans(call(1)).await;
    process.until("the span before the reload", |d| d.spans().len() == 1).await;
    let mut new = process.service.config();
    new.verdict.evaluation.log_unmeasured = true;
    process.service.reload(&new).unwrap();
    process.client().spans(call(2)).await;
    process.until("the span after the reload", |d| d.spans().len() == 2).await;
    let page = process.service.telemetry().render(otel_verdict::telemetry::TextFormat::OpenMetrics);
    for metric in [NAME_LENGTH.name, POLITENESS.name] {
        assert!(
            page.contains(&format!("metric=\"{metric}\"")),
            "{metric} is not in the self-metrics:\n{page}"
        );
    }
    let destination = process.stop().await;
    for span in destination.spans() {
        assert_eq!(result(&span, NAME_LENGTH.name), Some("pass"), "{span:?}");
        assert_eq!(result(&span, POLITENESS.name), Some("fail"), "{span:?}");
        assert_eq!(result(&span, "trace"), Some("fail"), "{span:?}");
    }
    assert_eq!(
        provider.0.load(Ordering::Relaxed),
        2,
        "the second trace asks the same questions, which are cached"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn recordings_are_evaluated_with_custom_metrics_and_their_judge_in_async_code() {
    let provider = Arc::new(InProcess::default());
    let mut evaluation =
        RecordingEvaluation::with_extensions(&config(1, ""), &extensions(&provider), 0).unwrap();
    evaluation.add(&Offer { signal: Signal::Traces, body: call(1).encode_to_vec().into() }).unwrap();
    let evaluating = async move {
        let mut results = Vec::new();
        evaluation.finish(|evaluated| results.push(evaluated.trace.measurements)).await;
        results
    };
    // On a worker thread of the runtime that also runs the judges' clients.
    let results = tokio::spawn(evaluating).await.unwrap();
    let passed = |name| {
        let found = results[0].iter().find(|m| m.metric == name);
        found.and_then(|m| m.outcome.as_ref().ok()).map(|measured| measured.passed)
    };
    assert_eq!(
        (results.len(), passed(NAME_LENGTH.name), passed(POLITENESS.name)),
        (1, Some(true), Some(false))
    );
    assert_eq!(provider.0.load(Ordering::Relaxed), 2, "each round asks one question");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_reload_leaves_the_budgets_of_judges() {
    let provider = Arc::new(InProcess::default());
    let spent = "verdict: { close: { quiet: 50ms } }\njudging: { budget: { per_day: { tokens: 1 } } }";
    let process = Process::start_with(spent, extensions(&provider)).await;
    let old = process.service.config();
    let mut new = old.clone();
    new.judging.budget.per_day.tokens = None;
    new.verdict.evaluation.metrics.path.tasks = vec!["/missing/tasks.yaml".into()];
    let refused = process.service.reload(&new).unwrap_err().to_string();
    assert!(refused.contains("/missing/tasks.yaml"), "{refused}");
    process.client().spans(call(1)).await;
    process.until("the span after the refused reload", |d| d.spans().len() == 1).await;
    assert_eq!(provider.0.load(Ordering::Relaxed), 0, "the day's tokens are spent");
    assert_eq!(process.service.config().judging, old.judging);

    new.verdict.evaluation.metrics.path.tasks.clear();
    process.service.reload(&new).unwrap();
    process.client().spans(call(2)).await;
    process.until("the span after the reload", |d| d.spans().len() == 2).await;
    assert_eq!(provider.0.load(Ordering::Relaxed), 2);
    process.stop().await;
}

#[tokio::test]
async fn custom_metric_with_an_undefined_judge_prevents_the_start() {
    let settings = Scored { judges: vec!["absent".to_owned()], ..POLITENESS.defaults() };
    let metrics = vec![CustomMetric::new(&POLITENESS, settings, Politeness)];
    let started = Service::start_with(&config(1, ""), Extensions { metrics, ..Extensions::default() }).await;
    let error = started.unwrap_err().to_string();
    assert_eq!(error, "metric 'style.politeness': 'absent' is not defined under judges");
}

#[test]
fn provided_judge_may_be_named_in_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    let text =
        "verdict: { metrics: { completeness: { judges: [rules, own] } } }\njudges: { own: { samples: 3 } }";
    std::fs::write(&file, text).unwrap();
    let config = load_with(&[&file], &extensions(&Arc::default())).unwrap();
    assert_eq!(config.judges["own"].samples, 3);
    let error = load(&[&file]).unwrap_err().to_string();
    assert!(error.contains("judges.own.endpoint"), "{error}");
}

/// A destination in this process that is busy at the first request.
#[derive(Debug, Default)]
struct ScriptedDestination {
    requests: Mutex<Vec<Bytes>>,
    rejecting: AtomicBool,
}

impl ScriptedDestination {
    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

impl ExportClient for ScriptedDestination {
    fn export<'a>(&'a self, request: &'a ExportRequest) -> ExportFuture<'a> {
        let mut requests = self.requests.lock().unwrap();
        requests.push(request.to_bytes());
        let result = match requests.len() {
            1 => ExportResult::Retry { after: Some(Duration::from_millis(1)), reason: "busy".to_owned() },
            _ if self.rejecting.load(Ordering::Relaxed) => ExportResult::Rejected("full".to_owned()),
            _ => ExportResult::ACCEPTED,
        };
        Box::pin(ready(result.into()))
    }
}

const CUSTOM_EXPORTER_CONFIG: &str = "exporters: { custom/own: { signals: [traces], retry_on_failure: { initial_interval: 1ms } } }\n\
    service: { exporters: [otlp_grpc, custom/own] }\nverdict: { close: { quiet: 50ms } }";

#[tokio::test(flavor = "multi_thread")]
async fn custom_exporter_retries_dead_letters_and_acknowledges_also_after_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let destination = Arc::new(ScriptedDestination::default());
    let text = format!("{CUSTOM_EXPORTER_CONFIG}\nstorage: {{ directory: {:?} }}", folder.path());
    let extensions = || Extensions {
        exporters: [("custom/own".to_owned(), Arc::clone(&destination) as _)].into(),
        ..Extensions::default()
    };
    let process = Process::start_with(&text, extensions()).await;
    process.client().spans(call(1)).await;
    process.until("the retried request", |_| destination.count() == 2).await;
    {
        let requests = destination.requests.lock().unwrap();
        assert_eq!(requests[0], requests[1], "the same request is sent again");
        let text = verdict_otlp::json::encode(Signal::Traces, &requests[1]).unwrap();
        assert!(String::from_utf8(text).unwrap().contains("verdict."), "annotated");
    }

    destination.rejecting.store(true, Ordering::Relaxed);
    let mut new = process.service.config();
    new.verdict.evaluation.log_unmeasured = true;
    process.service.reload(&new).unwrap();
    process.client().spans(call(2)).await;
    process.until("the rejected request", |_| destination.count() == 3).await;
    process.stop().await;
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
    let letters = files.filter(|name| name.to_string_lossy().contains("dead")).count();
    assert_eq!(letters, 1, "the rejected request is a dead letter");

    let restarted = Process::start_with(&text, extensions()).await;
    restarted.stop().await;
    assert_eq!(destination.count(), 3, "the journal does not retain what was delivered or dead-lettered");
}

#[tokio::test]
async fn custom_exporter_without_a_client_prevents_the_start() {
    let error = Service::start(&config(1, CUSTOM_EXPORTER_CONFIG)).await.unwrap_err().to_string();
    assert_eq!(error, "exporters.custom/own: no client is registered under this id");
}
