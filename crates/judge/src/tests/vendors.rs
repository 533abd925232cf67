//! Servers that accept only a part of the API, as their vendors document it. After the first refusals the
//! question is answered, and the next question takes a single request.

use verdict_config::Secret;

use super::*;
use crate::config::ReasoningEffort;

/// The body of an answer, or status and body of a refusal.
type Response = Result<Value, (u16, Value)>;

/// Refuses a request by its body, or answers it.
struct Vendor(fn(&Value) -> Response);

impl Respond for Vendor {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        match (self.0)(&serde_json::from_slice(&request.body).unwrap()) {
            Ok(body) => ResponseTemplate::new(200).set_body_json(body),
            Err((status, body)) => ResponseTemplate::new(status).set_body_json(body),
        }
    }
}

fn openai_error(message: &str, param: Option<&str>, code: Option<&str>) -> Value {
    json!({ "error": { "message": message, "type": "invalid_request_error", "param": param, "code": code } })
}

/// A reasoning model behind OpenAI's API.
fn reasoning_model(body: &Value) -> Response {
    if body.get("max_tokens").is_some() {
        let message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
        return Err((400, openai_error(message, Some("max_tokens"), Some("unsupported_parameter"))));
    }
    if body.get("temperature").is_some_and(|t| *t != 1) {
        let message = "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.";
        return Err((400, openai_error(message, Some("temperature"), Some("unsupported_value"))));
    }
    if body.get("logprobs").is_some() {
        return Err((
            403,
            openai_error("You are not allowed to request logprobs from this model.", None, None),
        ));
    }
    // The limit includes reasoning: a small one leaves nothing for the answer.
    let mut reply = completion(&verdict(4));
    if body["max_completion_tokens"].as_u64().unwrap_or(0) < 4_000 {
        reply["choices"][0]["finish_reason"] = json!("length");
        reply["choices"][0]["message"]["content"] = json!("");
    }
    Ok(reply)
}

/// Enforces no schemas.
fn deepseek(body: &Value) -> Response {
    if body["response_format"]["type"] == "json_schema" {
        let message = "This response_format type is unavailable now";
        return Err((400, openai_error(message, None, Some("invalid_request_error"))));
    }
    let prompt = body["messages"].to_string();
    if body["response_format"]["type"] == "json_object" && !prompt.to_lowercase().contains("json") {
        return Err((400, openai_error("Prompt must contain the word 'json' in some form", None, None)));
    }
    Ok(completion(&format!("Here it is: {}", verdict(4))))
}

/// Gemini's OpenAI-compatible API: errors in an array, a part of JSON schema, no probabilities.
fn gemini(body: &Value) -> Response {
    let invalid = |message: &str| {
        (400, json!([{ "error": { "code": 400, "message": message, "status": "INVALID_ARGUMENT" } }]))
    };
    if body.get("logprobs").is_some() {
        return Err(invalid("Invalid JSON payload received. Unknown name \"logprobs\": Cannot find field."));
    }
    if body["response_format"].to_string().contains("additionalProperties") {
        return Err(invalid(
            "Invalid JSON payload received. Unknown name \"additionalProperties\" at 'generation_config.response_schema': Cannot find field.",
        ));
    }
    Ok(completion(&verdict(4)))
}

/// Mistral: unknown parameters are a validation error, which repeats the input.
fn mistral(body: &Value) -> Response {
    if let Some(effort) = body.get("reasoning_effort") {
        let detail = json!([{ "type": "extra_forbidden", "loc": ["body", "reasoning_effort"],
            "msg": "Extra inputs are not permitted", "input": effort, "ctx": body["messages"] }]);
        return Err((422, json!({ "object": "error", "message": { "detail": detail } })));
    }
    Ok(completion(&verdict(4)))
}

/// A model of Anthropic that thinks with a budget: no adaptive thinking, no forced tool, no temperature.
fn claude(body: &Value) -> Response {
    let invalid = |message: &str| {
        (400, json!({ "type": "error", "error": { "type": "invalid_request_error", "message": message } }))
    };
    if body["thinking"]["type"] == "adaptive" {
        return Err(invalid("adaptive thinking is not supported on this model"));
    }
    let thinks = body["thinking"]["type"] == "enabled";
    if thinks && body["tool_choice"]["type"] != "auto" {
        return Err(invalid("Thinking may not be enabled when tool_choice forces tool use."));
    }
    if thinks && body.get("temperature").is_some_and(|t| *t != 1) {
        return Err(invalid("`temperature` may only be set to 1 when thinking is enabled."));
    }
    if thinks && body["thinking"]["budget_tokens"].as_u64() >= body["max_tokens"].as_u64() {
        return Err(invalid("`max_tokens` must be greater than `thinking.budget_tokens`"));
    }
    let content = match thinks {
        true => {
            json!([{ "type": "thinking", "thinking": "Hm {\"score\":1}." }, { "type": "text", "text": verdict(4) }])
        }
        false => {
            json!([{ "type": "tool_use", "id": "t", "name": "verdict", "input": { "rationale": "r", "score": 4 } }])
        }
    };
    let usage = json!({ "input_tokens": 10, "output_tokens": 20 });
    Ok(
        json!({ "type": "message", "role": "assistant", "stop_reason": "end_turn", "content": content, "usage": usage }),
    )
}

/// A later model of Anthropic without any sampling parameter.
fn claude_without_sampling(body: &Value) -> Response {
    if body.get("temperature").is_some() {
        let message = "`temperature` is deprecated for this model.";
        return Err((
            400,
            json!({ "type": "error", "error": { "type": "invalid_request_error", "message": message } }),
        ));
    }
    claude(body)
}

/// A vendor, how it responds, the judge's configuration, and the requests that the first question takes.
type Row = (&'static str, fn(&Value) -> Response, JudgeConfig, usize);

#[tokio::test]
async fn each_vendor_is_asked_in_a_shape_that_it_accepts() {
    let openai = JudgeConfig { logprobs: true, ..config("") };
    let thinking = JudgeConfig {
        dialect: "anthropic".to_owned(),
        reasoning_effort: Some(ReasoningEffort::High),
        ..config("")
    };
    let plain = JudgeConfig { dialect: "anthropic".to_owned(), ..config("") };
    let effort = JudgeConfig { reasoning_effort: Some(ReasoningEffort::Low), ..config("") };
    let rows: [Row; 6] = [
        ("a reasoning model of OpenAI", reasoning_model, openai.clone(), 4),
        ("DeepSeek", deepseek, config(""), 2),
        ("Gemini", gemini, openai, 3),
        ("Mistral", mistral, effort, 2),
        ("Claude with a budget", claude, thinking, 2),
        ("Claude without sampling", claude_without_sampling, plain, 2),
    ];
    for (name, vendor, mut config, requests) in rows {
        let server = MockServer::start().await;
        Mock::given(method("POST")).respond_with(Vendor(vendor)).mount(&server).await;
        config.endpoint = format!("{}/v1", server.uri());
        let fixture = Fixture::one(config);
        assert_eq!(scores(&fixture.ask("One.").await), Ok(vec![4]), "{name}");
        assert_eq!(server.received_requests().await.unwrap().len(), requests, "{name}");
        assert_eq!(scores(&fixture.ask("Two.").await), Ok(vec![4]), "{name}");
        assert_eq!(server.received_requests().await.unwrap().len(), requests + 1, "{name}: learned once");
        let report = fixture.judges.report().remove(0);
        assert_eq!((report.asked, report.answered, report.repaired), (2, 2, 0), "{name}");
        assert_eq!(report.adapted.len(), requests - 1, "{name}: {report:?}");
    }
}

#[tokio::test]
async fn learned_shapes_do_not_change_what_is_cached() {
    let folder = tempfile::tempdir().unwrap();
    let mut judging = JudgingConfig::default();
    judging.cache.directory = Some(folder.path().join("answers"));
    let server = MockServer::start().await;
    Mock::given(method("POST")).respond_with(Vendor(deepseek)).mount(&server).await;
    for expected in [3, 3] {
        let fixture = Fixture::new(&[("main", config(&server.uri()))], &judging);
        for question in ["One.", "Two."] {
            assert_eq!(scores(&fixture.ask(question).await), Ok(vec![4]));
        }
        assert_eq!(server.received_requests().await.unwrap().len(), expected);
        // Answers are written to the disk in the background, and the lock is released with the last one.
        let path = judging.cache.directory.clone().unwrap();
        while std::fs::read_dir(&path).unwrap().count() < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(fixture);
        wait_until_unlocked(&judging).await;
    }
}

#[tokio::test]
async fn a_refused_question_is_sent_once_and_the_message_is_reported_without_secrets() {
    let server = server(in_turn([ResponseTemplate::new(400).set_body_json(openai_error(
        "no model for key sk-hunter2: 'private words' is too odd",
        None,
        None,
    ))]))
    .await;
    let fixture =
        Fixture::one(JudgeConfig { api_key: Some(Secret::new("sk-hunter2")), ..config(&server.uri()) });
    for _ in 0..3 {
        assert_eq!(scores(&fixture.ask("my private words").await), Err(Unmeasured::JudgeError));
    }
    assert_eq!(server.received_requests().await.unwrap().len(), 1);
    let report = fixture.judges.report().remove(0);
    assert_eq!((report.asked, report.failed["http_400"], report.answered_share()), (3, 3, Some(0.0)));
    let messages: Vec<&String> = report.messages.iter().collect();
    assert_eq!(messages, ["no model for key [...]: [...] is too odd"]);
}

#[tokio::test]
async fn a_command_waits_for_a_judge_that_is_away() {
    let mut responses = vec![ResponseTemplate::new(503); 3];
    responses.push(good(4));
    let server = server(in_turn(responses)).await;
    let configs = [("main".to_owned(), JudgeConfig { retries: 0, ..config(&server.uri()) })].into();
    let batch = |patience| {
        let batch = crate::BatchMode { patience, dry_run: false };
        let (metrics, extensions) = (JudgeMetrics::default(), JudgeExtensions::default());
        Judges::for_batch(&configs, &JudgingConfig::default(), &metrics, &extensions, batch).unwrap()
    };
    let impatient = batch(Duration::ZERO);
    let answer = impatient.ask(trace(1), &ask("Rate this.", &["main"])).await;
    assert_eq!(scores(&answer), Err(Unmeasured::JudgeError));
    assert_eq!(impatient.report()[0].failed["http_503"], 1);
    let patient = batch(Duration::from_secs(600));
    let answer = patient.ask(trace(1), &ask("Rate this.", &["main"])).await;
    assert_eq!(scores(&answer), Ok(vec![4]));
    assert_eq!((patient.report()[0].answered, patient.report()[0].requests), (1, 3));
}

#[tokio::test]
async fn a_dry_run_counts_different_questions_and_sends_nothing() {
    let server = server(in_turn([good(4)])).await;
    let price = crate::config::Price { input: 1.0, output: 10.0, cached: None, cache_write: None };
    let configs = [("main".to_owned(), JudgeConfig { price, samples: 2, ..config(&server.uri()) })].into();
    let batch = crate::BatchMode { patience: Duration::ZERO, dry_run: true };
    let (metrics, extensions) = (JudgeMetrics::default(), JudgeExtensions::default());
    let judges =
        Judges::for_batch(&configs, &JudgingConfig::default(), &metrics, &extensions, batch).unwrap();
    for question in ["One.", "Two.", "One."] {
        let answer = judges.ask(trace(1), &ask(question, &["main"])).await;
        assert_eq!(scores(&answer), Err(Unmeasured::SampledOut));
    }
    assert!(server.received_requests().await.unwrap().is_empty());
    let report = judges.report().remove(0);
    let planned = report.planned.unwrap();
    assert_eq!((report.asked, planned.questions, planned.output_tokens_at_most), (0, 4, 4 * 2048));
    assert!(planned.input_tokens > 100 && planned.cost_usd < planned.cost_usd_at_most, "{planned:?}");
}
