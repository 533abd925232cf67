//! Requests and replies of the built-in dialects, with golden bodies.

use verdict_config::Secret;

use super::*;
use crate::config::{Format, Price};

async fn bodies(server: &MockServer) -> Vec<Value> {
    let requests = server.received_requests().await.unwrap();
    requests.iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect()
}

fn golden(body: &Value, expected: &str) {
    let body = serde_json::to_string_pretty(body).unwrap();
    assert_eq!(body, expected.trim_end(), "the request has changed, which invalidates every cached answer");
}

#[tokio::test]
async fn a_chat_completion_is_requested_and_read() {
    let server = server(in_turn([good(4)])).await;
    let price = Price { input: 1.0, output: 10.0, cached: Some(0.5), cache_write: Some(1.25) };
    let fixture = Fixture::one(JudgeConfig {
        api_key: Some(Secret::new("sk-1")),
        headers: [("x-org".to_owned(), Secret::new("o"))].into(),
        logprobs: true,
        price,
        ..config(&server.uri())
    });
    let answer = fixture.ask("Rate this.").await;
    assert_eq!((answer.key.as_str(), scores(&answer)), ("key", Ok(vec![4])));
    assert_eq!(answer.usage.tokens, 120);
    assert!((answer.usage.cost_usd - (60.0 + 20.0 + 200.0) / 1e6).abs() < 1e-12);
    let judge = &answer.opinions.as_ref().unwrap()[0].judge;
    assert!(judge.starts_with("m/") && judge.len() == 10, "{judge}");
    let request = &server.received_requests().await.unwrap()[0];
    assert_eq!(request.headers["authorization"], "Bearer sk-1");
    assert_eq!(request.headers["x-org"], "o");
    assert!(!request.headers.contains_key("traceparent"));
    golden(&bodies(&server).await[0], include_str!("../../../../tests/golden/judge-openai.json"));
}

#[tokio::test]
async fn a_message_is_requested_and_read() {
    let server = MockServer::start().await;
    let body = json!({
        "type": "message", "role": "assistant", "stop_reason": "tool_use",
        "content": [
            { "type": "text", "text": "I will give my judgement." },
            { "type": "tool_use", "id": "t", "name": "verdict", "input": { "rationale": "r", "score": 3 } },
        ],
        "usage": { "input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5, "output_tokens": 20 },
    });
    Mock::given(method("POST"))
        .and(path("/v1/messages"))
        .respond_with(ResponseTemplate::new(200).set_body_json(body))
        .mount(&server)
        .await;
    let fixture = Fixture::one(JudgeConfig {
        dialect: "anthropic".to_owned(),
        api_key: Some(Secret::new("sk-2")),
        price: Price { input: 1.0, output: 10.0, cached: Some(0.5), cache_write: Some(1.25) },
        ..config(&server.uri())
    });
    let answer = fixture.ask("Rate this.").await;
    assert_eq!((scores(&answer), answer.usage.tokens), (Ok(vec![3]), 125));
    assert!((answer.usage.cost_usd - (10.0 + 45.0 + 6.25 + 200.0) / 1e6).abs() < 1e-12);
    let request = &server.received_requests().await.unwrap()[0];
    assert_eq!(request.headers["x-api-key"], "sk-2");
    assert_eq!(request.headers["anthropic-version"], "2023-06-01");
    assert!(!request.headers.contains_key("authorization"));
    golden(&bodies(&server).await[0], include_str!("../../../../tests/golden/judge-anthropic.json"));
}

#[tokio::test]
async fn format_text_puts_the_schema_into_the_prompt_and_prose_around_the_answer_is_ignored() {
    let prose = format!("Sure! Here is my verdict:\n```json\n{}\n```\nAnything else?", verdict(2));
    let server = server(in_turn([ResponseTemplate::new(200).set_body_json(completion(&prose))])).await;
    let fixture = Fixture::one(JudgeConfig { format: Format::Text, ..config(&server.uri()) });
    assert_eq!(scores(&fixture.ask("Rate this.").await), Ok(vec![2]));
    let body = &bodies(&server).await[0];
    assert!(body.get("response_format").is_none());
    let system = body["messages"][0]["content"].as_str().unwrap();
    assert!(system.starts_with("You rate.") && system.contains("\"enum\":[1,2,3,4,5]"), "{system}");
}

#[tokio::test]
async fn an_invalid_answer_is_asked_for_once_more_with_its_fault() {
    let bad = json!({ "rationale": "r", "score": 9 }).to_string();
    let server = server(in_turn([ResponseTemplate::new(200).set_body_json(completion(&bad)), good(4)])).await;
    let fixture = Fixture::one(config(&server.uri()));
    let answer = fixture.ask("Rate this.").await;
    assert_eq!((scores(&answer), answer.usage.tokens), (Ok(vec![4]), 240));
    let retry_messages = &bodies(&server).await[1]["messages"];
    assert_eq!(retry_messages[2], json!({ "role": "assistant", "content": bad }));
    let demand = retry_messages[3]["content"].as_str().unwrap();
    assert!(demand.contains("does not fit the schema: at '/score'"), "{demand}");
    assert_eq!(fixture.count("judge_unusable_answers_total{judge=\"main\",fault=\"unfit\"}"), 1.0);
}

#[tokio::test]
async fn configured_keys_are_merged_into_the_body() {
    let server = server(in_turn([good(4)])).await;
    let body = [
        ("max_tokens".to_owned(), Value::Null),
        ("temperature".to_owned(), Value::Null),
        ("max_completion_tokens".to_owned(), json!(500)),
    ];
    let fixture = Fixture::one(JudgeConfig { body: body.into(), ..config(&server.uri()) });
    assert_eq!(scores(&fixture.ask("Rate this.").await), Ok(vec![4]));
    let body = &bodies(&server).await[0];
    assert!(body.get("max_tokens").is_none() && body.get("temperature").is_none());
    assert_eq!(body["max_completion_tokens"], 500);
}

#[tokio::test]
async fn scores_are_weighted_by_the_probabilities_of_their_tokens() {
    let text = verdict(4);
    let (before, after) = text.split_once('4').unwrap();
    let top = json!([{ "token": "4", "logprob": 0.75_f64.ln() }, { "token": "2", "logprob": 0.25_f64.ln() }]);
    let mut body = completion(&text);
    body["choices"][0]["logprobs"] = json!({ "content": [
        { "token": before, "logprob": 0.0, "top_logprobs": [] },
        { "token": "4", "logprob": 0.75_f64.ln(), "top_logprobs": top },
        { "token": after, "logprob": 0.0, "top_logprobs": [] },
    ]});
    let server = server(in_turn([ResponseTemplate::new(200).set_body_json(body)])).await;
    let fixture = Fixture::one(JudgeConfig { logprobs: true, ..config(&server.uri()) });
    let answer = fixture.ask("Rate this.").await;
    let weighted = answer.opinions.unwrap()[0].weighted.unwrap();
    assert!((weighted - 3.5).abs() < 1e-9, "{weighted}");
}

#[tokio::test]
async fn opinions_keep_the_order_of_judges_and_samples() {
    let one = server(in_turn([good(1)])).await;
    let two = server(in_turn([good(2).set_delay(Duration::from_millis(50))])).await;
    let down = server(in_turn([ResponseTemplate::new(401)])).await;
    let slow = JudgeConfig { samples: 3, model: "slow".into(), ..config(&two.uri()) };
    let configs = [("b", config(&one.uri())), ("a", slow), ("down", config(&down.uri()))];
    let fixture = Fixture::new(&configs, &JudgingConfig::default());
    let answer = fixture.judges.ask(trace(1), &ask("Rate this.", &["a", "down", "b"])).await;
    assert_eq!(scores(&answer), Ok(vec![2, 2, 2, 1]), "as asked for, the failing one left out");
    assert_eq!(two.received_requests().await.unwrap().len(), 3, "each sample is asked for");
    let none = fixture.judges.ask(trace(1), &ask("Rate this.", &["down"])).await;
    assert_eq!(scores(&none), Err(Unmeasured::JudgeError));
    assert_eq!(bodies(&two).await[0]["temperature"], 0.7);
}
