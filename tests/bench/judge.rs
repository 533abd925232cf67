//! Judges under load: `cargo bench --bench judge`.
//!
//! 20,000 questions to a mock judge in this process that takes 5 to 500 ms for each, under a limit
//! on requests in flight; at the same time spans flow through the whole service in the same process, over
//! gRPC. Out: the duration of the questions, compared with the ideal (the sum of all latencies divided
//! by the limit), and spans per second without and with them. Mock, generator, service and judges
//! share the machine's cores.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::unwrap_used, clippy::panic)]

// Each benchmark uses only a part of this module.
#[allow(dead_code)]
mod corpus;
#[allow(dead_code)]
mod relay;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use corpus::Corpus;
use otel_verdict::config::{Config, from_sources};
use otel_verdict::pipeline::service::Service;
use otel_verdict::telemetry::Telemetry;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use verdict_config::Source;
use verdict_eval::questions::{AnswerForm, Ask, Prompt, Question, QuestionContext, ScoreField};
use verdict_judge::{JudgeConfig, JudgeExtensions, Judges, JudgingConfig};
use verdict_otlp::trace::TraceId;

/// Number of questions.
const QUESTIONS: u64 = 20_000;
/// Requests in flight at once: 500 questions a second at the mock's mean latency.
const MAX_IN_FLIGHT: usize = 128;
/// Bytes of a prompt, about those of a span with its neighbours.
const PROMPT_BYTES: usize = 4096;
/// The duration for which spans flow alone, to measure their full rate.
const ALONE_TIME: Duration = Duration::from_secs(10);
/// A share of the full rate that leaves the machine time for the mock's and the generator's work.
const PACE_SHARE: f64 = 0.5;

/// 5 to 500 ms, spread evenly, by the question's number.
fn latency(question: u64) -> Duration {
    Duration::from_millis(5 + question * 7919 % 496)
}

#[tokio::main]
async fn main() {
    let mock = Mock::start().await;
    let ideal = (0..QUESTIONS).map(latency).sum::<Duration>() / MAX_IN_FLIGHT as u32;
    println!("{QUESTIONS} questions, {MAX_IN_FLIGHT} in flight: {:.1} s at best", ideal.as_secs_f64());

    let flow = Flow::start().await;
    let full = flow.run(f64::INFINITY, tokio::time::sleep(ALONE_TIME)).await;
    println!("{:<28} {full:>9.0} spans/s", "spans alone");
    let elapsed = ask(&mock).await;
    report("questions alone", elapsed, ideal, &mock, None);
    for (name, pace) in
        [("with half of those spans", full * PACE_SHARE), ("with all that fit", f64::INFINITY)]
    {
        let elapsed_nanos = Arc::new(AtomicU64::new(0));
        let questions = async { elapsed_nanos.store(ask(&mock).await.as_nanos() as u64, Ordering::Relaxed) };
        let spans = flow.run(pace, questions).await;
        let elapsed = Duration::from_nanos(elapsed_nanos.load(Ordering::Relaxed));
        report(name, elapsed, ideal, &mock, Some((spans, spans / pace.min(full))));
    }
    flow.service.stop(Duration::from_secs(30)).await;
}

fn report(name: &str, elapsed: Duration, ideal: Duration, mock: &Mock, spans: Option<(f64, f64)>) {
    let over = elapsed.as_secs_f64() / ideal.as_secs_f64() - 1.0;
    let max_concurrent = mock.max_concurrent.swap(0, Ordering::Relaxed);
    print!(
        "{name:<28} {:>9.1} s, {:>5.1} % over the ideal, at most {max_concurrent} at once",
        elapsed.as_secs_f64(),
        over * 100.0
    );
    match spans {
        Some((rate, share)) => println!("; {rate:.0} spans/s, {:.0} % of what was wanted", share * 100.0),
        None => println!(),
    }
}

/// Answers every question after its latency.
struct Mock {
    addr: SocketAddr,
    /// Maximum number of requests that it has had at once.
    max_concurrent: Arc<AtomicUsize>,
}

impl Mock {
    async fn start() -> Mock {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (max_concurrent, in_flight) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let max_seen = Arc::clone(&max_concurrent);
        let answer = async move |body: Bytes| {
            max_seen.fetch_max(in_flight.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let offset = memchr::memmem::find(&body, b"question ").unwrap() + "question ".len();
            let digits: String =
                body[offset..].iter().take_while(|b| b.is_ascii_digit()).map(|b| char::from(*b)).collect();
            tokio::time::sleep(latency(digits.parse().unwrap())).await;
            in_flight.fetch_sub(1, Ordering::Relaxed);
            ([("content-type", "application/json")], COMPLETION)
        };
        let router = axum::Router::new().route("/v1/chat/completions", axum::routing::post(answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Mock { addr, max_concurrent }
    }
}

const COMPLETION: &str = r#"{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"{\"rationale\":\"as was asked\",\"score\":4}"}}],"usage":{"prompt_tokens":1200,"completion_tokens":20}}"#;

/// Asks all questions at once; returns the time until the last one is answered.
async fn ask(mock: &Mock) -> Duration {
    let config = JudgeConfig {
        endpoint: format!("http://{}/v1", mock.addr),
        model: "mock".to_owned(),
        max_concurrency: MAX_IN_FLIGHT,
        ..JudgeConfig::default()
    };
    let configs = [("main".to_owned(), config)].into();
    let judges = Judges::new(
        &configs,
        &JudgingConfig::default(),
        &Telemetry::new().judge,
        &JudgeExtensions::default(),
    )
    .unwrap();
    let schema = serde_json::json!({
        "type": "object",
        "properties": { "rationale": { "type": "string" }, "score": { "type": "integer", "enum": [1, 2, 3, 4, 5] } },
        "required": ["rationale", "score"],
        "additionalProperties": false,
    });
    let score = Some(ScoreField { key: "score", values: vec![1, 2, 3, 4, 5] });
    let form = Arc::new(AnswerForm { name: "verdict", schema, score });
    let mut questions = JoinSet::new();
    let started_at = Instant::now();
    for n in 0..QUESTIONS {
        let prompt = Prompt::new("Rate it.", format!("question {n} {}", "x".repeat(PROMPT_BYTES)));
        let question = Question { key: String::new(), prompt, form: Arc::clone(&form), judges: Vec::new() };
        let ask = Ask {
            id: 0,
            at: 0,
            metric: "completeness",
            question,
            judges: vec!["main".to_owned()],
            services: Arc::default(),
            context: QuestionContext::default(),
        };
        let trace = TraceId(u128::from(n).to_be_bytes());
        let judges = judges.clone();
        questions.spawn(async move { judges.ask(trace, &ask).await.opinions.is_ok() });
    }
    assert!(questions.join_all().await.into_iter().all(|answered| answered), "every question is answered");
    started_at.elapsed()
}

/// Spans that are sent through the whole service, whose exporter writes them to `/dev/null`.
struct Flow {
    service: Service,
    client: relay::Client,
    corpus: Corpus,
    round: AtomicU64,
}

impl Flow {
    async fn start() -> Flow {
        let text = "receivers: { otlp: { protocols: { grpc: { endpoint: '127.0.0.1:0' } } } }\n\
             verdict: { close: { quiet: 0s } }\n\
             exporters: { file: { path: /dev/null, signals: [traces] } }\n\
             admin: { endpoint: '127.0.0.1:0' }\n";
        let source = Source { name: "bench".to_owned(), text: text.to_owned() };
        let config: Config = from_sources(&[source], &|_| None).unwrap();
        let service = Box::pin(Service::start(&config)).await.unwrap();
        let client = relay::Client::connect(service.grpc.unwrap()).await;
        Flow { service, client, corpus: Corpus::agent(200), round: AtomicU64::new(0) }
    }

    /// Sends `pace` spans a second until `work` ends; returns the number of accepted spans a second.
    async fn run(&self, pace: f64, work: impl Future<Output = ()>) -> f64 {
        let stop = Arc::new(AtomicBool::new(false));
        let accepted = Arc::new(AtomicUsize::new(0));
        let started_at = Instant::now();
        let mut senders = JoinSet::new();
        for _ in 0..4 {
            let (stop, accepted, client) = (Arc::clone(&stop), Arc::clone(&accepted), self.client.clone());
            let (corpus, round) =
                (self.corpus.clone(), self.round.fetch_add(1 << 20, Ordering::Relaxed) as u32);
            let each = corpus.spans / corpus.requests.len();
            senders.spawn(async move {
                for round in round.. {
                    for request in corpus.with_new_trace_ids(round).requests {
                        while accepted.load(Ordering::Relaxed) as f64
                            > pace * started_at.elapsed().as_secs_f64()
                        {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        client.export(relay::TRACES, request).await;
                        accepted.fetch_add(each, Ordering::Relaxed);
                    }
                }
            });
        }
        work.await;
        stop.store(true, Ordering::Relaxed);
        senders.join_all().await;
        accepted.load(Ordering::Relaxed) as f64 / started_at.elapsed().as_secs_f64()
    }
}
