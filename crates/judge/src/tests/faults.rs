//! Judges that are unreachable, slow, overloaded, broken or wrong.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, advance, sleep};
use verdict_config::Secret;
use verdict_eval::questions::Usage;

use super::*;
use crate::config::BreakerConfig;
use crate::provider::{JudgeRequest, Provider, Reply, ReplyFuture};

/// Stops the clock until `advance` is called. The blocking task keeps a stopped clock from advancing by itself
/// while all tasks wait for the network.
fn stop_clock() -> std::sync::mpsc::Sender<()> {
    let (sender, receiver) = std::sync::mpsc::channel();
    tokio::task::spawn_blocking(move || receiver.recv());
    tokio::time::pause();
    sender
}

fn status(code: u16) -> ResponseTemplate {
    ResponseTemplate::new(code)
}

fn replies_with(body: Value) -> ResponseTemplate {
    status(200).set_body_json(body)
}

fn ended(reason: &str, content: Value) -> ResponseTemplate {
    let mut body = completion("");
    body["choices"][0]["finish_reason"] = json!(reason);
    body["choices"][0]["message"]["content"] = content;
    replies_with(body)
}

/// One fault: the responses in turn, the result, the number of requests, and the label of the self-metric.
type Row = (&'static str, Vec<ResponseTemplate>, Result<u64, Unmeasured>, usize, &'static str);

fn rows() -> Vec<Row> {
    let failed = Err(Unmeasured::JudgeError);
    let error = |code: &str| json!({ "error": { "message": "m", "type": code } });
    let html = || status(200).set_body_raw("<html>gateway</html>", "text/html");
    let stream =
        || status(200).set_body_raw("data: {\"choices\":[]}\n\ndata: [DONE]\n\n", "text/event-stream");
    let huge = || status(200).set_body_raw(vec![b' '; 5 << 20], "application/json");
    let wrong_type = status(200).set_body_raw(completion(&verdict(4)).to_string(), "text/plain");
    vec![
        ("cut, then whole", vec![ended("length", json!("{\"rat")), good(4)], Ok(4), 2, "fault=\"cut\""),
        ("cut and cut", vec![ended("length", json!("{\"rat"))], failed, 2, "fault=\"cut\""),
        ("refused", vec![ended("content_filter", Value::Null)], failed, 1, "fault=\"refused\""),
        ("empty", vec![ended("stop", json!(""))], failed, 2, "fault=\"no_object\""),
        (
            "prose, then an answer",
            vec![replies_with(completion("I cannot rate.")), good(2)],
            Ok(2),
            2,
            "fault=\"no_object\"",
        ),
        ("an error page, then well", vec![html(), good(4)], Ok(4), 2, "status=\"not_json\""),
        ("error pages", vec![html()], failed, 2, "status=\"not_json\""),
        ("a stream", vec![stream()], failed, 2, "status=\"not_json\""),
        ("a huge body", vec![huge(), good(4)], Ok(4), 2, "status=\"too_large\""),
        ("another content type", vec![wrong_type], Ok(4), 1, "status=\"ok\""),
        (
            "JSON of something else",
            vec![replies_with(json!({ "hello": 1 }))],
            failed,
            2,
            "status=\"not_an_answer\"",
        ),
        (
            "JSON that is no object",
            vec![replies_with(json!([1, "x", null]))],
            failed,
            2,
            "status=\"not_an_answer\"",
        ),
        (
            "200 with an error",
            vec![replies_with(error("server_error")), good(4)],
            Ok(4),
            2,
            "status=\"error_body\"",
        ),
        (
            "200 with a 401",
            vec![replies_with(json!({ "error": { "code": 401 } }))],
            failed,
            1,
            "status=\"http_401\"",
        ),
        (
            "longer than the context",
            vec![status(400).set_body_json(error("exceed_context_size_error"))],
            failed,
            1,
            "status=\"http_400\"",
        ),
        ("a wrong key", vec![status(401)], failed, 1, "status=\"http_401\""),
        ("an unknown model", vec![status(404)], failed, 1, "status=\"http_404\""),
        ("slow to be asked", vec![status(408), good(4)], Ok(4), 2, "status=\"http_408\""),
        ("too large", vec![status(413)], failed, 1, "status=\"http_413\""),
        ("busy", vec![status(429), good(4)], Ok(4), 2, "status=\"http_429\""),
        ("broken, then well", vec![status(500), good(4)], Ok(4), 2, "status=\"http_500\""),
        ("unavailable", vec![status(503)], failed, 2, "status=\"http_503\""),
        ("overloaded", vec![status(529)], failed, 2, "status=\"http_5xx\""),
        (
            "elsewhere",
            vec![status(307).insert_header("location", "http://127.0.0.1:9/")],
            failed,
            1,
            "status=\"http_3xx\"",
        ),
    ]
}

#[tokio::test]
async fn each_fault_has_its_result_requests_and_label() {
    let all = rows().into_iter().map(|(name, responses, expected, requests, word)| async move {
        let server = server(in_turn(responses)).await;
        let fixture = Fixture::one(config(&server.uri()));
        let answer = fixture.ask("Rate this.").await;
        let found = scores(&answer).map(|scores| scores[0]);
        assert_eq!(found, expected, "{name}");
        assert_eq!(server.received_requests().await.unwrap().len(), requests, "{name}");
        let page = fixture.telemetry.render();
        assert!(page.lines().any(|line| line.contains(word)), "{name}: {word} was not counted\n{page}");
        assert_eq!(fixture.count("judge_requests_in_flight"), 0.0, "{name}");
    });
    futures_util::future::join_all(all).await;
}

/// The clock is stopped, so that only the requests that are meant to take too long do.
#[tokio::test]
async fn a_judge_that_is_too_slow_is_asked_again() {
    let _stopped = stop_clock();
    let slow = || good(3).set_delay(Duration::from_secs(600));
    for (responses, too_slow, expected) in
        [(vec![slow()], 2, Err(Unmeasured::Timeout)), (vec![slow(), good(4)], 1, Ok(4))]
    {
        let server = server(in_turn(responses)).await;
        let fixture = Fixture::one(config(&server.uri()));
        let requests = async || server.received_requests().await.unwrap().len();
        let clock = async {
            let mut ended = 0;
            loop {
                if fixture.count("judge_requests_in_flight") == 0.0 {
                    // The pause before the next request.
                    advance(Duration::from_millis(100)).await;
                } else if ended < too_slow && requests().await > ended {
                    ended += 1;
                    advance(Duration::from_secs(61)).await;
                }
                std::thread::sleep(Duration::from_millis(1));
                tokio::task::yield_now().await;
            }
        };
        let answer = tokio::select! {
            answer = fixture.ask("Rate this.") => answer,
            () = clock => panic!("the clock ends"),
        };
        assert_eq!(scores(&answer).map(|scores| scores[0]), expected);
        assert_eq!(requests().await, 2);
        let timeouts = fixture.count("judge_requests_total{judge=\"main\",status=\"timeout\"}");
        assert_eq!(timeouts as usize, too_slow);
        assert_eq!(fixture.count("judge_requests_in_flight"), 0.0);
    }
}

/// Serves each connection by `serve`, for as long as the test runs.
async fn serve_raw<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> String
where
    F: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

#[tokio::test]
async fn resets_slow_bodies_cut_bodies_and_closed_ports_are_failures() {
    // Each reads a part of the request first: a response before the request is another fault.
    let reset = serve_raw(|mut stream| async move {
        stream.read_exact(&mut [0; 64]).await?;
        stream.set_zero_linger()
    });
    let drip = serve_raw(|mut stream| async move {
        stream.read_exact(&mut [0; 64]).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n").await?;
        loop {
            stream.write_all(b" ").await?;
            sleep(Duration::from_millis(20)).await;
        }
    });
    let cut = serve_raw(|mut stream| async move {
        stream.read_exact(&mut [0; 64]).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n{\"choices\":").await
    });
    let closed =
        async { format!("http://{}", TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()) };
    let (reset, drip, cut, closed) = tokio::join!(reset, drip, cut, closed);
    for (endpoint, expected, status) in [
        (reset, Unmeasured::JudgeError, "connection"),
        (drip, Unmeasured::Timeout, "timeout"),
        (cut, Unmeasured::JudgeError, "connection"),
        (closed, Unmeasured::JudgeError, "connection"),
    ] {
        let timeout = Period::secs(if expected == Unmeasured::Timeout { 3 } else { 180 });
        let fixture = Fixture::one(JudgeConfig { timeout, retries: 0, ..config(&endpoint) });
        let started = Instant::now();
        assert_eq!(scores(&fixture.ask("Rate this.").await), Err(expected), "{status}");
        assert!(started.elapsed() < Duration::from_secs(150));
        assert_eq!(
            fixture.count(&format!("judge_requests_total{{judge=\"main\",status=\"{status}\"}}")),
            1.0
        );
    }
}

#[tokio::test]
async fn retry_after_applies_to_every_question() {
    let server = server(in_turn([status(429).insert_header("retry-after", "2"), good(4)])).await;
    let fixture = Fixture::one(config(&server.uri()));
    let started = Instant::now();
    let second = async {
        // While the first waits for retry-after.
        while fixture.count("judge_requests_total{judge=\"main\",status=\"http_429\"}") < 1.0 {
            sleep(Duration::from_millis(1)).await;
        }
        fixture.ask("Another.").await
    };
    let (first, second) = tokio::join!(fixture.ask("One."), second);
    assert_eq!((scores(&first), scores(&second)), (Ok(vec![4]), Ok(vec![4])));
    assert!(started.elapsed() >= Duration::from_millis(1900), "{:?}", started.elapsed());
    assert_eq!(server.received_requests().await.unwrap().len(), 3, "no request in between");
    assert_eq!(fixture.count("judge_breaker_state"), 0.0);
}

#[tokio::test]
async fn a_retry_after_beyond_the_bound_is_not_waited_for() {
    let server = server(in_turn([status(429).insert_header("retry-after", "86400")])).await;
    let fixture = Fixture::one(config(&server.uri()));
    let answer = tokio::time::timeout(Duration::from_secs(180), fixture.ask("One.")).await.unwrap();
    assert_eq!(scores(&answer), Err(Unmeasured::JudgeError));
}

#[tokio::test]
async fn the_breaker_opens_after_failures_in_a_row_and_closes_after_a_success() {
    let mut responses = vec![status(500); 3];
    responses.extend([status(500), good(4)]);
    let server = server(in_turn(responses)).await;
    let breaker = BreakerConfig { failures: 3, open_for: Period::secs(200) };
    let fixture = Fixture::one(JudgeConfig { breaker, retries: 0, ..config(&server.uri()) });
    for n in 0..10 {
        assert_eq!(scores(&fixture.ask(&format!("Q{n}")).await), Err(Unmeasured::JudgeError));
    }
    assert_eq!(server.received_requests().await.unwrap().len(), 3, "then nothing is sent");
    assert_eq!(fixture.count("judge_breaker_state"), 2.0);
    let _stopped = stop_clock();
    advance(Duration::from_secs(210)).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.count("judge_breaker_state"), 1.0, "without a further question");
    assert_eq!(scores(&fixture.ask("tries").await), Err(Unmeasured::JudgeError));
    assert_eq!(scores(&fixture.ask("too soon").await), Err(Unmeasured::JudgeError));
    assert_eq!(server.received_requests().await.unwrap().len(), 4);
    advance(Duration::from_secs(210)).await;
    assert_eq!(scores(&fixture.ask("recovered").await), Ok(vec![4]));
    assert_eq!(fixture.count("judge_breaker_state"), 0.0);
}

#[tokio::test]
async fn invalid_requests_do_not_open_the_breaker() {
    let server = server(in_turn([status(400)])).await;
    let fixture = Fixture::one(config(&server.uri()));
    for n in 0..10 {
        assert_eq!(scores(&fixture.ask(&format!("Q{n}")).await), Err(Unmeasured::JudgeError));
    }
    assert_eq!(server.received_requests().await.unwrap().len(), 10);
}

#[tokio::test]
async fn hedging_takes_the_first_reply() {
    let slow = good(1).set_delay(Duration::from_secs(300));
    let server = server(in_turn([slow, good(4)])).await;
    let hedge_after = Some(Period::millis(100));
    let fixture = Fixture::one(JudgeConfig { hedge_after, ..config(&server.uri()) });
    let started = Instant::now();
    assert_eq!(scores(&fixture.ask("Rate this.").await), Ok(vec![4]));
    assert!(started.elapsed() < Duration::from_secs(150), "{:?}", started.elapsed());
    assert_eq!(server.received_requests().await.unwrap().len(), 2);
}

/// Answers after 700 ms of the test's clock, and counts the requests.
#[derive(Debug, Default)]
struct InProcess(AtomicUsize);

impl Provider for InProcess {
    fn location(&self) -> &str {
        "in process"
    }

    fn send<'a>(&'a self, _: JudgeRequest<'a>, _: bytes::Bytes) -> ReplyFuture<'a> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            sleep(Duration::from_millis(700)).await;
            Ok(Reply::complete(verdict(4)))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_waits_for_the_limiter_is_not_hedged() {
    let provider = Arc::new(InProcess::default());
    let hedge_after = Some(Period::secs(3));
    let config = JudgeConfig { hedge_after, max_concurrency: 2, ..config("http://unused") };
    let (configs, telemetry) = (BTreeMap::from([("main".to_owned(), config)]), Registered::new());
    let extensions = JudgeExtensions::default().provider("main", Arc::clone(&provider) as Arc<dyn Provider>);
    let judges = Judges::new(&configs, &JudgingConfig::default(), &telemetry.judge, &extensions).unwrap();
    let fixture = Fixture { judges, telemetry };
    let (started_at, questions): (_, Vec<String>) =
        (Instant::now(), (0..11).map(|n| format!("Q{n}")).collect());
    let answers = futures_util::future::join_all(questions.iter().map(|q| fixture.ask(q))).await;
    assert!(answers.iter().all(|answer| scores(answer) == Ok(vec![4])));
    // The last one waited for 3.5 s, and a second request of it would have found a place.
    assert!(started_at.elapsed() >= Duration::from_millis(4200), "{:?}", started_at.elapsed());
    assert_eq!(provider.0.load(Ordering::Relaxed), 11, "each was sent once");
}

#[tokio::test]
async fn a_question_longer_than_the_window_is_not_sent() {
    let server = server(in_turn([good(4)])).await;
    let fixture = Fixture::one(JudgeConfig { max_prompt_tokens: 4096, ..config(&server.uri()) });
    assert_eq!(scores(&fixture.ask(&"word ".repeat(10_000)).await), Err(Unmeasured::JudgeError));
    assert!(server.received_requests().await.unwrap().is_empty());
    assert_eq!(fixture.ask("short").await.usage, Usage { tokens: 120, cost_usd: 0.0 });
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn keys_and_content_are_in_no_log_and_no_debug_output() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // While a single dispatcher exists, tracing-core asks only the dispatcher of the thread that reaches a
    // callsite first, and another test's thread has none: its "never" would be cached for this thread as well.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let guard = tracing::subscriber::set_default(subscriber);
    let echo = json!({ "error": { "message": "wrong key sk-hunter2 for 'private words'", "code": "invalid_api_key" } });
    let server =
        server(in_turn([status(401).set_body_json(echo), replies_with(completion("private words"))])).await;
    let fixture =
        Fixture::one(JudgeConfig { api_key: Some(Secret::new("sk-hunter2")), ..config(&server.uri()) });
    fixture.ask("private words").await;
    // A refused question is not asked again.
    fixture.ask("private words, others").await;
    drop(guard);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("invalid_api_key") && log.contains("no_object"), "{log}");
    let all = format!("{log}{:?}{}", fixture.judges, fixture.telemetry.render());
    assert!(!all.contains("hunter2") && !all.contains("private words"), "{all}");
}
