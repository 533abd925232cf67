//! A custom dialect and a custom provider, added from outside the crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use verdict_config::Secret;
use verdict_eval::metrics::Unmeasured;
use verdict_eval::questions::{Answer, Ask, QuestionContext};
use verdict_judge::{
    Dialect, Failure, FailureKind, JudgeConfig, JudgeConfigs, JudgeError, JudgeExtensions, JudgeRequest,
    Judges, JudgingConfig, Provider, Reply, ReplyFuture, TokenCount,
};
use verdict_otlp::trace::TraceId;
use verdict_telemetry::JudgeMetrics;
use wiremock::matchers::{body_json, header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

#[path = "../src/testing.rs"]
mod testing;

/// An API that takes one text and returns one text.
#[derive(Debug)]
struct Generate;

impl Dialect for Generate {
    fn name(&self) -> &str {
        "generate"
    }

    fn path(&self) -> &str {
        "/generate"
    }

    fn headers(&self) -> &[(&str, &str)] {
        &[("x-api-version", "7")]
    }

    fn auth(&self, key: &Secret) -> (String, Secret) {
        ("x-token".to_owned(), key.clone())
    }

    fn write(&self, request: &JudgeRequest<'_>) -> Map<String, Value> {
        let turns = request.turns().into_iter().map(|(_, text)| text);
        let text =
            [request.prompt.system.to_string()].into_iter().chain(turns).collect::<Vec<_>>().join("\n");
        Map::from_iter([("model".to_owned(), json!(request.config.model)), ("text".to_owned(), json!(text))])
    }

    fn read(&self, body: &Value) -> Option<Reply> {
        let usage = TokenCount { input: 10, output: 5, ..TokenCount::default() };
        Some(Reply { usage: Some(usage), ..Reply::complete(body.get("text")?.as_str()?) })
    }
}

/// Answers in this process; the first request fails.
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
        Box::pin(async move {
            if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
                return Err(Failure::new("warming_up", FailureKind::Unavailable));
            }
            let score = if request.prompt.user.contains("good") { 5 } else { 1 };
            Ok(Reply::complete(json!({ "rationale": "as found", "score": score }).to_string()))
        })
    }
}

fn ask(user: &str) -> Ask {
    let question = testing::question("q", "Rate it.", user);
    let (judges, services) = (vec!["own".to_owned()], Arc::default());
    Ask {
        id: 0,
        at: 0,
        metric: "completeness",
        question,
        judges,
        services,
        context: QuestionContext::default(),
    }
}

fn score(answer: &Answer) -> Result<u64, Unmeasured> {
    answer.opinions.as_ref().map(|all| all[0].value["score"].as_u64().unwrap_or(0)).map_err(|reason| *reason)
}

fn configs(endpoint: &str) -> JudgeConfigs {
    let config = JudgeConfig {
        endpoint: endpoint.to_owned(),
        dialect: "generate".to_owned(),
        model: "m".to_owned(),
        api_key: Some(Secret::new("key")),
        ..JudgeConfig::default()
    };
    [("own".to_owned(), config)].into()
}

#[tokio::test]
async fn a_registered_dialect_is_selected_by_its_name() {
    let server = MockServer::start().await;
    let reply = json!({ "text": json!({ "rationale": "r", "score": 4 }).to_string() });
    Mock::given(method("POST"))
        .and(path("/v1/generate"))
        .and(header("x-api-version", "7"))
        .and(header("x-token", "key"))
        .and(body_json(json!({ "model": "m", "text": "Rate it.\nIt is good." })))
        .respond_with(ResponseTemplate::new(200).set_body_json(reply))
        .expect(1)
        .mount(&server)
        .await;
    let (configs, judging) = (configs(&format!("{}/v1", server.uri())), JudgingConfig::default());
    let judges = {
        let extensions = JudgeExtensions::default().dialect(Arc::new(Generate));
        Judges::new(&configs, &judging, &JudgeMetrics::default(), &extensions).unwrap()
    };
    let answer = judges.ask(TraceId([1; 16]), &ask("It is good.")).await;
    assert_eq!((score(&answer), answer.usage.tokens), (Ok(4), 15));
    let renewed = judges.renewed(&configs, &judging).unwrap();
    let cached = renewed.ask(TraceId([1; 16]), &ask("It is good.")).await;
    assert_eq!((score(&cached), cached.usage.tokens), (Ok(4), 0), "a reload keeps dialects and the cache");
    let unknown = Judges::new(&configs, &judging, &JudgeMetrics::default(), &JudgeExtensions::default());
    assert!(matches!(&unknown, Err(JudgeError::UnknownDialect { .. })), "{unknown:?}");
    let message = unknown.unwrap_err().to_string();
    assert_eq!(
        message,
        "judges.own.dialect: 'generate' is not one of openai, anthropic, rerank, embeddings, evaluator"
    );
}

#[tokio::test(start_paused = true)]
async fn a_registered_provider_answers_with_retries_limits_and_cache() {
    let (configs, judging) = (JudgeConfigs::new(), JudgingConfig::default());
    let provider = Arc::new(InProcess::default());
    let extensions = JudgeExtensions::default().provider("own", Arc::clone(&provider) as _);
    let judges = Judges::new(&configs, &judging, &JudgeMetrics::default(), &extensions).unwrap();
    let trace = TraceId([1; 16]);
    assert_eq!(score(&judges.ask(trace, &ask("It is good.")).await), Ok(5), "after a retry");
    assert_eq!(score(&judges.ask(trace, &ask("It is bad.")).await), Ok(1));
    let renewed = judges.renewed(&configs, &judging).unwrap();
    assert_eq!(score(&renewed.ask(trace, &ask("It is good.")).await), Ok(5));
    assert_eq!(provider.0.load(Ordering::Relaxed), 3, "the last answer is cached");
}
