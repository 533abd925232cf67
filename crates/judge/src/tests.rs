//! Judges over HTTP: requests, replies, failures, budgets and caches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use verdict_config::Period;
use verdict_eval::metrics::Unmeasured;
use verdict_eval::questions::{Answer, Ask, QuestionContext};
use verdict_eval::trace::Text;
use verdict_otlp::trace::TraceId;
use verdict_telemetry::JudgeMetrics;
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use crate::Judges;
use crate::config::{JudgeConfig, JudgeConfigs, JudgingConfig};
use crate::extensions::JudgeExtensions;
use crate::testing::question;

mod budgets_and_caches;
mod cascades;
mod faults;
mod vendors;
mod wire;

/// A chat completion whose content is `text`.
fn completion(text: &str) -> Value {
    json!({
        "id": "c", "object": "chat.completion", "model": "m-2026",
        "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": text } }],
        "usage": { "prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": { "cached_tokens": 40 } },
    })
}

fn verdict(score: u8) -> String {
    json!({ "rationale": "because", "score": score }).to_string()
}

fn good(score: u8) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(completion(&verdict(score)))
}

/// Answers in this order; the last one is repeated.
struct InTurn(Vec<ResponseTemplate>, std::sync::atomic::AtomicUsize);

fn in_turn(all: impl IntoIterator<Item = ResponseTemplate>) -> InTurn {
    InTurn(all.into_iter().collect(), std::sync::atomic::AtomicUsize::new(0))
}

impl Respond for InTurn {
    fn respond(&self, _: &Request) -> ResponseTemplate {
        let at = self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.0[at.min(self.0.len() - 1)].clone()
    }
}

async fn server(respond: impl Respond + 'static) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(method("POST")).and(path("/v1/chat/completions")).respond_with(respond).mount(&server).await;
    server
}

/// Waits until the lock of the disk cache is released, which happens in the background with the last write.
async fn wait_until_unlocked(judging: &JudgingConfig) {
    let (none, metrics, extensions) =
        (JudgeConfigs::default(), JudgeMetrics::default(), JudgeExtensions::default());
    while Judges::new(&none, judging, &metrics, &extensions).is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn config(endpoint: &str) -> JudgeConfig {
    JudgeConfig {
        endpoint: format!("{endpoint}/v1"),
        model: "m".to_owned(),
        timeout: Period::secs(60),
        retries: 1,
        ..JudgeConfig::default()
    }
}

/// The judges' self-metrics, and the registry that renders them.
struct Registered {
    judge: JudgeMetrics,
    registry: Registry,
}

impl Registered {
    fn new() -> Registered {
        let mut registry = Registry::with_prefix(verdict_telemetry::declared::PREFIX);
        Registered { judge: JudgeMetrics::register(&mut registry), registry }
    }

    fn render(&self) -> String {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &self.registry).unwrap();
        page
    }
}

/// Judges, and their self-metrics.
struct Fixture {
    judges: Judges,
    telemetry: Registered,
}

impl Fixture {
    fn new(configs: &[(&str, JudgeConfig)], judging: &JudgingConfig) -> Fixture {
        let configs: JudgeConfigs = configs
            .iter()
            .map(|(name, config)| ((*name).to_owned(), config.clone()))
            .collect::<BTreeMap<_, _>>();
        let telemetry = Registered::new();
        Fixture {
            judges: Judges::new(&configs, judging, &telemetry.judge, &JudgeExtensions::default()).unwrap(),
            telemetry,
        }
    }

    fn one(config: JudgeConfig) -> Fixture {
        Fixture::new(&[("main", config)], &JudgingConfig::default())
    }

    async fn ask(&self, user: &str) -> Answer {
        self.judges.ask(trace(1), &ask(user, &["main"])).await
    }

    /// The value of the self-metric whose line begins with `start`; 0 if there is none.
    fn count(&self, start: &str) -> f64 {
        let page = self.telemetry.render();
        let line = page.lines().find(|line| line.starts_with(&format!("otel_verdict_{start}")));
        line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok()).unwrap_or(0.0)
    }
}

fn trace(n: u8) -> TraceId {
    TraceId([n; 16])
}

fn ask(user: &str, judges: &[&str]) -> Ask {
    Ask {
        id: 0,
        at: 0,
        metric: "instruction_following",
        question: question("key", "You rate.", user),
        judges: judges.iter().map(|name| (*name).to_owned()).collect(),
        services: [Text::from("shop")].into(),
        context: QuestionContext::default(),
    }
}

fn scores(answer: &Answer) -> Result<Vec<u64>, Unmeasured> {
    let opinions = answer.opinions.as_ref().map_err(|reason| *reason)?;
    Ok(opinions.iter().map(|opinion| opinion.value["score"].as_u64().unwrap()).collect())
}
